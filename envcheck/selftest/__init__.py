"""Self-tests as values: the declaration of a test, its outcome, and the report on all outcomes.

`journal` turns what the processes of a test left behind into an outcome; `stacks` reads their stack traces.

May import core. It must not start a process; the tests themselves are scripts in target_scripts/selftests.
"""
