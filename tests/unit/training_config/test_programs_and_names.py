"""The code of a program decides what names of its arguments only suggest."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.training_config.test_programs import facts_of

LOAD = "from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments\n"
KBIT = (
    LOAD
    + """from peft import LoraConfig, get_peft_model, prepare_model_for_kbit_training
model = AutoModelForCausalLM.from_pretrained("gpt2"{quantised})
model = get_peft_model(prepare_model_for_kbit_training(model), LoraConfig(r=8))
Trainer(model, TrainingArguments("o", fp16=True)).train()
"""
)


@pytest.mark.parametrize(
    ("quantised", "checkpointing"),
    [
        ("", False),
        (", quantization_config=BitsAndBytesConfig(load_in_8bit=True)", True),
        (", load_in_8bit=True", True),
        (', quantization_config={"load_in_4bit": True}', True),
    ],
)
def test_preparing_a_model_checkpoints_only_if_it_is_quantised(
    tmp_path: Path, quantised: str, checkpointing: bool
) -> None:
    found = facts_of(tmp_path, "train.py", {"train.py": KBIT.format(quantised=quantised)})
    assert found["gradient_checkpointing"] is checkpointing


@pytest.mark.parametrize(
    ("given", "quantization"),
    [
        ('quantization_config={"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"}', "nf4"),
        ('quantization_config={"load_in_8bit": True}', "int8"),
        ("load_in_4bit=True", "fp4"),
    ],
)
def test_quantisation_without_an_object_is_read(tmp_path: Path, given: str, quantization: str) -> None:
    text = LOAD + (
        f'model = AutoModelForCausalLM.from_pretrained("gpt2", {given})\n'
        'Trainer(model, TrainingArguments("o")).train()\n'
    )
    assert facts_of(tmp_path, "train.py", {"train.py": text})["quantization"] == quantization


DIFFUSION = """
import argparse
from accelerate import Accelerator
from diffusers import UNet2DConditionModel

parser = argparse.ArgumentParser()
parser.add_argument("--checkpoint", action="store_true")
args = parser.parse_args()
accelerator = Accelerator(mixed_precision="fp16")
unet = UNet2DConditionModel.from_pretrained("sd")
if args.checkpoint:
    unet.enable_gradient_checkpointing()
unet = accelerator.prepare(unet)
accelerator.backward(unet(1).loss)
"""


@pytest.mark.parametrize(("argument", "expected"), [("--checkpoint", True), ("", False)])
def test_models_of_diffusers_checkpoint_too(tmp_path: Path, argument: str, expected: bool) -> None:
    files = {"train.py": DIFFUSION, "run.sh": f"accelerate launch train.py {argument}\n"}
    assert facts_of(tmp_path, "run.sh", files)["gradient_checkpointing"] is expected


OWN_TRAINER = """
import argparse
from accelerate import Accelerator
from transformers import AutoModelForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--vision_tower")
parser.add_argument("--mm_vision_select_layer")
parser.add_argument("--lora_enable")
parser.add_argument("--bf16")
args = parser.parse_args()
accelerator = Accelerator()
model = accelerator.prepare(AutoModelForCausalLM.from_pretrained("llava"))
accelerator.backward(model(1).loss)
"""


def test_the_trainer_that_the_code_uses_counts(tmp_path: Path) -> None:
    arguments = "--vision_tower clip --mm_vision_select_layer -2 --lora_enable False --bf16 True"
    arguments += " --per_device_train_batch_size 1 --learning_rate 1e-5 --save_steps 5 --logging_steps 1"
    files = {"train.py": OWN_TRAINER, "run.sh": f"accelerate launch train.py {arguments}\n"}
    assert facts_of(tmp_path, "run.sh", files)["trainer"] == "accelerate"


def test_a_program_that_does_not_parse_still_tells_what_it_imports(tmp_path: Path) -> None:
    arguments = (
        "--use_4bit_quantization --use_nested_quant --lora_r 64 --bf16 --per_device_train_batch_size 2"
    )
    broken = "from transformers import Trainer\nimport peft\nx = 1 \\ 2\n"
    files = {"train.py": broken, "run.sh": f"python train.py {arguments} --num_train_epochs 1\n"}
    assert facts_of(tmp_path, "run.sh", files).get("trainer") != "trl"


UNKNOWN_ARGUMENTS = """
import json, sys
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

