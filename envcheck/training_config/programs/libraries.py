"""Results of known functions: parsers of command lines, configuration files, built-in functions."""

from __future__ import annotations

import ast
import contextlib
import posixpath
import re
import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.hydra import ReadConfiguration, as_record, composed, merge_deep
from envcheck.training_config.programs.interpreter import (
    Arguments,
    BoundName,
    FieldDefault,
    FollowedCall,
    KeywordGiven,
)
from envcheck.training_config.programs.modules import Project, is_inside
from envcheck.training_config.programs.python_configurations import PythonConfigurations
from envcheck.training_config.programs.values import (
    MISSING,
    ClassValue,
    File,
    LibraryName,
    Parser,
    ProjectFunction,
    Record,
    Thing,
    Value,
    Variables,
    entry_of,
    is_known,
    is_list,
    parent,
    truth,
)

_LONGEST_TEXT = 10_000
_CONFIGURATIONS = (".yaml", ".yml", ".json", ".toml")
_NAMESPACES = frozenset({
    "AttrDict", "Box", "Bunch", "ConfigDict", "DotDict", "DotMap", "EasyDict", "Munch", "Namespace",
    "SimpleNamespace", "addict", "create", "dotdict", "edict", "munchify",
})  # fmt: skip
_LOADS = frozenset({"safe_load", "load", "full_load", "unsafe_load", "loads", "FullLoader"})
_UNCHANGED = frozenset({
    "Path", "abspath", "asdict", "copy", "deepcopy", "expanduser", "realpath", "resolve", "str",
    "structured", "to_container", "to_object", "vars",
})  # fmt: skip
_UNCHANGED_IN = ("copy", "OmegaConf", "path", "pathlib", "dataclasses", "omegaconf", "")
_TEXT_METHODS = frozenset({
    "capitalize", "endswith", "lower", "lstrip", "removeprefix", "removesuffix", "replace", "rstrip",
    "startswith", "strip", "title", "upper",
})  # fmt: skip
_OF_MODELS = frozenset({
    "config", "enable_input_require_grads", "generate", "get_input_embeddings",
    "gradient_checkpointing_enable", "named_parameters", "parameters", "save_pretrained",
})  # fmt: skip
"""Attributes that every model of transformers has, with an adapter around it or without."""
_MAKE_MODELS = ("from_pretrained", "get_peft_model", "from_config")
_NO_MODELS = ("Tokenizer", "Processor", "Config", "Scheduler", "Extractor", "Pipeline")
_PARSES = ("parse_args", "parse_known_args")
_DATACLASS_PARSES = (
    "parse_args_into_dataclasses", "parse_args_and_config", "parse", "parse_yaml_file", "parse_json_file",
    "parse_yaml_and_args", "parse_dict",
)  # fmt: skip
"""Methods of transformers' HfArgumentParser and of the classes that TRL and others derive from it."""

_STARTS_FUNCTION = frozenset({"notebook_launcher", "debug_launcher", "spawn"})
"""Functions of accelerate and of torch.multiprocessing that start processes which call a function."""

_FILE_ARGUMENTS = ("json_file", "yaml_file", "args")
_VALIDATES = frozenset({"model_validate", "parse_obj", "from_dict", "validate"})
"""Functions of pydantic's classes, and of dacite, that make an object of a dictionary."""


_OF_ENVIRONMENT = ("os.environ.get", "os.getenv", "os.environ.setdefault")
_SET_OUTSIDE = re.compile(
    r"RANK|WORLD|MASTER|CUDA|VISIBLE|GPU|DEVICE|NODE|PROC|ACCELERATE|FSDP|SLURM|OMPI|PMI|JOB|KEY|TOKEN|HOME|USER|PATH|DIR"
)
"""Variables that launchers, schedulers and users set, whatever default a program gives them."""


