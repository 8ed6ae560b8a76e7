"""Comparison of versions: hand-written answers, the answers of packaging, both sides of every bound."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from envcheck.core import versions
from envcheck.core.facts import Tri

N, M, Y = Tri.NO, Tri.MAYBE, Tri.YES

NGC = "2.4.0a0+07cecf4168.nv24.05"
GIT = "2.5.0a0+git1a2b3c4"
JETSON = "2.3.0a0+40ec155e58.nv24.3"
NIGHTLY = "2.6.0.dev20241112+cu121"

ANSWERS: list[tuple[str, str, Tri]] = [
    # plain releases
    ("2.4.0", ">=2.4", Y), ("2.4.0", "<2.4", N), ("2.4.0", "==2.4", Y), ("2.4.0", "!=2.4", N),
    ("2.4.1", ">=2.4", Y), ("2.4.1", "<2.4.1", N), ("2.4.1", "==2.4", N), ("2.4.1", "!=2.4.0", Y),
    ("2.10.0", ">=2.9", Y), ("2.10.0", "<2.9", N), ("2.9.1", "<2.10", Y), ("2.9.1", ">=2.10.0", N),
    ("570.124.06", ">=570.26", Y), ("570.124.06", "<570.26", N), ("535.104.05", ">=525.60.13", Y),
    ("535.104.05", ">=535.104.5", Y), ("525.60.12", "<525.60.13", Y), ("580", ">=580.65.06", N),
    ("580.65.06", ">=580.65.6", Y), ("12.10", ">=12.8", Y), ("12.8", "<12.10", Y),
    ("0.14.10", ">=0.14.3", Y), ("0.14.2", ">=0.14.1,<0.14.3", Y), ("0.14.3", ">=0.14.1,<0.14.3", N),
    ("0.14.0", ">=0.14.1,<0.14.3", N), ("1.0", "==1.0.0", Y), ("1", "==1.0.0", Y), ("1!1.0", ">=2.0", Y),
    ("1!1.0", "<2.0", N), ("9.0", ">=8.9", Y), ("12.0", ">=9.0", Y), ("8.6", "<8.9", Y),
    # local labels: ignored unless the bound has one
    ("2.4.0+cu121", "==2.4.0", Y), ("2.4.0+cu121", ">=2.4.0", Y), ("2.4.0+cu121", "<2.4.0", N),
    ("2.4.0+cu121", "!=2.4.0", N), ("2.4.0+cu121", "<2.4.1", Y), ("2.4.0+cu121", ">=2.4.1", N),
    ("2.3.0+cu121", "==2.3.0+cu118", N), ("2.3.0+cu118", "==2.3.0+cu118", Y), ("2.3.0", "==2.3.0+cu118", N),
    ("2.3.0+cu118", "!=2.3.0+cu118", N), ("2.3.0+cu121", "!=2.3.0+cu118", Y), ("2.13.0+cpu", ">=2.5", Y),
    ("2.13.0+cpu", "<2.5", N), ("2.5.1+rocm6.2", ">=2.5", Y), ("2.7.0+xpu", "<2.7", N),
    ("2.4.0+cu121", "<=2.4.0", Y), ("2.4.0+cu121", ">2.4.0", N), ("2.4.0+local.1-2", "==2.4.0", Y),
    # post-releases
    ("2.5.8.post1", ">=2.5.8", Y), ("2.5.8.post1", "<2.5.8", N), ("2.5.8.post1", "==2.5.8", N),
    ("2.5.8.post1", "!=2.5.8", Y), ("2.5.8.post1", ">2.5.8", N), ("2.5.8.post1", "<=2.5.8", N),
    ("2.5.8.post1", "<2.5.9", Y), ("2.5.8.post2", ">=2.5.8.post1", Y), ("2.5.8.post1", "<2.5.8.post2", Y),
    ("2.5.8.post1", "==2.5.8.post1", Y), ("2.8.3.post1", ">=2.8.3", Y), ("0.0.28.post3", ">=0.0.28", Y),
    ("0.0.28.post3", "<0.0.28.post1", N), ("0.0.27.post2", "<0.0.28", Y), ("2.5.8.post2", ">2.5.8.post1", Y),
    ("2.5.8", ">=2.5.8.post1", N), ("2.5.8", "<2.5.8.post1", Y),
    # release candidates: undecided for a bound of their own release, ordered for all others
    ("2.5.0rc1", ">=2.5", M), ("2.5.0rc1", "<2.5", M), ("2.5.0rc1", "==2.5.0", M), ("2.5.0rc1", "!=2.5.0", M),
    ("2.5.0rc1", ">=2.4", Y), ("2.5.0rc1", "<2.4", N), ("2.5.0rc1", ">=2.5.1", N), ("2.5.0rc1", "<2.5.1", Y),
    ("2.5.0rc1", "<2.6", Y), ("2.5.0rc1", ">=2.6", N), ("2.5.0rc1", ">=2.5.0rc1", Y), ("2.5.0rc2", ">=2.5.0rc1", Y),
    ("2.5.0rc1", "<2.5.0rc2", Y), ("2.5.0rc1", ">=2.5.0rc2", N), ("2.5.0", ">=2.5.0rc1", Y), ("2.5.0", "<2.5.0rc1", N),
    ("5.0.0rc3", ">=5.0", M), ("5.0.0rc3", "<5.0", M), ("5.0.0rc3", "<5.0.0rc3", N), ("5.0.0rc1", "<5.0.0rc3", Y),
    ("5.0.0rc3", ">=4.57", Y), ("5.0.0rc3", "<4.57", N), ("2.5.0rc10+cu124", ">=2.5", M), ("2.5.0rc10+cu124", ">=2.4", Y),
    ("2.5rc1", ">=2.5.0", M), ("2.5.0b2", "<2.5", M), ("2.5.0a1", ">=2.5", M), ("2.5.0a1", ">=2.4.1", Y),
    ("2.5.0rc1", ">2.5.0", N), ("2.5.0rc1", "<=2.5.0", Y), ("2.5.0rc1", "==2.5.*", Y), ("2.5.0rc1", "!=2.5.*", N),
    ("2.5.0rc1", ">=2.5.0.post1", N), ("2.5.0rc1", "<2.5.0.post1", Y),
    # dev versions and nightlies
    ("4.48.0.dev0", "<=4.48.0", Y), ("4.48.0.dev0", ">4.48.0", N), (NIGHTLY, "<=2.6", Y), (NIGHTLY, ">2.6", N),
    ("4.45.0.dev0", ">=4.45.0", M), ("4.45.0.dev0", "<4.45.0", M), ("4.45.0.dev0", ">=4.44", Y),
    ("4.45.0.dev0", "<4.44", N), ("4.45.0.dev0", "<4.46", Y), ("4.45.0.dev0", ">=4.45.0.dev0", Y),
    (NIGHTLY, ">=2.6", M), (NIGHTLY, "<2.6", M), (NIGHTLY, ">=2.5", Y), (NIGHTLY, "<2.5", N), (NIGHTLY, "<2.7", Y),
    (NIGHTLY, ">=2.6.1", N), (NIGHTLY, "==2.6.0", M), (NIGHTLY, "!=2.6.0", M), (NIGHTLY, "==2.6.*", Y),
    (NIGHTLY, ">=2.6.0.dev20241101", Y), (NIGHTLY, ">=2.6.0.dev20241201", N), (NIGHTLY, "<2.6.0.dev20241201", Y),
    ("2.9.0.dev20250804", ">=2.8", Y), ("2.9.0.dev20250804", ">=2.9.0", M), ("0.20.0.dev0", ">=0.19.3", Y),
    ("0.19.3.dev1", "<0.19.3", M), ("5.13.0.dev0", ">=5.0", Y), ("5.13.0.dev0", ">=5.13", M), ("1.0rc1.dev2", ">=1.0", M),
    # vendor builds: by base release, on one side of every bound
    (NGC, ">=2.4", Y), (NGC, "<2.4", N), (NGC, "==2.4.0", Y), (NGC, "!=2.4.0", N), (NGC, "==2.4.*", Y),
    (NGC, ">=2.3", Y), (NGC, "<2.5", Y), (NGC, ">=2.4.1", N), (NGC, "<2.4.1", Y), (NGC, ">=2.4.0a0", Y),
    (GIT, ">=2.5", Y), (GIT, "<2.5", N), (GIT, ">=2.5.1", N), (GIT, "<2.6", Y), (GIT, "==2.5.0", Y),
    (JETSON, ">=2.3", Y), (JETSON, "<2.3", N), (JETSON, ">=2.4", N), (JETSON, "<2.4", Y),
    ("1.14.0a0+44dac51c.nv23.02", ">=1.14", Y), ("1.14.0a0+44dac51c.nv23.02", "<2.0", Y),
    ("2.1.0a0+29c30b1", ">=2.1.0", Y), ("2.1.0a0+29c30b1", "<2.1.0", N), ("2.8.0a0+5228986c39.nv25.06", ">=2.8", Y),
    ("2.8.0a0+5228986c39.nv25.06", "<2.7.1", N), ("0.19.0a0+48b1edf", "==0.19.0", Y), ("2.4.0a0", ">=2.4", M),
    # the rest of PEP 440, which package metadata uses
    ("2.4.1", "~=2.4", Y), ("3.0", "~=2.4", N), ("2.4.9", "~=2.4.1", Y), ("2.5.0", "~=2.4.1", N), ("2.4.0", "~=2.4.1", N),
    ("2.4.1", ">2.4.0", Y), ("2.4.0", ">2.4.0", N), ("2.4.0", "<=2.4.0", Y), ("2.4.1", "<=2.4.0", N),
    ("0.22.0", ">=0.22,<=0.23.0", Y), ("0.23.1", ">=0.22,<=0.23.0", N), ("4.5.1", "==4.5.*", Y), ("4.6", "==4.5.*", N),
    ("4.5", "!=4.5.*", N), ("2.4.0", "===2.4.0", Y), ("2.4", "===2.4.0", N), ("2.4.0", "", Y), ("1.2.3", "==1.2.3,!=1.2.3", N),
    # unreadable versions
    ("unknown", ">=1", M), ("unknown", "<1", M), ("2.4.0-ubuntu.foo!", ">=2", M), ("", "==1", M), ("9.0a.b", ">=8", M),
]  # fmt: skip


@pytest.mark.parametrize(("version", "bound", "answer"), ANSWERS)
def test_hand_written_answers(version: str, bound: str, answer: Tri) -> None:
    assert versions.satisfies_all(version, versions.parse_specifier(bound)) is answer


def test_there_are_enough_hand_written_answers() -> None:
    assert len(ANSWERS) >= 150
    assert len({(version, bound) for version, bound, _ in ANSWERS}) == len(ANSWERS)


small = st.integers(0, 30)
release = st.lists(small, min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
post = st.one_of(st.just(""), small.map(lambda n: f".post{n}"))
bound = st.tuples(release, post).map("".join)


def test_the_note_on_a_vendor_build_states_its_base_release() -> None:
    assert versions.note(NGC) == "vendor build, compared by its base release 2.4.0"
    assert versions.note("2.4.0+cu121") == ""


@pytest.mark.parametrize("text", ["2.5", "=>2.5", ">=two", "~=2", ">=1.*", "<1.*"])
def test_a_malformed_specifier_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"operator|version|two parts"):
        versions.parse_specifier(text)
