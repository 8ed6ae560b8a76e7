"""What leaves: formats over one report, hostile text, redaction."""

from __future__ import annotations

import json
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envcheck.commands import examine
from envcheck.core import sanitize
from envcheck.core.errors import InputError
from envcheck.core.findings import Report
from envcheck.core.rules import Fix
from envcheck.reports import phrases, render
from envcheck.reports.details import count_text
from envcheck.rules import derive
from tests.support.worlds import inventory, known, rule

ANSI = re.compile(r"\x1b\[[0-9;]*m")
MATRIX = known(
    rule(
        '{ "gpu.name" = "present" }',
        more='why = "It is long, because it has to say a lot of things that nobody reads on a small screen."',
    )
)

INSTALL = "python -m pip install 'torch==2.10.0' torchvision"


def report(name: str, subject: str = "here") -> Report:
    read = inventory(f"[[gpu]]\nname = {json.dumps(name)}\n[pkg]\ntorch = '2.4.0'\n")
    settled = derive.derive(read, MATRIX)
    return Report("0", subject, settled, examine.judged(settled, MATRIX, None), MATRIX)


def shown(name: str, text: str) -> str:
    return render.format_named(name)(report(text))


# --- commands ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("here", "commands"),
    [
        ("2.10.0+cpu", ("python -m pip uninstall -y torch torchvision", INSTALL)),
        ("2.10.0", (INSTALL,)),
        ("2.9.1+cpu", (INSTALL,)),
    ],
)
def test_another_build_of_the_wanted_release_is_taken_away_first(
    here: str, commands: tuple[str, ...]
) -> None:
    # To pip 2.10.0+cpu is 2.10.0: `pip install torch==2.10.0` would leave it in place.
    fix = Fix((("pkg.torch", "==2.10.0"),), tried=(("pkg.torch", "2.10.0"),))
    read = inventory(f"[pkg]\ntorch = {json.dumps(here)}\n")
    assert phrases.fix_commands(fix, {"torch": ("torchvision",)}, read) == commands


# --- cleaning ---------------------------------------------------------------------------------------


def test_every_code_point_that_can_act_is_written_out() -> None:
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


@given(st.text())
def test_cleaning_twice_is_cleaning_once(text: str) -> None:
    once = sanitize.clean(text)
    assert sanitize.clean(once) == once
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2066-\u2069]", once)
    once.encode("utf-8")


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
def test_no_format_lets_outside_text_act_or_disappear(name: str, text: str) -> None:
    out = shown(name, f"GPU {text} end")
    plain = out if name == "json" else sanitize.clean(ANSI.sub("", out))
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f\u202e]", plain)
    if text.isprintable():
        assert text in plain
    assert "\ny end" not in plain, "a name wrote a line of its own"


def test_the_terminal_shows_what_the_text_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "400")
    assert ANSI.sub("", shown("terminal", "A100")) == shown("text", "A100")


def test_long_details_hang_under_their_label_and_words_stay_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = ANSI.sub("", shown("terminal", "A100")).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("    why"))
    assert lines[start + 1].startswith(" " * 12)
    assert all(len(line) <= 60 for line in lines[start : start + 3])
    joined = " ".join(line.strip() for line in lines)
    assert "a lot of things that nobody reads on a small screen." in joined


def test_one_rule_that_waits_is_told_in_the_singular() -> None:
    empty = derive.derive(inventory("[pkg]\ntorch = '2.4.0'\n"), MATRIX)
    for key, said in (("gpu.name", "1 needs a GPU"), ("train.zero_stage", "1 waits for training")):
        world = known(rule(f'{{ "{key}" = "present" }}'))
        told = Report("0", "here", empty, examine.judged(empty, world, None), world)
        assert f" · {said} · " in count_text(told)


def test_formats_are_found_by_their_file() -> None:
    assert {"json", "terminal", "text"} <= set(render.formats())
    with pytest.raises(InputError, match="no such format"):
        render.format_named("no-such-format")
