"""Drivers that start their processes themselves, functions that run in workers, and what trainers do with options."""

from __future__ import annotations

from pathlib import Path

import pytest

from envcheck.core.errors import InputError
from tests.support.launches import known_facts as facts

VERL = "-m verl.trainer.main_ppo algorithm.adv_estimator=grpo trainer.nnodes=2 trainer.n_gpus_per_node=8"
SFT = "-m verl.trainer.fsdp_sft_trainer model.partial_pretrain=m data.train_batch_size=8"


@pytest.mark.parametrize(
    ("command", "size"),
    [
        (f"srun --overlap --nodes=1 --ntasks=1 python3 {VERL}", 16),
        (f"python3 {VERL}", 16),
        ("srun --nodes=1 --ntasks=1 python3 -m verl.trainer.main_ppo algorithm.adv_estimator=grpo", None),
        (f"torchrun --nnodes 2 --nproc_per_node 4 {SFT}", 8),
        ("srun --ntasks=4 python train.py --output_dir o --save_steps 3 --bf16 true", 4),
    ],
)
def test_the_driver_alone_is_started_by_slurm(tmp_path: Path, command: str, size: int | None) -> None:
    assert facts(tmp_path, {"run.sh": f"{command}\n"}).get("world_size") == size


RAY = """#!/bin/bash
COMMAND=${COMMAND:-}
ray start --head
if [[ -n "$COMMAND" ]]; then
    srun --overlap --nodes=1 --ntasks=1 bash -c "$COMMAND"
fi
"""
NEMO = "uv run examples/run_grpo_math.py cluster.num_nodes=2 cluster.gpus_per_node=8 policy.model_name=m"
SUBMITS = f"""COMMAND="{NEMO} policy.dtensor_cfg.enabled=True policy.dtensor_cfg.cpu_offload=True" \\
sbatch --nodes=2 ray.sub
"""


def test_a_job_is_submitted_whatever_its_script_is_called(tmp_path: Path) -> None:
    found = facts(tmp_path, {"run.sh": SUBMITS, "ray.sub": RAY})
    assert (found["parallel"], found["fsdp_offload"], found["world_size"]) == ("fsdp2", True, 16)


@pytest.mark.parametrize("job", [RAY.replace("#!/bin/bash", "# notes on the cluster"), None])
def test_what_is_no_script_is_not_submitted(tmp_path: Path, job: str | None) -> None:
    with pytest.raises(InputError):
        facts(tmp_path, {"run.sh": SUBMITS, **({} if job is None else {"ray.sub": job})})


POLICY = """grpo: {num_prompts_per_step: 32}
policy:
  model_name: m
  max_total_sequence_length: 512
  dtensor_cfg: {enabled: %s, tensor_parallel_size: 2, context_parallel_size: 1}
  megatron_cfg: {enabled: %s, tensor_model_parallel_size: 4, context_parallel_size: 8}
  generation: {backend: vllm, colocated: {enabled: %s}}
cluster: {gpus_per_node: 8, num_nodes: 2}
"""


@pytest.mark.parametrize(
    ("megatron", "colocated", "expected"),
    [("false", "true", (2, 1, 16)), ("true", "true", (4, 8, 16)), ("false", "false", (2, 1, None))],
)
def test_the_backend_in_use_decides_how_layers_are_shared(
    tmp_path: Path, megatron: str, colocated: str, expected: tuple[int, int, int | None]
) -> None:
    other = "false" if megatron == "true" else "true"
    found = facts(tmp_path, {"grpo.yaml": POLICY % (other, megatron, colocated)})
    given = (found["tensor_parallel"], found["context_parallel"], found.get("world_size"))
    assert (given, found["method"]) == (expected, "grpo")


TRAINS = """from transformers import HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
Trainer(args=args).train()
"""


@pytest.mark.parametrize(("program", "trainer"), [("tune.py", "transformers"), ("swift.py", "transformers")])
def test_a_file_is_not_the_command_of_its_name(tmp_path: Path, program: str, trainer: str) -> None:
    command = f"python {program} --output_dir o --bf16 true --save_steps 3\n"
    found = facts(tmp_path, {"run.sh": command, program: TRAINS})
    assert (found["trainer"], found["precision"]) == (trainer, "bf16")


WORKER = """from peft import LoraConfig, get_peft_model
from ray.train.torch import TorchTrainer
from ray.train.huggingface import TransformersTrainer
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
def train({parameters}):
    model = get_peft_model(AutoModelForCausalLM.from_pretrained("m"), LoraConfig(r={rank}))
    Trainer(model=model, args=TrainingArguments(output_dir="o")).train()
config = dict(rank=32)
{start}.fit()
"""


@pytest.mark.parametrize(
    ("parameters", "rank", "start", "given"),
    [
        ("config", "config['rank']", "TorchTrainer(train, train_loop_config=config)", 32),
        (
            "config",
            "config.get('rank')",
            "TorchTrainer(train_loop_per_worker=train, train_loop_config=config)",
            32,
        ),
        ("", "16", "TorchTrainer(train_loop_per_worker=train)", 16),
        ("config", "config['rank']", "TorchTrainer(train, train_loop_config=load())", None),
        (
            "data, other=None, **config",
            "config.get('rank')",
            "TransformersTrainer(trainer_init_per_worker=train, trainer_init_config=config)",
            32,
        ),
    ],
)
def test_a_function_of_ray_gets_its_configuration(
    tmp_path: Path, parameters: str, rank: str, start: str, given: int | None
) -> None:
    program = WORKER.format(parameters=parameters, rank=rank, start=start)
    found = facts(tmp_path, {"train.py": program})
    assert (found.get("lora_rank"), found["adapter"]) == (given, "lora")


