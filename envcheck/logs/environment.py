"""The environment that a log prints: versions, GPUs and arguments, in the forms that known tools print. Pure.

A log may also print the versions of another machine. So only whole lines of known tools count, and a fact for
which the log prints different values is unknown.
"""

from __future__ import annotations

import re
from bisect import bisect_left
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
from envcheck.logs.stated_versions import lines_of_others, list_forms

Tables = Mapping[str, Sequence[Mapping[str, Any]]]


class Printed(NamedTuple):
    """One value that a log prints for a fact, with the index of its GPU, if any, and the line number.

    `installed` says that the value came to be in that line, so that earlier ones no longer hold.
    """

    key: str
    value: Value
    device: int | None
    line: int
    installed: bool = False


def facts(text: str, number: int, tables: Tables, vocabulary: Vocabulary) -> Iterator[Printed]:
    """Yield the values that a text prints; `number` is that of its first line."""
    others, line_feeds = _OtherEnvironments(text, tables), [each.start() for each in re.finditer("\n", text)]
    for row in tables.get("log_fact", ()):
        for match in _matches(row, text):
            line = bisect_left(line_feeds, match.start())
            if row.get("written") and others.have(line):
                continue
            groups = match.groupdict()
            key = row["key"].replace("*", normalised(groups.get("package") or ""))
            device = int(groups.get("device", 0)) if key.startswith("gpu.") else None
            value = _value(groups["value"], row.get("values"), key, vocabulary)
            if value is not None:
                yield Printed(key, value, device, number + line, row.get("installs", False))
    for row in tables.get("log_listing", ()):
        for package, version, line in _listed_packages(row, text):
            if versions.parse(version) is not None and not (row.get("written") and others.have(line)):
                name = row.get("renamed", {}).get(package, package)
                key = "python.version" if name == "python" else package_key(normalised(name))
                yield Printed(key, version, None, number + line)


class _OtherEnvironments:
    """Say which lines of a text list another environment, by the sentence above; read only when asked."""

    def __init__(self, text: str, tables: Tables) -> None:
        self._text, self._tables = text, tables
        self._lines: frozenset[int] | None = None

    def have(self, line: int) -> bool:
        """Return whether a line, counted from 0, need not be of the environment that failed."""
        if self._lines is None:
            self._lines = lines_of_others(self._text, list_forms(self._tables))
        return line in self._lines


def _matches(row: Mapping[str, Any], text: str) -> Iterator[re.Match[str]]:
    """Yield the matches of a row; if it has `after`, only those shortly behind a match of that pattern."""
    pattern = re.compile(row["pattern"])
    if "after" not in row:
        yield from pattern.finditer(text)
        return
    for banner in re.finditer(row["after"], text):
        yield from pattern.finditer(text, banner.start(), banner.start() + _BANNER)


_BANNER = 700
"""Characters of a banner that a program prints when it starts."""


def lists_all_packages(text: str, tables: Tables) -> bool:
    """Return whether a text is the list of all packages of an environment, as its header says."""
    headers = [row["header"] for row in tables.get("log_listing", ()) if row.get("whole")]
    return any(re.match(header, line) for header in headers for line in text.split("\n"))


def commands(text: str, number: int, tables: Tables) -> Iterator[tuple[str, int]]:
    """Yield the commands that a text reports as started, with their line numbers."""
    for row in tables.get("log_command", ()):
        for match in re.finditer(row["pattern"], text):
            yield match["command"], number + text.count("\n", 0, match.start())


OF_NVIDIA = re.compile(r"(?i)cuda|nvidia|nccl|nvcc|cudnn|cublas")
"""Words of a text on NVIDIA's software, which says nothing to a log of another platform."""


class Platform(NamedTuple):
    """An accelerator or system other than NVIDIA's that a log comes from, and the line that shows it."""

    name: str
    line: int


def platform(texts: Iterable[tuple[str, int]], tables: Tables) -> Platform | None:
    """Return the platform that texts show, or None for NVIDIA's; each text has its first line number."""
    rows = [(row["name"], re.compile(row["pattern"])) for row in tables.get("log_platform", ())]
    for text, number in texts:
        for name, pattern in rows:
            if found := pattern.search(text):
                return Platform(name, number + text.count("\n", 0, found.start()))
    return None


