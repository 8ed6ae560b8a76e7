"""Launch scripts and configurations as people write them: the facts, unknown facts and diagnostics of each.

Each shape in tests/data/launches/ has a first file, which is passed to --train, and the files that it names. It lists
every fact that they state, what stays unknown and why, and every diagnostic with its line.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from envcheck.commands import loading
from envcheck.commands.training_files import Configured, configured
from envcheck.core.errors import InputError
from envcheck.core.facts import Unknown
from envcheck.core.training_facts import KEYS
from envcheck.training_config.launch_scripts.follow import follow
from envcheck.training_config.source_lines import SourceLines
from tests.support.paths import DATA

SHARED = loading.source_tree()["tables"]["argument"]
SHAPES = [
    shape
    for path in sorted((DATA / "launches").glob("*.toml"))
    for shape in tomllib.loads(path.read_text())["shape"]
]


def read(folder: Path, files: dict[str, str], installed: dict[str, str] | None = None) -> Configured:
    """Write the files, and return what the first of them configures."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.removeprefix("\n"), newline="")
    return configured([str(folder / next(iter(files)))], SHARED, installed or {})


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape["name"])
def test_a_launch_states_the_facts_that_its_author_means(tmp_path: Path, shape: dict[str, Any]) -> None:
    found = read(tmp_path, shape["files"], shape.get("installed"))
    facts = {fact.key.removeprefix("train."): fact for fact in found.facts if fact.key in KEYS}
    meant = {key: tuple(value) if isinstance(value, list) else value for key, value in shape["facts"].items()}
    assert {key: fact.value for key, fact in facts.items() if fact.value is not None} == meant
    unknown = {
        key: fact.reading.why.replace(f"{tmp_path}/", "")
        for key, fact in facts.items()
        if isinstance(fact.reading, Unknown)
    }
    if LOADS_ELSEWHERE in unknown.get("trust_remote_code", ""):  # see the test of it below
        del unknown["trust_remote_code"]
    if "open_end" in shape:
        incomplete = [key for key, why in unknown.items() if why == shape["open_end"]]
        assert "zero_stage" in incomplete
        unknown = {key: why for key, why in unknown.items() if key not in incomplete}
    assert unknown == shape.get("unknown", {})
    remarks = [f"{each.severity.value} {each.code} {each.places[0].line}" for each in found.remarks]
    assert remarks == shape.get("remarks", [])


LOADS_ELSEWHERE = "is not here, which loads the model"


@pytest.mark.parametrize(
    ("command", "program", "value"),
    [
        ("python t.py", "", None),
        ("python t.py", "AutoModelForCausalLM.from_pretrained('a/b')", False),
        ("python t.py", "AutoModelForCausalLM.from_pretrained('a/b', trust_remote_code=True)", True),
        (
            "python t.py",
            "AutoModelForCausalLM.from_pretrained('a/b', config=AutoConfig.from_pretrained('a/b', trust_remote_code=True))",
            True,
        ),
        ("trl sft --model_name_or_path a/b", "", False),
    ],
)
def test_only_the_code_that_loads_a_model_says_whether_its_own_code_runs(
    tmp_path: Path, command: str, program: str, value: object
) -> None:
    files = {
        "run.sh": f"{command} --output_dir o --per_device_train_batch_size 1 --bf16 True --save_steps 5\n"
    }
    if program:
        files["t.py"] = (
            "from transformers import AutoConfig, AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments\n"
            "(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\n"
            f"Trainer(model={program}, args=args).train()\n"
        )
    found = {fact.key: fact for fact in read(tmp_path, files).facts}["train.trust_remote_code"]
    assert found.value is value
    assert (LOADS_ELSEWHERE in getattr(found.reading, "why", "")) == (value is None)


