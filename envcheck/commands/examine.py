"""The use cases, each a screenful: read at the edge, judge in the core, hand back values to show."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from envcheck import __version__, probes
from envcheck.core import facts_file, i18n, nvidia, versions
from envcheck.core import training_facts as core_training_facts
from envcheck.core.errors import ExamineError, InputError, Place
from envcheck.core.facts import (
    Absent,
    Fact,
    Inventory,
    Key,
    Kind,
    Known,
    Value,
    Vocabulary,
    package_key,
    package_name,
)
from envcheck.core.findings import (
    UNREADABLE,
    Diagnostic,
    Finding,
    Judgement,
    Measured,
    Plan,
    Report,
    Verdict,
    worst_first,
)
from envcheck.core.rules import Cell, Matrix, Severity, Target
from envcheck.host import machine as host
from envcheck.host.machine import Host
from envcheck.knowledge import load as matrix
from envcheck.knowledge.rule_pages import nearest
from envcheck.rules import derive, judge
from envcheck.rules.clauses import shown

if TYPE_CHECKING:
    from envcheck.policy.decision import Settings


class ExamineRequest(NamedTuple):
    """What the user asks about: which environment or facts file, which target, which training.

    `train` holds files, and arguments given in place of a file. `machine` are declared facts, which
    replace what was probed: images are built where no GPU is.
    """

    python: str | None = None
    static: bool = False
    facts: str | None = None
    target: str | None = None
    train: tuple[str, ...] = ()
    driver: str | None = None
    gpus: tuple[str, ...] = ()
    deadline_s: float = 10.0
    overlays: tuple[str, ...] = ()
    platform: str | None = None
    glibc: str | None = None
    expect_gpus: int = 0  # so many GPUs of this machine must be usable


# --- knowledge --------------------------------------------------------------------------------------


def vocabulary(found: Sequence[probes.Probe]) -> Vocabulary:
    """Every key any probe yields, any reader may give, and deriving adds."""
    keys = {
        **core_training_facts.KEYS,
        "selftest.*": Key(Kind.WORD, "how a self-test ended", ("pass", "fail")),
        "host.name": Key(Kind.WORD, "name of the node; no probe reads it, `facts --name` and `fleet` add it"),
    }
    for probe in found:
        keys.update(probe.yields)
    keys.update({key: meaning for key, meaning in derive.KEYS.items() if key not in keys})
    return Vocabulary(keys)


def load_matrix(words: Vocabulary, named: Sequence[str] = (), *, errors_only: bool = False) -> Matrix:
    """The knowledge shipped with this envcheck (compiled in a wheel, TOML in a checkout) and the user's own.

    `errors_only` may leave rules below error level out, which saves pin their loading.

    Raises:
        MatrixError: compat/ has mistakes; all of them are named.
        InputError: a file laid over it is missing or wrong.
    """
    compiled = host.shipped_text("judging.json")
    overlays = overlay_texts(named)
    if compiled is not None and not overlays:
        return matrix.thaw(json.loads(compiled), errors_only=errors_only)
    return matrix.build_overlaid(source_tree(), overlays, words)


def source_tree() -> dict[str, Any]:
    """Everything in compat/ as one tree, release rows and cases too: slower, and seldom needed."""
    text = host.shipped_text("source.json")
    tree: dict[str, Any] = (
        json.loads(text) if text else matrix.gather(host.source_texts("compat", ".toml", but="lang"))
    )
    return tree


def overlay_texts(named: Sequence[str]) -> list[tuple[str, str, str]]:
    """The user's overlays as (name, what named it, text): those of the settings first, then `--matrix`.

    Raises:
        InputError: the settings or one of the files cannot be read.
    """
    said = read_settings()
    files = [(file, said.file) for file in said.matrix] if said is not None else []
    wanted = [*files, *((file, "--matrix") for file in named)]
    return [
        (file, named_by, host.read_file(Path(file)).decode("utf-8", "replace")) for file, named_by in wanted
    ]


def read_settings() -> "Settings | None":
    """The settings of this folder: its envcheck.toml, else `[tool.envcheck]` of its pyproject.toml.

    Raises:
        InputError: the file cannot be read, or is not TOML.
        SettingsError: it has mistakes; all of them are named.
    """
    for name, word in (("envcheck.toml", ""), ("pyproject.toml", "envcheck")):
        if host.named(Path(name)):  # what is no file, or leads nowhere, is told and not passed over
            text = host.read_file(Path(name)).decode("utf-8", "replace")
            if word in text:  # nearly no pyproject.toml, and a parser is worth some milliseconds
                from envcheck.policy import settings

                if (found := settings.read(name, text)) is not None:
                    return found
    return None


def knowledge(named: Sequence[str] = ()) -> Matrix:
    """The knowledge with the vocabulary of every probe, these overlays laid over it."""
    return load_matrix(vocabulary(probes.every_probe()), named)


def find_target(name: str | None, known: Matrix) -> Target | None:
    """The target of this name.

    Raises:
        InputError: there is none; names the nearest.
    """
    if name is None:
        return None
    if name not in known.targets:
        raise InputError(f"target {name}", f"no such target{nearest(name, list(known.targets))}")
    return known.targets[name]


def choose_language(option: str | None, machine: Host) -> i18n.Language:
    """The language to speak: `--lang`, else ENVCHECK_LANG, else the locale's; English reads no file.

    Raises:
        InputError: there is no such language, and it was asked for by name.
    """
    name, asked_by = i18n.chosen(option, machine.environ)
    if name == i18n.ENGLISH.name:
        return i18n.ENGLISH
    found = host.source_texts("compat/lang", "", f"{name}.") if name.isalpha() else {}
    for file, text in found.items():
        return i18n.load(name, json.loads(text) if file.endswith(".json") else _parse(text, file))
    if not asked_by:
        return i18n.ENGLISH
    known = {file.partition(".")[0] for file in host.source_texts("compat/lang", "")}
    raise InputError(asked_by, f"no such language{nearest(name, sorted(known | {i18n.ENGLISH.name}))}")


# --- facts ------------------------------------------------------------------------------------------


def take_inventory(
    question: ExamineRequest, machine: Host, found: Sequence[probes.Probe], known: Matrix, words: Vocabulary
) -> tuple[str, Inventory, tuple[Diagnostic, ...]]:
    """What is examined, in words, every fact that was read or given, and remarks on configurations.

    Raises:
        InputError: a file or an argument is wrong.
        ExamineError: the environment cannot be examined at all.
    """
    if question.facts is not None:
        subject, inventory = question.facts, read_facts(question.facts, words)
    else:
        path, named_by = which_environment(question.python, machine)
        request = probes.ProbeRequest(path, named_by, question.static, question.deadline_s)
        inventory = probes.survey(machine, request, found)
        subject = f"{path} ({named_by})"
    return (subject, *complete_inventory(inventory, question, known))


def complete_inventory(
    inventory: Inventory, question: ExamineRequest, known: Matrix
) -> tuple[Inventory, tuple[Diagnostic, ...]]:
    """The inventory with what is declared of the machine and said of training, and remarks on that.

    Raises:
        InputError: an argument or a configuration is wrong.
    """
    inventory = declare_machine(inventory, question, known)
    packages = {
        package_name(key): str(fact.value)
        for key, fact in inventory.facts.items()
        if fact.value is not None and key.startswith("pkg.") and key.count(".") == 1
    }
    said, remarks = training_facts(question, known, packages)
    implied = f"target {question.target}"
    # A target only fills in: what a facts file says of training is the user's own configuration.
    taken = inventory.with_facts(
        fact for fact in said if fact.source != implied or fact.key not in inventory.facts
    )
    return taken, remarks


def which_environment(python: str | None, machine: Host) -> tuple[Path, str]:
    """The environment to examine and what named it.

    `--python`, else VIRTUAL_ENV, else CONDA_PREFIX, else ./.venv, else envcheck's own. Where both are
    active the one counts whose `python` a shell would start: PATH names it first.
    """
    if python is not None:
        return Path(python), "named by --python"
    active = [variable for variable in ("VIRTUAL_ENV", "CONDA_PREFIX") if machine.environ.get(variable)]
    if len(active) > 1:
        programs = {f"{machine.environ[variable]}/bin": variable for variable in reversed(active)}
        found = (
            programs[folder] for folder in machine.environ.get("PATH", "").split(":") if folder in programs
        )
        active = [next(found, active[0])]
    for variable in active:
        return Path(machine.environ[variable]), f"named by {variable}"
    if Path(".venv/pyvenv.cfg").is_file():
        return Path(".venv"), "in this folder"
    return Path(host.own_python()), "envcheck's own; name another with --python"


def read_facts(where: str, words: Vocabulary) -> Inventory:
    """The inventory in a facts file, TOML or JSON by its content.

    Raises:
        InputError: with the place of the mistake.
    """
    text = host.read_file(Path(where)).decode("utf-8", "replace")
    return facts_file.load(_parse(text, where), where, words)


def _parse(text: str, where: str) -> Any:
    if text.lstrip().startswith(("{", "//", "/*")):
        from envcheck.training_config.readers import json_text  # few starts read a file of the user's

        return json_text.loads(text, where)
    from envcheck.core import toml_locations

    return toml_locations.parsed(text, where)


def training_facts(
    question: ExamineRequest, known: Matrix, installed: Mapping[str, str]
) -> tuple[list[Fact], tuple[Diagnostic, ...]]:
    """What the target implies and what the configurations say, which wins; and what is wrong with these.

    Raises:
        InputError: there is no such target, or no configuration could be read at all.
    """
    facts: dict[str, Fact] = {}
    target = find_target(question.target, known)
    if target is not None:
        facts = {key: Fact(key, Known(value), f"target {target.name}") for key, value in target.train.items()}
    if not question.train:
        return list(facts.values()), ()
    from envcheck.commands import training_files  # few starts name one

    said = training_files.configured(question.train, known.tables.get("argument", []), installed)
    facts.update({fact.key: fact for fact in said.facts})
    return list(facts.values()), said.remarks


def declare_machine(inventory: Inventory, question: ExamineRequest, known: Matrix) -> Inventory:
    """The inventory with the declared platform, driver and GPUs in place of the probed ones.

    Another architecture is another machine: nothing that was probed here says anything of it.

    Raises:
        InputError: the driver is not a version, or no GPU of that name is known.
    """
    inventory = _declare_platform(inventory, question)
    if question.gpus == (NO_GPU,):
        said = f"declared by --gpu {NO_GPU}"
        none = [Fact("gpus.count", Known(0), said), Fact("driver.version", Absent(), said)]
        probed = inventory.without(*derive.OF_DRIVER, *_OF_GPUS_HERE)
        inventory = replace(probed.with_facts(none), devices=())
    if question.driver is not None:
        if versions.parse(question.driver) is None:
            raise InputError("--driver", f"expected a version such as 550.54.15, found {question.driver!r}")
        inventory = inventory.without(*derive.OF_DRIVER).with_facts(
            [Fact("driver.version", Known(question.driver), "declared by --driver")]
        )
    if question.gpus and question.gpus != (NO_GPU,):
        declared = [declared_gpu(query, known) for query in question.gpus]
        devices = tuple({key: Fact(key, Known(value), "declared by --gpu")} for key, value in declared)
        counted = Fact("gpus.count", Known(len(devices)), "declared by --gpu")
        inventory = replace(inventory.without(*_OF_GPUS_HERE).with_facts([counted]), devices=devices)
    return inventory


_OF_GPUS_HERE = (
    "gpus.models",
    "gpus.mixed",
    "gpus.on_bus",
    "gpus.nvswitches",
    "gpus.numa_nodes",
    "gpus.selection",
    "gpus.xids",
)
"""What was read of the GPUs that are here, and says nothing of declared ones."""

NO_GPU = "none"
"""What `--gpu` takes to declare that there is none."""


def _declare_platform(inventory: Inventory, question: ExamineRequest) -> Inventory:
    if question.platform is not None:
        system, _, arch = question.platform.partition("-")
        if inventory.known("host.arch") != arch:
            of_python = {key: fact for key, fact in inventory.facts.items() if key.startswith("python.")}
            inventory = Inventory(facts=of_python)
        said = "declared by --platform"
        inventory = inventory.with_facts(
            [Fact("host.os", Known(system), said), Fact("host.arch", Known(arch), said)]
        )
    if question.glibc is not None:
        inventory = inventory.with_facts([Fact("host.glibc", Known(question.glibc), "declared by --glibc")])
    return inventory


def declared_gpu(query: str, known: Matrix) -> tuple[str, str]:
    """The fact that `--gpu` declares: a name that has all words of the query, or a compute capability.

    `A100 80GB` is any of the A100s with 80 GB; `9.0` and `sm_90` are a compute capability.

    Raises:
        InputError: no GPU of that name is known, or several of different compute capability are.
    """
    if query == NO_GPU:
        raise InputError("--gpu", f"{NO_GPU} declares a machine without GPUs; name it alone")
    digits = query.removeprefix("sm_")
    capability = query if digits == query else f"{digits[:-1]}.{digits[-1:]}"
    if nvidia.is_capability(capability):
        return "gpu.compute_capability", capability
    wanted = _words(query)
    table = known.tables.get("gpu", [])
    rows = [row for row in table if any(wanted <= _words(name) for name in _names(row))]
    rows = [row for row in rows if any(wanted == _words(name) for name in _names(row))] or rows
    if not rows:
        close = nearest(query, [str(row["name"]) for row in table], list_all=False)
        raise InputError(
            "--gpu", f"no GPU {query!r} is known; a compute capability such as 9.0 will do{close}"
        )
    if len({row["compute_capability"] for row in rows}) > 1:
        raise InputError("--gpu", f"{query!r} may be any of {', '.join(sorted(row['name'] for row in rows))}")
    return "gpu.name", str(rows[0]["name"])


def _names(row: Mapping[str, Any]) -> list[str]:
    return [row["name"], *row.get("aliases", [])]


def _words(name: str) -> frozenset[str]:
    return frozenset(name.lower().replace("-", " ").split()) - {"nvidia"}


# --- judging ----------------------------------------------------------------------------------------


def examine(question: ExamineRequest, machine: Host, mend_from: Severity | None = None) -> Report:
    """Probe or read, derive, judge, and try the ways out: what doctor and gate show.

    With `mend_from`, the smallest change too after which nothing of that severity or worse is broken.

    Raises:
        EnvcheckError: as `take_inventory` and `load_matrix`; ExamineError if not one rule was held.
    """
    found = probes.every_probe()
    words = vocabulary(found)
    known = load_matrix(words, question.overlays)
    target = find_target(question.target, known)
    subject, read, remarks = take_inventory(question, machine, found, known, words)
    report = expect_gpus(report_on(subject, read, known, target, mend_from), question)
    return report._replace(diagnostics=remarks, places=locate_facts(report.judgement, question))


def expect_gpus(report: Report, question: ExamineRequest) -> Report:
    """The report with the finding that fewer GPUs can be used here than the question expects.

    Raises:
        InputError: GPUs are declared, so that those of this machine are not what is asked about.
    """
    if not question.expect_gpus:
        return report
    if question.gpus or question.driver:
        raise InputError("--expect-gpus", "counts the GPUs of this machine; leave out --driver and --gpu")
    from envcheck.policy import decision  # few starts expect any

    finding = decision.missing_gpus(report.inventory, question.expect_gpus)
    return report if finding is None else report._replace(judgement=add_findings(report.judgement, [finding]))


def add_findings(judgement: Judgement, more: Sequence[Finding]) -> Judgement:
    """The judgement with findings of rules nobody wrote."""
    return judgement._replace(
        findings=worst_first([*judgement.findings, *more]),
        applied=judgement.applied + sum(each.verdict is Verdict.BROKEN for each in more),
    )


def report_on(
    subject: str, read: Inventory, known: Matrix, target: Target | None, mend_from: Severity | None = None
) -> Report:
    """The report on an inventory as it was read: derive, judge, and try the ways out.

    Raises:
        ExamineError: there was not one rule to hold against it.
    """
    inventory = derive.derive(read, known)
    if not known.rules:
        raise ExamineError("no rule was held against this environment: compat/ is empty")
    judgement = judge_inventory(inventory, known, target)
    return Report(
        version=__version__,
        subject=subject,
        inventory=inventory,
        judgement=add_fixes(judgement, read, inventory, known, target),
        matrix=known,
        target=target,
        measured=nearest_cell(inventory, known, target),
        nothing_to_judge=_nothing_to_judge(inventory),
        plan=None if mend_from is None else plan_change(read, known, target, mend_from),
    )


def plan_change(read: Inventory, known: Matrix, target: Target | None, level: Severity) -> Plan:
    """The smallest change to an inventory as it was read; loads the table of releases."""
    from envcheck.resolution import remediation  # doctor without --fix needs neither

    rows = known.tables.get("release") or source_tree()["tables"].get("release", [])
    python = read.known("python.version")
    listed = remediation.releases(known, rows, None if python is None else str(python))
    return remediation.plan(read, known, target, listed, level)


def locate_facts(judgement: Judgement, question: ExamineRequest) -> dict[str, Place]:
    """Where a facts file says what the findings are about or what would mend them, by the facts' keys."""
    if not question.facts or not judgement.findings:
        return {}
    from envcheck.core import toml_locations

    because = [each.fact for finding in judgement.findings for each in finding.evidence]
    keys = {fact.key for fact in because if fact.source == question.facts}
    text = host.read_file(Path(question.facts)).decode("utf-8", "replace")
    return {key: Place(question.facts, *toml_locations.setting(text, key)) for key in sorted(keys)}


