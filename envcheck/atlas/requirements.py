"""Read what a release requires when it is installed: canonical texts, with requirements of extras apart."""

import re
from collections.abc import Iterator
from functools import lru_cache

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from envcheck.atlas.release import PublishedRelease

_EXTRA = re.compile(r"""\bextra\s*==\s*["']([^"']+)["']|["']([^"']+)["']\s*==\s*extra\b""")

_LABEL = re.compile(r"\+[\w.]+")


def installation_requirements(release: PublishedRelease) -> tuple[str, ...]:
    """Return the requirements that apply without any extra, with their markers, each once, sorted."""
    return tuple(sorted({text for extras, text in _read(release) if not extras}))


def extra_requirements(release: PublishedRelease) -> dict[str, tuple[str, ...]]:
    """Return the requirements of each extra, with their markers, sorted."""
    found: dict[str, set[str]] = {}
    for extras, text in _read(release):
        for extra in extras:
            found.setdefault(extra, set()).add(text)
    return {extra: tuple(sorted(found[extra])) for extra in sorted(found)}


def _read(release: PublishedRelease) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the extras of each requirement (none: it always applies) and its canonical text."""
    for text in release.requires:
        marker = text.partition(";")[2]
        extras = tuple(str(canonicalize_name(one or other)) for one, other in _EXTRA.findall(marker))
        yield extras, canonical(text)


@lru_cache(maxsize=1 << 16)
def canonical(text: str) -> str:
    """Return a requirement in the one spelling that equal requirements share; unchanged if it is not PEP 508.

    Bounds such as `>=1.9.*` were published before they became an error; pip reads them without the star. The
    label in `==2.6.0+cu124` names one build; it is left out, because every build of that release serves.
    """
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        try:
            requirement = Requirement(re.sub(r"(>=|<=|<|>)(\s*[\w.]+)\.\*", r"\1\2", text))
        except InvalidRequirement:
            return text
    requirement.name = canonicalize_name(requirement.name)
    requirement.specifier = SpecifierSet(_LABEL.sub("", str(requirement.specifier)))
    return str(requirement)
