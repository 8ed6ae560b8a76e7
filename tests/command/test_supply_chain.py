"""What a release promises: equal bytes from equal sources, a bill of materials, pinned actions and requirements."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess  # noqa: TID251 - tests are users
import sys
import zipfile
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.running import copy_compiled, envcheck


def build(clone: Path, out: Path, **environ: str) -> Path:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(out)],
        cwd=clone,
        check=True,
        capture_output=True,
        timeout=300,
        env={**os.environ, **environ},  # noqa: TID251
    )
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Build two wheels from two copies, under another clock, file mode, hash seed and time zone."""
    folder = tmp_path_factory.mktemp("builds")
    found = []
    for number, (umask, seed, zone) in enumerate(((0o022, "1", "UTC"), (0o077, "2", "Asia/Tokyo"))):
        clone = folder / str(number)
        before = os.umask(umask)
        names = ("envcheck", "compat", "lockfiles", "tools", "pyproject.toml", "README.md", "LICENSE")
        for name in names:
            source, target = ROOT / name, clone / name
            target.parent.mkdir(parents=True, exist_ok=True)
            if source.is_dir():
                shutil.copytree(
                    source,
                    target,
                    ignore=shutil.ignore_patterns("__pycache__", "*.pyc"),
                    copy_function=shutil.copyfile,
                )
            else:
                shutil.copyfile(source, target)
        found.append(build(clone, folder / f"out{number}", PYTHONHASHSEED=seed, TZ=zone))
        os.umask(before)
    return found


def test_two_builds_have_equal_bytes(wheels: list[Path]) -> None:
    one, other = (hashlib.sha256(each.read_bytes()).hexdigest() for each in wheels)
    assert one == other


def test_the_wheel_lists_what_is_inside_with_digests(wheels: list[Path]) -> None:
    with zipfile.ZipFile(wheels[0]) as wheel:
        (name,) = (each for each in wheel.namelist() if ".dist-info/sboms/" in each)
        bill = json.loads(wheel.read(name))
        assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
        shipped = {
            each
            for each in wheel.namelist()
            if each.startswith("envcheck/shipped/") and each.endswith(".json")
        }
        assert {each["name"] for each in bill["components"]} == {
            each for each in shipped if "/lockfiles/" not in each
        }
        for each in bill["components"]:
            assert each["hashes"][0]["content"] == hashlib.sha256(wheel.read(each["name"])).hexdigest()


def test_actions_and_hooks_are_pinned() -> None:
    uses = [
        line
        for file in (ROOT / "action.yml", *(ROOT / ".github").rglob("*.yml"))
        for line in file.read_text().splitlines()
        if re.match(r"\s*-?\s*uses:", line)
    ]
    for line in uses:
        assert re.search(r"@[0-9a-f]{40}\b", line), line


@pytest.mark.parametrize(
    "name", ["judging.json", "dialects.json", "source.json", "atlas/index.json", "digests.json"]
)
def test_a_file_that_was_changed_after_the_build_is_named(name: str, tmp_path: Path) -> None:
    copy_compiled(tmp_path)
    environ = {"PYTHONPATH": str(tmp_path)}
    whole = envcheck("--version", "-v", environ=environ)
    assert (whole.code, "changed" in whole.out) == (0, False)
    file = tmp_path / "envcheck/shipped" / name
    if name == "digests.json":
        file.unlink()
    else:
        file.write_text(file.read_text().replace("torch", "torcx", 1))
    changed = envcheck("--version", "-v", environ=environ)
    assert changed.code == 3
    assert f"changed  since it was built: {name}: install envcheck again" in changed.out
