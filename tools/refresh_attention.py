"""Propose a diff of compat/tables/attention.toml: `refresh_attention.py --store FOLDER [--write]`.

Reads, in every release of transformers that `envcheck matrix harvest` stored in FOLDER, which model types
refuse an attention implementation that is asked for by name: the `_supports_…` attributes of the classes that
the auto classes construct for a `model_type`. The files are parsed and never run. A type counts as refusing
only if all its classes do; a class whose attributes or bases cannot be followed decides nothing. Prints a
unified diff; changes nothing without `--write`.
"""

from __future__ import annotations

import ast
import re
import sys
import zipfile
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from packaging.version import Version

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from model_type_table import run
from refresh_models import AUTO, FILES, pairs

from envcheck.commands.harvest.store import ReleaseStore

ROOT = "PreTrainedModel"
"""The base of every model. Its own attributes are false."""

TASKS = (
    "MODEL_FOR_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES",
    "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
    "MODEL_FOR_VISION_2_SEQ_MAPPING_NAMES",
    "MODEL_FOR_MASKED_LM_MAPPING_NAMES",
)
"""The mappings from `model_type` to the classes that people fine-tune."""


class Implementation(NamedTuple):
    """An attention implementation: the attributes that allow it, and the first release that checks them.

    A class with the attribute `instead` is given one of those kernels, and never refused.
    """

    name: str
    attributes: tuple[str, ...]
    checked_from: str
    instead: str = ""


IMPLEMENTATIONS = (
    Implementation("sdpa", ("_supports_sdpa",), "4.36.0"),
    Implementation(
        "flash_attention_2",
        ("_supports_flash_attn", "_supports_flash_attn_2"),
        "4.34.0",
        "_compatible_flash_implementations",
    ),
    Implementation("flex_attention", ("_supports_flex_attn",), "4.47.0"),
)
"""`checked_from` was read in transformers/modeling_utils.py of all releases from 4.16.0 to 5.24.0."""


class ClassBody(NamedTuple):
    """The bases of a class, and whether each attribute assigned in its body is true; None if computed."""

    bases: tuple[str, ...]
    attributes: Mapping[str, bool | None]


class Module(NamedTuple):
    """The classes that a module defines, and the modules that it imports names from."""

    classes: Mapping[str, ClassBody]
    imports: Mapping[str, str]


class Models:
    """The model classes of one release."""

    def __init__(self, files: zipfile.ZipFile, parsed: dict[tuple[str, int], Module]) -> None:
        """Take the archive of the release, and the modules that earlier releases had in common with it."""
        self._files = files
        self._parsed = parsed
        self._infos = {info.filename: info for info in files.infolist()}
        self._auto = [
            self._text(AUTO + name) for name in ("modeling_auto.py", *FILES) if AUTO + name in self._infos
        ]
        self._folders = pairs(self._auto, "SPECIAL_MODEL_TYPE_TO_MODULE_NAME")
        self._where: dict[str, list[str]] = defaultdict(list)
        for name in self._infos:
            if re.fullmatch(r"transformers/models/(?:\w+/)+modeling_(?!tf_|flax_)\w+\.py", name):
                self._where[name.rpartition("/")[0].rpartition("/")[2]].append(name)

    def classes(self) -> dict[str, list[str]]:
        """Return the classes that the auto classes construct, by `model_type`."""
        found: dict[str, list[str]] = defaultdict(list)
        for task in TASKS:
            for model_type, name in pairs(self._auto, task).items():
                found[model_type].append(name)
        return found

    def refuses(self, model_type: str, name: str, implementation: Implementation) -> bool | None:
        """Return whether a class refuses an implementation; None if its code does not say."""
        folder = self._folders.get(model_type, model_type.replace("-", "_"))
        file = next(
            (file for file in self._where.get(folder, ()) if name in self._module(file).classes), None
        )
        if file is None:
            return None
        values = [
            self._value(file, name, key) for key in (*implementation.attributes, implementation.instead)
        ]
        if None in values:
            return None
        return not any(values)

    def _value(self, file: str, name: str, key: str) -> bool | None:
        """Return whether an attribute of a class is true; None if it is computed or a base is not found."""
        if not key or name in (ROOT, "GenerationMixin", "nn.Module", "object", "ABC"):
            return False
        module = self._module(file)
        if name not in module.classes:
            imported = self._imported(file, module.imports.get(name, ""))
            return None if imported is None else self._value(imported, name, key)
        body = module.classes[name]
        if key in body.attributes:
            return body.attributes[key]
        for base in body.bases:
            value = self._value(file, base, key)
            if value is not False:
                return value
        return False

    def _imported(self, file: str, module: str) -> str | None:
        """Return the file of a module by the relative name in an import, such as `..bart.modeling_bart`."""
        dots = len(module) - len(module.lstrip("."))
        if not dots:
            return None
        path = "/".join([*file.split("/")[:-dots], *module.lstrip(".").split(".")]) + ".py"
        return path if path in self._infos else None

    def _module(self, file: str) -> Module:
        info = self._infos[file]
        key = (file, info.CRC)
        if key not in self._parsed:
            self._parsed[key] = module_of(self._text(file))
        return self._parsed[key]

    def _text(self, name: str) -> str:
        return self._files.read(name).decode("utf-8", "replace")


def module_of(text: str) -> Module:
    """Read the classes and imports of a module; one that cannot be parsed has none."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return Module({}, {})
    imports = {
        alias.asname or alias.name: "." * node.level + (node.module or "")
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    classes = {node.name: _class_body(node) for node in tree.body if isinstance(node, ast.ClassDef)}
    return Module(classes, imports)


def _class_body(node: ast.ClassDef) -> ClassBody:
    attributes: dict[str, bool | None] = {}
    for statement in node.body:
        match statement:
            case ast.Assign(targets=targets, value=value):
                attributes.update({each.id: _truth(value) for each in targets if isinstance(each, ast.Name)})
            case ast.AnnAssign(target=ast.Name(id=key), value=ast.expr() as value):
                attributes[key] = _truth(value)
            case ast.FunctionDef(name=key):  # a property is true where the class is asked for it
                attributes[key] = True
            case _:
                pass
    return ClassBody(tuple(ast.unparse(base) for base in node.bases), attributes)


def _truth(value: ast.expr) -> bool | None:
    try:
        return bool(ast.literal_eval(value))
    except (ValueError, TypeError):
        return None


# --- the table --------------------------------------------------------------------------------------


def refusals(store: ReleaseStore) -> tuple[dict[str, dict[str, list[str]]], list[str]]:
    """Return the releases that refuse, by implementation and `model_type`; also all that were read."""
    found: dict[str, dict[str, list[str]]] = {each.name: defaultdict(list) for each in IMPLEMENTATIONS}
    parsed: dict[tuple[str, int], Module] = {}
    releases = [each for each in store.versions("transformers") if not Version(each).is_prerelease]
    for version in releases:
        wanted = [each for each in IMPLEMENTATIONS if Version(version) >= Version(each.checked_from)]
        if not wanted:
            continue
        with zipfile.ZipFile(store.path("transformers", version)) as archive:
            models = Models(archive, parsed)
            for model_type, names in models.classes().items():
                for implementation in wanted:
                    if all(models.refuses(model_type, name, implementation) for name in names):
                        found[implementation.name][model_type].append(version)
    return found, releases


if __name__ == "__main__":
    sys.exit(run("attention", __doc__, refusals, sys.argv[1:]))
