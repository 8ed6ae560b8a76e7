"""The names in the code of the Python program that a launch line starts, and in the modules of its project.

The files are parsed, never run. The dialects define what the names mean.
"""

from __future__ import annotations

import ast
import posixpath
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, TypeGuard

from envcheck.core.errors import InputError, Place
from envcheck.core.facts import Unknown
from envcheck.core.patterns import pattern
from envcheck.core.records import NamedTuple
from envcheck.training_config.document import Document, ProgramSource, Scalar, Section, Setting
from envcheck.training_config.programs.follow import FollowedProgram, follow
from envcheck.training_config.programs.modules import parse, project_folders
from envcheck.training_config.programs.names import names
from envcheck.training_config.programs.parsers import GivenArguments
from envcheck.training_config.programs.values import Record, is_known, is_list
from envcheck.training_config.readers import Beside, json_text, toml_text, yaml_text
from envcheck.training_config.readers._file_contents import own_classes
from envcheck.training_config.readers._known_calls import LIBRARIES
from envcheck.training_config.readers._program_files import LARGEST, program_texts

_NOT_FOLLOWED = frozenset(
    {"transformers", "trl", "peft", "accelerate", "deepspeed", "liger_kernel", "unsloth"}
)
"""Libraries that name every feature; in a checkout of one, its code says nothing about its examples."""

_PARSERS = frozenset({
    "HfArgumentParser", "TrlParser", "parse_args_into_dataclasses", "parse_known_args", "from_cli", "Fire",
    "click", "typer", "tyro", "hydra", "absl", "simple_parsing", "jsonargparse", "argv",
    "add_config_arguments",
})  # fmt: skip
"""Names in code that reads options which no `add_argument` declares."""

_MOST_FILES = 60
_MOST_TEXT = 1 << 18  # characters of all files


class ProgramCode(NamedTuple):
    """Names in some files of a program; `bases` has the base of each class that they define."""

    source: ProgramSource
    bases: Mapping[str, str]


class LaunchedProgram:
    """Code of a launched program; the modules of its project are read only when they are asked for.

    `tree` is the syntax tree of the program's own file.
    """

    def __init__(self, file: str, code: _ProgramFile, beside: Beside) -> None:
        self.file, self.tree = file, code.tree
        self.entry = ""  # the function that a console script calls
        self._own, self._beside = code, beside

    @property
    def own(self) -> ProgramSource:
        """Return the names in the program's own file."""
        return self._collected([(self.file, self._own)]).source

    @cached_property
    def whole(self) -> ProgramCode:
        """Return the names in the program and in all modules of its project that it imports."""
        modules = _Modules(self._beside)
        files = list(modules.all(self.file, self._own))
        return self._collected(files, modules.unresolved)

    def with_followed(self, followed: FollowedProgram | None) -> ProgramCode:
        """Return the names in the files that were followed if that is all of the program; else in all."""
        if followed is None:
            return self.whole
        own_loop = _has_its_own_loop(followed)
        if followed.incomplete:
            source = self.whole.source._replace(seen=followed.names, own_loop=own_loop)
            return self.whole._replace(source=source)
        texts = ((path, self._beside(path)) for path in followed.files)
        codes = [(path, _code(text)) for path, text in texts if text is not None]
        found = self._collected([(path, code) for path, code in codes if code is not None], followed.unread)
        source = found.source._replace(
            reached=followed.names,
            bodies=followed.bodies,
            seen=followed.names,
            read_options=followed.read_items,
            own_loop=own_loop,
            unused=followed.unused,
        )
        return found._replace(source=source)

    def takes_no_options(self, followed: FollowedProgram) -> bool:
        """Return whether a program that was followed to its end parses only arguments by their position.

        Words of its command line that are not known can set none of its options then.
        """
        if followed.incomplete or not _PARSERS.isdisjoint(followed.names):
            return False
        code = (node for each in (self.tree, *followed.followed) for node in ast.walk(each))
        declared = [
            argument
            for node in code
            if isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add_argument"
            for argument in node.args
        ]
        return bool(declared) and all(
            isinstance(each, ast.Constant) and not str(each.value).startswith("-") for each in declared
        )

    @cached_property
    def constants(self) -> Mapping[str, Scalar]:
        """Return the literals of the modules that the program's own file imports, by name."""
        constants: dict[str, Scalar] = {}
        for node in ast.walk(self.tree):
            if not isinstance(node, ast.ImportFrom | ast.Import):
                continue
            package = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
            for module in {package, *(f"{package}.{alias.name}".strip(".") for alias in node.names)}:
                name = posixpath.join(posixpath.dirname(self.file), f"{module.replace('.', '/')}.py")
                text = self._beside(name) if module else None
                tree = parse(text) if text is not None and len(text) <= LARGEST else None
                constants.update(_constants(tree) if tree is not None else ())
        return constants

    def _collected(
        self, files: Sequence[tuple[str, _ProgramFile]], unresolved: Iterable[str] = ()
    ) -> ProgramCode:
        """Return the names in files; an option that several files define differently has no default."""
        options: dict[str, Scalar] = {}
        ambiguous: set[str] = set()
        for _, code in files:
            for name, default in code.options:
                before = options.setdefault(name, default)
                if before is not default and before != default:
                    ambiguous.add(name)
        codes = [code for _, code in files]
        modules = [module for code in codes for module, level in code.imports if not level]
        source = ProgramSource(
            self.file,
            frozenset(name for code in codes for name in code.names),
            frozenset(unresolved),
            {name: value for name, value in options.items() if name not in ambiguous},
            frozenset(call for code in codes for call in code.calls),
            frozenset(module.partition(".")[0] for module in modules),
            outside=frozenset(_outside(modules, [path for path, _ in files])),
            own_classes=frozenset().union(*(code.own_classes for code in codes)),
            of_libraries=frozenset().union(*(code.of_libraries for code in codes)),
        )
        return ProgramCode(source, {name: base for code in codes for name, base in code.bases})


