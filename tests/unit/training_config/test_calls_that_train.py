"""Calls in programs that say how a training runs: schedules, encoders, whole dictionaries, blocks of inference."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from envcheck.core.errors import InputError
from tests.unit.training_config.test_programs import facts_of

SHARDED = """
import os
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import AutoModelForCausalLM
dist.init_process_group("nccl")
model = AutoModelForCausalLM.from_pretrained("gpt2")
if {condition}:
    model = FSDP(model)
model(**batch).loss.backward()
"""


@pytest.mark.parametrize(
    ("condition", "command", "parallel"),
    [
        ("dist.get_world_size() > 1", "torchrun --nproc_per_node 2 t.py", "fsdp1"),
        ('int(os.environ["WORLD_SIZE"]) > 1', "torchrun --nproc_per_node 2 t.py", "fsdp1"),
        ("dist.get_world_size() > 2", "torchrun --nproc_per_node 2 t.py", "ddp"),
        ("dist.get_world_size(group) > 1", "torchrun --nproc_per_node 2 t.py", "ddp"),
        ("dist.get_world_size() > 1", "torchrun --nproc_per_node $GPUS t.py", "ddp"),
    ],
)
def test_the_number_of_processes_that_a_launcher_starts_decides_conditions(
    tmp_path: Path, condition: str, command: str, parallel: str
) -> None:
    program = SHARDED.replace("{condition}", condition)
    found = facts_of(tmp_path, "run.sh", {"run.sh": f"{command}\n", "t.py": program})
    assert found.get("parallel") == parallel


LOOP = """
import argparse
import torch
from accelerate import Accelerator
{imports}
parser = argparse.ArgumentParser()
parser.add_argument("--lr_scheduler", default="constant")
args = parser.parse_args()
accelerator = Accelerator()
{code}
accelerator.backward(loss)
"""
OF_DIFFUSERS = "from diffusers.optimization import get_scheduler"
OF_TRANSFORMERS = "from transformers import get_scheduler, get_cosine_schedule_with_warmup"


@pytest.mark.parametrize(
    ("imports", "code", "schedule"),
    [
        (OF_DIFFUSERS, "get_scheduler(args.lr_scheduler, optimizer=o)", "cosine"),
        (OF_TRANSFORMERS, "get_scheduler(name=args.lr_scheduler, optimizer=o)", "cosine"),
        (OF_TRANSFORMERS, "get_scheduler('linear', o)", "linear"),
        (OF_TRANSFORMERS, "get_cosine_schedule_with_warmup(o, 0, 10)", "cosine"),
        ("from timm.scheduler import get_scheduler", "get_scheduler('step', o)", None),
        (OF_TRANSFORMERS, "get_scheduler(names[0], o)", None),
    ],
)
def test_a_schedule_that_a_program_makes_itself_is_read(
    tmp_path: Path, imports: str, code: str, schedule: str | None
) -> None:
    program = LOOP.replace("{imports}", imports).replace("{code}", code)
    command = "accelerate launch t.py --lr_scheduler cosine\n"
    assert facts_of(tmp_path, "run.sh", {"run.sh": command, "t.py": program}).get("lr_scheduler") == schedule


ADAPTER = """
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments
model = get_peft_model(AutoModelForCausalLM.from_pretrained("gpt2"), LoraConfig(r=8{more}))
Trainer(model=model, args=TrainingArguments("o")).train()
"""


@pytest.mark.parametrize(("more", "dropout"), [("", False), (", lora_dropout=0.1", True), (", **more", None)])
def test_the_dropout_of_an_adapter_is_off_unless_it_is_given(
    tmp_path: Path, more: str, dropout: bool | None
) -> None:
    found = facts_of(tmp_path, "t.py", {"t.py": ADAPTER.replace("{more}", more)})
    assert found.get("lora_dropout") is dropout


ENCODER = """
from sentence_transformers import InputExample, SentenceTransformer, losses
from torch.utils.data import DataLoader
model = SentenceTransformer("a/b")
model.max_seq_length = 256
first = DataLoader(examples, shuffle=True, batch_size=16)
second = DataLoader(pairs, batch_size=32)
loss = losses.MultipleNegativesRankingLoss(model)
model.fit(train_objectives={objectives}{more})
"""


@pytest.mark.parametrize(
    ("objectives", "more", "facts"),
    [
        ("[(first, loss)]", "", {"micro_batch_size": 16, "precision": "fp32", "lr_scheduler": "linear"}),
        ("[(first, loss), (first, other)]", ", use_amp=True", {"micro_batch_size": 16, "precision": "fp16"}),
        ("[(first, loss), (second, loss)]", "", {"micro_batch_size": None}),
        (
            "[(load(), loss)]",
            ", scheduler='WarmupCosine'",
            {"micro_batch_size": None, "lr_scheduler": "cosine"},
        ),
        ("[(first, loss)]", ", **more", {"precision": None, "lr_scheduler": None}),
        ("[(first, loss)]", ", evaluator=e", {"save_strategy": None, "eval_strategy": None}),
    ],
)
def test_an_encoder_is_trained_by_its_own_method(
    tmp_path: Path, objectives: str, more: str, facts: dict[str, Any]
) -> None:
    program = ENCODER.replace("{objectives}", objectives).replace("{more}", more)
    found = facts_of(tmp_path, "t.py", {"t.py": program})
    assert (found["trainer"], found["adapter"]) == ("sentence_transformers", "none")
    assert (found["sequence_length"], found["gradient_checkpointing"]) == (256, False)
    assert {name: found.get(name) for name in facts} == facts


@pytest.mark.parametrize(
    "program",
    [
        "from sentence_transformers import SentenceTransformer\nSentenceTransformer('a/b').encode(texts)\n",
        "from sklearn.linear_model import LogisticRegression\nLogisticRegression().fit(train_objectives=x)\n",
    ],
)
def test_a_program_that_only_computes_embeddings_configures_no_training(tmp_path: Path, program: str) -> None:
    with pytest.raises(InputError):
        facts_of(tmp_path, "t.py", {"t.py": program})


AXOLOTL = """
from axolotl.cli.config import load_cfg
from axolotl.train import train
from axolotl.utils.dict import DictDefault
config = DictDefault(base_model="a/b", micro_batch_size=2, datasets=[{"path": "d"}], {more})
train(cfg=load_cfg(config), dataset_meta=meta)
"""


def test_axolotl_is_given_its_configuration_as_a_dictionary(tmp_path: Path) -> None:
    sharded = 'fsdp_version=2, fsdp_config={"offload_params": False}, bf16=True'
    files = {"t.py": AXOLOTL.replace("{more}", sharded), "run.sh": "torchrun --nproc_per_node 2 t.py\n"}
    found = facts_of(tmp_path, "run.sh", files)
    assert (found["trainer"], found["parallel"], found["precision"]) == ("axolotl", "fsdp2", "bf16")
    assert (found["adapter"], found["frozen_params"], found["micro_batch_size"]) == ("none", False, 2)


def test_a_configuration_that_axolotl_reads_from_a_file_says_nothing_in_the_program(tmp_path: Path) -> None:
    program = AXOLOTL.replace("load_cfg(config)", "load_cfg(path)").replace("{more}", "adapter='lora'")
    files = {"t.py": program, "run.sh": "torchrun --nproc_per_node 2 t.py\n"}
    assert "adapter" not in facts_of(tmp_path, "run.sh", files)


GPT_OSS = """
from transformers import AutoModelForCausalLM, Mxfp4Config, Trainer, TrainingArguments
model = AutoModelForCausalLM.from_pretrained("openai/gpt-oss-20b", quantization_config=Mxfp4Config({given}))
Trainer(model=model, args=TrainingArguments("o")).train()
"""


@pytest.mark.parametrize(("given", "quantization"), [("dequantize=True", "none"), ("", "mxfp4")])
def test_a_checkpoint_in_mxfp4_is_loaded_as_it_is_or_in_half_precision(
    tmp_path: Path, given: str, quantization: str
) -> None:
    found = facts_of(tmp_path, "t.py", {"t.py": GPT_OSS.replace("{given}", given)})
    assert found.get("quantization") == quantization


@pytest.mark.parametrize(("kwargs", "quantization"), [("true", "none"), ("false", "mxfp4")])
def test_axolotl_dequantises_a_checkpoint_where_it_is_told_to(
    tmp_path: Path, kwargs: str, quantization: str
) -> None:
    text = "base_model: openai/gpt-oss-20b\nmicro_batch_size: 1\nmodel_quantization_config: Mxfp4Config\n"
    text += f"datasets:\n  - path: d\nmodel_quantization_config_kwargs:\n  dequantize: {kwargs}\n"
    assert facts_of(tmp_path, "a.yaml", {"a.yaml": text}).get("quantization") == quantization


MIXED = """
import torch
from accelerate import Accelerator
from transformers import AutoModel
accelerator = Accelerator()
model = AutoModel.from_pretrained("a/b")
{block}
accelerator.backward(loss)
"""


@pytest.mark.parametrize(
    ("block", "precision"),
    [
        ("with torch.cuda.amp.autocast():\n    images = pipeline(prompt).images", "fp32"),
        ("with torch.no_grad(), torch.cuda.amp.autocast():\n    score = model(x)", "fp32"),
        ("with torch.no_grad():\n    with torch.cuda.amp.autocast():\n        score = model(x)", "fp32"),
        ("with torch.cuda.amp.autocast():\n    loss = model(x).loss", "fp16"),
        ("with torch.cuda.amp.autocast():\n    loss = criterion(generate(x))", "fp16"),
    ],
)
def test_what_is_computed_without_gradients_does_not_say_the_precision(
    tmp_path: Path, block: str, precision: str
) -> None:
    files = {"t.py": MIXED.replace("{block}", block), "run.sh": "python t.py\n"}
    assert facts_of(tmp_path, "run.sh", files).get("precision") == precision


LAYERS = """
import deepspeed
import torch
import torch.utils.checkpoint as ckpt
from deepspeed.pipe import LayerSpec, PipelineModule
class Layer(torch.nn.Module):
    def forward(self, x):
        return {returned}
