"""The training stack on a local index: tiny wheels with the metadata of the real ones, from the tables."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from envcheck.commands import loading
from tests.support.local_index import sdist, wheel

STACK = {
    "torch": "2.13.0",
    "transformers": "5.23.0",
    "peft": "0.21.2",
    "accelerate": "1.15.0",
    "deepspeed": "0.19.8",
    "setuptools": "80.0.0",
    "nvidia-ml-py": "13.580.0",
}
"""The newest measured combination that trained; the search tries it first."""

DEEPSPEED = """
import os
from setuptools import setup
assert os.environ.get("DS_BUILD_OPS") == "0", "built without DS_BUILD_OPS=0"
setup(name="deepspeed", version={version!r}, py_modules=[], install_requires={requires!r})
"""
"""The setup.py of the stand-in for DeepSpeed: with DS_BUILD_OPS=0 it needs no torch.

The real sdists of 0.14.4 to 0.19.8 were built in the same way.
"""

BUILD_META = b"""
import os, zipfile

class Legacy:
    def get_requires_for_build_wheel(self, settings=None):
        return []

    def build_wheel(self, folder, settings=None, metadata=None):
        assert os.environ.get("DS_BUILD_OPS") == "0", "built without DS_BUILD_OPS=0"
        about = open("PKG-INFO").read()
        stem = "deepspeed-" + about.partition("Version: ")[2].partition("Version: ")[2].split()[0]
        with zipfile.ZipFile(os.path.join(folder, stem + "-py3-none-any.whl"), "w") as wheel:
            wheel.writestr("deepspeed/__init__.py", "")
            wheel.writestr(stem + ".dist-info/METADATA", about)
            wheel.writestr(stem + ".dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
            wheel.writestr(stem + ".dist-info/RECORD", "")
        return stem + "-py3-none-any.whl"

__legacy__ = Legacy()
"""
"""The parts of setuptools.build_meta that building DeepSpeed needs, for the stand-in of setuptools."""


@cache
def _releases() -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in loading.source_tree()["tables"]["release"]:
        found.setdefault(row["package"], []).append(row)
    return found


def requires(name: str, version: str) -> dict[str, str]:
    """Return the requirements of a release according to the tables; empty if they do not list it."""
    rows = [row for row in _releases().get(name, []) if row["version"] == version]
    found: dict[str, str] = rows[0].get("requires", {}) if rows else {}
    return found


def stack(*more: tuple[str, str], **changed: str) -> dict[str, bytes]:
    """Return the files of the stack and of all its requirements by name, one release each.

    `more` adds releases, `changed` replaces versions of the stack (`huggingface_hub="1.0"`).
    """
    chosen = {**STACK, **{name.replace("_", "-"): version for name, version in changed.items()}}
    todo = [*chosen.items(), *more]
    releases: list[tuple[str, str]] = []
    while todo:
        name, version = todo.pop()
        if not version or (name, version) in releases:
            continue
        releases.append((name, version))
        for needed, bounds in requires(name, version).items():
            if needed not in chosen or not SpecifierSet(bounds).contains(chosen[needed]):
                chosen.setdefault(needed, _least(bounds))
                todo.append(
                    (
                        needed,
                        chosen[needed] if SpecifierSet(bounds).contains(chosen[needed]) else _least(bounds),
                    )
                )
    return dict(_file(name, version) for name, version in releases)


def _least(bounds: str) -> str:
    """Return a version within bounds: one of the bounds, or the next above one."""
    named = [Version(each) for each in re.findall(r"[<>=~!]=?\s*([0-9][0-9a-z.]*)", bounds)]
    near = [*named, *(Version(f"{each}.1") for each in named if not each.is_prerelease), Version("1.0")]
    return str(next(each for each in near if SpecifierSet(bounds).contains(each)))


def _file(name: str, version: str) -> tuple[str, bytes]:
    needed = tuple(f"{each}{bounds}" for each, bounds in requires(name, version).items())
    if name == "deepspeed":
        return sdist(name, version, DEEPSPEED.format(version=version, requires=list(needed)), needed)
    module = name.replace("-", "_")
    more = {f"{module}/__init__.py": b""}
    if name == "setuptools":
        more["setuptools/build_meta.py"] = BUILD_META
    return wheel(name, version, needed, more=more)
