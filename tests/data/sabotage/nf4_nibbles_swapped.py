"""A bitsandbytes that packs two values of four bits into a byte the wrong way round."""

from typing import Any

from after_import import after_import


def change(functional: Any) -> None:
    right = functional.quantize_4bit

    def quantize_4bit(*args: Any, **kwargs: Any) -> Any:
        codes, state = right(*args, **kwargs)
        return codes >> 4 | codes << 4, state

    functional.quantize_4bit = quantize_4bit


after_import("bitsandbytes.functional", change)
