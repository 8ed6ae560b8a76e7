"""The formats of a lock: the program that a format is for reads it and installs from it."""

from __future__ import annotations

import json
import os
import subprocess  # noqa: TID251 - the formats are for other programs
import sys
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.pylock import Pylock, is_valid_pylock_path
from packaging.requirements import Requirement
from packaging.tags import sys_tags

from envcheck.core.errors import ExamineError, InputError
from envcheck.host.machine import Host, find_program
from envcheck.lock import formats
from envcheck.lock.model import Artifact, Lock, Pin
from tests.support import running
from tests.support.local_index import LocalIndex, serving
from tests.support.running import envcheck
from tests.support.stack_index import STACK, stack
from tests.unit.lock.test_lock import LOCK, TEXT

ADDRESSES = {
    file.sha256: f"https://files.example/packages/{file.sha256[:2]}/{file.filename}"
    for pin in LOCK.pins
    for file in pin.artifacts
}
UV = find_program(Host(), "uv")
needs_uv = pytest.mark.skipif(
    UV is None or sys.platform != "linux" or sys.version_info < (3, 11), reason="needs Linux and uv"
)


def written(name: str, lock: Lock = LOCK) -> str:
    return formats.named(name).render(lock, formats.Context(ADDRESSES))


@pytest.mark.parametrize("name", formats.names())
def test_every_format_says_what_it_assumes_and_is_the_same_every_time(name: str) -> None:
    text = written(name)
    mark = "//" if name == "devcontainer" else "#"
    assert text.startswith(
        f"{mark} Locked by envcheck 0.1.0 on 2026-11-21 for the target zero3-lora.\n{mark}\n"
    )
    assert f"{mark} Machine    driver.version 525.60.13 or newer\n" in text
    assert written(name, replace(LOCK, pins=tuple(reversed(LOCK.pins)))) == text


@pytest.mark.parametrize("name", formats.names())
def test_no_format_prints_anything_of_this_machine(name: str) -> None:
    for note in ("see /home/somebody/x", "https://user:canary@index.example/simple", "--index-url x"):
        with pytest.raises(ExamineError, match="refusing to print the lock") as caught:
            written(name, replace(LOCK, notes=(note,)))
        assert "canary" not in str(caught.value)


def test_requirements_format_equals_the_rendered_lock() -> None:
    assert written("requirements") == TEXT


def test_constraints_hold_versions_alone_and_say_that_they_are_not_a_lock() -> None:
    lines = written("constraints").splitlines()
    assert [line for line in lines if not line.startswith("#")] == ["deepspeed==0.19.8", "torch==2.10.0"]
    assert any("not a lock" in line for line in lines)


def test_an_unknown_format_lists_the_known_ones() -> None:
    with pytest.raises(
        InputError,
        match=r"expected one of conda, constraints, devcontainer, dockerfile, pixi, .*, found 'poetry'",
    ):
        formats.named("poetry")


# --- PEP 751 ----------------------------------------------------------------------------------------


def test_packaging_reads_the_pylock() -> None:
    said = tomllib.loads(written("pylock"))
    lock = Pylock.from_dict(said)
    assert [(each.name, str(each.version)) for each in lock.packages] == [
        ("deepspeed", "0.19.8"),
        ("torch", "2.10.0"),
    ]
    hashes = {sha for each in lock.packages for file in each.wheels or () for sha in file.hashes.values()}
    assert hashes == {file.sha256 for pin in LOCK.pins if pin.name == "torch" for file in pin.artifacts}
    assert said["tool"]["envcheck"]["digest"] == LOCK.digest()


def test_pylock_for_another_platform_is_refused_by_packaging_here() -> None:
    lock = Pylock.from_dict(tomllib.loads(written("pylock", replace(LOCK, platform="linux-aarch64"))))
    with pytest.raises(Exception, match="environment"):
        list(
            lock.select(
                environment={**default_environment(), "platform_machine": "x86_64"}, tags=list(sys_tags())
            )
        )


@pytest.mark.parametrize(
    "address",
    [
        "",
        "https://user:canary@files.example/a.whl",
        "https://files.example/a.whl?token=canary",
        "https://files.example/a.whl#canary",
        "file:///srv/canary/a.whl",
        'https://files.example/a"canary.whl',
    ],
)
def test_an_address_that_holds_more_than_host_and_path_is_not_printed(address: str) -> None:
    with pytest.raises(ExamineError, match="no address of") as caught:
        formats.named("pylock").render(LOCK, formats.Context(dict.fromkeys(ADDRESSES, address)))
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "file", "fits"),
    [
        ("pylock", "pylock.toml", True),
        ("pylock", "pylock.gpu.toml", True),
        ("pylock", "lock.toml", False),
        ("pylock", "pylock.a.b.toml", False),
        ("uv", "part.toml", True),
        ("uv", "pyproject.toml", False),
        ("requirements", "anything.txt", True),
    ],
)
def test_a_format_restricts_the_names_of_its_files(name: str, file: str, fits: bool) -> None:
    import re

    assert bool(re.fullmatch(formats.named(name).FILES, file)) is fits
    if name == "pylock":
        assert is_valid_pylock_path(Path(file)) is fits


