"""The tables of the matrix: rows as the files have them, and typed rows of those that deriving facts reads.

These classes are on the start-up path; see `envcheck.core.facts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from envcheck.core.records import NamedTuple


class TorchBuild(NamedTuple):
    """Build of one torch release: what the wheels that a plain install brings were built for.

    `aarch64` is the local label of the build for that processor. `companions` are the packages released
    together with torch. An unknown `cxx11_abi` is None, and any other unknown value is empty.
    """

    version: str
    cuda: str
    aarch64: str
    architectures: tuple[str, ...]
    companions: Mapping[str, str]
    cudnn: str
    nccl: str
    glibc: str
    cxx11_abi: bool | None


class TorchVariant(NamedTuple):
    """A build of a torch release for one CUDA; `default` is the one that a plain install brings."""

    torch: str
    tag: str  # the local label, such as `cu118`
    cuda: str
    architectures: tuple[str, ...]
    default: bool


class CudaFamily(NamedTuple):
    """A major version of CUDA, and the oldest Linux driver that runs all its minor versions.

    `cuda` is empty except for CUDA 10, where each minor version has its own row.
    """

    major: str
    minimum_driver: str
    cuda: str = ""


class CudaToolkit(NamedTuple):
    """A release of the CUDA toolkit, and the driver that ships with it, empty if that is not known."""

    cuda: str
    driver: str


class DriverBranch(NamedTuple):
    """A branch of the driver such as `550`, and the newest CUDA that it supports."""

    branch: str
    cuda: str


class GpuModel(NamedTuple):
    """A GPU model: its names, its compute capability such as `9.0`, its kind, its sizes of memory in GB.

    `host` is the architecture of the only processors that it comes with, such as `aarch64`; empty for a card.
    """

    name: str
    aliases: tuple[str, ...]
    compute_capability: str
    kind: str
    memory_gb: tuple[int, ...]
    host: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the name and the aliases."""
        return self.name, *self.aliases


class Tables(dict[str, list[dict[str, Any]]]):
    """Rows by table name: torch, variant, family, toolkit, gpu, …; typed rows are made when first used."""

    @cached_property
    def habits(self) -> dict[str, Mapping[str, float]]:
        """Return the share (0 to 1) of training configurations that set each value of a fact."""
        return {str(row["key"]): row["shares"] for row in self.get("habit", ())}

    @cached_property
    def withdrawn(self) -> frozenset[tuple[str, str]]:
        """Return the packages and versions of the releases that their authors have withdrawn."""
        return frozenset(self.reasons_to_withdraw)

    @cached_property
    def reasons_to_withdraw(self) -> Mapping[tuple[str, str], str]:
        """Return why a release was withdrawn, by package and version; empty if its authors did not say."""
        rows = self.get("withdrawn", ())
        return {(str(row["package"]), str(row["version"])): row.get("reason", "") for row in rows}

    @cached_property
    def torch_builds(self) -> tuple[TorchBuild, ...]:
        """Return the builds of torch that a plain install brings."""
        companions = ("torchvision", "torchaudio", "triton")
        return tuple(
            TorchBuild(
                version=str(row["version"]),
                cuda=str(row["cuda"]),
                aarch64=row.get("aarch64", ""),
                architectures=tuple(row["architectures"]),
                companions={name: str(row[name]) for name in companions if row.get(name)},
                cudnn=row.get("cudnn", ""),
                nccl=row.get("nccl", ""),
                glibc=row.get("glibc", ""),
                cxx11_abi=row.get("cxx11_abi"),
            )
            for row in self.get("torch", ())
        )

    @cached_property
    def torch_newest_first(self) -> tuple[TorchBuild, ...]:
        """Return the builds of torch, the newest release first."""
        from envcheck.core import versions  # it imports the rules, which import this module

        return tuple(sorted(self.torch_builds, key=lambda build: versions.order(build.version), reverse=True))

    @cached_property
    def torch_neighbours(self) -> frozenset[tuple[str, str, str]]:
        """Return companions not taken to fail: the package, its minor release and that of torch."""
        rows = self.get("neighbour", ())
        return frozenset((str(row["package"]), str(row["release"]), str(row["torch"])) for row in rows)

    @cached_property
    def torch_variants(self) -> tuple[TorchVariant, ...]:
        """Return the builds of torch for the CUDA versions that have an index of their own."""
        return tuple(
            TorchVariant(
                torch=str(row["torch"]),
                tag=row.get("tag", ""),
                cuda=str(row.get("cuda", "")),
                architectures=tuple(row.get("architectures", ())),
                default=row.get("role") == "default",
            )
            for row in self.get("variant", ())
        )

    @cached_property
    def cuda_families(self) -> tuple[CudaFamily, ...]:
        """Return the major versions of CUDA."""
        return tuple(
            CudaFamily(str(row["major"]), str(row["minimum_driver"]), str(row.get("cuda", "")))
            for row in self.get("family", ())
        )

    @cached_property
    def cuda_toolkits(self) -> tuple[CudaToolkit, ...]:
        """Return the releases of the CUDA toolkit."""
        return tuple(
            CudaToolkit(str(row["cuda"]), str(row.get("driver") or "")) for row in self.get("toolkit", ())
        )

    @cached_property
    def driver_branches(self) -> tuple[DriverBranch, ...]:
        """Return the branches of the driver."""
        return tuple(DriverBranch(str(row["branch"]), str(row["cuda"])) for row in self.get("branch", ()))

    @cached_property
    def gpu_models(self) -> tuple[GpuModel, ...]:
        """Return the GPU models that are known."""
        return tuple(
            GpuModel(
                name=str(row["name"]),
                aliases=tuple(row.get("aliases", ())),
                compute_capability=str(row["compute_capability"]),
                kind=str(row.get("kind", "")),
                memory_gb=tuple(row.get("memory_gb", ())),
                host=str(row.get("host") or self.gpu_hosts.get(str(row["compute_capability"]), "")),
            )
            for row in self.get("gpu", ())
        )

    @cached_property
    def gpu_hosts(self) -> Mapping[str, str]:
        """Return the only processor architecture of the compute capabilities that no card has."""
        rows = self.get("architecture", ())
        return {str(row["compute_capability"]): str(row["host"]) for row in rows if row.get("host")}

    @cached_property
    def gpu_by_name(self) -> Mapping[str, GpuModel]:
        """Return the GPU models by each of their names, as `plain_gpu_name` spells it; the first row wins."""
        return {plain_gpu_name(name): model for model in reversed(self.gpu_models) for name in model.names}


def plain_gpu_name(name: str) -> str:
    """Return a GPU's name without the makers' words, hyphens and capitals: `rtx 4090`."""
    return " ".join(name.lower().replace("-", " ").split()).removeprefix("nvidia ").removeprefix("geforce ")
