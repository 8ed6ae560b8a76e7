"""An install from a clone, an editable install and a wheel each find the knowledge and the locks."""

from __future__ import annotations

import re
import shutil
import subprocess  # noqa: TID251 - tests are users
import sys
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.paths import ROOT


def run(*command: str | Path, cwd: Path) -> str:
    ran = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, timeout=600, check=False, cwd=cwd
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Copy only what a new user has after cloning."""
    folder = tmp_path_factory.mktemp("clone") / "envcheck"
    shutil.copytree(
        ROOT, folder,
        ignore=shutil.ignore_patterns(".git", ".venv", "*.egg-info", "__pycache__", ".*_cache", "build", "dist", ".hypothesis"),
    )  # fmt: skip
    return folder


@pytest.fixture
def python(tmp_path: Path) -> Iterator[Path]:
    """Create a fresh environment with the libraries that envcheck needs, but without envcheck."""
    folder = tmp_path / "venv"
    venv.create(folder, with_pip=True, symlinks=True)
    site = next((folder / "lib").glob("python*/site-packages"))
    ours = next(path for path in sys.path if path.endswith("site-packages"))
    # Link the requirements from the environment of the tests, so that no index is needed.
    for name in ("typer", "rich", "packaging", "yaml", "pynvml.py", "hatchling", "pathspec", "pluggy", "trove_classifiers",
                 "shellingham", "markdown_it", "mdurl", "pygments", "typing_extensions.py", "annotated_doc", "click", "editables"):  # fmt: skip
        source = Path(ours, name)
        if source.exists():
            (site / name).symlink_to(source)
    yield folder / "bin/python"
    shutil.rmtree(folder, ignore_errors=True)


def assert_works(python: Path, elsewhere: Path, *, compiled: bool) -> None:
    """Assert that the install shows rules and prints a lock, started outside the clone."""
    command = python.parent / "envcheck"
    assert "zero3-frozen-nonreentrant-checkpoint" in run(command, "rule", "--list", cwd=elsewhere)
    assert "非重入检查点" in run(
        command, "rule", "zero3-frozen-nonreentrant-checkpoint", "--lang", "zh", cwd=elsewhere
    )
    lock = run(
        command, "pin", "--target", "zero3-lora", "--offline", "--python-version", "3.11", cwd=elsewhere
    )
    assert "torch==" in lock
    assert "--hash=sha256:" in lock
    where = run(
        python,
        "-c",
        "from envcheck.host.package_files import shipped_text; print(shipped_text('judging.json') is not None)",
        cwd=elsewhere,
    )
    assert where.strip() == str(compiled)


PIP = ("-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")


def test_a_plain_install_from_a_clone(clone: Path, python: Path, tmp_path: Path) -> None:
    run(python, *PIP, ".", cwd=clone)
    assert_works(python, tmp_path, compiled=True)


def test_an_editable_install(clone: Path, python: Path, tmp_path: Path) -> None:
    run(python, *PIP, "--editable", ".", cwd=clone)
    assert_works(python, tmp_path, compiled=False)


def test_a_wheel_installed_elsewhere(clone: Path, python: Path, tmp_path: Path) -> None:
    run(
        python,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        tmp_path / "dist",
        ".",
        cwd=clone,
    )
    (wheel,) = (tmp_path / "dist").glob("envcheck_ml-*.whl")
    run(python, *PIP, wheel, cwd=tmp_path)
    assert_works(python, tmp_path, compiled=True)


def test_a_mistake_in_compat_stops_the_build(clone: Path, python: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(clone, broken)
    (broken / "compat/rules/deepspeed.toml").write_text("[[rule]\n")
    command = [
        str(python),
        "-m",
        "pip",
        "wheel",
        "--no-deps",
        "--no-build-isolation",
        "-w",
        str(tmp_path / "dist"),
        ".",
    ]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=broken)
    assert ran.returncode != 0
    assert re.search(r"rules/deepspeed\.toml:\d+:\d+: not TOML", ran.stdout + ran.stderr)
