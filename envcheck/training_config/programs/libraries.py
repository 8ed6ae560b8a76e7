"""Results of known functions of libraries: configuration files, namespaces, processes, environments."""

from __future__ import annotations

import ast
import posixpath
import re
import shlex
from collections.abc import Mapping
from types import MappingProxyType

from envcheck.core.facts import Unknown
from envcheck.training_config.document import ANY_OTHER
from envcheck.training_config.programs.builtin_functions import (
    method_of_text,
    of_values,
    words_of,
)
from envcheck.training_config.programs.dataclass_parsers import (
    DATACLASS_PARSES,
    DataclassParsers,
    parses_dataclasses,
)
from envcheck.training_config.programs.hydra import ReadConfiguration, as_record, merge_deep
from envcheck.training_config.programs.later_settings import COMMAND_LINE
from envcheck.training_config.programs.modules import Project
from envcheck.training_config.programs.own_launchers import COMMAND_LINE_LIBRARIES
from envcheck.training_config.programs.parsers import Commands, GivenArguments, Parser
from envcheck.training_config.programs.paths import UNCHANGED, of_paths
from envcheck.training_config.programs.recorded_calls import (
    NO_ARGUMENTS,
    Arguments,
    FollowedCall,
    KeywordGiven,
)
from envcheck.training_config.programs.references import BoundName, FieldDefault
from envcheck.training_config.programs.values import (
    MISSING,
    ClassValue,
    File,
    LibraryName,
    PartialText,
    PerhapsSet,
    ProjectFunction,
    Record,
    Thing,
    Value,
    Variables,
    deepcopy,
    entry_of,
    is_known,
    is_list,
    text_of,
    truth,
)
from envcheck.training_config.programs.variables import MERGES

_NAMESPACES = frozenset({
    "AttrDict", "Box", "Bunch", "ConfigDict", "DictDefault", "DotDict", "DotMap", "EasyDict", "Munch",
    "Namespace", "SimpleNamespace", "addict", "create", "dotdict", "edict", "munchify",
})  # fmt: skip
_LOADS = frozenset({"safe_load", "load", "full_load", "unsafe_load", "loads", "FullLoader"})
_UNCHANGED_IN = ("copy", "OmegaConf", "path", "pathlib", "dataclasses", "omegaconf", "")
_OF_MODELS = frozenset({
    "config", "enable_input_require_grads", "generate", "get_input_embeddings",
    "gradient_checkpointing_enable", "named_parameters", "parameters", "save_pretrained",
})  # fmt: skip
"""Attributes that every model of transformers has, with an adapter around it or without."""

_WRITES = {"json": ("dump",), "yaml": ("dump", "safe_dump"), "OmegaConf": ("save",)}
_MAKE_MODELS = ("from_pretrained", "get_peft_model", "from_config")
_NO_MODELS = ("Tokenizer", "Processor", "Config", "Scheduler", "Extractor", "Pipeline")
_STARTS_FUNCTION = frozenset({"notebook_launcher", "debug_launcher", "spawn"})
"""Functions of accelerate and of torch.multiprocessing that start processes which call a function."""

_VALIDATES = frozenset({"model_validate", "parse_obj", "from_dict", "validate"})
"""Functions of pydantic's classes, and of dacite, that make an object of a dictionary."""

_OF_ENVIRONMENT = ("os.environ.get", "os.getenv", "os.environ.setdefault")
_CASTS = ("typing.cast", "typing_extensions.cast")
_SET_OUTSIDE = re.compile(
    r"RANK|WORLD|MASTER|CUDA|VISIBLE|GPU|DEVICE|NODE|PROC|ACCELERATE|FSDP|SLURM|OMPI|PMI|JOB|KEY|TOKEN|HOME|USER|PATH|DIR"
)
"""Variables that launchers, schedulers and users set, whatever default a program gives them."""


_JUST_OPENED = Unknown("it is written")
"""What stands for the content of a file that a program has opened, before it writes into it."""


