"""What a log prints of where it ran: versions, GPUs, arguments, in the clear forms that known tools print.

Pure. What is printed is no proof that it failed there, so only whole lines of known tools count, and a log
that says two things of one fact leaves it unknown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core import versions
from envcheck.core.facts import (
    Fact,
    Inventory,
    Kind,
    Known,
    Reading,
    Unknown,
    Value,
    Vocabulary,
    normalised,
    package_key,
)

Tables = Mapping[str, Sequence[Mapping[str, Any]]]


class Printed(NamedTuple):
    """One value a log gives to a fact, the GPU it is of, and the line it is on."""

    key: str
    value: Value
    device: int | None
    line: int


def facts(text: str, number: int, tables: Tables, vocabulary: Vocabulary) -> Iterator[Printed]:
    """What a text says, the first line of which has this number."""
    for row in tables.get("log_fact", ()):
        for hit in re.finditer(row["pattern"], text):
            found = hit.groupdict()
            key = row["key"].replace("*", normalised(found.get("package") or ""))
            device = int(found["device"]) if "device" in found else None
            value = _value(found["value"], row.get("values"), key, vocabulary)
            if value is not None:
                yield Printed(key, value, device, number + text.count("\n", 0, hit.start()))
    for row in tables.get("log_listing", ()):
        for package, version, line in _listed(row, text):
            if versions.parse(version) is not None:
                yield Printed(package_key(normalised(package)), version, None, number + line)


def commands(text: str, number: int, tables: Tables) -> Iterator[tuple[str, int]]:
    """The commands that a text says were started, with their lines."""
    for row in tables.get("log_command", ()):
        for hit in re.finditer(row["pattern"], text):
            yield hit["command"], number + text.count("\n", 0, hit.start())


def inventory(printed: Iterable[Printed]) -> Inventory:
    """The facts as an inventory; GPUs only if they are counted from 0 without a gap."""
    by_key: dict[tuple[str, int | None], list[Printed]] = {}
    for each in printed:
        by_key.setdefault((each.key, each.device), []).append(each)
    machine: dict[str, Fact] = {}
    gpus: dict[int, dict[str, Fact]] = {}
    for (key, device), said in by_key.items():
        fact = Fact(key, _agreed(said), f"log line {said[0].line}")
        if device is None:
            machine[key] = fact
        else:
            gpus.setdefault(device, {})[key] = fact
    devices = tuple(gpus[number] for number in sorted(gpus)) if sorted(gpus) == [*range(len(gpus))] else ()
    if devices:
        machine["gpus.count"] = Fact(
            "gpus.count", Known(len(devices)), next(iter(devices[0].values())).source
        )
    return Inventory(machine, devices)


def _agreed(said: Sequence[Printed]) -> Reading:
    """The one value; the longer of `3.11` and `3.11.9`; unknown if the log contradicts itself."""
    best = max(said, key=lambda each: len(str(each.value)))
    for each in said:
        if each.value != best.value and not str(best.value).startswith((f"{each.value}.", f"{each.value}+")):
            one, other = sorted((each, best), key=lambda printed: printed.line)
            return Unknown(
                f"the log says {one.value} in line {one.line} and {other.value} in line {other.line}"
            )
    return Known(best.value)


def _value(text: str, values: Mapping[str, Value] | None, key: str, vocabulary: Vocabulary) -> Value | None:
    declared = vocabulary.get(key)
    if declared is None:
        return None
    if values is not None:
        return values.get(text)
    if declared.kind is Kind.NUMBER:
        return int(text)
    if declared.kind is Kind.VERSION and versions.parse(text) is None:
        return None
    return text.strip()


def _listed(row: Mapping[str, Any], text: str) -> Iterator[tuple[str, str, int]]:
    """Rows of a list of packages: those under its header, or where it has none, enough of them in a row."""
    header, least = row.get("header"), row.get("least", 1)
    run: list[tuple[str, str, int]] = []
    within = header is None
    for line, each in enumerate([*text.split("\n"), ""]):
        hit = re.match(row["row"], each) if within else None
        if hit:
            run.append((hit["package"], hit["value"], line))
        elif header is not None and re.match(header, each):
            within = True
        elif not (within and header and set(each.strip()) <= {"-", " ", "#"} and each.strip()):
            if len(run) >= least:
                yield from run
            run, within = [], header is None
