"""How a lock is installed: the commands, and what a package that is built from source needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple


class Build(NamedTuple):
    """How a source distribution is built: what must be installed first, and settings that keep it quick."""

    needs: tuple[str, ...] = ()
    settings: str = ""


BUILDS: Mapping[str, Build] = MappingProxyType(
    {
        # setup.py of 0.19.8 compiles nothing with DS_BUILD_OPS=0, but it imports setuptools, and it adds
        # nvidia-ml-py to its own requirements if torch sees a GPU: without that pin, a lock made on a laptop
        # would be incomplete on the machine it is for.
        "deepspeed": Build(needs=("nvidia-ml-py", "setuptools"), settings="DS_BUILD_OPS=0"),
    }
)


def build_needs(build: Iterable[str]) -> tuple[str, ...]:
    """Return the packages a lock must also hold so that `build` can be built without fetching anything."""
    return tuple(sorted({need for name in build for need in BUILDS.get(name, Build(("setuptools",))).needs}))


def install_commands(build: Collection[str]) -> tuple[str, ...]:
    """Return the shell lines that install a lock saved as requirements.txt, ready to paste.

    Wheels come first, then what is built from source. The build then sees the torch it will run with and
    uses the locked setuptools instead of fetching one without a hash, and no other package may be built.
    """
    install = "python -m pip install --no-deps --require-hashes"
    if not build:
        return (f"{install} --only-binary :all: -r requirements.txt",)
    # Every line of a pin but the last ends in a backslash, so delete up to the first line that does not.
    deletions = " ".join(f"-e '/^{name}==/,/[^\\\\]$/d'" for name in sorted(build))
    settings = "".join(f"{BUILDS[name].settings} " for name in sorted(build) if name in BUILDS)
    return (
        f"sed {deletions} requirements.txt > wheels.txt && {install} --only-binary :all: -r wheels.txt",
        f"{settings}{install} --no-build-isolation -r requirements.txt",
    )
