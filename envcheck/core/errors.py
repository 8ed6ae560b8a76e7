"""Errors that end a command, and the place in a file that an error or diagnostic points to."""

from __future__ import annotations

from envcheck.core.records import NamedTuple


class Place(NamedTuple):
    """A place in a file: line and column from 1, in characters.

    Line 0 means the whole file, column 0 the whole line. `length` is the number of characters to underline.
    `excerpt` is the text of that line, or the part of a long line that begins after `cut` characters.
    """

    file: str
    line: int = 0
    column: int = 0
    length: int = 1
    excerpt: str = ""
    cut: int = 0

    def __str__(self) -> str:
        """Return `ds.json:7:23`, without numbers that are 0."""
        return ":".join([self.file, *(str(number) for number in (self.line, self.column) if number)])


class EnvcheckError(Exception):
    """A failure that ends the command: `cli` prints it as one line and exits with `code`."""

    code = 2


class InputError(EnvcheckError):
    """Unreadable or malformed input; the message states the file, the position and what was expected."""

    def __init__(self, where: str | Place, problem: str) -> None:
        """Join the place (`file`, `file:line:column` or `file: key.path`) with the problem."""
        super().__init__(f"{where}: {problem}")
        self.place = Place(where) if isinstance(where, str) else where
        self.where = str(where)
        self.problem = problem


class ExamineError(EnvcheckError):
    """The examination itself failed, so there is no verdict on the machine."""

    code = 3


class NoSolutionError(EnvcheckError):
    """No combination of versions satisfies the target on this machine.

    `chain` has a resolver's whole chain of reasons, of which the message shows the beginning.
    """

    code = 4

    def __init__(self, message: str, chain: str = "") -> None:
        """Store the message, which is the whole chain if none is given."""
        super().__init__(message)
        self.chain = chain or message
