"""A log, its diagnosis and what is known of them, as the reports show it, and the exit code. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from envcheck.core.facts import Fact
from envcheck.core.findings import Finding, Report
from envcheck.core.rules import Rule
from envcheck.knowledge.members import Membership
from envcheck.knowledge.names import UNKNOWN, InReleases, Presence
from envcheck.logs.collectives import WaitingRank
from envcheck.logs.diagnosis import Diagnosis
from envcheck.logs.environment import Platform
from envcheck.logs.environment_match import EnvironmentMatch
from envcheck.logs.events import Frame, Log
from envcheck.logs.missing_names import MissingName
from envcheck.logs.near_options import NearOption
from envcheck.logs.own_code import own_code
from envcheck.logs.pip_offers import PipOffer
from envcheck.logs.refused_values import RefusedValue
from envcheck.reports.library_answer import LibraryAnswer

NOTHING, FAILED, UNEXPLAINED = 0, 1, 3
"""Exit codes: no failure; a failure with a known cause; one whose cause is not known, or an empty log."""


class MissingAnswer(NamedTuple):
    """Hold a missing name, the rules about it, and in words the ranges of releases that have it.

    `is_known` means that envcheck knows the package that lacks the name. `calls` says which releases call a
    method with the argument that it does not take, and which releases define the method so. `has_it` says
    that the release of the judged environment has the name, and `takes` is the package whose release there
    takes the argument. `listed` is the installed version of the package that is said not to be there.
    `always` says that every release that the asking package accepts has the name.
    `published` says which of all releases have it, and `elsewhere` which other modules have a name like it,
    with their releases in words. `in_some_cases` says that the module takes it from one below it in some
    cases, and `spelt` is its name of the module if only upper and lower case differ. `wrote_lines` says that
    the package that is said not to be there wrote lines of the log. `read_since` is the first release whose
    names are known, if there are older ones, which may lack what all of these have, or have what none has.
    `of_repository` says that an installed package imports a folder of a repository, which is in no release.
    """

    missing: MissingName
    rules: tuple[Rule, ...] = ()
    ranges: tuple[str, ...] = ()
    is_known: bool = False
    calls: tuple[str, ...] = ()
    has_it: bool = False
    takes: str = ""
    listed: str = ""
    always: bool = False
    published: Presence = UNKNOWN
    elsewhere: tuple[str, ...] = ()
    in_some_cases: bool = False
    spelt: str = ""
    wrote_lines: bool = False
    read_since: str = ""
    of_repository: bool = False

    @property
    def is_of_another_python(self) -> bool:
        """Return whether the package is installed, and another Python than that one ran."""
        return bool(self.listed) or self.wrote_lines

    @property
    def in_every_release(self) -> bool:
        """Return whether every release, or every one that is accepted, has what is missing."""
        return self.always or self.published.answer is InReleases.EVERY

    @property
    def in_no_release(self) -> bool:
        """Return whether no release has what is missing."""
        return self.published.answer is InReleases.NONE

    @property
    def not_imported(self) -> bool:
        """Return whether an attribute is missing that is a module, which nothing has imported yet.

        What is right below a package is mostly imported by the package itself, so it may be broken as well.
        """
        every = self.published.answer is InReleases.EVERY and "." in self.missing.module
        return every and self.missing.attribute and self.published.is_module

    @property
    def own_file(self) -> bool:
        """Return whether the module that lacks the name is a file of the user's."""
        return bool(self.missing.file) and own_code(Frame(self.missing.file, 0, ""))


class RefusedAnswer(NamedTuple):
    """A value of a configuration that pydantic refuses, and what to do about it, if that is known."""

    value: RefusedValue
    advice: str = ""


class Explanation(NamedTuple):
    """A log, its diagnosis, and whether the conditions of its known failures are met.

    `subject` describes the environment; `report` holds its inventory and the known failures. `here` maps the
    case of a signature to whether its conditions are met there. `notes` lists what could not be read of the
    log. `printed` are facts taken from the log itself. `platform` is the log's platform if it is not
    NVIDIA's. `missing` is set if the cause is a missing name, `library` if the code of a library raises its
    message or lacks what it asks for. `probable` are broken errors of the environment that name what the
    message names. `refused` are values of a configuration that its checks refuse. `replaced` are methods of
    libraries in whose place the user's function that raised may stand. `failed_in` is the package whose line
    failed, empty if it is torch or not known. `empty` says that there was nothing to read. `offer` says why
    pip did not find a release, if that is known. `waiting` are the ranks that waited until a timeout.
    `fitting` are releases, in words, that by their metadata end a clash of requirements. `near` are the
    options of a program that come near to those which it refuses.
    """

    name: str
    log: Log
    diagnosis: Diagnosis
    subject: str
    report: Report
    here: Mapping[str, EnvironmentMatch]
    notes: tuple[str, ...] = ()
    printed: tuple[Fact, ...] = ()
    platform: Platform | None = None
    missing: MissingAnswer | None = None
    library: LibraryAnswer | None = None
    probable: tuple[Finding, ...] = ()
    refused: tuple[RefusedAnswer, ...] = ()
    replaced: tuple[Membership, ...] = ()
    failed_in: str = ""
    empty: bool = False
    offer: PipOffer | None = None
    waiting: tuple[WaitingRank, ...] = ()
    fitting: tuple[str, ...] = ()
    near: tuple[NearOption, ...] = ()

    @property
    def code(self) -> int:
        """Return the exit code: `NOTHING`, `FAILED` or `UNEXPLAINED`."""
        if not self.diagnosis.failed:
            return UNEXPLAINED if self.empty else NOTHING
        cause = self.diagnosis.cause
        return FAILED if cause and cause.kind not in ("unknown", "open") else UNEXPLAINED
