"""Options that several commands share, as annotations for typer, and the request built from them.

An option that only one command takes is declared in that command's module. Each annotation is a named
constant, because typer evaluates the annotations of a signature four times.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated

from envcheck.cli import completion
from envcheck.cli.declaration import CommandOption
from envcheck.core.rules import Severity

if TYPE_CHECKING:
    from envcheck.commands.examine import ExamineRequest


def dash_is_standard_output(file: str) -> str:
    """Return the file that an option names; for `-`, return an empty name, which means standard output."""
    return "" if file == "-" else file


def announced(files: list[str] | None) -> list[str] | None:
    """Return the files that an option names; tell a person at a terminal if one is standard input."""
    from envcheck.cli import output

    output.announce_standard_input(files or ())
    return files


# --- what to judge ----------------------------------------------------------------------------------

Python = Annotated[
    str | None,
    CommandOption(
        "--python",
        metavar="PATH",
        help="Interpreter or environment folder to examine. The interpreter is run with -I to locate its "
        "packages, which executes its start-up files.",
    ),
]
Static = Annotated[
    bool, CommandOption("--static", help="Only read the environment's files; never run its interpreter.")
]
Target = Annotated[
    str | None,
    CommandOption(
        "--target",
        metavar="NAME",
        autocompletion=completion.targets,
        help="Training recipe to judge for, such as zero3-lora.",
    ),
]
Train = Annotated[
    list[str] | None,
    CommandOption(
        "--train",
        metavar="FILE",
        help="Training configuration: a launch script, a trainer's YAML or JSON, DeepSpeed's JSON, or "
        "arguments such as '--use_lora true'. Repeatable; several are merged as the trainer merges them.",
    ),
]
Facts = Annotated[
    list[str] | None,
    CommandOption(
        "--facts",
        metavar="FILE",
        help="Judge this facts file (TOML or JSON), or the saved output of nvidia-smi, pip list, pip freeze "
        "or conda list, or a list of versions, instead of this machine. '-' is standard input. Repeatable.",
        callback=announced,
    ),
]
Driver = Annotated[
    str | None,
    CommandOption(
        "--driver",
        metavar="VERSION",
        help="Declare the NVIDIA driver of the machine the training runs on: its version or branch, or the "
        "CUDA version that nvidia-smi prints in its header, such as 12.8.",
    ),
]
Gpu = Annotated[
    list[str] | None,
    CommandOption(
        "--gpu",
        metavar="NAME",
        autocompletion=completion.gpus,
        help="Declare a GPU of the machine the training runs on, or 'none'. Repeatable.",
    ),
]
Machine = Annotated[
    list[str] | None,
    CommandOption(
        "--machine",
        metavar="NAME",
        autocompletion=completion.machines,
        help="Judge for this declared machine. Repeatable: all must pass. Default: the machines in the "
        "settings file.",
    ),
]
Matrix = Annotated[
    list[str] | None,
    CommandOption(
        "--matrix",
        metavar="FILE",
        help="File with your own rules, targets and cells, which extend or replace the shipped ones. "
        "Repeatable.",
    ),
]
ExpectGpus = Annotated[
    int | None,
    CommandOption(
        "--expect-gpus",
        metavar="N",
        min=1,
        help="Report an error if fewer than N GPUs of this machine are usable, and name the unusable ones.",
    ),
]
ProbeTimeout = Annotated[
    float, CommandOption("--timeout", metavar="SECONDS", min=0.1, max=600, help="Deadline for each probe.")
]

# --- what to print ----------------------------------------------------------------------------------

Json = Annotated[bool, CommandOption("--json", help="Print JSON and nothing else.")]
ReportFormat = Annotated[
    str,
    CommandOption(
        "--format",
        metavar="FORMAT",
        autocompletion=completion.formats,
        help="text, json, markdown, html, sarif, junit or github. Default: inferred from the file name given "
        "with -o, otherwise text.",
    ),
]
ReportFile = Annotated[
    str,
    CommandOption(
        "-o",
        "--output",
        metavar="FILE",
        help="Write the report to this file, completely or not at all. Default, and with '-': print it.",
        callback=dash_is_standard_output,
    ),
]
Verbose = Annotated[
    bool, CommandOption("-v", "--verbose", help="Also print the reasons, the sources and all other fixes.")
]
Quiet = Annotated[bool, CommandOption("-q", "--quiet", help="Print the first line only: the answer.")]
Lang = Annotated[
    str | None,
    CommandOption(
        "--lang",
        metavar="LANG",
        autocompletion=completion.languages,
        help="Language of the output, such as zh. Default: the locale's.",
    ),
]

# --- what fails -------------------------------------------------------------------------------------


class FailOn(Enum):
    """Lowest severity that makes the exit code 1."""

    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"

    @property
    def severity(self) -> Severity:
        """Return the severity of that name."""
        return Severity(self.value)


class Undecided(Enum):
    """What an undecided rule does to the gate."""

    PASS = "pass"  # noqa: S105 - no password
    WARN = "warn"
    FAIL = "fail"


ReportFailOn = Annotated[
    FailOn, CommandOption("--fail-on", help="Lowest severity that makes the exit code 1.")
]
GateFailOn = Annotated[
    FailOn | None,
    CommandOption(
        "--fail-on",
        help="Lowest severity that makes the exit code 1. Default: the settings file's, otherwise error.",
    ),
]
UndecidedRules = Annotated[
    Undecided | None,
    CommandOption(
        "--undecided",
        help="What undecided rules do: pass leaves them out of the first line, warn counts them there, fail "
        "fails. Default: the settings file's, otherwise warn.",
    ),
]
Strict = Annotated[bool, CommandOption("--strict", help="The same as --fail-on warning --undecided fail.")]
Only = Annotated[
    list[str] | None,
    CommandOption(
        "--only",
        metavar="RULE",
        autocompletion=completion.rules,
        help="Check only this rule; a prefix such as `lock:` selects a group. Repeatable.",
    ),
]
Skip = Annotated[
    list[str] | None,
    CommandOption(
        "--skip",
        metavar="RULE",
        autocompletion=completion.rules,
        help="Leave out this rule; a prefix such as `lock:` selects a group. Repeatable.",
    ),
]

# --- self-tests -------------------------------------------------------------------------------------


class Device(Enum):
    """Where self-tests run."""

    CPU = "cpu"
    CUDA = "cuda"


# --- the request ------------------------------------------------------------------------------------


def examine_request(
    *,
    python: str | None = None,
    static: bool = False,
    facts: list[str] | None = None,
    target: str | None = None,
    train: list[str] | None = None,
    driver: str | None = None,
    gpus: list[str] | None = None,
    timeout: float = 10.0,
    overlays: list[str] | None = None,
    expect_gpus: int | None = None,
    platform: str | None = None,
    glibc: str | None = None,
) -> ExamineRequest:
    """Build the request from the options; typer passes None for a repeatable option that was not given."""
    from envcheck.commands.examine import ExamineRequest

    return ExamineRequest(
        python=python,
        static=static,
        facts=facts[0] if facts else None,
        more_facts=tuple(facts[1:] if facts else ()),
        target=target,
        train=tuple(train or ()),
        driver=driver,
        gpus=tuple(gpus or ()),
        deadline_s=timeout,
        overlays=tuple(overlays or ()),
        platform=platform,
        glibc=glibc,
        expect_gpus=expect_gpus or 0,
    )
