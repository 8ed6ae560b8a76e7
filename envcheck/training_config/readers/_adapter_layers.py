"""Layers of an adapter that a followed program puts into a model itself, without PEFT. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from envcheck.training_config.programs.follow import FollowedProgram
from envcheck.training_config.programs.recorded_calls import Arguments, FollowedCall

LAYER = "adapter_layer"
"""The name of a call that makes a layer of LoRA by a class of the program's project."""

MAY_MAKE = "makes_adapter_layers"
"""The setting that says whether the program makes an object of such a class anywhere, perhaps of none."""

LAYERS_OF_DIFFUSERS = frozenset({
    "LoRAAttnProcessor", "LoRAAttnProcessor2_0", "LoRALinearLayer", "LoRAConv2dLayer",
})  # fmt: skip

_NAMES_LORA = re.compile(
    r"lora(?![a-z]*(?:config|args|arguments|options|settings|dataset|loader|mixin))", re.IGNORECASE
)
_ASKS_OF_A_PART = re.compile(
    r"\b(?:isinstance|issubclass|hasattr)\((?!\w*(?:arg|conf|cfg|opt|param|setting))"
    r"|\.(?:startswith|endswith)\("
)
"""Conditions on the type or the name of a part of the model, as in a loop over all its modules."""


def own_classes(followed: FollowedProgram | None) -> frozenset[str]:
    """Return the names of the project's classes of LoRA of which the program makes objects."""
    nodes = followed.followed if followed is not None else ()
    return frozenset(
        node.name for node in nodes if isinstance(node, ast.ClassDef) and _NAMES_LORA.search(node.name)
    )


def layers(followed: FollowedProgram | None) -> Iterator[FollowedCall]:
    """Yield the calls that make a layer of LoRA by a class that the project derives from one of torch."""
    own = own_classes(followed)
    for call in followed.calls if followed is not None else ():
        function = call.node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in own and call.owner.startswith("torch."):
            yield call


def of_layer(call: FollowedCall) -> FollowedCall:
    """Return the call of a layer with its rank and its dropout, if its class names them as is usual."""
    found = []
    for name, usual in _USUAL.items():
        given = [each for each in call.own.keywords if each.name in usual]
        found += [given[0]._replace(name=name)] if len(given) == 1 else []
    return call._replace(arguments=Arguments((), tuple(found)))


_USUAL = {
    "rank": ("rank", "r", "lora_rank", "lora_r", "lora_dim"),
    "dropout": ("dropout", "lora_dropout", "dropout_p"),
}


def open_condition(call: FollowedCall, about_names: AbstractSet[str]) -> str:
    """Return the first condition of a call that may not hold of any part of the model, or ""."""
    return next(
        (
            each
            for each in call.conditions
            if each.removeprefix("not ") not in about_names and not _ASKS_OF_A_PART.search(each)
        ),
        "",
    )
