"""Checks of measured cells, of defaults, and of how far releases are known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from envcheck.core import versions
from envcheck.core.facts import Fact, Inventory, Known, package_key
from envcheck.core.rules import Cell, Default
from envcheck.knowledge.lint.problems import LintProblem
from envcheck.knowledge.lint.subject import LintSubject
from envcheck.rules import clause_algebra, derive

_MOST_RELEASES = 3
"""New releases that a message lists, the newest ones."""


def _cells(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield cells that trained but break an error rule, or that failed but do not break their own rule."""
    written = subject.tree["matrix"].get("cell", [])
    if len(written) != len(subject.known.cells):
        return  # the loader reports the cell that does not load; without it, the numbers of cells are shifted
    for number, cell in enumerate(subject.known.cells):
        if message := _cell_problem(subject, cell, written[number].get("python")):
            place = subject.places.row("cell", number)
            packages = ", ".join(f"{name} {version}" for name, version in cell.pkg.items())
            yield LintProblem(
                "cell", place.file, place.at("pkg"), f"cell of {cell.target}", f"{message}: {packages}"
            )


def _cell_problem(subject: LintSubject, cell: Cell, python: object) -> str:
    errors = subject.broken_rules(
        derive.derive(_facts_of_cell(subject, cell, python), subject.known), subject.error_rules
    )
    if cell.outcome == "ok" and errors:
        return (
            f"expected no broken error rule, because it trained on {cell.date}; "
            f"found {', '.join(sorted(errors))}"
        )
    if cell.outcome == "fails" and subject.known.rule(cell.rule) is None:
        return f"rule: expected the rule by which it failed; found {cell.rule or 'none'}"
    if cell.outcome == "fails" and cell.rule not in errors:
        return f"expected {cell.rule} to forbid what failed; found that it does not"
    return ""


def _facts_of_cell(subject: LintSubject, cell: Cell, python: object) -> Inventory:
    train = {**subject.known.targets[cell.target].train, **cell.train}
    facts = [Fact(package_key(name), Known(version), "cell") for name, version in cell.pkg.items()]
    facts += [Fact(key, Known(value), "cell") for key, value in train.items()]
    if isinstance(python, str):
        facts.append(Fact("python.version", Known(python), "cell"))
    return Inventory({fact.key: fact for fact in facts}, complete=frozenset({"pkg"}))


def _defaults(subject: LintSubject) -> Iterator[LintProblem]:
    """Yield defaults that are never reached, because an earlier row applies whenever they do."""
    written = subject.tree["tables"].get("default", [])
    if len(written) != len(subject.known.defaults):
        return  # as for cells
    earlier: dict[str, list[Default]] = defaultdict(list)
    for number, default in enumerate(subject.known.defaults):
        if reason := _never_reached(subject, default, earlier[default.key]):
            place = subject.places.row("default", number)
            message = f"default {default.key} is never reached: {reason}"
            yield LintProblem("default-unreachable", place.file, place.at("when"), "", message)
        earlier[default.key].append(default)


def _never_reached(subject: LintSubject, default: Default, earlier: Sequence[Default]) -> str:
    impossible = next((clause for clause in default.when if not subject.satisfiable(clause)), None)
    if impossible is not None:
        return f"no value satisfies {impossible.key} {impossible.raw}"
    declared = {clause.key: subject.declared(clause.key) for clause in default.when}
    if any(clause_algebra.table_implies(default.when, before.when, declared) for before in earlier):
        return "an earlier row applies whenever this one does"
    return ""


# --- releases on an index ---------------------------------------------------------------------------


def newer_releases(
    known_through: Mapping[str, str], published: Mapping[str, Iterable[str]]
) -> dict[str, list[str]]:
    """Return the published final releases after `known_through`, oldest first, by package."""
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


def unknown_releases(subject: LintSubject, newer: Mapping[str, Sequence[str]]) -> Iterator[LintProblem]:
    """Yield the packages with releases that are not in the tables yet."""
    place = subject.places.table("known_through")
    for name, releases in newer.items():
        through = subject.known.known_through.get(name)
        message = f"expected {through} as the newest release; found {', '.join(releases[-_MOST_RELEASES:])}"
        yield LintProblem("known-through", place.file, place.at(name), name, message)


CHECKS = (_cells, _defaults)
