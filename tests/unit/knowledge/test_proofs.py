"""Proofs of version bounds: what is opened, what is looked for, what lint refuses."""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from packaging.requirements import Requirement

from envcheck import probes
from envcheck.commands import loading
from envcheck.core.errors import NoSolutionError
from envcheck.core.rules import Rule
from envcheck.knowledge import lint
from envcheck.knowledge.load import build_matrix, gather_tree
from envcheck.knowledge.proofs import checks, records, running, verification
from envcheck.knowledge.proofs.checks import Sight
from envcheck.knowledge.proofs.declaration import Proof, ReadCheck, RunCheck, read_proof
from envcheck.knowledge.proofs.records import ProofRecord, SeenRelease
from envcheck.knowledge.proofs.running import RunResult
from envcheck.knowledge.proofs.verification import Supply


@dataclass(frozen=True)
class Files:
    """A release that stands in a test."""

    texts: Mapping[str, str] = field(default_factory=dict)
    needs: Sequence[str] = ()
    built: Sequence[str] = ()

    def text(self, name: str) -> str | None:
        return self.texts.get(name)

    def requires(self) -> Sequence[str]:
        return self.needs

    def wheels(self) -> Sequence[str]:
        return self.built


MODULE = '''
try:
    from fast import thing
except ImportError:
    thing = None

_import_structure = {"deep": ["Lazy"]}

class Trainer:
    def __init__(self, model, *, quick=True):
        """Set it up."""
        self.model = model  # the line

    def other(self, late=1):
        return late
'''


def read_check(**given: Any) -> ReadCheck:
    proof, problems = read_proof({"reads": [{"pkg": "peft", **given}]})
    assert not problems
    return proof.reads[0]


@pytest.mark.parametrize(
    ("given", "found", "seen"),
    [
        ({"file": "a.py", "has": r"self\.model = model"}, True, "self.model = model # the line"),
        ({"file": "a.py", "has": "nowhere"}, False, "no nowhere"),
        ({"file": "a.py", "lacks": "nowhere"}, True, "no nowhere"),
        ({"file": "a.py", "lacks": "class Trainer"}, False, "class Trainer:"),
        ({"file": "gone.py", "has": "x"}, False, "no gone.py"),
        ({"file": "gone.py", "lacks": "x"}, True, "no gone.py"),
        ({"file": ["gone.py", "a.py"], "has": "class Trainer"}, True, "class Trainer:"),
        ({"file": "a.py", "scope": "Trainer.other", "has": "self.model"}, False, "no self.model"),
        ({"file": "a.py", "scope": "Trainer.gone", "has": "x"}, False, "no Trainer.gone"),
        ({"file": "a.py", "scope": "Trainer.__init__", "keyword": "quick"}, True, "Trainer.__init__(quick=)"),
        ({"file": "a.py", "scope": "Trainer.__init__", "keyword": "late"}, False, "no late="),
        ({"file": "a.py", "scope": "Trainer.__init__", "lacks_keyword": "late"}, True, "no late="),
        ({"name": "pack.thing"}, True, "pack.thing"),
        ({"name": "pack.Lazy"}, True, "pack.Lazy"),
        ({"name": "pack.Gone"}, False, "no pack.Gone"),
        ({"lacks_name": "pack.other"}, True, "no pack.other"),
        ({"name": "pack"}, True, "pack"),
        ({"wheels": "-cp312-"}, True, "p-1-cp312-cp312-linux_x86_64.whl"),
        ({"lacks_wheels": "-cp313-"}, True, "none of 1 wheels is -cp313-"),
    ],
)
def test_what_a_check_finds(given: dict[str, Any], found: bool, seen: str) -> None:
    release = Files({"a.py": MODULE, "pack/__init__.py": MODULE}, built=["p-1-cp312-cp312-linux_x86_64.whl"])
    assert checks.look(read_check(**given), release) == Sight(found, seen)


def test_a_file_that_python_cannot_parse_is_said_so() -> None:
    with pytest.raises(ValueError, match="cannot be parsed"):
        checks.look(read_check(file="a.py", scope="f", has="x"), Files({"a.py": "def f(:"}))


