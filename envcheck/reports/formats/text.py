"""The report for people: a line a category with its decisive facts, then the findings, then the count.

`lines` gives spans with a style each; here they are joined plainly, `terminal` colours them. Every phrase
is said through the report's language, `say` for what stands here, `told` for what was made elsewhere.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from envcheck.core.errors import Place
from envcheck.core.facts import Absent, Fact, Inventory, Known, Unknown
from envcheck.core.findings import (
    Diagnostic,
    Evidence,
    Finding,
    Judgement,
    Move,
    Plan,
    Report,
    Verdict,
    Waiting,
)
from envcheck.core.i18n import Language, pad, width
from envcheck.core.rules import Clause, Fix, Matrix, Severity, Target, When
from envcheck.core.sanitize import inline
from envcheck.core.training_facts import KEYS as TRAINING
from envcheck.reports.render import (
    configuration_changes,
    fix_commands,
    fix_text,
    move_name,
    move_then,
    moved_with,
    plan_commands,
    plan_notes,
    reading,
    shown,
)
from envcheck.rules.judge import area

SUFFIXES = (".txt", ".text", ".log")

MARKS = {"ok": "✓", "warning": "!", "error": "✗", "note": "·", "unknown": "?", "none": "-"}
_MOST_TRAINING = 12  # training facts in the overview; JSON has all
_CLOSEST = 3  # known failures named when no training configuration was given


class Span(NamedTuple):
    """Some text and its style: ok, warning, error, note, unknown, none, title, dim, or empty."""

    text: str
    style: str = ""


Line = Sequence[Span]


def render(report: Report) -> str:
    """The report as plain text."""
    return "".join("".join(inline(span.text) for span in line).rstrip() + "\n" for line in lines(report))


def lines(report: Report) -> Iterator[Line]:
    """The report, a line at a time."""
    yield from _head(report)
    yield ()
    for name, text, mark in categories(report):
        label = Span(f" {pad(name, 9)}", "title")
        yield (Span(f"[{MARKS[mark]}]", mark), label, Span(text))
    if report.nothing_to_judge:
        yield ()
        yield (Span(report.language.told(report.nothing_to_judge), "warning"),)
    for each in report.reported:
        yield ()
        yield from _remark(each, report.language) if isinstance(each, Diagnostic) else _finding(each, report)
    yield ()
    lead, nearest = waits(report)
    if lead:
        yield (Span(lead, "dim"),)
    for rule in nearest:
        yield (Span(f"    {rule}", "dim"),)
    yield (Span(count_text(report), "title"),)
    if report.plan is not None and not report.nothing_to_judge:
        yield ()
        yield from _plan(report.plan, report)


def _head(report: Report) -> Iterator[Line]:
    lang = report.language
    known = lang.say("matrix {}, {} known failures", report.matrix.updated, len(report.matrix.rules))
    yield (Span(f"envcheck {report.version}", "title"), Span(f"  {known}", "dim"))
    for origin in report.matrix.origins:
        laid = lang.say("overlay  {} ({}): {}", origin.name, origin.named_by, origin.brings)
        yield (Span(laid, "dim"),)
    yield (Span(lang.say("judged"), "dim"), Span(f"  {lang.told(report.subject)}"))


# --- categories -------------------------------------------------------------------------------------

_CATEGORY_OF = {
    "training": "Training",
    "gpu": "GPU",
    "driver": "Driver",
    "packages": "Packages",
    "machine": "Machine",
}


def category(finding: Finding) -> str:
    """The line of the overview that a finding belongs to."""
    return _CATEGORY_OF[area(finding.rule, finding.evidence)]


class Category(NamedTuple):
    """A line of the overview: its name, the decisive facts, and its mark (a key of `MARKS`)."""

    name: str
    text: str
    mark: str


def categories(report: Report) -> Iterator[Category]:
    """Machine, driver, GPU, packages, training, and the nearest measured combination."""
    worst = _worst_by_category(report.judgement.findings, report.diagnostics)
    lang = report.language
    facts = {
        "Machine": _machine(report.inventory, lang),
        "Driver": _driver(report.inventory, lang),
        "GPU": _gpus(report.inventory, lang),
        "Packages": _packages(report),
        "Training": _training(report.inventory, lang),
    }
    for name, (text, state) in facts.items():
        yield Category(lang.word(name), text, worst.get(name, state))
    if report.measured is not None:
        yield _measured(report)


def _worst_by_category(findings: Iterable[Finding], remarks: Sequence[Diagnostic]) -> dict[str, str]:
    # The worst remark comes first; a note on how something is spelled is no mark on the training.
    blamed = [each.severity.value for each in remarks[:1] if each.severity is not Severity.NOTE]
    worst: dict[str, str] = {"Training": blamed[0]} if blamed else {}
    rank = {"note": 0, "unknown": 1, "warning": 2, "error": 3}
    for finding in findings:
        mark = "unknown" if finding.verdict is Verdict.UNDECIDED else finding.severity.value
        name = category(finding)
        if rank[mark] > rank.get(worst.get(name, ""), -1):
            worst[name] = mark
    return worst


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _mib(inventory: Inventory, key: str, device: int | None = None) -> str:
    value = inventory.known(key, device)
    return f"{value / 1024:.0f} GiB" if isinstance(value, int) else ""


def _machine(inventory: Inventory, lang: Language) -> tuple[str, str]:
    limit = _mib(inventory, "host.ram_limit_mib")
    memory = _mib(inventory, "host.ram_mib")
    if limit and limit != memory:
        memory = lang.say("{} of {}", limit, memory)
    text = _joined(
        " ".join(filter(None, (reading(inventory, "host.os"), reading(inventory, "host.arch")))),
        _labelled("glibc", reading(inventory, "host.glibc")),
        _labelled(lang.say("RAM"), memory),
        _labelled(lang.say("CPUs"), reading(inventory, "host.cpu_count")),
        reading(inventory, "host.container"),
        "WSL" if inventory.known("host.wsl") is True else "",
        _labelled(lang.say("Jetson Linux"), reading(inventory, "host.tegra")),
        _labelled(lang.say("CUDA toolkit"), reading(inventory, "cuda.toolkit")),
    )
    return (text, "ok") if text else (lang.say("not given"), "none")


def _labelled(label: str, value: str) -> str:
    return f"{label} {value}" if value else ""


def _driver(inventory: Inventory, lang: Language) -> tuple[str, str]:
    fact = inventory.fact("driver.version")
    match fact.reading:
        case Known(value):
            speaks = _labelled(lang.say("speaks CUDA"), reading(inventory, "cuda.driver"))
            return _joined(f"{shown(value)} ({lang.told(fact.source)})", speaks), "ok"
        case Absent():
            return lang.say("none in this machine; hardware rules not asked"), "none"
        case Unknown(why, asked):
            return lang.told(why), "unknown" if asked else "none"


def _gpus(inventory: Inventory, lang: Language) -> tuple[str, str]:
    if not inventory.devices:
        fact = inventory.fact("gpus.count")
        if isinstance(fact.reading, Unknown):
            return lang.told(fact.reading.why), "unknown" if fact.reading.asked else "none"
        return lang.say("none in this machine; hardware rules not asked"), "none"
    kinds: dict[str, int] = {}
    for device in range(len(inventory.devices)):
        kind = _gpu(inventory, device, lang)
        kinds[kind] = kinds.get(kind, 0) + 1
    listed = "; ".join(f"{count} x {kind}" if count > 1 else kind for kind, count in kinds.items())
    return _joined(listed, _renumbered(inventory, lang)), "ok"


def _renumbered(inventory: Inventory, lang: Language) -> str:
    """Which GPU a program means by cuda:0, cuda:1, …, where that is not what anybody would think."""
    ranks = [inventory.known("gpu.rank", device) for device in range(len(inventory.devices))]
    seen = {rank: device for device, rank in enumerate(ranks) if isinstance(rank, int)}
    if all(rank == device for rank, device in seen.items()):
        return ""
    return ", ".join(lang.say("cuda:{} is GPU {}", rank, seen[rank]) for rank in sorted(seen))


def _gpu(inventory: Inventory, device: int, lang: Language) -> str:
    name = inventory.fact("gpu.name", device)
    return _joined(
        shown(name.value)
        if name.value
        else f"GPU {device}: {lang.told(getattr(name.reading, 'why', 'no name'))}",
        _mib(inventory, "gpu.memory_mib", device),
        _labelled(lang.say("compute capability"), reading(inventory, "gpu.compute_capability", device)),
        "MIG" if inventory.known("gpu.mig", device) is True else "",
        lang.say("hidden by CUDA_VISIBLE_DEVICES") if inventory.known("gpu.visible", device) is False else "",
    )


STACK = ("torch", "deepspeed", "transformers", "peft", "accelerate", "trl", "bitsandbytes", "flash-attn")


def _packages(report: Report) -> tuple[str, str]:
    inventory = report.inventory
    python = _labelled("Python", reading(inventory, "python.version"))
    wanted = (*STACK, *(report.target.packages if report.target else ()))
    found = [f"{name} {reading(inventory, f'pkg.{name}')}" for name in dict.fromkeys(wanted)]
    installed = [each for each in found if not each.endswith(" ")]
    runtime = inventory.fact("cuda.runtime")
    cuda = ""
    if inventory.known("pkg.torch"):
        cuda = report.language.say(" for CUDA {}", runtime.value) if runtime.value else ""
        if isinstance(runtime.reading, Absent):
            rocm = "+rocm" in str(inventory.known("pkg.torch"))
            cuda = report.language.say(" (ROCm build)") if rocm else report.language.say(" (CPU build)")
    if installed and installed[0].startswith("torch "):
        installed[0] += cuda
    text = f"{python}: {', '.join(installed)}" if python and installed else _joined(python, *installed)
    return (text, "ok") if installed else (text or report.language.say("not given"), "none")


def _training(inventory: Inventory, lang: Language) -> tuple[str, str]:
    said = phrases(inventory, lang)
    if not said:
        return lang.say("not given (--target or --train)"), "none"
    text = ", ".join(said[:_MOST_TRAINING])
    more = len(said) - _MOST_TRAINING
    return (lang.say("{} and {} more", text, more) if more > 0 else text), "ok"


def phrases(inventory: Inventory, lang: Language) -> tuple[str, ...]:
    """What the configuration or the target says of training, as people do: `ZeRO-3`, `LoRA`."""
    # The vocabulary begins with what most failures depend on.
    facts = [inventory.facts[key] for key in TRAINING if key in inventory.facts]
    return tuple(
        _phrase(fact.key, shown(fact.value), lang)
        for fact in facts
        if fact.value is not None and not fact.source.startswith("default")
    )


def _phrase(key: str, value: str, lang: Language) -> str:
    phrases = TRAINING[key].phrases
    if value in phrases or "*" not in phrases:
        return lang.word(phrases.get(value, f"{key.removeprefix('train.')} {value}"))
    return lang.word(phrases["*"]).replace("{}", value)


def _measured(report: Report) -> Category:
    assert report.measured is not None  # noqa: S101 - the caller looked
    cell, differences = report.measured.cell, report.measured.differences
    device = "CPU" if cell.device == "cpu" else cell.device
    lang = report.language
    label = lang.say("Measured")
    if not differences:
        text = lang.say("good {} ({}): this combination trained {}", cell.date, device, cell.target)
        return Category(label, text, "ok")
    away = ", ".join(
        f"{name} {there} {lang.say('(here {})', lang.word(here))}" for name, here, there in differences
    )
    text = lang.say("not this combination; nearest good {} ({}) has {}", cell.date, device, away)
    return Category(label, text, "none")


# --- remarks on configurations ----------------------------------------------------------------------


def _remark(remark: Diagnostic, lang: Language) -> Iterator[Line]:
    style = remark.severity.value
    yield (
        Span(f"{MARKS[style]} {lang.word(style)}: ", style),
        Span(lang.told(remark.text), "title"),
        Span(f" [{remark.code}]", "dim"),
    )
    for number, place in enumerate(remark.places):
        yield _detail(Detail(lang.say("at") if number == 0 else "", str(place), "at"))
        for gutter, code, mark in quotation(place):
            yield (Span(f"    {gutter} | ", "dim"), Span(code), Span(mark, style))
    yield from map(_detail, remark_details(remark, lang))


def remark_details(remark: Diagnostic, lang: Language) -> Iterator["Detail"]:
    """What to do about a remark, and the code that says so."""
    if remark.advice:
        yield Detail(lang.say("fix"), lang.told(remark.advice), "advice")
    if remark.source:
        yield Detail(lang.say("known"), remark.source, "known", remark.source)


def quotation(place: Place) -> tuple[tuple[str, str, str], ...]:
    """The line that a place is on and what underlines it, as (line number, text, underline)."""
    if not place.excerpt:
        return ()
    # Cleaned here, for what is written out as an escape is wider, and the underline would point elsewhere.
    before, at = place.excerpt[: place.column - 1 - place.cut], place.excerpt[place.column - 1 - place.cut :]
    more = "…" if place.cut else ""
    line, shift = more + _flat(place.excerpt), width(more + _flat(before))
    under = "^" * max(1, width(_flat(at[: place.length])))
    number = str(place.line).rjust(7)
    return (number, line, ""), (" " * len(number), " " * shift, under)


def quoted_line(place: Place) -> str:
    """The same as text; empty if the line is not known."""
    return "\n".join(f"{gutter} | {code}{mark}".rstrip() for gutter, code, mark in quotation(place))


def _flat(code: str) -> str:
    return inline(code.replace("\t", " "))


# --- findings ---------------------------------------------------------------------------------------


class Detail(NamedTuple):
    """A line under a finding or a plan: its label, what it says, and of which kind it is.

    Kinds: only, because, note, why, fix, command, known, set, brings, left. A `label` is empty where the
    line before has the same.
    """

    label: str
    text: str
    kind: str
    url: str = ""


def line(detail: Detail) -> str:
    """A detail on a line: `fix: deepspeed >=0.19.3`; without a label, under the line before."""
    return inline(f"{detail.label}: {detail.text}" if detail.label else f"  {detail.text}")


class Heading(NamedTuple):
    """A finding's own line: its mark (a key of `MARKS`), its severity in words, and its title."""

    mark: str
    word: str
    title: str


