"""Findings and a policy → open or shut, and why. Pure; `doctor`'s exit code is the default policy's."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from envcheck.core.facts import Fact, Inventory, Known, Unknown, Value
from envcheck.core.findings import (
    UNREADABLE,
    Diagnostic,
    Evidence,
    Finding,
    Judgement,
    Report,
    Verdict,
    Waiting,
    worst_first,
)
from envcheck.core.rules import Basis, Rule, Severity, Source

UNDECIDED = ("pass", "warn", "fail")

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Waiver(NamedTuple):
    """A person's dated, reasoned exception: the rule counts again after the day `until` (ISO)."""

    rule: str
    reason: str
    until: str
    place: str  # file:line


class DeclaredMachine(NamedTuple):
    """Where an image will run: the driver of the host, its GPUs, and its platform; empty if not said."""

    name: str
    driver: str = ""
    gpus: tuple[str, ...] = ()
    platform: str = ""


class Settings(NamedTuple):
    """What a settings file says; a command's own options win."""

    file: str = ""
    matrix: tuple[str, ...] = ()
    threshold: Severity | None = None
    undecided: str = ""
    target: str = ""
    train: tuple[str, ...] = ()
    machines: tuple[str, ...] = ()
    lock: str = ""
    skip: tuple[str, ...] = ()
    severity: Mapping[str, Severity] = _NOTHING
    waivers: tuple[Waiver, ...] = ()
    machine: Mapping[str, DeclaredMachine] = _NOTHING


class Policy(NamedTuple):
    """What shuts the gate: broken rules from `fail_on` up, and undecided ones if `undecided` is `fail`.

    `severity` replaces that of a rule; `only` and `skip` name rules, or groups of generated ones (`lock:`).
    `today` (ISO) is the day waivers are held against.
    """

    fail_on: Severity = Severity.ERROR
    undecided: str = "warn"
    severity: Mapping[str, Severity] = _NOTHING
    waivers: tuple[Waiver, ...] = ()
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    today: str = ""


class Decision(NamedTuple):
    """The exit code and the reasons.

    0 open, 1 shut by findings or by remarks on a configuration, 2 a configuration could not be read (the
    rest was judged, but what was found is not all), 3 nothing was there to judge.

    `waived` are findings that a waiver keeps from counting, `remarks` the undecided ones that are let pass.
    """

    code: int
    reasons: tuple[str, ...]
    waived: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


# --- a policy held against a judgement --------------------------------------------------------------


def apply_policy(report: Report, remarks: Sequence[Diagnostic], policy: Policy) -> Report:
    """The report as a policy sees it, with these remarks on configurations, and what of it fails marked."""
    judgement = under(report.judgement, policy, remarks)
    return marked(report._replace(judgement=judgement, diagnostics=remarked(remarks, policy)), policy)


def remarked(remarks: Sequence[Diagnostic], policy: Policy) -> tuple[Diagnostic, ...]:
    """The remarks as a policy sees them, worst first; one that could not read its input is never left out.

    To a policy a remark of the code `unknown-key` is the rule `remark:unknown-key`.
    """
    return worst_first(
        remark._replace(severity=_severity(_remark_id(remark), remark.severity, policy))
        for remark in remarks
        if remark.code == UNREADABLE or _asked(_remark_id(remark), policy)
    )


def _remark_id(remark: Diagnostic) -> str:
    return f"remark:{remark.code}"


def under(judgement: Judgement, policy: Policy, remarks: Sequence[Diagnostic] = ()) -> Judgement:
    """The judgement as a policy sees it: severities, what is left out, and what is wrong with waivers.

    A finding that is waived stays, with the waiver as its note.
    """
    findings = [_under(finding, policy) for finding in judgement.findings if _asked(finding.rule.id, policy)]
    waiting = tuple(each for each in judgement.waiting if _asked(each.rule.id, policy))
    dead = [
        _under(finding, policy)
        for finding in _dead_waivers(judgement, policy, remarks)
        if _asked(finding.rule.id, policy)
    ]
    return judgement._replace(findings=worst_first([*findings, *dead]), waiting=waiting)


def _asked(rule_id: str, policy: Policy) -> bool:
    if policy.only and not any(_names(each, rule_id) for each in policy.only):
        return False
    return not any(_names(each, rule_id) for each in policy.skip)


def _names(word: str, rule_id: str) -> bool:
    return word == rule_id or (word.endswith(":") and rule_id.startswith(word))


def _under(finding: Finding, policy: Policy) -> Finding:
    rule_id = finding.rule.id
    notes = [finding.note] if finding.note else []
    for waiver in policy.waivers:
        if _names(waiver.rule, rule_id):
            word = "waived until" if waiver.until >= policy.today else "no longer waived since"
            notes.append(f"{word} {waiver.until}: {waiver.reason} ({waiver.place})")
    severity = _severity(rule_id, finding.severity, policy)
    return finding._replace(severity=severity, note="; ".join(notes))


