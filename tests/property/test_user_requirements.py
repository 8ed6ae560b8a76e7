"""Properties that hold for any input: user requirements."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from envcheck.core.errors import InputError
from tests.unit.resolution.test_user_requirements import read


@given(st.text(max_size=60))
def test_no_text_is_a_traceback_or_shows_a_login(text: str) -> None:
    try:
        said = repr(read(f"{text}\nx @ https://u:canary@h/x"))
    except InputError as error:
        said = str(error)
    assert "canary" not in said
