"""Build the Matrix from the TOML texts of compat/, and report every mistake at once.

`gather_tree` joins the texts into one plain tree; `build_matrix` turns the tree into a Matrix. In between,
`overlay` may add a user's files to the tree. Nothing here opens a file.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from envcheck.core import versions
from envcheck.core.errors import EnvcheckError, InputError
from envcheck.core.facts import Key, Kind, Vocabulary
from envcheck.core.rules import (
    OUTCOMES,
    Basis,
    Cell,
    Default,
    Fix,
    Matrix,
    NoFix,
    Origin,
    Rule,
    Severity,
    Source,
    Target,
    When,
    uninstalls,
)
from envcheck.core.suggestions import suggestion
from envcheck.core.tables import Tables
from envcheck.knowledge import target_rows
from envcheck.rules import clauses

_Word = TypeVar("_Word", bound=enum.Enum)


class MatrixError(EnvcheckError):
    """The knowledge has mistakes. The message lists all of them, one a line, each with file and key."""

    code = 3


# --- TOML texts → one plain tree --------------------------------------------------------------------

_READ_ELSEWHERE = ("lang/", "dialects/", "atlas/", "proofs/")
"""Folders of compat/ that are not part of the tree: translations, the setting names of trainers
(`training_config`), the atlas (`knowledge.atlas`), and the records of proofs (`knowledge.proofs`)."""


def gather_tree(texts: Mapping[str, str]) -> dict[str, Any]:
    """Return the texts of compat/*.toml, by file name, as one JSON-ready tree; dates become ISO strings.

    Raises:
        MatrixError: a file is not TOML; all such files, one a line.
    """
    from envcheck.core.parsing import parse_toml  # not at module level: a compiled matrix needs no TOML

    tree: dict[str, Any] = {"rule": [], "case": [], "tables": {}, "matrix": {}}
    problems: list[str] = []
    for name in sorted(texts):
        if name.startswith(_READ_ELSEWHERE):
            continue
        try:
            parsed = plain_values(parse_toml(texts[name], name))
        except InputError as error:
            problems.append(str(error))
        else:
            _add_file(tree, name, parsed)
    if problems:
        raise MatrixError("\n".join(problems))
    tree["digest"] = tree_digest(tree)
    return tree


def _add_file(tree: dict[str, Any], name: str, parsed: Mapping[str, Any]) -> None:
    """Add one parsed file to the tree, in the place that its folder determines."""
    match name.split("/", maxsplit=1)[0]:
        case "rules":
            tree["rule"] += [{**row, "file": name} for row in parsed.get("rule", [])]
        case "cases":
            tree["case"] += [{**row, "file": name} for row in parsed.get("case", [])]
        case "tables":
            for table, rows in parsed.items():
                if isinstance(rows, list):
                    tree["tables"].setdefault(table, []).extend(rows)
        case _:
            tree["matrix"].update(parsed)


def tree_digest(tree: Mapping[str, Any]) -> str:
    """Return `sha256:` and 64 hexadecimal digits over everything in a tree but its own digest."""
    import hashlib
    import json

    content = {key: value for key, value in tree.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def plain_values(value: Any) -> Any:
    """Return a TOML value with its dates and times as ISO strings, which JSON can hold."""
    if isinstance(value, dict):
        return {key: plain_values(item) for key, item in value.items()}
    if isinstance(value, list):
        return [plain_values(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


# --- the tree → Matrix ------------------------------------------------------------------------------


def build_matrix(tree: Mapping[str, Any], vocabulary: Vocabulary) -> Matrix:
    """Return the Matrix of a gathered tree.

    Raises:
        MatrixError: unknown keys or facts, bad bounds, missing sources; all of them at once.
    """
    matrix, problems = read_matrix(tree, vocabulary)
    if problems:
        raise MatrixError("\n".join(problems))
    return matrix


def read_matrix(tree: Mapping[str, Any], vocabulary: Vocabulary) -> tuple[Matrix, list[str]]:
    """Return the Matrix of the rows that can be read, and the mistakes in the others: file, key, mistake."""
    reader = _RowReader(vocabulary)
    head = tree["matrix"]
    rules = tuple(rule for row in tree["rule"] if (rule := reader.rule(row)))
    reader.check_unique(rule.id for rule in rules)
    defaults = tuple(default for row in tree["tables"].get("default", []) if (default := reader.default(row)))
    targets = reader.targets(head.get("target", {}))
    cells = tuple(cell for row in head.get("cell", []) if (cell := reader.cell(row, targets)))
    matrix = Matrix(
        rules=rules,
        targets=targets,
        cells=cells,
        defaults=defaults,
        tables=Tables(tree["tables"]),
        known_through=head.get("known_through", {}),
        moves_with={name: tuple(others) for name, others in head.get("moves_with", {}).items()},
        updated=head.get("updated", ""),
        digest=tree.get("digest", ""),
        machines=head.get("machine", {}),
        origins=tuple(Origin(**origin) for origin in tree.get("origins", [])),
    )
    return matrix, reader.problems


_RULE_KEYS = frozenset(
    {"id", "severity", "basis", "title", "why", "when", "require", "fix", "no_fix", "sources"}
    | {"withdrawn", "reason", "proof", "trainers", "repeats", "no_cure"}
    | {"file", "origin"}  # added by `gather_tree` and `overlay`, not written in the row
)


def _row_file(row: Mapping[str, Any], shipped: str) -> str:
    """Return the file that holds a row: an overlay's name, or `compat/` and the shipped file's name."""
    return str(row.get("origin") or f"compat/{shipped}")


class _RowReader:
    """Turns rows of the tree into values, and collects every problem instead of stopping at the first.

    A method that returns None (or an empty placeholder) has added a problem, or has found a withdrawn rule.
    """

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.problems: list[str] = []

    def check_unique(self, rule_ids: Iterable[str]) -> None:
        seen: set[str] = set()
        for rule_id in rule_ids:
            if rule_id in seen:
                self.problems.append(f"rule {rule_id!r} is defined twice")
            seen.add(rule_id)

    # --- a rule and its parts

    def rule(self, row: Mapping[str, Any]) -> Rule | None:
        where = f"{_row_file(row, row.get('file', '?'))}: rule {row.get('id', '?')!r}"
        before = len(self.problems)
        for key in sorted(row.keys() - _RULE_KEYS):
            self.problems.append(f"{where}: unknown key {key!r}")
        when = self._alternatives(row.get("when", {}), f"{where}: when")
        require = self._clauses(row.get("require", {}), f"{where}: require")
        fixes = tuple(self._fix(raw, f"{where}: fix") for raw in row.get("fix", []))
        no_fixes = tuple(self._no_fix(raw, f"{where}: no_fix") for raw in row.get("no_fix", []))
        sources = tuple(self._source(raw, where) for raw in row.get("sources", []))
        if not sources:
            self.problems.append(f"{where}: no source")
        self._check_texts(row, ("id", "title"), where)
        severity, basis = self._severity_and_basis(row, where)
        if len(self.problems) > before or severity is None or basis is None or "withdrawn" in row:
            return None
        return Rule(
            id=row["id"],
            severity=severity,
            basis=basis,
            title=row["title"],
            when=when,
            require=require,
            fixes=fixes,
            sources=sources,
            why=row.get("why", ""),
            group=row.get("origin") or str(row.get("file", "")).removeprefix("rules/").removesuffix(".toml"),
            no_fixes=no_fixes,
            repeats=row.get("repeats", ""),
            no_cure=tuple(row.get("no_cure", ())),
        )

    def _alternatives(self, raw: Any, where: str) -> tuple[When, ...]:
        """Return the `when` tables of a rule, which holds one table or a list of them."""
        tables = raw if isinstance(raw, list) else [raw]
        if not tables or not all(tables):
            self.problems.append(f"{where}: no clause")
        return tuple(self._clauses(table, where) for table in tables)

    def _severity_and_basis(self, row: Mapping[str, Any], where: str) -> tuple[Severity | None, Basis | None]:
        severity = self._word(row, "severity", Severity, where)
        basis = self._word(row, "basis", Basis, where)
        if severity is Severity.ERROR and basis is Basis.ISSUE:
            self.problems.append(
                f"{where}: severity: expected at most a warning for basis issue (reports only); found error"
            )
        return severity, basis

    def _word(self, row: Mapping[str, Any], key: str, words: type[_Word], where: str) -> _Word | None:
        try:
            return words(row.get(key))
        except ValueError:
            known = ", ".join(word.value for word in words)
            self.problems.append(f"{where}: {key}: expected one of {known}; found {row.get(key)!r}")
            return None

    def _check_texts(self, row: Mapping[str, Any], keys: Iterable[str], where: str) -> None:
        for key in keys:
            if not isinstance(row.get(key), str) or not row[key]:
                self.problems.append(f"{where}: {key}: missing")

    def _source(self, raw: Any, where: str) -> Source:
        if not isinstance(raw, Mapping) or not all(
            isinstance(raw.get(key), str) for key in ("url", "kind", "checked")
        ):
            self.problems.append(f"{where}: sources: expected url, kind and checked; found {raw!r}")
            return Source("", "", "")
        return Source(raw["url"], raw["kind"], raw["checked"])

    def _fix(self, raw: Any, where: str) -> Fix:
        changes = self._changes(raw, where)
        return Fix(changes, raw.get("cost", "")) if changes else Fix(())

    def _no_fix(self, raw: Any, where: str) -> NoFix:
        changes = self._changes(raw, where)
        if not changes:
            return NoFix((), "", "")
        self._check_texts(raw, ("why", "source"), where)
        return NoFix(changes, raw.get("why", ""), raw.get("source", ""))

    def _changes(self, raw: Any, where: str) -> tuple[tuple[str, str | int | bool], ...]:
        changes = raw.get("set") if isinstance(raw, Mapping) else None
        if not isinstance(changes, Mapping) or not changes:
            self.problems.append(f"{where}: expected set = {{ fact = value }}; found {raw!r}")
            return ()
        for key, value in changes.items():
            declared = self._key(key, where)
            if declared and declared.kind is Kind.VERSION and not uninstalls(key, value):
                self._check_version_fix(value, f"{where}: {key}")
        return tuple(changes.items())

    def _check_version_fix(self, value: Any, where: str) -> None:
        if isinstance(value, str) and value.startswith((">={", "=={")):
            return
        try:
            bounds = versions.parse_specifier(value)
        except (ValueError, TypeError, AttributeError) as error:
            self.problems.append(f"{where}: {error}")
            return
        if not any(bound.op in (">=", "==") for bound in bounds):
            self.problems.append(
                f"{where}: expected a lower bound, which names the release to try; found {value!r}"
            )

    # --- facts and clauses

    def _key(self, key: str, where: str) -> Key | None:
        declared = self.vocabulary.get(key)
        if declared is None:
            nearest = self.vocabulary.nearest(key)
            hint = f"; did you mean {nearest!r}?" if nearest else ""
            self.problems.append(f"{where}: no such fact {key!r}{hint}")
        return declared

    def _clauses(self, table: Any, where: str) -> When:
        if not isinstance(table, Mapping):
            self.problems.append(f"{where}: expected a table of clauses; found {table!r}")
            return ()
        found = []
        for key, raw in table.items():
            declared = self._key(key, where)
            if declared is None:
                continue
            try:
                clause = clauses.parse_clause(key, declared, raw)
            except ValueError as error:
                self.problems.append(f"{where}: {key}: {error}")
                continue
            found.append(clause)
            for name in clauses.referenced_keys(clause):
                self._key(name, f"{where}: {key}")
        return tuple(found)

    # --- rows of other tables

    def default(self, row: Mapping[str, Any]) -> Default | None:
        where = f"{_row_file(row, 'tables')}: default {row.get('key', '?')!r}"
        before = len(self.problems)
        self._key(row.get("key", ""), where)
        when = self._clauses(row.get("when", {}), where)
        if "value" not in row or not row.get("source"):
            self.problems.append(f"{where}: value and source are needed")
        if len(self.problems) > before:
            return None
        return Default(row["key"], row["value"], when, row["source"], row.get("replaces"))

    def targets(self, rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Target]:
        """Return the targets whose rows can be read, each with what the target it extends gives."""
        read = {name: self.target(name, target_rows.extended(rows, name)) for name in rows}
        found = {name: target for name, target in read.items() if target is not None}
        for name, target in found.items():
            if target.server and target.server not in rows:
                where = f"{_row_file(rows[name], 'matrix.toml')}: target {name!r}"
                self.problems.append(f"{where}: server: no such target{suggestion(target.server, [*rows])}")
        return found

    def target(self, name: str, row: Mapping[str, Any]) -> Target | None:
        where = f"{_row_file(row, 'matrix.toml')}: target {name!r}"
        before = len(self.problems)
        self.problems += [f"{where}: {problem}" for problem in target_rows.problems(name, row)]
        if len(self.problems) > before:
            return None
        train = {f"train.{key}": value for key, value in row.get("train", {}).items()}
        free = tuple(f"train.{key}" for key in row.get("free", []))
        for key in (*train, *free):
            self._key(key, where)
        if not row.get("title") or not row.get("packages"):
            self.problems.append(f"{where}: title and packages are needed")
        if len(self.problems) > before:
            return None
        return Target(
            name=name,
            title=row["title"],
            packages=tuple(row["packages"]),
            train=train,
            free=free,
            build=tuple(row.get("build", [])),
            note=row.get("note", ""),
            group=row.get("group", ""),
            purpose=row.get("for", ""),
            extras=tuple(row.get("extras", [])),
            conflicts=row.get("conflicts", {}),
            server=row.get("server", ""),
            extends=row.get("extends", ""),
            bounds=row.get("bounds", {}),
            lacks=row.get("lacks", {}),
        )

    def cell(self, row: Mapping[str, Any], targets: Mapping[str, Target]) -> Cell | None:
        where = f"{_row_file(row, 'matrix.toml')}: cell of {row.get('target', '?')!r}"
        missing = [key for key in ("target", "outcome", "pkg", "device", "date", "test") if key not in row]
        if missing or row["target"] not in targets or row["outcome"] not in OUTCOMES:
            self.problems.append(
                f"{where}: needs a known target, an outcome ({', '.join(OUTCOMES)}), pkg, device, date, test"
            )
            return None
        return Cell(
            target=row["target"],
            outcome=row["outcome"],
            pkg=row["pkg"],
            device=row["device"],
            date=row["date"],
            test=row["test"],
            rule=row.get("rule", ""),
            train={f"train.{key}": value for key, value in row.get("train", {}).items()},
        )
