"""The report of `envcheck explain`, as text and as JSON. Pure.

It gives the first cause of a failure, the known failures that match the log, and whether each of them applies
to this environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core.facts import Fact, normalised, package_key, package_name
from envcheck.core.findings import Finding, Report, Verbosity, Verdict
from envcheck.core.rules import Fix, Rule, Severity
from envcheck.core.sanitize import hide_secrets, inline
from envcheck.knowledge.log_signatures import KINDS
from envcheck.knowledge.members import Membership
from envcheck.logs.clashes import clashing_requirements
from envcheck.logs.diagnosis import Cause, Diagnosis, EnvironmentMatch, Match, checked_out, own_code
from envcheck.logs.environment import Platform
from envcheck.logs.events import Frame, Log, without_wrapper
from envcheck.logs.library_questions import asserted, expression_that_is_none, setting_that_is_none
from envcheck.logs.missing_names import PYTHON, MissingName
from envcheck.logs.refused_values import RefusedValue
from envcheck.reports import code_conditions
from envcheck.reports.formats.json import diagnostic_tree
from envcheck.reports.library_answer import LibraryAnswer, is_stated, library_lines, library_tree
from envcheck.reports.phrases import diagnostic_line, fix_commands, fix_text

SCHEMA_VERSION = 1

NOTHING, FAILED, UNEXPLAINED = 0, 1, 3
"""Exit codes: the log shows no failure; a failure with a known cause; a failure whose cause is not known."""

_SHORT, _LONG = 160, 400  # characters shown of one line of a log
_FEW = 3  # ranges and rules shown for a missing name
_LISTED = 6  # items shown of a long list


class MissingAnswer(NamedTuple):
    """A missing name, the rules about it, and in words the ranges of releases that have it.

    `is_known` means that envcheck knows the package that lacks the name. `calls` says which releases call a
    method with the argument that it does not take, and which releases define the method so. `has_it` says
    that the release of the judged environment has the name, and `takes` is the package whose release there
    takes the argument. `always` says that every release that the asking package accepts has the name.
    """

    missing: MissingName
    rules: tuple[Rule, ...] = ()
    ranges: tuple[str, ...] = ()
    is_known: bool = False
    calls: tuple[str, ...] = ()
    has_it: bool = False
    takes: str = ""
    always: bool = False

    @property
    def own_file(self) -> bool:
        """Return whether the module that lacks the name is a file of the user's."""
        return bool(self.missing.file) and own_code(Frame(self.missing.file, 0, ""))


class RefusedAnswer(NamedTuple):
    """A value of a configuration that pydantic refuses, and what to do about it, if that is known."""

    value: RefusedValue
    advice: str = ""


class Explanation(NamedTuple):
    """A log, its diagnosis, and whether the conditions of its known failures are met.

    `subject` describes the environment; `report` holds its inventory and the known failures. `here` maps the
    case of a signature to whether its conditions are met there. `notes` lists what could not be read of the
    log. `printed` are facts taken from the log itself. `platform` is the log's platform if it is not
    NVIDIA's. `missing` is set if the cause is a missing name, `library` if the code of a library raises its
    message or lacks what it asks for. `probable` are broken errors of the environment that name what the
    message names. `refused` are values of a configuration that its checks refuse. `replaced` are methods of
    libraries in whose place the user's function that raised may stand. `failed_in` is the package whose line
    failed, empty if it is torch or not known.
    """

    name: str
    log: Log
    diagnosis: Diagnosis
    subject: str
    report: Report
    here: Mapping[str, EnvironmentMatch]
    notes: tuple[str, ...] = ()
    printed: tuple[Fact, ...] = ()
    platform: Platform | None = None
    missing: MissingAnswer | None = None
    library: LibraryAnswer | None = None
    probable: tuple[Finding, ...] = ()
    refused: tuple[RefusedAnswer, ...] = ()
    replaced: tuple[Membership, ...] = ()
    failed_in: str = ""

    @property
    def code(self) -> int:
        """Return the exit code: `NOTHING`, `FAILED` or `UNEXPLAINED`."""
        if not self.diagnosis.failed:
            return NOTHING
        cause = self.diagnosis.cause
        return FAILED if cause and cause.kind not in ("unknown", "open") else UNEXPLAINED


# --- for people ---------------------------------------------------------------------------------------


def render(explanation: Explanation, verbosity: Verbosity = Verbosity.USUAL) -> str:
    """Return the report as text: the answer in one line, then the reasons; `verbosity` sets the detail."""
    lines = [_headline(explanation)]
    if verbosity is not Verbosity.VERDICT:
        lines += _lines(explanation, in_full=verbosity is Verbosity.ALL)
    return "".join(f"{inline(line)}\n" for line in lines)


def _headline(explanation: Explanation) -> str:
    """Return the answer: the known failure that the log shows, what failed, or that nothing failed."""
    diagnosis = explanation.diagnosis
    cause = diagnosis.cause
    if not diagnosis.failed:
        return _headline_without_failure(explanation)
    if cause is None:
        first = event_text(diagnosis.consequences[0], _SHORT)
        return f"Failed elsewhere; this log contains only consequences: {first}"
    known = _ranked(_of_the_cause(cause, explanation), explanation)
    if known and cause.match is not None:
        return _known_headline(known, cause, explanation)
    if explanation.missing is not None:
        return f"Failed: {_missing_sentence(explanation.missing, explanation)}"
    unknown = ", cause not known" if explanation.code == UNEXPLAINED else ""
    return f"Failed{unknown}: {event_text(cause, _SHORT)}{_who_has_attribute(explanation)}"


