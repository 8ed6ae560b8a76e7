"""The releases that `pin` searches: what their metadata and the extras of a target require."""

from __future__ import annotations

from packaging.requirements import Requirement

from envcheck.commands import loading
from envcheck.commands.pin.releases import searched_releases
from envcheck.commands.pin.target import GLIBC, LockTarget
from envcheck.core.facts import Fact, Inventory, Known
from envcheck.core.rules import UserRequirement
from envcheck.resolution.resolver import Release


def searched(target: str, *wanted: str) -> dict[tuple[str, str], Release]:
    known = loading.knowledge()
    facts = {"python.version": "3.12.0", "host.os": "linux", "host.arch": "x86_64"}
    goal = LockTarget(
        machine=Inventory({key: Fact(key, Known(value), "test") for key, value in facts.items()}),
        python="3.12",
        platform="linux-x86_64",
        glibc=GLIBC,
        target=known.targets[target],
        matrix=known,
        requirements=tuple(UserRequirement(name, "", "--with") for name in wanted),
    )
    return {(each.package, each.version): each for each in searched_releases(goal).releases}


def requires(target: str, package: str, version: str, *wanted: str) -> set[str]:
    return set(searched(target, *wanted)[package, version].requires)


def test_the_extras_of_a_target_are_part_of_the_search() -> None:
    """Otherwise a backend states what an extra requires, one release in each round."""
    assert "vllm<=0.31.0,>=0.22.0" in requires("grpo-trl-vllm", "trl", "1.16.0")
    assert "vllm<=0.31.0,>=0.22.0" not in requires("grpo-trl", "trl", "1.16.0", "vllm")
    assert {"vllm==0.24.0", "transformers==5.9.0"} <= requires("verl", "verl", "0.9.1")


def test_the_table_has_every_extra_that_a_target_names() -> None:
    rows = loading.source_tree()["tables"]["extra"]
    listed = {(row["package"], row["extra"]) for row in rows}
    for target in loading.knowledge().targets.values():
        for each in map(Requirement, target.extras):
            assert {(each.name, extra) for extra in each.extras} <= listed


def test_a_package_that_is_built_without_a_compiler_is_built_from_any_source_distribution() -> None:
    """DeepSpeed 0.16.3 has a wheel too, but only for Windows; bitsandbytes 0.42.0 has one for Linux."""
    found = searched("fsdp2-full", "deepspeed", "bitsandbytes")
    assert found["deepspeed", "0.16.2"].sdist
    assert found["deepspeed", "0.16.3"].sdist
    assert not found["bitsandbytes", "0.42.0"].sdist
