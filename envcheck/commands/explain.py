"""Explain a log, or what a command printed: match it with known failures and judge its environment.

`explain_log` reads a log; `run` runs a command, passes everything through, and explains what it printed if
it failed.
"""

from __future__ import annotations

import codecs
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from envcheck import __version__, probes
from envcheck.commands import examine, library_answers
from envcheck.commands.examine import ExamineRequest
from envcheck.core.errors import EnvcheckError, InputError
from envcheck.core.facts import (
    NOT_GIVEN,
    Fact,
    Inventory,
    Tri,
    Unknown,
    Vocabulary,
    normalised,
    package_key,
    package_name,
)
from envcheck.core.findings import Diagnostic, Finding, Report
from envcheck.core.rules import Matrix, Rule
from envcheck.core.versions import compare
from envcheck.host import files, pty_passthrough
from envcheck.host.files import read_chunks, read_standard_input
from envcheck.host.machine import Host
from envcheck.host.pty_passthrough import Gap
from envcheck.host.signals import signal_name
from envcheck.knowledge import log_signatures
from envcheck.knowledge.log_signatures import Signature
from envcheck.knowledge.names import release_has
from envcheck.logs import diagnosis as log_diagnosis
from envcheck.logs import environment, library_questions, missing_names, refused_values
from envcheck.logs import scanner as log_scanner
from envcheck.logs.diagnosis import Cause, Diagnosis, EnvironmentMatch
from envcheck.logs.events import Event, Log
from envcheck.logs.line_format import LogPatterns, log_patterns, plain
from envcheck.logs.missing_names import MissingName
from envcheck.logs.statements import refused_model_type
from envcheck.reports import code_conditions
from envcheck.reports.explanation import Explanation, MissingAnswer, RefusedAnswer
from envcheck.rules import conditional, derive

STDIN = "-"


class LogOrigin(NamedTuple):
    """Command that wrote a log, and its exit code, negative for a signal.

    `named` is False if the environment was not named but found beside the command.
    """

    command: str
    code: int
    named: bool = True


class _Known(NamedTuple):
    """Knowledge that a log is explained with; `tree` is all of compat/."""

    all_probes: tuple[probes.Probe, ...]
    keys: Vocabulary
    matrix: Matrix
    tree: dict[str, Any]


class _LogText(NamedTuple):
    """A log as it was read: its events, its beginning, and notes on what could not be read."""

    log: Log
    head: str
    notes: tuple[str, ...]


class _Environment(NamedTuple):
    """Environment to judge, its name, notes on it, and diagnostics on configurations."""

    subject: str
    inventory: Inventory
    notes: tuple[str, ...]
    diagnostics: tuple[Diagnostic, ...]


# --- explaining -------------------------------------------------------------------------------------


def explain_log(request: ExamineRequest, name: str, host: Host) -> Explanation:
    """Explain the log of this name; `-` is standard input.

    Raises:
        InputError: it cannot be read, or an argument is wrong.
    """
    if name == STDIN:
        return explain_chunks(request, "standard input", read_standard_input(), host)
    return explain_chunks(request, name, read_chunks(name), host)


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
    tree = examine.source_tree()
    all_probes = probes.every_probe()
    keys = examine.vocabulary(all_probes)
    known = _Known(all_probes, keys, examine.load_matrix(keys, request.overlays), tree)

    text = _read(chunks, name, log_patterns(tree["tables"]))
    if origin is not None:
        text = text._replace(log=_with_end(text.log, origin.code))
    platform = environment.platform(_texts(text), tree["tables"])
    signatures = log_signatures.compile_signatures(tree["case"])
    if platform is not None:
        signatures = tuple(one for one in signatures if not _is_of_cuda(one, known.matrix))
    signatures = tuple(_with_kind_of_rule(one, known.matrix) for one in signatures)
    printed = _printed_facts(text, origin.command if origin else "", known)
    judged = _choose_environment(request, printed, host, known, elsewhere=platform is not None)
    if origin is not None and not origin.named:
        beside = judged.subject.replace("(named by --python)", "(beside the command)")
        judged = judged._replace(subject=beside)
    report = _report_on(request, judged, known.matrix)
    diagnosis = log_diagnosis.diagnose(text.log, signatures, partial(_may_be_about, known))
    diagnosis = _without_contradicted(diagnosis, text.log, report, tree["tables"])
    replaced = library_answers.replaced_method(diagnosis.cause) if diagnosis.cause else ()
    if replaced or _is_in_copy_of_library(diagnosis.cause, tree["tables"]):
        diagnosis = log_diagnosis.without_blame(diagnosis)
    missing = _missing(diagnosis, known, report.inventory)
    if missing is not None and diagnosis.cause is not None:
        diagnosis = diagnosis._replace(cause=_with_kind(diagnosis.cause, missing))
    library = None
    if diagnosis.cause is not None and (missing is None or missing.missing.kind == "argument"):
        library = library_answers.answer(diagnosis.cause, known.tree["tables"], text.head)
        if library is not None:
            diagnosis = diagnosis._replace(cause=library_answers.with_kind(diagnosis.cause, library))
    if diagnosis.cause is not None and library is None:
        cause = _with_kind_of_settings(diagnosis.cause)
        replaced = replaced if cause.kind != "setting" else ()
        diagnosis = diagnosis._replace(cause=cause)
    diagnosis, probable = _with_probable(diagnosis, report, known)
    here = {
        match.signature.case: _match_here(known.matrix.rule(match.signature.rule), report)
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
        _failed_in(diagnosis, tree["tables"]),
    )


