"""Judge the examples that a training framework ships beside its own release; each error is read by hand.

`python benchmarks/examples.py CHECKOUT PACKAGE RELEASE DAY PATTERN [PACKAGE...]`

CHECKOUT is the framework's repository at the tag of RELEASE, and PATTERN a regular expression for the files
in it that start trainings. The environment is the newest release of each package on DAY (`2026-07-21`) that
everything already chosen allows, for Python 3.11 on Linux; further packages are chosen before the usual ones.
A repository without releases of its own has `-` for PACKAGE and RELEASE. Prints each error and warning that
a file adds to those of the environment alone, with the number of files and the first three, and how many
files were judged and how many say nothing about a training.

An example has mostly run on the day of its release, so an error is false, or true of a release that came
out on the same days. First run on 2026-11-30 over 6,832 files at 64 states of 13 repositories
(LLaMA-Factory, axolotl, TRL, ms-swift, OpenRLHF, verl, PEFT, accelerate, sentence-transformers, Unsloth's
notebooks, torchtune, NeMo RL, the alignment handbook); a file that several states have counts for each. Two
kinds of error were false, 52 and 3 times: three rules on attention and packing of ms-swift in files of its
Megatron trainer, which were read as another trainer's where its own code lies beside them (84 remarks were
false for the same reason), and the rule on FlashAttention for Mllama, which axolotl 0.5 to 0.9.2 gives it.
A third kind was in the documents of TRL: a quantised reference model counted as the base. All three are
mended. The others are taken for true: frozen parameters that ZeRO-3 empties in examples of axolotl,
OpenRLHF and PEFT, an 8-bit optimizer under FSDP2 that axolotl refuses (opened), optimizers that
transformers dropped, transformers 5.6.0 with FlashAttention, TRL's DPO beside transformers 5.6
(LLaMA-Factory 0.9.5 was searched for a way around), 8-bit AdamW beside accelerate 1.2.0, Qwen3.5 under
ZeRO-3 with transformers 5.5, and models for which Unsloth's notebooks install a newer transformers.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envcheck.commands import examine
from envcheck.commands.atlas_tables import release_table
from envcheck.commands.judging import judge_inventory, with_requirements
from envcheck.commands.loading import load_matrix
from envcheck.core.errors import InputError
from envcheck.core.findings import Diagnostic, Finding, Verdict
from envcheck.core.rules import Severity
from envcheck.host.machine import Host
from envcheck.knowledge.release_metadata import PublishedFacts
from envcheck.rules import derive

USUAL = (
    "torch", "transformers", "accelerate", "peft", "trl", "datasets", "deepspeed", "bitsandbytes", "numpy",
    "huggingface-hub", "tokenizers", "safetensors", "liger-kernel", "torchvision", "flash-attn", "pydantic",
)  # fmt: skip
PYTHON = "3.11"
MACHINE = {
    "python_version": PYTHON, "python_full_version": f"{PYTHON}.9", "platform_system": "Linux",
    "sys_platform": "linux", "platform_machine": "x86_64", "extra": "",
}  # fmt: skip
LEVELS = (Severity.ERROR, Severity.WARNING)


class Environment:
    """Hold the releases that were chosen, and what they require of those that are chosen later."""

    def __init__(self, day: str) -> None:
        """Take the day, `YYYY-MM-DD`, after which no release counts."""
        self.day, self.table = day, release_table()
        self.versions: dict[str, str] = {}
        self._required: dict[str, list[SpecifierSet]] = defaultdict(list)

    def add(self, package: str, version: str = "") -> None:
        """Choose a release of a package, the newest that is allowed if none is named."""
        found = version or self._newest(package)
        row = self.table.row(package, found) if found else None
        if not found or package in self.versions:
            return
        self.versions[package] = found
        for name, specifier in required_by(row) if row else ():
            self._required[name].append(specifier)

    def _newest(self, package: str) -> str:
        for version in reversed(self.table.versions(package)):
            row = self.table.row(package, version)
            if row is None or row.yanked or row.uploaded > self.day or Version(version).is_prerelease:
                continue
            allows = all(
                name not in self.versions or specifier.contains(self.versions[name])
                for name, specifier in required_by(row)
            )
            if allows and all(each.contains(version) for each in self._required[package]):
                return version
        return ""


def required_by(row: PublishedFacts) -> Iterator[tuple[str, SpecifierSet]]:
    """Yield the packages that a release requires on `MACHINE`, with the releases of them that it allows."""
    for requirement in map(Requirement, row.requires):
        if requirement.marker is None or requirement.marker.evaluate(MACHINE):
            yield canonicalize_name(requirement.name), requirement.specifier


class Judge:
    """Judge one environment with each of several configurations; the knowledge is loaded once."""

    def __init__(self, versions: dict[str, str], folder: Path) -> None:
        """Take the versions of packages by their names, and a folder for the facts file."""
        file = folder / "facts.json"
        file.write_text(json.dumps({"python": {"version": f"{PYTHON}.9"}, "pkg": versions}))
        self._facts = str(file)
        self._probes, self._keys = examine.probes_and_vocabulary(self._request(()))
        self._matrix = load_matrix(self._keys, ())

    def _request(self, train: tuple[str, ...]) -> examine.ExamineRequest:
        return examine.ExamineRequest(facts=self._facts, train=train, gpus=("H100",) * 8, driver="580")

    def findings(self, *train: str) -> Iterator[Finding | Diagnostic]:
        """Yield what is found with these configurations.

        Raises:
            InputError: a file is no configuration of a training.
        """
        request = self._request(train)
        _, read, remarks = examine.take_inventory(request, Host(), self._probes, self._matrix, self._keys)
        inventory = derive.derive(with_requirements(read), self._matrix)
        judgement = judge_inventory(inventory, self._matrix, None, None)
        yield from (each for each in judgement.findings if each.verdict is Verdict.BROKEN)
        yield from remarks


def described(found: Finding | Diagnostic) -> str:
    """Return one line for an error or a warning, or an empty text for anything less."""
    if found.severity not in LEVELS:
        return ""
    what = found.rule.id if isinstance(found, Finding) else found.text
    return f"{found.severity.value} {what}"


def main(arguments: Sequence[str]) -> int:
    """Judge the files, and print what was found."""
    checkout, package, release, day, wanted, *further = arguments
    environment = Environment(day)
    if package != "-":
        environment.add(package, release)
    for each in (*further, *USUAL):
        environment.add(each)
    print(" ".join(f"{name}=={version}" for name, version in environment.versions.items()))
    with tempfile.TemporaryDirectory() as folder:
        report(Judge(environment.versions, Path(folder)), checkout, wanted)
    return 0


def report(judge: Judge, checkout: str, wanted: str) -> None:
    """Judge each file of a checkout whose name matches a pattern, and print what was found."""
    alone = {described(each) for each in judge.findings()}
    os.chdir(checkout)
    files = sorted(path.as_posix() for path in Path().rglob("*") if path.is_file())
    said: defaultdict[str, list[str]] = defaultdict(list)
    judged = silent = 0
    for file in filter(re.compile(wanted).search, files):
        try:
            lines = {described(each) for each in judge.findings(file)} - alone - {""}
        except InputError:
            silent += 1
            continue
        judged += 1
        for line in lines:
            said[line].append(file)
    for line, where in sorted(said.items()):
        print(f"{len(where):5} {line}: {', '.join(where[:3])}")
    print(f"{judged} files judged, {silent} say nothing about a training")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
