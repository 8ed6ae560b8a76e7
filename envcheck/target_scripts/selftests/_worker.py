"""What every self-test stands on: run by the target interpreter, imports nothing of envcheck.

    python _worker.py '{"claims": [{"test": "…/recompute_consistency.py", "variants": ["zero3-lora"], …}], …}'

A test is a file beside this one with a `run(stage, variant)`. What happens is written to a journal, one
JSON object a line, as it happens: a process that hangs or is killed has still said how far it came.
The journal is the only output that is read; libraries may print what they like.

Three generations. The warden, which imports no library and so always answers, leaves no process behind,
whatever becomes of envcheck or of a library. Its child, the stage, imports the libraries once and sees
variant after variant to its end. Every rank of a variant is a fork of the stage: on a CPU it inherits what
is imported, which saves nearly all of its time; on CUDA nothing is done before the fork that touches a GPU.

Runs on Python 3.9 and later, needs the standard library, and torch where a test asks for it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import math
import mmap
import os
import select
import signal
import sys
import time
import traceback

HIDDEN, LAYERS, VOCABULARY, SEQUENCE = 64, 2, 128, 16
"""The tiny model: hidden 64, two layers, four heads, two key heads; about 0.1 million parameters."""

ECHO_S = 3.0
"""How long the other ranks may still run once one has gone wrong: an error of theirs may say more."""

GATHER_S = 10.0
"""How much later than ours another machine's ranks may come to the end of a variant."""

EVERYBODY = -1
"""The rank at fault where all are."""

SAID = 4096
"""Bytes kept of what a rank printed last: a library that aborts says why there."""

