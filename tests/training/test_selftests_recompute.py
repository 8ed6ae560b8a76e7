"""Recompute and dtype consistency on a real stack: sound code passes, sabotage is caught with its message."""

from __future__ import annotations

import json
import os
import shutil
import subprocess  # noqa: TID251 - tests are users
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import ROOT
from tests.support.running import installed, invocation

pytestmark = pytest.mark.stack


HOOK = """
import sys

if any(each.endswith("_worker.py") for each in getattr(sys, "orig_argv", sys.argv)):
    import importlib.util

    import mutant

    class Saboteur:
        def find_spec(self, name, path=None, target=None):
            if name != mutant.AFTER:
                return None
            sys.meta_path.remove(self)
            spec = importlib.util.find_spec(name)
            execute = spec.loader.exec_module

            def then(module):
                execute(module)
                mutant.sabotage(module)

            spec.loader.exec_module = then
            return spec

    sys.meta_path.insert(0, Saboteur())
"""

Seen = dict[str, dict[str, Any]]


def selftest(stack: str, *options: str, before: Path | None = None) -> tuple[int, Seen]:
    """Run the self-tests; return the exit code and the outcomes by variant."""
    path = os.pathsep.join(str(each) for each in (installed(), before) if each)
    ran = subprocess.run(
        invocation("selftest", "--json", "--python", stack, *options),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"},  # noqa: TID251
    )
    assert ran.stdout, ran.stderr[-2000:]
    return ran.returncode, {each["variant"]: each for each in json.loads(ran.stdout)["outcomes"]}


def only(*names: str) -> list[str]:
    return [option for name in names for option in ("--only", name)]


ZERO3 = (
    "zero3-lora-nonreentrant",
    "zero3-lora-reentrant",
    "zero3-dora-pretrained-nonreentrant",
    "zero3-full-nonreentrant",
    "zero2-lora-nonreentrant",
)
PLAIN = tuple(
    f"{way}-{kind}"
    for way in ("plain-lora", "plain-dora", "plain-lora-dropout", "autocast-lora", "fsdp1-lora")
    for kind in ("nonreentrant", "reentrant")
)
KNOWN_LIMITS = {
    "fsdp1-dora-nonreentrant": "fsdp-dora-recompute-dtype",
    "fsdp1-dora-reentrant": "fsdp-dora-reentrant-adamw-dtype",
    "fsdp1-dora-dropout-nonreentrant": "fsdp-dora-recompute-dtype",
    "fsdp1-dora-dropout-reentrant": "fsdp-dora-reentrant-adamw-dtype",
}


@pytest.fixture(scope="module")
def sound(stack: str) -> tuple[int, Seen]:
    """Run every variant on the stack as it is, including the known limitations, which are named."""
    return selftest(stack, *only("recompute_consistency", "dtype_consistency"))


def test_a_sound_stack_passes_all_but_the_known_limitations(sound: tuple[int, Seen]) -> None:
    _, seen = sound
    failed = {name: each["why"] for name, each in seen.items() if each["result"] in ("fail", "unknown")}
    assert set(failed) == set(KNOWN_LIMITS), failed
    assert {name for name, each in seen.items() if each["result"] == "pass"} >= {*ZERO3, *PLAIN}


def test_a_known_limitation_fails_with_its_rule_and_fixes(sound: tuple[int, Seen]) -> None:
    code, seen = sound
    assert code == 1
    for name, rule in KNOWN_LIMITS.items():
        assert seen[name]["rule"] == rule
        assert "train.dora = false" in seen[name]["ways_out"]
        assert not any(way.startswith("pkg.") for way in seen[name]["ways_out"])
    assert "dtype float32 -> bfloat16" in seen["fsdp1-dora-nonreentrant"]["why"]
    assert seen["fsdp1-dora-nonreentrant"]["call"] == "backward with checkpointing"
    assert "expected dtype float for `end`" in seen["fsdp1-dora-reentrant"]["why"]
    assert seen["fsdp1-dora-reentrant"]["call"] == "step with checkpointing"


def test_nothing_differs_on_a_cpu(sound: tuple[int, Seen]) -> None:
    _, seen = sound
    for name in (*ZERO3, *PLAIN):
        assert seen[name]["seen"]["recompute_error"] == 0.0
        assert seen[name]["seen"]["gradient_error"] == 0.0


def test_two_ranks_agree_with_one(stack: str) -> None:
    names = ("fsdp1-lora-nonreentrant", "fsdp2-dora-nonreentrant", *KNOWN_LIMITS)
    code, seen = selftest(stack, "--ranks", "2", *only(*names))
    assert code == 1
    assert {name for name, each in seen.items() if each["result"] == "fail"} == set(KNOWN_LIMITS)
    assert {name: each["rule"] for name, each in seen.items() if each["rule"]} == KNOWN_LIMITS


