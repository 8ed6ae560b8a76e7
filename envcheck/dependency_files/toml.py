"""TOML with the lines its values stand on, as far as the listings need them."""

from __future__ import annotations

from envcheck.core import toml_locations


def rows(text: str, header: str, key: str) -> list[int]:
    """The line of a key in every `[[header]]` table, in order."""
    return [block.at(key) for block in toml_locations.blocks(text) if block.header == header]


def place_of(text: str, value: str, where: str, after: int = 0) -> str:
    """`file:line:column` of the first quoted text of this value behind a line."""
    for number, line in enumerate(text.split("\n"), 1):
        if number >= after:
            for quote in "\"'":
                if (column := line.find(f"{quote}{value}{quote}")) >= 0:
                    return f"{where}:{number}:{column + 2}"
    return where
