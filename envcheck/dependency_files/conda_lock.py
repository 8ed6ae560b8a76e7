"""conda-lock.yml: every package of an environment for each platform, from conda and from the index.

It is read line by line: conda-lock writes each field of a package on its own line, and a whole lock is too
large for the YAML parser.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.core.errors import InputError
from envcheck.core.facts import Fact, normalised
from envcheck.dependency_files import DependencyFormat, DependencyList, ListedPackage, ReadingContext
from envcheck.dependency_files.parsing.conda_files import PLATFORMS, conda_package, packages_from_conda

_BEGIN = re.compile(r"( {0,2})- name: ['\"]?([^'\"\s]+)")
_FIELD = re.compile(r" +(version|manager|platform|url): ['\"]?([^'\"\s]+)")


def read(text: str, where: str, context: ReadingContext) -> tuple[DependencyList, ...]:
    """Return the one list of a lock for Linux, which is whole; all categories are read together.

    Raises:
        InputError: the file is not a lock of conda-lock, or has nothing for this platform.
    """
    platform = PLATFORMS.get(context.arch, "")
    packages: dict[str, ListedPackage] = {}
    conda: list[ListedPackage] = []
    facts: list[Fact] = []
    found = False
    for number, fields in _rows(text):
        found = True
        if fields.get("platform") != platform:
            continue
        place, version = f"{where}:{number}:1", fields.get("version", "")
        if fields.get("manager") == "pip":
            name = normalised(fields["name"])
            packages[name] = ListedPackage(name, version, place, "" if version else "no version in it")
            continue
        package, stated = conda_package(fields["name"], version, fields.get("url", ""), place)
        facts += stated
        if package is not None:
            conda.append(package)
            packages.setdefault(package.name, package)
    if not found:
        raise InputError(where, "expected package: with a list, as conda-lock writes it")
    if not packages:
        raise InputError(where, f"it has no packages for {platform or context.arch}")
    facts += packages_from_conda(conda, packages, where)
    return (DependencyList(where, tuple(packages.values()), tuple(facts), whole=True),)


def _rows(text: str) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield the line and the fields of each package."""
    fields: dict[str, str] = {}
    begun = 0
    in_packages = False
    for number, line in enumerate(text.split("\n"), 1):
        if line[:1].isalpha():
            in_packages = line.startswith("package:")
        elif not in_packages:
            continue
        elif start := _BEGIN.match(line):
            if fields:
                yield begun, fields
            begun, fields = number, {"name": start[2]}
        elif fields and (field := _FIELD.match(line)):
            fields.setdefault(field[1], field[2])
    if fields:
        yield begun, fields


LISTING = DependencyFormat(
    "conda-lock.yml", lambda name: name.endswith(("conda-lock.yml", "conda-lock.yaml")), read
)
