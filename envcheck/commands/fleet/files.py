"""Read node records from a file, a folder or standard input, and report on them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from envcheck.commands.examine import ExamineRequest
from envcheck.commands.fleet.judging import FleetOptions, expected_nodes, prepare
from envcheck.core.errors import InputError
from envcheck.core.i18n import counted
from envcheck.fleet import collect, summary
from envcheck.fleet.records import LARGEST_RECORD, NodeRecord, RefusedRecord
from envcheck.host.files import list_folder, read_chunks, read_file, read_standard_input

_FIRST_DOUBT = 1000  # unreadable records from which on the share of readable ones decides
_MOST_REFUSED = 10_000  # unreadable records after which reading always stops


def report_on_files(request: ExamineRequest, options: FleetOptions) -> summary.FleetReport:
    """Return the report on the records of files, folders or standard input (`-`).

    Raises:
        InputError: there is no such file, or an option is wrong.
    """
    expected = expected_nodes(options.expect)
    judge = prepare(request, options)
    fleet = judge.empty_fleet()
    for record in chain.from_iterable(read_records(source) for source in options.sources):
        if isinstance(record, NodeRecord):
            fleet.take(record)
        else:
            fleet.refused.append(record)
        if _is_hopeless(fleet):
            count = counted(len(fleet.refused), "record")
            fleet.refused.append(
                RefusedRecord(record.where, f"reading stops here: {count} could not be read")
            )
            break
    context = summary.FleetContext(expected=expected, diagnostics=judge.diagnostics, fail_on=options.fail_on)
    return judge.report(fleet, context)


def _is_hopeless(fleet: collect.Fleet) -> bool:
    """Return whether so many records are unreadable that this is probably a log, not a file of records."""
    refused = len(fleet.refused)
    return refused >= _MOST_REFUSED or (refused >= _FIRST_DOUBT and refused > 9 * len(fleet.nodes))


def read_records(source: str) -> Iterator[NodeRecord | RefusedRecord]:
    """Yield the records of a file, of every JSON and TOML file of a folder, or of standard input (`-`).

    Raises:
        InputError: there is no such file or folder.
    """
    if source == "-":
        yield from _split(read_standard_input(), "-", "-")
    elif Path(source).is_dir():
        for name in list_folder(Path(source)):
            path = Path(source) / name
            if path.suffix in (".json", ".jsonl", ".toml") and not name.startswith("."):
                yield from _records_of_file(path)
    elif source.endswith(".toml"):
        yield from _records_of_file(Path(source))
    else:
        yield from _split(read_chunks(source), source, source)


def _records_of_file(path: Path) -> Iterator[NodeRecord | RefusedRecord]:
    try:
        if path.suffix == ".jsonl":
            yield from _split(read_chunks(str(path)), str(path), path.stem)
            return
        text = read_file(path, LARGEST_RECORD)
    except InputError as error:
        yield RefusedRecord(error.where, error.problem, path.stem)
        return
    if path.suffix == ".toml":
        yield NodeRecord(str(path), text.decode("utf-8", "replace"), path.stem)
    else:
        yield from _split(iter([text]), str(path), path.stem)


def _split(chunks: Iterable[bytes], file: str, name: str) -> Iterator[NodeRecord | RefusedRecord]:
    """Split a stream into records.

    A record is one line, or what `envcheck facts` prints: the lines from `{` to `}`.
    """
    first = True
    for number, text in _records(_lines(chunks)):
        where = f"{file}:{number}"
        if text is None:
            yield RefusedRecord(where, f"longer than {LARGEST_RECORD} bytes")
        else:
            record_name = name if first and name != file else where
            yield NodeRecord(where, text.decode("utf-8", "replace"), record_name)
        first = False


def _lines(chunks: Iterable[bytes]) -> Iterator[bytes | None]:
    """Yield the lines of a stream; None for a line that is longer than any record may be."""
    kept, too_long = b"", False
    for chunk in chunks:
        *whole, rest = (kept + chunk).split(b"\n")
        for line in whole:
            yield None if too_long or len(line) > LARGEST_RECORD else line
            too_long = False
        kept, too_long = (b"", True) if too_long or len(rest) > LARGEST_RECORD else (rest, False)
    if kept or too_long:
        yield None if too_long else kept


def _records(lines: Iterable[bytes | None]) -> Iterator[tuple[int, bytes | None]]:
    """Yield each record with the number of its first line; None for a record that is too long."""
    opened_at, parts, size = 0, list[bytes](), 0
    for number, line in enumerate(lines, 1):
        if opened_at and (line is None or line.rstrip() == b"{"):
            yield opened_at, b"\n".join(parts)  # the record was cut off
            opened_at = 0
        if line is not None and line.rstrip() == b"{":
            opened_at, parts, size = number, [line], 0
        elif opened_at and line is not None:
            size += len(line) + 1
            if size <= LARGEST_RECORD:
                parts.append(line)
            if line.rstrip() == b"}":
                yield opened_at, b"\n".join(parts) if size <= LARGEST_RECORD else None
                opened_at = 0
        elif line is None or line.strip():
            yield number, line
    if opened_at:
        yield opened_at, b"\n".join(parts)
