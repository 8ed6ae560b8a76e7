"""Clipping under ZeRO-3 with an offloaded optimizer never multiplies a host gradient by a device norm.

This test is for machines without a GPU. A real DeepSpeed engine takes a real step of a tiny Qwen2 on the CPU,
but the tensors that the step makes on the accelerator (the norm over all ranks, and what it is computed from)
pretend to be on another device: their class holds CPU data and, like torch, refuses to be mixed with a host
tensor of one or more dimensions. Only the devices are simulated; all code that runs is DeepSpeed's.

An ordinary step comes first, so that anything else that is broken fails there. The gradient is always
clipped: the limit is 0.001, and its norm must shrink to the limit within 1 %. If the simulation does not fit
a release, the outcome is unknown and not a failure. Seconds: 1 to 3. Memory: below 1 GiB, nearly all of it
libraries.

A failure means that `step` would raise "Expected all tensors to be on the same device, but found at least two
devices, cuda:0 and cpu!" on a GPU as soon as a gradient is clipped.
"""

LEVEL = 2
NEEDS = {"pkg.torch": "present", "pkg.transformers": "present", "pkg.deepspeed": ">=0.14.1"}
IMPORTS = ("torch", "torch._dynamo", "torch._inductor.scheduler", "transformers", "deepspeed")
SECONDS = 90
RANKS = (1, 1)
DEVICES = ("cpu",)
# Neither adapters nor precision affect the claim, so no fact names them.
VARIANTS = {
    "zero3-offload-clip": {
        "train": {
            "trainer": "deepspeed",
            "parallel": "deepspeed",
            "zero_stage": 3,
            "offload_optimizer": "cpu",
            "gradient_clipping": True,
            "quantization": "none",
        },
    },
}

LIMIT = 1e-3
"""The norm at which gradients are clipped."""

PRETENDED = "meta"
"""The name of the pretended device: the only one of torch's device names that needs no driver."""


class MixedDevices(RuntimeError):
    """Tensors of two devices met in one operation."""


def run(test, variant):
    from unittest import mock

    deepspeed = test.import_deepspeed()
    from deepspeed.runtime.zero import stage3

    config = test.deepspeed_config(3, "bf16", clipping=LIMIT, offload=["optimizer"])
    engine = test.deepspeed_engine(deepspeed, test.tiny_model(), config)
    backward(test, engine, 0)
    with test.call("step"):
        engine.step()
        test.settle()
    backward(test, engine, 1)

    zero = engine.optimizer
    far = far_tensor()
    norms_by_parameter = zero.norm_for_param_grads
    norms_by_parameter.update(
        {key: far(norm) for key, norm in norms_by_parameter.items() if hasattr(norm, "device")}
    )
    norms, made = [], []
    watch_clip(zero, norms)
    with test.call("step with the norm on a pretended device"):
        try:
            pretended = {
                "get_accelerator": lambda: pretended_accelerator(far, made),
                "dist": UnwrappingCollectives(stage3.dist),
            }
            with mock.patch.multiple(stage3, **pretended), factory_mode(far, made):
                engine.step()
        except MixedDevices as error:
            test.fail(f"{error} {where(error)}")
        except Exception as error:
            raise LookupError(
                f"the stand-in does not fit this DeepSpeed: {error!r} {where(error)}"
            ) from error
    if not made or not norms:
        raise LookupError("the step made no tensor on the accelerator, or did not clip: nothing was asked")
    before, after = (sum(pair[side] ** 2 for pair in norms) ** 0.5 for side in (0, 1))
    if not abs(after / LIMIT - 1) < 0.01 < before:
        test.fail(f"clipping at {LIMIT:g} left a gradient of norm {after:.3g}, it was {before:.3g}")
    test.record(norm=before, clipped=after, made_on_the_device=len(made))


def backward(test, engine, step):
    ids = test.batch(step)
    with test.call("forward"):
        loss = engine(input_ids=ids, labels=ids).loss
    with test.call("backward"):
        engine.backward(loss)


