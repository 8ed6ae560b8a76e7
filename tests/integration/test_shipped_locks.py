"""Every shipped lock is complete, clean and approved by today's matrix."""

from __future__ import annotations

from pathlib import Path

import pytest

from envcheck.commands import loading
from envcheck.commands.pin.shipped import note_on_cpu
from envcheck.commands.pin.target import LockTarget, package_facts, violated_rules
from envcheck.core.facts import Fact, Inventory, Known
from envcheck.lock.install import build_needs
from envcheck.lock.leaks import refuse_leaks
from envcheck.lock.model import Pin
from envcheck.lock.parse import parse_requirements
from envcheck.lock.render import render_requirements
from envcheck.lock.wheels import release_of, usable_files, usable_tags
from tests.unit.lock.test_lock import SHIPPED


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_a_shipped_lock_passes_today_s_matrix(path: Path) -> None:
    lock = parse_requirements(path.read_text(encoding="utf-8"), path.name)
    known = loading.knowledge()
    facts = {
        "python.version": Fact("python.version", Known(f"{lock.python}.0")),
        **{key: Fact(key, Known(value)) for key, op, value in lock.needs if op == ">="},
    }
    place = LockTarget(
        machine=Inventory(facts),
        python=lock.python,
        platform=lock.platform,
        glibc=lock.glibc,
        target=known.targets[lock.target],
        matrix=known,
    )
    versions = {pin.name: pin.version for pin in lock.pins}
    assert violated_rules(place, package_facts(versions), complete=True) == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_shipped_lock_is_complete_and_has_no_leaks(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    refuse_leaks(text)
    lock = parse_requirements(text, path.name)
    assert render_requirements(lock) == text
    pins = {pin.name: pin for pin in lock.pins}
    assert {*loading.knowledge().targets[lock.target].packages, *build_needs(lock.build)} <= set(pins)
    assert path.parent.name == lock.target
    assert path.stem.startswith(f"py{lock.python.replace('.', '')}-driver")
    assert path.stem.endswith("-aarch64") == (lock.platform == "linux-aarch64")
    assert ("driver.version", ">=") in {need[:2] for need in lock.needs}
    assert lock.date
    assert lock.maker
    tags = usable_tags(lock.python, lock.platform, lock.glibc)
    for pin in lock.pins:
        assert pin.artifacts == usable_files(pin.name, pin.version, pin.artifacts, tags, lock.build)


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_shipped_lock_s_build_packages_are_its_only_sources(path: Path) -> None:
    lock = parse_requirements(path.read_text(encoding="utf-8"), path.name)
    sources = {
        pin.name
        for pin in lock.pins
        for file in pin.artifacts
        if (release_of(file.filename) or ("", "", 1))[2] is None
    }
    assert sources == set(lock.build)


def test_a_lock_without_torch_is_not_told_of_a_smaller_torch() -> None:
    with_torch, without = Pin("torch", "2.14.1", ()), Pin("numpy", "2.5.5", ())
    assert "--torch-backend cpu torch==2.14.1" in note_on_cpu([with_torch, without])
    assert "torch" not in note_on_cpu([without])
