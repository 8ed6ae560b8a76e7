"""Releases of packages in compat/tables as typed rows, for the searches and the pages.

Only what runs after start-up reads these; `core.tables` has the rows that every start may need.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envcheck.core.records import NamedTuple
from envcheck.core.rules import Matrix


class ReleaseRow(NamedTuple):
    """A release of a package, from the table `release`, or from `torch` for torch and its companions.

    `date` is ISO, or empty. `requires` has the bounds by package. `pythons` are those with wheels, such as
    `3.11`; None where the row gives only a range. `sdist` means that there are no wheels.
    """

    package: str
    version: str
    date: str
    requires: Mapping[str, str]
    extras: Mapping[str, Mapping[str, str]]
    requires_python: str
    pythons: tuple[str, ...] | None
    yanked: bool
    sdist: bool

    @classmethod
    def of(cls, row: Mapping[str, Any], package: str = "", version: str = "") -> ReleaseRow:
        """Read a row; `package` and `version`, if given, replace the row's, for other tables."""
        pythons = row.get("python")
        return cls(
            package=package or str(row["package"]),
            version=version or str(row["version"]),
            date=str(row.get("date", "")),
            requires=row.get("requires", {}),
            extras=row.get("extras", {}),
            requires_python=row.get("requires_python", ""),
            pythons=tuple(pythons) if isinstance(pythons, list) else None,
            yanked=bool(row.get("yanked")),
            sdist=row.get("kinds") == ["sdist"],
        )


def released_with_torch(known: Matrix) -> tuple[str, ...]:
    """Return torch and the packages whose releases belong to one of torch; () without a table of torch."""
    rows = known.tables.get("torch", ())
    beside = (name for name in known.moves_with.get("torch", ()) if any(row.get(name) for row in rows))
    return ("torch", *beside) if rows else ()


def torch_releases(known: Matrix, name: str = "torch") -> Iterator[ReleaseRow]:
    """Yield the releases of torch, or of a package that is released together with it.

    They are in every matrix, while the table `release` may be left out.
    """
    if name not in released_with_torch(known):
        return
    for row in known.tables["torch"]:
        if name == "torch":
            yield ReleaseRow.of(row, name)
        elif row.get(name):
            yield ReleaseRow.of(row, name, str(row[name]))


def all_releases(known: Matrix) -> Iterator[ReleaseRow]:
    """Yield the releases of torch, then those of the table `release`."""
    yield from torch_releases(known)
    yield from map(ReleaseRow.of, known.tables.get("release", []))
