"""docs/coverage.toml: what it says of an entry of others' lists is said by something that is there, or has a reason."""

from __future__ import annotations

import datetime as dt
import re
import subprocess  # noqa: TID251 - tests are users
import sys
import tomllib
from typing import Any

import pytest

from envcheck import probes
from envcheck.commands import examine
from envcheck.core.rules import Matrix
from tests.support.paths import ROOT

TABLE: dict[str, Any] = tomllib.loads((ROOT / "docs/coverage.toml").read_text())
SOURCES: list[dict[str, Any]] = TABLE["source"]
UNSAID = ("out of scope", "missed")


@pytest.fixture(scope="module")
def known() -> Matrix:
    return examine.knowledge()


def _entries(*verdicts: str) -> list[dict[str, Any]]:
    return [each for source in SOURCES for each in source["entries"] if each["verdict"] in verdicts]


def _strangers(verdict: str, there: set[str]) -> list[tuple[str, str]]:
    """(entry, name) of what is named and is not there; an entry that names nothing counts with an empty name."""
    named = [(each["name"], by) for each in _entries(verdict) for by in each.get("by") or [""]]
    return [(entry, by) for entry, by in named if by not in there]


def test_every_entry_is_written_once_with_one_of_the_verdicts() -> None:
    for source in SOURCES:
        names = [each["name"] for each in source["entries"]]
        assert sorted(names) == sorted(set(names)), source["name"]
        assert [each for each in source["entries"] if each["verdict"] not in TABLE["verdict"]] == []
        assert [
            each for each in source["entries"] if each.keys() - {"name", "verdict", "by", "why", "because"}
        ] == []


def test_what_is_detected_is_found_by_rules_and_self_tests_that_exist(known: Matrix) -> None:
    rules = {rule.id for rule in known.rules}
    selftests = {
        f"selftest.{path.stem}" for path in (ROOT / "envcheck/target_scripts/selftests").glob("[a-z]*.py")
    }
    assert _strangers("detected", rules | selftests) == []


def test_what_is_read_is_a_fact_that_a_probe_yields() -> None:
    facts = {key for probe in probes.every_probe() for key in probe.yields}
    assert _strangers("read", facts) == []


def test_what_is_explained_has_a_signature() -> None:
    cases = {case["id"] for case in examine.source_tree()["case"] if "signature" in case}
    assert _strangers("explained", cases) == []


def test_what_is_not_said_has_a_reason_and_names_nothing() -> None:
    for each in _entries(*UNSAID):
        assert "by" not in each, each
        assert ("why" in each) != ("because" in each), each
        assert each.get("why") or TABLE["because"].get(each["because"]), each
    used = {each.get("because") for each in _entries(*TABLE["verdict"])} - {None}
    assert used == set(TABLE["because"])


def test_a_fact_that_a_sentence_names_exists() -> None:
    vocabulary = examine.vocabulary(probes.every_probe())
    for each in _entries(*TABLE["verdict"]):
        for key in re.findall(r"`([a-z]+\.[a-z_.*]+)`", each.get("why", "")):
            assert vocabulary.get(key), each


def test_every_list_says_where_it_was_read_and_when() -> None:
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
