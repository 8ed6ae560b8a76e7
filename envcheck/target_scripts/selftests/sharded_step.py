"""A step shared among ranks is the step that one process takes.

A small model (an embedding, three linear layers; 11 thousand parameters), float32, two steps of SGD at
rate 1, each rank with its own batch; each also takes the steps alone, in plain torch, with the batches of
all. SGD, because Adam hides a gradient of the wrong size. Losses may differ by 1e-5 and updates by 1e-3 of
the largest update: sums are taken in another order, and a parameter is rounded to 24 bits, of which an
update changes the last 15. Seconds: 1 to 3 a variant. Memory: below 1 GiB, nearly all of it libraries.
A failure means that training across ranks here optimises something else than its loss.
"""

LEVEL = 3
NEEDS = {"pkg.torch": ">=2.1"}
IMPORTS = (
    "torch",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch._dynamo",  # what an optimizer imports at its first step
    "torch._inductor.scheduler",  # what deepspeed.initialize imports
    "deepspeed",
)
SECONDS = 90
RANKS = (2, 16)

TRAIN = {
    "parallel": "deepspeed",
    "adapter": "none",
    "precision": "fp32",
    "gradient_checkpointing": False,
}
VARIANTS = {
    "ddp": {"train": {"parallel": "ddp"}},
    "fsdp1": {"train": {"parallel": "fsdp1"}},
    "fsdp2": {"needs": {"pkg.torch": ">=2.6"}, "train": {"parallel": "fsdp2"}},
    "zero1": {
        "needs": {"pkg.deepspeed": ">=0.14.1"},
        "train": {"zero_stage": 1, "offload_optimizer": "none", "offload_param": "none"},
    },
    "zero2": {
        "needs": {"pkg.deepspeed": ">=0.14.1"},
        "train": {"zero_stage": 2, "offload_optimizer": "none", "offload_param": "none"},
    },
    "zero3": {
        "needs": {"pkg.deepspeed": ">=0.14.1"},
        "train": {"zero_stage": 3, "offload_optimizer": "none", "offload_param": "none"},
    },
}

WORDS, WIDTH, LENGTH, STEPS, RATE = 64, 48, 12, 2, 1.0
LOSS_TOLERANCE, UPDATE_TOLERANCE = 1e-5, 1e-3


def run(stage, variant):
    try:
        steps(stage, variant)
    except (RuntimeError, NotImplementedError) as error:
        lacking = ("does not support", "not implemented", "unsupported")
        if stage.device_type == "cpu" and any(each in str(error) for each in lacking):
            stage.skip(f"gloo of this torch does not have what {variant} needs: {error}"[:200])
        raise


def steps(stage, variant):
    import torch

    if variant.startswith("zero"):
        deepspeed = stage.deepspeed()
        trainer = Zero(stage, deepspeed, build(torch), int(variant[4:]))
    else:
        stage.join()
        trainer = {"ddp": Ddp, "fsdp1": Fsdp1, "fsdp2": Fsdp2}[variant](stage, build(torch))
    alone = Alone(torch, stage.world)
    for step in range(STEPS):
        expected = alone.step(step)
        with stage.call(f"step {step + 1}"):
            with stage.call("forward"):
                loss = trainer.loss(*batch(torch, step, stage.rank, stage.device))
            off = abs(loss.item() - expected[stage.rank])
            why = f"the loss of rank {stage.rank} in step {step + 1} is {loss.item():.7g}"
            why += f", alone it is {expected[stage.rank]:.7g}"
            stage.agree("" if off <= LOSS_TOLERANCE * expected[stage.rank] else why, f"loss {step}")
            with stage.call("backward"):
                trainer.backward(loss)
            with stage.call("optimizer step"):
                trainer.step()
                compare(stage, torch, trainer, alone, step)
    stage.saw(**{f"{variant} loss": loss.item()})


def build(torch):
    """The model, the same on every rank; its weights such that updates are not lost in their size."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Embedding(WORDS, WIDTH),
        torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.GELU(),
        torch.nn.Linear(WIDTH, WIDTH),
        torch.nn.Tanh(),
        torch.nn.Linear(WIDTH, WORDS),
    )
    with torch.no_grad():
        model[0].weight.mul_(0.3)
    return model


def batch(torch, step, rank, device):
    """Token ids and those to predict, each of shape (LENGTH,); of this rank and step alone."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    ids = torch.randint(0, WORDS, (LENGTH + 1,), generator=generator)
    return ids[:-1].to(device), ids[1:].to(device)


