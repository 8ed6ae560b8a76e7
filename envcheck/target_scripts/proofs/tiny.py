"""Make models and train them within seconds on the CPU, for programs of proofs: `from tiny import llama`."""


def llama(**settings):
    """Return a Llama with random weights, of one layer, 2 heads, hidden size 16 and 32 tokens."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1}
    return LlamaForCausalLM(LlamaConfig(**{**sizes, "num_attention_heads": 2, **settings}))


def lora(model, **settings):
    """Return a model with LoRA of rank 8 on the query projections."""
    from peft import LoraConfig, get_peft_model

    return get_peft_model(
        model, LoraConfig(**{"target_modules": ["q_proj"], "task_type": "CAUSAL_LM", **settings})
    )


def rows(count=4, length=8):
    """Return `count` examples with `length` tokens: input_ids, attention_mask and labels as lists."""
    tokens = [each % 32 for each in range(length)]
    row = {"input_ids": tokens, "attention_mask": [1] * length, "labels": tokens}
    return [dict(row) for _ in range(count)]


def arguments(**settings):
    """Return TrainingArguments for one step, which write nothing and report to nobody."""
    from transformers import TrainingArguments

    settings = {
        "max_steps": 1,
        "per_device_train_batch_size": 2,
        "report_to": [],
        "save_strategy": "no",
        **settings,
    }
    return TrainingArguments(output_dir="out", **settings)


def tokenizer():
    """Return a fast tokenizer for 32 words, `w0` to `w31`; the first one pads and ends."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    special = {"pad_token": "w0", "eos_token": "w0", "unk_token": "w1"}
    known = {f"w{each}": each for each in range(32)}
    words = Tokenizer(models.WordLevel(known, unk_token=special["unk_token"]))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=words, **special)


def train(model, examples=None, callbacks=None, eval_dataset=None, **settings):
    """Train one step with the Trainer of transformers, and return the Trainer; raise what it raises."""
    from transformers import Trainer

    trainer = Trainer(
        model=model,
        args=arguments(**settings),
        train_dataset=examples or rows(),
        eval_dataset=eval_dataset,
        callbacks=callbacks,
    )
    trainer.train()
    return trainer


def alone():
    """Make this process a group of one, as DeepSpeed and FSDP expect, unless torch's launcher started it."""
    import os
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    for name, value in group.items():
        os.environ.setdefault(name, str(value))


def zero(stage, partitioning=None, **settings):
    """Return a DeepSpeed configuration for this stage of ZeRO, with settings in its block and beside it.

    DeepSpeed is imported for it. No kernel is compiled, which would take minutes: in place of each stands an
    object that takes every call and does nothing, so a step by a kernel leaves the weights as they are.
    """
    import os
    from unittest import mock

    alone()
    os.environ.pop("ACCELERATE_USE_CPU", None)  # with it, accelerate does without DeepSpeed
    names_of_older_torch()
    import deepspeed.ops
    from deepspeed.ops.op_builder.builder import OpBuilder

    getattr(deepspeed.ops, "__compatible_ops__", {})["deepspeed_shm_comm"] = False
    OpBuilder.jit_load = mock.MagicMock()
    block = {"stage": stage, **(partitioning or {})}
    return {"train_micro_batch_size_per_gpu": 2, "zero_optimization": block, **settings}


def engine(model, configuration, **settings):
    """Return the engine that DeepSpeed makes of a model, after one step."""
    import deepspeed
    import torch

    settings = settings or {"model_parameters": [each for each in model.parameters() if each.requires_grad]}
    made = deepspeed.initialize(model=model, config=configuration, **settings)[0]
    batch = torch.arange(16).reshape(2, 8)
    made.backward(made(input_ids=batch, labels=batch).loss)
    made.step()
    return made


def names_of_older_torch():
    """Give torch the private names back that DeepSpeed before 0.14.4 imports, and torch 2.4 removed."""
    import logging

    from torch.distributed.elastic.agent.server import api

    api.log = logging.getLogger("elastic")
    api._get_socket_with_port = None


def fsdp(model, **settings):
    """Return a model that FSDP1 wraps on the CPU: each layer and adapter module in a unit."""
    import torch
    from peft.utils.other import fsdp_auto_wrap_policy
    from torch.distributed.fsdp import FullyShardedDataParallel, wrap

    alone()
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo")
    try:
        policy = fsdp_auto_wrap_policy(model)
    except AttributeError:  # an old PEFT, which asks accelerate for a method that moved; layers alone then
        layers = {type(each) for each in model.modules() if type(each).__name__.endswith("DecoderLayer")}
        policy = wrap.ModuleWrapPolicy(layers)
    cpu = torch.device("cpu")
    return FullyShardedDataParallel(model, auto_wrap_policy=policy, device_id=cpu, **settings)


def step(model, optimizer=None):
    """Train one step of AdamW, or of another class of optimizers, in a loop without a trainer."""
    import torch

    batch = torch.arange(16).reshape(2, 8)
    trained = [each for each in model.parameters() if each.requires_grad]
    made = (optimizer or torch.optim.AdamW)(trained, lr=0.001)
    model(input_ids=batch, labels=batch).loss.backward()
    made.step()
