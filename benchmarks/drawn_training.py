"""Train as a draw of trainings.py says: a tiny model, its settings, and whatever releases are installed.

It runs in the target's interpreter. Arguments that a release renamed are passed by the name that it has, as
a user of that release would; what a release does not have is left out.
"""

import drawn_ranks
import torch
import transformers
from drawn_models import (
    SETTINGS,
    TEXTS,
    accepted,
    adapted,
    adapter,
    has,
    model,
    quantisation,
    rows,
    tokenizer,
    write,
)

ZERO_3_WHILE_LOADING = SETTINGS["parallel"] == "zero3" and SETTINGS["zero3_init"]
IN_PROMPTS = {"dpo", "orpo"}


def arguments(kind):
    """Return the arguments of the trainer that the settings ask for."""
    values = {
        "output_dir": "out",
        "max_steps": 2,
        "per_device_train_batch_size": 2,
        "per_device_eval_batch_size": 2,
        "report_to": SETTINGS["report_to"],
        "learning_rate": 1e-3,
        "logging_steps": 1,
        "max_grad_norm": 1.0 if SETTINGS["gradient_clipping"] else 0.0,
        "save_steps": 1,
        "gradient_accumulation_steps": SETTINGS["gradient_accumulation_steps"],
        "optim": SETTINGS["optimizer"],
        "lr_scheduler_type": SETTINGS["lr_scheduler"],
        "gradient_checkpointing": SETTINGS["gradient_checkpointing"],
        "save_strategy": SETTINGS["save_strategy"],
        "eval_strategy" if has(kind, "eval_strategy") else "evaluation_strategy": SETTINGS["eval_strategy"],
    }
    if SETTINGS["parallel"] in ("none", "ddp"):
        values |= accepted(kind, use_cpu=True)
    if SETTINGS["optimizer"] == "galore_adamw":
        values["optim_target_modules"] = ["q_proj", "v_proj"]
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
        "save_only_model": SETTINGS["save_only_model"],
        "neftune_noise_alpha": SETTINGS["neftune"],
        "label_smoothing_factor": SETTINGS["label_smoothing"],
        "dataloader_num_workers": SETTINGS["dataloader_workers"],
        "dataloader_persistent_workers": SETTINGS["persistent_workers"],
        "auto_find_batch_size": SETTINGS["auto_find_batch_size"],
        "torch_compile": SETTINGS["torch_compile"],
        # inductor's C++ takes minutes to compile
        "torch_compile_backend": "aot_eager" if SETTINGS["torch_compile"] else "",
    }
    # TRL's configurations have bf16 unless it is said.
    values.update({name: value for name, value in options.items() if value or name == "bf16"})
    if SETTINGS["group_by_length"]:
        old = has(kind, "group_by_length")
        values.update({"group_by_length": True} if old else {"train_sampling_strategy": "group_by_length"})
    if SETTINGS["family"] == "vision":
        values["remove_unused_columns"] = False
    if SETTINGS["family"] == "seq2seq" and SETTINGS["generate"]:
        values.update(predict_with_generate=True, generation_max_length=6)
    return values


def model_and_arguments(words, kind, own):
    """Return the model and the trainer's arguments, in the order that lets ZeRO-3 partition it or not."""
    values = {**arguments(kind), **own}
    if ZERO_3_WHILE_LOADING:
        made = kind(**values, **drawn_ranks.trainer_arguments(None))
        return model(words, quantisation()), made
    loaded = model(words, quantisation())
    return loaded, kind(**values, **drawn_ranks.trainer_arguments(loaded))


# --- trainers ---------------------------------------------------------------------------------------


def of_transformers(words):
    """Return a Trainer of transformers."""
    first = "Seq2Seq" if SETTINGS["family"] == "seq2seq" else ""
    of, kind = (getattr(transformers, f"{first}{name}") for name in ("TrainingArguments", "Trainer"))
    loaded, made = model_and_arguments(words, of, {})
    loaded = adapted(loaded)
    examples, collator = rows(words, loaded)
    named = "processing_class" if has(transformers.Trainer, "processing_class") else "tokenizer"
    return kind(
        model=loaded,
        args=made,
        train_dataset=examples,
        eval_dataset=examples[:4],
        data_collator=collator,
        **({named: words} if SETTINGS["family"] == "seq2seq" else {}),
    )