# --- installed for real -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def index() -> Iterator[LocalIndex]:
    with serving(LocalIndex(stack(), as_json=True)) as served:
        yield served


def environ(index: LocalIndex, home: Path) -> dict[str, str]:
    # Without UV_PYTHON and VIRTUAL_ENV, which would make uv install into the environment of the tests.
    aside = ("UV_", "PIP_", "VIRTUAL_ENV", "CONDA_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(aside)}  # noqa: TID251
    own = {
        "PYTHONPATH": str(running.installed()),
        "PIP_INDEX_URL": index.url,
        "UV_DEFAULT_INDEX": index.url,
        "PIP_CONFIG_FILE": os.devnull,
        "UV_CACHE_DIR": str(home / "uv"),
        "UV_NO_CONFIG": "1",
        "UV_HTTP_RETRIES": "0",
    }
    return {**kept, **own}


def run(environment: Mapping[str, str], *command: str | Path, cwd: Path) -> str:
    ran = subprocess.run(
        [str(part) for part in command],
        capture_output=True, text=True, timeout=300, check=False, cwd=cwd, env=dict(environment),
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def pin(environment: Mapping[str, str], folder: Path, *options: str) -> None:
    python = "{}.{}".format(*sys.version_info)
    wanted = ("--target", "zero3-lora", "--python-version", python, "--resolve", "--static")
    run(environment, *running.invocation("pin", *wanted, *options), cwd=folder)


def installed(python: Path, cwd: Path) -> dict[str, str]:
    script = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()))"
    found = (Requirement(each) for each in run({}, python, "-I", "-c", script, cwd=cwd).split())
    return {each.name.replace("_", "-"): str(each.specifier).removeprefix("==") for each in found}


@needs_uv
def test_pylock_installs_with_uv_from_source_and_wheels(index: LocalIndex, tmp_path: Path) -> None:
    assert UV
    environment = environ(index, tmp_path)
    pin(environment, tmp_path, "--format", "pylock", "--show-index", "-o", "pylock.toml")
    text = (tmp_path / "pylock.toml").read_text()
    run(environment, UV, "venv", "--python", sys.executable, "env", cwd=tmp_path)
    (command,) = [line[1:].strip() for line in text.splitlines() if line.startswith("#   DS_BUILD_OPS")]
    environment |= {"VIRTUAL_ENV": str(tmp_path / "env"), "PATH": f"{Path(UV).parent}:{os.environ['PATH']}"}  # noqa: TID251
    run(environment, "sh", "-c", command, cwd=tmp_path)
    there = installed(tmp_path / "env/bin/python", tmp_path)
    assert STACK.items() <= there.items()
    assert set(there) == {each["name"] for each in tomllib.loads(text)["packages"]}


@needs_uv
def test_uv_locks_the_versions_of_the_pasted_table(index: LocalIndex, tmp_path: Path) -> None:
    assert UV
    environment = environ(index, tmp_path)
    del environment["UV_NO_CONFIG"]  # it would ignore the table under test
    pin(environment, tmp_path, "--format", "uv", "-o", "part.toml")
    index.files.update(stack(torch="2.14.0"))
    try:
        project = '[project]\nname = "p"\nversion = "1"\nrequires-python = ">=3.10"\ndependencies = []\n'
        (tmp_path / "pyproject.toml").write_text(project + (tmp_path / "part.toml").read_text())
        run(environment, UV, "sync", "--group", "zero3-lora", "--python", sys.executable, cwd=tmp_path)
    finally:
        for file in stack(torch="2.14.0").keys() - stack().keys():
            del index.files[file]
    there = installed(tmp_path / ".venv/bin/python", tmp_path)
    assert STACK.items() <= there.items()


@needs_uv
def test_constraints_bind_what_pip_installs(index: LocalIndex, tmp_path: Path) -> None:
    environment = environ(index, tmp_path)
    pin(environment, tmp_path, "--format", "constraints", "-o", "constraints.txt")
    newer = stack(torch="2.14.0")
    index.files.update(newer)
    try:
        run(environment, sys.executable, "-m", "venv", "env", cwd=tmp_path)
        run(
            environment,
            "env/bin/python",
            "-m",
            "pip",
            "install",
            "-c",
            "constraints.txt",
            "torch",
            cwd=tmp_path,
        )
    finally:
        for file in newer.keys() - stack().keys():
            del index.files[file]
    assert installed(tmp_path / "env/bin/python", tmp_path)["torch"] == STACK["torch"]


