"""Options of trainers, each with the fact that it states, and with what it does not state."""

from __future__ import annotations

from pathlib import Path

import pytest

from envcheck.commands import loading, training_files
from envcheck.core.errors import InputError
from tests.unit.training_config.test_programs import facts_of


def test_steps_between_checkpoints_and_evaluations(tmp_path: Path) -> None:
    line = "python missing.py --output_dir o --per_device_train_batch_size 1 --bf16"
    line += " --save_steps {} --eval_steps {}\n"
    found = facts_of(tmp_path, "run.sh", {"run.sh": line.format(500, 200)})
    assert (found["save_steps"], found["eval_steps"]) == (500, 200)
    shares = facts_of(tmp_path, "run.sh", {"run.sh": line.format(0.2, "0.1")})
    assert shares.keys().isdisjoint({"save_steps", "eval_steps"})  # parts of all steps


def test_modules_of_lora_may_be_several_words(tmp_path: Path) -> None:
    line = "trl sft --use_peft --lora_target_modules q_proj v_proj --output_dir o\n"
    assert facts_of(tmp_path, "run.sh", {"run.sh": line})["lora_targets"] == "q_proj,v_proj"
    line = line.replace("q_proj v_proj", "all-linear")
    assert facts_of(tmp_path, "run.sh", {"run.sh": line})["lora_targets"] == "all-linear"


@pytest.mark.parametrize("saved", [True, False])
def test_unsloth_trains_modules_beside_the_adapter(tmp_path: Path, saved: bool) -> None:
    more = ', modules_to_save=["lm_head"]' if saved else ""
    program = (
        "from trl import SFTConfig, SFTTrainer\nfrom unsloth import FastLanguageModel\n"
        "model, tokenizer = FastLanguageModel.from_pretrained('m')\n"
        f"model = FastLanguageModel.get_peft_model(model, r=8{more})\n"
        "SFTTrainer(model=model, args=SFTConfig('o')).train()\n"
    )
    found = facts_of(tmp_path, "train.py", {"train.py": program})
    assert found.get("modules_to_save", False) is saved


@pytest.mark.parametrize(
    ("program", "method"), [("fsdp_sft_trainer", "sft"), ("sft_trainer", "sft"), ("main_ppo", "ppo")]
)
def test_verl_trains_by_its_program(tmp_path: Path, program: str, method: str | None) -> None:
    line = f"torchrun -m verl.trainer.{program} data.train_batch_size=8 data.max_length=256\n"
    found = facts_of(tmp_path, "run.sh", {"run.sh": line})
    assert (found["trainer"], found.get("method")) == ("verl", method)
    assert found["sequence_length"] == 256


@pytest.mark.parametrize(
    ("name", "method"), [("grpo_vlm.py", "grpo"), ("gspo.py", "grpo"), ("online_dpo_vlm.py", "online_dpo")]
)
def test_trls_scripts_train_by_their_name(tmp_path: Path, name: str, method: str) -> None:
    line = f"accelerate launch examples/scripts/{name} --use_peft --max_prompt_length 9 --output_dir o\n"
    assert facts_of(tmp_path, "run.sh", {"run.sh": line})["method"] == method


def test_classes_of_unsloth_are_those_of_trl(tmp_path: Path) -> None:
    program = """
from unsloth import FastLanguageModel, UnslothTrainer, UnslothTrainingArguments
model, tokenizer = FastLanguageModel.from_pretrained("m")
args = UnslothTrainingArguments("o", per_device_train_batch_size=3, gradient_accumulation_steps=4)
UnslothTrainer(model=model, args=args, packing=True).train()
"""
    found = facts_of(tmp_path, "train.py", {"train.py": program})
    assert (found["trainer"], found["method"], found["micro_batch_size"]) == ("trl", "sft", 3)


@pytest.mark.parametrize(("more", "trainer"), [("", "transformers"), ("packing: true\n", None)])
def test_a_file_with_trls_names_does_not_prove_transformers_trainer(
    tmp_path: Path, more: str, trainer: str | None
) -> None:
    text = "output_dir: o\nper_device_train_batch_size: 2\nsave_total_limit: 2\nbf16: true\nlearning_rate: 1.0e-5\n"
    found = facts_of(tmp_path, "recipe.yaml", {"recipe.yaml": text + more})
    assert (found.get("trainer"), found["precision"]) == (trainer, "bf16")


LENGTHS = "data:\n  max_prompt_length: 512\n  max_response_length: 512\n"


