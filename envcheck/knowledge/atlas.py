"""The atlas as text in compat/atlas/, and as JSON in the wheel.

A file `gaps/peft.toml` holds what the releases of peft ask of other packages. Its tables are named by entry
and partner; a row gives the kind, what is asked for, the releases that ask, those of the partner that lack
it, and the places in the code. Releases are spans, both ends included: `0.16.0..0.17.1, 0.18.0`.
`envcheck matrix harvest` writes the files. `packages.toml` names the entries that few users reach.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from envcheck.core import versions
from envcheck.core.rules import Atlas, AtlasRow, Span

_PARTS = ("kind", "needs", "releases", "lacking", "places")
"""What a row of a file of gaps holds, in order; all are texts."""

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
    packages = tomllib.loads(texts.get("packages.toml", "")).get("package", {})
    optional = {entry for package in packages.values() for entry in package.get("optional", ())}
    return Atlas(rows=rows, releases=releases, optional=frozenset(optional), read=read)


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
    """Return the text of one package's file of gaps, in an order that does not depend on the rows'.

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


def freeze_atlas(atlas: Atlas) -> list[Any]:
    """Return the atlas as JSON-ready lists."""
    rows = {
        package: {partner: [list(row[2:]) for row in of_pair] for partner, of_pair in partners.items()}
        for package, partners in atlas.rows.items()
    }
    releases = {package: " ".join(found) for package, found in atlas.releases.items()}
    return [rows, releases, sorted(atlas.optional), atlas.read]


def thaw_atlas(frozen: Sequence[Any]) -> Atlas:
    """Return the atlas that `freeze_atlas` wrote, without checking it again."""
    rows, releases, optional, read = frozen
    return Atlas(
        {package: _ThawingRows(package, partners) for package, partners in rows.items()},
        {package: tuple(found.split(" ")) for package, found in releases.items()},
        frozenset(optional),
        read,
    )


class _ThawingRows(Mapping[str, tuple[AtlasRow, ...]]):
    """Rows by partner, each made when it is first looked up: of hundreds of pairs, doctor needs a few."""

    def __init__(self, package: str, frozen: Mapping[str, Sequence[Any]]) -> None:
        self._package, self._frozen = package, frozen
        self._thawed: dict[str, tuple[AtlasRow, ...]] = {}

    def __getitem__(self, partner: str) -> tuple[AtlasRow, ...]:
        if partner not in self._thawed:
            rows = [_thaw_row(self._package, partner, row) for row in self._frozen[partner]]
            self._thawed[partner] = tuple(rows)
        return self._thawed[partner]

    def __iter__(self) -> Iterator[str]:
        return iter(self._frozen)

    def __len__(self) -> int:
        return len(self._frozen)


def _thaw_row(package: str, partner: str, frozen: Sequence[Any]) -> AtlasRow:
    kind, entry, needs, releases, lacking, places = frozen
    return AtlasRow(
        package,
        partner,
        kind,
        entry,
        needs,
        tuple([(first, last) for first, last in releases]),
        tuple([(first, last) for first, last in lacking]),
        tuple(places),
    )
