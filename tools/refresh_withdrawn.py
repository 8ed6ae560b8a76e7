"""Propose a diff of compat/tables/withdrawn.toml: `python tools/refresh_withdrawn.py [PACKAGE…] [--write]`.

Reads which releases were yanked on the index of the user's pip configuration, and the reason that their
authors gave: the pages of the packages of which compat/atlas/releases or the table names such a release, or
of those named. A release counts if all its files are yanked. Prints a unified diff; changes nothing without
`--write`.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from packaging.utils import canonicalize_name

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from model_type_table import refreshed
from refresh_releases import by_release
from table_diff import propose

from envcheck.commands.measured_cells import toml_value
from envcheck.core.errors import ExamineError
from envcheck.host.machine import Host
from envcheck.resolver_backends.index.pages import ListedFile
from envcheck.resolver_backends.index.reader import IndexReader
from envcheck.resolver_backends.index.redaction import one_line

COMPAT = Path(__file__).resolve().parent.parent / "compat"

MOST_OF_A_REASON = 160
"""Characters of a reason that are kept."""


def packages_to_read(releases: Path, table: str) -> list[str]:
    """Return the packages of which the atlas or the table names a withdrawn release."""
    marked = {
        path.stem
        for path in releases.glob("*.txt")
        if re.search(r"^\S+ .*\byanked\b", path.read_text("utf-8"), re.MULTILINE)
    }
    return sorted(marked | {row["package"] for row in tomllib.loads(table).get("withdrawn", ())})


def withdrawn(package: str, files: Iterable[ListedFile]) -> Iterator[dict[str, object]]:
    """Yield a row for each final release of a package whose files are all yanked, oldest first."""
    for version, own in by_release(package, files).items():
        if not all(file.yanked for file in own):
            continue
        reasons = [one_line(file.reason)[:MOST_OF_A_REASON].strip() for file in own]
        reason = next((each for each in reasons if each), "")
        row: dict[str, object] = {"package": package, "version": str(version)}
        if reason:
            row["reason"] = reason
        yield row


def refreshed_table(before: str, found: Mapping[str, Sequence[dict[str, object]]]) -> str:
    """Return the table with the rows of the packages that were read; those of others stay."""
    kept = [row for row in tomllib.loads(before).get("withdrawn", ()) if row["package"] not in found]
    rows = sorted(
        [*kept, *(row for own in found.values() for row in own)], key=lambda row: str(row["package"])
    )
    return refreshed(before, "withdrawn", (f"  {toml_value(row)}," for row in rows))


def main(arguments: Sequence[str]) -> int:
    """Print the diff of the table; return 0 if nothing differs or it was written, 3 without the index."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", nargs="*", help="packages to read; default: those with such a release")
    parser.add_argument("--table", type=Path, default=COMPAT / "tables/withdrawn.toml")
    parser.add_argument("--write", action="store_true", help="apply the diff")
    parser.add_argument("--deadline", type=float, default=600.0, metavar="SECONDS", help="for the whole run")
    options = parser.parse_args(arguments)
    before = options.table.read_text("utf-8") if options.table.exists() else ""
    names: list[str] = [canonicalize_name(each) for each in options.package]
    names = names or packages_to_read(COMPAT / "atlas/releases", before)
    try:
        reader = IndexReader(Host(), options.deadline)
        found = {name: [*withdrawn(name, reader.files(name))] for name in names}
    except ExamineError as error:
        print(f"refresh_withdrawn: {error}", file=sys.stderr)
        return 3
    return propose(options.table, before, refreshed_table(before, found), write=options.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
