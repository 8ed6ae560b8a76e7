"""Read the releases that a log states outside prose: they count against a known failure, never for one. Pure.

`logs/environment.py` reads what known tools print and takes it for facts. People write more: `torch==2.1.0`,
a list of versions, the file name of a wheel. That may be wrong for the environment that failed, so it proves
nothing; but a failure of releases that the log nowhere states, while it states others of the same package, is
not what the log is about.

A sentence (`it worked with trl 0.11.4 last week`) may be about any environment, and no list of words tells
which. So a line counts only if nothing but releases, labels and an installer's command stand in it.
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

_LONGEST_LINE = 4_000
"""Characters of the longest line that is read; nobody writes a longer list."""

_MENTION = re.compile(
    r"(?<![\w./@-])(?P<name>[A-Za-z][\w.]{0,60}?(?:-[A-Za-z][\w.]{0,60}?){0,5})"
    r"(?: ?==? ?| ?: ?v?| version:? ?v?| v?|-)"
    r"(?P<version>\d{1,8}(?:\.\d{1,8}){1,5}(?:\.?(?:post|dev|rc|a|b)\d{1,8})?(?:\+[a-z0-9.]{1,60})?)"
    r"(?![\w.]{0,60}\d)"
)
_WHEEL = re.compile(
    r"(?:^|[\s/])(?P<name>[A-Za-z]\w{0,60})-(?P<version>\d[\w.]{0,60})(?:(?:\+|%2B)[\w.]{1,60})?"
    r"-(?:cp|py)\d\S{0,120}\.whl\b"
)
_NOT_PROSE = re.compile(
    r"(?i)environment|env|versions?|packages?|dependencies|librar(?:y|ies)|software|system|info|platform|setup"
    r"|installed|available|warning|debug|using|and|gpus?|nvidia|driver|os|linux|windows|macos|ubuntu|debian"
    r"|pip3?|python3?|uv|conda|mamba|poetry|install|add|sudo|base|venv"
    r"|installing|successfully|collecting|downloading|processing|cached|https?|[kmg]b|eta|tar\.gz"
    r"|torch|torchvision|torchaudio|transformers|trl|peft|accelerate|datasets|deepspeed|bitsandbytes|unsloth"
    r"|xformers|flash[-_]attn|vllm|triton|numpy|tokenizers|safetensors|huggingface[-_]hub|wandb|sentencepiece"
)
"""Labels, words of an installer's command and output, and names that often stand there without a version."""

_PROMPT = re.compile(r"\s*(?:\([\w.-]{1,60}\) ?)?(?:[\w.-]{1,60}@[\w.-]{1,60}\S{0,80})?(?:[$%#!>]|RUN )")
_BETWEEN_WORDS = re.compile(r"[\s,;:()\[\]{}\"'`|=&]+")
_UNFINISHED = re.compile(r"(?i)(?:,|\b(?:with|and|or|on|in|of|for|to|under|than|from|by))[ \r]{0,9}$")
_OF_OTHERS = re.compile(
    r"(?i)\b(?:work|run|ran\b|fine|fix|solv|solution|requir|need|depend|support|upgrad|downgrad|updat|try|tried"
    r"|should|would|instead|before|previous|other|another|old|new|colleague).{0,80}:[ *\r]{0,9}$"
)
"""The line above a list that need not be of the environment that failed: `It works with:`."""

_OTHER_NAMES = {"pytorch": "torch"}

Versions = Mapping[str, tuple[str, ...]]
"""Versions by the package's name on the index; `python` stands for Python itself."""


class StatedVersions(NamedTuple):
    """Hold the versions that a log states: those that people write, and those that known tools print.

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
        for name, version in _mentions(text[:_SEARCHED].split("\n")):
            found.setdefault(_OTHER_NAMES.get(name, name), {})[version] = None
    facts = {
        key.removeprefix("pkg.").removesuffix(".version"): (str(fact.value),)
        for key, fact in printed.facts.items()
        if (key.startswith("pkg.") or key == "python.version") and isinstance(fact.reading, Known)
    }
    written = {name: tuple(of_name) for name, of_name in found.items() if name not in facts}
    return StatedVersions(written, facts)


def _mentions(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the packages and versions that stand in lines without prose."""
    of_others = False
    for line in lines:
        if len(line) > _LONGEST_LINE:
            continue
        pattern = _WHEEL if ".whl" in line else _MENTION
        if _has_prose(pattern.sub(" ", line)):
            of_others = bool(_UNFINISHED.search(line) or _OF_OTHERS.search(line))
        elif not of_others:
            for match in pattern.finditer(line):
                yield normalised(match["name"]), match["version"]


def _has_prose(rest: str) -> bool:
    """Return whether a line has words of a sentence beside the releases; `rest` is the line without these."""
    prompt = _PROMPT.match(rest)
    words = _BETWEEN_WORDS.split(rest[prompt.end() if prompt else 0 :])
    return any(not _may_stand_in_a_list(word) for word in words)


def _may_stand_in_a_list(word: str) -> bool:
    """Return whether a word is a label, a part of a command, an option, a path or no word at all."""
    if word.startswith("-") or (word.isascii() and any(each == "/" or each.isdigit() for each in word)):
        return True
    bare = word.strip("-*•.!?>#$%~<_\\\r")
    return not bare or _NOT_PROSE.fullmatch(bare) is not None


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
