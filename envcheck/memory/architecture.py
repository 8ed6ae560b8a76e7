"""A model's weights from its config.json, by the rows of compat/tables/architectures.toml; pure.

Counts are exact: they are compared with what transformers builds (tests/unit/memory/test_architecture.py).
What no row describes is refused or left to the headers of safetensors files, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from envcheck.core.errors import InputError

Row = Mapping[str, Any]

LARGEST = 10**9
"""The largest size believed of one key of a config.json: a thousand times any vocabulary there is."""

MOST_PARAMETERS = 10**14
"""The largest count believed: a hundred times any model there is."""


class Tensor(NamedTuple):
    """`copies` equal weights of a model: each of `rows` times `columns` elements (1 column: a vector).

    `module` is the module's own name, as PEFT's target modules are matched. `kind` is linear, bias,
    norm, embedding, head, experts or other; `where` is layer, outside or tower. `reads` names the tensor
    that a linear module of a layer reads: "normed" (by the layer's first norm), "attended", "normed again",
    "inner" (the MLP's), "query", "latent".
    """

    module: str
    kind: str
    rows: int
    columns: int
    copies: int = 1
    where: str = "layer"
    reads: str = ""

    @property
    def numel(self) -> int:
        """Elements of one of them."""
        return self.rows * self.columns


class Decoder(NamedTuple):
    """The widths that activations are counted by; `active` and `shared` are experts a token passes."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    value_size: int
    intermediate: int  # of a dense MLP, or of all that a token passes
    vocab: int
    gated: bool = True
    activation: str = "silu"
    norms: int = 2
    rms: bool = True
    float_norm: bool = False  # RMSNorm that multiplies its weight in fp32, as Gemma's
    qk_norm: bool = False
    capped: bool = False  # tanh over scores and logits, as Gemma 2's
    experts: int = 0
    active: int = 0


class Model(NamedTuple):
    """What is known of a model: its weights, its decoder's widths, its dtype (bytes a stored element)."""

    name: str
    tensors: tuple[Tensor, ...]
    decoder: Decoder | None
    dtype: str = ""  # fp32, bf16, fp16; empty where nothing says
    lora: tuple[str, ...] = ()  # PEFT's default target modules; none where it has no mapping
    quantised: str = ""  # how the stored weights are quantised already: nf4, int8, gptq, …
    stored: int = 0  # bytes of the stored weights, of safetensors headers; 0 where there are none
    notes: tuple[str, ...] = ()

    @property
    def parameters(self) -> int:
        """Elements of all weights."""
        return sum(tensor.numel * tensor.copies for tensor in self.tensors)


def model(config: Mapping[str, Any], tables: Mapping[str, Sequence[Row]], where: str) -> Model | None:
    """The model of a config.json, or None if no row describes its model_type.

    Raises:
        InputError: it is none, or a size in it is missing or absurd.
    """
    kind = config.get("model_type")
    if not isinstance(kind, str) or not kind:
        raise InputError(where, "no model_type: not the config.json of a transformers model")
    tower = next((row for row in tables["tower"] if kind in row["model_types"]), None)
    text, text_kind = _text(config, tower, where) if tower else (config, kind)
    if "text_config" in config and tower is None:
        return None
    row = next((row for row in tables["decoder"] if _describes(row, text_kind, text)), None)
    if row is None:
        return None
    sizes = _Sizes(text, row, where)
    decoder = _decoder(sizes, row)
    tied = _flag({**text, **_only(config, "tie_word_embeddings")}, "tie_word_embeddings", row["tied"])
    tensors = [*_outside(sizes, row, tied=tied), *_layers(sizes, row)]
    if tower is not None:
        tensors += _tower(config.get("vision_config", {}), tower, decoder.hidden, where)
    found = Model(
        kind, tuple(tensor for tensor in tensors if tensor.copies), decoder, lora=tuple(row.get("lora", ()))
    )
    if found.parameters > MOST_PARAMETERS:
        raise InputError(where, f"{found.parameters:.1e} parameters are not believed")
    return found


def _text(config: Mapping[str, Any], tower: Row, where: str) -> tuple[Mapping[str, Any], str]:
    inner = config.get("text_config")
    if inner is None:  # the tower's sizes lie beside the decoder's own
        return config, tower["text_type"]
    if not isinstance(inner, Mapping):
        raise InputError(f"{where}: text_config", f"expected an object, found {inner!r}")
    said = inner.get("model_type", tower["text_type"])
    inner = {**tower.get("text_preset", {}), **inner}
    return inner, tower["text_type"] if str(said).startswith(tower["model_types"][0]) else str(said)


def _only(config: Mapping[str, Any], key: str) -> dict[str, Any]:
    return {key: config[key]} if key in config else {}


def _describes(row: Row, kind: str, config: Mapping[str, Any]) -> bool:
    flags = row.get("flags", {})
    return kind in row["model_types"] and all(
        _flag(config, key, flags.get(key, False)) == wanted for key, wanted in row.get("where", {}).items()
    )


def _flag(config: Mapping[str, Any], key: str, default: bool) -> bool:
    value = config.get(key, default)
    return value if isinstance(value, bool) else default


# --- sizes ------------------------------------------------------------------------------------------


class _Sizes:
    """Sizes of a configuration by their usual names, wherever a row says they are."""

    def __init__(self, config: Mapping[str, Any], row: Row, where: str) -> None:
        self.config, self.row, self.where = config, row, where

    def optional(self, name: str) -> int | None:
        """A size, or None if the configuration leaves it out or null and the row presets none."""
        if name in self.row.get("fixed", {}):
            return int(self.row["fixed"][name])
        keys = self.row.get("keys", {}).get(name, name)
        for key in (keys,) if isinstance(keys, str) else keys:
            if self.config.get(key) is not None:
                return self.whole(key)
        preset = self.row.get("preset", {}).get(name)
        return None if preset is None else int(preset)

    def need(self, name: str) -> int:
        """A size that must be there.

        Raises:
            InputError: it is not, or is no size.
        """
        found = self.optional(name)
        if found is None:
            keys = self.row.get("keys", {}).get(name, name)
            raise InputError(self.where, f"no {keys if isinstance(keys, str) else keys[0]}")
        return found

    def whole(self, key: str, least: int = 1) -> int:
        """The whole number under a key of the configuration."""
        value = self.config[key]
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= LARGEST:
            raise InputError(
                f"{self.where}: {key}",
                f"expected a whole number from {least} to {LARGEST}, found {_short(value)}",
            )
        return value

    def bias(self, which: str) -> bool:
        """Whether the modules `which` have a bias."""
        said = self.row.get("bias", {}).get(which, False)
        if isinstance(said, bool):
            return said
        return _flag(self.config, said, self.row.get("flags", {}).get(said, False))


_LONGEST_QUOTE = 40


def _short(value: Any) -> str:
    text = repr(value) if not isinstance(value, int) or abs(value) <= LARGEST**2 else "a larger one"
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…"


def _decoder(sizes: _Sizes, row: Row) -> Decoder:
    hidden, heads = sizes.need("hidden_size"), sizes.need("num_attention_heads")
    head_size = sizes.optional("head_dim")
    if head_size is None or row["attention"] == "fused":
        if hidden % heads and row["attention"] != "latent":
            raise InputError(
                sizes.where, f"hidden_size {hidden} is not a multiple of num_attention_heads {heads}"
            )
        head_size = hidden // heads
    value_size = head_size
    if row["attention"] == "latent":
        head_size = sizes.need("qk_nope_head_dim") + sizes.need("qk_rope_head_dim")
        value_size = sizes.need("v_head_dim")
    mixture = row.get("experts")
    count = sizes.need(mixture["count"]) if mixture else 0
    if mixture:
        width = sizes.need(mixture["width"]) * sizes.need(mixture["active"])
        if "shared" in mixture:
            width += sizes.need(mixture["width"]) * (sizes.optional(mixture["shared"]) or 0)
        if "shared_width" in mixture:
            width += sizes.need(mixture["shared_width"])
    else:
        width = _intermediate(sizes, row, hidden)
    return Decoder(
        hidden=hidden,
        layers=sizes.need("num_hidden_layers"),
        heads=heads,
        kv_heads=sizes.optional("num_key_value_heads") or heads,
        head_size=head_size,
        value_size=value_size,
        intermediate=width,
        vocab=sizes.need("vocab_size"),
        gated=row["mlp"] != "plain",
        activation=_activation(sizes.config, row),
        norms=row["norms"],
        rms=not row.get("norm_bias", False),
        float_norm=bool(row.get("float_norm")),
        qk_norm="qk_norm" in row,
        capped=bool(row.get("capped") and sizes.config.get(row["capped"], True)),
        experts=count,
        active=sizes.need(mixture["active"]) if mixture else 0,
    )


def _activation(config: Mapping[str, Any], row: Row) -> str:
    keys = ("hidden_activation", "hidden_act", "activation_function", "activation")
    said = next((config[key] for key in keys if isinstance(config.get(key), str)), "")
    return said or str(row.get("activation", "silu"))


def _intermediate(sizes: _Sizes, row: Row, hidden: int) -> int:
    found = sizes.optional("intermediate_size")
    if found is None and "wide" in row:
        return int(row["wide"]) * hidden
    return sizes.need("intermediate_size")


# --- weights ----------------------------------------------------------------------------------------


def _linear(
    module: str, inputs: int, outputs: int, *, bias: bool, count: int, where: str = "layer", reads: str = ""
) -> Iterator[Tensor]:
    yield Tensor(module, "linear", outputs, inputs, count, where, reads)
    if bias:
        yield Tensor(module, "bias", outputs, 1, count, where)


def _norm(row: Row, width: int, count: int, where: str = "layer") -> Iterator[Tensor]:
    if row.get("norm_weight", True):
        yield Tensor("norm", "norm", width, 1, count * (2 if row.get("norm_bias") else 1), where)


def _outside(sizes: _Sizes, row: Row, *, tied: bool) -> Iterator[Tensor]:
    hidden, vocab = sizes.need("hidden_size"), sizes.need("vocab_size")
    yield Tensor("embed_tokens", "embedding", vocab, hidden, 1, "outside")
    if "positions" in row:
        longest = sizes.need("max_position_embeddings") + row["positions"]
        yield Tensor("embed_positions", "embedding", longest, hidden, 1, "outside")
    if row.get("embedding_norm"):
        yield from _norm(row, hidden, 1, "outside")
    yield from _norm(row, hidden, 1, "outside")
    if not tied:
        yield Tensor("lm_head", "head", vocab, hidden, 1, "outside")
    if sizes.bias("head"):
        yield Tensor("lm_head", "bias", vocab, 1, 1, "outside")


def _layers(sizes: _Sizes, row: Row) -> Iterator[Tensor]:
    shape = _decoder(sizes, row)
    yield from _norm(row, shape.hidden, row["norms"] * shape.layers)
    attention = {"split": _split, "fused": _fused, "latent": _latent}[row["attention"]]
    yield from attention(sizes, row, shape)
    qk_norm = row.get("qk_norm")
    if qk_norm == "head":
        yield from _norm(row, shape.head_size, 2 * shape.layers)
    elif qk_norm == "full":
        yield from _norm(row, shape.heads * shape.head_size, shape.layers)
        yield from _norm(row, shape.kv_heads * shape.head_size, shape.layers)
    sparse = _sparse_layers(sizes, row, shape.layers)
    if sparse:
        yield from _mixture(sizes, row, shape.hidden, sparse)
    if sparse < shape.layers:
        dense = _intermediate(sizes, row, shape.hidden)
        yield from _mlp(row, shape.hidden, dense, bias=sizes.bias("mlp"), count=shape.layers - sparse)


def _split(sizes: _Sizes, row: Row, shape: Decoder) -> Iterator[Tensor]:
    q, k, v, o = row["modules"][:4]
    count, wide, narrow = shape.layers, shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    for name, width in ((q, wide), (k, narrow), (v, narrow)):
        yield from _linear(name, shape.hidden, width, bias=sizes.bias("qkv"), count=count, reads="normed")
    yield from _linear(o, wide, shape.hidden, bias=sizes.bias("o"), count=count, reads="attended")


def _fused(sizes: _Sizes, row: Row, shape: Decoder) -> Iterator[Tensor]:
    qkv, o = row["modules"][:2]
    count, wide = shape.layers, shape.heads * shape.head_size
    width = (shape.heads + 2 * shape.kv_heads) * shape.head_size
    yield from _linear(qkv, shape.hidden, width, bias=sizes.bias("qkv"), count=count, reads="normed")
    yield from _linear(o, wide, shape.hidden, bias=sizes.bias("o"), count=count, reads="attended")


def _latent(sizes: _Sizes, row: Row, shape: Decoder) -> Iterator[Tensor]:
    q, q_a, q_b, kv_a, kv_b, o = row["modules"][:6]
    count, bias = shape.layers, sizes.bias("qkv")
    queries = shape.heads * shape.head_size
    rank, kv_rank, rope = (
        sizes.optional("q_lora_rank"),
        sizes.need("kv_lora_rank"),
        sizes.need("qk_rope_head_dim"),
    )
    if rank is None:
        yield from _linear(q, shape.hidden, queries, bias=False, count=count, reads="normed")
    else:
        yield from _linear(q_a, shape.hidden, rank, bias=bias, count=count, reads="normed")
        yield from _norm(row, rank, count)
        yield from _linear(q_b, rank, queries, bias=False, count=count, reads="query")
    yield from _linear(kv_a, shape.hidden, kv_rank + rope, bias=bias, count=count, reads="normed")
    yield from _norm(row, kv_rank, count)
    keys_and_values = shape.heads * (shape.head_size - rope + shape.value_size)
    yield from _linear(kv_b, kv_rank, keys_and_values, bias=False, count=count, reads="latent")
    wide = shape.heads * shape.value_size
    yield from _linear(o, wide, shape.hidden, bias=sizes.bias("o"), count=count, reads="attended")


def _mlp(row: Row, hidden: int, width: int, *, bias: bool, count: int) -> Iterator[Tensor]:
    *ups, down = row["modules"][{"gated": -3, "gated-fused": -2, "plain": -2}[row["mlp"]] :]
    reads = "normed again" if row["norms"] > 1 else "normed"  # one norm: attention and MLP side by side
    for up in ups:
        wide = 2 * width if row["mlp"] == "gated-fused" else width
        yield from _linear(up, hidden, wide, bias=bias, count=count, reads=reads)
    yield from _linear(down, width, hidden, bias=bias, count=count, reads="inner")


def _sparse_layers(sizes: _Sizes, row: Row, layers: int) -> int:
    """How many layers have experts in place of one MLP."""
    mixture = row.get("experts")
    if not mixture:
        return 0
    first, step = mixture.get("dense_first"), mixture.get("step")
    dense_first = sizes.whole(first, least=0) if sizes.config.get(first) is not None else 0
    every = sizes.whole(step) if sizes.config.get(step) is not None else 1
    listed = sizes.config.get(mixture.get("dense_layers")) or ()
    if not isinstance(listed, list | tuple) or not all(isinstance(each, int) for each in listed):
        raise InputError(
            f"{sizes.where}: {mixture['dense_layers']}", f"expected a list of layers, found {_short(listed)}"
        )
    without = {each for each in listed if 0 <= each < layers} | set(range(min(dense_first, layers)))
    return sum((index + 1) % every == 0 and index not in without for index in range(layers))


def _mixture(sizes: _Sizes, row: Row, hidden: int, count: int) -> Iterator[Tensor]:
    mixture = row["experts"]
    experts, width = sizes.need(mixture["count"]), sizes.need(mixture["width"])
    yield Tensor("router", "other", experts, hidden, count)
    yield Tensor("gate_up", "experts", experts * 2 * width, hidden, count)
    yield Tensor("down", "experts", experts * hidden, width, count)
    shared = sizes.optional(mixture["shared"]) if "shared" in mixture else None
    if shared:
        yield from _mlp(row, hidden, shared * width, bias=False, count=count)
    if "shared_width" in mixture:
        own = sizes.need(mixture["shared_width"])
        yield from _mlp(row, hidden, own, bias=False, count=count)
        yield Tensor("shared_expert_gate", "linear", 1, hidden, count)


# --- vision towers ----------------------------------------------------------------------------------


def _tower(config: Any, row: Row, hidden: int, where: str) -> Iterable[Tensor]:
    if not isinstance(config, Mapping):
        raise InputError(f"{where}: vision_config", f"expected an object, found {_short(config)}")
    sizes = _Sizes(config, row, f"{where}: vision_config")
    width, depth = sizes.need("width"), sizes.need("depth")
    mlp = sizes.optional("mlp") or width * sizes.need("wide")
    norm = {"norm_bias": row["norms"] == "layer"}
    patch = sizes.need("channels") * sizes.need("patch") ** 2 * (sizes.optional("temporal") or 1)
    yield from _linear("patch", patch, width, bias=bool(row.get("patch_bias")), count=1, where="tower")
    if row.get("positions"):
        patches = (sizes.need("image") // sizes.need("patch")) ** 2
        more = 1 if row["positions"] == "class" else 0
        yield Tensor("positions", "embedding", patches + more, width, 1, "tower")
        yield Tensor("class", "other", width, 1, more, "tower")
    around = sum(bool(row.get(name)) for name in ("pre_norm", "post_norm"))
    yield from _norm(norm, width, 2 * depth + around, "tower")
    yield from _block(row["mlp"], width, mlp, depth)
    if row.get("pooler") and _flag(config, row["pooler"], True):
        yield Tensor("probe", "other", width, 1, 1, "tower")
        yield from _norm(norm, width, 1, "tower")
        yield from _block("plain", width, mlp, 1)
    yield from _projector(row["projector"], sizes, width, hidden, norm)


def _block(kind: str, width: int, mlp: int, count: int) -> Iterator[Tensor]:
    yield from _linear("qkv", width, 3 * width, bias=True, count=count, where="tower")
    yield from _linear("proj", width, width, bias=True, count=count, where="tower")
    for _ in range(2 if kind == "gated" else 1):
        yield from _linear("up", width, mlp, bias=True, count=count, where="tower")
    yield from _linear("down", mlp, width, bias=True, count=count, where="tower")


def _projector(kind: str, sizes: _Sizes, width: int, hidden: int, norm: Row) -> Iterator[Tensor]:
    if kind == "merger":
        merged, out = width * sizes.need("merge") ** 2, sizes.need("out")
        yield from _norm(norm, width, 1, "tower")
        yield from _linear("merge", merged, merged, bias=True, count=1, where="tower")
        yield from _linear("merge", merged, out, bias=True, count=1, where="tower")
    elif kind == "two-layers":
        yield from _linear("linear_1", width, hidden, bias=True, count=1, where="tower")
        yield from _linear("linear_2", hidden, hidden, bias=True, count=1, where="tower")
    else:
        yield Tensor("projection", "other", width, hidden, 1, "tower")
        yield from _norm({}, width, 1, "tower")


# --- without a row -----------------------------------------------------------------------------------

DESCRIBED = "described"
"""The name of a model that was described by numbers alone."""

_NUMBERS = ("params", "layers", "hidden", "heads", "kv_heads", "mlp", "vocab")


def described(text: str) -> Model:
    """The model of `params=7.6e9,layers=28,hidden=3584,heads=28,kv_heads=4,mlp=18944,vocab=152064`.

    With `params` alone its activations cannot be counted; with the rest it is taken for a gated decoder such
    as Llama, and so are the names of its modules.

    Raises:
        InputError: a number is missing, unknown or absurd.
    """
    numbers: dict[str, int] = {}
    for each in text.split(","):
        name, _, value = each.partition("=")
        where = f"--model {each[:_LONGEST_QUOTE]}"
        if name not in _NUMBERS:
            raise InputError(where, f"expected NAME=NUMBER with a name of {', '.join(_NUMBERS)}")
        numbers[name] = _number(value, where, MOST_PARAMETERS if name == "params" else LARGEST)
    total = numbers["params"]
    shapes = [numbers.get(name) for name in ("layers", "hidden", "heads", "mlp", "vocab")]
    if not all(shapes):
        if len(numbers) > 1:
            raise InputError("--model", "params= takes layers, hidden, heads, mlp and vocab together")
        return Model(DESCRIBED, (Tensor("weights", "linear", total, 1),), None)
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
    rest = total - found.parameters
    if abs(rest) > total * _NEAR:
        raise InputError(
            "--model", f"a decoder of these sizes has {found.parameters:.3g} parameters, not {total:.3g}"
        )
    return found._replace(notes=(f"taken for a gated decoder of {found.parameters:,} parameters",))


_NEAR = 0.1

_LLAMA: Row = {
    "model_types": [DESCRIBED],
    "attention": "split",
    "mlp": "gated",
    "modules": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
    "norms": 2,
    "tied": False,
    "lora": ["q_proj", "v_proj"],
}


def _number(text: str, where: str, most: int) -> int:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 1 <= value <= most or value != int(value):
        raise InputError(where, f"expected a whole number from 1 to {most:.0e}, such as 7.6e9")
    return int(value)


def listed(kind: str, tensors: Sequence[tuple[str, tuple[int, ...]]]) -> Model:
    """A model by the names and shapes of its stored tensors; its widths stay unknown.

    A matrix is a linear module by its own name (`q_proj` of `model.layers.0.self_attn.q_proj.weight`) unless
    the name says embedding, norm or head.
    """
    found = []
    for name, shape in tensors:
        parts = name.split(".")
        module = parts[-2] if len(parts) > 1 else name
        rows, columns = (shape[0], prod(shape[1:])) if shape else (1, 1)
        matrix = len(shape) == 2 and parts[-1] == "weight"  # noqa: PLR2004
        word = "linear" if matrix else "other"
        for mark in ("embed", "head", "norm"):
            if mark in module:
                word = {"embed": "embedding"}.get(mark, mark)
        where = "layer" if any(part.isdecimal() for part in parts) else "outside"
        found.append(Tensor(module, word, rows, columns, 1, where))
    note = f"model_type {kind[:_LONGEST_QUOTE]} is not described: weights counted from their files"
    return Model(kind, tuple(found), None, notes=(note,))
