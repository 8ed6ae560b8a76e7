"""A model's weights from its config.json, by the rows of compat/tables/architectures.toml. Pure.

Counts are exact: tests compare them with what transformers builds (tests/unit/memory/test_architecture.py).
If no row describes a model, it is refused or counted by the headers of its safetensors files. Nothing is
guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

from envcheck.core.errors import InputError
from envcheck.core.records import NamedTuple
from envcheck.memory.architecture_table import (
    LARGEST,
    LONGEST_QUOTE,
    DecoderRow,
    ExpertsRow,
    Sizes,
    TableRow,
    TowerRow,
    flag,
    quoted,
)
from envcheck.memory.tensors import Tensor, linear, norm
from envcheck.memory.vision_tower import tower_tensors

MOST_PARAMETERS = 10**14
"""Largest number of parameters accepted: a hundred times the largest model that exists."""


class Decoder(NamedTuple):
    """Sizes from which activations are computed; widths count elements."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    value_size: int
    intermediate: int  # width of a dense MLP, or of all experts that process one token
    vocab: int
    gated: bool = True
    activation: str = "silu"
    norms: int = 2  # per layer
    rms: bool = True
    float_norm: bool = False  # RMSNorm that multiplies its weight in fp32, as Gemma's does
    qk_norm: bool = False
    capped: bool = False  # tanh over scores and logits, as in Gemma 2
    experts: int = 0
    active: int = 0  # experts that process one token


class ModelShape(NamedTuple):
    """What is known of a model: its weights, and its decoder's sizes (None if unknown)."""

    name: str
    tensors: tuple[Tensor, ...]
    decoder: Decoder | None
    dtype: str = ""  # of the stored weights: fp32, bf16, fp16; empty if not known
    lora: tuple[str, ...] = ()  # PEFT's default target modules; empty if PEFT has no mapping
    quantised: str = ""  # how the stored weights are quantised already: nf4, int8, gptq, …
    stored: int = 0  # bytes of the stored weights, by safetensors headers; 0 if there are none
    notes: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        """Elements of all weights."""
        return sum(tensor.numel * tensor.copies for tensor in self.tensors)


def model(
    config: Mapping[str, Any], tables: Mapping[str, Sequence[TableRow]], where: str
) -> ModelShape | None:
    """Return the model of a config.json, or None if no row describes its model_type.

    Raises:
        InputError: `config` is not a model's config.json, or a size in it is missing or not plausible.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or not kind:
        raise InputError(where, "no model_type: not the config.json of a transformers model")
    tower = next((row for row in map(TowerRow.of, tables["tower"]) if kind in row.model_types), None)
    text, text_kind = _text_config(config, tower, where) if tower else (config, kind)
    if "text_config" in config and tower is None:
        return None
    row = next((row for row in map(DecoderRow.of, tables["decoder"]) if row.describes(text_kind, text)), None)
    if row is None:
        return None
    sizes = Sizes(text, row.size_keys, where)
    decoder = _decoder(sizes, row)
    tied = flag(config if _TIED in config else text, _TIED, row.tied)
    tensors = [*_outside(sizes, row, tied=tied), *_layers(sizes, row, decoder)]
    if tower is not None:
        tensors += tower_tensors(config.get("vision_config", {}), tower, decoder.hidden, where)
    found = ModelShape(kind, tuple(tensor for tensor in tensors if tensor.copies), decoder, lora=row.lora)
    if found.parameters > MOST_PARAMETERS:
        raise InputError(where, f"{found.parameters:.1e} parameters are not plausible")
    return found


_TIED = "tie_word_embeddings"


def _text_config(config: Mapping[str, Any], tower: TowerRow, where: str) -> tuple[Mapping[str, Any], str]:
    """Return the decoder's part of the configuration of a model with a tower, and the decoder's type."""
    inner = config.get("text_config")
    if inner is None:  # the decoder's sizes are on the top level, next to vision_config
        return config, tower.text_type
    if not isinstance(inner, Mapping):
        raise InputError(f"{where}: text_config", f"expected an object, found {quoted(inner)}")
    kind = str(inner.get("model_type", tower.text_type))
    inner = {**tower.text_preset, **inner}
    return inner, tower.text_type if kind.startswith(tower.model_types[0]) else kind


# --- widths -----------------------------------------------------------------------------------------


def _decoder(sizes: Sizes, row: DecoderRow) -> Decoder:
    hidden, heads = sizes.need("hidden_size"), sizes.need("num_attention_heads")
    head_size, value_size = _head_sizes(sizes, row, hidden, heads)
    experts = row.experts
    count = sizes.need(experts.count) if experts else 0
    width = _experts_width(sizes, experts) if experts else _intermediate(sizes, row, hidden)
    return Decoder(
        hidden=hidden,
        layers=sizes.need("num_hidden_layers"),
        heads=heads,
        kv_heads=sizes.optional("num_key_value_heads") or heads,
        head_size=head_size,
        value_size=value_size,
        intermediate=width,
        vocab=sizes.need("vocab_size"),
        gated=row.mlp != "plain",
        activation=_activation(sizes.config, row),
        norms=row.norms,
        rms=not row.norm.bias,
        float_norm=row.float_norm,
        qk_norm=bool(row.qk_norm),
        capped=bool(row.capped and sizes.config.get(row.capped, True)),
        experts=count,
        active=sizes.need(experts.active) if experts else 0,
    )


def _head_sizes(sizes: Sizes, row: DecoderRow, hidden: int, heads: int) -> tuple[int, int]:
    """Return the sizes of a head's queries and keys, and of its values."""
    head_size = sizes.optional("head_dim")
    if head_size is None or row.attention == "fused":
        if hidden % heads and row.attention != "latent":
            raise InputError(
                sizes.where, f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}"
            )
        head_size = hidden // heads
    if row.attention == "latent":
        return sizes.need("qk_nope_head_dim") + sizes.need("qk_rope_head_dim"), sizes.need("v_head_dim")
    return head_size, head_size


