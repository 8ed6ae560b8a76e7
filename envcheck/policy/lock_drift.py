"""A lock against what is installed: missing, extra, another version, another build. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from envcheck.core import versions
from envcheck.core.facts import Absent, Fact, Inventory, Known, Unknown, package_key, package_name
from envcheck.core.findings import Evidence, Finding, Verdict
from envcheck.core.rules import Matrix, Severity
from envcheck.dependency_files import DependencyList
from envcheck.policy.decision import generated_finding
from envcheck.rules.derive import derive, requirements

GROUP = "lock"
_INSTALLERS = ("pip", "setuptools", "wheel", "uv")
"""What an environment has before a lock is installed, and what installs it."""

_SHOWN = 12


def findings(sheet: DependencyList, read: Inventory, known: Matrix) -> Iterator[Finding]:
    """Where an environment is not the one its lock describes; `read` has nothing derived."""
    pinned = {line.name: line for line in sheet.lines}
    unread = [Evidence(Fact("lock", Unknown(remark))) for remark in sheet.remarks]
    for line in pinned.values():
        here = read.fact(package_key(line.name))
        if not line.version:
            why = Unknown(line.why or "no version is pinned")
            unread.append(Evidence(Fact(f"lock.{line.name}", why, line.place)))
            continue
        there = Evidence(Fact(f"lock.{line.name}", Known(line.version), line.place))
        if isinstance(here.reading, Absent):
            title = f"the lock has {line.name} {line.version}, which is not installed"
            yield generated_finding(
                f"lock:missing:{line.name}", Severity.ERROR, title, [there, Evidence(here)], group=GROUP
            )
        elif isinstance(here.reading, Known):
            yield from _other(
                line.name, line.version, str(here.reading.value), [there, Evidence(here)], read, known
            )
        else:
            unread.append(Evidence(here))
    if unread:
        are = "line of the lock was" if len(unread) == 1 else "lines of the lock were"
        yield _undecided("not-compared", f"{len(unread)} {are} not compared", unread[:_SHOWN])
    if extra := _extra(pinned, read):
        names = ", ".join(extra[:_SHOWN]) + (
            f" and {len(extra) - _SHOWN} more" if len(extra) > _SHOWN else ""
        )
        because = [Evidence(read.fact(package_key(name))) for name in extra[:_SHOWN]]
        yield generated_finding(
            "lock:extra", Severity.WARNING, f"installed and not in the lock: {names}", because, group=GROUP
        )


def _undecided(what: str, title: str, because: list[Evidence]) -> Finding:
    return generated_finding(
        f"lock:{what}", Severity.WARNING, title, because, group=GROUP, verdict=Verdict.UNDECIDED
    )


def _other(
    name: str, wanted: str, installed: str, because: list[Evidence], read: Inventory, known: Matrix
) -> Iterator[Finding]:
    if _release(installed) != _release(wanted):
        title = f"the lock has {name} {wanted}, installed is {installed}"
        yield generated_finding(f"lock:version:{name}", Severity.ERROR, title, because, group=GROUP)
        return
    why: str | None = ""
    if read.known(package_key(name, "editable")) is True:
        why = f"{name} is installed from a checkout"
    elif (label := versions.local_label(wanted)) and label != versions.local_label(installed):
        why = f"the lock has {name} {wanted}, installed is {installed}"
    elif not label and name == "torch":
        why = _other_cuda(wanted, installed, read, known)
    if why is None:
        title = f"which CUDA torch {wanted} of the lock is for is not known, installed is {installed}"
        yield _undecided(f"build:{name}", title, because)
    elif why:
        yield generated_finding(
            f"lock:build:{name}", Severity.ERROR, f"another build: {why}", because, group=GROUP
        )


def _release(text: str) -> str:
    """A version without its local label, spelt in the one way that PEP 440 has for it."""
    version = versions.parse(text)
    return text if version is None else str(version).partition("+")[0]


def _other_cuda(wanted: str, installed: str, read: Inventory, known: Matrix) -> str | None:
    """How the torch installed is for another CUDA than the build that the lock's release stands for.

    Empty if it is not; None if that cannot be told of a build that is not the release as such.
    """
    platform = [read.fact(key) for key in ("host.os", "host.arch")]
    plain = Inventory({fact.key: fact for fact in (*platform, Fact("pkg.torch", Known(wanted)))})
    there, here = (derive(each, known).fact("cuda.runtime").reading for each in (plain, read))
    if not isinstance(there, Known) or not isinstance(here, Known | Absent):
        return None if versions.local_label(installed) else ""
    if there == here:
        return ""
    built = f"for CUDA {here.value}" if isinstance(here, Known) else "without CUDA"
    return (
        f"torch {wanted} of the lock is for CUDA {there.value}, the {installed} that is installed is {built}"
    )


def _extra(pinned: Iterable[str], read: Inventory) -> list[str]:
    """Installed packages that no line asks for; envcheck with what it needs is left out, and installers."""
    ours = _closure("envcheck", read)
    here = (package_name(key) for key, fact in read.facts.items() if _is_package(key, fact))
    return sorted(set(here) - set(pinned) - ours - set(_INSTALLERS))


def _is_package(key: str, fact: Fact) -> bool:
    return key.startswith("pkg.") and key.count(".") == 1 and isinstance(fact.reading, Known)


def _closure(name: str, read: Inventory) -> set[str]:
    """A package with all it requires here, directly or not."""
    asks: dict[str, list[str]] = {}
    for needed in requirements(read):
        asks.setdefault(needed.package, []).append(needed.requires)
    found, left = set[str](), [name]
    while left:
        if (each := left.pop()) not in found:
            found.add(each)
            left += asks.get(each, [])
    return found
