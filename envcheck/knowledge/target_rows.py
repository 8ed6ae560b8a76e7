"""Read the rows `[target.NAME]` of matrix.toml: their keys, the types of values, and what `extends` brings.

title      what is trained, in a few words
packages   what the user's code imports
train      the training facts that the recipe implies, without `train.`
free       those of them that `pin` may choose
build      packages that are published as source only
note       what a reader must know before choosing the target
group      the heading under which `envcheck target` lists it
for        one line: who takes it
extras     requirements with extras (`trl[vllm]`), which every lock satisfies as well
bounds     bounds by package that hold beside the packages' own metadata
conflicts  packages that must not be in the same environment, each with the reason
server     the target of a second environment, in which a server of this recipe runs; of the packages that
           the server's own bounds name, both environments take the same version
extends    another target: what this row does not give is taken from there, and `train` is joined by key
lacks      why no lock exists, by Python (`3.13`) or architecture (`aarch64`)
older      bounds by package, for one more lock with older releases (`tools/ship_locks.py`)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_TEXTS = ("title", "note", "group", "for", "server", "extends")
_LISTS = ("packages", "free", "build", "extras")
_TABLES = ("train", "bounds", "conflicts", "lacks", "older")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Names are used in file names, and in the YAML and TOML of locks."""

_PLACE = re.compile(r"3\.\d+|aarch64|x86_64")

KEYS = frozenset((*_TEXTS, *_LISTS, *_TABLES))

_NOT_INHERITED = frozenset({"note", "for", "server", "bounds", "conflicts", "lacks", "older", "origin"})
"""Keys that a row does not inherit; `overlay` adds `origin`, the file that the row comes from."""


def extended(rows: Mapping[str, Mapping[str, Any]], name: str) -> dict[str, Any]:
    """Return a row completed by the rows that it extends.

    A row that extends itself, or a row that does not exist, is returned as written, with a key `broken` that
    describes the mistake; `problems` reports it.
    """
    row = rows[name]
    chain = [name]
    while row.get("extends"):
        base = row["extends"]
        if not isinstance(base, str) or base not in rows or base in chain:
            return {**rows[name], "broken": _why_broken(base, chain)}
        chain.append(base)
        row = rows[base]
    merged: dict[str, Any] = {}
    for each in reversed(chain):
        merged = _over(merged, rows[each])
    return merged


def _why_broken(base: object, chain: list[str]) -> str:
    if base in chain:
        return f"targets extend each other: {', '.join([*chain, str(base)])}"
    return f"expected the name of a target; found {base!r}"


def _over(below: Mapping[str, Any], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row laid over the one that it extends."""
    kept = {key: value for key, value in below.items() if key not in _NOT_INHERITED}
    merged = {**kept, **row}
    trains = below.get("train"), row.get("train")
    if all(isinstance(train, Mapping) for train in trains):
        merged["train"] = {**below["train"], **row["train"]}
    return merged


def problems(name: str, row: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with the name and the values of a row, one mistake each."""
    if not _NAME.fullmatch(name):
        yield f"expected a name of letters, digits, '-', '_' and '.'; found {name!r}"
    if "broken" in row:
        yield f"extends: {row['broken']}"
    yield from _wrong_types(row)
    yield from _foreign_extras(row)


def _wrong_types(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the keys whose values are of another type than they should be."""
    for key in _TEXTS:
        if not isinstance(row.get(key, ""), str) and not (key == "extends" and "broken" in row):
            yield f"{key}: expected a text; found {row[key]!r}"
    for key in _LISTS:
        value = row.get(key, [])
        if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
            yield f"{key}: expected a list of names; found {value!r}"
    for key in _TABLES:
        if not isinstance(row.get(key, {}), Mapping):
            yield f"{key}: expected a table; found {row[key]!r}"
    for key in ("bounds", "conflicts", "older"):
        table = row.get(key, {})
        if isinstance(table, Mapping) and not all(isinstance(value, str) for value in table.values()):
            yield f"{key}: expected a text for each package; found {table!r}"
    lacks = row.get("lacks", {})
    if isinstance(lacks, Mapping) and not all(
        _PLACE.fullmatch(place) and isinstance(why, str) for place, why in lacks.items()
    ):
        yield f"lacks: expected a text for a Python such as 3.13 or an architecture; found {lacks!r}"


def _foreign_extras(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield extras of packages that the target does not name: nothing would choose their version."""
    packages, extras = row.get("packages", []), row.get("extras", [])
    if isinstance(packages, list) and isinstance(extras, list):
        for extra in filter(lambda each: isinstance(each, str), extras):
            name, bracket, _ = extra.partition("[")
            if not bracket or name not in packages:
                yield f"extras: expected one of packages with an extra, such as trl[vllm]; found {extra!r}"
