"""Declare the derived facts, and the inputs of each that a proposed change may set."""

from __future__ import annotations

from collections.abc import Mapping

from envcheck.core.facts import Key, Kind

_TRL_TRAINERS = {"dpo": "DPO", "grpo": "GRPO", "kto": "KTO", "ppo": "PPO", "reward": "Reward"}
"""TRL's trainers that only trainings by their method import, by `train.method`."""


COMPONENTS = {
    "train.runs_training_arguments": Key(
        Kind.FLAG,
        "whether the options pass through transformers' TrainingArguments",
        phrases={"true": "transformers' TrainingArguments"},
    ),
    "train.runs_trainer": Key(
        Kind.FLAG,
        "whether transformers' Trainer is constructed and trains: its accelerator, loop and checkpoints",
        phrases={"true": "transformers' Trainer"},
    ),
    "train.runs_trainer_import": Key(
        Kind.FLAG,
        "whether the training imports the module of transformers' Trainer",
        phrases={"true": "the module of transformers' Trainer"},
    ),
    "train.runs_trainer_optimizer": Key(
        Kind.FLAG,
        "whether transformers' Trainer makes the optimizer from its name",
        phrases={"true": "an optimizer of transformers' Trainer"},
    ),
    "train.runs_accelerate": Key(
        Kind.FLAG,
        "whether an Accelerator of accelerate prepares model and optimizer",
        phrases={"true": "accelerate"},
    ),
    "train.runs_own_deepspeed": Key(
        Kind.FLAG,
        "whether the trainer hands its configuration to deepspeed.initialize itself",
        phrases={"true": "DeepSpeed called by the trainer"},
    ),
    "train.runs_attention": Key(
        Kind.FLAG,
        "whether transformers is given the configured attention, and the trainer takes no other instead",
        phrases={"true": "attention of transformers"},
    ),
    "train.runs_quantization": Key(
        Kind.FLAG,
        "whether transformers quantises the base model while loading it",
        phrases={"true": "quantisation by transformers"},
    ),
    "train.runs_peft": Key(
        Kind.FLAG, "whether PEFT makes the adapter", phrases={"true": "an adapter of PEFT"}
    ),
    "train.runs_trl": Key(Kind.FLAG, "whether the training imports TRL", phrases={"true": "TRL imported"}),
    "train.runs_trl_trainers": Key(
        Kind.FLAG,
        "whether the training imports a trainer class of TRL",
        phrases={"true": "a trainer class of TRL"},
    ),
    **{
        f"train.runs_trl_{method}": Key(
            Kind.FLAG,
            f"whether the training imports TRL's {name}Trainer",
            phrases={"true": f"TRL's {name}Trainer"},
        )
        for method, name in _TRL_TRAINERS.items()
    },
    "train.runs_vllm": Key(Kind.FLAG, "whether the training imports vLLM", phrases={"true": "vLLM imported"}),
    "train.runs_unsloth_vllm": Key(
        Kind.FLAG, "whether Unsloth starts vLLM", phrases={"true": "vLLM started by Unsloth"}
    ),
}
"""Pieces of library code, and whether the described training runs them (compat/tables/runs.toml).

A rule names the piece in which its failure happens. Which trainer, method and release runs it is stated once.
"""


_TRAINER_PACKAGES = {
    "trl": "TRL",
    "llamafactory": "LLaMA-Factory",
    "swift": "ms-swift",
    "axolotl": "axolotl",
    "openrlhf": "OpenRLHF",
    "verl": "verl",
}


