"""A torch that was not built for this GPU: the first kernel does not launch."""

from typing import Any

from after_import import after_import


def change(torch: Any) -> None:
    def matmul(*_: Any) -> Any:
        raise RuntimeError(
            "CUDA error: no kernel image is available for execution on the device\nCUDA kernel …"
        )

    torch.Tensor.__matmul__ = matmul


after_import("torch", change)
