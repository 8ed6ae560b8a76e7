"""`explain` and `run`: a log is read as it comes, held against what is known and against an environment."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from envcheck import __version__, app, derive, explain, explanation, host, logs, printed, probes, signatures
from envcheck.host import Host
from envcheck.model import (
    EnvcheckError,
    Fact,
    InputError,
    Inventory,
    Matrix,
    Report,
    Unknown,
    Vocabulary,
)

_HEAD = 2 << 20
"""Bytes at the beginning of a log that are read for what it prints of its environment."""

STDIN = "-"


class _Read(NamedTuple):
    """A log as it was read: its events, its beginning, and what of it could not be read."""

    log: logs.Log
    head: str
    notes: tuple[str, ...]


def explained(question: app.Question, name: str, machine: Host) -> explanation.Explanation:
    """What the log of this name tells (`-` is standard input).

    Raises:
        InputError: it cannot be read, or an argument is wrong.
    """
    if name == STDIN:
        return told(question, "standard input", host.standard_input(), machine)
    return told(question, name, host.chunks(name), machine)


def told(
    question: app.Question, name: str, chunks: Iterable[bytes], machine: Host
) -> explanation.Explanation:
    """What the chunks of a log tell.

    Raises:
        InputError: they are no text, or an argument is wrong.
    """
    tree = app.source_tree()
    found = probes.every_probe()
    words = app.vocabulary(found)
    known = app.load_matrix(words, question.overlays)
    read = _read(chunks, name, logs.look(tree["tables"]))
    diagnosis = explain.diagnose(read.log, signatures.compiled(tree["case"]))
    from_log = _from_log(read, tree["tables"], words, known)
    subject, inventory, notes = _environment(question, from_log, machine, found, known, words)
    report = _judged(question, subject, inventory, known)
    fits = {
        each.signature.case: explain.fit(known.rule(each.signature.rule), report.inventory, report.judgement)
        for each in (*diagnosis.matches, *diagnosis.partial)
    }
    facts = (*from_log.facts.values(), *(fact for device in from_log.devices for fact in device.values()))
    return explanation.Explanation(
        name, read.log, diagnosis, subject, report, fits, (*read.notes, *notes), tuple(facts)
    )


# --- reading ------------------------------------------------------------------------------------------


def _read(chunks: Iterable[bytes], name: str, look: logs.Look) -> _Read:
    scanner = logs.Scanner(look)
    head = bytearray()
    notes: list[str] = []
    try:
        for chunk in _unpacked(chunks, notes.append):
            if not head:
                _refuse_binary(chunk, name)
            if len(head) < _HEAD:
                head += chunk[: _HEAD - len(head)]
            scanner.feed(chunk)
    except KeyboardInterrupt:
        notes.append("interrupted: this is what was read until then")
    log = scanner.finish()
    if log.crowded:
        notes.append("more kinds of errors than are kept: the first ones count")
    return _Read(log, logs.plain(bytes(head)), tuple(notes))


_GZIP = b"\x1f\x8b"


def _unpacked(chunks: Iterable[bytes], note: Callable[[str], None]) -> Iterator[bytes]:
    """The chunks, or what they hold if they are a gzip file, as far as that can be read."""
    import zlib

    unpack = None
    for number, chunk in enumerate(chunks):
        if number == 0 and not chunk.startswith(_GZIP):
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


_SAMPLE, _MOST_NULS = 1 << 16, 16


def _refuse_binary(chunk: bytes, name: str) -> None:
    sample = chunk[:_SAMPLE]
    if sample.count(0) * _MOST_NULS > len(sample):
        raise InputError(name, "expected the text of a log, found binary data")


# --- the environment ------------------------------------------------------------------------------------


def _from_log(read: _Read, tables: printed.Tables, words: Vocabulary, known: Matrix) -> Inventory:
    """What the log prints of where it ran: at its beginning, and in what went wrong."""
    said = list(printed.facts(read.head, 1, tables, words))
    for event in read.log.events:
        if event.exceptions:
            said += printed.facts(event.text, event.first, tables, words)
    inventory = printed.inventory(said)
    commands = dict(printed.commands(read.head, 1, tables))
    if len(commands) != 1:
        return inventory
    ((command, line),) = commands.items()
    return inventory.with_facts(
        fact for fact in _arguments(command, line, known) if fact.key not in inventory.facts
    )


def _arguments(command: str, line: int, known: Matrix) -> list[Fact]:
    """What a command line in a log says of training; nothing if it cannot be read."""
    at = command.find(" --")
    try:
        if at < 0:
            return []
        said, _ = app.completed(Inventory(), app.Question(train=(command[at + 1 :],)), known)
    except EnvcheckError:
        return []
    return [fact._replace(source=f"log line {line}") for fact in said.facts.values()]


def _environment(
    question: app.Question,
    from_log: Inventory,
    machine: Host,
    found: tuple[probes.Probe, ...],
    known: Matrix,
    words: Vocabulary,
) -> tuple[str, Inventory, list[str]]:
    """What is judged: the environment that is named, else that which the log itself describes.

    The environment that doctor would take stands for it only where the log says nothing else.
    """
    named = question.python is not None or question.facts is not None
    subject, local, _ = app.take_inventory(question, machine, found, known, words)
    differ = [fact for fact in from_log.facts.values() if _another(fact, local)]
    if named:
        return subject, local, [_differing(differ, local)] if differ else []
    if differ or local.known("pkg.torch") is None:
        if not any(fact.value is not None for fact in from_log.facts.values()):
            return (
                "nothing: no environment is named, the log says nothing of its own",
                _only(question, known),
                [],
            )
        own, _ = app.completed(from_log, question, known)
        shown = ", ".join(_shown(fact) for fact in from_log.facts.values() if fact.value is not None)
        return f"what the log says of its own environment: {shown[:300]}", own, []
    return subject, local.with_facts(f for f in from_log.facts.values() if f.key not in local.facts), []


def _only(question: app.Question, known: Matrix) -> Inventory:
    return app.completed(Inventory(), question, known)[0]


def _another(fact: Fact, local: Inventory) -> bool:
    """Whether the log says of a package, the driver or Python what is not so here."""
    if fact.key.startswith("train.") or fact.value is None:
        return False
    here = local.fact(fact.key)
    if isinstance(here.reading, Unknown):
        return False
    return not str(here.value or "").startswith(str(fact.value))


def _differing(facts: list[Fact], local: Inventory) -> str:
    pairs = ", ".join(f"{_shown(fact)}, here {local.known(fact.key) or 'none'}" for fact in facts[:3])
    return f"the log speaks of another environment: {pairs}"


def _shown(fact: Fact) -> str:
    return f"{fact.key.removeprefix('pkg.')} {fact.value} ({fact.source.removeprefix('log ')})"


def _judged(question: app.Question, subject: str, read: Inventory, known: Matrix) -> Report:
    """Doctor's judgement, the ways out tried."""
    settled = derive.derive(read, known)
    target = app.find_target(question.target, known)
    judgement = app.advised(app.judged(settled, known, target), read, settled, known, target)
    return Report(__version__, subject, settled, judgement, known, target)
