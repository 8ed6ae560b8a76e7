"""Propose a diff of compat/tables/model_code.toml: `refresh_model_code.py --store FOLDER [--write]`.

Reads, in every release of transformers that `envcheck matrix harvest` stored in FOLDER, what the model code
of each `model_type` does: the classes that the auto classes construct for it, and all classes that those
name, in the same module or imported. A part that is made by an auto class is followed by the configuration:
to the types of its parts. The files are parsed and never run. Prints a unified diff; changes nothing without
`--write`.
"""

from __future__ import annotations

import ast
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from model_type_table import run
from refresh_models import AUTO, FILES, pairs

from envcheck.commands.harvest.store import ReleaseStore

LANGUAGE_TASKS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_VISION_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
)
"""The mappings from `model_type` to classes that compute a loss over tokens."""

OTHER_TASKS = ("MODEL_FOR_TEXT_TO_WAVEFORM_MAPPING_NAMES", "MODEL_MAPPING_NAMES")
"""Further mappings, for types that stand in none of those, and for parts of other models."""

ROUTER_BIASES = ("e_score_correction_bias", "expert_bias", "moe_statics.e_score_correction_bias")
"""Buffers of mixtures of experts that are learnt, and saved with the weights."""

RIGHT_PADDING = "batched generation with padding_side='right'"

MAY_HAVE_MARK = re.compile(r"register_buffer|experts?\b|padding_side='right'")

BUILT_BY_AUTO_CLASS = re.compile(r"AutoModel\w*|AutoBackbone")


class ClassCode(NamedTuple):
    """Hold what a class says: its bases, the names in it, and the marks of its own body.

    `forward_keywords` is the name by which its `forward` takes further arguments, empty if it takes none;
    None if the class has no `forward`.
    """

    bases: tuple[str, ...]
    names: frozenset[str]
    marks: frozenset[str]
    forward_keywords: str | None


class ModuleCode(NamedTuple):
    """Hold the classes of a module, the modules it imports names from, and the packages it imports."""

    classes: Mapping[str, ClassCode]
    imports: Mapping[str, str]
    packages: frozenset[str]


# --- one module -------------------------------------------------------------------------------------


def module_of(text: str) -> ModuleCode:
    """Read a module of the form that ruff writes; only classes that may carry a mark are parsed."""
    plain = re.sub(r'r?"""[\s\S]*?"""', '""', text)
    plain = re.sub(r"#[^\"'\n]*$", "", plain, flags=re.MULTILINE)  # not one inside a string
    imports: dict[str, str] = {}
    for module, names in re.findall(r"^from (\.[\w.]*) import (\([^)]*\)|[^\n]*)", plain, re.MULTILINE):
        imports |= dict.fromkeys(re.findall(r"\w+", names), module)
    packages = re.findall(r"^ *from (\w+)[\w.]* import ", plain, re.MULTILINE)
    starts = [*re.finditer(r"^class (\w+)(?:\(([^)]*)\))?:", plain, re.MULTILINE)]
    classes = {start[1]: _class_code(start, plain) for start in starts}
    return ModuleCode(classes, imports, frozenset(packages))


def _class_code(start: re.Match[str], text: str) -> ClassCode:
    end = re.compile(r"^(?=[^\s)])", re.MULTILINE).search(text, start.end())
    block = text[start.start() : end.start() if end else len(text)]
    bases = tuple(each.strip() for each in (start[2] or "").split(",") if each.strip())
    names = frozenset(re.findall(r"[A-Za-z_]\w*(?:\.\w+)?", block[start.end() - start.start() :])) | set(
        bases
    )
    names |= {each.partition(".")[0] for each in names}
    forward = re.search(r"^    def forward\(([\s\S]*?)\)(?: ->[^\n]*(?:\n[^\n]*)??)?:\s", block, re.MULTILINE)
    keywords = None if forward is None else "".join(re.findall(r"\*\*(\w+)", forward[1])[-1:])
    marks = frozenset(_marks(block, bases)) if MAY_HAVE_MARK.search(block) else frozenset[str]()
    if any(BUILT_BY_AUTO_CLASS.fullmatch(each) for each in names):
        marks |= {"made by an auto class"}
    return ClassCode(bases, frozenset(names), marks, keywords)