def watch_clip(zero, norms):
    """Append the norms before and after to `norms` each time ZeRO clips."""
    real = zero.unscale_and_clip_grads

    def clip(group, total_norm):
        gradient = zero.fp32_partitioned_groups_flat[group].grad
        before = float(gradient.double().norm())
        real(group, total_norm)
        norms.append((before, float(gradient.double().norm())))

    zero.unscale_and_clip_grads = clip


def where(error):
    """Return the innermost line of DeepSpeed in the traceback of an error."""
    import traceback

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "deepspeed" in frame.filename]
    if not frames:
        return ""
    last = frames[-1]
    file = "deepspeed/" + last.filename.replace("\\", "/").rpartition("/deepspeed/")[2]
    return f"in {last.name} ({file}:{last.lineno})"


# --- the pretended device -----------------------------------------------------------------------------


def far_tensor():
    """Return the class of tensors on the pretended device."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_map

    class Far(torch.Tensor):
        @staticmethod
        def __new__(cls, near):
            return torch.Tensor._make_wrapper_subclass(cls, near.shape, dtype=near.dtype, device=PRETENDED)

        def __init__(self, near):
            self.near = near.detach()

        def __repr__(self, **_):
            return f"Far({self.near})"

        __torch_function__ = torch._C._disabled_torch_function_impl

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            name = func.__name__.partition(".")[0]
            tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
            near = [tensor for tensor in tensors if not isinstance(tensor, Far)]
            # torch accepts only a single number of the host in an operation on a device, and none in a list.
            if name in ("cat", "stack"):
                mixed = bool(near)
            else:
                mixed = any(tensor.dim() for tensor in near) and name not in ("_to_copy", "copy_")
            if mixed:
                raise MixedDevices(
                    "Expected all tensors to be on the same device, but found at least two devices, "
                    f"cuda:0 (pretended) and cpu! ({name})"
                )
            device = kwargs.get("device")
            if device is not None:
                kwargs["device"] = torch.device("cpu")
            args, kwargs = tree_map(lambda leaf: leaf.near if isinstance(leaf, Far) else leaf, (args, kwargs))
            out = func(*args, **kwargs)
            on_host = device is not None and torch.device(device).type == "cpu"
            # What is written into a host tensor is a host tensor.
            on_host = on_host or (name == "copy_" and not isinstance(tensors[0], Far))
            if on_host:
                return out
            return tree_map(lambda leaf: Far(leaf) if isinstance(leaf, torch.Tensor) else leaf, out)

    return Far


def factory_mode(far, made):
    """Return a mode in which a tensor that is created on the pretended device gets the class `far`."""
    import torch
    from torch.overrides import TorchFunctionMode

    def is_pretended(value):
        if isinstance(value, torch.device):
            return value.type == PRETENDED
        return isinstance(value, str) and value == PRETENDED

    class FactoryMode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if not any(map(is_pretended, (*args, *kwargs.values()))):
                return func(*args, **kwargs)
            if any(isinstance(value, far) for value in args):
                return args[0]  # it is there already
            args = tuple("cpu" if is_pretended(value) else value for value in args)
            kwargs = {key: "cpu" if is_pretended(value) else value for key, value in kwargs.items()}
            out = func(*args, **kwargs)
            if not isinstance(out, torch.Tensor):
                return out
            made.append(func)
            return far(out)

    return FactoryMode()


def pretended_accelerator(far, made):
    """Return DeepSpeed's accelerator, changed to make tensors on the pretended device."""
    import deepspeed
    import torch

    real = deepspeed.accelerator.get_accelerator()

    class PretendedAccelerator:
        def __getattr__(self, name):
            return getattr(real, name)

        def current_device_name(self):
            return PRETENDED

        def FloatTensor(self, values):  # noqa: N802 - DeepSpeed's name
            made.append("FloatTensor")
            return far(torch.tensor(values, dtype=torch.float32))

    return PretendedAccelerator()


class UnwrappingCollectives:
    """DeepSpeed's collectives, applied to the CPU data of a pretended tensor."""

    def __init__(self, real):
        self.real = real

    def __getattr__(self, name):
        return getattr(self.real, name)

    def all_reduce(self, tensor, *args, **kwargs):
        """Sum over all ranks, in place."""
        return self.real.all_reduce(getattr(tensor, "near", tensor), *args, **kwargs)
