"""`explain` and `run`: a log is read as it comes, held against what is known and against an environment."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from envcheck import __version__, probes
from envcheck.commands import examine
from envcheck.core.errors import EnvcheckError, InputError
from envcheck.core.facts import NOT_GIVEN, Fact, Inventory, Unknown, Vocabulary, package_name
from envcheck.core.findings import Diagnostic, Report
from envcheck.core.rules import Matrix
from envcheck.host import machine as host
from envcheck.host import pty_passthrough
from envcheck.host.machine import Host
from envcheck.knowledge import log_signatures
from envcheck.logs import diagnosis as log_diagnosis
from envcheck.logs import environment
from envcheck.logs import scanner as log_scanner
from envcheck.logs.events import Event, Log
from envcheck.logs.line_format import LogPatterns, log_patterns, plain
from envcheck.reports import explanation
from envcheck.rules import derive

_HEAD = 2 << 20
"""Bytes at the beginning of a log that are read for what it prints of its environment."""

STDIN = "-"


class _Read(NamedTuple):
    """A log as it was read: its events, its beginning, and what of it could not be read."""

    log: Log
    head: str
    notes: tuple[str, ...]


def explained(question: examine.ExamineRequest, name: str, machine: Host) -> explanation.Explanation:
    """What the log of this name tells (`-` is standard input).

    Raises:
        InputError: it cannot be read, or an argument is wrong.
    """
    if name == STDIN:
        return told(question, "standard input", host.standard_input(), machine)
    return told(question, name, host.chunks(name), machine)


def told(
    question: examine.ExamineRequest,
    name: str,
    chunks: Iterable[bytes | pty_passthrough.Gap],
    machine: Host,
    wrote: Wrote | None = None,
) -> explanation.Explanation:
    """What the chunks of a log tell; `wrote` says what wrote it, if that is known.

    Raises:
        InputError: they are no text, or an argument is wrong.
    """
    tree = examine.source_tree()
    found = probes.every_probe()
    words = examine.vocabulary(found)
    known = examine.load_matrix(words, question.overlays)
    read = _read(chunks, name, log_patterns(tree["tables"]))
    if wrote is not None:
        read = read._replace(log=_with_end(read.log, wrote.code))
    diagnosis = log_diagnosis.diagnose(read.log, log_signatures.compiled(tree["case"]))
    from_log = _from_log(read, wrote.command if wrote else "", tree["tables"], words, known)
    subject, inventory, notes, remarks = _environment(question, from_log, machine, found, known, words)
    if wrote is not None and not wrote.named:
        subject = subject.replace("(named by --python)", "(beside the command)")
    report = _judged(question, subject, inventory, known)._replace(diagnostics=remarks)
    fits = {
        each.signature.case: log_diagnosis.fit(
            known.rule(each.signature.rule), report.inventory, report.judgement
        )
        for each in (*diagnosis.matches, *diagnosis.partial)
    }
    facts = (*from_log.facts.values(), *(fact for device in from_log.devices for fact in device.values()))
    return explanation.Explanation(
        name, read.log, diagnosis, subject, report, fits, (*read.notes, *notes), tuple(facts)
    )


class Wrote(NamedTuple):
    """The command that wrote a log, and its exit code, negative for a signal.

    `named` is False where the environment was not named but found beside the command.
    """

    command: str
    code: int
    named: bool = True


class FinishedCommand(NamedTuple):
    """How a command ended: its exit code, negative for a signal; what explains a failure, or why nothing."""

    code: int
    explanation: explanation.Explanation | None = None
    trouble: str = ""


def run(question: examine.ExamineRequest, command: Sequence[str], machine: Host) -> FinishedCommand:
    """Run a command, passing everything through; explain what it printed if it failed by itself.

    Raises:
        EnvcheckError: an argument is wrong; the command was not started.
        OSError: the command does not exist or may not be run.
    """
    _refuse_wrong_use(question, machine)
    kept = pty_passthrough.Kept()
    ended = pty_passthrough.run(command, machine.environ, kept)
    if ended.code == 0 or ended.asked or -ended.code in pty_passthrough.NO_FAILURE:
        return FinishedCommand(ended.code)
    beside = _beside(command[0], machine) if question.python is None and question.facts is None else None
    if beside is not None:
        question = question._replace(python=beside)
    name = f"what {command[0].rpartition('/')[2]} printed"
    try:
        wrote = Wrote(shlex.join(command), ended.code, named=beside is None)
        return FinishedCommand(ended.code, told(question, name, kept.pieces(), machine, wrote))
    except Exception as error:  # noqa: BLE001 - whatever is wrong with us, the command's own end counts
        return FinishedCommand(ended.code, trouble=str(error) or type(error).__name__)


def _refuse_wrong_use(question: examine.ExamineRequest, machine: Host) -> None:
    """Read what is named before the command starts: hours later nobody is there to name it again.

    Raises:
        EnvcheckError: something named is not there, or wrong.
    """
    if question == examine.ExamineRequest(deadline_s=question.deadline_s):
        return
    words = examine.vocabulary(probes.every_probe())
    known = examine.load_matrix(words, question.overlays)
    inventory = Inventory() if question.facts is None else examine.read_facts(question.facts, words)
    examine.completed(inventory, question, known)
    if question.python is not None:
        from envcheck.probes import python_env

        python_env.interpreter(machine, probes.ProbeRequest(Path(question.python)))


def _with_end(log: Log, code: int) -> Log:
    """The log with the end of the process that wrote it; torchrun's word on its ranks counts before that."""
    text = f"exit code {code}"
    if code < 0:
        text = f"killed by signal {-code}\ntraceback : Signal {-code} ({host.signal_name(-code)})"
    numbers = tuple(log.lines + 1 for _ in text.split("\n"))
    root = code < 0 and not any(each.root for each in log.events)
    end = Event("ended", numbers, text, code=code, root=root, again=log.lines + 1)
    return log._replace(events=(*log.events, end))


