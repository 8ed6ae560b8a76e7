"""Derive what packages were compiled for, and what published wheels say of listed ones."""

from __future__ import annotations

import re
from collections.abc import Iterator

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
    is_package_version_key,
    package_name,
)
from envcheck.core.rules import Matrix
from envcheck.core.tables import Tables
from envcheck.rules.derive.inputs import missing_input, text_of, with_derived
from envcheck.rules.derive.keys import ARCHITECTURES_SUFFIX
from envcheck.rules.requirements import is_environment

_WHEEL_LABEL = re.compile(r"(?:cu[0-9]+|cpu(?:\.cxx11\.abi)?|rocm[0-9.]+|xpu)?")
"""The local labels of the wheels of torch that its project publishes."""


def with_compiled_packages(inventory: Inventory, tables: Tables) -> Inventory:
    """Add whether DeepSpeed accepts the toolkit, and the packages whose labels name another torch."""
    inventory = with_derived(inventory, _compiled_ops(inventory))
    named = ("pkg.deepspeed", "cuda.toolkit", "cuda.runtime")
    source = "derived from " + ", ".join(f"{key} {inventory.known(key) or ''}".strip() for key in named)
    accepted = missing_input(inventory, "pkg.deepspeed", "cuda.toolkit", "cuda.runtime")
    labelled = any(
        is_package_key(key) and isinstance(fact.value, str) and ("torch" in fact.value or "+pt" in fact.value)
        for key, fact in inventory.facts.items()
    )
    if accepted is not None and not labelled:
        return with_derived(inventory, [Fact("build.deepspeed.toolkit", accepted, source)])
    from envcheck.rules import derived_builds  # most environments have neither a toolkit nor such a label

    accepted = accepted or derived_builds.accepts_toolkit(inventory, tables.get("deepspeed_toolkit", []))
    inventory = with_derived(inventory, [Fact("build.deepspeed.toolkit", accepted, source)])
    labels = derived_builds.labelled_builds(inventory)
    if not labels or missing_input(inventory, "pkg.torch") is not None:
        return inventory
    found: dict[str, Reading] = {
        "torch.packages_of_another_release": derived_builds.other_release(inventory, labels),
        "torch.packages_of_another_build": derived_builds.other_build(inventory, labels),
    }
    for name in ("flash-attn", "causal-conv1d", "mamba-ssm"):
        own = {each: label for each, label in labels.items() if each == name}
        differs = isinstance(derived_builds.other_build(inventory, own), Known)
        found[f"torch.{name.replace('-', '_')}_of_another_build"] = Known(differs)
    return with_derived(
        inventory, (Fact(key, each, _first_source(inventory, each)) for key, each in found.items())
    )


def _compiled_ops(inventory: Inventory) -> Iterator[Fact]:
    """Yield whether DeepSpeed's compiled ops are for this torch; nothing where it compiled none.

    When it loads an op, DeepSpeed compares minor versions as texts; that of CUDA only for ops on GPUs.
    """
    if inventory.known("build.deepspeed.ops") is None:
        return
    pairs = [("pkg.torch", "build.deepspeed.torch"), ("cuda.runtime", "build.deepspeed.cuda")]
    known = [(inventory.known(one), inventory.known(other)) for one, other in pairs]
    compared = [
        str(one).split(".")[:2] == str(other).split(".")[:2]
        for one, other in known
        if one is not None and other is not None
    ]
    if known[0][0] is not None and compared:
        source = inventory.fact("build.deepspeed.ops").source
        yield Fact("build.deepspeed.fits", Known(value=all(compared)), source)


