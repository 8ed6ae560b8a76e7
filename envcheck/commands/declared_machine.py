"""The machine that the user declares: its platform, driver and GPUs in place of the probed ones.

Images and locks are often made on machines without GPUs, so `--driver`, `--gpu`, `--platform` and `--glibc`
describe the machine that will run them.
"""

import re
from collections.abc import Sequence

from envcheck.core import nvidia, versions
from envcheck.core.errors import InputError
from envcheck.core.facts import Absent, Fact, Inventory, Known
from envcheck.core.gpu_names import (
    GpuMatch,
    instance_gpus,
    match_gpu,
    other_vendor,
    with_plain_count,
    words_of,
)
from envcheck.core.rules import Matrix
from envcheck.core.suggestions import suggestion
from envcheck.core.tables import GpuModel, plain_gpu_name
from envcheck.rules.changes import DRIVER_FACTS
from envcheck.rules.derive.gpus import processor_of_gpus
from envcheck.rules.derive.keys import ARCHITECTURES_SUFFIX

NO_GPU = "none"
"""The value of `--gpu` that declares a machine without GPUs."""

_FACTS_OF_PROBED_GPUS = (
    "gpus.models",
    "gpus.mixed",
    "gpus.on_bus",
    "gpus.nvswitches",
    "gpus.numa_nodes",
    "gpus.selection",
    "gpus.xids",
)
"""Facts that describe the GPUs of the probed machine and say nothing about declared ones."""


def declare_machine(
    inventory: Inventory,
    matrix: Matrix,
    *,
    platform: str | None = None,
    glibc: str | None = None,
    driver: str | None = None,
    gpus: Sequence[str] = (),
) -> Inventory:
    """Return the inventory with the declared platform, driver and GPUs in place of the probed ones.

    Raises:
        InputError: the driver is not a version, or no GPU of that name is known.
    """
    inventory = _declare_platform(inventory, platform)
    if glibc is not None:
        inventory = inventory.with_facts([Fact("host.glibc", Known(glibc), "declared by --glibc")])
    if tuple(gpus) == (NO_GPU,):
        inventory = _declare_no_gpu(inventory)
    if driver is not None:
        inventory = _declare_driver(inventory, driver, matrix)
    if gpus and tuple(gpus) != (NO_GPU,):
        inventory = _declare_gpus(inventory, gpus, matrix)
        if platform is None:
            inventory = _declare_processor(inventory, matrix)
    return inventory


def _declare_processor(inventory: Inventory, matrix: Matrix) -> Inventory:
    """Declare the processor of GPUs that come with no other: Jetson, GB10, GH200.

    If the probed one is another, its host and the compiled files of the probed environment say nothing about
    the declared machine; the versions that are installed still do.
    """
    processor = processor_of_gpus(inventory, matrix.tables)
    if not isinstance(processor.reading, Known) or inventory.known("host.arch") == processor.value:
        return inventory
    probed = [
        key
        for key in inventory.facts
        if (key.startswith("host.") and key != "host.os") or key.endswith(ARCHITECTURES_SUFFIX)
    ]
    declared = processor._replace(source="declared by --gpu, which comes with no other processor")
    return inventory.without(*probed).with_facts([declared])


def _declare_platform(inventory: Inventory, platform: str | None) -> Inventory:
    """Declare an operating system and an architecture, such as `linux-x86_64`.

    If the architecture differs from the probed one, only the facts about Python are kept: nothing else
    that was probed describes the declared machine.
    """
    if platform is None:
        return inventory
    system, _, arch = platform.partition("-")
    if inventory.known("host.arch") != arch:
        inventory = Inventory(
            facts={key: fact for key, fact in inventory.facts.items() if key.startswith("python.")}
        )
    source = "declared by --platform"
    return inventory.with_facts(
        [Fact("host.os", Known(system), source), Fact("host.arch", Known(arch), source)]
    )


def _declare_no_gpu(inventory: Inventory) -> Inventory:
    source = f"declared by --gpu {NO_GPU}"
    none = [Fact("gpus.count", Known(0), source), Fact("driver.version", Absent(), source)]
    probed = inventory.without(*DRIVER_FACTS, *_FACTS_OF_PROBED_GPUS)
    return probed.with_facts(none)._replace(devices=())


def _declare_driver(inventory: Inventory, driver: str, matrix: Matrix) -> Inventory:
    source = "declared by --driver"
    version = driver
    if level := _CUDA_LEVEL.fullmatch(driver.strip()):
        version = _first_driver(level[1], matrix)
        source = f"the first driver of CUDA {level[1]}, which --driver declares"
    elif first := _first_of_branch(driver.strip(), matrix):
        version = first
        source = f"the first driver of branch {driver.strip()}, which --driver declares"
    if versions.parse(version) is None:
        raise InputError(
            "--driver", f"expected a version such as 550.54.15, or a CUDA version, found {driver!r}"
        )
    declared = Fact("driver.version", Known(version), source)
    return inventory.without(*DRIVER_FACTS).with_facts([declared])


_CUDA_LEVEL = re.compile(r"(?i)(?:cuda)?\s*(?:version)?\s*:?\s*(\d{1,2}\.\d)")
"""The CUDA version that nvidia-smi prints in its header; drivers have three digits before the dot."""


