"""The use case of `selftest`: run the self-tests in the target's interpreter and tell how they ended.

Every process has a deadline, is killed with all its children after it, and dies with us if we are killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple, Self

from envcheck import __version__, app, clauses, derive, host, judge, probes, proof
from envcheck.host import Host, Running
from envcheck.model import (
    ExamineError,
    Fact,
    Finding,
    InputError,
    Inventory,
    Judgement,
    Known,
    Matrix,
    Severity,
    Target,
    Tri,
    Verdict,
    Vocabulary,
)
from envcheck.pages import nearest
from envcheck.probes.layout import find_interpreter
from envcheck.reports import fix_text

IMPORTS_S = 180.0
"""What loading torch, DeepSpeed and transformers may take on a cold network disk, beside the tests."""

AT_ONCE = 4
"""Variants that run side by side on CUDA, where each imports for itself: mostly imports, little memory."""


class Wanted(NamedTuple):
    """Which self-tests: up to `level`, or those named in `only`; where, and in how many processes."""

    level: int = 1
    device: str | None = None
    ranks: int | None = None
    only: tuple[str, ...] = ()
    extra: Mapping[str, str] = {}  # environment variables beside the user's own


class Prepared(NamedTuple):
    """An environment whose tests can be run: its interpreter, its facts, the knowledge."""

    subject: str
    interpreter: str
    inventory: Inventory
    known: Matrix
    words: Vocabulary
    target: Target | None


def selftest(question: app.Question, wanted: Wanted, machine: Host) -> proof.Proof:
    """Run the self-tests that are wanted.

    Raises:
        InputError: an option is wrong.
        ExamineError: there is no environment to test.
    """
    prepared = prepare(question, machine)
    device = _device(wanted, prepared.inventory)
    outcomes = run(prepared, wanted, device, machine)
    return proof.Proof(__version__, prepared.subject, _device_shown(device, prepared.inventory), outcomes)


def prepare(question: app.Question, machine: Host) -> Prepared:
    """Find the environment and read its facts.

    Raises:
        InputError: no such environment or target.
        ExamineError: it cannot be examined, or holds no torch.
    """
    found = probes.every_probe()
    words = app.vocabulary(found)
    known = app.load_matrix(words, question.overlays)
    target = app.find_target(question.target, known)
    # The target's training facts select variants; those of the environment must stay free of them.
    subject, read = app.take_inventory(question._replace(target=None, train=()), machine, found, known, words)
    path, _ = app.which_environment(question.python, machine)
    interpreter = find_interpreter(machine, os.path.abspath(path))  # noqa: PTH100 - links tell a venv from its base
    if read.known("pkg.torch") is None:
        raise ExamineError(f"{subject}: no torch in this environment: nothing to test there")
    return Prepared(subject, interpreter, read, known, words, target)


def claims() -> tuple[proof.Claim, ...]:
    """Every self-test of the folder, by level and name."""
    texts = host.folder_texts(host.package_folder("selftests"), ".py")
    stage = texts.pop("_stage.py")
    read = [proof.read_claim(name.removesuffix(".py"), text, stage) for name, text in texts.items()]
    return tuple(sorted(read, key=lambda claim: (claim.level, claim.name)))


# --- where ------------------------------------------------------------------------------------------


def _device(wanted: Wanted, inventory: Inventory) -> str:
    """`cuda` where a GPU is to be seen and torch was built for CUDA, unless the user says otherwise."""
    gpus = inventory.visible_devices()
    built = inventory.known("cuda.runtime")
    if wanted.device == "cuda" and not gpus:
        raise InputError("--device", "cuda was asked for, and no GPU is to be seen here (envcheck facts)")
    if wanted.device == "cuda" and built is None:
        raise InputError("--device", "cuda was asked for, and torch here is not known to be built for CUDA")
    if wanted.device is not None:
        return wanted.device
    return "cuda" if gpus and built is not None else "cpu"


def _device_shown(device: str, inventory: Inventory) -> str:
    if device == "cuda":
        names = [str(inventory.known("gpu.name", each) or "GPU") for each in inventory.visible_devices()]
        return f"cuda: {', '.join(names)}"
    why = "" if inventory.visible_devices() else " (no GPU is to be seen: the same logic on the CPU)"
    return f"cpu{why}"


# --- which ------------------------------------------------------------------------------------------


class _Chosen(NamedTuple):
    claim: proof.Claim
    variant: proof.Variant
    ranks: int
    skipped: str
    rule: str = ""  # that forbids it whatever the versions are


def _choose(prepared: Prepared, wanted: Wanted, device: str, machine: Host) -> list[_Chosen]:
    """Every variant that is asked for, with the reason if it cannot be run here."""
    known = claims()
    names = [*(claim.name for claim in known), *(each.name for claim in known for each in claim.variants)]
    for name in wanted.only:
        if name not in names:
            raise InputError("--only", f"no self-test is called {name!r}{nearest(name, names)}")
    chosen = [
        _Chosen(claim, variant, ranks, _missing(claim, variant, prepared, device) or why)
        for claim in known
        for variant in claim.variants
        if _asked(claim, variant, wanted, prepared.target)
        for ranks, why in [_ranks(claim, wanted, device, prepared.inventory, machine)]
    ]
    if wanted.only or prepared.target is not None:
        return chosen
    return [each if each.skipped else _limited(each, prepared) for each in chosen]


def _limited(chosen: _Chosen, prepared: Prepared) -> _Chosen:
    """The same, skipped if a rule forbids this way of training whatever the versions are.

    To run it would fail every environment for what none can mend; who trains that way names a target or
    the variant. Where another version is a way out, the environment is at fault, and the test runs.
    """
    judgement, _, _ = _forbidden(chosen.variant, prepared)
    for finding in judgement.findings:
        keys = {key for fix in finding.rule.fixes for key, _ in fix.set}
        if keys and not any(key.startswith("pkg.") for key in keys):
            why = f"fails with every version (rule {finding.rule.id}); --only {chosen.variant.name} runs it"
            return chosen._replace(skipped=why, rule=finding.rule.id)
    return chosen


def _asked(claim: proof.Claim, variant: proof.Variant, wanted: Wanted, target: Target | None) -> bool:
    if wanted.only:
        return bool({claim.name, variant.name} & set(wanted.only))
    if target is not None and proof.contradicts(variant, _settled(target), target.free):
        return False
    return claim.level <= wanted.level


def _settled(target: Target) -> Mapping[str, Any]:
    """A target's training facts, with what its zero stage says of how the model is spread."""
    train = dict(target.train)
    if train.get("train.zero_stage"):
        train.setdefault("train.parallel", "deepspeed")
    for key, value in (("dora", False), ("offload_optimizer", "none"), ("offload_param", "none")):
        train.setdefault(f"train.{key}", value)
    return train


