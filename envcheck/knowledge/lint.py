"""The curator's second pair of eyes: everything that is wrong with compat/, at once, with file and line.

Pure: takes the texts of the files and today's date. The loader's own complaints come first; then what
only shows when rules, cases, cells and tables are held against one another. Rules are tried on the
judge itself, so nothing here has its own idea of what a rule means.
"""

from __future__ import annotations

import datetime as dt
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from envcheck.core import facts_file, versions
from envcheck.core.errors import InputError
from envcheck.core.facts import (
    Absent,
    Fact,
    Inventory,
    Key,
    Kind,
    Known,
    Tri,
    Value,
    Vocabulary,
    of_device,
    package_key,
    package_name,
)
from envcheck.core.findings import Verdict
from envcheck.core.i18n import counted
from envcheck.core.rules import Clause, Default, Fix, NoFix, Ref, Rule, Severity, When
from envcheck.core.toml_locations import Places, TomlRow, places
from envcheck.knowledge import log_signatures
from envcheck.knowledge.load import MatrixError, gather_tree, read_matrix
from envcheck.rules import clause_algebra, derive, judge

STALE_DAYS = 180
"""A source nobody has looked at for half a year may have been closed, fixed or moved."""

NARROW_GAP = 2
"""A hole of at most so many releases between two ranges looks like a slip, a wider one like knowledge."""


class LintProblem(NamedTuple):
    """One mistake: `file:line`, what it is about, what is wrong. A note is worth a look and shuts nothing."""

    kind: str
    file: str
    line: int
    id: str
    message: str
    note: bool = False


def rendered(problems: Sequence[LintProblem], folder: str = "compat") -> str:
    """The problems, one a line, and their count."""
    rows = [
        f"{folder}/{each.file}:{each.line}: {'note' if each.note else 'error'}: "
        f"{f'{each.id}: ' if each.id else ''}{each.message} [{each.kind}]\n"
        for each in problems
    ]
    errors = sum(not each.note for each in problems)
    return "".join(rows) + f"{counted(errors, 'error')}, {counted(len(problems) - errors, 'note')}\n"


def lint(
    texts: Mapping[str, str],
    vocabulary: Vocabulary,
    today: dt.date,
    newer: Mapping[str, Sequence[str]] | None = None,
) -> list[LintProblem]:
    """Everything that is wrong, by file and line.

    `texts` are the files of compat/ by their names in it. `newer` are releases that an index shows beyond
    what is known, by package.
    """
    tree, readable, problems = _readable(texts)
    book = _Book(tree, readable, vocabulary, today)
    for check in _CHECKS:
        problems += check(book)
    problems += _beyond(book, newer or {})
    return sorted(set(problems), key=lambda each: (each.file, each.line, each.note, each.id, each.message))


