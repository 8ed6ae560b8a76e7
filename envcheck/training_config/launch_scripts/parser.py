"""The grammar of shell commands: text to nodes, with the offset of every word. Nothing is run.

The parser accepts what bash accepts: quoting, continuations, here-documents, arrays, compound commands,
functions. Parsing takes time linear in the length of the text, and nesting is limited by `words.MAX_DEPTH`.
"""

from __future__ import annotations

import re

from envcheck.core.patterns import pattern
from envcheck.training_config.launch_scripts.syntax import (
    Arithmetic,
    Case,
    Function,
    Group,
    If,
    Loop,
    Node,
    Redirect,
    Script,
    Sequence,
    SimpleCommand,
    Substitution,
    Test,
    Text,
    Word,
)
from envcheck.training_config.launch_scripts.words import PLACEHOLDER, WordParser


def parse(text: str, origins: tuple[tuple[int, int], ...] = ((0, 0),)) -> Script:
    """Return the commands of a script; `origins` maps offsets in `text` to those in the author's text.

    Raises:
        NotAScriptError: the text is not a shell script.
    """
    return _CommandParser(text, origins).script()


_NAME = pattern(r"[A-Za-z_]\w*")
_OPERATOR = pattern(r"&&|\|\||;;&|;;|;&|\|&|[;&|()\n]")
_OPERATOR_IN_TEST = pattern(r"&&|\|\||[<>()|&;]")
_REDIRECT = pattern(r"(?:[0-9]+)?(?:<<<|<<-|<<|>>|>&|<&|>\||<>|[<>])|&>>|&>")
_ENDS_ARM = (";;", ";&")
_CLOSING_WORDS = frozenset({"then", "do", "done", "fi", "else", "elif", "esac", "}"})


def _command_of(word: str) -> Sequence:
    """Return the command `true` or `false`."""
    return Sequence(((";", SimpleCommand(0, (Word((Text(word, 0, quoted=False),), 0),), ())),))


