"""The user's requirements on a lock in addition to the target, each with its origin.

Requirements files are read as pip reads them, but only releases of an index can be locked. A direct reference
or an editable install in a file is kept out of the lock and reported by its line number, because the text of
the line may contain a login. An option that names an index is reported and not applied.
"""

from __future__ import annotations

import datetime as dt
import re
import shlex
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from packaging.version import Version

from envcheck.core import markers
from envcheck.core.errors import InputError
from envcheck.core.facts import Known, Reading, Unknown, normalised
from envcheck.core.rules import UserRequirement
from envcheck.dependency_files import TextOf
from envcheck.dependency_files.parsing.requirement_lines import expanded_entries
from envcheck.lock.model import Pin


class RequirementWithExtras(NamedTuple):
    """A requirement and its extras; the search ignores the extras, and a backend resolves them.

    A requirement that is `by_address` (a URL, a path, a repository) stays out of the lock, because nothing is
    known about it. In that case `bare` has no bound, and a name only if the line gives one. `index_option` is
    set if the line is an option that names an index. The option is not applied, because a file from elsewhere
    must not decide where packages come from.
    """

    bare: UserRequirement
    extras: tuple[str, ...] = ()
    by_address: bool = False
    index_option: str = ""

    @property
    def requirement(self) -> str:
        """Return the line of a requirements file."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.bare.package}{extras}{self.bare.specifier}"


def unmet_requirements(
    requirements: Iterable[UserRequirement], extras: Iterable[str], pins: Iterable[Pin]
) -> list[str]:
    """Return what the pins of a lock do not satisfy, one reason each.

    Extras never count as satisfied, because a lock does not record the extras it was made for.
    """
    versions = {pin.name: pin.version for pin in pins}
    reasons = [_unmet(requirement, versions.get(requirement.package)) for requirement in requirements]
    return [*filter(None, reasons), *(f"was not made for {extra}" for extra in extras)]


def _unmet(requirement: UserRequirement, version: str | None) -> str:
    package, origin = requirement.package, requirement.origin
    if version is None:
        return f"lacks {package} ({origin})" if requirement.wanted else ""
    if admits(requirement, version):
        return ""
    return f"has {package} {version}, {origin} asks for {package}{requirement.specifier}"


def admits(requirement: UserRequirement, version: str) -> bool:
    """Return whether a requirement admits a version; a pre-release is accepted, because it was chosen."""
    return bool(_specifier(requirement.specifier).contains(version, prereleases=True))


@lru_cache(maxsize=256)
def _specifier(text: str) -> Any:
    from packaging.specifiers import SpecifierSet  # importing it takes as long as loading all rules for pin

    return SpecifierSet(text)


# --- one requirement --------------------------------------------------------------------------------


def parse_requirement(
    text: str, origin: str, python: str, platform: str, *, wanted: bool = True
) -> RequirementWithExtras | None:
    """Return the requirement in a text; None if its marker excludes Python `3.11` on `linux-x86_64`.

    Without `wanted` it is a constraint: it binds the package only if something else requires it.

    Raises:
        InputError: the text is not a requirement, or not one that an index can serve.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    if option := re.search(r"(?:^|\s)(--?[A-Za-z][A-Za-z-]*)", text):
        hint = "; the index is that of your pip or uv settings" if "index" in option[1] else ""
        raise InputError(origin, f"expected name>=version alone, found the option {option[1]}{hint}")
    if "://" in text or "@" in text or re.match(r"\.{0,2}/|\.+$|~|[A-Za-z]:\\", text):
        raise InputError(
            origin, "expected name>=version, found a direct reference: only releases of an index are locked"
        )
    try:
        requirement = Requirement(text)
    except (InvalidRequirement, RecursionError) as error:
        why = str(error).partition("\n")[0].rstrip(":")
        raise InputError(origin, f"expected name>=version, found {text[:80]!r} ({why[:120]})") from None
    system, _, architecture = platform.partition("-")
    if requirement.marker is not None and not requirement.marker.evaluate(
        markers.environment(python, architecture=architecture, system=system)
    ):
        return None
    extras = tuple(sorted(map(normalised, requirement.extras)))
    # Sorted, so that a backend gets the same request however the user ordered the bounds.
    bounds = ",".join(sorted(map(str, requirement.specifier)))
    bare = UserRequirement(normalised(requirement.name), bounds, origin, wanted)
    return RequirementWithExtras(bare, extras)


_BY_ADDRESS = re.compile(
    r"(?:-e|--editable)[\s=]|[\w.-]+(?:\[[^\]]*\])?\s*@\s|\.{1,2}(?:/|$)|/|(?:\w+\+)?\w+://|\S+\.(?:whl|zip|tar\.gz)(?:\s|$)"
)
"""The start of a line that asks for a file, a folder or a repository instead of a release."""

_INDEX_OPTION = re.compile(r"(--index-url|--extra-index-url|--find-links|--trusted-host|-i|-f)(?:[ =]|$)")

