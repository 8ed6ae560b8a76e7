"""Which configurations the Auto classes of transformers load a model of, from its source text. Pure.

`AutoModelForCausalLM` names a mapping, which names two tables: types of model with their configurations, and
types of model with their classes. A configuration is loaded if its type is in both.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping

_OF_CONFIGURATIONS, _OF_MODELS = "CONFIG_MAPPING_NAMES", "_MAPPING_NAMES"
"""The table of configurations, and the end of the names of the tables of models."""

_OF_MAPPING = 2
"""Arguments of `_LazyAutoMapping`: the two tables."""


def auto_classes(modeling: str, configurations: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the classes of configurations that each public Auto class loads, by the name of the Auto class.

    `modeling` is the text of transformers/models/auto/modeling_auto.py, `configurations` are the texts of
    those files beside it that define CONFIG_MAPPING_NAMES, a later one from an earlier one.

    Raises:
        ValueError: a table is written in another way than those that are read here.
        SyntaxError: a text is no Python.
    """
    tree = ast.parse(modeling)
    tables = _tables([tree], _OF_MODELS)
    configured = _tables(map(ast.parse, configurations), _OF_CONFIGURATIONS).get(_OF_CONFIGURATIONS)
    if configured is None:
        raise ValueError(f"expected {_OF_CONFIGURATIONS}")
    lazy = dict(_lazy_mappings(tree))
    mapped = dict(_mappings_of_classes(tree))
    return {
        name: frozenset(configured[each] for each in tables[lazy[mapping]] if each in configured)
        for name, mapping in mapped.items()
        if not name.startswith("_") and lazy.get(mapping) in tables
    }


def types_by_class(modeling: str) -> dict[str, frozenset[str]]:
    """Return the types of model that each class is made for, from the text of modeling_auto.py.

    Raises:
        ValueError: a table is written in another way than those that are read here.
        SyntaxError: the text is no Python.
    """
    found: dict[str, set[str]] = {}
    for table in _tables([ast.parse(modeling)], _OF_MODELS).values():
        for model_type, name in table.items():
            found.setdefault(name, set()).add(model_type)
    return {name: frozenset(types) for name, types in found.items() if name}


def _tables(trees: Iterable[ast.Module], ending: str) -> dict[str, dict[str, str]]:
    """Return the tables with names of this ending that the modules assign, each by the type of model."""
    found: dict[str, dict[str, str]] = {}
    for tree in trees:
        for name, value in _assignments(tree):
            if name.endswith(ending):
                found[name] = dict(_entries(value, found))
    return found


def _assignments(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            yield node.targets[0].id, node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value:
            yield node.target.id, node.value


def _entries(value: ast.expr, known: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the entries of a table: a dict, `OrderedDict([...])`, or another table that it contains."""
    if isinstance(value, ast.Call) and (value.args or value.keywords):
        for each in (*value.args, *(keyword.value for keyword in value.keywords if keyword.arg is None)):
            yield from _entries(each, known)
    elif isinstance(value, ast.Name) and value.id in known:
        yield from known[value.id].items()
    elif isinstance(value, ast.Dict):
        for key, each in zip(value.keys, value.values, strict=True):
            yield from _entries(each, known) if key is None else [(_text(key), _text(each))]
    elif isinstance(value, ast.List | ast.Tuple):
        for each in value.elts:
            yield from _listed(each, known)
    else:
        raise _other_form(value, "a table of names")


def _listed(item: ast.expr, known: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the entries of one item of a list: a pair, or `*list(OTHER.items())`."""
    if isinstance(item, ast.Starred):
        named = {each.id for each in ast.walk(item) if isinstance(each, ast.Name)} & known.keys()
        yield from (entry for name in sorted(named) for entry in known[name].items())
    elif isinstance(item, ast.Tuple):
        yield _text(item.elts[0]), _text(item.elts[1])
    else:
        raise _other_form(item, "a pair")


def _other_form(node: ast.expr, expected: str) -> ValueError:
    return ValueError(f"line {node.lineno}: expected {expected}")


def _text(node: ast.expr) -> str:
    """Return a text; of several classes for one type of model, the first."""
    if isinstance(node, ast.Tuple | ast.List) and node.elts:
        return _text(node.elts[0])
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    raise _other_form(node, "a text")


def _lazy_mappings(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each mapping and the table of classes that it is made of."""
    for name, value in _assignments(tree):
        if isinstance(value, ast.Call) and len(value.args) == _OF_MAPPING:
            table = value.args[1]
            if isinstance(table, ast.Name):
                yield name, table.id


def _mappings_of_classes(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield each class and the mapping that it, or its base before it in the file, names."""
    own: dict[str, str] = {}
    for node in tree.body:
        if not isinstance(node, ast.ClassDef):
            continue
        inherited = [own[base.id] for base in node.bases if isinstance(base, ast.Name) and base.id in own]
        named = [
            each.value.id
            for each in node.body
            if isinstance(each, ast.Assign)
            and isinstance(each.targets[0], ast.Name)
            and each.targets[0].id == "_model_mapping"
            and isinstance(each.value, ast.Name)
        ]
        for mapping in (*named, *inherited)[:1]:
            own[node.name] = mapping
            yield node.name, mapping
