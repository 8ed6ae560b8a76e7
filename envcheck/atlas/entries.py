"""What users import and call of each package whose releases are read: `compat/atlas/entries.toml`.

All readers in a process share one table, because even the evaluation of guards has to know which package the
module `bnb` belongs to. This package reads no files: the caller passes the text to `use_entries` first.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.utils import canonicalize_name

from envcheck.core.errors import InputError
from envcheck.core.parsing import parse_toml

CONSTRUCTING = ("__init__", "__post_init__")
"""The methods that run when an object is made."""

BY_CONSTRUCTOR = "constructor"
"""Stands for the constructor of another package's base class, which calls some methods."""

_ENTRY = re.compile(r"import ([\w.]+)|from ([\w.]+) import (\w+(?:, \w+)*)")
_KEYS = frozenset({"imports", "exclusive", "entries", "calls"})


@dataclass(frozen=True, slots=True)
class PackageEntry:
    """What a user does that imports code of a package.

    Attributes:
        action: as a user writes it, `from trl import SFTTrainer`.
        module: the module that is imported.
        names: the names that are taken from it; a lazily offered name imports its module.

    """

    action: str
    module: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CallEntry:
    """Something that a user calls.

    Attributes:
        path: dotted path of the class or function, `trl.SFTTrainer`.
        methods: further methods that run, each with the call by a user that runs it.

    """

    path: str
    methods: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class StackPackage:
    """One package: import names, entries, and further paths that users call.

    A package without entries is only compared as the partner of others. `exclusive` are those import names
    that no other distribution provides: a release without such a module makes the import fail.
    """

    modules: tuple[str, ...]
    entries: tuple[PackageEntry, ...] = ()
    calls: tuple[str, ...] = ()
    exclusive: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class EntryTable:
    """Packages by normalised name, and the module names that stand for them.

    Attributes:
        packages: by normalised name; the import name of any other package is taken to be its own name.
        methods: patterns of class names, with the methods that a run calls.
        elsewhere: packages that count as absent unless they are known to be installed.
        devices: those of them that bring a device which takes the place of a CUDA device, each with the
            module that it puts into torch.
        by_module: distributions by import name or abbreviation.
        usual: patterns of tests that are true in nearly every run.
        called_on: patterns of class names, with the methods that a run calls on objects that it is given.
        attribute_classes: patterns of class paths, with the classes of the attributes of their objects.

    """

    packages: Mapping[str, StackPackage] = field(default_factory=dict)
    methods: tuple[tuple[str, Mapping[str, str]], ...] = ()
    elsewhere: frozenset[str] = frozenset()
    devices: Mapping[str, str] = field(default_factory=dict)
    by_module: Mapping[str, str] = field(default_factory=dict)
    usual: tuple[str, ...] = ()
    called_on: tuple[tuple[str, Mapping[str, str]], ...] = ()
    attribute_classes: tuple[tuple[str, Mapping[str, str]], ...] = ()


_IN_USE = [EntryTable()]


def use_entries(text: str, file: str) -> None:
    """Parse a table and make all readers use it.

    Raises:
        InputError: the text is not TOML, or has a key or an entry of an unknown form.

    """
    tree = parse_toml(text, file)
    rows = tree.get("package", {})
    packages = {name: _package(name, row, f"{file}: package.{name}") for name, row in rows.items()}
    names = tree.get("names", {})
    modules = {module: name for name, package in packages.items() for module in package.modules}
    _IN_USE[0] = EntryTable(
        packages=packages,
        methods=tuple(_methods(row) for row in tree.get("methods", ())),
        elsewhere=frozenset(names.get("elsewhere", ())),
        devices=dict(names.get("devices", {})),
        by_module={**names.get("spellings", {}), **modules},
        usual=tuple(tree.get("usual", {}).get("tests", ())),
        called_on=tuple(_methods(row) for row in tree.get("called_on", ())),
        attribute_classes=tuple((row.pop("class"), row) for row in tree.get("attributes", ())),
    )


def _package(name: str, row: Mapping[str, Any], where: str) -> StackPackage:
    if not set(row) <= _KEYS:
        raise InputError(where, f"expected a table of {', '.join(sorted(_KEYS))}")
    return StackPackage(
        tuple(row.get("imports", (name.replace("-", "_"),))),
        tuple(_entry(text, where) for text in row.get("entries", ())),
        tuple(row.get("calls", ())),
        frozenset(row.get("exclusive", ())),
    )


