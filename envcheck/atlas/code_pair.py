"""Compare what releases of a package use of a partner with what releases of the partner offer.

The comparison is the same for names (`missing_names.py`) and for keyword arguments (`keywords.py`). A verdict
needs certainty on every step: the line is certainly reached beside a release of the partner, and that release
certainly lacks what the line uses. Two filters protect against forms that the readers do not know. Something
that no release offers gives no gap. Neither does something that is offered, then missing, then offered again,
except from a module that binds its names by plain statements in every release: transformers 4.57 really has
no `PytorchGELUTanh`, which came back in 5.0.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Generic, Protocol, TypeVar

from packaging.version import Version

from envcheck.atlas.conditions import CUDA, Condition, Surroundings, decide, optional_packages
from envcheck.atlas.entries import devices, stack_package
from envcheck.atlas.gaps import CodeGap, GapKind
from envcheck.atlas.offers import OfferAnswer
from envcheck.atlas.reader import PackageReader, surroundings
from envcheck.core.facts import Tri
from envcheck.core.versions import parse
from envcheck.knowledge.atlas import BESIDE

_TRAINER = re.compile(r"\b([A-Z]\w*)(?:Trainer|Config)\b")
"""The class in an entry: the configuration `trl.DPOConfig(...)` belongs to its trainer, `trl.DPOTrainer`."""


class Used(Protocol):
    """Something that code uses of another package; it is hashable."""

    @property
    def partner(self) -> str:
        """Return the normalised name of the other package."""
        ...

    @property
    def text(self) -> str:
        """Return the used name, as a gap writes it."""
        ...


_What = TypeVar("_What", bound=Used)
_What_co = TypeVar("_What_co", bound=Used, covariant=True)


class Line(Protocol[_What_co]):
    """A line of a release that uses something of another package."""

    @property
    def what(self) -> _What_co:
        """Return the name that the line uses."""
        ...

    @property
    def entry(self) -> str:
        """Return the statement of a user that runs the line, such as an import."""
        ...

    @property
    def condition(self) -> Condition:
        """Return the condition under which the line is reached."""
        ...

    @property
    def place(self) -> str:
        """File and line."""
        ...


@dataclass
class CodePair(ABC, Generic[_What]):
    """All releases of a package and of a partner; subclasses define what is used and what is offered."""

    kind: ClassVar[GapKind]

    package: PackageReader
    partner: PackageReader
    _answers: dict[_What, Mapping[str, OfferAnswer]] = field(default_factory=dict)
    _beside: dict[tuple[str, str, str], Surroundings] = field(default_factory=dict)

    @abstractmethod
    def lines(self, version: str) -> Iterable[Line[_What]]:
        """Return the lines of a release that use something of any other package."""

    @abstractmethod
    def offer(self, version: str, what: _What) -> OfferAnswer:
        """Return whether a release of the partner offers something."""

    def may_come_back(self, _what: _What) -> bool:
        """Return whether something may really be offered, then missing, then offered again."""
        return False

    def gaps(self) -> list[CodeGap]:
        """Return the gaps: one for each thing, entry and set of the partner's releases that lack it."""
        rows: dict[tuple[_What, str, tuple[str, ...]], dict[str, str]] = {}
        for version in self.package.by_version:
            for what, lines in self._of_the_partner(version).items():
                for entry, lacking, place in self._lacks(version, what, lines):
                    rows.setdefault((what, entry, lacking), {}).setdefault(version, place)
        return [
            CodeGap(
                kind=self.kind,
                package=self.package.name,
                releases=tuple(places),
                entry=entry,
                partner=self.partner.name,
                lacking=lacking,
                needs=what.text,
                places=tuple(places.values()),
            )
            for (what, entry, lacking), places in rows.items()
        ]

    def _of_the_partner(self, version: str) -> Mapping[_What, Sequence[Line[_What]]]:
        found: dict[_What, list[Line[_What]]] = {}
        for line in self.lines(version):
            if line.what.partner == self.partner.name:
                found.setdefault(line.what, []).append(line)
        return found

    def _lacks(
        self, version: str, what: _What, lines: Sequence[Line[_What]]
    ) -> Iterator[tuple[str, tuple[str, ...], str]]:
        """Yield for each entry the partner's releases that lack what it uses, with the line that uses it.

        An entry is left out if an earlier one already fails: `from peft import X` after `import peft`. Of two
        trainer classes neither stands for the other, because a training needs only one.
        """
        lacking = [each for each, offer in self._offered(what).items() if offer is OfferAnswer.NO]
        blamed: dict[str, set[str]] = {}
        for entry in dict.fromkeys(line.entry for line in lines):
            of_entry = [line for line in lines if line.entry == entry]
            failing = self._failing(version, lacking, of_entry)
            trainer = trainer_in(entry)
            of_another = blamed.keys() - {trainer, ""} if trainer else set()
            hidden = [found for other, found in blamed.items() if other not in of_another]
            if set(failing) - set().union(*hidden):
                yield entry, tuple(failing), next(iter(failing.values()))
            blamed.setdefault(trainer, set()).update(failing)
        yield from self._lacks_beside(version, lacking, lines, set().union(*blamed.values()))

    def _lacks_beside(
        self, version: str, lacking: Sequence[str], lines: Sequence[Line[_What]], blamed: set[str]
    ) -> Iterator[tuple[str, tuple[str, ...], str]]:
        """Yield the same for the imports that ask beside a third package alone: `if is_vllm_available(): …`.

        `blamed` are the releases beside which they fail without it.
        """
        imports = [line for line in lines if not line.entry.endswith("(...)")]
        for third in sorted(self._optional(imports)):
            hidden = set(blamed)
            asking = [line for line in imports if third in optional_packages(line.condition)]
            for entry in dict.fromkeys(line.entry for line in asking):
                of_entry = [line for line in asking if line.entry == entry]
                found = self._failing(version, lacking, of_entry, third)
                failing = {release: place for release, place in found.items() if release not in hidden}
                if failing:
                    yield f"{entry}{BESIDE}{third}", tuple(failing), next(iter(failing.values()))
                hidden |= failing.keys()

    def _optional(self, lines: Iterable[Line[_What]]) -> frozenset[str]:
        """Return the packages of the atlas that the lines ask for and that need not be installed."""
        asked = frozenset().union(*(optional_packages(line.condition) for line in lines))
        known = {name for name in asked if stack_package(name) is not None}
        return frozenset(known - {self.package.name, self.partner.name})

    def _failing(
        self, version: str, lacking: Sequence[str], lines: Sequence[Line[_What]], third: str = ""
    ) -> dict[str, str]:
        """Return the releases of `lacking` beside which one of the lines is reached, each with its place."""
        failing: dict[str, str] = {}
        for release in lacking:
            beside = self._surroundings(version, release)
            if third and third in beside.windows:
                continue  # it is required, so that the line is reached without saying so
            beside = self._surroundings(version, release, third) if third else beside
            reached = (line for line in lines if decide(line.condition, beside) is Tri.YES)
            if (first := next(reached, None)) is not None:
                failing[release] = first.place
        return failing

    def _offered(self, what: _What) -> Mapping[str, OfferAnswer]:
        """Return the answer of each release of the partner; empty if the answers cannot be trusted."""
        if what not in self._answers:
            answers = {version: self.offer(version, what) for version in self.partner.by_version}
            refused = {each for each in answers if answers[each] is OfferAnswer.REFUSED}
            answers |= dict.fromkeys(refused, OfferAnswer.NO)
            final = {each: answers[each] for each in answers if not is_candidate(each)}
            sure = is_trustworthy(list(final.values()), holes=self.may_come_back(what))
            answers |= dict.fromkeys(_dropped_for_a_while(answers, final), OfferAnswer.UNKNOWN)
            # A refusal by name is certain where nothing else is: numpy makes most of its names in C.
            self._answers[what] = answers if sure else dict.fromkeys(refused, OfferAnswer.NO)
        return self._answers[what]

    def _surroundings(self, version: str, release: str, third: str = "") -> Surroundings:
        key = (version, release, third)
        if key not in self._beside:
            self._beside[key] = (
                _with_package(self._surroundings(version, release), third)
                if third
                else surroundings(self.package, version, self.partner, release)
            )
        return self._beside[key]


