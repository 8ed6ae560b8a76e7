"""Simple commands: assignments, calls of functions and shells, builtins, and programs that are started."""

from __future__ import annotations

import contextlib
import posixpath
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Protocol

from envcheck.core.environment_variables import is_shown
from envcheck.core.facts import Tri
from envcheck.core.patterns import pattern
from envcheck.core.records import NamedTuple
from envcheck.training_config.launch_scripts import conditions, slurm
from envcheck.training_config.launch_scripts.builtins import BUILTINS, FOLDER, Invocation
from envcheck.training_config.launch_scripts.expansion import Expander
from envcheck.training_config.launch_scripts.parser import parse
from envcheck.training_config.launch_scripts.session import MAX_LAUNCHES, TooLongError
from envcheck.training_config.launch_scripts.syntax import (
    Node,
    NotAScriptError,
    Sequence,
    SimpleCommand,
    Text,
    Word,
)
from envcheck.training_config.launch_scripts.values import (
    Argument,
    Fragment,
    Scope,
    Value,
    Variable,
    argument,
    base_name,
    first_value,
    known_text,
    shortened,
    spelled,
    unknown,
    unknown_words,
)
from envcheck.training_config.launch_scripts.written_files import WRITERS, WrittenFiles

ASSIGNMENT = pattern(r"([A-Za-z_]\w*)(\[[^\]]*\])?(\+?)=")
"""The beginning of an assignment: name, index in brackets, plus sign."""

_KEYED = re.compile(r"\[([^\]]*)\]=")
"""The beginning of an element with its key: `[key]=`."""

_DECLARATIONS = frozenset({"export", "declare", "local", "readonly", "typeset"})
_PREFIXES = frozenset({
    "nohup", "time", "exec", "env", "nice", "ionice", "taskset", "numactl", "stdbuf", "setsid", "timeout",
    "sudo", "command", "builtin", "srun", "mpirun", "mpiexec", "uv", "poetry", "pipenv", "pdm", "conda",
    "mamba", "micromamba", "singularity", "apptainer", "docker", "xvfb-run", "unbuffer", "nsys", "ncu",
    "strace", "pdsh", "ssh", "tmux", "screen", "run", "sbatch", "pixi", "hatch", "rye", "horovodrun",
    "mpirun.openmpi", "podman", "enroot", "caffeinate", "chrt", "script", "su", "bsub", "qsub", "kubectl",
    "runai", "sky", "tsp", "ts", "py-spy", "xargs", "parallel", "prun", "jsrun", "aprun", "gosu", "gdb",
    "rocprof", "memray", "podman-hpc", "udocker", "nerdctl", "systemd-run", "sg", "gcloud", "flux", "doas",
})  # fmt: skip
"""Programs that start the program named by a later argument, or the command in the text of one."""

_RUN_SCRIPTS = frozenset({
    "nohup", "srun", "time", "nice", "uv", "run", "poetry", "pipenv", "pdm", "pixi", "hatch", "rye",
})  # fmt: skip
"""Those of them after which a script of Python needs no arguments to be taken for the program."""

_START_TASKS = frozenset({
    "srun", "mpirun", "mpiexec", "mpirun.openmpi", "horovodrun", "prun", "jsrun", "aprun",
})  # fmt: skip
"""Those of them that start several processes of it, which find one another."""

_PRINT = ("echo", "printf", "which", "grep", "chmod", "rm", "ls", "git", "wc", "find", "rsync", "scp", "log")
"""Programs that only print, find or copy the names that they are given."""

_COMMAND = pattern(r"[A-Za-z][\w.-]*")

_READ_SCRIPTS = frozenset({"sbatch", "qsub", "bsub", "ssh", "su", "sudo", "docker", "podman", "srun"})
"""Those of them that run, or submit, the script on their standard input if they are given no other."""

_FILL = ("xargs", "parallel")
"""Those of them that give the program further arguments, which they read."""

_PLACES_OF_PARALLEL = re.compile(r"\{[\d./#%]*\}")
"""`{}`, `{1}` and `{.}`, in place of which GNU parallel puts an argument."""