def heading(finding: Finding, lang: Language) -> Heading:
    """How a finding begins: `✗ error: it breaks`."""
    undecided = finding.verdict is Verdict.UNDECIDED
    word = "undecided" if undecided else finding.severity.value
    mark = "unknown" if undecided else finding.severity.value
    return Heading(mark, lang.word(word), lang.title(finding.rule.id, finding.rule.title))


def details(finding: Finding, report: Report) -> Iterator[Detail]:
    """Where it holds, because of which facts, why it breaks, the ways out, and how that is known."""
    lang, rule = report.language, finding.rule
    if finding.devices:
        only = "GPU " + ", ".join(str(device) for device in finding.devices)
        yield Detail(lang.say("only"), only, "only")
    for number, because in enumerate(finding.evidence):
        label = lang.say("because") if number == 0 else ""
        yield Detail(label, because_text(because, lang), "because")
    if finding.note:
        yield Detail(lang.say("note"), "; ".join(map(lang.told, finding.note.split("; "))), "note")
    if rule.why:
        yield Detail(lang.say("why"), lang.why(rule.id, rule.why), "why")
    moved = moved_with(report)
    for fix in finding.fixes:
        cost = lang.cost(rule.id, [each.cost for each in rule.fixes], fix.cost)
        cost = f" ({cost})" if cost else ""
        yield Detail(lang.say("fix"), f"{fix_text(fix, lang.say(' and '))}{cost}", "fix")
        for command in fix_commands(fix, moved, report.inventory):
            yield Detail("", command, "command")
    if rule.fixes and not finding.fixes and finding.verdict is not Verdict.UNDECIDED:
        none = lang.say("none of the known ways out passes the judge here by itself")
        yield Detail(lang.say("fix"), none, "fix")
    reasons = [each.why for each in rule.no_fixes]
    for vain in rule.no_fixes:
        changes = fix_text(Fix(vain.set), lang.say(" and "))
        said = f"{changes} ({lang.no_fix(rule.id, reasons, vain.why)})"
        yield Detail(lang.say("no fix"), said, "fix")
    for number, source in enumerate(rule.sources):
        basis = f"{lang.word(rule.basis.value)}: " if number == 0 else ""
        checked = lang.say(" (checked {})", source.checked) if source.checked else ""
        label = lang.say("known") if number == 0 else ""
        yield Detail(label, f"{basis}{source.url}{checked}", "known", source.url)


