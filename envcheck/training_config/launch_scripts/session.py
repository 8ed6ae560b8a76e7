"""What all parts of following one script share: the budget, functions, here-documents and assumptions."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, TypeAlias

from envcheck.core.patterns import pattern
from envcheck.training_config.launch_scripts.syntax import Node, Script, Word
from envcheck.training_config.launch_scripts.values import Scope, Value
from envcheck.training_config.readers import Beside
from envcheck.training_config.source_lines import SourceLines

MAX_STEPS = 4_000_000
"""The budget of one script, in pieces of values processed. A script of 5 MB uses a quarter of it."""

MAX_CALLS = 20
"""How deep functions, `eval` and `bash -c` may call one another."""


_ASSIGNMENT = pattern(r"(?:^|[\s;&|(){}])([A-Za-z_]\w*)=([^\s;]*)", re.MULTILINE)


MAX_LAUNCHES = 2_000
"""How many commands of one script may start a training; sweeps that people write have some hundreds."""


WrittenBy: TypeAlias = Callable[[str, Sequence[str], Mapping[str, Any], Beside, int], Mapping[str, Value]]
"""Returns the configurations that a program writes, from its text, arguments, variables and offset."""


class TooLongError(Exception):
    """Following the script exceeds a limit, which the text names; scripts written by people stay below."""

    def __init__(self, problem: str = "its variables, functions or loops grow without limit") -> None:
        super().__init__(problem)


def nothing_beside(name: str) -> str | None:
    """Return None: no other file can be read."""
    del name
    return None


class Session:
    """Hold the state of following one script; `beside` reads the scripts that it starts or sources.

    `call_function` follows one of `functions` with its name and arguments, once something follows commands;
    `printing` are those whose output is being read.
    `assumed` has the variables that were assumed to be unset outside the script, and "@" for its arguments.
    `roots` has those that were assumed to name the folder of the project. `passed_over` are the ways in which
    a branch ends that is not assumed to be taken. `tested` are the files that conditions ask for, `left_out`
    those of them that are sourced and not here. `exported` has the variables that programs see, and
    `may_export` says what may give them any other, if something may. `written_by` follows a program in the
    text of the script for the configurations that it writes.
    """

    def __init__(self, lines: SourceLines, script: Script, beside: Beside = nothing_beside) -> None:
        """Begin with a full budget."""
        self.beside = beside
        self.functions: dict[str, Node] = {}
        self._documents_of: dict[str, tuple[Word, ...]] = {}  # of the script that defines a function
        self.printing: set[str] = set()
        self.call_function: Callable[[str, list[Value], Scope], object] | None = None
        self.assumed: set[str] = set()
        self.roots: set[str] = set()
        self.tested: set[str] = set()
        self.left_out: set[str] = set()
        self.exported: set[str] = set()
        self.may_export = ""
        self.written_by: WrittenBy | None = None
        self.passed_over: tuple[str, ...] = ("exit",)
        self.documents: tuple[Word, ...] = script.documents
        self._lines = lines
        self._calls = 0
        self._steps = 0

    @cached_property
    def own_names(self) -> frozenset[str]:
        """Return the variables that the script sets somewhere to something other than `${NAME:-word}`."""
        return frozenset(
            found.group(1)
            for found in _ASSIGNMENT.finditer(self._lines.text)
            if not re.match(rf"[\"']?\$\{{?{found.group(1)}\b", found.group(2))
        )

    def spend(self, steps: int) -> None:
        """Take steps from the budget.

        Raises:
            TooLongError: the budget is used up.
        """
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise TooLongError

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Count one more level of calls within the block.

        Raises:
            TooLongError: there are more than `MAX_CALLS` levels.
        """
        self._calls += 1
        if self._calls > MAX_CALLS:
            raise TooLongError
        yield
        self._calls -= 1

    def define(self, name: str, body: Node) -> None:
        """Define a function of the script that is being followed."""
        self.functions[name] = body
        self._documents_of[name] = self.documents

    @contextlib.contextmanager
    def inside_function(self, name: str) -> Iterator[None]:
        """Use the here-documents of the script that defines a function, and count a call, within the block.

        Raises:
            TooLongError: there are more than `MAX_CALLS` levels.
        """
        outer, self.documents = self.documents, self._documents_of[name]
        with self.call():
            yield
        self.documents = outer

    @contextlib.contextmanager
    def inside(self, script: Script) -> Iterator[None]:
        """Use the here-documents of a nested script within the block."""
        outer, self.documents = self.documents, script.documents
        yield
        self.documents = outer

    def line(self, at: int) -> int:
        """Return the number of the line at an offset."""
        return self._lines.number(at)
