"""Write compat/names/: which releases of a package have which public names.

`python tools/refresh_names.py --store FOLDER [PACKAGE ...]` reads the releases that `envcheck matrix harvest`
stored and prints how much it would write; `--write` writes it. The atlas contains the names that one package
imports from another. Scripts and the code inside model repositories import many more, and `explain` looks
those up here.

Names are the public ones that a module defines, offers lazily or imports from its own package. Modules below
those of `_DEFINED_ONLY` are listed with what they define alone. Every release is read; of a package in
`_SINCE`, from that one on. What cannot be read of one release is marked as unknown for the module or name.

What was read of a release is kept in the store, so that a later run reads new releases only.
"""

from __future__ import annotations

import argparse
import pickle
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from envcheck.atlas.entries import use_entries
from envcheck.atlas.offers import ReleaseOffers
from envcheck.atlas.python_names import python_names_mark
from envcheck.atlas.reader import PackageReader
from envcheck.atlas.release_modules import ModuleForm, ReleaseModules
from envcheck.atlas.summary import FileSummary
from envcheck.commands.harvest.code_digest import code_digest, short_digest
from envcheck.commands.harvest.store import ReleaseStore
from envcheck.core.facts import Tri
from envcheck.core.rules import Span
from envcheck.core.versions import parse
from envcheck.knowledge.atlas import spans_of
from envcheck.knowledge.names import ModuleNames, is_listed, names_by_spans, names_text

FOLDER = Path(__file__).resolve().parent.parent / "compat/names"
ENTRIES = FOLDER.parent / "atlas/entries.toml"

PACKAGES = (
    *("accelerate", "axolotl", "bitsandbytes", "datasets", "deepspeed", "diffusers", "flash-attn"),
    *("huggingface-hub", "kernels", "liger-kernel", "llamafactory", "ms-swift", "openrlhf", "peft"),
    *("sentence-transformers", "sglang", "tokenizers", "torch", "torchao", "transformers", "triton", "trl"),
    *("unsloth", "unsloth-zoo", "verl", "vllm", "xformers"),
)

_SINCE = {"transformers": "4.30", "diffusers": "0.25", "vllm": "0.6", "sglang": "0.4", "datasets": "2.0"} | {
    "torch": "1.13"
}
"""The oldest release that is read, by package, if older ones are no longer in use."""

_DEFINED_ONLY = (
    *("transformers.models.", "diffusers.models.", "diffusers.pipelines.", "vllm.model_executor.models."),
    *("sglang.srt.models.", "sentence_transformers.", "vllm.v1.", "vllm.entrypoints.", "sglang.srt."),
    *("datasets.packaged_modules.", "transformers.pipelines.", "torchao.", "xformers.", "liger_kernel."),
    *("deepspeed.runtime.", "deepspeed.ops.", "deepspeed.module_inject.", "deepspeed.compile."),
    *("deepspeed.checkpoint.", "vllm.model_executor.", "vllm.distributed.", "vllm.attention.", "swift."),
    *("lightning.pytorch.", "lightning.fabric.", "verl.workers.", "verl.models.", "axolotl."),
)
"""Packages of whose modules only the own definitions are listed, because nobody imports the others there."""

_LEFT_OUT = frozenset(
    {
        *("deepspeed.autotuning", "deepspeed.compression", "deepspeed.inference", "deepspeed.nvme"),
        *("diffusers.experimental", "transformers.models.deprecated", "vllm.benchmarks", "vllm.compilation"),
        *("sglang.lang", "sglang.multimodal_gen", "sglang.eval", "torchao.experimental", "triton.backends"),
        *("vllm.transformers_utils", "vllm.third_party", "sglang.srt.layers", "sglang.jit_kernel"),
        *("vllm.model_executor.layers", "vllm.kernels", "transformers.exporters", "transformers.kernels"),
    }
)
"""Packages that trainings do not import; the file says that what is in them is not known."""

_FILLED_ELSEWHERE = frozenset({"torch", "torch.distributed"})
"""Modules into which compiled code or other packages put names that no file lists, such as `torch.int1`."""

_OF_SOME_BUILDS = frozenset({"torch.distributed"})
"""Modules that are empty in some builds of a release: that every release has a name says nothing there."""

_KEPT = ".summaries"
"""Folder in the store for what was read of each release; the readings of the atlas are there as well."""

_NONE = "no_such_name_anywhere"
"""A name that no module has: if a release may have it, the module has names that cannot be read."""


class LeanCache(dict[str, FileSummary]):
    """Summaries by digest, without what only the derivation of gaps needs, which is most of their size."""

    def __setitem__(self, digest: str, summary: FileSummary) -> None:
        """Keep what says which names a file has."""
        lean = replace(summary, uses=(), refusals=(), calls=(), called=(), registrations=(), checks=())
        super().__setitem__(digest, lean)


