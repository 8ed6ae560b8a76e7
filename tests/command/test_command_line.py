"""The command as a user meets it: what it prints, its exit codes, and its messages for bad input."""

from __future__ import annotations

import json
import os
import re
import subprocess  # noqa: TID251 - tests are users
import sys
import time
from pathlib import Path

import pytest

from envcheck.cli.main import COMMANDS
from tests.support.paths import ROOT
from tests.support.running import Outcome, copy_compiled, envcheck, surroundings

BROKEN = """
complete = ["pkg"]
python = { version = "3.11.9" }
pkg = { torch = "2.6.0+cu124", deepspeed = "0.16.4", transformers = "4.49.0", peft = "0.14.0", accelerate = "1.4.0" }
train = { zero_stage = 3, adapter = "lora", gradient_checkpointing = true, use_reentrant = false }
"""
FINE = BROKEN.replace("0.16.4", "0.19.8")
RULE = "zero3-frozen-nonreentrant-checkpoint"


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    path = tmp_path / "facts.toml"
    path.write_text(BROKEN)
    return path


@pytest.fixture
def fine(tmp_path: Path) -> Path:
    path = tmp_path / "fine.toml"
    path.write_text(FINE)
    return path


# --- doctor -----------------------------------------------------------------------------------------


def test_doctor_reports_a_failure_with_its_evidence_and_fixes(facts: Path) -> None:
    code, out, err = envcheck("doctor", "--facts", str(facts))
    assert (code, err) == (1, "")
    title = "ZeRO-3 empties frozen parameters before non-reentrant checkpointing compares them"
    first, _, heading, fix, command, *_ = out.splitlines()
    assert first == f"Will not train: 1 error. {title}"
    assert heading == f"✗ error: {title} [{RULE}]"
    assert fix == "    fix     deepspeed >=0.19.3"
    assert command.endswith("-m pip install 'deepspeed==0.19.3'")
    assert "because" not in out
    every = envcheck("doctor", "--facts", str(facts), "--verbose").out
    assert "because train.zero_stage = 3" in every
    assert "https://github.com/deepspeedai/DeepSpeed/pull/8148" in every
    assert every.splitlines()[-1].startswith("1 broken (1 error) · 0 undecided")
    quiet = envcheck("doctor", "--facts", str(facts), "-q")
    assert (quiet.code, quiet.out) == (1, f"{first}\n")


def test_doctor_passes_a_good_environment_and_counts_the_rules_that_passed(fine: Path) -> None:
    code, out, _ = envcheck("doctor", "--facts", str(fine))
    assert code == 0
    assert out.splitlines()[0] == "No known problem"
    passed, not_judged = out.splitlines()[-1].split(". Not judged: ")
    assert passed.endswith(" checks passed or do not apply")
    assert re.fullmatch(r"\d+ checks on how you train \(give --train FILE\); .*", not_judged)


def test_a_common_fix_that_does_not_help_is_reported(facts: Path) -> None:
    out = envcheck("doctor", "--facts", str(facts), "-v").out
    assert "    no fix  train.zero_sub_group_size = 1000000 (it is the tile size of the optimizer step" in out
    page = envcheck("rule", RULE).out
    assert "\nno fix train.zero_sub_group_size = 1000000  (it is the tile" in page
    finding = json.loads(envcheck("doctor", "--facts", str(facts), "--json").out)["findings"][0]
    assert {"train.zero_sub_group_size": 1000000} in [each["set"] for each in finding["no_fix"]]
    assert all(each["why"] and each["source"].startswith("https://") for each in finding["no_fix"])


def test_json_output_is_pure_json_with_the_documented_keys(facts: Path) -> None:
    code, out, err = envcheck("doctor", "--facts", str(facts), "--json")
    assert (code, err) == (1, "")
    report = json.loads(out)
    assert report["schema_version"] == 1
    assert report["matrix"]["digest"].startswith("sha256:")
    (finding,) = [each for each in report["findings"] if each["severity"] == "error"]
    assert (finding["rule"], finding["verdict"]) == (RULE, "broken")
    assert {"key", "value", "source", "device"} <= finding["because"][0].keys()
    assert {"text", "set", "cost", "commands"} <= finding["fix"][0].keys()
    assert {"url", "kind", "checked"} <= finding["sources"][0].keys()
    assert report["summary"]["rules_held"] > 50
    assert report["summary"]["broken"]["error"] == 1


