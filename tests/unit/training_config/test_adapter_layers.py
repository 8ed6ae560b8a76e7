"""LoRA that a program puts into a model by classes of its project, or by those of libraries other than PEFT."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.training_config.test_programs import facts_of

PROGRAM = """
import argparse
from accelerate import Accelerator
from torch import nn
from transformers import AutoModelForCausalLM
from layers import {imported}

parser = argparse.ArgumentParser()
parser.add_argument("--use_lora", action="store_true")
parser.add_argument("--blocks")
args = parser.parse_args()
accelerator = Accelerator()
model = AutoModelForCausalLM.from_pretrained("gpt2")
{work}
model = accelerator.prepare(model)
accelerator.backward(model(**batch).loss)
"""
LAYERS = """
from torch import nn

class LoRALinear(nn.Module):
    def __init__(self, linear, rank):
        super().__init__()
        self.linear = linear
        self.down = nn.Linear(linear.in_features, rank, bias=False)
        self.up = nn.Linear(rank, linear.out_features, bias=False)

class LoraSettings:
    rank = 8

def put_into(model, rank):
    for module in model.modules():
        for name in ("q_proj", "v_proj"):
            if hasattr(module, name) and isinstance(getattr(module, name), nn.Linear):
                setattr(module, name, LoRALinear(getattr(module, name), rank))
"""
BY_NAME = """
for name, module in model.named_modules():
    if name.startswith('h.') and name.rsplit('.')[-1] in args.blocks:
        model.replace(name, LoRALinear(module, 8))
"""
FREEZE = "model.requires_grad_(False)\n"


def of_program(folder: Path, work: str, imported: str = "put_into", options: str = "") -> dict[str, object]:
    files = {
        "run.sh": f"accelerate launch train.py {options}\n",
        "train.py": PROGRAM.format(imported=imported, work=work),
        "layers.py": LAYERS,
    }
    return facts_of(folder, "run.sh", files)


@pytest.mark.parametrize(
    ("work", "imported"),
    [
        (f"{FREEZE}put_into(model, 8)", "put_into"),
        (f"{FREEZE}model.lm_head = LoRALinear(model.lm_head, rank=4)", "LoRALinear"),
        (
            FREEZE + BY_NAME,
            "LoRALinear",
        ),
        (f"{FREEZE}if args.use_lora:\n    put_into(model, 8)", "put_into"),
    ],
)
def test_layers_of_lora_that_a_project_defines_are_an_adapter(
    tmp_path: Path, work: str, imported: str
) -> None:
    facts = of_program(tmp_path, work, imported, "--use_lora")

    assert (facts["adapter"], facts["frozen_params"]) == ("lora", True)


def test_a_model_that_trains_as_a_whole_may_be_built_of_such_layers(tmp_path: Path) -> None:
    assert "adapter" not in of_program(tmp_path, "put_into(model, 8)")


@pytest.mark.parametrize(
    ("work", "imported"),
    [
        ("if args.use_lora:\n    put_into(model, 8)", "put_into"),
        ("settings = LoraSettings()", "LoraSettings"),
    ],
)
def test_without_layers_of_lora_there_is_no_adapter(tmp_path: Path, work: str, imported: str) -> None:
    assert of_program(tmp_path, work, imported)["adapter"] == "none"


def test_layers_under_a_condition_that_is_not_known_leave_the_adapter_open(tmp_path: Path) -> None:
    work = f"{FREEZE}if load_settings().rank > 0:\n    put_into(model, 8)"

    assert "adapter" not in of_program(tmp_path, work)


def test_layers_of_diffusers_by_the_type_of_the_module_are_an_adapter(tmp_path: Path) -> None:
    work = """
from diffusers.models.lora import LoRAConv2dLayer, LoRALinearLayer
model.requires_grad_(False)
for module in model.modules():
    if isinstance(module, nn.Conv2d):
        module.set_lora_layer(LoRAConv2dLayer(module.in_channels, module.out_channels))
    elif isinstance(module, nn.Linear):
        module.set_lora_layer(LoRALinearLayer(module.in_features, module.out_features))
"""
    assert of_program(tmp_path, work)["adapter"] == "lora"
    other = work.replace("isinstance(module, nn", "is_chosen(module, nn")
    assert "adapter" not in of_program(tmp_path, other)


@pytest.mark.parametrize(
    ("work", "rank"),
    [
        (f"{FREEZE}put_into(model, 8)", 8),
        (f"{FREEZE}put_into(model, rank=16)", 16),
        (f"{FREEZE}put_into(model, int(args.blocks) + 1)", None),
        (f"{FREEZE}put_into(model, 8)\nput_into(model, 16)", None),
    ],
)
def test_the_rank_of_a_projects_own_layer_is_what_its_class_is_given(
    tmp_path: Path, work: str, rank: int | None
) -> None:
    found = of_program(tmp_path, work)
    assert (found["adapter"], found.get("lora_rank")) == ("lora", rank)
