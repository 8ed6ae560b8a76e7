"""`envcheck check`: files are judged before anything is installed, and the line that brings the trouble is named."""

from __future__ import annotations

import json
import re
import subprocess  # noqa: TID251 - tests are users
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envcheck import dependency_files
from envcheck.commands import edits, loading
from envcheck.commands.edits import FileEdit
from envcheck.core.errors import InputError
from envcheck.rules import derive
from tests.support.running import Outcome, envcheck

DEEPSPEED = "DeepSpeed before 0.14.1 cannot be imported beside torch 2.4 or newer [deepspeed-elastic-log-import-torch24]"

IMAGES = [
    {"name": "pytorch/pytorch", "tag": "{pkg.torch}-cuda{build.torch.cuda}-cudnn*-*"},
    {"name": "python", "tag": "{python.version}-*"},
    {"name": "python", "tag": "{python.version}"},
]


def check(folder: Path, name: str, text: str, *more: str) -> Outcome:
    (folder / name).write_text(text)
    return envcheck("check", name, *more, cwd=folder)


def trouble(outcome: Outcome) -> list[str]:
    """The lines that compilers print."""
    form = re.compile(r"[^-+\s].*: (?:error|warning|note|undecided): .*\](?: \([A-Z]\w+\))?$")
    return [line for line in outcome.out.splitlines() if form.match(line)]


def sheet(folder: Path, name: str, text: str, python: str = "") -> dependency_files.DependencyList:
    def text_of(file: str, _: str) -> tuple[str, str]:
        path = folder / file
        if not path.is_file():
            raise InputError(file, "no such file")
        return file, path.read_text()

    return dependency_files.read(
        text, name, dependency_files.ReadingContext(text_of, {"image": IMAGES}, python)
    )[-1]


def pins(found: dependency_files.DependencyList) -> dict[str, str]:
    return {line.name: line.version for line in found.lines}


def places(found: dependency_files.DependencyList) -> dict[str, str]:
    return {line.name: line.place for line in found.lines}


def facts(found: dependency_files.DependencyList) -> dict[str, object]:
    return {fact.key: fact.value for fact in found.facts}


# --- every kind of file, by its founding failure ----------------------------------------------------

