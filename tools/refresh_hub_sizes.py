"""Propose a diff of compat/hub_models/sizes.txt.

`python tools/refresh_hub_sizes.py FOLDER` reads wheels that `pip download --no-deps` put into a folder:
aiconfigurator-core, which holds copies of the config.json of models; litgpt, which holds the sizes of the
models that it loads; megatron-bridge, which says of models with the same sizes whether the head shares the
embedding's weight; ms-swift and Unsloth, which say which names are copies of one model. Prints a unified
diff; changes nothing without `--write`.

Of a config.json, the keys are kept that `envcheck fit` reads. litgpt's config.py is run, which takes PyYAML;
the other files are only read. If two registries give a name different numbers of parameters, the name is
left out and printed.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import runpy
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from table_diff import propose

from envcheck.atlas.hub_models import copies, same_models
from envcheck.core.errors import InputError
from envcheck.knowledge.hub_models import configuration_of, hub_sizes_text
from envcheck.memory import architecture
from envcheck.memory.architecture_table import TableRow

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "compat/hub_models/sizes.txt"
TYPES = TABLE.with_name("hub.txt")
ARCHITECTURES = ROOT / "compat/tables/architectures.toml"
PROVIDER = re.compile(r"megatron/bridge/models/\S+_provider\.py")
REGISTRY = re.compile(r"swift/(llm/)?model/\S*\.py")
COPIES = re.compile(r"unsloth/models/mapper\.py")
CONFIG = re.compile(r"\w+/model_configs/([^/]+?)--([^/]+)_config\.json")
DTYPES = ("torch_dtype", "dtype")

Tables = Mapping[str, Sequence[TableRow]]
Config = dict[str, Any]


class KeysRead(Mapping[str, Any]):
    """Note which keys of a config.json are read, also in the objects that it holds."""

    def __init__(self, config: Mapping[str, Any]) -> None:
        """Take the configuration."""
        self._config = config
        self._read: dict[str, Any] = {}

    def __getitem__(self, key: str) -> Any:
        """Return a value, and note its key.

        Raises:
            KeyError: there is none.
        """
        value = self._config[key]
        if key not in self._read:
            self._read[key] = KeysRead(value) if isinstance(value, dict) else value
        return self._read[key]

    def __iter__(self) -> Iterator[str]:
        """Yield the keys, which are not noted."""
        return iter(self._config)

    def __len__(self) -> int:
        """Return the number of keys."""
        return len(self._config)

    def read(self) -> Config:
        """Return what was read."""
        return {
            key: value.read() if isinstance(value, KeysRead) else value for key, value in self._read.items()
        }


def sizes_of(config: Mapping[str, Any], tables: Tables, name: str) -> tuple[Config, int] | None:
    """Return what `fit` reads of a config.json, and how many parameters it counts; None if it counts none."""
    noted = KeysRead(config)
    try:
        found = architecture.model(noted, tables, name)
    except InputError:
        return None
    if found is None:
        return None
    parts = (config, config.get("text_config"))
    dtypes = [part.get(key) for part in parts if isinstance(part, Mapping) for key in DTYPES]
    dtype = next((each for each in dtypes if isinstance(each, str)), None)
    return {**noted.read(), **({"dtype": dtype} if dtype else {})}, found.parameters


def members(wheel: Path, name: re.Pattern[str]) -> Iterator[tuple[re.Match[str], str]]:
    """Yield the files of a wheel that have such a name, with their texts."""
    with zipfile.ZipFile(wheel) as archive:
        for each in archive.namelist():
            if found := name.fullmatch(each):
                yield found, archive.read(each).decode("utf-8")


def published_configs(wheels: Sequence[Path]) -> Iterator[tuple[str, Config]]:
    """Yield the name and the config.json of each model of which a wheel holds a copy."""
    for wheel in wheels:
        for named, text in members(wheel, CONFIG):
            yield f"{named[1]}/{named[2]}", json.loads(text)


# --- litgpt -----------------------------------------------------------------------------------------


def litgpt_configs(
    wheel: Path, types: str, tables: Tables, shared: Mapping[Shape, bool]
) -> Iterator[tuple[str, Config]]:
    """Yield the name of each model that litgpt loads, with its sizes as a config.json has them.

    `types` is the text of hub.txt, because litgpt names no `model_type`. Models whose type is not there are
    left out, and those with a vision tower, of which litgpt loads the decoder only.
    """
    with tempfile.TemporaryDirectory() as folder, zipfile.ZipFile(wheel) as archive:
        names = runpy.run_path(archive.extract("litgpt/config.py", folder))
    towers = {kind for row in tables["tower"] for kind in row["model_types"]}
    always_tied = {kind for row in tables["decoder"] if row["tied"] for kind in row["model_types"]}
    for arguments in names["configs"]:
        found = names["Config"](**arguments)
        name = f"{found.hf_config['org']}/{found.hf_config['name']}"
        known = configuration_of(types, name)
        kind = known.get("model_type", "")
        if kind and kind not in towers and "quantization_config" not in known:
            shape = (found.n_layer, found.n_embd, found.intermediate_size, found.n_head, found.n_query_groups)
            tied = True if kind in always_tied else shared.get(shape)
            yield name, {**_as_config_json(found, kind), "tie_word_embeddings": tied}


def _as_config_json(found: Any, kind: str) -> Config:
    config = {
        "model_type": kind,
        "hidden_size": found.n_embd,
        "num_hidden_layers": found.n_layer,
        "num_attention_heads": found.n_head,
        "num_key_value_heads": found.n_query_groups,
        "head_dim": found.head_size,
        "intermediate_size": found.intermediate_size,
        "vocab_size": found.padded_vocab_size,
        "attention_bias": bool(found.bias or found.attn_bias),
    }
    if found.n_expert:
        config |= {
            "num_experts": found.n_expert,
            "num_local_experts": found.n_expert,
            "num_experts_per_tok": found.n_expert_per_token,
            "moe_intermediate_size": found.moe_intermediate_size,
        }
    return config


# --- megatron-bridge --------------------------------------------------------------------------------

Shape = tuple[int, ...]
"""Layers, hidden size, width of the MLP, heads, and heads of keys and values."""

_SHAPE = ("num_layers", "hidden_size", "ffn_hidden_size", "num_attention_heads", "num_query_groups")
_SHARED = "share_embeddings_and_output_weights"


def shared_by_shape(wheel: Path) -> dict[Shape, bool]:
    """Return whether the head shares the embedding's weight, where all models with these sizes agree."""
    found: dict[Shape, set[bool]] = {}
    for _, text in members(wheel, PROVIDER):
        for fields in class_constants(text):
            sizes = [size for name in _SHAPE if type(size := fields.get(name)) is int]
            if isinstance(fields.get(_SHARED), bool) and len(sizes) == len(_SHAPE):
                found.setdefault(tuple(sizes), set()).add(fields[_SHARED])
    return {shape: only for shape, (only, *others) in found.items() if not others}