def beyond(known_through: Mapping[str, str], published: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Published final releases newer than what is known, oldest first, for the packages that have any."""
    found = {}
    for name, through in known_through.items():
        newer = {
            version
            for version in published.get(name, ())
            if (parsed := versions.parse(version))
            and not parsed.is_prerelease
            and versions.order(version) > versions.order(through)
        }
        if newer:
            found[name] = sorted(newer, key=versions.order)
    return found


def _readable(texts: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, str], list[LintProblem]]:
    """The gathered tree of the files that are TOML, their texts, and a problem for each that is not."""
    import tomllib

    try:
        return gather_tree(texts), dict(texts), []
    except MatrixError:
        good, problems = {}, []
    for name, text in texts.items():
        try:
            tomllib.loads(text)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            line = re.search(r"line (\d+)", str(error))
            problems.append(LintProblem("toml", name, int(line[1]) if line else 1, "", f"not TOML: {error}"))
        else:
            good[name] = text
    return gather_tree(good), good, problems


class _Book:
    """What every check reads: the rows as written with their places, and the Matrix of those that load."""

    def __init__(
        self, tree: Mapping[str, Any], texts: Mapping[str, str], vocabulary: Vocabulary, today: dt.date
    ) -> None:
        self.vocabulary = vocabulary
        self.today = today
        self._can_hold: dict[Clause, bool] = {}
        self.tree = tree
        self.known, self.unreadable = read_matrix(self.tree, vocabulary)
        self.places: Places = places(texts)
        self.rule_rows = list(zip(self.tree["rule"], self._rows("rule", len(self.tree["rule"])), strict=True))
        self.case_rows = list(zip(self.tree["case"], self._rows("case", len(self.tree["case"])), strict=True))
        self.at = {row.get("id"): place for row, place in reversed(self.rule_rows)}

    def _rows(self, kind: str, count: int) -> list[TomlRow]:
        return [self.places.row(kind, number) for number in range(count)]

    def rule_problem(
        self, kind: str, rule: Rule, message: str, line: int = 0, *, note: bool = False
    ) -> LintProblem:
        """A problem of a rule that loads, at a line of its own or at its id."""
        place = self.at[rule.id]
        return LintProblem(kind, place.file, line or place.line, rule.id, message, note)

    def declared(self, key: str) -> Key | None:
        """What a fact means."""
        return self.vocabulary.get(key)

    @cached_property
    def loaded(self) -> list[tuple[dict[str, Any], TomlRow, Inventory | InputError]]:
        """Every case with its facts, or with why they cannot be read."""
        found: list[tuple[dict[str, Any], TomlRow, Inventory | InputError]] = []
        for row, place in self.case_rows:
            try:
                found.append((row, place, facts_file.load(row.get("facts", {}), "facts", self.vocabulary)))
            except InputError as error:
                found.append((row, place, error))
        return found

    @cached_property
    def cases(self) -> list[tuple[dict[str, Any], TomlRow, Inventory]]:
        """The cases whose facts can be read."""
        return [(row, place, read) for row, place, read in self.loaded if isinstance(read, Inventory)]

    @cached_property
    def broken_cases(self) -> dict[str, list[tuple[dict[str, Any], TomlRow, Inventory]]]:
        """The cases in which a rule must be broken, by rule."""
        found = defaultdict(list)
        for row, place, read in self.cases:
            if row.get("expect") == "broken":
                found[row.get("rule", "")].append((row, place, read))
        return found

    @cached_property
    def errors(self) -> list[Rule]:
        """The rules of error level."""
        return [rule for rule in self.known.rules if rule.severity is Severity.ERROR]

    @cached_property
    def releases(self) -> dict[str, list[str]]:
        """The releases of every package in the tables, oldest first."""
        found: dict[str, list[str]] = defaultdict(list)
        for row in self.known.tables.get("release", []):
            found[row["package"]].append(str(row["version"]))
        found["torch"] += [str(row["version"]) for row in self.known.tables.get("torch", [])]
        return {name: sorted(each, key=versions.order) for name, each in found.items()}

    def releases_of(self, key: str) -> list[str]:
        """The releases of the package a `pkg.NAME` key is about; none if the tables have none."""
        return self.releases.get(package_name(key), []) if key.startswith("pkg.") else []

    def can_hold(self, clause: Clause) -> bool:
        """Whether anything satisfies the clause."""
        if clause not in self._can_hold:
            self._can_hold[clause] = clause_algebra.can_hold(clause, self.declared(clause.key))
        return self._can_hold[clause]

    def broken(self, read: Inventory, rules: Iterable[Rule]) -> set[str]:
        """Ids of the rules the judge calls broken.

        Deriving is what costs, and a rule decided without it stays decided: only the others wait for it.
        """
        first = judge.judge(read, rules)
        found = {each.rule.id for each in first.findings if each.verdict is Verdict.BROKEN}
        open_ = [each.rule for each in first.findings if each.verdict is Verdict.UNDECIDED]
        open_ += [each.rule for each in first.waiting]
        if open_:
            settled = judge.judge(derive.derive(read, self.known), open_)
            found |= {each.rule.id for each in settled.findings if each.verdict is Verdict.BROKEN}
        return found


# --- what the loader says, with a line --------------------------------------------------------------

_COMPLAINT = re.compile(
    r"compat/(?P<file>[^:]+): (?P<kind>rule|default|target|cell of) '(?P<id>[^']*)': (?P<what>.*)"
)


def _loader(book: _Book) -> Iterator[LintProblem]:
    """What the loader refuses."""
    for text in book.unreadable:
        found = _COMPLAINT.match(text)
        if found is None:
            if "is defined twice" not in text:  # said below, with both places
                yield LintProblem("load", "matrix.toml", 1, "", text)
            continue
        kind, name, what = found["kind"], found["id"], found["what"]
        key = what.partition(":")[0]
        place = _place_of(book, kind, found["file"], name)
        quoted = re.search(r"'([^']+)'", what)
        line = place.at(quoted[1]) if what.startswith("unknown key") and quoted else place.at(key)
        yield LintProblem("load", place.file or found["file"], line, name, what)


def _place_of(book: _Book, kind: str, file: str, name: str) -> TomlRow:
    if kind == "rule":
        rows = (place for row, place in book.rule_rows if row["file"] == file and row.get("id", "?") == name)
        return next(rows, TomlRow(file, book.places.row("rule", 0).block))
    if kind == "target":
        return book.places.table(f"target.{name}")
    rows_of, key = ("default", "key") if kind == "default" else ("cell", "target")
    table = (
        book.tree["tables"].get("default", []) if kind == "default" else book.tree["matrix"].get("cell", [])
    )
    numbers = [number for number, row in enumerate(table) if row.get(key, "?") == name]
    # Several rows may have this key; the first that does not load alone is the one complained about.
    for number in numbers:
        tree = {"rule": [], "tables": {}, "matrix": {"target": book.tree["matrix"].get("target", {})}}
        if kind == "default":
            tree["tables"] = {"default": [table[number]]}
        else:
            tree["matrix"]["cell"] = [table[number]]  # type: ignore[index] # a tree is nested anyhow
        if read_matrix(tree, book.vocabulary)[1]:
            return book.places.row(rows_of, number)
    return book.places.row(rows_of, numbers[0] if numbers else 0)


# --- rows by themselves -----------------------------------------------------------------------------

_CASE_KEYS = frozenset(
    {"id", "expect", "rule", "title", "signature", "kind", "sources", "facts", "why", "note", "explain"}
    | {"file"}
)
_CELL_KEYS = frozenset(
    {"target", "outcome", "rule", "signature", "failed", "pkg", "python", "train", "device", "ranks"}
    | {"seconds", "date", "test", "tests", "note"}
)
_TARGET_KEYS = frozenset({"title", "packages", "train", "free", "build", "note", "configuration"})
_EXPECTATIONS = ("broken", "fine", "undecided", "signature")


def _unknown_keys(book: _Book) -> Iterator[LintProblem]:
    """Keys that nothing reads: a misspelt `rule` in a case would silently test nothing."""
    rows: list[tuple[str, Mapping[str, Any], TomlRow, frozenset[str]]] = [
        *((str(row.get("id", "")), row, place, _CASE_KEYS) for row, place in book.case_rows),
        *(
            (str(row.get("target", "")), row, book.places.row("cell", number), _CELL_KEYS)
            for number, row in enumerate(book.tree["matrix"].get("cell", []))
        ),
        *(
            (name, row, book.places.table(f"target.{name}"), _TARGET_KEYS)
            for name, row in book.tree["matrix"].get("target", {}).items()
        ),
    ]
    for name, row, place, allowed in rows:
        for key in row.keys() - allowed:
            if not key.endswith(("_zh", ".zh")) and key != "zh":
                yield LintProblem("unknown-key", place.file, place.at(key), name, f"unknown key {key!r}")


def _duplicates(book: _Book) -> Iterator[LintProblem]:
    """An id stands for one thing."""
    for what, rows in (("rule", book.rule_rows), ("case", book.case_rows)):
        first: dict[str, TomlRow] = {}
        for row, place in rows:
            name = str(row.get("id", "?"))
            if name in first:
                before = first[name]
                message = f"{what} id already used at compat/{before.file}:{before.line}"
                yield LintProblem("duplicate-id", place.file, place.line, name, message)
            first.setdefault(name, place)
            if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
                yield LintProblem("id", place.file, place.line, name, f"{what} id is not kebab-case")


def _withdrawn(book: _Book) -> Iterator[LintProblem]:
    """A rule found false stays, with the day and the reason."""
    for row, place in book.rule_rows:
        if "withdrawn" not in row:
            continue
        if _date(row["withdrawn"]) is None:
            message = f"withdrawn: expected a date, found {row['withdrawn']!r}"
            yield LintProblem("withdrawn", place.file, place.at("withdrawn"), row.get("id", ""), message)
        if not row.get("reason"):
            message = "withdrawn without a reason"
            yield LintProblem("withdrawn", place.file, place.at("withdrawn"), row.get("id", ""), message)


def _date(text: Any) -> dt.date | None:
    try:
        return dt.date.fromisoformat(str(text))
    except ValueError:
        return None


def _sources(book: _Book) -> Iterator[LintProblem]:
    """Every source has a day on which somebody looked, and not too long ago."""
    for rule in book.known.rules:
        line = book.at[rule.id].at("sources")
        for source in rule.sources:
            day = _date(source.checked)
            if day is None:
                message = f"checked: expected a date, found {source.checked!r}"
            elif day > book.today:
                message = f"checked on {day}, which is still to come"
            elif (book.today - day).days > STALE_DAYS:
                message = f"last checked on {day}, {(book.today - day).days} days ago: {source.url}"
            else:
                continue
            yield book.rule_problem("stale-source", rule, message, line)


def _target_values(book: _Book) -> Iterator[LintProblem]:
    """What a target implies are values its facts may have."""
    for name, target in book.known.targets.items():
        place = book.places.table(f"target.{name}")
        for key, value in target.train.items():
            if wrong := _misfit(book, key, value):
                yield LintProblem("target-value", place.file, place.at("train"), name, f"{key}: {wrong}")
    for number, default in enumerate(book.tree["tables"].get("default", [])):
        place = book.places.row("default", number)
        if wrong := _misfit(book, str(default.get("key", "")), default.get("value")):
            message = f"default {default.get('key')}: {wrong}"
            yield LintProblem("default-value", place.file, place.at("value"), "", message)


def _misfit(book: _Book, key: str, value: Any) -> str:
    declared = book.declared(key)
    if declared is None:
        return ""  # the loader said so
    if facts_file.as_value(value, declared.kind) is None:
        return f"{value!r} does not fit a {declared.kind.value}"
    if declared.words and str(value) not in declared.words:
        return f"{value!r} is none of {', '.join(declared.words)}"
    return ""


# --- cases ------------------------------------------------------------------------------------------


def _cases(book: _Book) -> Iterator[LintProblem]:
    """A case names a rule there is, expects something, and has facts that can be read."""
    rules = {row.get("id") for row, _ in book.rule_rows}
    withdrawn = {row.get("id") for row, _ in book.rule_rows if "withdrawn" in row}
    for row, place, read in book.loaded:
        name = str(row.get("id", ""))
        expect, rule = row.get("expect"), row.get("rule")
        if rule and rule not in rules:
            yield LintProblem("case-rule", place.file, place.at("rule"), name, f"no such rule {rule!r}")
        if rule in withdrawn and expect in ("broken", "undecided"):
            message = f"rule {rule!r} is withdrawn and can no longer be {expect}"
            yield LintProblem("case-rule", place.file, place.at("rule"), name, message)
        if expect not in _EXPECTATIONS:
            message = f"expect: expected one of {', '.join(_EXPECTATIONS)}, found {expect!r}"
            yield LintProblem("case", place.file, place.at("expect"), name, message)
        if expect in ("broken", "undecided") and not rule:
            yield LintProblem(
                "case-rule", place.file, place.line, name, f"expects {expect}, but names no rule"
            )
        if isinstance(read, InputError):
            yield LintProblem("case", place.file, place.at("facts"), name, str(read))


def _signatures(book: _Book) -> Iterator[LintProblem]:
    """A signature can be found: its texts are patterns, one of which holds a word logs are searched for."""
    words = [str(row.get("word", "")) for row in book.tree["tables"].get("trigger", [])]
    for row, place in book.case_rows:
        name, texts = str(row.get("id", "")), row.get("signature", [])
        if row.get("kind", "version") not in log_signatures.KINDS:
            message = f"kind: expected one of {', '.join(log_signatures.KINDS)}, found {row['kind']!r}"
            yield LintProblem("case", place.file, place.at("kind"), name, message)
        if not isinstance(texts, list) or not all(isinstance(each, str) and each for each in texts):
            message = f"signature: expected a list of patterns, found {texts!r}"
            yield LintProblem("signature", place.file, place.at("signature"), name, message)
            continue
        for each in texts:
            try:
                empty = re.compile(each).search("") is not None
            except re.error as error:
                message = f"signature {each!r} is no pattern: {error}"
            else:
                message = f"signature {each!r} is found in any text" if empty else ""
            if message:
                yield LintProblem("signature", place.file, place.at("signature"), name, message)
        if texts and not any(log_signatures.needs(each, words) for each in texts):
            message = (
                f"no text of the signature needs one of the words logs are searched for: {', '.join(words)}"
            )
            yield LintProblem("signature", place.file, place.at("signature"), name, message)


def _both_cases(book: _Book) -> Iterator[LintProblem]:
    """An error rule shows that it fires and that it does not fire next door."""
    expected = defaultdict(set)
    for row, _ in book.case_rows:
        expected[row.get("rule")].add(row.get("expect"))
    for rule in book.errors:
        for wanted, what in (("broken", "comes out broken"), ("fine", "is a near miss")):
            if wanted not in expected[rule.id]:
                yield book.rule_problem("case-missing", rule, f"no case that {what} (expect = {wanted!r})")


# --- rules by themselves ----------------------------------------------------------------------------


def _never_holds(book: _Book) -> Iterator[LintProblem]:
    """A rule that can never be broken says nothing, and looks as if it did."""
    for rule in book.known.rules:
        place = book.at[rule.id]
        for number, table in enumerate(rule.when):
            line = place.at("when", number)
            impossible = [clause for clause in table if not book.can_hold(clause)]
            for clause in impossible:
                message = f"can never hold: nothing is {clause.key} {clause.raw}"
                yield book.rule_problem("never-holds", rule, message, line)
            if not impossible and _contradicts_itself(book, rule, table):
                message = "can never hold: `when` already grants all that `require` asks"
                yield book.rule_problem("never-holds", rule, message, line)
            for clause in table if not impossible else ():
                if message := _between_releases(book, clause):
                    yield book.rule_problem("never-holds", rule, message, line)


def _contradicts_itself(book: _Book, rule: Rule, table: When) -> bool:
    given = {clause.key: clause for clause in table}
    return bool(rule.require) and all(
        clause.key in given and clause_algebra.implies(given[clause.key], clause, book.declared(clause.key))
        for clause in rule.require
    )


def _between_releases(book: _Book, clause: Clause) -> str:
    """What to say of a range with both ends among the releases of the tables and none of them inside."""
    released, span = book.releases_of(clause.key), clause_algebra.interval(clause)
    if not released or span is None or not (span.low and span.high):
        return ""
    if versions.order(span.low) < versions.order(released[0]):
        return ""
    if versions.order(span.high) > versions.order(released[-1]):
        return ""
    if any(clause_algebra.answer(clause, Known(each)) is not Tri.NO for each in released):
        return ""
    return f"can never hold: no release of {package_name(clause.key)} is {clause.raw}"


# --- rules against rules ----------------------------------------------------------------------------


def _same_ground(book: _Book) -> Iterator[LintProblem]:
    """Two rules for one combination contradict or repeat each other; one inside another is worth a look."""
    tables = [
        (rule, number, table, frozenset(clause.key for clause in table))
        for rule in book.known.rules
        for number, table in enumerate(rule.when)
        if all(book.can_hold(clause) for clause in table)
    ]
    for position, (rule, number, table, keys) in enumerate(tables):
        for other, _, other_table, other_keys in tables[:position]:
            if (
                rule.id == other.id
                or rule.require != other.require
                or not (keys <= other_keys or other_keys <= keys)
            ):
                continue
            declared = {key: book.declared(key) for key in keys | other_keys}
            inside = keys >= other_keys and clause_algebra.table_implies(table, other_table, declared)
            around = keys <= other_keys and clause_algebra.table_implies(other_table, table, declared)
            line = book.at[rule.id].at("when", number)
            if inside and around:
                same = _advice(rule) == _advice(other)
                message = f"the same combination as {other.id}" + ("" if same else ", with other advice")
                yield book.rule_problem("overlap", rule, message, line)
            elif inside or around:
                message = f"every combination of {(rule if inside else other).id} is one of "
                message += f"{(other if inside else rule).id} too: a user sees both"
                yield book.rule_problem("overlap", rule, message, line, note=True)


def _advice(rule: Rule) -> tuple[Any, ...]:
    return rule.severity, tuple(fix.set for fix in rule.fixes)


def _gaps(book: _Book) -> Iterator[LintProblem]:
    """Between `<0.14.1` and `>=0.14.2` of one family lies 0.14.1, which is then nobody's."""
    families: dict[Any, list[tuple[clause_algebra.Interval, Rule, int]]] = defaultdict(list)
    for rule in book.known.rules:
        for number, table in enumerate(rule.when):
            for clause in table:
                span = clause_algebra.interval(clause)
                if span is not None:
                    others = frozenset((each.key, each.raw) for each in table if each is not clause)
                    families[rule.group, clause.key, others].append((span, rule, number))
    for (_, key, _), ranges in families.items():
        yield from _gaps_between(book, key, ranges)


def _gaps_between(
    book: _Book, key: str, ranges: list[tuple[clause_algebra.Interval, Rule, int]]
) -> Iterator[LintProblem]:
    ranges = sorted(ranges, key=lambda each: versions.order(each[0].low or "0"))
    reached, owner = "", ranges[0][1]
    for (span, rule, _), (following, after, number) in pairwise(ranges):
        if span.high == "":
            return  # open to the top: nothing can lie above it
        if not reached or versions.order(span.high) > versions.order(reached):
            reached, owner = span.high, rule
        if not following.low or versions.order(following.low) <= versions.order(reached):
            continue
        hole = clause_algebra.Interval(reached, following.low)
        between = _inside(book.releases_of(key), hole)
        if between is not None and not _excused(book, key, hole, {owner.id, after.id}):
            name = package_name(key)
            what = f", and {' and '.join(between)} lies there" if between else ""
            message = (
                f"{name} >={hole.low},<{hole.high} is a gap between {owner.id} and this rule{what}; "
                "close it, or add a case inside it that is fine"
            )
            yield book.rule_problem("gap", after, message, book.at[after.id].at("when", number))


def _inside(released: Sequence[str], hole: clause_algebra.Interval) -> list[str] | None:
    """The releases in a hole; None if it is none worth a word: no release in it, or too many."""
    if not released:
        same_series = (
            versions.base_release(hole.low).split(".")[:2] == versions.base_release(hole.high).split(".")[:2]
        )
        return [] if same_series else None
    low, high = versions.order(hole.low), versions.order(hole.high)
    found = [each for each in released if low <= versions.order(each) < high]
    return found if 0 < len(found) <= NARROW_GAP else None


def _excused(book: _Book, key: str, hole: clause_algebra.Interval, rules: set[str]) -> bool:
    """Whether a case shows that all is well inside the hole."""
    low, high = versions.order(hole.low), versions.order(hole.high)
    return any(
        row.get("expect") == "fine"
        and row.get("rule") in rules
        and isinstance(version := read.known(key), str)
        and low <= versions.order(versions.base_release(version)) < high
        for row, _, read in book.cases
    )


# --- ways out ---------------------------------------------------------------------------------------


def _fixes(book: _Book) -> Iterator[LintProblem]:
    """Every way out leads out: proved on an inventory made of the rule's own `when`, or on its cases."""
    for rule in book.known.rules:
        tried, unproved = False, list(range(len(rule.fixes)))
        for example in _examples(book, rule) if unproved else ():
            tried = True
            unproved = [each for each in unproved if not _helps(book, rule, rule.fixes[each], example)]
            if not unproved:
                break
        for number in unproved if tried else ():
            message = f"fix {_shown(rule.fixes[number])} does not break the combination: still broken"
            yield book.rule_problem("fix", rule, message, book.at[rule.id].at("fix", number))
        if rule.fixes and not tried:
            message = "no example breaks it, so no fix could be tried; add a case that comes out broken"
            yield book.rule_problem("fix", rule, message, note=True)
        for number, fix in enumerate(rule.fixes):
            for message, note in _fix_versions(book, rule, fix):
                yield book.rule_problem(
                    "fix-version", rule, message, book.at[rule.id].at("fix", number), note=note
                )


def _no_fixes(book: _Book) -> Iterator[LintProblem]:
    """What is said not to help leaves the rule broken, wherever it is broken."""
    for rule in book.known.rules:
        examples = list(_examples(book, rule)) if rule.no_fixes else []
        for number, vain in enumerate(rule.no_fixes):
            line = book.at[rule.id].at("no_fix", number)
            changed = [_changes(book, rule, Fix(vain.set), example) for example in examples]
            if not examples:
                message = f"no example breaks it, so whether {_shown(vain)} helps could not be tried"
                yield book.rule_problem("no-fix", rule, message, line)
            elif any(
                changes is None
                or rule.id not in book.broken(derive.changed(example, changes, book.known), [rule])
                for example, changes in zip(examples, changed, strict=True)
            ):
                message = f"{_shown(vain)} is said not to help, but the rule is no longer broken with it"
                yield book.rule_problem("no-fix", rule, message, line)
            for message, note in _fix_versions(book, rule, Fix(vain.set)):
                if not note:  # that its bound leads back is the point
                    yield book.rule_problem("fix-version", rule, message, line)


def _shown(fix: Fix | NoFix) -> str:
    return ", ".join(
        f"{key} {str(value).lower() if isinstance(value, bool) else value}" for key, value in fix.set
    )


def _examples(book: _Book, rule: Rule) -> Iterator[Inventory]:
    """Inventories the judge calls broken by this rule."""
    for table in rule.when:
        made = _representative(book, table, rule.require)
        if made is not None and rule.id in book.broken(made, [rule]):
            yield made
    for _, _, read in book.broken_cases.get(rule.id, []):
        if rule.id in book.broken(read, [rule]):
            yield read


def _helps(book: _Book, rule: Rule, fix: Fix, example: Inventory) -> bool:
    changes = _changes(book, rule, fix, example)
    return changes is not None and rule.id not in book.broken(
        derive.changed(example, changes, book.known), [rule]
    )


def _changes(book: _Book, rule: Rule, fix: Fix, example: Inventory) -> list[tuple[str, Value]] | None:
    """What trying the fix changes in the example; None if a fact it names is not known there."""
    settled, device = example, 0 if example.devices else None
    if any(isinstance(value, str) and "{" in value for _, value in fix.set):
        settled = derive.derive(example, book.known)
        finding = next(iter(judge.judge(settled, [rule]).findings), None)
        device = judge.device_of(finding) if finding else None
    bound = judge.bind(fix, settled, device)
    return None if bound is None else [(key, judge.trial(value)) for key, value in bound.set]


def _fix_versions(book: _Book, rule: Rule, fix: Fix) -> Iterator[tuple[str, bool]]:
    """What is wrong with the versions a fix names: no such release, yanked, or a range that leads back."""
    for key, value in fix.set:
        declared = book.declared(key)
        if (
            not isinstance(value, str)
            or "{" in value
            or declared is None
            or declared.kind is not Kind.VERSION
        ):
            continue
        tried, released = str(judge.trial(value)), book.releases_of(key)
        name = package_name(key)
        if released and versions.order(tried) >= versions.order(released[0]) and not _among(tried, released):
            yield f"fix {name} {value}: there is no release {tried} in the tables", False
        if any(
            row["package"] == name
            and row.get("yanked")
            and versions.parse(row["version"]) == versions.parse(tried)
            for row in book.known.tables.get("release", [])
        ):
            yield f"fix {name} {value}: {tried} was yanked", False
        wanted = Clause(key, Kind.VERSION, (versions.parse_specifier(value),), value)
        if len(fix.set) == 1 and _leads_back(book, rule, wanted, tried):
            yield f"fix {name} {value}: the bound also admits versions that the rule forbids", True


def _among(version: str, released: Sequence[str]) -> bool:
    return any(versions.parse(each) == versions.parse(version) for each in released)


def _leads_back(book: _Book, rule: Rule, wanted: Clause, tried: str) -> bool:
    """Whether the bound of a fix meets the range of the clause it is to leave, in every table."""
    clauses = [clause for table in rule.when for clause in table if clause.key == wanted.key]
    if not clauses or any(clause_algebra.answer(clause, Known(tried)) is not Tri.NO for clause in clauses):
        return False  # the fix rests on something else
    return any(clause_algebra.meet(clause, wanted, book.declared(wanted.key)) for clause in clauses)


def _out_of_the_frying_pan(book: _Book) -> Iterator[LintProblem]:
    """A way out that breaks another error rule is none; where none is left, the user is told nothing."""
    about: dict[str, list[Rule]] = defaultdict(list)
    for rule in book.errors:
        for key in {clause.key for table in (*rule.when, rule.require) for clause in table}:
            about["" if key in derive.KEYS else key].append(rule)
    for rule in book.known.rules:
        for row, place, read in book.broken_cases.get(rule.id, []):
            left = len(rule.fixes)
            for number, fix in enumerate(rule.fixes):
                entered = _entered(book, rule, fix, read, about)
                left -= bool(entered)
                if entered:
                    message = f"fix {_shown(fix)} leads case {row['id']} into {', '.join(sorted(entered))}"
                    yield book.rule_problem(
                        "fix-enters", rule, message, book.at[rule.id].at("fix", number), note=True
                    )
            if rule.fixes and not left:
                message = f"every fix of {rule.id} breaks another error rule here: a user is told no way out"
                yield LintProblem("no-way-out", place.file, place.line, row["id"], message)


def _entered(book: _Book, rule: Rule, fix: Fix, read: Inventory, about: Mapping[str, list[Rule]]) -> set[str]:
    """Ids of error rules that a fix newly breaks in this case; only rules about what it changes can be."""
    changes = _changes(book, rule, fix, read)
    if changes is None:
        return set()
    keys = [key for key, _ in changes]
    concerned = {
        each.id: each for key in (*keys, *([""] if "pkg.torch" in keys else [])) for each in about[key]
    }
    concerned.pop(rule.id, None)
    after = book.broken(derive.changed(read, changes, book.known), concerned.values())
    return (
        after - book.broken(read, [each for each in concerned.values() if each.id in after])
        if after
        else after
    )


# --- an inventory made of a rule --------------------------------------------------------------------


def _representative(book: _Book, table: When, require: When) -> Inventory | None:
    """Facts that satisfy every clause of a table and fail what it requires; None if no sample does.

    Packages are of a release that exists where the tables know one: newest first, since a fix that helps
    the newest version concerned is the one that people are told.
    """
    facts: dict[str, Fact] = {}
    for clause in table:
        others = [each for each in require if each.key == clause.key]
        reading = _satisfying(book, clause, others, facts)
        if reading is None:
            return None
        facts[clause.key] = Fact(clause.key, reading, "made from the rule")
    for clause in require:
        if clause.key in facts:
            _spoil(clause, facts)
        else:
            reading = _failing(book, clause, facts)
            if reading is None:
                return None
            facts[clause.key] = Fact(clause.key, reading, "made from the rule")
    device = {key: fact for key, fact in facts.items() if of_device(key)}
    machine = {key: fact for key, fact in facts.items() if not of_device(key)}
    return Inventory(machine, (device,) if device else ())


def _satisfying(book: _Book, clause: Clause, unless: Sequence[Clause], facts: dict[str, Fact]) -> Any:
    if any(isinstance(test.operand, Ref) for each in clause.any_of for test in each):
        return _beside(clause, facts, holds=True)
    for reading in _choices(book, clause):
        refused = any(clause_algebra.answer(each, reading) is Tri.YES for each in unless)
        if clause_algebra.answer(clause, reading) is Tri.YES and not refused:
            return reading
    return None


def _failing(book: _Book, clause: Clause, facts: dict[str, Fact]) -> Any:
    if any(isinstance(test.operand, Ref) for each in clause.any_of for test in each):
        return _beside(clause, facts, holds=False)
    wants_it = any(test.op == "present" for each in clause.any_of for test in each)
    for reading in _choices(book, clause):
        if clause_algebra.answer(clause, reading) is Tri.NO and (wants_it or isinstance(reading, Known)):
            return reading
    return None


def _choices(book: _Book, clause: Clause) -> Iterator[Any]:
    yield from (Known(each) for each in reversed(book.releases_of(clause.key)))
    found = clause_algebra.samples([clause], book.declared(clause.key))
    yield from (each for each in found if not isinstance(each, Absent))
    yield Absent()


def _beside(clause: Clause, facts: dict[str, Fact], *, holds: bool) -> Any:
    """A version that stands to another fact's as the clause says (or does not); the other is made up too."""
    for test in clause.any_of[0]:
        if isinstance(test.operand, Ref):
            other = facts.setdefault(test.operand.key, Fact(test.operand.key, Known("500.0"), "made up"))
            for version in (str(other.value), "1.0", "9000.0"):
                if (versions.compare(version, test.op, str(other.value)) is Tri.YES) is holds:
                    return Known(version)
    return None


def _spoil(clause: Clause, facts: dict[str, Fact]) -> None:
    """Make up the fact a requirement compares with, so that what is there already does not meet it."""
    here = str(facts[clause.key].value)
    for test in clause.any_of[0]:
        if isinstance(test.operand, Ref) and test.operand.key not in facts:
            other = next(
                (each for each in ("500.0", "0.1") if versions.compare(here, test.op, each) is Tri.NO), None
            )
            if other is not None:
                facts[test.operand.key] = Fact(test.operand.key, Known(other), "made up")


# --- cells, defaults, how far things are known ------------------------------------------------------


def _cells(book: _Book) -> Iterator[LintProblem]:
    """What was run is right: a cell that trained breaks no error rule, one that failed breaks its own."""
    rules = {rule.id for rule in book.known.rules}
    written = book.tree["matrix"].get("cell", [])
    if len(written) != len(book.known.cells):
        return  # one of them does not load, which is said already; the others would get wrong lines
    for number, cell in enumerate(book.known.cells):
        place = book.places.row("cell", number)
        name = f"cell of {cell.target}"
        train = {**book.known.targets[cell.target].train, **cell.train}
        facts = [Fact(package_key(each), Known(version), "cell") for each, version in cell.pkg.items()]
        facts += [Fact(key, Known(value), "cell") for key, value in train.items()]
        python = written[number].get("python")
        facts += [Fact("python.version", Known(python), "cell")] if isinstance(python, str) else []
        read = Inventory({fact.key: fact for fact in facts}, complete=frozenset({"pkg"}))
        errors = book.broken(derive.derive(read, book.known), book.errors)
        shown = ", ".join(f"{each} {version}" for each, version in cell.pkg.items())
        if cell.outcome == "ok" and errors:
            message = f"trained on {cell.date}, but {', '.join(sorted(errors))} says it cannot: {shown}"
        elif cell.outcome == "fails" and cell.rule not in rules:
            message = f"failed, and names no rule there is ({cell.rule or 'none'}): {shown}"
        elif cell.outcome == "fails" and cell.rule not in errors:
            message = f"failed by {cell.rule}, which does not forbid it: {shown}"
        else:
            continue
        yield LintProblem("cell", place.file, place.at("pkg"), name, message)


def _defaults(book: _Book) -> Iterator[LintProblem]:
    """A default behind one that holds whenever it does is never reached."""
    written = book.tree["tables"].get("default", [])
    if len(written) != len(book.known.defaults):
        return  # as for cells
    earlier: dict[str, list[Default]] = defaultdict(list)
    for number, default in enumerate(book.known.defaults):
        place = book.places.row("default", number)
        declared = {clause.key: book.declared(clause.key) for clause in default.when}
        impossible = [each for each in default.when if not book.can_hold(each)]
        if impossible:
            message = (
                f"default {default.key} is never reached: nothing is {impossible[0].key} {impossible[0].raw}"
            )
            yield LintProblem("default-unreachable", place.file, place.at("when"), "", message)
        elif any(
            clause_algebra.table_implies(default.when, before.when, declared)
            for before in earlier[default.key]
        ):
            message = f"default {default.key} is never reached: an earlier row holds whenever this one does"
            yield LintProblem("default-unreachable", place.file, place.at("when"), "", message)
        earlier[default.key].append(default)


def _beyond(book: _Book, newer: Mapping[str, Sequence[str]]) -> Iterator[LintProblem]:
    """Releases nobody has looked at yet."""
    place = book.places.table("known_through")
    for name, found in newer.items():
        message = (
            f"known through {book.known.known_through.get(name)}, but the index has {', '.join(found[-3:])}"
        )
        yield LintProblem("known-through", place.file, place.at(name), name, message)


_CHECKS = (
    _loader,
    _unknown_keys,
    _duplicates,
    _withdrawn,
    _sources,
    _target_values,
    _cases,
    _signatures,
    _both_cases,
    _never_holds,
    _same_ground,
    _gaps,
    _fixes,
    _no_fixes,
    _out_of_the_frying_pan,
    _cells,
    _defaults,
)