@pytest.mark.parametrize(
    ("given", "needs", "demanded"),
    [
        ({"requires": "torch"}, ["torch (>=2.1,<3)"], "<3,>=2.1"),
        ({"requires": "torch"}, ["torchvision>=1"], None),
        ({"requires": "torch"}, ['torch>=9; sys_platform == "win32"', "Torch>=2"], ">=2"),
        ({"requires": "vllm", "extra": "vllm"}, ['vllm>=0.10; extra == "vllm"'], ">=0.10"),
        ({"requires": "vllm"}, ['vllm>=0.10; extra == "vllm"'], None),
        ({"requires": "nccl", "lowest": True}, ["nccl==2.27.5"], ">=2.27.5"),
        ({"file": "a.py", "names_bound": r'FLOOR = "([\d.]+)"', "of": "torch"}, [], ">=2.4"),
        ({"file": "gone.py", "names_bound": r'FLOOR = "([\d.]+)"', "of": "torch"}, [], None),
    ],
)
def test_what_a_release_demands_of_another_package(
    given: dict[str, Any], needs: list[str], demanded: str | None
) -> None:
    assert checks.bound(read_check(**given), Files({"a.py": 'FLOOR = "2.4"\n'}, needs)) == demanded


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        ("none", "expected a table"),
        ({}, 'expected reads, runs or none = "why"'),
        ({"none": "why", "noon": 1}, "unknown key 'noon'"),
        ({"reads": {}}, "reads: expected a list of tables"),
        ({"reads": [{"file": "a.py", "has": "x"}]}, "expected pkg"),
        ({"reads": [{"pkg": "peft", "fle": "a.py"}]}, "unknown key 'fle'"),
        ({"reads": [{"pkg": "peft"}]}, "something to look for"),
        ({"reads": [{"pkg": "peft", "has": "x"}]}, "expected file together with"),
        ({"reads": [{"pkg": "peft", "file": "a.py", "has": "("}]}, "not a regular expression"),
        ({"reads": [{"pkg": "peft", "file": "a.py", "keyword": "x"}]}, "expected scope"),
        ({"reads": [{"pkg": "peft", "file": "a.py", "names_bound": "(x)"}]}, "names_bound together with of"),
        ({"runs": [{"pkg": "peft", "program": "pass"}]}, "expected pkg, program and either fails or fix"),
        ({"runs": [{"pkg": "peft", "program": "if", "fails": "x"}]}, "invalid syntax"),
        ({"runs": [{"pkg": "peft", "program": "pass", "fix": 0}]}, "expected a number above 0"),
        (
            {"runs": [{"pkg": "peft", "program": "pass", "fails": "x", "beside": ["a b"]}]},
            "'a b': not a requirement",
        ),
        ({"none": "why", "unopened": {"peft": ""}}, "unopened: expected a reason"),
    ],
)
def test_a_mistake_in_a_proof_is_named(raw: Any, message: str) -> None:
    _, problems = read_proof(raw)
    assert any(message in problem for problem in problems), problems


# --- proving ----------------------------------------------------------------------------------------

RULE = """
[[rule]]
id = "a-rule"
severity = "error"
basis = "source"
title = "it breaks"
when = {when}
{proof}
sources = [{{ url = "https://example.org/1", kind = "source", checked = 2026-11-20 }}]
[[rule.fix]]
set = {fix}
"""
READS_X = "proof.reads = [{ pkg = 'peft', file = 'a.py', has = 'x' }]"


def rule_text(when: str, proof: str = READS_X, fix: str = '{ "pkg.peft" = ">=0.16.0" }') -> str:
    return RULE.format(when=when, proof=proof, fix=fix)


def rule_of(text: str) -> tuple[Rule, Proof]:
    tree = gather_tree({"rules/peft.toml": text})
    proof, problems = read_proof(tomllib.loads(text)["rule"][0]["proof"])
    assert not problems
    return build_matrix(tree, loading.vocabulary(probes.every_probe())).rules[0], proof


