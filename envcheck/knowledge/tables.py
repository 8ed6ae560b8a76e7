"""Typed rows of the tables in compat/tables, for the searches and the pages.

Only what runs after start-up reads these: `rules.derive` looks up a few raw rows at every start.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from envcheck.core.rules import Matrix


class ReleaseRow(NamedTuple):
    """A release of a package, from the table `release`, or from `torch` for torch and its companions.

    `date` is ISO, or empty. `requires` has the bounds by package. `pythons` are those with wheels, such as
    `3.11`; None where the row gives only a range. `sdist` means that there are no wheels.
    """

    package: str
    version: str
    date: str
    requires: Mapping[str, str]
    extras: Mapping[str, Mapping[str, str]]
    requires_python: str
    pythons: tuple[str, ...] | None
    yanked: bool
    sdist: bool

    @classmethod
    def of(cls, row: Mapping[str, Any], package: str = "", version: str = "") -> ReleaseRow:
        """Read a row; `package` and `version` replace its own, for rows of other tables."""
        pythons = row.get("python")
        return cls(
            package=package or str(row["package"]),
            version=version or str(row["version"]),
            date=str(row.get("date", "")),
            requires=row.get("requires", {}),
            extras=row.get("extras", {}),
            requires_python=row.get("requires_python", ""),
            pythons=tuple(pythons) if isinstance(pythons, list) else None,
            yanked=bool(row.get("yanked")),
            sdist=row.get("kinds") == ["sdist"],
        )


def torch_releases(known: Matrix) -> Iterator[ReleaseRow]:
    """Yield the releases of torch. They are in every matrix, while the table `release` may be left out."""
    for row in known.tables.get("torch", []):
        yield ReleaseRow.of(row, "torch")


def companion_releases(known: Matrix) -> Iterator[ReleaseRow]:
    """Yield the releases of the packages that are released together with torch."""
    rows = known.tables.get("torch", [])
    for name in known.moves_with.get("torch", ()):
        yield from (ReleaseRow.of(row, name, str(row[name])) for row in rows if row.get(name))


def all_releases(known: Matrix) -> Iterator[ReleaseRow]:
    """Yield the releases of torch, then those of the table `release`."""
    yield from torch_releases(known)
    yield from map(ReleaseRow.of, known.tables.get("release", []))


class TorchBuild(NamedTuple):
    """What the wheels of one torch release were built for, as a plain install brings them.

    `companions` are the packages released together with it. `cxx11_abi` is None where it is unknown, and
    texts are empty.
    """

    version: str
    cuda: str
    architectures: tuple[str, ...]
    companions: Mapping[str, str]
    cudnn: str
    nccl: str
    glibc: str
    cxx11_abi: bool | None


def torch_builds(known: Matrix) -> Iterator[TorchBuild]:
    """Yield the builds of torch that a plain install brings."""
    for row in known.tables.get("torch", []):
        yield TorchBuild(
            version=str(row["version"]),
            cuda=str(row["cuda"]),
            architectures=tuple(row["architectures"]),
            companions={name: row[name] for name in ("torchvision", "torchaudio", "triton") if row.get(name)},
            cudnn=row.get("cudnn", ""),
            nccl=row.get("nccl", ""),
            glibc=row.get("glibc", ""),
            cxx11_abi=row.get("cxx11_abi"),
        )


class TorchVariant(NamedTuple):
    """A build of a torch release for one CUDA; `default` is the one that a plain install brings."""

    torch: str
    tag: str  # the local label, such as `cu118`
    cuda: str
    architectures: tuple[str, ...]
    default: bool


def torch_variants(known: Matrix) -> Iterator[TorchVariant]:
    """Yield the builds of torch for the CUDA versions that have an index of their own."""
    for row in known.tables.get("variant", []):
        yield TorchVariant(
            torch=str(row["torch"]),
            tag=row.get("tag", ""),
            cuda=str(row.get("cuda", "")),
            architectures=tuple(row.get("architectures", ())),
            default=row.get("role") == "default",
        )


class GpuRow(NamedTuple):
    """A GPU model, with its compute capability such as `9.0` and its kind such as `jetson`."""

    name: str
    compute_capability: str
    kind: str


def gpus(known: Matrix) -> Iterator[GpuRow]:
    """Yield the GPU models that the tables list."""
    for row in known.tables.get("gpu", []):
        yield GpuRow(str(row["name"]), str(row["compute_capability"]), row.get("kind", ""))
