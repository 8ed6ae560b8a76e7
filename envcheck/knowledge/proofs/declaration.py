"""Read the `proof` of a rule, as a rule file declares it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

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
    """A script that runs beside each release: it must fail inside the bounds and pass outside.

    Attributes:
        package: the package whose releases are installed.
        script: the name of a script in the folder of scripts.
        fails: a regular expression for how it fails; a script that fails otherwise proves nothing.
        beside: releases that are installed with it, `transformers==4.46.3`.
        when: numbers of the `when` tables that the check is for, from 1; empty for all of them.

    """

    package: str
    script: str
    fails: str
    beside: tuple[str, ...] = ()
    when: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Proof:
    """How the bounds of a rule are proven.

    Attributes:
        reads: what is looked for in published files.
        runs: scripts that are run.
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


def _run_check(row: Mapping[str, Any], problems: list[str]) -> RunCheck | None:
    unknown = sorted(row.keys() - {"pkg", "script", "fails", "beside", "when"})
    problems += [f"proof: runs: unknown key {key!r}" for key in unknown]
    if not all(isinstance(row.get(key), str) for key in ("pkg", "script", "fails")):
        problems.append(f"proof: runs: expected pkg, script and fails; found {dict(row)!r}")
        return None
    return RunCheck(
        package=row["pkg"],
        script=row["script"],
        fails=row["fails"],
        beside=_texts(row, "beside"),
        when=_numbers(row),
    )
