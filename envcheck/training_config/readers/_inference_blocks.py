"""Blocks of a program under `autocast` that only compute outputs, such as images of a validation. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from envcheck.core.patterns import pattern
from envcheck.training_config.programs.names import called

_NO_GRADIENTS = ("no_grad", "inference_mode")
_PIPELINE = pattern(r"(?:\w+_)?pipe(?:line)?s?|generate")
_TRAINS = pattern(r"(?i)\w*(?:loss|backward|criterion)\w*")


def autocasts_of_inference(trees: Iterable[ast.AST]) -> set[ast.AST]:
    """Return the calls of `autocast` under which nothing is trained.

    No gradients are computed there, or a pipeline makes outputs and no loss is named.
    """
    return {call for tree in trees for call in _found(tree, gradients=True)}


def _found(node: ast.AST, *, gradients: bool) -> Iterator[ast.AST]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        gradients = not any(_switches_off(each) for each in node.decorator_list)
    elif isinstance(node, ast.With | ast.AsyncWith):
        items = [item.context_expr for item in node.items]
        gradients = gradients and not any(map(_switches_off, items))
        if not gradients or _only_makes_outputs(node.body):
            yield from (each for item in items for each in ast.walk(item) if called(each) == "autocast")
    for child in ast.iter_child_nodes(node):
        yield from _found(child, gradients=gradients)


def _switches_off(node: ast.expr) -> bool:
    return any(called(each) in _NO_GRADIENTS for each in ast.walk(node)) or (
        isinstance(node, ast.Attribute) and node.attr in _NO_GRADIENTS
    )


def _only_makes_outputs(body: Iterable[ast.stmt]) -> bool:
    nodes = [each for statement in body for each in ast.walk(statement)]
    names = [getattr(each, "id", getattr(each, "attr", "")) for each in nodes]
    makes = any(_PIPELINE.fullmatch(called(each)) for each in nodes)
    return makes and not any(isinstance(name, str) and _TRAINS.fullmatch(name) for name in names)
