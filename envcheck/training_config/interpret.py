"""What a document means in its dialect: `train.*` facts, diagnostics, and the files that it names. Pure.

Where the installed release of a package is known, it decides what that package accepts and refuses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import NamedTuple

from envcheck.core.errors import Place
from envcheck.core.facts import Fact, Unknown
from envcheck.core.findings import Diagnostic
from envcheck.core.rules import Severity
from envcheck.training_config.dialect_context import DialectContext, location
from envcheck.training_config.dialects import Dialect, DialectRow, recognised
from envcheck.training_config.document import Document, Reference, SettingValue
from envcheck.training_config.setting_diagnostics import SettingDiagnostics
from envcheck.training_config.setting_facts import default_facts, facts, open_facts
from envcheck.training_config.values import FALSE, UNDECIDED, spelled

_MAX_NAMES = 8  # that one diagnostic lists
_MAX_DIAGNOSTICS = 100  # of one document
_SHIPS_CONFIGURATIONS = (
    "torchtune",
)  # dialects whose programs find a configuration by a name without an ending


class Interpretation(NamedTuple):
    """A document with its facts, its diagnostics and the files it names; without a dialect it has none.

    `defaults` count only for facts that nothing states, and `open_facts` only for those and before defaults.
    """

    document: Document
    dialect: Dialect | None
    facts: tuple[Fact, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    references: tuple[Reference, ...] = ()
    defaults: tuple[Fact, ...] = ()
    open_facts: tuple[Fact, ...] = ()


def understood(
    document: Document, dialects: Mapping[str, Dialect], installed: Mapping[str, str]
) -> list[Interpretation]:
    """Return what a document means, after what each configuration embedded in it means.

    `installed` are versions of packages, as far as they are known.
    """
    dialect = recognised(document, dialects)
    if dialect is None:
        return [Interpretation(document, None)]
    context = DialectContext(document, dialect, installed)
    if document.partial:
        certain_facts = tuple(fact for fact in facts(context) if fact.value is not None)
        return [Interpretation(document, dialect, certain_facts)]
    inner = [part for embedded in _embedded(context) for part in understood(embedded, dialects, installed)]
    opened = tuple(open_facts(context))
    own = list(islice(SettingDiagnostics(context).all(), _MAX_DIAGNOSTICS + 1))
    noted = {diagnostic.places[0] for diagnostic in own if diagnostic.code == "unknown-name"}
    certain = bool(dialect.trainer) and context.proves_trainer()
    diagnostics = chain(own, () if certain else _not_understood(context, opened, noted))
    whole = Interpretation(
        document,
        dialect,
        tuple(facts(context)),
        tuple(_limited(diagnostics, document.file)),
        tuple(_references(context)),
        tuple(default_facts(context)),
        opened,
    )
    return [*inner, whole]


def _not_understood(
    context: DialectContext, opened: Sequence[Fact], noted: set[Place]
) -> Iterator[Diagnostic]:
    """Note in one line the settings that bear on facts, whose meaning is not known and nothing else notes."""
    sources = {fact.source for fact in opened}
    settings = [
        each
        for each in context.settings.values()
        if location(each) in sources and not context.rows(each.name) and each.name_place not in noted
    ]
    if settings:
        names = [setting.name for setting in settings]
        more = f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else ""
        listed = f"{', '.join(names[:_MAX_NAMES])}{more}"
        text = f"not understood: {listed}; what they affect is unknown unless another setting states it"
        yield Diagnostic(Severity.NOTE, "not-understood", text, (settings[0].name_place,))


def _limited(diagnostics: Iterator[Diagnostic], file: str) -> Iterator[Diagnostic]:
    yield from islice(diagnostics, _MAX_DIAGNOSTICS)
    if next(diagnostics, None) is not None:
        text = f"more than {_MAX_DIAGNOSTICS} mistakes: the others are not shown"
        yield Diagnostic(Severity.WARNING, "too-many", text, (Place(file),))


# --- other configurations ---------------------------------------------------------------------------


def _references(context: DialectContext) -> Iterator[Reference]:
    """Yield the files that settings name."""
    launch = context.document.launch
    for setting in context.settings.values():
        row = next((row for row in context.rows(setting.name) if row.refers), None)
        if row is None or setting.value in context.document.written_files:
            continue
        if isinstance(setting.value, Unknown):
            yield Reference("", setting.place, row.refers, launch, setting.value.why, optional=context.typed)
        elif _names_a_file(setting.value, row) and not _is_shipped(str(setting.value), dialect=row.refers):
            yield Reference(str(setting.value), setting.place, row.refers, launch)


def _is_shipped(name: str, *, dialect: str) -> bool:
    """Return whether a name stands for a configuration that its program brings along: `llama3/8B_lora`."""
    return dialect in _SHIPS_CONFIGURATIONS and not name.endswith((".yaml", ".yml", ".json"))


def _names_a_file(value: SettingValue, row: DialectRow) -> bool:
    if not isinstance(value, str) or value.lstrip().startswith("{"):
        return False
    return spelled(value) not in {*row.values, *UNDECIDED, *FALSE, "true"}


def _embedded(context: DialectContext) -> Iterator[Document]:
    """Yield the configurations inside this one, with names relative to the setting that holds them."""
    document = context.document
    for name in context.settings:
        dialect = next((row.refers for row in context.rows(name) if row.refers), "")
        prefix = f"{name}."
        inside = [
            setting._replace(name=inner.removeprefix(prefix))
            for inner, setting in (context.settings.items() if dialect else ())
            if inner.startswith(prefix)
        ]
        if inside:
            yield Document(document.file, "json", tuple(inside), launch=document.launch, dialect=dialect)