FILES = {
    "requirements.txt": (
        "torch==2.4.0  # from the article\n  deepspeed==0.14.0 \\\n    --hash=sha256:" + "0" * 64 + "\n",
        "2:3",
    ),
    "pylock.toml": (
        'lock-version = "1.0"\n[[packages]]\nname = "torch"\nversion = "2.4.0"\n[[packages]]\nname = "deepspeed"\nversion = "0.14.0"\n',
        "6:1",
    ),
    "environment.yml": (
        "dependencies:\n  - python=3.11\n  - pytorch::pytorch=2.4.0=py3.11_cuda12.1_cudnn9_0\n  - pip:\n    - deepspeed==0.14.0\n",
        "5:7",
    ),
    "pyproject.toml": (
        '[project]\nname = "x"\ndependencies = ["torch==2.4.0",\n   "deepspeed==0.14.0"]\n',
        "4:5",
    ),
    "Dockerfile": (
        "FROM pytorch/pytorch:2.4.0-cuda12.1-cudnn9-runtime\nRUN apt-get update && \\\n    pip install -q deepspeed==0.14.0\n",
        "3:20",
    ),
    "train.Dockerfile": (
        'ARG V=0.14.0\nFROM python:3.11\nARG V\nRUN pip install torch==2.4.0 "deepspeed==${V}"\n',
        "4:30",
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_the_line_that_causes_a_finding_is_named(tmp_path: Path, name: str) -> None:
    text, place = FILES[name]
    ran = check(tmp_path, name, text)
    assert trouble(ran) == [f"{name}:{place}: error: {DEEPSPEED}"]
    title = DEEPSPEED.partition(" [")[0]
    assert (ran.code, ran.out.splitlines()[0]) == (1, f"Failed: 1 error. {title}")
    mended = check(tmp_path, name, text.replace("0.14.0", "0.15.4"))
    assert (mended.code, trouble(mended)) == (0, [])


def test_the_report_as_json_has_the_places(tmp_path: Path) -> None:
    ran = check(tmp_path, "requirements.txt", FILES["requirements.txt"][0], "--json")
    because = json.loads(ran.out)["findings"][0]["because"]
    assert {each["key"]: each["source"] for each in because if each["key"].startswith("pkg.")} == {
        "pkg.torch": "requirements.txt:1:1",
        "pkg.deepspeed": "requirements.txt:2:3",
    }


def test_files_are_judged_for_a_declared_machine(tmp_path: Path) -> None:
    ran = check(
        tmp_path, "requirements.txt", "torch==2.6.0\n", "--machine", "rtx5090-r580", "--machine", "h100-r550"
    )
    assert ran.code == 1
    assert trouble(ran) == [
        "requirements.txt:1:1: error: This torch build has no machine code for the GPU [torch-build-lacks-gpu-code]"
    ]
    assert "note    machine rtx5090-r580" in ran.out


def test_files_are_judged_for_a_target_and_a_configuration(tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    words: tuple[str, ...] = (
        "--train",
        "ds.json",
        "--train",
        "--use_lora true --gradient_checkpointing true",
    )
    words += (
        "--train",
        "--gradient_checkpointing_kwargs '{\"use_reentrant\": false}'",
    )
    ran = check(tmp_path, "requirements.txt", "torch==2.6.0\ndeepspeed==0.16.4\n", *words)
    first = (
        "Failed: 1 error. ZeRO-3 empties frozen parameters before non-reentrant checkpointing compares them"
    )
    assert ran.out.splitlines()[0] == first


def test_several_files_are_each_judged_by_themselves(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("torch==2.4.0\n")
    (tmp_path / "b.txt").write_text("deepspeed==0.14.0\n")
    ran = envcheck("check", "a.txt", "b.txt", cwd=tmp_path)
    assert (ran.code, trouble(ran)) == (0, [])
    (tmp_path / "b.txt").write_text("deepspeed==0.14.0\ntorch==2.4.0\n")
    ran = envcheck("check", "a.txt", "b.txt", cwd=tmp_path)
    assert [line.partition(" ")[0] for line in trouble(ran)] == ["b.txt:1:1:"]


def test_a_declared_gpu_is_shown_for_all_files_together(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("torch==2.11.0\n")
    (tmp_path / "b.txt").write_text("torch==2.6.0\n")
    said = envcheck("check", "a.txt", "b.txt", "--gpu", "A100-80G", "--driver", "535", cwd=tmp_path).out
    assert "[✓] GPU      NVIDIA A100-SXM4-80GB" in said
    assert "on the GPU (declare" not in said
    assert "Packages not the same in all of them: torch\n" in said
    driver_only = envcheck("check", "a.txt", "--driver", "535", cwd=tmp_path).out
    assert "on the GPU (declare it: --gpu NAME)" in driver_only


def test_what_is_not_judged_is_one_line_or_one_line_each(tmp_path: Path) -> None:
    text = "torch==2.6.0\nnobody-knows-this>=0.18,<0.19\nnor-that\n"
    ran = check(tmp_path, "requirements.txt", text)
    assert (ran.code, trouble(ran)) == (0, [])
    why = "not judged, because no version is pinned: nobody-knows-this, nor-that"
    assert ran.err.splitlines() == [f"requirements.txt: {why}"]
    assert check(tmp_path, "requirements.txt", text, "--quiet").err == ""
    assert check(tmp_path, "requirements.txt", text, "--verbose").err.splitlines() == [
        "requirements.txt:2:1: nobody-knows-this is not judged: no version is pinned",
        "requirements.txt:3:1: nor-that is not judged: no version is pinned",
    ]


def test_a_bare_name_is_the_release_that_a_pinned_package_requires(tmp_path: Path) -> None:
    ran = check(tmp_path, "requirements.txt", "torch\nvllm==0.8.5\ndeepspeed==0.14.0\n")
    assert trouble(ran) == [f"requirements.txt:3:1: error: {DEEPSPEED}"]
    assert "for torch an installer takes 2.6.0 today" in ran.out
    assert ran.err == ""
    (tmp_path / "facts.toml").write_text(
        '[pkg]\nvllm = "0.8.5"\ndeepspeed = "0.14.0"\n[unknown]\n"pkg.torch" = "no version"\n'
    )
    installed = envcheck("doctor", "--facts", "facts.toml", cwd=tmp_path)
    assert "torch is not known: no version" in installed.out  # an environment may violate its metadata


def test_a_bare_name_is_judged_by_what_an_installer_takes(tmp_path: Path) -> None:
    machine = ("--driver", "535.104.05")
    ran = check(tmp_path, "requirements.txt", "torch\n", *machine)
    assert ran.code == 1
    assert "for torch an installer takes 2." in ran.out
    assert "2.10.0, also in the range, does not" in ran.out
    beside = check(tmp_path, "requirements.txt", "vllm==0.8.5\ntorch\n", *machine)
    assert "driver-below" not in beside.out  # vllm 0.8.5 brings torch 2.6.0
    (tmp_path / "pins.txt").write_text("torch<2.11\n")
    assert check(tmp_path, "requirements.txt", "torch\n-c pins.txt\n", *machine).code == 0


@pytest.mark.parametrize(("spelled", "code", "said"), [
    ("--index-url https://download.pytorch.org/whl/cu118", 0, ""),
    ("--extra-index-url https://download.pytorch.org/whl/cu118", 0, "torch"),
    ("--index-url https://mirror.example/simple", 0, ""),
    ("", 1, ""),
])  # fmt: skip
def test_an_open_torch_is_what_its_index_holds(tmp_path: Path, spelled: str, code: int, said: str) -> None:
    ran = check(tmp_path, "requirements.txt", f"{spelled}\ntorch>=2.0\n", "--driver", "470")
    assert ran.code == code
    assert (f"another index may hold other releases of it: {said}" in ran.err) == bool(said)


def test_a_range_is_judged_by_what_an_installer_takes(tmp_path: Path) -> None:
    machine = ("--driver", "535.104.05")
    ran = check(tmp_path, "requirements.txt", "torch>=2.11\n", *machine)
    assert ran.code == 1
    assert "for torch>=2.11 an installer takes" in ran.out
    assert "every release of torch in the range fails" in ran.out
    assert trouble(ran)[0].startswith("requirements.txt:1:1: error: The NVIDIA driver is too old")
    ran = check(tmp_path, "requirements.txt", "torch>=2.4\n", *machine)
    assert ran.code == 1
    assert "which fails; 2.10.0, also in the range, does not" in ran.out
    assert check(tmp_path, "requirements.txt", "torch>=2.4,<2.11\n", *machine).code == 0
    assert check(tmp_path, "requirements.txt", "torch>=2.4\n-c pins.txt\n", *machine).code == 2


def test_a_range_bound_by_a_constraint_is_the_narrower_one(tmp_path: Path) -> None:
    (tmp_path / "pins.txt").write_text("torch<2.11\n")
    ran = check(tmp_path, "requirements.txt", "torch>=2.4\n-c pins.txt\n", "--driver", "535.104.05")
    assert (ran.code, ran.err) == (0, "")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "transformers==4.57.1\nhuggingface-hub>=1.0\n",
            (
                "requirements.txt:1:1: error: huggingface-hub>=1.0 and transformers==4.57.1 cannot be installed "
                "together: transformers 4.57.1 requires huggingface-hub<1.0,>=0.34.0"
            ),
        ),
        (
            "vllm==0.8.5\ntorch>=2.7\n",
            (
                "requirements.txt:1:1: error: torch>=2.7 and vllm==0.8.5 cannot be installed together: vllm 0.8.5 "
                "requires torch==2.6.0"
            ),
        ),
        (
            "torch>=2.7\nvllm>=0.8,<0.9\n",
            "requirements.txt:2:1: error: torch>=2.7 and vllm<0.9,>=0.8 cannot be installed together",
        ),
    ],
)
def test_a_range_that_nothing_fits_beside_another_requirement_is_an_error(
    text: str, said: str, tmp_path: Path
) -> None:
    ran = check(tmp_path, "requirements.txt", text)
    assert ran.code == 1
    assert any(line.startswith(said) for line in trouble(ran))
    _, _, patch = ran.out.partition("patch -p0):\n")
    subprocess.run(["patch", "-p0"], input=patch, text=True, cwd=tmp_path, check=True, capture_output=True)
    again = envcheck("check", "requirements.txt", cwd=tmp_path)
    assert again.code == 0, again.out


def test_a_conflict_of_ranges_shows_the_nearest_release_of_each_package(tmp_path: Path) -> None:
    text = "trl>=0.18\ntransformers==4.46.3\ntorch==2.5.1\n"
    ran = check(tmp_path, "requirements.txt", text)
    assert "requires transformers>=4.56.2, and 0.18.0 transformers>=4.50.0" in ran.out
    assert "\n    fix     transformers ==4.50.0\n    or      trl ==0.17.0\n" in ran.out
    assert "\n+transformers==4.50.0\n" in ran.out


def test_an_installer_takes_older_releases_beside_what_asks_for_them(tmp_path: Path) -> None:
    text = "torchvision>=0.18,<0.19\ntorch>=2.0\n"
    ran = check(tmp_path, "requirements.txt", text, "--json")
    packages = json.loads(ran.out)["facts"]["pkg"]
    assert packages["torch"].startswith("2.3.")


def test_unread_files_that_a_file_refers_to_are_undecided(tmp_path: Path) -> None:
    text = "torch==2.4.0\n-r https://example.org/more.txt\n  ./own.whl\n"
    ran = check(tmp_path, "requirements.txt", text)
    assert (ran.code, ran.out.splitlines()[0]) == (
        0,
        "Passed: no known problem, but 1 check could not be decided. Possible problem: 2 lines refer to something that is not read",
    )
    assert ": a file at an address is not fetched" in ran.out
    every = check(tmp_path, "requirements.txt", text, "--verbose").out
    assert "a path or an address, whose package is not known (requirements.txt:3:3)" in every
    assert check(tmp_path, "requirements.txt", text, "--undecided", "fail").code == 1
    assert check(tmp_path, "requirements.txt", text, "--undecided", "fail", "--skip", "listing:").code == 0


def test_the_file_name_of_a_wheel_tells_its_package_and_what_it_was_built_for(tmp_path: Path) -> None:
    address = "https://example.org/v2.7.4/flash_attn-2.7.4.post1%2Bcu12torch2.5cxx11abiFALSE-cp311-cp311-linux_x86_64.whl"
    for line in (address, f"{address} ; python_version == '3.11'", f"flash-attn @ {address}"):
        ran = check(
            tmp_path,
            "requirements.txt",
            f"torch==2.6.0\n{line}\n",
            "--python-version",
            "3.11",
            "--fail-on",
            "warning",
        )
        assert ran.code == 1
        assert (
            "requirements.txt:2:1: warning: A compiled package is labelled for another minor version of torch"
            in ran.out
        )
    other = check(
        tmp_path,
        "requirements.txt",
        f"torch==2.6.0\n{address} ; python_version == '3.10'\n",
        "--python-version",
        "3.11",
    )
    assert "labelled" not in other.out


def test_a_listed_package_without_a_wheel_for_this_python_is_named(tmp_path: Path) -> None:
    text = "torch==2.4.1\nxformers==0.0.28\n"
    assert (
        "xformers 0.0.28 (for Python 3.8, 3.9, 3.10, 3.11, 3.12)"
        in check(tmp_path, "requirements.txt", text, "--python-version", "3.13").out
    )
    assert (
        "package-without-wheel"
        not in check(tmp_path, "requirements.txt", text, "--python-version", "3.12").out
    )


def test_a_lock_lists_every_package(tmp_path: Path) -> None:
    hashed = f"torch==2.6.0 --hash=sha256:{'0' * 64}\n"
    words = ("--target", "zero3-lora", "--only", "target:")
    assert check(tmp_path, "requirements.txt", "torch==2.6.0\n", *words).code == 0
    assert "zero3-lora needs deepspeed" in check(tmp_path, "requirements.txt", hashed, *words).out


# --- requirements -----------------------------------------------------------------------------------


def test_requirements_include_others_and_constraints_pin(tmp_path: Path) -> None:
    (tmp_path / "more.txt").write_text("peft==0.14.0\n-c limits.txt\n")
    (tmp_path / "limits.txt").write_text("torch==2.6.0\nnumpy==1.26.4\n")
    found = sheet(tmp_path, "requirements.txt", "torch\n-r more.txt\n# numpy is not wanted\n")
    assert pins(found) == {"torch": "2.6.0", "peft": "0.14.0"}
    assert places(found) == {"torch": "limits.txt:1:1", "peft": "more.txt:1:1"}


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("torch==2.6.0", "2.6.0"),
        ("torch===2.6.0", "2.6.0"),
        ("torch == 2.6.0 ; sys_platform == 'linux'", "2.6.0"),
        ("Torch[opt-einsum]==2.6.0", "2.6.0"),
        ("torch>=2.5,==2.6.0", "2.6.0"),
        (
            "torch @ https://example.org/whl/torch-2.6.0%2Bcu118-cp311-cp311-linux_x86_64.whl#sha256=00",
            "2.6.0+cu118",
        ),
        ("torch @ git+https://example.org/torch", ""),
        ("torch==2.6.*", ""),
        ("torch~=2.6.0", ""),
        ("torch", ""),
    ],
)
def test_which_specifiers_pin_a_version(tmp_path: Path, line: str, version: str) -> None:
    assert pins(sheet(tmp_path, "requirements.txt", f"{line}\n")) == {"torch": version}


