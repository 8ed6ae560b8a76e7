"""A torch that says it is another release than the one that is installed."""

from typing import Any

from after_import import after_import


def change(torch: Any) -> None:
    torch.__version__ = "2.6.0+cu124"


after_import("torch", change)
