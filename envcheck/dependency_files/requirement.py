"""One requirement as people and tools write it, pinned or not; what the other readers share."""

from __future__ import annotations

import re

from envcheck.core import markers
from envcheck.core.facts import normalised
from envcheck.dependency_files import ListedPackage, ReadingContext

_OPTIONS = re.compile(r"\s--?[A-Za-z]")
_FULL_RELEASE = 3  # parts of a version that conda's fuzzy `=` cannot mean another by


def read(text: str, place: str, asked: ReadingContext) -> ListedPackage | None:
    """The package of a requirement; None if its marker leaves it out here, or it names no package.

    Raises:
        ValueError: not a requirement; says why, and not what stood there, which may hold a login.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    found = _OPTIONS.search(text)
    text = text[: found.start()] if found else text
    try:
        parsed = Requirement(text.strip())
    except (InvalidRequirement, RecursionError):
        if re.search(r"://|@|^\.{0,2}/|^\.+$|\.whl$|\.tar\.gz$", text.strip()):
            return None  # a path or an address without a name: what it brings is not told here
        raise ValueError("expected a requirement such as torch==2.6.0") from None
    name = normalised(parsed.name)
    if parsed.marker is not None:
        words = str(parsed.marker)
        if "python" in words and not asked.python:
            return ListedPackage(name, "", place, "its marker asks for the Python, which nobody said")
        if not parsed.marker.evaluate(markers.environment(asked.python, architecture=asked.arch)):
            return None
    if parsed.url:
        return _at(name, parsed.url, place)
    version = pinned(str(parsed.specifier))
    return ListedPackage(name, version, place, "" if version else "no version is pinned")


def pinned(specifier: str) -> str:
    """The one version a specifier admits; empty if it admits several."""
    for part in specifier.split(","):
        operand = part.strip().lstrip("=")
        if part.strip().startswith("==") and not operand.strip().endswith("*"):
            return operand.strip()
    return ""


def _at(name: str, url: str, place: str) -> ListedPackage:
    """A direct reference: the version is in the name of its wheel."""
    from packaging.utils import InvalidWheelFilename, parse_wheel_filename

    file = url.partition("#")[0].partition("?")[0].rpartition("/")[2].replace("%2B", "+").replace("%2b", "+")
    try:
        return ListedPackage(name, str(parse_wheel_filename(file)[1]), place)
    except InvalidWheelFilename:
        return ListedPackage(name, "", place, "a direct reference whose file tells no version")


def conda_version(spec: str) -> str:
    """The version of a conda spec's right-hand side (`=2.4.0`, `==2.4.0`); empty if it admits several."""
    version = spec.lstrip("=")
    exact = spec.startswith("==") or version.count(".") >= _FULL_RELEASE - 1
    return version if exact and re.fullmatch(r"[0-9][0-9A-Za-z.+!_]*", version) else ""
