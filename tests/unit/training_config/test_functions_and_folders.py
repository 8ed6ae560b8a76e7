"""Functions of a script whose output is read, folders of other machines, and beginnings of options."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.launches import known_facts as facts

TRAIN = "torchrun --nproc_per_node 4 train.py --output_dir out"

PRINTED = """arguments() {{
    local epochs=$1
{body}
}}
run() {{
    local given
    given=$(arguments 3)
    {train} ${{given}}
}}
run
"""


@pytest.mark.parametrize(
    ("body", "precision", "steps"),
    [
        ('echo "\n--bf16 true \\\n--save_steps 7"', "bf16", 7),
        ('printf "%s\\n" "--bf16 true --save_steps 7"', "bf16", 7),
        ("cat <<EOF\n--bf16 true\n--save_steps 7\nEOF", "bf16", 7),
        ('echo "--bf16 true"\necho "made" >&2\necho "--save_steps 7"', "bf16", 7),
        ('( echo "--bf16 true"; mkdir -p out; echo "--save_steps 7" )', "bf16", 7),
        ('for a in "--bf16 true" "--save_steps 7"; do echo $a; done', "bf16", 7),
        # What cannot be decided or read is not known; what was printed before it is.
        ('echo "--bf16 true"\nif [ -n "$(nvidia-smi)" ]; then echo "--save_steps 7"; fi', "bf16", None),
        ('echo "--bf16 true --save_steps 7" | tr 7 8', None, None),
        ('echo "--bf16 true --save_steps 7"\npython more.py', None, None),
        ('while read -r line; do echo "--bf16 true"; done < names', None, None),
    ],
)
def test_what_a_function_prints_is_read(
    tmp_path: Path, body: str, precision: str | None, steps: int | None
) -> None:
    script = PRINTED.format(body=body, train=TRAIN)
    found = facts(tmp_path, {"run.sh": script})
    assert (found.get("precision"), found.get("save_steps")) == (precision, steps)


def test_what_a_function_sets_for_its_output_stays_in_its_shell(tmp_path: Path) -> None:
    script = 'STEPS=7\ngiven() { STEPS=9; echo "--bf16 true"; exit 1; }\n'
    found = facts(tmp_path, {"run.sh": f"{script}MORE=$(given)\n{TRAIN} --save_steps $STEPS $MORE\n"})
    assert (found["precision"], found["save_steps"]) == ("bf16", 7)


@pytest.mark.parametrize("body", ["inner=$(given)", "inner=$(other)"])
def test_a_function_that_reads_its_own_output_is_followed_once(tmp_path: Path, body: str) -> None:
    script = f'other() {{ again=$(given); echo "$again"; }}\ngiven() {{ {body}; echo "--bf16 true"; }}\n'
    found = facts(tmp_path, {"run.sh": f"{script}MORE=$(given)\n{TRAIN} --save_steps 7 $MORE\n"})
    assert (found["precision"], found["save_steps"]) == ("bf16", 7)


PROGRAM = """from transformers import HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
args.bf16 = True
Trainer(args=args).train()
"""


@pytest.mark.parametrize(
    ("folder", "found"),
    [
        ("/projects/$USER/mine/src/", True),
        ("/scratch/$(whoami)/src", True),
        ("$PROJECT/src", True),
        ("$SLURM_SUBMIT_DIR/src", True),
        ("/projects/$USER/mine/other", False),
        ("$OUTPUT_DIR/src", False),
        ("$(next_folder)/src", False),
    ],
)
def test_a_folder_of_another_machine_is_found_by_its_end(tmp_path: Path, folder: str, *, found: bool) -> None:
    script = f"cd {folder}\npython learn.py --output_dir out --per_device_train_batch_size 4 --save_steps 5\n"
    given = facts(tmp_path, {"run.sh": script, "src/learn.py": PROGRAM})
    assert given.get("precision") == ("bf16" if found else None)


@pytest.mark.parametrize(
    ("option", "length"),
    [
        ("--max_seq_length 2048", 2048),
        ("--max_seq_len 2048", 2048),
        ("--max_seq 2048", 512),  # a whole word may be an option of the library's class
        ("--max_s 2048", 512),  # it is the beginning of two options
    ],
)
def test_a_parser_of_dataclasses_takes_the_beginning_of_an_option(
    tmp_path: Path, option: str, length: int
) -> None:
    program = """from dataclasses import dataclass
from transformers import HfArgumentParser, TrainingArguments
from trl import SFTTrainer
@dataclass
class DataArguments:
    max_seq_length: int = 512
    max_samples: int = 3
data, args = HfArgumentParser((DataArguments, TrainingArguments)).parse_args_into_dataclasses()
SFTTrainer(model="m", args=args, max_seq_length=data.max_seq_length).train()
"""
    found = facts(tmp_path, {"run.sh": f"python train.py --output_dir o {option}\n", "train.py": program})
    assert found["sequence_length"] == length


FROM_ENVIRONMENT = """import os
import yaml
from dotenv import load_dotenv
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
load_dotenv()
class Settings:
    def __init__(self):
        self.rank = int(os.environ.get("RANK_OF_LORA", 8))
    def name(self):
        return "lora"
settings = Settings()
for key, value in yaml.safe_load(open("train.yaml")).items():
    if hasattr(settings, key):
        setattr(settings, key, value)
model = get_peft_model(AutoModelForCausalLM.from_pretrained("m"), LoraConfig(r=settings.rank))
Trainer(model=model, args=TrainingArguments(output_dir="o")).train()
"""


@pytest.mark.parametrize(("content", "rank"), [("rank: 32\n", 32), ("steps: 9\nother: 1\n", None)])
def test_an_attribute_is_there_whatever_its_value_is(tmp_path: Path, content: str, rank: int | None) -> None:
    """A file `.env`, which may set the variable, decides the value of the attribute."""
    found = facts(tmp_path, {"train.py": FROM_ENVIRONMENT, "train.yaml": content})
    assert found.get("lora_rank") == rank


@pytest.mark.parametrize("optional", [True, False])
def test_variables_of_an_optional_file_are_not_assumed(tmp_path: Path, *, optional: bool) -> None:
    given = "export $(grep -v '^#' .env | xargs)"
    guarded = f"if [ -f .env ]; then\n    {given}\nfi" if optional else given
    found = facts(tmp_path, {"run.sh": f"STEPS=7\n{guarded}\n{TRAIN} --save_steps $STEPS\n"})
    assert found.get("save_steps") == (7 if optional else None)