def test_constraints_only_selects_its_format_and_excludes_others() -> None:
    asked = ("pin", "--target", "zero3-lora", "--python-version", "3.11", "--offline")
    assert envcheck(*asked, "--constraints-only").out == envcheck(*asked, "--format", "constraints").out
    both = envcheck(*asked, "--constraints-only", "--format", "pylock")
    assert (both.code, both.out) == (2, "")
    assert both.err == "envcheck: --constraints-only: contradicts --format pylock\n"


TRAINER = Lock(
    target="grpo",
    python="3.12",
    platform="linux-x86_64",
    pins=tuple(
        Pin(name, version, ()) for name, version in (("torch", "2.13.0"), ("trl", "1.16.0"), ("idna", "3.20"))
    ),
)
SERVER = replace(
    TRAINER,
    target="server",
    pins=(Pin("torch", "2.12.0", ()), Pin("vllm", "0.31.0", ()), Pin("idna", "3.20", ())),
)


def test_uv_gets_a_group_of_what_was_asked_for_and_constraints_for_the_rest() -> None:
    context = formats.Context(requested=("torch", "trl[vllm]"))
    table = tomllib.loads(formats.named("uv").render(TRAINER, context))
    assert table["dependency-groups"] == {"grpo": ["torch==2.13.0", "trl[vllm]==1.16.0"]}
    settings = table["tool"]["uv"]
    assert settings["constraint-dependencies"] == ["idna==3.20", "torch==2.13.0", "trl==1.16.0"]
    assert "conflicts" not in settings


def test_uv_is_told_which_python_the_lock_is_for() -> None:
    """Without it, uv takes the first Python on PATH, and refuses the lock if that is another release."""
    text = formats.named("uv").render(TRAINER, formats.Context(requested=("torch",)))
    assert f"uv sync --python {TRAINER.python} --group grpo" in text


@pytest.mark.parametrize("name", ["dockerfile", "devcontainer"])
def test_a_format_that_needs_the_requirements_says_how_to_get_them(name: str) -> None:
    lines = " ".join(line.lstrip("/# ") for line in written(name).splitlines())
    assert "the same `envcheck pin` command, with `-o requirements.txt` instead of --format" in lines


def test_uv_gets_two_environments_as_groups_that_conflict() -> None:
    server = formats.RequestedLock(SERVER, ("vllm",))
    context = formats.Context(requested=("trl[vllm]",), server=server)
    table = tomllib.loads(formats.named("uv").render(TRAINER, context))
    assert table["dependency-groups"] == {
        "grpo": ["trl[vllm]==1.16.0", "torch==2.13.0"],
        "server": ["vllm==0.31.0", "torch==2.12.0"],
    }
    settings = table["tool"]["uv"]
    assert settings["conflicts"] == [[{"group": "grpo"}, {"group": "server"}]]
    # A constraint binds both groups, so there is none on torch.
    assert settings["constraint-dependencies"] == ["idna==3.20", "trl==1.16.0", "vllm==0.31.0"]


WHEEL = "torch-2.7.1+cu118-cp312-cp312-linux_x86_64.whl"
ADDRESS = "https://wheels.example/cu118/" + WHEEL.replace("+", "%2B")
FOREIGN = replace(
    TRAINER,
    pins=(Pin("torch", "2.7.1+cu118", (Artifact(WHEEL, "a" * 64),), url=ADDRESS), Pin("idna", "3.20", ())),
)


def test_a_wheel_of_another_index_is_named_by_its_address() -> None:
    table = tomllib.loads(formats.named("uv").render(FOREIGN, formats.Context(requested=("idna",))))
    assert table["dependency-groups"] == {"grpo": ["idna==3.20", "torch==2.7.1+cu118"]}
    assert table["tool"]["uv"]["sources"] == {"torch": [{"url": ADDRESS, "group": "grpo"}]}
    assert table["tool"]["uv"]["constraint-dependencies"] == ["idna==3.20"]
    assert tomllib.loads(written("pixi", FOREIGN))["pypi-dependencies"]["torch"] == {"url": ADDRESS}


def test_a_wheel_of_a_known_index_is_taken_from_that_index_alone() -> None:
    index = "https://wheels.example/cu118"
    known = replace(FOREIGN, pins=tuple(replace(pin, index=index if pin.url else "") for pin in FOREIGN.pins))
    table = tomllib.loads(formats.named("uv").render(known, formats.Context(requested=("idna",))))
    assert table["dependency-groups"] == {"grpo": ["idna==3.20", "torch==2.7.1+cu118"]}
    assert table["tool"]["uv"]["sources"] == {"torch": [{"index": "cu118", "group": "grpo"}]}
    assert table["tool"]["uv"]["index"] == [{"name": "cu118", "url": index, "explicit": True}]
    torch = tomllib.loads(written("pixi", known))["pypi-dependencies"]["torch"]
    assert torch == {"version": "==2.7.1+cu118", "index": index}


