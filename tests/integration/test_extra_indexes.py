"""A torch for another CUDA on an extra index of the user: locked by its address, or refused with a reason."""

from __future__ import annotations

import os
import re
import subprocess  # noqa: TID251 - tests are users
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from envcheck.core.errors import ExamineError, InputError
from envcheck.host.machine import Host, find_program
from envcheck.lock.install import install_commands
from envcheck.lock.leaks import refuse_leaks
from envcheck.lock.model import Artifact, Lock, Pin
from envcheck.lock.parse import parse_requirements
from envcheck.lock.render import render_requirements
from envcheck.resolver_backends.index.settings import user_extra_indexes
from tests.support.local_index import LocalIndex, serving, wheel
from tests.support.running import Outcome, installed, invocation
from tests.support.stack_index import stack

PYTHON = "{}.{}".format(*sys.version_info)
TAG = f"cp{PYTHON.replace('.', '')}"
PLAIN = ("2.10.0", "2.7.1", "2.0.1")

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or find_program(Host(), "uv") is None, reason="needs Linux and uv"
)

TARGET = """
[target.small]
title = "torch alone"
packages = ["torch"]
"""


def torch(version: str, *more: str, tag: str = "", name: str = "torch") -> tuple[str, bytes]:
    """Return a wheel of torch or of a package compiled for it; large, so that reading all of it would show."""
    python = tag or f"{TAG}-{TAG}-manylinux_2_28_x86_64"
    filling = {f"{name}/__init__.py": f"said = {version!r}\n".encode(), f"{name}/big.bin": bytes(400_000)}
    return wheel(name, version, more, tag=python, more=filling)


def default_files() -> dict[str, bytes]:
    return dict(
        (
            *(wheel("torch", version) for version in PLAIN),
            wheel("nvidia-cublas-cu11", "11.11.3.6"),
            wheel("triton", "3.3.1"),
            wheel("torchvision", "0.22.1", ("torch==2.7.1",)),
            wheel("mine", "1.0", ("torch>=2", "triton")),
        )
    )


CU118 = ("nvidia-cublas-cu11==11.11.3.6; platform_system == 'Linux'", "triton==3.3.1")


def further_files() -> dict[str, bytes]:
    # A package that the default index has too, and one that would win if two indexes offered it.
    return dict((torch("2.7.1+cu118", *CU118), wheel("triton", "99.0"), wheel("mine", "99.0")))


@dataclass
class World:
    """Two indexes, and a folder to work in."""

    default: LocalIndex
    folder: Path

    def environ(self, further: str, **more: str) -> dict[str, str]:
        aside = ("UV_", "PIP_", "VIRTUAL_ENV", "CONDA_", "ENVCHECK_", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(aside)}  # noqa: TID251
        own = {
            "PYTHONPATH": str(installed()),
            "HOME": str(self.folder),
            "PIP_INDEX_URL": self.default.url,
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_RETRIES": "0",
            "UV_CACHE_DIR": str(self.folder / "uv"),
            "UV_HTTP_RETRIES": "0",
        }
        if further:
            own["PIP_EXTRA_INDEX_URL"] = further
        return {**kept, **own, **more}

    def pin(self, further: str, *options: str, python: str = PYTHON, **more: str) -> Outcome:
        """Pin torch >= 2.4 for a driver that only CUDA 11 serves, which no plain build of it has."""
        (self.folder / "own.toml").write_text(TARGET)
        said = ["pin", "--resolve", "--target", "small", "--matrix", "own.toml", "--python-version", python]
        if "--driver" not in options:
            said += ["--driver", "470.82.01", "--with", "torch>=2.4"]
        said += ["--platform", "linux-x86_64", "--glibc", "2.28", *options]
        return run(self.environ(further, **more), invocation(*said), self.folder)


