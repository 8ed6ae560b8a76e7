"""Parameters, gradients, optimizer states and buffers stay on the devices the configuration names.

A tiny random Qwen2 (see `_worker.py`), one sequence of 16 tokens, two steps and a saved checkpoint. Looked at
after forward, backward, clip, step and checkpoint save. With ZeRO, the parameters that count are the shards
(`ds_tensor`), the float32 master partitions and their gradients; the host is right for what
`offload_optimizer` and `offload_param` name, the rank's own device for all else. torch keeps AdamW's step
counter (one number) on the host unless told otherwise, so it may be there.

Clipping is made to bite: the limit, 0.001, is far below the gradient's norm, and the gradient must shrink
by limit / norm, within 1 % (a gradient may be kept in bfloat16, 0.4 %). A limit that does not bite hides a
norm that lies on another device than the gradient. On a CPU host and device are one, so only what lies on
neither (`meta`) can be found. Seconds: 1 to 3 a variant. Memory: below 1 GiB, nearly all of it libraries.

A failure names the first tensor that strayed, where it is, and where it belongs: an operation that meets it
will raise "Expected all tensors to be on the same device", or train on stale data.
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
# No `quantization` for the plain variant: where the tensors lie is no matter of it.
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


def run(stage, variant):
    train = {**TRAIN, **VARIANTS[variant]["train"]}
    if train["parallel"] == "none":
        plain(stage, train)
    else:
        sharded(stage, train)


# --- what is looked at: (name, tensor, devices it may be on) --------------------------------------------


def model_tensors(model, own, shards_at):
    """Parameters, their ZeRO shards and gradients, and buffers."""
    for name, each in model.named_parameters():
        shard = getattr(each, "ds_tensor", None)
        if shard is None or each.numel():
            yield f"parameter {name}", each, {own}
        if shard is not None:
            at = own if getattr(each, "ds_persist", False) else shards_at
            yield f"shard of parameter {name}", shard, {at}
        if each.grad is not None:
            yield f"gradient of {name}", each.grad, {own}
    for name, each in model.named_buffers():
        yield f"buffer {name}", each, {own}


def optimizer_tensors(optimizer, at):
    """States of a torch optimizer."""
    import torch

    for number, state in enumerate(optimizer.state.values()):
        for key, each in state.items():
            if hasattr(each, "device"):
                allowed = {at, torch.device("cpu")} if key == "step" else {at}
                yield f"optimizer state {number}.{key}", each, allowed


def partition_tensors(zero, own, at):
    """ZeRO's float32 master partitions, their gradients, and gradients on their way there."""
    for name in ("single_partition_of_fp32_groups", "fp32_partitioned_groups_flat"):
        for number, each in enumerate(getattr(zero, name, ())):
            yield f"master partition {number}", each, {at}
            if each.grad is not None:
                yield f"gradient of master partition {number}", each.grad, {at}
    averaged = getattr(zero, "averaged_gradients", None) or {}
    for number, group in averaged.items():
        for place, each in enumerate([group] if hasattr(group, "device") else group or ()):
            if each is not None:
                # Offloaded gradients are reduced on one side and kept on the other.
                yield f"reduced gradient {number}.{place}", each, {own, at}


class DeviceWatch:
    """Looks at every tensor after a call; remembers how many gradients and states there were to see."""

    def __init__(self, stage, tensors):
        self.stage, self.tensors, self.counts = stage, tensors, {}

    def look(self, call):
        """Fail at the first tensor that is elsewhere."""
        for name, tensor, allowed in self.tensors():
            if tensor.device not in allowed:
                expected = " or ".join(sorted(map(str, allowed)))
                self.stage.fail(f"{name} is on {tensor.device} after {call}, expected {expected}")
            kind = name.split()[0]
            self.counts[call, kind] = self.counts.get((call, kind), 0) + 1

    def must_have_seen(self, call, *kinds):
        """A watch that had nothing to see would pass for the wrong reason."""
        seen = sum(self.counts.get((call, kind), 0) for kind in kinds)
        if not seen:
            raise LookupError(f"no {' or '.join(kinds)} was there to look at after {call}")

    def total(self):
        """How many of each kind were looked at after each call."""
        return {f"{call}: {kind}": count for (call, kind), count in sorted(self.counts.items())}


def norm(tensors):
    """The Euclidean norm over all of them."""
    return sum(float(each.detach().double().pow(2).sum()) for each in tensors) ** 0.5