@dataclass
class _InRelease:
    """Hold what one release has in a module.

    Attributes:
        names: its public names, by whether the release has them.
        imported: the names that it imports from elsewhere.
        open: whether it may have more names than can be read.
        asked: whether a function answers to names, so that each has to be asked for.
        packaged: whether it is a package.

    """

    names: dict[str, Tri] = field(default_factory=dict)
    imported: set[str] = field(default_factory=set)
    open: bool = False
    asked: bool = False
    packaged: bool = False


class NameReadings:
    """Hold what was read of each release of a package, by this run and earlier ones.

    The answers to single questions are kept beside the modules, because a name that is new in one release is
    asked for in the others, whose code need not be read again for that.
    """

    def __init__(self, reader: PackageReader, folder: Path | None = None) -> None:
        """Take the package, and the folder in which readings are kept; without one, nothing is kept."""
        self.reader = reader
        tool = Path(__file__).read_text("utf-8")
        digest = short_digest(tool, code_digest("offers"), python_names_mark())
        self._file = folder / f"{reader.name}-names-{digest}.pickle" if folder else None
        self._modules: dict[str, dict[str, _InRelease]] = {}
        self._answers: dict[tuple[str, str], Tri] = {}
        if self._file is not None and self._file.is_file():
            # Unpickling is safe: the store is the curator's own, and only this class writes these files.
            self._modules, self._answers = pickle.loads(self._file.read_bytes())  # noqa: S301

    def modules(self, version: str) -> Mapping[str, _InRelease]:
        """Return the modules of a release."""
        if version not in self._modules:
            self._modules[version] = _read_release(self.reader.offers(version))
        return self._modules[version]

    def has(self, version: str, path: str) -> Tri:
        """Return whether a release has a dotted path."""
        if (version, path) not in self._answers:
            self._answers[version, path] = self.reader.offers(version).has(path)
        return self._answers[version, path]

    def save(self) -> None:
        """Store what was read."""
        if self._file is not None:
            self._file.parent.mkdir(exist_ok=True)
            self._file.write_bytes(pickle.dumps((self._modules, self._answers)))


@dataclass
class _Seen:
    """What the releases that have a module have in it.

    Attributes:
        having: the releases that have the module.
        names: the names that each release has, by whether that is known.
        open: the releases in which the module may have more names than can be read.
        asked: the releases in which a function answers to names, so that each has to be asked for.
        imported: the names that it imports from elsewhere.
        packaged: whether it is a package in some release.

    """

    having: list[str] = field(default_factory=list)
    names: dict[str, dict[str, Tri]] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    imported: set[str] = field(default_factory=set)
    packaged: bool = False

    def add(self, version: str, found: _InRelease) -> None:
        """Add what one release has in the module."""
        self.having.append(version)
        self.packaged = self.packaged or found.packaged
        self.imported |= found.imported
        for name, answer in found.names.items():
            self.names.setdefault(name, {})[version] = answer
        if found.open:
            self.open.append(version)
        elif found.asked:
            self.asked.append(version)


def read_versions(reader: PackageReader) -> tuple[str, ...]:
    """Return the releases that are read, oldest first."""
    oldest = parse(_SINCE.get(reader.name, "0"))
    parsed = {version: parse(version) for version in reader.by_version}
    return tuple(version for version, each in parsed.items() if each and oldest and each >= oldest)


def module_names(
    reader: PackageReader, readings: NameReadings | None = None
) -> tuple[list[ModuleNames], frozenset[str]]:
    """Return the modules of a package with their names, and the names that they import from elsewhere."""
    readings = readings or NameReadings(reader)
    versions = read_versions(reader)
    seen: dict[str, _Seen] = {}
    for version in versions:
        for module, found in readings.modules(version).items():
            seen.setdefault(module, _Seen()).add(version, found)
    imported = {name for each in seen.values() for name in each.imported}
    for path in seen:  # what is said of a module holds for the name in the one above it
        above, _, name = path.rpartition(".")
        if above in seen:
            seen[above].names.pop(name, None)
    found_modules = [_module(name, each, versions, readings) for name, each in seen.items()]
    return found_modules, frozenset(name for name in imported if not name.startswith("_"))


def _read_release(offers: ReleaseOffers) -> dict[str, _InRelease]:
    """Return what one release has in each of its public modules."""
    return {module: _read_module(offers, module) for module in _modules(offers.modules)}


def _read_module(offers: ReleaseOffers, module: str) -> _InRelease:
    if module in _LEFT_OUT:
        return _InRelease()
    if offers.modules.form(module) is not ModuleForm.SOURCE:
        return _InRelease(open=True)
    names, elsewhere = _names(offers, module)
    summary = offers.modules.summary(module)
    is_open = offers.has(f"{module}.{_NONE}") is not Tri.NO
    return _InRelease(
        names={name: offers.has(f"{module}.{name}") for name in names},
        imported=elsewhere,
        open=is_open,
        asked=not is_open and (summary is None or "__getattr__" in summary.bindings or bool(summary.refused)),
        packaged=offers.modules.is_package(module),
    )


