"""Propose a diff of compat/tables/torch.toml: `python tools/refresh_torch.py VERSION… [--write]`.

Reads the default wheel of a torch release from the index of the user's pip configuration: version.py,
METADATA, and the architecture list in libtorch_python.so. That takes about 10 MiB of a wheel of several
hundred, by range request. Fields that are not in the wheel (the matching torchvision, the C library on which
it was tested) stay unchanged, and are missing from a new row.
"""

from __future__ import annotations

import argparse
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from email.parser import HeaderParser
from pathlib import Path
from typing import NamedTuple, TypeAlias

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import Version

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from table_diff import propose

from envcheck.core.errors import ExamineError
from envcheck.host.machine import Host
from envcheck.resolver_backends.index.lazy_wheel import RemoteFile
from envcheck.resolver_backends.index.pages import ListedFile
from envcheck.resolver_backends.index.reader import IndexReader

TABLE = Path(__file__).resolve().parent.parent / "compat/tables/torch.toml"
MIB = 1 << 20
WHEEL_LIMIT = 48 * MIB
"""Most bytes to fetch of one wheel: its directory (1 to 2 MiB) and the library (about 10 MiB packed)."""
LIBRARY_LIMIT = 256 * MIB
"""Most bytes of that library when unpacked; it takes about 30 MiB."""
TEXT_LIMIT = 4 * MIB

LIBRARY = "torch/lib/libtorch_python.so"
Value: TypeAlias = str | bool | list[str]


class Wheel(NamedTuple):
    """A wheel on the index page, with release, Python (`3.12`, `3.13t`) and platforms from its name."""

    file: ListedFile
    version: Version
    python: str
    platforms: tuple[str, ...]


# --- one wheel ------------------------------------------------------------------------------


def wheels_of(files: Sequence[ListedFile], version: Version) -> list[Wheel]:
    """Return the Linux x86_64 wheels of a release without a local label, which a plain install uses."""
    found = []
    for file in files:
        try:
            name, parsed, _, tags = parse_wheel_filename(file.name)
        except InvalidWheelFilename:
            continue
        if name != "torch" or parsed != version:
            continue
        platforms = tuple(sorted({tag.platform for tag in tags if tag.platform.endswith("x86_64")}))
        if any("linux" in each for each in platforms):
            tag = next(iter(tags))
            minor = tag.interpreter.removeprefix("cp3")
            found.append(
                Wheel(file, parsed, f"3.{minor}" + ("t" if tag.abi.endswith("t") else ""), platforms)
            )
    return sorted(found, key=lambda each: (Version(each.python.rstrip("t")), each.python))


def facts_of(archive: zipfile.ZipFile, remote: RemoteFile) -> dict[str, Value]:
    """Return the fields of the table's row that the wheel contains.

    Raises:
        ExamineError: the wheel is not like known torch wheels, or too much would have to be read.
    """
    names = set(archive.namelist())
    metadata = next((name for name in names if re.fullmatch(r"torch-[^/]+\.dist-info/METADATA", name)), "")
    if not {"torch/version.py", LIBRARY, metadata} <= names:
        raise ExamineError("the wheel lacks version.py, libtorch_python.so or METADATA")
    headers = HeaderParser().parsestr(_text(archive, metadata))
    facts: dict[str, Value] = {"requires_python": headers.get("Requires-Python") or ""}
    cuda = re.search(r"^cuda\b[^=]*= *'([\d.]+)'", _text(archive, "torch/version.py"), re.MULTILINE)
    if cuda:
        facts["cuda"] = cuda[1]
    facts.update(_pins(headers.get_all("Requires-Dist") or []))
    facts.update(architectures(_library(archive, remote)))
    config = "torch/share/cmake/Torch/TorchConfig.cmake"
    if config in names:
        flag = re.search(r"_GLIBCXX_USE_CXX11_ABI=([01])", _text(archive, config))
        # Since 2.7 the flag is no longer set, which means the new ABI.
        facts["cxx11_abi"] = flag is None or flag[1] == "1"
    return facts


def architectures(library: bytes) -> dict[str, Value]:
    """Return machine code and PTX from the longest list such as `sm_80 sm_90 compute_90` in a library."""
    found = re.findall(rb"(?:sm|compute)_\d{2,3}[af]?(?: (?:sm|compute)_\d{2,3}[af]?)*(?=\x00|$)", library)
    words = max(found, key=len, default=b"").decode().split()
    ptx = [word.removeprefix("compute_") for word in words if word.startswith("compute_")]
    return {
        "architectures": [word for word in words if word.startswith("sm_")],
        "ptx": [f"{digits[:-1]}.{digits[-1]}" for digits in ptx],
    }


def _pins(lines: Sequence[str]) -> dict[str, Value]:
    """Return the exact pins of cuDNN, NCCL and triton."""
    found: dict[str, Value] = {}
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        pins = [each.version for each in requirement.specifier if each.operator == "=="]
        name = canonicalize_name(requirement.name)
        key = re.fullmatch(r"nvidia-(cudnn|nccl)(-cu\d+)?|(triton)", name)
        if key and pins:
            found[key[1] or key[3]] = pins[0]
    return found


