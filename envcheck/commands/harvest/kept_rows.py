"""Keep the rows of a table that a store with some packages of the atlas cannot read again.

A curator who adds one package harvests it and its partners, not the 18 GB of libraries of all others. Rows
about partners that are not stored stay as they are. Other rows may only come: a guard may ask a function of a
package that is not stored, and then its line is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from envcheck.core.errors import InputError
from envcheck.core.rules import AtlasRow
from envcheck.host.files import folder_texts
from envcheck.knowledge.atlas import read_atlas
from envcheck.knowledge.release_metadata import ReleaseTable
from envcheck.rules.atlas import in_spans

_SHOWN = 5


def rows_with_kept(
    rows: Sequence[AtlasRow], folder: Path, package: str, missing: Sequence[str], table: ReleaseTable
) -> list[AtlasRow]:
    """Return the rows that were read, and those of the table in a folder about partners that are not stored.

    `missing` are the packages of the atlas that are not stored; if there are none, all rows were read.

    Raises:
        InputError: what the table says of a stored partner was not read again.
    """
    if not missing:
        return [*rows]
    name = f"gaps/{package}.toml"
    text = folder_texts(folder, ".toml").get(name)
    partners = read_atlas({name: text}, {}).rows[package] if text is not None else {}
    before = [row for found in partners.values() for row in found]
    lost = [
        f"{row.entry}: {row.needs}"
        for row in before
        if row.partner not in missing and _pairs(row, table) - _all_pairs(row, rows, table)
    ]
    if lost:
        shown = "; ".join(lost[:_SHOWN])
        raise InputError(
            str(folder / name),
            f"{len(lost)} rows would be lost ({shown}); the store lacks {', '.join(missing[:_SHOWN])}"
            f"{' and others' if len(missing) > _SHOWN else ''}: harvest these first, or move the table away",
        )
    return [*rows, *(row for row in before if row.partner in missing)]


def _all_pairs(row: AtlasRow, rows: Sequence[AtlasRow], table: ReleaseTable) -> set[tuple[str, str]]:
    """Return the pairs of releases of all rows that say the same as this one."""
    same = (each for each in rows if _said(each) == _said(row))
    return {pair for each in same for pair in _pairs(each, table)}


def _said(row: AtlasRow) -> tuple[str, str, str, str]:
    return row.partner, row.kind, row.entry, row.needs


def _pairs(row: AtlasRow, table: ReleaseTable) -> set[tuple[str, str]]:
    return {
        (own, other)
        for own in _within(row.package, row.releases, table)
        for other in _within(row.partner, row.lacking, table)
    }


def _within(package: str, spans: Sequence[tuple[str, str]], table: ReleaseTable) -> Iterator[str]:
    return (each for each in table.versions(package, candidates=True) if in_spans(each, spans))
