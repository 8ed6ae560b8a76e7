"""Configurations written in Python, lists on a command line, and tables that decorators fill."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.training_config.test_programs import facts_of

XTUNER = """
import torch
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from xtuner.model import SupervisedFinetune

path = "internlm/internlm2-chat-7b"
tokenizer = dict(type=AutoTokenizer.from_pretrained, pretrained_model_name_or_path=path)
model = dict(
    type=SupervisedFinetune,
    llm=dict(
        type=AutoModelForCausalLM.from_pretrained,
        pretrained_model_name_or_path=path,
        quantization_config=dict(type=BitsAndBytesConfig, load_in_4bit=True, bnb_4bit_quant_type="nf4"),
    ),
    lora=dict(type=LoraConfig, r=64),
)
"""
WRITTEN = """batch_size = 1
model = dict(
    llm=dict(
        pretrained_model_name_or_path='internlm/internlm2-chat-7b',
        type='transformers.AutoModelForCausalLM.from_pretrained'),
    type='xtuner.model.SupervisedFinetune',
    use_activation_checkpointing=False)
"""


def test_calls_that_a_configuration_describes_are_read(tmp_path: Path) -> None:
    found = facts_of(tmp_path, "config.py", {"config.py": XTUNER})
    assert (found["adapter"], found["lora_rank"], found["quantization"]) == ("lora", 64, "nf4")
    assert found["gradient_checkpointing"] is True


def test_a_configuration_that_mmengine_wrote_needs_no_imports(tmp_path: Path) -> None:
    found = facts_of(tmp_path, "config.py", {"config.py": WRITTEN})
    assert (found["adapter"], found["quantization"], found["frozen_params"]) == ("none", "none", False)
    assert found["gradient_checkpointing"] is False


def test_the_configuration_that_xtuner_is_started_with_is_read(tmp_path: Path) -> None:
    launch = "NPROC_PER_NODE=4 xtuner train config.py --deepspeed deepspeed_zero2_offload\n"
    found = facts_of(tmp_path, "run.sh", {"run.sh": launch, "config.py": XTUNER})
    assert (found["trainer"], found["adapter"], found["zero_stage"]) == ("custom", "lora", 2)
    assert (found["parallel"], found["offload_optimizer"]) == ("deepspeed", "cpu")


LOOP = """
import torch
from absl import app, flags
from accelerate import Accelerator
from ml_collections import config_flags
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

FLAGS = flags.FLAGS
flags.DEFINE_bool("checkpointing", False, "recompute activations")
config_flags.DEFINE_config_file("config", "configs/base.py", "the configuration")

def main(_):
    config = FLAGS.config
    accelerator = Accelerator(mixed_precision=config.mixed_precision)
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    if config.adapter.on:
        model = get_peft_model(model, LoraConfig(r=8))
    if FLAGS.checkpointing:
        model.gradient_checkpointing_enable()
    model = accelerator.prepare(model)
    accelerator.backward(model(1).loss)

app.run(main)
"""
BASE = """
import ml_collections

def base():
    config = ml_collections.ConfigDict()
    config.mixed_precision = "fp16"
    config.adapter = adapter = ml_collections.ConfigDict()
    adapter.on = True
    return config

def full():
    config = base()
    config.adapter.on = False
    config.mixed_precision = "bf16"
    return config

def get_config(name="base"):
    return globals()[name]()
"""


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", ("lora", "fp16", False)),
        ("--config configs/base.py:full --checkpointing", ("none", "bf16", True)),
        ("--config.adapter.on=False --config.mixed_precision=no", ("none", "fp32", False)),
    ],
)
def test_a_file_of_ml_collections_decides_the_values(
    tmp_path: Path, arguments: str, expected: tuple[str, str, bool]
) -> None:
    files = {
        "train.py": LOOP,
        "configs/base.py": BASE,
        "run.sh": f"accelerate launch --num_processes 1 train.py {arguments}\n",
    }
    found = facts_of(tmp_path, "run.sh", files)
    assert (found["adapter"], found["precision"], found["gradient_checkpointing"]) == expected


OF_MMENGINE = """
import sys
from mmengine.config import Config
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from peft import LoraConfig, get_peft_model

cfg = Config.fromfile("conf/a.py")
model = AutoModelForCausalLM.from_pretrained(cfg.model)
if cfg.use_lora:
    model = get_peft_model(model, LoraConfig(r=cfg.rank))
