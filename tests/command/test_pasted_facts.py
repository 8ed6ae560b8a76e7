"""Facts may be what people have: the saved output of nvidia-smi, pip list and conda list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.running import envcheck, in_bash

SMI = """\
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
|   0  NVIDIA A100-SXM4-80GB          On  |   00000000:07:00.0 Off |                    0 |
| N/A   30C    P0             61W /  400W |       4MiB /  81920MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
|   1  NVIDIA A100-SXM4-80GB          On  |   00000000:0F:00.0 Off |                    0 |
| N/A   29C    P0             60W /  400W |       4MiB /  81920MiB |      0%      Default |
+-----------------------------------------+------------------------+----------------------+
"""
PIP = "Package      Version\n------------ -------\ntorch        2.13.0\ndeepspeed    0.16.2\n"
CONDA = "# Name                    Version                   Build  Channel\npython                    3.11.9               h955ad1f_0\npytorch                   2.4.0           py3.11_cuda12.1_cudnn9.1.0_0    pytorch\n"


def findings(folder: Path, *words: str) -> tuple[int, list[str]]:
    ran = envcheck("doctor", *words, "--json", cwd=folder)
    assert ran.err == ""
    return ran.code, [one["rule"] for one in json.loads(ran.out)["findings"]]


def test_nvidia_smi_and_pip_list_together_are_judged(tmp_path: Path) -> None:
    (tmp_path / "smi.txt").write_text(SMI)
    (tmp_path / "pip.txt").write_text(PIP)
    code, rules = findings(tmp_path, "--facts", "smi.txt", "--facts", "pip.txt")
    assert (code, "driver-below-cuda-family-floor" in rules) == (1, True)
    out = envcheck("doctor", "--facts", "smi.txt", "--facts", "pip.txt", cwd=tmp_path).out
    assert "2 x NVIDIA A100-SXM4-80GB, 80 GiB" in out
    assert "550.54.15 (smi.txt:2)" in out


def test_conda_list_names_torch_and_python(tmp_path: Path) -> None:
    (tmp_path / "conda.txt").write_text(CONDA)
    out = envcheck("doctor", "--facts", "conda.txt", cwd=tmp_path).out
    assert "torch 2.4.0" in out


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"a.txt": "what?\n"}, "a.txt: expected a facts file"),
        (
            {"a.txt": PIP, "b.txt": PIP.replace("2.13.0", "2.12.0")},
            "torch is 2.12.0 here, and 2.13.0 in a.txt:3",
        ),
        ({"a.txt": SMI, "b.txt": SMI.replace("A100-SXM4-80GB", "H100 80GB HBM3")}, "names other GPUs"),
        ({"a.toml": PIP}, "a.toml:1"),
    ],
)
def test_files_without_facts_or_of_two_machines_are_one_clear_line(
    files: dict[str, str], said: str, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    ran = envcheck("doctor", *(word for name in files for word in ("--facts", name)), cwd=tmp_path)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert said in ran.err


CONDA_WHOLE = """\
(llm) me@host:~$ conda list
# packages in environment at /opt/conda/envs/llm:
#
# Name                    Version                   Build  Channel
_libgcc_mutex             0.1                        main  
python                    3.10.14              h955ad1f_1  
pytorch                   2.3.1           py3.10_cuda12.1_cudnn8.9.2_0    pytorch
deepspeed                 0.14.0                   pypi_0    pypi
numpy                     2.0.1                    pypi_0    pypi
"""  # noqa: W291 - conda pads its last column


def test_conda_list_as_it_is_printed(tmp_path: Path) -> None:
    (tmp_path / "conda.txt").write_text(CONDA_WHOLE)
    code, rules = findings(tmp_path, "--facts", "conda.txt")
    assert (code, "deepspeed-numpy2-bufsize" in rules) == (1, True)
    out = envcheck("doctor", "--facts", "conda.txt", cwd=tmp_path).out
    assert "Python 3.10.14: torch 2.3.1 for CUDA 12.1, deepspeed 0.14.0" in out


def test_a_cpu_build_of_conda_is_no_cuda_build(tmp_path: Path) -> None:
    (tmp_path / "conda.txt").write_text(CONDA_WHOLE.replace("py3.10_cuda12.1_cudnn8.9.2_0", "py3.10_cpu_0"))
    assert "torch 2.3.1+cpu (CPU build)" in envcheck("doctor", "--facts", "conda.txt", cwd=tmp_path).out


@pytest.mark.parametrize(
    "text",
    [
        "accelerate==1.6.0\ntorch==2.4.0\ndeepspeed==0.14.0\n-e git+https://example.org/y@abc#egg=y\n",
        '[{"name": "torch", "version": "2.4.0"}, {"name": "deepspeed", "version": "0.14.0"}]\n',
        "Using Python 3.11.7 environment at: /env\n"
        + PIP.replace("2.13.0", "2.4.0").replace("0.16.2", "0.14.0"),
    ],
    ids=["pip freeze", "pip list --format json", "uv pip list"],
)
def test_lists_of_other_installers_are_judged(text: str, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(text)
    code, rules = findings(tmp_path, "--facts", "list.txt")
    assert (code, rules[0]) == (1, "deepspeed-elastic-log-import-torch24")


def test_nvidia_smi_of_windows_names_the_gpu(tmp_path: Path) -> None:
    smi = SMI.replace("A100-SXM4-80GB          On  |", "GeForce RTX 4090      WDDM  |")
    (tmp_path / "smi.txt").write_text(smi)
    assert "2 x NVIDIA GeForce RTX 4090" in envcheck("doctor", "--facts", "smi.txt", cwd=tmp_path).out


@pytest.mark.parametrize("text", ["", SMI], ids=["nothing", "a machine"])
def test_facts_without_packages_are_no_answer(text: str, tmp_path: Path) -> None:
    (tmp_path / "facts.txt").write_text(text)
    ran = envcheck("doctor", "--facts", "facts.txt", cwd=tmp_path)
    assert ran.code == 3
    assert ran.out.startswith("Cannot say: the facts name no packages\n    fix     add the packages")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_list_as_windows_writes_it_is_read(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_bytes("torch==2.4.0\r\ndeepspeed==0.14.0\r\n".encode(encoding))
    code, rules = findings(tmp_path, "--facts", "list.txt")
    assert (code, rules[0]) == (1, "deepspeed-elastic-log-import-torch24")


# --- lists that people write ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "deepspeed 0.14.0, torch 2.4.0, peft 0.13.2",
        "PyTorch version: 2.4.0\nDeepSpeed: 0.14.0",
        "| torch | 2.4.0 |\n| deepspeed | 0.14.0 |",
        "torch (2.4.0) / deepspeed (0.14.0)",
        "torch==2.4.0, deepspeed==0.14.0, CUDA 12.4, driver 550.54.14, Ubuntu 22.04",
    ],
)
def test_a_list_that_a_person_wrote_is_judged(text: str, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"My environment:\n{text}\n")
    code, rules = findings(tmp_path, "--facts", "list.txt")
    assert (code, "deepspeed-elastic-log-import-torch24" in rules) == (1, True)


def test_what_a_tool_printed_counts_before_what_was_written(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"torch 2.4.0, deepspeed 0.14.0\n\n{PIP}")
    out = envcheck("doctor", "--facts", "list.txt", cwd=tmp_path).out
    assert "torch 2.13.0" in out
    assert "deepspeed 0.16.2" in out


def test_two_versions_that_were_written_are_neither(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("torch 2.4.0, deepspeed 0.14.0\ntorch 2.5.1\n")
    ran = envcheck("doctor", "--facts", "list.txt", cwd=tmp_path)
    assert ran.code == 0
    assert "undecided: DeepSpeed before 0.14.1 cannot be imported" in ran.out
    assert "torch is not known: the log says 2.4.0 in line 1 and 2.5.1 in line 2" in ran.out


@pytest.mark.parametrize(
    "text",
    [
        "It works with torch 2.4.0 and deepspeed 0.14.4 on my other machine",
        "pip install torch==2.4.0 deepspeed==0.14.0",
        "It works with:\ntorch 2.4.0, deepspeed 0.14.0",
        "Ubuntu 22.04, CUDA 12.4",
        "loss: 2.5\nlr: 1.5",
    ],
)
def test_a_sentence_a_command_and_the_list_of_others_are_no_facts(text: str, tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text(f"{text}\n")
    ran = envcheck("doctor", "--facts", "list.txt", cwd=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "list.txt: expected a facts file" in ran.err


# --- standard input and pipes -----------------------------------------------------------------------


def test_facts_come_from_standard_input_and_from_pipes(tmp_path: Path) -> None:
    (tmp_path / "smi.txt").write_text(SMI)
    (tmp_path / "pip.txt").write_text(PIP)
    ran = in_bash("cat pip.txt | envcheck doctor --facts - --facts <(cat smi.txt)", tmp_path)
    assert (ran.code, ran.err) == (1, "")
    assert "2 x NVIDIA A100-SXM4-80GB, 80 GiB" in ran.out
    alone = in_bash("envcheck doctor --facts - < pip.txt", tmp_path)
    assert "judged  standard input " in alone.out
    assert "torch 2.13.0" in alone.out


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("cat pins.txt | envcheck check -", "standard input:2:1"),
        ("envcheck check <(cat pins.txt)", "/dev/fd/"),
    ],
)
def test_check_reads_pins_from_standard_input_and_from_a_pipe(
    command: str, place: str, tmp_path: Path
) -> None:
    (tmp_path / "pins.txt").write_text("torch==2.4.0\ndeepspeed==0.14.0\n")
    ran = in_bash(command, tmp_path)
    assert (ran.code, ran.err) == (1, "")
    assert place in ran.out
    assert "[deepspeed-elastic-log-import-torch24]" in ran.out
    good = in_bash("echo torch==2.4.0 | envcheck check -", tmp_path)
    assert (good.code, good.err) == (0, "")


def test_standard_input_that_is_wrong_endless_or_closed_is_one_line(tmp_path: Path) -> None:
    for command, said in {
        "echo x== | envcheck check -": "standard input:1:1: expected a requirement",
        "yes torch==2.4.0 | envcheck check -": "standard input: larger than",
        "yes torch==2.4.0 | envcheck doctor --facts -": "standard input: larger than",
        "envcheck check - <&-": "standard input: is closed",
        "echo what? | envcheck doctor --facts -": "standard input: expected a facts file",
    }.items():
        ran = in_bash(command, tmp_path)
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1), command
        assert said in ran.err


def test_a_list_may_not_read_standard_input_by_including_it(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("-r -\n")
    ran = in_bash("echo torch==2.4.0 | envcheck check list.txt", tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert "no such file" in ran.err