def _experts_width(sizes: Sizes, experts: ExpertsRow) -> int:
    """Return the total width of the experts that process one token."""
    width = sizes.need(experts.width) * sizes.need(experts.active)
    if experts.shared:
        width += sizes.need(experts.width) * (sizes.optional(experts.shared) or 0)
    if experts.shared_width:
        width += sizes.need(experts.shared_width)
    return width


def _intermediate(sizes: Sizes, row: DecoderRow, hidden: int) -> int:
    found = sizes.optional("intermediate_size")
    if found is None and row.wide is not None:
        return row.wide * hidden
    return sizes.need("intermediate_size")


def _activation(config: Mapping[str, Any], row: DecoderRow) -> str:
    keys = ("hidden_activation", "hidden_act", "activation_function", "activation")
    name = next((config[key] for key in keys if isinstance(config.get(key), str)), "")
    return name or row.activation


# --- weights ----------------------------------------------------------------------------------------


def _outside(sizes: Sizes, row: DecoderRow, *, tied: bool) -> Iterator[Tensor]:
    """Yield the weights outside layers: embeddings, norms, and the head unless it is tied."""
    hidden, vocab = sizes.need("hidden_size"), sizes.need("vocab_size")
    yield Tensor("embed_tokens", "embedding", vocab, hidden, 1, "outside")
    if row.positions is not None:
        longest = sizes.need("max_position_embeddings") + row.positions
        yield Tensor("embed_positions", "embedding", longest, hidden, 1, "outside")
    if row.embedding_norm:
        yield from norm(row.norm, hidden, 1, "outside")
    yield from norm(row.norm, hidden, 1, "outside")
    if not tied:
        yield Tensor("lm_head", "head", vocab, hidden, 1, "outside")
    if sizes.bias("head"):
        yield Tensor("lm_head", "bias", vocab, 1, 1, "outside")


def _layers(sizes: Sizes, row: DecoderRow, shape: Decoder) -> Iterator[Tensor]:
    yield from norm(row.norm, shape.hidden, row.norms * shape.layers)
    attention = {"split": _split, "fused": _fused, "latent": _latent}[row.attention]
    yield from attention(sizes, row, shape)
    if row.qk_norm == "head":
        yield from norm(row.norm, shape.head_size, 2 * shape.layers)
    elif row.qk_norm == "full":
        yield from norm(row.norm, shape.heads * shape.head_size, shape.layers)
        yield from norm(row.norm, shape.kv_heads * shape.head_size, shape.layers)
    sparse = _sparse_layers(sizes, row.experts, shape.layers) if row.experts else 0
    if row.experts and sparse:
        yield from _mixture(sizes, row, row.experts, shape.hidden, sparse)
    if sparse < shape.layers:
        dense = _intermediate(sizes, row, shape.hidden)
        yield from _mlp(row, shape.hidden, dense, bias=sizes.bias("mlp"), count=shape.layers - sparse)