Trainer(model, TrainingArguments("o", bf16=cfg.bf16)).train()
"""


@pytest.mark.parametrize(("first", "adapter"), [("", "lora"), ("_base_ = ['b.py']\n", None)])
def test_a_python_file_that_the_program_reads_as_a_configuration(
    tmp_path: Path, first: str, adapter: str | None
) -> None:
    config = f"{first}import os\nmodel = 'gpt2'\nrank = 4\nbf16 = True\n" + (
        "" if first else "use_lora = True\n"
    )
    found = facts_of(tmp_path, "train.py", {"train.py": OF_MMENGINE, "conf/a.py": config})
    assert found.get("adapter") == adapter


REGISTRY = """
from peft import LoraConfig, get_peft_model

MODELS = {}

def register(name):
    def wrap(function):
        MODELS[name] = function
        return function
    return wrap

@register("full")
def full(model):
    return model

@register("lora")
def with_lora(model):
    return get_peft_model(model, LoraConfig(r=8))
"""
USES_REGISTRY = """
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from models import MODELS

parser = argparse.ArgumentParser()
parser.add_argument("--method", default="lora")
args = parser.parse_args()
model = MODELS[args.method](AutoModelForCausalLM.from_pretrained("gpt2"))
Trainer(model, TrainingArguments("o")).train()
"""


@pytest.mark.parametrize(("method", "adapter"), [("full", "none"), ("lora", "lora")])
def test_a_table_that_decorators_fill_is_known(tmp_path: Path, method: str, adapter: str) -> None:
    files = {
        "train.py": USES_REGISTRY,
        "models.py": REGISTRY,
        "run.sh": f"python train.py --method {method}\n",
    }
    assert facts_of(tmp_path, "run.sh", files)["adapter"] == adapter


def test_all_words_of_a_list_are_read(tmp_path: Path) -> None:
    launch = (
        "torchrun --nproc_per_node 2 train.py --report_to wandb tensorboard --per_device_train_batch_size 4\n"
    )
    found = facts_of(tmp_path, "run.sh", {"run.sh": launch})
    assert (found["report_to"], found["micro_batch_size"]) == (("wandb", "tensorboard"), 4)
    assert facts_of(tmp_path, "--report_to wandb mlflow --bf16 true", {})["report_to"] == ("wandb", "mlflow")


def test_a_list_with_a_word_that_only_the_shell_knows_is_unknown(tmp_path: Path) -> None:
    launch = "torchrun train.py --report_to wandb $1 --bf16\n"
    assert "report_to" not in facts_of(tmp_path, "run.sh", {"run.sh": launch})


TAKES_A_LIST = """
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
from peft import LoraConfig, get_peft_model

parser = argparse.ArgumentParser()
parser.add_argument("--parts", nargs="+", default=["vision"])
parser.add_argument("--out", default="o")
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2")
if "lora" in args.parts:
    model = get_peft_model(model, LoraConfig(r=8))
Trainer(model, TrainingArguments(args.out)).train()
"""


@pytest.mark.parametrize(
    ("arguments", "adapter"), [("--parts vision lora --out x", "lora"), ("--parts vision", "none")]
)
def test_a_program_gets_all_values_of_its_list(tmp_path: Path, arguments: str, adapter: str) -> None:
    files = {"train.py": TAKES_A_LIST, "run.sh": f"python train.py {arguments}\n"}
    assert facts_of(tmp_path, "run.sh", files)["adapter"] == adapter


def test_the_newer_command_line_of_llamafactory_trains(tmp_path: Path) -> None:
    config = "model: Qwen/Qwen3-0.6B\npeft_config:\n  name: lora\n  r: 8\ntrain_dataset: d.yaml\nbf16: true\n"
    files = {"run.sh": "USE_V1=1 llamafactory-cli sft v.yaml\n", "v.yaml": config}
    found = facts_of(tmp_path, "run.sh", files)
    assert (found["trainer"], found["adapter"]) == ("llamafactory", "lora")


def test_a_configuration_outside_the_project_is_not_opened(tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("model = 'gpt2'\nrank = 4\nbf16 = True\nuse_lora = True\n")
    program = OF_MMENGINE.replace("conf/a.py", str(tmp_path / "outside.py"))
    folder = tmp_path / "project"
    folder.mkdir()
    assert "adapter" not in facts_of(folder, "train.py", {"train.py": program})
