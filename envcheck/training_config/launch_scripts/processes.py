"""What starts the processes of a launch line, and how many, by its arguments and environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envcheck.core.errors import Place
from envcheck.core.facts import Unknown
from envcheck.core.patterns import pattern
from envcheck.training_config.document import Setting
from envcheck.training_config.launch_scripts.launchers import LaunchLine
from envcheck.training_config.launch_scripts.values import Argument

DEVICE_VARIABLES = (
    "CUDA_VISIBLE_DEVICES",
    "ASCEND_RT_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ZE_AFFINITY_MASK",
)
"""Environment variables that list the devices a program may use."""

EXPORTED = frozenset(
    {*DEVICE_VARIABLES, "NPROC_PER_NODE", "NNODES", "FORCE_TORCHRUN", "SLURM_STEP_NUM_TASKS"}
)
"""Environment variables that launchers read."""

_SETTING = "processes"
_MAX_DIGITS = 6  # of a count of processes or nodes
_COUNTS_PROCESSES = {"nproc_per_node", "num_gpus", "include", "nproc", "n"}
_READS_NPROC_PER_NODE = ("swift", "megatron", "llamafactory-cli", "lmf", "xtuner")
_STARTS_ONE_PER_DEVICE = ("llamafactory-cli", "lmf")
_SELECTS_HOSTS = frozenset({"include", "i", "exclude", "e"})
_HOST = pattern(r"[\w.:-]+[ \t]+slots=(\d{1,4})(?:[ \t]*#.*)?")
_CHOOSES_HOSTS = ("hostfile", "H", "include", "i", "exclude", "e")


def process_count(
    line: LaunchLine,
    settings: Mapping[str, Setting],
    environment: Mapping[str, Argument],
    place: Place,
    slots: Sequence[int] = (),
) -> Setting | None:
    """Return the setting `processes`, Unknown with a reason where it depends on the machine.

    `settings` are the launcher's own, by name; `place` is that of the launch line. `slots` are the processes
    of each host that its host file lists. Return None if neither the launcher nor, without a launcher, the
    environment gives a count.
    """
    unreadable = next((word.why for word in line.launcher_arguments if word.many and word.why), "")
    if line.launcher and unreadable and not _COUNTS_PROCESSES & settings.keys():
        return Setting(_SETTING, Unknown(unreadable), place, place)
    if line.launcher in ("torchrun", "colossalai"):
        return _torchrun(settings, place)
    if line.launcher == "composer":
        return _composer(settings, place)
    if line.launcher == "deepspeed":
        by_hosts = slots and not _SELECTS_HOSTS & settings.keys()
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        return _by_hosts(settings, slots, place) if by_hosts else _deepspeed(settings, place, visible)
    if line.launcher:
        return None
    return _by_environment(line.program[0], environment, place)


def _by_hosts(settings: Mapping[str, Setting], slots: Sequence[int], place: Place) -> Setting:
    """Return the count of the deepspeed launcher for the hosts that its file lists."""
    limits = [_count(settings[name]) if name in settings else 0 for name in ("num_nodes", "num_gpus")]
    for limit in limits:
        if isinstance(limit, Unknown):
            return Setting(_SETTING, limit, place, place)
    nodes, gpus = (limit if isinstance(limit, int) else 0 for limit in limits)
    used = slots[:nodes] if nodes > 0 else slots
    count = sum(gpus if gpus > 0 else each for each in used)
    return Setting(_SETTING, str(count), place, place)


def slots_of_hosts(text: str) -> tuple[int, ...]:
    """Return the processes of each host in the text of a host file (`worker-1 slots=8`); () if it is none."""
    lines = [line.strip() for line in text.splitlines()]
    found = [_HOST.fullmatch(line) for line in lines if line and not line.startswith("#")]
    return tuple(int(each.group(1)) for each in found if each) if all(found) else ()


def _by_environment(program: str, environment: Mapping[str, Argument], place: Place) -> Setting | None:
    """Return the count for a program that is started without a launcher and may start processes itself."""
    if "NPROC_PER_NODE" in environment and program in _READS_NPROC_PER_NODE:
        names = [name for name in ("NPROC_PER_NODE", "NNODES") if name in environment]
        return _product(
            [_number(environment[name].text, environment[name].why, name) for name in names], place
        )
    tasks = environment.get("SLURM_STEP_NUM_TASKS")
    if tasks is not None:
        return _product([_number(tasks.text, tasks.why, "srun")], place)
    devices = _visible_devices(environment)
    one_each = program in _STARTS_ONE_PER_DEVICE
    return Setting(_SETTING, str(devices), place, place) if devices == 1 or (devices and one_each) else None


def launcher(line: LaunchLine, environment: Mapping[str, Argument], place: Place) -> Setting:
    """Return the setting `launcher`: what starts the processes; `none` if the program is started directly."""
    name = line.launcher
    if not name and line.program[0] in _READS_NPROC_PER_NODE:
        several = line.program[0] in _STARTS_ONE_PER_DEVICE and _visible_devices(environment) > 1
        name = "torchrun" if several or {"NPROC_PER_NODE", "FORCE_TORCHRUN"} & environment.keys() else ""
    if not name and "SLURM_STEP_NUM_TASKS" in environment:
        name = "srun"
    if not name and line.own_command:
        reason = Unknown(f"{line.program[0]} may start several processes itself")
        return Setting("launcher", reason, place, place)
    return Setting("launcher", name or "none", place, place)


def _visible_devices(environment: Mapping[str, Argument]) -> int:
    """Return how many devices the environment makes visible to the program; 0 if it does not say."""
    for name in DEVICE_VARIABLES:
        listed = environment.get(name)
        if listed is not None and listed.text and not listed.why:
            return len(listed.text.strip(",").split(","))
    return 0


def _torchrun(settings: Mapping[str, Setting], place: Place) -> Setting:
    found = [settings[name] for name in ("nproc_per_node", "nnodes") if name in settings]
    return _product([_count(setting) for setting in found], found[0].place if found else place)


def _composer(settings: Mapping[str, Setting], place: Place) -> Setting:
    """Return the count of Composer's launcher, which starts a process for every GPU without an option."""
    given = next((settings[name] for name in ("world_size", "nproc", "n") if name in settings), None)
    if given is None:
        return Setting(_SETTING, Unknown("composer starts a process for every GPU it finds"), place, place)
    return _product([_count(given)], given.place)


