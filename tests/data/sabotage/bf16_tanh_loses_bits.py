"""A bf16 tanh with five bits left of its eight."""

from typing import Any

from after_import import after_import


def change(torch: Any) -> None:
    right = torch.Tensor.tanh

    def tanh(x: Any) -> Any:
        return right(x) if x.dtype != torch.bfloat16 else (right(x) * 16).round() / 16

    torch.Tensor.tanh = tanh


after_import("torch", change)