def bites(stage, before, after, whole):
    """Fail unless the gradients shrank by LIMIT / whole; `whole` is the norm over all ranks.

    A rank may hold nothing but padding; then there is nothing of its own to shrink.
    """
    if not (LIMIT < whole < float("inf")):
        stage.fail(f"the gradient's norm is {whole:.3g}: clipping at {LIMIT:g} cannot bite")
    if before and abs(after / before * whole / LIMIT - 1) > 0.01:
        stage.fail(
            f"clipping did not bite: the gradient's norm is {before:.3g} before and {after:.3g} after, "
            f"clipped at {LIMIT:g} with a norm of {whole:.3g} over all ranks"
        )


# --- without DeepSpeed ------------------------------------------------------------------------------------


def plain(stage, train):
    import torch

    model = stage.model(train["adapter"], checkpointing=True, dtype=torch.bfloat16).to(stage.device)
    trainable = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=1e-3)
    own = stage.device

    def tensors():
        yield from model_tensors(model, own, own)
        yield from optimizer_tensors(optimizer, own)

    watch = DeviceWatch(stage, tensors)
    for step in range(2):
        ids = stage.batch(step)
        with stage.call("forward"):
            loss = model(input_ids=ids, labels=ids).loss
            watch.look("forward")
        with stage.call("backward"):
            loss.backward()
            watch.look("backward")
        with stage.call("clip"):
            gradients = [each.grad for each in trainable]
            before = norm(gradients)
            torch.nn.utils.clip_grad_norm_(trainable, LIMIT)
            watch.look("clip")
            bites(stage, before, norm(gradients), before)
        with stage.call("step"):
            optimizer.step()
            watch.look("step")
        optimizer.zero_grad()
    with stage.call("checkpoint save"):
        path = f"{stage.scratch}/{stage.mark}.{stage.rank}.pt"
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)
        watch.look("checkpoint save")
    watch.must_have_seen("backward", "gradient")
    watch.must_have_seen("step", "optimizer")
    stage.saw(tensors=watch.total(), norm=before)


# --- with DeepSpeed ---------------------------------------------------------------------------------------


def sharded(stage, train):
    import torch

    deepspeed = stage.deepspeed()
    offload = [part for part in ("optimizer", "param") if train[f"offload_{part}"] == "cpu"]
    config = stage.deepspeed_config(train["zero_stage"], "bf16", clipping=LIMIT, offload=offload)
    engine = stage.engine(deepspeed, stage.model(train["adapter"], checkpointing=True), config)
    zero = engine.optimizer
    own, host = stage.device, torch.device("cpu")
    at = host if "optimizer" in offload else own

    def tensors():
        yield from model_tensors(engine.module, own, host if "param" in offload else own)
        yield from partition_tensors(zero, own, at)
        yield from optimizer_tensors(zero.optimizer, at)

    watch = DeviceWatch(stage, tensors)
    norms = watch_clip(stage, zero, watch)
    for step in range(2):
        ids = stage.batch(step)
        norms.clear()
        with stage.call("forward"):
            loss = engine(input_ids=ids, labels=ids).loss
            watch.look("forward")
        with stage.call("backward"):
            engine.backward(loss)
            watch.look("backward")
        with stage.call("step"):
            engine.step()
            watch.look("step")
        whole = float(engine.get_global_grad_norm())
        if not norms:
            stage.fail(f"ZeRO did not clip, nor step: the gradient's norm is {whole:.3g}")
        before, after = (sum(pair[side] ** 2 for pair in norms) ** 0.5 for side in (0, 1))
        bites(stage, before, after, whole)
    with stage.call("checkpoint save"):
        engine.save_checkpoint(f"{stage.scratch}/{stage.mark}.saved")
        watch.look("checkpoint save")
    watch.must_have_seen("backward", "gradient", "reduced")
    watch.must_have_seen("clip", "gradient")
    watch.must_have_seen("step", "optimizer")
    stage.saw(tensors=watch.total(), norm=before)


def watch_clip(stage, zero, watch):
    """Look after each time ZeRO clips, which it does within its step; gives the norms before and after."""
    real = zero.unscale_and_clip_grads
    norms = []

    def clipping(what, total_norm):
        # ZeRO-3 names a group, ZeRO-1 and 2 hand over its gradients.
        gradients = [zero.fp32_partitioned_groups_flat[what].grad] if isinstance(what, int) else what
        with stage.call("clip"):
            before = norm(gradients)
            real(what, total_norm)
            watch.look("clip")
        norms.append((before, norm(gradients)))

    zero.unscale_and_clip_grads = clipping
    return norms
