"""Command lines of a followed program: argparse, click, Typer, Fire, and Hydra's main."""

from __future__ import annotations

import ast
import posixpath
from collections.abc import Mapping
from types import MappingProxyType

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.builtin_functions import converted
from envcheck.training_config.programs.hydra import ReadConfiguration, as_record, composed
from envcheck.training_config.programs.modules import Project, is_inside
from envcheck.training_config.programs.python_configurations import PythonConfigurations
from envcheck.training_config.programs.recorded_calls import Arguments, KeywordGiven
from envcheck.training_config.programs.values import (
    MISSING,
    File,
    LibraryName,
    Parser,
    ProjectFunction,
    Record,
    Thing,
    Value,
    is_list,
)

_CONFIGURATIONS = (".yaml", ".yml", ".json", ".toml")
_PARSES = ("parse_args", "parse_known_args")


class CommandLines(PythonConfigurations):
    """Interpreter that knows a program's arguments; what other libraries do is left to subclasses.

    `given` are the arguments on its command line, `rest` is the reason why there may be others, or "", and
    `more` are the words after the value of an argument, by its name.
    """

    def __init__(
        self,
        project: Project,
        read_configuration: ReadConfiguration,
        given: Mapping[str, Value],
        rest: str,
        more: Mapping[str, tuple[Value, ...]] = MappingProxyType({}),
    ) -> None:
        super().__init__(project, given, rest)
        self.read_configuration, self.more = read_configuration, more
        self._choices: dict[str, Value] = {}  # the file that each group of a Hydra configuration takes
        self.opened: list[str] = []  # configuration files that were read
        self.configuration: tuple[str, Record] | None = None  # what Hydra composes, with the primary file

    def _command_line(self) -> Value:
        """Return the words of the command line."""
        if self.rest:
            return Unknown(self.rest)
        words: list[Value] = ["program.py"]
        for name, value in self.given.items():
            positional = name == "config" and isinstance(value, str) and value.endswith(_CONFIGURATIONS)
            words += [value] if positional else [f"--{name}", value if isinstance(value, str) else str(value)]
        return tuple(words)

    def _loaded(self, source: Value) -> Value:
        """Return the content of a YAML or JSON file."""
        path = source.path if isinstance(source, File) else source if isinstance(source, str) else None
        if path is None or path.lstrip().startswith(("{", "[")) or not is_inside(path):
            return MISSING
        content = self.read_configuration(path)
        if content is None:
            return Unknown(f"{path} is not here")
        self.opened.append(path)
        return as_record(content)

    # --- what starts a program ---------------------------------------------------------------------

    def call_marked(self, function: ProjectFunction, given: Arguments) -> Value:
        """Return what a function returns; a decorator may give it its arguments."""
        if given.positional or given.keywords or given.rest or function.owner is not None:
            return self.call_function(function, given)
        for mark in function.marks:
            name = _name_of(mark)
            if name == "main" and isinstance(mark, ast.Call) and "hydra" in ast.unparse(mark.func):
                return self._start_hydra(function, mark)
            if name in ("command", "option", "argument", "callback"):
                return self._start_command(function)
        return self.call_function(function, given)

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

    def _start_command(self, function: ProjectFunction) -> Value:
        """Follow a function whose decorators declare the options of a command line."""
        declared = Parser()
        for mark in reversed(function.marks):
            if isinstance(mark, ast.Call) and _name_of(mark) in ("option", "argument"):
                given = self.arguments(mark, function.scope)
                flag = given.keyword("is_flag")
                action = (KeywordGiven("action", "store_true", mark),) if flag is True else ()
                _declare(declared, given._replace(keywords=(*given.keywords, *action)))
        values = self._parsed(declared).items if declared.options else {}
        keywords = {**self.given, **values}
        names = {each.arg for each in (*function.node.args.args, *function.node.args.kwonlyargs)}
        found = tuple(
            KeywordGiven(name, value, ast.Constant(None)) for name, value in keywords.items() if name in names
        )
        return self.call_function(function, Arguments((), found))

    def _started(self, program: Value) -> Value:
        """Follow a function that a library starts with the arguments of the command line."""
        keywords = tuple(KeywordGiven(name, value, ast.Constant(None)) for name, value in self.given.items())
        if isinstance(program, ProjectFunction):
            names = {each.arg for each in (*program.node.args.args, *program.node.args.kwonlyargs)}
            takes_all = program.node.args.kwarg is not None
            keywords = tuple(each for each in keywords if takes_all or each.name in names)
            self.call_function(program, Arguments((), keywords))
        elif isinstance(program, Record):
            # A dictionary of commands: which one runs is the user's choice.
            self.incomplete = self.incomplete or "the command line names a command"
            for each in program.items.values():
                if isinstance(each, ProjectFunction):
                    self._started(each)
        else:
            self.incomplete = self.incomplete or "the command line names a method"
        return None

    # --- argparse ----------------------------------------------------------------------------------

    def _parser_method(self, parser: Parser, name: str, given: Arguments) -> Value:
        if name == "add_argument":
            _declare(parser, given)
            return None
        if name in ("add_argument_group", "add_mutually_exclusive_group"):
            return parser
        if name == "set_defaults":
            parser.options.update({each.name: each.value for each in given.keywords})
            return None
        if name in _PARSES:
            record = self._parsed(parser)
            return record if name == "parse_args" else (record, ())
        if name in ("add_subparsers", "add_parser"):
            self.incomplete = self.incomplete or "the program has subcommands"
            return Thing("subparsers", certain=True)
        return MISSING

    def _parsed(self, parser: Parser) -> Record:
        """Return the options of a command line."""
        items = dict(parser.options)
        if self.rest:
            items = {name: Unknown(self.rest) for name in items}
        for flag, (name, constant) in parser.flags.items():
            if flag in self.given:
                items[name] = (
                    self._option(flag, takes_list=name in parser.lists) if constant is MISSING else constant
                )
        return Record(items, "namespace", rest="", born=0)

    def _option(self, name: str, *, takes_list: bool) -> Value:
        """Return the value of an option that was given; of a list, all its words."""
        first = self.given[name]
        if not takes_list:
            return first
        return (*(first if is_list(first) else (first,)), *self.more.get(name, ()))


