"""Bring compat/atlas/ up to date, and list what that changes and what to measure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from envcheck.commands.harvest import HarvestOptions, Tell, harvest
from envcheck.commands.harvest.store import ReleaseStore
from envcheck.core.errors import InputError
from envcheck.core.facts import PYTHON
from envcheck.core.rules import Atlas
from envcheck.host.files import folder_texts
from envcheck.host.machine import Host
from envcheck.knowledge.atlas import read_atlas
from envcheck.knowledge.atlas_changes import PairToRun, atlas_changes, pairs_to_run
from envcheck.knowledge.release_metadata import parse_release_files

DEFAULT_OUTPUT = Path("compat/atlas")
"""The tables of the checkout in which `matrix refresh` is started."""


def refresh(options: HarvestOptions, host: Host, tell: Tell) -> tuple[str, int]:
    """Read new releases, rewrite the tables, and return what changed; the exit code is that of harvest.

    Raises:
        InputError: the tables are not there, or cannot be read or written; or some packages are refreshed and
            the store lacks a partner of theirs, whose rows would be lost.
        ExamineError: the index cannot be read at all, or the disk is full.
    """
    folder = options.output or DEFAULT_OUTPUT
    if not (folder / "releases").is_dir():
        raise InputError(str(folder), "expected the tables of the atlas; start in a checkout, or use -o")
    before = _read(folder)
    _require_partners(options, before)
    text, code = harvest(replace(options, output=folder), host, tell)
    after = _read(folder)
    lines = [*atlas_changes(before, after), *_to_run(pairs_to_run(before, after))]
    return "".join(f"{line}\n" for line in lines or ["nothing changed"]) + text, code


def _require_partners(options: HarvestOptions, before: Atlas) -> None:
    store = ReleaseStore(options.folder)
    for package in options.packages:
        for partner in before.rows.get(package, {}):
            if partner == PYTHON:  # its names are in compat/names/
                continue
            if partner not in options.packages and not store.versions(partner):
                problem = f"has no release of {partner}, which the table of {package} names; harvest it first"
                raise InputError(str(options.folder), problem)


def _read(folder: Path) -> Atlas:
    table = parse_release_files(folder_texts(folder / "releases", ".txt"))
    releases = {package: table.versions(package, candidates=True) for package in table.packages()}
    return read_atlas(folder_texts(folder, ".toml"), releases)


def _to_run(pairs: Iterable[PairToRun]) -> list[str]:
    """Return the measurements that would confirm the changed bounds."""
    return [
        f"to run: {each.package}=={each.release} {each.partner}=={each.partner_release}, "
        f"expected to {'fail' if each.fails else 'work'}"
        for each in pairs
    ]
