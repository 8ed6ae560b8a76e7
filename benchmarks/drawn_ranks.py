"""Spread a drawn training over processes of the CPU: DeepSpeed's configuration, FSDP's, and what a CPU lacks.

accelerate shards with FSDP only where it finds GPUs, although torch's FSDP runs on gloo too, and counts one
process beside DeepSpeed on a CPU. It is told here that several devices train, and that the device is the CPU.
"""

import os
from contextlib import nullcontext

import torch
from drawn_models import SETTINGS

PARALLEL = SETTINGS["parallel"]
STAGE = int(PARALLEL[-1]) if PARALLEL.startswith("zero") else 0


def prepare():
    """Change what asks for a GPU, before anything reads it."""
    if STAGE:
        import deepspeed.ops

        # Else a kernel for shared memory is compiled, which takes minutes.
        getattr(deepspeed.ops, "__compatible_ops__", {})["deepspeed_shm_comm"] = False
    if STAGE or PARALLEL.startswith("fsdp"):
        import transformers.training_args as read

        # Without use_cpu, which would switch both off, the arguments ask a GPU whether it knows bfloat16.
        read.is_torch_bf16_gpu_available = lambda: True
        from accelerate import DistributedType, PartialState

        def backend(*_, **__):
            return "gloo", DistributedType.MULTI_GPU

        def set_device(self):
            self.device = torch.device("cpu")

        if hasattr(PartialState, "_prepare_backend"):
            PartialState._prepare_backend, PartialState.set_device = backend, set_device  # noqa: SLF001
    if PARALLEL == "fsdp1":
        from torch.distributed.fsdp._flat_param import FlatParamHandle

        # It frees what it has moved to the CPU, which is the parameter itself where that is there already.
        FlatParamHandle.to_cpu = nullcontext


def zero():
    """Return the configuration of DeepSpeed."""
    partitioning = {"stage": STAGE}
    if STAGE == 3:  # noqa: PLR2004 - the stage
        partitioning["stage3_gather_16bit_weights_on_model_save"] = SETTINGS["gather_on_save"]
    auto = "auto"
    made = {
        "zero_optimization": partitioning,
        "train_micro_batch_size_per_gpu": auto,
        "gradient_accumulation_steps": auto,
        "gradient_clipping": auto,
        "bf16": {"enabled": auto},
    }
    if SETTINGS["deepspeed_optimizer"]:
        values = {"lr": auto, "betas": auto, "eps": auto, "weight_decay": auto, "torch_adam": True}
        made["optimizer"] = {"type": "AdamW", "params": values}
    if SETTINGS["allow_untested_optimizer"]:
        made["zero_allow_untested_optimizer"] = True
    return made


def layer(model):
    """Return the name of the class of the model's layers."""
    found = [each for each in model.modules() if isinstance(each, torch.nn.ModuleList) and len(each)]
    return type(found[0][0]).__name__


def trainer_arguments(loaded):
    """Return the Trainer's arguments that spread the training; of FSDP they name the model's layers."""
    if STAGE:
        return {"deepspeed": zero()}
    if PARALLEL == "ddp":
        found = SETTINGS["find_unused"]
        return {"ddp_backend": "gloo"} | ({"ddp_find_unused_parameters": found} if found else {})
    if not PARALLEL.startswith("fsdp"):
        return {}
    how = {
        "transformer_layer_cls_to_wrap": [layer(loaded)],
        "use_orig_params": SETTINGS["use_orig_params"],
        "state_dict_type": f"{SETTINGS['fsdp_state_dict'].upper()}_STATE_DICT",
        "activation_checkpointing": SETTINGS["fsdp_activation_checkpointing"],
        "cpu_ram_efficient_loading": False,
        "sync_module_states": False,
        "version": int(PARALLEL[-1]),
        "fsdp_version": int(PARALLEL[-1]),
    }
    if PARALLEL == "fsdp2":
        os.environ["FSDP_VERSION"] = "2"
    return {"fsdp": f"{SETTINGS['fsdp_sharding']} auto_wrap", "fsdp_config": how}


def set_variables(loaded):
    """Set the variables by which `accelerate launch` asks for FSDP."""
    os.environ.update(
        ACCELERATE_USE_FSDP="true",
        FSDP_VERSION=PARALLEL[-1],
        FSDP_AUTO_WRAP_POLICY="TRANSFORMER_BASED_WRAP",
        FSDP_TRANSFORMER_CLS_TO_WRAP=layer(loaded),
        FSDP_SHARDING_STRATEGY=SETTINGS["fsdp_sharding"].upper(),
        FSDP_RESHARD_AFTER_FORWARD="true" if PARALLEL == "fsdp2" else SETTINGS["fsdp_sharding"].upper(),
        FSDP_STATE_DICT_TYPE=f"{SETTINGS['fsdp_state_dict'].upper()}_STATE_DICT",
        FSDP_USE_ORIG_PARAMS=str(SETTINGS["use_orig_params"]).lower(),
        FSDP_ACTIVATION_CHECKPOINTING=str(SETTINGS["fsdp_activation_checkpointing"]).lower(),
        FSDP_CPU_RAM_EFFICIENT_LOADING="false",
        FSDP_SYNC_MODULE_STATES="false",
    )
