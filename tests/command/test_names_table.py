"""`tools/refresh_names.py` writes which releases of a package have which public names, from a store."""

from __future__ import annotations

import json
import zipfile

import pytest

from envcheck.knowledge.names import Answer, presence
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


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the table of two releases."""
    folder = tmp_path_factory.mktemp("names")
    (folder / "store" / "peft").mkdir(parents=True)
    for version, files in (("0.1.0", FIRST), ("0.2.0", SECOND)):
        described = {"package": "peft", "version": version, "uploaded": "2024-01-01", "yanked": False}
        described |= {
            "requires_python": "",
            "requires": [],
            "requires_known": True,
            "wheels": [],
            "others": ["peft/made_in_c.so"],
        }
        with zipfile.ZipFile(folder / "store" / "peft" / f"{version}.zip", "w") as archive:
            archive.writestr("release.json", json.dumps(described))
            for path, content in files.items():
                archive.writestr(path, content)
    ran = tool(
        "refresh_names.py", "--store", str(folder / "store"), "--folder", str(folder), "--write", "peft"
    )
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("peft: 2 releases, ")
    return (folder / "peft.txt").read_text()


@pytest.mark.parametrize(
    ("module", "name", "answer", "releases"),
    [
        ("peft", "LoraConfig", Answer.EVERY, "0.1.0 to 0.2.0"),
        ("peft", "PeftConfig", Answer.SOME, "from 0.2.0 on"),
        ("peft", "old", Answer.SOME, "up to 0.1.0"),
        ("peft", "Any", Answer.UNKNOWN, ""),  # it is imported from elsewhere
        ("peft", "torch", Answer.NONE, ""),  # another module imports that, not the package's own file
        ("peft", "Loraconfig", Answer.NONE, ""),
        ("peft.config", "torch", Answer.UNKNOWN, ""),
        ("peft.config", "_hidden", Answer.UNKNOWN, ""),
        ("peft.native", "known", Answer.EVERY, "0.1.0 to 0.2.0"),
        ("peft.native", "other", Answer.UNKNOWN, ""),  # a library made in C may have it
        ("peft.tests", "", Answer.UNKNOWN, ""),
        ("peft.tuner", "", Answer.SOME, "up to 0.1.0"),
        ("peft.tuners", "lora", Answer.EVERY, "from 0.2.0 on"),
        ("peft.tuners.lora", "LoraOnGpu", Answer.UNKNOWN, ""),  # whether a condition is met is not known
        ("peft.tuners.dora", "", Answer.NONE, ""),
    ],
)
def test_names_are_listed_with_their_releases(
    text: str, module: str, name: str, answer: Answer, releases: str
) -> None:
    found = presence(text, module, name)

    assert (found.answer, found.words) == (answer, releases)
