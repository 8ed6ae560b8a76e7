"""The files of an environment against what their installation wrote down: RECORD (PEP 376, PEP 427).

Only `gate --verify-files` reads them, for a torch has gigabytes. Nothing is imported, a file is read in
pieces, and when the time is up what was not looked at is said to be unknown.
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
from envcheck.host import machine
from envcheck.host.machine import Host
from envcheck.policy import decision
from envcheck.probes import ProbeRequest
from envcheck.probes.distributions import InstalledFiles, read_site
from envcheck.probes.python_env import located

GROUP = "files"
RECORD_LIMIT = 64 * 1024 * 1024
"""Bytes of one RECORD: that of torch 2.6 has 1.5 million."""

KEEP_THEIR_OWN = ("conda", "debian", "rpm")
"""Who moves or rewrites files after their RECORD was made, as INSTALLER spells it."""

_DEBIANS_OWN = "/usr/lib/python3/dist-packages"  # dpkg's; pip installs below /usr/local there

_SHOWN = 5


def verify(host: Host, request: ProbeRequest, seconds: float) -> list[Finding]:
    """Compare every file that a RECORD lists with a hash, for at most so many seconds.

    Raises:
        InputError: there is no such environment.
        ExamineError: it cannot be examined.
    """
    until = time.monotonic() + seconds
    findings: list[Finding] = []
    left_out: dict[str, list[str]] = {}
    for site, record in _records(host, located(host, request).sites):
        changed: list[str] = []
        folder = f"{site}/{record.entry}"
        if keeper := "installed from a checkout" if record.editable else _keeper(host, site, folder):
            left_out.setdefault(keeper, []).append(record.name)
            continue
        try:
            for path, wrong in _differences(host, site, folder, until):
                changed += [f"{path} ({wrong})"] if wrong else []
        except InputError as error:
            left_out.setdefault(error.problem, []).append(record.name)
        except TimeoutError:
            left_out.setdefault(f"not finished within {seconds:g} s", []).append(record.name)
        if changed:
            findings.append(_changed(record.name, changed, f"{folder}/RECORD"))
    return findings + [_not_compared(names, why) for why, names in left_out.items()]


def _keeper(host: Host, site: str, folder: str) -> str:
    """Who keeps a list of a package's files that is better than its RECORD; empty if nobody does."""
    installer = (host.read_text(f"{folder}/INSTALLER") or "").strip().lower()
    return "debian" if site == _DEBIANS_OWN else installer if installer in KEEP_THEIR_OWN else ""


def _records(host: Host, sites: tuple[str, ...]) -> Iterator[tuple[str, InstalledFiles]]:
    """The records of every package folder, each folder once."""
    seen: set[str] = set()
    for site in sites:
        place = str(host.path(site))
        if (real := os.path.realpath(place)) in seen:
            continue
        seen.add(real)
        with contextlib.suppress(OSError):  # a folder that cannot be listed: the probe has said so
            for record in read_site(site, place, lambda path: str(host.path(path))):
                yield site, record


def _differences(host: Host, site: str, folder: str, until: float) -> Iterator[tuple[str, str]]:
    """Every file listed with a hash, and what is wrong with it, if anything.

    Raises:
        InputError: there is no RECORD that can be read, or not all of its hashes are sha256.
        TimeoutError: the time is up.
    """
    try:
        text = machine.read_file(host.path(f"{folder}/RECORD"), RECORD_LIMIT).decode("utf-8", "replace")
        rows = [(*row, "", "", "")[:3] for row in csv.reader(text.splitlines())]
    except (InputError, csv.Error):
        raise InputError(folder, "no RECORD of their files") from None
    hashed = [row for row in rows if row[0] and row[1]]  # RECORD itself and what was compiled later have none
    if not hashed:
        raise InputError(folder, "no hashes in RECORD")
    for path, digest, size in hashed:
        algorithm, _, wanted = digest.partition("=")
        if algorithm != "sha256":
            raise InputError(folder, "hashes other than sha256 in RECORD")
        if time.monotonic() > until:
            raise TimeoutError
        yield (
            path,
            _wrong(host.path(path if path.startswith("/") else f"{site}/{path}"), wanted, size, until),
        )


def _wrong(place: Path, wanted: str, size: str, until: float) -> str:
    try:
        if size.isdecimal() and place.stat().st_size != int(size):
            return "another size"
        found = machine.sha256(place, until)
    except (OSError, ValueError) as error:
        return "missing" if isinstance(error, FileNotFoundError) else "cannot be read"
    if found is None:
        raise TimeoutError
    try:
        there = base64.urlsafe_b64decode(wanted + "=" * (-len(wanted) % 4)).hex()
    except (binascii.Error, ValueError):
        return "its hash in RECORD cannot be read"
    return "" if found == there else "another content"


def _changed(name: str, changed: list[str], record: str) -> Finding:
    more = f" and {len(changed) - _SHOWN} more" if len(changed) > _SHOWN else ""
    fact = Fact(f"files.{name}", Known(", ".join(changed[:_SHOWN]) + more), record)
    are = "is not as it was" if len(changed) == 1 else "are not as they were"
    title = f"{counted(len(changed), 'file')} of {name} {are} installed"
    return decision.written(f"files:changed:{name}", Severity.ERROR, title, [Evidence(fact)], group=GROUP)


def _not_compared(names: list[str], why: str) -> Finding:
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")
    if why in KEEP_THEIR_OWN:
        because = [
            Evidence(Fact("files", Known(shown), f"installed by {why}, which keeps a list of its own"))
        ]
        title = f"the files of {counted(len(names), 'package')} of {why} were not compared"
        return decision.written("files:not-ours", Severity.NOTE, title, because, group=GROUP)
    because = [Evidence(Fact("files", Unknown(f"{shown}: {why}")))]
    title = f"the files of {counted(len(names), 'package')} were not compared"
    return decision.written(
        "files:not-compared", Severity.WARNING, title, because, group=GROUP, verdict=Verdict.UNDECIDED
    )
