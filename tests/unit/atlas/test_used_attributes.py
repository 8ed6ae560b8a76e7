"""A name in a partner's module counts as used where a function surely runs: on import, or when users call."""

from __future__ import annotations

import pytest

from envcheck.atlas.entries import calls_of
from envcheck.atlas.missing_names import find_missing_names
from tests.unit.atlas.sources import missing, reader

TORCH = reader(
    "torch",
    {
        "2.4.1": {"torch/": "from . import nn", "torch.nn/": "class Linear: ..."},
        "2.6.0": {
            "torch/": "from . import nn, accelerator",
            "torch.nn/": "class Linear: ...\nclass RMSNorm: ...",
            "torch.accelerator/": "def is_available(): ...",
        },
    },
)
LACKS = {"torch.accelerator": ("2.4.1",)}


def on_import(function: str, call: str = "device = find()") -> dict[str, tuple[str, ...]]:
    return missing({"peft/": f"import torch\n{function}\n{call}\n"}, TORCH)


@pytest.mark.parametrize(
    "call",
    [
        "device = find()",
        "find()",
        "if True:\n    device = find()",
        "class Holder:\n    device = find()",
        "@register(find())\ndef other(): ...",
        "device = [find()]",
    ],
)
def test_a_function_that_is_called_on_import_is_followed(call: str) -> None:
    function = "def find():\n    return inner()\ndef inner():\n    return torch.accelerator.is_available()\n"
    assert on_import(function, call) == {"torch.accelerator.is_available": ("2.4.1",)}


def test_so_is_the_constructor_of_a_class_that_is_made_on_import() -> None:
    made = "class Finder:\n    def __init__(self):\n        self.where = torch.accelerator\n"
    assert on_import(made, "finder = Finder()") == LACKS


@pytest.mark.parametrize("decorator", ["@staticmethod", "@classmethod", "@staticmethod\n    @lru_cache"])
@pytest.mark.parametrize(
    "call", ["device = Finder.find()", "device = find()\n", "class Holder:\n    device = Finder.find()"]
)
def test_a_method_that_is_called_on_its_class_is_followed(decorator: str, call: str) -> None:
    finder = (
        f"class Finder:\n    {decorator}\n    def find():\n        return torch.accelerator.is_available()\n"
    )
    assert on_import(f"{finder}def find():\n    return Finder.find()", call) == {
        "torch.accelerator.is_available": ("2.4.1",)
    }


def test_such_a_method_may_belong_to_a_base_or_to_another_module() -> None:
    base = "import torch\nclass Base:\n    @staticmethod\n    def find():\n        return torch.accelerator\n"
    modules = {
        "peft/": "from .finder import Finder\ndevice = Finder.find()\n",
        "peft.finder": "from .base import Base\nclass Finder(Base): ...\n",
        "peft.base": base,
    }
    assert missing(modules, TORCH) == LACKS


def test_a_method_of_an_object_is_not_followed_when_its_class_names_it() -> None:
    finder = "class Finder:\n    def find(self):\n        return torch.accelerator\n"
    assert on_import(finder, "found = Finder.find") == {}
    assert on_import(finder, "Finder.find(make())") == {}


def test_a_function_with_the_name_of_such_a_method_is_read_too() -> None:
    finder = "class Finder:\n    @staticmethod\n    def find():\n        return None\n"
    function = "def find():\n    return torch.accelerator\n"
    assert on_import(finder + function, "Finder.find()\nfind()") == LACKS
    assert on_import(finder + function, "Finder.find()") == {}


def test_and_an_import_in_such_a_function() -> None:
    function = "def find():\n    from torch.accelerator import is_available\n"
    assert on_import(function) == {"torch.accelerator.is_available": ("2.4.1",)}


@pytest.mark.parametrize(
    "body",
    [
        "if hasattr(torch, 'accelerator'):\n        return torch.accelerator\n",
        "return torch.accelerator if hasattr(torch, 'accelerator') else None\n",
        "try:\n        return torch.accelerator\n    except AttributeError:\n        return None\n",
        "if is_monday():\n        return torch.accelerator\n",
        "for each in devices():\n        torch.accelerator\n",
        "def later():\n        return torch.accelerator\n",
        "torch = make()\n    return torch.accelerator\n",
        "torch.accelerator = None\n",
        "return lambda: torch.accelerator\n",
    ],
)
def test_what_may_not_be_read_asks_for_nothing(body: str) -> None:
    assert on_import(f"def find():\n    {body}") == {}


def test_a_call_whose_failure_is_caught_asks_for_nothing() -> None:
    function = "def find():\n    return torch.accelerator\n"
    assert on_import(function, "try:\n    find()\nexcept AttributeError:\n    pass\n") == {}
    assert on_import(function, "def never():\n    find()\n") == {}
    assert on_import(function, "if TYPE_CHECKING:\n    find()\n") == {}


def test_the_path_ends_at_the_first_class() -> None:
    function = "def find():\n    return torch.nn.RMSNorm.invented\n"
    assert on_import(function) == {"torch.nn.RMSNorm": ("2.4.1",)}


def test_a_name_of_an_imported_module_is_found_under_its_local_name() -> None:
    function = "from torch import nn as layers\ndef find():\n    return layers.RMSNorm\n"
    assert on_import(function) == {"torch.nn.RMSNorm": ("2.4.1",)}


def test_an_import_that_may_not_run_asks_for_nothing() -> None:
    guarded = "try:\n    import torch\nexcept ImportError:\n    torch = None\ndef find():\n    return torch.accelerator\nfind()\n"
    assert missing({"peft/": guarded}, TORCH) == {}


def test_what_users_call_is_followed_too() -> None:
    assert "trl.SFTTrainer" in [each.path for each in calls_of("trl")]
    source = """
        import torch
        class SFTTrainer:
            def __init__(self):
                self.kind = torch.accelerator.is_available()
            def rarely(self):
                return torch.nn.RMSNorm
    """
    (gap,) = find_missing_names(reader("trl", {"1.0": {"trl/": source}}), TORCH)
    assert (gap.entry, gap.needs) == ("trl.SFTTrainer(...)", "torch.accelerator.is_available")
    assert gap.places == ("trl/__init__.py:5",)