def _severity(rule_id: str, severity: Severity, policy: Policy) -> Severity:
    """The policy's own word for a rule, the last that names it; else the rule's."""
    own = [each for word, each in policy.severity.items() if _names(word, rule_id)]
    return own[-1] if own else severity


def _dead_waivers(judgement: Judgement, policy: Policy, remarks: Sequence[Diagnostic]) -> Iterator[Finding]:
    open_rules = {each.rule.id for each in judgement.findings} | {each.rule.id for each in judgement.waiting}
    open_rules |= {_remark_id(remark) for remark in remarks}
    for waiver in policy.waivers:
        if waiver.until < policy.today:
            yield _waiver_finding("expired", f"a waiver of {waiver.rule} has expired", waiver)
        elif not any(_names(waiver.rule, rule_id) for rule_id in open_rules):
            yield _waiver_finding("unused", f"a waiver of {waiver.rule} matches nothing here", waiver)


def _waiver_finding(what: str, title: str, waiver: Waiver) -> Finding:
    return generated_finding(
        f"waiver:{what}",
        Severity.WARNING,
        title,
        [Evidence(Fact("waiver.until", Known(waiver.until), waiver.place))],
        group="policy",
        note=waiver.reason,
    )


def generated_finding(
    rule_id: str,
    severity: Severity,
    title: str,
    because: Sequence[Evidence],
    *,
    group: str,
    note: str = "",
    verdict: Verdict = Verdict.BROKEN,
) -> Finding:
    """A finding of a rule that nobody wrote, because it is about this image's own files."""
    sources = tuple(
        dict.fromkeys(Source(each.fact.source, "file", "") for each in because[:1] if each.fact.source)
    )
    rule = Rule(rule_id, severity, Basis.METADATA, title, (), sources=sources, group=group)
    return Finding(rule, verdict, severity, tuple(because), note=note)


def missing_gpus(inventory: Inventory, expected: int) -> Finding | None:
    """The finding that fewer GPUs can be used than are expected, with what is known of the others.

    A GPU can be used if programs see it, the driver gives it, and CUDA would start on it. What could not be
    read counts as missing: whoever expects GPUs wants to know that they are there.
    """
    driver = inventory.fact("driver.error")
    works = not isinstance(driver.reading, Known)
    because = [] if works else [Evidence(driver)]
    usable = 0
    for device in range(len(inventory.devices)):
        obstacle = _obstacle(inventory, device)
        usable += works and obstacle is None
        if obstacle is not None:
            because.append(Evidence(obstacle, device))
    counted = inventory.fact("gpus.count")
    if not inventory.devices and works and isinstance(counted.value, int):
        usable = counted.value
    if usable >= expected:
        return None
    if len(inventory.devices) < expected:
        because.append(Evidence(counted))
        on_bus = inventory.fact("gpus.on_bus")
        if isinstance(counted.value, int) and isinstance(on_bus.value, int) and on_bus.value > counted.value:
            because.append(Evidence(on_bus))
    wanted = Evidence(Fact("gpus.expected", Known(expected)))
    noun = f"{expected} GPUs are" if expected > 1 else "a GPU is"
    can = str(usable) if usable else "none"
    title = f"{noun} expected, {can} can be used"
    return generated_finding("machine:gpus", Severity.ERROR, title, [wanted, *because], group="machine")


_OBSTACLES: tuple[tuple[str, tuple[Value, ...]], ...] = (
    ("gpu.visible", (False,)),
    ("gpu.mig_instances", (0,)),
    ("gpu.compute_mode", ("prohibited",)),
    ("gpu.fabric", ("not_started", "in_progress")),
)


def _obstacle(inventory: Inventory, device: int) -> Fact | None:
    """The fact that keeps programs from using a GPU."""
    error = inventory.fact("gpu.error", device)
    if isinstance(error.reading, Known) and error.value != "crashed":
        return error
    for key, values in _OBSTACLES:
        fact = inventory.fact(key, device)
        needs_mig = key == "gpu.mig_instances"
        if fact.value in values and (not needs_mig or inventory.known("gpu.mig", device) is True):
            return fact
    return None


def unknown_rules(words: Collection[str], known: Collection[str]) -> list[str]:
    """Those of the words that name no rule; ids of generated rules have a colon and are not looked up."""
    return [word for word in words if ":" not in word and word not in known]


# --- several machines, or several stages of an image ------------------------------------------------


