"""Propose a diff of compat/tables/releases.toml: `python tools/refresh_releases.py [PACKAGE…] [--write]`.

Reads the index of the user's pip configuration: pages, and the METADATA of releases that are not in the
table yet (of all, with `--all`), a few KiB of each wheel by range request. Prints a unified diff and changes
nothing unless told to. Rules are never touched: what a new release means is for a person to find out.
"""

from __future__ import annotations

import argparse
import difflib
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

from envcheck.core.errors import ExamineError
from envcheck.host.machine import Host
from envcheck.resolver_backends.index.lazy_wheel import RemoteFile
from envcheck.resolver_backends.index.pages import ListedFile
from envcheck.resolver_backends.index.reader import IndexReader

TABLE = Path(__file__).resolve().parent.parent / "compat/tables/releases.toml"
MIB = 1 << 20
WHEEL_LIMIT = 8 * MIB
"""Bytes fetched of one wheel: its directory and its METADATA, which take a few KiB of nearly every one."""
SDIST_LIMIT = 64 * MIB
"""Bytes of a source distribution, which must be read from its beginning."""
AT_ONCE = 4

Bounds = dict[str, str]


class Release(NamedTuple):
    """One row: bounds are as the table writes them, `""` for any version."""

    package: str
    version: str
    date: str
    requires_python: str
    requires: Bounds
    extras: dict[str, Bounds]
    kinds: list[str]
    yanked: bool


class Wanted(NamedTuple):
    """What the table keeps of metadata: which required names, and which extras with which names."""

    names: frozenset[str]
    extras: Mapping[str, Mapping[str, frozenset[str]]]  # by package


# --- the table --------------------------------------------------------------------------------------


def read_table(text: str) -> list[Release]:
    """The rows of the table."""
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


def kept(rows: Iterable[Release]) -> Wanted:
    """What the table keeps, read off the table itself, so that a curator decides by editing a row."""
    names: set[str] = set()
    extras: dict[str, dict[str, frozenset[str]]] = {}
    for row in rows:
        names |= {row.package, *row.requires}
        for extra, bounds in row.extras.items():
            of = extras.setdefault(row.package, {})
            of[extra] = of.get(extra, frozenset()) | bounds.keys()
    return Wanted(frozenset(names), extras)