settings = json.load(open(sys.argv[1] + "/settings.json"))
model = AutoModelForCausalLM.from_pretrained("gpt2")
SFTTrainer(model, args=SFTConfig(**settings)).train()
"""
WITHOUT_MIXED_PRECISION = """compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
mixed_precision: 'no'
num_processes: 2
"""


def test_no_mixed_precision_of_accelerate_gives_way_to_a_trainers_arguments(tmp_path: Path) -> None:
    files = {
        "train.py": UNKNOWN_ARGUMENTS,
        "acc.yaml": WITHOUT_MIXED_PRECISION,
        "run.sh": "accelerate launch --config_file acc.yaml train.py $1\n",
    }
    assert "precision" not in facts_of(tmp_path, "run.sh", files)
    assert facts_of(tmp_path, "acc.yaml", files)["precision"] == "fp32"


OWN_LOOP = """
import torch
from accelerate import Accelerator
accelerator = Accelerator()
model = accelerator.prepare(torch.nn.Linear(1, 1))
accelerator.backward(model(torch.ones(1)))
"""


@pytest.mark.parametrize(
    ("program", "precision"),
    [(OWN_LOOP, "fp32"), (f"{OWN_LOOP}import runners\nrunners.start()\n", None), (None, None)],
    ids=["all of its code is here", "a module is missing", "the program is missing"],
)
def test_no_mixed_precision_is_float32_only_if_the_whole_program_could_be_read(
    tmp_path: Path, program: str | None, precision: str | None
) -> None:
    files = {
        "acc.yaml": WITHOUT_MIXED_PRECISION,
        "run.sh": "accelerate launch --config_file acc.yaml train.py --cfg-path a.b\n",
        **({"train.py": program} if program else {}),
    }
    assert facts_of(tmp_path, "run.sh", files).get("precision") == precision


SECTIONS = """
method: ia3
model:
  name: llama
  load_in_4bit: {four}
  bnb_4bit_quant_type: nf4
  attn_implementation: sdpa
peft:
  method: ia3
  target_modules: [k_proj]
  feedforward_modules: [down_proj]
training:
  num_train_epochs: 3
  per_device_train_batch_size: 1
  gradient_accumulation_steps: 4
  learning_rate: 3.0e-3
  warmup_ratio: 0.03
  fp16: true
"""


@pytest.mark.parametrize(("four", "quantization"), [("true", "nf4"), ("false", "none")])
def test_sections_say_how_the_model_is_loaded(tmp_path: Path, four: str, quantization: str) -> None:
    found = facts_of(tmp_path, "c.yaml", {"c.yaml": SECTIONS.format(four=four)})
    assert (found["quantization"], found["attention"], found["adapter"]) == (quantization, "sdpa", "ia3")


OWN_LOOP = """
import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained("gpt2")
optimizer = torch.optim.AdamW(model.parameters())
for batch in range(3):
    loss = model(batch).loss
    loss.backward()
    optimizer.step()
"""


def test_a_file_with_a_loop_of_its_own_trains_all_of_the_model(tmp_path: Path) -> None:
    found = facts_of(tmp_path, "train.py", {"train.py": OWN_LOOP})
    assert (found["trainer"], found["adapter"], found["frozen_params"]) == ("custom", "none", False)
    freezes = OWN_LOOP.replace("optimizer =", "freeze_layers(model)\noptimizer =")
    assert "frozen_params" not in facts_of(tmp_path, "train.py", {"train.py": freezes})


LOADED = """
import imp
import os

