"""Simple commands: assignments, calls of functions and shells, builtins, and programs that are started."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Protocol

from envcheck.core.environment_variables import is_shown
from envcheck.core.facts import Tri, Unknown
from envcheck.core.patterns import pattern
from envcheck.core.records import NamedTuple
from envcheck.training_config.launch_scripts import conditions, printing, slurm
from envcheck.training_config.launch_scripts.assignments import (
    ASSIGNMENT,
    DECLARATIONS,
    Assignments,
    assignment_in,
)
from envcheck.training_config.launch_scripts.builtins import BUILTINS, FOLDER, Invocation
from envcheck.training_config.launch_scripts.expansion import Expander
from envcheck.training_config.launch_scripts.parser import parse
from envcheck.training_config.launch_scripts.prefixes import (
    FILL,
    INSTALLERS,
    MAX_PREFIX_WORDS,
    MODULES,
    OPTION_WITH_VALUE,
    PREFIXES,
    PRINT,
    READ_SCRIPTS,
    RUN_SCRIPTS,
    SCRIPTS,
    SHELLS,
    START_TASKS,
    SUBMIT,
    asks_for_a_program,
    command_text,
    prefix_assignments,
    script_behind,
    shell_behind,
    starts_nothing,
    tasks_of_step,
    with_read_arguments,
)
from envcheck.training_config.launch_scripts.project_paths import in_project
from envcheck.training_config.launch_scripts.session import MAX_LAUNCHES, TooLongError
from envcheck.training_config.launch_scripts.syntax import (
    Node,
    NotAScriptError,
    Sequence,
    SimpleCommand,
)
from envcheck.training_config.launch_scripts.values import (
    PRINTED,
    Argument,
    Fragment,
    Scope,
    Value,
    Variable,
    argument,
    base_name,
    first_value,
    known_text,
    spelled,
    unknown,
)
from envcheck.training_config.launch_scripts.written_files import WRITERS, WrittenFiles

_COMMAND_OPTIONS = frozenset({"-c", "--cmd", "--command", "--wrap"})
"""Options of commands that queue a job, each followed by a text for a shell."""

_COMMAND = pattern(r"[A-Za-z][\w.-]*")
_UNSET = pattern(r"(?:-u|--unset=)([A-Za-z_]\w*)")
_PYTHON = pattern(r"python[0-9.]*")
_TRAINS = pattern(r"\.(?:train|fit|backward)\(")

_MAX_PREFIXES = 16  # `nohup env srun python train.py` has three
_MOST_PROGRAMS = 8  # in the text of one script that are followed for what they write
UNKNOWN_PART = "90909090909"
"""What stands in the text of a program for what only the shell knows: digits are valid inside quotes too."""

_MOST_TEXTS = 4  # of one written script that are all followed
_MAX_SCRIPT = 1 << 16  # characters of another script that is followed
_MIN_SHELL_WORDS = 3  # `bash -c text`


class LaunchCommand(NamedTuple):
    """A command that starts one of the programs looked for, with the values of the exported variables."""

    words: tuple[Argument, ...]
    environment: Mapping[str, Argument]
    at: int
    folder: str = ""  # the current folder of the command, if the script has changed it
    exported: Mapping[str, Value] = MappingProxyType({})  # all variables that the script gives the program
    may_set: str = ""  # what may set any other variable
    may_export: str = ""  # what may give the program any other variable


class NodeFollower(Protocol):
    """Follows compound commands."""

    def run(self, sequence: Sequence, scope: Scope) -> Tri | None:
        """Follow a sequence and return its status."""
        ...

    def node(self, node: Node, scope: Scope) -> Tri | None:
        """Follow one command and return its status."""
        ...


class SimpleCommands:
    """Follows simple commands, and collects the programs started and the files written.

    The status of a command is None if it is assumed to succeed.
    """

    def __init__(
        self,
        expander: Expander,
        is_launch: Callable[[tuple[Argument, ...]], bool],
        exported: frozenset[str],
        follower: NodeFollower,
    ) -> None:
        """Collect the commands for which `is_launch` is true, with their `exported` variables."""
        self.expander, self.session = expander, expander.session
        self.assignments = Assignments(expander)
        self.is_launch, self.exported, self.follower = is_launch, exported, follower
        self.launched: list[LaunchCommand] = []
        self._programs = 0  # in the text of the script that were followed for what they write
        self._running: set[str] = set()  # the written scripts that are being followed
        self.written = WrittenFiles(expander)
        self.notes: list[tuple[int, str]] = []
        self.session.call_function = self._call_for_output

    def follow(self, command: SimpleCommand, scope: Scope) -> Tri | None:
        """Follow one command and return its status."""
        words = list(command.words)
        own = Scope(scope)  # assignments before a command apply to this command only
        while words and (found := assignment_in(words[0])):
            self.assignments.assign(words.pop(0), found, own)
        if not words:
            scope.absorb(own)
            return Tri.YES
        name = words[0].bare
        if name in DECLARATIONS:
            exports = name == "export" or any(word.bare == "-x" for word in words[1:])
            return self.assignments.declare(words[1:], scope, exports=exports)
        if name in ("[", "test"):
            condition = words[1:-1] if name == "[" else words[1:]
            return conditions.evaluate(tuple(condition), scope, self.expander)
        fields = [
            in_project(field, self.session)
            for word in words
            for field in self.expander.fields((word,), scope)
        ]
        return self._start(fields, command, scope, own.variables)

    # --- starting a program -------------------------------------------------------------------------

    def _start(
        self, fields: list[Value], command: SimpleCommand, scope: Scope, own: Mapping[str, Variable]
    ) -> Tri | None:
        """Follow a command after expansion; `own` are the variables set for it alone."""
        if fields and (choices := argument(fields[0]).choices):
            self._start_each(choices, fields, command, scope, own)
            return None
        ends = False
        if asks_for_a_program(fields):
            return Tri.YES
        for _ in range(_MAX_PREFIXES):
            program = base_name(known_text(fields[0]) or "") if fields else ""
            if _PYTHON.fullmatch(program) and [known_text(field) for field in fields[1:2]] == ["-m"]:
                module = known_text(fields[2]) if len(fields) > 2 else ""  # noqa: PLR2004
                fields = fields[2:] if module in MODULES else fields
                program = module if module in MODULES else program
            is_prefix = program in PREFIXES and program not in self.session.functions
            behind = self._index_behind_prefix(fields) if is_prefix else self._index_in_queue(program, fields)
            if not behind and program in SUBMIT and (script := self._index_of_job(fields)):
                inner = self._with_environment(scope, own)
                self._run_script(fields[script], fields[script + 1 :], inner, command.at)
                return None
            if not behind:
                self._follow_texts(fields, command, scope, is_prefix=is_prefix)
                break
            if program == "env":
                own = {**own, **self._taken_away(fields[1:behind], scope, own)}
            own = {**own, **prefix_assignments(fields[1:behind])}
            if program in START_TASKS:
                tasks = tasks_of_step(fields[1:behind])
                of_job = scope.get("SLURM_NTASKS") if program == "srun" else None
                own["SLURM_STEP_NUM_TASKS"] = (
                    tasks
                    or of_job
                    or unknown(fields[0][0].at, program, f"{program} decides how many processes it starts")
                )
            ends = ends or program == "exec"
            fields = with_read_arguments(fields, behind) if program in FILL else fields[behind:]
            first = known_text(fields[0]) or ""
            # `uv run -m module` runs `python -m module`, and `uv run script.py` runs `python script.py`
            if first == "-m" or (first.endswith(".py") and program in RUN_SCRIPTS):
                fields = [(fields[0][0]._replace(text="python"),), *fields]
        status = self._start_program(fields, command, scope, own)
        scope.ended_by = scope.ended_by or ("exit" if ends else "")
        return status

    def _taken_away(
        self, fields: list[Value], scope: Scope, own: Mapping[str, Variable]
    ) -> dict[str, Variable]:
        """Return the variables that `env -u NAME` and `env -i` keep from the program, as not set."""
        words = [known_text(field) or "" for field in fields]
        if any(word in ("-", "-i", "--ignore-environment") for word in words):
            names = scope.names()
            self.session.spend(len(names))
            return dict.fromkeys((*names, *own))
        after = [name for option, name in pairwise(words) if option in ("-u", "--unset")]
        return dict.fromkeys((*after, *(found.group(1) for word in words if (found := _UNSET.match(word)))))

    def _start_each(
        self,
        choices: Iterable[str],
        fields: list[Value],
        command: SimpleCommand,
        scope: Scope,
        own: Mapping[str, Variable],
    ) -> None:
        """Follow a command whose first words are one of several texts, with each of them."""
        for choice in dict.fromkeys(choices):
            first = [
                (fields[0][0]._replace(text=word, why="", splits=False, choices=()),)
                for word in choice.split()
            ]
            if words := [*first, *fields[1:]]:
                self.session.spend(len(words))
                self._start(words, command, Scope(scope), own)

    def _start_program(
        self, fields: list[Value], command: SimpleCommand, scope: Scope, own: Mapping[str, Variable]
    ) -> Tri | None:
        """Follow a command without prefixes such as `nohup`."""
        if not fields:
            return None
        name = known_text(fields[0]) or ""
        program = base_name(name)
        if name in self.session.functions:
            return self._call(name, fields, scope)
        if program in SHELLS and len(fields) >= _MIN_SHELL_WORDS and (text := command_text(fields)):
            return self._evaluate(text, self._with_environment(scope, own))
        if program == "make":
            return self._make(fields, scope, command.at)
        first_option = known_text(fields[1]) if len(fields) > 1 else ""
        if builtin := BUILTINS.get(f"{name} {first_option}") or BUILTINS.get(name):
            return builtin(Invocation(fields, command, scope, self.expander, self._evaluate, self._run_file))
        if (script := script_behind(fields)) is not None:
            inner = self._with_environment(scope, own)
            self._run_script(fields[script], fields[script + 1 :], inner, command.at)
        elif program in SHELLS:
            self._evaluate_document(command, scope)
        self.written.remember(program, fields, command, scope)
        if scope.get(PRINTED) is not None:
            printing.follow_printing(program, fields, command, scope, self.expander)
        self._collect(name, self._with_program_file(program, fields, command, scope), scope, own)
        found = self.written.contains(fields, command.at) if program == "grep" else None
        return None if found is None else Tri.of(found)

    def _with_environment(self, scope: Scope, own: Mapping[str, Variable]) -> Scope:
        """Return a scope for another shell with the variables set for it.

        Of these, programs see those that may be shown.
        """
        inner = Scope(scope)
        inner.variables.update(own)
        self.session.exported |= {name for name, value in own.items() if value is not None and is_shown(name)}
        return inner

    def _with_program_file(
        self, program: str, fields: list[Value], command: SimpleCommand, scope: Scope
    ) -> list[Value]:
        """Return `python FILE` for `python -c TEXT` and `python <<EOF`; FILE is remembered as written."""
        if not _PYTHON.fullmatch(program):
            return fields
        rest = [known_text(field) or "" for field in fields[1:]]
        text: Value | None = None
        if len(rest) > 1 and rest[0] == "-c":
            text = fields[2]
        elif not rest or rest[0] == "-":
            text = self.expander.standard_input(command, scope)
        if text is not None:
            self._follow_writing(text, fields, command, scope)
        if text is None or not _TRAINS.search(known_text(text) or ""):
            return fields
        name = f"program_{len(self.written.files) + 1}.py"
        self.written.files[name] = [text]
        return [fields[0], (Fragment(name, fields[0][0].at),)]

    def _follow_writing(self, text: Value, fields: list[Value], command: SimpleCommand, scope: Scope) -> None:
        """Remember the configurations that a program in the text of the script writes."""
        if self.session.written_by is None or self._programs >= _MOST_PROGRAMS:
            return
        self._programs += 1
        program = "".join(UNKNOWN_PART if part.why else part.text for part in text)
        first = 3 if known_text((fields[1:] or [()])[0]) == "-c" else 2
        words = [known_text(field) or UNKNOWN_PART for field in fields[first:]]
        seen = {name: first_value(scope.get(name)) for name in self.session.exported}
        environment = {
            name: Unknown(why) if (why := argument(value).why) else spelled(value)
            for name, value in seen.items()
            if value
        }
        self.session.spend(len(program))
        found = self.session.written_by(program, words, environment, self.written.text_beside, command.at)
        for name, content in found.items():
            self.written.replace(name, content, command.at, certain=scope.certain)

    def _collect(self, name: str, fields: list[Value], scope: Scope, own: Mapping[str, Variable]) -> None:
        """Collect a command if it is one of those looked for; note one that begins with an option."""
        words = tuple(map(argument, fields))
        if self.is_launch(words):
            given = {
                key: own.get(key, scope.get(key)) for key in {*self.exported, *self.session.exported, *own}
            }
            environment = {
                key: argument(value) for key in sorted(self.exported) if (value := first_value(given[key]))
            }
            folder = first_value(scope.get(FOLDER))
            known = (known_text(folder) or "") if folder else ""
            names = self.session.exported | own.keys()
            seen = {key: value for key in names if (value := first_value(given[key]))}
            if len(self.launched) >= MAX_LAUNCHES:
                raise TooLongError(f"more than {MAX_LAUNCHES:,} commands that may start a training")
            others = scope.may_set, self.session.may_export
            self.launched.append(LaunchCommand(words, environment, words[0].at, known, seen, *others))
        elif name.startswith("--"):
            note = f"{name} begins a new command here: the previous command ended before it"
            self.notes.append((fields[0][0].at, note))

    def _index_behind_prefix(self, fields: list[Value]) -> int:
        """Return the index of the program that a prefix such as nohup or srun starts; 0 if none is found."""
        names = [base_name(spelled(field)) for field in fields[:MAX_PREFIX_WORDS]]
        installs = next((index for index, name in enumerate(names) if name in INSTALLERS), len(names))
        for index in range(1, 0 if starts_nothing(names) else installs):
            word = names[index]
            if len((known_text(fields[index]) or "").split()) > 1:
                continue  # a text for another shell
            if known_text(fields[index]) is None and (shell := shell_behind(fields, index)):
                return shell  # `srun $OPTIONS bash -c text`: the unknown word is an option
            if word in SHELLS or word in PREFIXES or word in self.session.functions:
                return index
            if word.endswith(SCRIPTS) or (word == "-m" and known_text(fields[0]) in ("uv", "run")):
                return index
            if word.endswith(".py") and base_name(known_text(fields[0]) or "") in RUN_SCRIPTS:
                return index
            if self.is_launch(tuple(map(argument, fields[index:]))):
                return index
        return 0

    def _index_of_job(self, fields: list[Value]) -> int:
        """Return the index of the script that is submitted, whatever it is called; 0 if it is not here."""
        for index, field in enumerate(fields[1:MAX_PREFIX_WORDS], 1):
            name = known_text(field) or ""
            if name and not name.startswith("-") and (self.session.beside(name) or "").startswith("#!"):
                return index
        return 0

    def _index_in_queue(self, program: str, fields: list[Value]) -> int:
        """Return the index of the command that a program which is not known starts; 0 if none is found.

        Clusters have commands of their own, which start `-- COMMAND` or a shell with a script, as in
        `submit --gpus 8 bash train.sh`.
        """
        if not self._is_command_of_its_own(program, fields):
            return 0
        for index in range(1, min(len(fields) - 1, MAX_PREFIX_WORDS)):
            word = known_text(fields[index]) or ""
            behind = base_name(spelled(fields[index + 1]))
            if base_name(word) in SHELLS and behind.endswith(SCRIPTS):
                return index
            if word == "--" and (
                behind in SHELLS or self.is_launch(tuple(map(argument, fields[index + 1 :])))
            ):
                return index + 1
        return 0

    def _follow_texts(
        self, fields: list[Value], command: SimpleCommand, scope: Scope, *, is_prefix: bool
    ) -> None:
        """Follow the texts that a command gives to another shell, if it starts no program itself."""
        program = base_name(known_text(fields[0]) or "") if fields else ""
        if is_prefix:
            self._evaluate_texts(fields[1:], scope)
            if program in READ_SCRIPTS:
                self._evaluate_document(command, scope)
        elif (text := self._text_in_queue(program, fields)) is not None:
            self._evaluate_texts([text], scope)

    def _text_in_queue(self, program: str, fields: list[Value]) -> Value | None:
        """Return the text for a shell that a program which is not known starts, or None.

        As in `submit --gpus 8 -c "bash -c 'python train.py'"`.
        """
        if not self._is_command_of_its_own(program, fields):
            return None
        for option, field in pairwise(fields):
            first = spelled(field).split(maxsplit=1)[:1]
            if known_text(option) in _COMMAND_OPTIONS and first and base_name(first[0]) in SHELLS:
                return field
        return None

    def _is_command_of_its_own(self, program: str, fields: list[Value]) -> bool:
        """Return whether a command is of a kind that is not known, such as a cluster's own."""
        known = program in self.session.functions or program in {*BUILTINS, *SHELLS, *PRINT, *WRITERS}
        return (
            not known
            and _COMMAND.fullmatch(program) is not None
            and not self.is_launch(tuple(map(argument, fields)))
        )

    def _evaluate_texts(self, fields: list[Value], scope: Scope) -> None:
        """Follow the arguments that are whole commands, as in `sbatch --wrap="python train.py"`."""
        for field in fields[:MAX_PREFIX_WORDS]:
            option = OPTION_WITH_VALUE.match(field[0].text) if field and not field[0].why else None
            cut = option.end() if option else 0
            value = (
                (field[0]._replace(text=field[0].text[cut:], at=field[0].at + cut), *field[1:])
                if cut
                else field
            )
            if not any(" " in fragment.text.strip() for fragment in value if not fragment.why):
                continue
            with contextlib.suppress(NotAScriptError):
                self._evaluate(value, Scope(scope))

    def _evaluate_document(self, command: SimpleCommand, scope: Scope) -> None:
        """Follow the script that `bash <<EOF`, `sbatch <<EOF` or `ssh HOST <<EOF` is given."""
        text = self.expander.standard_input(command, scope)
        if text is None:
            return
        inner = Scope(scope)
        for name, (value, at) in slurm.variables(spelled(text)).items():
            inner.variables[name] = (Fragment(value, text[0].at + at if text else at),)
        with contextlib.suppress(NotAScriptError):
            self._evaluate(text, inner)

    # --- nested code --------------------------------------------------------------------------------

    def _call(self, name: str, fields: list[Value], scope: Scope) -> Tri | None:
        """Follow the body of a function."""
        inner = Scope(scope, certain=scope.certain)
        inner.arguments = fields[1:]
        with self.session.inside_function(name):
            status = self.follower.node(self.session.functions[name], inner)
        ended_by = inner.ended_by
        inner.arguments = scope.arguments
        scope.absorb(inner)
        scope.ended_by = "exit" if ended_by == "exit" else ""
        return status

    def _call_for_output(self, name: str, fields: list[Value], scope: Scope) -> None:
        """Follow a function for what it prints; what it starts is no launch of the script."""
        launched = len(self.launched)
        self._call(name, fields, scope)
        del self.launched[launched:]

    def _evaluate(self, value: Value, scope: Scope) -> Tri | None:
        """Follow a value as a script; each unknown part of it becomes a variable with an unknown value."""
        with self.session.call():
            parts, origins, offset = [], [], 0
            for fragment in value:
                name = f"_unknown_{len(scope.variables)}_{offset}"
                if fragment.why:
                    scope.variables[name] = (fragment._replace(splits=True),)
                text = f"${{{name}}}" if fragment.why else fragment.text
                origins.append((offset, fragment.at))
                parts.append(text)
                offset += len(text)
            self.session.spend(offset // 64 + len(parts))
            script = parse("".join(parts), tuple(origins) or ((0, 0),))
            with self.session.inside(script):
                return self.follower.run(script.commands, scope)

    def _run_script(self, file: Value, arguments: list[Value], scope: Scope, at: int) -> None:
        """Follow a script file that is started, also one that the script itself has written.

        One that branches write differently is followed with each text; of one that a loop writes many times,
        the last text counts. A job that queues itself again is followed once.
        """
        name = spelled(file)
        written = self.written.files.get(name, [])
        if not written:
            self._run_file(known_text(file) or "", arguments, scope, at)
        if name in self._running:
            return
        self._running.add(name)
        for text in written if len(written) <= _MOST_TEXTS else written[-1:]:
            inner = Scope(scope)
            inner.arguments = arguments
            for variable, (value, offset) in slurm.variables(spelled(text)).items():
                inner.variables[variable] = (Fragment(value, text[0].at + offset),)
            with contextlib.suppress(NotAScriptError):
                self._evaluate(text, inner)
        self._running.discard(name)

    def _run_file(self, name: str, arguments: list[Value], scope: Scope, at: int) -> bool:
        """Follow another script; return whether it could be read. Its commands get the offset `at`."""
        folder = first_value(scope.get(FOLDER))
        inside = known_text(folder) if folder else None
        paths = [posixpath.normpath(posixpath.join(inside, name))] if inside and name else []
        text = next(filter(None, map(self.session.beside, [*paths, name])), None) if name else None
        if text is None or len(text) > _MAX_SCRIPT:
            return False
        try:
            script = parse(text, tuple((offset, at) for offset in range(len(text) + 1)))
        except NotAScriptError:
            return False
        self.session.spend(len(text))
        outer = scope.arguments
        scope.arguments = arguments or outer
        with self.session.call(), self.session.inside(script):
            self.follower.run(script.commands, scope)
        scope.arguments = outer
        scope.ended_by = ""
        return True

    def _make(self, fields: list[Value], scope: Scope, at: int) -> Tri | None:
        """Follow the commands of the targets that make is given; their offset is `at`."""
        from envcheck.training_config.launch_scripts.makefiles import MAKEFILES, make_script

        words = [known_text(field) for field in fields[1:]]
        text = next(filter(None, map(self.session.beside, MAKEFILES)), None)
        if text is None or None in words or any(word.startswith("-") for word in words if word):
            return None
        pairs = [ASSIGNMENT.match(word) for word in words if word]
        given = {pair.group(1): pair.string[pair.end() :] for pair in pairs if pair}
        targets = [word for word, pair in zip(filter(None, words), pairs, strict=True) if not pair]
        commands = make_script(text, targets, given, self.session.beside)
        try:
            script = parse(commands, tuple((offset, at) for offset in range(len(commands) + 1)))
        except NotAScriptError:
            return None
        self.session.spend(len(commands))
        with self.session.call(), self.session.inside(script):
            self.follower.run(script.commands, Scope(scope))
        return None
