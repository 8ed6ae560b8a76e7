"""Launch scripts as documents: the settings of each launch line, of its launcher and of the files it names.

The dialects define what the names mean. This module is imported only for a text that `launch` recognises.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from envcheck.core.errors import InputError, Place
from envcheck.core.facts import Tri, Unknown
from envcheck.core.findings import Diagnostic
from envcheck.core.patterns import pattern
from envcheck.core.rules import Severity
from envcheck.training_config.document import Document, ProgramSource, Setting, SettingValue
from envcheck.training_config.launch_scripts.follow import FollowedScript, follow
from envcheck.training_config.launch_scripts.launchers import (
    LaunchLine,
    has_training_arguments,
    names_a_training,
)
from envcheck.training_config.launch_scripts.processes import (
    EXPORTED,
    launcher,
    process_count,
    slots_of_hosts,
)
from envcheck.training_config.launch_scripts.ray_jobs import with_runtime_environment
from envcheck.training_config.launch_scripts.session import TooLongError, nothing_beside
from envcheck.training_config.launch_scripts.simple_commands import LaunchCommand
from envcheck.training_config.launch_scripts.syntax import NotAScriptError
from envcheck.training_config.launch_scripts.values import Argument, Value, known_text, spelled
from envcheck.training_config.readers import Beside
from envcheck.training_config.readers._argument_words import CONFIG_FILES, option_value, settings_of
from envcheck.training_config.readers._environment import (
    devices_of_program,
    given_variables,
    variables_of_program,
)
from envcheck.training_config.readers._launched_programs import LaunchedPrograms, merged_numbers
from envcheck.training_config.readers._program_files import program_files, unparsed_source
from envcheck.training_config.readers._writing_programs import written_by
from envcheck.training_config.readers._written_documents import agreed, parsed, unread
from envcheck.training_config.source_lines import SourceLines

if TYPE_CHECKING:  # imported where a program is beside the script
    from envcheck.training_config.programs.follow import FollowedProgram
    from envcheck.training_config.readers._program_source import LaunchedProgram, ProgramCode

LAUNCHER = "launcher"
"""The dialect of the settings that the launcher decides: `launcher` and `processes`."""

_PYTHON_FILES: Mapping[str, tuple[str, ...]] = {"xtuner": (".py",)}
"""Programs whose configurations are modules of Python."""

_TRAINING_NAMES = pattern(r"trainer|backward|optimizer|fine_?tun|training_step")
_TRAINING_PACKAGES = frozenset(
    {"verl", "openrlhf", "llamafactory", "axolotl", "swift", "torchtune", "nemo_rl"}
)
_WORDS = pattern(r"[a-z]+")
_TRAINING_WORDS = frozenset(
    {"sft", "dpo", "grpo", "ppo", "orpo", "kto", "rloo", "rm", "rlhf", "lora", "qlora", "pt", "cpt"}
)
_TRAINING_BEGINNINGS = ("train", "finetun", "pretrain", "tune", "distill")
"""Words in the name of a program, and beginnings of such words, that suggest that it trains."""

_TRAINING_CALLS = frozenset({"fit", "learn", "backward"})
_CALLS_A_TRAINING = pattern(
    r"(?<!pre)(?<!con)(?<!res)train(?!ed|able|_test|_data|_set|_split|ing_data)|fine_?tun"
)
"""Functions and methods of which the code of a training calls or imports one: all of a name, or a part."""

_HYDRA_MAIN = pattern(r"@hydra\.main\(([^)]{0,400})\)")
_HYDRA_ARGUMENT = pattern(r"(config_path|config_name)\s*=\s*[\"']([\w./-]+)[\"']")
_MAX_LISTED = 6  # names or places that one diagnostic lists
_ONE_OF_EACH = 2  # documents of a program: one of a trainer's arguments, one of all other calls


def documents(text: str, file: str, beside: Beside | None = None, depth: int = 0) -> tuple[Document, ...]:
    """Return the documents of each launch line that trains; the last one carries the script's diagnostics.

    `beside` reads the scripts that this one starts or sources. `depth` counts the programs that started one
    another before.

    Raises:
        InputError: the text is not a shell script, or nothing in it starts a training.
    """
    lines = SourceLines(text, file)
    beside = beside or nothing_beside
    programs = LaunchedPrograms(lines, beside, depth)
    try:
        script = follow(lines, programs.may_train, EXPORTED, beside, written_by=written_by)
        if not any(programs.line(command.words) for command in script.commands):
            script = follow(
                lines, programs.may_train, EXPORTED, beside, past_returns=True, written_by=written_by
            )
    except NotAScriptError as error:
        raise InputError(lines.place(error.at, error.at + 1), error.problem) from None
    except TooLongError as error:
        raise InputError(file, str(error)) from None
    beside = _with_written(beside, script.files)
    programs = LaunchedPrograms(lines, beside, depth)
    launches = _training_launches(script, programs)
    launches = [each for each in launches if not _only_other_work(*each, programs)]
    if depth:  # a program may start a server as well as a training
        launches = [each for each in launches if each[1].launcher or _trains(*each, programs) is Tri.YES]
    if not launches:
        raise InputError(file, "a shell script in which nothing starts a training that can be read")
    found: list[Document] = []
    for number, (command, line) in enumerate(launches, 1):
        one = _LaunchDocuments(command, line, lines, script, number, programs, beside)
        of_launch = one.all()
        apart = one.starts_others and len(launches) > 1
        found += merged_numbers(of_launch, number) if apart else of_launch
    diagnostics = (
        *_assumptions(script, lines, launches[0][0]),
        *_several_launches([command for command, _ in launches], lines),
        *_broken_commands(script, lines),
    )
    found[-1] = found[-1]._replace(diagnostics=diagnostics)
    return tuple(found)


def _with_written(beside: Beside, files: Mapping[str, Sequence[Value]]) -> Beside:
    """Return a function that also knows the programs that the script itself writes."""
    written = {
        posixpath.normpath(name): "".join(fragment.text for fragment in texts[0])
        for name, texts in files.items()
        if name.endswith(".py")
        and len(texts) == 1
        and not any(fragment.why or fragment.edit for fragment in texts[0])
    }
    if not written:
        return beside
    return lambda name: written.get(posixpath.normpath(name), beside(name))


def _training_launches(
    script: FollowedScript, programs: LaunchedPrograms
) -> list[tuple[LaunchCommand, LaunchLine]]:
    """Return the launch lines that train; if all do other work, all of them."""
    commands = [with_runtime_environment(command, EXPORTED) for command in script.commands]
    launches = [(command, line) for command in commands if (line := programs.line(command.words))]
    launches = [
        (command, line)
        for command, line in launches
        if not programs.is_own_command(command.words) or _trains(command, line, programs) is Tri.YES
    ]
    launches = [(command, line) for command, line in launches if line.trains] or launches
    if any(_switched_on(line, "do_train") for _, line in launches):
        launches = [(command, line) for command, line in launches if not _only_predicts(line)]
    if len(launches) == 1:
        return launches
    launches = [each for each in launches if not _does_other_work(*each, programs)] or launches
    if len({line.program for _, line in launches}) <= 1:
        return launches
    return _likeliest(launches, [_trains(*each, programs) for each in launches])


def _likeliest(
    launches: Sequence[tuple[LaunchCommand, LaunchLine]], evidence: Sequence[Tri]
) -> list[tuple[LaunchCommand, LaunchLine]]:
    """Return the launches that train; where none certainly does, those that may; else all."""
    strongest = max(evidence)
    return [each for each, trains in zip(launches, evidence, strict=True) if trains is strongest]


def _trains(command: LaunchCommand, line: LaunchLine, programs: LaunchedPrograms) -> Tri:
    """Return whether a launch trains, by what its program does, or by its name and its arguments."""
    name = line.program[-1]
    # A project may have a copy of a trainer in its own package, as in `-m ours.verl.trainer.main_ppo`.
    if len(line.program) > 1 or not _TRAINING_PACKAGES.isdisjoint(name.split(".")[:-1] or [name]):
        return Tri.YES
    code = programs.code(name, command.folder)
    followed = programs.follow(code, command, line) if code is not None else None
    if code is not None and programs.started(code, command, followed):
        return Tri.YES
    if followed is not None and followed.trains is not Tri.MAYBE:
        return followed.trains
    words = set(_WORDS.findall(_last_part(name)))
    named = words & _TRAINING_WORDS or any(word.startswith(_TRAINING_BEGINNINGS) for word in words)
    return Tri.YES if named or has_training_arguments(line.arguments) else Tri.MAYBE


def _only_other_work(command: LaunchCommand, line: LaunchLine, programs: LaunchedPrograms) -> bool:
    """Return whether a launch certainly does not train: its name or arguments say so, and so does its code.

    What such a program does by default, such as no adapter of its own, says nothing about a training.
    """
    if line.only_evaluates:
        return True
    if line.trains or names_a_training(line.arguments):
        return False
    name = line.program[-1]
    if any(word.startswith(_TRAINING_BEGINNINGS) for word in _WORDS.findall(_last_part(name))):
        return False
    code = programs.code(name, command.folder)
    if code is None:
        return True
    followed = programs.follow(code, command, line)
    if followed is None or followed.trains is Tri.YES or programs.started(code, command, followed):
        return False
    calls = (call.rpartition(".")[2].lower() for call in code.own.calls)
    return not any(call in _TRAINING_CALLS or _CALLS_A_TRAINING.search(call) for call in calls)


def _last_part(program: str) -> str:
    """Return the name of a program or module without its folders and packages, in lower case."""
    return re.split(r"[./]", program.lower().removesuffix(".py"))[-1]


def _only_predicts(line: LaunchLine) -> bool:
    """Return whether arguments of transformers' examples switch on evaluation or prediction, no training."""
    if any(word.many or word.text.endswith(CONFIG_FILES) for word in line.arguments):
        return False
    predicts = _switched_on(line, "do_predict") or _switched_on(line, "do_eval")
    return predicts and not _switched_on(line, "do_train")


