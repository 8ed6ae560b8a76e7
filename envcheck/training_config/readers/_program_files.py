"""The files of a program that a launch line starts, as texts.

Most launch lines start a program that is not beside the script. This module says so without the modules that
follow a program, whose import takes as long as all else that a launch script needs.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from envcheck.core.patterns import pattern
from envcheck.training_config.document import ProgramSource
from envcheck.training_config.readers import Beside

LARGEST = 1 << 18
"""The number of characters of the largest file that is read."""

_MODULE = pattern(r"[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*")


def program_files(program: str, folder: str) -> Iterator[str]:
    """Yield the possible files of a program or a module, the likeliest first."""
    if program.endswith(".py"):
        names = [program]
    elif _MODULE.fullmatch(program):
        parts = program.replace(".", "/")
        names = [f"{parts}.py", f"{parts}/__main__.py"]
        names += [f"src/{name}" for name in names]  # of a package that is installed from its folder
    else:
        return
    for name in names:
        yield from dict.fromkeys((posixpath.join(folder, name), name))


def program_texts(program: str, folder: str, beside: Beside) -> Iterator[tuple[str, str]]:
    """Yield path and text of each possible file of a program that is here, the likeliest first."""
    for path in program_files(program, folder):
        text = beside(path)
        if text is not None and len(text) <= LARGEST:
            yield path, text


def unparsed_source(program: str, folder: str, beside: Beside) -> ProgramSource | None:
    """Return the names in a program that cannot be parsed, as newer Python; None if it is not here.

    Nothing follows from a name that is missing: `unresolved` says that some of the code was not read.
    """
    for path, text in program_texts(program, folder, beside):
        words = frozenset(re.findall(r"[A-Za-z_]\w*", text))
        imports = re.finditer(r"^[ \t]*(?:import|from)[ \t]+(\w+)", text, re.MULTILINE)
        packages = frozenset(match[1] for match in imports)
        return ProgramSource(path, words, frozenset({"."}), {}, packages=packages, outside=packages)
    return None
