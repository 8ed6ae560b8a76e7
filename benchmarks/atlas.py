"""Hold the atlas against executed programs: predictions are written down first, then every draw is run.

    python benchmarks/atlas.py draw --base BASE/bin/python --work FOLDER --seed 1 -o predictions.json
    python benchmarks/atlas.py draw … --rows, or draw … --trainers
    python benchmarks/atlas.py predict predictions.json -o predictions.json
    python benchmarks/atlas.py run --base BASE/bin/python --work FOLDER predictions.json -o outcomes.jsonl
    python benchmarks/atlas.py report predictions.json outcomes.jsonl
    python benchmarks/atlas.py table predictions.json outcomes.jsonl > benchmarks/atlas.tsv

A base is a Python environment with torch; `--base` can be given several times. A draw consists of one release
of each of two packages, the torch of a base, and a program: an entry of one of the packages. Half of the
draws lie within two releases of both bounds of a row. Of the others, half use two packages of which one
requires the other, and half use any two. With `--rows`, three of four draws lie inside a row, so that a
failure is predicted, and every pair of packages has its turn before one is drawn again. With `--trainers`,
the program makes a trainer or trains one step: half of the draws lie near a bound, a quarter are inside a
row, and a quarter use any releases; what a row is about has its turn before it is drawn again, and no import
of the two is predicted to fail, because then the trainer would not be reached. `uv` resolves the remaining
packages as they were when the newer of the two was published; requirements on the two themselves and on torch
are overridden. Each release is unpacked into a separate folder, and each program runs in a process with a
deadline. A failure counts if the package that fails and the package that lacks something
are both packages of the draw, or torch.
"""

from __future__ import annotations

import argparse
import datetime as dt
import itertools
import json
import math
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from atlas_overlays import Overlays, command_line
from atlas_programs import PROGRAMS, needs, passed
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from envcheck import probes
from envcheck.atlas.entries import calls_of, distribution_of, entries_of, import_names
from envcheck.commands import judging, loading
from envcheck.commands.atlas_tables import release_table
from envcheck.commands.harvest.gaps import use_shipped_entries
from envcheck.core.facts import Fact, Inventory, Known, package_key
from envcheck.core.findings import Verdict
from envcheck.core.rules import Atlas, AtlasRow, Severity
from envcheck.knowledge.atlas import WITHOUT, read_atlas
from envcheck.rules import derive
from envcheck.rules.atlas import in_spans, is_broken, judged_versions

DRAWN = (
    *("accelerate", "autoawq", "bitsandbytes", "compressed-tensors", "datasets", "deepspeed"),
    *("diffusers", "einops", "evaluate", "fastapi", "fsspec", "hqq", "httpx"),
    *("huggingface-hub", "hydra-core", "kernels", "liger-kernel", "lightning", "lightning-utilities"),
    *("llamafactory", "lm-eval", "lm-format-enforcer", "megatron-core"),
    *("mistral-common", "modelscope", "numba", "numpy", "omegaconf", "openai", "optimum", "outlines"),
    *("pandas", "peft", "protobuf", "pyarrow", "pydantic", "pytorch-lightning", "ray", "safetensors"),
    *("scikit-learn", "scipy", "sentence-transformers", "setuptools", "starlette", "tensorboard"),
    *("tensordict", "timm", "tokenizers", "torch", "torchao", "torchaudio", "torchdata", "torchmetrics"),
    *("torchtune", "torchvision", "transformers", "trl", "verl", "wandb", "xgrammar"),
)
"""Packages that can be imported without a GPU, a compiler or MPI, and do not take hours to build."""

NEEDS_CUDA_BUILD = {"bitsandbytes", "torchvision", "torchaudio", "torchao", "liger-kernel", "autoawq"}
"""Packages whose wheels load libraries that a CPU build of torch does not contain."""

CPU_BUILD = "2.13.0"
"""The release of torch whose base is a CPU build."""

OLDEST = dt.date(2022, 11, 1)
"""Day of the oldest release that is drawn; few older ones have wheels for Python 3.11, that of the bases."""

NEAR = 2
TRIALS = 30
MOST_OF_AN_ERROR = 260

# --- draw -------------------------------------------------------------------------------------------