_UNSET = pattern(r"(?:-u|--unset=)([A-Za-z_]\w*)")
_OPTION_WITH_VALUE = pattern(r"--?[\w-]+=")

_PYTHON = pattern(r"python[0-9.]*")
_TRAINS = pattern(r"\.(?:train|fit|backward)\(")
_SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")
_SHELLS = frozenset({"bash", "sh", "zsh", "dash"})
_MAX_PREFIXES = 16  # `nohup env srun python train.py` has three
_MAX_PREFIX_WORDS = 60  # words after a prefix in which the program is looked for
_MOST_PLACES = 16  # of one word in which xargs puts an argument
_MOST_TEXTS = 4  # of one written script that are all followed
_MAX_SCRIPT = 1 << 16  # characters of another script that is followed
_PROJECT_FILES = (*_SCRIPTS, ".py", ".json", ".yaml", ".yml", ".toml")
_FOLDER_OF_PROJECT = pattern(
    r"\$\{?(HOME|(?:SLURM_SUBMIT|PBS_O_WORK|LSB_SUBCWD|SGE_O_WORK|GITHUB_WORK)\w*)\}?"
)
"""Variables in which schedulers give the folder from which a job was submitted, and a folder above it."""

_USER = pattern(r"\$\{?(?:USER|LOGNAME)\}?|\$\(whoami\)|`whoami`")

