"""What a self-test's journal says, and the scripts that train.

May import core. It must not know how a process is started; `scripts` is run by the target's interpreter and
imports nothing of envcheck.
"""
