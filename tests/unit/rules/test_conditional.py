"""Conditional findings: what versions are known to fail at before a training configuration is given."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from envcheck.commands import loading
from envcheck.core.facts import Kind
from envcheck.core.training_facts import KEYS
from envcheck.rules.derive import KEYS as DERIVED
from tests.support.running import envcheck

STACK = {
    "torch": "2.5.1",
    "transformers": "4.46.3",
    "deepspeed": "0.16.2",
    "peft": "0.13.2",
    "accelerate": "1.1.1",
}
FROZEN = "zero3-frozen-nonreentrant-checkpoint"
NO_SYNC = "deepspeed-no-sync-gradient-accumulation"


def report(tmp_path: Path, *more: str, **pkg: str) -> tuple[int, dict[str, Any], str]:
    versions = "".join(f'{name} = "{version}"\n' for name, version in {**STACK, **pkg}.items())
    facts = tmp_path / "facts.toml"
    facts.write_text(f'complete = ["pkg"]\npython = {{ version = "3.11.4" }}\n[pkg]\n{versions}')
    ran = envcheck("doctor", "--facts", str(facts), "--json", *more)
    text = envcheck("doctor", "--facts", str(facts), *more).out
    return ran.code, json.loads(ran.out), text


def conditional(tree: dict[str, Any]) -> dict[str, Any]:
    return {each["rule"]: each for each in tree["findings"] if each["verdict"] == "conditional"}


def test_versions_that_fail_in_some_trainings_are_named_without_an_exit_code(tmp_path: Path) -> None:
    code, tree, text = report(tmp_path)
    found = conditional(tree)
    assert code == 0
    assert {FROZEN, NO_SYNC} <= found.keys()
    frozen = found[FROZEN]
    assert (frozen["severity"], frozen["would_be"]) == ("none", "error")
    assert {each["key"] for each in frozen["because"]} >= {"pkg.torch", "pkg.deepspeed"}
    assert {"train.zero_stage", "train.use_reentrant"} <= {each["key"] for each in frozen["if"]["open"]}
    assert frozen["if"]["text"].startswith(
        "if you train with ZeRO-3, frozen parameters, gradient checkpointing"
    )
    assert text.startswith("No known problem so far; ")
    assert (
        "if you train with ZeRO-2 or ZeRO-3, at least 2 processes, at least 2 accumulation steps and transformers' Trainer"
        in text
    )
    assert f"[{NO_SYNC}]" in text


def test_other_versions_and_a_decided_training_leave_none(tmp_path: Path) -> None:
    _, cured, _ = report(tmp_path, deepspeed="0.19.8")
    assert FROZEN not in conditional(cured)
    code, given, _ = report(tmp_path, "--target", "zero3-lora", "--train", "use_reentrant=false")
    assert (code, FROZEN in conditional(given)) == (1, False)
    assert next(each for each in given["findings"] if each["rule"] == FROZEN)["severity"] == "error"


def test_a_likely_warning_comes_before_an_unlikely_error(tmp_path: Path) -> None:
    _, tree, text = report(tmp_path)
    order, rare = list(conditional(tree)), "onebit-optimizer-zero"
    assert conditional(tree)[rare]["would_be"] == "error"
    likely = "zero2-offload-accumulation-deepspeed-0152"
    assert conditional(tree)[likely]["would_be"] == "warning"
    assert order.index(FROZEN) < order.index(NO_SYNC) < order.index(likely) < order.index(rare)
    assert text.index(f"[{FROZEN}]") < text.index(f"[{NO_SYNC}]")


def test_a_policy_leaves_them_out(tmp_path: Path) -> None:
    report(tmp_path)
    ran = envcheck("gate", "--facts", str(tmp_path / "facts.toml"), "--skip", FROZEN, "--json", "--strict")
    assert ran.code == 0
    assert FROZEN not in conditional(json.loads(ran.out))


def test_of_one_severity_what_many_trainings_set_comes_first(tmp_path: Path) -> None:
    _, tree, text = report(tmp_path, torch="2.10.0", transformers="4.57.6", deepspeed="0.19.2")
    errors = [each["rule"] for each in conditional(tree).values() if each["would_be"] == "error"]
    likely = ("flash-attention-2-not-installed", FROZEN, "zero-adapter-torch210-transformers-lt51")
    rare = ("onebit-optimizer-zero", "zeropp-gradients-without-reduce-scatter")
    assert max(map(errors.index, likely)) < min(map(errors.index, rare))
    assert f"[{errors[0]}]" in text
    assert not any(f"[{rule}]" in text for rule in rare)


def test_only_what_another_release_or_package_avoids_is_listed_unless_asked(tmp_path: Path) -> None:
    current = {"torch": "2.13.0", "transformers": "5.23.0", "deepspeed": "0.19.8", "peft": "0.21.2"}
    of_settings_alone = "[trainer-fsdp-two-checkpointings]"
    _, tree, text = report(tmp_path, **current, accelerate="1.15.0")
    assert of_settings_alone[1:-1] in conditional(tree)
    assert of_settings_alone not in text
    assert "[flash-attention-2-not-installed]" in text
    _, _, every = report(tmp_path, "-v", **current, accelerate="1.15.0")
    assert of_settings_alone in every


def test_a_release_that_is_no_cure_does_not_make_a_failure_one_of_these_versions() -> None:
    rare = "[onebit-optimizer-zero]"  # DeepSpeed 0.19.7 has no such optimizers, so it is no way to run them
    asked = ("check", "torch==2.4.0", "deepspeed==0.14.4")
    text = envcheck(*asked).out
    assert text.startswith("Passed: no known problem so far; no training configuration was given\n")
    assert rare not in text
    assert rare in envcheck(*asked, "-v").out


def test_habits_are_shares_of_values_that_the_facts_have() -> None:
    habits = loading.knowledge().tables.habits
    declared = {**KEYS, **DERIVED}
    assert habits.keys() <= declared.keys()
    for key, shares in habits.items():
        assert sum(shares.values()) <= 1.02, key  # each share is rounded
        if declared[key].kind is Kind.WORD and declared[key].words:
            assert shares.keys() <= set(declared[key].words), key


DISPATCH = "transformers-dispatch-batches-accelerate1"


def test_what_any_trainer_fails_at_is_a_warning_before_a_configuration_is_given(tmp_path: Path) -> None:
    code, tree, text = report(tmp_path, transformers="4.39.3", accelerate="1.1.1", peft="0.10.0")
    found = {each["rule"]: each for each in tree["findings"]}
    assert code == 0
    assert (found[DISPATCH]["verdict"], found[DISPATCH]["severity"]) == ("broken", "warning")
    assert found[DISPATCH]["fix"]
    assert DISPATCH not in conditional(tree)
    assert "atlas:transformers:accelerate:Trainer" not in found, "the same packages, said by a rule"
    assert f"[{DISPATCH}]" in text.split("Known to fail here")[0]


def test_it_is_an_error_once_the_trainer_is_known_and_gone_with_the_next_release(tmp_path: Path) -> None:
    given = ("--target", "zero3-lora")
    code, told, _ = report(tmp_path, *given, transformers="4.39.3", accelerate="1.1.1", peft="0.10.0")
    severity = {each["rule"]: each["severity"] for each in told["findings"]}
    assert (code, severity[DISPATCH]) == (1, "error")
    _, cured, _ = report(tmp_path, transformers="4.40.2", accelerate="1.1.1", peft="0.10.0")
    assert DISPATCH not in {each["rule"] for each in cured["findings"]}
