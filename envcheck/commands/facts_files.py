"""Read the files of `--facts`: facts files, and pasted output of nvidia-smi, pip list, conda list and so on.

A file that is neither TOML nor JSON is read as output of the tools that are also recognised in logs, and as a
list of versions that a person wrote. Several files make one inventory; if two of them state a fact
differently, that is an error.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from envcheck.core import facts_file, parsing, versions
from envcheck.core.decoding import decode_text
from envcheck.core.errors import InputError
from envcheck.core.facts import (
    Fact,
    Inventory,
    Known,
    Vocabulary,
    normalised,
    package_key,
    package_name,
)
from envcheck.host.files import argument_name, read_argument

if TYPE_CHECKING:
    from envcheck.logs import environment

Tables = Mapping[str, Sequence[Mapping[str, Any]]]

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
    """Return the inventory of a file, a pipe or standard input (`-`): facts, or the output of a known tool.

    Raises:
        InputError: it cannot be read, or has a mistake; with its place.
    """
    text = decode_text(read_argument(file))
    file = argument_name(file)
    if text.lstrip().startswith("[") and (listed := _json_list(text, file)) is not None:
        return listed
    try:
        return facts_file.load(_parsed(text, file), file, keys)
    except InputError:
        if file.endswith(_SUFFIXES) or text.lstrip().startswith("{"):
            raise
        pasted = _conda_list(text, file) or _pasted(text, file, keys) or _frozen(text, file)
        if pasted is None:
            raise InputError(file, _NOT_KNOWN) from None
        return pasted


_NOT_KNOWN = (
    "expected a facts file (TOML or JSON), what nvidia-smi, pip list, pip freeze or conda list prints, or a "
    "list of versions; found none of them"
)


def _json_list(text: str, file: str) -> Inventory | None:
    """Return the packages in the output of `pip list --format json`; None for any other text."""
    try:
        rows = parsing.parse_json(text, file)
    except InputError:
        return None
    facts = {}
    for row in rows:
        name, version = (row.get("name"), row.get("version")) if isinstance(row, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(version, str) or versions.parse(version) is None:
            return None
        key = package_key(normalised(name))
        facts[key] = Fact(key, Known(version), file)
    return Inventory(facts, complete=frozenset({"pkg"})) if facts else None


def _conda_list(text: str, file: str) -> Inventory | None:
    """Return the packages that `conda list --export` or `--explicit` printed; None for any other text."""
    from envcheck.dependency_files import ReadingContext, conda_list, inventory  # most starts read no list

    if not conda_list.is_conda_list(text):
        return None
    context = ReadingContext(lambda name, _: (name, ""), {})
    (listed,) = conda_list.read(text, file, context)
    return inventory(listed)


_PIN = re.compile(r"([A-Za-z][\w.-]*)==(\d[\w.+!]*)")
_FROZEN = re.compile(r"[A-Za-z][\w.-]*(?:==\S+| @ \S+)|-e \S+|#.*|")
"""Each line that `pip freeze` prints."""


def _frozen(text: str, file: str) -> Inventory | None:
    """Return the pins of a text that consists of lines of `pip freeze`; None for any other text."""
    lines = [line.strip() for line in text.splitlines()]
    facts = {}
    for number, line in enumerate(lines, 1):
        if not _FROZEN.fullmatch(line):
            return None
        if found := _PIN.fullmatch(line):
            key = package_key(normalised(found[1]))
            facts[key] = Fact(key, Known(found[2]), f"{file}:{number}")
    return Inventory(facts) if facts else None


def _parsed(text: str, file: str) -> Any:
    if text.lstrip().startswith(("{", "//", "/*")):
        from envcheck.training_config.readers import json_text  # most starts read no facts file

        return json_text.loads(text, file)
    return parsing.parse_toml(text, file)


def _pasted(text: str, file: str, keys: Vocabulary) -> Inventory | None:
    """Return the facts that the output of tools holds, or None if it holds none."""
    from envcheck.commands.loading import read_only_tree  # the tables on logs are in the whole tree only
    from envcheck.logs import environment
    from envcheck.logs.line_format import plain

    tables = read_only_tree()["tables"]
    text = plain(text.encode())
    printed = list(environment.facts(text, 1, tables, keys))
    read = environment.inventory([*printed, *_written(text, tables, {each.key for each in printed})])
    if not read.facts and not read.devices:
        return None
    located = [_located(_of_cpu_build(fact, text), file) for fact in read.facts.values()]
    devices = tuple({key: _located(fact, file) for key, fact in one.items()} for one in read.devices)
    whole = frozenset({"pkg"}) if environment.lists_all_packages(text, tables) else frozenset()
    return Inventory({fact.key: fact for fact in located}, devices, whole)


def _written(text: str, tables: Tables, printed: Collection[str]) -> Iterator[environment.Printed]:
    """Yield what people list (`torch 2.5.1, peft 0.13.2`) of packages that rules know, unless a tool did."""
    from envcheck.commands.loading import knowledge
    from envcheck.logs.environment import Printed
    from envcheck.logs.stated_versions import list_forms, written_versions
    from envcheck.rules.clauses import keys_in

    matrix = knowledge()
    known = {key for rule in matrix.rules for key in keys_in(rule)}
    known |= {package_key(package) for package in matrix.atlas().releases}
    for key, version, line in written_versions(text, list_forms(tables)):
        if key in known and key not in printed and versions.parse(version) is not None:
            yield Printed(key, version, None, line + 1)


_CONDA_CPU_TORCH = re.compile(r"^pytorch +\S+ +(?:py3\.?\d+_cpu|cpu_)", re.MULTILINE)


def _of_cpu_build(fact: Fact, text: str) -> Fact:
    """Return torch's version with the label of a build without CUDA if `conda list` names such a build."""
    if fact.key == "pkg.torch" and fact.value and _CONDA_CPU_TORCH.search(text):
        return fact._replace(reading=Known(f"{fact.value}+cpu"))
    return fact


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
