"""Scripts that write, source and start other scripts, and programs that leave an option without effect."""

from __future__ import annotations

from pathlib import Path

import pytest

from envcheck.core.errors import InputError
from tests.support.launches import known_facts as facts

TRAIN = "torchrun --nproc_per_node 4 train.py --output_dir out --num_train_epochs 1"
WRITTEN = """ROOT=$(cd "$(dirname "$0")" && pwd)
JOB="$ROOT/job_$(date +%s).sh"
cat > "$JOB" <<EOF
cd "$ROOT/sub"
bash inner.sh --save_steps 3
EOF
"""
INNER = {"sub/inner.sh": f'{TRAIN} --bf16 true "$@"\n'}
PROGRAM = """import argparse
import torch
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
parser = argparse.ArgumentParser()
parser.add_argument("--attn_implementation", default=None)
parser.add_argument("--output_dir")
args = parser.parse_args()
model = AutoModelForCausalLM.from_pretrained("m"{given})
Trainer(model=model, args=TrainingArguments(output_dir=args.output_dir)).train()
"""


@pytest.mark.parametrize(
    "start",
    [
        'bash "$JOB"',
        'sbatch --gres=gpu:4 "$JOB"',
        'queue-job -i -J "x/y" --time 4:00:00 --pty bash "$JOB" "$@"',
        'queue-job --gpus 4 -- bash "$JOB"',
    ],
)
def test_a_script_that_the_script_wrote_is_followed(tmp_path: Path, start: str) -> None:
    found = facts(tmp_path, {"run.sh": f"{WRITTEN}{start}\n", **INNER})
    assert (found["precision"], found["world_size"]) == ("bf16", 4)


ONE_JOB = "cat > j.sh <<EOF\n{train} --seed $b {more}\nEOF\n"
TWICE = "if [ $A = b ]; then\n{one}else\n{other}fi\nsbatch j.sh\n"


def test_a_script_that_a_loop_writes_is_followed(tmp_path: Path) -> None:
    job = ONE_JOB.format(train=TRAIN, more="--bf16 true\nsbatch j.sh")  # it queues itself again
    script = f"for b in 1 2 3 4 5 6; do\n{job}sbatch j.sh\ndone\n"
    assert facts(tmp_path, {"run.sh": script})["precision"] == "bf16"


def test_a_script_that_branches_write_differently_is_either(tmp_path: Path) -> None:
    one, other = (ONE_JOB.format(train=TRAIN, more=f"--{name} true") for name in ("bf16", "fp16"))
    found = facts(tmp_path, {"run.sh": TWICE.format(one=one, other=other)})
    assert (found["world_size"], found.get("precision")) == (4, None)


@pytest.mark.parametrize("start", ['echo bash "$JOB"', 'rsync -a bash "$JOB"', 'chmod +x "$JOB"'])
def test_a_script_that_is_only_named_is_not(tmp_path: Path, start: str) -> None:
    script = f"{WRITTEN}{start}\n{TRAIN} --fp16 true\n"
    assert facts(tmp_path, {"run.sh": script, **INNER})["precision"] == "fp16"


@pytest.mark.parametrize(
    ("line", "rank"),
    [
        ("[ -f .env ] && source .env", 8),
        ("if [[ -e .env ]]; then source .env; fi", 8),
        ("source .env", None),  # a script that cannot do without it may be given anything by it
    ],
)
def test_an_optional_file_that_is_not_here_sets_nothing(tmp_path: Path, line: str, rank: object) -> None:
    script = f'R=8\n{line}\n{TRAIN} --lora_rank "${{R:-4}}"\n'
    assert facts(tmp_path, {"run.sh": script}).get("lora_rank") == rank


def test_an_optional_file_that_is_here_counts(tmp_path: Path) -> None:
    script = f'R=8\n[ -f .env ] && source .env\n{TRAIN} --lora_rank "$R"\n'
    assert facts(tmp_path, {"run.sh": script, ".env": "R=16\n"})["lora_rank"] == 16


def test_variables_in_front_of_a_script_are_its_own(tmp_path: Path) -> None:
    inner = f'{TRAIN} --lora_rank "${{LORA_RANK:-0}}"\n'
    found = facts(tmp_path, {"run.sh": "LORA_RANK=64 sbatch inner.sh\n", "inner.sh": inner})
    assert (found["lora_rank"], found["adapter"]) == (64, "lora")


def test_a_rank_of_zero_trains_no_adapter(tmp_path: Path) -> None:
    options = "--lora_rank 0 --lora_alpha 16 --lora_target_modules q_proj"
    assert facts(tmp_path, {"run.sh": f"{TRAIN} {options}\n"})["adapter"] == "none"


def test_a_file_that_is_sourced_leaves_the_folder(tmp_path: Path) -> None:
    script = "cd setup\nsource dependencies.sh\nsource token.sh\ncd ../src\nbash inner.sh\n"
    files = {"run.sh": script, "setup/dependencies.sh": "P=fp16\n", "src/inner.sh": f"{TRAIN} --fp16 true\n"}
    assert facts(tmp_path, files)["precision"] == "fp16"


