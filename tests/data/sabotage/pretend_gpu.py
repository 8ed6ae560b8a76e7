"""A CPU build of torch that takes the CPU for its one GPU: what is shown is the way, not the hardware."""

import contextlib
from typing import Any

from after_import import after_import

MIB = 1024 * 1024


def change(torch: Any) -> None:
    from torch.overrides import TorchFunctionMode  # type: ignore[import-not-found, unused-ignore]

    def here(value: Any) -> Any:
        if isinstance(value, torch.device) and value.type == "cuda":
            return torch.device("cpu")
        return value

    class OnTheCpu(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            if func is torch.Tensor.is_pinned:
                return True
            if func is torch.Tensor.pin_memory:
                return args[0].clone()
            found = func(*map(here, args), **{name: here(each) for name, each in (kwargs or {}).items()})
            # A device has memory of its own: what comes there is never the same memory.
            return found.clone() if func is torch.Tensor.to and found is args[0] else found

    class Stream:
        def __init__(self, device: Any) -> None:
            self.device = device

        def synchronize(self) -> None:
            """Wait for nothing."""

    torch.version.cuda = "12.8"
    torch._C._cuda_getDriverVersion = lambda: 12040
    torch._C._cuda_getDeviceCount = lambda: 1
    cuda = torch.cuda
    cuda.is_available = lambda: True
    cuda.init = cuda.empty_cache = lambda: None
    cuda.device_count = lambda: 1
    cuda.synchronize = lambda *_: None
    cuda.get_device_name = lambda *_: "Pretended GPU"
    cuda.get_device_capability = lambda *_: (9, 0)
    cuda.mem_get_info = lambda *_: (600 * MIB, 800 * MIB)
    cuda.Stream = Stream
    cuda.stream = contextlib.nullcontext
    OnTheCpu().__enter__()


after_import("torch", change)
