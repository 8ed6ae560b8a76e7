"""Propose a diff of compat/tables/dynamo.toml: `refresh_dynamo.py --store FOLDER [--write]`.

Reads, in every release of torch that `envcheck matrix harvest` stored in FOLDER, the first Python on which
Dynamo refuses to run (`check_if_dynamo_supported` in torch/_dynamo/eval_frame.py). The files are parsed and
never run. Prints a unified diff; changes nothing without `--write`.
"""

from __future__ import annotations

import argparse
import ast
import sys
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.version import Version

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from model_type_table import TABLES, bounds, refreshed
from table_diff import propose

from envcheck.commands.harvest.store import ReleaseStore

FILE = "torch/_dynamo/eval_frame.py"


def first_refused(text: str) -> str | None:
    """Return the first Python that the module refuses, such as 3.14; None if it asks for none."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and node.name == "check_if_dynamo_supported":
            return next((found for branch in node.body if (found := _refused(branch))), None)
    return None


def _refused(branch: ast.stmt) -> str | None:
    match branch:
        case ast.If(
            test=ast.Compare(
                left=ast.Attribute(attr="version_info"),
                ops=[ast.GtE()],
                comparators=[
                    ast.Tuple(elts=[ast.Constant(value=int(major)), ast.Constant(value=int(minor))])
                ],
            ),
            body=[ast.Raise(), *_],
        ):
            return f"{major}.{minor}"
        case ast.If(orelse=[ast.If() as further]):  # Windows is asked first in older releases
            return _refused(further)
        case _:
            return None


def releases_of(store: ReleaseStore) -> list[str]:
    """Return the releases of torch that are stored, oldest first, without pre-releases."""
    return [each for each in store.versions("torch") if not Version(each).is_prerelease]


def rows(store: ReleaseStore, releases: Sequence[str]) -> Iterator[str]:
    """Yield one line for each run of releases that refuse the same Pythons, oldest first."""
    refused: dict[str, list[str]] = {}
    for version in releases:
        with zipfile.ZipFile(store.path("torch", version)) as archive:
            text = archive.read(FILE).decode("utf-8") if FILE in archive.namelist() else ""
        if found := first_refused(text):
            refused.setdefault(found, []).append(version)
    for python, holding in refused.items():
        for bound in bounds(holding, releases):
            yield f'  {{ torch = "{bound}", refuses = "{python}" }},'


def main(arguments: Sequence[str]) -> int:
    """Print the diff of the table, and write it if asked; return 0 if nothing differs or it was written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--store", type=Path, required=True, help="the folder that `matrix harvest` filled")
    parser.add_argument("--table", type=Path, default=TABLES / "dynamo.toml")
    parser.add_argument("--write", action="store_true", help="apply the diff")
    options = parser.parse_args(arguments)
    before = options.table.read_text("utf-8") if options.table.exists() else ""
    store = ReleaseStore(options.store)
    releases = releases_of(store)
    after = refreshed(before, "dynamo_python", rows(store, releases), releases[-1])
    return propose(options.table, before, after, write=options.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
