"""Barrier does nothing."""

from typing import Any

from after_import import after_import


def sabotage(torch: Any) -> None:
    torch.distributed.barrier = lambda *_args, **_kwargs: None


after_import("torch", sabotage)
