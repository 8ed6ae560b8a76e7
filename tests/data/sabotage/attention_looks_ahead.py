"""A flash-attn that ignores `causal`."""

from typing import Any

from after_import import after_import


def change(flash_attn: Any) -> None:
    right = flash_attn.flash_attn_func
    flash_attn.flash_attn_func = lambda q, k, v, **_: right(q, k, v, causal=False)


after_import("flash_attn", change)
