"""The search over tiny package worlds, with the real judge and rules from TOML; and against brute force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from envcheck.core.errors import NoSolutionError
from envcheck.core.rules import UserRequirement
from envcheck.knowledge.atlas import read_atlas
from envcheck.resolution import resolver
from envcheck.resolution.resolver import Answer, Release, search
from tests.support.package_worlds import forbids, problem
from tests.support.worlds import rule


def found(*arguments: object, **more: object) -> dict[str, str] | None:
    """Return the versions that the search chooses for such a problem, or None."""
    answer = resolver.solve(problem(*arguments, **more))  # type: ignore[arg-type]
    return dict(answer.versions) if answer.versions is not None else None


CELL = 'target = "t"\noutcome = "ok"\ndevice = "cpu"\ndate = 2026-11-20\ntest = "x"\n'


# --- the search -------------------------------------------------------------------------------------


def test_the_newest_release_of_each_package_is_taken_if_no_rule_refuses_it() -> None:
    assert found({"a": ["1", "2", "10"], "b": ["8", "9"]}) == {"a": "10", "b": "9"}


def test_a_conflict_moves_the_later_package_first() -> None:
    clash = forbids({"a": "==2", "b": "==9"}, "a-rule")
    assert found({"a": ["2", "1"], "b": ["9", "8"]}, clash) == {"a": "2", "b": "8"}


def test_the_search_backs_out_of_a_dead_end() -> None:
    clash = forbids({"a": "==2", "b": ">=8"}, "a-rule")
    assert found({"a": ["2", "1"], "b": ["9", "8"]}, clash) == {"a": "1", "b": "9"}


def test_a_dead_end_returns_to_its_cause_and_not_to_the_package_before() -> None:
    world = {"a": ["2", "1"], "b": [str(n) for n in range(200)], "c": ["5", "4"]}
    answer = resolver.solve(problem(world, forbids({"a": "==2", "c": ">=4"}, "a-rule")))
    assert answer.versions == {"a": "1", "b": "199", "c": "5"}
    assert answer.nodes < 20


def test_the_search_jumps_to_the_release_that_a_fix_names() -> None:
    world = {"a": [f"{n}.0" for n in range(300)], "b": ["9", "8"]}
    clash = forbids({"a": ">=3.0", "b": "present"}, "a-rule", '{ "pkg.a" = "==2.0" }')
    answer = resolver.solve(problem(world, clash))
    assert answer.versions == {"a": "2.0", "b": "9"}
    assert answer.nodes < 20


def test_two_rules_leave_what_neither_forbids() -> None:
    clash = forbids({"a": ">=2", "b": "<9"}, "new-a-old-b") + forbids({"a": "<3", "b": ">=9"}, "old-a-new-b")
    assert found({"a": ["2"], "b": ["9", "8"]}, clash) is None
    assert found({"a": ["2", "1"], "b": ["9", "8"]}, clash) == {"a": "1", "b": "8"}


def test_no_solution_keeps_the_reasons_that_refused() -> None:
    clash = forbids({"a": "present", "b": "==9"}, "nine") + forbids({"a": "present", "b": "==8"}, "eight")
    answer = resolver.solve(problem({"a": ["1"], "b": ["9", "8"]}, clash))
    assert answer.versions is None
    assert {("rule", "nine"), ("rule", "eight")} <= answer.reasons


def test_a_conditional_rule_binds_only_where_its_condition_matches() -> None:
    clash = rule('{ "pkg.a" = ">=2", "train.zero_stage" = 3 }')
    assert found({"a": ["2", "1"]}, clash, train="{ zero_stage = 3 }") == {"a": "1"}
    assert found({"a": ["2", "1"]}, clash, train="{ zero_stage = 2 }") == {"a": "2"}
    assert found({"a": ["2", "1"]}, clash) == {"a": "2"}, "unknown is no objection"


def test_a_default_that_a_version_brings_binds_that_version() -> None:
    brought = '[[default]]\nkey = "train.dora"\nvalue = true\nwhen = { "pkg.b" = ">=9" }\nsource = "s"'
    clash = rule('{ "pkg.a" = ">=2", "train.dora" = true }')
    world = {"a": ["2"], "b": ["9", "8"]}
    assert found(world, clash, tables=brought, train="{ zero_stage = 3 }") == {"a": "2", "b": "8"}


def test_metadata_binds_both_packages() -> None:
    world = {"a": [Release("a", "2", ("b<9",)), "1"], "b": ["9", "8"]}
    assert found(world) == {"a": "2", "b": "8"}
    assert found({"b": ["9"], "a": world["a"]}) == {"b": "9", "a": "1"}


def test_a_pre_release_is_taken_only_if_a_requirement_names_one() -> None:
    world = {"a": ["2.0rc1", "1.0"]}
    assert found(world) == {"a": "1.0"}
    assert found({"a": ["2.0rc1"]}) is None
    assert found(world, requirements=[UserRequirement("a", ">=2.0rc1", "--with")]) == {"a": "2.0rc1"}
    assert found(world, requirements=[UserRequirement("a", ">=2.0", "--with")]) is None


def test_a_local_label_is_compared_by_its_release() -> None:
    world = {"a": ["2.0+cu126", "1.0"]}
    assert found(world, forbids({"a": ">=2.0"}, "a-rule")) == {"a": "1.0"}
    assert found(world, requirements=[UserRequirement("a", "==2.0", "--with")]) == {"a": "2.0+cu126"}


def test_a_yanked_release_is_never_taken() -> None:
    world = {"a": [Release("a", "2", yanked=True), "1"]}
    assert found(world) == {"a": "1"}
    assert found(world, requirements=[UserRequirement("a", "==2", "--with")]) is None


def test_python_decides_by_wheels_where_they_are_known_and_by_metadata_where_not() -> None:
    world = {"a": [Release("a", "2", pythons=("3.12",)), Release("a", "1", requires_python=">=3.9")]}
    assert found(world, python="3.12") == {"a": "2"}
    assert found(world, python="3.11") == {"a": "1"}
    assert found(world, python="3.8") is None
    assert found({"a": [Release("a", "1", requires_python=">=3.11.4")]}) == {"a": "1"}


def test_no_release_beyond_known_through_is_taken() -> None:
    assert found({"a": ["3", "2"]}, head='[known_through]\na = "2"') == {"a": "2"}


def test_no_release_after_the_until_date_is_taken() -> None:
    asked = problem({"a": [Release("a", "2", date="2026-02-01"), Release("a", "1", date="2026-01-01")]})
    assert resolver.solve(asked._replace(until="2026-01-31")).versions == {"a": "1"}


def test_a_requirement_on_a_listed_package_adds_it() -> None:
    asked = problem({"a": ["1"]})
    asked = asked._replace(releases=(*asked.releases, Release("x", "5"), Release("x", "4", ("a<1",))))
    assert resolver.solve(asked).versions == {"a": "1"}
    wished = asked._replace(requirements=(UserRequirement("x", "", "--with x"),))
    assert resolver.solve(wished).versions == {"a": "1", "x": "5"}
    assert (
        resolver.solve(asked._replace(requirements=(UserRequirement("x", "<5", "--with x<5"),))).versions
        is None
    )


# --- measured first ---------------------------------------------------------------------------------


def test_measured_combinations_come_before_newer_releases() -> None:
    head = f'[[cell]]\n{CELL}pkg = {{ a = "1", b = "8", unrelated = "0" }}\n'
    world = {"a": ["3", "2", "1"], "b": ["9", "8"]}
    answer = resolver.solve(problem(world, head=head))
    assert (answer.versions, answer.measured) == ({"a": "1", "b": "8"}, True)
    assert found(world, forbids({"a": "==1"}, "a-rule"), head=head) == {"a": "3", "b": "9"}
    assert found(world, head=head, requirements=[UserRequirement("a", ">=2", "--with")]) == {
        "a": "3",
        "b": "9",
    }


def test_the_newest_measured_combination_comes_first_and_other_trainings_do_not_count() -> None:
    head = f'[[cell]]\n{CELL}pkg = {{ a = "1" }}\n[[cell]]\n{CELL}pkg = {{ a = "2" }}\n'
    head += f'[[cell]]\n{CELL}pkg = {{ a = "3" }}\ntrain = {{ zero_stage = 2 }}\n'
    assert found({"a": ["4", "3", "2", "1"]}, head=head, train="{ zero_stage = 3 }") == {"a": "2"}


# --- free training facts ----------------------------------------------------------------------------

REENTRANT = rule(
    '{ "pkg.a" = ">=2", "train.use_reentrant" = false }',
    more='[[rule.fix]]\nset = { "pkg.a" = "==1" }\n[[rule.fix]]\nset = { "train.use_reentrant" = true }',
)


def test_a_free_fact_is_changed_if_no_earlier_fix_is_possible() -> None:
    asked = {"train": "{ use_reentrant = false }", "free": ["use_reentrant"]}
    assert resolver.solve(problem({"a": ["2", "1"]}, REENTRANT, **asked)).changed == {}  # type: ignore[arg-type]
    answer = resolver.solve(problem({"a": ["2"]}, REENTRANT, **asked))  # type: ignore[arg-type]
    assert (answer.versions, answer.changed) == ({"a": "2"}, {"train.use_reentrant": True})


def test_a_free_fact_is_changed_if_another_rule_forbids_the_earlier_fix() -> None:
    asked = problem(
        {"a": ["2", "1"]},
        REENTRANT + forbids({"a": "<2"}, "old"),
        train="{ use_reentrant = false }",
        free=["use_reentrant"],
    )
    answer = resolver.solve(asked)
    assert (answer.versions, answer.changed) == ({"a": "2"}, {"train.use_reentrant": True})


def test_a_fact_that_is_not_free_is_never_changed() -> None:
    assert found({"a": ["2"]}, REENTRANT, train="{ use_reentrant = false }") is None


# --- objections to a completed lock -----------------------------------------------------------------


def test_an_objection_names_the_rule_the_stack_and_the_bound_for_the_backend() -> None:
    clash = forbids({"a": "<2", "numpy": ">=2.0"}, "old-a-new-numpy", '{ "pkg.numpy" = "==1.26.4" }')
    asked = problem({"a": ["1.5", "1.4"]}, clash)
    told = resolver.objections(asked, {"a": "1.5", "numpy": "2.1.0"}, {}, ["a"])
    assert [(each.rule, each.stack, each.bounds) for each in told] == [
        ("old-a-new-numpy", (("a", "1.5"),), ("numpy==1.26.4",))
    ]
    assert resolver.objections(asked, {"a": "1.5", "numpy": "1.26.4"}, {}, ["a"]) == []
    refused = asked._replace(objections=tuple(told))
    assert resolver.solve(refused).versions is None, "1.4 would meet the same numpy"
    narrow = asked._replace(objections=tuple(each._replace(wide=False) for each in told))
    assert resolver.solve(narrow).versions == {"a": "1.4"}


def test_a_lock_can_be_refused_for_a_missing_package() -> None:
    clash = rule('{ "pkg.a" = ">=2", "pkg.helper" = "absent" }')
    asked = problem({"a": ["3", "2", "1"]}, clash)
    told = resolver.objections(asked, {"a": "3"}, {}, ["a"])
    assert resolver.solve(asked._replace(objections=tuple(told))).versions == {"a": "1"}


def test_a_search_that_takes_too_long_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "NODES", 500)
    names = [f"p{n}" for n in range(9)]
    odd = "".join(
        forbids({one: f"=={v}", other: f"=={v}"}, f"r-{one}-{other}-{v}")
        for k, one in enumerate(names)
        for other in names[k + 1 :]
        for v in range(8)
    )
    with pytest.raises(NoSolutionError, match="no answer after"):
        resolver.solve(problem({name: [str(v) for v in range(8)] for name in names}, odd))


def test_a_package_whose_releases_others_refuse_among_them_takes_few_choices() -> None:
    """Each pair of `a` and `b` refuses all of `z`; the search would learn this for one pair after another."""
    names = {"a": "0", "b": "1"}
    clash = "".join(
        forbids({name: ">=0", "z": f"=={z}"}, f"{name}{z}")
        for name, first in names.items()
        for z in range(int(first), 60, 2)
    )
    numbers = [str(n) for n in range(60)]
    answer = resolver.solve(problem({"a": numbers, "b": numbers, "z": numbers}, clash))
    assert answer.versions is None
    assert {("rule", "a0"), ("rule", "b59")} <= answer.reasons
    assert answer.nodes <= search.NODES_BEFORE_PAIRS + 1


# --- against brute force ----------------------------------------------------------------------------


# --- what the user requires besides the target ------------------------------------------------------


def joined(
    *releases: Release, target: Mapping[str, Sequence[str | Release]], wish: str, **more: object
) -> Answer:
    """Return the answer for a target and one further package; other releases are its dependencies."""
    asked = problem(target, requirements=[UserRequirement(wish, "", "--with")], **more)  # type: ignore[arg-type]
    brought = dict.fromkeys(each.package for each in releases if each.package != wish)
    return resolver.solve(asked._replace(releases=(*asked.releases, *releases), dependencies=tuple(brought)))


def test_a_required_package_is_as_new_as_something_fits_it() -> None:
    new, old = Release("x", "2", ("a==1",)), Release("x", "1")
    assert joined(new, old, target={"a": ["2", "1"]}, wish="x").versions == {"a": "1", "x": "2"}


def test_a_measured_combination_does_not_hold_a_required_package_back() -> None:
    new, old = Release("x", "2", ("a>=2",)), Release("x", "1")
    cell = f'[[cell]]\n{CELL}pkg = {{ a = "1" }}\n'
    head = f"{cell}"
    assert joined(new, old, target={"a": ["2", "1"]}, wish="x", head=head).versions == {"a": "2", "x": "2"}
    free = Release("x", "2"), Release("x", "1")
    assert joined(*free, target={"a": ["2", "1"]}, wish="x", head=head).versions == {"a": "1", "x": "2"}


def test_a_dependency_is_chosen_only_if_a_chosen_release_requires_it() -> None:
    d = Release("d", "1"), Release("d", "2")
    with_it = joined(Release("x", "1", ("d<2",)), *d, target={"a": ["1"]}, wish="x")
    assert (with_it.versions, with_it.brought) == ({"a": "1", "x": "1"}, {"d": "1"})
    without = joined(Release("x", "1"), *d, target={"a": ["1"]}, wish="x")
    assert (without.versions, without.brought) == ({"a": "1", "x": "1"}, {})


def test_two_packages_that_disagree_on_a_third_move() -> None:
    target = {"a": [Release("a", "2", ("d>=2",)), Release("a", "1", ("d",))]}
    answer = joined(
        Release("x", "1", ("d<2",)), Release("d", "1"), Release("d", "2"), target=target, wish="x"
    )
    assert answer.versions == {"a": "1", "x": "1"}
    assert answer.brought == {"d": "1"}


def test_a_disagreement_on_a_third_is_found_before_the_packages_between_are_tried() -> None:
    between: dict[str, list[str | Release]] = {f"b{number}": [*map(str, range(30))] for number in range(6)}
    target: dict[str, list[str | Release]] = {"a": [Release("a", "2", ("d>=2",)), Release("a", "1", ("d",))]}
    target.update(between)
    answer = joined(
        Release("x", "1", ("d<2",)), Release("d", "1"), Release("d", "2"), target=target, wish="x"
    )
    assert answer.versions is not None
    assert answer.versions["a"] == "1"
    assert answer.nodes < 20


def test_a_disagreement_on_a_third_is_the_reason_where_nothing_fits() -> None:
    target = {"a": [Release("a", "2", ("d>=2",))]}
    answer = joined(
        Release("x", "1", ("d<2",)), Release("d", "1"), Release("d", "2"), target=target, wish="x"
    )
    assert answer.versions is None
    assert {("metadata", "a", "d"), ("metadata", "x", "d")} <= answer.reasons


def test_a_release_without_a_fitting_wheel_is_not_taken() -> None:
    new, old = Release("x", "2", no_wheel="for Python 3.13"), Release("x", "1")
    assert joined(new, old, target={"a": ["1"]}, wish="x").versions == {"a": "1", "x": "1"}
    alone = joined(new, target={"a": ["1"]}, wish="x")
    assert ("wheel", "x") in alone.reasons


def test_the_judges_bounds_leave_what_may_be_chosen() -> None:
    clash = forbids({"a": "==2"}, "a-rule") + forbids({"a": "==1", "b": "==9"}, "together")
    asked = problem({"a": ["3", "2", "1"], "b": ["9"]}, clash)
    assert sorted(resolver.judges_bounds(asked)) == ["a>=1,<=3,!=2", "b>=9,<=9"]


def test_bounds_of_pairs_leave_out_what_another_package_has_no_partner_for() -> None:
    clash = forbids({"a": "==1", "b": "==9"}, "together")
    asked = problem({"a": ["3", "2", "1"], "b": ["9", "8"]}, clash)
    found = resolver.bounds_of_pairs(asked, {"b": "9"})
    assert found is not None
    assert found.constraints == ("a>=2,<=3", "b>=9,<=9")
    assert found.narrowed == {"a": "only a 2 to 3 fits b, by their requirements and code"}
    assert resolver.bounds_of_pairs(asked, {"a": "1", "b": "9"}) is None


def test_a_rule_without_a_fix_bounds_the_package_that_the_backend_added() -> None:
    asked = problem({"a": ["1"]}, forbids({"a": "==1", "d": ">=82"}, "no-more-resources"))
    offered = tuple(Release("d", version) for version in ("80", "81", "82", "84"))
    asked = asked._replace(releases=(*asked.releases, *offered), dependencies=("d",))
    (found,) = resolver.objections(asked, {"a": "1", "d": "84"}, {}, ["a"])
    assert found.bounds == ("d>=80,<=81",)
    unlisted = asked._replace(releases=asked.releases[:1])
    assert [each.bounds for each in resolver.objections(unlisted, {"a": "1", "d": "84"}, {}, ["a"])] == [()]


@pytest.mark.parametrize(("python", "warned"), [("3.13", ["atlas:a:python"]), ("3.12", [])])
def test_what_a_package_asks_of_python_is_warned_of_too(python: str, warned: list[str]) -> None:
    texts = {
        "packages.toml": '[package.a]\noptional = ["import a"]\n',
        "gaps/a.toml": 'read = 2026-11-29\n["import a"]\npython = [["name", "cgi", "1", "3.13..3.14", "a.py:1"]]\n',
    }
    atlas = read_atlas(texts, {"a": ("1",), "python": ("3.12", "3.13", "3.14")})
    asked = problem({"a": ["1"]}, python=python)
    asked = asked._replace(known=asked.known._replace(atlas=lambda: atlas))
    assert [each.rule.id for each in resolver.warnings(asked, {"a": "1"}, {})] == warned
