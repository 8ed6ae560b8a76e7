"""Programs that the launch lines of one script start: their code, what following it finds, what it starts."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from envcheck.core.errors import Place
from envcheck.core.facts import Unknown
from envcheck.core.patterns import pattern
from envcheck.training_config.document import ANY_OTHER, Document, Scalar
from envcheck.training_config.launch_scripts.launchers import (
    LaunchLine,
    is_known_trainer,
    launch_line,
    may_train,
    starts_program,
)
from envcheck.training_config.launch_scripts.processes import launcher, process_count
from envcheck.training_config.launch_scripts.simple_commands import LaunchCommand
from envcheck.training_config.launch_scripts.values import Argument, Value, base_name, spelled
from envcheck.training_config.readers import Beside
from envcheck.training_config.readers._argument_words import option_value, settings_of
from envcheck.training_config.readers._console_scripts import ConsoleScripts
from envcheck.training_config.readers._program_files import program_texts
from envcheck.training_config.source_lines import SourceLines

if TYPE_CHECKING:  # imported where a program is beside the script
    from envcheck.training_config.programs.follow import FollowedProgram
    from envcheck.training_config.readers._program_source import LaunchedProgram

_MOST_FOLLOWED = 12  # programs that are followed for one script
_PREFIX = 8  # words of a command in which another one may begin
_DEEPEST = 3  # programs that start one another
_OF_LAUNCHERS = ("WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
_SETS_WORLD_SIZE = ("torchrun", "deepspeed")
"""Variables that say which process of how many one is, and launchers whose number of processes they tell."""

_NAME = pattern(r"(?:--?|\+{0,2})[A-Za-z_][\w.-]*")
_SPELLED_AS_NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class LaunchedPrograms:
    """Programs of one script, each read once, and followed with the same arguments once, up to a number.

    `depth` counts the programs that started one another before this script.
    """

    def __init__(self, lines: SourceLines, beside: Beside, depth: int) -> None:
        self.lines, self._beside, self._depth = lines, beside, depth
        self._scripts = ConsoleScripts(beside)
        self._codes: dict[tuple[str, str], LaunchedProgram | None] = {}
        self._found: dict[str, FollowedProgram | None] = {}
        self._long_ones: set[str] = set()  # files of programs that are too long to be followed to their end
        self._started: dict[tuple[str, int], tuple[Document, ...]] = {}  # by folder and followed program

    def may_train(self, words: tuple[Argument, ...]) -> bool:
        """Return whether a command may start a training; a console script of the project may."""
        return may_train(words) or self._is_console_script(words)

    def line(self, words: tuple[Argument, ...]) -> LaunchLine | None:
        """Return the parts of a command, or None if the program that it starts has no known name."""
        if self._is_console_script(words):
            return LaunchLine("", (), (base_name(words[0].text),), words[1:])
        return launch_line(words)

    def is_own_command(self, words: tuple[Argument, ...]) -> bool:
        """Return whether only the program's code can show that a command trains."""
        return not may_train(words) and self._is_console_script(words)

    def _is_console_script(self, words: tuple[Argument, ...]) -> bool:
        name = base_name(words[0].text)
        if words[0].why or not _SPELLED_AS_NAMES.issuperset(name) or self._scripts.of(name) is None:
            return False
        if is_known_trainer(name):  # in the trainer's own checkout, too, its dialect says what it reads
            return False
        # As a word before a command, such as the name of an environment, it starts nothing.
        return not any(starts_program(base_name(word.text)) for word in words[1:_PREFIX])

    def code(self, program: str, folder: str) -> LaunchedProgram | None:
        """Return the code of a program; None if its file is not here or cannot be parsed."""
        key = program, folder
        if key not in self._codes:
            self._codes[key] = self._read(program, folder)
        return self._codes[key]

    def _read(self, program: str, folder: str) -> LaunchedProgram | None:
        script = self._scripts.of(program) if _SPELLED_AS_NAMES.issuperset(program) else None
        module = script.module if script is not None else program
        if not any(program_texts(module, folder, self._beside)):
            return None
        from envcheck.training_config.readers._program_source import launched_program

        code = launched_program(module, folder, self._beside)
        if code is not None and script is not None:
            code.entry = script.function
        return code

    def follow(
        self, code: LaunchedProgram, command: LaunchCommand, line: LaunchLine
    ) -> FollowedProgram | None:
        """Return what following a program as a launch line starts it finds; None if many were followed."""
        settings, rest = settings_of(line.arguments, self.lines)
        path, folder = code.file, command.folder
        from envcheck.training_config.programs.follow import TOO_LONG
        from envcheck.training_config.programs.parsers import GivenArguments
        from envcheck.training_config.readers._program_source import follow_program

        words = tuple(map(_word, line.arguments))
        given = {setting.name: option_value(setting.value) for setting in settings}
        more = {each.name: tuple(map(_further_value, each.more)) for each in settings if each.more}
        environment = {name: _seen_by_program(value) for name, value in command.exported.items()}
        if command.may_set:
            environment[ANY_OTHER] = Unknown(f"a variable {command.may_set}")
        of_launcher = self._of_launcher(command, line)
        options = [sorted(each.items()) for each in (given, more, environment, of_launcher)]
        key = repr((path, folder, options, rest, words, code.entry))
        if key not in self._found and len(self._found) < _MOST_FOLLOWED:
            arguments = GivenArguments(given, rest, more, words)
            briefly = path in self._long_ones
            found = follow_program(
                path, folder, self._beside, arguments, environment, code.entry,
                of_launcher=of_launcher, briefly=briefly,
            )  # fmt: skip
            self._found[key] = found
            if found is not None and found.incomplete == TOO_LONG:
                self._long_ones.add(path)
        return self._found.get(key)

    def _of_launcher(self, command: LaunchCommand, line: LaunchLine) -> dict[str, str | None]:
        """Return the variables that a launcher sets for its processes, as far as they are the same for all.

        A program that is started directly has none of them.
        """
        place = Place(self.lines.file)
        started_by = launcher(line, command.environment, place).value
        if started_by == "none":
            return dict.fromkeys(_OF_LAUNCHERS)
        settings, _ = settings_of(line.launcher_arguments, self.lines)
        by_name = {setting.name: setting for setting in settings}
        count = process_count(line, by_name, command.environment, place)
        known = count is not None and isinstance(count.value, str) and started_by in _SETS_WORLD_SIZE
        return {"WORLD_SIZE": str(count.value)} if known and count is not None else {}

    def started(
        self, code: LaunchedProgram, command: LaunchCommand, followed: FollowedProgram | None
    ) -> tuple[Document, ...]:
        """Return the documents of the commands that a followed program starts and that train."""
        if followed is None or self._depth >= _DEEPEST:
            return ()
        key = command.folder, id(followed)
        if key not in self._started:
            from envcheck.training_config.readers import _started_processes

            before = [f"cd {shlex.quote(command.folder)}"] if command.folder else []
            self._started[key] = _started_processes.documents(
                followed, code.file, self._beside, before, self._depth + 1
            )
        return self._started[key]


def _word(word: Argument) -> Any:
    """Return a word as a followed program sees it; of `name=$VALUE` the name is known."""
    from envcheck.training_config.programs.values import Further, PartialText, UnknownWord

    if word.many or not word.why:
        return Further(word.why) if word.many else word.text
    name, equals, _ = word.text.partition("=")
    named = equals and _NAME.fullmatch(name)
    return PartialText((f"{name}=", UnknownWord(word.why))) if named else UnknownWord(word.why)


def _further_value(value: Scalar | Unknown) -> Scalar | Unknown:
    return value if isinstance(value, Unknown) else option_value(value)


def _seen_by_program(value: Value) -> str | Unknown:
    """Return the text that a program finds in a variable of its environment."""
    why = next((fragment.why for fragment in value if fragment.why), "")
    return Unknown(why) if why else spelled(value)


def merged_numbers(documents: Sequence[Document], number: int) -> tuple[Document, ...]:
    """Return the documents of launches that belong to launch `number` of another script."""
    return tuple(
        each._replace(launch=number * _APART + each.launch) if each.launch else each for each in documents
    )


_APART = 1000
"""Launch numbers of one program's commands are this far from those of the next."""
