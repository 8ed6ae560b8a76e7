"""Write a table of what holds for model types of transformers, by release. Shared by the tools that do so."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from table_diff import propose, read_up_to

from envcheck.commands.harvest.store import ReleaseStore

Columns = Mapping[str, Mapping[str, Sequence[str]]]
"""By column and model type, the releases for which the column holds."""

TABLES = Path(__file__).resolve().parent.parent / "compat/tables"


def bounds(holding: Sequence[str], releases: Sequence[str]) -> list[str]:
    """Return releases as bounds, one for each run of consecutive releases.

    >>> bounds(["1.0", "1.1"], ["1.0", "1.1", "1.2", "1.3"])
    ['>=1.0,<1.2']
    """
    place = {version: number for number, version in enumerate(releases)}
    runs: list[list[int]] = []
    for number in sorted(place[version] for version in holding):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return [
        f">={releases[first]}" + (f",<{releases[last + 1]}" if last + 1 < len(releases) else "")
        for first, last in runs
    ]


def rows(found: Columns, releases: Sequence[str]) -> Iterator[str]:
    """Yield one line of the table for each model type for which some column holds in some release."""
    for model_type in sorted({model_type for by_type in found.values() for model_type in by_type}):
        fields = [f'model_type = "{model_type}"']
        for name, by_type in found.items():
            if holding := by_type.get(model_type):
                written = ", ".join(f'"{bound}"' for bound in bounds(holding, releases))
                fields.append(f"{name} = [{written}]")
        yield f"  {{ {', '.join(fields)} }},"


def refreshed(text: str, name: str, lines: Iterable[str], newest: str = "") -> str:
    """Return the table with its rows replaced; the comments above them stay.

    If `newest` is given, the comment names it as the newest release that was read.
    """
    head = re.split(rf"^{name} = \[$", text, maxsplit=1, flags=re.MULTILINE)[0].rstrip("\n")
    table = [read_up_to(head, newest) if newest else head, "", f"{name} = [", *lines, "]"]
    return "\n".join(table).lstrip("\n") + "\n"


def run(
    name: str,
    description: str | None,
    read: Callable[[ReleaseStore], tuple[Columns, Sequence[str]]],
    arguments: Sequence[str],
) -> int:
    """Read the columns of the table `name` from a store and print the diff; write it if asked.

    Returns the exit code: 0 if the diff is empty or was written, 1 if not.
    """
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", type=Path, required=True, help="the folder that `matrix harvest` filled")
    parser.add_argument("--table", type=Path, default=TABLES / f"{name}.toml")
    parser.add_argument("--write", action="store_true", help="apply the diff")
    options = parser.parse_args(arguments)
    before = options.table.read_text("utf-8") if options.table.exists() else ""
    found, releases = read(ReleaseStore(options.store))
    after = refreshed(before, name, rows(found, releases), releases[-1])
    return propose(options.table, before, after, write=options.write)
