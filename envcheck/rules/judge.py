"""The judge: rules against an inventory, in three-valued logic. The logic is here and nowhere else.

A rule forbids a combination of facts: it is broken if some table of its `when` matches and its `require`
does not. In `when`, Absent satisfies no clause except `"absent"`. In `require` it satisfies every clause
except `"present"`: a package that is not installed cannot be the wrong release, and a limit that is not set
does not bind. So an exemption by what a training does must ask a fact that is Known wherever a training is
described (`require = { "train.optimizer_package" = "schedulefree" }`); Absent would exempt all of them.

Unknown makes a clause MAYBE, and a MAYBE matters only if the other clauses do not decide the verdict. So
replacing an Unknown by a value never changes a decided verdict.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from envcheck.core import versions
from envcheck.core.facts import Absent, Inventory, Kind, Tri, Unknown, family, is_device_key
from envcheck.core.findings import Evidence, Finding, Judgement, Verdict, Waiting
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Clause, Rule, Severity, When
from envcheck.rules.clauses import Evaluation, referenced_keys

HARDWARE = frozenset({"driver", "gpu", "gpus", "cuda"})
"""Families of facts about GPUs: on a machine without a GPU, rules about them wait instead of passing."""

_WAITS_FOR = {"train": "training", **dict.fromkeys(HARDWARE, "GPU"), "pkg": "packages", "build": "packages"}


AREAS = (
    ("training", frozenset({"train"})),
    ("gpu", frozenset({"gpu"})),
    ("driver", frozenset({"driver"})),
    ("packages", frozenset({"pkg", "build", "python"})),
    ("machine", frozenset({"host", "env"})),
    ("gpu", frozenset({"gpus"})),
    ("driver", frozenset({"cuda"})),
)
"""The areas of rules: an area's name, and the families of facts that put a rule there; the first row wins.

