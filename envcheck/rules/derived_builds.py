"""Derive what compiled packages were made for, and which toolkits and AMD GPUs they serve.

Imported by `derive` only where a package has a local label, or where such a toolkit or GPU was found.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core import versions
from envcheck.core.facts import (
    Absent,
    Inventory,
    Known,
    Reading,
    Tri,
    Unknown,
    is_package_key,
    package_key,
    package_of_key,
)

# `cu12torch2.6cxx11abifalse` (flash-attn, causal-conv1d, mamba-ssm); `pt26cu124` (torch-scatter and others);
# `torch260cu126` (natten), which names the whole release.
# packaging writes labels in lower case.
_LABELS = (
    re.compile(r"(?:cu(?P<cuda>\d{2,3}))?torch(?P<torch>\d+\.\d+)(?:\.\d+)*(?:cxx11abi(?P<abi>true|false))?"),
    re.compile(r"pt(?P<digits>\d{2,3})(?:cu(?P<cuda>\d{2,3}))?"),
    re.compile(r"torch(?P<digits>\d{2,3})\d(?:cpu|cu(?P<cuda>\d{2,3}))"),
)

_ONE_ABI_SINCE = "2.7"
"""From this torch on, all wheels of torch use the new C++ ABI; those before 2.6 the old one."""

_NEW_ABI_CUDA = "12.6"
"""The wheels of torch 2.6 built with this CUDA or a newer one use the new C++ ABI."""


class BuildLabel(NamedTuple):
    """What a local label says that a package was compiled for; empty or None where it says nothing.

    `torch` is a minor version, `cuda` a major version, `new_abi` the C++ ABI.
    """

    torch: str
    cuda: str
    new_abi: bool | None


def read_label(label: str) -> BuildLabel | None:
    """Return what a local label says; None if it is not one of the known forms."""
    for form in _LABELS:
        found = form.fullmatch(label)
        if found is not None:
            parts = found.groupdict()
            digits = parts.get("digits") or ""
            torch = parts.get("torch") or f"{digits[0]}.{digits[1:]}"
            abi = parts.get("abi")
            return BuildLabel(torch, (parts["cuda"] or "")[:2], None if abi is None else abi == "true")
    return None


def labelled_builds(inventory: Inventory) -> dict[str, BuildLabel]:
    """Return the packages whose versions have such a label, without those whose symbols were looked up.

    `pkg.NAME.unresolved` says whether the library loads beside this torch, which decides more than its label.
    """
    found = {}
    for key, fact in inventory.facts.items():
        if not is_package_key(key) or not isinstance(fact.value, str) or "+" not in fact.value:
            continue
        label = read_label(versions.local_label(fact.value))
        if label is not None and f"{key}.unresolved" not in inventory.facts:
            found[package_of_key(key)] = label
    return found


def other_release(inventory: Inventory, labels: Mapping[str, BuildLabel]) -> Reading:
    """Return the packages whose label names another minor version of torch than the installed one."""
    torch = versions.base_release(str(inventory.known("pkg.torch")))
    others = (name for name, label in labels.items() if _minor(torch) != _minor(label.torch))
    return _words(inventory, others)


def other_build(inventory: Inventory, labels: Mapping[str, BuildLabel]) -> Reading:
    """Return the packages whose label names another CUDA major or another C++ ABI than this torch has."""
    cuda = inventory.reading("cuda.runtime")
    here = (
        ""
        if isinstance(cuda, Absent)
        else str(cuda.value).partition(".")[0]
        if isinstance(cuda, Known)
        else None
    )
    abi = _torch_abi(inventory)
    others = (
        name
        for name, label in labels.items()
        if (here is not None and label.cuda and label.cuda != here)
        or (abi is not None and label.new_abi is not None and label.new_abi != abi)
    )
    return _words(inventory, others)


def _words(inventory: Inventory, names: Iterator[str]) -> Reading:
    found = tuple(f"{name} {inventory.known(package_key(name))}" for name in sorted(names))
    return Known(found) if found else Absent()


def _minor(version: str) -> tuple[str, ...]:
    return tuple(version.split(".")[:2])


def _torch_abi(inventory: Inventory) -> bool | None:
    """Return whether the wheel of this torch uses the new C++ ABI; None if that is not known.

    Vendors and conda-forge compile torch with the new ABI at any version: only a version with the
    label of a wheel, or a plain release without any label, is taken for a wheel.
    """
    text = str(inventory.known("pkg.torch"))
    version = versions.parse(text)
    if version is None or version.is_prerelease or not re.fullmatch(r"(?:cu\d{3}|cpu)?", version.local or ""):
        return None
    if versions.compare(text, ">=", _ONE_ABI_SINCE) is Tri.YES:
        return True
    if versions.compare(text, "<", "2.6") is Tri.YES:
        return False
    cuda = inventory.known("cuda.runtime")
    return None if cuda is None else versions.compare(str(cuda), ">=", _NEW_ABI_CUDA) is Tri.YES


def accepts_toolkit(inventory: Inventory, rows: Sequence[Mapping[str, Any]]) -> Reading:
    """Return whether DeepSpeed compiles with the toolkit that was found, given the CUDA of torch.

    DeepSpeed's op builder requires equal minor versions, or that its list for the major version has both.
    """
    deepspeed = str(inventory.known("pkg.deepspeed"))
    toolkit, runtime = (_two_parts(str(inventory.known(key))) for key in ("cuda.toolkit", "cuda.runtime"))
    if toolkit == runtime:
        return Known(value=True)
    for row in rows:
        if versions.satisfies(deepspeed, row["versions"], unknown=Tri.NO) is Tri.YES:
            alike = row["accepted"].get(toolkit.partition(".")[0], ())
            return Known(toolkit in alike and runtime in alike)
    return Unknown(f"the toolkits that DeepSpeed {deepspeed} accepts are not known", asked=False)


def cann_of(torch_npu: str, rows: Sequence[Mapping[str, Any]]) -> Reading:
    """Return the CANN that a torch_npu was released for."""
    for row in rows:
        if torch_npu in row["versions"]:
            return Known(row["cann"])
    return Unknown(f"the CANN that torch-npu {torch_npu} was released for is not known", asked=False)


def cann_fits(torch_npu: str, released_for: str, cann: str, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether torch_npu was released for a CANN's minor version, or its notes call it compatible."""
    minor = _two_parts(cann)
    compatible = (row.get("compatible", ()) for row in rows if torch_npu in row["versions"])
    return minor == _two_parts(released_for) or any(minor in each for each in compatible)


def code_for_amd(torch: str, gpus: Collection[str], rows: Sequence[Mapping[str, Any]]) -> Reading:
    """Return whether a ROCm wheel of torch has code for one of these GPUs: `gfx942`, `gfx1100`.

    A processor's graphics unit is listed as a GPU too, and few wheels have code for one, so one GPU suffices.
    """
    label = versions.local_label(torch)
    for row in rows:
        within = versions.satisfies(torch, row["torch"], unknown=Tri.NO) is Tri.YES
        if label not in row["labels"] or not within:
            continue
        if set(gpus) & {*row["architectures"]}:
            return Known(value=True)
        if set(gpus) & {*row.get("doubtful", ())}:
            return Unknown(f"sources disagree about the GPUs that torch {torch} serves", asked=False)
        return Known(value=False)
    return Unknown(f"the AMD GPUs that torch {torch} has code for are not known", asked=False)


def _two_parts(version: str) -> str:
    return ".".join(version.split(".")[:2])
