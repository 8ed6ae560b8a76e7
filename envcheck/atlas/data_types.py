"""The data types of a release of torch, which its C code makes: `torch.uint16`, `torch.float8_e8m0fnu`.

A header in the wheel lists them, and torch makes each under its name in small letters. Stubs lag a minor
release behind and do not hold all: torch has `torch.int1` from 2.6 on, and no stub lists it. A few old types
have other names, such as `torch.int8` for Char; every release since 1.8 has these.
"""

from __future__ import annotations

import re

from envcheck.atlas.release import ReleaseFiles

_HEADERS = {
    "torch": (
        "torch/include/torch/headeronly/core/ScalarType.h",  # from 2.9 on
        "torch/include/c10/core/ScalarType.h",
    )
}
"""Files that list the data types at a package's root; `compat/atlas/packages.toml` keeps them."""

_NAME = re.compile(r"[a-z]*(?:bits|int|float|complex)\d\w*")
_LIST = re.compile(r"#define AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS\(_\)((?:.*\\\n)+.*)")
_ROW = re.compile(r"_\([^()]*, (\w+)\)")


def is_data_type(module: str, name: str) -> bool:
    """Return whether a name of a module has the form of a data type that is made in C."""
    return module in _HEADERS and _NAME.fullmatch(name) is not None


def listed_types(files: ReleaseFiles, module: str) -> frozenset[str]:
    """Return the data types that a release lists, in small letters; empty if no list can be read."""
    held = frozenset(files.names())
    found: set[str] = set()
    for header in _HEADERS[module]:
        text = files.read(header).decode("utf-8", "replace") if header in held else ""
        for block in _LIST.findall(text):
            found |= {name.lower() for name in _ROW.findall(block)}
    return frozenset(found)