def _split(sizes: Sizes, row: DecoderRow, shape: Decoder) -> Iterator[Tensor]:
    """Yield the weights of attention with separate queries, keys and values."""
    q, k, v, o = row.modules[:4]
    count, wide, narrow = shape.layers, shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    for name, width in ((q, wide), (k, narrow), (v, narrow)):
        yield from linear(name, shape.hidden, width, bias=sizes.bias("qkv"), count=count, reads="normed")
    yield from linear(o, wide, shape.hidden, bias=sizes.bias("o"), count=count, reads="attended")


def _fused(sizes: Sizes, row: DecoderRow, shape: Decoder) -> Iterator[Tensor]:
    """Yield the weights of attention with queries, keys and values in one module."""
    qkv, o = row.modules[:2]
    count, wide = shape.layers, shape.heads * shape.head_size
    width = (shape.heads + 2 * shape.kv_heads) * shape.head_size
    yield from linear(qkv, shape.hidden, width, bias=sizes.bias("qkv"), count=count, reads="normed")
    yield from linear(o, wide, shape.hidden, bias=sizes.bias("o"), count=count, reads="attended")


def _latent(sizes: Sizes, row: DecoderRow, shape: Decoder) -> Iterator[Tensor]:
    """Yield the weights of DeepSeek's multi-head latent attention."""
    q, q_a, q_b, kv_a, kv_b, o = row.modules[:6]
    count, bias = shape.layers, sizes.bias("qkv")
    queries = shape.heads * shape.head_size
    rank, kv_rank = sizes.optional("q_lora_rank"), sizes.need("kv_lora_rank")
    rope = sizes.need("qk_rope_head_dim")
    if rank is None:
        yield from linear(q, shape.hidden, queries, bias=False, count=count, reads="normed")
    else:
        yield from linear(q_a, shape.hidden, rank, bias=bias, count=count, reads="normed")
        yield from norm(row.norm, rank, count)
        yield from linear(q_b, rank, queries, bias=False, count=count, reads="query")
    yield from linear(kv_a, shape.hidden, kv_rank + rope, bias=bias, count=count, reads="normed")
    yield from norm(row.norm, kv_rank, count)
    keys_and_values = shape.heads * (shape.head_size - rope + shape.value_size)
    yield from linear(kv_b, kv_rank, keys_and_values, bias=False, count=count, reads="latent")
    wide = shape.heads * shape.value_size
    yield from linear(o, wide, shape.hidden, bias=sizes.bias("o"), count=count, reads="attended")


def _mlp(row: DecoderRow, hidden: int, width: int, *, bias: bool, count: int) -> Iterator[Tensor]:
    *ups, down = row.modules[{"gated": -3, "gated-fused": -2, "plain": -2}[row.mlp] :]
    # With a single norm, attention and MLP both read its output.
    reads = "normed again" if row.norms > 1 else "normed"
    for up in ups:
        wide = 2 * width if row.mlp == "gated-fused" else width
        yield from linear(up, hidden, wide, bias=bias, count=count, reads=reads)
    yield from linear(down, width, hidden, bias=bias, count=count, reads="inner")


def _sparse_layers(sizes: Sizes, experts: ExpertsRow, layers: int) -> int:
    """Return the number of layers that have experts instead of one MLP."""
    config = sizes.config
    dense_first = sizes.whole(experts.dense_first, least=0) if _is_set(config, experts.dense_first) else 0
    every = sizes.whole(experts.step) if _is_set(config, experts.step) else 1
    listed = config[experts.dense_layers] if _is_set(config, experts.dense_layers) else ()
    if not listed:
        listed = ()
    if not isinstance(listed, list | tuple) or not all(isinstance(each, int) for each in listed):
        raise InputError(
            f"{sizes.where}: {experts.dense_layers}", f"expected a list of layers, found {quoted(listed)}"
        )
    dense = {each for each in listed if 0 <= each < layers} | set(range(min(dense_first, layers)))
    return sum((index + 1) % every == 0 and index not in dense for index in range(layers))


def _is_set(config: Mapping[str, Any], key: str) -> bool:
    return bool(key) and config.get(key) is not None


def _mixture(sizes: Sizes, row: DecoderRow, experts: ExpertsRow, hidden: int, count: int) -> Iterator[Tensor]:
    number, width = sizes.need(experts.count), sizes.need(experts.width)
    yield Tensor("router", "other", number, hidden, count)
    yield Tensor("gate_up", "experts", number * 2 * width, hidden, count)
    yield Tensor("down", "experts", number * hidden, width, count)
    shared = sizes.optional(experts.shared) if experts.shared else None
    if shared:
        yield from _mlp(row, hidden, shared * width, bias=False, count=count)
    if experts.shared_width:
        yield from _mlp(row, hidden, sizes.need(experts.shared_width), bias=False, count=count)
        yield Tensor("shared_expert_gate", "linear", 1, hidden, count)


