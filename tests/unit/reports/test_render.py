"""The output boundary: installation commands, cleaning, hostile text in formats, and counts."""

from __future__ import annotations

import json
import re
import sys

import pytest

from envcheck.commands import judging
from envcheck.core import sanitize
from envcheck.core.errors import InputError
from envcheck.core.findings import Judgement, Report, Verbosity
from envcheck.core.rules import Fix
from envcheck.reports import phrases, render
from envcheck.reports.details import count_text
from envcheck.rules import derive, fix_words
from tests.support.worlds import inventory, known, rule

ANSI = re.compile(r"\x1b\[[0-9;]*m")
MATRIX = known(
    rule(
        '{ "gpu.name" = "present" }',
        more='why = "It is long, because it has to say a lot of things that nobody reads on a small screen."',
    )
)

INSTALL = "\"$PYTHON\" -m pip install 'torch==2.10.0' 'torchvision'"


def report(name: str, subject: str = "here") -> Report:
    read = inventory(f"[[gpu]]\nname = {json.dumps(name)}\n[pkg]\ntorch = '2.4.0'\n")
    settled = derive.derive(read, MATRIX)
    return Report("0", subject, settled, judging.judge_inventory(settled, MATRIX, None), MATRIX)


def rendered(name: str, text: str) -> str:
    return render.format_named(name)(report(text))


# --- commands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("here", "commands"),
    [
        ("2.10.0+cpu", ('"$PYTHON" -m pip uninstall -y torch torchvision', INSTALL)),
        ("2.10.0", (INSTALL,)),
        ("2.9.1+cpu", (INSTALL,)),
    ],
)
def test_another_build_of_the_same_release_is_uninstalled_first(here: str, commands: tuple[str, ...]) -> None:
    # To pip 2.10.0+cpu is 2.10.0: `pip install torch==2.10.0` would leave it in place.
    fix = Fix((("pkg.torch", "==2.10.0"),), tried=(("pkg.torch", "2.10.0"),))
    read = inventory(f"[pkg]\ntorch = {json.dumps(here)}\ntorchvision = '0.25.0'\n")
    matrix = MATRIX._replace(moves_with={"torch": ("torchvision",)})
    report = Report("0", "here", read, Judgement((), (), 0, 0), matrix)
    assert phrases.fix_commands(fix, report) == commands


@pytest.mark.parametrize(
    ("facts", "commands"),
    [
        ("", ('"$PYTHON" -m pip uninstall -y apex', "\"$PYTHON\" -m pip install 'torch==2.10.0'")),
        (
            "[python]\nmanager = 'venv'\norigin = '/env (here)'\n",
            (
                "uv pip uninstall --python /env/bin/python apex",
                "uv pip install --python /env/bin/python 'torch==2.10.0'",
            ),
        ),
    ],
)
def test_a_package_is_uninstalled_from_the_judged_interpreter(facts: str, commands: tuple[str, ...]) -> None:
    changes = (("pkg.apex", "absent"), ("pkg.torch", "==2.10.0"))
    fix = Fix(changes, tried=(("pkg.apex", "absent"), ("pkg.torch", "2.10.0")))
    read = inventory(f"complete = ['pkg']\n{facts}[pkg]\ntorch = '2.9.0'\napex = '0.1'\n")
    report = Report("0", "here", read, Judgement((), (), 0, 0), MATRIX)
    assert phrases.fix_commands(fix, report) == commands
    assert fix_words.fix_text(fix) == "uninstall apex and torch ==2.10.0"


# --- the picture of the HTML page -------------------------------------------------------------------


def test_the_box_of_libraries_shows_those_that_are_installed() -> None:
    # deepspeed comes first in the box; that it is absent says nothing about the others.
    read = inventory("complete = ['pkg']\n[pkg]\ntorch = '2.4.0'\npeft = '0.14.0'\n")
    settled = derive.derive(read, MATRIX)
    page = render.format_named("html")(
        Report("0", "here", settled, judging.judge_inventory(settled, MATRIX, None), MATRIX)
    )
    box = page[page.index(">Libraries<") :]
    box = box[: box.index("</g>")] if "</g>" in box else box[:400]
    assert "peft 0.14.0" in box
    assert "none here" not in box


# --- cleaning ---------------------------------------------------------------------------------------


def test_every_active_code_point_is_escaped() -> None:
    for code in range(sys.maxunicode + 1):
        char = chr(code)
        out = sanitize.clean(f"a{char}b")
        if char in "\n\t" or char.isprintable():
            assert out == f"a{char}b"
        elif out == f"a{char}b":
            # Unprintable but inert: unassigned, private use, or another kind of space.
            import unicodedata

            assert unicodedata.category(char) in ("Cn", "Co", "Zs", "Cf")
            assert unicodedata.bidirectional(char) not in (
                "LRE",
                "RLE",
                "LRO",
                "RLO",
                "PDF",
                "LRI",
                "RLI",
                "FSI",
                "PDI",
            )


def test_home_folders_become_a_tilde() -> None:
    assert sanitize.redact("/home/alice/x and /home/alice", ["/home/alice/"]) == "~/x and ~"
    assert sanitize.redact("/x", ["/"]) == "/x"


# --- formats ----------------------------------------------------------------------------------------

HOSTILE = [
    "[bold]x[/bold]",
    "[/]",
    "[link=https://evil]",
    "\x1b[31mred",
    "\u202eevil",
    ":smile:",
    "{}",
    "%s",
    "a\rb",
    "x\ny",
]


@pytest.mark.parametrize("name", ["text", "terminal", "json"])
@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_is_neither_active_nor_lost(name: str, text: str) -> None:
    out = rendered(name, f"GPU {text} end")
    plain = out if name == "json" else sanitize.clean(ANSI.sub("", out))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", plain)
    if text.isprintable():
        assert text in plain
    assert "\ny end" not in plain, "a name began a new line"


def test_terminal_and_text_have_the_same_content(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert ANSI.sub("", rendered("terminal", "A100")) == rendered("text", "A100")


def test_long_details_wrap_with_a_hanging_indent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    verbose = report("A100")._replace(verbosity=Verbosity.ALL)
    lines = ANSI.sub("", render.format_named("terminal")(verbose)).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("    why"))
    assert lines[start + 1].startswith(" " * 12)
    assert all(len(line) <= 60 for line in lines[start : start + 3])
    joined = " ".join(line.strip() for line in lines)
    assert "a lot of things that nobody reads on a small screen." in joined


def test_one_waiting_rule_is_counted_in_the_singular() -> None:
    empty = derive.derive(inventory("[pkg]\ntorch = '2.4.0'\n"), MATRIX)
    for key, phrase in (("gpu.name", "1 needs a GPU"), ("train.zero_stage", "1 waits for training")):
        world = known(rule(f'{{ "{key}" = "present" }}'))
        waiting = Report("0", "here", empty, judging.judge_inventory(empty, world, None), world)
        assert f" · {phrase} · " in count_text(waiting)


def test_formats_are_found_by_their_module() -> None:
    assert {"json", "terminal", "text"} <= set(render.formats())
    with pytest.raises(InputError, match="no such format"):
        render.format_named("no-such-format")
