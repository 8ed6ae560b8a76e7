"""Lines of a log that a program or a container's runtime wrote as JSON objects. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core.errors import InputError
from envcheck.core.parsing import parse_json

_LONGEST = 64 << 10  # bytes of a line that is read as JSON; a traceback in one of its fields makes it long
_LONGEST_PREFIX = 200  # bytes before it, such as a time


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


def place_of_json(raw: bytes) -> int:
    """Return where a JSON object may begin in a line, or -1; one that Python prints has another quote."""
    return raw.find(b'{"', 0, _LONGEST_PREFIX) if len(raw) <= _LONGEST else -1


def lines_in_json(raw: bytes, fields: JsonFields) -> tuple[bytes, ...]:
    """Return the lines of text in a line of JSON, in the order of the fields; none if it is no log's line."""
    try:
        line = parse_json(raw.decode("utf-8", "replace"), "a line of the log")
    except InputError:
        return ()
    if not isinstance(line, dict) or fields.marks.isdisjoint(line):
        return ()
    texts = (_value(line, field) for field in fields.texts)
    whole = "\n".join(text.rstrip("\n") for text in texts if isinstance(text, str))
    return tuple(each.encode("utf-8", "replace") for each in whole.split("\n")) if whole else ()


def _value(line: Mapping[str, Any], field: str) -> Any:
    """Return the value of a field; `error.stack_trace` may be one name, or a field inside another."""
    outer, _, inner = field.partition(".")
    below = line.get(outer) if inner else None
    return below.get(inner) if isinstance(below, dict) else line.get(field)
