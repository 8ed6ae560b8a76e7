"""Programs that freeze a model which they do not train, or a part of the one that they train."""

from __future__ import annotations

from pathlib import Path

import pytest

from envcheck.commands import loading
from envcheck.commands.training_files import configured

SHARED = loading.source_tree()["tables"]["argument"]
HEAD = """from torch.optim import AdamW
from transformers import AutoModel, AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("m")
"""
FROZEN = "helper.requires_grad_(False)\n"
LOOP = "for parameter in helper.parameters():\n    parameter.requires_grad = False\n"
TRAINER = "Trainer(model=model, args=TrainingArguments(output_dir='o', bf16=True)).train()\n"
OWN_LOOP = "optimizer = AdamW(model.parameters())\nloss = model(1).loss\nloss.backward()\noptimizer.step()\n"


def frozen(folder: Path, program: str) -> object:
    """Return whether a program trains with frozen parameters, or None if that is not known."""
    (folder / "train.py").write_text(program)
    found = configured([str(folder / "train.py")], SHARED, {})
    return next((fact.value for fact in found.facts if fact.key == "train.frozen_params"), None)


@pytest.mark.parametrize("freeze", [FROZEN, LOOP])
@pytest.mark.parametrize("train", [TRAINER, OWN_LOOP])
def test_another_model_that_is_frozen_says_nothing(tmp_path: Path, freeze: str, train: str) -> None:
    load = "helper = AutoModel.from_pretrained('h').to('cuda')\nhelper = helper.eval()\n"
    assert frozen(tmp_path, f"{HEAD}{load}{freeze}{train}") is not True


@pytest.mark.parametrize(
    "load",
    [
        "helper = model.get_encoder()\n",
        "helper = model\n",
        "helper = AutoModel.from_pretrained('h')\nmodel.encoder = helper\n",
        "helper = AutoModel.from_pretrained('h')\nmodel = Both(helper, model)\n",
    ],
)
def test_a_part_that_is_frozen_counts(tmp_path: Path, load: str) -> None:
    assert frozen(tmp_path, f"from both import Both\n{HEAD}{load}{FROZEN}{TRAINER}") is True
