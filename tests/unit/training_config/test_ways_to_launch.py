"""Ways in which people start a training: each text states the facts of the command inside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envcheck.commands.training_files import configured
from envcheck.core.errors import InputError
from envcheck.core.facts import Unknown
from tests.support.launches import SHARED
from tests.support.launches import known_facts as facts

ARGUMENTS = (
    "--model_name_or_path m --bf16 true --use_peft --per_device_train_batch_size 1 --deepspeed ds.json"
)
COMMAND = f"torchrun --nproc_per_node 4 train.py {ARGUMENTS}"
PLAIN = f"python train.py {ARGUMENTS}"
FILES = {"ds.json": '{"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}}'}
MEANT = {
    "parallel": "deepspeed",
    "zero_stage": 3,
    "offload_param": "cpu",
    "precision": "bf16",
    "adapter": "lora",
}


SHELL = {
    "sbatch with the command in its option": f'sbatch --gres=gpu:4 --wrap="{COMMAND}"',
    "tmux with the command as a text": f'tmux new-session -d -s a "{COMMAND}"',
    "a remote shell": f"ssh node1 'cd work; {COMMAND}'",
    "SkyPilot": f"sky exec cluster '{COMMAND}'",
    "a pod": f"kubectl exec pod -- bash -c '{COMMAND}'",
    "pixi": f"pixi run -e cuda {COMMAND}",
    "a container": f'docker run --gpus all image:1 bash -c "pip install -r r.txt && {COMMAND}"',
    "a container of a job, whose number is not known": (
        f'TEXT="{COMMAND}"\nsrun --jobid $SLURM_JOB_ID --container-image=i.sqsh bash -lc "$TEXT"'
    ),
    "a session that is sent keys": f"tmux send-keys -t a '{COMMAND}' C-m",
    "a recorded session": f'script -q -c "{COMMAND}" log',
    "a machine of a cloud": f"gcloud compute ssh a --command='cd work && {COMMAND}'",
    "a container of Podman on a cluster": f'podman-hpc run --rm --gpu image bash -c "{COMMAND}"',
    "a shell for each argument": f"seq 3 | xargs -P 1 -I % sh -c '{COMMAND} --seed %'",
    "GNU parallel with a place for the argument": f"parallel -j 1 {COMMAND} --seed {{}} ::: 1 2 3",
    "MPI": f"mpirun -np 4 -x NCCL_DEBUG=INFO {PLAIN}",
}


@pytest.mark.parametrize("text", SHELL.values(), ids=SHELL.keys())
def test_a_command_inside_another_one_is_read(tmp_path: Path, text: str) -> None:
    found = facts(tmp_path, {"run.sh": f"#!/bin/bash\n{text}\n", **FILES})
    assert {key: found[key] for key in MEANT} == MEANT
    assert found["world_size"] == 4 or "world_size" not in found


@pytest.mark.parametrize(
    ("command", "here"),
    [
        ("bash ~/clone/scripts/go.sh", True),
        ("bash $HOME/clone/scripts/go.sh", True),
        ('bash "${HOME}"/clone/scripts/go.sh', True),
        ("bash ~/go.sh", False),
        ("bash ~/clone/other/go.sh", False),
        ("bash $OUT_DIR/scripts/go.sh", False),
    ],
)
def test_a_script_below_the_home_folder_is_the_one_of_the_project_with_that_end(
    tmp_path: Path, command: str, here: bool
) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/go.sh").write_text(COMMAND)
    files = {"run.sh": f"#!/bin/bash\n{command}\n", **FILES}
    if here:
        assert facts(tmp_path, files)["zero_stage"] == 3
    else:
        with pytest.raises(InputError):
            facts(tmp_path, files)


def test_an_argument_that_is_read_at_run_time_is_unknown_only_in_its_place(tmp_path: Path) -> None:
    text = "ls *.json | xargs -I {} accelerate launch --num_processes 2 train.py --bf16 --deepspeed={}"
    found = facts(tmp_path, {"run.sh": f"#!/bin/bash\n{text}\n", **FILES})

    assert found["precision"] == "bf16"
    assert "zero_stage" not in found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (".github/workflows/w.yml", f"on: push\njobs:\n  a:\n    steps:\n      - run: |\n          pip install x\n          {COMMAND}\n"),
        ("docker-compose.yml", f"services:\n  a:\n    image: i\n    environment:\n      - A=b\n    command: {COMMAND}\n"),
        ("docker-compose.yml", f"services:\n  a:\n    image: i\n    entrypoint: {json.dumps(COMMAND.split())}\n"),
        ("run.py", f"import subprocess\nsubprocess.run({COMMAND.split()!r}, check=True)\n"),
        ("run.py", f"import os\nLR = 1e-5\nos.system(f'{COMMAND} --learning_rate {{LR}}')\n"),
        ("run.py", f"import subprocess\nwords = {COMMAND.split()[:4]!r}\nwords.extend({ARGUMENTS.split()!r})\nsubprocess.check_call(' '.join(words), shell=True)\n"),
        ("job.py", f"from azure.ai.ml import command\njob = command(code='.', command='{COMMAND}', environment='e')\n"),
        (".vscode/launch.json", json.dumps({"configurations": [{"request": "launch", "module": "torch.distributed.run", "args": COMMAND.split()[1:], "env": {"A": "b"}}]})),
        ("run.ipynb", json.dumps({"cells": [{"cell_type": "code", "source": ["kind = 'true'\n"]}, {"cell_type": "code", "source": [f"!{COMMAND} --bf16 {{kind}}"]}]})),
    ],
)  # fmt: skip
def test_a_file_that_starts_a_command_states_its_facts(tmp_path: Path, name: str, text: str) -> None:
    found = facts(tmp_path, {name: text, "requirements.txt": "", **FILES})
    assert {key: found[key] for key in (*MEANT, "world_size")} == {**MEANT, "world_size": 4}


def test_a_sweep_gives_its_values_to_the_program(tmp_path: Path) -> None:
    text = """program: train.py