def merge_reports(parts: Sequence[tuple[str, Report]], noun: str) -> Report:
    """One report of several about the same environment: what is true of all of them, said once.

    A finding that not all parts have says which do.
    """
    (_, first), *others = parts
    if not others:
        return first
    seen: dict[tuple[str, Verdict, tuple[Evidence, ...]], list[tuple[str, Finding]]] = {}
    for name, report in parts:
        for finding in report.judgement.findings:
            seen.setdefault((finding.rule.id, finding.verdict, finding.evidence), []).append((name, finding))
    findings = [_of_several(each, len(parts), noun) for each in seen.values()]
    decided = {finding.rule.id for finding in findings}
    waiting: dict[str, Waiting] = {}
    for _, report in parts:
        waiting |= {each.rule.id: each for each in report.judgement.waiting if each.rule.id not in decided}
    total = max(_total(report.judgement) for _, report in parts)
    undecided = len({each.rule.id for each in findings if each.verdict is Verdict.UNDECIDED})
    apply_policy = max(0, total - len(decided) - len(waiting))
    judgement = Judgement(
        worst_first(findings), tuple(waiting.values()), apply_policy, max(0, total - undecided - len(waiting))
    )
    return first._replace(
        judgement=judgement,
        inventory=_common(
            [report.inventory for _, report in parts],
            f"judged for the {noun}s " + ", ".join(n for n, _ in parts),
        ),
    )


def _total(judgement: Judgement) -> int:
    return judgement.passed + len(judgement.findings) + len(judgement.waiting)


def _of_several(found: Sequence[tuple[str, Finding]], parts: int, noun: str) -> Finding:
    worst = max((finding for _, finding in found), key=lambda each: each.severity.rank)
    if len(found) == parts:
        return worst
    notes = [worst.note] if worst.note else []
    return worst._replace(note="; ".join([*notes, f"{noun} {', '.join(name for name, _ in found)}"]))


def _common(inventories: Sequence[Inventory], why: str) -> Inventory:
    """What all have in common; a fact that differs was given for each of them, and is said of none."""
    first, *others = inventories
    facts = dict(first.facts)
    for key in {key for each in inventories for key in each.facts}:
        if any(each.facts.get(key) != first.facts.get(key) for each in others):
            facts[key] = Fact(key, Unknown(why, asked=False))
    complete = frozenset.intersection(*(each.complete for each in inventories))
    same = all(other.devices == first.devices for other in others)
    if not same:
        facts["gpus.count"] = Fact("gpus.count", Unknown(why, asked=False))
    return Inventory(facts, first.devices if same else (), complete, first.unread)


def marked(report: Report, policy: Policy) -> Report:
    """The report with what fails under a policy and what is waived, for formats that tell them apart."""
    ids = [each.rule.id for each in report.judgement.findings]
    ids += [_remark_id(each) for each in report.diagnostics if each.code != UNREADABLE]
    waivers = [waiver.rule for waiver in policy.waivers if waiver.until >= policy.today]
    waived = frozenset(each for each in ids if any(_names(word, each) for word in waivers))
    fails = policy.undecided == "fail"
    return report._replace(fail_on=policy.fail_on, undecided_fails=fails, waived=waived)


# --- the decision -----------------------------------------------------------------------------------


def decide(report: Report, policy: Policy) -> Decision:
    """Whether this environment may pass."""
    lang = report.language
    waivers = [waiver.rule for waiver in policy.waivers if waiver.until >= policy.today]
    reasons: list[str] = []
    waived: list[str] = []
    let_pass: list[str] = []
    for finding in report.reported:
        if isinstance(finding, Diagnostic):
            said = f"{lang.word(finding.severity.value)} {finding.code} ({finding.places[0]})"
            if finding.severity.rank >= policy.fail_on.rank:
                known = finding.code != UNREADABLE and any(
                    _names(each, _remark_id(finding)) for each in waivers
                )
                (waived if known else reasons).append(said)
            continue
        undecided = finding.verdict is Verdict.UNDECIDED
        said = f"{lang.word('undecided' if undecided else finding.severity.value)} {finding.rule.id}"
        counts = policy.undecided == "fail" if undecided else finding.severity.rank >= policy.fail_on.rank
        if any(_names(word, finding.rule.id) for word in waivers):
            waived.append(said)
        elif counts:
            reasons.append(said)
        elif undecided and policy.undecided == "warn":
            let_pass.append(said)
    words = tuple(reasons), tuple(waived), tuple(let_pass)
    if any(remark.code == UNREADABLE for remark in report.diagnostics):
        return Decision(2, *words)
    if reasons:
        return Decision(1, *words)
    if report.nothing_to_judge:
        return Decision(3, (lang.told(report.nothing_to_judge),))
    return Decision(0, *words)
