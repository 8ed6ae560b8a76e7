"""Launchers and trainers with a command of their own, records of a training, and what a program's own names mean."""

from __future__ import annotations

from pathlib import Path

import pytest

from envcheck.commands import loading
from envcheck.commands.training_files import Configured, configured
from envcheck.core.errors import InputError

SHARED = loading.source_tree()["tables"]["argument"]


def read(folder: Path, files: dict[str, str]) -> Configured:
    """Write the files and read the first of them."""
    for name, text in files.items():
        (folder / name).write_text(text)
    return configured([str(folder / next(iter(files)))], SHARED, {})


def facts(folder: Path, files: dict[str, str]) -> dict[str, object]:
    """Return the values of the facts that the first file states."""
    found = read(folder, files).facts
    return {fact.key.removeprefix("train."): fact.value for fact in found if fact.value is not None}


def errors(folder: Path, files: dict[str, str]) -> list[str]:
    """Return the texts of the errors in the first file."""
    return [remark.text for remark in read(folder, files).remarks if remark.severity.value == "error"]


AUTOTRAIN = """
task: llm-sft
base_model: meta-llama/Llama-3.1-8B
project_name: a
backend: local
data: {path: d}
params: {block_size: 1024, epochs: 1, batch_size: 2, peft: true, quantization: int4, mixed_precision: bf16}
"""


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {
                "run.sh": "torchx run -s slurm dist.ddp -j 2x8 --script train.py -- --bf16 true --output_dir o\n"
            },
            {"parallel": "ddp", "world_size": 16, "precision": "bf16"},
        ),
        (
            {"run.sh": "colossalai run --nproc_per_node 4 train.py --learning_rate 1 --use_lora\n"},
            {"world_size": 4, "adapter": "lora"},
        ),
        (
            {"run.sh": "autotrain llm --train --model m --peft --quantization int4 --mixed-precision bf16\n"},
            {"adapter": "lora", "quantization": "nf4", "precision": "bf16", "gradient_checkpointing": True},
        ),
        (
            {"run.sh": "autotrain llm --train --model m --trainer dpo --disable-gradient-checkpointing\n"},
            {"adapter": "none", "quantization": "none", "trainer": "trl", "gradient_checkpointing": False},
        ),
        (
            {"run.sh": "autotrain --config a.yaml\n", "a.yaml": AUTOTRAIN},
            {"trainer": "trl", "adapter": "lora", "quantization": "nf4", "precision": "bf16"},
        ),
        (
            {"run.sh": "litgpt finetune_lora m --quantize bnb.nf4 --precision bf16-true\n"},
            {"adapter": "lora", "quantization": "nf4", "parallel": "none", "gradient_checkpointing": False},
        ),
        (
            {"run.sh": "litgpt finetune_full m --devices 4\n"},
            {"adapter": "none", "parallel": "fsdp1", "gradient_checkpointing": True},
        ),
    ],
    ids=["TorchX", "Colossal-AI", "AutoTrain", "AutoTrain full", "AutoTrain file", "LitGPT", "LitGPT full"],
)
def test_a_command_of_its_own_is_read(
    tmp_path: Path, files: dict[str, str], expected: dict[str, object]
) -> None:
    found = facts(tmp_path, files)
    assert {key: found.get(key) for key in expected} == expected


def test_litgpt_finetune_does_not_say_which_variant_it_is(tmp_path: Path) -> None:
    found = facts(tmp_path, {"run.sh": "litgpt finetune lora --precision bf16-true --quantize bnb.nf4\n"})
    assert "adapter" not in found


TRAINER = """
import os, torch
from transformers import Trainer, TrainingArguments

kind = os.environ.get("DTYPE", "bfloat16")
saves_memory = os.getenv("SAVE_MEMORY", "1") == "1"
args = TrainingArguments(
    "o", bf16=kind == "bfloat16", fp16=kind == "float16", gradient_checkpointing=saves_memory,
    per_device_train_batch_size=2,
)
Trainer(args=args).train()
"""


