"""Write compat/raised/, members/ and given/: what published code raises, changed, sets and passes.

`python tools/refresh_messages.py --store FOLDER [PACKAGE ...]` reads the releases that `envcheck matrix
harvest` stored and prints how much it would write; `--write` writes it, `--folder given` only one of the
three. `explain` finds there which library raised a message and under which condition, which releases have an
attribute or a parameter that a log reports as missing, which place sets such an attribute, and which releases
pass such a parameter.

For a package with many releases, only the newest of each minor is read, and the files name it by the minor;
of one whose versions are dates, and of those whose releases differ within a minor, all releases are read.
Messages that no release since 2024 raises are left out, and so are classes that no such release has.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import sys
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from envcheck.atlas.given_names import GivenAttribute, GivenNames, given_names
from envcheck.atlas.members import ClassMembers, ModuleMembers, module_members
from envcheck.atlas.raised_messages import RaisedMessage, raised_messages, shortened
from envcheck.atlas.reader import PackageReader
from envcheck.atlas.release import PublishedRelease
from envcheck.commands.harvest.store import ReleaseStore
from envcheck.core.versions import parse
from envcheck.knowledge.atlas import spans_of
from envcheck.knowledge.given import OPTIONAL, GivenRow, KeywordRow, class_header, given_text
from envcheck.knowledge.members import MemberRow, members_text
from envcheck.knowledge.raised import RaisedRow, raised_text

COMPAT = Path(__file__).resolve().parent.parent / "compat"

_SINCE = "2024-01-01"

_OLDEST = {"transformers": "4.30"}
"""The oldest release that is read, by package, if older ones are no longer in use."""

_EVERY_SINCE = {"sglang": "0.3"}
"""The first of the releases that are all read, by package, if those of one minor differ much."""

_MANY = 150

_OLDEST_YEAR = 2000
"""The least first number of a version that is a date, whose second number is a month, not a minor."""

_UNREAD = (
    "tests",
    "test",
    "testing",
    "examples",
    "benchmarks",
    "benchmark",
    "csrc",
    "scripts",
    "third_party",
)
"""Folders whose code is not run in a training."""

_RAISED: Mapping[str, tuple[str, ...]] = {
    "accelerate": ("accelerate/",),
    "axolotl": (
        *("axolotl/utils/schemas/", "axolotl/utils/config/", "axolotl/utils/data/", "axolotl/core/"),
        *("axolotl/prompt_strategies/chat_template", "axolotl/utils/chat_templates", "axolotl/loaders/"),
        *("axolotl/cli/config", "axolotl/utils/trainer", "axolotl/utils/models"),
    ),
    "bitsandbytes": ("bitsandbytes/",),
    "datasets": (
        *("datasets/builder", "datasets/load", "datasets/arrow_dataset", "datasets/packaged_modules/"),
        *("datasets/table", "datasets/data_files", "datasets/features/features", "datasets/splits"),
        *("datasets/iterable_dataset", "datasets/dataset_dict", "datasets/combine", "datasets/arrow_"),
        *("datasets/formatting/", "datasets/fingerprint", "datasets/info", "datasets/download/"),
        *("datasets/features/", "datasets/utils/info", "datasets/utils/py_utils", "datasets/distributed"),
    ),
    "deepspeed": (
        *("deepspeed/__init__", "deepspeed/runtime/config", "deepspeed/runtime/engine", "deepspeed/utils/"),
        *("deepspeed/runtime/zero/", "deepspeed/launcher/", "deepspeed/comm/", "deepspeed/sequence/"),
        *("deepspeed/runtime/utils", "deepspeed/runtime/bf16", "deepspeed/runtime/checkpoint_engine/"),
        *("deepspeed/runtime/sequence", "deepspeed/runtime/fp16/", "deepspeed/runtime/base_optimizer"),
        *("deepspeed/checkpoint/", "deepspeed/module_inject/auto_tp", "deepspeed/runtime/activation"),
    ),
    "evaluate": ("evaluate/loading", "evaluate/module"),
    "flash-attn": ("flash_attn/",),
    "huggingface-hub": (
        *("huggingface_hub/file_download", "huggingface_hub/utils/", "huggingface_hub/_snap"),
        *("huggingface_hub/_login", "huggingface_hub/hf_api", "huggingface_hub/_commit_api"),
    ),
    "kernels": ("kernels/",),
    "lightning": ("lightning/pytorch/", "lightning/fabric/"),
    "liger-kernel": ("liger_kernel/",),
    "llamafactory": ("llamafactory/",),
    "modelscope": ("modelscope/hub/",),
    "ms-swift": (
        *("swift/llm/argument/", "swift/llm/train/", "swift/trainers/", "swift/llm/template/"),
        *("swift/llm/model/register", "swift/llm/model/utils", "swift/llm/dataset/", "swift/arguments/"),
        *("swift/template/", "swift/model/", "swift/dataset/", "swift/rlhf_trainers/", "swift/megatron/"),
        *("swift/tuners/", "swift/utils/", "swift/pipelines/train/", "swift/llm/base"),
    ),
    "openrlhf": ("openrlhf/",),
    "peft": ("peft/",),
    "sentence-transformers": ("sentence_transformers/",),
    "sglang": (
        *("sglang/srt/server_args", "sglang/srt/configs/model_config", "sglang/srt/configs/load_config"),
        *("sglang/srt/managers/scheduler", "sglang/srt/managers/tokenizer_manager", "sglang/srt/lora/"),
        *("sglang/srt/model_executor/", "sglang/srt/model_loader/", "sglang/srt/entrypoints/engine"),
        *("sglang/srt/hf_transformers_utils", "sglang/srt/utils", "sglang/srt/mem_cache/memory_pool"),
        *("sglang/srt/distributed/parallel_state", "sglang/srt/models/registry", "sglang/utils"),
        *("sglang/srt/layers/dp_attention", "sglang/srt/sampling/sampling_params"),
    ),
    "torch": (
        *("torch/distributed/fsdp/", "torch/distributed/distributed_c10d", "torch/distributed/rendezvous"),
        *("torch/distributed/_composable/", "torch/distributed/checkpoint/", "torch/distributed/utils"),
        *("torch/distributed/device_mesh", "torch/distributed/_functional", "torch/distributed/run"),
        *("torch/distributed/tensor/_", "torch/distributed/algorithms/_checkpoint", "torch/serialization"),
        *("torch/utils/data/", "torch/utils/checkpoint", "torch/utils/cpp_extension", "torch/_utils"),
        *("torch/optim/", "torch/amp/", "torch/cuda/__init__", "torch/cuda/amp", "torch/nn/parallel/"),
        *("torch/nn/modules/module", "torch/nn/functional", "torch/nn/utils/", "torch/multiprocessing/"),
        *("torch/autograd/", "torch/_tensor", "torch/nn/attention/", "torch/nn/modules/sparse"),
    ),
    "torchtune": ("torchtune/",),
    "transformers": (
        *("transformers/trainer", "transformers/training_args", "transformers/modeling_utils"),
        *("transformers/configuration_utils", "transformers/integrations/", "transformers/quantizers/"),
        *("transformers/cache_utils", "transformers/tokenization_utils", "transformers/tokenization_mist"),
        *("transformers/data/data_collator", "transformers/optimization", "transformers/processing_utils"),
        *("transformers/modeling_flash", "transformers/modeling_attn", "transformers/masking_utils"),
        *("transformers/modeling_rope", "transformers/generation/configuration", "transformers/utils/"),
        *("transformers/generation/utils", "transformers/hf_argparser", "transformers/models/auto/"),
        *("transformers/core_model_loading", "transformers/conversion", "transformers/dynamic_module"),
        *("transformers/deepspeed", "transformers/convert_slow", "transformers/loss/"),
        *("transformers/image_utils", "transformers/image_processing", "transformers/video_"),
        *("transformers/audio_utils", "transformers/feature_extraction", "transformers/models/llava"),
        *("transformers/models/qwen2_vl/", "transformers/models/qwen2_5_vl/", "transformers/models/mllama/"),
        *("transformers/models/qwen2_5_omni/", "transformers/models/idefics3/", "transformers/models/clip/"),
        *("transformers/models/internvl/", "transformers/models/gemma3/", "transformers/models/smolvlm/"),
        *("transformers/models/paligemma/", "transformers/models/pixtral/", "transformers/models/whisper/"),
        *("transformers/models/qwen2_audio/", "transformers/models/qwen3_vl/"),
    ),
    "trl": (
        *("trl/trainer/", "trl/data_utils", "trl/models/", "trl/extras/", "trl/scripts/", "trl/import"),
        *("trl/experimental/", "trl/generation/", "trl/chat_template"),
    ),
    "unsloth": (
        *("unsloth/models/", "unsloth/trainer", "unsloth/__init__", "unsloth/_gpu_init", "unsloth/save"),
        *("unsloth/chat_templates", "unsloth/tokenizer_utils", "unsloth/dataprep/", "unsloth/import_fixes"),
        *("unsloth/kernels/", "unsloth/device_type", "unsloth/utils/"),
    ),
    "unsloth-zoo": (
        *("unsloth_zoo/compiler", "unsloth_zoo/vllm_utils", "unsloth_zoo/rl_", "unsloth_zoo/training_utils"),
        *("unsloth_zoo/patching_utils", "unsloth_zoo/saving_utils", "unsloth_zoo/tokenizer_utils"),
        *("unsloth_zoo/dataset_utils", "unsloth_zoo/vision_utils", "unsloth_zoo/peft_utils"),
        *(
            "unsloth_zoo/loss_utils",
            "unsloth_zoo/device_type",
            "unsloth_zoo/__init__",
            "unsloth_zoo/llama_cpp",
        ),
        *("unsloth_zoo/gradient_checkpointing", "unsloth_zoo/utils", "unsloth_zoo/hf_utils"),
    ),
    "verl": (
        *("verl/trainer/", "verl/workers/fsdp", "verl/workers/config/", "verl/workers/actor/"),
        *("verl/workers/rollout/", "verl/workers/engine", "verl/single_controller/", "verl/utils/config"),
        *("verl/utils/fsdp", "verl/utils/dataset/", "verl/utils/seqlen", "verl/utils/model", "verl/protocol"),
        *("verl/utils/ulysses", "verl/utils/checkpoint/", "verl/models/transformers/monkey_patch"),
    ),
    "vllm": (
        *("vllm/config", "vllm/engine/arg_utils", "vllm/engine/llm_engine", "vllm/platforms/cuda"),
        *("vllm/platforms/interface", "vllm/v1/core/kv_cache", "vllm/v1/engine/core", "vllm/v1/engine/utils"),
        *("vllm/v1/engine/input", "vllm/v1/engine/processor", "vllm/lora/", "vllm/transformers_utils/config"),
        *("vllm/transformers_utils/tokenizer", "vllm/v1/executor/", "vllm/executor/", "vllm/worker/worker"),
        *(
            "vllm/v1/worker/gpu_worker",
            "vllm/v1/worker/utils",
            "vllm/sampling_params",
            "vllm/entrypoints/llm",
        ),
        *("vllm/model_executor/model_loader/", "vllm/model_executor/models/registry", "vllm/multimodal/"),
        *(
            "vllm/model_executor/models/utils",
            "vllm/v1/worker/",
            "vllm/v1/core/",
            "vllm/distributed/parallel",
        ),
        *("vllm/attention/selector", "vllm/device_allocator/", "vllm/entrypoints/openai/cli", "vllm/utils"),
        *("vllm/distributed/utils", "vllm/model_executor/layers/quantization/base", "vllm/usage/"),
        *("vllm/entrypoints/openai/", "vllm/entrypoints/chat_utils", "vllm/entrypoints/utils"),
        *("vllm/v1/engine/async_llm", "vllm/v1/engine/core_client"),
    ),
    "wandb": ("wandb/sdk/wandb_init", "wandb/sdk/wandb_login", "wandb/sdk/wandb_settings", "wandb/sdk/lib/"),
    "xformers": ("xformers/ops/",),
}
"""Beginnings of the paths whose messages are kept, by package: what loads, trains and saves."""

_UNRAISED = (
    *("transformers/utils/dummy", "transformers/utils/sentencepiece", "transformers/trainer_tf"),
    *("transformers/training_args_tf", "transformers/modeling_utils_tf", "transformers/generation/utils_tf"),
    *(
        "deepspeed/utils/comms",
        "huggingface_hub/utils/_git",
        "transformers/modeling_tf",
        "unsloth/models/diffus",
    ),
    *("transformers/modeling_flax", "transformers/image_transforms", "unsloth/kernels/moe"),
    *("vllm/entrypoints/openai/tool_parsers", "vllm/entrypoints/openai/realtime"),
    *("vllm/entrypoints/openai/speech_to_text", "vllm/entrypoints/openai/responses"),
)

_UNKEPT = (
    *(
        "torch/utils/data/datapipes/",
        "torch/nn/attention/",
        "torch/autograd/gradcheck",
        "torch/autograd/func",
    ),
    *("torch/nn/utils/param", "torch/nn/utils/prune", "torch/nn/utils/rnn", "torch/nn/utils/_"),
    *("torch/distributed/tensor/_", "torch/autograd/profiler", "torch/nn/modules/sparse", "torch/_tensor_"),
    *("torch/distributed/_functional", "torch/distributed/checkpoint/examples", "torch/autograd/forward_ad"),
    *("transformers/tokenization_mist", "transformers/integrations/finegrained", "transformers/utils/fx"),
    *("transformers/integrations/heterogeneity", "transformers/convert_slow", "transformers/utils/notebook"),
    *("vllm/sampling_params", "vllm/config/speculative", "vllm/config/compilation", "vllm/config/kv_"),
    *("vllm/config/observability", "vllm/config/multimodal", "vllm/config/structured", "vllm/config/pooler"),
    *("unsloth/models/tp_", "unsloth/models/pp_", "unsloth/models/fsdp2_", "unsloth/models/reap"),
    *("unsloth/models/decision", "unsloth/models/sentence", "unsloth/models/fp8_to", "unsloth/models/diffus"),
    *("verl/workers/engine/megatron", "verl/workers/rollout/sglang", "verl/workers/rollout/trt"),
    *("verl/workers/engine/veomni", "verl/trainer/ppo/v1/", "verl/utils/checkpoint/megatron"),
    *("deepspeed/checkpoint/autoep", "deepspeed/checkpoint/affine", "axolotl/core/trainers/diffusion_lm"),
    *(
        "peft/tuners/shadow",
        "peft/tuners/boft",
        "peft/tuners/hra",
        "peft/tuners/vblora",
        "peft/utils/hotswap",
    ),
    *("peft/tuners/xlora", "peft/tuners/poly", "peft/tuners/vera", "peft/tuners/road", "peft/tuners/cpt"),
)
"""Beginnings of the paths whose messages few trainings meet, by the file of their newest release."""

_MEMBERS: Mapping[str, tuple[str, ...]] = {
    "accelerate": ("accelerate/accelerator", "accelerate/state", "accelerate/utils/", "accelerate/optimizer"),
    "datasets": (
        "datasets/arrow_dataset",
        "datasets/load",
        "datasets/iterable_dataset",
        "datasets/features/",
    ),
    "deepspeed": ("deepspeed/runtime/engine", "deepspeed/runtime/zero/", "deepspeed/runtime/config"),
    "lightning": (
        *("lightning/fabric/fabric", "lightning/pytorch/trainer/trainer", "lightning/pytorch/core/module"),
        *("lightning/pytorch/strategies/strategy", "lightning/pytorch/callbacks/callback"),
    ),
    "llamafactory": ("llamafactory/hparams/", "llamafactory/train/"),
    "ms-swift": ("swift/llm/argument/", "swift/trainers/", "swift/arguments/", "swift/rlhf_trainers/"),
    "openrlhf": ("openrlhf/trainer/", "openrlhf/models/", "openrlhf/datasets/"),
    "peft": ("peft/peft_model", "peft/config", "peft/mapping", "peft/utils/", "peft/tuners/lora/"),
    "sglang": (
        *("sglang/srt/server_args", "sglang/srt/managers/scheduler", "sglang/srt/managers/schedule_batch"),
        *("sglang/srt/managers/tp_worker", "sglang/srt/managers/io_struct", "sglang/srt/entrypoints/engine"),
        *("sglang/srt/sampling/sampling_params", "sglang/srt/configs/model_config"),
        *("sglang/srt/model_executor/model_runner", "sglang/srt/managers/tokenizer_manager"),
        *("sglang/lang/backend/", "sglang/srt/server.py"),
    ),
    "transformers": (
        *("transformers/cache_utils", "transformers/trainer", "transformers/training_args"),
        *("transformers/modeling_utils", "transformers/configuration_utils", "transformers/processing_utils"),
        *("transformers/tokenization_utils", "transformers/generation/utils", "transformers/generation/conf"),
        *("transformers/data/data_collator", "transformers/integrations/", "transformers/quantizers/base"),
        *("transformers/models/auto/", "transformers/models/llama/", "transformers/models/qwen2/"),
        *("transformers/models/qwen2_vl/", "transformers/models/qwen2_5_vl/", "transformers/models/qwen3/"),
        *("transformers/models/gemma3/", "transformers/models/mistral/", "transformers/models/llava/"),
    ),
    "trl": ("trl/trainer/", "trl/models/", "trl/core", "trl/extras/", "trl/data_utils"),
    "unsloth": ("unsloth/models/", "unsloth/trainer"),
    "unsloth-zoo": ("unsloth_zoo/loss_utils", "unsloth_zoo/training_utils", "unsloth_zoo/vllm_utils"),
    "verl": ("verl/workers/", "verl/trainer/", "verl/protocol"),
    "vllm": (
        *("vllm/sampling_params", "vllm/entrypoints/llm", "vllm/lora/request", "vllm/engine/arg_utils"),
        *("vllm/entrypoints/openai/serving_", "vllm/entrypoints/openai/cli_args", "vllm/engine/async_llm"),
        *("vllm/entrypoints/openai/api_server", "vllm/v1/engine/async_llm", "vllm/v1/engine/llm_engine"),
        *("vllm/entrypoints/openai/chat_completion/serving", "vllm/entrypoints/openai/models/"),
    ),
}
"""Beginnings of the paths whose classes and functions are kept, by package: what others call or inherit."""


_GIVEN: Mapping[str, tuple[str, ...]] = {
    "accelerate": ("accelerate/",),
    "axolotl": ("axolotl/core/", "axolotl/loaders/", "axolotl/train", "axolotl/utils/models"),
    "bitsandbytes": ("bitsandbytes/",),
    "deepspeed": (
        *("deepspeed/__init__", "deepspeed/runtime/engine", "deepspeed/runtime/zero/", "deepspeed/utils/"),
        *("deepspeed/runtime/base_optimizer", "deepspeed/runtime/bf16", "deepspeed/runtime/hybrid"),
        *("deepspeed/ops/adam", "deepspeed/sequence/", "deepspeed/runtime/lr_sched"),
    ),
    "llamafactory": ("llamafactory/train/", "llamafactory/model/", "llamafactory/hparams/"),
    "ms-swift": (
        *("swift/trainers/", "swift/rlhf_trainers/", "swift/llm/train/", "swift/pipelines/train/"),
        *("swift/llm/argument/", "swift/arguments/", "swift/llm/template/base", "swift/template/base"),
    ),
    "openrlhf": ("openrlhf/",),
    "peft": ("peft/",),
    "sglang": (
        *("sglang/srt/managers/scheduler", "sglang/srt/managers/tp_worker", "sglang/srt/entrypoints/engine"),
        *("sglang/srt/model_executor/model_runner", "sglang/srt/managers/tokenizer_manager"),
        *("sglang/srt/server_args", "sglang/srt/managers/schedule_batch"),
    ),
    "transformers": (
        *("transformers/trainer", "transformers/training_args", "transformers/modeling_utils"),
        *("transformers/integrations/", "transformers/quantizers/", "transformers/generation/utils"),
        *("transformers/tokenization_utils", "transformers/processing_utils", "transformers/data/"),
        *("transformers/cache_utils", "transformers/configuration_utils", "transformers/models/auto/"),
        *("transformers/core_model_loading", "transformers/image_processing", "transformers/loss/"),
    ),
    "trl": ("trl/",),
    "unsloth": ("unsloth/models/", "unsloth/trainer", "unsloth/tokenizer_utils", "unsloth/save"),
    "unsloth-zoo": (
        *(
            "unsloth_zoo/rl_",
            "unsloth_zoo/training_utils",
            "unsloth_zoo/peft_utils",
            "unsloth_zoo/loss_utils",
        ),
        *("unsloth_zoo/vllm_utils", "unsloth_zoo/patching_utils", "unsloth_zoo/gradient"),
    ),
    "verl": ("verl/workers/", "verl/trainer/ppo/", "verl/utils/fsdp", "verl/utils/model"),
    "vllm": (*("vllm/v1/engine/llm_engine", "vllm/v1/engine/core", "vllm/engine/", "vllm/entrypoints/llm"),),
}
"""Beginnings of the paths of which it is kept what they set on objects and pass to functions, by package."""

_MOST_PLACES = 6
"""Places that set an attribute, or pass a keyword; a name with more of them says nothing."""

_SHORTEST_KEYWORD = 6

_MOST_RAISING = 3
"""Places that raise one message, of which each gets a row."""

_ROOTS = frozenset({"Parameter", "Linear", "TrainingArguments"})
"""Classes of which libraries expect derived ones, with attributes that the plain ones lack."""


class _File(NamedTuple):
    """Messages, members and given names that were read of one file."""

    raised: tuple[RaisedMessage, ...] = ()
    members: ModuleMembers | None = None
    given: GivenNames | None = None


@dataclass
class _Package:
    """Releases of a package that were read: names, oldest first, those since `_SINCE`, and files."""

    name: str
    labels: tuple[str, ...]
    recent: frozenset[str]
    files: dict[str, dict[str, _File]] = field(default_factory=dict)


def labels(reader: PackageReader) -> dict[str, str]:
    """Return the table's name for each release that is read, oldest first: the version or its minor.

    If versions are dates, a month has releases that differ, so all are read.
    """
    dated = all(int(version.partition(".")[0]) >= _OLDEST_YEAR for version in reader.by_version)
    if len(reader.by_version) <= _MANY or dated:
        return {version: version for version in reader.by_version}
    if first := parse(_EVERY_SINCE.get(reader.name, "")):
        since = {version: parse(version) for version in reader.by_version}
        return {version: version for version, parsed in since.items() if parsed and parsed >= first}
    oldest = parse(_OLDEST.get(reader.name, "0"))
    last = {}
    for version in reader.by_version:
        parsed = parse(version)
        if parsed and oldest and parsed >= oldest:
            last[parsed.release[:2]] = version
    return {version: ".".join(version.split(".")[:2]) for version in last.values()}


def read_package(name: str, store: ReleaseStore, folder: str | None = None) -> _Package:
    """Read the files of a package's releases; a file that did not change is parsed once.

    If a folder of compat/ is named, only what it holds is read.
    """
    reader = PackageReader(name, tuple(store.releases(name)))
    chosen = labels(reader)
    recent = {
        label for version, label in chosen.items() if reader.by_version[version].uploaded >= _SINCE
    } or {[*chosen.values()][-1]}
    package = _Package(name, tuple(chosen.values()), frozenset(recent))
    parsed: dict[tuple[bytes, bool, bool, bool], _File] = {}
    for version, label in chosen.items():
        package.files[label] = dict(_files(reader.by_version[version], name, parsed, folder))
    return package


def _files(
    release: PublishedRelease,
    package: str,
    parsed: dict[tuple[bytes, bool, bool, bool], _File],
    folder: str | None,
) -> Iterator[tuple[str, _File]]:
    for path in release.files.names():
        if not path.endswith(".py") or any(part in _UNREAD for part in path.split("/")):
            continue
        raises = path.startswith(_RAISED.get(package, ())) and not path.startswith(_UNRAISED)
        raises = raises and folder in (None, "raised")
        members = path.startswith(_MEMBERS.get(package, ())) and folder in (None, "members")
        given = path.startswith(_GIVEN.get(package, ())) and folder in (None, "given")
        if raises or members or given:
            data = release.files.read(path)
            key = (hashlib.sha256(data).digest(), raises, members, given)
            if key not in parsed:
                parsed[key] = _parse(data, raises=raises, members=members, given=given)
            yield path, parsed[key]


def _parse(data: bytes, *, raises: bool, members: bool, given: bool) -> _File:
    try:
        tree = ast.parse(data)
    except (SyntaxError, ValueError, RecursionError):
        return _File()
    return _File(
        raised_messages(tree) if raises else (),
        module_members(tree) if members else None,
        given_names(tree) if given else None,
    )


# --- messages ---------------------------------------------------------------------------------------


def raised_rows(package: _Package) -> Iterator[RaisedRow]:
    """Yield a package's messages, each at the places where its newest release raises it.

    A message with many places has a row for each of the first ones alone.
    """
    releases: dict[tuple[str, str], set[str]] = {}
    newest: dict[tuple[str, str], tuple[str, dict[tuple[str, str], RaisedMessage]]] = {}
    for label in package.labels:
        for path, file in package.files[label].items():
            for message in file.raised:
                key = (message.exception, message.template)
                releases.setdefault(key, set()).add(label)
                if key not in newest or newest[key][0] != label:
                    newest[key] = (label, {})
                newest[key][1].setdefault((path, message.condition), message)
    kept = {
        (key, path): message
        for key, (_, places) in newest.items()
        for (path, _), message in [*places.items()][:_MOST_RAISING]
        if releases[key] & package.recent and not path.startswith(_UNKEPT)
    }
    templates = shortened(key for key, _ in kept)
    for (key, path), message in kept.items():
        yield RaisedRow(
            package.name,
            path,
            message.function,
            spans_of(releases[key], package.labels),
            message.exception,
            message.condition,
            templates[key],
        )


# --- members ----------------------------------------------------------------------------------------


class _Classes:
    """Classes of one release, by name; those of several modules with one name are one."""

    def __init__(self, files: Iterable[_File]) -> None:
        """Take the files of the release."""
        self.classes: dict[str, list[ClassMembers]] = {}
        self.functions: dict[str, set[str]] = {}
        for file in files:
            for name, members in file.members.classes.items() if file.members else ():
                self.classes.setdefault(name, []).append(members)
            for name, parameters in file.members.functions.items() if file.members else ():
                self.functions.setdefault(name, set()).add(parameters)
        self._attributes: dict[str, frozenset[str]] = {}

    def attributes(self, name: str, above: tuple[str, ...] = ()) -> frozenset[str]:
        """Return the attributes of a class and of its bases in this package."""
        if name not in self._attributes:
            found = {each for members in self.classes.get(name, ()) for each in members.attributes}
            for base in self.bases(name):
                if base not in above and base != name:
                    found |= self.attributes(base, (*above, name))
            self._attributes[name] = frozenset(found)
        return self._attributes[name]

    def may_have(self, name: str, attribute: str) -> bool:
        """Return whether a class, or a base of it in this package, may answer to an unassigned attribute."""
        return any(
            members.may_answer(attribute)
            for each in (name, *self.ancestors(name))
            for members in self.classes.get(each, ())
        )

    def bases(self, name: str) -> tuple[str, ...]:
        """Return the bases of a class."""
        return tuple(dict.fromkeys(base for each in self.classes.get(name, ()) for base in each.bases))

    def ancestors(self, name: str) -> tuple[str, ...]:
        """Return the bases of a class, and those of its bases in this package, nearest first."""
        found: dict[str, None] = {}
        queue = [name]
        while queue:
            bases = [
                base for each in queue for base in self.bases(each) if base not in found and base != name
            ]
            found |= dict.fromkeys(bases)
            queue = bases
        return tuple(found)

    def parameters(self) -> Iterator[tuple[str, str]]:
        """Yield functions and methods that one definition has, each with its parameters."""
        for name, variants in self.functions.items():
            if len(variants) == 1:
                yield name, next(iter(variants))
        for name, members in self.classes.items():
            if len(members) == 1:
                yield from ((f"{name}.{method}", text) for method, text in members[0].methods.items())


def member_rows(package: _Package, foreign: Callable[[str], frozenset[str]]) -> Iterator[MemberRow]:
    """Yield what differs between the releases; `foreign` gives the attributes of other packages' classes."""
    releases = {label: _Classes(package.files[label].values()) for label in package.labels}
    for name in sorted({name for each in releases.values() for name in each.classes}):
        having = [label for label in package.labels if name in releases[label].classes]
        if package.recent.isdisjoint(having):
            continue
        bases = releases[having[-1]].ancestors(name)
        inherited = frozenset().union(*(foreign(base) for base in bases))
        by_label = {label: releases[label].attributes(name) for label in having}
        differing = frozenset().union(*by_label.values()) - frozenset.intersection(*by_label.values())
        yield from _grouped(
            (
                (spans_of([label for label in having if each in by_label[label]], package.labels), each)
                for each in differing - inherited
                if not each.startswith("__")
                and not any(
                    releases[label].may_have(name, each) for label in having if each not in by_label[label]
                )
            ),
            name,
            bases,
        )
    yield from _function_rows(package, releases)


