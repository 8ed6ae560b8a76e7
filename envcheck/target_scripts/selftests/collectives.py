"""What ranks exchange arrives as it was sent.

Tensors have 1024 elements per rank, in float32, int64 and bfloat16. For sums, each rank first fills only its
own part and leaves the others zero, so that a wrong part identifies the rank that sent it; then all ranks
fill the whole tensor with small whole numbers. Both sums are exact in any order, so the tolerance is 0. The
float32 values use 20 bits, which a sum taken in bfloat16 would lose.

Seconds: below 1 a variant once torch is imported. Memory: below 1 GiB, nearly all of it torch.

A failure means that gradients or shards of this installation are wrong, late or lost: no training across
ranks can be right.
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


def run(test, variant):
    dist = test.join_process_group()
    {
        "all-reduce": all_reduce,
        "all-gather": all_gather,
        "reduce-scatter": reduce_scatter,
        "broadcast": broadcast,
        "all-to-all": all_to_all,
        "send-receive": send_receive,
        "barrier": barrier,
    }[variant](test, dist)


def dtypes():
    import torch

    return {"float32": torch.float32, "int64": torch.int64, "bfloat16": torch.bfloat16}


def part(test, rank, name, salt=0):
    """Return what `rank` sends, of shape (PART,): exact in its dtype, never 0, different by rank and salt."""
    import torch

    index = torch.arange(PART, device=test.device)
    if name == "bfloat16":
        return (1 + (index + 7 * rank + 13 * salt) % 255).to(torch.bfloat16)
    whole = 1 + (index * 1021 + 65537 * rank + 257 * salt) % (1 << 20)
    return whole if name == "int64" else 1 + whole.to(torch.float32) / (1 << 20) / 2


def supported(test, dist, call, collective, *tensors):
    """Run a collective; skip the variant where gloo of this torch does not have it."""
    with test.call(call):
        try:
            collective(*tensors)
        except (RuntimeError, NotImplementedError) as error:
            lacking = any(
                phrase in str(error).lower() for phrase in ("not support", "not implement", "unsupported")
            )
            if dist.get_backend() == "gloo" and lacking:
                test.skip(f"{call}: gloo of this torch does not have it")
            raise


def check(test, call, found, expected, senders):
    """Compare part by part; every rank fails alike and names the rank that sent, or received, a wrong part.

    `found` and `expected` have shape (parts, PART); `senders` are the ranks that sent the parts.
    """
    problem = {}
    wrong = [number for number in range(len(senders)) if not bool((found[number] == expected[number]).all())]
    if wrong:
        position = int((found[wrong[0]] != expected[wrong[0]]).nonzero()[0])
        seen, wanted = found[wrong[0]][position].item(), expected[wrong[0]][position].item()
        problem = {
            "seen": f"element {position} is {seen!r}, expected {wanted!r}",
            "from": [senders[number] for number in wrong],
        }
    with test.call(call):
        problems = test.exchange(problem, call)
        receivers = [rank for rank, found_wrong in enumerate(problems) if found_wrong]
        if not receivers:
            return
        first = problems[receivers[0]]
        why = f"{call}: on rank {receivers[0]} the part of rank {first['from'][0]} is wrong: {first['seen']}"
        parts = {sender for rank in receivers for sender in problems[rank]["from"]}
        if len(receivers) == 1:
            test.fail(f"{why}; the other ranks received what was sent", rank=receivers[0])
        if len(parts) == 1:  # several ranks received it wrong from one rank: it was sent wrong
            test.fail(f"{why}; so it is on {len(receivers)} ranks", rank=parts.pop())
        test.fail(f"{why}; so are parts of {len(parts)} ranks, on {len(receivers)}", rank=test.all_ranks)


def all_reduce(test, dist):
    import torch

    for name, dtype in dtypes().items():
        tensor = torch.zeros(test.world, PART, dtype=dtype, device=test.device)
        tensor[test.rank] = part(test, test.rank, name)
        with test.call(f"all_reduce {name}"):
            dist.all_reduce(tensor)
        every = range(test.world)
        expected = torch.stack([part(test, rank, name) for rank in every])
        check(test, f"all_reduce {name}", tensor, expected, list(every))
        tensor = torch.full((1, PART), 1 + test.rank % 2, dtype=dtype, device=test.device)
        with test.call(f"all_reduce {name}, dense"):
            dist.all_reduce(tensor)
        total = torch.full_like(tensor, sum(1 + rank % 2 for rank in every))
        check(test, f"all_reduce {name}, dense", tensor, total, [test.rank])


def all_gather(test, dist):
    import torch

    for name in dtypes():
        own = part(test, test.rank, name)
        gathered = [torch.zeros_like(own) for _ in range(test.world)]
        with test.call(f"all_gather {name}"):
            dist.all_gather(gathered, own)
        every = range(test.world)
        expected = torch.stack([part(test, rank, name) for rank in every])
        check(test, f"all_gather {name}", torch.stack(gathered), expected, list(every))


def reduce_scatter(test, dist):
    """Check that rank r receives the sum of all ranks' r-th slice; a slice has a part for each rank."""
    import torch

    every = range(test.world)
    for name, dtype in dtypes().items():
        sent = torch.zeros(test.world, test.world, PART, dtype=dtype, device=test.device)
        for receiver in every:
            sent[receiver, test.rank] = part(test, test.rank, name, salt=receiver)
        received = torch.empty(test.world, PART, dtype=dtype, device=test.device)
        call = f"reduce_scatter {name}"
        supported(test, dist, call, dist.reduce_scatter, received, list(sent.unbind()))
        expected = torch.stack([part(test, rank, name, salt=test.rank) for rank in every])
        check(test, call, received, expected, list(every))


