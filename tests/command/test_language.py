"""The language of reports and pages, as a user chooses it."""

from __future__ import annotations

import json
import os
import subprocess  # noqa: TID251 - tests are users
import sys
from pathlib import Path

import pytest

from envcheck.cli.main import COMMANDS
from tests.command.test_command_line import BROKEN, HOSTILE, RULE, one_line
from tests.support.paths import ROOT
from tests.support.running import envcheck
from tests.unit.core.test_i18n import CHINESE, ZH, chinese


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    path = tmp_path / "facts.toml"
    path.write_text(BROKEN)
    return path


PACKAGES = (
    "torch 2.6.0+cu124 for CUDA 12.4, deepspeed 0.16.4, transformers 4.49.0, peft 0.14.0, accelerate 1.4.0"
)


@pytest.mark.parametrize(
    ("more", "environ"),
    [
        (("--lang", "zh"), {"LC_ALL": "C"}),
        ((), {"LANG": "zh_CN.UTF-8"}),
        ((), {"ENVCHECK_LANG": "zh_CN"}),
    ],
)
def test_doctor_prints_chinese(more: tuple[str, ...], environ: dict[str, str], facts: Path) -> None:
    code, out, err = envcheck("doctor", "--facts", str(facts), *more, environ=environ)
    assert (code, err) == (1, "")
    assert f"✗ 错误: {ZH['rule'][RULE]['title']} [{RULE}]" in out
    assert out.startswith(f"无法训练：1 个错误。{ZH['rule'][RULE]['title']}\n")  # noqa: RUF001
    assert "pip install 'deepspeed==0.19.3'" in out
    every = envcheck("doctor", "--facts", str(facts), "--verbose", *more, environ=environ).out
    assert "    依据    train.zero_stage = 3" in every
    assert "激活常驻显存" in every
    assert every.splitlines()[-1].startswith("命中 1 条 (1 个错误) · 无法判定 0 条")
    for english in ("because", "why  ", "fix  ", "known", "not given", "passed or do not apply", "checked"):
        assert english not in out


def test_english_output_is_unchanged(facts: Path) -> None:
    default = envcheck("doctor", "--facts", str(facts), environ={"LC_ALL": "C", "LANG": "zh_CN.UTF-8"}).out
    assert default == envcheck("doctor", "--facts", str(facts), "--lang", "en").out
    assert default == envcheck("doctor", "--facts", str(facts), environ={"LANG": "de_DE.UTF-8"}).out
    assert not chinese(default)
    lines = default.splitlines()
    assert lines[-4:-1] == [
        f"[✓] Packages Python 3.11.9: {PACKAGES}",
        "[✗] Training ZeRO-3, LoRA, gradient checkpointing, non-reentrant checkpointing",
        "",
    ]
    every = envcheck("doctor", "--facts", str(facts), "--verbose", environ={"LC_ALL": "C"}).out
    assert "    because train.zero_stage = 3 (" in every
    assert "    known   measured: https://github.com/deepspeedai/DeepSpeed/pull/8148 (checked 2026-" in every


def test_json_is_the_same_in_every_language(facts: Path) -> None:
    ask = ("doctor", "--facts", str(facts), "--json")
    assert envcheck(*ask, "--lang", "zh").out == envcheck(*ask).out


@pytest.mark.parametrize("command", [("doctor",), ("gate",), ("rule", RULE), ("target",)])
def test_an_unknown_language_is_an_error_of_one_line(command: tuple[str, ...]) -> None:
    one_line(envcheck(*command, "--lang", "fr"), 2, "--lang 'fr': no such language; known are en, zh")
    one_line(envcheck(*command, environ={"ENVCHECK_LANG": "zz"}), 2, "ENVCHECK_LANG='zz': no such language")


def test_every_command_has_the_option_and_fit_and_fleet_answer_in_chinese(facts: Path) -> None:
    for command in COMMANDS:
        assert "--lang" in envcheck(command, "-h").out, command
    shape = "params=7.6e9,layers=28,hidden=3584,heads=28,kv_heads=4,mlp=18944,vocab=152064"
    words = ("fit", "--model", shape, "--facts", str(facts), "--gpu", "RTX 4090", "--seq", "64")
    assert chinese(envcheck(*words, "--lang", "zh").out.splitlines()[0])
    assert chinese(envcheck(*words, environ={"LANG": "zh_CN.UTF-8"}).out.splitlines()[0])
    assert envcheck(*words, "--json", "--lang", "zh").out == envcheck(*words, "--json").out
    fleet = ("fleet", str(ROOT / "docs/facts/cluster.jsonl"), "-q", "--lang", "zh")
    assert envcheck(*fleet).out.startswith("不要启动：")  # noqa: RUF001 - that is Chinese


OVERLAY = f"""[[rule]]
id = "{RULE}"
severity = "error"
basis = "measured"
title = "My own title"
when = {{ "pkg.torch" = ">=2" }}
sources = [{{ url = "https://example.org/1", kind = "docs", checked = 2026-11-20 }}]
"""