model = PipelineModule(layers=[LayerSpec(Layer)], num_stages=2)
engine, *_ = deepspeed.initialize(model=model, config="ds.json")
engine.train_batch()
"""


@pytest.mark.parametrize(
    ("returned", "checkpointing"),
    [("ckpt.checkpoint(self.inner, x, use_reentrant=False)", None), ("self.inner(x)", False)],
)
def test_layers_that_recompute_their_outputs_leave_checkpointing_open(
    tmp_path: Path, returned: str, checkpointing: bool | None
) -> None:
    config = (
        '{"zero_optimization": {"stage": 0}, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}}'
    )
    files = {"t.py": LAYERS.replace("{returned}", returned), "ds.json": config, "run.sh": "deepspeed t.py\n"}
    assert facts_of(tmp_path, "run.sh", files).get("gradient_checkpointing") is checkpointing


FROZEN = """
from transformers import AutoModelForVision2Seq, Trainer, TrainingArguments
model = AutoModelForVision2Seq.from_pretrained("a/b")
{freezing}
Trainer(model=model, args=TrainingArguments("o", bf16=True)).train()
"""
LOOP_OVER = "for p in {}.parameters():\n    p.requires_grad = False\n"


@pytest.mark.parametrize(
    ("freezing", "only_encoders"),
    [
        (LOOP_OVER.format("model.visual"), True),
        ("model.model.vision_tower.requires_grad_(False)", True),
        (LOOP_OVER.format("model.visual") + LOOP_OVER.format("model.audio_tower"), True),
        ("def freeze(part):\n    part.requires_grad_(False)\nfreeze(model.vision_model)", True),
        (LOOP_OVER.format("model.visual") + LOOP_OVER.format("model.lm_head"), None),
        (LOOP_OVER.format("model.vision_projector"), None),
        (LOOP_OVER.format("model.get_encoder()"), None),
        (LOOP_OVER.format("model"), None),
        ("model.visual.requires_grad_(False)\nif freezes():\n    model.lm_head.requires_grad_(False)", None),
        ("model.enable_input_require_grads()\nmodel.visual.requires_grad_(False)", None),
        (
            "for n, p in model.visual.named_parameters():\n    if 'blocks' in n:\n        p.requires_grad = False",
            None,
        ),
    ],
)
def test_only_encoders_are_frozen_where_nothing_else_is_and_no_gradient_reaches_them(
    tmp_path: Path, freezing: str, only_encoders: bool | None
) -> None:
    found = facts_of(tmp_path, "t.py", {"t.py": FROZEN.replace("{freezing}", freezing)})
    assert found["frozen_params"] is True
    assert found.get("frozen_encoders_only") is only_encoders


@pytest.mark.parametrize(("given", "length"), [("max_length=2048", 2048), ("max_prompt_length=512", None)])
def test_a_trainer_of_older_releases_is_given_the_length_itself(
    tmp_path: Path, given: str, length: int | None
) -> None:
    program = "from transformers import AutoModelForCausalLM, TrainingArguments\nfrom trl import DPOTrainer\n"
    program += "model = AutoModelForCausalLM.from_pretrained('gpt2')\n"
    program += f"DPOTrainer(model, args=TrainingArguments('o', bf16=True), {given}).train()\n"
    assert facts_of(tmp_path, "t.py", {"t.py": program}).get("sequence_length") == length


@pytest.mark.parametrize(
    ("command", "method", "dropout"),
    [
        ("deepspeed --module openrlhf.cli.train_sft --lora_rank 8", "sft", False),
        ("deepspeed --module openrlhf.cli.train_dpo --lora_rank 8 --lora_dropout 0.1", "dpo", True),
        ("python -m openrlhf.cli.train_ppo_ray --vllm_num_engines 2", "ppo", None),
        ("python -m openrlhf.cli.train_ppo_ray --vllm_num_engines 2 --advantage_estimator rloo", None, None),
        ("deepspeed --module openrlhf.cli.train_kd", None, None),
    ],
)
def test_the_command_of_openrlhf_says_what_it_trains(
    tmp_path: Path, command: str, method: str | None, dropout: bool | None
) -> None:
    text = f"{command} --pretrain m --zero_stage 2 --micro_train_batch_size 1 --bf16\n"
    found = facts_of(tmp_path, "run.sh", {"run.sh": text})
    assert (found["trainer"], found.get("method"), found.get("lora_dropout")) == ("openrlhf", method, dropout)


LENGTHS = """
import torch
from transformers import TrainingArguments
from trl import SFTTrainer
from unsloth import FastLanguageModel
length = 2048
model, tokenizer = FastLanguageModel.from_pretrained("a/b", max_seq_length=length)
model = FastLanguageModel.get_peft_model(model, r=8)
if torch.cuda.get_device_properties(0).total_memory < 50e9:
    length = {shorter}
