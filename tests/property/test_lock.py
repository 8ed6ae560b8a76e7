"""Properties that hold for any input: lock."""

from __future__ import annotations

import contextlib
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from envcheck.core.errors import InputError
from envcheck.lock.model import Lock
from envcheck.lock.parse import parse_requirements
from envcheck.lock.render import render_requirements
from tests.unit.lock.test_lock import LOCK, TEXT, A, names, pins

words = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._,:-]{0,12}", fullmatch=True)


keys = st.from_regex(r"[a-z][a-z0-9_]{0,6}(\.[a-z0-9_]{1,6})?", fullmatch=True)


notes = st.text(st.characters(categories=("L", "N", "Zs", "Pd")), min_size=1, max_size=30).filter(
    lambda text: text.isprintable() and text == text.strip()
)


locks = st.builds(
    Lock,
    target=words,
    python=st.sampled_from(["3.11", "3.12"]),
    platform=st.just("linux-x86_64"),
    pins=st.lists(pins(), min_size=1, max_size=6, unique_by=lambda pin: pin.name).map(tuple),
    glibc=st.sampled_from(["", "2.28"]),
    needs=st.lists(st.tuples(keys, st.sampled_from([">=", "="]), words), max_size=3).map(tuple),
    train=st.lists(st.tuples(keys, words), max_size=3).map(tuple),
    build=st.lists(names, max_size=2, unique=True).map(tuple),
    date=st.sampled_from(["", "2026-11-21"]),
    maker=st.sampled_from(["", "0.1.0"]),
    matrix=st.sampled_from(["", f"sha256:{A}"]),
    notes=st.lists(notes, max_size=2).map(tuple),
)


@given(locks)
def test_lock_reads_back_as_what_was_written(lock: Lock) -> None:
    assert parse_requirements(render_requirements(lock), "lock.txt") == lock


@given(locks, st.randoms())
def test_order_of_the_input_does_not_change_a_byte(lock: Lock, random: object) -> None:
    shuffle = getattr(random, "shuffle")  # noqa: B009 - hypothesis types it as its own Random
    shuffled = list(lock.pins)
    shuffle(shuffled)
    assert render_requirements(replace(lock, pins=tuple(shuffled))) == render_requirements(lock)


@given(st.integers(0, len(TEXT) - 1), st.characters())
def test_any_change_reads_the_same_or_is_an_input_error(place: int, character: str) -> None:
    text = TEXT[:place] + character + TEXT[place + 1 :]
    with contextlib.suppress(InputError):
        # If the text can still be read, the change is in the prose, which no program reads.
        assert parse_requirements(text, "lock") == LOCK


@given(st.text(max_size=300))
def test_no_text_raises_anything_but_an_input_error(text: str) -> None:
    with contextlib.suppress(InputError):
        parse_requirements(text, "lock")