class Follower(PythonConfigurations):
    """Interpreter that knows common functions; `given` are the program's arguments on its command line.

    `rest` is the reason why there may be other arguments, or ""; `more` are the words after the value of an
    argument, by its name. `environment` are the variables of its environment that are known.
    """

    def __init__(
        self,
        project: Project,
        read_configuration: ReadConfiguration,
        given: Mapping[str, Value],
        rest: str,
        more: Mapping[str, tuple[Value, ...]] = MappingProxyType({}),
        environment: Mapping[str, Value] = MappingProxyType({}),
    ) -> None:
        super().__init__(project, given, rest)
        self.read_configuration, self.more = read_configuration, more
        self.environment = dict(environment)
        self._choices: dict[str, Value] = {}  # the file that each group of a Hydra configuration takes
        self.opened: list[str] = []  # configuration files that were read
        self.configuration: tuple[str, Record] | None = None  # what Hydra composes, with the primary file

    def attribute(self, owner: Value, name: str, node: ast.AST) -> Value:
        """Return an attribute of a value."""
        if isinstance(owner, LibraryName) and (owner.name, name) == ("sys", "argv"):
            return self._command_line()
        if isinstance(owner, ClassValue) and name in _VALIDATES and self.is_dataclass(owner):
            own = self._in_class(owner, name)
            return BoundName(owner, name) if own is MISSING else own
        return super().attribute(owner, name, node)

    def _command_line(self) -> Value:
        """Return the words of the command line."""
        if self.rest:
            return Unknown(self.rest)
        words: list[Value] = ["program.py"]
        for name, value in self.given.items():
            positional = name == "config" and isinstance(value, str) and value.endswith(_CONFIGURATIONS)
            words += [value] if positional else [f"--{name}", value if isinstance(value, str) else str(value)]
        return tuple(words)

    def library(self, called: Value, name: str, owner: str, node: ast.Call, given: Arguments) -> Value:
        """Return the result of a function of a library that is known, or MISSING."""
        if isinstance(called, LibraryName) and owner == "builtins":
            return self._builtin(name, given, node)
        if isinstance(called, LibraryName) and called.name in _OF_ENVIRONMENT:
            return self._variable(name, given)
        if isinstance(called, LibraryName) and called.name.startswith("torch."):
            return self._of_torch(called.name, given)
        return self._function(name, owner, given, node)

    def _variable(self, method: str, given: Arguments) -> Value:
        """Return a variable of the environment, or the default that the program gives it."""
        name, default = given.get("key", 0), given.get("default", 1)
        if not isinstance(name, str):
            return MISSING
        if name in self.environment:
            return self.environment[name]
        if _SET_OUTSIDE.search(name) or "dotenv" in self.packages:
            return MISSING
        if method == "setdefault":
            self.environment[name] = default
        return default

    def bind(self, target: ast.expr, value: Value, scope: Variables) -> None:
        """Give a value to the target of an assignment, which may be a variable of the environment."""
        if isinstance(target, ast.Subscript):
            held = self.value(target.value, scope)
            if isinstance(held, LibraryName) and held.name == "os.environ":
                name = self.value(target.slice, scope)
                if isinstance(name, str):
                    self.environment[name] = (
                        Unknown("it is set under a condition") if self.conditions else value
                    )
                return
        super().bind(target, value, scope)

    def _of_torch(self, name: str, given: Arguments) -> Value:
        """Return what torch says of a machine that has a GPU, on which a training is assumed to run."""
        if name == "torch.cuda.is_available":
            return True
        first = given.get("device", 0) if name == "torch.device" else MISSING
        if isinstance(first, str):
            kind, _, index = first.partition(":")
            return Record({"type": kind, "index": int(index) if index.isdecimal() else None}, "object")
        return MISSING

    def bound_call(self, owner: Value, name: str, given: Arguments, node: ast.Call) -> Value:
        """Return the result of a method of a text, a file, a parser or a library's object, or MISSING."""
        if isinstance(owner, Parser):
            return self._parser_method(owner, name, given)
        if isinstance(owner, str):
            return _method_of_text(owner, name, given)
        if isinstance(owner, File) and name == "read":
            return owner
        if isinstance(owner, ClassValue) and name in _VALIDATES and self.is_dataclass(owner):
            first = given.positional[0] if given.positional else MISSING
            return self._validated(owner, first) if isinstance(first, Record) else MISSING
        if isinstance(owner, Thing) and name in _DATACLASS_PARSES and owner.maker in self._dataclass_parsers:
            return self._parsed_dataclasses(self._dataclass_parsers[owner.maker], name, given, node)
        return MISSING

    def _validated(self, cls: ClassValue, given: Record) -> Record:
        """Return an object of a class whose fields may be objects of other classes, from a dictionary."""
        self.followed.add(cls.node)
        record = Record(self.fields(cls), "object", cls, rest=given.rest, born=len(self.conditions))
        for name, value in given.items.items():
            inner = self._class_of_field(cls, name) if isinstance(value, Record) else None
            record.items[name] = self._validated(inner, value) if inner is not None else value
        return record

    def _class_of_field(self, cls: ClassValue, name: str) -> ClassValue | None:
        """Return the class of the project that annotates a field, or None."""
        for each in cls.lineage():
            for node in each.node.body if isinstance(each, ClassValue) else ():
                if isinstance(node, ast.AnnAssign) and getattr(node.target, "id", "") == name:
                    for part in ast.walk(node.annotation):
                        found = each.scope.find(part.id) if isinstance(part, ast.Name) else MISSING
                        if isinstance(found := self.resolved(found), ClassValue):
                            return found
        return None

    def instantiate(self, cls: ClassValue, given: Arguments, node: ast.Call) -> Value:
        """Return an object of a class of the project; one derived from a parser is a parser."""
        bases = [each.name.rpartition(".")[2] for each in cls.lineage() if isinstance(each, LibraryName)]
        if any(_parses_dataclasses(base) for base in bases):
            self.followed.add(cls.node)
            return self._dataclass_parser(given.positional[0] if given.positional else MISSING)
        made = super().instantiate(cls, given, node)
        if isinstance(made, Record) and {"BaseModel", "BaseSettings"} & {*bases}:
            for name, value in made.items.items():
                inner = self._class_of_field(cls, name) if isinstance(value, Record) else None
                if inner is not None and isinstance(value, Record) and value.role == "dict":
                    made.items[name] = self._validated(inner, value)
        return made

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

    # --- built-in functions -------------------------------------------------------------------------

    def _builtin(self, name: str, given: Arguments, node: ast.Call) -> Value:
        first = given.positional[0] if given.positional else MISSING
        if name == "getattr":
            return self._getattr(given, node)
        if name == "globals":
            return self.globals_here()
        if name in ("hasattr", "setattr", "dict"):
            if name == "dict":
                self.described_call(given, node)
            return {"hasattr": self._hasattr, "setattr": self._setattr, "dict": self._made_dict}[name](given)
        return _of_values(name, first, given)

    def _made_dict(self, given: Arguments) -> Value:
        record = Record({}, born=len(self.conditions))
        if given.positional:
            self.merge(record, given.positional[0])
        record.items.update({each.name: each.value for each in given.keywords})
        record.rest = record.rest or given.rest
        return record

    def _hasattr(self, given: Arguments) -> Value:
        owner, key = given.get("", 0), given.get("", 1)
        if isinstance(owner, Thing) and key in _OF_MODELS:
            made = owner.maker.rpartition(".")[2] in _MAKE_MODELS
            return True if made and not any(word in owner.maker for word in _NO_MODELS) else MISSING
        if isinstance(owner, ClassValue) and isinstance(key, str):
            inherits = any(isinstance(each, LibraryName) for each in owner.lineage())
            return True if self._in_class(owner, key) is not MISSING else MISSING if inherits else False
        found = owner.get(key) if isinstance(owner, Record) and isinstance(key, str) else Unknown("")
        return MISSING if isinstance(found, Unknown) else found is not MISSING

    def _setattr(self, given: Arguments) -> Value:
        owner, key, value = (given.get("", position) for position in range(3))
        if isinstance(owner, Record) and isinstance(key, str):
            self.put(owner, key, value)
        elif isinstance(owner, ClassValue) and isinstance(key, str):
            owner.members[key] = Unknown("it is set under a condition") if self.conditions else value
        elif isinstance(key, str):
            self.names.add(key)
        return None

    def _getattr(self, given: Arguments, node: ast.Call) -> Value:
        owner, name = given.get("", 0), given.get("", 1)
        if not isinstance(name, str):
            if isinstance(owner, Record) or type(owner).__name__ == "ModuleValue":
                self.incomplete = self.incomplete or "an attribute is looked up by a computed name"
            return MISSING
        if isinstance(owner, Record):
            found = self._member(owner, name)
            default = given.get("", 2)
            missing = name not in owner.items and not owner.rest and isinstance(found, Unknown)
            return default if missing and default is not MISSING else found
        if isinstance(owner, LibraryName) or type(owner).__name__ == "ModuleValue":
            return self.attribute(owner, name, node)
        self.names.add(name)
        return MISSING

    # --- functions of libraries ---------------------------------------------------------------------

    def _function(self, name: str, owner: str, given: Arguments, node: ast.Call) -> Value:
        first = given.positional[0] if given.positional else MISSING
        module = owner.rpartition(".")[2]
        if name.endswith("ArgumentParser") or name == "TrlParser":
            return self._dataclass_parser(first) if _parses_dataclasses(name) else Parser()
        if name in _LOADS and module in ("yaml", "json", "OmegaConf", "tomllib", "json5"):
            return self._loaded(first)
        if name in _UNCHANGED and module in _UNCHANGED_IN:
            return first if is_list(first) or isinstance(first, Record | str) else MISSING
        if owner == "os.path" and all(isinstance(each, str) for each in given.positional):
            return _of_paths(name, given.positional)
        if name in _NAMESPACES:
            return self._namespace(first, given)
        return self._special(name, module, first, given, node)

    def _special(self, name: str, module: str, first: Value, given: Arguments, node: ast.Call) -> Value:
        """Return the result of a function that makes fields, starts programs, or makes objects."""
        found = self.of_configuration(name, module, given)
        if found is not MISSING:
            return found
        if name in ("field", "Field") and module in ("dataclasses", "pydantic", "attr", "attrs", ""):
            found = self._field(given)
        elif name == "add_config_arguments" and isinstance(first, Parser):
            found = first
        elif (module, name) == ("OmegaConf", "merge"):
            found = self._merged(given)
        elif name == "partial" and isinstance(first, ProjectFunction):
            bound = {**first.bound, **{each.name: each.value for each in given.keywords}}
            found = ProjectFunction(
                first.node, first.module, first.scope, first.owner, first.defined_in, bound
            )
        elif (module, name) == ("HydraConfig", "get"):
            runtime = as_record({"choices": self._choices})
            found = Record({"runtime": runtime}, "namespace", rest="hydra defines it")
        elif name in ("instantiate", "call") and isinstance(first, Record):
            found = self._instantiated(first, given, node)
        elif name in ("Fire", "run") and module in ("fire", "typer"):
            found = self._started(first)
        return found if found is not MISSING else self._of_processes(name, module, first, given)

    def _of_processes(self, name: str, module: str, first: Value, given: Arguments) -> Value:
        """Return the words of a command, or MISSING; follow a function that several processes call."""
        if name in _STARTS_FUNCTION and isinstance(first, ProjectFunction):
            self._started_function(name, first, given)
        if (module, name) == ("shlex", "split") and isinstance(first, str):
            with contextlib.suppress(ValueError):
                return tuple(shlex.split(first))
        return MISSING

    def _started_function(self, name: str, function: ProjectFunction, given: Arguments) -> None:
        """Follow a function that a launcher of processes calls with the arguments it is given."""
        values = given.get("args", 2 if name == "spawn" and len(given.positional) > 2 else 1)  # noqa: PLR2004
        rank: tuple[Value, ...] = (Unknown("the rank of a process"),) if name == "spawn" else ()
        known = is_list(values) or values is MISSING
        rest = given.rest or ("" if known else "its arguments are computed")
        self.call_function(function, Arguments((*rank, *(values if is_list(values) else ())), (), rest))

    def _field(self, given: Arguments) -> Value:
        default = given.keyword("default")
        if default is MISSING and given.positional and is_known(given.positional[0]):
            default = given.positional[0]
        factory = given.keyword("default_factory")
        if default is MISSING and isinstance(factory, ProjectFunction):
            default = self.call_function(factory, Arguments((), ()))
        if default is MISSING and isinstance(factory, ClassValue):
            default = Record(self.fields(factory), "object", factory)
        return FieldDefault(Unknown("it is not given") if default is MISSING else default)

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

    def _merged(self, given: Arguments) -> Value:
        record = Record({}, "namespace", born=len(self.conditions))
        for each in given.positional:
            if not isinstance(each, Record):
                record.rest = "other settings are merged into it"
                record.items = {}
                continue
            merge_deep(record, each)
        return record

    def _namespace(self, first: Value, given: Arguments) -> Value:
        record = Record({}, "namespace", rest=given.rest, born=len(self.conditions))
        if isinstance(first, Record):
            record.items.update(first.items)
            record.rest = record.rest or first.rest
        elif first is not MISSING:
            record.rest = "it is computed when the program runs"
        record.items.update({each.name: each.value for each in given.keywords})
        return _deep_namespace(record)

    def _instantiated(self, record: Record, given: Arguments, node: ast.Call) -> Value:
        """Return what `hydra.utils.instantiate` makes of a configuration with `_target_`."""
        target = record.get("_target_")
        if not isinstance(target, str):
            self.incomplete = self.incomplete or "instantiate is given something that is not known"
            return MISSING
        package, _, name = target.rpartition(".")
        module = self.project.find(package, 0, self.path)
        keywords = {key: value for key, value in record.items.items() if not key.startswith("_")}
        keywords.update({each.name: each.value for each in given.keywords if not each.name.startswith("_")})
        arguments = Arguments(
            given.positional[1:],
            tuple(KeywordGiven(key, value, node) for key, value in keywords.items()),
            record.rest,
        )
        if module is None:
            self.calls.append(FollowedCall(name, package, node, self.path, arguments, tuple(self.conditions)))
            self.names.add(name)
            self.unread.add(target.partition(".")[0])
            return Thing(target, certain=True)
        self.run_module(module)
        found = self.resolved(module.scope.find(name))
        if isinstance(found, ClassValue):
            return self.instantiate(found, arguments, node)
        return self.call_function(found, arguments) if isinstance(found, ProjectFunction) else MISSING

    # --- command lines ------------------------------------------------------------------------------

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

    _dataclass_parsers: dict[str, tuple[Value, ...]] = {}  # noqa: RUF012 - replaced for each object

    def _dataclass_parser(self, classes: Value) -> Value:
        found = classes if is_list(classes) else () if classes is MISSING else (classes,)
        maker = f"parser {len(self._dataclass_parsers) + 1}"
        self._dataclass_parsers = {**self._dataclass_parsers, maker: found}
        return Thing(maker, certain=True)

    def _parsed_dataclasses(
        self, classes: tuple[Value, ...], method: str, given: Arguments, node: ast.Call
    ) -> Value:
        """Return an object of each class with the values of the command line and of a file that it names."""
        file = self._file_to_parse(method, given)
        if file is not None:
            return tuple(self._from_file(each, classes, file, node) for each in classes)
        found = tuple(self._from_command_line(each, node) for each in classes)
        if given.keyword("return_remaining_strings") is True:
            return (*found, Unknown("they are arguments of no class"))
        return found[0] if method == "parse" and len(found) == 1 else found

    def _file_to_parse(self, method: str, given: Arguments) -> Record | None:
        """Return what a method parses instead of the command line, or None."""
        if method not in ("parse_json_file", "parse_yaml_file", "parse_dict"):
            return None
        source = given.positional[0] if given.positional else MISSING
        source = next((each.value for each in given.keywords if each.name in _FILE_ARGUMENTS), source)
        if isinstance(source, Record):
            return source
        if not isinstance(source, str) or source == self.given.get("config"):
            return None
        content = self._loaded(source)
        return content if isinstance(content, Record) else None

    def _from_file(self, cls: Value, classes: Sequence[Value], file: Record, node: ast.Call) -> Value:
        """Return an object of a dataclass with the values of a file; a library's class takes what is left."""
        others = [each for each in classes if isinstance(each, ClassValue) and each is not cls]
        of_others = {name for each in others for name in self.fields(each)}
        if not isinstance(cls, ClassValue):
            items = {name: value for name, value in file.items.items() if name not in of_others}
            return Record(items, "namespace", rest="the command line may set it")
        items = self.fields(cls)
        library = next((each for each in cls.lineage() if isinstance(each, LibraryName)), None)
        for name, value in file.items.items():
            if name in items or (library is not None and name not in of_others):
                items[name] = value
        if library is not None:
            owner, _, name = library.name.rpartition(".")
            keywords = tuple(KeywordGiven(key, value, node) for key, value in items.items())
            arguments = Arguments((), keywords, file.rest)
            self.calls.append(FollowedCall(name, owner, node, self.path, arguments, tuple(self.conditions)))
        return Record(items, "object", cls, rest="a library defines it" if library is not None else file.rest)

    def _from_command_line(self, cls: Value, node: ast.Call) -> Value:
        file: Value = self._loaded(self.given["config"]) if "config" in self.given else Record({})
        from_file = file.items if isinstance(file, Record) else {}
        why = self.rest or ("" if isinstance(file, Record) else "a configuration file may set it")
        stated = {**from_file, **self.given}
        if not isinstance(cls, ClassValue):
            return Record(stated, "namespace", rest="the command line may set it")
        items = self.fields(cls)
        lists = _list_fields(cls)
        stated.update({name: self._option(name, takes_list=True) for name in lists if name in self.given})
        if why:
            items = {name: Unknown(why) for name in items}
        items.update({name: value for name, value in stated.items() if name in items})
        library = next((each for each in cls.lineage() if isinstance(each, LibraryName)), None)
        if library is not None:
            owner, _, name = library.name.rpartition(".")
            # What the file or the command line states has its place there.
            given = tuple(KeywordGiven(key, value, node) for key, value in items.items() if key not in stated)
            items = {**stated, **items}
            if not why:
                conditions = tuple(self.conditions)
                self.calls.append(
                    FollowedCall(name, owner, node, self.path, Arguments((), given), conditions)
                )
        record = Record(items, "object", cls, rest="a library defines it" if library is not None else "")
        after = self._in_class(cls, "__post_init__", record)
        if isinstance(after, ProjectFunction):
            self.call_function(after, Arguments((), ()))
        return record

    # --- dictionaries -------------------------------------------------------------------------------

    def method(self, owner: Record, name: str, given: Arguments, node: ast.Call) -> Value:
        """Return the result of a method of a dictionary."""
        del node
        if name in ("get", "pop", "setdefault"):
            return self._item(owner, name, given)
        if name == "update":
            return self._updated(owner, given)
        if name == "copy":
            return Record(dict(owner.items), owner.role, owner.made_from, owner.rest, len(self.conditions))
        if name in ("keys", "items", "values") and not owner.rest:
            return tuple(getattr(owner.items, name)())
        return Unknown(owner.rest or f"{name} of a dictionary is computed")

    def _item(self, owner: Record, name: str, given: Arguments) -> Value:
        key = given.get("key", 0)
        if not isinstance(key, str):
            found = entry_of(owner) if name == "get" and not is_known(key) else MISSING
            return Unknown("its key is computed") if found is MISSING else found
        found, default = owner.get(key), given.get("default", 1)
        if found is MISSING:
            found = None if default is MISSING else default
            if name == "setdefault":
                self.put(owner, key, found)
        elif truth(found) is not False:
            self.names.add(key)
        if name == "pop":
            owner.items.pop(key, None)
        return found

    def _updated(self, owner: Record, given: Arguments) -> Value:
        first = given.get("", 0)
        if isinstance(first, Record):
            for each, value in first.items.items():
                self.put(owner, each, value)
            owner.rest = owner.rest or first.rest
        elif first is not MISSING:
            owner.rest = owner.rest or "a computed dictionary is added to it"
        for argument in given.keywords:
            self.put(owner, argument.name, argument.value)
        return None


