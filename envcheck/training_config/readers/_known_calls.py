"""Calls of libraries that configure a training: their names, and which of them a program's call is. Pure."""

from __future__ import annotations

import ast
from collections.abc import Mapping

from envcheck.core.facts import Unknown
from envcheck.core.records import NamedTuple
from envcheck.training_config.programs.given_options import TAKE_A_DICTIONARY, given_dictionary
from envcheck.training_config.programs.recorded_calls import Arguments, FollowedCall, KeywordGiven
from envcheck.training_config.programs.values import PartialText, Record

_TRL = frozenset({
    "SFTConfig", "DPOConfig", "GRPOConfig", "KTOConfig", "ORPOConfig", "CPOConfig", "RewardConfig",
    "PPOConfig", "RLOOConfig", "OnlineDPOConfig", "GKDConfig", "PRMConfig", "BCOConfig",
})  # fmt: skip

KNOWN_CALLS = frozenset({
    "get_peft_model", "prepare_model_for_kbit_training", "prepare_model_for_int8_training",
    "gradient_checkpointing_enable", "enable_gradient_checkpointing", "Accelerator", "autocast",
    "BitsAndBytesConfig", "GPTQConfig", "AwqConfig", "HqqConfig", "Mxfp4Config", "Trainer", "Seq2SeqTrainer",
    "SFTTrainer", "DPOTrainer", "GRPOTrainer", "KTOTrainer", "ORPOTrainer", "CPOTrainer",
    "RewardTrainer", "PPOTrainer", "RLOOTrainer", "OnlineDPOTrainer", "XPOTrainer", "NashMDTrainer",
    "SentenceTransformerTrainer",
    "FullyShardedDataParallel",
    "FSDP", "fully_shard", "DistributedDataParallel", "DDP", "from_pretrained", "ScalingConfig",
    "MixedPrecision", "MixedPrecisionPolicy", "LoRAAttnProcessor", "LoRAAttnProcessor2_0", "LoRALinearLayer",
    "LoRAConv2dLayer",
    "SupervisedFinetune", "notebook_launcher", "DeepSpeedStrategy", "FSDPStrategy", "DDPStrategy",
    "ModelParallelStrategy", "set_activation_checkpointing", "apply_activation_checkpointing",
    "merge_and_unload", "checkpoint_wrapper", "get_scheduler", "get_constant_schedule",
    "get_constant_schedule_with_warmup", "get_linear_schedule_with_warmup", "get_cosine_schedule_with_warmup",
    "get_cosine_with_hard_restarts_schedule_with_warmup", "get_polynomial_decay_schedule_with_warmup",
})  # fmt: skip

TRAINERS = sorted((name for name in KNOWN_CALLS if name.endswith("Trainer")), key=len, reverse=True)

ADAPTER_CONFIGS = frozenset({
    "LoraConfig", "AdaLoraConfig", "IA3Config", "LoHaConfig", "LoKrConfig", "OFTConfig", "BOFTConfig",
    "VeraConfig", "HRAConfig", "CPTConfig", "PrefixTuningConfig", "PromptTuningConfig",
    "PromptEncoderConfig", "LNTuningConfig", "FourierFTConfig", "VBLoRAConfig", "BoneConfig",
    "MissConfig", "RandLoraConfig", "ShiraConfig", "C3AConfig", "RoadConfig", "WaveFTConfig",
    "XLoraConfig", "PolyConfig", "DeloraConfig",
})  # fmt: skip

_NOT_MODELS = (
    "Tokenizer",
    "Processor",
    "Config",
    "Extractor",
    "Scheduler",
    "AutoencoderKL",
    "ImageProcessor",
)

LIGHTNING = ("lightning", "pytorch_lightning", "lightning_fabric", "L", "pl")
"""Packages of Lightning, and the names that they are imported as."""

_OF_SCHEDULES = ("transformers", "diffusers")
_ONLY_OF = {
    "checkpoint_wrapper": ("torch.distributed", "fairscale"),
    **{name: _OF_SCHEDULES for name in KNOWN_CALLS if name.startswith("get_") and "schedule" in name},
}
"""Packages whose function of a common name configures a training."""

