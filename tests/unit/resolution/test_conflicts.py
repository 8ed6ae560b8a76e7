"""Why no lock fits: the least conflicting reasons, their sentences, and ways out that help."""

from __future__ import annotations

from collections.abc import Sequence

from envcheck.core.rules import UserRequirement
from envcheck.resolution import conflicts, resolver
from envcheck.resolution.conflicts import ConflictProof
from envcheck.resolution.resolver import Objection, Release, SearchProblem
from tests.support.package_worlds import forbids, problem
from tests.support.worlds import rule


def proven(asked: SearchProblem) -> ConflictProof:
    answer = resolver.solve(asked)
    assert answer.versions is None
    return conflicts.prove(asked, answer.reasons)


def any_line_has(lines: Sequence[str], *words: str) -> bool:
    """Return whether some line contains all of these words."""
    return any(all(word in line for word in words) for line in lines)


def test_a_requirement_against_a_rule_names_both_and_offers_a_way_out_of_each() -> None:
    clash = rule(
        '{ "pkg.a" = "<2", "train.zero_stage" = 3 }', more="[[rule.fix]]\nset = { 'train.zero_stage' = 2 }"
    )
    wish = UserRequirement("a", "<2", "--with a<2")
    asked = problem({"a": ["2", "1"], "b": ["5"]}, clash, train="{ zero_stage = 3 }", requirements=[wish])
    found = proven(asked)
    assert any_line_has(found.conflict, "t needs a")
    assert not any_line_has(found.conflict, "t needs", "b")
    assert any_line_has(found.conflict, "--with a<2 asks for a<2", "that leaves a 1 (1 of 2 releases)")
    assert any_line_has(
        found.conflict, "train.zero_stage 3 (target t)", "it breaks (a-rule)", "that leaves a 2"
    )
    assert list(found.ways_out) == [
        "without the bound a<2 (--with a<2): a 2, b 5",
        "with train.zero_stage = 2 instead of 3: a 1, b 5",
    ]


def test_python_against_a_rule() -> None:
    world = {"a": [Release("a", "2", pythons=("3.12", "3.13")), Release("a", "1", pythons=("3.10", "3.11"))]}
    new = rule('{ "pkg.a" = "<2", "driver.version" = ">=500" }')
    asked = problem(world, new, python="3.11", machine={"driver.version": "550"})
    found = proven(asked)
    assert any_line_has(found.conflict, "Python 3.11", "that leaves a 1 (1 of 2 releases)")
    assert any_line_has(found.conflict, "driver 550", "that leaves a 2")
    assert list(found.ways_out) == ["Python 3.12: a 2", "with another driver than 550: a 1"]


def test_requires_python_alone_can_be_the_conflict() -> None:
    found = proven(problem({"a": [Release("a", "1", requires_python=">=3.12")]}))
    assert list(found.conflict) == [
        "the target t needs a",
        "Python 3.11: that leaves no a (known are 1)",
    ]


def test_a_driver_that_is_too_old_names_the_oldest_driver_that_helps() -> None:
    floor = rule(
        '{ "pkg.a" = ">=2", "driver.version" = "<580" }',
        "new",
        more="[[rule.fix]]\nset = { 'driver.version' = '>=580.65' }",
    ) + rule(
        '{ "pkg.a" = "==1", "driver.version" = "<525" }',
        "old",
        more="[[rule.fix]]\nset = { 'driver.version' = '>=525.60' }",
    )
    asked = problem({"a": ["2", "1"]}, floor, machine={"driver.version": "470.1"})
    found = proven(asked)
    assert any_line_has(found.conflict, "driver 470.1", "(old)")
    assert any_line_has(found.conflict, "driver 470.1", "(new)")
    assert any_line_has(found.ways_out, "driver 580.65 or newer: a 2")
    assert any_line_has(found.ways_out, "driver 525.60 or newer: a 1")


def test_two_rules_name_the_releases_that_they_refuse_together() -> None:
    clash = forbids({"a": ">=2", "b": "<9"}, "new-a-old-b") + forbids({"a": ">=2", "b": ">=9"}, "new-a-new-b")
    found = proven(problem({"a": ["2"], "b": ["9", "8"], "c": ["1"]}, clash))
    assert any_line_has(found.conflict, "t needs a and b")
    assert any_line_has(found.conflict, "(new-a-old-b)", "it refuses a 2 with b 8")
    assert any_line_has(found.conflict, "(new-a-new-b)", "it refuses a 2 with b 9")
    assert len(found.conflict) == 3


