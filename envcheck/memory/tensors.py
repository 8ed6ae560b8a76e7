"""Tensors: a model's weights by module, shape and number, and the weights of linear modules and norms."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.core.records import NamedTuple


class Tensor(NamedTuple):
    """`copies` equal weights of a model, each of `rows` times `columns` elements (1 column: a vector).

    `module` is the last part of the module's name, by which PEFT matches target modules. `kind` is linear,
    bias, norm, embedding, head, experts or other; `where` is layer, outside or tower. `reads` names the input
    of a linear module of a layer: "normed" (output of the layer's first norm), "attended" (of attention),
    "normed again" (of the second norm), "inner" (inside the MLP), "query", "latent".
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
        """Number of elements of one of the equal weights."""
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