def test_markers_exclude_other_platforms_and_may_need_the_python(tmp_path: Path) -> None:
    text = "torch==2.6.0; sys_platform == 'win32'\npeft==0.14.0; python_version < '3.10'\n"
    assert pins(sheet(tmp_path, "requirements.txt", text, "3.9")) == {"peft": "0.14.0"}
    assert pins(sheet(tmp_path, "requirements.txt", text, "3.11")) == {}


def test_without_a_python_each_set_of_packages_is_one_judgement(tmp_path: Path) -> None:
    old, new = 'torch==2.6.0 ; python_version < "3.12"\n', 'torch==2.11.0 ; python_version >= "3.12"\n'
    words = ("--driver", "535", "--gpu", "A100-80G")
    ran = check(tmp_path, "requirements.txt", old + new, *words)
    assert ran.code == 1
    line, *_ = trouble(ran)
    assert line.startswith("requirements.txt:2:1: error: The NVIDIA driver is too old")
    assert "    note    file requirements.txt (Python 3.12 to 3.14)\n" in ran.out
    assert "not judged" not in ran.err
    assert check(tmp_path, "requirements.txt", old + new, *words, "--python-version", "3.11").code == 0
    everywhere = 'torch==2.6.0 ; python_version >= "3.9" and python_version < "4.0"\n'
    assert "judged  requirements.txt  " in check(tmp_path, "requirements.txt", everywhere, *words).out


def test_pins_that_an_installer_refuses_together_fail(tmp_path: Path) -> None:
    text = "trl==0.24.0\ntransformers==4.57.6\naccelerate==1.3.0\n"
    refused = check(tmp_path, "requirements.txt", text)
    assert refused.code == 1
    assert refused.out.startswith("Failed: 1 error. trl asks for accelerate>=1.4.0")
    assert "    note    pip and uv refuse to install these two together\n" in refused.out
    assert "-accelerate==1.3.0\n+accelerate==1.4.0\n" in refused.out
    assert check(tmp_path, "requirements.txt", text.replace("1.3.0", "1.4.0")).code == 0
    conda = "dependencies:\n- python=3.11\n- trl=0.24.0\n- transformers=4.57.6\n- accelerate=1.3.0\n"
    assert check(tmp_path, "environment.yml", conda).code == 0, "conda's packages may have other requirements"


def test_a_cause_that_a_requirement_and_a_written_rule_name_is_told_once(tmp_path: Path) -> None:
    pinned = "transformers==4.44.2\ntokenizers==0.20.0\nhuggingface-hub==0.20.0\n"
    outcome = check(tmp_path, "requirements.txt", pinned)
    assert outcome.out.startswith("Failed: 2 errors.")
    assert [line.rpartition(" ")[2] for line in trouble(outcome)] == [
        "[transformers-huggingface-hub-window]",
        "[transformers-tokenizers-window]",
    ]
    alone = check(tmp_path, "requirements.txt", pinned, "--only", "requires-dist:")
    assert [": error: " in line for line in trouble(alone)] == [True, True]
    refused = check(tmp_path, "requirements.txt", "vllm==0.17.0\ntransformers==5.9.0\n")
    assert "refuse to install these two together" in refused.out  # the written rule is a warning


def test_a_package_that_an_exact_pin_brings_fails_a_file(tmp_path: Path) -> None:
    pinned = "torch==2.6.0\nbitsandbytes==0.41.3\n"
    outcome = check(tmp_path, "requirements.txt", pinned)
    assert outcome.code == 1
    assert trouble(outcome)[0].endswith(": error: bitsandbytes 0.38.1 to 0.45.0 cannot be imported beside triton 3.2 or newer [bitsandbytes-triton-ops]")  # fmt: skip
    assert "torch 2.6.0 requires triton==3.2.0" in outcome.out
    assert "[✗] Packages" in outcome.out
    assert "training.described" not in outcome.out
    cpu = "--index-url https://download.pytorch.org/whl/cpu\n"
    assert check(tmp_path, "requirements.txt", cpu + pinned).code == 0, "that build requires no triton"


def test_of_one_package_the_nearest_fitting_release_is_advised(tmp_path: Path) -> None:
    outcome = check(tmp_path, "requirements.txt", "trl==0.15.2\ntransformers==5.2.0\n")
    assert re.search(r"^ +fix +trl ==0\.23\.0$", outcome.out, re.MULTILINE)
    assert re.search(r"^ +or +transformers ==4\.51\.3$", outcome.out, re.MULTILINE), "and no trl before 0.15"


def test_a_project_is_read_for_the_pythons_that_it_admits(tmp_path: Path) -> None:
    project = """[project]
name = "a"
version = "1"
requires-python = ">=3.12"
dependencies = ["torch==2.6.0 ; python_version < '3.12'", "torch==2.11.0 ; python_version >= '3.12'"]
"""
    ran = check(tmp_path, "pyproject.toml", project, "--driver", "535")
    assert "judged  pyproject.toml  " in ran.out
    assert trouble(ran)[0].startswith("pyproject.toml:5:")


@pytest.mark.parametrize(
    ("options", "cuda"),
    [
        ("", None),
        ("--index-url https://download.pytorch.org/whl/cu118\n", "11.8"),
        ("-i https://mirror.example/whl/cu126/\n", "12.6"),
        ("--extra-index-url https://download.pytorch.org/whl/cu118\n", "?"),
        ("--find-links wheels\n", "?"),
    ],
)
def test_an_index_may_bring_another_build(tmp_path: Path, options: str, cuda: str | None) -> None:
    found = sheet(tmp_path, "requirements.txt", f"{options}torch==2.6.0\n")
    readings = {fact.key: fact for fact in found.facts}
    if cuda is None:
        assert readings == {}
    else:
        assert readings["build.torch.cuda"].value == (None if cuda == "?" else cuda)


# --- conda ------------------------------------------------------------------------------------------


def test_conda_pins_what_its_specs_pin(tmp_path: Path) -> None:
    text = (
        "name: x\nchannels: [pytorch]\ndependencies:\n- python=3.11.7\n- pytorch=2.4.0\n- pytorch-cuda=12.1\n- numpy=1.26\n"
        "- conda-forge::scipy==1.14.1\n- libfoo >=2\n- pip\n- pip:\n  - peft==0.14.0 ; python_version >= '3.10'\n"
    )
    found = sheet(tmp_path, "environment.yml", text)
    assert pins(found) == {
        "torch": "2.4.0", "numpy": "", "scipy": "1.14.1", "libfoo": "", "pip": "", "peft": "0.14.0",
    }  # fmt: skip
    assert facts(found) == {
        "python.version": "3.11.7",
        "build.torch.cuda": "12.1",
        "packages.from_conda": ("libfoo", "numpy", "pip", "scipy", "torch"),
    }
    assert places(found)["peft"] == "environment.yml:12:5"


# --- Dockerfiles ------------------------------------------------------------------------------------


def test_installs_of_a_dockerfile_are_followed(tmp_path: Path) -> None:
    (tmp_path / "req").mkdir()
    (tmp_path / "req/base.txt").write_text("accelerate==1.4.0\n-r more.txt\n")
    (tmp_path / "more.txt").write_text("trl==0.12.0\n")
    text = (
        "# escape\nFROM python:3.11.9-slim AS base\nENV PEFT=0.14.0 X=1\nWORKDIR /app\nCOPY req/ deps/\n"
        "RUN cd deps && python -m pip install --no-cache-dir -r base.txt\n"
        'RUN ["pip3", "install", "numpy==1.26.4"]\n'
        "RUN --mount=type=cache,target=/c uv pip install --system \\\n  # no comment ends it\n  peft==$PEFT \\\n"
        "  'transformers>=4.49,<5' --index-url https://x.example/whl/cu118 torch==2.6.0; echo pip install nothing\n"
        "FROM base\nRUN <<EOF\npip install deepspeed==0.16.4\npip uninstall -y numpy\nEOF\n"
    )
    found = sheet(tmp_path, "Dockerfile", text)
    assert pins(found) == {
        "accelerate": "1.4.0", "trl": "0.12.0", "numpy": "", "peft": "0.14.0", "transformers": "", "torch": "2.6.0",
        "deepspeed": "0.16.4",
    }  # fmt: skip
    assert facts(found) == {"python.version": "3.11.9", "build.torch.cuda": "11.8"}
    assert places(found)["peft"] == "Dockerfile:10:3"
    assert places(found)["deepspeed"] == "Dockerfile:14:13"
    assert found.remarks == ()


