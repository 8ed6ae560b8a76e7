"""Propose a diff of compat/tables/releases.toml: `python tools/refresh_releases.py [PACKAGE…] [--write]`.

Reads the index of the user's pip configuration: its pages, and the METADATA of releases that are not in the
table yet (of all releases with `--all`), a few KiB of each wheel by range request. Prints a unified diff;
changes nothing without `--write`. Rules are never changed, because a person has to find out what a new
release means.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from email.parser import HeaderParser
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from table_diff import propose

from envcheck.core.errors import ExamineError
from envcheck.host.machine import Host
from envcheck.resolver_backends.index.lazy_wheel import RemoteFile
from envcheck.resolver_backends.index.pages import ListedFile
from envcheck.resolver_backends.index.reader import IndexReader

TABLE = Path(__file__).resolve().parent.parent / "compat/tables/releases.toml"
MIB = 1 << 20
WHEEL_LIMIT = 8 * MIB
"""Most bytes to fetch of one wheel; its directory and METADATA take a few KiB in nearly every wheel."""
SDIST_LIMIT = 64 * MIB
"""Most bytes to fetch of a source distribution, which must be read from its beginning."""
AT_ONCE = 4

Bounds = dict[str, str]
Metadata = tuple[str, list[str]]
"""`Requires-Python` and the `Requires-Dist` lines of a release."""


class Release(NamedTuple):
    """One row of the table. Bounds are written as in the table; `""` means any version."""

    package: str
    version: str
    date: str
    requires_python: str
    requires: Bounds
    extras: dict[str, Bounds]
    kinds: list[str]
    yanked: bool


class KeptNames(NamedTuple):
    """The part of the metadata that the table keeps: required names, and names that extras require."""

    names: frozenset[str]
    extras: Mapping[str, Mapping[str, frozenset[str]]]  # by package


# --- the table --------------------------------------------------------------------------------------


def read_table(text: str) -> list[Release]:
    """Parse the rows of the table."""
    return [
        Release(
            package=row["package"],
            version=row["version"],
            date=str(row.get("date", "")),
            requires_python=row.get("requires_python", ""),
            requires=row.get("requires", {}),
            extras=row.get("extras", {}),
            kinds=row.get("kinds", []),
            yanked=row.get("yanked", False),
        )
        for row in tomllib.loads(text).get("release", [])
    ]


def kept_names(rows: Iterable[Release]) -> KeptNames:
    """Return the names in the rows of the table; a curator changes them by editing a row."""
    names: set[str] = set()
    extras: dict[str, dict[str, frozenset[str]]] = {}
    for row in rows:
        names |= {row.package, *row.requires}
        for extra, bounds in row.extras.items():
            own = extras.setdefault(row.package, {})
            own[extra] = own.get(extra, frozenset()) | bounds.keys()
    return KeptNames(frozenset(names), extras)


def render(row: Release) -> str:
    """Return a row as one line of the table."""
    parts = [f'package = "{row.package}"', f'version = "{row.version}"']
    parts += [f"date = {row.date}"] if row.date else []
    parts += [f'requires_python = "{row.requires_python}"'] if row.requires_python else []
    parts.append(f"requires = {_inline(row.requires)}")
    if row.extras:
        inner = ", ".join(f"{extra} = {_inline(bounds)}" for extra, bounds in sorted(row.extras.items()))
        parts.append(f"extras = {{ {inner} }}")
    parts.append("kinds = [" + ", ".join(f'"{kind}"' for kind in row.kinds) + "]")
    parts += ["yanked = true"] if row.yanked else []
    return f"  {{ {', '.join(parts)} }},"


def _inline(bounds: Bounds) -> str:
    if not bounds:
        return "{}"
    return "{ " + ", ".join(f'{name} = "{bound}"' for name, bound in sorted(bounds.items())) + " }"


def refreshed(text: str, found: Mapping[str, Sequence[Release]]) -> str:
    """Return the table with changed rows rewritten in place and new rows after those of their package.

    A row whose bounds are equal but spelt differently is left unchanged.
    """
    lines = text.splitlines()
    written = {(row.package, row.version): row for row in read_table(text)}
    for package, releases in found.items():
        places = {
            match[1]: place
            for place, line in enumerate(lines)
            if (match := re.match(rf'\s*{{ package = "{re.escape(package)}", version = "([^"]+)"', line))
        }
        if not places:
            continue
        for release in releases:
            before = written.get((package, release.version))
            if before is not None and not _same(before, release):
                lines[places[release.version]] = render(release)
        new = [each for each in releases if each.version not in places]
        for release in sorted(new, key=lambda each: Version(each.version), reverse=True):
            older = [
                place for version, place in places.items() if Version(version) < Version(release.version)
            ]
            # From the last line to the first, so that the line numbers of earlier rows stay valid.
            lines.insert(max(older, default=min(places.values()) - 1) + 1, render(release))
        count = re.compile(rf"(\s*# {re.escape(package)}: )\d+( releases.*)")
        lines = [count.sub(rf"\g<1>{len(places) + len(new)}\g<2>", line) for line in lines]
    return "\n".join(lines) + "\n"


def _same(one: Release, other: Release) -> bool:
    def plain(bounds: Bounds) -> dict[str, SpecifierSet]:
        return {name: SpecifierSet(bound) for name, bound in bounds.items()}

    return (
        one._replace(requires={}, extras={}, requires_python="")
        == other._replace(requires={}, extras={}, requires_python="")
        and SpecifierSet(one.requires_python) == SpecifierSet(other.requires_python)
        and plain(one.requires) == plain(other.requires)
        and {extra: plain(each) for extra, each in one.extras.items()}
        == {extra: plain(each) for extra, each in other.extras.items()}
    )


# --- metadata ---------------------------------------------------------------------------------------

_ORDER = ("!=", "==", "===", "~=", ">=", ">", "<", "<=")


def bound_of(specifier: SpecifierSet) -> str:
    """Return a bound as the table writes it: lower limits before upper limits."""
    parts = sorted(specifier, key=lambda each: (_ORDER.index(each.operator), each.version))
    return ",".join(f"{each.operator}{each.version}" for each in parts)


def requirements(lines: Iterable[str], package: str, kept: KeptNames) -> tuple[Bounds, dict[str, Bounds]]:
    """Return the kept requirements of `Requires-Dist` lines on Linux x86_64, and those of kept extras."""
    parsed = list(_parse_requirements(lines))
    always = _bounds(parsed, "", kept.names)
    extras = {}
    for extra, names in kept.extras.get(package, {}).items():
        more = _bounds(
            [each for each in parsed if not _applies(each, "") and _applies(each, extra)], extra, names
        )
        bounded = {name: bound for name, bound in more.items() if bound}
        if bounded:
            extras[extra] = bounded  # an extra without a bound does not matter to the table
    return always, extras


def _parse_requirements(lines: Iterable[str]) -> Iterator[Requirement]:
    for line in lines:
        try:
            yield Requirement(line)
        except InvalidRequirement:
            continue


_ENVIRONMENT = {
    "python_version": "3.12",
    "python_full_version": "3.12.0",
    "implementation_name": "cpython",
    "platform_python_implementation": "CPython",
    "sys_platform": "linux",
    "platform_system": "Linux",
    "platform_machine": "x86_64",
    "os_name": "posix",
}


def _applies(requirement: Requirement, extra: str) -> bool:
    return requirement.marker is None or requirement.marker.evaluate({**_ENVIRONMENT, "extra": extra})


def _bounds(requirements: Sequence[Requirement], extra: str, names: frozenset[str]) -> Bounds:
    found: Bounds = {}
    for each in requirements:
        name = canonicalize_name(each.name)
        if name in names and _applies(each, extra):
            both = SpecifierSet(",".join(filter(None, (found.get(name, ""), str(each.specifier)))))
            found[name] = bound_of(both)
    return found


def metadata_of(reader: IndexReader, files: Sequence[ListedFile]) -> Metadata:
    """Return `Requires-Python` and the `Requires-Dist` lines of a release, from the smallest useful file.

    Raises:
        ExamineError: none of its files can be read.
    """
    wheels = sorted((each for each in files if each.name.endswith(".whl")), key=_wheel_rank)
    if wheels:
        text = _wheel_metadata(reader, wheels[0])
        return _headers(text)
    sdists = [each for each in files if each.name.endswith((".tar.gz", ".zip"))]
    if not sdists:
        raise ExamineError("it has neither a wheel nor a source distribution")
    return _sdist_metadata(reader.fetch(sdists[0].url, SDIST_LIMIT)[0])


def _wheel_rank(file: ListedFile) -> tuple[int, str]:
    """Return a sort key: wheels for any machine first, then those for Linux on x86_64."""
    kinds = ("none-any", "linux_x86_64", "linux")
    rank = next(
        (
            place
            for place, kind in enumerate(kinds)
            if kind in file.name or (place == 1 and "x86_64" in file.name)
        ),
        9,
    )
    return rank, file.name


def _wheel_metadata(reader: IndexReader, wheel: ListedFile) -> str:
    if wheel.metadata:
        try:
            return reader.fetch(f"{wheel.url}.metadata", MIB)[0].decode("utf-8", "replace")
        except ExamineError:
            pass  # announced but not served; the wheel contains it too
    try:
        archive = zipfile.ZipFile(RemoteFile(reader, wheel.url, WHEEL_LIMIT))
        name = next(each for each in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", each))
        if archive.getinfo(name).file_size > MIB:
            raise ExamineError(f"{wheel.name}: METADATA is larger than a MiB")
        return archive.read(name).decode("utf-8", "replace")
    except StopIteration:
        raise ExamineError(f"{wheel.name} has no METADATA") from None
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise ExamineError(f"{wheel.name} cannot be read: {error}") from None


def _headers(text: str) -> Metadata:
    headers = HeaderParser().parsestr(text)
    return headers.get("Requires-Python") or "", headers.get_all("Requires-Dist") or []


def _sdist_metadata(data: bytes) -> Metadata:
    """Read `Requires-Python` and the requirements from PKG-INFO.

    Older source distributions list their requirements in egg-info/requires.txt instead.
    """
    python = ""
    requires: list[str] = []
    listed: list[str] = []
    try:
        for name, text in _sdist_texts(data):
            if name == "PKG-INFO":
                python, requires = _headers(text)
            else:
                before_extras = text.split("\n[")[0]
                listed = [line.strip() for line in before_extras.splitlines() if line.strip()]
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ExamineError(f"a source distribution cannot be read: {error}") from None
    return python, requires or listed


def _sdist_texts(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of PKG-INFO and of each egg-info/requires.txt in a source distribution."""
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as archive:
        for member in archive:
            name = member.name.partition("/")[2]
            if not member.isfile() or member.size > MIB:
                continue
            if name == "PKG-INFO" or name.endswith(".egg-info/requires.txt"):
                stream = archive.extractfile(member)
                yield name, stream.read().decode("utf-8", "replace") if stream else ""


