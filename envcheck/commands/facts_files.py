"""Read the files of `--facts`: facts files, and pasted output of nvidia-smi, pip list, conda list and so on.

A file that is neither TOML nor JSON is read as output of the tools that are also recognised in logs. Several
files make one inventory; if two of them state a fact differently, that is an error.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from envcheck.core import facts_file
from envcheck.core.errors import InputError
from envcheck.core.facts import Fact, Inventory, Vocabulary, package_name
from envcheck.host.files import read_file

_SUFFIXES = (".toml", ".json")
"""File names of facts files: mistakes in them are reported as those of a facts file."""


def read_facts_files(files: Sequence[str], keys: Vocabulary) -> Inventory:
    """Return the inventory of one or more files.

    Raises:
        InputError: a file cannot be read, holds no facts, has a mistake, or contradicts another one.
    """
    merged = Inventory()
    for file in files:
        merged = _merged(merged, read_facts_file(file, keys), file)
    return merged


def read_facts_file(file: str, keys: Vocabulary) -> Inventory:
    """Return the inventory of a file: a facts file, or the output of a known tool.

    Raises:
        InputError: it cannot be read, or has a mistake; with its place.
    """
    text = read_file(Path(file)).decode("utf-8", "replace")
    try:
        return facts_file.load(_parsed(text, file), file, keys)
    except InputError:
        if file.endswith(_SUFFIXES) or text.lstrip().startswith("{"):
            raise
        pasted = _pasted(text, file, keys)
        if pasted is None:
            raise
        return pasted


def _parsed(text: str, file: str) -> Any:
    if text.lstrip().startswith(("{", "//", "/*")):
        from envcheck.training_config.readers import json_text  # most starts read no facts file

        return json_text.loads(text, file)
    from envcheck.core import parsing

    return parsing.parse_toml(text, file)


def _pasted(text: str, file: str, keys: Vocabulary) -> Inventory | None:
    """Return the facts that the output of tools holds, or None if it holds none."""
    from envcheck.commands.examine import source_tree  # the tables on logs are in the whole tree only
    from envcheck.logs import environment
    from envcheck.logs.line_format import plain

    tables = source_tree()["tables"]
    text = plain(text.encode())
    read = environment.inventory(environment.facts(text, 1, tables, keys))
    if not read.facts and not read.devices:
        return None
    located = [_located(fact, file) for fact in read.facts.values()]
    devices = tuple({key: _located(fact, file) for key, fact in one.items()} for one in read.devices)
    whole = frozenset({"pkg"}) if environment.lists_all_packages(text, tables) else frozenset()
    return Inventory({fact.key: fact for fact in located}, devices, whole)


def _located(fact: Fact, file: str) -> Fact:
    line = re.search(r"\d+$", fact.source)
    return fact._replace(source=f"{file}:{line[0]}" if line else file)


def _merged(one: Inventory, other: Inventory, file: str) -> Inventory:
    for key, fact in other.facts.items():
        before = one.facts.get(key)
        if before is not None and fact.value is not None and before.value not in (None, fact.value):
            name = package_name(key) if key.startswith("pkg.") else key
            raise InputError(file, f"{name} is {fact.value} here, and {before.value} in {before.source}")
    if one.devices and other.devices and _names(one) != _names(other):
        raise InputError(file, "names other GPUs than the previous file; give the facts of one machine")
    facts: Mapping[str, Fact] = {**other.facts, **one.facts}
    devices = tuple({**theirs, **mine} for mine, theirs in zip(one.devices, other.devices, strict=False)) or (
        one.devices or other.devices
    )
    return Inventory(facts, devices, one.complete | other.complete, {**other.unread, **one.unread})


def _names(inventory: Inventory) -> list[object]:
    return [device["gpu.name"].value if "gpu.name" in device else None for device in inventory.devices]
