"""Write the pages of the reference from the commands and the knowledge.

`python tools/write_reference.py` prints the page of the command line, which is committed. With a name,
`python tools/write_reference.py NAME` prints another page of PAGES; docs/conf.py inserts those pages into the
documents that name them.
"""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

sys.path.insert(0, str(ROOT))
from envcheck import probes  # noqa: E402 - of this checkout
from envcheck.cli.main import COMMANDS, command_module  # noqa: E402
from envcheck.cli.program import build_program  # noqa: E402
from envcheck.commands import loading  # noqa: E402 - of this checkout
from envcheck.core import training_facts  # noqa: E402 - of this checkout
from envcheck.core.facts import Key, family, package_name  # noqa: E402 - of this checkout
from envcheck.core.rules import Matrix, Rule, Target, When, uninstalls  # noqa: E402


def main() -> None:
    """Print the named page; without a name, the page of the command line."""
    name, *arguments = sys.argv[1:] or ["command-line"]
    if name not in PAGES:
        sys.exit(f"no page {name}: expected {', '.join(PAGES)}")
    print("\n".join(page(name, *arguments)))


def page(name: str, *arguments: str) -> Iterator[str]:
    """Return the lines of a page, as Markdown.

    Raises:
        KeyError: there is no such page, or no such rule.
    """
    return PAGES[name](*arguments)


@cache
def _known() -> Matrix:
    return loading.knowledge()


# --- commands ---------------------------------------------------------------------------------------


def _command_line() -> Iterator[str]:
    yield "# Command line\n"
    yield "Written by `tools/write_reference.py` from the commands themselves."
    for name in COMMANDS:
        yield f"\n## envcheck {name}\n\n```text\n{_help(name)}\n```"


