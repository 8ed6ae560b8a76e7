"""What pip was asked for and did not find, and what the index offers instead, from its own message. Pure.

pip names the releases that the index has for the Python and the platform that ask (`from versions:`), and at
the beginning of its output the indexes. Both say why a release was not found, which the message does not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple

from packaging.version import Version

from envcheck.core.facts import normalised
from envcheck.core.versions import base_release, local_label, order, parse

_NOT_FOUND = re.compile(
    r"satisfies the requirement (?P<asked>[A-Za-z][^\s();,]{0,200}(?:,[^\s();]{1,200})?)"
    r"[^\n]{0,400}?\(from versions: "
)
_REQUIRED_BY = re.compile(r"\(from (?P<who>[A-Za-z][\w.-]*)")
_PINNED = re.compile(r"(?P<name>[A-Za-z][\w.-]*)(?:\[[^\]]{0,100}\])?={2,3}(?P<version>\d[\w.+]*)$")
_INDEXES = re.compile(r"(?m)^\s{0,9}Looking in (?:indexes|links): (?P<those>\S[^\n]{0,2000})$")
_OF_TORCH = re.compile(r"/whl/(?P<label>cu\d{2,3}|rocm[\d.]{1,9}|cpu|xpu)/?$")
"""How the address of an index of torch's builds ends, on mirrors too, but not that of nightly builds."""


_WITH_OWN_INDEX = frozenset({"torch", "torchvision", "torchaudio"})
"""Packages whose builds with a label are on an index of their own."""


class Position(Enum):
    """Say where a release that was asked for stands among those that are offered."""

    OLDER = "older"
    NEWER = "newer"
    BETWEEN = "between"
    UNKNOWN = "unknown"


class PipOffer(NamedTuple):
    """Hold a release that pip did not find, and the releases that the index offers, oldest first.

    `label` names the builds of torch that the only index holds which was asked (`cu128`), or those that the
    requirement names; it is empty if that is not known. `labels` are the labels of the builds of this
    release, and `published` says that some release of torch has such builds. `required_by` is the package
    that requires the release, empty if the user does.
    """

    name: str
    version: str
    offered: tuple[str, ...]
    label: str = ""
    labels: tuple[str, ...] = ()
    published: bool = True
    required_by: str = ""

    @property
    def position(self) -> Position:
        """Return where the release stands among those that are offered."""
        if not self.offered:
            return Position.UNKNOWN
        asked, offered = _release(self.version), [_release(each) for each in self.offered]
        if asked < offered[0]:
            return Position.OLDER
        if asked > offered[-1]:
            return Position.NEWER
        return Position.UNKNOWN if asked in offered else Position.BETWEEN

    @property
    def is_elsewhere(self) -> bool:
        """Return whether the release is offered, but not the build of it that its label names."""
        label = local_label(self.version) if self.name in _WITH_OWN_INDEX else ""
        offered = [each for each in self.offered if _release(each) == _release(self.version)]
        return bool(label and offered) and all(local_label(each) != label for each in offered)

    @property
    def lacks_builds(self) -> bool:
        """Return whether the release has no builds of the label, whatever Python and system ask for it."""
        return bool(self.label and self.labels) and self.label not in self.labels

    @property
    def explains(self) -> bool:
        """Return whether it is known why the release was not found."""
        return self.lacks_builds or self.is_elsewhere or self.position is not Position.UNKNOWN

    @property
    def nearest(self) -> tuple[str, ...]:
        """Return the offered releases next to the one that was asked for, at most one on each side."""
        asked = _release(self.version)
        below = [each for each in self.offered if _release(each) < asked]
        above = [each for each in self.offered if _release(each) > asked]
        return (*below[-1:], *above[:1])


def _release(version: str) -> tuple[bool, Version | str]:
    """Return the sort key of a release, whose builds and pre-releases are alike."""
    return order(base_release(version))


def pip_offer(text: str, log_text: str, labels: Mapping[str, Collection[str]]) -> PipOffer | None:
    """Return what pip says about a release that it did not find; None if the text does not pin one.

    `log_text` is the log, in which pip names its indexes. `labels` are the labels of the builds of each
    release of torch.
    """
    found = _NOT_FOUND.search(text)
    pinned = _PINNED.match(found["asked"]) if found else None
    if found is None or pinned is None or parse(pinned["version"]) is None:
        return None
    listed = text[found.end() :].partition(")")[0].partition("\n")[0]
    offered = sorted({each.strip() for each in listed.split(",") if parse(each.strip())}, key=order)
    name, version = normalised(pinned["name"]), pinned["version"]
    known = tuple(sorted(labels.get(base_release(version), ()))) if name == "torch" else ()
    label = local_label(version) or _label_of_index(log_text)
    label = label if label.startswith("cu") else ""
    published = any(label in those for those in labels.values())
    who = _REQUIRED_BY.search(found[0])
    required_by = normalised(who["who"]) if who and who["who"] not in ("versions", "-r") else ""
    return PipOffer(name, version, tuple(offered), label if known else "", known, published, required_by)


def _label_of_index(log_text: str) -> str:
    """Return the label of the builds that the index holds; empty if another index was asked as well."""
    asked = {each.strip() for found in _INDEXES.finditer(log_text) for each in found["those"].split(",")}
    found = _OF_TORCH.search(next(iter(asked))) if len(asked) == 1 else None
    return found["label"] if found else ""
