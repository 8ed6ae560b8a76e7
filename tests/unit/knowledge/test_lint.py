"""Each kind of mistake in compat/ is reported at its file and line, and the correct form next to it is not."""

from __future__ import annotations

import datetime as dt
import tomllib
from pathlib import Path

import pytest

from envcheck import probes
from envcheck.commands import loading
from envcheck.host.package_files import source_texts
from envcheck.knowledge import lint
from envcheck.knowledge.lint import LintProblem
from tests.support.running import envcheck

TODAY = dt.date(2026, 11, 21)

RULE = """
[[rule]]
id = "{id}"
severity = "{severity}"
basis = "measured"
title = "it breaks"
when = {when}
sources = [{{ url = "https://example.org/1", kind = "issue", checked = {checked} }}]
proof.none = "nothing to open"
"""

RELEASES = """
release = [
  { package = "peft", version = "0.14.0" },
  { package = "peft", version = "0.14.1" },
  { package = "peft", version = "0.14.2", yanked = true },
  { package = "peft", version = "0.15.0" },
  { package = "peft", version = "0.16.0" },
  { package = "peft", version = "0.17.0" },
  { package = "peft", version = "0.18.0" },
]
"""

HEAD = """
[known_through]
peft = "0.18.0"

[target.zero3-lora]
title = "LoRA under ZeRO-3"
packages = ["peft"]
train = { zero_stage = 3, adapter = "lora" }
"""


def rule(
    when: str, rule_id: str = "a-rule", severity: str = "warning", checked: str = "2026-11-20", more: str = ""
) -> str:
    return RULE.format(id=rule_id, severity=severity, when=when, checked=checked) + more


def fix(change: str) -> str:
    return f"[[rule.fix]]\nset = {change}\n"


def case(case_id: str, expect: str, facts: str, of: str = "a-rule") -> str:
    return f"""
[[case]]
id = "{case_id}"
expect = "{expect}"
rule = "{of}"
title = "seen"
sources = [{{ url = "https://example.org/1", kind = "issue", checked = 2026-11-20 }}]
[case.facts]
{facts}
"""


def linted(
    rules: str = "",
    cases: str = "",
    tables: str = RELEASES,
    head: str = HEAD,
    newer: dict[str, list[str]] | None = None,
    dialect: str = "",
) -> list[LintProblem]:
    texts = {
        "dialects/trainer.toml": dialect,
        "rules/peft.toml": rules,
        "cases/peft.toml": cases,
        "tables/releases.toml": tables,
        "matrix.toml": head,
    }
    return lint.lint(texts, loading.vocabulary(probes.every_probe()), TODAY, newer)


def line_of(text: str, part: str, nth: int = 0) -> int:
    """Return the number of the nth line that contains this part."""
    return [number for number, line in enumerate(text.splitlines(), 1) if part in line][nth]


def only(problems: list[LintProblem]) -> LintProblem:
    assert len(problems) == 1, lint.render_problems(problems)
    return problems[0]


def errors(problems: list[LintProblem]) -> list[LintProblem]:
    return [each for each in problems if not each.note]


# --- the shipped knowledge --------------------------------------------------------------------------


def test_the_shipped_matrix_is_clean() -> None:
    texts = source_texts("compat", ".toml")
    updated = tomllib.loads(texts["matrix.toml"])["updated"]
    problems = lint.lint(texts, loading.vocabulary(probes.every_probe()), updated)
    assert not errors(problems), lint.render_problems(errors(problems))


@pytest.mark.parametrize("key", ["train.runs_trainer", "train.atention"])
def test_a_setting_states_a_fact_of_the_training(key: str) -> None:
    dialect = f'title = "x"\n\n[[setting]]\nnames = ["attention"]\nkey = "{key}"\n'
    problem = only(linted(dialect=dialect))
    assert (problem.kind, problem.file, problem.line, problem.id) == (
        "dialect",
        "dialects/trainer.toml",
        5,
        "attention",
    )
    assert linted(dialect=dialect.replace(key, "train.attention")) == []


def test_an_empty_matrix_is_clean() -> None:
    assert linted() == []


# --- load errors ------------------------------------------------------------------------------------


def test_a_file_that_is_not_toml_is_named_with_its_line_and_the_others_are_still_read() -> None:
    texts = {
        "rules/a.toml": "\n\n[[rule]\n",
        "rules/b.toml": rule('{ "pkg.peftt" = ">=1" }').replace("id =", "idd ="),
    }
    found = lint.lint(texts, loading.vocabulary(probes.every_probe()), TODAY)
    assert ("toml", "rules/a.toml", 3) in {(each.kind, each.file, each.line) for each in found}
    assert any(each.file == "rules/b.toml" for each in found)