def test_facts_in_json_are_judged_like_facts_in_toml(facts: Path, tmp_path: Path) -> None:
    report = json.loads(envcheck("doctor", "--facts", str(facts), "--json").out)
    again = tmp_path / "facts.json"
    again.write_text(json.dumps(report["facts"]))
    second = json.loads(envcheck("doctor", "--facts", str(again), "--json").out)
    assert [each["rule"] for each in second["findings"]] == [each["rule"] for each in report["findings"]]


def test_the_training_configuration_decides_the_verdict(fine: Path, tmp_path: Path) -> None:
    fine.write_text(FINE.split("train =")[0].replace("0.19.8", "0.16.4"))
    config = tmp_path / "ds.json"
    config.write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}} // ZeRO-3')
    arguments = "--use_lora true --gradient_checkpointing true --use-reentrant=false"
    base = ("doctor", "--facts", str(fine))
    without = envcheck(*base)
    assert without.code == 0
    assert "    fails if you train with ZeRO-3, frozen parameters, gradient checkpointing and" in without.out
    assert f"compares them [{RULE}]" in without.out
    assert envcheck(*base, "--train", str(config), "--train", arguments).code == 1
    assert envcheck(*base, "--train", str(config), "--train", arguments.replace("false", "true")).code == 0


def test_the_deepspeed_file_named_by_arguments_is_read(fine: Path, tmp_path: Path) -> None:
    fine.write_text(FINE.split("train =")[0].replace("0.19.8", "0.16.4"))
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    arguments = (
        "torchrun train.py --deepspeed {} --use_lora true --gradient_checkpointing true --use_reentrant false"
    )
    script = tmp_path / "run.args"
    script.write_text(arguments.format("ds.json"))
    assert envcheck("doctor", "--facts", str(fine), "--train", str(script)).code == 1
    script.write_text(arguments.format("elsewhere.json"))
    missing = envcheck("doctor", "--facts", str(fine), "--train", str(script))
    assert missing.code == 0
    assert "elsewhere.json" in missing.out
    assert "undecided" in missing.out


def test_arguments_without_a_training_setting_are_one_error_line(fine: Path) -> None:
    one_line(envcheck("doctor", "--facts", str(fine), "--train", "--foo=bar"), 2, "has no training setting")


def test_a_python_program_is_answered_with_what_to_give_instead(fine: Path, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text("import argparse\n\nargs = argparse.ArgumentParser().parse_args()\n")
    ran = envcheck("doctor", "--facts", str(fine), "--train", str(program))
    one_line(ran, 2, "a Python program, which is not run")
    assert "give instead what it is started with: the launch script" in ran.err
    (example,) = re.findall(r"--train '(.*?)'", ran.err)
    assert "ZeRO-3" in envcheck("doctor", "--facts", str(fine), "--train", example).out


def test_a_mistake_in_a_configuration_is_shown_with_its_place(fine: Path, tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {\n\t"stage": 7, "offload_optimzer": {}}}')
    base = ("doctor", "--facts", str(fine), "--train", str(path), "--train", "zero_stage=9")
    code, out, err = envcheck(*base)
    assert (code, err) == (1, "")
    assert "✗ error: zero_optimization.stage: expected 0, 1, 2 or 3, found 7 [wrong-value]" in out
    lines = out.splitlines()
    (number,) = [n for n, line in enumerate(lines) if line.endswith("ds.json:2:11")]
    assert lines[number + 1 : number + 3] == [
        '          2 |  "stage": 7, "offload_optimzer": {}}}',
        "            |           ^",
    ]
    assert "fix     did you mean offload_optimizer?" in out
    assert "--train:1:12" in out
    report = json.loads(envcheck(*base, "--json").out)
    assert {each["code"] for each in report["remarks"]} == {"wrong-value", "unknown-key"}
    first = report["remarks"][0]["places"][0]
    assert (first["line"], first["column"], first["length"]) == (2, 11, 1)
    gate = envcheck("gate", *base[1:])
    assert gate.code == 1
    assert gate.out.startswith("gate shut: 3 errors. ")
    assert "zero_optimization.stage: expected 0, 1, 2 or 3, found 7" in gate.out.splitlines()[0]


def test_an_unreadable_file_does_not_stop_the_rest_from_being_judged(fine: Path, tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"stage": 3}}')
    missing = str(tmp_path / "missing.json")
    code, out, err = envcheck("doctor", "--facts", str(fine), "--train", str(path), "--train", missing)
    assert (code, err) == (2, "")
    assert "ZeRO-3" in out
    assert "error: no such file or directory [unreadable]" in out