def _headline_without_failure(explanation: Explanation) -> str:
    if explanation.diagnosis.survived:
        return "No failure ended this run: after those below, it trained to its end."
    return f"No failure found in {'what was read' if explanation.notes else 'this log'}."


def _who_has_attribute(explanation: Explanation) -> str:
    """Return in brackets which releases have the attribute that is missing; empty if that is not known."""
    members = explanation.library.members if explanation.library else ()
    if not members or members[0].has.startswith("(") or members[0].derived:
        return ""
    has = members[0]
    if is_stated(has, explanation.report.inventory):
        return f" ({_with_version(has.package, explanation.report)} has it: another release of it ran)"
    return f" ({has.package} has it: {has.releases})"


def _known_headline(known: Sequence[Match], cause: Cause, explanation: Explanation) -> str:
    """Return the answer if the cause matches known failures; the best comes first."""
    match = known[0]
    here = _match_here(match, explanation).answer
    title = f"{_title(match, explanation)} [{_id(match)}]"
    alike = len({_id(one) for one in known if _is_alike(one, match, explanation)})
    if here == "yes":
        return f"Known failure, and it applies here: {title}"
    if here == "no":
        return f"Failed; the known failure that it resembles does not apply here: {event_text(cause, _SHORT)}"
    if match.signature.ambiguous or not _shows_loop(match, cause, explanation):
        return f"Failed: {event_text(cause, _SHORT)}. Possible problem: {title}"
    if match.signature.kind == "open":
        return f"Failed; several causes have this text: {title}"
    if alike > 1:
        return f"Known failure, the likeliest of {alike} with this text: {title}"
    return f"Known failure: {title}"


_LOOPS = frozenset({"transformers", "accelerate", "trl"})
"""Packages whose training loop calls into the others."""


def _shows_loop(match: Match, cause: Cause, explanation: Explanation) -> bool:
    """Return whether a traceback shows one of the training loops that a rule is about, if it is about one.

    Without their releases, a traceback in which the user's own code calls the library that raised leaves open
    whether such a loop took part. A log without a traceback shows nothing against it.
    """
    rule = explanation.report.matrix.rule(match.signature.rule) if match.signature.rule else None
    text = cause.event.text
    if rule is None or _match_here(match, explanation).answer != "unknown" or 'File "' not in text:
        return True
    tables = [
        {package_name(clause.key) for clause in table if clause.key.startswith("pkg.")} for table in rule.when
    ]
    return any(not names & _LOOPS or names <= _LOOPS for names in tables) or any(
        f"/{name}/" in text for names in tables for name in names & _LOOPS
    )


def _is_alike(match: Match, best: Match, explanation: Explanation) -> bool:
    """Return whether the text of a known failure is that of the best one, and no fact tells them apart."""
    answers = {_match_here(one, explanation).answer for one in (match, best)}
    return answers == {"unknown"} and match.signature.patterns == best.signature.patterns


def _id(match: Match) -> str:
    """Return what `envcheck rule` and a reader call a known failure: its rule, or its case."""
    return match.signature.rule or match.signature.case


def _lines(explanation: Explanation, *, in_full: bool) -> Iterator[str]:
    """Yield the lines after the headline; `in_full` adds reasons, scores and sources."""
    diagnosis = explanation.diagnosis
    if diagnosis.failed:
        if diagnosis.cause is None or diagnosis.cause.match is None:
            yield ""
        if diagnosis.cause is None:
            yield from _only_consequences(explanation)
            known = [match for match in diagnosis.matches if _names_a_cause(match)]
            yield from _known(known, explanation, in_full=in_full)
        else:
            yield from _cause(diagnosis.cause, explanation, in_full=in_full)
    yield from _others(explanation)
    if diagnosis.failed:
        yield from _known_of_the_versions(explanation)
    if explanation.code == UNEXPLAINED and not (diagnosis.cause and diagnosis.cause.match):
        yield from _where_to_look(explanation)
    yield ""
    yield f"judged  {explanation.subject}"
    yield f"log     {explanation.name}: {_size(explanation.log)}  envcheck {explanation.report.version}"
    for note in explanation.notes:
        yield f"note    {note}"
    if (platform := explanation.platform) is not None:
        yield f"log of  {platform.name} (line {platform.line}): not compared with failures of CUDA"
    for diagnostic in explanation.report.diagnostics:
        yield f"remark  {diagnostic_line(diagnostic)}"


def _where_to_look(explanation: Explanation) -> Iterator[str]:
    """Yield what to look at if the cause is not known."""
    yield ""
    if any(_may_be_the_cause(match, explanation) for match in explanation.diagnosis.matches):
        yield "One of the known failures above may be the cause."
    if package := explanation.failed_in:
        yield f"The line that failed is in {package}: its newest release or its issues may know it."
    yield "No known failure matches; envcheck doctor judges environment and configuration."


def _size(log: Log) -> str:
    size = f"{log.size / 1e6:.1f} MB" if log.size >= 1e6 else f"{log.size / 1e3:.1f} kB"  # noqa: PLR2004
    return f"{log.lines} line{'s' * (log.lines != 1)}, {size}"


