"""The errors a user can correct, and the place in a file that an error or finding points to."""

from typing import NamedTuple


class Place(NamedTuple):
    """Where something stands: line and column from 1, in characters; line 0 is the file as a whole.

    `excerpt` is the line it stands on, or the part of a long line that begins after `cut` characters.
    """

    file: str
    line: int = 0
    column: int = 0
    length: int = 1
    excerpt: str = ""
    cut: int = 0

    def __str__(self) -> str:
        """`ds.json:7:23`."""
        return f"{self.file}:{self.line}:{self.column}" if self.line else self.file


class EnvcheckError(Exception):
    """Something the user can mend; `cli` prints it as one line and exits with `code`."""

    code = 2


class InputError(EnvcheckError):
    """Unreadable or malformed input; says the file, the position and what was expected."""

    def __init__(self, where: str | Place, problem: str) -> None:
        """Join the place (`file`, `file:line:column` or `file: key.path`) with what is wrong there."""
        super().__init__(f"{where}: {problem}")
        self.place = Place(where) if isinstance(where, str) else where
        self.where = str(where)
        self.problem = problem


class ExamineError(EnvcheckError):
    """The environment could not be examined at all: neither a pass nor a bad machine."""

    code = 3


class NoSolutionError(EnvcheckError):
    """No versions satisfy the target on this machine."""

    code = 4
