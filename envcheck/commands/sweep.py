"""Compare rules with every release in a store: `envcheck matrix prove --sweep`, for curators.

Only releases in the store are opened, so nothing is fetched; rules on packages that it lacks are left out.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from envcheck.commands.harvest.store import DESCRIPTION, ReleaseStore
from envcheck.core.i18n import counted
from envcheck.knowledge.proofs import sweep
from envcheck.knowledge.proofs.records import SeenRelease
from envcheck.knowledge.proofs.sweep import SweepQuestion
from envcheck.resolver_backends.index.release_contents import ReleaseContents

_SHOWN_FILES = 2
"""Files that a line names of those in which a text was found."""


_SPECIFIC_FILES = 3
"""Files of one release in which a text may stand; a text in more of them is no sign of one mechanism."""


class _Answers(NamedTuple):
    """What all releases of a package answer to one question, and one in which its checks are true."""

    question: SweepQuestion
    seen: tuple[SeenRelease, ...]

    @property
    def example(self) -> str | None:
        """Return the newest release in which the checks are true; None if there is none."""
        return next((row.version for row in reversed(self.seen) if _is_found(row)), None)


def _is_found(row: SeenRelease) -> bool:
    return row.agrees is (row.side == "inside")


def run_sweep(questions: Iterable[SweepQuestion], folder: Path) -> tuple[list[str], int]:
    """Return lines on all disagreements between rules and stored releases, and how many rules have one."""
    store = ReleaseStore(folder)
    by_package: dict[str, list[SweepQuestion]] = {}
    for question in questions:
        by_package.setdefault(question.package, []).append(question)
    releases = {package: _final(store, package) for package in _with_partners(by_package)}
    lines: dict[str, list[str]] = {}
    wrong: set[str] = set()
    for package, asked in by_package.items():
        for answers, traced in _sweep_package(store, package, asked, releases):
            order = releases[package]
            spans = sweep.disagreements(answers.question, answers.seen)
            found = sweep.in_words(answers.question, spans, order)
            wrong |= {answers.question.rule.id} if found else set()
            found += _elsewhere(answers, traced, order)
            if found:
                head = f"{answers.question.rule.id}: {package}, {counted(len(order), 'release')}"
                lines.setdefault(answers.question.rule.id, []).extend([head, *found])
    return [line for rule in sorted(lines) for line in lines[rule]], len(wrong)


def _with_partners(by_package: Mapping[str, Sequence[SweepQuestion]]) -> list[str]:
    partners = [question.partner for asked in by_package.values() for question in asked]
    return list(dict.fromkeys([*by_package, *filter(None, partners)]))


def _final(store: ReleaseStore, package: str) -> list[str]:
    """Return the stored releases of a package that were not yanked, oldest first."""
    rows = {version: store.description(package, version) for version in store.versions(package)}
    return [version for version, row in rows.items() if row is not None and not row.get("yanked")]


def _open(store: ReleaseStore, package: str, version: str) -> ReleaseContents:
    row = store.description(package, version) or {}
    return ReleaseContents(zipfile.ZipFile(store.path(package, version)), row.get("wheels", ()))


def _sweep_package(
    store: ReleaseStore, package: str, asked: Sequence[SweepQuestion], releases: Mapping[str, Sequence[str]]
) -> list[tuple[_Answers, dict[str, dict[str, list[str]]]]]:
    """Return the answers of all releases, and for each text searched the files by release."""
    rows: list[list[SeenRelease]] = [[] for _ in asked]
    for version in releases[package]:
        release = _open(store, package, version)
        for question, kept in zip(asked, rows, strict=True):
            try:
                kept.append(sweep.answer(question, version, release, releases))
            except ValueError as error:  # a file in Python that this interpreter cannot parse
                kept.append(SeenRelease(package, version, "outside", True, str(error)))
    answers = [_Answers(question, tuple(kept)) for question, kept in zip(asked, rows, strict=True)]
    texts = {
        number: sweep.traces(each.question, _open(store, package, each.example))
        for number, each in enumerate(answers)
        if each.example is not None
    }
    found = search_texts(
        store, package, releases[package], {text for some in texts.values() for text in some}
    )
    return [(each, {text: found[text] for text in texts.get(n, ())}) for n, each in enumerate(answers)]


def search_texts(
    store: ReleaseStore, package: str, releases: Sequence[str], texts: Iterable[str]
) -> dict[str, dict[str, list[str]]]:
    """Return, for each text, the files that contain it by release; equal files are read once."""
    wanted = {text: text.encode() for text in texts}
    found: dict[str, dict[str, list[str]]] = {text: {} for text in wanted}
    known: dict[tuple[int, int], list[str]] = {}
    for version in releases if wanted else ():
        with zipfile.ZipFile(store.path(package, version)) as archive:
            for info in archive.infolist():
                if info.filename == DESCRIPTION or not info.filename.endswith((".py", ".pyi")):
                    continue
                key = info.CRC, info.file_size
                if key not in known:
                    data = archive.read(info)
                    known[key] = [text for text, part in wanted.items() if part in data]
                for text in known[key]:
                    found[text].setdefault(version, []).append(info.filename)
    return found


def _elsewhere(
    answers: _Answers, traced: Mapping[str, Mapping[str, Sequence[str]]], order: Sequence[str]
) -> list[str]:
    """Return lines on the text of the failure outside the bounds, and in further files inside them."""
    inside = {row.version for row in answers.seen if row.side == "inside"}
    outside = {row.version for row in answers.seen if row.side == "outside" and not _is_found(row)}
    checked = {name for check in answers.question.group for name in check.files}
    lines = []
    for text, files in traced.items():
        if len(files.get(answers.example or "", ())) > _SPECIFIC_FILES:
            continue
        if not answers.question.group and not inside.intersection(files):
            continue  # another package raises it
        rows = {version: [name for name in files[version] if name not in checked] for version in files}
        sides = [("outside", "elsewhere", outside, files)]
        sides += [("inside", "also", inside, rows)] if answers.question.group else []
        for side, word, versions, where in sides:
            found = [version for version in order if version in versions and where.get(version)]
            if found:
                names = " or ".join(where[found[-1]][:_SHOWN_FILES])
                lines.append(f"  {side}, {word}: {text!r} in {sweep.span_words(found, order)}: {names}")
    return lines
