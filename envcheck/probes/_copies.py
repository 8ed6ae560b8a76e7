"""CUDA libraries of which an environment can reach several copies, and whose each is, by files' names.

Which one a program loads is the loader's affair: torch's wheels name their own by DT_RPATH, which comes
before LD_LIBRARY_PATH. Two copies are therefore a fact, and only what is known to break is a rule.
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
    """`cuda.copies`, of the packages found, torch's own folder, conda's prefix and the default toolkit."""
    held: dict[str, dict[str, str]] = {}
    for owner, name in _files(host, prefix, found):
        # libcudart-d0da41ae.so.11.0 is how auditwheel names what it bundles.
        stem = name.partition(".so")[0].partition("-")[0]
        if stem in LIBRARIES and ".so" in name:
            held.setdefault(stem, {})[owner] = name  # names are sorted: of several links the fullest is last
    several = tuple(
        f"{stem}: " + ", ".join(f"{name} of {owner}" for owner, name in sorted(owners.items()))
        for stem, owners in sorted(held.items())
        if len(owners) > 1
    )
    return Fact("cuda.copies", Known(several) if several else Absent(), "names of files")


def _files(host: Host, prefix: str, found: Mapping[str, list[InstalledFiles]]) -> Iterator[tuple[str, str]]:
    """Owners and names of shared libraries."""
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