def test_a_target_implies_its_training_and_its_packages(fine: Path) -> None:
    fine.write_text(FINE.split("train =")[0].replace(', peft = "0.14.0"', ""))
    code, out, _ = envcheck("doctor", "--facts", str(fine), "--target", "zero3-lora")
    assert code == 1
    assert "zero3-lora needs peft, which is not installed" in out


def test_a_target_does_not_override_the_training_in_a_facts_file(tmp_path: Path) -> None:
    path = tmp_path / "facts.toml"
    path.write_text(
        BROKEN.replace('adapter = "lora"', 'adapter = "none", zero_stage = 2').replace("zero_stage = 3, ", "")
    )
    code, out, _ = envcheck("doctor", "--facts", str(path), "--target", "zero3-lora")
    assert code == 0
    assert RULE not in out
    assert "[target:zero3-lora:train.zero_stage]" in out
    _, out, _ = envcheck(
        "doctor", "--facts", str(path), "--target", "zero3-lora", "--train", "--zero_stage 3"
    )
    assert "[target:zero3-lora:train.zero_stage]" not in out


def test_measured_combinations_are_reported(fine: Path) -> None:
    measured = FINE.split("train =")[0]
    for here, cell in (("2.6.0+cu124", "2.5.1+cu124"), ("4.49.0", "4.46.3"), ("1.4.0", "1.1.1")):
        measured = measured.replace(here, cell)
    fine.write_text(measured)
    base = ("doctor", "--facts", str(fine), "--target", "zero3-lora", "--train")
    assert "Measured good 2026-11-2" in envcheck(*base, "use_reentrant=false").out
    other_way = envcheck(*base, "gradient_checkpointing=false").out
    assert "not this combination; nearest good" in other_way
    fine.write_text(measured.replace("4.46.3", "4.46.2"))
    assert "transformers 4.46.3 (here 4.46.2)" in envcheck(*base, "use_reentrant=false").out


def test_without_torch_doctor_exits_3_not_0(fine: Path) -> None:
    fine.write_text('complete = ["pkg"]\npkg = { numpy = "2.0.0" }')
    code, out, _ = envcheck("doctor", "--facts", str(fine))
    assert code == 3
    assert "no torch in this environment" in out


def test_a_training_without_torch_will_not_run_and_the_way_out_is_one_line(fine: Path) -> None:
    without = "\n".join(line for line in fine.read_text().splitlines() if "torch" not in line)
    fine.write_text(without)
    code, out, _ = envcheck("doctor", "--facts", str(fine), "--target", "zero3-lora")
    first, second = out.splitlines()[:2]
    assert code == 1
    assert first.startswith("Will not train: ")
    assert first.endswith(". No torch in this environment")
    assert second.endswith("or make one: envcheck pin --target zero3-lora")


def test_what_breaks_every_training_comes_before_what_this_training_breaks(facts: Path) -> None:
    ran = envcheck("doctor", "--facts", str(facts), "--driver", "470", "--json")
    found = [each["rule"] for each in json.loads(ran.out)["findings"] if each["severity"] == "error"]
    assert len(found) > 1
    assert found[0] == "driver-below-cuda-family-floor"


