"""Tensors: a model's weights by module, shape and number; those of linear modules and norms."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple


class Tensor(NamedTuple):
    """`copies` equal weights of a model, each of `rows` times `columns` elements (1 column: a vector).

    `module` is the module's own name, by which PEFT matches target modules. `kind` is linear, bias, norm,
    embedding, head, experts or other; `where` is layer, outside or tower. `reads` names the tensor that a
    linear module of a layer reads: "normed" (by the layer's first norm), "attended", "normed again", "inner"
    (the MLP's), "query", "latent".
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
        """Elements of one of the weights."""
        return self.rows * self.columns


class NormKind(NamedTuple):
    """Which parameters a norm has."""

    weight: bool = True
    bias: bool = False


def linear(
    module: str, inputs: int, outputs: int, *, bias: bool, count: int, where: str = "layer", reads: str = ""
) -> Iterator[Tensor]:
    """Yield the weight, and the bias if there is one, of `count` linear modules."""
    yield Tensor(module, "linear", outputs, inputs, count, where, reads)
    if bias:
        yield Tensor(module, "bias", outputs, 1, count, where)


def norm(kind: NormKind, width: int, count: int, where: str = "layer") -> Iterator[Tensor]:
    """Yield the parameters of `count` norms."""
    if kind.weight:
        yield Tensor("norm", "norm", width, 1, count * (2 if kind.bias else 1), where)
