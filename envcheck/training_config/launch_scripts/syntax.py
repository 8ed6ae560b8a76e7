"""Nodes of a parsed shell script: words made of pieces, and commands made of words.

Every node has `at`, the offset in the author's text at which it begins.
"""

from __future__ import annotations

from typing import TypeAlias

from envcheck.core.records import NamedTuple


class NotAScriptError(Exception):
    """The text is not a shell script: `problem` at the offset `at`."""

    def __init__(self, at: int, problem: str) -> None:
        """Keep both."""
        super().__init__(problem)
        self.at = at
        self.problem = problem


# --- words ------------------------------------------------------------------------------------------


class Text(NamedTuple):
    """Literal characters; unquoted ones may be a pattern, a tilde or a keyword."""

    text: str
    at: int
    quoted: bool


class Expansion(NamedTuple):
    """`$NAME`, `${NAME:-word}` and similar: the operator, and the pieces of the word after it.

    The operator is "other" for any that is not computed here, and "<>" for the placeholder
    `<NAME>`, which is not shell syntax.
    """

    name: str
    at: int
    quoted: bool
    source: str
    operator: str = ""
    operand: tuple[Piece, ...] = ()


class Substitution(NamedTuple):
    """`$(…)`, backquotes, `$((…))` or `<(…)`; `inner` is `source` without its delimiters."""

    kind: str  # "command", "sum" or "file"
    source: str
    inner: str
    at: int
    quoted: bool


Piece: TypeAlias = Text | Expansion | Substitution


class Word(NamedTuple):
    """One word before expansion; `array` has the elements if the word is `NAME=( … )`."""

    pieces: tuple[Piece, ...]
    at: int
    array: tuple[Word, ...] | None = None

    @property
    def bare(self) -> str:
        """Return the text of the word if nothing in it is quoted or expanded, else ""."""
        if len(self.pieces) == 1 and isinstance(self.pieces[0], Text) and not self.pieces[0].quoted:
            return self.pieces[0].text
        return ""


# --- commands ---------------------------------------------------------------------------------------


class Redirect(NamedTuple):
    """`> file` or `<<EOF`; `document` is the index of the here-document, -1 if there is none."""

    operator: str
    word: Word
    document: int = -1


class SimpleCommand(NamedTuple):
    """One command: its assignments and words, and its redirects."""

    at: int
    words: tuple[Word, ...]
    redirects: tuple[Redirect, ...]


class Sequence(NamedTuple):
    """Commands, each with the operator before it: `;`, `&&`, `||`, `|`."""

    items: tuple[tuple[str, Node], ...]


class Group(NamedTuple):
    """`{ … }`, or `( … )` with `subshell` set: its variables are not visible outside."""

    at: int
    body: Sequence
    subshell: bool
    redirects: tuple[Redirect, ...] = ()


class If(NamedTuple):
    """The arms, each a condition and its body, and the body of `else`."""

    at: int
    arms: tuple[tuple[Sequence, Sequence], ...]
    otherwise: Sequence | None


class Loop(NamedTuple):
    """`while` and `until` have a condition; `for NAME in words` has a name (words None: `"$@"`)."""

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


class Arithmetic(NamedTuple):
    """`(( … ))`, as text."""

    at: int
    text: str


class Function(NamedTuple):
    """`name() body`."""

    at: int
    name: str
    body: Node


Node: TypeAlias = SimpleCommand | Sequence | Group | If | Loop | Case | Test | Arithmetic | Function


class Script(NamedTuple):
    """The commands, the here-documents by index, and notes (offset, sentence) on likely mistakes."""

    commands: Sequence
    documents: tuple[Word, ...]
    notes: tuple[tuple[int, str], ...] = ()


def nested_commands(node: Node) -> list[Node]:
    """Return the commands directly inside a compound command."""
    match node:
        case Sequence():
            return [inner for _, inner in node.items]
        case Group() | Function():
            return [node.body]
        case If():
            parts = [part for arm in node.arms for part in arm]
            return [*parts, node.otherwise] if node.otherwise else [*parts]
        case Loop():
            return [node.body, node.condition] if node.condition else [node.body]
        case Case():
            return [body for _, body in node.arms]
        case SimpleCommand() | Test() | Arithmetic():
            return []