def no_run(_check: RunCheck, _requirements: Sequence[str]) -> RunResult:
    raise AssertionError


def supply(releases: Mapping[str, Mapping[str, Files]], since: str = "", run: running.Run = no_run) -> Supply:
    return Supply(
        releases={name: list(files) for name, files in releases.items()},
        since={"peft": since},
        open=lambda package, version: releases[package][version],
        run=run,
    )


def peft(**texts: str) -> dict[str, dict[str, Files]]:
    return {"peft": {f"0.{minor[1:]}.0": Files({"a.py": text}) for minor, text in texts.items()}}


def test_neighbours_ends_and_fixes_are_opened_and_a_true_rule_is_not_contradicted() -> None:
    rule, proof = rule_of(rule_text('{ "pkg.peft" = ">=0.13.0,<0.16.0" }'))
    found = verification.prove(
        rule, proof, supply(peft(v11="", v12="", v13="x", v14="x", v15="x", v16="", v17="", v18=""))
    )
    assert [(seen.version, seen.side) for seen in found] == [
        ("0.12.0", "outside"),
        ("0.13.0", "inside"),
        ("0.15.0", "inside"),
        ("0.16.0", "outside"),
        ("0.16.0", "fix 1"),
        ("0.18.0", "fix 1"),
    ]
    assert records.contradictions(rule, proof, found) == []


@pytest.mark.parametrize(
    ("texts", "contradicting"),
    [
        ({"v14": "x", "v15": "x", "v16": "x", "v17": ""}, ["0.16.0 outside", "0.16.0 fix 1"]),
        ({"v14": "x", "v15": "", "v16": "", "v17": ""}, ["0.15.0 inside"]),
        ({"v14": "x", "v15": "x", "v16": "", "v17": "x"}, ["0.17.0 fix 1"]),
    ],
)
def test_a_bound_too_narrow_too_wide_or_a_fix_that_fails_is_found(
    texts: dict[str, str], contradicting: list[str]
) -> None:
    rule, proof = rule_of(rule_text('{ "pkg.peft" = "<0.16.0" }'))
    found = verification.prove(rule, proof, supply(peft(**texts)))
    against = records.contradictions(rule, proof, found)
    assert [f"{seen.version} {seen.side}" for seen in against] == contradicting


def test_the_oldest_listed_release_of_an_open_range_is_opened() -> None:
    rule, proof = rule_of(rule_text('{ "pkg.peft" = "<0.16.0" }'))
    files = peft(v10="", v11="", v15="x", v16="")
    found = verification.prove(rule, proof, supply(files, since="0.11.0"))
    assert [seen.version for seen in records.contradictions(rule, proof, found)] == ["0.11.0"]


def test_an_exception_needs_the_release_and_covers_no_other() -> None:
    text = rule_text('{ "pkg.peft" = "<0.16.0" }', READS_X + '\nproof.except = { "peft <0.12" = "older" }')
    rule, proof = rule_of(text)
    found = verification.prove(rule, proof, supply(peft(v11="", v15="x", v16=""), since="0.11.0"))
    assert records.contradictions(rule, proof, found) == []
    refuted = SeenRelease("peft", "0.12.0", "inside", agrees=False, seen="")
    assert records.contradictions(rule, proof, [refuted]) == [refuted]


RUNS_X = (
    """proof.runs = [{ pkg = 'peft', beside = ['trl<1', 'accelerate'], fails = 'x', program = 'train()' }]"""
)


def failing_with(broken: set[str], asked: list[list[str]]) -> running.Run:
    """Return a stand-in for programs that fail as stated beside `broken`; `asked` collects what was installed."""

    def run(_check: RunCheck, requirements: Sequence[str]) -> RunResult:
        asked.append(list(requirements))
        if "trl==0" in requirements:
            raise NoSolutionError("none")
        fails = not broken.isdisjoint(requirements)
        parsed = [Requirement(line) for line in requirements]
        releases = {each.name: str(each.specifier).removeprefix("==") for each in parsed}
        return RunResult(not fails, fails, "x" if fails else "works", releases)

    return run


