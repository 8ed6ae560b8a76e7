"""Packages that a message asks for although they are installed, so that no advice installs them. Pure."""

from __future__ import annotations

import re

from envcheck.core.facts import Inventory, normalised, package_key

_ASKED = re.compile(
    r"pip3? install (?:-U |--upgrade |-q )*[`'\"]?([A-Za-z][\w.-]*)"
    r"|requires the ([A-Za-z][\w-]*) (?:library|package) but it was not found"
)


def installed_already(message: str, inventory: Inventory) -> str:
    """Return the packages that a message asks for, with their installed versions.

    Return an empty text if it names none, or one that is not known to be installed.
    """
    asked = dict.fromkeys(normalised(match[1] or match[2]) for match in _ASKED.finditer(message))
    versions = {name: inventory.known(package_key(name)) for name in asked}
    if not versions or not all(versions.values()):
        return ""
    return ", ".join(f"{name} {version}" for name, version in versions.items())
