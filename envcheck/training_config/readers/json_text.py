"""JSON with comments (`//`, `#`, `/* */`) and trailing commas, which are accepted and noted as deviations."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from envcheck.core.errors import InputError, Place
from envcheck.core.parsing import DEEPEST, TOO_DEEP, check_json, parse_json
from envcheck.core.patterns import pattern
from envcheck.core.records import NamedTuple
from envcheck.training_config.document import Document, Section, Setting, SettingValue
from envcheck.training_config.readers import ConfigReader
from envcheck.training_config.source_lines import SourceLines

_TOKEN = pattern(
    r"""(?P<blank>[ \t\r\n\ufeff]+)
    | (?P<comment>//[^\n]*|\#[^\n]*|/\*.*?\*/)
    | (?P<text>"(?:[^"\\\x00-\x1f]++|\\.)*+")
    | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_.]))
    | (?P<word>-?[A-Za-z_$][A-Za-z0-9_$.-]*)
    | (?P<sign>[{}\[\],:])
    | (?P<other>/\*.*|[0-9]++|.)""",  # a whole run, since character by character would take quadratic time
    re.VERBOSE | re.DOTALL,
)
_LITERALS = {"true": True, "false": False, "null": None}
_FLOATS = ("NaN", "Infinity", "-Infinity")  # accepted by Python's json, by DeepSpeed and by transformers


def recognises(text: str) -> bool:
    """Return whether the text begins, after comments, with an object."""
    for found in _TOKEN.finditer(text):
        if found.lastgroup not in ("blank", "comment"):
            return found[0] == "{"
    return False


def read(text: str, file: str) -> tuple[Document, ...]:
    """Return the settings of a JSON object.

    Raises:
        InputError: the text is malformed; with line and column.
    """
    return (_JsonParser(text, file).document(),)


class _Token(NamedTuple):
    kind: str  # text, number, word, sign, other, end
    text: str
    start: int
    end: int


class _JsonParser:
    """A recursive-descent parser; `token` is the next one. Depth is limited by `DEEPEST`."""

    def __init__(self, text: str, file: str) -> None:
        self.lines, self.file = SourceLines(text, file), file
        self.deviations: dict[str, Place] = {}
        self.repeated: list[tuple[str, Place, Place]] = []
        self.tokens = self._tokens(text)
        self.token = next(self.tokens)

    def document(self) -> Document:
        _, settings = self._object("", 0)
        if self.token.kind != "end":
            raise self._error("the end of the file")
        return Document(
            self.file,
            "json",
            tuple(settings),
            repeated=tuple(self.repeated),
            deviations=tuple(self.deviations.items()),
        )

    def _tokens(self, text: str) -> Iterator[_Token]:
        for found in _TOKEN.finditer(text):
            kind = str(found.lastgroup)
            if kind == "comment":
                self.deviations.setdefault("a comment", self.lines.place(*found.span()))
            elif kind != "blank":
                yield _Token(kind, found[0], *found.span())
        yield _Token("end", "", len(text), len(text))

    def _next(self) -> _Token:
        token, self.token = self.token, next(self.tokens, self.token)
        return token

    def _error(self, expected: str) -> InputError:
        """Return the error for a token that is not what was expected."""
        place, text = self._place(self.token), self.token.text
        if text in _PYTHON_LITERALS:
            return InputError(place, f"not JSON: {text} is Python's; JSON writes {_PYTHON_LITERALS[text]}")
        if self.token.kind == "end":
            found = "the end of the file"
        elif self.token.kind == "other":
            found = _UNTERMINATED.get(text[:1], repr(text[:1]))
        else:
            found = _short(text)
        return InputError(place, f"not JSON: expected {expected}, found {found}")

    def _place(self, token: _Token) -> Place:
        return self.lines.place(token.start, token.end)

    def _object(self, path: str, depth: int) -> tuple[Section, list[Setting]]:
        """Return the names and the settings of an object, each section before the settings inside it."""
        if depth > DEEPEST:
            raise InputError(self._place(self.token), f"not JSON: {TOO_DEEP}")
        self._take("{", "an object")
        found: dict[str, list[Setting]] = {}
        while not self._at("}"):
            if self.token.kind != "text":
                raise self._error('a name in double quotes or "}"')
            key = self._next()
            spelled = self._text(key)
            name = f"{path}{json.dumps(spelled) if '.' in spelled or not spelled else spelled}"
            self._take(":", '":"')
            start = self.token
            value, inner = self._value(f"{name}.", depth)
            if spelled in found:
                self.repeated.append((name, found.pop(spelled)[0].name_place, self._place(key)))
            found[spelled] = [Setting(name, value, self._place(key), self._place(start)), *inner]
            if not self._comma("}"):
                break
        self._take("}", '"," or "}"')
        return Section(tuple(found)), [setting for group in found.values() for setting in group]

    def _value(self, path: str, depth: int) -> tuple[SettingValue, list[Setting]]:
        """Return a value and the settings inside it; `path` is the prefix of their names."""
        token = self.token
        if self._at("{"):
            return self._object(path, depth + 1)
        if self._at("["):
            return self._list(path, depth + 1)
        if token.kind == "text":
            return self._text(self._next()), []
        if token.kind == "number":
            return self._number(self._next()), []
        if token.kind == "word" and token.text in _LITERALS:
            return _LITERALS[self._next().text], []
        if token.kind == "word" and token.text in _FLOATS:
            return float(self._next().text.replace("Infinity", "inf")), []
        raise self._error("a value")

    def _list(self, path: str, depth: int) -> tuple[SettingValue, list[Setting]]:
        """Return a list and the settings inside the objects in it."""
        if depth > DEEPEST:
            raise InputError(self._place(self.token), f"not JSON: {TOO_DEEP}")
        self._take("[", "a list")
        values: list[Any] = []
        inside: list[Setting] = []
        while not self._at("]"):
            start, name = self.token, f"{path}{len(values)}"
            value, inner = self._value(f"{name}.", depth)
            if isinstance(value, Section):
                place = self._place(start)
                inside += [Setting(name, value, place, place), *inner]
            values.append(value)
            if not self._comma("]"):
                break
        self._take("]", '"," or "]"')
        return tuple(values), inside

    def _comma(self, closing: str) -> bool:
        """Read a comma and return whether there was one; record a comma before the closing bracket."""
        if not self._at(","):
            return False
        comma = self._next()
        if self._at(closing):
            self.deviations.setdefault("a comma before the closing bracket", self._place(comma))
        return True

    def _at(self, sign: str) -> bool:
        """Return whether the next token is this sign."""
        return self.token.kind == "sign" and self.token.text == sign

    def _take(self, sign: str, expected: str) -> None:
        if not self._at(sign):
            raise self._error(expected)
        self._next()

    def _text(self, token: _Token) -> str:
        try:
            return str(json.loads(token.text))
        except json.JSONDecodeError as error:
            raise InputError(self._place(token), f"not JSON: {error.msg.lower()}") from None

    def _number(self, token: _Token) -> int | float:
        try:
            number: int | float = json.loads(token.text)
        except ValueError:
            raise InputError(self._place(token), f"a number of {len(token.text)} digits") from None
        return number


_PYTHON_LITERALS = {"True": "true", "False": "false", "None": "null"}
_UNTERMINATED = {'"': "a text that does not end on its line", "/": "a comment without an end"}


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "…")  # noqa: PLR2004 - a line


def loads(text: str, file: str) -> Any:
    """Return the value of a JSON text with comments and trailing commas.

    Raises:
        InputError: the text is malformed; with line and column where there is one.
    """
    check_json(text, file)
    out, comma = list(text), -1
    for found in _TOKEN.finditer(text):
        if found.lastgroup == "comment":
            out[found.start() : found.end()] = re.sub(r"[^\n]", " ", found[0])
        elif found.lastgroup != "blank":
            if found[0] in ("}", "]") and comma >= 0:
                out[comma] = " "
            comma = found.start() if found[0] == "," else -1
    return parse_json("".join(out), file)


READER = ConfigReader("JSON", 0, recognises, read)
