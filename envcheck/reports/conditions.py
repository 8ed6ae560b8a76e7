"""Conditions on a training in words: `ZeRO-2 or ZeRO-3 and gradient checkpointing, with trl`.

Formats import this module only for a report in which something depends on the training.
"""

from __future__ import annotations

from collections.abc import Sequence

from envcheck.core.facts import Key, Kind
from envcheck.core.findings import Finding
from envcheck.core.i18n import Language
from envcheck.core.records import NamedTuple
from envcheck.core.rules import ABSENT, Clause, Comparison, Ref, When
from envcheck.core.training_facts import KEYS
from envcheck.reports.condition_words import CONDITION_WORDS
from envcheck.rules.derive import COMPONENTS
from envcheck.rules.derive import KEYS as DERIVED
from envcheck.rules.fix_words import value_text

_MOST_VALUES = 3  # values of a list that are written out
_MOST_CONDITIONS = 4
_BOUNDS = {"!=": "other than {}", ">=": "at least {}", "<": "less than {}"}


class _Phrase(NamedTuple):
    """A condition in words: what takes the place of the `{}` in `form`."""

    text: str
    form: str = "{}"


def _whole(phrase: _Phrase) -> str:
    return phrase.form.replace("{}", phrase.text)


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
    phrases = _phrases(needed, lang)
    if not every and len(phrases) > _MOST_CONDITIONS + 1:
        more = len(phrases) - _MOST_CONDITIONS
        phrases = [*phrases[:_MOST_CONDITIONS], lang.say("{} more settings", more)]
    text = lang.say("if you train with {}", _listed(phrases, "{} and {}", lang)) if phrases else ""
    for clause in trainers if every else [each for each in trainers if _is_selective(each)]:
        names = _phrase(clause, lang)
        text = lang.say("{} under {}", text, names) if text else lang.say("if you train under {}", names)
    text = text or lang.say("if you train")
    unless = _phrases([each for each in open_clauses if each in require], lang)
    return lang.say("{}, unless with {}", text, _listed(unless, "{} and {}", lang)) if unless else text


def _is_selective(clause: Clause) -> bool:
    """Return whether a clause on the trainer names some trainers, but fewer than half of all."""
    exempts = any(test.op == "!=" for tests in clause.any_of for test in tests)
    return not exempts and len(clause.any_of) < len(KEYS[clause.key].words) / 2


def _is_of_unnamed_trainers(clause: Clause) -> bool:
    """Return whether a clause on a piece of code is met by trainings that name no trainer."""
    return clause.key in COMPONENTS and any(test.op == "absent" for tests in clause.any_of for test in tests)


def _phrases(clauses: Sequence[Clause], lang: Language) -> list[str]:
    """Return the conditions as nouns, each once, without those that say nothing to a reader."""
    return [phrase for phrase in dict.fromkeys(_phrase(each, lang) for each in clauses) if phrase]


def _phrase(clause: Clause, lang: Language) -> str:
    """Return a condition as a noun: `ZeRO-3`, `a base in float16 or float32`, `at least 2 processes`.

    That a fact is not set is left out beside other values: whoever does not set it may still have it.
    """
    declared = DERIVED.get(clause.key) or KEYS.get(clause.key)
    if declared is None:
        return f"{_setting(clause)} {clause.raw}"
    if (
        declared.kind is Kind.NUMBER
        and declared.words
        and clause.raw not in CONDITION_WORDS.get(clause.key, {})
    ):
        # If only a few numbers are possible, each has a phrase: `>=2` is ZeRO-2 or ZeRO-3.
        words = [word for word in declared.words if _meets(int(word), clause)]
        if words and len(words) < len(declared.words):
            return _either([_of_value(clause, declared, f"=={word}", word, lang) for word in words], lang)
    given = [tests for tests in clause.any_of if tests != (ABSENT,)] or clause.any_of
    return _either([_alternative(clause, declared, tests, lang) for tests in given], lang)