method: grid
parameters:
  learning_rate: {values: [1e-5, 2e-5]}
  bf16: {value: true}
  output_dir: {value: o}
  per_device_train_batch_size: {value: 1}
command: ["${env}", torchrun, --nproc_per_node=4, "${program}", "${args}"]
"""
    found = facts(tmp_path, {"sweep.yaml": text})
    assert (found["precision"], found["parallel"], found["world_size"]) == ("bf16", "ddp", 4)


def test_a_job_of_sagemaker_gives_its_hyperparameters_to_the_program(tmp_path: Path) -> None:
    code = """from sagemaker.huggingface import HuggingFace
given = {"model_name_or_path": "m", "bf16": True, "use_peft": True, "per_device_train_batch_size": 1}
HuggingFace(entry_point="train.py", source_dir="s", hyperparameters=given, instance_count=1{more}).fit()
"""
    alone = facts(tmp_path, {"job.py": code.replace("{more}", "")})
    assert (alone["precision"], alone["adapter"], alone["parallel"]) == ("bf16", "lora", "none")
    joined = facts(tmp_path, {"job.py": code.replace("{more}", ", distribution={'torch_distributed': {}}")})
    assert joined["precision"] == "bf16"
    assert joined.get("parallel") != "none"


def test_a_program_that_only_asks_the_machine_starts_no_training(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        facts(tmp_path, {"a.py": "import subprocess\nsubprocess.run(['nvidia-smi'])\n"})


@pytest.mark.parametrize(
    ("text", "parallel"),
    [
        ("python train.py --output_dir o --bf16 --per_device_train_batch_size 1", "none"),
        ("srun -n 8 python train.py --output_dir o --bf16 --per_device_train_batch_size 1", None),
        ("horovodrun -np 2 python train.py --output_dir o --bf16 --per_device_train_batch_size 1", None),
        ("python train.py --output_dir o --bf16 --nproc 4 --per_device_train_batch_size 1", None),
        ("llamafactory-cli train --output_dir o --stage sft --finetuning_type lora", None),
    ],
)
def test_plain_python_is_one_process(tmp_path: Path, text: str, parallel: str | None) -> None:
    assert facts(tmp_path, {"run.sh": f"#!/bin/bash\n{text}\n"}).get("parallel") == parallel


def test_an_option_that_only_one_branch_adds_is_not_given_for_certain(tmp_path: Path) -> None:
    text = """#!/bin/bash