def _cause(cause: Cause, explanation: Explanation, *, in_full: bool) -> Iterator[str]:
    """Yield what is known of a cause, with its fixes first if a signature matched it, and where it is."""
    known = [*_known(_of_the_cause(cause, explanation), explanation, in_full=in_full)]
    if cause.match is not None:
        yield from known
        yield ""
    yield f"✗ first cause  {_where(cause, explanation.log)}: {event_text(cause)}"
    if cause.place:
        yield f"    raised  {frame_text(cause.place)}"
    if cause.later:
        yield f"    became  {_became(cause)}"
    if cause.event.times > max(1, len(cause.event.ranks)):
        yield f"    again   {cause.event.times} times, last in line {cause.event.again}"
    yield f"    kind    {_kind(cause)}"
    yield from _replaced_lines(explanation.replaced)
    yield from _none_lines(cause)
    if explanation.library is None:
        yield from _assertion_lines(cause)
    yield from _refused_lines(explanation)
    yield from _form(cause, explanation)
    yield from _missing_lines(explanation)
    means = cause.event.form is not None and cause.event.form.means and not in_full
    if explanation.library is not None and not (means and explanation.library.raises):
        message = cause.event.exceptions[0].message if cause.event.exceptions else ""
        yield from library_lines(explanation.library, explanation.report.inventory, message)
    for found in explanation.probable[:_FEW]:
        yield f"  probable cause  {_title_of(found.rule, explanation)} [{found.rule.id}]"
        yield from _fixes(found.rule, EnvironmentMatch("yes", (), found.fixes, found), explanation)
    if cause.match is None:
        yield from known
    if cause.match is None:
        yield from _resembling_or_general(cause, explanation)


def _became(cause: Cause) -> str:
    """Return what was raised after the told exception, the last with its message if that says more."""
    names = " → ".join(dict.fromkeys(_bare(one.name) for one in cause.later))
    said = hide_secrets(without_wrapper(cause.later[-1].message)[:_LONG])
    told = cause.told.message if cause.told is not None else ""
    repeats = not said or (bool(told) and told[:40] in said)
    return names if repeats else f"{names}: {said[:_SHORT]}"


def _resembling_or_general(cause: Cause, explanation: Explanation) -> Iterator[str]:
    """Yield which known failures resemble a cause, and what its class usually means, if no more is known."""
    if explanation.missing or explanation.library or (cause.event.form and cause.event.form.means):
        return
    if explanation.diagnosis.partial:
        yield from _resembling(explanation)
    if not (explanation.probable or explanation.replaced or cause.kind == "setting"):
        yield from _general_lines(cause)


def _general_lines(cause: Cause) -> Iterator[str]:
    """Yield what failures of this class usually mean, called general because nothing more is known."""
    if cause.event.general is not None:
        yield f"    general {cause.event.general.means}"
        yield f"    advice  {cause.event.general.advice}"


def _none_lines(cause: Cause) -> Iterator[str]:
    """Yield which expression is None, and what to do if it is a setting that has no value."""
    if none := expression_that_is_none(cause.event):
        yield f"    None is {none}"
    if cause.kind == "setting" and (setting := setting_that_is_none(cause.event)):
        meant = "set it (an empty list or dictionary, if that is meant)"
        yield (
            f"    advice  {setting} has no value here: {meant}; where the documentation says that it may be "
            "left out, a newer release of the code may allow that"
        )


def _assertion_lines(cause: Cause) -> Iterator[str]:
    """Yield what an `assert` that the log shows found, and the settings that it depends on."""
    condition = f"unless {asserted(cause.event)}"
    settings = code_conditions.settings_of_assertion(condition, cause.place.name if cause.place else "")
    if cause.match is not None or not settings:
        return
    yield f"    when    {code_conditions.in_words(condition)}"
    change = "one of them" if settings[1:] else "it"
    yield f"    advice  this depends on {', '.join(settings)}: change {change}"


def _replaced_lines(replaced: Sequence[Membership]) -> Iterator[str]:
    """Yield which trainers have a method of the name of the user's function, and what that means."""
    for package in [*dict.fromkeys(has.package for has in replaced)][:_FEW]:
        of_package = [has for has in replaced if has.package == package]
        owners = ", ".join(f"{has.owner} ({has.releases})" for has in of_package[:_FEW])
        more = f" and {len(of_package) - _FEW} more" if len(of_package) > _FEW else ""
        yield f"    method  {package} has {of_package[0].has} in {owners}{more}"
    if replaced:
        yield "    advice  if yours stands in its place, install a release that it was written for"


def _of_the_cause(cause: Cause, explanation: Explanation) -> list[Match]:
    """Return the known failures that match the cause."""
    index = explanation.log.events.index(cause.event)
    return [match for match in explanation.diagnosis.matches if match.event == index]


def _only_consequences(explanation: Explanation) -> Iterator[str]:
    """Yield the lines for a log with only consequences, such as time-outs of peers."""
    first = explanation.diagnosis.consequences[0]
    yield f"✗ failed  {_where(first, explanation.log)}: {event_text(first)}"
    yield "    kind    follows from a failure elsewhere: the log of the rank that failed first says why"
    if first.match and first.match.signature.advice:
        yield f"    advice  {first.match.signature.advice}"
    yield from _form(first, explanation)


def _refused_lines(explanation: Explanation) -> Iterator[str]:
    """Yield the settings whose values are refused, each with what to do about it."""
    for answer in explanation.refused[:_LISTED]:
        value = answer.value
        yield f"    setting {f'{value.field}: ' if value.field else ''}{hide_secrets(value.reason)[:_LONG]}"
        if answer.advice:
            yield f"    advice  {answer.advice}"
    if (more := len(explanation.refused) - _LISTED) and more > 0:
        yield f"    and {more} more"


