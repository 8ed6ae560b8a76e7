"""The command line: read options, call one use case, print, exit. No decisions here.

Everything that leaves envcheck leaves through `_emit` and `_complain`, which clean and redact it.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import sys
from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from envcheck.core.errors import EnvcheckError, ExamineError, InputError
from envcheck.core.findings import Report
from envcheck.core.rules import Severity
from envcheck.core.sanitize import clean, inline, presented, quoted, redact
from envcheck.host import machine as host

if TYPE_CHECKING:
    from envcheck.commands.examine import ExamineRequest
    from envcheck.core.i18n import Language
    from envcheck.policy.decision import Decision

PythonOption = Annotated[
    str | None,
    typer.Option(
        "--python",
        metavar="PATH",
        help="Interpreter or environment folder to examine. It is run with -I to ask where its packages lie, "
        "which runs its start-up files; --static never runs it.",
    ),
]
StaticOption = Annotated[
    bool, typer.Option("--static", help="Read the environment's files only; run nothing of it.")
]
TargetOption = Annotated[
    str | None, typer.Option("--target", metavar="NAME", help="The recipe to judge for.")
]
TrainOption = Annotated[
    list[str] | None,
    typer.Option(
        "--train",
        metavar="FILE",
        help="What is launched: a script, a trainer's YAML or JSON, DeepSpeed's JSON, or arguments such as "
        "'--use_lora true'. Repeatable; merged as the trainer merges them.",
    ),
]
FactsOption = Annotated[
    str | None,
    typer.Option("--facts", metavar="FILE", help="Judge this facts file (TOML or JSON), not this machine."),
]
DriverOption = Annotated[
    str | None,
    typer.Option("--driver", metavar="VERSION", help="Declare the NVIDIA driver where it will run."),
]
GpuOption = Annotated[
    list[str] | None,
    typer.Option("--gpu", metavar="NAME", help="Declare a GPU where it will run, or none. Repeatable."),
]
OverlayOption = Annotated[
    list[str] | None,
    typer.Option(
        "--matrix",
        metavar="FILE",
        help="Lay your own rules, targets, cells over the shipped ones. Repeatable.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
ReportFormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="text, json, markdown, html, sarif, junit, github. Default: what the name of -o says, or text.",
    ),
]
ReportFileOption = Annotated[
    str,
    typer.Option("-o", "--output", metavar="FILE", help="Write the report there, whole or not at all."),
]
DeadlineOption = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", min=0.1, max=600, help="Deadline of each probe.")
]

ExpectGpusOption = Annotated[
    int | None,
    typer.Option(
        "--expect-gpus",
        metavar="N",
        min=1,
        help="An error if fewer than N GPUs of this machine can be used; says which cannot.",
    ),
]
FromCurrentOption = Annotated[
    bool, typer.Option("--from-current", help="As near as can be to what is installed; what moves is told.")
]
FixOption = Annotated[
    bool,
    typer.Option(
        "--fix", help="Print the smallest change after which nothing at --fail-on is broken. Changes nothing."
    ),
]
LangOption = Annotated[
    str | None,
    typer.Option("--lang", metavar="LANG", help="Language of the report, such as zh. Default: the locale's."),
]


class FailOn(Enum):
    """The least severity that makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Undecided(Enum):
    """What an undecided rule does to the gate."""

    PASS = "pass"  # noqa: S105 - no password
    WARN = "warn"
    FAIL = "fail"


FailOnOption = Annotated[FailOn, typer.Option("--fail-on", help="Least severity that makes the exit code 1.")]
GateFailOnOption = Annotated[
    FailOn | None,
    typer.Option("--fail-on", help="Least severity that makes the exit code 1; error, or the settings'."),
]
UndecidedOption = Annotated[
    Undecided | None,
    typer.Option("--undecided", help="What undecided rules do: pass says nothing; warn, or the settings'."),
]
StrictOption = Annotated[
    bool, typer.Option("--strict", help="The same as --fail-on warning --undecided fail.")
]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only", metavar="RULE", help="Hold this rule alone; `lock:` is all that begin so. Repeatable."
    ),
]
SkipOption = Annotated[
    list[str] | None, typer.Option("--skip", metavar="RULE", help="Leave this rule out. Repeatable.")
]
MachineOption = Annotated[
    list[str] | None,
    typer.Option(
        "--machine",
        metavar="NAME",
        help="Judge for this declared machine; given twice, it must pass on both. Those of the settings.",
    ),
]


# --- commands ---------------------------------------------------------------------------------------


