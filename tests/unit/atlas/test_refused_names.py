"""A name that a module's `__getattr__` refuses is gone, even where the other names cannot be read."""

from __future__ import annotations

import pytest

from envcheck.atlas.offers import OfferAnswer
from tests.unit.atlas.sources import missing, offers, reader

REFUSED, NO, UNKNOWN, YES = OfferAnswer.REFUSED, OfferAnswer.NO, OfferAnswer.UNKNOWN, OfferAnswer.YES

NUMPY = """
    from . import core
    from .core import *
    from .expired import __expired_attributes__
    _type_info = [("int", "x"), ("float", "y")]
    __former_attrs__ = {n: message.format(n) for n, message in _type_info}
    __future_scalars__ = {"int", "object"}
    def __getattr__(attr):
        if attr == "linalg":
            import numpy.linalg as linalg
            return linalg
        elif attr == "array_api":
            raise AttributeError("gone")
        elif attr == "distutils":
            if old:
                return 1
            raise AttributeError(attr)
        if attr in __future_scalars__:
            warn(attr)
        if attr in __former_attrs__:
            raise AttributeError(__former_attrs__[attr])
        if attr in __expired_attributes__:
            raise AttributeError(attr)
        if attr in ("histograms", "function_base"):
            raise AttributeError(attr)
        raise AttributeError(attr)
"""
MODULES = {
    "numpy/": NUMPY,
    "numpy.core/": "from ._C import *",
    "numpy.core._C": "globals().update(made())",
    "numpy.expired": "__expired_attributes__ = {'float_': 'Use float64.', 'core': 'kept'}",
}


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("float_", REFUSED),
        ("int", REFUSED),
        ("array_api", REFUSED),
        ("function_base", REFUSED),
        ("core", YES),
        ("linalg", UNKNOWN),
        ("distutils", UNKNOWN),
        ("object", UNKNOWN),
        ("float64", UNKNOWN),
    ],
)
def test_only_what_always_raises_is_refused(name: str, answer: OfferAnswer) -> None:
    assert offers("numpy", MODULES).name("numpy", name) is answer


def test_a_refusal_by_name_is_a_gap_although_no_release_is_seen_to_have_it() -> None:
    old = {"numpy/": "from .core import *", "numpy.core/": "globals().update(made())"}
    numpy = reader("numpy", {"1.26.4": old, "2.0.0": MODULES})
    asks = "import numpy as np\nDEFAULT = np.float_\nOTHER = np.float64\n"
    assert missing({"peft/": asks}, numpy) == {"numpy.float_": ("2.0.0",)}


MAKER = """
    REMOVED_IN_V2 = {'pydantic:ConstrainedInt', 'pydantic.utils:to_lower'}
    MOVED = {'pydantic.utils:version_info': 'pydantic.version:version_info'}
    def getattr_migration(module):
        def wrapper(name):
            import_path = f'{module}:{name}'
            if import_path in MOVED.keys():
                return import_string(MOVED[import_path])
            if import_path == 'pydantic:BaseSettings':
                raise PydanticImportError('moved')
            if import_path in REMOVED_IN_V2:
                raise PydanticImportError('removed')
            raise AttributeError(name)
        return wrapper
"""


def test_what_a_made_getattr_refuses_is_refused_in_the_module_that_it_names() -> None:
    modules = {
        "pydantic/": "from ._migration import getattr_migration\n_migrate = getattr_migration(__name__)\ndef __getattr__(name):\n    return _migrate(name)\n",
        "pydantic.utils": "from ._migration import getattr_migration\n__getattr__ = getattr_migration(__name__)\n",
        "pydantic._migration": MAKER,
    }
    pydantic = offers("pydantic", modules)
    assert pydantic.name("pydantic", "BaseSettings") is REFUSED
    assert pydantic.name("pydantic", "ConstrainedInt") is REFUSED
    assert pydantic.name("pydantic", "to_lower") is UNKNOWN
    assert pydantic.name("pydantic.utils", "to_lower") is REFUSED
    assert pydantic.name("pydantic.utils", "version_info") is UNKNOWN


def test_a_module_does_not_become_importable_by_a_getattr() -> None:
    lib = "def __getattr__(attr):\n    if attr in ('function_base',):\n        raise AttributeError(attr)\n"
    numpy = offers("numpy", {"numpy/": "", "numpy.lib/": lib})
    assert numpy.module("numpy.lib.function_base") is NO
    assert numpy.name("numpy.lib.function_base", "disp") is NO


def test_a_name_that_is_bound_is_not_refused() -> None:
    root = "int = 1\ndef __getattr__(attr):\n    if attr == 'int':\n        raise AttributeError(attr)\n"
    assert offers("x", {"x/": root}).name("x", "int") is YES