# --- the index --------------------------------------------------------------------------------------


def by_release(package: str, files: Iterable[ListedFile]) -> dict[Version, list[ListedFile]]:
    """Return the files of each final release, oldest release first."""
    found: dict[Version, list[ListedFile]] = {}
    for file in files:
        version = _version(package, file.name)
        if version is not None and not version.is_prerelease:
            found.setdefault(version, []).append(file)
    return dict(sorted(found.items()))


def _version(package: str, name: str) -> Version | None:
    try:
        found, version = (
            parse_wheel_filename(name)[:2] if name.endswith(".whl") else parse_sdist_filename(name)
        )
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
    return version if found == package else None


def published(
    reader: IndexReader, package: str, rows: Sequence[Release], kept: KeptNames, *, everything: bool
) -> tuple[list[Release], list[str]]:
    """Return a package's releases from the oldest in the table on, and messages about unreadable ones.

    Metadata is read only for releases that are not in the table, or for all releases if `everything` is set.
    """
    known = {Version(row.version): row for row in rows}
    releases = {
        version: files
        for version, files in by_release(package, reader.files(package)).items()
        if version >= min(known, default=version)
    }
    messages = [
        f"{package} {row.version} is no longer on the index"
        for version, row in known.items()
        if version not in releases
    ]
    unread = {version: files for version, files in releases.items() if everything or version not in known}
    metadata, unreadable = _read_metadata(reader, package, unread)
    found = [
        _row(package, version, files, known.get(version), metadata.get(version), kept)
        for version, files in releases.items()
        if version in metadata or version in known
    ]
    return found, messages + unreadable


