"""Output formats. A module here that defines `render(report) -> str` is one, named by its file.

A format arranges what a `Report` says; it decides nothing and reads nothing. `rendered` is the one output
boundary: what a format is given there was cleaned and holds nothing private; a format has only to
escape what acts in its own language. It may name the `SUFFIXES` of its files, and what goes `BESIDE`:
other renderings, by the environment variable that names the file each is added to.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType

from envcheck.core import versions
from envcheck.core.errors import InputError, Place
from envcheck.core.facts import Absent, Fact, Inventory, Tri, Value, package_key, package_name
from envcheck.core.findings import Diagnostic, Finding, Move, Plan, Report, Verdict
from envcheck.core.plugins import module_names
from envcheck.core.rules import Fix
from envcheck.core.sanitize import Private, sanitized
from envcheck.reports import formats as format_modules
from envcheck.rules import derive

Render = Callable[[Report], str]


def formats() -> tuple[str, ...]:
    """Names of all formats."""
    return module_names(format_modules.__path__)


def _module(name: str) -> ModuleType:
    return importlib.import_module(f"{format_modules.__name__}.{name}")


def format_named(name: str) -> Render:
    """The `render` of a format. Raises InputError if there is none of that name; names the nearest."""
    if name not in formats():
        from envcheck.core.suggestions import suggestion

        known = sorted(set(formats()) - {"terminal"})
        raise InputError(f"--format {name}", f"no such format{suggestion(name, known)}")
    render: Render = _module(name).render
    return render


def rendered(name: str, report: Report, private: Private) -> str:
    """The report in a format, fit to leave. Raises InputError if there is no format of that name."""
    return format_named(name)(sanitized(report, private))


def beside(name: str) -> Mapping[str, Render]:
    """What a format adds to files that environment variables name: those, and how each is rendered."""
    found: Mapping[str, Render] = getattr(_module(name), "BESIDE", {})
    return found


def format_of(file: str) -> str:
    """The format that a file's name asks for, by its longest suffix; text if it has none.

    Raises:
        InputError: its suffix is that of no format; names those that are.
    """
    suffixes = {suffix: name for name in formats() for suffix in getattr(_module(name), "SUFFIXES", ())}
    asked = [suffix for suffix in suffixes if file.lower().endswith(suffix)]
    if not asked and "." in file.rpartition("/")[2].strip("."):
        known = ", ".join(sorted(suffixes))
        raise InputError(f"-o {file}", f"no format ends so; name one with --format, or end it in {known}")
    return suffixes[max(asked, key=len)] if asked else "text"


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


def remark_line(remark: Diagnostic) -> str:
    """A remark as compilers print one: `ds.json:3:5: warning: it is misspelt [unknown-key]`."""
    where = f"{remark.places[0]}: " if remark.places else ""
    return f"{where}{remark.severity.value}: {remark.text} [{remark.code}]"


def fix_text(fix: Fix, joint: str = " and ") -> str:
    """A way out in words: `deepspeed >=0.19.3`, `train.use_reentrant = true`."""
    parts = []
    for key, value in fix.set:
        name = package_name(key)
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
        name = package_name(key)
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
        name: tuple(each for each in others if report.inventory.known(package_key(each)) is not None)
        for name, others in report.matrix.moves_with.items()
    }


# --- the smallest change ----------------------------------------------------------------------------


def move_name(move: Move) -> str:
    """What moves, in words: `deepspeed`, `train.use_reentrant`, `driver.version`."""
    return package_name(move.key)


def move_then(move: Move) -> str:
    """Where it moves: a release, or the bound where nobody knows which release meets it."""
    if move.administrator or (move.install and "==" not in move.install):
        return move.bound or "?"
    return "?" if move.after is None else shown(move.after)


def plan_commands(plan: Plan, report: Report) -> tuple[str, ...]:
    """Commands that carry out a plan's moves of packages and of environment variables, to paste.

    One line for all packages, so that an installer resolves them together; with uv where that made the
    environment.
    """
    packages = [move for move in plan.moves if move.install]
    wanted = [f"'{move.install}'" for move in packages]
    # To pip, 2.10.0+cu130 is 2.10.0 already, and nothing would happen.
    in_the_way = [
        move_name(move)
        for move in packages
        if move.after is not None
        and versions.local_label(str(move.before or ""))
        and versions.compare(str(move.before), "==", str(move.after)) is Tri.YES
    ]
    removed, install = _installer(report.inventory)
    exports = [
        f"export {move.key.removeprefix('env.')}={move.after}" for move in plan.moves if _exported(move)
    ]
    return (
        *([f"{removed} {' '.join(in_the_way)}"] if in_the_way else []),
        *([f"{_build_settings(packages, report)}{install} {' '.join(wanted)}"] if wanted else []),
        *exports,
    )


def _exported(move: Move) -> bool:
    return move.key.startswith("env.")


def _installer(inventory: Inventory) -> tuple[str, str]:
    """How this environment's packages are taken away and installed; one without pip was made by uv."""
    made_here = inventory.known("python.manager") == "venv"
    if made_here and isinstance(inventory.fact("pkg.pip").reading, Absent):
        import shlex

        path = str(inventory.known("python.origin") or "").rpartition(" (")[0]
        where = f" --python {shlex.quote(path)}" if path else ""
        return f"uv pip uninstall{where}", f"uv pip install{where}"
    return "python -m pip uninstall -y", "python -m pip install"


