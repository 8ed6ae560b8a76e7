"""The training-shaped self-tests on devices, clipping, resuming, merging, losses and the Trainer.

They run on a real stack: sound code passes, and each sabotage (a file in `tests/data/sabotage/`) is caught by the
test for it, with the right message. Sabotages that no test combines run together, because most of a run is imports.
"""

from __future__ import annotations

import json
import os
import re
import subprocess  # noqa: TID251 - tests are users
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.paths import DATA
from tests.support.running import installed, invocation

pytestmark = pytest.mark.stack

SABOTAGE = DATA / "sabotage"
TESTS = (
    "device_consistency",
    "merged_adapter",
    "offload_clip_devices",
    "save_resume",
    "trainer_deepspeed",
    "training_reference",
)


class Ran(NamedTuple):
    code: int
    outcomes: dict[str, dict[str, Any]]


def selftest(stack: str, *only: str, path: tuple[Path, ...] = ()) -> Ran:
    options = [each for name in only for each in ("--only", name)]
    ran = subprocess.run(
        invocation("selftest", "--json", "--python", stack, *options),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={
            **os.environ,  # noqa: TID251
            "PYTHONPATH": os.pathsep.join([*map(str, path), str(installed())]),
        },
    )
    assert ran.stdout, ran.stderr[-2000:]
    tree = json.loads(ran.stdout)
    return Ran(ran.returncode, {each["variant"]: each for each in tree["outcomes"]})


def sabotaged(folder: Path, *names: str) -> Path:
    """Make a folder whose `sitecustomize` applies the sabotages of these names."""
    for name in ("after_import", *names):
        (folder / f"{name}.py").write_text((SABOTAGE / f"{name}.py").read_text("utf-8"), "utf-8")
    (folder / "sitecustomize.py").write_text("".join(f"import {name}\n" for name in names), "utf-8")
    return folder


def caught(ran: Ran, variant: str, why: str, call: str | None = None) -> None:
    outcome = ran.outcomes[variant]
    said = f"{outcome['result']}: {outcome['why']} | in {outcome['call']} | {outcome['place']}"
    assert outcome["result"] == "fail", said
    assert re.search(why, outcome["why"]), said
    assert call is None or outcome["call"] == call, said


# --- a sound stack passes ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def fine(stack: str) -> Ran:
    return selftest(stack, *TESTS)


def test_a_sound_stack_passes_every_variant(fine: Ran) -> None:
    wrong = {
        name: (each["result"], each["why"])
        for name, each in fine.outcomes.items()
        if each["result"] != "pass"
    }
    assert not wrong
    assert fine.code == 0


def test_every_passed_variant_checked_something(fine: Ran) -> None:
    """A variant must not pass only because it found nothing to check."""
    for name, outcome in fine.outcomes.items():
        seen = outcome["seen"]
        if name.startswith("devices-"):
            assert seen["norm"] > 10 * 1e-3
            assert seen["tensors"]["step: optimizer"] > 0
            assert (
                seen["tensors"].get("backward: gradient", 0) + seen["tensors"].get("backward: reduced", 0) > 0
            )
        if name.startswith("reference-"):
            assert seen["losses"][0] - seen["losses"][-1] > 0.1
        if name.startswith("merge-"):
            assert seen["moved"] > 1 > seen["error"] * 30
    assert fine.outcomes["zero3-offload-clip"]["seen"]["made_on_the_device"] >= 1


