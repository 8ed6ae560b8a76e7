"""A step shared among ranks is the step that one process takes.

A small model (an embedding, three linear layers; 11 thousand parameters) takes two steps of SGD in float32 at
rate 1, with a different batch on each rank. Each rank also takes these steps by itself, in plain torch, with
the batches of all ranks. SGD is used because Adam hides a gradient of the wrong size.

Losses may differ by 1e-5 (relative), and updates by 1e-3 of the largest update: sums are taken in another
order, and a parameter is rounded to 24 bits, of which an update changes the last 15. Seconds: 1 to 3 a
variant. Memory: below 1 GiB, nearly all of it libraries.

A failure means that training across ranks does not optimize its loss here.
"""

LEVEL = 3
NEEDS = {"pkg.torch": ">=2.1"}
IMPORTS = (
    "torch",
    "torch.distributed",
    "torch.distributed.fsdp",
    "torch._dynamo",  # an optimizer imports it at its first step
    "torch._inductor.scheduler",  # deepspeed.initialize imports it
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


def run(test, variant):
    try:
        steps(test, variant)
    except (RuntimeError, NotImplementedError) as error:
        lacking = ("does not support", "not implemented", "unsupported")
        if test.device_type == "cpu" and any(phrase in str(error) for phrase in lacking):
            test.skip(f"gloo of this torch does not have what {variant} needs: {error}"[:200])
        raise


def steps(test, variant):
    import torch

    if variant.startswith("zero"):
        deepspeed = test.import_deepspeed()
        trainer = ZeroTrainer(test, deepspeed, build(torch), int(variant[4:]))
    else:
        test.join_process_group()
        trainer = {"ddp": DdpTrainer, "fsdp1": Fsdp1Trainer, "fsdp2": Fsdp2Trainer}[variant](
            test, build(torch)
        )
    reference = UnshardedReference(torch, test.world)
    for step in range(STEPS):
        expected = reference.step(step)
        with test.call(f"step {step + 1}"):
            with test.call("forward"):
                loss = trainer.loss(*batch(torch, step, test.rank, test.device))
            off = abs(loss.item() - expected[test.rank])
            why = f"the loss of rank {test.rank} in step {step + 1} is {loss.item():.7g}"
            why += f", alone it is {expected[test.rank]:.7g}"
            test.fail_together("" if off <= LOSS_TOLERANCE * expected[test.rank] else why, f"loss {step}")
            with test.call("backward"):
                trainer.backward(loss)
            with test.call("optimizer step"):
                trainer.step()
                compare(test, torch, trainer, reference, step)
    test.record(**{f"{variant} loss": loss.item()})


def build(torch):
    """Return the model, the same on every rank; small weights keep updates from being rounded away."""
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
    """Return token ids and the ids to predict, each of shape (LENGTH,), different for each rank and step."""
    generator = torch.Generator().manual_seed(1000 * step + rank)
    ids = torch.randint(0, WORDS, (LENGTH + 1,), generator=generator)
    return ids[:-1].to(device), ids[1:].to(device)


class UnshardedReference:
    """Training in one process, in plain torch on the CPU, with the batches of all ranks."""

    def __init__(self, torch, world):
        self.torch, self.world, self.model = torch, world, build(torch)
        self.before, self.gradients = {}, []

    def step(self, step):
        """Take a step and return the losses by rank; keep the earlier weights and each rank's gradients."""
        losses, self.gradients = [], []
        self.before = {name: weight.detach().clone() for name, weight in self.model.named_parameters()}
        for rank in range(self.world):
            ids, wanted = batch(self.torch, step, rank, "cpu")
            loss = self.torch.nn.functional.cross_entropy(self.model(ids), wanted)
            self.gradients.append(self.torch.autograd.grad(loss, list(self.model.parameters())))
            losses.append(loss.item())
        with self.torch.no_grad():
            for number, weight in enumerate(self.model.parameters()):
                weight.sub_(RATE * sum(of_rank[number] for of_rank in self.gradients) / self.world)
        return losses

    def weights(self):
        """Return the weights by name."""
        return {name: weight.detach() for name, weight in self.model.named_parameters()}


def compare(test, torch, trainer, reference, step):
    """Fail unless the weights are those of the reference; the shards show on which rank they are wrong."""
    expected = reference.weights()
    largest = {name: float((expected[name] - reference.before[name]).abs().max()) for name in expected}

    def difference(name, found, wanted):
        if tuple(found.shape) != tuple(wanted.shape):
            return f"{name} has shape {list(found.shape)}, alone {list(wanted.shape)}"
        error = (found.double().cpu() - wanted.double()).abs()
        off = float(error.max()) if error.numel() else 0.0
        if off <= UPDATE_TOLERANCE * largest[name]:
            return ""
        return f"{name} differs from one process's by {off / largest[name]:.2g} times its update"

    whole = trainer.full()
    own = next(filter(None, (difference(name, *pair) for name, pair in trainer.own(expected).items())), "")
    full = next(filter(None, (difference(name, found, expected[name]) for name, found in whole.items())), "")
    problems = test.exchange({"own": own, "whole": full}, f"weights {step}")
    if any(problem["own"] or problem["whole"] for problem in problems):
        check_shares(test, torch, whole, reference, step)
    for which in ("own", "whole"):
        wrong = [rank for rank, problem in enumerate(problems) if problem[which]]
        if wrong:
            everywhere = len(wrong) == test.world
            where = "on all ranks" if everywhere else f"on rank {wrong[0]}"
            at_fault = test.all_ranks if everywhere else wrong[0]
            test.fail(f"{where}, after step {step + 1}: {problems[wrong[0]][which]}", rank=at_fault)


def check_shares(test, torch, found, reference, step):
    """Fail with the rank whose gradient did not count exactly once, if that explains the weights.

    The update is a weighted sum of the ranks' gradients, which are known; least squares gives the weights.
    """
    updates, columns = [], [[] for _ in range(test.world)]
    for number, (name, before) in enumerate(reference.before.items()):
        updates.append((before.double() - found[name].double().cpu()).flatten() / RATE * test.world)
        for rank in range(test.world):
            columns[rank].append(reference.gradients[rank][number].double().flatten())
    update = torch.cat(updates)
    gradients = torch.stack([torch.cat(column) for column in columns], dim=1)
    counted = torch.linalg.lstsq(gradients, update[:, None]).solution[:, 0]
    unexplained = float((gradients @ counted - update).norm() / update.norm())
    odd = [rank for rank in range(test.world) if not abs(float(counted[rank]) - 1) < UPDATE_TOLERANCE]
    if odd and unexplained < UPDATE_TOLERANCE:
        times = f"{float(counted[odd[0]]):.4g}"
        if len(odd) == test.world:
            why = f"the gradients of all ranks counted, that of rank {odd[0]} {times} times"
        else:
            why = f"the gradient of rank {odd[0]} counted {times} times, once each is right"
        test.fail(f"step {step + 1}: {why}", rank=odd[0])


class DdpTrainer:
    """DistributedDataParallel: every rank holds all weights."""

    def __init__(self, test, model):
        import torch

        ids = None if test.device_type == "cpu" else [test.device.index]
        with test.call("DistributedDataParallel"):
            self.model = torch.nn.parallel.DistributedDataParallel(model.to(test.device), device_ids=ids)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)
        self.cross_entropy = torch.nn.functional.cross_entropy

    def loss(self, ids, wanted):
        """Return the loss of this batch, a scalar tensor."""
        return self.cross_entropy(self.model(ids), wanted)

    def backward(self, loss):
        """Compute the gradients and sum them over the ranks."""
        loss.backward()

    def step(self):
        """Take an optimizer step and reset the gradients."""
        self.optimizer.step()
        self.optimizer.zero_grad()

    def full(self):
        """Return all weights by name; every rank must call this."""
        return {name: weight.detach() for name, weight in self.model.module.named_parameters()}

    def own(self, expected):
        """Return the part of each weight that this rank holds, with its expected value."""
        return {name: (weight, expected[name]) for name, weight in self.full().items()}


