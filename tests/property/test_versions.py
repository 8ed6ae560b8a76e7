"""Properties that hold for any input: versions."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.specifiers import Specifier
from packaging.version import Version

from envcheck.core import versions
from envcheck.core.facts import Tri
from tests.unit.core.test_versions import bound, post, release, small

local = st.one_of(st.just(""), st.sampled_from(["+cu121", "+cpu", "+rocm6.2", "+cu118.abi0"]))


plain = st.tuples(release, post, local).map("".join)


pre = st.sampled_from(["a1", "b2", "rc1", "rc12", ".dev0", ".dev20241112"])


vendor = release.map(lambda text: f"{text}a0+git1a2b3c4")


anything = st.one_of(plain, vendor, st.tuples(release, pre, local).map("".join))


@given(plain, st.sampled_from(["==", "!=", ">=", "<=", "<", ">"]), bound)
@settings(max_examples=2000)
def test_plain_releases_get_the_answer_of_packaging(version: str, op: str, limit: str) -> None:
    answer = versions.compare(version, op, limit)
    assert answer is Tri.of(Specifier(f"{op}{limit}").contains(version, prereleases=True))


@given(plain, st.lists(small, min_size=2, max_size=3))
def test_compatible_release_and_prefix_get_the_answer_of_packaging(version: str, parts: list[int]) -> None:
    limit = ".".join(map(str, parts))
    for specifier in (f"~={limit}", f"=={limit}.*", f"!={limit}.*"):
        op, operand = specifier[:2], specifier[2:]
        expected = Tri.of(Specifier(specifier).contains(version, prereleases=True))
        assert versions.compare(version, op, operand) is expected


@given(anything, bound)
@settings(max_examples=3000)
def test_every_version_falls_on_exactly_one_side_of_every_bound(version: str, limit: str) -> None:
    above, below = versions.compare(version, ">=", limit), versions.compare(version, "<", limit)
    assert above is below.negated()
    parsed, bounding = Version(version), Version(limit)
    own = parsed.is_prerelease and not versions.is_vendor_build(parsed) and not bounding.is_postrelease
    undecided = (
        own
        and parsed.epoch == bounding.epoch
        and Version(parsed.base_version) == Version(bounding.base_version)
    )
    assert (above is Tri.MAYBE) == undecided


@given(anything, bound)
def test_equal_and_not_equal_are_opposites(version: str, limit: str) -> None:
    assert versions.compare(version, "==", limit) is versions.compare(version, "!=", limit).negated()


@given(st.text(max_size=20), st.sampled_from(["==", "!=", ">=", "<", "<=", ">"]), bound)
def test_no_text_makes_the_comparator_raise(version: str, op: str, limit: str) -> None:
    versions.compare(version, op, limit)