def _failed_in(diagnosis: Diagnosis, tables: Mapping[str, Any]) -> str:
    """Return the package whose line failed, empty if it is torch, through which every training goes."""
    if diagnosis.cause is None or any(
        missing_names.is_of_lazy_import(raised.message) for raised in diagnosis.cause.event.exceptions[-1:]
    ):
        return ""
    distributions = {row["module"]: row["package"] for row in tables.get("import_name", ())}
    package = missing_names.package_of(diagnosis.cause.place, distributions)
    return "" if package == "torch" else package


def _without_contradicted(
    diagnosis: Diagnosis, log: Log, report: Report, tables: Mapping[str, Any]
) -> Diagnosis:
    """Return the diagnosis; if no known failure with the text of the cause can apply here, without them.

    They stay among the matches, and what else is known of the text then says what failed. A rule on the very
    name that is missing stays, because then the environment is not the one of the log.
    """
    cause = diagnosis.cause
    if cause is None or cause.match is None:
        return diagnosis
    home = log.events.index(cause.event)
    if library_answers.stated_package_that_takes(cause.event, report.inventory):
        refuted = [one for one in diagnosis.matches if one.event == home and not one.signature.rule]
        if cause.match in refuted:
            others = tuple(match for match in diagnosis.matches if match not in refuted)
            return log_diagnosis.without_match(diagnosis._replace(matches=others))
    alike = [match.signature.rule for match in diagnosis.matches if match.event == home]
    rules = [report.matrix.rule(rule) if rule else None for rule in alike]
    if any(rule is None or _match_here(rule, report).answer != "no" for rule in rules):
        return diagnosis
    missing = missing_names.missing_name(cause.event, tables)
    if missing is not None and any(rule in rules for rule in missing_names.rules_on(missing, report.matrix)):
        return diagnosis
    return log_diagnosis.without_match(diagnosis)


def _match_here(rule: Rule | None, report: Report) -> EnvironmentMatch:
    """Return whether a known failure applies to the judged environment, and if that is open, how likely."""
    here = log_diagnosis.match_environment(rule, report.inventory, report.judgement)
    if rule is None or here.answer != "unknown":
        return here
    habits = report.matrix.tables.habits
    return here._replace(likelihood=conditional.rule_likelihood(rule, report.inventory, habits))


def _refused(diagnosis: Diagnosis, tables: Mapping[str, Any]) -> tuple[RefusedAnswer, ...]:
    """Return the values of a configuration that the first cause names as refused, with advice."""
    if diagnosis.cause is None:
        return ()
    advice = {reason: row["advice"] for row in tables.get("refused_value", ()) for reason in row["reasons"]}
    values = refused_values.refused_values(diagnosis.cause.event)
    return tuple(RefusedAnswer(value, advice.get(value.kind, "")) for value in values)


