"""Programs with a training loop of their own: the batches that they train on, and what only they decide."""

from __future__ import annotations

from pathlib import Path

import pytest

from envcheck.core.errors import InputError
from tests.unit.training_config.test_programs import facts_of

LOOP = """
import argparse
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
parser = argparse.ArgumentParser()
parser.add_argument({argument})
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("gpt2")
train_loader = DataLoader(data, batch_size={size}, shuffle=True)
eval_loader = DataLoader(data, batch_size=64)
for epoch in range(3):
    for step, batch in enumerate(train_loader):
{step}
"""
STEP = "        model(**batch).loss.backward()"
SPLIT = "        for part in batch.parts:\n            model(**part).loss.backward()"


@pytest.mark.parametrize(
    ("command", "size", "step", "found"),
    [
        ("python t.py --bs 3", "args.bs", STEP, "3"),
        ("python t.py", "args.bs", STEP, "8"),
        ("python t.py", "2 * args.bs", STEP, "16"),
        ("python t.py --bs 3", "args.bs", SPLIT, None),
        ("python t.py --bs 3", "args.bs", "        text = model.generate(batch)\n" + STEP, None),
        ("python t.py --bs $N", "args.bs", STEP, None),
    ],
)
def test_the_loader_says_how_many_examples_a_loop_computes_gradients_of(
    tmp_path: Path, command: str, size: str, step: str, found: str | None
) -> None:
    program = LOOP.format(argument='"--bs", type=int, default=8', size=size, step=step)
    facts = facts_of(tmp_path, "run.sh", {"run.sh": f"{command}\n", "t.py": program})
    assert facts.get("trainer") == "custom"
    assert str(facts.get("micro_batch_size")) == str(found)


@pytest.mark.parametrize(
    ("argument", "adapter"),
    [('"config"', "none"), ('"--config"', None), ('"config", "-c"', None)],
)
def test_an_unknown_word_sets_nothing_where_a_program_has_no_options(
    tmp_path: Path, argument: str, adapter: str | None
) -> None:
    program = LOOP.format(argument=argument, size=2, step=STEP)
    facts = facts_of(tmp_path, "run.sh", {"run.sh": "python t.py $1\n", "t.py": program})
    assert facts.get("adapter") == adapter


EXECUTES = [
    "exec(open('t.py').read())",
    "import runpy; runpy.run_path('t.py', run_name='__main__')",
]


@pytest.mark.parametrize("text", EXECUTES)
def test_a_text_that_executes_a_program_starts_it(tmp_path: Path, text: str) -> None:
    program = LOOP.format(argument='"--bs", type=int, default=8', size="args.bs", step=STEP)
    files = {"run.sh": f'python -c "{text}" --bs 3\n', "t.py": program}
    assert facts_of(tmp_path, "run.sh", files)["micro_batch_size"] == 3


def test_a_text_that_only_reads_a_program_does_not_start_it(tmp_path: Path) -> None:
    program = LOOP.format(argument='"--bs", type=int, default=8', size="args.bs", step=STEP)
    with pytest.raises(InputError):
        facts_of(
            tmp_path, "run.sh", {"run.sh": "python -c \"print(open('t.py').read())\"\n", "t.py": program}
        )


FABRIC = """
import torch
from lightning import Fabric
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
fabric = Fabric(devices=1, precision="16-mixed")
model = AutoModelForCausalLM.from_pretrained("gpt2")
loader = DataLoader(data, batch_size=32, shuffle=True)
for step, batch in enumerate(loader):
    is_accumulating = step % 4 != 0
    fabric.backward(model(**batch).loss / 4)
    if not is_accumulating:
        {clip}
        optimizer.step()
"""
CLIP = "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)"


@pytest.mark.parametrize(
    ("clip", "clips"),
    [
        (CLIP, True),
        ("pass", None),
        (CLIP.replace("1.0", 'float("inf")'), None),
        (f"if step > 90: {CLIP}", None),
    ],
)
def test_a_loop_on_fabric_is_one_of_the_programs_own(tmp_path: Path, clip: str, clips: bool | None) -> None:
    facts = facts_of(tmp_path, "t.py", {"t.py": FABRIC.format(clip=clip)})
    assert (facts["micro_batch_size"], facts.get("gradient_clipping")) == (32, clips)
    assert facts["dataloader_workers"] == 0


BAR = """
from torch.utils.data import DataLoader
from tqdm import tqdm
from transformers import AutoModelForCausalLM
class Policy(torch.nn.Module):
    def __init__(self, trainable=True):
        super().__init__()
        self.model = AutoModelForCausalLM.from_pretrained("gpt2")
        if not trainable:
            for parameter in self.model.parameters():
                parameter.requires_grad = False
policy = Policy()
{other} = Policy(trainable=False).to("cuda")
loader = DataLoader(data, batch_size=4, shuffle=True)
bar = tqdm(loader)
for batch in bar:
    policy(batch).backward()
"""


@pytest.mark.parametrize(("other", "frozen"), [("reference", False), ("policy", True)])
def test_what_is_frozen_in_the_class_of_a_reference_is_not_what_trains(
    tmp_path: Path, other: str, frozen: bool
) -> None:
    facts = facts_of(tmp_path, "t.py", {"t.py": BAR.format(other=other)})
    assert (facts["frozen_params"], facts["micro_batch_size"]) == (frozen, 4)


REQUIRED = """
import argparse
from torch.utils.data import DataLoader
from transformers import AutoModelForCausalLM
parser = argparse.ArgumentParser()
parser.add_argument("--kind", {options})
args = parser.parse_args()
if args.kind == "a":
    model = AutoModelForCausalLM.from_pretrained("gpt2")
else:
    raise ValueError(args.kind)
loader = DataLoader(data, batch_size=4)
for batch in loader:
    model(batch).backward()
"""


def test_an_option_that_has_to_be_given_is_not_none(tmp_path: Path) -> None:
    required = REQUIRED.format(options="required=True")
    assert facts_of(tmp_path, "t.py", {"t.py": required})["micro_batch_size"] == 4
    with pytest.raises(InputError):  # without the option, this one stops
        facts_of(tmp_path, "t.py", {"t.py": REQUIRED.format(options="default=None")})
