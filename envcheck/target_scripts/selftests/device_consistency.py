"""Parameters, gradients, optimizer states and buffers stay on the devices the configuration names.

A tiny random Qwen2 (see `_training.py`) takes two steps on one sequence of 16 tokens and saves a checkpoint.
All tensors are checked after forward, backward, clip, step and checkpoint save. With ZeRO, the parameters
that count are the shards (`ds_tensor`), the float32 master partitions and their gradients. What
`offload_optimizer` and `offload_param` name belongs on the host, everything else on the rank's own device.
AdamW's step counter (one number) may be on the host, where torch keeps it by default.

The gradient is always clipped: the limit, 0.001, is far below its norm, and the gradient must shrink by
limit / norm, within 1 % (a gradient may be kept in bfloat16, which rounds by 0.4 %). Without clipping, a norm
on another device than the gradient would go unnoticed. On a CPU, host and device are the same, so only a
tensor that is on neither (`meta`) can be found.

Seconds: 1 to 3 a variant. Memory: below 1 GiB, nearly all of it libraries.

A failure names the first tensor on a wrong device, where it is, and where it belongs: an operation that uses
it will raise "Expected all tensors to be on the same device", or train on stale data.
"""

LEVEL = 2
NEEDS = {"pkg.torch": "present", "pkg.transformers": "present"}
IMPORTS = ("torch", "torch._dynamo", "torch._inductor.scheduler", "transformers", "peft", "deepspeed")
SECONDS = 90
RANKS = (1, 64)

TRAIN = {
    "trainer": "deepspeed",
    "parallel": "deepspeed",
    "adapter": "lora",
    "dora": False,
    "frozen_params": True,
    "gradient_checkpointing": True,
    "use_reentrant": True,
    "precision": "bf16",
    "gradient_clipping": True,
    "offload_optimizer": "none",
    "offload_param": "none",
}
# No `quantization` for the plain variant: it does not affect where tensors are.
VARIANTS = {
    "devices-plain-lora": {
        "needs": {"pkg.peft": "present"},
        "train": {"trainer": "custom", "parallel": "none"},
    },
    "devices-zero2-lora": {
        "needs": {"pkg.peft": "present", "pkg.deepspeed": ">=0.14.1"},
        "train": {"zero_stage": 2, "quantization": "none"},
    },
    "devices-zero3-lora": {
        "needs": {"pkg.peft": "present", "pkg.deepspeed": ">=0.14.1"},
        "train": {"zero_stage": 3, "quantization": "none"},
    },
    "devices-zero3-lora-offload": {
        "needs": {"pkg.peft": "present", "pkg.deepspeed": ">=0.14.1"},
        "train": {"zero_stage": 3, "quantization": "none", "offload_optimizer": "cpu"},
    },
    "devices-zero3-lora-offload-param": {
        "needs": {"pkg.peft": "present", "pkg.deepspeed": ">=0.14.1"},
        "train": {
            "zero_stage": 3,
            "quantization": "none",
            "offload_optimizer": "cpu",
            "offload_param": "cpu",
        },
    },
    "devices-zero3-full-offload": {
        "needs": {"pkg.deepspeed": ">=0.14.1"},
        "train": {
            "zero_stage": 3,
            "adapter": "none",
            "quantization": "none",
            "frozen_params": False,
            "offload_optimizer": "cpu",
        },
    },
}

LIMIT = 1e-3
"""The norm at which gradients are clipped."""


def run(test, variant):
    train = {**TRAIN, **VARIANTS[variant]["train"]}
    if train["parallel"] == "none":
        check_plain(test, train)
    else:
        check_deepspeed(test, train)


# --- the tensors to check: (name, tensor, devices it may be on) -----------------------------------------


def model_tensors(model, own, shards_at):
    """Yield parameters, their ZeRO shards and gradients, and buffers."""
    for name, parameter in model.named_parameters():
        shard = getattr(parameter, "ds_tensor", None)
        if shard is None or parameter.numel():
            yield f"parameter {name}", parameter, {own}
        if shard is not None:
            expected = own if getattr(parameter, "ds_persist", False) else shards_at
            yield f"shard of parameter {name}", shard, {expected}
        if parameter.grad is not None:
            yield f"gradient of {name}", parameter.grad, {own}
    for name, buffer in model.named_buffers():
        yield f"buffer {name}", buffer, {own}


def optimizer_tensors(optimizer, states_at):
    """Yield the states of a torch optimizer."""
    import torch

    for number, state in enumerate(optimizer.state.values()):
        for key, value in state.items():
            if hasattr(value, "device"):
                allowed = {states_at, torch.device("cpu")} if key == "step" else {states_at}
                yield f"optimizer state {number}.{key}", value, allowed


def partition_tensors(zero, own, partitions_at):
    """Yield ZeRO's float32 master partitions, their gradients, and gradients on their way there."""
    for name in ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat"):
        for number, partition in enumerate(getattr(zero, name, ())):
            yield f"master partition {number}", partition, {partitions_at}
            if partition.grad is not None:
                yield f"gradient of master partition {number}", partition.grad, {partitions_at}
    averaged = getattr(zero, "averaged_gradients", None) or {}
    for number, group in averaged.items():
        for place, gradient in enumerate([group] if hasattr(group, "device") else group or ()):
            if gradient is not None:
                # Offloaded gradients are reduced on one device and kept on the other.
                yield f"reduced gradient {number}.{place}", gradient, {own, partitions_at}


