"""Regular expressions that are compiled when they are first used.

Compiling a pattern takes as long as importing a small module, and a start uses few of the patterns that the
modules it imports define.
"""

from __future__ import annotations

import re
from typing import Any, cast


class _Pattern:
    """Stands for a pattern; an attribute is asked of the compiled pattern, and kept."""

    def __init__(self, text: str, flags: int) -> None:
        self.pattern, self._flags = text, flags

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Pattern) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[str, int]:
        return self.pattern, self._flags

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # so that copying and pickling do not ask for the pattern's own text
        found = getattr(re.compile(self.pattern, self._flags), name)  # `re` keeps what it compiled
        setattr(self, name, found)
        return found


def pattern(text: str, flags: int = 0) -> re.Pattern[str]:
    """Return a pattern that behaves like that of `re.compile`; a mistake in it shows at its first use."""
    return cast("re.Pattern[str]", _Pattern(text, flags))
