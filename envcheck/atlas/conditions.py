"""Conditions under which a line of a package runs, and their evaluation beside other releases.

A condition is a typed value that was read from a guard such as `if is_peft_available():`. Evaluation is
three-valued: a condition that cannot be read is MAYBE, and MAYBE gives no verdict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TypeAlias

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from envcheck.core.facts import Tri
from envcheck.core.versions import parse

PYTHON = "python"
"""The package name that stands for the interpreter in a comparison."""

CUDA = "a CUDA device"
"""The package name that stands for a CUDA device that torch can use; no package has such a name."""


@dataclass(frozen=True, slots=True)
class Fixed:
    """A condition that does not depend on any package: always, never, or not readable."""

    answer: Tri


ALWAYS = Fixed(Tri.YES)
NEVER = Fixed(Tri.NO)
UNREADABLE = Fixed(Tri.MAYBE)


@dataclass(frozen=True, slots=True)
class Installed:
    """A package is installed, and its version is at least each of `floors`.

    Several floors stand for a predicate of another package whose releases apply different minimums: the
    package counts as installed from the highest one on, as absent below the lowest one, and as maybe between.
    """

    package: str
    floors: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Compared:
    """A package's version compares with a bound; with `depth`, only the first parts of both are compared."""

    package: str
    op: str
    bound: str
    depth: int = 0


@dataclass(frozen=True, slots=True)
class PartCompared:
    """One number of a package's version compares with another: `TORCH_MINOR >= 8`."""

    package: str
    index: int
    op: str
    number: int


@dataclass(frozen=True, slots=True)
class HasName:
    """A module, a name in a module or an attribute exists: `hasattr(torch, "compiler")`."""

    path: str


@dataclass(frozen=True, slots=True)
class Negated:
    """Opposite of a condition."""

    of: Condition


@dataclass(frozen=True, slots=True)
class AllOf:
    """All of these conditions are met."""

    of: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class AnyOf:
    """At least one of these conditions is met."""

    of: tuple[Condition, ...]


Condition: TypeAlias = Fixed | Installed | Compared | PartCompared | HasName | Negated | AllOf | AnyOf


def negate(condition: Condition) -> Condition:
    """Return the opposite of a condition."""
    match condition:
        case Fixed(answer):
            return Fixed(answer.negated())
        case Negated(inner):
            return inner
        case AllOf(parts):
            return any_of(map(negate, parts))
        case AnyOf(parts):
            return all_of(map(negate, parts))
        case _:
            return Negated(condition)


def all_of(conditions: Iterable[Condition]) -> Condition:
    """Return a condition that is met if all of these are."""
    return _joined(AllOf, conditions)


def any_of(conditions: Iterable[Condition]) -> Condition:
    """Return a condition that is met if at least one of these is."""
    return _joined(AnyOf, conditions)


def _joined(kind: type[AllOf | AnyOf], conditions: Iterable[Condition]) -> Condition:
    """Join conditions: flatten nested ones, and simplify each by what its neighbours state."""
    neutral, decisive = (ALWAYS, NEVER) if kind is AllOf else (NEVER, ALWAYS)
    kept: dict[Condition, None] = {}
    for each in conditions:
        for part in each.of if isinstance(each, kind) else (each,):
            kept[part] = None
    # In `A and …` the rest may assume that A is met; in `A or …`, that it is not.
    facts = [each for each in kept if not isinstance(each, AllOf | AnyOf | Fixed)]
    simple: dict[Condition, None] = {}
    for each in kept:
        part = each
        if isinstance(each, AllOf | AnyOf):
            for fact in facts:
                part = given(part, fact, met=kind is AllOf)
        for inner in part.of if isinstance(part, kind) else (part,):
            simple[inner] = None
    simple.pop(neutral, None)
    if decisive in simple or any(negate(each) in simple for each in facts):
        return decisive
    return next(iter(simple)) if len(simple) == 1 else kind(tuple(simple)) if simple else neutral


def given(condition: Condition, fact: Condition, *, met: bool) -> Condition:
    """Return a condition simplified under the assumption that a fact is met, or that it is not."""
    if isinstance(condition, AllOf | AnyOf):
        return _joined(type(condition), (given(each, fact, met=met) for each in condition.of))
    if condition == fact or (met and _implies(fact, condition)):
        return ALWAYS if met else NEVER
    if condition == negate(fact) or (met and _implies(fact, negate(condition))):
        return NEVER if met else ALWAYS
    return condition


def _implies(fact: Condition, other: Condition) -> bool:
    """Return whether a fact such as "installed in at least X" implies that the same package is installed."""
    return isinstance(fact, Installed) and other == Installed(fact.package)


def either(test: Condition, then: Condition, otherwise: Condition) -> Condition:
    """Return the condition `then if test else otherwise`."""
    if then == otherwise or test == ALWAYS:
        return then
    if test == NEVER:
        return otherwise
    return any_of((all_of((test, then)), all_of((negate(test), otherwise))))


