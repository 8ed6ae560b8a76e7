"""A lock: pins with hashes, the wheels that fit a platform, and the texts a lock is written as.

May import core. It must not know how versions were chosen or what asked for the lock.
"""
