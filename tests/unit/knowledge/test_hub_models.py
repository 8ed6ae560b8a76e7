"""What the config.json of a well-known model says, by its name on the Hub."""

from __future__ import annotations

import tomllib

import pytest

from envcheck.host.package_files import text_of
from envcheck.knowledge.hub_models import configuration_of, hub_models_text, hub_sizes_text, sizes_of
from envcheck.memory import architecture
from tests.support.paths import ROOT

SHIPPED = text_of("hub_models", "hub")
SIZES = text_of("hub_models", "sizes")
TABLES = tomllib.loads((ROOT / "compat/tables/architectures.toml").read_text())
BUILT = tomllib.loads((ROOT / "tests/data/models.toml").read_text())
TEXT = hub_models_text(
    {"Qwen/Qwen3-8B-AWQ": "qwen3", "Qwen/Qwen3-8B": "qwen3", "a/one-7b": "llama", "b/one-7b": "qwen2"}
    | {"maker/dbrx-base": "dbrx", "copy/Tiny-4bit": "llama"},
    {"Qwen/Qwen3-8B-AWQ": "awq", "copy/Tiny-4bit": "nf4"},
    ["ms-swift 4.6.0"],
)


@pytest.mark.parametrize(
    ("name", "model_type"),
    [
        ("Qwen/Qwen3-8B", "qwen3"),
        ("qwen/qwen3-8b", "qwen3"),
        ("/data/models/Qwen3-8B/", "qwen3"),
        ("my/Qwen3-8B", "qwen3"),
        ("~/.cache/huggingface/hub/models--Qwen--Qwen3-8B/snapshots/895c8d", "qwen3"),
        ("b/one-7b", "qwen2"),
        ("./one-7b", None),
        ("maker/dbrx-base", "dbrx"),
        ("my/dbrx-base", None),
        ("Qwen/Qwen3-8B-Base", None),
        ("Qwen3", None),
        ("out/checkpoint-500", None),
        ("", None),
    ],
)
def test_a_name_stands_for_one_type_or_for_none(name: str, model_type: str | None) -> None:
    assert configuration_of(TEXT, name).get("model_type") == model_type


def test_a_name_says_how_the_weights_are_quantised() -> None:
    assert configuration_of(TEXT, "Qwen/Qwen3-8B-AWQ")["quantization_config"] == {"quant_method": "awq"}
    assert configuration_of(TEXT, "copy/Tiny-4bit")["quantization_config"]["load_in_4bit"] is True
    assert "quantization_config" not in configuration_of(TEXT, "Qwen/Qwen3-8B")
    with pytest.raises(ValueError, match=r"expected one of awq, .*; found int3"):
        hub_models_text({"a/b": "llama"}, {"a/b": "int3"}, [])


@pytest.mark.parametrize(
    ("name", "model_type"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama"),
        ("google/gemma-3-4b-it", "gemma3"),
        ("google/gemma-3-1b-it", "gemma3_text"),
        ("Qwen/Qwen2.5-VL-7B-Instruct", "qwen2_5_vl"),
        ("Qwen/Qwen3-30B-A3B", "qwen3_moe"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral"),
        ("unsloth/Llama-3.2-1B-Instruct-bnb-4bit", "llama"),
        ("moonshotai/Kimi-K2-Instruct", None),  # kimi_k2, with the class of DeepSeek-V3
        ("deepseek-ai/deepseek-vl2", None),
    ],
)
def test_the_shipped_table_knows_what_people_train(name: str, model_type: str | None) -> None:
    assert configuration_of(SHIPPED, name).get("model_type") == model_type


def test_sizes_are_known_by_a_name_that_has_a_type() -> None:
    config = {"hidden_size": 4096, "model_type": "qwen3"}
    sizes = hub_sizes_text(
        dict.fromkeys(("Qwen/Qwen3-8B", "Qwen/Qwen3-8B-AWQ", "x/untyped-8B"), config), ["a 1"]
    )
    assert sizes.count('{"hidden_size":4096') == 1
    assert sizes_of(sizes, TEXT, "my/Qwen3-8B") == config
    assert sizes_of(sizes, TEXT, "Qwen/Qwen3-8B-AWQ")["quantization_config"] == {"quant_method": "awq"}
    assert not sizes_of(sizes, TEXT, "x/untyped-8B")
    assert not sizes_of(sizes, TEXT, "a/one-7b")


@pytest.mark.parametrize(
    ("name", "built"),
    [
        ("meta-llama/Llama-2-7b-hf", "llama-2-7b"),
        ("meta-llama/Llama-2-70b-hf", "llama-2-70b"),
        ("meta-llama/Meta-Llama-3-8B", "llama-3-8b"),
        ("meta-llama/Llama-3.2-1B", "llama-3.2-1b"),
        ("mistralai/Mistral-7B-v0.1", "mistral-7b-v0.1"),
        ("mistralai/Mixtral-8x7B-v0.1", "mixtral-8x7b"),
        ("Qwen/Qwen2.5-0.5B", "qwen2.5-0.5b"),
        ("Qwen/Qwen2.5-7B", "qwen2.5-7b"),
        ("Qwen/Qwen3-0.6B", "qwen3-0.6b"),
        ("Qwen/Qwen3-8B", "qwen3-8b"),
        ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"),
        ("google/gemma-2b", "gemma-2b"),
        ("google/gemma-2-9b", "gemma-2-9b"),
        ("google/gemma-3-1b-it", "gemma-3-1b"),
        ("microsoft/phi-2", "phi-2"),
        ("microsoft/Phi-3-mini-4k-instruct", "phi-3-mini"),
        ("deepseek-ai/DeepSeek-V3", "deepseek-v3"),
    ],
)
def test_the_shipped_sizes_count_as_transformers_builds_the_model(name: str, built: str) -> None:
    found = architecture.model(sizes_of(SIZES, SHIPPED, name), TABLES, name)
    assert found is not None
    assert found.parameters == BUILT[built]["parameters"]


def test_every_model_with_sizes_is_counted() -> None:
    names = [line for line in SIZES.splitlines() if not line.startswith(("#", "{"))]
    described = [architecture.model(sizes_of(SIZES, SHIPPED, name), TABLES, name) for name in names]
    assert None not in described