# --- models without a row ---------------------------------------------------------------------------

DESCRIBED = "described"
"""The name of a model that was described by numbers alone."""

_NUMBERS = ("params", "layers", "hidden", "heads", "kv_heads", "mlp", "vocab")

_TOLERANCE = 0.1  # share by which the stated and the computed number of parameters may differ

_LLAMA: TableRow = {
    "model_types": [DESCRIBED],
    "attention": "split",
    "mlp": "gated",
    "modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "norms": 2,
    "tied": False,
    "lora": ["q_proj", "v_proj"],
}


def described(text: str) -> ModelShape:
    """Return a model given by numbers: `params=7.6e9,layers=28,hidden=3584,heads=28,mlp=18944,vocab=152064`.

    `kv_heads` may be given too. With `params` alone, activations cannot be counted. With the other numbers,
    the model is assumed to be a gated decoder such as Llama, with the same module names.

    Raises:
        InputError: a number is missing, unknown or not plausible.
    """
    numbers = _read_numbers(text)
    total = numbers["params"]
    if not all(numbers.get(name) for name in ("layers", "hidden", "heads", "mlp", "vocab")):
        if len(numbers) > 1:
            raise InputError("--model", "params= takes layers, hidden, heads, mlp and vocab together")
        return ModelShape(DESCRIBED, (Tensor("weights", "linear", total, 1),), None)
    config = {
        "model_type": DESCRIBED,
        "hidden_size": numbers["hidden"],
        "num_hidden_layers": numbers["layers"],
        "num_attention_heads": numbers["heads"],
        "num_key_value_heads": numbers.get("kv_heads", numbers["heads"]),
        "intermediate_size": numbers["mlp"],
        "vocab_size": numbers["vocab"],
    }
    tied = model({**config, "tie_word_embeddings": True}, {"decoder": [_LLAMA], "tower": []}, "--model")
    untied = model(config, {"decoder": [_LLAMA], "tower": []}, "--model")
    assert tied is not None  # noqa: S101 - the row describes it
    assert untied is not None  # noqa: S101
    found = min(tied, untied, key=lambda each: abs(each.parameters - total))
    if abs(total - found.parameters) > total * _TOLERANCE:
        raise InputError(
            "--model", f"a decoder of these sizes has {found.parameters:.3g} parameters, not {total:.3g}"
        )
    return found._replace(notes=(f"treated as a gated decoder of {found.parameters:,} parameters",))


def _read_numbers(text: str) -> dict[str, int]:
    numbers: dict[str, int] = {}
    for each in text.split(","):
        name, _, value = each.partition("=")
        where = f"--model {each[:LONGEST_QUOTE]}"
        if name not in _NUMBERS:
            raise InputError(where, f"expected NAME=NUMBER with a name of {', '.join(_NUMBERS)}")
        numbers[name] = _read_number(value, where, MOST_PARAMETERS if name == "params" else LARGEST)
    return numbers


def _read_number(text: str, where: str, most: int) -> int:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 1 <= value <= most or value != int(value):
        raise InputError(where, f"expected a whole number from 1 to {most:.0e}, such as 7.6e9")
    return int(value)


def listed(kind: str, tensors: Sequence[tuple[str, tuple[int, ...]]]) -> ModelShape:
    """Return a model from the names and shapes of its stored tensors; its decoder stays unknown.

    A matrix counts as a linear module, named after its module (`q_proj` of
    `model.layers.0.self_attn.q_proj.weight`), unless that name contains embed, norm or head.
    """
    found = tuple(_stored_tensor(name, shape) for name, shape in tensors)
    note = f"model_type {kind[:LONGEST_QUOTE]} is not described: weights counted from their files"
    return ModelShape(kind, found, None, notes=(note,))


_KIND_BY_NAME = {"embed": "embedding", "head": "head", "norm": "norm"}  # the last that matches counts


def _stored_tensor(name: str, shape: tuple[int, ...]) -> Tensor:
    parts = name.split(".")
    module = parts[-2] if len(parts) > 1 else name
    rows, columns = (shape[0], prod(shape[1:])) if shape else (1, 1)
    is_matrix = len(shape) == 2 and parts[-1] == "weight"  # noqa: PLR2004
    kind = "linear" if is_matrix else "other"
    for mark, marked_kind in _KIND_BY_NAME.items():
        if mark in module:
            kind = marked_kind
    where = "layer" if any(part.isdecimal() for part in parts) else "outside"
    return Tensor(module, kind, rows, columns, 1, where)
