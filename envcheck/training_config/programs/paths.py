"""Paths in a followed program, as texts: what os.path and pathlib make of them. No file is looked at."""

from __future__ import annotations

import posixpath

from envcheck.training_config.programs.values import MISSING, File, Value, parent

UNCHANGED = frozenset({
    "Path", "abspath", "asdict", "copy", "deepcopy", "expanduser", "realpath", "resolve", "str",
    "structured", "to_container", "to_object", "vars",
})  # fmt: skip
"""Functions and classes whose result stands for their argument."""

_MOST_PARENTS = 12  # folders around a path


def of_paths(name: str, paths: tuple[str, ...]) -> Value:
    """Return the result of a function of os.path, or MISSING."""
    if name == "join" and paths:
        return posixpath.join(*paths)
    if name == "dirname" and paths:
        return parent(paths[0]) if paths[0].startswith(".") else posixpath.dirname(paths[0])
    return paths[0] if name in UNCHANGED and paths else MISSING


def of_path(path: str, name: str) -> Value:
    """Return an attribute of a path, or MISSING.

    A text has no such attribute, so it stands for a path; a word alone may be the member of an enumeration.
    """
    if not {"/", "."} & {*path}:
        return MISSING
    if name == "parents":
        return _parents(path)
    last = posixpath.basename(posixpath.normpath(path))
    stem, ending = posixpath.splitext(last)
    of_last = {"name": last, "stem": stem, "suffix": ending}
    return parent(path) or "." if name == "parent" else of_last.get(name, MISSING)


def _parents(path: str) -> tuple[str, ...]:
    """Return the folders around a path, the nearest first."""
    found = [parent(path) or "."]
    while len(found) < _MOST_PARENTS and found[-1] != "/":
        found.append(parent(found[-1]) or ".")
    return tuple(found)


def method_of_path(path: str, name: str, given: tuple[Value, ...]) -> Value:
    """Return the result of a method of a path, or MISSING."""
    if name in ("open", "read_text"):
        return File(path)
    if name == "is_absolute":
        return posixpath.isabs(path)
    if name in ("resolve", "absolute", "expanduser"):
        return path
    texts = given and all(isinstance(each, str) for each in given)
    folder, last = posixpath.split(path)
    match name:
        case "joinpath" if texts:
            found: Value = posixpath.join(path, *given)
        case "with_name" if texts:
            found = posixpath.join(folder, given[0])
        case "with_suffix" if texts:
            found = posixpath.join(folder, posixpath.splitext(last)[0] + given[0])
        case _:
            found = MISSING
    return found
