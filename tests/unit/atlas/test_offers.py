"""What a release offers: yes and no only where its files prove it, otherwise unknown."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pytest

from envcheck.atlas.offers import OfferAnswer, ReleaseOffers
from envcheck.atlas.predicates import GuardReader
from envcheck.atlas.reader import PackageReader
from envcheck.atlas.release_modules import ReleaseModules
from tests.unit.atlas.sources import SourceFiles, offers, published

YES, NO, UNKNOWN, STUB = OfferAnswer.YES, OfferAnswer.NO, OfferAnswer.UNKNOWN, OfferAnswer.STUB
LAZY_MODULE = "\nimport sys\nsys.modules[__name__] = _LazyModule(__name__, __file__, _import_structure)\n"


def name(root: str, asked: str = "Trainer", **modules: str) -> OfferAnswer:
    """Return whether `from x import asked` works where `x/__init__.py` holds `root`."""
    return offers("x", {"x/": root, **{f"x.{key}": text for key, text in modules.items()}}).name("x", asked)


@pytest.mark.parametrize(
    "root",
    [
        "class Trainer: ...",
        "from .trainer import Trainer",
        "from .trainer import *",
        "from outside import Trainer",
        "Trainer = other = 1",
        "try:\n    from fast import Trainer\nexcept ImportError:\n    Trainer = None\n",
        "if ready():\n    Trainer = 1\nelse:\n    Trainer = 2\n",
        "for Trainer in range(3): ...",
        "globals()['Trainer'] = 1",
    ],
)
def test_a_name_that_the_module_binds_is_offered(root: str) -> None:
    assert name(root, trainer="class Trainer: ...") is YES


@pytest.mark.parametrize(
    "root",
    [
        "",
        "class Other: ...",
        "Trainer = 1\ndel Trainer",
        "from .trainer import *",
        "def make():\n    Trainer = 1\n",
        "if TYPE_CHECKING:\n    from .trainer import Trainer\n",
    ],
)
def test_a_name_that_nothing_binds_is_not_offered(root: str) -> None:
    assert name(root, trainer="__all__ = ['Other']\nclass Trainer: ...\n") is NO


@pytest.mark.parametrize(
    "root",
    [
        "try:\n    from fast import Trainer\nexcept ImportError:\n    pass\n",
        "if ready():\n    Trainer = 1\n",
        "globals().update(make())",
        "from outside import *",
        "def __getattr__(name):\n    return getattr(other, name)\n",
        "def __getattr__(name):\n    if name == 'Trainer':\n        return 1\n    raise AttributeError(name)\n",
        "def (:",
    ],
)
def test_a_name_that_may_be_there_is_unknown(root: str) -> None:
    assert name(root) is UNKNOWN


def test_a_getattr_that_a_function_makes_may_offer_the_names_in_its_module() -> None:
    made = "from ._moved import getter\n__getattr__ = getter(__name__)\n"
    moved = "MOVED = {'x:Trainer': 'x.trainer:Trainer'}\nREDIRECT = {f'x:{one}': one for one in ('Args',)}\n"

    assert name(made, "Trainer", _moved=moved) is UNKNOWN
    assert name(made, "Args", _moved=moved) is UNKNOWN
    assert name(made, "Other", _moved=moved) is NO


def test_a_getattr_of_unknown_origin_may_offer_every_name() -> None:
    assert name("from outside import getter\n__getattr__ = getter(__name__)\n") is UNKNOWN
    assert name("__getattr__ = lambda name: name\n") is UNKNOWN


def test_a_module_whose_function_adds_names_to_it_may_offer_every_name() -> None:
    assert name("@call_aside\ndef fill():\n    globals().update(locals())\n") is UNKNOWN
    assert name("def fill():\n    locals().update(globals())\n") is NO


def test_a_getattr_that_lists_its_names_does_not_offer_others() -> None:
    getter = "def __getattr__(name):\n    if name in ('Old', 'Older'):\n        return 1\n    raise AttributeError(name)\n"
    assert name(getter) is NO
    assert name(getter, "Older") is UNKNOWN


@pytest.mark.parametrize(
    "root",
    [
        "_import_structure = {'trainer': ['Trainer']}" + LAZY_MODULE,
        "_import_structure = {}\n_import_structure['trainer'] = ['Trainer']" + LAZY_MODULE,
        "_import_structure = {'trainer': []}\n_import_structure['trainer'].append('Trainer')" + LAZY_MODULE,
        "_import_structure = {'trainer': []}\n_import_structure['trainer'].extend(['Trainer'])" + LAZY_MODULE,
        "_SUBMOD_ATTRS = {'trainer': ['Trainer']}\n__getattr__, __dir__, _ = _attach(__name__, submod_attrs=_SUBMOD_ATTRS)",
        "__getattr__, __dir__, _ = lazy.attach(__name__, submod_attrs={'trainer': ['Trainer']})",
        "if TYPE_CHECKING:\n    from .trainer import Trainer\nelse:\n    sys.modules[__name__] = _LazyModule(__name__)\n",
        "if TYPE_CHECKING:\n    from .trainer import *\nelse:\n    sys.modules[__name__] = _LazyModule(__name__)\n",
        "sys.modules[__name__] = _LazyModule(__name__, define_import_structure(__file__))",
        "_LAZY = {'Trainer': '.trainer:Trainer'}\ndef __getattr__(name):\n    if name in _LAZY:\n        return load(name)\n    raise AttributeError(name)\n",
    ],
)
def test_each_form_of_a_lazy_table_is_read(root: str) -> None:
    trainer = "__all__ = ['Trainer']\nclass Trainer: ...\n"
    assert name(root, trainer=trainer) is YES
    assert name(root, "Missing", trainer=trainer) is NO
    assert name(root, "trainer", trainer=trainer) is YES


def test_a_scan_finds_what_a_decorator_exports_and_does_not_linger() -> None:
    scanning = "sys.modules[__name__] = _LazyModule(__name__, define_import_structure(__file__))"
    trainer = "@requires(backends=('torch',))\n@other\nclass Trainer: ...\n" + "@requires(x)\n" * 20_000
    assert name(scanning, trainer=trainer) is YES


def test_a_lazy_name_that_its_module_lacks_is_unknown() -> None:
    assert name("_import_structure = {'trainer': ['Trainer']}" + LAZY_MODULE, trainer="") is UNKNOWN


def test_submodules_are_offered_and_missing_modules_are_not() -> None:
    release = offers("x", {"x/": "", "x.sub/": "", "x.sub.deep": ""})
    assert release.module("x.sub.deep") is YES
    assert release.module("x.other") is NO
    assert release.name("x", "sub") is YES
    assert release.name("x.other", "name") is NO
    assert release.attribute("x.sub.deep") is YES
    assert release.attribute("x.sub.Missing") is NO


def test_an_import_name_that_several_distributions_share_may_hold_more() -> None:
    release = offers("google", {"google/protobuf/__init__.py": "", "google/protobuf/message.py": ""})
    assert release.module("google.protobuf.message") is YES
    assert release.module("google.protobuf.gone") is NO
    assert release.module("google.colab") is UNKNOWN
    assert release.module("elsewhere") is UNKNOWN


def test_a_finder_with_a_pattern_may_serve_what_the_pattern_names() -> None:
    root = r"""
    import re, sys
    PATTERN = re.compile(rf"{re.escape(__name__)}\.models\.(\w+)\.image_processing_(?!pil_)(\w+)_fast")
    sys.meta_path.append(Finder(PATTERN))
    """
    release = offers("x", {"x/": root, "x.models/": ""})
    assert release.module("x.models.clip.image_processing_clip_fast") is UNKNOWN
    assert release.module("x.models.clip.modeling_clip") is NO


def test_a_compiled_module_is_there_and_its_names_are_unknown() -> None:
    release = dataclasses.replace(
        published("x", "1", {"x/": "from ._C import *"}), others=("x/_C.cpython-311-x86_64-linux-gnu.so",)
    )
    modules = ReleaseModules(release, ("x",))
    found = ReleaseOffers(modules, GuardReader(modules))
    assert found.module("x._C") is YES
    assert found.name("x._C", "fast") is UNKNOWN
    assert found.name("x", "fast") is UNKNOWN


def test_a_file_that_the_store_left_out_is_there() -> None:
    release = dataclasses.replace(published("x", "1", {"x/": ""}), others=("x/testing/__init__.py",))
    modules = ReleaseModules(release, ("x",))
    assert ReleaseOffers(modules, GuardReader(modules)).name("x.testing", "assert_close") is UNKNOWN


def test_names_that_torch_takes_from_c_are_known_from_stubs_alone() -> None:
    torch = {
        "torch/": "for name in dir(_C):\n    globals()[name] = getattr(_C, name)\nfrom . import nn\ndef compile(): ...\n",
        "torch/_C/__init__.pyi": "float32: dtype = ...\n",
        "torch/_C/_VariableFunctions.pyi": "def add(x): ...\n",
        "torch.nn/": "",
    }
    release = offers("torch", torch)
    assert release.name("torch", "compile") is YES
    assert release.attribute("torch.nn") is YES
    assert release.attribute("torch.float32") is STUB
    assert release.attribute("torch.add") is STUB
    assert release.attribute("torch.invented") is NO
    assert release.attribute("torch.ops.aten.add") is UNKNOWN


def test_the_data_types_of_torch_are_those_that_its_header_lists() -> None:
    head = "#define AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_AND_QINTS(_) \\\n  _(uint8_t, Byte) /* 0 */ \\\n"
    rows = "  _(c10::dummy_int1_7_t<1>, Int1) \\\n  _(c10::complex<c10::Half>, ComplexHalf) \\\n"
    torch = {
        "torch/": "for name in dir(_C):\n    globals()[name] = getattr(_C, name)\n",
        "torch/_C/__init__.pyi": "uint8: dtype = ...\n",
        "torch/_C/_VariableFunctions.pyi": "",
    }
    path = "torch/include/c10/core/ScalarType.h"

    class WithHeader(SourceFiles):
        def names(self) -> Sequence[str]:
            return [*super().names(), path]

        def read(self, name: str) -> bytes:
            last = "  _(at::Float8_e5m2, Float8_e5m2) /* 3 */\n\n#define OTHER(_) _(uint16_t, UInt16)\n"
            return f"{head}{rows}{last}".encode() if name == path else super().read(name)

    listed = dataclasses.replace(published("torch", "2.6.0"), files=WithHeader("torch", torch))
    release = PackageReader("torch", [listed]).offers("2.6.0")
    assert release.attribute("torch.int1") is YES
    assert release.attribute("torch.float8_e5m2") is YES
    assert release.attribute("torch.uint8") is STUB
    assert release.attribute("torch.uint16") is NO
    unlisted = offers("torch", torch)
    assert unlisted.attribute("torch.int1") is UNKNOWN
    assert unlisted.attribute("torch.uint8") is STUB


def test_torch_for_linux_has_distributed() -> None:
    torch = {
        "torch/": "",
        "torch/_C/__init__.pyi": "",
        "torch.distributed/": """