def test_the_server_of_a_target_is_a_second_group() -> None:
    asked = ("pin", "--target", "grpo-trl-vllm", "--python-version", "3.12", "--driver", "580.95.05")
    found = envcheck(*asked, "--offline", "--format", "uv")
    assert found.code == 0, found.err
    table = tomllib.loads(found.out)
    groups = table["dependency-groups"]
    assert {*groups} == {"grpo-trl-vllm", "vllm-server"}
    vllm = {name: [line for line in lines if line.startswith("vllm==")] for name, lines in groups.items()}
    assert vllm["grpo-trl-vllm"] == vllm["vllm-server"] != []
    assert len(table["tool"]["uv"]["conflicts"][0]) == 2


# --- other people's files ---------------------------------------------------------------------------


def test_pixi_has_every_pin_and_the_platform() -> None:
    table = tomllib.loads(written("pixi"))
    assert table["workspace"]["platforms"] == ["linux-64"]
    assert table["dependencies"] == {"python": f"{LOCK.python}.*"}
    assert table["pypi-dependencies"] == {pin.name: f"=={pin.version}" for pin in LOCK.pins}
    assert "pypi-options" not in table  # setuptools suffices to build deepspeed, so it is built in isolation
    assert "system-requirements" not in table  # pixi assumes this C library
    newer = tomllib.loads(written("pixi", replace(LOCK, glibc="2.31")))
    assert newer["system-requirements"] == {"libc": {"family": "glibc", "version": "2.31"}}


FLASH = Pin("flash-attn", "2.8.3", (Artifact("flash_attn-2.8.3.tar.gz", "f" * 64),))
WITH_FLASH = replace(LOCK, pins=(*LOCK.pins, FLASH), build=(*LOCK.build, "flash-attn"))


def test_what_needs_torch_to_be_built_is_built_after_torch() -> None:
    # pixi builds a package to read its requirements, when no wheel is installed yet.
    pixi = written("pixi", WITH_FLASH)
    assert {*tomllib.loads(pixi)["pypi-dependencies"]} == {"deepspeed", "torch", "pip"}
    assert "pixi run python -m pip install" in pixi
    table = tomllib.loads(written("uv", WITH_FLASH))["tool"]["uv"]
    assert table["extra-build-dependencies"] == {"flash-attn": ["torch==2.10.0"]}
    conda = written("conda", WITH_FLASH)
    assert "- pip:" not in conda  # pip would build it without torch
    assert "--no-build-isolation -r requirements.txt" in conda
    assert f"conda activate {LOCK.target}\n" in conda
    for name in ("dockerfile", "devcontainer"):
        assert "nvcc" in written(name, WITH_FLASH)
        assert "nvcc" not in written(name)


def test_conda_environment_is_read_back_with_every_wheel(tmp_path: Path) -> None:
    (tmp_path / "environment.yml").write_text(written("conda"))
    code, out, err = envcheck("check", str(tmp_path / "environment.yml"), "--json")
    assert code in (0, 1), err
    for pin in LOCK.pins:
        assert f'- "{pin.name}=={pin.version} --hash=sha256:' in written("conda")
    assert out


def test_dockerfile_installs_the_lock_and_then_gates(tmp_path: Path) -> None:
    text = written("dockerfile")
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert lines[0] == f"FROM python:{LOCK.python}-slim"
    assert any("--require-hashes" in line and line.startswith("RUN ") for line in lines)
    assert "envcheck gate" in lines[-1]
    (tmp_path / "Dockerfile").write_text(text)
    (tmp_path / "requirements.txt").write_text(TEXT)
    code, _, err = envcheck("check", str(tmp_path / "Dockerfile"))
    assert code in (0, 1), err


def test_dockerfile_has_the_cpp_compiler_only_if_the_optimizer_is_offloaded() -> None:
    offloaded = replace(LOCK, train=(("train.offload_optimizer", "cpu"),))
    assert "--no-install-recommends g++ &&" in written("dockerfile", offloaded)
    assert "g++" not in written("dockerfile", replace(LOCK, train=(("train.offload_optimizer", "none"),)))


def test_devcontainer_is_json_after_its_comments() -> None:
    text = written("devcontainer")
    table = json.loads("".join(line for line in text.splitlines() if not line.startswith("//")))
    assert table["image"] == f"python:{LOCK.python}"
    assert "--require-hashes" in table["postCreateCommand"]