SHAPE = "params=7.6e9,layers=28,hidden=3584,heads=28,kv_heads=4,mlp=18944,vocab=152064"

ANSWERS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("doctor", "--facts", "a.toml"): ("Will not train", "Packages", "judged"),
    ("gate", "--facts", "a.toml"): ("gate shut", "Packages"),
    ("check", "requirements.txt"): ("Failed", "Cannot say", "judged"),
    ("explain", "log.txt"): ("Failed", "first cause", "raised", "advice", "lines"),
    ("facts", "--diff", "a.toml", "b.toml"): ("Packages", "Only in", "differ", "finding", "in both"),
    ("fit", "--model", SHAPE, "--facts", "a.toml", "--gpu", "RTX 4090", "--seq", "64"): (
        "GiB on each GPU",
        "frozen weights",
        "that train",
        "treated as",
        "Assumed",
        "Training",
        "default",
        "no mark",
    ),
    ("fit", "--model", SHAPE, "--target", "zero3-full-offload", "--gpus", "4"): (
        "not known",
        "on the host",
        "optimizer offload",
        "there is no",
        "Cheapest change",
    ),
    ("fleet", str(ROOT / "docs/facts/cluster.jsonl"), "--verbose"): ("Do not start", "why", "a launcher"),
    ("target",): ("LoRA under", "models", "several"),
    ("target", "openrlhf"): ("wants", "measured", "with"),
    ("rule", "--list"): (" rules", "[error", "need a", "was compiled"),
    ("rule", RULE): ("when  ", "because", "fix  "),
    ("matrix", "show"): ("known failures", "known by", "targets", "releases", "measured"),
    ("matrix", "show", "peft"): ("known through", "the latest", "name it", "unless", "      if ", "trained"),
    ("matrix", "show", "torch==2.6.0+cu124"): ("released", "code for", "or newer", "concern", " ABI not"),
    ("matrix", "show", "torch", "deepspeed"): (
        "releases)",
        "code read",
        "trained",
        "needs",
        " with ",
        " more ",
    ),
    ("pin", "--target", "zero3-lora", "--driver", "535", "-o", "lock.txt"): (
        "locked on",
        "judged",
        "written",
    ),
    ("pin", "--target", "zero3-lora", "--driver", "410", "--offline"): ("no shipped lock", "forbids"),
    ("pin", "--target", "zero3-lora", "--driver", "410", "--gpu", "A100"): (
        "no versions for",
        "conflict:",
        "that leaves",
        "releases)",
        " needs ",
        "too old",
        "whose oldest",
        "or newer",
        "each of them tried",
    ),
    ("init", "settings.toml"): ("written",),
    ("selftest", "--python", sys.executable): ("tested", "no torch", "nothing to test"),
    ("run", "--", "sh", "-c", "exit 3"): ("Failed", "exit code", "first cause", "printed", "beside"),
}
"""For each command, words of its English answer that no Chinese answer has."""


@pytest.mark.parametrize("command", ANSWERS, ids=lambda words: " ".join(words[:3])[:40])
def test_every_command_answers_in_chinese(command: tuple[str, ...], facts: Path) -> None:
    folder = facts.parent
    (folder / "a.toml").write_text(BROKEN)
    (folder / "b.toml").write_text(
        BROKEN.replace("2.6.0", "2.7.0").replace("zero_stage = 3", "zero_stage = 2")
    )
    (folder / "requirements.txt").write_text("torch==2.6.0\ndeepspeed==0.14.0\n")
    (folder / "log.txt").write_text("ModuleNotFoundError: No module named 'nosuchmodule'\n")
    words = (*command, "--lang", "zh") if command[0] != "run" else ("run", "--lang", "zh", *command[1:])
    _, out, err = envcheck(*words, cwd=folder)
    answer = err if command[0] in ("pin", "init", "run") or not out else out
    assert chinese(answer.strip().splitlines()[command == ("target",)])  # its first line is a name: LoRA
    for english in ANSWERS[command]:
        assert english not in answer, answer
    for name in ("settings.toml", "lock.txt"):
        (folder / name).unlink(missing_ok=True)
    _, out, err = envcheck(*command, cwd=folder, environ={"LANG": "zh_CN.UTF-8"})
    assert chinese(out + err)


def test_errors_of_usage_stay_english() -> None:
    one_line(envcheck("target", "no-such-target", "--lang", "zh"), 2, "no-such-target")
    assert not chinese(envcheck("doctor", "--facts", "missing.toml", "--lang", "zh").err)


