"""`envcheck fleet`: judge many nodes together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from envcheck.cli import options, output
from envcheck.cli.declaration import CommandArgument, CommandOption
from envcheck.cli.options import FailOn
from envcheck.core.sanitize import sanitized
from envcheck.host import machine as host
from envcheck.host.environment import private_names
from envcheck.host.files import check_replaceable

if TYPE_CHECKING:
    from envcheck.core.findings import Verbosity
    from envcheck.core.i18n import Language
    from envcheck.fleet.summary import FleetReport

SourcesArgument = Annotated[
    list[str] | None,
    CommandArgument(
        metavar="[FILE|FOLDER|-]...",
        help="Facts of the nodes: JSON lines, one node per line, facts files (see `facts --name`), or "
        "folders of them.",
    ),
]
ViaOption = Annotated[
    str,
    CommandOption(
        "--via",
        metavar="FOLDER",
        help="Folder that all ranks share, through which they exchange their facts without torch.",
    ),
]
RayOption = Annotated[
    str,
    CommandOption(
        "--ray", metavar="ADDRESS", help="Collect facts from every node of a Ray cluster; 'auto' finds it."
    ),
]
ExpectOption = Annotated[
    str,
    CommandOption("--expect", metavar="NODES", help="Number of nodes, or their names: 128, 'gpu[001-128]'."),
]
WaitOption = Annotated[
    float,
    CommandOption("--wait", metavar="SECONDS", min=0.1, max=86400, help="How long to wait for nodes."),
]
MayDifferOption = Annotated[
    list[str] | None,
    CommandOption(
        "--may-differ",
        metavar="FACT",
        help="Fact that may differ between nodes, such as gpus.count. Repeatable.",
    ),
]
JobOption = Annotated[
    str,
    CommandOption(
        "--job", metavar="NAME", help="With --via: name that separates this job's records from others."
    ),
]


def command(
    sources: SourcesArgument = None,
    via: ViaOption = "",
    ray: RayOption = "",
    expect: ExpectOption = "",
    wait: WaitOption = 120.0,
    may_differ: MayDifferOption = None,
    job: JobOption = "",
    python: options.Python = None,
    static: options.Static = False,
    target: options.Target = None,
    train: options.Train = None,
    as_json: options.Json = False,
    file: options.ReportFile = "",
    fail_on: options.ReportFailOn = FailOn.ERROR,
    timeout: options.ProbeTimeout = 10.0,
    overlays: options.Matrix = None,
    verbose: options.Verbose = False,
    quiet: options.Quiet = False,
    lang: options.Lang = None,
) -> int:
    """Judge many nodes: what fails on each, which nodes differ, and whether a job may start on them.

    The facts come from files or folders, from all ranks under torchrun, srun or mpirun, or from a Ray
    cluster.
    Exit codes: 0 the job may start, 1 it may not (an error on a node, or nodes differ in a fact that must be
    equal), 2 wrong usage, 3 cannot tell (a node is missing, a record cannot be read, nothing to judge).
    """
    from envcheck.commands import fleet, user_settings

    if file:
        check_replaceable(Path(file))
    as_json = as_json or file.endswith(".json")
    verbosity = output.verbosity("json" if as_json else "text", verbose=verbose, quiet=quiet)
    output.announce_standard_input(sources or ())
    request = options.examine_request(
        python=python, static=static, target=target, train=train, timeout=timeout, overlays=overlays
    )
    request = user_settings.with_settings(request, user_settings.read_settings())
    fleet_options = fleet.FleetOptions(
        sources=tuple(sources or ()),
        via=via,
        ray=ray,
        job=job,
        expect=expect,
        wait_s=wait,
        may_differ=tuple(may_differ or ()),
        fail_on=fail_on.severity,
    )
    gathered = fleet.gather(request, fleet_options, host.Host())
    if gathered.report is not None:
        language = user_settings.choose_language(lang, host.Host())
        output.write_data(_text(gathered.report, verbosity, language, as_json=as_json), file, lang)
    return gathered.code


def _text(report: FleetReport, verbosity: Verbosity, language: Language, *, as_json: bool) -> str:
    """Return the report as JSON or as text, with private names removed except those of the nodes."""
    from envcheck.fleet.report import tree
    from envcheck.fleet.text import render

    cleaned = sanitized(report, private_names()._replace(machines=()))
    return output.json_text(tree(cleaned)) if as_json else render(cleaned, verbosity, language)
