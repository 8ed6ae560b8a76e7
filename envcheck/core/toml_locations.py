"""Find the lines of rows in TOML files and of facts in facts files, which the parsers do not give."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from envcheck.core.records import NamedTuple

_HEADER = re.compile(r"\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""("[^"]*"|'[^']*'|[A-Za-z0-9_.-]+)\s*=""")
_LONG_STRINGS = ('"""', "'''")


class Block(NamedTuple):
    """A header (`rule` for `[[rule]]`), its line, and the lines of the keys under it.

    The blocks of a row's own tables, such as `[[rule.fix]]`, follow the row's block.
    """

    header: str
    line: int
    keys: dict[str, int]

    def at(self, key: str) -> int:
        """Return the line of a key, or of the header if there is no such key."""
        return self.keys.get(key, self.line)


def blocks(text: str) -> Iterator[Block]:
    """Yield the blocks of a TOML text, top to bottom; keys before the first header form a nameless block.

    Only keys that begin a line are found, which is enough for the files of compat/. The contents of
    multi-line strings are skipped.
    """
    block = Block("", 1, {})
    closing = ""
    for number, line in enumerate(text.splitlines(), 1):
        if closing:
            closing = "" if line.count(closing) % 2 else closing
            continue
        closing = next((quote for quote in _LONG_STRINGS if line.count(quote) % 2), "")
        if line.startswith("[") and (found := _HEADER.match(line)):
            yield block
            block = Block(found[1].replace('"', "").replace("'", ""), number, {})
        elif found := _KEY.match(line):
            block.keys.setdefault(found[1].strip("\"'"), number)
    yield block


class TomlRow(NamedTuple):
    """A row's location: its file, its block, and the blocks of its own tables (`fix`, `when`, `facts`)."""

    file: str
    block: Block
    inner: tuple[Block, ...] = ()

    @property
    def line(self) -> int:
        """Return the line of the row's `id`, or of its header if it has no `id`."""
        return self.block.at("id")

    def at(self, key: str, number: int = 0) -> int:
        """Return the line of a key or of the nth table of that name; without one, the row's own line."""
        if key in self.block.keys:
            return self.block.keys[key]
        found = [block.line for block in self.inner if block.header == f"{self.block.header}.{key}"]
        return found[number] if number < len(found) else self.line


class RowLocations(NamedTuple):
    """Locations of all rows by kind, in the order of `knowledge.load.gather`."""

    rows: Mapping[str, tuple[TomlRow, ...]]
    tables: Mapping[str, TomlRow]  # tables of matrix.toml: `target.zero3-lora`, `known_through`, …

    def row(self, kind: str, number: int) -> TomlRow:
        """Return the location of the nth row of a kind, with line 0 if the file has another layout."""
        rows = self.rows.get(kind, ())
        return rows[number] if number < len(rows) else TomlRow("", Block(kind, 0, {}))

    def table(self, name: str) -> TomlRow:
        """Return the location of a table of matrix.toml."""
        return self.tables.get(name, TomlRow("matrix.toml", Block(name, 0, {})))


_OF_TABLES = (
    "default",
    "exception_meaning",
    "general_meaning",
    "failure_line",
    "failure_message",
    "caught",
)
"""Kinds of rows in the files of `tables/`; those without one of them are not searched."""

_KINDS = ("rule", "case", "cell", *_OF_TABLES)


def locate_rows(texts: Mapping[str, str]) -> RowLocations:
    """Locate the rows of every kind, and the tables of matrix.toml; `texts` are files by name."""
    rows: dict[str, list[TomlRow]] = {kind: [] for kind in _KINDS}
    tables: dict[str, TomlRow] = {}
    for file in sorted(texts):
        if file.startswith(("lang/", "dialects/", "atlas/", "proofs/")) or (
            file.startswith("tables/") and not any(f"[[{kind}]]" in texts[file] for kind in _OF_TABLES)
        ):
            continue
        for block in blocks(texts[file]):
            kind, _, inner = block.header.partition(".")
            if kind not in rows:
                tables.setdefault(block.header, TomlRow(file, block))
            elif not inner:
                rows[kind].append(TomlRow(file, block))
            elif rows[kind]:
                last = rows[kind][-1]
                rows[kind][-1] = last._replace(inner=(*last.inner, block))
    return RowLocations({kind: tuple(found) for kind, found in rows.items()}, tables)


# --- facts files ---------------------------------------------------------------------------------

_JSON_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[{}\[\],:]', re.DOTALL)


def locate_fact(text: str, path: str) -> tuple[int, int]:
    """Return line and column, from 1, of a dotted key in a facts file, or (0, 0) if it is not found.

    The file is JSON, or TOML with one key a line.
    """
    steps = path.split(".")
    if not text.lstrip().startswith("{"):
        line = _in_toml(text, steps)
        return line, 1 if line else 0
    at = _in_json(text, steps)
    return (text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)) if at >= 0 else (0, 0)


def _in_json(text: str, steps: list[str]) -> int:
    """Return the offset of a nested key, or -1; in a list of objects, of the first object that has it."""
    keys: list[str] = []  # the current key in each open object or list
    last, last_at = "", -1
    for token in _JSON_TOKEN.finditer(text):
        word = token[0]
        if word in "{[":
            keys.append("")
        elif word in "}]":
            del keys[-1:]
        elif word == ":" and keys and last:
            keys[-1] = last
            if [key for key in keys if key] == steps:
                return last_at
        last, last_at = (word[1:-1], token.start()) if word.startswith('"') else ("", -1)
    return -1


def _in_toml(text: str, steps: list[str]) -> int:
    """Return the line of a key under the header that matches most of its path, or 0."""
    best, found = 0, 0
    for block in blocks(text):
        header = block.header.split(".") if block.header else []
        if header != steps[: len(header)]:
            continue
        rest = ".".join(steps[len(header) :])
        for length, key in ((len(steps), rest), (len(header) + 1, rest.partition(".")[0])):
            if key in block.keys and length > best:
                best, found = length, block.keys[key]
    return found