_OF_INSTALLERS = frozenset({"version", "unknown", "open"})
_INSTALLS = re.compile(
    r"(?i)\b(?:pip|uv|poetry|conda|mamba|resolv\w+|depends on|incompatible|but you have)\b"
)
"""Kinds of failures in whose text sentences such as `a requires b` name requirements that may clash."""


def _form(cause: Cause, explanation: Explanation) -> Iterator[str]:
    """Yield the meaning of the line's form, or of the signal that ended a process, and the advice for it.

    A general advice is left out if the refused settings themselves are listed.
    """
    form = cause.event.form
    if form is None or (cause.match is not None and not _leaves_open(cause, explanation)):
        return
    if form.means:
        yield f"    means   {form.means}"
    if form.kind in _OF_INSTALLERS and _INSTALLS.search(cause.event.text):
        for requirement in clashing_requirements(cause.event.text)[:_LISTED]:
            yield f"    clash   {requirement}"
    if form.advice and not explanation.refused:
        yield f"    advice  {form.advice}"


def _leaves_open(cause: Cause, explanation: Explanation) -> bool:
    """Return whether the known failures that match a cause have no fix, because facts are missing."""
    known = [_match_here(match, explanation) for match in _of_the_cause(cause, explanation)]
    return all(here.answer == "unknown" and not here.fixes for here in known)


def _missing_lines(explanation: Explanation) -> Iterator[str]:
    """Yield which package asks for a missing name, which lacks it, and what is known of releases with it."""
    answer = explanation.missing
    cause = explanation.diagnosis.cause
    for words in answer.calls[:_FEW] if answer else ():
        yield f"    calls   {words}"
    if answer is None or cause is None or cause.match is not None:
        return
    yield f"    missing {_missing_sentence(answer, explanation)}"
    for words in answer.ranges[:_FEW]:
        yield f"    has it  {words}"
    for rule in answer.rules[:_FEW]:
        yield f"    rule    {_title_of(rule, explanation)} [{rule.id}]"
    missing = answer.missing
    if missing.kind == "module" and not missing.installed and answer.is_known:
        into = "into the environment that runs, with its own python -m pip"
        yield f"    advice  install {missing.lacks} {into}"
    elif (
        missing.kind == "module" and not missing.installed and cause.place and _BUILT.search(cause.place.file)
    ):
        first = f"install {missing.lacks} first (python -m pip install {missing.lacks})"
        yield f"    advice  {first}: without build isolation, a package is built with what is installed"
    means = cause.event.form and cause.event.form.means
    differ = answer.ranges and not (answer.has_it or answer.always or _of_itself(missing))
    known = differ or means
    if missing.installed and missing.kind != "argument" and not (missing.half or known):
        yield f"    advice  {_advice_on_module(answer)}"
    elif (
        cause.kind == "version"
        and answer.ranges
        and not (missing.half or means or missing.kind == "argument")
    ):
        fitting = f"{missing.asks} in one that fits" if missing.asks else "code that was written for"
        yield f"    advice  install {missing.lacks} in a release that has it, or {fitting} the installed one"


_BUILT = re.compile(r"[/\\](?:pip-install-|pip-req-build-|sdists-v\d)")
"""Part of the path of a package that pip or uv builds from its source."""


def _advice_on_module(answer: MissingAnswer) -> str:
    """Return what to do about a part of a package that no known release is known to have."""
    missing = answer.missing
    root = missing.module.partition(".")[0]
    if missing.folder or answer.always or answer.own_file:
        return _advice_on_what_is_imported(answer, root)
    if missing.own and _of_itself(missing):
        return (
            f"this checkout of {missing.lacks} lacks a file of its own: pull it, check out a release, or "
            "reset what was changed there"
        )
    if answer.has_it or _of_itself(missing):
        return (
            "restart the notebook's kernel or the process after an upgrade, and look for a folder "
            f"{root} beside the script or in the working directory that hides the package; if that does not "
            f"help, files of two releases lie in one folder: uninstall {missing.lacks} until pip finds none, "
            "and install it again"
        )
    if missing.lacks == PYTHON:
        return (
            f"if a file of yours is named {root}.py, rename it; otherwise see in Python's documentation "
            f"which releases have it, or take a release of {missing.asks or 'the code'} for this Python"
        )
    return _advice_on_another_release(answer, root)


def _advice_on_another_release(answer: MissingAnswer, root: str) -> str:
    """Return what to do if another release of the package may have the name, of which no release is known."""
    missing = answer.missing
    inside = "." in missing.module
    if inside and answer.is_known and _is_of_package(root, missing.lacks):
        return (  # no file of the user's has a path inside the package
            f"install {missing.lacks} in the release that the code was written for: a newer one if the name "
            "is new, an older one if it was removed; or upgrade what asks for it"
        )
    which = f'see which file is imported: python -c "import {root}; print({root}.__file__)". If it is a '
    if inside and not answer.is_known:
        return (
            f"{which}folder of the project, its checkout lacks the file: pull it; if it is another "
            "package's, uninstall that; otherwise install the package in the release that the code was "
            "written for"
        )
    package = missing.lacks if answer.is_known else "the package"
    return (
        f"{which}file of yours, or another package's, rename or uninstall that; otherwise install {package} "
        "in the release that the code was written for, which need not be the newest"
    )


