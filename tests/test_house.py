"""The house rules: types, lint, floors, and that every room can be entered alone."""

from __future__ import annotations

import re
import subprocess  # noqa: TID251 - tests are users
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

TRACKED = [
    path
    for path in ROOT.rglob("*")
    if path.is_file()
    and not {".git", ".venv", ".hypothesis", "__pycache__", "build", "dist"}
    & set(path.relative_to(ROOT).parts)
    and not any(part.startswith(".") and part.endswith("_cache") for part in path.relative_to(ROOT).parts)
]


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check", "."),
        ("ruff", "format", "--check", "."),
        ("mypy",),
        ("lint-imports", "--no-logo"),
    ],
    ids=" ".join,
)
def test_house_rule(command: tuple[str, ...]) -> None:
    program = Path(sys.executable).parent / command[0]
    if not program.is_file():
        pytest.skip(f"{command[0]} is not installed beside this Python; the extra [test] brings it")
    ran = subprocess.run(
        [program, *command[1:]], capture_output=True, text=True, timeout=600, check=False, cwd=ROOT
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    "module", sorted(path.stem for path in (ROOT / "envcheck").glob("*.py") if path.stem != "__main__")
)
def test_every_module_can_be_imported_alone(module: str) -> None:
    name = "envcheck" if module == "__init__" else f"envcheck.{module}"
    ran = subprocess.run(
        [sys.executable, "-c", f"import {name}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    assert ran.returncode == 0, ran.stderr


def test_scripts_run_by_the_target_need_no_third_party_and_no_envcheck() -> None:
    for path in [*(ROOT / "envcheck/target_scripts").glob("*.py")]:
        imported = set(re.findall(r"^\s*(?:import|from)\s+([A-Za-z_]\w*)", path.read_text(), re.MULTILINE))
        assert imported <= set(sys.stdlib_module_names), path


def test_nothing_names_a_registry_host_or_a_local_build() -> None:
    # Spelt backwards, so that this file does not name them either.
    hosts = [name[::-1] for name in ("detsohnohtyp", "gro.ipyp", "sjmpn.yrtsiger")]
    for path in TRACKED:
        if path.suffix in (".toml", ".md", ".py", ".txt", ".yml", ".yaml", ""):
            text = path.read_text(errors="replace")
            assert not any(host in text for host in hosts), path
            if path.parent.name == "lockfiles":
                assert not re.search(r"==[^ ]*\+", text), path


def test_no_file_names_the_home_of_who_wrote_it() -> None:
    home = "/" + "root/"  # where things are made; in an example it is somebody's
    for path in TRACKED:
        if path.is_file() and path.suffix != ".png":
            assert home not in path.read_text(errors="replace"), path
