"""A program's own launcher is followed to the function that its command line names, with its options."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from envcheck.core.errors import InputError
from tests.unit.training_config.test_programs import facts_of

TRAINING = """
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

def lora(rank=8, bf16=True):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    model = get_peft_model(model, LoraConfig(r=rank))
    Trainer(model=model, args=TrainingArguments("out", bf16=bf16)).train()

def full(fp16=True):
    model = AutoModelForCausalLM.from_pretrained("gpt2")
    Trainer(model=model, args=TrainingArguments("out", fp16=fp16)).train()
"""
ARGPARSE = """
import argparse
from training import full, lora

def run_lora(args):
    lora(args.rank)

def run_full(args):
    full()

common = argparse.ArgumentParser(add_help=False)
common.add_argument("--verbose", action="store_true")
parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
commands = parser.add_subparsers(dest="command", required=True)
one = commands.add_parser("lora", parents=[common])
one.add_argument("--rank", type=int, default=8)
one.set_defaults(func=run_lora)
other = commands.add_parser("full", aliases=["all"])
other.set_defaults(func=run_full)
args = parser.parse_args()
args.func(args)
"""
COMPARED = """
import argparse, sys
from training import full, lora

def main(argv=None):
    parser = argparse.ArgumentParser()
    commands = parser.add_subparsers(dest="command")
    commands.add_parser("lora").add_argument("--rank", type=int, default=8)
    commands.add_parser("full")
    args = parser.parse_args(argv)
    if args.command == "lora":
        lora(args.rank)
    elif args.command == "full":
        full()

if __name__ == "__main__":
    main(sys.argv[1:])
"""
POSITIONAL = """
import argparse
import training

parser = argparse.ArgumentParser()
parser.add_argument("--seed", type=int)
parser.add_argument("method", choices=["lora", "full"])
args, left = parser.parse_known_args()
if args.method == "lora":
    inner = argparse.ArgumentParser()
    inner.add_argument("--rank", type=int, default=8)
    training.lora(inner.parse_args(left).rank)
else:
    training.full()
"""
WORDS = """
import sys
from training import full, lora
TABLE = {"lora": lora, "full": full}
if len(sys.argv) > 1:
    name = sys.argv[1]
    if name == "lora":
        lora(int(sys.argv[3]) if len(sys.argv) > 3 else 8)
    else:
        TABLE[name]()
"""
CLICK = """
import click
from training import full, lora

@click.group()
@click.option("--seed", default=1)
def cli(seed):
    pass

@cli.command()
@click.option("--rank", default=8)
@click.option("--bf16/--no-bf16", default=True)
def lora_(rank, bf16):
    lora(rank, bf16)

@cli.command("lora")
@click.option("-r", "--rank", "size", type=int, default=8)
def other(size):
    lora(size)

@click.command("full")
def full_one():
    full()

cli.add_command(full_one)
if __name__ == "__main__":
    cli()
"""
TYPER = """
from typing import Annotated
import typer
from training import full as train_all, lora as train_lora

app = typer.Typer()

@app.callback()
def before(seed: int = 1):
    pass

@app.command()
def lora(rank: Annotated[int, typer.Option("--rank", "-r")] = 8, bf16: bool = typer.Option(True)):
    train_lora(rank, bf16)

@app.command()
def full():
    train_all()

if __name__ == "__main__":
    app()
"""
FIRE = """
import fire
from training import full, lora

class Commands:
    def __init__(self, verbose=False):
        self.verbose = verbose

    def lora(self, rank=8):
        lora(rank)

    def full(self):
        full()

if __name__ == "__main__":
    fire.Fire(Commands)