@pytest.mark.parametrize(
    ("image", "told"),
    [
        ("pytorch/pytorch:2.4.0-cuda12.1-cudnn9-devel", {"torch": "2.4.0"}),
        ("docker.io/pytorch/pytorch:2.4.0-cuda12.1-cudnn9-devel@sha256:00", {"torch": "2.4.0"}),
        ("pytorch/pytorch:latest", {}),
        ("pytorch/pytorch", {}),
        ("mine/pytorch:2.4.0-cuda12.1-cudnn9-devel", {}),
        ("nvidia/cuda:12.4.1-devel-ubuntu22.04", {}),
        ("$UNSET", {}),
        ("${UNSET:-pytorch/pytorch:2.4.0-cuda12.1-cudnn9-devel}", {"torch": "2.4.0"}),
    ],
)
def test_facts_are_read_from_an_image_tag(tmp_path: Path, image: str, told: dict[str, str]) -> None:
    assert pins(sheet(tmp_path, "Dockerfile", f"FROM --platform=linux/amd64 {image}\n")) == told


def test_a_torch_over_that_of_the_base_image_is_another_build(tmp_path: Path) -> None:
    text = "FROM pytorch/pytorch:2.4.0-cuda12.1-cudnn9-devel\nRUN pip install {}\n"
    assert facts(sheet(tmp_path, "Dockerfile", text.format("torch==2.6.0"))) == {}
    kept = sheet(tmp_path, "Dockerfile", text.format("torch"))
    assert (pins(kept), facts(kept)) == ({"torch": "2.4.0"}, {"build.torch.cuda": "12.1"})
    assert pins(sheet(tmp_path, "Dockerfile", text.format("-U torch"))) == {"torch": ""}
    assert pins(sheet(tmp_path, "Dockerfile", text.format("torch==$VERSION"))) == {"torch": ""}


def test_a_file_that_is_not_copied_from_here_is_said_to_be_unread(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.4.0\n")
    unread = sheet(tmp_path, "Dockerfile", "FROM x\nRUN pip install -r /other/requirements.txt\n")
    assert unread.remarks == (
        "Dockerfile:2:20: /other/requirements.txt is not among the files copied from here: not read",
    )
    for copy in (
        "COPY . /other",
        "COPY requirements.txt /other/",
        "ADD requirements.txt /other/requirements.txt",
    ):
        found = sheet(tmp_path, "Dockerfile", f"FROM x\n{copy}\nRUN pip install -r /other/requirements.txt\n")
        assert pins(found) == {"torch": "2.4.0"}, copy
    bound = "RUN --mount=type=bind,source=requirements.txt,target=/tmp/r.txt pip install -r /tmp/r.txt\n"
    assert pins(sheet(tmp_path, "Dockerfile", f"FROM x\n{bound}")) == {"torch": "2.4.0"}
    stolen = "FROM x\nCOPY --from=y requirements.txt /other/\nRUN pip install -r /other/requirements.txt\n"
    assert pins(sheet(tmp_path, "Dockerfile", stolen)) == {}


def test_text_that_only_resembles_an_instruction_or_requirement_is_ignored(tmp_path: Path) -> None:
    text = (
        "FROM x\nCOPY <<EOF /later.sh\nRUN pip install deepspeed==0.14.0\nEOF\n"
        "RUN echo $((1<<EOF)); pip install torch==2.4.0 # pip install peft==0.14.0 && pip install trl==0.12.0\n"
        "RUN pip install dist/*.whl {a,b}==1 $(cat x) peft==${V}; echo pip install numpy==1.26.4\n"
        "RUN pip install -r https://me:secret@example.org/r.txt\n"
    )
    found = sheet(tmp_path, "Dockerfile", text)
    assert {name: version for name, version in pins(found).items() if version} == {"torch": "2.4.0"}
    assert found.remarks == ("Dockerfile:7:20: a file at an address is not fetched",)


# --- mistakes ---------------------------------------------------------------------------------------


BOMB = "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in range(1, 40))
BOMB += "dependencies: [*a39]\n"
"""A list of 2 ** 40 names, if its aliases were written out."""


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (
            "requirements.txt",
            "torch=2.4.0\n",
            "requirements.txt:1:1: expected a requirement such as torch==2.6.0",
        ),
        (
            "requirements.txt",
            "torch==2.4.0 \\",
            "requirements.txt:1:1: the file ends within an entry",
        ),
        ("requirements.txt", "  -r none.txt\n", "requirements.txt:1:3: none.txt: no such file or directory"),
        (
            "requirements.txt",
            "-r requirements.txt\n",
            "requirements.txt:1:1: requirements.txt names this file again",
        ),
        ("requirements.txt", "\0", "requirements.txt: not a text file in UTF-8"),
        ("pylock.toml", "[[packages]]\n", "pylock.toml: expected lock-version and [[packages]]"),
        ("pylock.toml", "x = ]", "pylock.toml:1:5: not TOML: invalid value"),
        (
            "pylock.toml",
            'lock-version = "1.0"\n[[packages]]\nx = 1\n',
            "pylock.toml:2:1: a package without a name",
        ),
        ("environment.yml", "dependencies: [\n", "environment.yml:2:1: not YAML"),
        ("environment.yml", "name: x\n", "environment.yml: expected a list under dependencies:"),
        ("environment.yml", "dependencies: {a: b}\n", "environment.yml:1:15: expected a list"),
        (
            "environment.yml",
            "dependencies:\n- [a]\n",
            "environment.yml:2:3: expected a package such as numpy=1.26.4",
        ),
        ("environment.yml", BOMB, "environment.yml:40:6: expected a package such as numpy=1.26.4"),
        (
            "environment.yml",
            "dependencies:\n- pip:\n  - [a]\n",
            "environment.yml:3:5: expected a requirement",
        ),
        ("pyproject.toml", "[tool.x]\n", "pyproject.toml: no [project] table"),
        (
            "pyproject.toml",
            '[project]\ndependencies = ["a b"]\n',
            "pyproject.toml:2:18: expected a requirement",
        ),
        ("Dockerfile", "RUN true\n", "Dockerfile: expected a FROM: not a Dockerfile"),
        ("Dockerfile", "FROM\n", "Dockerfile:1:1: FROM names no image"),
        ("Dockerfile", "FROM x\nRUN pip install torch=2\n", "Dockerfile:2:17: expected a requirement"),
        (
            "setup.py",
            "",
            "setup.py: not recognised by its name as one of environment.yml, conda list, conda-lock.yml, Dockerfile",
        ),
    ],
)
def test_a_mistake_is_one_line_with_its_place(tmp_path: Path, name: str, text: str, said: str) -> None:
    ran = check(tmp_path, name, text)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"envcheck: {said}"), ran.err
    assert len(ran.err.splitlines()) == 1


def test_a_login_in_a_file_is_not_repeated(tmp_path: Path) -> None:
    secret = "tok3n-that-is-secret"  # noqa: S105 - made up
    text = f"--index-url https://me:{secret}@example.org/simple\ntorch==2.4.0\nx @ git+https://{secret}@example.org/x\n"
    ran = check(tmp_path, "requirements.txt", text)
    assert secret not in ran.out + ran.err
    assert secret not in check(tmp_path, "requirements.txt", f"a b https://{secret}@x\n").err


NAMES = ("requirements.txt", "pylock.toml", "environment.yml", "pyproject.toml", "Dockerfile")