base = imp.load_source("base", os.path.join(os.path.dirname(__file__), "base.py"))

def full():
    config = base.get_config()
    config.use_lora = False
    return config

def get_config(name):
    return globals()[name]()
"""
BASE = """
import ml_collections

def get_config():
    config = ml_collections.ConfigDict()
    config.use_lora = True
    return config
"""
READS = """
from absl import app, flags
from ml_collections import config_flags
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

FLAGS = flags.FLAGS
config_flags.DEFINE_config_file("config", "config/base.py")

def main(_):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    if FLAGS.config.use_lora:
        model = get_peft_model(model, LoraConfig(r=8))
    Trainer(model, TrainingArguments("o")).train()

app.run(main)
"""


@pytest.mark.parametrize(("argument", "adapter"), [("", "lora"), ("--config=config/own.py:full", "none")])
def test_a_configuration_that_loads_another_one(tmp_path: Path, argument: str, adapter: str) -> None:
    files = {
        "train.py": READS,
        "config/base.py": BASE,
        "config/own.py": LOADED,
        "run.sh": f"python train.py {argument}\n",
    }
    assert facts_of(tmp_path, "run.sh", files)["adapter"] == adapter


OWN_LORA = """
import torch
from transformers import AutoModelForCausalLM

class LoRALinear(torch.nn.Module):
    pass

model = AutoModelForCausalLM.from_pretrained("gpt2", torch_dtype=torch.bfloat16)
model.layer = LoRALinear()
loss = model(1).loss
loss.backward()
"""


def test_what_a_loop_names_is_not_taken_to_be_absent(tmp_path: Path) -> None:
    found = facts_of(tmp_path, "train.py", {"train.py": OWN_LORA})
    assert "adapter" not in found
    assert found["precision"] == "bf16"  # the type that the model is loaded in
    plain = facts_of(tmp_path, "train.py", {"train.py": OWN_LOOP})
    assert (plain["precision"], plain["gradient_checkpointing"]) == ("fp32", False)


@pytest.mark.parametrize(("four", "quantization"), [("true", "nf4"), ("false", "none")])
def test_the_type_of_a_quantisation_that_is_off_says_nothing(
    tmp_path: Path, four: str, quantization: str
) -> None:
    text = (
        "model_name_or_path: gpt2\nuse_peft: false\nlora_task_type: CAUSAL_LM\nload_in_8bit: false\n"
        f"load_in_4bit: {four}\nbnb_4bit_quant_type: nf4\nuse_bnb_nested_quant: false\n"
    )
    assert facts_of(tmp_path, "c.yaml", {"c.yaml": text})["quantization"] == quantization


def test_a_switch_of_a_section_turns_its_quantisation_off(tmp_path: Path) -> None:
    text = (
        "training:\n  per_device_train_batch_size: 1\n  learning_rate: 1e-5\n  num_train_epochs: 1\n"
        "bnb_cfgs:\n  use_bnb: false\n  load_in_4bit: true\n  bnb_4bit_quant_type: nf4\n"
    )
    assert facts_of(tmp_path, "c.yaml", {"c.yaml": text})["quantization"] == "none"


@pytest.mark.parametrize(("argument", "precision"), [("--bf16 False", "bf16"), ("--fp16 True", "fp16")])
def test_a_precision_that_is_off_does_not_undo_that_of_the_launcher(
    tmp_path: Path, argument: str, precision: str
) -> None:
    arguments = "--per_device_train_batch_size 1 --learning_rate 1e-5 --save_steps 5 --num_train_epochs 1"
    files = {
        "acc.yaml": WITHOUT_MIXED_PRECISION.replace("'no'", "bf16"),
        "run.sh": f"accelerate launch --config_file acc.yaml train.py {arguments} {argument}\n",
    }
    assert facts_of(tmp_path, "run.sh", files)["precision"] == precision
