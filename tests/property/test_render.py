"""Properties that hold for any input: render."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from envcheck.core import sanitize


@given(st.text())
def test_cleaning_is_idempotent(text: str) -> None:
    once = sanitize.clean(text)
    assert sanitize.clean(once) == once
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", once)
    once.encode("utf-8")