@settings(max_examples=300)
@given(name=st.sampled_from(NAMES), text=st.text(max_size=200))
def test_no_text_causes_a_traceback(name: str, text: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    start = {
        "Dockerfile": "FROM x\nRUN ",
        "environment.yml": "dependencies:\n- ",
        "pyproject.toml": "[project]\n",
    }.get(name, "")
    try:
        found = sheet(tmp_path_factory.getbasetemp(), name, start + text)
    except InputError:
        return
    assert all(line.place.startswith(name) for line in found.lines)


# --- places, locks, projects --------------------------------------------------------------------------


def test_findings_of_several_files_keep_their_places(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("torch==2.13.0\n")
    (tmp_path / "b.txt").write_text("# later\ntorch==2.14.0\n")
    words = ("check", "a.txt", "b.txt", "--driver", "535.104.05")
    ran = envcheck(*words, cwd=tmp_path)
    assert [line.partition(" ")[0] for line in trouble(ran)] == ["a.txt:1:1:", "b.txt:2:1:"]
    sarif = json.loads(envcheck(*words, "--format", "sarif", cwd=tmp_path).out)
    found = [one["locations"][0]["physicalLocation"] for one in sarif["runs"][0]["results"]]
    assert [(one["artifactLocation"]["uri"], one["region"]["startLine"]) for one in found] == [
        ("a.txt", 1),
        ("b.txt", 2),
    ]
    as_json = json.loads(envcheck(*words, "--json", cwd=tmp_path).out)["findings"]
    places = [each["place"] for each in as_json if each["verdict"] == "broken"]
    assert [(each["file"], each["line"]) for each in places] == [("a.txt", 1), ("b.txt", 2)]
    github = envcheck(*words, "--format", "github", cwd=tmp_path).out
    assert "file=a.txt,line=1" in github
    assert "file=b.txt,line=2" in github


UV_LOCK = """\
version = 1
requires-python = ">=3.11"
conflicts = [[
    { package = "app", extra = "old" },
    { package = "app", extra = "new" },
]]

[[package]]
name = "app"
version = "0.1.0"
source = { virtual = "." }
dependencies = [
    { name = "deepspeed" },
]
[package.optional-dependencies]
old = [
    { name = "torch", version = "2.3.1", source = { registry = "x" }, marker = "extra == 'extra-3-app-old'" },
]
new = [
    { name = "torch", version = "2.4.0", source = { registry = "x" }, marker = "extra == 'extra-3-app-new'" },
]

[[package]]
name = "deepspeed"
version = "0.14.0"
source = { registry = "x" }

[[package]]
name = "torch"
version = "2.3.1"
source = { registry = "x" }

[[package]]
name = "torch"
version = "2.4.0"
source = { registry = "x" }

[[package]]
name = "never-asked-for"
version = "1.0"
source = { registry = "x" }
"""


def test_each_member_of_a_conflict_set_of_uv_is_one_judgement(tmp_path: Path) -> None:
    ran = check(tmp_path, "uv.lock", UV_LOCK)
    assert ran.code == 1
    (line,) = trouble(ran)
    assert line.startswith("uv.lock:24:1: error: DeepSpeed before 0.14.1 cannot be imported")
    assert "    note    file uv.lock (new)" in ran.out
    fine = UV_LOCK.replace('name = "torch", version = "2.4.0"', 'name = "torch", version = "2.3.1"', 1)
    assert check(tmp_path, "uv.lock", fine).code == 0


def test_forks_of_a_lock_by_python_are_told_apart(tmp_path: Path) -> None:
    fork = 'source = { registry = "x" }\nresolution-markers = ["python_full_version {}"]\n'
    older = '[[package]]\nname = "torch"\nversion = "2.3.1"\n' + fork.replace("{}", "== '3.11.*'")
    newer = '[[package]]\nname = "torch"\nversion = "2.4.0"\n' + fork.replace("{}", ">= '3.12'")
    own = '[[package]]\nname = "app"\nsource = { virtual = "." }\ndependencies = [{ name = "deepspeed" }, { name = "torch" }]\n'
    other = '[[package]]\nname = "deepspeed"\nversion = "0.14.0"\nsource = { registry = "x" }\n'
    lock = f'version = 1\nrequires-python = ">=3.11"\n{own}{other}{older}{newer}'
    assert "file uv.lock (Python 3.12 to 3.14)" in check(tmp_path, "uv.lock", lock).out
    assert check(tmp_path, "uv.lock", lock, "--python-version", "3.11").code == 0
    assert check(tmp_path, "uv.lock", lock, "--python-version", "3.12").code == 1


def test_the_python_of_a_part_of_a_lock_decides_which_requirements_apply(tmp_path: Path) -> None:
    """Expect no accusation: mistral-common asks for numpy below 2.4 on Python 3.12 and older only."""
    package = '[[package]]\nname = "{}"\nversion = "{}"\n{}'
    fork = "resolution-markers = [\"python_full_version {} '3.13'\"]\n"
    lock = 'version = 1\nrequires-python = ">=3.12"\n' + "".join(
        [
            package.format("mistral-common", "1.11.0", 'dependencies = [{ name = "numpy" }]\n'),
            package.format("numpy", "1.26.4", fork.format("<")),
            package.format("numpy", "2.4.1", fork.format(">=")),
        ]
    )

    assert "asks for numpy" not in check(tmp_path, "uv.lock", lock).out
    assert "asks for numpy" in check(tmp_path, "uv.lock", lock.replace("1.26.4", "2.4.0")).out


PIXI = """\
version: 6
environments:
  default:
    channels:
    - url: https://conda.example.org/conda-forge/
    packages:
      linux-64:
      - conda: https://conda.example.org/linux-64/python-3.11.9-hb806964_0_cpython.conda
      - conda: https://conda.example.org/linux-64/pytorch-2.4.0-cuda120_py311h4ee7bbc_301.conda
      - pypi: https://files.example.org/deepspeed-0.14.0.tar.gz
      osx-arm64:
      - conda: https://conda.example.org/osx-arm64/python-3.12.9-h932a869_0_cpython.conda
packages:
- pypi: https://files.example.org/deepspeed-0.14.0.tar.gz
  name: deepspeed
  version: 0.14.0
"""
CONDA_LOCK = """\
version: 1
package:
- name: pytorch
  version: 2.4.0
  manager: conda
  platform: linux-64
  url: https://conda.example.org/linux-64/pytorch-2.4.0-cuda120_py311_301.conda
- name: deepspeed
  version: 0.14.0
  manager: pip
  platform: linux-64
- name: deepspeed
  version: 0.16.0
  manager: pip
  platform: osx-arm64
"""
POETRY = """\
[[package]]
name = "torch"
version = "2.4.0"
python-versions = ">=3.8"
groups = ["main"]

[[package]]
name = "deepspeed"
version = "0.14.0"
python-versions = "*"
markers = "sys_platform == 'linux'"

[[package]]
name = "deepspeed"
version = "0.16.0"
python-versions = "*"
markers = "sys_platform == 'win32'"

[metadata]
python-versions = ">=3.10,<3.13"
"""
PDM = """\
[metadata]
groups = ["default"]
[[metadata.targets]]
requires_python = ">=3.10"

[[package]]
name = "torch"
version = "2.4.0"
requires_python = ">=3.8"

[[package]]
name = "deepspeed"
version = "0.14.0"
marker = "sys_platform == 'linux'"
"""


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("pixi.lock", PIXI, 10),
        ("conda-lock.yml", CONDA_LOCK, 8),
        ("poetry.lock", POETRY, 8),
        ("pdm.lock", PDM, 12),
    ],
)
def test_locks_of_other_tools_are_read(name: str, text: str, line: int, tmp_path: Path) -> None:
    ran = check(tmp_path, name, text)
    assert ran.code == 1
    assert trouble(ran)[0].startswith(f"{name}:{line}:1: error: DeepSpeed before 0.14.1 cannot be imported")
    assert check(tmp_path, name, text.replace("0.14.0", "0.14.4")).code == 0


CONDA_PAIR = """\
version: 1
package:
- name: pytorch
  version: 2.10.0
  manager: conda
  platform: linux-64
  url: https://conda.example.org/linux-64/pytorch-2.10.0-cuda129_generic_py312_200.conda
- name: torchvision
  version: 0.26.0
  manager: conda
  platform: linux-64
  url: https://conda.example.org/linux-64/torchvision-0.26.0-cuda129_py312_h1_0.conda
"""
CONDA_ENVIRONMENT = "dependencies:\n- pytorch=2.10.0\n- torchvision=0.26.0\n"
PIXI_PAIR = """\
version: 6
environments:
  default:
    packages:
      linux-64:
      - conda: https://conda.example.org/linux-64/pytorch-2.10.0-cuda129_generic_py312_200.conda
      - conda: https://conda.example.org/linux-64/torchvision-0.26.0-cuda129_py312_h1_0.conda
"""


