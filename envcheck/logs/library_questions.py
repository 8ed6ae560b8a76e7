"""Questions that the exception of a failure asks the knowledge about published libraries. Pure.

Either a library raised it itself, and its message is one of those that its code holds; or Python raised it
for an attribute that an object lacks, or for parameters that a function does not take.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from envcheck.logs.events import Event, Frame, Raised, without_wrapper

_ATTRIBUTE = re.compile(r"(?:type object )?'(?P<owner>\w+)'(?: object)? has no attribute '(?P<name>\w+)'")
_BARE_ATTRIBUTE = re.compile(r"[a-z_]\w{3,}$")
"""Message of `del model.x`, which names the attribute alone."""

_CALL = re.compile(
    r"(?P<function>\w+(?:\.\w+)?)\(\) (?:"
    r"takes (?:from )?\d+ (?:to \d+ )?positional arguments? but \d+ (?:was|were) given"
    r"|missing \d+ required (?:positional|keyword-only) arguments?: "
    r"|got an unexpected keyword argument '(?P<keyword>\w+)'"
    r"|got multiple values for argument )"
)
_VALIDATED = re.compile(r"(?P<word>Value error|Assertion failed), (?P<message>.*?)(?: \[type=|$)")
_VALIDATED_AS = {"Value error": "ValueError", "Assertion failed": "AssertionError"}

_UNDEFINED = re.compile(r"(?:free variable|name) '(?P<name>\w+)' is not defined")

_NONE = re.compile(
    r"'NoneType' object (?:has no attribute '(?P<name>\w+)'|is not (?P<not>subscriptable|iterable|callable))"
    r"|cannot unpack non-iterable (?P<unpacked>NoneType) object"
)
_EXPRESSION = r"([A-Za-z_][\w.]*(?:\[[^\[\]]{1,40}\])?)"

_PYTHONS_OWN = frozenset(
    {"NoneType", "str", "int", "float", "list", "dict", "tuple", "set", "bool", "bytes", "function", "module"}
    | {"type", "generator", "method", "builtin_function_or_method"}
)
"""Classes that have the same attributes whatever is installed."""


class RaisedText(NamedTuple):
    """Class and message of an exception, and the innermost frame if it is known."""

    exception: str
    message: str
    place: Frame | None


class MissingAttribute(NamedTuple):
    """Class, the attribute that an object of it lacks, and the innermost frame; the class may be unknown."""

    owner: str
    name: str
    place: Frame | None = None


class UndefinedName(NamedTuple):
    """Name that a module uses and does not define, and the frame that uses it, if it is known."""

    name: str
    place: Frame | None


class RefusedCall(NamedTuple):
    """Function, the keyword that it does not take (empty for another mistake), and the innermost frame."""

    function: str
    keyword: str
    place: Frame | None


def raised_texts(event: Event) -> tuple[RaisedText, ...]:
    """Return the exceptions of an event; one that pydantic reports is the validator's own.

    A wrapper that only quotes another exception is left out.
    """
    return tuple(
        _raised_text(raised)
        for raised in event.exceptions
        if without_wrapper(raised.message) == raised.message
    )


def _raised_text(raised: Raised) -> RaisedText:
    if raised.name.endswith("ValidationError") and (found := _VALIDATED.search(raised.message)):
        return RaisedText(_VALIDATED_AS[found["word"]], found["message"], None)
    return RaisedText(raised.name, raised.message, raised.place)


def missing_attribute(event: Event) -> MissingAttribute | None:
    """Return the attribute that the first exception which names one reports as missing."""
    for raised in event.exceptions:
        found = _ATTRIBUTE.match(without_wrapper(raised.message))
        if found and found["owner"] not in _PYTHONS_OWN:
            return MissingAttribute(found["owner"], found["name"], raised.place)
        if raised.name.endswith("AttributeError") and _BARE_ATTRIBUTE.match(raised.message):
            return MissingAttribute("", raised.message, raised.place)
    return None


def undefined_name(event: Event) -> UndefinedName | None:
    """Return the first name that an exception reports as not defined."""
    for raised in event.exceptions:
        found = _UNDEFINED.match(raised.message)
        if raised.name.endswith("NameError") and found:
            return UndefinedName(found["name"], raised.place)
    return None


def refused_call(event: Event) -> RefusedCall | None:
    """Return the first call with other parameters than the function takes."""
    for raised in event.exceptions:
        if raised.name.endswith("TypeError") and (found := _CALL.match(raised.message)):
            return RefusedCall(found["function"], found["keyword"] or "", raised.place)
    return None


def expression_that_is_none(event: Event) -> str:
    """Return the expression that is None, as the line of code shows it; empty if that is not certain."""
    for raised in event.exceptions:
        found = _NONE.match(raised.message)
        if found is None or not raised.source:
            continue
        if found["unpacked"]:
            shown = [f"{call}()" for call in re.findall(r"(?<![=!<>])= ?([A-Za-z_][\w.]*)\(", raised.source)]
        elif found["name"]:
            shown = re.findall(rf"{_EXPRESSION}\.{re.escape(found['name'])}\b", raised.source)
        elif found["not"] == "subscriptable":
            shown = [raised.marked] if raised.marked else re.findall(rf"{_EXPRESSION}\[", raised.source)
        elif found["not"] == "iterable":
            shown = re.findall(rf"\bin {_EXPRESSION}(?=[:\])]|$)", raised.source)
        else:
            shown = [raised.marked] if raised.marked else re.findall(rf"{_EXPRESSION}\(", raised.source)
        return shown[0] if len({*shown}) == 1 else ""
    return ""
