"""Expansion: the values of words, with variables, defaults, substitutions and splitting at spaces."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Sequence

from envcheck.core.patterns import pattern
from envcheck.training_config.launch_scripts import arithmetic
from envcheck.training_config.launch_scripts.parser import parse
from envcheck.training_config.launch_scripts.session import Session
from envcheck.training_config.launch_scripts.syntax import (
    Expansion,
    Node,
    NotAScriptError,
    Piece,
    SimpleCommand,
    Substitution,
    Text,
    Word,
)
from envcheck.training_config.launch_scripts.values import (
    NAME,
    PRINTED,
    WHOLE_NUMBER,
    Fragment,
    Scope,
    Value,
    Variable,
    echoed,
    joined_by_spaces,
    known_text,
    shortened,
    stripped,
    unknown,
)

POSITION = pattern(r"[1-9][0-9]?")
"""The number of an argument: `$1`."""

_TEMPLATE = pattern(r"X{3,}(?!.*XXX)")
_MAX_PRINTED = 10_000  # characters of a file that `$(cat FILE)` prints
_END = "END_OF_NUMBER"
_EXPANDED = pattern(r"\$\{\W|\$\{\w+[^\w}]|\$\(")
"""The beginning of what arithmetic itself does not compute."""

_VARIABLE = pattern(r"\"?\$\{?([A-Za-z_]\w*)\}?\"?")
_RUNS = pattern(r"\s+|\S+")
_SLICE = pattern(r":\s*([0-9]{1,4})(?:\s*:\s*([0-9]{1,4}))?")
_MORE_ARGUMENTS = pattern(r"(?i)(?:args|arguments|opts|options|flags|params|overrides?|extras?)_?$")
"""Names of variables with further arguments; one that is not set adds none."""

_SET_BY_THE_JOB = pattern(
    r"(?:SLURM|PBS|LSB|OMPI|PMI|KUBERNETES)\w*|HOME|USER|HOSTNAME|PATH|RANDOM|SECONDS|UID|HOST"
)
_OWN_PATH = pattern(r"\$\{?(?:0|BASH_SOURCE)\b")
_FOLDER = "."  # the script's own folder, and the current one: files are looked up beside the script first


class Expander:
    """Computes words in a scope."""

    def __init__(self, session: Session) -> None:
        """Use the state of a session, which expansion reads and updates."""
        self.session = session

    # --- words --------------------------------------------------------------------------------------

    def fields(self, words: Iterable[Word], scope: Scope) -> list[Value]:
        """Return the words after expansion and splitting; each has at least one fragment."""
        found: list[Value] = []
        for word in words:
            found += self._split(word, scope)
        self.session.spend(len(found))
        return found

    def joined(self, word: Word, scope: Scope, *, in_condition: bool = False) -> Value:
        """Return a word as one unsplit value, as in an assignment or a condition.

        In a condition `$1` counts as empty: scripts are followed as if started without arguments.
        """
        found: list[Fragment] = []
        for piece in word.pieces:
            elements = self._elements(piece, scope)
            if elements is not None:
                found += joined_by_spaces(elements, piece.at)
            else:
                found += self._value(piece, scope, in_condition=in_condition)
        self.session.spend(len(found))
        return tuple(found)

    def arguments(self, scope: Scope) -> list[Value]:
        """Return the arguments of the function being followed; assume that the script itself has none."""
        if scope.arguments is None:
            self.session.assumed.add("@")
        return scope.arguments or []

    def standard_input(self, command: SimpleCommand, scope: Scope) -> Value | None:
        """Return the text that a here-document or `<<<` passes to a command as standard input, or None."""
        for redirect in command.redirects:
            if redirect.document >= 0:
                return self.joined(self.session.documents[redirect.document], scope)
            if redirect.operator == "<<<":
                return self.joined(redirect.word, scope)
        return None

    def number(self, text: str, scope: Scope) -> int | None:
        """Return the value of an arithmetic expression, or None if it is not known."""

        def variable(name: str) -> int | None:
            if name == "#":
                return None if scope.arguments is None else len(scope.arguments)
            value = scope.get(name)
            held = None if isinstance(value, list) or value is None else known_text(value)
            return int(held) if held and WHOLE_NUMBER.fullmatch(held) else None

        return arithmetic.evaluate(self._without_expansions(text, scope), variable)

    def _without_expansions(self, text: str, scope: Scope) -> str:
        """Return an arithmetic expression with the values of `${#NAME[@]}`, `${NAME:-1}` and `$(command)`."""
        if not _EXPANDED.search(text) or _END in text:
            return text
        try:
            script = parse(f"cat <<{_END}\n{text}\n{_END}\n", ((0, 0),))
        except NotAScriptError:
            return text
        with self.session.call():
            words = [known_text(self.joined(document, scope)) for document in script.documents[:1]]
        return (words[0] if words else None) or text

    # --- splitting ----------------------------------------------------------------------------------

    def _split(self, word: Word, scope: Scope) -> Iterator[Value]:
        """Yield the words that one word becomes."""
        current: list[Fragment] = []
        no_elements = False  # "$@" without arguments gives no word, while "" gives one
        for piece in word.pieces:
            elements = self._elements(piece, scope)
            if elements is not None:
                no_elements = no_elements or not elements
                yield from self._split_elements(elements, piece, current)
            elif piece.quoted or isinstance(piece, Text):
                current += _as_one_word(self._value(piece, scope))
            else:
                yield from self._split_at_spaces(self._value(piece, scope), current)
        if current and not (no_elements and not any(fragment.text for fragment in current)):
            yield tuple(current)

    def _split_elements(
        self, elements: list[Value], piece: Piece, current: list[Fragment]
    ) -> Iterator[Value]:
        """Yield a word for each element; the last one stays in `current`."""
        for number, element in enumerate(elements):
            if number and current:
                yield tuple(current)
                current.clear()
            if piece.quoted:
                current += element or (Fragment("", piece.at),)
            else:
                yield from self._split_at_spaces(element, current)

    def _split_at_spaces(self, value: Value, current: list[Fragment]) -> Iterator[Value]:
        """Yield the words of a value; what follows the last space stays in `current`."""
        self.session.spend(len(value))
        for fragment in value:
            if fragment.why:
                current.append(fragment._replace(splits=True))
                continue
            for found in _RUNS.finditer(fragment.text):
                if not found.group().isspace():
                    current.append(fragment._replace(text=found.group(), at=fragment.at + found.start()))
                    self.session.spend(1)
                elif current:
                    yield tuple(current)
                    current.clear()

    # --- variables ----------------------------------------------------------------------------------

    def _elements(self, piece: Piece, scope: Scope) -> list[Value] | None:
        """Return the elements of `$@` or `${NAME[@]}`; None for any other piece, which is one value."""
        if not isinstance(piece, Expansion) or piece.operator not in ("", ":-", "-", ":+", "+", "other"):
            return None
        if piece.operator == "other":
            return self._slice(piece, scope)
        if piece.name in ("@", "*"):
            elements = self.arguments(scope)
        elif piece.name.endswith(("[@]", "[*]")):
            variable = scope.get(piece.name[:-3])
            elements = variable if isinstance(variable, list) else [variable] if variable else []
            if variable is None:
                if not piece.operator:
                    return None
                self.session.assumed.add(piece.name[:-3])
        else:
            return None
        if piece.operator in (":+", "+"):
            return list(self._split(Word(piece.operand, piece.at), scope)) if elements else []
        return elements or ([self._operand(piece, scope)] if piece.operand else [])

    def _slice(self, piece: Expansion, scope: Scope) -> list[Value] | None:
        """Return the elements of `${@:2}` or `${NAME[@]:0:3}`; None if the numbers are not known."""
        bounds = _SLICE.fullmatch(known_text(self._operand(piece, scope)) or "")
        whole = self._elements(piece._replace(operator="", operand=()), scope) if bounds else None
        if bounds is None or whole is None:
            return None
        first = int(bounds.group(1))
        if not piece.name.endswith("]"):  # arguments are numbered from 1; 0 is the script's own name
            first -= 1
            if first < 0:
                return None
        return whole[first : first + int(bounds.group(2)) if bounds.group(2) else None]

    def _value(self, piece: Piece, scope: Scope, *, in_condition: bool = False) -> Value:
        """Return the value of one piece that is not a list of elements."""
        if isinstance(piece, Text):
            return (Fragment(piece.text, piece.at),)
        if isinstance(piece, Substitution):
            return self._substitution(piece, scope)
        if piece.operator == "<>":
            return unknown(piece.at, piece.source, f"{piece.source} is a placeholder")
        if piece.operator == "other" or piece.name.endswith("]"):
            return self._element(piece, scope)
        variable = self._variable(piece, scope, in_condition=in_condition)
        if isinstance(variable, list):
            if piece.operator == "#":
                return (Fragment(str(len(variable)), piece.at),)
            variable = variable[0] if variable else ()
        return self._with_operator(piece, variable, scope)

    def _operand(self, piece: Expansion, scope: Scope) -> Value:
        return self.joined(Word(piece.operand, piece.at), scope)

    def _element(self, piece: Expansion, scope: Scope) -> Value:
        """Return `${NAME[0]}` or `${#NAME[@]}`; any expansion that is not computed here is unknown."""
        name, _, index = piece.name.rstrip("]").partition("[")
        variable = scope.get(name)
        if not isinstance(variable, list) and not piece.operator:
            element = scope.get(f"{name}[{self.index(index, scope)}]")
            if isinstance(element, tuple):
                return element
        if piece.operator != "other" and isinstance(variable, list):
            certain = not any(fragment.splits for element in variable for fragment in element)
            if piece.operator == "#" and index in ("@", "*") and certain:
                return (Fragment(str(len(variable)), piece.at),)
            if not piece.operator and WHOLE_NUMBER.fullmatch(index):
                return variable[int(index)] if -len(variable) <= int(index) < len(variable) else ()
        if piece.operator == "other" and not index and isinstance(variable, tuple):
            return self._edited(piece, variable, scope)
        return _computed_at_run_time(piece)

    def _edited(self, piece: Expansion, value: Value, scope: Scope) -> Value:
        """Return `${NAME%ending}`, `${NAME//a/b}`, `${NAME,,}` and the like."""
        from envcheck.training_config.launch_scripts.text_edits import edited

        text, operation = known_text(value), known_text(self._operand(piece, scope))
        result = None if text is None or operation is None else edited(text, operation)
        return _computed_at_run_time(piece) if result is None else (Fragment(result, piece.at),)

    def index(self, text: str, scope: Scope) -> str:
        """Return the index of an element with the values of variables in it; "?" if it is not known."""
        found = _VARIABLE.fullmatch(text)
        if found is None:
            return "?" if "$" in text else text.strip("\"'")
        value = scope.get(found.group(1))
        return (known_text(value) if isinstance(value, tuple) else None) or "?"

    def _variable(self, piece: Expansion, scope: Scope, *, in_condition: bool) -> Variable:
        """Return the variable or argument that a name stands for; None if the script does not set it."""
        name = piece.name
        if NAME.fullmatch(name):
            found = scope.get(name)
            return (Fragment(_FOLDER, piece.at),) if found is None and name == "PWD" else found
        if scope.arguments is None:
            self.session.assumed.add("@")
        given = {str(position): value for position, value in enumerate(scope.arguments or (), 1)}
        given["#"] = (Fragment(str(len(given)), piece.at),)
        is_position = POSITION.fullmatch(name) is not None
        may_be_missing = scope.arguments is not None or in_condition or piece.operator not in ("", "#")
        if name in given or (is_position and may_be_missing):
            return given.get(name)
        when = "is given when" if is_position else "is known only when"
        return unknown(piece.at, piece.source, f"{shortened(piece.source)} {when} the script runs")

    # --- operators of ${NAME…} ----------------------------------------------------------------------

    def _with_operator(  # noqa: PLR0911 - one for each operator
        self, piece: Expansion, value: Value | None, scope: Scope
    ) -> Value:
        """Apply the operator after a name to the value of the variable, which is None if it is not set."""
        operator, name = piece.operator, piece.name
        if value is None and (reason := self._set_elsewhere(name, scope)):
            return unknown(piece.at, piece.source, reason)
        if operator == "#":
            return _length(piece, value)
        if value is None and operator[-1:] in ("-", "=", "+") and not name.isdigit():
            self.session.assumed.add(name)
        missing = value is None or (operator.startswith(":") and known_text(value) == "")
        if operator in (":+", "+"):
            return () if missing or value is None else self._alternative(piece, value, scope)
        if missing and operator[-1:] in ("-", "="):
            return self._default(piece, scope)
        if value is None and name in self.session.own_names and _MORE_ARGUMENTS.search(name):
            self.session.assumed.add(name)
            return ()
        if value is None:
            return unknown(piece.at, piece.source, f"${name} is not set in the script", unset=name)
        return value

    def _alternative(self, piece: Expansion, value: Value, scope: Scope) -> Value:
        """Return `${NAME:+word}` of a variable that is set; an unknown value stays unknown."""
        return self._operand(piece, scope) if known_text(value) is not None else value

    def _default(self, piece: Expansion, scope: Scope) -> Value:
        """Return the word of `${NAME:-word}`; `${NAME:=word}` also sets the variable."""
        value = self._operand(piece, scope)
        if piece.operator.endswith("="):
            scope.variables[piece.name] = value
        return value

    def _set_elsewhere(self, name: str, scope: Scope) -> str:
        """Return why a variable that the script does not set may be set elsewhere, or "".

        One that the script sets in other cases, as from its options, is its own.
        """
        if _SET_BY_THE_JOB.fullmatch(name):
            return f"${name} is set where the script runs"
        elsewhere = scope.may_set and not name.isdigit() and name not in self.session.own_names
        return f"${name} {scope.may_set}" if elsewhere else ""

    # --- substitutions ------------------------------------------------------------------------------

    def _substitution(self, piece: Substitution, scope: Scope) -> Value:
        """Return an arithmetic result, the script's folder or what a simple command prints; else unknown."""
        if piece.kind == "sum":
            number = self.number(piece.inner, scope)
            if number is not None:
                return (Fragment(str(number), piece.at),)
        elif piece.kind == "command":
            if (found := self._printed(piece, scope)) is not None:
                return found
            own = "dirname" in piece.inner and _OWN_PATH.search(piece.inner)
            if own and piece.inner.count("dirname") == 1 and ".." not in piece.inner:
                return (Fragment(_FOLDER, piece.at),)
        reason = f"{shortened(piece.source)} is known only when the script runs"
        return unknown(piece.at, piece.source, reason)

    def _printed(  # noqa: PLR0911 - one for each kind of command
        self, piece: Substitution, scope: Scope
    ) -> Value | None:
        """Return what `pwd`, `cat <<EOF`, `echo` or a filter prints; None for any other command."""
        script = parse(piece.inner, ((0, piece.at + piece.source.find(piece.inner)),))
        self.session.spend(len(piece.inner) // 64)
        if len(script.commands.items) != 1:  # without commands: a comment in backquotes
            with self.session.inside(script):
                return self._of_several(script.commands.items, piece, scope) if script.commands.items else ()
        command = script.commands.items[0][1]
        if not isinstance(command, SimpleCommand) or not command.words:
            return None
        name = command.words[0].bare
        if name in self.session.functions:
            return self._printed_by_function(command, scope)
        with self.session.inside(script):
            if name == "pwd" and len(command.words) == 1:
                return (Fragment(_FOLDER, piece.at),)
            if name == "mktemp":
                return self._temporary(command, scope)
            if name == "cat" and len(command.words) == 1:
                text = self.standard_input(command, scope)
                return stripped(text) if text is not None else None
            if name == "echo" and not command.redirects:
                return echoed(self.fields(command.words, scope))
            return self._sorted_arguments(command, piece, scope) or self._filtered([command], piece, scope)

    def _temporary(self, command: SimpleCommand, scope: Scope) -> Value | None:
        """Return a name that `mktemp` may give a new file, with the end that it is asked for; else None."""
        words = [known_text(field) for field in self.fields(command.words[1:], scope)]
        if None in words:
            return None
        texts = [word for word in words if word]
        end = next((word.partition("=")[2] for word in texts if word.startswith("--suffix=")), "")
        template = next((word for word in reversed(texts) if _TEMPLATE.search(word)), "tmp.XXXXXX")
        return (Fragment(_TEMPLATE.sub(f"{command.at:06}", template) + end, command.at),)

    def _printed_by_function(self, command: SimpleCommand, scope: Scope) -> Value | None:
        """Return what a function of the script prints; what it sets stays in the shell that runs it.

        None if its output is already being read: what a function prints that calls itself is not known.
        """
        name = command.words[0].bare
        call = self.session.call_function
        if call is None or command.redirects or name in self.session.printing:
            return None
        inner = Scope(scope)
        inner.variables[PRINTED] = ()
        self.session.printing.add(name)
        try:
            call(name, self.fields(command.words, scope), inner)
        finally:
            self.session.printing.discard(name)
        found = inner.get(PRINTED)
        return stripped(found) if isinstance(found, tuple) else None

    def _sorted_arguments(self, command: SimpleCommand, piece: Substitution, scope: Scope) -> Value:
        """Return what `getopt … -- "$@"` prints for no arguments, which ends the options; else nothing."""
        if command.words[0].bare != "getopt":
            return ()
        last = self.fields(command.words, scope)[-1]
        return (Fragment("--", piece.at),) if known_text(last) == "--" else ()

    def _of_several(
        self, items: Sequence[tuple[str, Node]], piece: Substitution, scope: Scope
    ) -> Value | None:
        """Return what a pipe or `cd FOLDER && pwd` prints; None for any other commands."""
        if not all(operator == "|" for operator, _ in items[1:]):
            return self._changed_folder(items, piece, scope)
        return self._filtered([command for _, command in items], piece, scope)

    def _filtered(self, commands: Sequence[Node], piece: Substitution, scope: Scope) -> Value | None:
        """Return the text that a pipe of known commands prints; None if one of them is not known."""
        from envcheck.training_config.launch_scripts.text_filters import filtered, printed

        given: str | None = None
        for number, command in enumerate(commands):
            if not isinstance(command, SimpleCommand) or not command.words or _has_files(command):
                return None
            words = [known_text(field) for field in self.fields(command.words, scope)]
            if None in words:
                return None
            known = [word for word in words if word is not None]
            if not known:
                return None
            if not number and command.redirects and (text := self.standard_input(command, scope)) is not None:
                given = known_text(text)
                given = None if given is None else filtered(f"{given}\n", known)
            else:
                given = filtered(given or "", known) if number else self._of_file(known) or printed(known)
            if given is None:
                return None
        return (Fragment((given or "").rstrip("\n"), piece.at),)

    def _of_file(self, words: Sequence[str]) -> str | None:
        """Return the text that `cat FILE` prints for a file of the project; None for any other command."""
        if words[0] != "cat" or len(words) != 2 or words[1].startswith(("/", "~", ".")):  # noqa: PLR2004
            return None
        text = self.session.beside(words[1]) if ".." not in words[1].split("/") else None
        return None if text is None or len(text) > _MAX_PRINTED else text

    def _changed_folder(
        self, items: Sequence[tuple[str, Node]], piece: Substitution, scope: Scope
    ) -> Value | None:
        """Return the folder that `cd FOLDER && pwd` prints; None for any other commands."""
        commands = [command for _, command in items if isinstance(command, SimpleCommand) and command.words]
        if len(commands) != len(items) or [each.words[0].bare for each in commands] != ["cd", "pwd"]:
            return None
        words = [word for word in commands[0].words[1:] if not word.bare.startswith("-")]
        folder = known_text(self.joined(words[0], scope)) if len(words) == 1 else None
        return (Fragment(posixpath.normpath(folder), piece.at),) if folder else None


def _has_files(command: SimpleCommand) -> bool:
    """Return whether a command reads or writes a file, apart from the one that drops its messages."""
    return any(
        redirect.document < 0 and redirect.operator not in ("<<<", ">&") and redirect.word.bare != "/dev/null"
        for redirect in command.redirects
    )


def _as_one_word(value: Value) -> Value:
    """Return a quoted value, which splits into no words; one of several known texts may be no word at all.

    That is an array of options without its index, of which some may not be given.
    """
    if len(value) == 1 and any(not each or each.startswith("-") for each in value[0].choices):
        return value
    return tuple(each._replace(splits=False) if each.splits else each for each in value)


def _computed_at_run_time(piece: Expansion) -> Value:
    reason = f"{shortened(piece.source)} is computed only when the script runs"
    return unknown(piece.at, piece.source, reason)


def _length(piece: Expansion, value: Value | None) -> Value:
    """Return `${#NAME}`."""
    text = None if value is None else known_text(value)
    return _computed_at_run_time(piece) if text is None else (Fragment(str(len(text)), piece.at),)
