"""Create Python environments on disk, as installers leave them, and read them with the probe."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess  # noqa: TID251 - tests are users
import sys
from pathlib import Path

import pytest

from envcheck.core.facts import Inventory, is_package_version_key
from envcheck.host.machine import Host
from envcheck.probes import ProbeRequest, survey
from envcheck.probes.python_env import PROBE


def site_of(env: Path) -> Path:
    return next(env.glob("lib/python3*/site-packages"))


def put(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def install(site: Path, name: str, version: str, *requires: str, record: str = "") -> Path:
    """Write a dist-info folder as an installer does, and return its path."""
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {each}" for each in requires)]
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    put(site, f"{info}/METADATA", "\n".join(["Metadata-Version: 2.1", *lines, "", "Description\n"]))
    put(site, f"{info}/RECORD", record)
    return site / info


def listed(site: Path, path: str, content: str) -> str:
    """Write a file and return its line for a RECORD."""
    put(site, path, content)
    return record_line(path, content)


def record_line(path: str, content: str) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).decode().rstrip("=")
    return f"{path},sha256={digest},{len(content)}\n"


def read(
    path: Path | str | None, *, host: Host | None = None, static: bool = True, limit: float = 10
) -> Inventory:
    request = ProbeRequest(None if path is None else Path(path), "named by --python", static, limit)
    return survey(host or Host(), request, [PROBE])


def packages(inventory: Inventory) -> dict[str, object]:
    return {
        key.removeprefix("pkg."): fact.value
        for key, fact in inventory.facts.items()
        if is_package_version_key(key)
    }


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a real, empty virtual environment once; copies of it share its link to the interpreter."""
    folder = tmp_path_factory.mktemp("venv") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder


@pytest.fixture
def env(pristine: Path, tmp_path: Path) -> Path:
    shutil.copytree(pristine, tmp_path / "env", symlinks=True)
    return tmp_path / "env"
