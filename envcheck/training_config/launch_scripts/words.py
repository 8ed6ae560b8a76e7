"""The grammar of shell words: quoting, expansions, substitutions, arrays, here-documents.

`WordParser` is the lower half of the shell parser; `parser` adds the commands. A method that reads something
moves `i` past it. Parsing takes time linear in the length of the text.
"""

from __future__ import annotations

from bisect import bisect_right

from envcheck.core.patterns import pattern
from envcheck.training_config.launch_scripts.syntax import (
    Expansion,
    NotAScriptError,
    Piece,
    Sequence,
    Substitution,
    Text,
    Word,
)

MAX_DEPTH = 60
"""How deep compound commands and substitutions may nest; scripts written by people stay far below it."""

BLANK = pattern(r"(?:[ \t\r]|\\\r?\n)+")
_CONTINUATION_WITH_SPACE = pattern(r"\\[ \t]+\r?(?:\n|\Z)")
_PLAIN = pattern(r"[^\s;&|<>()$`\"'\\]+")
_IN_DOUBLE_QUOTES = pattern(r"[^$`\"\\]+")
_IN_DOCUMENT = pattern(r"[^$`\\]+")
_IN_BRACES = pattern(r"[^$`\"'\\}]+")
_EXPANSION = pattern(r"(?:[A-Za-z_]\w*|[0-9@*#?$!-])")
_BRACED_NAME = pattern(r"(?:[A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[[^\]\s]*\])?")
_DEFAULT_OPERATOR = pattern(r":?[-=+?]")
_ASSIGNS_ARRAY = pattern(r"[A-Za-z_]\w*\+?=")
_OLD_ARITHMETIC = pattern(r"\$\[([^\[\]\n]*)\]")  # bash still reads `$[ … ]` as `$(( … ))`
_PARENTHESES = pattern(r"[()\n]")
PLACEHOLDER = pattern(r"<[A-Za-z_][\w-]*>(?=[\s;]|\Z)")  # `<NAME>`, for the user of a template to fill in
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}
_MAX_ARITHMETIC = 2000  # characters of `((…))`


class _HereDocument:
    """A here-document whose text begins on the next line."""

    def __init__(self, delimiter: str, index: int, *, quoted: bool, strips_tabs: bool) -> None:
        self.delimiter, self.index, self.quoted, self.strips_tabs = delimiter, index, quoted, strips_tabs


