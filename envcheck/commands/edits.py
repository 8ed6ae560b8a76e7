"""The edit of dependency files that fixes the findings of a check: a patch for `patch -p0`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from envcheck.core.facts import Value, family, normalised, package_name
from envcheck.core.rules import uninstalls
from envcheck.dependency_files import DependencyList, ListedPackage

_EDITABLE = (".txt", ".in", ".toml")
"""Files whose lines hold requirements; other files, such as locks, are generated again instead."""

_REQUIREMENT = re.compile(
    r"(?P<name>[A-Za-z][\w.-]*)(?P<extras>\s*\[[^\]]*\])?\s*(?P<bounds>(?:[<>=!~]=?=?\s*[^\s,;\"'#]+\s*,?\s*)*)"
)

_KEY = re.compile(
    r"\s*(?P<quote>[\"']?)(?P<name>[A-Za-z][\w.-]*)(?P=quote)\s*=(?!=)\s*"
    r"(?P<value>(?:\{[^}\n]*?\bversion\s*=\s*)?[\"'](?P<bounds>[^\"'\n]*)[\"']|\{[^}\n]*\})?"
)
"""A package as a key of a table, as Poetry writes it: `torch = "^2.6"`, `torch = { version = "^2.6" }`."""


class FileEdit(NamedTuple):
    """Hold new versions for lines of a file, by line number and package; an empty one removes the package."""

    file: str
    versions: Mapping[tuple[int, str], str]


def edits_of(dependencies: DependencyList, changes: Mapping[str, Value]) -> list[FileEdit]:
    """Return the edits that make changes in the files that a list was read from.

    The changes are values by key; those that are not versions of listed packages are left out.
    """
    listed = {one.name: one for one in dependencies.lines}
    by_file: dict[str, dict[tuple[int, str], str]] = {}
    for key, version in changes.items():
        name = package_name(key)
        package = listed.get(name) if family(key) == "pkg" else None
        place = _line_of(package) if package is not None else None
        if place is None:
            continue
        file, line = place
        by_file.setdefault(file, {})[line, name] = "" if uninstalls(key, version) else str(version)
    return [FileEdit(file, versions) for file, versions in by_file.items()]


def _line_of(package: ListedPackage) -> tuple[str, int] | None:
    found = re.fullmatch(r"(.+?):(\d+)(?::\d+)?", package.place)
    if found is None or not found[1].endswith(_EDITABLE) or "lock" in found[1].rpartition("/")[2]:
        return None
    return found[1], int(found[2])


def patch(text: str, edit: FileEdit) -> str:
    """Return the unified diff of an edit; empty if a line has a hash, or cannot be edited."""
    before = text.splitlines(keepends=True)
    after = list(before)
    for (number, name), version in edit.versions.items():
        if not 0 < number <= len(before) or _is_hashed(before, number):
            return ""
        line = after[number - 1]
        changed = _with_version(line, name, version) if version else _without(line, name)
        if changed == after[number - 1]:
            return ""
        after[number - 1] = changed
    ends = [line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in before]
    new_ends = [
        line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n" for line in after if line
    ]
    return "".join(difflib.unified_diff(ends, new_ends, edit.file, edit.file))


def _is_hashed(lines: Sequence[str], number: int) -> bool:
    line = lines[number - 1]
    return "--hash" in line or line.rstrip().endswith("\\")


def _key(line: str, name: str) -> re.Match[str] | None:
    """Return the package as a key of a table; None if the line holds it in another way, or not at all."""
    found = _KEY.match(line)
    return found if found is not None and normalised(found["name"]) == name else None


def _requirement(line: str, name: str) -> re.Match[str] | None:
    """Return the requirement on a package in a line; None if it has none, or names an address for it."""
    for found in _REQUIREMENT.finditer(line):
        if normalised(found["name"]) == name:
            return None if line[found.end("name") :].lstrip().startswith("@") else found
    return None


def _without(line: str, name: str) -> str:
    """Return a line without the requirement on a package; empty if it holds nothing else but a comment."""
    if (key := _key(line, name)) is not None:
        value = key["value"] or "["
        ends_here = value[0] in "\"'" or (value[0] == "{" and "}" in line[key.start("value") :])
        return "" if ends_here else line
    found = _requirement(line, name)
    if found is None:
        return line
    before, quote = line[: found.start()], line[found.start() - 1 : found.start()]
    if quote and quote in "\"'":  # an element of a list in TOML
        rest = line[found.start() :].partition(quote)[2]
        after = rest.lstrip().removeprefix(",").lstrip(" ")
        before = before[:-1]
        if not rest.lstrip().startswith(","):
            before, after = before.rstrip().removesuffix(","), rest
    elif before.strip():
        return line
    else:
        after = ""
    rest = f"{before}{after}"
    return rest if rest.partition("#")[0].strip() else ""


def _with_version(line: str, name: str, version: str) -> str:
    """Return a line with one version for a package in place of its bounds."""
    if (key := _key(line, name)) is not None:
        start, end = key.span("bounds")
        return f"{line[:start]}=={version}{line[end:]}" if key["bounds"] is not None else line
    if (found := _requirement(line, name)) is not None:
        bounds = found["bounds"].rstrip()
        at = found.start("bounds") if bounds else found.end("extras" if found["extras"] else "name")
        return f"{line[:at].rstrip()}=={version}{line[at + len(bounds) :]}"
    return line


def patches(edits: Sequence[FileEdit], texts: Mapping[str, str]) -> Iterator[str]:
    """Yield the patch of each file that can be edited; `texts` are the contents by name."""
    for edit in edits:
        if edit.file in texts and (found := patch(texts[edit.file], edit)):
            yield found
