"""The command line's entry: the table of commands, the error boundary and the exit codes.

Each command is a module of this package, named like the command. The module defines `command`, a function
whose parameters typer turns into options and whose docstring is the help text. Only the module of the called
command is imported: building all commands would take a third of the start-up time.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

import typer

from envcheck.cli import completion
from envcheck.cli.output import print_data, print_message
from envcheck.core.errors import EnvcheckError, InputError
from envcheck.core.sanitize import inline
from envcheck.host.environment import environment_variable
from envcheck.host.signals import ProcessExit

COMMANDS = (
    "doctor",
    "facts",
    "pin",
    "gate",
    "check",
    "init",
    "selftest",
    "explain",
    "run",
    "fit",
    "fleet",
    "target",
    "rule",
    "matrix",
)
"""All commands, in the order in which `envcheck --help` lists them."""

_HELP = {"help_option_names": ["-h", "--help"]}
_USAGE_ERROR = 2
_INTERNAL_ERROR = 3
_INTERRUPTED = 128 + 2  # as a shell reports SIGINT


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code.

    An error becomes one line on stderr. With ENVCHECK_DEBUG set, it is raised with its traceback instead.
    """
    try:
        if arguments and arguments[0].partition("=")[0] in completion.OPTIONS:
            print_data(completion.completion(arguments))
            return 0
        program = build_program(arguments)
        code = program(arguments or ["--help"], prog_name="envcheck", standalone_mode=False) or 0
    except ProcessExit as end:
        print_message(f"envcheck: ended by {end.name}")
        return int(str(end.code))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else _USAGE_ERROR
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except Exception as error:
        if environment_variable("ENVCHECK_DEBUG"):
            raise
        message, code = _error_line(error)
        print_message(f"envcheck: {message}")
    if code == _INTERRUPTED:  # typer catches most interrupts itself and returns this code
        print_message("envcheck: interrupted")
    return code


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
        app.command(name, context_settings=settings, short_help=_summary(module))(module.command)
    program: Callable[..., int] = typer.main.get_command(app)
    return program


def command_module(name: str) -> ModuleType:
    """Import and return the module of a command.

    It has `command`, and `CONTEXT_SETTINGS` where click must parse its arguments in another way.
    """
    return importlib.import_module(f"envcheck.cli.{name}")


def _summary(module: ModuleType) -> str:
    """Return the first paragraph of a command's help; unlike one that click shortens, it is never cut."""
    return " ".join((module.command.__doc__ or "").partition("\n\n")[0].split())


def _program() -> None:
    """Predict whether this machine, this Python environment and this training configuration will train."""


def _needs_completion(arguments: list[str]) -> bool:
    """Return whether a shell asks for completions, or the user for the help or script that mentions them."""
    return arguments[:1] in ([], ["--help"], ["-h"]) or environment_variable(completion.VARIABLE) is not None


def _error_line(error: Exception) -> tuple[str, int]:
    """Return one line that describes an error, and its exit code."""
    if isinstance(error, InputError):
        return inline(str(error)), error.code  # a file name may contain a line feed
    if isinstance(error, EnvcheckError):
        return str(error), error.code
    usage = getattr(error, "format_message", None)  # click's own exceptions
    if callable(usage):
        message = " ".join(str(usage()).split())  # click lists the choices of a missing argument line by line
        return f"{message} (--help shows the options)", _USAGE_ERROR
    internal = f"internal error: {type(error).__name__}: {error} (ENVCHECK_DEBUG=1 shows where)"
    return internal, _INTERNAL_ERROR
