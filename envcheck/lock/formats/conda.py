"""environment.yml: conda installs Python, and pip installs the locked packages with their hashes."""

from __future__ import annotations

from collections.abc import Iterator

from envcheck.lock.formats import AS_REQUIREMENTS, Context
from envcheck.lock.install import install_commands, needs_torch
from envcheck.lock.leaks import checked
from envcheck.lock.model import Lock
from envcheck.lock.render import document, introduction

WANTS_ADDRESSES, WANTS_GROUPS = False, False
FILES, WHY_FILES = r".*\.ya?ml", "conda reads this format from a file named environment.yml"


def render(lock: Lock, context: Context) -> str:
    """Return an environment with the locked Python and every pin in its `pip` section.

    The pins are files of the Python index, because those were checked; conda's builds of the same versions
    are different files. If a package needs the locked torch to be built, pip runs afterwards: in a `pip`
    section it would build it in an environment without torch.
    """
    del context
    return checked(document(_header(lock), _body(lock)), lock)


def _header(lock: Lock) -> Iterator[str]:
    yield from introduction(lock)
    yield ""
    if apart := needs_torch(lock.build):
        yield f"conda brings Python and pip. {', '.join(apart)}: published as source, and built with the"
        yield "locked torch, so pip installs the lock afterwards, from the same lock as requirements.txt"
        yield f"({AS_REQUIREMENTS}):"
        yield "  conda env create -f environment.yml"
        yield f"  conda activate {_name(lock)}"
        yield from (f"  {command}" for command in install_commands(lock.build, lock.pins))
    else:
        yield "conda brings Python; pip installs the files that were judged, bound to their hashes:"
        yield "  conda env create -f environment.yml"
    yield ""


def _body(lock: Lock) -> Iterator[str]:
    yield f"name: {_name(lock)}"
    yield "channels:"
    yield "  - conda-forge"
    yield "dependencies:"
    yield f"  - python={lock.python}"
    # Older ones do not accept a pin with a hash for a requirement with extras, such as fsspec[http].
    yield "  - pip>=24"
    if needs_torch(lock.build):
        return
    yield "  - pip:"
    for pin in lock.pins:
        hashes = "".join(f" --hash=sha256:{artifact.sha256}" for artifact in pin.artifacts)
        yield f'      - "{pin.requirement}{hashes}"'


def _name(lock: Lock) -> str:
    return lock.target or "locked"