_OPTION_AND_PATH = 3  # fragments of `--config=$ROOT/train.yaml`
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
        self.is_launch, self.exported, self.follower = is_launch, exported, follower
        self.launched: list[LaunchCommand] = []
        self._running: set[str] = set()  # the written scripts that are being followed
        self.written = WrittenFiles(expander)
        self.notes: list[tuple[int, str]] = []

    def follow(self, command: SimpleCommand, scope: Scope) -> Tri | None:
        """Follow one command and return its status."""
        words = list(command.words)
        own = Scope(scope)  # assignments before a command apply to this command only
        while words and (found := _assignment(words[0])):
            self._assign(words.pop(0), found, own)
        if not words:
            scope.absorb(own)
            return Tri.YES
        name = words[0].bare
        if name in _DECLARATIONS:
            exports = name == "export" or any(word.bare == "-x" for word in words[1:])
            return self._declare(words[1:], scope, exports=exports)
        if name in ("[", "test"):
            condition = words[1:-1] if name == "[" else words[1:]
            return conditions.evaluate(tuple(condition), scope, self.expander)
        fields = [self._in_project(field) for word in words for field in self.expander.fields((word,), scope)]
        return self._start(fields, command, scope, own.variables)

    def _in_project(self, field: Value) -> Value:
        """Return `src/train.py` for `$ROOT/src/train.py` if the project has it and no ROOT is set."""
        if any(each.why for each in field):
            field = tuple(each for each in field if each.text or each.why)  # quotes begin with an empty one
        elif field and field[0].text.startswith("~/"):
            return self._below_home(field)
        if below := self._below_user(field):
            return below
        at = 1 if len(field) == _OPTION_AND_PATH and field[0].text.endswith("=") else 0
        if len(field) != at + 2 or not field[at].why or any(each.why for each in (*field[:at], field[-1])):
            return field
        variable = _FOLDER_OF_PROJECT.fullmatch(field[at].text)
        root = field[at].unset or (variable.group(1) if variable else "")
        rest = field[-1].text
        if not root or not rest.startswith("/") or not rest.endswith(_PROJECT_FILES) or _is_elsewhere(root):
            return field
        # A path that ends as one of the project's, `/srv/project/src/a.py`, is found like an absolute one.
        ways = (rest,) if root == "HOME" else (rest.lstrip("/"), rest)
        found = next((each for each in ways if self.session.beside(each) is not None), "")
        if not found:
            return field
        if root != "HOME":
            self.session.roots.add(root)
        return (*field[:at], field[-1]._replace(text=found, at=field[at].at))

    def _below_user(self, field: Value) -> Value:
        """Return the file of the project that `/home/$USER/project/src/a.py` ends as, or an empty value."""
        at = next((i for i, each in enumerate(field) if each.why), 0)
        before, end = known_text(field[:at]) or "", known_text(field[at + 1 :])
        option = _OPTION_WITH_VALUE.match(before)
        if not end or not before[option.end() if option else 0 :].startswith("/"):
            return ()
        if not end.endswith(_PROJECT_FILES) or not _USER.fullmatch(field[at].text):
            return ()
        if self.session.beside(end) is None:
            return ()
        return (field[0]._replace(text=f"{option.group() if option else ''}{end}"),)

    def _below_home(self, field: Value) -> Value:
        """Return the file of the project that `~/project/src/a.py` ends as, if there is one."""
        path = (known_text(field) or "").removeprefix("~")
        if not path.endswith(_PROJECT_FILES) or self.session.beside(path) is None:
            return field
        return (field[0]._replace(text=path),)

    # --- assignments --------------------------------------------------------------------------------

    def _assign(self, word: Word, found: re.Match[str], scope: Scope) -> None:
        """Follow `NAME=word`, `NAME+=word` or `NAME=( … )`."""
        name, index, plus = found.group(1), found.group(2), found.group(3)
        before = scope.get(name) if plus else None
        if word.array is not None:
            if not plus:
                self.session.spend(scope.forget_elements(name))
            if word.array and all(map(_KEYED.match, map(_beginning, word.array))):
                self._assign_elements(name, word, scope)
                return
            values = self.expander.fields(word.array, scope)
            old = before if isinstance(before, list) else [before] if before else []
            scope.variables[name] = [*old, *values]
            self.session.spend(len(old))
            return
        value = self.expander.joined(_without_name(word, found.end()), scope)
        if index is not None:
            self._assign_element(name, self.expander.index(index[1:-1], scope), value, scope)
        elif isinstance(before, list):
            scope.variables[name] = [(*before[0], *value), *before[1:]] if before else [value]
        else:
            scope.variables[name] = (*(before or ()), *value)
            self.session.spend(len(before or ()))

    def _assign_elements(self, name: str, word: Word, scope: Scope) -> None:
        """Follow `NAME=([key]=word …)`."""
        for element in word.array or ():
            found = _KEYED.match(_beginning(element))
            if found is not None:
                value = self.expander.joined(_without_name(element, found.end()), scope)
                self._assign_element(name, self.expander.index(found.group(1), scope), value, scope)

    def _assign_element(self, name: str, key: str, value: Value, scope: Scope) -> None:
        """Set one element, which has a variable of its own; the array as a whole is unknown."""
        at = value[0].at if value else 0
        scope.variables[name] = unknown(at, f"${{{name}}}", f"${name} is filled element by element")
        if key == "?":
            self.session.spend(scope.forget_elements(name))
        else:
            scope.variables[f"{name}[{key}]"] = value or (Fragment("", at),)

    def _declare(self, words: list[Word], scope: Scope, *, exports: bool) -> Tri:
        options = [word.bare for word in words if word.bare.startswith(("-", "+"))]
        keeps_back = any("n" in each if exports else each == "+x" for each in options)
        for word in words:
            found = _assignment(word)
            if found:
                self._assign(word, found, scope)
            elif not word.bare:
                self._declare_printed(word, scope, exports=exports)
            name = found.group(1) if found else word.bare
            if keeps_back and scope.outer is None:
                self.session.exported.discard(name)
            elif keeps_back:  # under a condition, or in a function
                why = f"line {self.session.line(word.at)} may keep ${name} from programs"
                scope.variables[name] = unknown(word.at, f"${name}", why)
            elif exports:
                self.session.exported.add(name)
        return Tri.YES

    def _declare_printed(self, word: Word, scope: Scope, *, exports: bool) -> None:
        """Follow `export $(cat FILE)`: each word is an assignment; unknown ones may set any variable."""
        for field in self.expander.fields((word,), scope):
            text = spelled(field)
            pair = ASSIGNMENT.match(text)
            if pair and not field[0].why:
                self.session.exported.add(pair.group(1))
                rest = field[0]._replace(text=field[0].text[pair.end() :])
                scope.variables[pair.group(1)] = (rest, *field[1:])
            elif any(fragment.why for fragment in field):
                by = f"may be set by {shortened(text)} of line {self.session.line(word.at)}"
                self.session.spend(scope.set_elsewhere(by, word.at))
                self.session.may_export = by if exports else self.session.may_export

    # --- starting a program -------------------------------------------------------------------------

    def _start(
        self, fields: list[Value], command: SimpleCommand, scope: Scope, own: Mapping[str, Variable]
    ) -> Tri | None:
        """Follow a command after expansion; `own` are the variables set for it alone."""
        if fields and (choices := argument(fields[0]).choices):
            self._start_each(choices, fields, command, scope, own)
            return None
        ends = False
        if _asks_for_a_program(fields):
            return Tri.YES
        for _ in range(_MAX_PREFIXES):
            program = base_name(known_text(fields[0]) or "") if fields else ""
            is_prefix = program in _PREFIXES and program not in self.session.functions
            behind = self._index_behind_prefix(fields) if is_prefix else self._index_in_queue(program, fields)
            if is_prefix and not behind:
                self._evaluate_texts(fields[1:], scope)
                if program in _READ_SCRIPTS:
                    self._evaluate_document(command, scope)
            if not behind:
                break
            if program == "env":
                own = {**own, **self._taken_away(fields[1:behind], scope, own)}
            own = {**own, **_prefix_assignments(fields[1:behind])}
            if program in _START_TASKS:
                tasks = _tasks_of_step(fields[1:behind])
                of_job = scope.get("SLURM_NTASKS") if program == "srun" else None
                own["SLURM_STEP_NUM_TASKS"] = (
                    tasks
                    or of_job
                    or unknown(fields[0][0].at, program, f"{program} decides how many processes it starts")
                )
            ends = ends or program == "exec"
            fields = _with_read_arguments(fields, behind) if program in _FILL else fields[behind:]
            first = known_text(fields[0]) or ""
            # `uv run -m module` runs `python -m module`, and `uv run script.py` runs `python script.py`
            if first == "-m" or (first.endswith(".py") and program in _RUN_SCRIPTS):
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
        if program in _SHELLS and len(fields) >= _MIN_SHELL_WORDS and (text := _command_text(fields)):
            return self._evaluate(text, self._with_environment(scope, own))
        if program == "make":
            return self._make(fields, scope, command.at)
        first_option = known_text(fields[1]) if len(fields) > 1 else ""
        if builtin := BUILTINS.get(f"{name} {first_option}") or BUILTINS.get(name):
            return builtin(Invocation(fields, command, scope, self.expander, self._evaluate, self._run_file))
        if (script := _script_behind(fields)) is not None:
            inner = self._with_environment(scope, own)
            self._run_script(fields[script], fields[script + 1 :], inner, command.at)
        elif program in _SHELLS:
            self._evaluate_document(command, scope)
        self.written.remember(program, fields, command, scope)
        self._collect(name, self._with_program_file(program, fields, command, scope), scope, own)
        return None

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
        if text is None or not _TRAINS.search(known_text(text) or ""):
            return fields
        name = f"program_{len(self.written.files) + 1}.py"
        self.written.files[name] = [text]
        return [fields[0], (Fragment(name, fields[0][0].at),)]

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
        for index in range(1, min(len(fields), _MAX_PREFIX_WORDS)):
            word = base_name(spelled(fields[index]))
            if len((known_text(fields[index]) or "").split()) > 1:
                continue  # a text for another shell
            if known_text(fields[index]) is None and (shell := _shell_behind(fields, index)):
                return shell  # `srun $OPTIONS bash -c text`: the unknown word is an option
            if word in _SHELLS or word in _PREFIXES or word in self.session.functions:
                return index
            if word.endswith(_SCRIPTS) or (word == "-m" and known_text(fields[0]) in ("uv", "run")):
                return index
            if word.endswith(".py") and base_name(known_text(fields[0]) or "") in _RUN_SCRIPTS:
                return index
            if self.is_launch(tuple(map(argument, fields[index:]))):
                return index
        return 0

    def _index_in_queue(self, program: str, fields: list[Value]) -> int:
        """Return the index of the command that a program which is not known starts; 0 if none is found.

        Clusters have commands of their own, which start `-- COMMAND` or a shell with a script, as in
        `submit --gpus 8 bash train.sh`.
        """
        known = program in self.session.functions or program in {*BUILTINS, *_SHELLS, *_PRINT, *WRITERS}
        if known or not _COMMAND.fullmatch(program) or self.is_launch(tuple(map(argument, fields))):
            return 0
        for index in range(1, min(len(fields) - 1, _MAX_PREFIX_WORDS)):
            word = known_text(fields[index]) or ""
            behind = base_name(spelled(fields[index + 1]))
            if base_name(word) in _SHELLS and behind.endswith(_SCRIPTS):
                return index
            if word == "--" and (
                behind in _SHELLS or self.is_launch(tuple(map(argument, fields[index + 1 :])))
            ):
                return index + 1
        return 0

    def _evaluate_texts(self, fields: list[Value], scope: Scope) -> None:
        """Follow the arguments that are whole commands, as in `sbatch --wrap="python train.py"`."""
        for field in fields[:_MAX_PREFIX_WORDS]:
            option = _OPTION_WITH_VALUE.match(field[0].text) if field and not field[0].why else None
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
        inner = Scope(scope)
        inner.arguments = fields[1:]
        with self.session.call():
            status = self.follower.node(self.session.functions[name], inner)
        ended_by = inner.ended_by
        inner.arguments = scope.arguments
        scope.absorb(inner)
        scope.ended_by = "exit" if ended_by == "exit" else ""
        return status

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


