"""Properties that hold for any input: resolver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envcheck.core.facts import Fact, Known, Value
from envcheck.knowledge.generated_rules import requirement_rules
from envcheck.resolution import resolver
from envcheck.resolution.conflicts.view import AllBut
from envcheck.resolution.resolver import Release, SearchProblem, search
from envcheck.rules import derive, judge
from envcheck.rules.requirements import check_requirements
from tests.support.package_worlds import forbids, problem
from tests.support.worlds import rule

NAMES = ("a", "b", "c", "d")


VERSIONS = ("1", "2", "3")


FLAGS = ("train.use_reentrant", "train.dora")


bounds = st.sampled_from([">=2", "<2", "==1", "==2", "==3", "!=2", ">=3", "present"])


clauses_of_packages = st.dictionaries(
    st.sampled_from([f"pkg.{name}" for name in NAMES]), bounds, min_size=1, max_size=3
)


clauses_of_training = st.dictionaries(st.sampled_from(FLAGS), st.booleans(), max_size=2)


fixes = st.lists(
    st.one_of(
        st.tuples(
            st.sampled_from([f"pkg.{name}" for name in NAMES]), st.sampled_from(["==1", "==2", ">=3", ">=2"])
        ),
        st.tuples(st.sampled_from(FLAGS), st.booleans()),
    ),
    max_size=3,
)


worlds = st.fixed_dictionaries(
    {
        "rules": st.lists(st.tuples(clauses_of_packages, clauses_of_training, fixes), max_size=9),
        "versions": st.fixed_dictionaries(
            {name: st.lists(st.sampled_from(VERSIONS), min_size=1, max_size=3, unique=True) for name in NAMES}
        ),
        "requires": st.dictionaries(
            st.tuples(st.sampled_from(NAMES), st.sampled_from(VERSIONS)),
            st.tuples(st.sampled_from(NAMES), st.sampled_from([">=2", "<3", "!=2"])),
            max_size=4,
        ),
        "default": st.sampled_from(["", ">=2", "<3"]),
        "free": st.lists(st.sampled_from(FLAGS), max_size=2, unique=True),
    }
)


def toml(value: object) -> str:
    return {True: "true", False: "false"}[value] if isinstance(value, bool) else f'"{value}"'


def random_problem(world: Mapping[str, object]) -> SearchProblem:
    text = ""
    for number, (packages, training, ways) in enumerate(world["rules"]):  # type: ignore[arg-type, var-annotated]
        table = ", ".join(f'"{key}" = {toml(value)}' for key, value in {**packages, **training}.items())
        more = "".join(f'[[rule.fix]]\nset = {{ "{key}" = {toml(value)} }}\n' for key, value in ways)
        text += rule(f"{{ {table} }}", f"rule-{number}", more=more)
    brought = ""
    if world["default"]:
        brought = (
            f'[[default]]\nkey = "train.dora"\nvalue = true\nwhen = {{ "pkg.b" = "{world["default"]}" }}\n'
        )
        brought += 'source = "s"\n'
    requires = world["requires"]
    releases = {
        name: [
            Release(
                name,
                version,
                tuple("".join(bound) for key, bound in requires.items() if key == (name, version)),  # type: ignore[attr-defined]
            )
            for version in found_versions
        ]
        for name, found_versions in world["versions"].items()  # type: ignore[attr-defined]
    }
    return problem(
        releases,
        text,
        train="{ zero_stage = 3, use_reentrant = false }",
        free=[key.removeprefix("train.") for key in world["free"]],  # type: ignore[attr-defined]
        tables=brought,
    )


def passes(asked: SearchProblem, versions: Mapping[str, str], changed: Mapping[str, Value]) -> bool:
    """Return whether the judge passes a whole choice, without using the search."""
    facts = [Fact(key, Known(value), "") for key, value in {**asked.target.train, **changed}.items()]
    facts += [Fact(f"pkg.{name}", Known(version), "") for name, version in versions.items()]
    facts += [
        Fact(f"pkg.{each.package}.requires", Known(each.requires), "")
        for each in asked.releases
        if each.requires and versions.get(each.package) == each.version
    ]
    inventory = derive.derive(asked.machine.with_facts(facts), asked.known)
    rules = [*asked.known.rules, *requirement_rules(check_requirements(inventory).unmet)]
    return not any(finding.verdict.value == "broken" for finding in judge.judge(inventory, rules).findings)


def exists_by_brute_force(asked: SearchProblem) -> bool:
    """Return whether any whole choice of versions and free facts passes the judge."""
    ways = resolver.free_values(asked, reluctant=False)
    names = asked.target.packages
    offered = [[each.version for each in asked.releases if each.package == name] for name in names]
    return any(
        passes(
            asked,
            dict(zip(names, versions, strict=True)),
            {key: value for key, value in zip(ways, values, strict=True) if value is not None},
        )
        for versions in product(*offered)
        for values in product(*((None, *each) for each in ways.values()))
    )


def check_against_brute_force(asked: SearchProblem) -> None:
    answer = resolver.solve(asked)
    assert (answer.versions is not None) == exists_by_brute_force(asked)
    if answer.versions is not None:
        assert passes(asked, answer.versions, answer.changed)
    else:
        assert resolver.solve(asked, AllBut(answer.reasons)).versions is None, "the reasons refuse everything"


@settings(max_examples=100, deadline=None)
@given(worlds)
def test_the_search_finds_what_brute_force_finds_and_the_judge_passes_it(world: Mapping[str, object]) -> None:
    check_against_brute_force(random_problem(world))


@settings(max_examples=100, deadline=None)
@given(worlds)
def test_so_does_a_search_that_compares_pairs_at_once(world: Mapping[str, object]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "NODES_BEFORE_PAIRS", 0)
        check_against_brute_force(random_problem(world))


PAIRS = [
    (one, this, other, that)
    for number, one in enumerate(NAMES)
    for other in NAMES[number + 1 :]
    for this in VERSIONS
    for that in VERSIONS
]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.booleans(), min_size=len(PAIRS), max_size=len(PAIRS)))
def test_the_search_is_right_where_half_of_all_pairs_are_forbidden(forbidden: Sequence[bool]) -> None:
    pairs = [pair for pair, bad in zip(PAIRS, forbidden, strict=True) if bad]
    rules = "".join(
        forbids({one: f"=={this}", other: f"=={that}"}, f"r-{one}{this}-{other}{that}")
        for one, this, other, that in pairs
    )
    asked = problem(dict.fromkeys(NAMES, VERSIONS), rules)
    bad = {((one, this), (other, that)) for one, this, other, that in pairs}
    whole = [
        dict(zip(NAMES, versions, strict=True)) for versions in product(reversed(VERSIONS), repeat=len(NAMES))
    ]
    fine = [each for each in whole if not any(dict(pair).items() <= each.items() for pair in bad)]
    answer = resolver.solve(asked)
    assert answer.versions == (fine[0] if fine else None), "the newest, package by package"