def _parses_dataclasses(name: str) -> bool:
    """Return whether a class makes dataclasses from a command line, as HfArgumentParser does."""
    return name == "TrlParser" or (name.endswith("ArgumentParser") and name != "ArgumentParser")


def _name_of(mark: ast.expr) -> str:
    """Return the last name of a decorator."""
    called = mark.func if isinstance(mark, ast.Call) else mark
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def _method_of_text(text: str, name: str, given: Arguments) -> Value:
    """Return the result of a method of a text or of a path, or MISSING."""
    if name in _TEXT_METHODS:
        return _text_method(text, name, given)
    if name == "split" and len(given.positional) <= 1 and all(map(is_known, given.positional)):
        separator = given.positional[0] if given.positional else None
        return (
            tuple(text.split(separator))
            if separator is None or (isinstance(separator, str) and separator)
            else MISSING
        )
    if name == "join" and given.positional and is_list(given.positional[0]):
        parts = [part for part in given.positional[0] if isinstance(part, str)]
        whole = len(parts) == len(given.positional[0]) and sum(map(len, parts)) < _LONGEST_TEXT
        return text.join(parts) if whole else MISSING
    if name in ("open", "read_text"):
        return File(text)
    return text if name in ("resolve", "absolute", "expanduser") else MISSING


