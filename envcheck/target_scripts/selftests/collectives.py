"""What ranks exchange arrives as it was sent.

Tensors of 1024 elements a rank, in float32, int64 and bfloat16. In the sums each rank fills a part of its own
and leaves the others zero, so that a wrong part names the rank that sent it; then all fill everything with
small whole numbers. Both are exact in every order of summing, so nothing is tolerated; the float32 values
use 20 bits, which a sum taken in bfloat16 would lose. Seconds: below 1 a variant once torch is imported.
Memory: below 1 GiB, nearly all of it torch. A failure means that gradients or shards of this
installation are wrong, late or lost: no training across ranks can be right.
"""

LEVEL = 3
NEEDS = {"pkg.torch": "present"}
IMPORTS = ("torch", "torch.distributed")
SECONDS = 60
RANKS = (2, 64)
VARIANTS = {
    "all-reduce": {},
    "all-gather": {},
    "reduce-scatter": {},
    "broadcast": {},
    "all-to-all": {},
    "send-receive": {},
    "barrier": {},
}

PART = 1024
"""Elements of one rank's part."""


def run(stage, variant):
    dist = stage.join()
    {
        "all-reduce": all_reduce,
        "all-gather": all_gather,
        "reduce-scatter": reduce_scatter,
        "broadcast": broadcast,
        "all-to-all": all_to_all,
        "send-receive": send_receive,
        "barrier": barrier,
    }[variant](stage, dist)


def dtypes():
    import torch

    return {"float32": torch.float32, "int64": torch.int64, "bfloat16": torch.bfloat16}


def part(stage, rank, name, salt=0):
    """What `rank` sends, of shape (PART,): exact in its dtype, never zero, another for each rank and salt."""
    import torch

    index = torch.arange(PART, device=stage.device)
    if name == "bfloat16":
        return (1 + (index + 7 * rank + 13 * salt) % 255).to(torch.bfloat16)
    whole = 1 + (index * 1021 + 65537 * rank + 257 * salt) % (1 << 20)
    return whole if name == "int64" else 1 + whole.to(torch.float32) / (1 << 20) / 2


def supported(stage, dist, call, collective, *tensors):
    """Run a collective; skip the variant where gloo of this torch does not have it."""
    with stage.call(call):
        try:
            collective(*tensors)
        except (RuntimeError, NotImplementedError) as error:
            lacking = any(
                each in str(error).lower() for each in ("not support", "not implement", "unsupported")
            )
            if dist.get_backend() == "gloo" and lacking:
                stage.skip(f"{call}: gloo of this torch does not have it")
            raise


def check(stage, call, found, expected, senders):
    """Compare part by part; every rank fails alike and names the one that sent, or received, what is wrong.

    `found` and `expected` have shape (parts, PART); `senders` are the ranks that the parts are from.
    """
    mine = {}
    wrong = [number for number in range(len(senders)) if not bool((found[number] == expected[number]).all())]
    if wrong:
        at = int((found[wrong[0]] != expected[wrong[0]]).nonzero()[0])
        seen, wanted = found[wrong[0]][at].item(), expected[wrong[0]][at].item()
        mine = {
            "seen": f"element {at} is {seen!r}, expected {wanted!r}",
            "from": [senders[each] for each in wrong],
        }
    with stage.call(call):
        told = stage.told(mine, call)
        receivers = [rank for rank, each in enumerate(told) if each]
        if not receivers:
            return
        first = told[receivers[0]]
        why = f"{call}: on rank {receivers[0]} the part of rank {first['from'][0]} is wrong: {first['seen']}"
        parts = {sender for each in told if each for sender in each["from"]}
        if len(receivers) == 1:
            stage.fail(f"{why}; the other ranks received what was sent", rank=receivers[0])
        if len(parts) == 1:  # what several received wrong from one and the same was sent wrong
            stage.fail(f"{why}; so it is on {len(receivers)} ranks", rank=parts.pop())
        stage.fail(f"{why}; so are parts of {len(parts)} ranks, on {len(receivers)}", rank=stage.everybody)