IMPORTS = {
    **{
        f"training.imports_{package}": Key(
            Kind.FLAG, f"whether the training imports {name}", phrases={"true": f"{name} imported"}
        )
        for package, name in _TRAINER_PACKAGES.items()
    },
    "training.imports_deepspeed": Key(
        Kind.FLAG,
        "whether the training imports DeepSpeed where it is installed",
        phrases={"true": "DeepSpeed imported"},
    ),
    "training.imports_peft": Key(
        Kind.FLAG,
        "whether the training imports PEFT where it is installed, with or without an adapter",
        phrases={"true": "PEFT imported"},
    ),
    "training.imports_datasets": Key(
        Kind.FLAG,
        "whether the training imports datasets where it is installed",
        phrases={"true": "datasets imported"},
    ),
    "training.imports_transformers": Key(
        Kind.FLAG,
        "whether the training imports transformers where it is installed",
        phrases={"true": "transformers imported"},
    ),
    "training.imports_modeling": Key(
        Kind.FLAG,
        "whether the training imports the model code of transformers: its modeling_utils",
        phrases={"true": "model code of transformers"},
    ),
    "training.imports_torchvision": Key(
        Kind.FLAG,
        "whether the training imports torchvision where it is installed, for text too",
        phrases={"true": "torchvision imported"},
    ),
    "training.imports_torchaudio": Key(
        Kind.FLAG,
        "whether the training imports torchaudio where it is installed, for text too",
        phrases={"true": "torchaudio imported"},
    ),
}
"""Packages of which the import itself may fail, and whether the described training imports them.

Their rows stand in compat/tables/runs.toml too. They are Absent where no training is described, as where it
names no trainer: an environment in which `import deepspeed` fails is broken until a training is known that
does not import it. So a rule about an import has the clause `["absent", true]`, and stays one about packages.
"""


MODEL_CODE = {
    "train.model_skips_experts": Key(
        Kind.FLAG,
        "whether transformers' code of the model_type calls only the experts that have tokens",
        phrases={"true": "a mixture of experts that skips idle ones"},
    ),
    "train.model_saves_router_bias": Key(
        Kind.FLAG,
        "whether its mixture of experts keeps a learnt routing bias in a buffer",
        phrases={"true": "a mixture of experts with a routing bias"},
    ),
    "train.model_conv3d": Key(
        Kind.FLAG, "whether its code has a Conv3d", phrases={"true": "a model with a Conv3d"}
    ),
    "train.model_refuses_right_padding": Key(
        Kind.FLAG,
        "whether its code refuses right padding with FlashAttention and a cache",
        phrases={"true": "a model that refuses right padding with FlashAttention"},
    ),
    "train.model_takes_loss_keywords": Key(
        Kind.FLAG,
        "whether the forward of all its language models takes further arguments (transformers 4.46 to 4.56)",
        phrases={"true": "a model whose forward takes further arguments"},
    ),
    "train.model_lacks_loss_keywords": Key(
        Kind.FLAG,
        "whether the forward of none of its language models does (transformers 4.46 to 4.49)",
        phrases={"true": "a model whose forward takes no further arguments"},
    ),
    "train.model_causal_conv1d": Key(
        Kind.FLAG,
        "whether its code imports causal_conv1d by itself",
        phrases={"true": "a model that imports causal-conv1d"},
    ),
    "train.model_mamba_ssm": Key(
        Kind.FLAG,
        "whether its code imports mamba_ssm by itself",
        phrases={"true": "a model that imports mamba-ssm"},
    ),
    "train.model_attends_without_sinks": Key(
        Kind.FLAG,
        "whether its attention passes no sinks to transformers' FlashAttention (transformers 5.6.0)",
        phrases={"true": "a model without attention sinks"},
    ),
}
"""What the code of a model type does in a release of transformers (compat/tables/model_code.toml).

After `train.model_`, a key names the column of the table. A type that the release does not list is false.
"""

MODEL_CODE_PREFIX = "train.model_"

OPTIMIZER_MINIMUM = "train.optimizer_minimum_"