@pytest.mark.parametrize(
    ("command", "files", "facts"),
    [
        (  # nodes times GPUs, which the launch line gives
            (
                "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=a/b algorithm.adv_estimator=grpo"
                " trainer.n_gpus_per_node=4 trainer.nnodes=2"
            ),
            {},
            {"world_size": 8},
        ),
        (  # verl's own default is one node
            (
                "python3 -m verl.trainer.main_ppo actor_rollout_ref.model.path=a/b algorithm.adv_estimator=grpo"
                " trainer.n_gpus_per_node=4"
            ),
            {},
            {"world_size": 4},
        ),
        (  # a configuration of the project's own may have more nodes
            (
                "python3 -m verl.trainer.main_ppo --config-name=own actor_rollout_ref.model.path=a/b"
                " algorithm.adv_estimator=grpo trainer.n_gpus_per_node=4"
            ),
            {},
            {"world_size": None},
        ),
        (  # the launcher decides, not what the configuration says of it
            (
                "torchrun --nproc_per_node=2 -m verl.trainer.fsdp_sft_trainer model.partial_pretrain=a/b"
                " data.train_batch_size=8 trainer.n_gpus_per_node=8"
            ),
            {},
            {"world_size": 2},
        ),
        (  # options that look like those of scripts on accelerate, of a program that does not use it
            "python t.py --pretrained_model_name_or_path a/b --train_batch_size 1 --checkpointing_steps 5",
            {"t.py": "{loop}"},
            {"trainer": "custom"},
        ),
        (
            "python t.py --pretrained_model_name_or_path a/b --train_batch_size 1 --checkpointing_steps 5",
            {"t.py": "from accelerate import Accelerator\nAccelerator().backward(1)\n"},
            {"trainer": "accelerate"},
        ),
        (  # arguments that a function elsewhere makes
            "python t.py",
            {"t.py": "from transformers import Trainer\nfrom x import make\nTrainer(args=make()).train()\n"},
            {"save_strategy": "the arguments of Trainer are not made by a class that can be read"},
        ),
        (  # a class of a library of which everything is imported
            "python t.py",
            {
                "t.py": "from own import Own\nfrom trl import DPOTrainer\nDPOTrainer(args=Own(save_steps=7)).train()\n",
                "own.py": "from dataclasses import dataclass\nfrom trl.trainer.dpo_trainer import *\n"
                "@dataclass\nclass Own(DPOConfig):\n    save_strategy: str = 'steps'\n",
            },
            {"save_steps": 7, "save_strategy": "steps"},
        ),
        (  # the number of processes that a launcher tells them
            "python t.py",
            {"t.py": "{accumulate}"},
            {"gradient_accumulation_steps": 8},
        ),
        ("torchrun --nproc_per_node=4 t.py", {"t.py": "{accumulate}"}, {"gradient_accumulation_steps": 2}),
        (
            "torchrun --nproc_per_node=$N t.py",
            {"t.py": "{accumulate}"},
            {"gradient_accumulation_steps": None},
        ),
        ("python t.py", {"t.py": "{loop}"}, {"gradient_clipping": True, "torch_compile": False}),
        (  # the norm is only measured
            "python t.py",
            {"t.py": "{measures}"},
            {"gradient_clipping": None, "torch_compile": False},
        ),
        (  # attention that is set on the configuration, and a precision that is not asked for
            "python t.py --bf16 True --output_dir o",
            {"t.py": "{configured}"},
            {"attention": "flash_attention_2", "base_dtype": "bfloat16", "trust_remote_code": True},
        ),
        (  # two trainings with what they have in common
            "python t.py",
            {"t.py": "{twice}"},
            {"save_steps": 7, "lr_scheduler": None},
        ),
        (  # the class of the trainer counts, not that of its arguments
            "python t.py",
            {
                "t.py": "from transformers import AutoModel, Trainer\nfrom trl import SFTConfig\n"
                "Trainer(model=AutoModel.from_pretrained('a/b'), args=SFTConfig('o')).train()\n"
            },
            {"trainer": "transformers"},
        ),
        (  # the beginning of one option alone is that option; that of two is none
            "python t.py --accum 8 --m 2",
            {"t.py": "{abbreviated}"},
            {"gradient_accumulation_steps": 8, "micro_batch_size": 1},
        ),
        (  # what the configurations of TRL take without fp16 depends on its release
            "python t.py",
            {"t.py": "{trl}"},
            {"precision": None},
        ),
        (
            "python t.py",
            {"t.py": "{plain}"},
            {"precision": "fp32"},
        ),
        (  # a section that asks for an adapter in words that are not known
            "python t.py --config c.yaml",
            {
                "c.yaml": "freeze_vision_tower: false\nimage_min_pixels: 4\nlora: {alpha_of_it: 3}\nbf16: true\n"
            },
            {"adapter": None, "frozen_params": None},
        ),
        (
            (
                "A=(--save_steps 7); python t.py --output_dir o --bf16 True --fp16 False"
                ' "${A[@]+"${A[@]}"}" --per_device_train_batch_size 1'
            ),
            {},
            {"save_steps": 7, "micro_batch_size": 1},
        ),
    ],
)
def test_what_a_program_is_given_decides_and_what_is_not_read_stays_open(
    tmp_path: Path, command: str, files: dict[str, str], facts: dict[str, object]
) -> None:
    programs = {
        "{accumulate}": ACCUMULATES,
        "{loop}": CLIPS.format("1.0"),
        "{measures}": CLIPS.format("float('inf')"),
    }
    programs |= {"{configured}": CONFIGURED, "{twice}": TWICE, "{abbreviated}": ABBREVIATED}
    programs |= {"{trl}": NO_FP16.format("trl", "SFT", "SFTConfig")}
    programs |= {"{plain}": NO_FP16.format("transformers", "", "TrainingArguments")}
    written = {name: programs.get(text, text) for name, text in files.items()}
    found = {fact.key: fact for fact in read(tmp_path, {"run.sh": f"{command}\n", **written}).facts}
    for key, expected in facts.items():
        fact = found.get(f"train.{key}")
        given = None if fact is None else fact.value
        why = getattr(fact.reading, "why", "") if fact is not None else ""
        assert (why or given) == expected or (expected is None and given is None), key


ACCUMULATES = """
import os
from transformers import AutoModel, Trainer, TrainingArguments
world = int(os.environ.get("WORLD_SIZE", 1))
args = TrainingArguments("o", gradient_accumulation_steps=8 // world)
Trainer(model=AutoModel.from_pretrained("a/b"), args=args).train()
"""

CONFIGURED = """
import torch
from transformers import AutoConfig, AutoModel, HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
config = AutoConfig.from_pretrained("a/b", trust_remote_code=True)
config._attn_implementation = "flash_attention_2"
dtype = torch.float16 if args.fp16 else (torch.bfloat16 if args.bf16 else torch.float32)
Trainer(model=AutoModel.from_pretrained("a/b", config=config, torch_dtype=dtype), args=args).train()
"""

ABBREVIATED = """
import argparse
from transformers import AutoModel, Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--accumulation", type=int, default=1)
parser.add_argument("--micro", type=int, default=1)
parser.add_argument("--model", default="a/b")
args = parser.parse_args()
given = TrainingArguments(
    "o", gradient_accumulation_steps=args.accumulation, per_device_train_batch_size=args.micro
)
Trainer(model=AutoModel.from_pretrained(args.model), args=given).train()
"""

NO_FP16 = """
from {0} import {1}Trainer, {2}
from transformers import AutoModel
{1}Trainer(model=AutoModel.from_pretrained("a/b"), args={2}("o", fp16=False)).train()
"""

TWICE = """
from transformers import AutoModel
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer
model = AutoModel.from_pretrained("a/b")
SFTTrainer(model=model, args=SFTConfig("o", save_steps=7, lr_scheduler_type="cosine")).train()
DPOTrainer(model=model, args=DPOConfig("p", save_steps=7, lr_scheduler_type="linear")).train()
"""

