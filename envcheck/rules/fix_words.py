"""Values and changes as a person would write them, for every report and page."""

from __future__ import annotations

from envcheck.core.facts import Value, package_name
from envcheck.core.i18n import ENGLISH, Language
from envcheck.core.rules import Fix, NoFix, uninstalls


def value_text(value: Value) -> str:
    """Return a value as a person would write it: `true`, `a, b`."""
    if isinstance(value, bool):
        return str(value).lower()
    return ", ".join(value) if isinstance(value, tuple) else str(value)


def fix_text(fix: Fix | NoFix, lang: Language = ENGLISH) -> str:
    """Return what a fix changes: `deepspeed >=0.19.3`, `train.use_reentrant = true`, `uninstall apex`."""
    parts = []
    for key, value in fix.set:
        name = package_name(key)
        if uninstalls(key, value):
            parts.append(lang.say("uninstall {}", name))
        elif name != key or key.endswith(".version"):
            parts.append(f"{name} {value_text(value)}")
        else:
            parts.append(f"{key} = {value_text(value)}")
    return lang.say(" and ").join(parts)
