"""The `train.*` facts that the settings of a document state, one by one or together. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.core.facts import Absent, Fact, Known, Reading, Unknown
from envcheck.core.rules import Severity
from envcheck.core.training_facts import KEYS
from envcheck.training_config.dialect_context import DialectContext, bool_as_number, location
from envcheck.training_config.dialects import DialectRow
from envcheck.training_config.document import Section, SettingValue
from envcheck.training_config.values import FALSE, TRUE, UNDECIDED, alternatives, as_number, spelled


def facts(context: DialectContext) -> Iterator[Fact]:
    """Yield the facts that follow from several settings, then those that each setting states."""
    dialect, file = context.dialect, context.document.file
    if dialect.trainer:
        yield Fact("train.trainer", Known(dialect.trainer), file)
    for implied in dialect.implied:
        if context.may_apply(implied.when, implied.versions, implied.package):
            setting = next(
                (context.settings[name] for name in implied.when if name in context.settings), None
            )
            reading = Absent() if implied.value is None else Known(implied.value)
            yield Fact(implied.key, reading, location(setting) if setting else file)
    for setting in context.settings.values():
        decided: set[str] = set()
        for row in context.rows(setting.name):
            if row.key in decided or (reading_of_row := _reading(context, row, setting.value)) is None:
                continue
            decided.add(row.key)
            if not _outside_vocabulary(row, reading_of_row):
                yield Fact(row.key, reading_of_row, location(setting))


def value_outside_fact(context: DialectContext, row: DialectRow, value: SettingValue) -> str:
    """Return what is wrong with a setting whose value its fact cannot have, or ""."""
    reading = _reading(context, row, value)
    return "" if reading is None else _outside_vocabulary(row, reading)


def _reading(context: DialectContext, row: DialectRow, value: SettingValue) -> Reading | None:
    """Return what a row makes of a value; None if the value states nothing, or is of the wrong kind."""
    if not row.key:
        return None
    if isinstance(value, Unknown):
        return value
    text = spelled(bool_as_number(value, row))
    if row.values:
        return Known(row.values[text]) if text in row.values else None
    if _states_nothing(context, row, value, text):
        return None
    if row.value is None:
        return Known(_as_fact(row.kind, text))
    fact_value = row.value if _meets(row, text) else row.otherwise
    return None if fact_value is None else Known(fact_value)


def _states_nothing(context: DialectContext, row: DialectRow, value: SettingValue, text: str) -> bool:
    """Return whether a value leaves its setting undecided or is refused; a bare flag is true."""
    bare_flag = row.kind == "flag" and text == "" and not context.typed
    if text in UNDECIDED and not bare_flag and not isinstance(value, Section):
        return True
    wrong, severity = context.problem(row, value)
    return bool(wrong) and severity is Severity.ERROR


def _meets(row: DialectRow, text: str) -> bool:
    """Return whether the fact of a row has the row's `value`."""
    if row.when == "any":
        return True
    if row.when == "positive":
        return (as_number(text) or 0) > 0
    return (text in TRUE) == (row.when == "true") if row.kind == "flag" else text not in FALSE


def _as_fact(kind: str, text: str) -> str | int | bool:
    """Return the value of a fact that is the setting's own value."""
    if kind == "flag":
        return text in TRUE
    number = as_number(text) or 0
    if kind == "positive":
        return number > 0
    if kind == "whole":
        return int(text) if text.isdigit() else int(number)
    return text


def _outside_vocabulary(row: DialectRow, reading: Reading) -> str:
    """Return what is wrong with a value that the fact cannot have, or ""."""
    words = KEYS[row.key].words if isinstance(reading, Known) else ()
    if not isinstance(reading, Known) or not words or str(reading.value) in words:
        return ""
    return f"expected {alternatives(words)}, found {reading.value!r}"