def in_trl(method):
    """Return how TRL's classes of a method begin."""
    return "Reward" if method == "reward" else method.upper()


def found_in_trl(name):
    """Return a class of TRL, which keeps some trainers among experiments."""
    import importlib

    import trl

    if hasattr(trl, name):
        return getattr(trl, name)
    folder = name.removesuffix("Trainer").removesuffix("Config").lower()
    return getattr(importlib.import_module(f"trl.experimental.{folder}"), name)


def preferences(words):
    """Return the examples of a method of TRL."""
    from datasets import Dataset

    method = SETTINGS["method"]
    prompts, good, bad = ["w1 w2 "] * 8, ["w3 w4"] * 8, ["w5 w6"] * 8
    if method == "sft":
        return Dataset.from_dict({"text": TEXTS})
    if method in IN_PROMPTS:
        return Dataset.from_dict({"prompt": prompts, "chosen": good, "rejected": bad})
    if method == "kto":
        return Dataset.from_dict({"prompt": prompts, "completion": good, "label": [True, False] * 4})
    if method in ("grpo", "rloo"):
        return Dataset.from_dict({"prompt": prompts})
    if tuple(map(int, __import__("trl").__version__.split(".")[:2])) >= (0, 13):
        return Dataset.from_dict({"chosen": good, "rejected": bad})
    columns = {}
    for side, texts in (("chosen", good), ("rejected", bad)):
        read = words(texts)
        columns |= {f"{name}_{side}": read[name] for name in ("input_ids", "attention_mask")}
    return Dataset.from_dict(columns)


def rewarded(completions, **_):
    """Return a reward for each completion: the longer, the better."""
    return [float(len(each)) for each in completions]


def of_trl(words):
    """Return a trainer of TRL."""
    method = SETTINGS["method"]
    name = in_trl(method)
    kind = found_in_trl(f"{name}Trainer")
    try:
        of = found_in_trl(f"{name}Config")
    except (AttributeError, ImportError):  # before 0.9, some trainers took TrainingArguments
        of = transformers.TrainingArguments
    own = {
        "sft": {"packing": SETTINGS["packing"], "dataset_text_field": "text", "max_length": 16}
        | {"max_seq_length": 16},
        "dpo": {"max_length": 16, "max_prompt_length": 8, "remove_unused_columns": False},
        "orpo": {"max_length": 16, "max_prompt_length": 8, "remove_unused_columns": False},
        "kto": {"max_length": 16, "max_prompt_length": 8, "remove_unused_columns": False},
        "reward": {"max_length": 16, "remove_unused_columns": False},
        "grpo": {"num_generations": 2, "max_completion_length": 4, "max_prompt_length": 8},
        "rloo": {"num_generations": 2, "max_completion_length": 4, "max_prompt_length": 8},
    }[method]
    loaded, made = model_and_arguments(words, of, accepted(of, **own))
    here = {name: value for name, value in own.items() if not has(of, name)}
    if method in ("grpo", "rloo"):
        here["reward_funcs"] = rewarded
    if method in ("dpo", "kto") and SETTINGS["parallel"] == "zero3" and SETTINGS["adapter"] == "none":
        here["ref_model"] = model(words)  # which TRL asks of its user then
    if method == "reward":
        loaded.config.pad_token_id = words.pad_token_id
    examples = preferences(words)
    named = "tokenizer" if has(kind, "tokenizer") else "processing_class"
    return kind(
        model=loaded,
        args=made,
        train_dataset=examples,
        eval_dataset=examples,
        peft_config=adapter(),
        **{named: words},
        **accepted(kind, **here),
    )


# --- a loop of its own on accelerate ----------------------------------------------------------------


