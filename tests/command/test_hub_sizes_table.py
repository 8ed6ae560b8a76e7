"""`tools/refresh_hub_sizes.py` reads the sizes of models from wheels of registries."""

from __future__ import annotations

import json
from pathlib import Path

from tests.command.test_tools import added, tool
from tests.support.local_index import wheel

LITGPT = """
class Config:
    def __init__(self, **given):
        self.n_query_groups = self.n_head = 32
        self.bias = self.attn_bias = False
        self.n_expert = 0
        self.head_size = 128
        self.__dict__.update(given)

configs = [
    dict(hf_config=dict(org="Qwen", name="Qwen3-8B"), n_embd=4096, n_layer=36, n_query_groups=8,
         intermediate_size=12288, padded_vocab_size=151936),
    dict(hf_config=dict(org="Qwen", name="Qwen3-14B"), n_embd=5120, n_layer=40, n_head=40, n_query_groups=8,
         intermediate_size=17408, padded_vocab_size=151936),
    dict(hf_config=dict(org="Qwen", name="Qwen3-4B"), n_embd=2560, n_layer=36, n_query_groups=8,
         intermediate_size=9728, padded_vocab_size=151936),
    dict(hf_config=dict(org="Qwen", name="Qwen3-32B"), n_embd=1, n_layer=64, intermediate_size=1,
         padded_vocab_size=151936),
    dict(hf_config=dict(org="nobody", name="knows-me-7B"), n_embd=4096, n_layer=32, intermediate_size=11008,
         padded_vocab_size=32000),
]
"""
PROVIDER = """
@dataclass
class Qwen3(Base):
    share_embeddings_and_output_weights: bool = False
    num_query_groups: int = 8
    num_attention_heads: int = 32

@dataclass
class Qwen3Of4B(Qwen3):
    num_layers: int = 36
    hidden_size: int = 2560
    ffn_hidden_size: int = 9728
    share_embeddings_and_output_weights: bool = True
"""
SIZES = {
    "model_type": "qwen3",
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
    "rope_theta": 1000000,
    "torch_dtype": "bfloat16",
}
OF_8B = {"hidden_size": 4096, "num_hidden_layers": 36, "num_attention_heads": 32, "intermediate_size": 12288}
OF_32B = {"hidden_size": 5120, "num_hidden_layers": 64, "num_attention_heads": 64, "intermediate_size": 25600}
FILES = {
    "aiconfigurator-core": {
        "aiconfigurator_core/model_configs/Qwen--Qwen3-8B_config.json": json.dumps(SIZES | OF_8B),
        "aiconfigurator_core/model_configs/Qwen--Qwen3-32B_config.json": json.dumps(SIZES | OF_32B),
    },
    "litgpt": {"litgpt/config.py": LITGPT},
    "megatron-bridge": {"megatron/bridge/models/qwen/qwen_provider.py": PROVIDER},
    "ms-swift": {"swift/model/models/qwen.py": "Model('Qwen/Qwen3-4B-Base', 'Qwen/Qwen3-4B')"},
    "unsloth": {
        "unsloth/models/mapper.py": "INT_MAPPER = {'unsloth/Qwen3-8B-bnb-4bit': ('unsloth/Qwen3-8B', 'Qwen/Qwen3-8B')}"
    },
}


def test_sizes_of_names_are_read_and_those_that_registries_state_differently_are_left_out(
    tmp_path: Path,
) -> None:
    for package, files in FILES.items():
        name, content = wheel(package, "1.2", more={path: text.encode() for path, text in files.items()})
        (tmp_path / name).write_bytes(content)
    table = tmp_path / "sizes.txt"
    written = tool("refresh_hub_sizes.py", str(tmp_path), "--table", str(table), "--write")
    assert written.err == "left out, because registries differ: Qwen/Qwen3-32B\n"
    lines = table.read_text().splitlines()
    assert added(written.out) == lines
    of_name: dict[str, dict[str, object]] = {}
    config: dict[str, object] = {}
    for line in lines[3:]:
        if line.startswith("{"):
            config = json.loads(line)
        else:
            of_name[line] = config
    assert of_name["unsloth/Qwen3-8B-bnb-4bit"] == of_name["Qwen/Qwen3-8B"]
    assert of_name["Qwen/Qwen3-8B"]["dtype"] == "bfloat16"
    assert "rope_theta" not in of_name["Qwen/Qwen3-8B"]
    tied = {name: config["tie_word_embeddings"] for name, config in of_name.items()}
    assert (tied["Qwen/Qwen3-8B"], tied["Qwen/Qwen3-4B"], tied["Qwen/Qwen3-14B"]) == (False, True, None)
    assert "Qwen/Qwen3-4B-Base" in of_name
    assert "nobody/knows-me-7B" not in of_name


def test_a_folder_without_the_registries_is_one_line(tmp_path: Path) -> None:
    nothing = tool("refresh_hub_sizes.py", str(tmp_path), "--table", str(tmp_path / "sizes.txt"))
    assert nothing.code == 3
    assert nothing.err.startswith("expected wheels of aiconfigurator_core, litgpt")
