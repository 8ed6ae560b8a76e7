"""Explain a log: read it, match its events, find its environment, judge it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from envcheck import __version__, probes
from envcheck.commands import judging, loading, tried_fixes
from envcheck.commands.examine import ExamineRequest
from envcheck.commands.explain import library_answers
from envcheck.commands.explain.code_of_others import is_in_code_of_others
from envcheck.commands.explain.environment import LogEnvironment, choose_environment, printed_facts
from envcheck.commands.explain.environment_checks import (
    match_here,
    with_offer,
    with_probable,
    without_contradicted,
    without_fulfilled,
)
from envcheck.commands.explain.fitting_releases import fitting_releases
from envcheck.commands.explain.known import ExplainKnowledge, every_signature, patterns
from envcheck.commands.explain.missing import missing_answer, with_kind_of_missing
from envcheck.commands.explain.origin import LogOrigin, with_end
from envcheck.commands.explain.reading import LogText, read_log
from envcheck.commands.explain.relevance import is_of_cuda, may_be_about, with_kind_of_rule
from envcheck.core.findings import Report
from envcheck.core.rules import Matrix
from envcheck.host.files import STDIN, STDIN_NAME, path_exists, read_chunks, read_standard_input
from envcheck.host.machine import Host
from envcheck.host.pty_passthrough import Gap
from envcheck.logs import diagnosis as log_diagnosis
from envcheck.logs import environment, library_questions, missing_names, refused_values
from envcheck.logs.collectives import waiting_ranks
from envcheck.logs.diagnosis import Cause, Diagnosis
from envcheck.logs.near_options import near_options
from envcheck.logs.stated_versions import list_forms, stated_versions
from envcheck.reports import code_conditions
from envcheck.reports.explanation import Explanation, RefusedAnswer
from envcheck.reports.explanation.cause import requirements_of_installer
from envcheck.rules import derive

_LOG_SUFFIXES = (".log", ".txt", ".out", ".err", ".gz")
_GIVEN = "the text given"
"""What reports call a message that is given instead of a log."""


def explain_log(request: ExamineRequest, name: str, host: Host) -> Explanation:
    """Explain the log of this name; `-` is standard input, and words that name no file are the log itself.

    Raises:
        InputError: it cannot be read, or an argument is wrong.
    """
    if not path_exists(Path(name)) and _is_message(name):
        return _explain_message(request, name, host)
    if name == STDIN:
        return explain_chunks(request, STDIN_NAME, read_standard_input(), host)
    return explain_chunks(request, name, read_chunks(name), host)


def _explain_message(request: ExamineRequest, text: str, host: Host) -> Explanation:
    """Explain a message that is given instead of a log; whoever gives one has a failure.

    Raises:
        InputError: as `explain_chunks`.
    """
    message = text.encode("utf-8", "surrogateescape")
    explained = explain_chunks(request, _GIVEN, [message], host)
    if explained.diagnosis.failed:
        return explained
    return explain_chunks(request, _GIVEN, [b"Error: " + message], host)  # without the name of its exception


def _is_message(text: str) -> bool:
    """Return whether an argument is a message, such as `KeyError: 'x'`, and not the name of a log."""
    return bool(re.search(r"\s", text.strip())) and not text.endswith(_LOG_SUFFIXES)


def explain_chunks(
    request: ExamineRequest,
    name: str,
    chunks: Iterable[bytes | Gap],
    host: Host,
    origin: LogOrigin | None = None,
) -> Explanation:
    """Explain a log that comes in chunks: read it, match its events, find its environment, judge it.

    `origin` is what wrote the log, if that is known.

    Raises:
        InputError: the chunks are not text, or an argument is wrong.
    """
    tree = loading.read_only_tree()
    all_probes = probes.every_probe()
    keys = loading.vocabulary(all_probes)
    known = ExplainKnowledge(all_probes, keys, loading.load_matrix(keys, request.overlays), tree)

    text = read_log(chunks, name, patterns())
    if origin is not None:
        text = text._replace(log=with_end(text.log, origin.code))
    platform = environment.platform(_texts(text), tree["tables"])
    signatures = every_signature()
    if platform is not None:
        signatures = tuple(one for one in signatures if not is_of_cuda(one, known.matrix))
    signatures = tuple(with_kind_of_rule(one, known.matrix) for one in signatures)
    printed = printed_facts(text, origin.command if origin else "", known)
    judged = choose_environment(request, printed, host, known, elsewhere=platform is not None)
    judged = _beside_the_command(judged, origin)
    report = _report_on(request, judged, known.matrix)
    stated = stated_versions((piece for piece, _ in _texts(text)), printed, list_forms(tree["tables"]))
    diagnosis = log_diagnosis.diagnose(text.log, signatures, partial(may_be_about, known, stated))
    diagnosis = without_contradicted(diagnosis, text.log, report, tree["tables"])
    diagnosis, offer = with_offer(diagnosis, text.log, text.head, report, tree["tables"])
    replaced = library_answers.replaced_method(diagnosis.cause) if diagnosis.cause else ()
    if replaced or is_in_code_of_others(diagnosis.cause, tree["tables"]):
        diagnosis = log_diagnosis.without_blame(diagnosis)
    missing = missing_answer(diagnosis, known, report.inventory, text.head)
    if missing is not None and diagnosis.cause is not None:
        diagnosis = diagnosis._replace(cause=with_kind_of_missing(diagnosis.cause, missing))
    library = None
    if diagnosis.cause is not None and (missing is None or missing.missing.kind == "argument"):
        library = library_answers.answer(diagnosis.cause, known.tree["tables"], text.head, report.inventory)
        if library is not None:
            diagnosis = diagnosis._replace(cause=library_answers.with_kind(diagnosis.cause, library))
    if diagnosis.cause is not None and library is None:
        cause = _with_kind_of_settings(diagnosis.cause)
        replaced = replaced if cause.kind != "setting" else ()
        diagnosis = diagnosis._replace(cause=cause)
    diagnosis = without_fulfilled(diagnosis, report)
    diagnosis, probable = with_probable(diagnosis, report, known)
    here = {
        match.signature.case: match_here(known.matrix.rule(match.signature.rule), report)
        for match in (*diagnosis.matches, *diagnosis.partial)
    }
    facts = (*printed.facts.values(), *(fact for device in printed.devices for fact in device.values()))
    notes = (*text.notes, *judged.notes)
    return Explanation(
        name,
        text.log,
        diagnosis,
        judged.subject,
        report,
        here,
        notes,
        facts,
        platform,
        missing,
        library,
        probable,
        _refused(diagnosis, tree["tables"]),
        replaced,
        "" if missing and missing.is_of_another_python else _failed_in(diagnosis, tree["tables"]),
        empty=not text.head.strip() and not text.log.events,
        offer=offer,
        waiting=waiting_ranks(piece for piece, _ in _texts(text)),
        fitting=_fitting(diagnosis),
        near=near_options(diagnosis.cause.event, text.head) if diagnosis.cause else (),
    )


def _beside_the_command(judged: LogEnvironment, origin: LogOrigin | None) -> LogEnvironment:
    """Return the environment; one that was found beside the command that ran is not one that was named."""
    if origin is None or origin.named:
        return judged
    return judged._replace(subject=judged.subject.replace("(named by --python)", "(beside the command)"))


def _fitting(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the releases that end the clash of requirements which is the first cause, if it is one."""
    clash = requirements_of_installer(diagnosis.cause)[1] if diagnosis.cause else ()
    return fitting_releases(clash) if clash else ()


