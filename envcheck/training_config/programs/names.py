"""Names in code that may say which features it uses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

RECOMPUTES = "recompute"
"""What stands for a call of torch.utils.checkpoint, whose own name is also that of a saved state."""

_LONGEST_WORD = 60  # characters of a text that may be the name of an option
_BESIDE = re.compile(
    r"(?<![a-z])(?:ref|reference|teacher|reward|rm|ema|critic|judge|frozen_copy"
    r"|(?:target|value|old)_(?:model|net|network|policy|actor|encoder|function))(?![a-z])"
)


def is_beside(owner: str) -> bool:
    """Return whether an expression names a model that takes part in a training and is not trained."""
    return _BESIDE.search(owner.lower()) is not None


def called(node: ast.AST) -> str:
    """Return the last name of what a call calls; "" for any other node."""
    function = node.func if isinstance(node, ast.Call) else None
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def names(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the identifiers in code (names, attributes, arguments, definitions), and short texts.

    `requires_grad` is left out where it is only read, as by code that counts parameters, and it and
    `requires_grad_` where they switch gradients on, as in `torch.tensor(0.0, requires_grad=True)`.
    """
    leaves_trainable = {node.func for node in nodes if isinstance(node, ast.Call) and switches_on(node)}
    for node in nodes:
        match node:
            case ast.Name():
                yield node.id
            case ast.Attribute(attr="requires_grad", ctx=ast.Load()):
                pass
            case ast.Attribute() if node in leaves_trainable:
                pass
            case ast.Attribute():
                yield node.attr
            case ast.keyword(arg="requires_grad", value=ast.Constant(value=True)):
                pass
            case ast.arg() | ast.keyword():
                # This argument has torch.utils.checkpoint.checkpoint alone.
                yield RECOMPUTES if node.arg == "use_reentrant" else node.arg or ""
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                yield node.name
            case ast.Constant(value=str() as text) if len(text) <= _LONGEST_WORD and " " not in text:
                yield text
            case _:
                pass


@lru_cache(maxsize=1 << 12)
def names_of(node: ast.AST) -> frozenset[str]:
    """Return the names in a function or class; cached, because a program is followed once for each launch."""
    return frozenset(names(list(ast.walk(node))))


def switches_on(node: ast.Call) -> bool:
    """Return whether a call is `requires_grad_()` or `requires_grad_(True)`."""
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "requires_grad_":
        return False
    given = [*node.args, *(keyword.value for keyword in node.keywords)]
    return all(isinstance(each, ast.Constant) and each.value is True for each in given)