import torch
def is_available():
    return hasattr(torch._C, "_c10d_init")
if is_available():
    from .distributed_c10d import *
""",
        "torch.distributed.distributed_c10d": "__all__ = ['all_reduce']\ndef all_reduce(): ...",
    }
    assert offers("torch", torch).name("torch.distributed", "all_reduce") is YES
    assert offers("torch", torch).name("torch.distributed", "invented") is NO


def test_star_imports_in_a_circle_end() -> None:
    circle = offers("x", {"x/": "from .a import *", "x.a": "from .b import *", "x.b": "from .a import *"})
    assert circle.name("x", "Trainer") is not YES


GRAVEYARD = """
import x.pytorch as pl
from x.pytorch.plugins import Precision

def patch():
    for module_name, old in (("amp", "MixedPlugin"),):
        module = getattr(pl.plugins, module_name)
        setattr(module, old, Precision)
        setattr(pl.plugins, old, Precision)
    setattr(pl, "Gone", Precision)
    setattr(other, "Elsewhere", 1)

patch()
"""


@pytest.mark.parametrize(
    ("module", "asked", "answer"),
    [
        ("x.pytorch.plugins", "MixedPlugin", UNKNOWN),
        ("x.pytorch.plugins.amp", "MixedPlugin", UNKNOWN),
        ("x.pytorch", "Gone", UNKNOWN),
        ("x.pytorch", "MixedPlugin", NO),
        ("x.pytorch.plugins", "Dropped", NO),
        ("x.fabric", "Elsewhere", NO),
    ],
)
def test_a_name_that_another_file_of_the_package_may_put_into_a_module_is_unknown(
    module: str, asked: str, answer: OfferAnswer
) -> None:
    empty = dict.fromkeys(("x/", "x.fabric", "x.pytorch.plugins.amp"), "")
    plugins = {"x.pytorch.plugins/": "class Precision: ..."}
    files = {**empty, **plugins, "x.pytorch/": "from x.pytorch import old", "x.pytorch.old": GRAVEYARD}
    assert offers("x", files).name(module, asked) is answer


def test_a_relative_import_and_a_file_that_is_no_python_are_read_too() -> None:
    patching = "from . import plugins\nsetattr(plugins, 'Old', 1)\n"
    deep = f"setattr(plugins, 'Deep', 1)\ntotal = {'1+' * 20_000}1\n"
    files = {"x/": patching, "x.plugins": "", "x.broken": "setattr(plugins, 'Older', 1", "x.deep": deep}
    assert offers("x", files).name("x.plugins", "Old") is UNKNOWN
    assert offers("x", files).name("x.plugins", "Older") is NO
