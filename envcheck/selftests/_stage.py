"""What every self-test stands on: run by the target interpreter, imports nothing of envcheck.

    python _stage.py '{"claims": [{"test": "…/recompute_consistency.py", "variants": ["zero3-lora"], …}], …}'

A test is a file beside this one with a `run(stage, variant)`. What happens is written to a journal, one
JSON object a line, as it happens: a process that hangs or is killed has still said how far it came.
The journal is the only output that is read; libraries may print what they like.

Every variant runs in a fork of this process. On a CPU the fork inherits imported libraries, which saves
nearly all of its time; on CUDA nothing is imported before the fork, for a CUDA context does not survive one.

Runs on Python 3.9 and later, needs the standard library, and torch where a test asks for it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import math
import os
import signal
import sys
import time
import traceback

HIDDEN, LAYERS, VOCABULARY, SEQUENCE = 64, 2, 128, 16
"""The tiny model: hidden 64, two layers, four heads, two key heads; about 0.1 million parameters."""

ECHO_S = 3.0
"""How long the other ranks may still run once one has gone wrong: an error of theirs may say more."""


class Failed(Exception):
    """The claim of the test does not hold here."""


class Skipped(Exception):
    """The test cannot be asked here; says what is missing."""


class Stage:
    """The device, the rank, the journal, and what training-shaped tests share."""

    def __init__(self, order, claim, variant):
        """Take the runner's order, one of its claims (see `main`) and the name of the variant to run."""
        self.order = order
        self.claim = claim
        self.variant = variant
        self.device_type = order["device"]
        self.rank, self.world = order["rank"], order["world"]
        self.local_rank = order.get("local_rank", self.rank)
        self.scratch = order["scratch"]
        self.calls = []
        self.journal = os.open(order["journal"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    @property
    def mark(self):
        """A name for files and keys of this variant alone."""
        return f"{self.claim['name']}.{self.variant}"

    # --- the journal ---------------------------------------------------------------------------------

    def note(self, event, **details):
        """Write one event; a value JSON cannot hold is written as its text."""
        line = {
            "event": event,
            "test": self.claim["name"],
            "variant": self.variant,
            **details,
            "time": time.time(),
        }
        # One write a line: two processes that append never mix theirs.
        os.write(self.journal, (json.dumps(line, default=str) + "\n").encode())

    @contextlib.contextmanager
    def call(self, name):
        """Say which call is running, so that an error, a hang or a death is put down to it."""
        self.calls.append(name)
        self.note("call", name=name)
        yield
        self.calls.pop()

    def wrong(self):
        """Tell the other ranks of this machine that they wait in vain."""
        with contextlib.suppress(OSError):
            open(os.path.join(self.scratch, f"{self.mark}.wrong"), "w").close()

    def someone_wrong(self):
        """Whether a rank of this machine has failed, died or come late."""
        return os.path.exists(os.path.join(self.scratch, f"{self.mark}.wrong"))

    def saw(self, **values):
        """Put measured values on record."""
        self.note("saw", values=values)

    def fail(self, why):
        """The claim does not hold; raises Failed."""
        raise Failed(why)

    def skip(self, why):
        """The claim cannot be asked here; raises Skipped."""
        raise Skipped(why)

    # --- comparing -----------------------------------------------------------------------------------

    def close(self, found, expected, tolerance, what):
        """Fail unless two tensors have one shape, are finite, and |found - expected| <= tolerance * scale.

        The scale is the largest magnitude of the expected tensor, at least 1e-6, so that a tolerance is
        relative to the tensor and not to its smallest element.
        """
        import torch

        if tuple(found.shape) != tuple(expected.shape):
            self.fail(f"{what}: shape {list(found.shape)}, expected {list(expected.shape)}")
        a, b = found.detach().double().cpu(), expected.detach().double().cpu()
        if not bool(torch.isfinite(a).all()):
            self.fail(f"{what}: not finite (NaN or infinity)")
        scale = max(float(b.abs().max()) if b.numel() else 0.0, 1e-6)
        error = float((a - b).abs().max()) / scale if b.numel() else 0.0
        if not error <= tolerance:
            self.fail(f"{what}: differs by {error:.2g} of its largest value, allowed {tolerance:.2g}")
        return error

    # --- torch and its devices -----------------------------------------------------------------------

    @property
    def device(self):
        """The torch.device of this rank."""
        import torch

        if self.device_type == "cpu":
            return torch.device("cpu")
        return torch.device(self.device_type, self.local_rank % max(1, torch.cuda.device_count()))

    def join(self):
        """Join the ranks' process group: gloo on the CPU, NCCL on CUDA; also with a single rank."""
        import datetime as dt

        import torch
        import torch.distributed as dist

        if self.device_type != "cpu":
            torch.cuda.set_device(self.device)
        if dist.is_initialized():
            return dist
        if self.order.get("rendezvous") == "env":
            store, _, _ = next(dist.rendezvous("env://", self.rank, self.world))
        else:
            store = dist.FileStore(os.path.join(self.scratch, f"{self.mark}.ranks"), self.world)
        with self.call("joining the process group"):
            dist.init_process_group(
                "gloo" if self.device_type == "cpu" else "nccl",
                store=dist.PrefixStore(self.mark, store),
                rank=self.rank,
                world_size=self.world,
                timeout=dt.timedelta(seconds=self.claim["seconds"]),
            )
        return dist

    # --- a model to train ----------------------------------------------------------------------------

    def model(self, adapter="none", checkpointing=None, family="qwen2", dtype=None, context=None, seed=0):
        """A tiny random Llama or Qwen2, made in memory, training mode, on the CPU.

        Args:
            adapter: "none", "lora" or "dora", on q_proj and v_proj, rank 8, no dropout: a recompute must
                have nothing random to restore.
            checkpointing: None for off, else `use_reentrant`.
            family: "llama" or "qwen2".
            dtype: torch dtype of the base; float32 if None.
            context: a context manager the base is made under (`deepspeed.zero.Init`).
            seed: of all weights.
        """
        import torch
        import transformers

        torch.manual_seed(seed)
        of, config = {
            "llama": (transformers.LlamaForCausalLM, transformers.LlamaConfig),
            "qwen2": (transformers.Qwen2ForCausalLM, transformers.Qwen2Config),
        }[family]
        with context or contextlib.nullcontext():
            model = of(
                config(
                    vocab_size=VOCABULARY,
                    hidden_size=HIDDEN,
                    intermediate_size=2 * HIDDEN,
                    num_hidden_layers=LAYERS,
                    num_attention_heads=4,
                    num_key_value_heads=2,
                    max_position_embeddings=64,
                    use_cache=False,
                )
            )
        if dtype is not None:
            model = model.to(dtype)
        if checkpointing is not None:
            model.gradient_checkpointing_enable(
                gradient_checkpointing_kwargs={"use_reentrant": checkpointing}
            )
            if adapter != "none":
                model.enable_input_require_grads()  # else reentrant checkpointing sees no gradient to compute
        if adapter != "none":
            model = self.adapted(model, adapter, seed)
        return model.train()

    def adapted(self, model, adapter, seed=0):
        """The model with a PEFT adapter, its second matrix random: zeros would hide half of the gradients."""
        import peft
        import torch

        wanted = {"use_dora": True} if adapter == "dora" else {}
        config = peft.LoraConfig(
            task_type="CAUSAL_LM",
            r=8,
            lora_alpha=16,
            target_modules=["q_proj", "v_proj"],
            lora_dropout=0.0,
            init_lora_weights=False,
            **wanted,
        )
        torch.manual_seed(seed + 1)
        return peft.get_peft_model(model, config)

    def batch(self, step=0, device=None):
        """Token ids of shape (1, SEQUENCE), the same for the same step on every rank."""
        import torch

        generator = torch.Generator().manual_seed(1000 + step)
        ids = torch.randint(0, VOCABULARY, (1, SEQUENCE), generator=generator)
        return ids.to(device if device is not None else self.device)

    def deepspeed_config(self, stage, precision="fp32", clipping=1.0, offload=(), **zero):
        """A DeepSpeed configuration of one micro batch; `offload` names "optimizer", "param" or both."""
        optimisation = {
            "stage": stage,
            "overlap_comm": False,
            "contiguous_gradients": True,
            # gloo of older torch has no reduce_scatter.
            "reduce_scatter": self.device_type != "cpu",
            **zero,
        }
        if stage == 3:
            # No parameter is small enough to stay whole, so that tiny tensors are sharded like large ones.
            optimisation.setdefault("stage3_param_persistence_threshold", 0)
        for part in offload:
            optimisation[f"offload_{part}"] = {"device": "cpu", "pin_memory": self.device_type != "cpu"}
        config = {
            "train_micro_batch_size_per_gpu": 1,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": clipping,
            "zero_optimization": optimisation,
            # DeepSpeedCPUAdam would be compiled first; what is tested here is where tensors lie.
            "zero_force_ds_cpu_optimizer": False,
            "steps_per_print": 1000000,
        }
        if precision != "fp32":
            config[precision] = {"enabled": True}
        return config

    def deepspeed(self):
        """DeepSpeed, its process group joined, without the op it would compile first on a CPU."""
        dist = self.join()
        with self.call("import deepspeed"):
            import deepspeed
        if self.device_type == "cpu":
            # Plain gloo will do; else a shared-memory collective is compiled at first use (30 to 60 s).
            for name in list(deepspeed.ops.__compatible_ops__):
                if "shm" in name:
                    deepspeed.ops.__compatible_ops__[name] = False
        with self.call("deepspeed.init_distributed"):
            deepspeed.init_distributed(dist_backend=dist.get_backend())
        return deepspeed

    def engine(self, deepspeed, model, config, rate=1e-3):
        """The model under DeepSpeed with torch's AdamW over what is trainable."""
        import torch

        trainable = [each for each in model.parameters() if each.requires_grad]
        with self.call("deepspeed.initialize"):
            engine, *_ = deepspeed.initialize(
                model=model,
                config=config,
                model_parameters=trainable,
                optimizer=torch.optim.AdamW(trainable, lr=rate),
            )
        # A test that silently trained without DeepSpeed would prove nothing.
        if type(engine).__name__ != "DeepSpeedEngine":
            self.fail(f"deepspeed.initialize gave a {type(engine).__name__}, not a DeepSpeedEngine")
        return engine

    def losses_finite(self, losses):
        """Fail if a loss is NaN or infinite."""
        for step, loss in enumerate(losses):
            if not math.isfinite(loss):
                self.fail(f"the loss of step {step} is {loss}")


# --- running ------------------------------------------------------------------------------------------


def signature(error):
    """A short, stable name of an error: its class and first line, and what a recompute changed."""
    import re

    text = re.sub(r"\x1b\[[\d;]*m", "", str(error))  # torch sets some of its words in bold
    name = type(error).__name__
    pairs = re.findall(
        r"saved metadata: \{'shape': (?:torch\.Size\()?\[?([\d, ]*)\]?\)?, 'dtype': torch\.(\w+).*?\}\s*"
        r"recomputed metadata: \{'shape': (?:torch\.Size\()?\[?([\d, ]*)\]?\)?, 'dtype': torch\.(\w+)",
        text,
        re.DOTALL,
    )
    if pairs:
        shape, dtype, shape_then, dtype_then = pairs[0]
        changed = [f"shape [{shape}] -> [{shape_then}]"] if shape != shape_then else []
        changed += [f"dtype {dtype} -> {dtype_then}"] if dtype != dtype_then else []
        said = ", ".join(changed)
        return f"{name}: tensors differ from those saved, {said} ({len(pairs)} tensors)"
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return f"{name}: {first}"[:300]


def blamed(error, own):
    """The innermost frame of a library, as `file:line in function`, and whether the error is our own.

    An error that a self-test itself raised by misuse (no such attribute in this release) is no finding.
    """
    frames = traceback.extract_tb(error.__traceback__)
    ours = not frames or os.path.dirname(os.path.realpath(frames[-1].filename)) == own
    library = [each for each in frames if os.path.dirname(os.path.realpath(each.filename)) != own]
    last = library[-1] if library else frames[-1] if frames else None
    place = ""
    if last is not None:
        # From the package's folder on: a report does not show where an environment lies.
        path = last.filename.replace(os.sep, "/").rpartition("site-packages/")[2]
        path = path if "site-packages" in last.filename else os.path.basename(path)
        place = f"{path}:{last.lineno} in {last.name}"
    # What the import system or the interpreter itself raises has no library frame of its own.
    return place, ours and not isinstance(error, (ImportError, MemoryError))


def one(stage, run):
    """Run one variant in this process and write how it ended."""
    begun = time.monotonic()
    # Does not need the interpreter's lock: it writes even while a library hangs holding it.
    stacks = open(os.path.join(stage.scratch, f"{stage.mark}.{stage.rank}.stacks"), "w")  # noqa: SIM115
    faulthandler.dump_traceback_later(max(1.0, stage.claim["seconds"] - 2.0), file=stacks)
    stage.note("begin", pid=os.getpid())
    details = {}
    try:
        run(stage, stage.variant)
        result, why = "pass", ""
    except Skipped as error:
        result, why = "skip", str(error)
    except Failed as error:
        result, why = "fail", str(error)
    except (KeyboardInterrupt, SystemExit) as error:
        result, why = "fail", f"the process was ended by {type(error).__name__} {error}".rstrip()
    except BaseException as error:  # noqa: BLE001 - whatever a library raises is what was to be seen
        place, ours = blamed(error, os.path.dirname(os.path.realpath(__file__)))
        result, why = ("unknown" if ours else "fail"), signature(error)
        details = {"place": place, "trace": traceback.format_exc()[-4000:]}
    faulthandler.cancel_dump_traceback_later()
    call = stage.calls[-1] if stage.calls else ""
    stage.note("end", result=result, why=why, call=call, seconds=time.monotonic() - begun, **details)
    if result not in ("pass", "skip"):
        stage.wrong()


def forked(order, claim, variant):
    """Run one variant in a fork and see it end: by itself, at its deadline, or after a peer went wrong."""
    sys.stdout.flush()
    sys.stderr.flush()
    stage = Stage(order, claim, variant)
    parent = os.getpid()
    child = os.fork()
    if child == 0:
        try:
            die_with(parent)
            one(stage, loaded(claim["test"]).run)
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(0)  # a library's exit handlers may wait for ranks that are gone
    until = time.monotonic() + claim["seconds"]
    status, peer_wrong = None, None
    while time.monotonic() < until:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            break
        if peer_wrong is None and stage.world > 1 and stage.someone_wrong():
            peer_wrong = time.monotonic()
            until = min(until, peer_wrong + ECHO_S)
        time.sleep(0.01)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        stage.note("stopped" if peer_wrong else "late")
        stage.wrong()
        return
    if os.WIFSIGNALED(status):
        stage.note("died", signal=os.WTERMSIG(status))
        stage.wrong()
    elif os.WEXITSTATUS(status):
        stage.note("died", code=os.WEXITSTATUS(status))
        stage.wrong()


def loaded(path):
    """The module of a test, by its path: this folder is not searched for modules."""
    import importlib.util

    spec = importlib.util.spec_from_file_location("selftest", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def arguments():
    """The command line of this process; with the interpreter's own options from Python 3.10 on."""
    return getattr(sys, "orig_argv", [sys.executable, *sys.argv])


def die_with(parent):
    """Be killed when the parent ends, however it ends: nothing of ours is left behind (prctl(2), Linux)."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before we asked
            os._exit(1)


def main():
    """Run what the order says, variant after variant.

    The order: `claims`, each with `name`, `test` (path), `variants`, `imports` (modules to load before
    forking) and `seconds` (deadline of one variant); `device` ("cpu" or "cuda"), `rank`, `world`,
    `local_rank`, `parent` (process id), `scratch`, `journal` (paths), `rendezvous` ("file" or "env").
    """
    import importlib

    order = json.loads(sys.argv[1])
    die_with(order["parent"])
    own = os.path.dirname(os.path.realpath(__file__))
    # A test is named by its claim, but one never knows which module a library looks for.
    sys.path[:] = [each for each in sys.path if os.path.realpath(each or ".") != own]
    while order["claims"]:
        claim = order["claims"][0]
        try:
            for name in claim["imports"]:
                importlib.import_module(name)
        except BaseException:  # noqa: BLE001 - an import may raise anything
            # A second import of a half-imported package fails otherwise than the first. So begin anew, and
            # let each test import for itself and be blamed for it.
            for each in order["claims"]:
                each["imports"] = []
            sys.stdout.flush()
            os.execv(sys.executable, [sys.executable, *arguments()[1:-1], json.dumps(order)])  # noqa: S606
        for variant in claim["variants"]:
            forked(order, claim, variant)
        order["claims"] = order["claims"][1:]


if __name__ == "__main__":
    main()