CONDA_HEAD = "# This file may be used to create an environment using:\n# $ conda create --name <env> --file <this file>\n"
CONDA_EXPORT = f"""{CONDA_HEAD}# platform: linux-64
_libgcc_mutex=0.1=conda_forge
numpy=2.1.0=py311h64a7726_0
python=3.11.8=hab00c5b_0_cpython
pytorch=2.2.0=py3.11_cuda12.1_cudnn8.9.2_0
deepspeed=0.14.0=pypi_0
"""
CONDA_TABLE = """\
# packages in environment at /opt/conda/envs/llm:
#
# Name                    Version                   Build  Channel
numpy                     2.1.0           py311h64a7726_0    conda-forge
python                    3.11.8          hab00c5b_0_cpython    conda-forge
pytorch                   2.2.0           py3.11_cuda12.1_cudnn8.9.2_0    pytorch
deepspeed                 0.14.0                   pypi_0    pypi
"""
CONDA_EXPLICIT = """\
# Generated by conda-lock.
# platform: linux-64
@EXPLICIT
https://conda.example.org/linux-64/numpy-2.1.0-py311h64a7726_0.conda#0123
https://conda.example.org/linux-64/python-3.11.8-hab00c5b_0_cpython.conda#4567
https://conda.example.org/linux-64/pytorch-2.2.0-cuda121_py311_0.tar.bz2#89ab
# pip deepspeed @ https://files.example.org/packages/aa/deepspeed-0.14.0.tar.gz#sha256=cdef
"""


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("requirements.txt", CONDA_EXPORT, 8),
        ("requirements.txt", CONDA_EXPORT.partition("linux-64\n")[2], 5),  # the head was deleted
        ("packages.txt", CONDA_TABLE, 7),
        ("conda-linux-64.lock", CONDA_EXPLICIT, 7),
    ],
)
def test_what_conda_lists_is_read_under_any_name(name: str, text: str, line: int, tmp_path: Path) -> None:
    ran = check(tmp_path, name, text)

    assert (ran.code, ran.err) == (1, "")
    assert trouble(ran)[0].startswith(f"{name}:{line}:1: error: DeepSpeed before 0.14.4 cannot be imported")
    assert "Python 3.11.8: torch 2.2.0 for CUDA 12.1" in ran.out
    assert check(tmp_path, name, text.replace("0.14.0", "0.14.4")).code == 0

    from_facts = envcheck("doctor", "--facts", name, cwd=tmp_path)
    assert "Python 3.11.8: torch 2.2.0 for CUDA 12.1" in from_facts.out


def test_an_explicit_list_of_conda_leaves_out_what_pip_installed(tmp_path: Path) -> None:
    made_by = "# Generated by conda-lock.\n"
    by_conda = CONDA_EXPLICIT.removeprefix(made_by).partition("# pip")[0]

    assert not sheet(tmp_path, "spec.txt", by_conda).whole
    assert sheet(tmp_path, "spec.txt", CONDA_EXPLICIT).whole
    assert sheet(tmp_path, "spec.txt", CONDA_EXPORT).whole


@pytest.mark.parametrize("build", ["py3.11_cpu_0", "cpu_mkl_py311h6d2b5e1_100"])
def test_conda_s_torch_for_the_cpu_is_told_from_that_for_cuda(build: str, tmp_path: Path) -> None:
    text = CONDA_EXPORT.replace("py3.11_cuda12.1_cudnn8.9.2_0", build)

    assert pins(sheet(tmp_path, "spec.txt", text))["torch"] == "2.2.0+cpu"
    assert pins(sheet(tmp_path, "spec.txt", CONDA_EXPORT))["torch"] == "2.2.0"


def test_packages_of_conda_are_not_held_to_the_metadata_of_wheels(tmp_path: Path) -> None:
    conda = f"{CONDA_HEAD}pytorch=2.5.1=cuda126_py311_0\nsympy=1.14.0=pyh_0\n"
    asked = "torch asks for sympy==1.13.1 in its own metadata"

    assert asked not in check(tmp_path, "spec.txt", conda).out
    assert asked in check(tmp_path, "requirements.txt", "torch==2.5.1\nsympy==1.14.0\n").out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{CONDA_EXPORT}torch>=2\n", "requirements.txt:9:1: expected name=version=build or the address"),
        (
            f"{CONDA_EXPLICIT}https://conda.example.org/x.conda\n",
            "requirements.txt:8:1: expected name=version",
        ),
        ("torch=2.2.0\nnumpy=2.1.0=py311_0\n", "requirements.txt:1:1: expected a requirement"),
    ],
)
def test_a_line_that_conda_does_not_list_is_named(text: str, said: str, tmp_path: Path) -> None:
    ran = check(tmp_path, "requirements.txt", text)

    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"envcheck: {said}"), ran.err


@pytest.mark.parametrize(
    ("name", "text"),
    [("conda-lock.yml", CONDA_PAIR), ("environment.yml", CONDA_ENVIRONMENT), ("pixi.lock", PIXI_PAIR)],
)
def test_torchvision_that_conda_installs_with_its_own_torch_is_not_accused(
    name: str, text: str, tmp_path: Path
) -> None:
    assert check(tmp_path, name, text).code == 0


def test_torchvision_that_pip_installs_beside_condas_torch_is_accused(tmp_path: Path) -> None:
    text = "dependencies:\n- pytorch=2.10.0\n- pip:\n  - torchvision==0.26.0\n"
    ran = check(tmp_path, "environment.yml", text)
    assert ran.code == 1
    assert "torchvision 0.26.0 was compiled for torch==2.11.0" in ran.out


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("uv.lock", "version = 1\n"),
        ("poetry.lock", "[metadata]\n"),
        ("pixi.lock", "version: 6\n"),
        ("conda-lock.yml", "version: 1\n"),
        ("conda-lock.yml", CONDA_LOCK.replace("linux-64", "win-64")),
        ("uv.lock", 'version = 1\n[[package]]\nversion = "1"\n'),
        ("pyproject.toml", '[dependency-groups]\na = [{ include-group = "a" }]\n'),
        ("pyproject.toml", '[project]\noptional-dependencies = { a = ["torch=="] }\n'),
    ],
)
def test_a_lock_or_project_with_a_mistake_is_one_clear_line(name: str, text: str, tmp_path: Path) -> None:
    ran = check(tmp_path, name, text)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert name in ran.err


def test_extras_and_groups_of_a_project_are_judged_with_its_dependencies(tmp_path: Path) -> None:
    text = (
        '[project]\nname = "app"\ndependencies = ["torch==2.4.0"]\n'
        '[project.optional-dependencies]\nbad = ["deepspeed==0.14.0"]\nall = ["app[bad]"]\n'
        '[dependency-groups]\ntrain = [{ include-group = "base" }]\nbase = ["deepspeed==0.14.4"]\n'
    )
    ran = check(tmp_path, "pyproject.toml", text)
    (line,) = trouble(ran)
    assert line.startswith("pyproject.toml:5:9: error: DeepSpeed before 0.14.1")
    assert "file pyproject.toml (extra bad)" in ran.out


def test_dependencies_of_poetry_are_read(tmp_path: Path) -> None:
    text = '[tool.poetry.dependencies]\npython = "^3.10"\ntorch = "^2.11"\n'
    ran = check(tmp_path, "pyproject.toml", text, "--driver", "535.104.05")
    assert trouble(ran)[0].startswith("pyproject.toml:3:1: error: The NVIDIA driver is too old")
    assert "for torch<3,>=2.11 an installer takes" in ran.out


@pytest.mark.parametrize("path", ["./pkg", "pkg/", "sub/pkg", ".[dev]", "../x/y.whl", "C:\\x\\y", "-e ."])
def test_a_local_path_is_remarked_and_passed_over(path: str, tmp_path: Path) -> None:
    ran = check(tmp_path, "requirements.txt", f"torch==2.4.0\n{path}\ndeepspeed==0.14.0\n", "-v")
    assert ran.code == 1
    assert any("DeepSpeed before 0.14.1" in line for line in trouble(ran))
    assert "not known (requirements.txt:2:1)" in ran.out


# --- the edit -----------------------------------------------------------------------------------------


def test_a_failing_file_comes_with_the_edit_that_passes(tmp_path: Path) -> None:
    text = '# pins\ntorch==2.4.0  # gpu\ndeepspeed[autotuning]==0.14.0 ; python_version > "3.8"\npeft'
    ran = check(tmp_path, "requirements.txt", text, "--python-version", "3.11")
    assert ran.code == 1
    assert "pip install" not in ran.out
    _, _, patch = ran.out.partition("patch -p0):\n")
    assert '-deepspeed[autotuning]==0.14.0 ; python_version > "3.8"\n' in patch
    subprocess.run(["patch", "-p0"], input=patch, text=True, cwd=tmp_path, check=True, capture_output=True)
    assert "# gpu" in (tmp_path / "requirements.txt").read_text()
    again = envcheck("check", "requirements.txt", "--python-version", "3.11", cwd=tmp_path)
    assert again.code == 0