def _name_of(mark: ast.expr) -> str:
    """Return the last name of a decorator."""
    called = mark.func if isinstance(mark, ast.Call) else mark
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _declare(parser: Parser, given: Arguments) -> None:
    """Add an option to a parser of argparse."""
    flags = [each for each in given.positional if isinstance(each, str)]
    if not flags:
        return
    spelled = [flag.lstrip("-").replace("-", "_") for flag in flags]
    long = next(
        (name for flag, name in zip(flags, spelled, strict=True) if flag.startswith("--")), spelled[0]
    )
    given_name = given.keyword("dest")
    name = given_name if isinstance(given_name, str) else long
    action = given.keyword("action")
    default = given.keyword("default")
    constant: Value = MISSING
    if action in ("store_true", "store_false"):
        constant = action == "store_true"
        default = (not constant) if default is MISSING else default
    elif action == "store_const":
        constant = given.keyword("const")
    if isinstance(default, str) and isinstance(given.keyword("type"), LibraryName):
        converted = _converted_option(default, given.keyword("type"))
        default = default if converted is MISSING else converted
    # Two options may share a variable; the first one that declares it gives the default.
    parser.options.setdefault(name, None if default is MISSING else default)
    for each in spelled:
        parser.flags[each] = (name, constant)
    if given.keyword("nargs") not in (MISSING, None, "?"):
        parser.lists.add(name)


def _converted_option(default: str, kind: LibraryName) -> Value:
    name = kind.name.removeprefix("builtins.")
    return converted(name, default) if name in ("int", "float") else MISSING
