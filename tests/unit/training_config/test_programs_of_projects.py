"""Programs of projects: those that do other work, that parse a trainer's arguments, or that start a trainer."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from envcheck.core.errors import InputError
from envcheck.core.facts import Unknown
from tests.unit.training_config.test_launches import read
from tests.unit.training_config.test_programs import facts_of

SERVER = """
import argparse
from vllm import LLM
parser = argparse.ArgumentParser()
parser.add_argument("--model")
parser.add_argument("--dtype")
LLM(model=parser.parse_args().model)
"""
MERGE = """
from peft import PeftModel
from transformers import AutoModelForCausalLM
base = AutoModelForCausalLM.from_pretrained("gpt2", load_in_4bit=True)
PeftModel.from_pretrained(base, "out").merge_and_unload().save_pretrained("merged")
"""
TRAINING = """
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model=model, args=TrainingArguments("out", bf16=True)).train()
"""


@pytest.mark.parametrize(
    ("command", "files"),
    [
        ("python vllm_server.py --model m --dtype bfloat16", {"vllm_server.py": SERVER}),
        ("python vllm_server.py --model m --dtype bfloat16", {}),
        ("python merge_lora.py --base gpt2", {"merge_lora.py": MERGE}),
        ("python train.py --eval_only --bf16 true", {}),
    ],
)
def test_a_script_that_only_does_other_work_says_nothing_about_a_training(
    tmp_path: Path, command: str, files: dict[str, str]
) -> None:
    with pytest.raises(InputError, match="nothing starts a training"):
        read(tmp_path, {"run.sh": f"{command}\n", **files})


@pytest.mark.parametrize(
    ("name", "arguments"), [("evaluate.py", ""), ("train_eval.py", ""), ("score.py", "--learning_rate 1e-5")]
)
def test_a_program_that_trains_is_read_whatever_its_name(tmp_path: Path, name: str, arguments: str) -> None:
    found = facts_of(tmp_path, "run.sh", {"run.sh": f"python {name} {arguments}\n", name: TRAINING})
    assert found["precision"] == "bf16"
    assert found["adapter"] == "none"


PARSED = """
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser, get_peft_config
parser = TrlParser((SFTConfig, ModelConfig))
args, model_args = parser.parse_args_and_config()
SFTTrainer(model=model_args.model_name_or_path, args=args, peft_config=get_peft_config(model_args)).train()
"""


@pytest.mark.parametrize(("switch", "adapter"), [("", "none"), (" --use_peft", "lora")])
def test_options_of_lora_need_the_switch_of_the_parser_that_reads_them(
    tmp_path: Path, switch: str, adapter: str
) -> None:
    command = f"python fit.py --model_name_or_path gpt2 --output_dir o --bf16 true --lora_r 16{switch}\n"
    found = facts_of(tmp_path, "run.sh", {"run.sh": command, "fit.py": PARSED})
    assert found["adapter"] == adapter
    assert found.get("frozen_params") is (False if adapter == "none" else None)
    assert found["trainer"] == "trl"


VERL = """
import argparse, subprocess, sys
import time
from pathlib import Path
ROOT = Path(__file__).resolve().parents[1]
parser = argparse.ArgumentParser()
parser.add_argument("--config", default="configs/grpo.yaml")
args, more = parser.parse_known_args()
path = Path(args.config)
if not path.is_absolute():
    path = ROOT / path
if not path.exists():
    sys.exit(1)

def command(words):
    if not Path("data").exists():
        return 1
    words = [sys.executable, "-m", "verl.trainer.main_ppo"]
    words += [f"--config-path={path.parent}", f"--config-name={path.stem}"]
    words.extend(more)
    return subprocess.run(words)

command([])
"""
GRPO = """
actor_rollout_ref:
  model: {path: models/m, lora_rank: 16, enable_gradient_checkpointing: true}
  actor: {strategy: fsdp, fsdp_config: {param_offload: true}}
  rollout: {name: vllm}
algorithm: {adv_estimator: grpo}
data: {train_files: a.parquet}
"""


def test_a_program_hands_the_path_of_its_configuration_to_a_trainer(tmp_path: Path) -> None:
    script = 'python tools/start.py --config configs/grpo.yaml trainer.experiment_name="a_$(date +%s)"\n'
    files = {"run.sh": script, "tools/start.py": VERL, "configs/grpo.yaml": GRPO}
    found = facts_of(tmp_path, "run.sh", files)
    assert found["trainer"] == "verl"
    assert found["adapter"] == "lora"
    assert found["fsdp_offload"] is True
    assert found["gradient_checkpointing"] is True


def test_a_list_that_only_sometimes_gets_an_item_leaves_its_options_open(tmp_path: Path) -> None:
    program = """
