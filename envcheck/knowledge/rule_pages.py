"""The pages of `envcheck rule` and `envcheck target`, as text."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.core.errors import InputError
from envcheck.core.facts import Fact, Inventory, Known, Tri, package_key
from envcheck.core.i18n import ENGLISH, Language, pad
from envcheck.core.rules import Cell, Matrix, Rule, Target, When
from envcheck.core.suggestions import suggestion
from envcheck.core.training_facts import KEYS as TRAINING
from envcheck.rules.clauses import evaluate
from envcheck.rules.derive import derive
from envcheck.rules.fix_words import fix_text, value_text


def rule_page(rule_id: str | None, known: Matrix, lang: Language = ENGLISH) -> str:
    """Return the page of a rule, or the list of all rules if none is named.

    Raises:
        InputError: there is no such rule; the message suggests the nearest.
    """
    lang = lang.without(known.overlaid())
    if rule_id is None:
        rows = [
            f"{rule.id}  [{lang.word(rule.severity.value)}, {lang.word(rule.basis.value)}]\n"
            f"    {lang.title(rule.id, rule.title)}"
            for rule in known.rules
        ]
        return "\n".join([*rows, lang.say("{} rules, matrix {}", len(known.rules), known.updated), ""])
    rule = known.rule(rule_id)
    if rule is None:
        raise InputError(
            f"rule {rule_id}", f"no such rule{suggestion(rule_id, [other.id for other in known.rules])}"
        )
    overlay = [
        f"{pad(lang.say('from'), 7)}{origin.name} ({origin.named_by})"
        for origin in known.origins
        if origin.name == rule.group
    ]
    return "\n".join([*_rule(rule, lang), *_measured(rule, known, lang), *overlay[-1:], ""])


def _rule(rule: Rule, lang: Language) -> Iterator[str]:
    yield f"{rule.id}  [{lang.word(rule.severity.value)}]"
    yield lang.title(rule.id, rule.title)
    for number, table in enumerate(rule.when):
        yield ""
        yield lang.say("when") if number == 0 else lang.say("or when")
        yield from _clauses(table, lang)
    if rule.require:
        yield lang.say("unless")
        yield from _clauses(rule.require, lang)
    if rule.why:
        yield ""
        yield lang.why(rule.id, rule.why)
    for number, fix in enumerate(rule.fixes):
        cost = lang.cost(rule.id, [other.cost for other in rule.fixes], fix.cost)
        label = pad(lang.say("fix"), 7)
        yield f"{chr(10) if number == 0 else ''}{label}{fix_text(fix, lang)}" + (
            f"  ({cost})" if cost else ""
        )
    reasons = [no_fix.why for no_fix in rule.no_fixes]
    for number, no_fix in enumerate(rule.no_fixes):
        label = pad(lang.say("no fix"), 7)
        reason = lang.no_fix(rule.id, reasons, no_fix.why)
        yield f"{chr(10) if number == 0 else ''}{label}{fix_text(no_fix, lang)}  ({reason})"
        yield f"       {no_fix.source}"
    yield ""
    yield f"{pad(lang.say('known'), 7)}{lang.word(rule.basis.value)}"
    for source in rule.sources:
        yield f"       {source.url} {lang.say('({}, checked {})', lang.word(source.kind), source.checked)}"


def _measured(rule: Rule, known: Matrix, lang: Language) -> Iterator[str]:
    """Yield the measured combinations that the rule broke, and trained ones that differ in one clause."""
    failed = [cell for cell in known.cells if cell.rule == rule.id]
    if not failed:
        return
    targets = {cell.target for cell in failed}
    trained = [cell for cell in known.cells if cell.outcome == "ok" and cell.target in targets]
    near_misses = [cell for cell in trained if _one_clause_away(cell, rule, known)]
    yield ""
    yield lang.say("measured")
    for cell in [*failed, *near_misses]:
        yield _cell(cell._replace(rule=""), lang)


def _one_clause_away(cell: Cell, rule: Rule, known: Matrix) -> bool:
    """Return whether exactly one clause of a rule does not match a combination that trained."""
    train = {**known.targets[cell.target].train, **cell.train}
    facts = {key: Fact(key, Known(value)) for key, value in train.items()}
    facts |= {
        package_key(name): Fact(package_key(name), Known(version)) for name, version in cell.pkg.items()
    }
    inventory = derive(Inventory(facts, complete=frozenset({"pkg"})), known)
    return any(sum(evaluate(clause, inventory) is Tri.NO for clause in table) == 1 for table in rule.when)


def _clauses(table: When, lang: Language) -> Iterator[str]:
    for clause in table:
        phrase = TRAINING[clause.key].phrases.get(clause.raw, "") if clause.key in TRAINING else ""
        yield f"    {clause.key}  {lang.alternatives(clause.raw)}" + (
            f"   {lang.word(phrase)}" if phrase else ""
        )


def target_page(name: str | None, known: Matrix, lang: Language = ENGLISH) -> str:
    """Return the page of a target, or the list of all targets if none is named.

    Raises:
        InputError: there is no such target; the message suggests the nearest.
    """
    if name is None:
        return "\n".join(_target_groups(known, lang))
    if name not in known.targets:
        raise InputError(f"target {name}", f"no such target{suggestion(name, list(known.targets))}")
    return "\n".join([*_target(known.targets[name], known, lang), ""])


def _target_groups(known: Matrix, lang: Language) -> Iterator[str]:
    """Yield a block of lines for each group: its heading, and each target with what it is for."""
    groups: dict[str, list[Target]] = {}
    for target in known.targets.values():
        groups.setdefault(target.group, []).append(target)
    for group, targets in groups.items():
        lines = [lang.word(group) if group else lang.say("other targets")]
        for target in targets:
            lines.append(f"  {target.name:<20} {lang.word(target.title)}")
            lines += [f"  {'':<20} {lang.word(target.purpose)}"] if target.purpose else []
        yield "\n".join([*lines, ""])


def _target(target: Target, known: Matrix, lang: Language) -> Iterator[str]:
    yield f"{target.name}: {lang.word(target.title)}"
    if target.purpose:
        yield lang.word(target.purpose)
    if target.note:
        yield lang.word(target.note)
    if target.extends:
        yield f"{pad(lang.say('extends'), 9)}{target.extends}"
    yield from _environment(target, lang)
    if target.build:
        builds = pad(lang.say("builds"), 9)
        yield f"{builds}{', '.join(target.build)} {lang.say('(published as source only)')}"
    for number, (key, value) in enumerate(target.train.items()):
        shown = value_text(value)
        phrase = TRAINING[key].phrases.get(shown, "") if key in TRAINING else ""
        implies = pad(lang.say("implies") if number == 0 else "", 9)
        yield f"{implies}{key} = {shown}" + (f"   {lang.word(phrase)}" if phrase else "")
    if target.free:
        yield f"{pad(lang.say('leaves'), 9)}{lang.say('{} to pin', ', '.join(target.free))}"
    cells = [cell for cell in known.cells if cell.target == target.name]
    good = sum(cell.outcome == "ok" for cell in cells)
    failed = sum(cell.outcome == "fails" for cell in cells)
    yield lang.say("measured {} combinations: {} trained, {} failed", len(cells), good, failed)
    for cell in sorted(cells, key=lambda cell: (cell.date, cell.outcome)):
        yield _cell(cell, lang)


def _environment(target: Target, lang: Language) -> Iterator[str]:
    """Yield what a target's environment holds, within which bounds, and what it must not hold."""
    yield f"{pad(lang.say('wants'), 9)}{', '.join([*target.packages, *target.extras])}"
    for number, (name, bound) in enumerate(target.bounds.items()):
        yield f"{pad(lang.say('bounds') if number == 0 else '', 9)}{name}{bound}"
    for number, (name, why) in enumerate(target.conflicts.items()):
        yield f"{pad(lang.say('without') if number == 0 else '', 9)}{name} ({lang.word(why)})"
    for number, (place, why) in enumerate(target.lacks.items()):
        where = lang.say("Python {}", place) if place[0].isdigit() else place
        yield f"{pad(lang.say('no lock') if number == 0 else '', 9)}{where} ({lang.word(why)})"
    if target.server:
        where = lang.say("in a separate environment: target {}", target.server)
        yield f"{pad(lang.say('server'), 9)}{where}"


def _cell(cell: Cell, lang: Language) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in cell.pkg.items())
    train = "".join(
        f", {key.removeprefix('train.')} {value_text(value)}" for key, value in cell.train.items()
    )
    outcome = pad(lang.say(cell.outcome), 5)
    rule = f"  [{cell.rule}]" if cell.rule else ""
    return f"    {cell.date} {cell.device} {outcome} {versions}{train}{rule}"
