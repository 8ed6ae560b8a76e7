"""The Python API, `facts --diff`, shell completion, and the generated reference of the command line."""

from __future__ import annotations

import json
import os
import subprocess  # noqa: TID251 - tests are users
import sys
from pathlib import Path

import pytest

import envcheck
from envcheck.core.errors import InputError
from tests.command.test_command_line import BROKEN, FINE, RULE
from tests.support.paths import ROOT
from tests.support.running import envcheck as command


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


# --- envcheck.doctor() ------------------------------------------------------------------------------


def test_doctor_returns_what_the_command_prints(facts: Path, capfd: pytest.CaptureFixture[str]) -> None:
    report = envcheck.doctor(facts=facts)
    ran = command("doctor", "--facts", str(facts))
    assert str(report) == ran.out
    assert report.exit_code == ran.code == 1
    assert [each.rule.id for each in report.findings] == [RULE]
    assert report.findings[0].fixes
    assert report.to_dict() == json.loads(command("doctor", "--facts", str(facts), "--json").out)
    assert report.render("html") == command("doctor", "--facts", str(facts), "--format", "html").out
    assert "1 broken (1 error)" in repr(report)
    assert capfd.readouterr() == ("", "")


def test_train_accepts_paths_and_lists_of_paths(fine: Path, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "gradient_cliping": 1.0}')
    for train in (tmp_path / "ds.json", str(tmp_path / "ds.json"), [tmp_path / "ds.json"]):
        report = envcheck.doctor(facts=fine, train=train)
        assert [each.code for each in report.remarks] == ["unknown-key"]
    assert envcheck.doctor(facts=fine).exit_code == 0


def test_fail_on_and_fix_work_as_in_the_command(facts: Path) -> None:
    assert "fix" in envcheck.doctor(facts=facts, fix=True).to_dict()
    assert envcheck.doctor(facts=facts, fail_on="note").exit_code == 1
    with pytest.raises(ValueError, match="nonsense"):
        envcheck.doctor(facts=facts, fail_on="nonsense")  # type: ignore[arg-type]


def test_errors_are_raised_and_do_not_end_the_process(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        envcheck.doctor(facts=tmp_path / "none.toml")
    with pytest.raises(InputError, match="no such target"):
        envcheck.doctor(target="zero3-lroa")
    with pytest.raises(InputError, match="no such format"):
        envcheck.doctor(static=True).render("pdf")
    with pytest.raises(InputError, match="no such interpreter"):
        envcheck.doctor(tmp_path / "nowhere")


def test_a_notebook_shows_the_page_in_a_separate_frame(facts: Path) -> None:
    shown = envcheck.doctor(facts=facts)._repr_html_()
    assert shown.startswith('<iframe sandbox="allow-popups" ')
    head, _, rest = shown.partition(' srcdoc="')
    page, _, tail = rest.partition('"')
    assert tail == "></iframe>"
    assert page.replace("&quot;", '"').replace("&amp;", "&").startswith("<!DOCTYPE html>")
    assert "<" not in head[1:]


def test_importing_envcheck_imports_nothing_else() -> None:
    program = "import sys; before = set(sys.modules); import envcheck; print(*set(sys.modules) - before)"
    ran = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True, cwd=ROOT
    )
    assert ran.stdout.split() == ["envcheck"]
    with pytest.raises(AttributeError, match="has no attribute 'doctr'"):
        envcheck.doctr  # type: ignore[attr-defined]  # noqa: B018
    assert {"doctor", "Report", "__version__"} <= set(dir(envcheck))


# --- facts --diff -----------------------------------------------------------------------------------


def test_diff_of_two_facts_files(facts: Path, fine: Path) -> None:
    better = command("facts", "--diff", str(facts), str(fine))
    assert better.code == 0
    assert "    deepspeed  0.16.4 -> 0.19.8\n" in better.out
    assert (
        f"Only in A\n    error: ZeRO-3 empties frozen parameters before non-reentrant checkpointing compares them [{RULE}]"
        in better.out
    )
    assert better.out.endswith("1 fact differs · 1 finding only in A · 0 only in B · 0 in both\n")
    worse = command("facts", "--diff", str(fine), str(facts), "--json")
    assert worse.code == 1
    tree = json.loads(worse.out)
    assert tree["facts"] == [{"key": "pkg.deepspeed", "group": "Packages", "a": "0.19.8", "b": "0.16.4"}]
    assert [each["rule"] for each in tree["findings"]["only_b"]] == [RULE]