@pytest.mark.parametrize(
    ("when", "message"),
    [
        ('{ "driver.versionn" = ">=535" }', "did you mean 'driver.version'"),
        ('{ "pkg.peft" = "~=0.14" }', "expected bounds with"),
        ('{ "pkg.peft" = ">=nonsense" }', "is not a version"),
        ('{ "train.adapter" = "loraa" }', "expected one of"),
    ],
)
def test_an_unknown_fact_or_a_bad_bound_is_reported_at_its_when(when: str, message: str) -> None:
    text = rule('{ "pkg.peft" = "<0.15.0" }', "fine") + rule(when)
    problem = only(linted(text))
    assert message in problem.message
    assert (problem.file, problem.line, problem.id) == ("rules/peft.toml", line_of(text, when), "a-rule")


def test_an_unknown_key_of_a_rule_is_reported_at_its_line() -> None:
    text = rule('{ "pkg.peft" = "<0.15.0" }').replace("title =", 'titel = "x"\ntitle =')
    problem = only(linted(text))
    assert (problem.kind, problem.line) == ("load", line_of(text, "titel"))


def test_a_missing_source_is_reported() -> None:
    text = "\n".join(
        line for line in rule('{ "pkg.peft" = "<0.15.0" }').splitlines() if "sources" not in line
    )
    assert "no source" in only(linted(text)).message


@pytest.mark.parametrize("key", ["rulee", "expects"])
def test_a_misspelt_key_of_a_case_is_reported_because_it_would_test_nothing(key: str) -> None:
    good = rule('{ "pkg.peft" = "<0.15.0" }')
    text = case("seen", "fine", 'pkg = { peft = "0.15.0" }').replace("title =", f'{key} = "x"\ntitle =')
    problem = only(linted(good, text))
    assert (problem.kind, problem.file, problem.line) == (
        "unknown-key",
        "cases/peft.toml",
        line_of(text, key),
    )


def test_a_bad_cell_target_or_default_is_reported_at_its_line() -> None:
    head = HEAD + '[target.second]\ntitle = "no packages"\n[[cell]]\ntarget = "zero3-lora"\n'
    tables = '[[default]]\nkey = "train.dora"\nvalue = false\nwhen = {}\n'
    found = {(each.file, each.line) for each in linted("", "", tables, head)}
    assert ("matrix.toml", line_of(head, "[target.second]")) in found
    assert ("matrix.toml", line_of(head, "[[cell]]")) in found
    assert ("tables/releases.toml", 1) in found


# --- single rows ------------------------------------------------------------------------------------


def test_an_id_used_twice_names_the_first_place() -> None:
    text = rule('{ "pkg.peft" = "<0.15.0" }') + rule('{ "pkg.trl" = "<0.9" }')
    problem = only(linted(text))
    assert (problem.kind, problem.line) == ("duplicate-id", line_of(text, 'id = "a-rule"', 1))
    assert f"rules/peft.toml:{line_of(text, 'id = ')}" in problem.message


def test_two_rules_with_different_ids_are_fine() -> None:
    assert linted(rule('{ "pkg.peft" = "<0.15.0" }') + rule('{ "pkg.trl" = "<0.9" }', "b-rule")) == []


def test_a_case_id_used_twice_is_reported() -> None:
    text = case("one", "fine", 'pkg = { peft = "0.15.0" }') + case("one", "fine", 'pkg = { peft = "0.16.0" }')
    problem = only(linted(rule('{ "pkg.peft" = "<0.15.0" }'), text))
    assert (problem.kind, problem.line) == ("duplicate-id", line_of(text, 'id = "one"', 1))


def test_an_id_that_is_not_kebab_case_is_reported() -> None:
    assert only(linted(rule('{ "pkg.peft" = "<0.15.0" }', "A_Rule"))).kind == "id"


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("withdrawn = 2026-11-01", "expected a reason"),
        ('withdrawn = "soon"\nreason = "wrong"', "expected a date"),
    ],
)
def test_a_withdrawn_rule_needs_a_date_and_a_reason(line: str, message: str) -> None:
    text = rule('{ "pkg.peft" = "<0.15.0" }', more=line)
    problem = only(linted(text))
    assert message in problem.message
    assert (problem.kind, problem.line) == ("withdrawn", line_of(text, "withdrawn"))


