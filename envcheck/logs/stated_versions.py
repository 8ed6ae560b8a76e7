"""Read the releases that a log states outside prose: they count against a known failure, never for one. Pure.

`logs/environment.py` reads what known tools print and takes it for facts. People write more: `torch==2.1.0`,
a list of versions, the file name of a wheel. That may be wrong for the environment that failed, so it proves
nothing; but a failure of releases that the log nowhere states, while it states others of the same package, is
not what the log is about. Only where somebody gives a text as facts (`--facts`) do its lists count as such.

A sentence (`it worked with trl 0.11.4 last week`) may be about any environment, and no list of words tells
which. So a line counts only if nothing but releases, labels and an installer's command stand in it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core import versions
from envcheck.core.facts import Fact, Inventory, Known, Tri, normalised, package_key
from envcheck.core.rules import Clause, Rule
from envcheck.rules.clauses import evaluate

_SEARCHED = 200_000
"""Characters of a text that are searched."""

_LONGEST_LINE = 4_000
"""Characters of the longest line that is read; nobody writes a longer list."""

_MENTION = re.compile(
    r"(?<![\w./@-])(?P<name>[A-Za-z][\w.]{0,60}?(?:-[A-Za-z][\w.]{0,60}?){0,5})"
    r"(?: ?==? ?| ?: ?v?| version:? ?v?| ?\(v?| ?\| ?| {1,40}v?|-)"
    r"(?P<version>\d{1,8}(?:\.\d{1,8}){1,5}(?:\.?(?:post|dev|rc|a|b)\d{1,8})?(?:\+[a-z0-9.]{1,60})?)"
    r"(?![\w.]{0,60}\d)"
)
_WHEEL = re.compile(
    r"(?:^|[\s/])(?P<name>[A-Za-z]\w{0,60})-(?P<version>\d[\w.]{0,60})(?:(?:\+|%2B)[\w.]{1,60})?"
    r"-(?:cp|py)\d\S{0,120}\.whl\b"
)
_PROMPT = re.compile(r"\s*(?:\([\w.-]{1,60}\) ?)?(?:[\w.-]{1,60}@[\w.-]{1,60}\S{0,80})?(?:[$%#!>]|RUN )")
_BETWEEN_WORDS = re.compile(r"[\s,;:()\[\]{}\"'`|=&]+")
_UNFINISHED = re.compile(r"(?i)(?:,|\b(?:with|and|or|on|in|of|for|to|under|than|from|by))[ \r]{0,9}$")
_INSTALLS = re.compile(r"\b(?:install|add|uninstall)\b")

Tables = Mapping[str, Sequence[Mapping[str, Any]]]

Versions = Mapping[str, tuple[str, ...]]
"""Versions by the package's name on the index; `python` stands for Python itself."""


class ListForms(NamedTuple):
    """Hold what tells a list of releases from a sentence, and a list of one's own from that of others.

    `labels` matches a whole word that may stand in a list, and `of_others` the line above a list that need
    not be of the environment that failed, such as `It works with:`. `keys` has the facts that a name stands
    for if it is not that of a package on the index: `pytorch`, `python`.
    """

    labels: re.Pattern[str]
    of_others: re.Pattern[str]
    keys: Mapping[str, str]

    def key(self, name: str) -> str:
        """Return the key of the fact that a version of this name states."""
        return self.keys.get(name, package_key(name))


def list_forms(tables: Tables) -> ListForms:
    """Return the words of compat/tables/log.toml on lists of releases."""
    labels, others = (
        "|".join(word for row in tables.get(name, ()) for word in row["words"]) or r"\b\B"
        for name in ("list_label", "list_of_others")
    )
    keys = {name: row["key"] for row in tables.get("written_name", ()) for name in row["names"]}
    of_others = re.compile(rf"(?i)\b(?:{others}).{{0,80}}:[ *\r]{{0,9}}$")
    return ListForms(re.compile(f"(?i){labels}"), of_others, keys)


class StatedVersions(NamedTuple):
    """Hold the versions that a log states: those that people write, and those that known tools print.

    What is printed of a package takes the place of what is written of it.
    """

    written: Versions
    printed: Versions

    def of(self, package: str) -> tuple[str, ...]:
        """Return the versions that are stated of a package."""
        return self.printed.get(package) or self.written.get(package, ())


