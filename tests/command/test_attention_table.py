"""`tools/refresh_attention.py` reads which attention each model type refuses, from a store of releases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.command.test_tools import added, tool
from tests.support.model_store import store_release

AUTO = """\
MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = OrderedDict([("plain", "PlainForCausalLM"), ("other-name", "OtherForCausalLM"),
    ("ported", "PortedForCausalLM"), ("computed", "ComputedForCausalLM"), ("kernel", "KernelForCausalLM")])
MODEL_FOR_MASKED_LM_MAPPING_NAMES = OrderedDict([("two", "TwoForMaskedLM")])
MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES = OrderedDict([("two", "TwoForSeq2SeqLM")])
"""
CONFIGURATIONS = 'SPECIAL_MODEL_TYPE_TO_MODULE_NAME = OrderedDict([("other-name", "other")])\n'
MODELS = {
    "plain": "class PlainPreTrainedModel(PreTrainedModel): ...\nclass PlainForCausalLM(PlainPreTrainedModel): ...\n",
    "other": "class OtherForCausalLM(PreTrainedModel):\n    _supports_sdpa = True\n    _supports_flash_attn = False\n",
    "ported": "from ..other.modeling_other import OtherForCausalLM\n"
    "class PortedForCausalLM(OtherForCausalLM):\n    _supports_flash_attn_2: bool = True\n",
    "computed": "class ComputedForCausalLM(PreTrainedModel):\n    _supports_sdpa = supports()\n"
    "    _supports_flash_attn = True\n    _supports_flex_attn = True\n",
    "kernel": "class KernelForCausalLM(PreTrainedModel):\n    _supports_sdpa = _supports_flex_attn = True\n"
    '    _compatible_flash_implementations = ["kernels-community/flash-mla"]\n',
    "two": "class TwoForMaskedLM(PreTrainedModel): ...\nclass TwoForSeq2SeqLM(PreTrainedModel):\n    _supports_sdpa = True\n",
}


def store_models(folder: Path, version: str, models: dict[str, str]) -> None:
    files = {f"{name}/modeling_{name}.py": text for name, text in models.items()}
    store_release(folder, version, AUTO, CONFIGURATIONS, files)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Return a store of three releases; in the last one `plain` was ported to sdpa."""
    ported = {**MODELS, "plain": "class PlainForCausalLM(PreTrainedModel):\n    _supports_sdpa = True\n"}
    store_models(tmp_path / "store", "4.46.3", MODELS)
    store_models(tmp_path / "store", "4.47.0", MODELS)
    store_models(tmp_path / "store", "4.48.0", ported)
    return tmp_path / "store"


def test_a_type_refuses_what_its_classes_do_not_support(store: Path, tmp_path: Path) -> None:
    table = tmp_path / "attention.toml"
    table.write_text("# A comment: the newest release that was read, 4.46.3.\n")
    ran = tool("refresh_attention.py", "--store", str(store), "--table", str(table), "--write")
    rows = {line.split('"')[1]: line for line in added(ran.out) if line.startswith("{")}
    assert (ran.code, ran.err) == (0, "")
    assert (
        rows["plain"]
        == '{ model_type = "plain", sdpa = [">=4.46.3,<4.48.0"], flash_attention_2 = [">=4.46.3"], '
        'flex_attention = [">=4.47.0"] },'
    )
    # The class stands in a folder of another name.
    assert 'flash_attention_2 = [">=4.46.3"]' in rows["other-name"]
    assert "sdpa" not in rows["other-name"]
    # The base in another module says no, the class itself yes, by the older name of the attribute.
    assert "flash_attention_2" not in rows["ported"]
    # What is computed is not known, and a kernel of its own is taken instead of FlashAttention.
    assert "computed" not in rows
    assert "kernel" not in rows
    # One of the two classes has sdpa.
    assert "sdpa" not in rows["two"]
    assert table.read_text().startswith("# A comment: the newest release that was read, 4.48.0.\n")
    assert tool("refresh_attention.py", "--store", str(store), "--table", str(table)).out == ""