def test_a_withdrawn_rule_with_date_and_reason_is_fine_and_so_is_a_case_that_trains() -> None:
    text = rule('{ "pkg.peft" = "<0.15.0" }', more='withdrawn = 2026-11-01\nreason = "it trains"\n')
    assert linted(text, case("trains", "fine", 'pkg = { peft = "0.14.0" }')) == []


@pytest.mark.parametrize(
    ("checked", "message"),
    [("2026-05-24", "181 days ago"), ("2026-11-22", "still to come"), ('"lately"', "a date")],
)
def test_a_stale_source_is_reported_at_the_sources(checked: str, message: str) -> None:
    text = rule('{ "pkg.peft" = "<0.15.0" }', checked=checked)
    problem = only(linted(text))
    assert message in problem.message
    assert (problem.kind, problem.line) == ("stale-source", line_of(text, "sources ="))


@pytest.mark.parametrize("checked", ["2026-05-25", "2026-11-21"])
def test_a_source_of_180_days_or_of_today_is_fresh(checked: str) -> None:
    assert linted(rule('{ "pkg.peft" = "<0.15.0" }', checked=checked)) == []


@pytest.mark.parametrize(
    "value", ['adapter = "loraa"', "zero_stage = 7", 'zero_stage = "3"', "adapter = true"]
)
def test_a_target_with_an_impossible_value_is_reported(value: str) -> None:
    head = HEAD.replace('zero_stage = 3, adapter = "lora"', value)
    problem = only(linted(head=head))
    assert (problem.kind, problem.line, problem.id) == (
        "target-value",
        line_of(head, "train ="),
        "zero3-lora",
    )


def test_a_default_with_an_impossible_value_is_reported() -> None:
    text = '[[default]]\nkey = "train.precision"\nvalue = "bf61"\nwhen = { "train.adapter" = "lora" }\nsource = "x"\n'
    problem = only(linted(tables=text))
    assert (problem.kind, problem.line) == ("default-value", 3)
    assert linted(tables=text.replace("bf61", "bf16")) == []


# --- cases ------------------------------------------------------------------------------------------


def test_a_case_of_a_rule_that_does_not_exist_is_reported() -> None:
    text = case("seen", "fine", 'pkg = { peft = "0.15.0" }', "an-rule")
    problem = only(linted(rule('{ "pkg.peft" = "<0.15.0" }'), text))
    assert (problem.kind, problem.file, problem.line) == (
        "case-rule",
        "cases/peft.toml",
        line_of(text, "rule ="),
    )


def test_a_case_of_a_withdrawn_rule_cannot_be_broken() -> None:
    text = rule('{ "pkg.peft" = "<0.15.0" }', more='withdrawn = 2026-11-01\nreason = "it trains"\n')
    assert "withdrawn" in only(linted(text, case("seen", "broken", 'pkg = { peft = "0.14.0" }'))).message


def test_a_case_with_a_misspelt_fact_or_expectation_is_reported() -> None:
    text = case("seen", "brokn", 'pkgs = { peft = "0.14.0" }')
    found = linted(rule('{ "pkg.peft" = "<0.15.0" }'), text)
    assert {each.line for each in found} == {line_of(text, "expect"), line_of(text, "[case.facts]")}


def test_an_error_rule_needs_a_broken_case_and_a_near_miss() -> None:
    text = rule('{ "pkg.peft" = "<0.15.0" }', severity="error")
    broken, fine = (
        case("b", "broken", 'pkg = { peft = "0.14.0" }'),
        case("f", "fine", 'pkg = { peft = "0.15.0" }'),
    )
    assert "near miss" in only(linted(text, broken)).message
    problem = only(linted(text, fine))
    assert "comes out broken" in problem.message
    assert (problem.kind, problem.file, problem.line) == (
        "case-missing",
        "rules/peft.toml",
        line_of(text, "id ="),
    )
    assert linted(text, broken + fine) == []


def test_a_warning_needs_no_case() -> None:
    assert linted(rule('{ "pkg.peft" = "<0.15.0" }')) == []


# --- rules that nothing can break -------------------------------------------------------------------


@pytest.mark.parametrize(
    "when",
    [
        '{ "pkg.peft" = ">=0.16,<0.15" }',
        '{ "pkg.peft" = ">=0.15,<0.15" }',
        '{ "pkg.peft" = "==0.15.0,!=0.15.0" }',
        '{ "train.zero_stage" = ">=3,<3" }',
        '[{ "pkg.peft" = "<0.15.0" }, { "pkg.peft" = ">=0.16,<0.15" }]',
        '{ "pkg.peft" = ">=0.15.1,<0.16.0" }',  # no such release
    ],
)
def test_a_rule_that_can_never_match_is_reported_at_its_when(when: str) -> None:
    text = rule(when)
    problem = only(linted(text))
    assert (problem.kind, problem.line) == ("never-holds", line_of(text, "when ="))


