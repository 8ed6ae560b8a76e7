"""What a self-test claims and what its journal says: declarations, outcomes and the report on them.

May import core. It must not start a process; the tests themselves are in target_scripts/selftests.
"""
