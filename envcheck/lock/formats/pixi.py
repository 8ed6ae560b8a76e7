"""pixi.toml: a workspace with the locked Python, and the pins under `pypi-dependencies`.

A package that needs torch to be built is left out: pixi builds it to read its requirements, before any wheel
is installed. Such a build finds only what conda installs.
"""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.lock.formats import AS_REQUIREMENTS, Context
from envcheck.lock.install import needs_torch
from envcheck.lock.leaks import checked
from envcheck.lock.model import Lock, Pin
from envcheck.lock.render import document, introduction

WANTS_ADDRESSES, WANTS_GROUPS = False, False
FILES, WHY_FILES = r".*\.toml", "pixi reads this format from a file named pixi.toml"

_GLIBC = "2.28"
"""The C library that pixi assumes unless a workspace names one."""

_PLATFORMS = {"linux-x86_64": "linux-64", "linux-aarch64": "linux-aarch64"}


def render(lock: Lock, context: Context) -> str:
    """Return a workspace for the lock's platform; `pixi lock` adds the hashes."""
    del context
    return checked(document(_header(lock), _body(lock)), lock)


def _header(lock: Lock) -> Iterator[str]:
    yield from introduction(lock)
    yield ""
    yield "conda-forge brings Python; the wheels that were judged come from the Python index. `pixi lock`"
    yield "writes their hashes to pixi.lock, and `pixi install` installs them."
    if apart := needs_torch(lock.build):
        yield f"{', '.join(apart)}: published as source, and built with the locked torch, so pip installs it"
        yield f"afterwards, from the same lock as requirements.txt ({AS_REQUIREMENTS}):"
        yield "  pixi install"
        install = "python -m pip install --no-deps --require-hashes --no-build-isolation"
        yield f"  pixi run {install} -r requirements.txt"
    yield ""


def _body(lock: Lock) -> Iterator[str]:
    yield "[workspace]"
    yield f'name = "{lock.target or "locked"}"'
    yield 'channels = ["conda-forge"]'
    yield f'platforms = ["{_PLATFORMS.get(lock.platform, lock.platform)}"]'
    if lock.glibc and lock.glibc != _GLIBC:
        yield ""
        yield "[system-requirements]"
        yield f'libc = {{ family = "glibc", version = "{lock.glibc}" }}'
    yield ""
    yield "[dependencies]"
    yield f'python = "{lock.python}.*"'
    apart = needs_torch(lock.build)
    yield ""
    yield "[pypi-dependencies]"
    if apart and not any(pin.name == "pip" for pin in lock.pins):
        # conda's pip would bring a setuptools that contradicts the locked one.
        yield 'pip = ">=24"'
    yield from (f"{pin.name} = {_source(pin)}" for pin in lock.pins if pin.name not in apart)


def _source(pin: Pin) -> str:
    if pin.index:
        return f"{{ version = {_quoted(f'=={pin.version}')}, index = {_quoted(pin.index)} }}"
    return f"{{ url = {_quoted(pin.url)} }}" if pin.url else _quoted(f"=={pin.version}")


def _quoted(text: str) -> str:
    return f'"{text}"'