def _finding(finding: Finding, report: Report) -> Iterator[Line]:
    mark, word, title = heading(finding, report.language)
    yield (
        Span(f"{MARKS[mark]} {word}: ", mark),
        Span(title, "title"),
        Span(f" [{finding.rule.id}]{_beside_software(finding, report.language)}", "dim"),
    )
    yield from map(_detail, details(finding, report))


def _beside_software(finding: Finding, lang: Language) -> str:
    """Whose matter a finding is where neither packages nor the configuration are: ` (GPU)`."""
    name = category(finding)
    return "" if name in ("Packages", "Training") else f" ({lang.word(name)})"


def _detail(detail: Detail) -> Line:
    prompt = "$ " if detail.kind == "command" else ""
    return (Span(f"    {pad(detail.label, 8)}", "dim"), Span(f"{prompt}{detail.text}"))


def because_text(because: Evidence, lang: Language) -> str:
    """A fact that made a rule hold, with its source: `pkg.torch = 2.6.0 (torch-2.6.0.dist-info)`."""
    name, state, source = because_parts(because, lang)
    note = f"; {lang.told(because.note)}" if because.note else ""
    return f"{name} {state}{f' ({source})' if source else ''}{note}"


def because_parts(because: Evidence, lang: Language) -> tuple[str, str, str]:
    """A fact that made a rule hold: its name, what it is, and where it was read."""
    fact = because.fact
    name = fact.key if because.device is None else fact.key.replace("gpu.", f"gpu[{because.device}].", 1)
    return name, _state(fact, lang), lang.told(fact.source)