def accelerator():
    """Return the Accelerator, with the plugin of DeepSpeed or the variables of FSDP."""
    from accelerate import Accelerator, DeepSpeedPlugin

    steps = SETTINGS["gradient_accumulation_steps"]
    values = {"mixed_precision": {"fp32": "no", "bf16": "bf16"}[SETTINGS["precision"]]}
    values["gradient_accumulation_steps"] = steps
    if drawn_ranks.STAGE:
        plugin = {"zero_stage": drawn_ranks.STAGE, "gradient_accumulation_steps": steps}
        plugin |= {"gradient_clipping": 1.0, "zero3_init_flag": SETTINGS["zero3_init"]}
        plugin["zero3_save_16bit_model"] = SETTINGS["gather_on_save"]
        values["deepspeed_plugin"] = DeepSpeedPlugin(**plugin)
    elif SETTINGS["parallel"] in ("none", "ddp"):
        values["cpu"] = True
    return Accelerator(**values)


def by_accelerate(words):
    """Train in a loop of its own on accelerate."""
    from torch.utils.data import DataLoader

    if SETTINGS["parallel"].startswith("fsdp"):
        loaded = model(words, quantisation())
        drawn_ranks.set_variables(loaded)
        accelerate = accelerator()
    else:
        accelerate = accelerator()
        loaded = model(words, quantisation())
    if SETTINGS["gradient_checkpointing"]:
        reentrant = SETTINGS["use_reentrant"]
        how = {} if reentrant is None else {"gradient_checkpointing_kwargs": {"use_reentrant": reentrant}}
        loaded.gradient_checkpointing_enable(**how)
    loaded = adapted(loaded)
    examples, collator = rows(words, loaded)
    loader = DataLoader(examples, batch_size=2, collate_fn=collator)
    trained = [each for each in loaded.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-3)
    scheduler = transformers.get_scheduler("linear", optimizer, 0, 10)
    loaded, optimizer, loader, scheduler = accelerate.prepare(loaded, optimizer, loader, scheduler)
    loaded.train()
    for number, batch in enumerate(loader):
        with accelerate.accumulate(loaded):
            accelerate.backward(loaded(**batch).loss)
            if accelerate.sync_gradients and SETTINGS["gradient_clipping"]:
                accelerate.clip_grad_norm_(loaded.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
        if number == 3:  # noqa: PLR2004 - enough
            break
    if SETTINGS["save_strategy"] == "steps":
        accelerate.save_state("state")
        if SETTINGS["resume"]:
            accelerate.load_state("state")
    states = {}
    if drawn_ranks.STAGE != 3 or SETTINGS["gather_on_save"]:  # noqa: PLR2004 - the stage
        states["state_dict"] = accelerate.get_state_dict(loaded)
    accelerate.unwrap_model(loaded).save_pretrained(
        "final", is_main_process=accelerate.is_main_process, **states
    )


def prepare():
    """Do once what does not depend on the process: import, and write the model's folder."""
    drawn_ranks.prepare()
    write(tokenizer())
    if SETTINGS["adapter"] != "none":
        import peft  # noqa: F401
    if SETTINGS["trainer"] == "trl":
        found_in_trl(f"{in_trl(SETTINGS['method'])}Trainer")


def train_and_compare(trainer):
    """Train, and raise if that changed no weight, which no library says."""
    before = [each.detach().clone() for each in trainer.model.parameters() if each.requires_grad]
    trainer.train()
    after = [each for each in trainer.model.parameters() if each.requires_grad]
    if len(before) == len(after) and all(map(torch.equal, before, after)):
        raise RuntimeError("no weight changed")


def main():
    """Train, resume, and save the model."""
    words = tokenizer()
    if SETTINGS["trainer"] == "accelerate":
        by_accelerate(words)
        return
    make = {"transformers": of_transformers, "trl": of_trl}[SETTINGS["trainer"]]
    trainer = make(words)
    if SETTINGS["parallel"] == "none" and SETTINGS["method"] not in ("grpo", "rloo"):
        train_and_compare(trainer)
    else:
        trainer.train()
    if SETTINGS["resume"] and SETTINGS["save_strategy"] == "steps":
        trainer = make(tokenizer())  # as in a new process
        trainer.args.max_steps = 3
        trainer.train(resume_from_checkpoint="out/checkpoint-1")
    trainer.save_model("final")