@pytest.mark.parametrize(
    "when",
    [
        '{ "pkg.peft" = ">=0.15,<0.15.1" }',
        '{ "pkg.peft" = "==0.15.0" }',
        '{ "pkg.peft" = ["absent", "<0.15.0"] }',
        '{ "pkg.peft" = ">=0.3,<0.4" }',  # older than the tables
        '{ "pkg.peft" = ">=0.19.0,<0.20.0" }',  # newer
        '{ "driver.version" = "<{cuda.minimum_driver}" }',
        '{ "train.zero_stage" = ">=2,<4" }',
    ],
)
def test_a_rule_that_can_match_is_fine(when: str) -> None:
    assert linted(rule(when)) == []


def test_a_rule_whose_when_implies_its_require_can_never_be_broken() -> None:
    text = rule('{ "pkg.peft" = ">=0.15.0" }', more='require = { "pkg.peft" = ">=0.14.0" }\n')
    assert "already implies" in only(linted(text)).message
    assert linted(text.replace(">=0.14.0", ">=0.16.0")) == []


# --- rules against rules ----------------------------------------------------------------------------


def test_two_rules_for_one_combination_are_reported_and_different_advice_is_named() -> None:
    one = rule('{ "pkg.peft" = "<0.15.0", "train.zero_stage" = 3 }') + fix('{ "pkg.peft" = ">=0.15.0" }')
    two = rule('{ "train.zero_stage" = "==3", "pkg.peft" = "<0.15" }', "b-rule") + fix(
        '{ "train.zero_stage" = 2 }'
    )
    problem = only(linted(one + two))
    assert (problem.kind, problem.id, problem.line) == ("overlap", "b-rule", line_of(one + two, "when =", 1))
    assert "a-rule" in problem.message
    assert "other advice" in problem.message


def test_a_rule_whose_combinations_another_includes_is_a_note() -> None:
    text = rule('{ "pkg.peft" = "<0.15.0" }') + rule(
        '{ "pkg.peft" = "<0.14.1", "train.dora" = true }', "b-rule"
    )
    problem = only(linted(text))
    assert problem.note
    assert "every combination of b-rule is one of a-rule" in problem.message


def test_rules_that_differ_in_a_clause_or_in_what_they_require_do_not_overlap() -> None:
    text = rule('{ "pkg.peft" = "<0.15.0", "train.dora" = true }')
    assert linted(text + rule('{ "pkg.peft" = "<0.15.0", "train.dora" = false }', "b-rule")) == []
    other = rule(
        '{ "pkg.peft" = "<0.15.0", "train.dora" = true }', "b-rule", more='require = { "pkg.trl" = ">=1" }\n'
    )
    assert linted(text + other) == []


def test_a_rule_that_repeats_the_atlas_may_name_the_host_and_whether_symbols_were_found() -> None:
    when = '{ "pkg.peft" = "<0.15", "pkg.trl" = ">=0.9", "host.arch" = "!=aarch64" }'
    repeats = 'repeats = "atlas:peft:trl"\n'
    assert linted(rule(when, more='require = { "pkg.peft.resolved" = "present" }\n' + repeats)) == []
    problem = only(linted(rule(when, more='require = { "pkg.torch" = "present" }\n' + repeats)))
    assert "expected a rule that is more severe" in problem.message


def test_a_package_that_is_no_cure_is_bounded_by_the_rule() -> None:
    when = '{ "pkg.peft" = "<0.15.0", "train.dora" = true }'
    assert linted(rule(when, more='no_cure = ["pkg.peft"]\n')) == []
    problem = only(linted(rule(when, more='no_cure = ["pkg.trl"]\n')))
    assert problem.kind == "no-cure"
    assert "pkg.trl" in problem.message


SPLIT = rule('{ "pkg.peft" = "<0.14.1", "train.dora" = true }') + rule(
    '{ "pkg.peft" = ">=0.14.2,<0.16.0", "train.dora" = true }', "b-rule"
)


def test_a_release_that_falls_between_two_ranges_is_reported() -> None:
    problem = only(linted(SPLIT))
    assert (problem.kind, problem.id, problem.line) == ("gap", "b-rule", line_of(SPLIT, "when =", 1))
    assert "0.14.1" in problem.message