@pytest.mark.parametrize(
    ("target", "there", "absent"),
    [
        ("zero3-lora", "devices-zero3-lora", "devices-zero3-lora-offload"),
        ("zero3-lora", "trainer-zero3-lora", "trainer-zero2-lora"),
        ("zero3-lora-offload", "devices-zero3-lora-offload", "devices-zero3-lora"),
        ("zero3-lora-offload", "zero3-offload-clip", "reference-zero3-lora"),
        ("zero2-lora", "resume-zero2-lora", "resume-zero3-lora"),
        ("qlora", "resume-plain-lora", "resume-zero2-lora"),
        ("fsdp-lora", "merge-lora-bf16", "devices-plain-lora"),
    ],
)
def test_a_target_selects_what_applies_to_it(target: str, there: str, absent: str) -> None:
    from envcheck import probes
    from envcheck.commands import loading, selftest
    from envcheck.commands.selftest.selection import training_of
    from envcheck.selftest.declaration import contradicts

    known = loading.load_matrix(loading.vocabulary(probes.every_probe()), ())
    found = loading.find_target(target, known)
    assert found is not None
    chosen = {
        variant.name
        for claim in selftest.claims()
        for variant in claim.variants
        if not contradicts(variant, training_of(found), found.free)
    }
    assert there in chosen
    assert absent not in chosen


# --- sabotage is caught -----------------------------------------------------------------------------


def test_a_tensor_on_a_wrong_device_is_named_with_its_call(stack: str, tmp_path: Path) -> None:
    folder = sabotaged(
        tmp_path,
        "parameter_on_meta_after_forward",
        "gradient_on_meta_after_backward",
        "optimizer_state_on_meta_after_step",
        "shard_on_meta_after_step",
        "buffer_on_meta_after_save",
    )
    ran = selftest(stack, "device_consistency", path=(folder,))
    assert ran.code == 1
    parameter = r"base_model\.\S*embed_tokens\.weight"
    for variant, what, call in (
        ("devices-zero2-lora", rf"parameter {parameter}", "forward"),
        ("devices-zero3-lora", r"reduced gradient 0\.0", "backward"),
        ("devices-zero3-lora-offload", r"optimizer state 0\.exp_avg_sq", "step"),
        ("devices-zero3-full-offload", r"shard of parameter \S*embed_tokens\.weight", "step"),
        ("devices-zero3-lora-offload-param", r"buffer \S*inv_freq", "checkpoint save"),
    ):
        caught(ran, variant, rf"^{what} is on meta after {call}, expected cpu$", call)
    assert ran.outcomes["devices-plain-lora"]["result"] == "pass"


def test_no_clipping_half_a_load_and_a_wrong_merge_are_caught(stack: str, tmp_path: Path) -> None:
    folder = sabotaged(tmp_path, "clip_never_bites", "load_skips_optimizer", "merge_forgets_scaling")
    clipped = ("devices-plain-lora", "devices-zero2-lora", "devices-zero3-lora-offload")
    resumed = ("resume-plain-lora", "resume-zero2-lora", "resume-zero3-lora")
    merged = ("merge-lora-fp32", "merge-lora-bf16", "merge-dora-fp32", "merge-zero3-lora-bf16")
    ran = selftest(stack, *clipped, "zero3-offload-clip", *resumed, *merged, path=(folder,))
    for variant in clipped:
        norm = r"the gradient's norm is (\S+) before and \1 after, clipped at 0\.001"
        caught(ran, variant, rf"^clipping did not bite: {norm}")
    caught(ran, "zero3-offload-clip", r"^clipping at 0\.001 left a gradient of norm")
    for variant in resumed:
        caught(ran, variant, r"^the loss of step 3 is \S+ after resuming, \S+ without stopping$")
    for variant in merged:
        caught(ran, variant, r"^logits of the merged model: differs by \S+ of its largest value, allowed ")


def test_one_nan_in_a_gradient_and_a_missing_engine_are_caught(stack: str, tmp_path: Path) -> None:
    folder = sabotaged(tmp_path, "nan_in_one_gradient", "engine_none_in_accelerate")
    only = ("devices-zero3-lora", "reference-zero3-lora-fp32", "trainer-zero2-lora")
    ran = selftest(stack, *only, path=(folder,))
    caught(ran, "devices-zero3-lora", r"the gradient's norm is (nan|inf|-1)")
    caught(ran, "reference-zero3-lora-fp32", r"^the loss of step 1 is ")
    caught(ran, "trainer-zero2-lora", r"^AttributeError: 'NoneType' object has no attribute", "Trainer.train")


