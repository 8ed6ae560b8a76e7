"""Values of a followed script, made of known and unknown runs of characters, and scopes of variables."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import TypeAlias

from envcheck.core.patterns import pattern
from envcheck.core.records import NamedTuple
from envcheck.training_config.launch_scripts.structure_edits import Edit
from envcheck.training_config.launch_scripts.syntax import Text, Word

NAME = pattern(r"[A-Za-z_]\w*")
WHOLE_NUMBER = pattern(r"-?[0-9]{1,18}")
PRINTED = "(output)"
"""The name under which a scope keeps what a function prints, while its output is read: no variable has it."""

_MAX_QUOTED = 48
"""Characters of a substitution that a reason quotes."""


class Fragment(NamedTuple):
    """A run of characters of a value, at the offset `at`; it is unknown if `why` has a reason.

    `splits` marks an unknown fragment outside quotes, which may become several words. If the fragment is
    unknown because the script does not set a variable, `unset` is the name of that variable. If it is one of
    several texts, `choices` are these. An empty one with an `edit` changes the configuration before it.
    """

    text: str
    at: int
    why: str = ""
    splits: bool = False
    unset: str = ""
    choices: tuple[str, ...] = ()
    edit: Edit | None = None


Value: TypeAlias = tuple[Fragment, ...]
Variable: TypeAlias = "Value | list[Value] | None"
"""A value, the elements of an array, or None for a variable that is not set."""


class Argument(NamedTuple):
    """One word of a command line, at the offset where the author wrote its beginning.

    If the word is known only at run time, `why` gives the reason and `text` is the word as the script spells
    it. `many` marks a word that may become any number of words, including none; `choices` are the texts
    that it may have, if these are known.
    """

    text: str
    at: int
    why: str = ""
    many: bool = False
    choices: tuple[str, ...] = ()


def argument(value: Value) -> Argument:
    """Return a non-empty value as a word of a command line."""
    why = next((fragment.why for fragment in value if fragment.why), "")
    parts = [fragment for fragment in value if fragment.text]  # quotes begin with an empty one
    many = len(parts) == 1 and parts[0].splits
    choices = parts[0].choices if many else ()
    return Argument("".join(fragment.text for fragment in value), value[0].at, why, many, choices)


def known_text(value: Value) -> str | None:
    """Return the text of a value, or None if a part of it is unknown."""
    return None if any(fragment.why for fragment in value) else "".join(fragment.text for fragment in value)


def spelled(value: Value) -> str:
    """Return the text of a value, with its unknown parts as the script spells them."""
    return "".join(fragment.text for fragment in value)


def unknown(at: int, source: str, why: str, *, unset: str = "") -> Value:
    """Return a value that is known only at run time."""
    return (Fragment(source, at, why, splits=False, unset=unset),)


def unknown_words(name: str, at: int, why: str, choices: tuple[str, ...] = ()) -> Value:
    """Return the value of a variable that may be any number of words, or that has one of several texts."""
    return (Fragment(f"${name}", at, why, splits=True, choices=choices),)


def same_variable(one: Variable, other: Variable) -> bool:
    """Return whether two variables have the same text and the same reasons, wherever they were written."""
    return _comparable(one) == _comparable(other)


def _comparable(variable: Variable) -> object:
    if isinstance(variable, list):
        return [_comparable(element) for element in variable]
    if variable is None:
        return None
    text = "".join(fragment.text for fragment in variable)
    return text, [fragment.why for fragment in variable if fragment.why]


def first_value(variable: Variable) -> Value | None:
    """Return the value of a variable, or the first one of an array; None if it is empty or not set."""
    if isinstance(variable, list):
        return variable[0] if variable else None
    return variable or None


def base_name(path: str) -> str:
    """Return the name of a program without the path to it."""
    return path.rpartition("/")[2]


def shortened(source: str) -> str:
    """Return a substitution on one line, cut to the length that a reason quotes."""
    line = " ".join(source.split())
    return line if len(line) <= _MAX_QUOTED else f"{line[: _MAX_QUOTED - 1]}…"


def stripped(value: Value) -> Value:
    """Return a value without the blanks at both ends."""
    fragments = list(value)
    while fragments and not fragments[0].why and not fragments[0].text.lstrip():
        fragments.pop(0)
    if fragments and not fragments[0].why:
        first = fragments[0]
        text = first.text.lstrip()
        fragments[0] = first._replace(text=text, at=first.at + len(first.text) - len(text))
    while fragments and not fragments[-1].why and not fragments[-1].text.rstrip():
        fragments.pop()
    if fragments and not fragments[-1].why:
        fragments[-1] = fragments[-1]._replace(text=fragments[-1].text.rstrip())
    return tuple(fragments)


def joined_by_spaces(values: list[Value], at: int | None = None) -> Value:
    """Return values as one, separated by spaces with the offset `at`, or with that of the next value."""
    return tuple(_with_spaces(values, at))


def _with_spaces(values: list[Value], at: int | None) -> Iterator[Fragment]:
    for number, value in enumerate(values):
        if number:
            yield Fragment(" ", value[0].at if at is None else at)
        yield from value


def echoed(fields: list[Value]) -> Value:
    """Return what `echo` prints for its words."""
    return joined_by_spaces(
        [field for field in fields[1:] if known_text(field) not in ("-n", "-e", "-ne", "-en")]
    )


def matches_pattern(text: str, pattern_text: str, pattern: Word) -> bool:
    """Return whether a text matches a pattern, the quoted parts of which are literal."""
    literal = any(piece.quoted for piece in pattern.pieces) and not any(
        sign in piece.text
        for piece in pattern.pieces
        if isinstance(piece, Text) and not piece.quoted
        for sign in "*?["
    )
    return text == pattern_text if literal else fnmatchcase(text, pattern_text)


class Scope:
    """Variables on top of those of an outer scope.

    `arguments` are those of the function being followed, None in the script itself. `ended_by` is "exit" or
    "return" once such a command ended the scope. `may_set` says which file may have set a variable that the
    script does not set. `certain` says that its commands run whenever the script does.
    """

    def __init__(self, outer: Scope | None = None, *, certain: bool = False) -> None:
        """Begin without variables."""
        self.outer = outer
        self.certain = certain or outer is None
        self.variables: dict[str, Variable] = {}
        self.arguments: list[Value] | None = outer.arguments if outer else None
        self.may_set: str = outer.may_set if outer else ""
        self.ended_by = ""

    def get(self, name: str) -> Variable:
        """Return a variable of this scope or of one around it."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name]
            scope = scope.outer
        return None

    def names(self) -> set[str]:
        """Return the name of every variable that is or was set."""
        found: set[str] = set()
        scope: Scope | None = self
        while scope is not None:
            found |= scope.variables.keys()
            scope = scope.outer
        return found

    def forget_elements(self, name: str) -> int:
        """Unset the variables of an array's elements, `NAME[key]`; return how many names were compared."""
        names = self.names()
        for known in names:
            if known.startswith(f"{name}["):
                self.variables[known] = None
        return len(names)

    def set_elsewhere(self, by: str, at: int) -> int:
        """Note that something which cannot be read may set any variable; return how many names were changed.

        `by` says what it is: `may be set by FILE, …`. A job sets those of Slurm again, and files of settings
        leave the current folder as it is.
        """
        self.may_set = by
        known = [name for name in self.names() if not name.startswith("SLURM_") and name != "PWD"]
        self.variables.update({name: unknown_words(name, at, f"${name} {by}") for name in known})
        return len(known)

    def absorb(self, inner: Scope) -> None:
        """Take over what an inner scope set, and how it ended."""
        self.variables.update(inner.variables)
        self.may_set, self.arguments, self.ended_by = inner.may_set, inner.arguments, inner.ended_by
