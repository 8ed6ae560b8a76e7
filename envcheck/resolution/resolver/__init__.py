"""The search for a lock: versions of the stack's packages, and free training facts, that no rule refuses.

May import core, rules and knowledge. It must not know how a choice is completed to a lock.

The search is depth-first over the packages in the target's order. For each package, a release from a good
measured run comes first, then the newest. A choice is judged as it grows: the logic has three values, so a
verdict on a part holds for every whole that contains it. After a refusal the search continues where a fix of
the broken rule points. A dead end returns to the choice that caused it (conflict-directed backjumping), and
the reasons are kept: where nothing fits they are the proof. Only *broken* rules refuse a choice; an undecided
rule does not.

What the required packages bring along is searched with them, but chosen only if a chosen release requires it.

`problem` holds requests and answers, `candidates` the releases to choose from, `refusing_rules` the rules
that may refuse, `choice_judge` the judge of partial choices, `search` the search, and `objections` the judge
of a whole lock. `bounds` states the judge's verdicts on single releases as version bounds.
"""

from envcheck.resolution.resolver.bounds import judges_bounds
from envcheck.resolution.resolver.candidates import (
    admits,
    built,
    candidates,
    free_values,
    required_packages,
    wanted_packages,
    with_variants,
)
from envcheck.resolution.resolver.objections import objections
from envcheck.resolution.resolver.problem import Answer, Objection, Reason, Release, SearchProblem
from envcheck.resolution.resolver.search import solve

__all__ = [
    "Answer",
    "Objection",
    "Reason",
    "Release",
    "SearchProblem",
    "admits",
    "built",
    "candidates",
    "free_values",
    "judges_bounds",
    "objections",
    "required_packages",
    "solve",
    "wanted_packages",
    "with_variants",
]
