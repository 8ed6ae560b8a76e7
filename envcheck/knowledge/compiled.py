"""Convert the Matrix and the vocabulary to the JSON form in the wheel and back.

The build writes the Matrix with `freeze_matrix`; doctor reads it with `thaw_matrix`. Thawing is on the
start-up path, so this module imports nothing that only building needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from envcheck.core.facts import Key, Kind, Vocabulary
from envcheck.core.rules import (
    Basis,
    Cell,
    Clause,
    Comparison,
    Default,
    Fix,
    Matrix,
    NoFix,
    Ref,
    Rule,
    Severity,
    Source,
    Target,
    When,
)
from envcheck.core.tables import Tables

LOG_TABLES = frozenset(
    {"trigger", "progress", "log_prefix", "log_fact", "log_listing", "log_command", "log_platform"}
    | {"list_label", "list_of_others", "written_name"}
    | {"failure_line", "failure_message", "exception_meaning", "general_meaning", "ending", "import_name"}
    | {"published_module", "repository_folder"}
    | {"library_copy", "class_family", "handed_to_forward", "carries_out", "caught", "model_server"}
)
"""Tables that say how to read logs. Their evidence is the logs under tests/data."""

LARGE_TABLES = LOG_TABLES | frozenset(
    {"default", "release", "import_run", "peft_transformers"}
    | {"flash_attn_name", "flash_attn_cuda", "flash_attn_trap"}
    | {"wheel_publisher", "published_wheel", "attention_instead"}
    | {"bitsandbytes_choice", "bitsandbytes_code"}
    | {"xformers_build", "torchao_torch"}
    | {"decoder", "tower", "activation", "optimizer"}
    | {"alike"}
)
"""Tables that judging does not read; only the whole tree keeps them. Defaults are parsed into the Matrix."""

EVIDENCE = frozenset({"source", "support_source", "basis", "note"})
"""Columns of tables that say how a row is known. Pages and curators read them; judging does not."""


_STORED = Matrix._fields.index("atlas")
"""The number of fields of the Matrix in this JSON; the atlas has a separate file."""


def slim(known: Matrix) -> Matrix:
    """Return the matrix with only the tables and columns that judging reads."""
    tables = {
        name: [{key: value for key, value in row.items() if key not in EVIDENCE} for row in rows]
        for name, rows in known.tables.items()
        if name not in LARGE_TABLES
    }
    return known._replace(tables=Tables(tables))


# --- Matrix → JSON ----------------------------------------------------------------------------------


def freeze_matrix(known: Matrix) -> list[Any]:
    """Return the slim matrix as JSON-ready lists, with every clause already parsed.

    The distinct comparisons come first, and clauses refer to them by number; then the distinct clauses, to
    which rules and defaults refer, because more than half of both are repetitions.
    """
    import json

    numbers: dict[Clause, int] = {}

    def numbered(table: When) -> Any:
        return [numbers.setdefault(clause, len(numbers)) for clause in table]

    rules = [
        rule._replace(when=tuple(map(numbered, rule.when)), require=numbered(rule.require))
        for rule in known.rules
    ]
    defaults = [default._replace(when=numbered(default.when)) for default in known.defaults]
    small = slim(known)._replace(rules=tuple(rules), defaults=tuple(defaults))[:_STORED]
    comparisons, clauses = _numbered_comparisons(numbers)
    # JSON writes a named tuple as a list; `_jsonable` writes an enumeration as its value.
    frozen: list[Any] = json.loads(json.dumps([comparisons, clauses, *small], default=_jsonable))
    return frozen


def _numbered_comparisons(clauses: Iterable[Clause]) -> tuple[list[Comparison], list[Any]]:
    """Return the distinct comparisons, and the clauses with their numbers in place of comparisons."""
    numbers: dict[tuple[type, Comparison], int] = {}  # True is no 1, although they are equal
    comparisons: list[Comparison] = []

    def number(comparison: Comparison) -> int:
        found = numbers.setdefault((type(comparison.operand), comparison), len(comparisons))
        if found == len(comparisons):
            comparisons.append(comparison)
        return found

    numbered = [
        [clause.key, clause.kind, [list(map(number, each)) for each in clause.any_of], clause.raw]
        for clause in clauses
    ]
    return comparisons, numbered


def _jsonable(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value.value


def freeze_vocabulary(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the declared keys as JSON-ready lists, in their order; a fact without phrases has none."""
    return {
        name: [key.kind.value, key.help, list(key.words), dict(key.phrases)]
        for name, key in vocabulary.keys.items()
    }