import subprocess
import time
from pathlib import Path
words = ["torchrun", "--nproc_per_node", "2", "train.py", "--output_dir", "o", "--bf16", "true"]
words += ["--per_device_train_batch_size", "1", "--learning_rate", "1e-5"]
if Path("ds.json").exists():
    words.extend(["--deepspeed", "ds.json"])
subprocess.run(words)
"""
    found = read(tmp_path, {"run.sh": "python start.py\n", "start.py": program})
    facts = {fact.key: fact for fact in found.facts}
    assert facts["train.precision"].value == "bf16"
    assert isinstance(facts["train.parallel"].reading, Unknown), facts["train.parallel"]


FSDP = (
    "torchrun --nproc_per_node 4 fit.py --output_dir o --per_device_train_batch_size 1 --bf16 true "
    "--learning_rate 1e-5 --fsdp 'full_shard auto_wrap' --fsdp_config configs/fsdp.json\n"
)


@pytest.mark.parametrize(("version", "parallel"), [(1, "fsdp1"), (2, "fsdp2")])
def test_the_file_of_fsdp_config_is_read_as_the_section(tmp_path: Path, version: int, parallel: str) -> None:
    content = f'{{"version": {version}, "activation_checkpointing": "true"}}'
    found = facts_of(tmp_path, "run.sh", {"run.sh": FSDP, "configs/fsdp.json": content})
    assert found["parallel"] == parallel
    assert found["fsdp_activation_checkpointing"] is True


def test_a_missing_file_of_fsdp_config_leaves_its_settings_open(tmp_path: Path) -> None:
    found = {fact.key: fact for fact in read(tmp_path, {"run.sh": FSDP}).facts}
    for key in ("train.fsdp_activation_checkpointing", "train.fsdp_offload", "train.parallel"):
        reading = found[key].reading
        assert isinstance(reading, Unknown)
        assert "configs/fsdp.json" in reading.why


@pytest.mark.parametrize(
    "doubles", ["a = [a, a]", "a = list((a, a))", "b = [a]; b.append(a); a = b", "a = {'x': a, 'y': a}"]
)
def test_values_that_double_forty_times_take_no_time(tmp_path: Path, doubles: str) -> None:
    program = (
        "from transformers import Trainer, TrainingArguments\na = [1]\n"
        + f"{doubles}\n" * 40
        + "if a == [1]:\n    print(a)\n"
        + "args = TrainingArguments('o', bf16=True, label_names=a)\nTrainer(args=args).train()\n"
    )
    start = time.process_time()
    assert facts_of(tmp_path, "train.py", {"train.py": program})["precision"] == "bf16"
    assert time.process_time() - start < 3


def test_what_a_program_computes_is_unknown_and_no_default(tmp_path: Path) -> None:
    program = TRAINING.replace("bf16=True", "bf16=True, gradient_checkpointing=chosen()")
    files = {"run.sh": "python train.py --output_dir o\n", "train.py": program}
    assert "gradient_checkpointing" not in facts_of(tmp_path, "run.sh", files)


OVERRIDES = (
    "deepspeed --include localhost:0,1 fit.py project=x model=small model.lora.lora_enable={lora} "
    "training.deepspeed=ds.json training.per_device_train_batch_size=4 training.learning_rate=1e-5 "
    "training.save_strategy=epoch training.bf16={bf16}\n"
)


@pytest.mark.parametrize(("lora", "adapter"), [("True", "lora"), ("False", "none")])
def test_overrides_of_a_program_that_is_not_here_say_what_they_mean(
    tmp_path: Path, lora: str, adapter: str
) -> None:
    content = '{"zero_optimization": {"stage": 3}}'
    script = OVERRIDES.format(lora=lora, bf16="True")
    found = facts_of(tmp_path, "run.sh", {"run.sh": script, "ds.json": content})
    assert (found["adapter"], found["zero_stage"], found["parallel"]) == (adapter, 3, "deepspeed")
    assert (found["precision"], found["micro_batch_size"]) == ("bf16", 4)


def test_the_same_override_in_two_sections_decides_nothing(tmp_path: Path) -> None:
    script = "python fit.py actor.lora_enable=True critic.lora_enable=False training.bf16=True\n"
    found = {fact.key: fact for fact in read(tmp_path, {"run.sh": script}).facts}
    assert isinstance(found["train.adapter"].reading, Unknown)


def test_switches_of_two_precisions_are_one_proof_of_a_trainer(tmp_path: Path) -> None:
    own = "output_dir: o\nlearning_rate: 1.0e-5\nbf16: true\nfp16: false\n"
    assert "trainer" not in facts_of(tmp_path, "own.yaml", {"own.yaml": own})
    more = f"{own}save_strategy: epoch\n"
    assert facts_of(tmp_path, "more.yaml", {"more.yaml": more})["trainer"] == "transformers"


def test_generating_from_a_split_for_training_is_no_training(tmp_path: Path) -> None:
    program = """
