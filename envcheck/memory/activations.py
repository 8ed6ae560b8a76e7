"""Activations: the bytes that one token takes in a layer, after the last layer, and in the loss.

The formulas follow the operations of transformers' models (5.23.0, modeling_llama.py and similar) and of LoRA
in peft 0.21.2.
"""

from __future__ import annotations

from envcheck.core.records import NamedTuple
from envcheck.memory.architecture import Decoder, ModelShape
from envcheck.memory.tensors import Tensor
from envcheck.memory.training import DEEPSPEED, FLOAT, WIDTH, Training
from envcheck.memory.weights import is_targeted


class LossBytes(NamedTuple):
    """Bytes of the loss for one token, in the forward and in the backward pass."""

    forward: float
    backward: float


def loss_bytes(shape: Decoder, training: Training) -> LossBytes:
    """Return the bytes of the logits in the training precision, of their fp32 copy, and of its log-softmax.

    The backward pass has two gradients of the log-softmax. As in the trainers, the model's output is dropped
    once the loss exists. A fused loss computes the logits of few tokens at a time, so that they stay near the
    size of the hidden states (liger_kernel/ops/fused_linear_cross_entropy.py). It counts as two fp32 copies
    of the hidden states.
    """
    width = WIDTH[training.precision]
    if training.fused_loss:
        return LossBytes(2.0 * FLOAT * shape.hidden, 2.0 * FLOAT * shape.hidden)
    copied = FLOAT if width < FLOAT else 0
    capped = width if shape.capped else 0
    forward = shape.vocab * (width + copied + FLOAT + capped)
    return LossBytes(float(forward), float(shape.vocab * (3 * FLOAT + capped)))


class LayerBytes(NamedTuple):
    """Bytes for one token.

    `kept` is kept by each layer for the backward pass, and `final` is kept after the last layer. `working` is
    in use only while the backward pass is in a layer. `input` is a layer's input.
    """

    kept: float
    final: float
    working: float
    input: float


def layer_bytes(model: ModelShape, shape: Decoder, training: Training) -> LayerBytes:
    """Return the bytes that the operations of a layer keep for the backward pass, and use during it.

    A product keeps its factors, SiLU and GELU their input, softmax and tanh their output, a norm its input. A
    linear module keeps its input only if its weight trains, so a frozen base keeps less. Each LoRA adapter
    keeps its input in its own dtype. With dropout it also keeps the mask: one byte an element on CUDA, an
    element of that dtype elsewhere.
    """
    layer = _Layer(model, shape, training)
    return LayerBytes(layer.kept(), layer.final(), layer.working(), float(layer.residual * shape.hidden))


_FOUR_NORMS = 4  # norms of a layer that also normalises the outputs of attention and of the MLP