LATE, CUT_OFF = 124, 125
"""Exit codes of this process: importing outlived its deadline; the other ranks cannot be reached."""


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
        self.journal = order["journal"]
        self.store = None
        self.everybody = EVERYBODY

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
        # Opened anew each time: a library that closes every descriptor does not take the journal along.
        journal = os.open(self.journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            # One write a line: two processes that append never mix theirs.
            os.write(journal, (json.dumps(line, default=str) + "\n").encode())
        finally:
            os.close(journal)

    @contextlib.contextmanager
    def call(self, name):
        """Say which call is running, so that an error, a hang or a death is put down to it."""
        self.calls.append(name)
        self.note("call", name=name)
        yield
        self.calls.pop()

    @contextlib.contextmanager
    def must(self, name):
        """As `call`, for what the claim itself is about: a RuntimeError or OSError in it is a failure.

        Compiled code raises into the line of the test that called it, without a frame of its own, and
        would else be taken for a misuse of ours.
        """
        with self.call(name):
            try:
                yield
            except (RuntimeError, OSError) as error:
                raise Failed(signature(error)) from error

    def saw(self, **values):
        """Put measured values on record."""
        self.note("saw", values=values)

    def fail(self, why, rank=None):
        """The claim does not hold; raises Failed.

        `rank` is the one at fault if that is not this one, EVERYBODY if it is none in particular.
        """
        error = Failed(why)
        error.rank = rank
        raise error

    def told(self, mine, what):
        """What every rank has to say, by rank; `what` names the question and is asked once a variant.

        Spoken over the ranks' store, which stays right when a collective is what is wrong.
        """
        self.store.set(f"told.{what}.{self.rank}", json.dumps(mine))
        return [json.loads(self.store.get(f"told.{what}.{rank}")) for rank in range(self.world)]

    def agree(self, problem, what):
        """Fail on every rank if one has a problem, in its words and by its name; all must come here."""
        problems = self.told(problem or "", what)
        accused = next((rank for rank, each in enumerate(problems) if each), None)
        if accused is not None:
            self.fail(problems[accused], rank=accused)

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

    def torch(self):
        """The module torch, imported under its own name in the journal."""
        with self.call("import torch"):
            import torch
        return torch

    def devices(self):
        """Every torch.device to be tested: all GPUs that are visible, or the CPU."""
        import torch

        if self.device_type == "cpu":
            return [torch.device("cpu")]
        return [torch.device(self.device_type, each) for each in range(torch.cuda.device_count())]

    def settle(self, device):
        """Wait until a device has done all it was given: its errors come up here and not later."""
        import torch

        if device.type != "cpu":
            torch.cuda.synchronize(device)

    def join(self):
        """Join the ranks' process group: gloo on the CPU, NCCL on CUDA; also with a single rank."""
        import datetime as dt

        import torch
        import torch.distributed as dist

        if self.device_type != "cpu":
            torch.cuda.set_device(self.device)
        if dist.is_initialized():
            return dist
        with self.call("joining the process group"):
            timeout = dt.timedelta(seconds=self.claim["seconds"])
            if self.order.get("rendezvous") == "env":
                store = host_store(dist, timeout, hosting=False)
            else:
                store = dist.FileStore(os.path.join(self.scratch, f"{self.mark}.ranks"), self.world)
            self.store = dist.PrefixStore(f"said.{self.mark}", store)
            dist.init_process_group(
                "gloo" if self.device_type == "cpu" else "nccl",
                store=dist.PrefixStore(self.mark, store),
                rank=self.rank,
                world_size=self.world,
                timeout=timeout,
            )
        return dist

    # --- a model to train ----------------------------------------------------------------------------

    def model(
        self,
        adapter="none",
        checkpointing=None,
        family="qwen2",
        dtype=None,
        context=None,
        seed=0,
        dropout=0.0,
        **adapting,
    ):
        """A tiny random Llama or Qwen2, made in memory, training mode, on the CPU.

        Args:
            adapter: "none", "lora" or "dora", on q_proj and v_proj, rank 8.
            checkpointing: None for off, else `use_reentrant`.
            family: "llama" or "qwen2".
            dtype: torch dtype of the base; float32 if None.
            context: a context manager the base is made under (`deepspeed.zero.Init`).
            seed: of all weights.
            dropout: the adapter's; 0 leaves a recompute nothing random to restore.
            adapting: what PEFT's get_peft_model takes besides (`autocast_adapter_dtype`).
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
            model = self.adapted(model, adapter, seed, dropout, **adapting)
        return model.train()

    def pretrained(
        self, adapter="none", checkpointing=None, family="qwen2", zero=None, dropout=0.0, **wanted
    ):
        """The tiny model saved to a folder and read back with from_pretrained, as users load theirs.

        `zero` is a DeepSpeed configuration; if of stage 3, the weights are sharded while they are loaded.
        `wanted` is what from_pretrained takes besides (`quantization_config`, `device_map`); the rest as
        in `model`.
        """
        import transformers

        folder = os.path.join(self.scratch, f"{self.mark}.{self.rank}.model")
        if not os.path.isdir(folder):
            self.model(family=family).save_pretrained(folder)
        if zero is not None:
            self.deepspeed()
            from transformers.integrations import HfDeepSpeedConfig

            told = HfDeepSpeedConfig(zero)  # from_pretrained looks for it, and forgets it with this name
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, **wanted)
        if zero is not None and zero["zero_optimization"]["stage"] == 3:
            whole = [name for name, each in model.named_parameters() if not hasattr(each, "ds_id")]
            if whole:
                self.fail(f"from_pretrained under ZeRO-3 left {whole[0]} whole")
        model.config.use_cache = False
        if checkpointing is not None:
            keywords = {"use_reentrant": checkpointing}
            if "quantization_config" not in wanted:
                model.gradient_checkpointing_enable(gradient_checkpointing_kwargs=keywords)
                model.enable_input_require_grads()
        if "quantization_config" in wanted:
            import peft

            model = peft.prepare_model_for_kbit_training(
                model,
                use_gradient_checkpointing=checkpointing is not None,
                gradient_checkpointing_kwargs={"use_reentrant": bool(checkpointing)},
            )
        if adapter != "none":
            model = self.adapted(model, adapter, dropout=dropout)
        if zero is not None:
            del told
        return model.train()

    def adapted(self, model, adapter, seed=0, dropout=0.0, **adapting):
        """The model with a PEFT adapter, its second matrix random: zeros would hide half of the gradients."""
        import peft
        import torch

        wanted = {"use_dora": True} if adapter == "dora" else {}
        config = peft.LoraConfig(
            task_type="CAUSAL_LM",
            r=8,
            lora_alpha=16,
            target_modules=["q_proj", "v_proj"],
            lora_dropout=dropout,
            init_lora_weights=False,
            **wanted,
        )
        torch.manual_seed(seed + 1)
        return peft.get_peft_model(model, config, **adapting)

    def needs_bf16(self):
        """Skip where the GPU computes bf16 only by emulation, which libraries refuse."""
        import torch

        if self.device_type == "cuda" and torch.version.hip is None:
            major, minor = torch.cuda.get_device_capability(self.device)
            if major < 8:
                self.skip(f"needs a GPU with bf16 (compute capability 8.0), this one has {major}.{minor}")

    def passes(self, model):
        """A record of every pass through the decoder layers of a model, from now on; see `Passes`."""
        layers = [each for each in model.modules() if type(each).__name__.endswith("DecoderLayer")]
        if len(layers) != LAYERS:
            raise RuntimeError(f"{len(layers)} decoder layers in the tiny model, expected {LAYERS}")
        return Passes(self, layers)

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


# --- what is recomputed -------------------------------------------------------------------------------


class Passes:
    """What went through each decoder layer, pass after pass: the forward, and what is recomputed of it.

    Noted are the tensors that enter and leave each module of a layer, and the dtype of the weight that a
    linear layer computes with. A pass begins where the module that ran first runs again: of the layer's own
    hooks, transformers 5 calls none when it recomputes. Of an adapter only the weights are: a cast
    within, which the next line undoes, is kept by nobody; what is kept, torch compares or the gradients show.
    """

    def __init__(self, stage, layers):
        """Hook the layers; do so before anything wraps them."""
        self.stage = stage
        self.layers = [[] for _ in layers]
        self.first = [None for _ in layers]
        for number, layer in enumerate(layers):
            within = [name for name, each in layer.named_modules() if hasattr(each, "lora_A")]
            for name, module in layer.named_modules():
                if name:
                    self._hook(number, name, module, any(name.startswith(f"{each}.") for each in within))

    def _hook(self, number, name, module, in_adapter):
        import torch

        def enter(module, args, kwargs):
            self.first[number] = self.first[number] or name
            if name == self.first[number]:
                self.layers[number].append([])
            if type(module) is torch.nn.Linear:
                self._saw(number, f"{name} computes with a weight of", module.weight, values=False)
            if not in_adapter:
                self._saw(number, f"{name} takes", (args, kwargs))

        def leave(_module, _args, result):
            self._saw(number, f"{name} gives", result)

        module.register_forward_pre_hook(enter, with_kwargs=True)
        if not in_adapter:
            module.register_forward_hook(leave)

    def _saw(self, number, what, found, values=True):
        for each in self._tensors(found):
            # A weight may be sharded at this moment: only its dtype means something.
            shape = list(each.shape) if values else []
            said = f"{str(each.dtype)[6:]} {shape or ''} on {each.device.type}".replace("  ", " ")
            self.layers[number][-1].append((what, said, each.detach().clone() if values else None))

    def _tensors(self, found):
        import torch

        if isinstance(found, torch.Tensor):
            yield found
        elif isinstance(found, dict):
            for each in found.values():
                yield from self._tensors(each)
        elif isinstance(found, (tuple, list)):
            for each in found:
                yield from self._tensors(each)

    def clear(self):
        """Begin anew, for the next step."""
        for each in self.layers:
            each.clear()

    def dtypes(self, what):
        """The dtypes seen of every tensor whose record has these words, in all passes: `{"bfloat16"}`."""
        return {
            said.partition(" ")[0]
            for layer in self.layers
            for each in layer
            for name, said, _ in each
            if what in name
        }

    def ran(self, times):
        """Fail unless each layer ran so many times: 2 with checkpointing, 1 without."""
        for number, layer in enumerate(self.layers):
            if len(layer) != times:
                self.stage.fail(
                    f"layer {number}: its forward ran {len(layer)} times in a step, expected {times}: "
                    + ("nothing was recomputed" if len(layer) < times else "recomputed without being asked")
                )

    def same(self, whole, tolerance):
        """Fail unless each recompute is the forward again: the same modules, shapes, dtypes, devices, values.

        `whole` says whether it must reach the end: non-reentrant checkpointing stops once it has what it
        needs. Returns the largest difference of values, relative to the largest of their tensor.
        """
        worst = 0.0
        for number, (first, second) in enumerate(self.layers):
            if not second or (whole and len(second) < len(first)) or len(second) > len(first):
                self.stage.fail(
                    f"layer {number}: the recompute saw {len(second)} tensors, the forward {len(first)}"
                )
            for (what, said, value), (what_then, said_then, value_then) in zip(first, second):
                if what != what_then:
                    self.stage.fail(
                        f'layer {number}: the recompute came to "{what_then}", the forward to "{what}"'
                    )
                if said != said_then:
                    self.stage.fail(f"layer {number}: {what} {said_then} when recomputed, {said} before")
                if value is not None and value.is_floating_point():
                    where = f"layer {number}: what {what} when recomputed"
                    worst = max(worst, self.stage.close(value_then, value, tolerance, where))
        return worst


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
    # A signature is the same wherever the environment lies.
    first = re.sub(r"[^\s'\"(]*/(?:site|dist)-packages/", "", first)
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
    """Run one variant in this process and write how it ended; whether that is well."""
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
        if getattr(error, "rank", None) is not None:
            details = {"accused": error.rank}
    except (KeyboardInterrupt, SystemExit) as error:
        result, why = "fail", f"the process was ended by {type(error).__name__} {error}".rstrip()
    except BaseException as error:  # noqa: BLE001 - whatever a library raises is what was to be seen
        place, ours = blamed(error, os.path.dirname(os.path.realpath(__file__)))
        result, why = ("unknown" if ours else "fail"), signature(error)
        if no_room(error, stage.scratch):
            result, why = "skip", "no room left for scratch files (TMPDIR names where they lie)"
        details = {"place": place, "trace": traceback.format_exc()[-4000:]}
    faulthandler.cancel_dump_traceback_later()
    call = stage.calls[-1] if stage.calls else ""
    stage.note("end", result=result, why=why, call=call, seconds=time.monotonic() - begun, **details)
    return result in ("pass", "skip")


def no_room(error, folder):
    """Whether an error came of a full disk, which says nothing of what was tested."""
    import errno
    import shutil

    full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
    return full and shutil.disk_usage(folder).free < 1 << 20


class Deadline:
    """Seconds that count while this process runs: what was stopped and continued is not late for it."""

    def __init__(self, seconds):
        """Begin to count."""
        self.left, self.seen = seconds, time.monotonic()

    def past(self):
        """Whether the time is up; to be asked several times a second."""
        now = time.monotonic()
        self.left -= min(now - self.seen, 1.0)
        self.seen = now
        return self.left <= 0


class Forked:
    """A process of this one, what it prints kept at its end and never in its way."""

    def __init__(self, work):
        """Fork; `work` runs in the child, which then ends without a library's exit handlers."""
        sys.stdout.flush()
        sys.stderr.flush()
        self.said, self.status = bytearray(), None
        self.output, printed = os.pipe()
        os.set_blocking(self.output, False)
        parent = os.getpid()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                die_with(parent)
                os.dup2(printed, 1)
                os.dup2(printed, 2)
                os.close(printed)
                os.close(self.output)
                work()
                sys.stdout.flush()
                sys.stderr.flush()
            except BaseException:  # noqa: BLE001 - the child's last words, wherever it came from
                os.write(2, traceback.format_exc().encode())
                os._exit(1)
            finally:
                os._exit(0)  # handlers may wait for ranks that are gone
        os.close(printed)

    def ended(self):
        """Whether the process has ended; takes in what it printed."""
        if self.status is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            self._read()  # after asking: its last words are there by then
            if done:
                self.status = status
                self.close()
        return self.status is not None

    def kill(self):
        """End it now; one that is stuck in the kernel is left behind, and must not hold us."""
        if self.status is not None:
            return
        with contextlib.suppress(OSError):
            os.kill(self.pid, signal.SIGKILL)
        until = time.monotonic() + 5
        while not Forked.ended(self) and time.monotonic() < until:
            time.sleep(0.005)
        if self.status is None:
            self.status = int(signal.SIGKILL)
            self.close()

    def _read(self):
        for _ in range(64):  # at most 4 MiB a time: one that never stops printing does not hold us
            try:
                chunk = os.read(self.output, 1 << 16) if self.output is not None else b""
            except BlockingIOError:
                return
            if not chunk:
                self.close()
                return
            self.said = (self.said + chunk)[-SAID:]

    def close(self):
        """Read no more."""
        if self.output is not None:
            os.close(self.output)
            self.output = None

    @property
    def last_words(self):
        """What it printed last."""
        return self.said.decode("utf-8", "replace")


def rest(forked, seconds):
    """Wait until one of them prints or the time is up."""
    waiting = select.poll()
    for each in forked:
        if each.output is not None:
            waiting.register(each.output, select.POLLIN)
    waiting.poll(seconds * 1000)


class Ranked(Forked):
    """One rank of one variant, in a fork; how it dies is written to its journal."""

    def __init__(self, stage, test):
        """Fork and run the test of this path."""
        self.stage = stage
        self.told = mmap.mmap(-1, 1)  # shared with the fork: 1 ended well, 2 ended otherwise, 0 did not say

        def work():
            os.environ.update(RANK=str(stage.rank), LOCAL_RANK=str(stage.local_rank))
            self.told[0] = 1 if one(stage, loaded(test).run) else 2

        super().__init__(work)

    def ended(self):
        """Whether it has ended; notes a death."""
        running = self.status is None
        if running and super().ended():
            if os.WIFSIGNALED(self.status):
                self.stage.note("died", signal=os.WTERMSIG(self.status), said=self.last_words)
            elif os.WEXITSTATUS(self.status) or not self.told[0]:
                self.stage.note("died", code=os.WEXITSTATUS(self.status), said=self.last_words)
        return self.status is not None

    @property
    def wrong(self):
        """Whether it has ended otherwise than well."""
        return self.status is not None and self.told[0] != 1

    def stop(self, event):
        """End it if it is still running, and write down as what."""
        if self.status is None:
            self.kill()
            self.stage.note(event)


def perform(order, claim, variant, board):
    """Run one variant, each rank of this machine in a fork, and see all of them end.

    By themselves, at the deadline, or soon after one of them has gone wrong.
    """
    spared = descendants()
    ranks = [Ranked(Stage({**order, **each}, claim, variant), claim["test"]) for each in order["ranks"]]
    until, hurried = Deadline(claim["seconds"]), False
    while sum(each.ended() for each in ranks) < len(ranks):
        wrong = any(each.wrong for each in ranks)
        if board is not None:
            wrong = board.shared(ranks[0].stage, wrong)
        if wrong and not hurried:
            hurried, until.left = True, min(until.left, ECHO_S)
        if until.past():
            for each in ranks:
                each.stop("stopped" if hurried else "late")
            hurried = True
        rest(ranks, 0.02)
    sweep(spared)
    if board is not None and (hurried or any(each.wrong for each in ranks)):
        board.wrong(ranks[0].stage)


# --- ranks of other processes -------------------------------------------------------------------------


def host_store(dist, timeout, hosting):
    """The store at MASTER_ADDR, MASTER_PORT; torchrun's agent hosts one there already."""
    return dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=hosting and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
        timeout=timeout,
        wait_for_workers=False,
    )


