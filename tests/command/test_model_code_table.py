"""`tools/refresh_model_code.py` reads what the code of each model type does, from a store of releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command.test_tools import tool
from tests.support.model_store import store_release

AUTO = """\
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = OrderedDict([("plain", "PlainForCausalLM"), ("moe", "MoeForCausalLM"),
    ("even", "EvenForCausalLM"), ("merged", "MergedForCausalLM")])
MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES = OrderedDict([("seeing", "SeeingForConditionalGeneration")])
MODEL_MAPPING_NAMES = OrderedDict([("tower", "TowerModel"), ("plain", ("PlainModel", "PlainBase"))])
"""
CONFIGURATIONS = """\
CONFIG_MAPPING_NAMES = OrderedDict([("plain", "PlainConfig"), ("moe", "MoeConfig"), ("even", "EvenConfig"),
    ("merged", "MergedConfig"), ("seeing", "SeeingConfig"), ("tower", "TowerConfig")])
"""
LOOP = """\
    def forward(self, hidden_states, **kwargs):
        for index, expert in enumerate(self.experts):
            tokens = self.find(index)
            {call}
"""
FILES = {
    "plain/modeling_plain.py": (
        "class PlainModel(PreTrainedModel): ...\n"
        "class PlainForCausalLM(PreTrainedModel):\n    def forward(self, input_ids): ...\n"
    ),
    "moe/modeling_moe.py": (
        "from causal_conv1d import causal_conv1d_fn\n"
        "class MoeBlock(nn.Module):\n    def __init__(self):\n"
        '        self.register_buffer("e_score_correction_bias", torch.zeros(8))\n'
        + LOOP.format(call="if tokens.numel() > 0:\n                expert(tokens)")
        + "class MoeModel(nn.Module):\n    def __init__(self):\n        self.block = MoeBlock()\n"
        "class MoeForCausalLM(PreTrainedModel):\n    def __init__(self):\n        self.model = MoeModel()\n"
        "    def forward(self, input_ids, **loss_kwargs): ...\n"
    ),
    "even/modeling_even.py": (
        "class EvenForCausalLM(PreTrainedModel):\n    def __init__(self):\n"
        '        self.register_buffer("e_score_correction_bias", torch.zeros(8), persistent=False)\n'
        + LOOP.format(
            call="states = expert(tokens)\n            if self.dropout:\n                states *= 2"
        )
    ),
    "merged/modeling_merged.py": (
        "from ..moe.modeling_moe import MoeBlock\nfrom ..tower.modeling_tower import TowerModel\n"
        "class MergedForCausalLM(PreTrainedModel):\n"
        '    """Not the same as [`TowerModel`]."""\n'
        "    def __init__(self):\n        self.block = MoeBlock()\n"
    ),
    "seeing/configuration_seeing.py": 'self.vision_config = CONFIG_MAPPING["tower"]()\n',
    "seeing/modeling_seeing.py": (
        "class SeeingForConditionalGeneration(PreTrainedModel):\n"
        "    def __init__(self):\n        self.tower = AutoModel.from_config(config.vision_config)\n"
        "    def forward(self, pixels): ...\n"
    ),
    "tower/modeling_tower.py": (
        "class TowerModel(PreTrainedModel):\n    def __init__(self):\n        self.patches = nn.Conv3d(3, 8, 2)\n"
    ),
}


@pytest.fixture
def rows(tmp_path: Path) -> dict[str, str]:
    """Return the rows that the tool writes for four equal releases, by model type."""
    for version in ("4.46.3", "4.47.0", "4.51.0", "5.0.0"):
        store_release(tmp_path / "store", version, AUTO, CONFIGURATIONS, FILES)
    table = tmp_path / "model_code.toml"
    table.write_text("# A comment that stays.\n")
    arguments = ("refresh_model_code.py", "--store", str(tmp_path / "store"), "--table", str(table))
    ran = tool(*arguments, "--write")
    assert (ran.code, ran.err) == (0, "")
    assert tool(*arguments).out == ""
    lines = table.read_text().splitlines()
    assert lines[0] == "# A comment that stays."
    return {line.split('"')[1]: line.strip() for line in lines if line.strip().startswith("{")}


def test_a_loop_that_leaves_experts_out_is_told_from_one_that_calls_all(rows: dict[str, str]) -> None:
    assert 'skips_experts = [">=4.46.3,<5.0.0"]' in rows["moe"]
    assert "skips_experts" not in rows.get("even", "")


def test_classes_of_other_modules_are_followed_and_docstrings_are_not(rows: dict[str, str]) -> None:
    assert "skips_experts" in rows["merged"]
    assert "conv3d" not in rows["merged"]


def test_a_part_made_by_an_auto_class_is_followed_by_the_configuration(rows: dict[str, str]) -> None:
    assert 'conv3d = [">=4.46.3"]' in rows["seeing"]


def test_only_buffers_that_are_saved_count(rows: dict[str, str]) -> None:
    assert 'saves_router_bias = [">=4.51.0"]' in rows["moe"]
    assert "saves_router_bias" not in rows.get("even", "")


def test_further_arguments_count_by_their_name_in_446_only(rows: dict[str, str]) -> None:
    assert 'takes_loss_keywords = [">=4.46.3,<5.0.0"]' in rows["moe"]
    assert 'takes_loss_keywords = [">=4.47.0,<5.0.0"]' in rows["even"]
    assert 'lacks_loss_keywords = [">=4.46.3,<4.47.0"]' in rows["even"]
    assert 'lacks_loss_keywords = [">=4.46.3,<4.51.0"]' in rows["plain"]  # rules ask up to 4.49


def test_an_import_of_the_compiled_package_is_told(rows: dict[str, str]) -> None:
    assert 'causal_conv1d = [">=4.46.3"]' in rows["moe"]
    assert "causal_conv1d" in rows["merged"]  # it imports a class of that module
    assert "causal_conv1d" not in rows["even"]
