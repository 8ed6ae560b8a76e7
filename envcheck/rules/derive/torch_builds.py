"""Derive what the installed torch was built for, and which companions belong to it."""

from __future__ import annotations

import re

from envcheck.core import versions
from envcheck.core.facts import Absent, Fact, Inventory, Known, Reading, Tri, Unknown, package_of_key
from envcheck.core.nvidia import cuda_of_libraries
from envcheck.core.tables import Tables, TorchBuild
from envcheck.rules.derive.inputs import is_not_given, missing_input, text_of, with_derived

CUDA_LABEL = re.compile(r"cu[0-9]{3}")

_LOADED = {
    "triton.release": ("pkg.triton", "pkg.triton-windows", "pkg.pytorch-triton"),
    "torch.nccl": ("pkg.nvidia-nccl-cu13", "pkg.nvidia-nccl-cu12", "pkg.nvidia-nccl-cu11"),
    "torch.cudnn": ("pkg.nvidia-cudnn-cu13", "pkg.nvidia-cudnn-cu12", "pkg.nvidia-cudnn-cu11"),
}
"""The packages that bring what torch loads. Triton has two more names: on Windows, and in nightly builds."""


def with_torch_build(inventory: Inventory, tables: Tables) -> Inventory:
    """Add the torch build's CUDA, the architectures it has code for, and the packages that belong to it."""
    missing = missing_input(inventory, "pkg.torch")
    names = ("torchvision", "torchaudio", "triton")
    if missing is not None:
        keys = (
            *("cuda.runtime", "build.torch.architectures"),
            *(f"build.torch.{name}" for name in names),
            *("build.torchvision.fits", "build.torchaudio.fits"),
        )
        inventory = with_derived(inventory, (Fact(key, missing, "derived from pkg.torch") for key in keys))
        return with_derived(inventory, _loaded_beside_torch(inventory, None))
    torch = text_of(inventory, "pkg.torch")
    build = _build_of(tables, torch)
    runtime = _torch_cuda(inventory, torch, build, tables)
    source = f"derived from torch {torch}"
    facts = [Fact("cuda.runtime", runtime, source)]
    unread = unread_build(inventory) if isinstance(runtime, Known) else None
    architectures = unread or _architectures(torch, runtime, build, tables)
    facts.append(Fact("build.torch.architectures", architectures, source))
    facts += [Fact(f"build.torch.{name}", _companion(torch, build, name), source) for name in names]
    inventory = with_derived(inventory, facts)
    inventory = with_derived(inventory, _loaded_beside_torch(inventory, build))
    return _companions_fit(inventory, tables)


def _loaded_beside_torch(inventory: Inventory, build: TorchBuild | None) -> list[Fact]:
    """Return the Triton, NCCL and cuDNN that torch uses: those listed, else those that its wheel pins.

    A list of versions often names torch alone, and an installer then follows its pins. Where a package is
    listed without a version, another may be wanted than torch's pin. An environment lists all its packages:
    without such a package it uses none, or one of the system, whose release is not known.
    """
    pins = _pins(inventory, build)
    facts = []
    for key, packages in _LOADED.items():
        named = [each for each in packages if each in inventory.facts]
        listed = next((each for each in named if inventory.known(each) is not None), (*named, packages[0])[0])
        reading, source = inventory.reading(listed), f"derived from {listed}"
        if listed not in inventory.facts and is_not_given(reading) and pins.get(key):
            reading, source = Known(pins[key]), f"what torch {text_of(inventory, 'pkg.torch')} pins"
        facts.append(Fact(key, reading, source))
    return facts


def _pins(inventory: Inventory, build: TorchBuild | None) -> dict[str, str]:
    """Return what the CUDA wheel of this torch for Linux pins; nothing for another build, and conda's."""
    runtime = str(inventory.known("cuda.runtime") or "")
    on_linux = inventory.known("host.os") in (None, "linux")
    if build is None or not runtime or not on_linux or inventory.known("python.manager") == "conda":
        return {}
    pins = {"triton.release": build.companions.get("triton", "")}
    if runtime.partition(".")[0] == build.cuda.partition(".")[0]:
        pins |= {"torch.nccl": build.nccl, "torch.cudnn": build.cudnn}
    return pins


def compiling_pythons(inventory: Inventory, tables: Tables) -> tuple[Fact, Fact]:
    """Return the first Python that torch.compile here refuses, and the first torch that compiles on this one.

    Of a torch or a Python that is newer than the table, nothing is known.
    """
    rows = [(str(row["torch"]), str(row["refuses"])) for row in tables.get("dynamo_python", ())]
    refused = missing_input(inventory, "pkg.torch")
    if refused is None:
        torch = text_of(inventory, "pkg.torch")
        own = (python for bound, python in rows if _within(torch, bound))
        refused = Known(python) if (python := next(own, None)) else Absent()
    first = missing_input(inventory, "python.version")
    if first is None:
        here = text_of(inventory, "python.version")
        accepting = [bound for bound, python in rows if versions.compare(here, "<", python) is Tri.YES]
        starts = [str(versions.parse_specifier(bound)[0].operand) for bound in accepting]
        first = (
            Known(min(starts, key=versions.order))
            if starts
            else Unknown(f"no torch that compiles on Python {here} is known")
        )
    return (
        Fact("torch.compile_python", refused, "derived from pkg.torch"),
        Fact("torch.compile_first", first, "derived from python.version"),
    )