class Follower(DataclassParsers):
    """Interpreter that knows common functions; `environment` are the known variables of its environment.

    `of_launcher` are those that a launcher sets for its processes, None where it is known to set none.
    """

    def __init__(
        self,
        project: Project,
        read_configuration: ReadConfiguration,
        arguments: GivenArguments,
        environment: Mapping[str, Value] = MappingProxyType({}),
        of_launcher: Mapping[str, str | None] = MappingProxyType({}),
    ) -> None:
        super().__init__(project, read_configuration, arguments)
        self.environment = dict(environment)
        self._of_launcher = of_launcher
        self._used_cuda = False

    def attribute(self, owner: Value, name: str, node: ast.AST) -> Value:
        """Return an attribute of a value."""
        if isinstance(owner, LibraryName) and (owner.name, name) == ("sys", "argv"):
            return self._command_line()
        if isinstance(owner, LibraryName) and (owner.name, name) == ("sys", "executable"):
            return "python"
        if isinstance(owner, Record) and name == "to_dict" and owner.rest == COMMAND_LINE:
            return BoundName(owner, name)
        if isinstance(owner, ClassValue) and name in _VALIDATES and self.is_dataclass(owner):
            own = self._in_class(owner, name)
            return BoundName(owner, name) if own is MISSING else own
        return super().attribute(owner, name, node)

    def library(self, called: Value, name: str, owner: str, node: ast.Call, given: Arguments) -> Value:
        """Return the result of a function of a library that is known, or MISSING."""
        if isinstance(called, LibraryName) and owner == "builtins":
            return self._builtin(name, given, node)
        if isinstance(called, Thing) and called.maker.rpartition(".")[2] == "Typer":
            return self.start_group(called)
        if isinstance(called, LibraryName) and called.name in _OF_ENVIRONMENT:
            return self._variable(name, given)
        if isinstance(called, LibraryName) and called.name in _CASTS:
            return given.get("val", 1)
        if isinstance(called, LibraryName) and called.name.startswith("torch."):
            return self._of_torch(called.name, given)
        return self._function(name, owner, given, node)

    def item_of_library(self, owner: LibraryName, key: Value) -> Value:
        """Return a variable of the environment that is known, or MISSING."""
        if owner.name == "os.environ" and isinstance(key, str):
            return self.environment.get(key, self._set_by_launcher(key))
        return MISSING

    def _set_by_launcher(self, variable: str) -> Value:
        """Return what a launcher gives a variable in all of its processes, or MISSING."""
        value = self._of_launcher.get(variable)
        return MISSING if value is None or "dotenv" in self.packages else value

    def _variable(self, method: str, given: Arguments) -> Value:
        """Return a variable of the environment, or the default that the program gives it."""
        name, default = given.get("key", 0), given.get("default", 1)
        if not isinstance(name, str):
            return MISSING
        if name in self.environment:
            return self.environment[name]
        if ANY_OTHER in self.environment:
            return self.environment[ANY_OTHER]
        if name in self._of_launcher and "dotenv" not in self.packages:
            return default if self._of_launcher[name] is None else self._of_launcher[name]
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
                    why = "it is set under a condition" if self.conditions else self._too_late(name)
                    self.environment[name] = Unknown(why) if why else value
                return
        super().bind(target, value, scope)

    def _too_late(self, name: str) -> str:
        """Return why a variable that the program sets may have no effect any more, or ""."""
        if "VISIBLE_DEVICES" not in name:
            return ""
        used = self._used_cuda or any(call.name == "from_pretrained" for call in self.calls)
        return "CUDA may be in use before it is set" if used else ""

    def _of_torch(self, name: str, given: Arguments) -> Value:
        """Return what torch says of a machine that has a GPU, on which a training is assumed to run."""
        self._used_cuda = self._used_cuda or name.startswith("torch.cuda.")
        if name == "torch.cuda.is_available":
            return True
        if name == "torch.distributed.get_world_size" and given == NO_ARGUMENTS:
            size = self._set_by_launcher("WORLD_SIZE")
            return int(size) if isinstance(size, str) and size.isdecimal() else MISSING
        first = given.get("device", 0) if name == "torch.device" else MISSING
        if isinstance(first, str):
            kind, _, index = first.partition(":")
            return Record({"type": kind, "index": int(index) if index.isdecimal() else None}, "object")
        return MISSING

    def bound_call(self, owner: Value, name: str, given: Arguments, node: ast.Call) -> Value:
        """Return the result of a method of a text, a file, a parser or a library's object, or MISSING."""
        if isinstance(owner, Parser | Commands) or name in ("add_command", "add_typer"):
            return self.of_parser(owner, name, given)
        if isinstance(owner, str | PartialText | File):
            return (
                self._of_file(owner, name, given)
                if isinstance(owner, File)
                else method_of_text(owner, name, given)
            )
        if isinstance(owner, ClassValue) and name in _VALIDATES and self.is_dataclass(owner):
            first = given.positional[0] if given.positional else MISSING
            return self._validated(owner, first) if isinstance(first, Record) else MISSING
        if isinstance(owner, Thing) and name in DATACLASS_PARSES and owner.maker in self._dataclass_parsers:
            return self._parsed_dataclasses(self._dataclass_parsers[owner.maker], name, given, node)
        if isinstance(owner, Record) and name == "to_dict":  # what the command line gives, as a dictionary
            return Record(dict(owner.items), rest=owner.rest, born=len(self.conditions))
        return MISSING

    def _validated(self, cls: ClassValue, given: Record) -> Record:
        """Return an object of a class whose fields may be objects of other classes, from a dictionary."""
        self.followed.add(cls.node)
        record = Record(self.fields(cls), "object", cls, rest=given.rest, born=len(self.conditions))
        for name, value in given.items.items():
            inner = self._class_of_field(cls, name) if isinstance(value, Record) else None
            record.items[name] = self._validated(inner, value) if inner is not None else value
        return record

    def instantiate(self, cls: ClassValue, given: Arguments, node: ast.Call) -> Value:
        """Return an object of a class of the project; one derived from a parser is a parser."""
        bases = [each.name.rpartition(".")[2] for each in cls.lineage() if isinstance(each, LibraryName)]
        if any(parses_dataclasses(base) for base in bases):
            self.followed.add(cls.node)
            return self._dataclass_parser(given.positional[0] if given.positional else MISSING)
        made = super().instantiate(cls, given, node)
        if isinstance(made, Record) and {"BaseModel", "BaseSettings"} & {*bases}:
            for name, value in made.items.items():
                inner = self._class_of_field(cls, name) if isinstance(value, Record) else None
                if inner is not None and isinstance(value, Record) and value.role == "dict":
                    made.items[name] = self._validated(inner, value)
        return made

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
        if name == "open" and isinstance(first, str):
            self._note_writing(first, given.get("mode", 1))
        return of_values(name, first, given)

    def _note_writing(self, path: str, mode: Value) -> None:
        """Remember that a program opens a configuration to write it; what it writes is not known yet."""
        writes = isinstance(mode, str) and not {*"wax+"}.isdisjoint(mode)
        if writes and path.endswith((".json", ".yaml", ".yml")):
            self.written[posixpath.normpath(path)] = _JUST_OPENED

    def _of_file(self, file: File, name: str, given: Arguments) -> Value:
        """Return the result of a method of an open file; remember the text that a program writes into it."""
        path = posixpath.normpath(file.path)
        if name in ("write", "writelines") and path in self.written:
            text = given.get("", 0)
            first = self.written[path] is _JUST_OPENED and name == "write" and not self.conditions
            self.written[path] = text if first and isinstance(text, str) else Unknown("it is written")
        return file if name == "read" else MISSING

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
        if not isinstance(owner, Record) or not isinstance(key, str):
            return MISSING
        item = owner.items.get(key, MISSING)
        of_class = owner.made_from is not None and self._in_class(owner.made_from, key) is not MISSING
        if of_class or not (item is MISSING or isinstance(item, PerhapsSet)):
            return True  # whatever its value is
        return MISSING if isinstance(item, PerhapsSet) or owner.rest else False

    def _setattr(self, given: Arguments) -> Value:
        owner, key, value = (given.get("", position) for position in range(3))
        if isinstance(owner, Record) and isinstance(key, str):
            self.put(owner, key, value)
        elif isinstance(owner, ClassValue) and isinstance(key, str):
            owner.members[key] = Unknown("it is set under a condition") if self.conditions else value
        elif isinstance(owner, Record):
            why = Unknown("an attribute with a computed name is set")
            owner.items.update(dict.fromkeys(owner.items, why))
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

    def _function(self, name: str, owner: str, given: Arguments, node: ast.Call) -> Value:
        first = given.positional[0] if given.positional else MISSING
        module = owner.rpartition(".")[2]
        if name.endswith("ArgumentParser") or name == "TrlParser":
            return self._dataclass_parser(first) if parses_dataclasses(name) else self.new_parser(given)
        if name in _LOADS and module in ("yaml", "json", "OmegaConf", "tomllib", "json5"):
            return self._loaded(first, "namespace" if module == "OmegaConf" else "dict")
        if name in UNCHANGED and module in _UNCHANGED_IN:
            known = is_list(first) or isinstance(first, Record | str)
            return first if known or (module == "copy" and is_known(first)) else MISSING
        if owner == "os.path" and all(isinstance(each, str) for each in given.positional):
            return of_paths(name, given.positional)
        if name in _NAMESPACES:
            return self._namespace(first, given)
        return self._special(name, module, first, given, node)

    def content_of(self, value: Value) -> Value:
        """Return the content of a configuration that the program has written, for its path."""
        path = posixpath.normpath(value) if isinstance(value, str) and value.endswith(".json") else ""
        return self.written.get(path, value) if path else value

    def _write(self, given: Arguments) -> Value:
        """Remember the content of a configuration that the program writes: a copy of a record."""
        content, file = given.get("obj", 0), given.get("fp", 1)
        path = file.path if isinstance(file, File) else file
        if isinstance(path, str):
            known = isinstance(content, Record) and not self.conditions
            self.written[posixpath.normpath(path)] = deepcopy(content) if known else Unknown("it is written")
        return None

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
        elif module == "OmegaConf" and name in ("from_cli", "from_dotlist"):
            found = self.overrides(None if first is MISSING else first)
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
        elif module in COMMAND_LINE_LIBRARIES:
            found = self.of_command_line(name, given)
        found = found if found is not MISSING else self.of_modules(name, module, given)
        return found if found is not MISSING else self._of_processes(name, module, first, given, node)

    def _of_processes(self, name: str, module: str, first: Value, given: Arguments, node: ast.Call) -> Value:
        """Return the words of a command, or MISSING; follow what starts processes or writes their file."""
        if name in _WRITES.get(module, ()):
            return self._write(given)
        if name in _STARTS_FUNCTION and isinstance(first, ProjectFunction):
            self._started_function(name, first, given)
        self._started_by_ray(name, first, given, node)
        if (module, name) == ("shlex", "split") and isinstance(first, str | PartialText):
            words = words_of(first)
            return MISSING if words is None else words
        if (module, name) == ("shlex", "join") and is_list(first):
            return text_of([part for item in first for part in (" ", _quoted_word(item))][1:])
        if (module, name) == ("shlex", "quote") and isinstance(first, str):
            return shlex.quote(first)
        return MISSING

    def _started_function(self, name: str, function: ProjectFunction, given: Arguments) -> None:
        """Follow a function that a launcher of processes calls with the arguments it is given."""
        values = given.get("args", 2 if name == "spawn" and len(given.positional) > 2 else 1)  # noqa: PLR2004
        rank: tuple[Value, ...] = (Unknown("the rank of a process"),) if name == "spawn" else ()
        known = is_list(values) or values is MISSING
        rest = given.rest or ("" if known else "its arguments are computed")
        self.call_function(function, Arguments((*rank, *(values if is_list(values) else ())), (), rest))

    def _started_by_ray(self, name: str, first: Value, given: Arguments, node: ast.Call) -> None:
        """Follow a function that a trainer of Ray calls in each worker with the configuration it is given.

        TorchTrainer calls `function(config)`, or `function()` if that takes nothing (construct_train_func in
        ray/train/_internal/utils.py), TransformersTrainer `function(train_dataset, eval_dataset, **config)`.
        """
        function = given.keyword("train_loop_per_worker")
        function = first if function is MISSING and name == "TorchTrainer" else function
        if isinstance(function, ProjectFunction):
            config = given.keyword("train_loop_config")
            takes = bool(function.node.args.args) and config is not MISSING
            self.call_function(function, Arguments((config,) if takes else (), (), given.rest))
        function = given.keyword("trainer_init_per_worker")
        if isinstance(function, ProjectFunction):
            config = given.keyword("trainer_init_config")
            items = config.items if isinstance(config, Record) else {}
            at = next((each.node for each in given.keywords if each.name == "trainer_init_config"), node)
            keywords = tuple(KeywordGiven(key, value, at) for key, value in items.items())
            rest = "" if isinstance(config, Record) or config is MISSING else "its configuration is computed"
            dataset = Unknown("it is a part of the data")
            self.call_function(function, Arguments((dataset, dataset), keywords, given.rest or rest))

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

    def method(self, owner: Record, name: str, given: Arguments, node: ast.Call) -> Value:
        """Return the result of a method of a dictionary."""
        del node
        if name in ("get", "pop", "setdefault"):
            return self._item(owner, name, given)
        if name == "update":
            return self._updated(owner, given)
        if name in MERGES:
            return self._merged_into(owner, name, given)
        if name == "copy":
            return Record(dict(owner.items), owner.role, owner.made_from, owner.rest, len(self.conditions))
        self.note_reading(owner)
        if name in ("keys", "items", "values") and not owner.rest:
            return tuple(getattr(owner.items, name)())
        return Unknown(owner.rest or f"{name} of a dictionary is computed")

    def _merged_into(self, owner: Record, name: str, given: Arguments) -> Value:
        """Merge what a method of a configuration is given, or the command line, into it."""
        first: Value = given.positional[0] if given.positional else MISSING
        if name == "merge_from_file":
            first = self._loaded(first)
        elif name == "merge_with_cli":
            first = self.overrides(None)
        elif name == "merge_with_dotlist":
            first = self.overrides(first)
        elif name == "merge_from_list":
            words = first if is_list(first) and all(isinstance(each, str) for each in first) else ()
            pairs = zip(words[::2], words[1::2], strict=False)
            first = self.overrides(tuple(f"{key}={value}" for key, value in pairs) or first)
        if isinstance(first, Record):
            merge_deep(owner, first)
        else:
            owner.rest = owner.rest or "other settings are merged into it"
            owner.items.clear()
        return None

    def _item(self, owner: Record, name: str, given: Arguments) -> Value:
        key = given.get("key", 0)
        if not isinstance(key, str):
            found = entry_of(owner) if name == "get" and not is_known(key) else MISSING
            self.note_reading(owner)
            return Unknown("its key is computed") if found is MISSING else found
        self.read_items.add(key)
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


def _quoted_word(word: Value) -> Value:
    """Return a word as a shell reads it back as one."""
    return shlex.quote(word) if isinstance(word, str) else word


def _deep_namespace(record: Record) -> Record:
    for name, value in record.items.items():
        if isinstance(value, Record) and value.role == "dict":
            record.items[name] = _deep_namespace(
                Record(value.items, "namespace", rest=value.rest, born=value.born)
            )
    return record