def run_rule(text: str, broken: set[str]) -> tuple[list[str], list[list[str]], list[str]]:
    """Return what was seen, what was installed, and what contradicts a rule that is proven by a program."""
    rule, proof = rule_of(text)
    asked: list[list[str]] = []
    releases = supply(
        peft(v11="", v12="", v13="", v14="", v15="", v16="", v17=""), run=failing_with(broken, asked)
    )
    found = verification.prove(rule, proof, releases)
    against = records.contradictions(rule, proof, found)
    return [f"{s.version} {s.side}" for s in found], asked, [f"{s.version} {s.side}" for s in against]


def test_a_program_runs_in_each_release_of_a_short_range_and_with_the_fix_beside_what_is_newest() -> None:
    text = rule_text('{ "pkg.peft" = ">=0.13.0,<0.16.0", "pkg.trl" = "<1" }', RUNS_X)
    seen, asked, against = run_rule(text, {"peft==0.13.0", "peft==0.14.0", "peft==0.15.0"})
    inside = ["0.13.0 inside", "0.14.0 inside", "0.15.0 inside"]
    assert seen[:5] == ["0.12.0 outside", *inside, "0.16.0 outside"]
    assert asked[:2] == [["peft==0.12.0", "trl<1", "accelerate"], ["peft==0.13.0", "trl<1", "accelerate"]]
    assert seen[5:] == ["0.16.0 fix 1 run", ">=0.16.0 fix 1 run"]
    # The rule bounds TRL, so the fix leaves it where it fails; accelerate is free.
    assert asked[5:] == [["peft==0.16.0", "trl<1", "accelerate"], ["peft>=0.16.0", "trl<1", "accelerate"]]
    assert against == []


def test_a_release_in_the_middle_that_runs_is_found() -> None:
    text = rule_text('{ "pkg.peft" = ">=0.13.0,<0.16.0" }', RUNS_X)
    assert run_rule(text, {"peft==0.13.0", "peft==0.15.0"})[2] == ["0.14.0 inside"]


def test_only_the_releases_that_a_program_can_run_in_are_run() -> None:
    runs = RUNS_X.replace("fails", "among = '>=0.14', fails")
    seen, _, against = run_rule(
        rule_text('{ "pkg.peft" = ">=0.12.0,<0.16.0" }', runs), {"peft==0.14.0", "peft==0.15.0"}
    )
    assert seen[:3] == ["0.14.0 inside", "0.15.0 inside", "0.16.0 outside"]
    assert against == []


def test_a_release_that_nothing_fits_is_left_out_unless_there_is_no_other() -> None:
    released = peft(v11="", v12="", v13="", v14="", v15="", v16="", v17="")
    rule, proof = rule_of(rule_text('{ "pkg.peft" = ">=0.13.0,<0.16.0" }', RUNS_X))

    def refusing(unfit: set[str]) -> running.Run:
        def run(check: RunCheck, requirements: Sequence[str]) -> RunResult:
            if not unfit or not unfit.isdisjoint(requirements):
                raise NoSolutionError("none fits")
            return failing_with({f"peft==0.{minor}.0" for minor in (13, 14, 15)}, [])(check, requirements)

        return run

    found = verification.prove(rule, proof, supply(released, run=refusing({"peft==0.14.0"})))
    assert "0.14.0" not in [seen.version for seen in found]
    assert records.contradictions(rule, proof, found) == []
    with pytest.raises(NoSolutionError):
        verification.prove(rule, proof, supply(released, run=refusing(set())))


def test_a_fix_that_fails_beside_what_is_newest_is_refused_although_its_own_release_was_opened() -> None:
    text = rule_text('{ "pkg.peft" = "<0.16.0" }', f"{READS_X}\n{RUNS_X}", '{ "pkg.peft" = ">=0.16.0" }')
    rule, proof = rule_of(text)
    opened = [
        SeenRelease("peft", "0.16.0", "fix 1", agrees=True, seen=""),
        SeenRelease("peft", "0.17.0", "fix 1 run", agrees=False, seen="x"),
    ]
    assert records.contradictions(rule, proof, opened) == opened[1:]