OPTIMIZER = {
    "train.optimizer_package": Key(
        Kind.WORD,
        "package that the Trainer, or the trainer named, imports for the optimizer; none if it imports none",
        phrases={"none": "an optimizer of no further package", "*": "an optimizer of {}"},
    ),
    "train.optimizer_8bit": Key(
        Kind.FLAG,
        "whether the optimizer keeps its states in 8 bits, which its name says",
        phrases={"true": "an 8-bit optimizer", "false": "no 8-bit optimizer"},
    ),
    "train.optimizer_layerwise": Key(
        Kind.FLAG,
        "whether the Trainer makes one optimizer for each layer, for one process and one batch a step",
        phrases={"true": "a layer-wise optimizer"},
    ),
    "train.optimizer_unhandled": Key(
        Kind.FLAG,
        "whether the trainer named lists the optimizer, and has no code that makes it",
        phrases={"true": "an optimizer that the trainer lists and cannot make"},
    ),
    "train.optimizer_first": Key(
        Kind.VERSION,
        "first transformers whose TrainingArguments take the optimizer's name; Absent if none does",
    ),
    "train.optimizer_gone": Key(
        Kind.VERSION, "first transformers that has dropped the optimizer's name; Absent if none has"
    ),
    **{
        f"{OPTIMIZER_MINIMUM}{package}": Key(
            Kind.VERSION,
            f"oldest {package} that the Trainer takes with the optimizer; Absent if it asks for none",
        )
        for package in ("accelerate", "bitsandbytes", "schedulefree", "torch", "torchao")
    },
}
"""What making the optimizer by its name needs (compat/tables/optimizers.toml).

A name that no release of transformers lists, and no table of its trainer, needs no package.
"""

