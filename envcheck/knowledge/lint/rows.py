"""Checks of single rows: keys, ids, withdrawals, sources, and the values of targets and defaults."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping
from typing import Any

from envcheck.core import facts_file
from envcheck.core.rules import Source
from envcheck.core.toml_locations import TomlRow
from envcheck.knowledge import target_rows
from envcheck.knowledge.lint.problems import LintProblem
from envcheck.knowledge.lint.subject import LintSubject

STALE_DAYS = 180
"""After half a year without a check, a source may have been closed, fixed or moved."""

_CASE_KEYS = frozenset(
    {"id", "expect", "rule", "title", "signature", "kind", "sources", "facts", "why", "note", "explain"}
    | {"ambiguous", "file", "own", "releases"}
)
_CELL_KEYS = frozenset(
    {"target", "outcome", "rule", "signature", "failed", "pkg", "python", "train", "device", "ranks"}
    | {"seconds", "date", "test", "tests", "note"}
)
_TARGET_KEYS = frozenset({*target_rows.KEYS, "configuration"})


def _unknown_keys(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield keys that nothing reads: a misspelt `rule` in a case would silently test nothing."""
    head, places = subject.tree["matrix"], subject.places
    rows: list[tuple[str, Mapping[str, Any], TomlRow, frozenset[str]]] = [
        *((str(row.get("id", "")), row, place, _CASE_KEYS) for row, place in subject.case_rows),
        *(
            (str(row.get("target", "")), row, places.row("cell", number), _CELL_KEYS)
            for number, row in enumerate(head.get("cell", []))
        ),
        *(
            (name, row, places.table(f"target.{name}"), _TARGET_KEYS)
            for name, row in head.get("target", {}).items()
        ),
    ]
    for name, row, place, allowed in rows:
        for key in row.keys() - allowed:
            if not key.endswith(("_zh", ".zh")) and key != "zh":
                yield LintProblem("unknown-key", place.file, place.at(key), name, f"unknown key {key!r}")


def _ids(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield ids that are used twice, or are not in kebab case."""
    for kind, rows in (("rule", subject.rule_rows), ("case", subject.case_rows)):
        first: dict[str, TomlRow] = {}
        for row, place in rows:
            name = str(row.get("id", "?"))
            if name in first:
                before = first[name]
                message = (
                    f"expected a unique {kind} id; found it already at compat/{before.file}:{before.line}"
                )
                yield LintProblem("duplicate-id", place.file, place.line, name, message)
            first.setdefault(name, place)
            if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
                message = f"expected a {kind} id in kebab case; found {name!r}"
                yield LintProblem("id", place.file, place.line, name, message)


def _withdrawn_rules(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield withdrawn rules without the date or the reason; a rule found false stays, with both."""
    for row, place in subject.rule_rows:
        if "withdrawn" not in row:
            continue
        name, line = row.get("id", ""), place.at("withdrawn")
        if _date(row["withdrawn"]) is None:
            message = f"withdrawn: expected a date; found {row['withdrawn']!r}"
            yield LintProblem("withdrawn", place.file, line, name, message)
        if not row.get("reason"):
            message = "withdrawn: expected a reason; found none"
            yield LintProblem("withdrawn", place.file, line, name, message)


def _sources(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield sources that were never checked, or not for a long time."""
    for rule in subject.known.rules:
        line = subject.place_of(rule).at("sources")
        for source in rule.sources:
            if message := _source_problem(source, subject.today):
                yield subject.rule_problem("stale-source", rule, message, line)


def _source_problem(source: Source, today: dt.date) -> str:
    day = _date(source.checked)
    if day is None:
        return f"checked: expected a date; found {source.checked!r}"
    if day > today:
        return f"checked: expected a day until today; found {day}, which is still to come"
    age = (today - day).days
    if age > STALE_DAYS:
        return f"checked: expected a day in the last {STALE_DAYS}; found {day}, {age} days ago: {source.url}"
    return ""


def _date(text: Any) -> dt.date | None:
    try:
        return dt.date.fromisoformat(str(text))
    except ValueError:
        return None


def _values(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield values of targets and defaults that their facts cannot have."""
    for name, target in subject.known.targets.items():
        place = subject.places.table(f"target.{name}")
        for key, value in target.train.items():
            if problem := _value_problem(subject, key, value):
                yield LintProblem("target-value", place.file, place.at("train"), name, f"{key}: {problem}")
    for number, default in enumerate(subject.tree["tables"].get("default", [])):
        place = subject.places.row("default", number)
        if problem := _value_problem(subject, str(default.get("key", "")), default.get("value")):
            message = f"default {default.get('key')}: {problem}"
            yield LintProblem("default-value", place.file, place.at("value"), "", message)


def _value_problem(subject: LintSubject, key: str, value: Any) -> str:
    declared = subject.declared(key)
    if declared is None:
        return ""  # the loader reports the unknown fact
    if facts_file.as_value(value, declared.kind) is None:
        return f"expected a {declared.kind.value}; found {value!r}"
    if declared.words and str(value) not in declared.words:
        return f"expected one of {', '.join(declared.words)}; found {value!r}"
    return ""


def _trainers(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield rules that list trainers and do not state in `trainers` why it has to be these.

    Such a list forgets the next trainer, method or release. Who runs the code that fails is stated once, in
    tables/runs.toml, and rules name the piece of code (`train.runs_trainer`).
    """
    for row, place in subject.rule_rows:
        named = sorted(_named_trainers(row.get("when")))
        reason = row.get("trainers")
        name = str(row.get("id", ""))
        if len(named) > 1 and not reason and "withdrawn" not in row:
            message = (
                "expected one trainer at most, a fact such as train.runs_trainer, or a reason in "
                f"`trainers`; found {', '.join(named)}"
            )
            yield LintProblem("trainer-list", place.file, place.at("when"), name, message)
        if reason and len(named) < 2:  # noqa: PLR2004 - it explains a list
            message = "expected no reason in `trainers`, because the rule lists none"
            yield LintProblem("trainer-list", place.file, place.at("trainers"), name, message)


def _named_trainers(when: Any) -> set[str]:
    """Return the trainers that the tables of a rule name, those that it exempts included."""
    named: set[str] = set()
    for table in when if isinstance(when, list) else [when]:
        raw = table.get("train.trainer", ()) if isinstance(table, Mapping) else ()
        named |= {str(word).removeprefix("!=") for word in ([raw] if isinstance(raw, str) else raw)}
    return named - {"absent", "present"}


CHECKS = (_unknown_keys, _ids, _withdrawn_rules, _sources, _values, _trainers)
