"""What a regular expression needs: texts that stand in everything that it matches."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envcheck.commands import loading
from envcheck.knowledge.needed_text import freeze_needed, may_match, needed_texts

PATTERNS = sorted(freeze_needed(loading.source_tree()))
"""Signatures and patterns of messages, which the wheel has with what they need."""


@pytest.mark.parametrize(
    ("pattern", "needed"),
    [
        ("CUDA error", [("cuda error",)]),
        (r"a\.b+c?d", [("a.b",), ("d",)]),
        ("(ab|(?:cd|ef)ghi)j", [("ab", "ghi"), ("j",)]),
        ("(ab|c*)d", [("d",)]),
        ("(ab)?cd{2}", [("cd",)]),
        ("(ab){0,3}cd*?e", [("c",), ("e",)]),
        (r"(?m)^x[]a(]\d{4}(?!no)(?<=no)y$", [("x",), ("y",)]),
        ("(?i:Ab)(?P<name>cd)(?P=name)", [("ab",), ("cd",)]),
        (r"no \x27ab\x27 (c)\1d", [("no ",), ("ab",), (" ",), ("c",), ("d",)]),
        ("ab|.*", []),
        ("(?x) a b", []),
    ],
)
def test_what_stands_in_every_match_is_needed(pattern: str, needed: list[tuple[str, ...]]) -> None:
    assert needed_texts(pattern) == needed


@given(
    st.sampled_from(PATTERNS).flatmap(lambda text: st.tuples(st.just(text), st.from_regex(text))),
)
def test_no_pattern_is_passed_over_where_it_matches(example: tuple[str, str]) -> None:
    pattern, text = example
    assert re.search(pattern, text)
    assert may_match(needed_texts(pattern), text.casefold())
