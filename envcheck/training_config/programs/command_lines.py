"""Command lines of a followed program: argparse, click, Typer, Fire, and Hydra's main."""

from __future__ import annotations

import ast
import posixpath
import re
from collections.abc import Iterator
from typing import NamedTuple

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.hydra import ReadConfiguration, as_record, composed, put_at
from envcheck.training_config.programs.modules import Module, Project, is_inside
from envcheck.training_config.programs.parsers import (
    Commands,
    GivenArguments,
    Parser,
    all_parsers,
    given_in,
    joined_defaults,
    option_of,
    read_words,
    typed,
)
from envcheck.training_config.programs.python_configurations import PythonConfigurations
from envcheck.training_config.programs.recorded_calls import Arguments, KeywordGiven
from envcheck.training_config.programs.values import (
    MISSING,
    ClassValue,
    File,
    Further,
    LibraryName,
    ProjectFunction,
    Record,
    Thing,
    Value,
    deepcopy,
    has_further,
    is_list,
    same,
)

_CONFIGURATIONS = (".yaml", ".yml", ".json", ".toml")
_PARSES = ("parse_args", "parse_known_args")


class Command(NamedTuple):
    """Command of a click group or of a Typer application, which is its `owner`, or a group inside it."""

    owner: Value
    name: str
    starts: Value


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
        self._commands: list[Command] = []
        self._started_groups = False

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

    def _loaded(self, source: Value) -> Value:
        """Return the content of a YAML or JSON file."""
        path = source.path if isinstance(source, File) else source if isinstance(source, str) else None
        if path is None or path.lstrip().startswith(("{", "[")) or not is_inside(path):
            return MISSING
        if isinstance(written := self.written.get(posixpath.normpath(path)), Record | Unknown):
            return deepcopy(written) if isinstance(written, Record) else written
        content = self.read_configuration(path)
        if content is None:
            return Unknown(f"{path} is not here")
        self.opened.append(path)
        return as_record(content)

    # --- what starts a program ---------------------------------------------------------------------

    def call_marked(self, function: ProjectFunction, given: Arguments) -> Value:
        """Return what a function returns; a decorator may give it its arguments."""
        marks = [_name_of(mark) for mark in function.marks]
        if "group" in marks:
            return self.start_group(function)
        if given.positional or given.keywords or given.rest or function.owner is not None:
            return self.call_function(function, given)
        for mark, name in zip(function.marks, marks, strict=True):
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

    # --- click and Typer ----------------------------------------------------------------------------

    def note_command(self, owner: Value, name: str, starts: Value) -> None:
        """Remember a command of a group or an application."""
        self._commands.append(Command(owner, name, starts))

    def _commands_of(self, owner: Value) -> list[Command]:
        return [each for each in self._commands if _same_group(each.owner, owner)]

    def start_group(self, owner: Value) -> Value:
        """Follow the command of a group that the command line names; each of them if it is not known."""
        self._started_groups = True
        if isinstance(owner, ProjectFunction):
            self._start_command(owner)
        commands = [each for each in self._commands_of(owner) if each.name]
        for each in self._commands_of(owner):
            if not each.name:  # a callback runs before each command
                self._start(each.starts)
        words = self.arguments_given.words
        alone = (
            len(commands) == 1
            and isinstance(owner, Thing)
            and isinstance(commands[0].starts, ProjectFunction)
        )
        if alone and (words is None or commands[0].name not in words):
            self._start(commands[0].starts)
            return None
        names = {each.name for each in commands}
        at = next((i for i, word in enumerate(words or ()) if isinstance(word, str) and word in names), None)
        if words is not None and at is not None:
            before = self.arguments_given
            self.arguments_given = before._replace(words=words[at + 1 :])
            for each in commands:
                if each.name == words[at]:
                    self._start(each.starts)
            self.arguments_given = before
        elif words is None or self.rest:
            for each in commands:
                with self.under(f"the command is {each.name}"):
                    self._start(each.starts)
        return None

    def _start(self, starts: Value) -> None:
        if isinstance(starts, ProjectFunction) and not self._commands_of(starts):
            self._start_command(starts)
        else:
            self.start_group(starts)

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

    def start_entry(self, module: Module, name: str) -> None:
        """Follow the function, or the group of commands, that a console script calls."""
        started: Value = module.scope.find(name.partition(".")[0])
        started = self.resolved(started)
        if isinstance(started, ProjectFunction):
            self.call_marked(started, Arguments((), ()))
        elif started is MISSING or isinstance(started, Unknown):
            self.incomplete = self.incomplete or f"{name} is not in {module.path}"
        else:
            self.start_group(started)

    def start_commands(self) -> None:
        """Follow the commands of groups if the module itself starts none."""
        if self._started_groups:
            return
        inner = [each.starts for each in self._commands if not isinstance(each.owner, LibraryName)]
        owners: list[Value] = []
        for each in self._commands:  # of which `@click.command()` belongs to no group
            owner = each.starts if isinstance(each.owner, LibraryName) else each.owner
            known = any(_same_group(owner, other) for other in (*owners, *inner))
            owners += [] if known else [owner]
        for owner in owners:
            if not (isinstance(owner, ProjectFunction) and owner.node in self.followed):
                self._start(owner)

    def _start_command(self, function: ProjectFunction) -> Value:
        """Follow a function whose decorators, or whose parameters, declare the options of a command line."""
        declared = Parser()
        for mark in reversed(function.marks):
            if isinstance(mark, ast.Call) and _name_of(mark) in ("option", "argument"):
                self._declare_click(declared, mark, function)
        if not declared.options:
            _declare_parameters(declared, function)
            declared.options.clear()  # its parameters have their defaults
        values = self._parsed(declared).items
        keywords = {**self.given, **values}
        names = {each.arg for each in (*function.node.args.args, *function.node.args.kwonlyargs)}
        takes_all = function.node.args.kwarg is not None
        found = tuple(
            KeywordGiven(name, value, ast.Constant(None))
            for name, value in keywords.items()
            if name in names or (takes_all and name in values)
        )
        rest = self.rest if not declared.options else ""
        return self.call_function(function, Arguments((), found, rest))

    def _declare_click(self, parser: Parser, mark: ast.Call, function: ProjectFunction) -> None:
        """Add what a decorator of click declares; `--a/--no-a` are two flags of one option."""
        given = self.arguments(mark, function.scope)
        flags = [each for each in given.positional if isinstance(each, str)]
        named = [each for each in flags if not each.startswith("-")] if flags[:1] != flags[-1:] else []
        both = next((each for each in flags if "/" in each), "")
        more: tuple[KeywordGiven, ...] = ()
        if given.keyword("is_flag") is True or both:
            more = (KeywordGiven("action", "store_true", mark),)
        if named:
            more = (*more, KeywordGiven("dest", named[0], mark))
        spelled = tuple(each.partition("/")[0].strip() for each in flags if each not in named)
        count = tuple(each for each in given.keywords if each.name != "nargs" or each.value != 1)
        parser.declare(Arguments(spelled, (*count, *more)))
        if both and spelled:
            off = both.partition("/")[2].strip().lstrip("-").replace("-", "_")
            name = parser.flags[spelled[0].lstrip("-").replace("-", "_")][0]
            parser.flags[off] = (name, False)
            parser.counts[off] = 0

    def of_parser(self, owner: Value, name: str, given: Arguments) -> Value:
        """Return the result of a method of a parser, of its subcommands, or of a group, or MISSING."""
        if isinstance(owner, Parser):
            return self._parser_method(owner, name, given)
        if isinstance(owner, Commands):
            return self._commands_method(owner, name, given)
        added, named = given.get("", 0), given.get("name", 1)
        own = next((each.name for each in self._commands if _same_group(each.starts, added)), "")
        self.note_command(owner, named if isinstance(named, str) else own, added)
        return None

    def of_command_line(self, name: str, given: Arguments) -> Value:
        """Return the result of a function of Fire or Typer, or MISSING."""
        first = given.get("component", 0)
        if name == "Fire":
            component = self.globals_here() if first is MISSING or first is None else first
            return self.start_component(component, self.arguments_given.words)
        if name == "run" and isinstance(first, ProjectFunction):
            return self._start_command(first)
        if name not in ("Option", "Argument"):
            return MISSING
        default = given.get("default", 0)
        return Unknown("it is not given") if default is MISSING else default

    # --- Fire -----------------------------------------------------------------------------------------

    def start_component(self, program: Value, words: tuple[Value, ...] | None) -> Value:
        """Follow what Fire is given: a function, a class, or a dictionary of them, which a word chooses."""
        if isinstance(program, ProjectFunction):
            self._start_function(program, words)
        elif isinstance(program, Record | ClassValue):
            self._start_member(program, words)
        else:
            self.incomplete = self.incomplete or "the command line names a method"
        return None

    def _start_function(self, function: ProjectFunction, words: tuple[Value, ...] | None) -> None:
        parameters = function.node.args
        names = [each.arg for each in parameters.args]
        names = names[1:] if function.owner is not None else names
        taken = {*names, *(each.arg for each in parameters.kwonlyargs)}
        keywords = tuple(
            KeywordGiven(name, value, ast.Constant(None))
            for name, value in self.given.items()
            if parameters.kwarg is not None or name in taken
        )
        given = {each.name for each in keywords}
        positional = [typed(each) for each in _before_options(words or ())]
        free = [name for name in names if name not in given]
        keywords += tuple(
            KeywordGiven(name, value, ast.Constant(None))
            for name, value in zip(free, positional, strict=False)
        )
        self.call_function(function, Arguments((), keywords, self.rest))

    def _start_member(self, owner: Record | ClassValue, words: tuple[Value, ...] | None) -> None:
        """Follow a member of a dictionary, or a method of an object, that the command line names."""
        made: Value = owner
        if isinstance(owner, ClassValue):
            start = self._in_class(owner, "__init__", Record({}))
            taken = (
                {each.arg for each in (*start.node.args.args, *start.node.args.kwonlyargs)}
                if isinstance(start, ProjectFunction)
                else set()
            )
            keywords = tuple(
                KeywordGiven(name, value, ast.Constant(None))
                for name, value in self.given.items()
                if name in taken
            )
            made = self.instantiate(owner, Arguments((), keywords, self.rest), _EMPTY_CALL)
        members: dict[str, Value] = {}
        if isinstance(owner, ClassValue):
            methods = {
                name for each in owner.lineage() if isinstance(each, ClassValue) for name in each.members
            }
            members = {
                name: self._in_class(owner, name, made)
                for name in sorted(methods)
                if not name.startswith("_")
            }
        elif isinstance(owner, Record):
            members = {name: self.resolved(each) for name, each in owner.items.items()}
        callable_ones = {k: v for k, v in members.items() if isinstance(v, ProjectFunction | ClassValue)}
        word = next(iter(words or ()), None)
        name = word.replace("-", "_") if isinstance(word, str) else ""
        chosen = callable_ones.get(word, callable_ones.get(name)) if isinstance(word, str) else None
        if chosen is not None:
            self.start_component(chosen, (words or ())[1:])
        elif words is None or self.rest or not isinstance(word, str | None):
            for key, each in callable_ones.items():
                with self.under(f"the command is {key}"):
                    self.start_component(each, None)

    # --- argparse ----------------------------------------------------------------------------------

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
        for flag, (name, constant) in flags.items():
            if flag in self.given:
                items[name] = (
                    option_of(given, flag, takes_list=name in lists) if constant is MISSING else constant
                )
        return Record({**items, **read.items}, "namespace", rest="", born=0)