def _within(version: str, bound: str) -> bool:
    return versions.satisfies(version, bound, unknown=Tri.NO) is Tri.YES


def _companions_fit(inventory: Inventory, tables: Tables) -> Inventory:
    """Add whether torchvision and torchaudio load beside this torch, as far as the tables tell.

    Patch releases of torch export the same symbols, so a companion of the same minor release loads. Some of
    the release before load too, and others were never compared; neither is taken to fail. conda compiles a
    companion for the torch that it installs beside it, whatever their releases: torchvision 0.26 for torch
    2.10 and for 2.11. So does an installation from a repository.
    """
    facts = []
    by_conda = inventory.known("packages.from_conda")
    names = frozenset(by_conda) if isinstance(by_conda, tuple) else frozenset()
    from_source = inventory.known("packages.from_source")
    for name in ("torchvision", "torchaudio"):
        keys = (f"pkg.{name}", f"build.torch.{name}")
        fits = missing_input(inventory, *keys)
        if names >= {"torch", name} or (isinstance(from_source, tuple) and name in from_source):
            fits = missing_input(inventory, keys[0]) or Known(True)
        elif fits is None:
            own, belonging, torch = (_minor(text_of(inventory, key)) for key in (*keys, "pkg.torch"))
            fits = Known(own == belonging or (name, own, torch) in tables.torch_neighbours)
        facts.append(
            Fact(f"build.{name}.fits", fits, f"derived from torch {text_of(inventory, 'pkg.torch')}")
        )
    return with_derived(inventory, facts)


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _build_of(tables: Tables, torch: str) -> TorchBuild | None:
    """Return the build of this release, whatever its local label; None for snapshots and pre-releases."""
    parsed = versions.parse(torch)
    if parsed is None or parsed.is_prerelease:
        return None
    release = versions.parse(parsed.public)
    return next((each for each in tables.torch_builds if versions.parse(each.version) == release), None)


def _unlisted(torch: str) -> Unknown:
    return Unknown(f"torch {torch} is not among the releases whose builds are known")


def _torch_cuda(inventory: Inventory, torch: str, build: TorchBuild | None, tables: Tables) -> Reading:
    built = inventory.reading("build.torch.cuda")
    if not is_not_given(built):
        return built
    label = versions.local_label(torch).partition(".")[0]
    if label:
        return _cuda_of_label(torch, label)
    if build is None:
        return _unlisted(torch)
    if any(inventory.known("gpu.kind", number) == "jetson" for number in range(len(inventory.devices))):
        return Unknown(
            "for Jetson, NVIDIA and others publish builds of torch with CUDA under the same version"
        )
    listed = _cuda_of_listed_libraries(inventory)
    if any((each.torch, each.cuda) == (build.version, listed) for each in tables.torch_variants):
        return Known(listed or "")
    return default_cuda(inventory, build)


def _cuda_of_listed_libraries(inventory: Inventory) -> str | None:
    """Return the CUDA of the CUDA libraries beside torch."""
    names = [key for key in inventory.facts if key.startswith("pkg.nvidia-cuda-")]
    return cuda_of_libraries({package_of_key(key): str(inventory.known(key) or "") for key in names})


def default_cuda(inventory: Inventory, build: TorchBuild) -> Reading:
    """Return the CUDA of the build that a plain `pip install` of this torch installs on this platform."""
    system, arch = (inventory.known(key) for key in ("host.os", "host.arch"))
    if system in (None, "linux") and arch in (None, "x86_64") and build.cuda:
        return Known(build.cuda)
    if system in (None, "linux") and arch == "aarch64" and build.aarch64:
        return _cuda_of_label(build.version, build.aarch64)
    return Unknown("only the default builds for Linux on x86_64 and aarch64 are known")


def unread_platform(inventory: Inventory) -> Unknown | None:
    """Return why a build's machine code is not known on this platform; None on x86_64."""
    if inventory.known("host.arch") in (None, "x86_64"):
        return None
    return Unknown("only the wheels for x86_64 were opened to see which GPUs they serve")


def unread_build(inventory: Inventory) -> Unknown | None:
    """Return why the machine code of this torch is not known from its release; None for a wheel on x86_64."""
    if inventory.known("python.manager") == "conda":
        return Unknown("conda's builds of torch have code for other GPUs than its wheels")
    return unread_platform(inventory)


def _cuda_of_label(torch: str, label: str) -> Reading:
    if label == "cpu" or label.startswith(("rocm", "xpu")):
        return Absent()
    if CUDA_LABEL.fullmatch(label):
        return Known(f"{label[2:-1]}.{label[-1]}")
    return Unknown(f"torch {torch} is a custom build: its label names no CUDA")


def _architectures(torch: str, runtime: Reading, build: TorchBuild | None, tables: Tables) -> Reading:
    if not isinstance(runtime, Known):
        return runtime
    if build is None:
        return _unlisted(torch)
    if build.cuda == runtime.value:
        return Known(build.architectures)
    for variant in tables.torch_variants:
        if variant.torch == build.version and variant.cuda == runtime.value:
            return Known(variant.architectures)
    return Unknown(f"no torch {build.version} for CUDA {runtime.value} is among the builds that are known")


def _companion(torch: str, build: TorchBuild | None, name: str) -> Reading:
    if build is None:
        return _unlisted(torch)
    release = build.companions.get(name)
    return Known(release) if release else Unknown(f"no {name} is known to belong to torch {torch}")