class DeviceWatch:
    """Checks the device of every tensor after a call, and counts the tensors of each kind."""

    def __init__(self, test, tensors):
        self.test, self.tensors, self.counts = test, tensors, {}

    def check(self, call):
        """Fail at the first tensor that is on a device where it must not be."""
        for name, tensor, allowed in self.tensors():
            if tensor.device not in allowed:
                expected = " or ".join(sorted(map(str, allowed)))
                self.test.fail(f"{name} is on {tensor.device} after {call}, expected {expected}")
            kind = name.split()[0]
            self.counts[call, kind] = self.counts.get((call, kind), 0) + 1

    def require_seen(self, call, *kinds):
        """Raise LookupError if no tensor of these kinds was checked: the test would pass for no reason."""
        seen = sum(self.counts.get((call, kind), 0) for kind in kinds)
        if not seen:
            raise LookupError(f"no {' or '.join(kinds)} was there to look at after {call}")

    def totals(self):
        """Return how many tensors of each kind were checked after each call."""
        return {f"{call}: {kind}": count for (call, kind), count in sorted(self.counts.items())}


def norm(tensors):
    """Return the Euclidean norm over all tensors."""
    return sum(float(tensor.detach().double().pow(2).sum()) for tensor in tensors) ** 0.5


def check_clipped(test, before, after, whole):
    """Fail unless the gradients shrank by LIMIT / whole; `whole` is the norm over all ranks.

    A rank may hold nothing but padding; then it has no gradient that could shrink.
    """
    if not (LIMIT < whole < float("inf")):
        test.fail(f"the gradient's norm is {whole:.3g}: clipping at {LIMIT:g} cannot bite")
    if before and abs(after / before * whole / LIMIT - 1) > 0.01:
        test.fail(
            f"clipping did not bite: the gradient's norm is {before:.3g} before and {after:.3g} after, "
            f"clipped at {LIMIT:g} with a norm of {whole:.3g} over all ranks"
        )


# --- without DeepSpeed ------------------------------------------------------------------------------------


def check_plain(test, train):
    import torch

    model = test.tiny_model(train["adapter"], checkpointing=True, dtype=torch.bfloat16).to(test.device)
    trainable = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-3)
    own = test.device

    def tensors():
        yield from model_tensors(model, own, own)
        yield from optimizer_tensors(optimizer, own)

    watch = DeviceWatch(test, tensors)
    for step in range(2):
        ids = test.batch(step)
        with test.call("forward"):
            loss = model(input_ids=ids, labels=ids).loss
            watch.check("forward")
        with test.call("backward"):
            loss.backward()
            watch.check("backward")
        with test.call("clip"):
            gradients = [parameter.grad for parameter in trainable]
            before = norm(gradients)
            torch.nn.utils.clip_grad_norm_(trainable, LIMIT)
            watch.check("clip")
            check_clipped(test, before, norm(gradients), before)
        with test.call("step"):
            optimizer.step()
            watch.check("step")
        optimizer.zero_grad()
    with test.call("checkpoint save"):
        path = f"{test.scratch}/{test.key}.{test.rank}.pt"
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        watch.check("checkpoint save")
    watch.require_seen("backward", "gradient")
    watch.require_seen("step", "optimizer")
    test.record(tensors=watch.totals(), norm=before)


# --- with DeepSpeed ---------------------------------------------------------------------------------------


def check_deepspeed(test, train):
    import torch

    deepspeed = test.import_deepspeed()
    offload = [part for part in ("optimizer", "param") if train[f"offload_{part}"] == "cpu"]
    config = test.deepspeed_config(train["zero_stage"], "bf16", clipping=LIMIT, offload=offload)
    engine = test.deepspeed_engine(deepspeed, test.tiny_model(train["adapter"], checkpointing=True), config)
    zero = engine.optimizer
    own, host = test.device, torch.device("cpu")
    states_at = host if "optimizer" in offload else own

    def tensors():
        yield from model_tensors(engine.module, own, host if "param" in offload else own)
        yield from partition_tensors(zero, own, states_at)
        yield from optimizer_tensors(zero.optimizer, states_at)

    watch = DeviceWatch(test, tensors)
    norms = watch_clip(test, zero, watch)
    for step in range(2):
        ids = test.batch(step)
        norms.clear()
        with test.call("forward"):
            loss = engine(input_ids=ids, labels=ids).loss
            watch.check("forward")
        with test.call("backward"):
            engine.backward(loss)
            watch.check("backward")
        with test.call("step"):
            engine.step()
            test.settle()
            watch.check("step")
        whole = float(engine.get_global_grad_norm())
        if not norms:
            test.fail(f"ZeRO did not clip, nor step: the gradient's norm is {whole:.3g}")
        before, after = (sum(pair[side] ** 2 for pair in norms) ** 0.5 for side in (0, 1))
        check_clipped(test, before, after, whole)
    with test.call("checkpoint save"):
        engine.save_checkpoint(f"{test.scratch}/{test.key}.saved")
        watch.check("checkpoint save")
    watch.require_seen("backward", "gradient", "reduced")
    watch.require_seen("clip", "gradient")
    watch.require_seen("step", "optimizer")
    test.record(tensors=watch.totals(), norm=before)


def watch_clip(test, zero, watch):
    """Check the tensors each time ZeRO clips, within its step; return the list of norms before and after."""
    real = zero.unscale_and_clip_grads
    norms = []

    def clip(group, total_norm):
        # ZeRO-3 passes the number of a group, ZeRO-1 and 2 pass its gradients.
        gradients = [zero.fp32_partitioned_groups_flat[group].grad] if isinstance(group, int) else group
        with test.call("clip"):
            before = norm(gradients)
            real(group, total_norm)
            watch.check("clip")
        norms.append((before, norm(gradients)))

    zero.unscale_and_clip_grads = clip
    return norms
