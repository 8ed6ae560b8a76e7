"""Hold the atlas against executed imports: predictions are written down first, then every draw is run.

    python benchmarks/atlas.py draw --gaps FOLDER --python BASE/bin/python --draws 300 -o predictions.json
    python benchmarks/atlas.py run predictions.json --python BASE/bin/python --overlays FOLDER -o FILE
    python benchmarks/atlas.py report predictions.json outcomes.json

A draw is a release of two packages and an entry of the first. Half of the draws lie within two releases of a
bound that the tables in FOLDER predict, half anywhere. Other packages stand in the newest release that the
requirements of both admit; torch, and what is not in the atlas, is the base's. Each release is an overlay
folder (`pip install --no-deps --target`); each statement runs in a process with a deadline. A failure that
names a module which no package of the draw brings says nothing about versions, and is left out.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import re
import subprocess  # noqa: TID251 - a benchmark starts what it measures
import tempfile
import time
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import Version

from envcheck.atlas.entries import PACKAGES
from envcheck.commands.atlas_tables import release_table
from envcheck.core.rules import Atlas, AtlasRow
from envcheck.knowledge.atlas import read_atlas

ASKING = ("peft", "trl", "accelerate", "transformers", "sentence-transformers", "diffusers")
PARTNERS = ("transformers", "accelerate", "peft", "huggingface-hub", "tokenizers", "torch", "datasets")
COMPANIONS = (*ASKING, *PARTNERS, "safetensors", "fsspec")
"""Packages whose releases are laid over the base; the others are taken from it."""

PURE = {*ASKING, "huggingface-hub", "datasets", "fsspec"}

OLDEST = {"transformers": "4.34", "trl": "0.7.5", "peft": "0.6", "accelerate": "0.24"}
"""Before these, releases have no wheels for the Python of a current torch."""

DEADLINE_S = 240
NEAR = 2
MOST_STEPS = 100
TRAINER = """
from transformers import Trainer, TrainingArguments, LlamaConfig, LlamaForCausalLM
model = LlamaForCausalLM(LlamaConfig(vocab_size=32, hidden_size=16, intermediate_size=16,
    num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2))
