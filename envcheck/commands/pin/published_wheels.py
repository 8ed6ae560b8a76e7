"""Name published wheels for packages that the index has as source only.

Such wheels are files on a project's release page. `pin` names them from the table `published_wheel` and
installs none: whether to trust files that are not on the user's index is for the user to decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from envcheck.commands import loading
from envcheck.commands.pin.target import LockTarget, package_facts
from envcheck.core import versions
from envcheck.core.tables import TorchBuild
from envcheck.lock import model as lock
from envcheck.resolution import user_requirements
from envcheck.rules import derive

Row = Mapping[str, Any]


class _LockedTorch(NamedTuple):
    """Properties of torch that a wheel must match: minor version, CUDA, and C++11 ABI if known."""

    minor: str
    cuda: str
    abi: str


def wheel_notes(goal: LockTarget, made: lock.Lock, *, show_address: bool) -> list[str]:
    """Return a note on published wheels that fit for each package that a lock builds from source."""
    built = [pin for pin in made.pins if pin.name in made.build]
    if not built:
        return []
    tables = loading.read_only_tree()["tables"]
    publishers = {(row["package"], row["by"]): row for row in tables.get("wheel_publisher", [])}
    rows = tables.get("published_wheel", [])
    instead = {row["package"]: row["text"] for row in tables.get("attention_instead", [])}
    torch = _torch_of(goal, made)
    notes: list[str] = []
    for pin in built:
        own = [row for row in rows if row["package"] == pin.name]
        if not own or torch is None:
            continue
        fitting = _first_fitting(own, goal, torch, publishers)
        if fitting is not None:
            publisher = publishers[pin.name, fitting["by"]]
            notes.append(_fitting_note(pin, fitting, publisher, goal, torch, show_address=show_address))
            continue
        notes.append(_none_note(pin, own, goal, torch, instead.get(pin.name, "")))
    return notes


def _torch_of(goal: LockTarget, made: lock.Lock) -> _LockedTorch | None:
    pins = {pin.name: pin.version for pin in made.pins}
    if "torch" not in pins:
        return None
    derived = derive.derive(goal.machine.with_facts(package_facts(pins)), goal.matrix)
    cuda = derived.known("cuda.runtime")
    release = pins["torch"].partition("+")[0]
    build = next((each for each in goal.matrix.tables.torch_builds if each.version == release), None)
    return _LockedTorch(_minor(release), str(cuda or ""), _abi(build))


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _abi(build: TorchBuild | None) -> str:
    return "" if build is None or build.cxx11_abi is None else str(build.cxx11_abi).upper()


# --- which wheel fits -------------------------------------------------------------------------------


def _first_fitting(
    rows: Sequence[Row], goal: LockTarget, torch: _LockedTorch, publishers: Mapping[tuple[str, str], Row]
) -> Row | None:
    """Return the row of the newest release with a fitting wheel; prefer upstream's to a community's."""
    fitting = [row for row in rows if _serves_machine(row, goal) and _serves_torch(row, torch)]
    fitting = [row for row in fitting if _is_admitted(row, goal)]
    return max(
        fitting,
        key=lambda row: (
            not publishers[row["package"], row["by"]].get("community"),
            versions.order(row["version"]),
        ),
        default=None,
    )


def _is_admitted(row: Row, goal: LockTarget) -> bool:
    return all(
        user_requirements.admits(each, row["version"])
        for each in goal.requirements
        if each.package == row["package"]
    )


def _serves_machine(row: Row, goal: LockTarget) -> bool:
    system, _, architecture = goal.platform.partition("-")
    serves = system == "linux" and goal.python in row["python"] and architecture in row["arch"]
    glibc = str(goal.machine.known("host.glibc") or "")
    return serves and not (glibc and versions.order(glibc) < versions.order(row.get("glibc", "0")))


def _serves_torch(row: Row, torch: _LockedTorch) -> bool:
    """Return whether a wheel is built for a torch; one that states ABIs serves every minor of its CUDA."""
    major, _, minor = torch.cuda.partition(".")
    if "abi" not in row:
        return bool(row["torch"] == torch.minor and row["cuda"] == f"{major}{minor}")
    return row["torch"] == torch.minor and row["cuda"][:2] == major and torch.abi in row["abi"]


# --- words ------------------------------------------------------------------------------------------


def _fitting_note(
    pin: lock.Pin, row: Row, publisher: Row, goal: LockTarget, torch: _LockedTorch, *, show_address: bool
) -> str:
    name = publisher["name"].format(
        version=row["version"],
        cuda=row["cuda"],
        torch=row["torch"],
        abi=torch.abi,
        py=goal.python.replace(".", ""),
        arch=goal.platform.partition("-")[2],
    )
    who = "a community build (not upstream's, and unchecked)" if publisher.get("community") else "upstream"
    where = f"{publisher['repository']}, release {row['release']}"
    address = ""
    if show_address:
        path = f"{publisher['repository']}/releases/download/{row['release']}/{quote(name)}"
        address = f": https://github.com/{path}"
    newer = versions.order(row.get("glibc", "0")) > versions.order(goal.glibc)
    glibc = f"; it needs glibc {row['glibc']} or newer" if newer else ""
    other = "" if row["version"] == pin.version else f"; it is {row['version']}, the lock has {pin.version}"
    machine = f"torch {torch.minor}, CUDA {torch.cuda}, Python {goal.python}"
    return (
        f"{pin.name} is on the index as source only and is compiled on installation; {who} has a wheel for "
        f"{machine}: {name} ({where}){other}{glibc}{address}"
    )


def _none_note(
    pin: lock.Pin, rows: Sequence[Row], goal: LockTarget, torch: _LockedTorch, instead: str
) -> str:
    machine = f"torch {torch.minor}, CUDA {torch.cuda or 'unknown'}, Python {goal.python}"
    if glibc := goal.machine.known("host.glibc"):
        machine += f", glibc {glibc}"
    found = [f"{minor} ({who}; --with 'torch=={minor}.*')" for minor, who in _newest_torches(rows, goal)]
    nearest = f"; the newest torch with one here is {' or '.join(found)}" if found else ""
    serves = f"; instead, {instead}" if instead else ""
    return (
        f"{pin.name} is on the index as source only and is compiled on installation; no published wheel is "
        f"known for {machine}{nearest}{serves}"
    )


def _newest_torches(rows: Sequence[Row], goal: LockTarget) -> Iterator[tuple[str, str]]:
    """Yield the newest minors of torch whose default build runs here and has a wheel, and who built that.

    A community's wheel is named beside upstream's only if it is for a newer torch.
    """
    mine = [row for row in rows if _serves_machine(row, goal) and _is_admitted(row, goal)]
    builds = sorted(
        goal.matrix.tables.torch_builds, key=lambda each: versions.order(each.version), reverse=True
    )
    offered = False
    for build in builds:
        torch = _LockedTorch(_minor(build.version), build.cuda, _abi(build))
        publishers = {row["by"] for row in mine if _serves_torch(row, torch)}
        if not publishers or _driver_is_too_old(goal, build):
            continue
        if "upstream" in publishers:
            yield torch.minor, "upstream"
            return
        if not offered:
            offered = True
            yield torch.minor, "a community build"


def _driver_is_too_old(goal: LockTarget, build: TorchBuild) -> bool:
    derived = derive.derive(goal.machine.with_facts(package_facts({"torch": build.version})), goal.matrix)
    driver, oldest = derived.known("driver.version"), derived.known("cuda.minimum_driver")
    return bool(driver and oldest) and versions.order(str(driver)) < versions.order(str(oldest))
