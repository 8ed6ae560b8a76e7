"""The known failures that a log shows: their titles, order, fixes, and whether they apply here. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envcheck.core.facts import package_name
from envcheck.core.findings import Verdict
from envcheck.core.rules import Rule, Severity
from envcheck.logs.diagnosis import Cause, Match
from envcheck.logs.environment_match import EnvironmentMatch, releases_met
from envcheck.reports.explanation.model import Explanation
from envcheck.reports.explanation.wording import FEW, LISTED, SHORT, event_text
from envcheck.reports.phrases import fix_commands
from envcheck.rules.fix_words import fix_text


def known_headline(known: Sequence[Match], cause: Cause, explanation: Explanation) -> str:
    """Return the answer if the cause matches known failures; the best comes first."""
    match = known[0]
    here = match_here(match, explanation).answer
    title = f"{title_of_match(match, explanation)} [{failure_id(match)}]"
    alike = len({failure_id(one) for one in known if _is_alike(one, match, explanation)})
    if here == "yes":
        return f"Known failure, and it applies here: {title}"
    if here == "no":
        return f"Failed; the known failure that it resembles does not apply here: {event_text(cause, SHORT)}"
    if match.signature.ambiguous or not _shows_loop(match, cause, explanation):
        return f"Failed: {event_text(cause, SHORT)}. Possible problem: {title}"
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
    if rule is None or match_here(match, explanation).answer != "unknown" or 'File "' not in text:
        return True
    tables = [
        {package_name(clause.key) for clause in table if clause.key.startswith("pkg.")} for table in rule.when
    ]
    return any(not names & _LOOPS or names <= _LOOPS for names in tables) or any(
        f"/{name}/" in text for names in tables for name in names & _LOOPS
    )


def _is_alike(match: Match, best: Match, explanation: Explanation) -> bool:
    """Return whether the text of a known failure is that of the best one, and no fact tells them apart."""
    answers = {match_here(one, explanation).answer for one in (match, best)}
    return answers == {"unknown"} and match.signature.patterns == best.signature.patterns


def failure_id(match: Match) -> str:
    """Return what `envcheck rule` and a reader call a known failure: its rule, or its case."""
    return match.signature.rule or match.signature.case


def of_the_cause(cause: Cause, explanation: Explanation) -> list[Match]:
    """Return the known failures that match the cause."""
    index = explanation.log.events.index(cause.event)
    return [match for match in explanation.diagnosis.matches if match.event == index]


def leaves_open(cause: Cause, explanation: Explanation) -> bool:
    """Return whether the known failures that match a cause have no fix, because facts are missing."""
    known = [match_here(match, explanation) for match in of_the_cause(cause, explanation)]
    return all(here.answer == "unknown" and not here.fixes for here in known)


def lines_on_versions(explanation: Explanation) -> Iterator[str]:
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
        yield from (
            f"  {title_of_rule(found.rule, explanation)} [{found.rule.id}]" for found in broken[:LISTED]
        )


def known_lines(matches: Sequence[Match], explanation: Explanation, *, in_full: bool) -> Iterator[str]:
    """Yield the known failures that match, those that apply here first; each rule appears once.

    The headline has the title of the cause's best one already. A failure that is known by its text alone,
    from lines that a better one explains, adds nothing.
    """
    seen: set[str] = set()
    told: set[int] = set()
    cause = explanation.diagnosis.cause
    headed = cause is not None and cause.match is not None
    for match in ranked(matches, explanation):
        answer = match_here(match, explanation).answer
        if failure_id(match) in seen or (answer == "text" and not in_full and told.issuperset(match.lines)):
            continue
        if not headed or seen or answer == "no":
            yield ""
            yield f"  known  {title_of_match(match, explanation)} [{failure_id(match)}]"
        seen.add(failure_id(match))
        if answer == "text":
            told.update(match.lines)
        yield from _match(match, explanation, in_full=in_full)


def ranked(matches: Sequence[Match], explanation: Explanation) -> list[Match]:
    """Return the matches, those that apply here first, and last what only follows from another failure.

    Of those that may apply, the ones come first whose releases the log states.
    """
    return sorted(
        matches,
        key=lambda one: (
            one.signature.kind == "consequence",
            _RANKED[match_here(one, explanation).answer],
            -_releases_met(one, explanation),
            -one.score,
            -match_here(one, explanation).likelihood,
            one.lines,
        ),
    )


_RANKED = {
    "yes": 0,
    "text": 1,
    "unknown": 2,
    "no": 3,
}  # what its text alone proves goes before what may apply


def _releases_met(match: Match, explanation: Explanation) -> int:
    """Return how many known releases meet what a rule asks for that may apply here."""
    rule = explanation.report.matrix.rule(match.signature.rule) if match.signature.rule else None
    if rule is None or match_here(match, explanation).answer != "unknown":
        return 0
    return max(releases_met(rule, explanation.report.inventory), 0)


def match_here(match: Match, explanation: Explanation) -> EnvironmentMatch:
    """Return whether a known failure applies to the judged environment, or is known by its text alone."""
    return explanation.here.get(match.signature.case, EnvironmentMatch("text"))


def title_of_match(match: Match, explanation: Explanation) -> str:
    """Return the title of a known failure: that of its rule, or of its text if only the text is certain."""
    rule = explanation.report.matrix.rule(match.signature.rule) if match.signature.rule else None
    if rule is not None and not _is_told_by_text(match, explanation):
        return title_of_rule(rule, explanation)
    return explanation.report.language.translate(match.signature.title)


def _is_told_by_text(match: Match, explanation: Explanation) -> bool:
    """Return whether the words of a known failure's text say more for certain than those of its rule.

    Without the facts that the rule asks for, its title would claim a cause that the text alone does not show.
    """
    return bool(match.signature.advice) and match_here(match, explanation).answer == "unknown"


def title_of_rule(rule: Rule, explanation: Explanation) -> str:
    """Return the title of a rule in the language of the report."""
    return explanation.report.language.title(rule.id, rule.title)


def _match(match: Match, explanation: Explanation, *, in_full: bool) -> Iterator[str]:
    """Yield what to do about a known failure and whether it applies here; `in_full` adds the reasons."""
    rule = explanation.report.matrix.rule(match.signature.rule) if match.signature.rule else None
    here = match_here(match, explanation)
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
        yield from fix_lines(rule, here, explanation, in_full=in_full)
    if applies and in_full:
        yield from (f"    no fix  {fix_text(useless)} ({useless.why})" for useless in rule.no_fixes)
    yield f"    here    {_here_in_words(here)}"
    if applies and rule.why and not remedy and (in_full or not here.fixes):
        yield f"    why     {language.why(rule.id, rule.why)}"
    if applies and in_full:
        yield from _evidence(match, [f"{rule.basis.value}: {source.url}" for source in rule.sources])


def _evidence(match: Match, sources: Sequence[str]) -> Iterator[str]:
    """Yield the place in the log, how well it matches, and the sources."""
    yield f"    text    line {', '.join(map(str, match.lines[:LISTED]))} (score {match.score:.2f})"
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
    more = f" and {len(facts) - FEW} more" if len(facts) > FEW else ""
    missing = ", ".join(facts[:FEW]) + more or "what it depends on"
    return f"cannot tell; not known: {missing} (--facts, --python, --train, --target)"


def fix_lines(
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


def resembling_line(explanation: Explanation) -> Iterator[str]:
    """Yield the known failures that the log matches in part."""
    names = dict.fromkeys(one.signature.rule or one.signature.case for one in explanation.diagnosis.partial)
    listed = ", ".join([*names][:LISTED])
    yield f"    near    these match in part: {listed} (envcheck rule ID)"


def may_be_the_cause(match: Match, explanation: Explanation) -> bool:
    """Return whether a known failure may be why the run failed."""
    may = names_a_cause(match) and match.signature.kind != "harmless"
    return may and match_here(match, explanation).answer != "no"


def names_a_cause(match: Match) -> bool:
    """Return whether a known failure is a cause, not what follows from one."""
    return match.signature.kind != "consequence"


def brief_text(cause: Cause, explanation: Explanation) -> str:
    """Return an event in one short line, with the title of the known failure that it matches."""
    known = f" ({title_of_match(cause.match, explanation)})" if cause.match else ""
    return f"{event_text(cause, SHORT)}{known}"
