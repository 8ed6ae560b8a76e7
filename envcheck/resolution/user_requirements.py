"""What the user wants of a lock besides the target: their own requirements, each with who asks for it.

Requirement files are read as pip reads them, but only what an index serves can be locked: a direct
reference, an editable or an option that names another index is refused with its line, and what stood
there is not repeated, because it may hold a login.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, NamedTuple

from packaging.version import Version

from envcheck.core import markers
from envcheck.core.errors import InputError
from envcheck.core.facts import Known, Reading, Unknown, normalised
from envcheck.core.rules import UserRequirement
from envcheck.lock.model import Pin


class RequirementWithExtras(NamedTuple):
    """A wish with the extras it names: a search knows nothing of them, an engine completes them."""

    wish: UserRequirement
    extras: tuple[str, ...] = ()

    @property
    def requirement(self) -> str:
        """As a line of a requirements file."""
        extras = f"[{','.join(self.extras)}]" if self.extras else ""
        return f"{self.wish.package}{extras}{self.wish.specifier}"


def unmet_requirements(
    wishes: Iterable[UserRequirement], extras: Iterable[str], pins: Iterable[Pin]
) -> list[str]:
    """What a lock's pins do not fulfil; none if nothing. Which extras it was made for, no lock says."""
    versions = {pin.name: pin.version for pin in pins}
    reasons = [reason for each in wishes if (reason := _unmet(each, versions.get(each.package)))]
    return [*reasons, *(f"was not made for {each}" for each in extras)]


def _unmet(wish: UserRequirement, version: str | None) -> str:
    package, specifier, origin, wanted = wish
    if version is None:
        return f"lacks {package} ({origin})" if wanted else ""
    return "" if admits(wish, version) else f"has {package} {version}, {origin} asks for {package}{specifier}"


def admits(wish: UserRequirement, version: str) -> bool:
    """Whether a version is one that is asked for; pre-releases are, for somebody chose this one."""
    return bool(_specifier(wish.specifier).contains(version, prereleases=True))


@lru_cache(maxsize=256)
def _specifier(text: str) -> Any:
    from packaging.specifiers import SpecifierSet  # as long to load as all of pin's rules: only where asked

    return SpecifierSet(text)


# --- one requirement --------------------------------------------------------------------------------


def parse_requirement(
    text: str, origin: str, python: str, platform: str, *, wanted: bool = True
) -> RequirementWithExtras | None:
    """A requirement as written; None if its marker excludes Python `3.11` on `linux-x86_64`.

    Raises:
        InputError: not a requirement, or not one that an index can serve.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    if found := re.search(r"(?:^|\s)(--?[A-Za-z][A-Za-z-]*)", text):
        hint = "; the index is that of your pip or uv settings" if "index" in found[1] else ""
        raise InputError(origin, f"expected name>=version alone, found the option {found[1]}{hint}")
    if "://" in text or "@" in text or re.match(r"\.{0,2}/|\.+$|~|[A-Za-z]:\\", text):
        raise InputError(
            origin, "expected name>=version, found a direct reference: only releases of an index are locked"
        )
    try:
        parsed = Requirement(text)
    except (InvalidRequirement, RecursionError) as error:
        why = str(error).partition("\n")[0].rstrip(":")
        raise InputError(origin, f"expected name>=version, found {text[:80]!r} ({why[:120]})") from None
    system, _, architecture = platform.partition("-")
    if parsed.marker is not None and not parsed.marker.evaluate(
        markers.environment(python, architecture=architecture, system=system)
    ):
        return None
    extras = tuple(sorted(map(normalised, parsed.extras)))
    # In one order: the same wish spelt otherwise is the same request to an engine.
    bounds = ",".join(sorted(map(str, parsed.specifier)))
    return RequirementWithExtras(UserRequirement(normalised(parsed.name), bounds, origin, wanted), extras)


# --- requirement files ------------------------------------------------------------------------------

_DEEPEST = 20
_INCLUDE = re.compile(
    r"(?:-r|--requirement|(?P<limit>-c|--constraint))(?:\s*=\s*|\s+|(?<=^-[rc]))(?P<file>\S.*)"
)

TextOf = Callable[[str, str], tuple[str, str]]
"""A file's full name and its text, by its name and the full name of the file that names it (or "")."""


