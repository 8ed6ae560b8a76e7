"""TOML with the lines its values stand on, as far as the listings need them."""

from __future__ import annotations

import re
from typing import Any

from envcheck import places
from envcheck.model import InputError


def parsed(text: str, where: str) -> dict[str, Any]:
    """The tree of a TOML text.

    Raises:
        InputError: it is none; with line and column.
    """
    import tomllib

    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+), column (\d+)", str(error))
        place = f"{where}:{found[1]}:{found[2]}" if found else where
        raise InputError(place, f"not TOML: {str(error).partition(' (at ')[0].lower()}") from None
    except RecursionError:
        raise InputError(where, "not TOML: nested too deeply") from None


def rows(text: str, header: str, key: str) -> list[int]:
    """The line of a key in every `[[header]]` table, in order."""
    return [block.at(key) for block in places.blocks(text) if block.header == header]


def place_of(text: str, value: str, where: str, after: int = 0) -> str:
    """`file:line:column` of the first quoted text of this value behind a line."""
    for number, line in enumerate(text.split("\n"), 1):
        if number >= after:
            for quote in "\"'":
                if (column := line.find(f"{quote}{value}{quote}")) >= 0:
                    return f"{where}:{number}:{column + 2}"
    return where
