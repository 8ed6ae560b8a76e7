"""How a command declares its options and arguments: the metadata of `Annotated` in its signature.

Typer's own declarations would import typer for every command line. That takes a third of doctor's time, and
half of it with typer 0.29, which imports pydantic. `plain_words` reads most command lines from these
declarations alone; `program` hands them to typer for all others, for help texts and for completion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypedDict, Unpack

    class DeclarationSettings(TypedDict, total=False):
        """Those keyword arguments of typer's `Option` and `Argument` that envcheck uses."""

        metavar: str
        help: str
        hidden: bool
        min: float
        max: float
        callback: Callable[[Any], Any]
        autocompletion: Callable[[str], list[str]]


class CommandParameter:
    """A declared option or argument: its `names` (an argument has none) and typer's settings for it."""

    def __init__(self, *names: str, **settings: Unpack[DeclarationSettings]) -> None:
        self.names = names
        self.settings = settings


class CommandOption(CommandParameter):
    """An option, such as `--python`."""


class CommandArgument(CommandParameter):
    """A word that belongs to no option; several if the parameter is a list."""