def run(environment: Mapping[str, str], command: list[str], cwd: Path) -> Outcome:
    ran = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, cwd=cwd, env=dict(environment)
    )
    return Outcome(ran.returncode, ran.stdout, ran.stderr)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with serving(LocalIndex(default_files())) as default:
        yield World(default, tmp_path)


@pytest.fixture
def index() -> Iterator[LocalIndex]:
    with serving(LocalIndex(further_files(), ranges=True)) as served:
        yield served


def pins(text: str) -> dict[str, Pin]:
    return {pin.name: pin for pin in parse_requirements(text, "stdout").pins}


# --- it is there ------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ["uv", "pip-tools"])
def test_only_the_torch_build_is_locked_by_its_address(engine: str, world: World, index: LocalIndex) -> None:
    code, out, err = world.pin(index.url, "--engine", engine, "--with", "mine")
    assert code == 0, err
    found = pins(out)
    file = f"torch-2.7.1%2Bcu118-{TAG}-{TAG}-manylinux_2_28_x86_64.whl"
    address = f"http://127.0.0.1:{index.port}/files/{file}"
    assert f"torch @ {address} \\\n    --hash=sha256:" in out
    assert found["torch"].version == "2.7.1+cu118"
    assert {name: pin.version for name, pin in found.items() if name != "torch"} == {
        "mine": "1.0",
        "nvidia-cublas-cu11": "11.11.3.6",
        "triton": "3.3.1",
    }
    assert (out + err).count(str(index.port)) == 1
    assert str(world.default.port) not in out + err
    assert str(world.folder) not in out + err
    needs = parse_requirements(out, "stdout").needs
    assert ("driver.version", ">=", "450.80.02") in needs
    assert "torch 2.7.1+cu118 comes from the address in its line" in err
    # Only its page and the end of the wheel were read: no other page of that index, and not the whole wheel.
    assert {path for path in index.asked if "/simple/" in path} == {"/simple/torch/"}
    assert index.sent < 200_000


def test_it_is_installed_with_hashes_from_the_two_indexes(world: World, index: LocalIndex) -> None:
    out = world.pin(index.url, "--with", "mine", "-o", "requirements.txt")
    assert out.code == 0, out.err
    run(world.environ(""), [sys.executable, "-m", "venv", "--without-pip", "env"], world.folder)
    python = str(world.folder / "env/bin/python")
    (command,) = install_commands((), ())
    install = [sys.executable, "-m", "pip", "--python", python, *command.split()[3:]]
    assert command in (world.folder / "requirements.txt").read_text()
    ran = run(world.environ(""), install, world.folder)  # the settings no longer name the extra index
    assert ran.code == 0, ran.err
    said = run(world.environ(""), [python, "-c", "import torch; print(torch.said)"], world.folder)
    assert said.out == "2.7.1+cu118\n"
    by_uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--python", python, "--reinstall"]
    environment = world.environ("", UV_DEFAULT_INDEX=world.default.url)
    ran = run(environment, [*by_uv, "--require-hashes", "-r", "requirements.txt"], world.folder)
    assert ran.code == 0, ran.err


def test_the_whole_stack_is_built_with_it_and_both_backends_agree(index: LocalIndex, tmp_path: Path) -> None:
    beside = dict((wheel("nvidia-cublas-cu11", "11.11.3.6"), wheel("triton", "3.3.1")))
    with serving(LocalIndex(stack() | beside)) as default:
        world = World(default, tmp_path)
        options = ("--target", "zero3-lora", "--engine", "both", "-o", "requirements.txt")
        code, _, err = world.pin(index.url, *options)
        assert code == 0, err
        text = (tmp_path / "requirements.txt").read_text()
        assert f"uv and pip-tools agree on all {len(pins(text))} packages" in err
        run(world.environ(""), [sys.executable, "-m", "venv", "env"], tmp_path)
        # pip before 23.1, as Debian 12 has it, would run setup.py, for which this index has no setuptools.
        path = f"{tmp_path}/env/bin:{os.environ['PATH']}"  # noqa: TID251
        environment = world.environ("", PATH=path, PIP_USE_PEP517="1")
        (command,) = re.findall(r"^#   (.+)$", text, re.MULTILINE)
        assert "--no-binary deepspeed" in command
        ran = run(environment, ["sh", "-c", command], tmp_path)
        assert ran.code == 0, ran.err
        found = run(environment, ["env/bin/python", "-m", "pip", "freeze"], tmp_path)
    assert {"torch", "deepspeed==0.19.8", "peft==0.21.2"} <= {
        line.partition(" @ ")[0] for line in found.out.split("\n")
    }


