"""The one comparator: a version against a bound gives no, maybe or yes.

On plain releases (post-releases and local labels included) the answers are packaging's own. Two kinds
of version fall through the cracks of PEP 440 and get rules of their own:

* a **vendor build** (`2.4.0a0+07cecf4168.nv24.05`, `2.4.0a0+git1a2b3c4`) is an alpha by its spelling
  and a snapshot of 2.4.0 by its content: it matches neither `>=2.4` nor `<2.4`. It is compared by its
  base release, and `note` says so;
* an **rc, dev or nightly of the bound's own release** (`2.5.0rc1` against `>=2.5`) may or may not have
  what the bound is about: maybe.

So every version falls on exactly one side of every `>=` / `<` pair, or on neither for a stated reason.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

from packaging.version import InvalidVersion, Version

from envcheck.core.facts import Tri
from envcheck.core.rules import Comparison

OPERATORS = ("===", "==", "!=", ">=", "<=", "~=", ">", "<")
"""PEP 440's operators, longest spelling first. Rules use only `==` `!=` `>=` `<`."""


@lru_cache(maxsize=4096)
def parse(text: str) -> Version | None:
    """The version, or None if PEP 440 cannot read it."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def order(text: str) -> tuple[bool, Version | str]:
    """A sort key: unreadable versions first, the others by PEP 440."""
    version = parse(text)
    return (False, text) if version is None else (True, version)


def is_vendor_build(version: Version) -> bool:
    """Whether this is a snapshot named `X.Y.Za0+something`, as NGC, Jetson and source builds are."""
    return version.pre == ("a", 0) and version.local is not None


def base_release(text: str) -> str:
    """`2.4.0` of `2.4.0a0+git1a2b3c4`, `2.4.0+cu121`, `2.4.0.dev20240612`; the text itself if unreadable."""
    version = parse(text)
    return version.base_version if version else text


def local_label(text: str) -> str:
    """`cu124` of `2.4.0+cu124`; empty if there is none."""
    version = parse(text)
    return (version.local or "") if version else ""


def note(text: str) -> str:
    """What a reader must know of how this version was compared; empty for a plain release."""
    version = parse(text)
    if version is None:
        return f"{text!r} is not a version anybody can order"
    if is_vendor_build(version):
        return f"vendor build, compared by its base release {version.base_version}"
    if version.is_prerelease:
        return f"pre-release of {version.base_version}"
    return ""


@lru_cache(maxsize=4096)
def parse_specifier(text: str) -> tuple[Comparison, ...]:
    """The comparisons of a specifier such as `>=2.5,<3`; none for an empty one.

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

    `unknown` is the answer for a specifier that cannot be read: `Tri.YES` where an unreadable bound binds
    nothing, `Tri.NO` where only a bound that is known counts.
    """
    try:
        comparisons = parse_specifier(specifier)
    except ValueError:
        return unknown
    return satisfies_all(version, comparisons)


def satisfies_all(text: str, comparisons: tuple[Comparison, ...]) -> Tri:
    """Return whether a version meets all of these comparisons."""
    return min((compare(text, each.op, str(each.operand)) for each in comparisons), default=Tri.YES)


@lru_cache(maxsize=4096)
def compare(text: str, op: str, bound: str) -> Tri:
    """Whether `text op bound` holds; maybe if the version cannot be read or is a pre-release of the bound."""
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
        version.is_prerelease
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
        # PEP 440: `>2.5.8` leaves out 2.5.8.post1, although it sorts behind.
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
