"""Environment variables that may be shown: those on an allow-list, without secrets and UUIDs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envcheck.core.facts import Fact, Known, Reading, Unknown
from envcheck.core.sanitize import holds_secret

_PREFIXES = ("CUDA_", "NVIDIA_", "NCCL_", "TORCH_", "PYTORCH_", "DS_", "ACCELERATE_")
_NAMES = frozenset(
    (
        "LD_LIBRARY_PATH",  # may replace the wheel's own libcudart and libnccl
        "LD_PRELOAD",
        "OMP_NUM_THREADS",  # DeepSpeed's CPU optimizer runs on these
        "BNB_CUDA_VERSION",  # makes bitsandbytes load a binary for another CUDA than torch's
        "TRITON_CACHE_DIR",  # a cache on a network folder stalls every rank
        "TRITON_PTXAS_PATH",  # the assembler that Triton takes instead of its own
        "TRITON_PTXAS_BLACKWELL_PATH",  # the same for Blackwell, from Triton 3.6 on
        "HIP_VISIBLE_DEVICES",
        "ROCR_VISIBLE_DEVICES",
        "HSA_OVERRIDE_GFX_VERSION",  # an AMD GPU runs the code for another of its family
        "TRANSFORMERS_OFFLINE",
        "HF_HUB_OFFLINE",
        "VLLM_USE_V1",  # chooses the older of vLLM's engines
        "VLLM_ENABLE_V1_MULTIPROCESSING",  # off, the newer engine runs in the same process
        "XFORMERS_IGNORE_FLASH_VERSION_CHECK",
        "FLASHINFER_DISABLE_VERSION_CHECK",  # FlashInfer does not compare its packages
        "FLASHINFER_CUBIN_DIR",  # FlashInfer 0.7 takes its kernels from here
        "WANDB_DISABLED",  # hides an installed wandb from transformers and TRL
        "DISABLE_MLFLOW_INTEGRATION",  # hides an installed mlflow from transformers
        "USE_HUB_KERNELS",  # transformers fetches kernels from the hub unless it is off
        "USE_TF",  # transformers imports an installed TensorFlow unless it is off
        "USE_TORCH",  # or this is on
        "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION",  # protobuf in Python takes the files of an old protoc
        "_CHECK_PEFT",  # diffusers compares PEFT's version unless it is off
    )
)
READ_BY_RULES = _NAMES | frozenset(
    (
        "ACCELERATE_BYPASS_DEVICE_MAP", "CUDA_DEVICE_ORDER", "DS_ACCELERATOR", "DS_SKIP_CUDA_CHECK",
        "NCCL_IB_DISABLE", "NCCL_MNNVL_ENABLE", "NCCL_P2P_DISABLE", "NCCL_SOCKET_IFNAME",
        "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "TORCH_NCCL_USE_COMM_NONBLOCKING",
    )
)  # fmt: skip
"""Variables on the allow-list that may decide a rule; those that select GPUs are left out."""

_SECRET_WORDS = ("TOKEN", "SECRET", "PASSW", "CREDENTIAL", "AUTH", "API_KEY", "ACCESS_KEY", "PRIVATE")
_LONGEST_VALUE = 2000


def is_shown(name: str) -> bool:
    """Return whether a variable is on the allow-list."""
    listed = name.startswith(_PREFIXES) or name in _NAMES
    return listed and name.replace("_", "").isalnum() and name.isascii()


def variables(environ: Mapping[str, str | Unknown], source: str = "environment") -> Iterator[Fact]:
    """Yield the variables of the allow-list; a value that may be a secret is unknown."""
    home = environ.get("HOME", "")
    for name, value in environ.items():
        if is_shown(name):
            shown = value if isinstance(value, Unknown) else _shown(name, value, str(home))
            yield Fact(f"env.{name}", shown, source)


def _shown(name: str, value: str, home: str) -> Reading:
    if len(value) > _LONGEST_VALUE or any(word in name for word in _SECRET_WORDS) or holds_secret(value):
        return Unknown("not shown: may hold a secret")
    if len(home.strip("/")) > 0:
        value = value.replace(home.rstrip("/"), "~")
    return Known(",".join(_without_uuid(part) for part in value.split(",")))


def _without_uuid(part: str) -> str:
    """Return `GPU-…` for the UUID of a GPU or MIG slice, which CUDA_VISIBLE_DEVICES may contain."""
    start = part.strip()[:4]
    return f"{start}…" if start in ("GPU-", "MIG-") else part