CLIPS = """
import re
import torch
from transformers import AutoModel
re.compile("a")
model = AutoModel.from_pretrained("a/b")
for step, batch in enumerate(batches):
    model(batch).loss.backward()
    if (step + 1) % 4 == 0:
        torch.nn.utils.clip_grad_norm_(model.parameters(), {})
"""

LOOP = """
import numpy as np
import torch
from model import Model
{imports}
model = Model()
for step in range(10):
    model(torch.zeros(1)).backward()
"""


@pytest.mark.parametrize(
    ("imports", "false", "open_keys"),
    [
        ("", {"training.imports_deepspeed", "training.imports_peft", "train.runs_trainer"}, set[str]()),
        ("import wandb", {"training.imports_datasets", "train.runs_peft"}, set[str]()),
        (
            "from transformers import GPT2LMHeadModel",
            {"training.imports_deepspeed", "training.imports_peft", "training.imports_datasets"},
            {"train.runs_trainer", "training.imports_transformers"},
        ),
        ("import deepspeed", {"training.imports_peft"}, {"training.imports_deepspeed"}),
        (
            "from transformers import Trainer, TrainingArguments",
            set[str](),
            {"training.imports_deepspeed", "training.imports_peft", "training.imports_datasets"},
        ),
        ("import a_library_of_somebody", set[str](), {"training.imports_deepspeed", "train.runs_trainer"}),
        (
            "import importlib\nimportlib.import_module('a')",
            set[str](),
            {"training.imports_deepspeed", "train.runs_trainer"},
        ),
    ],
)
def test_a_loop_of_its_own_runs_no_library_that_it_does_not_import(
    tmp_path: Path, imports: str, false: set[str], open_keys: set[str]
) -> None:
    files = {
        "run.sh": "torchrun --nproc_per_node=8 train.py --precision bf16 --micro_batch_size 4\n",
        "train.py": LOOP.format(imports=imports),
        "model.py": "import torch\n\nclass Model(torch.nn.Module): ...\n",
    }
    facts = {fact.key: fact.value for fact in read(tmp_path, files).facts}
    assert {facts[key] for key in false} <= {False}
    assert not open_keys & facts.keys()


@pytest.mark.parametrize(
    ("text", "stage", "offload"),
    [
        ("base_model: m\nadapter: lora\nsequence_len: 4\ndeepspeed: deepspeed_configs/zero3_bf16.json\n", 3, "none"),
        ("stage: dpo\nfinetuning_type: lora\ndeepspeed: /lf/examples/deepspeed/ds_z2_offload_config.json\n", 2, "cpu"),
    ],
)  # fmt: skip
def test_a_missing_file_that_the_trainer_ships_is_known(
    tmp_path: Path, text: str, stage: int, offload: str
) -> None:
    found = read(tmp_path, {"a.yaml": text})
    facts = {fact.key: fact.value for fact in found.facts}
    assert (facts["train.zero_stage"], facts["train.offload_optimizer"]) == (stage, offload)
    assert [each.code for each in found.remarks] == ["read-instead"]
    other = read(tmp_path, {"a.yaml": text}, {"axolotl": "0.4.1", "llamafactory": "0.8.0"})
    assert [each.code for each in other.remarks] == ["not-here"], "another release shipped other files"


def test_the_command_of_trl_names_a_configuration_that_it_ships(tmp_path: Path) -> None:
    text = "trl sft --model_name_or_path m --use_peft --accelerate_config zero3 --num_processes 4\n"
    found = read(tmp_path, {"run.sh": text})
    facts = {fact.key: fact.value for fact in found.facts}
    assert (facts["train.zero_stage"], facts["train.world_size"], facts["train.adapter"]) == (3, 4, "lora")
    assert found.remarks == ()
    for other in ("--accelerate_config mine/zero3", "--deepspeed zero3"):
        found = read(tmp_path, {"run.sh": text.replace("--accelerate_config zero3", other)})
        assert [each.code for each in found.remarks] == ["not-here"], "a file of the user's own"


def test_each_fact_of_a_script_names_the_line_that_states_it(tmp_path: Path) -> None:
    text = 'A="--bf16 True\n   --use_lora True"\ntorchrun --nproc_per_node 2 t.py $A \\\n  --zero_stage 3\n'
    sources = {fact.key: fact.source for fact in read(tmp_path, {"a.sh": text}).facts}
    lines = {key: int(source.split(":")[1]) for key, source in sources.items() if ":" in source}
    assert (lines["train.precision"], lines["train.adapter"], lines["train.zero_stage"]) == (1, 2, 4)


def test_a_script_that_starts_no_training_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing starts a training"):
        read(tmp_path, {"a.sh": "#!/bin/bash\npip install torch\n"})


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("torchrun a.py --x 'open\n", 1, "the quote is not closed"),
        ("if true; then\n  torchrun a.py --x 1\n", 3, "'elif' or 'else' or 'fi' is missing"),
        ("torchrun a.py --x 1\ndone\n", 2, "unexpected 'done'"),
        ("torchrun a.py --x ${A:-b\n", 1, "'}' is missing"),
        ("torchrun a.py\n" + "(" * 100, 2, "nested too deeply"),
    ],
)
def test_a_malformed_script_is_an_input_error_with_its_line(
    tmp_path: Path, text: str, line: int, problem: str
) -> None:
    with pytest.raises(InputError) as caught:
        read(tmp_path, {"a.sh": text})
    assert caught.value.where.startswith(f"{tmp_path}/a.sh:{line}:")
    assert problem in caught.value.problem


def test_thousands_of_prefixes_before_a_program_are_not_followed_without_end(tmp_path: Path) -> None:
    few = read(tmp_path, {"a.sh": "env " * 3 + "torchrun --nproc_per_node 2 t.py --zero_stage 3\n"})
    assert "train.zero_stage" in {fact.key for fact in few.facts}
    with pytest.raises(InputError, match="nothing starts a training"):
        read(tmp_path, {"b.sh": "env " * 5000 + "torchrun --nproc_per_node 2 t.py --zero_stage 3\n"})