def with_ascend(inventory: Inventory, tables: Tables) -> Inventory:
    """Add the CANN that torch_npu was released for, and whether it is the installed one."""
    missing = missing_input(inventory, "pkg.torch-npu")
    if missing is not None:
        source = "derived from pkg.torch-npu"
        return with_derived(
            inventory, (Fact(key, missing, source) for key in ("build.torch-npu.cann", "cann.fits"))
        )
    from envcheck.rules import derived_builds  # few environments have it

    torch_npu = text_of(inventory, "pkg.torch-npu")
    source = f"derived from torch-npu {torch_npu}"
    rows = tables.get("torch_npu_cann", [])
    cann = derived_builds.cann_of(torch_npu, rows)
    inventory = with_derived(inventory, [Fact("build.torch-npu.cann", cann, source)])
    needed = ("build.torch-npu.cann", "cann.version")
    fits = missing_input(inventory, *needed)
    if fits is None:
        released_for, here = (text_of(inventory, key) for key in needed)
        fits = Known(derived_builds.cann_fits(torch_npu, released_for, here, rows))
    return with_derived(inventory, [Fact("cann.fits", fits, source)])


def with_amd(inventory: Inventory, tables: Tables) -> Inventory:
    """Add whether torch has code for an AMD GPU of this machine; nothing where there is none."""
    gpus, torch = inventory.known("host.amd_architectures"), inventory.known("pkg.torch")
    if not isinstance(gpus, tuple) or not gpus or torch is None:
        return inventory
    from envcheck.rules import derived_builds  # most machines have no AMD GPU

    reading = derived_builds.code_for_amd(str(torch), gpus, tables.get("torch_rocm", []))
    source = f"derived from torch {torch}, {', '.join(gpus)}"
    return with_derived(inventory, [Fact("torch.code_for_amd", reading, source)])


def _first_source(inventory: Inventory, packages: Reading) -> str:
    """Return the source of the first package in a list of words that begin with a package's name.

    It may be the line of a file, which a report then shows.
    """
    if not isinstance(packages, Known) or not isinstance(packages.value, tuple):
        return "derived from the versions of packages"
    return inventory.fact(f"pkg.{packages.value[0].partition(' ')[0]}").source


def with_published_wheels(inventory: Inventory, matrix: Matrix) -> Inventory:
    """Add what published wheels say of packages that were listed rather than found installed."""
    if not any(is_package_key(key) for key in inventory.facts) or is_environment(inventory):
        return inventory
    from envcheck.rules import published_wheels

    code = published_wheels.published_code(inventory, matrix)
    facts = [
        Fact(f"pkg.{name}{ARCHITECTURES_SUFFIX}", Known(found), f"the published wheel of {name}")
        for name, found in code.items()
    ]
    without = published_wheels.without_wheel(inventory, matrix)
    facts.append(Fact("packages.without_wheel", without, _first_source(inventory, without)))
    return with_derived(inventory, facts)


def withdrawn(inventory: Inventory, tables: Tables) -> Fact:
    """Return which releases here their authors have withdrawn, with the reason if they gave one.

    A release of the same number that conda built is not the one on the index.
    """
    by_conda = inventory.known("packages.from_conda")
    built = by_conda if isinstance(by_conda, tuple) else ()
    found = []
    for key in sorted(inventory.facts):
        if not is_package_version_key(key):
            continue
        name, version = package_name(key), str(inventory.known(key))
        reason = tables.reasons_to_withdraw.get((name, version))
        if reason is not None and name not in built:
            found.append(f"{name} {version}" + (f": {reason}" if reason else ""))
    reading: Reading = Known(tuple(found)) if found else Absent()
    return Fact("packages.withdrawn", reading, _first_source(inventory, reading))


def from_wheels(inventory: Inventory) -> Fact:
    """Return whether packages are wheels; conda's builds fit other Pythons and older C libraries."""
    conda = inventory.known("python.manager") == "conda"
    return Fact("packages.from_wheels", Known(not conda), "derived from python.manager")


def torch_from_wheel(inventory: Inventory) -> Fact:
    """Return whether torch is a published wheel; `2.8.0a0+git1234` and `2.8.0a0+1234.nv25.05` are none."""
    version = versions.parse(str(inventory.known("pkg.torch")))
    compiled = version is not None and (
        (version.pre or ("",))[0] == "a" or not _WHEEL_LABEL.fullmatch(version.local or "")
    )
    by_conda = inventory.known("packages.from_conda")
    if isinstance(by_conda, tuple):
        of_conda = "torch" in by_conda
    else:
        of_conda = inventory.known("python.manager") == "conda"
    source = "derived from pkg.torch and packages.from_conda or python.manager"
    return Fact("torch.from_wheel", Known(not of_conda and not compiled), source)