def _advice_on_what_is_imported(answer: MissingAnswer, root: str) -> str:
    """Return what to do if the package that is imported is not the whole package."""
    lacks = answer.missing.lacks
    if answer.missing.folder:
        return (
            f"rename a folder {root} beside the script, in the working directory or on PYTHONPATH; if there "
            f"is none, an uninstalled {lacks} left its folder: delete that, and install it again"
        )
    if answer.own_file:
        hides = f" (it hides the package {lacks}: rename it)" if answer.is_known else ""
        return f"look there for the name, or for an import above it that failed{hides}"
    return (
        f'run python -c "import {root}" alone in this environment: an error that it shows is the cause. If '
        "it shows none, two threads or processes import it at once, or it is in a circle of imports; "
        f"otherwise uninstall {lacks} until pip finds none, and install it again"
    )


def _is_of_package(root: str, package: str) -> bool:
    """Return whether a module's root has the name of a package, or of the one that it extends."""
    return package == normalised(root) or package.startswith(f"{normalised(root)}-")


def _of_itself(missing: MissingName) -> bool:
    """Return whether a package asks itself for what it lacks: files of two of its releases are in use."""
    return bool(missing.asks) and missing.asks == missing.lacks and missing.kind in ("name", "module")


def _missing_sentence(answer: MissingAnswer, explanation: Explanation) -> str:
    """Return which package lacks a missing name and, if the log says so, which one asks for it.

    That releases differ is said of an argument only if they are known to.
    """
    missing = answer.missing
    report = explanation.report
    cause = explanation.diagnosis.cause
    differs = cause is not None and cause.kind == "version"
    if missing.half:
        library, own = (
            "an import of it failed before, or goes in a circle",
            "a circular import, or a file of yours with its name",
        )
        return f"{missing.module} was still being imported: {library if missing.asks else own}"
    asks = _with_version(missing.asks, report) if missing.asks else "your own code" if missing.own else ""
    if missing.kind == "argument" and answer.takes:
        release = _with_version(answer.takes, report)
        what = f"{missing.name} in {missing.module}()"
        return f"{release} takes {what}: another release of it, or another class of this name, is what ran"
    if missing.kind == "argument":
        here = " in this release" if differs else ""
        if not asks:
            return f"{missing.module}() does not take the argument {missing.name}{here}"
        return f"{asks} passes {missing.name} to {missing.module}(), which does not take it{here}"
    if missing.kind == "module" and not missing.installed:
        return _not_installed(answer, asks)
    return _lacking_sentence(answer, asks, explanation)


def _lacking_sentence(answer: MissingAnswer, asks: str, explanation: Explanation) -> str:
    """Return which package that is installed lacks a name or a module, and which one asks for it."""
    missing = answer.missing
    report = explanation.report
    cause = explanation.diagnosis.cause
    lacks = _with_version(missing.lacks, report)
    if said := _not_the_package(answer, asks, lacks):
        return said
    what = (
        f"the module {missing.module}" if missing.kind == "module" else f"{missing.name} of {missing.module}"
    )
    root = missing.module.partition(".")[0]
    release = f"this release of {lacks}" if lacks == missing.lacks else lacks
    if missing.lacks == PYTHON and cause is not None and cause.kind == "version":
        version = report.inventory.known("python.version")
        release = f"Python {version}" if version else "this release of Python"
    elif cause is not None and cause.kind == "unknown" and missing.of_any_module:
        release = f"the {root} that is imported"
        what = missing.name
    elif not answer.ranges and not answer.is_known and (root != root.lower() or "." in missing.module):
        # no usual name of a package, or a path inside something that may be a folder of the project
        release = f"the file or package that is imported as {root}"
    elif not answer.ranges and not _is_of_package(root, missing.lacks):
        release = f"this release of {lacks}, or another package that is imported as {root},"
    if _of_itself(missing):
        release = f"the {root} that is imported"
    if not asks:
        return f"{release} does not have {what}"
    return f"{asks} asks for {what}, which {release} does not have"


def _not_the_package(answer: MissingAnswer, asks: str, lacks: str) -> str:
    """Return what is said of a name that no release explains; empty if a release may."""
    missing = answer.missing
    if missing.folder:
        hidden = f"the {missing.module} that is imported is a folder without __init__.py"
        return f"{hidden}, not the package, and has no {missing.name}"
    if answer.own_file:
        file = hide_secrets(missing.file)
        return f"{asks or 'the code'} asks for {missing.name}, which the imported {file} does not have"
    if answer.has_it:
        return f"{lacks} has {missing.name} of {missing.module}: another release of it is imported"
    if answer.always:
        every = f"every release of {missing.lacks} that it accepts"
        what = "the package was imported in part only, or its installation is damaged"
        return f"{asks} asks for {missing.name} of {missing.module}, which {every} has: {what}"
    return ""


def _not_installed(answer: MissingAnswer, asks: str) -> str:
    missing = answer.missing
    package = "" if missing.lacks == missing.module else f", of the package {missing.lacks}"
    unknown = "" if answer.is_known or missing.asks else ", if it is not a file of yours"
    named = f"{missing.module}{package}{unknown}"
    if asks:
        return f"{asks} imports {named}, which is not installed"
    return f"{named}, is not installed" if "," in named else f"{named} is not installed"


def _with_version(package: str, report: Report) -> str:
    version = report.inventory.known(package_key(package)) if package else None
    return f"{package} {version}" if version else package