@pytest.mark.parametrize("kind", ["constraints", "uv", "pylock"])
def test_every_format_says_where_the_wheel_is(kind: str, world: World, index: LocalIndex) -> None:
    shown = ("--show-index",) if kind == "pylock" else ()
    code, out, err = world.pin(index.url, "--format", kind, *shown)
    assert code == 0, err
    file = f"127.0.0.1:{index.port}/files/torch-2.7.1%2Bcu118-"
    assert (out.count(index.url), out.count(file)) == ((1, 0) if kind == "uv" else (0, 1))
    python = str(world.folder / "env/bin/python")
    run(world.environ(""), [sys.executable, "-m", "venv", "--without-pip", "env"], world.folder)
    uv = str(Path(sys.executable).with_name("uv"))
    if kind == "constraints":
        (world.folder / "constraints.txt").write_text(out)
        ran = run(
            world.environ(""),
            [sys.executable, "-m", "pip", "--python", python, "install", "-c", "constraints.txt", "mine"],
            world.folder,
        )
    elif kind == "pylock":
        (world.folder / "pylock.toml").write_text(out)
        ran = run(
            world.environ(""),
            [uv, "pip", "install", "--python", python, "-r", "pylock.toml"],
            world.folder,
        )
    else:
        project = f'[project]\nname = "p"\nversion = "1"\nrequires-python = "=={PYTHON}.*"\n'
        (world.folder / "pyproject.toml").write_text(f'{project}dependencies = ["mine"]\n{out}')
        environment = {**world.environ(""), "UV_DEFAULT_INDEX": world.default.url}
        environment["UV_PROJECT_ENVIRONMENT"] = str(world.folder / "env")
        ran = run(environment, [uv, "sync", "--python", python], world.folder)
    assert ran.code == 0, ran.err
    said = run(world.environ(""), [python, "-c", "import torch; print(torch.said)"], world.folder)
    assert said.out == "2.7.1+cu118\n"


def test_a_gpu_that_only_another_build_supports(world: World) -> None:
    # The first torch for Python 3.14 is 2.9, whose default builds have no machine code for Pascal.
    files = dict([torch("2.14.1+cu126", tag="cp314-cp314-manylinux_2_28_x86_64")])
    with serving(LocalIndex(files, ranges=True, as_json=True)) as index:
        code, out, err = world.pin(index.url, "--driver", "580.95.05", "--gpu", "GTX 1080 Ti", python="3.14")
    assert code == 0, err
    assert pins(out)["torch"].version == "2.14.1+cu126"


def test_an_older_build_is_used_if_the_index_has_no_newer_one(world: World) -> None:
    with serving(LocalIndex(dict([torch("2.6.0+cu118")]), ranges=True)) as index:
        code, out, err = world.pin(index.url)
    assert code == 0, err
    assert pins(out)["torch"].version == "2.6.0+cu118"


def test_metadata_beside_the_wheel_is_enough(world: World) -> None:
    name, data = torch("2.7.1+cu118", *CU118)
    about = b"Metadata-Version: 2.1\nName: torch\nVersion: 2.7.1+cu118\nRequires-Dist: triton==3.3.1\n"
    said: dict[str, dict[str, object]] = {name: {"core-metadata": True}}
    with serving(LocalIndex({name: data, f"{name}.metadata": about}, said=said)) as index:
        code, out, err = world.pin(index.url)
    assert code == 0, err
    assert set(pins(out)) == {"torch", "triton"}


