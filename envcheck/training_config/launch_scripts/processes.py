"""How many processes a launch line starts in all, from its launcher's arguments and the environment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envcheck.core.errors import Place
from envcheck.core.facts import Unknown
from envcheck.training_config.document import Setting
from envcheck.training_config.launch_scripts.launchers import LaunchLine
from envcheck.training_config.launch_scripts.values import Argument

EXPORTED = frozenset({"CUDA_VISIBLE_DEVICES", "NPROC_PER_NODE", "NNODES", "FORCE_TORCHRUN"})
"""Environment variables that launchers read."""

_SETTING = "processes"
_MAX_DIGITS = 6  # of a count
_COUNTS_PROCESSES = {"nproc_per_node", "num_gpus", "include"}
_READS_NPROC_PER_NODE = ("swift", "llamafactory-cli")
_CHOOSES_HOSTS = ("hostfile", "H", "include", "i", "exclude", "e")


def process_count(
    line: LaunchLine, settings: Mapping[str, Setting], environment: Mapping[str, Argument], place: Place
) -> Setting | None:
    """Return the setting `processes`, Unknown with a reason where it depends on the machine.

    `settings` are the launcher's own, by name; `place` is that of the launch line. None means that the
    program is started without a launcher.
    """
    unreadable = next((word.why for word in line.launcher_arguments if word.many and word.why), "")
    if line.launcher and unreadable and not _COUNTS_PROCESSES & settings.keys():
        return Setting(_SETTING, Unknown(unreadable), place, place)
    if line.launcher == "torchrun":
        return _torchrun(settings, place)
    if line.launcher == "deepspeed":
        return _deepspeed(settings, place, environment.get("CUDA_VISIBLE_DEVICES"))
    if "NPROC_PER_NODE" not in environment or line.program[0] not in _READS_NPROC_PER_NODE:
        return None
    names = [name for name in ("NPROC_PER_NODE", "NNODES") if name in environment]
    return _product([_number(environment[name].text, environment[name].why, name) for name in names], place)


def _torchrun(settings: Mapping[str, Setting], place: Place) -> Setting:
    found = [settings[name] for name in ("nproc_per_node", "nnodes") if name in settings]
    return _product([_count(setting) for setting in found], found[0].place if found else place)


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
    return Unknown(f"{name} {text} is no fixed number")


def _product(factors: Sequence[int | Unknown], place: Place) -> Setting:
    """Return the product as a setting, or the first factor that is not known."""
    product = 1
    for factor in factors:
        if isinstance(factor, Unknown):
            return Setting(_SETTING, factor, place, place)
        product *= factor
    return Setting(_SETTING, str(product), place, place)
