"""Propose a diff of compat/tables/models.toml: `python tools/refresh_models.py [--write]`.

Reads which `model_type`s are supported by the releases of transformers in compat/tables/releases.toml. The
source is the wheels on the index of the user's pip configuration: the keys of CONFIG_MAPPING_NAMES in
transformers/models/auto/, which is parsed and never run, and the folders below transformers/models/. That
takes about 0.4 MiB of a wheel, by range request. Only the first and the last release of each minor are read,
and those in between if the two differ. Prints a unified diff; changes nothing without `--write`.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
import tomllib
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from table_diff import propose, read_up_to

from envcheck.core.errors import ExamineError
from envcheck.host.machine import Host
from envcheck.resolver_backends.index.lazy_wheel import RemoteFile
from envcheck.resolver_backends.index.pages import ListedFile
from envcheck.resolver_backends.index.reader import IndexReader

TABLES = Path(__file__).resolve().parent.parent / "compat/tables"
MIB = 1 << 20
WHEEL_LIMIT = 4 * MIB
"""Most bytes to fetch of one wheel: its directory (0.3 MiB) and one or two small files."""
TEXT_LIMIT = MIB
AT_ONCE = 4

AUTO = "transformers/models/auto/"
FILES = ("auto_mappings.py", "configuration_auto.py")
"""Since 5.x, the first has the names and the second adds a few; before, the second has all of them."""


class Content(NamedTuple):
    """The models that a release supports: the folder of code by `model_type`, and all folders."""

    modules: Mapping[str, str]
    folders: frozenset[str]


class Row(NamedTuple):
    """A `model_type` and the first release that lists it; the table's comment explains the other fields."""

    model_type: str
    transformers: str
    code: str = ""
    before: bool = False
    gone: str = ""
    install: str = ""


# --- one wheel ------------------------------------------------------------------------------


def content_of(archive: zipfile.ZipFile) -> Content:
    """Read the supported models from the files of a wheel.

    Raises:
        ExamineError: the files are structured differently from those of known releases.
    """
    names = set(archive.namelist())
    texts = [_text(archive, AUTO + file) for file in FILES if AUTO + file in names]
    types = pairs(texts, "CONFIG_MAPPING_NAMES")
    special = pairs(texts, "SPECIAL_MODEL_TYPE_TO_MODULE_NAME")
    if not types:
        raise ExamineError("the wheel lists no model types")
    found = (re.match(r"transformers/models/(?:deprecated/)?(\w+)/", name) for name in names)
    folders = frozenset(each[1] for each in found if each)
    return Content({each: special.get(each, each.replace("-", "_")) for each in types}, folders)


def _text(archive: zipfile.ZipFile, name: str) -> str:
    if archive.getinfo(name).file_size > TEXT_LIMIT:
        raise ExamineError(f"{name} is larger than {TEXT_LIMIT // MIB} MiB")
    return archive.read(name).decode("utf-8", "replace")


def pairs(texts: Sequence[str], name: str) -> dict[str, str]:
    """Return the items of a module-level dictionary that these files assign or add to it."""
    found: dict[str, str] = {}
    for text in texts:
        try:
            body = ast.parse(text).body
        except (SyntaxError, ValueError, RecursionError):
            raise ExamineError("a file of the wheel is not Python") from None
        for statement in body:
            match statement:
                case (
                    ast.Assign(targets=[ast.Name(id=written)], value=ast.expr() as value)
                    | ast.AnnAssign(target=ast.Name(id=written), value=ast.expr() as value)
                    | ast.Expr(
                        value=ast.Call(
                            func=ast.Attribute(value=ast.Name(id=written), attr="update"), args=[value]
                        )
                    )
                ) if written == name:
                    found.update(_items(value, name))
    return found


def _items(value: ast.expr, name: str) -> dict[str, str]:
    """Return the items of an expression such as `OrderedDict([("a", "b")], **{"c": "d"})`.

    The dictionary's own `name` inside the expression adds no items.

    Raises:
        ExamineError: the dictionary is built in another way, so that items might be missed.
    """
    match value:
        case ast.Name(id=same) if same == name:
            return {}
        case ast.Call(func=function, args=arguments, keywords=keywords) if _is_dict(function):
            found: dict[str, str] = {}
            for part in [*arguments, *(each.value for each in keywords if each.arg is None)]:
                found.update(_items(part, name))
            if all(each.arg is None for each in keywords):
                return found
        case ast.List() | ast.Tuple() | ast.Dict():
            try:
                return {str(key): str(word) for key, word in dict(ast.literal_eval(value)).items()}
            except (ValueError, TypeError):
                pass
        case _:
            pass
    raise ExamineError(f"{name} is built in an unknown way")


def _is_dict(function: ast.expr) -> bool:
    if isinstance(function, ast.Subscript):  # OrderedDict[str, str](…)
        function = function.value
    return isinstance(function, ast.Name) and function.id in ("OrderedDict", "dict")


# --- the index --------------------------------------------------------------------------------------


def wheels(files: Iterable[ListedFile]) -> dict[Version, ListedFile]:
    """Return the wheel of each release on the index page."""
    found = {}
    for file in files:
        try:
            name, version, _, _ = parse_wheel_filename(file.name)
        except InvalidWheelFilename:
            continue
        if name == "transformers":
            found[version] = file
    return found