@pytest.mark.parametrize(
    ("script", "precision", "checkpointing"),
    [
        ("python train.py\n", "bf16", True),
        ("export DTYPE=float16\npython train.py\n", "fp16", True),
        ("DTYPE=float16\nSAVE_MEMORY=0 python train.py\n", "bf16", False),
    ],
    ids=["the defaults", "exported", "for one command"],
)
def test_a_program_sees_the_variables_that_its_script_gives_it(
    tmp_path: Path, script: str, precision: str, checkpointing: bool
) -> None:
    found = facts(tmp_path, {"run.sh": script, "train.py": TRAINER})
    assert (found["precision"], found["gradient_checkpointing"]) == (precision, checkpointing)


def test_a_variable_that_only_the_shell_knows_leaves_open_what_it_decides(tmp_path: Path) -> None:
    script = "export DTYPE=$(cat dtype.txt)\npython train.py\n"
    assert "precision" not in facts(tmp_path, {"run.sh": script, "train.py": TRAINER})


def test_a_gpu_is_assumed_to_be_there(tmp_path: Path) -> None:
    program = TRAINER.replace('kind == "bfloat16"', 'torch.device("cuda:0").type == "cuda"').replace(
        "saves_memory,", "torch.cuda.is_available(),"
    )
    found = facts(tmp_path, {"train.py": program})
    assert (found["precision"], found["gradient_checkpointing"]) == ("bf16", True)


@pytest.mark.parametrize(
    ("options", "parallel"),
    [("", "ddp"), ("--deepspeed ds.json", "deepspeed")],
    ids=["without a configuration", "with one"],
)
def test_the_deepspeed_launcher_alone_makes_no_engine(tmp_path: Path, options: str, parallel: str) -> None:
    command = f"deepspeed --num_gpus 4 train.py --output_dir o --per_device_train_batch_size 1 {options}\n"
    files = {"run.sh": command, "ds.json": '{"zero_optimization": {"stage": 2}}'}
    assert facts(tmp_path, files)["parallel"] == parallel


def test_the_submit_folder_of_a_scheduler_is_that_of_the_project(tmp_path: Path) -> None:
    script = 'ROOT="$SLURM_SUBMIT_DIR"\npython "$ROOT/train.py"\n'
    assert facts(tmp_path, {"run.sh": script, "train.py": TRAINER})["precision"] == "bf16"


def test_settings_recorded_by_wandb_are_read_inside_their_entries(tmp_path: Path) -> None:
    entries = {
        "learning_rate": "1.0e-5",
        "bf16": "true",
        "per_device_train_batch_size": "2",
        "output_dir": "o",
    }
    text = "wandb_version: 1\n" + "".join(
        f"{key}:\n    desc: null\n    value: {value}\n" for key, value in entries.items()
    )
    assert errors(tmp_path, {"config.yaml": text}) == []
    assert facts(tmp_path, {"config.yaml": text})["precision"] == "bf16"


