"""Describe a conflict: one sentence for each reason."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from envcheck.core import versions
from envcheck.core.facts import Tri, family, is_device_key
from envcheck.core.findings import Evidence, Finding
from envcheck.core.rules import Rule
from envcheck.resolution.conflicts.folding import MOST_LINES, ConflictLine, fold
from envcheck.resolution.conflicts.view import FACT_NAMES, ConflictView, gpu_name, joined
from envcheck.resolution.resolver import Reason, Release
from envcheck.rules import clauses

_MOST_BOUNDS = 2
"""Number of different bounds of one package on another that a sentence quotes."""


def conflict_sentences(view: ConflictView, most: int = MOST_LINES) -> list[str]:
    """Return the reasons in at most `most` lines: what the target needs, limits outside the rules, rules."""
    return fold(
        [*_lines(view)],
        (
            ("metadata", lambda lines: _all_metadata(view, lines)),
            ("rule", _all_rules),
            ("wants", lambda lines: lines[0]._replace(text="; ".join(line.text for line in lines))),
        ),
        most,
    )


def _lines(view: ConflictView) -> Iterator[ConflictLine]:
    target = view.problem.target
    needed = [name for name in view.packages if name in target.packages and ("wants", name) in view.least]
    if needed:
        yield ConflictLine("wants", "", f"the target {target.name} needs {joined(needed)}", target.name)
    describe: Mapping[str, Callable[..., str]] = {
        "requirement": _requirement,
        "wants": _wants,
        "python": _python,
        "until": _until,
        "through": _through,
        "yanked": _yanked,
        "wheel": _wheel,
        "pre-release": _pre_release,
        "metadata": _metadata,
        "objection": _objection,
        "rule": _rule,
    }
    for kind, *arguments in view.ordered_reasons():
        if sentence := describe[kind](view, *arguments):
            yield ConflictLine(kind, _about(view, kind, arguments), sentence, _name(view, kind, arguments))


def _about(view: ConflictView, kind: str, arguments: Sequence[str]) -> str:
    """Return what a reason is about: the package with the metadata, or the packages of a rule."""
    if kind == "rule":
        return " ".join(view.packages_of(view.rule(arguments[0])))
    return arguments[0] if kind == "metadata" else ""


def _name(view: ConflictView, kind: str, arguments: Sequence[str]) -> str:
    """Return a short name of a reason."""
    match kind:
        case "requirement":
            requirement = view.problem.requirements[int(arguments[0])]
            return f"{requirement.package}{requirement.specifier}"
        case "metadata":
            return f"the bounds of {arguments[0]} on {arguments[1]}"
        case "objection":
            return view.problem.objections[int(arguments[0])].message
        case _:
            return arguments[0] if arguments else kind


# --- limits outside the rules -----------------------------------------------------------------------


def _requirement(view: ConflictView, number: str) -> str:
    requirement = view.problem.requirements[int(number)]
    left = _remainder_after(view, ("requirement", number), requirement.package)
    return f"{requirement.origin} asks for {requirement.package}{requirement.specifier}: {left}"


def _wants(view: ConflictView, name: str) -> str:
    """Return which origins ask for a package; empty if another sentence of the proof already says so."""
    requirements = view.problem.requirements
    described = {requirements[int(reason[1])].package for reason in view.least if reason[0] == "requirement"}
    if name in view.problem.target.packages or name in described:
        return ""
    origins = [each.origin for each in requirements if each.package == name and each.wanted]
    return f"{joined(origins)} asks for {name}"


def _python(view: ConflictView) -> str:
    return f"Python {view.problem.python}: {_remainders_after(view, ('python',))}"


def _until(view: ConflictView) -> str:
    left = _remainders_after(view, ("until",))
    return f"nothing after {view.problem.until} ({view.problem.until_by}): {left}"


def _through(view: ConflictView, name: str) -> str:
    known = view.problem.known.known_through[name]
    return f"{name} is known through {known}: {_remainder_after(view, ('through', name), name)}"


def _yanked(view: ConflictView, name: str) -> str:
    return f"yanked releases of {name} are never used: {_remainder_after(view, ('yanked', name), name)}"


def _wheel(view: ConflictView, name: str) -> str:
    problem = view.problem
    arch = problem.machine.known("host.arch") or "x86_64"
    left = _remainder_after(view, ("wheel", name), name)
    newest = next((each for each in reversed(view.releases(name)) if each.no_wheel), None)
    need = newest.no_wheel if newest else ""
    example = f" ({name} {newest.version}: {need})" if newest and need.startswith("glibc") else ""
    hint = "; --glibc names another C library" if example else ""
    return f"only wheels for Python {problem.python} on {arch} are installed{example}: {left}{hint}"


def _pre_release(view: ConflictView, name: str) -> str:
    left = _remainder_after(view, ("pre-release", name), name)
    return f"pre-releases are used only if requested: {left}"


def _objection(view: ConflictView, number: str) -> str:
    objection = view.problem.objections[int(number)]
    stack = ", ".join(f"{name} {version}" for name, version in objection.stack)
    added = ", ".join(f"{name} {version}" for name, version in objection.added if version)
    return f"completed, {stack}{f' beside {added}' if added else ''} was refused: {objection.message}"


def _metadata(view: ConflictView, name: str, required: str) -> str:
    """Return the bounds in the metadata of the offered releases, each with the releases that have it."""
    releases_by_bound: dict[str, list[str]] = {}
    for release in view.offered(name):
        for package, specifier in map(_split_requirement, release.requires):
            if package == required and specifier:
                releases_by_bound.setdefault(specifier, []).append(release.version)
    parts = [
        f"{name} {_span(releases)} asks for {required}{bound}"
        for bound, releases in releases_by_bound.items()
    ]
    if not parts:
        return f"the metadata of {name} asks for another {required}"
    further = len(parts) - _MOST_BOUNDS
    more = f", and older ones likewise ({further} more bounds)" if further > 0 else ""
    return "; ".join(parts[:_MOST_BOUNDS]) + more + _none_within(view, required, releases_by_bound)


def _none_within(view: ConflictView, required: str, bounds: Iterable[str]) -> str:
    """Return which releases of a package there are, if none satisfies any of these bounds."""
    there = [release.version for release in view.releases(required)]
    if not there or any(
        versions.satisfies(version, bound, unknown=Tri.YES) is not Tri.NO
        for version in there
        for bound in bounds
    ):
        return ""
    return f": there is no such {required}, only {_span(there)}"


def _all_metadata(view: ConflictView, lines: Sequence[ConflictLine]) -> ConflictLine:
    """Return one line for the bounds of one package on several: those of its newest offered release."""
    name = lines[0].about
    required = [reason[2] for reason in view.ordered_reasons() if reason[:2] == ("metadata", name)]
    by_release: dict[str, list[str]] = {}
    for package in required:
        for release in view.offered(name):
            found = [bound for each, bound in map(_split_requirement, release.requires) if each == package]
            if any(found):
                by_release.setdefault(release.version, []).append(package + next(filter(None, found)))
                break
    parts = [f"{name} {release} asks for {joined(bounds)}" for release, bounds in by_release.items()]
    text = "; ".join(parts) or f"the metadata of {name} asks for other releases of {joined(required)}"
    if any(release.version not in by_release for release in view.offered(name)):
        text += ", and others likewise"
    return lines[0]._replace(text=text, name=f"the bounds of {name}")


def _split_requirement(line: str) -> tuple[str, str]:
    """Split `torch[extra]>=2.4; marker` into the package and the bound."""
    end = next((index for index, char in enumerate(line) if char in "[<>=!~ ;"), len(line))
    bound = line[end:].partition(";")[0]
    return line[:end], bound.rpartition("]")[2].strip()


# --- rules ------------------------------------------------------------------------------------------


def _rule(view: ConflictView, rule_id: str) -> str:
    """Return a sentence with a rule, the facts that make it match, and the releases it leaves or refuses."""
    rule = view.rule(rule_id)
    concerned = view.packages_of(rule)
    facts = list(_facts_behind(view, rule))
    title = f"{rule.title} ({rule.id})" + (f", here {', '.join(facts)}" if facts else "")
    for name in concerned:
        broken = view.broken_alone(rule, name)
        if broken:
            releases = view.releases(name)
            left = [release.version for release in releases if release.version not in broken]
            return f"{title}; {_remainder(name, left, releases)}{_oldest_driver(view, broken, left, name)}"
    together = view.broken_together(rule, concerned)
    pair = " with ".join(f"{name} {version}" for name, version in together.items())
    return f"{title}{f'; it refuses {pair}' if pair else ''}"


def _all_rules(lines: Sequence[ConflictLine]) -> ConflictLine:
    """Return one line for several rules about the same packages: the first in full, the others by name."""
    others = ", ".join(line.name for line in lines[1:])
    return lines[0]._replace(text=f"{lines[0].text} (likewise {others})")


def _oldest_driver(view: ConflictView, broken: Mapping[str, Finding], left: Sequence[str], name: str) -> str:
    """If a driver is too old, return the CUDA of the nearest refused release and its oldest driver."""
    newer = [version for version in broken if not left or versions.order(version) > versions.order(left[-1])]
    version = newer[0] if newer else next(iter(broken))
    if not any(evidence.fact.key == "cuda.minimum_driver" for evidence in broken[version].evidence):
        return ""
    settled = view.inventory({name: version})
    cuda, driver = (settled.known(key) for key in ("cuda.runtime", "cuda.minimum_driver"))
    return f": {name} {version} has CUDA {cuda}, whose oldest driver is {driver}"


def _facts_behind(view: ConflictView, rule: Rule) -> Iterator[str]:
    """Yield the facts of the machine and the training that make a rule match, in the words of a user."""
    seen: set[str] = set()
    for evidence in view.evidence(rule):
        fact = evidence.fact
        given = not fact.source.startswith("derived") or is_device_key(fact.key)
        if fact.value is None or family(fact.key) in ("pkg", "build") or not given:
            continue
        text = _fact_text(view, evidence)
        if text not in seen:
            seen.add(text)
            yield text


def _fact_text(view: ConflictView, evidence: Evidence) -> str:
    fact, machine = evidence.fact, view.problem.machine
    if evidence.device is not None or (fact.key == "gpus.count" and machine.devices):
        return joined(sorted({gpu_name(machine, device) for device in machine.visible_devices()}))
    origin = f" ({fact.source})" if fact.source.startswith(("declared", "target", "default")) else ""
    return f"{FACT_NAMES.get(fact.key, fact.key)} {clauses.format_value(fact.value or '')}{origin}"


# --- the releases that a reason leaves --------------------------------------------------------------


def _remainder_after(view: ConflictView, reason: Reason, name: str) -> str:
    """Return in words which releases of a package remain if only one reason applies."""
    excluded = view.excluded_by(reason, name)
    every = view.releases(name)
    return _remainder(name, [release.version for release in every if release not in excluded], every)


def _remainders_after(view: ConflictView, reason: Reason) -> str:
    limited = [name for name in view.packages if view.excluded_by(reason, name)]
    return "; ".join(_remainder_after(view, reason, name) for name in limited)


def _remainder(name: str, left: Sequence[str], every: Sequence[Release]) -> str:
    if not every:
        return f"no release of {name} is in the tables"
    if not left:
        return f"that leaves no {name} (known are {_span([release.version for release in every])})"
    return f"that leaves {name} {_span(left)} ({len(left)} of {len(every)} releases)"


def _span(releases: Sequence[str]) -> str:
    ordered = sorted(releases, key=versions.order)
    return ordered[0] if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"