def test_words_added_where_a_file_exists_leave_the_others_known(tmp_path: Path) -> None:
    script = (
        'case "$1" in a) D="${D:-/x}/q" ;; b) D=/y ;; *) exit 1 ;; esac\n'
        f'CMD=({TRAIN} --bf16 true)\nif [[ -f "$D/t" ]]; then CMD+=(--eval_file "$D/t"); fi\n"${{CMD[@]}}"\n'
    )
    assert facts(tmp_path, {"run.sh": script})["precision"] == "bf16"


@pytest.mark.parametrize(
    ("option", "parallel", "stage"), [("--multi_gpu", "ddp", None), ("", "deepspeed", 3)]
)
def test_an_option_of_accelerate_leaves_a_section_without_effect(
    tmp_path: Path, option: str, parallel: str, stage: object
) -> None:
    config = "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config:\n  zero_stage: 3\n"
    script = f"accelerate launch {option} --config_file a.yaml --num_processes 2 train.py\n"
    found = facts(tmp_path, {"run.sh": script, "a.yaml": config})
    assert (found["parallel"], found.get("zero_stage"), found["precision"]) == (parallel, stage, "bf16")


@pytest.mark.parametrize(
    ("given", "attention"),
    [
        ("", None),
        (", attn_implementation=args.attn_implementation", "flex_attention"),
        (", **x()", "flex_attention"),
    ],
)
def test_an_attention_that_the_program_does_not_pass_on_is_not_claimed(
    tmp_path: Path, given: str, attention: object
) -> None:
    script = "python train.py --output_dir out --attn_implementation flex_attention\n"
    found = facts(tmp_path, {"run.sh": script, "train.py": PROGRAM.replace("{given}", given)})
    assert found.get("attention") == attention


def test_profiles_of_a_file_do_not_count(tmp_path: Path) -> None:
    text = """lora:
  r: 16
training:
  use_lora: true
  per_device_train_batch_size: 4
  num_train_epochs: 3
  learning_rate: 1e-4
profiles:
  full:
    training:
      use_lora: false
      per_device_train_batch_size: 1
      num_train_epochs: 5
      learning_rate: 1e-5
"""
    found = facts(tmp_path, {"c.yaml": text})
    assert (found["adapter"], found["micro_batch_size"]) == ("lora", 4)


def test_a_package_that_is_installed_from_a_folder_is_followed(tmp_path: Path) -> None:
    program = (
        "from tools.parts import model\nfrom transformers import Trainer\nTrainer(model=model()).train()\n"
    )
    parts = (
        "from peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM\n"
        "def model():\n    return get_peft_model(AutoModelForCausalLM.from_pretrained('m'), LoraConfig(r=4))\n"
    )
    files = {"scripts/train.py": program, "tools/setup.py": "", "tools/tools/parts.py": parts}
    assert facts(tmp_path, files)["adapter"] == "lora"


def test_two_branches_that_make_a_trainer_make_one(tmp_path: Path) -> None:
    program = """import os
from transformers import AutoModelForCausalLM, Trainer
if os.path.exists("saved"):
    trainer = Trainer(model=AutoModelForCausalLM.from_pretrained("saved"))
else:
    trainer = Trainer(model=AutoModelForCausalLM.from_pretrained("m"), train_dataset=[1])
trainer.train()
"""
    assert facts(tmp_path, {"train.py": program})["trainer"] == "transformers"


@pytest.mark.parametrize(("body", "trainer"), [("work(args)", None), ("work(Trainer, args)", "transformers")])
def test_options_of_the_program_itself_prove_no_trainer(tmp_path: Path, body: str, trainer: object) -> None:
    program = f"""import argparse
from remote_service import Trainer, work
parser = argparse.ArgumentParser()
parser.add_argument("--logging_steps", type=int, default=10)
parser.add_argument("--save_steps", type=int, default=10)
parser.add_argument("--bf16", default="false")
args = parser.parse_args()
{body}
"""
    if trainer is None:
        program = program.replace("Trainer, ", "")
    script = "python train.py --output_dir out --num_train_epochs 1 --logging_steps 5 --save_steps 10 --bf16 true\n"
    assert facts(tmp_path, {"run.sh": script, "train.py": program}).get("trainer") == trainer


@pytest.mark.parametrize(
    ("command", "starts"),
    [
        ("submit_job --gpu 8 -c \"bash -c 'cd here; $RUN'\"", True),
        ("cluster --command 'bash -lc \"llamafactory-cli train c.yaml\"'", True),
        ("echo -c \"bash -c '$RUN'\"", False),
        ("note --text \"bash -c '$RUN'\"", False),
    ],
)
def test_a_clusters_command_is_given_a_text_for_a_shell(tmp_path: Path, command: str, starts: bool) -> None:
    script = f'RUN="llamafactory-cli train c.yaml"\n{command}\n'
    recipe = "stage: sft\nfinetuning_type: lora\nmodel_name_or_path: m\ntemplate: qwen\nbf16: true\n"
    files = {"run.sh": script, "c.yaml": recipe}
    if not starts:
        with pytest.raises(InputError):
            facts(tmp_path, files)
        return
    found = facts(tmp_path, files)
    assert (found["trainer"], found["adapter"]) == ("llamafactory", "lora")