def all_reduce(stage, dist):
    import torch

    for name, dtype in dtypes().items():
        tensor = torch.zeros(stage.world, PART, dtype=dtype, device=stage.device)
        tensor[stage.rank] = part(stage, stage.rank, name)
        with stage.call(f"all_reduce {name}"):
            dist.all_reduce(tensor)
        every = range(stage.world)
        expected = torch.stack([part(stage, rank, name) for rank in every])
        check(stage, f"all_reduce {name}", tensor, expected, list(every))
        tensor = torch.full((1, PART), 1 + stage.rank % 2, dtype=dtype, device=stage.device)
        with stage.call(f"all_reduce {name}, dense"):
            dist.all_reduce(tensor)
        total = torch.full_like(tensor, sum(1 + rank % 2 for rank in every))
        check(stage, f"all_reduce {name}, dense", tensor, total, [stage.rank])


def all_gather(stage, dist):
    import torch

    for name in dtypes():
        own = part(stage, stage.rank, name)
        gathered = [torch.zeros_like(own) for _ in range(stage.world)]
        with stage.call(f"all_gather {name}"):
            dist.all_gather(gathered, own)
        every = range(stage.world)
        expected = torch.stack([part(stage, rank, name) for rank in every])
        check(stage, f"all_gather {name}", torch.stack(gathered), expected, list(every))


def reduce_scatter(stage, dist):
    """Rank r receives the sum of all ranks' r-th slice; a slice has a part of each rank."""
    import torch

    every = range(stage.world)
    for name, dtype in dtypes().items():
        sent = torch.zeros(stage.world, stage.world, PART, dtype=dtype, device=stage.device)
        for receiver in every:
            sent[receiver, stage.rank] = part(stage, stage.rank, name, salt=receiver)
        received = torch.empty(stage.world, PART, dtype=dtype, device=stage.device)
        call = f"reduce_scatter {name}"
        supported(stage, dist, call, dist.reduce_scatter, received, list(sent.unbind()))
        expected = torch.stack([part(stage, rank, name, salt=stage.rank) for rank in every])
        check(stage, call, received, expected, list(every))


def broadcast(stage, dist):
    """From each of the first four ranks and the last."""
    import torch

    for source in sorted({*range(min(4, stage.world)), stage.world - 1}):
        for name, dtype in dtypes().items():
            tensor = torch.zeros(PART, dtype=dtype, device=stage.device)
            if stage.rank == source:
                tensor = part(stage, source, name)
            call = f"broadcast {name} from rank {source}"
            with stage.call(call):
                dist.broadcast(tensor, src=source)
            check(stage, call, tensor[None], part(stage, source, name)[None], [source])


def all_to_all(stage, dist):
    import torch

    every = range(stage.world)
    for name, dtype in dtypes().items():
        sent = torch.stack([part(stage, stage.rank, name, salt=receiver) for receiver in every])
        received = torch.zeros(stage.world, PART, dtype=dtype, device=stage.device)
        call = f"all_to_all {name}"
        supported(stage, dist, call, dist.all_to_all_single, received, sent)
        expected = torch.stack([part(stage, rank, name, salt=stage.rank) for rank in every])
        check(stage, call, received, expected, list(every))


def send_receive(stage, dist):
    """Round a ring: everyone sends to the next and receives from the one before."""
    import torch

    after, before = (stage.rank + 1) % stage.world, (stage.rank - 1) % stage.world
    for name, dtype in dtypes().items():
        received = torch.zeros(PART, dtype=dtype, device=stage.device)
        call = f"send and receive {name}"
        with stage.call(call):
            to = dist.P2POp(dist.isend, part(stage, stage.rank, name), after)
            of = dist.P2POp(dist.irecv, received, before)
            for each in dist.batch_isend_irecv([to, of]):
                each.wait()
        check(stage, call, received[None], part(stage, before, name)[None], [before])


def barrier(stage, dist):
    """Nobody leaves before all have come; the last comes late on purpose."""
    import time

    for late in (0, stage.world - 1):
        key = f"barrier, rank {late} last"
        with stage.call(key):
            if stage.rank == late:
                time.sleep(0.2)
            stage.store.add(key, 1)
            dist.barrier()
            if stage.device_type != "cpu":
                import torch

                torch.cuda.synchronize()
            come = stage.store.add(key, 0)
            why = f"rank {stage.rank} left a barrier when {come} of {stage.world} had come"
            stage.agree("" if come == stage.world else why, key)