def test_diff_of_equal_facts_is_empty(facts: Path, tmp_path: Path) -> None:
    same = command("facts", "--diff", str(facts), str(facts))
    assert (same.code, "0 facts differ · 0 findings only in A · 0 only in B · 1 in both" in same.out) == (
        0,
        True,
    )
    here = tmp_path / "here.json"
    here.write_text(command("facts", "--static").out)
    assert "0 facts differ" in command("facts", "--static", "--diff", str(here), "-").out


def test_diff_compares_gpus_and_unknown_facts(tmp_path: Path) -> None:
    for name, gpus in (("a", ["A100-SXM4-80GB"]), ("b", ["A100-SXM4-80GB", "H100 PCIe"])):
        text = "".join(f'[[gpu]]\nname = "NVIDIA {each}"\n' for each in gpus)
        unknown = (
            '[unknown]\n"driver.version" = "NVML hangs"\n'
            if name == "b"
            else '[driver]\nversion = "550.54.15"\n'
        )
        (tmp_path / f"{name}.toml").write_text(f'[pkg]\ntorch = "2.6.0"\n{text}{unknown}')
    out = command("facts", "--diff", "a.toml", "b.toml", cwd=tmp_path).out
    assert "gpus.count   1 -> 2" in out
    assert "gpu[1].name  - -> NVIDIA H100 PCIe" in out
    assert "550.54.15 -> not known: NVML hangs" in out


@pytest.mark.parametrize("names", [("no-such.toml", "-"), ("facts.toml", "no-such.toml")])
def test_a_missing_facts_file_is_one_line(names: tuple[str, str], facts: Path) -> None:
    ran = command("facts", "--diff", *names, cwd=facts.parent)
    assert (ran.code, ran.out, ran.err) == (2, "", "envcheck: no-such.toml: no such file or directory\n")


# --- shells -----------------------------------------------------------------------------------------


def completed(*words: str) -> list[str]:
    environ = {
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "_ENVCHECK_COMPLETE": "complete_bash",
    }
    program = "import sys; sys.argv = ['envcheck']; from envcheck.__main__ import main; main()"
    ran = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
        env={**os.environ, **environ},  # noqa: TID251
    )
    return ran.stdout.split()


def test_shell_completion_offers_commands_options_and_choices() -> None:
    assert {"doctor", "gate", "facts"} <= set(completed("envcheck", ""))
    assert completed("envcheck", "doctor", "--for") == ["--format"]
    assert completed("envcheck", "matrix", "li") == ["lint"]
    assert "zero3-lora" in completed("envcheck", "doctor", "--target", "zero")
    assert completed("envcheck", "rule", "zero3-frozen-n") == ["zero3-frozen-nonreentrant-checkpoint"]
    assert "GeForce-RTX-5090" in completed("envcheck", "fit", "--gpu", "GeForce-RTX-50")
    assert completed("envcheck", "gate", "--machine", "rtx5090") == ["rtx5090-r580"]


@pytest.mark.parametrize(
    ("shell", "sign"), [("bash", "complete -o"), ("zsh", "#compdef envcheck"), ("fish", "complete --c")]
)
def test_completion_is_for_the_shell_that_was_asked_for(shell: str, sign: str) -> None:
    for words in (("--show-completion", shell), (f"--show-completion={shell}",)):
        shown = command(*words)
        assert (shown.code, sign in shown.out) == (0, True), shown
    wrong = command("--show-completion", "csh")
    assert (wrong.code, wrong.err.startswith("envcheck: --show-completion: expected one of bash, zsh")) == (
        2,
        True,
    )


def test_help_has_a_short_option_and_its_list_is_not_cut() -> None:
    for words in ((), ("doctor",), ("gate", "--runtime"), ("run",)):
        assert command(*words, "-h").out == command(*words, "--help").out != ""
    text = command("--help").out
    assert "..." not in text.partition("Commands:")[2]
    assert "writes the knowledge" in " ".join(text.split()) or "write it as a page" in " ".join(text.split())


def test_show_completion_prints_the_shell_script() -> None:
    program = (
        "import subprocess, sys; subprocess.run([sys.executable, '-m', 'envcheck', '--show-completion'])"
    )
    ran = subprocess.run(
        ["bash", "-c", f'"{sys.executable}" -c "{program}"; true'],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=ROOT,
    )
    assert "_ENVCHECK_COMPLETE=complete_bash" in ran.stdout
    assert "complete -o default -F _envcheck_completion envcheck" in ran.stdout


# --- the reference ----------------------------------------------------------------------------------


def test_the_reference_of_the_command_line_is_current() -> None:
    written = (ROOT / "docs/reference/command-line.md").read_text()
    ran = subprocess.run(
        [sys.executable, "tools/write_reference.py"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
        cwd=ROOT,
    )
    assert ran.stdout == written, "python tools/write_reference.py > docs/reference/command-line.md"
