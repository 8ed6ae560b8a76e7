"""Draw pairs of a framework and a partner, judge them, and search all files of the framework for names.

`python benchmarks/atlas_modules.py draw --seed N --draws N -o pairs.jsonl` draws releases of both, half
of them published within 150 days of each other. `judge pairs.jsonl` adds what a user is told who states
these two versions alone. `search pairs.jsonl --store FOLDER` reads a harvest without the atlas's readers:
it lists each import of the partner, at the top of a file or in a function, whose name the partner's
release does not have as a word. Write the judgements down before the search; what it lists has to be
opened.
"""

from __future__ import annotations

import argparse
import ast
import datetime as dt
import json
import random
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from envcheck.atlas.entries import import_names
from envcheck.commands import judging, loading
from envcheck.commands.atlas_tables import release_table
from envcheck.commands.harvest.gaps import use_shipped_entries
from envcheck.core.facts import Fact, Inventory, Known, package_key
from envcheck.core.findings import Verdict
from envcheck.rules import derive

PARTNERS: Mapping[str, str] = {
    "axolotl": "trl transformers peft accelerate datasets vllm torchao",
    "diffusers": "transformers peft accelerate huggingface-hub torchao bitsandbytes",
    "lightning": "transformers deepspeed torchmetrics lightning-utilities bitsandbytes",
    "llamafactory": "trl transformers peft vllm accelerate datasets sglang ray",
    "llmcompressor": "transformers compressed-tensors accelerate datasets",
    "lm-eval": "transformers peft datasets vllm accelerate sglang",
    "ms-swift": "trl transformers peft vllm accelerate datasets deepspeed modelscope",
    "nemo-toolkit": "transformers lightning pytorch-lightning megatron-core huggingface-hub datasets",
    "openrlhf": "transformers vllm ray peft deepspeed datasets",
    "sentence-transformers": "transformers huggingface-hub datasets accelerate peft optimum",
    "sglang": "transformers vllm xgrammar outlines compressed-tensors openai torchao huggingface-hub",
    "trl": "transformers peft accelerate datasets vllm liger-kernel deepspeed",
    "unsloth": "trl transformers peft vllm unsloth-zoo accelerate",
    "verl": "transformers vllm ray peft sglang tensordict trl",
    "vllm": "transformers ray xgrammar outlines compressed-tensors lm-format-enforcer openai"
    " mistral-common fastapi",
}
"""Frameworks, each with the partners that it is drawn with."""

SINCE, OTHERS_SINCE = dt.date(2023, 6, 1), dt.date(2023, 1, 1)
NEAR_DAYS = 150
_STARS = 4
"""The number of star imports that are followed one after another."""


class Import(NamedTuple):
    """Hold one import statement: module, name (empty for the module itself), line, and where it stands."""

    module: str
    name: str
    line: int
    inside: str


def published(package: str, version: str) -> dt.date | None:
    """Return the day of a release; None if the index does not say it."""
    row = release_table().row(package, version)
    return dt.date.fromisoformat(row.uploaded[:10]) if row and row.uploaded else None


def draw(seed: int, number: int) -> Iterator[dict[str, str]]:
    """Yield pairs of releases, the frameworks in turn and the last ones by chance."""
    chance = random.Random(seed)  # noqa: S311 - a sample, not a secret
    names, found = sorted(PARTNERS), 0
    while found < number:
        in_turn = found < number - number % len(names)
        framework = names[found % len(names)] if in_turn else chance.choice(names)
        days = {each: published(framework, each) for each in release_table().versions(framework)}
        release = chance.choice([each for each, day in days.items() if day and day >= SINCE])
        partner = chance.choice(PARTNERS[framework].split())
        kind = "near" if chance.random() < 0.5 else "far"  # noqa: PLR2004 - half of them
        others = {each: published(partner, each) for each in release_table().versions(partner)}
        pool = [each for each, day in others.items() if day and _is_drawn(kind, day, days[release])]
        if pool:
            found += 1
            yield {
                "framework": framework,
                "release": release,
                "partner": partner,
                "partner_release": chance.choice(pool),
                "kind": kind,
            }


def _is_drawn(kind: str, day: dt.date, other: dt.date | None) -> bool:
    if kind == "far" or other is None:
        return day >= OTHERS_SINCE
    return abs((day - other).days) <= NEAR_DAYS


def told(pair: Mapping[str, str]) -> list[str]:
    """Return the broken rules of an inventory that states the two versions and Python 3.11."""
    matrix = loading.knowledge()
    stated = [(pair["framework"], pair["release"]), (pair["partner"], pair["partner_release"])]
    facts = [Fact(package_key(name), Known(version), "draw") for name, version in stated]
    facts.append(Fact("python.version", Known("3.11.7"), "draw"))
    read = Inventory(complete=frozenset({"pkg"})).with_facts(facts)
    inventory = derive.derive(judging.with_requirements(read), matrix)
    return [
        f"{each.severity.value} {each.rule.id}"
        for each in judging.judge_inventory(inventory, matrix, None).findings
        if each.verdict is Verdict.BROKEN
    ]