MORE=""
if [ "$SHARD" = 1 ]; then MORE="--deepspeed ds.json"; fi
torchrun --nproc_per_node=8 train.py --bf16 true --output_dir o --save_steps 1 $MORE
"""
    assert "parallel" not in facts(tmp_path, {"run.sh": text})


PROGRAM = "from trl import SFTConfig, SFTTrainer\nSFTTrainer('m', args=SFTConfig(bf16=True)).train()\n"


@pytest.mark.parametrize(
    "text",
    [
        f"python - <<'EOF'\n{PROGRAM}EOF\n",
        f"python3 <<EOF\n{PROGRAM}EOF\n",
        f'python -c "{PROGRAM}"\n',
        f"cat > train.py <<'EOF'\n{PROGRAM}EOF\naccelerate launch --num_processes 2 train.py\n",
    ],
)
def test_a_program_inside_a_script_is_read(tmp_path: Path, text: str) -> None:
    text = f'#!/bin/bash\npython -c "import torch; print(torch.__version__)"\n{text}'
    assert facts(tmp_path, {"run.sh": text})["precision"] == "bf16"


def test_processes_that_an_operator_joins_are_not_one(tmp_path: Path) -> None:
    container = "{name: a, image: i, command: [python, train.py, --bf16, 'true', --save_steps, '1']}"
    text = f"""apiVersion: kubeflow.org/v1
kind: PyTorchJob
spec:
  pytorchReplicaSpecs:
    Worker:
      replicas: 3
      template: {{spec: {{containers: [{container}]}}}}
"""
    assert "parallel" not in facts(tmp_path, {"job.yaml": text})


def test_a_file_that_the_script_writes_counts_where_a_configuration_names_it(tmp_path: Path) -> None:
    script = """#!/bin/bash
