"""A model that a trainer is given beside the one that it trains says nothing about the trained one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.training_config.test_programs import facts_of

IMPORTS = """
from transformers import AutoModelForCausalLM, AutoModelForSequenceClassification, BitsAndBytesConfig
from trl import DPOConfig, DPOTrainer, GRPOConfig, GRPOTrainer, PPOConfig, PPOTrainer, RewardConfig, RewardTrainer
bnb = BitsAndBytesConfig(load_in_8bit=True)
plain = AutoModelForCausalLM.from_pretrained("a", torch_dtype="bfloat16")
small = AutoModelForSequenceClassification.from_pretrained("b", {}).eval()
"""
DPO = "DPOTrainer({}, args=DPOConfig('o', bf16=True)).train()\n"
GRPO = "GRPOTrainer(model='a', reward_funcs={}, args=GRPOConfig('o', bf16=True)).train()\n"


@pytest.mark.parametrize(
    "trains",
    [
        DPO.format("plain, small"),
        DPO.format("model=plain, ref_model=small"),
        GRPO.format("small"),
        GRPO.format("[small, print]"),
    ],
)
@pytest.mark.parametrize("load", ["quantization_config=bnb", "load_in_8bit=True"])
def test_a_quantised_model_that_is_not_trained_quantises_nothing(
    tmp_path: Path, trains: str, load: str
) -> None:
    found = facts_of(tmp_path, "a.py", {"a.py": IMPORTS.replace("{}", load) + trains})
    assert (found["quantization"], found["precision"]) == ("none", "bf16")


@pytest.mark.parametrize(
    "trains",
    [
        "RewardTrainer(model=small, args=RewardConfig('o')).train()\n",
        DPO.format("small, ref_model=small"),
        "PPOTrainer(PPOConfig('o'), small, plain).train()\n",
    ],
)
def test_a_quantised_model_that_is_trained_is_the_base(tmp_path: Path, trains: str) -> None:
    found = facts_of(tmp_path, "a.py", {"a.py": IMPORTS.replace("{}", "load_in_8bit=True") + trains})
    assert found["quantization"] == "int8"


def test_a_configuration_of_both_models_is_that_of_the_trained_one(tmp_path: Path) -> None:
    both = IMPORTS.replace("{}", "quantization_config=bnb").replace(
        'torch_dtype="bfloat16"', "quantization_config=bnb"
    )
    found = facts_of(tmp_path, "a.py", {"a.py": both + DPO.format("plain, small")})
    assert found["quantization"] == "int8"
