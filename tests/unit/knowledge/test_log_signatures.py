"""Signatures: which words a pattern needs, which texts match, and how specific a match is."""

from __future__ import annotations

import pytest

from envcheck.commands import loading
from envcheck.knowledge import log_signatures
from envcheck.knowledge.log_signatures import SearchedText

TREE = loading.source_tree()
WORDS = [row["word"] for row in TREE["tables"]["trigger"]]
ALL = log_signatures.compile_signatures(TREE["case"])


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        ("an Error here", True),
        (r"\w+Error: x", True),
        ("(an error|a warning) came", True),
        ("(an error|nothing) came", False),
        ("an error|nothing", False),
        ("(the|an) error", True),
        ("(error)?s", False),
        ("(error)*s", False),
        ("erro?r", False),
        ("[error]", False),
        ("x(?=error)", False),
        ("(?!error)x", False),
        (r"error\.x", True),
        (r"a\|b error", True),
        (r"a\|b", False),
        ("(?i)ERROR", True),
        ("((an|the) error|a warning)", True),
        ("(?:an error)+", True),
        ("(error){0,2}", False),
    ],
)
def test_whether_every_match_of_a_pattern_contains_a_trigger_word(pattern: str, needed: bool) -> None:
    assert log_signatures.needs_word(pattern, WORDS) is needed


def test_every_signature_can_be_found_by_a_trigger() -> None:
    for each in TREE["case"]:
        texts = each.get("signature", [])
        assert not texts or any(log_signatures.needs_word(text, WORDS) for text in texts), each["id"]


def test_a_signature_matches_only_if_all_of_its_patterns_do() -> None:
    (one,) = log_signatures.compile_signatures([{"id": "x", "signature": ["first error", "second"]}])
    assert log_signatures.any_signature_matches([one], "second\nfirst error")
    assert not log_signatures.any_signature_matches([one], "first error")
    assert log_signatures.match_positions(one, SearchedText.of("A Second")) == {}
    assert log_signatures.match_positions(one, SearchedText.of("a second")) == {1: 2}
    assert 0 < one.score([0]) < one.score([0, 1]) < 1


def test_the_more_specific_pattern_scores_higher() -> None:
    short, long = log_signatures.compile_signatures(
        [
            {"id": "short", "signature": ["Error: Cannot"]},
            {"id": "long", "signature": [r"Error: Cannot re-initialize CUDA in forked subprocess \d+"]},
        ]
    )
    assert short.score([0]) < long.score([0])