def _with_read_arguments(fields: list[Value], behind: int) -> list[Value]:
    """Return the command that `xargs` starts: the arguments that it reads are known only at run time."""
    at, name = fields[0][0].at, base_name(known_text(fields[0]) or "")
    reason = f"{name} reads further arguments when the script runs"
    listed = next((i for i, field in enumerate(fields) if known_text(field) in (":::", "::::")), len(fields))
    fields = fields[:listed]
    options = [known_text(field) or "" for field in fields[1:behind]]
    mark = next((after for option, after in pairwise(options) if option == "-I"), None)
    mark = mark or next(
        (option[2:] for option in options if option.startswith("-I") and option != "-I"), None
    )
    place = _PLACES_OF_PARALLEL if name == "parallel" and not mark else re.compile(re.escape(mark or "{}"))
    command = fields[behind:]
    if not mark and not (name == "parallel" and any(place.search(spelled(field)) for field in command)):
        return [*command, unknown_words(name, at, reason)]
    return [
        _with_unknown_places(field, place, reason)
        if len(place.findall(spelled(field))) <= _MOST_PLACES
        else unknown(field[0].at, spelled(field), reason)
        for field in command
    ]


def _with_unknown_places(field: Value, place: re.Pattern[str], reason: str) -> Value:
    """Return a word in which each place of an argument that is read only at run time is unknown."""
    found: list[Fragment] = []
    for fragment in field:
        end = 0
        for mark in place.finditer(fragment.text) if not fragment.why else ():
            if before := fragment.text[end : mark.start()]:
                found.append(fragment._replace(text=before, at=fragment.at + end))
            found += unknown(fragment.at + mark.start(), mark.group(), reason)
            end = mark.end()
        if rest := fragment.text[end:]:
            found.append(fragment._replace(text=rest, at=fragment.at + end))
    return tuple(found) or field


