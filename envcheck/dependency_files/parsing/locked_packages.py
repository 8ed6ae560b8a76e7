"""Select the packages for one Python from lock files that cover several environments."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from envcheck.core import markers
from envcheck.core.facts import Fact, Known, normalised
from envcheck.dependency_files import DependencyList, ListedPackage, ReadingContext

PYTHONS = ("3.9", "3.10", "3.11", "3.12", "3.13", "3.14")
"""The Pythons to read a lock for if the caller names none."""

_CONFLICT = re.compile(r"extra\s*(==|!=)\s*'(?:extra|group)-\d+-(?P<of>[\w-]+?)'")


def pythons_to_read(context: ReadingContext, requires: str) -> tuple[str, ...]:
    """Return the Pythons to read a lock for: the one given, else all that `requires` admits."""
    from envcheck.core.facts import Tri
    from envcheck.core.versions import satisfies

    if context.python:
        return (context.python,)
    admitted = [one for one in PYTHONS if satisfies(f"{one}.99", requires, unknown=Tri.YES) is not Tri.NO]
    return tuple(admitted) or PYTHONS[-1:]


def applies(marker: str, context: ReadingContext, python: str, selected: Iterable[str] = ()) -> bool:
    """Return whether a marker includes a package for a Python on Linux.

    `selected` are the members of conflict sets that are installed, each as `project-extra`.
    """
    if not marker:
        return True
    chosen = frozenset(selected)

    def answer(found: re.Match[str]) -> str:
        return (
            "python_version > '0'"
            if (found["of"] in chosen) == (found[1] == "==")
            else "python_version < '0'"
        )

    environment = markers.environment(python, architecture=context.arch)
    return markers.matches(_CONFLICT.sub(answer, marker), environment) is not False


def with_sources(lists: Iterable[DependencyList], rows: Iterable[Any]) -> tuple[DependencyList, ...]:
    """Return the lists, each with the packages that the rows of a lock take from a repository, as a fact."""
    taken = {
        (normalised(row["name"]), str(row.get("version", "")))
        for row in rows
        if isinstance(row, Mapping) and isinstance(row.get("name"), str) and _is_from_repository(row)
    }
    return tuple(_with_source(one, taken) for one in lists)


def _with_source(listed: DependencyList, taken: Collection[tuple[str, str]]) -> DependencyList:
    here = [line for line in listed.lines if (line.name, line.version) in taken]
    if not here:
        return listed
    fact = Fact("packages.from_source", Known(tuple(sorted(line.name for line in here))), here[0].place)
    return listed._replace(facts=(*listed.facts, fact))


def _is_from_repository(row: Mapping[str, Any]) -> bool:
    """Return whether a row names a repository, as uv, poetry, pdm and PEP 751 write it."""
    source = row.get("source")
    return (
        "git" in row
        or "vcs" in row
        or (isinstance(source, Mapping) and ("git" in source or source.get("type") == "git"))
    )


def lists_by_python(
    name: str, found: Mapping[str, Sequence[ListedPackage]], label: str = ""
) -> tuple[DependencyList, ...]:
    """Return one list for each distinct set of packages; `found` maps each Python to its packages."""
    by_content: dict[tuple[tuple[str, str], ...], list[str]] = {}
    packages: dict[tuple[tuple[str, str], ...], Sequence[ListedPackage]] = {}
    for python, rows in found.items():
        content = tuple((one.name, one.version) for one in rows)
        by_content.setdefault(content, []).append(python)
        packages.setdefault(content, rows)
    several = len(by_content) > 1
    lists = []
    for content, pythons in by_content.items():
        of_python = f"Python {pythons[0]}" if len(pythons) == 1 else f"Python {pythons[0]} to {pythons[-1]}"
        words = ", ".join(filter(None, (label, of_python if several else "")))
        title = f"{name} ({words})" if words else name
        lists.append(DependencyList(title, tuple(packages[content]), whole=True, pythons=tuple(pythons)))
    return tuple(lists)
