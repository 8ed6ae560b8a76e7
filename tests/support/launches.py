"""Training files that tests write, and the facts that they state."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from envcheck.commands import loading
from envcheck.commands.training_files import configured

SHARED = loading.source_tree()["tables"]["argument"]


def known_facts(folder: Path, files: Mapping[str, str]) -> dict[str, object]:
    """Write the files, and return the known facts that the first of them states, without `train.`."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = configured([str(folder / next(iter(files)))], SHARED, {})
    return {fact.key.removeprefix("train."): fact.value for fact in found.facts if fact.value is not None}
