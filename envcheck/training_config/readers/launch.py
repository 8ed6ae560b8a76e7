"""Launch scripts: whether a text is one. What it says is read in `launch_lines`, for which only they pay."""

from __future__ import annotations

import re

from envcheck.training_config.document import Document
from envcheck.training_config.readers import ConfigReader

_STARTS = re.compile(
    r"(?:^|[\s/(\"'`;&|=])(?:torchrun|deepspeed|accelerate[ \t]+launch|python[0-9.]*|llamafactory-cli|axolotl"
    r"|swift|megatron|trl|ray[ \t]+job[ \t]+submit)[ \t\\]"
)


def recognises(text: str) -> bool:
    """Whether a text starts a program that trains, or is more than one line of arguments."""
    if text.lstrip().startswith(("{", "[", "-")):
        return False
    lines = [line for line in _CONTINUED.sub(" ", text).split("\n") if _COMMAND.match(line)]
    pairs = all(_PAIR.fullmatch(line) for line in lines)
    return bool(lines) and (
        text.startswith("#!") or bool(_STARTS.search(text)) or (len(lines) > 1 and not pairs)
    )


_CONTINUED = re.compile(r"\\\r?\n")
_COMMAND = re.compile(r"[ \t]*[^\s#]")
_PAIR = re.compile(r"[ \t]*[\w.-]+=\S*[ \t\r]*")


def read(text: str, file: str) -> tuple[Document, ...]:
    """The documents of each launch line that trains.

    Raises:
        InputError: the text is no shell script, or nothing in it starts a training.
    """
    from envcheck.training_config.readers import launch_lines

    return launch_lines.read(text, file)


READER = ConfigReader("a launch script", 5, recognises, read)
