"""The grammar of shell scripts: text to commands, with the offset of every word. Nothing is run here.

What a bash reads is read: quoting, continuations, here-documents, arrays, compound commands, functions.
Time is linear in the text; nesting is limited, because no author writes a hundred levels.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import NamedTuple, TypeAlias

MAX_DEPTH = 60
"""How deep compound commands and substitutions may nest."""


class Text(NamedTuple):
    """Characters as they stand; what is not quoted may be a pattern, a tilde or a keyword."""

    text: str
    at: int
    quoted: bool


class Expansion(NamedTuple):
    """`$NAME`, `${NAME:-word}` and their like: the operator, and what follows it as pieces.

    Operators that need more than a default are "other"; `<NAME>`, which no shell knows, is "<>".
    """

    name: str
    at: int
    quoted: bool
    source: str
    operator: str = ""
    operand: tuple[Piece, ...] = ()


class Substitution(NamedTuple):
    """`$(…)`, backquotes, `$((…))` or `<(…)`; `inner` is what stands between the signs of `source`."""

    kind: str  # "command", "sum" or "file"
    source: str
    inner: str
    at: int
    quoted: bool


Piece: TypeAlias = Text | Expansion | Substitution


class Word(NamedTuple):
    """One word before expansion. `array` holds the elements where the word is `NAME=( … )`."""

    pieces: tuple[Piece, ...]
    at: int
    array: tuple[Word, ...] | None = None

    @property
    def bare(self) -> str:
        """The word's text if nothing in it is quoted or expanded, else empty."""
        if len(self.pieces) == 1 and isinstance(self.pieces[0], Text) and not self.pieces[0].quoted:
            return self.pieces[0].text
        return ""


class Redirect(NamedTuple):
    """`> file`, `<<EOF`; `document` is the number of the here-document, -1 for none."""

    operator: str
    word: Word
    document: int = -1


class Simple(NamedTuple):
    """Assignments, words and redirects of one command."""

    at: int
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


class Sequence(NamedTuple):
    """Commands with the operator before each: `;`, `&&`, `||`, `|`."""

    items: tuple[tuple[str, Node], ...]


class Group(NamedTuple):
    """`{ … }`, or `( … )` whose variables are its own."""

    at: int
    body: Sequence
    apart: bool


class If(NamedTuple):
    """Conditions with their bodies, and what runs otherwise."""

    at: int
    arms: tuple[tuple[Sequence, Sequence], ...]
    otherwise: Sequence | None


class Loop(NamedTuple):
    """`while`, `until` (with a condition) or `for NAME in words` (with a name; None is `"$@"`)."""

    at: int
    body: Sequence
    condition: Sequence | None = None
    until: bool = False
    name: str = ""
    words: tuple[Word, ...] | None = None


class Case(NamedTuple):
    """`case word in pattern) … ;; esac`."""

    at: int
    word: Word
    arms: tuple[tuple[tuple[Word, ...], Sequence], ...]


class Test(NamedTuple):
    """`[[ … ]]`, as words."""

    at: int
    words: tuple[Word, ...]


class Sum(NamedTuple):
    """`(( … ))`, as text."""

    at: int
    text: str


class Function(NamedTuple):
    """`name() body`."""

    at: int
    name: str
    body: Node


Node: TypeAlias = Simple | Sequence | Group | If | Loop | Case | Test | Sum | Function


class Script(NamedTuple):
    """Commands, here-documents by their number, and (offset, sentence) of what is written amiss."""

    commands: Sequence
    documents: tuple[Word, ...]
    notes: tuple[tuple[int, str], ...] = ()


class Positions:
    """Offsets in a text to line and column, both from 1."""

    def __init__(self, text: str) -> None:
        """Note where each line begins."""
        self._starts = [0, *(found.end() for found in re.finditer("\n", text))]

    def __call__(self, at: int) -> tuple[int, int]:
        """Line and column of an offset."""
        line = bisect_right(self._starts, at)
        return line, at - self._starts[line - 1] + 1


class NotAScriptError(Exception):
    """Reading stopped at an offset, and why."""

    def __init__(self, at: int, problem: str) -> None:
        """Keep both."""
        super().__init__(problem)
        self.at = at
        self.problem = problem


def parse(text: str, origins: tuple[tuple[int, int], ...] = ((0, 0),)) -> Script:
    """The commands of a script; `origins` maps offsets in `text` to where the author wrote what follows.

    Raises:
        NotAScriptError: the text is no shell script.
    """
    return _ShellParser(text, origins).script()


