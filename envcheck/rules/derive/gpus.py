"""Derive what the tables say of each GPU, and which torch releases and packages have code for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache

from envcheck.core import versions
from envcheck.core.facts import (
    Absent,
    Fact,
    Inventory,
    Known,
    Reading,
    Tri,
    Unknown,
    is_package_key,
    package_of_key,
)
from envcheck.core.nvidia import has_code, has_ptx, is_capability
from envcheck.core.records import NamedTuple
from envcheck.core.tables import GpuModel, Tables, plain_gpu_name
from envcheck.rules.derive.inputs import missing_input, text_of, with_device_facts
from envcheck.rules.derive.keys import ARCHITECTURES_SUFFIX
from envcheck.rules.derive.torch_builds import CUDA_LABEL, unread_build, unread_platform

_FIRST_BLACKWELL = 100
"""Compute capability, times ten, of the first GPUs that Triton's older ptxas does not know."""


def visible_gpus(inventory: Inventory) -> Fact:
    """Return the number of GPUs that programs see: those described, or else as many as were counted."""
    if inventory.devices:
        return Fact("gpus.visible", Known(len(inventory.visible_devices())), "derived from gpu.visible")
    missing = missing_input(inventory, "gpus.count")
    reading = missing or inventory.reading("gpus.count")
    return Fact("gpus.visible", reading, "derived from gpus.count")


def processor_of_gpus(inventory: Inventory, tables: Tables) -> Fact:
    """Return the architecture of the processor, where each GPU comes with one alone: Jetson, GB10, GH200.

    A list of packages for such a GPU is installed from the wheels for that processor.
    """
    hosts = {_only_host(inventory, number, tables) for number in range(len(inventory.devices))}
    reading: Reading = (
        Known(hosts.pop())
        if len(hosts) == 1 and "" not in hosts
        else Unknown("no GPU that comes with one processor alone is given", asked=False)
    )
    return Fact("host.arch", reading, "derived from the GPUs, which come with no other processor")


def _only_host(inventory: Inventory, number: int, tables: Tables) -> str:
    name, capability = (inventory.known(key, number) for key in ("gpu.name", "gpu.compute_capability"))
    model = tables.gpu_by_name.get(plain_gpu_name(str(name))) if name is not None else None
    return model.host if model else tables.gpu_hosts.get(str(capability), "")


def with_device_models(inventory: Inventory, tables: Tables) -> Inventory:
    """Add to each GPU what the table of GPU models says about its name."""

    def facts_of(number: int) -> Iterator[Fact]:
        source = "derived from gpu.name"
        missing = missing_input(inventory, "gpu.name", device=number)
        name = text_of(inventory, "gpu.name", number)
        model = (
            None if missing else tables.gpu_by_name.get(plain_gpu_name(name)) or _similar_model(name, tables)
        )
        unlisted = missing or Unknown(f"{name} is not among the GPUs that are known")
        yield Fact("gpu.compute_capability", Known(model.compute_capability) if model else unlisted, source)
        yield Fact("gpu.kind", Known(model.kind) if model else unlisted, source)
        if model and len(model.memory_gb) == 1:
            # Advertised GB; a driver reports a few per cent less, so this serves only a declared GPU.
            yield Fact("gpu.memory_mib", Known(model.memory_gb[0] * 1024), source)

    return with_device_facts(inventory, facts_of)


def _similar_model(name: str, tables: Tables) -> GpuModel | None:
    """Return the model that another spelling of a name stands for, without memory if that is not certain."""
    from envcheck.core.gpu_names import match_gpu  # most names are spelled as the driver spells them

    matches = match_gpu(name, tables.gpu_models, whole=True)
    if len(matches) != 1:
        return None
    ((first, *others), exact) = matches[0]
    sizes = {model.memory_gb for model in (first, *others)}
    return first if exact and len(sizes) == 1 else first._replace(memory_gb=())


class _Code(NamedTuple):
    """List what torch releases, the installed torch and the installed packages have machine code for."""

    releases: tuple[tuple[str, tuple[str, ...]], ...]  # torch version, architectures of its default build
    packages: Mapping[str, tuple[str, ...]]  # package, architectures of its files
    unread: Unknown | None  # why the builds' code is not known on this platform


def with_device_code(inventory: Inventory, tables: Tables) -> Inventory:
    """Add to each GPU which torch releases, and which installed packages, have code for it."""
    code = _Code(
        releases=tuple((build.version, build.architectures) for build in tables.torch_builds),
        packages={
            package_of_key(key): fact.value
            for key, fact in inventory.facts.items()
            if is_package_key(key) and key.endswith(ARCHITECTURES_SUFFIX) and isinstance(fact.value, tuple)
        },
        unread=unread_platform(inventory),
    )

    def facts_of(number: int) -> Iterator[Fact]:
        missing = missing_input(inventory, "gpu.compute_capability", device=number)
        capability = text_of(inventory, "gpu.compute_capability", number)
        if missing is None and not is_capability(capability):
            missing = Unknown(f"gpu.compute_capability: {capability!r} is not two numbers such as 9.0")
        yield from _torch_releases_for(capability, missing or code.unread, code, inventory)
        in_torch_build = _in_torch_build(capability, missing, inventory, tables)
        yield in_torch_build
        if in_torch_build.value is False:
            # torch itself fails first, and another torch brings another Triton.
            yield Fact("gpu.in_triton", Absent(), in_torch_build.source)
        else:
            yield _in_triton(capability, missing, inventory, tables)
        without = missing or _packages_without_code(code.packages, capability)
        yield Fact("gpu.packages_without_code", without, "derived from what their files hold")

    return with_device_facts(inventory, facts_of)