def _asks_for_a_program(fields: list[Value]) -> bool:
    """Return whether a command asks if a program is installed, which it is assumed to be."""
    words = [known_text(field) or "" for field in fields[:2]]
    return len(words) > 1 and (words[0] in ("which", "hash") or words in (["command", "-v"], ["type", "-p"]))


def _is_elsewhere(name: str) -> bool:
    """Return whether a variable is that of a folder which every machine has, and no project is in."""
    return name in ("TMPDIR", "TMP", "PWD", "OLDPWD") or "OUT" in name.upper()


def names_set_by(command: SimpleCommand) -> set[str]:
    """Return the variables that a simple command may set."""
    found = set()
    for word in command.words:
        first = word.pieces[0] if word.pieces else None
        pair = ASSIGNMENT.match(first.text) if isinstance(first, Text) else None
        if pair:
            found.add(pair.group(1))
    if command.words and command.words[0].bare in ("read", "mapfile", "readarray", "unset"):
        found |= {word.bare for word in command.words[1:]}
    return found


def _assignment(word: Word) -> re.Match[str] | None:
    """Return the beginning of an assignment, or None for any other word."""
    first = word.pieces[0] if word.pieces else None
    return ASSIGNMENT.match(first.text) if isinstance(first, Text) and not first.quoted else None


