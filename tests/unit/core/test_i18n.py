"""Translation into Chinese: choice of language, output of the real command, and completeness."""

from __future__ import annotations

import ast
import re
import tomllib
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envcheck.commands import examine, loading
from envcheck.commands.selftest.environment import claims
from envcheck.core import i18n
from envcheck.core.findings import Verbosity, Verdict
from envcheck.core.rules import Basis, Fix, Severity, Source
from envcheck.core.training_facts import KEYS as TRAINING
from envcheck.host.machine import Host
from envcheck.knowledge import package_pages, pair_page
from envcheck.knowledge.atlas import VERBS
from envcheck.memory import estimate, options
from envcheck.reports import details, diff, headline, overview
from envcheck.reports.render import format_named
from envcheck.selftest.declaration import SelftestDeclaration, SelftestVariant
from envcheck.selftest.outcome import FAIL, PASS, SKIP, Outcome
from envcheck.selftest.report import SelftestReport, render_report
from tests.command.test_command_line import BROKEN, RULE
from tests.support.paths import ROOT

ZH: dict[str, Any] = tomllib.loads((ROOT / "compat/lang/zh.toml").read_text())
CHINESE = i18n.parse_language("zh", ZH)
RULES: dict[str, Any] = {row["id"]: row for row in loading.source_tree()["rule"]}

FOUNDING = (
    "zero3-frozen-nonreentrant-checkpoint",
    "zero3-cpu-offload-grad-norm-device",
    "deepspeed-elastic-log-import-torch24",
    "deepspeed-elastic-socket-import-torch24",
    "deepspeed-numpy2-bufsize",
    "fsdp-dora-recompute-dtype",
    "fsdp-dora-reentrant-adamw-dtype",
    "driver-below-cuda-family-floor",
    "driver-library-mismatch",
    "torch-build-lacks-gpu-code",
    "torch-torchvision-mismatch",
    "peft-encoderdecodercache-transformers-lt443",
    "peft-hybridcache-transformers5",
    "transformers-treats-torch-as-absent",
)


def chinese(text: str) -> bool:
    return any("\u4e00" <= each <= "\u9fff" for each in text)


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    path = tmp_path / "facts.toml"
    path.write_text(BROKEN)
    return path


