"""pixi.toml: a workspace with the locked Python, and every pin under `pypi-dependencies`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envcheck.lock.leaks import checked
from envcheck.lock.model import Lock, Pin
from envcheck.lock.render import document, introduction

WANTS_ADDRESSES = False
FILES, WHY_FILES = r".*\.toml", "pixi reads this format from a file named pixi.toml"

_PLATFORMS = {"linux-x86_64": "linux-64", "linux-aarch64": "linux-aarch64"}


def render(lock: Lock, addresses: Mapping[str, str]) -> str:
    """Return a workspace for the lock's platform; `pixi lock` adds the hashes."""
    del addresses
    return checked(document(_header(lock), _body(lock)), lock)


def _header(lock: Lock) -> Iterator[str]:
    yield from introduction(lock)
    yield ""
    yield "conda-forge brings Python; the wheels that were judged come from the Python index. `pixi lock`"
    yield "writes their hashes to pixi.lock, and `pixi install` installs them."
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
    if lock.build:
        yield ""
        yield "[pypi-options]"
        yield f"no-build-isolation = [{', '.join(_quoted(name) for name in lock.build)}]"
    yield ""
    yield "[pypi-dependencies]"
    yield from (f"{pin.name} = {_source(pin)}" for pin in lock.pins)


def _source(pin: Pin) -> str:
    return f"{{ url = {_quoted(pin.url)} }}" if pin.url else _quoted(f"=={pin.version}")


def _quoted(text: str) -> str:
    return f'"{text}"'
