"""A bitsandbytes whose eight bits come back as NaN."""

from typing import Any

from after_import import after_import


def change(functional: Any) -> None:
    right = functional.dequantize_blockwise
    functional.dequantize_blockwise = lambda *args, **kwargs: right(*args, **kwargs) * float("nan")


after_import("bitsandbytes.functional", change)
