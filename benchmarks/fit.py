"""Measure the error of `envcheck fit`: train small models and compare the bytes of each part and phase.

    python benchmarks/fit.py --python TORCH_ENVIRONMENT/bin/python [--only NAME] [--device cuda] [-o FILE]

Each configuration is trained for three steps in separate processes; those with ZeRO, DDP or FSDP in two
ranks. On a CPU, meter.c (which needs a C compiler) counts the bytes that torch's CPU allocator has handed
out, in every thread. Other ways of counting are less exact. The resident set of the process also contains
libraries, freed pages and fragmentation, and varies from run to run; its peak is stored for comparison. A
count of live tensors from Python misses what a kernel allocates for itself, and torch's profiler misses what
gloo's threads release. On CUDA the figure is `torch.cuda.max_memory_allocated`.

The phases are those of the last step, when the optimizer states exist: at rest, forward with the loss,
backward, optimizer step. `fit` states the error of the peak.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import subprocess  # noqa: TID251 - a benchmark starts what it measures
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
MIB = 1024 * 1024
PATIENCE_S = 300
STEPS = 3
PHASES = ("rest", "forward", "backward", "step")


def llama(hidden: int, layers: int, mlp: int, vocab: int, **more: Any) -> dict[str, Any]:
    """Return the config.json of a Llama."""
    heads = hidden // 64
    sizes = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": mlp,
        "vocab_size": vocab,
    }
    return {
        "model_type": "llama",
        **sizes,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "tie_word_embeddings": False,
        **more,
    }


SMALL = llama(256, 4, 688, 4000)
MIDDLE = llama(512, 8, 1376, 8000)
WIDE = llama(768, 6, 2048, 32000)
QWEN2 = {
    **llama(512, 6, 1536, 16000),
    "model_type": "qwen2",
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
GPT2 = {
    "model_type": "gpt2",
    "n_embd": 512,
    "n_layer": 6,
    "n_head": 8,
    "n_positions": 1024,
    "vocab_size": 8000,
    "resid_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "embd_pdrop": 0.0,
}
GEMMA2 = {**llama(512, 6, 1536, 16000), "model_type": "gemma2", "num_key_value_heads": 2, "head_dim": 64}
SELFTEST = {
    **llama(64, 2, 128, 256),
    "model_type": "qwen2",
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
"""The shape of the self-tests' model."""