def _help(name: str) -> str:
    """Return the output of `envcheck NAME --help`."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        program = build_program([name])
        program([name, "--help"], prog_name="envcheck", standalone_mode=False, terminal_width=100)
    return out.getvalue().strip()


def _exit_codes() -> Iterator[str]:
    yield "| command | exit codes |\n| --- | --- |"
    for name in COMMANDS:
        help_text = " ".join((command_module(name).command.__doc__ or "").split())
        (codes,) = re.findall(r"(?:Exit codes: |The exit code is )(.+)$", help_text)  # in every command
        yield f"| `envcheck {name}` | {_text(codes)} |"


# --- knowledge --------------------------------------------------------------------------------------


def _rules() -> Iterator[str]:
    rules = _known().rules
    yield f"{len(rules)} rules, as of {_known().updated}."
    for group, number in Counter(rule.group for rule in rules).items():
        title = group.removeprefix("rules/").removesuffix(".toml")
        yield f"\n## {title} ({number})"
        for rule in rules:
            if rule.group == group:
                yield f"\n(rule-{rule.id})=\n### {rule.id}\n\n**{_text(rule.title)}**\n"
                yield from _rule(rule)


def _one_rule(rule_id: str) -> Iterator[str]:
    rule = _known().rule(rule_id)
    if rule is None:
        raise KeyError(rule_id)
    yield f"**{_text(rule.title)}** ([{rule.id}](#rule-{rule.id}))\n"
    yield from _rule(rule)


def _rule(rule: Rule) -> Iterator[str]:
    yield f"Severity: {rule.severity.value}. Basis: {rule.basis.value}.\n"
    if rule.why:
        yield _text(" ".join(rule.why.split())) + "\n"
    for number, table in enumerate(rule.when):
        yield "Or if all of these are true:\n" if number else "It occurs if all of these are true:\n"
        yield from _clauses(table)
    if rule.require:
        yield "Unless all of these are true:\n"
        yield from _clauses(rule.require)
    if rule.fixes:
        yield "Fixes, best first:\n"
        for fix in rule.fixes:
            yield f"* {_changes(fix.set)}" + (f": {_text(fix.cost)}" if fix.cost else "")
        yield ""
    if rule.no_fixes:
        yield "What does not help:\n"
        for vain in rule.no_fixes:
            yield f"* {_changes(vain.set)}: {_text(vain.why)} (<{vain.source}>)"
        yield ""
    yield "Sources:\n"
    for source in rule.sources:
        yield f"* <{source.url}> ({source.kind}, checked {source.checked})"
    yield ""


def _clauses(table: When) -> Iterator[str]:
    for clause in table:
        key = training_facts.KEYS.get(clause.key)
        phrase = key.phrases.get(clause.raw, "") if key else ""
        yield f"* {_code(_clause_text(clause.key, clause.raw))}" + (f" ({phrase})" if phrase else "")
    yield ""


def _changes(changes: tuple[tuple[str, str | int | bool], ...]) -> str:
    return ", ".join(
        f"uninstall {_code(package_name(key))}"
        if uninstalls(key, value)
        else _code(_clause_text(key, _value(value)))
        for key, value in changes
    )


def _clause_text(key: str, bound: str) -> str:
    """Return a clause as text: `pkg.deepspeed <0.19.3`, `train.zero_stage = 3`, `pkg.peft absent`."""
    plain = bound[:1] not in "<>=!" and bound not in ("present", "absent")
    return f"{key} = {bound}" if plain else f"{key} {bound}"


def _targets() -> Iterator[str]:
    group = ""
    for target in _known().targets.values():
        if target.group != group:
            group = target.group
            yield f"\n## {group[:1].upper()}{group[1:]}\n"
        yield from _target(target)


def _target(target: Target) -> Iterator[str]:
    yield f"\n(target-{target.name})=\n### {target.name}\n\n{_text(target.title)}.\n"
    for text in filter(None, (target.purpose, target.note)):
        yield _text(text) + "\n"
    if target.extends:
        yield f"* builds on [{target.extends}](#target-{target.extends})"
    yield f"* requires {', '.join(map(_code, (*target.packages, *target.extras)))}"
    for name, bound in target.bounds.items():
        yield f"* bounds {_code(name + bound)}"
    for name, why in target.conflicts.items():
        yield f"* does not go with {_code(name)}: {_text(why)}"
    for place, why in target.lacks.items():
        where = f"Python {place}" if place[0].isdigit() else place
        yield f"* no lock for {where}: {_text(why)}"
    if target.server:
        yield f"* its server runs in a separate environment: [{target.server}](#target-{target.server})"
    if target.build:
        yield f"* published as source only, so built on installation: {', '.join(map(_code, target.build))}"
    for key, value in target.train.items():
        yield f"* implies {_code(f'{key} = {_value(value)}')}"
    if target.free:
        yield f"* leaves {', '.join(map(_code, target.free))} to `pin`"
    outcomes = Counter(cell.outcome for cell in _known().cells if cell.target == target.name)
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.items())
    yield f"* combinations that were run: {counts or 'none'} (`envcheck target {target.name}` lists them)"


def _machines() -> Iterator[str]:
    yield "| machine | driver | GPUs |\n| --- | --- | --- |"
    for name, machine in _known().machines.items():
        gpus = machine.get("gpu", "")
        shown = ", ".join(gpus) if isinstance(gpus, list) else gpus
        yield f"| `{name}` | {machine.get('driver', '')} | {shown} |"


# --- facts ------------------------------------------------------------------------------------------


def _training() -> Iterator[str]:
    yield from _keys(training_facts.KEYS)


def _facts() -> Iterator[str]:
    keys = loading.vocabulary(probes.every_probe()).keys
    for name in sorted({family(key) for key in keys} - {"train"}):
        yield f"\n## {name}\n"
        yield from _keys({key: meaning for key, meaning in keys.items() if family(key) == name})


def _keys(keys: Mapping[str, Key]) -> Iterator[str]:
    yield "| key | kind | meaning |\n| --- | --- | --- |"
    for name, key in sorted(keys.items()):
        words = f": {', '.join(map(_code, key.words))}" if key.words else ""
        yield f"| {_code(name)} | {key.kind.value} | {_text(key.help)}{words} |"


# --- what others check ------------------------------------------------------------------------------


def _coverage() -> Iterator[str]:
    tree = tomllib.loads((ROOT / "docs/coverage.toml").read_text())
    yield f"| | {' | '.join(tree['verdict'])} | all |\n| --- |{' --- |' * (len(tree['verdict']) + 1)}"
    for source in tree["source"]:
        counts = Counter(entry["verdict"] for entry in source["entries"])
        cells = {verdict: str(counts[verdict]) for verdict in tree["verdict"]} | {"all": str(counts.total())}
        if tested := sum(map(_only_tested, source["entries"])):
            cells["detected"] += f", {tested} of them only by self-tests"
        yield f"| [{_text(source['title'])}](#{source['name']}) | {' | '.join(cells.values())} |"
    yield ""
    for verdict, meaning in tree["verdict"].items():
        yield f"* **{verdict}**: {_text(meaning)}"
    for source in tree["source"]:
        yield f"\n({source['name']})=\n## {_text(source['title'])}\n\n{_text(source['lists'])}"
        commit = source["commit"][:12]
        yield f"<{source['url']}>, {source['at']} (commit `{commit}`), read on {source['read']}.\n"
        yield "| entry | envcheck |\n| --- | --- |"
        for entry in source["entries"]:
            by = ", ".join(map(_link_or_code, entry.get("by", [])))
            why = entry.get("why") or tree["because"].get(entry.get("because"), "")
            verdict = f"**{entry['verdict']}**{by and f' by {by}'}"
            yield f"| {_code(entry['name'])} | {': '.join(filter(None, (verdict, _text(why))))} |"


def _only_tested(entry: Mapping[str, Any]) -> bool:
    return entry["verdict"] == "detected" and all(by.startswith("selftest.") for by in entry["by"])


def _link_or_code(name: str) -> str:
    """Return a link to a rule; format the name of a fact, a self-test or a signature as code."""
    return f"[{name}](#rule-{name})" if _known().rule(name) else _code(name)


# --- the report -------------------------------------------------------------------------------------


def _report() -> Iterator[str]:
    schema = json.loads((ROOT / "envcheck/schemas/report.json").read_text())
    yield _text(schema["description"]) + "\n"
    yield from _properties(schema)
    for name, part in schema["$defs"].items():
        yield f"\n## {name}\n\n{_text(part.get('description', ''))}\n"
        yield from _properties(part)


def _properties(part: Mapping[str, Any]) -> Iterator[str]:
    rows = list(_rows(part, ""))
    if rows:
        yield "| key | type | |\n| --- | --- | --- |"
        yield from rows


def _rows(part: Mapping[str, Any], path: str) -> Iterator[str]:
    for name, each in part.get("properties", {}).items():
        inner = each.get("items", each)
        yield f"| {_code(path + name)} | {_type(each)} | {_text(each.get('description', ''))} |"
        yield from _rows(inner, f"{path}{name}{'[]' if inner is not each else ''}.")


def _type(part: Mapping[str, Any]) -> str:
    if "anyOf" in part:
        return " or ".join(_type(each) for each in part["anyOf"])
    if "$ref" in part:
        return str(part["$ref"]).rpartition("/")[2]
    if "enum" in part or "const" in part:
        return ", ".join(_code(_value(each)) for each in part.get("enum", [part.get("const")]))
    if "items" in part:
        return f"list of {_type(part['items'])}"
    return str(part.get("type", "any"))


# --- Markdown ---------------------------------------------------------------------------------------


def _text(text: str) -> str:
    """Escape plain text for Markdown; text in backquotes stays code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one backquote is not closed
        return _escaped(text)
    return "`".join(part if number % 2 else _escaped(part) for number, part in enumerate(parts))


def _escaped(text: str) -> str:
    return re.sub(r"([\\`*_\[\]<>|$~])", r"\\\1", text)


def _code(text: str) -> str:
    return f"`{text}`".replace("|", r"\|")


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) or value is None else str(value)


PAGES: Mapping[str, Callable[..., Iterator[str]]] = {
    "command-line": _command_line,
    "exit-codes": _exit_codes,
    "rules": _rules,
    "rule": _one_rule,
    "targets": _targets,
    "machines": _machines,
    "training": _training,
    "facts": _facts,
    "report": _report,
    "coverage": _coverage,
}


if __name__ == "__main__":
    main()
