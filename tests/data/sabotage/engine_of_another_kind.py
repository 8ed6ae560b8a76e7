"""`deepspeed.initialize` hands back an engine that is not DeepSpeed's own."""

from typing import Any

from after_import import after_import


def change(deepspeed: Any) -> None:
    def initialize(*_: Any, model: Any, optimizer: Any, **__: Any) -> Any:
        class Wrapped:
            module = model

        return Wrapped(), optimizer, None, None

    deepspeed.initialize = initialize


after_import("deepspeed", change)
