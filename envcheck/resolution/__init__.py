"""Searches over versions: for a lock, for the proof that none exists, and for the smallest change.

May import core, rules, lock and knowledge. It must not reach the network or run an installer:
`resolver_backends` does that.

`resolver` searches for a lock and `conflicts` proves that none exists. `remediation` searches for the
smallest change to an installed environment, and `from_current` decides what a lock keeps of one.
`user_requirements` reads the bounds that a user adds.
"""
