"""Jupyter notebooks: the calls of their cells, what `!` and `%%bash` start, and files that cells write."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from envcheck.core.errors import InputError
from envcheck.core.facts import Tri, Unknown
from envcheck.core.patterns import pattern
from envcheck.training_config.document import Document
from envcheck.training_config.readers import INSTEAD_OF_PROGRAM, Beside, ConfigReader

if TYPE_CHECKING:  # imported where a notebook has code
    from envcheck.training_config.programs.follow import FollowedProgram

_CellLine: TypeAlias = tuple[str, int]  # a line, and its line number in the file

_NAME = "notebook.ipynb.py"
"""The name of a notebook's code as a program; no file has it."""

_MARKS = ('"cells"', '"cell_type"')
_SHELL_CELL = pattern(r"%%(?:bash|sh|script)\b")
_WRITES_FILE = pattern(r"%%(?:writefile|file)[ \t]+(-a[ \t]+)?(\S+)")
_LONGEST_VALUE = 1000  # characters of a variable
_END = "END_OF_THE_CELL"
"""What ends the here-document that stands for a cell which writes a file."""

_SETS_VARIABLE = pattern(r"%(?:env|set_env)[ \t]+(\w+)(?:[ \t]*=[ \t]*|[ \t]+)(\S.*)")
_CHANGES_FOLDER = pattern(r"%cd[ \t]+(\S+)")
_IN_BRACES = pattern(r"(?<![${])\{([^{}\"':,\s]+)\}")
"""An expression of Python in the text of a command, as IPython replaces it by its value."""

_MAGIC = pattern(r"([ \t]*)(?:!|%|\?|.*\?$)")


def recognises(text: str) -> bool:
    """Return whether a text is a notebook's JSON."""
    return text.lstrip().startswith("{") and all(mark in text for mark in _MARKS)


def read(text: str, file: str, beside: Beside | None = None) -> tuple[Document, ...]:
    """Return the documents of the cells.

    Raises:
        InputError: the text is malformed, or no cell configures or starts a training.
    """
    from envcheck.training_config.programs.modules import parse
    from envcheck.training_config.programs.parsers import GivenArguments
    from envcheck.training_config.readers import _python_calls, _shell_lines, json_text
    from envcheck.training_config.readers._environment import devices_of_program, single_device
    from envcheck.training_config.readers._program_source import follow_program

    tree = json_text.loads(text, file)
    python: list[_CellLine] = []
    shell: list[_shell_lines.ShellLine] = []
    written: dict[str, str] = {}
    for cell in _code_cells(tree, text):
        if cell and (name := _WRITES_FILE.match(cell[0][0])):
            content = "\n".join(line for line, _ in cell[1:])
            written[name.group(2).removeprefix("./")] = f"{content}\n"
        calls, commands = _parts(cell)
        shell += map(_shell_lines.ShellLine._make, _variables(calls))
        if _is_shell(
            "\n".join(line for line, _ in commands)
        ):  # one malformed cell leaves the others readable
            shell += [_shell_lines.ShellLine(*line) for line in commands]
        # Skip a cell that is not Python, such as one with another magic; the other cells stay readable.
        if parse("\n".join(line for line, _ in calls)) is not None:
            python += calls
    found: list[Document] = []
    trains = False
    devices: str | Unknown | None = None
    with contextlib.suppress(InputError):
        source = "\n".join(line for line, _ in python)

        def in_notebook(name: str, source: str = source) -> str | None:
            return source if name == _NAME else beside(name) if beside is not None else None

        followed = follow_program(_NAME, "", in_notebook, GivenArguments({}))
        trains = followed is not None and followed.trains is Tri.YES
        written.update(_written_by_cells(followed))
        devices = devices_of_program(followed)
        found += _python_calls.documents(source, file, [at for _, at in python], followed)

    def written_or_beside(name: str) -> str | None:
        # A command may run in the folder of a project that an earlier cell has cloned, and a cell too.
        path = next((each for each in written if f"/{name}".endswith(f"/{each}")), None)
        return written[path] if path is not None else beside(name) if beside is not None else None

    with contextlib.suppress(InputError):
        started = _shell_lines.documents(shell, file, written_or_beside) if shell else ()
        # Where a command trains, a model that the notebook itself loads is only tried out.
        found = [*(found if trains or not started else ()), *started]
        devices = None if started else devices
    found = [*single_device(devices, file), *found] if found else []
    if not found:
        raise InputError(file, INSTEAD_OF_PROGRAM)
    return tuple(found)