def _meets(number: int, clause: Clause) -> bool:
    compare = {"==": int.__eq__, "!=": int.__ne__, ">=": int.__ge__, "<": int.__lt__}
    return any(
        all(
            test.op in compare and isinstance(test.operand, int) and compare[test.op](number, test.operand)
            for test in alternative
        )
        for alternative in clause.any_of
    )


def _alternative(clause: Clause, declared: Key, tests: Sequence[Comparison], lang: Language) -> _Phrase:
    """Return the comparisons of one alternative, all of which are met."""
    found = [_test(clause, declared, test, lang) for test in tests]
    return found[0] if len(found) == 1 else _Phrase(" ".join(map(_whole, found)))


def _test(clause: Clause, declared: Key, test: Comparison, lang: Language) -> _Phrase:
    """Return one comparison in words."""
    if test.op in ("present", "absent"):
        words = CONDITION_WORDS.get(clause.key, {}).get(test.op, declared.phrases.get(test.op))
        unset = lang.say("no {}", _setting(clause)) if test.op == "absent" else _setting(clause)
        return _Phrase(unset if words is None else lang.word(words) if words else "")
    if isinstance(test.operand, Ref):
        asked, value = f"{test.op}{{{test.operand.key}}}", test.operand.key.removeprefix("train.")
    else:
        value = value_text(test.operand)
        asked = f"{test.op}{value}"
    return _of_value(clause, declared, asked, value, lang)


def _of_value(clause: Clause, declared: Key, asked: str, value: str, lang: Language) -> _Phrase:
    """Return a comparison with a value in words: those for conditions come before those of the vocabulary."""
    op = asked[: -len(value)] if asked.endswith(value) else asked.partition("{")[0]
    names = (asked, value) if op == "==" else (asked,)
    for words in (CONDITION_WORDS.get(clause.key, {}), declared.phrases):
        for name in names:
            if name in words:
                return _Phrase(lang.word(words[name]) if words[name] else "")
        if op == "==" and value not in declared.phrases and "*" in words:
            return _Phrase(value, lang.word(words["*"]))
    if clause.key == "train.trainer":
        return _Phrase(value) if op == "==" else _Phrase(lang.say("a trainer other than {}", value))
    if op == "==":
        return (
            _Phrase(value, _setting(clause) + " {}")
            if clause.kind is not Kind.FLAG
            else _flag(clause, value, lang)
        )
    unit = (
        CONDITION_WORDS.get(clause.key, {}).get("*") or declared.phrases.get("*") or _setting(clause) + " {}"
    )
    bound = lang.say(_BOUNDS[op], value) if op in _BOUNDS else f"{op} {value}"
    return _Phrase(bound, lang.word(unit))


def _flag(clause: Clause, value: str, lang: Language) -> _Phrase:
    return _Phrase(_setting(clause) if value == "true" else lang.say("no {}", _setting(clause)))


def _setting(clause: Clause) -> str:
    return clause.key.removeprefix("train.")


def _either(phrases: Sequence[_Phrase], lang: Language) -> str:
    """Join alternatives by `or`; values of one form share its words: `a base in float16 or float32`."""
    forms = dict.fromkeys(each.form for each in phrases)
    texts = [
        form.replace("{}", _or([each.text for each in phrases if each.form == form], lang)) for form in forms
    ]
    return _or([text for text in texts if text], lang)


def _or(texts: Sequence[str], lang: Language) -> str:
    """Join texts by `or`, each once; of a long list, only the first are written out."""
    each = list(dict.fromkeys(texts))
    if len(each) > _MOST_VALUES + 1:
        each = [*each[: _MOST_VALUES - 1], lang.say("one of {} others", len(each) - _MOST_VALUES + 1)]
    return lang.word(" or ").join(each)


def _listed(phrases: Sequence[str], form: str, lang: Language) -> str:
    """Join phrases with commas and a last `and` or `or`."""
    if len(phrases) <= 1:
        return "".join(phrases)
    return lang.say(form, lang.say(", ").join(phrases[:-1]), phrases[-1])
