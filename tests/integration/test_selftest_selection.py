"""Which self-tests a target selects in an environment that was read."""

from __future__ import annotations

import pytest

from envcheck import probes
from envcheck.commands import loading
from envcheck.commands.selftest import environment as envs
from envcheck.commands.selftest.selection import UNUSED_KERNELS, select
from envcheck.core.facts import Fact, Inventory, Known
from envcheck.host.machine import Host

AXOLOTL = {"pkg.torch": "2.14.1", "pkg.xformers": "0.0.35", "cuda.runtime": "13.0"}


def environment(target: str, **facts: object) -> envs.TestEnvironment:
    keys = loading.vocabulary(probes.every_probe())
    matrix = loading.load_matrix(keys, ())
    values = {**AXOLOTL, **{key.replace("__", "."): value for key, value in facts.items()}}
    read = Inventory({key: Fact(key, Known(value), "test") for key, value in values.items()})  # type: ignore[arg-type]
    chosen = matrix.targets[target] if target else None
    return envs.TestEnvironment("test", "python", read, matrix, keys, chosen)


def skipped(of: envs.TestEnvironment, variant: str, only: tuple[str, ...] = ()) -> list[str]:
    chosen = select(of, envs.SelftestOptions(level=1, only=only), "cpu", Host())
    return [each.skipped for each in chosen if each.variant.name == variant]


LACKS = {"pkg__xformers__unresolved": ("libcudart.so.12",)}


@pytest.mark.parametrize("target", ["axolotl", "unsloth-qlora"])
def test_kernels_that_a_target_does_not_use_are_not_tested(target: str) -> None:
    (why,) = skipped(environment(target, **LACKS), "xformers")
    assert why.startswith(UNUSED_KERNELS)
    assert "kernels-of-another-torch" in why


def test_the_variant_runs_if_it_is_named_or_loads_or_there_is_no_target() -> None:
    assert skipped(environment("axolotl", **LACKS), "xformers", only=("xformers",)) == [""]
    assert skipped(environment("axolotl"), "xformers") == [""]
    assert skipped(environment("", **LACKS), "xformers") == [""]


def test_the_kernels_of_a_targets_own_package_are_tested() -> None:
    lacks = {"pkg__deepspeed": "0.19.8", "pkg__deepspeed__unresolved": ("_ZN3c10",)}
    assert skipped(environment("zero3-lora", **lacks), "deepspeed-ops") == [""]
