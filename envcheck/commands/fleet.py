"""`fleet`: the facts of many nodes, from files, from the ranks of a job or over Ray, and the report on them.

Whoever gathers never waits without end: a node that does not report is named as missing.
"""

from __future__ import annotations

import importlib
import io
import json
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from envcheck import __version__, probes
from envcheck.commands import examine
from envcheck.core.errors import EnvcheckError, ExamineError, InputError
from envcheck.core.facts import Inventory, Vocabulary
from envcheck.core.findings import UNREADABLE, Diagnostic
from envcheck.core.rules import Matrix, Severity, Target
from envcheck.core.sanitize import presented
from envcheck.fleet import collect, comparisons, hostlist, launchers, summary
from envcheck.fleet.records import LARGEST_RECORD, LONGEST_NAME, NAME_KEY, NodeRecord, RefusedRecord
from envcheck.host import machine as host
from envcheck.host.machine import Host, Running
from envcheck.probes.layout import find_interpreter


class FleetOptions(NamedTuple):
    """What `fleet` is asked beside doctor's question; the first three say where the facts come from."""

    source: str | None = None
    via: str | None = None
    ray: str | None = None
    job: str = ""
    expect: str = ""
    wait_s: float = 120.0
    may_differ: tuple[str, ...] = ()
    fail_on: Severity = Severity.ERROR


class _NodeJudge(NamedTuple):
    """What judges one machine after the other."""

    question: examine.ExamineRequest
    known: Matrix
    words: Vocabulary
    rows: tuple[comparisons.Comparison, ...]
    target: Target | None
    remarks: tuple[Diagnostic, ...]

    def opened(self) -> collect.Fleet:
        """A fleet without a node."""
        return collect.Fleet(self.words, self.known, self.rows, self._complete, self._examine)

    def _complete(self, inventory: Inventory) -> Inventory:
        return examine.completed(inventory, self.question, self.known)[0]

    def _examine(self, where: str, inventory: Inventory) -> collect.Judged:
        report = examine.considered(where, inventory, self.known, self.target)
        return collect.Judged(report.judgement, report.nothing_to_judge)

    def closed(self, taken: collect.Fleet, setting: summary.FleetContext) -> summary.FleetReport:
        """The report."""
        return summary.summarize(taken, self.rows, self.known, __version__, setting)


def _court(question: examine.ExamineRequest, wanted: FleetOptions) -> _NodeJudge:
    words = examine.vocabulary(probes.every_probe())
    known = examine.load_matrix(words, question.overlays)
    target = examine.find_target(question.target, known)
    # Read once for all nodes, so that a wrong file is said before anybody waits.
    _, remarks = examine.completed(Inventory(), question, known)
    for remark in remarks:
        if remark.code == UNREADABLE:
            raise InputError(remark.places[0], remark.text)
    return _NodeJudge(
        question, known, words, comparisons.read_comparisons(_rows(), wanted.may_differ), target, remarks
    )


def _rows() -> list[dict[str, Any]]:
    """The rows of compat/tables/fleet, which judging does without."""
    shipped = host.shipped_text("compat/tables/fleet.json")
    if shipped is not None:
        compiled: list[dict[str, Any]] = json.loads(shipped)["alike"]
        return compiled
    import tomllib

    texts = host.source_texts("compat/tables", ".toml", "fleet")
    rows: list[dict[str, Any]] = tomllib.loads(texts["fleet.toml"])["alike"]
    return rows


def _expected(said: str) -> tuple[str, ...] | int | None:
    """What `--expect` says: a number of nodes, or their names.

    Raises:
        InputError: it is neither.
    """
    if not said:
        return None
    if said.isascii() and said.isdecimal() and len(said) <= 9:  # noqa: PLR2004 - more is no number of nodes
        return int(said)
    try:
        return tuple(dict.fromkeys(hostlist.unfold(said)))
    except ValueError as error:
        raise InputError(f"--expect {said}", f"no number and no list of nodes: {error}") from None