@lru_cache(maxsize=64)
def _releases_with_code(
    capability: str, releases: tuple[tuple[str, tuple[str, ...]], ...]
) -> tuple[str, ...]:
    """Return the torch releases with code for a GPU; cached, because a search derives facts many times."""
    return tuple(version for version, architectures in releases if has_code(architectures, capability))


def _torch_releases_for(
    capability: str, missing: Reading | None, code: _Code, inventory: Inventory
) -> Iterator[Fact]:
    """Yield the first, the last and the nearest torch release with machine code for a GPU."""
    with_code = () if missing else _releases_with_code(capability, code.releases)
    source = "derived from gpu.compute_capability"
    for key, pick in (("gpu.torch_first", min), ("gpu.torch_last", max)):
        found: Reading = missing or (Known(pick(with_code, key=versions.order)) if with_code else Absent())
        yield Fact(key, found, source)
    nearest = missing or _nearest(with_code, [version for version, _ in code.releases], inventory)
    yield Fact("gpu.torch_nearest", nearest, source)


def _in_torch_build(capability: str, missing: Reading | None, inventory: Inventory, tables: Tables) -> Fact:
    """Return the fact whether the installed torch has machine code for a GPU, or PTX it can compile."""
    key = "gpu.in_torch_build"
    unread = missing or missing_input(inventory, "build.torch.architectures")
    if missing is None and unread is not None and _nightly_is_too_old(capability, inventory, tables):
        return Fact(key, Known(False), "derived from the releases of torch for the same CUDA")
    missing = unread
    if missing is not None:
        return Fact(key, missing, "derived from build.torch.architectures")
    value = inventory.known("build.torch.architectures")
    built = value if isinstance(value, tuple) else ()
    runs = has_code(built, capability) or has_ptx(built, capability)
    return Fact(key, Known(runs), f"derived from gpu.compute_capability, {', '.join(built)}")


def _in_triton(capability: str, missing: Reading | None, inventory: Inventory, tables: Tables) -> Fact:
    """Return the fact whether the ptxas in the wheel of Triton knows a GPU, so that kernels compile for it.

    From Blackwell on each GPU is asked for by its own name, `sm_121a`. Every Triton knows the older ones that
    torch has code for.
    """
    key = "gpu.in_triton"
    missing = missing or missing_input(inventory, "triton.release")
    if missing is not None:
        return Fact(key, missing, "derived from triton.release")
    release = text_of(inventory, "triton.release")
    source = f"derived from gpu.compute_capability, Triton {release}"
    if _number(capability) < _FIRST_BLACKWELL:
        return Fact(key, Known(True), source)
    arch = inventory.known("host.arch") or "x86_64"
    for row in tables.get("triton_assembler", []):
        if arch not in row["wheels"]:
            continue
        if versions.satisfies(release, row["versions"], unknown=Tri.NO) is Tri.YES:
            return Fact(key, Known(capability in row["blackwell"]), f"{source}, ptxas {row['cuda']}")
    return Fact(key, Unknown(f"the ptxas of Triton {release} for {arch} is not known"), source)


def _nightly_is_too_old(capability: str, inventory: Inventory, tables: Tables) -> bool:
    """Return whether a GPU is newer than all code of the releases for the CUDA that a nightly build names.

    The compiler of that CUDA does not know the GPU then: each release for CUDA 12.4 ends at sm_90, because
    sm_100 and sm_120 came with CUDA 12.8. Which older GPUs a nightly build serves is not known.
    """
    torch, cuda = text_of(inventory, "pkg.torch"), inventory.known("cuda.runtime")
    parsed = versions.parse(torch)
    plain = CUDA_LABEL.fullmatch(versions.local_label(torch)) is not None
    if parsed is None or not parsed.is_devrelease or not plain or unread_build(inventory) is not None:
        return False
    released = {each for build in tables.torch_builds if build.cuda == cuda for each in build.architectures}
    released.update(
        each for other in tables.torch_variants if other.cuda == cuda for each in other.architectures
    )
    newest = max((_number(each) for each in released), default=0)
    return 0 < newest < _number(capability) and not has_ptx(tuple(released), capability)


def _number(architecture: str) -> int:
    """Return 120 for `sm_120`, `compute_120`, `12.0`; letters at its end are left out."""
    return int("".join(each for each in architecture if each.isdecimal()) or 0)


def _packages_without_code(compiled: Mapping[str, tuple[str, ...]], capability: str) -> Reading:
    """Return the packages whose compiled files have neither code for this GPU nor PTX it could compile."""
    names = [
        f"{name} ({', '.join(built)})"
        for name, built in sorted(compiled.items())
        if not has_code(built, capability) and not has_ptx(built, capability)
    ]
    return Known(tuple(names)) if names else Absent()


def _nearest(with_code: Sequence[str], known_releases: Sequence[str], inventory: Inventory) -> Reading:
    """Return the release with code for a GPU that is the fewest releases away from the installed torch."""
    installed = versions.base_release(str(inventory.known("pkg.torch") or ""))
    releases = sorted(known_releases, key=versions.order)
    if not with_code or installed not in releases:
        return Absent()
    index = releases.index(installed)
    return Known(min(with_code, key=lambda version: abs(releases.index(version) - index)))
