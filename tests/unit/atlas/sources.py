"""Releases of small packages that a test writes down as source texts."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from envcheck.atlas.gaps import CodeGap
from envcheck.atlas.import_guards import find_import_guards
from envcheck.atlas.missing_names import find_missing_names
from envcheck.atlas.offers import ReleaseOffers
from envcheck.atlas.reader import PackageReader
from envcheck.atlas.release import PublishedRelease

Sources = Mapping[str, str]


class SourceFiles:
    """Source texts by path; modules are named `a.b`, packages `a.b/`."""

    def __init__(self, package: str, modules: Sources) -> None:
        self._files = {_path(name): textwrap.dedent(text).encode() for name, text in modules.items()}
        if not modules:
            self._files[f"{package}/__init__.py"] = b""

    def names(self) -> Sequence[str]:
        return list(self._files)

    def read(self, name: str) -> bytes:
        return self._files[name]


def _path(name: str) -> str:
    if name.endswith((".pyi", ".py")):
        return name
    return name.rstrip("/").replace(".", "/") + ("/__init__.py" if name.endswith("/") else ".py")


def published(
    package: str,
    version: str,
    modules: Sources | None = None,
    *,
    requires: tuple[str, ...] = (),
    **more: object,
) -> PublishedRelease:
    """Return a release with these modules: `{"peft/": "…", "peft.utils": "…"}`."""
    return PublishedRelease(
        package=package,
        version=version,
        requires=requires,
        files=SourceFiles(package, modules or {}),
        **more,  # type: ignore[arg-type]
    )


def reader(package: str, releases: Mapping[str, Sources], *, requires: tuple[str, ...] = ()) -> PackageReader:
    """Return a reader of releases by version."""
    return PackageReader(
        package,
        [published(package, version, modules, requires=requires) for version, modules in releases.items()],
    )


def offers(package: str, modules: Sources, version: str = "1.0") -> ReleaseOffers:
    """Return what a release of these modules offers."""
    return reader(package, {version: modules}).offers(version)


def missing(
    package: PackageReader | Sources, partner: PackageReader, *, requires: tuple[str, ...] = ()
) -> dict[str, tuple[str, ...]]:
    """Return what a package misses in a partner, with the partner's releases that lack it."""
    asking = (
        package if isinstance(package, PackageReader) else reader("peft", {"1.0": package}, requires=requires)
    )
    return {each.needs: each.lacking for each in find_missing_names(asking, partner)}


def guarded(package: Sources, partner: PackageReader, *, requires: tuple[str, ...] = ()) -> list[CodeGap]:
    """Return what a package refuses of a partner on import."""
    return find_import_guards(reader("transformers", {"4.50.0": package}, requires=requires), partner)