_BLANK = re.compile(r"(?:[ \t\r]|\\\r?\n)+")
_BROKEN_CONTINUATION = re.compile(r"\\[ \t]+\r?(?:\n|\Z)")
_PLAIN = re.compile(r"[^\s;&|<>()$`\"'\\]+")
_IN_DOUBLE = re.compile(r"[^$`\"\\]+")
_IN_DOCUMENT = re.compile(r"[^$`\\]+")
_IN_BRACES = re.compile(r"[^$`\"'\\}]+")
_NAME = re.compile(r"[A-Za-z_]\w*")
_EXPANSION = re.compile(r"(?:[A-Za-z_]\w*|[0-9@*#?$!-])")
_BRACED = re.compile(r"(?:[A-Za-z_]\w*|[0-9]+|[@*#?$!-])(?:\[[^\]\s]*\])?")
_DEFAULTS = re.compile(r":?[-=+?]")
_ASSIGNS_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")
_OPERATOR = re.compile(r"&&|\|\||;;&|;;|;&|\|&|[;&|()\n]")
_IN_TEST = re.compile(r"&&|\|\||[<>()|&;]")
_LONGEST_SUM = 2000
_PARENTHESES = re.compile(r"[()\n]")
_REDIRECT = re.compile(r"(?:[0-9]+)?(?:<<<|<<-|<<|>>|>&|<&|>\||<>|[<>])|&>>|&>")
_PLACEHOLDER = re.compile(r"<[A-Za-z_][\w-]*>(?=[\s;]|\Z)")  # what a template asks its reader to fill in
_CLOSERS = frozenset({"then", "do", "done", "fi", "else", "elif", "esac", "}"})
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r"}


def _status(word: str) -> Sequence:
    return Sequence(((";", Simple(0, (Word((Text(word, 0, quoted=False),), 0),), ())),))


