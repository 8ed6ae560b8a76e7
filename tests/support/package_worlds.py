"""Tiny sets of packages, releases and rules for tests of the resolver; their target is named `t`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envcheck.core.facts import Fact, Inventory, Known, Value
from envcheck.core.rules import UserRequirement
from envcheck.resolution.resolver import Release, SearchProblem
from tests.support.worlds import known, rule

World = Mapping[str, Sequence[str | Release]]


def problem(
    world: World,
    rules: str = "",
    *,
    train: str = "{}",
    free: Sequence[str] = (),
    head: str = "",
    python: str = "3.11",
    machine: Mapping[str, Value] | None = None,
    requirements: Sequence[UserRequirement] = (),
    tables: str = "",
) -> SearchProblem:
    """Return a search problem.

    `world` has the releases by package, as versions or `Release`s. `rules`, `head` and `tables` are TOML.
    `free` are the facts whose values the search may choose.
    """
    names = list(world)
    target = f'[target.t]\ntitle = "t"\npackages = {names}\ntrain = {train}\nfree = {list(free)}\n'
    matrix = known(rules, tables, f"{target}{head}".replace("'", '"'))
    releases = [
        each if isinstance(each, Release) else Release(name, each)
        for name, releases in world.items()
        for each in releases
    ]
    declared: dict[str, Value] = {"python.version": f"{python}.0", **(machine or {})}
    facts = {key: Fact(key, Known(value), "declared") for key, value in declared.items()}
    return SearchProblem(
        matrix,
        matrix.targets["t"],
        Inventory(facts),
        python,
        tuple(releases),
        requirements=tuple(requirements),
    )


def forbids(when: Mapping[str, str], rule_id: str, fix: str = "") -> str:
    """Return a rule that forbids a combination of packages, such as `{"a": ">=2", "b": "<9"}`."""
    table = ", ".join(f'"pkg.{name}" = "{bound}"' for name, bound in when.items())
    return rule(f"{{ {table} }}", rule_id, more=f"[[rule.fix]]\nset = {fix}" if fix else "")
