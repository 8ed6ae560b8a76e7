"""What is known of the first cause of a failure, line by line. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envcheck.core.sanitize import hide_secrets
from envcheck.knowledge.log_signatures import KINDS
from envcheck.knowledge.members import Membership
from envcheck.logs.clashes import ASKS_PYTHON, absent_releases, clashing_requirements, hints, what_is_asked
from envcheck.logs.diagnosis import Cause
from envcheck.logs.environment import OF_NVIDIA
from envcheck.logs.environment_match import EnvironmentMatch
from envcheck.logs.events import FailureForm, without_wrapper
from envcheck.logs.installed import installed_already
from envcheck.logs.library_questions import (
    asserted,
    expression_that_is_none,
    setting_that_is_none,
    value_of_wrong_type,
)
from envcheck.logs.own_code import own_code
from envcheck.reports import code_conditions
from envcheck.reports.explanation.known import (
    fix_lines,
    known_lines,
    leaves_open,
    of_the_cause,
    resembling_line,
    title_of_rule,
)
from envcheck.reports.explanation.missing import missing_lines
from envcheck.reports.explanation.model import Explanation, MissingAnswer
from envcheck.reports.explanation.offers import offer_lines
from envcheck.reports.explanation.waiting import waiting_lines, waiting_sentence
from envcheck.reports.explanation.wording import (
    FEW,
    LISTED,
    LONG,
    SHORT,
    bare_name,
    event_text,
    frame_text,
    place_in_log,
)
from envcheck.reports.library_answer import library_lines


def cause_lines(cause: Cause, explanation: Explanation, *, in_full: bool) -> Iterator[str]:
    """Yield what is known of a cause, what to do first, and then where it is in the log."""
    known = [*known_lines(of_the_cause(cause, explanation), explanation, in_full=in_full)]
    answers = [*_answer_lines(cause, explanation, in_full=in_full)]
    if cause.match is None:
        answers += [*known, *_resembling_or_general(cause, explanation)]
    yield from _near_lines(explanation)
    yield from known if cause.match is not None else answers
    yield ""
    yield f"✗ first cause  {place_in_log(cause, explanation.log)}: {event_text(cause)}"
    if cause.place:
        yield f"    raised  {frame_text(cause.place)}"
    if cause.later:
        yield f"    became  {_became(cause)}"
    if cause.event.times > max(1, len(cause.event.ranks)):
        yield f"    again   {cause.event.times} times, last in line {cause.event.again}"
    yield f"    kind    {_kind(cause)}"
    if cause.match is not None:
        yield from answers


def _answer_lines(cause: Cause, explanation: Explanation, *, in_full: bool) -> Iterator[str]:
    """Yield what the log, the tables and the code of libraries say of a cause, with what to do about it."""
    yield from _replaced_lines(explanation.replaced)
    yield from _none_lines(cause)
    if explanation.library is None:
        yield from _assertion_lines(cause)
    yield from _refused_lines(cause, explanation)
    yield from _form_lines(cause, explanation)
    yield from missing_lines(explanation)
    means = cause.event.form is not None and cause.event.form.means and not in_full
    told = means and not explanation.refused  # of a refused value, the check that refused it says more
    if explanation.library is not None and not (told and explanation.library.raises):
        message = cause.event.exceptions[0].message if cause.event.exceptions else ""
        yield from library_lines(explanation.library, explanation.report.inventory, message)
    for found in explanation.probable[:FEW]:
        yield f"  probable cause  {title_of_rule(found.rule, explanation)} [{found.rule.id}]"
        yield from fix_lines(found.rule, EnvironmentMatch("yes", (), found.fixes, found), explanation)


def _near_lines(explanation: Explanation) -> Iterator[str]:
    """Yield what a command line mostly means where a program refuses an option or a value."""
    for given, known in explanation.near:
        yield f"    meant   {hide_secrets(given)}: this program has {known}"


def _became(cause: Cause) -> str:
    """Return what was raised after the told exception, the last with its message if that says more."""
    names = " → ".join(dict.fromkeys(bare_name(one.name) for one in cause.later))
    said = hide_secrets(without_wrapper(cause.later[-1].message)[:LONG])
    told = cause.told.message if cause.told is not None else ""
    repeats = not said or (bool(told) and told[:40] in said)
    return names if repeats else f"{names}: {said[:SHORT]}"


def _resembling_or_general(cause: Cause, explanation: Explanation) -> Iterator[str]:
    """Yield which known failures resemble a cause, and what its class usually means, if no more is known."""
    if _is_answered(explanation.missing) or explanation.library:
        return
    if cause.event.form and cause.event.form.means:
        return
    if explanation.diagnosis.partial:
        yield from resembling_line(explanation)
    if not (explanation.probable or explanation.replaced or cause.kind == "setting"):
        yield from _general_lines(cause)


def _is_answered(missing: MissingAnswer | None) -> bool:
    """Return whether more is known of a missing name than the message says, if it is one."""
    if missing is None or missing.missing.kind != "argument":
        return missing is not None
    known = missing.rules or missing.ranges or missing.calls
    return bool(known or missing.takes or missing.missing.handed)


def _general_lines(cause: Cause) -> Iterator[str]:
    """Yield what failures of this class usually mean, called general because nothing more is known."""
    if cause.event.general is not None:
        yield f"    general {cause.event.general.means}"
        yield f"    advice  {cause.event.general.advice}"


_ARTICLES = {"int": "an"}


def _none_lines(cause: Cause) -> Iterator[str]:
    """Yield which expression is None, and what to do if it is a setting that has no value."""
    if none := expression_that_is_none(cause.event):
        yield f"    None is {none}"
    expression, kind = value_of_wrong_type(cause.event)
    if expression:
        yield f"    type    {expression} is {_ARTICLES.get(kind, 'a')} {kind}"
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
    for package in [*dict.fromkeys(has.package for has in replaced)][:FEW]:
        of_package = [has for has in replaced if has.package == package]
        owners = ", ".join(f"{has.owner} ({has.releases})" for has in of_package[:FEW])
        more = f" and {len(of_package) - FEW} more" if len(of_package) > FEW else ""
        yield f"    method  {package} has {of_package[0].has} in {owners}{more}"
    if replaced:
        yield "    advice  if yours stands in its place, install a release that it was written for"


def consequence_lines(explanation: Explanation) -> Iterator[str]:
    """Yield the lines for a log with only consequences, such as time-outs of peers."""
    first = explanation.diagnosis.consequences[0]
    yield f"✗ failed  {place_in_log(first, explanation.log)}: {event_text(first)}"
    if not waiting_sentence(explanation.waiting):
        yield "    kind    follows from a failure elsewhere: the log of the rank that failed first says why"
    yield from waiting_lines(explanation.waiting)
    if first.match and first.match.signature.advice and not waiting_sentence(explanation.waiting):
        yield f"    advice  {first.match.signature.advice}"
    yield from _form_lines(first, explanation)


def _refused_lines(cause: Cause, explanation: Explanation) -> Iterator[str]:
    """Yield the settings whose values are refused, each with what to do about it."""
    if _is_open(cause):
        return
    for answer in explanation.refused[:LISTED]:
        value = answer.value
        yield f"    setting {f'{value.field}: ' if value.field else ''}{hide_secrets(value.reason)[:LONG]}"
        if answer.advice:
            yield f"    advice  {answer.advice}"
    if (more := len(explanation.refused) - LISTED) and more > 0:
        yield f"    and {more} more"


_OF_INSTALLERS = frozenset({"version", "unknown", "open"})


_INSTALLS = re.compile(
    r"(?i)\b(?:pip|uv|poetry|conda|mamba|resolv\w+|depends on|incompatible|but you have)\b"
)
"""Kinds of failures in whose text sentences such as `a requires b` name requirements that may clash."""


def _fulfilled_lines(cause: Cause, explanation: Explanation) -> Iterator[str]:
    """Yield what it means that a package is asked for which is installed."""
    message = cause.told.message if cause.told is not None else ""
    there = installed_already(message, explanation.report.inventory)
    one = ", " not in there
    yield (
        f"    means   {there} {'is' if one else 'are'} installed in the judged environment, but the program "
        f"cannot use {'it' if one else 'them'}"
    )
    yield f"    advice  {_ON_HIDDEN if _NEEDS_A_GPU.search(there) else _ON_UNUSABLE}"


_NEEDS_A_GPU = re.compile(r"\b(?:flash-attn|bitsandbytes) ")
_ON_HIDDEN = (
    "Without a GPU that torch sees, transformers counts flash-attn as missing, and older releases "
    "bitsandbytes. If torch sees one, print sys.executable: another environment may have run."
)
_ON_UNUSABLE = (
    "Print sys.executable in the run: another environment may have run. If it is this one, import the "
    "package there: the error shows the cause."
)


def _is_open(cause: Cause) -> bool:
    """Return whether the form of a cause has several causes, so that a refused value need not be one."""
    return cause.event.form is not None and cause.event.form.kind == "open"


def _of_platform(form: FailureForm | None, explanation: Explanation) -> FailureForm | None:
    """Return what a form shows, without texts on NVIDIA's software if the log is of another platform."""
    if form is None or explanation.platform is None:
        return form
    name = explanation.platform.name
    means, advice = (_without_nvidia(text, name) for text in (form.means, form.advice))
    return form._replace(means=means, advice=advice)


