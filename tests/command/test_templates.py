"""Every template is valid: what somebody copies works before it is filled in."""

from __future__ import annotations

import importlib.util
import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from envcheck.core.facts import Absent, Known
from envcheck.host.machine import Host
from envcheck.probes import Probe, ProbeRequest, survey
from envcheck.selftest import declaration
from tests.support.paths import ROOT
from tests.support.running import envcheck

TEMPLATES = ROOT / "templates"
RULE: dict[str, Any] = tomllib.loads((TEMPLATES / "rule.toml").read_text())


@pytest.mark.parametrize("case", RULE["case"], ids=lambda case: str(case["expect"]))
def test_the_rule_is_broken_by_its_case_and_not_by_the_near_miss(
    case: dict[str, Any], tmp_path: Path
) -> None:
    facts = tmp_path / "facts.json"
    facts.write_text(json.dumps(case["facts"]))
    ran = envcheck("doctor", "--facts", str(facts), "--matrix", str(TEMPLATES / "rule.toml"), "--json")
    broken = {each["rule"] for each in json.loads(ran.out)["findings"] if each["verdict"] == "broken"}
    assert (RULE["rule"][0]["id"] in broken) is (case["expect"] == "broken"), ran.err


def test_the_target_can_be_shown() -> None:
    ran = envcheck("target", "example-lora", "--matrix", str(TEMPLATES / "target.toml"))
    assert ran.code == 0, ran.err
    assert "LoRA with the example trainer" in ran.out


@pytest.mark.parametrize(("text", "expected"), [("2.4.1\n", Known("2.4.1")), (None, Absent())])
def test_the_probe_reads_a_staged_machine(text: str | None, expected: object, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("probe", TEMPLATES / "probe.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert isinstance(module.PROBE, Probe)
    if text is not None:
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc/example-release").write_text(text)
    read = survey(Host(root=tmp_path), ProbeRequest(), [module.PROBE])
    assert read.fact("example.version").reading == expected


def test_the_selftest_declares_itself() -> None:
    claim = declaration.read_declaration("selftest", (TEMPLATES / "selftest.py").read_text(), "")
    assert claim.title == "A matrix product on this device equals the same product on the CPU"
    assert claim.level == 1


def test_the_table_names_every_template() -> None:
    table = (TEMPLATES / "README.md").read_text()
    assert all(
        f"`{path.name}`" in table
        for path in TEMPLATES.iterdir()
        if path.is_file() and path.name != "README.md"
    )
