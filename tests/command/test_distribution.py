"""Nothing tells a user to install `envcheck` from an index: that name is another project's there."""

from __future__ import annotations

import re
import subprocess  # noqa: TID251 - git lists what is published
import tomllib
from pathlib import Path

import pytest

from tests.support.paths import ROOT

INSTALLERS = re.compile(
    r"(?:\bpip3?[ ]install|\buv[ ]pip[ ]install|\buv[ ]add|\buv[ ]tool[ ](?:install|run)|\bpipx[ ](?:install|run)|\buvx)"
    r"(?P<words>[^\n`|;&]*)"
)
FROM_INDEX = re.compile(r"^['\"]?envcheck(?:[-_]ml)?(?:$|['\"\[=<>~!@ ])")
SOURCE_OPTIONS = ("--from", "--spec")

PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "action.yml",
    ".pre-commit-hooks.yaml",
    "pyproject.toml",
)
FOLDERS = ("docs", "examples", "templates", "envcheck", "tools", "benchmarks", "lockfiles")


def published() -> list[Path]:
    ran = subprocess.run(
        ["git", "ls-files", "-z", *PAGES, *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return [ROOT / name for name in ran.stdout.split("\0") if name and (ROOT / name).is_file()]


def named_on_an_index(text: str) -> list[str]:
    """Return the commands that would fetch a package called envcheck by its name."""
    found = []
    for command in INSTALLERS.finditer(text.replace("\\\n", " ")):
        words = command["words"].partition(" #")[0].split()
        if not set(SOURCE_OPTIONS) & set(words) and any(map(FROM_INDEX.match, words)):
            found.append(command[0].strip())
    return found


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("pip install envcheck", True),
        ("uvx envcheck doctor", True),
        ("pipx run 'envcheck-ml[ray]' doctor", True),
        ("uv tool install envcheck==0.1.0", True),
        ("pip install ./envcheck_ml-0.1.0-py3-none-any.whl", False),
        ("pip install '.[docs]' # in a checkout of envcheck's", False),
        ("uvx --from ./envcheck_ml-0.1.0-py3-none-any.whl envcheck doctor", False),
        ("pipx run --spec . envcheck check requirements.txt", False),
    ],
)
def test_what_counts_as_an_install_from_an_index(text: str, wrong: bool) -> None:
    assert bool(named_on_an_index(text)) == wrong


def test_no_page_example_or_message_installs_it_from_an_index() -> None:
    files = published()
    assert len(files) > 100
    found = {
        str(path.relative_to(ROOT)): named
        for path in files
        if path.suffix not in (".json", ".txt") and (named := named_on_an_index(path.read_text()))
    }
    assert found == {}


def test_every_page_that_installs_it_says_that_it_is_not_published() -> None:
    for page in ("README.md", "docs/how-to/ci.md", "examples/Dockerfile"):
        assert "not on the public index yet" in " ".join((ROOT / page).read_text().split()), page


def test_the_distribution_has_its_own_name_and_the_old_command() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["name"] == "envcheck-ml"
    assert list(project["scripts"]) == ["envcheck"]


def test_the_action_installs_from_its_own_checkout() -> None:
    text = (ROOT / "action.yml").read_text()
    installs = re.findall(r"pip install [^\n]*", text)
    assert installs == ['pip install --quiet "$ACTION"']
    assert "ACTION: ${{ github.action_path }}" in text
    assert "inputs.version" not in text
