"""Questions on the conditions of lines, which the walk through the functions of a release asks."""

from __future__ import annotations

from envcheck.atlas.conditions import (
    ALWAYS,
    UNREADABLE,
    AllOf,
    AnyOf,
    Condition,
    HasName,
    Negated,
    all_of,
    negate,
)


def is_opaque(condition: Condition) -> bool:
    """Return whether a condition can never be decided as met, in any surroundings."""
    return condition == UNREADABLE or (isinstance(condition, AllOf) and UNREADABLE in condition.of)


def survived(test: Condition) -> Condition:
    """Return the condition after `if test: raise`; one that cannot be decided is assumed not to raise."""
    after = negate(test)
    if isinstance(after, AllOf):
        return all_of(each for each in after.of if not _unsure(each))
    return ALWAYS if _unsure(after) else after


def _unsure(condition: Condition) -> bool:
    """Return whether no versions decide a condition; the class of an attribute of `self` is not known."""
    match condition:
        case HasName(path) | Negated(HasName(path)):
            return path.startswith("self.")
        case AnyOf(parts):
            return UNREADABLE in parts
        case _:
            return condition == UNREADABLE


def asks_a_class(condition: Condition) -> bool:
    """Return whether a condition tests an attribute of a class; the bodies of classes are not read."""
    match condition:
        case HasName(path):
            return any(part[:1].isupper() for part in path.split(".")[:-1])
        case Negated(inner):
            return asks_a_class(inner)
        case AllOf(parts) | AnyOf(parts):
            return any(map(asks_a_class, parts))
        case _:
            return False