def _marks(block: str, bases: Sequence[str]) -> Iterator[str]:
    """Yield what the body of a class does, in words that the columns of the table are defined by."""
    try:
        tree = ast.parse(block)
    except SyntaxError:
        return
    for each in ast.walk(tree):
        match each:
            case ast.Call(
                func=ast.Attribute(attr="register_buffer"), args=[ast.Constant(value=str(name)), *rest]
            ) if not _is_temporary(each, rest):
                yield f"buffer {name}"
            case ast.FunctionDef(name=name) if RIGHT_PADDING in _strings(each):
                yield f"refuses right padding in {name}"
            case ast.For() if _skips_experts(each, bases):
                yield "skips experts"
            case _:
                pass


def _strings(node: ast.AST) -> str:
    return " ".join(str(each.value) for each in ast.walk(node) if isinstance(each, ast.Constant))


def _is_temporary(call: ast.Call, rest: Sequence[ast.expr]) -> bool:
    """Return whether a buffer is not saved: `register_buffer(name, tensor, persistent=False)`."""
    flags = [keyword.value for keyword in call.keywords if keyword.arg == "persistent"] + [*rest[1:2]]
    return bool(flags) and not (isinstance(flags[0], ast.Constant) and flags[0].value is True)


def _skips_experts(loop: ast.For, bases: Sequence[str]) -> bool:
    """Return whether a loop calls single experts, and not those that no token was sent to."""
    own = "self" if any("ModuleList" in base for base in bases) else "self.experts"
    named = {
        target.id
        for each in ast.walk(loop)
        if isinstance(each, ast.Assign) and _is_expert(each.value, own)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    if own in ast.unparse(loop.iter):
        named |= {each.id for each in ast.walk(loop.target) if isinstance(each, ast.Name)}

    def calls_expert(nodes: Iterable[ast.AST]) -> bool:
        called = [each.func for node in nodes for each in ast.walk(node) if isinstance(each, ast.Call)]
        return any(
            _is_expert(each, own) or (isinstance(each, ast.Name) and each.id in named) for each in called
        )

    if not calls_expert(loop.body):
        return False
    inner = [each for each in ast.walk(loop) if isinstance(each, ast.If | ast.Continue)]
    skipped = any(isinstance(each, ast.Continue) or calls_expert(each.body) for each in inner)
    return skipped or "hit" in ast.unparse(loop.iter)


def _is_expert(item: ast.expr, own: str) -> bool:
    return isinstance(item, ast.Subscript) and ast.unparse(item.value) == own


# --- one release ------------------------------------------------------------------------------------


class ReleaseCode:
    """Read the model code of one release."""

    def __init__(
        self, version: str, files: zipfile.ZipFile, parsed: dict[tuple[str, int], ModuleCode]
    ) -> None:
        """Take the archive of the release, and the modules that earlier releases had in common with it."""
        self._version = Version(version)
        self._files = files
        self._parsed = parsed
        self._infos = {info.filename: info for info in files.infolist()}
        auto = [
            self._text(AUTO + name) for name in ("modeling_auto.py", *FILES) if AUTO + name in self._infos
        ]
        self.types = pairs(auto, "CONFIG_MAPPING_NAMES")
        self._folders = pairs(auto, "SPECIAL_MODEL_TYPE_TO_MODULE_NAME")
        self._tasks = {task: _listed(auto, task) for task in (*LANGUAGE_TASKS, *OTHER_TASKS)}
        self._reached: dict[str, dict[tuple[str, str], ClassCode]] = {}
        self._where: dict[str, list[str]] = defaultdict(list)
        for name in self._infos:
            if re.fullmatch(r"transformers/models/(?:\w+/)+modeling_(?!tf_|flax_)\w+\.py", name):
                self._where[name.rpartition("/")[0].rpartition("/")[2]].append(name)

    def language_classes(self, model_type: str) -> list[str]:
        """Return the classes of a type that compute a loss over tokens."""
        return list(dict.fromkeys(each for task in LANGUAGE_TASKS for each in self._names(task, model_type)))

    def takes_keywords(self, model_type: str, name: str) -> bool | None:
        """Return whether the Trainer takes the `forward` of a class for one that knows the number of tokens.

        Any further arguments will do; in 4.46, they have to be called `loss_kwargs`. None if the class is not
        found.
        """
        file = self._file(model_type, name)
        keywords = None if file is None else self._forward_keywords(file, name)
        if keywords is None:
            return None
        return keywords == "loss_kwargs" if self._version.release[:2] == (4, 46) else bool(keywords)

    def reached(self, model_type: str) -> dict[tuple[str, str], ClassCode]:
        """Return the classes that a type consists of, by file and name."""
        if model_type not in self._reached:
            self._reached[model_type] = self._reach(model_type)
        return self._reached[model_type]

    def _reach(self, model_type: str, seen: frozenset[str] = frozenset()) -> dict[tuple[str, str], ClassCode]:
        tasks = (*LANGUAGE_TASKS, *OTHER_TASKS)
        todo = [
            (file, name)
            for task in tasks
            for name in self._names(task, model_type)
            if (file := self._file(model_type, name))
        ]
        found: dict[tuple[str, str], ClassCode] = {}
        made = False
        while todo:
            place = file, name = todo.pop()
            module = self._module(file)
            if place in found or name not in module.classes:
                continue
            code = found[place] = module.classes[name]
            for other in code.names:
                if other in module.classes:
                    todo.append((file, other))
                elif imported := self._imported(file, module.imports.get(other, "")):
                    todo.append((imported, other))
            made |= "made by an auto class" in code.marks
        parts = frozenset(self._parts(model_type)) if made else frozenset[str]()
        for part in parts - seen - {model_type}:
            found |= self._reach(part, seen | parts | {model_type})
        return found

    def packages(self, reached: Mapping[tuple[str, str], ClassCode]) -> frozenset[str]:
        """Return the packages that the modules of these classes import."""
        return frozenset(each for file, _ in reached for each in self._module(file).packages)

    def _names(self, task: str, model_type: str) -> tuple[str, ...]:
        return self._tasks[task].get(model_type, ())

    def _parts(self, model_type: str) -> Iterator[str]:
        """Yield the types that a configuration takes for its parts where it is not told others."""
        folder = self._folder(model_type)
        file = f"transformers/models/{folder}/configuration_{folder}.py"
        if file in self._infos:
            text = self._text(file)
            named = re.findall(
                r'CONFIG_MAPPING\["([\w-]+)"\]|get\("model_type", "([\w-]+)"\)|model_type ?= ?"([\w-]+)"',
                text,
            )
            yield from (each for pair in named for each in pair if each in self.types)

    def _folder(self, model_type: str) -> str:
        return self._folders.get(model_type, model_type.replace("-", "_"))

    def _file(self, model_type: str, name: str) -> str | None:
        return next(
            (
                file
                for file in self._where.get(self._folder(model_type), ())
                if name in self._module(file).classes
            ),
            None,
        )

    def _forward_keywords(self, file: str, name: str) -> str | None:
        module = self._module(file)
        if name not in module.classes:
            imported = self._imported(file, module.imports.get(name, ""))
            return None if imported is None else self._forward_keywords(imported, name)
        code = module.classes[name]
        if code.forward_keywords is not None:
            return code.forward_keywords
        answers = (self._forward_keywords(file, base) for base in code.bases)
        return next((answer for answer in answers if answer is not None), None)

    def _imported(self, file: str, module: str) -> str | None:
        """Return the file of a module by the relative name in an import, such as `..bart.modeling_bart`."""
        dots = len(module) - len(module.lstrip("."))
        if not dots:
            return None
        path = "/".join([*file.split("/")[:-dots], *module.lstrip(".").split(".")]) + ".py"
        return path if path in self._infos and "/models/" in path else None

    def _module(self, file: str) -> ModuleCode:
        info = self._infos[file]
        key = (file, info.CRC)
        if key not in self._parsed:
            self._parsed[key] = module_of(self._text(file))
        return self._parsed[key]

    def _text(self, name: str) -> str:
        return self._files.read(name).decode("utf-8", "replace")


def _listed(texts: Sequence[str], task: str) -> dict[str, tuple[str, ...]]:
    """Return the classes of a task by `model_type`; items that are computed are left out."""
    found: dict[str, tuple[str, ...]] = {}
    for text in texts:
        for statement in ast.parse(text).body:
            match statement:
                case ast.Assign(
                    targets=[ast.Name(id=written)], value=ast.Call(args=[ast.List(elts=items)])
                ) if written == task:
                    found.update(_item(each) for each in items if isinstance(each, ast.Tuple))
                case _:
                    pass
    return found


def _item(row: ast.Tuple) -> tuple[str, tuple[str, ...]]:
    key, names = ast.literal_eval(row)
    return str(key), (names,) if isinstance(names, str) else tuple(names)


# --- the table --------------------------------------------------------------------------------------


def _skips(release: ReleaseCode, model_type: str) -> bool:
    return any("skips experts" in code.marks for code in release.reached(model_type).values())


def _convolves(release: ReleaseCode, model_type: str) -> bool:
    return any("nn.Conv3d" in code.names for code in release.reached(model_type).values())


def _saves_router_bias(release: ReleaseCode, model_type: str) -> bool:
    wanted = {f"buffer {name}" for name in ROUTER_BIASES}
    return any(wanted & code.marks for code in release.reached(model_type).values())


def _refuses_right_padding(release: ReleaseCode, model_type: str) -> bool:
    prefix = "refuses right padding in "
    return any(
        mark == f"{prefix}forward" or f"self.{mark.removeprefix(prefix)}" in code.names
        for code in release.reached(model_type).values()
        for mark in code.marks
        if mark.startswith(prefix)
    )


def _attends_without_sinks(release: ReleaseCode, model_type: str) -> bool:
    reached = release.reached(model_type).values()
    return any("ALL_ATTENTION_FUNCTIONS.get_interface" in code.names for code in reached) and not any(
        "s_aux" in code.names for code in reached
    )


def _takes(release: ReleaseCode, model_type: str, *, wanted: bool) -> bool:
    names = release.language_classes(model_type)
    return bool(names) and all(release.takes_keywords(model_type, name) is wanted for name in names)


def _imports(release: ReleaseCode, model_type: str, *, package: str) -> bool:
    return package in release.packages(release.reached(model_type))


class Column(NamedTuple):
    """State a column of the table: what a release is asked for a type, and the releases asked about."""

    name: str
    asks: Callable[[ReleaseCode, str], bool]
    since: str = "4.36.0"
    until: str = ""


COLUMNS = (
    Column("skips_experts", _skips, "4.36.0", "5.0.0"),
    Column("saves_router_bias", _saves_router_bias, "4.51.0", "5.6.0"),
    Column("conv3d", _convolves),
    Column("refuses_right_padding", _refuses_right_padding),
    Column("takes_loss_keywords", partial(_takes, wanted=True), "4.46.0", "4.57.0"),
    Column("lacks_loss_keywords", partial(_takes, wanted=False), "4.46.0", "4.50.0"),
    Column("causal_conv1d", partial(_imports, package="causal_conv1d")),
    Column("mamba_ssm", partial(_imports, package="mamba_ssm")),
    Column("attends_without_sinks", _attends_without_sinks, "5.6.0", "5.6.1"),
)


def columns(store: ReleaseStore) -> tuple[dict[str, dict[str, list[str]]], list[str]]:
    """Return the releases of which a column is true, by column and `model_type`; also all releases.

    Of a minor, the first and the last release are read, and those in between if the two differ.
    """
    parsed: dict[tuple[str, int], ModuleCode] = {}
    oldest = min(Version(column.since) for column in COLUMNS)
    final = [each for each in store.versions("transformers") if not Version(each).is_prerelease]
    releases = [each for each in final if Version(each) >= oldest]
    found: dict[str, dict[str, list[str]]] = {column.name: defaultdict(list) for column in COLUMNS}
    for _, group in groupby(releases, key=lambda each: Version(each).release[:2]):
        minor = [*group]
        ends = _true_of(store, minor[0], parsed), _true_of(store, minor[-1], parsed)
        for version in minor:
            true = ends[0] if ends[0] == ends[1] or version == minor[0] else _true_of(store, version, parsed)
            for column, model_type in sorted(true):
                found[column][model_type].append(version)
    return found, releases


def _true_of(
    store: ReleaseStore, version: str, parsed: dict[tuple[str, int], ModuleCode]
) -> frozenset[tuple[str, str]]:
    """Return the columns that are true of a release, each with the type that it is true of."""
    with zipfile.ZipFile(store.path("transformers", version)) as archive:
        release = ReleaseCode(version, archive, parsed)
        return frozenset(
            (column.name, model_type)
            for column in COLUMNS
            if _is_asked(column, version)
            for model_type in release.types
            if column.asks(release, model_type)
        )


def _is_asked(column: Column, version: str) -> bool:
    after = Version(version) >= Version(column.since)
    return after and (not column.until or Version(version) < Version(column.until))


if __name__ == "__main__":
    sys.exit(run("model_code", __doc__, columns, sys.argv[1:]))