def _switched_on(line: LaunchLine, option: str) -> bool:
    """Return whether a launch line has an option."""
    return any(word.text.partition("=")[0] == f"--{option}" for word in line.arguments)


def _does_other_work(command: LaunchCommand, line: LaunchLine, programs: LaunchedPrograms) -> bool:
    """Return whether the code of a program can be read and names no training."""
    if not line.program[-1].endswith(".py"):
        return False
    code = programs.code(line.program[-1], command.folder)
    if code is None or code.own.packages & _TRAINING_PACKAGES or _names_training(code.own):
        return False
    return not (code.whole.source.unresolved & _TRAINING_PACKAGES or _names_training(code.whole.source))


def _names_training(source: ProgramSource) -> bool:
    """Return whether a name in a program's code shows that it trains."""
    named = any(_TRAINING_NAMES.search(name.lower()) for name in source.names)
    return named or any(call.rpartition(".")[2] in ("train", "fit") for call in source.calls)


# --- diagnostics ------------------------------------------------------------------------------------


def _assumptions(script: FollowedScript, lines: SourceLines, command: LaunchCommand) -> Iterator[Diagnostic]:
    """Yield a note on the variables and arguments that are assumed not to be set."""
    names = sorted(script.assumed - {"@"})
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    parts = ["without its arguments"] if "@" in script.assumed else []
    if names:
        be = "is" if len(names) == 1 else "are"
        parts.append(f"as where {', '.join(names[:_MAX_LISTED])}{more} {be} not set outside")
    if script.roots:
        be = "name" if len(script.roots) > 1 else "names"
        parts.append(f"as where {', '.join(sorted(script.roots))} {be} this project's folder")
    if script.left_out:
        be = "do" if len(script.left_out) > 1 else "does"
        parts.append(f"as where {', '.join(sorted(script.left_out)[:_MAX_LISTED])} {be} not exist")
    if parts:
        text = f"read {' and '.join(parts)}"
        yield Diagnostic(Severity.NOTE, "read-as-if", text, (lines.place(command.at, command.at + 1),))