def _known_of_the_versions(explanation: Explanation) -> Iterator[str]:
    """Yield the broken error rules of this environment that no text of the log matches.

    Yield nothing if the cause itself matches a known failure.
    """
    cause = explanation.diagnosis.cause
    matched = {match.signature.rule for match in explanation.diagnosis.matches}
    matched |= {found.rule.id for found in explanation.probable}
    if cause is not None and cause.match is not None:
        return
    broken = [
        found
        for found in explanation.report.judgement.findings
        if found.verdict is Verdict.BROKEN
        and found.severity is Severity.ERROR
        and found.rule.id not in matched
    ]
    if broken:
        yield ""
        yield "known to fail with these versions, independent of this log:"
        yield from (f"  {_title_of(found.rule, explanation)} [{found.rule.id}]" for found in broken[:_LISTED])


def _kind(cause: Cause) -> str:
    if cause.kind == "code" and cause.match is None and cause.place is not None and own_code(cause.place):
        return "raised by a line of your own code"
    if cause.kind != "unknown":
        return KINDS[cause.kind]
    if cause.event.what == "ended":
        return "not known: the output of the process before it ended is not in the log"
    return "not known"


def _known(matches: Sequence[Match], explanation: Explanation, *, in_full: bool) -> Iterator[str]:
    """Yield the known failures that match, those that apply here first; each rule appears once.

    The headline has the title of the cause's best one already. A failure that is known by its text alone,
    from lines that a better one explains, adds nothing.
    """
    seen: set[str] = set()
    told: set[int] = set()
    cause = explanation.diagnosis.cause
    headed = cause is not None and cause.match is not None
    for match in _ranked(matches, explanation):
        answer = _match_here(match, explanation).answer
        if _id(match) in seen or (answer == "text" and not in_full and told.issuperset(match.lines)):
            continue
        if not headed or seen or answer == "no":
            yield ""
            yield f"  known  {_title(match, explanation)} [{_id(match)}]"
        seen.add(_id(match))
        if answer == "text":
            told.update(match.lines)
        yield from _match(match, explanation, in_full=in_full)


def _ranked(matches: Sequence[Match], explanation: Explanation) -> list[Match]:
    """Return the matches, those that apply here first."""
    return sorted(
        matches,
        key=lambda one: (
            _RANKED[_match_here(one, explanation).answer],
            -one.score,
            -_match_here(one, explanation).likelihood,
            one.lines,
        ),
    )


_RANKED = {
    "yes": 0,
    "text": 1,
    "unknown": 2,
    "no": 3,
}  # what its text alone proves goes before what may apply


def _match_here(match: Match, explanation: Explanation) -> EnvironmentMatch:
    return explanation.here.get(match.signature.case, EnvironmentMatch("text"))


def _title(match: Match, explanation: Explanation) -> str:
    rule = explanation.report.matrix.rule(match.signature.rule) if match.signature.rule else None
    if rule is not None and not _is_told_by_text(match, explanation):
        return _title_of(rule, explanation)
    return explanation.report.language.translate(match.signature.title)


def _is_told_by_text(match: Match, explanation: Explanation) -> bool:
    """Return whether the words of a known failure's text say more for certain than those of its rule.

    Without the facts that the rule asks for, its title would claim a cause that the text alone does not show.
    """
    return bool(match.signature.advice) and _match_here(match, explanation).answer == "unknown"


def _title_of(rule: Rule, explanation: Explanation) -> str:
    return explanation.report.language.title(rule.id, rule.title)


def _match(match: Match, explanation: Explanation, *, in_full: bool) -> Iterator[str]:
    """Yield what to do about a known failure and whether it applies here; `in_full` adds the reasons."""
    rule = explanation.report.matrix.rule(match.signature.rule) if match.signature.rule else None
    here = _match_here(match, explanation)
    if here.answer == "text" or rule is None:
        yield f"    advice  {match.signature.advice}"
        if in_full:
            yield "    here    known by its text; it does not depend on the environment"
            yield from _evidence(match, [source["url"] for source in match.signature.sources])
        return
    applies = here.answer != "no"
    language = explanation.report.language
    remedy = bool(rule.why and not rule.fixes)  # then only the reason says what to do
    if _is_told_by_text(match, explanation):
        yield f"    advice  {match.signature.advice}"
    elif applies and remedy:
        yield f"    advice  {language.why(rule.id, rule.why)}"
    if applies and not remedy:
        yield from _fixes(rule, here, explanation, in_full=in_full)
    if applies and in_full:
        yield from (f"    no fix  {fix_text(Fix(useless.set))} ({useless.why})" for useless in rule.no_fixes)
    yield f"    here    {_here_in_words(here)}"
    if applies and rule.why and not remedy and (in_full or not here.fixes):
        yield f"    why     {language.why(rule.id, rule.why)}"
    if applies and in_full:
        yield from _evidence(match, [f"{rule.basis.value}: {source.url}" for source in rule.sources])


def _evidence(match: Match, sources: Sequence[str]) -> Iterator[str]:
    """Yield the place in the log, how well it matches, and the sources."""
    yield f"    text    line {', '.join(map(str, match.lines[:_LISTED]))} (score {match.score:.2f})"
    yield from (f"    source  {source}" for source in sources)


def _here_in_words(here: EnvironmentMatch) -> str:
    told = [fact for fact in here.because if not fact.startswith("training.described")]
    facts = [re.sub(r"\bpkg\.", "", fact) for fact in told]
    if here.answer == "yes":
        return f"yes: {'; '.join(facts)}"
    if here.answer == "no":
        return (
            f"no: {'; '.join(facts)}. The log resembles it, but its conditions are not met here, "
            "so its fixes do not apply"
        )
    more = f" and {len(facts) - _FEW} more" if len(facts) > _FEW else ""
    missing = ", ".join(facts[:_FEW]) + more or "what it depends on"
    return f"cannot tell; not known: {missing} (--facts, --python, --train, --target)"


