"""Properties that hold for any input: user requirements."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envcheck.core.errors import InputError
from tests.unit.resolution.test_user_requirements import read


@given(st.text(max_size=60))
def test_no_text_is_a_traceback_or_shows_a_login(text: str) -> None:
    with pytest.raises(InputError) as caught:
        read(f"{text}\nx @ https://u:canary@h/x")
    assert "canary" not in str(caught.value)
