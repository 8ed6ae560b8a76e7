"""Signatures of failures in logs: the patterns of compat's cases, and which of them match a text.

A signature is a list of regular expressions, all of which match where the failure is reported. Each needs one
of the `trigger` words of compat/tables/log.toml, so that a log is read only around those words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from envcheck.core.facts import EMPTY_MAPPING
from envcheck.core.patterns import pattern
from envcheck.knowledge.needed_text import Needed, NeededOfPatterns, may_match, needed_texts

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
    "code": "the code that was run, not its environment",
    "open": "not known: several causes have this text",
    "consequence": "follows from another failure",
    "harmless": "nothing to fix",
}
"""What causes a failure, by the `kind` of its case (`kind = "memory"`). A rule's case is about versions."""

_HALF_SCORE = 40.0
"""Literal characters at which a full match scores 0.5. The name of an exception class alone has about 12."""


class Signature(NamedTuple):
    """Hold the patterns of one case. `advice` and `title` are the texts of the case; `rule` may be empty.

    `ambiguous`: other failures read alike, so the text alone only suggests this one. `releases` maps packages
    to the bound outside of which another cause has the text (`{"transformers": ">=5"}`). `own`: the innermost
    frame is in the user's own code, not in a library, a checkout of one, or the model's own code.
    """

    case: str
    rule: str
    kind: str
    patterns: tuple[re.Pattern[str], ...]
    literals: tuple[int, ...]  # number of literal characters in each pattern
    needed: tuple[Sequence[Needed], ...]  # texts that each pattern needs
    title: str = ""
    advice: str = ""
    sources: tuple[Mapping[str, str], ...] = ()
    ambiguous: bool = False
    own: bool = False
    releases: Mapping[str, str] = EMPTY_MAPPING

    def score(self, numbers: Iterable[int]) -> float:
        """Return 0 to 1 for the patterns with these numbers: their share of all, by how specific they are."""
        literals = [self.literals[number] for number in numbers]
        share = len(literals) / len(self.patterns)
        return round(share * sum(literals) / (sum(literals) + _HALF_SCORE), 3)


def compile_signatures(
    cases: Iterable[Mapping[str, Any]], needed: NeededOfPatterns = EMPTY_MAPPING
) -> tuple[Signature, ...]:
    """Return the signatures of compat's cases, in their order.

    What patterns need is read from them where `needed`, which takes less time, has none for a pattern.
    """

    def needs(source: str) -> Sequence[Needed]:
        found = needed.get(source)
        return needed_texts(source) if found is None else found

    return tuple(
        Signature(
            case=case["id"],
            rule=case.get("rule", ""),
            kind=case.get("kind", "version"),
            patterns=tuple(map(pattern, case["signature"])),
            literals=tuple(map(_literal_characters, case["signature"])),
            needed=tuple(map(needs, case["signature"])),
            title=case.get("title", ""),
            advice=case.get("explain", ""),
            sources=tuple(case.get("sources", ())),
            ambiguous=case.get("ambiguous", False),
            own=case.get("own", False),
            releases=case.get("releases", EMPTY_MAPPING),
        )
        for case in cases
        if case.get("signature")
    )


class SearchedText(NamedTuple):
    """Hold a text, and for all signatures in lower case: with its lines, and with spaces between them."""

    text: str
    folded: str
    on_one_line: str

    @classmethod
    def of(cls, text: str) -> SearchedText:
        """Return a text that is ready to be searched."""
        folded = text.casefold()
        return cls(text, folded, folded.replace("\n", " "))


def match_positions(signature: Signature, searched: SearchedText) -> dict[int, int]:
    """Return the numbers of the signature's patterns that match in a text, and where each match begins.

    A terminal, a chat or a person may have broken a message at a space: then a line's end stands for it.
    """
    hits = (
        (number, _search(pattern, needed, searched))
        for number, (pattern, needed) in enumerate(zip(signature.patterns, signature.needed, strict=True))
    )
    return {number: hit.start() for number, hit in hits if hit}


def _search(
    pattern: re.Pattern[str], needed: Sequence[Needed], searched: SearchedText
) -> re.Match[str] | None:
    if may_match(needed, searched.folded):
        return pattern.search(searched.text)
    if may_match(needed, searched.on_one_line):
        return _with_broken_lines(pattern.pattern).search(searched.text)
    return None


@lru_cache
def _with_broken_lines(pattern: str) -> re.Pattern[str]:
    """Return a pattern each of whose spaces, outside of classes of characters, may be the end of a line."""
    return re.compile(_CLASS_OR_SPACE.sub(lambda found: found[0] if len(found[0]) > 1 else "[ \\n]", pattern))


def needs_word(pattern: str, words: Sequence[str]) -> bool:
    """Return whether every text that a pattern matches contains one of these words, in upper or lower case.

    The answer may be False where it should be True, as for `needed_texts`.
    """

    def has_words(texts: Needed) -> bool:
        return all(any(word in text for word in words) for text in texts)

    return any(map(has_words, needed_texts(pattern, worth=has_words)))


def any_signature_matches(signatures: Iterable[Signature], text: str) -> bool:
    """Return whether all patterns of some signature match in a text."""
    return any(all(pattern.search(text) for pattern in signature.patterns) for signature in signatures)


_CLASS_OR_SPACE = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]| ", re.DOTALL)
_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]")
_FLAGS = re.compile(r"\(\?[a-zA-Z]+\)")
_ESCAPED = re.compile(r"\\([^\w\s])")


def _literal_characters(pattern: str) -> int:
    """Return about how many characters of a pattern match only themselves."""
    source = _ESCAPED.sub("x", _FLAGS.sub("", _CLASS.sub("", pattern)))
    return len(re.sub(r"\\[a-zA-Z]|[.^$*+?{}()|]", "", source))
