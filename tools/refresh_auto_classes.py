"""Propose a diff of compat/auto_classes/transformers.txt.

`python tools/refresh_auto_classes.py --store FOLDER` reads which configurations the Auto classes of
transformers load, in every release from 4.30 on that `envcheck matrix harvest` stored. Prints a unified diff;
changes nothing without `--write`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from packaging.version import Version
from table_diff import propose

from envcheck.atlas.auto_classes import auto_classes
from envcheck.atlas.release import PublishedRelease
from envcheck.commands.harvest.store import ReleaseStore
from envcheck.core.errors import EnvcheckError
from envcheck.knowledge.auto_classes import auto_classes_text

TABLE = Path(__file__).resolve().parent.parent / "compat/auto_classes/transformers.txt"
SINCE = Version("4.30")
FOLDER = "transformers/models/auto/"
CONFIGURATIONS = ("auto_mappings.py", "configuration_auto.py")
"""The files that define the table of configurations; from 5.6 on, the second extends that of the first."""


def classes_of(release: PublishedRelease) -> dict[str, frozenset[str]]:
    """Return the configurations that each Auto class of a release loads.

    Raises:
        ValueError: a table is written in a way that is not read.
    """
    names = [FOLDER + each for each in CONFIGURATIONS if FOLDER + each in release.files.names()]
    texts = [release.files.read(each).decode() for each in names]
    return auto_classes(release.files.read(f"{FOLDER}modeling_auto.py").decode(), texts)


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(description="Propose a diff of compat/auto_classes/transformers.txt.")
    parser.add_argument("--store", type=Path, required=True, help="the folder of `envcheck matrix harvest`")
    parser.add_argument("--write", action="store_true", help="change the table")
    parser.add_argument("--table", type=Path, default=TABLE, help="the table to compare with")
    options = parser.parse_args(arguments)
    store = ReleaseStore(options.store)
    loaded = {}
    for version in store.versions("transformers"):
        if Version(version) < SINCE:
            continue
        try:
            loaded[version] = classes_of(store.open("transformers", version))
        except (EnvcheckError, KeyError, SyntaxError, ValueError) as error:
            print(f"transformers {version}: {error}", file=sys.stderr)
            return 3
    if not loaded:
        print(f"{options.store}: expected releases of transformers from {SINCE} on", file=sys.stderr)
        return 3
    before = options.table.read_text("utf-8") if options.table.is_file() else ""
    return propose(options.table, before, auto_classes_text(loaded), write=options.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