# --- files ------------------------------------------------------------------------------------------


def of_files(question: examine.ExamineRequest, wanted: FleetOptions) -> summary.FleetReport:
    """The report on a file, a folder or standard input (`-`).

    Raises:
        InputError: there is no such file, or an option is wrong.
    """
    expected = _expected(wanted.expect)
    court = _court(question, wanted)
    taken = court.opened()
    assert wanted.source is not None  # noqa: S101 - the caller looked
    for each in read(wanted.source):
        if isinstance(each, NodeRecord):
            taken.take(each)
        else:
            taken.refused.append(each)
    return court.closed(
        taken, summary.FleetContext(expected=expected, diagnostics=court.remarks, fail_on=wanted.fail_on)
    )


def read(source: str) -> Iterator[NodeRecord | RefusedRecord]:
    """The records of a file, of every JSON and TOML file of a folder, or of standard input (`-`).

    Raises:
        InputError: there is no such file or folder.
    """
    if source == "-":
        yield from _split(host.standard_input(), "-", "-")
    elif Path(source).is_dir():
        for name in host.names(Path(source)):
            path = Path(source) / name
            if path.suffix in (".json", ".jsonl", ".toml") and not name.startswith("."):
                yield from _of_file(path)
    elif source.endswith(".toml"):
        yield from _of_file(Path(source))
    else:
        yield from _split(host.chunks(source), source, source)


def _of_file(path: Path) -> Iterator[NodeRecord | RefusedRecord]:
    try:
        if path.suffix == ".jsonl":
            yield from _split(host.chunks(str(path)), str(path), path.stem)
            return
        text = host.read_file(path, LARGEST_RECORD)
    except InputError as error:
        yield RefusedRecord(error.where, error.problem, path.stem)
        return
    if path.suffix == ".toml":
        yield NodeRecord(str(path), text.decode("utf-8", "replace"), path.stem)
    else:
        yield from _split(iter([text]), str(path), path.stem)


def _split(chunks: Iterable[bytes], file: str, name: str) -> Iterator[NodeRecord | RefusedRecord]:
    """One record a line; or what `envcheck facts` prints, from a line `{` to a line `}`."""
    first = True
    for number, text in _records(_lines(chunks)):
        where = f"{file}:{number}"
        if text is None:
            yield RefusedRecord(where, f"longer than {LARGEST_RECORD} bytes")
        else:
            yield NodeRecord(
                where, text.decode("utf-8", "replace"), name if first and name != file else where
            )
        first = False


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes | None]:
    """The lines of a stream; None for one that is longer than any record may be."""
    kept, long = b"", False
    for chunk in chunks:
        *whole, rest = (kept + chunk).split(b"\n")
        for line in whole:
            yield None if long or len(line) > LARGEST_RECORD else line
            long = False
        kept, long = (b"", True) if long or len(rest) > LARGEST_RECORD else (rest, False)
    if kept or long:
        yield None if long else kept


def _records(lines: Iterable[bytes | None]) -> Iterator[tuple[int, bytes | None]]:
    """Each record with the number of its first line."""
    open_at, held, size = 0, list[bytes](), 0
    for number, line in enumerate(lines, 1):
        if open_at and (line is None or line.rstrip() == b"{"):
            yield open_at, b"\n".join(held)  # that one was cut off
            open_at = 0
        if line is not None and line.rstrip() == b"{":
            open_at, held, size = number, [line], 0
        elif open_at and line is not None:
            size += len(line) + 1
            if size <= LARGEST_RECORD:
                held.append(line)
            if line.rstrip() == b"}":
                yield open_at, b"\n".join(held) if size <= LARGEST_RECORD else None
                open_at = 0
        elif line is None or line.strip():
            yield number, line
    if open_at:
        yield open_at, b"\n".join(held)


