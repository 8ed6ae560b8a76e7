"""Lay a user's own knowledge files over the shipped tree.

An overlay is one TOML file with the same rows as compat/: rules, targets, machines, cells, defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from envcheck.core.errors import InputError
from envcheck.core.facts import Vocabulary
from envcheck.core.i18n import counted
from envcheck.core.parsing import parse_toml
from envcheck.core.rules import Matrix
from envcheck.knowledge.load import build_matrix, plain_values, read_matrix, tree_digest

_LISTS = ("rule", "case", "default", "cell")
_TABLES = ("target", "machine", "known_through", "moves_with")
_NAMED_TABLES = ("target", "machine")


def build_with_overlays(
    tree: Mapping[str, Any], overlays: Iterable[tuple[str, str, str]], vocabulary: Vocabulary
) -> Matrix:
    """Return the Matrix of a tree with overlays laid over it in turn.

    Each overlay is (file name, option or settings file that named it, TOML text).

    Raises:
        InputError: an overlay is wrong; one line with its file and key, and how many further mistakes it has.
    """
    for name, named_by, text in overlays:
        tree = lay_over(tree, parse_overlay(text, name), name, named_by)
        _, problems = read_matrix(tree, vocabulary)
        if problems:
            first = problems[0].removeprefix(f"{name}: ")
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise InputError(name, first + more)
    return build_matrix(tree, vocabulary)


def parse_overlay(text: str, name: str) -> dict[str, Any]:
    """Return the tree of one overlay file, which holds `[[rule]]`, `[target.NAME]`, … side by side.

    Raises:
        InputError: the file is not TOML, or has a key that an overlay cannot have; one line with file and
        key.
    """
    overlay: dict[str, Any] = plain_values(parse_toml(text, name))
    for key, value in overlay.items():
        _check_shape(name, key, value)
    return overlay


def _check_shape(name: str, key: str, value: Any) -> None:
    """Raise InputError unless a top-level key of an overlay is known and its value has the key's shape."""
    where = f"{name}: {key}"
    if key in _LISTS:
        if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
            raise InputError(where, f"expected [[{key}]] tables")
    elif key not in _TABLES:
        known = ", ".join((*_LISTS, *_TABLES))
        raise InputError(where, f"unknown key in an overlay; expected one of {known}")
    elif not isinstance(value, dict):
        raise InputError(where, f"expected a table; found {value!r}")
    elif key in _NAMED_TABLES and not all(isinstance(row, dict) for row in value.values()):
        raise InputError(where, f"expected [{key}.NAME] tables")


def lay_over(
    tree: Mapping[str, Any], overlay: Mapping[str, Any], name: str, named_by: str = "--matrix"
) -> dict[str, Any]:
    """Return the tree with an overlay's rows added; a row replaces the shipped row with the same name.

    A rule, target or machine replaces its namesake, so a rule with `withdrawn` removes one. A cell replaces
    the cell of the same run. Defaults go in front, because the first one that applies wins. The digest covers
    tree and overlay.
    """
    rows = {key: [{**row, "origin": name} for row in overlay.get(key, [])] for key in _LISTS}
    rows["rule"] = [{**row, "file": name} for row in rows["rule"]]
    rows["case"] = [{**row, "file": name} for row in rows["case"]]
    head = dict(tree["matrix"])
    for key in _TABLES:
        marked = {
            entry: {**row, "origin": name} if key == "target" else row
            for entry, row in overlay.get(key, {}).items()
        }
        head[key] = {**head.get(key, {}), **marked}
    head["cell"] = _replace_rows(head.get("cell", []), rows["cell"], _run_of)
    tables = {**tree["tables"], "default": [*rows["default"], *tree["tables"].get("default", [])]}
    origin = {"name": name, "named_by": named_by, "brings": _summary(tree, overlay)}
    return {
        **tree,
        "rule": _replace_rows(tree["rule"], rows["rule"], lambda row: row.get("id")),
        "case": _replace_rows(tree.get("case", []), rows["case"], lambda row: row.get("id")),
        "matrix": head,
        "tables": tables,
        "origins": [*tree.get("origins", []), origin],
        "digest": tree_digest({"over": tree.get("digest", ""), "overlay": overlay}),
    }


def _replace_rows(
    rows: Iterable[dict[str, Any]],
    new_rows: list[dict[str, Any]],
    identity: Callable[[dict[str, Any]], Any],
) -> list[dict[str, Any]]:
    """Return the rows that no new row replaces, then the new rows."""
    replaced = [identity(row) for row in new_rows]
    return [*(row for row in rows if identity(row) not in replaced), *new_rows]


def _run_of(cell: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return what identifies the run that a cell records."""
    return (
        cell.get("target"),
        cell.get("pkg"),
        cell.get("train", {}),
        cell.get("device"),
        cell.get("test"),
        cell.get("ranks"),
    )


def _summary(tree: Mapping[str, Any], overlay: Mapping[str, Any]) -> str:
    """Return what an overlay adds and replaces, as text: `2 rules, 1 target; in place of rule a-rule`."""
    parts = [
        counted(len(overlay[key]), key.replace("_", " "))
        for key in ("rule", "target", "cell", "machine", "default")
        if overlay.get(key)
    ]
    shipped_ids = {row.get("id") for row in tree["rule"]}
    replaced = [f"rule {row.get('id')}" for row in overlay.get("rule", []) if row.get("id") in shipped_ids]
    for key in _NAMED_TABLES:
        replaced += [f"{key} {name}" for name in overlay.get(key, {}) if name in tree["matrix"].get(key, {})]
    return (", ".join(parts) or "nothing") + (f"; in place of {', '.join(replaced)}" if replaced else "")
