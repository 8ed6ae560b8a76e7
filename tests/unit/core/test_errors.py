"""Errors and the places they name."""

import pytest

from envcheck.core.errors import Place


@pytest.mark.parametrize(
    ("place", "text"),
    [
        (Place("ds.json", 7, 23), "ds.json:7:23"),
        (Place("ds.json", 7), "ds.json:7"),
        (Place("ds.json"), "ds.json"),
    ],
)
def test_a_place_is_printed_without_numbers_that_are_not_known(place: Place, text: str) -> None:
    assert str(place) == text