_SENTENCE_ENDS = re.compile(r"(?<=[.;:]) (?=[A-Z])")


def _without_nvidia(text: str, platform: str) -> str:
    """Return a text without the sentences on NVIDIA's software that do not name the platform as well."""
    sentences = _SENTENCE_ENDS.split(text)
    return " ".join(one for one in sentences if not OF_NVIDIA.search(one) or platform in one)


def requirements_of_installer(cause: Cause) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return what an installer found no release of, or the requirements that clash."""
    form = cause.event.form
    if form is None or form.kind not in _OF_INSTALLERS or not _INSTALLS.search(cause.event.text):
        return (), ()
    text = hide_secrets(cause.event.text)  # a requirement may be an address with a token
    absent = absent_releases(text)
    return absent, () if absent else clashing_requirements(text)


def _form_lines(cause: Cause, explanation: Explanation) -> Iterator[str]:
    """Yield the meaning of the line's form, or of the signal that ended a process, and the advice for it.

    A general advice is left out if the refused settings themselves are listed.
    """
    form = _of_platform(cause.event.form, explanation)
    if explanation.offer is not None:
        yield from offer_lines(explanation.offer)
        return
    if form is None or (cause.match is not None and not leaves_open(cause, explanation)):
        return
    if form.kind == "missing" and cause.kind == "open":  # what it asks for is there
        yield from _fulfilled_lines(cause, explanation)
        return
    if form.means and not form.telling:  # which the headline tells
        yield f"    means   {form.means}"
    absent, clashing = requirements_of_installer(cause)
    yield from (
        f"    absent  no release or wheel of {requirement} is offered" for requirement in absent[:FEW]
    )
    yield from (f"    clash   {requirement}" for requirement in clashing[:LISTED])
    yield from (f"    fits    {releases}" for releases in explanation.fitting)
    if absent or clashing:
        yield from (f"    hint    {hint}" for hint in hints(hide_secrets(cause.event.text))[:FEW])
    if absent:
        yield f"    advice  {_ON_ABSENT}"
    elif clashing and what_is_asked(clashing[0]).startswith(ASKS_PYTHON):
        yield f"    advice  {_ON_PYTHON}"
    elif form.advice and (_is_open(cause) or form.telling or not explanation.refused):
        yield f"    advice  {form.advice}"


_ON_PYTHON = (
    "Make the environment with such a Python (uv venv --python, conda create python=), or take releases for "
    "the one that is there. uv solves for every Python that requires-python in pyproject.toml allows: narrow "
    "it to those that the packages support"
)

_ON_ABSENT = (
    "The index that the installer asks has no such release for this Python and platform: ask for one that is "
    "there, or name the index that has it (builds of torch such as +cpu and +cu128 are on PyTorch's own)"
)


def _kind(cause: Cause) -> str:
    if cause.kind == "code" and cause.match is None and cause.place is not None and own_code(cause.place):
        return "raised by a line of the script or project that was run"
    if cause.kind != "unknown":
        return KINDS[cause.kind]
    if cause.event.what == "ended":
        return "not known: the output of the process before it ended is not in the log"
    return "not known"
