"""Which names of the standard library some releases of Python lack: `compat/names/python.txt`.

All readers in a process share one table, as they do the entries: the caller passes its text to
`use_python_names` first. Both what was dropped and what was added counts: metadata often admits older
releases of Python than the code runs on.
"""

from __future__ import annotations

import hashlib
import sys
from functools import lru_cache

from envcheck.knowledge.names import InReleases, presence
from envcheck.knowledge.release_spans import read_ends

_IN_USE = [""]


def use_python_names(text: str) -> None:
    """Make all readers use the text of a table."""
    _IN_USE[0] = text
    lacking_in.cache_clear()


def python_names_mark() -> str:
    """Return a short text that differs between tables, because readings depend on the table in use."""
    return hashlib.sha256(_IN_USE[0].encode()).hexdigest()[:8]


def python_releases() -> tuple[str, ...]:
    """Return the minor releases of Python that the table in use covers, oldest first."""
    if not _IN_USE[0]:
        return ()
    first, last = (int(each.partition(".")[2]) for each in read_ends(_IN_USE[0]))
    return tuple(f"3.{minor}" for minor in range(first, last + 1))


def is_of_python(path: str) -> bool:
    """Return whether a dotted path lies in the standard library, of this Python or of another one."""
    top = path.split(".", 1)[0]
    return top in sys.stdlib_module_names or bool(lacking_in(top))


@lru_cache(maxsize=65536)
def lacking_in(path: str, name: str = "") -> frozenset[str]:
    """Return the releases of Python that lack something which another one has.

    Args:
        path: a module of the standard library; without a name, a module or a dotted attribute of one.
        name: a name in the module.

    """
    if not _IN_USE[0]:
        return frozenset()
    parts = path.split(".")
    for end in range(1, len(parts) + 1):
        module = ".".join(parts[:end])
        inner = parts[end] if end < len(parts) else name
        lacking = _lacking(module, "") or (_lacking(module, inner) if inner else frozenset())
        if lacking:
            return lacking
    return frozenset()


def _lacking(module: str, name: str) -> frozenset[str]:
    """Return the releases that lack a module, or a name of it, before or after all that have it."""
    found = presence(_IN_USE[0], module, name)
    if found.answer is not InReleases.SOME:
        return frozenset()
    every = python_releases()
    having = [every.index(each) for span in found.spans for each in span if each in every]
    return frozenset((*every[: min(having)], *every[max(having) + 1 :])) if having else frozenset()