def _read_metadata(
    reader: IndexReader, package: str, releases: Mapping[Version, Sequence[ListedFile]]
) -> tuple[dict[Version, Metadata], list[str]]:
    """Read the metadata of several releases at once; return it with messages about unreadable ones."""

    def read(version: Version) -> Metadata | str:
        try:
            return metadata_of(reader, releases[version])
        except ExamineError as error:
            return f"{package} {version} is left out: {error}"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        answers = dict(zip(releases, pool.map(read, releases), strict=True))
    metadata = {version: answer for version, answer in answers.items() if not isinstance(answer, str)}
    return metadata, [answer for answer in answers.values() if isinstance(answer, str)]


def _row(
    package: str,
    version: Version,
    files: Sequence[ListedFile],
    before: Release | None,
    metadata: Metadata | None,
    kept: KeptNames,
) -> Release:
    """Return the row of a release; without `metadata`, its requirements stay as they are in the table."""
    if metadata is not None:
        python, lines = metadata
        requires, extras = requirements(lines, package, kept)
    else:
        assert before is not None  # noqa: S101 - a release that is not in the table was read
        python, requires, extras = before.requires_python, before.requires, before.extras
    kinds = [
        kind
        for kind, suffixes in (("wheel", ".whl"), ("sdist", (".tar.gz", ".zip")))
        if any(file.name.endswith(suffixes) for file in files)
    ]
    uploaded = min((file.uploaded[:10] for file in files if file.uploaded), default="")
    return Release(
        package=package,
        version=before.version if before else str(version),
        date=before.date if before and before.date else uploaded,
        requires_python=python,
        requires=requires,
        extras=extras,
        kinds=kinds,
        yanked=all(file.yanked for file in files),
    )