def read_one(reader: IndexReader, wheel: ListedFile) -> Content:
    """Read the supported models from one wheel.

    Raises:
        ExamineError: the wheel cannot be read, or the index does not serve parts of files.
    """
    try:
        with zipfile.ZipFile(RemoteFile(reader, wheel.url, WHEEL_LIMIT)) as archive:
            return content_of(archive)
    except (zipfile.BadZipFile, NotImplementedError, ExamineError) as error:
        raise ExamineError(f"{wheel.name}: {error}") from None


def read_all(reader: IndexReader, releases: Sequence[Version]) -> tuple[dict[Version, Content], list[str]]:
    """Read as many releases as needed, oldest first; also return messages about releases that are missing.

    Raises:
        ExamineError: a wheel cannot be read. Skipping it could date a model type too late.
    """
    page = wheels(reader.files("transformers"))
    messages = [f"the index has no wheel of transformers {each}" for each in releases if each not in page]
    minors: dict[tuple[int, ...], list[Version]] = {}
    for version in sorted(each for each in releases if each in page):
        minors.setdefault(version.release[:2], []).append(version)
    found: dict[Version, Content] = {}

    def read(chosen: Iterable[Version]) -> None:
        chosen = sorted(set(chosen))
        with ThreadPoolExecutor(AT_ONCE) as pool:
            found.update(
                zip(chosen, pool.map(lambda each: read_one(reader, page[each]), chosen), strict=True)
            )

    read(version for minor in minors.values() for version in (minor[0], minor[-1]))
    read(
        version for minor in minors.values() if found[minor[0]] != found[minor[-1]] for version in minor[1:-1]
    )
    return dict(sorted(found.items())), messages


# --- the table --------------------------------------------------------------------------------------


def rows_of(found: Mapping[Version, Content], standing: Iterable[Version]) -> list[Row]:
    """Return a row for each model type that any release lists, sorted by first release and name.

    `standing` are the releases that were not yanked, whether they were read or not.
    """
    standing = sorted(standing)
    versions = list(found)
    modules: dict[str, str] = {}
    listed: dict[str, list[int]] = {}
    since: dict[str, int] = {}
    for place, content in enumerate(found.values()):
        modules.update(content.modules)
        for model_type in content.modules:
            listed.setdefault(model_type, []).append(place)
        for folder in content.folders:
            since.setdefault(folder, place)
    rows = []
    for model_type, places in listed.items():
        first, last = places[0], places[-1]
        code = min(since.get(modules[model_type], first), first)
        gone = last + 1 if last + 1 < len(versions) else 0
        judged_by = versions[code]
        install = next((each for each in standing if judged_by <= each), judged_by)
        if gone and install >= versions[gone]:
            install = judged_by
        rows.append(
            Row(
                model_type,
                str(versions[first]),
                str(versions[code]) if 0 < code < first else "",
                code == 0,
                str(versions[gone]) if gone else "",
                str(install) if code and install != judged_by else "",
            )
        )
    return sorted(rows, key=lambda row: (Version(row.transformers), row.model_type))


def render(row: Row) -> str:
    """Return a row as one line of the table."""
    parts = [f'model_type = "{row.model_type}"', f'transformers = "{row.transformers}"']
    parts += [f'code = "{row.code}"'] if row.code else []
    parts += ["before = true"] if row.before else []
    parts += [f'gone = "{row.gone}"'] if row.gone else []
    parts += [f'install = "{row.install}"'] if row.install else []
    return f"  {{ {', '.join(parts)} }},"


def refreshed(text: str, rows: Sequence[Row]) -> str:
    """Return the table with its rows replaced; the comments above them stay."""
    head = re.split(r"^model = \[$", text, maxsplit=1, flags=re.MULTILINE)[0].rstrip("\n")
    lines = [head, "", "model = ["] if head else ["model = ["]
    lines += [render(row) for row in rows]
    return "\n".join([*lines, "]"]) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Print the diff; return 0 if it is empty or was written, 1 if not, 3 if the index failed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--table", type=Path, default=TABLES / "models.toml")
    parser.add_argument("--releases", type=Path, default=TABLES / "releases.toml")
    parser.add_argument("--write", action="store_true", help="apply the diff")
    parser.add_argument("--deadline", type=float, default=600.0, metavar="SECONDS", help="for the whole run")
    options = parser.parse_args(arguments)
    before = options.table.read_text("utf-8") if options.table.exists() else ""
    listed = tomllib.loads(options.releases.read_text("utf-8")).get("release", [])
    own = [row for row in listed if row["package"] == "transformers"]
    releases = [Version(row["version"]) for row in own]
    standing = [Version(row["version"]) for row in own if not row.get("yanked")]
    try:
        found, messages = read_all(IndexReader(Host(), options.deadline), releases)
    except ExamineError as error:
        print(f"refresh_models: {error}", file=sys.stderr)
        return 3
    for message in messages:
        print(f"refresh_models: {message}", file=sys.stderr)
    print(f"refresh_models: {len(found)} of {len(releases)} releases read", file=sys.stderr)
    after = read_up_to(refreshed(before, rows_of(found, standing)), str(max(found)))
    return propose(options.table, before, after, write=options.write)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