def _grouped(
    pairs: Iterable[tuple[tuple[tuple[str, str], ...], str]], owner: str, bases: tuple[str, ...]
) -> Iterator[MemberRow]:
    """Yield the attributes of a class in one row for all with the same releases."""
    rows: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for spans, name in pairs:
        rows.setdefault(spans, []).append(name)
    for spans, names in rows.items():
        yield MemberRow(owner, spans, tuple(sorted(names)), bases)


def _function_rows(package: _Package, releases: Mapping[str, _Classes]) -> Iterator[MemberRow]:
    taken: dict[str, dict[str, str]] = {}
    for label, classes in releases.items():
        for function, parameters in classes.parameters():
            taken.setdefault(function, {})[label] = parameters
    for function, by_label in sorted(taken.items()):
        variants = {*by_label.values()}
        if len(variants) == 1 or package.recent.isdisjoint(by_label) or len(max(variants, key=len)) > 2000:  # noqa: PLR2004
            continue
        for parameters in sorted(variants):
            having = [label for label in by_label if by_label[label] == parameters]
            spans = spans_of(having, package.labels)
            yield MemberRow(function, spans, (parameters,), is_function=True)


# --- what is set and passed -------------------------------------------------------------------------


def given_rows(package: _Package) -> Iterator[GivenRow]:
    """Yield the attributes that a package sets in few places, each where its newest release sets it."""
    releases: dict[tuple[str, str, str], set[str]] = {}
    newest: dict[tuple[str, str, str], tuple[str, GivenAttribute]] = {}
    places: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for label in package.labels:
        for path, file in package.files[label].items():
            for each in file.given.attributes if file.given else ():
                key = (each.owner, each.name, each.condition)
                releases.setdefault(key, set()).add(label)
                newest[key] = (path, each)
                places.setdefault(key[:2], set()).add((path.rpartition("/")[2], each.function))
    rows: dict[tuple[str, str, tuple[tuple[str, str], ...], bool, str], list[str]] = {}
    for key, (path, each) in newest.items():
        telling = each.name.islower() and len(places[key[:2]]) <= _MOST_PLACES
        if telling and releases[key] & package.recent and not path.startswith(_UNKEPT):
            spans = spans_of(releases[key], package.labels)
            rows.setdefault((path, each.function, spans, bool(each.owner), each.condition), []).append(
                each.name
            )
    for (path, function, spans, own, condition), names in rows.items():
        yield GivenRow(path, function, spans, own, condition, tuple(sorted(names)))