LORA = {"adapter": "lora"}
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "small fp32": {"model": SMALL},
    "middle fp32": {"model": MIDDLE, "seq": 512},
    "middle bf16": {"model": MIDDLE, "seq": 512, "precision": "bf16"},
    "middle bf16 ckpt": {"model": MIDDLE, "seq": 512, "precision": "bf16", "checkpointing": True},
    "middle fp32 ckpt": {"model": MIDDLE, "seq": 512, "checkpointing": True},
    "middle fp32 eager": {"model": MIDDLE, "seq": 512, "attention": "eager"},
    "middle bf16 eager": {"model": MIDDLE, "seq": 512, "attention": "eager", "precision": "bf16"},
    "middle bf16 long": {
        "model": MIDDLE,
        "seq": 2048,
        "batch": 1,
        "precision": "bf16",
        "checkpointing": True,
    },
    "wide fp32": {"model": WIDE, "seq": 128},
    "wide bf16 ckpt": {"model": WIDE, "seq": 256, "precision": "bf16", "checkpointing": True},
    "qwen2 bf16": {"model": QWEN2, "seq": 512, "precision": "bf16"},
    "gpt2 fp32": {"model": GPT2, "seq": 512},
    "gemma2 bf16": {"model": GEMMA2, "seq": 256, "precision": "bf16", "attention": "eager"},
    "lora fp32": {"model": MIDDLE, "seq": 512, **LORA},
    "lora bf16": {"model": MIDDLE, "seq": 512, "precision": "bf16", **LORA},
    "lora bf16 ckpt": {"model": MIDDLE, "seq": 512, "precision": "bf16", "checkpointing": True, **LORA},
    "lora bf16 all dropout": {
        "model": MIDDLE,
        "seq": 512,
        "precision": "bf16",
        "targets": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        "rank": 16,
        "dropout": 0.05,
        **LORA,
    },
    "autocast bf16": {"model": MIDDLE, "seq": 512, "precision": "bf16", "stored": "fp32"},
    "autocast lora bf16 ckpt": {
        "model": MIDDLE,
        "seq": 512,
        "precision": "bf16",
        "stored": "fp32",
        "checkpointing": True,
        **LORA,
    },
    "dora bf16": {"model": SMALL, "seq": 512, "precision": "bf16", "dora": True, **LORA},
    "zero0 bf16": {"model": MIDDLE, "seq": 256, "precision": "bf16", "stage": 0},
    "zero1 bf16": {"model": MIDDLE, "seq": 256, "precision": "bf16", "stage": 1},
    "zero2 fp32": {"model": MIDDLE, "seq": 256, "stage": 2},
    "zero2 bf16": {"model": MIDDLE, "seq": 256, "precision": "bf16", "stage": 2},
    "zero2 bf16 overlap": {"model": MIDDLE, "seq": 256, "precision": "bf16", "stage": 2, "overlap": True},
    "zero2 lora bf16 ckpt": {
        "model": MIDDLE,
        "seq": 256,
        "precision": "bf16",
        "stage": 2,
        "checkpointing": True,
        **LORA,
    },
    "zero3 fp32": {"model": MIDDLE, "seq": 256, "stage": 3},
    "zero3 bf16": {"model": MIDDLE, "seq": 256, "precision": "bf16", "stage": 3},
    "zero3 bf16 ckpt": {"model": MIDDLE, "seq": 256, "precision": "bf16", "stage": 3, "checkpointing": True},
    "zero3 lora bf16 ckpt": {
        "model": MIDDLE,
        "seq": 256,
        "precision": "bf16",
        "stage": 3,
        "checkpointing": True,
        **LORA,
    },
    "zero3 short reuse": {
        "model": WIDE,
        "seq": 128,
        "precision": "bf16",
        "stage": 3,
        "checkpointing": True,
        "reuse": 10**7,
        "live": 10**7,
        "prefetch": 10**6,
        **LORA,
    },
    "selftest zero3": {
        "model": SELFTEST,
        "seq": 32,
        "precision": "bf16",
        "stage": 3,
        "checkpointing": True,
        "bucket": 500_000_000,
        **LORA,
    },
    "ddp bf16": {"model": MIDDLE, "seq": 256, "precision": "bf16", "parallel": "ddp"},
    "zero2 offload bf16": {"model": MIDDLE, "seq": 256, "precision": "bf16", "stage": 2, "offload": True},
    "zero3 offload bf16": {
        "model": MIDDLE,
        "seq": 256,
        "precision": "bf16",
        "stage": 3,
        "offload": True,
        "checkpointing": True,
    },
    "zero3 all offloaded bf16": {
        "model": MIDDLE,
        "seq": 256,
        "precision": "bf16",
        "stage": 3,
        "offload": True,
        "offload_param": True,
        "checkpointing": True,
    },
    "fsdp1 fp32": {"model": MIDDLE, "seq": 256, "parallel": "fsdp1"},
    "fsdp1 bf16": {"model": MIDDLE, "seq": 256, "precision": "bf16", "parallel": "fsdp1"},
    "fsdp2 fp32": {"model": MIDDLE, "seq": 256, "parallel": "fsdp2"},
    "fsdp2 bf16": {"model": MIDDLE, "seq": 256, "precision": "bf16", "parallel": "fsdp2"},
    "fsdp2 bf16 ckpt": {
        "model": MIDDLE,
        "seq": 256,
        "precision": "bf16",
        "parallel": "fsdp2",
        "checkpointing": True,
    },
    "fsdp2 lora bf16 ckpt": {
        "model": MIDDLE,
        "seq": 256,
        "precision": "bf16",
        "parallel": "fsdp2",
        "checkpointing": True,
        **LORA,
    },
}
"""Defaults: `seq` 256, `batch` 2, fp32, sdpa, one process."""


