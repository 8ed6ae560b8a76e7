"""The search for a lock: package versions, and values of free training facts, that no rule refuses.

May import core, rules and knowledge. It must not know how a choice is completed to a lock.

The search is depth-first: over the packages that the user requires, then over the target's in its order. For
each package, a release from a good measured run comes first, then the newest. A choice is judged while it
grows. Because the logic has three values, a verdict on a partial choice is valid for every choice that
extends it. After a refusal, the search continues with the values that a fix of the broken rule names. From a
dead end, it returns to the choice that caused it (conflict-directed backjumping). The reasons are collected;
if nothing fits, they are the proof. Only *broken* rules refuse a choice; an undecided rule does not.

Dependencies are searched too, but one is chosen only if a chosen release requires it.

`problem` holds requests and answers, `candidates` the releases to choose from, and `refusing_rules` the rules
that may refuse a choice. `choice_judge` judges partial choices, `search` searches, and `objections` judges a
whole lock. `consistency` compares packages in pairs, for searches that take too long. `bounds` expresses the
verdicts on releases as version bounds.
"""

from envcheck.resolution.resolver.bounds import PairBounds, bounds_of_pairs, judges_bounds
from envcheck.resolution.resolver.candidates import (
    admits,
    built,
    candidates,
    free_values,
    required_packages,
    wanted_packages,
    with_variants,
)
from envcheck.resolution.resolver.objections import avoidable_warnings, objections, warnings
from envcheck.resolution.resolver.problem import Answer, Objection, Reason, Release, SearchProblem
from envcheck.resolution.resolver.search import solve

__all__ = [
    "Answer",
    "Objection",
    "PairBounds",
    "Reason",
    "Release",
    "SearchProblem",
    "admits",
    "avoidable_warnings",
    "bounds_of_pairs",
    "built",
    "candidates",
    "free_values",
    "judges_bounds",
    "objections",
    "required_packages",
    "solve",
    "wanted_packages",
    "warnings",
    "with_variants",
]
