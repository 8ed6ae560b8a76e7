"""The declaration of a self-test: what it claims, what it needs, and in which variants it runs.

A test is a script in `target_scripts/selftests/`. Its constants are read here without running it.
"""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core.errors import InputError


class SelftestVariant(NamedTuple):
    """One way to run a test: what it needs beyond its test, and the training facts that it represents.

    `devices` are the kinds of device it runs on. `ranks` is the smallest and the largest number of processes,
    or None if they are those of the test.
    """

    name: str
    needs: Mapping[str, Any]
    train: Mapping[str, Any]
    devices: tuple[str, ...]
    ranks: tuple[int, int] | None = None


class SelftestDeclaration(NamedTuple):
    """A self-test, as its constants declare it.

    `needs` are clauses as in compat/. `seconds` is the deadline of one variant. `ranks` is the smallest and
    the largest number of processes. `imports` are the modules that are imported once for all variants.
    `digest` is the sha256 of the source texts of the worker and of the test.
    """

    name: str
    title: str
    level: int
    needs: Mapping[str, Any]
    imports: tuple[str, ...]
    seconds: float
    ranks: tuple[int, int]
    variants: tuple[SelftestVariant, ...]
    digest: str


_CONSTANTS = {"LEVEL", "NEEDS", "IMPORTS", "SECONDS", "RANKS", "DEVICES", "TRAIN", "VARIANTS"}


def read_declaration(name: str, text: str, worker: str) -> SelftestDeclaration:
    """Return the declaration in a test's source text; `worker` is the source text of its worker.

    Raises:
        InputError: the text has no docstring or LEVEL, or a constant is not a literal.
    """
    where = f"target_scripts/selftests/{name}.py"
    try:
        module = ast.parse(text)
        constants = {
            target.id: ast.literal_eval(node.value)
            for node in module.body
            if isinstance(node, ast.Assign)
            for target in node.targets
            if isinstance(target, ast.Name) and target.id in _CONSTANTS
        }
    except (SyntaxError, ValueError) as error:
        raise InputError(where, f"not a self-test: {error}") from None
    doc = ast.get_docstring(module)
    if not doc or constants.get("LEVEL") not in (1, 2, 3):
        raise InputError(where, "not a self-test: needs a docstring and LEVEL = 1, 2 or 3")
    return SelftestDeclaration(
        name=name,
        title=doc.splitlines()[0].rstrip("."),
        level=constants["LEVEL"],
        needs=constants.get("NEEDS", {}),
        imports=tuple(constants.get("IMPORTS", ())),
        seconds=float(constants.get("SECONDS", 60)),
        ranks=tuple(constants.get("RANKS", (1, 1))),
        variants=_variants(name, constants),
        digest="sha256:" + hashlib.sha256(f"{worker}\0{text}".encode()).hexdigest(),
    )


def _variants(name: str, constants: Mapping[str, Any]) -> tuple[SelftestVariant, ...]:
    """Return the variants of a test, or the test itself as its only one.

    TRAIN and DEVICES apply to every variant that does not override them.
    """
    devices = tuple(constants.get("DEVICES", ("cpu", "cuda")))
    return tuple(
        SelftestVariant(
            variant,
            options.get("needs", {}),
            {**constants.get("TRAIN", {}), **options.get("train", {})},
            tuple(options.get("devices", devices)),
            options.get("ranks"),
        )
        for variant, options in constants.get("VARIANTS", {name: {}}).items()
    )


def contradicts(variant: SelftestVariant, train: Mapping[str, Any], free: Sequence[str] = ()) -> bool:
    """Return whether a target's training facts (`train.…`) exclude a variant; a free fact never does."""
    return any(
        f"train.{key}" in train and f"train.{key}" not in free and train[f"train.{key}"] != value
        for key, value in variant.train.items()
    )
