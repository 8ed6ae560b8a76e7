"""The proof that no lock exists: the least reasons that conflict, in sentences, and ways out that help.

May import core, rules and the resolver. It must not know how the sentences are shown.

Everything follows from the search. A reason is dropped if the search still finds nothing without it; the
reasons that cannot be dropped are the proof. A way out is one change, and it is shown only if the search
finds a lock with it.

`proof` finds the least set, `view` looks at it, `sentences` describes it and `ways_out` tries changes.
"""

from envcheck.resolution.conflicts.proof import ConflictProof, prove

__all__ = ["ConflictProof", "prove"]
