"""A release that pip did not find, and what the index offers instead, in words. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.logs.pip_offers import PipOffer, Position


def offer_sentence(offer: PipOffer) -> str:
    """Return in one line why pip did not find a release, for the first line of the report."""
    asked = f"{offer.name} {offer.version}"
    if offer.lacks_builds and not offer.published:
        return f"no {offer.name} is known that was published for {offer.label}, which was asked for"
    if offer.lacks_builds:
        return f"{asked} was not published for {offer.label}"
    if offer.is_elsewhere:
        return f"the index that was asked has {offer.name}, but not its build {asked}"
    if offer.position is Position.OLDER:
        return f"{asked} is older than every release that is offered to this Python and system"
    if offer.position is Position.NEWER:
        return f"{asked} is newer than every release that is offered to this Python and system"
    return f"{asked} is not among the releases that are offered to this Python and system"


def offer_lines(offer: PipOffer) -> Iterator[str]:
    """Yield the releases or builds that are offered, and what to do."""
    if offer.lacks_builds:
        yield f"    builds  {offer.name} {offer.version.partition('+')[0]}: {', '.join(offer.labels)}, cpu"
        other = f", or a release that was published for {offer.label}" if offer.published else ""
        yield (
            "    advice  take the index of one of these builds (the last part of --index-url), the newest "
            f"that the driver can run{other}"
        )
        return
    if offer.is_elsewhere:
        yield "    advice  such builds are on the project's own index, as torch's are: name it (--index-url)"
        return
    yield f"    offered {offer.name} {' and '.join(offer.nearest)} (the nearest)"
    if offer.required_by:
        yield (
            f"    advice  {offer.required_by} requires it: install a release of {offer.required_by} that "
            "requires one which is offered, or make the environment with another Python"
        )
        return
    yield f"    advice  {_ADVICE[offer.position]}"


_ADVICE = {
    Position.OLDER: (
        "install a release that is offered, or make the environment with an older Python: a release has "
        "wheels only for the Pythons of its time"
    ),
    Position.NEWER: (
        "install a release that is offered, or make the environment with a newer Python. If the Python is "
        "new enough, the index or a mirror is behind, or the system is too old for the wheels (glibc, macOS "
        "on Intel, an old pip)"
    ),
    Position.BETWEEN: "there is no such release for this Python and system: install one that is offered",
    Position.UNKNOWN: "",
}
