"""`pin --resolve` as a user meets it, against an index on 127.0.0.1: six machines, objections, no solution."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from envcheck.commands import loading
from envcheck.core import nvidia, versions
from envcheck.core.facts import Tri
from envcheck.lock.parse import parse_requirements
from tests.support.local_index import LocalIndex, sdist, serving, wheel
from tests.support.running import Outcome, envcheck

pytestmark = pytest.mark.skipif(
    sys.platform != "linux"
    or not (Path(sys.executable).with_name("uv").exists() or shutil.which("uv") is not None),
    reason="needs Linux and uv",
)


@lru_cache(maxsize=1)
def tables() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = loading.source_tree()["tables"]
    return found


def stack() -> dict[str, bytes]:
    """Every release of the stack that the tables know, as a wheel that only asks for others (DeepSpeed as source).

    Of what it asks for beside the stack there is every release that a bound names.
    """
    listed = {"torch"} | {row["package"] for row in tables()["release"]}
    files = [wheel("torch", row["version"]) for row in tables()["torch"]]
    beside = {("nvidia-ml-py", "13.0"), ("setuptools", "80.0")}
    for row in tables()["release"]:
        asks = {name: bound for name, bound in row.get("requires", {}).items() if name != "deepspeed"}
        for name in asks.keys() - listed:
            named = re.findall(r"\d[\w.]*\w|\d", asks[name])
            beside |= {(name, each) for each in (*named, "1.26.4")}
        if row["package"] == "deepspeed":
            files.append(sdist("deepspeed", row["version"], requires=tuple(map("".join, asks.items()))))
        elif row["package"] in (
            "transformers",
            "peft",
            "accelerate",
            "huggingface-hub",
            "tokenizers",
            "safetensors",
        ):
            files.append(wheel(row["package"], row["version"], tuple(map("".join, asks.items()))))
    return dict([*files, *(wheel(*each) for each in sorted(beside))])


@pytest.fixture(scope="module")
def whole_stack() -> Iterator[LocalIndex]:
    with serving(LocalIndex(stack())) as served:
        yield served


def resolve(index: LocalIndex, home: Path, *arguments: str) -> Outcome:
    environ = {
        "UV_DEFAULT_INDEX": index.url,
        "UV_CACHE_DIR": str(home / "uv"),
        "UV_HTTP_RETRIES": "0",
        "UV_OFFLINE": "0",
        "PIP_CONFIG_FILE": "/dev/null",
    }
    return envcheck("pin", "--resolve", *arguments, environ=environ, cwd=home)


def pinned(text: str, name: str) -> str:
    found = re.search(rf"(?m)^{name}==(\S+)", text)
    return found[1] if found else ""


# --- six machines -----------------------------------------------------------------------------------


def row(torch: str) -> dict[str, Any]:
    return next(each for each in tables()["torch"] if each["version"] == torch)


def capability(gpu: str) -> str:
    found = (each for each in tables()["gpu"] if gpu in each.get("aliases", []))
    return str(next(found)["compute_capability"])


def fits(torch: str, driver: str, gpu: str, python: str, arch: str) -> bool:
    """By the tables alone: the driver's CUDA family, machine code for the GPU, wheels for the Python."""
    build = row(torch)
    cuda = str(build["cuda"]) if arch == "x86_64" else build["aarch64"].removeprefix("cu")[:2]
    if not cuda[:2].isdecimal() or python not in build["python"]:
        return False
    floor = next(str(each["minimum_driver"]) for each in tables()["family"] if str(each["major"]) == cuda[:2])
    coded = not gpu or arch != "x86_64" or nvidia.has_code(build["architectures"], capability(gpu))
    return coded and versions.compare(driver, ">=", floor) is Tri.YES


