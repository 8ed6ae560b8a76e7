"""`compat/` → Matrix: rules, targets, cells and tables, with every mistake reported at once.

The texts of the TOML files become one plain tree (`gather`); files of the user's own are laid over it
(`overlaid`), and the tree becomes a Matrix (`build`). The build stores the Matrix as JSON (`freeze`), and
doctor takes it from there (`thaw`). Nothing here opens a file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from envcheck.core import versions
from envcheck.core.errors import EnvcheckError, InputError
from envcheck.core.facts import Fact, Key, Kind, Vocabulary, package_key
from envcheck.core.i18n import counted
from envcheck.core.rules import (
    ABSENT,
    OUTCOMES,
    PRESENT,
    Basis,
    Cell,
    Clause,
    Comparison,
    Default,
    Fix,
    Matrix,
    NoFix,
    Origin,
    Ref,
    Requirement,
    Rule,
    Severity,
    Source,
    Target,
    When,
)
from envcheck.rules.clauses import format_value, parse_clause, referenced_keys


class MatrixError(EnvcheckError):
    """The knowledge itself is wrong: all mistakes found, one a line, each with file and key."""

    code = 3


# --- TOML texts → one plain tree --------------------------------------------------------------------


def gather(texts: Mapping[str, str]) -> dict[str, Any]:
    """The texts of compat/*.toml as one JSON-ready tree; dates become ISO strings.

    Raises:
        MatrixError: a file is not TOML, or two files define one table's key.
    """
    import tomllib  # a compiled matrix needs none of it

    tree: dict[str, Any] = {"rule": [], "case": [], "tables": {}, "matrix": {}}
    problems: list[str] = []
    for name in sorted(texts):
        if name.startswith(("lang/", "dialects/")):
            continue  # what a report says decides nothing; what a configuration means is read apart
        try:
            parsed = _plain(tomllib.loads(texts[name]))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            problems.append(f"{name}: not TOML: {error}")
            continue
        folder = name.split("/")[0]
        if folder == "rules":
            tree["rule"] += [{**row, "file": name} for row in parsed.get("rule", [])]
        elif folder == "cases":
            tree["case"] += [{**row, "file": name} for row in parsed.get("case", [])]
        elif folder == "tables":
            for table, rows in parsed.items():
                if isinstance(rows, list):
                    tree["tables"].setdefault(table, []).extend(rows)
        else:
            tree["matrix"].update(parsed)
    if problems:
        raise MatrixError("\n".join(problems))
    tree["digest"] = digest(tree)
    return tree


def digest(tree: Mapping[str, Any]) -> str:
    """Over everything but the digest itself: `sha256:` and 64 hexadecimal digits."""
    import hashlib
    import json

    content = {key: value for key, value in tree.items() if key != "digest"}
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return value.isoformat() if hasattr(value, "isoformat") else value  # the dates and times of TOML


# --- what a user lays over it -----------------------------------------------------------------------

_LISTS = ("rule", "case", "default", "cell")
_TABLES = ("target", "machine", "known_through", "moves_with")


def parse_overlay(text: str, name: str) -> dict[str, Any]:
    """The tree of one overlay file, which holds `[[rule]]`, `[target.NAME]`, … side by side.

    Raises:
        InputError: it is not TOML, or has a key that no overlay has; one line with file and key.
    """
    import tomllib

    try:
        parsed: dict[str, Any] = _plain(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise InputError(name, f"not TOML: {error}") from None
    except RecursionError:
        raise InputError(name, "not TOML: nested too deeply") from None
    for key, value in parsed.items():
        if key in _LISTS:
            if not isinstance(value, list) or not all(isinstance(row, dict) for row in value):
                raise InputError(f"{name}: {key}", f"expected [[{key}]] tables")
        elif key not in _TABLES:
            known = ", ".join((*_LISTS, *_TABLES))
            raise InputError(f"{name}: {key}", f"an overlay has no such key; known are {known}")
        elif not isinstance(value, dict):
            raise InputError(f"{name}: {key}", f"expected a table, found {value!r}")
        elif key in ("target", "machine") and not all(isinstance(row, dict) for row in value.values()):
            raise InputError(f"{name}: {key}", f"expected [{key}.NAME] tables")
    return parsed


def overlaid(
    tree: Mapping[str, Any], overlay: Mapping[str, Any], name: str, named_by: str = "--matrix"
) -> dict[str, Any]:
    """The tree with an overlay's rows added, each in place of the one it names again.

    A rule, target or machine replaces its namesake (a rule with `withdrawn` thereby takes one out), a cell
    the one of the same run. Defaults go in front, for the first that holds wins. The digest covers both.
    """
    rows = {key: [{**row, "origin": name} for row in overlay.get(key, [])] for key in _LISTS}
    rows["rule"] = [{**row, "file": name} for row in rows["rule"]]
    rows["case"] = [{**row, "file": name} for row in rows["case"]]
    head = dict(tree["matrix"])
    for key in _TABLES:
        marked = {
            each: {**row, "origin": name} if key == "target" else row
            for each, row in overlay.get(key, {}).items()
        }
        head[key] = {**head.get(key, {}), **marked}
    head["cell"] = _replaced(head.get("cell", []), rows["cell"], _same_run)
    tables = {**tree["tables"], "default": [*rows["default"], *tree["tables"].get("default", [])]}
    origin = {"name": name, "named_by": named_by, "brings": _brings(tree, overlay)}
    return {
        **tree,
        "rule": _replaced(tree["rule"], rows["rule"], lambda row: row.get("id")),
        "case": _replaced(tree.get("case", []), rows["case"], lambda row: row.get("id")),
        "matrix": head,
        "tables": tables,
        "origins": [*tree.get("origins", []), origin],
        "digest": digest({"over": tree.get("digest", ""), "overlay": overlay}),
    }


def build_overlaid(
    tree: Mapping[str, Any], named: Iterable[tuple[str, str, str]], words: Vocabulary
) -> Matrix:
    """The Matrix of a tree with overlays laid over it in turn: each is (name, what named it, text).

    Raises:
        InputError: an overlay is wrong; one line with file and key, and how many mistakes more there are.
    """
    for name, named_by, text in named:
        tree = overlaid(tree, parse_overlay(text, name), name, named_by)
        _, problems = read(tree, words)
        if problems:
            first = problems[0].removeprefix(f"{name}: ")
            more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
            raise InputError(name, first + more)
    return build(tree, words)


def _replaced(
    rows: Iterable[dict[str, Any]], others: list[dict[str, Any]], same: Callable[[dict[str, Any]], Any]
) -> list[dict[str, Any]]:
    again = [same(row) for row in others]
    return [*(row for row in rows if same(row) not in again), *others]


def _same_run(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return (
        row.get("target"),
        row.get("pkg"),
        row.get("train", {}),
        row.get("device"),
        row.get("test"),
        row.get("ranks"),
    )


def _brings(tree: Mapping[str, Any], overlay: Mapping[str, Any]) -> str:
    """`2 rules, 1 target; in place of rule a-rule`: what an overlay adds and overrides, for people."""
    parts = [
        counted(len(overlay[key]), key.replace("_", " "))
        for key in ("rule", "target", "cell", "machine", "default")
        if overlay.get(key)
    ]
    ids = {row.get("id") for row in tree["rule"]}
    again = [f"rule {row.get('id')}" for row in overlay.get("rule", []) if row.get("id") in ids]
    for key in ("target", "machine"):
        again += [f"{key} {each}" for each in overlay.get(key, {}) if each in tree["matrix"].get(key, {})]
    return (", ".join(parts) or "nothing") + (f"; in place of {', '.join(again)}" if again else "")


# --- the tree → Matrix ------------------------------------------------------------------------------


def build(tree: Mapping[str, Any], vocabulary: Vocabulary) -> Matrix:
    """The Matrix of a gathered tree.

    Raises:
        MatrixError: unknown keys or facts, bad bounds, missing sources; all of them at once.
    """
    matrix, problems = read(tree, vocabulary)
    if problems:
        raise MatrixError("\n".join(problems))
    return matrix


def read(tree: Mapping[str, Any], vocabulary: Vocabulary) -> tuple[Matrix, list[str]]:
    """The Matrix of the rows that can be read, and what is wrong with the others: file, key, mistake."""
    reader = _TableReader(vocabulary)
    head = tree["matrix"]
    rules = tuple(rule for row in tree["rule"] if (rule := reader.rule(row)))
    reader.unique((rule.id for rule in rules), "rule")
    defaults = tuple(row for raw in tree["tables"].get("default", []) if (row := reader.default(raw)))
    targets = {
        name: target for name, raw in head.get("target", {}).items() if (target := reader.target(name, raw))
    }
    cells = tuple(cell for raw in head.get("cell", []) if (cell := reader.cell(raw, targets)))
    matrix = Matrix(
        rules=rules,
        targets=targets,
        cells=cells,
        defaults=defaults,
        tables=tree["tables"],
        known_through=head.get("known_through", {}),
        moves_with={name: tuple(others) for name, others in head.get("moves_with", {}).items()},
        updated=head.get("updated", ""),
        digest=tree.get("digest", ""),
        machines=head.get("machine", {}),
        origins=tuple(Origin(**origin) for origin in tree.get("origins", [])),
    )
    return matrix, reader.problems


_RULE_KEYS = frozenset(
    {
        "id",
        "severity",
        "basis",
        "title",
        "why",
        "when",
        "require",
        "fix",
        "no_fix",
        "sources",
        "file",
        "origin",
    }
    | {"withdrawn", "reason"}
)


def _place(row: Mapping[str, Any], shipped: str) -> str:
    """The file a row came from: an overlay's name, or that of a shipped one."""
    return str(row.get("origin") or f"compat/{shipped}")


class _TableReader:
    """Turns rows into values and keeps every problem met on the way."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self.vocabulary = vocabulary
        self.problems: list[str] = []

    def unique(self, ids: Iterable[str], what: str) -> None:
        seen: set[str] = set()
        for each in ids:
            if each in seen:
                self.problems.append(f"{what} {each!r} is defined twice")
            seen.add(each)

    def rule(self, row: Mapping[str, Any]) -> Rule | None:
        where = f"{_place(row, row.get('file', '?'))}: rule {row.get('id', '?')!r}"
        before = len(self.problems)
        for key in row.keys() - _RULE_KEYS:
            self.problems.append(f"{where}: unknown key {key!r}")
        tables = row.get("when", {})
        tables = tables if isinstance(tables, list) else [tables]
        if not tables or not all(tables):
            self.problems.append(f"{where}: when: no clause")
        when = tuple(self.clauses(table, f"{where}: when") for table in tables)
        require = self.clauses(row.get("require", {}), f"{where}: require")
        fixes = tuple(self.fix(raw, f"{where}: fix") for raw in row.get("fix", []))
        no_fixes = tuple(self.no_fix(raw, f"{where}: no_fix") for raw in row.get("no_fix", []))
        sources = tuple(self.source(raw, where) for raw in row.get("sources", []))
        if not sources:
            self.problems.append(f"{where}: no source")
        for key in ("id", "title"):
            if not isinstance(row.get(key), str) or not row[key]:
                self.problems.append(f"{where}: {key}: missing")
        severity = self.word(row, "severity", Severity, where)
        basis = self.word(row, "basis", Basis, where)
        if severity is Severity.ERROR and basis is Basis.ISSUE:
            self.problems.append(
                f"{where}: severity: known from reports only (basis issue), so a warning at most"
            )
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
        )

    def word(self, row: Mapping[str, Any], key: str, words: Any, where: str) -> Any:
        try:
            return words(row.get(key))
        except ValueError:
            known = ", ".join(each.value for each in words)
            self.problems.append(f"{where}: {key}: expected one of {known}, found {row.get(key)!r}")
            return None

    def source(self, raw: Any, where: str) -> Source:
        if not isinstance(raw, Mapping) or not all(
            isinstance(raw.get(key), str) for key in ("url", "kind", "checked")
        ):
            self.problems.append(f"{where}: sources: expected url, kind and checked, found {raw!r}")
            return Source("", "", "")
        return Source(raw["url"], raw["kind"], raw["checked"])

    def fix(self, raw: Any, where: str) -> Fix:
        changes = self.changes(raw, where)
        return Fix(changes, raw.get("cost", "")) if changes else Fix(())

    def no_fix(self, raw: Any, where: str) -> NoFix:
        changes = self.changes(raw, where)
        if not changes:
            return NoFix((), "", "")
        for key in ("why", "source"):
            if not isinstance(raw.get(key), str) or not raw[key]:
                self.problems.append(f"{where}: {key}: missing")
        return NoFix(changes, raw.get("why", ""), raw.get("source", ""))

    def changes(self, raw: Any, where: str) -> tuple[tuple[str, str | int | bool], ...]:
        changes = raw.get("set") if isinstance(raw, Mapping) else None
        if not isinstance(changes, Mapping) or not changes:
            self.problems.append(f"{where}: expected set = {{ fact = value }}, found {raw!r}")
            return ()
        for key, value in changes.items():
            declared = self.key(key, where)
            if declared and declared.kind is Kind.VERSION:
                self.version_fix(value, f"{where}: {key}")
        return tuple(changes.items())

    def version_fix(self, value: Any, where: str) -> None:
        if isinstance(value, str) and value.startswith((">={", "=={")):
            return
        try:
            bounds = versions.parse_specifier(value)
        except (ValueError, TypeError, AttributeError) as error:
            self.problems.append(f"{where}: {error}")
            return
        if not any(bound.op in (">=", "==") for bound in bounds):
            self.problems.append(f"{where}: {value!r} names no release to try; give a lower bound")

    def key(self, key: str, where: str) -> Key | None:
        declared = self.vocabulary.get(key)
        if declared is None:
            nearest = self.vocabulary.nearest(key)
            hint = f"; did you mean {nearest!r}?" if nearest else ""
            self.problems.append(f"{where}: no such fact {key!r}{hint}")
        return declared

    def clauses(self, table: Any, where: str) -> When:
        if not isinstance(table, Mapping):
            self.problems.append(f"{where}: expected a table of clauses, found {table!r}")
            return ()
        found = []
        for key, raw in table.items():
            declared = self.key(key, where)
            if declared is None:
                continue
            try:
                found.append(parse_clause(key, declared, raw))
            except ValueError as error:
                self.problems.append(f"{where}: {key}: {error}")
                continue
            for name in referenced_keys(found[-1]):
                self.key(name, f"{where}: {key}")
        return tuple(found)

    def default(self, raw: Mapping[str, Any]) -> Default | None:
        where = f"{_place(raw, 'tables')}: default {raw.get('key', '?')!r}"
        before = len(self.problems)
        self.key(raw.get("key", ""), where)
        when = self.clauses(raw.get("when", {}), where)
        if "value" not in raw or not raw.get("source"):
            self.problems.append(f"{where}: value and source are needed")
        if len(self.problems) > before:
            return None
        return Default(raw["key"], raw["value"], when, raw["source"])

    def target(self, name: str, raw: Mapping[str, Any]) -> Target | None:
        where = f"{_place(raw, 'matrix.toml')}: target {name!r}"
        train = {f"train.{key}": value for key, value in raw.get("train", {}).items()}
        before = len(self.problems)
        for key in (*train, *(f"train.{free}" for free in raw.get("free", []))):
            self.key(key, where)
        if not raw.get("title") or not raw.get("packages"):
            self.problems.append(f"{where}: title and packages are needed")
        if len(self.problems) > before:
            return None
        return Target(
            name=name,
            title=raw["title"],
            packages=tuple(raw["packages"]),
            train=train,
            free=tuple(f"train.{free}" for free in raw.get("free", [])),
            build=tuple(raw.get("build", [])),
            note=raw.get("note", ""),
        )

    def cell(self, raw: Mapping[str, Any], targets: Mapping[str, Target]) -> Cell | None:
        where = f"{_place(raw, 'matrix.toml')}: cell of {raw.get('target', '?')!r}"
        missing = [key for key in ("target", "outcome", "pkg", "device", "date", "test") if key not in raw]
        if missing or raw["target"] not in targets or raw["outcome"] not in OUTCOMES:
            self.problems.append(
                f"{where}: needs a known target, an outcome ({', '.join(OUTCOMES)}), pkg, device, date, test"
            )
            return None
        train = {f"train.{key}": value for key, value in raw.get("train", {}).items()}
        return Cell(
            raw["target"],
            raw["outcome"],
            raw["pkg"],
            raw["device"],
            raw["date"],
            raw["test"],
            raw.get("rule", ""),
            train,
        )


# --- Matrix ↔ JSON ----------------------------------------------------------------------------------

LOG_TABLES = frozenset({"trigger", "progress", "log_prefix", "log_fact", "log_listing", "log_command"})
"""How logs are read; the logs of the tests are their evidence."""

LARGE_TABLES = LOG_TABLES | frozenset(
    {"default", "release", "import_run", "peft_transformers"}
    | {"flash_attn_name", "flash_attn_cuda", "flash_attn_wheel", "flash_attn_trap"}
    | {"bitsandbytes_choice", "bitsandbytes_cuda", "bitsandbytes_code"}
    | {"xformers_build", "deepspeed_toolkit", "torchao_torch"}
    | {"decoder", "tower", "activation", "optimizer"}
    | {"alike"}
)
"""Tables that judging does without (defaults are parsed already); the whole tree keeps them."""

EVIDENCE = frozenset({"source", "support_source", "basis", "note"})
"""Columns of tables that say how a row is known: for curators and pages, not for judging."""


def slim(known: Matrix) -> Matrix:
    """The matrix with no more of its tables than judging looks at."""
    tables = {
        name: [{key: value for key, value in row.items() if key not in EVIDENCE} for row in rows]
        for name, rows in known.tables.items()
        if name not in LARGE_TABLES
    }
    return known._replace(tables=tables)


def freeze(known: Matrix) -> list[Any]:
    """The matrix as JSON-ready lists: what judging needs, with every clause parsed already.

    Clauses stand once, in front, and rules and defaults name them by number: half of all are repeated.
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
    small = slim(known)._replace(rules=tuple(rules), defaults=tuple(defaults))
    # Named tuples are lists to JSON, and enumerations their words.
    frozen: list[Any] = json.loads(json.dumps([list(numbers), *small], default=_jsonable))
    return frozen


def _jsonable(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value.value


def thaw(frozen: Sequence[Any], *, errors_only: bool = False) -> Matrix:
    """The matrix that was frozen: no validation, no parsing, for that was done when it was built.

    With `errors_only` the other rules are left out, for pin, which would not ask them.
    """
    (
        pool,
        rules,
        targets,
        cells,
        defaults,
        tables,
        known_through,
        moves_with,
        updated,
        digest_of,
        machines,
        _,
    ) = frozen
    clause = [_thaw_clause(*each) for each in pool].__getitem__
    return Matrix(
        tuple(
            [_thaw_rule(rule, clause) for rule in rules if not errors_only or rule[1] == Severity.ERROR.value]
        ),
        {
            name: Target(each[0], each[1], tuple(each[2]), each[3], tuple(each[4]), tuple(each[5]), each[6])
            for name, each in targets.items()
        },
        tuple(map(Cell._make, cells)),
        tuple(
            [Default(key, value, tuple(map(clause, when)), source) for key, value, when, source in defaults]
        ),
        tables,
        known_through,
        {name: tuple(others) for name, others in moves_with.items()},
        updated,
        digest_of,
        machines,
    )


_SEVERITIES = {each.value: each for each in Severity}
_BASES = {each.value: each for each in Basis}
_KINDS = {each.value: each for each in Kind}


def _thaw_rule(frozen: Sequence[Any], clause: Callable[[int], Clause]) -> Rule:
    rule_id, severity, basis, title, when, require, fixes, sources, why, group, no_fixes = frozen
    return Rule(
        rule_id,
        _SEVERITIES[severity],
        _BASES[basis],
        title,
        tuple([tuple(map(clause, table)) for table in when]),
        tuple(map(clause, require)),
        tuple([Fix(tuple(map(tuple, changes)), cost) for changes, cost, _ in fixes]),
        tuple(map(Source._make, sources)),
        why,
        group,
        tuple([NoFix(tuple(map(tuple, changes)), reason, source) for changes, reason, source in no_fixes]),
    )


def _thaw_clause(key: str, kind: str, any_of: Sequence[Any], raw: str) -> Clause:
    # Lists and no generators: a thousand comparisons are thawed at every start.
    return Clause(key, _KINDS[kind], tuple([tuple(map(_thaw_comparison, each)) for each in any_of]), raw)


def _thaw_comparison(frozen: Sequence[Any]) -> Comparison:
    op, operand = frozen
    return Comparison(op, Ref(*operand) if isinstance(operand, list) else operand)


# --- rules nobody wrote -----------------------------------------------------------------------------


def requirement_rules(requirements: Iterable[Requirement]) -> Iterator[Rule]:
    """Rules from installed metadata, as `pip check` sees them.

    A package may run beside what its metadata refuses, so these are warnings; what is known to break
    has a rule of its own.
    """
    for package, required, specifier, source in requirements:
        try:
            bounds = versions.parse_specifier(specifier)
        except ValueError:
            continue
        wanted = f"{required}{specifier}"
        key = package_key(required)
        need = Clause(key, Kind.VERSION, ((PRESENT, *bounds),), specifier or "present")
        yield Rule(
            id=f"requires-dist:{package}:{required}",
            severity=Severity.WARNING,
            basis=Basis.METADATA,
            title=f"{package} asks for {wanted} in its own metadata",
            when=((Clause(package_key(package), Kind.VERSION, ((PRESENT,),), "present"),),),
            require=(need,),
            sources=(Source(source, "metadata", ""),),
            group="requires-dist",
        )


def selftest_rules(facts: Mapping[str, Fact]) -> Iterator[Rule]:
    """A rule for each self-test that failed here: whatever versions promise, this was seen."""
    for key, fact in facts.items():
        if key.startswith("selftest.") and fact.value == "fail":
            name = key.removeprefix("selftest.")
            yield Rule(
                id=f"selftest:{name}",
                severity=Severity.ERROR,
                basis=Basis.MEASURED,
                title=f"the self-test {name} failed in this environment",
                when=((Clause(key, Kind.WORD, ((Comparison("==", "fail"),),), "fail"),),),
                sources=(Source(f"envcheck selftest --only {name}", "selftest", ""),),
                group="selftest",
            )


def target_rules(target: Target | None) -> Iterator[Rule]:
    """Rules a target brings: what it wants must be installed, and trained the way it says."""
    if target is None:
        return
    source = (Source(f"envcheck target {target.name}", "target", ""),)
    for name in target.packages:
        key = package_key(name)
        yield Rule(
            id=f"target:{target.name}:{name}",
            severity=Severity.ERROR,
            basis=Basis.METADATA,
            title=f"{target.name} needs {name}, which is not installed",
            when=((Clause(key, Kind.VERSION, ((ABSENT,),), "absent"),),),
            sources=source,
            group="target",
        )
    for key, value in target.train.items():
        kind = Kind.FLAG if isinstance(value, bool) else Kind.NUMBER if isinstance(value, int) else Kind.WORD
        yield Rule(
            id=f"target:{target.name}:{key}",
            severity=Severity.WARNING,
            basis=Basis.METADATA,
            title=f"the configuration is not {target.name}: {key} is another than {format_value(value)}",
            when=((Clause(key, kind, ((Comparison("!=", value),),), f"!={format_value(value)}"),),),
            sources=source,
            group="target",
        )