def _build_settings(packages: Sequence[Move], report: Report) -> str:
    """`DS_BUILD_OPS=0 ` where the target builds one of the packages so."""
    from envcheck.lock.install import BUILDS  # few reports have a plan

    built = report.target.build if report.target else ()
    names = [move_name(move) for move in packages]
    return "".join(f"{BUILDS[name].settings} " for name in names if name in built and name in BUILDS)


def configuration_changes(plan: Plan, report: Report) -> tuple[tuple[str, str, str], ...]:
    """Training facts to change as (`train.zero_stage = 2`, what says it now, an argument that sets it)."""
    found = []
    for move in plan.moves:
        if not move.key.startswith("train."):
            continue
        value = shown(move.after) if move.after is not None else ""
        rows = report.matrix.tables.get("argument", [])
        plain = (row for row in rows if row["key"] == move.key and not {"value", "values"} & row.keys())
        name = next((str(row["names"][0]) for row in plain), "")
        source = report.inventory.fact(move.key).source
        found.append((f"{move.key} = {value}", source, f"--{name} {value}" if name else ""))
    return tuple(found)


def plan_notes(plan: Plan, report: Report) -> tuple[str, ...]:
    """What a person should know before carrying out a plan."""
    moved = [move for move in plan.moves if move.install]
    inventory = report.inventory
    notes = []
    if moved and inventory.known("python.manager") == "conda":
        notes.append("a conda environment: what conda installed, change with conda, or the two disagree")
    for move in moved:
        if inventory.known(f"{move.key}.editable") is True:
            notes.append(f"{move_name(move)} is installed from a checkout, which this replaces")
        if move.unchecked:
            notes.append(f"{move_name(move)} {move_then(move)} is {move.unchecked}")
    if plan.added:
        notes.append(f"an installer adds what these need and is not here: {', '.join(plan.added)}")
    return tuple(notes)


# --- what several formats ask -----------------------------------------------------------------------


def fails(finding: Finding | Diagnostic, report: Report) -> bool:
    """Whether a finding, or a remark on a configuration, is one that the exit code tells."""
    if isinstance(finding, Diagnostic):
        return f"remark:{finding.code}" not in report.waived and finding.severity.rank >= report.fail_on.rank
    if finding.rule.id in report.waived:
        return False
    if finding.verdict is Verdict.UNDECIDED:
        return report.undecided_fails
    return finding.severity.rank >= report.fail_on.rank


def place_of(finding: Finding, report: Report) -> Place | None:
    """Where the user's own files bring a finding: what its first way out moves, else the last it names.

    What was derived leads to what it follows from: a driver that is too old, to the line of torch.
    """
    said = {each.fact.key: each.fact for each in finding.evidence}
    left = [key for fix in finding.fixes for key, _ in fix.set] + list(reversed(said))
    seen = set[str]()
    while left:
        key = left.pop(0)
        if key not in seen:
            seen.add(key)
            place = report.places.get(key) or _written(said.get(key) or report.inventory.fact(key))
            if place is not None:
                return place
            left += derive.FOLLOWS_FROM.get(key, ())
    return None


def _written(fact: Fact) -> Place | None:
    """The place that a source names: `requirements.txt:2:1`, `ds.json:5: zero_optimization.stage`."""
    file, *numbers = fact.source.partition(": ")[0].rsplit(":", 2)
    if len(numbers) == 2 and not numbers[0].isdecimal():  # noqa: PLR2004 - a colon of the file's name
        file, numbers = f"{file}:{numbers[0]}", numbers[1:]
    if not file or file.startswith("--") or not numbers or not all(map(str.isdecimal, numbers)):
        return None
    line, column = (*map(int, numbers), 0)[:2]
    return Place(file, line, column)
