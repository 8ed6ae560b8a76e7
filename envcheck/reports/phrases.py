"""Values, diagnostics, fixes and their commands as text that all formats share; not translated."""

from __future__ import annotations

from envcheck.core import versions
from envcheck.core.facts import Inventory, Tri, Value, package_key, package_name
from envcheck.core.findings import Diagnostic, Report
from envcheck.core.rules import Fix


def value_text(value: Value) -> str:
    """Return a value as a person would write it: `true`, `a, b`."""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def fact_text(inventory: Inventory, key: str, device: int | None = None) -> str:
    """Return the known value of a fact as text; empty if it is not known."""
    value = inventory.known(key, device)
    return "" if value is None else value_text(value)


def diagnostic_line(diagnostic: Diagnostic) -> str:
    """Return a diagnostic in a compiler's style: `ds.json:3:5: warning: it is misspelt [unknown-key]`."""
    where = f"{diagnostic.places[0]}: " if diagnostic.places else ""
    return f"{where}{diagnostic.severity.value}: {diagnostic.text} [{diagnostic.code}]"


def fix_text(fix: Fix, joint: str = " and ") -> str:
    """Return what a fix changes: `deepspeed >=0.19.3`, `train.use_reentrant = true`."""
    parts = []
    for key, value in fix.set:
        name = package_name(key)
        if name != key or key.endswith(".version"):
            parts.append(f"{name} {value_text(value)}")
        else:
            parts.append(f"{key} = {value_text(value)}")
    return joint.join(parts)


def fix_commands(fix: Fix, companions: dict[str, tuple[str, ...]], inventory: Inventory) -> tuple[str, ...]:
    """Return the shell commands that apply a fix; empty if no command does.

    The commands install the release that was judged, because a later release may fail. `companions` names,
    for each package, the installed packages that must move with it.

    pip treats 2.10.0+cu130 as 2.10.0 and would install nothing. Another build of the installed release is
    therefore uninstalled first.
    """
    requirements: list[str] = []
    to_uninstall: list[str] = []
    for key, value in fix.tried:
        name = package_name(key)
        if name != key:
            others = companions.get(name, ())
            requirements += [f"'{name}=={value_text(value)}'", *others]
            installed = str(inventory.known(key) or "")
            if versions.local_label(installed) and versions.compare(installed, "==", str(value)) is Tri.YES:
                to_uninstall += [name, *others]
    uninstall = f"python -m pip uninstall -y {' '.join(to_uninstall)}"
    install = f"python -m pip install {' '.join(requirements)}"
    return (*([uninstall] if to_uninstall else []), *([install] if requirements else []))


def installed_companions(report: Report) -> dict[str, tuple[str, ...]]:
    """Return, for each package, the installed packages that must move with it."""
    return {
        name: tuple(other for other in others if report.inventory.known(package_key(other)) is not None)
        for name, others in report.matrix.moves_with.items()
    }
