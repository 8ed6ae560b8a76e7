"""How near `envcheck fit` comes: train small models for real, compare the bytes of each part and phase.

    python benchmarks/fit.py --python TORCH_ENVIRONMENT/bin/python [--only NAME] [--device cuda] [-o FILE]

Each configuration is trained for three steps in processes of its own, those with ZeRO or DDP in two ranks.
On a CPU the bytes are those that torch's CPU allocator has handed out, counted by meter.c (which needs a C
compiler) in every thread. The resident set of the process holds libraries, freed pages and fragmentation
too and varies from run to run; its peak is kept beside. A count of live tensors from Python misses what a
kernel allocates for itself, and torch's profiler what gloo's threads release. On CUDA they are
`torch.cuda.max_memory_allocated`.

Phases are those of the last step, when optimizer states are there: at rest, forward with the loss,
backward, optimizer step. The error of the peak is what `fit` states.
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
    """A config.json of a Llama."""
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
"""`seq` 256, `batch` 2, fp32, sdpa, one process where a configuration does not say otherwise."""


# --- in the environment that is measured --------------------------------------------------------------


def worker(wanted: dict[str, Any], device: str) -> dict[str, Any]:
    """Train three steps; bytes of the last step's phases and of what lies at rest."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    before = _resident()
    meter = _Cuda() if device == "cuda" else _Cpu()
    with meter:
        model, step = _prepared(wanted, device)
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
    """The count of benchmarks/meter.c."""

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
        """What follows belongs to this phase."""
        if self.phase:
            self.most[self.phase] = self.meter.meter_peak()
        self.meter.meter_reset()
        self.phase = phase

    def peaks(self) -> dict[str, int]:
        """The most bytes that were allocated at once, by phase."""
        return {name: self.most[name] for name in PHASES}


class _Cuda:
    """torch's own count of what its CUDA allocator handed out."""

    def __init__(self) -> None:
        self.most: dict[str, int] = {}
        self.phase = ""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.mark("end")

    def mark(self, phase: str) -> None:
        """What follows belongs to this phase."""
        import torch

        torch.cuda.synchronize()
        if self.phase:
            self.most[self.phase] = torch.cuda.max_memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        self.phase = phase

    def peaks(self) -> dict[str, int]:
        """The most bytes that were allocated at once, by phase."""
        return {name: self.most[name] for name in PHASES}