def _name_of(mark: ast.expr) -> str:
    """Return the last name of a decorator."""
    called = mark.func if isinstance(mark, ast.Call) else mark
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _same_group(one: Value, other: Value) -> bool:
    """Return whether two values are the same group: a function, or an object that a library made."""
    if isinstance(one, ProjectFunction) and isinstance(other, ProjectFunction):
        return one.node is other.node
    return one is other


def _same_words(one: tuple[Value, ...], other: tuple[Value, ...] | None) -> bool:
    return other is not None and len(one) == len(other) and all(map(same, one, other))


def _before_options(words: tuple[Value, ...]) -> Iterator[Value]:
    """Yield the words before the first option."""
    for word in words:
        if isinstance(word, Further) or (isinstance(word, str) and word.startswith("-")):
            return
        yield word


def _declare_parameters(parser: Parser, function: ProjectFunction) -> None:
    """Add the parameters of a function of Typer: without a default, they are given by their position."""
    arguments = function.node.args
    positional = [*arguments.posonlyargs, *arguments.args]
    without: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults))
    pairs = [*zip(positional, [*without, *arguments.defaults], strict=True)]
    pairs += [*zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    for parameter, default in pairs:
        name, made = parameter.arg, ast.unparse(parameter.annotation) if parameter.annotation else ""
        marked = ast.unparse(default) if isinstance(default, ast.Call) else made
        is_argument = "Argument(" in marked or (default is None and "Option(" not in marked)
        flags = tuple(_FLAG_NAMES.findall(marked)) if "Option(" in marked else ()
        dest = (KeywordGiven("dest", name, ast.Constant(None)),)
        if is_argument:
            parser.declare(Arguments((name,), ()))
            continue
        is_flag = made.startswith("bool") or "[bool" in made
        action = (KeywordGiven("action", "store_true", ast.Constant(None)),) if is_flag else ()
        spelled = tuple(part for each in flags for part in each.split("/")) or (f"--{name}",)
        parser.declare(Arguments((*spelled[:1], *(spelled[1:] if not is_flag else ())), (*dest, *action)))
        if is_flag:
            off = spelled[1].lstrip("-").replace("-", "_") if len(spelled) > 1 else f"no_{name}"
            parser.flags[off], parser.counts[off] = (name, False), 0


_FLAG_NAMES = re.compile(r"['\"](--?[\w-]+(?:/--?[\w-]+)?)['\"]")
_EMPTY_CALL = ast.Call(
    ast.Name("fire", ast.Load()), [], [], lineno=1, col_offset=0, end_lineno=1, end_col_offset=0
)