def _several_launches(commands: Sequence[LaunchCommand], lines: SourceLines) -> Iterator[Diagnostic]:
    if len(commands) > 1:
        text = f"{len(commands)} launch lines: values that differ between them are unknown"
        places = tuple(
            lines.place(command.at, command.at + len(command.words[0].text))
            for command in commands[:_MAX_LISTED]
        )
        yield Diagnostic(Severity.NOTE, "several-launches", text, places)


def _broken_commands(script: FollowedScript, lines: SourceLines) -> Iterator[Diagnostic]:
    for at, sentence in script.notes:
        yield Diagnostic(Severity.WARNING, "broken-command", sentence, (lines.place(at, at + 1),))


# --- documents of one launch ------------------------------------------------------------------------


class _LaunchDocuments:
    """Documents of one launch line; `number` counts the launches of a script from 1."""

    def __init__(
        self,
        command: LaunchCommand,
        line: LaunchLine,
        lines: SourceLines,
        script: FollowedScript,
        number: int,
        programs: LaunchedPrograms,
        beside: Beside,
    ) -> None:
        self.starts_others = False  # the program's own commands train, and not the program itself
        self.command, self.line, self.lines = command, line, lines
        self.script, self.number, self.programs = script, number, programs
        self.beside = beside
        self.unreadable: list[tuple[str, str]] = []  # written files, each with why it is not known

    def all(self) -> list[Document]:
        """Return documents of the files written for this launch, of its launcher, and of its arguments."""
        files = (*CONFIG_FILES, *_PYTHON_FILES.get(self.line.program[0], ()))
        settings, incomplete = settings_of(self.line.arguments, self.lines, files)
        launcher_settings, _ = settings_of(self.line.launcher_arguments, self.lines)
        found, written = self._written_files()
        place = self.lines.place(self.command.at, self.command.at + len(self.command.words[0].text))
        by_name = {setting.name: setting for setting in launcher_settings}
        environment = self._environment()
        processes = process_count(self.line, by_name, environment, place, self._slots(by_name))
        started_by = launcher(self.line, environment, place)
        by_launcher = (started_by, *((processes,) if processes else ()))
        given = tuple(given_variables(self.command.exported, self.lines, self.command.may_export))
        found.append(self._document(by_launcher, (), LAUNCHER)._replace(environment=given))
        if self.line.launcher == "accelerate":
            found.append(self._document(tuple(launcher_settings), ("accelerate",), "accelerate", written))
        program = (*((self.line.launcher,) if self.line.launcher else ()), *self.line.program)
        last = self._document(tuple(settings), program, "", written)._replace(incomplete=incomplete)
        program_name = self.line.program[-1]
        if len(self.line.program) == 1 and isinstance(started_by.value, str):
            count = str(processes.value) if processes else ""
            last = last._replace(launcher=started_by.value, processes=int(count) if count.isdecimal() else 0)
        if program_name.partition(".")[0] in _TRAINING_PACKAGES:  # its dialect describes it
            composed = self._hydra_config(program_name, settings, place)
            return [*found, last._replace(settings=(*last.settings, *composed))]
        if len(self.line.program) > 1 and not program_name.endswith(".py"):
            return [*found, last]  # the subcommand of a program, such as `llamafactory-cli train`: no module
        code = self.programs.code(program_name, self.command.folder)
        if code is None:
            return [
                *found,
                last._replace(source=unparsed_source(program_name, self.command.folder, self.beside)),
            ]
        followed = self.programs.follow(code, self.command, self.line)
        if started := self.programs.started(code, self.command, followed):
            self.starts_others = True
            return [*started]
        names = code.with_followed(followed)
        found += self._stated_by_code(code, names, settings, incomplete, followed)
        own = tuple(variables_of_program(followed, code.file, self.command.exported))
        left = _without_replaced(last.settings, followed.replaced if followed is not None else {})
        if followed is not None and code.takes_no_options(followed):
            last = last._replace(incomplete="")
        return [*found, last._replace(settings=left, source=names.source, environment=own)]

    def _stated_by_code(
        self,
        code: LaunchedProgram,
        names: ProgramCode,
        settings: Sequence[Setting],
        incomplete: str,
        followed: FollowedProgram | None,
    ) -> Iterator[Document]:
        """Yield what the program's own calls state if its options have the values of these settings."""
        given = {setting.name: option_value(setting.value) for setting in settings}
        # A configuration file may change any option that is not given here.
        own = {} if incomplete or "config" in given else names.source.options
        defaults = {**code.constants, **own}
        options = {
            name: value for name, value in {**defaults, **given}.items() if not isinstance(value, Unknown)
        }
        from envcheck.training_config.readers._python_calls import program_documents

        # What the program does with its configuration says more, if all of it could be followed.
        if followed is not None and followed.incomplete and followed.configuration is not None:
            from envcheck.training_config.readers._program_source import composed_document

            yield composed_document(*followed.configuration)._replace(
                launch=self.number, folder=self.command.folder, read_by=names.source
            )
        stated = program_documents(code.tree, code.file, options, names.bases, followed)
        if len(stated) > _ONE_OF_EACH:
            stated = _of_several(stated)
        place = self.lines.place(self.command.at, self.command.at + 1)
        started_by = Setting("launcher", self.line.launcher or "none", place, place)
        for document in stated:
            added = (started_by,) if document is stated[-1] else ()
            yield document._replace(
                launch=self.number, folder=self.command.folder, settings=(*document.settings, *added)
            )

    def _hydra_config(self, program: str, settings: Sequence[Setting], place: Place) -> list[Setting]:
        """Return the YAML that a program's `hydra.main` names as a setting, if both are here."""
        given = {setting.name: setting.value for setting in settings}
        for path in program_files(program, self.command.folder):
            found = _HYDRA_MAIN.search(self.beside(path) or "")
            if found is None:
                continue
            named = {**dict(_HYDRA_ARGUMENT.findall(found.group(1))), **given}
            folder, name = named.get("config_path"), named.get("config_name")
            if not isinstance(folder, str) or not isinstance(name, str):
                return []
            return self._hydra_file(posixpath.join(posixpath.dirname(path), folder), name, place)
        return self._hydra_file(*_named_for_hydra({each.name: each.value for each in settings}), place)

    def _hydra_file(self, folder: str, name: str, place: Place) -> list[Setting]:
        """Return Hydra's primary file as a setting, if it is here."""
        file = posixpath.join(folder, f"{name.removesuffix('.yaml')}.yaml") if name else ""
        return [Setting("hydra_config", file, place, place)] if file and self.beside(file) else []

    def _document(
        self,
        settings: tuple[Setting, ...],
        program: tuple[str, ...],
        dialect: str,
        written: tuple[str, ...] = (),
    ) -> Document:
        return Document(
            self.lines.file, "arguments", settings, program, self.number, dialect,
            written_files=written, folder=self.command.folder, unreadable_files=tuple(self.unreadable),
        )  # fmt: skip

    def _written_files(self) -> tuple[list[Document], tuple[str, ...]]:
        """Return the configurations that the script writes and this launch names, and how it names them.

        A file that another one names is among them.
        """
        words = (*self.line.arguments, *self.line.launcher_arguments)
        texts = [part for word in words for part in (word.text, word.text.partition("=")[2])]
        named = [name for name in self.script.files if _same_file(name, texts)]
        if self.script.files:
            named += [name for name in self._named_in_files(texts) if name not in named]
        for name in named:  # grows during the loop
            inside = "".join(spelled(text) for text in self.script.files[name])
            named += [other for other in self.script.files if other in inside and other not in named]
        found: list[Document] = []
        for name in named:
            texts_of_file = self.script.files[name]
            versions = [parsed(text, self.lines) for text in texts_of_file]
            if why := unread(texts_of_file, versions) if name.endswith(CONFIG_FILES) else "":
                self.unreadable.append((name, why))
            elif documents := [document for document in versions if document is not None]:
                found.append(agreed(documents)._replace(launch=self.number, written_as=name))
        return found, (*(text for text in texts if any(_same_file(name, [text]) for name in named)), *named)

    def _environment(self) -> Mapping[str, Argument]:
        """Return the variables that decide the processes, with the devices that the program chooses."""
        given = self.command.environment
        if self.line.launcher or not self.line.program[-1].endswith(".py"):
            return given
        code = self.programs.code(self.line.program[-1], self.command.folder)
        followed = self.programs.follow(code, self.command, self.line) if code is not None else None
        devices = devices_of_program(followed, self.command.exported)
        if devices is None:
            return given
        why = devices.why if isinstance(devices, Unknown) else ""
        chosen = Argument("" if why else str(devices), self.command.at, why)
        return {**given, "CUDA_VISIBLE_DEVICES": chosen}

    def _slots(self, settings: Mapping[str, Setting]) -> tuple[int, ...]:
        """Return the processes of each host in the host file that the deepspeed launcher is given."""
        given = settings.get("hostfile") or settings.get("H")
        name = given.value if given is not None and self.line.launcher == "deepspeed" else None
        if not isinstance(name, str):
            return ()
        written = next(
            (self.script.files[each] for each in self.script.files if _same_file(each, [name])), None
        )
        if written is None:
            return slots_of_hosts(self.beside(name) or "")
        text = known_text(written[0]) if len(written) == 1 else None
        return slots_of_hosts(text or "")

    def _named_in_files(self, texts: Sequence[str]) -> Iterator[str]:
        """Yield the files that the script writes and a configuration of this launch names by their path."""
        configurations = [text for text in texts if text.endswith(CONFIG_FILES)]
        for text in filter(None, map(self.beside, dict.fromkeys(configurations))):
            yield from (name for name in self.script.files if _names_path(text, name.removeprefix("./")))