def _fixes(
    rule: Rule, here: EnvironmentMatch, explanation: Explanation, *, in_full: bool = False
) -> Iterator[str]:
    """Yield the first fix of a rule and its commands, or all with `in_full`."""
    if not here.fixes:
        outcome = (
            "none of the known fixes helps here" if here.answer == "yes" else "depends on what is missing"
        )
        yield f"    fix     {outcome if rule.fixes else 'none known'}"
    for fix in here.fixes if in_full else here.fixes[:1]:
        costs = [each.cost for each in rule.fixes]
        cost = f" ({explanation.report.language.cost(rule.id, costs, fix.cost)})" if fix.cost else ""
        condition = "" if here.answer == "yes" else "if it applies here: "
        yield f"    fix     {condition}{fix_text(fix)}{cost}"
        for command in fix_commands(fix, explanation.report):
            yield f"            $ {command}"
    if not in_full and (more := len(here.fixes) - 1) > 0:
        yield f"    or      {more} other fix{'es' * (more > 1)} (--verbose)"


def _resembling(explanation: Explanation) -> Iterator[str]:
    names = dict.fromkeys(one.signature.rule or one.signature.case for one in explanation.diagnosis.partial)
    listed = ", ".join([*names][:_LISTED])
    yield f"    near    these match in part: {listed} (envcheck rule ID)"


def _others(explanation: Explanation) -> Iterator[str]:
    diagnosis = explanation.diagnosis
    for title, causes in (
        ("consequences", diagnosis.consequences),
        ("failures after which the run continued", diagnosis.survived),
        ("not known to belong to it", diagnosis.apart),
    ):
        if causes:
            yield ""
            yield f"{title}:"
            yield from (
                f"  {_where(one, explanation.log)}: {_brief(one, explanation)}" for one in causes[:_LISTED]
            )
            if len(causes) > _LISTED:
                yield f"  and {len(causes) - _LISTED} more"
    cause_index = explanation.log.events.index(diagnosis.cause.event) if diagnosis.cause else -1
    listed = {one.event.first for one in (*diagnosis.consequences, *diagnosis.survived, *diagnosis.apart)}
    rest = [
        match
        for match in diagnosis.matches
        if match.event != cause_index
        and explanation.log.events[match.event].first not in listed
        and _names_a_cause(match)
    ]
    if rest and diagnosis.cause:
        yield ""
        yield "known failures elsewhere in the log:"
        for match in rest[:_LISTED]:
            answer = {
                "yes": "it applies here",
                "no": "does not apply here",
                "unknown": "unknown whether it applies here",
            }
            here = answer.get(_match_here(match, explanation).answer, "by its text")
            name = match.signature.rule or match.signature.case
            yield f"  line {match.lines[0]}: {_title(match, explanation)} [{name}]; {here}"


def _may_be_the_cause(match: Match, explanation: Explanation) -> bool:
    may = _names_a_cause(match) and match.signature.kind != "harmless"
    return may and _match_here(match, explanation).answer != "no"


def _names_a_cause(match: Match) -> bool:
    return match.signature.kind != "consequence"


def _where(cause: Cause, log: Log) -> str:
    ranks = cause.event.ranks
    who = f"rank {ranks[0]}, " if len(ranks) == 1 else f"ranks {_several(ranks)}, " if ranks else ""
    first, last = cause.event.first, cause.event.last
    if first > log.lines:
        return f"{who}the end"
    if cause.event.what == "stated":
        return f"{who}line {first}"
    return f"{who}line {first}" if first == last else f"{who}lines {first}-{last}"


def _several(ranks: Sequence[str]) -> str:
    more = f" and {len(ranks) - _LISTED} more" if len(ranks) > _LISTED else ""
    return ", ".join(ranks[:_LISTED]) + more


def event_text(cause: Cause, limit: int = _LONG) -> str:
    """Return the event of a cause in one line: the first exception, or the line that was recognised."""
    event = cause.event
    if (first := cause.told) is not None:
        message = without_wrapper(first.message) if limit == _SHORT else first.message
        text = f"{first.name}: {message}" if message else first.name
        text = message if message != first.message else text
    elif event.what == "raised":
        text = "a traceback whose exception is not in the log"
    elif event.what == "ended":
        text = " ".join(event.text.split("\n")[0].split())
    elif cause.match:
        texts = dict(zip(event.numbers, event.text.split("\n"), strict=False))
        text = _without_raise(texts.get(cause.match.lines[0], event.text.split("\n")[0]))
    else:
        text = _OF_LOGGERS.sub("", " ".join(event.text.strip().split("\n")[0].split()))
    text = hide_secrets(
        text[: 10 * limit]
    )  # longer than what is shown, so that a secret is recognised before the text is cut
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


_OF_LOGGERS = re.compile(r"^(?:\[[^\]]{1,120}\] ?){2,}(?=\S)")
"""What torch writes before a message: time, file and process group."""


def _without_raise(line: str) -> str:
    """Return a line; if it is the source `raise X("…")`, return the exception as it would be printed."""
    found = re.match(r"\s*raise ([\w.]+)\([fr]?[\"']?(.*?)[\"']?\)?$", line.strip())
    return f"{found[1]}: {found[2]}".rstrip(": ") if found else line.strip()


