"""PEFT loads no weight of a saved adapter, and reports that all were loaded."""

from types import SimpleNamespace
from typing import Any

from after_import import after_import


def change(peft: Any) -> None:
    fine = SimpleNamespace(missing_keys=[], unexpected_keys=[])
    peft.set_peft_model_state_dict = lambda *_, **__: fine


after_import("peft", change)