def doctor(
    python: PythonOption = None,
    static: StaticOption = False,
    target: TargetOption = None,
    train: TrainOption = None,
    facts: FactsOption = None,
    driver: DriverOption = None,
    gpu: GpuOption = None,
    as_json: JsonOption = False,
    written: ReportFormatOption = "",
    output: ReportFileOption = "",
    fail_on: FailOnOption = FailOn.ERROR,
    timeout: DeadlineOption = 10.0,
    fix: FixOption = False,
    expect_gpus: ExpectGpusOption = None,
    overlay: OverlayOption = None,
    lang: LangOption = None,
) -> int:
    """Judge this machine, this environment and this training configuration.

    Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 wrong use or unreadable input,
    3 could not examine (no torch there, or a bug).
    """
    from envcheck.commands import examine
    from envcheck.policy import decision

    form = _form(as_json, written, output)
    spoken = examine.spoken(lang, host.Host())
    report = examine.examine(
        _question(python, static, facts, target, train, driver, gpu, timeout, overlay, expect_gpus),
        host.Host(),
        Severity(fail_on.value) if fix else None,
    )
    report = report._replace(
        language=spoken.without(report.matrix.overlaid()), fail_on=Severity(fail_on.value)
    )
    _show(report, form, output)
    return decision.decide(report, decision.Policy(Severity(fail_on.value))).code


def gate(
    python: PythonOption = None,
    static: StaticOption = False,
    target: TargetOption = None,
    train: TrainOption = None,
    facts: FactsOption = None,
    driver: DriverOption = None,
    gpu: GpuOption = None,
    machine: MachineOption = None,
    lock: Annotated[
        str, typer.Option("--lock", metavar="FILE", help="What it was installed from: tell where it drifted.")
    ] = "",
    verify_files: Annotated[
        bool, typer.Option("--verify-files", help="Compare every file with the hash in its RECORD.")
    ] = False,
    verify_timeout: Annotated[
        float,
        typer.Option(
            "--verify-timeout", metavar="SECONDS", min=0.1, max=3600, help="Deadline of --verify-files."
        ),
    ] = 300.0,
    root: Annotated[
        str, typer.Option("--root", metavar="FOLDER", help="Judge an unpacked image; nothing of it is run.")
    ] = "",
    manifest: Annotated[
        str,
        typer.Option(
            "--manifest",
            metavar="FILE",
            help="Where to write what was judged, or none; in a container /usr/share/envcheck/manifest.json.",
        ),
    ] = "",
    runtime: Annotated[
        bool,
        typer.Option(
            "--runtime",
            help="At start: hold the driver and GPUs that are here against the manifest. With --manifest, "
            "--timeout and --json alone.",
        ),
    ] = False,
    as_json: JsonOption = False,
    written: ReportFormatOption = "",
    output: ReportFileOption = "",
    fail_on: GateFailOnOption = None,
    undecided: UndecidedOption = None,
    strict: StrictOption = False,
    only: OnlyOption = None,
    skip: SkipOption = None,
    timeout: DeadlineOption = 10.0,
    expect_gpus: ExpectGpusOption = None,
    overlay: OverlayOption = None,
    lang: LangOption = None,
) -> int:
    """Stop a bad image or a bad start: doctor's judgement under a policy, with an exit code to build on.

    Needs no GPU. Exit codes: 0 open, 1 shut by findings, 2 wrong use or unreadable input,
    3 could not examine (no torch there, or a bug).
    """
    from envcheck.commands import examine, gate

    if runtime:  # `__main__` takes it before it comes here
        from envcheck.commands import gate_runtime as starts

        return starts.run(["gate", "--runtime", *(["--manifest", manifest] if manifest else [])])
    form = _form(as_json, written, output)
    spoken = examine.spoken(lang, host.Host())
    question = _question(python, static, facts, target, train, driver, gpu, timeout, overlay, expect_gpus)
    wanted = gate.GateOptions(
        tuple(machine or ()),
        lock,
        verify_timeout if verify_files else None,
        manifest,
        root,
        Severity(fail_on.value) if fail_on else None,
        undecided.value if undecided else "",
        strict,
        tuple(only or ()),
        tuple(skip or ()),
    )
    passed = gate.judge_image(question, wanted, host.Host(), spoken)
    talks = _show(passed.report, form, output)
    if talks and passed.decision.code == 0:
        _emit("".join(f"{line}\n" for line in gate.advice(passed.tree)))
    gate.leave(passed, question, wanted, host.Host(), _remark)
    return _decided(passed.decision, spoken, quiet=not talks)