# --- in the measured environment ----------------------------------------------------------------------


def worker(configuration: dict[str, Any], device: str) -> dict[str, Any]:
    """Train three steps; return the bytes of the last step's phases and of the weights."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    before = _resident()
    meter = _Cuda() if device == "cuda" else _Cpu()
    with meter:
        model, step = _prepare(configuration, device)
        for number in range(STEPS):
            if number == STEPS - 1:
                meter.mark("rest")
            step(meter if number == STEPS - 1 else None)
    found: dict[str, Any] = meter.peaks()
    sizes: dict[str, int] = {"frozen": 0, "trainable": 0}
    for parameter in model.parameters():
        kind = "trainable" if parameter.requires_grad else "frozen"
        numel = getattr(parameter, "ds_numel", parameter.numel())
        sizes[kind] += numel * parameter.element_size()
    return {**found, "weights": sizes, "resident": _resident() - before}


def _resident() -> int:
    text = Path("/proc/self/status").read_text()
    return int(text.partition("VmHWM:")[2].split()[0]) * 1024


class _Cpu:
    """Memory meter for the CPU, which uses benchmarks/meter.c."""

    def __init__(self) -> None:
        self.meter = ctypes.CDLL(None)
        for name in ("meter_live", "meter_peak"):
            getattr(self.meter, name).restype = ctypes.c_size_t
        self.most: dict[str, int] = {}
        self.phase = ""

    def __enter__(self) -> None:
        self.meter.meter_start()

    def __exit__(self, *_: object) -> None:
        self.mark("end")

    def mark(self, phase: str) -> None:
        """Store the peak of the current phase and begin another one."""
        if self.phase:
            self.most[self.phase] = self.meter.meter_peak()
        self.meter.meter_reset()
        self.phase = phase

    def peaks(self) -> dict[str, int]:
        """Return the peak of allocated bytes by phase."""
        return {name: self.most[name] for name in PHASES}


class _Cuda:
    """Memory meter for CUDA, which uses torch's own count of its allocator."""

    def __init__(self) -> None:
        self.most: dict[str, int] = {}
        self.phase = ""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.mark("end")

    def mark(self, phase: str) -> None:
        """Store the peak of the current phase and begin another one."""
        import torch

        torch.cuda.synchronize()
        if self.phase:
            self.most[self.phase] = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        self.phase = phase

    def peaks(self) -> dict[str, int]:
        """Return the peak of allocated bytes by phase."""
        return {name: self.most[name] for name in PHASES}


