"""Train as a draw of trainings.py says: a tiny model, its settings, and whatever releases are installed.

It runs in the target's interpreter. Arguments that a release renamed are passed by the name that it has, as
a user of that release would; what a release does not have is left out.
"""

import inspect
import json
import os

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    AutoModelForCausalLM,
    DataCollatorForLanguageModeling,
    PreTrainedTokenizerFast,
    Trainer,
    TrainingArguments,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

SETTINGS = json.loads(os.environ["DRAWN_TRAINING"])
SIZES = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "num_local_experts": 4,
    "ffn_dim": 32,
    "word_embed_proj_dim": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 1,
}
TEXTS = ["w1 w2 w3 w4 w5 w6 <eos>", "w3 w4 w5 <eos>", "w9 w8 w7 w6 w5 w4 w3 w2 <eos>", "w2 w2 <eos>"] * 4


def has(function, name):
    """Return whether a function has a parameter."""
    return name in inspect.signature(function).parameters


def accepted(function, **values):
    """Return the arguments that a function has."""
    return {name: value for name, value in values.items() if has(function, name)}


def tokenizer():
    """Return a tokenizer of words, `w0` to `w60`."""
    words = ["<pad>", "<eos>", "<unk>", *(f"w{number}" for number in range(61))]
    raw = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))  # noqa: S106
    raw.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    special = {"pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=raw, model_max_length=32, **special)


def model(words):
    """Return the model, loaded from a folder as users load one."""
    AutoModelForCausalLM.from_config(CONFIG_MAPPING[SETTINGS["model_type"]](**SIZES)).save_pretrained("base")
    words.save_pretrained("base")
    loading = {"torch_dtype": getattr(torch, SETTINGS["base_dtype"])}
    if SETTINGS["attention"]:
        loading["attn_implementation"] = SETTINGS["attention"]
    loaded = AutoModelForCausalLM.from_pretrained("base", **loading)
    loaded.config.use_cache = not SETTINGS["gradient_checkpointing"]
    return loaded


def adapter():
    """Return the configuration of the adapter; None for full fine-tuning."""
    if SETTINGS["adapter"] == "none":
        return None
    import peft

    on = {"target_modules": ["q_proj", "v_proj"], "task_type": "CAUSAL_LM"}
    if SETTINGS["modules_to_save"]:
        on["modules_to_save"] = ["lm_head"]
    virtual = {"task_type": "CAUSAL_LM", "num_virtual_tokens": 4}
    norms = {"task_type": "CAUSAL_LM", "target_modules": ["input_layernorm", "norm"]}
    kinds = {
        "lora": ("LoraConfig", {"r": 4, "lora_alpha": 8, "lora_dropout": 0.1, **on}),
        "dora": ("LoraConfig", {"r": 4, "use_dora": True, **on}),
        "ia3": ("IA3Config", {"feedforward_modules": [], **on}),
        "prompt": ("PromptTuningConfig", virtual),
        "prefix": ("PrefixTuningConfig", virtual),
        "p_tuning": ("PromptEncoderConfig", {"encoder_hidden_size": 16, **virtual}),
        "vera": ("VeraConfig", {"r": 4, **on}),
        "oft": ("OFTConfig", {"oft_block_size": 8, "r": 0, **on}),
        "boft": ("BOFTConfig", {"boft_block_size": 4, **on}),
        "adalora": ("AdaLoraConfig", {"total_step": 10, **on}),
        "loha": ("LoHaConfig", {"r": 4, **on}),
        "lokr": ("LoKrConfig", {"r": 4, **on}),
        "hra": ("HRAConfig", {"r": 4, **on}),
        "fourierft": ("FourierFTConfig", {"n_frequency": 10, **on}),
        "vblora": ("VBLoRAConfig", {"vector_length": 8, "num_vectors": 16, **on}),
        "ln_tuning": ("LNTuningConfig", norms),
        "randlora": ("RandLoraConfig", {"r": 4, **on}),
        "miss": ("MissConfig", {"r": 4, **on}),
        "shira": ("ShiraConfig", {"r": 4, **on}),
    }
    name, values = kinds[SETTINGS["adapter"]]
    kind = getattr(peft, name)
    return kind(**accepted(kind, **values))


def arguments(kind):
    """Return the arguments of the trainer that the settings ask for."""
    values = {
        "output_dir": "out",
        "max_steps": 2,
        "per_device_train_batch_size": 2,
        "report_to": "none",
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "save_steps": 1,
        "gradient_accumulation_steps": SETTINGS["gradient_accumulation_steps"],
        "optim": SETTINGS["optimizer"],
        "lr_scheduler_type": SETTINGS["lr_scheduler"],
        "gradient_checkpointing": SETTINGS["gradient_checkpointing"],
        "save_strategy": SETTINGS["save_strategy"],
        **accepted(kind, use_cpu=True),
        "eval_strategy" if has(kind, "eval_strategy") else "evaluation_strategy": SETTINGS["eval_strategy"],
    }
    if SETTINGS["eval_strategy"] == "steps":
        values["eval_steps"] = 1
    schedules = {
        "cosine_with_min_lr": {"min_lr": 1e-4},
        "warmup_stable_decay": {"num_stable_steps": 1, "num_decay_steps": 1},
    }
    if SETTINGS["lr_scheduler"] in schedules:
        values["lr_scheduler_kwargs"] = schedules[SETTINGS["lr_scheduler"]]
    if SETTINGS["gradient_checkpointing"] and SETTINGS["use_reentrant"] is not None:
        values["gradient_checkpointing_kwargs"] = {"use_reentrant": SETTINGS["use_reentrant"]}
    options = {
        "bf16": SETTINGS["precision"] == "bf16",
        "load_best_model_at_end": SETTINGS["load_best_model"],
        "neftune_noise_alpha": SETTINGS["neftune"],
        "label_smoothing_factor": SETTINGS["label_smoothing"],
        "dataloader_num_workers": SETTINGS["dataloader_workers"],
        "auto_find_batch_size": SETTINGS["auto_find_batch_size"],
        "torch_compile": SETTINGS["torch_compile"],
    }
    values.update({name: value for name, value in options.items() if value})
    if SETTINGS["group_by_length"]:
        old = has(kind, "group_by_length")
        values.update({"group_by_length": True} if old else {"train_sampling_strategy": "group_by_length"})
    return values


def of_transformers(words):
    """Return a Trainer of transformers."""
    loaded, settings = model(words), adapter()
    if settings is not None:
        from peft import get_peft_model

        loaded = get_peft_model(loaded, settings)
        if SETTINGS["gradient_checkpointing"]:
            loaded.enable_input_require_grads()
    rows = [{name: words(text)[name] for name in ("input_ids", "attention_mask")} for text in TEXTS]
    return Trainer(
        model=loaded,
        args=TrainingArguments(**arguments(TrainingArguments)),
        train_dataset=rows,
        eval_dataset=rows[:4],
        data_collator=DataCollatorForLanguageModeling(words, mlm=False),
    )


def of_trl(words):
    """Return a trainer of TRL, for supervised training or DPO."""
    import trl
    from datasets import Dataset

    name = {"sft": "SFT", "dpo": "DPO"}[SETTINGS["method"]]
    kind, of = getattr(trl, f"{name}Trainer"), getattr(trl, f"{name}Config", TrainingArguments)
    if SETTINGS["method"] == "sft":
        rows = Dataset.from_dict({"text": TEXTS})
        own = {"packing": SETTINGS["packing"], "dataset_text_field": "text"}
        own |= {"max_length": 16, "max_seq_length": 16}
    else:
        rows = Dataset.from_dict(
            {"prompt": ["w1 w2 "] * 8, "chosen": ["w3 w4"] * 8, "rejected": ["w5 w6"] * 8}
        )
        own = {"max_length": 16, "max_prompt_length": 8, "remove_unused_columns": False}
    values = {**arguments(of), **accepted(of, **own)}
    here = {name: value for name, value in own.items() if name not in values}
    named = "processing_class" if has(kind, "processing_class") else "tokenizer"
    return kind(
        model=model(words),
        args=of(**values),
        train_dataset=rows,
        eval_dataset=rows,
        peft_config=adapter(),
        **{named: words},
        **accepted(kind, **here),
    )


trainer = {"transformers": of_transformers, "trl": of_trl}[SETTINGS["trainer"]](tokenizer())
trainer.train()
if SETTINGS["resume"] and SETTINGS["save_strategy"] == "steps":
    trainer.args.max_steps = 3
    trainer.train(resume_from_checkpoint="out/checkpoint-1")
trainer.save_model("final")