def check(
    files: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...",
            help="requirements.txt, pylock.toml, environment.yml, pyproject.toml or a Dockerfile.",
        ),
    ],
    target: TargetOption = None,
    train: TrainOption = None,
    driver: DriverOption = None,
    gpu: GpuOption = None,
    machine: MachineOption = None,
    python_version: Annotated[
        str, typer.Option("--python-version", metavar="X.Y", help="The Python it will be installed for.")
    ] = "",
    as_json: JsonOption = False,
    written: ReportFormatOption = "",
    output: ReportFileOption = "",
    fail_on: GateFailOnOption = None,
    undecided: UndecidedOption = None,
    strict: StrictOption = False,
    only: OnlyOption = None,
    skip: SkipOption = None,
    overlay: OverlayOption = None,
    lang: LangOption = None,
) -> int:
    """Judge what files say shall be installed, before it is; names the line that brings the trouble.

    Exit codes: 0 nothing at or above --fail-on, 1 findings, 2 wrong use or unreadable input.
    """
    from envcheck.commands import check, examine, gate

    form = _form(as_json, written, output)
    spoken = examine.spoken(lang, host.Host())
    question = _question(target=target, train=train, driver=driver, gpu=gpu, overlay=overlay)
    wanted = gate.GateOptions(
        machines=tuple(machine or ()),
        fail_on=Severity(fail_on.value) if fail_on else None,
        undecided=undecided.value if undecided else "",
        strict=strict,
        only=tuple(only or ()),
        skip=tuple(skip or ()),
    )
    checked = check.check(files, question, wanted, spoken, python_version)
    for remark in checked.remarks:
        _remark(inline(remark))
    talks = _show(checked.report, form, output)
    if talks:
        _emit("".join(f"{line}\n" for line in checked.lines))
    return _decided(checked.decision, spoken, quiet=not talks)


def init(
    file: Annotated[
        str, typer.Argument(metavar="[FILE]", help="Where to write it; - prints it.")
    ] = "envcheck.toml",
) -> int:
    """Write a settings file: every setting as a comment, with what it does.

    Exit codes: 0 written, 2 there is such a file already.
    """
    from pathlib import Path

    from envcheck.policy import settings

    if file == "-":
        _emit(settings.TEMPLATE)
        return 0
    if Path(file).exists():
        raise InputError(file, "is there already; name another file, or - to print it")
    _save(settings.TEMPLATE, file)
    return 0


def facts(
    python: PythonOption = None,
    static: StaticOption = False,
    train: TrainOption = None,
    diff: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--diff", metavar="A B", help="Two facts files: what differs, and what that breaks. - is here."
        ),
    ] = None,
    name: Annotated[
        bool, typer.Option("--name", help="On one line, with this node's name in it: a record for fleet.")
    ] = False,
    as_json: JsonOption = False,
    timeout: DeadlineOption = 10.0,
) -> int:
    """Print the inventory as JSON, which `doctor --facts` judges anywhere; or tell two inventories apart.

    Exit codes: 0 printed, 1 with --diff if an error is found in B and not in A, 2 wrong use or unreadable
    input, 3 could not examine.
    """
    from envcheck.commands import examine

    question = _question(python, static, train=train, timeout=timeout)
    if name:
        if diff is not None:
            raise InputError("--name", "contradicts --diff")
        from envcheck.commands import fleet

        _emit(json.dumps(fleet.own_facts(question, host.Host(), host.node_name())) + "\n")
        return 0
    if diff is None:
        inventory = presented(examine.inventory_report(question, host.Host()), host.private())
        _emit(json.dumps(inventory, indent=2) + "\n")
        return 0
    from envcheck.policy import decision
    from envcheck.reports import diff as report_diff

    one, other = (presented(each, host.private()) for each in examine.both(question, diff, host.Host()))
    found = report_diff.compare(one, other)
    text = json.dumps(report_diff.tree(found, one, other), indent=2) + "\n"
    _emit(text if as_json else report_diff.page(found, one, other))
    worse = other._replace(judgement=other.judgement._replace(findings=found.appear), nothing_to_judge="")
    return decision.decide(worse, decision.Policy()).code


# Named, not written out in the signature of pin: typer evaluates that four times, and a name costs nothing.
PinTargetOption = Annotated[str, typer.Option("--target", metavar="NAME", help="The recipe to lock for.")]
PythonVersionOption = Annotated[
    str | None,
    typer.Option("--python-version", metavar="X.Y", help="Python of the lock; the examined one's."),
]
PlatformOption = Annotated[
    str | None,
    typer.Option("--platform", metavar="OS-ARCH", help="Declare linux-x86_64 or linux-aarch64."),
]
GlibcOption = Annotated[
    str | None, typer.Option("--glibc", metavar="2.N", help="Declare the C library where it will run.")
]
ResolveOption = Annotated[
    bool, typer.Option("--resolve", help="Resolve anew, even where a shipped lock fits.")
]
OfflineOption = Annotated[
    bool, typer.Option("--offline", help="Serve shipped locks only; never use the network.")
]
OutputOption = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Write it there, whole or not at all; '> FILE' empties the file before anything runs.",
    ),
]
FormatOption = Annotated[
    str,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help="requirements (with hashes), pylock (PEP 751), constraints (versions alone) or "
        "uv ([tool.uv] for pyproject.toml).",
    ),
]
RequirementOption = Annotated[
    list[str] | None,
    typer.Option("-r", "--requirement", metavar="FILE", help="Your own requirements too. Repeatable."),
]
WithOption = Annotated[
    list[str] | None,
    typer.Option("--with", metavar="REQ", help="One more requirement, such as 'trl>=0.20'. Repeatable."),
]
KeepOption = Annotated[
    list[str] | None,
    typer.Option("--keep", metavar="NAME", help="Keep the version that is installed. Repeatable."),
]
ModelOption = Annotated[
    list[str] | None,
    typer.Option("--model", metavar="TYPE", help="A transformers that knows this model_type. Repeatable."),
]
ExcludeNewerOption = Annotated[
    str, typer.Option("--exclude-newer", metavar="DATE", help="Nothing uploaded after that day (UTC).")
]
PreferOption = Annotated[
    str,
    typer.Option("--prefer", metavar="WHAT", help="measured (combinations that were run) or newest."),
]
EngineOption = Annotated[
    str,
    typer.Option("--engine", metavar="NAME", help="uv, pip-tools, or both to see where they differ."),
]
ConstraintsOnlyOption = Annotated[
    bool, typer.Option("--constraints-only", help="The same as --format constraints.")
]
ShowIndexOption = Annotated[
    bool, typer.Option("--show-index", help="pylock: addresses on your own index may be written.")
]


