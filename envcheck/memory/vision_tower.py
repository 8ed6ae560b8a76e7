"""The weights of a vision encoder beside a decoder, and of the projector between them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envcheck.core.errors import InputError
from envcheck.memory.architecture_table import Sizes, TowerRow, flag, quoted
from envcheck.memory.tensors import NormKind, Tensor, linear, norm


def tower_tensors(config: Any, row: TowerRow, hidden: int, where: str) -> Iterator[Tensor]:
    """Yield the weights of a tower; `hidden` is the width of the decoder.

    Raises:
        InputError: `config` is not an object, or a size in it is missing or not plausible.
    """
    if not isinstance(config, Mapping):
        raise InputError(f"{where}: vision_config", f"expected an object, found {quoted(config)}")
    sizes = Sizes(config, row.size_keys, f"{where}: vision_config")
    width, depth = sizes.need("width"), sizes.need("depth")
    mlp = sizes.optional("mlp") or width * sizes.need("wide")
    patch = sizes.need("channels") * sizes.need("patch") ** 2 * (sizes.optional("temporal") or 1)
    yield from linear("patch", patch, width, bias=row.patch_bias, count=1, where="tower")
    if row.positions:
        patches = (sizes.need("image") // sizes.need("patch")) ** 2
        class_tokens = 1 if row.positions == "class" else 0
        yield Tensor("positions", "embedding", patches + class_tokens, width, 1, "tower")
        yield Tensor("class", "other", width, 1, class_tokens, "tower")
    yield from norm(row.norm, width, 2 * depth + row.outer_norms, "tower")
    yield from _block(row.mlp, width, mlp, depth)
    if row.pooler and flag(config, row.pooler, True):
        yield Tensor("probe", "other", width, 1, 1, "tower")
        yield from norm(row.norm, width, 1, "tower")
        yield from _block("plain", width, mlp, 1)
    yield from _projector(row, sizes, width, hidden)


def _block(mlp_kind: str, width: int, mlp: int, count: int) -> Iterator[Tensor]:
    yield from linear("qkv", width, 3 * width, bias=True, count=count, where="tower")
    yield from linear("proj", width, width, bias=True, count=count, where="tower")
    for _ in range(2 if mlp_kind == "gated" else 1):
        yield from linear("up", width, mlp, bias=True, count=count, where="tower")
    yield from linear("down", mlp, width, bias=True, count=count, where="tower")


def _projector(row: TowerRow, sizes: Sizes, width: int, hidden: int) -> Iterator[Tensor]:
    if row.projector == "merger":
        merged, out = width * sizes.need("merge") ** 2, sizes.need("out")
        yield from norm(row.norm, width, 1, "tower")
        yield from linear("merge", merged, merged, bias=True, count=1, where="tower")
        yield from linear("merge", merged, out, bias=True, count=1, where="tower")
    elif row.projector == "two-layers":
        yield from linear("linear_1", width, hidden, bias=True, count=1, where="tower")
        yield from linear("linear_2", hidden, hidden, bias=True, count=1, where="tower")
    else:
        yield Tensor("projection", "other", width, hidden, 1, "tower")
        yield from norm(NormKind(), width, 1, "tower")