def inventory(printed: Iterable[Printed]) -> Inventory:
    """Return the values as an inventory; GPUs are left out unless their indices are 0, 1, 2 and so on."""
    by_key: dict[tuple[str, int | None], list[Printed]] = {}
    for value in printed:
        by_key.setdefault((value.key, value.device), []).append(value)
    machine: dict[str, Fact] = {}
    gpus: dict[int, dict[str, Fact]] = {}
    for (key, device), values in by_key.items():
        fact = Fact(key, _agreed(values), f"log line {values[0].line}")
        if device is None:
            machine[key] = fact
        else:
            gpus.setdefault(device, {})[key] = fact
    devices = tuple(gpus[number] for number in sorted(gpus)) if sorted(gpus) == [*range(len(gpus))] else ()
    count = machine.pop("gpus.count", None)
    if len(devices) == 1 and count is not None and isinstance(count.value, int):
        devices *= count.value  # the log names one model and how many there are
    if devices:
        machine["gpus.count"] = Fact(
            "gpus.count", Known(len(devices)), next(iter(devices[0].values())).source
        )
    return Inventory(machine, devices)


def _agreed(values: Sequence[Printed]) -> Reading:
    """Return the value, the longer of `3.11` and `3.11.9`; Unknown if the log prints different values."""
    since = max((printed.line for printed in values if printed.installed), default=0)
    values = [printed for printed in values if printed.line >= since]
    best = max(values, key=lambda printed: len(str(printed.value)))
    for printed in values:
        prefixes = (f"{printed.value}.", f"{printed.value}+")
        if printed.value != best.value and not str(best.value).startswith(prefixes):
            one, other = sorted((printed, best), key=lambda value: value.line)
            return Unknown(
                f"the log says {one.value} in line {one.line} and {other.value} in line {other.line}"
            )
    return Known(best.value)


def _value(text: str, values: Mapping[str, Value] | None, key: str, vocabulary: Vocabulary) -> Value | None:
    """Return a printed text as the value of a fact, or None if it is not one."""
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


def _listed_packages(row: Mapping[str, Any], text: str) -> Iterator[tuple[str, str, int]]:
    """Yield (package, version, line) of each list of packages.

    A list begins with its header; one without a header needs at least `least` consecutive rows, and one of
    the packages of `one_of`. If a line of the same paragraphs matches `unless_beside`, it is no list of what
    is installed: a requirements file that pins some packages has ranges for others.
    """
    header, least = row.get("header"), row.get("least", 1)
    one_of = {*row.get("one_of", ())}
    packages: list[tuple[str, str, int]] = []
    in_list = header is None
    lines = [*text.split("\n"), ""]
    requirements = _RequirementLines(row, lines)
    for line_number, line in enumerate(lines):
        match = re.match(row["row"], line) if in_list else None
        if match:
            packages.append((match["package"], match["value"], line_number))
        elif header is not None and re.match(header, line):
            in_list = True
        elif not (in_list and header and _is_ruler(line)):
            enough = len(packages) >= least and (not one_of or one_of & {name for name, _, _ in packages})
            if enough and not requirements.around(packages[0][2], line_number):
                yield from packages
            packages, in_list = [], header is None


class _RequirementLines:
    """Say where lines of a text show that they belong to a requirements file, and where such a file ends.

    Each line is compared once, however many lists the text has; of a text without a list, none is.
    """

    def __init__(self, row: Mapping[str, Any], lines: Sequence[str]) -> None:
        self._row, self._lines = row, lines
        self._unpinned: list[int] | None = None  # lines with a range, in order
        self._ends: list[int] = []  # lines that no requirements file has, in order

    def around(self, first: int, end: int) -> bool:
        """Return whether the lines from `first` to before `end` belong to a requirements file."""
        if "unless_beside" not in self._row:
            return False
        if self._unpinned is None:
            self._unpinned = self._compare()
        above, below = bisect_left(self._ends, first), bisect_left(self._ends, end)
        start = max(self._ends[above - 1] + 1 if above else 0, first - _AROUND)
        stop = min(self._ends[below] if below < len(self._ends) else len(self._lines), end + _AROUND)
        return self._has_range(start, first) or self._has_range(end, stop)

    def _compare(self) -> list[int]:
        pattern = self._row["unless_beside"]
        unpinned = re.compile(pattern)
        others = re.compile(rf"\s*(?:#.*)?$|(?:{self._row['row']})")
        found = []
        for number, line in enumerate(self._lines):
            if unpinned.match(line):
                found.append(number)
            elif not others.match(line):
                self._ends.append(number)
        return found

    def _has_range(self, start: int, stop: int) -> bool:
        unpinned = self._unpinned or []
        at = bisect_left(unpinned, start)
        return at < len(unpinned) and unpinned[at] < stop


_AROUND = 200
"""Lines above and below a list that may belong to the same file."""


def _is_ruler(line: str) -> bool:
    """Return whether a line is the ruler below the header of a list."""
    return bool(line.strip()) and set(line.strip()) <= {"-", " ", "#"}
