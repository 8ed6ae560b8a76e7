"""Derive what making the optimizer by its name needs (compat/tables/optimizers.toml)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envcheck.core import versions
from envcheck.core.facts import Absent, Fact, Inventory, Known, Reading, Tri
from envcheck.core.tables import Tables
from envcheck.rules.derive.inputs import missing_input, text_of
from envcheck.rules.derive.keys import OPTIMIZER, OPTIMIZER_MINIMUM

_SOURCE = "derived from train.optimizer"


def derive_optimizer(inventory: Inventory, tables: Tables) -> Iterator[Fact]:
    """Yield what the optimizer needs where the Trainer, or the trainer that is named, makes it."""
    missing = missing_input(inventory, "train.optimizer")
    if missing is not None and not isinstance(missing, Absent):
        yield from (Fact(key, missing, _SOURCE) for key in OPTIMIZER)
        return
    # One that is Absent needs nothing; `require` would take Absent facts for satisfied.
    name = text_of(inventory, "train.optimizer") if missing is None else ""
    rows = [row for row in tables.get("optimizer_code", ()) if row["name"] == name]
    listed = next((row for row in rows if "trainer" not in row), None)
    own = next((row for row in rows if row.get("trainer") == inventory.known("train.trainer")), None)
    row: Mapping[str, Any] = own or listed or {}
    yield Fact("train.optimizer_package", Known(str(row.get("package", "none"))), _SOURCE)
    yield Fact("train.optimizer_8bit", Known("8bit" in name), _SOURCE)
    yield Fact("train.optimizer_layerwise", Known("refuses_distributed" in row), _SOURCE)
    yield Fact("train.optimizer_unhandled", _unhandled(inventory, own), _SOURCE)
    for key, end in (("train.optimizer_first", 0), ("train.optimizer_gone", 1)):
        yield Fact(key, _end_of(listed, end), _SOURCE)
    floors = [row for row in tables.get("optimizer_floor", ()) if row["name"] == name]
    for key in OPTIMIZER:
        if key.startswith(OPTIMIZER_MINIMUM):
            package = key.removeprefix(OPTIMIZER_MINIMUM)
            yield Fact(key, _floor(inventory, floors, package), _SOURCE)


def _end_of(row: Mapping[str, Any] | None, end: int) -> Reading:
    """Return the first or last bound of the releases that list a name; Absent if there is none."""
    bounds = () if row is None else versions.parse_specifier(row["known"][-end])
    found = [bound.operand for bound in bounds if bound.op == (">=", "<")[end]]
    return Known(str(found[0])) if found else Absent()


def _unhandled(inventory: Inventory, own: Mapping[str, Any] | None) -> Reading:
    if own is None or "unhandled" not in own:
        return Known(False)
    package = f"pkg.{own['trainer']}"
    return missing_input(inventory, package) or Known(_holds(inventory, package, own["unhandled"]))


def _floor(inventory: Inventory, floors: list[dict[str, Any]], package: str) -> Reading:
    """Return the least version of a package that this transformers asks for with the optimizer."""
    rows = [row for row in floors if row["package"] == package]
    if not rows:
        return Absent()
    missing = missing_input(inventory, "pkg.transformers")
    if missing is not None:
        return missing
    asked = [row["minimum"] for row in rows if _holds(inventory, "pkg.transformers", row["transformers"])]
    return Known(str(max(asked, key=versions.order))) if asked else Absent()


def _holds(inventory: Inventory, key: str, bounds: list[str]) -> bool:
    stated = text_of(inventory, key)
    return any(versions.satisfies(stated, each, unknown=Tri.NO) is Tri.YES for each in bounds)
