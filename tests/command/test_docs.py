"""The documentation builds without a warning, and its commands, outputs, rules, links and keys are correct."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess  # noqa: TID251 - tests are users
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from envcheck.cli.main import COMMANDS
from envcheck.cli.program import build_program
from envcheck.commands import loading
from envcheck.core.rules import Matrix
from tests.support.paths import ROOT
from tests.support.running import envcheck

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^(```+)(\S*).*?\n(.*?)^\1$", re.MULTILINE | re.DOTALL)
GENERATED = {"command-line.md"}  # help texts, which contain no command lines


def _name(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def known() -> Matrix:
    return loading.knowledge()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not importlib.util.find_spec("sphinx") or not importlib.util.find_spec("myst_parser"):
        pytest.skip(
            "sphinx and myst-parser are not installed beside this Python; the extra [docs] brings them"
        )
    out = tmp_path_factory.mktemp("site")
    ran = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "docs", str(out)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=ROOT,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    return out


def test_it_builds_without_a_warning_and_needs_no_network(site: Path) -> None:
    for page in site.rglob("*.html"):
        text = page.read_text()
        assert not re.search(r'<(?:script|img|link)\b[^>]*(?:src|href)="(?:https?:)?//', text), page
        assert "{envcheck}" not in text, page


def test_every_rule_target_and_machine_is_listed(site: Path, known: Matrix) -> None:
    rules = (site / "reference/rules.html").read_text()
    assert [rule.id for rule in known.rules if f'id="rule-{rule.id}"' not in rules] == []
    targets = (site / "reference/targets.html").read_text()
    assert [name for name in known.targets if f'id="target-{name}"' not in targets] == []
    machines = (site / "reference/machines.html").read_text()
    assert [name for name in known.machines if name not in machines] == []


def test_a_how_to_includes_the_knowledge_about_its_rule(site: Path, known: Matrix) -> None:
    page = (site / "how-to/zero3-lora-checkpointing.html").read_text()
    rule = known.rule("zero3-frozen-nonreentrant-checkpoint")
    assert rule is not None
    for text in (rule.title, rule.fixes[0].set[0][1], rule.no_fixes[0].why, rule.sources[0].url):
        shown = str(text).replace("<", "&lt;").replace(">", "&gt;")
        assert shown in page
    assert "Size([4096])" in page  # the text of the failure comes from a recorded log
    assert "Size([0])" in page


# --- command lines ----------------------------------------------------------------------------------


def _commands(text: str) -> Iterator[str]:
    """Yield the arguments of every `envcheck …` in code, up to where a shell would end the command."""
    blocks = [block[3].replace("\\\n", " ") for block in BLOCK.finditer(text)]
    spans = re.findall(r"`([^`\n]+)`", BLOCK.sub("", text))
    for line in [line for code in (*blocks, *spans) for line in code.splitlines()]:
        for found in re.finditer(r"(?:^|[\s/(])envcheck ([a-z-].*)", line.partition(" # ")[0]):
            yield found[1]


def _words(command: str) -> list[str]:
    lexer = shlex.shlex(command, posix=True, punctuation_chars="|&;<>(){}")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("|&;<>(){}"):
            break
        words.append(word)
    return words


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=_name)
def test_every_command_line_has_valid_options_and_names(page: Path, known: Matrix) -> None:
    group: Any = build_program([])
    selftests = {path.stem for path in (ROOT / "envcheck/target_scripts/selftests").glob("[a-z]*.py")}
    names = {
        "--target": {*known.targets},
        "--machine": {*known.machines, "ours"},
    }  # `ours` is declared in the settings
    for command in _commands(page.read_text()):
        name, *rest = [word for word in _words(command) if word != "…"]
        if name.startswith("-"):
            assert name in {"--version", "--help", "--install-completion"}, command
            continue
        assert name in COMMANDS, f"{page.name}: envcheck {command}"
        known_options = {option for each in group.commands[name].params for option in each.opts}
        own = rest[: rest.index("--")] if "--" in rest else rest
        for word in own:
            if word.startswith("-") and word != "-" and " " not in word:
                assert word.partition("=")[0] in known_options | {"--help"}, (
                    f"{page.name}: envcheck {command}"
                )
        for option, value in pairwise(own):
            named = selftests if (name, option) == ("selftest", "--only") else names.get(option)
            assert named is None or value in named, f"{page.name}: envcheck {command}"


def _shown(page: Path) -> list[tuple[str, str]]:
    """Return each command and its output in the console blocks; `…` marks omissions in the output."""
    found = [block[3] for block in BLOCK.finditer(page.read_text()) if block[2] == "console"]
    parts = [part.partition("\n") for block in found for part in re.split(r"^\$ ", block, flags=re.MULTILINE)]
    return [(command, output) for command, _, output in parts if command]


SHOWN = [(_name(page), command, output) for page in PAGES for command, output in _shown(page)]


@pytest.mark.parametrize(("page", "command", "output"), SHOWN, ids=[f"{p}: {c[:40]}" for p, c, _ in SHOWN])
def test_a_console_block_shows_the_real_output(page: str, command: str, output: str) -> None:
    program, *arguments = shlex.split(command)
    assert program == "envcheck", page
    ran = envcheck(*arguments)
    text = ran.out + ran.err
    pattern = ".*?".join(re.escape(part) for part in output.strip().strip("…").strip("\n").split("…"))
    assert re.search(pattern, text, re.DOTALL), f"{page}: {command}\n{text}"


# --- rules, links, keys -----------------------------------------------------------------------------


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_named_rule_exists(page: Path, known: Matrix) -> None:
    text = page.read_text()
    code = "".join(path.read_text() for path in (ROOT / "envcheck").rglob("*.py"))
    named = re.findall(r"#rule-([a-z0-9-]+)|envcheck rule ([a-z0-9-]{4,})|\{envcheck\} rule (\S+)", text)
    for rule in {each for found in named for each in found if each}:
        assert known.rule(rule), rule
    for rule in re.findall(r"(?:error|warning|note): .*\[([a-z0-9-]+)\]$", text, re.MULTILINE):
        assert known.rule(rule) or f'"{rule}"' in code, rule  # a rule, or the code of a diagnostic


@pytest.mark.parametrize("page", PAGES, ids=_name)
def test_every_relative_link_has_a_target(page: Path) -> None:
    text = BLOCK.sub("", page.read_text())
    for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if not link.startswith(("https://", "http://")):
            assert (page.parent / link).exists(), link


def _documented(page: str) -> set[str]:
    return set(re.findall(r"^\| `([\w.\[\]]+)` \|", (ROOT / page).read_text(), re.MULTILINE))


def _paths(value: Any, documented: set[str], path: str = "") -> Iterator[str]:
    """Yield the paths of the keys of a JSON value, as deep as they are documented."""
    if isinstance(value, list):
        for each in value:
            yield from _paths(each, documented, f"{path}[]")
    elif isinstance(value, dict):
        for key, each in value.items():
            inner = f"{path}.{key}" if path else key
            deeper = {known for known in documented if known.startswith((f"{inner}.", f"{inner}[]."))}
            if inner in documented or not deeper:
                yield inner
            if deeper:
                yield from _paths(each, documented, inner)


def test_explain_prints_exactly_the_documented_keys() -> None:
    documented = _documented("docs/reference/explain-json.md")
    printed: set[str] = set()
    for log, facts in (("zero3-lora-trl-2514", "zero3-lora"), ("deepspeed0140-torch240", "deepspeed-import")):
        ran = envcheck(
            "explain", f"tests/data/logs/{log}.log", "--facts", f"docs/facts/{facts}.toml", "--format", "json"
        )
        assert ran.code == 1, ran.err
        printed |= set(_paths(json.loads(ran.out), documented))
    read = envcheck("explain", "tests/data/logs/zero3-lora-trl-2514.log", "--format", "json")
    printed |= set(_paths(json.loads(read.out), documented))
    assert printed == documented


def test_fleet_prints_exactly_the_documented_keys(tmp_path: Path) -> None:
    documented = _documented("docs/reference/fleet-json.md")
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "train_batch_sise": 8}')
    facts = (ROOT / "docs/facts/cluster.jsonl").read_text().splitlines()
    unread = {"host": {"name": "gpu010"}, "unknown": {"driver.version": "no answer"}}
    nothing = {"host": {"name": "gpu011"}, "complete": ["pkg"]}
    lines = [*facts, facts[0], '{"broken', *map(json.dumps, (unread, nothing))]
    (tmp_path / "facts.jsonl").write_text("\n".join(lines))
    words = ("--expect", "gpu[001-012]", "--target", "zero3-lora", "--train", str(tmp_path / "ds.json"))
    ran = envcheck("fleet", str(tmp_path / "facts.jsonl"), "--json", *words)
    assert ran.code == 1, ran.err
    assert set(_paths(json.loads(ran.out), documented)) == documented


def test_fit_prints_exactly_the_documented_keys() -> None:
    documented = _documented("docs/reference/fit-json.md")
    model = "params=7.6e9,layers=28,hidden=3584,heads=28,mlp=18944,vocab=152064"
    ran = envcheck(
        "fit",
        "--model",
        model,
        "--target",
        "zero3-lora",
        "--gpus",
        "8",
        "--gpu",
        "A100 80GB",
        "--seq",
        "4096",
        "--json",
    )
    assert ran.code == 0, ran.err
    assert set(_paths(json.loads(ran.out), documented)) == documented
