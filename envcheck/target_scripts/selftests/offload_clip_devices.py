"""Clipping under ZeRO-3 with an offloaded optimizer never multiplies a host gradient by a device norm.

For machines without a GPU. A real DeepSpeed engine takes a real step of a tiny Qwen2 on the CPU, but the
tensors that its step makes on the accelerator (the norm over all ranks, and what it is made of) are
pretended to lie on another device: a tensor subclass that holds CPU data and refuses, as torch does, to be
mixed with a host tensor of one or more dimensions. Only the places of tensors are pretended; every line that
runs is DeepSpeed's.

An ordinary step comes first, so that what fails for another reason fails there. Clipping is made to bite: the
limit is 0.001, and the gradient must shrink to it within 1 %. If the stand-in itself does not fit a release,
the outcome is unknown, not a failure. Seconds: 1 to 3. Memory: below 1 GiB, nearly all of it libraries.

A failure means that `step` would raise "Expected all tensors to be on the same device, but found at least two
devices, cuda:0 and cpu!" on a GPU as soon as clipping bites.
"""

LEVEL = 2
NEEDS = {"pkg.torch": "present", "pkg.transformers": "present", "pkg.deepspeed": ">=0.14.1"}
IMPORTS = ("torch", "torch._dynamo", "torch._inductor.scheduler", "transformers", "deepspeed")
SECONDS = 90
RANKS = (1, 1)
DEVICES = ("cpu",)
# What trains, and in which precision, plays no part; so nothing is said of it.
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
ELSEWHERE = "meta"
"""How the pretended device is called: of torch's names the one that needs no driver."""


class Mixed(RuntimeError):
    """Tensors of two devices met in one operation."""


def run(stage, variant):
    from unittest import mock

    deepspeed = stage.deepspeed()
    from deepspeed.runtime.zero import stage3

    config = stage.deepspeed_config(3, "bf16", clipping=LIMIT, offload=["optimizer"])
    engine = stage.engine(deepspeed, stage.model(), config)
    backward(stage, engine, 0)
    with stage.call("step"):
        engine.step()
    backward(stage, engine, 1)

    zero = engine.optimizer
    far = far_tensor()
    lay = {key: far(value) for key, value in zero.norm_for_param_grads.items() if hasattr(value, "device")}
    zero.norm_for_param_grads.update(lay)
    norms, made = [], []
    watch_clip(zero, norms)
    with stage.call("step with the norm on a pretended device"):
        try:
            pretended = {"get_accelerator": lambda: accelerator(far, made), "dist": Reaching(stage3.dist)}
            with mock.patch.multiple(stage3, **pretended), factories(far, made):
                engine.step()
        except Mixed as error:
            stage.fail(f"{error} {where(error)}")
        except Exception as error:
            raise LookupError(
                f"the stand-in does not fit this DeepSpeed: {error!r} {where(error)}"
            ) from error
    if not made or not norms:
        raise LookupError("the step made no tensor on the accelerator, or did not clip: nothing was asked")
    before, after = (sum(pair[side] ** 2 for pair in norms) ** 0.5 for side in (0, 1))
    if not abs(after / LIMIT - 1) < 0.01 < before:
        stage.fail(f"clipping at {LIMIT:g} left a gradient of norm {after:.3g}, it was {before:.3g}")
    stage.saw(norm=before, clipped=after, made_on_the_device=len(made))


def backward(stage, engine, step):
    ids = stage.batch(step)
    with stage.call("forward"):
        loss = engine(input_ids=ids, labels=ids).loss
    with stage.call("backward"):
        engine.backward(loss)


def watch_clip(zero, norms):
    real = zero.unscale_and_clip_grads

    def clipping(group, total_norm):
        gradient = zero.fp32_partitioned_groups_flat[group].grad
        before = float(gradient.double().norm())
        real(group, total_norm)
        norms.append((before, float(gradient.double().norm())))

    zero.unscale_and_clip_grads = clipping