def _beside(program: str, machine: Host) -> str | None:
    """The interpreter beside a program, such as an environment's own torchrun; None if there is none."""
    import shutil

    found = shutil.which(program, path=machine.environ.get("PATH"))
    python = Path(found).parent / "python" if found else None
    return str(python) if python and python.is_file() else None


# --- reading ------------------------------------------------------------------------------------------


def _read(chunks: Iterable[bytes | pty_passthrough.Gap], name: str, patterns: LogPatterns) -> _Read:
    scanner = log_scanner.Scanner(patterns)
    head = bytearray()
    notes: list[str] = []
    try:
        for chunk in _unpacked(chunks, notes.append):
            if isinstance(chunk, pty_passthrough.Gap):
                scanner.skip(*chunk)
                continue
            if not head:
                _refuse_binary(chunk, name)
            if len(head) < _HEAD:
                head += chunk[: _HEAD - len(head)]
            scanner.feed(chunk)
    except KeyboardInterrupt:
        if not head:
            raise
        notes.append("interrupted: this is what was read until then")
    log = scanner.finish()
    if log.crowded:
        notes.append("more kinds of errors than are kept: only the first and the last of them count")
    return _Read(log, plain(bytes(head)), tuple(notes))


_GZIP = b"\x1f\x8b"


def _unpacked(
    chunks: Iterable[bytes | pty_passthrough.Gap], note: Callable[[str], None]
) -> Iterator[bytes | pty_passthrough.Gap]:
    """The chunks, or what they hold if they are a gzip file, as far as that can be read."""
    import zlib

    unpack = None
    chunks = iter(chunks)
    for number, chunk in enumerate(chunks):
        if isinstance(chunk, pty_passthrough.Gap) or (number == 0 and not chunk.startswith(_GZIP)):
            yield chunk
            yield from chunks
            return
        left = chunk
        while left:
            unpack = unpack or zlib.decompressobj(wbits=31)
            try:
                text = unpack.decompress(left, host.CHUNK)
            except zlib.error:
                note("its gzip data is damaged: this is what stands before the damage")
                return
            if text:
                yield text
            left = unpack.unconsumed_tail or unpack.unused_data.lstrip(b"\0")
            unpack = None if unpack.eof else unpack
    if unpack is not None:
        note("its gzip data ends in the middle: this is what stands before")


_SAMPLE = 1 << 16
_CONTROLS = bytes({*range(32)} - {*b"\t\n\r\f\b\x1b\x07"})
_MOST_CONTROLS = 20  # of so many bytes one; a log that a crash left has some, random bytes have two


