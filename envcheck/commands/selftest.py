"""The use case of `selftest`: run the self-tests in the target's interpreter and tell how they ended.

Every process has a deadline, is killed with all its children after it, and dies with us if we are killed.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, Self

from envcheck import __version__, probes
from envcheck.commands import examine
from envcheck.core.errors import ExamineError, InputError
from envcheck.core.facts import Fact, Inventory, Known, Tri, Vocabulary, package_key, package_name
from envcheck.core.findings import Finding, Judgement, Verdict
from envcheck.core.rules import Matrix, Severity, Target
from envcheck.host import machine as host
from envcheck.host.machine import Host, Running
from envcheck.knowledge import log_signatures
from envcheck.knowledge.rule_pages import nearest
from envcheck.probes.layout import find_interpreter
from envcheck.reports.phrases import fix_text
from envcheck.rules import clauses, derive, judge
from envcheck.selftest import outcome as selftest_outcome

IMPORTS_S = 180.0
"""What loading torch, DeepSpeed and transformers may take on a cold network disk, beside the tests."""

GRACE_S = 60.0
"""What a variant may take beyond its deadline: ending its processes, hearing from other machines."""

LATE_CODE, CUT_OFF_CODE = 124, 125
"""Exit codes of the stage, see `target_scripts/selftests/_worker.py`."""

LINGER_S = 2.0
"""A launcher ends all ranks when one ends with an error: rank 0 prints first."""

JOURNAL_LIMIT = 64 * 1024 * 1024

AT_ONCE = 8
"""Most variants that run side by side on CUDA, two cores each: they mostly import. Not measured."""


class SelftestOptions(NamedTuple):
    """Which self-tests: up to `level`, or those named in `only`; where, and in how many processes."""

    level: int = 1
    device: str | None = None
    ranks: int | None = None
    only: tuple[str, ...] = ()
    patience: float = 1.0  # times each test's own deadline


class TestEnvironment(NamedTuple):
    """An environment whose tests can be run: its interpreter, its facts, the knowledge."""

    subject: str
    interpreter: str
    inventory: Inventory
    known: Matrix
    words: Vocabulary
    target: Target | None


def selftest(
    question: examine.ExamineRequest, wanted: SelftestOptions, machine: Host
) -> selftest_outcome.SelftestReport:
    """Run the self-tests that are wanted.

    Raises:
        InputError: an option is wrong.
        ExamineError: there is no environment to test.
    """
    refuse_unknown(wanted)
    prepared = prepare(question, machine)
    device = chosen_device(wanted, prepared.inventory)
    outcomes = run(prepared, wanted, device, machine)
    started = _started(machine)
    shown = _device_shown(device, prepared.inventory)
    proved = selftest_outcome.SelftestReport(
        __version__, prepared.subject, shown, outcomes, rank=started.rank if started else 0
    )
    if proved.rank and proved.code:
        time.sleep(LINGER_S)
    return proved


def prepare(question: examine.ExamineRequest, machine: Host) -> TestEnvironment:
    """Find the environment and read its facts.

    Raises:
        InputError: no such environment or target.
        ExamineError: it cannot be examined, or holds no torch.
    """
    found = probes.every_probe()
    words = examine.vocabulary(found)
    known = examine.load_matrix(words, question.overlays)
    target = examine.find_target(question.target, known)
    # The target's training facts select variants; those of the environment must stay free of them.
    subject, read, _ = examine.take_inventory(
        question._replace(target=None, train=()), machine, found, known, words
    )
    path, _ = examine.which_environment(question.python, machine)
    interpreter = find_interpreter(machine, os.path.abspath(path))  # noqa: PTH100 - links tell a venv from its base
    if read.known("pkg.torch") is None:
        raise ExamineError(f"{subject}: no torch in this environment: nothing to test there")
    return TestEnvironment(subject, interpreter, read, known, words, target)


def claims() -> tuple[selftest_outcome.SelftestDeclaration, ...]:
    """Every self-test of the folder, by level."""
    texts = host.folder_texts(host.package_folder("target_scripts/selftests"), ".py")
    stage = texts.pop("_worker.py")
    read = [
        selftest_outcome.read_claim(name.removesuffix(".py"), text, stage) for name, text in texts.items()
    ]
    # What is imported stays: a test that imports less comes first, and sees a process without the rest.
    return tuple(sorted(read, key=lambda claim: (claim.level, len(claim.imports), claim.name)))


# --- where ------------------------------------------------------------------------------------------


def chosen_device(wanted: SelftestOptions, inventory: Inventory) -> str:
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
    claim: selftest_outcome.SelftestDeclaration
    variant: selftest_outcome.SelftestVariant
    ranks: int
    skipped: str
    rule: str = ""  # that forbids it whatever the versions are


def _choose(prepared: TestEnvironment, wanted: SelftestOptions, device: str, machine: Host) -> list[_Chosen]:
    """Every variant that is asked for, with the reason if it cannot be run here."""
    known = [_timed(claim, wanted, machine) for claim in claims()]
    chosen = [
        _Chosen(claim, variant, ranks, _missing(claim, variant, prepared, device) or why)
        for claim in known
        for variant in claim.variants
        if _asked(claim, variant, wanted, prepared.target)
        for ranks, why in [_ranks(variant.ranks or claim.ranks, wanted, device, prepared.inventory, machine)]
    ]
    if wanted.only or prepared.target is not None:
        return chosen
    return [each if each.skipped else _limited(each, prepared) for each in chosen]


def _limited(chosen: _Chosen, prepared: TestEnvironment) -> _Chosen:
    """The same, skipped if a rule forbids this way of training whatever the versions are.

    To run it would fail every environment for what none can mend; who trains that way names a target or
    the variant. Where another version is a way out, the environment is at fault, and the test runs.
    """
    judgement, _, _ = _forbidden(chosen.variant, prepared)
    for finding in filter(_of_training, judgement.findings):
        keys = {key for fix in finding.rule.fixes for key, _ in fix.set}
        if keys and not any(key.startswith("pkg.") for key in keys):
            why = f"fails with every version (rule {finding.rule.id}); --only {chosen.variant.name} runs it"
            return chosen._replace(skipped=why, rule=finding.rule.id)
    return chosen


def refuse_unknown(wanted: SelftestOptions) -> None:
    """Raise InputError if `only` names a test or variant that is none."""
    known = claims()
    names = [*(claim.name for claim in known), *(each.name for claim in known for each in claim.variants)]
    for name in wanted.only:
        if name not in names:
            raise InputError("--only", f"no self-test is called {name!r}{nearest(name, names)}")


def _timed(
    claim: selftest_outcome.SelftestDeclaration, wanted: SelftestOptions, machine: Host
) -> selftest_outcome.SelftestDeclaration:
    """The claim with its deadline: ENVCHECK_SELFTEST_SECONDS gives every variant another, if it is set."""
    seconds = claim.seconds
    if machine.environ.get("ENVCHECK_SELFTEST_SECONDS"):
        seconds = float(max(3, _number(machine.environ, "ENVCHECK_SELFTEST_SECONDS")))
    return claim._replace(seconds=seconds * wanted.patience)


def _asked(
    claim: selftest_outcome.SelftestDeclaration,
    variant: selftest_outcome.SelftestVariant,
    wanted: SelftestOptions,
    target: Target | None,
) -> bool:
    if variant.name in wanted.only:
        return True  # named itself: also what the target is not about
    if wanted.only and claim.name not in wanted.only:
        return False
    if target is not None and selftest_outcome.contradicts(variant, _settled(target), target.free):
        return False
    return bool(wanted.only) or claim.level <= wanted.level


def _settled(target: Target) -> Mapping[str, Any]:
    """A target's training facts, with what its zero stage says of how the model is spread."""
    train = dict(target.train)
    if train.get("train.zero_stage"):
        train.setdefault("train.parallel", "deepspeed")
    for key, value in (("dora", False), ("offload_optimizer", "none"), ("offload_param", "none")):
        train.setdefault(f"train.{key}", value)
    return train