def _written_by_cells(followed: FollowedProgram | None) -> Iterator[tuple[str, str]]:
    """Yield the configurations that the code of the cells writes, as far as their content is known."""
    from envcheck.training_config.readers._started_processes import text_of

    for path, content in followed.written.items() if followed is not None else ():
        if (text := text_of(content)) is not None:
            yield path.removeprefix("./"), text


def _is_shell(text: str) -> bool:
    """Return whether a text can be parsed as shell commands."""
    from envcheck.training_config.launch_scripts.parser import parse
    from envcheck.training_config.launch_scripts.syntax import NotAScriptError

    try:
        parse(text)
    except NotAScriptError:
        return False
    return True


def _parts(cell: list[_CellLine]) -> tuple[list[_CellLine], list[_CellLine]]:
    """Return the lines of a cell that are Python, and those that a shell runs."""
    if cell and _SHELL_CELL.match(cell[0][0]):
        return [], cell[1:]
    if cell and (writes := _WRITES_FILE.match(cell[0][0])):
        first, last = cell[0][1], cell[-1][1]
        return [], [(f"cat > {writes.group(2)} <<'{_END}'", first), *cell[1:], (_END, last)]
    python: list[_CellLine] = []
    shell: list[_CellLine] = []
    continued = False
    for line, number in cell:
        stripped = line.lstrip()
        if continued or stripped.startswith("!"):
            # Each `!` starts a shell of its own, so that a folder or variable of one is not that of the next.
            shell += [] if continued else [("(", number)]
            shell.append((_IN_BRACES.sub(_variable, line if continued else stripped[1:]), number))
            python.append((f"{line[: len(line) - len(stripped)]}pass" if not continued else "", number))
            continued = line.rstrip().endswith("\\")
            shell += [] if continued else [(")", number)]
            continue
        if change := _CHANGES_FOLDER.match(stripped):
            shell.append((f"cd {change.group(1)}", number))
        if sets := _SETS_VARIABLE.match(line):
            name, value = sets.group(1), sets.group(2).strip().strip("\"'")
            known = not value.startswith(("$", "{"))
            shell.append((f"export {name}={shlex.quote(value) if known else '$COMPUTED'}", number))
            line = f"import os; os.environ[{name!r}] = {value!r}" if known else "pass"  # noqa: PLW2901
        magic = _MAGIC.match(line)
        python.append((f"{magic.group(1)}pass" if magic else line, number))
    shell += [(")", cell[-1][1])] if continued else []
    return python, shell


def _variable(found: re.Match[str]) -> str:
    """Return the variable that stands for an expression; one that is no name is not known."""
    return f"${{{found.group(1)}}}" if found.group(1).isidentifier() else "$COMPUTED"


def _variables(cell: list[_CellLine]) -> Iterator[_CellLine]:
    """Yield assignments in shell for those of a cell, whose names commands may use."""
    import ast  # few files are notebooks

    from envcheck.training_config.programs.modules import parse

    tree = parse("\n".join(line for line, _ in cell))
    for node in tree.body if tree is not None else ():
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Name):
            continue
        name, number = node.targets[0].id, cell[node.lineno - 1][1]
        value = node.value.value if isinstance(node.value, ast.Constant) else None
        if isinstance(value, str | int | float) and len(str(value)) <= _LONGEST_VALUE:
            yield f"{name}={shlex.quote(str(value))}", number
        else:
            yield f"unset {name}", number


def _code_cells(tree: Any, text: str) -> Iterator[list[_CellLine]]:
    """Yield the lines of each code cell, with their line numbers in the file."""
    cells = tree.get("cells") if isinstance(tree, dict) else None
    at, number = 0, 1
    for cell in cells if isinstance(cells, list) else ():
        source = cell.get("source") if isinstance(cell, dict) else None
        pieces = [source] if isinstance(source, str) else source
        if cell.get("cell_type") != "code" or not isinstance(pieces, list):
            continue
        lines: list[_CellLine] = []
        for piece in filter(lambda each: isinstance(each, str), pieces):
            start = max(
                text.find(json.dumps(piece), at), text.find(json.dumps(piece, ensure_ascii=False), at)
            )
            if start >= 0:
                number += text.count("\n", at, start)
                at = start
            lines += [(line, number) for line in piece.split("\n")[: -1 if piece.endswith("\n") else None]]
        yield lines


READER = ConfigReader("a Jupyter notebook", -2, recognises, read, read, reads_programs=True)
