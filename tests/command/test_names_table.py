"""`tools/refresh_names.py` writes which releases of a package have which public names, from a store."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from envcheck.knowledge.names import InReleases, presence
from tests.command.test_tools import tool

FIRST = {
    "peft/__init__.py": "from typing import Any\nfrom .config import LoraConfig\nold = 1\n",
    "peft/config.py": "import torch\n_hidden = 1\nclass LoraConfig: ...\nclass PeftConfig: ...\n",
    "peft/native.py": "from .made_in_c import *\nknown = 1\n",
    "peft/tests/common.py": "def check(): ...\n",
    "peft/tuner.py": "def tune(): ...\n",
}
SECOND = {
    **{path: text for path, text in FIRST.items() if path != "peft/tuner.py"},
    "peft/__init__.py": "from typing import Any\nfrom .config import LoraConfig, PeftConfig\n",
    "peft/tuners/__init__.py": "from .lora import Lora\n",
    "peft/tuners/lora.py": "class Lora: ...\nif torch.cuda.is_available():\n    class LoraOnGpu: ...\n",
}


def stored(store: Path, version: str, files: dict[str, str]) -> None:
    """Put a release of peft into a store."""
    (store / "peft").mkdir(parents=True, exist_ok=True)
    described = {"package": "peft", "version": version, "uploaded": "2024-01-01", "yanked": False}
    described |= {
        "requires_python": "",
        "requires": [],
        "requires_known": True,
        "wheels": [],
        "others": ["peft/made_in_c.so"],
    }
    with zipfile.ZipFile(store / "peft" / f"{version}.zip", "w") as archive:
        archive.writestr("release.json", json.dumps(described))
        for path, content in files.items():
            archive.writestr(path, content)


def written(folder: Path) -> str:
    """Run the tool on the store in a folder, and return the table that it writes."""
    ran = tool(
        "refresh_names.py", "--store", str(folder / "store"), "--folder", str(folder), "--write", "peft"
    )
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("peft: 2 releases, ")
    return (folder / "peft.txt").read_text()


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the table of two releases."""
    folder = tmp_path_factory.mktemp("names")
    for version, files in (("0.1.0", FIRST), ("0.2.0", SECOND)):
        stored(folder / "store", version, files)
    return written(folder)


def test_a_release_that_was_read_is_not_read_again(tmp_path: Path) -> None:
    for version, files in (("0.1.0", FIRST), ("0.2.0", SECOND)):
        stored(tmp_path / "store", version, files)
    first = written(tmp_path)
    stored(tmp_path / "store", "0.1.0", {})  # so that reading it again would show

    again = written(tmp_path)
    for kept in (tmp_path / "store" / ".summaries").iterdir():
        kept.unlink()

    assert again == first
    assert written(tmp_path) != first


@pytest.mark.parametrize(
    ("module", "name", "answer", "releases"),
    [
        ("peft", "LoraConfig", InReleases.EVERY, "0.1.0 to 0.2.0"),
        ("peft", "PeftConfig", InReleases.SOME, "from 0.2.0 on"),
        ("peft", "old", InReleases.SOME, "up to 0.1.0"),
        ("peft", "Any", InReleases.UNKNOWN, ""),  # it is imported from elsewhere
        ("peft", "torch", InReleases.NONE, ""),  # another module imports that, not the package's own file
        ("peft", "Loraconfig", InReleases.NONE, ""),
        ("peft.config", "torch", InReleases.UNKNOWN, ""),
        ("peft.config", "_hidden", InReleases.UNKNOWN, ""),
        ("peft.native", "known", InReleases.EVERY, "0.1.0 to 0.2.0"),
        ("peft.native", "other", InReleases.UNKNOWN, ""),  # a library made in C may have it
        ("peft.tests", "", InReleases.UNKNOWN, ""),
        ("peft.tuner", "", InReleases.SOME, "up to 0.1.0"),
        ("peft.tuners", "lora", InReleases.EVERY, "from 0.2.0 on"),
        ("peft.tuners.lora", "LoraOnGpu", InReleases.UNKNOWN, ""),  # whether a condition is met is not known
        ("peft.tuners.dora", "", InReleases.NONE, ""),
    ],
)
def test_names_are_listed_with_their_releases(
    text: str, module: str, name: str, answer: InReleases, releases: str
) -> None:
    found = presence(text, module, name)

    assert (found.answer, found.words) == (answer, releases)
