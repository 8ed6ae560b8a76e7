"""`envcheck pin`: print a lock for a training recipe."""

from __future__ import annotations

from typing import Annotated

from envcheck.cli import completion, options, output
from envcheck.cli.declaration import CommandOption
from envcheck.core.errors import InputError
from envcheck.host import machine as host

TargetOption = Annotated[
    str | None,
    CommandOption(
        "--target",
        metavar="NAME",
        autocompletion=completion.targets,
        help="Training recipe to lock for, such as zero3-lora; `envcheck target` lists them. Required.",
    ),
]
PythonVersionOption = Annotated[
    str | None,
    CommandOption(
        "--python-version",
        metavar="X.Y",
        help="Python version to lock for. Default: that of the examined interpreter.",
    ),
]
PlatformOption = Annotated[
    str | None,
    CommandOption("--platform", metavar="OS-ARCH", help="Declare linux-x86_64 or linux-aarch64."),
]
GlibcOption = Annotated[
    str | None,
    CommandOption(
        "--glibc", metavar="2.N", help="Declare the C library of the machine the training runs on."
    ),
]
ResolveOption = Annotated[
    bool, CommandOption("--resolve", help="Resolve again, even if a shipped lock fits.")
]
OfflineOption = Annotated[
    bool, CommandOption("--offline", help="Use only the shipped locks; never use the network.")
]
FileOption = Annotated[
    str,
    CommandOption(
        "-o",
        "--output",
        metavar="FILE",
        help="Write the lock to this file, completely or not at all; '> FILE' would empty the file before "
        "anything runs. Default, and with '-': print it.",
        callback=options.dash_is_standard_output,
    ),
]
FormatOption = Annotated[
    str,
    CommandOption(
        "--format",
        metavar="FORMAT",
        help="requirements (with hashes), pylock (PEP 751), constraints (versions only), "
        "uv (groups and [tool.uv] for pyproject.toml), pixi, conda (environment.yml), dockerfile or "
        "devcontainer.",
    ),
]
RequirementOption = Annotated[
    list[str] | None,
    CommandOption(
        "-r",
        "--requirement",
        metavar="FILE",
        help="Also lock your own requirements. '-' is standard input. Repeatable.",
        callback=options.announced,
    ),
]
WithOption = Annotated[
    list[str] | None,
    CommandOption(
        "--with", metavar="REQ", help="Also lock this requirement, such as 'trl>=0.20'. Repeatable."
    ),
]
AllowSourceOption = Annotated[
    list[str] | None,
    CommandOption(
        "--allow-source",
        metavar="NAME",
        help="Build this package from source if the index has no wheel for it; this runs its code. "
        "Repeatable.",
    ),
]
KeepOption = Annotated[
    list[str] | None,
    CommandOption("--keep", metavar="NAME", help="Keep the installed version of this package. Repeatable."),
]
ModelOption = Annotated[
    list[str] | None,
    CommandOption(
        "--model",
        metavar="TYPE",
        help="Choose a release of transformers that supports this model_type. Repeatable.",
    ),
]
ExcludeNewerOption = Annotated[
    str, CommandOption("--exclude-newer", metavar="DATE", help="Ignore files uploaded after that day (UTC).")
]
PreferOption = Annotated[
    str,
    CommandOption(
        "--prefer",
        metavar="WHAT",
        help="measured (combinations that were tested by training) or newest.",
    ),
]
EngineOption = Annotated[
    str,
    CommandOption("--engine", metavar="NAME", help="uv, pip-tools, or both to see where their locks differ."),
]
FromCurrentOption = Annotated[
    bool,
    CommandOption(
        "--from-current", help="Change installed versions as little as possible; list the changes."
    ),
]
ShowIndexOption = Annotated[
    bool,
    CommandOption(
        "--show-index",
        help="pylock: allow addresses on your own index. For packages without wheels, print the address "
        "of a published wheel.",
    ),
]
ConstraintsOnlyOption = Annotated[
    bool, CommandOption("--constraints-only", help="The same as --format constraints.")
]
VerboseOption = Annotated[
    bool,
    CommandOption(
        "-v", "--verbose", help="Also print on stderr what was tried before and rejected, and why."
    ),
]
QuietOption = Annotated[
    bool, CommandOption("-q", "--quiet", help="Print nothing on stderr but errors; the lock is the same.")
]


def command(
    target: TargetOption = None,
    driver: options.Driver = None,
    gpus: options.Gpu = None,
    python_version: PythonVersionOption = None,
    platform: PlatformOption = None,
    glibc: GlibcOption = None,
    python: options.Python = None,
    static: options.Static = False,
    resolve: ResolveOption = False,
    offline: OfflineOption = False,
    file: FileOption = "",
    lock_format: FormatOption = "requirements",
    requirement_files: RequirementOption = None,
    requirements: WithOption = None,
    keep: KeepOption = None,
    allow_source: AllowSourceOption = None,
    models: ModelOption = None,
    exclude_newer: ExcludeNewerOption = "",
    prefer: PreferOption = "measured",
    engine: EngineOption = "",
    from_current: FromCurrentOption = False,
    show_index: ShowIndexOption = False,
    constraints_only: ConstraintsOnlyOption = False,
    timeout: options.ProbeTimeout = 10.0,
    overlays: options.Matrix = None,
    verbose: VerboseOption = False,
    quiet: QuietOption = False,
    lang: options.Lang = None,
) -> int:
    """Print a lock that fits this machine, or the one declared, as requirements.txt with hashes.

    Exit codes: 0 a lock was printed, 2 wrong usage, 3 a resolver failed, 4 no versions fit.
    """
    from envcheck.commands import pin
    from envcheck.core.findings import Verbosity

    verbosity = output.verbosity("text", verbose=verbose, quiet=quiet)
    request = options.examine_request(
        python=python,
        static=static,
        target=target,
        driver=driver,
        gpus=gpus,
        timeout=timeout,
        overlays=overlays,
        platform=platform,
        glibc=glibc,
    )
    if constraints_only:
        if lock_format not in ("requirements", "constraints"):
            raise InputError("--constraints-only", f"contradicts --format {lock_format}")
        lock_format = "constraints"
    pin_options = pin.PinOptions(
        files=tuple(requirement_files or ()),
        besides=tuple(requirements or ()),
        keep=tuple(keep or ()),
        allow_source=tuple(allow_source or ()),
        models=tuple(models or ()),
        until=exclude_newer,
        prefer=prefer,
        engine=engine,
        written=lock_format,
        output=file,
        own_index=show_index,
    )
    lock, messages = pin.pin(
        request,
        host.Host(),
        python_version,
        resolve=resolve,
        offline=offline,
        options=pin_options,
        from_current=from_current,
        with_rejected=verbosity is Verbosity.ALL,
    )
    for message in () if quiet else messages:
        output.print_message(output.in_language(message, lang))
    output.write_data(lock, file, lang, quiet=quiet)
    return 0