def _beginning(word: Word) -> str:
    """Return the text with which a word begins, "" if that is quoted or expanded."""
    first = word.pieces[0] if word.pieces else None
    return first.text if isinstance(first, Text) and not first.quoted else ""


def _without_name(word: Word, length: int) -> Word:
    """Return the value of an assignment: the word without its first `length` characters."""
    first = word.pieces[0]
    if not isinstance(first, Text):
        return word
    rest = Text(first.text[length:], first.at + length, quoted=False)
    return word._replace(pieces=(rest, *word.pieces[1:]))


def _prefix_assignments(fields: Iterable[Value]) -> dict[str, Variable]:
    """Return the variables among the arguments of a prefix: `env NAME=value program`."""
    given: dict[str, Variable] = {}
    for field in fields:
        pair = ASSIGNMENT.match(field[0].text)
        if pair and not field[0].why:
            given[pair.group(1)] = (field[0]._replace(text=field[0].text[pair.end() :]), *field[1:])
    return given


def _script_behind(fields: list[Value]) -> int | None:
    """Return the index of the script that a shell runs or that is itself the command, or None."""
    program = base_name(spelled(fields[0]))
    if program.endswith(_SCRIPTS):
        return 0
    if program not in _SHELLS:
        return None
    words = [spelled(field) or "-" for field in fields]
    behind = next((i for i, word in enumerate(words[1:], 1) if not word.startswith("-")), 0)
    return behind if words[behind].endswith(_SCRIPTS) else None


def _tasks_of_step(fields: list[Value]) -> Value | None:
    """Return how many tasks the options of `srun` or `mpirun` ask for; None if they do not say."""
    words = [(field, known_text(field) or "") for field in fields]
    for index, (field, word) in enumerate(words):
        name, equals, value = word.partition("=")
        if name in ("-n", "--ntasks", "-np", "--np") and (equals or index + 1 < len(words)):
            return (field[0]._replace(text=value),) if equals else words[index + 1][0]
        if word.startswith("-n") and word[2:].isdigit():
            return (field[0]._replace(text=word[2:]),)
    return None


def _shell_behind(fields: list[Value], index: int) -> int:
    """Return the index of the shell that is given a text or a script behind a word; 0 if there is none."""
    for at in range(index + 1, min(len(fields) - 1, _MAX_PREFIX_WORDS)):
        if base_name(known_text(fields[at]) or "") in _SHELLS:
            return at if _command_text(fields[at:]) or _script_behind(fields[at:]) is not None else 0
    return 0


def _command_text(fields: list[Value]) -> Value:
    """Return the word after `-c`, or an empty value."""
    for index, field in enumerate(fields[1:-1], 1):
        flag = known_text(field) or ""
        if flag.startswith("-") and not flag.startswith("--") and flag.endswith("c"):
            return fields[index + 1]
    return ()
