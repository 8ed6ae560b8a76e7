"""pixi.toml: a workspace with the locked Python, and every pin under `pypi-dependencies`."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.lock.formats import Context
from envcheck.lock.install import needs_torch
from envcheck.lock.leaks import checked
from envcheck.lock.model import Lock, Pin
from envcheck.lock.render import document, introduction

WANTS_ADDRESSES, WANTS_GROUPS = False, False
FILES, WHY_FILES = r".*\.toml", "pixi reads this format from a file named pixi.toml"

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
        yield f"{', '.join(apart)}: published as source, and built after the wheels, with the locked torch."
    yield ""


def _body(lock: Lock) -> Iterator[str]:
    yield "[workspace]"
    yield f'name = "{lock.target or "locked"}"'
    yield 'channels = ["conda-forge"]'
    yield f'platforms = ["{_PLATFORMS.get(lock.platform, lock.platform)}"]'
    if lock.glibc:
        yield ""
        yield "[system-requirements]"
        yield f'libc = {{ family = "glibc", version = "{lock.glibc}" }}'
    yield ""
    yield "[dependencies]"
    yield f'python = "{lock.python}.*"'
    if apart := needs_torch(lock.build):
        yield ""
        yield "[pypi-options]"
        yield f"no-build-isolation = [{', '.join(map(_quoted, apart))}]"
    yield ""
    yield "[pypi-dependencies]"
    yield from (f"{pin.name} = {_source(pin)}" for pin in lock.pins)


def _source(pin: Pin) -> str:
    if pin.index:
        return f"{{ version = {_quoted(f'=={pin.version}')}, index = {_quoted(pin.index)} }}"
    return f"{{ url = {_quoted(pin.url)} }}" if pin.url else _quoted(f"=={pin.version}")


def _quoted(text: str) -> str:
    return f'"{text}"'