def test_a_gap_with_a_fine_case_inside_it_is_accepted() -> None:
    assert linted(SPLIT, case("inside", "fine", 'pkg = { peft = "0.14.1" }\ntrain = { dora = true }')) == []


def test_ranges_that_touch_and_ranges_far_apart_have_no_gap() -> None:
    assert linted(SPLIT.replace(">=0.14.2", ">=0.14.1")) == []
    assert linted(SPLIT.replace(">=0.14.2,<0.16.0", ">=0.17.0")) == []


def test_a_range_that_a_third_rule_bridges_has_no_gap() -> None:
    bridge = rule('{ "pkg.peft" = ">=0.14.1,<0.14.2", "train.dora" = true }', "c-rule")
    assert linted(SPLIT + bridge) == []


def test_a_gap_in_one_minor_series_is_reported_without_listed_releases() -> None:
    assert only(linted(SPLIT.replace("pkg.peft", "pkg.trl"))).kind == "gap"
    assert linted(SPLIT.replace("pkg.peft", "pkg.trl").replace(">=0.14.2", ">=0.15")) == []


# --- fixes ------------------------------------------------------------------------------------------


def test_a_fix_that_does_not_help_is_reported_at_its_line() -> None:
    text = (
        rule('{ "pkg.peft" = "<0.16.0" }')
        + fix('{ "pkg.peft" = ">=0.16.0" }')
        + fix('{ "pkg.peft" = "==0.15.0" }')
    )
    problem = only(linted(text))
    assert (problem.kind, problem.line) == ("fix", line_of(text, "[[rule.fix]]", 1))


@pytest.mark.parametrize(
    ("when", "change"),
    [
        ('{ "pkg.peft" = "<0.16.0" }', '{ "pkg.peft" = ">=0.16.0" }'),
        ('{ "pkg.peft" = "<0.16.0", "train.dora" = true }', '{ "train.dora" = false }'),
        (
            '{ "train.precision" = "bf16", "gpu.compute_capability" = "<8.0" }',
            '{ "train.precision" = "fp16" }',
        ),
        ('[{ "pkg.peft" = "<0.14.1" }, { "pkg.peft" = ">=0.17.0,<0.18.0" }]', '{ "pkg.peft" = "==0.14.1" }'),
    ],
)
def test_a_fix_that_helps_is_fine(when: str, change: str) -> None:
    assert linted(rule(when) + fix(change)) == []


def test_a_fix_of_another_fact_is_tried_too() -> None:
    text = rule(
        '{ "pkg.torchvision" = "present" }',
        more='require = { "pkg.torchvision" = "=={build.torch.torchvision}" }\n'
        + fix('{ "pkg.torchvision" = "=={build.torch.torchvision}" }'),
    )
    assert linted(text) == []
    assert (
        only(linted(text.replace('set = { "pkg.torchvision" = "=={', 'set = { "pkg.torchaudio" = "=={'))).kind
        == "fix"
    )


def test_a_fix_that_names_no_release_or_a_yanked_one_is_reported() -> None:
    text = rule('{ "pkg.peft" = "<0.14.1" }')
    assert "found no release 0.14.3" in only(linted(text + fix('{ "pkg.peft" = ">=0.14.3" }'))).message
    assert "yanked" in only(linted(text + fix('{ "pkg.peft" = ">=0.14.2" }'))).message
    assert linted(text + fix('{ "pkg.peft" = ">=0.14.1" }')) == []


def test_a_fix_that_names_a_release_of_the_withdrawn_table_is_reported() -> None:
    text = rule('{ "pkg.peft" = "<0.14.1" }') + fix('{ "pkg.peft" = ">=0.14.1" }')
    withdrawn = RELEASES + 'withdrawn = [{ package = "peft", version = "0.14.1" }]\n'
    assert "yanked" in only(linted(text, tables=withdrawn)).message
    assert linted(text, tables=withdrawn.replace('"0.14.1" }]', '"0.14.0" }]')) == []


def test_a_fix_whose_bound_admits_forbidden_versions_is_a_note() -> None:
    text = rule('{ "pkg.peft" = ">=0.15.0,<0.17.0" }') + fix('{ "pkg.peft" = ">=0.14.1" }')
    assert only(linted(text)).note
    assert linted(text.replace(">=0.14.1", "==0.14.1")) == []


