"""Read and write facts files: the form that `envcheck facts` prints and `--facts` reads.

    complete = ["pkg"]                      # complete families: a missing key is Absent
    [python]
    version = "3.11.9"
    [pkg]
    torch = "2.4.0+cu121"                   # short for torch = { version = "2.4.0+cu121" }
    [train]
    zero_stage = 3
    [[gpu]]
    name = "NVIDIA A100-SXM4-80GB"
    [unknown]                               # full keys; a GPU's with its number
    "driver.version" = "NVML did not answer within 10 s"
    [sources]
    "gpu[0].name" = "NVML"

This module takes parsed values, so a facts file may be TOML or JSON.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from envcheck.core.errors import InputError
from envcheck.core.facts import (
    Absent,
    Fact,
    Inventory,
    Key,
    Kind,
    Known,
    Reading,
    Unknown,
    Value,
    Vocabulary,
    is_device_key,
)

SCHEMA_VERSION = 1

_SIDE_TABLES = ("sources", "unknown", "absent", "complete", "unread", "schema_version", "envcheck")


def load(tree: Mapping[str, Any], where: str, vocabulary: Vocabulary) -> Inventory:
    """Return the inventory that a facts file describes; `where` is its name, for messages and sources.

    Raises:
        InputError: an unknown key (the message names the nearest one), or a value of the wrong kind.
    """
    if not isinstance(tree, Mapping):
        raise InputError(where, f"expected a table of facts, found {_excerpt(tree)}")
    sources = _text_table(tree, "sources", where)
    facts: dict[str, Fact] = {}
    for key, raw in _keys_and_values(tree, vocabulary, where):
        facts[key] = Fact(key, _known_reading(raw, key, vocabulary, where), sources.get(key, where))
    devices = _devices(tree, sources, vocabulary, where)
    for key, reading in _unread_keys(tree, vocabulary, where):
        number, bare = _split_device(key, len(devices), where)
        target = facts if number is None else devices[number]
        target[bare] = Fact(bare, reading, sources.get(key, where))
    if devices and "gpus.count" not in facts:
        facts["gpus.count"] = Fact("gpus.count", Known(len(devices)), where)
    return Inventory(
        facts, tuple(devices), _complete(tree, vocabulary, where), _text_table(tree, "unread", where)
    )


def dump(inventory: Inventory) -> dict[str, Any]:
    """Return the facts file of an inventory; `load(dump(x))` gives the same facts with the same sources."""
    tree: dict[str, Any] = {"schema_version": SCHEMA_VERSION}
    side: dict[str, dict[str, str]] = {"sources": {}, "unknown": {}}
    absent: list[str] = []
    for name, fact in _named_facts(inventory):
        if fact.source:
            side["sources"][name] = fact.source
        match fact.reading:
            case Known(value):
                if not is_device_key(fact.key):
                    _put(tree, fact.key, list(value) if isinstance(value, tuple) else value)
            case Absent():
                absent.append(name)
            case Unknown(why, asked):
                if asked:
                    side["unknown"][name] = why
    if inventory.devices:
        tree["gpu"] = [
            {
                fact.key.removeprefix("gpu."): list(fact.value)
                if isinstance(fact.value, tuple)
                else fact.value
                for fact in device.values()
                if isinstance(fact.reading, Known)
            }
            for device in inventory.devices
        ]
    tree["complete"] = sorted(inventory.complete)
    tree["absent"] = absent
    tree["unread"] = dict(inventory.unread)
    return {**tree, **side}


def _named_facts(inventory: Inventory) -> Iterator[tuple[str, Fact]]:
    yield from inventory.facts.items()
    for number, device in enumerate(inventory.devices):
        for fact in device.values():
            yield f"gpu[{number}].{fact.key.removeprefix('gpu.')}", fact


def _put(tree: dict[str, Any], key: str, value: Any) -> None:
    """Put the value of `pkg.torch` at `tree["pkg"]["torch"]`; a package with details becomes a table."""
    head, _, rest = key.partition(".")
    name, _, detail = rest.partition(".")
    table = tree.setdefault(head, {})
    if detail:
        entry = table.get(name)
        if not isinstance(entry, dict):
            entry = table[name] = {} if entry is None else {"version": entry}
        entry[detail] = value
    elif isinstance(table.get(name), dict):
        table[name]["version"] = value
    else:
        table[name] = value


def _keys_and_values(
    tree: Mapping[str, Any], vocabulary: Vocabulary, where: str
) -> Iterator[tuple[str, Any]]:
    for name, table in tree.items():
        if name in _SIDE_TABLES or name == "gpu":
            continue
        if not isinstance(table, Mapping):
            _refuse_key(name, vocabulary, where)
        for key, raw in table.items():
            if isinstance(raw, Mapping):
                yield from _details(f"{name}.{key}", raw, vocabulary)
            else:
                yield f"{name}.{key}", raw


def _details(key: str, table: Mapping[str, Any], vocabulary: Vocabulary) -> Iterator[tuple[str, Any]]:
    """Yield keys and values of a package's table, in which `version` stands for the package's own key."""
    for detail, value in table.items():
        full = f"{key}.{detail}"
        yield key if detail == "version" and vocabulary.get(full) is None else full, value


def _devices(
    tree: Mapping[str, Any], sources: Mapping[str, str], vocabulary: Vocabulary, where: str
) -> list[dict[str, Fact]]:
    rows = tree.get("gpu", [])
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise InputError(f"{where}: gpu", "expected [[gpu]] tables, one for each device")
    devices = []
    for number, row in enumerate(rows):
        device: dict[str, Fact] = {}
        for name, raw in row.items():
            key = f"gpu.{name}"
            reading = _known_reading(raw, key, vocabulary, f"{where}: gpu[{number}]")
            device[key] = Fact(key, reading, sources.get(f"gpu[{number}].{name}", where))
        devices.append(device)
    return devices


def _unread_keys(
    tree: Mapping[str, Any], vocabulary: Vocabulary, where: str
) -> Iterator[tuple[str, Reading]]:
    for key, why in _text_table(tree, "unknown", where).items():
        _declared(_without_number(key), vocabulary, where)
        yield key, Unknown(why)
    for key in _word_list(tree, "absent", where):
        _declared(_without_number(key), vocabulary, where)
        yield key, Absent()


def _without_number(key: str) -> str:
    """Return `gpu.name` for `gpu[0].name`, and any other key unchanged."""
    head, dot, rest = key.partition(".")
    return f"{head.partition('[')[0]}{dot}{rest}"


def _split_device(key: str, count: int, where: str) -> tuple[int | None, str]:
    head, bracket, rest = key.partition("[")
    if head != "gpu" or not bracket:
        return None, key
    number, _, name = rest.partition("].")
    if not number.isdecimal() or int(number) >= count:
        raise InputError(
            f"{where}: {key}",
            f"expected the number of a [[gpu]] table, from 0; found {count} such tables",
        )
    return int(number), f"gpu.{name}"


def _complete(tree: Mapping[str, Any], vocabulary: Vocabulary, where: str) -> frozenset[str]:
    families = {key.partition(".")[0] for key in vocabulary.keys}
    named = _word_list(tree, "complete", where)
    for name in named:
        # Without this check, a misspelt family would leave its keys "not given", and findings would be lost.
        if name not in families:
            raise InputError(
                f"{where}: complete",
                f"expected families of facts ({', '.join(sorted(families))}), found {name!r}",
            )
    return frozenset(named)


def _word_list(tree: Mapping[str, Any], name: str, where: str) -> list[str]:
    words = tree.get(name, [])
    if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
        raise InputError(f"{where}: {name}", f"expected a list of names, found {_excerpt(words)}")
    return words


def _text_table(tree: Mapping[str, Any], name: str, where: str) -> dict[str, str]:
    table = tree.get(name, {})
    if not isinstance(table, Mapping) or not all(isinstance(value, str) for value in table.values()):
        raise InputError(f"{where}: {name}", "expected a table of key = text")
    return dict(table)


def _declared(key: str, vocabulary: Vocabulary, where: str) -> Key:
    declared = vocabulary.get(key)
    if declared is None:
        _refuse_key(key, vocabulary, where)
    return declared


def _refuse_key(key: str, vocabulary: Vocabulary, where: str) -> NoReturn:
    nearest = vocabulary.nearest(key)
    hint = f"; did you mean {nearest!r}?" if nearest else ""
    raise InputError(f"{where}: {key}", f"no such fact{hint}")


def _known_reading(raw: Any, key: str, vocabulary: Vocabulary, where: str) -> Reading:
    declared = _declared(key, vocabulary, where)
    value = as_value(raw, declared.kind)
    if value is None:
        raise InputError(f"{where}: {key}", f"expected {_EXPECTED[declared.kind]}, found {_excerpt(raw)}")
    if declared.words and str(value) not in declared.words:
        raise InputError(
            f"{where}: {key}", f"expected one of {', '.join(declared.words)}, found {_excerpt(raw)}"
        )
    return Known(value)


_EXPECTED = {
    Kind.VERSION: "a version in quotes",
    Kind.NUMBER: "a whole number",
    Kind.WORD: "a word in quotes",
    Kind.FLAG: "true or false",
    Kind.WORDS: "a list of words",
}


def as_value(raw: Any, kind: Kind) -> Value | None:
    """Return a parsed TOML or JSON value as a fact's value of this kind, or None if it has another type."""
    match kind, raw:
        case (Kind.FLAG, bool()):
            return raw
        case (Kind.NUMBER, int()) if not isinstance(raw, bool):
            return raw
        case (Kind.VERSION | Kind.WORD, str()):
            return raw
        case (Kind.WORDS, list()) if all(isinstance(word, str) for word in raw):
            return tuple(raw)
        case _:
            return None


def _excerpt(raw: Any) -> str:
    text = repr(raw)
    return text if len(text) <= 60 else f"{text[:57]}…"  # noqa: PLR2004 - fits a line of a terminal
