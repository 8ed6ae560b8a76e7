"""Which configurations the Auto classes of transformers load, from its source text."""

from __future__ import annotations

import pytest

from envcheck.atlas.auto_classes import auto_classes

CONFIGURATIONS = """
CONFIG_MAPPING_NAMES = OrderedDict([("bart", "BartConfig"), ("llama", "LlamaConfig"), ("vl", "VlConfig")])
"""
MODELING = """
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = OrderedDict(
    [("bart", "BartForCausalLM"), ("llama", ("LlamaForCausalLM", "Other")), ("unlisted", "Unlisted")]
)
MODEL_FOR_VISION_MAPPING_NAMES = {"vl": "VlForConditionalGeneration"}
MODEL_FOR_BOTH_MAPPING_NAMES = OrderedDict(
    [*list(MODEL_FOR_VISION_MAPPING_NAMES.items()), ("llama", "LlamaForCausalLM")]
)
MODEL_FOR_CAUSAL_LM_MAPPING = _LazyAutoMapping(CONFIG_MAPPING_NAMES, MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
MODEL_FOR_VISION_MAPPING = _LazyAutoMapping(CONFIG_MAPPING_NAMES, MODEL_FOR_VISION_MAPPING_NAMES)
MODEL_FOR_BOTH_MAPPING = _LazyAutoMapping(CONFIG_MAPPING_NAMES, MODEL_FOR_BOTH_MAPPING_NAMES)
class AutoModelForCausalLM(_BaseAutoModelClass):
    _model_mapping = MODEL_FOR_CAUSAL_LM_MAPPING
class _AutoModelForVision(_BaseAutoModelClass):
    _model_mapping = MODEL_FOR_VISION_MAPPING
class AutoModelForVision(_AutoModelForVision):
    "It warns, and has the mapping of its base."
class AutoModelForBoth(_BaseAutoModelClass):
    _model_mapping = MODEL_FOR_BOTH_MAPPING
"""


def test_a_configuration_is_loaded_if_its_type_is_in_both_tables() -> None:
    assert auto_classes(MODELING, [CONFIGURATIONS]) == {
        "AutoModelForCausalLM": {"BartConfig", "LlamaConfig"},
        "AutoModelForVision": {"VlConfig"},
        "AutoModelForBoth": {"VlConfig", "LlamaConfig"},
    }


def test_a_table_may_extend_that_of_another_file() -> None:
    more = 'CONFIG_MAPPING_NAMES = OrderedDict(**{"unlisted": "NewConfig"}, **CONFIG_MAPPING_NAMES)'
    found = auto_classes(MODELING, [CONFIGURATIONS, more])
    assert found["AutoModelForCausalLM"] == {"BartConfig", "LlamaConfig", "NewConfig"}


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ("OrderedDict([make()])", "expected a pair"),
        ("OrderedDict([(1, 2)])", "expected a text"),
        ("a + b", "expected a table of names"),
    ],
)
def test_a_table_in_another_form_is_refused_and_not_taken_for_empty(table: str, told: str) -> None:
    with pytest.raises(ValueError, match=f"line 1: {told}"):
        auto_classes(MODELING, [f"CONFIG_MAPPING_NAMES = {table}"])
    with pytest.raises(ValueError, match="expected CONFIG_MAPPING_NAMES"):
        auto_classes(MODELING, [])
