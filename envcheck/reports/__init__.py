"""Output formats. A module here that defines `render(report) -> str` is one, named by its file.

A format arranges what a `Report` says; it decides nothing and reads nothing. What it returns is not
yet fit to print: `cli` cleans and redacts it at the one output boundary.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable

from envcheck import versions
from envcheck.model import Fix, Inventory, Report, Tri, Value

Render = Callable[[Report], str]


def formats() -> tuple[str, ...]:
    """Names of all formats."""
    return tuple(sorted(module.name for module in pkgutil.iter_modules(__path__)))


def format_named(name: str) -> Render:
    """The `render` of a format. Raises KeyError if there is none of that name."""
    if name not in formats():
        raise KeyError(name)
    render: Render = importlib.import_module(f"{__name__}.{name}").render
    return render


# --- words that several formats use -----------------------------------------------------------------


def shown(value: Value) -> str:
    """A value as people write it: `true`, `a, b`."""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def reading(inventory: Inventory, key: str, device: int | None = None) -> str:
    """The value under a key as people write it; empty if it is not known."""
    value = inventory.known(key, device)
    return "" if value is None else shown(value)


def fix_text(fix: Fix, joint: str = " and ") -> str:
    """A way out in words: `deepspeed >=0.19.3`, `train.use_reentrant = true`."""
    parts = []
    for key, value in fix.set:
        name = key.removeprefix("pkg.")
        if name != key or key.endswith(".version"):
            parts.append(f"{name} {shown(value)}")
        else:
            parts.append(f"{key} = {shown(value)}")
    return joint.join(parts)


def fix_commands(fix: Fix, moved: dict[str, tuple[str, ...]], inventory: Inventory) -> tuple[str, ...]:
    """Commands that carry out a way out, to paste; none for what no command does.

    They install the release that was tried, for a later one may be another story. `moved` names, for a
    package, the installed ones that must move with it. To pip, 2.10.0+cu130 is 2.10.0 already and
    nothing would happen: another build of the release that is here is taken away first.
    """
    wanted: list[str] = []
    in_the_way: list[str] = []
    for key, value in fix.tried:
        name = key.removeprefix("pkg.")
        if name != key:
            others = moved.get(name, ())
            wanted += [f"'{name}=={shown(value)}'", *others]
            here = str(inventory.known(key) or "")
            if versions.local_label(here) and versions.compare(here, "==", str(value)) is Tri.YES:
                in_the_way += [name, *others]
    removed = f"python -m pip uninstall -y {' '.join(in_the_way)}"
    install = f"python -m pip install {' '.join(wanted)}"
    return (*([removed] if in_the_way else []), *([install] if wanted else []))


def moved_with(report: Report) -> dict[str, tuple[str, ...]]:
    """For each package, the installed ones that must move with it."""
    return {
        name: tuple(each for each in others if report.inventory.known(f"pkg.{each}") is not None)
        for name, others in report.matrix.moves_with.items()
    }
