"""Settings and policy on the command line: what shuts a gate, what is let through, and what mistakes are told."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.support.running import Outcome, envcheck

DEEPSPEED = "deepspeed-elastic-log-import-torch24"
BROKEN = 'complete = ["pkg"]\n[python]\nversion = "3.11.9"\n[pkg]\ntorch = "2.4.0"\ndeepspeed = "0.14.0"\n'
FINE = BROKEN.replace("0.14.0", "0.15.4")
WARNED = FINE.replace('version = "3.11.9"', 'version = "3.11.9"\n[gpus]\ncount = 1').replace(
    '"2.4.0"', '"2.4.0+cpu"'
)
WAIVE = '[[waive]]\nrule = "{}"\nreason = "we patch it"\nuntil = {}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "broken.toml").write_text(BROKEN)
    (tmp_path / "fine.toml").write_text(FINE)
    (tmp_path / "warned.toml").write_text(WARNED)
    unread = '[unknown]\n"build.torch.cuda" = "not readable"\n'
    (tmp_path / "unread.toml").write_text(FINE + '[driver]\nversion = "535.54.03"\n' + unread)
    return tmp_path


def gate(folder: Path, facts: str, *more: str, settings: str = "") -> Outcome:
    if settings:
        (folder / "envcheck.toml").write_text(settings)
    return envcheck("gate", "--facts", f"{facts}.toml", *more, cwd=folder)


def answer(outcome: Outcome) -> str:
    return outcome.out.splitlines()[0]


SHUT = "gate shut: 1 error. DeepSpeed before 0.14.1 cannot be imported beside torch 2.4 or newer"


# --- thresholds -------------------------------------------------------------------------------------


def test_the_option_overrides_the_threshold_of_the_settings(folder: Path) -> None:
    assert gate(folder, "warned").code == 0
    strict = gate(folder, "warned", settings='threshold = "warning"\n')
    assert (strict.code, answer(strict)[:24]) == (1, "gate shut: 1 warning. to")
    assert gate(folder, "warned", "--fail-on", "error").code == 0


def test_the_policy_on_undecided_rules(folder: Path) -> None:
    for word, code, said in (
        ("pass", 0, "gate open: no known problem"),
        (
            "warn",
            0,
            "gate open: no known problem, but 2 checks could not be decided. Possible problem: The NVIDIA driver",
        ),
        (
            "fail",
            1,
            "gate shut: 2 checks could not be decided. Possible problem: The NVIDIA driver is too old",
        ),
    ):
        ran = gate(folder, "unread", settings=f'undecided = "{word}"\n')
        assert (ran.code, answer(ran).startswith(said)) == (code, True), ran.out
        assert ("could not be decided" in answer(ran)) == (word != "pass")
    assert gate(folder, "unread", "--undecided", "pass").code == 0


HOUSE = """[[rule]]
id = "house-no-deepspeed"
severity = "error"
basis = "measured"
title = "House rule: no DeepSpeed here"
when = [{ "pkg.deepspeed" = "present" }]
sources = [{ url = "https://house.example/1", kind = "docs", checked = 2026-11-20 }]
"""


@pytest.mark.parametrize(
    "words",
    [
        ("doctor", "--facts", "fine.toml"),
        ("gate", "--facts", "fine.toml", "--manifest", "none"),
        ("check", "requirements.txt"),
        ("fleet", "fine.toml"),
    ],
    ids=lambda words: words[0],
)
def test_every_command_that_judges_reads_matrix_target_and_train(
    words: tuple[str, ...], folder: Path
) -> None:
    (folder / "house.toml").write_text(HOUSE)
    (folder / "requirements.txt").write_text("torch==2.4.0\ndeepspeed==0.15.4\nnumpy==1.26.4\n")
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    settings = 'matrix = ["house.toml"]\ntarget = "zero3-lora"\ntrain = ["ds.json"]\n'
    (folder / "envcheck.toml").write_text(settings)
    ran = envcheck(*words, cwd=folder)
    assert ran.code == 1
    assert "House rule: no DeepSpeed here" in ran.out
    assert "on how you train (give --train FILE)" in ran.out
    (folder / "envcheck.toml").write_text('treshold = "error"\n')
    assert "did you mean 'threshold'?" in envcheck(*words, cwd=folder).err


def test_strict_fails_on_warnings_and_undecided_rules(folder: Path) -> None:
    assert (gate(folder, "warned", "--strict").code, gate(folder, "unread", "--strict").code) == (1, 1)
    assert gate(folder, "warned", "--strict", "--fail-on", "error").code == 0
    assert gate(folder, "fine", "--strict").code == 0


def test_the_settings_change_the_severity_of_a_rule(folder: Path) -> None:
    ran = gate(folder, "broken", settings=f'[severity]\n"{DEEPSPEED}" = "note"\n')
    assert (ran.code, answer(ran)[:26]) == (0, "gate open: no known proble")
    assert "· note: DeepSpeed before 0.14.1" in ran.out


def test_only_and_skip(folder: Path) -> None:
    assert gate(folder, "broken", "--skip", DEEPSPEED).code == 0
    assert gate(folder, "broken", "--only", "torch-torchvision-mismatch").code == 0
    row = gate(folder, "broken", "--only", "atlas:")  # which the written rule repeats
    assert (row.code, "[atlas:deepspeed:torch]" in row.out) == (1, True)
    only = gate(folder, "broken", "--only", DEEPSPEED)
    assert (only.code, answer(only)) == (1, SHUT)
    wrong = gate(folder, "broken", "--only", DEEPSPEED[:-1])
    assert (wrong.code, wrong.err) == (
        2,
        f"envcheck: --only: no such rule '{DEEPSPEED[:-1]}'; did you mean '{DEEPSPEED}'?\n",
    )


# --- waivers ----------------------------------------------------------------------------------------


def test_a_waiver_opens_the_gate_and_is_shown(folder: Path) -> None:
    ran = gate(folder, "broken", settings=WAIVE.format(DEEPSPEED, "2099-01-01"))
    assert (ran.code, answer(ran).endswith("; 1 waived")) == (0, True)
    assert "note    waived until 2099-01-01: we patch it (envcheck.toml:2)" in ran.out


def test_an_expired_waiver_has_no_effect_and_is_a_finding(folder: Path) -> None:
    ran = gate(folder, "broken", settings=WAIVE.format(DEEPSPEED, "2026-01-01"))
    assert (ran.code, answer(ran)) == (1, SHUT.replace("1 error", "1 error, 1 warning"))
    assert f"a waiver of {DEEPSPEED} has expired [waiver:expired]" in ran.out


def test_a_waiver_that_matches_nothing_is_a_finding(folder: Path) -> None:
    ran = gate(folder, "fine", settings=WAIVE.format(DEEPSPEED, "2099-01-01"))
    assert ran.code == 0
    assert f"! warning: a waiver of {DEEPSPEED} matches nothing here [waiver:unused]" in ran.out
    shut = answer(gate(folder, "fine", "--strict"))
    assert shut == f"gate shut: 1 warning. a waiver of {DEEPSPEED} matches nothing here"


def test_a_waiver_of_a_rule_that_waits_is_not_called_unused(folder: Path) -> None:
    waiting = json.loads(gate(folder, "fine", "--json").out)["waiting"][0]["rule"]
    ran = gate(folder, "fine", settings=WAIVE.format(waiting, "2099-01-01"))
    assert (ran.code, "waiver:unused" in ran.out) == (0, False)


def test_a_waiver_of_a_kind_of_generated_rules(folder: Path) -> None:
    (folder / "lock.txt").write_text("torch==2.4.0\ntrl==0.12.0\npeft==0.14.0\n")
    waive = WAIVE.format("lock:missing:", "2099-01-01")
    ran = gate(folder, "fine", "--lock", "lock.txt", settings=waive)
    assert (ran.code, answer(ran).endswith("; 2 waived")) == (0, True)


def test_the_policy_applies_to_configuration_diagnostics_too(folder: Path) -> None:
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 2, "stagee": 3}}')
    train = ("--train", "ds.json")
    shut = gate(folder, "fine", *train)
    assert (shut.code, answer(shut)[:38]) == (1, "gate shut: 1 error. ds.json:1:36: zero")
    assert gate(folder, "fine", *train, "--skip", "remark:unknown-key").code == 0
    waived = gate(folder, "fine", *train, settings=WAIVE.format("remark:unknown-key", "2099-01-01"))
    assert (waived.code, answer(waived)) == (0, "gate open: no known problem; 1 waived")
    noted = gate(folder, "fine", *train, settings='[severity]\n"remark:" = "note"\n')
    assert (noted.code, answer(noted)) == (0, "gate open: no known problem")


def test_no_policy_lets_a_configuration_pass_that_could_not_be_read(folder: Path) -> None:
    (folder / "ds.json").write_text("{")
    (folder / "more.json").write_text('{"zero_optimization": {"stage": 2}}')
    words = ("--train", "ds.json", "--train", "more.json", "--skip", "remark:")
    settings = WAIVE.format("remark:unreadable", "2099-01-01")
    assert gate(folder, "fine", *words, settings=settings).code == 2


# --- mistakes ---------------------------------------------------------------------------------------

WRONG = """\
[tool.envcheck]
treshold = "error"
undecided = "maybe"
machines = "a100-r535"
skip = [3]

