"""Tables that were read in published releases reach the newest one that this project knows."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.version import Version

COMPAT = Path(__file__).resolve().parents[3] / "compat"

TABLES = {
    "tables/attention.toml": "transformers",
    "tables/dynamo.toml": "torch",
    "tables/model_code.toml": "transformers",
    "tables/models.toml": "transformers",
    "tables/optimizers.toml": "transformers",
}
EXPLAIN = ("auto_classes", "given", "names", "raised", "symbols")
READ = re.compile(r"^# read: \S+ to (\S+)$|newest release that was read, (\d[\w.]*\w)", re.MULTILINE)


@pytest.fixture(scope="module")
def newest() -> dict[str, Version]:
    """Return the newest release of each package in the tables `torch` and `release`."""
    rows = tomllib.loads((COMPAT / "tables/releases.toml").read_text("utf-8"))["release"]
    builds = tomllib.loads((COMPAT / "tables/torch.toml").read_text("utf-8"))["torch"]
    found: dict[str, Version] = {}
    for row in [*rows, *({"package": "torch", **build} for build in builds)]:
        version = Version(row["version"])
        found[row["package"]] = max(version, found.get(row["package"], version))
    return found


@pytest.mark.parametrize("path", sorted([*TABLES, *(f"{folder}/*.txt" for folder in EXPLAIN)]))
def test_a_table_reaches_the_newest_known_release(path: str, newest: dict[str, Version]) -> None:
    behind = {}
    for file in COMPAT.glob(path):
        expected = newest.get(TABLES.get(path, file.stem))
        (read,) = READ.findall(file.read_text(encoding="utf-8"))
        label = "".join(read)
        if expected is not None and not f"{expected}.".startswith(f"{label}."):
            behind[file.name] = f"read up to {label}, but {expected} is known"
    assert behind == {}