def _with_package(beside: Surroundings, package: str) -> Surroundings:
    """Return surroundings with one more package; if it brings a device, there is no CUDA device."""
    absent = beside.absent - {package} | ({CUDA} if package in devices() else set())
    return replace(beside, windows={**beside.windows, package: ""}, absent=frozenset(absent))


def is_candidate(version: str) -> bool:
    """Return whether a version is a pre-release."""
    parsed = parse(version)
    return parsed is not None and parsed.is_prerelease


def _dropped_for_a_while(
    answers: Mapping[str, OfferAnswer], final: Mapping[str, OfferAnswer]
) -> Iterator[str]:
    """Yield the pre-releases that alone lack something: the releases before and after them do not."""
    before = OfferAnswer.UNKNOWN
    for version, answer in answers.items():
        if version in final:
            before = answer
        elif answer is OfferAnswer.NO:
            after = next((final[each] for each in final if Version(each) > Version(version)), before)
            if OfferAnswer.NO not in (before, after):
                yield version


def trainer_in(entry: str) -> str:
    """Return the trainer class that an entry needs, without its last word; empty for any other entry."""
    found = _TRAINER.search(entry)
    return found[1] if found else ""


def is_trustworthy(answers: Sequence[OfferAnswer], *, holes: bool = False) -> bool:
    """Return whether the answers of a partner's releases, oldest first, show that the reader sees the name.

    Some release must offer the name, and none may make it in C. A name that is offered, then missing, then
    offered again probably has a form that the reader does not know; with `holes`, it is trusted nevertheless.
    """
    if OfferAnswer.YES not in answers or OfferAnswer.STUB in answers or OfferAnswer.NO not in answers:
        return False
    if holes:
        return True
    known = [each is OfferAnswer.YES for each in answers if each is not OfferAnswer.UNKNOWN]
    runs = [each for index, each in enumerate(known) if index == 0 or known[index - 1] != each]
    return [True, False, True] not in [runs[start : start + 3] for start in range(len(runs))]
