"""Environment variables that a launch script or a program sets, as facts (`env.NCCL_P2P_DISABLE`)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from envcheck.core.environment_variables import READ_BY_RULES, variables
from envcheck.core.errors import Place
from envcheck.core.facts import Fact, Unknown
from envcheck.core.patterns import pattern
from envcheck.training_config.document import Document, Setting
from envcheck.training_config.launch_scripts.values import Value, spelled
from envcheck.training_config.source_lines import SourceLines

if TYPE_CHECKING:  # imported where a program is followed
    from envcheck.training_config.programs.follow import FollowedProgram

_DEVICES = "CUDA_VISIBLE_DEVICES"
_ONE_DEVICE = pattern(r"\d+|GPU-[\w-]+|MIG-[\w/-]+")
_SELECTS_GPUS = frozenset(
    {"CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"}
)
"""Variables that the facts on GPUs were read with; a fact on the variable alone would contradict these."""


def given_variables(
    exported: Mapping[str, Value], lines: SourceLines, may_export: str = ""
) -> Iterator[Fact]:
    """Yield the variables that a launch script gives a program, each with its line.

    If `may_export` says what may give it any other variable, those that rules read are unknown.
    """
    for name in sorted(READ_BY_RULES - exported.keys() - _SELECTS_GPUS) if may_export else ():
        yield from variables({name: Unknown(f"${name} {may_export}")}, lines.file)
    for name, value in exported.items():
        if name in _SELECTS_GPUS or not value:
            continue
        why = next((fragment.why for fragment in value if fragment.why), "")
        place = lines.place(value[0].at, value[0].at + 1)
        text = Unknown(why) if why else spelled(value)
        yield from variables({name: text}, f"{place.file}:{place.line}")


def devices_of_program(
    followed: FollowedProgram | None, given: Mapping[str, Value] = MappingProxyType({})
) -> str | Unknown | None:
    """Return the devices that a program makes visible to itself; None if it leaves them as they are.

    `given` are the variables that the launch script gives it.
    """
    if followed is None or _DEVICES not in followed.environment:
        return None
    devices = followed.environment[_DEVICES]
    before = given.get(_DEVICES)
    if before is not None and devices == spelled(before):
        return None
    return devices if isinstance(devices, str) else Unknown(f"the program sets ${_DEVICES}")


def single_device(devices: str | Unknown | None, file: str) -> tuple[Document, ...]:
    """Return that a program is one process, if it makes one device visible to itself, as a document."""
    if not isinstance(devices, str) or not _ONE_DEVICE.fullmatch(devices):
        return ()
    place = Place(file)
    settings = (Setting("launcher", "none", place, place), Setting("processes", "1", place, place))
    return (Document(file, "arguments", settings, dialect="launcher"),)


def variables_of_program(
    followed: FollowedProgram | None, file: str, given: Container[str] = ()
) -> Iterator[Fact]:
    """Yield the variables that a program sets itself, whose values are unknown.

    A library may have read such a variable before. `given` are those that the launch script gives it.
    """
    why = Unknown("the program sets it, perhaps after a library has read it")
    for name in followed.environment if followed is not None else ():
        if name not in given and name not in _SELECTS_GPUS:
            yield from variables({name: why}, file)