UNSLOTH = """from unsloth import FastLanguageModel
from trl import SFTConfig, SFTTrainer
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--use_flash_attn", action="store_true")
args = parser.parse_args()
model, tokenizer = FastLanguageModel.from_pretrained("m", load_in_4bit=True)
model = FastLanguageModel.get_peft_model(model, r=8, target_modules=["q_proj"{more}])
SFTTrainer(model=model, args=SFTConfig(output_dir="o")).train()
"""


@pytest.mark.parametrize(("more", "saves"), [(', "lm_head"', True), (', "my_lm_heads"', False), ("", False)])
def test_unsloth_trains_the_head_that_it_is_given_as_a_whole(
    tmp_path: Path, more: str, *, saves: bool
) -> None:
    found = facts(tmp_path, {"train.py": UNSLOTH.format(more=more)})
    assert bool(found.get("modules_to_save")) is saves


def test_unsloth_is_not_given_the_attention_of_an_option(tmp_path: Path) -> None:
    found = facts(
        tmp_path, {"run.sh": "python train.py --use_flash_attn\n", "train.py": UNSLOTH.format(more="")}
    )
    assert "attention" not in found
    assert found["quantization"] == "nf4"


AXOLOTL = "base_model: m\ndatasets:\n  - path: d\nsequence_len: 8\nmicro_batch_size: 1\nnum_epochs: 1\n"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("adapter: qlora\nload_in_4bit: true\n", {"quantization": "nf4"}),
        ("adapter: lora\nload_in_4bit: true\n", {"quantization": None}),
        ("adapter: lora\nload_in_8bit: true\n", {"quantization": "int8"}),
        ("adapter: lora\n", {"quantization": "none"}),
        ("save_steps: 100\n", {"save_steps": 100, "save_strategy": "steps"}),
        ("save_steps: 0.25\n", {"save_steps": None, "save_strategy": "steps"}),
        ("save_strategy: epoch\n", {"save_strategy": "epoch"}),
        ("val_set_size: 0.05\neval_steps: 20\n", {"eval_steps": 20, "eval_strategy": "steps"}),
        ("val_set_size: 0\n", {"eval_strategy": "no"}),
        ("val_set_size: 0.05\nevals_per_epoch: 2\n", {"eval_strategy": None}),
    ],
)
def test_what_axolotl_makes_of_its_options(tmp_path: Path, more: str, expected: dict[str, object]) -> None:
    found = facts(tmp_path, {"train.yaml": AXOLOTL + more})
    assert {key: found.get(key) for key in expected} == expected


ENGINES = """import deepspeed
from copy import deepcopy
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments
class PreferenceTrainer(Trainer):
    def __init__(self, ref_model, **given):
        super().__init__(**given)
        plugin = self.accelerator.state.deepspeed_plugin
        if ref_model is not None:
            engine, *_ = deepspeed.initialize(model=ref_model, {more})
(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("m")
PreferenceTrainer(AutoModelForCausalLM.from_pretrained("m"), model=model, args=args).train()
"""
ZERO = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": "auto"}}'


PLAIN = 'config={"zero_optimization": {"stage": 0}}'


@pytest.mark.parametrize(
    ("more", "is_trained"),
    [
        ("config=deepcopy(plugin.deepspeed_config)", False),
        (PLAIN, False),
        (f"optimizer=make(), {PLAIN}", True),
        (f"model_parameters=ref_model.parameters(), {PLAIN}", True),
    ],
)
def test_an_engine_for_a_reference_model_says_nothing(tmp_path: Path, more: str, *, is_trained: bool) -> None:
    command = "deepspeed train.py --deepspeed zero3.json --output_dir o --bf16 true --save_steps 3\n"
    files = {"run.sh": command, "train.py": ENGINES.replace("{more}", more), "zero3.json": ZERO}
    found = facts(tmp_path, files)
    assert found["parallel"] == "deepspeed"
    assert (found.get("zero_stage") == 3) is not is_trained


@pytest.mark.parametrize(
    ("names", "trainer"),
    [
        ("per_device_train_batch_size: 8\nnum_train_epochs: 1\n", "transformers"),
        ("batch_size: 8\nnum_epochs: 1\n", None),
    ],
)
def test_names_of_a_program_do_not_prove_a_trainer(tmp_path: Path, names: str, trainer: str | None) -> None:
    text = f"{names}save_steps: 100\nlogging_steps: 10\neval_steps: 50\ngradient_checkpointing: true\n"
    assert facts(tmp_path, {"train.yaml": text}).get("trainer") == trainer


@pytest.mark.parametrize(("more", "trusted"), [("", False), (" --trust_remote_code true", True)])
def test_trl_trusts_no_code_of_a_model_by_default(tmp_path: Path, more: str, *, trusted: bool) -> None:
    program = """from transformers import AutoModelForCausalLM
from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser
args, options = TrlParser((SFTConfig, ModelConfig)).parse_args_and_config()
name = options.model_name_or_path
model = AutoModelForCausalLM.from_pretrained(name, trust_remote_code=options.trust_remote_code)
SFTTrainer(model=model, args=args).train()
"""
    command = f"python train.py --model_name_or_path m --output_dir o{more}\n"
    found = facts(tmp_path, {"run.sh": command, "train.py": program})
    assert found["trust_remote_code"] is trusted
