"""pixi.lock: the packages of each environment and platform, from conda and from the index, by address.

It is read line by line: pixi writes one package per line, and a whole lock is too large for the YAML parser.
"""

from __future__ import annotations

import re

from envcheck.core.errors import InputError
from envcheck.core.facts import Fact, normalised
from envcheck.dependency_files import DependencyFormat, DependencyList, ListedPackage, ReadingContext
from envcheck.dependency_files.parsing.conda_files import (
    PLATFORMS,
    conda_package,
    name_and_version,
    packages_from_conda,
)

_SECTION = re.compile(r"(\w[\w-]*):")
_ENVIRONMENT = re.compile(r"  ([\w.-]+):$")
_PLATFORM = re.compile(r"      ([\w-]+):(?: \[\])?$")
_PACKAGE = re.compile(r"      - (conda|pypi): (\S+)")
_ADDRESS = re.compile(r"- (?:kind: pypi|(?:conda|pypi): (\S+))$")
_FIELD = re.compile(r"  (name|version|url): ['\"]?([^'\"\s]+)")


def read(text: str, where: str, context: ReadingContext) -> tuple[DependencyList, ...]:
    """Return one list for each environment, for Linux.

    Raises:
        InputError: the file is not a lock of pixi, or has nothing for this platform.
    """
    platform = PLATFORMS.get(context.arch, "")
    lines = text.split("\n")
    if not any(line.startswith("environments:") for line in lines):
        raise InputError(where, "expected environments: as pixi writes them")
    details = _details(lines)
    lists = [
        _listed(name, packages, where, details)
        for name, packages in _environments(lines, platform).items()
        if packages
    ]
    if not lists:
        raise InputError(where, f"it has no packages for {platform or context.arch}")
    return tuple(one._replace(name=where) for one in lists) if len(lists) == 1 else tuple(lists)


def _environments(lines: list[str], platform: str) -> dict[str, list[tuple[int, str, str]]]:
    """Return (line, kind, address) of the packages of each environment for a platform."""
    found: dict[str, list[tuple[int, str, str]]] = {}
    section = environment = current = ""
    for number, line in enumerate(lines, 1):
        if top := _SECTION.match(line):
            section = top[1]
        elif section != "environments":
            continue
        elif named := _ENVIRONMENT.match(line):
            environment, current = named[1], ""
            found[environment] = []
        elif named := _PLATFORM.match(line):
            current = named[1]
        elif current == platform and environment and (package := _PACKAGE.match(line)):
            found[environment].append((number, package[1], package[2]))
    return found


def _details(lines: list[str]) -> dict[str, tuple[str, str]]:
    """Return the name and version that the list of packages states for an address."""
    found: dict[str, tuple[str, str]] = {}
    address, name, in_packages = "", "", False
    for line in lines:
        if _SECTION.match(line):
            in_packages = line.startswith("packages:")
        elif in_packages and (begun := _ADDRESS.match(line)):
            address, name = begun[1] or "", ""
        elif in_packages and (field := _FIELD.match(line)):
            if field[1] == "name":
                name = field[2]
            elif field[1] == "url":
                address = field[2]
            elif address and name:
                found[address] = (name, field[2])
    return found


def _listed(
    environment: str, rows: list[tuple[int, str, str]], where: str, details: dict[str, tuple[str, str]]
) -> DependencyList:
    packages: dict[str, ListedPackage] = {}
    conda: list[ListedPackage] = []
    facts: list[Fact] = []
    for number, kind, address in rows:
        place = f"{where}:{number}:1"
        name, version = details.get(address) or name_and_version(address)
        if kind == "conda":
            package, found = conda_package(name, version, address.rpartition("/")[2], place)
            facts += found
        elif name:
            package = ListedPackage(normalised(name), version, place, "" if version else "no version in it")
        else:
            continue
        if package is not None and (kind == "pypi" or package.name not in packages):
            packages[package.name] = package
            conda += [package] if kind == "conda" else []
    facts += packages_from_conda(conda, packages, where)
    return DependencyList(f"{where} ({environment})", tuple(packages.values()), tuple(facts), whole=True)


LISTING = DependencyFormat("pixi.lock", lambda name: name.endswith("pixi.lock"), read)