# --- JSON → Matrix ----------------------------------------------------------------------------------


def thaw_matrix(frozen: Sequence[Any], *, errors_only: bool = False) -> Matrix:
    """Return the matrix that `freeze_matrix` wrote, without validating or parsing it again.

    With `errors_only`, return only the rules at error level: fit uses no others.
    """
    (
        comparison_rows,
        clause_rows,
        rules,
        targets,
        cells,
        defaults,
        tables,
        known_through,
        moves_with,
        updated,
        digest,
        machines,
        *_,
    ) = frozen
    comparison = [_thaw_comparison(row) for row in comparison_rows].__getitem__
    clause = [_thaw_clause(row, comparison) for row in clause_rows].__getitem__
    return Matrix(
        tuple(
            [_thaw_rule(rule, clause) for rule in rules if not errors_only or rule[1] == Severity.ERROR.value]
        ),
        {
            name: Target(
                *(row[0], row[1], tuple(row[2]), row[3], tuple(row[4]), tuple(row[5])),
                *(*row[6:9], tuple(row[9]), *row[10:]),
            )
            for name, row in targets.items()
        },
        tuple(map(Cell._make, cells)),
        tuple(
            [Default(key, value, tuple(map(clause, when)), *others) for key, value, when, *others in defaults]
        ),
        Tables(tables),
        known_through,
        {name: tuple(others) for name, others in moves_with.items()},
        updated,
        digest,
        machines,
    )


def thaw_vocabulary(frozen: Mapping[str, Sequence[Any]]) -> Vocabulary:
    """Return the vocabulary that `freeze_vocabulary` wrote."""
    return Vocabulary(
        {
            name: Key(_KINDS[kind], meaning, tuple(words), phrases)
            for name, (kind, meaning, words, phrases) in frozen.items()
        }
    )


_SEVERITIES = {severity.value: severity for severity in Severity}
_BASES = {basis.value: basis for basis in Basis}
_KINDS = {kind.value: kind for kind in Kind}


def _thaw_rule(frozen: Sequence[Any], clause: Callable[[int], Clause]) -> Rule:
    rule_id, severity, basis, title, when, require, fixes, sources, why, group, no_fixes, *others = frozen
    repeats, no_cure = others
    return Rule(
        rule_id,
        _SEVERITIES[severity],
        _BASES[basis],
        title,
        tuple([tuple(map(clause, table)) for table in when]),
        tuple(map(clause, require)),
        tuple([Fix(tuple(map(tuple, changes)), cost) for changes, cost, *_ in fixes]),
        tuple(map(Source._make, sources)),
        why,
        group,
        tuple([NoFix(tuple(map(tuple, changes)), reason, source) for changes, reason, source in no_fixes]),
        repeats,
        tuple(no_cure),
    )


def _thaw_clause(frozen: Sequence[Any], comparison: Callable[[int], Comparison]) -> Clause:
    # List comprehensions are faster than generators, and every start thaws a thousand clauses.
    key, kind, any_of, raw = frozen
    return Clause(key, _KINDS[kind], tuple([tuple(map(comparison, each)) for each in any_of]), raw)


def _thaw_comparison(frozen: Sequence[Any]) -> Comparison:
    op, operand = frozen
    return Comparison(op, Ref(*operand) if isinstance(operand, list) else operand)
