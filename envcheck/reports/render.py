"""The output boundary: find a format by name and render a report that is safe to print.

A format is a module in `reports/formats/` that defines `render(report) -> str`; its file name is the format's
name. A format arranges what a `Report` contains; it must not judge or read anything. `rendered` passes it a
report in which every text has been sanitised and private data removed. A format therefore escapes only what
is active in its own output language.

A format may also define `SUFFIXES`, the file name suffixes that select it. It may define `BESIDE`, additional
renderings to append to the files that certain environment variables name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from types import ModuleType

from envcheck.core.errors import InputError
from envcheck.core.findings import Report
from envcheck.core.plugins import module_names
from envcheck.core.sanitize import Private, sanitized
from envcheck.reports import formats as format_modules

Render = Callable[[Report], str]


def rendered(name: str, report: Report, private: Private) -> str:
    """Return the sanitised report in the named format.

    Raises:
        InputError: no format has that name.
    """
    return format_named(name)(sanitized(report, private))


def format_named(name: str) -> Render:
    """Return the `render` function of a format.

    Raises:
        InputError: no format has that name; the message suggests the nearest one.
    """
    if name not in formats():
        from envcheck.core.suggestions import suggestion

        known = sorted(set(formats()) - {"terminal"})
        raise InputError(f"--format {name}", f"no such format{suggestion(name, known)}")
    render: Render = _module(name).render
    return render


def formats() -> tuple[str, ...]:
    """Return the names of all formats, sorted."""
    return module_names(format_modules.__path__)


def format_for_file(file: str) -> str:
    """Return the format that a file name selects by its longest known suffix; `text` if it has no suffix.

    Raises:
        InputError: no format has this suffix; the message lists the known suffixes.
    """
    suffixes = {suffix: name for name in formats() for suffix in getattr(_module(name), "SUFFIXES", ())}
    matching = [suffix for suffix in suffixes if file.lower().endswith(suffix)]
    if not matching and "." in file.rpartition("/")[2].strip("."):
        known = ", ".join(sorted(suffixes))
        raise InputError(
            f"-o {file}",
            f"cannot infer the format from this file name; use --format, or one of the suffixes {known}",
        )
    return suffixes[max(matching, key=len)] if matching else "text"


def beside(name: str) -> Mapping[str, Render]:
    """Return a format's additional renderings, by the environment variable that names the file of each.

    Each rendering is appended to its file; GitHub's step summary is one.
    """
    found: Mapping[str, Render] = getattr(_module(name), "BESIDE", {})
    return found


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{format_modules.__name__}.{name}")