def test_lengths_of_prompts_alone_are_no_configuration_of_verl(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no training setting"):
        facts_of(tmp_path, "grpo.yaml", {"grpo.yaml": LENGTHS})
    text = f"{LENGTHS}algorithm:\n  adv_estimator: grpo\nactor_rollout_ref:\n  rollout:\n    name: vllm\n"
    assert facts_of(tmp_path, "grpo.yaml", {"grpo.yaml": text})["trainer"] == "verl"


PARTS = """
from dataclasses import dataclass
from transformers import AutoModelForImageTextToText, HfArgumentParser, Trainer, TrainingArguments
@dataclass
class Parts:
    freeze_vision_tower: bool = False
    freeze_merger: bool = False
    freeze_llm: bool = False
    tune_mm_vision: bool = True
    tune_mm_mlp: bool = True
    tune_mm_llm: bool = True
parts, args = HfArgumentParser((Parts, TrainingArguments)).parse_args_into_dataclasses()
model = AutoModelForImageTextToText.from_pretrained("a/b")
model.visual.requires_grad_(not parts.freeze_vision_tower)
model.language_model.requires_grad_(not parts.freeze_llm)
"""
TRAIN = "Trainer(model=model, args=args).train()\n"
FROZEN = "--freeze_vision_tower True --freeze_merger True --freeze_llm False"


@pytest.mark.parametrize(
    ("flags", "program", "only_encoders"),
    [
        (FROZEN, PARTS + TRAIN, True),
        ("--tune_mm_vision False --tune_mm_mlp True --tune_mm_llm True", PARTS + TRAIN, True),
        ("--freeze_vision_tower True --freeze_llm True", PARTS + TRAIN, None),
        ("--freeze_vision_tower False --freeze_merger True", PARTS + TRAIN, None),
        ("--freeze_vision_tower False --freeze_llm False", PARTS + TRAIN, None),
        ("--freeze_vision_tower True --freeze_llm $FREEZE", PARTS + TRAIN, None),
        (FROZEN, f"{PARTS}model.enable_input_require_grads()\n{TRAIN}", None),
        (FROZEN, f"{PARTS}import others\nmodel = others.prepared(model)\n{TRAIN}", None),
        (FROZEN, "", None),
    ],
)
def test_flags_and_code_say_whether_only_encoders_are_frozen(
    tmp_path: Path, flags: str, program: str, only_encoders: bool | None
) -> None:
    line = f"deepspeed t.py --deepspeed z3.json --output_dir o --bf16 True --learning_rate 1e-5 {flags}\n"
    files = {"run.sh": line, **({"t.py": program} if program else {})}
    assert facts_of(tmp_path, "run.sh", files).get("frozen_encoders_only") is only_encoders


AXOLOTL = "base_model: m\ndatasets: [{path: d}]\nadapter: lora\nmicro_batch_size: 1\nsequence_len: 8\nnum_epochs: 1\n"


@pytest.mark.parametrize(
    ("lines", "stated"),
    [
        ("liger_rope: true\n", {"liger_plugin": True}),
        ("liger_fused_linear_cross_entropy: true\n", {"liger_plugin": True}),
        ("liger_rope: false\n", {}),
        ("rl: dpo\ndpo_padding_free: true\n", {"padding_free": True}),
        ("dpo_padding_free: true\n", {}),  # nothing reads it without DPO
        ("auto_find_batch_size: true\n", {"auto_find_batch_size": True}),
        ("auto_find_batch_size: true\nrl: grpo\n", {}),  # handed on for supervised training alone
        ("rl: grpo\ntrl:\n  use_liger_loss: true\n", {"liger_kernel": True}),
        ("use_mlflow: true\n", {"report_to": ("mlflow",)}),
        ("mlflow_experiment_name: e\n", {"report_to": ("mlflow",)}),
        ("use_mlflow: true\nwandb_project: p\n", {}),  # two trackers
    ],
)
def test_axolotl_hands_options_on_under_other_names(
    tmp_path: Path, lines: str, stated: dict[str, object]
) -> None:
    (tmp_path / "a.yml").write_text(AXOLOTL + lines)
    shared = loading.knowledge().tables.get("argument", [])
    found = training_files.configured([str(tmp_path / "a.yml")], shared, {"axolotl": "0.21.0"})
    keys = {"liger_plugin", "liger_kernel", "padding_free", "auto_find_batch_size", "report_to"}
    facts = {fact.key.removeprefix("train."): fact.value for fact in found.facts if fact.value is not None}
    assert {key: value for key, value in facts.items() if key in keys} == stated


@pytest.mark.parametrize(("method", "quantization"), [("eetq", "eetq"), ("hqq", "hqq"), ("bnb", None)])
def test_llamafactory_quantises_by_a_method(tmp_path: Path, method: str, quantization: str | None) -> None:
    text = "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\ntemplate: default\ncutoff_len: 8\n"
    text += f"quantization_bit: 8\nquantization_method: {method}\n"
    found = facts_of(tmp_path, "a.yaml", {"a.yaml": text})
    assert found["quantization"] == (quantization or "int8")


def test_use_liger_of_trl_is_use_liger_kernel(tmp_path: Path) -> None:
    line = "trl sft --model_name_or_path m --dataset_name d --output_dir o --use_liger {}\n"
    assert facts_of(tmp_path, "run.sh", {"run.sh": line.format("True")})["liger_kernel"] is True
    assert facts_of(tmp_path, "run.sh", {"run.sh": line.format("False")})["liger_kernel"] is False


@pytest.mark.parametrize(
    ("lines", "trackers"),
    [
        ("wandb_project: mine\n", ("wandb",)),
        ("wandb_project:\n", None),
        ('wandb_project: ""\n', None),
        ("wandb_project: mine\nuse_tensorboard: true\n", None),  # both, in an order that is not stated
        ("", None),
    ],
)
def test_a_project_switches_on_its_tracker_in_axolotl(
    tmp_path: Path, lines: str, trackers: tuple[str, ...] | None
) -> None:
    text = f"base_model: m\nsequence_len: 8\nmicro_batch_size: 1\n{lines}"
    assert facts_of(tmp_path, "a.yaml", {"a.yaml": text}).get("report_to") == trackers


MEGATRON = (
    "megatron sft --model m --tensor_model_parallel_size 2 --recompute_granularity full --micro_batch_size 1"
)


@pytest.mark.parametrize(
    ("options", "stated"),
    [
        ("--save_interval 40 --eval_interval 20 --num_workers 8", {"save_steps": 40, "eval_steps": 20, "dataloader_workers": 8}),
        ("--save_steps 4 --eval_steps 2 --dataloader_num_workers 1", {"save_steps": 4, "eval_steps": 2, "dataloader_workers": 1}),
        ("--clip_grad 0 --tuner_type lora --lora_dropout 0", {"gradient_clipping": False, "lora_dropout": False}),
        ("--task_type seq_cls", {"method": None}),
    ],
)  # fmt: skip
def test_megatron_of_ms_swift_has_names_of_its_own(
    tmp_path: Path, options: str, stated: dict[str, object]
) -> None:
    found = facts_of(tmp_path, "run.sh", {"run.sh": f"#!/bin/bash\nNPROC_PER_NODE=2 {MEGATRON} {options}\n"})
    assert {key: found.get(key) for key in stated} == stated
    assert found.get("method") == stated.get("method", "sft")


TORCHTUNE = """model:
  _component_: torchtune.models.llama3.llama3_8b
tokenizer:
  _component_: torchtune.models.llama3.llama3_tokenizer
dataset:
  _component_: torchtune.datasets.alpaca_dataset
  max_seq_len: {length}
clip_grad_norm: {norm}
"""


@pytest.mark.parametrize(
    ("length", "norm", "stated"),
    [
        ("1024", "null", (1024, False)),
        ("null", "1.0", (None, True)),
        ("null", "inf", (None, False)),
        ("null", "${norm}", (None, None)),
    ],
)
def test_torchtune_cuts_and_clips_where_it_is_told_to(
    tmp_path: Path, length: str, norm: str, stated: tuple[int | None, bool | None]
) -> None:
    found = facts_of(tmp_path, "a.yaml", {"a.yaml": TORCHTUNE.format(length=length, norm=norm)})
    assert (found.get("sequence_length"), found.get("gradient_clipping")) == stated


NEMO = """grpo: {{num_prompts_per_step: 2}}
policy:
  model_name: m
  max_total_sequence_length: 8
  dtensor_cfg:
    enabled: {dtensor}
    lora_cfg: {{enabled: {lora}, dim: 128, dropout: 0.0}}
  megatron_cfg: {{enabled: {megatron}, freeze_moe_router: true, peft: {{enabled: false, dim: 8}}}}
"""


@pytest.mark.parametrize(
    ("dtensor", "lora", "stated"),
    [
        ("true", "true", {"lora_rank": 128, "lora_dropout": False, "frozen_params": True}),
        ("true", "false", {"lora_rank": None, "lora_dropout": None, "frozen_params": False}),
        ("false", "true", {"lora_rank": None, "lora_dropout": None, "frozen_params": None}),
    ],
)
def test_nemo_rl_reads_the_section_of_its_engine(
    tmp_path: Path, dtensor: str, lora: str, stated: dict[str, object]
) -> None:
    megatron = "false" if dtensor == "true" else "true"
    text = NEMO.format(dtensor=dtensor, lora=lora, megatron=megatron)
    found = facts_of(tmp_path, "a.yaml", {"a.yaml": text})
    assert {key: found.get(key) for key in stated} == stated


def test_sizes_of_axolotls_mesh_leave_fsdp_as_it_is(tmp_path: Path) -> None:
    text = (
        AXOLOTL
        + "dp_shard_size: 8\ndp_replicate_size: 2\nfsdp_version: 2\nfsdp_config: {offload_params: true}\n"
    )
    assert facts_of(tmp_path, "a.yml", {"a.yml": text})["parallel"] == "fsdp2"


@pytest.mark.parametrize(
    ("options", "grouped"),
    [
        ("--group_by_length true", True),
        ("--train_sampling_strategy group_by_length", True),
        ("--group_by_length true --length_column_name length", False),  # nothing is measured then
        ("--group_by_length false", False),
        ("", False),
    ],
)
def test_examples_are_measured_where_they_are_grouped(tmp_path: Path, options: str, grouped: bool) -> None:
    line = f"trl dpo --model_name_or_path m --dataset_name d --output_dir o {options}\n"
    found = facts_of(tmp_path, "run.sh", {"run.sh": line})
    assert found.get("group_by_length", False) is grouped
