"""Where an import would find a package: the path is walked as Python walks it, and nothing is imported.

A folder or file of the same name in a folder that is searched earlier is taken instead of what is
installed: a checkout called `peft` where training starts, a leftover in the user's own packages. What
stands in a folder without `__init__` hides nothing; Python goes on looking (PEP 420).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from envcheck.host.machine import Host
from envcheck.probes.distributions import InstalledFiles

_SOURCE = (".py", ".pyc")


def hidden(
    host: Host, first: Sequence[str], sites: Sequence[str], found: Mapping[str, list[InstalledFiles]]
) -> Iterator[tuple[InstalledFiles, str]]:
    """Every installed package that an import would not find first, and the path that it takes instead.

    `first` are the folders searched before the package folders (`sites`).
    """
    path = tuple(dict.fromkeys([*first, *sites]))
    place = {folder: number for number, folder in enumerate(path)}
    taken: set[str] = set()
    for number, folder in enumerate(path[:-1]):
        names = frozenset(host.listdir(folder))
        for record in _named_in(names, found):
            name = record.name.replace("-", "_")
            if record.name in taken or number >= place.get(record.site, len(path)):
                continue
            if file := importable(host, folder, name, names):
                taken.add(record.name)
                if not _is_its_own(host, record, host.follow(file)) and _is_there(host, record, name):
                    yield record, file


def _named_in(names: frozenset[str], found: Mapping[str, list[InstalledFiles]]) -> Iterator[InstalledFiles]:
    """The records whose import name begins a name of the folder: few, of all that are installed."""
    starts = {name.partition(".")[0] for name in names}
    for name, records in found.items():
        if name.replace("-", "_") in starts:
            yield records[0]


def importable(host: Host, folder: str, name: str, names: frozenset[str] | None = None) -> str:
    """What `import name` takes in a folder; empty if it finds nothing there, or goes on looking."""
    names = frozenset(host.listdir(folder)) if names is None else names
    if name in names:
        inside = frozenset(host.listdir(f"{folder}/{name}"))
        if any(_is_module(each, "__init__") for each in inside):
            return f"{folder}/{name}"
    return next((f"{folder}/{each}" for each in sorted(names) if _is_module(each, name)), "")


def _is_module(file: str, name: str) -> bool:
    """Whether a file is a module's: peft.py, peft.pyc, peft.cpython-311-x86_64-linux-gnu.so, peft.abi3.so."""
    if not file.startswith(f"{name}."):
        return False
    rest = file[len(name) :]
    return rest in _SOURCE or (
        rest.endswith(".so") and rest.startswith((".so", ".cpython-", ".abi3.", ".pypy"))
    )


def _is_there(host: Host, record: InstalledFiles, name: str) -> bool:
    """Whether the installed package has this import name at all: PyYAML has another."""
    return record.editable or bool(importable(host, record.site, name))


def _is_its_own(host: Host, record: InstalledFiles, real: str) -> bool:
    """Whether what is found is the checkout that is installed, or the installed package by another path."""
    folder = real.rpartition("/")[0]
    if folder == host.follow(record.site):
        return True
    if not record.editable or not record.checkout:
        return record.editable
    checkout = host.follow(record.checkout)
    return folder == checkout or folder.startswith(f"{checkout}/")