def test_a_fix_whose_releases_do_not_fit_together_is_refused() -> None:
    text = rule_text('{ "pkg.peft" = "<0.16.0" }', RUNS_X, '{ "pkg.trl" = "==0" }')
    assert run_rule(text, {f"peft==0.{minor}.0" for minor in range(11, 16)})[2] == ["==0 fix 1 run"]


def test_a_fix_that_changes_torch_is_not_run_since_all_programs_share_one() -> None:
    text = rule_text('{ "pkg.peft" = "<0.16.0" }', RUNS_X, '{ "pkg.torch" = "==0" }')
    seen, _, against = run_rule(text, {f"peft==0.{minor}.0" for minor in range(11, 16)})
    assert not [side for side in seen if "fix" in side]
    assert against == []


def test_a_setting_as_a_fix_has_a_program_of_its_own_that_must_pass_inside_the_bounds() -> None:
    runs = "proof.runs = [{ pkg = 'peft', fix = 1, program = 'train(packing=False)' }]"
    text = rule_text('{ "pkg.peft" = ">=0.13.0,<0.15.0" }', runs, '{ "train.packing" = false }')
    assert run_rule(text, set())[::2] == (["0.13.0 fix 1 run", "0.14.0 fix 1 run"], [])
    assert run_rule(text, {"peft==0.14.0"})[2] == ["0.14.0 fix 1 run"]


def test_a_package_that_the_rule_does_not_bound_is_run_in_its_newest_release() -> None:
    text = rule_text('{ "pkg.trl" = "<1", "train.packing" = true }', RUNS_X, '{ "pkg.trl" = ">=1" }')
    seen, _, against = run_rule(text, {"trl<1"})
    assert (seen[0], against) == ("0.17.0 inside", [])


def test_a_rule_must_refuse_exactly_what_the_metadata_refuses() -> None:
    when = '{ "pkg.peft" = ">=0.15.0", "pkg.torch" = "<2.4" }'
    reads = "proof.reads = [{ pkg = 'peft', requires = 'torch' }]"
    rule, proof = rule_of(rule_text(when, reads, '{ "pkg.torch" = ">=2.4.0" }'))
    torch = {version: Files() for version in ("2.3.0", "2.4.0", "2.5.0")}
    true = {"0.14.0": Files(), "0.15.0": Files(needs=["torch>=2.4"]), "0.16.0": Files(needs=["torch>=2.4"])}
    found = verification.prove(rule, proof, supply({"peft": true, "torch": torch}))
    assert records.contradictions(rule, proof, found) == []
    assert [seen.name for seen in found if seen.side == "fix 1"] == ["torch 2.4.0", "torch 2.5.0"]

    raised = {**true, "0.16.0": Files(needs=["torch>=2.5"])}
    found = verification.prove(rule, proof, supply({"peft": raised, "torch": torch}))
    against = {seen.name: seen.seen for seen in records.contradictions(rule, proof, found)}
    assert against["peft 0.16.0"] == "torch >=2.5; not in the rule: 2.4.0"
    assert "torch 2.4.0" in against


# --- records and lint -------------------------------------------------------------------------------

RELEASES = 'release = [{ package = "peft", version = "0.15.0" }, { package = "peft", version = "0.15.1", yanked = true }, { package = "peft", version = "0.16.0" }]\n'
CASES = """
[[case]]
id = "{id}"
expect = "{expect}"
rule = "a-rule"
title = "seen"
sources = [{{ url = "https://example.org/1", kind = "issue", checked = 2026-11-20 }}]
[case.facts]
complete = ["pkg"]
pkg = {{ peft = "{version}" }}
"""