def test_a_declared_machine_is_judged(fine: Path) -> None:
    fine.write_text('complete = ["pkg"]\npkg = { torch = "2.13.0" }')
    old = envcheck("doctor", "--facts", str(fine), "--driver", "535.104.05", "--gpu", "A100 80GB")
    assert old.code == 1
    assert "driver-below-cuda-family-floor" in old.out
    assert envcheck("doctor", "--facts", str(fine), "--driver", "580.65.06", "--gpu", "A100 80GB").code == 0


# --- gate -------------------------------------------------------------------------------------------


def test_an_error_shuts_the_gate(facts: Path, fine: Path) -> None:
    shut, opened = envcheck("gate", "--facts", str(facts)), envcheck("gate", "--facts", str(fine))
    assert (shut.code, opened.code) == (1, 0)
    assert shut.out.startswith("gate shut: 1 error. ZeRO-3 empties frozen parameters")
    assert opened.out.splitlines()[0] == "gate open: no known problem"


def test_undecided_fail_and_a_missing_torch_shut_the_gate(fine: Path) -> None:
    softer = FINE.replace('transformers = "4.49.0"', 'transformers = "4.49.0", torchaudio = "2.9.0"')
    fine.write_text(softer + '\n[unknown]\n"pkg.numpy" = "METADATA is gone"\n')
    assert envcheck("gate", "--facts", str(fine), "--undecided", "fail").code == 1
    fine.write_text('complete = ["pkg"]\npkg = { numpy = "2.0.0" }')
    nothing = envcheck("gate", "--facts", str(fine))
    assert nothing.code == 3
    assert nothing.out.startswith("Cannot say: no torch in this environment")


# --- pages ------------------------------------------------------------------------------------------


def test_target_and_rule_print_their_pages() -> None:
    assert "zero3-lora" in envcheck("target").out
    page = envcheck("target", "zero3-lora").out
    assert "train.zero_stage = 3   ZeRO-3" in page
    assert "deepspeed (published as source only)" in page
    rule = envcheck("rule", RULE).out
    assert "pkg.deepspeed  >=0.6.3,<0.19.3" in rule
    assert "sub_group_size" in rule
    assert RULE in envcheck("rule", "--list").out


def test_version_and_help() -> None:
    assert envcheck("--version").out.startswith("envcheck ")
    assert "doctor" in envcheck("--help").out
    ran = envcheck("--version", "-v")
    assert ran.code == 0
    assert re.fullmatch(
        r"envcheck \S+\nmatrix   [\d-]+, \d+ rules, sha256:[0-9a-f]{64}\npython   [\d.]+\n", ran.out
    )


def test_a_changed_matrix_is_noticed(tmp_path: Path) -> None:
    copy_compiled(tmp_path)
    source = tmp_path / "envcheck/shipped/source.json"
    source.write_text(source.read_text().replace('"severity":"error"', '"severity":"note"', 1))
    ran = envcheck("--version", "-v", environ={"PYTHONPATH": str(tmp_path)})
    assert (ran.code, "changed  since it was built" in ran.out) == (3, True)


def test_help_is_shown() -> None:
    assert envcheck().code == 0
    assert "--target" in envcheck("doctor", "--help").out


# --- bad input --------------------------------------------------------------------------------------


def one_line(outcome: Outcome, code: int, *words: str) -> None:
    """Assert one clear line on stderr, nothing on stdout and the documented exit code."""
    assert outcome.code == code, outcome
    assert outcome.out == ""
    assert outcome.err.startswith("envcheck: ")
    assert outcome.err.count("\n") == 1, outcome.err
    assert "Traceback" not in outcome.err
    for word in words:
        assert word in outcome.err, outcome.err