def _with_probable(
    diagnosis: Diagnosis, report: Report, known: _Known
) -> tuple[Diagnosis, tuple[Finding, ...]]:
    """Return the broken errors that are probably the cause; the diagnosis then calls it one of versions."""
    cause = diagnosis.cause
    if cause is None or cause.match is not None or cause.kind not in ("unknown", "version"):
        return diagnosis, ()
    tables = known.tree["tables"]
    distributions = {row["module"]: row["package"] for row in tables.get("import_name", ())}
    packages = missing_names.packages_in(cause.event, distributions)
    probable = log_diagnosis.probable_findings(cause, report.judgement.findings, packages)
    return diagnosis._replace(cause=cause._replace(kind="version")) if probable else diagnosis, probable


def _texts(text: _LogText) -> Iterator[tuple[str, int]]:
    """Yield what is kept of a log, each piece with the number of its first line."""
    yield text.head, 1
    yield from ((event.text, event.first) for event in text.log.events)


def _is_of_cuda(signature: Signature, matrix: Matrix) -> bool:
    """Return whether a known failure concerns NVIDIA's driver, its GPUs or CUDA."""
    rule = matrix.rule(signature.rule) if signature.rule else None
    if rule is None:
        texts = (signature.title, signature.advice, *(pattern.pattern for pattern in signature.patterns))
        return bool(_OF_CUDA.search(" ".join(texts)))
    keys = [clause.key for table in rule.when for clause in table]
    return any(key.startswith(("cuda.", "driver.", "gpu.", "gpus.", "nccl.")) for key in keys)


_OF_MISSING_NAMES = frozenset(
    {"ImportError", "ModuleNotFoundError", "AttributeError", "NameError", "TypeError"}
)


def _may_be_about(known: _Known, signature: Signature, event: Event) -> bool:
    """Return whether a rule's failure may be what an event is about.

    A missing name or parameter is missing where it is asked for: if the traceback shows the libraries that it
    goes through, at least one package of the rule is among them or is named in the message. torch does not
    count, because every training goes through it; nor does, if the user's own code asks, the package that
    lacks the name, because then a rule on another package that asks it for the same name is beside the point.
    """
    rule = known.matrix.rule(signature.rule) if signature.rule else None
    if rule is not None and _is_on_releases_of_models(rule) and _is_of_no_release(event, known):
        return False
    last = event.exceptions[-1].name.rpartition(".")[2] if event.exceptions else ""
    if rule is None or last not in _OF_MISSING_NAMES:
        return True
    imports = known.tree["tables"].get("import_name", ())
    distributions = {row["module"]: row["package"] for row in imports}
    frames = missing_names.packages_in(event, distributions) - {"torch"}
    packages = {package_name(clause.key) for table in rule.when for clause in table if "pkg." in clause.key}
    packages -= {"torch"}
    missing = missing_names.missing_name(event, known.tree["tables"])
    others = packages - {missing.lacks} if missing is not None and missing.own else set()
    if others:
        packages = others
    elif not frames or not packages:
        return True
    if frames & packages:
        return True
    names = packages | {row["module"] for row in imports if row["package"] in packages}
    said = event.text.lower().replace("_", "-")
    return any(name.lower().replace("_", "-") in said for name in names)


def _is_on_releases_of_models(rule: Rule) -> bool:
    """Return whether a rule says from which release on transformers has a model."""
    return any("{train.minimum_transformers}" in str(clause.raw) for table in rule.when for clause in table)


def _is_of_no_release(event: Event, known: _Known) -> bool:
    """Return whether an exception names a type of model that no release of transformers has."""
    types = {row["model_type"] for row in known.tree["tables"].get("model", ())}
    refused = {refused_model_type(raised.message) for raised in event.exceptions} - {""}
    return bool(refused) and not refused & types


def _with_kind_of_rule(signature: Signature, matrix: Matrix) -> Signature:
    """Return a signature; if its rule is about training facts alone, its kind is a setting, not versions."""
    rule = matrix.rule(signature.rule) if signature.rule else None
    if rule is None or signature.kind != "version":
        return signature
    keys = {clause.key for table in rule.when for clause in table}
    return signature._replace(kind="setting") if all(key.startswith("train.") for key in keys) else signature


_OF_CUDA = re.compile(r"(?i)cuda|nvidia|nccl|nvcc|cudnn|cublas")


