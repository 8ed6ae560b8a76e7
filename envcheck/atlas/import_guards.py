"""Find the releases of a partner that a package's own code refuses while it is imported.

Four forms are read: a requirement of a table that a loop checks, `require_version("x>=1")` at module level,
a `raise` at module level under a test of the partner's version, and all of these in functions that a module
calls at its top level. `call_guards.py` reads the functions that users call. Checks in other functions are
not read, because versions do not decide if they run.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from envcheck.atlas.called_checks import CalledChecks, CalledRefusal
from envcheck.atlas.conditions import (
    PYTHON,
    AllOf,
    Compared,
    Condition,
    Installed,
    Negated,
    Surroundings,
    all_of,
    decide,
    packages_of,
)
from envcheck.atlas.demands import this_stack
from envcheck.atlas.entry_calls import definitions
from envcheck.atlas.gaps import CodeGap, GapKind
from envcheck.atlas.offers import ReleaseOffers
from envcheck.atlas.reader import PackageReader, surroundings
from envcheck.atlas.summary import FileSummary, Guards, ModuleCall
from envcheck.atlas.syntax import dotted
from envcheck.core.facts import Tri
from envcheck.core.versions import satisfies
from envcheck.knowledge.atlas import WITHOUT

_TABLE_CHECKS = ("dep_version_check",)
_OPPOSITE = {">=": "<", "<": ">=", ">": "<=", "<=": ">", "==": "!=", "!=": "=="}


@dataclass(frozen=True, slots=True)
class ImportRefusal:
    """One line of a release that refuses versions of a partner.

    Attributes:
        partner: the package whose version is tested.
        needs: the bound in words, `accelerate>=0.26.0`.
        specifier: what the partner's version has to satisfy; empty if `refused` contains the bound.
        refused: when the line is reached; without a specifier, when it raises.
        place: file and line.
        variables: environment variables that turn the check off.

    """

    partner: str
    needs: str
    specifier: str
    refused: Condition
    place: str
    variables: tuple[str, ...] = ()


def find_import_guards(package: PackageReader, partner: PackageReader) -> list[CodeGap]:
    """Return the releases of a partner that a package refuses on import, as one gap for each bound."""
    return refused_rows(package, partner, _refusals(package), lambda _: "")


def refused_on_import(package: PackageReader, partner: PackageReader) -> set[tuple[str, str]]:
    """Return the pairs of a release and a release of the partner that an import refuses."""
    return {
        (release, lacking)
        for gap in find_import_guards(package, partner)
        for release in gap.releases
        for lacking in gap.lacking
    }


def refused_rows(
    package: PackageReader,
    partner: PackageReader,
    refusals: Iterable[tuple[str, str, ImportRefusal]],
    kind_of: Callable[[str], str],
) -> list[CodeGap]:
    """Return the refusals of a partner, given as (version, entry, refusal), as one gap for each bound.

    A pair of releases counts once for each kind of entry, which `kind_of` returns.
    """
    rows: dict[tuple[str, str, tuple[str, ...]], dict[str, str]] = {}
    blamed: dict[str, set[tuple[str, str]]] = {}
    for version, entry, refusal in refusals:
        if refusal.partner != partner.name:
            continue
        hidden = blamed.setdefault(kind_of(entry), set())
        lacking = tuple(
            each
            for each in partner.by_version
            if (version, each) not in hidden
            and _refuses(refusal, each, _two_alone(surroundings(package, version, partner, each)))
        )
        if lacking:
            rows.setdefault((entry, refusal.needs, lacking), {}).setdefault(version, refusal.place)
            hidden.update((version, each) for each in lacking)
    return [
        CodeGap(
            kind=GapKind.GUARD,
            package=package.name,
            releases=tuple(asking),
            entry=entry,
            partner=partner.name,
            lacking=lacking,
            needs=needs,
            places=tuple(asking.values()),
        )
        for (entry, needs, lacking), asking in rows.items()
    ]


def refusals_of(found: CalledRefusal) -> Iterator[ImportRefusal]:
    """Yield what a line of a called function refuses, for each package whose version it tests."""
    if found.requirement:
        yield from _required(found.requirement, found.condition, found.place)
        return
    for partner, bound in _bounds(found.condition):
        yield ImportRefusal(partner, bound, "", found.condition, found.place)


def _two_alone(beside: Surroundings) -> Surroundings:
    """Return the surroundings with every third package in any version.

    Users do not always install what metadata requires: unsloth refuses torch 2.3 beside xformers 0.0.27, so
    users of torch 2.3 install xformers 0.0.26.
    """
    anywhere = {name: window if name == PYTHON else "" for name, window in beside.windows.items()}
    return replace(beside, windows=anywhere)


def _refuses(refusal: ImportRefusal, version: str, beside: Surroundings) -> bool:
    if decide(refusal.refused, beside) is not Tri.YES:
        return False
    return not refusal.specifier or satisfies(version, refusal.specifier, unknown=Tri.YES) is Tri.NO


@lru_cache(maxsize=4)
def _refusals(package: PackageReader) -> tuple[tuple[str, str, ImportRefusal], ...]:
    """Return the refusals of each release as (version, entry, refusal).

    A line counts for the first entry that reaches it. The result is cached, because a package is compared
    with one partner after another.
    """
    return tuple(
        (version, entry, refusal)
        for version in package.by_version
        for entry, refusal in package.reading("refusals", version, partial(_refused, package, version))
    )


def _refused(package: PackageReader, version: str) -> tuple[tuple[str, ImportRefusal], ...]:
    return tuple(_read_refusals(package, version))


def _read_refusals(package: PackageReader, version: str) -> Iterator[tuple[str, ImportRefusal]]:
    offers = package.offers(version)
    checks = CalledChecks(definitions(package, version))
    seen: set[tuple[str, Condition]] = set()
    for entry in package.entries(version):
        for module, condition in entry.modules:
            summary = offers.modules.summary(module)
            if summary is None or (module, condition) in seen:
                continue
            seen.add((module, condition))
            for refusal in _module_refusals(offers, summary, module, condition):
                yield WITHOUT.join((entry.action, *refusal.variables[:1])), refusal
            for refusal in _called_refusals(checks, summary, module, condition):
                yield WITHOUT.join((entry.action, *refusal.variables[:1])), refusal


def _called_refusals(
    checks: CalledChecks, summary: FileSummary, module: str, reached: Condition
) -> Iterator[ImportRefusal]:
    """Yield the refusals in functions that a module calls at its top level."""
    for call in summary.calls:
        condition = all_of((reached, checks.code.offers.guards.together(call.guards, module)))
        if decide(condition, this_stack()) is Tri.NO:
            continue
        for found in checks.refusals(call, module, condition):
            yield from (replace(each, variables=found.variables) for each in refusals_of(found))


def _module_refusals(
    offers: ReleaseOffers, summary: FileSummary, module: str, reached: Condition
) -> Iterator[ImportRefusal]:
    path = offers.modules.path(module)

    def condition(guards: Guards) -> Condition:
        return all_of((reached, offers.guards.together(guards, module)))

    for check in summary.checks:
        text = _table(offers, summary, module, check.table).get(check.package, "")
        yield from _required(text, condition(check.guards), f"{path}:{check.line}")
    for call in summary.calls:
        function, argument = _checked(call)
        if function in _TABLE_CHECKS:
            text = _table(offers, summary, module, "deps").get(argument, "")
            yield from _required(text, condition(call.guards), f"{path}:{call.line}")
    for refusal in summary.refusals:
        refused = condition(refusal.guards)
        variables = _named_in(offers.guards.asked(refusal.guards, module), offers, path)
        for partner, bound in _bounds(refused):
            yield ImportRefusal(partner, bound, "", refused, f"{path}:{refusal.line}", variables)


def _named_in(variables: Sequence[str], offers: ReleaseOffers, path: str) -> tuple[str, ...]:
    """Return those environment variables that a file names.

    Reading a name of another module runs all of its script, which may ask for variables that do not matter.
    """
    text = offers.modules.release.files.read(path)
    return tuple(each for each in variables if each.encode() in text)


def _checked(call: ModuleCall) -> tuple[str, str]:
    """Return the last part of the called name, and the first argument if it is a text."""
    match ast.parse(call.text, mode="eval").body:
        case ast.Call(func=function, args=[ast.Constant(value=str(text)), *_]):
            return (dotted(function) or "").rsplit(".", 1)[-1], text
        case _:
            return "", ""


def _table(offers: ReleaseOffers, summary: FileSummary, module: str, name: str) -> Mapping[str, str]:
    """Return a table of requirements that a module holds or imports."""
    if name in summary.tables:
        return summary.tables[name]
    origin = summary.imports.get(name)
    target = offers.modules.absolute(module, origin) if origin else ""
    if target and not offers.modules.owns(target):
        return {}
    # `dep_version_check` is imported from the module that imports the table.
    candidates = [target] if target else [f"{offers.modules.tops[0]}.dependency_versions_table"]
    for each in candidates:
        below = offers.modules.summary(each)
        if below is not None and name in below.tables:
            return below.tables[name]
    return {}


def _required(text: str, reached: Condition, place: str) -> Iterator[ImportRefusal]:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return
    if requirement.specifier:
        partner = str(canonicalize_name(requirement.name))
        needs = f"{partner}{requirement.specifier}"
        yield ImportRefusal(partner, needs, str(requirement.specifier), reached, place)


def _bounds(refused: Condition) -> Iterator[tuple[str, str]]:
    """Yield the packages whose versions a refusal tests, each with the bound that it sets.

    If a refusal sets several bounds on a package, such as a list of supported versions, only the name of the
    package is given.
    """
    found: dict[str, list[str]] = {}
    parts = refused.of if isinstance(refused, AllOf) else (refused,)
    for part in parts:
        match part:
            case Compared(package, op, bound) if op in _OPPOSITE:
                found.setdefault(package, []).append(f"{package}{_OPPOSITE[op]}{bound}")
            case Negated(Compared(package, op, bound)):
                found.setdefault(package, []).append(f"{package}{op}{bound}")
            case Negated(Installed(package, floors)) if floors:
                found.setdefault(package, []).append(f"{package}>={floors[-1]}")
            case _:
                for package in packages_of(part) if not isinstance(part, Installed) else ():
                    found.setdefault(package, []).append(package)
    for package, bounds in found.items():
        yield package, bounds[0] if len(set(bounds)) == 1 else package
