"""`tools/refresh_auto_classes.py` reads which configurations the Auto classes of stored releases load."""

from __future__ import annotations

from pathlib import Path

from tests.command.test_harvest import harvest
from tests.command.test_tools import added, tool
from tests.support.local_index import LocalIndex, serving, wheel
from tests.unit.atlas.test_auto_classes import CONFIGURATIONS, MODELING

FOLDER = "transformers/models/auto"


def transformers(version: str, configurations: str) -> tuple[str, bytes]:
    files = {"modeling_auto.py": MODELING, "configuration_auto.py": configurations}
    more = {f"{FOLDER}/{name}": text.encode() for name, text in files.items()}
    return wheel("transformers", version, more=more)


def test_what_the_releases_load_is_proposed_as_a_diff_and_written(tmp_path: Path) -> None:
    older = CONFIGURATIONS.replace('("llama", "LlamaConfig"), ', "")
    files = dict([transformers("4.57.0", older), transformers("5.0.0", CONFIGURATIONS)])
    store, table = tmp_path / "store", tmp_path / "transformers.txt"
    with serving(LocalIndex(files, ranges=True)) as index:
        assert harvest(index, store, "transformers").code == 0
    asked = ("--store", str(store), "--table", str(table))
    proposed = tool("refresh_auto_classes.py", *asked)
    assert not table.exists()
    written = tool("refresh_auto_classes.py", *asked, "--write")
    assert (proposed.code, written.code, written.err) == (1, 0, "")
    lines = table.read_text().splitlines()[2:]
    assert added(proposed.out)[2:] == lines
    assert lines[:4] == [
        *("# read: 4.57.0 to 5.0.0", "[AutoModelForBoth]", "LlamaConfig 5.0.0..", "VlConfig 4.57.0..")
    ]


def test_a_release_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    files = dict([transformers("4.57.0", "CONFIG_MAPPING_NAMES = load()")])
    with serving(LocalIndex(files, ranges=True)) as index:
        assert harvest(index, tmp_path, "transformers").code == 0
    asked = ("--table", str(tmp_path / "table.txt"))
    ran = tool("refresh_auto_classes.py", "--store", str(tmp_path), *asked)
    assert (ran.code, ran.err) == (3, "transformers 4.57.0: line 1: expected a table of names\n")
    empty = tool("refresh_auto_classes.py", "--store", str(tmp_path / "none"), *asked)
    assert (empty.code, empty.err.count("\n")) == (3, 1)
