"""The user's package indexes: their settings, the files on their pages, and fetching from them.

A lock is made from one index, never from two: if a second index may provide a package, whoever uploads to
that index decides what is installed. Extra indexes and local wheel folders are therefore deliberately left
out of a lock. The exception is `extra_indexes`: it looks for one named wheel on the user's extra indexes, and
the lock binds that wheel to its address and hash.

The address of an index may hold a login, so it is never printed; `redaction` cleans text that may hold it.

May import host, lock and core. It must not know the backends.
"""
