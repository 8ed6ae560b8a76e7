"""Read `compat/atlas/packages.toml`: the packages of the atlas, and which of their files are kept."""

import fnmatch
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from envcheck.core import versions
from envcheck.core.errors import InputError
from envcheck.core.facts import Tri
from envcheck.core.parsing import parse_toml

DEFAULT_SINCE = "2022-01-01"
"""The default of `since` (ISO day): earlier releases are not read."""

_KEYS = frozenset(
    {
        *("imports", "since", "also", "sdist", "libraries", "optional", "links_torch", "stable_since"),
        "torch_symbols",
        *("trainers", "called_if", "imported_if", "entry_imported_if", "methods"),
        *("compiled_call", "import_needs_compiled", "candidates", "built_for_installed_torch"),
        "unused_with",
    }
)

_LISTS = ("imports", "also", "sdist", "libraries", "built_for_installed_torch")

# torch/testing/_internal holds the tests of torch itself; other packages ship theirs under the usual names.
_TEST_FOLDER = re.compile(r"/(?:tests?|testing/_internal|test_cases)/")
_METADATA = re.compile(r"[^/]+\.dist-info/(?:METADATA|WHEEL|entry_points\.txt|top_level\.txt)")


@dataclass(frozen=True, kw_only=True)
class AtlasPackage:
    """One package of the atlas.

    Attributes:
        name: normalised name, `huggingface-hub`.
        imports: its top-level packages and modules.
        since: ISO day before which releases are not read, `2022-01-01`.
        candidates: whether its pre-releases are read too.
        also: patterns of further files that are kept from a wheel.
        sdist: patterns of further files that are kept from a source distribution.
        libraries: patterns of shared libraries that are read, without keeping them: GPU code and symbols.
        torch_symbols: whether what these libraries need of torch is compared with what each torch defines.
        links_torch: whether its compiled modules link torch's libraries.
        stable_since: its first release on torch's stable ABI, which serves every newer torch.
        compiled_call: a call that fails if the compiled modules do not load, although the import still
            succeeds: `torchvision.ops.nms(...)`.
        import_needs_compiled: its first release whose import fails without them; empty if none does.
        built_for_installed_torch: packages that a source distribution requires in the release for the torch
            that is there when it is built, so that no published file says which.

    """

    name: str
    imports: tuple[str, ...]
    since: str = DEFAULT_SINCE
    candidates: bool = False
    also: tuple[str, ...] = ()
    sdist: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    torch_symbols: bool = False
    links_torch: bool = False
    stable_since: str = ""
    compiled_call: str = ""
    import_needs_compiled: str = ""
    built_for_installed_torch: tuple[str, ...] = ()

    def binary_entry(self, version: str) -> str:
        """Return what fails in a release beside a torch that its compiled modules were not made for."""
        since = self.import_needs_compiled
        survives = not since or versions.compare(version, "<", since) is Tri.YES
        return self.compiled_call if self.compiled_call and survives else f"import {self.imports[0]}"

    def reads_library(self, path: str) -> bool:
        """Return whether a file is one of the libraries that are read."""
        return any(fnmatch.fnmatchcase(path, pattern) for pattern in self.libraries)

    def keeps(self, path: str, *, from_sdist: bool = False) -> bool:
        """Return whether the bytes of a file are kept: Python of its packages without tests, and metadata."""
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in (*self.also, *(self.sdist * from_sdist))):
            return True
        if path.endswith((".py", ".pyi")):
            return self.owns(path) and not _TEST_FOLDER.search(path)
        return _METADATA.fullmatch(path) is not None

    def owns(self, path: str) -> bool:
        """Return whether a file lies in one of the top-level packages or is one of the modules."""
        top, _, rest = path.partition("/")
        return top in self.imports if rest else top.partition(".")[0] in self.imports


def read_packages(text: str, file: str) -> dict[str, AtlasPackage]:
    """Return the packages of `packages.toml` by name, in the order of the file.

    Raises:
        InputError: the text is not TOML, or a table has an unknown key or a value of the wrong kind.

    """
    tree = parse_toml(text, file)
    rows = tree.get("package")
    if not isinstance(rows, dict) or set(tree) - {"python", "put_back"} != {"package"}:
        raise InputError(file, "expected tables [package.NAME], [python] and [put_back] and nothing else")
    return {name: _package(name, row, file) for name, row in rows.items()}


def _package(name: str, row: Any, file: str) -> AtlasPackage:
    where = f"{file}: package.{name}"
    if not isinstance(row, Mapping) or not set(row) <= _KEYS:
        raise InputError(where, f"expected a table of {', '.join(sorted(_KEYS))}")
    if name != re.sub(r"[-_.]+", "-", name).lower():
        raise InputError(where, "expected a normalised name: lower case, words joined by '-'")
    lists = {key: row.get(key, []) for key in _LISTS}
    for key, values in lists.items():
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise InputError(f"{where}.{key}", "expected a list of texts")
    if not lists["imports"]:
        raise InputError(f"{where}.imports", "expected at least one top-level package")
    since = str(row.get("since", DEFAULT_SINCE))
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", since):
        raise InputError(f"{where}.since", f"expected a date such as 2022-01-01, found {since!r}")
    return AtlasPackage(
        name=name,
        imports=tuple(lists["imports"]),
        since=since,
        candidates=row.get("candidates") is True,
        also=tuple(lists["also"]),
        sdist=tuple(lists["sdist"]),
        libraries=tuple(lists["libraries"]),
        built_for_installed_torch=tuple(lists["built_for_installed_torch"]),
        torch_symbols=row.get("torch_symbols") is True,
        links_torch=bool(row.get("links_torch")),
        stable_since=str(row.get("stable_since", "")),
        compiled_call=str(row.get("compiled_call", "")),
        import_needs_compiled=str(row.get("import_needs_compiled", "")),
    )
