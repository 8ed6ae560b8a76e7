"""Compare the files of an environment with the hashes in each package's RECORD (PEP 376, PEP 427).

Only `gate --verify-files` does this, because torch alone has gigabytes of files. Nothing is imported, and
files are read in pieces. Packages that were not compared before the deadline are reported as undecided.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import csv
import os
import time
from collections.abc import Iterator
from pathlib import Path

from envcheck.core.errors import InputError
from envcheck.core.facts import Fact, Known, Unknown
from envcheck.core.findings import Evidence, Finding, Verdict
from envcheck.core.i18n import counted
from envcheck.core.rules import Severity
from envcheck.host.files import read_file, sha256
from envcheck.host.machine import Host
from envcheck.policy.generated_findings import generated_finding
from envcheck.probes import ProbeRequest
from envcheck.probes.distributions import InstalledFiles, read_site
from envcheck.probes.python_env import located

GROUP = "files"
"""The rule group of all findings of this module."""

RECORD_LIMIT = 64 * 1024 * 1024
"""Maximum bytes read of one RECORD; that of torch 2.6 has 1.5 million."""

KEEP_THEIR_OWN = ("conda", "debian", "rpm")
"""Installers, as INSTALLER spells them, that move or rewrite files after RECORD was written."""

_FOLDER_OF_DPKG = "/usr/lib/python3/dist-packages"  # pip installs below /usr/local on Debian

_MOST_NAMED = 5
"""Maximum number of files or packages that a finding names; it counts the others."""


def verify(host: Host, request: ProbeRequest, seconds: float) -> list[Finding]:
    """Compare every file that a RECORD lists with its hash, for at most these seconds.

    Raises:
        InputError: there is no such environment.
        ExamineError: it cannot be examined.
    """
    until = time.monotonic() + seconds
    findings: list[Finding] = []
    left_out: dict[str, list[str]] = {}  # packages by the reason
    for site, record in _records(host, located(host, request).sites):
        folder = f"{site}/{record.entry}"
        if why := "installed from a checkout" if record.editable else _installer(host, site, folder):
            left_out.setdefault(why, []).append(record.name)
            continue
        changed: list[str] = []
        try:
            for path, difference in _compare(host, site, folder, until):
                changed += [f"{path} ({difference})"] if difference else []
        except InputError as error:
            left_out.setdefault(error.problem, []).append(record.name)
        except TimeoutError:
            left_out.setdefault(f"not finished within {seconds:g} s", []).append(record.name)
        if changed:
            findings.append(_changed(record.name, changed, f"{folder}/RECORD"))
    return findings + [_not_compared(names, why) for why, names in left_out.items()]


def _installer(host: Host, site: str, folder: str) -> str:
    """Return the installer that makes RECORD unreliable for a package; empty if there is none."""
    installer = (host.read_text(f"{folder}/INSTALLER") or "").strip().lower()
    return "debian" if site == _FOLDER_OF_DPKG else installer if installer in KEEP_THEIR_OWN else ""


def _records(host: Host, sites: tuple[str, ...]) -> Iterator[tuple[str, InstalledFiles]]:
    """Yield each site folder with the record of every package in it; each site folder once."""
    seen: set[str] = set()
    for site in sites:
        place = str(host.path(site))
        if (real := os.path.realpath(place)) in seen:
            continue
        seen.add(real)
        with contextlib.suppress(OSError):  # the probe reports a folder that cannot be listed
            for record in read_site(site, place, lambda path: str(host.path(path))):
                yield site, record


def _compare(host: Host, site: str, folder: str, until: float) -> Iterator[tuple[str, str]]:
    """Yield every file that is listed with a hash, and how it differs; empty if it is unchanged.

    Raises:
        InputError: RECORD cannot be read, or holds no hashes or other hashes than sha256.
        TimeoutError: the time is up.
    """
    for path, digest, size in _hashed_files(host, folder):
        algorithm, _, expected = digest.partition("=")
        if algorithm != "sha256":
            raise InputError(folder, "hashes other than sha256 in RECORD")
        if time.monotonic() > until:
            raise TimeoutError
        place = host.path(path if path.startswith("/") else f"{site}/{path}")
        yield path, _difference(place, expected, size, until)


def _hashed_files(host: Host, folder: str) -> list[tuple[str, str, str]]:
    """Return path, digest and size of the files in a RECORD that have a hash.

    RECORD itself has none, nor have files that were compiled after the installation.
    """
    try:
        text = read_file(host.path(f"{folder}/RECORD"), RECORD_LIMIT).decode("utf-8", "replace")
        rows = [(*row, "", "", "")[:3] for row in csv.reader(text.splitlines())]
    except (InputError, csv.Error):
        raise InputError(folder, "no RECORD of their files") from None
    hashed = [(path, digest, size) for path, digest, size in rows if path and digest]
    if not hashed:
        raise InputError(folder, "no hashes in RECORD")
    return hashed


def _difference(place: Path, expected: str, size: str, until: float) -> str:
    """Return how a file differs from its RECORD; empty if it does not.

    Raises:
        TimeoutError: the time is up.
    """
    try:
        if size.isdecimal() and place.stat().st_size != int(size):
            return "another size"
        found = sha256(place, until)
    except (OSError, ValueError) as error:
        return "missing" if isinstance(error, FileNotFoundError) else "cannot be read"
    if found is None:
        raise TimeoutError
    try:
        recorded = base64.urlsafe_b64decode(expected + "=" * (-len(expected) % 4)).hex()
    except (binascii.Error, ValueError):
        return "its hash in RECORD cannot be read"
    return "" if found == recorded else "another content"


def _changed(package: str, changed: list[str], record: str) -> Finding:
    fact = Fact(f"files.{package}", Known(_first_few(changed)), record)
    are = "differs from the file that was" if len(changed) == 1 else "differ from the files that were"
    title = f"{counted(len(changed), 'file')} of {package} {are} installed"
    return generated_finding(f"files:changed:{package}", Severity.ERROR, title, [Evidence(fact)], group=GROUP)


def _not_compared(packages: list[str], why: str) -> Finding:
    shown = _first_few(packages)
    if why in KEEP_THEIR_OWN:
        fact = Fact("files", Known(shown), f"installed by {why}, which keeps its own list")
        title = f"the files of {counted(len(packages), 'package')} of {why} were not compared"
        return generated_finding("files:not-ours", Severity.NOTE, title, [Evidence(fact)], group=GROUP)
    fact = Fact("files", Unknown(f"{shown}: {why}"))
    title = f"the files of {counted(len(packages), 'package')} were not compared"
    return generated_finding(
        "files:not-compared",
        Severity.WARNING,
        title,
        [Evidence(fact)],
        group=GROUP,
        verdict=Verdict.UNDECIDED,
    )


def _first_few(names: list[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more