def imports_in(node: ast.AST, inside: str = "") -> Iterator[Import]:
    """Yield the absolute imports below a node, each with the functions, `try` and tests around it."""
    for child in ast.iter_child_nodes(node):
        around = inside
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            around = f"{inside} def {child.name}"
        elif isinstance(child, ast.Try):
            around = f"{inside} try"
        elif isinstance(child, ast.If):
            around = f"{inside} if {ast.unparse(child.test)[:60]}"
        elif isinstance(child, ast.Import):
            yield from (Import(each.name, "", child.lineno, inside) for each in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
            yield from (Import(child.module, each.name, child.lineno, inside) for each in child.names)
        yield from imports_in(child, around)


class Words:
    """Answer by words what the modules of a stored release contain."""

    def __init__(self, archive: Path) -> None:
        """Open the archive of a release."""
        self._archive = zipfile.ZipFile(archive)
        self.names = frozenset(self._archive.namelist())
        self._texts: dict[str, str | None] = {}

    def read(self, path: str) -> str:
        """Return the text of a file."""
        return self._archive.read(path).decode("utf-8", "replace")

    def text(self, module: str) -> str | None:
        """Return the text of a module, empty for a folder without one; None if there is none."""
        if module not in self._texts:
            base = module.replace(".", "/")
            ends = ("/__init__.py", ".py", "/__init__.pyi", ".pyi")  # as Python: folders first
            path = next((base + end for end in ends if base + end in self.names), "")
            folder = any(name.startswith(f"{base}/") for name in self.names)
            self._texts[module] = self.read(path) if path else ("" if folder else None)
        return self._texts[module]

    def may_have(self, module: str, name: str, depth: int = 0) -> bool:
        """Return whether a module, a submodule or a star import may offer a name."""
        text = self.text(module)
        if text is None or name in ("", "*"):
            return text is not None
        if re.search(rf"\b{name}\b", text) or self.text(f"{module}.{name}") is not None:
            return True
        if "__getattr__" in text and not module.startswith("transformers"):
            return True
        stars = re.findall(r"from ([.\w]+) import \(?\s*\*", text)
        below = (self._absolute(module, each) for each in stars)
        if depth < _STARS and any(self.may_have(each, name, depth + 1) for each in below):
            return True
        return "define_import_structure" in text and self._scanned(module, name)

    def _absolute(self, module: str, target: str) -> str:
        rest = target.lstrip(".")
        level = len(target) - len(rest)
        if not level:
            return target
        is_package = f"{module.replace('.', '/')}/__init__.py" in self.names
        parts = module.split(".") if is_package else module.split(".")[:-1]
        parts = parts[: len(parts) - level + 1]
        return ".".join([*parts, rest] if rest else parts)

    def _scanned(self, module: str, name: str) -> bool:
        start = module.replace(".", "/") + "/"
        files = (each for each in self.names if each.startswith(start) and each.endswith(".py"))
        return any(re.search(rf"\b{name}\b", self.read(each)) for each in files)


def missing(pair: Mapping[str, str], store: Path) -> Iterator[str]:
    """Yield the imports of the partner that its release does not have, with file, line and what is around.

    Raises:
        FileNotFoundError: one of the two releases is not stored.

    """
    own = Words(store / pair["framework"] / f"{pair['release']}.zip")
    other = Words(store / pair["partner"] / f"{pair['partner_release']}.zip")
    tops = {*import_names(pair["partner"])} - {*import_names(pair["framework"])}
    for path in sorted(own.names):
        if not path.endswith(".py") or "/test" in path:
            continue
        try:
            tree = ast.parse(own.read(path))
        except SyntaxError:
            continue
        for each in imports_in(tree):
            if each.module.split(".")[0] in tops and not other.may_have(each.module, each.name):
                yield f"{path}:{each.line} {each.module} {each.name}{each.inside}"


def main() -> int:
    """Do the step that the command line names, and print one line of JSON for each pair."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("step", choices=("draw", "judge", "search"))
    parser.add_argument("file", nargs="?", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--draws", type=int, default=30)
    parser.add_argument("--store", type=Path, help="folder of a harvest")
    parser.add_argument("-o", dest="output", type=Path)
    options = parser.parse_args()
    use_shipped_entries()
    out = options.output.open("w", encoding="utf-8") if options.output else sys.stdout
    for pair in _pairs(options):
        row: dict[str, Any] = dict(pair)
        if options.step == "judge":
            row["told"] = told(pair)
        elif options.step == "search":
            try:
                row["missing"] = [*missing(pair, options.store)]
            except FileNotFoundError:
                row["missing"] = None  # not stored
        print(json.dumps(row), file=out, flush=True)
    return 0


def _pairs(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    if options.step == "draw":
        yield from draw(options.seed, options.draws)
        return
    for line in options.file.read_text(encoding="utf-8").splitlines():
        yield json.loads(line)


if __name__ == "__main__":
    sys.exit(main())