def _prepare(configuration: dict[str, Any], device: str) -> tuple[Any, Any]:
    """Return the model and a function that trains it for one step."""
    import torch

    model = _model(configuration, device)
    shape = (configuration.get("batch", 2), configuration.get("seq", 256))
    tokens = torch.randint(configuration["model"]["vocab_size"], shape, device=device)
    trainable = [each for each in model.parameters() if each.requires_grad]
    if "stage" in configuration:
        return _deepspeed(model, trainable, tokens, configuration)
    parallel = configuration.get("parallel")
    if parallel:
        torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")
    if parallel == "ddp":
        wrapped = torch.nn.parallel.DistributedDataParallel(model)
    elif parallel:
        wrapped = _fsdp(model, configuration, device)
        trainable = [each for each in wrapped.parameters() if each.requires_grad]
    else:
        wrapped = model
    bf16_autocast = configuration.get("precision") == "bf16" and "stored" in configuration
    autocast = torch.autocast(device, torch.bfloat16, enabled=bf16_autocast)
    optimizer = torch.optim.AdamW(trainable, lr=1e-4)

    def step(meter: Any) -> None:
        _mark(meter, "forward")
        with autocast:
            loss = wrapped(input_ids=tokens, labels=tokens).loss
        _mark(meter, "backward")
        loss.backward()
        _mark(meter, "step")
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def _model(configuration: dict[str, Any], device: str) -> Any:
    """Build the model with its adapter and with checkpointing, on the device."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    # FSDP keeps trained parameters in fp32 and casts them when it gathers them: accelerate's mixed precision.
    cast = configuration.get("parallel") in ("fsdp1", "fsdp2") and "adapter" not in configuration
    bf16 = configuration.get("precision") == "bf16" and "stored" not in configuration and not cast
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(**configuration["model"], use_cache=False),
        dtype=torch.bfloat16 if bf16 else torch.float32,
        attn_implementation=configuration.get("attention", "sdpa"),
    )
    model.train()
    if configuration.get("adapter"):
        model = _with_lora(model, configuration)
    if configuration.get("checkpointing"):
        inner = model.base_model.model if configuration.get("adapter") else model
        inner.gradient_checkpointing_enable({"use_reentrant": configuration.get("reentrant", False)})
    return model.to(device)


def _with_lora(model: Any, configuration: dict[str, Any]) -> Any:
    from peft import LoraConfig, get_peft_model

    return get_peft_model(
        model,
        LoraConfig(
            r=configuration.get("rank", 8),
            target_modules=configuration.get("targets"),
            lora_dropout=configuration.get("dropout", 0.0),
            use_dora=configuration.get("dora", False),
        ),
    )


def _fsdp(model: Any, configuration: dict[str, Any], device: str) -> Any:
    """Shard the model with one unit per layer, as accelerate does with mixed precision."""
    import torch
    from torch.distributed import fsdp

    low = torch.bfloat16 if configuration.get("precision") == "bf16" else None
    layers = {type(each) for name, each in model.named_modules() if name.endswith("layers.0")}
    if configuration["parallel"] == "fsdp1":
        from torch.distributed.fsdp.wrap import ModuleWrapPolicy

        return fsdp.FullyShardedDataParallel(
            model,
            auto_wrap_policy=ModuleWrapPolicy(layers),
            mixed_precision=fsdp.MixedPrecision(param_dtype=low, reduce_dtype=low, buffer_dtype=low),
            use_orig_params=True,
            device_id=torch.device(device),
        )
    mesh = torch.distributed.device_mesh.init_device_mesh(device, (torch.distributed.get_world_size(),))
    policy = fsdp.MixedPrecisionPolicy(param_dtype=low, reduce_dtype=low, output_dtype=low)
    for module in [each for each in model.modules() if type(each) in layers]:
        fsdp.fully_shard(module, mesh=mesh, mp_policy=policy)
    return fsdp.fully_shard(model, mesh=mesh, mp_policy=policy)


def _deepspeed(model: Any, trainable: Any, tokens: Any, configuration: dict[str, Any]) -> tuple[Any, Any]:
    import deepspeed
    import torch

    for name in list(deepspeed.ops.__compatible_ops__):
        if "shm" in name:  # otherwise it would be compiled first; plain gloo is enough
            deepspeed.ops.__compatible_ops__[name] = False
    hidden = configuration["model"]["hidden_size"]
    zero: dict[str, Any] = {
        "stage": configuration["stage"],
        "reduce_bucket_size": configuration.get("bucket", hidden * hidden),
        "allgather_bucket_size": configuration.get("bucket", hidden * hidden),
        "overlap_comm": configuration.get("overlap", False),
        "reduce_scatter": False,
        "stage3_prefetch_bucket_size": configuration.get("prefetch", int(0.9 * hidden * hidden)),
        "stage3_param_persistence_threshold": configuration.get("persistence", 10 * hidden),
        "stage3_max_live_parameters": configuration.get("live", 10**9),
        "stage3_max_reuse_distance": configuration.get("reuse", 10**9),
    }
    if configuration.get("offload"):
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
    if configuration.get("offload_param"):
        zero["offload_param"] = {"device": "cpu", "pin_memory": False}
    settings = {
        "train_micro_batch_size_per_gpu": configuration.get("batch", 2),
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": configuration.get("precision") == "bf16"},
    }
    optimizer = torch.optim.AdamW(trainable, lr=1e-4)
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer, config=settings)

    def step(meter: Any) -> None:
        _mark(meter, "forward")
        loss = engine(input_ids=tokens, labels=tokens).loss
        _mark(meter, "backward")
        engine.backward(loss)
        _mark(meter, "step")
        engine.step()

    return engine.module, step


def _mark(meter: Any, phase: str) -> None:
    if meter is not None:
        meter.mark(phase)


# --- starting the processes ---------------------------------------------------------------------------


def measure(python: str, configuration: dict[str, Any], device: str) -> dict[str, Any]:
    """Train a configuration and return what rank 0 measured.

    Raises:
        RuntimeError: a rank failed; the message is the end of the output.
    """
    ranks = 2 if "stage" in configuration or "parallel" in configuration else 1
    with tempfile.TemporaryDirectory() as folder:
        meter = Path(folder) / "meter.so"
        if device == "cpu":
            build = [
                "cc",
                "-shared",
                "-fPIC",
                "-O2",
                "-o",
                str(meter),
                str(ROOT / "benchmarks/meter.c"),
                "-ldl",
            ]
            subprocess.run(build, check=True)
        common = {
            **os.environ,  # noqa: TID251
            "WORLD_SIZE": str(ranks),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(29000 + os.getpid() % 900),
            "DS_BUILD_OPS": "0",
            "HF_HUB_OFFLINE": "1",
            "TOKENIZERS_PARALLELISM": "false",
            **({"DS_ACCELERATOR": "cpu", "LD_PRELOAD": str(meter)} if device == "cpu" else {}),
        }
        processes = []
        for rank in range(ranks):
            environ = {**common, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            words = [python, __file__, "--worker", json.dumps(configuration), "--device", device, "-o"]
            log = (Path(folder) / f"{rank}.log").open("w")
            processes.append(
                subprocess.Popen(
                    [*words, f"{folder}/{rank}.json"], env=environ, stdout=log, stderr=subprocess.STDOUT
                )
            )
        try:
            codes = [process.wait(PATIENCE_S) for process in processes]
        finally:
            for process in processes:
                process.kill()
        if any(codes):
            raise RuntimeError("\n".join(path.read_text()[-1500:] for path in Path(folder).glob("*.log")))
        found: dict[str, Any] = json.loads((Path(folder) / "0.json").read_text())
    return found


# --- comparing --------------------------------------------------------------------------------------


class Row(NamedTuple):
    """Estimated and measured bytes of each phase."""

    name: str
    estimated: dict[str, int]
    measured: dict[str, int]

    @property
    def error(self) -> float:
        """The relative error of the estimated peak."""
        return max(self.estimated.values()) / max(self.measured[name] for name in PHASES) - 1


def compared(measured: dict[str, Any], device: str = "cpu") -> list[Row]:
    """Estimate the measured configurations again; on a CPU, offloaded tensors use the same memory."""
    sys.path.insert(0, str(ROOT))
    from envcheck.memory import architecture, estimate
    from envcheck.memory.training import Training

    tables = tomllib.loads((ROOT / "compat/tables/architectures.toml").read_text())
    kept = {name: row["kept"] for row in tables["activation"] for name in row["names"]}
    rows = []
    for name, found in measured.items():
        configuration = CONFIGURATIONS[name]
        model = architecture.model(configuration["model"], tables, name)
        if model is None or model.decoder is None:
            raise ValueError(name)
        account = estimate.estimate(
            model,
            Training(**_training(configuration, device), activation=kept[model.decoder.activation]),
        )
        host = account.host_total if device == "cpu" else 0
        phases = account.phases
        sums = {
            "rest": account.rest,
            "forward": phases["forward"],
            "backward": max(phases["loss"], phases["backward"]),
            "step": phases["step"],
        }
        rows.append(Row(name, {phase: size + host for phase, size in sums.items()}, found))
    return rows


def _training(configuration: dict[str, Any], device: str) -> dict[str, Any]:
    model = configuration["model"]
    hidden = model.get("hidden_size", model.get("n_embd"))
    zero = "stage" in configuration
    return {
        "seq": configuration.get("seq", 256),
        "batch": configuration.get("batch", 2),
        "ranks": 2 if zero or "parallel" in configuration else 1,
        "precision": configuration.get("precision", "fp32"),
        "stored": configuration.get("stored", ""),
        "autocast": "stored" in configuration,
        "parallel": "deepspeed" if zero else configuration.get("parallel", "none"),
        "stage": configuration.get("stage", 0),
        "offload_optimizer": bool(configuration.get("offload")),
        "offload_param": bool(configuration.get("offload_param")),
        "adapter": "adapter" in configuration,
        "rank": configuration.get("rank", 8),
        "targets": tuple(configuration.get("targets", ())),
        "dropout": bool(configuration.get("dropout")),
        "dora": bool(configuration.get("dora")),
        "checkpointing": bool(configuration.get("checkpointing")),
        "attention": configuration.get("attention", "sdpa"),
        "reduce_bucket": configuration.get("bucket", hidden * hidden),
        "overlap": bool(configuration.get("overlap")),
        "prefetch": configuration.get("prefetch", int(0.9 * hidden * hidden)),
        "persistence": configuration.get("persistence", 10 * hidden),
        "live": configuration.get("live", 10**9),
        "reuse": configuration.get("reuse", 10**9),
        "optimizer": {"states": 2, "together": True},
        "cuda": device == "cuda",
    }


def table(rows: list[Row]) -> str:
    """Return a Markdown table with estimated / measured MiB."""
    lines = [
        "| configuration | at rest | forward | backward | step | peak, measured | error of the peak |",
        "| --- | --: | --: | --: | --: | --: | --: |",
    ]
    for row in rows:
        cells = [f"{row.estimated[phase] / MIB:.0f} / {row.measured[phase] / MIB:.0f}" for phase in PHASES]
        peak = max(row.measured[phase] for phase in PHASES) / MIB
        lines.append(f"| {row.name} | {' | '.join(cells)} | {peak:.0f} | {row.error:+.1%} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Measure the chosen configurations, add them to the file, and print the table of the whole file."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", help="an interpreter with torch, transformers, peft and deepspeed")
    parser.add_argument("--only", action="append", help="name of a configuration; repeatable")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--worker")
    parser.add_argument("-o", "--output", default=str(ROOT / "benchmarks/fit.json"))
    options = parser.parse_args()
    if options.worker:
        Path(options.output).write_text(json.dumps(worker(json.loads(options.worker), options.device)))
        return
    file = Path(options.output)
    kept = json.loads(file.read_text()) if file.exists() else {"measured": {}}
    for name, configuration in CONFIGURATIONS.items() if options.python else ():
        if options.only and name not in options.only:
            continue
        try:
            kept["measured"][name] = measure(options.python, configuration, options.device)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        kept.update(device=options.device, versions=_versions(options.python), date=time.strftime("%Y-%m-%d"))
        file.write_text(json.dumps(kept, indent=1) + "\n")
    print(table(compared(kept["measured"], options.device)), end="")


def _versions(python: str) -> dict[str, str]:
    code = (
        "import importlib.metadata as m, json;"
        "names = ('torch', 'transformers', 'peft', 'deepspeed');"
        "print(json.dumps({name: m.version(name).partition('+')[0] for name in names}))"
    )
    output = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
    versions: dict[str, str] = json.loads(output)
    return versions


if __name__ == "__main__":
    main()
