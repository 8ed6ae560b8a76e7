"""Parse TOML, JSON and YAML from outside, within limits that are checked before the parser runs.

A library's parser may need a thousand times the memory of its input: tomllib keeps every prefix of a dotted
key, so 40 kB of dots took 1.6 GB. Each format has limits on size, depth and number of values, which no real
file comes near. Only files that envcheck ships are parsed without them.
"""

from __future__ import annotations

import re
from typing import Any

from envcheck.core.errors import InputError, Place

LARGEST = 4 << 20
"""The most characters in a TOML or JSON text."""

LARGEST_YAML = 1 << 20
"""The most characters in a YAML text, whose parser is the slowest."""

DEEPEST = 64
"""The most levels of nested tables and lists."""

MOST_KEY_PARTS = 32
"""The most parts of one dotted TOML key: `a.b.c` has three."""

TOO_DEEP = f"nested too deeply (more than {DEEPEST} levels)"
"""Said of a text that has more."""

_MOST_TABLES = 100_000  # tables, lists and further key parts of a TOML text: each takes a kilobyte in tomllib
_MOST_VALUES = 200_000  # in a TOML text, counted by equals signs and commas: tomllib takes up to 10 µs each
_MOST_YAML_NODES = 20_000

_KEY_PART = r"""(?:[\w-]++|"(?:[^"\\\n]|\\.)*+"|'[^'\n]*+')"""
# Python before 3.11.5 repeats a possessive group with a lookahead wrongly, unless the group is atomic.
_TOML_SYNTAX = rf"""(?xs)(?P<text>\"\"\"(?>[^"\\]|\\.|"(?!""))*+"{{3,5}} | '''(?>[^']|'(?!''))*+'{{3,5}})
    | (?P<long>(?:{_KEY_PART}[ \t]*+\.[ \t]*+){{{MOST_KEY_PARTS}}})
    | (?P<comment>\#[^\n]*+)
    | (?P<word>{_KEY_PART})
    | (?P<open>[\[{{]) | (?P<close>[\]}}]) | (?P<dot>\.) | (?P<value>[=,])"""
_JSON_SYNTAX = r'(?s)"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]'


def parse_toml(text: str, where: str, otherwise: str = "not TOML") -> dict[str, Any]:
    """Parse a TOML text; `where` is its name, and `otherwise` begins the message if it is not TOML.

    Raises:
        InputError: it is not TOML, or exceeds a limit; the message has line and column.
    """
    import tomllib

    check_toml(text, where)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"line (\d+), column (\d+)", str(error))
        place = f"{where}:{found[1]}:{found[2]}" if found else where
        raise InputError(place, f"{otherwise}: {str(error).partition(' (at ')[0].lower()}") from None
    except RecursionError:
        raise InputError(where, f"{otherwise}: nested too deeply") from None
    except ValueError as error:  # int() refuses thousands of digits
        raise InputError(where, f"{otherwise}: {str(error).partition(';')[0].lower()}") from None


def parse_json(text: str, where: str, largest: int = LARGEST) -> Any:
    """Parse a JSON text of at most `largest` characters; `where` is its name, for messages.

    Raises:
        InputError: it is not JSON, or exceeds a limit; the message has line and column.
    """
    import json

    check_json(text, where, largest)
    try:
        return json.loads(text.removeprefix("\ufeff"))
    except json.JSONDecodeError as error:
        raise InputError(f"{where}:{error.lineno}:{error.colno}", f"not JSON: {error.msg.lower()}") from None
    except RecursionError:
        raise InputError(where, "not JSON: nested too deeply") from None
    except ValueError as error:  # int() refuses thousands of digits
        raise InputError(where, f"not JSON: {str(error).partition(';')[0].lower()}") from None


def check_toml(text: str, where: str) -> None:
    """Check a TOML text against the limits, without parsing it.

    Raises:
        InputError: it exceeds one; the message has line and column.
    """
    _check_size(text, where, LARGEST)
    depth = tables = values = 0
    for token in re.finditer(_TOML_SYNTAX, text):
        match token.lastgroup:
            case "open":
                depth, tables = depth + 1, tables + 1
            case "close":
                depth = max(0, depth - 1)
            case "dot":
                tables += 1
            case "value":
                values += 1
            case "long":
                raise InputError(
                    _place(text, token.start(), where), f"a key of more than {MOST_KEY_PARTS} parts"
                )
            case _:
                continue
        if depth > DEEPEST:
            raise InputError(_place(text, token.start(), where), f"not TOML: {TOO_DEEP}")
        if tables > _MOST_TABLES or values > _MOST_VALUES:
            excess = f"{_MOST_TABLES} tables" if tables > _MOST_TABLES else f"{_MOST_VALUES} values"
            raise InputError(_place(text, token.start(), where), f"more than {excess} in one file")


def check_json(text: str, where: str, largest: int = LARGEST) -> None:
    """Check a JSON text against the limits, without parsing it.

    Raises:
        InputError: it exceeds one; the message has line and column.
    """
    _check_size(text, where, largest)
    if text.count("[") + text.count("{") <= DEEPEST:
        return
    depth = 0
    for token in re.finditer(_JSON_SYNTAX, text):
        if token[0] in "[{":
            depth += 1
            if depth > DEEPEST:
                raise InputError(_place(text, token.start(), where), f"not JSON: {TOO_DEEP}")
        elif token[0] in "]}":
            depth -= 1


def check_yaml(text: str, where: str) -> None:
    """Check a YAML text against the limits, by the events of the parser, which builds nothing.

    Raises:
        InputError: it exceeds a limit; the message has line and column.
        yaml.YAMLError: it is not YAML.
    """
    import yaml

    check_yaml_size(text, where)
    loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    depth = nodes = 0
    for event in yaml.parse(text, loader):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        nodes += isinstance(event, yaml.NodeEvent)
        if depth > DEEPEST or nodes > _MOST_YAML_NODES:
            mark: Any = event.start_mark
            what = f"not YAML: {TOO_DEEP}" if depth > DEEPEST else f"more than {_MOST_YAML_NODES} values"
            raise InputError(Place(where, mark.line + 1, mark.column + 1), what)


def yaml_error(error: Exception, where: str) -> InputError:
    """Return the input error that says what PyYAML refused, with line and column where it gives them.

    PyYAML 6.0.4 brought a limit of its own, 1,000 levels, which its scanner, reading ahead, can meet
    before the event at which the reader's own limit is passed.
    """
    mark: Any = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = getattr(error, "problem", None) or getattr(error, "context", None) or str(error)
    place = Place(where, mark.line + 1, mark.column + 1) if mark else Place(where)
    said = TOO_DEEP if "maximum nesting depth" in problem else " ".join(problem.split())
    return InputError(place, f"not YAML: {said}")


def check_yaml_size(text: str, where: str) -> None:
    """Check the size of a YAML text alone, for a reader that counts depth and values itself.

    Raises:
        InputError: it is too large.
    """
    _check_size(text, where, LARGEST_YAML)


def _check_size(text: str, where: str, largest: int) -> None:
    if len(text) > largest:
        raise InputError(where, f"longer than {largest} characters")


def _place(text: str, at: int, where: str) -> str:
    return f"{where}:{text.count(chr(10), 0, at) + 1}:{at - text.rfind(chr(10), 0, at)}"
