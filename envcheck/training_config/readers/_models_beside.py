"""Models that a program gives a trainer beside the one that it trains, such as `ref_model`. Pure."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence

from envcheck.training_config.programs.names import called, is_beside

_BY_POSITION = {
    "BCOTrainer": ("model", "ref_model"),
    "DPOTrainer": ("model", "ref_model"),
    "GRPOTrainer": ("model", "reward_funcs"),
    "KTOTrainer": ("model", "ref_model"),
    "OnlineDPOTrainer": ("model", "ref_model"),
    "PPOTrainer": ("config", "model", "ref_model"),
}
"""First parameters of TRL's trainers (0.7.2, 0.12.0, 1.9.0 were read); elsewhere the model is the first."""


def loading_code(nodes: Sequence[ast.AST]) -> set[ast.AST]:
    """Return the code that makes such models and nothing else.

    A name that is also given as the model that is trained makes no such model. A configuration that was given
    a name belongs to that code if nothing else uses it.
    """
    beside, trained = set[str](), set[str]()
    for call in nodes:
        if isinstance(call, ast.Call) and called(call).endswith("Trainer"):
            for name, value in _models(call):
                (beside if is_beside(name) else trained).update(_names(ast.walk(value)))
    beside -= trained
    if not beside:
        return set()
    found = _made(nodes, beside)
    elsewhere = _names(node for node in nodes if node not in found)
    return found | _made(nodes, _names(found) - elsewhere)


def _models(call: ast.Call) -> Iterator[tuple[str, ast.expr]]:
    """Yield the arguments of a trainer that may be models, with their names."""
    yield from zip(_BY_POSITION.get(called(call), ("model",)), call.args, strict=False)
    yield from ((keyword.arg or "", keyword.value) for keyword in call.keywords)


def _names(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the names that are read at these nodes themselves."""
    return {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)}


def _made(nodes: Sequence[ast.AST], names: set[str]) -> set[ast.AST]:
    """Return the code, with all that is inside it, whose result is assigned to one of these names first."""
    if not names:
        return set()
    return {
        inside
        for node in nodes
        if isinstance(node, ast.Assign) and not names.isdisjoint(_first_names(node))
        for inside in ast.walk(node.value)
    }


def _first_names(assignment: ast.Assign) -> Iterator[str]:
    for target in assignment.targets:
        first = target.elts[0] if isinstance(target, ast.Tuple) and target.elts else target
        if isinstance(first, ast.Name):
            yield first.id
