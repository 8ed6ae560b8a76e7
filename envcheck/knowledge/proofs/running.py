"""Prove one rule by running a program: inside and outside its bounds, and with all that a fix advises.

A fix is run beside the newest release of every package that it leaves free, because that is what people get
who follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from packaging.requirements import Requirement

from envcheck.core import versions
from envcheck.core.errors import NoSolutionError
from envcheck.core.facts import package_name
from envcheck.core.rules import UNINSTALLED, Fix, Rule, uninstalls
from envcheck.knowledge.proofs import bounds
from envcheck.knowledge.proofs.declaration import RunCheck
from envcheck.knowledge.proofs.records import RUN, SeenRelease

SHORT_RANGE = 8
"""Releases inside the bounds up to which each one is run: some in the middle may not run the line at all."""


class RunResult(NamedTuple):
    """Hold how a program ended beside the releases that fit its requirements.

    Attributes:
        passes: whether it ended without an exception.
        fails: whether it failed as the check states; both are false if it failed otherwise.
        seen: the line that shows it.
        releases: the release of each package that was installed for it.

    """

    passes: bool
    fails: bool
    seen: str
    releases: Mapping[str, str]


Run = Callable[[RunCheck, Sequence[str]], RunResult]
"""Runs the program of a check beside the newest releases that fit some requirements.

Raises NoSolutionError if no releases fit all of them.
"""


def decided(rule: Rule, check: RunCheck, around: Sequence[str], newest: str, run: Run) -> list[SeenRelease]:
    """Return how the program ended in releases around the bounds, and with the fixes.

    Args:
        rule: the rule to prove.
        check: the program, and the package whose releases are varied.
        around: the releases to run; empty if the rule does not bound the package, which fails in `newest`.
        newest: the newest release of the package.
        run: runs the program.

    Raises:
        NoSolutionError: no release around the bounds can be installed beside what the check names. If only
            some cannot, nobody has them, and they are left out.

    """
    inside = [version for version in around if bounds.rule_matches(rule, check.package, version, check.when)]
    inside = inside if around else [newest]
    rows, refused = [], None
    for version in inside if check.fix else around or inside:
        try:
            result = run(check, [f"{check.package}=={version}", *check.beside])
        except NoSolutionError as error:
            refused = error
            continue
        if check.fix:
            row = _row(check.package, version, f"fix {check.fix}{RUN}", result, agrees=result.passes)
        else:
            side = "inside" if version in inside else "outside"
            row = _row(check.package, version, side, result, agrees=result.fails is (version in inside))
        rows.append(row)
    if refused and not rows:
        raise refused
    failing = [row.version for row in rows if row.side == "inside" and row.agrees]
    return [*rows, *_with_fixes(rule, check, failing[-1], run)] if failing else rows


def _row(package: str, version: str, side: str, result: RunResult, *, agrees: bool) -> SeenRelease:
    others = ", ".join(f"{name} {found}" for name, found in result.releases.items() if name != package)
    return SeenRelease(package, version, side, agrees, f"{result.seen}; beside {others or 'nothing else'}")


def _with_fixes(rule: Rule, check: RunCheck, failing: str, run: Run) -> Iterator[SeenRelease]:
    """Yield how the program ended with each fix that changes packages only, lowest and newest."""
    for number, fix in enumerate(rule.fixes, 1):
        side = f"fix {number}{RUN}"
        for requirements, lowest in _requirements(rule, check, fix, failing):
            package, value = package_name(fix.set[0][0]), str(fix.set[0][1])
            try:
                result = run(replace(check, regardless=False), requirements)
            except NoSolutionError:
                if not lowest:  # what is left free may exclude the lowest release, but not all of them
                    yield SeenRelease(package, value, side, agrees=False, seen="no releases fit together")
                continue
            version = result.releases.get(package, UNINSTALLED)
            yield _row(package, version, side, result, agrees=result.passes)


def _requirements(rule: Rule, check: RunCheck, fix: Fix, failing: str) -> Iterator[tuple[list[str], bool]]:
    """Yield what is installed for a fix: with the lowest releases that it names, and with the newest."""
    named = {package_name(key): value for key, value in fix.set if key.startswith("pkg.")}
    if len(named) != len(fix.set) or not all(isinstance(v, str) and "{" not in v for v in named.values()):
        return  # a setting is changed, which this program does not know
    if "torch" in named:
        return  # all programs share one torch, and no requirement changes it
    kept = {check.package: f"=={failing}" if check.package in bounds.bounded_packages(rule) else ""}
    for text in check.beside:
        beside = Requirement(text)
        kept[beside.name] = str(beside.specifier) if beside.name in bounds.bounded_packages(rule) else ""
    gone = {package_name(key) for key, value in fix.set if uninstalls(key, value)}
    newest = {**kept, **{name: str(value) for name, value in named.items()}}
    lowest = {**newest, **{name: _lowest(str(value)) for name, value in named.items()}}
    for wanted in [lowest, newest] if lowest != newest else [newest]:
        lines = [f"{name}{bound}" for name, bound in wanted.items() if name not in gone]
        yield lines, wanted is lowest and lowest != newest


def _lowest(specifier: str) -> str:
    """Return a specifier of the one release that `>=V` begins with; another specifier as it is."""
    tests = () if specifier == UNINSTALLED else versions.parse_specifier(specifier)
    return next((f"=={test.operand}" for test in tests if test.op == ">="), specifier)
