"""Read the `proof` of a rule, as a rule file declares it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

_CHECK_KEYS = frozenset(
    {"pkg", "file", "scope", "has", "lacks", "keyword", "lacks_keyword", "name", "lacks_name", "when"}
    | {"requires", "extra", "names_bound", "of", "among", "wheels", "lacks_wheels", "lowest"}
)
_PROOF_KEYS = frozenset({"reads", "runs", "none", "unopened", "except", "around"})


@dataclass(frozen=True, kw_only=True)
class ReadCheck:
    """One thing to look for in the published files of a release.

    Attributes:
        package: the package whose releases are opened.
        files: paths inside the wheel; several where the file moved. Those that exist are read as one text.
        scope: the function or class that the text is narrowed to, `Accelerator.__init__`.
        has: regular expressions that must all be found.
        lacks: regular expressions of which none may be found.
        keywords: parameters that the function of `scope` must have; `lacks_keywords` must all be missing.
        names: dotted names that the package must offer; `lacks_names` must all be missing.
        when: numbers of the `when` tables that the check is for, from 1; empty for all of them.
        requires: a package whose bound is read from the metadata; with `extra`, from that extra's.
        names_bound: a regular expression with one group, the lowest version of `of` that the code accepts.
        of: the package that `names_bound` is about.
        among: the versions of the other package that the rule is about, as a specifier; empty for all.
        lowest: whether the rule is only about the lowest version that the bound admits.
        wheels: a regular expression that the name of a wheel must match; `lacks_wheels` must match none.

    """

    package: str
    files: tuple[str, ...] = ()
    scope: str = ""
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    keywords: tuple[str, ...] = ()
    lacks_keywords: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    lacks_names: tuple[str, ...] = ()
    when: tuple[int, ...] = ()
    requires: str = ""
    extra: str = ""
    names_bound: str = ""
    of: str = ""
    among: str = ""
    lowest: bool = False
    wheels: str = ""
    lacks_wheels: str = ""

    @property
    def partner(self) -> str:
        """Return the package whose versions the check bounds; empty for a check that is true or false."""
        return self.requires or self.of


@dataclass(frozen=True, kw_only=True)
class RunCheck:
    """Hold a program that runs beside releases: it must fail inside the bounds, not outside or with a fix.

    Attributes:
        package: the package whose releases are installed.
        program: the text of the program, in Python.
        fails: a regular expression for how it fails; to fail otherwise does not show the failure. Empty if
            `fix` is given.
        beside: requirements that are installed with it, `transformers<5`; the newest that fit together.
        when: numbers of the `when` tables that the check is for, from 1; empty for all of them.
        fix: the number of the fix that the program makes itself, by another setting: it must pass inside the
            bounds. 0 for a program that shows the failure.
        processes: how many processes run it; more than one are started by torch's launcher.
        regardless: whether what is installed may contradict the requirements of other packages, as after
            `pip install --no-deps`; with a fix that changes packages it must not.
        among: limits the releases that are run, such as to those that can run without a GPU; empty for all.

    """

    package: str
    program: str
    fails: str = ""
    beside: tuple[str, ...] = ()
    when: tuple[int, ...] = ()
    fix: int = 0
    processes: int = 1
    regardless: bool = False
    among: str = ""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """How the bounds of a rule are proven.

    Attributes:
        reads: what is looked for in published files.
        runs: programs that are run.
        none: why the rule can be neither read nor run; empty if it can.
        unopened: packages whose bounds are not opened, with the reason.
        exceptions: releases (`peft 0.9.0`, `peft <0.9`) for which the checks do not decide, with the reason.
        around: a note on who already works around the failure, or that no one was found.

    """

    reads: tuple[ReadCheck, ...] = ()
    runs: tuple[RunCheck, ...] = ()
    none: str = ""
    unopened: Mapping[str, str] = field(default_factory=dict)
    exceptions: Mapping[str, str] = field(default_factory=dict)
    around: str = ""


def read_proof(raw: Any) -> tuple[Proof, list[str]]:
    """Return the proof that a rule declares, and the mistakes in it."""
    if not isinstance(raw, Mapping):
        return Proof(), [f"proof: expected a table; found {raw!r}"]
    problems = [f"proof: unknown key {key!r}" for key in sorted(raw.keys() - _PROOF_KEYS)]
    reads = [_read_check(row, problems) for row in _rows(raw, "reads", problems)]
    runs = [_run_check(row, problems) for row in _rows(raw, "runs", problems)]
    texts = {key: str(raw.get(key, "")) for key in ("none", "around")}
    if not (reads or runs or texts["none"]):
        problems.append('proof: expected reads, runs or none = "why"')
    proof = Proof(
        reads=tuple(check for check in reads if check),
        runs=tuple(check for check in runs if check),
        none=texts["none"],
        unopened=_reasons(raw, "unopened", problems),
        exceptions=_reasons(raw, "except", problems),
        around=texts["around"],
    )
    return proof, problems


def _rows(raw: Mapping[str, Any], key: str, problems: list[str]) -> list[Mapping[str, Any]]:
    rows = raw.get(key, [])
    if isinstance(rows, list) and all(isinstance(row, Mapping) for row in rows):
        return rows
    problems.append(f"proof: {key}: expected a list of tables; found {rows!r}")
    return []


def _reasons(raw: Mapping[str, Any], key: str, problems: list[str]) -> dict[str, str]:
    reasons = raw.get(key, {})
    if isinstance(reasons, Mapping) and all(isinstance(why, str) and why for why in reasons.values()):
        return dict(reasons)
    problems.append(f"proof: {key}: expected a reason for each package or release; found {reasons!r}")
    return {}


def _texts(row: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = row.get(key, ())
    return (value,) if isinstance(value, str) else tuple(map(str, value))


def _numbers(row: Mapping[str, Any]) -> tuple[int, ...]:
    value = row.get("when", ())
    return (value,) if isinstance(value, int) else tuple(value)


def _read_check(row: Mapping[str, Any], problems: list[str]) -> ReadCheck | None:
    before = len(problems)
    problems += [f"proof: reads: unknown key {key!r}" for key in sorted(row.keys() - _CHECK_KEYS)]
    if not isinstance(row.get("pkg"), str):
        problems.append(f"proof: reads: expected pkg, the package to open; found {dict(row)!r}")
    check = ReadCheck(
        package=str(row.get("pkg", "")),
        files=_texts(row, "file"),
        scope=str(row.get("scope", "")),
        has=_texts(row, "has"),
        lacks=_texts(row, "lacks"),
        keywords=_texts(row, "keyword"),
        lacks_keywords=_texts(row, "lacks_keyword"),
        names=_texts(row, "name"),
        lacks_names=_texts(row, "lacks_name"),
        when=_numbers(row),
        requires=str(row.get("requires", "")),
        extra=str(row.get("extra", "")),
        names_bound=str(row.get("names_bound", "")),
        of=str(row.get("of", "")),
        among=str(row.get("among", "")),
        lowest=bool(row.get("lowest", False)),
        wheels=str(row.get("wheels", "")),
        lacks_wheels=str(row.get("lacks_wheels", "")),
    )
    problems += _mistakes(check)
    return check if len(problems) == before else None


def _mistakes(check: ReadCheck) -> list[str]:
    """Return what is wrong with a check whose keys are known."""
    found = []
    in_files = (*check.has, *check.lacks, *check.keywords, *check.lacks_keywords, check.names_bound)
    if any(in_files) != bool(check.files):
        found.append(f"proof: reads: {check.package}: expected file together with what to look for in it")
    if (check.keywords or check.lacks_keywords) and not check.scope:
        found.append(f"proof: reads: {check.package}: expected scope, the function that has the keyword")
    if bool(check.names_bound) != bool(check.of):
        found.append(f"proof: reads: {check.package}: expected names_bound together with of")
    elsewhere = (*check.names, *check.lacks_names, check.requires, check.wheels, check.lacks_wheels)
    if not any((*in_files, *elsewhere)):
        found.append(f"proof: reads: {check.package}: expected something to look for")
    for expression in (*check.has, *check.lacks, check.names_bound, check.wheels, check.lacks_wheels):
        try:
            re.compile(expression)
        except re.error as error:
            found.append(f"proof: reads: {expression!r}: not a regular expression: {error}")
    return found


_RUN_KEYS = frozenset(
    {"pkg", "program", "fails", "beside", "when", "fix", "processes", "regardless", "among"}
)


def _run_check(row: Mapping[str, Any], problems: list[str]) -> RunCheck | None:
    before = len(problems)
    problems += [f"proof: runs: unknown key {key!r}" for key in sorted(row.keys() - _RUN_KEYS)]
    check = RunCheck(
        package=str(row.get("pkg", "")),
        program=str(row.get("program", "")),
        fails=str(row.get("fails", "")),
        beside=_texts(row, "beside"),
        when=_numbers(row),
        fix=_count(row, "fix", 0, problems),
        processes=_count(row, "processes", 1, problems),
        regardless=bool(row.get("regardless", False)),
        among=str(row.get("among", "")),
    )
    if not (check.package and check.program and bool(check.fails) != bool(check.fix)):
        problems.append(f"proof: runs: expected pkg, program and either fails or fix; found {dict(row)!r}")
    problems += [f"proof: runs: {each!r}: not a requirement" for each in check.beside if not _is_valid(each)]
    try:
        re.compile(check.fails)
        compile(check.program, "program", "exec", dont_inherit=True)
    except (re.error, SyntaxError, ValueError) as error:
        problems.append(f"proof: runs: {check.package}: {error}")
    return check if len(problems) == before else None


def _count(row: Mapping[str, Any], key: str, default: int, problems: list[str]) -> int:
    value = row.get(key, default)
    if (isinstance(value, int) and value > 0) or key not in row:
        return int(value)
    problems.append(f"proof: runs: {key}: expected a number above 0; found {value!r}")
    return default


def _is_valid(requirement: str) -> bool:
    try:
        return bool(Requirement(requirement).name)
    except InvalidRequirement:
        return False