def _module(name: str, seen: _Seen, versions: tuple[str, ...], readings: NameReadings) -> ModuleNames:
    """Return the names of one module with the releases that have them."""
    having = {*seen.having}
    if name in _LEFT_OUT:
        return ModuleNames(name, None)
    lacking = [version for version in versions if version not in having]
    if any(readings.has(version, name) is not Tri.NO for version in lacking):
        return ModuleNames(name, None)
    spans = {
        each: _spans(f"{name}.{each}", answers, seen, versions, readings)
        for each, answers in seen.names.items()
    }
    of_module = spans_of(seen.having, versions)
    if name in _OF_SOME_BUILDS:
        spans = {each: having for each, having in spans.items() if having != of_module}
    return ModuleNames(
        name,
        of_module,
        names_by_spans(spans),
        bool(seen.open) or name in _FILLED_ELSEWHERE,
        tuple(each for each in seen.imported if not each.startswith("_")) if seen.packaged else None,
    )


def _spans(
    path: str,
    answers: Mapping[str, Tri],
    seen: _Seen,
    versions: tuple[str, ...],
    readings: NameReadings,
) -> tuple[Span, ...] | None:
    """Return the releases that have a name; None if that is not known of one that has its module."""
    having = []
    for version in seen.having:
        answer = answers.get(version)
        if answer is None and version in seen.open:
            answer = Tri.MAYBE
        elif answer is None:
            answer = readings.has(version, path) if version in seen.asked else Tri.NO
        if answer is Tri.MAYBE:
            return None
        if answer is Tri.YES:
            having.append(version)
    return spans_of(having, versions)


def _modules(modules: ReleaseModules) -> Iterator[str]:
    """Yield the public modules of a release: files, folders, shared libraries."""
    paths = {
        path.rpartition(".")[0].removesuffix("/__init__").replace("/", ".")
        for path in modules.held
        if path.endswith((".py", ".pyi"))
    }
    paths |= {folder for folder in modules.folders if any(path.startswith(f"{folder}.") for path in paths)}
    for path in sorted(paths | modules.unseen):
        inside = any(path.startswith(f"{each}.") for each in _LEFT_OUT)
        listed = path.split(".")[0] in modules.tops and is_listed(path) and not inside
        if listed and modules.form(path) is not None:
            yield path


def _names(offers: ReleaseOffers, module: str) -> tuple[set[str], set[str]]:
    """Return the public names that a module has of its own package, and those that it imports from others."""
    own: set[str] = set()
    elsewhere: set[str] = set()
    for name in _bound(offers, module, frozenset()):
        target = elsewhere if _is_from_elsewhere(offers, module, name) else own
        target.add(name)
    return {name for name in own if not name.startswith("_")}, elsewhere


def _bound(offers: ReleaseOffers, module: str, above: frozenset[str]) -> set[str]:
    """Return the names that a module binds or offers, and those that it takes from others by stars."""
    summary = offers.modules.summary(module)
    if summary is None or summary.error or module in above:
        return set()
    names = {*summary.bindings, *summary.lazy}
    names |= {*offers._scan(module)} if summary.scans else set()  # noqa: SLF001 - what `_lazily` answers from
    for star in (*summary.stars, *summary.lazy_stars):
        target = offers.modules.absolute(module, star)
        if offers.modules.owns(target):
            names |= {each for each in _bound(offers, target, above | {module}) if not each.startswith("_")}
    return names


def _is_from_elsewhere(offers: ReleaseOffers, module: str, name: str) -> bool:
    """Return whether a module takes a name from another package or, below `_DEFINED_ONLY`, another module."""
    summary = offers.modules.summary(module)
    origin = summary.imports.get(name) if summary is not None else None
    if summary is not None and name in summary.lazy:
        return False
    if module.startswith(_DEFINED_ONLY) and not offers.modules.is_package(module):
        return origin is not None or summary is None or name not in summary.bindings
    return origin is not None and not offers.modules.owns(offers.modules.absolute(module, origin))


def main() -> int:
    """Run the tool."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("packages", nargs="*", default=PACKAGES)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where to write, by default compat/names")
    given = parser.parse_args()
    store = ReleaseStore(given.store)
    use_entries(ENTRIES.read_text("utf-8"), str(ENTRIES))  # it says which modules are of ms-swift
    for package in given.packages:
        reader = PackageReader(package, tuple(store.releases(package)), LeanCache())
        read = read_versions(reader)
        if not read:
            parser.error(f"no release of {package} is in {given.store}")
        readings = NameReadings(reader, given.store / _KEPT)
        modules, imported = module_names(reader, readings)
        readings.save()
        text = names_text(package, modules, read, imported)
        print(f"{package}: {len(read)} releases, {text.count(chr(10))} lines, {len(text)} bytes", flush=True)
        if given.write:
            given.folder.mkdir(exist_ok=True)
            (given.folder / f"{package}.txt").write_text(text, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
