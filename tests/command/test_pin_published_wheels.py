"""`pin` names the published wheel of a package that the index has as source only, and never guesses one."""

from __future__ import annotations

import re

import pytest

from envcheck.commands import loading
from envcheck.commands.pin.published_wheels import wheel_notes
from envcheck.commands.pin.target import GLIBC, LockTarget
from envcheck.core.facts import Fact, Inventory, Known
from envcheck.core.rules import UserRequirement
from envcheck.lock.model import Lock, Pin


def notes(
    torch: str,
    *,
    python: str = "3.12",
    arch: str = "x86_64",
    bound: str = "",
    show: bool = False,
    glibc: str = "",
    driver: str = "",
) -> list[str]:
    """Return the notes on a lock of torch and flash-attn, which is built from source."""
    known = loading.knowledge()
    values = {"python.version": f"{python}.0", "host.os": "linux", "host.arch": arch}
    values |= {"host.glibc": glibc} if glibc else {}
    values |= {"driver.version": driver} if driver else {}
    machine = Inventory({key: Fact(key, Known(value), "declared") for key, value in values.items()})
    goal = LockTarget(
        machine=machine,
        python=python,
        platform=f"linux-{arch}",
        glibc=glibc or GLIBC,
        target=known.targets["qlora"],
        matrix=known,
        requirements=(UserRequirement("flash-attn", bound, "--with"),),
    )
    pins = (Pin("flash-attn", "2.8.3.post2", ()), Pin("torch", torch, ()))
    made = Lock(target="qlora", python=python, platform=goal.platform, pins=pins, build=("flash-attn",))
    return wheel_notes(goal, made, show_address=show)


def test_the_wheel_of_upstream_is_named_as_its_release_page_names_it() -> None:
    (note,) = notes("2.8.0", bound="==2.8.3")
    assert "flash_attn-2.8.3+cu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl" in note
    assert "upstream" in note
    assert "://" not in note


def test_the_abi_in_the_name_is_that_of_torch() -> None:
    (note,) = notes("2.4.1", python="3.10", bound="==2.7.4.post1")
    assert "flash_attn-2.7.4.post1+cu12torch2.4cxx11abiFALSE-cp310-cp310-linux_x86_64.whl" in note


def test_the_address_is_shown_only_if_asked_for() -> None:
    (note,) = notes("2.8.0", bound="==2.8.3", show=True)
    assert note.endswith(
        "/releases/download/v2.8.3/flash_attn-2.8.3%2Bcu12torch2.8cxx11abiTRUE-cp312-cp312-linux_x86_64.whl"
    )


def test_a_wheel_that_an_old_c_library_cannot_load_is_not_named_for_it() -> None:
    (unknown,) = notes("2.8.0")
    assert "upstream has a wheel" in unknown
    assert "it needs glibc 2.32 or newer" in unknown
    (new,) = notes("2.8.0", glibc="2.35")
    assert "upstream has a wheel" in new
    assert "glibc" not in new
    (old,) = notes("2.8.0", glibc="2.31")
    assert "a community build" in old
    (arm,) = notes("2.13.0", arch="aarch64", glibc="2.31")
    assert "no published wheel is known" in arm
    assert "it needs glibc 2.34 or newer" in notes("2.13.0", arch="aarch64")[0]


def test_a_community_build_is_marked_as_such() -> None:
    (note,) = notes("2.12.0")
    assert "a community build (not upstream's, and unchecked)" in note
    assert "flash_attn-2.8.3+cu130torch2.12-cp312-cp312-linux_x86_64.whl" in note
    assert "the lock has 2.8.3.post2" in note


@pytest.mark.parametrize(
    ("torch", "python", "arch"),
    [("2.15.0", "3.12", "x86_64"), ("2.8.0", "3.14", "x86_64"), ("2.6.0", "3.9", "aarch64")],
)
def test_where_no_wheel_fits_another_attention_is_named(torch: str, python: str, arch: str) -> None:
    (note,) = notes(torch, python=python, arch=arch)
    assert "no published wheel is known" in note
    assert "sdpa" in note
    assert "kernels" in note
    assert ".whl" not in note


def test_where_no_wheel_fits_the_newest_torch_that_has_one_here_is_named() -> None:
    (new,) = notes("2.15.0", driver="580.95.05")
    assert re.search(
        r"the newest torch with one here is 2\.13 \(a community build; --with 'torch==2\.13\.\*'\) or "
        r"2\.(9|10) \(upstream; --with 'torch==2\.(9|10)\.\*'\)",
        new,
    )
    # torch 2.11 and newer are for CUDA 13, which this driver does not run.
    (old,) = notes("2.15.0", driver="535.104.05")
    assert "the newest torch with one here is 2.10 (a community build" in old
    (arm,) = notes("2.15.0", arch="aarch64", python="3.14", driver="580.95.05", glibc="2.31")
    assert "newest torch" not in arm


def test_every_row_of_the_table_makes_a_name_that_a_wheel_can_have() -> None:
    tables = loading.source_tree()["tables"]
    names = {(row["package"], row["by"]): row["name"] for row in tables["wheel_publisher"]}
    for row in tables["published_wheel"]:
        name = names[row["package"], row["by"]].format(
            **{**row, "abi": (row.get("abi") or [""])[0], "arch": row["arch"][0]}, py="312"
        )
        assert re.fullmatch(
            r"flash_attn-[\w.]+\+cu\d+torch\d\.\d+(cxx11abi(TRUE|FALSE))?-cp312-cp312-linux_\w+\.whl", name
        )
        assert set(row.get("abi", ())) <= {"TRUE", "FALSE"}