def _prepared(wanted: dict[str, Any], device: str) -> tuple[Any, Any]:
    """The model and a function that trains one step, as the configuration says."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    bf16 = wanted.get("precision") == "bf16"
    # What FSDP trains it keeps in fp32 and casts as it gathers: accelerate's mixed precision.
    sharded = wanted.get("parallel") in ("fsdp1", "fsdp2")
    cast = sharded and "adapter" not in wanted
    dtype = torch.bfloat16 if bf16 and "stored" not in wanted and not cast else torch.float32
    autocast = torch.autocast(device, torch.bfloat16, enabled=bf16 and "stored" in wanted)
    config = AutoConfig.for_model(**wanted["model"], use_cache=False)
    model = AutoModelForCausalLM.from_config(
        config, dtype=dtype, attn_implementation=wanted.get("attention", "sdpa")
    )
    model.train()
    if wanted.get("adapter"):
        model = _adapted(model, wanted)
    if wanted.get("checkpointing"):
        inner = model.base_model.model if wanted.get("adapter") else model
        inner.gradient_checkpointing_enable({"use_reentrant": wanted.get("reentrant", False)})
    model.to(device)
    shape = (wanted.get("batch", 2), wanted.get("seq", 256))
    tokens = torch.randint(wanted["model"]["vocab_size"], shape, device=device)
    trainable = [each for each in model.parameters() if each.requires_grad]
    if "stage" in wanted:
        return _deepspeed(model, trainable, tokens, wanted)
    if wanted.get("parallel") == "ddp":
        torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")
        called = torch.nn.parallel.DistributedDataParallel(model)
    elif sharded:
        torch.distributed.init_process_group("nccl" if device == "cuda" else "gloo")
        called = _fsdp(model, wanted, device)
        trainable = [each for each in called.parameters() if each.requires_grad]
    else:
        called = model
    optimizer = torch.optim.AdamW(trainable, lr=1e-4)

    def step(meter: Any) -> None:
        _mark(meter, "forward")
        with autocast:
            loss = called(input_ids=tokens, labels=tokens).loss
        _mark(meter, "backward")
        loss.backward()
        _mark(meter, "step")
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def _adapted(model: Any, wanted: dict[str, Any]) -> Any:
    from peft import LoraConfig, get_peft_model

    return get_peft_model(
        model,
        LoraConfig(
            r=wanted.get("rank", 8),
            target_modules=wanted.get("targets"),
            lora_dropout=wanted.get("dropout", 0.0),
            use_dora=wanted.get("dora", False),
        ),
    )


def _fsdp(model: Any, wanted: dict[str, Any], device: str) -> Any:
    """The model sharded, a unit a layer, as accelerate does it with mixed precision."""
    import torch
    from torch.distributed import fsdp

    low = torch.bfloat16 if wanted.get("precision") == "bf16" else None
    layers = {type(each) for name, each in model.named_modules() if name.endswith("layers.0")}
    if wanted["parallel"] == "fsdp1":
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


def _deepspeed(model: Any, trainable: Any, tokens: Any, wanted: dict[str, Any]) -> tuple[Any, Any]:
    import deepspeed
    import torch

    for name in list(deepspeed.ops.__compatible_ops__):
        if "shm" in name:  # else it is compiled first; plain gloo will do
            deepspeed.ops.__compatible_ops__[name] = False
    hidden = wanted["model"]["hidden_size"]
    zero: dict[str, Any] = {
        "stage": wanted["stage"],
        "reduce_bucket_size": wanted.get("bucket", hidden * hidden),
        "allgather_bucket_size": wanted.get("bucket", hidden * hidden),
        "overlap_comm": wanted.get("overlap", False),
        "reduce_scatter": False,
        "stage3_prefetch_bucket_size": wanted.get("prefetch", int(0.9 * hidden * hidden)),
        "stage3_param_persistence_threshold": wanted.get("persistence", 10 * hidden),
        "stage3_max_live_parameters": wanted.get("live", 10**9),
        "stage3_max_reuse_distance": wanted.get("reuse", 10**9),
    }
    if wanted.get("offload"):
        zero["offload_optimizer"] = {"device": "cpu", "pin_memory": False}
    if wanted.get("offload_param"):
        zero["offload_param"] = {"device": "cpu", "pin_memory": False}
    settings = {
        "train_micro_batch_size_per_gpu": wanted.get("batch", 2),
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": wanted.get("precision") == "bf16"},
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


# --- here -------------------------------------------------------------------------------------------


def measured(python: str, wanted: dict[str, Any], device: str) -> dict[str, Any]:
    """What rank 0 measured; RuntimeError with the end of its output if a rank failed."""
    ranks = 2 if "stage" in wanted or "parallel" in wanted else 1
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
            words = [python, __file__, "--worker", json.dumps(wanted), "--device", device, "-o"]
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


# --- compared ---------------------------------------------------------------------------------------


class Row(NamedTuple):
    """Bytes estimated and measured, of each phase; `error` is that of the peak."""

    name: str
    estimated: dict[str, int]
    measured: dict[str, int]

    @property
    def error(self) -> float:
        """The share of the measured peak by which the estimate differs."""
        return max(self.estimated.values()) / max(self.measured[name] for name in PHASES) - 1


def compared(measured: dict[str, Any], device: str = "cpu") -> list[Row]:
    """What was measured, estimated anew; on a CPU what is offloaded lies in the same memory."""
    sys.path.insert(0, str(ROOT))
    from envcheck.memory import architecture, estimate
    from envcheck.memory.training import Training

    tables = tomllib.loads((ROOT / "compat/tables/architectures.toml").read_text())
    kept = {name: row["kept"] for row in tables["activation"] for name in row["names"]}
    rows = []
    for name, found in measured.items():
        wanted = CONFIGURATIONS[name]
        model = architecture.model(wanted["model"], tables, name)
        if model is None or model.decoder is None:
            raise ValueError(name)
        account = estimate.estimate(
            model, Training(**_training(wanted, device), activation=kept[model.decoder.activation])
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


def _training(wanted: dict[str, Any], device: str) -> dict[str, Any]:
    model = wanted["model"]
    hidden = model.get("hidden_size", model.get("n_embd"))
    zero = "stage" in wanted
    return {
        "seq": wanted.get("seq", 256),
        "batch": wanted.get("batch", 2),
        "ranks": 2 if zero or "parallel" in wanted else 1,
        "precision": wanted.get("precision", "fp32"),
        "stored": wanted.get("stored", ""),
        "autocast": "stored" in wanted,
        "parallel": "deepspeed" if zero else wanted.get("parallel", "none"),
        "stage": wanted.get("stage", 0),
        "offload_optimizer": bool(wanted.get("offload")),
        "offload_param": bool(wanted.get("offload_param")),
        "adapter": "adapter" in wanted,
        "rank": wanted.get("rank", 8),
        "targets": tuple(wanted.get("targets", ())),
        "dropout": bool(wanted.get("dropout")),
        "dora": bool(wanted.get("dora")),
        "checkpointing": bool(wanted.get("checkpointing")),
        "attention": wanted.get("attention", "sdpa"),
        "reduce_bucket": wanted.get("bucket", hidden * hidden),
        "overlap": bool(wanted.get("overlap")),
        "prefetch": wanted.get("prefetch", int(0.9 * hidden * hidden)),
        "persistence": wanted.get("persistence", 10 * hidden),
        "live": wanted.get("live", 10**9),
        "reuse": wanted.get("reuse", 10**9),
        "optimizer": {"states": 2, "together": True},
        "cuda": device == "cuda",
    }


def table(rows: list[Row]) -> str:
    """Markdown: MiB estimated / measured."""
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
    """Measure what is asked for, add it to the file, print the table of all that is in it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--python", help="an interpreter with torch, transformers, peft and deepspeed")
    parser.add_argument("--only", action="append", help="a configuration's name")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--worker")
    parser.add_argument("-o", "--output", default=str(ROOT / "benchmarks/fit.json"))
    asked = parser.parse_args()
    if asked.worker:
        Path(asked.output).write_text(json.dumps(worker(json.loads(asked.worker), asked.device)))
        return
    file = Path(asked.output)
    kept = json.loads(file.read_text()) if file.exists() else {"measured": {}}
    for name, wanted in CONFIGURATIONS.items() if asked.python else ():
        if asked.only and name not in asked.only:
            continue
        try:
            kept["measured"][name] = measured(asked.python, wanted, asked.device)
        except (RuntimeError, subprocess.TimeoutExpired) as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        kept.update(device=asked.device, versions=_versions(asked.python), date=time.strftime("%Y-%m-%d"))
        file.write_text(json.dumps(kept, indent=1) + "\n")
    print(table(compared(kept["measured"], asked.device)), end="")


def _versions(python: str) -> dict[str, str]:
    code = (
        "import importlib.metadata as m, json;"
        "names = ('torch', 'transformers', 'peft', 'deepspeed');"
        "print(json.dumps({name: m.version(name).partition('+')[0] for name in names}))"
    )
    said = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True).stdout
    versions: dict[str, str] = json.loads(said)
    return versions


if __name__ == "__main__":
    main()
