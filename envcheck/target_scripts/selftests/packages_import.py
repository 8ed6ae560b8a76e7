"""The packages of the stack can be imported together.

Each package is imported in a process of its own, beside the torch that is there, and the names that training
scripts take from it are looked up, because transformers and PEFT import most of themselves only then.
Seconds: 1 to 15 a package, a cold disk more. Memory: below 1 GiB.

A failure: the first line of a training script raises. DeepSpeed 0.14.0 beside torch 2.4 is one: each is
recommended somewhere, and no metadata says that they exclude one another.
"""

import importlib
import os

LEVEL = 2
NEEDS = {"pkg.torch": "present"}
IMPORTS = ("torch",)
SECONDS = 60
VARIANTS = {
    "transformers": {"needs": {"pkg.transformers": "present"}},
    "peft": {"needs": {"pkg.peft": "present"}},
    "deepspeed": {"needs": {"pkg.deepspeed": "present"}},
    "accelerate": {"needs": {"pkg.accelerate": "present"}},
    "trl": {"needs": {"pkg.trl": "present"}},
}

_NAMES = {
    "transformers": ("AutoModelForCausalLM", "LlamaForCausalLM", "Trainer", "TrainingArguments"),
    "peft": ("LoraConfig", "get_peft_model"),
    "deepspeed": ("initialize", "init_distributed"),
    "accelerate": ("Accelerator",),
    "trl": ("SFTTrainer", "SFTConfig"),
}


def run(stage, variant):
    # As a training script imports it: DeepSpeed finds its accelerator by itself.
    os.environ.pop("DS_ACCELERATOR", None)
    with stage.call(f"import {variant}"):
        module = importlib.import_module(variant)
    for name in _NAMES[variant]:
        with stage.call(f"from {variant} import {name}"):
            if not hasattr(module, name):
                stage.fail(f"{variant} has no {name}")