def test_the_state_of_a_training_is_no_configuration(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no training setting"):
        read(
            tmp_path,
            {
                "trainer_state.json": '{"log_history": [], "max_steps": 9, "train_batch_size": 6, '
                '"num_train_epochs": 3, "save_steps": 9, "logging_steps": 9}'
            },
        )


@pytest.mark.parametrize(
    "text",
    [
        "learning_rate: 1.0e-5\nper_device_train_batch_size: 1\nbits: 16\n",
        "learning_rate: 1.0e-5\nper_device_train_batch_size: 1\nresume_from_checkpoint: out/checkpoint-9\n",
        "learning_rate: 1.0e-5\nper_device_train_batch_size: 1\noptimizer: {name: adamw}\n",
    ],
    ids=["bits", "checkpoint", "section"],
)
def test_a_name_that_the_program_defines_itself_is_no_mistake(tmp_path: Path, text: str) -> None:
    assert errors(tmp_path, {"config.yaml": text}) == []


def test_a_value_that_a_known_trainer_refuses_is_a_mistake(tmp_path: Path) -> None:
    text = "stage: sft\nmodel_name_or_path: m\ndo_train: true\nfinetuning_type: lora\nbf16: maybe\n"
    assert errors(tmp_path, {"config.yaml": text}) == ["bf16: expected true or false, found 'maybe'"]


@pytest.mark.parametrize(
    ("switches", "adapter"),
    [
        ("use_lora: true", "lora"),
        ("use_lora: false", "none"),
        ("use_qlora: true, use_lora: false", "lora"),
        ("use_qlora: false, use_lora: true", "lora"),
    ],
)
def test_a_switch_for_an_adapter_counts_in_any_section(tmp_path: Path, switches: str, adapter: str) -> None:
    text = f"model: {{name: m, {switches}}}\nloop: {{epochs: 3, batch_size: 4}}\n"
    assert facts(tmp_path, {"config.yaml": text}).get("adapter") == adapter


KOHYA = """
[model_arguments]
pretrained_model_name_or_path = "m"
[training_arguments]
network_module = "networks.lora"
network_dim = 32
mixed_precision = "bf16"
gradient_checkpointing = true
"""


def test_toml_is_read_as_a_file_and_as_what_a_launch_names(tmp_path: Path) -> None:
    files = {"run.sh": "accelerate launch train_network.py --config_file a.toml\n", "a.toml": KOHYA}
    found = facts(tmp_path, files)
    assert (found["adapter"], found["precision"], found["gradient_checkpointing"]) == ("lora", "bf16", True)
    own = {"b.toml": "[optim]\nlearning_rate = 1e-4\n[model]\nuse_lora = true\nprecision = 'fp16'\n"}
    found = facts(tmp_path, own)
    assert (found["adapter"], found["precision"]) == ("lora", "fp16")


def test_a_mistake_in_toml_has_its_place(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read(tmp_path, {"a.toml": "learning_rate = 1e-4\nuse_lora = yes\n"})
    assert str(error.value).startswith(f"{tmp_path}/a.toml:2:")


def test_a_program_reads_its_toml(tmp_path: Path) -> None:
    program = (
        "import tomllib\nfrom transformers import Trainer, TrainingArguments\n"
        "with open('a.toml', 'rb') as file:\n    config = tomllib.load(file)\n"
        "Trainer(args=TrainingArguments('o', bf16=config['train']['bf16'])).train()\n"
    )
    files = {"run.sh": "python train.py\n", "train.py": program, "a.toml": "[train]\nbf16 = true\n"}
    assert facts(tmp_path, files)["precision"] == "bf16"


GRPO = """
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer, ModelConfig, TrlParser

args, model_args = TrlParser((GRPOConfig, ModelConfig)).parse_args_and_config()
model = AutoModelForCausalLM.from_pretrained("m", {passed})
GRPOTrainer(model=model, args=args).train()
"""


def test_a_quantisation_that_the_program_does_not_pass_on_is_not_claimed(tmp_path: Path) -> None:
    files = {
        "run.sh": "python train.py --config a.yaml\n",
        "a.yaml": "load_in_4bit: true\nnum_generations: 4\noutput_dir: o\nbf16: true\n",
        "train.py": GRPO.format(passed='device_map="auto"'),
    }
    assert facts(tmp_path, files)["quantization"] == "none"
    files["train.py"] = GRPO.format(passed="quantization_config=get_quantization_config(model_args)")
    assert facts(tmp_path, files).get("quantization") != "none"


@pytest.mark.parametrize("switch", ["is_peft", "use_peft", "enable_lora", "peft_enabled", "lora_enable"])
def test_a_switch_of_the_file_turns_a_group_off(tmp_path: Path, switch: str) -> None:
    text = (
        f"{switch}: false\npeft_config: {{r: 8, lora_alpha: 16}}\nlearning_rate: 1.0e-4\n"
        "is_quantized: false\nquantization_config: {load_in_4bit: true, bnb_4bit_quant_type: nf4}\n"
    )
    found = facts(tmp_path, {"a.yaml": text})
    assert (found["adapter"], found["quantization"]) == ("none", "none")
    found = facts(tmp_path, {"a.yaml": text.replace("false", "true")})
    assert (found["adapter"], found["quantization"]) == ("lora", "nf4")


def test_a_name_of_one_trainer_beats_those_that_several_have(tmp_path: Path) -> None:
    text = (
        "train_type: lora\nreward_funcs: [a]\nnum_generations: 8\nmax_completion_length: 9\nuse_vllm: true\n"
        "per_device_train_batch_size: 1\nlearning_rate: 1e-5\n"
    )
    assert facts(tmp_path, {"a.yaml": text})["trainer"] == "swift"


def test_a_target_of_hydra_names_the_trainer(tmp_path: Path) -> None:
    text = (
        "training_arguments: {_target_: trl.GRPOConfig, bf16: true, gradient_accumulation_steps: 2}\n"
        "gradient_checkpointing: true\nper_device_train_batch_size: 1\noutput_dir: o\nlearning_rate: 1.0e-5\n"
    )
    assert facts(tmp_path, {"a.yaml": text})["trainer"] == "trl"


def test_the_options_of_an_unknown_command_do_not_prove_a_trainer(tmp_path: Path) -> None:
    options = "--per_device_train_batch_size 1 --learning_rate 1 --num_train_epochs 1 --bf16 --save_steps 9"
    found = facts(tmp_path, {"run.sh": f"#!/bin/bash\nour-cli dpo {options}\n"})
    assert found["precision"] == "bf16"
    assert "trainer" not in found


def test_options_of_fsdp_leave_open_what_torchrun_starts(tmp_path: Path) -> None:
    script = "torchrun --nproc_per_node 4 gone.py --sharding_strategy=hsdp --learning_rate 1\n"
    assert "parallel" not in facts(tmp_path, {"run.sh": script})


def test_a_loop_over_a_few_words_is_read_once_for_each(tmp_path: Path) -> None:
    files = {
        "run.sh": 'for one in a b; do\n  bash train.sh "$one"\ndone\n',
        "train.sh": 'torchrun --nproc_per_node 2 train.py --config "$1.yaml"\n',
        "a.yaml": "output_dir: a\nbf16: true\nper_device_train_batch_size: 1\ngradient_checkpointing: true\n",
        "b.yaml": "output_dir: b\nbf16: true\nper_device_train_batch_size: 1\ngradient_checkpointing: false\n",
    }
    found = facts(tmp_path, files)
    assert (found["parallel"], found["precision"]) == ("ddp", "bf16")
    assert "gradient_checkpointing" not in found


HYDRA = """
import hydra

@hydra.main(config_path="conf", config_name="base")
def main(config):
    print(config)

main()
"""


def test_the_configuration_that_hydra_composes_for_a_program_is_read(tmp_path: Path) -> None:
    (tmp_path / "conf/deepspeed").mkdir(parents=True)
    files = {
        "run.sh": "accelerate launch main.py --config-name=own use_lora=false is_bf16=true\n",
        "main.py": HYDRA,
        "conf/own.yaml": (
            "defaults:\n  - deepspeed: zero2\n  - _self_\nuse_lora: true\nis_bf16: false\nlearning_rate: 1.0e-5\n"
            "gradient_accumulation_steps: 2\noutput_dir: o\nstrategy: deepspeed\n"
        ),
        "conf/deepspeed/zero2.yaml": "zero_optimization: {stage: 2}\nbf16: {enabled: '${is_bf16}'}\n",
    }
    found = facts(tmp_path, files)
    assert (found["zero_stage"], found["adapter"], found["precision"]) == (2, "none", "bf16")
    files["run.sh"] = "accelerate launch main.py --config-name=own strategy=none\n"
    assert "zero_stage" not in facts(tmp_path, files)


def test_comments_before_the_first_object_of_a_job_are_skipped(tmp_path: Path) -> None:
    text = (
        "# a job\n---\napiVersion: batch/v1\nkind: Job\nspec:\n  template:\n    spec:\n      containers:\n"
        '      - command: ["torchrun", "--nproc_per_node", "2", "train.py", "--bf16", "--output_dir", "o"]\n'
    )
    assert facts(tmp_path, {"job.yaml": text})["precision"] == "bf16"


LOOP = """
from transformers import AutoModelForCausalLM
import torch

model = AutoModelForCausalLM.from_pretrained("m", dtype=torch.{dtype})
for batch in range(9):
    loss = model(batch).loss
    if batch > 1:
        loss.backward()
"""


@pytest.mark.parametrize(("dtype", "precision"), [("bfloat16", "bf16"), ("float16", "fp16")])
def test_a_loop_computes_in_the_type_of_its_model(tmp_path: Path, dtype: str, precision: str) -> None:
    assert facts(tmp_path, {"train.py": LOOP.format(dtype=dtype)})["precision"] == precision


def test_a_flag_that_trains_one_part_alone_freezes_nothing_when_off(tmp_path: Path) -> None:
    options = (
        "--vision_tower clip --mm_projector_type mlp --freeze_vision_tower False --freeze_backbone False"
    )
    command = f"torchrun train.py {options} --tune_mm_mlp_adapter False --output_dir o\n"
    assert facts(tmp_path, {"run.sh": command})["frozen_params"] is False


MAKEFILE = """
MODEL ?= m
ARGS = --bf16 true \\
  --output_dir o
include .env

.PHONY: train
train: prepare
\t@torchrun --nproc_per_node $(N) train.py $(ARGS) --model_name_or_path $(MODEL)

prepare:
\tpython prepare.py
"""


@pytest.mark.parametrize(
    ("command", "precision", "world_size"),
    [("make train", "bf16", 4), ("make N=2 ARGS='--fp16 true --output_dir o' train", "fp16", 2)],
)
def test_a_target_of_a_makefile_is_followed(
    tmp_path: Path, command: str, precision: str, world_size: int
) -> None:
    files = {"run.sh": f"#!/bin/bash\n{command}\n", "Makefile": MAKEFILE, ".env": "N=4\n"}
    found = facts(tmp_path, files)
    assert (found["precision"], found["world_size"]) == (precision, world_size)


def test_a_makefile_that_names_itself_ends(tmp_path: Path) -> None:
    files = {
        "run.sh": "#!/bin/bash\nmake a\n",
        "Makefile": "A = $(A) x\na: b\n\tmake a $(A)\nb: a\n\tmake b\n",
    }
    with pytest.raises(InputError):
        read(tmp_path, files)


def test_activation_checkpointing_counts_under_its_own_name(tmp_path: Path) -> None:
    text = "lr: 1.0e-5\nbatch_size: 8\nfsdp_config: {activation_checkpointing: true}\nprecision: amp_bf16\n"
    found = facts(tmp_path, {"a.yaml": text})
    assert (found["gradient_checkpointing"], found["precision"]) == (True, "bf16")


@pytest.mark.parametrize(
    ("options", "attention"),
    [
        ("--packing true", "sdpa"),
        ("--padding_free true", "sdpa"),
        ("--packing true --attn_impl flash_attn", "flash_attention_2"),
        ("--padding_free true --use_flash_attn true", "flash_attention_2"),
        ("--packing true --attn_impl $KERNEL", None),
        ("--packing false", None),
    ],
)
def test_swift_without_a_name_of_the_attention_packs_with_another_one(
    tmp_path: Path, options: str, attention: str | None
) -> None:
    script = f"swift sft --model m --train_type lora {options}\n"
    assert facts(tmp_path, {"run.sh": script}).get("attention") == attention


@pytest.mark.parametrize("trainer", ["OnlineDPOTrainer", "XPOTrainer", "NashMDTrainer"])
def test_trainers_that_subclass_online_dpo_train_by_it(tmp_path: Path, trainer: str) -> None:
    program = f"from trl import {trainer}\ntrainer = {trainer}(model=m, args=a)\ntrainer.train()\n"
    assert facts(tmp_path, {"train.py": program})["method"] == "online_dpo"


def test_the_gpu_that_trl_starts_vllm_on_is_read(tmp_path: Path) -> None:
    script = "python grpo.py --use_vllm true --vllm_device cuda:0 --num_generations 4\n"
    assert facts(tmp_path, {"run.sh": script})["vllm_device"] == "cuda:0"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "Dockerfile",
            'FROM base:1\nENV A=1\nENV B=1\nENV C=1\nENV D=1\nENV E=1\nCMD ["python", "t.py", "--x"]\n',
        ),
        (
            "Makefile",
            "A = 1\nB = 1\nC = 1\nD = 1\nE = 1\ntrain:\n\techo train\n\techo now\n\tpython t.py --x\n",
        ),
    ],
)
def test_a_setting_of_the_program_is_placed_in_its_own_file(tmp_path: Path, name: str, text: str) -> None:
    program = (
        "from peft import LoraConfig, get_peft_model\n"
        "from transformers import AutoModelForCausalLM, Trainer, TrainingArguments\n"
        'model = get_peft_model(AutoModelForCausalLM.from_pretrained("m"), LoraConfig(r=8))\n'
        'Trainer(model, TrainingArguments("o")).train()\n'
    )
    found = read(tmp_path, {name: text, "t.py": program}).facts
    source = next(fact.source for fact in found if fact.key == "train.adapter")
    assert source.removeprefix(f"{tmp_path}/").startswith("t.py:3:")


