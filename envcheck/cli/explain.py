"""`envcheck explain`: find the cause of a failure in a log."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

from envcheck.cli import options, output
from envcheck.cli.declaration import CommandArgument, CommandOption
from envcheck.host import machine as host

if TYPE_CHECKING:
    from envcheck.reports.explanation import Explanation


class LogFormat(Enum):
    """How an explanation is written."""

    TEXT = "text"
    JSON = "json"


LogArgument = Annotated[
    str,
    CommandArgument(
        metavar="[LOG]",
        help="Log file, gzipped or not; '-' is standard input. Words that name no file are the message "
        "itself.",
    ),
]
FormatOption = Annotated[LogFormat, CommandOption("--format", help="text for people, or json for programs.")]


def command(
    log: LogArgument = "-",
    python: options.Python = None,
    static: options.Static = False,
    target: options.Target = None,
    train: options.Train = None,
    facts: options.Facts = None,
    driver: options.Driver = None,
    gpus: options.Gpu = None,
    log_format: FormatOption = LogFormat.TEXT,
    as_json: options.Json = False,
    timeout: options.ProbeTimeout = 10.0,
    overlays: options.Matrix = None,
    lang: options.Lang = None,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> int:
    """Find the first cause of a failure in a log, explain it, and check whether it applies to an environment.

    The environment is the one named by options, otherwise the one the log describes, otherwise doctor's.
    Exit codes: 0 no failure in the log, 1 a failure that is explained, 2 wrong usage or unreadable input,
    3 a failure for which no explanation is known, or an empty log.
    """
    from envcheck.commands import explain, user_settings
    from envcheck.reports import explanation

    request = options.examine_request(
        python=python,
        static=static,
        facts=facts,
        target=target,
        train=train,
        driver=driver,
        gpus=gpus,
        timeout=timeout,
        overlays=overlays,
    )
    request = user_settings.with_settings(request, user_settings.read_settings())
    report_format = LogFormat.JSON.value if as_json else log_format.value
    verbosity = output.verbosity(report_format, verbose=verbose, quiet=quiet)
    output.announce_standard_input([log])
    explained = explain.explain_log(request, log, host.Host())
    if report_format == LogFormat.JSON.value:
        output.print_data(output.json_text(explanation.tree(explained)))
    else:
        output.print_data(
            output.in_language(explanation.render(in_language(explained, lang), verbosity), lang)
        )
    return explained.code


def in_language(explained: Explanation, lang: str | None) -> Explanation:
    """Return the explanation with the language in which it is shown. Raises InputError."""
    from envcheck.commands import user_settings

    report = explained.report
    language = user_settings.choose_language(lang, host.Host()).without(report.matrix.overlaid())
    return explained._replace(report=report._replace(language=language))
