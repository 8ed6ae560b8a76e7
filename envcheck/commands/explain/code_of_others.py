"""Tell whether the failing line is in code that others wrote, although it lies outside installed packages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from envcheck.logs.diagnosis import Cause


def is_in_code_of_others(cause: Cause | None, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> bool:
    """Return whether the failing line may be in code that others wrote, although it is not installed."""
    return _is_in_copy_of_library(cause, tables) or _is_in_program_run_as_module(cause)


def _is_in_copy_of_library(cause: Cause | None, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> bool:
    """Return whether the failing line is in a library's code that a project brings and may have changed."""
    if cause is None or cause.place is None:
        return False
    file = f"/{cause.place.file}".replace("\\", "/")
    return any(
        f"/{row['package']}/{folder}/" in file
        for row in tables.get("library_copy", ())
        for folder in row["folders"]
    )


_MODULE_RUN = re.compile(
    r'File "[^"\n]{0,300}\brunpy(?:\.py)?[^"\n]{0,9}", line \d+, in _run_code\n(?:(?! *File ").*\n){0,3}'
    r' *File "(?P<folder>[^"\n]{1,500})[/\\][^"/\\\n]+", line \d+, in <module>'
)
"""The first file of a program that was started with `python -m`."""


def _is_in_program_run_as_module(cause: Cause | None) -> bool:
    """Return whether the failing line is in the package whose module was started with `python -m`.

    Such a package is a project that others wrote as often as the user's own.
    """
    if cause is None or cause.place is None:
        return False
    started = _MODULE_RUN.search(cause.event.text)
    if started is None or "/" not in cause.place.file.replace("\\", "/"):
        return False
    folder = started["folder"].replace("\\", "/")
    above = folder.rpartition("/")[0] or folder
    return cause.place.file.replace("\\", "/").startswith((f"{folder}/", f"{above}/"))
