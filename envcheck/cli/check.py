"""`envcheck check`: judge dependency files before anything is installed."""

from __future__ import annotations

from typing import Annotated

from envcheck.cli import options, output
from envcheck.cli.declaration import CommandArgument, CommandOption
from envcheck.core.sanitize import inline
from envcheck.host import machine as host

FilesArgument = Annotated[
    list[str],
    CommandArgument(
        metavar="FILE...",
        help="requirements.txt, pyproject.toml, environment.yml, a Dockerfile, or a lock: pylock.toml, "
        "uv.lock, poetry.lock, pdm.lock, pixi.lock, conda-lock.yml; a folder with such files; or "
        "requirements such as torch==2.6.0. '-' is standard input: lines of a requirements.txt, such as pip "
        "freeze prints.",
        callback=options.announced,
    ),
]
PythonVersionOption = Annotated[
    str,
    CommandOption("--python-version", metavar="X.Y", help="Python version the packages are installed for."),
]


def command(
    files: FilesArgument,
    target: options.Target = None,
    train: options.Train = None,
    driver: options.Driver = None,
    gpus: options.Gpu = None,
    machines: options.Machine = None,
    python_version: PythonVersionOption = "",
    as_json: options.Json = False,
    report_format: options.ReportFormat = "",
    file: options.ReportFile = "",
    fail_on: options.GateFailOn = None,
    undecided: options.UndecidedRules = None,
    strict: options.Strict = False,
    only: options.Only = None,
    skip: options.Skip = None,
    overlays: options.Matrix = None,
    lang: options.Lang = None,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> int:
    """Judge what dependency files would install, before it is installed; name the line that causes a finding.

    Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 wrong usage or unreadable input.
    """
    from envcheck.commands import check, gate, user_settings
    from envcheck.core.findings import Question

    report_format = output.choose_format(as_json=as_json, report_format=report_format, file=file)
    verbosity = output.verbosity(report_format, verbose=verbose, quiet=quiet)
    language = user_settings.choose_language(lang, host.Host())
    request = options.examine_request(target=target, train=train, driver=driver, gpus=gpus, overlays=overlays)
    gate_options = gate.GateOptions(
        machines=tuple(machines or ()),
        fail_on=fail_on.severity if fail_on else None,
        undecided=undecided.value if undecided else "",
        strict=strict,
        only=tuple(only or ()),
        skip=tuple(skip or ()),
    )
    checked = check.check(files, request, gate_options, language, python_version)
    report = checked.report._replace(question=Question.CHECK, verbosity=verbosity)
    if output.write_report(report, report_format, file) and report_format != "github" and not quiet:
        for patch in checked.patches:
            heading = report.language.say("Edit that passes (apply it with: patch -p0):")
            output.print_data(f"\n{heading}\n{patch}")
    for remark in () if quiet else checked.remarks if verbose else checked.summary:
        output.print_message(inline(report.language.translate(remark)))
    return checked.decision.code
