"""Configurations that the cells of a notebook write, and files whose sections say several things."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envcheck.core.errors import InputError
from tests.unit.training_config.test_programs import facts_of

PROGRAM = """
import argparse
import yaml
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--config")
with open(parser.parse_args().config) as file:
    config = yaml.safe_load(file)
model = get_peft_model(AutoModelForCausalLM.from_pretrained("gpt2"), LoraConfig(r=config["lora"]["rank"]))
Trainer(model=model, args=TrainingArguments("out")).train()
"""
TEXT = 'text = """\nlora:\n  rank: 16\n"""\n'
DUMPS = 'config = {"lora": {"rank": 16}}\n'


@pytest.mark.parametrize(
    ("cell", "rank"),
    [
        (TEXT + 'with open("c.yaml", "w") as file:\n    file.write(text)\n', 16),
        (TEXT + 'with open("project/c.yaml", "w") as file:\n    file.write(text)\n', 16),
        (TEXT + 'with open("other/c.yaml", "w") as file:\n    file.write(text)\n', None),
        (TEXT + 'with open("c.yaml", "w") as file:\n    file.write(text + rest)\n', None),
        (TEXT + 'with open("c.yaml", "w") as file:\n    file.write(text)\n    file.write(text)\n', None),
        ("import yaml\n" + DUMPS + 'with open("c.yaml", "w") as file:\n    yaml.dump(config, file)\n', 16),
    ],
)
def test_a_command_reads_what_a_cell_has_written(tmp_path: Path, cell: str, rank: int | None) -> None:
    cells = [cell, "!git clone https://example.org/project\n%cd project", "!python t.py --config c.yaml"]
    notebook = json.dumps({"cells": [{"cell_type": "code", "source": each} for each in cells]})
    found = facts_of(tmp_path, "n.ipynb", {"n.ipynb": notebook, "t.py": PROGRAM})
    assert (found["adapter"], found.get("lora_rank")) == ("lora", rank)


TRAINING = """
training:
  per_device_train_batch_size: 4
  learning_rate: 1.0e-4
  num_train_epochs: 1
  gradient_checkpointing: false
  bf16: true
"""


@pytest.mark.parametrize(
    ("section", "meant"),
    [
        (
            "qlora: {r: 8, lora_alpha: 16, load_in_4bit: true, bnb_4bit_quant_type: nf4}",
            {"quantization": "nf4", "adapter": "lora"},
        ),
        (
            "peft: {enabled: true, r: 8, lora_alpha: 16, use_qlora: false, bnb_4bit_quant_type: nf4}",
            {"quantization": "none", "adapter": "lora"},
        ),
        (
            "peft: {enabled: false, r: 8, lora_alpha: 16, load_in_4bit: true, bnb_4bit_quant_type: nf4}",
            {"quantization": "nf4", "adapter": "none"},
        ),
        ("lora: {r: 8, lora_alpha: 16}", {"quantization": None, "gradient_checkpointing": False}),
        (
            "lora: {r: 8, lora_alpha: 16, use_gradient_checkpointing: unsloth}",
            {"adapter": "lora", "gradient_checkpointing": None, "precision": "bf16"},
        ),
    ],
)
def test_a_section_on_the_adapter_may_say_more(
    tmp_path: Path, section: str, meant: dict[str, object]
) -> None:
    found = facts_of(tmp_path, "c.yaml", {"c.yaml": f"{section}\n{TRAINING}"})
    assert {key: found.get(key) for key in meant} == meant


def test_options_of_llamafactory_in_a_dictionary_size_its_adapter(tmp_path: Path) -> None:
    program = (
        "from llamafactory.train.tuner import run_exp\n"
        'run_exp({"stage": "sft", "do_train": True, "model_name_or_path": "gpt2", "finetuning_type": "lora",'
        ' "lora_rank": 32, "output_dir": "o", "dataset": "d"})\n'
    )
    assert facts_of(tmp_path, "t.py", {"t.py": program})["lora_rank"] == 32


def test_another_frameworks_classes_of_the_same_names_say_nothing(tmp_path: Path) -> None:
    program = (
        "from PACKAGE import LoraConfig, Trainer, load\n"
        'model = load("m")\n'
        "Trainer(model=model, lora=LoraConfig(r=16)).train()\n"
    )
    found = facts_of(tmp_path, "t.py", {"t.py": program.replace("PACKAGE", "peft")})
    assert found["lora_rank"] == 16
    with pytest.raises(InputError):
        facts_of(tmp_path, "t.py", {"t.py": program.replace("PACKAGE", "mlx_lm")})


def test_a_file_alone_does_not_say_how_its_program_loads_the_model(tmp_path: Path) -> None:
    text = f"lora: {{r: 8, lora_alpha: 16}}\n{TRAINING}"
    found = facts_of(tmp_path, "c.yaml", {"c.yaml": text})
    assert (found["adapter"], found.get("quantization")) == ("lora", None)
    told = facts_of(tmp_path, "c.yaml", {"c.yaml": f"model: {{load_in_4bit: false}}\n{text}"})
    assert told["quantization"] == "none"


@pytest.mark.parametrize(("estimator", "method"), [("grpo", "grpo"), ("gae", "ppo"), ("gpg", None)])
def test_estimators_of_verl_that_are_no_known_method(
    tmp_path: Path, estimator: str, method: str | None
) -> None:
    command = f"python3 -m verl.trainer.main_ppo algorithm.adv_estimator={estimator} trainer.nnodes=1\n"
    files = {"run.sh": command, "verl/trainer/config/ppo_trainer.yaml": "algorithm:\n  adv_estimator: gae\n"}
    assert facts_of(tmp_path, "run.sh", files).get("method") == method