# --- the shell ----------------------------------------------------------------------------------------


def words(text: str) -> list[list[str]]:
    """Return the arguments of each `go` command: an unknown word in brackets, with a star if it may be several."""
    found = follow(SourceLines(text, "a.sh"), lambda words: words[0].text == "go", frozenset())
    return [
        [f"[{word.text}{'*' * word.many}]" if word.why else word.text for word in command.words[1:]]
        for command in found.commands
    ]


@pytest.mark.parametrize(
    ("text", "given"),
    [
        ("A='x y'; go $A \"$A\" '$A' \"a$A\"b", ["x", "y", "x y", "$A", "ax yb"]),
        ("go $'a\\tb' \"a\\\"b\" a\\ b \"\" ''", ["a\tb", 'a"b', "a b", "", ""]),
        ("A=(1 '2 3'); A+=(4); go ${A[0]} \"${A[@]}\" ${#A[@]} ${A[*]}", ["1", "1", "2 3", "4", "3", "1", "2", "3", "4"]),
        ("A=1; B=${A:+set} C=${D:-no} E=${A-x}; go $B $C $E ${F:=kept} $F", ["set", "no", "1", "kept", "kept"]),
        ("A=2; go $((A * (3 + 4) / 2)) $(( -7 / 2 )) $((A<3))", ["7", "-3", "1"]),
        ('go $(echo a b) "$(echo a b)" `pwd` $(date)', ["a", "b", "a b", ".", "[$(date)*]"]),
        ('go $UNSET "$UNSET" a$UNSET', ["[$UNSET*]", "[$UNSET]", "[a$UNSET]"]),
        ("A=$(cat <<EOF\n  x\n  y z\nEOF\n)\ngo $A", ["x", "y", "z"]),
        ("read -r -d '' A <<'EOF'\na $B \\\n c\nEOF\ngo $A", ["a", "$B", "\\", "c"]),
        ("read -d '' A <<-EOF\n\ta \\\n\tb\n\tEOF\ngo $A", ["a", "b"]),
        ("f() { go $1 $#; }; f a b", ["a", "2"]),
        ("A=1; (A=2); { A=3; }; go $A", ["3"]),
        ("A=1; unset A; go ${A:-gone}", ["gone"]),
        ("[ 3 -gt 2 ] && A=yes || A=no; go $A", ["yes"]),
        ("if [[ abc == a* && ! -z x ]]; then A=1; else A=2; fi; go $A", ["1"]),
        ("if [ -e /x ]; then A=1; B=2; else A=3; B=2; fi; go $A $B", ["[$A*]", "2"]),
        ("if [ -e /x ]; then exit 1; fi; A=1; go $A", ["1"]),
        ("case b in a) A=1;; b|c) A=2;; *) A=3;; esac; go $A", ["2"]),
        ("case $X in a) A=1;; *) A=2;; esac; go $A", ["[$A*]"]),
        ("A=0; for i in 1 2; do A=$((A+1)); done; go $A", ["2"]),
        ("for i in one; do go $i; done", ["one"]),
        ("A=0; while [ $A -lt 3 ]; do A=$((A+1)); done; go $A", ["[$A*]"]),
        ("eval \"go 'a b' $X\"", ["a b", "[$X*]"]),
        ("bash -c 'go a \"b c\"'", ["a", "b c"]),
        ("nohup env A=1 time go a > log 2>&1 &", ["a"]),
        ("exec go a; go b", ["a"]),
        ("set -- a b; shift; go $1", ["b"]),
        ("A=x; A=y go $A", ["x"]),
        ("go a # b", ["a"]),
        ("go a#b", ["a#b"]),
        ("go a 2>/dev/null <in >>out b", ["a", "b"]),
        ('go ${1:-d} "$@" $*', ["d"]),
        ("go ${A%/*} ${#B}", ["[${A%/*}*]", "[${#B}*]"]),
    ],
)  # fmt: skip
def test_words_are_expanded_as_a_shell_expands_them(text: str, given: list[str]) -> None:
    (found,) = words(text)
    assert found == given


def test_both_branches_of_an_undecided_condition_are_followed() -> None:
    assert words("if [ -e a ]; then go 1; else go 2; fi") == [["1"], ["2"]]
    assert words("if [ 1 = 1 ]; then go 1; else go 2; fi") == [["1"]]


def test_positions_are_lines_and_columns_from_one() -> None:
    lines = SourceLines("a\nbc\n", "a.sh")
    places = [lines.place(at, at + 1) for at in (0, 1, 2, 4)]
    assert [(place.line, place.column) for place in places] == [(1, 1), (1, 2), (2, 1), (2, 3)]


def facts_of(found: Configured) -> dict[str, Any]:
    """Return the known facts by name without `train.`."""
    return {fact.key.removeprefix("train."): fact.value for fact in found.facts if fact.value is not None}


ZERO = '{"zero_optimization": {"stage": %s}, "bf16": {"enabled": true}, "train_batch_size": $SIZE}'


def test_a_written_file_is_found_by_the_name_that_both_lines_spell(tmp_path: Path) -> None:
    job = f"cat > /out/${{SLURM_JOB_ID}}.json <<EOF\n{ZERO % 2}\nEOF\n"
    launch = "torchrun --nproc_per_node 2 t.py --deepspeed /out/${SLURM_JOB_ID}.json\n"
    found = facts_of(read(tmp_path, {"job.sh": job + launch}))
    assert (found["zero_stage"], found["precision"]) == (2, "bf16")


def test_a_file_that_is_written_twice_states_only_what_both_texts_agree_on(tmp_path: Path) -> None:
    writes = "".join(f"cat > z.json <<EOF\n{ZERO % stage}\nEOF\n" for stage in (2, 3))
    found = read(tmp_path, {"job.sh": f"{writes}deepspeed t.py --deepspeed z.json\n"})
    facts = {fact.key: fact for fact in found.facts}
    assert isinstance(facts["train.zero_stage"].reading, Unknown)
    assert facts["train.precision"].value == "bf16"