@pytest.mark.parametrize(
    ("driver", "gpu", "python", "arch", "torch", "is_last"),
    [
        ("535.104.05", "V100", "3.11", "x86_64", "2.10.0", True),  # no CUDA 13 by driver, nor sm_70 in it
        ("570.86.15", "RTX 5090", "3.11", "x86_64", "2.10.0", True),  # sm_120 is there since 2.8
        ("580.95.05", "RTX 5090", "3.12", "x86_64", "2.15.0", True),  # the newest that is measured
        ("470.223.02", "", "3.11", "x86_64", "2.0.1", True),  # the last with CUDA 11
        ("580.95.05", "B200", "3.11", "x86_64", "2.15.0", True),
        ("570.86.15", "B200", "3.11", "x86_64", "2.10.0", True),
        ("580.95.05", "GH200", "3.11", "aarch64", "2.15.0", True),  # CUDA for Arm begins with 2.11
    ],
)
def test_the_torch_build_is_the_one_the_tables_allow(
    whole_stack: LocalIndex,
    tmp_path: Path,
    driver: str,
    gpu: str,
    python: str,
    arch: str,
    torch: str,
    is_last: bool,
) -> None:
    gpus = ("--gpu", gpu) if gpu else ()
    machine = ("--driver", driver, "--platform", f"linux-{arch}", "--python-version", python, *gpus)
    code, out, err = resolve(whole_stack, tmp_path, "--target", "zero3-lora", *machine)
    assert code == 0, err
    assert pinned(out, "torch") == torch
    assert fits(torch, driver, gpu, python, arch)
    made = parse_requirements(out, "stdout")
    assert made.platform == f"linux-{arch}"
    floor = next(value for key, _, value in made.needs if key == "driver.version")
    assert versions.compare(driver, ">=", floor) is Tri.YES
    if is_last:
        order = [each["version"] for each in tables()["torch"]]
        assert not any(fits(each, driver, gpu, python, arch) for each in order[order.index(torch) + 1 :])


def test_without_a_gpu_the_driver_does_not_limit_the_versions(
    whole_stack: LocalIndex, tmp_path: Path
) -> None:
    machine = ("--gpu", "none", "--python-version", "3.11", "--platform", "linux-x86_64")
    code, out, err = resolve(whole_stack, tmp_path, "--target", "zero3-lora", *machine)
    assert code == 0, err
    assert pinned(out, "torch") == "2.15.0"
    assert parse_requirements(out, "stdout").needs == ()
    assert "--torch-backend cpu torch==2.15.0" in err


@pytest.mark.parametrize(
    ("machine", "tag", "torch"),
    [
        (("--driver", "470.223.02", "--python-version", "3.12"), "cu118", "2.7.1"),
        (("--gpu", "GTX 1080 Ti", "--python-version", "3.14"), "cu126", "2.14.1"),
    ],
)
def test_if_only_a_build_for_another_cuda_fits_its_command_is_printed(
    whole_stack: LocalIndex, tmp_path: Path, machine: tuple[str, ...], tag: str, torch: str
) -> None:
    code, out, err = resolve(whole_stack, tmp_path, "--target", "zero3-lora", *machine)
    assert (code, out) == (4, "")
    assert f"torch {torch}+{tag}" in err
    assert f"uv pip install --torch-backend {tag} torch=={torch}\n" in err
    variant = [each for each in tables()["variant"] if (each["torch"], each["tag"]) == (torch, tag)]
    assert len(variant) == 1
    assert not any("://" in line for line in err.splitlines())


def test_an_unknown_driver_makes_the_lock_state_the_one_that_the_gpu_needs() -> None:
    arguments = ("--target", "zero3-lora", "--python-version", "3.11", "--platform", "linux-x86_64")
    plain = envcheck("pin", "--offline", *arguments)
    blackwell = envcheck("pin", "--offline", *arguments, "--gpu", "RTX 5090")
    assert "driver.version 525.60.13 or newer" in plain.out
    assert "driver.version 570 or newer" in blackwell.out
    assert "570 or newer" in blackwell.err
    parse_requirements(blackwell.out, "stdout")
    assert "from branch 590 on" in envcheck("pin", "--offline", *arguments, "--gpu", "V100").err