def optional_rows(package: _Package) -> Iterator[GivenRow]:
    """Yield the names that a file imports only under a condition."""
    rows: dict[tuple[str, str, str], set[str]] = {}
    for label in package.labels:
        for path, file in package.files[label].items():
            for name, condition in file.given.optional if file.given else ():
                rows.setdefault((path, condition, name), set()).add(label)
    for (path, condition, name), labels_of in rows.items():
        if labels_of & package.recent and not path.endswith("__init__.py"):
            spans = spans_of(labels_of, package.labels)
            yield GivenRow(path, OPTIONAL, spans, own=False, condition=condition, names=(name,))


def class_rows(package: _Package) -> Iterator[GivenRow]:
    """Yield the attributes of classes that are derived from one of `_ROOTS`."""
    rows: dict[tuple[str, str], dict[str, set[str]]] = {}
    for label in package.labels:
        classes = {
            each.name: (path, each)
            for path, file in package.files[label].items()
            for each in (file.given.classes if file.given else ())
        }
        for name, (path, each) in classes.items():
            above, queue = set(each.bases), list(each.bases)
            while queue:
                base = queue.pop()
                new = {*classes[base][1].bases} - above if base in classes else set()
                above |= new
                queue += new
            if roots := sorted(above & _ROOTS):
                names = rows.setdefault((path, class_header(name, roots)), {})
                for attribute in each.attributes:
                    names.setdefault(attribute, set()).add(label)
    for (path, header), names in rows.items():
        by_spans: dict[tuple[tuple[str, str], ...], list[str]] = {}
        for attribute, labels_of in names.items():
            if labels_of & package.recent:
                by_spans.setdefault(spans_of(labels_of, package.labels), []).append(attribute)
        for spans, of_spans in by_spans.items():
            yield GivenRow(path, header, spans, own=True, condition="", names=tuple(sorted(of_spans)))


