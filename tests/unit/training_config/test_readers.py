"""Training configurations: the facts that they state, what is wrong with them, and where."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from envcheck.commands import loading
from envcheck.commands.training_files import Configured, configured
from envcheck.core.errors import InputError
from envcheck.core.facts import Value
from envcheck.core.rules import Severity
from envcheck.training_config import readers
from envcheck.training_config.document import Section, SettingValue

SHARED = loading.source_tree()["tables"]["argument"]


def read(tmp_path: Path, installed: dict[str, str] | None = None, **texts: str) -> Configured:
    """Write `ds` to ds.json and so on, and return what the files configure in this order."""
    named = [_written(tmp_path, name, text) for name, text in texts.items()]
    return configured(named, SHARED, installed or {})


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


# --- DeepSpeed's JSON, by the shapes that projects ship ---------------------------------------------


def codes(found: Configured) -> list[str]:
    return [f"{remark.severity.value} {remark.code}" for remark in found.remarks]


# As the documentation of transformers has it, and LLaMA-Factory, axolotl and alignment projects after it.
AUTO_ZERO3 = """{
    "fp16": {"enabled": "auto", "loss_scale": 0, "loss_scale_window": 1000, "initial_scale_power": 16,
             "hysteresis": 2, "min_loss_scale": 1},
    "bf16": {"enabled": "auto"},
    "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto", "warmup_num_steps": "auto"}},
    "zero_optimization": {
        "stage": 3,
        "offload_optimizer": {"device": "cpu", "pin_memory": true},
        "offload_param": {"device": "cpu", "pin_memory": true},
        "overlap_comm": true, "contiguous_gradients": true, "sub_group_size": 1e9,
        "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
        "stage3_param_persistence_threshold": "auto", "stage3_max_live_parameters": 1e9,
        "stage3_max_reuse_distance": 1e9, "stage3_gather_16bit_weights_on_model_save": true
    },
    "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", "steps_per_print": 2000,
    "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "wall_clock_breakdown": false
}"""
LAUNCH = (
    "torchrun --nproc_per_node 8 finetune.py --output_dir out --bf16 true --per_device_train_batch_size 2 "
    "--gradient_accumulation_steps 4 --learning_rate 1e-5 --deepspeed ds.json"
)

# As DeepSpeedExamples write it: no "auto", DeepSpeed's own optimizer.
OWN_ZERO2 = """{
  "train_batch_size": 32, "train_micro_batch_size_per_gpu": 4, "steps_per_print": 10,
  "zero_optimization": {"stage": 2, "reduce_scatter": true, "allgather_bucket_size": 5e8, "cpu_offload": true},
  "optimizer": {"type": "Adam", "params": {"lr": 3e-5, "betas": [0.9, 0.95]}},
  "gradient_clipping": 1.0, "prescale_gradients": false,
  "fp16": {"enabled": true, "loss_scale": 0, "initial_scale_power": 16}
}"""


def test_auto_without_a_trainer_is_reported_once(tmp_path: Path) -> None:
    found = read(tmp_path, ds=AUTO_ZERO3)
    assert codes(found) == ["note left-to-the-trainer"]
    said = facts(found)
    assert (said["zero_stage"], said["offload_optimizer"], said["offload_param"]) == (3, "cpu", "cpu")
    assert (
        not {"precision", "gradient_clipping", "micro_batch_size", "zero_persistence_threshold"} & said.keys()
    )
    assert (said["optimizer"], said["deepspeed_optimizer"], said["gather_on_save"]) == ("adamw", True, True)


def test_the_arguments_of_a_launch_fill_in_auto(tmp_path: Path) -> None:
    _written(tmp_path, "ds.json", AUTO_ZERO3)
    found = read(tmp_path, run=LAUNCH)
    assert codes(found) == []
    said = facts(found)
    assert (said["precision"], said["micro_batch_size"], said["gradient_accumulation_steps"]) == (
        "bf16",
        2,
        4,
    )
    assert (said["zero_stage"], said["parallel"], said["trainer"]) == (3, "deepspeed", "transformers")


def test_a_configuration_of_deepspeeds_own(tmp_path: Path) -> None:
    found = read(tmp_path, ds=OWN_ZERO2)
    assert codes(found) == ["note old-name"]
    assert found.remarks[0].advice == 'write "offload_optimizer": {"device": "cpu"}'
    assert facts(found) == {
        "parallel": "deepspeed", "zero_stage": 2, "offload_optimizer": "cpu", "offload_param": "none",
        "precision": "fp16", "gradient_clipping": True, "global_batch_size": 32, "micro_batch_size": 4,
        "optimizer": "adam", "deepspeed_optimizer": True, "zero_reduce_scatter": True,
    }  # fmt: skip


def test_both_precisions_off_is_fp32_and_without_any_it_is_unknown(tmp_path: Path) -> None:
    off = '{"bf16": {"enabled": false}, "fp16": {"enabled": false}, "train_batch_size": 1}'
    assert facts(read(tmp_path, ds=off))["precision"] == "fp32"
    assert "precision" not in facts(read(tmp_path, ds='{"bf16": {"enabled": false}, "train_batch_size": 1}'))


def test_an_old_name_that_is_switched_off_offloads_nothing(tmp_path: Path) -> None:
    off = facts(read(tmp_path, ds='{"zero_optimization": {"stage": 2, "cpu_offload": false}}'))
    assert off.get("offload_optimizer") in (None, "none")


def test_a_file_in_utf_16_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_text('{"zero_optimization": {"stage": 3}}', encoding="utf-16")
    with pytest.raises(InputError, match="UTF-16: save it as UTF-8"):
        configured([str(path)], SHARED, {})


# --- names of another release -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("run", "installed", "expected"),
    [
        ("llamafactory-cli train --stage sft --save_only_model true", {"llamafactory": "0.9.4"}, []),
        (
            "llamafactory-cli train --stage sft --save_only_model true",
            {"llamafactory": "0.9.4", "transformers": "4.35.2"},
            ["transformers 4.35.2 has no save_only_model yet (>=4.36 has)"],
        ),
        (
            "torchrun a.py --output_dir o --evaluation_strategy no",
            {"transformers": "4.57.1"},
            [
                "transformers 4.57.1 has no evaluation_strategy any more (<4.51 has); a script may add it itself",
            ],
        ),
        (
            "torchrun a.py --output_dir o --evaluation_strategy no",
            {"transformers": "4.50.3"},
            ["evaluation_strategy is the old name of eval_strategy"],
        ),
        ("torchrun a.py --output_dir o --evaluation_strategy no", {"transformers": "4.40.2"}, []),
        (
            "torchrun a.py --output_dir o --overwrite_output_dir",
            {"transformers": "5.1.0"},
            [
                "transformers 5.1.0 has no overwrite_output_dir any more (<5.0.0 has); a script may add it itself",
            ],
        ),
        ("llamafactory-cli train --stage sft --overwrite_output_dir", {"transformers": "5.1.0"}, []),
    ],
)
def test_a_name_is_compared_with_the_installed_release(
    tmp_path: Path, run: str, installed: dict[str, str], expected: list[str]
) -> None:
    said = read(tmp_path, run=run, installed=installed)
    assert [remark.text for remark in said.remarks] == expected


def test_an_argument_that_nearly_equals_a_known_one_is_noted(tmp_path: Path) -> None:
    found = read(
        tmp_path, run="torchrun a.py --output_dir o --gradient_checkpoint true --data_paths d --lora_alphas 8"
    )
    assert codes(found) == ["note unknown-name", "note not-understood"]
    assert found.remarks[0].advice == "did you mean gradient_checkpointing?"


# --- mistakes ---------------------------------------------------------------------------------------

ZERO = '{"zero_optimization": {"stage": 3, %s}}'


@pytest.mark.parametrize(
    ("text", "version", "remark", "marked"),
    [
        (ZERO % '"offload_optimzer": {}', "", "error unknown-key", '"offload_optimzer"'),
        ('{"train_batch_size": 1, "gradient_cliping": 1}', "", "warning unknown-key", '"gradient_cliping"'),
        ('{"train_batch_size": 1, "fp16": {"x": 1}}', "0.16.4", "warning unknown-key", '"x"'),
        ('{"train_batch_size": 1, "fp16": {"x": 1}}', "0.17.1", "error unknown-key", '"x"'),
        (ZERO % '"zenflow": {"topk_ratio": 0.1}', "0.17.4", "error other-release", '"zenflow"'),
        (ZERO % '"reduce_bucket_size": -1', "", "error wrong-value", "-1"),
        (ZERO % '"overlap_comm": "maybe"', "", "error wrong-value", '"maybe"'),
        (ZERO % '"overlap_comm": "true"', "", "warning wrong-value", '"true"'),
        (ZERO % '"offload_param": {"device": "CPU"}', "", "error wrong-value", '"CPU"'),
        (ZERO % '"offload_param": 3', "", "error wrong-value", "3"),
        (ZERO % '"offload_optimizer": {"ratio": 1.5}', "", "error wrong-value", "1.5"),
        ('{"train_batch_size": "8"}', "", "error wrong-value", '"8"'),
        ('{"train_batch_size": 8.5}', "", "error wrong-value", "8.5"),
        ('{"train_batch_size": 0}', "", "error wrong-value", "0"),
        ('{"train_batch_size": 8, "train_batch_size": 16}', "", "error twice", '"train_batch_size"'),
        ('{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 3}', "", "error batch-arithmetic", "8"),
        (
            '{"train_batch_size": 1, "fp16": {"enabled": true}, "bf16": {"enabled": true}}',
            "", "error two-precisions", "true",
        ),
        ('{"zero_optimization": true}', "", "warning old-form", "true"),
        ('{"zero_optimization": 3}', "", "error wrong-value", "3"),
        (ZERO % '"stage3_max_live_parameters": "auto"', "", "warning auto-that-nobody-fills", '"auto"'),
    ],
)  # fmt: skip
def test_each_mistake_is_found_with_its_place(
    text: str, version: str, remark: str, marked: str, tmp_path: Path
) -> None:
    path = _written(tmp_path, "ds.json", text)
    found = configured([path], SHARED, {"deepspeed": version} if version else {})
    assert codes(found) == [remark]
    place = found.remarks[0].places[0]
    assert text.splitlines()[place.line - 1][place.column - 1 :][: place.length] == marked


@pytest.mark.parametrize(
    "text",
    [
        ZERO % '"zenflow": {"topk_ratio": 0.1}',  # the installed release is not known
        ZERO % '"offload_param": null',
        ZERO % '"sub_group_size": 1e9',
        ZERO % '"offload_optimizer": {"device": "nvme", "nvme_path": "/local"}',
        '{"train_batch_size": 1, "_comment": "of the author"}',
        '{"train_batch_size": 12, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 2}',
        '{"train_batch_size": 1, "wall_clock_breakdown": 1, "sparse_attention": {"mode": "fixed"}}',
    ],
)
def test_what_deepspeed_accepts_is_not_reported(text: str, tmp_path: Path) -> None:
    assert codes(read(tmp_path, ds=text)) == []


@pytest.mark.parametrize(
    ("misspelt", "meant"),
    [
        ('"zero_optimisation": {}', "did you mean zero_optimization?"),
        ('"offload_optimizer": {}', "offload_optimizer stands in zero_optimization"),
        ('"gradient_cliping": 1', "did you mean gradient_clipping?"),
        ('"nothing_like_it_at_all": 1', ""),
    ],
)
def test_an_ignored_name_comes_with_a_suggestion(misspelt: str, meant: str, tmp_path: Path) -> None:
    found = read(tmp_path, ds=f'{{"train_batch_size": 1, {misspelt}}}')
    assert [remark.advice for remark in found.remarks] == [meant]


# --- merged as the trainer merges -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "argument", "severity"),
    [
        ('"gradient_clipping": 0.5', "--max_grad_norm 1.0", "error"),
        ('"gradient_clipping": 0.5', "", "warning"),
        ('"gradient_clipping": 1', "", None),
        ('"gradient_clipping": 0.5', "--max_grad_norm=0.5", None),
        ('"gradient_clipping": "auto"', "--max_grad_norm 0.3", None),
        ('"gradient_clipping": 0.5', "--max_grad_norm $CLIP", None),
        ('"bf16": {"enabled": true}', "", "warning"),
        ('"bf16": {"enabled": true}', "--bf16", None),
        ('"bf16": {"enabled": true}', "--bf16 False", "error"),
        ('"fp16": {"enabled": false}', "--fp16 True", "error"),
        ('"train_micro_batch_size_per_gpu": 4', "--per_device_train_batch_size 2", "error"),
        ('"gradient_accumulation_steps": 4', "--gradient_accumulation_steps 4", None),
        ('"optimizer": {"params": {"betas": [0.9, 0.95]}}', "--adam_beta2 0.95", None),
        ('"optimizer": {"params": {"betas": [0.9, 0.95]}}', "--adam_beta2 0.99", "error"),
        ('"optimizer": {"params": {"lr": 1e-5}}', "--learning_rate 0.00001", None),
    ],
)
def test_a_contradiction_of_the_arguments_has_both_places(
    setting: str, argument: str, severity: str | None, tmp_path: Path
) -> None:
    _written(tmp_path, "ds.json", f'{{"zero_optimization": {{"stage": 2}},\n {setting}}}')
    found = read(tmp_path, run=f"torchrun train.py --output_dir out --deepspeed ds.json \\\n {argument}\n")
    assert codes(found) == ([f"{severity} contradicts-arguments"] if severity else [])
    if severity == "error":
        ours, theirs = found.remarks[0].places[:2]
        assert (ours.file.rpartition("/")[2], ours.line) == ("ds.json", 2)
        assert (theirs.file.rpartition("/")[2], theirs.line) == ("run", 2)


def test_comments_are_an_error_where_the_trainer_reads_the_file(tmp_path: Path) -> None:
    _written(
        tmp_path, "ds.json", '{"zero_optimization": {"stage": 2}, /* why */ "gradient_clipping": "auto",}'
    )
    found = read(tmp_path, run="torchrun train.py --output_dir out --deepspeed ds.json --max_grad_norm 1")
    assert codes(found) == ["error not-plain-json"] * 2
    alone = configured([str(tmp_path / "ds.json")], SHARED, {})
    assert "error" not in {remark.severity.value for remark in alone.remarks}


def test_two_deepspeed_configurations_are_a_warning(tmp_path: Path) -> None:
    found = read(tmp_path, z2='{"zero_optimization": {"stage": 2}}', z3='{"zero_optimization": {"stage": 3}}')
    assert codes(found) == ["warning several-configurations"]
    assert facts(found)["zero_stage"] == 3


def test_a_script_without_arguments_is_not_given_the_defaults_of_the_trainer(tmp_path: Path) -> None:
    ds = _written(tmp_path, "ds.json", '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}')
    bare, trainers = "torchrun own.py --data d", "torchrun own.py --output_dir o"
    assert codes(read(tmp_path, run=f"{bare} --deepspeed {ds}")) == []
    assert codes(read(tmp_path, run=f"{trainers} --deepspeed {ds}")) == ["warning contradicts-arguments"]


def test_zero_enabled_without_a_stage_is_stage_1(tmp_path: Path) -> None:
    stages = [
        facts(read(tmp_path, ds=f'{{"zero_optimization": {on}}}'))["zero_stage"] for on in ("true", "false")
    ]
    assert stages == [1, 0]


def test_a_batch_that_deepspeed_refuses_states_no_fact(tmp_path: Path) -> None:
    batch = '{"train_batch_size": %d, "train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 1}'
    assert "global_batch_size" not in facts(read(tmp_path, ds=batch % 8))
    assert facts(read(tmp_path, ds=batch % 9))["global_batch_size"] == 9


def test_the_batch_size_is_checked_with_the_arguments(tmp_path: Path) -> None:
    _written(tmp_path, "ds.json", '{"zero_optimization": {"stage": 2}, "train_batch_size": 30}')
    launch = "torchrun --nproc_per_node 10 train.py --output_dir out --deepspeed ds.json --per_device_train_batch_size 4"
    assert codes(read(tmp_path, run=launch)) == ["error batch-arithmetic"]
    assert codes(read(tmp_path, run=launch.replace(" 4", " 3"))) == []


# --- files that name files --------------------------------------------------------------------------


def test_a_named_file_that_does_not_exist_leaves_its_facts_unknown(tmp_path: Path) -> None:
    found = read(tmp_path, run="torchrun train.py --output_dir out --deepspeed conf/gone.json")
    assert codes(found) == ["warning not-here"]
    stage = next(fact for fact in found.facts if fact.key == "train.zero_stage")
    assert "conf/gone.json" in getattr(stage.reading, "why", "")
    assert facts(found)["parallel"] == "deepspeed"


def test_a_named_file_that_is_malformed_is_reported_and_the_rest_is_read(tmp_path: Path) -> None:
    _written(tmp_path, "ds.json", '{"zero_optimization": {"stage": 3')
    found = read(tmp_path, run="torchrun train.py --output_dir out --bf16 True --deepspeed ds.json")
    assert codes(found) == ["error unreadable"]
    assert [place.file.rpartition("/")[2] for place in found.remarks[0].places] == ["ds.json", "run"]
    assert facts(found)["precision"] == "bf16"


def test_if_no_file_can_be_read_it_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: no such file"):
        configured([str(tmp_path / "nowhere")], SHARED, {})


# --- forms ------------------------------------------------------------------------------------------


def settings(text: str) -> dict[str, SettingValue]:
    (document,) = readers.read(text, "conf")
    return {setting.name: setting.value for setting in document.settings}


def test_yaml_values_are_those_of_pyyaml() -> None:
    said = settings(
        "a: no\nb: 1e-4\nc: 1.0e-4\nd: 0o17\ne: 017\nf: ~\ng: 'no'\nh: 2001-01-01\ni: [1, {x: y}]\n"
    )
    assert said == {
        "a": False, "b": "1e-4", "c": 1e-4, "d": "0o17", "e": 15, "f": None, "g": "no", "h": "2001-01-01",
        "i": (1, Section(("x",))), "i.1": Section(("x",)), "i.1.x": "y",
    }  # fmt: skip


def test_yaml_merge_keys_are_merged() -> None:
    said = settings("base: &b {x: 1, y: 2}\nuse:\n  <<: *b\n  y: 3\n")
    assert (said["use.x"], said["use.y"]) == (1, 3)


def test_a_key_with_a_dot_is_quoted() -> None:
    assert settings('{"zero_optimization.stage": 3, "a": {"b.c": 1}}') == {
        '"zero_optimization.stage"': 3, "a": Section(("b.c",)), 'a."b.c"': 1,
    }  # fmt: skip


MALFORMED = (
    ('{"zero_optimization": {"stage": 3}', "conf:1:35", "found the end of the file"),
    ('{"train_batch_size": 1,\n "bf16": {enabled: true}}', "conf:2:11", "a name in double quotes"),
    ('{"a": True}', "conf:1:7", "JSON writes true"),
    ('{"a": "x\ny"}', "conf:1:7", "does not end on its line"),
    ('{"a": 1} x', "conf:1:10", "the end of the file"),
    ('{"a": 1 /* }', "conf:1:9", "a comment without an end"),
    ('{"a": ' + "9" * 5000 + "}", "conf:1:7", "a number of 5000 digits"),
    ('{"a": ' + "[" * 100_000, "conf:1:71", "nested too deeply"),
    ("a:\n\tb: 1", "conf:2:1", "not YAML"),
    ("a: 1\n---\nb: 2\n", "conf:2:1", "a second document"),
    ("a: &x [*x]\n", "conf:1:8", "refers to nothing before it"),
    ("a: !!python/object/apply:os.system ['x']\n", "conf:1:4", "safe loaders refuse"),
    ("a: !!python/name:os.system ''\n", "conf:1:4", "safe loaders refuse"),
    ("a: " + "[" * 500, "conf:1:68", "nested too deeply (more than 64 levels)"),
    ("a: &a [x, x]\nb: [*a" + ", *a" * 20_000 + "]", "conf:1:8", "expands to more than 20000 values"),
    ("a: " + "9" * 5000, "conf:1:4", "is no int"),
    ("\x7fELF\x02\x01\x01\x00", "conf", "a binary file"),
    ("", "conf", "an empty file"),
    ("just words", "conf", "not recognised"),
)


@pytest.mark.parametrize(("text", "where", "problem"), MALFORMED, ids=[problem for *_, problem in MALFORMED])
def test_a_malformed_text_is_an_input_error_with_its_place(text: str, where: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        readers.read(text, "conf")
    assert caught.value.where == where
    assert problem in caught.value.problem
    assert "\n" not in str(caught.value)


def test_files_that_name_one_another_in_a_circle_are_refused(tmp_path: Path) -> None:
    _written(tmp_path, "a.args", "--output_dir out --bf16 --deepspeed b.args")
    _written(tmp_path, "b.args", "--zero_stage 3 --deepspeed a.args")
    found = configured([str(tmp_path / "a.args")], SHARED, {})
    assert codes(found) == ["error unreadable"]
    assert "includes itself" in found.remarks[0].text
    assert facts(found)["precision"] == "bf16"


def test_two_inline_configurations_have_separate_places(tmp_path: Path) -> None:
    del tmp_path
    found = configured(["--bf16 true", "--zero_stage 7"], SHARED, {})
    (place,) = found.remarks[0].places
    assert (str(place), place.excerpt) == ("--train (2):1:14", "--zero_stage 7")


def test_an_impossible_path_is_reported_like_a_missing_file(tmp_path: Path) -> None:
    for name in ("x" * 5000, "a\\u0000b"):
        found = read(tmp_path, conf=f'{{"output_dir": "x", "deepspeed": "{name}"}}')
        assert codes(found) == ["warning not-here"]
        assert len(found.remarks[0].text) < 300
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InputError, match="too many levels of symbolic links"):
        configured([str(tmp_path / "loop")], SHARED, {})
    with pytest.raises(InputError, match=r"no such file|file name too long"):
        configured(["x" * 5000], SHARED, {})


def test_a_file_that_is_not_utf_8_is_read_with_a_warning(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    path.write_bytes(b'{"train_batch_size": 8,\n "note \xd6\xd0": 1, "zero_optimization": {"stage": 2}}')
    found = configured([str(path)], SHARED, {})
    (told,) = [remark for remark in found.remarks if remark.code == "not-utf-8"]
    assert (told.places[0].line, told.places[0].column) == (2, 8)
    assert facts(found)["zero_stage"] == 2


def test_a_configuration_may_be_given_inline() -> None:
    found = configured(
        ['{"zero_optimization": {"stage": 3}}', "torchrun t.py --output_dir o --bf16 1"], SHARED, {}
    )
    assert (facts(found)["zero_stage"], facts(found)["precision"]) == (3, "bf16")


def test_the_last_of_several_equal_arguments_counts_for_contradictions(tmp_path: Path) -> None:
    ds = '{"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 4}'
    yaml = "output_dir: out\nper_device_train_batch_size: 1\ngradient_accumulation_steps: {}\n"
    more = "torchrun t.py --output_dir out"
    assert codes(read(tmp_path, ds=ds, yaml=yaml.format(4), more=more)) == []
    assert codes(read(tmp_path, ds=ds, yaml=yaml.format(2), more=more)) == ["error contradicts-arguments"]
    assert (
        codes(read(tmp_path, ds=ds, yaml=yaml.format(2), more=f"{more} --gradient_accumulation_steps 4"))
        == []
    )


ACCELERATE = """compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
deepspeed_config:
  deepspeed_config_file: ds.json
  zero3_init_flag: true