class Board:
    """Where the stages of all ranks, started by torchrun or Slurm, tell one another what they saw."""

    def __init__(self, order):
        """Reach rank 0's store, within the time that importing may take."""
        import datetime as dt

        import torch.distributed as dist

        self.order, self.own = order, order["ranks"][0]["rank"]
        self.others = [rank for rank in range(order["world"]) if rank != self.own]
        # Rank 0 may still be importing.
        timeout = dt.timedelta(seconds=order["imports_seconds"])
        store = host_store(dist, timeout, hosting=self.own == 0)
        again = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.store = dist.PrefixStore(f"envcheck.{again}", store)
        self.absent, self.posted, self.asked = [], None, 0.0

    def wait(self, keys, seconds):
        """The texts of those keys that are there in time."""
        until, found = Deadline(seconds), {}
        while len(found) < len(keys):
            for key in keys:
                if key not in found and self.store.check([key]):
                    found[key] = self.store.get(key).decode()
            if until.past():
                break
            time.sleep(0.02)
        return found

    def together(self, claim, variant):
        """Whether all ranks are ready for a variant; if not, each rank's journal says what keeps it."""
        mark = f"{claim['name']}.{variant}"
        self.store.set(f"{mark}.ready.{self.own}", claim["skipped"].get(variant, ""))
        wanted = {f"{mark}.ready.{rank}": rank for rank in range(self.order["world"])}
        there = self.wait(list(wanted), 1.0 if self.absent else self.order["imports_seconds"])
        self.absent = [rank for key, rank in wanted.items() if key not in there]
        for rank in self.absent:
            self._stage(claim, variant, rank).note("absent")
        for key, why in there.items():
            if why:
                self._stage(claim, variant, wanted[key]).note("end", result="skip", why=why, call="")
        return not self.absent and not any(there.values())

    def shared(self, stage, wrong):
        """Tell the others how far our rank is; whether something went wrong here or there."""
        now = time.monotonic()
        if now < self.asked:
            return wrong
        self.asked = now + 0.2
        text = self._words(stage)
        if text != self.posted:
            self.posted = text
            self.store.set(f"{stage.mark}.words.{self.own}", text)
        return wrong or self.store.check([f"{stage.mark}.wrong"])

    def wrong(self, stage):
        """Tell the others that they wait in vain."""
        self.store.set(f"{stage.mark}.wrong", "")

    def gather(self, claim, variant):
        """Every rank's words to every rank, by way of rank 0."""
        stage = self._stage(claim, variant, self.own)
        self.store.set(f"{stage.mark}.words.{self.own}", self._words(stage))
        self.store.set(f"{stage.mark}.done.{self.own}", "")
        here = [rank for rank in self.others if rank not in self.absent]
        if self.own == 0:
            done = self.wait([f"{stage.mark}.done.{rank}" for rank in here], GATHER_S)
            words = {0: self._words(stage)}
            for rank in here:
                key = f"{stage.mark}.words.{rank}"
                words[rank] = self.store.get(key).decode() if self.store.check([key]) else "{}"
                if f"{stage.mark}.done.{rank}" not in done:
                    self._stage(claim, variant, rank).note("lost")
            self.store.set(f"{stage.mark}.all", json.dumps(words))
        else:
            key = f"{stage.mark}.all"
            patience = self.order["imports_seconds"] if self.absent else 2 * GATHER_S
            words = json.loads(self.wait([key], patience).get(key, "null"))
            if words is None:
                raise ConnectionError("rank 0 no longer answers")
        for rank in here:
            each = self._stage(claim, variant, rank)
            said = json.loads(words.get(str(rank), words.get(rank, "{}")))
            with open(each.journal, "a") as journal:
                journal.write(said.get("journal", ""))
            with open(os.path.join(each.scratch, f"{each.mark}.{rank}.stacks"), "w") as stacks:
                stacks.write(said.get("stack", ""))

    def close(self):
        """Leave; rank 0 last, for it may host the store."""
        self.store.set(f"left.{self.own}", "")
        if self.own == 0:
            self.wait([f"left.{rank}" for rank in self.others if rank not in self.absent], GATHER_S)

    def _stage(self, claim, variant, rank):
        journal = os.path.join(self.order["scratch"], f"rank-{rank}.jsonl")
        return Stage({**self.order, "rank": rank, "local_rank": 0, "journal": journal}, claim, variant)

    def _words(self, stage):
        """The end of this variant's journal, and the stack of a rank that was late."""
        lines = tail(stage.journal).splitlines(keepends=True)
        of_this = [each for each in lines if f'"variant": {json.dumps(stage.variant)}' in each]
        stack = tail(os.path.join(stage.scratch, f"{stage.mark}.{stage.rank}.stacks"))
        return json.dumps({"journal": "".join(of_this), "stack": stack})


