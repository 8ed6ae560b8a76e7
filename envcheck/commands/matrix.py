"""Show the matrix, check it for mistakes, and write it as an HTML page."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from pathlib import Path

from envcheck.commands import loading, user_settings
from envcheck.core.errors import InputError
from envcheck.core.rules import Matrix
from envcheck.host.files import append_file, folder_texts, write_file
from envcheck.host.machine import Host
from envcheck.host.package_files import package_text, source_texts
from envcheck.knowledge import lint as linting
from envcheck.knowledge import load as knowledge_load
from envcheck.knowledge.overlay import build_with_overlays
from envcheck.resolver_backends.index.reader import release_files
from envcheck.resolver_backends.index.settings import user_index

ONLINE_DEADLINE_S = 120.0
"""Seconds for all pages of the index together."""


def show(subject: str | None, partner: str | None, overlays: Sequence[str], lang: str | None = None) -> str:
    """Return the page of a package, a release or two packages; of everything if none is named.

    Raises:
        InputError: nothing is known about it; names similar subjects.
    """
    language = user_settings.choose_language(lang, Host())
    if subject is not None and partner is not None:
        from envcheck.knowledge.pair_page import pair_page

        return pair_page(subject, partner, _with_releases(overlays), language)
    from envcheck.knowledge.package_pages import matrix_page

    return matrix_page(subject, _with_releases(overlays), language)


def html(place: str, overlays: Sequence[str]) -> str:
    """Write the HTML page of the matrix; return what to print. `place` is as in `write_page`.

    Raises:
        InputError: it cannot be written there.
    """
    from envcheck.knowledge import site

    known = _with_releases(overlays)
    return write_page(place, lambda: site.render(site.assemble(known), package_text("knowledge/site.html")))


def write_page(place: str, make: Callable[[], str]) -> str:
    """Write the page that `make` returns; return what to print.

    `place` is a file that ends in `.html`, or a folder for index.html; for `-`, return the page itself.

    Raises:
        InputError: it cannot be written there. The page is not made then, because that takes seconds.
    """
    if place == "-":
        return make()
    file = Path(place)
    if file.suffix.lower() not in (".html", ".htm") or file.is_dir():
        file /= "index.html"
    append_file(file, "")
    page = make()
    write_file(file, page)
    return f"{file}: {len(page.encode()) / 1024:.0f} KiB, opens without a network\n"


def lint(
    folder: str | None, host: Host, today: str | None, overlays: Sequence[str], *, online: bool
) -> tuple[str, int]:
    """Return the mistakes in the knowledge as text, and exit code 1 if there are any.

    `folder` is laid out like `compat/`, or is a checkout that holds `compat/`. `today` is an ISO date that
    replaces the clock. With `online`, releases on the user's index that the matrix does not know yet are
    named too.

    Raises:
        InputError: there are no TOML files, an overlay is wrong, or `today` is not a date.
        ExamineError: the index cannot be read.
    """
    if folder and (Path(folder) / "compat" / "matrix.toml").is_file():
        folder = str(Path(folder) / "compat")
    texts = folder_texts(Path(folder), ".toml") if folder else source_texts("compat", ".toml")
    if not texts:
        raise InputError(
            folder or "compat", "no TOML files; lint reads a checkout, or the folder it is given"
        )
    keys = loading.known_vocabulary()
    if overlays:
        build_with_overlays(knowledge_load.gather_tree(texts), loading.overlay_texts(overlays), keys)
    newer = {}
    if online:
        newer = _newer_releases(knowledge_load.gather_tree(texts)["matrix"].get("known_through", {}), host)
    code = loading.load_atlas() if folder is None else linting.NO_ATLAS
    problems = linting.lint(texts, keys, _parse_day(today), newer, code)
    text = linting.render_problems(problems, (folder or "compat").rstrip("/"))
    return text, int(any(not problem.note for problem in problems))


def _parse_day(text: str | None) -> dt.date:
    if text is None:
        return dt.datetime.now(tz=dt.UTC).date()
    try:
        return dt.date.fromisoformat(text)
    except ValueError:
        raise InputError("--today", f"expected a date such as 2026-11-21, found {text!r}") from None


def _newer_releases(known_through: dict[str, str], host: Host) -> dict[str, list[str]]:
    """Return the releases on the user's index that are newer than the known ones, by package."""
    files = release_files(host, user_index(host), known_through, "", ONLINE_DEADLINE_S)
    published = {
        name: {version for file in found if (version := _version_of(name, file.name))}
        for name, found in files.items()
    }
    return linting.newer_releases(known_through, published)


def _version_of(package: str, file: str) -> str:
    """Return the version in the name of a wheel or source distribution; empty for any other file."""
    from packaging.utils import (
        InvalidSdistFilename,
        InvalidWheelFilename,
        parse_sdist_filename,
        parse_wheel_filename,
    )

    try:
        if file.endswith(".whl"):
            name, version, _, _ = parse_wheel_filename(file)
        else:
            name, version = parse_sdist_filename(file)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return ""
    return str(version) if name == package else ""


def _with_releases(overlays: Sequence[str]) -> Matrix:
    """Load the knowledge with release rows and cases, which the compiled form for `doctor` leaves out."""
    keys = loading.known_vocabulary()
    known = build_with_overlays(loading.source_tree(), loading.overlay_texts(overlays), keys)
    return known._replace(atlas=loading.load_atlas)