def _refuse_binary(chunk: bytes, name: str) -> None:
    sample = chunk[:_SAMPLE]
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    if controls * _MOST_CONTROLS > len(sample):
        raise InputError(name, "expected the text of a log, found binary data")


# --- the environment ------------------------------------------------------------------------------------


def _from_log(
    read: _Read, command: str, tables: environment.Tables, words: Vocabulary, known: Matrix
) -> Inventory:
    """What the log prints of where it ran, at its beginning and in what went wrong; what its command says."""
    said = list(environment.facts(read.head, 1, tables, words))
    for event in read.log.events:
        if event.exceptions:
            said += environment.facts(event.text, event.first, tables, words)
    inventory = environment.inventory(said)
    commands = {text: f"log line {line}" for text, line in environment.commands(read.head, 1, tables)}
    commands = {command: "the command line"} if command else commands
    if len(commands) != 1:
        return inventory
    ((text, source),) = commands.items()
    return inventory.with_facts(
        fact for fact in _arguments(text, source, known) if fact.key not in inventory.facts
    )


def _arguments(command: str, source: str, known: Matrix) -> list[Fact]:
    """What a command line says of training; nothing if it cannot be read."""
    at = command.find(" --")
    try:
        if at < 0:
            return []
        said, _ = examine.completed(Inventory(), examine.ExamineRequest(train=(command[at + 1 :],)), known)
    except EnvcheckError:
        return []
    return [fact._replace(source=source) for fact in said.facts.values()]


def _environment(
    question: examine.ExamineRequest,
    from_log: Inventory,
    machine: Host,
    found: tuple[probes.Probe, ...],
    known: Matrix,
    words: Vocabulary,
) -> tuple[str, Inventory, list[str], tuple[Diagnostic, ...]]:
    """What is judged, notes on it, and remarks on configurations.

    It is the environment that is named, else that which the log itself describes. The one that doctor would
    take stands for it only where the log says nothing else. What the log says of training counts for what
    nobody gave.
    """
    subject, local, remarks = examine.take_inventory(question, machine, found, known, words)
    differ = [fact for fact in from_log.facts.values() if _another(fact, local)]
    trained = [
        fact
        for fact in from_log.facts.values()
        if fact.key.startswith("train.") and local.fact(fact.key).reading == NOT_GIVEN
    ]
    if question.python is not None or question.facts is not None:
        return subject, local.with_facts(trained), [_differing(differ, local)] if differ else [], remarks
    if not differ and not _other_gpus(from_log, local) and local.known("pkg.torch") is not None:
        return subject, local.with_facts(trained), [], remarks
    own, remarks = examine.completed(from_log, question, known)
    shown = ", ".join(_shown(fact) for fact in from_log.facts.values() if fact.value is not None)
    shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}…"
    if not shown:
        return "nothing: no environment is named, and the log says nothing of its own", own, [], remarks
    return f"what the log says of its own environment: {shown}", own, [], remarks


_SHOWN = 300  # characters of the facts that a log says


def _another(fact: Fact, local: Inventory) -> bool:
    """Whether the log says of a package, the driver or Python what is not so here."""
    here = local.fact(fact.key)
    if fact.key.startswith(("train.", "gpus.")) or fact.value is None or isinstance(here.reading, Unknown):
        return False
    return not str(here.value or "").startswith(str(fact.value))


def _other_gpus(from_log: Inventory, local: Inventory) -> bool:
    """Whether the log names GPUs that are not the ones here: one was read where the other did not run."""
    names = [each["gpu.name"].value for each in from_log.devices]
    return bool(names) and names != [local.known("gpu.name", n) for n in range(len(local.devices))]


def _differing(facts: list[Fact], local: Inventory) -> str:
    pairs = ", ".join(f"{_shown(fact)}, here {local.known(fact.key) or 'none'}" for fact in facts[:3])
    return f"the log speaks of another environment: {pairs}"


def _shown(fact: Fact) -> str:
    return f"{package_name(fact.key)} {fact.value} ({fact.source.removeprefix('log ')})"


def _judged(question: examine.ExamineRequest, subject: str, read: Inventory, known: Matrix) -> Report:
    """Doctor's judgement, the ways out tried."""
    settled = derive.derive(read, known)
    target = examine.find_target(question.target, known)
    judgement = examine.advised(examine.judged(settled, known, target), read, settled, known, target)
    return Report(__version__, subject, settled, judgement, known, target)