def where(error):
    """The innermost line of DeepSpeed that an error went through."""
    import traceback

    frames = [each for each in traceback.extract_tb(error.__traceback__) if "deepspeed" in each.filename]
    if not frames:
        return ""
    last = frames[-1]
    file = "deepspeed/" + last.filename.replace("\\", "/").rpartition("/deepspeed/")[2]
    return f"in {last.name} ({file}:{last.lineno})"


# --- the pretended device -----------------------------------------------------------------------------


def far_tensor():
    """The class of tensors on the pretended device."""
    import torch
    from torch.utils._pytree import tree_flatten, tree_map

    class Far(torch.Tensor):
        @staticmethod
        def __new__(cls, near):
            return torch.Tensor._make_wrapper_subclass(cls, near.shape, dtype=near.dtype, device=ELSEWHERE)

        def __init__(self, near):
            self.near = near.detach()

        def __repr__(self, **_):
            return f"Far({self.near})"

        __torch_function__ = torch._C._disabled_torch_function_impl

        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            name = func.__name__.partition(".")[0]
            given = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, torch.Tensor)]
            near = [each for each in given if not isinstance(each, Far)]
            # torch lets a single number of the host meet a device, and nothing else, not even in a list.
            if name in ("cat", "stack"):
                mixed = bool(near)
            else:
                mixed = any(each.dim() for each in near) and name not in ("_to_copy", "copy_")
            if mixed:
                raise Mixed(
                    "Expected all tensors to be on the same device, but found at least two devices, "
                    f"cuda:0 (pretended) and cpu! ({name})"
                )
            asked = kwargs.get("device")
            if asked is not None:
                kwargs["device"] = torch.device("cpu")
            args, kwargs = tree_map(lambda each: each.near if isinstance(each, Far) else each, (args, kwargs))
            out = func(*args, **kwargs)
            stays = asked is not None and torch.device(asked).type == "cpu"
            # What is written into a host tensor is a host tensor.
            stays = stays or (name == "copy_" and not isinstance(given[0], Far))
            return (
                out
                if stays
                else tree_map(lambda each: Far(each) if isinstance(each, torch.Tensor) else each, out)
            )

    return Far


def factories(far, made):
    """A mode in which a tensor that is asked for on the pretended device is one of its class."""
    import torch
    from torch.overrides import TorchFunctionMode

    def there(value):
        return value == ELSEWHERE or (isinstance(value, torch.device) and value.type == ELSEWHERE)

    class Factories(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            kwargs = dict(kwargs or {})
            if not any(
                there(each) for each in (*args, *kwargs.values()) if isinstance(each, (str, torch.device))
            ):
                return func(*args, **kwargs)
            if any(isinstance(each, far) for each in args):
                return args[0]  # moved to where it is
            args = tuple(
                "cpu" if isinstance(each, (str, torch.device)) and there(each) else each for each in args
            )
            kwargs = {
                key: "cpu" if isinstance(each, (str, torch.device)) and there(each) else each
                for key, each in kwargs.items()
            }
            out = func(*args, **kwargs)
            if not isinstance(out, torch.Tensor):
                return out
            made.append(func)
            return far(out)

    return Factories()


def accelerator(far, made):
    """DeepSpeed's accelerator, but what it makes lies on the pretended device."""
    import deepspeed
    import torch

    real = deepspeed.accelerator.get_accelerator()

    class Elsewhere:
        def __getattr__(self, name):
            return getattr(real, name)

        def current_device_name(self):
            return ELSEWHERE

        def FloatTensor(self, values):  # noqa: N802 - DeepSpeed's name
            made.append("FloatTensor")
            return far(torch.tensor(values, dtype=torch.float32))

    return Elsewhere()


class Reaching:
    """DeepSpeed's collectives, which reach the data of a pretended tensor."""

    def __init__(self, real):
        self.real = real

    def __getattr__(self, name):
        return getattr(self.real, name)

    def all_reduce(self, tensor, *args, **kwargs):
        """The sum over all ranks, in place."""
        return self.real.all_reduce(getattr(tensor, "near", tensor), *args, **kwargs)
