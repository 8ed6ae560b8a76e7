"""Configurations that a script writes, as documents, with what its commands change in them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from envcheck.core.errors import InputError, Place
from envcheck.core.facts import Unknown
from envcheck.training_config.document import Document, Section, Setting
from envcheck.training_config.launch_scripts.structure_edits import Edit
from envcheck.training_config.launch_scripts.values import Value, spelled
from envcheck.training_config.readers import json_text, yaml_text
from envcheck.training_config.source_lines import SourceLines

_MARKER = "90909090909"
"""What stands for an unknown part of a written text: digits are valid inside and outside quotes."""


def parsed(written: Value, lines: SourceLines) -> Document | None:
    """Return a written text as JSON or YAML, or None; what only the shell knows is Unknown.

    Raises:
        InputError: all of the text is known, and it is malformed.
    """
    text = "".join(_MARKER if fragment.why else fragment.text for fragment in written)
    line = lines.place(written[0].at, written[0].at + 1).line
    placed = "\n" * (line - 1) + text
    try:
        if text.lstrip().startswith("{"):
            (document,) = json_text.read(placed, lines.file)
        elif yaml_text.recognises(text.lstrip()):
            document = yaml_text.parsed(placed, lines.file, templates=False)
        else:
            return None
    except InputError:
        if _MARKER in text or any(fragment.edit is not None for fragment in written):
            return None
        raise
    why = next((fragment.why for fragment in written if fragment.why), "")
    settings = {
        each.name: each._replace(value=Unknown(why)) if _MARKER in str(each.value) else each
        for each in document.settings
    }
    incomplete, opened = "", False
    for fragment in written:
        if fragment.edit is not None and not (opened and _adds_any(fragment.edit)):
            _change(settings, fragment.edit, lines.place(fragment.at, fragment.at + 1))
            opened = bool(_adds_any(fragment.edit))  # every value is unknown: the same again changes nothing
            incomplete = incomplete or _adds_any(fragment.edit)
    return document._replace(settings=tuple(settings.values()), incomplete=incomplete)


def _adds_any(edit: Edit) -> str:
    """Return the reason why a change may add any setting, or ""."""
    return edit.value.why if isinstance(edit.value, Unknown) and not edit.name else ""


def _change(settings: dict[str, Setting], edit: Edit, place: Place) -> None:
    """Make one change to settings by name; what is inside a changed section goes, or may be anything."""
    if isinstance(edit.value, Unknown):
        _open(settings, edit.name, edit.value, place)
        return
    for name in [*settings]:
        if name == edit.name or name.startswith(f"{edit.name}."):
            del settings[name]
    if not edit.deletes:
        _add_to_sections(settings, edit.name, place)
        settings.update({each.name: each for each in _settings_of(edit.name, edit.value, place)})


def _open(settings: dict[str, Setting], name: str, why: Unknown, place: Place) -> None:
    """Note that a setting, with all that is or may be inside it, is not known; "" is the whole document.

    The outermost section around it that is not there may be added.
    """
    for inside, setting in settings.items():
        if not name or inside == name or inside.startswith(f"{name}."):
            settings[inside] = setting._replace(value=why)
    parts = name.split(".")
    around = [".".join(parts[:count]) for count in range(1, len(parts))]
    added = next((each for each in around if each not in settings), name)
    for each in filter(None, (added, name)):
        settings.setdefault(each, Setting(each, why, place, place, perhaps=True))


def _add_to_sections(settings: dict[str, Setting], name: str, place: Place) -> None:
    """Make sure that the sections around a setting are there and have it."""
    section, _, last = name.rpartition(".")
    while section:
        before = settings.get(section)
        if before is not None and not isinstance(before.value, Section):
            return  # a list, or a value that is not known
        names = before.value.names if before is not None and isinstance(before.value, Section) else ()
        own = before or Setting(section, Section(), place, place)
        settings[section] = own._replace(value=Section((*names, *(() if last in names else (last,)))))
        if before is not None:
            return
        section, _, last = section.rpartition(".")


def _settings_of(name: str, value: Any, place: Place) -> Iterator[Setting]:
    """Yield a value as settings: of an object, also those inside it."""
    if isinstance(value, dict):
        yield Setting(name, Section(tuple(value)), place, place)
        for key, inner in value.items():
            yield from _settings_of(f"{name}.{key}", inner, place)
    elif isinstance(value, list):
        scalars = tuple(each for each in value if not isinstance(each, dict | list))
        known = len(scalars) == len(value)
        yield Setting(name, scalars if known else Unknown("a list of objects"), place, place)
    else:
        yield Setting(name, value, place, place)


def unread(texts: Sequence[Value], documents: Sequence[Document | None]) -> str:
    """Return why one of the texts that a script gives a file could not be read, or "".

    `documents` are those of the texts; a text that is empty says nothing.
    """
    for text, document in zip(texts, documents, strict=True):
        if document is None and spelled(text).strip():
            return next(
                (each.why for each in text if each.why), "the text that the script writes cannot be read"
            )
    return ""


def agreed(documents: Sequence[Document], why: str = "the script writes the file several times") -> Document:
    """Return several documents as one, such as the texts that a script gives one file.

    What differs between them is Unknown for the reason `why`.
    """
    first, *others = documents
    settings = {setting.name: setting for setting in first.settings}
    for other in others:
        given = {setting.name: setting for setting in other.settings}
        for name in settings.keys() | given.keys():
            one, another = settings.get(name), given.get(name)
            setting = one or another
            if setting and (one is None or another is None or one.value != another.value):
                settings[name] = setting._replace(value=Unknown(why))
    incomplete = next((each.incomplete for each in documents if each.incomplete), "")
    return first._replace(settings=tuple(settings.values()), incomplete=incomplete)