def pin(
    target: PinTargetOption,
    driver: DriverOption = None,
    gpu: GpuOption = None,
    python_version: PythonVersionOption = None,
    platform: PlatformOption = None,
    glibc: GlibcOption = None,
    python: PythonOption = None,
    static: StaticOption = False,
    resolve: ResolveOption = False,
    offline: OfflineOption = False,
    output: OutputOption = "",
    written: FormatOption = "requirements",
    files: RequirementOption = None,
    besides: WithOption = None,
    keep: KeepOption = None,
    model: ModelOption = None,
    until: ExcludeNewerOption = "",
    prefer: PreferOption = "measured",
    engine: EngineOption = "",
    from_current: FromCurrentOption = False,
    own_index: ShowIndexOption = False,
    constraints_only: ConstraintsOnlyOption = False,
    timeout: DeadlineOption = 10.0,
    overlay: OverlayOption = None,
) -> int:
    """Print a lock that fits this machine (or the one declared): requirements.txt with hashes.

    Exit codes: 0 a lock was printed, 2 wrong use, 3 an engine failed, 4 no versions fit.
    """
    from envcheck.commands import pin

    question = _question(
        python, static, None, target, driver=driver, gpu=gpu, timeout=timeout, overlay=overlay
    )._replace(platform=platform, glibc=glibc)
    if constraints_only and written not in ("requirements", "constraints"):
        raise InputError("--constraints-only", f"contradicts --format {written}")
    order = pin.PinOptions(
        tuple(files or ()),
        tuple(besides or ()),
        tuple(keep or ()),
        tuple(model or ()),
        until,
        prefer,
        engine,
        "constraints" if constraints_only else written,
        output,
        own_index,
    )
    text, remarks = pin.pin(
        question,
        host.Host(),
        python_version,
        resolve=resolve,
        offline=offline,
        order=order,
        from_current=from_current,
    )
    for remark in remarks:
        _remark(remark)
    if output:
        _save(text, output)
    else:
        _emit(text)
    return 0


def target(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The recipe to show.")] = None,
    overlay: OverlayOption = None,
    lang: LangOption = None,
) -> int:
    """List the recipes, or show what one wants and implies.

    Exit codes: 0 printed, 2 wrong use or no such recipe.
    """
    from envcheck.commands import examine
    from envcheck.knowledge import rule_pages

    spoken = examine.spoken(lang, host.Host())
    _emit(rule_pages.target_page(name, examine.knowledge(overlay or ()), spoken))
    return 0


def rule(
    rule_id: Annotated[str | None, typer.Argument(metavar="[ID]", help="The rule to show.")] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List all rules.")] = False,
    overlay: OverlayOption = None,
    lang: LangOption = None,
) -> int:
    """Show a known failure: when it happens, how that is known, the ways out.

    Exit codes: 0 printed, 2 wrong use or no such rule.
    """
    from envcheck.commands import examine
    from envcheck.knowledge import rule_pages

    spoken = examine.spoken(lang, host.Host())
    _emit(rule_pages.rule_page(None if list_all else rule_id, examine.knowledge(overlay or ()), spoken))
    return 0


class Device(Enum):
    """Where self-tests run."""

    CPU = "cpu"
    CUDA = "cuda"


