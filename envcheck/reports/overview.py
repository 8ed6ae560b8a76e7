"""The overview at the top of a report: a line of decisive facts and a mark for each category.

It is in the user's language. This module uses a named tuple because it is on the start-up path of `doctor`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from envcheck.core import versions
from envcheck.core.facts import Absent, Fact, Inventory, Known, Unknown, package_key
from envcheck.core.findings import JUDGED_TOGETHER, Diagnostic, Finding, Report, Verdict
from envcheck.core.i18n import Language
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Severity
from envcheck.core.training_facts import KEYS as TRAINING
from envcheck.reports.phrases import fact_text
from envcheck.rules.fix_words import value_text
from envcheck.rules.judge import area

MARKS = {"ok": "✓", "warning": "!", "error": "✗", "note": "·", "unknown": "?", "none": "-"}
"""The sign that formats print for each mark; a finding's mark is its severity, or `unknown` if undecided."""

STACK = ("torch", "deepspeed", "transformers", "peft", "accelerate", "trl", "bitsandbytes", "flash-attn")
"""The packages that an overview lists whenever they are installed."""

_MOST_TRAINING = 12  # training facts listed; JSON has all


class Category(NamedTuple):
    """A line of the overview: its name, the decisive facts, and its mark (a key of `MARKS`)."""

    name: str
    text: str
    mark: str


def categories(report: Report) -> Iterator[Category]:
    """Yield machine, driver, GPU, packages and training, then the nearest measured combination if known."""
    worst = _worst_by_category(report.judgement.findings, report.diagnostics)
    lang = report.language
    facts = {
        "Machine": _machine(report.inventory, lang),
        "Driver": _driver(report.inventory, lang),
        "GPU": _gpus(report.inventory, lang),
        "Packages": _packages(report),
        "Training": _training(report.inventory, lang),
    }
    for name, (text, mark) in facts.items():
        yield Category(lang.word(name), text, worst.get(name, mark))
    if report.measured is not None:
        yield _measured(report)


# --- the mark of a category -------------------------------------------------------------------------

_CATEGORY_OF = {
    "training": "Training",
    "gpu": "GPU",
    "driver": "Driver",
    "packages": "Packages",
    "machine": "Machine",
}


def category(finding: Finding) -> str:
    """Return the category that a finding belongs to, in English."""
    return _CATEGORY_OF[area(finding.rule, finding.evidence)]


def _worst_by_category(findings: Iterable[Finding], diagnostics: Sequence[Diagnostic]) -> dict[str, str]:
    # The worst diagnostic comes first. A note, such as one on a deprecated spelling, sets no mark.
    marks = [each.severity.value for each in diagnostics[:1] if each.severity is not Severity.NOTE]
    worst: dict[str, str] = {"Training": marks[0]} if marks else {}
    rank = {"note": 0, "unknown": 1, "warning": 2, "error": 3}
    for finding in findings:
        mark = "unknown" if finding.verdict is Verdict.UNDECIDED else finding.severity.value
        name = category(finding)
        if rank[mark] > rank.get(worst.get(name, ""), -1):
            worst[name] = mark
    return worst


# --- machine and driver -----------------------------------------------------------------------------


def _machine(inventory: Inventory, lang: Language) -> tuple[str, str]:
    limit = _gib(inventory, "host.ram_limit_mib")
    memory = _gib(inventory, "host.ram_mib")
    if limit and limit != memory:
        memory = lang.say("{} of {}", limit, memory)
    text = _joined(
        " ".join(filter(None, (fact_text(inventory, "host.os"), fact_text(inventory, "host.arch")))),
        _labelled("glibc", fact_text(inventory, "host.glibc")),
        _labelled(lang.say("RAM"), memory),
        _labelled(lang.say("CPUs"), fact_text(inventory, "host.cpu_count")),
        fact_text(inventory, "host.container"),
        "WSL" if inventory.known("host.wsl") is True else "",
        _labelled(lang.say("Jetson Linux"), fact_text(inventory, "host.tegra")),
        _labelled(lang.say("CUDA toolkit"), fact_text(inventory, "cuda.toolkit")),
        _labelled(lang.say("AMD GPUs"), _number(inventory, "host.amd_gpus")),
        fact_text(inventory, "host.amd_architectures"),
        _labelled(lang.say("Ascend NPUs"), _number(inventory, "host.npus")),
        _labelled("CANN", fact_text(inventory, "cann.version")),
    )
    return (text, "ok") if text else (lang.say("not given"), "none")