UNSLOTH = ("FastLanguageModel", "FastModel", "FastVisionModel", "FastTextModel", "FastSentenceTransformer")

MODEL = "from_pretrained"

FIRST_ARGUMENTS = {MODEL: "model_name", "get_scheduler": "name"}
"""Functions whose first argument is mostly given by its position, and what the argument is called."""

_OF_UNSLOTH = {"UnslothTrainer": "SFTTrainer", "UnslothTrainingArguments": "SFTConfig"}
"""Classes that Unsloth derives from TRL's (unsloth/trainer.py), and what they are derived from."""

LIBRARIES = ("transformers", "trl", "sentence_transformers", "unsloth", "accelerate")
"""Packages that define the known trainers; a class of the same name from elsewhere is a different one."""

_OTHER_FRAMEWORKS = (
    "mlx",
    "mlx_lm",
    "mlx_vlm",
    "mlx_tune",
    "mlx_lm_lora",
    "paddlenlp",
    "paddleformers",
    "mindformers",
)
"""Packages that train without torch, and name classes as PEFT and the known trainers do."""

_ENCODERS = frozenset({
    "SentenceTransformerTrainingArguments", "SparseEncoderTrainingArguments", "CrossEncoderTrainingArguments",
})  # fmt: skip

QUANTISERS = ("BitsAndBytesConfig", "GPTQConfig", "AwqConfig", "HqqConfig", "Mxfp4Config")


_OF_TRAINERS = frozenset({
    "swift.RLHFArguments", "swift.SftArguments", "swift.TrainArguments", "swift.PretrainArguments",
    *TAKE_A_DICTIONARY,
})  # fmt: skip
"""Classes and functions of trainers that take the options of their command line: the package, then the name.

From ms-swift 3.0 to 4.6 (swift/llm/argument, swift/arguments).
"""


class ConfiguringCall(NamedTuple):
    """A call, the name that prefixes its settings, and its arguments if they were followed."""

    name: str
    node: ast.Call
    followed: FollowedCall | None = None


def base_of(name: str, bases: Mapping[str, str]) -> str:
    """Return the outermost base of a class of the file; return any other name unchanged."""
    found, seen = name, {""}
    while found in bases and found not in seen:
        seen.add(found)
        found = bases[found]
    return found


def makes_configuration(name: str) -> bool:
    """Return whether a class holds the settings of an adapter, of quantisation or of a trainer."""
    return name in ADAPTER_CONFIGS or name in QUANTISERS or bool(trainer_of(name))


def named_call(node: ast.Call, bases: Mapping[str, str]) -> ConfiguringCall | None:
    """Return a call that configures a training, or None; `bases` maps the file's classes to their bases."""
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    owner = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
    found = recognised_name(base_of(name, bases), owner)
    return ConfiguringCall(found, node) if found else None


def recognised_name(name: str, owner: str) -> str:
    """Return the name that prefixes the settings of a call that configures a training, or ""."""
    if owner.rpartition(".")[2] in UNSLOTH:
        return f"unsloth.{name}" if name in ("from_pretrained", "get_peft_model") else ""
    name = _OF_UNSLOTH.get(name, name)
    if name in ("Trainer", "Fabric") and owner.partition(".")[0] in LIGHTNING:
        return "lightning"
    if name == MODEL:
        return _loading(owner)
    if name == "initialize" and owner.rpartition(".")[2] == "deepspeed":
        return "deepspeed.initialize"
    package = owner.partition(".")[0]
    if (owner, name) in (("torch", "compile"), ("ray", "init")) or f"{package}.{name}" in _OF_TRAINERS:
        return f"{package}.{name}"
    is_known = name in KNOWN_CALLS or name in ADAPTER_CONFIGS or trainer_of(name)
    return name if is_known and (not owner or owner.startswith(_ONLY_OF.get(name, ("",)))) else ""