def _deepspeed(settings: Mapping[str, Setting], place: Place, visible: Argument | None) -> Setting:
    """Return the count of the deepspeed launcher; `visible` is CUDA_VISIBLE_DEVICES."""
    include = settings.get("include") or settings.get("i")
    if include is not None and (listed := _listed_devices(include)):
        return Setting(_SETTING, str(listed), include.name_place, include.place)
    for name in _CHOOSES_HOSTS:
        if name in settings:
            reason = Unknown(f"--{name} of the deepspeed launcher says where the processes run")
            return Setting(_SETTING, reason, settings[name].name_place, settings[name].place)
    gpus = settings.get("num_gpus")
    factors = [_count(settings[name]) for name in ("num_gpus", "num_nodes") if name in settings]
    if gpus is None and visible is not None and not visible.why and visible.text:
        factors.append(len(visible.text.split(",")))
    elif gpus is None:
        factors.append(Unknown("the deepspeed launcher starts a process for every GPU it finds"))
    return _product(factors, gpus.place if gpus else place)


def _listed_devices(include: Setting) -> int:
    """Return how many devices `--include host:0,1@host:2` lists; 0 if a host has no list."""
    if not isinstance(include.value, str):
        return 0
    hosts = [host.partition(":")[2] for host in include.value.split("@")]
    return sum(len(host.split(",")) for host in hosts) if all(hosts) else 0


def _count(setting: Setting) -> int | Unknown:
    why = setting.value.why if isinstance(setting.value, Unknown) else ""
    return _number(str(setting.value), why, f"--{setting.name}")


def _number(text: str, why: str, name: str) -> int | Unknown:
    """Return a count; Unknown if `why` gives a reason or the text is not a plain number."""
    if why:
        return Unknown(why)
    if text.isdecimal() and len(text) <= _MAX_DIGITS:
        return int(text)
    return Unknown(f"{name} {text} is not a fixed number")


def _product(factors: Sequence[int | Unknown], place: Place) -> Setting:
    """Return the product as a setting, or the first factor that is not known."""
    product = 1
    for factor in factors:
        if isinstance(factor, Unknown):
            return Setting(_SETTING, factor, place, place)
        product *= factor
    return Setting(_SETTING, str(product), place, place)
