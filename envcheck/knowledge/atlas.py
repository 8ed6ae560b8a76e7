"""The atlas as text in compat/atlas/, and as JSON in the wheel.

A file `gaps/peft.toml` holds what the releases of peft ask of other packages. Its tables are named by entry
and partner. A row gives the kind, what is asked for, the releases that ask, the partner's releases that lack
it, and the places in the code. Releases are spans, both ends included: `0.16.0..0.17.1, 0.18.0`.
An entry such as `import verl.workers.actor beside torch-npu` asks only where that third package is installed.
`envcheck matrix harvest` writes the files. `packages.toml` names the entries that few users reach.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import groupby
from typing import Any, TypeVar

from envcheck.core import versions
from envcheck.core.elf import describe_symbol
from envcheck.core.rules import Atlas, AtlasRow, Span

_PARTS = ("kind", "needs", "releases", "lacking", "places")
"""What a row of a file of gaps holds, in order; all are texts."""

WITHOUT = " without "
"""Precedes, in an entry, an environment variable that turns the check off; such a failure is a warning."""

BESIDE = " beside "
"""Precedes, in an entry, a third package without which the code does not ask; such a failure is a warning."""


def companion_of(entry: str) -> str:
    """Return the third package that has to be installed for an entry to fail; empty if there is none."""
    return entry.partition(BESIDE)[2]


VERBS = {
    "name": "needs",
    "keyword": "passes",
    "override": "does not accept the call",
    "guard": "asks for",
    "register": "registers",
    "binary": "was compiled for",
    "symbol": "needs the symbol",
}
"""Verbs for the asking package by the kind of row, in sentences such as `import peft` needs `X`."""


def spelled_need(kind: str, needs: str) -> str:
    """Return what a row of a kind needs, for a reader: a C++ symbol is spelled as in source code.

    Its arguments are left out, so the partner may define another form of the same name.
    """
    spelled = describe_symbol(needs) if kind == "symbol" else needs
    return needs if spelled == needs else f"{spelled} in this form"


_HEAD = """\
# What {package} asks of other packages, and which of their releases lack it.
# Written by `envcheck matrix harvest`; the form is described in envcheck/knowledge/atlas.py.
"""

# --- text → rows ------------------------------------------------------------------------------------


def read_atlas(texts: Mapping[str, str], releases: Mapping[str, tuple[str, ...]]) -> Atlas:
    """Return the atlas of the files of compat/atlas/, by name: `packages.toml`, `gaps/peft.toml`.

    `releases` holds every release that was read, oldest first, by package.

    Raises:
        MatrixError: a file is not TOML, or a row does not have its five parts.
    """
    from envcheck.knowledge.load import MatrixError

    try:
        return _read_texts(texts, releases)
    except ValueError as error:
        raise MatrixError(f"compat/atlas: {error}") from None


def _read_texts(texts: Mapping[str, str], releases: Mapping[str, tuple[str, ...]]) -> Atlas:
    import tomllib  # not at module level: the wheel holds JSON

    rows: dict[str, dict[str, tuple[AtlasRow, ...]]] = {}
    read = ""
    for name, text in sorted(texts.items()):
        folder, _, file = name.rpartition("/")
        if folder == "gaps":
            package = file.removesuffix(".toml")
            tables = tomllib.loads(text)
            read = max(read, str(tables.pop("read", "")))
            rows[package] = _rows_of(package, tables, name)
    listed = tomllib.loads(texts.get("packages.toml", ""))
    packages = listed.get("package", {})
    provided = _tuples({**listed.get("python", {}).get("provided_by", {}), **listed.get("put_back", {})})
    optional = {entry for package in packages.values() for entry in package.get("optional", ())}
    every = (row for partners in rows.values() for found in partners.values() for row in found)
    optional |= {row.entry for row in every if WITHOUT in row.entry or BESIDE in row.entry}
    trainers = _tuples({name: row["trainers"] for name, row in packages.items() if "trainers" in row})
    called_if = {name: str(row["called_if"]) for name, row in packages.items() if "called_if" in row}
    imported_if = {name: str(row["imported_if"]) for name, row in packages.items() if "imported_if" in row}
    methods = {name: _tuples(row["methods"]) for name, row in packages.items() if "methods" in row}
    key = "entry_imported_if"
    by_entry = {name: dict(row[key]) for name, row in packages.items() if key in row}
    unused = _tuples({name: row["unused_with"] for name, row in packages.items() if "unused_with" in row})
    rarely = frozenset(optional)
    return Atlas(
        rows, releases, rarely, read, trainers, called_if, imported_if, methods, by_entry, unused, provided
    )


def _tuples(lists: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(words) for name, words in lists.items()}


def _rows_of(package: str, tables: Mapping[str, Any], file: str) -> dict[str, tuple[AtlasRow, ...]]:
    found: dict[str, list[AtlasRow]] = {}
    for entry, partners in tables.items():
        for partner, rows in partners.items():
            for row in rows:
                if len(row) != len(_PARTS) or not all(isinstance(part, str) for part in row):
                    raise ValueError(
                        f"{file}: {entry}: {partner}: expected {', '.join(_PARTS)}; found {row!r}"
                    )
                kind, needs, releases, lacking, places = row
                spans, gaps = parse_spans(releases), parse_spans(lacking)
                where = tuple(places.split(", "))
                found.setdefault(partner, []).append(
                    AtlasRow(package, partner, kind, entry, needs, spans, gaps, where)
                )
    return {partner: tuple(rows) for partner, rows in found.items()}


def parse_spans(text: str) -> tuple[Span, ...]:
    """Return the spans that a text names: `0.16.0..0.17.1, 0.18.0`."""
    spans = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        spans.append((first, last if dots else first))
    return tuple(spans)


# --- rows → text ------------------------------------------------------------------------------------


def format_spans(spans: Iterable[Span]) -> str:
    """Return spans as `parse_spans` reads them."""
    return ", ".join(first if first == last else f"{first}..{last}" for first, last in spans)


def spans_of(releases: Iterable[str], every: Sequence[str]) -> tuple[Span, ...]:
    """Return some of the releases in `every`, which is in order, as spans of neighbours."""
    wanted = set(releases)
    spans: list[Span] = []
    for chosen, group in groupby(every, key=wanted.__contains__):
        if chosen:
            run = list(group)
            spans.append((run[0], run[-1]))
    return tuple(spans)


def gaps_text(package: str, rows: Iterable[AtlasRow], read: str) -> str:
    """Return the text of one package's file of gaps, in an order that does not depend on that of `rows`.

    `read` is the ISO date on which the newest of its releases was read.
    """
    lines = [_HEAD.format(package=package), f"read = {read}\n\n"]
    ordered = sorted(rows, key=_order)
    for entry, of_entry in groupby(ordered, key=lambda row: row.entry):
        lines.append(f"[{_quoted(entry)}]\n")
        for partner, of_partner in groupby(of_entry, key=lambda row: row.partner):
            lines.append(f"{partner} = [\n")
            lines += [_row_text(row) for row in of_partner]
            lines.append("]\n")
        lines.append("\n")
    return "".join(lines).rstrip("\n") + "\n"


def _order(row: AtlasRow) -> tuple[Any, ...]:
    first, last = row.releases[0]
    return (
        row.entry,
        row.partner,
        row.kind,
        versions.order(first),
        versions.order(last),
        row.needs,
        row.lacking,
    )


def _row_text(row: AtlasRow) -> str:
    parts = (
        row.kind,
        row.needs,
        format_spans(row.releases),
        format_spans(row.lacking),
        ", ".join(row.places),
    )
    return f"  [{', '.join(map(_quoted, parts))}],\n"


def _quoted(text: str) -> str:
    """Return a TOML basic string; the texts are names, versions and paths, without control characters."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# --- rows ↔ JSON ------------------------------------------------------------------------------------

