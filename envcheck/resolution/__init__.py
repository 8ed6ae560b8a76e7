"""The searches over versions: for a lock, for the proof that there is none, and for the smallest change.

May import core, rules, lock and knowledge. It must not reach the network or run an installer; that is the
work of `resolver_backends`.

`resolver` searches for a lock and `conflicts` proves that none exists. `remediation` searches for the
smallest change to an installed environment, and `from_current` decides what a lock keeps of one.
`user_requirements` reads the bounds that a user adds.
"""
