"""Patterns that are compiled when they are first used."""

from __future__ import annotations

import copy
import re

import pytest

from envcheck.core.patterns import pattern


def test_a_pattern_is_used_like_a_compiled_one() -> None:
    found = pattern(r"(\d+) of", re.IGNORECASE).search("3 OF 4")
    assert found is not None
    assert found[1] == "3"
    assert pattern("a|b").pattern == "a|b"
    assert copy.copy(pattern("a")).match("a")


def test_equal_texts_are_equal_patterns() -> None:
    assert pattern("a") == pattern("a")
    assert pattern("a") != pattern("a", re.IGNORECASE)
    assert pattern("a") != "a"
    assert len({pattern("a"), pattern("a"), pattern("b")}) == 2


def test_a_mistake_shows_when_the_pattern_is_used() -> None:
    wrong = pattern("(")
    with pytest.raises(re.error):
        wrong.search("")
