"""The proof that no lock exists: a minimal set of conflicting reasons, in sentences, and ways out that help.

May import core, rules and the resolver. It must not know how the sentences are shown.

The search decides everything. If the search still finds nothing without a reason, the reason is dropped; the
reasons that cannot be dropped are the proof. A way out is one change, or two where no single one helps. It is
shown only if the search finds a lock with it.

`proof` finds the minimal set, `view` answers questions about it, `sentences` describes it, `folding` keeps
that short, and `ways_out` tries changes.
"""

from envcheck.resolution.conflicts.folding import MOST_LINES
from envcheck.resolution.conflicts.proof import ConflictProof, prove

__all__ = ["MOST_LINES", "ConflictProof", "prove"]
