"""The readers of published code, held against a stack that works: nothing that its imports reach may be missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import PathDistribution
from pathlib import Path

import pytest

from envcheck.atlas.conditions import decide
from envcheck.atlas.demands import DemandKind
from envcheck.atlas.entries import import_names
from envcheck.atlas.import_guards import find_import_guards
from envcheck.atlas.offers import OfferAnswer
from envcheck.atlas.reader import PackageReader, surroundings
from envcheck.atlas.release import PublishedRelease
from envcheck.commands.harvest.gaps import use_shipped_entries
from envcheck.core.facts import Tri

use_shipped_entries()

PACKAGES = (
    "peft",
    "accelerate",
    "deepspeed",
    "transformers",
    "torch",
    "huggingface-hub",
    "tokenizers",
    "safetensors",
)
ASKING = ("peft", "accelerate", "deepspeed", "transformers")


class InstalledFiles:
    """The Python files of an installed package, by their path in `site-packages`."""

    def __init__(self, site: Path, tops: Sequence[str]) -> None:
        self._site = site
        self.every = [
            path.relative_to(site).as_posix()
            for top in tops
            for path in (site / top).rglob("*")
            if path.is_file()
        ]

    def names(self) -> Sequence[str]:
        return [name for name in self.every if name.endswith((".py", ".pyi"))]

    def read(self, name: str) -> bytes:
        return (self._site / name).read_bytes()


def installed(site: Path, package: str) -> PackageReader:
    metadata = next(site.glob(f"{package.replace('-', '_')}-*.dist-info"))
    distribution = PathDistribution(metadata)
    files = InstalledFiles(site, import_names(package))
    release = PublishedRelease(
        package=package,
        version=distribution.version.split("+")[0],
        requires=tuple(distribution.requires or ()),
        others=tuple(name for name in files.every if name.endswith(".so")),
        files=files,
    )
    return PackageReader(package, [release])


@pytest.fixture(scope="module")
def readers(stack: str) -> Mapping[str, PackageReader]:
    """Return readers of the packages of the stack, each with its one release."""
    site = next((Path(stack).parent.parent / "lib").glob("python3*/site-packages"))
    return {package: installed(site, package) for package in PACKAGES}


@pytest.mark.stack
def test_nothing_that_a_working_stack_imports_is_said_to_be_missing(
    readers: Mapping[str, PackageReader],
) -> None:
    version_of = {package: next(iter(reader.by_version)) for package, reader in readers.items()}
    accused, found = [], 0
    for package in ASKING:
        for demand in readers[package].demands(version_of[package]):
            partner = readers.get(demand.what.partner)
            if partner is None or demand.what.partner == package:
                continue
            beside = surroundings(readers[package], version_of[package], partner, version_of[partner.name])
            if decide(demand.condition, beside) is not Tri.YES:
                continue
            offers = partner.offers(version_of[partner.name])
            answer = (
                offers.module(demand.what.module)
                if demand.what.kind is DemandKind.MODULE
                else offers.attribute(demand.what.text)
                if demand.what.kind is DemandKind.ATTRIBUTE
                else offers.name(demand.what.module, demand.what.name)
            )
            found += answer is OfferAnswer.YES
            accused += [(demand.what.text, demand.place)] if answer is OfferAnswer.NO else []
    assert not accused
    assert found > 500


@pytest.mark.stack
def test_a_working_stack_refuses_none_of_its_parts(readers: Mapping[str, PackageReader]) -> None:
    gaps = [
        gap
        for one in ASKING
        for other in PACKAGES
        for gap in find_import_guards(readers[one], readers[other])
    ]
    assert gaps == []