import argparse
from datasets import load_dataset
from helpers import answers
parser = argparse.ArgumentParser()
parser.add_argument("--resume", action="store_true")
parser.parse_args()
answers(load_dataset("d", split="train").train_test_split(test_size=0.1)["test"])
"""
    helpers = "def answers(rows):\n    pass\n\ndef tuned(trainer):\n    trainer.train()\n"
    files = {"run.sh": "python generate_answers.py --resume\n", "generate_answers.py": program}
    with pytest.raises(InputError, match="nothing starts a training"):
        read(tmp_path, {**files, "helpers.py": helpers})


SWIFT = """
from swift.llm import RLHFArguments, rlhf_main
args = RLHFArguments(
    rlhf_type="grpo", model="m", train_type="lora", torch_dtype="bfloat16", lora_rank=8, deepspeed="zero2"
)
rlhf_main(args)
"""
FACTORY = """
from llamafactory.train.tuner import run_exp

def train(kind="lora"):
    args = {"model_name_or_path": "m", "finetuning_type": kind, "stage": "sft", "do_train": True, "bf16": True}
    if kind == "lora":
        args["lora_rank"] = 8
    run_exp(args=args)

train()
"""


@pytest.mark.parametrize(("trainer", "program"), [("swift", SWIFT), ("llamafactory", FACTORY)])
def test_a_trainer_that_a_program_calls_has_the_options_of_its_command(
    tmp_path: Path, trainer: str, program: str
) -> None:
    found = facts_of(tmp_path, "train.py", {"train.py": program})
    assert (found["trainer"], found["adapter"]) == (trainer, "lora")
    assert (found["precision"], found["gradient_checkpointing"]) == ("bf16", True)
    assert found.get("zero_stage") == (2 if trainer == "swift" else None)


def test_a_class_of_the_same_name_from_elsewhere_is_no_trainers(tmp_path: Path) -> None:
    program = SWIFT.replace("swift.llm", "mine.llm")
    with pytest.raises(InputError):
        read(tmp_path, {"train.py": program})


def test_a_program_that_runs_a_trainer_for_its_own_command_line_has_its_options(tmp_path: Path) -> None:
    program = "from llamafactory.train.tuner import run_exp\nrun_exp()\n"
    command = "llamafactory-cli train --stage sft --do_train --finetuning_type lora --bf16 true\n"
    found = facts_of(tmp_path, "run.sh", {"run.sh": command, "src/train.py": program})
    started = command.replace("llamafactory-cli train", "torchrun src/train.py --model_name_or_path m")
    assert facts_of(tmp_path, "own.sh", {"own.sh": started})["gradient_checkpointing"] is True
    assert found["gradient_checkpointing"] is True


LOADS = """
import types, yaml
from transformers import Trainer, TrainingArguments
with open("{path}") as file:
    cfg = types.SimpleNamespace(**yaml.safe_load(file))
Trainer(args=TrainingArguments("o", bf16=cfg.half)).train()
"""


@pytest.mark.parametrize(
    ("path", "precision"),
    [
        ("/srv/clone/config/a.yaml", "bf16"),
        ("config/a.yaml", "bf16"),
        ("/srv/clone/a.yaml", None),
        ("/srv/clone/config/b.yaml", None),
        ("{outside}/config/c.yaml", None),
    ],
)
def test_a_program_opens_an_absolute_path_only_as_a_file_of_its_project(
    tmp_path: Path, path: str, precision: str | None
) -> None:
    outside, project = tmp_path / "outside", tmp_path / "project"
    for folder, name in ((outside, "c.yaml"), (project, "a.yaml")):
        (folder / "config").mkdir(parents=True)
        (folder / "config" / name).write_text("half: true\n")
    (project / ".git").mkdir()
    files = {
        "run.sh": "python train.py\n",
        "train.py": LOADS.format(path=path.format(outside=outside)),
    }
    assert facts_of(project, "run.sh", files).get("precision") == precision