def test_a_range_and_a_project_are_edited_where_they_stand(tmp_path: Path) -> None:
    text = (
        '[project]\nname = "app"\ndependencies = [\n    "torch >=2.11, <3 ; sys_platform == \'linux\'",\n]\n'
    )
    ran = check(tmp_path, "pyproject.toml", text, "--driver", "535.104.05")
    assert "\n+    \"torch==2.10.0 ; sys_platform == 'linux'\",\n" in ran.out


@pytest.mark.parametrize(
    ("file", "text", "left"),
    [
        ("requirements.txt", "# pins\n{0}\napex==0.9.10.dev0  # O2\n", "# pins\n{0}\n"),
        (
            "pyproject.toml",
            '[project]\nname = "app"\ndependencies = [\n    "{0}",\n    "apex==0.9.10.dev0",  # O2\n]\n',
            '[project]\nname = "app"\ndependencies = [\n    "{0}",\n]\n',
        ),
        (
            "pyproject.toml",
            '[project]\nname = "app"\ndependencies = ["apex==0.9.10.dev0", "{0}"]\n',
            '[project]\nname = "app"\ndependencies = ["{0}"]\n',
        ),
        (
            "pyproject.toml",
            '[project]\nname = "app"\ndependencies = ["{0}", "apex==0.9.10.dev0"]\n',
            '[project]\nname = "app"\ndependencies = ["{0}"]\n',
        ),
    ],
)
def test_a_package_that_has_to_go_is_taken_out_of_the_file(
    file: str, text: str, left: str, tmp_path: Path
) -> None:
    program = tmp_path / "train.py"
    program.write_text("from transformers import Trainer\n\nTrainer(model=None).train()\n")
    how = ("--python-version", "3.10", "--train", str(program))
    ran = check(tmp_path, file, text.format("transformers==4.51.3"), *how)
    assert ran.code == 1
    assert "    fix     uninstall apex\n" in ran.out
    _, _, patch = ran.out.partition("patch -p0):\n")
    subprocess.run(["patch", "-p0"], input=patch, text=True, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / file).read_text() == left.format("transformers==4.51.3")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('accelerate = "0.20.0"  # old', 'accelerate = "==1.3.0"  # old'),
        ('"accelerate" = "0.20.0"', '"accelerate" = "==1.3.0"'),
        (
            'accelerate = { extras = ["rich"], version = "0.20.0" }',
            'accelerate = { extras = ["rich"], version = "==1.3.0" }',
        ),
    ],
)
def test_the_tables_of_poetry_stay_toml(before: str, after: str, tmp_path: Path) -> None:
    text = '[tool.poetry.dependencies]\npython = "^3.11"\ntransformers = "4.57.6"\n'
    ran = check(tmp_path, "pyproject.toml", f"{text}{before}\n")
    assert ran.code == 1
    _, _, patch = ran.out.partition("patch -p0):\n")
    subprocess.run(["patch", "-p0"], input=patch, text=True, cwd=tmp_path, check=True, capture_output=True)
    assert (tmp_path / "pyproject.toml").read_text() == f"{text}{after}\n"


@pytest.mark.parametrize(
    ("lines", "is_removed"),
    [
        ('apex = "0.9.10.dev0"\n', True),
        ('apex = { version = "0.9.10.dev0", optional = true }\n', True),
        ('apex = { git = "https://example.org/apex" }\n', True),
        ('apex = { version = "0.9.10.dev0",\n  optional = true }\n', False),
        ('apex = [\n  { version = "0.9.10.dev0" },\n]\n', False),
    ],
)
def test_a_key_is_taken_out_with_its_whole_value_or_not_at_all(lines: str, is_removed: bool) -> None:
    edit = FileEdit("pyproject.toml", {(2, "apex"): ""})
    found = edits.patch(f"[tool.poetry.dependencies]\n{lines}", edit)
    assert found.endswith(f"\n [tool.poetry.dependencies]\n-{lines}") if is_removed else found == ""


def test_locks_and_hashed_files_are_not_edited(tmp_path: Path) -> None:
    assert "patch -p0" not in check(tmp_path, "poetry.lock", POETRY).out
    hashed = f"torch==2.4.0 --hash=sha256:{'0' * 64}\ndeepspeed==0.14.0 --hash=sha256:{'0' * 64}\n"
    assert "patch -p0" not in check(tmp_path, "requirements.txt", hashed).out


def test_a_release_newer_than_the_knowledge_is_named_with_the_day_of_the_knowledge(tmp_path: Path) -> None:
    newer = check(tmp_path, "requirements.txt", "torch==2.8.0\npeft==99.1\n")
    line = next(line for line in newer.out.splitlines() if "newer, and not known" in line)
    assert re.fullmatch(
        r"published releases were read on \d{4}-\d\d-\d\d; newer, and not known: peft 99\.1", line
    )

    known = check(tmp_path, "requirements.txt", "torch==2.8.0\npeft==0.17.0\n")
    assert "newer, and not known" not in known.out


def test_a_requirement_that_a_lock_of_uv_overrides_is_a_note(tmp_path: Path) -> None:
    own = '[[package]]\nname = "app"\nsource = { virtual = "." }\ndependencies = [{ name = "datasets" }, { name = "fsspec" }]\n'
    packages = "".join(
        f'[[package]]\nname = "{name}"\nversion = "{version}"\nsource = {{ registry = "x" }}\n'
        for name, version in (("datasets", "3.0.0"), ("fsspec", "2024.9.0"))
    )
    lock = f'version = 1\nrequires-python = "==3.11.*"\n{own}{packages}'
    overrides = '[manifest]\noverrides = [{ name = "FSspec", specifier = "==2024.9.0" }]\n'

    assert check(tmp_path, "uv.lock", lock, "--fail-on", "warning").code == 1
    ran = check(
        tmp_path, "uv.lock", lock.replace("[[package]]", f"{overrides}[[package]]", 1), "--fail-on", "warning"
    )
    assert ran.code == 0
    assert "note: datasets asks for fsspec<" in ran.out


@pytest.mark.parametrize(
    ("file", "from_index", "from_repository"),
    [
        ("uv.lock", 'source = { registry = "x" }', 'source = { git = "https://github.com/o/n?tag=v1#aa" }'),
        ("poetry.lock", "", '[package.source]\ntype = "git"\nurl = "https://github.com/o/n"'),
        ("pdm.lock", "", 'git = "https://github.com/o/n"'),
        ("pylock.toml", "", 'vcs = { type = "git", url = "https://github.com/o/n" }'),
    ],
)
def test_what_a_lock_takes_from_a_repository_is_compiled_for_its_torch(
    tmp_path: Path, file: str, from_index: str, from_repository: str
) -> None:
    def judged(source: str) -> tuple[int, bool]:
        table = "packages" if file == "pylock.toml" else "package"
        packages = "".join(
            f'[[{table}]]\nname = "{name}"\nversion = "{version}"\n{where}\n'
            for name, version, where in (
                ("torch", "2.10.0", from_index),
                ("torchvision", "0.23.0", source),
                ("sgl-kernel", "0.3.21", source),
            )
        )
        ran = check(tmp_path, file, f'version = 1\nlock-version = "1.0"\n{packages}[metadata]\n')
        return ran.code, "needs the symbol" in ran.out

    assert judged(from_index) == (1, True)
    assert judged(from_repository) == (0, False)


# --- where a project takes packages from --------------------------------------------------------------

_SOURCES = """[project]
name = "x"
version = "1"
dependencies = ["torch>=2.9", "transformers>=4.50"]
[project.optional-dependencies]
cpu = []
cu126 = []
[tool.uv]
override-dependencies = ["numpy<2"]
[[tool.uv.index]]
name = "pytorch"
url = "https://download.pytorch.org/whl/cu126"
explicit = true
"""


@pytest.mark.parametrize(
    ("sources", "said"),
    [
        ('[tool.uv.sources]\ntorch = { index = "pytorch" }\n', "torch 2.14.1 for CUDA 12.6"),
        (
            """[tool.uv.sources]
torch = [
  { index = "pytorch", marker = "sys_platform == 'linux'" },
  { index = "none", marker = "sys_platform == 'darwin'" },
]
""",
            "torch 2.14.1 for CUDA 12.6",
        ),
        (
            """[tool.uv.sources.torch]
url = "https://example.org/torch-2.9.1%2Bcu126-cp312-cp312-linux_x86_64.whl"
""",
            "torch 2.9.1+cu126 for CUDA 12.6",
        ),
        ('[tool.poetry.dependencies]\ntorch = { version = ">=2.9", source = "pytorch" }\n', "for CUDA 12.6"),
    ],
)
def test_torch_is_that_of_the_index_that_a_project_names(tmp_path: Path, sources: str, said: str) -> None:
    ran = check(tmp_path, "pyproject.toml", _SOURCES + sources, "--driver", "550")
    assert said in ran.out
    assert "driver-below-cuda-family-floor" not in ran.out