def _failed_in(diagnosis: Diagnosis, tables: Mapping[str, Any]) -> str:
    """Return the package whose line failed, empty if it only runs or checks what others give it.

    It is empty as well if the text has known causes, of which no release of the package is one.
    """
    form = diagnosis.cause.event.form if diagnosis.cause else None
    if diagnosis.cause is None or (form is not None and form.means):
        return ""
    if any(
        missing_names.is_of_lazy_import(raised.message) for raised in diagnosis.cause.event.exceptions[-1:]
    ):
        return ""
    distributions = missing_names.distributions_by_module(tables)
    package = missing_names.package_of(diagnosis.cause.place, distributions)
    carries_out = {name for row in tables.get("carries_out", ()) for name in row["packages"]}
    return "" if package in carries_out else package


def _refused(diagnosis: Diagnosis, tables: Mapping[str, Any]) -> tuple[RefusedAnswer, ...]:
    """Return the values of a configuration that the first cause names as refused, with advice."""
    if diagnosis.cause is None:
        return ()
    advice = {reason: row["advice"] for row in tables.get("refused_value", ()) for reason in row["reasons"]}
    values = refused_values.refused_values(diagnosis.cause.event)
    return tuple(RefusedAnswer(value, advice.get(value.kind, "")) for value in values)


def _texts(text: LogText) -> Iterator[tuple[str, int]]:
    """Yield what is kept of a log, each piece with the number of its first line."""
    yield text.head, 1
    yield from ((event.text, event.first) for event in text.log.events)


def _with_kind_of_settings(cause: Cause) -> Cause:
    """Return the cause; if a setting is None where it is used, or an `assert` compares settings, say so."""
    if cause.match is not None or cause.kind not in ("unknown", "code", "check"):
        return cause
    means = cause.event.form is not None and cause.event.form.means
    condition = f"unless {library_questions.asserted(cause.event)}"
    function = cause.place.name if cause.place else ""
    compared = code_conditions.settings_of_assertion(condition, function)
    return (
        cause
        if means or not (compared or library_questions.setting_that_is_none(cause.event))
        else cause._replace(kind="setting")
    )


def _report_on(request: ExamineRequest, judged: LogEnvironment, matrix: Matrix) -> Report:
    """Judge the environment as `doctor` does, with fixes; a matrix without rules is not an error here."""
    inventory = derive.derive(judged.inventory, matrix)
    target = loading.find_target(request.target, matrix)
    judgement = judging.judge_inventory(inventory, matrix, target)
    judgement = tried_fixes.add_fixes(judgement, judged.inventory, inventory, matrix, target)
    report = Report(__version__, judged.subject, inventory, judgement, matrix, target)
    return report._replace(diagnostics=judged.diagnostics)