mkdir -p deepspeed_configs
cat > deepspeed_configs/zero3.json <<EOF
{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}
EOF
axolotl train a.yml
"""
    config = "base_model: m\nadapter: lora\nmicro_batch_size: 1\ndeepspeed: deepspeed_configs/zero3.json\n"
    assert facts(tmp_path, {"run.sh": script, "a.yml": config})["offload_optimizer"] == "cpu"


# --- files of a program's own -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("lora: {r: 16, alpha: 32}\nquantization: {load_in_4bit: true, quant_type: nf4}\n", ("lora", "nf4")),
        ("model:\n  lora: {rank: 8}\n  quantization: {enabled: false, load_in_4bit: true, bnb_4bit_quant_type: nf4}\n", ("lora", "none")),
        ("training: {use_lora: false}\nlora: {r: 16, lora_alpha: 32}\nbnb: {load_in_8bit: true}\n", ("none", "int8")),
        ("training: {use_quant: false}\npeft: {type: ia3, r: 1}\nqlora: {load_in_8bit: true}\n", ("ia3", "none")),
        ("optimizer: {r: 3, alpha: 0.9}\nqlora: {load_in_4bit: true}\n", (None, None)),
    ],
)  # fmt: skip
def test_sections_for_an_adapter_and_for_quantisation(
    tmp_path: Path, text: str, meant: tuple[str | None, str | None]
) -> None:
    found = facts(tmp_path, {"a.yaml": f"gradient_accumulation_steps: 2\nlearning_rate: 0.1\n{text}"})
    assert (found.get("adapter"), found.get("quantization")) == meant


@pytest.mark.parametrize(
    "text",
    [
        "load_in_4bit: true\nlora: {r: 8, alpha: 16}\n",
        "lora: {r: 8, alpha: 16, load_in_4bit: true}\n",
        "lora: {r: 8, alpha: 16}\nbnb: {load_in_4bit: true}\n",
        "lora: {r: 8, alpha: 16}\nmodel: {quant_method: hqq}\n",
    ],
)
def test_a_quantisation_that_is_not_understood_is_unknown_and_not_absent(tmp_path: Path, text: str) -> None:
    file = tmp_path / "a.yaml"
    for switched, unknown in ((text, True), (text.replace("true", "false").replace("hqq", "none"), False)):
        file.write_text(f"base_model: m\n{switched}")
        found = {fact.key: fact for fact in configured([str(file)], SHARED, {}).facts}
        assert found["train.adapter"].value == "lora"
        quantization = found.get("train.quantization")
        assert (quantization is not None and isinstance(quantization.reading, Unknown)) is unknown


def test_two_dashes_end_the_arguments_of_a_launcher(tmp_path: Path) -> None:
    script = f"accelerate launch --num_processes=4 -- \\\ntrain.py {ARGUMENTS}\n"
    found = facts(tmp_path, {"run.sh": script, **FILES})
    assert {key: found.get(key) for key in MEANT} == MEANT


@pytest.mark.parametrize(
    ("text", "precision"),
    [
        ("model: m\ntraining: {precision: bf16, epochs: 3}\n", "bf16"),
        ("precision: amp_bf16\nmax_steps: 3\n", "bf16"),
        ("precision: bf16\ntraining: {mixed_precision: fp16, lr: 1}\nmodel: {precision: fp16}\n", "fp16"),
    ],
)
def test_names_that_say_what_they_mean(tmp_path: Path, text: str, precision: str) -> None:
    assert facts(tmp_path, {"a.yaml": text})["precision"] == precision


def test_a_file_without_a_setting_of_training_states_no_precision(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        facts(tmp_path, {"a.yaml": "server: {port: 80}\nprecision: fp16\n"})


def test_groups_of_hydra_belong_to_the_file_that_names_them(tmp_path: Path) -> None:
    files = {
        "conf/a.yaml": "defaults:\n  - model: big\n  - train@run: long\n  - override hydra/x: y\n  - _self_\nrun: {epochs: 1}\n",
        "conf/model/big.yaml": "name: m\nlora_config: {_target_: peft.LoraConfig, r: 8}\n",
        "conf/train/long.yaml": "epochs: 9\nmixed_precision: fp16\n",
    }  # fmt: skip
    found = facts(tmp_path, files)
    assert (found["adapter"], found["precision"]) == ("lora", "fp16")


def test_an_unknown_command_with_a_configuration(tmp_path: Path) -> None:
    config = "model: {attn_implementation: sdpa}\npeft: {lora_r: 16, lora_alpha: 32}\n"
    found = facts(tmp_path, {"run.sh": "oumi train -c a.yaml\n", "a.yaml": config})
    assert (found["adapter"], found["attention"]) == ("lora", "sdpa")


def test_composer_says_how_many_processes_it_starts(tmp_path: Path) -> None:
    assert (
        facts(tmp_path, {"run.sh": "#!/bin/bash\ncomposer -n 8 train.py --bf16 true --lr 1\n"})["world_size"]
        == 8
    )


LIGHTNING = """trainer:
  accelerator: gpu
  devices: 4
  strategy: {strategy}
  precision: bf16-mixed
  accumulate_grad_batches: 2
"""


@pytest.mark.parametrize(
    ("strategy", "meant"),
    [
        ("deepspeed_stage_3_offload", {"parallel": "deepspeed", "zero_stage": 3, "offload_param": "cpu"}),
        ("deepspeed", {"parallel": "deepspeed", "zero_stage": 2, "offload_optimizer": "none"}),
        ("fsdp", {"parallel": "fsdp1", "fsdp_offload": False}),
        ("auto", {"parallel": "ddp"}),
        (
            "{class_path: lightning.pytorch.strategies.DeepSpeedStrategy, init_args: {offload_optimizer: true}}",
            {"parallel": "deepspeed", "zero_stage": 2, "offload_optimizer": "cpu", "offload_param": "none"},
        ),
    ],
)
def test_lightnings_configuration(tmp_path: Path, strategy: str, meant: dict[str, object]) -> None:
    found = facts(tmp_path, {"a.yaml": LIGHTNING.replace("{strategy}", strategy)})
    assert found == {**found, **meant, "precision": "bf16", "gradient_accumulation_steps": 2}


def test_lightnings_trainer_in_code(tmp_path: Path) -> None:
    code = """import lightning as L
from lightning.pytorch.strategies import DeepSpeedStrategy
from model import Model
trainer = L.Trainer(devices=4, strategy=DeepSpeedStrategy(stage=3), precision="16-mixed")
trainer.fit(Model())
"""
    found = facts(tmp_path, {"a.py": code})
    assert (found["parallel"], found["zero_stage"], found["precision"]) == ("deepspeed", 3, "fp16")


# --- programs ----------------------------------------------------------------------------------------


def test_a_program_parses_a_file_that_it_names_itself(tmp_path: Path) -> None:
    code = """from dataclasses import dataclass, field
