"""TOML, in which kohya's sd-scripts and many programs of their own keep their settings.

A value has the line of its key; one in an inline table or in a list has that of the outermost key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from envcheck.core.errors import InputError, Place
from envcheck.core.parsing import DEEPEST, TOO_DEEP, parse_toml
from envcheck.core.patterns import pattern
from envcheck.core.toml_locations import blocks
from envcheck.training_config.document import Document, Section, Setting, SettingValue
from envcheck.training_config.readers import ConfigReader

_BEGINNING = pattern(r"(?:\s|#[^\n]*\n)*\[[\w.-]+\][ \t]*(?:#[^\n]*)?\n")
_NAME = pattern(r"[\w-]+")


def recognises(text: str) -> bool:
    """Return whether the first line that is not a comment is a header; a `.toml` file needs none."""
    return _BEGINNING.match(text) is not None


def read(text: str, file: str) -> tuple[Document, ...]:
    """Return the settings of a TOML text.

    Raises:
        InputError: the text is malformed; with line and column.
    """
    tree = parse_toml(text, file)
    lines = {
        f"{block.header}.{key}" if block.header else key: line
        for block in blocks(text)
        for key, line in {"": block.line, **block.keys}.items()
    }
    return (Document(file, "json", tuple(_settings(tree, "", Place(file), lines))),)


def _settings(
    table: Mapping[str, Any], path: str, around: Place, lines: Mapping[str, int], depth: int = 0
) -> Iterator[Setting]:
    """Yield the settings of a table and of those inside it."""
    if depth > DEEPEST:
        raise InputError(around, f"not TOML: {TOO_DEEP}")
    for key, value in table.items():
        name = f"{path}{key if _NAME.fullmatch(key) else json.dumps(key)}"
        line = lines.get(name) or lines.get(f"{name}.")
        place = Place(around.file, line) if line else around
        yield Setting(name, _value(value), place, place)
        inner = value if isinstance(value, Mapping) else _tables(value)
        yield from _settings(inner, f"{name}.", place, lines, depth + 1)


def _value(value: Any) -> SettingValue:
    """Return a value of TOML; dates and times are texts."""
    if isinstance(value, Mapping):
        return Section(tuple(value))
    if isinstance(value, list):
        return tuple(_item(each) for each in value)
    return value if isinstance(value, bool | int | float | str) else str(value)


def _item(value: Any) -> Any:
    return _value(value) if not isinstance(value, list) else str(value)


def _tables(value: Any) -> Mapping[str, Any]:
    """Return the tables in a list by their index."""
    items = value if isinstance(value, list) else []
    return {str(index): each for index, each in enumerate(items) if isinstance(each, Mapping)}


READER = ConfigReader("TOML", 2, recognises, read)
