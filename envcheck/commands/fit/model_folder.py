"""Read a model from its folder: config.json, and the headers of its safetensors files."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from envcheck.core.errors import InputError
from envcheck.core.facts import EMPTY_MAPPING
from envcheck.core.parsing import parse_json
from envcheck.core.records import NamedTuple
from envcheck.host.files import is_folder, list_folder, path_exists, read_file, read_start
from envcheck.host.hub_cache import cached_model, is_repository
from envcheck.host.package_files import text_of
from envcheck.knowledge.hub_models import configuration_of, sizes_of
from envcheck.memory import architecture
from envcheck.memory.architecture_table import LARGEST

Tables = Mapping[str, Sequence[Mapping[str, Any]]]
"""The rows of compat/tables/architectures by table."""

DTYPES = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "fp32": "fp32",
    "bf16": "bf16",
    "fp16": "fp16",
}
"""Names of dtypes: from the spelling in configurations to envcheck's."""

_LARGEST_HEADERS = 100 * 1024 * 1024
"""Maximum bytes of safetensors headers read in one folder: the format's own limit for one header."""

_BITS = {
    "F64": 64, "I64": 64, "U64": 64, "F32": 32, "I32": 32, "U32": 32, "F16": 16, "BF16": 16, "I16": 16,
    "U16": 16, "I8": 8, "U8": 8, "BOOL": 8, "F8_E4M3": 8, "F8_E5M2": 8, "F8_E8M0": 8, "F4": 4,
    "F6_E2M3": 6, "F6_E3M2": 6,
}  # fmt: skip
"""Bits of one element, by safetensors dtype."""


def read_model(
    named: str, tables: Tables, environ: Mapping[str, str] = EMPTY_MAPPING
) -> architecture.ModelShape:
    """Return the model of a config.json, of a folder that holds one, or of `params=7.6e9,…`.

    A name on the hub is looked up in the cache that `environ` names, and then in compat/hub_models/; nothing
    is downloaded.

    Raises:
        InputError: the argument is none of these, or its values are implausible.
    """
    if named.startswith("params="):
        return architecture.described(named)
    path = Path(named)
    if not path_exists(path) and (is_repository(named) or _known_without_owner(named)):
        found = cached_model(named, environ)
        if found is None:
            return _well_known_model(named, tables)
        path = found
    file, stored = path, dict[str, _StoredTensor]()
    if is_folder(str(path)):
        file = path / "config.json"
        if not file.exists():
            raise InputError(named, "no config.json in this folder")
    config = _parse_json(read_file(file), str(file))
    if is_folder(str(path)):
        stored = dict(_stored_tensors(path))
    model = architecture.model(config, tables, str(file)) or _model_of_tensors(config, str(file), stored)
    return model._replace(
        dtype=DTYPES.get(str(_dtype(config)), ""),
        quantised=_quantisation(config, str(file)),
        stored=sum(tensor.size for tensor in stored.values()),
    )


def _known_without_owner(named: str) -> bool:
    """Return whether a text is the last part of a well-known name, such as Qwen3-8B."""
    return "/" not in named and bool(configuration_of(text_of("hub_models", "hub"), named))


def _well_known_model(named: str, tables: Tables) -> architecture.ModelShape:
    """Return a model of the hub whose sizes are known without its config.json.

    Raises:
        InputError: its sizes are not known, or the estimate does not cover how it is quantised.
    """
    types = text_of("hub_models", "hub")
    known = configuration_of(types, named)
    quantised = _quantisation(known, named)
    config = sizes_of(text_of("hub_models", "sizes"), types, named)
    model = architecture.model(config, tables, named) if config else None
    if model is None:
        raise InputError(named, _how_to_get(named, str(known.get("model_type", "")), tables))
    notes = ["sizes by the model's name, from published registries: its config.json was not read"]
    if config.get("tie_word_embeddings", False) is None:
        notes.append("the head has weights of its own: the registries do not say whether it shares them")
    return model._replace(
        dtype=DTYPES.get(str(_dtype(config)), ""), quantised=quantised, notes=(*notes, *model.notes)
    )


def _how_to_get(named: str, kind: str, tables: Tables) -> str:
    """Return what to do about a model of the hub whose sizes are not known."""
    named = named if is_repository(named) else f"OWNER/{named}"
    unknown = "not in the hub's cache, its sizes are not known here, and nothing is downloaded"
    if not kind or any(kind in row["model_types"] for table in ("decoder", "tower") for row in tables[table]):
        return f"{unknown}: run `hf download {named} config.json` (some kB) and try again, or give params=…"
    return (
        f"{unknown}: model_type {kind!r} is counted from the headers of its weights, "
        f"so run `hf download {named}` and try again, or give params=…"
    )