def _with_kind(cause: Cause, missing: MissingAnswer) -> Cause:
    """Return the cause; if no signature matched it, set its kind by the missing name."""
    if cause.match is not None or cause.kind not in ("unknown", "code"):
        return cause
    name = missing.missing
    between_packages = bool(name.asks and name.lacks and name.asks != name.lacks)
    if (kind := _kind_by_import(cause, missing)) is not None:
        return cause._replace(kind=kind)
    if name.kind == "module" and not name.installed:
        return cause._replace(kind="missing") if name.asks or missing.is_known else cause
    known_to_differ = bool(missing.rules or missing.ranges)
    if _may_be_another_module(name) and not known_to_differ:
        return cause._replace(kind="unknown")
    return cause._replace(kind="version") if between_packages or known_to_differ else cause


def _kind_by_import(cause: Cause, missing: MissingAnswer) -> str | None:
    """Return the kind of a failed import if it is not one of releases or of what is installed at all."""
    name = missing.missing
    if name.half:
        return "unknown" if name.asks else "code"
    if name.folder or _of_own_installation(cause, name):
        return "missing"
    if missing.own_file:
        return "code"
    return "unknown" if missing.always else None


def _of_own_installation(cause: Cause, missing: MissingName) -> bool:
    """Return whether a package that is installed asks for a module of its own, which its releases have."""
    if missing.kind != "module" or not missing.asks or missing.asks != missing.lacks or cause.place is None:
        return False
    file = cause.place.file.replace("\\", "/")
    return "-packages/" in file or "/bin/" in file