def test_metadata_against_a_requirement() -> None:
    wish = UserRequirement("b", ">=9", "requirements.txt line 3")
    found = proven(problem({"a": [Release("a", "2", ("b<9",))], "b": ["9", "8"]}, requirements=[wish]))
    assert any_line_has(found.conflict, "a 2 asks for b<9")
    assert any_line_has(found.conflict, "requirements.txt line 3 asks for b>=9", "that leaves b 9")
    assert list(found.ways_out) == ["without the bound b>=9 (requirements.txt line 3): a 2, b 8"]


def test_metadata_that_asks_for_a_release_that_does_not_exist_says_so() -> None:
    requiring = Release("a", "2", ("b==3",))
    found = proven(problem({"a": [requiring], "b": ["2", "1"]}))
    assert any_line_has(found.conflict, "a 2 asks for b==3: there is no such b, only 1 to 2")
    wish = UserRequirement("b", "<3", "--with")
    there = proven(problem({"a": [requiring], "b": ["3", "1"]}, requirements=[wish]))
    assert not any_line_has(there.conflict, "there is no such")


def test_a_bound_of_the_target_is_named_and_not_offered_to_be_dropped() -> None:
    bound = UserRequirement("a", ">=2", "target t", wanted=False, by_target=True)
    wish = UserRequirement("b", "<9", "--with b<9")
    asked = problem(
        {"a": ["2", "1"], "b": ["9", "8"]},
        forbids({"a": ">=2", "b": "<9"}, "old-b"),
        requirements=[bound, wish],
    )
    found = proven(asked)
    assert any_line_has(found.conflict, "target t asks for a>=2", "that leaves a 2")
    assert list(found.ways_out) == ["without the bound b<9 (--with b<9): a 2, b 9"]


def test_a_required_package_is_not_described_as_the_targets() -> None:
    asked = problem({"a": ["2"]}, forbids({"a": "present", "x": "<5"}, "old-x"))
    wishes = (UserRequirement("x", "<5", "--with x<5"),)
    asked = asked._replace(
        releases=(*asked.releases, Release("x", "5"), Release("x", "4")), requirements=wishes
    )
    found = proven(asked)
    assert any_line_has(found.conflict, "t needs a")
    assert not any_line_has(found.conflict, "t needs", "x")
    assert list(found.ways_out) == ["without the bound x<5 (--with x<5): a 2, x 5"]
    plain = asked._replace(
        releases=(*asked.releases[:-2], Release("x", "4")),
        requirements=(UserRequirement("x", "", "--with x"),),
    )
    assert any_line_has(proven(plain).conflict, "--with x asks for x")
    assert list(proven(plain).ways_out) == ["without x (--with x): a 2"]


def test_a_package_that_the_user_added_is_left_out_where_nothing_else_helps() -> None:
    asked = problem({"a": ["1"]}, forbids({"x": "present", "y": "present"}, "never-both"))
    asked = asked._replace(
        releases=(*asked.releases, Release("x", "1"), Release("y", "2"), Release("y", "1")),
        requirements=(UserRequirement("x", "", "--with x"), UserRequirement("y", "<2", "--with y<2")),
    )
    assert list(proven(asked).ways_out) == [
        "without x (--with x): a 1, y 1",
        "without y<2 (--with y<2): a 1, x 1",
    ]
    # The target's own package is never left out.
    own = problem({"a": ["1"], "b": ["1"]}, forbids({"a": "present", "b": "present"}, "never-both"))
    wishes = (UserRequirement("a", "", "--with a"),)
    assert list(proven(own._replace(requirements=wishes)).ways_out) == []


def test_what_a_lock_was_refused_for_with_an_added_package_is_gone_without_its_bound() -> None:
    refused = Objection(
        "old-x", (("a", "2"),), (("x", "0.3"),), wide=False, message="x 0.3 cannot be imported"
    )
    asked = problem({"a": ["2"]})._replace(
        releases=(Release("a", "2"),),
        requirements=(UserRequirement("x", "<0.5", "--with x<0.5"),),
        objections=(refused,),
    )
    assert list(proven(asked).ways_out) == ["without the bound x<0.5 (--with x<0.5): a 2"]


def test_the_machine_alone_can_be_the_conflict() -> None:
    alone = rule(
        '{ "driver.version" = "<570", "host.arch" = "x86_64" }',
        more="[[rule.fix]]\nset = { 'driver.version' = '>=580' }",
    )
    found = proven(problem({"a": ["1"]}, alone, machine={"driver.version": "550", "host.arch": "x86_64"}))
    assert len(found.conflict) == 1
    assert any_line_has(found.conflict, "driver 550", "host.arch x86_64", "it breaks")
    assert list(found.ways_out) == ["driver 580 or newer: a 1"]


