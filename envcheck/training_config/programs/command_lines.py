"""Command lines of a followed program: its words, argparse, and Hydra's main."""

from __future__ import annotations

import ast
import posixpath
from bisect import bisect_left
from collections.abc import Collection

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.hydra import ReadConfiguration, as_record, composed, put_at
from envcheck.training_config.programs.modules import Project, is_inside
from envcheck.training_config.programs.parsers import (
    Commands,
    GivenArguments,
    Parser,
    all_parsers,
    given_in,
    joined_defaults,
    option_of,
    read_words,
)
from envcheck.training_config.programs.python_configurations import PythonConfigurations
from envcheck.training_config.programs.recorded_calls import Arguments
from envcheck.training_config.programs.values import (
    MISSING,
    File,
    ProjectFunction,
    Record,
    Value,
    deepcopy,
    has_further,
    is_list,
    same,
)

_CONFIGURATIONS = (".yaml", ".yml", ".json", ".toml")
_PARSES = ("parse_args", "parse_known_args")


class CommandLines(PythonConfigurations):
    """Interpreter that knows a program's arguments; what other libraries do is left to subclasses."""

    def __init__(
        self, project: Project, read_configuration: ReadConfiguration, arguments: GivenArguments
    ) -> None:
        super().__init__(project, arguments.named, arguments.rest)
        self.read_configuration, self.arguments_given = read_configuration, arguments
        self._choices: dict[str, Value] = {}  # the file that each group of a Hydra configuration takes
        self.opened: list[str] = []  # configuration files that were read
        self.configuration: tuple[str, Record] | None = None  # what Hydra composes, with the primary file
        self.written: dict[str, Value] = {}  # the content of configurations that the program writes

    def take_arguments(self, arguments: GivenArguments) -> None:
        """Go on with other arguments, as after the program sets `sys.argv`."""
        self.arguments_given = arguments
        self.given, self.rest = arguments.named, arguments.rest

    def set_command_line(self, words: tuple[Value, ...]) -> None:
        """Go on with another command line; the first word is the program."""
        certain = not self.conditions and not has_further(words)
        if certain and not _same_words(words[1:], self.arguments_given.words):
            self.take_arguments(given_in(words[1:]))

    def _command_line(self) -> Value:
        """Return the words of the command line."""
        if self.arguments_given.words is not None:
            return (self.program, *self.arguments_given.words)
        if self.rest:
            return Unknown(self.rest)
        words: list[Value] = [self.program]
        for name, value in self.given.items():
            positional = name == "config" and isinstance(value, str) and value.endswith(_CONFIGURATIONS)
            words += [value] if positional else [f"--{name}", value if isinstance(value, str) else str(value)]
        return tuple(words)

    def overrides(self, words: Value) -> Value:
        """Return overrides such as `a.b=1`, those of the command line if `words` is None, as a record."""
        if words is None:
            named, rest = self.given, self.rest
        elif is_list(words):
            listed = given_in(words)
            named, rest = listed.named, listed.rest
        else:
            named, rest = {}, "its overrides are computed"
        found = Record({}, "namespace", rest=rest, born=len(self.conditions))
        for name, value in named.items():
            put_at(found, name.split("."), value)
        return found

    def _loaded(self, source: Value, role: str = "namespace") -> Value:
        """Return the content of a YAML or JSON file; `role` is that of its sections."""
        path = source.path if isinstance(source, File) else source if isinstance(source, str) else None
        if path is None or path.lstrip().startswith(("{", "[")):
            return MISSING
        # An absolute path, as on the machine of the training, may end as a file of the project: of those that
        # end so, whoever reads the files finds only what is in the project.
        if not is_inside(path) and not (posixpath.isabs(path) and path.endswith(_CONFIGURATIONS)):
            return MISSING
        written = self.written.get(posixpath.normpath(path))
        if isinstance(written, str):
            return Unknown(f"{path} is written as a text")
        if isinstance(written, Record | Unknown):
            return deepcopy(written) if isinstance(written, Record) else written
        content = self.read_configuration(path)
        if content is None:
            return Unknown(f"{path} is not here")
        self.opened.append(path)
        return as_record(content, role)

    def _start_hydra(self, function: ProjectFunction, mark: ast.Call) -> Value:
        """Follow a function that hydra gives its configuration."""
        named = {each.arg: self.value(each.value, function.scope) for each in mark.keywords if each.arg}
        folder, name = named.get("config_path"), self.given.get("config_name", named.get("config_name"))
        config: Value = Unknown("its configuration is not here")
        if isinstance(folder, str) and isinstance(name, str):
            base = posixpath.normpath(posixpath.join(posixpath.dirname(function.module.path), folder))
            config = composed(base, name, self.given, self.read_configuration, self._choices)
            if isinstance(config, Record) and not self.rest:
                self.configuration = (posixpath.join(base, name), config)
        return self.call_function(function, Arguments((config,), ()))

    def _parser_method(self, parser: Parser, name: str, given: Arguments) -> Value:
        if name == "add_argument":
            parser.declare(given)
            return None
        if name in ("add_argument_group", "add_mutually_exclusive_group"):
            return parser
        if name == "set_defaults":
            parser.options.update({each.name: each.value for each in given.keywords})
            return None
        if name in _PARSES:
            return self._parses(parser, name, given.get("args", 0))
        if name == "add_subparsers":
            dest = given.keyword("dest")
            parser.commands = parser.commands or Commands(dest if isinstance(dest, str) else "")
            return parser.commands
        return MISSING

    def new_parser(self, given: Arguments) -> Parser:
        """Return a parser with the options of its parents."""
        parser = Parser()
        parents = given.keyword("parents")
        for each in parents if is_list(parents) else ():
            if isinstance(each, Parser):
                parser.inherit(each)
        return parser

    def _commands_method(self, commands: Commands, name: str, given: Arguments) -> Value:
        """Return the result of a method of the subcommands of a parser."""
        command, aliases = given.get("name", 0), given.keyword("aliases")
        if name != "add_parser" or not isinstance(command, str):
            return MISSING
        parser = self.new_parser(given)
        commands.parsers[command] = parser
        for alias in aliases if is_list(aliases) else ():
            if isinstance(alias, str):
                commands.parsers[alias] = parser
        return parser

    def _parses(self, parser: Parser, method: str, words: Value) -> Value:
        """Return what a method that parses returns; `words` are those that it is given."""
        before = self.arguments_given
        if is_list(words) and not _same_words(words, before.words):
            self.take_arguments(given_in(words))
        try:
            record = self._parsed(parser)
            if method == "parse_args":
                return record
            known = self.arguments_given.words
            if known is None:
                return record, Unknown(self.rest) if self.rest else ()
            return record, read_words(parser, known).left
        finally:
            self.take_arguments(before)

    def _parsed(self, parser: Parser) -> Record:
        """Return the options of a command line."""
        given = self.arguments_given
        read = read_words(parser, given.words or ())
        chosen = read.parsers
        last = chosen[-1].commands
        undecided = last is not None and (given.words is None or bool(self.rest) or not read.certain)
        items: dict[str, Value] = {}
        for each in chosen:
            items.update(each.options)
        if undecided:
            inner = [*all_parsers(chosen[-1])]
            items = {**joined_defaults(inner, "it depends on the subcommand"), **items}
            items = {**items, **joined_defaults(inner[1:], "it depends on the subcommand")}
            chosen = (*chosen[:-1], *inner)
        for each in chosen:
            if each.commands is not None and each.commands.dest:
                unknown = Unknown("the command line names a subcommand")
                items[each.commands.dest] = unknown if undecided else None
        flags = {flag: stored for each in chosen for flag, stored in each.flags.items()}
        positionals = {one.name for each in chosen for one in each.positionals}
        if self.rest:
            stored = {name for name, _ in flags.values()} | positionals
            items = {name: Unknown(self.rest) if name in stored else value for name, value in items.items()}
        lists = {name for each in chosen for name in each.lists}
        written = _as_written(self.given, flags)
        for flag, (name, constant) in flags.items():
            if flag in written:
                items[name] = (
                    option_of(given, written[flag], takes_list=name in lists)
                    if constant is MISSING
                    else constant
                )
        return Record({**items, **read.items}, "namespace", rest="", born=0)


def _as_written(given: Collection[str], flags: Collection[str]) -> dict[str, str]:
    """Return how the flags that are given are written: in full, or by the beginning of one flag alone.

    argparse takes such a beginning unless it is told not to.
    """
    found = {name: name for name in given if name in flags}
    in_order = sorted(flags)
    for name in given:
        first = bisect_left(in_order, name)
        meant = [flag for flag in in_order[first : first + 2] if flag.startswith(name)]
        if name not in found and len(meant) == 1:
            found.setdefault(meant[0], name)
    return found


def _same_words(one: tuple[Value, ...], other: tuple[Value, ...] | None) -> bool:
    return other is not None and len(one) == len(other) and all(map(same, one, other))