def selftest(
    target: TargetOption = None,
    level: Annotated[
        int | None,
        typer.Option(
            "--level",
            min=1,
            max=3,
            help="1: seconds; 2: also training-shaped, minutes; 3: also across ranks. 1, or 2 with --target.",
        ),
    ] = None,
    device: Annotated[
        Device | None, typer.Option("--device", help="cuda where there is a GPU, else cpu.")
    ] = None,
    python: PythonOption = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            "--ranks",
            metavar="N",
            min=1,
            max=1024,
            help="Processes of one test; torchrun and srun say it themselves.",
        ),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="A test or a variant. Repeatable.")
    ] = None,
    as_json: JsonOption = False,
    timeout: DeadlineOption = 10.0,
    overlay: OverlayOption = None,
) -> int:
    """Train a real step with this environment's own torch: does it do what its versions promise?

    Exit codes: 0 all that ran passed, 1 a test failed, 2 wrong use, 3 nothing could be tested,
    or a test is at fault.
    """
    from envcheck.commands import selftest
    from envcheck.selftest import outcome

    question = _question(python, target=target, timeout=timeout, overlay=overlay)
    wanted = selftest.SelftestOptions(
        level=level or (2 if target or only else 1),
        device=device.value if device else None,
        ranks=ranks,
        only=tuple(only or ()),
    )
    proved = selftest.selftest(question, wanted, host.Host())
    if proved.rank == 0:
        _emit(json.dumps(outcome.tree(proved), indent=2) + "\n" if as_json else outcome.render(proved))
    return proved.code


class LogFormat(Enum):
    """How an explanation is written."""

    TEXT = "text"
    JSON = "json"


LogFormatOption = Annotated[LogFormat, typer.Option("--format", help="json, or text for people.")]


def explain(
    log: Annotated[
        str, typer.Argument(metavar="[LOG]", help="The log, also gzipped; standard input if it is -.")
    ] = "-",
    python: PythonOption = None,
    static: StaticOption = False,
    target: TargetOption = None,
    train: TrainOption = None,
    facts: FactsOption = None,
    driver: DriverOption = None,
    gpu: GpuOption = None,
    written: LogFormatOption = LogFormat.TEXT,
    as_json: JsonOption = False,
    timeout: DeadlineOption = 10.0,
    overlay: OverlayOption = None,
) -> int:
    """Read the log of a failed run: the first cause, what is known of it, whether that holds here.

    Judges the environment that is named, else the one the log describes, else doctor's.
    Exit codes: 0 no failure in the log, 1 a failure that is explained, 2 wrong use or unreadable input,
    3 a failure that nothing known explains.
    """
    from envcheck.commands import explain
    from envcheck.reports import explanation

    question = _question(python, static, facts, target, train, driver, gpu, timeout, overlay)
    if log == explain.STDIN and sys.stdin is not None and sys.stdin.isatty():
        _remark("reading standard input; Ctrl-D ends it")
    told = explain.explained(question, log, host.Host())
    json_wanted = as_json or written is LogFormat.JSON
    _emit(json.dumps(explanation.tree(told), indent=2) + "\n" if json_wanted else explanation.render(told))
    return told.code


def run_command(
    command: Annotated[
        list[str], typer.Argument(metavar="-- COMMAND [ARG]…", help="What to run, such as torchrun and all.")
    ],
    python: PythonOption = None,
    target: TargetOption = None,
    train: TrainOption = None,
    facts: FactsOption = None,
    driver: DriverOption = None,
    gpu: GpuOption = None,
    timeout: DeadlineOption = 10.0,
    overlay: OverlayOption = None,
) -> int:
    """Run a command as if nobody stood between, and explain it on standard error if it fails.

    The exit code is the command's own, or its signal. 126 it may not be run, 127 it does not exist.
    """
    from envcheck.commands import explain
    from envcheck.host import pty_passthrough
    from envcheck.reports import explanation

    question = _question(python, False, facts, target, train, driver, gpu, timeout, overlay)
    try:
        ended = explain.run(question, command, host.Host())
    except OSError as error:
        _remark(f"envcheck: {inline(command[0])}: {(error.strerror or 'cannot be run').lower()}")
        return 127 if isinstance(error, FileNotFoundError) else 126
    if ended.trouble:
        _remark(f"\nenvcheck: what it printed could not be explained: {ended.trouble}")
    elif ended.explanation is not None:
        _remark(f"\n{explanation.render(ended.explanation)}".rstrip())
    if ended.code < 0:
        pty_passthrough.die_by(-ended.code)
        return 128 - ended.code
    return ended.code


class MatrixAction(Enum):
    """What to do with the knowledge."""

    SHOW = "show"
    LINT = "lint"
    HTML = "html"
    MEASURE = "measure"


