"""Inventory and rules → findings. The three-valued logic lives here, and nothing else does.

A rule forbids a combination: it is broken if some table of its `when` holds and its `require` does
not. Absent satisfies no clause but `absent`; Unknown makes a clause maybe, and a maybe never decides
what a no or a yes decides without it, so learning a fact never turns a decided verdict round.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from envcheck.core import versions
from envcheck.core.facts import Absent, Inventory, Kind, Tri, Unknown, Value, family, of_device
from envcheck.core.findings import Evidence, Finding, Judgement, Verdict, Waiting
from envcheck.core.rules import Clause, Fix, Rule, Severity, When
from envcheck.rules.clauses import ask, refs

HARDWARE = frozenset({"driver", "gpu", "gpus", "cuda"})
"""Families of the machine's GPUs: where there is none, rules about them wait instead of holding."""

_REASONS = {"train": "training", **dict.fromkeys(HARDWARE, "GPU"), "pkg": "packages", "build": "packages"}


AREAS = (
    ("training", frozenset({"train"})),
    ("gpu", frozenset({"gpu"})),
    ("driver", frozenset({"driver"})),
    ("packages", frozenset({"pkg", "build", "python"})),
    ("machine", frozenset({"host", "env"})),
    ("gpu", frozenset({"gpus"})),
    ("driver", frozenset({"cuda"})),
)
"""Whose matter a rule is, by the families of facts it asks about: the first row that has one of them.

Versions, driver, GPU, machine and configuration are separate verdicts: what a broken fabric needs is no other
torch. Counting GPUs makes a rule about shared memory none about GPUs, so `gpus` comes late.
"""


def area(rule: Rule, because: Iterable[Evidence] = ()) -> str:
    """One of the words of `AREAS`; of a rule that asks nothing, by the facts of its finding."""
    keys = {clause.key for table in rule.when for clause in table} or {each.fact.key for each in because}
    families = {"build" if key == _OF_BUILD else family(key) for key in keys}
    return next((name for name, asked in AREAS if asked & families), "packages")


_OF_BUILD = "gpu.in_torch_build"
"""A fact of each GPU that is none about it."""


def _of_gpu_alone(rule: Rule) -> bool:
    """Whether a rule is about the state of GPUs and nothing else, such as what software runs on them."""
    keys = {clause.key for table in rule.when for clause in table}
    return _OF_BUILD not in keys and {family(key) for key in keys} <= {"gpu", "gpus"}


# --- one rule ---------------------------------------------------------------------------------------


class _Answer(NamedTuple):
    """What became of a rule on one device (or on the machine): how broken, and by which table."""

    tri: Tri
    table: When
    open: When = ()
    no_hardware: bool = False


def _answer(rule: Rule, inventory: Inventory, device: int | None) -> _Answer:
    first, *others = rule.when
    best = _ask_table(first, rule, inventory, device)
    for table in others:
        answer = _ask_table(table, rule, inventory, device)
        best = answer if answer.tri > best.tri else best
    return best


def _ask_table(table: When, rule: Rule, inventory: Inventory, device: int | None) -> _Answer:
    tri = Tri.YES
    unmet: list[Clause] = []
    missing_hardware = False
    for clause in table:
        asked = ask(clause, inventory, device)
        if asked is Tri.YES:
            continue
        if asked is Tri.NO and _lacks_hardware(clause, inventory, device):
            missing_hardware = True
        elif asked is Tri.NO:
            return _Answer(Tri.NO, table)
        unmet.append(clause)
        tri = min(tri, asked)
    if rule.require:
        required = min(_ask_required(clause, inventory, device) for clause in rule.require)
        tri = min(tri, required.negated())
        if tri is Tri.MAYBE:
            unmet += [c for c in rule.require if _ask_required(c, inventory, device) is Tri.MAYBE]
        if required is Tri.YES:
            return _Answer(Tri.NO, table)
    return _Answer(tri, table, tuple(unmet), missing_hardware)


