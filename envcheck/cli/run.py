"""`envcheck run`: run a command and explain its failure."""

from __future__ import annotations

from typing import Annotated

from envcheck.cli import options, output
from envcheck.cli.declaration import CommandArgument
from envcheck.core.sanitize import inline
from envcheck.host import machine as host

CONTEXT_SETTINGS = {"allow_interspersed_args": False}
"""Options that follow the command belong to that command, not to envcheck."""

_CANNOT_EXECUTE = 126  # as a shell reports it
_NOT_FOUND = 127

WordsArgument = Annotated[
    list[str],
    CommandArgument(
        metavar="-- COMMAND [ARG]…", help="The command to run, with its launcher, such as torchrun."
    ),
]


def command(
    arguments: WordsArgument,
    python: options.Python = None,
    target: options.Target = None,
    train: options.Train = None,
    facts: options.Facts = None,
    driver: options.Driver = None,
    gpus: options.Gpu = None,
    timeout: options.ProbeTimeout = 10.0,
    overlays: options.Matrix = None,
    lang: options.Lang = None,
) -> int:
    """Run a command as if it were started directly; if it fails, explain the failure on standard error.

    The exit code is the command's own. If a signal ended the command, envcheck ends by the same signal.
    126: the command cannot be executed, 127: it does not exist.
    """
    from envcheck.cli.explain import in_language
    from envcheck.commands import explain, user_settings
    from envcheck.host import pty_passthrough
    from envcheck.reports import explanation

    request = options.examine_request(
        python=python,
        facts=facts,
        target=target,
        train=train,
        driver=driver,
        gpus=gpus,
        timeout=timeout,
        overlays=overlays,
    )
    request = user_settings.with_settings(request, user_settings.read_settings())
    try:
        finished = explain.run(request, arguments, host.Host())
    except OSError as error:
        reason = (error.strerror or "cannot be run").lower()
        output.print_message(f"envcheck: {inline(arguments[0])}: {reason}")
        return _NOT_FOUND if isinstance(error, FileNotFoundError) else _CANNOT_EXECUTE
    if finished.trouble:
        output.print_message(f"\nenvcheck: the command's output could not be explained: {finished.trouble}")
    elif finished.explanation is not None:
        explained = in_language(finished.explanation, lang)
        text = output.in_language(explanation.render(explained), lang)
        output.print_message(f"\n{text}".rstrip())
    if finished.code < 0:
        pty_passthrough.die_by_signal(-finished.code)
        return 128 - finished.code
    return finished.code