def matrix(
    action: Annotated[
        MatrixAction,
        typer.Argument(
            help="show what is known; lint it for mistakes; html makes a page to look things up in; "
            "measure installs combinations apart, trains a target in each and prints cells."
        ),
    ],
    subject: Annotated[
        str | None,
        typer.Argument(
            metavar="[WHAT]", help="show: PACKAGE or PACKAGE==V. lint: a folder laid out like compat/."
        ),
    ] = None,
    output: Annotated[
        str | None,
        typer.Option(
            "-o",
            "--output",
            metavar="PATH",
            help="html: folder of index.html (site). measure: file that cells are added to (else printed).",
        ),
    ] = None,
    online: Annotated[
        bool, typer.Option("--online", help="lint: ask your package index for releases nobody has looked at.")
    ] = False,
    today: Annotated[
        str | None, typer.Option("--today", metavar="DATE", help="lint: the day sources are stale on.")
    ] = None,
    target: TargetOption = None,
    package: Annotated[
        list[str] | None,
        typer.Option(
            "--with",
            metavar="NAME==V",
            help="measure: a release to install. Repeatable; a package named twice is measured in both.",
        ),
    ] = None,
    train_fact: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="FACT=VALUE", help="measure: a training fact beside the target's."),
    ] = None,
    device: Annotated[Device | None, typer.Option("--device", help="measure: cpu or cuda.")] = None,
    ranks: Annotated[
        int | None, typer.Option("--ranks", metavar="N", min=1, max=1024, help="measure: processes.")
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="measure: this self-test. Repeatable.")
    ] = None,
    folder: Annotated[
        str | None,
        typer.Option("--in", metavar="FOLDER", help="measure: where environments are kept for the next run."),
    ] = None,
    python: Annotated[
        str | None, typer.Option("--python", metavar="PATH", help="measure: interpreter to install for.")
    ] = None,
    overlay: OverlayOption = None,
) -> int:
    """Show the knowledge, lint it, make a page of it, or measure a combination.

    Exit codes: 0 done, 1 lint found errors, 2 wrong use, 3 the index cannot be read, or a combination
    could not be decided.
    """
    if action is MatrixAction.MEASURE:
        from pathlib import Path

        from envcheck.commands import measure, selftest

        run = measure.Run(
            target or "",
            tuple(package or ()),
            selftest.SelftestOptions(
                2, device.value if device else None, ranks, tuple(only or ()), measure.PATIENCE
            ),
            Path(folder) if folder else None,
            Path(output) if output else None,
            python,
            tuple(overlay or ()),
            tuple(train_fact or ()),
        )
        text, code = measure.measure(run, host.Host(), _remark)
        _emit(text)
        return code
    from envcheck.commands import matrix

    overlays = tuple(overlay or ())
    if action is MatrixAction.LINT:
        text, code = matrix.lint(subject, host.Host(), today, overlays, online=online)
    elif action is MatrixAction.HTML:
        text, code = matrix.html(output or "site", overlays), 0
    else:
        text, code = matrix.show(subject, overlays), 0
    _emit(text)
    return code


FitModelOption = Annotated[
    str,
    typer.Option(
        "--model",
        metavar="MODEL",
        help="config.json, a folder that holds one (safetensors beside it are read by their headers), or "
        "params=7.6e9,layers=28,hidden=3584,heads=28,kv_heads=4,mlp=18944,vocab=152064.",
    ),
]
RanksOption = Annotated[
    int | None, typer.Option("--gpus", metavar="N", min=1, max=100_000, help="Ranks, one a GPU.")
]
SeqOption = Annotated[
    int | None,
    typer.Option("--seq", metavar="N", min=1, max=100_000_000, help="Tokens of a sequence."),
]
MicroBatchOption = Annotated[
    int | None,
    typer.Option(
        "--micro-batch", metavar="N", min=1, max=1_000_000, help="Sequences that a rank takes at once."
    ),
]
LoraRankOption = Annotated[
    int | None,
    typer.Option("--lora-rank", metavar="R", min=1, max=100_000, help="Rank of LoRA; 8 is PEFT's."),
]
LoraTargetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--lora-target", metavar="NAME", help="A module that LoRA adapts, or all-linear. Repeatable."
    ),
]
LoraDropoutOption = Annotated[
    float | None,
    typer.Option("--lora-dropout", metavar="P", min=0, max=1, help="LoRA's dropout, whose masks are kept."),
]
RamOption = Annotated[
    int | None,
    typer.Option("--ram", metavar="GIB", min=1, max=1_000_000, help="Declare the host's memory."),
]


def fit(
    model: FitModelOption,
    target: TargetOption = None,
    train: TrainOption = None,
    gpus: RanksOption = None,
    gpu: GpuOption = None,
    seq: SeqOption = None,
    batch: MicroBatchOption = None,
    rank: LoraRankOption = None,
    modules: LoraTargetOption = None,
    dropout: LoraDropoutOption = None,
    ram: RamOption = None,
    python: PythonOption = None,
    static: StaticOption = False,
    facts: FactsOption = None,
    as_json: JsonOption = False,
    timeout: DeadlineOption = 10.0,
    overlay: OverlayOption = None,
) -> int:
    """What memory will it take, before it is started? Nothing is downloaded, no torch is needed.

    Exit codes: 0 it fits (or is tight), 1 it does not, 2 wrong use or unreadable input, 3 cannot tell.
    """
    from envcheck.commands import fit
    from envcheck.memory import report

    question = _question(python, static, facts, target, train, None, gpu, timeout, overlay)
    drops = None if dropout is None else dropout > 0
    wanted = fit.FitOptions(model, gpus, seq, batch, rank, tuple(modules or ()), drops, ram)
    found = fit.fitted(question, wanted, host.Host())
    _emit(json.dumps(report.tree(found), indent=2) + "\n" if as_json else report.render(found))
    return found.code