def test_yaml_that_a_script_writes_is_a_configuration(tmp_path: Path) -> None:
    job = (
        "cat > c.yaml <<EOF\nmodel_name_or_path: m\nbf16: true\nloss_type: $LOSS\nmax_prompt_length: 8\nEOF\n"
    )
    found = facts_of(read(tmp_path, {"job.sh": f"{job}trl dpo --config c.yaml\n"}))
    assert (found["trainer"], found["precision"]) == ("trl", "bf16")


HYDRA = (
    '@hydra.main(config_path="config", config_name="ppo_trainer", version_base=None)\ndef main(config): ...\n'
)


@pytest.mark.parametrize(
    ("given", "checkpointing"),
    [("", False), (" actor_rollout_ref.model.enable_gradient_checkpointing=True", True)],
)
def test_a_checkout_of_verl_gives_the_defaults_of_its_own_yaml(
    tmp_path: Path, given: str, checkpointing: bool
) -> None:
    yaml = "actor_rollout_ref:\n  model:\n    enable_gradient_checkpointing: false\n  rollout: {name: vllm}\n"
    files = {
        "run.sh": f"python -m verl.trainer.main_ppo data.train_batch_size=8{given}\n",
        "verl/trainer/main_ppo.py": f"import hydra\n{HYDRA}",
        "verl/trainer/config/ppo_trainer.yaml": yaml,
    }
    assert facts_of(read(tmp_path, files))["gradient_checkpointing"] is checkpointing


@pytest.mark.parametrize(
    ("given", "micro_batch", "codes"),
    [
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=null", None, []),
        ("+actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=null", None, []),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4", 4, []),
        ("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=four", None, ["wrong-value"]),
    ],
)
def test_null_unsets_an_override_of_hydra(
    tmp_path: Path, given: str, micro_batch: int | None, codes: list[str]
) -> None:
    found = read(
        tmp_path, {"run.sh": f"python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo {given}\n"}
    )
    assert facts_of(found).get("micro_batch_size") == micro_batch
    assert [each.code for each in found.remarks if each.code == "wrong-value"] == codes


MODEL = "AutoModelForCausalLM.from_pretrained(args.model)"


@pytest.mark.parametrize(
    ("line", "frozen"),
    [
        ("print(sum(p.numel() for p in model.parameters() if p.requires_grad))", False),
        ("model.get_input_embeddings().requires_grad_(True)", False),
        ("for p in model.visual.parameters(): p.requires_grad = False", True),
        ("model.visual.requires_grad_(False)", True),
    ],
)
def test_code_that_only_counts_parameters_freezes_none(
    tmp_path: Path, line: str, frozen: bool | None
) -> None:
    code = (
        f"from transformers import AutoModelForCausalLM, Trainer\nmodel = {MODEL}\n{line}\nTrainer(model)\n"
    )
    files = {"run.sh": "torchrun --nproc_per_node 2 -m my-train --bf16 --save_steps 5\n", "my-train.py": code}
    assert facts_of(read(tmp_path, files)).get("frozen_params") is frozen


@pytest.mark.parametrize("model", ["Qwen2.5-VL-7B", "Qwen2.5-7B"])
def test_the_name_of_a_vision_model_freezes_nothing_where_the_code_cannot(tmp_path: Path, model: str) -> None:
    code = "from trl import GRPOTrainer\nGRPOTrainer(args.model)\n"
    arguments = f"--model_name_or_path {model} --bf16 --num_generations 8"
    files = {"run.sh": f"accelerate launch src/grpo_vl.py {arguments}\n", "src/grpo_vl.py": code}
    assert facts_of(read(tmp_path, files))["frozen_params"] is False


@pytest.mark.parametrize(
    ("trainer", "method"),
    [
        ("OnlineDPOTrainer", "online_dpo"),
        ("DPOTrainer", "dpo"),
        ("XPOTrainer", "online_dpo"),
        ("BCOTrainer", None),
    ],
)
def test_the_class_of_the_trainer_is_the_method(tmp_path: Path, trainer: str, method: str | None) -> None:
    code = f"from trl import {trainer}\n{trainer}(args.model)\n"
    files = {"run.sh": "accelerate launch train.py --bf16 --output_dir o --beta 0.1\n", "train.py": code}
    assert facts_of(read(tmp_path, files)).get("method") == method


def test_modules_of_a_project_are_found_below_src(tmp_path: Path) -> None:
    files = {
        "run.sh": "torchrun --nproc_per_node 2 examples/train.py --fp16 --save_steps 5\n",
        "examples/train.py": "from pack.trainer import Own\nOwn(model=None)\n",
        "src/pack/trainer.py": "from transformers import Trainer\n\n\nclass Own(Trainer):\n    pass\n",
    }
    found = facts_of(read(tmp_path, files))
    assert (found["trainer"], found["adapter"], found["quantization"]) == ("transformers", "none", "none")


def test_the_program_of_a_launcher_may_be_an_argument_of_the_script(tmp_path: Path) -> None:
    text = "SCRIPT=$1\nZERO=$2\ntorchrun --nproc_per_node 8 --nnodes=${3} $SCRIPT --bf16 True --deepspeed $ZERO\n"
    found = facts_of(read(tmp_path, {"run.sh": text}))
    assert (found["precision"], found["parallel"]) == ("bf16", "deepspeed")


def test_a_program_named_like_one_of_trl_is_not_its_own_without_the_package(tmp_path: Path) -> None:
    code = "from accelerate import Accelerator\nAccelerator()\n"
    files = {"run.sh": "accelerate launch mine/sft.py --base_model m --lr 1\n", "mine/sft.py": code}
    assert facts_of(read(tmp_path, files)).get("trainer") != "trl"