MALFORMED = {  # file name: content, part of the message
    "not-toml.toml": (b'[pkg\ntorch = "2"', "not TOML"),
    "not-json.json": (b'{"pkg": {"torch": }}', "not-json.json:1:19: not JSON"),
    "unknown-key.toml": (b'[pakg]\ntorch = "2.4.0"', "pakg.torch: no such fact; did you mean 'pkg.torch'?"),
    "wrong-kind.toml": (
        b'[train]\nzero_stage = "three"',
        "train.zero_stage: expected a whole number, found 'three'",
    ),
    "deep.json": (b'{"pkg": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
    "deep.toml": (b"pkg = " + b"[" * 100_000 + b"]" * 100_000, "not TOML"),
    "binary.toml": (bytes(range(256)), "not TOML"),
    "list.json": (b"{}\n[1, 2]", "not JSON"),
    "huge.toml": (b"#" * (5 * 1024 * 1024), "larger than 4194304 bytes"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_facts_file_is_one_line(name: str, tmp_path: Path) -> None:
    content, message = MALFORMED[name]
    path = tmp_path / name
    path.write_bytes(content)
    one_line(envcheck("doctor", "--facts", str(path)), 2, name, message)


@pytest.mark.parametrize("option", ["--facts", "--train"])
def test_a_path_that_is_not_a_regular_file_is_one_line_and_does_not_hang(
    option: str, tmp_path: Path, fine: Path
) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "unreadable").write_text("x")
    places = {
        str(tmp_path / "missing.toml"): "no such file",
        str(tmp_path): "expected a file, found a directory",
        str(tmp_path / "fifo"): "a pipe without a writer" if option == "--facts" else "found a FIFO",
        "/dev/zero": "found a device",
        "/dev/null": "found a device",
    }
    for place, message in places.items():
        rest = () if option == "--facts" else ("--facts", str(fine))
        begun = time.monotonic()
        one_line(envcheck("doctor", option, place, *rest), 2, place, message)
        assert time.monotonic() - begun < 10


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"zero_optimization": {"stage": 3}', "1:35: not JSON"),
        (b'{"train_batch_size": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        (b"\xff\xfe\x00", "UTF-16: save it as UTF-8"),
        (b"a: &a [x, x]\nb: [*a" + b", *a" * 20_000 + b"]", "expands to more than"),
        (b"a: " + b"[" * 100_000, "nested too deeply"),
        (b"\x1f\x8b\x08" + bytes(range(1, 256)), "a binary file"),
        (b"", "an empty file"),
    ],
)
def test_a_malformed_training_configuration_is_one_line(
    content: bytes, message: str, tmp_path: Path, fine: Path
) -> None:
    path = tmp_path / "ds.json"
    path.write_bytes(content)
    one_line(envcheck("doctor", "--facts", str(fine), "--train", str(path)), 2, "ds.json", message)


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("doctor", "--target", "zero3-lorra"), 2, "no such target; did you mean 'zero3-lora'?"),
        (("rule", "zero3-frozen-nonreentrant"), 2, "did you mean 'zero3-frozen-nonreentrant-checkpoint'?"),
        (("target", "nope"), 2, "no such target"),
        (("doctor", "--nope"), 2, "--nope"),
        (("nope",), 2, "nope"),
        (
            ("doctor", "--driver", "new"),
            2,
            "expected a version such as 550.54.15, or a CUDA version, found 'new'",
        ),
        (("doctor", "--gpu", "Voodoo 2"), 2, "no GPU 'Voodoo 2' is known"),
        (("doctor", "--gpu", "9."), 2, "no GPU '9.' is known"),
        (("doctor", "--gpu", "sm_9"), 2, "no GPU 'sm_9' is known"),
        (("doctor", "--timeout", "0"), 2, "0"),
        (("matrix",), 2, "show, lint, html"),
        (("pin",), 2, "--target"),
        (("pin", "--target", "nope"), 2, "no such target"),
        (
            ("pin", "--target", "zero3-lora", "--python-version", "three"),
            2,
            "expected a version such as 3.11",
        ),
        (("gate", "--fail-on", "everything"), 2, "everything"),
        (("doctor", "--python", "/no/such/python"), 2, "/no/such/python"),
    ],
)
def test_a_wrong_argument_is_one_line(arguments: tuple[str, ...], code: int, message: str) -> None:
    one_line(envcheck(*arguments), code, message)