def _ask_required(clause: Clause, inventory: Inventory, device: int | None) -> Tri:
    """A requirement on something that is not there binds nothing, unless it is that it be present."""
    absent = isinstance(inventory.fact(clause.key, device).reading, Absent)
    wants_it = any(test.op == "present" for alternative in clause.any_of for test in alternative)
    return Tri.YES if absent and not wants_it else ask(clause, inventory, device)


def _lacks_hardware(clause: Clause, inventory: Inventory, device: int | None) -> bool:
    """Whether the clause fails only because there is no GPU here to ask it of."""
    if family(clause.key) not in HARDWARE or clause.key == "cuda.runtime":
        return False
    if inventory.devices and inventory.visible_devices():
        return False
    return isinstance(inventory.fact(clause.key, device).reading, Absent)


def _per_device(rule: Rule) -> bool:
    return any(of_device(clause.key) for table in (*rule.when, rule.require) for clause in table)


# --- the judgement ----------------------------------------------------------------------------------


def judge(inventory: Inventory, rules: Iterable[Rule]) -> Judgement:
    """Hold every rule against the inventory; errors first, then by severity, in the rules' own order."""
    findings: list[Finding] = []
    waiting: list[Waiting] = []
    held = applied = 0
    visible = inventory.visible_devices()
    for rule in rules:
        devices = visible if visible and _per_device(rule) else (None,)
        answers = [(device, _answer(rule, inventory, device)) for device in devices]
        outcome = _verdict(rule, inventory, answers)
        if outcome is None:
            held += 1
            applied += 1
        elif isinstance(outcome, Waiting):
            waiting.append(outcome)
        else:
            applied += outcome.verdict is Verdict.BROKEN
            findings.append(outcome)
    findings.sort(key=lambda finding: (finding.verdict is not Verdict.BROKEN, -finding.severity.rank))
    return Judgement(tuple(findings), tuple(waiting), held, applied)


def _verdict(
    rule: Rule, inventory: Inventory, answers: Sequence[tuple[int | None, _Answer]]
) -> Finding | Waiting | None:
    broken = [(device, answer) for device, answer in answers if answer.tri is Tri.YES]
    if broken:
        return _broken(rule, inventory, answers, broken)
    maybe = [(device, answer) for device, answer in answers if answer.tri is Tri.MAYBE]
    without_gpu = [answer for _, answer in answers if answer.no_hardware]
    if without_gpu:
        return Waiting(rule, "GPU", without_gpu[0].open)
    if not maybe:
        return None
    device, answer = maybe[0]
    for clause in answer.open:
        not_given = _not_given(clause, inventory, device)
        if not_given:
            return Waiting(rule, _REASONS.get(family(not_given), family(not_given)), answer.open)
    because = tuple(_because(answer.open, inventory, device))
    return Finding(rule, Verdict.UNDECIDED, rule.severity, because)


def _not_given(clause: Clause, inventory: Inventory, device: int | None) -> str:
    """The key, of the clause or of what it refers to, that nobody gave; empty if there is none."""
    for key in (clause.key, *refs(clause)):
        reading = inventory.fact(key, device).reading
        if isinstance(reading, Unknown) and not reading.asked:
            return key
    return ""


def _broken(
    rule: Rule,
    inventory: Inventory,
    answers: Sequence[tuple[int | None, _Answer]],
    broken: Sequence[tuple[int | None, _Answer]],
) -> Finding:
    device, answer = broken[0]
    because = tuple(_because((*answer.table, *rule.require), inventory, device))
    severity, notes = rule.severity, []
    if any(each.note.startswith("vendor build") for each in because):
        # A snapshot may lack or have what the bound is about, so it is said, but not as a certainty.
        severity = min(severity, Severity.WARNING, key=lambda each: each.rank)
    concerned: tuple[int, ...] = ()
    if len(broken) < len(answers):
        concerned = tuple(index for index, _ in broken if index is not None)
        alone = _of_gpu_alone(rule)
        if not alone:
            # What does not run on one model runs on another; a GPU that is ill stops what runs on all.
            severity = min(severity, Severity.WARNING, key=lambda each: each.rank)
        spared = ",".join(str(i) for i, each in answers if each.tri is Tri.NO and i is not None)
        # Nobody does without a GPU because its ECC is off.
        if spared and (not alone or severity is Severity.ERROR):
            notes.append(f"CUDA_VISIBLE_DEVICES={spared} leaves it out")
    return Finding(rule, Verdict.BROKEN, severity, because, devices=concerned, note="; ".join(notes))


