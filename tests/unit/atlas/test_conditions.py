"""Conditions are decided with three values beside other releases; what cannot be known is maybe."""

from __future__ import annotations

import pytest

from envcheck.atlas.conditions import (
    ALWAYS,
    NEVER,
    UNREADABLE,
    Compared,
    Condition,
    HasName,
    Installed,
    PartCompared,
    Surroundings,
    all_of,
    any_of,
    decide,
    either,
    negate,
    packages_of,
)
from envcheck.core.facts import Tri

TORCH = Installed("torch")
OLD = Compared("torch", "<", "2.0")


def beside(**versions: str) -> Surroundings:
    return Surroundings(versions=versions)


@pytest.mark.parametrize(
    ("condition", "version", "expected"),
    [
        (Compared("torch", ">=", "2.0"), "2.0.0", Tri.YES),
        (Compared("torch", ">=", "2.0"), "1.13.1", Tri.NO),
        (Compared("torch", ">", "2.0"), "2.0.1", Tri.YES),
        (Compared("torch", "==", "2.4", depth=2), "2.4.1", Tri.YES),
        (Compared("torch", ">", "2.4", depth=2), "2.4.1", Tri.NO),
        (PartCompared("torch", 1, ">=", 8), "1.10.0", Tri.YES),
        (PartCompared("torch", 1, ">=", 8), "2.0.0", Tri.NO),
        (Installed("torch", ("2.1", "2.4")), "2.0.0", Tri.NO),
        (Installed("torch", ("2.1", "2.4")), "2.2.0", Tri.MAYBE),
        (Installed("torch", ("2.1", "2.4")), "2.4.0", Tri.YES),
    ],
)
def test_a_known_version_decides(condition: Condition, version: str, expected: Tri) -> None:
    assert decide(condition, beside(torch=version)) is expected


def test_a_package_that_is_not_given_is_maybe_there() -> None:
    assert decide(Installed("vllm"), beside(torch="2.0")) is Tri.MAYBE
    assert decide(Compared("vllm", ">=", "0.5"), beside(torch="2.0")) is Tri.MAYBE


def test_a_package_for_another_machine_is_absent() -> None:
    surroundings = Surroundings(absent=frozenset({"torch-npu"}))
    assert decide(Installed("torch-npu"), surroundings) is Tri.NO


@pytest.mark.parametrize(
    ("window", "condition", "expected"),
    [
        (">=2.4", Compared("torch", ">=", "2.0"), Tri.YES),
        (">=2.4", Compared("torch", "<", "2.0"), Tri.NO),
        (">=2.4", Compared("torch", ">=", "2.6"), Tri.MAYBE),
        (">=1.8,<2", Compared("torch", ">=", "2.0"), Tri.NO),
        (">=1.8,<2", Compared("torch", "<", "2.0"), Tri.YES),
        ("", Compared("torch", ">=", "2.0"), Tri.MAYBE),
        (">=2.4", Compared("torch", "==", "2.4"), Tri.MAYBE),
        ("", Installed("torch", ("2.4",)), Tri.YES),
    ],
)
def test_a_third_package_is_known_by_the_versions_that_the_metadata_admits(
    window: str, condition: Condition, expected: Tri
) -> None:
    assert decide(condition, Surroundings(windows={"torch": window})) is expected


def test_an_unreadable_part_decides_only_where_the_rest_does_not() -> None:
    surroundings = beside(torch="2.4")
    assert decide(all_of((UNREADABLE, OLD)), surroundings) is Tri.NO
    assert decide(all_of((UNREADABLE, TORCH)), surroundings) is Tri.MAYBE
    assert decide(any_of((UNREADABLE, TORCH)), surroundings) is Tri.YES


def test_a_name_is_looked_up_in_the_release_itself() -> None:
    surroundings = Surroundings(has=lambda path: Tri.of(path == "torch.compiler"))
    assert decide(HasName("torch.compiler"), surroundings) is Tri.YES
    assert decide(negate(HasName("torch._six")), surroundings) is Tri.YES


def test_conditions_are_simplified() -> None:
    assert all_of((TORCH, ALWAYS, TORCH)) == TORCH
    assert all_of((TORCH, negate(TORCH))) == NEVER
    assert any_of((TORCH, negate(TORCH))) == ALWAYS
    assert either(TORCH, all_of((TORCH, OLD)), NEVER) == all_of((TORCH, OLD))
    assert all_of((TORCH, any_of((negate(TORCH), OLD)))) == all_of((TORCH, OLD))
    assert all_of((Installed("torch", ("2.4",)), any_of((negate(TORCH), OLD)))) == all_of(
        (Installed("torch", ("2.4",)), OLD)
    )


def test_two_unreadable_parts_are_not_each_other() -> None:
    assert any_of((UNREADABLE, negate(UNREADABLE))) == UNREADABLE
    assert all_of((UNREADABLE, negate(UNREADABLE))) == UNREADABLE


def test_a_condition_names_its_packages() -> None:
    condition = all_of((TORCH, any_of((Compared("peft", ">=", "1"), negate(HasName("triton.jit"))))))
    assert packages_of(condition) == {"torch", "peft", "triton"}
