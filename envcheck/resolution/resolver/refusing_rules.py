"""The rules that may refuse a choice, and the packages and training facts on which each depends."""

from __future__ import annotations

from envcheck.core.facts import Kind, family
from envcheck.core.rules import (
    ABSENT,
    Basis,
    Clause,
    Comparison,
    Matrix,
    Rule,
    Severity,
    Source,
)
from envcheck.resolution.resolver.problem import Reason, SearchProblem
from envcheck.rules import clauses, derive

_CUDA_FOR_GPU = Rule(
    id="pin:cuda-build-for-a-gpu",
    severity=Severity.ERROR,
    basis=Basis.METADATA,
    title="this torch is built without CUDA on that platform, and the machine has a GPU",
    when=(
        (
            Clause("gpus.count", Kind.NUMBER, ((Comparison(">=", 1),),), ">=1"),
            Clause("cuda.runtime", Kind.VERSION, ((ABSENT,),), "absent"),
        ),
    ),
    sources=(Source("envcheck pin", "target", ""),),
    group="pin",
)
"""A lock for a machine with a GPU needs a torch that can use it. `doctor` only warns of one that cannot."""


def refusing_rules(problem: SearchProblem) -> list[Rule]:
    """Return the rules that may refuse a choice: those at error level, and the one that a GPU needs CUDA."""
    errors = [rule for rule in problem.known.rules if rule.severity is Severity.ERROR]
    return [*errors, _CUDA_FOR_GPU]


def reason_of(rule: Rule) -> Reason:
    """Return the reason for a refusal by a rule; for a rule from metadata, it names the two packages."""
    if rule.group == "requires-dist":
        return ("metadata", *rule.id.split(":")[1:])
    return "rule", rule.id


# --- what a rule depends on -------------------------------------------------------------------------


def scope(rule: Rule, known: Matrix) -> frozenset[str]:
    """Return the packages and training facts that may decide a rule.

    A superset would only cost time, but a missing one would make the search wrong.
    """
    return frozenset(name for key in clauses.keys_in(rule) for name in _depends_on(key, known))


def derived_from(rule: Rule, known: Matrix) -> frozenset[str]:
    """Return the packages that decide a rule through a derived fact, such as a trainer's default."""
    keys = {key for key in clauses.keys_in(rule) if family(key) != "pkg"}
    return frozenset(name for key in keys for name in _depends_on(key, known))


def depends_on_any(key: str, names: tuple[str, ...], known: Matrix) -> bool:
    """Return whether a fact may depend on any of these packages and training facts."""
    return not _depends_on(key, known).isdisjoint(names)


def _depends_on(key: str, known: Matrix, seen: frozenset[str] = frozenset()) -> set[str]:
    """Return the packages and training facts from which a fact may follow, through defaults and builds."""
    head, _, rest = key.partition(".")
    if head == "pkg":
        return {rest.partition(".")[0]}
    if head not in ("train", "training"):
        return {"torch"} if key in derive.KEYS or head == "build" else set()
    if key in seen:
        return {key}
    conditions = (clause for default in known.defaults if default.key == key for clause in default.when)
    return {key}.union(*(_depends_on(clause.key, known, seen | {key}) for clause in conditions))