def render(row: Release) -> str:
    """A row as the table writes it: one line."""
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
    """The table with changed rows rewritten in place and new ones behind those of their package.

    A row that says the same in other words is left as it is.
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
            # The highest place first, so that those below are where they were.
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
    """A bound as the table writes it: lower ends before upper ones."""
    parts = sorted(specifier, key=lambda each: (_ORDER.index(each.operator), each.version))
    return ",".join(f"{each.operator}{each.version}" for each in parts)


def requirements(lines: Iterable[str], package: str, wanted: Wanted) -> tuple[Bounds, dict[str, Bounds]]:
    """What `Requires-Dist` lines ask for on Linux x86_64, and what the extras add that the table keeps."""
    asked = list(_parsed(lines))
    always = _bounds(asked, "", wanted.names)
    extras = {}
    for extra, names in wanted.extras.get(package, {}).items():
        more = _bounds(
            [each for each in asked if not _applies(each, "") and _applies(each, extra)], extra, names
        )
        bounded = {name: bound for name, bound in more.items() if bound}
        if bounded:
            extras[extra] = bounded  # an extra that takes any version says nothing about versions
    return always, extras


def _parsed(lines: Iterable[str]) -> Iterator[Requirement]:
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


def _bounds(asked: Sequence[Requirement], extra: str, names: frozenset[str]) -> Bounds:
    found: Bounds = {}
    for each in asked:
        name = canonicalize_name(each.name)
        if name in names and _applies(each, extra):
            both = SpecifierSet(",".join(filter(None, (found.get(name, ""), str(each.specifier)))))
            found[name] = bound_of(both)
    return found


def metadata_of(reader: IndexReader, files: Sequence[ListedFile]) -> tuple[str, list[str]]:
    """`Requires-Python` and the `Requires-Dist` lines of a release, from the cheapest of its files.

    Raises:
        ExamineError: none of its files can be read.
    """
    wheels = sorted((each for each in files if each.name.endswith(".whl")), key=_ease)
    if wheels:
        text = _wheel_metadata(reader, wheels[0])
        return _headers(text)
    sdists = [each for each in files if each.name.endswith((".tar.gz", ".zip"))]
    if not sdists:
        raise ExamineError("it has neither a wheel nor a source distribution")
    return _sdist_metadata(reader.fetch(sdists[0].url, SDIST_LIMIT)[0])


def _ease(file: ListedFile) -> tuple[int, str]:
    """Wheels for any machine first, then those for Linux on x86_64."""
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
            pass  # promised and not served; the wheel has it too
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


def _headers(text: str) -> tuple[str, list[str]]:
    headers = HeaderParser().parsestr(text)
    return headers.get("Requires-Python") or "", headers.get_all("Requires-Dist") or []


def _sdist_metadata(data: bytes) -> tuple[str, list[str]]:
    """What PKG-INFO says; older ones keep what they require in egg-info/requires.txt."""
    python = ""
    requires: list[str] = []
    listed: list[str] = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as archive:
            for member in archive:
                base = member.name.partition("/")[2]
                if not member.isfile() or member.size > MIB:
                    continue
                if base == "PKG-INFO":
                    python, requires = _headers(_text(archive, member))
                elif base.endswith(".egg-info/requires.txt"):
                    plain = _text(archive, member).split("\n[")[0]
                    listed = [line.strip() for line in plain.splitlines() if line.strip()]
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ExamineError(f"a source distribution cannot be read: {error}") from None
    return python, requires or listed


def _text(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str:
    stream = archive.extractfile(member)
    return stream.read().decode("utf-8", "replace") if stream else ""


# --- the index --------------------------------------------------------------------------------------


def by_release(package: str, files: Iterable[ListedFile]) -> dict[Version, list[ListedFile]]:
    """The files of every final release, oldest first."""
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
    reader: IndexReader, package: str, rows: Sequence[Release], wanted: Wanted, *, everything: bool
) -> tuple[list[Release], list[str]]:
    """The releases of a package from the oldest in the table on, and remarks on what could not be read."""
    known = {Version(row.version): row for row in rows}
    releases = {
        version: files
        for version, files in by_release(package, reader.files(package)).items()
        if version >= min(known, default=version)
    }
    unread = [version for version in releases if everything or version not in known]
    remarks = [
        f"{package} {row.version} is no longer on the index"
        for version, row in known.items()
        if version not in releases
    ]
    metadata: dict[Version, tuple[str, list[str]]] = {}

    def read(version: Version) -> tuple[str, list[str]] | str:
        try:
            return metadata_of(reader, releases[version])
        except ExamineError as error:
            return f"{package} {version} is left out: {error}"

    with ThreadPoolExecutor(AT_ONCE) as pool:
        for version, answer in zip(unread, pool.map(read, unread), strict=True):
            if isinstance(answer, str):
                remarks.append(answer)
            else:
                metadata[version] = answer
    found = []
    for version, files in releases.items():
        before = known.get(version)
        if version not in metadata and before is None:
            continue
        date = min((file.uploaded[:10] for file in files if file.uploaded), default="")
        if version in metadata:
            python, lines = metadata[version]
            requires, extras = requirements(lines, package, wanted)
        else:
            assert before is not None  # noqa: S101 - it is known, or it would have been read
            python, requires, extras = before.requires_python, before.requires, before.extras
        kinds = [
            kind
            for kind, ends in (("wheel", ".whl"), ("sdist", (".tar.gz", ".zip")))
            if any(file.name.endswith(ends) for file in files)
        ]
        found.append(
            Release(
                package,
                before.version if before else str(version),
                before.date if before and before.date else date,
                python,
                requires,
                extras,
                kinds,
                all(file.yanked for file in files),
            )
        )
    return found, remarks


def main(arguments: Sequence[str]) -> int:
    """Print the diff; 0 if there is none or it was written, 1 if there is one, 3 if the index failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("package", nargs="*", help="packages of the table; all of them if none is named")
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--all", action="store_true", help="read the metadata of known releases again too")
    parser.add_argument("--write", action="store_true", help="apply the diff")
    parser.add_argument(
        "--deadline", type=float, default=600.0, metavar="SECONDS", help="for everything together"
    )
    options = parser.parse_args(arguments)
    text = options.table.read_text("utf-8")
    rows = read_table(text)
    wanted = kept(rows)
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
            found[name], remarks = published(reader, name, own, wanted, everything=options.all)
            for remark in remarks:
                print(f"refresh_releases: {remark}", file=sys.stderr)
    except ExamineError as error:
        print(f"refresh_releases: {error}", file=sys.stderr)
        return 3
    after = refreshed(text, found)
    sys.stdout.writelines(
        difflib.unified_diff(
            text.splitlines(keepends=True),
            after.splitlines(keepends=True),
            "a/releases.toml",
            "b/releases.toml",
            n=1,
        )
    )
    if options.write and after != text:
        options.table.write_text(after, "utf-8")
    return int(after != text and not options.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