def _missing(claim: proof.Claim, variant: proof.Variant, prepared: Prepared, device: str) -> str:
    """What the environment lacks for this variant; empty if nothing."""
    if device not in variant.devices:
        return f"is for {' and '.join(variant.devices)}, this is {device}"
    for key, bound in {**claim.needs, **variant.needs}.items():
        declared = prepared.words.get(key)
        if declared is None:
            raise InputError(f"selftests/{claim.name}.py", f"needs {key}, which is no fact")
        clause = clauses.clause(key, declared, bound)
        if (
            clauses.ask(
                clause,
                prepared.inventory,
                0 if key.startswith("gpu.") and prepared.inventory.devices else None,
            )
            is not Tri.YES
        ):
            here = prepared.inventory.known(key)
            name = key.removeprefix("pkg.")
            return f"needs {name} {bound}, here {here}" if here is not None else f"needs {name}, not here"
    return ""


def _ranks(
    claim: proof.Claim, wanted: Wanted, device: str, inventory: Inventory, machine: Host
) -> tuple[int, str]:
    """In how many processes a claim runs, and why it cannot if it cannot."""
    least, most = claim.ranks
    started = _started(machine)
    if started is not None:
        world = started["world"]
        return world, "" if least <= world <= most else f"runs in {least} to {most} ranks, there are {world}"
    asked = wanted.ranks or (2 if least > 1 else 1)
    ranks = min(max(asked, least), most)
    gpus = len(inventory.visible_devices())
    if device == "cuda" and ranks > gpus:
        return ranks, f"needs {ranks} GPUs, {gpus} to be seen"
    return ranks, ""


