"""Find the lines and columns of values in TOML, as far as the dependency formats need them."""

from __future__ import annotations

from envcheck.core import toml_locations


def lines_of_key(text: str, header: str, key: str) -> list[int]:
    """Return the line of a key in every `[[header]]` table, in order."""
    return [block.at(key) for block in toml_locations.blocks(text) if block.header == header]


def place_of(text: str, value: str, where: str, after: int = 0) -> str:
    """Return `file:line:column` of the first quoted `value` from a line on; only the file if not found."""
    quoted = (f'"{value}"', f"'{value}'")
    lines = text.split("\n")
    for number in range(max(after, 1), len(lines) + 1):
        line = lines[number - 1]
        column = next((found for word in quoted if (found := line.find(word)) >= 0), None)
        if column is not None:
            return f"{where}:{number}:{column + 2}"  # columns count from 1; skip the quote
    return where