def _of_values(name: str, first: Value, given: Arguments) -> Value:
    """Return the result of a built-in function of values alone, or MISSING."""
    found: Value = MISSING
    if name in ("str", "int", "float", "bool"):
        found = _converted(name, first)
    elif name in ("list", "tuple", "set", "sorted", "reversed"):
        found = first if is_list(first) else () if first is MISSING else MISSING
    elif name == "len" and is_known(first) and (is_list(first) or isinstance(first, str)):
        found = len(first)
    elif name == "isinstance":
        found = _is_instance(first, given.get("", 1))
    elif name == "vars" and isinstance(first, Record):
        found = first
    elif name == "open" and isinstance(first, str):
        found = File(first)
    elif name == "print":
        found = None
    elif name in ("any", "all", "min", "max"):
        found = _of_items(name, first if is_list(first) else given.positional)
    return found


def _of_items(name: str, values: tuple[Value, ...]) -> Value:
    """Return the result of `any`, `all`, `min` or `max`, or MISSING."""
    if name in ("any", "all"):
        held = [truth(each) for each in values]
        return MISSING if None in held else any(held) if name == "any" else all(held)
    if not values or not all(type(each) in (int, float) for each in values):
        return MISSING
    return min(values) if name == "min" else max(values)


def _of_paths(name: str, paths: tuple[str, ...]) -> Value:
    """Return the result of a function of os.path, or MISSING."""
    if name == "join" and paths:
        return posixpath.join(*paths)
    if name == "dirname" and paths:
        return parent(paths[0]) if paths[0].startswith(".") else posixpath.dirname(paths[0])
    return paths[0] if name in _UNCHANGED and paths else MISSING