def _first_driver(cuda: str, matrix: Matrix) -> str:
    """Return the first driver that supports a CUDA version and no newer one.

    Raises:
        InputError: no driver reports this CUDA version.
    """
    branches = [row.branch for row in matrix.tables.driver_branches if row.cuda == cuda]
    if not branches:
        known = ", ".join(dict.fromkeys(row.cuda for row in matrix.tables.driver_branches))
        raise InputError("--driver", f"no driver is known that reports CUDA {cuda}; there are {known}")
    toolkits = [str(row["driver"]) for row in matrix.tables.get("toolkit", ()) if str(row["cuda"]) == cuda]
    of_branch = [one for one in toolkits if one.partition(".")[0] in branches]
    return of_branch[0] if of_branch else branches[0]


def _first_of_branch(branch: str, matrix: Matrix) -> str:
    """Return the first driver of a branch such as 580 that came with a CUDA toolkit; empty if none did."""
    drivers = [row.driver for row in matrix.tables.cuda_toolkits if row.driver.startswith(f"{branch}.")]
    return min(drivers, key=lambda driver: [int(part) for part in driver.split(".")], default="")


def _declare_gpus(inventory: Inventory, gpus: Sequence[str], matrix: Matrix) -> Inventory:
    source = "declared by --gpu"
    declared = [declared_gpu(one, matrix) for query in gpus for one in _expanded(query, matrix)]
    devices = tuple({key: Fact(key, Known(value), source)} for key, value in declared)
    count = Fact("gpus.count", Known(len(devices)), source)
    return inventory.without(*_FACTS_OF_PROBED_GPUS).with_facts([count])._replace(devices=devices)


def declared_gpu(query: str, matrix: Matrix) -> tuple[str, str]:
    """Return the key and the value of the fact that one `--gpu` declares.

    The query is a compute capability (`9.0`, `sm_90`), or a GPU's name as people write it: `A100-80G` is any
    of the A100s with 80 GB. For a variant that is not listed, the fact is its compute capability alone.

    Raises:
        InputError: no known GPU matches, or several of different compute capability do.
    """
    if query == NO_GPU:
        raise InputError("--gpu", f"{NO_GPU} declares a machine without GPUs; name it alone")
    digits = query.removeprefix("sm_")
    capability = query if digits == query else f"{digits[:-1]}.{digits[-1:]}"
    if nvidia.is_capability(capability):
        return "gpu.compute_capability", capability
    return _known_gpu(query, matrix)


def _known_gpu(query: str, matrix: Matrix) -> tuple[str, str]:
    if model := matrix.tables.gpu_by_name.get(plain_gpu_name(query)):
        return "gpu.name", model.name
    known = matrix.tables.gpu_models
    matches = [GpuMatch(tuple(models), exact=True)] if (models := _spelled(query, known)) else []
    matches = matches or list(match_gpu(query, known))
    if not matches:
        if vendor := other_vendor(query, matrix.tables.get("other_accelerator", ())):
            why = f"expected an NVIDIA GPU, found {query!r}, which is made by {vendor}"
            raise InputError("--gpu", f"{why}; leave --gpu out to judge what does not depend on the GPU")
        if query.strip().lower() in _NO_GPU_IN_WORDS:
            raise InputError(
                "--gpu", f"expected a GPU, found {query!r}; {NO_GPU} declares a machine without GPUs"
            )
        close = suggestion(query, [model.name for model in known], list_all=False)
        raise InputError(
            "--gpu", f"no GPU {query!r} is known; a compute capability such as 9.0 is accepted, too{close}"
        )
    if len(matches) > 1:
        names = ", ".join(sorted({model.name for match in matches for model in match.models}))
        raise InputError("--gpu", f"{query!r} may be any of {names}")
    (match,) = matches
    if match.exact:
        return "gpu.name", match.models[0].name
    return "gpu.compute_capability", match.compute_capability


_NO_GPU_IN_WORDS = frozenset({"cpu", "no", "0", "null", "false", "nothing"})


def _spelled(query: str, known: Sequence[GpuModel]) -> list[GpuModel]:
    """Return the first GPU whose name or alias consists of the query's words; empty if there is none."""
    words = _name_words(query)
    return [model for model in known if any(words == _name_words(name) for name in model.names)][:1]


def _expanded(query: str, matrix: Matrix) -> list[str]:
    """Return one query for each GPU that a query declares: `8x H100`, or a cloud's instance type."""
    if plain_gpu_name(query) in matrix.tables.gpu_by_name:  # the patterns of the instances take time
        return [query]
    if found := instance_gpus(query, matrix.tables.get("cloud_instance", ())):
        gpu, count = found
        return [gpu] * count
    query = with_plain_count(query)
    count = words_of(query).number
    if not 1 < count <= _MOST_GPUS or query.lower().endswith("xlarge"):
        return [query]
    return [re.sub(r"(?i)\b\d+ ?x ?(?=[a-z0-9])|[ ,]*\bx ?\d+\b", "", query).strip()] * count


_MOST_GPUS = 72
"""The number of GPUs in the largest system that programs see as one machine."""


def _name_words(name: str) -> frozenset[str]:
    return frozenset(name.lower().replace("-", " ").split()) - {"nvidia"}
