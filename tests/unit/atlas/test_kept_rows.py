"""A store with some packages of the atlas changes only the rows that it can read."""

from __future__ import annotations

from pathlib import Path

import pytest

from envcheck.commands.harvest.kept_rows import rows_with_kept
from envcheck.core.errors import InputError
from envcheck.core.rules import AtlasRow
from envcheck.knowledge.atlas import gaps_text
from envcheck.knowledge.release_metadata import ReleaseTable, parse_release_files


def row(partner: str, needs: str, last: str = "2.0", lacking: str = "1.0") -> AtlasRow:
    return AtlasRow(
        "peft",
        partner,
        "name",
        "import peft",
        needs,
        (("1.0", last),),
        ((lacking, lacking),),
        ("peft/x.py:1",),
    )


@pytest.fixture
def table() -> ReleaseTable:
    text = "release 1.0 2025-01-01\nrelease 2.0 2025-02-01\n"
    return parse_release_files({f"{name}.txt": text for name in ("peft", "transformers", "torch")})


def stored(folder: Path, *rows: AtlasRow) -> Path:
    (folder / "gaps").mkdir()
    (folder / "gaps/peft.toml").write_text(gaps_text("peft", rows, "2026-01-01"))
    return folder


def test_rows_about_partners_that_are_not_stored_stay(tmp_path: Path, table: ReleaseTable) -> None:
    old = row("torch", "torch.a")
    folder = stored(tmp_path, old, row("transformers", "transformers.b"))
    read = [row("transformers", "transformers.b"), row("transformers", "transformers.c")]
    assert rows_with_kept(read, folder, "peft", ["torch"], table) == [*read, old]


def test_with_all_packages_stored_the_rows_are_those_that_were_read(
    tmp_path: Path, table: ReleaseTable
) -> None:
    folder = stored(tmp_path, row("torch", "torch.a"))
    assert rows_with_kept([], folder, "peft", [], table) == []


@pytest.mark.parametrize(
    "read",
    [
        [],
        [row("transformers", "transformers.b", last="1.0")],
        [row("transformers", "transformers.b", lacking="2.0")],
        [row("transformers", "transformers.c")],
    ],
)
def test_an_incomplete_store_takes_no_row_away(
    tmp_path: Path, table: ReleaseTable, read: list[AtlasRow]
) -> None:
    """Keep the row of a guard that may ask a package that is not stored: then its line is not read."""
    folder = stored(tmp_path, row("transformers", "transformers.b"))
    with pytest.raises(InputError, match=r"1 rows would be lost .*transformers\.b.*store lacks torch"):
        rows_with_kept(read, folder, "peft", ["torch"], table)


def test_a_row_may_be_divided_or_grow(tmp_path: Path, table: ReleaseTable) -> None:
    folder = stored(tmp_path, row("transformers", "transformers.b"))
    read = [
        row("transformers", "transformers.b", last="1.0")._replace(lacking=(("1.0", "2.0"),)),
        row("transformers", "transformers.b")._replace(releases=(("2.0", "2.0"),)),
    ]
    assert rows_with_kept(read, folder, "peft", ["torch"], table) == read


def test_a_package_without_a_table_has_only_what_was_read(tmp_path: Path, table: ReleaseTable) -> None:
    read = [row("transformers", "transformers.b")]
    assert rows_with_kept(read, tmp_path, "peft", ["torch"], table) == read
