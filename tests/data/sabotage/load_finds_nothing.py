"""DeepSpeed finds no checkpoint in the folder it is told to load from, and goes on without one."""

from typing import Any

from after_import import after_import


def change(engine: Any) -> None:
    engine.DeepSpeedEngine.load_checkpoint = lambda *_, **__: (None, {})


after_import("deepspeed.runtime.engine", change)