def test_a_closed_pipe_is_no_error() -> None:
    shell = f"{sys.executable} -m envcheck rule --list | head -1"
    ran = subprocess.run(
        ["/bin/sh", "-c", shell],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    assert ran.stderr == ""


@pytest.mark.parametrize(
    ("redirection", "message"), [(">&-", "standard output is closed"), ("> /dev/full", "no space left")]
)
def test_stdout_that_cannot_be_written_is_one_line(redirection: str, message: str, facts: Path) -> None:
    ran = subprocess.run(
        ["/bin/sh", "-c", f"{sys.executable} -m envcheck doctor --facts {facts} {redirection}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    one_line(Outcome(ran.returncode, ran.stdout, ran.stderr), 3, message)


def shell(words: str, cwd: Path) -> Outcome:
    """Run a line in bash, with `envcheck` replaced by a command that starts this checkout."""
    line = words.replace("envcheck", f"{sys.executable} -P -m envcheck") + "\nexit $?"
    ran = subprocess.run(
        ["/bin/bash", "-c", line],
        capture_output=True, text=True, timeout=60, check=False, cwd=cwd, env=surroundings(),
    )  # fmt: skip
    return Outcome(ran.returncode, ran.stdout, ran.stderr)


@pytest.mark.parametrize("redirection", ["", "2>&-", "2>/dev/full", "<&- 2>&-"])
@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("envcheck --version", 0),
        ("envcheck doctor --facts facts.toml", 1),
        ("envcheck doctor --facts nowhere.toml", 2),
        ("envcheck nonsense", 2),
        ("envcheck init here.toml", 0),
        ("envcheck run -- ./nowhere", 127),
        ("envcheck run -- sh -c 'kill -9 $$'", 137),
        ("envcheck gate --runtime --manifest nowhere.json", 2),
    ],
)
def test_an_unwritable_stderr_does_not_change_the_exit_code(
    words: str, code: int, redirection: str, facts: Path
) -> None:
    ran = shell(f"{words} {redirection}", facts.parent)
    assert ran.code == code
    assert "Traceback" not in ran.out + ran.err


@pytest.mark.parametrize("redirection", [">&-", "> /dev/full", ">&- 2>&-"])
def test_version_without_stdout_is_no_traceback(redirection: str, tmp_path: Path) -> None:
    ran = shell(f"envcheck --version {redirection}", tmp_path)
    assert (ran.code, ran.out) == (3, "")
    assert ran.err in ("", "envcheck: standard output cannot be written\n")


@pytest.mark.parametrize(("name", "code"), [("facts", 1), ("fine", 0)])
@pytest.mark.usefixtures("facts", "fine")
def test_a_closed_pipe_does_not_change_the_exit_code(name: str, code: int, tmp_path: Path) -> None:
    # The reader exits before anything is printed.
    line = f"{{ sleep 0.5; envcheck gate --facts {name}.toml; }} | true; echo ${{PIPESTATUS[0]}}"
    assert shell(line, tmp_path) == Outcome(0, f"{code}\n", "")


# --- cleaned output ------------------------------------------------------------------------------------

HOSTILE = "\x1b[31mred\x1b]52;c;evil\x07\r\u202egnp\u200b"


def test_control_characters_reach_neither_stdout_nor_stderr(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    name = f"NVIDIA {HOSTILE}"
    path.write_text(
        json.dumps({"gpu": [{"name": name}], "pkg": {"torch": f"2.4.0{HOSTILE}"}, "complete": ["pkg"]})
    )
    for more in ((), ("--json",)):
        out = envcheck("doctor", "--facts", str(path), *more).out
        assert not set(out) & set("\x1b\x07\r\u202e\u200b")
    path.write_text(json.dumps({f"pkg{HOSTILE}": {"torch": "2"}}))
    outcome = envcheck("doctor", "--facts", str(path))
    assert not set(outcome.err) & set("\x1b\x07\r\u202e\u200b")
    assert outcome.err.count("\n") == 1


BREAKING = "a\nenvcheck: all is fine\x1b[2K"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("init", BREAKING), "written to a"),
        (("doctor", "--facts", "facts.toml", "-o", BREAKING), "written to a"),
        (("gate", "--facts", "facts.toml", "--manifest", BREAKING), "manifest written to a"),
        (("run", "--", f"./{BREAKING}"), "no such file or directory"),
        (("check", f"{BREAKING}.txt"), "not judged, because no version is pinned: nor-that"),
        (("fit", "--model", "params=7e9", "--train", f"{BREAKING}.sh"), "the ZeRO stage is not known"),
    ],
)
def test_a_line_feed_in_a_file_name_does_not_break_the_message(
    arguments: tuple[str, ...], message: str, facts: Path
) -> None:
    (facts.parent / f"{BREAKING}.txt").write_text("nor-that\n")
    (facts.parent / f"{BREAKING}.sh").write_text(
        f"torchrun train.py --bf16 true --deepspeed {BREAKING!r}.json\n"
    )
    err = envcheck(*arguments, cwd=facts.parent).err
    assert message in err
    assert (len(err.splitlines()), "\x1b" in err) == (1, False)


