"""The pages of a rule and of a target, as text."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.model import InputError, Matrix, Rule, Target, When
from envcheck.training import KEYS as TRAINING


def rule_page(rule_id: str | None, known: Matrix) -> str:
    """The page of a rule, or the list of all if none is named.

    Raises:
        InputError: there is no such rule; names the nearest.
    """
    if rule_id is None:
        rows = [
            f"{rule.id}  [{rule.severity.value}, {rule.basis.value}]\n    {rule.title}"
            for rule in known.rules
        ]
        return "\n".join([*rows, f"{len(known.rules)} rules, matrix {known.updated}", ""])
    rule = known.rule(rule_id)
    if rule is None:
        raise InputError(
            f"rule {rule_id}", f"no such rule{nearest(rule_id, [each.id for each in known.rules])}"
        )
    laid_over = [f"from   {each.name} ({each.named_by})" for each in known.origins if each.name == rule.group]
    return "\n".join([*_rule(rule), *laid_over[-1:], ""])


def _rule(rule: Rule) -> Iterator[str]:
    yield f"{rule.id}  [{rule.severity.value}]"
    yield rule.title
    for number, table in enumerate(rule.when):
        yield ""
        yield "when" if number == 0 else "or when"
        yield from _clauses(table)
    if rule.require:
        yield "unless"
        yield from _clauses(rule.require)
    if rule.why:
        yield ""
        yield rule.why
    for number, fix in enumerate(rule.fixes):
        changes = ", ".join(f"{key} {_shown(value)}" for key, value in fix.set)
        yield f"{chr(10) if number == 0 else ''}fix    {changes}" + (f"  ({fix.cost})" if fix.cost else "")
    yield ""
    yield f"known  {rule.basis.value}"
    yield from (f"       {source.url} ({source.kind}, checked {source.checked})" for source in rule.sources)


def _clauses(table: When) -> Iterator[str]:
    for clause in table:
        phrase = TRAINING[clause.key].phrases.get(clause.raw, "") if clause.key in TRAINING else ""
        yield f"    {clause.key}  {clause.raw}" + (f"   {phrase}" if phrase else "")


def target_page(name: str | None, known: Matrix) -> str:
    """The page of a target, or the list of all if none is named.

    Raises:
        InputError: there is no such target; names the nearest.
    """
    if name is None:
        return "".join(f"{target.name:<20} {target.title}\n" for target in known.targets.values())
    if name not in known.targets:
        raise InputError(f"target {name}", f"no such target{nearest(name, list(known.targets))}")
    return "\n".join([*_target(known.targets[name], known), ""])


def _target(target: Target, known: Matrix) -> Iterator[str]:
    yield f"{target.name}: {target.title}"
    if target.note:
        yield target.note
    yield f"wants    {', '.join(target.packages)}"
    if target.build:
        yield f"builds   {', '.join(target.build)} (published as source only)"
    for number, (key, value) in enumerate(target.train.items()):
        shown = _shown(value)
        phrase = TRAINING[key].phrases.get(shown, "") if key in TRAINING else ""
        yield f"{'implies' if number == 0 else '':<8} {key} = {shown}" + (f"   {phrase}" if phrase else "")
    if target.free:
        yield f"leaves   {', '.join(target.free)} to pin"
    cells = [cell for cell in known.cells if cell.target == target.name]
    good = sum(cell.outcome == "ok" for cell in cells)
    yield f"measured {len(cells)} combinations: {good} trained, {len(cells) - good} failed"
    for cell in sorted(cells, key=lambda cell: (cell.date, cell.outcome)):
        versions = ", ".join(f"{name} {version}" for name, version in cell.pkg.items())
        train = "".join(f", {key.removeprefix('train.')} {_shown(v)}" for key, v in cell.train.items())
        outcome = "ok   " if cell.outcome == "ok" else "fails"
        yield f"    {cell.date} {cell.device} {outcome} {versions}{train}" + (
            f"  [{cell.rule}]" if cell.rule else ""
        )


def _shown(value: str | int | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def nearest(word: str, known: list[str], *, list_all: bool = True) -> str:
    """`; did you mean …?` for a misspelt name, else what names there are (or nothing)."""
    from difflib import get_close_matches

    close = get_close_matches(word, known, n=1, cutoff=0.5)
    if close:
        return f"; did you mean {close[0]!r}?"
    return f"; known are {', '.join(sorted(known))}" if list_all else ""
