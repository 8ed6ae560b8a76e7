"""Named tuples of the start-up path behave as those of `typing`."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import NamedTuple as TypingNamedTuple

import pytest

from envcheck.core.records import NamedTuple


class Release(NamedTuple):
    """Hold a release of a package."""

    package: str
    version: str = "1.0"
    wheels: int = 0

    def named(self) -> str:
        return f"{self.package} {self.version}"


class TypingRelease(TypingNamedTuple):
    package: str
    version: str = "1.0"
    wheels: int = 0


class Single(NamedTuple):
    value: int


def test_fields_defaults_and_methods() -> None:
    release = Release("torch", wheels=3)
    assert (release.package, release.version, release.wheels) == release == ("torch", "1.0", 3)
    assert release.named() == "torch 1.0"
    assert Single(1) == (1,)
    assert Release._field_defaults == {"version": "1.0", "wheels": 0}
    assert not hasattr(release, "__dict__"), "instances are as small as tuples"


def test_behaves_as_the_named_tuple_of_typing() -> None:
    ours, theirs = Release("torch", "2.0"), TypingRelease("torch", "2.0")
    assert ours._asdict() == theirs._asdict()
    assert tuple(ours._replace(wheels=2)) == tuple(theirs._replace(wheels=2))
    assert repr(ours) == repr(theirs).removeprefix("Typing")
    assert Release.__match_args__ == TypingRelease.__match_args__
    assert tuple(Release._make(["a", "b", 1])) == tuple(TypingRelease._make(["a", "b", 1]))


def test_copies_and_pickles() -> None:
    release = Release("torch")
    assert pickle.loads(pickle.dumps(release)) == release  # noqa: S301 - made here
    assert type(copy.deepcopy(release)) is Release


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (Release, r"Release.__new__\(\) missing 1 required positional argument: 'package'"),
        (lambda: Release("a", colour=1), "unexpected keyword argument 'colour'"),  # type: ignore[call-arg]
        (lambda: Release._make(["a"]), "Expected 3 arguments, got 1"),
        (lambda: Release("a")._replace(colour=1), "Got unexpected field names: \\['colour'\\]"),  # type: ignore[call-arg]
        (lambda: setattr(Release("a"), "package", "b"), "can't set attribute"),
    ],
)
def test_refuses_what_typing_refuses(call: Callable[[], object], message: str) -> None:
    with pytest.raises((TypeError, ValueError, AttributeError), match=message):
        call()


def test_refuses_a_field_without_a_default_after_one_with_a_default() -> None:
    with pytest.raises(TypeError, match="without a default"):

        class Wrong(NamedTuple):
            package: str = ""
            version: str  # type: ignore[misc]