def _nothing_to_judge(inventory: Inventory) -> str:
    torch = inventory.fact("pkg.torch")
    if isinstance(torch.reading, Absent):
        return "no torch in this environment: nothing to judge there"
    return ""


def judge_inventory(inventory: Inventory, known: Matrix, target: Target | None) -> Judgement:
    """The judge's word on an inventory: written rules, those a target brings, those of installed metadata."""
    unmet, met = derive.unmet(inventory)
    rules = [
        *known.rules,
        *matrix.target_rules(target),
        *matrix.requirement_rules(unmet),
        *matrix.selftest_rules(inventory.facts),
    ]
    judgement = judge.judge(inventory, rules)
    return judgement._replace(passed=judgement.passed + met, applied=judgement.applied + met)


def add_fixes(
    judgement: Judgement, read: Inventory, inventory: Inventory, known: Matrix, target: Target | None
) -> Judgement:
    """The judgement with each broken finding's ways out, tried."""
    # Only what is broken at error level speaks against a way out, so only that is asked again.
    errors = [
        rule for rule in (*known.rules, *matrix.target_rules(target)) if rule.severity is Severity.ERROR
    ]

    def tried(finding: Finding) -> Finding:
        rules = errors if finding.rule.severity is Severity.ERROR else [*errors, finding.rule]

        def attempt(changes: Sequence[tuple[str, Value]]) -> Judgement:
            return judge.judge(derive.derive(derive.changed(read, changes, known), known), rules)

        return judge.advise(finding, judgement, inventory, attempt)

    findings = tuple(
        tried(each) if each.verdict is Verdict.BROKEN and each.rule.fixes else each
        for each in judgement.findings
    )
    return judgement._replace(findings=findings)