def test_deepspeed_0192_is_caught_wherever_parameters_are_frozen(
    stack: str, deepspeed: Callable[[str], Path]
) -> None:
    code, seen = selftest(stack, *only(*ZERO3), before=deepspeed("0.19.2"))
    assert code == 1
    for name, each in seen.items():
        broken = name in ("zero3-lora-nonreentrant", "zero3-dora-pretrained-nonreentrant")
        assert each["result"] == ("fail" if broken else "pass"), each["why"]
        if broken:
            assert "shape [64] -> [0]" in each["why"]
            assert each["rule"] == "zero3-frozen-nonreentrant-checkpoint"
            assert "0.19.3" in each["ways_out"][0]


@pytest.mark.parametrize(
    ("mutant", "caught"),
    [
        (
            "never_recomputes",
            {"plain-lora-reentrant": "ran 1 times in a step, expected 2: nothing was recomputed"},
        ),
        (
            "casts_on_recompute",
            {"plain-lora-reentrant": "mlp gives float16 [1, 16, 64] on cpu when recomputed"},
        ),
        (
            "grows_on_recompute",
            {
                "plain-lora-nonreentrant": "CheckpointError: ",
                "plain-lora-reentrant": "mlp.gate_proj takes float32 [1, 17, 64] on cpu when recomputed",
            },
        ),
        (
            "scales_a_gradient",
            {
                "plain-lora-nonreentrant": "lora_A.default.weight: differs by 0.05 of its largest value",
                "zero2-lora-reentrant": "lora_A.default.weight: differs by 0.05 of its largest value",
            },
        ),
        (
            "nan_in_a_gradient",
            {
                "plain-dora-nonreentrant": "lora_A.default.weight with checkpointing is not finite",
                "autocast-lora-reentrant": "lora_A.default.weight with checkpointing is not finite",
            },
        ),
        (
            "forgets_random_numbers",
            {
                "plain-lora-dropout-nonreentrant": "q_proj gives when recomputed: differs by",
                "plain-lora-dropout-reentrant": "q_proj gives when recomputed: differs by",
            },
        ),
        (
            "forgets_autocast",
            {
                "autocast-lora-nonreentrant": "dtype bfloat16 -> float32",
                "autocast-lora-reentrant": "on cpu when recomputed, bfloat16",
            },
        ),
        (
            "fsdp_without_mixed_precision",
            {
                "fsdp1-layers-lora-nonreentrant": "with a weight of float32, expected bfloat16",
                "fsdp1-lora-reentrant": "with a weight of bfloat16 and float32, expected bfloat16",
            },
        ),
        ("adapter_in_base_dtype", {"fsdp1-lora-reentrant": "weight is bfloat16, expected float32"}),
        ("trains_the_base", {"plain-lora-nonreentrant": "what trains is not the adapter alone"}),
        ("steps_in_vain", {"autocast-dora-nonreentrant": "did not move in the step"}),
    ],
)
def test_sabotage_is_caught(stack: str, tmp_path: Path, mutant: str, caught: dict[str, str]) -> None:
    shutil.copy(ROOT / "tests/data/sabotage" / f"{mutant}.py", tmp_path / "mutant.py")
    (tmp_path / "sitecustomize.py").write_text(HOOK)
    code, seen = selftest(stack, *only(*caught), before=tmp_path)
    assert code == 1
    for variant, said in caught.items():
        assert seen[variant]["result"] == "fail"
        assert said in seen[variant]["why"]


def test_known_limitations_are_not_run_without_a_target(stack: str) -> None:
    """Level 2 without a target must not fail a machine for limitations that no version fixes."""
    from envcheck.commands import examine, selftest
    from envcheck.commands.selftest.selection import select
    from envcheck.host.machine import Host

    machine = Host()
    prepared = selftest.prepare(examine.ExamineRequest(python=stack), machine)
    chosen = select(prepared, selftest.SelftestOptions(level=2, device="cpu"), "cpu", machine)
    limits = {each.variant.name: each.rule for each in chosen if each.rule}
    assert limits == KNOWN_LIMITS
    for each in chosen:
        if each.rule:
            assert each.skipped == (
                f"fails with every version (rule {each.rule}); --only {each.variant.name} runs it"
            )
    asked = select(prepared, selftest.SelftestOptions(only=("fsdp1-dora-reentrant",)), "cpu", machine)
    assert [each.skipped for each in asked] == [""]
