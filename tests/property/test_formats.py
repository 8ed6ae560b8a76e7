"""Hostile text stays inert in every format and every field."""

from __future__ import annotations

import cProfile
from collections.abc import Mapping
from functools import cache

import pytest

from envcheck.core import sanitize
from envcheck.core.sanitize import Private
from envcheck.reports import render
from tests.support.hostile import TEXTS
from tests.unit.reports.test_formats import (
    ACTING,
    CHECKS,
    FORMATS,
    SGR,
    poisoned,
    rendered,
)


@cache
def line_counts(keys: bool) -> Mapping[str, int]:
    return {name: len(rendered(name, poisoned("x", keys=keys)).splitlines()) for name in FORMATS}


UNEVEN = ("terminal", "text", "junit")  # they wrap lines, or have a case for each readable requirement


@pytest.mark.parametrize("part", range(8))
@pytest.mark.parametrize("keys", [False, True], ids=["texts", "names too"])
def test_hostile_text_stays_inert_in_every_field(keys: bool, part: int) -> None:
    for text in TEXTS[part::8]:
        fit = sanitize.sanitized(poisoned(text, keys=keys), Private())
        for name in FORMATS:
            out = render.format_named(name)(fit)
            assert not ACTING.search(SGR.sub("", out).replace("\n", "")), (name, text)
            CHECKS[name](out)
            if "\n" in text and text.strip() and name not in UNEVEN:
                assert len(out.splitlines()) <= line_counts(keys)[name], (name, text)


@pytest.mark.parametrize("name", FORMATS)
def test_the_work_for_a_long_wide_text_grows_with_its_length_alone(name: str) -> None:
    def calls(size: int) -> int:
        profile = cProfile.Profile()
        profile.runcall(rendered, name, poisoned("深" * size, keys=False))
        return sum(entry.callcount for entry in profile.getstats())

    assert calls(1_600) < 2.5 * calls(800)
