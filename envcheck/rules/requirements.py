"""What installed packages require of each other: their `Requires-Dist` lines, and those that are not met."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.core import markers, versions
from envcheck.core.facts import Fact, Inventory, Known, Tri, normalised, package_key, package_of_key
from envcheck.core.rules import Requirement

_NAME_CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_."


def installed_requirements(inventory: Inventory) -> Iterator[Requirement]:
    """Yield every requirement of every installed package whose marker matches this environment."""
    environment: dict[str, str] | None = None
    for fact, line in _requirement_lines(inventory):
        bare, _, marker = line.partition(";")
        if marker:
            environment = environment or _marker_environment(inventory)
            if not markers.matches(marker, environment):
                continue
        name, specifier = _split_requirement(bare)
        if name:
            yield Requirement(package_of_key(fact.key), name, specifier, fact.source)


def unmet_requirements(inventory: Inventory) -> tuple[list[Requirement], int]:
    """Return the requirements that are not surely met, and the number of those that are.

    An environment meets hundreds of requirements and misses a few: only the few become rules.
    """
    unmet, met = [], 0
    for requirement in installed_requirements(inventory):
        installed = inventory.fact(package_key(requirement.requires)).reading
        # An unreadable specifier does not restrict anything.
        if isinstance(installed, Known) and (
            versions.satisfies(str(installed.value), requirement.specifier, unknown=Tri.YES) is Tri.YES
        ):
            met += 1
        else:
            unmet.append(requirement)
    return unmet, met


def _requirement_lines(inventory: Inventory) -> Iterator[tuple[Fact, str]]:
    for key, fact in inventory.facts.items():
        if key.endswith(".requires") and isinstance(fact.value, tuple):
            for line in fact.value:
                yield fact, line


def _split_requirement(text: str) -> tuple[str, str]:
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


def _marker_environment(inventory: Inventory) -> dict[str, str]:
    return markers.environment(
        str(inventory.known("python.version") or "3.11.0"),
        architecture=str(inventory.known("host.arch") or "x86_64"),
        system=str(inventory.known("host.os") or "linux"),
        implementation=str(inventory.known("python.implementation") or "cpython"),
    )