# --- choosing ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "environ", "name"),
    [
        (None, {}, "en"),
        (None, {"LANG": "zh_CN.UTF-8"}, "zh"),
        (None, {"LC_MESSAGES": "zh_TW", "LANG": "en_US.UTF-8"}, "zh"),
        (None, {"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}, "en"),
        (None, {"LC_ALL": "POSIX", "LC_MESSAGES": "zh_CN"}, "en"),
        (None, {"LC_ALL": "", "LANG": "zh_CN.GB18030"}, "zh"),
        (None, {"LC_ALL": "C.UTF-8", "LANG": "zh_CN.UTF-8"}, "en"),
        (None, {"LC_ALL": "C", "ENVCHECK_LANG": "zh"}, "zh"),
        (None, {"LANG": "zh_CN.UTF-8", "ENVCHECK_LANG": "en"}, "en"),
        ("zh", {"LC_ALL": "C", "ENVCHECK_LANG": "en"}, "zh"),
        ("zh-Hans", {}, "zh"),
        ("en", {"LANG": "zh_CN.UTF-8"}, "en"),
    ],
)
def test_the_option_comes_before_the_variable_and_the_locale(
    option: str | None, environ: dict[str, str], name: str
) -> None:
    assert i18n.choose_language(option, environ)[0] == name


# --- the gate and the pages -------------------------------------------------------------------------


def test_the_parts_of_a_sentence_are_translated_too() -> None:
    told = i18n.Language("xx", {}, {"no {} in {}": "{1}:{0}", "a {}": "A {}", "b": "B"}).translate
    assert told("no a b in x{0}") == "x{0}:A B"
    assert told("else") == "else"
    assert told("no " + "x in " * 1000) == "no " + "x in " * 1000


# --- fallback and hostile text ----------------------------------------------------------------------


def test_a_missing_translation_is_english() -> None:
    poor = i18n.parse_language(
        "xx", {"words": {"error": "E"}, "rule": {"a": {"title": "T"}, "b": {"cost": ["x"]}}}
    )
    assert (poor.say("error"), poor.say("{} broken", 3), poor.word("{x}")) == ("E", "3 broken", "{x}")
    assert (poor.title("a", "t"), poor.title("b", "t"), poor.title("c", "t")) == ("T", "t", "t")
    assert (poor.why("a", "w"), poor.why("c", "w")) == ("w", "w")
    assert [poor.cost("b", costs, "y") for costs in (["y"], ["y", "z"], ["z"])] == ["x", "y", "y"]
    assert poor.cost("b", ["y"], "") == ""


def test_a_rule_without_a_translation_is_shown_in_english(facts: Path) -> None:
    report = examine.examine(examine.ExamineRequest(facts=str(facts)), Host())
    poor = i18n.Language("zh", CHINESE.words, CHINESE.sentences, {})
    out = format_named("text")(report._replace(language=poor))
    assert f"✗ 错误: {RULES[RULE]['title']} [{RULE}]" in out
    assert "    解决    deepspeed >=0.19.3" in out
    every = format_named("text")(report._replace(language=poor, verbosity=Verbosity.ALL))
    assert "    原因    While a block is recomputed" in every


# --- columns ----------------------------------------------------------------------------------------


def columns(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)


def test_labels_take_the_same_columns() -> None:
    assert {columns(i18n.pad(label, 9)) for label in ("", "GPU", "软件包", "实测 a")} == {9}
    assert i18n.pad("Packages", 4) == "Packages"


@pytest.mark.parametrize("form", ["text", "terminal"])
def test_texts_are_aligned(form: str, facts: Path) -> None:
    report = examine.examine(examine.ExamineRequest(facts=str(facts), target="zero3-lora"), Host())
    report = report._replace(language=CHINESE, verbosity=Verbosity.ALL)
    out = re.sub(r"\x1b\[[0-9;]*m", "", format_named(form)(report))
    categories = [line for line in out.splitlines() if re.match(r"\[.\] ", line)]
    assert len(categories) == 3, "what was not given is left out"
    assert {columns(match[0]) for line in categories if (match := re.match(r"\[.\] \S+ +", line))} == {13}
    findings = out.partition("\n检查对象")[0]
    found = re.findall(r"^    (?:依据|原因|解决|出处) +|^ {12,}(?=\S)", findings, re.MULTILINE)
    assert len(found) > 10
    assert {columns(each) for each in found} == {12}


def test_chinese_is_wrapped_by_columns_and_marks_stay_with_their_words() -> None:
    sentence = ZH["rule"]["zero3-cpu-offload-grad-norm-device"]["why"].strip() * 3
    for room in range(40, 90):
        lines = i18n.wrap(sentence, room)
        assert all(columns(line) <= room for line in lines)
        assert "".join(lines).replace(" ", "") == sentence.replace(" ", "")
        assert not any(line.startswith(tuple(i18n._CLOSING)) for line in lines)
        assert not any(line.endswith(tuple(i18n._OPENING)) for line in lines)
    assert i18n.wrap("  一二三", 40) == ["  一二三"], "an indentation stays"
    assert i18n.wrap("", 40) == [""]
    assert i18n.wrap("a " * 30, 40) == [("a " * 20).strip(), ("a " * 10).strip()]


# --- start-up ---------------------------------------------------------------------------------------


# --- nothing is forgotten ---------------------------------------------------------------------------

TRANSLATED = sorted(
    str(path.relative_to(ROOT / "envcheck"))
    for path in (ROOT / "envcheck").rglob("*.py")
    if re.search(r"\b(language|lang|say)\.translate\(|\.say\(", path.read_text())
)
"""Files that show text in the user's language."""

ENTIRELY = (
    "knowledge/rule_pages.py",
    "reports/details.py",
    "reports/formats/text.py",
    "reports/overview.py",
    "reports/plan_text.py",
)
"""Files whose every English phrase must go through the language."""

FROM_TABLES = {
    "knowledge/package_pages.py": {"matrix show ", "Python ", "   Python ", "python    ", "glibc ", "CUDA "},
    "memory/report.py": {"fp32 ckpt", " ckpt", "--seq N", "--ram GIB"},
    "reports/diff.py": {"derived from", "not known: "},
}
"""Files that also keep phrases in constants, and their constants that are names or parts of phrases."""

NAMES = {
    "GPU ",
    "envcheck pin --target ",
    "torch ",
    " GiB",
    "  envcheck  ",
    "  envcheck ",
    ", GPU ",
    "--train FILE",
    "--target NAME, --train FILE",
    "--gpu NAME",
    "--gpu NAME, --driver VERSION",
}
NAMES |= {*details._OUTCOMES.values()}  # looked up as words
"""Constants with letters and a space that are the same in every language."""


def constants(tree: ast.AST, method: str) -> Iterator[str]:
    """Yield the string constants in the first argument of calls of `.say(…)` or another method."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == method:
            yield from (
                each.value
                for each in ast.walk(node.args[0])
                if isinstance(each, ast.Constant) and isinstance(each.value, str)
            )


def dynamic() -> Iterator[str]:
    """Yield templates and words that the code composes or looks up, from the sets they come from."""
    yield from (f"{{}} {each.value}" for each in Severity)
    yield from (f"{{}} {each.value}s" for each in Severity)
    yield from (each.value for each in (*Severity, *Basis))
    yield from overview._CATEGORY_OF.values()
    yield from (phrase for key in TRAINING.values() for phrase in key.phrases.values())
    yield from (source["kind"] for row in RULES.values() for source in row["sources"])
    yield from ("undecided", "not installed", "training", "packages")
    yield from details._OUTCOMES.values()
    yield from (*diff._FAMILIES.values(), "Other", "Only in A", "Only in B", "In both")
    yield from (meaning for _, meaning in pair_page.LEGEND)
    yield from (template for verb in VERBS.values() for template in pair_page.code_reasons(verb))
    yield from (*package_pages.OUTCOME_WORDS, *package_pages.OUTCOME_WORDS.values())
    yield from package_pages.MARKS.values()
    yield from (*estimate.PARTS, *estimate.PARTS.values(), *estimate.PHASES.values())
    yield from ("fits", "tight", "does not fit", "cannot tell")
    yield from (word for words in headline._WORDS.values() for word in words if word)


@pytest.mark.parametrize("file", TRANSLATED)
def test_every_phrase_in_the_code_is_translated(file: str) -> None:
    tree = ast.parse((ROOT / "envcheck" / file).read_text())
    pieces = {"{} ", "s", "why", ""}  # parts of composed phrases, and arguments of getattr
    assert {each for each in constants(tree, "say") if each not in pieces} <= ZH["words"].keys()
    assert {each for each in constants(tree, "translate") if each not in pieces} <= ZH["sentences"].keys()


def test_every_word_that_is_looked_up_is_translated() -> None:
    assert sorted(set(dynamic()) - ZH["words"].keys()) == []


def test_every_change_that_fit_proposes_and_every_reason_of_fleet_is_translated() -> None:
    changes = {*options._CHANGES} - {"ZeRO"}
    changes = {
        {"16-bit precision": "16-bit precision (bf16)", "a smaller micro-batch": f"{each} of 2"}.get(
            each, each
        )
        for each in changes
    }
    fleet = tomllib.loads((ROOT / "compat/tables/fleet.toml").read_text())
    reasons = {
        row["why"] for rows in fleet.values() if isinstance(rows, list) for row in rows if "why" in row
    }
    assert len(reasons) > 20
    assert [each for each in sorted(changes | reasons) if not chinese(CHINESE.translate(each))] == []


def _unsaid(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Raise):
        return  # error messages stay English, because people search for them
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("say", "translate", "word")
    ):
        for each in node.args[1:]:
            yield from _unsaid(each)
        return
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return  # a docstring
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    match node:
        case ast.Call(func=ast.Name(id="Span" | "_detail"), args=[ast.Constant(value=str(label)), *_]) if (
            label
        ):
            yield f"{label} "
    for child in ast.iter_child_nodes(node):
        yield from _unsaid(child)


@pytest.mark.parametrize("file", ENTIRELY)
def test_every_phrase_goes_through_the_language(file: str) -> None:
    tree = ast.parse((ROOT / "envcheck" / file).read_text())
    unsaid = {each for each in _unsaid(tree) if re.search(r"[A-Za-z]{2,}\s|\s[A-Za-z]{2,}", each)}
    assert unsaid - NAMES == set()


@pytest.mark.parametrize("file", FROM_TABLES)
def test_every_phrase_kept_in_a_constant_is_translated(file: str) -> None:
    tree = ast.parse((ROOT / "envcheck" / file).read_text())
    unsaid = {each for each in _unsaid(tree) if re.search(r"[A-Za-z]{2,}\s|\s[A-Za-z]{2,}", each)}
    assert unsaid - NAMES - FROM_TABLES[file] - ZH["words"].keys() == set()


# --- the file itself --------------------------------------------------------------------------------


def places(template: str) -> int:
    return len(re.findall(r"\{\d?\}", template))


@pytest.mark.parametrize("table", ["words", "sentences"])
def test_placeholders_match(table: str) -> None:
    for english, template in ZH[table].items():
        assert places(english) == places(template), english
        if table == "sentences" and not places(english):
            continue  # it is shown as it is, braces of code included
        filled = template.format(*(f"<{number}>" for number in range(places(english))))
        assert all(f"<{number}>" in filled for number in range(places(english))), english


def versions(text: str) -> set[str]:
    return set(re.findall(r"\d+(?:\.\d+)+(?:\.post\d+)?", text))


@pytest.mark.parametrize("rule_id", ZH["rule"])
def test_a_translated_rule_has_the_same_numbers_and_names(rule_id: str) -> None:
    assert rule_id in RULES, "no such rule"
    row, ours = RULES[rule_id], ZH["rule"][rule_id]
    assert ours.keys() <= {"title", "why", "cost", "no_fix"}
    assert chinese(ours["title"])
    assert bool(ours.get("why")) == bool(row.get("why"))
    for key in ("title", "why"):
        assert versions(ours.get(key, "")) == versions(row.get(key, "")), key
    fixes = row.get("fix", [])
    assert len(ours.get("cost", [])) == len(fixes)
    by_english: dict[str, str] = {}
    for fix, cost in zip(fixes, ours.get("cost", []), strict=True):
        assert bool(cost) == bool(fix.get("cost"))
        assert versions(cost) == versions(fix.get("cost", ""))
        assert by_english.setdefault(fix.get("cost", ""), cost) == cost
    vain = [each["why"] for each in row.get("no_fix", [])]
    assert [versions(each) for each in ours.get("no_fix", [])] == [versions(each) for each in vain]


def test_the_title_of_every_rule_is_translated() -> None:
    """A title that is changed loses the translation that stands under its old words, and nothing else says so."""
    titles = {
        row["title"]: ZH["rule"].get(name, {}).get("title")
        for name, row in RULES.items()
        if "withdrawn" not in row
    }
    said = {english: own or ZH["sentences"].get(english, "") for english, own in titles.items()}
    assert [english for english, own in said.items() if not chinese(own)] == []
    assert [english for english, own in said.items() if versions(own) != versions(english)] == []


def test_the_founding_failures_and_at_least_45_rules_are_translated() -> None:
    assert set(FOUNDING) <= ZH["rule"].keys()
    assert len(ZH["rule"]) >= 45


def test_every_kind_of_finding_is_rendered_in_both_languages(facts: Path) -> None:
    """An undecided finding, a finding without a passing fix, and a source without a date."""
    report = examine.examine(examine.ExamineRequest(facts=str(facts)), Host())
    (finding, *_) = report.judgement.findings
    rule = finding.rule._replace(
        id="nobody-knows-it", sources=(Source("here", "docs", ""),), fixes=(Fix(()),)
    )
    findings = (
        finding._replace(rule=rule, fixes=()),
        finding._replace(rule=rule, verdict=Verdict.UNDECIDED, fixes=()),
    )
    changed = report._replace(judgement=report.judgement._replace(findings=findings))
    english = format_named("text")(changed)
    spoken = format_named("text")(changed._replace(language=CHINESE))
    assert "none of the known fixes" in english
    assert "已知的解决办法" in spoken
    assert "? 无法判定: " in spoken
    assert len(english.splitlines()) == len(spoken.splitlines())


# --- explain ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "table", ["exception_meaning", "general_meaning", "failure_line", "ending", "refused_value"]
)
def test_what_explain_says_of_a_message_is_translated(table: str) -> None:
    rows = loading.source_tree()["tables"][table]
    said = {row[key] for row in rows for key in ("means", "advice") if row.get(key)}
    assert {each for each in said if CHINESE.translate(each) == each} == set()


def test_known_failures_and_their_advice_are_translated() -> None:
    cases = [case for case in loading.source_tree()["case"] if case.get("signature") and not case.get("rule")]
    said = {case[key] for case in cases for key in ("title", "explain") if case.get(key)}
    assert {each for each in said if CHINESE.translate(each) == each} == set()


def test_the_environment_of_a_log_is_translated() -> None:
    said = "judged  the environment that the log describes: torch 2.8.0 (line 3), python 3.10 (line 6)"
    assert re.search("[a-z]{3,}", re.sub("torch|python", "", CHINESE.translate(said))) is None


def test_a_title_that_is_followed_by_its_rule_is_translated() -> None:
    rule = "driver-below-cuda-family-floor"
    english, own = RULES[rule]["title"], ZH["rule"][rule]["title"]
    line = (
        f"- {english} ({rule}), here driver 470.42.01; that leaves torch 1.8.0 to 2.0.1 (14 of 40 releases)"
    )
    said = CHINESE.translate(line)
    assert said.startswith(f"- {own} ({rule})")
    assert english not in said
    assert "470.42.01" in said
    assert "14 / 40" in said
    assert CHINESE.translate(f"{english} (no-such-rule)") == f"{english} (no-such-rule)"


@pytest.mark.parametrize("claim", claims(), ids=lambda claim: str(claim.name))
def test_what_a_selftest_claims_is_chinese(claim: SelftestDeclaration) -> None:
    said = CHINESE.translate(f"{claim.name}: {claim.title}")
    assert said.startswith(f"{claim.name}：")  # noqa: RUF001 - a Chinese colon
    assert claim.title not in said


def test_a_report_on_selftests_is_chinese() -> None:
    claim, *_ = claims()
    variant = SelftestVariant("a", {}, {}, ("cpu",))
    outcomes = (
        Outcome(claim, variant, PASS, "", seconds=0.5),
        Outcome(claim, variant._replace(name="b"), FAIL, "RuntimeError: x", seconds=0.5, rule=FOUNDING[0]),
        Outcome(claim, variant._replace(name="c"), SKIP, "needs a GPU", seconds=0.0),
    )
    report = SelftestReport("0.1.0", "/env/bin/python (named by --python)", "cpu", outcomes)
    lines = [CHINESE.translate(line.strip()) for line in render_report(report).splitlines()]
    untold = [line for line in lines if line and not chinese(line)]
    assert untold == ["[✓] a  0.5 s", "[✗] b  0.5 s", "RuntimeError: x"]


def test_a_clause_is_translated_but_for_its_values() -> None:
    assert CHINESE.alternatives("absent or trl or none") == "无 或 trl 或 none"
    assert i18n.ENGLISH.alternatives("absent or trl") == "absent or trl"


def test_an_exception_that_is_quoted_from_a_log_stays_as_it_is() -> None:
    quoted = "AttributeError: 'A' object has no attribute 'b'. Did you mean: 'c'?"

    assert CHINESE.translate(f"Failed: {quoted}").endswith(quoted)
    assert CHINESE.translate(quoted.replace("AttributeError: ", "")) != quoted.replace("AttributeError: ", "")
