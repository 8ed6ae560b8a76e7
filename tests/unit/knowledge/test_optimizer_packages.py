"""Every package that the table of optimizers names has a rule for the case that it is not installed."""

from __future__ import annotations

import tomllib

import pytest

from envcheck.host.package_files import source_texts

TABLE = tomllib.loads(source_texts("compat/tables", ".toml")["optimizers.toml"])
PACKAGES = sorted({row["package"] for row in TABLE["optimizer_code"] if "package" in row})
TABLES = [
    table
    for text in source_texts("compat/rules", ".toml").values()
    for row in tomllib.loads(text).get("rule", [])
    for table in (row["when"] if isinstance(row["when"], list) else [row["when"]])
]


@pytest.mark.parametrize("package", PACKAGES)
def test_a_package_of_the_table_is_missed_by_a_rule(package: str) -> None:
    assert any(
        table.get("train.optimizer_package") == package and table.get(f"pkg.{package}") == "absent"
        for table in TABLES
    ), f"no rule says that {package} is not installed"
