"""The command line as a typer program: for help texts, completion, usage errors and unusual spelling."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Annotated, Any, get_type_hints

import typer

from envcheck.cli import completion
from envcheck.cli.declaration import CommandOption, CommandParameter
from envcheck.cli.main import COMMANDS, command_module

_HELP = {"help_option_names": ["-h", "--help"]}


def build_program(arguments: list[str]) -> Callable[..., int]:
    """Return the click program: with the one command that the arguments name, or with all of them."""
    app = typer.Typer(
        add_completion=_needs_completion(arguments),
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings=_HELP,
    )
    app.callback()(_program)
    called = arguments[0] if arguments and arguments[0] in COMMANDS else None
    for name in (called,) if called else COMMANDS:
        module = command_module(name)
        settings = {**_HELP, **getattr(module, "CONTEXT_SETTINGS", {})}
        app.command(name, context_settings=settings, short_help=_summary(module))(for_typer(module.command))
    program: Callable[..., int] = typer.main.get_command(app)
    return program


def for_typer(command: FunctionType) -> FunctionType:
    """Return a copy of a command that has typer's declarations in its signature."""
    copy = FunctionType(
        command.__code__, command.__globals__, command.__name__, command.__defaults__, command.__closure__
    )
    copy.__doc__ = command.__doc__
    copy.__annotations__ = {
        name: Annotated[hint.__origin__, _declaration(hint.__metadata__[0])] if name != "return" else hint
        for name, hint in get_type_hints(command, include_extras=True).items()
    }
    return copy


def _declaration(parameter: CommandParameter) -> Any:
    declare = typer.Option if isinstance(parameter, CommandOption) else typer.Argument
    return declare(*parameter.names, **parameter.settings)


def _summary(module: ModuleType) -> str:
    """Return the first paragraph of a command's help in full; click would shorten it."""
    return " ".join((module.command.__doc__ or "").partition("\n\n")[0].split())


def _program() -> None:
    """Predict whether this machine, this Python environment and this training configuration will train."""


def _needs_completion(arguments: list[str]) -> bool:
    """Return whether a shell asks for completions, or help is shown that lists the completion options."""
    return arguments[:1] in ([], ["--help"], ["-h"]) or completion.is_asked_for()