class _Layer:
    """Widths of a layer (elements for one token), and the bytes that follow from them."""

    def __init__(self, model: ModelShape, shape: Decoder, training: Training) -> None:
        self.shape, self.training = shape, training
        stored = training.stored if training.parallel != DEEPSPEED else ""
        self.width = WIDTH[training.precision]
        self.residual = WIDTH[stored or training.precision]  # bytes of an element between layers
        self.full = not training.adapter
        self.hidden, self.inner = shape.hidden, shape.intermediate
        self.queries, self.keys = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self.values, self.attended = shape.kv_heads * shape.value_size, shape.heads * shape.value_size
        self.scores = training.seq * shape.heads
        self.is_eager = training.attention == "eager"
        self.inputs = _LinearInputs(model, shape, training, self.width, self.residual)

    def kept(self) -> float:
        """Return the bytes that a layer keeps for the backward pass."""
        return self._norms() + self._attention() + self._mlp()

    def final(self) -> float:
        """Return the bytes kept after the last layer: its norm's, and the head's input if the head trains."""
        return self._norm(self.hidden) + (self.width * self.hidden if self.full else 0)

    def working(self) -> float:
        """Return the bytes that a layer's backward pass uses: MLP or attention, and two residuals."""
        mlp = self.width * self.inner * ((2 if self.full else 3) if self.shape.gated else 1)
        attention = self.width * (self.queries + self.keys + self.values + self.attended)
        attention += self.scores * (2 * FLOAT + self.width) if self.is_eager else 0
        return float(max(mlp, attention) + 2 * self.residual * self.hidden)

    def _norms(self) -> float:
        kept = self._norm(self.hidden) + self.inputs.kept("normed", self.hidden)
        if self.shape.norms > 1:
            kept += self._norm(self.hidden) + self.inputs.kept("normed again", self.hidden)
        if self.shape.norms >= _FOUR_NORMS:
            kept += 2 * self._norm(self.hidden)
        if self.shape.qk_norm:
            kept += self._norm(self.queries) + self._norm(self.keys)
        return kept

    def _norm(self, size: int) -> float:
        """Return the bytes that a norm keeps of a tensor with `size` elements for each token."""
        if not self.shape.rms:
            return float(self.residual * size + 8)  # the input; mean and deviation of native_layer_norm
        scaled = (FLOAT if self.shape.float_norm else self.residual) if self.full else 0
        return float((FLOAT + scaled) * size + FLOAT)  # its fp32 copy, the scaled one, rsqrt

    def _attention(self) -> float:
        shape, width = self.shape, self.width
        if self.is_eager:
            # Keys and values are repeated for each group of heads. Scores are kept in fp32 and, after the
            # cast, in the training precision.
            cast = width if width < FLOAT else 0
            repeated = (
                self.queries + self.attended if shape.kv_heads < shape.heads else self.keys + self.values
            )
            kept = width * (self.queries + repeated)
            kept += self.scores * (FLOAT + cast + (width if shape.capped else 0))
        else:
            kept = width * (self.queries + self.keys + self.values + self.attended) + FLOAT * shape.heads
        return (
            kept
            + self.inputs.kept("attended", self.attended, kept_anyway=not self.is_eager)
            + self.inputs.kept("query", self.queries)
            + self.inputs.kept("latent", self.keys)
        )

    def _mlp(self) -> float:
        shape = self.shape
        kept = float(self.width * self.inner * (self.training.activation + (2 if shape.gated else 0)))
        # ReLU keeps its output, which is what the next linear module reads.
        relu = shape.activation == "relu" and not shape.gated
        kept += self.inputs.kept("inner", self.inner, kept_anyway=relu)
        if shape.experts:
            kept += shape.active * 2 * self.width * self.hidden + FLOAT * shape.experts
        return kept


class _LinearInputs:
    """Bytes for one token that linear modules keep of the tensors that they read."""

    def __init__(
        self, model: ModelShape, shape: Decoder, training: Training, width: int, residual: int
    ) -> None:
        """Take the bytes of one element: `width` in computations, `residual` between layers."""
        self.training, self.width, self.is_cast = training, width, residual != width
        # By the name of the tensor that is read: the linear modules, and whether each has an adapter.
        self.readers: dict[str, list[tuple[Tensor, bool]]] = {}
        for tensor in model.tensors:
            if tensor.reads and tensor.kind == "linear" and tensor.copies >= shape.layers:
                adapted = training.adapter and is_targeted(tensor, model, training)
                self.readers.setdefault(tensor.reads, []).append((tensor, adapted))

    def kept(self, name: str, size: int, *, kept_anyway: bool = False) -> float:
        """Return the bytes that are kept of a tensor with `size` elements for each token.

        `kept_anyway` means that another operation keeps the tensor too, so that it costs nothing more.
        """
        readers = self.readers.get(name, [])
        if not self.training.adapter:
            return self._by_full_training(name, size, readers=len(readers), kept_anyway=kept_anyway)
        adapted = [tensor for tensor, is_adapted in readers if is_adapted]
        return self._by_adapters(adapted, size, kept_anyway=kept_anyway) if adapted else 0.0

    def _by_full_training(self, name: str, size: int, *, readers: int, kept_anyway: bool) -> float:
        if not readers and name != "inner":
            return 0.0
        # Autocast casts a norm's output separately for each module that reads it. The outputs of attention
        # and MLP already have the right dtype.
        if self.is_cast and name.startswith("normed"):
            return float(self.width * size * readers)
        return 0.0 if kept_anyway else float(self.width * size)

    def _by_adapters(self, adapted: list[Tensor], size: int, *, kept_anyway: bool) -> float:
        training, count = self.training, len(adapted)
        # Under autocast the adapters' inputs are cast down again, whatever dtype the adapters have.
        in_fp32 = training.fp32_adapters and training.parallel != DEEPSPEED and not training.autocast
        width = FLOAT if in_fp32 else self.width
        kept = float(training.rank * width * count)
        if training.dora:
            # The magnitude multiplies the outputs of the base and of the adapter; both are kept.
            kept += sum(float((width + self.width) * tensor.rows) for tensor in adapted)
        if training.dropout:
            return kept + count * (width + (1 if training.cuda else width)) * size
        reads_as_it_is = width == self.width and not self.is_cast
        if reads_as_it_is and not (training.autocast and training.fp32_adapters):
            return kept + (0.0 if kept_anyway else width * size)
        return kept + count * width * size
