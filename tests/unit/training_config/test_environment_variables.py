"""Variables that a launch script or a program sets are facts: none of them is taken as unset."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from envcheck.commands import loading
from envcheck.commands.training_files import configured
from envcheck.core.environment_variables import READ_BY_RULES, is_shown
from envcheck.core.errors import InputError
from envcheck.core.facts import Absent, Fact, Known, Reading, Unknown
from tests.support.running import envcheck

ROOT = Path(__file__).resolve().parents[3]
SHARED = loading.source_tree()["tables"]["argument"]
COMMAND = "torchrun --nproc_per_node 2 train.py --bf16 true --output_dir o --model_name_or_path m"
PROGRAM = (
    "import os\n{line}\nfrom transformers import Trainer, TrainingArguments\n"
    'Trainer(model=None, args=TrainingArguments(output_dir="o")).train()\n'
)


def variables(folder: Path, text: str, name: str = "run.sh", **beside: str) -> dict[str, Fact]:
    """Return the facts on variables that a file states, by their keys."""
    (folder / name).write_text(text)
    for other, content in beside.items():
        (folder / f"{other}.sh").write_text(content)
    found = configured([str(folder / name)], SHARED, {})
    return {fact.key: fact for fact in found.facts if fact.key.startswith("env.")}


@pytest.mark.parametrize(
    ("script", "reading"),
    [
        (f"export NCCL_P2P_DISABLE=1\n{COMMAND}\n", Known("1")),
        (f"NCCL_P2P_DISABLE=1 {COMMAND}\n", Known("1")),
        (f"env NCCL_P2P_DISABLE=1 {COMMAND}\n", Known("1")),
        (f"docker run -e NCCL_P2P_DISABLE=1 image:1 {COMMAND}\n", Known("1")),
        (f'docker run -e NCCL_P2P_DISABLE=1 image:1 bash -c "{COMMAND}"\n', Known("1")),
        ("NCCL_P2P_DISABLE=1 bash inner.sh\n", Known("1")),
        (f"mpirun -np 2 -x NCCL_P2P_DISABLE=1 python train.py {COMMAND.partition('.py ')[2]}\n", Known("1")),
        (f"export NCCL_P2P_DISABLE=${{1:-0}}\n{COMMAND}\n", Known("0")),
        (f"export NCCL_P2P_DISABLE=$OTHER\n{COMMAND}\n", Unknown("$OTHER is not set in the script")),
        (f"NCCL_P2P_DISABLE=1\n{COMMAND}\n", Absent()),  # a variable of the shell alone
        (f"export NCCL_P2P_DISABLE=1\nunset NCCL_P2P_DISABLE\n{COMMAND}\n", Absent()),
        (f"{COMMAND}\n", Absent()),
        (f"export NCCL_P2P_DISABLE=1\nenv -u NCCL_P2P_DISABLE {COMMAND}\n", Absent()),
        (f"export NCCL_P2P_DISABLE=1\nenv --unset=NCCL_P2P_DISABLE {COMMAND}\n", Absent()),
        (f"export NCCL_P2P_DISABLE=1\nenv -i PATH=$PATH {COMMAND}\n", Absent()),
        (f"export NCCL_P2P_DISABLE=1\nenv -i bash -c '{COMMAND}'\n", Absent()),
        (f"export NCCL_P2P_DISABLE=1\nenv -i NCCL_P2P_DISABLE=0 {COMMAND}\n", Known("0")),
        (f"export NCCL_P2P_DISABLE=1\nenv -u OTHER {COMMAND}\n", Known("1")),
        (f"export NCCL_P2P_DISABLE=1\nexport -n NCCL_P2P_DISABLE\n{COMMAND}\n", Absent()),
        (f"export NCCL_P2P_DISABLE=1\ndeclare +x NCCL_P2P_DISABLE\n{COMMAND}\n", Absent()),
        (f"export NCCL_P2P_DISABLE=1\nexport -n OTHER\n{COMMAND}\n", Known("1")),
        (f"declare -x NCCL_P2P_DISABLE=1\n{COMMAND}\n", Known("1")),
        (
            f"export NCCL_P2P_DISABLE=1\nif a; then export -n NCCL_P2P_DISABLE; fi\n{COMMAND}\n",
            Unknown("$NCCL_P2P_DISABLE depends on line 3"),
        ),
    ],
)
def test_a_variable_that_a_script_gives_its_program_is_a_fact(
    tmp_path: Path, script: str, reading: Reading
) -> None:
    found = variables(tmp_path, f"#!/bin/bash\n{script}", inner=f"{COMMAND}\n").get("env.NCCL_P2P_DISABLE")
    assert (found.reading if found else Absent()) == reading


def test_the_words_of_a_file_that_are_exported_may_be_any_variable(tmp_path: Path) -> None:
    script = (
        "#!/bin/bash\nexport HF_HUB_OFFLINE=1\nexport $(cat vars.env | xargs)\nexport DS_ACCELERATOR=cuda\n"
    )
    found = variables(tmp_path, f"{script}{COMMAND}\n")
    assert isinstance(found["env.NCCL_P2P_DISABLE"].reading, Unknown)
    assert isinstance(found["env.HF_HUB_OFFLINE"].reading, Unknown)  # set again, perhaps
    assert found["env.DS_ACCELERATOR"].value == "cuda"
    assert "env.CUDA_VISIBLE_DEVICES" not in found
    known = variables(tmp_path, f"#!/bin/bash\nexport $(echo NCCL_P2P_DISABLE=1)\n{COMMAND}\n")
    assert {key: fact.value for key, fact in known.items()} == {"env.NCCL_P2P_DISABLE": "1"}


def test_every_variable_that_a_rule_reads_is_listed() -> None:
    read = {
        name
        for path in (ROOT / "compat" / "rules").rglob("*.toml")
        for name in re.findall(r"\benv\.([A-Z_][A-Z0-9_]+)", path.read_text())
    }
    assert "NCCL_P2P_DISABLE" in read
    assert {name for name in read if is_shown(name)} - READ_BY_RULES == {
        "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES",
    }  # fmt: skip


def test_the_line_of_the_script_is_its_source(tmp_path: Path) -> None:
    found = variables(tmp_path, f"#!/bin/bash\nexport HF_HUB_OFFLINE=1\n{COMMAND}\n")
    assert found["env.HF_HUB_OFFLINE"].source == f"{tmp_path / 'run.sh'}:2"


@pytest.mark.parametrize(
    ("line", "stated"),
    [('os.environ["HF_HUB_OFFLINE"] = "1"', True), ('os.environ.get("HF_HUB_OFFLINE")', False)],
)
def test_a_variable_that_a_program_sets_is_unknown(tmp_path: Path, line: str, stated: bool) -> None:
    found = variables(tmp_path, PROGRAM.format(line=line), "train.py").get("env.HF_HUB_OFFLINE")
    assert (isinstance(found.reading, Unknown) if found else False) is stated


def test_what_selects_the_gpus_and_secrets_are_no_facts(tmp_path: Path) -> None:
    script = f"export CUDA_VISIBLE_DEVICES=0 WANDB_API_KEY=abc MY_OWN=1\n{COMMAND}\n"
    assert variables(tmp_path, f"#!/bin/bash\n{script}") == {}


def test_variables_alone_say_nothing_about_a_training(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        variables(tmp_path, "#!/bin/bash\nexport NCCL_P2P_DISABLE=1\npython prepare_everything.py\n")


PACKAGES = "torch==2.6.0 transformers==4.46.3 accelerate==1.1.1"
OLD = "transformers-resume-rng-state-torch26"


@pytest.mark.parametrize(
    ("name", "text", "broken"),
    [
        ("Dockerfile", f"FROM ubuntu\nENV TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1\nRUN pip install {PACKAGES}\n", False),
        ("Dockerfile", f"FROM ubuntu\nENV TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=$ANY\nRUN pip install {PACKAGES}\n", False),
        (
            "Dockerfile",
            f"FROM ubuntu AS base\nENV TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD 1\nFROM base\nRUN pip install {PACKAGES}\n",
            False,
        ),
        ("Dockerfile", f"FROM ubuntu\nRUN pip install {PACKAGES}\n", True),
        ("Dockerfile", f"FROM ubuntu\nRUN export TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD=1\nRUN pip install {PACKAGES}\n", True),
        (
            "environment.yml",
            "variables:\n  TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD: '1'\ndependencies:\n  - pip:\n"
            + "".join(f"    - {each}\n" for each in PACKAGES.split()),
            False,
        ),
        (
            "environment.yml",
            "dependencies:\n  - pip:\n" + "".join(f"    - {each}\n" for each in PACKAGES.split()),
            True,
        ),
    ],
)  # fmt: skip
def test_a_variable_that_a_dependency_file_sets_is_read(
    tmp_path: Path, name: str, text: str, broken: bool
) -> None:
    (tmp_path / name).write_text(text)
    resume = f"{COMMAND} --resume_from_checkpoint o/checkpoint-1 --optim adamw_torch"
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{resume}\n")
    outcome = envcheck("check", name, "--train", "run.sh", cwd=tmp_path)
    lines = [line for line in outcome.out.splitlines() if f"[{OLD}]" in line]
    assert any(": error:" in line for line in lines) is broken
