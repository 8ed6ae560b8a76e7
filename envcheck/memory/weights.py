"""A model's weights in a training, including adapters: how many, how large, and which of them train."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.core.records import NamedTuple
from envcheck.memory.architecture import ModelShape
from envcheck.memory.tensors import Tensor
from envcheck.memory.training import ALL_LINEAR, DEEPSPEED, FLOAT, WIDTH, Training

DEPENDS_ON = (
    "precision", "stored", "adapter", "rank", "targets", "saved", "dora", "fp32_adapters", "quantised",
)  # fmt: skip
"""The fields of `Training` on which the weights depend, in addition to whether DeepSpeed is used."""


class Weight(NamedTuple):
    """Equal weights; `numel` is the elements and `size` the bytes of one of them."""

    numel: int
    copies: int
    size: float
    trains: bool
    where: str
    kind: str
    rows: int = 0
    columns: int = 0

    @property
    def all(self) -> float:
        """Bytes of all copies."""
        return self.size * self.copies


class Weights:
    """All weights of a model in a training, and sums over them.

    `width` is the bytes of an element and `layers` the number of layers. `trainable` and `frozen` count
    elements. `dequantised` is the bytes of the largest quantised module in the training precision.
    """

    def __init__(self, model: ModelShape, training: Training) -> None:
        if training.parallel == DEEPSPEED:
            self.width = WIDTH[training.precision]
        else:
            self.width = WIDTH[training.stored or training.precision]
        self.list = list(_weights(model, training, self.width))
        self.layers = model.decoder.layers if model.decoder else 1
        self.trainable = sum(each.numel * each.copies for each in self.list if each.trains)
        self.frozen = sum(each.numel * each.copies for each in self.list if not each.trains)
        quantised = training.quantised != "none" and model.decoder is not None
        linear = [tensor.numel for tensor in model.tensors if _is_quantisable(tensor)]
        # The backward pass dequantises one linear module at a time (bitsandbytes/autograd).
        self.dequantised = WIDTH[training.precision] * max(linear, default=0) if quantised else 0

    def bytes(self, *, trains: bool, where: str = "") -> float:
        """Return the bytes of the weights that train or do not, in one place (`where`) or everywhere."""
        return sum(each.all for each in self.list if each.trains is trains and where in ("", each.where))

    def sharded(self, ranks: int, *, trains: bool) -> float:
        """Return the bytes of one rank's share if each weight is divided separately and rounded up."""
        return sum(
            each.all * -(-each.numel // ranks) / each.numel for each in self.list if each.trains is trains
        )

    @property
    def largest(self) -> int:
        """Elements of the largest weight that trains."""
        return max((each.numel for each in self.list if each.trains), default=0)


def _weights(model: ModelShape, training: Training, width: int) -> Iterator[Weight]:
    for tensor in model.tensors:
        size = _stored_bytes(tensor, training.quantised, width)
        yield _weight_of(tensor, size, trains=not training.adapter)
        if training.adapter and is_targeted(tensor, model, training):
            yield from _adapter_weights(tensor, training, width)
        if training.adapter and tensor.module in training.saved:
            # PEFT keeps the original and trains a copy (ModulesToSaveWrapper, peft/utils/other.py).
            yield _weight_of(tensor, tensor.numel * width, trains=True)


def _weight_of(tensor: Tensor, size: float, *, trains: bool) -> Weight:
    shape = (tensor.rows, tensor.columns)
    return Weight(tensor.numel, tensor.copies, size, trains, tensor.where, tensor.kind, *shape)


def _adapter_weights(tensor: Tensor, training: Training, width: int) -> Iterator[Weight]:
    """Yield LoRA's two matrices, and DoRA's vector of magnitudes, for a linear module."""
    element = FLOAT if training.fp32_adapters and training.parallel != DEEPSPEED else width
    shapes = [(training.rank, tensor.columns), (tensor.rows, training.rank)]
    if training.dora:
        shapes.append((tensor.rows, 1))
    for rows, columns in shapes:
        numel = rows * columns
        yield Weight(numel, tensor.copies, numel * element, True, tensor.where, "adapter", rows, columns)


def is_targeted(tensor: Tensor, model: ModelShape, training: Training) -> bool:
    """Return whether a tensor is the weight of a module that gets an adapter."""
    if tensor.kind != "linear" or tensor.where != "layer":
        return False
    targets = training.targets or model.lora
    return ALL_LINEAR in targets or tensor.module in targets


# --- stored sizes -----------------------------------------------------------------------------------

_BLOCK, _NESTED, _GROUP = 64, 256, 128  # elements that share one scale; see below


def _stored_bytes(tensor: Tensor, quantised: str, width: int) -> float:
    """Return the bytes of one weight as it is stored. Only linear modules of layers are quantised.

    bitsandbytes 4 bit: an 8-bit scale for each block of 64 elements, and a 32-bit scale for each 256 of those
    scales (bitsandbytes/functional.py, quantize_4bit with double quantisation). int8: an fp32 scale for each
    row. GPTQ and AWQ 4 bit: a 16-bit scale and a 4-bit zero point for each group of 128 elements. fp8: a
    scale for each block of 128 by 128. With bitsandbytes, prepare_model_for_kbit_training
    (peft/utils/other.py) casts all other weights to fp32.
    """
    numel = tensor.numel
    if quantised == "none":
        return numel * width
    if not _is_quantisable(tensor):
        return numel * (FLOAT if quantised in ("nf4", "fp4", "int8") else width)
    if quantised in ("nf4", "fp4"):
        return numel / 2 + numel / _BLOCK + 4 * numel / (_BLOCK * _NESTED)
    if quantised == "int8":
        return numel + 4 * tensor.rows
    if quantised == "fp8":
        return numel + 4 * numel / _GROUP**2
    return numel / 2 + 2.5 * numel / _GROUP


def _is_quantisable(tensor: Tensor) -> bool:
    return tensor.kind == "linear" and tensor.where == "layer"