def _has_its_own_loop(followed: FollowedProgram) -> bool:
    """Return whether a program computes gradients itself and makes no trainer of a library."""
    makes_one = any(
        call.name.endswith("Trainer") and call.owner.partition(".")[0] in LIBRARIES for call in followed.calls
    )
    return not makes_one and any(call.name == "backward" for call in followed.calls)


def launched_program(program: str, folder: str, beside: Beside) -> LaunchedProgram | None:
    """Return the code of a program; None if its file is not here or cannot be parsed.

    `program` is a file, or a module as for `python -m`; `folder` is the folder that it is started in.
    """
    for path, text in program_texts(program, folder, beside):
        code = _code(text)
        if code is not None:
            return LaunchedProgram(path, code, beside)
    return None


def follow_program(
    path: str,
    folder: str,
    beside: Beside,
    arguments: GivenArguments,
    environment: Mapping[str, Any] = MappingProxyType({}),
    entry: str = "",
    *,
    of_launcher: Mapping[str, str | None] = MappingProxyType({}),
    briefly: bool = False,
) -> FollowedProgram | None:
    """Follow a program that is started in a folder with these arguments; None if it is not here.

    `environment` are the variables that a launch script sets, `of_launcher` those of its launcher. `entry` is
    the function that a console script calls.
    """

    def configuration(name: str) -> Mapping[str, Any] | None:
        for each in dict.fromkeys((posixpath.join(folder, name), name)):
            if (text := beside(each)) is not None:
                return _nested(text, each)
        return None

    return follow(
        path, beside, configuration, arguments, environment, entry, of_launcher=of_launcher, briefly=briefly
    )


def composed_document(name: str, configuration: Record) -> Document:
    """Return what Hydra composes for a program as settings; `name` is that of the primary file."""
    name = name if name.endswith((".yaml", ".yml")) else f"{name}.yaml"
    return Document(name, "yaml", tuple(_flattened(configuration, "", Place(name))))


def _flattened(record: Record, path: str, place: Place) -> Iterator[Setting]:
    """Yield the settings of a record and of those inside it."""
    for key, value in record.items.items():
        name = f"{path}{key}"
        if isinstance(value, Record):
            yield Setting(name, Section(tuple(value.items)), place, place)
            yield from _flattened(value, f"{name}.", place)
        elif is_known(value) or isinstance(value, Unknown):
            yield Setting(name, value, place, place)
        elif is_list(value):
            items = tuple(each for each in value if is_known(each))
            yield Setting(name, items if len(items) == len(value) else Unknown("computed"), place, place)