def test_a_report_does_not_name_the_home_folder(tmp_path: Path) -> None:
    home = tmp_path / "alice"
    home.mkdir()
    (home / "facts.toml").write_text(BROKEN)
    for more in ((), ("--json",)):
        outcome = envcheck("doctor", "--facts", str(home / "facts.toml"), *more, environ={"HOME": str(home)})
        assert "alice" not in outcome.out + outcome.err
        assert "~/facts.toml" in outcome.out


# --- start-up ---------------------------------------------------------------------------------------

HEAVY = {
    "torch",
    "numpy",
    "pydantic",
    "rich",
    "asyncio",
    "urllib.request",
    "ssl",
    "yaml",
    "piptools",
    "pip",
    "pynvml",
}


@pytest.mark.parametrize("more", [("--json",), ()])
def test_a_piped_doctor_imports_no_heavy_module(more: tuple[str, ...]) -> None:
    program = (
        "import sys\n"
        "from envcheck.cli.main import run\n"
        f"code = run(['doctor', '--python', sys.prefix, *{more!r}])\n"
        f"sys.stderr.write(' '.join(sorted(set(sys.modules) & {HEAVY!r})) + '|')\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    assert ran.stderr == "|"


def test_a_command_imports_no_other_command() -> None:
    program = (
        "import sys\n"
        "from envcheck.cli.main import COMMANDS, run\n"
        "code = run(['rule', '--list'])\n"
        "loaded = [name for name in COMMANDS if f'envcheck.cli.{name}' in sys.modules]\n"
        "sys.stderr.write(' '.join(loaded))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    assert ran.stderr == "rule"


def test_every_command_module_is_in_the_table() -> None:
    shared = {
        "__init__",
        "main",
        "options",
        "output",
        "completion",
        "version",
        "declaration",
        "plain_words",
        "program",
        "usage_errors",
    }
    assert {path.stem for path in (ROOT / "envcheck/cli").glob("*.py")} - shared == set(COMMANDS)


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("pin", "zero3-lora"), "--target zero3-lora"),
        (("doctor", "zero3-lora"), "--target zero3-lora"),
        (("pin", "requirements.txt"), "--requirement requirements.txt"),
        (("doctor", "requirements.txt"), "envcheck check requirements.txt"),
        (("doctor", "Dockerfile"), "envcheck check Dockerfile"),
        (("doctor", "run.sh"), "--train run.sh"),
    ],
)
def test_a_misplaced_word_is_answered_with_what_takes_it(arguments: tuple[str, ...], meant: str) -> None:
    one_line(envcheck(*arguments), 2, f"unexpected extra argument(s) ({arguments[1]}); did you mean {meant}?")


def test_a_word_that_nothing_takes_is_answered_with_the_help() -> None:
    one_line(envcheck("doctor", "what"), 2, "unexpected extra argument(s) (what) (--help shows the options)")
