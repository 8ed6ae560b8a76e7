"""What `jq` and `yq` change in a configuration: `.zero_optimization.stage = 2`, `del(.fp16)`. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envcheck.core.errors import InputError
from envcheck.core.facts import Unknown
from envcheck.core.parsing import parse_json
from envcheck.core.patterns import pattern
from envcheck.core.records import NamedTuple

HOLE = "\ue000"
"""What stands for a part of a word that is not known."""


class Edit(NamedTuple):
    """A change of one setting, by its dotted name; an Unknown value may be anything, or none at all."""

    name: str
    value: Any = None
    deletes: bool = False


_STEP = r'(?:\.[A-Za-z_][\w-]*|\.?\[?"[^"\\]+"\]?|\[[0-9]+\])'
_TEXT = r'"(?:[^"\\]|\\.)*"'
_PATH_OR_TEXT = pattern(rf'(?P<path>\.(?:[A-Za-z_][\w-]*|\[?"[^"\\]+"\]?){_STEP}*)|{_TEXT}')
"""A path in a filter of any kind, which begins with a dot, or a text, in which there is none."""

_PARTS = pattern(r'"([^"\\]+)"|([A-Za-z_][\w-]*)|\[([0-9]+)\]')
_ASSIGNS = pattern(
    rf"(?P<path>\.?{_STEP}+)\s*(?P<sign>=|\|=|\+=|-=|\*=|/=|//=)(?!=)\s*(?P<value>.+)", re.DOTALL
)
_DELETES = pattern(rf"del\(\s*(?P<paths>\.?{_STEP}+(?:\s*,\s*\.?{_STEP}+)*)\s*\)")
_OPTIONS_WITH_WORDS: Mapping[str, int] = {
    "--arg": 2, "--argjson": 2, "--indent": 1, "-I": 1, "-o": 1, "-p": 1, "--output-format": 1,
    "--input-format": 1,
}  # fmt: skip
_OF_OTHER_INPUT = frozenset({
    "-n", "--null-input", "-s", "--slurp", "-R", "--raw-input", "-f", "--from-file", "--slurpfile",
    "--rawfile", "--args", "--jsonargs", "eval-all", "ea",
})  # fmt: skip
"""Options and subcommands with which a filter does more than to change one file."""

_SUBCOMMANDS = ("eval", "e")
_MOST_EDITS = 200  # of one command
_MOST_PARTS = 32  # of a path
_PAIRS = {"(": ")", "[": "]", "{": "}"}


def edits(words: Sequence[str], why: str) -> list[Edit]:
    """Return the changes that a command makes; `words` are those behind the program, without the file.

    If the filter does something else as well, only the settings that it names are Unknown, for the reason
    `why`; the name of the first of them is "" if it may change any setting.
    """
    variables: dict[str, Any] = {}
    rest = [*words]
    while rest and (rest[0].startswith("-") or rest[0] in (*_SUBCOMMANDS, *_OF_OTHER_INPUT)):
        option = rest.pop(0)
        if option in _OF_OTHER_INPUT:
            return [Edit("", Unknown(why))]
        taken = [rest.pop(0) for _ in range(min(_OPTIONS_WITH_WORDS.get(option, 0), len(rest)))]
        if option in ("--arg", "--argjson") and len(taken) == 2:  # noqa: PLR2004 - name and value
            variables[taken[0]] = _argument(taken[1], why, is_json=option == "--argjson")
    if len(rest) != 1:
        return [Edit("", Unknown(why))] if rest else []
    found: list[Edit] = []
    for stage in _split(rest[0], "|"):
        changes = _changes(stage.strip(), variables, why)
        if changes is None:
            return _of_named(rest[0], why)
        found += changes
    return found[:_MOST_EDITS]


def _argument(text: str, why: str, *, is_json: bool) -> Any:
    if HOLE in text:
        return Unknown(why)
    return _literal(text, {}, why) if is_json else text


def _of_named(text: str, why: str) -> list[Edit]:
    """Return as Unknown the settings that a filter names, and all others if it may change them."""
    paths = [found["path"] for found in _PATH_OR_TEXT.finditer(text) if found["path"]]
    named = [name for path in paths[:_MOST_EDITS] if (name := _name(path))]
    return [Edit("", Unknown(why)), *(Edit(name, Unknown(why)) for name in named)]


def _changes(stage: str, variables: Mapping[str, Any], why: str) -> list[Edit] | None:
    """Return the changes of one stage of a filter, or None if it does something else."""
    if stage in (".", ""):
        return []
    if found := _DELETES.fullmatch(stage):
        names = [_name(path) for path in found["paths"].split(",")]
        return [Edit(name, None, deletes=True) for name in names] if all(names) else None
    found = _ASSIGNS.fullmatch(stage)
    name = "" if found is None or HOLE in found["path"] else _name(found["path"])
    if found is None or not name:
        return None
    sets = found["sign"] in ("=", "|=")
    value = _literal(found["value"].strip(), variables, why) if sets else Unknown(why)
    return [Edit(name, value)]


def _literal(text: str, variables: Mapping[str, Any], why: str) -> Any:
    """Return the value that a text spells, or Unknown."""
    if text.startswith("$"):
        return variables.get(text[1:], Unknown(why))
    if HOLE in text:
        return Unknown(why)
    try:
        return parse_json(text, "")
    except InputError:
        return Unknown(why)


def _name(path: str) -> str:
    """Return the dotted name of `.a["b"].c[0]`; a part with a dot in it keeps its quotes.

    A path that is deeper than any configuration gets the name "", which stands for any setting.
    """
    parts = [quoted or plain or index for quoted, plain, index in _PARTS.findall(path)]
    if len(parts) > _MOST_PARTS:
        return ""
    return ".".join(f'"{part}"' if "." in part else part for part in parts)


def _split(text: str, mark: str) -> Iterator[str]:
    """Yield the parts of a filter between marks that are in no brackets or quotes, and begin no `|=`."""
    start, i = 0, 0
    open_brackets: list[str] = []
    while i < len(text):
        char = text[i]
        if char == '"':
            i += 1
            while i < len(text) and text[i] != '"':
                i += 2 if text[i] == "\\" else 1
        elif char in _PAIRS:
            open_brackets.append(_PAIRS[char])
        elif open_brackets and char == open_brackets[-1]:
            open_brackets.pop()
        elif char == mark and not open_brackets and text[i + 1 : i + 2] != "=":
            yield text[start:i]
            start = i + 1
        i += 1
    yield text[start:]
