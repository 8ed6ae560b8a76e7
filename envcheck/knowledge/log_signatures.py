"""Signatures of failures in logs: the patterns of compat's cases, and which of them match a text.

A signature is a list of regular expressions, all of which match where the failure is reported. Each needs one
of the `trigger` words of compat/tables/log.toml, so that a log is read only around those words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core.facts import EMPTY_MAPPING

KINDS = {
    "version": "versions that do not go together",
    "missing": "a package that is not installed",
    "setting": "a setting or an argument",
    "check": "a check that the library makes; its condition was met",
    "data": "the training data, or what the configuration says about them",
    "unset": "what a library sets only in some places was not set",
    "memory": "out of memory",
    "killed": "killed from outside",
    "crash": "a crash below Python",
    "disk": "the disk",
    "network": "the network",
    "hardware": "the hardware or its driver",
    "code": "the user's own code",
    "open": "not known: several causes have this text",
    "consequence": "follows from another failure",
    "harmless": "nothing to fix",
}
"""What causes a failure, by the `kind` of its case (`kind = "memory"`). A rule's case is about versions."""

_HALF_SCORE = 40.0
"""Literal characters at which a full match scores 0.5. The name of an exception class alone has about 12."""


class Signature(NamedTuple):
    """Patterns of one case. `advice` and `title` are the texts of the case; `rule` may be empty.

    `ambiguous`: other failures read alike, so the text alone only suggests this one. `releases` maps packages
    to the bound outside of which another cause has the text (`{"transformers": ">=5"}`).
    """

    case: str
    rule: str
    kind: str
    patterns: tuple[re.Pattern[str], ...]
    literals: tuple[int, ...]  # number of literal characters in each pattern
    title: str = ""
    advice: str = ""
    sources: tuple[Mapping[str, str], ...] = ()
    ambiguous: bool = False
    releases: Mapping[str, str] = EMPTY_MAPPING

    def score(self, numbers: Iterable[int]) -> float:
        """Return 0 to 1 for the patterns with these numbers: their share of all, by how specific they are."""
        literals = [self.literals[number] for number in numbers]
        share = len(literals) / len(self.patterns)
        return round(share * sum(literals) / (sum(literals) + _HALF_SCORE), 3)


def compile_signatures(cases: Iterable[Mapping[str, Any]]) -> tuple[Signature, ...]:
    """Return the signatures of compat's cases, in their order."""
    return tuple(
        Signature(
            case=case["id"],
            rule=case.get("rule", ""),
            kind=case.get("kind", "version"),
            patterns=tuple(map(re.compile, case["signature"])),
            literals=tuple(map(_literal_characters, case["signature"])),
            title=case.get("title", ""),
            advice=case.get("explain", ""),
            sources=tuple(case.get("sources", ())),
            ambiguous=case.get("ambiguous", False),
            releases=case.get("releases", EMPTY_MAPPING),
        )
        for case in cases
        if case.get("signature")
    )


def match_positions(signature: Signature, text: str) -> dict[int, int]:
    """Return the numbers of the signature's patterns that match in a text, and where each match begins."""
    hits = ((number, pattern.search(text)) for number, pattern in enumerate(signature.patterns))
    return {number: hit.start() for number, hit in hits if hit}


def any_signature_matches(signatures: Iterable[Signature], text: str) -> bool:
    """Return whether all patterns of some signature match in a text."""
    return any(all(pattern.search(text) for pattern in signature.patterns) for signature in signatures)


# --- what a pattern needs to match --------------------------------------------------------------------

_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]")
_FLAGS = re.compile(r"\(\?[a-zA-Z]+\)")
_ESCAPED = re.compile(r"\\([^\w\s])")
_AROUND = re.compile(r"\(\?<?[=!][^()]*\)")
_GROUP = re.compile(r"\((?:\?:|\?P<\w+>)?([^()]*)\)(\?|\*|\{0)?")
_OPTIONAL = re.compile(r"(?:\\.|[^\\])(?:[?*]|\{0)")
_GAP, _NEEDS_WORD, _PLAIN = "\0", "\1", "\2"


def needs_word(pattern: str, words: Sequence[str]) -> bool:
    """Return whether every text that a pattern matches contains one of these words, in upper or lower case.

    The answer comes from the pattern's source and may be False where it should be True, because character
    classes, optional parts and lookarounds count as containing no word.
    """
    source = _FLAGS.sub("", _CLASS.sub(_GAP, pattern).lower())
    source = _ESCAPED.sub(lambda hit: _PLAIN if hit[1] in "()|?*{" else hit[1], source)
    for _ in range(pattern.count("(")):
        source = _GROUP.sub(lambda hit: _without_group(hit, words), _AROUND.sub(_GAP, source))
    return all(_contains_word(branch, words) for branch in source.split("|"))


def _without_group(group: re.Match[str], words: Sequence[str]) -> str:
    """Return what replaces a group: its content, a mark that it needs a word, or a gap for anything."""
    inner, optional = group[1], group[2]
    if optional or "|" not in inner:
        return _GAP if optional else inner
    return _NEEDS_WORD if all(_contains_word(branch, words) for branch in inner.split("|")) else _GAP


def _contains_word(source: str, words: Sequence[str]) -> bool:
    source = _OPTIONAL.sub(_GAP, source)
    return _NEEDS_WORD in source or any(word in source for word in words)


def _literal_characters(pattern: str) -> int:
    """Return about how many characters of a pattern match only themselves."""
    source = _ESCAPED.sub("x", _FLAGS.sub("", _CLASS.sub("", pattern)))
    return len(re.sub(r"\\[a-zA-Z]|[.^$*+?{}()|]", "", source))