def _loading(owner: str) -> str:
    """Return the name of a call of `from_pretrained`; "" if it loads no model, adapter or configuration."""
    last = owner.rpartition(".")[2]
    if last.startswith("PeftModel"):
        return f"PeftModel.{MODEL}"
    if last == "AutoConfig":
        return f"{last}.{MODEL}"
    return MODEL if owner and not any(word in owner for word in _NOT_MODELS) else ""


def is_of_another_package(name: str, owner: str) -> bool:
    """Return whether a known name of a trainer or of its arguments is that of another package's class."""
    package = owner.partition(".")[0]
    if package in _OTHER_FRAMEWORKS:
        return True
    known = name in TRAINERS or (bool(trainer_of(name)) and name not in _OF_TRAINERS)
    return bool(package) and package not in LIBRARIES and known


def load_by_trainer(call: FollowedCall) -> ConfiguringCall | None:
    """Return the call of `from_pretrained` that a trainer makes with `model_init_kwargs`, or None.

    `device_map` is left out: TRL from 0.27 on passes None in its place if there are several processes.
    """
    given = next((each for each in call.arguments.keywords if each.name == "model_init_kwargs"), None)
    if given is None or not isinstance(given.value, Record) or given.value.role != "dict":
        return None
    keywords = tuple(
        KeywordGiven(name, value, given.node)
        for name, value in given.value.items.items()
        if name != "device_map"
    )
    arguments = Arguments(call.arguments.positional[:1], keywords, given.value.rest)
    return ConfiguringCall(MODEL, call.node, call._replace(name=MODEL, arguments=arguments))


def loads_by_name(call: FollowedCall) -> bool:
    """Return whether a trainer of TRL is given the name of a model, which it loads itself."""
    if not call.name.endswith("Trainer") or call.owner.partition(".")[0] != "trl":
        return False
    model = call.arguments.get("model", 0)
    node = next((each.node for each in call.arguments.keywords if each.name == "model"), None)
    named = isinstance(node, ast.Attribute) and node.attr in _NAMES_OF_MODELS
    known = isinstance(model, str | PartialText)
    return known or _is_text(node) or (named and isinstance(model, Unknown))


_NAMES_OF_MODELS = ("model_name_or_path", "model_name", "model_path", "model_id", "base_model")


def _is_text(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str"


def only_evaluates(name: str, call: FollowedCall) -> bool:
    """Return whether a call makes an engine that is not trained, if a trainer makes that of the model.

    Such as that of a reference model: it is given neither an optimizer nor parameters.
    """
    if name != "deepspeed.initialize" or call.arguments.rest or len(call.arguments.positional) > 1:
        return False
    given = {each.name: each.value for each in call.arguments.keywords}
    config = given.get("config", given.get("config_params"))
    trains = {"optimizer", "model_parameters", "args", "config_params"} & given.keys()
    names_one = isinstance(config, Record) and "optimizer" in config.items
    return not trains and config is not None and not names_one


def default_of_autocast(call: FollowedCall) -> str:
    """Return the type in which `autocast` computes on CUDA without a `dtype`; "" if it may be another one."""
    given = {each.name: each.value for each in call.arguments.keywords}
    device = call.arguments.get("device_type", 0)
    of_cuda = call.owner == "torch.cuda.amp" and not call.arguments.positional
    of_torch = call.owner in ("torch", "torch.amp") and device == "cuda"
    few = len(call.arguments.positional) <= 1 and not call.arguments.rest
    known = few and not {"dtype", "enabled"} & given.keys()
    return "float16" if known and (of_cuda or of_torch) else ""


def is_given_options(name: str, call: FollowedCall) -> bool:
    """Return whether a call has its trainer's options itself, and not those of a file or a command line."""
    return name not in TAKE_A_DICTIONARY or given_dictionary(call) is not None


def trainer_of(name: str) -> str:
    """Return the dialect of a class of trainer arguments, or "" for any other class."""
    if name in _OF_TRAINERS:
        return name.partition(".")[0]
    if name in _ENCODERS:
        return "sentence_transformers"
    if name.endswith("TrainingArguments"):
        return "transformers"
    return "trl" if name in _TRL else ""
