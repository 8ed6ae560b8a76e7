"""Shell scripts followed, never run: what each launch line will be given, as far as that is decidable.

A script is followed as if it were started without arguments, and as if a variable with a default in it
(`${NNODES:-1}`) were not set outside; `Followed.assumed` names these. Where a condition cannot be decided,
both ways are followed, and a variable that differs afterwards is unknown, with the line it depends on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias

from envcheck.core.facts import Tri
from envcheck.training_config.readers import shell
from envcheck.training_config.readers.shell import (
    Case,
    Expansion,
    Function,
    Group,
    If,
    Loop,
    Node,
    Positions,
    Sequence,
    Simple,
    Substitution,
    Sum,
    Test,
    Text,
    Word,
)

MAX_STEPS = 4_000_000
"""How much following may cost: pieces of values handled. A script of 5 MB takes a quarter of it."""

MAX_CALLS = 20
"""How deep functions, `eval` and `bash -c` may call one another."""


class Argument(NamedTuple):
    """One word of a command line, where the author wrote its beginning.

    `why` says what only running the script would tell of it (`text` then holds the script's spelling);
    `many` that it may become any number of words, or none.
    """

    text: str
    at: int
    why: str = ""
    many: bool = False


class Command(NamedTuple):
    """A command that starts one of the programs asked for, with the exported variables asked for."""

    words: tuple[Argument, ...]
    environment: Mapping[str, Argument]
    at: int


class Followed(NamedTuple):
    """What following a script found.

    `files` are those it writes with a text of its own, by name. `assumed` are variables taken as not set
    outside the script, "@" for its arguments. `notes` are (offset, sentence).
    """

    commands: tuple[Command, ...]
    files: Mapping[str, Argument]
    assumed: frozenset[str]
    notes: tuple[tuple[int, str], ...]


class TooLongError(Exception):
    """Following the script costs more than any author means."""


def follow(text: str, starts: Callable[[tuple[Argument, ...]], bool], exported: frozenset[str]) -> Followed:
    """The commands of a script for which `starts` says yes; `exported` are the variables wanted of each.

    Raises:
        shell.NotAScriptError: the text is no shell script.
        TooLongError: its variables grow or its functions call one another without end.
    """
    script = shell.parse(text)
    following = _Following(Positions(text), starts, exported, script)
    following.run(script.commands, _Scope())
    return Followed(
        tuple(following.commands),
        following.files,
        frozenset(following.assumed),
        (*script.notes, *following.notes),
    )


# --- values -----------------------------------------------------------------------------------------


class _Bit(NamedTuple):
    """A run of characters of a value; unknown if it has a reason."""

    text: str
    at: int
    why: str = ""
    loose: bool = False  # unknown and not quoted: it may become several words
    unset: str = ""  # name of the variable that is not set in the script


_Value: TypeAlias = tuple[_Bit, ...]
_Variable: TypeAlias = "_Value | list[_Value] | None"  # None: not set


def _certain(value: _Value) -> str | None:
    return None if any(bit.why for bit in value) else "".join(bit.text for bit in value)


def _same(one: _Variable, other: _Variable) -> bool:
    def plain(value: _Variable) -> object:
        if isinstance(value, list):
            return [plain(each) for each in value]
        return (
            value
            if value is None
            else ("".join(bit.text for bit in value), [bit.why for bit in value if bit.why])
        )

    return plain(one) == plain(other)


class _Scope:
    """Variables over those of an outer scope. `over` is how it ended: "", "exit" or "return"."""

    def __init__(self, outer: _Scope | None = None) -> None:
        self.outer = outer
        self.here: dict[str, _Variable] = {}
        self.arguments: list[_Value] | None = outer.arguments if outer else None
        self.hidden: str = (
            outer.hidden if outer else ""
        )  # why a variable that is not in the script may be set
        self.over = ""

    def get(self, name: str) -> _Variable:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.here:
                return scope.here[name]
            scope = scope.outer
        return None

    def names(self) -> set[str]:
        """Every variable that is set or was."""
        found: set[str] = set()
        scope: _Scope | None = self
        while scope is not None:
            found |= scope.here.keys()
            scope = scope.outer
        return found

    def absorb(self, inner: _Scope) -> None:
        """Take over what an inner scope set."""
        self.here.update(inner.here)
        self.hidden, self.arguments, self.over = inner.hidden, inner.arguments, inner.over


class _Body(NamedTuple):
    """What may be followed, with what is already set there."""

    node: Node
    preset: tuple[tuple[str, _Variable], ...] = ()


# --- following --------------------------------------------------------------------------------------

_ASSIGNS = re.compile(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=")
_DECLARES = frozenset({"export", "declare", "local", "readonly", "typeset"})
_PREFIXES = frozenset({
    "nohup", "time", "exec", "env", "nice", "ionice", "taskset", "numactl", "stdbuf", "setsid", "timeout",
    "sudo", "command", "builtin", "srun", "mpirun", "mpiexec", "uv", "poetry", "pipenv", "pdm", "conda",
    "mamba", "micromamba", "singularity", "apptainer", "docker", "xvfb-run", "unbuffer", "nsys", "ncu",
    "strace", "pdsh", "ssh", "tmux", "screen", "run",
})  # fmt: skip
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_SETS_UP = ("activate", "bashrc", "profile", "conda.sh", "modules.sh", "lmod.sh", "setvars.sh")
_OF_THE_JOB = re.compile(
    r"(?:SLURM|PBS|LSB|OMPI|PMI|KUBERNETES)\w*|HOME|USER|HOSTNAME|PATH|RANDOM|SECONDS|UID|HOST"
)
_SELF = re.compile(r"\$\{?(?:0|BASH_SOURCE)\b")
_SHOWN = 48
"""Characters of a substitution that are quoted in a reason."""


def base(word: str) -> str:
    """The program's name in a path to it."""
    return word.rpartition("/")[2]


class _Following:
    def __init__(
        self,
        line_of: Positions,
        starts: Callable[[tuple[Argument, ...]], bool],
        exported: frozenset[str],
        script: shell.Script,
    ) -> None:
        self.line_of, self.starts, self.exported = line_of, starts, exported
        self.documents = script.documents
        self.functions: dict[str, Node] = {}
        self.commands: list[Command] = []
        self.files: dict[str, Argument] = {}
        self.assumed: set[str] = set()
        self.notes: list[tuple[int, str]] = []
        self.calls = 0
        self.steps = 0

    def spend(self, steps: int) -> None:
        self.steps += steps
        if self.steps > MAX_STEPS:
            raise TooLongError

    def line(self, at: int) -> int:
        return self.line_of(at)[0]

    # --- commands; a status is None for what is taken to succeed -------------------------------------

    def run(self, sequence: Sequence, scope: _Scope) -> Tri | None:
        status: Tri | None = Tri.YES
        for operator, node in sequence.items:
            if scope.over:
                return status
            if operator == "&&" and status is Tri.NO:
                continue
            if operator == "||" and status in (Tri.YES, None):
                continue
            if operator in ("&&", "||") and status is Tri.MAYBE:
                at = 0 if isinstance(node, Sequence) else node.at
                self.alternatives([_Body(node)], scope, at, complete=False)
                continue
            status = self.node(node, _Scope(scope) if operator == "|" else scope)
        return status

    def node(self, node: Node, scope: _Scope) -> Tri | None:
        self.spend(1)
        status: Tri | None = None
        match node:
            case Simple():
                status = self.simple(node, scope)
            case Sequence():
                status = self.run(node, scope)
            case Group():
                status = self.run(node.body, _Scope(scope) if node.apart else scope)
            case If():
                status = self.if_(node, scope)
            case Loop():
                self.loop(node, scope)
            case Case():
                self.case(node, scope)
            case Test():
                status = _Condition(self, scope, node.words).answer()
            case Sum():
                status = self.sum(node, scope)
            case Function():
                self.functions[node.name] = node.body
        return status

    def alternatives(self, bodies: list[_Body], scope: _Scope, at: int, *, complete: bool) -> None:
        """Follow each body apart; what differs afterwards depends on this line.

        Unless `complete`, none of them may be what happens.
        """
        ends = []
        for body in bodies:
            end = _Scope(scope)
            end.here.update(body.preset)
            self.node(body.node, end)
            ends.append(end)
        if not complete:
            ends.append(_Scope(scope))
        going_on = [end for end in ends if not end.over]
        if not going_on:
            scope.over = ends[0].over
            return
        for name in dict.fromkeys(name for end in going_on for name in end.here):
            values = [end.get(name) for end in going_on]
            self.spend(len(values))
            first = values[0]
            if not all(_same(first, each) for each in values[1:]):
                first = (_Bit(f"${name}", at, f"${name} depends on line {self.line(at)}", loose=True),)
            scope.here[name] = first
        scope.hidden = next((end.hidden for end in going_on if end.hidden), "")

    def chosen(
        self, bodies: list[_Body], taken: int, scope: _Scope, at: int, *, complete: bool
    ) -> Tri | None:
        """Follow the body that is decided; if it only gives up, the others are what the author means."""
        launched = len(self.commands)
        inner = _Scope(scope)
        status = self.node(bodies[taken].node, inner)
        if inner.over == "exit" and len(self.commands) == launched:
            rest = bodies[:taken] + bodies[taken + 1 :]
            self.alternatives(rest, scope, at, complete=complete and bool(rest))
            return Tri.MAYBE
        scope.absorb(inner)
        return status

    def if_(self, node: If, scope: _Scope) -> Tri | None:
        bodies = [_Body(body) for _, body in node.arms]
        complete = node.otherwise is not None
        if node.otherwise is not None:
            bodies.append(_Body(node.otherwise))
        possible: list[int] = []
        for number, (condition, _) in enumerate(node.arms):
            status = self.run(condition, scope)
            if status is Tri.YES and not possible:
                return self.chosen(bodies, number, scope, node.at, complete=complete)
            if status is not Tri.NO:
                possible.append(number)
            if status is Tri.YES:
                self.alternatives([bodies[each] for each in possible], scope, node.at, complete=True)
                return Tri.MAYBE
        if not possible:
            if not complete:
                return Tri.YES
            # An `else` that only gives up leaves the arms above, and nothing besides them.
            return self.chosen(bodies, len(bodies) - 1, scope, node.at, complete=True)
        last = [bodies[-1]] if complete else []
        self.alternatives([*(bodies[each] for each in possible), *last], scope, node.at, complete=complete)
        return Tri.MAYBE

    def case(self, node: Case, scope: _Scope) -> None:
        bodies = [_Body(body) for _, body in node.arms]
        value = _certain(self.joined(node.word, scope, asked=True))
        matches = [
            max((self.matches(value, pattern, scope) for pattern in patterns), default=Tri.NO)
            for patterns, _ in node.arms
        ]
        complete = any(pattern.bare == "*" for patterns, _ in node.arms for pattern in patterns)
        taken = next((number for number, each in enumerate(matches) if each is not Tri.NO), -1)
        if value is None or (taken >= 0 and matches[taken] is Tri.MAYBE):
            self.alternatives(bodies, scope, node.at, complete=complete)
        elif taken >= 0:
            self.chosen(bodies, taken, scope, node.at, complete=complete)

    def matches(self, value: str | None, pattern: Word, scope: _Scope) -> Tri:
        wanted = _certain(self.joined(pattern, scope))
        if value is None or wanted is None:
            return Tri.YES if pattern.bare == "*" else Tri.MAYBE
        return Tri.of(_fits(value, wanted, pattern))

    def loop(self, node: Loop, scope: _Scope) -> None:
        many = f"the loop of line {self.line(node.at)}"
        inner = _Scope(scope)
        sure = False
        if node.condition is not None:
            status = self.run(node.condition, _Scope(scope))
            if status is (Tri.YES if node.until else Tri.NO):
                return
        else:
            words = self.fields(node.words, scope) if node.words is not None else self.arguments(scope)
            if not words:
                return
            if len(words) == 1 and not words[0][0].loose:
                scope.here[node.name] = words[0]
                self.node(node.body, scope)
                return
            sure = not any(word[0].loose for word in words)
            why = f"${node.name} takes several values in {many}"
            scope.here[node.name] = (_Bit(f"${node.name}", node.at, why, loose=True),)
        for name in _assigned(node.body, self.functions):
            if name != node.name and scope.get(name) is not None:
                inner.here[name] = (_Bit(f"${name}", node.at, f"${name} changes in {many}", loose=True),)
        self.alternatives([_Body(node.body, tuple(inner.here.items()))], scope, node.at, complete=sure)

    def sum(self, node: Sum, scope: _Scope) -> Tri:
        for found in _CHANGES.finditer(node.text):
            name = found.group(1) or found.group(2)
            scope.here[name] = self.unknown(
                node.at, f"${name}", f"${name} is counted in line {self.line(node.at)}"
            )
        if _CHANGES.search(node.text):
            return Tri.MAYBE
        value = self.worked_out(node.text, scope)
        return Tri.MAYBE if value is None else Tri.of(value != 0)

    # --- one command --------------------------------------------------------------------------------

    def simple(self, node: Simple, scope: _Scope) -> Tri | None:
        words = list(node.words)
        own = _Scope(scope)  # what stands before a command is set for it alone
        while words and (found := self.assignment(words[0])):
            self.assign(words.pop(0), found, own)
        if not words:
            scope.absorb(own)
            return Tri.YES
        name = words[0].bare
        if name in _DECLARES:
            return self.declare(words[1:], scope)
        if name in ("[", "test"):
            inner = words[1:-1] if name == "[" else words[1:]
            return _Condition(self, scope, tuple(inner)).answer()
        fields = [field for word in words for field in self.fields((word,), scope)]
        return self.started(fields, node, scope, own.here)

    def assignment(self, word: Word) -> re.Match[str] | None:
        first = word.pieces[0] if word.pieces else None
        return _ASSIGNS.match(first.text) if isinstance(first, Text) and not first.quoted else None

    def assign(self, word: Word, found: re.Match[str], scope: _Scope) -> None:
        """`NAME=word`, `NAME+=word` or `NAME=( … )`."""
        name, index, plus = found.group(1), found.group(2), found.group(3)
        before = scope.get(name) if plus else None
        if word.array is not None:
            values = self.fields(word.array, scope)
            old = before if isinstance(before, list) else [before] if before else []
            scope.here[name] = [*old, *values]
            self.spend(len(old))
            return
        first = word.pieces[0]
        rest = (
            Text(first.text[found.end() :], first.at + found.end(), quoted=False)
            if isinstance(first, Text)
            else first
        )
        value = self.joined(word._replace(pieces=(rest, *word.pieces[1:])), scope)
        if index is not None:
            why = f"${name} is filled element by element"
            scope.here[name] = self.unknown(word.at, f"${{{name}}}", why)
        elif isinstance(before, list):
            scope.here[name] = [(*before[0], *value), *before[1:]] if before else [value]
        else:
            scope.here[name] = (*(before or ()), *value)
            self.spend(len(before or ()))

    def declare(self, words: list[Word], scope: _Scope) -> Tri:
        for word in words:
            found = self.assignment(word)
            if found:
                self.assign(word, found, scope)
        return Tri.YES

    def started(
        self, fields: list[_Value], node: Simple, scope: _Scope, own: Mapping[str, _Variable]
    ) -> Tri | None:
        """A command after expansion."""
        name = base(_certain(fields[0]) or "") if fields else ""
        launched = self.launcher_behind(fields) if name in _PREFIXES and name not in self.functions else 0
        if launched:
            given = {}
            for field in fields[1:launched]:
                pair = _ASSIGNS.match(field[0].text)
                if pair and not field[0].why:
                    given[pair.group(1)] = (field[0]._replace(text=field[0].text[pair.end() :]), *field[1:])
            status = self.started(fields[launched:], node, scope, {**own, **given})
            scope.over = scope.over or ("exit" if name == "exec" else "")
            return status
        if not fields:
            return None
        name = _certain(fields[0]) or ""
        if name in self.functions:
            return self.call(name, fields, scope)
        if base(name) in _SHELLS and len(fields) > 2 and self.given_text(fields):  # noqa: PLR2004
            return self.evaluated(self.given_text(fields), _Scope(scope))
        handler = getattr(self, f"do_{_BUILTINS.get(name, '')}", None)
        if handler:
            result: Tri | None = handler(fields, node, scope)
            return result
        self.writes(base(name), fields, node, scope)
        words = tuple(map(_argument, fields))
        if self.starts(words):
            environment = {
                key: _argument(value)
                for key in sorted(self.exported)
                if (value := _first(own.get(key) or scope.get(key)))
            }
            self.commands.append(Command(words, environment, words[0].at))
        elif name.startswith("--"):
            said = f"{name} begins a command of its own here: the one it was meant for has ended before"
            self.notes.append((fields[0][0].at, said))
        return None

    def launcher_behind(self, fields: list[_Value]) -> int:
        """The index of the program that a prefix such as nohup or srun starts; 0 if none is seen."""
        for number in range(1, min(len(fields), 60)):
            word = base(_certain(fields[number]) or "")
            if word in _SHELLS or word in _PREFIXES or word in self.functions:
                return number
            if self.starts(tuple(map(_argument, fields[number:]))):
                return number
        return 0

    def given_text(self, fields: list[_Value]) -> _Value:
        """The text behind `-c`."""
        for number, field in enumerate(fields[1:-1], 1):
            flag = _certain(field) or ""
            if flag.startswith("-") and not flag.startswith("--") and flag.endswith("c"):
                return fields[number + 1]
        return ()

    def evaluated(self, value: _Value, scope: _Scope) -> Tri | None:
        """A value run as a script of its own; what is unknown in it stays one opaque word."""
        self.calls += 1
        if self.calls > MAX_CALLS:
            raise TooLongError
        parts, origins, offset = [], [], 0
        for bit in value:
            name = f"_unknown_{len(scope.here)}_{offset}"
            if bit.why:
                scope.here[name] = (bit._replace(loose=True),)
            text = f"${{{name}}}" if bit.why else bit.text
            origins.append((offset, bit.at))
            parts.append(text)
            offset += len(text)
        self.spend(offset // 64 + len(parts))
        script = shell.parse("".join(parts), tuple(origins) or ((0, 0),))
        outer, self.documents = self.documents, script.documents
        status = self.run(script.commands, scope)
        self.documents = outer
        self.calls -= 1
        return status

    def call(self, name: str, fields: list[_Value], scope: _Scope) -> Tri | None:
        self.calls += 1
        if self.calls > MAX_CALLS:
            raise TooLongError
        inner = _Scope(scope)
        inner.arguments = fields[1:]
        status = self.node(self.functions[name], inner)
        self.calls -= 1
        over = inner.over
        inner.arguments = scope.arguments
        scope.absorb(inner)
        scope.over = "exit" if over == "exit" else ""
        return status

    # --- builtins -----------------------------------------------------------------------------------

    def do_eval(self, fields: list[_Value], node: Simple, scope: _Scope) -> Tri | None:
        del node
        space = (_Bit(" ", fields[0][0].at),)
        return self.evaluated(tuple(bit for field in fields[1:] for bit in (*field, *space)), scope)

    def do_exit(self, fields: list[_Value], node: Simple, scope: _Scope) -> Tri:
        del node
        scope.over = "return" if _certain(fields[0]) == "return" else "exit"
        return Tri.YES

    def do_true(self, fields: list[_Value], node: Simple, scope: _Scope) -> Tri:
        del fields, node, scope
        return Tri.YES

    def do_false(self, fields: list[_Value], node: Simple, scope: _Scope) -> Tri:
        """`false`; and `getopts`, which finds no option where no arguments are."""
        del node
        if _certain(fields[0]) == "getopts" and scope.arguments is None:
            self.assumed.add("@")
        return Tri.NO

    def do_unset(self, fields: list[_Value], node: Simple, scope: _Scope) -> Tri:
        del node
        for field in fields[1:]:
            scope.here[_certain(field) or ""] = None
        return Tri.YES

    def do_set(self, fields: list[_Value], node: Simple, scope: _Scope) -> Tri:
        del node
        marks = [number for number, field in enumerate(fields) if _certain(field) == "--"]
        if marks:
            scope.arguments = fields[marks[0] + 1 :]
        return Tri.YES

    def do_shift(self, fields: list[_Value], node: Simple, scope: _Scope) -> Tri:
        del node
        if scope.arguments is not None:
            count = _certain(fields[1]) if len(fields) > 1 else "1"
            scope.arguments = scope.arguments[int(count) :] if count and _PLACE.fullmatch(count) else None
        return Tri.YES

    def do_read(self, fields: list[_Value], node: Simple, scope: _Scope) -> Tri | None:
        names = [word for field in fields[1:] if _NAME.fullmatch(word := _certain(field) or "")]
        text = self.input(node, scope)
        whole = any(_certain(field) in ("-d", "-rd") for field in fields)
        for name in names:
            why = f"${name} is read in line {self.line(node.at)}"
            scope.here[name] = self.unknown(node.at, f"${name}", why)
        if names and whole and text is not None:
            scope.here[names[-1]] = _stripped(text)
        return None

    def do_source(self, fields: list[_Value], node: Simple, scope: _Scope) -> Tri | None:
        name = "".join(bit.text for field in fields[1:2] for bit in field)
        if not name.endswith(_SETS_UP):
            scope.hidden = f"may be set by {name}, which line {self.line(node.at)} reads"
            for known in scope.names():
                self.spend(1)
                why = f"${known} {scope.hidden}"
                scope.here[known] = (_Bit(f"${known}", node.at, why, loose=True),)
        return None

    def input(self, node: Simple, scope: _Scope) -> _Value | None:
        """What a command is given to read in the script itself."""
        for redirect in node.redirects:
            if redirect.document >= 0:
                return self.joined(self.documents[redirect.document], scope)
            if redirect.operator == "<<<":
                return self.joined(redirect.word, scope)
        return None

    def writes(self, program: str, fields: list[_Value], node: Simple, scope: _Scope) -> None:
        """Remember a file that `cat > FILE <<EOF`, `tee FILE <<EOF` or `echo … > FILE` writes."""
        into = [redirect.word for redirect in node.redirects if redirect.operator in (">", ">|")]
        names = [_certain(self.joined(word, scope)) for word in into]
        if program == "tee":
            names += [_certain(field) for field in fields[1:]]
        if program in ("cat", "tee"):
            text = self.input(node, scope)
        elif program in ("echo", "printf") and names:
            text = _echoed(fields)
        else:
            return
        for name in names:
            if name and text is not None:
                self.files[name] = _argument(text or (_Bit("", node.at),))

    # --- expansion ----------------------------------------------------------------------------------

    def fields(self, words: Iterable[Word], scope: _Scope) -> list[_Value]:
        """The words after expansion and splitting; none of them is without a bit."""
        found: list[_Value] = []
        for word in words:
            found += self.split(word, scope)
        self.spend(len(found))
        return found

    def split(self, word: Word, scope: _Scope) -> Iterator[_Value]:
        current: list[_Bit] = []
        nothing = False  # "$@" without arguments is no word, where "" is one
        for piece in word.pieces:
            if (
                isinstance(piece, Expansion)
                and piece.name
                and (several := self.elements(piece, scope)) is not None
            ):
                nothing = nothing or not several
                for number, element in enumerate(several):
                    if number and current:
                        yield tuple(current)
                        current = []
                    if piece.quoted:
                        current += element or (_Bit("", piece.at),)
                        continue
                    yield from self.spread(element, current)
                continue
            value = self.value(piece, scope)
            if piece.quoted or isinstance(piece, Text):
                current += value
            else:
                yield from self.spread(value, current)
        if current and not (nothing and not any(bit.text for bit in current)):
            yield tuple(current)

    def spread(self, value: _Value, current: list[_Bit]) -> Iterator[_Value]:
        """Split a value at its spaces; what is left over stays in `current`."""
        self.spend(len(value))
        for bit in value:
            if bit.why:
                current.append(bit._replace(loose=True))
                continue
            for found in _RUNS.finditer(bit.text):
                if not found.group().isspace():
                    current.append(bit._replace(text=found.group(), at=bit.at + found.start()))
                    self.spend(1)
                elif current:
                    yield tuple(current)
                    current.clear()

    def elements(self, piece: Expansion, scope: _Scope) -> list[_Value] | None:
        """The elements of `$@` or `${NAME[@]}`; None for what is one value."""
        if piece.operator not in ("", ":-", "-", ":+", "+"):
            return None
        if piece.name in ("@", "*"):
            given = self.arguments(scope)
        elif piece.name.endswith(("[@]", "[*]")):
            variable = scope.get(piece.name[:-3])
            given = variable if isinstance(variable, list) else [variable] if variable else []
            if variable is None:
                if not piece.operator:
                    return None
                self.assumed.add(piece.name[:-3])
        else:
            return None
        if piece.operator in (":+", "+"):
            return [self.operand(piece, scope)] if given else []
        return given or ([self.operand(piece, scope)] if piece.operand else [])

    def arguments(self, scope: _Scope) -> list[_Value]:
        """The arguments of the function this is in; of the script: none, and that is noted."""
        if scope.arguments is None:
            self.assumed.add("@")
        return scope.arguments or []

    def joined(self, word: Word, scope: _Scope, *, asked: bool = False) -> _Value:
        """A word as one value, not split: what an assignment or a condition gets."""
        found: list[_Bit] = []
        for piece in word.pieces:
            several = self.elements(piece, scope) if isinstance(piece, Expansion) and piece.name else None
            if several is not None:
                for number, element in enumerate(several):
                    found += (*((_Bit(" ", piece.at),) if number else ()), *element)
            else:
                found += self.value(piece, scope, asked=asked)
        self.spend(len(found))
        return tuple(found)

    def operand(self, piece: Expansion, scope: _Scope) -> _Value:
        return self.joined(Word(piece.operand, piece.at), scope)

    def unknown(self, at: int, source: str, why: str, *, unset: str = "") -> _Value:
        return (_Bit(source, at, why, loose=False, unset=unset),)

    def value(self, piece: shell.Piece, scope: _Scope, *, asked: bool = False) -> _Value:
        if isinstance(piece, Text):
            return (_Bit(piece.text, piece.at),)
        if isinstance(piece, Substitution):
            return self.substituted(piece, scope)
        if piece.operator == "<>":
            return self.unknown(piece.at, piece.source, f"{piece.source} is to be filled in")
        if piece.operator == "other" or piece.name.endswith("]"):
            return self.element(piece, scope)
        variable = self.variable(piece, scope, asked=asked)
        if isinstance(variable, list):
            if piece.operator == "#":
                return (_Bit(str(len(variable)), piece.at),)
            variable = variable[0] if variable else ()
        return self.defaulted(piece, variable, scope)

    def element(self, piece: Expansion, scope: _Scope) -> _Value:
        """`${NAME[0]}`, `${#NAME[@]}`; and what is not worked out here."""
        name, _, index = piece.name.rstrip("]").partition("[")
        variable = scope.get(name)
        if piece.operator != "other" and isinstance(variable, list):
            if (
                piece.operator == "#"
                and index in ("@", "*")
                and not any(bit.loose for each in variable for bit in each)
            ):
                return (_Bit(str(len(variable)), piece.at),)
            if not piece.operator and _WHOLE.fullmatch(index):
                return variable[int(index)] if -len(variable) <= int(index) < len(variable) else ()
        return self.unknown(
            piece.at, piece.source, f"{_short(piece.source)} is worked out only when the script runs"
        )

    def variable(self, piece: Expansion, scope: _Scope, *, asked: bool) -> _Variable:
        """What a name stands for; None if the script does not set it."""
        name = piece.name
        if _NAME.fullmatch(name):
            found = scope.get(name)
            return (_Bit(".", piece.at),) if found is None and name == "PWD" else found
        if scope.arguments is None:
            self.assumed.add("@")
        given = {str(place): value for place, value in enumerate(scope.arguments or (), 1)}
        given["#"] = (_Bit(str(len(given)), piece.at),)
        empty = scope.arguments is not None or asked or piece.operator not in ("", "#")
        if name in given or (_PLACE.fullmatch(name) and empty):
            return given.get(name)
        when = "is given when" if _PLACE.fullmatch(name) else "is known only when"
        return self.unknown(piece.at, piece.source, f"{_short(piece.source)} {when} the script runs")

    def defaulted(self, piece: Expansion, value: _Value | None, scope: _Scope) -> _Value:
        """A value by the operator behind its name."""
        operator, name = piece.operator, piece.name
        text = None if value is None else _certain(value)
        outside = f"${name} {scope.hidden}" if scope.hidden and not name.isdigit() else ""
        if _OF_THE_JOB.fullmatch(name):
            outside = f"${name} is set where the script runs"
        if value is None and outside:
            return self.unknown(piece.at, piece.source, outside)
        if operator == "#":
            why = f"{_short(piece.source)} is worked out only when the script runs"
            known = text is not None
            return (
                (_Bit(str(len(text or "")), piece.at),)
                if known
                else self.unknown(piece.at, piece.source, why)
            )
        missing = value is None or (text == "" and operator.startswith(":"))
        if value is None and operator[-1:] in ("-", "=", "+") and not name.isdigit():
            self.assumed.add(name)
        if operator in (":+", "+"):
            if missing:
                return ()
            return self.operand(piece, scope) if text is not None else value or ()
        if missing and operator[-1:] in ("-", "="):
            value = self.operand(piece, scope)
            if operator.endswith("="):
                scope.here[name] = value
        elif value is None:
            why = f"${name} is not set in the script"
            return self.unknown(piece.at, piece.source, why, unset=name)
        return value or ()

    def substituted(self, piece: Substitution, scope: _Scope) -> _Value:
        """`$(…)`: the here-document of a `cat`, the words of an `echo`, the script's folder; else unknown."""
        if piece.kind == "sum":
            number = self.worked_out(piece.inner, scope)
            if number is not None:
                return (_Bit(str(number), piece.at),)
        elif piece.kind == "command":
            if "dirname" in piece.inner and _SELF.search(piece.inner):
                if piece.inner.count("dirname") == 1 and ".." not in piece.inner:
                    return (_Bit(".", piece.at),)  # files are looked for beside the script first
            elif found := self.printed(piece, scope):
                return found
        return self.unknown(
            piece.at, piece.source, f"{_short(piece.source)} is known only when the script runs"
        )

    def printed(self, piece: Substitution, scope: _Scope) -> _Value | None:
        script = shell.parse(piece.inner, ((0, piece.at + piece.source.find(piece.inner)),))
        self.spend(len(piece.inner) // 64)
        if (
            len(script.commands.items) != 1
            or not isinstance(node := script.commands.items[0][1], Simple)
            or not node.words
        ):
            return None
        outer, self.documents = self.documents, script.documents
        name = node.words[0].bare
        found: _Value | None = None
        if name == "pwd" and len(node.words) == 1:
            found = (_Bit(".", piece.at),)
        elif name == "cat" and len(node.words) == 1:
            text = self.input(node, scope)
            found = _stripped(text) if text is not None else None
        elif name == "echo" and not node.redirects:
            found = _echoed(self.fields(node.words, scope))
        self.documents = outer
        return found

    def worked_out(self, text: str, scope: _Scope) -> int | None:
        """A sum in whole numbers, or None."""

        def of(name: str) -> int | None:
            variable = scope.get(name)
            value = None if isinstance(variable, list) or variable is None else _certain(variable)
            return int(value) if value and _WHOLE.fullmatch(value) else None

        try:
            return _Sum(text, of).answer()
        except (ValueError, ZeroDivisionError, OverflowError):
            return None


# --- small readings of values -----------------------------------------------------------------------

_NAME = re.compile(r"[A-Za-z_]\w*")
_RUNS = re.compile(r"\s+|\S+")
_PLACE = re.compile(r"[1-9][0-9]?")
_WHOLE = re.compile(r"-?[0-9]{1,18}")
_CHANGES = re.compile(r"([A-Za-z_]\w*)\s*(?:\+\+|--|[-+*/%]?=(?!=))|(?:\+\+|--)\s*([A-Za-z_]\w*)")
_BUILTINS = {
    "eval": "eval", "exit": "exit", "return": "exit", "true": "true", ":": "true", "false": "false",
    "getopts": "false", "unset": "unset", "set": "set", "shift": "shift", "read": "read", "mapfile": "read",
    "readarray": "read", "source": "source", ".": "source",
}  # fmt: skip


def _argument(value: _Value) -> Argument:
    why = next((bit.why for bit in value if bit.why), "")
    many = len(value) == 1 and value[0].loose
    return Argument("".join(bit.text for bit in value), value[0].at, why, many)


def _first(variable: _Variable) -> _Value | None:
    if isinstance(variable, list):
        return variable[0] if variable else None
    return variable or None


def _short(source: str) -> str:
    line = " ".join(source.split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"


def _stripped(value: _Value) -> _Value:
    """Without the blanks at both ends."""
    bits = list(value)
    while bits and not bits[0].why and not (text := bits[0].text.lstrip()):
        bits.pop(0)
    if bits and not bits[0].why:
        text = bits[0].text.lstrip()
        bits[0] = bits[0]._replace(text=text, at=bits[0].at + len(bits[0].text) - len(text))
    while bits and not bits[-1].why and not bits[-1].text.rstrip():
        bits.pop()
    if bits and not bits[-1].why:
        bits[-1] = bits[-1]._replace(text=bits[-1].text.rstrip())
    return tuple(bits)


def _echoed(fields: list[_Value]) -> _Value:
    words = [field for field in fields[1:] if _certain(field) not in ("-n", "-e", "-ne", "-en")]
    return tuple(
        bit
        for number, field in enumerate(words)
        for bit in (*((_Bit(" ", field[0].at),) if number else ()), *field)
    )


def _fits(value: str, wanted: str, pattern: Word) -> bool:
    """Whether a value matches a pattern, whose quoted parts stand for themselves."""
    if any(piece.quoted for piece in pattern.pieces) and not any(
        sign in piece.text
        for piece in pattern.pieces
        if isinstance(piece, Text) and not piece.quoted
        for sign in "*?["
    ):
        return value == wanted
    return fnmatchcase(value, wanted)


def _assigned(node: Node, functions: Mapping[str, Node]) -> set[str]:
    """Names that a command may set, in the functions it calls too."""
    found: set[str] = set()
    seen: set[str] = set()
    todo: list[Node] = [node]
    while todo:
        each = todo.pop()
        if isinstance(each, Simple):
            found |= _set_by(each)
            name = each.words[0].bare if each.words else ""
            if name in functions and name not in seen:
                seen.add(name)
                todo.append(functions[name])
        elif isinstance(each, Sum):
            found |= {pair.group(1) or pair.group(2) for pair in _CHANGES.finditer(each.text)}
        elif isinstance(each, Loop):
            found.add(each.name)
        todo += _inside(each)
    return found


def _set_by(command: Simple) -> set[str]:
    found = set()
    for word in command.words:
        first = word.pieces[0] if word.pieces else None
        pair = _ASSIGNS.match(first.text) if isinstance(first, Text) else None
        if pair:
            found.add(pair.group(1))
    if command.words and command.words[0].bare in ("read", "mapfile", "readarray", "unset"):
        found |= {word.bare for word in command.words[1:]}
    return found


def _inside(node: Node) -> list[Node]:
    """The commands right inside a compound one."""
    match node:
        case Sequence():
            return [inner for _, inner in node.items]
        case Group() | Function():
            return [node.body]
        case If():
            arms = [part for arm in node.arms for part in arm]
            return [*arms, node.otherwise] if node.otherwise else [*arms]
        case Loop():
            return [node.body, node.condition] if node.condition else [node.body]
        case Case():
            return [body for _, body in node.arms]
        case Simple() | Test() | Sum():
            return []


# --- conditions and sums ----------------------------------------------------------------------------

_UNARY = frozenset({"-z", "-n"})
_OF_FILES = frozenset("-" + letter for letter in "abcdefghkoprstuvwxGLNORS")
_COMPARES = {"-eq": "==", "-ne": "!=", "-lt": "<", "-le": "<=", "-gt": ">", "-ge": ">="}


class _Condition:
    """`[ … ]` and `[[ … ]]` in three-valued logic."""

    def __init__(self, following: _Following, scope: _Scope, words: tuple[Word, ...]) -> None:
        self.following, self.scope, self.words = following, scope, words
        self.i = 0

    def answer(self) -> Tri:
        return self.either()

    def next(self) -> str:
        return self.words[self.i].bare if self.i < len(self.words) else ""

    def either(self) -> Tri:
        found = self.both()
        while self.next() in ("||", "-o"):
            self.i += 1
            found = max(found, self.both())
        return found

    def both(self) -> Tri:
        found = self.term()
        while self.next() in ("&&", "-a"):
            self.i += 1
            found = min(found, self.term())
        return found

    def term(self) -> Tri:
        turned = False
        while self.next() == "!" and self.i + 1 < len(self.words):
            self.i += 1
            turned = not turned
        found = self.one()
        return found.negated() if turned else found

    def one(self) -> Tri:
        if self.i >= len(self.words):
            return Tri.NO
        word = self.take()
        operator, more = word.bare, self.i < len(self.words)
        if operator == "(":
            # Parentheses in conditions are rare, and what stands in them is left open.
            while self.i < len(self.words) and self.take().bare != ")":
                pass
            return Tri.MAYBE
        if self.next() in _BINARY and self.i + 1 < len(self.words):
            return self.compared(word, self.take().bare, self.take())
        if operator in _OF_FILES and more:
            self.take()
            return Tri.MAYBE
        empty = operator == "-z"
        text = self.text(self.take() if operator in _UNARY and more else word)
        return Tri.MAYBE if text is None else Tri.of((text == "") == empty)

    def take(self) -> Word:
        self.i += 1
        return self.words[self.i - 1]

    def text(self, word: Word, *, empty: bool = True) -> str | None:
        """A word's text: `$1` is empty, and so is a variable nobody sets, where that is what is asked."""
        value = self.following.joined(word, self.scope, asked=True)
        for bit in value:
            if bit.unset and (empty or bit.unset.isdigit()):
                self.following.assumed.add("@" if bit.unset.isdigit() else bit.unset)
        return _certain(tuple(bit for bit in value if not bit.unset or not (empty or bit.unset.isdigit())))

    def compared(self, left: Word, operator: str, right: Word) -> Tri:
        wanted = self.text(right)
        if operator in _COMPARES:
            one, other = (self.number(each) for each in (left, right))
            if one is None or other is None:
                return Tri.MAYBE
            return Tri.of(bool(_ANSWERS[_COMPARES[operator]](one, other)))
        if operator not in ("=", "==", "!=") or wanted is None:
            return Tri.MAYBE
        # An unset variable is empty; whether the author means it to be set outside is another matter.
        value = self.text(left, empty=wanted == "")
        if value is None:
            return Tri.MAYBE
        return Tri.of(_fits(value, wanted, right) == (operator != "!="))

    def number(self, word: Word) -> int | None:
        text = self.text(word, empty=False)
        return int(text) if text and _WHOLE.fullmatch(text) else None


_BINARY = frozenset({"=", "==", "!=", "=~", "<", ">", *_COMPARES})
_ANSWERS: Mapping[str, Callable[[int, int], int | bool]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b, "+": lambda a, b: a + b, "-": lambda a, b: a - b,
    "*": lambda a, b: a * b, "/": lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1),
    "%": lambda a, b: a - b * (abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)),
}  # fmt: skip
_BINDS = ({"==", "!="}, {"<", "<=", ">", ">="}, {"+", "-"}, {"*", "/", "%"})
_SIGNS = re.compile(r"\s*(?:(\d{1,18})|\$?\{?([A-Za-z_]\w*)\}?|([=!<>]=|[-+*/%<>()]))\s*")
_LONGEST_SUM = 200


class _Sum:
    """`$(( … ))` in whole numbers; ValueError for what is none."""

    def __init__(self, text: str, of: Callable[[str], int | None]) -> None:
        if len(text) > _LONGEST_SUM:
            raise ValueError(text)
        self.of = of
        self.signs: list[str] = []
        at = 0
        while at < len(text):
            found = _SIGNS.match(text, at)
            if not found:
                raise ValueError(text)
            self.signs.append(next(each for each in found.groups() if each))
            at = found.end()
        self.i = 0

    def answer(self) -> int:
        found = self.level(0)
        if self.i < len(self.signs):
            raise ValueError(self.signs[self.i])
        return int(found)

    def level(self, level: int) -> int:
        if level == len(_BINDS):
            return self.one()
        found = self.level(level + 1)
        while self.i < len(self.signs) and self.signs[self.i] in _BINDS[level]:
            sign = self.signs[self.i]
            self.i += 1
            found = int(_ANSWERS[sign](found, self.level(level + 1)))
        return found

    def one(self) -> int:
        if self.i >= len(self.signs):
            raise ValueError("end")
        sign = self.signs[self.i]
        self.i += 1
        if sign == "(":
            found = self.level(0)
            if self.signs[self.i : self.i + 1] != [")"]:
                raise ValueError(sign)
            self.i += 1
            return found
        if sign == "-":
            return -self.one()
        if sign.isdigit():
            return int(sign)
        value = self.of(sign) if _NAME.fullmatch(sign) else None
        if value is None:
            raise ValueError(sign)
        return value