SFTTrainer(model=model, args=TrainingArguments("o"){given}).train()
"""


@pytest.mark.parametrize(
    ("shorter", "given", "length"),
    [
        ("1024", ", max_seq_length=length", None),
        ("1024", "", 2048),
        ("2048", ", max_seq_length=512", 512),
    ],
)
def test_the_trainer_says_the_length_and_not_the_model_that_it_is_given(
    tmp_path: Path, shorter: str, given: str, length: int | None
) -> None:
    program = LENGTHS.replace("{shorter}", shorter).replace("{given}", given)
    assert facts_of(tmp_path, "t.py", {"t.py": program}).get("sequence_length") == length


@pytest.mark.parametrize(
    ("name", "optimizer"), [("AdamW8bit", "adamw_8bit"), ("adamw", "adamw"), ("Prodigy", None)]
)
def test_the_optimizer_of_kohyas_scripts_has_the_name_of_transformers(
    tmp_path: Path, name: str, optimizer: str | None
) -> None:
    text = "accelerate launch sdxl_train_network.py --network_module networks.lora --network_dim 8"
    text += f" --optimizer_type {name} --cache_latents --pretrained_model_name_or_path m\n"
    assert facts_of(tmp_path, "run.sh", {"run.sh": text}).get("optimizer") == optimizer
