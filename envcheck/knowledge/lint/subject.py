"""What every check reads: the rows as written, with their places, and the Matrix of those that load."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from envcheck.core import facts_file, versions
from envcheck.core.errors import InputError
from envcheck.core.facts import Inventory, Key, Vocabulary, package_name
from envcheck.core.findings import Verdict
from envcheck.core.rules import Atlas, Clause, Rule, Severity, When
from envcheck.core.toml_locations import RowLocations, TomlRow, locate_rows
from envcheck.knowledge.lint.problems import LintProblem
from envcheck.knowledge.load import read_matrix
from envcheck.knowledge.tables import all_releases
from envcheck.rules import clause_algebra, derive, judge


class LintCase(NamedTuple):
    """A case as written, its place, and its facts, or why they cannot be read."""

    row: Mapping[str, Any]
    place: TomlRow
    facts: Inventory | InputError

    @property
    def id(self) -> str:
        """Return the case's id, as written; empty if there is none."""
        return str(self.row.get("id", ""))


class LintSubject:
    """Files of compat/ in the forms that checks need. Expensive forms are computed once."""

    def __init__(
        self,
        tree: Mapping[str, Any],
        texts: Mapping[str, str],
        vocabulary: Vocabulary,
        today: dt.date,
        atlas: Atlas,
    ) -> None:
        self.tree, self.vocabulary, self.today = tree, vocabulary, today
        self.texts = texts
        known, self.load_errors = read_matrix(tree, vocabulary)
        self.known = known._replace(atlas=lambda: atlas)
        self.places: RowLocations = locate_rows(texts)
        self.rule_rows = list(zip(tree["rule"], self._places("rule"), strict=True))
        self.case_rows = list(zip(tree["case"], self._places("case"), strict=True))
        self._place_of_rule: dict[Any, TomlRow] = {
            row.get("id"): place for row, place in reversed(self.rule_rows)
        }
        self._satisfiable: dict[Clause, bool] = {}

    def _places(self, kind: str) -> list[TomlRow]:
        return [self.places.row(kind, number) for number in range(len(self.tree[kind]))]

    # --- rules

    def place_of(self, rule: Rule) -> TomlRow:
        """Return the place of a rule that loads."""
        return self._place_of_rule[rule.id]

    def rule_problem(
        self, kind: str, rule: Rule, message: str, line: int = 0, *, note: bool = False
    ) -> LintProblem:
        """Return a problem of a rule that loads, at the given line or at the line of its id."""
        place = self.place_of(rule)
        return LintProblem(kind, place.file, line or place.line, rule.id, message, note)

    @cached_property
    def error_rules(self) -> list[Rule]:
        """Return the rules at error level."""
        return [rule for rule in self.known.rules if rule.severity is Severity.ERROR]

    def tables(self) -> Iterator[tuple[Rule, int, When]]:
        """Yield each `when` table with its rule and its number in the rule."""
        for rule in self.known.rules:
            for number, table in enumerate(rule.when):
                yield rule, number, table

    def broken_rules(self, facts: Inventory, rules: Iterable[Rule]) -> set[str]:
        """Return the ids of the rules that the judge finds broken.

        Deriving facts is slow, and a rule that is decided without derived facts stays decided. So only the
        undecided rules are judged with derived facts.
        """
        first = judge.judge(facts, rules)
        found = {finding.rule.id for finding in first.findings if finding.verdict is Verdict.BROKEN}
        undecided = [finding.rule for finding in first.findings if finding.verdict is Verdict.UNDECIDED]
        undecided += [waiting.rule for waiting in first.waiting]
        if undecided:
            second = judge.judge(derive.derive(facts, self.known), undecided)
            found |= {finding.rule.id for finding in second.findings if finding.verdict is Verdict.BROKEN}
        return found

    # --- cases

    @cached_property
    def cases(self) -> list[LintCase]:
        """Every case."""
        return [LintCase(row, place, self._facts_of(row)) for row, place in self.case_rows]

    def _facts_of(self, row: Mapping[str, Any]) -> Inventory | InputError:
        try:
            return facts_file.load(row.get("facts", {}), "facts", self.vocabulary)
        except InputError as error:
            return error

    @cached_property
    def readable_cases(self) -> list[tuple[LintCase, Inventory]]:
        """Return the cases whose facts can be read, with their facts."""
        return [(case, case.facts) for case in self.cases if isinstance(case.facts, Inventory)]

    @cached_property
    def broken_cases(self) -> Mapping[str, list[tuple[LintCase, Inventory]]]:
        """Return the readable cases in which a rule must come out broken, by the rule's id."""
        found = defaultdict(list)
        for case, facts in self.readable_cases:
            if case.row.get("expect") == "broken":
                found[case.row.get("rule", "")].append((case, facts))
        return found

    # --- facts and releases

    def declared(self, key: str) -> Key | None:
        """Return the declaration of a fact; None if there is no such fact."""
        return self.vocabulary.get(key)

    @cached_property
    def _releases(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = defaultdict(list)
        for release in all_releases(self.known):
            found[release.package].append(release.version)
        return {name: sorted(releases, key=versions.order) for name, releases in found.items()}

    @cached_property
    def _withdrawn(self) -> frozenset[tuple[str, str]]:
        return frozenset((row.package, row.version) for row in all_releases(self.known) if row.yanked)

    def offered_releases_of(self, key: str) -> list[str]:
        """Return the listed releases of a `pkg.NAME` key that were not yanked, oldest first."""
        name = package_name(key)
        return [version for version in self.releases_of(key) if (name, version) not in self._withdrawn]

    def releases_of(self, key: str) -> list[str]:
        """Return the listed releases of the package of a `pkg.NAME` key, oldest first; [] for other keys."""
        return self._releases.get(package_name(key), []) if key.startswith("pkg.") else []

    def satisfiable(self, clause: Clause) -> bool:
        """Return whether any value satisfies a clause."""
        if clause not in self._satisfiable:
            self._satisfiable[clause] = clause_algebra.satisfiable(clause, self.declared(clause.key))
        return self._satisfiable[clause]
