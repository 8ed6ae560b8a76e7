"""Derive what follows from the driver's version, and the drivers that torch's CUDA needs."""

from __future__ import annotations

from envcheck.core import versions
from envcheck.core.facts import Absent, Fact, Inventory, Known, Reading, Tri, Unknown
from envcheck.core.tables import Tables, TorchBuild
from envcheck.rules.derive.inputs import missing_input, text_of, with_derived
from envcheck.rules.derive.torch_builds import default_cuda


def with_drivers(inventory: Inventory, tables: Tables) -> Inventory:
    """Add what follows from the driver's version, and the driver versions that torch's CUDA needs."""
    facts = [
        Fact("cuda.driver_too_old", _shows_older_cuda(inventory), "derived from cuda.driver, cuda.runtime"),
        Fact("cuda.driver", _cuda_of_driver(inventory, tables), "derived from driver.version"),
        Fact("driver.torch_last", _torch_of_driver(inventory, tables), "derived from driver.version"),
    ]
    minimum, full = _driver_bounds(inventory, tables)
    facts.append(Fact("cuda.minimum_driver", minimum, "derived from cuda.runtime"))
    facts.append(Fact("cuda.full_driver", full, "derived from cuda.runtime"))
    return with_derived(inventory, facts)


def _driver_bounds(inventory: Inventory, tables: Tables) -> tuple[Reading, Reading]:
    """Return the oldest driver for torch's CUDA, and the driver that ships with that CUDA."""
    excluded = missing_input(inventory, "cuda.runtime") or _foreign_driver(inventory)
    if excluded is not None:
        return excluded, excluded
    runtime = text_of(inventory, "cuda.runtime")
    shipped = _without_limits_of(inventory, _shipped_driver(tables, runtime))
    return _with_newer_libcuda(inventory, _family_floor(tables, runtime)), shipped


def _foreign_driver(inventory: Inventory) -> Reading | None:
    """Return the reading of driver bounds where the tables' driver numbers do not apply; None where they do.

    The tables hold Linux drivers. Under WSL the driver is that of Windows, and on a Jetson it is part of
    the board's system: both are numbered differently. The bound is Absent where something else decides:
    under WSL, the rules on the newest CUDA the driver supports; elsewhere, that the driver supports the
    CUDA major version of torch.
    """
    if inventory.known("host.wsl") is True:
        return Absent()
    if inventory.known("host.tegra") is not None or _has_jetson(inventory):
        reason = "a Jetson's driver is part of its system and is numbered differently"
    elif inventory.known("host.os") not in (None, "linux"):
        reason = f"only the drivers of Linux are known, and this is {inventory.known('host.os')}"
    else:
        return None
    driver_major, torch_major = (
        str(inventory.known(key) or "").partition(".")[0] for key in ("cuda.driver", "cuda.runtime")
    )
    comparable = driver_major.isdecimal() and torch_major.isdecimal()
    return Absent() if comparable and int(driver_major) >= int(torch_major) else Unknown(reason)


def _has_jetson(inventory: Inventory) -> bool:
    """Return whether a GPU is that of a Jetson board."""
    return any(inventory.known("gpu.kind", number) == "jetson" for number in range(len(inventory.devices)))


def _family_floor(tables: Tables, cuda: str) -> Reading:
    """Return the oldest driver of a CUDA major family: since CUDA 11, it runs every minor version of it.

    For older CUDA versions, the table has a row for each minor version, with the column `cuda`.
    """
    major = cuda.partition(".")[0]
    for row in tables.cuda_families:
        if row.major == major and (row.cuda or cuda) == cuda:
            return Known(row.minimum_driver)
    return Unknown(f"the driver floor of CUDA {major}.x is not known")


