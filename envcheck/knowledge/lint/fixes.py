"""Checks of fixes: each resolves its rule and breaks no other, and each `no_fix` leaves the rule broken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from envcheck.core import versions
from envcheck.core.facts import Inventory, Kind, Known, Tri, Value, package_name
from envcheck.core.rules import Clause, Fix, NoFix, Rule, uninstalls
from envcheck.knowledge.lint.examples import breaking_examples
from envcheck.knowledge.lint.problems import LintProblem
from envcheck.knowledge.lint.subject import LintCase, LintSubject
from envcheck.knowledge.tables import all_releases
from envcheck.rules import clause_algebra, derive, judge
from envcheck.rules.changes import apply_changes
from envcheck.rules.fixes import bind_fix, trial_value


def _fixes(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield fixes that resolve no example of their rule, and fixes whose versions are wrong."""
    for rule in subject.known.rules:
        if rule.fixes:
            yield from _unproved_fixes(subject, rule)
        for number, fix in enumerate(rule.fixes):
            line = subject.place_of(rule).at("fix", number)
            for message, note in _version_problems(subject, rule, fix):
                yield subject.rule_problem("fix-version", rule, message, line, note=note)


def _unproved_fixes(subject: LintSubject, rule: Rule) -> Iterator[LintProblem]:
    """Yield the fixes that resolve no example of the rule, made from its `when` or taken from its cases."""
    tried, unproved = False, list(range(len(rule.fixes)))
    for example in breaking_examples(subject, rule):
        tried = True
        unproved = [
            number for number in unproved if not _resolves(subject, rule, rule.fixes[number], example)
        ]
        if not unproved:
            return
    if not tried:
        message = (
            "expected an example that breaks the rule, to try its fixes; found none "
            "(add a case that comes out broken)"
        )
        yield subject.rule_problem("fix", rule, message, note=True)
        return
    for number in unproved:
        message = f"expected the fix {_shown(rule.fixes[number])} to help; found the rule still broken"
        yield subject.rule_problem("fix", rule, message, subject.place_of(rule).at("fix", number))