class WordParser:
    """Position in a text, and the grammar of words."""

    def __init__(self, text: str, origins: tuple[tuple[int, int], ...], depth: int = 0) -> None:
        """Start at the beginning of the text; `origins` maps offsets in it to those in the author's text."""
        self.text = text
        self.i = 0
        self.depth = depth
        self.offsets = [offset for offset, _ in origins]
        self.origins = [origin for _, origin in origins]
        self.documents: list[Word] = []
        self.pending: list[_HereDocument] = []
        self.notes: list[tuple[int, str]] = []

    def enclosed(self, end: str) -> Sequence:
        """Return the commands up to `end`, and step over it; the command parser implements this."""
        raise NotImplementedError

    # --- position and errors ------------------------------------------------------------------------

    def at(self, i: int) -> int:
        """Return the offset in the author's text of an offset in this text."""
        k = bisect_right(self.offsets, i) - 1
        return self.origins[k] + i - self.offsets[k]

    def error(self, i: int, problem: str) -> NotAScriptError:
        """Return the error for a problem at an offset."""
        return NotAScriptError(self.at(min(i, len(self.text))), f"not a shell script: {problem}")

    def descend(self) -> None:
        """Count one more level of nesting; the caller decrements `depth` when it leaves the level."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.error(self.i, "nested too deeply")

    # --- between words ------------------------------------------------------------------------------

    def skip_blank(self) -> None:
        """Step over spaces, continuations and a comment."""
        text = self.text
        found = BLANK.match(text, self.i)
        if found:
            self.i = found.end()
        if text.startswith("#", self.i):
            end = text.find("\n", self.i)
            self.i = len(text) if end < 0 else end
        elif text.startswith("\\", self.i) and _CONTINUATION_WITH_SPACE.match(text, self.i):
            note = (
                "a space follows the backslash, so the command ends here and the next line is a new command"
            )
            self.notes.append((self.at(self.i), note))

    def skip_lines(self) -> None:
        """Step over spaces, comments and newlines."""
        self.skip_blank()
        while self.text.startswith("\n", self.i):
            self._newline()
            self.skip_blank()

    def _newline(self) -> None:
        """Step over a newline and read the here-documents that begin after it."""
        self.i += 1
        pending, self.pending = self.pending, []
        for document in pending:
            self.documents[document.index] = self._document(document)

    def _document(self, document: _HereDocument) -> Word:
        """Return a here-document as a word, from this line to its delimiter."""
        start = self.i
        body = self._document_body(document)
        origins = tuple((offset - start, self.at(offset)) for offset in self._discontinuities(start))
        if document.strips_tabs:
            body, origins = self._without_tabs(body, start)
        if document.quoted:
            return Word((Text(body, self.at(start), quoted=True),), self.at(start))
        inner = type(self)(body, origins, self.depth)
        return Word(tuple(inner.document_pieces()), self.at(start))

    def _without_tabs(self, body: str, start: int) -> tuple[str, tuple[tuple[int, int], ...]]:
        """Return the text of `<<-EOF` without the tabs before its lines, with the origin of each line."""
        lines: list[str] = []
        origins: list[tuple[int, int]] = []
        length, at = 0, start
        for line in body.splitlines(keepends=True):
            kept = line.lstrip("\t")
            origins.append((length, self.at(at + len(line) - len(kept))))
            lines.append(kept)
            length, at = length + len(kept), at + len(line)
        return "".join(lines), tuple(origins) or ((0, self.at(start)),)

    def _document_body(self, document: _HereDocument) -> str:
        """Return the lines up to the delimiter, and step over it; without a delimiter return the rest."""
        start, text = self.i, self.text
        while self.i < len(text):
            begin = self.i
            end = text.find("\n", begin)
            end = len(text) if end < 0 else end
            line = text[begin:end].rstrip("\r")
            self.i = min(end + 1, len(text))
            if (line.lstrip("\t") if document.strips_tabs else line) == document.delimiter:
                return text[start:begin]
        return text[start:]

    def _discontinuities(self, start: int) -> list[int]:
        """Return `start` and the later offsets at which the author's text is not contiguous."""
        return [start, *self.offsets[bisect_right(self.offsets, start) :]]

    def expect_document(self, delimiter: Word, *, strips_tabs: bool) -> int:
        """Register a here-document that begins on the next line, and return its index."""
        spelled = "".join(
            piece.text if isinstance(piece, Text) else piece.source for piece in delimiter.pieces
        )
        quoted = any(piece.quoted for piece in delimiter.pieces)
        index = len(self.documents)
        self.documents.append(Word((), delimiter.at))
        self.pending.append(_HereDocument(spelled, index, quoted=quoted, strips_tabs=strips_tabs))
        return index

    def document_pieces(self) -> list[Piece]:
        """Return the whole text as the pieces of a here-document."""
        pieces: list[Piece] = []
        while self.i < len(self.text):
            found = _IN_DOCUMENT.match(self.text, self.i)
            if found:
                pieces.append(Text(found.group(), self.at(self.i), quoted=True))
                self.i = found.end()
            else:
                self._special_in_quotes(pieces)
        return pieces

    # --- one word -----------------------------------------------------------------------------------

    def peek(self) -> str:
        """Return the unquoted text at this position without reading it."""
        found = _PLAIN.match(self.text, self.i)
        return found.group() if found else ""

    def at_process_substitution(self) -> bool:
        """Return whether `<(…)` or `>(…)` begins here."""
        return self.text.startswith(("<(", ">("), self.i)

    def word(self) -> Word:
        """Read one word.

        Raises:
            NotAScriptError: no word begins here, or a quote or bracket in it is not closed.
        """
        start, text = self.i, self.text
        pieces: list[Piece] = []
        while self.i < len(text):
            found = _PLAIN.match(text, self.i)
            if not found:
                if not self._special(pieces):
                    break
                continue
            pieces.append(Text(found.group(), self.at(self.i), quoted=False))
            self.i = found.end()
            if text.startswith("(", self.i) and len(pieces) == 1 and _ASSIGNS_ARRAY.fullmatch(found.group()):
                return Word(tuple(pieces), self.at(start), self._array())
        if self.i == start:
            what = repr(text[start]) if start < len(text) else "end of the file"
            raise self.error(start, f"unexpected {what}")
        return Word(tuple(pieces), self.at(start))

    def _special(self, pieces: list[Piece]) -> bool:
        """Read a quoted or expanded piece; return False if none begins here."""
        sign = self.text[self.i]
        if sign == "\\":
            self._escape(pieces)
        elif sign == "'":
            pieces.append(self._single_quotes())
        elif sign == '"':
            self._double_quotes(pieces)
        elif sign == "$":
            self._dollar(pieces, quoted=False)
        elif sign == "`":
            pieces.append(self._backquotes(quoted=False))
        elif found := PLACEHOLDER.match(self.text, self.i):
            pieces.append(Expansion("", self.at(self.i), quoted=False, source=found.group(), operator="<>"))
            self.i = found.end()
        elif self.at_process_substitution():
            pieces.append(self._substitution("file", quoted=False))
        else:
            return False
        return True

    def _array(self) -> tuple[Word, ...]:
        """Read the elements of `( … )` after `NAME=`."""
        start = self.i
        self.i += 1
        self.descend()
        elements = []
        self.skip_lines()
        while not self.text.startswith(")", self.i):
            if self.i >= len(self.text):
                raise self.error(start, "')' is missing")
            elements.append(self.word())
            self.skip_lines()
        self.i += 1
        self.depth -= 1
        return tuple(elements)

    # --- quotes -------------------------------------------------------------------------------------

    def _escape(self, pieces: list[Piece]) -> None:
        """Read a backslash outside quotes and the character that it escapes."""
        continuation = BLANK.match(self.text, self.i)
        if continuation and self.text[self.i] == "\\":  # within a word
            self.i += 3 if self.text.startswith("\\\r\n", self.i) else 2
            return
        if self.i + 1 < len(self.text):
            pieces.append(Text(self.text[self.i + 1], self.at(self.i), quoted=True))
        self.i += 2

    def _single_quotes(self) -> Text:
        start = self.i + 1
        end = self.text.find("'", start)
        if end < 0:
            raise self.error(self.i, "the quote is not closed")
        self.i = end + 1
        return Text(self.text[start:end], self.at(start), quoted=True)

    def _ansi_quotes(self) -> Text:
        """Read `$'…'`."""
        start = self.i
        self.i += 2
        characters = []
        while self.i < len(self.text) and self.text[self.i] != "'":
            char = self.text[self.i]
            if char == "\\" and self.i + 1 < len(self.text):
                self.i += 1
                char = _ESCAPES.get(self.text[self.i], self.text[self.i])
            characters.append(char)
            self.i += 1
        if self.i >= len(self.text):
            raise self.error(start, "the quote is not closed")
        self.i += 1
        return Text("".join(characters), self.at(start + 2), quoted=True)

    def _double_quotes(self, pieces: list[Piece]) -> None:
        start, text = self.i, self.text
        self.i += 1
        pieces.append(Text("", self.at(self.i), quoted=True))  # so that "" gives a word
        while self.i < len(text):
            found = _IN_DOUBLE_QUOTES.match(text, self.i)
            if found:
                pieces.append(Text(found.group(), self.at(self.i), quoted=True))
                self.i = found.end()
            elif text[self.i] == '"':
                self.i += 1
                return
            else:
                self._special_in_quotes(pieces)
        raise self.error(start, "the quote is not closed")

    def _special_in_quotes(self, pieces: list[Piece]) -> None:
        """Read a backslash, `$` or backquote between double quotes or in a here-document."""
        text, i = self.text, self.i
        if text[i] == "$":
            self._dollar(pieces, quoted=True)
        elif text[i] == "`":
            pieces.append(self._backquotes(quoted=True))
        elif text.startswith(("\\\n", "\\\r\n"), i):
            self.i += 3 if text.startswith("\\\r", i) else 2
        elif text[i + 1 : i + 2] in ("$", "`", '"', "\\"):
            pieces.append(Text(text[i + 1], self.at(i), quoted=True))
            self.i += 2
        else:
            pieces.append(Text("\\", self.at(i), quoted=True))
            self.i += 1

    # --- expansions ---------------------------------------------------------------------------------

    def _dollar(self, pieces: list[Piece], *, quoted: bool) -> None:
        """Read a `$` and the expansion that it begins."""
        text, start = self.text, self.i
        if text.startswith("${", start):
            pieces.append(self._braced(quoted=quoted))
        elif text.startswith("$(", start):
            pieces.append(self._substitution("command", quoted=quoted))
        elif found := _OLD_ARITHMETIC.match(text, start):
            self.i = found.end()
            pieces.append(Substitution("sum", found.group(), found.group(1), self.at(start), quoted))
        elif text.startswith("$'", start) and not quoted:
            pieces.append(self._ansi_quotes())
        elif found := _EXPANSION.match(text, start + 1):
            self.i = found.end()
            pieces.append(Expansion(found.group(), self.at(start), quoted, text[start : self.i]))
        else:
            self.i += 1
            if quoted or not text.startswith('"', self.i):
                pieces.append(Text("$", self.at(start), quoted=quoted))

    def _braced(self, *, quoted: bool) -> Expansion:
        """Read `${…}`."""
        start = self.i
        self.descend()
        self.i += 2
        name, operator = self._braced_name()
        operand: list[Piece] = []
        while not self.text.startswith("}", self.i):
            if self.i >= len(self.text):
                raise self.error(start, "'}' is missing")
            self._operand_piece(operand, quoted=quoted)
        self.i += 1
        self.depth -= 1
        return Expansion(name, self.at(start), quoted, self.text[start : self.i], operator, tuple(operand))

    def _braced_name(self) -> tuple[str, str]:
        """Read the name and the operator at the beginning of `${…}`; `${#NAME}` has the operator `#`."""
        text = self.text
        length = text.startswith("#", self.i) and not text.startswith("#}", self.i)
        self.i += length
        found = _BRACED_NAME.match(text, self.i)
        name = found.group() if found else ""
        self.i = found.end() if found else self.i
        if length or text.startswith("}", self.i):
            return name, "#" if length else ""
        operator = _DEFAULT_OPERATOR.match(text, self.i)
        if not operator or not found:
            return name, "other"
        self.i = operator.end()
        return name, operator.group()

    def _operand_piece(self, operand: list[Piece], *, quoted: bool) -> None:
        """Read one piece of the word after the operator of `${…}`."""
        text = self.text
        plain = _IN_BRACES.match(text, self.i)
        if plain:
            operand.append(Text(plain.group(), self.at(self.i), quoted=quoted))
            self.i = plain.end()
        elif text[self.i] == "'" and not quoted:
            operand.append(self._single_quotes())
        elif text[self.i] == "'":
            operand.append(Text("'", self.at(self.i), quoted=True))
            self.i += 1
        elif text[self.i] == '"':
            self._double_quotes(operand)
        else:
            self._special_in_quotes(operand)

    def _substitution(self, kind: str, *, quoted: bool) -> Substitution:
        """Read `$(…)`, `$((…))` or `<(…)`; the commands inside are parsed only to find the end."""
        start = self.i
        self.i += 2
        if kind == "command" and self.text.startswith("(", self.i):
            self.i = start + 1
            arithmetic = self.arithmetic_text()
            if arithmetic is not None:
                return Substitution("sum", self.text[start : self.i], arithmetic, self.at(start), quoted)
            self.i = start + 2
        pending, self.pending = self.pending, []
        self.enclosed(")")
        self.pending = pending
        source = self.text[start : self.i]
        return Substitution(kind, source, source[2:-1], self.at(start), quoted)

    def arithmetic_text(self) -> str | None:
        """Read `((…))` and return the text inside; return None if it does not end on its line."""
        depth, last_close = 0, -1
        for found in _PARENTHESES.finditer(self.text, self.i, self.i + _MAX_ARITHMETIC):
            if found.group() == "\n":
                break
            depth += 1 if found.group() == "(" else -1
            if depth == 0:
                if found.start() != last_close + 1:
                    break
                inner, self.i = self.text[self.i + 2 : last_close], found.end()
                return inner
            last_close = found.start() if found.group() == ")" else -1
        return None

    def _backquotes(self, *, quoted: bool) -> Substitution:
        start = self.i
        end = start + 1
        while end < len(self.text) and self.text[end] != "`":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise self.error(start, "the backquote is not closed")
        self.i = end + 1
        source = self.text[start : self.i]
        return Substitution("command", source, source[1:-1], self.at(start), quoted)
