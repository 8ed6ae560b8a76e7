"""Options that reach a trainer, or do not, and parts of a program that take no part in its training."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.launches import known_facts

SCRIPT = """from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser
parser = TrlParser((ScriptArguments, GRPOConfig, ModelConfig))
script, training, model = parser.parse_args_and_config()
{before}
trainer = GRPOTrainer(model={model}, args=training, reward_funcs=[]{more})
trainer.train()
"""
RECIPE = (
    "model_name_or_path: Qwen/Qwen2.5-7B\nattn_implementation: flash_attention_2\ntorch_dtype: bfloat16\n"
)
BY_NAME = "model.model_name_or_path"
LOADED = (
    "from transformers import AutoModelForCausalLM as Auto\n"
    f"loaded = Auto.from_pretrained({BY_NAME}, attn_implementation=model.attn_implementation)"
)


@pytest.mark.parametrize(
    ("before", "model", "more", "attention"),
    [
        ("", BY_NAME, "", None),  # TRL loads the model, and nothing tells it how
        ("training.model_init_kwargs = dict(attn_implementation=model.attn_implementation)", BY_NAME, "", True),
        (
            LOADED,
            "loaded",
            "",
            True,
        ),
        ("", BY_NAME, ", model_init_kwargs=dict(attn_implementation=model.attn_implementation)", True),
    ],
)  # fmt: skip
def test_how_trl_loads_a_model_by_its_name(
    tmp_path: Path, before: str, model: str, more: str, attention: bool | None
) -> None:
    files = {
        "run.sh": "#!/bin/bash\naccelerate launch train.py --config recipe.yaml --bf16 true\n",
        "recipe.yaml": RECIPE,
        "train.py": SCRIPT.format(before=before, model=model, more=more),
    }
    found = known_facts(tmp_path, files)
    assert found.get("attention") == ("flash_attention_2" if attention else None)
    assert (found.get("trainer"), found.get("precision")) == ("trl", "bf16")


PARSED = """import sys
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B")
{before}
trainer = Trainer(model=model, args=args)
{trains}
"""
TORCHRUN = "torchrun --nproc_per_node 2 train.py --output_dir o --bf16 true"


@pytest.mark.parametrize(
    ("option", "trains", "resume"),
    [
        (" --resume_from_checkpoint o/last", "trainer.train(resume_from_checkpoint=args.resume_from_checkpoint)", True),
        (" --resume_from_checkpoint o/last", "trainer.train()", None),
        ("", "trainer.train(resume_from_checkpoint=True)", True),
        ("", "trainer.train(resume_from_checkpoint=None)", None),
        ("", "if len(sys.argv) > 9:\n    trainer.train(resume_from_checkpoint=True)\nelse:\n    trainer.train()", None),
    ],
)  # fmt: skip
def test_a_trainer_resumes_from_what_its_method_is_given(
    tmp_path: Path, option: str, trains: str, resume: bool | None
) -> None:
    program = PARSED.format(before="", trains=trains)
    files = {"run.sh": f"#!/bin/bash\n{TORCHRUN}{option}\n", "train.py": program}
    assert known_facts(tmp_path, files).get("resume") is resume


@pytest.mark.parametrize(
    ("before", "adapter"),
    [
        ("args = TrainingArguments(**args.to_dict())", "none"),
        ("values = args.to_dict()\nvalues.update({'remove_unused_columns': False})\nargs = TrainingArguments(**values)", "none"),
        ("args = TrainingArguments(**values_from_elsewhere)", None),
    ],
)  # fmt: skip
def test_arguments_that_are_made_of_the_command_line_hold_what_it_says(
    tmp_path: Path, before: str, adapter: str | None
) -> None:
    files = {"run.sh": f"#!/bin/bash\n{TORCHRUN}\n", "train.py": PARSED.format(before=before, trains="trainer.train()")}  # fmt: skip
    found = known_facts(tmp_path, files)
    assert found.get("adapter") == adapter
    assert found.get("precision") == ("bf16" if adapter else found.get("precision"))


LOOP = """import torch
from transformers import AutoModelForCausalLM
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-8B", torch_dtype=torch.bfloat16)
for batch in batches:
    with {autocast}:
        loss = model(**batch).loss
    loss.backward()