# --- this node --------------------------------------------------------------------------------------


def own_facts(question: examine.ExamineRequest, machine: Host, name: str) -> dict[str, Any]:
    """The facts file of this node with its name, which nothing else of envcheck tells.

    Raises:
        EnvcheckError: as `app.inventory_report`.
    """
    tree = examine.inventory_report(question, machine)
    private = host.private()._replace(machines=())  # naming nodes is what this is for
    named: dict[str, Any] = presented(
        {**tree, "host": {NAME_KEY.partition(".")[2]: name, **tree.get("host", {})}}, private
    )
    return named


class Gathered(NamedTuple):
    """What a process says: the report, which rank 0 shows for all, and the exit code, which all share."""

    report: summary.FleetReport | None
    code: int


def gathered(question: examine.ExamineRequest, wanted: FleetOptions, machine: Host) -> Gathered:
    """The report on files, on a Ray cluster, or on the ranks of which a launcher made this process one.

    Raises:
        InputError: an option is wrong, or nothing says where the facts shall come from.
        ExamineError: ranks cannot meet, or Ray cannot be reached.
    """
    given = [
        name for name, said in (("FILE", wanted.source), ("--ray", wanted.ray), ("--via", wanted.via)) if said
    ]
    if len(given) > 1:
        raise InputError(given[1], f"contradicts {given[0]}")
    if wanted.source:
        report = of_files(question, wanted)
        return Gathered(report, report.code)
    if wanted.ray:
        report = of_ray(question, wanted)
        return Gathered(report, report.code)
    started = launchers.started(machine.environ)
    if started is None:
        raise InputError(
            "fleet", "name a file, a folder or -, or start it with torchrun, srun, mpirun or --ray"
        )
    with host.signals_raise():
        return _of_ranks(question, wanted, machine, started)


# --- ranks ------------------------------------------------------------------------------------------

POLL_S, SLOWEST_POLL_S = 0.05, 1.0
"""How often a rank looks, at first and in the end: a thousand of them share one folder."""

JUDGING_S = 60.0
"""What rank 0 may take after its deadline: judging, printing, a slow shared folder."""

LINGER_S = 2.0
"""A launcher ends all ranks when one ends with an error: rank 0 prints first."""


class _Board:
    """Where ranks post texts by name and read those of others: two folders, or one that all share."""

    def __init__(self, out: Path, came: Path, prefix: str = "", suffix: str = "") -> None:
        self._out, self._in = out, came
        self._prefix, self._suffix = prefix, suffix

    def post(self, name: str, text: str) -> None:
        """Put up a text, in the place of an earlier one of that name."""
        host.replace_file(self._out / f"{self._prefix}{name}{self._suffix}", text)

    def read(self, names: Iterable[str]) -> dict[str, str]:
        """The texts that are there, of these names."""
        there = set(host.names(self._in))
        found = {}
        for name in names:
            file = f"{self._prefix}{name}{self._suffix}"
            if file in there:
                try:
                    found[name] = host.read_file(self._in / file, 2 * LARGEST_RECORD).decode(
                        "utf-8", "replace"
                    )
                except InputError:
                    continue  # being replaced, or not what a rank wrote: it is as if it were not there
        return found

    def ours(self, name: str, text: str) -> bool:
        """Whether a text still stands there as this process posted it, and no other has taken its place."""
        return self.read([name]).get(name) == text

    def leave(self, rank: int, others: Iterable[int]) -> None:
        """Say that this rank needs nothing more; rank 0 waits for the others if they need it."""