def test_packages_compiled_for_torch_come_from_the_same_index_or_there_is_no_lock(
    world: World, index: LocalIndex
) -> None:
    without = world.pin(index.url, "--with", "torchvision")
    assert (without.code, without.out) == (4, "")
    assert "torchvision 0.22.1+cu118 is needed from the same index as torch" in without.err
    index.files |= dict([torch("0.22.1+cu118", "torch==2.7.1", name="torchvision")])
    code, out, err = world.pin(index.url, "--with", "torchvision")
    assert code == 0, err
    assert pins(out)["torchvision"].url.endswith(
        f"torchvision-0.22.1%2Bcu118-{TAG}-{TAG}-manylinux_2_28_x86_64.whl"
    )


def test_a_plain_build_that_fits_is_used_and_no_extra_index_is_read(world: World, index: LocalIndex) -> None:
    code, out, err = world.pin(index.url, "--driver", "550.54.15")
    assert code == 0, err
    assert pins(out)["torch"] == Pin("torch", "2.10.0", pins(out)["torch"].artifacts)
    assert index.asked == []


# --- it is not, or must not be told -----------------------------------------------------------------

COMMAND = "uv pip install --torch-backend cu118 torch==2.7.1\n"


def refused(world: World, further: str, *options: str, **more: str) -> str:
    """Return what is printed besides the variant and its command."""
    began = time.monotonic()
    code, out, err = world.pin(further, *options, **more)
    assert (code, out) == (4, ""), err
    assert time.monotonic() - began < 60
    assert "torch 2.7.1+cu118, a build for another CUDA" in err
    assert COMMAND in err
    assert not re.search(r"://|127\.0\.0\.1|canary|Traceback", err)
    assert str(world.folder) not in err
    after = f"\n{err.partition(COMMAND)[2]}".split("\n  - ")[0]
    return " ".join(after.split())


def test_without_an_extra_index_no_note_is_printed(world: World) -> None:
    assert refused(world, "") == ""
    # The default index is not read either: the tables already show that no plain build fits.
    assert world.default.asked == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"hashes": False}, "the index gives no sha256 for it"),
        ({"said": {"yanked": True}}, "it was withdrawn there"),
        ({"files": {}}, "did not answer: the index answers 404 for torch"),
        ({"files": dict([torch("2.7.1+cu118", tag="cp36-cp36m-manylinux_2_28_x86_64")])}, "has no such wheel"),
        ({"files": dict([torch("2.7.1+cu118", tag=f"{TAG}-{TAG}-manylinux_2_39_x86_64")])}, "has no such wheel"),
        ({"files": dict([torch("2.7.1")])}, "has no such wheel"),
        ({"ranges": False}, "the index serves no parts of files"),
        ({"login": "canary:canary"}, "its address contains a login"),
        ({"files": dict([torch("2.7.1+cu118", "nvidia-nowhere==1")])}, "nvidia-nowhere"),
        ({"files": dict([torch("2.7.1+cu118", "x @ https://canary.example/x-1-py3-none-any.whl")])}, "by its address"),
        ({"files": {torch("2.7.1+cu118")[0]: torch("2.6.0+cu118")[1]}}, "states another name or version"),
        ({"files": {torch("2.7.1+cu118")[0]: b"PK canary" * 9000}}, "cannot be read: it is no wheel"),
    ],
)  # fmt: skip
def test_a_wheel_that_cannot_be_locked_is_reported_in_one_line(
    change: dict[str, object], why: str, world: World
) -> None:
    given = {"files": further_files(), "ranges": True, "as_json": True, **change}
    if "said" in change:
        given["said"] = {torch("2.7.1+cu118")[0]: change["said"]}
    with serving(LocalIndex(**given)) as index:  # type: ignore[arg-type]
        said = refused(world, index.url)
    assert "a further index of yours (PIP_EXTRA_INDEX_URL)" in said or why == "nvidia-nowhere"
    assert why in said


