"""Which type of model a name on the Hub stands for, from the registries of ms-swift and Unsloth. Pure.

ms-swift lists the models that it trains, with the architecture in their config.json; the Auto classes of
transformers name the `model_type` of an architecture. Unsloth lists which of its copies are of which model.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

_ARCHITECTURES = "architectures"
_MAPPER_END = "_MAPPER"


def registered_architectures(source: str) -> Iterator[tuple[str, str]]:
    """Yield each name in a module of ms-swift's registry with its architecture.

    Models with several architectures, or with one that is computed, are left out.

    Raises:
        SyntaxError: the text is no Python.
    """
    for registered in _calls(ast.parse(source), "ModelMeta"):
        given = next((each.value for each in registered.keywords if each.arg == _ARCHITECTURES), None)
        if isinstance(given, ast.List) and len(given.elts) == 1 and (found := _text(given.elts[0])):
            for model in _calls(registered, "Model"):
                yield from ((name, found) for name in map(_text, model.args[:2]) if name)


def same_models(source: str) -> Iterator[tuple[str, ...]]:
    """Yield the names of each model in a module of ms-swift's registry: on ModelScope and on the Hub.

    Raises:
        SyntaxError: the text is no Python.
    """
    for model in _calls(ast.parse(source), "Model"):
        yield tuple(name for name in map(_text, model.args[:2]) if name)


def copies(source: str) -> Iterator[tuple[str, ...]]:
    """Yield the names of one model and of its copies, from each entry of Unsloth's table.

    Raises:
        SyntaxError: the text is no Python.
    """
    for node in ast.parse(source).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Dict):
            continue
        if isinstance(node.targets[0], ast.Name) and node.targets[0].id.endswith(_MAPPER_END):
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                nodes = chain([key], ast.walk(value))
                yield tuple(dict.fromkeys(name for name in map(_text, nodes) if "/" in name))


def types_of_names(
    architectures: Iterable[tuple[str, str]],
    copied: Iterable[Sequence[str]],
    types: Mapping[str, frozenset[str]],
) -> dict[str, str]:
    """Return the `model_type` of each name, where all registries agree and transformers has one for it.

    `types` are the types of model by architecture.
    """
    found: dict[str, set[str]] = {}
    for name, architecture in architectures:
        found.setdefault(name, set()).add(_type_of(architecture, types))
    for names in copied:
        known = set().union(*(found.get(name, set()) for name in names))
        for name in names if known else ():
            found.setdefault(name, set()).update(known)
    return {name: only for name, (only, *others) in found.items() if only and not others}


def _type_of(architecture: str, types: Mapping[str, frozenset[str]]) -> str:
    """Return the type of an architecture; of several, the one that it is named after."""
    found = types.get(architecture, frozenset())
    if len(found) == 1:
        return next(iter(found))
    named = [each for each in found if architecture.lower().startswith(f"{each.replace('_', '')}for")]
    return named[0] if len(named) == 1 else ""


def _calls(tree: ast.AST, name: str) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name:
            yield node


def _text(node: ast.AST | None) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""
