"""Read the user's settings: those of this folder, and the language of the reports.

`envcheck doctor` imports this module, so whatever only some commands need is imported inside functions.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from envcheck.core import i18n
from envcheck.core.errors import InputError
from envcheck.core.suggestions import suggestion
from envcheck.host.files import name_exists, read_file
from envcheck.host.machine import Host
from envcheck.host.package_files import source_texts

if TYPE_CHECKING:
    from envcheck.commands.examine import ExamineRequest
    from envcheck.policy.decision import Settings


def read_settings() -> Settings | None:
    """Read the settings of this folder: envcheck.toml, else `[tool.envcheck]` in pyproject.toml.

    Raises:
        InputError: the file cannot be read, or is not TOML.
        SettingsError: it has mistakes; names all of them.
    """
    return _settings_in("envcheck.toml") or _settings_in("pyproject.toml", required_text="envcheck")


def with_settings(request: ExamineRequest, settings: Settings | None) -> ExamineRequest:
    """Return the request; if it names no target or training, take those of the settings."""
    if settings is None:
        return request
    return request._replace(
        target=request.target or settings.target or None, train=request.train or settings.train
    )


def _settings_in(file: str, required_text: str = "") -> Settings | None:
    """Read one file's settings, or return None; a file without `required_text` is not parsed.

    Few pyproject.toml files mention envcheck, and loading a parser takes some milliseconds.
    """
    if not name_exists(Path(file)):  # a folder or a broken link of this name is an error, not skipped
        return None
    text = read_file(Path(file)).decode("utf-8", "replace")
    if required_text not in text:
        return None
    from envcheck.policy import settings

    return settings.read_settings(file, text)


def choose_language(option: str | None, host: Host) -> i18n.Language:
    """Return the language of `--lang`, else of ENVCHECK_LANG, else of the locale; English reads no file.

    Raises:
        InputError: `--lang` or ENVCHECK_LANG names a language that is not available.
    """
    name, named_by = i18n.choose_language(option, host.environ)
    if name == i18n.ENGLISH.name:
        return i18n.ENGLISH
    files = source_texts("compat/lang", "", f"{name}.") if name.isalpha() else {}
    for file, text in files.items():
        return i18n.parse_language(name, json.loads(text) if file.endswith(".json") else _parse(text, file))
    if not named_by:
        return i18n.ENGLISH
    available = {file.partition(".")[0] for file in source_texts("compat/lang", "")}
    raise InputError(named_by, f"no such language{suggestion(name, sorted(available | {i18n.ENGLISH.name}))}")


def _parse(text: str, file: str) -> Any:
    from envcheck.core import parsing

    return parsing.parse_toml(text, file)
