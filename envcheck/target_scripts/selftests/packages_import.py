"""The packages of the stack can be imported together.

Each package is imported in a separate process, together with the installed torch. The names that training
scripts import from it are looked up too, because transformers and PEFT load most of their modules only then.
Seconds: 1 to 15 a package, more on a cold disk. Memory: below 1 GiB.

A failure means that the first line of a training script raises. DeepSpeed 0.14.0 with torch 2.4 is an
example: each is recommended somewhere, and no metadata says that they exclude each other.
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


def run(test, variant):
    # A training script does not set it: DeepSpeed detects its accelerator.
    os.environ.pop("DS_ACCELERATOR", None)
    with test.call(f"import {variant}"):
        module = importlib.import_module(variant)
    for name in _NAMES[variant]:
        with test.call(f"from {variant} import {name}"):
            if not hasattr(module, name):
                test.fail(f"{variant} has no {name}")