def _number(inventory: Inventory, key: str) -> str:
    """Return a count as text; empty if it is unknown or 0."""
    return str(inventory.known(key) or "")


def _driver(inventory: Inventory, lang: Language) -> tuple[str, str]:
    fact = inventory.fact("driver.version")
    match fact.reading:
        case Known(value):
            cuda = _labelled(lang.say("speaks CUDA"), fact_text(inventory, "cuda.driver"))
            return _joined(f"{value_text(value)} ({lang.translate(fact.source)})", cuda), "ok"
        case Absent():
            return lang.say("none in this machine; hardware rules do not apply"), "none"
        case Unknown(why, asked):
            return lang.translate(why), "unknown" if asked else "none"


# --- GPUs -------------------------------------------------------------------------------------------


def _gpus(inventory: Inventory, lang: Language) -> tuple[str, str]:
    if not inventory.devices:
        fact = inventory.fact("gpus.count")
        if isinstance(fact.reading, Unknown):
            return lang.translate(fact.reading.why), "unknown" if fact.reading.asked else "none"
        return lang.say("none of NVIDIA's in this machine; hardware rules do not apply"), "none"
    kinds: dict[str, int] = {}
    for device in range(len(inventory.devices)):
        kind = _gpu(inventory, device, lang)
        kinds[kind] = kinds.get(kind, 0) + 1
    listed = "; ".join(f"{count} x {kind}" if count > 1 else kind for kind, count in kinds.items())
    return _joined(listed, _renumbered(inventory, lang)), "ok"


def _gpu(inventory: Inventory, device: int, lang: Language) -> str:
    name = inventory.fact("gpu.name", device)
    return _joined(
        value_text(name.value)
        if name.value
        else f"GPU {device}: {lang.translate(getattr(name.reading, 'why', 'no name'))}",
        _gib(inventory, "gpu.memory_mib", device),
        _labelled(lang.say("compute capability"), fact_text(inventory, "gpu.compute_capability", device)),
        "MIG" if inventory.known("gpu.mig", device) is True else "",
        lang.say("hidden by CUDA_VISIBLE_DEVICES") if inventory.known("gpu.visible", device) is False else "",
    )


def _renumbered(inventory: Inventory, lang: Language) -> str:
    """Return which GPU is cuda:0, cuda:1, … in a program; empty if the driver numbers them alike."""
    ranks = [inventory.known("gpu.rank", device) for device in range(len(inventory.devices))]
    device_of = {rank: device for device, rank in enumerate(ranks) if isinstance(rank, int)}
    if all(rank == device for rank, device in device_of.items()):
        return ""
    return ", ".join(lang.say("cuda:{} is GPU {}", rank, device_of[rank]) for rank in sorted(device_of))


# --- packages and training --------------------------------------------------------------------------


def _packages(report: Report) -> tuple[str, str]:
    inventory = report.inventory
    python = _labelled("Python", fact_text(inventory, "python.version"))
    names = dict.fromkeys((*STACK, *(report.target.packages if report.target else ())))
    texts = [_labelled(name, fact_text(inventory, f"pkg.{name}")) for name in names]
    installed = [text for text in texts if text]
    if installed and installed[0].startswith("torch "):
        installed[0] += torch_build(inventory, report.language)
    if differing := [name for name in names if _differs(inventory.fact(package_key(name)))]:
        installed.append(report.language.say("not the same in all of them: {}", ", ".join(differing)))
    text = f"{python}: {', '.join(installed)}" if python and installed else _joined(python, *installed)
    return (text, "ok") if installed else (text or report.language.say("not given"), "none")


