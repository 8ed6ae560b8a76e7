"""Search stored releases for siblings of a rule's lines: `envcheck matrix prove --siblings`, for curators."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from envcheck.commands.harvest.store import ReleaseStore
from envcheck.core.i18n import counted
from envcheck.knowledge.proofs import bounds, siblings
from envcheck.knowledge.proofs.siblings import SiblingQuestion
from envcheck.knowledge.proofs.sweep import longest_literal, span_words


def run_siblings(questions: Iterable[SiblingQuestion], folder: Path) -> tuple[list[str], int]:
    """Return lines on each rule, and how many rules have a value beside them that they do not name.

    A line gives either values that a rule does not name, or the conditions around its own line, from which a
    curator sees which other values come there.
    """
    store = ReleaseStore(folder)
    by_package: dict[str, list[SiblingQuestion]] = {}
    for question in questions:
        by_package.setdefault(question.check.package, []).append(question)
    lines: dict[str, list[str]] = {}
    narrow: set[str] = set()
    for package, asked in by_package.items():
        releases = [*store.versions(package)]
        for question, own, others in _search(store, package, asked, releases):
            kept = lines.setdefault(question.rule.id, [])
            kept += [f"  {question.check.files[0]}: where {each}" for each in own]
            kept += others
            narrow |= {question.rule.id} if others else set()
    told = [
        line for rule in sorted(lines) if lines[rule] for line in (f"{rule}:", *dict.fromkeys(lines[rule]))
    ]
    return told, len(narrow)


def _search(
    store: ReleaseStore, package: str, asked: Sequence[SiblingQuestion], releases: Sequence[str]
) -> list[tuple[SiblingQuestion, list[str], list[str]]]:
    """Return, for each check, the conditions around its line and lines on files for other values."""
    expressions = [[re.compile(each, re.MULTILINE) for each in question.check.has] for question in asked]
    literals = [[longest_literal(each).encode() for each in question.check.has] for question in asked]
    known: dict[tuple[int, int], list[int]] = {}
    own: list[list[str]] = [[] for _ in asked]
    others: list[dict[str, list[str]]] = [{} for _ in asked]
    for version in releases:
        inside = [_is_inside(question, version) for question in asked]
        with zipfile.ZipFile(store.path(package, version)) as archive:
            for info in archive.infolist():
                if not info.filename.endswith(".py"):
                    continue
                key = info.CRC, info.file_size
                if key not in known:
                    data = archive.read(info)
                    maybe = [
                        number for number, some in enumerate(literals) if all(each in data for each in some)
                    ]
                    text = data.decode("utf-8", "replace") if maybe else ""
                    known[key] = [
                        number for number in maybe if all(each.search(text) for each in expressions[number])
                    ]
                for number in known[key]:
                    if not inside[number]:
                        continue
                    if info.filename in asked[number].check.files:
                        text = archive.read(info).decode("utf-8", "replace")
                        own[number] = siblings.conditions(text, asked[number].check.has[0])
                    else:
                        others[number].setdefault(info.filename, []).append(version)
    return [
        (question, own[number], [*_told(question, others[number], releases)])
        for number, question in enumerate(asked)
    ]


def _told(question: SiblingQuestion, files: dict[str, list[str]], releases: Sequence[str]) -> Iterable[str]:
    for name, found in files.items():
        if values := siblings.unnamed_values(question, name):
            yield f"  not named: {' and '.join(values)}, {span_words(found, releases)}: {name}"


def _is_inside(question: SiblingQuestion, version: str) -> bool:
    package = question.check.package
    bounded = package in bounds.bounded_packages(question.rule)
    return not bounded or bounds.rule_matches(question.rule, package, version, question.check.when)


def summary(asked: Sequence[SiblingQuestion], narrow: int) -> str:
    """Return the last line of the report."""
    rules = len({question.rule.id for question in asked})
    return (
        f"{counted(rules, 'rule')} searched, {narrow} with a line in files for values that they do not name\n"
    )
