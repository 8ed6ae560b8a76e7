"""Properties that hold for any input: hostlist."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from envcheck.fleet import hostlist

NAMES = st.text(min_size=1, max_size=12) | st.from_regex(r"[a-c]{0,2}[0-9]{1,4}(\.x)?", fullmatch=True)


@given(st.lists(NAMES, min_size=1, max_size=40))
def test_unfold_is_the_inverse_of_fold(names: list[str]) -> None:
    assert sorted(hostlist.unfold(hostlist.fold(names))) == sorted(set(names))


@given(st.lists(st.integers(0, 400), min_size=1, max_size=60), st.sampled_from(["{}", "{:03d}", "{:05d}"]))
def test_the_order_of_names_does_not_matter_and_neighbours_become_a_range(
    numbers: list[int], form: str
) -> None:
    names = ["gpu" + form.format(number) for number in numbers]
    folded = hostlist.fold(names)
    assert folded == hostlist.fold(reversed(names))
    runs = sum(number - 1 not in numbers for number in set(numbers))
    assert folded.count(",") + 1 == runs  # one range between two gaps