class _Store(_Board):
    """The same over torch's store, which a child process keeps in touch with."""

    def __init__(self, folder: Path, running: Running, where: str) -> None:
        super().__init__(folder / "out", folder / "in")
        self._folder, self._running, self._where = folder, running, where
        self._wanted: set[str] = set()

    def read(self, names: Iterable[str]) -> dict[str, str]:
        wanted = list(names)
        if not self._wanted.issuperset(wanted):
            self._wanted.update(wanted)
            host.replace_file(self._folder / "want", json.dumps(sorted(self._wanted)))
        failed = self._folder / "failed"
        if self._running.ended() or host.is_file(failed):
            ran = self._running.finish(1.0)
            said = host.read_file(failed).decode("utf-8", "replace") if host.is_file(failed) else ran.err
            raise ExamineError(f"{self._where}: ranks cannot meet there: {_last_line(said)}")
        return super().read(wanted)

    def ours(self, name: str, text: str) -> bool:
        del name, text  # a store is one job's
        return True

    def leave(self, rank: int, others: Iterable[int]) -> None:
        """As above; the child ends with it."""
        if rank:
            self.post(f"left-{rank}", "")
        host.replace_file(self._folder / "stop", json.dumps([f"left-{each}" for each in others]))
        self._running.finish(LEAVING_S)


LEAVING_S = 15.0
"""How long rank 0 waits for the others to have read the verdict, where it hosts the store."""


def _pauses() -> Iterator[None]:
    """Wait a little, each time a little longer."""
    pause = POLL_S
    while True:
        yield
        time.sleep(pause)
        pause = min(1.2 * pause, SLOWEST_POLL_S)


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "nothing was said"


@contextmanager
def _board(
    question: examine.ExamineRequest, wanted: FleetOptions, machine: Host, started: launchers.Started
) -> Iterator[_Board]:
    """Where the ranks meet.

    Raises:
        InputError: nothing says where.
        ExamineError: there is no torch to meet by.
    """
    if wanted.via:
        job = wanted.job or started.job or "job"
        yield _Board(Path(wanted.via), Path(wanted.via), f"{_PREFIX}{_word(job)}.", ".json")
        return
    if not started.address or not started.port:
        raise InputError(
            started.launcher,
            f"rank {started.rank} of {started.world}: name a folder that all ranks share (--via FOLDER), "
            "or say where rank 0 is reached (MASTER_ADDR, MASTER_PORT)",
        )
    path, named_by = examine.which_environment(question.python, machine)
    interpreter = find_interpreter(machine, os.path.abspath(path))  # noqa: PTH100 - links tell a venv from its base
    with host.scratch() as folder:
        for name in ("out", "in"):
            host.touch(folder / name)
        order = {
            "address": started.address,
            "port": started.port,
            "rank": started.rank,
            # torchrun's agent hosts a store there already.
            "hosting": started.rank == 0 and machine.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True",
            "restarts": machine.environ.get("TORCHELASTIC_RESTART_COUNT", "0"),
            "seconds": wanted.wait_s,
        }
        host.write_file(folder / "order.json", json.dumps(order))
        script = host.package_folder("target_scripts") / "c10d.py"
        running = machine.start([interpreter, "-X", "utf8", str(script), str(folder)])
        where = f"{started.address}:{started.port}, by the torch of {path} ({named_by})"
        try:
            yield _Store(folder, running, where)
        finally:
            running.end()


_PREFIX = "fleet."


def _word(job: str) -> str:
    """A job's name as a file's name may hold it, without a dot."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in job)[:100]


class _Words(NamedTuple):
    """What a rank posts: which call it answers, its own mark, and its node's facts or why there are none."""

    call: str
    mark: str
    rank: int
    node: str
    facts: str = ""
    trouble: str = ""


def _of_ranks(
    question: examine.ExamineRequest, wanted: FleetOptions, machine: Host, started: launchers.Started
) -> Gathered:
    expected = _expected(wanted.expect)
    court = _court(question, wanted)  # of every rank: what is wrong with an option all of them say
    with _alone() if started.world == 1 else _board(question, wanted, machine, started) as board:
        own = _own(question, machine, started)
        if started.rank:
            return _answer(board, own, wanted)
        return _call(board, own, wanted, court, started, expected)