def test_yanked_and_unknown_releases_are_named() -> None:
    yanked = proven(problem({"a": [Release("a", "1", yanked=True)]}))
    assert any_line_has(yanked.conflict, "yanked releases of a are never used")
    beyond = problem({"a": ["3"]}, head='[known_through]\na = "2"')
    assert any_line_has(proven(beyond).conflict, "a is known through 2")
    nothing = problem({"a": []})
    assert any_line_has(proven(nothing).conflict, "t needs a")


def test_no_reason_of_a_proof_can_be_dropped_and_every_way_out_helps() -> None:
    clash = (
        forbids({"a": ">=2", "b": ">=2"}, "one")
        + forbids({"b": "<2", "c": ">=2"}, "two")
        + forbids({"a": "<2", "c": "present"}, "three")
        + forbids({"d": ">=1", "a": ">=7"}, "of-no-matter")
    )
    wish = UserRequirement("c", ">=2", "--with c>=2")
    asked = problem(
        {"a": ["1", "2"], "b": ["1", "2"], "c": ["1", "2"], "d": ["1"]}, clash, requirements=[wish]
    )
    found = proven(asked)
    assert ("rule", "of-no-matter") not in found.reasons
    for reason in found.reasons:
        assert resolver.solve(asked, {reason}).versions is not None, reason
    assert list(found.ways_out) == ["without the bound c>=2 (--with c>=2): a 2, b 1, c 1, d 1"]


def test_two_changes_are_tried_together_where_no_single_one_helps() -> None:
    """`a` and `b` clash each with a bound of the user, and with rules; `c` is in nobody's way."""
    rules = forbids({"a": "<2"}, "one") + rule('{ "pkg.b" = "<2", "driver.version" = "<550" }')
    wishes = [UserRequirement(name, "<2", "--with") for name in ("a", "b", "c")]
    world = {"a": ["1", "2"], "b": ["1", "2"], "c": ["1", "2"]}
    asked = problem(world, rules, machine={"driver.version": "535"}, requirements=wishes)
    assert list(proven(asked).ways_out) == [
        "without the bound a<2 (--with), and without the bound b<2 (--with): a 2, b 2, c 1",
        "without the bound a<2 (--with), and with another driver than 535: a 2, b 1, c 1",
    ]
    third = problem(
        world, rules + forbids({"c": "<2"}, "three"), machine={"driver.version": "535"}, requirements=wishes
    )
    assert not proven(third).ways_out


def test_two_changes_are_not_tried_where_one_helps() -> None:
    rules = forbids({"a": "<2"}, "one")
    wishes = [UserRequirement(name, "<2", "--with") for name in ("a", "b")]
    asked = problem({"a": ["1", "2"], "b": ["1", "2"]}, rules, requirements=wishes)
    assert list(proven(asked).ways_out) == ["without the bound a<2 (--with): a 2, b 1"]


def test_a_conflict_of_many_reasons_stays_short_and_names_every_reason() -> None:
    """Each release of `a` is refused by another package: some in its metadata, some by a rule."""
    others = [f"p{number}" for number in range(8)]
    rules = "".join(
        forbids({"a": f"=={number}", f"p{number}": ">=1"}, f"rule-{number}") for number in range(5)
    )
    bounds = tuple(f"{name}<1" for name in others[5:])
    releases = [Release("a", "9", requires=bounds), *(Release("a", str(number)) for number in range(5))]
    asked = problem({"a": releases, **{name: ["1"] for name in others}}, rules)
    answer = resolver.solve(asked)
    assert answer.versions is None
    every = conflicts.prove(asked, answer.reasons, 100).conflict
    assert len(every) == 1 + 5 + 1  # the target's needs, the rules, and one of the bounds, which suffices
    short = conflicts.prove(asked, answer.reasons, 4).conflict
    assert len(short) == 4
    assert short[-1].startswith("and 4 more: ")
    for number in range(5):
        assert any_line_has(short, f"rule-{number}"), short


def test_the_bounds_of_one_package_and_what_is_asked_for_share_lines_if_there_are_too_many() -> None:
    releases = [
        Release("a", "2", requires=("b<1",)),
        Release("a", "1", requires=("c<1", "d")),
        Release("a", "0", requires=("d<1",)),
    ]
    asked = problem({"a": releases, "b": ["1"], "c": ["1"], "d": ["1"]}, "")
    reasons = resolver.solve(asked).reasons
    assert len(conflicts.prove(asked, reasons).conflict) == 4
    assert list(conflicts.prove(asked, reasons, 3).conflict) == [
        "the target t needs a, b, c and d",
        "a 2 asks for b<1; a 1 asks for c<1; a 0 asks for d<1",
    ]