def _no_names(_path: str) -> Tri:
    return Tri.MAYBE


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """Releases beside which a condition is decided.

    Attributes:
        versions: packages of a known version; `python` among them if it is known.
        windows: packages installed in an unknown version, with the specifier that the version satisfies.
        absent: packages that are not installed.
        has: whether a dotted path exists in the packages of a known version.

    """

    versions: Mapping[str, str] = field(default_factory=dict)
    windows: Mapping[str, str] = field(default_factory=dict)
    absent: frozenset[str] = frozenset()
    has: Callable[[str], Tri] = _no_names


def decide(condition: Condition, beside: Surroundings) -> Tri:
    """Return whether a condition is met beside these releases."""
    match condition:
        case Negated(inner):
            return decide(inner, beside).negated()
        case AllOf(parts):
            return min(decide(each, beside) for each in parts)
        case AnyOf(parts):
            return max(decide(each, beside) for each in parts)
        case _:
            return _decide_single(condition, beside)


def _decide_single(
    condition: Fixed | Installed | Compared | PartCompared | HasName, beside: Surroundings
) -> Tri:
    match condition:
        case Fixed(answer):
            return answer
        case Installed(package, floors):
            return _installed(package, floors, beside)
        case Compared(package, op, bound, depth):
            return _compared(package, op, bound, depth, beside)
        case PartCompared(package, index, op, number):
            return _part_compared(package, index, op, number, beside)
        case HasName(path):
            return beside.has(path)


def packages_of(condition: Condition) -> frozenset[str]:
    """Return the packages that a condition asks about; for a dotted path its first part."""
    match condition:
        case Fixed():
            return frozenset()
        case Negated(inner):
            return packages_of(inner)
        case AllOf(parts) | AnyOf(parts):
            return frozenset().union(*map(packages_of, parts))
        case HasName(path):
            return frozenset({path.split(".")[0]})
        case Installed(package) | Compared(package) | PartCompared(package):
            return frozenset({package})


def optional_packages(condition: Condition) -> frozenset[str]:
    """Return the packages of which a condition asks whether any version is installed."""
    match condition:
        case Negated(inner):
            return optional_packages(inner)
        case AllOf(parts) | AnyOf(parts):
            return frozenset().union(*map(optional_packages, parts))
        case Installed(package, ()):
            return frozenset({package})
        case _:
            return frozenset()


def _installed(package: str, floors: tuple[str, ...], beside: Surroundings) -> Tri:
    if package in beside.absent:
        return Tri.NO
    if package in beside.versions:
        answers = {_ordered(beside.versions[package], ">=", floor) for floor in floors}
        return Tri.YES if not answers else Tri.MAYBE if len(answers) > 1 else answers.pop()
    return Tri.YES if package in beside.windows else Tri.MAYBE


def _compared(package: str, op: str, bound: str, depth: int, beside: Surroundings) -> Tri:
    if package in beside.versions:
        version = beside.versions[package]
        return (
            _ordered(_cut(version, depth), op, _cut(bound, depth)) if depth else _ordered(version, op, bound)
        )
    if package in beside.windows:
        return _window_compares(beside.windows[package], op, bound)
    return Tri.MAYBE


def _cut(version: str, depth: int) -> str:
    parsed = parse(version)
    if parsed is None:
        return version
    padded = parsed.release + (0,) * depth
    return ".".join(map(str, padded[:depth]))


def _part_compared(package: str, index: int, op: str, number: int, beside: Surroundings) -> Tri:
    version = parse(beside.versions.get(package, ""))
    if version is None:
        return Tri.MAYBE
    part = (version.release + (0,) * 3)[index] if index < 3 else 0  # noqa: PLR2004 - major, minor, micro
    return _ordered(str(part), op, str(number))


@lru_cache(maxsize=65536)
def _ordered(version: str, op: str, bound: str) -> Tri:
    """Compare as `packaging.version.Version` does, which is what guards in code use.

    Some guards compare the base version instead, which is another one for a pre-release of the bound.
    """
    left, right = parse(version), parse(bound)
    if left is None or right is None:
        return Tri.MAYBE
    if left.is_prerelease and not right.is_prerelease and parse(left.base_version) == right:
        return Tri.MAYBE
    answers = {
        "==": left == right,
        "!=": left != right,
        ">=": left >= right,
        "<=": left <= right,
        ">": left > right,
        "<": left < right,
    }
    return Tri.of(answers[op]) if op in answers else Tri.MAYBE


@lru_cache(maxsize=65536)
def _window_compares(window: str, op: str, bound: str) -> Tri:
    """Compare an unknown version inside a window with a bound; MAYBE unless the whole window agrees."""
    try:
        low, high = _ends(window)
        limit = Version(bound)
    except (InvalidSpecifier, InvalidVersion):
        return Tri.MAYBE
    if op in ("<", "<="):
        return _window_compares(window, ">=" if op == "<" else ">", bound).negated()
    if op not in (">=", ">"):
        return Tri.MAYBE
    if low is not None and (low >= limit if op == ">=" else low > limit):
        return Tri.YES
    return Tri.NO if high is not None and high <= limit else Tri.MAYBE


def _ends(window: str) -> tuple[Version | None, Version | None]:
    """Return the lower and the upper bound of a window; None where it has none."""
    lows = [Version(each.version) for each in SpecifierSet(window) if each.operator in (">=", ">", "~=")]
    highs = [Version(each.version) for each in SpecifierSet(window) if each.operator == "<"]
    return max(lows, default=None), min(highs, default=None)
