"""Write compat/tables/extras.toml: what the extras that targets name require, by release.

`python tools/refresh_extras.py --store FOLDER` reads the metadata that `envcheck matrix harvest` stored and
prints the table; `--write` writes it. The atlas contains only the requirements of packages without extras,
and a resolver states those of an extra one release at a time.

A requirement whose marker depends on the Python version or the platform is left out: the resolver reads it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from envcheck.commands import loading
from envcheck.commands.harvest.store import ReleaseStore
from envcheck.commands.measured_cells import toml_value

FILE = Path(__file__).resolve().parent.parent / "compat/tables/extras.toml"

_HEAD = """\
# What the extras that targets name require, by release. Written by tools/refresh_extras.py from the METADATA
# of the published archives. Requirements with a marker on the Python version or the platform are left out.
"""


def extras_of_targets() -> list[tuple[str, str]]:
    """Return each package and extra that a target names, sorted."""
    targets = loading.knowledge().targets.values()
    texts = (Requirement(text) for target in targets for text in target.extras)
    return sorted({(each.name, extra) for each in texts for extra in each.extras})


def requires_of_extra(package: str, lines: Iterable[str], extra: str) -> tuple[str, ...]:
    """Return the requirements on other packages that an extra adds on every machine, without markers."""
    found = set()
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        if requirement.name != package and str(requirement.marker or "") == f'extra == "{extra}"':
            requirement.marker = None
            found.add(str(requirement))
    return tuple(sorted(found))


def rows(store: ReleaseStore) -> Iterator[dict[str, object]]:
    """Yield a row for each run of releases whose extra requires the same, oldest first."""
    for package, extra in extras_of_targets():
        runs: list[tuple[list[str], tuple[str, ...]]] = []
        for release in store.releases(package):
            requires = requires_of_extra(package, release.requires, extra)
            if runs and runs[-1][1] == requires:
                runs[-1][0].append(release.version)
            else:
                runs.append(([release.version], requires))
        for versions, requires in runs:
            if requires:
                yield {
                    "package": package, "extra": extra, "versions": versions, "requires": [*requires]
                }  # fmt: skip


def text_of(table: Iterable[dict[str, object]]) -> str:
    """Return the table as TOML, one row a line."""
    lines = (f"    {toml_value(row)},\n" for row in table)
    return f"{_HEAD}extra = [\n{''.join(lines)}]\n"


def main(words: list[str]) -> None:
    """Print or write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--store", required=True, metavar="FOLDER", help="the folder of matrix harvest")
    parser.add_argument("--write", action="store_true", help="write the table instead of printing it")
    given = parser.parse_args(words)
    text = text_of(rows(ReleaseStore(Path(given.store))))
    if given.write:
        FILE.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main(sys.argv[1:])
