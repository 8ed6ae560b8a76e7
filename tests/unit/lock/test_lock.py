"""A lock says what it assumes, reads back as it was written, and holds nothing of this machine."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess  # noqa: TID251 - the install command is run as a shell would
import sys
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import strategies as st

from envcheck.commands import loading
from envcheck.core.errors import EnvcheckError, ExamineError, InputError
from envcheck.lock.install import build_needs, install_commands
from envcheck.lock.leaks import refuse_leaks
from envcheck.lock.model import Artifact, Lock, Pin
from envcheck.lock.parse import parse_requirements
from envcheck.lock.render import render_requirements
from envcheck.lock.wheels import platform_tags, usable_files, usable_tags
from tests.support.paths import ROOT

SHIPPED = sorted((ROOT / "lockfiles").glob("*/*.txt"))

A, B, C = "a" * 64, "b" * 64, "c" * 64
LOCK = Lock(
    target="zero3-lora",
    python="3.11",
    platform="linux-x86_64",
    pins=(
        Pin(
            "torch",
            "2.10.0",
            (
                Artifact("torch-2.10.0-3-cp311-cp311-manylinux_2_28_x86_64.whl", B),
                Artifact("torch-2.10.0-cp311-cp311-manylinux_2_28_x86_64.whl", A),
            ),
        ),
        Pin("deepspeed", "0.19.8", (Artifact("deepspeed-0.19.8.tar.gz", C),)),
    ),
    glibc="2.28",
    needs=(("driver.version", ">=", "525.60.13"), ("gpu.architectures", "=", "sm_70,sm_80")),
    train=(("train.zero_stage", "3"), ("train.adapter", "lora")),
    build=("deepspeed",),
    date="2026-11-21",
    maker="0.1.0",
    matrix=f"sha256:{A}",
    notes=("measured good on the CPU",),
)
TEXT = render_requirements(LOCK)

# --- round trip -------------------------------------------------------------------------------------

names = st.from_regex(r"[a-z][a-z0-9]{0,6}(-[a-z0-9]{1,4}){0,2}", fullmatch=True)
versions = st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,3}((a|b|rc)[0-9])?(\.post[0-9])?", fullmatch=True)
hashes = st.text("0123456789abcdef", min_size=64, max_size=64)


@st.composite
def pins(draw: st.DrawFn) -> Pin:
    name, version = draw(names), draw(versions)
    stem = f"{name.replace('-', '_')}-{version}"
    files = st.sampled_from(
        [f"{stem}-py3-none-any.whl", f"{stem}-cp311-abi3-linux_x86_64.whl", f"{stem}.tar.gz"]
    )
    named = st.builds(Artifact, files, hashes)
    unnamed = st.builds(Artifact, st.just(""), hashes)
    return Pin(name, version, tuple(draw(st.lists(st.one_of(named, unnamed), min_size=1, max_size=5))))


def test_hashes_are_sorted_and_each_is_written_once() -> None:
    pin = Pin(
        "a", "1", (Artifact("a-1-py3-none-any.whl", B), Artifact("a-1.tar.gz", A), Artifact("a-1.zip", A))
    )
    assert [file.sha256 for file in pin.artifacts] == [A, B]


def test_header_says_what_the_lock_relies_on() -> None:
    for said in (
        "# Locked by envcheck 0.1.0 on 2026-11-21 for the target zero3-lora.",
        "# Machine    driver.version 525.60.13 or newer",
        "# Training   train.zero_stage = 3",
        "# Note       measured good on the CPU",
        "# Python     3.11 on linux-x86_64, glibc 2.28 or newer",
    ):
        assert said in TEXT.splitlines()


@pytest.mark.parametrize(
    "bad",
    [
        {"target": "a b"},
        {"target": "a\n--index-url"},
        {"date": "/etc"},
        {"notes": ("two\nlines",)},
        {"train": (("k", ""),)},
        {"needs": (("K", "=", "v"),)},
        {"pins": (LOCK.pins[0], LOCK.pins[0])},
        {"build": ("x/$(y)",)},
    ],
    ids=str,
)
def test_a_value_that_the_header_cannot_hold_is_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"cannot be written|one line|twice"):
        replace(LOCK, **bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "version", "filename", "sha256"),
    [
        ("Torch", "1", "", A),
        ("a b", "1", "", A),
        ("a", "1 --pre", "", A),
        ("a", "1", "/a/b.whl", A),
        ("a", "1", "a.whl\n", A),
        ("a", "1", "", A.upper()),
        ("a", "1", "", A[1:]),
    ],
)
def test_a_value_that_a_pin_cannot_hold_is_refused(
    name: str, version: str, filename: str, sha256: str
) -> None:
    with pytest.raises(ValueError, match="not a"):
        Pin(name, version, (Artifact(filename, sha256),))


# --- malformed --------------------------------------------------------------------------------------

MALFORMED = {
    "no hash": ("torch==2.0\n", "lock:1: torch has no hash"),
    "one of two without a hash": (f"a==1 --hash=sha256:{A}\nb==1\n", "lock:2: b has no hash"),
    "short hash": (
        f"a==1 --hash=sha256:{A[:63]}\n",
        "lock:1: a: a sha256 has 64 hexadecimal digits, this one has 63",
    ),
    "hash in capitals": (f"a==1 --hash=sha256:{A.upper()}\n", "lock:1: a: a sha256 has 64"),
    "another algorithm": (f"a==1 --hash=md5:{A}\n", "lock:1: a: expected a sha256, found 'md5'"),
    "no algorithm": (f"a==1 --hash={A}\n", "lock:1: a: expected a sha256"),
    "another option": (
        f"a==1 --hash=sha256:{A} --pre\n",
        "lock:1: a: expected --hash=sha256:…, found '--pre'",
    ),
    "a marker": (f"a==1 ; python_version<'3' --hash=sha256:{A}\n", "lock:1: a: expected --hash"),
    "a bound": (f"a>=1 --hash=sha256:{A}\n", "lock:1: expected name==version, found 'a>=1'"),
    "a wildcard": (f"a==1.* --hash=sha256:{A}\n", "lock:1: expected name==version, found 'a==1.*'"),
    "an extra": (f"a[b]==1 --hash=sha256:{A}\n", "lock:1: expected name==version"),
    "no version": ("a\n", "lock:1: expected name==version, found 'a'"),
    "not a version": (f"a==x.y --hash=sha256:{A}\n", "lock:1: a: 'x.y' is not a version"),
    "a local version": (f"a==1+label --hash=sha256:{A}\n", "lock:1: a: the local version +label"),
    "a URL": (
        "a @ https://canary:canary@h/a.whl\n",
        "lock:1: expected name==version, found a direct reference",
    ),
    "a bare URL": (
        "https://canary:canary@h/a.whl\n",
        "lock:1: expected name==version, found a direct reference",
    ),
    "an index": (
        "\n--index-url=https://canary@h\n",
        "lock:2: expected name==version, found the option --index-url",
    ),
    "a second index": ("--extra-index-url https://h\n", "lock:1: expected name==version, found the option"),
    "a folder": ("-f /canary\n", "lock:1: expected name==version, found the option -f"),
    "an editable": ("-e .\n", "lock:1: expected name==version, found the option -e"),
    "another file": ("-r other.txt\n", "lock:1: expected name==version, found the option -r"),
    "twice": (
        f"a==1 --hash=sha256:{A}\nA==1 --hash=sha256:{A}\n",
        "lock:2: a is pinned twice, first in line 1",
    ),
    "twice by another spelling": (
        f"a.b==1 --hash=sha256:{A}\n\nA_b==2 --hash=sha256:{B}\n",
        "lock:3: a-b is pinned",
    ),
    "cut off": (f"a==1 \\\n    --hash=sha256:{A} \\", "lock:1: the file ends within an entry"),
    "nothing": ("# only words\n\n", "lock: contains no pins"),
    "empty": ("", "lock: contains no pins"),
    "a zero byte": ("a==1\0", "lock: contains a zero byte"),
    "a newer layout": (f"# envcheck: lock=2\na==1 --hash=sha256:{A}\n", "lock:1: header: expected lock=1"),
    "an unknown word": (
        f"# envcheck: lock=1 x=y\na==1 --hash=sha256:{A}\n",
        "lock:1: header: 'x' is unknown",
    ),
    "no digest": (
        f"# envcheck: lock=1\na==1 --hash=sha256:{A}\n",
        "lock:1: the pins are not those envcheck wrote",
    ),
}


@pytest.mark.parametrize(("text", "said"), MALFORMED.values(), ids=MALFORMED)
def test_malformed_lock_is_one_clear_line(text: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_requirements(text, "lock")
    assert str(caught.value).startswith(said)
    assert "\n" not in str(caught.value)
    assert "canary" not in str(caught.value)


def test_lock_of_another_tool_is_read_without_header() -> None:
    text = (
        f"# by hand\nTorch_X==1.0 \\\n    --hash=sha256:{A} \\\n    --hash=sha256:{B}  # via y\n    # via z\n"
    )
    lock = parse_requirements(text.replace("\n", "\r\n"), "lock")
    assert lock.pins == (Pin("torch-x", "1.0", (Artifact("", A), Artifact("", B))),)
    assert lock.target == ""


def test_requested_local_version_is_read() -> None:
    lock = parse_requirements(f"a==1+label --hash=sha256:{A}", "lock", local=["label"])
    assert lock.pins[0].version == "1+label"


# --- tampering --------------------------------------------------------------------------------------


def machine_lines() -> list[int]:
    lines = TEXT.splitlines()
    return [number for number, line in enumerate(lines) if not line.startswith("#") or "# envcheck: " in line]


@pytest.mark.parametrize("number", machine_lines())
def test_a_change_of_any_machine_line_is_detected(number: int) -> None:
    lines = TEXT.splitlines(keepends=True)
    line = lines[number]
    last = next(place for place in range(len(line) - 1, 0, -1) if line[place].isalnum())
    changed = line[:last] + ("1" if line[last] != "1" else "2") + line[last + 1 :]
    for mangled in (changed, "", line + line):
        text = "".join([*lines[:number], mangled, *lines[number + 1 :]])
        with pytest.raises(InputError):
            parse_requirements(text, "lock")


# --- leaks ------------------------------------------------------------------------------------------

LEAKS = {
    "a URL": "a==1 # https://canary",
    "a URL in a comment": "# see https://canary",
    "a file": "# file:canary",
    "an index": "--index-url canary",
    "a second index": "# --extra-index-url canary",
    "a folder": "--find-links canary",
    "a folder, short": "-f canary",
    "an index, short": "-i canary",
    "trust": "--trusted-host canary",
    "a path": "# made in /home/canary",
    "a path after an equals sign": "# in=/canary",
    "a home": "# ~/canary",
    "another system's path": r"# C:\canary",
    "a login": "# canary:canary@mirror",
    "a direct reference": "a @ canary",
    "a local version": "a==1.0+canary",
    "a local version of a file": "# a-1.0+canary-py3-none-any.whl",
}


@pytest.mark.parametrize("line", LEAKS.values(), ids=LEAKS)
def test_leak_is_refused_without_repeating_it(line: str) -> None:
    with pytest.raises(ExamineError, match="refusing to print the lock: line 2 holds") as caught:
        refuse_leaks(f"# fine\n{line}\n")
    assert "canary" not in str(caught.value)


def test_rendered_lock_passes_the_leak_check() -> None:
    refuse_leaks(TEXT)


def test_leak_in_a_note_is_refused_when_rendered() -> None:
    with pytest.raises(ExamineError, match="a URL"):
        render_requirements(replace(LOCK, notes=("see https://canary",)))


# --- files ------------------------------------------------------------------------------------------

TAGS = usable_tags("3.11", "linux-x86_64", "2.28")
FILES = {
    "x-1.0-py3-none-any.whl": True,
    "x-1.0-py2.py3-none-any.whl": True,
    "x-1.0-cp311-cp311-manylinux_2_28_x86_64.whl": True,
    "x-1.0-cp311-cp311-manylinux2014_x86_64.manylinux_2_17_x86_64.whl": True,
    "x-1.0-cp311-cp311-manylinux1_x86_64.whl": True,
    "x-1.0-cp311-cp311-linux_x86_64.whl": True,
    "x-1.0-cp38-abi3-manylinux_2_17_x86_64.whl": True,
    "x-1.0-2-cp311-cp311-manylinux_2_28_x86_64.whl": True,
    "x-1.0-py3-none-manylinux_2_27_x86_64.whl": True,
    "X-1.0.0-py3-none-any.whl": True,
    "x-1.0-cp311-cp311-manylinux_2_29_x86_64.whl": False,
    "x-1.0-cp312-cp312-manylinux_2_28_x86_64.whl": False,
    "x-1.0-cp312-abi3-manylinux_2_28_x86_64.whl": False,
    "x-1.0-cp310-cp310-manylinux_2_28_x86_64.whl": False,
    "x-1.0-cp311-cp311t-manylinux_2_28_x86_64.whl": False,
    "x-1.0-cp311-cp311-manylinux_2_28_aarch64.whl": False,
    "x-1.0-cp311-cp311-musllinux_1_2_x86_64.whl": False,
    "x-1.0-cp311-cp311-win_amd64.whl": False,
    "x-1.0-cp311-cp311-macosx_11_0_arm64.whl": False,
    "x-1.1-py3-none-any.whl": False,
    "y-1.0-py3-none-any.whl": False,
    "x-1.0.tar.gz": False,
    "x-1.0.exe": False,
    "nonsense.whl": False,
    "": False,
}


@pytest.mark.parametrize(("filename", "usable"), FILES.items())
def test_file_belongs_to_the_declared_platform(filename: str, usable: bool) -> None:
    assert bool(usable_files("x", "1.0", [Artifact(filename, A)], TAGS, ())) is usable


def test_package_to_be_built_is_locked_as_source_without_wheels() -> None:
    files = [Artifact("x-1.0.tar.gz", A), Artifact("x-1.0-py3-none-any.whl", B)]
    assert usable_files("x", "1.0", files, TAGS, ("x",)) == (files[0],)
    assert usable_files("x", "1.0", files, TAGS, ()) == (files[1],)


def test_oldest_tags_of_each_architecture_are_known() -> None:
    assert "manylinux1_x86_64" in platform_tags("linux-x86_64", "2.17")
    arm = platform_tags("linux-aarch64", "2.28")
    assert arm[0] == "manylinux_2_28_aarch64"
    assert arm[-2:] == ("manylinux2014_aarch64", "linux_aarch64")


@pytest.mark.parametrize(
    ("python", "platform", "glibc", "where"),
    [
        ("3.11", "win-amd64", "2.28", "platform"),
        ("3.11", "linux-riscv64", "2.28", "platform"),
        ("3.11", "linux-x86_64", "", "glibc"),
        ("3.11", "linux-x86_64", "2.28.1", "glibc"),
        ("3.11.4", "linux-x86_64", "2.28", "python"),
        ("2.7", "linux-x86_64", "2.28", "python"),
    ],
)
def test_unknown_platform_is_an_input_error(python: str, platform: str, glibc: str, where: str) -> None:
    with pytest.raises(InputError, match=f"^{where}: expected"):
        usable_tags(python, platform, glibc)


# --- installing -------------------------------------------------------------------------------------


def test_first_install_command_leaves_out_what_is_built_and_nothing_else(tmp_path: Path) -> None:
    shell = shutil.which("sh")
    assert shell
    (tmp_path / "requirements.txt").write_text(TEXT)
    split = install_commands(("deepspeed", "another"), LOCK.pins)[0].partition(" && ")[0]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"
    subprocess.run([shell, "-c", split], cwd=tmp_path, check=True, timeout=10, env={"PATH": path})
    left = [
        line
        for line in (tmp_path / "wheels.txt").read_text().splitlines()
        if not line.lstrip().startswith("#")
    ]
    assert left == ["torch==2.10.0 \\", f"    --hash=sha256:{A} \\", f"    --hash=sha256:{B}"]


def test_lock_of_wheels_alone_installs_with_one_command() -> None:
    (command,) = install_commands((), ())
    assert "--only-binary :all:" in command
    assert "--require-hashes" in command


def test_a_lock_that_builds_deepspeed_installs_with_one_line_without_sed() -> None:
    setuptools = Pin("setuptools", "84.2.1", (Artifact("setuptools-84.2.1-py3-none-any.whl", C),))
    (command,) = install_commands(("deepspeed",), (*LOCK.pins, setuptools))
    assert "sed " not in command
    first, then = command.split(" && ")
    assert first.startswith(f"echo 'setuptools==84.2.1 --hash=sha256:{C}' | python -m pip install ")
    assert then.startswith(
        "DS_BUILD_OPS=0 python -m pip install --no-deps --require-hashes --only-binary :all: "
    )
    assert then.endswith("--no-binary deepspeed --no-build-isolation -r requirements.txt")


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_the_header_of_a_shipped_lock_has_one_command(path: Path) -> None:
    commands = re.findall(r"^#   (.+)$", path.read_text(), re.MULTILINE)
    assert len(commands) == 1
    assert "sed " not in commands[0]


def test_build_needs_are_listed() -> None:
    assert build_needs(["deepspeed"]) == ("nvidia-ml-py", "setuptools")
    assert build_needs(["another"]) == ("setuptools",)
    assert build_needs([]) == ()


# --- the locks we ship ------------------------------------------------------------------------------

MANIFEST = tomllib.loads((ROOT / "lockfiles/manifest.toml").read_text())["lock"]


def test_every_target_has_a_lock_for_python_312_and_the_newest_driver() -> None:
    expected = {f"{target}/py312-driver580.txt" for target in loading.knowledge().targets}
    assert expected <= {row["name"] for row in MANIFEST}


def test_locks_of_the_stack_are_shipped_for_every_python_and_driver_family() -> None:
    names = {row["name"] for row in MANIFEST}
    for target in ("zero3-lora", "zero3-full", "fsdp2-lora", "sft-trl", "grpo-trl"):
        for python in (10, 11, 12, 13):
            assert {f"{target}/py3{python}-driver{floor}.txt" for floor in (525, 580)} <= names
        assert f"{target}/py312-driver580-aarch64.txt" in names


def test_a_lock_needs_the_driver_of_the_family_that_it_is_named_after() -> None:
    for row in MANIFEST:
        assert f"-driver{row['driver'].partition('.')[0]}" in row["name"]


def test_the_manifest_lists_exactly_the_shipped_locks() -> None:
    names = [path.relative_to(ROOT / "lockfiles").as_posix() for path in SHIPPED]
    assert [row["name"] for row in MANIFEST] == sorted(names)
    for row in MANIFEST:
        path = ROOT / "lockfiles" / row["name"]
        text = path.read_text(encoding="utf-8")
        body = [line for line in text.splitlines() if line and not line.startswith("#")]
        assert row["pins"] == "sha256:" + hashlib.sha256("\n".join(body).encode()).hexdigest(), path.name
        lock = parse_requirements(text, path.name)
        assert (row["target"], row["python"], row["resolved"]) == (lock.target, lock.python, lock.date)
        assert ("driver.version", ">=", row["driver"]) in lock.needs


def test_the_header_of_a_lock_says_how_it_is_proven_as_the_manifest_does() -> None:
    for row in MANIFEST:
        second = (ROOT / "lockfiles" / row["name"]).read_text(encoding="utf-8").splitlines()[1]
        assert second.startswith("# Proven     "), row["name"]
        said = second.removeprefix("# Proven     ")
        if "proven" in row:
            assert said.startswith(f"{row['proven']} on {row['proof']['date']}"), row["name"]
        if row.get("proven") == "unpacked":
            assert row["proof"]["packages"] > 0
            assert "nothing was run" in said, row["name"]
        elif "proven" in row:
            assert row["proof"]["pass"] > 0
            assert row["proof"]["fail"] == row["proof"]["unknown"] == 0, row["name"]
        else:
            assert "never" in said, row["name"]
        if hollow := row.get("proof", {}).get("without_kernels"):
            assert row["proven"] == "installed", row["name"]
            assert f"{', '.join(hollow)} was built without its kernels" in said, row["name"]
        if row.get("proven") in (None, "unpacked"):
            assert f"envcheck selftest --target {row['target']} " in said


def test_what_is_called_trained_has_a_cell_of_its_target() -> None:
    cells = loading.knowledge().cells
    for row in (row for row in MANIFEST if row.get("proven") == "trained" and row["proof"]["ranks"]):
        assert any(cell.target == row["target"] and cell.outcome == "ok" for cell in cells), row["name"]


def test_the_newest_set_of_every_stack_and_one_with_torch_24_were_trained() -> None:
    trained = {row["name"]: row for row in MANIFEST if row.get("proven") == "trained"}
    assert {"zero3-lora/py311-driver580.txt", "zero3-lora/py312-driver580.txt"} <= set(trained)
    assert any(row["torch"].startswith("2.4.") for row in trained.values())


def test_errors_of_a_lock_are_envcheck_errors() -> None:
    assert issubclass(InputError, EnvcheckError)
    assert re.fullmatch(r"sha256:[0-9a-f]{64}", LOCK.digest())