def _state(fact: Fact, lang: Language) -> str:
    match fact.reading:
        case Known(value):
            return f"= {shown(value)}"
        case Absent():
            return lang.say("is absent")
        case Unknown(why, _):
            return lang.say("is not known: {}", lang.told(why))


# --- what was not asked, and the count --------------------------------------------------------------


def waits(report: Report) -> tuple[str, tuple[str, ...]]:
    """What waits for a training configuration that nobody gave, and the nearest failures of it."""
    lang = report.language
    training = [each for each in report.judgement.waiting if each.reason == "training"]
    if not training:
        return "", ()
    errors = [each for each in training if each.rule.severity is Severity.ERROR]
    # What already holds here makes a failure near: its versions are installed, only the training is open.
    nearest = sorted(errors, key=lambda each: (-_met(each), len(each.open)))[:_CLOSEST]
    depend = lang.say("{} known failures depend on the training configuration", len(training))
    if len(training) == 1:
        depend = lang.say("{} known failure depends on the training configuration", 1)
    ending = lang.say("; closest:") if nearest else ""
    lead = f"{depend}{lang.say(' (--target or --train)')}{ending}"
    return lead, tuple(lang.say("{}, if {}", each.rule.id, _if(each.open, lang)) for each in nearest)


def waiting_text(waiting: Waiting, lang: Language) -> str:
    """Why a rule was not asked, and what would have to hold: `training: if ZeRO-3 + LoRA`."""
    return f"{lang.word(waiting.reason)}: {_if(waiting.open, lang)}"


