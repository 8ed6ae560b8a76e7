"""Arguments of a trainer that the program itself changes after they were made, and what loads the model."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.training_config.test_programs import facts_of

LOADED = 'model = AutoModelForCausalLM.from_pretrained("gpt2")\n'
TRAINED = "Trainer(model=model, args=args).train()\n"
MADE = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
args = TrainingArguments("out", per_device_train_batch_size=2, gradient_checkpointing=False, bf16=True)
"""
PARSED = """
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
"""
OWN_CLASS = """
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
@dataclass
class Options(TrainingArguments):
    optim: str = "adamw_torch"
(args,) = HfArgumentParser(Options).parse_args_into_dataclasses()
"""
SET = """
args.gradient_checkpointing = True
args.per_device_train_batch_size = 8
args.gradient_checkpointing_kwargs = {"use_reentrant": False}
"""
LINE = "python train.py --output_dir o --bf16 true --gradient_checkpointing false --per_device_train_batch_size 2\n"


def of_program(folder: Path, program: str, line: str = LINE) -> dict[str, object]:
    line = line if "HfArgumentParser" in program else "python train.py\n"
    return facts_of(folder, "run.sh", {"run.sh": line, "train.py": program})


@pytest.mark.parametrize("made", [MADE, PARSED, OWN_CLASS])
def test_attributes_that_are_set_later_count(tmp_path: Path, made: str) -> None:
    found = of_program(tmp_path, made + SET + LOADED + TRAINED)
    assert found["gradient_checkpointing"] is True
    assert found["micro_batch_size"] == 8
    assert found["use_reentrant"] is False
    assert found["precision"] == "bf16"  # nothing sets it again


@pytest.mark.parametrize("made", [MADE, PARSED, OWN_CLASS])
def test_what_is_not_set_later_stays_as_it_was_made(tmp_path: Path, made: str) -> None:
    found = of_program(tmp_path, made + LOADED + TRAINED)
    assert (found["gradient_checkpointing"], found["micro_batch_size"]) == (False, 2)


@pytest.mark.parametrize("made", [MADE, PARSED])
def test_what_is_set_under_a_condition_is_not_known(tmp_path: Path, made: str) -> None:
    condition = "import torch\nif torch.cuda.device_count() > 1:\n    args.gradient_checkpointing = True\n"
    found = of_program(tmp_path, made + condition + LOADED + TRAINED)
    assert found.get("gradient_checkpointing") is None
    assert found["micro_batch_size"] == 2


def test_a_condition_leaves_an_option_open_in_a_program_that_is_read_in_part(tmp_path: Path) -> None:
    unread = "import elsewhere\nelsewhere.prepare(args)\nfor each in elsewhere.steps():\n    each()\n"
    condition = "if elsewhere.is_small():\n    args.bf16 = False\n"
    found = of_program(tmp_path, PARSED + unread + condition + LOADED + TRAINED)
    assert "precision" not in found
    found = of_program(tmp_path, PARSED + unread + LOADED + TRAINED)
    assert found["precision"] == "bf16"


ATTENTION = """
from dataclasses import dataclass
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
@dataclass
class Options(TrainingArguments):
    disable_flash_attn2: bool = False
(args,) = HfArgumentParser(Options).parse_args_into_dataclasses()
chosen = "{other}" if args.disable_flash_attn2 else "flash_attention_2"
model = AutoModelForCausalLM.from_pretrained("gpt2", _attn_implementation=chosen)
"""


@pytest.mark.parametrize("other", ["eager", "sdpa"])
def test_the_attention_is_what_the_model_is_loaded_with(tmp_path: Path, other: str) -> None:
    program = ATTENTION.replace("{other}", other) + TRAINED
    line = LINE.replace("--output_dir", "--disable_flash_attn2 True --output_dir")
    assert of_program(tmp_path, program, line)["attention"] == other


def test_without_the_programs_code_an_option_names_the_attention(tmp_path: Path) -> None:
    line = LINE.replace("--output_dir", "--disable_flash_attn2 True --output_dir")
    assert facts_of(tmp_path, "run.sh", {"run.sh": line})["attention"] == "sdpa"
