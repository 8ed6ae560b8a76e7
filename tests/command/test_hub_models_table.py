"""`tools/refresh_hub_models.py` reads the names of models from wheels of registries."""

from __future__ import annotations

from pathlib import Path

from tests.command.test_tools import added, tool
from tests.support.local_index import wheel
from tests.unit.atlas.test_hub_models import COPIES, MODELING, REGISTRY

TEXTS = {
    "ms-swift": ("swift/model/models/qwen.py", REGISTRY),
    "unsloth": ("unsloth/models/mapper.py", COPIES),
    "transformers": ("transformers/models/auto/modeling_auto.py", MODELING),
}


def wheels(folder: Path, **changed: str) -> None:
    for package, (path, text) in TEXTS.items():
        name, content = wheel(package, "4.6.0", more={path: changed.get(package, text).encode()})
        (folder / name).write_bytes(content)


def test_the_names_are_proposed_as_a_diff_and_written(tmp_path: Path) -> None:
    wheels(tmp_path)
    table = tmp_path / "hub.txt"
    proposed = tool("refresh_hub_models.py", str(tmp_path), "--table", str(table))
    assert not table.exists()
    written = tool("refresh_hub_models.py", str(tmp_path), "--table", str(table), "--write")
    assert (proposed.code, written.code, written.err) == (1, 0, "")
    lines = table.read_text().splitlines()
    assert added(proposed.out) == lines
    assert lines[2:6] == [
        *("# read: ms-swift 4.6.0, transformers 4.6.0, unsloth 4.6.0", "[llama]", "a/named", "[qwen3]")
    ]
    assert "unsloth/Qwen3-8B-bnb-4bit nf4" in lines


def test_a_registry_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    table = ("--table", str(tmp_path / "hub.txt"))
    nothing = tool("refresh_hub_models.py", str(tmp_path), *table)
    assert (nothing.code, nothing.err.count("\n")) == (3, 1)
    wheels(tmp_path, unsloth="__INT_TO_FLOAT_MAPPER = {")
    broken = tool("refresh_hub_models.py", str(tmp_path), *table)
    assert (broken.code, broken.err.count("\n")) == (3, 1)


def test_a_name_whose_configuration_has_a_type_of_its_own_is_left_out(tmp_path: Path) -> None:
    table = tmp_path / "hub.txt"
    kimi = REGISTRY.replace("scope/Only", "moonshotai/Kimi-K2-Base")
    wheels(tmp_path, **{"ms-swift": kimi})
    assert tool("refresh_hub_models.py", str(tmp_path), "--table", str(table), "--write").code == 0
    names = table.read_text().splitlines()
    assert "Qwen/Qwen3-8B" in names
    assert "moonshotai/Kimi-K2-Base" not in names
