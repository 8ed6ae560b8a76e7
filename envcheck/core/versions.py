"""The only comparison of versions with bounds: its answers are no, maybe and yes.

For plain releases, including post-releases and local labels, the answers are those of packaging. PEP 440
does not serve two other kinds of version:

* A **vendor build** (`2.4.0a0+07cecf4168.nv24.05`, `2.4.0a0+git1a2b3c4`) is spelled as an alpha, but it is a
  snapshot of about 2.4.0. In PEP 440 it matches neither `>=2.4` nor `<2.4`. Here it is compared by its base
  release, and `note` states that.
* An **rc, dev or nightly build of the bound's own release** (`2.5.0rc1`, `2.5.0.dev20240901+cu124` or a
  checkout's `2.5.0.dev0` against `>=2.5`) may or may not contain the change that the bound is about. The
  answer is maybe to `>=`, `<`, `==` and `!=`. It came before its final release, and that is on the same side
  of `<=2.5` and `>2.5` as the release before it: the answers are yes and no, as in PEP 440. Against the
  bound of any other release it compares as a number: `5.0.0rc1` is below `5.0.1` and not below `4.57`.

So each version lies on exactly one side of each pair of `>=` and `<`, or on neither for a stated reason.
The atlas knows more: it has read the code of some pre-releases (`rules/atlas.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

from packaging.version import Version

from envcheck.core.facts import Tri
from envcheck.core.rules import Comparison

OPERATORS = ("===", "==", "!=", ">=", "<=", "~=", ">", "<")
"""The operators of PEP 440, longest first. Rules use only `==` `!=` `>=` `<`."""


@lru_cache(maxsize=4096)
def parse(text: str) -> Version | None:
    """Return the version, or None if the text is not a version in PEP 440."""
    try:
        return Version(text)
    except ValueError:  # InvalidVersion, or a number with thousands of digits
        return None


def order(text: str) -> tuple[bool, Version | str]:
    """Return a sort key: unreadable versions first, the others in the order of PEP 440."""
    version = parse(text)
    return (False, text) if version is None else (True, version)


def is_vendor_build(version: Version) -> bool:
    """Return whether this is a snapshot named `X.Y.Za0+label`, as NGC, Jetson and source builds are."""
    return version.pre == ("a", 0) and version.local is not None


def base_release(text: str) -> str:
    """Return the release a version belongs to; an unreadable text unchanged.

    It is `2.4.0` for `2.4.0a0+git1a2b3c4`, `2.4.0+cu121` and `2.4.0.dev20240612`.
    """
    version = parse(text)
    return version.base_version if version else text


def local_label(text: str) -> str:
    """Return the local label, such as `cu124` for `2.4.0+cu124`; empty if there is none."""
    version = parse(text)
    return (version.local or "") if version else ""


def note(text: str) -> str:
    """Return how this version was compared, for a reader of the report; empty for a plain release."""
    version = parse(text)
    if version is None:
        return f"{text!r} is not a version that can be compared"
    if is_vendor_build(version):
        return f"vendor build, compared by its base release {version.base_version}"
    if version.is_prerelease:
        return f"pre-release of {version.base_version}"
    return ""


@lru_cache(maxsize=4096)
def parse_specifier(text: str) -> tuple[Comparison, ...]:
    """Parse a specifier such as `>=2.5,<3` into comparisons; an empty one gives none.

    Raises:
        ValueError: an operator is missing, or an operand is not a version.
    """
    return tuple(_comparison(part.strip()) for part in text.split(",") if part.strip())


def _comparison(part: str) -> Comparison:
    op = next((op for op in OPERATORS if part.startswith(op)), None)
    if op is None:
        raise ValueError(f"{part!r} does not begin with an operator such as '>='")
    operand = part[len(op) :].strip()
    plain = operand.removesuffix(".*") if op in ("==", "!=") else operand
    version = parse(plain)
    if op != "===" and version is None:
        raise ValueError(f"{operand!r} is not a version")
    if op == "~=" and version is not None and len(version.release) == 1:
        raise ValueError(f"{part!r}: a compatible release needs two parts, such as ~=2.4")
    return Comparison(op, operand)


def satisfies(version: str, specifier: str, *, unknown: Tri) -> Tri:
    """Return whether a version satisfies a specifier such as `>=2.5,<3`.

    `unknown` is the answer for an unreadable specifier: `Tri.YES` for callers that ignore such a bound,
    `Tri.NO` for callers that need a bound they can rely on.
    """
    try:
        comparisons = parse_specifier(specifier)
    except ValueError:
        return unknown
    return satisfies_all(version, comparisons)


def satisfies_all(text: str, comparisons: tuple[Comparison, ...]) -> Tri:
    """Return whether a version satisfies all of these comparisons."""
    return min((compare(text, each.op, str(each.operand)) for each in comparisons), default=Tri.YES)


@lru_cache(maxsize=4096)
def compare(text: str, op: str, bound: str) -> Tri:
    """Compare a version with a bound; maybe if it is unreadable or a pre-release of the bound's release."""
    if op == "===":
        return Tri.of(text.strip().lower() == bound.strip().lower())
    if op == "!=":
        return compare(text, "==", bound).negated()
    version, limit = parse(text), parse(bound.removesuffix(".*"))
    if version is None or limit is None:
        return Tri.MAYBE
    if is_vendor_build(version):
        version = _public(version.base_version)
    if bound.endswith(".*"):
        return Tri.of(_has_prefix(version, limit))
    if (
        op not in ("<=", ">")
        and version.is_prerelease
        and not (limit.is_prerelease or limit.is_postrelease)
        and _same_release(version, limit)
    ):
        return Tri.MAYBE
    return Tri.of(_decided(version, op, limit))


_COMPARE: Mapping[str, Callable[[Version, Version], bool]] = {
    "==": operator.eq,
    ">=": operator.ge,
    "<=": operator.le,
    "<": operator.lt,
}


def _decided(version: Version, op: str, limit: Version) -> bool:
    if op == "==" and limit.local is not None:
        return version == limit
    public = version if version.local is None else _public(version.public)
    if op == "~=":
        parent = _public(f"{limit.epoch}!{'.'.join(str(part) for part in limit.release[:-1] or (0,))}")
        return public >= limit and _has_prefix(version, parent)
    if op == ">":
        # PEP 440: `>2.5.8` excludes 2.5.8.post1, although that sorts after 2.5.8.
        own_post = version.is_postrelease and not limit.is_postrelease and _same_release(version, limit)
        return public > limit and not own_post
    return _COMPARE[op](public, limit)


@lru_cache(maxsize=4096)
def _public(text: str) -> Version:
    return Version(text)


def _same_release(one: Version, other: Version) -> bool:
    return one.epoch == other.epoch and _trimmed(one.release) == _trimmed(other.release)


def _trimmed(release: tuple[int, ...]) -> tuple[int, ...]:
    end = len(release)
    while end > 1 and release[end - 1] == 0:
        end -= 1
    return release[:end]


def _has_prefix(version: Version, prefix: Version) -> bool:
    length = len(prefix.release)
    padded = version.release + (0,) * (length - len(version.release))
    return version.epoch == prefix.epoch and padded[:length] == prefix.release
