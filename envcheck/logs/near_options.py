"""Find which option or value a program means when argparse refuses another one. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from envcheck.logs.events import Event


class NearOption(NamedTuple):
    """Hold what a command line says, and the program's option or value that is spelt nearly like it."""

    given: str
    known: str


_REFUSED = re.compile(r": error: (?:unrecognized arguments: |no such option: )(?P<arguments>.{1,2000})")
_CHOICE = re.compile(
    r": error: argument [^:\n]{1,200}: invalid choice: '(?P<given>[^'\n]{1,100})' "
    r"\((?:choose from|maybe you meant) (?P<choices>[^\n]{1,2000})\)"
)
_OPTION = re.compile(r"(?<![\w-])--?[A-Za-z][\w-]*")
_QUOTED = re.compile(r"'?([\w.+-]+)'?")
_ALIKE = 0.85  # of the letters of two names
_MOST = 3  # refused options that are looked up
_LONGEST_USAGE = 20_000


def near_options(event: Event, log_text: str) -> tuple[NearOption, ...]:
    """Return the options of the usage, or the choices, that a refused command line comes near to.

    The usage stands above the message in `log_text`. A name that differs only in `-` and `_`, or in upper
    and lower case, comes first; else one that has most letters in common.
    """
    text = event.text
    if found := _CHOICE.search(text):
        near = _near(found["given"], _QUOTED.findall(found["choices"]))
        return (NearOption(found["given"], near),) if near else ()
    refused = _REFUSED.search(text)
    if refused is None:
        return ()
    return tuple(_in_usage(refused["arguments"], _options_of_usage(log_text, text)))


def _in_usage(arguments: str, known: Sequence[str]) -> Iterator[NearOption]:
    """Yield the refused options to which one of the usage comes near."""
    for given in _OPTION.findall(arguments)[:_MOST]:
        near = _near(given, known)
        if near and near != given:
            yield NearOption(given, near)


def _options_of_usage(log_text: str, message: str) -> list[str]:
    """Return the options of the usage that stands right above a message."""
    end = log_text.find(message.split("\n", 1)[0].strip())
    begin = log_text.rfind("usage: ", max(0, end - _LONGEST_USAGE), end) if end >= 0 else -1
    return [*dict.fromkeys(_OPTION.findall(log_text[begin:end]))] if begin >= 0 else []


def _near(given: str, known: Sequence[str]) -> str:
    """Return the name that comes nearest to what was given; empty if none comes near."""
    bare = _bare(given)
    alike = next((each for each in known if _bare(each) == bare), "")
    if alike:
        return alike
    import difflib

    by_letters = {_bare(each): each for each in known}
    close = difflib.get_close_matches(bare, by_letters, n=1, cutoff=_ALIKE)
    return by_letters[close[0]] if close else ""


def _bare(name: str) -> str:
    return name.lower().replace("_", "-")