def _missing(
    claim: selftest_outcome.SelftestDeclaration,
    variant: selftest_outcome.SelftestVariant,
    prepared: TestEnvironment,
    device: str,
) -> str:
    """What the environment lacks for this variant; empty if nothing."""
    needs = {**claim.needs, **variant.needs}
    gone = [
        package_name(key)
        for key, bound in needs.items()
        if key.startswith("pkg.") and bound == "present" and prepared.inventory.known(key) is None
    ]
    if gone:
        # An extension's variant bears the name of its package: those are told in one line.
        return "not installed" if gone == [variant.name] else f"needs {', '.join(gone)}, not installed"
    if device not in variant.devices:
        return "needs a GPU" if device == "cpu" else "is for a CPU"
    for key, bound in needs.items():
        declared = prepared.words.get(key)
        if declared is None:
            raise InputError(f"target_scripts/selftests/{claim.name}.py", f"needs {key}, which is no fact")
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
            name = package_name(key)
            return f"needs {name} {bound}, here {here}" if here is not None else f"needs {name}, not here"
    return ""


def _ranks(
    bounds: tuple[int, int], wanted: SelftestOptions, device: str, inventory: Inventory, machine: Host
) -> tuple[int, str]:
    """In how many processes a variant runs, and why it cannot if it cannot."""
    least, most = bounds
    started = _started(machine)
    if started is not None:
        world = started.world
        if wanted.ranks not in (None, world):
            raise InputError("--ranks", f"this is one of {world} ranks already started; leave it out")
        return world, "" if least <= world <= most else f"runs in {least} to {most} ranks, there are {world}"
    asked = wanted.ranks or (2 if least > 1 else 1)
    ranks = min(max(asked, least), most)
    gpus = len(inventory.visible_devices())
    if device == "cuda" and ranks > gpus:
        return ranks, f"needs {ranks} GPUs, {gpus} to be seen"
    return ranks, ""