class Fsdp1Trainer(DdpTrainer):
    """FullyShardedDataParallel: all weights are concatenated, and each rank holds a slice."""

    def __init__(self, test, model):
        import torch
        from torch.distributed.fsdp import FullyShardedDataParallel

        self.test, self.fsdp = test, FullyShardedDataParallel
        with test.call("FullyShardedDataParallel"):
            self.model = FullyShardedDataParallel(
                model.to(test.device), device_id=test.device, use_orig_params=True
            )
        held, whole = sum(weight.numel() for weight in self.model.parameters()), WORDS * WIDTH
        if held > whole * 5 // test.world:
            test.fail(f"FullyShardedDataParallel sharded nothing: rank {test.rank} holds {held} elements")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)
        self.cross_entropy = torch.nn.functional.cross_entropy

    def full(self):
        """Return all weights by name; every rank must call this."""
        with self.test.call("summon_full_params"), self.fsdp.summon_full_params(self.model, writeback=False):
            return {
                name.replace("_fsdp_wrapped_module.", ""): weight.detach().clone()
                for name, weight in self.model.named_parameters()
            }

    def own(self, _expected):
        """Return nothing: which slice a rank holds is internal to FSDP, so only the whole is compared."""
        return {}


class Fsdp2Trainer(DdpTrainer):
    """fully_shard: each rank holds some rows of each weight."""

    def __init__(self, test, model):
        import torch
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        self.rank, self.world = test.rank, test.world
        with test.call("fully_shard"):
            mesh = init_device_mesh(test.device_type, (test.world,))
            self.model = model.to(test.device)
            for layer in self.model:
                if list(layer.parameters()):
                    fully_shard(layer, mesh=mesh)
            fully_shard(self.model, mesh=mesh)
        if any(type(weight).__name__ != "DTensor" for weight in self.model.parameters()):
            test.fail("fully_shard left a parameter that is no DTensor")
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=RATE)
        self.cross_entropy = torch.nn.functional.cross_entropy

    def full(self):
        """Return all weights by name; every rank must call this."""
        return {name: weight.detach().full_tensor() for name, weight in self.model.named_parameters()}

    def own(self, expected):
        """Return the rows of this rank, distributed as by torch.chunk: the last ranks may have none."""
        found = {}
        for name, weight in self.model.named_parameters():
            chunks = expected[name].chunk(self.world)
            wanted = chunks[self.rank] if self.rank < len(chunks) else expected[name][:0]
            found[name] = (weight.detach().to_local(), wanted)
        return found


