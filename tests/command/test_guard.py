"""The guard inside real training: it is silent when all is well, and reports every kind of fault.

The scripts in guard_scripts/ run with the interpreter of the real stack (see `stack.py`).
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess  # noqa: TID251 - tests are users
import sys
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import pytest

from envcheck import guard
from envcheck.commands import loading
from tests.support.paths import ROOT

DEADLINE_S = 300

Ask = Callable[..., Any]


def _run(command: list[str], **environ: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("ACCELERATE", "DS_"))}  # noqa: TID251
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
        cwd=ROOT,
        env={**inherited, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environ},
    )


def _free_port() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


@cache
def _results(python: str, script: str, *arguments: str) -> dict[str, Any]:
    port = _free_port()
    environ = {"DS_ACCELERATOR": "cpu", "GLOO_SOCKET_IFNAME": "lo", "MASTER_ADDR": "127.0.0.1"}
    environ |= {"MASTER_PORT": port, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    if arguments == ("cpu",):
        environ["ACCELERATE_USE_CPU"] = "true"  # the Trainer then silently runs without DeepSpeed
    ran = _run([python, "-m", f"tests.support.guard_scripts.{script}", *(arguments or (port,))], **environ)
    found = re.findall(r"^RESULTS (.*)$", ran.stdout, re.MULTILINE)
    assert found, ran.stdout[-2000:] + ran.stderr[-4000:]
    results: dict[str, Any] = json.loads(found[-1])
    return results


@pytest.fixture
def ask(stack: str) -> Ask:
    """Return the results of a script, which runs once with the interpreter of the real stack."""
    return partial(_results, stack)


# --- without torch ----------------------------------------------------------------------------------


def test_the_guard_imports_only_the_standard_library() -> None:
    asked = "import sys, envcheck.guard; print(sorted(m for m in sys.modules if m.startswith('envcheck')))"
    ran = _run([sys.executable, "-S", "-c", asked])
    assert ran.stdout.strip() == "['envcheck', 'envcheck.guard']", ran.stderr


@pytest.mark.parametrize("likely", guard.LIKELY, ids=lambda likely: likely.rule)
def test_a_likely_rule_is_in_the_matrix_with_the_same_bounds(likely: guard.Likely) -> None:
    rule = loading.knowledge().rule(likely.rule)  # None for a withdrawn one
    assert rule is not None
    clauses = {(clause.key, clause.raw) for when in rule.when for clause in when}
    assert {(f"pkg.{name}", bounds) for name, bounds in likely.versions.items()} <= clauses


SHAPE_LOST = (
    "CheckpointError: torch.utils.checkpoint: Recomputed values for the following tensors have different metadata"
    "\nsaved metadata: {'shape': torch.Size([64]), 'dtype': torch.bfloat16, 'device': device(type='cuda', index=0)}"
    "\nrecomputed metadata: {'shape': torch.Size([0]), 'dtype': torch.bfloat16, 'device': device(type='cuda', index=0)}"
)
TWO_DEVICES = "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cpu!"


@pytest.mark.parametrize(
    ("text", "traits", "versions", "rule"),
    [
        (
            SHAPE_LOST,
            "zero3 frozen",
            "torch 2.6.0+cu124 deepspeed 0.16.4",
            "zero3-frozen-nonreentrant-checkpoint",
        ),
        (SHAPE_LOST, "zero3 frozen", "torch 2.6.0+cu124 deepspeed 0.19.3", ""),
        (SHAPE_LOST, "zero3 frozen", "torch 2.4.1 deepspeed 0.16.4", ""),
        (SHAPE_LOST, "zero3 frozen", "torch 2.6.0", ""),
        (SHAPE_LOST, "fsdp1 frozen", "torch 2.6.0 deepspeed 0.16.4", ""),
        (
            f"{TWO_DEVICES} in main step unscale_and_clip_grads",
            "zero3 offload_optimizer",
            "deepspeed 0.14.2",
            "zero3-cpu-offload-grad-norm-device",
        ),
        (
            f"{TWO_DEVICES} in main forward",
            "zero3 offload_optimizer",
            "deepspeed 0.14.2",
            "",
        ),
        ("non-finite step", "zero3 bf16", "deepspeed 0.18.7 torch 2.10.0", "deepspeed-zero3-nan-torch210"),
        ("non-finite step", "zero3 bf16", "deepspeed 0.18.8 torch 2.10.0", ""),
        (
            "AssertionError: count_used_parameters_in_backward requires internal PyTorch APIs that are not available",
            "deepspeed",
            "deepspeed 0.18.3 torch 2.2.2",
            "deepspeed-hook-count-torch-lt23",
        ),
        ("non-finite forward", "fsdp2", "transformers 5.4.0", "fsdp2-nan-transformers54"),
        ("non-finite forward", "fsdp2", "transformers 5.6.0", ""),
        (
            "ValueError: zip() argument 2 is longer than argument 1 in step",
            "deepspeed",
            "torch 2.10.0 transformers 4.57.6",
            "zero-adapter-torch210-transformers-lt51",
        ),
    ],
)
def test_a_rule_is_likely_only_with_its_versions_and_traits(
    text: str, traits: str, versions: str, rule: str
) -> None:
    words = versions.split()
    assert guard.likely_rule(text, traits.split(), dict(zip(words[::2], words[1::2], strict=True))) == rule


def test_a_finding_shows_rank_tensor_expected_found_call_and_rule() -> None:
    finding = guard.GuardFinding("device", "parameter a.weight", "cuda:0", "cpu", "clip", "some-rule", 2, 3)
    assert str(finding) == (
        "rank 3: device: parameter a.weight (and 2 more): expected cuda:0, found cpu, "
        "between backward and step (clip); likely rule some-rule (envcheck rule some-rule)"
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"steps": 0}, "steps: expected a whole number from 1 on, found 0"),
        ({"on": "ignore"}, "on: expected 'raise' or 'warn', found 'ignore'"),
        ({"allow": ("nan",)}, "allow: 'nan' is not a kind of finding"),
    ],
)
def test_a_wrong_argument_is_a_value_error(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        guard.watch(None, None, **options)  # type: ignore[arg-type, unused-ignore]


def test_a_model_that_is_not_a_module_is_refused() -> None:
    with pytest.raises(TypeError, match=re.escape("expected a torch.nn.Module, found int")):
        guard.check_model(3)  # type: ignore[arg-type, unused-ignore]


# --- with torch -------------------------------------------------------------------------------------

CLIP = "between backward and step (clip)"
FORWARD = "by the end of the forward pass"
BACKWARD = "by the end of the backward pass"

PLAIN = {
    "parameter moved, forward": f"device: parameter 3.weight: expected cpu, found meta, {FORWARD}",
    "parameter moved, backward": f"device: parameter 3.weight: expected cpu, found meta, {CLIP}",
    "parameter cast": f"dtype: parameter 3.weight: expected torch.float32, found torch.bfloat16, {CLIP}",
    "state moved": f"device: optimizer state exp_avg of parameter 3.weight: expected cpu, found meta, {FORWARD}",
    "state cast": "dtype: optimizer state exp_avg_sq of parameter 3.weight: expected torch.float32, found torch.bfloat16",
    "buffer moved": f"device: buffer 1.running_mean: expected cpu, found meta, {CLIP}",
    "buffer moved, forward raises": "envcheck guard: device: buffer 1.running_mean: expected cpu, found meta",
    "gradient cast": f"dtype: gradient of 0.weight: expected torch.float32, found torch.bfloat16, {CLIP}",
    "gradient nan": f"non-finite: gradient of 3.bias: expected finite numbers, found NaN or Inf, {CLIP}",
    "gradient nan, from backward": (
        f"GuardError: non-finite: gradient of 3.bias: expected finite numbers, found NaN or Inf, {BACKWARD}"
    ),
    "frozen gradient": "frozen-gradient: parameter 0.weight: expected no gradient (requires_grad is False), found a gradient",
    "unconnected": "unconnected: parameter 0.weight (and 5 more): expected to be in the optimizer",
    "unchanged": "unchanged: all trainable parameters: expected some to change",
    "no gradient": "no-gradient: parameter 0.spare: expected a gradient, found none in 2 steps",
    "zero gradient": "zero-gradient: gradient of 3.bias: expected non-zero values, found zeros alone",
    "meta": "meta: parameter 3.weight (and 1 more): expected memory on cpu, found device meta",
    "empty": "empty: parameter 0.lost: expected elements, found shape [0]",
    "recompute shape": (
        "envcheck guard: recompute: layers.1: expected shape [16, 8], torch.float32, cpu, "
        f"found shape [2, 8], torch.float32, cpu (the first of 2), {BACKWARD}"
    ),
    "recompute dtype": "recompute: layers.1: expected shape [8, 8], torch.float32, cpu, found shape [8, 8], torch.float64",
    "recompute, partial": "recompute: layers.1: expected shape [16, 8]",
    "recompute, method": "recompute: layers.1: expected shape [16, 8]",
    "same device": "device: mask: expected cpu, as tensor 0, found meta",
    "checked": "0 then meta: parameter 3.weight (and 1 more)",
    "warned": "GuardWarning: non-finite: the loss: expected a finite number, found NaN",
}


@pytest.mark.stack
@pytest.mark.parametrize("case", PLAIN)
def test_each_fault_is_reported(ask: Ask, case: str) -> None:
    said = ask("plain")[case]
    assert PLAIN[case] in said
    assert "remain" not in said
    assert "still patched" not in said


@pytest.mark.stack
@pytest.mark.parametrize(
    "case",
    [
        "good",
        "good, half of it frozen",
        "good, rate 0",
        "good, sgd",
        "good, checkpointed",
        "no gradient, allowed",
    ],
)
def test_healthy_training_is_silent(ask: Ask, case: str) -> None:
    assert ask("plain")[case] == "silent"


@pytest.mark.stack
def test_a_guarded_run_computes_the_same_numbers(ask: Ask) -> None:
    assert ask("plain")["numerics"] is True


@pytest.mark.stack
@pytest.mark.parametrize(
    "case",
    [
        "leaves nothing",
        "leaves nothing, raised",
        "leaves nothing, finding",
        "own hooks survive",
        "nested",
    ],
)
def test_no_hook_patch_or_reference_remains(ask: Ask, case: str) -> None:
    assert ask("plain")[case] is True


@pytest.mark.stack
def test_an_exception_of_training_passes_unchanged(ask: Ask) -> None:
    said = ask("plain")["raised"]
    assert said.startswith("ZeroDivisionError")
    assert "envcheck guard" not in said


@pytest.mark.stack
def test_a_step_after_the_watch_costs_what_an_unguarded_step_costs(ask: Ask) -> None:
    unguarded, afterwards = ask("plain")["calls"]
    assert unguarded == afterwards


@pytest.mark.stack
def test_a_warning_points_at_the_line_of_training(ask: Ask) -> None:
    assert all(line.endswith("trials.py") for line in ask("plain")["warned"].splitlines())


@pytest.mark.stack
def test_the_guard_does_not_import_transformers(ask: Ask) -> None:
    assert ask("plain")["transformers loaded"] is False


@pytest.mark.stack
def test_wrapped_models_train_equally_and_have_the_names_of_the_users_model(ask: Ask) -> None:
    results = ask("wrapped")
    named = {case: said for case, said in results.items() if case.endswith(": nan")}
    for case, said in named.items():
        assert re.search(r"non-finite: gradient of (2\.bias|0\._flat_param): expected finite", said), case
        assert results[case.removesuffix(": nan")] == "silent", case
    assert len(named) == 7


@pytest.mark.stack
@pytest.mark.parametrize(
    "case", ["warm-up from rate 0", "loss scaler", "loss scaler that skips", "fused, scaler that skips"]
)
def test_warm_up_and_loss_scaling_are_not_reported(ask: Ask, case: str) -> None:
    assert ask("wrapped")[case] == "silent"


@pytest.mark.stack
def test_fsdp_with_a_stale_optimizer_or_a_mixed_unit(ask: Ask) -> None:
    assert "unconnected: parameter" in ask("wrapped")["optimizer made before fsdp"]
    assert ask("wrapped")["mixed unit"] == (
        "unit-dtype: parameter 2.bias: expected torch.float32, as 2.weight in the same FSDP unit, found torch.bfloat16"
    )


ZERO = {
    "master moved": "device: master weights, partition 0: expected cpu, found meta",
    "master cast": "dtype: master weights, partition 0: expected torch.float32, found torch.bfloat16",
    "master cast, stage 2": "dtype: master weights, partition 0: expected torch.float32, found torch.bfloat16",
    "state moved": "device: optimizer state exp_avg of master weights, partition 0: expected cpu, found meta",
    "partition moved": "device: partition of parameter 0.weight: expected cpu (offload_param), found meta",
    "added late": "unconnected: parameter late: expected to be in the optimizer",
    "nan": f"non-finite: gradient of 0.weight: expected finite numbers, found NaN or Inf, {BACKWARD}",
    "nan that only DeepSpeed sees": "found NaN or Inf, for which DeepSpeed skipped the step",
}


@pytest.mark.stack
@pytest.mark.parametrize("case", ZERO)
def test_each_fault_under_deepspeed_is_reported(ask: Ask, case: str) -> None:
    said = ask("zero")[case]
    assert ZERO[case] in said
    assert "remain" not in said


@pytest.mark.stack
def test_deepspeed_trains_equally_at_every_stage(ask: Ask) -> None:
    good = {case: said for case, said in ask("zero").items() if case.startswith("good")}
    assert good == dict.fromkeys(good, "silent")
    assert len(good) == 7


@pytest.mark.stack
@pytest.mark.parametrize("mode", ["cpu", "zero"])
def test_the_callback_is_silent_and_changes_nothing_in_a_healthy_trainer(ask: Ask, mode: str) -> None:
    assert ask("trainer", mode)["good"] == "silent"
    assert ask("trainer", mode)["equal"] is True


@pytest.mark.stack
@pytest.mark.parametrize("mode", ["cpu", "zero"])
def test_the_callback_stops_a_trainer_whose_loss_is_nan(ask: Ask, mode: str) -> None:
    said = ask("trainer", mode)["nan"]
    assert said == f"GuardError: non-finite: the loss: expected a finite number, found NaN, {FORWARD}"


@pytest.mark.stack
def test_a_trainer_that_ignores_its_deepspeed_configuration_is_reported(ask: Ask) -> None:
    said = ask("trainer", "cpu")["without deepspeed"]
    assert said.startswith(
        "GuardError: no-deepspeed: LlamaForCausalLM: expected DeepSpeed to run the training"
    )
    assert "the Trainer ran without DeepSpeed, its optimizer is torch.optim.adamw.AdamW" in said


@pytest.mark.stack
@pytest.mark.parametrize(("case", "error"), [("raises", "mine"), ("starves", "no batch")])
def test_the_callback_removes_its_hooks_when_the_trainer_raises(ask: Ask, case: str, error: str) -> None:
    said = ask("trainer", "cpu")[case]
    assert said.startswith(f"KeyError: '{error}'")
    assert "left:" not in said
    assert "still patched" not in said


@pytest.mark.stack
def test_the_example_of_the_documentation_runs(stack: str) -> None:
    example = (ROOT / "docs/how-to/guard.md").read_text().partition("```python\n")[2].partition("```")[0]
    assert len([line for line in example.splitlines() if line]) == 6
    setting = (
        "import torch\nmodel = torch.nn.Linear(4, 2)\nbatches = [torch.ones(3, 4)] * 4\n"
        "optimizer = torch.optim.AdamW(model.parameters())\n"
    )
    ran = _run([stack, "-c", setting + example])
    assert ran.returncode == 0, ran.stderr
    spoilt = setting.replace("model.parameters()", "torch.nn.Linear(4, 2).parameters()")
    ran = _run([stack, "-c", spoilt + example])
    assert "unconnected: parameter weight" in ran.stderr
