"""Find the parameters that a followed program leaves frozen, by the order of freezing and training."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from envcheck.training_config.programs.names import is_beside
from envcheck.training_config.programs.recorded_calls import FollowedCall
from envcheck.training_config.programs.values import MISSING

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


class StaysFrozen(NamedTuple):
    """Hold a call that freezes parameters which stay frozen, and the names of parts that calls freeze.

    `parts` are the last names of what is frozen whole, such as `visual` of `model.visual`. It is empty if
    only parameters of some names are frozen somewhere, if others may be frozen, or if a gradient is asked for
    at the model's inputs.
    """

    call: FollowedCall
    parts: tuple[str, ...]


def leaves_frozen(
    calls: Sequence[FollowedCall], about_names: AbstractSet[str], code: Iterable[ast.AST] = ()
) -> StaysFrozen | None:
    """Return what certainly stays frozen, or None.

    In `code`, models are found that the program loads beside the one that it trains. `about_names` are the
    conditions that ask for the name of a parameter: under them alone, a call acts on some parameters. What
    is trained again afterwards stays frozen in part if only parameters of some names are, or a part of the
    model.
    """
    frozen: list[_Frozen] = []
    undecided = False
    others = _loaded_beside(calls, code) if any(call.name == "requires_grad_" for call in calls) else set()
    for call in calls:
        if call.name != "requires_grad_" or is_beside(call.owner) or path_of(call.owner) in others:
            continue
        open_ones = [each for each in call.conditions if each.removeprefix("not ") not in about_names]
        path, by_name = path_of(call.owner), len(open_ones) < len(call.conditions)
        given = call.arguments.get("requires_grad", 0)
        undecided = undecided or given not in (True, False, MISSING) or (given is False and bool(open_ones))
        if given is not False:  # MISSING stands for True
            frozen = [
                each._replace(trained=(*each.trained, by_name))
                for each in frozen
                if _stays(each, path, by_name=by_name)
            ]
        elif not open_ones:
            frozen.append(_Frozen(call, path, by_name))
    if not frozen:
        return None
    whole = not undecided and not any(each.by_name or each.trained for each in frozen)
    whole = whole and not any(call.name in _ASK_FOR_GRADIENTS for call in calls)
    parts = dict.fromkeys(each.path.rpartition(".")[2] for each in frozen)
    return StaysFrozen(frozen[0].call, tuple(parts) if whole else ())


def _stays(frozen: _Frozen, path: str, *, by_name: bool) -> bool:
    """Return whether something stays frozen when what `path` stands for is trained again."""
    parts = [*frozen.trained, by_name]
    if sum(parts) > _MOST_BY_NAME or len(parts) - sum(parts) > _MOST_PARTS:
        return False
    if path.startswith((f"{frozen.path}.", f"{frozen.path}[")):
        return not frozen.by_name
    return path == frozen.path and by_name and not frozen.by_name


def _loaded_beside(calls: Sequence[FollowedCall], code: Iterable[ast.AST]) -> set[str]:
    """Return the names of models that the program loads, uses by themselves, and does not train.

    Such a name is only called, or asked for an attribute: it is given to nothing, so it is no part of another
    model.
    """
    trained = {_root(each) for call in calls for each in _trained_by(call)}
    if not trained:
        return set()
    nodes = [node for tree in code for node in ast.walk(tree)]
    alone = {
        id(each.value if isinstance(each, ast.Attribute) else each.func)
        for each in nodes
        if isinstance(each, ast.Attribute | ast.Call)
    }
    loaded: set[str] = set()
    otherwise: set[str] = {*trained}
    for node in nodes:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _is_load(value, name):
                loaded.add(name)
            case ast.Assign(targets=targets):
                otherwise |= {
                    each.id for target in targets for each in ast.walk(target) if isinstance(each, ast.Name)
                }
            case ast.Name(id=name, ctx=ast.Load()) if id(node) not in alone:
                otherwise.add(name)
            case ast.arg(arg=name):
                otherwise.add(name)
            case _:
                pass
    return loaded - otherwise


def _is_load(value: ast.expr, name: str) -> bool:
    """Return whether an expression loads a model, or is what a method of the model itself returns."""
    while isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr in _LOADS:
            return True
        value = value.func.value
    return isinstance(value, ast.Name) and value.id == name


def _trained_by(call: FollowedCall) -> Iterator[ast.expr]:
    """Yield the models whose parameters a trainer or an optimizer is given."""
    given = [
        *call.node.args,
        *(each.value for each in call.node.keywords if each.arg in (None, "model", "params")),
    ]
    if call.name.endswith("Trainer"):
        yield from (
            given[:1]
            if call.node.args
            else [each.value for each in call.node.keywords if each.arg == "model"]
        )
    elif call.owner.startswith(_OPTIMIZERS) or call.name.startswith(_NAMES_OF_OPTIMIZERS):
        yield from (
            node.func.value
            for each in given
            for node in ast.walk(each)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("parameters", "named_parameters")
        )


def _root(node: ast.expr) -> str:
    """Return the name that an expression begins with, or ""."""
    while isinstance(node, ast.Attribute | ast.Call | ast.Subscript):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


_ASK_FOR_GRADIENTS = ("enable_input_require_grads", "make_inputs_require_grad", "make_inputs_require_grads")
_LOADS = ("from_pretrained", "from_config")
_OPTIMIZERS = ("torch.optim", "bitsandbytes.optim")
_NAMES_OF_OPTIMIZERS = ("Adam", "SGD", "Lion", "Adafactor")
