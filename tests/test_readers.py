"""Training configurations: what they say, what is wrong with them, and where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envcheck import host, matrix
from envcheck.configurations import Configured, configured
from envcheck.model import Severity, Value

SHARED = matrix.gather(host.source_texts("compat", ".toml"))["tables"]["argument"]


def read(tmp_path: Path, **texts: str) -> Configured:
    """The files `ds` → ds.json and so on, named in this order."""
    return configured([_written(tmp_path, name, text) for name, text in texts.items()], SHARED, {})


def _written(folder: Path, name: str, text: str) -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


def facts(found: Configured) -> dict[str, Value | None]:
    return {fact.key.removeprefix("train."): fact.value for fact in found.facts}


ZERO3 = """
{
  // what the article recommends
  "bf16": {"enabled": true},   # not fp16
  "gradient_clipping": 1.0,
  "train_micro_batch_size_per_gpu": "auto",
  /* sharding */
  "zero_optimization": {
    "stage": 3,
    "offload_optimizer": {"device": "cpu", "pin_memory": true},
    "stage3_gather_16bit_weights_on_model_save": true,
  },
}
"""


def test_a_deepspeed_configuration_with_comments_and_trailing_commas(tmp_path: Path) -> None:
    found = read(tmp_path, ds=ZERO3)
    assert facts(found) == {
        "parallel": "deepspeed", "zero_stage": 3, "offload_optimizer": "cpu", "offload_param": "none",
        "precision": "bf16", "gradient_clipping": True, "gather_on_save": True,
    }  # fmt: skip
    assert not [remark for remark in found.remarks if remark.severity is not Severity.NOTE]


def test_no_zero_section_is_stage_0(tmp_path: Path) -> None:
    assert facts(read(tmp_path, ds='{"train_batch_size": 8}'))["zero_stage"] == 0


@pytest.mark.parametrize("text", [ZERO3, json.dumps({"zero_optimization": {"stage": 2}})])
def test_each_fact_names_its_place_in_the_file(tmp_path: Path, text: str) -> None:
    (fact,) = [fact for fact in read(tmp_path, ds=text).facts if fact.key == "train.zero_stage"]
    file, line, name = fact.source.removeprefix(str(tmp_path)).split(":")
    assert '"stage"' in text.splitlines()[int(line) - 1]
    assert (file, name) == ("/ds", " zero_optimization.stage")
