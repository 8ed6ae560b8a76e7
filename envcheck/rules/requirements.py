"""What installed packages require of each other: their `Requires-Dist` lines, and those that are not met."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.core import markers, versions
from envcheck.core.facts import Fact, Inventory, Known, Tri, normalised, package_key, package_of_key
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Requirement

PUBLISHED = "published metadata of "
"""Prefix of the source of requirements from the table of releases, as opposed to an environment."""

_LONGEST_QUOTE = 60  # characters of a line that a message quotes
_NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."


class UnreadableMetadata(NamedTuple):
    """A package whose metadata cannot be read, or not all of it: the key with its source, and why."""

    package: str
    key: str
    source: str
    why: str


class RequirementCheck(NamedTuple):
    """Requirements that are not surely met, the number of those that are, and what cannot be read."""

    unmet: list[Requirement]
    met: int
    unreadable: list[UnreadableMetadata]


def is_environment(inventory: Inventory) -> bool:
    """Return whether the metadata of installed packages was read, rather than a list of versions."""
    return any(
        key.endswith(".requires") and not fact.source.startswith(PUBLISHED)
        for key, fact in inventory.facts.items()
    )


def installed_requirements(inventory: Inventory) -> Iterator[Requirement]:
    """Yield every requirement of every installed package whose marker matches this environment."""
    return (found for found in _read_requirements(inventory) if isinstance(found, Requirement))


def check_requirements(inventory: Inventory) -> RequirementCheck:
    """Return the requirements that are not surely met, how many are met, and what cannot be read.

    An environment meets hundreds of requirements and misses a few: only the few become rules.
    """
    found = RequirementCheck([], 0, [])
    unreadable: dict[str, UnreadableMetadata] = {}
    met = 0
    for requirement in _read_requirements(inventory):
        if isinstance(requirement, UnreadableMetadata):
            unreadable.setdefault(requirement.package, requirement)
            continue
        installed = inventory.fact(package_key(requirement.requires)).reading
        # An unreadable specifier does not restrict anything.
        if isinstance(installed, Known) and (
            versions.satisfies(str(installed.value), requirement.specifier, unknown=Tri.YES) is Tri.YES
        ):
            met += 1
        else:
            found.unmet.append(requirement)
    return found._replace(met=met, unreadable=list(unreadable.values()))


def _read_requirements(inventory: Inventory) -> Iterator[Requirement | UnreadableMetadata]:
    environment: dict[str, str] | None = None
    for key, fact in inventory.facts.items():
        if key.endswith(".degraded") and fact.value is True:
            yield UnreadableMetadata(package_of_key(key), key, fact.source, "no name or version in it")
        if not key.endswith(".requires") or not isinstance(fact.value, tuple):
            continue
        for line in fact.value:
            bare, _, marker = line.partition(";")
            if marker:
                environment = environment or marker_environment(inventory)
                matches = markers.matches(marker, environment)
                if matches is None:
                    yield _unreadable_line(fact, line)
                if not matches:
                    continue
            name, specifier = split_requirement(bare)
            if name:
                yield Requirement(package_of_key(key), name, specifier, fact.source)


def _unreadable_line(fact: Fact, line: str) -> UnreadableMetadata:
    short = line if len(line) <= _LONGEST_QUOTE else f"{line[:_LONGEST_QUOTE]}…"
    package = package_of_key(fact.key)
    return UnreadableMetadata(package, package_key(package), fact.source, f"it requires {short!r}")


def split_requirement(text: str) -> tuple[str, str]:
    """Return name and specifier of a requirement; no name if it is a URL.

    `huggingface_hub[cli] (>=0.23,<1)` gives `('huggingface-hub', '>=0.23,<1')`.
    """
    if "@" in text:
        return "", ""
    text = text.strip()
    rest = text.lstrip(_NAME_CHARACTERS)
    name, rest = text.removesuffix(rest), rest.strip()
    if rest.startswith("["):
        rest = rest.partition("]")[2].strip()
    return normalised(name), rest.strip("()").replace(" ", "")


def marker_environment(inventory: Inventory) -> dict[str, str]:
    """Return the marker variables of the environment; the default is CPython 3.11 on x86_64 Linux."""
    return markers.environment(
        str(inventory.known("python.version") or "3.11.0"),
        architecture=str(inventory.known("host.arch") or "x86_64"),
        system=str(inventory.known("host.os") or "linux"),
        implementation=str(inventory.known("python.implementation") or "cpython"),
    )
