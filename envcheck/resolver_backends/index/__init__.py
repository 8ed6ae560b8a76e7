"""The user's package indexes: which they are, what their pages list, and how files are fetched from them.

A lock is made from one index, never from two: if two may serve a name, whoever uploads to the second one
decides what is installed. Extra indexes and wheel folders of this machine are therefore left out of a lock on
purpose. `extra_indexes` reads the user's extra indexes for one wheel by its name, and the lock binds that
wheel to its address and hash.

The address of an index may hold a login, so it is never printed; `redaction` cleans text that may hold it.

May import host, lock and core. It must not know the backends.
"""
