"""Words of a command as settings: `--name value`, `name=value`, flags, and configurations that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envcheck.core.errors import Place
from envcheck.core.facts import Unknown
from envcheck.training_config.document import Scalar, Setting, SettingValue
from envcheck.training_config.launch_scripts.values import Argument
from envcheck.training_config.readers import arguments
from envcheck.training_config.source_lines import SourceLines
from envcheck.training_config.values import as_number, compact

CONFIG_FILES = (".yaml", ".yml", ".json", ".toml")
_KEY = re.compile(r"\+{0,2}[A-Za-z_][\w.]*")


def option_value(value: SettingValue) -> Scalar | Unknown:
    """Return the value that a program parses from an argument; a bare flag is true."""
    if not isinstance(value, str):
        return Unknown("no plain value") if isinstance(value, tuple) else value
    if value == "" or value.lower() in ("true", "false"):
        return value.lower() != "false"
    number = as_number(value)
    return value if number is None else compact(number)


def settings_of(
    words: Sequence[Argument], lines: SourceLines, files: tuple[str, ...] = CONFIG_FILES
) -> tuple[list[Setting], str]:
    """Return words as settings, and the reason why there may be more settings than these, or "".

    A later setting replaces an earlier one of the same name. `files` are the endings of configurations.
    """
    found: dict[str, Setting] = {}
    incomplete = ""
    i = 0
    while i < len(words):
        word = words[i]
        i += 1
        spelled, equals, value = word.text.partition("=")
        name_place = word_place(word, lines)
        if word.many:
            incomplete = incomplete or ("" if word.choices else word.why)
            for name in _options_in(word.choices):
                perhaps = not all(name in _options_in([choice]) for choice in word.choices)
                perhaps = perhaps and name not in found
                found.pop(name, None)
                found[name] = Setting(name, Unknown(word.why), name_place, name_place, perhaps=perhaps)
            continue
        if not spelled.startswith("-") and not (equals and _KEY.fullmatch(spelled)):
            if word.text.endswith(files) or word.why:
                named_file = Unknown(word.why) if word.why else word.text
                found.setdefault("config", Setting("config", named_file, name_place, name_place))
            continue
        why, place = word.why, name_place
        more: tuple[Scalar | Unknown, ...] = ()
        if equals:
            place = lines.place(word.at + len(spelled) + 1, word.at + len(word.text))
        elif i < len(words) and not words[i].text.startswith("--"):
            value, why, place = words[i].text, words[i].why, word_place(words[i], lines)
            i += 1
            more = _further_values(words[i:])
        name = spelled.lstrip("-+").replace("-", "_")
        name = "config" if name == "c" and value.endswith(files) else name
        given = None if arguments.is_null_override(spelled, value) else value
        whole = Setting(name, Unknown(why) if why else given, name_place, place, more)
        for setting in arguments.nested(whole):
            found.pop(setting.name, None)
            found[setting.name] = setting
    return list(found.values()), incomplete


def _further_values(words: Sequence[Argument]) -> tuple[Scalar | Unknown, ...]:
    """Return the words up to the next option: the rest of a list if the option before them takes one."""
    found: list[Scalar | Unknown] = []
    for word in words:
        name, equals, _ = word.text.partition("=")
        if name.startswith("-") or (equals and _KEY.fullmatch(name)):
            break
        found.append(Unknown(word.why) if word.why else word.text)
    return tuple(found)


def _options_in(choices: Sequence[str]) -> Iterator[str]:
    """Yield the names of the options in texts of which one is given."""
    for word in " ".join(choices).split():
        name, equals, _ = word.partition("=")
        if name.startswith("--") or (equals and _KEY.fullmatch(name)):
            yield name.lstrip("-+").replace("-", "_")


def word_place(word: Argument, lines: SourceLines) -> Place:
    """Return the place of a word."""
    return lines.place(word.at, word.at + len(word.text))