def _started(machine: Host) -> dict[str, int] | None:
    """The rank that torchrun or Slurm gave this process; None if it was started alone.

    Raises:
        InputError: a variable is no number, or Slurm says nothing of where rank 0 is.
    """
    for rank, world, local in (
        ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
        ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ):
        given = {name: machine.environ.get(name, "") for name in (rank, world, local)}
        if not given[rank] or not given[world] or given[world] == "1":
            continue
        try:
            numbers = {
                "rank": int(given[rank]),
                "world": int(given[world]),
                "local_rank": int(given[local] or 0),
            }
        except ValueError:
            raise InputError(
                rank, f"expected numbers in {', '.join(given)}, found {list(given.values())}"
            ) from None
        if not machine.environ.get("MASTER_ADDR"):
            raise InputError(
                "MASTER_ADDR", f"{rank} is set, so this is one of several ranks; name the host of rank 0"
            )
        return numbers
    return None


# --- running ----------------------------------------------------------------------------------------


def run(prepared: Prepared, wanted: Wanted, device: str, machine: Host) -> tuple[proof.Outcome, ...]:
    """Run what is asked for and fold it into outcomes, in the order of the claims."""
    chosen = _choose(prepared, wanted, device, machine)
    ended: dict[tuple[str, str], proof.Outcome] = {}
    with host.scratch() as folder:
        batches = list(_batches([each for each in chosen if not each.skipped], device))
        with _Children(machine, prepared, wanted, device, folder) as children:
            for batch, ranks in zip(batches, children.of(batches), strict=True):
                for each in batch:
                    outcome = proof.fold(each.claim, each.variant, ranks)
                    ended[each.claim.name, each.variant.name] = _known(outcome, prepared)
    return tuple(
        ended.get((each.claim.name, each.variant.name))
        or proof.Outcome(each.claim, each.variant, proof.SKIP, each.skipped, ranks=each.ranks, rule=each.rule)
        for each in chosen
    )


def _batches(chosen: Sequence[_Chosen], device: str) -> Iterator[list[_Chosen]]:
    """What runs in one set of processes: on a CPU all of one number of ranks, on CUDA one variant."""
    if device != "cpu":
        yield from ([each] for each in chosen)
        return
    for ranks in sorted({each.ranks for each in chosen}):
        yield [each for each in chosen if each.ranks == ranks]


