"""Find CUDA libraries of which an environment has several copies, and their owners, by their file names.

The loader decides which copy a program uses: torch's wheels name their own by DT_RPATH, which precedes
LD_LIBRARY_PATH. Several copies are therefore only a fact; rules exist for combinations known to break.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envcheck.core.facts import Absent, Fact, Known
from envcheck.host.machine import Host
from envcheck.probes.distributions import InstalledFiles, shared_libraries

_MATH = ("cublas", "cublasLt", "cufft", "curand", "cusolver", "cusparse")
LIBRARIES = frozenset(f"lib{name}" for name in ("cudart", "cudnn", "nccl", "nvrtc", "nvJitLink", *_MATH))
TOOLKIT = "/usr/local/cuda/lib64"


def fact(host: Host, prefix: str, found: Mapping[str, list[InstalledFiles]]) -> Fact:
    """Return `cuda.copies`, from packages, torch's folder, conda's prefix and the default toolkit."""
    owners_of: dict[str, dict[str, str]] = {}
    for owner, name in _files(host, prefix, found):
        # auditwheel renames the libraries that it bundles: libcudart-d0da41ae.so.11.0
        stem = name.partition(".so")[0].partition("-")[0]
        if stem in LIBRARIES and ".so" in name:
            owners_of.setdefault(stem, {})[owner] = (
                name  # names are sorted: the longest of several links is last
            )
    several = tuple(
        f"{stem}: " + ", ".join(f"{name} of {owner}" for owner, name in sorted(owners.items()))
        for stem, owners in sorted(owners_of.items())
        if len(owners) > 1
    )
    return Fact("cuda.copies", Known(several) if several else Absent(), "names of files")


def _files(host: Host, prefix: str, found: Mapping[str, list[InstalledFiles]]) -> Iterator[tuple[str, str]]:
    """Yield the owners and names of shared libraries."""
    for name, (record, *_) in found.items():
        if name.startswith("nvidia-"):
            paths = sorted(shared_libraries(str(host.path(record.site)), record))
            yield from ((name, path.rpartition("/")[2]) for path in paths)
    folders = {"torch": f"{found['torch'][0].site}/torch/lib"} if "torch" in found else {}
    if host.exists(f"{prefix}/conda-meta"):
        folders["conda"] = f"{prefix}/lib"
    folders["the toolkit in /usr/local/cuda"] = TOOLKIT
    for owner, folder in folders.items():
        yield from ((owner, name) for name in sorted(host.listdir(folder)))
