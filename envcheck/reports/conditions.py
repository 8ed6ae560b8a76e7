"""Conditions on a training in words: `ZeRO-2 or ZeRO-3 and gradient checkpointing, with trl`.

Formats import this module only for a report in which something depends on the training.
"""

from __future__ import annotations

from collections.abc import Sequence

from envcheck.core.facts import Kind
from envcheck.core.findings import Finding
from envcheck.core.i18n import Language
from envcheck.core.rules import Clause, Comparison, Ref, When
from envcheck.core.training_facts import KEYS
from envcheck.reports.overview import training_phrase
from envcheck.reports.phrases import value_text
from envcheck.rules.derive import COMPONENTS

_MOST_VALUES = 3  # values of a list that are written out
_MOST_CONDITIONS = 4
_BOUNDS = {"!=": "other than {}", ">=": "at least {}", "<": "less than {}"}


def finding_conditions(finding: Finding, lang: Language, *, every: bool = False) -> str:
    """Return the conditions under which a finding applies: `if you train with ZeRO-3 and LoRA`."""
    return conditions_text(finding.conditions, finding.rule.require, lang, every=every)


def conditions_text(open_clauses: When, require: When, lang: Language, *, every: bool = False) -> str:
    """Return the open clauses of a rule as part of a sentence.

    Clauses that are also in `require` follow `unless`, because a training that meets them passes the rule.
    With `every`, all clauses are written out; otherwise long lists are shortened.
    """
    trainers = [clause for clause in open_clauses if clause.key == "train.trainer"]
    left_out = [] if every else [each for each in open_clauses if _is_of_unnamed_trainers(each)]
    needed = [each for each in open_clauses if each not in (*require, *trainers, *left_out)]
    phrases = [_phrase(clause, lang) for clause in needed]
    if not every and len(phrases) > _MOST_CONDITIONS + 1:
        more = len(phrases) - _MOST_CONDITIONS
        phrases = [*phrases[:_MOST_CONDITIONS], lang.say("{} more settings", more)]
    text = lang.say("if you train with {}", _listed(phrases, "{} and {}", lang)) if phrases else ""
    for clause in trainers if every else [each for each in trainers if _is_selective(each)]:
        names = _values(clause, lang)
        text = lang.say("{} under {}", text, names) if text else lang.say("if you train under {}", names)
    unless = [_phrase(clause, lang) for clause in open_clauses if clause in require]
    if unless:
        text = lang.say("{}, unless it has {}", text, _listed(unless, "{} and {}", lang)).lstrip(", ")
    return text


def _is_selective(clause: Clause) -> bool:
    """Return whether a clause on the trainer names some trainers, but fewer than half of all."""
    exempts = any(test.op == "!=" for tests in clause.any_of for test in tests)
    return not exempts and len(clause.any_of) < len(KEYS[clause.key].words) / 2


def _is_of_unnamed_trainers(clause: Clause) -> bool:
    """Return whether a clause on a piece of code is met by trainings that name no trainer."""
    return clause.key in COMPONENTS and any(test.op == "absent" for tests in clause.any_of for test in tests)


def _phrase(clause: Clause, lang: Language) -> str:
    """Return a condition as a noun: `ZeRO-3`, `a base in float16`, `at least 2 accumulation steps`."""
    if clause.key in COMPONENTS:
        return lang.word(COMPONENTS[clause.key].phrases["true"])
    if clause.key not in KEYS:
        return f"{clause.key.removeprefix('train.')} {clause.raw}"
    return _values(clause, lang)


def _values(clause: Clause, lang: Language) -> str:
    """Return the values that meet a clause, joined by `or`."""
    declared = KEYS[clause.key]
    if declared.kind is Kind.NUMBER and declared.words:
        # If only a few numbers are possible, each has a phrase: `>=2` is ZeRO-2 or ZeRO-3.
        words = [word for word in declared.words if _meets(int(word), clause)]
        if words and len(words) < len(declared.words):
            return _either([training_phrase(clause.key, word, lang) for word in words], lang)
    texts = list(dict.fromkeys(_alternative(clause, alternative, lang) for alternative in clause.any_of))
    name = f"{clause.key.removeprefix('train.')} "
    if all(text.startswith(name) for text in texts):
        texts[1:] = [text.removeprefix(name) for text in texts[1:]]
    if len(texts) > _MOST_VALUES + 1:
        left_out = len(texts) - _MOST_VALUES + 1
        texts = [*texts[: _MOST_VALUES - 1], lang.say("{} others", left_out)]
    return _either(texts, lang)


def _meets(number: int, clause: Clause) -> bool:
    compare = {"==": int.__eq__, "!=": int.__ne__, ">=": int.__ge__, "<": int.__lt__}
    return any(
        all(
            test.op in compare and isinstance(test.operand, int) and compare[test.op](number, test.operand)
            for test in alternative
        )
        for alternative in clause.any_of
    )


def _alternative(clause: Clause, tests: Sequence[Comparison], lang: Language) -> str:
    return " ".join(_test(clause, test, lang) for test in tests)


def _test(clause: Clause, test: Comparison, lang: Language) -> str:
    """Return one comparison in words."""
    name = clause.key.removeprefix("train.")
    if isinstance(test.operand, Ref):
        other = test.operand.key.removeprefix("train.")
        return f"{name} {test.op} {other}"
    value = value_text(test.operand)
    phrases = KEYS[clause.key].phrases
    spelled = phrases.get("present" if test.op == "present" else f"{test.op}{value}")
    if spelled is not None:
        return lang.word(spelled)
    match test.op:
        case "present":
            return name
        case "absent":
            return lang.say("no {}", name)
        case "==":
            return _equal(clause, value, lang)
        case _:
            return _bound(clause, test.op, value, lang)


def _bound(clause: Clause, op: str, value: str, lang: Language) -> str:
    """Return a bound in words: `at least 2 accumulation steps`, `device_map other than none`."""
    if clause.key == "train.trainer":
        return lang.say("a trainer other than {}", value)
    bound, unit = lang.say(_BOUNDS[op], value), KEYS[clause.key].phrases.get("*", "")
    if unit.startswith("{} "):
        return lang.word(unit).replace("{}", bound)
    return f"{clause.key.removeprefix('train.')} {bound}"


def _equal(clause: Clause, value: str, lang: Language) -> str:
    """Return a value of a fact in words; the name of a trainer needs no further ones."""
    name = clause.key.removeprefix("train.")
    phrases = KEYS[clause.key].phrases
    if value in phrases or "*" in phrases:
        return training_phrase(clause.key, value, lang)
    if name == "trainer":
        return value
    return f"{name} {value}" if clause.kind is Kind.WORD else f"{name}={value}"


def _either(texts: Sequence[str], lang: Language) -> str:
    """Join alternatives by `or`; commas are left to the conditions around them."""
    return lang.word(" or ").join(texts)


def _listed(phrases: Sequence[str], form: str, lang: Language) -> str:
    """Join phrases with commas and a last `and` or `or`."""
    if len(phrases) <= 1:
        return "".join(phrases)
    return lang.say(form, lang.say(", ").join(phrases[:-1]), phrases[-1])