class ZeroTrainer:
    """A DeepSpeed engine that shards the optimizer's states (stage 1), gradients (2) and weights (3)."""

    def __init__(self, test, deepspeed, model, zero_stage):
        import torch

        self.test, self.deepspeed, self.zero_stage = test, deepspeed, zero_stage
        config = test.deepspeed_config(zero_stage, clipping=0.0)
        config["zero_allow_untested_optimizer"] = True
        with test.call("deepspeed.initialize"):
            self.engine, *_ = deepspeed.initialize(
                model=model,
                config=config,
                model_parameters=list(model.parameters()),
                optimizer=torch.optim.SGD(model.parameters(), lr=RATE),
            )
        engine_class = type(self.engine).__name__
        if engine_class != "DeepSpeedEngine" or self.engine.zero_optimization_stage() != zero_stage:
            test.fail(f"deepspeed.initialize gave a {engine_class} without ZeRO-{zero_stage}")
        if zero_stage == 3 and not all(
            hasattr(weight, "ds_tensor") for weight in self.engine.module.parameters()
        ):
            test.fail("ZeRO-3 left a parameter whole")
        self.cross_entropy = torch.nn.functional.cross_entropy

    def loss(self, ids, wanted):
        """Return the loss of this batch, a scalar tensor."""
        return self.cross_entropy(self.engine(ids), wanted)

    def backward(self, loss):
        """Compute the gradients and sum them over the ranks."""
        self.engine.backward(loss)

    def step(self):
        """Take an optimizer step and reset the gradients."""
        self.engine.step()
        self.test.settle()

    def full(self):
        """Return all weights by name; every rank must call this."""
        if self.zero_stage < 3:
            return {name: weight.detach() for name, weight in self.engine.module.named_parameters()}
        parameters = list(self.engine.module.parameters())
        with self.test.call("GatheredParameters"), self.deepspeed.zero.GatheredParameters(parameters):
            self.test.settle()
            return {name: weight.detach().clone() for name, weight in self.engine.module.named_parameters()}

    def own(self, expected):
        """Return the part of each weight that this rank holds, with its expected value."""
        if self.zero_stage < 3:
            return {name: (weight, expected[name]) for name, weight in self.full().items()}
        found = {}
        for name, weight in self.engine.module.named_parameters():
            held = weight.ds_tensor.detach().flatten()
            wanted = expected[name].flatten()[self.test.rank * held.numel() :][: held.numel()]
            found[name] = (held[: wanted.numel()], wanted)
        return found
