"""Tables for pyproject.toml: a dependency group for each environment, and `[tool.uv]` with the pins.

A group names what was asked for, with exact versions; the other packages of the lock are constraints, which
add nothing by themselves. The second environment of a target is a second group, and uv is told that the two
conflict, so that it locks them apart. Constraints hold for every group, so a package that the two locks pin
differently is named in both groups. No override is needed: a lock agrees with the metadata of its packages.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

from envcheck.core.facts import normalised
from envcheck.lock.formats import Context, marker
from envcheck.lock.install import BUILDS, build_needs, needs_torch
from envcheck.lock.leaks import checked
from envcheck.lock.model import Lock, Pin
from envcheck.lock.render import document, introduction

WANTS_ADDRESSES, WANTS_GROUPS = False, True
FILES = r"(?!pyproject\.toml$).*"
WHY_FILES = "is the file of a whole project, and this is only a part: write to another file and paste it"


class _Group(NamedTuple):
    """A dependency group: its name, its pins by package, and the requirements to write, by package."""

    name: str
    pins: dict[str, Pin]
    requested: dict[str, str]


def render(lock: Lock, context: Context) -> str:
    """Return the groups and the table `[tool.uv]`."""
    locks = [lock, *([context.server.lock] if context.server else [])]
    asked = [context.requested, *([context.server.requested] if context.server else [])]
    groups = [_group(each, requested) for each, requested in zip(locks, asked, strict=True)]
    build = tuple(dict.fromkeys(name for each in locks for name in each.build))
    body = [*_groups(groups), "", *_table(lock, groups, build), *_sources(groups), *_builds(groups, build)]
    return checked(document(_header(lock, groups), body), *locks)


def _group(lock: Lock, requested: Sequence[str]) -> _Group:
    """Return the group of a lock; without requests, all its packages are requested.

    What builds ask for is requested too: DeepSpeed requires nvidia-ml-py if its build sees a GPU, and needs
    setuptools when it compiles operators at run time.
    """
    pins = {pin.name: pin for pin in lock.pins}
    asked = (*(requested or pins), *build_needs(lock.build))
    names = {normalised(each.partition("[")[0]): each for each in asked}
    return _Group(lock.target or "locked", pins, {name: text for name, text in names.items() if name in pins})


def _header(lock: Lock, groups: Sequence[_Group]) -> Iterator[str]:
    yield from introduction(lock)
    yield ""
    yield "Paste this into pyproject.toml, into tables that exist already. Then `uv lock` writes uv.lock with"
    yield "these versions and their hashes, and this creates the environment:"
    # Without --python, uv takes the first one on PATH, and refuses the lock if that is another release.
    yield from (f"  uv sync --python {lock.python} --group {group.name}" for group in groups)
    if len(groups) > 1:
        yield "The groups are two environments: run the second command on another machine, or after setting"
        yield "UV_PROJECT_ENVIRONMENT to another folder."
    yield ""


def _groups(groups: Sequence[_Group]) -> Iterator[str]:
    yield "[dependency-groups]"
    for group in groups:
        wanted = {**group.requested, **{name: name for name in group.pins if _is_named(name, groups)}}
        yield from _list(group.name, (_requirement(group.pins[name], text) for name, text in wanted.items()))


def _is_named(name: str, groups: Sequence[_Group]) -> bool:
    """Return whether every group has to name this package: a constraint on it cannot hold for all."""
    found = {group.pins[name].requirement for group in groups if name in group.pins}
    return len(found) > 1 or any(group.pins[name].url for group in groups if name in group.pins)


def _requirement(pin: Pin, text: str) -> str:
    return f"{text}=={pin.version}"


def _table(lock: Lock, groups: Sequence[_Group], build: Sequence[str]) -> Iterator[str]:
    python, _, minor = lock.python.partition(".")
    bounds = f"python_full_version >= '{lock.python}' and python_full_version < '{python}.{int(minor) + 1}'"
    yield "[tool.uv]"
    yield f'environments = ["{bounds} and {marker(lock)}"]'
    if len(groups) > 1:
        members = ", ".join(f'{{ group = "{group.name}" }}' for group in groups)
        yield f"conflicts = [[{members}]]"
    pins = {name: pin for group in reversed(groups) for name, pin in group.pins.items()}
    bound = (pins[name].requirement for name in sorted(pins) if not _is_named(name, groups))
    yield from _list("constraint-dependencies", bound)
    if build and "setuptools" in pins and not _is_named("setuptools", groups):
        yield from _list("build-constraint-dependencies", [pins["setuptools"].requirement])


def _sources(groups: Sequence[_Group]) -> Iterator[str]:
    """Yield where the wheels come from that are not on the default index.

    uv takes from an explicit index only what names it. Where the index is not known, the wheel is named.
    """
    found: dict[str, dict[str, list[str]]] = {}
    indexes: dict[str, str] = {}
    for group in groups:
        for pin in group.pins.values():
            if pin.index:
                name = indexes.setdefault(pin.index, _index_name(pin, indexes.values()))
                found.setdefault(pin.name, {}).setdefault(f'index = "{name}"', []).append(group.name)
            elif pin.url:
                found.setdefault(pin.name, {}).setdefault(f'url = "{pin.url}"', []).append(group.name)
    if found:
        yield ""
        yield "[tool.uv.sources]"
    for package, places in found.items():
        sources = (f'{{ {place}, group = "{group}" }}' for place in places for group in places[place])
        yield f"{package} = [{', '.join(sources)}]"
    for address, name in indexes.items():
        yield ""
        yield "[[tool.uv.index]]"
        yield f'name = "{name}"'
        yield f'url = "{address}"'
        yield "explicit = true"


def _index_name(pin: Pin, taken: Collection[str]) -> str:
    """Return a name for the index of a pin: the label of its build, such as `cu118`."""
    label = re.sub(r"[^a-z0-9-]", "-", pin.version.partition("+")[2].lower()) or "extra"
    return label if label not in taken else f"{label}-{len(taken) + 1}"


def _builds(groups: Sequence[_Group], build: Sequence[str]) -> Iterator[str]:
    """Yield what packages published as source are built with: the locked torch, and settings."""
    torch = {group.pins["torch"].version for group in groups if "torch" in group.pins}
    unknown = needs_torch(build)
    if unknown and torch:
        # An exact version also serves packages whose metadata is only known after a build.
        any_torch = '{ requirement = "torch", match-runtime = true }'
        needed = any_torch if len(torch) > 1 else f'"torch=={min(torch)}"'
        yield ""
        yield "[tool.uv.extra-build-dependencies]"
        yield from (f"{name} = [{needed}]" for name in unknown)
    settings = [(name, BUILDS[name].settings) for name in build if name in BUILDS and BUILDS[name].settings]
    if settings:
        yield ""
        yield "[tool.uv.extra-build-variables]"
        for name, setting in settings:
            variable, _, value = setting.partition("=")
            yield f'{name} = {{ {variable} = "{value}" }}'


def _list(key: str, items: Iterable[str]) -> Iterator[str]:
    yield f"{key} = ["
    yield from (f'    "{item}",' for item in items)
    yield "]"