INDEX = "index"
"""The file that names the packages; each package has a separate file, which is read on demand."""


def freeze_atlas(atlas: Atlas) -> dict[str, dict[str, Any]]:
    """Return the atlas as JSON-ready values by file name: `index`, and one of each package."""
    files: dict[str, dict[str, Any]] = {
        INDEX: {
            "packages": sorted(atlas.releases),
            "optional": sorted(atlas.optional),
            "read": atlas.read,
            "trainers": dict(atlas.trainers),
            "called_if": dict(atlas.called_if),
            "imported_if": dict(atlas.imported_if),
            "methods": {package: dict(words) for package, words in atlas.methods.items()},
            "entry_imported_if": {package: dict(facts) for package, facts in atlas.entry_imported_if.items()},
            "unused_with": dict(atlas.unused_with),
            "provided_by": dict(atlas.provided_by),
        }
    }
    for package, releases in atlas.releases.items():
        partners = atlas.rows.get(package, {})
        files[package] = {
            "releases": " ".join(releases),
            "gaps": {partner: [_freeze_row(row) for row in partners[partner]] for partner in partners},
        }
    return files


def _freeze_row(row: AtlasRow) -> list[str]:
    spans = format_spans(row.releases), format_spans(row.lacking)
    return [row.kind, row.entry, row.needs, *spans, ", ".join(row.places)]


def thaw_atlas(index: Mapping[str, Any], load: Callable[[str], Mapping[str, Any]]) -> Atlas:
    """Return the atlas that `freeze_atlas` wrote, unchecked; `load` reads a package's file."""
    once = cache(load)
    packages = index["packages"]
    return Atlas(
        _ByName(packages, lambda package: _thaw_gaps(package, once(package)["gaps"])),
        _ByName(packages, lambda package: tuple(once(package)["releases"].split(" "))),
        frozenset(index["optional"]),
        index["read"],
        _tuples(index["trainers"]),
        index["called_if"],
        index["imported_if"],
        {package: _tuples(words) for package, words in index["methods"].items()},
        index["entry_imported_if"],
        _tuples(index["unused_with"]),
        _tuples(index["provided_by"]),
    )


def _thaw_gaps(package: str, gaps: Mapping[str, Sequence[Any]]) -> Mapping[str, tuple[AtlasRow, ...]]:
    return _ByName(gaps, lambda partner: tuple([_thaw_row(package, partner, row) for row in gaps[partner]]))


_Value = TypeVar("_Value")


class _ByName(Mapping[str, _Value]):
    """Values by name, each made when it is first looked up: of hundreds of pairs, doctor needs a few."""

    def __init__(self, names: Iterable[str], make: Callable[[str], _Value]) -> None:
        self._names, self._make = dict.fromkeys(names), make
        self._made: dict[str, _Value] = {}

    def __getitem__(self, name: str) -> _Value:
        if name not in self._made:
            if name not in self._names:
                raise KeyError(name)
            self._made[name] = self._make(name)
        return self._made[name]

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _thaw_row(package: str, partner: str, frozen: Sequence[str]) -> AtlasRow:
    kind, entry, needs, releases, lacking, places = frozen
    spans = parse_spans(releases), parse_spans(lacking)
    return AtlasRow(package, partner, kind, entry, needs, *spans, tuple(places.split(", ")))