def _met(waiting: Waiting) -> int:
    """How many clauses of the rule hold here already."""
    return max(len(table) for table in waiting.rule.when) - len(waiting.open)


def _if(open_clauses: When, lang: Language) -> str:
    return " + ".join(
        _phrase(clause.key, _brief(clause), lang)
        if clause.key in TRAINING
        else f"{clause.key} {_brief(clause)}"
        for clause in open_clauses
    )


def _brief(clause: Clause) -> str:
    """What a clause wants: other facts without their braces, of many alternatives the first."""
    wanted = clause.raw.replace("{train.", "").replace("{", "").replace("}", "")
    return wanted if len(clause.any_of) <= _ALTERNATIVES else f"{wanted.strip().partition(' ')[0]} …"


_ALTERNATIVES = 3


def count_text(report: Report) -> str:
    """How many rules were broken, undecided, waiting and held, in one line."""
    judgement, lang = report.judgement, report.language
    broken = judgement.tally(Verdict.BROKEN)
    by_severity = [
        lang.say(f"{{}} {each.value}{'s' if count > 1 else ''}", count)
        for each in Severity
        if (count := judgement.tally(Verdict.BROKEN, each))
    ]
    parts = [lang.say("{} broken", broken) + (f" ({', '.join(by_severity)})" if broken else "")]
    if report.diagnostics:
        remarks = lang.say("{} remarks on the configuration", len(report.diagnostics))
        parts.append(
            lang.say("{} remark on the configuration", 1) if len(report.diagnostics) == 1 else remarks
        )
    parts.append(lang.say("{} undecided", judgement.tally(Verdict.UNDECIDED)))
    reasons: dict[str, int] = {}
    for each in judgement.waiting:
        reasons[each.reason] = reasons.get(each.reason, 0) + 1
    for reason, count in sorted(reasons.items()):
        if reason == "GPU":
            parts.append(lang.say("{} needs a GPU", 1) if count == 1 else lang.say("{} need a GPU", count))
        elif count == 1:
            parts.append(lang.say("{} waits for {}", 1, lang.word(reason)))
        else:
            parts.append(lang.say("{} wait for {}", count, lang.word(reason)))
    parts.append(lang.say("{} rules held", judgement.passed))
    return " · ".join(parts)