def read_requirements_file(
    file: str, text_of: TextOf, python: str, platform: str
) -> tuple[RequirementWithExtras, ...]:
    """The requirements of a file and of those it names with `-r` and `-c`.

    Raises:
        InputError: with file and line: a syntax error, something an index cannot serve, a loop; or
            what `text_of` raises where a file cannot be read.
    """
    return tuple(_File(text_of, python, platform).wishes(*text_of(file, ""), (), wanted=True))


class _File(NamedTuple):
    """How requirement files are read: from where, and for which Python and platform."""

    text_of: TextOf
    python: str
    platform: str

    def wishes(
        self, name: str, text: str, above: tuple[str, ...], *, wanted: bool
    ) -> Iterator[RequirementWithExtras]:
        if "\0" in text or "\ufffd" in text:
            raise InputError(name, "not a text file in UTF-8")
        for number, line in _lines(text, name):
            where = f"{name}:{number}"
            if included := _INCLUDE.fullmatch(line):
                inner = self._included(included["file"].strip(), where, (*above, name))
                yield from self.wishes(*inner, (*above, name), wanted=wanted and not included["limit"])
            elif asked := parse_requirement(line, where, self.python, self.platform, wanted=wanted):
                yield asked

    def _included(self, file: str, where: str, chain: tuple[str, ...]) -> tuple[str, str]:
        if "://" in file:
            raise InputError(where, "expected a file, found a URL")
        try:
            full, text = self.text_of(file, chain[-1])
        except InputError as error:
            raise InputError(where, f"{file[:80]}: {error.problem}") from None
        if full in chain:
            raise InputError(where, f"{file[:80]} names this file again")
        if len(chain) > _DEEPEST:
            raise InputError(where, f"files name each other more than {_DEEPEST} deep")
        return full, text


def _lines(text: str, name: str) -> Iterator[tuple[int, str]]:
    """Each entry with the number of its first line; comments gone, continued lines joined."""
    joined, start = "", 0
    for number, raw in enumerate(text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n"), 1):
        line = re.sub(r"(?:^|\s)#.*$", "", raw).strip()
        start = start if joined else number
        if line.endswith("\\"):
            joined += f"{line[:-1]} "
            continue
        line, joined = f"{joined}{line}".strip(), ""
        if line:
            yield start, line
    if joined:
        raise InputError(f"{name}:{start}", "the file ends in the middle of an entry")


def parse_day(text: str) -> dt.date:
    """The date of `--exclude-newer`. Raises InputError."""
    try:
        found = dt.date.fromisoformat(text)
    except ValueError:
        found = dt.date.max
    if str(found) != text or found.year == dt.MAXYEAR:  # one has to be able to add a day
        raise InputError("--exclude-newer", f"expected a date such as 2026-11-21, found {text!r}")
    return found


# --- wishes that stand for a requirement ------------------------------------------------------------


def requirement_to_keep(name: str, installed: Reading, subject: str) -> RequirementWithExtras:
    """`--keep NAME`: the version installed in the environment that `subject` names.

    A local label (`+cu128`) is left out: an index has the release, and what is installed satisfies it.

    Raises:
        InputError: it is not installed, or that cannot be told.
    """
    if not isinstance(installed, Known):
        why = f": {installed.why}" if isinstance(installed, Unknown) and installed.asked else ""
        raise InputError(f"--keep {name}", f"not found in {subject}{why}")
    return RequirementWithExtras(
        UserRequirement(normalised(name), f"=={Version(str(installed.value)).public}", f"--keep {name}")
    )


def requirement_for_model(model_type: str, rows: Iterable[Mapping[str, Any]]) -> RequirementWithExtras | None:
    """`--model TYPE`: the transformers that know it; None if every release of the tables does.

    Raises:
        InputError: no such type is known; names the nearest.
    """
    from envcheck.knowledge.rule_pages import nearest

    by_type = {str(row["model_type"]): row for row in rows}
    row = by_type.get(model_type)
    if row is None:
        raise InputError(f"--model {model_type}", f"no such model type{nearest(model_type, list(by_type))}")
    bounds = [] if row.get("before") else [f">={row.get('install') or row['transformers']}"]
    bounds += [f"<{row['gone']}"] if row.get("gone") else []
    return (
        RequirementWithExtras(UserRequirement("transformers", ",".join(bounds), f"--model {model_type}"))
        if bounds
        else None
    )