"""


def test_settings_that_accelerate_refuses_beside_deepspeeds_file(tmp_path: Path) -> None:
    _written(tmp_path, "ds.json", '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}')
    fine = read(tmp_path, acc=ACCELERATE)
    assert codes(fine) == []
    assert facts(fine)["zero_stage"] == 3
    both = read(tmp_path, acc=f"{ACCELERATE}  zero_stage: 2\nmixed_precision: bf16\n")
    assert codes(both) == ["error set-beside-the-file"]
    assert [place.line for place in both.remarks[0].places] == [6, 7]
    assert facts(both)["zero_stage"] == 3


def test_yaml_texts_that_trainers_convert_are_not_reported(tmp_path: Path) -> None:
    text = (
        "output_dir: out\nlearning_rate: 3.0e-4\nper_device_train_batch_size: 2\nmax_grad_norm: ${CLIP}\n"
        "torch_dtype: null\nlr_scheduler_type: no\n"
    )
    found = read(tmp_path, conf=text)
    assert codes(found) == []
    assert facts(found)["micro_batch_size"] == 2
    clipping = next(fact for fact in found.facts if fact.key == "train.gradient_clipping")
    assert getattr(clipping.reading, "why", "") == "${CLIP} is filled in elsewhere"
    assert codes(read(tmp_path, conf=text.replace("3.0e-4", "three"))) == ["error wrong-value"]
    assert codes(read(tmp_path, conf=text.replace("3.0e-4", "3e-4"))) == ["warning wrong-value"]


@pytest.mark.parametrize(
    ("given", "stated"),
    [
        ('{"": int(os.environ["LOCAL_RANK"])}', "by_module"),
        ('{"": PartialState().process_index}', "by_module"),
        ('"auto"', "auto"),
        ("0", "0"),
    ],
)
def test_a_device_map_may_be_a_dictionary_a_name_or_a_number(tmp_path: Path, given: str, stated: str) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        f"model = AutoModelForCausalLM.from_pretrained('m', device_map={given})\n"
        "Trainer(model=model, args=TrainingArguments(output_dir='o', bf16=True)).train()\n"
    )
    found = configured([str(script)], SHARED, {})
    assert facts(found)["device_map"] == stated
    assert not [remark for remark in found.remarks if remark.severity is Severity.ERROR]
