"""Rules name model types as config.json spells them: `blip-2`, not `blip_2`, the name of its folder."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator

import pytest

from envcheck.host.package_files import source_texts

TABLE = "tables/models.toml"
KNOWN = {row["model_type"] for row in tomllib.loads(source_texts("compat", ".toml")[TABLE])["model"]}


def named() -> Iterator[tuple[str, str]]:
    """Yield each rule with each model type that it names."""
    for file, text in source_texts("compat/rules", ".toml").items():
        for row in tomllib.loads(text).get("rule", []):
            tables = row["when"] if isinstance(row["when"], list) else [row["when"]]
            for value in (table.get("train.model_type", []) for table in tables):
                for word in [value] if isinstance(value, str) else value:
                    yield f"{file}: {row['id']}", word.removeprefix("!=")


@pytest.mark.parametrize(("rule", "word"), sorted(set(named())))
def test_a_rule_names_model_types_that_transformers_has(rule: str, word: str) -> None:
    assert word in KNOWN | {"absent", "present"}, f"{rule} names {word}, which no config.json has"
