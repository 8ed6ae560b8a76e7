"""What cannot be loaded: files that are not TOML, and rows that the loader refuses, each with its line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from envcheck.core.errors import InputError
from envcheck.core.parsing import parse_toml
from envcheck.core.toml_locations import TomlRow
from envcheck.knowledge.lint.problems import LintProblem
from envcheck.knowledge.lint.subject import LintSubject
from envcheck.knowledge.load import MatrixError, gather_tree, read_matrix


def readable_files(texts: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str], list[LintProblem]]:
    """Return the tree of the files that are TOML, their texts, and a problem for each file that is not."""
    try:
        return gather_tree(texts), dict(texts), []
    except MatrixError:
        good, problems = {}, []
    for name, text in texts.items():
        try:
            parse_toml(text, name)
        except InputError as error:
            line = re.search(r":(\d+):\d+$", error.where)
            problems.append(LintProblem("toml", name, int(line[1]) if line else 1, "", error.problem))
        else:
            good[name] = text
    return gather_tree(good), good, problems


_LOAD_ERROR = re.compile(
    r"compat/(?P<file>[^:]+): (?P<kind>rule|default|target|cell of) '(?P<id>[^']*)': (?P<message>.*)"
)
"""A mistake as the loader writes it, with the row but without the line."""


def _refused_rows(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield what the loader refuses, at the line of the row and key that it names."""
    for text in subject.load_errors:
        found = _LOAD_ERROR.match(text)
        if found is None:
            if "is defined twice" not in text:  # `rows` reports that with both places
                yield LintProblem("load", "matrix.toml", 1, "", text)
            continue
        name, message = found["id"], found["message"]
        place = _place_of_row(subject, found["kind"], found["file"], name)
        quoted = re.search(r"'([^']+)'", message)
        key = quoted[1] if message.startswith("unknown key") and quoted else message.partition(":")[0]
        yield LintProblem("load", place.file or found["file"], place.at(key), name, message)


def _place_of_row(subject: LintSubject, kind: str, file: str, name: str) -> TomlRow:
    if kind == "rule":
        found = (
            place for row, place in subject.rule_rows if row["file"] == file and row.get("id", "?") == name
        )
        return next(found, TomlRow(file, subject.places.row("rule", 0).block))
    if kind == "target":
        return subject.places.table(f"target.{name}")
    if kind == "default":
        rows = subject.tree["tables"].get("default", [])
        return subject.places.row("default", _refused_row(subject, "default", rows, "key", name))
    rows = subject.tree["matrix"].get("cell", [])
    return subject.places.row("cell", _refused_row(subject, "cell", rows, "target", name))


def _refused_row(subject: LintSubject, kind: str, rows: list[Any], key: str, name: str) -> int:
    """Return the number of the first row of this name that does not load; several may share the name."""
    numbers = [number for number, row in enumerate(rows) if row.get(key, "?") == name]
    for number in numbers:
        alone = {"default": [rows[number]] if kind == "default" else []}
        head = {"target": subject.tree["matrix"].get("target", {})}
        if kind == "cell":
            head["cell"] = [rows[number]]
        if read_matrix({"rule": [], "tables": alone, "matrix": head}, subject.vocabulary)[1]:
            return number
    return numbers[0] if numbers else 0


CHECKS = (_refused_rows,)