def nearest_cell(inventory: Inventory, known: Matrix, target: Target | None) -> Measured | None:
    """The measured-good combination of the target that differs least from what is asked about."""
    if target is None:
        return None
    good = [cell for cell in known.cells if cell.target == target.name and cell.outcome == "ok"]
    measured = [Measured(cell, tuple(_differences(cell, target, inventory))) for cell in good]

    def nearness(each: Measured) -> tuple[int, str, Any]:
        # Among equals the later date wins, and then the newer torch.
        return -len(each.differences), each.cell.date, versions.order(each.cell.pkg.get("torch", ""))

    return max(measured, key=nearness, default=None)


def _differences(cell: Cell, target: Target, inventory: Inventory) -> Iterator[tuple[str, str, str]]:
    """What is another here than in the cell: packages by base release, and training facts that are known."""
    for name, there in cell.pkg.items():
        here = inventory.known(package_key(name))
        if here is None or versions.base_release(str(here)) != versions.base_release(there):
            yield name, str(here) if here is not None else "not installed", there
    for key, value in {**target.train, **cell.train}.items():
        given = inventory.known(key)
        if given is not None and given != value:
            yield key.removeprefix("train."), shown(given), shown(value)


def examine_two(question: ExamineRequest, sides: tuple[str, str], machine: Host) -> tuple[Report, Report]:
    """The reports on two facts files, `-` for the environment and the machine that the question names.

    Raises:
        EnvcheckError: as `examine`.
    """
    one, other = (question if side == "-" else question._replace(facts=side) for side in sides)
    return examine(one, machine), examine(other, machine)


def inventory_report(question: ExamineRequest, machine: Host) -> dict[str, Any]:
    """The inventory as a facts file: `envcheck facts`, which `--facts` reads back."""
    found = probes.every_probe()
    words = vocabulary(found)
    known = load_matrix(words, question.overlays)
    _, inventory, remarks = take_inventory(question, machine, found, known, words)
    for remark in remarks:
        if remark.code == UNREADABLE:  # half a configuration would be judged as a whole one elsewhere
            raise InputError(remark.places[0], remark.text)
    return {"envcheck": __version__, **facts_file.dump(inventory)}
