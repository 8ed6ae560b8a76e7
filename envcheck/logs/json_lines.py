"""Lines of a log that a program or a container's runtime wrote as JSON objects. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

LONGEST = 64 << 10
"""Bytes of the longest line that is read as JSON; a traceback in one of its fields makes it long."""


class JsonFields(NamedTuple):
    """Hold the names of the fields of such a line: those with text, and those that mark a line of a log.

    An example of the training data may have a field of text as well, and no time or level beside it.
    """

    texts: tuple[str, ...] = ()
    marks: frozenset[str] = frozenset()


def json_fields(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> JsonFields:
    """Return the fields of compat/tables/log.toml."""
    rows = tables.get("json_line", ())
    texts = (field for row in rows for field in row.get("texts", ()))
    return JsonFields(tuple(dict.fromkeys(texts)), frozenset(field for row in rows for field in row["marks"]))


def looks_like_json(raw: bytes) -> bool:
    """Return whether a line may be a JSON object; one that Python prints begins with another quote."""
    return raw.startswith(b'{"') and len(raw) <= LONGEST


def lines_in_json(raw: bytes, fields: JsonFields) -> tuple[bytes, ...]:
    """Return the lines of text in a line of JSON, in the order of the fields; none if it is no log's line."""
    if not looks_like_json(raw):
        return ()
    try:
        line = json.loads(raw)
    except (ValueError, RecursionError):
        return ()
    if not isinstance(line, dict) or fields.marks.isdisjoint(line):
        return ()
    texts = (line.get(field) for field in fields.texts)
    whole = "\n".join(text.rstrip("\n") for text in texts if isinstance(text, str))
    return tuple(each.encode("utf-8", "replace") for each in whole.split("\n")) if whole else ()
