"""Launchers of a followed program: commands of click and Typer, components of Fire, dataclasses."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.command_lines import CommandLines
from envcheck.training_config.programs.hydra import ReadConfiguration
from envcheck.training_config.programs.modules import Module, Project
from envcheck.training_config.programs.parsers import (
    Commands,
    GivenArguments,
    Parser,
    typed,
)
from envcheck.training_config.programs.recorded_calls import Arguments, KeywordGiven
from envcheck.training_config.programs.values import (
    MISSING,
    ClassValue,
    Further,
    LibraryName,
    ProjectFunction,
    Record,
    Thing,
    Value,
)

COMMAND_LINE_LIBRARIES = frozenset({
    "fire", "typer", "tyro", "pyrallis", "draccus", "simple_parsing", "jsonargparse",
})  # fmt: skip
_DEEPEST_OPTIONS = 4  # dataclasses inside one another
_CONFIGURATION_OPTIONS = ("config_path", "config", "config_file")
_FLAG_NAMES = re.compile(r"['\"](--?[\w-]+(?:/--?[\w-]+)?)['\"]")
_EMPTY_CALL = ast.Call(
    ast.Name("fire", ast.Load()), [], [], lineno=1, col_offset=0, end_lineno=1, end_col_offset=0
)


class Command(NamedTuple):
    """Command of a click group or of a Typer application, which is its `owner`, or a group inside it."""

    owner: Value
    name: str
    starts: Value


class OwnLaunchers(CommandLines):
    """Interpreter that knows how libraries start the functions of a program from its command line."""

    def __init__(
        self, project: Project, read_configuration: ReadConfiguration, arguments: GivenArguments
    ) -> None:
        super().__init__(project, read_configuration, arguments)
        self._commands: list[Command] = []
        self._started_groups = False

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
            if name == "wrap" and function.node.args.args:  # of pyrallis and draccus
                first = function.node.args.args[0].annotation
                options = self._object_of_options(self.value(first, function.scope))
                return self.call_function(function, Arguments((options,), ()))
            if name in ("command", "option", "argument", "callback"):
                return self._start_command(function)
        return self.call_function(function, given)

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
        if name in ("cli", "parse", "CLI", "auto_cli"):
            return self._object_of_options(given.get("config_class", 0))
        if name not in ("Option", "Argument"):
            return MISSING
        default = given.get("default", 0)
        return Unknown("it is not given") if default is MISSING else default

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

    def _object_of_options(self, made: Value, prefix: str = "") -> Value:
        """Return an object of a dataclass whose fields are options, `a.b` for an inner one, or MISSING.

        A function that takes the options is followed.
        """
        if isinstance(made, ProjectFunction):
            self._start_function(made, self.arguments_given.words)
            return Unknown(f"{made.name} returns it")
        if not isinstance(made, ClassValue) or prefix.count(".") > _DEEPEST_OPTIONS:
            return MISSING
        self.followed.add(made.node)
        file = any(name in self.given for name in _CONFIGURATION_OPTIONS) and not prefix
        why = self.rest or ("a configuration file may set it" if file else "")
        items = self.fields(made)
        for name in items:
            inner = self._object_of_options(self._class_of_field(made, name), f"{prefix}{name}.")
            default = Unknown(why) if why else items[name]
            items[name] = self.given.get(f"{prefix}{name}", default if inner is MISSING or why else inner)
        return Record(items, "object", made, born=len(self.conditions))

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


def _name_of(mark: ast.expr) -> str:
    """Return the last name of a decorator."""
    called = mark.func if isinstance(mark, ast.Call) else mark
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _same_group(one: Value, other: Value) -> bool:
    """Return whether two values are the same group: a function, or an object that a library made."""
    if isinstance(one, ProjectFunction) and isinstance(other, ProjectFunction):
        return one.node is other.node
    return one is other


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
