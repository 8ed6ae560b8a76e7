"""JSON as people write it: comments (`//`, `#`, `/* */`) and commas at the end are noted as liberties."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from envcheck.core.errors import InputError, Place
from envcheck.training_config.document import Document, Said, Section, Setting
from envcheck.training_config.readers import ConfigReader, Lines

_TOKEN = re.compile(
    r"""(?P<blank>[ \t\r\n\ufeff]+)
    | (?P<comment>//[^\n]*|\#[^\n]*|/\*.*?\*/)
    | (?P<text>"(?:[^"\\\x00-\x1f]++|\\.)*+")
    | (?P<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![0-9A-Za-z_.]))
    | (?P<word>-?[A-Za-z_$][A-Za-z0-9_$.-]*)
    | (?P<sign>[{}\[\],:])
    | (?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = {"true": True, "false": False, "null": None}
_FLOATS = ("NaN", "Infinity", "-Infinity")  # Python's json, and so DeepSpeed's and transformers', reads them
_DEEPEST = 64


def recognises(text: str) -> bool:
    """Whether the first thing in it, after comments, is an object."""
    for found in _TOKEN.finditer(text):
        if found.lastgroup not in ("blank", "comment"):
            return found[0] == "{"
    return False


def read(text: str, file: str) -> tuple[Document, ...]:
    """The settings of a JSON object.

    Raises:
        InputError: with line and column.
    """
    parser = _JsonParser(text, file)
    return (parser.document(),)


class _Token(NamedTuple):
    kind: str  # text, number, word, sign, other, end
    text: str
    start: int
    end: int


class _JsonParser:
    def __init__(self, text: str, file: str) -> None:
        self.lines, self.file = Lines(text, file), file
        self.liberties: dict[str, Place] = {}
        self.twice: list[tuple[str, Place, Place]] = []
        self.tokens = self._tokens(text)
        self.token = next(self.tokens)

    def document(self) -> Document:
        value, settings = self._object("", 0)
        del value
        if self.token.kind != "end":
            raise self._wrong("the end of the file")
        return Document(
            self.file,
            "json",
            tuple(settings),
            twice=tuple(self.twice),
            liberties=tuple(self.liberties.items()),
        )

    def _tokens(self, text: str) -> Iterator[_Token]:
        for found in _TOKEN.finditer(text):
            kind = str(found.lastgroup)
            if kind == "comment":
                self.liberties.setdefault("a comment", self.lines.place(*found.span()))
            elif kind != "blank":
                yield _Token(kind, found[0], *found.span())
        yield _Token("end", "", len(text), len(text))

    def _next(self) -> _Token:
        token, self.token = self.token, next(self.tokens, self.token)
        return token

    def _wrong(self, expected: str) -> InputError:
        place = self._place(self.token)
        if self.token.kind == "end":
            return InputError(place, f"not JSON: expected {expected}, found the end of the file")
        if self.token.text in ("True", "False", "None"):
            return InputError(
                place, f"not JSON: {self.token.text} is Python's; JSON writes {_PYTHON[self.token.text]}"
            )
        if self.token.kind == "other":
            found = {'"': "a text that does not end on its line", "/": "a comment without an end"}
            return InputError(
                place,
                f"not JSON: expected {expected}, found {found.get(self.token.text, repr(self.token.text))}",
            )
        return InputError(place, f"not JSON: expected {expected}, found {_short(self.token.text)}")

    def _place(self, token: _Token) -> Place:
        return self.lines.place(token.start, token.end)

    def _object(self, path: str, depth: int) -> tuple[Section, list[Setting]]:
        """The settings inside an object, in order, each section before what it holds."""
        if depth > _DEEPEST:
            raise InputError(self._place(self.token), f"not JSON: nested deeper than {_DEEPEST}")
        self._take("{", "an object")
        found: dict[str, list[Setting]] = {}
        while self.token.text != "}" or self.token.kind != "sign":
            if self.token.kind != "text":
                raise self._wrong('a name in double quotes or "}"')
            key = self._next()
            spelled = self._text(key)
            name = f"{path}{json.dumps(spelled) if '.' in spelled or not spelled else spelled}"
            self._take(":", '":"')
            start = self.token
            value, inner = self._value(f"{name}.", depth)
            place = self._place(start)
            if spelled in found:
                self.twice.append((name, found[spelled][0].named, self._place(key)))
                del found[spelled]
            found[spelled] = [Setting(name, value, self._place(key), place), *inner]
            if not self._comma("}"):
                break
        self._take("}", '"," or "}"')
        return Section(tuple(found)), [setting for group in found.values() for setting in group]

    def _value(self, path: str, depth: int) -> tuple[Said, list[Setting]]:
        token = self.token
        if token.kind == "sign" and token.text == "{":
            return self._object(path, depth + 1)
        if token.kind == "sign" and token.text == "[":
            return self._list(path, depth + 1)
        if token.kind == "text":
            return self._text(self._next()), []
        if token.kind == "number":
            return self._number(self._next()), []
        if token.kind == "word" and token.text in _WORDS:
            return _WORDS[self._next().text], []
        if token.kind == "word" and token.text in _FLOATS:
            return float(self._next().text.replace("Infinity", "inf")), []
        raise self._wrong("a value")

    def _list(self, path: str, depth: int) -> tuple[Said, list[Setting]]:
        if depth > _DEEPEST:
            raise InputError(self._place(self.token), f"not JSON: nested deeper than {_DEEPEST}")
        self._take("[", "a list")
        values: list[Any] = []
        inside: list[Setting] = []
        while self.token.text != "]" or self.token.kind != "sign":
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
        """Whether another item may follow."""
        if self.token.kind != "sign" or self.token.text != ",":
            return False
        comma = self._next()
        if self.token.kind == "sign" and self.token.text == closing:
            self.liberties.setdefault("a comma before the closing bracket", self._place(comma))
        return True

    def _take(self, sign: str, expected: str) -> None:
        if self.token.kind != "sign" or self.token.text != sign:
            raise self._wrong(expected)
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


_PYTHON = {"True": "true", "False": "false", "None": "null"}


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "…")  # noqa: PLR2004 - a line


def loads(text: str, file: str) -> Any:
    """The value of a JSON text with these liberties.

    Raises:
        InputError: with line and column.
    """
    out, comma = list(text), -1
    for found in _TOKEN.finditer(text):
        if found.lastgroup == "comment":
            out[found.start() : found.end()] = re.sub(r"[^\n]", " ", found[0])
        elif found.lastgroup != "blank":
            if found[0] in ("}", "]") and comma >= 0:
                out[comma] = " "
            comma = found.start() if found[0] == "," else -1
    try:
        return json.loads("".join(out))
    except json.JSONDecodeError as error:
        raise InputError(f"{file}:{error.lineno}:{error.colno}", f"not JSON: {error.msg.lower()}") from None
    except (RecursionError, ValueError) as error:
        why = "nested too deeply" if isinstance(error, RecursionError) else "a number of too many digits"
        raise InputError(file, f"not JSON: {why}") from None


READER = ConfigReader("JSON", 0, recognises, read)