TRAP = rule('{ "pkg.peft" = "<0.15.0" }', severity="error") + fix('{ "pkg.peft" = ">=0.15.0" }')
TRAP_OTHER = rule('{ "pkg.peft" = "==0.15.0", "train.dora" = true }', "b-rule", "error")
TRAP_CASES = (
    case("a1", "broken", 'pkg = { peft = "0.14.0" }\ntrain = { dora = true }')
    + case("a2", "fine", 'pkg = { peft = "0.15.0" }')
    + case("b1", "broken", 'pkg = { peft = "0.15.0" }\ntrain = { dora = true }', "b-rule")
    + case("b2", "fine", 'pkg = { peft = "0.16.0" }\ntrain = { dora = true }', "b-rule")
)


def test_a_case_whose_every_fix_breaks_another_error_rule_has_no_way_out() -> None:
    found = linted(TRAP + TRAP_OTHER, TRAP_CASES)
    problem = only(errors(found))
    assert (problem.kind, problem.file, problem.line) == (
        "no-way-out",
        "cases/peft.toml",
        line_of(TRAP_CASES, '"a1"'),
    )
    note = only([each for each in found if each.note])
    assert (note.kind, note.line) == ("fix-enters", line_of(TRAP, "[[rule.fix]]"))
    assert "b-rule" in note.message


def test_a_second_fix_is_a_way_out_and_the_first_needs_a_case_in_which_it_is_one() -> None:
    text = TRAP + fix('{ "pkg.peft" = ">=0.16.0" }') + TRAP_OTHER
    problem = only(errors(linted(text, TRAP_CASES)))
    assert (problem.kind, problem.line) == ("fix-unproved", line_of(text, "[[rule.fix]]"))
    without_dora = case("a3", "broken", 'pkg = { peft = "0.14.0" }\ntrain = { dora = false }')
    assert only(linted(text, TRAP_CASES + without_dora)).note


# --- cells, defaults, known releases ----------------------------------------------------------------

CELL = """
[[cell]]
target = "zero3-lora"
outcome = "{outcome}"
{more}
pkg = {{ peft = "{peft}" }}
device = "cpu"
date = 2026-11-20
test = "step"
"""
CELL_RULE = rule('{ "pkg.peft" = "<0.15.0", "train.zero_stage" = 3 }', severity="error")
CELL_CASES = case("b", "broken", 'pkg = { peft = "0.14.0" }\ntrain = { zero_stage = 3 }') + case(
    "f", "fine", 'pkg = { peft = "0.15.0" }\ntrain = { zero_stage = 3 }'
)


@pytest.mark.parametrize(
    ("outcome", "peft", "more", "message"),
    [
        ("ok", "0.14.0", "", "found a-rule"),
        ("fails", "0.15.0", 'rule = "a-rule"', "expected a-rule to forbid"),
        ("fails", "0.14.0", 'rule = "another"', "found another"),
        ("fails", "0.14.0", "", "found none"),
    ],
)
def test_a_cell_that_contradicts_a_rule_is_reported(outcome: str, peft: str, more: str, message: str) -> None:
    head = (
        HEAD
        + CELL.format(outcome="ok", peft="0.16.0", more="")
        + CELL.format(outcome=outcome, peft=peft, more=more)
    )
    problem = only(linted(CELL_RULE, CELL_CASES, head=head))
    assert message in problem.message
    assert (problem.kind, problem.file, problem.line) == ("cell", "matrix.toml", line_of(head, "pkg =", 1))


def test_cells_that_agree_with_the_rules_are_fine() -> None:
    head = HEAD + CELL.format(outcome="ok", peft="0.15.0", more="")
    head += CELL.format(outcome="fails", peft="0.14.0", more='rule = "a-rule"')
    assert linted(CELL_RULE, CELL_CASES, head=head) == []


TWO_TRAINERS = '[{ "train.trainer" = "trl" }, { "train.trainer" = "!=swift", "pkg.peft" = "<0.15" }]'


def test_a_rule_that_lists_trainers_has_to_say_why() -> None:
    text = rule(TWO_TRAINERS)
    problem = only(linted(text))
    assert (problem.kind, problem.line) == ("trainer-list", line_of(text, "when ="))
    assert "swift, trl" in problem.message


def test_a_rule_that_says_why_it_lists_trainers_is_fine() -> None:
    assert linted(rule(TWO_TRAINERS).replace("when =", 'trainers = "only these were read"\nwhen =')) == []


