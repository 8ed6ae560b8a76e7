"""The weights counted from a config.json are those that transformers builds."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from envcheck.core.errors import InputError
from envcheck.memory import architecture
from tests.support.paths import ROOT

TABLES = tomllib.loads((ROOT / "compat/tables/architectures.toml").read_text())
MODELS = tomllib.loads((ROOT / "tests/data/models.toml").read_text())


@pytest.mark.parametrize("name", MODELS)
def test_the_count_is_exact(name: str) -> None:
    found = architecture.model(MODELS[name]["config"], TABLES, name)
    assert found is not None
    assert found.parameters == MODELS[name]["parameters"]


def test_at_least_thirty_types_are_compared() -> None:
    assert len({row["config"]["model_type"] for row in MODELS.values()}) >= 30


def test_every_row_is_compared() -> None:
    compared = {row["config"]["model_type"] for row in MODELS.values()}
    described = {kind for row in (*TABLES["decoder"], *TABLES["tower"]) for kind in row["model_types"]}
    assert described <= compared


def test_a_model_without_a_row_is_not_guessed() -> None:
    config = {**MODELS["llama-2-7b"]["config"], "model_type": "llama9"}
    assert architecture.model(config, TABLES, "config.json") is None
    stablelm = {**MODELS["stablelm-3b-4e1t"]["config"], "qk_layernorm": True}
    assert architecture.model(stablelm, TABLES, "config.json") is None


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": -1}, "hidden_size: expected a whole number"),
        ({"hidden_size": 1e300}, "hidden_size: expected a whole number"),
        ({"hidden_size": "4096"}, "hidden_size: expected a whole number"),
        ({"hidden_size": True}, "hidden_size: expected a whole number"),
        ({"hidden_size": 10**4000}, "hidden_size: expected a whole number"),
        ({"hidden_size": 4095}, "not a multiple of num_attention_heads"),
        ({"hidden_size": None}, "no hidden_size"),
        ({"num_hidden_layers": 0}, "num_hidden_layers: expected a whole number"),
        ({"num_hidden_layers": 10**9, "hidden_size": 3 * 2**20}, "parameters are not plausible"),
        ({"model_type": None}, "no model_type"),
        ({"model_type": ["llama"]}, "no model_type"),
        ({"model_type": "mixtral", "num_local_experts": []}, "num_local_experts: expected"),
        ({"model_type": "qwen2_vl", "text_config": 3}, "text_config: expected an object"),
        ({"model_type": "qwen2_vl", "vision_config": [3]}, "vision_config: expected an object"),
    ],
)
def test_an_invalid_configuration_is_reported_in_one_line(change: dict[str, Any], message: str) -> None:
    config = {**MODELS["llama-2-7b"]["config"], **change}
    with pytest.raises(InputError) as raised:
        architecture.model(config, TABLES, "config.json")
    assert message in str(raised.value)
    assert len(str(raised.value)) < 200
