"""Find the environment that a log was written in: the one that is named, else the one it describes."""

from __future__ import annotations

from typing import NamedTuple

from envcheck.commands import examine
from envcheck.commands.examine import ExamineRequest
from envcheck.commands.explain.known import ExplainKnowledge
from envcheck.commands.explain.reading import LogText
from envcheck.core.errors import EnvcheckError
from envcheck.core.facts import (
    NOT_GIVEN,
    Fact,
    Inventory,
    Unknown,
    package_name,
)
from envcheck.core.findings import Diagnostic
from envcheck.core.rules import Matrix
from envcheck.host.machine import Host
from envcheck.logs import environment


class LogEnvironment(NamedTuple):
    """Environment to judge, its name, notes on it, and diagnostics on configurations."""

    subject: str
    inventory: Inventory
    notes: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]


def printed_facts(text: LogText, command: str, known: ExplainKnowledge) -> Inventory:
    """Return the facts that the log prints about where it ran, and the training that its command names.

    The log's beginning and the events with exceptions are searched. `command` is the command that wrote
    the log, empty if unknown; then the one command that the log prints counts.
    """
    tables = known.tree["tables"]
    facts = list(environment.facts(text.head, 1, tables, known.keys))
    for event in text.log.events:
        if event.exceptions:
            facts += environment.facts(event.text, event.first, tables, known.keys)
    inventory = environment.inventory(facts)
    commands = {line: f"log line {number}" for line, number in environment.commands(text.head, 1, tables)}
    commands = {command: "the command line"} if command else commands
    if len(commands) != 1:
        return inventory
    ((line, source),) = commands.items()
    return inventory.with_facts(
        fact for fact in _facts_of_command(line, source, known.matrix) if fact.key not in inventory.facts
    )


def _facts_of_command(command: str, source: str, matrix: Matrix) -> list[Fact]:
    """Return what a command line states about training; empty if it cannot be read."""
    start = command.find(" --")
    if start < 0:
        return []
    request = ExamineRequest(train=(command[start + 1 :],))
    try:
        configured, _ = examine.complete_inventory(Inventory(), request, matrix)
    except EnvcheckError:
        return []
    return [fact._replace(source=source) for fact in configured.facts.values()]


def choose_environment(
    request: ExamineRequest, printed: Inventory, host: Host, known: ExplainKnowledge, *, elsewhere: bool
) -> LogEnvironment:
    """Return the environment to judge: the one that is named, else the one that the log describes.

    If none is named, the environment that `doctor` would examine stands for the log's own unless the log
    contradicts it, or is of another platform (`elsewhere`). The log's training facts fill what was not given.
    """
    subject, local, diagnostics = examine.take_inventory(
        request, host, known.all_probes, known.matrix, known.keys
    )
    differing = [fact for fact in printed.facts.values() if _contradicts(fact, local)]
    trained = [
        fact
        for fact in printed.facts.values()
        if fact.key.startswith("train.") and local.fact(fact.key).reading == NOT_GIVEN
    ]
    completed = local.with_facts(trained)
    if request.python is not None or request.facts is not None:
        notes = (_note_on_differences(differing, local),) if differing else ()
        return LogEnvironment(subject, completed, notes, diagnostics)
    elsewhere = elsewhere or bool(differing) or _has_other_gpus(printed, local)
    if not elsewhere and local.known("pkg.torch") is not None:
        return LogEnvironment(subject, completed, (), diagnostics)
    own, diagnostics = examine.complete_inventory(printed, request, known.matrix)
    return LogEnvironment(_subject_of_log(printed), own, (), diagnostics)


_LONGEST_SUBJECT = 300
"""Maximum number of characters of the log's facts that the report's subject quotes."""


def _subject_of_log(printed: Inventory) -> str:
    facts = ", ".join(_fact_in_words(fact) for fact in printed.facts.values() if fact.value is not None)
    if not facts:
        return "nothing: no environment is named, and the log does not describe one"
    facts = facts if len(facts) <= _LONGEST_SUBJECT else f"{facts[:_LONGEST_SUBJECT]}…"
    return f"the environment that the log describes: {facts}"


def _contradicts(fact: Fact, local: Inventory) -> bool:
    """Return whether the log states a package, driver or Python that differs from the local one."""
    here = local.fact(fact.key)
    if fact.key.startswith(("train.", "gpus.")) or fact.value is None or isinstance(here.reading, Unknown):
        return False
    return not str(here.value or "").startswith(str(fact.value))


def _has_other_gpus(printed: Inventory, local: Inventory) -> bool:
    """Return whether the log names GPUs other than the local ones, so it was written elsewhere."""
    names = [device["gpu.name"].value for device in printed.devices]
    return bool(names) and names != [local.known("gpu.name", n) for n in range(len(local.devices))]


def _note_on_differences(facts: list[Fact], local: Inventory) -> str:
    pairs = ", ".join(f"{_fact_in_words(fact)}, here {local.known(fact.key) or 'none'}" for fact in facts[:3])
    return f"the log describes another environment: {pairs}"


def _fact_in_words(fact: Fact) -> str:
    name = package_name(fact.key).removesuffix(".version")  # python, driver
    return f"{name} {fact.value} ({fact.source.removeprefix('log ')})"
