"""Find the parameters that a followed program leaves frozen, by the order of freezing and training."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from envcheck.training_config.programs.names import is_beside
from envcheck.training_config.programs.recorded_calls import FollowedCall

_LISTED = re.compile(r"(?:list|tuple|iter|enumerate|reversed)\((.*)\)")
_PARAMETERS = re.compile(r"(?:\.(?:named_)?(?:parameters|modules|children)\([^()]*\))++$")
"""What all parts of a model are, perhaps through two loops: `model.modules().parameters()`."""

_LONGEST = 1_000  # characters of an expression
_MOST_BY_NAME = 1
_MOST_PARTS = 2
"""So many calls that train parameters of some names, or parts of a model, leave others of it frozen."""


class _Frozen(NamedTuple):
    call: FollowedCall
    path: str
    by_name: bool  # only parameters whose names a condition asks for
    trained: tuple[bool, ...] = ()  # for each call that trains a part of it again, whether it goes by names


def path_of(expression: str) -> str:
    """Return the model, or the part of one, whose parameters an expression stands for; "" if it is long."""
    if len(expression) > _LONGEST:
        return ""
    while (listed := _LISTED.fullmatch(expression)) is not None:
        expression = listed[1]
    return _PARAMETERS.sub("", expression)


def leaves_frozen(calls: Iterable[FollowedCall], about_names: AbstractSet[str]) -> FollowedCall | None:
    """Return a call that freezes parameters which certainly stay frozen, or None.

    `about_names` are the conditions that ask for the name of a parameter: under them alone, a call acts on
    some parameters. What is trained again afterwards stays frozen in part if only parameters of some names
    are, or a part of the model.
    """
    frozen: list[_Frozen] = []
    for call in calls:
        if call.name != "requires_grad_" or is_beside(call.owner):
            continue
        open_ones = [each for each in call.conditions if each.removeprefix("not ") not in about_names]
        path, by_name = path_of(call.owner), len(open_ones) < len(call.conditions)
        if call.arguments.get("requires_grad", 0) is not False:  # MISSING stands for True
            frozen = [
                each._replace(trained=(*each.trained, by_name))
                for each in frozen
                if _stays(each, path, by_name=by_name)
            ]
        elif not open_ones:
            frozen.append(_Frozen(call, path, by_name))
    return frozen[0].call if frozen else None


def _stays(frozen: _Frozen, path: str, *, by_name: bool) -> bool:
    """Return whether something stays frozen when what `path` stands for is trained again."""
    parts = [*frozen.trained, by_name]
    if sum(parts) > _MOST_BY_NAME or len(parts) - sum(parts) > _MOST_PARTS:
        return False
    if path.startswith((f"{frozen.path}.", f"{frozen.path}[")):
        return not frozen.by_name
    return path == frozen.path and by_name and not frozen.by_name