def main(arguments: Sequence[str]) -> int:
    """Print the diff; return 0 if it is empty or was written, else 1; 2 or 3 if it cannot be made."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", nargs="*", help="packages in the table; default: all")
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--all", action="store_true", help="also read the metadata of known releases again")
    parser.add_argument("--write", action="store_true", help="apply the diff")
    parser.add_argument("--deadline", type=float, default=600.0, metavar="SECONDS", help="for the whole run")
    options = parser.parse_args(arguments)
    text = options.table.read_text("utf-8")
    rows = read_table(text)
    kept = kept_names(rows)
    names: list[str] = [canonicalize_name(each) for each in options.package] or list(
        dict.fromkeys(row.package for row in rows)
    )
    found: dict[str, Sequence[Release]] = {}
    try:
        reader = IndexReader(Host(), options.deadline)
        for name in names:
            own = [row for row in rows if row.package == name]
            if not own:
                print(
                    f"refresh_releases: {name} is not in the table; add its first row by hand",
                    file=sys.stderr,
                )
                return 2
            found[name], messages = published(reader, name, own, kept, everything=options.all)
            for message in messages:
                print(f"refresh_releases: {message}", file=sys.stderr)
    except ExamineError as error:
        print(f"refresh_releases: {error}", file=sys.stderr)
        return 3
    after = refreshed(text, found)
    return propose(options.table, text, after, write=options.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
