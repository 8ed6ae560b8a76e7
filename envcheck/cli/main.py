"""The command line's entry: the table of commands, the error boundary and the exit codes.

Each command is a module of this package, named like the command. The module defines `command`, a function
whose parameters are declared as options and arguments and whose docstring is the help text. Only the module
of the called command is imported, and typer only if `plain_words` cannot read the arguments. Importing all
modules, or typer, would take longer than the command's own work.
"""

from __future__ import annotations

import importlib
import itertools
from types import ModuleType

from envcheck.cli import completion, plain_words
from envcheck.cli.output import in_language, print_data, print_message
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
        code = _call(arguments)
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
        if isinstance(error, EnvcheckError) and not isinstance(error, InputError):
            message = _in_the_users_language(message, arguments)
        print_message(f"envcheck: {message}")
    if code == _INTERRUPTED:  # typer catches most interrupts itself and returns this code
        print_message("envcheck: interrupted")
    return code


def _call(arguments: list[str]) -> int:
    """Call the command that the arguments name; use typer only if they cannot be read without it."""
    if arguments and arguments[0] in COMMANDS and not completion.is_asked_for():
        module = command_module(arguments[0])
        if not hasattr(module, "CONTEXT_SETTINGS"):
            given = plain_words.parse(module.command, arguments[1:])
            if given is not None:
                code: int = module.command(**given)
                return code
    from envcheck.cli.program import build_program

    return build_program(arguments)(arguments or ["--help"], prog_name="envcheck", standalone_mode=False) or 0


def _in_the_users_language(answer: str, arguments: list[str]) -> str:
    """Translate an error that answers the question of a command, such as that there is no torch to test.

    Errors of usage stay English, because people search for them.
    """
    words = list(itertools.takewhile(lambda word: word != "--", arguments))
    given = [word.partition("=")[2] for word in words if word.startswith("--lang=")]
    given += [word for option, word in itertools.pairwise(words) if option == "--lang"]
    try:
        return in_language(answer, given[-1] if given else None)
    except EnvcheckError:
        return answer


def command_module(name: str) -> ModuleType:
    """Import and return the module of a command.

    It has `command`, and `CONTEXT_SETTINGS` where click must parse its arguments in another way.
    """
    return importlib.import_module(f"envcheck.cli.{name}")


def _error_line(error: Exception) -> tuple[str, int]:
    """Return one line that describes an error, and its exit code."""
    if isinstance(error, InputError):
        return inline(str(error)), error.code  # a file name may contain a line feed
    if isinstance(error, EnvcheckError):
        return str(error), error.code
    if hasattr(error, "format_message"):  # click's own exceptions
        from envcheck.cli import usage_errors

        return usage_errors.describe(error), _USAGE_ERROR
    internal = f"internal error: {type(error).__name__}: {error} (ENVCHECK_DEBUG=1 shows where)"
    return internal, _INTERNAL_ERROR