Packages, driver, GPU, machine and configuration get separate verdicts, because they are fixed in different
places: another torch does not repair a broken fabric. `gpus` comes late, because a rule about shared memory
that counts GPUs is about the machine.
"""

_IN_TORCH_BUILD = "gpu.in_torch_build"
_DESCRIBED = "training.described"
"""A device key that is about the torch build, not about the GPU."""


def area(rule: Rule, evidence: Iterable[Evidence] = ()) -> str:
    """Return the rule's area, a name in `AREAS`; for a rule without clauses, the area of its evidence.

    A rule that holds because no training is described is about the other facts of its evidence.
    """
    shown = {item.fact.key for item in evidence}
    keys = shown - {_DESCRIBED} if _DESCRIBED in shown else _keys(rule) or shown
    families = {"build" if key == _IN_TORCH_BUILD else family(key) for key in keys}
    return next((name for name, members in AREAS if members & families), "packages")


def _only_about_gpus(rule: Rule) -> bool:
    """Return whether a rule is about the state of GPUs alone, not about the software that runs on them."""
    keys = _keys(rule)
    return _IN_TORCH_BUILD not in keys and {family(key) for key in keys} <= {"gpu", "gpus"}


def _keys(rule: Rule) -> set[str]:
    return {clause.key for table in rule.when for clause in table}


# --- the judgement ----------------------------------------------------------------------------------


def judge(inventory: Inventory, rules: Iterable[Rule]) -> Judgement:
    """Judge every rule; findings are sorted broken first, then by severity, then in the rules' order.

    Within one severity, a failure of every training comes before a failure of this one: an old driver comes
    before a setting.
    """
    findings: list[Finding] = []
    waiting: list[Waiting] = []
    passed = applied = 0
    visible = inventory.visible_devices()
    evaluation = Evaluation(inventory)
    for rule in tuple(rules):  # a generated rule has to outlive the answers of its clauses
        if _passes_on_every_device(rule, evaluation):
            passed += 1
            applied += 1
            continue
        devices = visible if visible and _per_device(rule) else (None,)
        answers = [(device, _answer(rule, evaluation, device)) for device in devices]
        outcome = _verdict(rule, inventory, answers)
        if outcome is None:
            passed += 1
            applied += 1
        elif isinstance(outcome, Waiting):
            waiting.append(outcome)
        else:
            applied += outcome.verdict is Verdict.BROKEN
            findings.append(outcome)
    findings.sort(key=_order)
    return Judgement(tuple(findings), tuple(waiting), passed, applied)


def is_broken(inventory: Inventory, rule: Rule) -> bool:
    """Return whether `judge` finds a rule broken; faster, for a search that asks of thousands of releases."""
    evaluation = Evaluation(inventory)
    visible = inventory.visible_devices() if _per_device(rule) else ()
    for device in visible or (None,):
        for table in rule.when:
            if _answer_table(table, rule, evaluation, device).tri is Tri.YES:
                return True
    return False


def _order(finding: Finding) -> tuple[bool, int, bool]:
    of_training = any(each.fact.key.startswith("train.") for each in finding.evidence)
    return finding.verdict is not Verdict.BROKEN, -finding.severity.rank, of_training


def _passes_on_every_device(rule: Rule, evaluation: Evaluation) -> bool:
    """Return whether a fact that no device has decides already that the rule passed.

    Most rules are about a release that is not installed, and are decided here by their first clause. The
    others are left to `_answer`.
    """
    for table in rule.when:
        for clause in table:
            if is_device_key(clause.key) or evaluation.answer(clause) is not Tri.NO:
                continue
            if not _lacks_hardware(clause, evaluation.inventory, None) and not any(
                is_device_key(other) for other in referenced_keys(clause)
            ):
                break
        else:
            return False
    return True


def _per_device(rule: Rule) -> bool:
    # Loops here and list comprehensions below: generators would take a tenth of the time of judging.
    for table in (*rule.when, rule.require):
        for clause in table:
            if is_device_key(clause.key):
                return True
    return False


# --- one rule on one device -------------------------------------------------------------------------


class _Answer(NamedTuple):
    """Answer for a rule on one device, or on the machine: YES is broken, NO is passed."""

    tri: Tri
    table: When
    open: When = ()  # the clauses that are not decided
    no_hardware: bool = False  # a clause fails only because there is no GPU


def _answer(rule: Rule, evaluation: Evaluation, device: int | None) -> _Answer:
    first, *others = rule.when
    worst = _answer_table(first, rule, evaluation, device)
    for table in others:
        answer = _answer_table(table, rule, evaluation, device)
        worst = answer if answer.tri > worst.tri else worst
    return worst


def _answer_table(table: When, rule: Rule, evaluation: Evaluation, device: int | None) -> _Answer:
    tri = Tri.YES
    unmet: list[Clause] = []
    missing_hardware = False
    for clause in table:
        matches = evaluation.answer(clause, device)
        if matches is Tri.YES:
            continue
        if matches is Tri.NO and _lacks_hardware(clause, evaluation.inventory, device):
            missing_hardware = True
        elif matches is Tri.NO:
            return _Answer(Tri.NO, table)
        unmet.append(clause)
        tri = min(tri, matches)
    if rule.require:
        required = min(_evaluate_required(clause, evaluation, device) for clause in rule.require)
        tri = min(tri, required.negated())
        if tri is Tri.MAYBE:
            unmet += [c for c in rule.require if _evaluate_required(c, evaluation, device) is Tri.MAYBE]
        if required is Tri.YES:
            return _Answer(Tri.NO, table)
    return _Answer(tri, table, tuple(unmet), missing_hardware)


def _evaluate_required(clause: Clause, evaluation: Evaluation, device: int | None) -> Tri:
    """Evaluate a clause of `require`: an absent fact satisfies it, unless it requires presence."""
    absent = isinstance(evaluation.inventory.reading(clause.key, device), Absent)
    requires_presence = any(test.op == "present" for alternative in clause.any_of for test in alternative)
    return Tri.YES if absent and not requires_presence else evaluation.answer(clause, device)


def _lacks_hardware(clause: Clause, inventory: Inventory, device: int | None) -> bool:
    """Return whether the clause fails only because this machine has no GPU."""
    if family(clause.key) not in HARDWARE or clause.key == "cuda.runtime":
        return False
    if inventory.devices and inventory.visible_devices():
        return False
    return isinstance(inventory.reading(clause.key, device), Absent)


# --- the verdict over all devices -------------------------------------------------------------------


def _verdict(
    rule: Rule, inventory: Inventory, answers: Sequence[tuple[int | None, _Answer]]
) -> Finding | Waiting | None:
    """Return a finding if the rule is broken or undecided, what it waits for, or None if it passed."""
    open_answers = [item for item in answers if item[1].tri is not Tri.NO or item[1].no_hardware]
    if not open_answers:
        return None
    broken = [(device, answer) for device, answer in open_answers if answer.tri is Tri.YES]
    if broken:
        return _broken(rule, inventory, answers, broken)
    without_gpu = [answer for _, answer in open_answers if answer.no_hardware]
    if without_gpu:
        return Waiting(rule, "GPU", without_gpu[0].open)
    device, answer = open_answers[0]
    for clause in answer.open:
        not_given = _not_given(clause, inventory, device)
        if not_given:
            return Waiting(rule, _WAITS_FOR.get(family(not_given), family(not_given)), answer.open)
    evidence = tuple(evidence_of(answer.open, inventory, device))
    return Finding(rule, Verdict.UNDECIDED, rule.severity, evidence)


def _not_given(clause: Clause, inventory: Inventory, device: int | None) -> str:
    """Return the first key of the clause, or that it refers to, whose fact was not given; empty if none."""
    for key in (clause.key, *referenced_keys(clause)):
        reading = inventory.reading(key, device)
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
    evidence = tuple(evidence_of((*answer.table, *rule.require), inventory, device))
    severity, notes = rule.severity, []
    if any(item.note.startswith("vendor build") for item in evidence):
        # A vendor's snapshot may contain or lack the change that the bound is about.
        severity = _at_most_warning(severity)
    concerned: tuple[int, ...] = ()
    if len(broken) < len(answers):
        concerned = tuple(index for index, _ in broken if index is not None)
        gpu_state = _only_about_gpus(rule)
        if not gpu_state:
            # Software that fails on one GPU model may run on the others; a faulty GPU stops every job on it.
            severity = _at_most_warning(severity)
        spared = ",".join(str(i) for i, other in answers if other.tri is Tri.NO and i is not None)
        # Do not advise leaving out a GPU for a minor problem of its state, such as disabled ECC.
        if spared and (not gpu_state or severity is Severity.ERROR):
            notes.append(f"CUDA_VISIBLE_DEVICES={spared} leaves it out")
    return Finding(rule, Verdict.BROKEN, severity, evidence, devices=concerned, note="; ".join(notes))


def _at_most_warning(severity: Severity) -> Severity:
    return min(severity, Severity.WARNING, key=lambda level: level.rank)


def evidence_of(clauses: When, inventory: Inventory, device: int | None) -> Iterator[Evidence]:
    """Yield the facts that clauses are about, each once."""
    seen: set[str] = set()
    for clause in clauses:
        for key in (clause.key, *referenced_keys(clause)):
            if key in seen:
                continue
            seen.add(key)
            fact = inventory.fact(key, device)
            is_version = clause.kind is Kind.VERSION and isinstance(fact.value, str)
            yield Evidence(
                fact,
                device if is_device_key(key) else None,
                versions.note(str(fact.value)) if is_version else "",
            )


# --- reading findings -------------------------------------------------------------------------------


def errors(judgement: Judgement) -> frozenset[str]:
    """Return the ids of broken rules at error level, even if their findings are only warnings here."""
    return frozenset(
        finding.rule.id
        for finding in judgement.findings
        if finding.verdict is Verdict.BROKEN and finding.rule.severity is Severity.ERROR
    )


def forbids_lock(finding: Finding) -> bool:
    """Return whether a lock with this finding is refused: a broken error, or a broken package requirement.

    A lock serves every GPU of the machine, so a rule that only some GPUs break keeps its full severity.
    """
    severity = finding.rule.severity if finding.devices else finding.severity
    return finding.verdict is Verdict.BROKEN and (
        severity is Severity.ERROR or finding.rule.group == "requires-dist"
    )


def device_of(finding: Finding) -> int | None:
    """Return the index of the GPU a finding is about, or None if it is about the machine."""
    return next((item.device for item in finding.evidence if item.device is not None), None)
