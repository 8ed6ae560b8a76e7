"""What pins imply of packages that are not pinned, read from releases that the tests build."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from envcheck.atlas.release import PublishedRelease
from envcheck.atlas.release_table import table_release, table_text
from envcheck.commands.atlas_tables import release_table
from envcheck.core import markers
from envcheck.knowledge.release_metadata import ReleaseTable, parse_release_files
from envcheck.knowledge.requirement_windows import disjoint_windows, excluded_companions, implied_versions
from tests.unit.atlas.releases import release

LINUX = markers.environment("3.11.9", architecture="x86_64")
ARM = markers.environment("3.11.9", architecture="aarch64")


def table(*releases: PublishedRelease) -> ReleaseTable:
    by_package: dict[str, list[PublishedRelease]] = {}
    for one in releases:
        by_package.setdefault(one.package, []).append(one)
    return parse_release_files(
        {
            f"{name}.txt": table_text(name, [table_release(one) for one in found])
            for name, found in by_package.items()
        }
    )


def tokenizers(*found: str) -> Sequence[PublishedRelease]:
    return [release("tokenizers", version) for version in found]


TORCH = release(
    "torch", "2.6.0", ('triton==3.2.0; platform_machine == "x86_64"', "filelock", "sympy==1.13.1")
)
TRITON = release("triton", "3.2.0", ("setuptools==70.0",))


def test_an_exact_pin_implies_the_version_and_what_that_one_pins() -> None:
    implied = implied_versions({"torch": "2.6.0"}, table(TORCH, TRITON), LINUX)
    assert {name: each.version for name, each in implied.items()} == {
        "triton": "3.2.0",
        "sympy": "1.13.1",
        "setuptools": "70.0",
    }
    assert implied["triton"].because.text == 'triton==3.2.0; platform_machine == "x86_64"'
    assert implied["setuptools"].because.package == "triton"


def test_markers_of_the_environment_decide() -> None:
    assert "triton" not in implied_versions({"torch": "2.6.0"}, table(TORCH, TRITON), ARM)


def test_a_pinned_package_is_not_implied_and_an_unknown_release_implies_nothing() -> None:
    assert "triton" not in implied_versions(
        {"torch": "2.6.0", "triton": "3.1.0"}, table(TORCH, TRITON), LINUX
    )
    assert implied_versions({"torch": "9.9.9"}, table(TORCH), LINUX) == {}
    assert implied_versions({"torch": "2.6.0+cu124"}, table(TORCH), LINUX)["triton"].version == "3.2.0"


@pytest.mark.parametrize("specifier", ["==1.13.*", ">=1.13", "<2", "==1.13,!=1.13.1"])
def test_a_range_implies_nothing(specifier: str) -> None:
    ranged = release("torch", "2.6.0", (f"sympy{specifier}",))
    assert implied_versions({"torch": "2.6.0"}, table(ranged), LINUX) == {}


def windows(one: str, other: str, *known: str) -> list[tuple[str, list[str]]]:
    """Return what is found if two pinned packages require tokenizers like this."""
    found = table(
        release("a", "1.0", (f"tokenizers{one}",)),
        release("b", "1.0", (f"tokenizers{other}",)),
        *tokenizers(*known),
    )
    conflicts = disjoint_windows({"a": "1.0", "b": "1.0"}, found, LINUX)
    return [(each.package, [f"{ask.package} {ask.specifier}" for ask in each.asks]) for each in conflicts]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("<0.20", ">=0.20"),
        ("==0.19.1", ">=0.20"),
        ("<=0.19.1", ">0.19.1"),
        ("==0.19.*", "~=0.20.0"),
        ("==1", "==2"),
    ],
)
def test_windows_that_do_not_meet(one: str, other: str) -> None:
    assert windows(one, other) == [("tokenizers", [f"a {one}", f"b {other}"])]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("<0.21,>=0.19", ">=0.20"),
        ("<=0.20", ">=0.20"),
        ("", ">=0.20"),
        ("!=0.20.0", ">=0.20"),
        (">0.20", "<0.20.1"),
        ("==0.20.*", ">=0.20.5"),
        ("===weird", ">=0.20"),
    ],
)
def test_windows_that_meet(one: str, other: str) -> None:
    assert windows(one, other) == []


def test_between_known_releases_a_window_without_a_release_serves_nobody() -> None:
    assert windows(">=0.19.5", "<0.20", "0.18.0", "0.19.0", "0.20.0") == [
        ("tokenizers", ["a >=0.19.5", "b <0.20"]),
    ]
    assert windows(">=0.19.5", "<0.20", "0.18.0", "0.19.7", "0.20.0") == []


def test_outside_the_known_releases_nothing_is_concluded() -> None:
    assert windows(">=0.21", "<0.22", "0.18.0", "0.20.0") == []
    assert windows(">=0.1", "<0.2", "0.18.0", "0.20.0") == []


def test_a_requirement_that_nothing_meets_alone_accuses_no_second_package() -> None:
    assert windows(">=2,<1", ">=0.20") == []


def test_the_shipped_table_knows_the_tokenizers_of_transformers_4_44_and_4_46() -> None:
    pins = {"transformers": "4.44.0", "torch": "2.6.0"}
    assert disjoint_windows(pins, release_table(), LINUX) == []
    assert implied_versions(pins, release_table(), LINUX)["triton"].version == "3.2.0"


def test_the_shipped_table_finds_that_two_frameworks_want_other_torches() -> None:
    (found,) = [
        each
        for each in disjoint_windows({"vllm": "0.6.0", "torchvision": "0.21.0"}, release_table(), LINUX)
        if each.package == "torch"
    ]
    assert {ask.text for ask in found.asks} == {"torch==2.4.0", "torch==2.6.0"}


# --- packages of which no admitted release fits the other pins -------------------------------------

TRAINER = release("llamafactory", "0.9.0", ("transformers>=4.41.2,<=4.45.0",))
LIBRARY = (
    release("transformers", "4.40.0", ("tokenizers<0.19,>=0.14",)),
    release("transformers", "4.41.2", ("tokenizers<0.20,>=0.19",)),
    release("transformers", "4.45.0", ("tokenizers<0.21,>=0.20",)),
    release("transformers", "4.46.0", ("tokenizers",)),
)


@pytest.mark.parametrize(
    ("pinned", "nearest"),
    [("0.15.2", "tokenizers<0.20,>=0.19"), ("0.22.0", "tokenizers<0.21,>=0.20")],
)
def test_a_package_that_one_pin_requires_and_another_excludes_is_named(pinned: str, nearest: str) -> None:
    pins = {"llamafactory": "0.9.0", "tokenizers": pinned}
    (found,) = excluded_companions(pins, table(TRAINER, *LIBRARY), LINUX)
    assert (found.package, found.ask.package, found.release.text) == ("transformers", "llamafactory", nearest)


@pytest.mark.parametrize(
    "pins",
    [
        {"llamafactory": "0.9.0", "tokenizers": "0.19.1"},  # 4.41.2 fits
        {"llamafactory": "0.9.0", "tokenizers": "0.15.2", "transformers": "4.46.0"},  # listed itself
        {"llamafactory": "0.9.1", "tokenizers": "0.15.2"},  # what it requires is not known
    ],
)
def test_a_package_of_which_a_release_fits_is_not_named(pins: dict[str, str]) -> None:
    assert excluded_companions(pins, table(TRAINER, *LIBRARY), LINUX) == []


def test_a_pin_that_the_asker_itself_excludes_is_not_named_again() -> None:
    trainer = release("llamafactory", "0.9.0", ("transformers>=4.41.2,<=4.45.0", "tokenizers>=0.19"))
    pins = {"llamafactory": "0.9.0", "tokenizers": "0.15.2"}
    assert excluded_companions(pins, table(trainer, *LIBRARY), LINUX) == []
    assert excluded_companions({**pins, "tokenizers": "0.22.0"}, table(trainer, *LIBRARY), LINUX) != []