KEYS = {
    **COMPONENTS,
    **IMPORTS,
    **MODEL_CODE,
    **OPTIMIZER,
    "cuda.runtime": Key(Kind.VERSION, "CUDA the installed torch was built with; Absent for a CPU build"),
    "cuda.minimum_driver": Key(Kind.VERSION, "oldest Linux driver of that CUDA's major family"),
    "cuda.full_driver": Key(Kind.VERSION, "driver that ships with that CUDA: from it on nothing is limited"),
    "cuda.driver": Key(Kind.VERSION, "newest CUDA that the driver supports"),
    "cuda.driver_too_old": Key(
        Kind.FLAG, "the driver shows an older CUDA than torch's; absent if its own version decides"
    ),
    "torch.cuda_available": Key(Kind.FLAG, "what torch.cuda.is_available() returned, in a report"),
    "driver.torch_last": Key(Kind.VERSION, "newest torch whose default build this driver can run"),
    "build.torch.architectures": Key(
        Kind.WORDS, "GPU architectures torch has code for: sm_80, …; compute_90 is PTX"
    ),
    "build.torch.torchvision": Key(Kind.VERSION, "torchvision that belongs to this torch"),
    "build.torch.torchaudio": Key(Kind.VERSION, "torchaudio that belongs to this torch"),
    "build.torch.triton": Key(Kind.VERSION, "triton that belongs to this torch"),
    "triton.release": Key(
        Kind.VERSION, "Triton that compiles kernels: the listed one, else the one that belongs to this torch"
    ),
    "torch.nccl": Key(
        Kind.VERSION, "NCCL that torch loads: the listed wheel, else the one that this torch pins"
    ),
    "torch.cudnn": Key(
        Kind.VERSION, "cuDNN that torch loads: the listed wheel, else the one that this torch pins"
    ),
    "build.torchvision.fits": Key(
        Kind.FLAG, "whether torchvision is taken to load beside this torch: by their minor releases"
    ),
    "build.torchaudio.fits": Key(
        Kind.FLAG, "whether torchaudio is taken to load beside this torch: by their minor releases"
    ),
    "build.deepspeed.toolkit": Key(
        Kind.FLAG, "whether DeepSpeed compiles its operators with this CUDA toolkit beside this torch"
    ),
    "build.deepspeed.fits": Key(
        Kind.FLAG, "whether the ops that DeepSpeed's installation compiled are for this torch and its CUDA"
    ),
    "build.torch-npu.cann": Key(Kind.VERSION, "CANN that this torch_npu was released for, e.g. 8.3.RC1"),
    "cann.fits": Key(Kind.FLAG, "whether the CANN here is one that this torch_npu supports"),
    "torch.code_for_amd": Key(Kind.FLAG, "whether this ROCm wheel of torch has code for an AMD GPU here"),
    "torch.compile_python": Key(
        Kind.VERSION, "first Python that torch.compile of this torch refuses; Absent before torch 2.0"
    ),
    "torch.compile_first": Key(Kind.VERSION, "first torch whose torch.compile takes this Python"),
    "torch.packages_of_another_release": Key(
        Kind.WORDS, "packages whose local label names another minor version of torch than the installed one"
    ),
    "torch.packages_of_another_build": Key(
        Kind.WORDS, "packages whose local label names another CUDA major or C++ ABI than torch has"
    ),
    "torch.flash_attn_of_another_build": Key(Kind.FLAG, "whether flash-attn is among those packages"),
    "torch.causal_conv1d_of_another_build": Key(Kind.FLAG, "whether causal-conv1d is among those packages"),
    "torch.mamba_ssm_of_another_build": Key(Kind.FLAG, "whether mamba-ssm is among those packages"),
    "packages.without_wheel": Key(
        Kind.WORDS, "listed packages of which no published wheel fits this Python and C library"
    ),
    "packages.withdrawn": Key(
        Kind.WORDS, "packages whose release its authors have withdrawn, with the reason that the index gives"
    ),
    "packages.from_wheels": Key(
        Kind.FLAG, "whether packages are installed from wheels: not where conda manages the environment"
    ),
    "torch.from_wheel": Key(
        Kind.FLAG,
        "whether torch is a published wheel: not conda's build, and not compiled by the user or a vendor",
    ),
    "torchcodec.from_wheel": Key(
        Kind.FLAG, "whether torchcodec is a wheel: not where conda installed it together with torch"
    ),
    "flash-attn.from_wheel": Key(
        Kind.FLAG, "whether flash-attn may be a wheel of its project: not conda's build, and not for aarch64"
    ),
    "flash-attn.code_read": Key(
        Kind.FLAG, "whether the GPU code in flash-attn's files was read, so that its release need not tell it"
    ),
    "torch.preview_of": Key(
        Kind.VERSION,
        "release that a vendor build of torch is numbered before, e.g. 2.6.0 for 2.6.0a0+1234.nv25.01",
    ),
    "training.described": Key(Kind.FLAG, "whether anything is known about the training"),
    "bitsandbytes.library_named": Key(
        Kind.FLAG, "whether BNB_CUDA_VERSION is known to choose the library that bitsandbytes loads"
    ),
    "bitsandbytes.has_library": Key(
        Kind.FLAG, "whether this release of bitsandbytes loads a library for the CUDA of this torch"
    ),
    "unsloth.release": Key(
        Kind.VERSION, "release of Unsloth that is known to be installed; absent if none is known to be"
    ),
    "gpus.visible": Key(
        Kind.NUMBER, "GPUs that CUDA_VISIBLE_DEVICES leaves to programs; all if it is not set"
    ),
    "gpu.kind": Key(Kind.WORD, "datacenter, geforce, workstation, jetson, …"),
    "gpu.in_torch_build": Key(Kind.FLAG, "whether the installed torch has code that this GPU can run"),
    "gpu.in_triton": Key(
        Kind.FLAG, "whether the ptxas that Triton brings knows this GPU; Absent if torch has no code for it"
    ),
    "gpu.torch_first": Key(Kind.VERSION, "first torch whose default build has machine code for this GPU"),
    "gpu.torch_nearest": Key(Kind.VERSION, "release with machine code for this GPU nearest to the installed"),
    "gpu.torch_last": Key(Kind.VERSION, "newest torch whose default build has machine code for this GPU"),
    "gpu.packages_without_code": Key(
        Kind.WORDS, "compiled packages that have neither machine code for this GPU nor PTX it could compile"
    ),
    "train.minimum_transformers": Key(
        Kind.VERSION, "first transformers with code for the model_type; Absent if all that are known have it"
    ),
    "train.attention_refused": Key(
        Kind.FLAG,
        "whether this release of transformers refuses the configured attention for the model_type",
        phrases={"true": "an attention that this architecture refuses"},
    ),
    "train.attention_accepted": Key(
        Kind.WORD, "sdpa if this release of transformers has it for the model_type, eager if not"
    ),
    "train.examples_per_step": Key(
        Kind.NUMBER, "micro batch size x accumulation steps x processes that see other data"
    ),
    "train.saves_at_evaluations": Key(
        Kind.FLAG, "whether every checkpoint is saved at a step that evaluates, where both go by steps"
    ),
    "train.install_transformers": Key(
        Kind.VERSION,
        "first transformers to install for the model_type: that one, or the next if it was yanked",
    ),
}
"""The declarations of derived facts."""


