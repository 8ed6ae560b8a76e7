"""Write a lock as a requirements.txt whose header says what the lock assumes.

The header consists of comments: prose for people, and lines that start with `# envcheck:`. `check` reads
the latter, because it must not guess what a lock was made for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envcheck.lock.install import install_commands
from envcheck.lock.leaks import checked
from envcheck.lock.model import HEADER_MARK, Lock, machine_lines, pin_lines


def render_requirements(lock: Lock) -> str:
    """Return the lock as requirements.txt: header, then each package with its hashes.

    The same lock always gives the same bytes.

    Raises:
        ExamineError: the text reveals something of this machine (see `refuse_leaks`).
    """
    return checked(comment_lines(_header(lock)) + pin_lines(lock.pins), lock)


def comment_lines(lines: Iterable[str]) -> str:
    """Return the lines as comments, for a requirements file and TOML alike."""
    return "".join(f"# {line}".rstrip() + "\n" for line in lines)


def document(header: Iterable[str], body: Iterable[str]) -> str:
    """Return a file of lines whose header is a comment."""
    return comment_lines(header) + "".join(f"{line}\n" for line in body)


def introduction(lock: Lock) -> Iterator[str]:
    """Yield the lines that every format starts with: who locked when, for what, and what it relies on."""
    maker = f"envcheck {lock.maker}".strip()
    date = f" on {lock.date}" if lock.date else ""
    yield f"Locked by {maker}{date} for {f'the target {lock.target}' if lock.target else 'no target'}."
    if lock.proof:
        yield f"Proven     {lock.proof}"
    yield ""
    yield f"Python     {lock.python} on {lock.platform}" + (
        f", glibc {lock.glibc} or newer" if lock.glibc else ""
    )
    for key, operator, value in lock.needs:
        yield f"Machine    {key} {value}" + (" or newer" if operator == ">=" else "")
    for key, value in lock.train:
        yield f"Training   {key} = {value}"
    for note in lock.notes:
        yield f"Note       {note}"


def _header(lock: Lock) -> Iterator[str]:
    yield from introduction(lock)
    yield ""
    yield "Install into an empty environment, with this file as requirements.txt:"
    yield from (f"  {command}" for command in install_commands(lock.build, lock.pins))
    yield ""
    yield from machine_lines(lock)
    yield f"{HEADER_MARK}digest={lock.digest()}"
    yield ""
