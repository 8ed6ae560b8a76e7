"""`[tool.uv]` for pyproject.toml: binds uv's resolution to the versions of the lock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from envcheck.lock.formats import marker
from envcheck.lock.install import BUILDS, build_needs
from envcheck.lock.leaks import checked
from envcheck.lock.model import Lock
from envcheck.lock.render import document, introduction

WANTS_ADDRESSES = False
FILES = r"(?!pyproject\.toml$).*"
WHY_FILES = "is the file of a whole project, and this is only a part: write to another file and paste it"


def render(lock: Lock, addresses: Mapping[str, str]) -> str:
    """Return constraints on every package of the closure, and how packages published as source are built."""
    del addresses
    return checked(document(_header(lock), _table(lock)), lock)


def _header(lock: Lock) -> Iterator[str]:
    yield from introduction(lock)
    yield ""
    yield "Paste this into pyproject.toml (into [tool.uv] if that exists). The constraints add no package;"
    yield "with them `uv add`, `uv lock` and `uv sync` choose these versions, and uv.lock gets the hashes."
    if lock.build:
        needed = " ".join((*lock.build, *build_needs(lock.build)))
        yield f"Published as source and built without isolation, so add it together with torch: {needed}"
    yield ""


def _table(lock: Lock) -> Iterator[str]:
    python, _, minor = lock.python.partition(".")
    bounds = f"python_full_version >= '{lock.python}' and python_full_version < '{python}.{int(minor) + 1}'"
    yield "[tool.uv]"
    yield f'environments = ["{bounds} and {marker(lock)}"]'
    yield from _list("constraint-dependencies", (pin.requirement for pin in lock.pins))
    if lock.build:
        yield from _list("no-build-isolation-package", lock.build)
    settings = [(name, BUILDS[name].settings) for name in lock.build if name in BUILDS]
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
