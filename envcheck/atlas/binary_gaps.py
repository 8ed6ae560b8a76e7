"""Find the releases of torch for which the compiled modules of a package were not made.

torch keeps its C++ interface within a minor release, so a module made for 2.6.0 counts as made for every
2.6. Which patch releases a package accepts follows from its metadata, not from this comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from envcheck.atlas.gaps import CodeGap, GapKind
from envcheck.core import versions
from envcheck.core.facts import Tri
from envcheck.knowledge.release_metadata import PublishedFacts


def find_binary_gaps(
    rows: Iterable[PublishedFacts],
    torch_releases: Sequence[str],
    entry_of: Callable[[str], str],
    stable_since: str = "",
) -> list[CodeGap]:
    """Return the releases of a package whose compiled modules need another torch.

    `rows` are its releases. `entry_of` returns what fails in a release. `stable_since` is its first release
    on torch's stable ABI, which works with any newer torch; empty if there is none.
    """
    grouped: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    package = ""
    for row in rows:
        package = row.package
        if stable_since and versions.compare(row.version, ">=", stable_since) is Tri.YES:
            continue
        for specifier in row.build.get("torch", ())[:1]:
            lacking = tuple(each for each in torch_releases if not _made_for(each, specifier))
            grouped.setdefault((entry_of(row.version), specifier, lacking), []).append(row.version)
    return [
        CodeGap(
            kind=GapKind.BINARY,
            package=package,
            releases=tuple(releases),
            entry=entry,
            partner="torch",
            lacking=lacking,
            needs=f"torch{specifier}",
            places=tuple("METADATA" for _ in releases),
        )
        for (entry, specifier, lacking), releases in grouped.items()
        if lacking
    ]


def _made_for(torch: str, specifier: str) -> bool:
    return all(
        versions.satisfies(torch, widened, unknown=Tri.YES) is not Tri.NO for widened in _widened(specifier)
    )


def _widened(specifier: str) -> Iterator[str]:
    """Yield the parts of a specifier; widen an exact pin to its minor release: `==2.6.*` for `==2.6.0`."""
    for part in specifier.split(","):
        exact = part.strip().removeprefix("==").removesuffix(".*")
        if part.strip().startswith("==") and exact.count("."):
            yield f"=={'.'.join(exact.split('.')[:2])}.*"
        else:
            yield part