def _nested(text: str, name: str) -> Mapping[str, Any] | None:
    """Return the content of a YAML or JSON file as nested dictionaries and tuples, or None."""
    try:
        if name.endswith(".json"):
            (document,) = json_text.read(text, name)
        elif name.endswith(".toml"):
            (document,) = toml_text.read(text, name)
        else:
            document = yaml_text.parsed(text, name, templates=False)
    except InputError:
        return None
    return _tree(document)


def _tree(document: Document) -> dict[str, Any]:
    """Return the settings of a document as nested dictionaries and tuples."""
    found: dict[str, Any] = {}
    lists: list[tuple[Any, Any]] = []
    for setting in document.settings:
        *outer, last = (name.strip('"') for name in _PART.findall(setting.name))
        place: Any = found
        for name in outer:
            key = int(name) if isinstance(place, list) and name.isdigit() else name
            place = place[key] if (isinstance(place, dict) and key in place) or _has(place, key) else {}
        value: Any = setting.value
        if isinstance(value, Section):
            value = {}
        elif isinstance(value, tuple):
            value = [{} if isinstance(item, Section) else item for item in value]
            lists.append((place, last))
        if isinstance(place, dict):
            place[last] = value
        elif _has(place, int(last) if last.isdigit() else -1):
            place[int(last)] = value
    for place, name in reversed(lists):
        key = int(name) if isinstance(place, list) else name
        place[key] = tuple(place[key])
    return found


_PART = pattern(r'"(?:[^"\\]|\\.)*"|[^."]+')


def _has(place: Any, key: Any) -> bool:
    """Return whether a list has an index."""
    return isinstance(place, list) and isinstance(key, int) and 0 <= key < len(place)


class _ProgramFile(NamedTuple):
    """Content of one file of a program; `imports` has what `_imports` yields."""

    tree: ast.Module
    names: frozenset[str]
    calls: frozenset[str]
    options: tuple[tuple[str, Scalar], ...]
    imports: tuple[tuple[str, int], ...]
    bases: tuple[tuple[str, str], ...]
    own_classes: frozenset[str]  # without a base
    of_libraries: frozenset[str]  # what `_imported_from_libraries` yields


@lru_cache(maxsize=256)
def _code(text: str) -> _ProgramFile | None:
    """Return the content of a file, or None if it is not Python.

    The result is cached, because the programs of a script share many files.
    """
    tree = parse(text)
    if tree is None:
        return None
    nodes = list(ast.walk(tree))
    return _ProgramFile(
        tree,
        frozenset(names(nodes)),
        frozenset(_calls(nodes)),
        tuple(_options(nodes)),
        tuple(_imports(nodes)),
        tuple(own_classes(nodes)),
        frozenset(node.name for node in nodes if isinstance(node, ast.ClassDef) and not node.bases),
        frozenset(_imported_from_libraries(nodes)),
    )