def class_constants(source: str) -> Iterator[Mapping[str, Any]]:
    """Yield for each class of a module its constants by name, with those of its bases in the module."""
    classes: dict[str, dict[str, Any]] = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.ClassDef):
            inherited = [classes.get(base.id, {}) for base in node.bases if isinstance(base, ast.Name)]
            own = {
                each.target.id: each.value.value
                for each in node.body
                if isinstance(each, ast.AnnAssign)
                and isinstance(each.target, ast.Name)
                and isinstance(each.value, ast.Constant)
            }
            classes[node.name] = {
                key: value for part in (*inherited[::-1], own) for key, value in part.items()
            }
            yield classes[node.name]


# --- the table --------------------------------------------------------------------------------------


class Registries(NamedTuple):
    """Hold what the wheels of a folder say; `different` are the names of which they say different things."""

    configs: Mapping[str, Config]
    different: Sequence[str]


def read_sizes(wheels: Sequence[Path]) -> Registries:
    """Return the sizes of each model that the registries in these wheels name.

    Raises:
        ValueError: one of the packages is missing.
    """
    by_package = {wheel.name.partition("-")[0].lower(): wheel for wheel in wheels}
    if (
        missing := {"aiconfigurator_core", "litgpt", "megatron_bridge", "unsloth", "ms_swift"}
        - by_package.keys()
    ):
        raise ValueError(f"expected wheels of {', '.join(sorted(missing))} in the folder")
    tables = tomllib.loads(ARCHITECTURES.read_text("utf-8"))
    types = TYPES.read_text("utf-8")
    shared = shared_by_shape(by_package["megatron_bridge"])
    published = dict(published_configs([by_package["aiconfigurator_core"]]))
    loaded = dict(litgpt_configs(by_package["litgpt"], types, tables, shared))
    found, different = {}, []
    for name in published.keys() | loaded.keys():
        counted = [sizes_of(each[name], tables, name) for each in (published, loaded) if name in each]
        counts = {each[1] for each in counted if each}
        if len(counts) == 1 and (each := counted[0]):
            found[name] = {key: value for key, value in each[0].items() if key != "quantization_config"}
        elif counts:
            different.append(name)
    groups = [
        group
        for wheel in wheels
        for pattern, read in ((REGISTRY, same_models), (COPIES, copies))
        for _, text in members(wheel, pattern)
        for group in read(text)
    ]
    return Registries(with_copies(found, groups, types, different), sorted(different))


def with_copies(
    configs: Mapping[str, Config], groups: Sequence[Sequence[str]], types: str, left_out: Sequence[str]
) -> dict[str, Config]:
    """Return the configurations of the names, and of their copies, whose type hub.txt knows."""
    found = {name: config for name, config in configs.items() if configuration_of(types, name)}
    for _ in range(2):  # a copy of a copy, as ModelScope's of Unsloth's
        for group in groups:
            known = [found[name] for name in group if name in found]
            if known and all(each == known[0] for each in known):
                for name in group:
                    kind = configuration_of(types, name).get("model_type")
                    if name not in left_out and kind == known[0]["model_type"]:
                        found.setdefault(name, known[0])
    return found


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit code."""
    parser = argparse.ArgumentParser(description="Propose a diff of compat/hub_models/sizes.txt.")
    parser.add_argument("folder", type=Path, help="the wheels")
    parser.add_argument("--write", action="store_true", help="change the table")
    parser.add_argument("--table", type=Path, default=TABLE, help="the table to compare with")
    options = parser.parse_args(arguments)
    wheels = sorted(options.folder.glob("*.whl"))
    try:
        found = read_sizes(wheels)
    except (OSError, zipfile.BadZipFile, SyntaxError, ValueError) as error:
        print(error, file=sys.stderr)
        return 3
    for name in found.different:
        print(f"left out, because registries differ: {name}", file=sys.stderr)
    read = [" ".join(wheel.name.split("-")[:2]).replace("_", "-") for wheel in wheels]
    before = options.table.read_text("utf-8") if options.table.exists() else ""
    return propose(options.table, before, hub_sizes_text(found.configs, read), write=options.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
