"""Where a row stands in its TOML file, and a fact in a facts file: parsers give values without lines."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envcheck.core.errors import InputError

_HEADER = re.compile(r"\[\[?\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""("[^"]*"|'[^']*'|[A-Za-z0-9_.-]+)\s*=""")
_LONG_STRINGS = ('"""', "'''")


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


class Block(NamedTuple):
    """What stands under one header: `[[rule]]` is `rule`, and its `[[rule.fix]]` blocks follow it."""

    header: str
    line: int
    keys: dict[str, int]

    def at(self, key: str) -> int:
        """The line of a key, of the header if the key is not there."""
        return self.keys.get(key, self.line)


def blocks(text: str) -> Iterator[Block]:
    """Every header of a TOML text with the lines of the keys under it, top to bottom.

    Good for files laid out one key a line, as those of compat/ are; what a long string holds is skipped.
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
    """A row's place: its file, its block, and the blocks of its own tables (`fix`, `when`, `facts`)."""

    file: str
    block: Block
    inner: tuple[Block, ...] = ()

    @property
    def line(self) -> int:
        """The line of its id, of its header if it has none."""
        return self.block.at("id")

    def at(self, key: str, number: int = 0) -> int:
        """The line of a key, or of the row's nth table of that name; the row's own line if there is none."""
        if key in self.block.keys:
            return self.block.keys[key]
        found = [each.line for each in self.inner if each.header == f"{self.block.header}.{key}"]
        return found[number] if number < len(found) else self.line


class Places(NamedTuple):
    """Every row of every file, by kind and in the order in which `knowledge.load.gather_tree` reads them."""

    rows: Mapping[str, tuple[TomlRow, ...]]
    tables: Mapping[str, TomlRow]  # `target.zero3-lora`, `known_through`, … of the head

    def row(self, kind: str, number: int) -> TomlRow:
        """The nth row of a kind; a place without a line if the file is laid out in another way."""
        rows = self.rows.get(kind, ())
        return rows[number] if number < len(rows) else TomlRow("", Block(kind, 0, {}))

    def table(self, name: str) -> TomlRow:
        """A table of the head."""
        return self.tables.get(name, TomlRow("matrix.toml", Block(name, 0, {})))


_KINDS = ("rule", "case", "cell", "default")


def places(texts: Mapping[str, str]) -> Places:
    """Where every rule, case, cell, default and table of the head stands."""
    rows: dict[str, list[TomlRow]] = {kind: [] for kind in _KINDS}
    tables: dict[str, TomlRow] = {}
    for file in sorted(texts):
        if file.startswith(("lang/", "dialects/")) or (
            file.startswith("tables/") and "[[default]]" not in texts[file]
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
    return Places({kind: tuple(found) for kind, found in rows.items()}, tables)


# --- facts files ---------------------------------------------------------------------------------

_JSON_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[{}\[\],:]', re.DOTALL)


def setting(text: str, path: str) -> tuple[int, int]:
    """Line and column, from 1, of what a facts file says under a dotted path; (0, 0) if it is not found.

    JSON, or TOML laid out one key a line.
    """
    steps = path.split(".")
    if not text.lstrip().startswith("{"):
        line = _in_toml(text, steps)
        return line, 1 if line else 0
    at = _in_json(text, steps)
    return (text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)) if at >= 0 else (0, 0)


def _in_json(text: str, steps: list[str]) -> int:
    """The offset of a nested key, -1 if it is not there; of a row of a list, the first that has it."""
    keys: list[str] = []  # of the objects and lists that are open
    last, last_at = "", -1
    for token in _JSON_TOKEN.finditer(text):
        sign = token[0]
        if sign in "{[":
            keys.append("")
        elif sign in "}]":
            del keys[-1:]
        elif sign == ":" and keys and last:
            keys[-1] = last
            if [key for key in keys if key] == steps:
                return last_at
        last, last_at = (sign[1:-1], token.start()) if sign.startswith('"') else ("", -1)
    return -1


def _in_toml(text: str, steps: list[str]) -> int:
    """The line of a key under the header that names it best; 0 if there is none."""
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