def _with_newer_libcuda(inventory: Inventory, floor: Reading) -> Reading:
    """Return the floor, unless a newer libcuda may replace that of a driver below it.

    cuda-compat packages bring one, in an image, in a conda environment or as a module of a cluster. It is
    recognised by its own version, or by the CUDA version that nvidia-smi shows: it asks the libcuda that is
    loaded, not the kernel module. The floor is Absent where torch was seen to work with the driver.
    """
    driver = inventory.known("driver.version")
    if not isinstance(floor, Known) or driver is None:
        return floor
    if versions.compare(str(driver), "<", str(floor.value)) is Tri.NO:
        return floor
    if inventory.known("torch.cuda_available") is True:
        return Absent()
    if (stand_in := _stand_in(inventory)) is not None:
        return stand_in
    shown, runtime = (
        str(inventory.known(key) or "").partition(".")[0] for key in ("cuda.driver", "cuda.runtime")
    )
    if shown.isdecimal() and runtime.isdecimal() and int(shown) >= int(runtime):
        return Unknown(
            f"the driver shows CUDA {inventory.known('cuda.driver')}, which is that of a newer libcuda"
        )
    return floor


def _without_limits_of(inventory: Inventory, shipped: Reading) -> Reading:
    """Return the driver that ships with torch's CUDA; Absent if the loader finds a cuda-compat as new first.

    The compiler of PTX is a part of libcuda, so what limits an older driver does not limit such a libcuda.
    """
    compat = inventory.known("cuda.compat")
    if not isinstance(shipped, Known) or compat is None or inventory.known("cuda.compat_on_path") is not True:
        return shipped
    return Absent() if versions.compare(str(compat), ">=", str(shipped.value)) is Tri.YES else shipped


def _stand_in(inventory: Inventory) -> Unknown | None:
    """Return that a cuda-compat package may replace libcuda; None if there is none."""
    for key in ("cuda.compat", "pkg.cuda-compat"):
        if (compat := inventory.known(key)) is not None:
            return Unknown(f"cuda-compat ({compat}) may stand in for the driver, on data-centre GPUs only")
    return None


_FIRST_CUDA_OF_FAMILIES = 11
"""The first CUDA whose minor versions run with every driver of the major one."""


def _shows_older_cuda(inventory: Inventory) -> Reading:
    """Return whether nvidia-smi shows a CUDA that is older than torch's, where nothing better is known.

    Since CUDA 11, every driver runs every minor version of its major one. On Linux the version of the driver
    decides if it is known; under WSL, rules of its own do.
    """
    decided = inventory.known("driver.version") is not None and inventory.known("host.os") in (None, "linux")
    if decided or inventory.known("host.wsl") is True:
        return Absent()
    shown, runtime = (
        versions.parse(str(inventory.known(key) or "")) for key in ("cuda.driver", "cuda.runtime")
    )
    if shown is None or runtime is None or inventory.known("torch.cuda_available") is True:
        return Absent()
    parts = 1 if runtime.major >= _FIRST_CUDA_OF_FAMILIES else 2
    older = shown.release[:parts] < runtime.release[:parts]
    return (_stand_in(inventory) if older else None) or Known(older)


def _shipped_driver(tables: Tables, cuda: str) -> Reading:
    drivers = [row.driver for row in tables.cuda_toolkits if row.cuda == cuda and row.driver]
    if not drivers:
        return Unknown(f"the driver that ships with CUDA {cuda} is not known")
    return Known(min(drivers, key=versions.order))


def _cuda_of_driver(inventory: Inventory, tables: Tables) -> Reading:
    missing = missing_input(inventory, "driver.version")
    if missing is not None:
        return missing
    branch = text_of(inventory, "driver.version").partition(".")[0]
    for row in tables.driver_branches:
        if row.branch == branch:
            return Known(row.cuda)
    return Unknown(f"driver branch R{branch} is not known")


def _torch_of_driver(inventory: Inventory, tables: Tables) -> Reading:
    """Return the newest torch whose default build this driver can run."""
    missing = missing_input(inventory, "driver.version")
    if missing is not None:
        return missing
    if _foreign_driver(inventory) is not None:
        return Unknown("only the drivers of Linux on servers and workstations are known")
    driver = text_of(inventory, "driver.version")

    def runs(build: TorchBuild) -> bool:
        runtime = default_cuda(inventory, build)
        floor = _family_floor(tables, str(runtime.value)) if isinstance(runtime, Known) else runtime
        return isinstance(floor, Known) and versions.compare(driver, ">=", str(floor.value)) is Tri.YES

    found = next((build.version for build in tables.torch_newest_first if runs(build)), None)
    return Absent() if found is None else Known(found)