def test_an_index_that_requires_a_missing_login_is_reported(world: World) -> None:
    with serving(LocalIndex(further_files(), ranges=True, login="canary:canary")) as index:
        said = refused(world, f"http://127.0.0.1:{index.port}/simple")
    assert said.endswith("did not answer: the index answers 401 for torch")


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://127.0.0.1:9/simple", "did not answer: the index cannot be read"),
        ("http://127.0.0.1:9/canaryAbCdEfGh12345678/simple", "contains what may be a token"),
        ("http://127.0.0.1:9/0b5e7c1a-9a3f-4c11-8d55-canary123456/simple", "contains what may be a token"),
        ("http://127.0.0.1:9/simple?canary=1", "contains more than a host and a path"),
        ("https://canary@127.0.0.1/simple", "contains a login"),
        ("file:///srv/canary", "is not a web address"),
        ("canary", "is not a web address"),
        ("http://[canary/simple", "cannot be read"),
    ],
)
def test_an_index_with_a_private_address_is_not_read(url: str, why: str, world: World) -> None:
    assert why in refused(world, url)


class Odd(LocalIndex):
    """Serves a page that is JSON and nothing else."""

    def answer(self, path: str, authorization: str) -> tuple[int, bytes, str]:
        del path, authorization
        name = torch("2.7.1+cu118")[0]
        file = f'{{"filename": "{name}", "url": {self.login}, "hashes": {{"sha256": "{"a" * 64}"}}}}'
        return 200, f'{{"files": [{file}]}}'.encode(), "application/vnd.pypi.simple.v1+json"


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("5", "the index's page of torch cannot be read"),
        ('"http://[canary/x.whl"', "the index's page of torch cannot be read"),
        ('"ftp://canary.example/x.whl"', "its address is not a web address"),
        ('"http://a:canary@b.example/x.whl"', "its address contains a login"),
        ('"/files/x.whl?canary=1"', "its address contains more than a host and a path"),
        ('"/AbCdEfGh12345678canary/x.whl"', "its address contains what may be a token"),
        ('"/files/x.whl"', "its address must not be in a lock"),
    ],
)
def test_a_private_address_on_the_page_is_refused(address: str, why: str, world: World) -> None:
    with serving(Odd({}, login=address)) as index:
        assert why in refused(world, f"http://127.0.0.1:{index.port}/simple")


def test_an_index_that_hangs_ends_at_a_deadline(world: World) -> None:
    with serving(LocalIndex(further_files(), hang_s=40)) as index:
        assert "did not answer: the index cannot be read: timed out" in refused(
            world, f"{index.url} {index.url}2"
        )


def test_exclude_newer_applies_to_extra_indexes(world: World, index: LocalIndex) -> None:
    said = refused(world, index.url, "--exclude-newer", "2026-06-01")
    assert "its upload time is not known" in said


def test_a_lock_with_a_wrong_hash_from_the_index_installs_nothing(world: World, index: LocalIndex) -> None:
    assert world.pin(index.url, "-o", "requirements.txt").code == 0
    index.files |= dict([torch("2.7.1+cu118", *CU118, "evil")])
    run(world.environ(""), [sys.executable, "-m", "venv", "--without-pip", "env"], world.folder)
    python = str(world.folder / "env/bin/python")
    install = [sys.executable, "-m", "pip", "--python", python, *install_commands((), ())[0].split()[3:]]
    ran = run(world.environ(""), install, world.folder)
    assert ran.code != 0
    assert "DO NOT MATCH THE HASHES" in ran.err


# --- which indexes those are ------------------------------------------------------------------------


