"""Properties that hold for any command line: what is read without typer is what typer reads."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from types import FunctionType
from typing import Any, get_type_hints

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from envcheck.cli import plain_words
from envcheck.cli.main import COMMANDS, command_module
from envcheck.cli.program import for_typer

PLAIN = [name for name in COMMANDS if not hasattr(command_module(name), "CONTEXT_SETTINGS")]
VALUES = [
    "",
    "-",
    "x",
    "a b",
    "3",
    "-3",
    "0",
    "1.5",
    "1e3",
    "\uff13",
    "--json",
    "a=b",
    "=",
    "cpu",
    "error",
    "show",
    "json",
    "é",
]


def _spy(name: str) -> FunctionType:
    """Return a function with the signature of a command that returns its arguments."""
    command = command_module(name).command
    names = command.__code__.co_varnames[: command.__code__.co_argcount]
    defined: dict[str, Any] = {}
    exec(f"def spy({', '.join(names)}): return dict(locals())", defined)  # noqa: S102 - names of our own
    spy = defined["spy"]
    spy.__defaults__ = command.__defaults__
    spy.__annotations__ = get_type_hints(command, include_extras=True)
    return spy  # type: ignore[no-any-return]


def _words(spy: Callable[..., Any]) -> st.SearchStrategy[list[str]]:
    """Return command lines of the options of a command, of their values, and of words that are neither."""
    hints = [hint for name, hint in spy.__annotations__.items() if name != "return"]
    options = [name for hint in hints for name in hint.__metadata__[0].names]
    members = [str(each.value) for hint in hints for each in _members(hint.__origin__)]
    value = st.sampled_from([*VALUES, *members])
    option = st.sampled_from([*options, "--", "-x", "--none", "--help"])
    pair = st.builds(lambda name, word: [name, word], option, value)
    joined = st.builds(lambda name, word: [f"{name}={word}"], option, value)
    piece = pair | joined | st.builds(lambda name: [name], option) | st.builds(lambda word: [word], value)
    return st.lists(piece, max_size=5).map(lambda pieces: [word for each in pieces for word in each])


def _members(hint: Any) -> list[Enum]:
    kinds = [hint, *getattr(hint, "__args__", ())]
    return [member for kind in kinds if isinstance(kind, type) and issubclass(kind, Enum) for member in kind]


@pytest.mark.parametrize("name", PLAIN)
@given(data=st.data())
def test_a_command_line_that_is_read_without_typer_means_the_same_to_typer(
    name: str, data: st.DataObject
) -> None:
    spy = _spy(name)
    words = data.draw(_words(spy))
    read = plain_words.parse(spy, words)
    if read is None:
        return
    app = typer.Typer(add_completion=False)
    app.command()(for_typer(spy))
    assert typer.main.get_command(app)(words, standalone_mode=False) == spy(**read)


@pytest.mark.parametrize(
    "line",
    [
        "doctor --python .venv --target zero3-lora --train run.sh --train=ds.json --json -o report.json",
        "pin --target zero3-lora -o requirements.txt --python-version 3.11 --with trl>=0.20",
        "gate --machine a100-r535 --fail-on warning --timeout 2.5 --strict",
        "check requirements.txt Dockerfile --driver 535.54.03",
        "matrix show peft transformers",
        "explain -",
    ],
)
def test_the_command_lines_of_the_documents_need_no_typer(line: str) -> None:
    name, *words = line.split()
    assert plain_words.parse(command_module(name).command, words) is not None


@pytest.mark.parametrize(
    "line",
    [
        "doctor --pyth .venv",
        "doctor -vq",
        "doctor --expect-gpus 0",
        "gate --fail-on bad",
        "check",
        "doctor x",
    ],
)
def test_what_is_unusual_or_wrong_is_left_to_typer(line: str) -> None:
    name, *words = line.split()
    assert plain_words.parse(command_module(name).command, words) is None
