"""What every self-test is given: its rank and device, its journal, comparisons and the process group."""

from __future__ import annotations

import contextlib
import json
import os

from _journal import RankJournal
from _outcome import Failed, Skipped, signature

ALL_RANKS = -1
"""The rank at fault where all ranks are."""

WITHOUT_GPU = ("libcuda.so.1:", "0 active drivers", "no NVIDIA driver", "No CUDA GPUs are available")
"""Messages of the loader, triton and torch where there is no driver or no GPU."""


class TestContext(RankJournal):
    """The first argument of every self-test: reports results, gives access to torch and to other ranks."""

    def __init__(self, order, claim, variant):
        """Start without a process group and outside of any call."""
        super().__init__(order, claim, variant)
        self.calls = []
        self.store = None
        self.all_ranks = ALL_RANKS

    # --- results -------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def call(self, name):
        """Record which call is running, so that an error, a hang or a death is attributed to it."""
        self.calls.append(name)
        self.note("call", name=name)
        yield
        self.calls.pop()

    @contextlib.contextmanager
    def must_succeed(self, name):
        """Record a call as `call` does, and turn a RuntimeError or OSError in it into a failure of the claim.

        Compiled code raises into the line of the test that called it, without a frame of its own. Such an
        error would otherwise count as a mistake in the self-test.
        """
        with self.call(name):
            try:
                yield
            except (RuntimeError, OSError) as error:
                raise Failed(signature(error)) from error

    def record(self, **values):
        """Write measured values to the journal."""
        self.note("saw", values=values)

    def fail(self, why, rank=None):
        """Raise Failed: the claim does not hold here.

        `rank` is the rank at fault if it is not this one, or `all_ranks` if it is no rank in particular.
        """
        error = Failed(why)
        error.rank = rank
        raise error

    def skip(self, why):
        """Raise Skipped: the claim cannot be tested here."""
        raise Skipped(why)

    def skip_without_gpu(self, error):
        """Skip on a CPU if an error only reports that there is no GPU or driver."""
        text = str(error)
        if self.device_type == "cpu" and any(message in text for message in WITHOUT_GPU):
            self.skip(f"needs a GPU: {text.strip().splitlines()[0]}")

    # --- comparing -----------------------------------------------------------------------------------

    def check_close(self, found, expected, tolerance, what):
        """Fail unless two tensors have one shape, are finite, and |found - expected| <= tolerance * scale.

        The scale is the largest magnitude of the expected tensor, at least 1e-6, so that a tolerance is
        relative to the tensor and not to its smallest element. Return the largest error over the scale.
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

    def import_torch(self):
        """Import torch, as a call of that name in the journal."""
        with self.call("import torch"):
            import torch
        return torch

    @property
    def device(self):
        """The torch.device of this rank."""
        import torch

        if self.device_type == "cpu":
            return torch.device("cpu")
        return torch.device(self.device_type, self.local_rank % max(1, torch.cuda.device_count()))

    def devices(self):
        """Return every torch.device to test: all visible GPUs, or the CPU."""
        import torch

        if self.device_type == "cpu":
            return [torch.device("cpu")]
        return [torch.device(self.device_type, index) for index in range(torch.cuda.device_count())]

    def synchronize(self, device):
        """Wait until a device has finished its work, so that its errors are raised here and not later."""
        import torch

        if device.type != "cpu":
            torch.cuda.synchronize(device)

    def require_bf16(self):
        """Skip on a GPU that only emulates bf16, which libraries refuse to use."""
        import torch

        if self.device_type == "cuda" and torch.version.hip is None:
            major, minor = torch.cuda.get_device_capability(self.device)
            if major < 8:
                self.skip(f"needs a GPU with bf16 (compute capability 8.0), this one has {major}.{minor}")

    # --- the other ranks -----------------------------------------------------------------------------

    def join_process_group(self):
        """Join the ranks' process group, also as a single rank: gloo on the CPU, NCCL on CUDA."""
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
                store = dist.FileStore(os.path.join(self.scratch, f"{self.key}.ranks"), self.world)
            self.store = dist.PrefixStore(f"test.{self.key}", store)
            dist.init_process_group(
                "gloo" if self.device_type == "cpu" else "nccl",
                store=dist.PrefixStore(self.key, store),
                rank=self.rank,
                world_size=self.world,
                timeout=timeout,
            )
        return dist

    def exchange(self, value, topic):
        """Return the values of all ranks, by rank; `topic` may be used once per variant.

        The values go through the ranks' store, which keeps working when a collective is broken.
        """
        self.store.set(f"exchange.{topic}.{self.rank}", json.dumps(value))
        return [json.loads(self.store.get(f"exchange.{topic}.{rank}")) for rank in range(self.world)]

    def fail_together(self, problem, topic):
        """Fail on every rank if one rank has a problem, and name that rank; every rank must call this."""
        problems = self.exchange(problem or "", topic)
        accused = next((rank for rank, found in enumerate(problems) if found), None)
        if accused is not None:
            self.fail(problems[accused], rank=accused)


def host_store(dist, timeout, hosting):
    """Return the store at MASTER_ADDR and MASTER_PORT; torchrun's agent already hosts one there."""
    return dist.TCPStore(
        os.environ["MASTER_ADDR"],
        int(os.environ["MASTER_PORT"]),
        is_master=hosting and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
        timeout=timeout,
        wait_for_workers=False,
    )
