"""Prove the version bounds of rules: what to open on each side of a bound, what to look for, what was found.

A rule carries a `proof`: small checks of published files that are true for the releases that its `when`
matches, and false for those just outside and for those that its fixes advise. `declaration` reads that key,
`checks` applies a check to the files of a release, `bounds` finds the releases to open, `verification`
compares what was found with the rule, and `records` reads and writes it in compat/proofs/. `sweep` compares a
rule with all releases of a store.

Pure: it is given the files. May import core, rules and the other modules of knowledge. It must not know
where releases come from: `commands/prove.py` fetches them.
"""
