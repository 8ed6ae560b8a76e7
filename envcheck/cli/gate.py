"""`envcheck gate`: judge an environment under a policy and exit accordingly."""

from __future__ import annotations

from typing import Annotated

from envcheck.cli import options, output
from envcheck.cli.declaration import CommandOption
from envcheck.core.errors import InputError
from envcheck.host import machine as host

LockOption = Annotated[
    str,
    CommandOption(
        "--lock",
        metavar="FILE",
        help="Lock from which the environment was installed: report every difference from it.",
    ),
]
VerifyFilesOption = Annotated[
    bool, CommandOption("--verify-files", help="Compare every installed file with the hash in its RECORD.")
]
VerifyTimeoutOption = Annotated[
    float,
    CommandOption(
        "--verify-timeout", metavar="SECONDS", min=0.1, max=3600, help="Deadline for --verify-files."
    ),
]
RootOption = Annotated[
    str,
    CommandOption(
        "--root", metavar="FOLDER", help="Judge the unpacked image in this folder; run none of its code."
    ),
]
ManifestOption = Annotated[
    str,
    CommandOption(
        "--manifest",
        metavar="FILE",
        help="Write the manifest of what was judged to this file; 'none' writes none. "
        "Default in a container: /usr/share/envcheck/manifest.json.",
    ),
]
NoManifestOption = Annotated[
    bool,
    CommandOption(
        "--no-manifest", help="Write no manifest, even in a container. The same as --manifest none."
    ),
]
RuntimeOption = Annotated[
    bool,
    CommandOption(
        "--runtime",
        help="At start-up: check this machine's driver and GPUs against the manifest. Only --manifest, "
        "--timeout and --json are allowed with it.",
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
    machines: options.Machine = None,
    lock: LockOption = "",
    verify_files: VerifyFilesOption = False,
    verify_timeout: VerifyTimeoutOption = 300.0,
    root: RootOption = "",
    manifest: ManifestOption = "",
    no_manifest: NoManifestOption = False,
    runtime: RuntimeOption = False,
    as_json: options.Json = False,
    report_format: options.ReportFormat = "",
    file: options.ReportFile = "",
    fail_on: options.GateFailOn = None,
    undecided: options.UndecidedRules = None,
    strict: options.Strict = False,
    only: options.Only = None,
    skip: options.Skip = None,
    timeout: options.ProbeTimeout = 10.0,
    expect_gpus: options.ExpectGpus = None,
    overlays: options.Matrix = None,
    lang: options.Lang = None,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
) -> int:
    """Judge as `doctor` does, under a policy, so that a bad image fails its build and a bad node its job.

    Needs no GPU. Exit codes: 0 open, 1 shut by findings, 2 wrong usage or unreadable input,
    3 could not examine the environment (no torch in it, or a bug in envcheck).
    """
    from envcheck.commands import gate, user_settings
    from envcheck.core.findings import Question

    if runtime:
        return _run_runtime_gate(manifest)
    if no_manifest and manifest:
        raise InputError("--no-manifest", f"contradicts --manifest {manifest}")
    report_format = output.choose_format(as_json=as_json, report_format=report_format, file=file)
    verbosity = output.verbosity(report_format, verbose=verbose, quiet=quiet)
    language = user_settings.choose_language(lang, host.Host())
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
    gate_options = gate.GateOptions(
        machines=tuple(machines or ()),
        lock=lock,
        verify_s=verify_timeout if verify_files else None,
        manifest=gate.NO_MANIFEST if no_manifest else manifest,
        root=root,
        fail_on=fail_on.severity if fail_on else None,
        undecided=undecided.value if undecided else "",
        strict=strict,
        only=tuple(only or ()),
        skip=tuple(skip or ()),
    )
    outcome = gate.judge_image(request, gate_options, host.Host(), language)
    report = outcome.report._replace(question=Question.GATE, verbosity=verbosity)
    more_follows = output.write_report(report, report_format, file)
    if more_follows and outcome.decision.code == 0 and not quiet:
        output.print_data("".join(f"{line}\n" for line in gate.dockerfile_lines(outcome.tree)))
    gate.write_manifest(outcome, request, gate_options, host.Host(), output.print_message)
    return outcome.decision.code


def _run_runtime_gate(manifest: str) -> int:
    """Run the runtime gate, if `__main__` did not start it directly."""
    from envcheck.commands import gate_runtime

    return gate_runtime.run(["gate", "--runtime", *(["--manifest", manifest] if manifest else [])])