def linted(text: str, opened: Sequence[SeenRelease] | None, digest: str = "") -> list[str]:
    row = tomllib.loads(text)["rule"][0]
    texts = {
        "rules/peft.toml": text,
        "cases/peft.toml": CASES.format(id="a", expect="broken", version="0.15.0")
        + CASES.format(id="b", expect="fine", version="0.16.0"),
        "tables/releases.toml": RELEASES,
        "matrix.toml": '[known_through]\npeft = "0.16.0"\n',
    }
    if opened is not None:
        record = ProofRecord("a-rule", "2026-11-21", digest or records.proof_digest(row), tuple(opened))
        texts["proofs/peft.toml"] = records.render_records([record])
    found = lint.lint(texts, loading.vocabulary(probes.every_probe()), dt.date(2026, 11, 21))
    assert all(problem.file == "rules/peft.toml" for problem in found)
    return [problem.message for problem in found if problem.kind == "proof"]


def row(version: str, side: str, *, agrees: bool = True) -> SeenRelease:
    return SeenRelease("peft", version, side, agrees, 'seen "so"')


FULL = (row("0.15.0", "inside"), row("0.16.0", "outside"), row("0.16.0", "fix 1"))
WHEN = '{ "pkg.peft" = "<0.16.0" }'


def test_an_error_rule_with_a_current_record_of_both_sides_and_the_fix_is_clean() -> None:
    assert linted(rule_text(WHEN), FULL) == []


def test_an_error_rule_needs_a_proof_and_a_warning_does_not() -> None:
    without = rule_text(WHEN, "")
    assert linted(without, None) == ["expected a proof of the bounds on peft, or proof.none with the reason"]
    assert linted(without.replace('severity = "error"', 'severity = "warning"'), None) == []
    assert linted(rule_text(WHEN, 'proof.none = "needs a GPU"'), None) == []


@pytest.mark.parametrize(
    ("opened", "digest", "message"),
    [
        (None, "", "expected a record of this proof; found none"),
        (FULL, "0123456789abcdef", "found one of another text"),
        (FULL[1:], "", "expected peft 0.15.0 and 0.16.0 in the record"),
        (FULL[:2], "", "expected the fix peft 0.16.0 in the record"),
        ((FULL[0], FULL[1], row("0.16.0", "fix 1", agrees=False)), "", "peft 0.16.0 (fix 1) contradicts"),
        ((FULL[0], row("0.16.0", "outside", agrees=False), FULL[2]), "", "(outside) contradicts the rule"),
        *(
            (
                (FULL[0], *(each._replace(seen=f"{nothing}x") for each in FULL[1:])),
                "",
                "expected peft 0.15.0 and",
            )
            for nothing in (records.OTHERWISE, records.NOT_BUILT, records.NOT_DONE)
        ),
    ],
)
def test_a_record_that_is_missing_stale_incomplete_or_against_the_rule_is_refused(
    opened: Sequence[SeenRelease] | None, digest: str, message: str
) -> None:
    (found,) = linted(rule_text(WHEN), opened, digest)
    assert message in found


def test_a_bound_of_a_package_that_no_check_opens_is_refused_unless_it_says_why() -> None:
    when = '{ "pkg.peft" = "<0.16.0", "pkg.torch" = ">=2.4" }'
    assert linted(rule_text(when), FULL) == [
        "expected a check of torch >=2.4, or the reason under proof.unopened"
    ]
    assert linted(rule_text(when, READS_X + '\nproof.unopened = { torch = "compiled" }'), FULL) == []


def test_a_file_of_records_that_cannot_be_read_is_one_problem() -> None:
    texts = {"proofs/peft.toml": "[[proof]]\nrule = 1\n"}
    found = lint.lint(texts, loading.vocabulary(probes.every_probe()), dt.date(2026, 11, 21))
    assert [(problem.kind, problem.file) for problem in found] == [("proof", "proofs/peft.toml")]


def test_records_survive_writing_and_reading() -> None:
    record = ProofRecord(
        "a-rule", "2026-11-21", "00ff", (SeenRelease("peft", "0.15.0", "inside", True, 'a "b" \\c'),)
    )
    assert records.read_records({"proofs/peft.toml": records.render_records([record])}) == {"a-rule": record}