class _Children:
    """The processes of a run; leaving the context kills those that are still there."""

    def __init__(self, machine: Host, prepared: Prepared, wanted: Wanted, device: str, folder: Path) -> None:
        self._machine, self._prepared, self._wanted = machine, prepared, wanted
        self._device, self._folder = device, folder
        self._running: list[Running] = []
        self._started = _started(machine)
        self._left = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._left = True
        for running in self._running:
            running.kill()

    def of(self, batches: Sequence[Sequence[_Chosen]]) -> Iterator[list[proof.Ended]]:
        """What each rank of each batch left behind, batch after batch; on CUDA some run side by side."""
        at_once = 1 if self._device == "cpu" else AT_ONCE
        ranks = 1 if self._started else max((each.ranks for batch in batches for each in batch), default=1)
        with ThreadPoolExecutor(at_once) as lanes, ThreadPoolExecutor(at_once * ranks) as pool:
            waiting = [lanes.submit(self._batch, number, batch, pool) for number, batch in enumerate(batches)]
            try:
                for each in waiting:
                    yield each.result()
            except BaseException:
                # Interrupted: the pool waits for its threads, and they for their processes.
                for each in waiting:
                    each.cancel()
                self.__exit__()
                raise

    def _batch(self, number: int, batch: Sequence[_Chosen], pool: ThreadPoolExecutor) -> list[proof.Ended]:
        folder = self._folder / str(number)
        folder.mkdir()
        ranks = [self._started["rank"]] if self._started else range(batch[0].ranks)
        futures: list[Future[proof.Ended]] = [pool.submit(self._rank, rank, batch, folder) for rank in ranks]
        return [each.result() for each in futures]

    def _rank(self, rank: int, batch: Sequence[_Chosen], folder: Path) -> proof.Ended:
        if self._left:
            return proof.Ended(None, "", "", {})
        order = self._order(rank, batch, folder)
        seconds = IMPORTS_S + sum(each.claim.seconds for each in batch)
        stage = host.package_folder("selftests") / "_stage.py"
        running = self._machine.start(
            [self._prepared.interpreter, "-X", "utf8", str(stage), json.dumps(order)],
            self._environ(order, folder),
        )
        self._running.append(running)
        ran = running.finish(seconds)
        self._running.remove(running)
        read = Host().read_text
        stacks = {
            name: read(folder / f"{name}.{rank}.stacks") or ""
            for name in (f"{each.claim.name}.{each.variant.name}" for each in batch)
        }
        said = ran.err.strip() or ran.out.strip()
        return proof.Ended(ran.code, said, read(order["journal"]) or "", stacks)

    def _order(self, rank: int, batch: Sequence[_Chosen], folder: Path) -> dict[str, Any]:
        tests = host.package_folder("selftests")
        by_claim: dict[str, dict[str, Any]] = {}
        for each in batch:
            claim = by_claim.setdefault(
                each.claim.name,
                {
                    "name": each.claim.name,
                    "test": str(tests / f"{each.claim.name}.py"),
                    "variants": [],
                    "imports": each.claim.imports if self._device == "cpu" else (),
                    "seconds": each.claim.seconds,
                },
            )
            claim["variants"].append(each.variant.name)
        started = self._started
        return {
            "claims": list(by_claim.values()),
            "device": self._device,
            "rank": rank,
            "world": batch[0].ranks,
            "local_rank": started["local_rank"] if started else rank,
            "parent": os.getpid(),
            "scratch": str(folder),
            "journal": str(folder / f"rank-{rank}.jsonl"),
            "rendezvous": "env" if started else "file",
        }

    def _environ(self, order: Mapping[str, Any], folder: Path) -> dict[str, str]:
        """The user's environment, and what keeps a test from a network, a cache or the other device."""
        environ = {**self._machine.environ, **_QUIET, **self._wanted.extra}
        environ.update(dict.fromkeys(_CACHES, str(folder)))
        if self._device == "cpu":
            environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
        if self._started is None:
            local, world = str(order["local_rank"]), str(order["world"])
            environ.update(
                RANK=str(order["rank"]), LOCAL_RANK=local, WORLD_SIZE=world, LOCAL_WORLD_SIZE=world
            )
            # Ranks of one machine speak over loopback: nothing listens to the outside.
            environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", GLOO_SOCKET_IFNAME="lo")
        return environ


_QUIET = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "DS_BUILD_OPS": "0",
}

_CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "HF_HOME")
"""Where libraries would write; they write into our scratch folder instead."""


# --- what is known of a failure ---------------------------------------------------------------------


def _known(outcome: proof.Outcome, prepared: Prepared) -> proof.Outcome:
    """The outcome with the rule that forbids this combination, if it failed and the judge knows one."""
    if outcome.result != proof.FAIL:
        return outcome
    judgement, read, settled = _forbidden(outcome.variant, prepared)
    if not judgement.findings:
        return outcome
    first = app.advised(judgement, read, settled, prepared.known, None).findings[0]
    return outcome._replace(rule=first.rule.id, ways_out=tuple(fix_text(fix) for fix in first.fixes))


def _forbidden(variant: proof.Variant, prepared: Prepared) -> tuple[Judgement, Inventory, Inventory]:
    """Error rules that forbid a variant's way of training here; the facts they were asked of, and derived."""
    train = [
        Fact(f"train.{key}", Known(value), f"self-test {variant.name}")
        for key, value in variant.train.items()
    ]
    read = prepared.inventory.with_facts(train)
    settled = derive.derive(read, prepared.known)
    errors = [rule for rule in prepared.known.rules if rule.severity is Severity.ERROR]
    judgement = judge.judge(settled, errors)
    broken = [each for each in judgement.findings if each.verdict is Verdict.BROKEN and _of_training(each)]
    return judgement._replace(findings=tuple(broken)), read, settled


def _of_training(finding: Finding) -> bool:
    return any(each.fact.key.startswith("train.") for each in finding.because)