import transformers
@dataclass
class Own(transformers.TrainingArguments):
    gradient_checkpointing: bool = field(default=True)
(args,) = transformers.HfArgumentParser((Own,)).parse_json_file(json_file="own.json")
model = transformers.AutoModelForCausalLM.from_pretrained("m")
transformers.Trainer(model, args).train()
"""
    config = '{"gradient_checkpointing": false, "bf16": true, "deepspeed": "ds.json", "output_dir": "o"}'
    found = facts(tmp_path, {"a.py": code, "own.json": config, **FILES})
    assert (found["gradient_checkpointing"], found["precision"], found["zero_stage"]) == (False, "bf16", 3)


def test_a_program_validates_its_file_with_pydantic(tmp_path: Path) -> None:
    code = """import yaml
from pathlib import Path
from pydantic import BaseModel
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
class Inner(BaseModel):
    bf16: bool
class Own(BaseModel):
    training: Inner
config = Own.model_validate(yaml.safe_load(Path("own.yaml").read_text()))
model = AutoModelForCausalLM.from_pretrained("m")
Trainer(model, TrainingArguments("o", bf16=config.training.bf16)).train()
"""
    assert facts(tmp_path, {"a.py": code, "own.yaml": "training: {bf16: true}\n"})["precision"] == "bf16"


def test_a_module_below_src_is_the_program(tmp_path: Path) -> None:
    files = {"run.sh": "#!/bin/bash\naccelerate launch -m own.cli.train\n", "src/own/cli/train.py": PROGRAM}
    assert facts(tmp_path, files)["precision"] == "bf16"


def test_programs_that_a_script_asks_for_are_installed(tmp_path: Path) -> None:
    text = """#!/bin/bash
if command -v uv >/dev/null 2>&1; then SWIFT=(uv run swift); else SWIFT=(swift); fi
"${SWIFT[@]}" sft --model m --train_type lora
"""
    assert facts(tmp_path, {"run.sh": text})["trainer"] == "swift"


def test_lora_without_quantisation_is_an_adapter(tmp_path: Path) -> None:
    text = "output_dir: o\nper_device_train_batch_size: 1\nuse_lora: true\nlora_r: 8\nuse_qlora: false\n"
    assert facts(tmp_path, {"a.yaml": text})["adapter"] == "lora"


def test_a_model_that_a_notebook_tries_out_is_not_the_one_that_a_command_trains(tmp_path: Path) -> None:
    load = "from transformers import AutoModelForCausalLM\\nm = AutoModelForCausalLM.from_pretrained('m', load_in_4bit=True)"
    command = "!accelerate launch -m axolotl.cli.train a.yml"
    cells = ", ".join(f'{{"cell_type": "code", "source": "{source}"}}' for source in (command, load))
    config = "base_model: m\nadapter: qlora\nload_in_4bit: true\nmicro_batch_size: 1\n"
    files = {"a.ipynb": f'{{"cells": [{cells}], "nbformat": 4}}', "a.yml": config}
    assert facts(tmp_path, files)["quantization"] == "nf4"


def test_a_program_may_begin_with_the_mark_of_its_encoding(tmp_path: Path) -> None:
    assert facts(tmp_path, {"a.py": f"\ufeff{PROGRAM}"})["precision"] == "bf16"


MODELS = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
class Wrapped:
    def __init__(self):
        self.llm = AutoModelForCausalLM.from_pretrained("m")
    def freeze(self):
        for parameter in self.llm.parameters():
            parameter.requires_grad = False
model = Wrapped()
reference_model = AutoModelForCausalLM.from_pretrained("m").requires_grad_(False)
{freeze}
Trainer(model, TrainingArguments("o")).train()
"""


@pytest.mark.parametrize(("freeze", "frozen"), [("model.freeze()", True), ("", False)])
def test_a_method_freezes_and_a_reference_model_does_not(tmp_path: Path, freeze: str, frozen: bool) -> None:
    assert facts(tmp_path, {"a.py": MODELS.replace("{freeze}", freeze)})["frozen_params"] is frozen