def test_one_trainer_needs_no_reason_and_may_not_have_one() -> None:
    text = rule('{ "train.trainer" = ["absent", "trl"], "pkg.peft" = "<0.15" }')
    assert linted(text) == []
    needless = linted(text.replace("when =", 'trainers = "only these were read"\nwhen ='))
    assert only(needless).kind == "trainer-list"


def default(when: str) -> str:
    return f'[[default]]\nkey = "train.use_reentrant"\nvalue = true\nwhen = {when}\nsource = "x"\n'


def test_a_default_after_one_that_always_applies_is_never_reached() -> None:
    text = default('{ "pkg.transformers" = "<5" }') + default(
        '{ "pkg.transformers" = "<4.38", "train.trainer" = "trl" }'
    )
    problem = only(linted(tables=text))
    assert (problem.kind, problem.line) == ("default-unreachable", line_of(text, "when =", 1))


def test_defaults_with_different_conditions_are_both_reached() -> None:
    assert (
        linted(tables=default('{ "pkg.transformers" = "<4.38" }') + default('{ "pkg.transformers" = "<5" }'))
        == []
    )


def test_a_default_with_an_impossible_condition_is_never_reached() -> None:
    assert "no value satisfies" in only(linted(tables=default('{ "pkg.transformers" = ">=5,<4" }'))).message


def test_releases_after_known_through_are_reported_there() -> None:
    problem = only(linted(newer={"peft": ["0.19.0", "0.19.1"]}))
    assert (problem.kind, problem.line) == ("known-through", line_of(HEAD, "peft ="))
    assert "0.19.1" in problem.message


def test_only_final_releases_count_as_newer() -> None:
    published = {
        "peft": ["0.17.0", "0.18.0", "0.18.0.post1", "0.19.0rc1", "0.19.0", "nonsense"],
        "trl": ["9"],
    }
    assert lint.newer_releases({"peft": "0.18.0", "torch": "2.0"}, published) == {
        "peft": ["0.18.0.post1", "0.19.0"]
    }


# --- all at once, on the command line ---------------------------------------------------------------


def test_all_problems_are_reported_at_once_and_sorted() -> None:
    text = rule('{ "pkg.peft" = ">=0.16,<0.15" }', checked="2020-01-01") + rule(
        '{ "pkg.nothing.what" = "x" }', "b-rule"
    )
    found = linted(text, case("seen", "fine", "", "no-rule"), head=HEAD.replace('"lora"', '"loraa"'))
    assert {each.kind for each in found} == {
        "never-holds",
        "stale-source",
        "load",
        "case-rule",
        "target-value",
    }
    assert found == sorted(found, key=lambda each: (each.file, each.line))


def test_problems_are_rendered_with_file_line_and_message() -> None:
    text = lint.render_problems(
        [
            LintProblem("gap", "rules/a.toml", 7, "a-rule", "a gap"),
            LintProblem("x", "b", 1, "", "hm", note=True),
        ]
    )
    assert (
        text
        == "compat/rules/a.toml:7: error: a-rule: a gap [gap]\ncompat/b:1: note: hm [x]\n1 error, 1 note\n"
    )


def test_the_content_of_long_strings_is_neither_key_nor_header() -> None:
    why = 'why = """\nwhen = x\n[[rule]]\nid = "z" """\n'
    text = rule('{ "pkg.peft" = "<0.15.0" }', more=why) + rule('{ "pkg.peft" = ">=0.16,<0.15" }', "b-rule")
    problem = only(linted(text))
    assert (problem.id, problem.line) == ("b-rule", line_of(text, "when = {", 1))


def test_lint_exits_0_on_a_clean_folder_and_1_with_errors(tmp_path: Path) -> None:
    (tmp_path / "rules").mkdir()
    (tmp_path / "rules/peft.toml").write_text(rule('{ "pkg.peft" = "<0.15.0" }', checked="2026-11-20"))
    (tmp_path / "matrix.toml").write_text(HEAD)
    day = ("--today", "2026-11-21")
    ran = envcheck("matrix", "lint", str(tmp_path), *day)
    assert (ran.code, ran.out, ran.err) == (0, "0 errors, 0 notes\n", "")
    (tmp_path / "rules/peft.toml").write_text(rule('{ "pkg.peft" = "<0.1,>=0.2" }'))
    ran = envcheck("matrix", "lint", str(tmp_path), *day)
    assert ran.code == 1
    assert "rules/peft.toml:7: error: a-rule: can never match" in ran.out