def _model_of_tensors(
    config: Mapping[str, Any], file: str, stored: Mapping[str, _StoredTensor]
) -> architecture.ModelShape:
    """Return a model of unknown architecture, described by its stored tensors.

    Raises:
        InputError: no tensors are stored.
    """
    kind = str(config.get("model_type"))
    if not stored:
        raise InputError(
            file,
            f"model_type {kind[:40]!r} is not described, and there are no safetensors files beside it; "
            "give its size: --model params=7.6e9,layers=28,hidden=3584,heads=28,mlp=18944,vocab=152064",
        )
    return architecture.listed(kind, [(name, tensor.shape) for name, tensor in stored.items()])


def _dtype(config: Mapping[str, Any]) -> Any:
    """Return the dtype that a configuration names, at the top or for its text model."""
    dtype = config.get("dtype", config.get("torch_dtype"))
    inner = config.get("text_config")
    if not isinstance(dtype, str) and isinstance(inner, dict):
        return inner.get("dtype", inner.get("torch_dtype"))
    return dtype


def _parse_json(data: bytes, where: str) -> dict[str, Any]:
    found = parse_json(data.decode("utf-8", "replace"), where)
    if not isinstance(found, dict):
        raise InputError(where, "expected a JSON object")
    return found


def _quantisation(config: Mapping[str, Any], where: str) -> str:
    """Return how transformers' quantization_config says the weights are quantised; empty if they are not.

    Raises:
        InputError: the estimate does not cover the method, or the entry is wrong.
    """
    entry = config.get("quantization_config")
    if entry is None:
        return ""
    where = f"{where}: quantization_config"
    if not isinstance(entry, dict):
        raise InputError(where, "expected an object")
    if entry.get("load_in_4bit") is True or entry.get("_load_in_4bit") is True:
        kind = str(entry.get("bnb_4bit_quant_type", "fp4"))
        return kind if kind in ("nf4", "fp4") else "fp4"
    if entry.get("load_in_8bit") is True or entry.get("_load_in_8bit") is True:
        return "int8"
    method = str(entry.get("quant_method", ""))
    if method not in ("gptq", "awq", "fp8"):
        raise InputError(where, f"quant_method {method[:40]!r} cannot be calculated")
    if method != "fp8" and entry.get("bits", 4) != 4:  # noqa: PLR2004
        raise InputError(f"{where}.bits", "only 4 bit can be calculated")
    return method


# --- safetensors ------------------------------------------------------------------------------------


class _StoredTensor(NamedTuple):
    shape: tuple[int, ...]
    size: int  # bytes


def _stored_tensors(folder: Path) -> Iterator[tuple[str, _StoredTensor]]:
    """Yield every tensor of a folder's safetensors files by name; only their headers are read.

    Raises:
        InputError: a header is wrong, or the headers are too large together.
    """
    left = _LARGEST_HEADERS
    for name in list_folder(folder):
        if not name.endswith(".safetensors"):
            continue
        length = int.from_bytes(read_start(folder / name, 8), "little")
        if not 2 <= length <= left:  # noqa: PLR2004 - the shortest header is `{}`
            raise InputError(str(folder / name), f"not safetensors: a header of {length} bytes")
        left -= length
        yield from _header(folder / name, length)


def _header(path: Path, length: int) -> Iterator[tuple[str, _StoredTensor]]:
    where = str(path)
    data = read_start(path, 8 + length)[8:]
    if len(data) < length:
        raise InputError(where, f"not safetensors: it ends within its header of {length} bytes")
    for name, entry in _parse_json(data, where).items():
        if name != "__metadata__":
            yield name, _tensor(name, entry, where)


def _tensor(name: str, entry: object, where: str) -> _StoredTensor:
    shape = entry.get("shape") if isinstance(entry, dict) else None
    dtype = entry.get("dtype") if isinstance(entry, dict) else None
    whole = isinstance(shape, list) and all(
        type(length) is int and 0 <= length <= LARGEST for length in shape
    )
    if not whole or dtype not in _BITS:
        raise InputError(where, f"not safetensors: {name[:60]!r} has no shape or dtype that is known")
    sizes = tuple(shape or ())
    elements = math.prod(sizes)
    if elements > architecture.MOST_PARAMETERS:
        raise InputError(where, f"{name[:60]!r} has {elements:.1e} elements, which is not plausible")
    return _StoredTensor(sizes, elements * _BITS[str(dtype)] // 8)