def keyword_rows(package: _Package) -> Iterator[KeywordRow]:
    """Yield the keywords that only some releases pass, and only in few places."""
    places: dict[str, dict[str, int]] = {}
    for label in package.labels:
        for file in package.files[label].values():
            for name, _ in file.given.keywords if file.given else ():
                counts = places.setdefault(name, {})
                counts[label] = counts.get(label, 0) + 1
    rows: dict[tuple[tuple[str, str], ...], list[str]] = {}
    before = [label for label in package.labels if label not in package.recent][-3:]
    for name, counts in places.items():
        few = max(counts.values()) <= _MOST_PLACES and len(name) >= _SHORTEST_KEYWORD and name.islower()
        began = not counts.keys() & {*before} and package.recent & counts.keys()
        if few and (began or package.labels[-1] not in counts) and package.recent & counts.keys():
            rows.setdefault(spans_of([*counts], package.labels), []).append(name)
    for spans, names in rows.items():
        yield KeywordRow(spans, tuple(sorted(names)))


def main() -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packages", nargs="*", default=sorted({*_RAISED, *_MEMBERS, *_GIVEN}))
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--folder", choices=("raised", "members", "given"))
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore", SyntaxWarning)
    store = ReleaseStore(given.store)
    packages = {name: read_package(name, store, given.folder) for name in given.packages}
    everywhere: dict[str, dict[str, frozenset[str]]] = {}
    for package in packages.values():
        for label in package.labels:
            classes = _Classes(package.files[label].values())
            own = everywhere.setdefault(package.name, {})
            for name in classes.classes:
                own[name] = own.get(name, frozenset()) | classes.attributes(name)
    for name, package in packages.items():

        def foreign(base: str, name: str = name) -> frozenset[str]:
            return frozenset().union(*(own.get(base, ()) for key, own in everywhere.items() if key != name))

        texts = {
            "raised": raised_text(name, raised_rows(package), package.labels) if name in _RAISED else "",
            "members": members_text(name, member_rows(package, foreign), package.labels)
            if name in _MEMBERS
            else "",
            "given": given_text(
                name,
                [*given_rows(package), *optional_rows(package), *class_rows(package)],
                keyword_rows(package),
                package.labels,
            )
            if name in _GIVEN
            else "",
        }
        for folder, text in texts.items():
            if text and given.folder in (None, folder):
                size = len(zlib.compress(text.encode(), 9))
                print(
                    f"{folder}/{name}: {text.count(chr(10))} lines, {len(text)} bytes, {size} packed",
                    flush=True,
                )
                if given.write:
                    (COMPAT / folder).mkdir(exist_ok=True)
                    (COMPAT / folder / f"{name}.txt").write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