def _is_in_copy_of_library(cause: Cause | None, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> bool:
    """Return whether the failing line is in a library's code that a project brings and may have changed."""
    if cause is None or cause.place is None:
        return False
    file = f"/{cause.place.file}".replace("\\", "/")
    return any(
        f"/{row['package']}/{folder}/" in file
        for row in tables.get("library_copy", ())
        for folder in row["folders"]
    )


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


def _may_be_another_module(missing: MissingName) -> bool:
    """Return whether a file or folder of the same name may have been imported instead of the package."""
    return missing.of_any_module and missing.lacks != "torch"


def _missing(diagnosis: Diagnosis, known: _Known, inventory: Inventory) -> MissingAnswer | None:
    """Return the name that the first cause lacks, and which releases are known to lack or have it."""
    cause = diagnosis.cause
    tables = known.tree["tables"]
    missing = missing_names.missing_name(cause.event, tables) if cause else None
    if missing is None:
        return None
    rules = tuple(missing_names.rules_on(missing, known.matrix)) if missing.installed else ()
    published = {
        normalised(row["package"]) for name in ("release", "import_name") for row in tables.get(name, ())
    }
    read = known.matrix.atlas().releases
    is_known = missing.lacks in published or missing.lacks == "torch" or missing.lacks in read
    is_known = is_known or missing.lacks in library_answers.texts_in("names")
    ranges = tuple(missing_names.ranges_with(missing, tables))
    if missing.installed:
        asked = tuple(missing_names.ranges_in_atlas(missing, known.matrix.atlas()))
        named = [*missing_names.ranges_in_names(missing, library_answers.text_of("names", missing.lacks))]
        # Where a guard skips the import, releases may lack the name as well, so a row with gaps says less.
        paths = {each.partition(": ")[0] for each in named}
        asked = tuple(
            row for row in asked if row.partition(": ")[0] not in paths or "," not in row.partition(";")[0]
        )
        ranges += (*(each for each in named if not any(row.startswith(each) for row in asked)), *asked)
    calls = tuple(missing_names.ranges_of_overrides(missing, known.matrix.atlas()))
    version = inventory.known(package_key(missing.lacks)) if missing.lacks else None
    text = library_answers.text_of("names", missing.lacks) if version and missing.kind == "name" else ""
    has_it = bool(text) and release_has(text, missing.module, missing.name, str(version))
    takes = ""
    if missing.kind == "argument" and cause is not None and cause.match is None:
        takes = library_answers.stated_package_that_takes(cause.event, inventory)
    always = not version and _always_has(missing, ranges)
    return MissingAnswer(missing, rules, ranges, is_known, calls, has_it, takes, always)


_SINCE = re.compile(r": in \S+ from (\d[\w.]*) on(?= \(|;|$)")
_LEAST = re.compile(r"(?:>=|==|~=)(\d[\w.]*)")


def _always_has(missing: MissingName, ranges: Sequence[str]) -> bool:
    """Return whether every release of one package that another accepts has the name that it asks for.

    Then its release is not why the name is missing.
    """
    since = [found[1] for row in ranges if (found := _SINCE.search(row))]
    if missing.kind != "name" or not missing.asks or not since or len(since) != len(ranges):
        return False
    from envcheck.commands.atlas_tables import release_table
    from envcheck.knowledge.requirement_windows import requirements_of

    table = release_table()
    least = [
        bound[1]
        for release in table.versions(missing.asks)
        for asked in requirements_of(missing.asks, release, table, {})
        if asked.requires == missing.lacks and (bound := _LEAST.search(asked.specifier))
    ]
    return bool(least) and all(compare(one, ">=", first) is Tri.YES for one in least for first in since)


def _report_on(request: ExamineRequest, judged: _Environment, matrix: Matrix) -> Report:
    """Judge the environment as `doctor` does, with fixes; a matrix without rules is not an error here."""
    inventory = derive.derive(judged.inventory, matrix)
    target = examine.find_target(request.target, matrix)
    judgement = examine.judge_inventory(inventory, matrix, target)
    judgement = examine.add_fixes(judgement, judged.inventory, inventory, matrix, target)
    report = Report(__version__, judged.subject, inventory, judgement, matrix, target)
    return report._replace(diagnostics=judged.diagnostics)


# --- running a command ------------------------------------------------------------------------------


class FinishedCommand(NamedTuple):
    """How a command ended: its exit code (negative for a signal), and the explanation of a failure.

    `trouble` says why a failure could not be explained.
    """

    code: int
    explanation: Explanation | None = None
    trouble: str = ""


def run(request: ExamineRequest, command: Sequence[str], host: Host) -> FinishedCommand:
    """Run a command and pass everything through; if it fails by itself, explain what it printed.

    Raises:
        EnvcheckError: an argument is wrong; the command was not started.
        OSError: the command does not exist or may not be run.
    """
    _refuse_wrong_request(request, host)
    kept = pty_passthrough.KeptOutput()
    ended = pty_passthrough.run(command, host.environ, kept)
    if ended.code == 0 or ended.signals or -ended.code in pty_passthrough.NO_FAILURE:
        return FinishedCommand(ended.code)
    beside = None
    if request.python is None and request.facts is None:
        beside = _python_beside(command[0], host)
    if beside is not None:
        request = request._replace(python=beside)
    name = f"what {command[0].rpartition('/')[2]} printed"
    origin = LogOrigin(shlex.join(command), ended.code, named=beside is None)
    try:
        explanation = explain_chunks(request, name, kept.pieces(), host, origin)
    except Exception as error:  # noqa: BLE001 - a fault of ours must not hide the command's exit code
        return FinishedCommand(ended.code, trouble=str(error) or type(error).__name__)
    return FinishedCommand(ended.code, explanation)


def _refuse_wrong_request(request: ExamineRequest, host: Host) -> None:
    """Check everything that the request names before the command starts, which may take hours.

    Raises:
        EnvcheckError: something named is missing, or wrong.
    """
    if request == ExamineRequest(deadline_s=request.deadline_s):
        return
    keys = examine.vocabulary(probes.every_probe())
    matrix = examine.load_matrix(keys, request.overlays)
    inventory = Inventory()
    for file in () if request.facts is None else (request.facts, *request.more_facts):
        inventory = examine.read_facts(file, keys)
    examine.complete_inventory(inventory, request, matrix)
    if request.python is not None:
        from envcheck.probes import python_env

        python_env.interpreter(host, probes.ProbeRequest(Path(request.python)))


def _with_end(log: Log, code: int) -> Log:
    """Add the end of the process that wrote the log as its last event.

    It is a root cause only for a signal, and only if the log names none: torchrun's report on its ranks
    counts before it.
    """
    text = f"exit code {code}"
    if code < 0:
        text = f"killed by signal {-code}\ntraceback : Signal {-code} ({signal_name(-code)})"
    numbers = tuple(log.lines + 1 for _ in text.split("\n"))
    root = code < 0 and not any(event.root for event in log.events)
    end = Event("ended", numbers, text, code=code, root=root, again=log.lines + 1)
    return log._replace(events=(*log.events, end))


def _python_beside(program: str, host: Host) -> str | None:
    """Return the interpreter beside a program, such as an environment's own torchrun; None without one."""
    import shutil

    found = shutil.which(program, path=host.environ.get("PATH"))
    python = Path(found).parent / "python" if found else None
    return str(python) if python and python.is_file() else None


# --- reading the log --------------------------------------------------------------------------------

_HEAD = 2 << 20
"""Bytes at the beginning of a log that are searched for what it prints about its environment."""


def _read(chunks: Iterable[bytes | Gap], name: str, patterns: LogPatterns) -> _LogText:
    scanner = log_scanner.Scanner(patterns)
    head = bytearray()
    notes: list[str] = []
    try:
        for chunk in _as_utf8(_unpacked(chunks, notes.append)):
            if isinstance(chunk, Gap):
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
        notes.append("interrupted: the rest of the log was not read")
    log = scanner.finish()
    if log.crowded:
        notes.append("more kinds of errors than can be kept: only the first and the last ones are considered")
    return _LogText(log, plain(bytes(head)), tuple(notes))


_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
"""How a file begins to which PowerShell of Windows redirects output."""


def _as_utf8(chunks: Iterable[bytes | Gap]) -> Iterator[bytes | Gap]:
    """Yield the chunks of a log; those of one in UTF-16 as UTF-8."""
    chunks = iter(chunks)
    decoder = codecs.getincrementaldecoder("utf-16")("replace")
    for number, chunk in enumerate(chunks):
        if isinstance(chunk, Gap) or (number == 0 and not chunk.startswith(_UTF16)):
            yield chunk
            yield from chunks
            return
        yield decoder.decode(chunk).encode("utf-8", "replace")


_GZIP = b"\x1f\x8b"


def _unpacked(chunks: Iterable[bytes | Gap], note: Callable[[str], None]) -> Iterator[bytes | Gap]:
    """Yield the chunks, or as much of a gzip file's content as can be read."""
    import zlib

    decompressor = None
    chunks = iter(chunks)
    for number, chunk in enumerate(chunks):
        if isinstance(chunk, Gap) or (number == 0 and not chunk.startswith(_GZIP)):
            yield chunk
            yield from chunks
            return
        left = chunk
        while left:
            decompressor = decompressor or zlib.decompressobj(wbits=31)
            try:
                text = decompressor.decompress(left, files.CHUNK)
            except zlib.error:
                note("its gzip data is damaged: only the part before the damage was read")
                return
            if text:
                yield text
            left = decompressor.unconsumed_tail or decompressor.unused_data.lstrip(b"\0")
            decompressor = None if decompressor.eof else decompressor
    if decompressor is not None:
        note("its gzip data is truncated: only the part before the end was read")


_SAMPLE = 1 << 16
_CONTROLS = bytes({*range(32)} - {*b"\t\n\r\f\b\x1b\x07"})
_TEXT_PER_CONTROL = 20
"""The least bytes per control character in text.

A log that a crash cut off contains a few; random bytes contain about 2 in 20.
"""


def _refuse_binary(chunk: bytes, name: str) -> None:
    sample = chunk[:_SAMPLE]
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    if controls * _TEXT_PER_CONTROL > len(sample):
        raise InputError(name, "expected the text of a log, found binary data")


# --- the environment of the log ---------------------------------------------------------------------


def _printed_facts(text: _LogText, command: str, known: _Known) -> Inventory:
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


def _choose_environment(
    request: ExamineRequest, printed: Inventory, host: Host, known: _Known, *, elsewhere: bool
) -> _Environment:
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
        return _Environment(subject, completed, notes, diagnostics)
    elsewhere = elsewhere or bool(differing) or _has_other_gpus(printed, local)
    if not elsewhere and local.known("pkg.torch") is not None:
        return _Environment(subject, completed, (), diagnostics)
    own, diagnostics = examine.complete_inventory(printed, request, known.matrix)
    return _Environment(_subject_of_log(printed), own, (), diagnostics)


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