def read_tables() -> Atlas:
    """Return the atlas of the checkout."""
    folder = Path(__file__).parent.parent / "compat/atlas"
    texts = {f"gaps/{file.name}": file.read_text() for file in sorted((folder / "gaps").glob("*.toml"))}
    texts["packages.toml"] = (folder / "packages.toml").read_text()
    table = release_table()
    return read_atlas(
        texts, {package: table.versions(package, candidates=True) for package in table.packages()}
    )


def published(package: str, version: str) -> dt.date:
    """Return the day of a release; a day far in the past if it is not known."""
    row = release_table().row(package, version)
    return dt.date.fromisoformat(row.uploaded) if row and row.uploaded[:1] == "2" else OLDEST.min


@cache
def drawable(package: str) -> list[str]:
    """Return the releases of a package that may be drawn, oldest first."""
    return [each for each in release_table().versions(package) if published(package, each) >= OLDEST]


@cache
def related() -> list[tuple[str, str]]:
    """Return the pairs of packages where the newest or middle release of the first requires the second."""
    found = []
    for package in DRAWN:
        releases = drawable(package)
        for version in {releases[-1], releases[len(releases) // 2]}:
            row = release_table().row(package, version)
            names = {str(canonicalize_name(Requirement(text).name)) for text in (row.requires if row else ())}
            found += [(package, name) for name in sorted(names & {*DRAWN})]
    return sorted(set(found))


class Drawer:
    """Draws releases of two packages and a program, half of the time near a bound in the tables.

    With `rows`, three of four draws are inside a row, and the fourth is near a bound. With `trainers`, every
    program is a call, half of the draws are near a bound, a quarter inside a row, and a quarter anywhere.
    """

    def __init__(
        self, atlas: Atlas, overlays: Overlays, seed: int, *, rows: bool = False, trainers: bool = False
    ) -> None:
        """Start from a seed."""
        self._atlas, self._overlays, self._from_rows, self._trainers = atlas, overlays, rows, trainers
        self._turns: list[tuple[str, ...]] = []
        self._chance = random.Random(seed)  # noqa: S311 - a sample, not a secret
        self._torches = overlays.torches
        self._rows = [
            row
            for package in DRAWN
            for partner, rows in sorted(atlas.rows.get(package, {}).items())
            if partner in DRAWN
            for row in rows
            if row.entry in PROGRAMS or ("import " in row.entry and not trainers)
        ]

    def draw(self, number: int) -> dict[str, Any] | None:
        """Return one draw, or None if the releases cannot be installed; `number` decides its kind."""
        kind = self._kind(number)
        picked = {"row": self._inside, "bound": self._near}.get(kind, lambda: self._anywhere(kind))()
        if picked is None:
            return None
        entry, pinned = picked
        if self._trainers and self._fails_before(pinned):
            return None
        day = max(published(package, version) for package, version in pinned.items())
        torch = pinned.get("torch") or self._torch_of(day)
        if torch == CPU_BUILD and NEEDS_CUDA_BUILD & pinned.keys():
            return None
        day = max(day, published("torch", torch))
        versions = self._overlays.resolve(pinned, torch, day, needs(entry))
        if versions is None:
            return None
        return {
            "draw": f"{' + '.join(f'{package} {version}' for package, version in pinned.items())}"
            f" (torch {torch}): {entry}",
            "kind": kind,
            "entry": entry,
            "pair": pinned,
            "torch": torch,
            "versions": versions,
        }

    def _fails_before(self, pinned: Mapping[str, str]) -> bool:
        """Return whether an import of the two releases is predicted to fail: no trainer is reached then."""
        return any(
            "import " in row.entry and is_broken(row, pinned[package], pinned[partner])
            for package, partner in itertools.permutations(pinned)
            for row in self._atlas.rows.get(package, {}).get(partner, ())
        )

    def _kind(self, number: int) -> str:
        if self._trainers:
            return "bound" if number % 2 else ("row" if number % 4 else "called")
        if self._from_rows:
            return "bound" if number % 4 == 0 else "row"
        return "bound" if number % 2 else ("any" if number % 4 else "named")

    def _inside(self) -> tuple[str, dict[str, str]] | None:
        """Return releases inside a row of the next pair of packages; None if none of them may be drawn."""
        if not self._turns:
            self._turns = sorted({self._turn(row) for row in self._rows})
            self._chance.shuffle(self._turns)
        turn = self._turns.pop()
        package, partner, *_ = turn
        torches = sorted(self._torches) if partner == "torch" else drawable(partner)
        found = []
        for row in self._rows:
            if self._turn(row) == turn and WITHOUT not in row.entry:
                asking = [one for one in drawable(package) if in_spans(one, row.releases)]
                lacking = [one for one in torches if in_spans(one, row.lacking)]
                found += [(row.entry, asking, lacking)] if asking and lacking else []
        if not found:
            return None
        entry, asking, lacking = self._chance.choice(found)
        return entry, {package: self._chance.choice(asking), partner: self._chance.choice(lacking)}

    def _turn(self, row: AtlasRow) -> tuple[str, ...]:
        """Return what has its turn before it is drawn again: a pair, and with trainers what is needed."""
        return (row.package, row.partner, *((row.entry, row.needs) if self._trainers else ()))

    def _near(self) -> tuple[str, dict[str, str]] | None:
        turn = self._chance.choice(sorted({self._turn(row) for row in self._rows}))
        row = self._chance.choice([one for one in self._rows if self._turn(one) == turn])
        package, partner, *_ = turn
        version = self._beside(package, self._chance.choice(self._chance.choice(row.releases)))
        entry = row.entry.partition(WITHOUT)[0]  # the programs set no environment variable
        if partner == "torch":
            return entry, {package: version, "torch": self._chance.choice(sorted(self._torches))}
        return entry, {
            package: version,
            partner: self._beside(partner, self._chance.choice(self._chance.choice(row.lacking))),
        }

    def _beside(self, package: str, version: str) -> str:
        every = drawable(package)
        if version not in every:
            return every[self._chance.randint(0, NEAR)]
        return every[max(0, min(every.index(version) + self._chance.randint(-NEAR, NEAR), len(every) - 1))]

    def _anywhere(self, kind: str) -> tuple[str, dict[str, str]]:
        if kind == "called":
            entry = self._chance.choice(sorted(PROGRAMS))
            asking = min(_askers(entry))
            partner = self._chance.choice([other for one, other in related() if one == asking])
            return entry, {asking: self._release(asking), partner: self._release(partner)}
        asking, partner = self._chance.choice(related()) if kind == "named" else self._chance.sample(DRAWN, 2)
        if not entries_of(asking) or asking == "torch":
            asking, partner = partner, asking
        entries = [entry.action for entry in entries_of(asking)]
        entries += [entry for entry in PROGRAMS if asking in _askers(entry)]
        pinned = {asking: self._release(asking), partner: self._release(partner)}
        return self._chance.choice(entries or [f"import {import_names(asking)[0]}"]), pinned

    def _torch_of(self, day: dt.date) -> str:
        """Return the newest torch of the bases that was published by a day, or else their oldest."""
        by_age = sorted(self._torches, key=Version)
        return next((one for one in reversed(by_age) if published("torch", one) <= day), by_age[0])

    def _release(self, package: str) -> str:
        return self._chance.choice(sorted(self._torches) if package == "torch" else drawable(package))


def _askers(entry: str) -> set[str]:
    module = re.search(r"(?:from|import)? ?([\w.]+)", entry)
    return {distribution_of(module[1])} if module else set()


def _reached(row: str, entry: str, package: str) -> bool:
    """Return whether a program executes the entry of a row of its package."""
    row = row.partition(WITHOUT)[0]  # the programs set no environment variable
    roots = {f"import {name}" for name in import_names(package)}
    if "import " in entry and "." in entry:
        module = entry.split()[1].split(".")
        roots |= {f"import {'.'.join(module[:depth])}" for depth in range(1, len(module) + 1)}
    return row in roots or row in passed(entry)


class Predictor:
    """Finds the rows of the tables, and the written rules, that an environment breaks."""

    def __init__(self) -> None:
        """Load the tables and rules that a user's run loads."""
        self._atlas = read_tables()
        self._matrix = loading.load_matrix(loading.vocabulary(probes.every_probe()))

    def predict(self, draw: Mapping[str, Any]) -> dict[str, Any]:
        """Return a draw with its predicted failures.

        `fails`: failures of its program that involve the two packages or torch. `fails_by_others`: failures
        of its program that involve another package. `elsewhere`: failures of other programs. `rules`: the
        errors that a user is shown.
        """
        asking = next(package for package in draw["pair"] if package in _askers(draw["entry"]))
        hit = list(self._applying(draw["versions"]))
        own = [row for row in hit if row.package == asking and _reached(row.entry, draw["entry"], asking)]
        pair = {*draw["pair"], "torch"}
        return {
            **draw,
            "fails": [_text(row) for row in own if row.partner in pair],
            "fails_by_others": [_text(row) for row in own if row.partner not in pair],
            "elsewhere": [_text(row) for row in hit if row not in own],
            "rules": sorted(self._rules(draw)),
        }

    def _applying(self, versions: Mapping[str, str]) -> Iterator[AtlasRow]:
        judged = judged_versions(self._atlas, versions).releases
        for package in judged:
            for partner, rows in self._atlas.rows.get(package, {}).items():
                for row in rows if partner in judged else ():
                    if is_broken(row, judged[package], judged[partner]):
                        yield row

    def _rules(self, draw: Mapping[str, Any]) -> Iterator[str]:
        """Yield the rule of each error that a user is shown, with the packages that the rule names."""
        facts = [
            Fact(package_key(package), Known(version), "draw")
            for package, version in draw["versions"].items()
        ]
        read = Inventory(complete=frozenset({"pkg"})).with_facts(facts)
        read = read.with_facts([Fact("python.version", Known("3.11.7"), "draw")])
        inventory = derive.derive(judging.with_requirements(read), self._matrix)
        for finding in judging.judge_inventory(inventory, self._matrix, None).findings:
            if finding.severity is Severity.ERROR and finding.verdict is Verdict.BROKEN:
                keys = {clause.key for table in finding.rule.when for clause in table}
                named = sorted(key.split(".")[1] for key in keys if key.startswith("pkg."))
                yield f"{finding.rule.id} ({', '.join(named)})"


def _text(row: AtlasRow) -> str:
    return f"{row.package} asks {row.partner} at `{row.entry}`: {row.kind} {row.needs}"


# --- report -----------------------------------------------------------------------------------------


def wilson(hits: int, of: int) -> str:
    """Return a share with its 95 % Wilson interval, as text."""
    if not of:
        return "no draw"
    z, share = 1.96, hits / of
    middle, width = share + z * z / (2 * of), z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    low, high = ((middle + sign * width) / (1 + z * z / of) for sign in (-1, 1))
    return f"{hits} of {of}, {share:.1%} ({low:.1%} to {high:.1%})"


_NAMED = re.compile(r"(?:cannot import name '\w+' from|No module named|module|object) '?([A-Za-z_][\w.]*)")
_TO_INSTALL = re.compile(r"[Pp]lease install the `?([\w-]+)`? library")
_OTHER_NUMPY = re.compile(
    r"numpy\.dtype size changed|numpy\.core\.multiarray failed to import|_ARRAY_API not found"
)
_NO_OPERATORS = "operator torchvision::nms does not exist"
_NO_STUBS = "from 'wandb.proto."  # wandb has one set of stubs for each major version of protobuf
_NO_GPU = "module 'torch' has no attribute 'hip'"  # liger-kernel asks for it if it finds no GPU
_ATTRIBUTE_OF_TORCH = "module 'torch"
_CALLED = re.compile(r"\b(\w+)\.\w+\(\) (?:got an unexpected|got multiple|takes|missing)")
_IN_OVERLAY = re.compile(r"overlays/([\w-]+)-\d[^/]*/")
_GUARDED = r"(?i)\b{}\b\s*(?:[<>=!~]|version|package|library|has|is)"


def involved(end: Mapping[str, Any], row: Mapping[str, Any]) -> set[str]:
    """Return the packages of the environment whose code failed, or that the error message names."""
    error, there = end["error"], row["versions"]
    named = {distribution_of(path) for path in _NAMED.findall(error)}
    guarded = {one for one in there if re.search(_GUARDED.format(one.replace("-", "[-_]")), error)}
    library = {one for one in there if f"/{one.replace('-', '_')}/" in error}
    symbol = {"torch", *library} if "undefined symbol" in error else set()
    compiled = {"numpy"} if _OTHER_NUMPY.search(error) else set()
    if _NO_OPERATORS in error:
        compiled |= {"torch", "torchvision"}
    if _NO_STUBS in error:
        compiled |= {"protobuf"}
    if _ATTRIBUTE_OF_TORCH in error:  # raised by a function of torch; the frame before it asked
        compiled |= {"torch", *_IN_OVERLAY.findall(end.get("trace", ""))[-1:]}
    called = _CALLED.search(error)
    owner = {_owners()[called[1]]} if called and called[1] in _owners() else set()
    return ({end["asker"]} | named | guarded | symbol | compiled | owner) & {*there, "torch"}


@cache
def _owners() -> Mapping[str, str]:
    """Return the packages of the classes that users call, by the name of the class."""
    paths = ((call.path, package) for package in DRAWN for call in calls_of(package))
    return {path.rsplit(".", 1)[-1]: package for path, package in paths}


def not_for_this_machine(end: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Return whether a program failed for want of a GPU, or because the base's torch is a CPU build."""
    no_operators = _NO_OPERATORS in end["error"] and row["torch"] == CPU_BUILD
    return not end["ok"] and (no_operators or _NO_GPU in end["error"])


def ending(end: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    """Return the outcome of a draw in words: whether it ran, and which packages made it fail.

    A failure is caused by versions if it involves at least two packages of the environment: those of the draw
    (or torch), or others. A missing package is not a failure of versions.
    """
    if end["ok"] is None or not_for_this_machine(end, row):
        return "could not be run"
    if end["ok"]:
        return "ran"
    packages = involved(end, row)
    lacking = _TO_INSTALL.search(end["error"])
    if len(packages) < 2 or (lacking and lacking[1] not in row["versions"]):  # noqa: PLR2004 - a pair
        return "failed, not by versions"
    return "failed by the pair" if packages <= {*row["pair"], "torch"} else "failed by others"


def names_a_partner(row: Mapping[str, Any], end: Mapping[str, Any]) -> bool:
    """Return whether a program failed, and a package that was predicted to lack something was involved."""
    partners = {re.findall(r" asks ([\w-]+)", text)[0] for text in row["fails"]}
    return not end["ok"] and bool(partners & involved(end, row))


def predicted(row: Mapping[str, Any], packages: set[str]) -> str:
    """Return the row or the written rule that predicted a failure; empty if none did."""
    for text in (*row["fails"], *row["fails_by_others"]):
        return str(text)
    for text in row["elsewhere"]:
        if set(re.findall(r"^([\w-]+) asks ([\w-]+)", text)[0]) <= packages:
            return str(text)
    for text in row["rules"]:
        named = {*re.findall(r"[\w-]+", text.rpartition("(")[2])}
        if len(named) > 1 and named <= packages:
            return str(text)
    return ""


def report(rows: Sequence[Mapping[str, Any]], ends: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the figures and the mistakes as Markdown."""
    run = [(row, ends[row["draw"]]) for row in rows if row["draw"] in ends]
    words = [ending(end, row) for row, end in run]
    decided = [pair for pair, word in zip(run, words, strict=True) if word != "could not be run"]
    accused = [(row, end) for row, end in decided if row["fails"]]
    pair = [(row, end) for (row, end), word in zip(run, words, strict=True) if word == "failed by the pair"]
    others = [(row, end) for (row, end), word in zip(run, words, strict=True) if word == "failed by others"]
    missed = [(row, end) for row, end in (*pair, *others) if not predicted(row, involved(end, row))]
    by_rows = [row for row, _ in pair if row["fails"] + row["fails_by_others"]]
    known = [row for row, end in pair if predicted(row, involved(end, row))]
    every, right = len(pair) + len(others), sum(names_a_partner(row, end) for row, end in accused)
    false = sum(end["ok"] for _, end in accused)
    near = sum(row["kind"] == "bound" for row, _ in run)
    lines = [
        "| figure | value (95 % interval) |",
        "| --- | --- |",
        f"| draws written down | {len(rows)}; run {len(run)}, {near} of them near a predicted bound |",
        *(f"| {word} | {words.count(word)} |" for word in dict.fromkeys(sorted(words))),
        f"| predicted errors that failed for another reason first | {len(accused) - right - false} |",
        f"| precision of the other predicted errors | {wilson(right, right + false)} |",
        f"| recall of failures by the pair, rows alone | {wilson(len(by_rows), len(pair))} |",
        f"| recall of failures by the pair, with written rules | {wilson(len(known), len(pair))} |",
        f"| recall of all failures of versions | {wilson(every - len(missed), every)} |",
        "",
        "| mistake | draw | what happened |",
        "| --- | --- | --- |",
        *(
            f"| false | {row['draw']} | ran, although {row['fails'][0]} |"
            for row, end in accused
            if end["ok"]
        ),
        *(f"| missed | {row['draw']} | {_cell(end['error'])} |" for row, end in missed),
    ]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    plain = re.sub(r"/\S*(?:overlays|site-packages|archive-v0/[\w-]+|lib/python3\.\d+)/", "", text).replace(
        "|", "/"
    )
    return re.sub(r"\s+", " ", plain)[:MOST_OF_AN_ERROR]


def table(rows: Sequence[Mapping[str, Any]], ends: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a TSV table of the draws that were run; `releases` are those of packages of the atlas."""
    known = set(release_table().packages())
    lines = ["program\tpackage\tpair\tending\tinvolved\treleases\terror"]
    for row in rows:
        if row["draw"] in ends:
            end = ends[row["draw"]]
            word = ending(end, row)
            releases = [f"{name}={version}" for name, version in row["versions"].items() if name in known]
            parts = (
                row["entry"],
                next(package for package in row["pair"] if package in _askers(row["entry"])),
                " ".join(row["pair"]),
                word,
                " ".join(sorted(involved(end, row))) if word.startswith("failed by") else "",
                " ".join(releases),
                "" if end["ok"] else _cell(end["error"]),
            )
            lines.append("\t".join(parts))
    return "\n".join(lines) + "\n"


# --- command ----------------------------------------------------------------------------------------


def main() -> None:
    """Run one of the steps."""
    parser = command_line(__doc__, ("draw", "predict", "run", "report", "table"), 300)
    parser.add_argument("--rows", action="store_true", help="draw: three of four draws inside a row")
    parser.add_argument("--trainers", action="store_true", help="draw: programs that make trainers")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--part", default="0/1", help="run every n-th draw from the k-th on: k/n")
    options = parser.parse_intermixed_args()
    use_shipped_entries()
    if options.step in ("report", "table"):
        rows = [
            row for file in options.files if file.suffix == ".json" for row in json.loads(file.read_text())
        ]
        ends = [
            json.loads(line)
            for file in options.files
            if file.suffix == ".jsonl"
            for line in file.read_text().splitlines()
        ]
        write = report if options.step == "report" else table
        print(write(rows, {end["draw"]: end for end in ends}), end="")
        return
    if options.step == "predict":
        predictor = Predictor()
        rows = [predictor.predict(row) for file in options.files for row in json.loads(file.read_text())]
        options.output.write_text(json.dumps(rows, indent=1))
        return
    overlays = Overlays(options.uv, options.work, options.base)
    if options.step == "draw":
        drawer = Drawer(read_tables(), overlays, options.seed, rows=options.rows, trainers=options.trainers)
        found: dict[str, dict[str, Any]] = {}
        for _ in range(options.draws * TRIALS):
            # The kind depends on the count, so a draw that cannot be installed is replaced by a similar one.
            one = drawer.draw(len(found))
            if one is not None:
                found[one["draw"]] = one
                options.output.write_text(json.dumps([*found.values()], indent=1))
            if len(found) >= options.draws:
                break
        return
    _run(overlays, json.loads(options.files[0].read_text()), options)


def _run(overlays: Overlays, rows: Sequence[Mapping[str, Any]], options: argparse.Namespace) -> None:
    done = set()
    if options.output.exists():
        done = {json.loads(line)["draw"] for line in options.output.read_text().splitlines()}
    part, parts = map(int, options.part.split("/"))
    until = time.monotonic() + options.minutes * 60
    with options.output.open("a") as output:
        for row in rows[part::parts]:
            if time.monotonic() > until:
                break
            if row["draw"] not in done and row["torch"] in overlays.torches:
                end = overlays.run(row, PROGRAMS.get(row["entry"], row["entry"]))
                output.write(json.dumps({"draw": row["draw"], **end}) + "\n")
                output.flush()
    overlays.close()


if __name__ == "__main__":
    main()
