"""What all sources of node facts share: the options, the judge of the nodes, and this node's facts."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, NamedTuple

from envcheck import __version__
from envcheck.commands import examine, loading
from envcheck.commands.examine import ExamineRequest
from envcheck.core.errors import InputError
from envcheck.core.facts import Absent, Inventory, Vocabulary
from envcheck.core.findings import Diagnostic
from envcheck.core.rules import Matrix, Severity, Target
from envcheck.core.sanitize import sanitized
from envcheck.fleet import collect, comparisons, hostlist, records, summary
from envcheck.host.environment import private_names
from envcheck.host.machine import Host
from envcheck.host.package_files import shipped_text, source_texts


@dataclass(frozen=True, kw_only=True, slots=True)
class FleetOptions:
    """Options of `fleet` besides those of `doctor`.

    Attributes:
        sources: files, folders, or `-` for standard input.
        via: a folder that all ranks share.
        ray: the address of a Ray cluster.
        job: a name that keeps jobs apart in the folder of `--via`.
        expect: how many nodes must report, or a list of their names.
        wait_s: seconds to wait for nodes.
        may_differ: facts that may differ between nodes.
        fail_on: the lowest severity that fails.
    """

    sources: tuple[str, ...] = ()
    via: str | None = None
    ray: str | None = None
    job: str = ""
    expect: str = ""
    wait_s: float = 120.0
    may_differ: tuple[str, ...] = ()
    fail_on: Severity = Severity.ERROR


class FleetResult(NamedTuple):
    """Result for one process: the exit code, which all ranks share, and on rank 0 the report."""

    report: summary.FleetReport | None
    code: int


class NodeJudge(NamedTuple):
    """Judges the inventories of nodes one after the other, with knowledge that is loaded once for all."""

    request: ExamineRequest
    matrix: Matrix
    keys: Vocabulary
    rows: tuple[comparisons.FactComparison, ...]
    target: Target | None
    diagnostics: tuple[Diagnostic, ...]

    def empty_fleet(self) -> collect.Fleet:
        """Return a fleet without nodes."""
        return collect.Fleet(self.keys, self.matrix, self.rows, self._complete, self._examine)

    def _complete(self, inventory: Inventory) -> Inventory:
        return examine.complete_inventory(inventory, self.request, self.matrix)[0]

    def _examine(self, subject: str, inventory: Inventory) -> collect.Judged:
        report = examine.report_on(subject, inventory, self.matrix, self.target)
        nothing = report.nothing_to_judge or _why_untold(report.inventory)
        trains = any(key.startswith("train.") for key in report.inventory.facts)
        return collect.Judged(report.judgement, nothing, trains)

    def report(self, fleet: collect.Fleet, context: summary.FleetContext) -> summary.FleetReport:
        """Return the report on the nodes that were taken into the fleet."""
        return summary.summarize(fleet, self.rows, self.matrix, __version__, context)


def _why_untold(inventory: Inventory) -> str:
    """Return why a job may not start on a node although no rule is broken; empty if there is no reason.

    Few rules apply to a node without a GPU, and a torch that is built for CUDA expects one.
    """
    if inventory.known("gpus.count") != 0 or isinstance(inventory.fact("cuda.runtime").reading, Absent):
        return ""
    return "no GPU there, and torch may be built for CUDA"


def prepare(request: ExamineRequest, options: FleetOptions) -> NodeJudge:
    """Load the knowledge and the options that judge the nodes.

    Raises:
        InputError: an option or a configuration is wrong; it is raised here, before any wait.
    """
    keys = loading.known_vocabulary()
    matrix = loading.load_matrix(keys, request.overlays)
    target = loading.find_target(request.target, matrix)
    _, diagnostics = examine.complete_inventory(Inventory(), request, matrix)
    examine.refuse_unreadable(diagnostics)
    rows = comparisons.read_comparisons(_rows(), options.may_differ)
    return NodeJudge(request, matrix, keys, rows, target, diagnostics)


def _rows() -> list[dict[str, Any]]:
    """Read the rows of compat/tables/fleet, which the matrix does not hold."""
    shipped = shipped_text("compat/tables/fleet.json")
    if shipped is not None:
        compiled: list[dict[str, Any]] = json.loads(shipped)["alike"]
        return compiled
    import tomllib

    texts = source_texts("compat/tables", ".toml", "fleet")
    rows: list[dict[str, Any]] = tomllib.loads(texts["fleet.toml"])["alike"]
    return rows


def expected_nodes(text: str) -> tuple[str, ...] | int | None:
    """Return the number of nodes that `--expect` gives, or their names; None if it is empty.

    Raises:
        InputError: it is neither a number nor a list of nodes.
    """
    if not text:
        return None
    if text.isascii() and text.isdecimal() and len(text) <= 9:  # noqa: PLR2004 - more digits are no count
        return int(text)
    try:
        return tuple(dict.fromkeys(hostlist.unfold(text)))
    except ValueError as error:
        raise InputError(f"--expect {text}", f"no number and no list of nodes: {error}") from None


def node_facts(request: ExamineRequest, host: Host, name: str) -> dict[str, Any]:
    """Return the facts file of this node with its name, which no other command writes.

    Raises:
        EnvcheckError: as `examine.inventory_report`.
    """
    tree = examine.inventory_report(request, host)
    private = private_names()._replace(machines=())  # node names must survive here
    named: dict[str, Any] = sanitized(
        {**tree, "host": {records.NAME_KEY.partition(".")[2]: name, **tree.get("host", {})}}, private
    )
    return named
