"""The packages whose releases are read: their import names, and the entries through which they are used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from packaging.utils import canonicalize_name


@dataclass(frozen=True, slots=True)
class PackageEntry:
    """What a user does that imports code of a package.

    Attributes:
        action: as a user writes it, `from trl import SFTTrainer`.
        module: the module that is imported.
        names: the names that are taken from it; a lazily offered name imports its module.

    """

    action: str
    module: str
    names: tuple[str, ...] = ()


def _import(module: str) -> PackageEntry:
    return PackageEntry(f"import {module}", module)


def _names(module: str, *names: str) -> PackageEntry:
    return PackageEntry(f"from {module} import {names[0]}", module, names)


@dataclass(frozen=True, slots=True)
class StackPackage:
    """One package: its import names and its entries; without entries it is only asked by others."""

    modules: tuple[str, ...]
    entries: tuple[PackageEntry, ...] = ()


def _plain(module: str, *entries: PackageEntry) -> StackPackage:
    return StackPackage((module,), (_import(module), *entries))


PACKAGES: Mapping[str, StackPackage] = {
    "accelerate": _plain("accelerate", _names("accelerate", "Accelerator")),
    "apex": StackPackage(("apex",)),
    "autoawq": StackPackage(("awq",), (_import("awq"), _names("awq", "AutoAWQForCausalLM"))),
    "axolotl": _plain("axolotl", _import("axolotl.cli.train"), _import("axolotl.train")),
    "bitsandbytes": _plain("bitsandbytes"),
    "datasets": _plain("datasets", _names("datasets", "load_dataset", "Dataset")),
    "deepspeed": _plain("deepspeed"),
    "diffusers": _plain(
        "diffusers",
        _names("diffusers", "DiffusionPipeline"),
        _names("diffusers", "StableDiffusionPipeline"),
        _names("diffusers", "UNet2DConditionModel"),
    ),
    "einops": _plain("einops"),
    "flash-attn": _plain("flash_attn"),
    "fsspec": _plain("fsspec"),
    "gptqmodel": _plain("gptqmodel"),
    "huggingface-hub": _plain(
        "huggingface_hub", _names("huggingface_hub", "HfApi", "hf_hub_download", "snapshot_download")
    ),
    "kernels": _plain("kernels"),
    "lightning": StackPackage(
        ("lightning", "lightning_fabric", "pytorch_lightning"),
        (_import("lightning"), _import("lightning.pytorch"), _import("lightning.fabric")),
    ),
    "liger-kernel": _plain(
        "liger_kernel", PackageEntry("import liger_kernel.transformers", "liger_kernel.transformers")
    ),
    "llamafactory": _plain("llamafactory", _import("llamafactory.cli"), _import("llamafactory.train.tuner")),
    "lm-eval": _plain("lm_eval", _import("lm_eval.models.huggingface")),
    "megatron-core": StackPackage(("megatron",), (_import("megatron.core"),)),
    "mpi4py": StackPackage(("mpi4py",)),
    "ms-swift": StackPackage(("swift",), (_import("swift"), _import("swift.llm"), _import("swift.trainers"))),
    "ninja": StackPackage(("ninja",)),
    "numpy": StackPackage(("numpy",)),
    "openrlhf": _plain("openrlhf", _import("openrlhf.cli.train_sft"), _import("openrlhf.cli.train_ppo_ray")),
    "optimum": _plain("optimum", _import("optimum.onnxruntime"), _import("optimum.gptq")),
    "peft": _plain("peft", _names("peft", "get_peft_model", "LoraConfig", "PeftModel")),
    "protobuf": StackPackage(("google",)),
    "pyarrow": _plain("pyarrow"),
    "pydantic": _plain("pydantic"),
    "ray": _plain("ray", _import("ray.train"), _import("ray.train.torch")),
    "safetensors": _plain("safetensors", _import("safetensors.torch")),
    "scikit-learn": StackPackage(("sklearn",), (_import("sklearn"),)),
    "scipy": _plain("scipy"),
    "sentence-transformers": _plain(
        "sentence_transformers",
        _names("sentence_transformers", "SentenceTransformer"),
        _names("sentence_transformers", "SentenceTransformerTrainer"),
    ),
    "setuptools": StackPackage(("setuptools", "pkg_resources")),
    "sglang": _plain("sglang", _import("sglang.srt.server_args"), _import("sglang.srt.entrypoints.engine")),
    "tensorboard": _plain("tensorboard"),
    "tokenizers": _plain("tokenizers"),
    "torch": StackPackage(
        ("torch", "functorch", "torchgen"),
        (_import("torch"), _import("torch.utils.tensorboard"), _import("torch.utils.cpp_extension")),
    ),
    "torch-npu": _plain("torch_npu"),
    "torchao": _plain("torchao", _import("torchao.quantization")),
    "torchaudio": _plain("torchaudio"),
    "torchcodec": _plain("torchcodec", _import("torchcodec.decoders")),
    "torchvision": _plain("torchvision"),
    "transformer-engine": StackPackage(("transformer_engine",), (_import("transformer_engine.pytorch"),)),
    "transformers": _plain(
        "transformers",
        _names("transformers", "PreTrainedModel"),
        _names("transformers", "Trainer", "TrainingArguments"),
        _names("transformers", "AutoModelForCausalLM", "AutoTokenizer"),
        _names("transformers", "LlamaForCausalLM"),
        _names("transformers", "pipeline"),
    ),
    "triton": _plain("triton"),
    "trl": _plain(
        "trl",
        _names("trl", "SFTTrainer", "SFTConfig"),
        _names("trl", "DPOTrainer", "DPOConfig"),
        _names("trl", "GRPOTrainer", "GRPOConfig"),
        _names("trl", "RewardTrainer", "RewardConfig"),
        _names("trl", "PPOTrainer", "PPOConfig"),
        _names("trl", "KTOTrainer", "KTOConfig"),
        _names("trl", "AutoModelForCausalLMWithValueHead"),
    ),
    "unsloth": _plain("unsloth"),
    "unsloth-zoo": _plain("unsloth_zoo"),
    "verl": _plain("verl", _import("verl.trainer.main_ppo"), _import("verl.trainer.fsdp_sft_trainer")),
    "vllm": _plain("vllm", _names("vllm", "LLM", "SamplingParams")),
    "wandb": _plain("wandb"),
    "xformers": _plain("xformers", _import("xformers.ops")),
}
"""By normalised name. The import names of packages that are not here are taken to be their own names."""

ELSEWHERE = frozenset(
    {
        *("apex", "flax", "habana-frameworks", "intel-extension-for-pytorch", "jax"),
        *("keras", "mindspore", "mlx", "modelscope", "optimum-habana"),
        *("optimum-neuron", "sagemaker", "smdistributed", "tensorflow", "tf-keras"),
        *("tensorflow-probability", "tensorflow-text", "tf2onnx", "torch-mlu", "torch-musa"),
        *("torch-npu", "torch-sdaa", "torch-xla", "torchdistx", "neuronx-distributed"),
        *("torch-neuronx", "torch-directml"),
    }
)
"""Packages for other machines and frameworks, which count as absent unless they are known to be there."""

_BY_MODULE = {module: name for name, package in PACKAGES.items() for module in package.modules}
_OTHER_SPELLINGS = {
    "bnb": "bitsandbytes",
    "hf_hub": "huggingface-hub",
    "hf-hub": "huggingface-hub",
    "liger": "liger-kernel",
    "pt": "torch",
    "tf": "tensorflow",
    "flash_attn_2": "flash-attn",
    "auto_awq": "autoawq",
    "cv2": "opencv-python",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "ipex": "intel-extension-for-pytorch",
    "sklearn": "scikit-learn",
    "smdistributed": "smdistributed",
    "torch_tpu": "torch-xla",
    "tpu": "torch-xla",
    "npu": "torch-npu",
    "torch_hpu": "habana-frameworks",
    "hpu": "habana-frameworks",
    "mlu": "torch-mlu",
    "neuron": "torch-neuronx",
}


@lru_cache(maxsize=4096)
def distribution_of(path: str) -> str:
    """Return the distribution that brings a module, by the module's dotted path or an abbreviation of it."""
    top = path.split(".", 1)[0]
    return _BY_MODULE.get(top) or _OTHER_SPELLINGS.get(top) or str(canonicalize_name(top))


def import_names(package: str) -> tuple[str, ...]:
    """Return the import names of a distribution."""
    known = PACKAGES.get(package)
    return known.modules if known else (package.replace("-", "_"),)