def _differs(fact: Fact) -> bool:
    """Return whether several files or machines are judged together that have different values."""
    return isinstance(fact.reading, Unknown) and fact.reading.why.startswith(JUDGED_TOGETHER)


def torch_build(inventory: Inventory, lang: Language) -> str:
    """Return what torch was built for: ` for CUDA 12.8`, ` (CPU build)`; empty if that is not known."""
    runtime = inventory.fact("cuda.runtime")
    if isinstance(runtime.reading, Absent):
        label = versions.local_label(str(inventory.known("pkg.torch")))
        if label.startswith("rocm"):
            return lang.say(" (ROCm build)")
        if npu := inventory.known("pkg.torch-npu"):
            return lang.say(" with torch-npu {}", npu)
        return lang.say(" (Intel XPU build)") if label.startswith("xpu") else lang.say(" (CPU build)")
    return lang.say(" for CUDA {}", runtime.value) if runtime.value else ""


def _training(inventory: Inventory, lang: Language) -> tuple[str, str]:
    phrases = training_phrases(inventory, lang)
    if not phrases:
        return lang.say("not given (--target or --train)"), "none"
    text = ", ".join(phrases[:_MOST_TRAINING])
    more = len(phrases) - _MOST_TRAINING
    return (lang.say("{} and {} more", text, more) if more > 0 else text), "ok"


def training_phrases(inventory: Inventory, lang: Language) -> tuple[str, ...]:
    """Return the training facts of the configuration or target as short phrases: `ZeRO-3`, `LoRA`."""
    # The vocabulary begins with the facts that most failures depend on.
    facts = [inventory.facts[key] for key in TRAINING if key in inventory.facts]
    return tuple(
        training_phrase(fact.key, value_text(fact.value), lang)
        for fact in facts
        if fact.value is not None and not fact.source.startswith("default")
    )


def training_facts(inventory: Inventory) -> Iterator[tuple[str, str, str]]:
    """Yield the facts of the training configuration: name, value or reason, and where they are stated."""
    for key in TRAINING:
        fact = inventory.facts.get(key)
        if fact is None or fact.source.startswith("default: "):
            continue
        if fact.value is not None:
            yield key.removeprefix("train."), value_text(fact.value), fact.source
        elif isinstance(fact.reading, Unknown) and fact.reading.asked:
            yield key.removeprefix("train."), f"? {fact.reading.why}", fact.source


def training_phrase(key: str, value: str, lang: Language) -> str:
    """Return a training fact as a short phrase: `ZeRO-3` for a stage of 3."""
    phrases = TRAINING[key].phrases
    if value in phrases or "*" not in phrases:
        return lang.word(phrases.get(value, f"{key.removeprefix('train.')} {value}"))
    return lang.word(phrases["*"]).replace("{}", value)


# --- the nearest measured combination ---------------------------------------------------------------


def _measured(report: Report) -> Category:
    assert report.measured is not None  # noqa: S101 - the caller checked
    cell, differences = report.measured.cell, report.measured.differences
    device = "CPU" if cell.device == "cpu" else cell.device
    lang = report.language
    label = lang.say("Measured")
    if not differences:
        text = lang.say("good {} ({}): this combination trained {}", cell.date, device, cell.target)
        return Category(label, text, "ok")
    listed = ", ".join(
        f"{name} {there} {lang.say('(here {})', lang.word(here))}" for name, here, there in differences
    )
    text = lang.say("not this combination; nearest good {} ({}) has {}", cell.date, device, listed)
    return Category(label, text, "none")


# --- small phrases ----------------------------------------------------------------------------------


def _joined(*parts: str) -> str:
    return ", ".join(part for part in parts if part)


def _labelled(label: str, value: str) -> str:
    return f"{label} {value}" if value else ""


def _gib(inventory: Inventory, key: str, device: int | None = None) -> str:
    """Return a fact given in MiB as whole GiB; empty if it is not known."""
    value = inventory.known(key, device)
    return f"{value / 1024:.0f} GiB" if isinstance(value, int) else ""
