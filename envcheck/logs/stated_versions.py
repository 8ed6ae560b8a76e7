"""The releases that a log mentions anywhere, which count against a known failure, never for one. Pure.

`logs/environment.py` reads what known tools print and takes it for facts. People write more:
`torch==2.1.0`, `transformers version 4.57`, the file name of a wheel. That may be wrong for the environment
that failed, so it proves nothing; but a failure of releases that the log nowhere mentions, while it mentions
others of the same package, is not what the log is about.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from envcheck.core import versions
from envcheck.core.facts import Fact, Inventory, Known, Tri, normalised, package_key
from envcheck.core.rules import Clause, Rule
from envcheck.rules.clauses import evaluate

_SEARCHED = 200_000
"""Characters of a text that are searched."""

_MENTION = re.compile(
    r"(?<![\w./@-])(?P<name>[A-Za-z][\w.]*?(?:-[A-Za-z][\w.]*?)*)"
    r"(?: ?==? ?| ?: ?v?| version:? ?v?| v?|-)"
    r"(?P<version>\d+(?:\.\d+)+(?:\.?(?:post|dev|rc|a|b)\d+)?(?:\+[a-z0-9.]+)?)(?![\w.]*\d)"
)
_NO_MENTION = re.compile(
    r"(?i)requir|depends|deprecat|remov|since|until|support|upgrade|update|downgrad|before|newer|older|need"
    r"|[<>~!]=|uninstall|would|should|instead|tried|try |works? with|^\s*(?:File|from|import) "
)
"""Words of a line that speaks of other releases than the one that ran."""

_WHEEL = re.compile(
    r"(?:^|[\s/])(?P<name>[A-Za-z]\w*)-(?P<version>\d[\w.]*)(?:(?:\+|%2B)[\w.]+)?-(?:cp|py)\d\S*\.whl\b"
)
_OTHER_NAMES = {"pytorch": "torch"}

Versions = Mapping[str, tuple[str, ...]]
"""Versions by the package's name on the index; `python` stands for Python itself."""


class StatedVersions(NamedTuple):
    """The versions that a log states: those that people write, and those that known tools print.

    What is printed of a package takes the place of what is written of it.
    """

    written: Versions
    printed: Versions

    def of(self, package: str) -> tuple[str, ...]:
        """Return the versions that are stated of a package."""
        return self.printed.get(package) or self.written.get(package, ())


def stated_versions(texts: Iterable[str], printed: Inventory) -> StatedVersions:
    """Return the versions that texts state; `printed` are the facts that known tools print in them."""
    found: dict[str, dict[str, None]] = {}
    for text in texts:
        for line in text[:_SEARCHED].split("\n"):
            for name, version in _mentions(line):
                found.setdefault(_OTHER_NAMES.get(name, name), {})[version] = None
    facts = {
        key.removeprefix("pkg.").removesuffix(".version"): (str(fact.value),)
        for key, fact in printed.facts.items()
        if (key.startswith("pkg.") or key == "python.version") and isinstance(fact.reading, Known)
    }
    written = {name: tuple(of_name) for name, of_name in found.items() if name not in facts}
    return StatedVersions(written, facts)


def _mentions(line: str) -> Iterator[tuple[str, str]]:
    """Yield the packages and versions that a line mentions."""
    pattern = _WHEEL if ".whl" in line else _MENTION
    if pattern is _MENTION and _NO_MENTION.search(line):
        return
    for match in pattern.finditer(line):
        yield normalised(match["name"]), match["version"]


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
