"""Environment variables that a launch script or a program sets, as facts (`env.NCCL_P2P_DISABLE`)."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import TYPE_CHECKING

from envcheck.core.environment_variables import READ_BY_RULES, variables
from envcheck.core.facts import Fact, Unknown
from envcheck.training_config.launch_scripts.values import Value, spelled
from envcheck.training_config.source_lines import SourceLines

if TYPE_CHECKING:  # imported where a program is followed
    from envcheck.training_config.programs.follow import FollowedProgram

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