_NAMED_BEFORE = re.compile(r"([A-Za-z0-9][\w.-]*)(?:\[[^\]]*\])?\s*@\s")
_NAMED_WITHIN = re.compile(
    r"[#&]egg=([A-Za-z0-9][\w.-]*)|/([A-Za-z0-9][\w.]*)-[^/]*\.whl|/([A-Za-z0-9][\w-]*)\.git\b"
)


def _requirement_by_address(text: str, origin: str) -> RequirementWithExtras:
    """Return the requirement of a line that names no release, without its address, which may hold a login."""
    named = _NAMED_BEFORE.match(text) or _NAMED_WITHIN.search(text)
    name = next(filter(None, named.groups()), "") if named else ""
    return RequirementWithExtras(UserRequirement(normalised(name), "", origin, wanted=False), by_address=True)


def describe_by_address(requirements: Iterable[RequirementWithExtras], pinned: Iterable[str]) -> list[str]:
    """Return a note on each requirement that stays out of the lock; `pinned` are the packages in it."""
    in_lock = frozenset(pinned)
    notes = []
    for each in requirements:
        if each.index_option:
            notes.append(
                f"{each.bare.origin}: {each.index_option} is passed over: the lock is resolved with the "
                "index of your pip or uv settings"
            )
            continue
        file = each.bare.origin.rpartition(":")[0]
        name = each.bare.package
        what = f"{name}, " if name else ""
        instead = f"; the lock has a release of {name}, which it replaces" if name in in_lock else ""
        # The lock meets every other line of the file. The address itself may hold a login, and is not shown.
        command = f"python -m pip install --no-deps -r {shlex.quote(file)}"
        notes.append(
            f"{each.bare.origin}: {what}an address instead of a release, is kept and not judged: install it "
            f"after the lock{instead}: {command}"
        )
    return notes


def read_requirements_file(
    file: str, text_of: TextOf, python: str, platform: str
) -> tuple[RequirementWithExtras, ...]:
    """Return the requirements of a file and of those it includes; what `-c` includes are constraints.

    Raises:
        InputError: a line has a mistake or asks for something that an index cannot serve, or files include
            each other. The error names file and line. `text_of` may raise others if a file cannot be read.
    """

    def checked_text_of(name: str, including: str) -> tuple[str, str]:
        full_name, text = text_of(name, including)
        if "\0" in text or "\ufffd" in text:
            raise InputError(full_name, "not a text file in UTF-8")
        return full_name, text

    found = []
    name, text = checked_text_of(file, "")
    for entry in expanded_entries(text, name, checked_text_of):
        if entry.includes_address:
            raise InputError(entry.place, "expected a file, found a URL")
        origin = f"{entry.file}:{entry.line}"
        if option := _INDEX_OPTION.match(entry.text):
            bare = UserRequirement("", "", origin, wanted=False)
            found.append(RequirementWithExtras(bare, by_address=True, index_option=option[1]))
            continue
        if _BY_ADDRESS.match(entry.text):
            found.append(_requirement_by_address(entry.text, origin))
            continue
        requirement = parse_requirement(entry.text, origin, python, platform, wanted=not entry.constraint)
        if requirement is not None:
            found.append(requirement)
    return tuple(found)


# --- options that stand for a requirement -----------------------------------------------------------


def parse_day(text: str) -> dt.date:
    """Return the date of `--exclude-newer`.

    Raises:
        InputError: the text is not an ISO date, or is in the last year that a date can have.
    """
    try:
        found = dt.date.fromisoformat(text)
    except ValueError:
        found = dt.date.max
    if str(found) != text or found.year == dt.MAXYEAR:  # the day after it must exist
        raise InputError("--exclude-newer", f"expected a date such as 2026-11-21, found {text!r}")
    return found


def requirement_to_keep(name: str, installed: Reading, subject: str) -> RequirementWithExtras:
    """Return the requirement of `--keep NAME`: the version installed in the environment `subject`.

    A local label (`+cu128`) is left out: the index has the release, and the installed version satisfies it.

    Raises:
        InputError: the package is not installed, or its version cannot be read.
    """
    if not isinstance(installed, Known):
        why = f": {installed.why}" if isinstance(installed, Unknown) and installed.asked else ""
        raise InputError(f"--keep {name}", f"not found in {subject}{why}")
    release = Version(str(installed.value)).public
    return RequirementWithExtras(UserRequirement(normalised(name), f"=={release}", f"--keep {name}"))


def requirement_for_model(model_type: str, rows: Iterable[Mapping[str, Any]]) -> RequirementWithExtras | None:
    """Return the requirement of `--model TYPE`: the releases of transformers that know the model.

    None if every release of the tables knows it.

    Raises:
        InputError: no such model type is known; names the nearest one.
    """
    from envcheck.core.suggestions import suggestion

    by_type = {str(row["model_type"]): row for row in rows}
    row = by_type.get(model_type)
    if row is None:
        raise InputError(
            f"--model {model_type}", f"no such model type{suggestion(model_type, list(by_type))}"
        )
    bounds = [] if row.get("before") else [f">={row.get('install') or row['transformers']}"]
    bounds += [f"<{row['gone']}"] if row.get("gone") else []
    if not bounds:
        return None
    return RequirementWithExtras(UserRequirement("transformers", ",".join(bounds), f"--model {model_type}"))