rows = [{"input_ids": [1, 2, 3], "labels": [1, 2, 3]}] * 4
arguments = TrainingArguments(output_dir=".", report_to=[], max_steps=1, per_device_train_batch_size=1)
trainer = Trainer(model=model, args=arguments, train_dataset=rows)
"""
STATEMENTS = {
    "transformers.Trainer(...)": TRAINER,
    "transformers.Trainer.train(...)": TRAINER + "trainer.train()\n",
    "transformers.Trainer.save_model(...)": TRAINER + "trainer.save_model('.')\n",
}

# --- draw -------------------------------------------------------------------------------------------


def read_gaps(folder: Path) -> Atlas:
    """Return the atlas whose gap tables lie in a folder."""
    texts = {f"gaps/{file.name}": file.read_text() for file in sorted(folder.glob("*.toml"))}
    texts["packages.toml"] = (Path(__file__).parent.parent / "compat/atlas/packages.toml").read_text()
    table = release_table()
    every = {package: tuple(table.versions(package)) for package in COMPANIONS}
    return read_atlas(texts, every)


def inside(version: str, spans: Sequence[tuple[str, str]]) -> bool:
    """Return whether a release lies in one of the spans."""
    return any(Version(first) <= Version(version) <= Version(last) for first, last in spans)


def drawable(package: str) -> list[str]:
    """Return the releases of a package that may be drawn, oldest first."""
    low = Version(OLDEST.get(package, "0"))
    return [each for each in release_table().versions(package) if Version(each) >= low]


def rows_of(atlas: Atlas) -> list[AtlasRow]:
    """Return all rows whose entry can be run and whose partner can be drawn."""
    return [
        row
        for package in ASKING
        for partner, rows in atlas.rows.get(package, {}).items()
        if partner in PARTNERS and partner != "torch"
        for row in rows
        if row.entry in STATEMENTS or "import " in row.entry
    ]


def draw(atlas: Atlas, base: Mapping[str, str], draws: int, seed: int) -> list[dict[str, Any]]:
    """Return draws with their predictions."""
    chance = random.Random(seed)  # noqa: S311 - a sample, not a secret
    rows, found = rows_of(atlas), dict[str, dict[str, Any]]()
    for number in range(draws * 20):
        if len(found) >= draws:
            break
        near = bool(number % 2 and rows)
        chosen = _near_a_bound(chance, rows) if near else _anywhere(chance)
        if chosen is None:
            continue
        package, version, partner, release, entry = chosen
        versions = compose(base, {package: version, partner: release})
        predicted = [row for row in applying(atlas, versions) if row.entry not in atlas.optional]
        own = [row for row in predicted if row.package == package and _reaches(entry, row.entry)]
        key = f"{package} {version} + {partner} {release}: {entry}"
        found[key] = {
            "draw": key,
            "near": near,
            "entry": entry,
            "versions": versions,
            "fails": [f"{row.needs} ({row.partner})" for row in own],
            "elsewhere": [f"{row.package}: {row.entry}: {row.needs}" for row in predicted if row not in own],
        }
    return list(found.values())


def _near_a_bound(chance: random.Random, rows: Sequence[AtlasRow]) -> tuple[str, str, str, str, str] | None:
    row = chance.choice(rows)
    asking, asked = drawable(row.package), drawable(row.partner)
    version, release = chance.choice(chance.choice(row.releases)), chance.choice(chance.choice(row.lacking))
    if version not in asking or release not in asked:
        return None
    if chance.random() < 0.5:  # noqa: PLR2004 - one side moves
        asking = [version]
    else:
        asked = [release]
    return (
        row.package,
        _beside(chance, asking, version),
        row.partner,
        _beside(chance, asked, release),
        row.entry,
    )


def _beside(chance: random.Random, every: Sequence[str], version: str) -> str:
    place = every.index(version) + chance.randint(-NEAR, NEAR)
    return every[max(0, min(place, len(every) - 1))]


def _anywhere(chance: random.Random) -> tuple[str, str, str, str, str] | None:
    package = chance.choice(ASKING)
    partner = chance.choice([each for each in PARTNERS if each not in (package, "torch")])
    entries = [entry.action for entry in PACKAGES[package].entries]
    entries += [entry for entry in STATEMENTS if entry.startswith(f"{package}.")]
    return (
        package,
        chance.choice(drawable(package)),
        partner,
        chance.choice(drawable(partner)),
        chance.choice(entries),
    )


def _reaches(entry: str, other: str) -> bool:
    """Return whether running an entry runs another entry of its package first, or is that entry."""
    return (
        entry == other
        or other.startswith("import ")
        or (
            entry in STATEMENTS
            and "Trainer" in other
            and (entry.endswith((".train(...)", ".save_model(...)")) or "import Trainer" in other)
            and not other.endswith((".save_model(...)", ".train(...)"))
        )
    )


def compose(base: Mapping[str, str], pinned: Mapping[str, str]) -> dict[str, str]:
    """Return the versions of all packages of the atlas around two pinned ones."""
    versions = {**{each: base[each] for each in COMPANIONS if each in base}, **pinned}
    queue, done = [*pinned], set[str]()
    for _ in range(MOST_STEPS):
        if not queue:
            break
        package = queue.pop(0)
        if package in done:
            continue
        done.add(package)
        for name, specifier in requirements(package, versions[package]):
            if name in pinned or name == "torch" or name not in COMPANIONS:
                continue
            wanted = [
                found for each in done for other, found in requirements(each, versions[each]) if other == name
            ]
            best = next(
                (each for each in reversed(drawable(name)) if all(each in one for one in wanted)), None
            )
            best = best or next((each for each in reversed(drawable(name)) if each in specifier), None)
            if best is not None and versions.get(name) != best:
                done.discard(name)
                versions[name] = best
            if name in versions:
                queue.append(name)
    needed = {*pinned, *done, "torch"}
    return {name: version for name, version in versions.items() if name in needed}


def requirements(package: str, version: str) -> Iterator[tuple[str, SpecifierSet]]:
    """Yield the requirements of a release that hold without an extra."""
    row = release_table().row(package, version)
    for text in row.requires if row else ():
        requirement = Requirement(text)
        if "extra" not in str(requirement.marker or ""):
            yield str(canonicalize_name(requirement.name)), requirement.specifier


def applying(atlas: Atlas, versions: Mapping[str, str]) -> Iterator[AtlasRow]:
    """Yield the rows that a set of versions hits."""
    for package, version in versions.items():
        for partner, rows in atlas.rows.get(package, {}).items():
            other = versions.get(partner)
            for row in rows if other else ():
                if inside(version, row.releases) and inside(str(other).partition("+")[0], row.lacking):
                    yield row


# --- run --------------------------------------------------------------------------------------------


def base_versions(python: str) -> dict[str, str]:
    """Return what is installed in the base."""
    table = "{each.name: each.version for each in metadata.distributions()}"
    code = f"import json; from importlib import metadata; print(json.dumps({table}))"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return {str(canonicalize_name(name)): version for name, version in json.loads(found.stdout).items()}


def overlay(python: str, folder: Path, store: Path | None, package: str, version: str) -> Path | None:
    """Return the folder of one release, made if it is not there; None where there is no wheel.

    The Python files of a pure package are taken from a store of `envcheck matrix harvest`, if one is given.
    """
    target = folder / f"{package}-{version}"
    if target.exists():
        return target
    stored = store / package / f"{version}.zip" if store and package in PURE else None
    if stored and stored.is_file():
        with zipfile.ZipFile(stored) as archive:
            archive.extractall(target)
        return target
    command = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-compile", "--only-binary", ":all:"]
    command += ["--target", str(target), f"{package}=={version}"]
    return None if subprocess.run(command, capture_output=True, check=False).returncode else target


SERVER = """
import importlib, json, os, signal, sys, traceback
import numpy, torch
for line in sys.stdin:
    job = json.loads(line)
    child = os.fork()
    if child == 0:
        signal.alarm(job["deadline"])
        sys.path[:0] = job["paths"]
        importlib.invalidate_caches()
        os.chdir(job["folder"])
        sys.stdout = sys.stderr
        try:
            exec(job["code"], {"__name__": "__main__"})
        except BaseException as error:
            while error.__cause__ is not None:
                error = error.__cause__
            last = traceback.extract_tb(error.__traceback__)[-1]
            text = traceback.format_exception_only(error)[-1].strip()
            open("error", "w").write(f"{text} ({last.filename.split('ov/')[-1]}:{last.lineno})")
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Imports torch once, and forks for each draw."""


class Runner:
    """Run draws one after the other in forks of one process of the base."""

    def __init__(self, python: str, overlays: Path, store: Path | None, base: Mapping[str, str]) -> None:
        """Start the process."""
        self._python, self._overlays, self._store, self._base = python, overlays, store, base
        quiet = {"HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": "", "PYTHONDONTWRITEBYTECODE": "1"}
        self._server = subprocess.Popen(
            [python, "-c", SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **quiet},  # noqa: TID251 - a benchmark is a user
        )

    def close(self) -> None:
        """End the process."""
        self._server.kill()
        self._server.wait()

    def execute(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Run one draw and return what became of it."""
        paths = []
        for package, version in row["versions"].items():
            if self._base.get(package) != version:
                folder = overlay(self._python, self._overlays, self._store, package, version)
                if folder is None:
                    return {"draw": row["draw"], "ok": None, "error": f"no wheel of {package} {version}"}
                paths.append(str(folder))
        with tempfile.TemporaryDirectory() as scratch:
            job = {
                "paths": [*paths, str(self._overlays / "extras")],
                "folder": scratch,
                "code": STATEMENTS.get(row["entry"], row["entry"]),
                "deadline": DEADLINE_S,
            }
            if self._server.stdin is None or self._server.stdout is None:
                raise RuntimeError("the process of the base has no pipes")
            self._server.stdin.write(json.dumps(job) + "\n")
            self._server.stdin.flush()
            code = int(self._server.stdout.readline() or "-1")
            file = Path(scratch, "error")
            error = file.read_text() if file.is_file() else ""
        return {"draw": row["draw"], "ok": None if code < 0 else code == 0, "error": error or str(code)}