def _because(clauses: When, inventory: Inventory, device: int | None) -> Iterator[Evidence]:
    seen: set[str] = set()
    for clause in clauses:
        for key in (clause.key, *refs(clause)):
            if key in seen:
                continue
            seen.add(key)
            fact = inventory.fact(key, device)
            plain = clause.kind is Kind.VERSION and isinstance(fact.value, str)
            yield Evidence(
                fact,
                device if of_device(key) else None,
                versions.note(str(fact.value)) if plain else "",
            )


# --- ways out ---------------------------------------------------------------------------------------

Try = Callable[[Sequence[tuple[str, Value]]], Judgement]
"""What the judge says of this environment after a change, with what the change makes stale forgotten."""


def advise(finding: Finding, judgement: Judgement, inventory: Inventory, attempt: Try) -> Finding:
    """The finding with those of its rule's ways out that the judge passes here, best first.

    Each is tried: the rule must no longer be broken or undecided, and nothing may be broken at error
    level that was not in `judgement`.
    """
    before = errors(judgement)
    passed: list[Fix] = []
    for fix in finding.rule.fixes:
        bound = bind(fix, inventory, device_of(finding))
        if bound is None or any(bound.set == other.set for other in passed):
            continue
        changes = tuple((key, trial(value)) for key, value in bound.set)
        after = attempt(changes)
        still = any(each.rule.id == finding.rule.id for each in after.findings)
        if not still and errors(after) <= before:
            passed.append(bound._replace(tried=changes))
    return finding._replace(fixes=tuple(passed))


def errors(judgement: Judgement) -> frozenset[str]:
    """Ids of the rules broken at error level, however the finding was softened."""
    return frozenset(
        finding.rule.id
        for finding in judgement.findings
        if finding.verdict is Verdict.BROKEN and finding.rule.severity is Severity.ERROR
    )


def forbids_lock(finding: Finding) -> bool:
    """Whether a finding speaks against a lock: broken at error level, or against its own packages' metadata.

    A lock serves every GPU of the machine, so a rule that only some of them break counts in full.
    """
    severity = finding.rule.severity if finding.devices else finding.severity
    return finding.verdict is Verdict.BROKEN and (
        severity is Severity.ERROR or finding.rule.group == "requires-dist"
    )


def device_of(finding: Finding) -> int | None:
    """The GPU a finding is about, or None if it is about the machine."""
    return next((each.device for each in finding.evidence if each.device is not None), None)


def bind(fix: Fix, inventory: Inventory, device: int | None) -> Fix | None:
    """The fix with `{facts}` filled in; None if one of them is not known here."""
    bound: list[tuple[str, str | int | bool]] = []
    for key, value in fix.set:
        if isinstance(value, str) and "{" in value:
            head, _, rest = value.partition("{")
            other = inventory.known(rest.rstrip("}"), device)
            if not isinstance(other, (str, int)):
                return None
            bound.append((key, f"{head}{other}"))
        else:
            bound.append((key, value))
    return fix._replace(set=tuple(bound))


def trial(value: str | int | bool) -> Value:
    """The value tried for a change: a version's lower bound, which is a release that exists."""
    if not isinstance(value, str):
        return value
    try:
        comparisons = versions.parse_specifier(value)
    except ValueError:
        return value
    for test in comparisons:
        if test.op in (">=", "=="):
            return str(test.operand)
    return value