def tail(path, size=1 << 16):
    """The end of a file; empty if there is none."""
    try:
        with open(path, "rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size))
            return file.read().decode("utf-8", "replace")
    except OSError:
        return ""


# --- processes ----------------------------------------------------------------------------------------


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


def adopt():
    """Become the parent of our descendants' orphans, so that none gets away (prctl(2), Linux)."""
    with contextlib.suppress(Exception):
        import ctypes

        ctypes.CDLL(None).prctl(36, 1)


def descendants():
    """The process ids of our children and theirs; on Linux."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except (AttributeError, OSError):
        return set()  # as nearly always: no need to look at every process of the machine
    parents, dead = {}, set()
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        if name.isdigit():
            with contextlib.suppress(OSError, ValueError, IndexError):
                with open(f"/proc/{name}/stat", "rb") as file:
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
                parents[int(name)] = int(parent)
                if state == b"Z":
                    dead.add(int(name))
    found, front = set(), {os.getpid()}
    while front:
        front = {pid for pid, parent in parents.items() if parent in front} - found
        found |= front
    # One that died while we looked still leads to a child that was read before as its own.
    return found - dead


def sweep(spared=frozenset()):
    """Kill what is left of our descendants, also in other sessions; some take a moment to be seen."""
    for _ in range(200):
        left = descendants() - spared
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        time.sleep(0.01)


def main():
    """Be the warden of a stage that runs what the order says; end with its exit code.

    The order: `claims`, each with `name`, `test` (path), `variants`, `imports` (modules to load before
    forking), `seconds` (deadline of one variant) and `skipped` (variant: why, where ranks were started
    apart); `device` ("cpu" or "cuda"), `world`, `ranks` of this machine, each with `rank`, `local_rank` and
    `journal` (path); `imports_seconds`, `parent` (process id), `scratch` (folder), `folder` (what to remove
    if the parent cannot), `rendezvous` ("file" or "env").
    """
    order = json.loads(sys.argv[1])
    if order.get("guarded"):  # the stage began anew
        die_with(order["parent"])
        run_claims(order, mmap.mmap(-1, 1))
        os._exit(0)
    asked_to_end = []
    signal.signal(signal.SIGTERM, lambda *_: asked_to_end.append(True))
    adopt()
    warden, importing = os.getpid(), mmap.mmap(-1, 1)

    def staged():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        run_claims({**order, "parent": warden, "guarded": True}, importing)

    stage = Forked(staged)
    until, late = Deadline(order["imports_seconds"]), False
    while not (asked_to_end or late or stage.ended()) and os.getppid() == order["parent"]:
        if not importing[0]:
            until = Deadline(order["imports_seconds"])
        late = until.past()
        rest([stage], 0.05)
    stage.kill()
    sweep()
    if os.getppid() != order["parent"]:
        import shutil

        shutil.rmtree(order["folder"], ignore_errors=True)
    with contextlib.suppress(OSError):
        os.write(2, bytes(stage.said))
    if late:
        os._exit(LATE)
    if os.WIFSIGNALED(stage.status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        with contextlib.suppress(OSError):  # nobody handles SIGKILL, so nothing is to be reset
            signal.signal(os.WTERMSIG(stage.status), signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(stage.status))
    os._exit(os.WEXITSTATUS(stage.status))


def run_claims(order, importing):
    """Be the stage: import, and run variant after variant; `importing[0]` tells the warden which it is."""
    adopt()
    own = os.path.dirname(os.path.realpath(__file__))
    # A test is named by its claim, but one never knows which module a library looks for.
    sys.path[:] = [each for each in sys.path if os.path.realpath(each or ".") != own]
    board = None
    while order["claims"]:
        claim = order["claims"][0]
        importing[0] = 1
        load_before_forking(order, importing)
        importing[0] = 0
        if order["rendezvous"] == "env" and board is None:
            board = met(order)
        for variant in claim["variants"]:
            if board is None:
                perform(order, claim, variant, None)
            else:
                with cut_off():
                    if board.together(claim, variant):
                        perform(order, claim, variant, board)
                    board.gather(claim, variant)
        order["claims"] = order["claims"][1:]
    if board is not None:
        with contextlib.suppress(Exception):  # all has been said: who is gone by now is no finding
            board.close()


def load_before_forking(order, importing):
    """Import what the first claim wants; if that fails, begin anew without: each test takes its own blame."""
    import importlib

    try:
        for name in order["claims"][0]["imports"]:
            importlib.import_module(name)
    except BaseException:  # noqa: BLE001 - an import may raise anything
        # A second import of a half-imported package fails otherwise than the first.
        for each in order["claims"]:
            each["imports"] = []
        sys.stdout.flush()
        importing[0] = 0
        os.execv(sys.executable, [sys.executable, *arguments()[1:-1], json.dumps(order)])  # noqa: S606


def met(order):
    """The board, once rank 0 is reached."""
    with cut_off():
        return Board(order)


@contextlib.contextmanager
def cut_off():
    """End the stage with a word of its own if the other ranks cannot be reached."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 - torch raises its own, and RuntimeError before 2.2
        sys.stderr.write(signature(error))
        sys.stderr.flush()
        os._exit(CUT_OFF)


if __name__ == "__main__":
    main()
