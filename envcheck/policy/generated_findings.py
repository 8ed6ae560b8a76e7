"""Findings without a rule in compat/: generated for the user's own files, waivers and machines."""

from collections.abc import Sequence

from envcheck.core.facts import Fact, Inventory, Known, Value
from envcheck.core.findings import Evidence, Finding, Verdict
from envcheck.core.rules import Basis, Rule, Severity, Source


def generated_finding(
    rule_id: str,
    severity: Severity,
    title: str,
    evidence: Sequence[Evidence],
    *,
    group: str,
    note: str = "",
    verdict: Verdict = Verdict.BROKEN,
) -> Finding:
    """Return a finding of a rule made for this one case; the source of the first evidence is its source."""
    sources = tuple(Source(found.fact.source, "file", "") for found in evidence[:1] if found.fact.source)
    rule = Rule(rule_id, severity, Basis.METADATA, title, (), sources=sources, group=group)
    return Finding(rule, verdict, severity, tuple(evidence), note=note)


# --- fewer GPUs than expected -----------------------------------------------------------------------


def missing_gpus(inventory: Inventory, expected: int) -> Finding | None:
    """Return the finding that fewer GPUs can be used than expected, with what is known about the others.

    A GPU can be used if programs see it, the driver returns it, and CUDA would start on it. A GPU that could
    not be read counts as missing, because a user who expects GPUs needs to know that they are there.
    """
    driver_error = inventory.fact("driver.error")
    driver_works = not isinstance(driver_error.reading, Known)
    evidence = [] if driver_works else [Evidence(driver_error)]
    obstacles = [_obstacle(inventory, device) for device in range(len(inventory.devices))]
    evidence += [Evidence(fact, device) for device, fact in enumerate(obstacles) if fact is not None]
    usable = obstacles.count(None) if driver_works else 0
    counted = inventory.fact("gpus.count")
    if not inventory.devices and driver_works and isinstance(counted.value, int):
        usable = counted.value
    if usable >= expected:
        return None
    if len(inventory.devices) < expected:
        evidence += _counts(inventory)
    noun = f"{expected} GPUs are" if expected > 1 else "a GPU is"
    title = f"{noun} expected, {usable or 'none'} can be used"
    evidence = [Evidence(Fact("gpus.expected", Known(expected))), *evidence]
    return generated_finding("machine:gpus", Severity.ERROR, title, evidence, group="machine")


def _counts(inventory: Inventory) -> list[Evidence]:
    """Return the number of GPUs the driver counts, and the number on the bus if that is larger."""
    counted, on_bus = inventory.fact("gpus.count"), inventory.fact("gpus.on_bus")
    more_on_bus = (
        isinstance(counted.value, int) and isinstance(on_bus.value, int) and on_bus.value > counted.value
    )
    return [Evidence(counted), Evidence(on_bus)] if more_on_bus else [Evidence(counted)]


_OBSTACLES: tuple[tuple[str, tuple[Value, ...]], ...] = (
    ("gpu.visible", (False,)),
    ("gpu.mig_instances", (0,)),
    ("gpu.compute_mode", ("prohibited",)),
    ("gpu.fabric", ("not_started", "in_progress")),
)
"""Facts of a GPU, and the values that mean that programs cannot use it."""


def _obstacle(inventory: Inventory, device: int) -> Fact | None:
    """Return the fact that keeps programs from using a GPU, or None."""
    error = inventory.fact("gpu.error", device)
    if isinstance(error.reading, Known) and error.value != "crashed":
        return error
    for key, values in _OBSTACLES:
        fact = inventory.fact(key, device)
        if fact.value not in values:
            continue
        if key != "gpu.mig_instances" or inventory.known("gpu.mig", device) is True:
            return fact
    return None