@contextmanager
def _alone() -> Iterator[_Board]:
    with host.scratch() as folder:
        yield _Board(folder, folder)


def _own(question: examine.ExamineRequest, machine: Host, started: launchers.Started) -> _Words:
    """The words of this rank: one rank a node reads the facts."""
    node = started.node or host.node_name()
    facts = trouble = ""
    if started.local in (0, None):
        try:
            facts = json.dumps(own_facts(question._replace(train=(), target=None), machine, node))
        except EnvcheckError as error:
            trouble = presented(str(error), host.private()._replace(machines=()))
    return _Words("", host.mark(), started.rank, node, facts, trouble)


def _call(
    board: _Board,
    own: _Words,
    wanted: FleetOptions,
    court: _NodeJudge,
    started: launchers.Started,
    expected: tuple[str, ...] | int | None,
) -> Gathered:
    """Rank 0: call the others, wait for them, judge, and tell them."""
    stale = _stale(wanted, started)
    call = host.mark()
    calling = json.dumps({"call": call, "world": started.world})
    board.post("call", calling)
    heard = {0: own}
    until = time.monotonic() + wanted.wait_s
    for _ in _pauses():
        heard.update(_heard(board, call, set(range(started.world)) - heard.keys()))
        if len(heard) == started.world or time.monotonic() > until:
            break
    if not board.ours("call", calling):
        raise ExamineError("another rank 0 calls in the same place: give each job a name of its own (--job)")
    taken, missing = court.opened(), _absent(heard, wanted, started)
    for name, words in _by_node(heard).items():
        if words.facts:
            taken.take(NodeRecord(f"rank {words.rank}", words.facts, name), name)
        elif words.trouble:
            missing.append(summary.Missing(name, words.trouble))
    if expected is None and started.nodes:
        expected = len(started.nodes)
    setting = summary.FleetContext(
        expected=expected,
        missing=tuple(missing),
        stale=stale,
        diagnostics=court.remarks,
        fail_on=wanted.fail_on,
    )
    report = court.closed(taken, setting)
    late = _heard(board, call, set(range(started.world)) - heard.keys())
    came = tuple(f"{words.node}, rank {rank}: reported after the deadline" for rank, words in late.items())
    report = report._replace(late=came)
    verdict = {"call": call, "code": report.code, "marks": [words.mark for words in heard.values()]}
    board.post("verdict", json.dumps(verdict))
    board.leave(0, [rank for rank in heard if rank])
    return Gathered(report, report.code)


def _answer(board: _Board, own: _Words, wanted: FleetOptions) -> Gathered:
    """Another rank: answer whoever calls, and end as rank 0 says.

    Raises:
        ExamineError: nobody calls, or the verdict came without this rank.
    """
    answered, until, late = "", time.monotonic() + wanted.wait_s, False
    for _ in _pauses():
        if time.monotonic() > until:
            break
        said = board.read(["call", "verdict"])
        call = _field(said.get("call", ""), "call")
        if isinstance(call, str) and call and call != answered:
            # A call may be left from an earlier start of this job: the next one is answered as well.
            board.post(f"rank-{own.rank}", json.dumps(own._replace(call=call)._asdict()))
            answered, until, late = call, time.monotonic() + wanted.wait_s + JUDGING_S, False
        verdict = said.get("verdict", "")
        marks, code = _field(verdict, "marks"), _field(verdict, "code")
        if isinstance(marks, list) and own.mark in marks and isinstance(code, int):
            board.leave(own.rank, [])
            if code:
                time.sleep(LINGER_S)
            return Gathered(None, code)
        if answered and not late and _field(verdict, "call") == answered:
            # Given without this rank; or left from an earlier start, whose rank 0 calls again soon.
            late, until = True, time.monotonic() + wanted.wait_s
    why = f"rank 0 {'gave no verdict' if answered else 'never called'} within {wanted.wait_s:g} s"
    if late:
        why = "it came late, and the verdict was given without it"
    raise ExamineError(f"rank {own.rank} on {own.node}: {why}")