def test_lint_of_a_checkout_reads_its_compat_folder_alone(tmp_path: Path) -> None:
    (tmp_path / "compat").mkdir()
    (tmp_path / "compat/matrix.toml").write_text(HEAD)
    (tmp_path / "pyproject.toml").write_text("[[rule]]\nid = 3\n")
    ran = envcheck("matrix", "lint", str(tmp_path), "--today", "2026-11-21")
    assert (ran.code, ran.out, ran.err) == (0, "0 errors, 0 notes\n", "")


def test_lint_of_a_missing_folder_is_a_usage_error(tmp_path: Path) -> None:
    ran = envcheck("matrix", "lint", str(tmp_path / "none"))
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1


def no_fix(change: str) -> str:
    return f'[[rule.no_fix]]\nset = {change}\nwhy = "tried"\nsource = "https://example.org/2"\n'


def test_a_no_fix_must_leave_the_rule_broken() -> None:
    when = '{ "pkg.peft" = "<0.16.0", "train.zero_stage" = 3 }'
    found = linted(rule(when, more=no_fix('{ "pkg.peft" = "==0.16.0" }')))
    assert [(each.kind, each.line) for each in found] == [("no-fix", 10)]
    assert "the no_fix pkg.peft ==0.16.0 to leave the rule broken; found that it helps" in found[0].message
    assert linted(rule(when, more=no_fix('{ "pkg.peft" = "==0.15.0" }'))) == []
    assert linted(rule(when, more=no_fix('{ "train.zero_sub_group_size" = 1000000 }'))) == []


def test_a_no_fix_names_an_existing_release_and_a_reason() -> None:
    when = '{ "pkg.peft" = "<0.16.0", "train.zero_stage" = 3 }'
    (gone,) = linted(rule(when, more=no_fix('{ "pkg.peft" = "==0.15.7" }')))
    assert (gone.kind, "found no release 0.15.7" in gone.message) == ("fix-version", True)
    silent = linted(rule(when, more='[[rule.no_fix]]\nset = { "train.zero_stage" = 3 }\n'))
    assert sorted(each.message for each in silent) == ["no_fix: source: missing", "no_fix: why: missing"]


# --- signatures ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ('signature = ["nothing to look for"]', "needs one of the words for which logs are searched"),
        ('signature = ["an (error"]', "expected a regular expression"),
        ('signature = ["(error)?"]', "matches any text"),
        (r"signature = ['\w+ error']", "begins with a text or with"),
        ('signature = "an error"', "expected a list of patterns"),
        ('signature = ["an error"]\nkind = "mystery"', "kind: expected one of version"),
        ('signature = ["an error"]', "in a signature without a rule; found none"),
    ],
)
def test_a_signature_that_no_search_can_find_is_reported(row: str, message: str) -> None:
    text = f'[[case]]\nid = "a-case"\nexpect = "signature"\ntitle = "seen"\n{row}\n'
    found = linted(cases=text, tables='trigger = [{ word = "error" }]')
    assert any(message in each.message and each.file == "cases/peft.toml" for each in found)


def test_a_signature_that_can_be_found_is_fine() -> None:
    text = '[[case]]\nid = "a-case"\nexpect = "signature"\ntitle = "seen"\nkind = "memory"\n'
    found = linted(cases=text + 'signature = ["an ERROR"]\n', tables='trigger = [{ word = "error" }]')
    assert found == []


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (
            "[[exception_meaning]]\nfile = '\\S+/peft/'\npattern = 'out of memory'\n",
            "file: expected a pattern",
        ),
        ("[[exception_meaning]]\npattern = '.*out of memory'\n", "whose first part has a bound"),
        ("[[failure_message]]\npattern = '[\\w.]+ is missing'\n", "begins with a text"),
    ],
)
def test_a_pattern_that_is_slow_on_a_long_line_is_reported(row: str, message: str) -> None:
    found = [each for each in linted(tables=row) if each.kind == "slow-pattern"]
    assert [(each.file, each.line) for each in found] == [("tables/releases.toml", 2)]
    assert message in found[0].message


@pytest.mark.parametrize(
    "row",
    [
        r"exception_meaning = [{ pattern = '.{0,200}out of memory', file = '/peft/\w+' }]",
        r"exception_meaning = [{ pattern = '\S+: undefined symbol' }]",  # it is matched at the beginning alone
        r"failure_message = [{ name = 'ImportError', pattern = '(?<!\S)[\w.]+ is missing' }]",
    ],
)
def test_a_pattern_that_is_quick_on_a_long_line_is_fine(row: str) -> None:
    assert not [each for each in linted(tables=row) if each.kind == "slow-pattern"]