def _text(archive: zipfile.ZipFile, name: str) -> str:
    if archive.getinfo(name).file_size > TEXT_LIMIT:
        raise ExamineError(f"{name} is larger than {TEXT_LIMIT // MIB} MiB")
    return archive.read(name).decode("utf-8", "replace")


def _library(archive: zipfile.ZipFile, remote: RemoteFile) -> bytes:
    info = archive.getinfo(LIBRARY)
    if info.file_size > LIBRARY_LIMIT:
        raise ExamineError(f"{LIBRARY} is larger than {LIBRARY_LIMIT // MIB} MiB")
    # Fetch it with one request: zipfile would read it in pieces of a few KiB.
    remote.seek(info.header_offset)
    remote.read(info.compress_size + 1024)
    return archive.read(LIBRARY)


def examine(reader: IndexReader, version: Version) -> tuple[dict[str, Value], int]:
    """Read the default wheel of a release; return its fields and the number of bytes fetched.

    Raises:
        ExamineError: there is no such wheel, or it cannot be read.
    """
    wheels = wheels_of(reader.files("torch"), version)
    if not wheels:
        raise ExamineError(f"the index has no Linux x86_64 wheel of torch {version}")
    chosen = next((each for each in wheels if each.python == "3.11"), wheels[0])
    remote = RemoteFile(reader, chosen.file.url, WHEEL_LIMIT)
    try:
        with zipfile.ZipFile(remote) as archive:
            facts = facts_of(archive, remote)
    except (zipfile.BadZipFile, NotImplementedError) as error:
        raise ExamineError(f"{chosen.file.name} cannot be read: {error}") from None
    dates = [each.file.uploaded[:10] for each in wheels if each.file.uploaded]
    facts = {"date": min(dates, default=""), **facts, "python": [each.python for each in wheels]}
    tag = re.search(r"manylinux(?:1|20\d\d|_\d+_\d+)", " ".join(chosen.platforms))
    if tag:
        facts["manylinux"] = tag[0]
    return facts, remote.fetched


# --- the table --------------------------------------------------------------------------------------

_KEYS = (
    "date",
    "requires_python",
    "python",
    "cuda",
    "architectures",
    "ptx",
    "cudnn",
    "nccl",
    "triton",
    "manylinux",
    "cxx11_abi",
)


def refreshed(text: str, version: str, facts: Mapping[str, Value]) -> str:
    """Return the table with a release's row changed where the wheel differs, or with a new row."""
    lines = text.splitlines()
    heads = [place for place, line in enumerate(lines) if line.startswith("[[")]
    rows = {}
    for head in heads:
        end = next(
            (place for place in range(head + 1, len(lines)) if lines[place].startswith("[[")), len(lines)
        )
        if lines[head] == "[[torch]]":
            rows[_value_of(lines[head:end], "version")] = (head, end)
    if version in rows:
        head, end = rows[version]
        for place in range(head, end):
            key = lines[place].partition(" =")[0]
            if key in _KEYS and facts.get(key) not in (None, "") and key != "date":
                lines[place] = f"{key} = {_shown(key, facts[key])}"
    else:
        new = ["[[torch]]", f'version = "{version}"']
        new += [f"{key} = {_shown(key, facts[key])}" for key in _KEYS if facts.get(key) not in (None, "")]
        new += [
            'basis = "measured"',
            f'source = "https://github.com/pytorch/pytorch/releases/tag/v{version}"',
            "",
        ]
        last = max((end for _, end in rows.values()), default=len(lines))
        lines[last:last] = new
    return "\n".join(lines) + "\n"


def _value_of(lines: Sequence[str], key: str) -> str:
    return next((line.partition("= ")[2].strip('"') for line in lines if line.startswith(f"{key} =")), "")


def _shown(key: str, value: Value) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(f'"{each}"' for each in value) + "]"
    return value if key == "date" else f'"{value}"'


def main(arguments: Sequence[str]) -> int:
    """Print the diff; return 0 if it is empty or was written, 1 if not, 3 if a wheel cannot be read."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("version", nargs="+", type=Version, help="releases, such as 2.15.0")
    parser.add_argument("--table", type=Path, default=TABLE)
    parser.add_argument("--write", action="store_true", help="apply the diff")
    parser.add_argument("--deadline", type=float, default=600.0, metavar="SECONDS", help="for the whole run")
    options = parser.parse_args(arguments)
    before = after = options.table.read_text("utf-8")
    try:
        reader = IndexReader(Host(), options.deadline)
        for version in options.version:
            facts, fetched = examine(reader, version)
            print(f"refresh_torch: {version}: {fetched / MIB:.1f} MiB fetched", file=sys.stderr)
            after = refreshed(after, str(version), facts)
    except ExamineError as error:
        print(f"refresh_torch: {error}", file=sys.stderr)
        return 3
    return propose(options.table, before, after, write=options.write, context=3)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