[tool.envcheck.machine.mine]
driver = 535
gpus = "A100"

[tool.envcheck.severity]
"a-rule" = "fatal"

[[tool.envcheck.waive]]
rule = "a-rule"
reason = "because"
until = 2099-01-01

[[tool.envcheck.waive]]
rule = "b-rule"
until = "soon"
"""


def test_all_mistakes_are_reported_at_once_with_their_places(folder: Path) -> None:
    (folder / "pyproject.toml").write_text(WRONG)
    ran = gate(folder, "fine")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.splitlines() == [
        "envcheck: pyproject.toml:2:1: tool.envcheck.treshold: no such setting; did you mean 'threshold'?",
        "pyproject.toml:3:1: tool.envcheck.undecided: expected one of pass, warn, fail, found 'maybe'",
        "pyproject.toml:4:1: tool.envcheck.machines: expected a list of names of machines, found 'a100-r535'",
        "pyproject.toml:5:1: tool.envcheck.skip: expected a list of rules, found [3]",
        "pyproject.toml:8:1: tool.envcheck.machine.mine.driver: expected a version such as 550.54.15 in quotes, found 535",
        "pyproject.toml:9:1: tool.envcheck.machine.mine.gpus: no such setting; did you mean 'gpu'?",
        "pyproject.toml:12:2: tool.envcheck.severity.a-rule: expected one of error, warning, note, found 'fatal'",
        "pyproject.toml:19:1: tool.envcheck.waive.reason: expected a text, found nothing",
        "pyproject.toml:21:1: tool.envcheck.waive.until: expected a date such as 2027-03-01, found 'soon'",
    ]


def test_settings_that_cannot_be_read_are_not_passed_over(folder: Path) -> None:
    (folder / "envcheck.toml").symlink_to("gone.toml")
    ran = gate(folder, "broken")
    assert (ran.code, ran.out, ran.err) == (2, "", "envcheck: envcheck.toml: no such file or directory\n")
    (folder / "envcheck.toml").unlink()
    os.mkfifo(folder / "envcheck.toml")
    ran = gate(folder, "broken")
    assert (ran.code, ran.err) == (2, "envcheck: envcheck.toml: expected a file, found a FIFO\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = ]", "envcheck.toml:1:5: not TOML: "),
        ("a = " + "[" * 5000, "envcheck.toml:1:69: not TOML: nested too deeply"),
        ('[tool.envcheck]\nthreshold = "error"\n', "envcheck.toml:1:2: tool: no such setting; known are"),
        ('waive = "all"\n', "envcheck.toml:1:1: waive: expected [[waive]] tables, found 'all'"),
        (WAIVE.format("a", '"2026-02-30"'), "envcheck.toml:4:1: waive.until: expected a date such as"),
        (WAIVE.format("a", "2026-02-30"), "envcheck.toml:4:9: not TOML: invalid date"),
        (
            WAIVE.format("a", "2027-01-01T00:00:00"),
            "envcheck.toml:4:1: waive.until: expected a date such as 2027-03-01, found 2027-01-01 00:00:00",
        ),
        (
            WAIVE.format("a", "2099-01-01") * 20_000,
            "envcheck.toml:1:3: waive: expected at most 1000 waivers, found 20000",
        ),
        ("machine = 3\n", "envcheck.toml:1:1: machine: expected a table, found 3"),
        (
            "[machine.a]\n",
            "envcheck.toml:1:2: machine.a: the table is empty: give a driver, a gpu or a platform",
        ),
        ('severity = { "no-such-rule" = "note" }\n', "envcheck.toml: severity: no such rule 'no-such-rule'"),
        ('machines = ["a100-r53"]\n', "machine a100-r53: no such machine; did you mean 'a100-r535'?"),
        ('[machine.a]\ngpu = "Voodoo 2"\n', "machine a: no GPU 'Voodoo 2' is known"),
    ],
)
def test_bad_settings_are_reported(folder: Path, text: str, said: str) -> None:
    (folder / "envcheck.toml").write_text(text)
    more = ("--machine", "a") if "Voodoo" in text else ()
    facts = () if "machines" in text else ("--facts", "fine.toml")
    ran = envcheck("gate", *facts, *more, "--manifest", "none", cwd=folder)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"envcheck: {said}"), ran.err


def test_envcheck_toml_comes_before_pyproject(folder: Path) -> None:
    (folder / "pyproject.toml").write_text('[tool.envcheck]\nthreshold = "warning"\n')
    assert gate(folder, "warned").code == 1
    assert gate(folder, "warned", settings='threshold = "error"\n').code == 0


def test_doctor_reads_the_settings_that_concern_it(folder: Path) -> None:
    def doctor(facts: str, settings: str, *more: str) -> Outcome:
        (folder / "envcheck.toml").write_text(settings)
        return envcheck("doctor", "--facts", f"{facts}.toml", *more, cwd=folder)

    assert doctor("warned", "").code == 0
    assert doctor("warned", 'threshold = "warning"\n').code == 1
    assert doctor("warned", 'threshold = "warning"\n', "--fail-on", "error").code == 0
    assert "zero3-lora needs peft" in doctor("fine", 'target = "zero3-lora"\n').out
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 2}}')
    assert "[✓] Training ZeRO-2" in doctor("fine", 'train = ["ds.json"]\n').out
    skipped = doctor("broken", f'skip = ["{DEEPSPEED}"]\n')
    assert (skipped.code, DEEPSPEED in skipped.out) == (0, False)
    waived = doctor("broken", WAIVE.format(DEEPSPEED, "2099-01-01"))
    assert (waived.code, answer(waived).endswith("; 1 waived")) == (0, True)


def test_the_training_of_the_settings_reaches_fit_and_explain(folder: Path) -> None:
    (folder / "ds.json").write_text('{"zero_optimization": {"stage": 3}}')
    (folder / "envcheck.toml").write_text('target = "zero3-lora"\ntrain = ["ds.json"]\n')
    shape = "params=7.6e9,layers=28,hidden=3584,heads=28,kv_heads=4,mlp=18944,vocab=152064"
    fit = envcheck(
        "fit", "--model", shape, "--facts", "fine.toml", "--gpu", "A100 80GB", "--seq", "64", cwd=folder
    )
    assert "LoRA of rank 8, ZeRO-3" in fit.out


def test_init_writes_a_file_that_is_valid_with_and_without_its_comments(folder: Path) -> None:
    ran = envcheck("init", cwd=folder)
    assert (ran.code, ran.out) == (0, "")
    written = folder / "envcheck.toml"
    assert gate(folder, "broken").code == 1
    again = envcheck("init", cwd=folder)
    assert (again.code, again.err.startswith("envcheck: envcheck.toml: exists already")) == (2, True)
    lines = written.read_text().splitlines()
    live = [line.removeprefix("# ") for line in lines[3:]]
    rule = '"requires-dist:a:b" = "error"'
    assert any(line.startswith(rule) for line in live)
    (folder / "house.toml").write_text("")
    (folder / "ds_config.json").write_text('{"zero_optimization": {"stage": 3}}')
    (folder / "requirements.txt").write_text("torch==2.4.0\ndeepspeed==0.14.0\n")
    written.write_text("\n".join(live))
    ran = gate(folder, "broken")
    assert ran.code == 1, ran.err
    assert envcheck("init", "-", cwd=folder).out.splitlines() == lines
