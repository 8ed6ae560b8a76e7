"""Training configurations: what a DeepSpeed JSON and a list of arguments say, and every mistake."""

from __future__ import annotations

import json

import pytest

from envcheck import host, matrix
from envcheck.model import InputError, Unknown, Value
from envcheck.readers import read_training, without_comments

TABLES = matrix.gather(host.source_texts("compat", ".toml"))["tables"]


def said(text: str) -> dict[str, Value | None]:
    return {fact.key.removeprefix("train."): fact.value for fact in read_training(text, "conf", TABLES)}


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


def test_a_deepspeed_configuration_with_comments_and_trailing_commas() -> None:
    assert said(ZERO3) == {
        "parallel": "deepspeed", "zero_stage": 3, "offload_optimizer": "cpu", "offload_param": "none",
        "precision": "bf16", "gradient_clipping": True,
    }  # fmt: skip


def test_each_fact_names_its_place_in_the_file() -> None:
    sources = {fact.key: fact.source for fact in read_training(ZERO3, "ds.json", TABLES)}
    assert sources["train.offload_optimizer"] == "ds.json: zero_optimization.offload_optimizer.device"


def test_auto_leaves_a_value_to_the_trainer() -> None:
    config = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "gradient_clipping": "auto"}
    found = said(json.dumps(config))
    assert "precision" not in found
    assert "gradient_clipping" not in found


def test_no_zero_section_is_stage_0() -> None:
    assert said('{"train_batch_size": 8}')["zero_stage"] == 0


def test_the_old_key_for_offloading_is_understood() -> None:
    assert said('{"zero_optimization": {"stage": 2, "cpu_offload": true}}')["offload_optimizer"] == "cpu"


def test_comment_signs_inside_strings_are_text() -> None:
    text = '{"a": "http://x # y", "b": "/* no */", "c": "\\\\"} // yes'
    assert json.loads(without_comments(text)) == {"a": "http://x # y", "b": "/* no */", "c": "\\"}


@pytest.mark.parametrize(
    ("text", "where", "problem"),
    [
        ('{"zero_optimization": {"stage": 3}', "conf:1:35", "not JSON: expecting ',' delimiter"),
        ('{"train_batch_size": 1,\n "bf16": {enabled: true}}', "conf:2:11", "not JSON"),
        ('{"zero_optimization": {"stage": 4}}', "conf: zero_optimization.stage", "expected 0, 1, 2 or 3, found 4"),
        ('{"zero_optimization": {"stage": "3"}}', "conf: zero_optimization.stage", "found '3'"),
        ('{"zero_optimization": 3}', "conf: zero_optimization", "expected an object, found 3"),
        (
            '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "gpu"}}}',
            "conf: zero_optimization.offload_optimizer.device", "expected none, cpu or nvme, found 'gpu'",
        ),
        ('{"train_batch_size": 1, "bf16": {"enabled": true}, "fp16": {"enabled": true}}', "conf: fp16.enabled", "one of"),
        ('{"train_batch_size": 1, "x": ' + "[" * 100_000 + "]" * 100_000 + "}", "conf", "nested too deeply"),
        ("just words", "conf", "not recognised as a list of arguments such as --flag value or a DeepSpeed"),
        ("--gradient_checkpointing maybe", "conf: --gradient_checkpointing", "expected true or false, found 'maybe'"),
        ("--zero_stage three", "conf: --zero_stage", "expected a number, found 'three'"),
        ("--output_dir 'unclosed", "conf", "not arguments: no closing quotation"),
    ],
)  # fmt: skip
def test_a_mistake_is_one_line_with_its_place(text: str, where: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        read_training(text, "conf", TABLES)
    assert caught.value.where == where
    assert problem in caught.value.problem
    assert "\n" not in str(caught.value)


SCRIPT = """
torchrun --nproc_per_node=8 finetune.py \\
    --bf16 true --use_lora true --lora_target_modules "llm..*layers" \\
    --gradient_checkpointing true \\
    --gradient_checkpointing_kwargs '{"use_reentrant": false}' \\
    --learning_rate $LR --tune_vision false
"""


def test_arguments_of_a_launch_are_understood() -> None:
    found = said(SCRIPT)
    assert found == {
        "precision": "bf16", "adapter": "lora", "gradient_checkpointing": True, "use_reentrant": False,
        "frozen_params": True,
    }  # fmt: skip


def test_the_three_spellings_mean_the_same() -> None:
    spellings = ("--use_lora true", "--use-lora=true", "use_lora=true")
    assert [said(each)["adapter"] for each in spellings] == ["lora"] * 3


def test_a_bare_flag_is_true_and_a_later_one_wins() -> None:
    assert said("--gradient_checkpointing --bf16")["gradient_checkpointing"] is True
    assert said("--zero_stage 2 --zero_stage 3")["zero_stage"] == 3


def test_what_only_the_shell_knows_is_unknown_with_its_reason() -> None:
    (fact,) = read_training("--zero_stage $STAGE", "run.sh", TABLES)
    assert fact.reading == Unknown("$STAGE is known to the shell only")
