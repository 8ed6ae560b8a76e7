"""Read which releases an index really offers: a mirror may lack releases that the tables list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from packaging.version import Version

from envcheck.host.machine import Host
from envcheck.lock.model import Artifact
from envcheck.lock.wheels import release_of, usable_files, usable_tags
from envcheck.resolver_backends import CompletionRequest
from envcheck.resolver_backends.index.connection import NoProjectError
from envcheck.resolver_backends.index.reader import IndexReader

PAGES_S = 60.0
"""Maximum seconds to read the pages of a few packages."""


class Offer(NamedTuple):
    """Releases of a package that have a usable file on the index, and the yanked ones among them.

    `source_only` has the releases with a source distribution but no usable file.
    """

    usable: frozenset[Version]
    yanked: frozenset[Version]
    source_only: frozenset[Version] = frozenset()


def offers(host: Host, request: CompletionRequest, also: Iterable[str] = ()) -> dict[str, Offer]:
    """Return what the index offers of the pinned packages and of those in `also`, by package.

    Only files for the Python, platform and day of the request count. Packages whose wheel is given are left
    out.

    Raises:
        ExamineError: the index cannot be read.
    """
    reader = IndexReader(host, PAGES_S)
    names = (name for name in {*request.pins, *also} if not request.gives(name))
    return {name: _offer(reader, request, name) for name in sorted(names)}


def _offer(reader: IndexReader, request: CompletionRequest, name: str) -> Offer:
    tags = usable_tags(request.python, request.platform, request.glibc)
    usable: set[Version] = set()
    not_yanked: set[Version] = set()
    sources: set[Version] = set()
    try:
        files = reader.files(name)
    except NoProjectError:
        files = ()
    for file in files:
        release = release_of(file.name)
        too_late = request.before and not "" < file.uploaded < request.before
        if release is None or too_late or not file.sha256:
            continue
        if release[2] is None and not file.yanked:
            sources.add(release[1])
        artifact = Artifact(file.name, file.sha256)
        if usable_files(name, str(release[1]), [artifact], tags, request.build):
            usable.add(release[1])
            if not file.yanked:
                not_yanked.add(release[1])
    return Offer(frozenset(usable), frozenset(usable - not_yanked), frozenset(sources - usable))


def describe_offer(offer: Offer) -> str:
    """Return in words which releases of an offer can be installed."""
    newest = max(offer.usable - offer.yanked, default=None)
    if newest is None:
        return "all of its releases were withdrawn" if offer.yanked else "none of its files can be used"
    return f"the newest one is {newest}"