def test_a_command_of_a_makefile_that_may_train_and_is_no_shell_command_is_an_error(tmp_path: Path) -> None:
    text = "train:\n\tif $(call f,x); then torchrun t.py\n"
    with pytest.raises(InputError, match="Makefile:2"):
        read(tmp_path, {"Makefile": text})


MEGATRON = (
    "--num-layers 12 --hidden-size 512 --micro-batch-size 4 --global-batch-size 64 --bf16 --train-iters 9 "
)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            f"{MEGATRON}--data-path d --attention-backend auto --tensor-model-parallel-size 2",
            {"trainer": "custom", "parallel": "megatron", "precision": "bf16", "tensor_parallel": 2},
        ),
        (
            f"{MEGATRON}--mock-data --fp8-format hybrid --recompute-granularity full",
            {"precision": "fp8", "gradient_checkpointing": True},
        ),
        (f"{MEGATRON}--mock-data --use-torch-fsdp2", {"parallel": "fsdp2", "gradient_checkpointing": False}),
        (f"{MEGATRON}--mock-data --recompute-granularity selective", {"gradient_checkpointing": None}),
    ],
)
def test_arguments_of_megatron_lm_are_not_those_of_a_trainer_on_it(
    tmp_path: Path, options: str, expected: dict[str, object]
) -> None:
    found = facts(
        tmp_path, {"run.sh": f"torchrun --nproc-per-node 8 Megatron-LM/pretrain_gpt.py {options}\n"}
    )

    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize(
    "command",
    [
        "torchrun pretrain_gpt.py --data-path d --deepspeed --deepspeed_config ds.json --zero-stage 1",
        "python train.py --mock-data --rollout-batch-size 8 --actor-num-nodes 1",
    ],
)
def test_megatron_beside_deepspeed_or_rollouts_is_not_megatron_lm(tmp_path: Path, command: str) -> None:
    files = {"run.sh": f"{command} {MEGATRON}\n", "ds.json": '{"zero_optimization": {"stage": 1}}'}

    assert facts(tmp_path, files).get("parallel") != "megatron"