def test_another_rate_no_load_and_a_lost_group_are_caught(stack: str, tmp_path: Path) -> None:
    folder = sabotaged(
        tmp_path,
        "rate_doubled_by_deepspeed",
        "load_skips_adapter",
        "load_finds_nothing",
        "schedule_knows_a_group_more",
    )
    rates = ("reference-zero2-lora", "reference-zero3-lora-fp32", "reference-plain-lora")
    ran = selftest(
        stack, *rates, "resume-plain-lora", "resume-zero3-lora", "trainer-zero2-lora", path=(folder,)
    )
    caught(ran, "reference-zero2-lora", r"^the loss of step \d is \S+, the reference has \S+, allowed 0\.01$")
    caught(
        ran,
        "reference-zero3-lora-fp32",
        r"^the loss of step 1 is \S+, the reference has \S+, allowed 0\.0001$",
    )
    assert ran.outcomes["reference-plain-lora"]["result"] == "pass"
    caught(ran, "resume-plain-lora", r"lora_A\S*, after loading: differs by")
    caught(ran, "resume-zero3-lora", r"^load_checkpoint found nothing to load", "load")
    caught(
        ran,
        "trainer-zero2-lora",
        r"^ValueError: zip\(\) argument 2 is longer than argument 1$",
        "Trainer.train",
    )


def test_an_optimizer_that_does_not_step_is_caught(stack: str, tmp_path: Path) -> None:
    folder = sabotaged(tmp_path, "optimizer_does_not_step")
    ran = selftest(
        stack,
        "reference-plain-lora",
        "reference-zero3-lora",
        "resume-plain-lora",
        "trainer-zero2-lora",
        path=(folder,),
    )
    for variant in ("reference-plain-lora", "reference-zero3-lora"):
        caught(ran, variant, r"^the loss of step 1 is 4\.85\d+, the reference has 4\.7\d+, allowed 0\.01$")
    caught(ran, "resume-plain-lora", r"^two steps changed no parameter")
    caught(ran, "trainer-zero2-lora", r"^2 steps did not move \S*lora_A")


def test_an_engine_of_another_kind_is_not_taken_for_deepspeed(stack: str, tmp_path: Path) -> None:
    folder = sabotaged(tmp_path, "engine_of_another_kind", "trainer_forgets_deepspeed")
    ran = selftest(stack, "reference-zero3-lora", "trainer-zero2-lora", path=(folder,))
    caught(ran, "reference-zero3-lora", r"^deepspeed\.initialize gave a Wrapped, not a DeepSpeedEngine$")
    caught(ran, "trainer-zero2-lora", r"^the Trainer did not train under DeepSpeed: its engine is a ")


def test_a_variable_that_turns_deepspeed_off_is_caught(stack: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "1")
    ran = selftest(stack, "trainer-zero3-lora")
    engine = "its engine is a DistributedDataParallel"
    caught(
        ran, "trainer-zero3-lora", rf"^the Trainer did not train under DeepSpeed: {engine}", "Trainer.train"
    )


@pytest.mark.parametrize(("version", "result"), [("0.14.2", "fail"), ("0.14.3", "pass"), ("0.19.2", "pass")])
def test_the_offloaded_clip_fails_in_the_releases_that_mix_devices(
    stack: str, deepspeed: Callable[[str], Path], tmp_path: Path, version: str, result: str
) -> None:
    folder = sabotaged(tmp_path, "old_deepspeed_beside_new_torch")
    ran = selftest(stack, "offload_clip_devices", path=(folder, deepspeed(version)))
    outcome = ran.outcomes["zero3-offload-clip"]
    assert outcome["result"] == result, outcome["why"]
    if result == "fail":
        caught(ran, "zero3-offload-clip", r"cuda:0 \(pretended\) and cpu! .* in unscale_and_clip_grads")
        assert outcome["rule"] == "zero3-cpu-offload-grad-norm-device"
        assert "deepspeed >=0.14.4" in outcome["ways_out"]