class Alone:
    """The reference: one process, plain torch on the CPU, the batches of all ranks."""

    def __init__(self, torch, world):
        self.torch, self.world, self.model = torch, world, build(torch)
        self.before, self.gradients = {}, []

    def step(self, step):
        """Take a step; the losses by rank. Keeps the weights before it and each rank's gradients."""
        losses, self.gradients = [], []
        self.before = {name: each.detach().clone() for name, each in self.model.named_parameters()}
        for rank in range(self.world):
            ids, wanted = batch(self.torch, step, rank, "cpu")
            loss = self.torch.nn.functional.cross_entropy(self.model(ids), wanted)
            self.gradients.append(self.torch.autograd.grad(loss, list(self.model.parameters())))
            losses.append(loss.item())
        with self.torch.no_grad():
            for number, each in enumerate(self.model.parameters()):
                each.sub_(RATE * sum(of_rank[number] for of_rank in self.gradients) / self.world)
        return losses

    def after(self):
        """The weights by name."""
        return {name: each.detach() for name, each in self.model.named_parameters()}


def compare(stage, torch, trainer, alone, step):
    """Fail unless the weights are those of the reference; what a rank keeps itself tells whose are wrong."""
    expected = alone.after()
    largest = {name: float((expected[name] - alone.before[name]).abs().max()) for name in expected}

    def differs(name, found, wanted):
        if tuple(found.shape) != tuple(wanted.shape):
            return f"{name} has shape {list(found.shape)}, alone {list(wanted.shape)}"
        error = (found.double().cpu() - wanted.double()).abs()
        off = float(error.max()) if error.numel() else 0.0
        if off <= UPDATE_TOLERANCE * largest[name]:
            return ""
        return f"{name} differs from one process's by {off / largest[name]:.2g} times its update"

    whole = trainer.full()
    own = next(filter(None, (differs(name, *pair) for name, pair in trainer.own(expected).items())), "")
    all_of_it = next(filter(None, (differs(name, each, expected[name]) for name, each in whole.items())), "")
    told = stage.told({"own": own, "whole": all_of_it}, f"weights {step}")
    if any(each["own"] or each["whole"] for each in told):
        share(stage, torch, whole, alone, step)
    for which in ("own", "whole"):
        wrong = [rank for rank, each in enumerate(told) if each[which]]
        if wrong:
            everybody = len(wrong) == stage.world
            who = "on all ranks" if everybody else f"on rank {wrong[0]}"
            guilty = stage.everybody if everybody else wrong[0]
            stage.fail(f"{who}, after step {step + 1}: {told[wrong[0]][which]}", rank=guilty)


def share(stage, torch, found, alone, step):
    """Fail with the rank whose gradient counted otherwise than once, if that explains the weights.

    The update is a sum of the ranks' gradients, each known; how often each counted follows by least squares.
    """
    pull, columns = [], [[] for _ in range(stage.world)]
    for number, (name, before) in enumerate(alone.before.items()):
        pull.append((before.double() - found[name].double().cpu()).flatten() / RATE * stage.world)
        for rank in range(stage.world):
            columns[rank].append(alone.gradients[rank][number].double().flatten())
    wanted = torch.cat(pull)
    gradients = torch.stack([torch.cat(each) for each in columns], dim=1)
    counted = torch.linalg.lstsq(gradients, wanted[:, None]).solution[:, 0]
    left = float((gradients @ counted - wanted).norm() / wanted.norm())
    odd = [rank for rank in range(stage.world) if not abs(float(counted[rank]) - 1) < UPDATE_TOLERANCE]
    if odd and left < UPDATE_TOLERANCE:
        times = f"{float(counted[odd[0]]):.4g}"
        if len(odd) == stage.world:
            why = f"the gradients of all ranks counted, that of rank {odd[0]} {times} times"
        else:
            why = f"the gradient of rank {odd[0]} counted {times} times, once each is right"
        stage.fail(f"step {step + 1}: {why}", rank=odd[0])