PLUGIN = "compute_environment: LOCAL_MACHINE\ndistributed_type: {kind}\ndeepspeed_config: {{{section}}}\n"


@pytest.mark.parametrize(
    ("kind", "section", "stage", "offload"),
    [
        ("DEEPSPEED", "zero_optimization: {stage: 3}", 2, "none"),
        ("DEEPSPEED", "zero_stage: 3, offload_optimizer_device: cpu", 3, "cpu"),
        ("DEEPSPEED", "deepspeed_config_file: missing.json", None, None),
        ("MULTI_GPU", "zero3_init_flag: false", None, None),
    ],
)
def test_accelerate_has_a_stage_of_its_own_where_its_file_names_none(
    tmp_path: Path, kind: str, section: str, stage: int | None, offload: str | None
) -> None:
    found = facts(tmp_path, {"a.yaml": PLUGIN.format(kind=kind, section=section)})

    assert (found.get("zero_stage"), found.get("offload_optimizer")) == (stage, offload)


def test_a_trainers_own_file_of_deepspeed_counts_more_than_that_stage(tmp_path: Path) -> None:
    files = {
        "run.sh": "accelerate launch --config_file a.yaml train.py --output_dir o --bf16 --deepspeed ds.json\n",
        "a.yaml": PLUGIN.format(kind="DEEPSPEED", section="zero3_init_flag: true"),
        "ds.json": '{"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}}}',
    }
    found = facts(tmp_path, files)

    assert (found["zero_stage"], found["offload_optimizer"]) == (3, "cpu")