def _field(text: str, name: str) -> Any:
    """A field of a small JSON object; None if it is none."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return tree.get(name) if isinstance(tree, dict) else None


def _heard(board: _Board, call: str, wanted: Iterable[int]) -> dict[int, _Words]:
    """What those of these ranks say that answered this call."""
    found = {}
    for name, text in board.read(f"rank-{rank}" for rank in sorted(wanted)).items():
        try:
            tree = json.loads(text)
            words = _Words(**tree)
        except (ValueError, TypeError, RecursionError):
            continue
        whole = all(isinstance(each, str) for each in (words.mark, words.node, words.facts, words.trouble))
        whole = whole and 0 < len(words.node) <= LONGEST_NAME
        if words.call == call and whole and name == f"rank-{words.rank}":
            found[words.rank] = words
    return found


def _by_node(heard: Mapping[int, _Words]) -> dict[str, _Words]:
    """The ranks that speak for their nodes, by the names; with the rank where several have a name."""
    speaking = [words for _, words in sorted(heard.items()) if words.facts or words.trouble]
    named = Counter(words.node for words in speaking)
    return {
        words.node if named[words.node] == 1 else f"{words.node}:{words.rank}": words for words in speaking
    }


def _absent(
    heard: Mapping[int, _Words], wanted: FleetOptions, started: launchers.Started
) -> list[summary.Missing]:
    """The nodes, or where nobody knows these the ranks, that were not heard of."""
    silent = [rank for rank in range(started.world) if rank not in heard]
    if not silent:
        return []
    why = f"never reported within {wanted.wait_s:g} s"
    here = {_short(words.node) for words in heard.values()}
    gone = [node for node in started.nodes if _short(node) not in here]
    if gone:
        of = hostlist.fold(f"rank{rank}" for rank in silent)
        return [summary.Missing(node, f"{why} ({of})") for node in gone]
    return [summary.Missing(f"rank{rank}", why) for rank in silent]


def _short(node: str) -> str:
    return node.partition(".")[0]


def _stale(wanted: FleetOptions, started: launchers.Started) -> tuple[str, ...]:
    """What lies in the shared folder of other jobs, which does not count."""
    if not wanted.via:
        return ()
    own = _word(wanted.job or started.job or "job")
    jobs: Counter[str] = Counter()
    for name in host.names(Path(wanted.via)):
        job, dot, rest = name.removeprefix(_PREFIX).partition(".")
        if name.startswith(_PREFIX) and dot and rest.startswith("rank-") and job != own:
            jobs[job] += 1
    return tuple(
        f"{wanted.via}: records of {count} ranks of job {job}" for job, count in sorted(jobs.items())
    )


# --- Ray --------------------------------------------------------------------------------------------


def of_ray(question: examine.ExamineRequest, wanted: FleetOptions) -> summary.FleetReport:
    """The report on the nodes of a Ray cluster, each asked by a task of its own.

    Raises:
        InputError: an option is wrong, or ray is not installed beside envcheck.
        ExamineError: the cluster cannot be reached.
    """
    expected = _expected(wanted.expect)
    court = _court(question, wanted)
    # Ray prints what it notices of its nodes, and standard output is the report's.
    with redirect_stdout(io.StringIO()):
        taken, missing, left_out = _asked(question, wanted, court)
    setting = summary.FleetContext(
        expected=expected,
        missing=missing,
        left_out=left_out,
        diagnostics=court.remarks,
        fail_on=wanted.fail_on,
    )
    return court.closed(taken, setting)


def _asked(
    question: examine.ExamineRequest, wanted: FleetOptions, court: _NodeJudge
) -> tuple[collect.Fleet, tuple[summary.Missing, ...], tuple[str, ...]]:
    """The nodes of the cluster, those that gave no answer, and those that were not asked."""
    try:
        ray = importlib.import_module("ray")
        strategies = importlib.import_module("ray.util.scheduling_strategies")
    except ImportError as error:
        raise InputError(
            "--ray", f"ray cannot be imported beside envcheck ({error}): install envcheck[ray]"
        ) from None
    try:
        ray.init(address=wanted.ray, log_to_driver=False, logging_level="ERROR", configure_logging=False)
    except Exception as error:  # noqa: BLE001 - of Ray's many
        raise ExamineError(f"--ray {wanted.ray}: {_last_line(str(error)) or type(error).__name__}") from None
    taken, missing = court.opened(), list[summary.Missing]()
    try:
        asked = {}
        here, left_out = _ray_nodes(ray)
        probe = ray.remote(num_cpus=0, max_retries=0)(facts_of_ray)
        for name, number in here.items():
            there = strategies.NodeAffinitySchedulingStrategy(node_id=number, soft=False)
            asked[probe.options(scheduling_strategy=there).remote(question, name)] = name
        until = time.monotonic() + wanted.wait_s
        left = list(asked)
        while left and (seconds := until - time.monotonic()) > 0:
            done, left = ray.wait(left, num_returns=1, timeout=seconds)
            for ref in done:
                try:
                    taken.take(NodeRecord(f"node {asked[ref]}", ray.get(ref), asked[ref]), asked[ref])
                except Exception as error:  # noqa: BLE001 - the node's, or Ray's
                    missing.append(summary.Missing(asked[ref], _ray_trouble(error)))
        for ref in left:
            missing.append(summary.Missing(asked[ref], f"did not answer within {wanted.wait_s:g} s"))
            ray.cancel(ref, force=True)
    finally:
        ray.shutdown()
    return taken, tuple(missing), left_out


def facts_of_ray(question: examine.ExamineRequest, name: str) -> str:
    """The facts of the node that a task runs on, as one text; the Python is the worker's own."""
    machine = Host()
    if machine.environ.get("CUDA_VISIBLE_DEVICES") == "":
        # Ray hides all GPUs from a task that asks for none; what a training task will see is not this.
        machine = Host(environ={k: v for k, v in machine.environ.items() if k != "CUDA_VISIBLE_DEVICES"})
    asked = question._replace(python=question.python or host.own_python(), train=(), target=None)
    return json.dumps(own_facts(asked, machine, name))


