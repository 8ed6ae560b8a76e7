"""Which releases an index really offers: the tables know what was published, a mirror may lack it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from packaging.version import Version

from envcheck.host.machine import Host
from envcheck.lock.model import Artifact
from envcheck.lock.wheels import release_of, usable_files, usable_tags
from envcheck.resolver_backends import CompletionRequest
from envcheck.resolver_backends.index import IndexReader, NoProjectError

PAGES_S = 60.0
"""Seconds for the pages of a handful of packages."""


class Offer(NamedTuple):
    """The releases of a package with a usable file on the index, and those of them that were withdrawn."""

    usable: frozenset[Version]
    yanked: frozenset[Version]


def offers(host: Host, wanted: CompletionRequest, also: Iterable[str] = ()) -> dict[str, Offer]:
    """What the index offers of pinned packages and of others, for the Python, platform and day wanted.

    What is given is not asked for.

    Raises:
        ExamineError: the index cannot be read.
    """
    reader = IndexReader(host, PAGES_S)
    names = (name for name in {*wanted.pins, *also} if not wanted.gives(name))
    return {name: _offer(reader, wanted, name) for name in sorted(names)}


def _offer(reader: IndexReader, wanted: CompletionRequest, name: str) -> Offer:
    tags = usable_tags(wanted.python, wanted.platform, wanted.glibc)
    usable: set[Version] = set()
    kept: set[Version] = set()
    try:
        listed = reader.files(name)
    except NoProjectError:
        listed = ()
    for file in listed:
        release = release_of(file.name)
        late = wanted.before and not "" < file.uploaded < wanted.before
        if release is None or late or not file.sha256:
            continue
        artifact = Artifact(file.name, file.sha256)
        if usable_files(name, str(release[1]), [artifact], tags, wanted.build):
            usable.add(release[1])
            if not file.yanked:
                kept.add(release[1])
    return Offer(frozenset(usable), frozenset(usable - kept))


def describe_offer(offer: Offer) -> str:
    """What of it may be had, for a remark."""
    newest = max(offer.usable - offer.yanked, default=None)
    if newest is None:
        return "all of it was withdrawn" if offer.yanked else "nothing of it can be used"
    return f"the newest there is {newest}"
