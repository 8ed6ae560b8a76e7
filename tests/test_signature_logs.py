"""Every signature finds the failure it was written for, and nothing else.

tests/logs holds, for each case with a signature, a log as a user would have it (`<case>.log`) and one that is
close in words and tells of something else (`<case>.near.log`). What else a log matches is listed with the
reason in tests/logs/also.toml; whatever is not listed fails.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from envcheck import app, signatures
from envcheck.signatures import Signature

LOGS = Path(__file__).parent / "logs"
CASES = {row["id"]: row for row in app.source_tree()["case"] if row.get("signature")}
SIGNATURES = {each.case: each for each in signatures.compiled(CASES.values())}
ALSO = tomllib.loads((LOGS / "also.toml").read_text())

ANYWHERE = {"consequence", "harmless"}
"""Kinds that stand in any log beside its cause."""


def text(path: Path) -> str:
    """A log without the prefixes that launchers write, as `explain` reads it."""
    return signatures.bare(path.read_text())


def cause(case: str) -> str:
    """What a case is of: its rule, or itself."""
    return SIGNATURES[case].rule or case


def matches(log: str) -> list[Signature]:
    """What a text holds in full, the most specific first."""
    found = [each for each in SIGNATURES.values() if len(signatures.held(each, log)) == len(each.patterns)]
    return sorted(found, key=lambda each: -each.score(range(len(each.patterns))))


def others(log: str) -> set[str]:
    """Causes that a text speaks of, apart from what may follow any failure."""
    return {cause(each.case) for each in matches(log) if each.kind not in ANYWHERE}


OWN = sorted(path for path in LOGS.glob("*.log") if not path.name.endswith(".near.log"))
NEAR = sorted(LOGS.glob("*.near.log"))


def name(path: Path) -> str:
    return path.name.removesuffix(".log").removesuffix(".near")


def test_every_signature_has_a_log_and_a_near_miss() -> None:
    shared = {(each.rule, tuple(CASES[each.case]["signature"])): [] for each in SIGNATURES.values()}
    for each in SIGNATURES.values():
        shared[each.rule, tuple(CASES[each.case]["signature"])].append(each.case)
    for cases in shared.values():  # cases of a rule that say the same need one log
        assert any((LOGS / f"{case}.log").is_file() for case in cases), cases
        assert any((LOGS / f"{case}.near.log").is_file() for case in cases), cases
    assert len(OWN) >= 120


def test_every_log_is_of_a_case() -> None:
    assert {name(path) for path in [*OWN, *NEAR]} <= SIGNATURES.keys()
    assert set(ALSO) <= {path.name.removesuffix(".log") for path in [*OWN, *NEAR]}


@pytest.mark.parametrize("path", OWN, ids=name)
def test_a_log_is_told_as_its_own_case(path: Path) -> None:
    found = matches(text(path))
    mine = [each for each in found if cause(each.case) == cause(name(path))]
    assert name(path) in {each.case for each in mine}, "its own signature does not match"
    best = max(each.score(range(len(each.patterns))) for each in mine)
    louder = [
        each.case
        for each in found
        if cause(each.case) != cause(name(path))
        and each.kind not in ANYWHERE
        and each.score(range(len(each.patterns))) > best
    ]
    assert not louder, "another case outranks it"


@pytest.mark.parametrize("path", OWN, ids=name)
def test_a_log_speaks_of_no_other_cause(path: Path) -> None:
    listed = {each["cause"] for each in ALSO.get(path.name.removesuffix(".log"), [])}
    assert others(text(path)) - {cause(name(path))} == listed


@pytest.mark.parametrize("path", NEAR, ids=name)
def test_a_near_miss_is_not_told_as_the_case(path: Path) -> None:
    found = {each.case for each in matches(text(path))}
    assert name(path) not in found
    listed = {each["cause"] for each in ALSO.get(path.name.removesuffix(".log"), [])}
    assert others(text(path)) == listed


@pytest.mark.parametrize("path", [*OWN, *NEAR], ids=lambda path: path.name)
def test_a_log_is_a_log(path: Path) -> None:
    assert 5 <= len(path.read_text().splitlines()) <= 60


def test_an_overlap_is_listed_with_its_reason() -> None:
    for rows in ALSO.values():
        assert all(row["cause"] and row["why"] for row in rows)
