"""Records: the facts file of one node as text, parsed with limits on its size and depth. Pure."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from envcheck.core.errors import InputError
from envcheck.core.parsing import check_json, parse_toml

LARGEST_RECORD = 4 * 1024 * 1024
"""Largest size of one node's facts, in bytes. A node with 600 packages needs a fiftieth of it."""

LONGEST_NAME = 253
"""Longest name of a node, in characters; the limit of a host name in the DNS."""

NAME_KEY = "host.name"
"""The key under which a record gives the name of its node."""

MOST_GPUS = 1024


class NodeRecord(NamedTuple):
    """Facts of a node as text, their origin (`facts.jsonl:17`), and a name if the text has none."""

    where: str
    text: str
    name: str


class RefusedRecord(NamedTuple):
    """A record that could not be read: its origin, what is wrong, and its node's name if readable."""

    where: str
    problem: str
    name: str = ""


_TOML_HEADER = re.compile(
    r"""\[{1,2}[\w."'-]+\]{1,2}[ \t]*(?:\#|\r?\n|\Z)"""
)  # [host], [[gpu]]; not a JSON list


def parse_record(text: str, where: str) -> dict[str, Any]:
    """Return the tree of one record; the content decides whether it is parsed as JSON or TOML.

    Raises:
        InputError: the text is neither, is too long, or is nested too deeply.
    """
    if len(text) > LARGEST_RECORD:
        raise InputError(where, f"longer than {LARGEST_RECORD} bytes")
    content = text.lstrip("\ufeff \t\r\n")
    if content[:1] == "{" or (content[:1] == "[" and not _TOML_HEADER.match(content)):
        return _parse_json(text, where)
    try:
        return parse_toml(text, where, otherwise="neither JSON nor TOML")
    except InputError as error:
        line, _, column = error.where.removeprefix(where)[1:].partition(":")
        raise InputError(
            where, error.problem + (f" (line {line}, column {column})" if column else "")
        ) from None


def _parse_json(text: str, where: str) -> dict[str, Any]:
    check_json(text, where)
    try:
        tree = json.loads(text.lstrip("\ufeff"), parse_constant=_reject_constant)
    except json.JSONDecodeError as error:
        is_cut_off = error.pos >= len(text.rstrip()) or "Unterminated" in error.msg
        why = "ends in the middle" if is_cut_off else f"{error.msg[:1].lower()}{error.msg[1:]}"
        at = f"line {error.lineno}, column {error.colno}" if error.lineno > 1 else f"column {error.colno}"
        raise InputError(where, f"not JSON: {why} ({at})") from None
    except RecursionError:
        raise InputError(where, "not JSON: nested too deeply") from None
    except ValueError as error:
        raise InputError(where, f"not JSON: {str(error).partition(';')[0]}") from None
    if not isinstance(tree, dict):
        raise InputError(where, f"expected a table of facts, found a {type(tree).__name__}")
    return tree


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is no number")


def take_name(tree: dict[str, Any], record: NodeRecord) -> str:
    """Remove `host.name` from the tree and return it; without one, return the record's own name.

    Raises:
        InputError: the name is not text of 1 to 253 characters.
    """
    host = tree.get("host")
    name = host.pop("name", None) if isinstance(host, dict) else None
    if name is None:
        return record.name
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME:
        raise InputError(f"{record.where}: {NAME_KEY}", f"expected a name of 1 to {LONGEST_NAME} characters")
    return name
