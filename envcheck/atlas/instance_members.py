"""Whether the objects of a class have an attribute: a method, a field, or what a method assigns to `self`.

`self.accelerator.parallelism_config` fails beside an accelerate whose `Accelerator` has no such attribute.
The asking side says which class of another package has to have it; the answering side reads that class.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from envcheck.atlas.code_summary import ClassCode
from envcheck.atlas.definitions import Definition, Definitions, ForeignPath, OwnClass, is_dataclass
from envcheck.atlas.offers import OfferAnswer

_WITHOUT_MORE = frozenset({"object", "abc.ABC", "typing.Generic", "typing.Protocol"})
_KNOWN_DECORATORS = frozenset({"total_ordering", "functools.total_ordering", "final", "requires", "export"})


def has_to_have(code: Definitions, owner: Definition, name: str, after: int = -1) -> str:
    """Return the class of another package that has to have an attribute of an object; empty if none is known.

    Args:
        code: the release that reads the attribute.
        owner: the class of the object.
        name: the attribute.
        after: of a class of the release, look only at the classes after this position, as `super()` does.

    """
    if hasattr(object, name):
        return ""
    if isinstance(owner, ForeignPath):
        return owner.path
    if not isinstance(owner, OwnClass):
        return ""
    foreign: list[str] = []
    for position, each in enumerate(code.order(owner)):
        if isinstance(each, ForeignPath):
            foreign += [each.path] * (each.path not in _WITHOUT_MORE)
        elif not isinstance(each, OwnClass) or (position > after and _may_have(code, each, name)):
            return ""
    return foreign[0] if len(foreign) == 1 else ""


def object_attribute(code: Definitions, path: str, name: str) -> OfferAnswer:
    """Return whether the objects of a class of a release have an attribute."""
    owner = code.path(path)
    if not isinstance(owner, OwnClass):
        return OfferAnswer.UNKNOWN
    order = code.order(owner)
    own = [each for each in order if isinstance(each, OwnClass)]
    if any(name in names for each in own for names in _names(each.code)):
        return OfferAnswer.YES
    plain = all(
        isinstance(each, OwnClass) or (isinstance(each, ForeignPath) and each.path in _WITHOUT_MORE)
        for each in order
    )
    if not plain or any(_may_have(code, each, name) or "__new__" in each.code.methods for each in own):
        return OfferAnswer.UNKNOWN
    return OfferAnswer.NO


def _names(code: ClassCode) -> Iterator[frozenset[str]]:
    yield code.bound
    yield code.attributes
    yield frozenset(code.fields)


def _may_have(code: Definitions, owner: OwnClass, name: str) -> bool:
    """Return whether objects of a class of the release have an attribute, or may be given it."""
    if any(name in names for names in _names(owner.code)) or owner.code.answers_more or owner.code.peculiar:
        return True
    known = (text.partition("(")[0] for text in owner.code.decorators)
    if not is_dataclass(owner.code) and not all(each in _KNOWN_DECORATORS for each in known):
        return True
    modules = code.offers.modules
    text = modules.release.files.read(modules.path(owner.module))
    named = owner.code.sets_named and any(f"{mark}{name}{mark}".encode() in text for mark in "\"'")
    return named or _assigned(name, text)


def _assigned(name: str, text: bytes) -> bool:
    """Return whether a file assigns an attribute of this name to anything, by a statement or by `setattr`."""
    word = re.escape(name.encode())
    return (
        re.search(rb"\.%s\s*(?:,[^=\n]*)?(?::[^=\n]*)?=(?!=)" % word, text) is not None
        or re.search(rb"setattr\([^\n]*[\"']%s[\"']" % word, text) is not None
    )
