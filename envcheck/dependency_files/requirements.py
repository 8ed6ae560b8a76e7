"""requirements.txt as pip reads it: pins, hashes, included files (`-r`, `-c`), options that name an index."""

from __future__ import annotations

from envcheck.dependency_files import DependencyFormat, DependencyList, ReadingContext
from envcheck.dependency_files.parsing.requirement_collector import RequirementCollector


def read(text: str, where: str, context: ReadingContext) -> tuple[DependencyList, ...]:
    """Return the one dependency list of a requirements file; it is whole if every requirement has a hash.

    Raises:
        InputError: the file has a mistake; with file, line and column.
    """
    collector = RequirementCollector(context)
    collector.add_file(text, where)
    return (collector.dependency_list(where)._replace(fresh=True),)


_OTHER_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "pixi.lock", "Pipfile.lock")


def _recognises(name: str) -> bool:
    return name.endswith((".txt", ".in", ".lock")) and not name.endswith(_OTHER_LOCKS)


LISTING = DependencyFormat(
    "requirements.txt", _recognises, read, r".*(?:requirements|constraints)[^/]*\.(?:txt|in)"
)
