"""Bring compat/atlas/ up to date, and list what that changes and what to measure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from envcheck.commands.harvest import HarvestOptions, Tell, harvest
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
        InputError: the tables are not there, or cannot be read or written.
        ExamineError: the index cannot be read at all, or the disk is full.
    """
    folder = options.output or DEFAULT_OUTPUT
    before = _read(folder)
    text, code = harvest(replace(options, output=folder), host, tell)
    after = _read(folder)
    lines = [*atlas_changes(before, after), *_to_run(pairs_to_run(before, after))]
    return text + "".join(f"{line}\n" for line in lines or ["nothing changed"]), code


def _read(folder: Path) -> Atlas:
    table = parse_release_files(folder_texts(folder / "releases", ".txt"))
    releases = {package: table.versions(package) for package in table.packages()}
    return read_atlas(folder_texts(folder, ".toml"), releases)


def _to_run(pairs: Iterable[PairToRun]) -> list[str]:
    """Return the measurements that would confirm the changed bounds."""
    return [
        f"to run: {each.package}=={each.release} {each.partner}=={each.partner_release}, "
        f"expected to {'fail' if each.fails else 'work'}"
        for each in pairs
    ]