@pytest.mark.parametrize(
    "count",
    [
        "$(echo \"$GPUS\" | tr ',' '\\n' | grep -c .)",
        "$(echo \"$GPUS\" | tr ',' '\\n' | grep -c '[0-9]')",
        "$(echo $GPUS | tr , ' ' | wc -w)",
        "$(echo \"$GPUS\" | awk -F, '{print NF}')",
        "$(printf '%s\\n' \"$GPUS\" | tr , '\\n' | wc -l)",
        '$(echo "$GPUS" | grep -o , | wc -l | xargs -I N expr N + 1)',
    ],
)
@pytest.mark.parametrize("gpus", ["0", "0,1,2"])
def test_the_number_of_listed_devices_is_counted(tmp_path: Path, count: str, gpus: str) -> None:
    script = f'GPUS=${{GPUS:-{gpus}}}\ntorchrun --nproc_per_node="{count}" train.py {ARGUMENTS}\n'
    found = facts(tmp_path, {"run.sh": script, **FILES}).get("world_size")
    assert found == (len(gpus.split(",")) if "xargs" not in count else None)


def test_a_command_in_a_variable_is_each_one_that_a_branch_gives_it(tmp_path: Path) -> None:
    choice = 'if [ "$(nvidia-smi -L | wc -l)" -le 1 ]; then LAUNCHER="{}"; else LAUNCHER="{}"; fi\n'
    for one, other in (("python -m", "torchrun --nproc_per_node 2 -m"), ("python", "deepspeed")):
        script = f"{choice.format(one, other)}$LAUNCHER sft.train {ARGUMENTS}\n"
        found = facts(tmp_path, {"run.sh": script, **FILES})
        assert {key: found.get(key) for key in MEANT} == MEANT
        assert "world_size" not in found


OWN_COMMANDS = """
[project.scripts]
my-sft = "mine.train.sft:main"
my-eval = "mine.cli:evaluate"
my-rl = "mine.cli:rl"
"""


@pytest.mark.parametrize(
    ("command", "precision"),
    [
        ("my-sft --steps 3", "bf16"),
        ("uv run my-sft --steps 3", "bf16"),
        ("my-sft other --steps 3", "bf16"),
        ("my-eval --steps 3", None),  # its function is not in the module, and does not train
    ],
)
def test_a_command_that_the_project_installs_is_its_module(
    tmp_path: Path, command: str, precision: str | None
) -> None:
    body = "    ".join(PROGRAM.strip().splitlines(keepends=True))
    program = f"def main():\n    {body}\nif __name__ == '__main__':\n    main()\n"
    files = {
        "run.sh": f"#!/bin/bash\n{command}\n",
        "pyproject.toml": OWN_COMMANDS,
        "src/mine/train/sft.py": program,
        "src/mine/cli.py": "def rl():\n    pass\n",
    }
    if precision is None:
        with pytest.raises(InputError, match="nothing starts a training"):
            facts(tmp_path, files)
    else:
        assert facts(tmp_path, files)["precision"] == precision


BENCHMARKS = {"bench.sh": "#!/bin/bash\ndeepspeed benchmark.py {}\n", "ds.json": FILES["ds.json"]}


@pytest.mark.parametrize(
    ("arguments", "stated"),
    [
        ("--deepspeed ds.json --bf16 --gradient_checkpointing", ("zero_stage", 3)),
        ("--fsdp full_shard", ("parallel", "fsdp1")),
        ("--optim adamw_torch", ("optimizer", "adamw_torch")),
        ("--gradient_checkpointing", ("gradient_checkpointing", True)),
        ("--bf16 --batch_size 4", None),  # so does an evaluation or a server
        ("--fp16", None),
        ("--model m", None),
    ],
)
def test_an_option_of_a_training_shows_that_an_absent_program_trains(
    tmp_path: Path, arguments: str, stated: tuple[str, object] | None
) -> None:
    files = {name: text.replace("{}", arguments) for name, text in BENCHMARKS.items()}
    if stated is not None:
        assert stated in facts(tmp_path, files).items()
    else:
        with pytest.raises(InputError, match="nothing starts a training"):
            facts(tmp_path, files)
