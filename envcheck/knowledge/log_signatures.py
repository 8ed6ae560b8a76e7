"""What failures say: the signatures of cases, and which of them a text holds.

A signature is a list of regular expressions, all of which are found where the failure is told. Each holds
one of the `trigger` words of compat/tables/log.toml, so that a log is read only around those.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

KINDS = {
    "version": "versions that do not go together",
    "setting": "a setting or an argument",
    "memory": "out of memory",
    "killed": "killed from outside",
    "crash": "a crash below Python",
    "disk": "the disk",
    "network": "the network",
    "hardware": "the hardware or its driver",
    "code": "the user's own code",
    "consequence": "follows from another failure",
    "harmless": "nothing to mend",
}
"""What a failure is of, by the word that a case says: `kind = "memory"`. A case of a rule is of versions."""

_SURE = 40.0  # literal characters at which a full match scores a half; a class name alone has about 12


class Signature(NamedTuple):
    """The texts of one case, compiled; `advice` and `title` are the case's own words, `rule` may be empty."""

    case: str
    rule: str
    kind: str
    patterns: tuple[re.Pattern[str], ...]
    literals: tuple[int, ...]  # characters of each pattern that stand for themselves
    title: str = ""
    advice: str = ""
    sources: tuple[Mapping[str, str], ...] = ()

    def score(self, numbers: Iterable[int]) -> float:
        """From 0 to 1: the share of the texts with these numbers, by how specific they are."""
        each = [self.literals[number] for number in numbers]
        return round(len(each) / len(self.patterns) * sum(each) / (sum(each) + _SURE), 3)


def compiled(cases: Iterable[Mapping[str, Any]]) -> tuple[Signature, ...]:
    """The signatures of compat's cases, in their order."""
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
        )
        for case in cases
        if case.get("signature")
    )


def found(signature: Signature, text: str) -> dict[int, int]:
    """Numbers of the signature's texts that are found in this one, and where each begins."""
    hits = ((number, each.search(text)) for number, each in enumerate(signature.patterns))
    return {number: hit.start() for number, hit in hits if hit}


def speaks(signatures: Iterable[Signature], text: str) -> bool:
    """Whether a text holds all of some signature."""
    return any(all(each.search(text) for each in one.patterns) for one in signatures)


# --- what a pattern cannot do without -----------------------------------------------------------------

_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]")
_FLAGS = re.compile(r"\(\?[a-zA-Z]+\)")
_ESCAPED = re.compile(r"\\([^\w\s])")
_AROUND = re.compile(r"\(\?<?[=!][^()]*\)")
_GROUP = re.compile(r"\((?:\?:|\?P<\w+>)?([^()]*)\)(\?|\*|\{0)?")
_OPTIONAL = re.compile(r"(?:\\.|[^\\])(?:[?*]|\{0)")
_GAP, _MET, _PLAIN = "\0", "\1", "\2"


def needs(pattern: str, words: Sequence[str]) -> bool:
    """Whether every text that the pattern matches holds one of these words, in whatever case.

    Read off its source, and rather no than yes: classes, optional parts and lookarounds say nothing.
    """
    source = _FLAGS.sub("", _CLASS.sub(_GAP, pattern).lower())
    source = _ESCAPED.sub(lambda hit: _PLAIN if hit[1] in "()|?*{" else hit[1], source)
    for _ in range(pattern.count("(")):
        source = _GROUP.sub(lambda hit: _inside(hit, words), _AROUND.sub(_GAP, source))
    return all(_said(each, words) for each in source.split("|"))


def _inside(group: re.Match[str], words: Sequence[str]) -> str:
    inner, optional = group[1], group[2]
    if optional or "|" not in inner:
        return _GAP if optional else inner
    return _MET if all(_said(each, words) for each in inner.split("|")) else _GAP


def _said(source: str, words: Sequence[str]) -> bool:
    source = _OPTIONAL.sub(_GAP, source)
    return _MET in source or any(word in source for word in words)


def _literal_characters(pattern: str) -> int:
    """About how many characters of a pattern stand for themselves."""
    source = _ESCAPED.sub("x", _FLAGS.sub("", _CLASS.sub("", pattern)))
    return len(re.sub(r"\\[a-zA-Z]|[.^$*+?{}()|]", "", source))