class _ShellParser:
    """One pass over a text. A method that reads something leaves `i` behind it."""

    def __init__(self, text: str, origins: tuple[tuple[int, int], ...], depth: int = 0) -> None:
        self.text = text
        self.i = 0
        self.depth = depth
        self.offsets = [offset for offset, _ in origins]
        self.origins = [origin for _, origin in origins]
        self.documents: list[Word] = []
        self.pending: list[tuple[str, bool, bool, int]] = []  # delimiter, quoted, tabs stripped, number
        self.notes: list[tuple[int, str]] = []

    def at(self, i: int) -> int:
        """Where the author wrote what stands at an offset of this text."""
        k = bisect_right(self.offsets, i) - 1
        return self.origins[k] + i - self.offsets[k]

    def fail(self, i: int, problem: str) -> NotAScriptError:
        return NotAScriptError(self.at(min(i, len(self.text))), f"not a shell script: {problem}")

    def deeper(self) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise self.fail(self.i, "nested too deeply")

    # --- between words ------------------------------------------------------------------------------

    def blank(self) -> None:
        """Past spaces, continuations and a comment."""
        text = self.text
        found = _BLANK.match(text, self.i)
        if found:
            self.i = found.end()
        if text.startswith("#", self.i):
            end = text.find("\n", self.i)
            self.i = len(text) if end < 0 else end
        elif text.startswith("\\", self.i) and _BROKEN_CONTINUATION.match(text, self.i):
            said = (
                "a space follows the backslash, so the command ends here and the next line is one of its own"
            )
            self.notes.append((self.at(self.i), said))

    def lines(self) -> None:
        """Past spaces, comments and newlines."""
        self.blank()
        while self.text.startswith("\n", self.i):
            self.newline()
            self.blank()

    def newline(self) -> None:
        self.i += 1
        pending, self.pending = self.pending, []
        for delimiter, quoted, tabs, number in pending:
            self.documents[number] = self.document(delimiter, quoted=quoted, tabs=tabs)

    def document(self, delimiter: str, *, quoted: bool, tabs: bool) -> Word:
        """A here-document as a word, from this line to its delimiter."""
        start, text = self.i, self.text
        body = ""
        while self.i < len(text):
            end = text.find("\n", self.i)
            end = len(text) if end < 0 else end
            line = text[self.i : end].rstrip("\r")
            if (line.lstrip("\t") if tabs else line) == delimiter:
                body = text[start : self.i]
                self.i = min(end + 1, len(text))
                break
            self.i = min(end + 1, len(text))
        else:
            body = text[start:]
        if quoted:
            return Word((Text(body, self.at(start), quoted=True),), self.at(start))
        inner = _ShellParser(
            body, tuple((each - start, self.at(each)) for each in self.marks(start)), self.depth
        )
        return Word(tuple(inner.until_end()), self.at(start))

    def marks(self, start: int) -> list[int]:
        """Offsets from `start` on where what the author wrote is not contiguous."""
        return [start, *self.offsets[bisect_right(self.offsets, start) :]]

    def peek(self) -> str:
        """The unquoted word here, which stays unread."""
        found = _PLAIN.match(self.text, self.i)
        return found.group() if found else ""

    def keyword(self, *words: str) -> str:
        self.lines()
        found = self.peek()
        if found not in words:
            raise self.fail(self.i, f"{' or '.join(map(repr, words))} is missing")
        self.i += len(found)
        return found

    # --- commands -----------------------------------------------------------------------------------

    def script(self) -> Script:
        commands = self.sequence(frozenset())
        if self.i < len(self.text):
            raise self.fail(self.i, f"unexpected {self.text[self.i]!r}")
        return Script(commands, tuple(self.documents), tuple(self.notes))

    def sequence(self, ends: frozenset[str]) -> Sequence:
        """Commands up to one of these words, to `)` or to `;;`, which stay unread."""
        self.deeper()
        items: list[tuple[str, Node]] = []
        operator = ";"
        while True:
            self.lines()
            keyword = self.peek()
            if self.i >= len(self.text) or keyword in ends:
                break
            here = _OPERATOR.match(self.text, self.i)
            if here and here.group() != "(":
                break
            if keyword in _CLOSERS:
                raise self.fail(self.i, f"unexpected {keyword!r}")
            items.append((operator, self.command()))
            operator = self.separator()
        self.depth -= 1
        return Sequence(tuple(items))

    def separator(self) -> str:
        """What joins a command to the next: `;` for a newline, a `&` or an end."""
        self.blank()
        here = _OPERATOR.match(self.text, self.i)
        if here is None or here.group() in ("(", ")", "\n") or here.group().startswith((";;", ";&")):
            return ";"
        self.i = here.end()
        return here.group().rstrip("&") or here.group() if here.group() != "&" else ";"

    def command(self) -> Node:
        at = self.at(self.i)
        if self.text.startswith("((", self.i):
            found = self.sum(at)
            if found is not None:
                return found
        if self.text.startswith("(", self.i):
            self.i += 1
            return self.redirected(Group(at, self.enclosed(")"), apart=True))
        compound = {
            "{": self.braces, "if": self.if_, "while": self.loop, "until": self.loop, "for": self.for_,
            "select": self.for_, "case": self.case, "function": self.function, "[[": self.test,
            "!": self.negated,
        }.get(self.peek())  # fmt: skip
        return compound(at) if compound else self.simple(at)

    def redirected(self, node: Node) -> Node:
        """A compound command, past the redirects behind it."""
        self.blank()
        while found := _REDIRECT.match(self.text, self.i):
            self.redirect(found)
            self.blank()
        return node

    def enclosed(self, end: str) -> Sequence:
        body = self.sequence(frozenset({end}))
        if not self.text.startswith(end, self.i):
            raise self.fail(self.i, f"{end!r} is missing")
        self.i += len(end)
        return body

    def braces(self, at: int) -> Node:
        self.i += 1
        return self.redirected(Group(at, self.enclosed("}"), apart=False))

    def negated(self, at: int) -> Node:
        self.i += 1
        self.blank()
        if self.i >= len(self.text):
            raise self.fail(self.i, "nothing follows '!'")
        self.deeper()
        inner = Sequence(((";", self.command()),))
        self.depth -= 1
        return If(at, ((inner, _status("false")),), _status("true"))

    def if_(self, at: int) -> Node:
        arms = []
        otherwise = None
        word = self.keyword("if")
        while word in ("if", "elif"):
            condition = self.sequence(frozenset({"then"}))
            self.keyword("then")
            arms.append((condition, self.sequence(frozenset({"elif", "else", "fi"}))))
            word = self.keyword("elif", "else", "fi")
        if word == "else":
            otherwise = self.sequence(frozenset({"fi"}))
            self.keyword("fi")
        return self.redirected(If(at, tuple(arms), otherwise))

    def loop(self, at: int) -> Node:
        word = self.keyword("while", "until")
        condition = self.sequence(frozenset({"do"}))
        return self.redirected(Loop(at, self.do(), condition, until=word == "until"))

    def do(self) -> Sequence:
        self.keyword("do")
        body = self.sequence(frozenset({"done"}))
        self.keyword("done")
        return body

    def for_(self, at: int) -> Node:
        self.keyword("for", "select")
        self.blank()
        words: tuple[Word, ...] | None = None
        if self.text.startswith("((", self.i):
            counted = self.sum(at)
            found = _NAME.search(counted.text) if counted else None
            name = found.group() if found else ""
            words = (Word((Substitution("sum", "((…))", "", at, quoted=False),), at),)
        else:
            name = self.peek()
            if not _NAME.fullmatch(name):
                raise self.fail(self.i, "'for' without a name")
            self.i += len(name)
            self.lines()
            if self.peek() == "in":
                self.i += 2
                words = self.words()
        self.blank()
        if self.text.startswith(";", self.i):
            self.i += 1
        return self.redirected(Loop(at, self.do(), name=name, words=words))

    def words(self) -> tuple[Word, ...]:
        """Words to the end of the command."""
        found = []
        self.blank()
        while self.i < len(self.text) and not _OPERATOR.match(self.text, self.i):
            found.append(self.word())
            self.blank()
        return tuple(found)

    def case(self, at: int) -> Node:
        self.keyword("case")
        self.blank()
        word = self.word()
        self.keyword("in")
        arms: list[tuple[tuple[Word, ...], Sequence]] = []
        while True:
            self.lines()
            if self.peek() == "esac":
                self.i += len("esac")
                return self.redirected(Case(at, word, tuple(arms)))
            if self.text.startswith("(", self.i):
                self.i += 1
            patterns = [self.pattern()]
            while self.text.startswith("|", self.i):
                self.i += 1
                patterns.append(self.pattern())
            if not self.text.startswith(")", self.i):
                raise self.fail(self.i, "')' is missing")
            self.i += 1
            arms.append((tuple(patterns), self.sequence(frozenset({"esac"}))))
            end = _OPERATOR.match(self.text, self.i)
            if end and end.group().startswith((";;", ";&")):
                self.i = end.end()

    def pattern(self) -> Word:
        self.blank()
        found = self.word()
        self.blank()
        return found

    def function(self, at: int) -> Node:
        self.keyword("function")
        self.blank()
        name = self.peek()
        self.i += len(name)
        self.blank()
        return self.defined(at, name)

    def defined(self, at: int, name: str) -> Node:
        """A function from the `()` behind its name on."""
        if self.text.startswith("(", self.i):
            self.i += 1
            self.blank()
            if not self.text.startswith(")", self.i):
                raise self.fail(self.i, "unexpected '('")
            self.i += 1
        self.lines()
        if self.i >= len(self.text):
            raise self.fail(self.i, f"function {name} has no body")
        self.deeper()
        body = self.command()
        self.depth -= 1
        return Function(at, name, body)

    def test(self, at: int) -> Node:
        start = self.i
        self.i += 2
        words = []
        while True:
            self.lines()
            here = _IN_TEST.match(self.text, self.i)
            if self.i >= len(self.text):
                raise self.fail(start, "']]' is missing")
            if here:
                words.append(Word((Text(here.group(), self.at(self.i), quoted=False),), self.at(self.i)))
                self.i = here.end()
                continue
            word = self.word()
            if word.bare == "]]":
                return self.redirected(Test(at, tuple(words)))
            words.append(word)

    def sum(self, at: int) -> Sum | None:
        """`((…))` on one line; None where it is something else."""
        open_, last = 0, -1
        for found in _PARENTHESES.finditer(self.text, self.i, self.i + _LONGEST_SUM):
            if found.group() == "\n":
                break
            open_ += 1 if found.group() == "(" else -1
            if open_ == 0:
                if found.start() != last + 1:
                    break
                inner, self.i = self.text[self.i + 2 : last], found.end()
                return Sum(at, inner)
            last = found.start() if found.group() == ")" else -1
        return None

    def simple(self, at: int) -> Node:
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            self.blank()
            if self.i >= len(self.text):
                break
            word = self.at_process() or _PLACEHOLDER.match(self.text, self.i)
            found = None if word else _REDIRECT.match(self.text, self.i)
            if found:
                redirects.append(self.redirect(found))
            elif _OPERATOR.match(self.text, self.i):
                if self.text[self.i] == "(" and len(words) == 1 and words[0].bare:
                    return self.defined(at, words[0].bare)
                break
            else:
                words.append(self.word())
        if self.text.startswith("(", self.i):
            raise self.fail(self.i, "unexpected '('")
        return Simple(at, tuple(words), tuple(redirects))

    def redirect(self, found: re.Match[str]) -> Redirect:
        operator = found.group().lstrip("0123456789")
        self.i = found.end()
        self.blank()
        word = self.word()
        if operator not in ("<<", "<<-"):
            return Redirect(operator, word)
        delimiter = "".join(each.text if isinstance(each, Text) else each.source for each in word.pieces)
        quoted = any(each.quoted for each in word.pieces)
        self.documents.append(Word((), word.at))
        self.pending.append((delimiter, quoted, operator == "<<-", len(self.documents) - 1))
        return Redirect(operator, word, len(self.documents) - 1)

    # --- words --------------------------------------------------------------------------------------

    def at_process(self) -> bool:
        """Whether `<(…)` or `>(…)` begins here."""
        return self.text.startswith(("<(", ">("), self.i)

    def word(self) -> Word:
        start, text = self.i, self.text
        pieces: list[Piece] = []
        while self.i < len(text):
            found = _PLAIN.match(text, self.i)
            if found:
                pieces.append(Text(found.group(), self.at(self.i), quoted=False))
                self.i = found.end()
                if (
                    text.startswith("(", self.i)
                    and len(pieces) == 1
                    and _ASSIGNS_ARRAY.fullmatch(found.group())
                ):
                    return Word(tuple(pieces), self.at(start), self.array())
                continue
            if not self.special(pieces):
                break
        if self.i == start:
            what = repr(text[start]) if start < len(text) else "end of the file"
            raise self.fail(start, f"unexpected {what}")
        return Word(tuple(pieces), self.at(start))

    def special(self, pieces: list[Piece]) -> bool:
        """What is quoted or expanded here; False if nothing is."""
        sign = self.text[self.i]
        if sign == "\\":
            self.escape(pieces)
        elif sign == "'":
            pieces.append(self.single())
        elif sign == '"':
            self.double(pieces)
        elif sign == "$":
            self.dollar(pieces, quoted=False)
        elif sign == "`":
            pieces.append(self.backquoted(quoted=False))
        elif found := _PLACEHOLDER.match(self.text, self.i):
            pieces.append(Expansion("", self.at(self.i), quoted=False, source=found.group(), operator="<>"))
            self.i = found.end()
        elif self.at_process():
            pieces.append(self.substituted("file", quoted=False))
        else:
            return False
        return True

    def array(self) -> tuple[Word, ...]:
        start = self.i
        self.i += 1
        self.deeper()
        found = []
        self.lines()
        while not self.text.startswith(")", self.i):
            if self.i >= len(self.text):
                raise self.fail(start, "')' is missing")
            found.append(self.word())
            self.lines()
        self.i += 1
        self.depth -= 1
        return tuple(found)

    def escape(self, pieces: list[Piece]) -> None:
        here = _BLANK.match(self.text, self.i)
        if here and self.text[self.i] == "\\":  # a continuation within a word
            self.i += 3 if self.text.startswith("\\\r\n", self.i) else 2
            return
        if self.i + 1 < len(self.text):
            pieces.append(Text(self.text[self.i + 1], self.at(self.i), quoted=True))
        self.i += 2

    def single(self) -> Text:
        start = self.i + 1
        end = self.text.find("'", start)
        if end < 0:
            raise self.fail(self.i, "the quote is not closed")
        self.i = end + 1
        return Text(self.text[start:end], self.at(start), quoted=True)

    def ansi(self) -> Text:
        """`$'…'`."""
        start = self.i
        self.i += 2
        out = []
        while self.i < len(self.text) and self.text[self.i] != "'":
            char = self.text[self.i]
            if char == "\\" and self.i + 1 < len(self.text):
                self.i += 1
                char = _ESCAPES.get(self.text[self.i], self.text[self.i])
            out.append(char)
            self.i += 1
        if self.i >= len(self.text):
            raise self.fail(start, "the quote is not closed")
        self.i += 1
        return Text("".join(out), self.at(start + 2), quoted=True)

    def double(self, pieces: list[Piece]) -> None:
        start, text = self.i, self.text
        self.i += 1
        pieces.append(Text("", self.at(self.i), quoted=True))  # "" is a word too
        while self.i < len(text):
            found = _IN_DOUBLE.match(text, self.i)
            if found:
                pieces.append(Text(found.group(), self.at(self.i), quoted=True))
                self.i = found.end()
            elif text[self.i] == '"':
                self.i += 1
                return
            else:
                self.in_quotes(pieces)
        raise self.fail(start, "the quote is not closed")

    def in_quotes(self, pieces: list[Piece]) -> None:
        """One backslash, `$` or backquote between double quotes or in a here-document."""
        text, i = self.text, self.i
        if text[i] == "$":
            self.dollar(pieces, quoted=True)
        elif text[i] == "`":
            pieces.append(self.backquoted(quoted=True))
        elif text.startswith(("\\\n", "\\\r\n"), i):
            self.i += 3 if text.startswith("\\\r", i) else 2
        elif text[i + 1 : i + 2] in ("$", "`", '"', "\\"):
            pieces.append(Text(text[i + 1], self.at(i), quoted=True))
            self.i += 2
        else:
            pieces.append(Text("\\", self.at(i), quoted=True))
            self.i += 1

    def until_end(self) -> list[Piece]:
        """The whole text as a here-document's."""
        pieces: list[Piece] = []
        while self.i < len(self.text):
            found = _IN_DOCUMENT.match(self.text, self.i)
            if found:
                pieces.append(Text(found.group(), self.at(self.i), quoted=True))
                self.i = found.end()
            else:
                self.in_quotes(pieces)
        return pieces

    def dollar(self, pieces: list[Piece], *, quoted: bool) -> None:
        text, start = self.text, self.i
        if text.startswith("${", start):
            pieces.append(self.braced(quoted=quoted))
        elif text.startswith("$(", start):
            pieces.append(self.substituted("command", quoted=quoted))
        elif text.startswith("$'", start) and not quoted:
            pieces.append(self.ansi())
        elif found := _EXPANSION.match(text, start + 1):
            self.i = found.end()
            pieces.append(Expansion(found.group(), self.at(start), quoted, text[start : self.i]))
        else:
            self.i += 1
            if quoted or not text.startswith('"', self.i):
                pieces.append(Text("$", self.at(start), quoted=quoted))

    def braced(self, *, quoted: bool) -> Expansion:
        start, text = self.i, self.text
        self.deeper()
        self.i += 2
        length = text.startswith("#", self.i) and not text.startswith("#}", self.i)
        self.i += length
        found = _BRACED.match(text, self.i)
        name = found.group() if found else ""
        self.i = found.end() if found else self.i
        operator = "#" if length else ""
        if not text.startswith("}", self.i) and not length:
            given = _DEFAULTS.match(text, self.i)
            operator = given.group() if given and found else "other"
            self.i = given.end() if given and found else self.i
        operand: list[Piece] = []
        while not text.startswith("}", self.i):
            if self.i >= len(text):
                raise self.fail(start, "'}' is missing")
            inner = _IN_BRACES.match(text, self.i)
            if inner:
                operand.append(Text(inner.group(), self.at(self.i), quoted=quoted))
                self.i = inner.end()
            elif text[self.i] == "'" and not quoted:
                operand.append(self.single())
            elif text[self.i] == "'":
                operand.append(Text("'", self.at(self.i), quoted=True))
                self.i += 1
            elif text[self.i] == '"':
                self.double(operand)
            else:
                self.in_quotes(operand)
        self.i += 1
        self.depth -= 1
        return Expansion(name, self.at(start), quoted, text[start : self.i], operator, tuple(operand))

    def substituted(self, kind: str, *, quoted: bool) -> Substitution:
        """`$(…)`, `$((…))` or `<(…)`: what stands between the parentheses, which is read to find its end."""
        start = self.i
        self.i += 2
        if kind == "command" and self.text.startswith("(", self.i):
            self.i = start + 1
            found = self.sum(start)
            if found is not None:
                return Substitution("sum", self.text[start : self.i], found.text, self.at(start), quoted)
            self.i = start + 2
        pending, self.pending = self.pending, []
        self.enclosed(")")
        self.pending = pending
        return Substitution(
            kind, self.text[start : self.i], self.text[start + 2 : self.i - 1], self.at(start), quoted
        )

    def backquoted(self, *, quoted: bool) -> Substitution:
        start = self.i
        end = start + 1
        while end < len(self.text) and self.text[end] != "`":
            end += 2 if self.text[end] == "\\" else 1
        if end >= len(self.text):
            raise self.fail(start, "the backquote is not closed")
        self.i = end + 1
        return Substitution(
            "command", self.text[start : self.i], self.text[start + 1 : end], self.at(start), quoted
        )