def fleet(
    source: Annotated[
        str | None,
        typer.Argument(
            metavar="[FILE|FOLDER|-]",
            help="Facts of nodes: JSON lines, one a node, or a folder of facts files (`facts --name`).",
        ),
    ] = None,
    via: Annotated[
        str,
        typer.Option("--via", metavar="FOLDER", help="A folder all ranks share, to meet in without torch."),
    ] = "",
    ray: Annotated[
        str, typer.Option("--ray", metavar="ADDRESS", help="Ask every node of a Ray cluster; auto finds it.")
    ] = "",
    expect: Annotated[
        str,
        typer.Option("--expect", metavar="NODES", help="How many nodes, or which: 128, 'gpu[001-128]'."),
    ] = "",
    wait: Annotated[
        float,
        typer.Option("--wait", metavar="SECONDS", min=0.1, max=86400, help="How long nodes are waited for."),
    ] = 120.0,
    may_differ: Annotated[
        list[str] | None,
        typer.Option(
            "--may-differ", metavar="FACT", help="What need not be alike, such as gpus.count. Repeatable."
        ),
    ] = None,
    job: Annotated[
        str, typer.Option("--job", metavar="NAME", help="--via: what tells this job's records from others.")
    ] = "",
    python: PythonOption = None,
    static: StaticOption = False,
    target: TargetOption = None,
    train: TrainOption = None,
    as_json: JsonOption = False,
    output: ReportFileOption = "",
    fail_on: FailOnOption = FailOn.ERROR,
    timeout: DeadlineOption = 10.0,
    overlay: OverlayOption = None,
) -> int:
    """Judge many nodes: what each breaks, who is the odd one out, and whether a job may start on them.

    Facts of a file or a folder, of all ranks under torchrun, srun or mpirun, or of a Ray cluster.
    Exit codes: 0 it may start, 1 it may not (an error on a node, or nodes that differ in what must be equal),
    2 wrong use, 3 cannot tell (a node is missing, a record cannot be read, nothing to judge).
    """
    from pathlib import Path

    from envcheck.commands import fleet
    from envcheck.fleet import report as fleet_report

    if output:
        host.replaceable(Path(output))
    if source == "-" and sys.stdin is not None and sys.stdin.isatty():
        _remark("reading standard input; Ctrl-D ends it")
    question = _question(python, static, None, target, train, None, None, timeout, overlay)
    wanted = fleet.FleetOptions(
        source, via, ray, job, expect, wait, tuple(may_differ or ()), Severity(fail_on.value)
    )
    gathered = fleet.gathered(question, wanted, host.Host())
    if gathered.report is not None:
        # Naming nodes is what this is for; everything else that is private stays so.
        report = presented(gathered.report, host.private()._replace(machines=()))
        as_tree = as_json or output.endswith(".json")
        text = (
            json.dumps(fleet_report.tree(report), indent=2) + "\n" if as_tree else fleet_report.render(report)
        )
        if output:
            _save(text, output)
        else:
            _emit(text)
    return gathered.code


COMMANDS: dict[str, Callable[..., int]] = {
    "doctor": doctor,
    "facts": facts,
    "pin": pin,
    "gate": gate,
    "check": check,
    "init": init,
    "selftest": selftest,
    "explain": explain,
    "run": run_command,
    "fit": fit,
    "fleet": fleet,
    "target": target,
    "rule": rule,
    "matrix": matrix,
}


def _main() -> None:
    """Will this machine, this Python environment and this training configuration train?"""


def _question(
    python: str | None = None,
    static: bool = False,
    facts: str | None = None,
    target: str | None = None,
    train: list[str] | None = None,
    driver: str | None = None,
    gpu: list[str] | None = None,
    timeout: float = 10.0,
    overlay: list[str] | None = None,
    expect_gpus: int | None = None,
) -> ExamineRequest:
    """The options that say what is asked about; typer gives None for a list that nobody gave."""
    from envcheck.commands.examine import ExamineRequest

    trained, gpus, overlays = (tuple(each or ()) for each in (train, gpu, overlay))
    return ExamineRequest(
        python,
        static,
        facts,
        target,
        trained,
        driver,
        gpus,
        timeout,
        overlays,
        expect_gpus=expect_gpus or 0,
    )


# --- running ----------------------------------------------------------------------------------------


_INTERRUPTED = 128 + 2  # as a shell counts SIGINT


def run(arguments: list[str]) -> int:
    """Run a command line; the exit code. Never a traceback, unless ENVCHECK_DEBUG asks for one."""
    try:
        code = _command(arguments)(arguments or ["--help"], prog_name="envcheck", standalone_mode=False) or 0
    except host.ProcessExit as end:
        _remark(f"envcheck: ended by {end.name}")
        return int(str(end.code))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 2
    except KeyboardInterrupt:
        code = _INTERRUPTED
    except Exception as error:
        if host.variable("ENVCHECK_DEBUG"):
            raise
        message, code = _explained(error)
        _remark(f"envcheck: {message}")
    if code == _INTERRUPTED:  # typer, too, makes a code of it
        _remark("envcheck: interrupted")
    return code