if test:
    with {test}:
        model(**test)
"""


@pytest.mark.parametrize(
    ("autocast", "test", "precision"),
    [
        ("torch.cuda.amp.autocast()", "torch.cuda.amp.autocast()", "fp16"),
        ("torch.autocast('cuda')", "torch.autocast('cuda')", "fp16"),
        ("torch.autocast('cuda', dtype=torch.bfloat16)", "torch.autocast('cuda', dtype=torch.bfloat16)", "bf16"),
        ("torch.autocast('cuda', dtype=torch.bfloat16)", "torch.autocast('cuda')", None),
        ("torch.autocast('cpu')", "torch.autocast('cpu')", None),
        ("torch.cuda.amp.autocast(enabled=on)", "torch.cuda.amp.autocast(enabled=on)", None),
        ("torch.autocast('cuda', torch.bfloat16)", "torch.autocast('cuda', torch.bfloat16)", None),
    ],
)  # fmt: skip
def test_autocast_computes_in_half_precision_by_default(
    tmp_path: Path, autocast: str, test: str, precision: str | None
) -> None:
    found = known_facts(tmp_path, {"train.py": LOOP.format(autocast=autocast, test=test)})
    assert found.get("precision") == precision


SIMULATION = "def step_{n}(state):\n" + "".join(
    f"    state = [x + {i} for x in state if x > {i}]\n" for i in range(40)
)
CALLS = (
    "def simulate(state):\n"
    + "".join(f"    state = step_{n}(state)\n" for n in range(20))
    + "    return state\n"
)
TRAINS = """from trl import GRPOConfig, GRPOTrainer
from play import simulate
def main():
    for _ in range(9):
        before = simulate([1])
        again = simulate([2])
{more}
    GRPOTrainer(model="Qwen/Qwen3-8B", args=GRPOConfig(per_device_train_batch_size=3), reward_funcs=[]).train()
if __name__ == "__main__":
    main()
"""


def test_a_long_simulation_is_passed_over_on_the_way_to_the_training(tmp_path: Path) -> None:
    play = "".join(SIMULATION.format(n=n) for n in range(20)) + CALLS
    more = "".join(f"    now_{n} = simulate([{n}])\n" for n in range(12))
    found = known_facts(tmp_path, {"train.py": TRAINS.format(more=more), "play.py": play})
    assert (found.get("trainer"), found.get("method"), found.get("micro_batch_size")) == ("trl", "grpo", 3)


def test_a_function_that_leads_to_a_training_is_followed(tmp_path: Path) -> None:
    play = "".join(SIMULATION.format(n=n) for n in range(20)) + CALLS
    work = (
        "from play import simulate\nfrom peft import get_peft_model, LoraConfig\n"
        "def adapted(model):\n    simulate([1])\n    return get_peft_model(model, LoraConfig(r=4))\n"
    )
    program = (
        "from transformers import AutoModelForCausalLM\nfrom trl import SFTConfig, SFTTrainer\nfrom work import adapted\n"
        "model = adapted(AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B'))\n"
        "SFTTrainer(model=model, args=SFTConfig(per_device_train_batch_size=3)).train()\n"
    )
    found = known_facts(tmp_path, {"train.py": program, "play.py": play, "work.py": work})
    assert (found.get("adapter"), found.get("lora_rank"), found.get("micro_batch_size")) == ("lora", 4, 3)


@pytest.mark.parametrize(
    ("options", "method"),
    [("", "ppo"), (" algorithm.adv_estimator=grpo", "grpo"), (" --config-name own", None)],
)
def test_verl_trains_with_ppo_by_default(tmp_path: Path, options: str, method: str | None) -> None:
    launch = "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=Qwen/Qwen2.5-7B trainer.nnodes=1"
    found = known_facts(tmp_path, {"run.sh": f"#!/bin/bash\n{launch}{options}\n"})
    assert (found.get("trainer"), found.get("method")) == ("verl", method)