# --- report -----------------------------------------------------------------------------------------


def wilson(hits: int, of: int) -> str:
    """Return a share with its 95 % interval."""
    if not of:
        return "no draw"
    z, share = 1.96, hits / of
    middle, width = share + z * z / (2 * of), z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    low, high = ((middle + sign * width) / (1 + z * z / of) for sign in (-1, 1))
    return f"{hits} of {of}, {share:.0%} ({low:.0%} to {high:.0%})"


def unexplained(error: str, row: Mapping[str, Any]) -> bool:
    """Return whether a failure is that of a module which no package of the draw brings."""
    found = re.search(r"No module named '(\w+)'", error)
    return bool(found) and str(canonicalize_name(found[1])) not in row["versions"] if found else False


def report(rows: Sequence[Mapping[str, Any]], outcomes: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the figures and the mistakes as Markdown."""
    run = [(row, outcomes[row["draw"]]) for row in rows if row["draw"] in outcomes]
    judged = [(row, end) for row, end in run if end["ok"] is not None and not unexplained(end["error"], row)]
    hits = [row for row, end in judged if row["fails"] and not end["ok"]]
    false = [row for row, end in judged if row["fails"] and end["ok"]]
    failed = [(row, end) for row, end in judged if not end["ok"]]
    missed = [(row, end) for row, end in failed if not row["fails"] and not row["elsewhere"]]
    lines = [
        f"- draws written down: {len(rows)}; run: {len(run)}; judged: {len(judged)}",
        f"- precision of predicted errors: {wilson(len(hits), len(hits) + len(false))}",
        f"- recall of failures, by a row of any package: {wilson(len(failed) - len(missed), len(failed))}",
        "",
        "| mistake | draw | what happened |",
        "| --- | --- | --- |",
        *(f"| false | {row['draw']} | ran, although: {row['fails'][0]} |" for row in false),
        *(f"| missed | {row['draw']} | {end['error'][:150].replace('|', '/')} |" for row, end in missed),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Run one of the three steps."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("step", choices=("draw", "run", "report"))
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--gaps", type=Path, default=Path("compat/atlas/gaps"))
    parser.add_argument("--python")
    parser.add_argument("--overlays", type=Path)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--draws", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("-o", dest="output", type=Path)
    options = parser.parse_args()
    if options.step == "draw":
        rows = draw(read_gaps(options.gaps), base_versions(options.python), options.draws, options.seed)
        options.output.write_text(json.dumps(rows, indent=1))
        return
    rows = json.loads(options.files[0].read_text())
    if options.step == "report":
        print(report(rows, {end["draw"]: end for end in json.loads(options.files[1].read_text())}), end="")
        return
    base, until = base_versions(options.python), time.monotonic() + options.minutes * 60
    outcomes: list[dict[str, Any]] = []
    runner = Runner(options.python, options.overlays, options.store, base)
    for row in rows:
        if time.monotonic() > until:
            break
        outcomes.append(runner.execute(row))
        options.output.write_text(json.dumps(outcomes, indent=1))
    runner.close()


if __name__ == "__main__":
    main()