class Ddp:
    """DistributedDataParallel: every rank holds all weights."""

    def __init__(self, stage, model):
        import torch

        ids = None if stage.device_type == "cpu" else [stage.device.index]
        with stage.call("DistributedDataParallel"):
            self.model = torch.nn.parallel.DistributedDataParallel(model.to(stage.device), device_ids=ids)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)
        self.cross_entropy = torch.nn.functional.cross_entropy

    def loss(self, ids, wanted):
        """The loss of this batch, a scalar tensor."""
        return self.cross_entropy(self.model(ids), wanted)

    def backward(self, loss):
        """Let the gradients flow, to wherever they are summed."""
        loss.backward()

    def step(self):
        """Take a step and forget the gradients."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    def full(self):
        """All weights by name; all ranks must ask."""
        return {name: each.detach() for name, each in self.model.module.named_parameters()}

    def own(self, expected):
        """What this rank itself keeps of each weight, with what is expected there."""
        return {name: (each, expected[name]) for name, each in self.full().items()}


class Fsdp1(Ddp):
    """FullyShardedDataParallel: a slice of all weights, laid end to end, on each rank."""

    def __init__(self, stage, model):
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel

        self.stage, self.fsdp = stage, FullyShardedDataParallel
        with stage.call("FullyShardedDataParallel"):
            self.model = FullyShardedDataParallel(
                model.to(stage.device), device_id=stage.device, use_orig_params=True
            )
        held, whole = sum(each.numel() for each in self.model.parameters()), WORDS * WIDTH
        if held > whole * 5 // stage.world:
            stage.fail(f"FullyShardedDataParallel sharded nothing: rank {stage.rank} holds {held} elements")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)
        self.cross_entropy = torch.nn.functional.cross_entropy

    def full(self):
        """All weights by name; all ranks must ask."""
        with self.stage.call("summon_full_params"), self.fsdp.summon_full_params(self.model, writeback=False):
            return {
                name.replace("_fsdp_wrapped_module.", ""): each.detach().clone()
                for name, each in self.model.named_parameters()
            }

    def own(self, _expected):
        """Nothing."""
        return {}  # which slice is whose is FSDP's own affair: only the whole is compared


class Fsdp2(Ddp):
    """fully_shard: of each weight the rows of this rank."""

    def __init__(self, stage, model):
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.rank, self.world = stage.rank, stage.world
        with stage.call("fully_shard"):
            mesh = init_device_mesh(stage.device_type, (stage.world,))
            self.model = model.to(stage.device)
            for each in self.model:
                if list(each.parameters()):
                    fully_shard(each, mesh=mesh)
            fully_shard(self.model, mesh=mesh)
        if any(type(each).__name__ != "DTensor" for each in self.model.parameters()):
            stage.fail("fully_shard left a parameter that is no DTensor")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)
        self.cross_entropy = torch.nn.functional.cross_entropy

    def full(self):
        """All weights by name; all ranks must ask."""
        return {name: each.detach().full_tensor() for name, each in self.model.named_parameters()}

    def own(self, expected):
        """Rows as torch.chunk deals them out: the last ranks may have none."""
        found = {}
        for name, each in self.model.named_parameters():
            chunks = expected[name].chunk(self.world)
            wanted = chunks[self.rank] if self.rank < len(chunks) else expected[name][:0]
            found[name] = (each.detach().to_local(), wanted)
        return found


class Zero:
    """A DeepSpeed engine: the optimizer's states (1), gradients (2), weights (3) shared out."""

    def __init__(self, stage, deepspeed, model, number):
        import torch

        self.stage, self.deepspeed, self.number = stage, deepspeed, number
        config = stage.deepspeed_config(number, clipping=0.0)
        config["zero_allow_untested_optimizer"] = True
        with stage.call("deepspeed.initialize"):
            self.engine, *_ = deepspeed.initialize(
                model=model,
                config=config,
                model_parameters=list(model.parameters()),
                optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
            )
        if type(self.engine).__name__ != "DeepSpeedEngine" or self.engine.zero_optimization_stage() != number:
            stage.fail(f"deepspeed.initialize gave a {type(self.engine).__name__} without ZeRO-{number}")
        if number == 3 and not all(hasattr(each, "ds_tensor") for each in self.engine.module.parameters()):
            stage.fail("ZeRO-3 left a parameter whole")
        self.cross_entropy = torch.nn.functional.cross_entropy

    def loss(self, ids, wanted):
        """The loss of this batch, a scalar tensor."""
        return self.cross_entropy(self.engine(ids), wanted)

    def backward(self, loss):
        """Let the gradients flow, to wherever they are summed."""
        self.engine.backward(loss)

    def step(self):
        """Take a step and forget the gradients."""
        self.engine.step()

    def full(self):
        """All weights by name; all ranks must ask."""
        if self.number < 3:
            return {name: each.detach() for name, each in self.engine.module.named_parameters()}
        parameters = list(self.engine.module.parameters())
        with self.stage.call("GatheredParameters"), self.deepspeed.zero.GatheredParameters(parameters):
            return {name: each.detach().clone() for name, each in self.engine.module.named_parameters()}

    def own(self, expected):
        """What this rank itself keeps of each weight, with what is expected there."""
        if self.number < 3:
            return {name: (each, expected[name]) for name, each in self.full().items()}
        found = {}
        for name, each in self.engine.module.named_parameters():
            held = each.ds_tensor.detach().flatten()
            wanted = expected[name].flatten()[self.stage.rank * held.numel() :][: held.numel()]
            found[name] = (held[: wanted.numel()], wanted)
        return found
