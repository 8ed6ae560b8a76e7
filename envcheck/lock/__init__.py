"""A lock: pins with hashes, the files that fit a platform, and the texts a lock is written to and read from.

May import core. It must not know how versions were chosen or which command needs the lock.
"""