def broadcast(test, dist):
    """Broadcast from each of the first four ranks and from the last."""
    import torch

    for source in sorted({*range(min(4, test.world)), test.world - 1}):
        for name, dtype in dtypes().items():
            tensor = torch.zeros(PART, dtype=dtype, device=test.device)
            if test.rank == source:
                tensor = part(test, source, name)
            call = f"broadcast {name} from rank {source}"
            with test.call(call):
                dist.broadcast(tensor, src=source)
            check(test, call, tensor[None], part(test, source, name)[None], [source])


def all_to_all(test, dist):
    import torch

    every = range(test.world)
    for name, dtype in dtypes().items():
        sent = torch.stack([part(test, test.rank, name, salt=receiver) for receiver in every])
        received = torch.zeros(test.world, PART, dtype=dtype, device=test.device)
        call = f"all_to_all {name}"
        supported(test, dist, call, dist.all_to_all_single, received, sent)
        expected = torch.stack([part(test, rank, name, salt=test.rank) for rank in every])
        check(test, call, received, expected, list(every))


def send_receive(test, dist):
    """Exchange around a ring: each rank sends to the next one and receives from the one before."""
    import torch

    after, before = (test.rank + 1) % test.world, (test.rank - 1) % test.world
    for name, dtype in dtypes().items():
        received = torch.zeros(PART, dtype=dtype, device=test.device)
        call = f"send and receive {name}"
        with test.call(call):
            send = dist.P2POp(dist.isend, part(test, test.rank, name), after)
            receive = dist.P2POp(dist.irecv, received, before)
            for request in dist.batch_isend_irecv([send, receive]):
                request.wait()
        check(test, call, received[None], part(test, before, name)[None], [before])


def barrier(test, dist):
    """Check that no rank leaves before all have arrived; one rank arrives late on purpose."""
    import time

    for late in (0, test.world - 1):
        key = f"barrier, rank {late} last"
        with test.call(key):
            if test.rank == late:
                time.sleep(0.2)
            test.store.add(key, 1)
            dist.barrier()
            if test.device_type != "cpu":
                import torch

                torch.cuda.synchronize()
            arrived = test.store.add(key, 0)
            why = f"rank {test.rank} left a barrier when {arrived} of {test.world} had come"
            test.fail_together("" if arrived == test.world else why, key)