class _Started(NamedTuple):
    """Which of several ranks this process is, and where they meet."""

    rank: int
    world: int
    local_rank: int
    address: str
    port: int


def _started(machine: Host) -> _Started | None:
    """The rank that torchrun or Slurm gave this process; None if it was started alone.

    Raises:
        InputError: a variable is no number, or nothing says where rank 0 is.
    """
    given = machine.environ
    for rank, world, local in (
        ("RANK", "WORLD_SIZE", "LOCAL_RANK"),
        ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"),
        ("SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ):
        # A batch script has SLURM_PROCID and SLURM_NTASKS too, and is no rank: only srun starts ranks.
        if world == "SLURM_NTASKS" and given.get("SLURM_JOB_ID"):
            continue
        if not given.get(rank) or given.get(world, "1") in ("", "1"):
            continue
        numbers = [_number(given, name) for name in (rank, world)]
        if numbers[0] >= numbers[1]:
            raise InputError(rank, f"expected less than {world}={numbers[1]}, found {numbers[0]}")
        alone = given.get("SLURM_STEP_NUM_NODES" if rank != "RANK" else "") == "1"
        address = given.get("MASTER_ADDR") or ("127.0.0.1" if alone else "")
        if not address or not (given.get("MASTER_PORT") or alone):
            missing = "MASTER_PORT" if address else "MASTER_ADDR"
            raise InputError(
                missing, f"{rank} is set, so this is one of several ranks; say where rank 0 is reached"
            )
        port = _number(given, "MASTER_PORT") if given.get("MASTER_PORT") else _slurm_port(given)
        return _Started(
            numbers[0], numbers[1], _number(given, local) if given.get(local) else 0, address, port
        )
    return None


def _slurm_port(given: Mapping[str, str]) -> int:
    """A port that ranks of one job step agree on without a word: 20000 to 39999, by the job's number."""
    return 20000 + int("".join(filter(str.isdecimal, given.get("SLURM_JOB_ID", ""))) or 0) % 20000


def _number(given: Mapping[str, str], name: str) -> int:
    text = given.get(name, "")
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):  # noqa: PLR2004 - more are no rank or port
        raise InputError(name, f"expected a number, found {text!r}")
    return int(text)


# --- running ----------------------------------------------------------------------------------------


def run(
    prepared: TestEnvironment, wanted: SelftestOptions, device: str, machine: Host
) -> tuple[selftest_outcome.Outcome, ...]:
    """Run what is asked for and fold it into outcomes, in the order of the claims."""
    chosen = _choose(prepared, wanted, device, machine)
    ended: dict[tuple[str, str], selftest_outcome.Outcome] = {}
    with host.signals_raise(), host.scratch() as folder:
        batches = _batches(chosen, device, _started(machine))
        with _Children(machine, prepared, wanted, device, folder) as children:
            for batch, ranks in children.of(batches):
                for each in batch.chosen:
                    outcome = selftest_outcome.fold(each.claim, each.variant, ranks)
                    ended[each.claim.name, each.variant.name] = _known(outcome, prepared)
    return tuple(
        ended.get((each.claim.name, each.variant.name))
        or selftest_outcome.Outcome(
            each.claim, each.variant, selftest_outcome.SKIP, each.skipped, ranks=each.ranks, rule=each.rule
        )
        for each in chosen
    )


class _Batch(NamedTuple):
    """What runs in one stage, and so in the same number of ranks."""

    number: int
    chosen: tuple[_Chosen, ...]
    ranks: int


def _batches(chosen: Sequence[_Chosen], device: str, started: _Started | None) -> list[_Batch]:
    """What can be forked off one import runs in one stage for each number of ranks, else each variant alone.

    Ranks that others started meet in one stage each, with the variants that cannot run here: the other
    ranks wait for an answer.
    """
    if started is not None:
        groups = [[each for each in chosen if each.ranks == started.world]]
    else:
        here = [each for each in chosen if not each.skipped]
        forked = [each for each in here if _forks(each.claim, device)]
        groups = [
            [each for each in forked if each.ranks == ranks]
            for ranks in sorted({each.ranks for each in forked})
        ]
        groups += [[each] for each in here if not _forks(each.claim, device)]
    return [_Batch(number, tuple(each), each[0].ranks) for number, each in enumerate(groups) if each]


def _forks(claim: selftest_outcome.SelftestDeclaration, device: str) -> bool:
    """Whether a fork can use what was imported: a CUDA context it cannot, and importing torch makes none."""
    return device == "cpu" or claim.imports == ("torch",)


def _gpus(inventory: Inventory) -> int | None:
    """How many GPUs a program sees, where that is known of each of them: of MIG devices it is not."""
    each = range(len(inventory.devices))
    sure = all(
        inventory.known("gpu.visible", index) is not None and inventory.known("gpu.mig", index) is False
        for index in each
    )
    return len(inventory.visible_devices()) if sure and inventory.devices else None


class _Patience:
    """Seconds that count while this process runs: after a stop and a continue nothing is late for it."""

    def __init__(self, seconds: float) -> None:
        self._left, self._seen = seconds, time.monotonic()

    def over(self) -> bool:
        """Whether they are gone; to be asked several times a second."""
        now = time.monotonic()
        self._left -= min(now - self._seen, 1.0)
        self._seen = now
        return self._left <= 0


class _Children:
    """The processes of a run; leaving the context ends those that are still there."""

    def __init__(
        self, machine: Host, prepared: TestEnvironment, wanted: SelftestOptions, device: str, folder: Path
    ) -> None:
        self._machine, self._prepared, self._wanted = machine, prepared, wanted
        self._device, self._folder = device, folder
        self._running: list[tuple[_Batch, Running, _Patience]] = []
        self._started = _started(machine)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._running:
            each[1].end()

    def of(self, batches: Sequence[_Batch]) -> Iterator[tuple[_Batch, list[selftest_outcome.ProcessEnd]]]:
        """Each batch with what its ranks left behind, as they end; on CUDA some run side by side."""
        waiting = list(batches)[::-1]
        while waiting or self._running:
            while waiting and self._room(waiting[-1]):
                self._begin(waiting.pop())
            for each in list(self._running):
                batch, running, patience = each
                ended = running.ended()
                if ended or patience.over():
                    running.end()
                    ran = running.finish(1.0)
                    self._running.remove(each)
                    yield batch, self._left_behind(batch, ran if ended else ran._replace(code=None))
            time.sleep(0.01)

    def _room(self, batch: _Batch) -> bool:
        """Whether a batch may begin now; one of several ranks has the machine to itself."""
        alone = max(batch.ranks, *(other.ranks for other, _, _ in self._running), 0) > 1
        cores = self._prepared.inventory.known("host.cpu_count")
        lanes = min(AT_ONCE, max(1, cores // 2)) if isinstance(cores, int) else 1
        return len(self._running) < (1 if alone or self._device == "cpu" else lanes)

    def _begin(self, batch: _Batch) -> None:
        folder = self._folder / str(batch.number)
        folder.mkdir()
        order = self._order(batch, folder)
        stage = host.package_folder("target_scripts/selftests") / "_worker.py"
        running = self._machine.start(
            [self._prepared.interpreter, "-X", "utf8", str(stage), json.dumps(order)],
            self._environ(order, folder),
        )
        # The stage keeps the deadlines of tests and imports; this one is for a stage that lost its way.
        claims = len({each.claim.name for each in batch.chosen})
        waits = IMPORTS_S * self._wanted.patience * (claims + 1) * (2 if self._started else 1)
        tests = sum(each.claim.seconds + GRACE_S for each in batch.chosen)
        self._running.append((batch, running, _Patience(waits + tests)))

    def _left_behind(self, batch: _Batch, ran: host.FinishedProcess) -> list[selftest_outcome.ProcessEnd]:
        said = ran.err.strip()
        if ran.code == CUT_OFF_CODE and self._started:
            rank, world, _, address, port = self._started
            why = said.splitlines()[-1] if said else "no answer"
            raise ExamineError(f"rank {rank} of {world} lost the others (rank 0 is {address}:{port}): {why}")
        code = None if ran.code == LATE_CODE else ran.code
        folder, read = self._folder / str(batch.number), Host().read_text
        names = [f"{each.claim.name}.{each.variant.name}" for each in batch.chosen]
        return [
            selftest_outcome.ProcessEnd(
                code,
                said,
                read(folder / f"rank-{rank}.jsonl", JOURNAL_LIMIT) or "",
                {name: read(folder / f"{name}.{rank}.stacks") or "" for name in names},
            )
            for rank in range(batch.ranks)
        ]

    def _order(self, batch: _Batch, folder: Path) -> dict[str, Any]:
        tests = host.package_folder("target_scripts/selftests")
        by_claim: dict[str, dict[str, Any]] = {}
        for each in batch.chosen:
            claim = by_claim.setdefault(
                each.claim.name,
                {
                    "name": each.claim.name,
                    "test": str(tests / f"{each.claim.name}.py"),
                    "variants": [],
                    "imports": [],
                    "seconds": each.claim.seconds,
                    "skipped": {},
                },
            )
            claim["variants"].append(each.variant.name)
            if each.skipped:
                claim["skipped"][each.variant.name] = each.skipped
            else:
                claim["imports"] = self._imports(each.claim)
        started = self._started
        own = (
            [(started.rank, started.local_rank)] if started else [(each, each) for each in range(batch.ranks)]
        )
        return {
            "claims": list(by_claim.values()),
            "device": self._device,
            "world": batch.ranks,
            "ranks": [
                {"rank": rank, "local_rank": local, "journal": str(folder / f"rank-{rank}.jsonl")}
                for rank, local in own
            ],
            "parent": os.getpid(),
            "scratch": str(folder),
            "folder": str(self._folder),
            "imports_seconds": IMPORTS_S * self._wanted.patience,
            "rendezvous": "env" if started else "file",
            "gpus": _gpus(self._prepared.inventory),
        }

    def _imports(self, claim: selftest_outcome.SelftestDeclaration) -> list[str]:
        """What is loaded once for all variants: on a CPU, what of it is installed."""
        here = self._prepared.inventory.known
        installed = [each for each in claim.imports if here(package_key(each.partition(".")[0])) is not None]
        return installed if _forks(claim, self._device) else []

    def _environ(self, order: Mapping[str, Any], folder: Path) -> dict[str, str]:
        """The user's environment, and what keeps a test from a network, a cache or the other device."""
        environ = {**self._machine.environ, **_QUIET}
        environ.update(dict.fromkeys(_CACHES, str(folder)))
        if self._device == "cpu":
            environ.update(DS_ACCELERATOR="cpu", CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1")
        world = str(order["world"])
        if self._started is None:
            environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE=world, LOCAL_WORLD_SIZE=world)
            # Ranks of one machine speak over loopback: nothing listens to the outside.
            environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="0", GLOO_SOCKET_IFNAME="lo")
        else:
            rank, _, local, address, port = self._started
            environ.update(RANK=str(rank), LOCAL_RANK=str(local), WORLD_SIZE=world)
            environ.update(MASTER_ADDR=address, MASTER_PORT=str(port))
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
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # older torch starts its workers when inductor is imported
}

_CACHES = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_EXTENSIONS_DIR", "HF_HOME")
"""Where libraries would write; they write into our scratch folder instead."""


# --- what is known of a failure ---------------------------------------------------------------------


def _known(outcome: selftest_outcome.Outcome, prepared: TestEnvironment) -> selftest_outcome.Outcome:
    """The outcome with the rule that explains it: one that forbids this, and whose cases hold these words.

    A rule that forbids the combination but fails in other words is named as no more than that.
    """
    if outcome.result != selftest_outcome.FAIL:
        return outcome
    judgement, read, settled = _forbidden(outcome.variant, prepared)
    said = f"{outcome.why}\n{outcome.trace}"
    meant = [each for each in judgement.findings if _speaks(each.rule.id, said)]
    found = meant or [each for each in judgement.findings if _of_training(each)]
    if not found:
        return outcome
    judgement = judgement._replace(findings=tuple(found))
    first = examine.advised(judgement, read, settled, prepared.known, None).findings[0]
    ways = tuple(fix_text(fix) for fix in first.fixes)
    return outcome._replace(rule=first.rule.id, sure=bool(meant), ways_out=ways)


@cache
def _signatures() -> Mapping[str, Sequence[log_signatures.Signature]]:
    """What the cases of each rule say in a traceback."""
    found: dict[str, list[log_signatures.Signature]] = {}
    for each in log_signatures.compiled(examine.source_tree()["case"]):
        found.setdefault(each.rule, []).append(each)
    return found


def _speaks(rule_id: str, said: str) -> bool:
    return log_signatures.speaks(_signatures().get(rule_id, ()), said)


def _forbidden(
    variant: selftest_outcome.SelftestVariant, prepared: TestEnvironment
) -> tuple[Judgement, Inventory, Inventory]:
    """Error rules that forbid a variant's way of training here; the facts they were asked of, and derived."""
    train = [
        Fact(f"train.{key}", Known(value), f"self-test {variant.name}")
        for key, value in variant.train.items()
    ]
    read = prepared.inventory.with_facts(train)
    settled = derive.derive(read, prepared.known)
    errors = [rule for rule in prepared.known.rules if rule.severity is Severity.ERROR]
    judgement = judge.judge(settled, errors)
    broken = [each for each in judgement.findings if each.verdict is Verdict.BROKEN]
    return judgement._replace(findings=tuple(broken)), read, settled


def _of_training(finding: Finding) -> bool:
    return any(each.fact.key.startswith("train.") for each in finding.evidence)