def test_a_program_that_makes_deepspeed_engines_is_parallel_by_deepspeed(tmp_path: Path) -> None:
    files = {
        "run.sh": "deepspeed --module pack.sft --model_name_or_path m --output_dir o\n",
        "pack/sft.py": "from pack.base import Base\nBase()\n",
        "pack/base.py": "import deepspeed\n\n\nclass Base:\n    def go(self):\n        deepspeed.initialize()\n",
    }
    assert facts_of(read(tmp_path, files))["parallel"] == "deepspeed"


@pytest.mark.parametrize(("release", "codes"), [("0.19.8", ["removed-feature"]), ("0.19.7", []), ("", [])])
def test_names_of_removed_features_are_mistakes_from_their_release_on(
    tmp_path: Path, release: str, codes: list[str]
) -> None:
    text = '{"zero_optimization": {"stage": 2}, "amp": {"enabled": false}, "train_batch_size": 8}'
    found = read(tmp_path, {"ds.json": text}, {"deepspeed": release} if release else {})
    assert [each.code for each in found.remarks] == codes


def test_yaml_in_braces_need_not_be_json(tmp_path: Path) -> None:
    text = '{\n  # a comment\n  "zero_optimization": {"stage": 1, "overlap_comm": True},\n  "fp16": {"enabled": true},\n}\n'
    found = facts_of(read(tmp_path, {"neox.yml": text}))
    assert (found["zero_stage"], found["precision"]) == (1, "fp16")


@pytest.mark.parametrize("value", ["visual", "10"])
def test_what_an_option_names_to_freeze_does_not_train(tmp_path: Path, value: str) -> None:
    launch = f"python -m openrlhf.cli.train_ppo_ray --pretrain m --zero_stage 2 --freeze_prefix {value}\n"
    found = facts_of(read(tmp_path, {"run.sh": launch}))
    assert (found["frozen_params"], found["adapter"]) == (True, "none")


@pytest.mark.parametrize(
    ("release", "more", "precision"),
    [
        ("0.8.0", "--load_in_4bit", "fp32"),
        ("0.8.0", "--load_in_4bit --bf16", "bf16"),
        ("0.8.0", "", None),  # that of the checkpoint
        ("0.9.2", "--load_in_4bit", "bf16"),
        ("0.9.2", "--param_dtype fp16", "fp16"),
    ],
)
def test_openrlhf_trains_in_bf16_by_default_from_0_9_2_on(
    tmp_path: Path, release: str, more: str, precision: str | None
) -> None:
    launch = f"deepspeed --module openrlhf.cli.train_sft --pretrain m --zero_stage 2 {more}\n"
    found = facts_of(read(tmp_path, {"run.sh": launch}, {"openrlhf": release}))
    assert found.get("precision") == precision


@pytest.mark.parametrize(
    ("task", "wrapped"),
    [
        ("TaskType.SEQ_CLS", True),
        ('"TOKEN_CLS"', True),
        ("TaskType.CAUSAL_LM", None),
        ('"SEQ_2_SEQ_LM"', None),
    ],
)
def test_peft_trains_the_head_of_a_classifier_whole(
    tmp_path: Path, task: str, *, wrapped: bool | None
) -> None:
    code = (
        "from peft import LoraConfig, TaskType, get_peft_model\n"
        "from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments\n"
        'model = AutoModelForSequenceClassification.from_pretrained("m")\n'
        f"model = get_peft_model(model, LoraConfig(task_type={task}, r=8))\n"
        'Trainer(model=model, args=TrainingArguments(output_dir="o")).train()\n'
    )
    found = facts_of(read(tmp_path, {"run.sh": "torchrun train.py\n", "train.py": code}))
    assert (found["adapter"], found.get("modules_to_save")) == ("lora", wrapped)


@pytest.mark.parametrize(
    ("options", "wrapped"),
    [("--use_peft --lora_task_type SEQ_CLS", True), ("--lora_task_type SEQ_CLS", None), ("--use_peft", None)],
)
def test_a_reward_model_of_trl_has_its_head_trained_whole_by_peft(
    tmp_path: Path, options: str, *, wrapped: bool | None
) -> None:
    launch = f"trl reward --model_name_or_path m --dataset_name d {options}\n"
    found = facts_of(read(tmp_path, {"run.sh": launch}, {"trl": "1.0.0"}))
    assert found.get("modules_to_save") == wrapped


def test_the_folder_that_cd_and_pwd_print_is_followed(tmp_path: Path) -> None:
    files = {
        "jobs/run.sh": 'TOP=$(cd -- "$(dirname -- "$0")/.." && pwd)\ntorchrun t.py --deepspeed $TOP/z.json\n',
        "z.json": '{"zero_optimization": {"stage": 1}}',
    }
    assert facts_of(read(tmp_path, files))["zero_stage"] == 1


def test_a_comment_continues_nothing(tmp_path: Path) -> None:
    code = "from transformers import Trainer, TrainingArguments\nTrainer(args=TrainingArguments(fp16=True))\n"
    files = {
        "run.sh": "# torchrun --nproc_per_node 2 \\\n  python3 mine.py --base_model m\n",
        "mine.py": code,
    }
    found = facts_of(read(tmp_path, files))
    assert (found["trainer"], found["precision"]) == ("transformers", "fp16")


@pytest.mark.parametrize(("model", "frozen"), [("Qwen/Qwen3-8B", False), ("Qwen/Qwen3-VL-8B", True)])
def test_llamafactory_freezes_only_towers_that_a_model_has(tmp_path: Path, model: str, frozen: bool) -> None:
    text = f"model_name_or_path: {model}\nstage: sft\nfinetuning_type: full\nfreeze_vision_tower: true\n"
    assert facts_of(read(tmp_path, {"sft.yaml": f"{text}template: qwen\n"}))["frozen_params"] is frozen


