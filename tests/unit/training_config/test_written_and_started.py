"""Files that a script writes piece by piece, installers beside launches, and devices that a program chooses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.launches import known_facts
from tests.unit.training_config.test_programs import facts_of

ARGUMENTS = "train.py --bf16 true --per_device_train_batch_size 4 --learning_rate 1e-5"
TORCHRUN = f"torchrun --nproc_per_node 4 {ARGUMENTS}"
ACCELERATE = f"accelerate launch --config_file run.yaml {ARGUMENTS}"
FSDP = "distributed_type: FSDP\nnum_processes: $N\nfsdp_config:\n  fsdp_version: 2\n"
TRAINS = """import os
{before}
from trl import SFTConfig, SFTTrainer
{after}
trainer = SFTTrainer(model="Qwen/Qwen3-8B", args=SFTConfig(per_device_train_batch_size=3))
trainer.train()
"""


def facts(folder: Path, text: str, name: str = "run.sh", **others: str) -> dict[str, object]:
    """Return the facts of a file, beside which there may be a program `train.py`."""
    return known_facts(folder, {name: text, **{f"{other}.py": program for other, program in others.items()}})


@pytest.mark.parametrize(
    ("writes", "parallel", "processes", "offload"),
    [
        (f"N=8\ncat > run.yaml <<EOF\n{FSDP}EOF", "fsdp2", 8, None),
        ("N=8\ncat <<-EOF > run.yaml\n\t" + FSDP.replace("\n", "\n\t") + "EOF", "fsdp2", 8, None),
        ("cat <<-'EOF' > run.yaml\n\t" + FSDP.replace("\n", "\n\t") + "EOF", "fsdp2", None, None),
        (f"N=8\ncat > run.yaml <<EOF\n{FSDP}EOF\ncat >> run.yaml <<EOF\n  fsdp_offload_params: true\nEOF", "fsdp2", 8, True),
        (f"N=8\ncat > run.yaml <<EOF\n{FSDP}EOF\necho '  fsdp_offload_params: true' | tee -a run.yaml", "fsdp2", 8, True),
        ("{\necho 'distributed_type: MULTI_GPU'\necho 'num_processes: 4'\n} > run.yaml", "ddp", 4, None),
        ("(echo 'distributed_type: MULTI_GPU'; echo 'num_processes: 4') > run.yaml", "ddp", 4, None),
        ("printf '%s\\n' 'distributed_type: MULTI_GPU' 'num_processes: 4' > run.yaml", "ddp", 4, None),
        ("printf 'distributed_type: %s\\nnum_processes: %d\\n' MULTI_GPU 4 > run.yaml", "ddp", 4, None),
        ("echo -e 'distributed_type: MULTI_GPU\\nnum_processes: 4' > run.yaml", "ddp", 4, None),
        # What may have been added, or cannot be read, is not known.
        (f"N=8\ncat > run.yaml <<EOF\n{FSDP}EOF\nif [ -n \"$(nvidia-smi)\" ]; then echo '  fsdp_offload_params: true' >> run.yaml; fi", "fsdp2", 8, None),
        ("{\necho 'distributed_type: MULTI_GPU'\npython more.py\n} > run.yaml", None, None, None),
        ("printf 'distributed_type: %5s\\nnum_processes: 4\\n' NO > run.yaml", None, None, None),
    ],
)  # fmt: skip
def test_a_file_is_read_as_its_commands_write_it(
    tmp_path: Path, writes: str, parallel: str | None, processes: int | None, offload: bool | None
) -> None:
    found = facts(tmp_path, f"#!/bin/bash\n{writes}\n{ACCELERATE}\n")
    assert found.get("parallel") == parallel
    assert found.get("world_size") == processes
    assert found.get("fsdp_offload") == offload


@pytest.mark.parametrize(
    ("more", "parallel"), [("", "ddp"), ("# END_OF_FILE\n", "ddp"), ("END_OF_FILE\nrm run.yaml\n", None)]
)
def test_a_text_that_a_program_writes_ends_where_the_program_ends_it(
    tmp_path: Path, more: str, parallel: str | None
) -> None:
    text = f"distributed_type: MULTI_GPU\nnum_processes: 4\n{more}"
    writes = f"with open('run.yaml', 'w') as file:\n    file.write({text!r})\n"
    program = f"import subprocess\n{writes}subprocess.run({ACCELERATE!r}, shell=True)\n"
    found = facts(tmp_path, program, "launch.py")
    assert found.get("parallel") == parallel


def test_a_temporary_file_is_the_one_that_was_written(tmp_path: Path) -> None:
    launch = ACCELERATE.replace("run.yaml", "$FILE")
    script = f"N=8\nFILE=$(mktemp a.XXXX.yaml)\nOTHER=$(mktemp b.XXXX.yaml)\ncat > $FILE <<EOF\n{FSDP}EOF\n"
    found = facts(tmp_path, f"#!/bin/bash\n{script}echo 'distributed_type: NO' > $OTHER\n{launch}\n")
    assert (found.get("parallel"), found.get("world_size")) == ("fsdp2", 8)


@pytest.mark.parametrize(
    ("hosts", "options", "processes"),
    [
        ("one slots=8\ntwo slots=8\n", "", 16),
        ("# hosts\none slots=4\n\ntwo slots=8\n", "", 12),
        ("one slots=8\ntwo slots=8\n", "--num_nodes 1", 8),
        ("one slots=8\ntwo slots=8\n", "--num_gpus 2", 4),
        ("one slots=8\ntwo slots=8\n", "--exclude two:0", None),
        ("one\ntwo\n", "", None),
        ("one slots=$N\n", "", None),
    ],
)
def test_hosts_of_the_deepspeed_launcher_are_counted(
    tmp_path: Path, hosts: str, options: str, processes: int | None
) -> None:
    script = f"#!/bin/bash\ncat > hosts <<EOF\n{hosts}EOF\ndeepspeed --hostfile hosts {options} {ARGUMENTS}\n"
    assert facts(tmp_path, script).get("world_size") == processes


@pytest.mark.parametrize(
    "prefix",
    [
        "python -m uv run", "python3 -m poetry run", "uvx --from trl", "uv tool run", "uv --directory d run",
        "flock lock", "direnv exec .", "conda run -n install", "docker run --gpus all image",
        "singularity exec --nv image.sif", "nohup stdbuf -oL numactl --cpunodebind=0", "pixi run",
    ],
)  # fmt: skip
def test_a_command_behind_a_prefix_is_the_launch(tmp_path: Path, prefix: str) -> None:
    found = facts(tmp_path, f"#!/bin/bash\n{prefix} {TORCHRUN}\n")
    assert (found.get("parallel"), found.get("world_size"), found.get("micro_batch_size")) == ("ddp", 4, 4)


@pytest.mark.parametrize(
    "installs",
    [
        "python -m uv pip install", "uv pip install -U", "uv add", "uv tool install", "conda install -y",
        "docker run image pip install", "conda run -n x pip install", "docker build -t", "poetry add",
    ],
)  # fmt: skip
def test_what_an_installer_is_given_is_no_launch(tmp_path: Path, installs: str) -> None:
    script = (
        f"#!/bin/bash\n{installs} deepspeed train.py --zero_stage 3 --learning_rate 1 --bf16 --epochs 1\n"
    )
    found = facts(tmp_path, f"{script}{TORCHRUN}\n")
    assert (found.get("parallel"), found.get("zero_stage"), found.get("world_size")) == ("ddp", None, 4)


@pytest.mark.parametrize(
    ("before", "after", "parallel"),
    [
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '0'", "", "none"),
        ("", "os.environ['CUDA_VISIBLE_DEVICES'] = '3'", "none"),
        ("os.environ['CUDA_VISIBLE_DEVICES'] = '0,1'", "", None),
        ("if os.environ.get('ONE'):\n    os.environ['CUDA_VISIBLE_DEVICES'] = '0'", "", None),
        ("import torch\nprint(torch.cuda.device_count())", "os.environ['CUDA_VISIBLE_DEVICES'] = '0'", None),
        ("", "", None),
    ],
)
def test_a_program_that_sees_one_device_is_one_process(
    tmp_path: Path, before: str, after: str, parallel: str | None
) -> None:
    text = TRAINS.format(before=before, after=after)
    assert facts(tmp_path, text, name="train.py").get("parallel") == parallel
    launched = facts(tmp_path, "#!/bin/bash\npython train.py\n", train=text)
    assert launched.get("world_size") == (1 if parallel else None)


def test_devices_that_a_program_chooses_outweigh_those_it_is_given(tmp_path: Path) -> None:
    text = TRAINS.format(before="os.environ['CUDA_VISIBLE_DEVICES'] = '0,1'", after="")
    launch = "#!/bin/bash\nCUDA_VISIBLE_DEVICES=0 python train.py\n"
    assert facts(tmp_path, launch, train=text).get("world_size") is None
    several = facts(tmp_path, "#!/bin/bash\ntorchrun --nproc_per_node 2 train.py\n", train=text)
    assert several.get("parallel") == "ddp"


@pytest.mark.parametrize(
    ("magic", "parallel"),
    [("%env CUDA_VISIBLE_DEVICES=0", "none"), ("%env CUDA_VISIBLE_DEVICES=0,1", None), ("%env", None)],
)
def test_a_magic_command_sets_a_variable_of_a_notebook(
    tmp_path: Path, magic: str, parallel: str | None
) -> None:
    cells = [magic, TRAINS.format(before="", after="")]
    notebook = {"cells": [{"cell_type": "code", "source": each} for each in cells]}
    assert facts(tmp_path, json.dumps(notebook), name="n.ipynb").get("parallel") == parallel


@pytest.mark.parametrize(
    ("condition", "frozen"),
    [("i < 10", True), ("i < len(model.model.layers) - 4", True), ("i < 0", None), ("i < count", None)],
)
def test_counted_layers_that_are_frozen(tmp_path: Path, condition: str, frozen: bool | None) -> None:
    text = (
        "import sys\nfrom transformers import AutoModelForCausalLM\nfrom trl import SFTConfig, SFTTrainer\n"
        "count = int(sys.argv[1])\nmodel = AutoModelForCausalLM.from_pretrained('Qwen/Qwen3-8B')\n"
        f"for i, layer in enumerate(model.model.layers):\n    if {condition}:\n"
        "        for parameter in layer.parameters():\n            parameter.requires_grad = False\n"
        "SFTTrainer(model=model, args=SFTConfig()).train()\n"
    )
    assert facts(tmp_path, text, name="train.py").get("frozen_params") == frozen


COMMON = """
configure() {
    cat > "$1" <<EOF
{"zero_optimization": {"stage": 2}, "bf16": {"enabled": true}}
EOF
}
"""


@pytest.mark.parametrize("own", ["", "cat <<EOF\nhello\nEOF\n"])
def test_a_function_of_another_script_has_the_here_documents_of_that_script(tmp_path: Path, own: str) -> None:
    script = (
        f"source ./common.sh\n{own}configure ds.json\ntorchrun --nproc_per_node 2 t.py --deepspeed ds.json\n"
    )
    found = facts_of(tmp_path, "run.sh", {"run.sh": script, "common.sh": COMMON})
    assert (found["zero_stage"], found["precision"]) == (2, "bf16")
