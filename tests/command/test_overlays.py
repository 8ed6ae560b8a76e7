"""Overlays as a user names them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.running import Outcome, envcheck
from tests.unit.knowledge.test_overlays import FACTS, HOUSE, TARGET


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "house.toml").write_text(HOUSE)
    (tmp_path / "facts.toml").write_text(FACTS)
    return tmp_path


def doctor(folder: Path, *more: str) -> Outcome:
    return envcheck("doctor", "--facts", "facts.toml", *more, cwd=folder)


def test_doctor_finds_what_an_overlay_forbids_and_names_the_overlay(folder: Path) -> None:
    assert doctor(folder).code == 0
    ran = doctor(folder, "--matrix", "house.toml")
    assert ran.code == 1
    assert "house-peft-frozen" in ran.out
    assert "house.toml (--matrix): 1 rule\n" in ran.out


def test_the_json_report_names_the_overlay_and_the_rule_its_file(folder: Path) -> None:
    report = json.loads(doctor(folder, "--matrix", "house.toml", "--json").out)
    assert report["matrix"]["overlays"] == [
        {"name": "house.toml", "named_by": "--matrix", "brings": "1 rule"}
    ]
    assert report["findings"][0]["from"] == "house.toml"


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", '[tool.envcheck]\nmatrix = ["house.toml"]\n'),
        ("envcheck.toml", 'matrix = ["house.toml"]\n'),
    ],
)
def test_settings_of_the_folder_name_overlays(folder: Path, file: str, text: str) -> None:
    (folder / file).write_text(text)
    ran = doctor(folder)
    assert ran.code == 1
    assert f"house.toml ({file}): 1 rule\n" in ran.out


def test_a_pyproject_without_settings_changes_nothing(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[project]\nname = "matrix-envcheck"\n')
    assert doctor(folder).code == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "[tool.envcheck]\nmatrix = 3\n",
            "pyproject.toml:2:1: tool.envcheck.matrix: expected a list of files",
        ),
        ('[tool.envcheck]\nmatrix = ["none.toml"]\n', "none.toml: no such file"),
        ("[tool.envcheck\nmatrix = []\n", "pyproject.toml:1:15: not TOML"),
    ],
)
def test_bad_settings_are_one_line(folder: Path, text: str, message: str) -> None:
    (folder / "pyproject.toml").write_text(text)
    ran = doctor(folder)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"envcheck: {message}")
    assert len(ran.err.splitlines()) == 1


@pytest.mark.parametrize(
    "command", [["gate", "--facts", "facts.toml"], ["rule", "x"], ["target"], ["matrix", "show"]]
)
def test_every_command_with_the_matrix_takes_overlays_and_refuses_bad_ones(
    folder: Path, command: list[str]
) -> None:
    (folder / "house.toml").write_text(HOUSE.replace("pkg.peft", "pgk.peft"))
    ran = envcheck(*command, "--matrix", "house.toml", cwd=folder)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("envcheck: house.toml: rule 'house-peft-frozen': when: no such fact 'pgk.peft'")
    assert len(ran.err.splitlines()) == 1


def test_pin_knows_a_target_of_an_overlay(folder: Path) -> None:
    (folder / "house.toml").write_text(TARGET)
    ran = envcheck("pin", "--target", "house", "--offline", "--matrix", "house.toml", cwd=folder)
    assert ran.code == 4
    assert "no shipped lock fits" in ran.err


def test_rule_and_target_show_what_an_overlay_added(folder: Path) -> None:
    (folder / "house.toml").write_text(HOUSE + TARGET)
    ran = envcheck("rule", "house-peft-frozen", "--matrix", "house.toml", cwd=folder)
    assert "from   house.toml (--matrix)\n" in ran.out
    assert "what we train" in envcheck("target", "house", "--matrix", "house.toml", cwd=folder).out
