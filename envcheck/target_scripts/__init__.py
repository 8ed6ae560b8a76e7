"""Scripts that the target's own interpreter runs (Python 3.9 or newer); they import nothing of envcheck.

`query` describes the interpreter, `c10d` passes texts between the ranks of a job, and `selftests` holds the
self-tests and what runs them (`_worker.py` and its siblings, whose names start with an underscore). At module
level only the standard library is imported; a self-test imports its libraries inside functions.

Nothing in this package may know envcheck's facts, rules or reports: the scripts only return what they saw.
"""
