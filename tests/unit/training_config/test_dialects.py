"""The dialect files of compat/: their fields are documented, and their values and names exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from envcheck.commands import loading
from envcheck.core import versions
from envcheck.core.training_facts import KEYS
from envcheck.rules import derive
from envcheck.training_config import dialects
from envcheck.training_config.dialect_context import PROGRAM
from tests.support.launches import known_facts
from tests.support.paths import ROOT

FOLDER = ROOT / "compat/dialects"
TREES: dict[str, dict[str, Any]] = {
    path.stem: tomllib.loads(path.read_text()) for path in FOLDER.glob("*.toml")
}
SHARED = loading.source_tree()["tables"]["argument"]
KNOWN = dialects.load(TREES, SHARED)
PIECES = {*derive.COMPONENTS, *derive.IMPORTS}
KINDS = {"flag", "whole", "number", "positive", "word", "words", "list", "section", "switch", "any"}


@pytest.mark.parametrize("name", sorted(TREES))
def test_every_field_of_a_dialect_is_explained_in_the_readme(name: str) -> None:
    tree = TREES[name]
    explained = (FOLDER / "README.md").read_text()
    fields = {field for row in tree.get("setting", []) for field in row} | tree.keys()
    missing = {field for field in fields if f"`{field}`" not in explained and f"[[{field}]]" not in explained}
    assert not missing


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_every_fact_and_value_of_a_dialect_is_in_the_vocabulary(name: str) -> None:
    dialect = KNOWN[name]
    for setting, rows in dialect.rows.items():
        for row in rows:
            assert row.kind in KINDS, setting
            assert not row.key or row.key in KEYS, setting
            assert not row.refers or row.refers in KNOWN, setting
            assert row.when in {"true", "false", "positive", "any", "given"}, setting
            words = KEYS[row.key].words if row.key else ()
            stated = [
                value
                for value in (row.value, row.otherwise, *row.values.values(), *row.patterns.values())
                if value is not None
            ]
            assert not words or {str(value) for value in stated} <= set(words), setting
            assert not row.versions or versions.parse_specifier(row.versions), setting
    for implied in dialect.implied:
        assert implied.key in KEYS or implied.key in PIECES
    assert {key for row in dialect.never_imported for key in row.keys} <= PIECES
    assert set(dialect.unread) <= KEYS.keys()


@pytest.mark.parametrize("name", sorted(KNOWN))
def test_conditions_name_settings_of_the_dialect(name: str) -> None:
    dialect = KNOWN[name]
    about = [
        *(each.when for each in (*dialect.implied, *dialect.defaults)),
        *(each.when for each in dialect.contradictions),
    ]
    for setting in [
        *(setting for when in about for setting in when),
        *(row.setting for row in dialect.filled),
    ]:
        section = setting.rpartition(".")[0]
        assert setting in dialect.rows or section not in dialect.unknown or setting == PROGRAM, setting
    for row in dialect.excluded:
        known = KNOWN[row.by].rows
        assert all(name in known or name.endswith("_nvme_path") for name in row.settings), row
    for filled in dialect.filled:
        arguments = KNOWN[filled.by].rows
        assert all(argument in arguments for argument in filled.arguments), filled


@pytest.mark.parametrize(
    "name",
    ["transformers", "trl", "llamafactory", "axolotl", "swift", "swift_megatron", "openrlhf", "accelerate",
     "deepspeed", "torchtune", "verl", "nemo_rl"],
)  # fmt: skip
def test_a_packaged_trainer_names_the_releases_it_was_read_from(name: str) -> None:
    assert versions.parse_specifier(KNOWN[name].read_from)
    assert KNOWN[name].package


@pytest.mark.parametrize("name", sorted(TREES))
def test_no_dialect_is_read_from_code_that_changes_under_its_address(name: str) -> None:
    """A source is a release or a commit, so that a reader finds what the dialect was read from."""
    assert not re.findall(r"/blob/(?:main|master)/", (FOLDER / f"{name}.toml").read_text())


def test_every_row_names_its_source() -> None:
    for name, tree in TREES.items():
        urls = [*tree.get("sources", {}).values()]
        urls += [
            row["source"]
            for kind in ("setting", "contradiction", "filled", "excluded")
            for row in tree.get(kind, [])
            if "source" in row
        ]
        assert all(re.match(r"https://github\.com/\S+$", url) for url in urls), name
        assert all(
            row.get("source")
            for kind in ("contradiction", "filled", "excluded")
            for row in tree.get(kind, [])
        ), name


def test_a_mistake_in_a_dialect_is_reported() -> None:
    known = dialects.load({"x": {"title": "x", "setting": [{"names": ["a"], "knd": "flag"}]}})
    with pytest.raises(ValueError, match="knd"):
        _ = known["x"].rows
    with pytest.raises(ValueError, match="extends y"):
        dialects.load({"x": {"title": "x", "extends": ["y"]}})


@pytest.mark.parametrize(
    ("launch", "key", "value"),
    [
        ("swift rlhf --rlhf_type rm --train_type lora", "modules_to_save", True),
        ("swift sft --task_type seq_cls --train_type lora", "modules_to_save", True),
        ("swift rlhf --rlhf_type dpo --train_type lora", "modules_to_save", None),
        ("python -m openrlhf.cli.train_ppo_ray --rollout_batch_size 8 --use_dynamic_batch", "packing", True),
        ("python -m openrlhf.cli.train_ppo_ray --train.dynamic_batch_enable", "packing", True),
        ("python -m openrlhf.cli.train_ppo_ray --rollout_batch_size 8", "packing", None),
    ],
)
def test_what_one_option_switches_on_by_itself(
    launch: str, key: str, value: bool | None, tmp_path: Path
) -> None:
    found = known_facts(tmp_path, {"run.sh": f"{launch} --model some/model --bf16\n"})
    assert found.get(key) is value
