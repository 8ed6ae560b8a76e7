"""Which type of model a name stands for, from the source texts of registries."""

from __future__ import annotations

from envcheck.atlas.auto_classes import types_by_class
from envcheck.atlas.hub_models import copies, registered_architectures, types_of_names

REGISTRY = """
register_model(
    ModelMeta(
        LLMModelType.qwen3,
        [ModelGroup([Model('Qwen/Qwen3-8B', 'Qwen/Qwen3-8B'), Model('scope/Only')], TemplateType.qwen3)],
        architectures=['Qwen3ForCausalLM'],
    ))
register_model(ModelMeta('two', [ModelGroup([Model('a/two')])], architectures=['A', 'B']))
register_model(ModelMeta('computed', [ModelGroup([Model('a/computed')])], architectures=ARCHITECTURES))
register_model(ModelMeta('own', [ModelGroup([Model('a/own', None)])], architectures=['OwnModel']))
register_model(ModelMeta('ernie', [ModelGroup([Model('a/named')])], architectures=['LlamaForCausalLM']))
"""
COPIES = """
__INT_TO_FLOAT_MAPPER = {
    "unsloth/Qwen3-8B-bnb-4bit": ("unsloth/Qwen3-8B", "Qwen/Qwen3-8B"),
    "unsloth/Other": {"8": ("unsloth/Other-FP8",)},
}
OTHER = {"a/b": "c"}
"""
MODELING = """
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = OrderedDict([
    ("exaone", "LlamaForCausalLM"), ("llama", "LlamaForCausalLM"), ("qwen3", "Qwen3ForCausalLM"),
])
"""


def test_the_architecture_of_each_registered_name_is_read() -> None:
    assert dict(registered_architectures(REGISTRY)) == {
        "Qwen/Qwen3-8B": "Qwen3ForCausalLM",
        "scope/Only": "Qwen3ForCausalLM",
        "a/own": "OwnModel",
        "a/named": "LlamaForCausalLM",
    }


def test_names_of_one_model_are_copies_of_one_another() -> None:
    assert list(copies(COPIES)) == [
        ("unsloth/Qwen3-8B-bnb-4bit", "unsloth/Qwen3-8B", "Qwen/Qwen3-8B"),
        ("unsloth/Other", "unsloth/Other-FP8"),
    ]


def test_a_type_is_known_only_where_transformers_has_one_and_all_registries_agree() -> None:
    types = types_by_class(MODELING)
    found = types_of_names(registered_architectures(REGISTRY), copies(COPIES), types)
    assert found == {
        **dict.fromkeys(("Qwen/Qwen3-8B", "scope/Only"), "qwen3"),
        **dict.fromkeys(("unsloth/Qwen3-8B-bnb-4bit", "unsloth/Qwen3-8B"), "qwen3"),
        "a/named": "llama",  # of two types with this class, the one that it is named after
    }
    of_another = [*registered_architectures(REGISTRY), ("scope/Only", "LlamaForCausalLM")]
    assert "scope/Only" not in types_of_names(of_another, [], types)