def test_gpus_of_two_generations_get_a_torch_that_serves_both() -> None:
    arguments = ("--target", "zero3-lora", "--python-version", "3.11", "--driver", "580.95.05", "--offline")
    both = envcheck("pin", *arguments, "--gpu", "V100", "--gpu", "B200")
    assert pinned(both.out, "torch") == "2.10.0"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--platform", "windows-x86_64"), "platform"),
        (("--platform", "linux"), "platform"),
        (("--glibc", "two"), "glibc"),
        (("--gpu", "none", "--gpu", "H100"), "--gpu"),
    ],
)
def test_an_impossible_machine_is_refused(arguments: tuple[str, ...], said: str) -> None:
    code, out, err = envcheck("pin", "--target", "zero3-lora", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith(f"envcheck: {said}")
    assert err.count("\n") == 1


# --- objections to a completed lock -----------------------------------------------------------------


def overlay(folder: Path, when: str, fix: str = "", severity: str = "error") -> str:
    rule = f"""
[target.small]
title = "safetensors alone"
packages = ["safetensors"]

[[rule]]
id = "safetensors-beside-numpy"
severity = "{severity}"
basis = "measured"
title = "this safetensors does not run beside this numpy"
when = {when}
sources = [{{ url = "https://example.org/1", kind = "issue", checked = 2026-11-20 }}]
{f"[[rule.fix]]{chr(10)}set = {fix}" if fix else ""}
"""
    (folder / "own.toml").write_text(rule)
    return "own.toml"


def small_world(*numpy: str) -> dict[str, bytes]:
    listed = [each["version"] for each in tables()["release"] if each["package"] == "safetensors"]
    return dict(
        [*(wheel("safetensors", each, ("numpy",)) for each in listed), *(wheel("numpy", n) for n in numpy)]
    )


def small(
    files: dict[str, bytes], home: Path, when: str, fix: str = "", *more: str, severity: str = "error"
) -> tuple[Outcome, list[str]]:
    with serving(LocalIndex(files)) as index:
        machine = ("--gpu", "none", "--python-version", "3.11", "--platform", "linux-x86_64")
        target = ("--target", "small", "--matrix", overlay(home, when, fix, severity))
        ran = resolve(index, home, *target, *machine, *more)
        return ran, index.asked


def test_a_backend_gets_the_rules_bound_on_a_package_that_it_chose(tmp_path: Path) -> None:
    when = '{ "pkg.safetensors" = ">=0.4.0", "pkg.numpy" = ">=2.0" }'
    files = small_world("2.3.0", "1.26.4", "1.25.0")
    (code, out, err), _ = small(files, tmp_path, when, '{ "pkg.numpy" = "==1.26.4" }')
    assert code == 0, err
    assert pinned(out, "numpy") == "1.26.4"
    assert pinned(out, "safetensors") == "0.8.0"


@pytest.mark.parametrize("fix", ["", '{ "pkg.numpy" = "==1.26.4" }'])
def test_an_objection_refuses_every_stack_the_rule_would_break(tmp_path: Path, fix: str) -> None:
    # Without a way out, or with one that this index cannot serve: ten releases are out at once.
    when = '{ "pkg.safetensors" = ">=0.4.4", "pkg.numpy" = ">=2.0" }'
    (code, out, err), _ = small(small_world("2.3.0"), tmp_path, when, fix)
    assert code == 0, err
    assert pinned(out, "safetensors") == "0.4.3"
    assert "rejected:" not in err


@pytest.mark.parametrize(
    ("numpy", "taken", "warned"), [(("2.3.0", "1.26.4"), "1.26.4", False), (("2.3.0",), "2.3.0", True)]
)
def test_a_dependency_avoids_a_warning_if_the_index_allows_it(
    numpy: tuple[str, ...], taken: str, warned: bool, tmp_path: Path
) -> None:
    when, fix = '{ "pkg.safetensors" = "present", "pkg.numpy" = ">=2.0" }', '{ "pkg.numpy" = "==1.26.4" }'
    (code, out, err), _ = small(small_world(*numpy), tmp_path, when, fix, severity="warning")
    assert code == 0, err
    assert (pinned(out, "safetensors"), pinned(out, "numpy")) == ("0.8.0", taken)
    line = (
        "warning: this safetensors does not run beside this numpy (safetensors-beside-numpy); "
        "see envcheck rule safetensors-beside-numpy"
    )
    assert (line in err.splitlines()) == warned


@pytest.mark.parametrize(("wish", "taken"), [("numpy", "1.26.4"), ("numpy>=2", "2.3.0")])
def test_a_package_that_only_the_user_requires_avoids_a_warning_within_their_bounds(
    wish: str, taken: str, tmp_path: Path
) -> None:
    when = '{ "pkg.safetensors" = "present", "pkg.numpy" = ">=2.0" }'
    files = small_world("2.3.0", "1.26.4")
    (code, out, err), _ = small(files, tmp_path, when, "", "--with", wish, severity="warning")
    assert code == 0, err
    assert pinned(out, "numpy") == taken
    assert ("safetensors-beside-numpy" in err) == (taken == "2.3.0")


@pytest.mark.parametrize(("setuptools", "taken"), [(("84.2.1", "81.0.0"), "81.0.0"), (("84.2.1",), "84.2.1")])
def test_published_code_that_a_newer_dependency_breaks_gets_an_older_one_or_a_warning(
    setuptools: tuple[str, ...], taken: str, tmp_path: Path
) -> None:
    when = '{ "pkg.safetensors" = "==0.0.1" }'
    files = small_world("1.26.4")
    files |= dict([wheel("tensorboard", "2.19.0", ("setuptools>=41.0.0",))])
    files |= dict(wheel("setuptools", each) for each in setuptools)
    (code, out, err), _ = small(files, tmp_path, when, "", "--with", "tensorboard")
    assert code == 0, err
    assert (pinned(out, "tensorboard"), pinned(out, "setuptools")) == ("2.19.0", taken)
    advice = "`envcheck check` on this lock names the code and the fixes"
    assert (advice in err) == (taken == "84.2.1")


def test_a_fix_takes_no_release_that_the_index_has_as_source_only(tmp_path: Path) -> None:
    # The tables know tensorboard 2.19.0 but not that this index has only its source.
    when = '{ "pkg.safetensors" = "present", "host.glibc" = ">=2.30" }'
    files = small_world("1.26.4") | dict([sdist("tensorboard", "2.19.0")])
    more = ("--with", "tensorboard", "--glibc", "2.35")
    (code, out, err), _ = small(files, tmp_path, when, "", *more)
    assert (code, out) == (4, "")
    assert "--with asks for tensorboard, and your index has it as source only" in err
    assert "fixes" not in err


@pytest.mark.parametrize(("wish", "noted"), [("tensorboard", True), ("tensorboard>=2.19.0rc1", False)])
def test_a_pre_release_that_was_not_asked_for_is_noted(wish: str, noted: bool, tmp_path: Path) -> None:
    files = small_world("1.26.4") | dict([sdist("tensorboard", "2.18.0"), wheel("tensorboard", "2.19.0rc1")])
    (code, out, err), _ = small(files, tmp_path, '{ "pkg.safetensors" = "==0.0.1" }', "", "--with", wish)
    assert code == 0, err
    assert pinned(out, "tensorboard") == "2.19.0rc1"
    note = "tensorboard 2.19.0rc1 is a pre-release: no final release of it can be installed here"
    assert (note in err.splitlines()) == noted


def test_verbose_names_the_rejected_versions_and_quiet_prints_no_remark(tmp_path: Path) -> None:
    when, fix = '{ "pkg.safetensors" = ">=0.4.4", "pkg.numpy" = ">=2.0" }', '{ "pkg.numpy" = "==1.26.4" }'
    (code, out, err), _ = small(small_world("2.3.0"), tmp_path, when, fix, "--verbose")
    assert code == 0, err
    lines = [line for line in err.splitlines() if line.startswith("rejected: ")]
    assert lines[0] == (
        "rejected: safetensors 0.8.0: the completed lock was refused by: this safetensors does not run "
        "beside this numpy (safetensors-beside-numpy)"
    )
    assert any("numpy==1.26.4" in line for line in lines[1:])
    (code, silent, err), _ = small(small_world("2.3.0"), tmp_path, when, fix, "-q")
    assert (code, err, silent) == (0, "", out)
    never = '{ "pkg.safetensors" = "present", "pkg.numpy" = ">=2.0" }'
    (code, silent, err), _ = small(small_world("2.3.0"), tmp_path, never, "", "-q")
    assert (code, silent) == (4, "")
    assert "these requirements conflict" in err


def test_if_every_completed_lock_breaks_a_rule_the_error_names_it(
    tmp_path: Path,
) -> None:
    (code, out, err), _ = small(
        small_world("2.3.0"), tmp_path, '{ "pkg.safetensors" = "present", "pkg.numpy" = ">=2.0" }'
    )
    assert (code, out) == (4, "")
    assert "these requirements conflict" in err
    assert "safetensors 0.8.0 beside numpy 2.3.0 was refused: this safetensors does not run" in err


def test_a_changed_training_fact_is_noted_in_the_lock_and_on_stderr(tmp_path: Path) -> None:
    text = """
[target.small]
title = "safetensors alone"
packages = ["safetensors"]
train = { use_reentrant = false }
free = ["use_reentrant"]

[[rule]]
id = "non-reentrant-safetensors"
severity = "error"
basis = "measured"
title = "it breaks"
when = { "pkg.safetensors" = "present", "train.use_reentrant" = false }
sources = [{ url = "https://example.org/1", kind = "issue", checked = 2026-11-20 }]
[[rule.fix]]
set = { "train.use_reentrant" = true }
"""
    (tmp_path / "own.toml").write_text(text)
    with serving(LocalIndex(small_world("2.3.0"))) as index:
        machine = ("--gpu", "none", "--python-version", "3.11", "--platform", "linux-x86_64")
        code, out, err = resolve(index, tmp_path, "--target", "small", "--matrix", "own.toml", *machine)
    assert code == 0, err
    made = parse_requirements(out, "stdout")
    assert ("train.use_reentrant", "true") in made.train
    assert any("train.use_reentrant = true was chosen" in note for note in made.notes)
    assert "train.use_reentrant = true was chosen" in err
