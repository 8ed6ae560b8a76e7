"""Models and files that a command line names in place of those in a file, and what is left open."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from envcheck.commands import loading, training_files
from envcheck.core.facts import Unknown
from tests.unit.training_config.test_programs import facts_of

RECIPE = "model_name_or_path: Qwen/Qwen3-8B\nuse_peft: true\nmax_prompt_length: 9\noutput_dir: o\n"


@pytest.mark.parametrize(
    ("option", "model_type"),
    [
        ("", "qwen3"),
        (" --model_name_or_path Qwen/Qwen2.5-7B", "qwen2"),
        (" --model_name_or_path somebody/unknown-model", None),
        (" --model_name_or_path $(newest)", None),
    ],
)
def test_the_model_of_the_command_line_is_trained(
    tmp_path: Path, option: str, model_type: str | None
) -> None:
    files = {"run.sh": f"trl grpo --config recipe.yaml{option}\n", "recipe.yaml": RECIPE}
    found = facts_of(tmp_path, "run.sh", files)
    assert found.get("model_type") == model_type
    assert found["adapter"] == "lora"  # the rest of the file counts


def test_a_checkout_of_verl_trains_the_model_of_the_command_line(tmp_path: Path) -> None:
    folder = "verl/trainer"
    hydra = '@hydra.main(config_path="config", config_name="ppo_trainer")\ndef main(config):\n    ...\n'
    files = {
        "run.sh": "python3 -m verl.trainer.main_ppo data.train_batch_size=8"
        " actor_rollout_ref.model.path=Qwen/Qwen3-8B algorithm.adv_estimator=grpo\n",
        f"{folder}/main_ppo.py": f"import hydra\n{hydra}",
        f"{folder}/config/ppo_trainer.yaml": "actor_rollout_ref:\n  model:\n    path: Qwen/Qwen2.5-7B\n",
    }
    assert facts_of(tmp_path, "run.sh", files)["model_type"] == "qwen3"


def test_a_step_before_a_copy_of_verl_is_no_training(tmp_path: Path) -> None:
    script = (
        "python3 -m ours.data.rl_processor --hf_data_repo a --local_dir b\n"
        "python3 -m ours.verl.trainer.main_ppo data.train_batch_size=8 algorithm.adv_estimator=gae"
        " actor_rollout_ref.model.path=Qwen/Qwen3-8B actor_rollout_ref.actor.strategy=fsdp\n"
    )
    step = "import helpers\nhelpers.finetuning_rows(open('a')).train_rows()\n"
    program = (
        "import hydra\nfrom verl.utils import run\n@hydra.main()\ndef main(config):\n    run()\nmain()\n"
    )
    files = {
        "run.sh": script,
        "ours/data/rl_processor.py": step,
        "ours/verl/trainer/main_ppo.py": program,
    }
    found = facts_of(tmp_path, "run.sh", files)
    assert (found["trainer"], found["method"], found["parallel"]) == ("verl", "ppo", "fsdp1")


@pytest.mark.parametrize("more", ["**json.load(open('more.json'))", ""])
def test_further_arguments_of_a_model_may_allow_its_own_code(tmp_path: Path, more: str) -> None:
    program = f"""
import json
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("gpt2", {more})
Trainer(model=model, args=TrainingArguments("o")).train()
"""
    (tmp_path / "train.py").write_text(program)
    with contextlib.chdir(tmp_path):
        read = training_files.configured(["train.py"], loading.knowledge().tables.get("argument", []), {})
    found = {fact.key: fact.reading for fact in read.facts}
    assert isinstance(found.get("train.trust_remote_code"), Unknown) is bool(more)
