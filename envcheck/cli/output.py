"""Everything that a command writes: data on stdout or into a file, messages on stderr.

This module removes control characters and redacts secrets and home folders from all of it. The only
exceptions are `--version` and `gate --runtime`, which print without this module to start faster.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envcheck.core.errors import ExamineError, InputError
from envcheck.core.sanitize import clean, hide_private_keep_urls, inline, redact, sanitized
from envcheck.host.environment import environment_variable, home_folders, private_names
from envcheck.host.files import STDIN, append_file, check_replaceable, replace_file

if TYPE_CHECKING:
    from envcheck.core.findings import Report, Verbosity
    from envcheck.core.i18n import Language
    from envcheck.core.sanitize import Private

# --- reports ----------------------------------------------------------------------------------------


def choose_format(*, as_json: bool, report_format: str, file: str) -> str:
    """Return the name of the report's format, and check the options before the work begins.

    Raises:
        InputError: there is no such format, or the file cannot be written.
    """
    from envcheck.reports.render import format_for_file, format_named

    if as_json and report_format not in ("", "json"):
        raise InputError("--json", f"contradicts --format {report_format}")
    if file:
        check_replaceable(Path(file))
    if report_format:
        format_named(report_format)
    name = "json" if as_json else report_format
    if file:
        return "text" if name == "terminal" else name or format_for_file(file)
    coloured = sys.stdout is not None and sys.stdout.isatty() and not environment_variable("NO_COLOR")
    return name or ("terminal" if coloured else "text")


def verbosity(report_format: str, *, verbose: bool, quiet: bool) -> Verbosity:
    """Return the level of detail of a report.

    Raises:
        InputError: both options are given, or the format always says everything.
    """
    from envcheck.core.findings import Verbosity

    if verbose and quiet:
        raise InputError("--quiet", "contradicts --verbose")
    if quiet and report_format not in ("text", "terminal", "markdown", "github"):
        raise InputError("--quiet", f"contradicts --format {report_format}")
    return Verbosity.ALL if verbose else Verbosity.VERDICT if quiet else Verbosity.USUAL


def write_report(report: Report, report_format: str, file: str) -> bool:
    """Write a report to `file`, or to stdout if `file` is empty.

    Return whether further text for people may be printed on stdout. That is the case if the report went to
    a file or is itself text.
    """
    from envcheck.core.findings import Question
    from envcheck.reports.render import beside, rendered

    private = private_names()
    text = rendered(report_format, report, private)
    if file:
        save_data(text, file, report.language.name)
        if report.question is not Question.DOCTOR:
            _print_answer(report, private)
    else:
        print_data(text, coloured=report_format == "terminal")
    for variable, render in beside(report_format).items():
        if path := environment_variable(variable):
            append_file(Path(path), clean(render(sanitized(report, private))))
    return bool(file) or report_format in ("text", "terminal", "github")


def _print_answer(report: Report, private: Private) -> None:
    """Print the headline of a report that was written to a file."""
    from envcheck.reports.headline import headline

    print_data(f"{inline(headline(sanitized(report, private)).text)}\n")


# --- data -------------------------------------------------------------------------------------------


def json_text(tree: Any) -> str:
    """Return a tree as indented JSON that ends in a line feed."""
    return json.dumps(tree, indent=2) + "\n"


def print_data(text: str, *, coloured: bool = False) -> None:
    """Print data on stdout; a coloured text was cleaned before it was coloured.

    Raises:
        ExamineError: stdout is closed or cannot take the data. A pipe that its reader has closed is no error.
    """
    if sys.stdout is None:
        raise ExamineError("standard output is closed: nowhere to print")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a GBK terminal has no check mark
    try:
        sys.stdout.write(_redacted(text if coloured else clean(text)))
        sys.stdout.flush()
    except OSError as error:
        # Python flushes the buffered rest at exit, and that flush must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return  # as in `envcheck … | head`: the exit code stays what the command found
        reason = (error.strerror or "it cannot be written").lower()
        raise ExamineError(f"standard output: {reason}") from None


def write_data(text: str, file: str, lang: str | None = None, *, quiet: bool = False) -> None:
    """Write data to `file`, or to stdout if `file` is empty."""
    if file:
        save_data(text, file, lang, quiet=quiet)
    else:
        print_data(text)


def save_data(text: str, file: str, lang: str | None = None, *, quiet: bool = False) -> None:
    """Write data to a file, completely or not at all; unless `quiet`, print a message that says so."""
    replace_file(Path(file), _redacted(clean(text)))
    if not quiet:
        print_message(in_language(f"written to {inline(file)}", lang))


def _redacted(text: str) -> str:
    homes = home_folders()
    return redact(text, (*homes, *(json.dumps(home)[1:-1] for home in homes)))


def in_language(text: str, lang: str | None) -> str:
    """Translate an English text line by line; a line without a translation stays in English.

    Reports with their own language (`doctor`, `gate`, `check`) do not need this.

    Raises:
        InputError: there is no such language.
    """
    from envcheck.commands import user_settings
    from envcheck.host.machine import Host

    language = user_settings.choose_language(lang, Host())
    if not language.sentences:
        return text
    ending = "\n" if text.endswith("\n") else ""
    return "\n".join(_line_in(language, line) for line in text.splitlines()) + ending


def _line_in(language: Language, line: str) -> str:
    start = len(line) - len(line.lstrip())
    return line[:start] + language.translate(line[start:])


# --- messages ---------------------------------------------------------------------------------------


def print_message(message: str) -> None:
    """Print a line of progress or an error on stderr; do nothing if stderr is closed or full.

    The exit code carries the result as well, so a lost message must not change it.
    """
    with contextlib.suppress(OSError, AttributeError):  # Python sets a closed stream to None
        sys.stderr.write(f"{hide_private_keep_urls(clean(message), private_names())}\n")


@contextlib.contextmanager
def progress_line() -> Iterator[Callable[[str], None] | None]:
    """Yield a function that shows one changing line, cleared at the end; None if stderr is no terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield None
        return
    stream = sys.stderr

    def show(text: str) -> None:
        import shutil

        columns = max(shutil.get_terminal_size().columns - 1, 20)
        with contextlib.suppress(OSError):
            stream.write(f"\r\x1b[K{inline(clean(text))[:columns]}")
            stream.flush()

    try:
        yield show
    finally:
        with contextlib.suppress(OSError):
            stream.write("\r\x1b[K")
            stream.flush()


def announce_standard_input(arguments: Collection[str]) -> None:
    """Tell a person at a terminal that the command waits for input, if one of the arguments is `-`."""
    if STDIN in arguments and sys.stdin is not None and sys.stdin.isatty():
        print_message("reading standard input; Ctrl-D ends it")
