"""Scripts that the target's own interpreter runs, Python 3.9 or newer; they import nothing of envcheck.

`query` lists what is installed, `c10d` passes journals between ranks, and `selftests` holds the training
steps. Only the standard library is imported at module level; a self-test imports its libraries inside
functions.
"""