def stated_versions(texts: Iterable[str], printed: Inventory, forms: ListForms) -> StatedVersions:
    """Return the versions that texts state; `printed` are the facts that known tools print in them."""
    found: dict[str, dict[str, None]] = {}
    for text in texts:
        for name, version in _mentions(text[:_SEARCHED].split("\n"), forms):
            found.setdefault(_named(forms.key(name)), {})[version] = None
    facts = {
        _named(key): (str(fact.value),)
        for key, fact in printed.facts.items()
        if (key.startswith("pkg.") or key == "python.version") and isinstance(fact.reading, Known)
    }
    written = {name: tuple(of_name) for name, of_name in found.items() if name not in facts}
    return StatedVersions(written, facts)


def _named(key: str) -> str:
    return key.removeprefix("pkg.").removesuffix(".version")


def written_versions(text: str, forms: ListForms) -> Iterator[tuple[str, str, int]]:
    """Yield the fact, the version and the line, counted from 0, of what a text lists as installed.

    A line with an installer's command lists what is to be installed, and is left out.
    """
    for line in _lines_without_prose(text[:_SEARCHED].split("\n"), forms):
        if not line.of_others and not _INSTALLS.search(line.text):
            for match in line.pattern.finditer(line.text):
                yield forms.key(normalised(match["name"])), match["version"], line.number


def lines_of_others(text: str, forms: ListForms) -> frozenset[int]:
    """Return the lines, counted from 0, in lists that need not be of the environment that failed."""
    lines = _lines_without_prose(text[:_SEARCHED].split("\n"), forms)
    return frozenset(line.number for line in lines if line.of_others)


class _ListLine(NamedTuple):
    """Hold a line without prose; `of_others` says that the line above it speaks of another environment."""

    number: int
    pattern: re.Pattern[str]
    text: str
    of_others: bool


def _lines_without_prose(lines: Iterable[str], forms: ListForms) -> Iterator[_ListLine]:
    of_others = False
    for number, line in enumerate(lines):
        if len(line) > _LONGEST_LINE:
            continue
        pattern = _WHEEL if ".whl" in line else _MENTION
        if _has_prose(pattern.sub(" ", line), forms):
            of_others = bool(_UNFINISHED.search(line) or forms.of_others.search(line))
        else:
            yield _ListLine(number, pattern, line, of_others)


def _mentions(lines: Iterable[str], forms: ListForms) -> Iterator[tuple[str, str]]:
    """Yield the packages and versions that stand in lines without prose."""
    for line in _lines_without_prose(lines, forms):
        for match in line.pattern.finditer(line.text) if not line.of_others else ():
            yield normalised(match["name"]), match["version"]


def _has_prose(rest: str, forms: ListForms) -> bool:
    """Return whether a line has words of a sentence beside the releases; `rest` is the line without these."""
    prompt = _PROMPT.match(rest)
    words = _BETWEEN_WORDS.split(rest[prompt.end() if prompt else 0 :])
    return any(not _may_stand_in_a_list(word, forms) for word in words)


def _may_stand_in_a_list(word: str, forms: ListForms) -> bool:
    """Return whether a word is a label, a part of a command, an option, a path or no word at all."""
    if word.startswith("-") or (word.isascii() and any(each == "/" or each.isdigit() for each in word)):
        return True
    bare = word.strip("-*•.!?>#$%~<_\\\r")
    return not bare or forms.labels.fullmatch(bare) is not None


def contradicts_releases(releases: Mapping[str, str], stated: StatedVersions) -> bool:
    """Return whether every version that is stated of one of these packages lies outside its bound.

    `releases` maps packages to specifiers such as `>=5` (of PEP 440).
    """
    return any(
        all(_outside(version, specifier) for version in stated.of(package))
        for package, specifier in releases.items()
        if stated.of(package)
    )


def _outside(version: str, specifier: str) -> bool:
    """Return whether a version is outside a bound for certain."""
    return versions.satisfies(version, specifier, unknown=Tri.MAYBE) is Tri.NO


def contradicts_rule(rule: Rule, stated: StatedVersions) -> bool:
    """Return whether each table of a rule has a bound that no version which is written of the package meets.

    Facts that are printed are left to the judge, which also says so.
    """
    return bool(rule.when) and all(any(_unmet(clause, stated) for clause in table) for table in rule.when)


def _unmet(clause: Clause, stated: StatedVersions) -> bool:
    package = clause.key.removeprefix("pkg.")
    written = stated.written.get(package, ()) if clause.key.startswith("pkg.") else ()
    return bool(written) and all(
        evaluate(clause, Inventory({clause.key: Fact(package_key(package), Known(version))})) is Tri.NO
        for version in written
    )