def _without_replaced(settings: Sequence[Setting], replaced: Mapping[str, str]) -> tuple[Setting, ...]:
    """Return the settings of a command line without those that the program sets itself afterwards."""
    return tuple(
        each._replace(value=Unknown(replaced[each.name])) if replaced.get(each.name) else each
        for each in settings
        if replaced.get(each.name) != ""
    )


def _of_several(stated: Sequence[Document]) -> tuple[Document, ...]:
    """Return what a program states that makes the arguments of several trainers.

    Only one of them may be used, or one after another. What they have in common holds in any case, if they
    are of one trainer; what they leave out has a default only if they are of one class.
    """
    *arguments, others = stated
    if len({each.dialect for each in arguments}) > 1:
        return (others,)
    classes = dict.fromkeys(each.program[0] for each in arguments)
    if len(classes) == 1:
        return (agreed(arguments, f"the program makes {arguments[0].program[0]} several times"), others)
    common = agreed(arguments, f"{' and '.join(classes)} of the program differ in it")
    return (common._replace(whole=False), others)


def _named_for_hydra(given: Mapping[str, SettingValue]) -> tuple[str, str]:
    """Return the folder and the name of Hydra's primary file, as a trainer's program is given them.

    A relative `--config-path` is a folder of the trainer, a relative `--config-dir` one of the project.
    """
    path, added, name = given.get("config_path"), given.get("config_dir"), given.get("config_name")
    own = path if isinstance(path, str) and path.startswith(("/", "./")) else added
    return (own, name) if isinstance(own, str) and isinstance(name, str) else ("", "")


def _names_path(text: str, path: str) -> bool:
    """Return whether a text names a file by its whole path."""
    return "." in path and re.search(rf"(?<![\w/.-])(?:\./)?{re.escape(path)}(?![\w/.-])", text) is not None


def _same_file(name: str, texts: Sequence[str]) -> bool:
    """Return whether one of the texts names a file."""
    return any(text.removeprefix("./") == name.removeprefix("./") for text in texts)
