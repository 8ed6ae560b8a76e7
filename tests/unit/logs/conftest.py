"""How the tests of this folder explain a log."""

from __future__ import annotations

from pathlib import Path

import pytest

from envcheck.commands import explain
from envcheck.commands.examine import ExamineRequest
from envcheck.host.machine import Host
from envcheck.reports.explanation import Explanation
from tests.support.logs import Explain


@pytest.fixture
def explained(tmp_path: Path) -> Explain:
    def explained(text: str, **packages: str) -> Explanation:
        facts = tmp_path / "facts.toml"
        named = "".join(f'{name} = "{version}"\n' for name, version in packages.items())
        facts.write_text(f'python = {{ version = "3.11.9" }}\n[pkg]\n{named}')
        return explain.explain_chunks(ExamineRequest(facts=str(facts)), "log", [text.encode()], Host())

    return explained
