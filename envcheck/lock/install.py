"""How a lock is installed: the commands, and what a package that is built from source needs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from envcheck.core.records import NamedTuple
from envcheck.lock.model import Pin


class Build(NamedTuple):
    """How a source distribution is built.

    `needs` are the packages that must be installed first; `settings` are environment variables, as
    `NAME=value`, that make the build fast. `compiles` says that the build compiles code where there is a
    compiler, and does without it elsewhere.
    """

    needs: tuple[str, ...] = ()
    settings: str = ""
    compiles: bool = False


_SETUPTOOLS_ALONE = (
    *("antlr4-python3-runtime", "axolotl-contribs-lgpl", "axolotl-contribs-mit", "langdetect", "oss2"),
    *("rouge-score", "sqlitedict", "transformers-stream-generator", "word2number"),
)
"""Packages used by training frameworks whose source distributions need only setuptools to be built."""

BUILDS: Mapping[str, Build] = MappingProxyType(
    {
        # With DS_BUILD_OPS=0, setup.py of 0.19.8 compiles nothing and needs no torch: it records "0.0" as
        # torch's version, and DeepSpeed checks the installed torch when it runs. setup.py imports setuptools.
        # It adds nvidia-ml-py to its requirements if torch sees a GPU, so without that pin a lock made on a
        # laptop would be incomplete on a machine with a GPU.
        "deepspeed": Build(needs=("nvidia-ml-py", "setuptools"), settings="DS_BUILD_OPS=0"),
        # setup.py of 1.7 has one C file, and leaves it out if it cannot be compiled.
        "crcmod": Build(needs=("setuptools",), compiles=True),
        **dict.fromkeys(_SETUPTOOLS_ALONE, Build(needs=("setuptools",))),
    }
)


def build_needs(build: Iterable[str]) -> tuple[str, ...]:
    """Return the packages a lock must also pin so that `build` can be built without fetching anything."""
    return tuple(sorted({need for name in build for need in BUILDS.get(name, Build(("setuptools",))).needs}))


def needs_torch(build: Iterable[str]) -> tuple[str, ...]:
    """Return the packages in `build` whose build may need torch, a compiler or nvcc: all but those in BUILDS.

    The others can be built in isolation, with setuptools alone.
    """
    return tuple(sorted(name for name in build if name not in BUILDS))


def install_commands(build: Collection[str], pins: Sequence[Pin]) -> tuple[str, ...]:
    """Return the shell lines that install a lock saved as requirements.txt, ready to paste.

    Every file is fetched with a hash, and only the packages in `build` are built. If setuptools suffices to
    build them, the line installs the locked setuptools and then everything else. Otherwise the builds may
    need torch, so it installs all wheels first.
    """
    install = "python -m pip install --no-deps --require-hashes --only-binary :all:"
    if not build:
        return (f"{install} -r requirements.txt",)
    names = sorted(build)
    settings = "".join(
        f"{BUILDS[name].settings} " for name in names if name in BUILDS and BUILDS[name].settings
    )
    backend = next((pin for pin in pins if pin.name == "setuptools"), None)
    if backend is not None and all(name in BUILDS for name in names):
        hashes = "".join(f" --hash=sha256:{artifact.sha256}" for artifact in backend.artifacts)
        first = f"echo '{backend.name}=={backend.version}{hashes}' | {install} -r /dev/stdin"
        sources = "".join(f" --no-binary {name}" for name in names)
        return (f"{first} && {settings}{install}{sources} --no-build-isolation -r requirements.txt",)
    # Every line of a pin except the last ends in a backslash: leave out up to the first line without one.
    pins_of_sources = rf'r"(?ms)^({"|".join(names)})==.*?(?<!\\)\n"'
    program = f'import re; print(re.sub({pins_of_sources}, "", open("requirements.txt").read()), end="")'
    wheels = f"python -c '{program}' > wheels.txt && {install} -r wheels.txt"
    every = install.removesuffix(" --only-binary :all:")
    return (f"{wheels} && {settings}{every} --no-build-isolation -r requirements.txt",)
