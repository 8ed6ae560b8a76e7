"""Parsers that make dataclasses of a command line or a file: HfArgumentParser and its kind."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping, Sequence

from envcheck.core.facts import Unknown
from envcheck.training_config.programs.later_settings import COMMAND_LINE, PARSED
from envcheck.training_config.programs.own_launchers import OwnLaunchers
from envcheck.training_config.programs.parsers import option_of
from envcheck.training_config.programs.recorded_calls import Arguments, FollowedCall, KeywordGiven
from envcheck.training_config.programs.values import (
    MISSING,
    ClassValue,
    LibraryName,
    ProjectFunction,
    Record,
    Thing,
    Value,
    is_list,
)

DATACLASS_PARSES = (
    "parse_args_into_dataclasses", "parse_args_and_config", "parse", "parse_yaml_file", "parse_json_file",
    "parse_yaml_and_args", "parse_dict",
)  # fmt: skip
"""Methods of transformers' HfArgumentParser and of the classes that TRL and others derive from it."""

_FILE_ARGUMENTS = ("json_file", "yaml_file", "args")
_LISTS = re.compile(r"\b(?:[Ll]ist|Sequence)\b")


class DataclassParsers(OwnLaunchers):
    """Interpreter that knows parsers of dataclasses."""

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
            return Record(items, "namespace", rest=COMMAND_LINE)
        items = self.fields(cls)
        library = next((each for each in cls.lineage() if isinstance(each, LibraryName)), None)
        for name, value in file.items.items():
            if name in items or (library is not None and name not in of_others):
                items[name] = value
        if library is not None:
            owner, _, name = library.name.rpartition(".")
            keywords = tuple(KeywordGiven(key, value, node) for key, value in items.items())
            arguments = Arguments((), keywords, file.rest)
            record = Record(items, "object", cls, rest="a library defines it", born=len(self.conditions))
            call = FollowedCall(name, owner, node, self.path, arguments, tuple(self.conditions), record)
            self.calls.append(call)
            return record
        return Record(items, "object", cls, rest=file.rest)

    def _from_command_line(self, cls: Value, node: ast.Call) -> Value:
        file: Value = self._loaded(self.given["config"]) if "config" in self.given else Record({})
        from_file = file.items if isinstance(file, Record) else {}
        why = self.rest or ("" if isinstance(file, Record) else "a configuration file may set it")
        stated = {**from_file, **self.given}
        if not isinstance(cls, ClassValue):
            stated = {**_defaults_of(cls), **stated} if not why else stated
            record = Record(stated, PARSED, rest="the command line may set it", born=len(self.conditions))
            if isinstance(cls, LibraryName):
                owner, _, name = cls.name.rpartition(".")
                none, conditions = Arguments((), ()), tuple(self.conditions)
                self.calls.append(FollowedCall(name, owner, node, self.path, none, conditions, record))
            return record
        items = self.fields(cls)
        lists = _list_fields(cls)
        line = self.arguments_given
        written = {name: name for name in items if name in line.named} | _begun(line.named, items)
        stated.update({name: line.named[given] for name, given in written.items()})
        stated.update(
            {name: option_of(line, written[name], takes_list=True) for name in lists & written.keys()}
        )
        if why:
            items = {name: Unknown(why) for name in items}
        items.update({name: value for name, value in stated.items() if name in items})
        library = next((each for each in cls.lineage() if isinstance(each, LibraryName)), None)
        # What the file or the command line states has its place there.
        given = tuple(KeywordGiven(key, value, node) for key, value in items.items() if key not in stated)
        if library is None:
            record = Record(items, "object", cls, born=len(self.conditions))
        else:
            why_more = "a library defines it"
            of_library = {} if why else _defaults_of(library)
            record = Record(
                {**of_library, **stated, **items}, "object", cls, why_more, born=len(self.conditions)
            )
            if not why:
                owner, _, name = library.name.rpartition(".")
                arguments, conditions = Arguments((), given), tuple(self.conditions)
                self.calls.append(FollowedCall(name, owner, node, self.path, arguments, conditions, record))
        after = self._in_class(cls, "__post_init__", record)
        if isinstance(after, ProjectFunction):
            self.call_function(after, Arguments((), ()))
        return record


_DEFAULTS: Mapping[str, Mapping[str, Value]] = {
    "transformers.TrainingArguments": {"bf16": False, "fp16": False},
    "transformers.Seq2SeqTrainingArguments": {"bf16": False, "fp16": False},
    "trl.ModelConfig": {
        "load_in_4bit": False,
        "load_in_8bit": False,
        "use_peft": False,
        "trust_remote_code": False,
    },
}
"""Options of libraries' dataclasses, as transformers 4.30 to 5.24 and TRL 0.9.6 to 1.16.0 have them.

TRL's trust_remote_code moved from ModelConfig to the configurations of its trainers, with the same default.
"""


def _defaults_of(cls: Value) -> Mapping[str, Value]:
    """Return the options of a library's dataclass whose defaults are known."""
    return _DEFAULTS.get(cls.name, {}) if isinstance(cls, LibraryName) else {}


def parses_dataclasses(name: str) -> bool:
    """Return whether a class makes dataclasses from a command line, as HfArgumentParser does."""
    return name == "TrlParser" or (name.endswith("ArgumentParser") and name != "ArgumentParser")


def _begun(given: Iterable[str], fields: Collection[str]) -> dict[str, str]:
    """Return the fields of which the command line has only a beginning, as argparse takes it, with that.

    It ends within a word, as `max_seq_len` does of `max_seq_length`: the options of a library's class, which
    may be such a beginning themselves, are whole words.
    """
    found: dict[str, str] = {}
    for name in given:
        meant = [field for field in fields if field.startswith(name)] if "_" in name else []
        if len(meant) == 1 and meant[0] != name and meant[0][len(name)] != "_":
            found[meant[0]] = name
    return found


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
