"""Facts, diagnostics and the commands of fixes as text that all formats share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from envcheck.core import versions
from envcheck.core.facts import Absent, Inventory, Tri, package_key, package_name
from envcheck.core.findings import Diagnostic, Report
from envcheck.core.rules import Fix, uninstalls
from envcheck.rules.fix_words import value_text


def fact_text(inventory: Inventory, key: str, device: int | None = None) -> str:
    """Return the known value of a fact as text; empty if it is not known."""
    value = inventory.known(key, device)
    return "" if value is None else value_text(value)


def diagnostic_line(diagnostic: Diagnostic) -> str:
    """Return a diagnostic in a compiler's style: `ds.json:3:5: warning: it is misspelt [unknown-key]`."""
    where = f"{diagnostic.places[0]}: " if diagnostic.places else ""
    return f"{where}{diagnostic.severity.value}: {diagnostic.text} [{diagnostic.code}]"


def fix_commands(fix: Fix, report: Report) -> tuple[str, ...]:
    """Return the shell commands that apply a fix; empty if no command does.

    The commands install the release that was judged, because a later one may fail. They also move the
    installed packages that must change with it.
    """
    requirements: list[tuple[str, str]] = []
    to_uninstall: list[str] = []
    for key, value in fix.tried:
        name = package_name(key)
        if uninstalls(key, value):
            to_uninstall.append(name)
        if name == key or uninstalls(key, value):
            continue
        version = value_text(value)
        companions = companion_requirements(name, version, report)
        requirements += [(name, f"{name}=={version}"), *companions.items()]
        if is_another_build(str(report.inventory.known(key) or ""), version):
            to_uninstall += [name, *companions]
    return install_commands(dict(requirements), to_uninstall, report)


def companion_requirements(name: str, version: str, report: Report) -> dict[str, str]:
    """Return the requirements, by package, for installed packages that must change with a release."""
    others = report.matrix.moves_with.get(name, ())
    installed = [other for other in others if report.inventory.known(package_key(other)) is not None]
    if not installed:
        return {}
    rows = report.matrix.tables.get(name, [])
    base = versions.base_release(version)
    row = next((row for row in rows if row["version"] in (version, base)), {})
    return {other: f"{other}=={row[other]}" if row.get(other) else other for other in installed}


def is_another_build(installed: str, version: str) -> bool:
    """Return whether a release is installed in another build: +cu126, for example, if +cu130 is needed."""
    return bool(versions.local_label(installed)) and versions.compare(installed, "==", version) is Tri.YES


def install_commands(
    requirements: Mapping[str, str], to_uninstall: Sequence[str], report: Report
) -> tuple[str, ...]:
    """Return the commands that install requirements (by package) for the interpreter that was judged.

    One command installs all packages, so that the installer resolves them together.

    pip treats 2.10.0+cu130 as 2.10.0 and would install nothing. Another build of the installed release is
    therefore uninstalled first.
    """
    uninstall, install = _installer(report.inventory)
    packages = " ".join(f"'{requirement}'" for requirement in requirements.values())
    return (
        *([f"{uninstall} {' '.join(to_uninstall)}"] if to_uninstall else []),
        *([f"{_build_settings(requirements, report)}{install} {packages}"] if requirements else []),
    )


def _installer(inventory: Inventory) -> tuple[str, str]:
    """Return the commands that uninstall and install packages here; a venv without pip was made by uv."""
    python = interpreter(inventory)
    is_venv = inventory.known("python.manager") == "venv"
    if is_venv and isinstance(inventory.fact("pkg.pip").reading, Absent):
        return f"uv pip uninstall --python {python}", f"uv pip install --python {python}"
    return f"{python} -m pip uninstall -y", f"{python} -m pip install"


def interpreter(inventory: Inventory) -> str:
    """Return the judged interpreter, quoted for a shell, or a variable for the user to set if unknown."""
    path = str(inventory.known("python.origin") or "").rpartition(" (")[0]
    if not path:
        return '"$PYTHON"'  # if unset, nothing is installed; a bare `python` may be another interpreter
    if not path.rpartition("/")[2].startswith(("python", "pypy")):
        path = f"{path.rstrip('/')}/bin/python"
    if path[0].isalnum() or path.startswith("."):
        path = path if "/" in path else f"./{path}"
    plain = all(sign.isalnum() or sign in "/._-+~@%:," for sign in path)
    return path if plain else "'" + path.replace("'", "'\"'\"'") + "'"


def _build_settings(packages: Collection[str], report: Report) -> str:
    """Return the environment settings, such as `DS_BUILD_OPS=0 `, with which the target builds a package."""
    built = [name for name in packages if report.target and name in report.target.build]
    if not built:
        return ""
    from envcheck.lock.install import BUILDS  # few targets build a package

    return "".join(f"{BUILDS[name].settings} " for name in built if name in BUILDS)