def _ray_nodes(ray: Any) -> tuple[dict[str, str], tuple[str, ...]]:
    """Ray's numbers of the nodes to ask, by name (with the number where several have one); and the others.

    Where some have GPUs, training runs on those: a head that only schedules is no odd one.
    """
    alive = [node for node in ray.nodes() if node["Alive"]]
    hosts = Counter(node["NodeManagerHostname"] for node in alive)
    named = {
        host_name if hosts[host_name] == 1 else f"{host_name}:{node['NodeID'][:8]}": node
        for node in sorted(alive, key=lambda each: each["NodeID"])
        for host_name in [node["NodeManagerHostname"]]
    }
    with_gpus = {name for name, node in named.items() if node["Resources"].get("GPU")}
    asked = {name: node["NodeID"] for name, node in named.items() if not with_gpus or name in with_gpus}
    left_out = sorted(named.keys() - asked.keys())
    return asked, tuple(f"{name}: Ray knows of no GPU in it, and of GPUs in others" for name in left_out)


def _ray_trouble(error: Exception) -> str:
    """What kept a node from answering, in one line; of an error on the node that error itself."""
    cause = getattr(error, "cause", None) or error
    said = next((line.strip() for line in str(cause).splitlines() if line.strip()), "")
    hint = "; is envcheck installed there?" if isinstance(cause, ModuleNotFoundError) else ""
    return f"{type(cause).__name__}: {said}{hint}"