def test_the_pages_of_the_matrix_do_not_translate_an_overlay(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(OVERLAY)
    page = envcheck("matrix", "show", "torch", "--lang", "zh", "--matrix", str(mine)).out
    assert "My own title" in page
    assert ZH["rule"][RULE]["title"] not in page


@pytest.mark.parametrize("name", ["", "*", "../rules", "/etc/passwd", "zh*", "z" * 5000, "中"])
def test_a_language_is_a_name_and_never_a_path(name: str) -> None:
    one_line(envcheck("rule", RULE, "--lang", name), 2, "no such language")


def test_a_locale_without_a_translation_is_not_an_error() -> None:
    assert "[error]" in envcheck("rule", RULE, environ={"LANG": "xx_YY.UTF-8"}).out


def test_the_gate_and_the_pages_are_in_chinese(facts: Path) -> None:
    shut = envcheck("gate", "--facts", str(facts), "--lang", "zh")
    first = f"门禁不通过：1 个错误。{ZH['rule'][RULE]['title']}"  # noqa: RUF001 - that is Chinese
    assert (shut.code, shut.out.splitlines()[0]) == (1, first)
    page = envcheck("rule", RULE, "--lang", "zh").out
    assert ZH["rule"][RULE]["why"].strip() in page
    assert "\n解决   deepspeed >=0.19.3\n" in page
    assert "(每张卡都要放下完整模型)" in page
    assert ZH["rule"][RULE]["title"] in envcheck("rule", "--list", "--lang", "zh").out
    assert "有冻结参数" in page
    target = envcheck("target", "zero3-lora", "--lang", "zh").out
    assert "需要     torch, deepspeed" in target
    assert "个跑通" in target


def test_complete_sentences_are_translated_by_their_templates(tmp_path: Path) -> None:
    path = tmp_path / "facts.toml"
    path.write_text(
        'complete = ["pkg"]\npkg = { torch = "2.6.0a0+git1234567" }\nunknown = { "pkg.numpy" = "?" }\n'
    )
    ask = ("doctor", "--facts", str(path), "--lang", "zh", "--driver", "535.104.05", "--target", "zero3-lora")
    out = envcheck(*ask, "--gpu", "B200", "--gpu", "A100 80GB").out
    assert CHINESE.translate("zero3-lora needs peft, which is not installed") in out
    assert "zero3-lora 需要 peft" in out
    assert "设 CUDA_VISIBLE_DEVICES=1 可避开它" in out
    assert "(由 --driver 声明)" in out
    path.write_text('complete = ["pkg"]\npkg = { numpy = "2.0.0" }')
    assert "该环境里没有 torch" in envcheck("doctor", "--facts", str(path), "--lang", "zh").out


def test_hostile_text_is_cleaned_in_chinese_output(tmp_path: Path) -> None:
    path = tmp_path / "facts.json"
    hostile = {"gpu": [{"name": f"NVIDIA {HOSTILE}{{}}{{0}}"}], "pkg": {"torch": f"2.4.0{HOSTILE}{{}}"}}
    path.write_text(json.dumps({**hostile, "complete": ["pkg"]}))
    outcome = envcheck("doctor", "--facts", str(path), "--lang", "zh")
    assert outcome.code in (0, 1)
    assert not set(outcome.out + outcome.err) & set("\x1b\x07\r\u202e\u200b")
    assert "{}{0}" in outcome.out
    outcome = envcheck("doctor", "--lang", HOSTILE)
    assert not set(outcome.err) & set("\x1b\x07\r\u202e\u200b")


@pytest.mark.parametrize("encoding", ["gbk", "ascii"])
def test_a_terminal_that_lacks_a_character_gets_an_escape(encoding: str, facts: Path) -> None:
    checkout = str(ROOT)
    ran = subprocess.run(
        [sys.executable, "-m", "envcheck", "doctor", "--facts", str(facts), "--lang", "zh"],
        capture_output=True, timeout=60, check=False,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": checkout, "PYTHONIOENCODING": encoding},  # noqa: TID251
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (1, b"")
    out = ran.stdout.decode(encoding)
    assert "[\\u2717] " in out
    assert ("错误" in out) is (encoding == "gbk")


@pytest.mark.parametrize(("lang", "opened"), [("en", 0), ("zh", 1)])
def test_english_reads_no_language_file(lang: str, opened: int, facts: Path) -> None:
    program = (
        "import sys\nseen = []\n"
        "sys.addaudithook(lambda event, args: seen.append(str(args[0])) if event == 'open' else None)\n"
        "from envcheck.cli.main import run\n"
        f"run(['doctor', '--facts', {str(facts)!r}, '--lang', {lang!r}])\n"
        "sys.stderr.write(str(sum('compat/lang/' in each for each in seen)))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False, cwd=ROOT
    )
    assert ran.stderr == str(opened)


def test_an_overlay_rule_does_not_get_the_translation_of_a_shipped_rule(tmp_path: Path) -> None:
    mine = tmp_path / "mine.toml"
    mine.write_text(OVERLAY)
    (tmp_path / "facts.toml").write_text(BROKEN)
    ask = ("--lang", "zh", "--matrix", str(mine))
    doctor = envcheck("doctor", "--facts", str(tmp_path / "facts.toml"), *ask).out
    assert f"✗ 错误: My own title [{RULE}]" in doctor
    assert "叠加规则 " in doctor
    for page in (envcheck("rule", RULE, *ask).out, envcheck("rule", "--list", *ask).out):
        assert "My own title" in page
        assert ZH["rule"][RULE]["title"] not in page
