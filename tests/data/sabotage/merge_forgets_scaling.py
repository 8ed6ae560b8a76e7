"""PEFT merges B A instead of (alpha / rank) B A."""

from typing import Any

from after_import import after_import


def change(layer: Any) -> None:
    real = layer.Linear.get_delta_weight

    def get_delta_weight(self: Any, adapter: str) -> Any:
        return real(self, adapter) / self.scaling[adapter]

    layer.Linear.get_delta_weight = get_delta_weight


after_import("peft.tuners.lora.layer", change)
