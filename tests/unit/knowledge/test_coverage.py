"""docs/coverage.toml: each entry of another tool's list names something that exists here, or gives a reason."""

from __future__ import annotations

import datetime as dt
import re
import subprocess  # noqa: TID251 - tests are users
import sys
import tomllib
from typing import Any

import pytest

from envcheck import probes
from envcheck.commands import loading
from envcheck.core.rules import Matrix
from tests.support.paths import ROOT

TABLE: dict[str, Any] = tomllib.loads((ROOT / "docs/coverage.toml").read_text())
SOURCES: list[dict[str, Any]] = TABLE["source"]
NOT_REPORTED = ("out of scope", "missed")


@pytest.fixture(scope="module")
def known() -> Matrix:
    return loading.knowledge()


def _entries(*verdicts: str) -> list[dict[str, Any]]:
    return [each for source in SOURCES for each in source["entries"] if each["verdict"] in verdicts]


def _missing(verdict: str, existing: set[str]) -> list[tuple[str, str]]:
    """Return (entry, name) for each name that does not exist; an entry without a name has an empty one."""
    named = [(each["name"], by) for each in _entries(verdict) for by in each.get("by") or [""]]
    return [(entry, by) for entry, by in named if by not in existing]


def test_every_entry_occurs_once_with_a_known_verdict() -> None:
    for source in SOURCES:
        names = [each["name"] for each in source["entries"]]
        assert sorted(names) == sorted(set(names)), source["name"]
        assert [each for each in source["entries"] if each["verdict"] not in TABLE["verdict"]] == []
        assert [
            each for each in source["entries"] if each.keys() - {"name", "verdict", "by", "why", "because"}
        ] == []


def test_detected_entries_name_existing_rules_or_self_tests(known: Matrix) -> None:
    rules = {rule.id for rule in known.rules}
    selftests = {
        f"selftest.{path.stem}" for path in (ROOT / "envcheck/target_scripts/selftests").glob("[a-z]*.py")
    }
    assert _missing("detected", rules | selftests) == []


def test_read_entries_name_facts_that_a_probe_yields() -> None:
    facts = {key for probe in probes.every_probe() for key in probe.yields}
    assert _missing("read", facts) == []


def test_explained_entries_name_cases_with_a_signature() -> None:
    cases = {case["id"] for case in loading.source_tree()["case"] if "signature" in case}
    assert _missing("explained", cases) == []


def test_entries_that_are_not_reported_have_a_reason_and_no_name() -> None:
    for each in _entries(*NOT_REPORTED):
        assert "by" not in each, each
        assert ("why" in each) != ("because" in each), each
        assert each.get("why") or TABLE["because"].get(each["because"]), each
    used = {each.get("because") for each in _entries(*TABLE["verdict"])} - {None}
    assert used == set(TABLE["because"])


def test_every_fact_in_a_reason_exists() -> None:
    vocabulary = loading.vocabulary(probes.every_probe())
    for each in _entries(*TABLE["verdict"]):
        for key in re.findall(r"`([a-z]+\.[a-z_.*]+)`", each.get("why", "")):
            assert vocabulary.get(key), each


def test_every_list_has_a_source_and_a_date() -> None:
    for source in SOURCES:
        assert re.fullmatch(r"[0-9a-f]{40}", source["commit"]), source["name"]
        assert any(f"/{each}/" in source["url"] for each in (source["at"], source["commit"])), source["url"]
        assert isinstance(source["read"], dt.date), source["name"]
        assert source["title"], source["name"]
        assert source["lists"], source["name"]


def test_the_page_shows_every_entry_and_counts_them() -> None:
    ran = subprocess.run(
        [sys.executable, "tools/write_reference.py", "coverage"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        cwd=ROOT,
    )
    rows = [line.strip("| ").split(" | ") for line in ran.stdout.splitlines() if line.startswith("| ")]
    sums = {
        cells[0]: [int(cell.partition(",")[0]) for cell in cells[1:]] for cells in rows if cells[0][0] == "["
    }
    for source in SOURCES:
        verdicts = [each["verdict"] for each in source["entries"]]
        counts = [verdicts.count(verdict) for verdict in TABLE["verdict"]]
        assert sums[f"[{source['title']}](#{source['name']})"] == [*counts, len(verdicts)]
        shown = {(cells[0], cells[1].split("**")[1]) for cells in rows if "**" in cells[1]}
        assert [e for e in source["entries"] if (f"`{e['name']}`", e["verdict"]) not in shown] == []
