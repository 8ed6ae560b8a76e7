"""How to carry out a plan: its moves by name, the commands, the settings to change, and notes; in English.

JSON prints these strings as they are; `plan_text` translates those that people read.
"""

from __future__ import annotations

from envcheck.core.facts import package_name
from envcheck.core.findings import Move, Plan, Report
from envcheck.core.rules import uninstalls
from envcheck.reports.phrases import install_commands, is_another_build
from envcheck.rules.fix_words import value_text


def move_name(move: Move) -> str:
    """Return what a move changes: `deepspeed`, `train.use_reentrant`, `driver.version`."""
    return package_name(move.key)


def move_target(move: Move) -> str:
    """Return the release or value after a move, or the bound if no release is known to satisfy it."""
    if move.administrator or (move.install and "==" not in move.install):
        return move.bound or "?"
    return "?" if move.after is None else value_text(move.after)


def plan_commands(plan: Plan, report: Report) -> tuple[str, ...]:
    """Return the shell commands that change a plan's packages and environment variables."""
    packages = [move for move in plan.moves if move.install]
    to_uninstall = [
        move_name(move)
        for move in plan.moves
        if uninstalls(move.key, move.after) or (move.install and _is_another_build(move))
    ]
    exports = [
        f"export {move.key.removeprefix('env.')}={move.after}"
        for move in plan.moves
        if move.key.startswith("env.")
    ]
    requirements = {move_name(move): move.install for move in packages}
    return (*install_commands(requirements, to_uninstall, report), *exports)


def _is_another_build(move: Move) -> bool:
    """Return whether a move goes from one build of a release to another, such as from +cu126 to +cu130."""
    return move.after is not None and is_another_build(str(move.before or ""), str(move.after))


def configuration_changes(plan: Plan, report: Report) -> tuple[tuple[str, str, str], ...]:
    """Return the training facts that a plan changes.

    Each is (`train.zero_stage = 2`, the source of today's value, the command line argument that sets it).
    """
    found = []
    for move in plan.moves:
        if not move.key.startswith("train."):
            continue
        value = value_text(move.after) if move.after is not None else ""
        rows = report.matrix.tables.get("argument", [])
        plain = (row for row in rows if row["key"] == move.key and not {"value", "values"} & row.keys())
        name = next((str(row["names"][0]) for row in plain), "")
        source = report.inventory.fact(move.key).source
        found.append((f"{move.key} = {value}", source, f"--{name} {value}" if name else ""))
    return tuple(found)


def plan_notes(plan: Plan, report: Report) -> tuple[str, ...]:
    """Return notes to read before carrying out a plan."""
    packages = [move for move in plan.moves if move.install or uninstalls(move.key, move.after)]
    inventory = report.inventory
    notes = []
    if packages and inventory.known("python.manager") == "conda":
        notes.append("a conda environment: what conda installed, change with conda, or the two disagree")
    for move in packages:
        if inventory.known(f"{move.key}.editable") is True:
            notes.append(
                f"{move_name(move)} is installed from a checkout, which this replaces"
                if move.install
                else f"{move_name(move)} is installed from a checkout, which stays on the disk"
            )
        if move.unchecked:
            notes.append(f"{move_name(move)} {move_target(move)} is {move.unchecked}")
    if plan.added:
        notes.append(f"an installer adds what these need and is not here: {', '.join(plan.added)}")
    return tuple(notes)