class _CommandParser(WordParser):
    """One pass over a text. A method that reads something moves `i` past it."""

    def script(self) -> Script:
        """Read the whole text."""
        commands = self._sequence(frozenset())
        if self.i < len(self.text):
            raise self.error(self.i, f"unexpected {self.text[self.i]!r}")
        return Script(commands, tuple(self.documents), tuple(self.notes))

    # --- sequences ----------------------------------------------------------------------------------

    def _sequence(self, ends: frozenset[str]) -> Sequence:
        """Read commands up to one of these words, to `)` or to `;;`, all of which stay unread."""
        self.descend()
        items: list[tuple[str, Node]] = []
        operator = ";"
        while True:
            self.skip_lines()
            keyword = self.peek()
            if self.i >= len(self.text) or keyword in ends:
                break
            found = _OPERATOR.match(self.text, self.i)
            if found and found.group() != "(":
                break
            if keyword in _CLOSING_WORDS:
                raise self.error(self.i, f"unexpected {keyword!r}")
            items.append((operator, self._command()))
            operator = self._separator()
        self.depth -= 1
        return Sequence(tuple(items))

    def _separator(self) -> str:
        """Read the operator after a command; return `;` also for a newline, `&` and the end of the text."""
        self.skip_blank()
        found = _OPERATOR.match(self.text, self.i)
        if found is None or found.group() in ("(", ")", "\n") or found.group().startswith(_ENDS_ARM):
            return ";"
        self.i = found.end()
        operator = found.group()
        return ";" if operator == "&" else operator.rstrip("&") or operator  # `|&` joins as `|` does

    def enclosed(self, end: str) -> Sequence:
        """Return the commands up to `end`, and step over it."""
        body = self._sequence(frozenset({end}))
        if not self.text.startswith(end, self.i):
            raise self.error(self.i, f"{end!r} is missing")
        self.i += len(end)
        return body

    def _keyword(self, *words: str) -> str:
        """Read one of these keywords, on this line or a later one."""
        self.skip_lines()
        found = self.peek()
        if found not in words:
            raise self.error(self.i, f"{' or '.join(map(repr, words))} is missing")
        self.i += len(found)
        return found

    # --- compound commands --------------------------------------------------------------------------

    def _command(self) -> Node:
        """Read one command of any kind."""
        at = self.at(self.i)
        if self.text.startswith("((", self.i):
            arithmetic = self.arithmetic_text()
            if arithmetic is not None:
                return Arithmetic(at, arithmetic)
        if self.text.startswith("(", self.i):
            self.i += 1
            return self._past_redirects(Group(at, self.enclosed(")"), subshell=True))
        compound = {
            "{": self._braces, "if": self._if, "while": self._while, "until": self._while, "for": self._for,
            "select": self._for, "case": self._case, "function": self._function, "[[": self._test,
            "!": self._negation,
        }.get(self.peek())  # fmt: skip
        return compound(at) if compound else self._simple(at)

    def _past_redirects(self, node: Node) -> Node:
        """Step over the redirects after a compound command, and return the command; a group keeps them."""
        self.skip_blank()
        redirects: list[Redirect] = []
        while found := _REDIRECT.match(self.text, self.i):
            redirects.append(self._redirect(found))
            self.skip_blank()
        return node._replace(redirects=tuple(redirects)) if isinstance(node, Group) and redirects else node

    def _braces(self, at: int) -> Node:
        self.i += 1
        return self._past_redirects(Group(at, self.enclosed("}"), subshell=False))

    def _negation(self, at: int) -> Node:
        """Read `! command` as `if command; then false; else true; fi`."""
        self.i += 1
        self.skip_blank()
        if self.i >= len(self.text):
            raise self.error(self.i, "nothing follows '!'")
        self.descend()
        inner = Sequence(((";", self._command()),))
        self.depth -= 1
        return If(at, ((inner, _command_of("false")),), _command_of("true"))

    def _if(self, at: int) -> Node:
        arms = []
        otherwise = None
        word = self._keyword("if")
        while word in ("if", "elif"):
            condition = self._sequence(frozenset({"then"}))
            self._keyword("then")
            arms.append((condition, self._sequence(frozenset({"elif", "else", "fi"}))))
            word = self._keyword("elif", "else", "fi")
        if word == "else":
            otherwise = self._sequence(frozenset({"fi"}))
            self._keyword("fi")
        return self._past_redirects(If(at, tuple(arms), otherwise))

    def _while(self, at: int) -> Node:
        word = self._keyword("while", "until")
        condition = self._sequence(frozenset({"do"}))
        return self._past_redirects(Loop(at, self._loop_body(), condition, until=word == "until"))

    def _loop_body(self) -> Sequence:
        self._keyword("do")
        body = self._sequence(frozenset({"done"}))
        self._keyword("done")
        return body

    def _for(self, at: int) -> Node:
        """Read `for NAME in words` or `for ((…))`, whose words are one unknown number."""
        self._keyword("for", "select")
        self.skip_blank()
        words: tuple[Word, ...] | None = None
        if self.text.startswith("((", self.i):
            found = _NAME.search(self.arithmetic_text() or "")
            name = found.group() if found else ""
            words = (Word((Substitution("sum", "((…))", "", at, quoted=False),), at),)
        else:
            name = self.peek()
            if not _NAME.fullmatch(name):
                raise self.error(self.i, "'for' without a name")
            self.i += len(name)
            self.skip_lines()
            if self.peek() == "in":
                self.i += 2
                words = self._words()
        self.skip_blank()
        if self.text.startswith(";", self.i):
            self.i += 1
        return self._past_redirects(Loop(at, self._loop_body(), name=name, words=words))

    def _words(self) -> tuple[Word, ...]:
        """Read words to the end of the command."""
        found = []
        self.skip_blank()
        while self.i < len(self.text) and not _OPERATOR.match(self.text, self.i):
            found.append(self.word())
            self.skip_blank()
        return tuple(found)

    def _case(self, at: int) -> Node:
        self._keyword("case")
        self.skip_blank()
        word = self.word()
        self._keyword("in")
        arms: list[tuple[tuple[Word, ...], Sequence]] = []
        while True:
            self.skip_lines()
            if self.peek() == "esac":
                self.i += len("esac")
                return self._past_redirects(Case(at, word, tuple(arms)))
            arms.append((self._patterns(), self._sequence(frozenset({"esac"}))))
            end = _OPERATOR.match(self.text, self.i)
            if end and end.group().startswith(_ENDS_ARM):
                self.i = end.end()

    def _patterns(self) -> tuple[Word, ...]:
        """Read the patterns of one arm of a `case` and the parenthesis after them."""
        if self.text.startswith("(", self.i):
            self.i += 1
        patterns = [self._pattern()]
        while self.text.startswith("|", self.i):
            self.i += 1
            patterns.append(self._pattern())
        if not self.text.startswith(")", self.i):
            raise self.error(self.i, "')' is missing")
        self.i += 1
        return tuple(patterns)

    def _pattern(self) -> Word:
        self.skip_blank()
        found = self.word()
        self.skip_blank()
        return found

    def _function(self, at: int) -> Node:
        self._keyword("function")
        self.skip_blank()
        name = self.peek()
        self.i += len(name)
        self.skip_blank()
        return self._function_body(at, name)

    def _function_body(self, at: int, name: str) -> Node:
        """Read a function, starting at the `()` after its name."""
        if self.text.startswith("(", self.i):
            self.i += 1
            self.skip_blank()
            if not self.text.startswith(")", self.i):
                raise self.error(self.i, "unexpected '('")
            self.i += 1
        self.skip_lines()
        if self.i >= len(self.text):
            raise self.error(self.i, f"function {name} has no body")
        self.descend()
        body = self._command()
        self.depth -= 1
        return Function(at, name, body)

    def _test(self, at: int) -> Node:
        """Read `[[ … ]]`."""
        start = self.i
        self.i += 2
        words = []
        while True:
            self.skip_lines()
            operator = _OPERATOR_IN_TEST.match(self.text, self.i)
            if self.i >= len(self.text):
                raise self.error(start, "']]' is missing")
            if operator:
                text = Text(operator.group(), self.at(self.i), quoted=False)
                words.append(Word((text,), self.at(self.i)))
                self.i = operator.end()
                continue
            word = self.word()
            if word.bare == "]]":
                return self._past_redirects(Test(at, tuple(words)))
            words.append(word)

    # --- simple commands ----------------------------------------------------------------------------

    def _simple(self, at: int) -> Node:
        """Read a simple command, or a function definition `name() …`."""
        words: list[Word] = []
        redirects: list[Redirect] = []
        while True:
            self.skip_blank()
            if self.i >= len(self.text):
                break
            begins_word = self.at_process_substitution() or PLACEHOLDER.match(self.text, self.i)
            redirect = None if begins_word else _REDIRECT.match(self.text, self.i)
            if redirect:
                redirects.append(self._redirect(redirect))
            elif _OPERATOR.match(self.text, self.i):
                if self.text[self.i] == "(" and len(words) == 1 and words[0].bare:
                    return self._function_body(at, words[0].bare)
                break
            else:
                words.append(self.word())
        if self.text.startswith("(", self.i):
            raise self.error(self.i, "unexpected '('")
        return SimpleCommand(at, tuple(words), tuple(redirects))

    def _redirect(self, found: re.Match[str]) -> Redirect:
        operator = found.group().lstrip("0123456789")
        self.i = found.end()
        self.skip_blank()
        word = self.word()
        if operator not in ("<<", "<<-"):
            return Redirect(operator, word)
        return Redirect(operator, word, self.expect_document(word, strips_tabs=operator == "<<-"))
