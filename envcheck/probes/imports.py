"""Find where an import would find a package: the path is searched as Python does, without importing.

A folder or file of the same name in a folder that is searched earlier hides the installed package: a checkout
called `peft` where training starts, a leftover in the user's own packages. A folder without `__init__` hides
nothing, because Python continues its search (PEP 420).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from envcheck.host.machine import Host
from envcheck.probes.distributions import InstalledFiles

_SOURCE = (".py", ".pyc")


def hidden(
    host: Host, first: Sequence[str], sites: Sequence[str], found: Mapping[str, list[InstalledFiles]]
) -> Iterator[tuple[InstalledFiles, str]]:
    """Yield each installed package that an import would not find, with the path that is imported instead.

    `first` are the folders that are searched before the package folders (`sites`).
    """
    path = tuple(dict.fromkeys([*first, *sites]))
    for record, file in _first_found(host, path, found):
        is_own = _is_own(host, record, host.follow(file))
        if not is_own and _has_import_name(host, record, _import_name(record.name)):
            yield record, file


def _first_found(
    host: Host, path: Sequence[str], found: Mapping[str, list[InstalledFiles]]
) -> Iterator[tuple[InstalledFiles, str]]:
    """Yield each package that is found before its own folder on the path, and the first file for its name."""
    position = {folder: number for number, folder in enumerate(path)}
    seen: set[str] = set()
    for number, folder in enumerate(path[:-1]):
        names = frozenset(host.listdir(folder))
        for record in _named_in(names, found):
            if record.name in seen or number >= position.get(record.site, len(path)):
                continue
            if file := importable(host, folder, _import_name(record.name), names):
                seen.add(record.name)
                yield record, file


def _import_name(name: str) -> str:
    return name.replace("-", "_")


def _named_in(names: frozenset[str], found: Mapping[str, list[InstalledFiles]]) -> Iterator[InstalledFiles]:
    """Yield the few records whose import name is the start of a name in the folder."""
    starts = {name.partition(".")[0] for name in names}
    for name, records in found.items():
        if _import_name(name) in starts:
            yield records[0]


def importable(host: Host, folder: str, name: str, names: frozenset[str] | None = None) -> str:
    """Return what `import name` finds in a folder; empty if Python would continue its search."""
    names = frozenset(host.listdir(folder)) if names is None else names
    if name in names and any(_is_module(file, "__init__") for file in host.listdir(f"{folder}/{name}")):
        return f"{folder}/{name}"
    return next((f"{folder}/{file}" for file in sorted(names) if _is_module(file, name)), "")


def _is_module(file: str, name: str) -> bool:
    """Return whether a file is a module: peft.py, peft.pyc, peft.cpython-311-….so, peft.abi3.so."""
    if not file.startswith(f"{name}."):
        return False
    rest = file[len(name) :]
    return rest in _SOURCE or (
        rest.endswith(".so") and rest.startswith((".so", ".cpython-", ".abi3.", ".pypy"))
    )


def _has_import_name(host: Host, record: InstalledFiles, name: str) -> bool:
    """Return whether the installed package has this import name; that of PyYAML, for example, is `yaml`."""
    return record.editable or bool(importable(host, record.site, name))


def _is_own(host: Host, record: InstalledFiles, real: str) -> bool:
    """Return whether a path belongs to the package: its editable checkout, or its folder by another path."""
    folder = real.rpartition("/")[0]
    if folder == host.follow(record.site):
        return True
    if not record.editable or not record.checkout:
        return record.editable
    checkout = host.follow(record.checkout)
    return folder == checkout or folder.startswith(f"{checkout}/")
