"""A plan (the smallest change) as a title, a table and details, in the user's language.

Formats import this module only for a report that has a plan.
"""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.core.findings import Move, Plan, Report
from envcheck.core.i18n import Language
from envcheck.core.rules import uninstalls
from envcheck.reports.details import Detail
from envcheck.reports.plan_steps import (
    configuration_changes,
    move_name,
    move_target,
    plan_commands,
    plan_notes,
)
from envcheck.rules.fix_words import value_text

_MOST_RULES = 2  # rules named in a row of the table; JSON has all


def plan_title(plan: Plan, lang: Language) -> str:
    """Return what a plan is: the smallest change, one that may not be the smallest, or no change at all."""
    level = lang.word(plan.level.value)
    if not plan.moves:
        if plan.unresolved:
            return lang.say("No known change fixes what is broken at level {} or above", level)
        return lang.say("Nothing needs to change: nothing is broken at level {} or above", level)
    if plan.proved == "fewest":
        return lang.say(
            "The fewest changes for level {} and above; others may be smaller. Nothing was changed", level
        )
    if not plan.proved:
        return lang.say(
            "A change for level {} and above, perhaps not the smallest. Nothing was changed",
            level,
        )
    if plan.unresolved:
        return lang.say(
            "The smallest change for what can be fixed at level {} and above. Nothing was changed", level
        )
    return lang.say("The smallest change for level {} and above. Nothing was changed", level)


def plan_table(plan: Plan, lang: Language) -> list[tuple[str, ...]]:
    """Return the moves of a plan as rows of cells, headings first; no rows if nothing moves."""
    headings = (
        lang.say("what"),
        lang.say("now"),
        lang.say("then"),
        lang.say("required by"),
        lang.say("costs"),
    )
    return [headings, *(_row(move, lang) for move in plan.moves)] if plan.moves else []


def _row(move: Move, lang: Language) -> tuple[str, str, str, str, str]:
    rules = ", ".join(rule.id for rule in move.rules[:_MOST_RULES])
    if len(move.rules) > _MOST_RULES:
        rules = lang.say("{} and {} more", rules, len(move.rules) - _MOST_RULES)
    return (
        move_name(move),
        _before(move, lang),
        lang.say("uninstalled") if uninstalls(move.key, move.after) else move_target(move),
        lang.say("moves with {}", move.leader) if move.leader else rules,
        _cost(move, lang),
    )


def _before(move: Move, lang: Language) -> str:
    if move.before is None:
        return lang.say("not installed") if move.install else lang.say("not set")
    return value_text(move.before)


def _cost(move: Move, lang: Language) -> str:
    cost = move.cost
    if move.proposed_by is not None:
        costs = [fix.cost for fix in move.proposed_by.fixes]
        cost = lang.cost(move.proposed_by.id, costs, move.cost)
    if move.administrator:
        cost = cost or lang.say("only an administrator can")
    return cost


def plan_details(plan: Plan, report: Report, *, commands: bool = True) -> Iterator[Detail]:
    """Yield how to carry out a plan, its notes, what it breaks, and what it leaves broken."""
    lang = report.language
    for command in plan_commands(plan, report) if commands else ():
        yield Detail("", command, "command")
    for setting, source, argument in configuration_changes(plan, report):
        now = lang.say(" (now from {})", lang.translate(source)) if source else ""
        as_argument = lang.say(", as an argument: {}", argument) if argument else ""
        yield Detail(lang.say("set"), f"{setting}{now}{as_argument}", "set")
    for note in plan_notes(plan, report):
        yield Detail(lang.say("note"), lang.translate(note), "note")
    for rule in plan.brings:
        title = f"{lang.word(rule.severity.value)}: {lang.title(rule.id, rule.title)} [{rule.id}]"
        yield Detail(lang.say("brings"), title, "brings")
    for unresolved in plan.unresolved:
        title = f"{lang.title(unresolved.rule.id, unresolved.rule.title)} [{unresolved.rule.id}]"
        yield Detail(lang.say("left"), title, "left")
        yield Detail("", lang.translate(unresolved.why), "left")