def _no_fixes(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield changes in `no_fix` that help after all, cannot be tried, or have wrong versions."""
    for rule in subject.known.rules:
        examples = list(breaking_examples(subject, rule)) if rule.no_fixes else []
        for number, no_fix in enumerate(rule.no_fixes):
            line = subject.place_of(rule).at("no_fix", number)
            if message := _no_fix_problem(subject, rule, no_fix, examples):
                yield subject.rule_problem("no-fix", rule, message, line)
            # A note says that a fix also admits versions that the rule forbids; a no_fix may do that.
            found = _version_problems(subject, rule, Fix(no_fix.set))
            messages = (message for message, note in found if not note)
            yield from (subject.rule_problem("fix-version", rule, each, line) for each in messages)


def _no_fix_problem(subject: LintSubject, rule: Rule, no_fix: NoFix, examples: Sequence[Inventory]) -> str:
    if not examples:
        return f"expected an example that breaks the rule, to try {_shown(no_fix)}; found none"
    if all(_stays_broken(subject, rule, Fix(no_fix.set), example) for example in examples):
        return ""
    return f"expected the no_fix {_shown(no_fix)} to leave the rule broken; found that it helps"


# --- trying a fix -----------------------------------------------------------------------------------


def _resolves(subject: LintSubject, rule: Rule, fix: Fix, example: Inventory) -> bool:
    changes = _changes(subject, rule, fix, example)
    return changes is not None and not _broken_after(subject, rule, changes, example)


def _stays_broken(subject: LintSubject, rule: Rule, fix: Fix, example: Inventory) -> bool:
    changes = _changes(subject, rule, fix, example)
    return changes is not None and _broken_after(subject, rule, changes, example)


def _broken_after(
    subject: LintSubject, rule: Rule, changes: Sequence[tuple[str, Value]], example: Inventory
) -> bool:
    after = apply_changes(example, changes, subject.known)
    return rule.id in subject.broken_rules(after, [rule])


def _changes(
    subject: LintSubject, rule: Rule, fix: Fix, example: Inventory
) -> list[tuple[str, Value]] | None:
    """Return what a fix changes in an example; None if it refers to a fact that is unknown there."""
    settled, device = example, 0 if example.devices else None
    if any(isinstance(value, str) and "{" in value for _, value in fix.set):
        settled = derive.derive(example, subject.known)
        finding = next(iter(judge.judge(settled, [rule]).findings), None)
        device = judge.device_of(finding) if finding else None
    bound = bind_fix(fix, settled, device)
    return None if bound is None else [(key, trial_value(value)) for key, value in bound.set]


def _shown(fix: Fix | NoFix) -> str:
    return ", ".join(
        f"{key} {str(value).lower() if isinstance(value, bool) else value}" for key, value in fix.set
    )


# --- versions in a fix ------------------------------------------------------------------------------


def _version_problems(subject: LintSubject, rule: Rule, fix: Fix) -> Iterator[tuple[str, bool]]:
    """Yield what is wrong with the versions in a fix, and whether that is only a note."""
    for key, value in fix.set:
        if (
            not isinstance(value, str)
            or "{" in value
            or not _is_version(subject, key)
            or uninstalls(key, value)
        ):
            continue
        tried, releases = str(trial_value(value)), subject.releases_of(key)
        name = package_name(key)
        listed = any(versions.parse(release) == versions.parse(tried) for release in releases)
        if releases and versions.order(tried) >= versions.order(releases[0]) and not listed:
            yield f"fix {name} {value}: expected a release in the tables; found no release {tried}", False
        if _was_yanked(subject, name, tried):
            yield (
                f"fix {name} {value}: expected a release on the index; found {tried}, which was yanked",
                False,
            )
        bound = Clause(key, Kind.VERSION, (versions.parse_specifier(value),), value)
        if len(fix.set) == 1 and _admits_forbidden(subject, rule, bound, tried):
            yield f"fix {name} {value}: the bound also admits versions that the rule forbids", True


def _is_version(subject: LintSubject, key: str) -> bool:
    declared = subject.declared(key)
    return declared is not None and declared.kind is Kind.VERSION


def _was_yanked(subject: LintSubject, name: str, version: str) -> bool:
    withdrawn = subject.known.tables.withdrawn
    return any(
        package == name and versions.parse(release) == versions.parse(version)
        for package, release in (
            *withdrawn,
            *((row.package, row.version) for row in all_releases(subject.known) if row.yanked),
        )
    )


def _admits_forbidden(subject: LintSubject, rule: Rule, bound: Clause, tried: str) -> bool:
    """Return whether the bound of a fix overlaps the range of the clause that it should leave."""
    clauses = [clause for table in rule.when for clause in table if clause.key == bound.key]
    if not clauses or any(clause_algebra.answer(clause, Known(tried)) is not Tri.NO for clause in clauses):
        return False  # the fix relies on another clause
    return any(clause_algebra.overlap(clause, bound, subject.declared(bound.key)) for clause in clauses)


# --- fixes that break another rule ------------------------------------------------------------------


def _harmful_fixes(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield fixes that break another error rule in a case, and cases in which every fix does.

    A fix that breaks another error rule is not shown to the user. One that does so in every case of its rule
    was never seen to help anybody.
    """
    rules_about = _error_rules_by_key(subject)
    for rule in subject.known.rules:
        cases = subject.broken_cases.get(rule.id, [])
        harmful: list[set[int]] = []
        for case, facts in cases:
            entered = _entered_in_case(subject, rule, facts, rules_about)
            harmful.append(set(entered))
            yield from _harm_in_case(subject, rule, case, entered)
        never_clean = set.intersection(*harmful) if harmful else set()
        if len(never_clean) == len(rule.fixes):
            continue  # each case was reported for having no way out
        for number in sorted(never_clean):
            message = (
                f"expected a case in which the fix {_shown(rule.fixes[number])} breaks no other error rule; "
                "found none (add a case, or what the fix needs)"
            )
            yield subject.rule_problem(
                "fix-unproved", rule, message, subject.place_of(rule).at("fix", number)
            )


def _entered_in_case(
    subject: LintSubject, rule: Rule, facts: Inventory, rules_about: Mapping[str, list[Rule]]
) -> Mapping[int, set[str]]:
    """Return the error rules that each fix breaks in a case, by the fix's number, where there are any."""
    found = {
        number: _newly_broken(subject, rule, fix, facts, rules_about) for number, fix in enumerate(rule.fixes)
    }
    return {number: entered for number, entered in found.items() if entered}


def _harm_in_case(
    subject: LintSubject, rule: Rule, case: LintCase, entered: Mapping[int, set[str]]
) -> Iterator[LintProblem]:
    for number, newly_broken in entered.items():
        message = (
            f"expected the fix {_shown(rule.fixes[number])} to break no other error rule; "
            f"found that in case {case.id} it breaks {', '.join(sorted(newly_broken))}"
        )
        line = subject.place_of(rule).at("fix", number)
        yield subject.rule_problem("fix-enters", rule, message, line, note=True)
    if rule.fixes and len(entered) == len(rule.fixes):
        message = (
            f"expected a fix of {rule.id} that breaks no other error rule here; found none to show a user"
        )
        yield LintProblem("no-way-out", case.place.file, case.place.line, case.id, message)


def _error_rules_by_key(subject: LintSubject) -> Mapping[str, list[Rule]]:
    """Return the error rules by the facts in their clauses; under "" those with a derived fact."""
    found: dict[str, list[Rule]] = defaultdict(list)
    for rule in subject.error_rules:
        for key in {clause.key for table in (*rule.when, rule.require) for clause in table}:
            found["" if key in derive.KEYS else key].append(rule)
    return found


def _newly_broken(
    subject: LintSubject, rule: Rule, fix: Fix, facts: Inventory, rules_about: Mapping[str, list[Rule]]
) -> set[str]:
    """Return the ids of error rules that a fix breaks; only rules about a changed fact can be among them."""
    changes = _changes(subject, rule, fix, facts)
    if changes is None:
        return set()
    keys = [key for key, _ in changes]
    if "pkg.torch" in keys:
        keys.append("")  # derived facts follow from torch
    concerned = {other.id: other for key in keys for other in rules_about.get(key, ()) if other.id != rule.id}
    after = subject.broken_rules(apply_changes(facts, changes, subject.known), concerned.values())
    if not after:
        return set()
    return after - subject.broken_rules(facts, [concerned[rule_id] for rule_id in after])


CHECKS = (_fixes, _no_fixes, _harmful_fixes)