def test_without_a_source_torch_is_that_of_the_default_index(tmp_path: Path) -> None:
    ran = check(tmp_path, "pyproject.toml", _SOURCES, "--driver", "550")
    assert "driver-below-cuda-family-floor" in ran.out


def test_the_index_of_an_extra_decides_in_that_extra_alone(tmp_path: Path) -> None:
    text = _SOURCES.replace("cpu = []", 'cpu = ["peft"]') + (
        '[tool.uv.sources]\ntorch = [{ index = "pytorch", extra = "cpu" }]\n'
    )
    ran = check(tmp_path, "pyproject.toml", text, "--driver", "550")
    found = [line for line in trouble(ran) if "driver-below" in line]
    assert len(found) == 1
    notes = [line for line in ran.out.splitlines() if "file pyproject.toml (extra cpu)" in line]
    assert any("for torch>=2.9,<=2.14.1 an installer takes 2.14.1" in note for note in notes)


_NEWER_FAILS_TOO = """
[[rule]]
id = "house-newer-peft"
severity = "error"
basis = "measured"
title = "Newer PEFT fails here for another reason"
why = "measured in this house"
when = { "pkg.peft" = ">=0.18", "pkg.transformers" = "==5.0.0" }
sources = [{ url = "https://example.org/house", kind = "source", checked = 2026-11-29 }]
"""


def test_a_release_that_fails_otherwise_is_no_way_out_of_a_range(tmp_path: Path) -> None:
    """Name PEFT 0.18, which imports where 0.17 does not, as a way out only if no other rule refuses it."""
    (tmp_path / "house.toml").write_text(_NEWER_FAILS_TOO)
    requirements = "transformers==5.0.0\npeft>=0.16\n"
    none_fits = "every release of peft in the range fails"

    refused = check(tmp_path, "requirements.txt", requirements, "--matrix", "house.toml")
    assert f"for peft>=0.16 an installer takes 0.21.2 today; {none_fits}" in refused.out
    older_alone = check(tmp_path, "requirements.txt", requirements.replace(">=0.16", ">=0.16,<0.18"))
    assert none_fits in older_alone.out
    assert none_fits not in check(tmp_path, "requirements.txt", requirements).out


def test_a_package_from_a_checkout_is_not_the_newest_release(tmp_path: Path) -> None:
    text = _SOURCES + '[tool.uv.sources]\ntransformers = { git = "https://example.org/t", rev = "1" }\n'
    ran = check(tmp_path, "pyproject.toml", text)
    assert "comes from a checkout or a folder" in ran.err + ran.out
    assert "transformers 5" not in ran.out


def test_an_override_replaces_the_requirement(tmp_path: Path) -> None:
    text = _SOURCES.replace('"numpy<2"', '"torch==2.5.1"')
    assert "torch 2.5.1 for CUDA 12.4" in check(tmp_path, "pyproject.toml", text).out


@pytest.mark.parametrize(
    ("line", "nccl"),
    [("", "2.26.2"), ("nvidia-nccl-cu12\n", None), ("nvidia-nccl-cu12>=2.27\n", None), ("nvidia-nccl-cu12==2.27.5\n", "2.27.5")],
)  # fmt: skip
def test_a_library_of_torch_that_is_listed_without_a_version_is_not_the_one_it_pins(
    tmp_path: Path, line: str, nccl: str | None
) -> None:
    listed = dependency_files.inventory(sheet(tmp_path, "requirements.txt", f"torch==2.7.1+cu128\n{line}"))
    found = derive.derive(listed, loading.load_matrix(loading.known_vocabulary()))
    assert found.known("torch.nccl") == nccl


def test_no_fix_names_a_release_that_its_authors_withdrew(tmp_path: Path) -> None:
    pins = "torch==2.7.1\nvllm==0.11.0\ntransformers==4.51.3\n"
    found = json.loads(check(tmp_path, "requirements.txt", pins, "--json").out)["findings"]
    (finding,) = [each for each in found if each["rule"] == "atlas:vllm:transformers:LLM"]
    fixes = json.dumps(finding["fix"])
    assert "4.52.0" not in fixes
    assert "4.52.1" in fixes


# --- the model that a launch names --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "code"),
    [("google/gemma-3-4b-it", 1), ("/data/gemma-3-4b-it", 1), ("google/gemma-2-9b-it", 0), ("my/model", 0)],
)
def test_the_name_of_a_model_says_which_transformers_it_needs(tmp_path: Path, model: str, code: int) -> None:
    (tmp_path / "train.py").write_text(
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        f"model = AutoModelForCausalLM.from_pretrained({model!r})\n"
        "Trainer(model=model, args=TrainingArguments('out')).train()\n"
    )
    ran = check(tmp_path, "requirements.txt", "transformers==4.49.0\n", "--train", "train.py")
    assert (ran.code, "[model-type-newer-than-transformers]" in ran.out) == (code, code == 1), ran
    assert ("transformers==4.50.0" in ran.out) == (code == 1)


# --- arguments that are no files --------------------------------------------------------------------


def test_a_folder_stands_for_its_dependency_files(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "requirements-dev.txt").write_text("torch==2.4.0\ndeepspeed==0.14.0\n")
    (folder / "Dockerfile").write_text("FROM python:3.11\nRUN pip install torch==2.6.0\n")
    (folder / "notes.txt").write_text("this is no list of packages\n")
    (folder / "config.yaml").write_text("a: [\n")
    ran = envcheck("check", "project", cwd=tmp_path)
    assert (ran.code, ran.err) == (1, "")
    assert "project/requirements-dev.txt:2:1: error" in ran.out
    assert "judged  project/Dockerfile, project/requirements-dev.txt " in ran.out


def test_a_folder_without_dependency_files_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("this is no list of packages\n")
    ran = envcheck("check", ".", cwd=tmp_path)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert ran.err.startswith(
        "envcheck: .: a folder with no file that has the name of one of environment.yml"
    )


def test_requirements_may_be_arguments(tmp_path: Path) -> None:
    ran = envcheck("check", "torch==2.4.0", "deepspeed>=0.14.0,<0.14.1", cwd=tmp_path)
    assert (ran.code, ran.err) == (1, "")
    assert "arguments:2:1: error" in ran.out
    assert envcheck("check", "torch==2.4.0", cwd=tmp_path).code == 0
    (tmp_path / "torch==2.4.0.txt").write_text("deepspeed==0.14.0\ntorch==2.4.0\n")
    assert envcheck("check", "torch==2.4.0.txt", cwd=tmp_path).code == 1


@pytest.mark.parametrize("argument", ["torch", "torch==", "missing.txt", "torch=2.4"])
def test_what_is_neither_file_nor_requirement_is_one_line(argument: str, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.4.0\n")
    ran = envcheck("check", argument, cwd=tmp_path)
    assert (ran.code, ran.err) == (2, f"envcheck: {argument}: no such file or directory\n")


def test_the_output_of_pip_list_is_answered_with_the_command_that_judges_it(tmp_path: Path) -> None:
    (tmp_path / "list.txt").write_text("Package    Version\n---------- -------\ntorch      2.4.0\n")
    ran = envcheck("check", "list.txt", cwd=tmp_path)
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert (
        "list.txt: what pip list prints is no dependency file: envcheck doctor --facts judges it" in ran.err
    )


@pytest.mark.parametrize("argument", ["", "a" * 5000])
def test_a_name_that_is_empty_or_too_long_is_one_line(argument: str, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("torch==2.4.0\n")
    ran = envcheck("check", argument, cwd=tmp_path)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert "internal error" not in ran.err


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_a_list_as_windows_writes_it_is_read(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "r.txt").write_bytes("-r more.txt\r\ntorch==2.4.0\r\n".encode(encoding))
    (tmp_path / "more.txt").write_bytes("deepspeed==0.14.0\r\n".encode(encoding))
    ran = envcheck("check", "r.txt", cwd=tmp_path)
    assert (ran.code, ran.err) == (1, "")
    assert "more.txt:1:1: error: DeepSpeed before 0.14.1 cannot be imported" in ran.out
    assert ("patch -p0" in ran.out) == (encoding != "utf-16")  # `patch` cannot edit that
