"""Propose a diff of compat/hub_models/hub.txt.

`python tools/refresh_hub_models.py FOLDER` reads wheels that `pip download --no-deps` put into a folder: of
transformers and Unsloth the newest, of ms-swift several, since newer ones drop models. Prints a unified diff;
changes nothing without `--write`.
"""

from __future__ import annotations

import argparse
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from table_diff import propose

from envcheck.atlas.auto_classes import types_by_class
from envcheck.atlas.hub_models import copies, registered_architectures, types_of_names
from envcheck.knowledge.hub_models import hub_models_text

TABLE = Path(__file__).resolve().parent.parent / "compat/hub_models/hub.txt"
READING = TABLE.with_name("reading.toml")
REGISTRY = re.compile(r"swift/(llm/)?model/\S*\.py")
COPIES = re.compile(r"unsloth/models/mapper\.py")
AUTO = re.compile(r"transformers/models/auto/modeling_auto\.py")


class NameForms:
    """Hold what is known of names beyond the registries: compat/hub_models/reading.toml."""

    def __init__(self, text: str) -> None:
        """Read the file.

        Raises:
            ValueError: it is no TOML, or a row lacks a field.
        """
        rows = tomllib.loads(text)
        try:
            self._left_out = [re.compile(row["names"]) for row in rows["own_type"]]
            self._unsaid = [re.compile(row["names"]) for row in rows["unsaid"]]
            self._quantized = [(re.compile(row["names"]), str(row["word"])) for row in rows["quantized"]]
        except (KeyError, re.error) as error:
            raise ValueError(f"{READING.name}: {error}") from None

    def quantized(self, name: str) -> str:
        """Return the word for how the weights of a model are quantised, or an empty text."""
        return next((word for form, word in self._quantized if form.search(name)), "")

    def is_sure(self, name: str) -> bool:
        """Return whether the registries say of this name what its config.json says."""
        if any(form.search(name) for form in self._left_out):
            return False
        return bool(self.quantized(name)) or not any(form.search(name) for form in self._unsaid)


def members(wheel: Path, name: re.Pattern[str]) -> Iterator[str]:
    """Yield the texts of the files of a wheel that have such a name."""
    with zipfile.ZipFile(wheel) as archive:
        for each in archive.namelist():
            if name.fullmatch(each):
                yield archive.read(each).decode("utf-8")


def read_types(wheels: Sequence[Path]) -> dict[str, str]:
    """Return the type of each model that the registries in these wheels name.

    Raises:
        ValueError: one of the three packages is missing, or a table is written in a way that is not read.
    """
    registered = [
        each
        for wheel in wheels
        for text in members(wheel, REGISTRY)
        for each in registered_architectures(text)
    ]
    copied = [each for wheel in wheels for text in members(wheel, COPIES) for each in copies(text)]
    auto = [text for wheel in wheels for text in members(wheel, AUTO)]
    if not (registered and copied and auto):
        raise ValueError("expected wheels of ms-swift, unsloth and transformers in the folder")
    return types_of_names(registered, copied, types_by_class(auto[-1]))


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(description="Propose a diff of compat/hub_models/hub.txt.")
    parser.add_argument("folder", type=Path, help="wheels of ms-swift, unsloth and transformers")
    parser.add_argument("--write", action="store_true", help="change the table")
    parser.add_argument("--table", type=Path, default=TABLE, help="the table to compare with")
    options = parser.parse_args(arguments)
    wheels = sorted(options.folder.glob("*.whl"))
    try:
        forms = NameForms(READING.read_text("utf-8"))
        found = read_types(wheels)
    except (OSError, zipfile.BadZipFile, SyntaxError, ValueError) as error:
        print(error, file=sys.stderr)
        return 3
    types = {name: model_type for name, model_type in found.items() if forms.is_sure(name)}
    quantized = {name: word for name in types if (word := forms.quantized(name))}
    read = [" ".join(wheel.name.split("-")[:2]).replace("_", "-") for wheel in wheels]
    before = options.table.read_text("utf-8") if options.table.exists() else ""
    after = hub_models_text(types, quantized, read)
    return propose(options.table, before, after, write=options.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
