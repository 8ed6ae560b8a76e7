"""Configurations that Hydra composes: the primary file, the files of its defaults, and overrides."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.values import MISSING, Record, Value

ReadConfiguration = Callable[[str], Mapping[str, Value] | None]
"""Called with the name of a YAML or JSON file; returns its content as nested dictionaries, or None."""

_DEEPEST = 6  # files that name one another in their defaults
_INTERPOLATED = re.compile(r"\$\{([A-Za-z_][\w.]*)\}")
_EXPONENT = re.compile(r"[-+]?[0-9]+(?:\.[0-9]*)?[eE][-+]?[0-9]+")
_MOST_LINKS = 8  # interpolations that lead to one another


def composed(
    folder: str, name: str, given: Mapping[str, Value], read: ReadConfiguration, choices: dict[str, Value]
) -> Value:
    """Return the configuration of a program that hydra starts with the overrides `given`.

    `choices` receives the file that each group takes.
    """
    config = Record({}, "namespace")
    _add(config, posixpath.join(folder, name), folder, "", _Overrides(given, choices), read, 0)
    if not config.items and not config.rest:
        return Unknown(f"{name} is not here")
    for key, value in given.items():
        if not isinstance(value, str) or _file(posixpath.join(folder, key, value), read) is None:
            put_at(config, key.split("."), value)
        elif not _has_default(config, key):
            inner = Record({}, "namespace")
            choices[key] = value
            _add(inner, posixpath.join(folder, key, value), folder, key, _Overrides(given, choices), read, 1)
            _merge_at(config, key.replace("/", "."), inner)
    _resolve(config, config, 0)
    return config


class _Overrides(NamedTuple):
    """Overrides of a command line, and the choices made so far."""

    given: Mapping[str, Value]
    choices: dict[str, Value]


def as_record(content: Any, role: str = "namespace") -> Value:
    """Return nested dictionaries and lists as records and tuples.

    A namespace is OmegaConf's, whose YAML has numbers such as 1e-4 that are texts in YAML 1.1.
    """
    if isinstance(content, Mapping):
        return Record({str(key): as_record(value, role) for key, value in content.items()}, role)
    if isinstance(content, list | tuple):
        return tuple(as_record(value, role) for value in content)
    is_number = role == "namespace" and isinstance(content, str) and _EXPONENT.fullmatch(content)
    return float(content) if is_number else content


def merge_deep(record: Record, other: Record) -> None:
    """Merge a nested dictionary into another."""
    for name, value in other.items.items():
        before = record.items.get(name)
        if isinstance(before, Record) and isinstance(value, Record):
            inner = Record(dict(before.items), before.role, rest=before.rest, born=before.born)
            merge_deep(inner, value)
            record.items[name] = inner
        else:
            record.items[name] = value
    record.rest = record.rest or other.rest


def _file(path: str, read: ReadConfiguration) -> Mapping[str, Value] | None:
    path = path if path.endswith((".yaml", ".yml")) else f"{path}.yaml"
    return read(path)


def _add(
    config: Record,
    path: str,
    root: str,
    group: str,
    given: _Overrides,
    read: ReadConfiguration,
    depth: int,
) -> None:
    """Merge a file and those that its `defaults` name into a configuration."""
    content = _file(path, read) if depth <= _DEEPEST else None
    if content is None:
        config.rest = config.rest or f"{path} is not here"
        return
    own = {key: value for key, value in content.items() if key != "defaults"}
    listed = content.get("defaults")
    entries = listed if isinstance(listed, tuple) else ()
    itself = False
    for entry in entries:
        if entry == "_self_":
            itself = True
            merge_deep(config, as_record(own))
        else:
            _add_default(config, entry, root, group, given, read, depth)
    if not itself:
        merge_deep(config, as_record(own))


def _add_default(
    config: Record,
    entry: Value,
    root: str,
    group: str,
    given: _Overrides,
    read: ReadConfiguration,
    depth: int,
) -> None:
    """Merge one entry of a list of defaults: a file of the same group, or `group: name`."""
    if isinstance(entry, str):
        _add(
            config, posixpath.join(root, group, entry.removeprefix("/")), root, group, given, read, depth + 1
        )
        return
    for key, value in entry.items() if isinstance(entry, Mapping) else ():
        words = str(key).split()
        if "override" in words or words[-1].startswith("hydra"):
            continue
        inner_group, _, package = words[-1].removeprefix("/").partition("@")
        chosen = given.given.get(inner_group, value)
        given.choices[inner_group] = chosen
        if not isinstance(chosen, str):
            continue
        inner = Record({}, "namespace")
        nested = posixpath.join(group, inner_group)
        link = _INTERPOLATED.fullmatch(chosen)
        if link is not None and isinstance(target := _found(config, link.group(1)), Record):
            inner = target
        else:
            _add(inner, posixpath.join(root, nested, chosen), root, nested, given, read, depth + 1)
        if "optional" in words and not inner.items:
            continue
        _merge_at(config, (package or inner_group).replace("/", "."), inner)


def _merge_at(config: Record, where: str, inner: Record) -> None:
    if where == "_global_":
        merge_deep(config, inner)
        return
    wrapped = inner
    for name in reversed(where.split(".")):
        wrapped = Record({name: wrapped}, "namespace")
    merge_deep(config, wrapped)


def _has_default(config: Record, key: str) -> bool:
    return isinstance(_found(config, key.replace("/", ".")), Record)


def _found(config: Record, dotted: str) -> Value:
    value: Value = config
    for name in dotted.split("."):
        value = value.get(name) if isinstance(value, Record) else MISSING
    return value


def put_at(config: Record, names: list[str], value: Value) -> None:
    """Set an item inside a record, which gets the records on the way to it."""
    for name in names[:-1]:
        inner = config.items.get(name)
        if not isinstance(inner, Record):
            inner = config.items[name] = Record({}, "namespace")
        config = inner
    config.items[names[-1]] = value


def _resolve(config: Record, root: Record, depth: int) -> None:
    """Replace `${name}` by what it stands for, and `???` by Unknown."""
    for name, value in config.items.items():
        if isinstance(value, Record) and depth < _DEEPEST:
            _resolve(value, root, depth + 1)
        elif isinstance(value, str):
            config.items[name] = _interpolated(value, root, 0)


def _interpolated(text: str, root: Record, links: int) -> Value:
    if text == "???":
        return Unknown("it must be given")
    if "${" not in text:
        return text
    link = _INTERPOLATED.fullmatch(text)
    found = _found(root, link.group(1)) if link is not None else MISSING
    if found is MISSING or links > _MOST_LINKS:
        return Unknown(f"{text} is resolved when the program runs")
    return _interpolated(found, root, links + 1) if isinstance(found, str) else found