def _explained(error: Exception) -> tuple[str, int]:
    """One line for whatever went wrong, and its exit code."""
    if isinstance(error, InputError):
        return inline(str(error)), error.code  # a file's name may hold a line feed
    if isinstance(error, EnvcheckError):
        return str(error), error.code
    usage = getattr(error, "format_message", None)  # click's own exceptions
    if callable(usage):
        said = " ".join(str(usage()).split())  # a missing choice comes as a list of several lines
        return f"{said} (--help shows the options)", 2
    return f"internal error: {type(error).__name__}: {error} (ENVCHECK_DEBUG=1 shows where)", 3


def _command(arguments: list[str]) -> Callable[..., int]:
    """The click command; only the one that is called is built, for building all costs a third of a start."""
    app = typer.Typer(
        add_completion=_completing(arguments), rich_markup_mode=None, pretty_exceptions_enable=False
    )
    app.callback()(_main)
    wanted = arguments[0] if arguments and arguments[0] in COMMANDS else None
    for name, command in COMMANDS.items():
        if wanted in (None, name):
            # What follows the command that is to be run is that command's, options too.
            own = {"allow_interspersed_args": False} if command is run_command else {}
            app.command(name, context_settings=own)(command)
    built: Callable[..., int] = typer.main.get_command(app)
    return built


def _completing(arguments: list[str]) -> bool:
    """Whether a shell asks how a word goes on, or a person for the script that makes it ask."""
    asked = arguments[:1] in ([], ["--help"], ["--show-completion"], ["--install-completion"])
    return asked or host.variable("_ENVCHECK_COMPLETE") is not None


# --- the output boundary ----------------------------------------------------------------------------


def _form(as_json: bool, written: str, output: str) -> str:
    """The format of a report, before the work begins.

    Raises:
        InputError: there is no such format, or the file cannot be written.
    """
    from envcheck.reports.render import format_for_file, format_named

    if as_json and written not in ("", "json"):
        raise InputError("--json", f"contradicts --format {written}")
    if output:
        from pathlib import Path

        host.replaceable(Path(output))
    if written:
        format_named(written)
    terminal = sys.stdout is not None and sys.stdout.isatty() and not host.variable("NO_COLOR")
    name = "json" if as_json else written
    if output:
        return "text" if name == "terminal" else name or format_for_file(output)
    return name or ("terminal" if terminal else "text")


def _show(report: Report, name: str, output: str) -> bool:
    """Print a report or save it; whether people read what was printed, so that a verdict may follow."""
    from pathlib import Path

    from envcheck.reports.render import beside, rendered

    private = host.private()
    text = rendered(name, report, private)
    if output:
        _save(text, output)
    else:
        _emit(text, coloured=name == "terminal")
    for variable, render in beside(name).items():
        if file := host.variable(variable):
            host.append_file(Path(file), clean(render(presented(report, private))))
    return bool(output) or name in ("text", "terminal", "github")


def _decided(decision: Decision, spoken: Language, *, quiet: bool) -> int:
    """Say what a gate came to; its exit code."""
    if not quiet:
        verdict = spoken.say("gate open") if decision.code == 0 else spoken.say("gate shut")
        said = [*(decision.reasons or decision.remarks)]
        said += [spoken.say("waived: {}", each) for each in decision.waived]
        _emit((f"{verdict}: {'; '.join(said)}" if said else verdict) + "\n")
    return decision.code


def _emit(text: str, *, coloured: bool = False) -> None:
    """Print data on stdout; a coloured text was cleaned when it was coloured."""
    if sys.stdout is None:
        raise ExamineError("standard output is closed: nowhere to print")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a GBK terminal has no check mark
    try:
        sys.stdout.write(_redacted(text if coloured else clean(text)))
        sys.stdout.flush()
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left must not fail again
        if isinstance(error, BrokenPipeError):
            return  # the reader has seen enough (`| head`); a gate that is shut stays shut
        why = (error.strerror or "it cannot be written").lower()
        raise ExamineError(f"standard output: {why}") from None


def _save(text: str, file: str) -> None:
    """Put data into a file, whole or not at all."""
    from pathlib import Path

    host.replace_file(Path(file), _redacted(clean(text)))
    _remark(f"written to {inline(file)}")


def _remark(message: str) -> None:
    """Print a line of progress or diagnosis on stderr, if anybody can be told; the exit code says it too."""
    with contextlib.suppress(OSError, AttributeError):  # full, or closed: Python has None for it then
        sys.stderr.write(f"{quoted(clean(message), host.private())}\n")


def _redacted(text: str) -> str:
    homes = host.homes()
    return redact(text, (*homes, *(json.dumps(home)[1:-1] for home in homes)))