BATCH_KEYS = (
    "train.micro_batch_size",
    "train.gradient_accumulation_steps",
    "train.world_size",
    "train.tensor_parallel",
    "train.sequence_parallel",
)


FOLLOWS_FROM: Mapping[str, tuple[str, ...]] = {
    "cuda.runtime": ("pkg.torch", "build.torch.cuda"),
    "cuda.minimum_driver": ("cuda.runtime", "driver.version"),
    "cuda.full_driver": ("cuda.runtime",),
    "cuda.driver": ("driver.version",),
    "torch.cuda_available": ("pkg.torch", "driver.version"),
    "cuda.driver_too_old": ("cuda.runtime", "driver.version"),
    "driver.torch_last": ("driver.version",),
    "driver.library": ("driver.version",),
    "driver.libcuda": ("driver.version",),
    "driver.error": ("driver.version",),
    "driver.passed_over": ("driver.version",),
    "build.torch.architectures": ("cuda.runtime",),
    "build.torch.torchvision": ("pkg.torch",),
    "build.torch.torchaudio": ("pkg.torch",),
    "build.torch.triton": ("pkg.torch",),
    "triton.release": ("pkg.torch", "pkg.triton"),
    "torch.nccl": ("pkg.torch", "cuda.runtime"),
    "torch.cudnn": ("pkg.torch", "cuda.runtime"),
    "build.torchvision.fits": ("pkg.torch", "pkg.torchvision"),
    "build.torchaudio.fits": ("pkg.torch", "pkg.torchaudio"),
    "build.deepspeed.toolkit": ("pkg.deepspeed", "cuda.runtime"),
    "build.deepspeed.fits": ("pkg.torch", "cuda.runtime"),
    "build.torch-npu.cann": ("pkg.torch-npu",),
    "cann.fits": ("pkg.torch-npu", "cann.version"),
    "torch.code_for_amd": ("pkg.torch", "host.amd_architectures"),
    "torch.from_wheel": ("pkg.torch",),
    "torch.preview_of": ("pkg.torch",),
    "flash-attn.code_read": ("pkg.flash-attn",),
    "torch.compile_python": ("pkg.torch",),
    "torch.compile_first": ("python.version",),
    "bitsandbytes.has_library": ("pkg.bitsandbytes", "cuda.runtime"),
    "unsloth.release": ("pkg.unsloth",),
    "torch.packages_of_another_release": ("pkg.torch",),
    "torch.packages_of_another_build": ("pkg.torch", "cuda.runtime"),
    "torch.flash_attn_of_another_build": ("pkg.torch", "cuda.runtime"),
    "torch.causal_conv1d_of_another_build": ("pkg.torch", "cuda.runtime"),
    "torch.mamba_ssm_of_another_build": ("pkg.torch", "cuda.runtime"),
    "packages.without_wheel": ("python.version", "host.glibc"),
    "training.described": ("train.offload_optimizer", "train.attention", "train.torch_compile"),
    "gpu.in_torch_build": ("build.torch.architectures",),
    "gpu.in_triton": ("triton.release", "build.torch.architectures"),
    "gpu.torch_nearest": ("pkg.torch",),
    "train.examples_per_step": BATCH_KEYS,
    "train.saves_at_evaluations": ("train.save_steps", "train.eval_steps"),
    "train.minimum_transformers": ("train.model_type",),
    "train.install_transformers": ("train.model_type",),
    "train.attention_refused": ("train.model_type", "train.attention", "pkg.transformers"),
    "train.attention_accepted": ("train.model_type", "pkg.transformers"),
    **dict.fromkeys(MODEL_CODE, ("train.model_type", "pkg.transformers")),
    **dict.fromkeys(OPTIMIZER, ("train.optimizer", "pkg.transformers", "pkg.axolotl")),
}
"""The inputs of each derived fact that a proposed change may set.

Facts that get a default are left out: a default row names its own inputs.
"""


ARCHITECTURES_SUFFIX = ".architectures"
"""Suffix of keys (`pkg.xformers.architectures`) for the GPU architectures that a package has code for."""