def torchcodec_from_wheel(inventory: Inventory) -> Fact:
    """Return whether torchcodec is a wheel; conda compiles it for the torch that it installs."""
    by_conda = inventory.known("packages.from_conda")
    wheel = not (isinstance(by_conda, tuple) and "torchcodec" in by_conda)
    return Fact("torchcodec.from_wheel", Known(wheel), "derived from packages.from_conda")


def flash_attn_wheel(inventory: Inventory) -> tuple[Fact, Fact]:
    """Return whether flash-attn may be a wheel of its project, and whether its GPU code was read.

    There are no wheels for aarch64. A list that names no processor is taken for one of x86_64, as it is where
    markers and the wheels of other packages are read.
    """
    by_conda = inventory.known("packages.from_conda")
    conda = isinstance(by_conda, tuple) and "flash-attn" in by_conda
    wheel = not conda and inventory.known("host.arch") != "aarch64"
    read = inventory.known(f"pkg.flash-attn{ARCHITECTURES_SUFFIX}") is not None
    return (
        Fact("flash-attn.from_wheel", Known(wheel), "derived from host.arch and packages.from_conda"),
        Fact("flash-attn.code_read", Known(read), "derived from pkg.flash-attn.architectures"),
    )


def torch_preview_of(inventory: Inventory) -> Fact:
    """Return the release that a vendor build of torch is numbered before: 2.6.0 for `2.6.0a0+1234.nv25.01`.

    Bounds compare such a build by its base release. Code that compares versions by PEP 440 puts it below.
    """
    missing = missing_input(inventory, "pkg.torch")
    version = versions.parse(str(inventory.known("pkg.torch")))
    reading: Reading = missing or Absent()
    if missing is None and version is not None and versions.is_vendor_build(version):
        reading = Known(version.base_version)
    return Fact("torch.preview_of", reading, "derived from pkg.torch")


def library_named(inventory: Inventory) -> Fact:
    """State whether the variable is known to be set: a list of packages comes without an environment."""
    named = bool(inventory.known("env.BNB_CUDA_VERSION"))
    return Fact("bitsandbytes.library_named", Known(named), "derived from env.BNB_CUDA_VERSION")


_ANY_MINOR = "0.50.0"
"""First bitsandbytes that loads the library for another minor version of torch's CUDA where it has none."""


def has_library(inventory: Inventory, tables: Tables) -> Fact:
    """Return whether the wheel of bitsandbytes has a library that it loads for torch's CUDA.

    A release after the last row has at least what the last one has; one before the first row is known only
    for what that one lacks.
    """
    source = "derived from pkg.bitsandbytes and cuda.runtime"
    missing = missing_input(inventory, "pkg.bitsandbytes", "cuda.runtime")
    rows = tables.get("bitsandbytes_cuda", ())
    if missing is not None or not rows:
        return Fact("bitsandbytes.has_library", missing or Absent(), source)
    release, cuda = (text_of(inventory, key) for key in ("pkg.bitsandbytes", "cuda.runtime"))
    place = versions.order(release)
    earlier = [row for row in rows if versions.order(row["versions"][0]) <= place]
    held = (earlier or rows)[-1 if earlier else 0]["cuda"]
    if versions.compare(release, ">=", _ANY_MINOR) is Tri.YES:
        found = cuda.partition(".")[0] in {each.partition(".")[0] for each in held}
    else:
        found = cuda in held
    known = Known(found) if earlier or not found else Unknown(f"the wheel of {release} was not read")
    return Fact("bitsandbytes.has_library", known, source)


def unsloth_release(inventory: Inventory) -> Fact:
    """State the release of Unsloth, which mends other packages; a list that does not name it brings none."""
    release = inventory.known("pkg.unsloth")
    reading = Absent() if release is None else Known(release)
    return Fact("unsloth.release", reading, "derived from pkg.unsloth")
