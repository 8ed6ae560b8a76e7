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
    "sentence-transformers": {"needs": {"pkg.sentence-transformers": "present"}},
    "llamafactory": {"needs": {"pkg.llamafactory": "present"}},
    "axolotl": {"needs": {"pkg.axolotl": "present"}},
    "ms-swift": {"needs": {"pkg.ms-swift": "present"}},
    "verl": {"needs": {"pkg.verl": "present"}},
    "openrlhf": {"needs": {"pkg.openrlhf": "present"}},
    "vllm": {"needs": {"pkg.vllm": "present"}},
    # It raises where it finds no GPU.
    "unsloth": {"needs": {"pkg.unsloth": "present"}, "devices": ("cuda",)},
}

_NAMES = {
    "transformers": ("AutoModelForCausalLM", "LlamaForCausalLM", "Trainer", "TrainingArguments"),
    "peft": ("LoraConfig", "get_peft_model"),
    "deepspeed": ("initialize", "init_distributed"),
    "accelerate": ("Accelerator",),
    "trl": ("SFTTrainer", "SFTConfig"),
    "sentence-transformers": ("SentenceTransformer", "SentenceTransformerTrainer"),
    "vllm": ("LLM", "SamplingParams"),
    "openrlhf": ("train",),
}
_MODULES = {
    "ms-swift": "swift",
    "openrlhf": "openrlhf.cli.train_ppo_ray",  # the package itself imports nothing
    "sentence-transformers": "sentence_transformers",
}


def run(test, variant):
    # A training script does not set it: DeepSpeed detects its accelerator.
    os.environ.pop("DS_ACCELERATOR", None)
    name = _MODULES.get(variant, variant)
    with test.call(f"import {name}"):
        module = importlib.import_module(name)
    for offered in _NAMES.get(variant, ()):
        with test.call(f"from {name} import {offered}"):
            if not hasattr(module, offered):
                test.fail(f"{name} has no {offered}")