@pytest.mark.parametrize(
    ("package", "trainer"), [("llamafactory.train.tuner", "llamafactory"), ("utils", None)]
)
def test_a_program_with_llamafactorys_options_is_its_own_only_with_the_package(
    tmp_path: Path, package: str, trainer: str | None
) -> None:
    options = "--stage sft --finetuning_type lora --template q --fp16 --save_steps 5 --logging_steps 1"
    files = {
        "run.sh": f"python src/train.py {options}\n",
        "src/train.py": f"from {package} import run\nrun()\n",
    }
    assert facts_of(read(tmp_path, files)).get("trainer") == trainer


def test_an_azure_job_starts_in_the_folder_of_its_code(tmp_path: Path) -> None:
    job = "$schema: https://azuremlschemas.azureedge.net/latest/commandJob.schema.json\ncode: src\n"
    files = {
        "job.yml": f"{job}command: python train.py --deepspeed --deepspeed_config ds.json\n",
        "src/ds.json": '{"train_batch_size": 8, "fp16": {"enabled": true}}',
    }
    assert facts_of(read(tmp_path, files))["precision"] == "fp16"


def test_a_dictionary_that_code_changes_is_read_as_changed(tmp_path: Path) -> None:
    code = 'import deepspeed\nds = {"bf16": {"enabled": True}}\n%s\ndeepspeed.initialize(config=ds)\n'
    for change, stage in (("", 0), ('ds["zero_optimization"] = {"stage": 3}', 3)):
        assert facts_of(read(tmp_path, {"t.py": code % change})).get("zero_stage") == stage


AXOLOTL = "base_model: m\nsequence_len: 2048\nmicro_batch_size: 1\nnum_epochs: 1\n"


@pytest.mark.parametrize(
    ("fsdp", "release", "parallel", "codes"),
    [
        ("fsdp_config:\n  offload_params: false\n", "0.19.0", "fsdp1", []),
        ("fsdp_config:\n  offload_params: false\n", "0.20.0", "fsdp2", []),
        ("fsdp_config:\n  offload_params: false\n", "", None, []),
        ("fsdp: [full_shard, auto_wrap]\n", "0.19.0", "fsdp1", []),
        ("fsdp: [full_shard, auto_wrap]\n", "0.20.0", "fsdp1", ["fsdp1-removed"]),
        ("fsdp_config:\n  fsdp_version: 2\n", "", "fsdp2", []),
        ("fsdp_version: 1\nfsdp_config:\n  offload_params: false\n", "0.21.0", "fsdp1", ["fsdp1-removed"]),
    ],
)
def test_axolotl_removed_fsdp1(
    tmp_path: Path, fsdp: str, release: str, parallel: str | None, codes: list[str]
) -> None:
    found = read(tmp_path, {"c.yaml": AXOLOTL + fsdp}, {"axolotl": release} if release else {})
    assert (facts_of(found).get("parallel"), [each.code for each in found.remarks]) == (parallel, codes)


def test_axolotls_float16_without_mixed_precision_computes_in_it(tmp_path: Path) -> None:
    assert facts_of(read(tmp_path, {"c.yaml": f"{AXOLOTL}float16: true\n"}))["precision"] == "fp16"


def test_fsdps_version_may_be_a_number_in_json(tmp_path: Path) -> None:
    text = "torchrun --nproc_per_node 8 t.py --bf16 --fsdp 'auto_wrap full_shard' --fsdp_config '{\"fsdp_version\": 2}'\n"
    found = read(tmp_path, {"run.sh": text})
    assert facts_of(found)["parallel"] == "fsdp2"
    assert not [each for each in found.remarks if each.severity.value == "error"]


def test_a_file_that_a_section_names_is_read(tmp_path: Path) -> None:
    text = "model: m\nmodel_class: llm\ntrain_dataset: d\ndist_config:\n  name: deepspeed\n  config_file: z.json\n"
    files = {"v1.yaml": text, "z.json": '{"zero_optimization": {"stage": 3}}'}
    assert facts_of(read(tmp_path, files))["zero_stage"] == 3


def test_a_configuration_of_litgpt(tmp_path: Path) -> None:
    lora = "lora_r: 32\nlora_alpha: 16\nquantize: bnb.nf4\n"
    text = "checkpoint_dir: c\nout_dir: o\nprecision: bf16-true\ndevices: 1\ntrain:\n  micro_batch_size: 2\n"
    found = facts_of(read(tmp_path, {"qlora.yaml": text + lora}))
    assert (found["trainer"], found["adapter"], found["quantization"]) == ("custom", "lora", "nf4")
    assert facts_of(read(tmp_path, {"full.yaml": text}))["adapter"] == "none"


def test_a_name_of_a_package_is_not_a_module_that_cannot_be_read(tmp_path: Path) -> None:
    files = {
        "run.sh": "torchrun --nproc_per_node 2 pack/train.py --fp16 --save_steps 5 --logging_steps 1\n",
        "pack/train.py": "from . import listed\nthink_prefix = listed\n",
        "pack/__init__.py": "listed = 1\n",
    }
    assert facts_of(read(tmp_path, files))["adapter"] == "none"


def test_a_program_takes_literals_from_a_module_of_settings(tmp_path: Path) -> None:
    code = (
        "from transformers import AutoModelForCausalLM, BitsAndBytesConfig, Trainer, TrainingArguments\n"
        "from configs import settings as cfg\n"
        "bnb = BitsAndBytesConfig(load_in_4bit=cfg.use_4bit, bnb_4bit_quant_type=cfg.quant_type)\n"
        "model = AutoModelForCausalLM.from_pretrained('m', quantization_config=bnb)\n"
        "Trainer(model, TrainingArguments('o', fp16=cfg.fp16)).train()\n"
    )
    files = {
        "run.sh": "python train.py --model-name m\n",
        "train.py": code,
        "configs/settings.py": "use_4bit = True\nquant_type = 'nf4'\nfp16 = True\n",
    }
    found = facts_of(read(tmp_path, files))
    assert (found["quantization"], found["precision"]) == ("nf4", "fp16")