def test_extra_indexes_in_settings_of_pip_and_uv_are_listed_once(tmp_path: Path) -> None:
    for name, text in {
        "etc/pip.conf": "[global]\nextra-index-url =\n  http://p1\n  http://p2\n",
        "home/x/.config/uv/uv.toml": 'extra-index-url = ["http://e/"]\n'
        '[[index]]\nname = "a"\nurl = "http://d"\ndefault = true\n'
        '[[index]]\nname = "b"\nurl = "http://i"\nexplicit = true\n',
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    environ = {"HOME": "/home/x", "UV_INDEX": "name=http://u http://d/", "UV_EXTRA_INDEX_URL": "http://u/"}
    found = user_extra_indexes(Host(tmp_path, environ))
    assert [(setting, index.url) for setting, index in found] == [
        ("UV_INDEX", "http://u"),
        ("uv.toml", "http://i"),
        ("uv.toml", "http://e/"),
        ("pip.conf", "http://p1"),
        ("pip.conf", "http://p2"),
    ]
    environ["PIP_EXTRA_INDEX_URL"] = "http://v"
    found = user_extra_indexes(Host(tmp_path, environ))
    assert [index.url for setting, index in found if "pip" in setting.lower()] == ["http://v"]
    assert user_extra_indexes(Host(environ={"PIP_CONFIG_FILE": "/dev/null"})) == []
    with pytest.raises(ExamineError, match="PIP_NO_INDEX forbids"):
        user_extra_indexes(Host(environ={**environ, "PIP_NO_INDEX": "1"}))


# --- the lock ---------------------------------------------------------------------------------------

URL = "https://host.example/whl/cu118/torch-2.7.1%2Bcu118-cp312-cp312-linux_x86_64.whl"
FILE = Artifact("torch-2.7.1+cu118-cp312-cp312-linux_x86_64.whl", "a" * 64)
DIRECT = Lock(
    target="t",
    python="3.12",
    platform="linux-x86_64",
    pins=(Pin("torch", "2.7.1+cu118", (FILE,), URL), Pin("x", "1", (Artifact("", "b" * 64),))),
)


def test_a_lock_with_an_address_is_read_back() -> None:
    text = render_requirements(DIRECT)
    assert parse_requirements(text, "lock") == DIRECT
    with pytest.raises(InputError, match="the digest differs"):
        parse_requirements(text.replace("host.example", "host.examples"), "lock")
    with pytest.raises(ExamineError, match="holds a URL"):
        refuse_leaks(text, ["cu118"])


def test_a_lock_of_another_tool_may_hold_an_address() -> None:
    text = f"torch @ {URL} --hash=sha256:{'a' * 64}\n"
    assert parse_requirements(text, "lock").pins == DIRECT.pins[:1]
    with pytest.raises(InputError, match="expected one hash for each file, found 2 hashes and 1 files"):
        parse_requirements(f"{text[:-1]} --hash=sha256:{'b' * 64}", "lock")
    with pytest.raises(InputError, match="torch has no hash"):
        parse_requirements(f"torch @ {URL}\n", "lock")


@pytest.mark.parametrize(
    "url",
    [
        URL.replace("https://", "https://canary:canary@"),
        URL + "?canary=1",
        URL + "#sha256=canary",
        URL.replace("https", "file"),
        URL.replace("torch-", "other-"),
        URL.replace("2.7.1", "2.7.2"),
        URL.replace("cu118-", "cu126-"),
        URL.replace(".whl", ".tar.gz"),
        URL.replace("host.example", "ho\nst"),
        URL.replace("/whl/", "/%0a/"),
        "https://host.example/torch.whl",
    ],
)  # fmt: skip
def test_an_address_that_does_not_fit_the_pin_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="the address is not that of exactly one wheel"):
        Pin("torch", "2.7.1+cu118", (FILE,), url)
    text = render_requirements(DIRECT).replace(URL, url)
    with pytest.raises(InputError) as caught:
        parse_requirements(text, "lock")
    assert "canary" not in str(caught.value)
