"""What the config.json of well-known models says, by their name on the Hub, from compat/hub_models/. Pure.

Below a line with a `model_type`, `[qwen3]`, stand the names of its models, each with how its weights are
quantised if they are: `Qwen/Qwen3-8B-AWQ awq`. `tools/refresh_hub_models.py` writes it.

In the file of sizes, the names stand below the part of their config.json that says how large they are, which
is one line of JSON. `tools/refresh_hub_sizes.py` writes it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

_HEAD = """\
# The model_type of well-known models, by their name on the Hub, and how their weights are quantised.
# Written by tools/refresh_hub_models.py; the form is described in envcheck/knowledge/hub_models.py.
# read: {read}
"""

_SIZES_HEAD = """\
# The sizes of well-known models, as their config.json has them, by their name on the Hub.
# Written by tools/refresh_hub_sizes.py; the form is described in envcheck/knowledge/hub_models.py.
# read: {read}
"""

_QUANTIZED: Mapping[str, Mapping[str, Any]] = {
    "awq": {"quant_method": "awq"},
    "gptq": {"quant_method": "gptq"},
    "fp8": {"quant_method": "fp8"},
    "mxfp4": {"quant_method": "mxfp4"},
    "nf4": {"load_in_4bit": True, "bnb_4bit_quant_type": "nf4"},
}
"""The `quantization_config` of a model by the word in the table."""

_CACHED = re.compile(r"models--([^/]+?)--([^/]+)")


def hub_models_text(types: Mapping[str, str], quantized: Mapping[str, str], read: Iterable[str]) -> str:
    """Return the text of the file, from the type of model and the quantisation by name, and what was read.

    Raises:
        ValueError: a quantisation has no form in a config.json that is known here.
    """
    if unknown := set(quantized.values()) - _QUANTIZED.keys():
        raise ValueError(f"expected one of {', '.join(_QUANTIZED)}; found {', '.join(sorted(unknown))}")
    names: dict[str, list[str]] = {}
    for name, model_type in types.items():
        names.setdefault(model_type, []).append(name)
    lines = [_HEAD.format(read=", ".join(read))]
    for model_type, of_type in sorted(names.items()):
        lines.append(f"[{model_type}]\n")
        lines += [f"{name} {quantized.get(name, '')}".rstrip() + "\n" for name in sorted(of_type)]
    return "".join(lines)


def hub_sizes_text(configs: Mapping[str, Mapping[str, Any]], read: Iterable[str]) -> str:
    """Return the text of the file of sizes, from the configuration by name, and what was read."""
    names: dict[str, list[str]] = {}
    for name, config in configs.items():
        text = json.dumps(dict(sorted(config.items())), separators=(",", ":"))
        names.setdefault(text, []).append(name)
    lines = [_SIZES_HEAD.format(read=", ".join(read))]
    for config_text, of_model in sorted(names.items(), key=lambda item: min(item[1])):
        lines += [f"{line}\n" for line in (config_text, *sorted(of_model))]
    return "".join(lines)


def configuration_of(text: str, name: str) -> Mapping[str, Any]:
    """Return what the config.json of a model says of its type and quantisation; empty if it is not known.

    A copy that keeps the last part of a name, in a folder or below another owner, is taken for the same
    model if that part has a digit: `/data/models/Qwen3-8B`, but not `my/dbrx-base`.
    """
    found = _values_of(name, _rows(text))
    return _configuration(*found) if found else {}


def sizes_of(sizes: str, types: str, name: str) -> Mapping[str, Any]:
    """Return the part of a model's config.json that says how large it is; empty if it is not known.

    `sizes` and `types` are the texts of the two files; the second one says how the weights are quantised. A
    name that the second one does not know is not known.
    """
    known = configuration_of(types, name)
    found = _values_of(name, _size_rows(sizes))
    return {**json.loads(found[0]), **known} if found and known else {}


def _values_of(name: str, rows: Iterable[tuple[str, tuple[str, ...]]]) -> tuple[str, ...]:
    """Return what stands in the row of a name or of a copy of it; empty if none fits, or several differ."""
    cached = _CACHED.search(name)
    sought = (f"{cached[1]}/{cached[2]}" if cached else name.rstrip("/")).casefold()
    end = sought.rpartition("/")[2]
    copies = set()
    for model, values in rows:
        if model.casefold() == sought:
            return values
        if model.casefold().endswith(f"/{end}") and re.search(r"\d", end):
            copies.add(values)
    return copies.pop() if len(copies) == 1 else ()


def _rows(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each name with its type and the word for how it is quantised."""
    model_type = ""
    for line in text.splitlines():
        if line.startswith("["):
            model_type = line.strip("[]")
        elif not line.startswith("#"):
            name, _, quantized = line.partition(" ")
            yield name, (model_type, quantized)


def _size_rows(text: str) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each name with its configuration as JSON."""
    config = ""
    for line in text.splitlines():
        if line.startswith("{"):
            config = line
        elif not line.startswith("#"):
            yield line, (config,)


def _configuration(model_type: str, quantized: str) -> Mapping[str, Any]:
    config: dict[str, Any] = {"model_type": model_type}
    return {**config, "quantization_config": _QUANTIZED[quantized]} if quantized else config