def _imported_from_libraries(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield what a file imports from the libraries that define the known trainers, or their own names."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in LIBRARIES:
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            packages = {alias.name.partition(".")[0] for alias in node.names}
            yield from packages.intersection(LIBRARIES)


def _outside(modules: Iterable[str], files: Sequence[str]) -> Iterator[str]:
    """Yield the package of each module that is neither in the standard library nor one of the files."""
    own = {path.removesuffix(".py").removesuffix("/__init__").rpartition("/")[2] for path in files}
    ends = tuple(f"/{path.removesuffix('.py').removesuffix('/__init__')}" for path in files)
    for module in modules:
        package, name = module.partition(".")[0], module.rpartition(".")[2]
        is_file = name in own and any(end.endswith(f"/{module.replace('.', '/')}") for end in ends)
        if not is_file and package not in sys.stdlib_module_names:
            yield package


class _Modules:
    """Modules of a program's project that it imports, directly or not, within limits."""

    def __init__(self, beside: Beside) -> None:
        self.unresolved: set[str] = set()  # packages that were not read
        self._beside = beside
        self._seen: dict[str, bool] = {}
        self._size = 0
        self._waiting: list[tuple[str, _ProgramFile]] = []

    def all(self, path: str, program: _ProgramFile) -> Iterator[tuple[str, _ProgramFile]]:
        """Yield the program and its modules."""
        self._seen[path] = True
        self._waiting.append((path, program))
        files = 0
        while self._waiting:
            path, code = self._waiting.pop()
            files += 1
            yield path, code
            for module, level in code.imports:
                if level == 0 and module.partition(".")[0] in sys.stdlib_module_names:
                    continue
                known = level == 0 and module.partition(".")[0] in _NOT_FOLLOWED
                if known or files >= _MOST_FILES or not self._read_module(module, level, path):
                    self.unresolved.add(module.partition(".")[0] or ".")

    def _read(self, path: str) -> bool:
        """Read a file; return whether it is there and could be parsed."""
        if path not in self._seen:
            text = self._beside(path)
            fits = text is not None and len(text) <= min(LARGEST, _MOST_TEXT - self._size)
            self._size += len(text) if text is not None and fits else 0
            code = _code(text) if text is not None and fits else None
            self._seen[path] = code is not None
            if code is not None:
                self._waiting.append((path, code))
        return self._seen[path]

    def _read_module(self, module: str, level: int, path: str) -> bool:
        """Read a module of the project; return whether it was found.

        An absolute import is looked for in the folder of the importing file, then in its parent folders and
        in the folder `src` of each.
        """
        own = posixpath.dirname(path)
        parts = module.replace(".", "/")
        own_names: tuple[str, ...] = ()
        if level:
            bases = [posixpath.normpath(posixpath.join(own, *[".."] * (level - 1)))]
            own_names = ("__init__.py",)  # `from . import name` may name what the package itself defines
        else:
            bases = [own]
            while bases[-1] not in ("", "/"):
                bases.append(posixpath.dirname(bases[-1]))
            projects = project_folders(bases, module.partition(".")[0], self._beside)
            bases = [*bases, *(posixpath.join(base, "src") for base in bases), *projects]
        return any(
            self._read(posixpath.join(base, name))
            for base in bases
            for name in (f"{parts}.py", posixpath.join(parts, "__init__.py"), *own_names)
        )


def _imports(nodes: list[ast.AST]) -> Iterator[tuple[str, int]]:
    """Yield each imported module with its level: 0 for an absolute import, else the number of leading dots.

    For `from package import name` only `package` is yielded, although `name` may be a module. For
    `from . import name` the name is yielded.
    """
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module, node.level
        elif isinstance(node, ast.ImportFrom):
            yield from ((alias.name, node.level) for alias in node.names)


def _constants(tree: ast.Module) -> Iterator[tuple[str, Scalar]]:
    """Yield the names that a module assigns literals, once each."""
    found: dict[str, list[Scalar]] = {}
    for node in tree.body:
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and _simple(node.value.value)
        ):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, []).append(node.value.value)
    yield from ((name, values[0]) for name, values in found.items() if len(values) == 1)


def _calls(nodes: list[ast.AST]) -> Iterator[str]:
    """Yield the names of what is called (`torch.compile`), and of what is imported with `from`."""
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            owner = node.func.value
            yield f"{owner.id}.{node.func.attr}" if isinstance(owner, ast.Name) else node.func.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


def _options(nodes: list[ast.AST]) -> Iterator[tuple[str, Scalar]]:
    """Yield a program's options with their defaults: fields of its dataclasses, arguments of its parser."""
    for node in nodes:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=default)) if _simple(
                default
            ):
                yield name, default
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.Call(keywords=keywords)):
                yield from ((name, default) for default in _defaults(keywords))
            case ast.Call(
                func=ast.Attribute(attr="add_argument"), args=[*_, ast.Constant(value=str() as flag)]
            ):
                yield flag.lstrip("-").replace("-", "_"), _default_of_argument(node)
            case _:
                pass


def _default_of_argument(call: ast.Call) -> Scalar:
    """Return the default of an argument of argparse; None if it has no literal default."""
    given = {each.arg: each.value for each in call.keywords}
    action = given.get("action")
    if "default" not in given and isinstance(action, ast.Constant):
        return action.value == "store_false" if action.value in ("store_true", "store_false") else None
    return next(_defaults(call.keywords), None)


def _defaults(keywords: list[ast.keyword]) -> Iterator[Scalar]:
    """Yield the argument `default` of a call if it is literal."""
    for keyword in keywords:
        value = keyword.value
        if keyword.arg == "default" and isinstance(value, ast.Constant) and _simple(value.value):
            yield value.value


def _simple(value: object) -> TypeGuard[Scalar]:
    return value is None or isinstance(value, bool | int | float | str)
