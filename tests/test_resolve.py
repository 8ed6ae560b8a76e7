"""The search over tiny package worlds: backtracking, no solution, rules against rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from envcheck import resolve
from envcheck.model import NoSolutionError

World = Mapping[str, Sequence[str]]


def found(
    world: World, forbidden: Sequence[Mapping[str, str]], first: Sequence[Mapping[str, str]] = ()
) -> dict[str, str]:
    """Search a world (package → versions, best first) where these combinations are forbidden."""

    def objections(choice: Mapping[str, str]) -> list[str]:
        return [
            " + ".join(f"{k} {v}" for k, v in bad.items())
            for bad in forbidden
            if bad.items() <= choice.items()
        ]

    return resolve.search(list(world), lambda name: world[name], objections, first)


def test_the_best_of_each_is_taken_where_nothing_objects() -> None:
    assert found({"a": ["2", "1"], "b": ["9", "8"]}, []) == {"a": "2", "b": "9"}


def test_a_conflict_moves_the_later_package_first() -> None:
    assert found({"a": ["2", "1"], "b": ["9", "8"]}, [{"a": "2", "b": "9"}]) == {"a": "2", "b": "8"}


def test_a_dead_end_is_backed_out_of() -> None:
    bad = [{"a": "2", "b": "9"}, {"a": "2", "b": "8"}]
    assert found({"a": ["2", "1"], "b": ["9", "8"]}, bad) == {"a": "1", "b": "9"}


def test_a_dead_end_three_packages_deep_is_backed_out_of() -> None:
    bad = [{"a": "2", "c": each} for each in ("5", "4")]
    assert found({"a": ["2", "1"], "b": ["9"], "c": ["5", "4"]}, bad) == {"a": "1", "b": "9", "c": "5"}


def test_no_solution_names_the_rules_that_stood_in_the_way() -> None:
    with pytest.raises(NoSolutionError) as caught:
        found({"a": ["1"], "b": ["9", "8"]}, [{"a": "1", "b": "9"}, {"a": "1", "b": "8"}])
    assert "b was refused 2 times" in str(caught.value)
    assert "a 1 + b 9" in str(caught.value)


def test_a_package_without_releases_is_no_solution() -> None:
    with pytest.raises(NoSolutionError, match="no release"):
        found({"a": []}, [])


def test_what_was_measured_good_comes_before_what_is_new() -> None:
    world = {"a": ["3", "2", "1"], "b": ["9", "8"]}
    assert found(world, [], first=[{"a": "1", "b": "8", "unrelated": "0"}]) == {"a": "1", "b": "8"}


def test_a_measured_combination_that_is_objected_to_is_passed_over() -> None:
    world = {"a": ["3", "2"], "b": ["9", "8"]}
    assert found(world, [{"a": "2", "b": "8"}], first=[{"a": "2", "b": "8"}]) == {"a": "3", "b": "9"}


def test_a_hopeless_search_ends() -> None:
    world = {name: [str(n) for n in range(20)] for name in "abcd"}
    hopeless = [{"d": str(n)} for n in range(20)]
    with pytest.raises(NoSolutionError, match="combinations"):
        found(world, hopeless)
