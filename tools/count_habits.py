"""Count how commonly public training configurations set each training fact, to order findings.

    python tools/count_habits.py FOLDER [--write]

FOLDER holds repositories as `OWNER+NAME/`. Their launch scripts and YAML files are read as `--train` reads
them. Each repository has the same weight, because one that ships a hundred variants of a recipe trains no
more often. `--write` replaces compat/tables/habits.toml.
"""

from __future__ import annotations

import argparse
import os
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from envcheck.commands import loading, training_files  # noqa: E402 - the path comes first
from envcheck.core.errors import EnvcheckError  # noqa: E402
from envcheck.core.facts import Inventory  # noqa: E402
from envcheck.core.rules import Matrix  # noqa: E402
from envcheck.rules import derive  # noqa: E402

TABLE = ROOT / "compat/tables/habits.toml"
SUFFIXES = (".sh", ".slurm", ".yaml", ".yml")
MOST_FILES = 150  # of one repository
FEWEST_FACTS = 6  # of a file that is taken for a training configuration
LEAST_SHARE = 0.002
SKIPPED = ("test", "docker", ".github", "docs/", "deploy", "infer", "eval", "sample", "merge", "export")


def training_scripts(folder: Path) -> Iterator[Path]:
    """Yield the files of a repository that may start a training, at most MOST_FILES, spread evenly."""
    found = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix in SUFFIXES and not any(word in str(path.relative_to(folder)) for word in SKIPPED)
    ]
    step = max(1, -(-len(found) // MOST_FILES))
    yield from found[::step]


def facts_of(path: Path, folder: Path, matrix: Matrix) -> Mapping[str, str]:
    """Return the training facts of a file as lower-case texts, or an empty dict if it does not train.

    A file counts as a training configuration if at least FEWEST_FACTS facts are known.
    """
    os.chdir(folder)
    try:
        read = training_files.configured(
            [str(path.relative_to(folder))], matrix.tables.get("argument", []), {}
        )
    except EnvcheckError:
        return {}
    derived = derive.derive(Inventory().with_facts(read.facts), matrix)
    known = {
        key: str(fact.value).lower()
        for key, fact in derived.facts.items()
        if key.startswith("train.") and fact.value is not None
    }
    return known if len(known) >= FEWEST_FACTS else {}


def shares_of(folders: list[Path], matrix: Matrix) -> tuple[dict[str, dict[str, float]], dict[str, int]]:
    """Return the share of each value of each fact, and the number of counted files of each repository."""
    asked = {clause.key for rule in matrix.rules for table in (*rule.when, rule.require) for clause in table}
    shares: dict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    read = {folder: _configurations(folder, matrix) for folder in folders}
    used = {folder: found for folder, found in read.items() if found}
    for found in used.values():
        for facts in found:
            for key in asked & facts.keys():
                shares[key][facts[key]] += 1 / len(found) / len(used)
    kept = {
        key: {value: round(share, 3) for value, share in sorted(values.items()) if share >= LEAST_SHARE}
        for key, values in sorted(shares.items())
    }
    counts = {folder.name: len(found) for folder, found in used.items()}
    return {key: values for key, values in kept.items() if values}, counts


def _configurations(folder: Path, matrix: Matrix) -> list[Mapping[str, str]]:
    return [facts for path in training_scripts(folder) if (facts := facts_of(path, folder, matrix))]


def table_text(shares: Mapping[str, Mapping[str, float]], counts: Mapping[str, int]) -> str:
    """Return the text of the table."""
    names = ", ".join(f"{name.replace('+', '/')} ({count})" for name, count in counts.items())
    lines = [
        "# How commonly public training configurations set a training fact: it sorts conditional findings.",
        "# Written by tools/count_habits.py. `shares` are of all files; repositories have the same weight.",
        "# Files that were counted:",
        *(f"# {line}" for line in textwrap.wrap(names, 120)),
    ]
    for key, values in shares.items():
        inner = ", ".join(f'"{value}" = {share}' for value, share in values.items())
        lines += ["", "[[habit]]", f'key = "{key}"', f"shares = {{ {inner} }}"]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Count the configurations of a folder's repositories."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--write", action="store_true", help="replace the table instead of printing it")
    options = parser.parse_args()
    folders = sorted(path.resolve() for path in options.folder.iterdir() if path.is_dir())
    text = table_text(*shares_of(folders, loading.knowledge()))
    if options.write:
        TABLE.write_text(text)
    else:
        print(text, end="")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
