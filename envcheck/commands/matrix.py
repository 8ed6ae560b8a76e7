"""The use cases of `matrix`: show what is known, look for mistakes in it, make a page of it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from pathlib import Path

from envcheck import probes
from envcheck.commands import examine
from envcheck.core.errors import InputError
from envcheck.core.rules import Matrix
from envcheck.host import machine
from envcheck.host.machine import Host
from envcheck.knowledge import lint as linting
from envcheck.knowledge import load as matrix
from envcheck.resolver_backends import index

ONLINE_DEADLINE_S = 120.0
"""For all pages of the index together."""


def show(wanted: str | None, overlays: Sequence[str]) -> str:
    """The page of a package or of one release of it; of everything if none is named.

    Raises:
        InputError: nothing is known of it; names the nearest.
    """
    from envcheck.knowledge.package_pages import matrix_page

    return matrix_page(wanted, _with_releases(overlays))


def html(folder: str, overlays: Sequence[str]) -> str:
    """Write the page; says where it is.

    Raises:
        InputError: it cannot be written there.
    """
    from envcheck.knowledge import site

    page = site.render(site.assemble(_with_releases(overlays)), machine.package_text("knowledge/site.html"))
    target = Path(folder, "index.html")
    machine.write_file(target, page)
    return f"{target}: {len(page.encode()) / 1024:.0f} KiB, opens without a network\n"


def lint(
    folder: str | None, host: Host, today: str | None, overlays: Sequence[str], *, online: bool
) -> tuple[str, int]:
    """What is wrong with the knowledge, and 1 if anything is.

    Raises:
        InputError: there are no TOML files to look at, an overlay is wrong, or the date is none.
        ExamineError: the index cannot be read.
    """
    texts = machine.folder_texts(Path(folder), ".toml") if folder else machine.source_texts("compat", ".toml")
    if not texts:
        raise InputError(
            folder or "compat", "no TOML files; lint reads a checkout, or the folder it is given"
        )
    words = examine.vocabulary(probes.every_probe())
    if overlays:
        matrix.build_overlaid(matrix.gather(texts), examine.overlay_texts(overlays), words)
    newer = _newer(matrix.gather(texts)["matrix"].get("known_through", {}), host) if online else {}
    problems = linting.lint(texts, words, _day(today), newer)
    text = linting.rendered(problems, (folder or "compat").rstrip("/"))
    return text, int(any(not each.note for each in problems))


def _day(text: str | None) -> dt.date:
    if text is None:
        return dt.datetime.now(tz=dt.UTC).date()
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise InputError("--today", f"expected a date such as 2026-11-21, found {text!r}") from None


def _newer(known_through: dict[str, str], host: Host) -> dict[str, list[str]]:
    """Releases on the user's index beyond what is known, by package."""
    files = index.release_files(host, index.user_index(host), known_through, "", ONLINE_DEADLINE_S)
    published = {
        name: {version for each in found if (version := _version_of(name, each.name))}
        for name, found in files.items()
    }
    return linting.beyond(known_through, published)


def _version_of(name: str, file: str) -> str:
    """The version in the name of a wheel or source distribution; empty for anything else."""
    from packaging.utils import (
        InvalidSdistFilename,
        InvalidWheelFilename,
        parse_sdist_filename,
        parse_wheel_filename,
    )

    try:
        if file.endswith(".whl"):
            found, version, _, _ = parse_wheel_filename(file)
        else:
            found, version = parse_sdist_filename(file)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return ""
    return str(version) if found == name else ""


def _with_releases(overlays: Sequence[str]) -> Matrix:
    """The knowledge with the release rows and cases, which doctor's compiled form leaves out."""
    words = examine.vocabulary(probes.every_probe())
    return matrix.build_overlaid(examine.source_tree(), examine.overlay_texts(overlays), words)