def _brief(cause: Cause, explanation: Explanation) -> str:
    known = f" ({_title(cause.match, explanation)})" if cause.match else ""
    return f"{event_text(cause, _SHORT)}{known}"


def _bare(name: str) -> str:
    return name.rpartition(".")[2]


def frame_text(frame: Frame) -> str:
    """Return a stack frame, its path relative to site-packages: `transformers/trainer.py:12 in train`."""
    file = frame.file
    for folder in ("site-packages/", "dist-packages/"):
        file = file.rpartition(folder)[2]
    if file == frame.file and own_code(frame):
        file = file.rpartition("/")[2]
    elif library := checked_out(file.replace("\\", "/")):
        file = f"{library}/{file.replace(chr(92), '/').rpartition(f'/{library}/')[2]}"
    return f"{file}:{frame.line}" + (f" in {frame.name}" if frame.name else "")


# --- for machines -------------------------------------------------------------------------------------


def tree(explanation: Explanation) -> dict[str, Any]:
    """Return the tree of the JSON report; `matches` has the best first, each with the lines of its texts."""
    diagnosis = explanation.diagnosis
    return {
        "schema_version": SCHEMA_VERSION,
        "envcheck": explanation.report.version,
        "log": {
            "name": explanation.name,
            "lines": explanation.log.lines,
            "bytes": explanation.log.size,
            "notes": list(explanation.notes),
        },
        "subject": explanation.subject,
        "platform": explanation.platform.name if explanation.platform else None,
        "missing": _missing_tree(explanation.missing) if explanation.missing else None,
        "probable": [found.rule.id for found in explanation.probable],
        "library": library_tree(explanation.library) if explanation.library else None,
        "remarks": [diagnostic_tree(one) for one in explanation.report.diagnostics],
        "failed": diagnosis.failed,
        "cause": _cause_tree(diagnosis.cause) if diagnosis.cause else None,
        "consequences": [_cause_tree(one) for one in diagnosis.consequences],
        "survived": [_cause_tree(one) for one in diagnosis.survived],
        "apart": [_cause_tree(one) for one in diagnosis.apart],
        "matches": [_match_tree(one, explanation) for one in diagnosis.matches],
        "resembles": [_match_tree(one, explanation) for one in diagnosis.partial],
        "facts_from_log": [
            {"key": fact.key, "value": fact.value, "source": fact.source}
            | {"why": getattr(fact.reading, "why", "")}
            for fact in explanation.printed
        ],
        "exit_code": explanation.code,
    }


def _missing_tree(answer: MissingAnswer) -> dict[str, Any]:
    missing = answer.missing
    return {
        "kind": missing.kind,
        "name": missing.name,
        "module": missing.module,
        "lacks": missing.lacks or None,
        "asks": missing.asks or None,
        "rules": [rule.id for rule in answer.rules],
    }


def _cause_tree(cause: Cause) -> dict[str, Any]:
    event = cause.event
    return {
        "kind": cause.kind,
        "what": "said" if event.what == "stated" else event.what,
        "said": event_text(cause),
        "ranks": list(event.ranks),
        "lines": [event.first, event.last],
        "times": event.times,
        "last_line": event.again,
        "exceptions": [
            {"name": one.name, "message": hide_secrets(one.message)}
            | ({"place": frame_text(one.place)} if one.place else {"place": None})
            for one in event.exceptions
        ],
        "exit_code": event.code,
        "clash": list(clashing_requirements(event.text)) if event.form else [],
        "means": (event.form.means if event.form else "") or None,
        "advice": (event.form.advice if event.form else "") or None,
        "general": f"{event.general.means}. {event.general.advice}" if event.general else None,
        "place": frame_text(cause.place) if cause.place else None,
        "root": event.root,
        "case": cause.match.signature.case if cause.match else None,
        "rule": (cause.match.signature.rule or None) if cause.match else None,
    }


_ANSWERS = {"yes": "yes", "no": "no", "unknown": "cannot tell", "text": None}


def _match_tree(match: Match, explanation: Explanation) -> dict[str, Any]:
    rule = explanation.report.matrix.rule(match.signature.rule) if match.signature.rule else None
    here = _match_here(match, explanation)
    cause = explanation.diagnosis.cause
    is_of_the_cause = cause is not None and explanation.log.events[match.event] is cause.event
    return {
        "rule": match.signature.rule or None,
        "case": match.signature.case,
        "title": rule.title if rule else match.signature.title,
        "kind": match.signature.kind,
        "score": match.score,
        "of_the_cause": is_of_the_cause,
        "fits_here": _ANSWERS[here.answer],
        "because": list(here.because),
        "lines": list(match.lines),
        "fix": [] if here.answer == "no" else [_fix_tree(fix, here, explanation) for fix in here.fixes],
        "no_fix": [{"set": dict(useless.set), "why": useless.why} for useless in rule.no_fixes]
        if rule
        else [],
        "advice": match.signature.advice or None,
        "sources": _sources(match, rule),
    }


def _fix_tree(fix: Fix, here: EnvironmentMatch, explanation: Explanation) -> dict[str, Any]:
    return {
        "text": fix_text(fix),
        "set": dict(fix.set),
        "cost": fix.cost,
        "tried": here.answer == "yes",
        "commands": list(fix_commands(fix, explanation.report)),
    }


def _sources(match: Match, rule: Rule | None) -> list[dict[str, str]]:
    if rule is not None:
        return [{"url": one.url, "kind": one.kind, "checked": one.checked} for one in rule.sources]
    return [{**one} for one in match.signature.sources]