def _entry(text: str, where: str) -> PackageEntry:
    found = _ENTRY.fullmatch(text)
    if found is None:
        raise InputError(where, f"expected 'import MODULE' or 'from MODULE import NAMES'; found {text!r}")
    if found[1]:
        return PackageEntry(text, found[1])
    names = tuple(found[3].split(", "))
    return PackageEntry(f"from {found[2]} import {names[0]}", found[2], names)


def _methods(row: Mapping[str, Any]) -> tuple[str, Mapping[str, str]]:
    """Return the class-name pattern of a row, and its methods, each with the call by a user that runs it."""
    ways = {action: methods for action, methods in row.items() if action != "class"}
    return row["class"], {method: action for action, methods in ways.items() for method in methods}


def stack_package(name: str) -> StackPackage | None:
    """Return a package by its normalised name; None if the table does not hold it."""
    return _IN_USE[0].packages.get(name)


def entries_seen_by(package: str, *, calls: bool) -> str:
    """Return what the table in use says to the reader of one package; an equal text means equal readings.

    With `calls`, the calls of the package count too.
    """
    table = _IN_USE[0]
    own = table.packages.get(package)
    said = (
        (own.modules, own.entries, own.calls * calls) if own else (),
        sorted(table.by_module.items()),
        [(form, list(methods.items())) for form, methods in table.methods] * calls,
        table.usual * calls,
        [(form, list(found.items())) for form, found in (*table.called_on, *table.attribute_classes)] * calls,
        sorted(table.elsewhere),
        sorted(table.devices.items()),
        sorted(module for each in table.packages.values() for module in each.exclusive),
    )
    return repr(said)


def usual_tests() -> tuple[str, ...]:
    """Return patterns of tests that are true in nearly every run, though no version decides them."""
    return _IN_USE[0].usual


def called_on(name: str) -> Mapping[str, str]:
    """Return the methods of an object that a run calls, by the name of its class, each with the action."""
    return next((found for form, found in _IN_USE[0].called_on if fnmatch.fnmatchcase(name, form)), {})


def attribute_class(path: str, attribute: str) -> str:
    """Return the class of an attribute of a class's objects, as dotted paths; empty if it is not listed."""
    listed = (found for form, found in _IN_USE[0].attribute_classes if fnmatch.fnmatchcase(path, form))
    return next((found[attribute] for found in listed if attribute in found), "")


def elsewhere() -> frozenset[str]:
    """Return the packages that count as absent unless they are known to be installed."""
    return _IN_USE[0].elsewhere


def devices() -> Mapping[str, str]:
    """Return the module of torch that each package adds which brings another device than CUDA's."""
    return _IN_USE[0].devices


def entries_of(package: str) -> Sequence[PackageEntry]:
    """Return the entries of a package."""
    known = stack_package(package)
    return known.entries if known else ()


def calls_of(package: str) -> list[CallEntry]:
    """Return the classes and functions of a package that users call, the most usual first."""
    known = stack_package(package)
    paths = [f"{entry.module}.{name}" for entry in (known.entries if known else ()) for name in entry.names]
    every = dict.fromkeys((*paths, *(known.calls if known else ())))
    return [CallEntry(path, _methods_of(path.rsplit(".", 1)[-1])) for path in every]


def _methods_of(name: str) -> Mapping[str, str]:
    return next((found for form, found in _IN_USE[0].methods if fnmatch.fnmatchcase(name, form)), {})


def distribution_of(path: str) -> str:
    """Return the distribution that contains a module, by the module's dotted path or an abbreviation."""
    top = path.split(".", 1)[0]
    return _IN_USE[0].by_module.get(top) or str(canonicalize_name(top))


def is_exclusive(module: str) -> bool:
    """Return whether a top-level module comes from its distribution alone."""
    known = stack_package(distribution_of(module))
    return known is not None and module in known.exclusive


def import_names(package: str) -> tuple[str, ...]:
    """Return the import names of a distribution."""
    known = stack_package(package)
    return known.modules if known else (package.replace("-", "_"),)
