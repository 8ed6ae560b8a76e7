"""The page of two packages, as text: which of their releases fit each other, and the proof where they do not.

`matrix show peft transformers` prints it: a table of the newest patch of each minor, then every range of
releases that fails, with the file and line that asks for what the other lacks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envcheck.core import versions
from envcheck.core.errors import InputError
from envcheck.core.facts import Known, Tri, package_key
from envcheck.core.i18n import ENGLISH, Language
from envcheck.core.rules import AtlasRow, Clause, Matrix, Requirement, Rule, Severity
from envcheck.core.suggestions import suggestion
from envcheck.knowledge.atlas import VERBS, format_spans, spans_of, spelled_need
from envcheck.knowledge.generated_rules import requirement_rules
from envcheck.knowledge.tables import all_releases
from envcheck.rules import clause_algebra
from envcheck.rules.atlas import in_spans

MEASURED_GOOD, MEASURED_BAD, FAILS, WARNS, FORBIDDEN, FITS = "+", "X", "x", "!", "r", "."
LEGEND = (
    (MEASURED_GOOD, "trained"),
    (MEASURED_BAD, "training failed"),
    (FAILS, "fails"),
    (WARNS, "fails in part"),
    (FORBIDDEN, "only the metadata forbids it"),
    (FITS, "no known problem"),
)
"""The signs of the table, most certain first, and what they mean."""

_COLUMNS = 30
"""Most columns of the table, so that it fits in 100 characters. The list below it is complete."""


class Region(NamedTuple):
    """Releases of two packages that do not fit, the sign of how it is known, and the reason in one line.

    `reason` is a template, which `names` fills; or, for a written rule, its title.
    """

    sign: str
    first: frozenset[str]
    second: frozenset[str]
    reason: str
    names: tuple[str, ...] = ()
    rule: str = ""

    def text(self, lang: Language) -> str:
        """Return the reason in a language."""
        if self.rule:
            return f"{lang.title(self.rule, self.reason)}  [{self.rule}]"
        return lang.say(self.reason, *self.names)


class Pair:
    """What is known of two packages: their releases, and the regions in which they do not fit."""

    def __init__(self, known: Matrix, one: str, other: str) -> None:
        """Take the matrix, with the table of releases, and the names of two packages."""
        self.known, self.names = known, (one, other)
        self.releases = tuple(_releases(known, name) for name in self.names)
        self.regions = [*self._from_code(), *self._from_rules(), *self._from_metadata()]
        self._trained = self._runs("ok")
        self._failed = self._runs("fails")

    def sign(self, first: str, second: str) -> str:
        """Return the sign of one release of each package."""
        if (first, second) in self._trained:
            return MEASURED_GOOD
        found = {region.sign for region in self.regions if first in region.first and second in region.second}
        if (first, second) in self._failed:
            return MEASURED_BAD
        return next((sign for sign in (FAILS, WARNS, FORBIDDEN) if sign in found), FITS)

    def _runs(self, outcome: str) -> set[tuple[str, str]]:
        """Return the releases of measured runs with an outcome; a failure counts if these two caused it."""
        one, other = self.names
        keys = set(map(package_key, self.names))
        return {
            (cell.pkg[one], cell.pkg[other])
            for cell in self.known.cells
            if one in cell.pkg
            and other in cell.pkg
            and cell.outcome == outcome
            and (outcome == "ok" or _keys(self.known.rule(cell.rule)) == keys)
        }

    # --- regions

    def _from_code(self) -> Iterator[Region]:
        """Yield what the code of one lacks in the other; rows with the same releases form one region."""
        atlas = self.known.atlas()
        for asking, partner in ((0, 1), (1, 0)):
            rows = atlas.rows.get(self.names[asking], {}).get(self.names[partner], ())
            grouped: dict[object, list[AtlasRow]] = {}
            for row in rows:
                grouped.setdefault((row.entry, row.releases, row.lacking), []).append(row)
            for group in grouped.values():
                row = group[0]
                sides = [
                    frozenset(each for each in self.releases[asking] if in_spans(each, row.releases)),
                    frozenset(each for each in self.releases[partner] if in_spans(each, row.lacking)),
                ]
                first, second = sides if asking == 0 else reversed(sides)
                sign = WARNS if row.entry in atlas.optional else FAILS
                yield Region(sign, first, second, *_code_reason(group))

    def _from_rules(self) -> Iterator[Region]:
        """Yield the written rules that depend on these two packages alone."""
        keys = set(map(package_key, self.names))
        for rule in self.known.rules:
            if _keys(rule) != keys or rule.severity is Severity.NOTE:
                continue
            sign = FAILS if rule.severity is Severity.ERROR else WARNS
            for first, second in self.broken(rule):
                yield Region(sign, first, second, rule.title, rule=rule.id)

    def _from_metadata(self) -> Iterator[Region]:
        """Yield the releases of one package whose metadata excludes releases of the other."""
        for asking, partner in ((0, 1), (1, 0)):
            for specifier, releases in self._requirements(self.names[asking], self.names[partner]).items():
                requirement = Requirement(self.names[asking], self.names[partner], specifier, "metadata")
                for rule in requirement_rules([requirement]):
                    unmet = self._outside(rule.require, partner)
                    sides = [frozenset(releases), unmet]
                    first, second = sides if asking == 0 else reversed(sides)
                    names = (requirement.package, f"{requirement.requires}{specifier}")
                    yield Region(FORBIDDEN, first, second, "{} requires {}", names)

    def _requirements(self, package: str, required: str) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for row in all_releases(self.known):
            if row.package == package and row.requires.get(required):
                found.setdefault(row.requires[required], []).append(row.version)
        return found

    def broken(self, rule: Rule) -> Iterator[tuple[frozenset[str], frozenset[str]]]:
        """Yield the releases of both sides that break a rule, for each of its tables."""
        for table in rule.when:
            first, second = (self._inside(table, side) for side in (0, 1))
            if not rule.require:
                yield first, second
                continue
            for clause in rule.require:
                unmet = self._outside((clause,), 0 if clause.key == package_key(self.names[0]) else 1)
                if clause.key == package_key(self.names[0]):
                    yield first & unmet, second
                else:
                    yield first, second & unmet

    def _inside(self, table: Sequence[Clause], side: int) -> frozenset[str]:
        clauses = [clause for clause in table if clause.key == package_key(self.names[side])]
        return frozenset(
            release
            for release in self.releases[side]
            if all(clause_algebra.answer(clause, Known(release)) is Tri.YES for clause in clauses)
        )

    def _outside(self, table: Sequence[Clause], side: int) -> frozenset[str]:
        return frozenset(self.releases[side]) - self._inside(table, side)


def _keys(rule: Rule | None) -> set[str]:
    tables = (*rule.when, rule.require) if rule is not None else ()
    return {clause.key for table in tables for clause in table}


def _releases(known: Matrix, package: str) -> tuple[str, ...]:
    """Return the releases of a package in the atlas and the tables, oldest first."""
    listed = {row.version for row in all_releases(known) if row.package == package and not row.yanked}
    return tuple(sorted({*listed, *known.atlas().releases.get(package, ())}, key=versions.order))


def code_reasons(verb: str) -> tuple[str, str]:
    """Return the templates of the reason that rows with a verb give: for one name, and for several."""
    return f"`{{}}` {verb} {{}}  ({{}} in {{}})", f"`{{}}` {verb} {{}} and {{}} more  ({{}} in {{}})"


def _code_reason(rows: Sequence[AtlasRow]) -> tuple[str, tuple[str, ...]]:
    """Return the template of a reason, and what fills it."""
    row = min(rows, key=lambda each: (len(each.needs), each.needs))
    more = (str(len(rows) - 1),) if len(rows) > 1 else ()
    template = code_reasons(VERBS[row.kind])[bool(more)]
    return template, (
        row.entry,
        spelled_need(row.kind, row.needs),
        *more,
        row.places[-1],
        row.releases[-1][1],
    )


# --- the page ---------------------------------------------------------------------------------------


def pair_page(one: str, other: str, known: Matrix, language: Language = ENGLISH) -> str:
    """Return the page of two packages.

    Raises:
        InputError: no release of one of them is known; names the nearest.
    """
    names = [name.lower().replace("_", "-") for name in (one, other)]
    pair = Pair(known, names[0], names[1])
    for name, releases in zip(names, pair.releases, strict=True):
        if not releases:
            packages = sorted({*known.atlas().releases, *(row.package for row in all_releases(known))})
            place = f"matrix show {one} {other}"
            raise InputError(place, f"no release of {name!r} is known{suggestion(name, packages)}")
    lang = language.without(known.overlaid())
    return "\n".join([*_heading(pair, lang), "", *_table(pair, lang), "", *_list(pair, lang), ""])


def _heading(pair: Pair, lang: Language) -> Iterator[str]:
    sizes = " x ".join(
        lang.say("{} ({} release)" if len(releases) == 1 else "{} ({} releases)", name, len(releases))
        for name, releases in zip(pair.names, pair.releases, strict=True)
    )
    read = pair.known.atlas().read
    yield lang.say("{}, code read {}", sizes, read) if read else sizes


def _table(pair: Pair, lang: Language) -> Iterator[str]:
    rows, columns = (_newest_of_minors(releases) for releases in pair.releases)
    shown = columns[-_COLUMNS:]
    width = max(len(row) for row in (*rows, pair.names[0]))
    majors = [version.split(".")[0] for version in shown]
    yield " " * width + "  " + pair.names[1]
    yield " " * width + "  " + " ".join(f"{major:>2}" for major in majors)
    yield f"{pair.names[0]:<{width}}  " + " ".join(f"{version.split('.')[1]:>2}" for version in shown)
    for row in reversed(rows):
        yield f"{row:<{width}}  " + " ".join(f"{pair.sign(row, column):>2}" for column in shown)
    if len(columns) > len(shown):
        text = "(the newest patch of each minor; {} before {} is in the list below)"
        yield lang.say(text, pair.names[1], shown[0])
    used = {pair.sign(row, column) for row in rows for column in shown}
    yield "   ".join(f"{sign} {lang.word(meaning)}" for sign, meaning in LEGEND if sign in used)


def _newest_of_minors(releases: Sequence[str]) -> list[str]:
    newest: dict[tuple[str, ...], str] = {}
    for release in releases:
        parts = (*versions.base_release(release).split("."), "0")
        newest[tuple(parts[:2])] = f"{release}.0" if "." not in release else release
    return list(newest.values())


def _list(pair: Pair, lang: Language) -> Iterator[str]:
    regions = [region for region in pair.regions if region.first and region.second]
    if not regions:
        yield lang.say("no known problem with any of their releases")
    for region in sorted(regions, key=lambda each: "x!r".index(each.sign)):
        one, other = (
            f"{name} {format_spans(spans_of(releases, every))}"
            for name, releases, every in zip(pair.names, region[1:3], pair.releases, strict=True)
        )
        yield lang.say("{} {} with {}", region.sign, one, other)
        yield f"    {region.text(lang)}"
