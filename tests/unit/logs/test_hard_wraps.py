"""What a terminal broke at its width is joined, and only that."""

from __future__ import annotations

import pytest

from envcheck.logs.hard_wraps import unfolded
from tests.support.logs import SITE, Explain, answer, cause_of, traceback

WIDTH = 79
LOG = (
    "{'loss': 0.0115, 'grad_norm': 0.5289333401881726, 'learning_rate': 3.612428384985e-07, 'epoch': 1.0}\n"
    "[rank2]: Traceback (most recent call last):\n"
    '[rank2]:   File "/workspace/project/open-r1/src/open_r1/a_folder_with_a_long_name/grpo.py", line 259, in main\n'
    "[rank2]:     train_result = trainer.train(resume_from_checkpoint=checkpoint)\n"
    '[rank2]:   File "/e/lib/python3.11/site-packages/deepspeed/runtime/zero/partition_parameters.py", line 284, in free_param\n'
    "[rank2]:     assert not param.ds_active_sub_modules, param.ds_summary()\n"
    "[rank2]: AssertionError: {'id': 0, 'status': 'AVAILABLE', 'numel': 233373696, 'active_sub_modules': {372}}\n"
)


def on_screen(text: str, width: int = WIDTH) -> str:
    """Return a text as a terminal shows it: broken at its width and padded with spaces."""
    rows = [
        line[at : at + width].ljust(width)
        for line in text.splitlines()
        for at in range(0, max(len(line), 1), width)
    ]
    return "\n".join(rows) + "\n"


def bare(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


@pytest.mark.parametrize("width", [72, 79, 80, 100])
def test_lines_that_a_terminal_broke_are_joined_and_keep_their_numbers(width: int) -> None:
    shown = on_screen(LOG, width)

    found = unfolded(shown.encode()).decode()

    assert bare(found) == bare(LOG)
    assert found.count("\n") == shown.count("\n")
    rows, lines = shown.split("\n"), found.split("\n")
    assert all(line.startswith(row) or not line for row, line in zip(rows, lines, strict=True))


@pytest.mark.parametrize(
    "text",
    [
        LOG,
        "",
        "x" * 79 + "\n" + "y" * 79 + "\n",  # a rule or a table of that width
        "".join(f"{'a' * 30:<79}\n" for _ in range(5))
        + "b" * 90
        + "\n",  # a line is longer than the padded ones
        "".join(f"{'a' * 30:<79}\n" for _ in range(3)) + f"{'b' * 79}\n" + f"{'':79}\n" + "c\n",
    ],
)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert unfolded(text.encode()) == text.encode()


def test_bytes_that_are_no_utf8_stay_as_they_are() -> None:
    shown = on_screen(LOG).encode().replace(b"loss", b"lo\xffs")
    assert b"lo\xffs" in unfolded(shown)


def test_a_log_copied_from_a_terminal_is_explained_as_the_log(explained: Explain) -> None:
    copied, whole = (cause_of(explained(text)) for text in (on_screen(LOG), LOG))

    assert copied.told is not None
    assert whole.told is not None
    assert (copied.told.message, copied.place) == (whole.told.message, whole.place)


def test_a_message_that_was_broken_at_a_space_is_recognized(explained: Explain) -> None:
    said = "ImportError: Found an incompatible version of torchao.{}Found version 0.14.1, but only versions above 0.16.0 are supported\n"
    broken, whole, other = (
        answer(explained(said.format(between))) for between in ("\n", " ", "\nloss: 0.3\nloss: 0.2\n")
    )

    assert "peft-torchao-too-old" in whole
    assert "peft-torchao-too-old" in broken
    assert "peft-torchao-too-old" not in other


def _beside_another_pane(log: str, pane: int, screen: int) -> str:
    """Return a log as a terminal with two panes copies it: each line in pieces, with blanks between them."""
    lines = []
    for line in log.splitlines():
        pieces = [line[at : at + pane] for at in range(0, len(line), pane)]
        lines.append("".join(f"{piece:{screen}}" for piece in pieces).rstrip())
    return "\n".join(lines) + "\n"


_WIDE = traceback(
    "ValueError: The global train batch size (1 x 1) must be evenly divisible by the number of generations "
    "per prompt (16). Given the current train batch size, the valid values are: [].",
    (f"{SITE}/trl/trainer/grpo_trainer.py", 346, "__init__", "raise ValueError("),
)


def test_lines_that_go_on_behind_the_blanks_of_another_pane_are_joined() -> None:
    assert unfolded(_beside_another_pane(_WIDE, 60, 165).encode()) == _WIDE.encode()


def test_the_columns_of_a_table_stay_apart() -> None:
    rows = [
        f"{name:<90}{size}" for name, size in (("model-00001.safetensors", 9), ("model-00002.safetensors", 8))
    ]
    wide = [f"{'x' * length:<100}{length}" for length in (60, 45, 70)]

    for table in (rows, wide):
        assert unfolded("\n".join(table).encode()) == "\n".join(table).encode()
