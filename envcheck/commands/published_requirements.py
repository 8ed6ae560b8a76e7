"""Give a facts file, a requirements file or a lock the requirements that its releases were published with.

An installed environment has the metadata of its packages; a list of versions does not. With the published
requirements, `doctor` and `check` say of a list what `pip check` would say once it is installed.
"""

from __future__ import annotations

from envcheck.commands.atlas_tables import release_table
from envcheck.core.facts import (
    Fact,
    Inventory,
    Known,
    is_package_version_key,
    normalised,
    package_key,
    package_name,
)
from envcheck.rules.requirements import PUBLISHED

_NAME_ENDS_AT = " <>=!~;[(@"


def with_published_requirements(read: Inventory) -> Inventory:
    """Return the inventory with the requirements of each known release on the others that are listed.

    It is returned unchanged if the requirements of any package were read, because then it is an environment.
    """
    listed = {
        package_name(key): str(fact.value)
        for key, fact in read.facts.items()
        if fact.value is not None and is_package_version_key(key)
    }
    if len(listed) < 2 or any(key.endswith(".requires") for key in read.facts):  # noqa: PLR2004 - a pair
        return read
    table = release_table()
    facts = []
    for package, version in listed.items():
        row = table.row(package, version)
        lines = tuple(line for line in (row.requires if row else ()) if _required_name(line) in listed)
        if lines:
            source = f"{PUBLISHED}{package} {version}"
            facts.append(Fact(package_key(package, "requires"), Known(lines), source))
    return read.with_facts(facts)


def _required_name(line: str) -> str:
    end = min((place for mark in _NAME_ENDS_AT if (place := line.find(mark)) >= 0), default=len(line))
    return normalised(line[:end])
