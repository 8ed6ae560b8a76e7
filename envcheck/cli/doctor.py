"""`envcheck doctor`: judge one environment and print the report."""

from __future__ import annotations

from typing import Annotated

from envcheck.cli import options, output
from envcheck.cli.declaration import CommandOption
from envcheck.core.rules import Severity
from envcheck.host import machine as host

FixOption = Annotated[
    bool,
    CommandOption(
        "--fix",
        help="Print the smallest change after which no finding at or above --fail-on is left. "
        "Changes nothing.",
    ),
]


def command(
    python: options.Python = None,
    static: options.Static = False,
    target: options.Target = None,
    train: options.Train = None,
    facts: options.Facts = None,
    driver: options.Driver = None,
    gpus: options.Gpu = None,
    as_json: options.Json = False,
    report_format: options.ReportFormat = "",
    file: options.ReportFile = "",
    fail_on: options.GateFailOn = None,
    timeout: options.ProbeTimeout = 10.0,
    fix: FixOption = False,
    expect_gpus: options.ExpectGpus = None,
    overlays: options.Matrix = None,
    lang: options.Lang = None,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> int:
    """Judge this machine, this environment and this training configuration.

    Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 wrong usage or unreadable input,
    3 could not examine the environment (no torch in it, or a bug in envcheck).
    """
    from envcheck.commands import examine, user_settings
    from envcheck.policy import decision

    report_format = output.choose_format(as_json=as_json, report_format=report_format, file=file)
    verbosity = output.verbosity(report_format, verbose=verbose, quiet=quiet)
    language = user_settings.choose_language(lang, host.Host())
    settings = user_settings.read_settings()
    threshold = settings.threshold if settings is not None else None
    severity = fail_on.severity if fail_on else threshold or Severity.ERROR
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
        expect_gpus=expect_gpus,
    )
    request = user_settings.with_settings(request, settings)
    report = examine.examine(request, host.Host(), severity if fix else None)
    report = report._replace(
        language=language.without(report.matrix.overlaid()), fail_on=severity, verbosity=verbosity
    )
    policy = decision.Policy(severity)
    if settings is not None:
        from envcheck.commands import gate

        policy = gate.combine_policy(gate.GateOptions(fail_on=severity), settings, report.matrix)
        report = decision.apply_policy(report, report.diagnostics, policy)
    output.write_report(report, report_format, file)
    return decision.decide(report, policy).code