"""
FIRE_TABLE = "import fire\nfrom training import full, lora\nfire.Fire({'lora': lora, 'full': full})\n"
FIRE_MODULE = "import fire\nfrom training import full, lora\nif __name__ == '__main__':\n    fire.Fire()\n"
LAUNCHERS = {
    "argparse": ARGPARSE,
    "compared": COMPARED,
    "positional": POSITIONAL,
    "words": WORDS,
    "click": CLICK,
    "typer": TYPER,
    "fire class": FIRE,
    "fire table": FIRE_TABLE,
    "fire module": FIRE_MODULE,
}


@pytest.mark.parametrize("launcher", LAUNCHERS.values(), ids=LAUNCHERS)
def test_the_command_line_names_the_function_that_trains(tmp_path: Path, launcher: str) -> None:
    files = {"training.py": TRAINING, "cli.py": launcher}
    found = facts_of(tmp_path, "a.sh", {**files, "a.sh": "python cli.py lora --rank 64\n"})
    assert (found["trainer"], found["adapter"], found["lora_rank"]) == ("transformers", "lora", 64)
    assert found["precision"] == "bf16"
    found = facts_of(tmp_path, "b.sh", {**files, "b.sh": "python cli.py full\n"})
    assert (found["adapter"], found["precision"]) == ("none", "fp16")


@pytest.mark.parametrize("launcher", LAUNCHERS.values(), ids=LAUNCHERS)
def test_a_command_that_is_not_known_leaves_open_what_differs(tmp_path: Path, launcher: str) -> None:
    files = {"training.py": TRAINING, "cli.py": launcher, "a.sh": 'python cli.py "$1"\n'}
    found = facts_of(tmp_path, "a.sh", files)
    assert not {"adapter", "precision", "lora_rank"} & found.keys()


@pytest.mark.parametrize("launcher", [ARGPARSE, CLICK, TYPER, FIRE])
def test_a_launcher_alone_leaves_open_what_its_commands_differ_in(tmp_path: Path, launcher: str) -> None:
    found = facts_of(tmp_path, "cli.py", {"training.py": TRAINING, "cli.py": launcher})
    assert "adapter" not in found
    assert "precision" not in found


def test_the_other_spellings_of_click_and_typer_count(tmp_path: Path) -> None:
    files = {"training.py": TRAINING, "cli.py": CLICK, "app.py": TYPER}
    script = "python cli.py --seed 3 lora- --rank 4 --no-bf16\n"
    found = facts_of(tmp_path, "a.sh", {**files, "a.sh": script})
    assert (found["lora_rank"], found.get("precision")) == (4, None)
    found = facts_of(tmp_path, "b.sh", {**files, "b.sh": "python -m app --seed 3 lora -r 4 --no-bf16\n"})
    assert (found["lora_rank"], found.get("precision")) == (4, None)


PROJECT = {
    "pyproject.toml": "[project]\nname = 'mine'\n[project.scripts]\nmine-cli = 'mine.cli:main'\n",
    "setup.py": (
        "from setuptools import setup\nsetup(entry_points={'console_scripts': ['mine-cli = mine.cli:main']})\n"
    ),
    "setup.cfg": "[options.entry_points]\nconsole_scripts =\n    mine-cli = mine.cli:main\n",
}


@pytest.mark.parametrize("name", PROJECT)
def test_a_console_script_is_followed_from_its_function(tmp_path: Path, name: str) -> None:
    files = {"src/mine/__init__.py": "", "src/mine/training.py": TRAINING, name: PROJECT[name]}
    files["src/mine/cli.py"] = COMPARED.replace("from training", "from .training")
    script = "mkdir -p out\nmine-cli lora --rank 32\n"
    found = facts_of(tmp_path, "a.sh", {**files, "a.sh": script})
    assert (found["trainer"], found["lora_rank"]) == ("transformers", 32)


def test_a_console_script_that_does_not_train_is_no_launch(tmp_path: Path) -> None:
    files = {"pyproject.toml": PROJECT["pyproject.toml"], "mine/cli.py": "def main():\n    print(1)\n"}
    files |= {"train.py": TRAINING + "lora(4)\n", "a.sh": "mine-cli download --rank 9\npython train.py\n"}
    found = facts_of(tmp_path, "a.sh", files)
    assert found["lora_rank"] == 4


SWIFT_CHECKOUT = {
    "setup.py": (
        "from setuptools import setup\n"
        "setup(entry_points={'console_scripts': ['megatron=swift.cli.megatron:main', 'swift-ui=swift.cli.ui:main']})\n"
    ),
    "swift/__init__.py": "",
    "swift/cli/__init__.py": "",
    "swift/cli/megatron.py": (
        "import importlib.util, os, subprocess, sys\n"
        "def main():\n"
        "    path = importlib.util.find_spec('swift.cli.' + sys.argv[1]).origin\n"
        "    count = os.environ.get('NPROC_PER_NODE', '1')\n"
        "    subprocess.run(['torchrun', f'--nproc_per_node={count}', path, *sys.argv[2:]])\n"
    ),
}
MEGATRON = (
    "{command} --model Qwen/Qwen2.5-7B-Instruct --tuner_type lora --packing true --save_safetensors true"
    " --tensor_model_parallel_size 2 --recompute_granularity full\n"
)


@pytest.mark.parametrize("command", ["megatron sft", "NPROC_PER_NODE=8 megatron rlhf --rlhf_type dpo"])
def test_a_known_command_is_read_by_its_dialect_in_the_trainers_own_checkout(
    tmp_path: Path, command: str
) -> None:
    script = MEGATRON.format(command=command)
    found = facts_of(tmp_path, "a.sh", {**SWIFT_CHECKOUT, "a.sh": script})
    assert (found["trainer"], found["parallel"], found["tensor_parallel"]) == ("swift", "megatron", 2)
    assert (found["packing"], found["model_type"]) == (True, "qwen2")
    assert "attention" not in found  # transformers' kernels, which ms-swift's other trainers ask for


MEGATRON_FILE = (
    "model: Qwen/Qwen2.5-7B-Instruct\ntuner_type: lora\npadding_free: true\nsplit_dataset_ratio: 0.01\n"
    "output_dir: out\n"
)


def test_ms_swifts_two_trainers_are_told_apart_by_the_settings_of_a_file(tmp_path: Path) -> None:
    megatron = "recompute_granularity: full\nno_save_optim: true\nmoe_permute_fusion: true\n"
    found = facts_of(tmp_path, "a.yaml", {"a.yaml": MEGATRON_FILE + megatron})
    assert (found["parallel"], found["gradient_checkpointing"]) == ("megatron", True)
    assert "attention" not in found
    other = "per_device_train_batch_size: 1\ngradient_checkpointing: true\nattn_impl: sdpa\n"
    found = facts_of(tmp_path, "b.yaml", {"b.yaml": MEGATRON_FILE + other})
    assert found.get("parallel") != "megatron"
    assert found["attention"] == "sdpa"


def test_another_subcommand_of_a_known_command_is_not_its_training(tmp_path: Path) -> None:
    script = MEGATRON.format(command="megatron export") + "python train.py\n"
    files = {**SWIFT_CHECKOUT, "train.py": TRAINING + "lora(4)\n", "a.sh": script}
    found = facts_of(tmp_path, "a.sh", files)
    assert (found["trainer"], found["lora_rank"], found.get("parallel")) == ("transformers", 4, "none")


STARTERS = {
    "list": (
        "import subprocess, sys\ncmd = [sys.executable, '-m', 'torch.distributed.run', '--nproc_per_node', '2']\n"
        "cmd += ['train.py']\ncmd.extend(sys.argv[1:])\nsubprocess.run(cmd, check=True)\n"
    ),
    "text": (
        "import argparse, os, random, subprocess\np = argparse.ArgumentParser()\np.add_argument('command')\n"
        "args, left = p.parse_known_args()\nport = random.randint(1, 9)\n"
        "subprocess.run(f\"torchrun --master_port {port} --nproc_per_node 2 {args.command}.py {' '.join(left)}\", shell=True)\n"
    ),
    "exec": (
        "import os, sys\nos.execvp('torchrun', ['torchrun', '--nproc_per_node=2', 'train.py', *sys.argv[1:]])\n"
    ),
    "main": (
        "import sys\nfrom torch.distributed.run import main\n"
        "main(['--nproc_per_node=2', 'train.py'] + sys.argv[1:])\n"
    ),
}
PROGRAM = (
    f"{TRAINING}\nimport argparse\np = argparse.ArgumentParser()\np.add_argument('--rank', type=int, default=8)\n"
    "lora(p.parse_args().rank)\n"
)


@pytest.mark.parametrize("kind", STARTERS)
def test_a_program_that_starts_another_one_is_followed_to_it(tmp_path: Path, kind: str) -> None:
    words = "train --rank 16" if kind == "text" else "--rank 16"
    files = {"start.py": STARTERS[kind], "train.py": PROGRAM, "a.sh": f"python start.py {words}\n"}
    found = facts_of(tmp_path, "a.sh", files)
    assert (found["parallel"], found["world_size"]) == ("ddp", 2)
    assert (found["adapter"], found["lora_rank"]) == ("lora", 16)


def test_an_argument_that_may_be_added_leaves_open_what_it_decides(tmp_path: Path) -> None:
    start = (
        "import os, subprocess\ncmd = ['torchrun', '--nproc_per_node=2', 'train.py']\n"
        "if os.path.exists('a'):\n    cmd += ['--rank', '4']\nsubprocess.run(cmd)\n"
    )
    files = {"start.py": start, "train.py": PROGRAM, "a.sh": "python start.py\n"}
    found = facts_of(tmp_path, "a.sh", files)
    assert found["adapter"] == "lora"
    assert "lora_rank" not in found
    assert "parallel" not in found  # the argument could be a DeepSpeed configuration


@pytest.mark.parametrize(
    "start",
    [
        "import runpy, sys\nsys.argv = ['train.py', '--rank', '16']\nrunpy.run_path('train.py', run_name='__main__')\n",
        "import runpy, sys\nsys.argv = ['x', '--rank', '16']\nrunpy.run_module('train', run_name='__main__')\n",
        "import importlib, sys\nsys.argv[1:] = []\nimportlib.import_module('training').lora(16)\n",
    ],
)
def test_a_program_that_runs_another_one_inside_itself(tmp_path: Path, start: str) -> None:
    files = {"start.py": start, "training.py": TRAINING, "a.sh": "python start.py\n"}
    files["train.py"] = PROGRAM.replace("lora(p.parse", "if __name__ == '__main__':\n    lora(p.parse")
    assert facts_of(tmp_path, "a.sh", files)["lora_rank"] == 16


def test_the_part_of_an_imported_module_that_runs_it_as_a_program_is_left_out(tmp_path: Path) -> None:
    files = {"training.py": f"{TRAINING}\nif __name__ == '__main__':\n    full()\n"}
    files |= {"train.py": "from training import lora\nlora(16)\n", "a.sh": "python train.py\n"}
    found = facts_of(tmp_path, "a.sh", files)
    assert (found["adapter"], found["precision"]) == ("lora", "bf16")


def test_programs_that_start_one_another_without_end_are_given_up(tmp_path: Path) -> None:
    again = "import subprocess, sys\nsubprocess.run([sys.executable, 'a.py', *sys.argv[1:]])\n"
    files = {"a.py": again, "a.sh": "python a.py --output_dir o --use_lora True\n"}
    assert facts_of(tmp_path, "a.sh", files)["parallel"] == "none"


UNUSED = """
import argparse
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
p = argparse.ArgumentParser()
p.add_argument("--lora_r", type=int, default=0)
p.add_argument("--load_in_4bit", action="store_true")
args = p.parse_args()
MORE
Trainer(model=AutoModelForCausalLM.from_pretrained("gpt2"), args=TrainingArguments("out", bf16=True)).train()
"""


def test_an_option_that_nothing_reads_is_no_fact(tmp_path: Path) -> None:
    files = {"train.py": UNUSED.replace("MORE", ""), "a.sh": "python train.py --lora_r 8 --load_in_4bit\n"}
    found = facts_of(tmp_path, "a.sh", files)
    assert (found["adapter"], found["quantization"], found.get("lora_rank")) == ("none", "none", None)


@pytest.mark.parametrize("more", ["import other\nother.train(**vars(args))", "print(args.lora_r)"])
def test_an_option_that_something_reads_may_be_a_fact(tmp_path: Path, more: str) -> None:
    files = {"train.py": UNUSED.replace("MORE", more), "a.sh": "python train.py --lora_r 8\n"}
    assert facts_of(tmp_path, "a.sh", files).get("adapter") != "none"


def test_hostile_words_and_slices_stop_nothing(tmp_path: Path) -> None:
    program = (
        f"{TRAINING}\nimport os, sys\nx = sys.argv[len(os.listdir()):'a':None]\ny = 'abc'[os.x:]\nlora(16)\n"
    )
    files = {"train.py": program, "a.sh": "python train.py $A -- --x= -5 '' \"$B\"\n"}
    assert facts_of(tmp_path, "a.sh", files)["lora_rank"] == 16


MERGED = {
    "cli": "cfg = OmegaConf.merge(OmegaConf.load('a.yaml'), OmegaConf.from_cli())",
    "with cli": "cfg = OmegaConf.load('a.yaml')\ncfg.merge_with_cli()",
    "dotlist": "cfg = OmegaConf.load('a.yaml')\ncfg.merge_with(OmegaConf.from_dotlist(sys.argv[1:]))",
    "dictionaries": (
        "cfg = yaml.safe_load(open('a.yaml'))\n"
        "more = {'lora': cfg['lora'] | {'rank': int(sys.argv[1].split('=')[1])}}\n"
        "cfg = argparse.Namespace(**{**cfg, **more})\ncfg.__dict__.update({'x': 1})"
    ),
}


@pytest.mark.parametrize("merged", MERGED.values(), ids=MERGED)
def test_settings_that_are_merged_are_followed(tmp_path: Path, merged: str) -> None:
    program = (
        f"{TRAINING}\nimport argparse, sys, yaml\nfrom omegaconf import OmegaConf\n{merged}\n"
        "rank = cfg.lora.rank if hasattr(cfg.lora, 'rank') else cfg.lora['rank']\nlora(rank, cfg.bf16)\n"
    )
    files = {"train.py": program, "a.yaml": "bf16: true\nlora:\n  rank: 8\n  alpha: 16\n"}
    found = facts_of(tmp_path, "a.sh", {**files, "a.sh": "python train.py lora.rank=64\n"})
    assert (found["lora_rank"], found["precision"]) == (64, "bf16")


def test_a_program_that_asks_for_an_argument_was_given_it(tmp_path: Path) -> None:
    checks = (
        "import argparse\np = argparse.ArgumentParser()\np.add_argument('--data')\np.add_argument('--other')\n"
        "args = p.parse_args()\nif args.data is None and not args.other:\n    raise ValueError('data')\n"
        "if args.data:\n    pass\nelif args.other is not None:\n    pass\nelse:\n    raise ValueError('data')\n"
    )
    program = f"{TRAINING}\n{checks}\nlora(64)\n"
    assert facts_of(tmp_path, "train.py", {"train.py": program})["lora_rank"] == 64


ZERO = "import json\nzero = {'zero_optimization': {'stage': 2}, 'bf16': {'enabled': True}}\n"
WRITES = f"{ZERO}with open('ds.json', 'w') as file:\n    json.dump(zero, file, indent=2)\n"


def test_a_configuration_that_the_program_writes_is_the_one_that_it_uses(tmp_path: Path) -> None:
    trains = (
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        "model = AutoModelForCausalLM.from_pretrained('gpt2')\n"
        "Trainer(model=model, args=TrainingArguments('out', bf16=True, deepspeed='ds.json')).train()\n"
    )
    files = {"train.py": WRITES + trains, "a.sh": "deepspeed train.py\n"}
    found = facts_of(tmp_path, "a.sh", files)
    assert (found["parallel"], found["zero_stage"]) == ("deepspeed", 2)


def test_a_configuration_that_the_program_writes_for_another_one(tmp_path: Path) -> None:
    start = (
        f"{WRITES}import subprocess\nsubprocess.run(['deepspeed', 'train.py', '--deepspeed', 'ds.json'])\n"
    )
    train = (
        "from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
        "args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
        "Trainer(model=AutoModelForCausalLM.from_pretrained('gpt2'), args=args).train()\n"
    )
    files = {"start.py": start, "train.py": train, "a.sh": "python start.py\n"}
    found = facts_of(tmp_path, "a.sh", files)
    assert (found["parallel"], found["zero_stage"]) == ("deepspeed", 2)


def test_the_size_of_an_adapter_that_is_off_is_no_fact(tmp_path: Path) -> None:
    program = (
        "from dataclasses import dataclass, field\nimport transformers\n"
        "from peft import LoraConfig, get_peft_model\n"
        "@dataclass\nclass TrainingArguments(transformers.TrainingArguments):\n"
        "    lora_enable: bool = False\n    lora_r: int = 64\n    optim: str = field(default='adamw_torch')\n"
        "parser = transformers.HfArgumentParser(TrainingArguments)\n"
        "args, = parser.parse_args_into_dataclasses()\n"
        "model = transformers.AutoModelForCausalLM.from_pretrained('gpt2')\n"
        "if args.lora_enable:\n    model = get_peft_model(model, LoraConfig(r=args.lora_r))\n"
        "transformers.Trainer(model=model, args=args).train()\n"
    )
    files = {"train.py": program, "a.sh": "torchrun --nproc_per_node 2 train.py --output_dir o --bf16 True\n"}
    found = facts_of(tmp_path, "a.sh", files)
    assert (found["adapter"], found.get("lora_rank"), found["optimizer"]) == ("none", None, "adamw_torch")
    files["a.sh"] = files["a.sh"].replace("--bf16", "--lora_enable True --bf16")
    found = facts_of(tmp_path, "a.sh", files)
    assert (found["adapter"], found["lora_rank"]) == ("lora", 64)


OPTIONS = """
from dataclasses import dataclass, field
from training import lora
@dataclass
class Lora:
    rank: int = 8
