"""environment.yml: conda installs Python, and pip installs the locked packages with their hashes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from envcheck.lock.install import install_commands
from envcheck.lock.leaks import checked
from envcheck.lock.model import Lock
from envcheck.lock.render import document, introduction

WANTS_ADDRESSES = False
FILES, WHY_FILES = r".*\.ya?ml", "conda reads this format from a file named environment.yml"


def render(lock: Lock, addresses: Mapping[str, str]) -> str:
    """Return an environment with the locked Python and every pin in its `pip` section.

    The pins are wheels of the Python index, because those were checked; conda's builds of the same versions
    are different files.
    """
    del addresses
    return checked(document(_header(lock), _body(lock)), lock)


def _header(lock: Lock) -> Iterator[str]:
    yield from introduction(lock)
    yield ""
    yield "conda brings Python; pip installs the wheels that were judged, bound to their hashes:"
    yield "  conda env create -f environment.yml"
    if lock.build:
        yield f"Published as source, so left out: {', '.join(lock.build)}. After that, with the same lock as"
        yield "requirements.txt, in the new environment:"
        yield f"  {install_commands(lock.build, lock.pins)[-1]}"
    yield ""


def _body(lock: Lock) -> Iterator[str]:
    yield f"name: {lock.target or 'locked'}"
    yield "channels:"
    yield "  - conda-forge"
    yield "dependencies:"
    yield f"  - python={lock.python}"
    yield "  - pip"
    yield "  - pip:"
    for pin in lock.pins:
        if pin.name not in lock.build:
            hashes = "".join(f" --hash=sha256:{artifact.sha256}" for artifact in pin.artifacts)
            yield f'      - "{pin.requirement}{hashes}"'