def _text_method(text: str, name: str, given: Arguments) -> Value:
    if not all(map(is_known, given.positional)) or given.keywords:
        return MISSING
    try:
        found = getattr(text, name)(*given.positional)
    except (TypeError, ValueError):
        return MISSING
    return found if not isinstance(found, str) or len(found) < _LONGEST_TEXT else MISSING


def _converted(name: str, value: Value) -> Value:
    if value is MISSING:
        return {"str": "", "int": 0, "float": 0.0, "bool": False}[name]
    if name == "bool":
        held = truth(value)
        return MISSING if held is None else held
    if not is_known(value) or is_list(value) or value is None:
        return MISSING
    try:
        return {"str": str, "int": int, "float": float}[name](value)
    except (ValueError, OverflowError):
        return MISSING


_TYPES: Mapping[str, type] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "list": tuple,
    "tuple": tuple,
}


def _is_instance(value: Value, kind: Value) -> Value:
    """Return whether a value is of a built-in type, or MISSING."""
    kinds = kind if is_list(kind) else (kind,)
    names = [each.name.removeprefix("builtins.") for each in kinds if isinstance(each, LibraryName)]
    if len(names) != len(kinds) or not all(name in _TYPES or name == "dict" for name in names):
        return MISSING
    if isinstance(value, Record):
        return "dict" in names if value.role == "dict" else MISSING
    if isinstance(value, ClassValue | ProjectFunction):
        return False
    if is_list(value):
        return bool({"list", "tuple"} & {*names})
    return (
        any(isinstance(value, _TYPES[name]) for name in names if name in _TYPES)
        if is_known(value)
        else MISSING
    )


def _list_fields(cls: ClassValue) -> set[str]:
    """Return the fields of a dataclass that are annotated as lists."""
    return {
        statement.target.id
        for each in cls.lineage()
        if isinstance(each, ClassValue)
        for statement in each.node.body
        if isinstance(statement, ast.AnnAssign)
        and isinstance(statement.target, ast.Name)
        and _LISTS.search(ast.unparse(statement.annotation))
    }


_LISTS = re.compile(r"\b(?:[Ll]ist|Sequence)\b")


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
    return _converted(name, default) if name in ("int", "float") else MISSING


def _deep_namespace(record: Record) -> Record:
    for name, value in record.items.items():
        if isinstance(value, Record) and value.role == "dict":
            record.items[name] = _deep_namespace(
                Record(value.items, "namespace", rest=value.rest, born=value.born)
            )
    return record