@dataclass
class Config:
    bf16: bool = False
    lora: Lora = field(default_factory=Lora)
"""
PARSED = {
    "tyro": "import tyro\ncfg = tyro.cli(Config)\nlora(cfg.lora.rank, cfg.bf16)\n",
    "pyrallis": "import pyrallis\ncfg = pyrallis.parse(config_class=Config)\nlora(cfg.lora.rank, cfg.bf16)\n",
    "jsonargparse": "from jsonargparse import CLI\ncfg = CLI(Config)\nlora(cfg.lora.rank, cfg.bf16)\n",
    "wrap": "import draccus\n@draccus.wrap()\ndef main(cfg: Config):\n    lora(cfg.lora.rank, cfg.bf16)\nmain()\n",
    "function": "import tyro\ndef main(bf16: bool, rank: int = 64):\n    lora(rank, bf16)\ntyro.cli(main)\n",
}


@pytest.mark.parametrize("ending", PARSED.values(), ids=PARSED)
def test_the_options_of_a_dataclass_are_those_of_the_command_line(tmp_path: Path, ending: str) -> None:
    files = {"training.py": TRAINING, "train.py": OPTIONS + ending}
    files["a.sh"] = "python train.py --lora.rank 64 --bf16 true\n"
    found = facts_of(tmp_path, "a.sh", files)
    assert (found["lora_rank"], found["precision"]) == (64, "bf16")


@pytest.mark.parametrize(("library", "option"), [("pyrallis", "config_path"), ("jsonargparse", "config")])
def test_a_file_that_a_parser_of_dataclasses_reads_leaves_its_fields_open(
    tmp_path: Path, library: str, option: str
) -> None:
    files = {"training.py": TRAINING, "train.py": OPTIONS + PARSED[library]}
    files["a.sh"] = f"python train.py --{option} a.yaml --lora.rank 64\n"
    found = facts_of(tmp_path, "a.sh", files)
    assert found["adapter"] == "lora"
    assert "precision" not in found


def test_a_script_with_thousands_of_console_scripts_is_refused_in_one_line(tmp_path: Path) -> None:
    scripts = "".join(f'c{number} = "pkg.main:main"\n' for number in range(2_000))
    files = {
        "pyproject.toml": f"[project]\nname = 'p'\n[project.scripts]\n{scripts}",
        "pkg/main.py": "def main():\n    print(1)\n",
        "run.sh": "".join(f"c{number % 2_000} --a {number}\n" for number in range(20_000)),
    }
    start = time.process_time()
    with pytest.raises(InputError, match="more than 2,000 commands"):
        facts_of(tmp_path, "run.sh", files)
    assert time.process_time() - start < 4