@pytest.mark.parametrize(
    ("condition", "frozen"), [("'projector' not in name", True), ("args.freeze", None), ("True", None)]
)
def test_a_loop_over_parameters_freezes_some(tmp_path: Path, condition: str, frozen: bool | None) -> None:
    code = (
        "from transformers import Trainer\n\n\ndef train():\n    for name, p in model.named_parameters():\n"
        f"        if {condition}:\n            p.requires_grad = False\n    Trainer(model).train()\n"
    )
    files = {"run.sh": "torchrun --nproc_per_node 2 t.py --bf16 --save_steps 5\n", "t.py": code}
    assert facts_of(read(tmp_path, files)).get("frozen_params") is frozen


@pytest.mark.parametrize(
    ("mark", "attention"),
    [
        ("project/.git/HEAD", "sdpa"),
        ("project/setup.py", "sdpa"),
        ("project/scripts/pyproject.toml", None),
        ("", None),
    ],
)
def test_a_program_is_searched_for_up_to_the_top_of_its_project(
    tmp_path: Path, mark: str, attention: str | None
) -> None:
    model = 'AutoModel.from_pretrained("m", attn_implementation="sdpa")'
    files = {
        "project/scripts/llm/run.sh": "python train.py --bf16 True --output_dir o --learning_rate 1e-5\n",
        "project/train.py": f"from transformers import AutoModel, Trainer\nTrainer({model}).train()\n",
    }
    facts = {fact.key: fact.value for fact in read(tmp_path, {**files, **({mark: ""} if mark else {})}).facts}
    assert facts.get("train.attention") == attention


def test_a_value_of_a_file_that_the_program_parses_has_its_place_in_the_file(tmp_path: Path) -> None:
    files = {
        "run.sh": "accelerate launch run_sft.py sft.yaml\n",
        "sft.yaml": "model_name_or_path: m\nbf16: true\noptim: adamw_8bit\n",
        "run_sft.py": "from dataclasses import dataclass\nfrom transformers import HfArgumentParser, TrainingArguments\n"
        "from trl import SFTTrainer\n@dataclass\nclass Own(TrainingArguments):\n    optim: str = 'adamw_torch'\n"
        "arguments, = HfArgumentParser(Own).parse_args_into_dataclasses()\nSFTTrainer('m', args=arguments).train()\n",
    }
    facts = {fact.key: fact for fact in read(tmp_path, files).facts}
    assert facts["train.optimizer"].value == "adamw_8bit"
    assert facts["train.optimizer"].source.endswith("sft.yaml:3: optim")
    assert facts["train.precision"].source.endswith("sft.yaml:2: bf16")


def test_a_folder_that_the_script_changes_to_shows_where_it_is_started(tmp_path: Path) -> None:
    files = {
        "scripts/run.sh": "cd src/train\ntorchrun --nproc_per_node 2 t.py --bf16 True --deepspeed z.json\n",
        "src/train/z.json": '{"zero_optimization": {"stage": 1}}',
        "z.json": '{"zero_optimization": {"stage": 3}}',
    }
    facts = {fact.key: fact.value for fact in read(tmp_path, files).facts}
    assert facts["train.zero_stage"] == 1


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "sft.yaml",
            "output_dir: o\nper_device_train_batch_size: 1\nsave_steps: 9\nreport_to: [wandb, mlflow]\n",
        ),
        (
            "sft.py",
            'from transformers import *\nTrainer(args=TrainingArguments("o", report_to=["wandb", "mlflow"]))\n',
        ),
    ],
)
def test_every_tracker_of_a_list_is_read(tmp_path: Path, name: str, text: str) -> None:
    assert facts_of(read(tmp_path, {name: text}))["report_to"] == ("wandb", "mlflow")


TRAINS = "from trl import SFTConfig, SFTTrainer\nSFTTrainer(args=SFTConfig(bf16=True)).train()\n"
MEASURES = "import torch\nfrom trl import SFTConfig\nfrom data import load\nprint(SFTConfig, torch.no_grad, load())\n"


@pytest.mark.parametrize(
    ("other", "files"),
    [
        ("accelerate launch --multi_gpu --num_processes 4 scripts/log_probabilities.py", {"scripts/log_probabilities.py": MEASURES}),
        ("python scripts/fill_index.py --model m", {}),
        ("CUDA_VISIBLE_DEVICES=0 vllm serve m &", {}),
        ("huggingface-cli download m --local-dir m", {}),
        ("python -m sglang.launch_server --model-path m &", {}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("first", [True, False])
def test_of_several_programs_the_one_that_trains_counts(
    tmp_path: Path, other: str, files: dict[str, str], first: bool
) -> None:
    train = "accelerate launch --use_deepspeed --zero_stage 3 --num_processes 8 scripts/run_it.py"
    lines = [other, train] if first else [train, other]
    text = "#!/bin/bash\n" + "\n".join(lines) + "\n"
    found = read(tmp_path, {"run.sh": text, "scripts/run_it.py": TRAINS, **files})
    facts = {fact.key: fact.value for fact in found.facts}
    assert (facts["train.parallel"], facts["train.zero_stage"]) == ("deepspeed", 3)
    assert "several-launches" not in {remark.code for remark in found.remarks}


def test_two_programs_that_train_state_what_they_agree_on(tmp_path: Path) -> None:
    text = """#!/bin/bash
    accelerate launch --use_deepspeed --zero_stage 3 train_sft.py --bf16 true --learning_rate 1e-5
    accelerate launch --use_deepspeed --zero_stage 2 train_dpo.py --bf16 true --learning_rate 1e-6
    """
    facts = {fact.key: fact.value for fact in read(tmp_path, {"run.sh": text}).facts}
    assert (facts["train.parallel"], facts["train.zero_stage"]) == ("deepspeed", None)