# --- the smallest change ----------------------------------------------------------------------------

_MOST_RULES = 2  # named in a row of the table; JSON has all


def plan_table(plan: Plan, lang: Language) -> list[tuple[str, ...]]:
    """The moves of a plan as rows of cells, the first with the heads; none if nothing moves."""
    heads = lang.say("what"), lang.say("now"), lang.say("then"), lang.say("asked for by"), lang.say("costs")
    return [heads, *(_row(move, lang) for move in plan.moves)] if plan.moves else []


def plan_details(plan: Plan, report: Report, *, commands: bool = True) -> Iterator[Detail]:
    """How to carry out a plan, what to know before, and what it leaves."""
    lang = report.language
    for command in plan_commands(plan, report) if commands else ():
        yield Detail("", command, "command")
    for setting, source, argument in configuration_changes(plan, report):
        now = lang.say(" (now from {})", lang.told(source)) if source else ""
        as_argument = lang.say(", as an argument: {}", argument) if argument else ""
        yield Detail(lang.say("set"), f"{setting}{now}{as_argument}", "set")
    for note in plan_notes(plan, report):
        yield Detail(lang.say("note"), lang.told(note), "note")
    for rule in plan.brings:
        title = f"{lang.word(rule.severity.value)}: {lang.title(rule.id, rule.title)} [{rule.id}]"
        yield Detail(lang.say("brings"), title, "brings")
    for each in plan.unresolved:
        title = f"{lang.title(each.rule.id, each.rule.title)} [{each.rule.id}]"
        yield Detail(lang.say("left"), title, "left")
        yield Detail("", lang.told(each.why), "left")


def _plan(plan: Plan, report: Report, *, commands: bool = True) -> Iterator[Line]:
    yield (Span(plan_title(plan, report.language), "title"),)
    rows = plan_table(plan, report.language)
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)][:-1]
    for number, row in enumerate(rows):
        cells = [pad(cell, columns) for cell, columns in zip(row[:-1], widths, strict=True)]
        yield (Span(f"    {'  '.join((*cells, row[-1]))}", "" if number else "dim"),)
    yield from map(_detail, plan_details(plan, report, commands=commands))


def plan_page(plan: Plan, known: Matrix, target: Target, read: Inventory) -> str:
    """A plan's table alone, without commands: what a lock moves."""
    nothing = Judgement((), (), 0, 0)
    report = Report("", "", read, nothing, known, target, plan=plan)
    page = "".join(
        "".join(inline(span.text) for span in line).rstrip() + "\n"
        for line in _plan(plan, report, commands=False)
    )
    return page.rstrip("\n")


def plan_title(plan: Plan, lang: Language) -> str:
    """What a plan is: the smallest change, one that is perhaps not the smallest, or none."""
    level = lang.word(plan.level.value)
    if not plan.moves:
        if plan.unresolved:
            return lang.say("No change is known to mend what is broken at level {} or above", level)
        return lang.say("Nothing needs to change: nothing is broken at level {} or above", level)
    if plan.proved == "fewest":
        return lang.say(
            "The fewest changes for level {} and above; others may be smaller. Nothing was changed", level
        )
    if not plan.proved:
        return lang.say(
            "A change for level {} and above, perhaps not the smallest. Nothing was changed",
            level,
        )
    if plan.unresolved:
        return lang.say(
            "The smallest change for what can be mended at level {} and above. Nothing was changed", level
        )
    return lang.say("The smallest change for level {} and above. Nothing was changed", level)


def _row(move: Move, lang: Language) -> tuple[str, str, str, str, str]:
    now = lang.say("not installed") if move.before is None and move.install else ""
    asked = ", ".join(rule.id for rule in move.rules[:_MOST_RULES])
    if len(move.rules) > _MOST_RULES:
        asked = lang.say("{} and {} more", asked, len(move.rules) - _MOST_RULES)
    cost = move.cost
    if move.proposed_by is not None:
        costs = [fix.cost for fix in move.proposed_by.fixes]
        cost = lang.cost(move.proposed_by.id, costs, move.cost)
    if move.administrator:
        cost = cost or lang.say("only an administrator can")
    return (
        move_name(move),
        now or (lang.say("not set") if move.before is None else shown(move.before)),
        move_then(move),
        lang.say("moves with {}", move.leader) if move.leader else asked,
        cost,
    )
