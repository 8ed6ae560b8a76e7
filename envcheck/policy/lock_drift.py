"""Compare a lock with what is installed: packages that are missing, extra, of another version or build."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from envcheck.core import versions
from envcheck.core.facts import (
    Absent,
    Fact,
    Inventory,
    Known,
    Unknown,
    is_package_version_key,
    package_key,
    package_name,
)
from envcheck.core.findings import Evidence, Finding, Verdict
from envcheck.core.rules import Matrix, Severity
from envcheck.dependency_files import DependencyList, ListedPackage
from envcheck.policy.generated_findings import generated_finding
from envcheck.rules.derive import derive
from envcheck.rules.requirements import installed_requirements

GROUP = "lock"
_INSTALLERS = ("pip", "setuptools", "wheel", "uv")
"""Packages that an environment has before a lock is installed, or that install the lock."""

_MOST_SHOWN = 12


def findings(lock: DependencyList, inventory: Inventory, matrix: Matrix) -> Iterator[Finding]:
    """Yield the differences between an environment and its lock; `inventory` must have no derived facts."""
    pinned = {package.name: package for package in lock.lines}
    not_compared = [Evidence(Fact("lock", Unknown(remark))) for remark in lock.remarks]
    for package in pinned.values():
        installed = inventory.fact(package_key(package.name))
        if not package.version:
            why = Unknown(package.why or "no version is pinned")
            not_compared.append(Evidence(Fact(f"lock.{package.name}", why, package.place)))
        elif isinstance(installed.reading, Absent):
            yield _missing(package, installed)
        elif isinstance(installed.reading, Known):
            yield from _difference(package, installed, inventory, matrix)
        else:
            not_compared.append(Evidence(installed))
    if not_compared:
        lines = "line of the lock was" if len(not_compared) == 1 else "lines of the lock were"
        title = f"{len(not_compared)} {lines} not compared"
        yield _undecided("not-compared", title, not_compared[:_MOST_SHOWN])
    if extra := _extra_packages(pinned, inventory):
        yield _extra_finding(extra, inventory)


def _pinned_version(package: ListedPackage) -> Evidence:
    return Evidence(Fact(f"lock.{package.name}", Known(package.version), package.place))


def _missing(package: ListedPackage, installed: Fact) -> Finding:
    title = f"the lock has {package.name} {package.version}, which is not installed"
    evidence = [_pinned_version(package), Evidence(installed)]
    return generated_finding(f"lock:missing:{package.name}", Severity.ERROR, title, evidence, group=GROUP)


def _undecided(what: str, title: str, evidence: Sequence[Evidence]) -> Finding:
    return generated_finding(
        f"lock:{what}", Severity.WARNING, title, evidence, group=GROUP, verdict=Verdict.UNDECIDED
    )


# --- another version, or another build of the same version ------------------------------------------


def _difference(
    package: ListedPackage, fact: Fact, inventory: Inventory, matrix: Matrix
) -> Iterator[Finding]:
    """Yield the difference between an installed package and its pin, if there is one."""
    name, pinned, installed = package.name, package.version, str(fact.value)
    evidence = [_pinned_version(package), Evidence(fact)]
    if _release(installed) != _release(pinned):
        title = f"the lock has {name} {pinned}, installed is {installed}"
        yield generated_finding(f"lock:version:{name}", Severity.ERROR, title, evidence, group=GROUP)
        return
    why = _other_build(package, installed, inventory, matrix)
    if why is None:
        title = f"which CUDA torch {pinned} of the lock is for is not known, installed is {installed}"
        yield _undecided(f"build:{name}", title, evidence)
    elif why:
        title = f"another build: {why}"
        yield generated_finding(f"lock:build:{name}", Severity.ERROR, title, evidence, group=GROUP)


def _release(text: str) -> str:
    """Return a version without its local label, in PEP 440's normal form."""
    version = versions.parse(text)
    return text if version is None else str(version).partition("+")[0]


def _other_build(package: ListedPackage, installed: str, inventory: Inventory, matrix: Matrix) -> str | None:
    """Return how the build of the installed package differs from that of the pinned version.

    Empty if it is the same build; None if that is not known.
    """
    name, pinned = package.name, package.version
    if inventory.known(package_key(name, "editable")) is True:
        return f"{name} is installed from a checkout"
    label = versions.local_label(pinned)
    if label and label != versions.local_label(installed):
        return f"the lock has {name} {pinned}, installed is {installed}"
    if not label and name == "torch":
        return _other_cuda(pinned, installed, inventory, matrix)
    return ""


def _other_cuda(pinned: str, installed: str, inventory: Inventory, matrix: Matrix) -> str | None:
    """Return how the CUDA of the installed torch differs from that of the pinned release on the index.

    Empty if it is the same CUDA. None if that is not known and the installed torch has a local label, so
    is not the plain release.
    """
    platform = [inventory.fact(key) for key in ("host.os", "host.arch")]
    as_pinned = Inventory({fact.key: fact for fact in (*platform, Fact("pkg.torch", Known(pinned)))})
    expected, found = (derive(facts, matrix).fact("cuda.runtime").reading for facts in (as_pinned, inventory))
    if not isinstance(expected, Known) or not isinstance(found, Known | Absent):
        return None if versions.local_label(installed) else ""
    if expected == found:
        return ""
    built = f"for CUDA {found.value}" if isinstance(found, Known) else "without CUDA"
    return (
        f"torch {pinned} of the lock is for CUDA {expected.value}, "
        f"the {installed} that is installed is {built}"
    )


# --- packages that the lock does not have -----------------------------------------------------------


def _extra_finding(extra: Sequence[str], inventory: Inventory) -> Finding:
    shown = extra[:_MOST_SHOWN]
    more = f" and {len(extra) - _MOST_SHOWN} more" if len(extra) > _MOST_SHOWN else ""
    title = f"installed and not in the lock: {', '.join(shown)}{more}"
    evidence = [Evidence(inventory.fact(package_key(name))) for name in shown]
    return generated_finding("lock:extra", Severity.WARNING, title, evidence, group=GROUP)


def _extra_packages(pinned: Iterable[str], inventory: Inventory) -> list[str]:
    """Return the installed packages that the lock does not have, sorted.

    Installers are left out, and envcheck with everything it requires.
    """
    installed = {package_name(key) for key, fact in inventory.facts.items() if _is_package(key, fact)}
    return sorted(installed - set(pinned) - _closure("envcheck-ml", inventory) - set(_INSTALLERS))


def _is_package(key: str, fact: Fact) -> bool:
    return is_package_version_key(key) and isinstance(fact.reading, Known)


def _closure(name: str, inventory: Inventory) -> set[str]:
    """Return a package with everything it requires in this environment, directly or not."""
    required: dict[str, list[str]] = {}
    for requirement in installed_requirements(inventory):
        required.setdefault(requirement.package, []).append(requirement.requires)
    found, to_visit = set[str](), [name]
    while to_visit:
        if (package := to_visit.pop()) not in found:
            found.add(package)
            to_visit += required.get(package, [])
    return found
