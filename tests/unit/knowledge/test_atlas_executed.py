"""What was executed in `benchmarks/atlas.py` stays known: what ran is not accused, what failed is foreseen."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import Any

import pytest

from envcheck.commands.loading import load_atlas
from envcheck.rules.atlas import broken_rows, judged_versions
from tests.support.paths import ROOT

TABLE = ROOT / "benchmarks" / "atlas.tsv"


def executed(*endings: str) -> Iterator[Any]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE):
            if row["ending"] in endings:
                yield pytest.param(row, id=f"{row['pair']}: {row['program'][:40]}".replace(" ", "-"))


def releases(row: dict[str, str]) -> dict[str, str]:
    return dict(part.split("=", 1) for part in row["releases"].split())


@pytest.mark.parametrize("row", [*executed("ran")])
def test_a_program_that_ran_is_not_accused(row: dict[str, str]) -> None:
    atlas, package = load_atlas(), row["package"]
    entries = {row["program"], f"import {package.replace('-', '_')}"}
    accused = [
        found
        for asking, _, rows in broken_rows(atlas, judged_versions(atlas, releases(row)))
        for found in rows
        if asking == package and found.entry in entries
    ]
    assert accused == []


FORESEEN_ELSEWHERE = {
    # a minimum that `TrainingArguments` applies: the rule transformers-accelerate-import-floor
    ("accelerate", "transformers"),
}


@pytest.mark.parametrize("row", [*executed("failed by the pair")])
def test_what_failed_between_the_two_packages_is_foreseen(row: dict[str, str]) -> None:
    atlas, involved = load_atlas(), set(row["involved"].split())
    found = [
        pair
        for *pair, _ in broken_rows(atlas, judged_versions(atlas, releases(row)))
        if set(pair) <= involved | {"torch"}
    ]
    assert found or tuple(sorted(involved)) in FORESEEN_ELSEWHERE
