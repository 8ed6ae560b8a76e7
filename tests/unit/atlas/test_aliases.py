"""An old name that a package serves at run time counts as there, and what it stands for is followed."""

from __future__ import annotations

import textwrap

import pytest

from envcheck.atlas.offers import OfferAnswer
from envcheck.atlas.release_modules import ReleaseModules
from envcheck.atlas.summary import FileSummary
from tests.unit.atlas.releases import release
from tests.unit.atlas.sources import missing, offers, published, reader

YES, NO, UNKNOWN = OfferAnswer.YES, OfferAnswer.NO, OfferAnswer.UNKNOWN

TORCH = {
    "torch/": "",
    "torch.distributed/": "",
    "torch.distributed._tensor/": """
        import sys
        from importlib import import_module
        submodules = ["device_mesh", "experimental"]
        for submodule in submodules:
            full_module_name = f"torch.distributed.tensor.{submodule}"
            sys.modules[f"torch.distributed._tensor.{submodule}"] = import_module(
                full_module_name
            )
        from torch.distributed.tensor import DTensor
    """,
    "torch.distributed.tensor/": "class DTensor: ...",
    "torch.distributed.tensor.device_mesh": "class DeviceMesh: ...",
    "torch.distributed.tensor.experimental/": "",
    "torch.distributed.tensor.experimental.deep": "class Deep: ...",
    "torch.distributed.tensor.ops": "",
}


def test_a_loop_over_texts_serves_each_of_them() -> None:
    torch = offers("torch", TORCH)
    assert torch.module("torch.distributed._tensor.device_mesh") is YES
    assert torch.name("torch.distributed._tensor.device_mesh", "DeviceMesh") is YES
    assert torch.name("torch.distributed._tensor", "device_mesh") is YES
    assert torch.name("torch.distributed._tensor.device_mesh", "Gone") is NO
    assert torch.module("torch.distributed._tensor.ops") is NO


def test_a_name_below_an_old_one_lies_below_its_target() -> None:
    torch = offers("torch", TORCH)
    assert torch.name("torch.distributed._tensor.experimental.deep", "Deep") is YES
    assert torch.module("torch.distributed._tensor.experimental.gone") is NO


def test_a_gap_stands_where_the_target_lacks_the_name() -> None:
    old = {
        "torch/": "",
        "torch.distributed/": "",
        "torch.distributed._tensor/": "",
        "torch.distributed._tensor.device_mesh": "class DeviceMesh: ...\ndef get_global(): ...",
    }
    torch = reader("torch", {"2.4.0": old, "2.5.0": TORCH})
    asks = "from torch.distributed._tensor.device_mesh import DeviceMesh, get_global"
    assert missing({"peft/": asks}, torch) == {"torch.distributed._tensor.device_mesh.get_global": ("2.5.0",)}


FUNCTION = """
    import importlib, sys, types
    def _create_module_alias(alias, target):
        module = types.ModuleType(alias)
        def _get_target():
            return importlib.import_module(target, __name__)
        module.__getattr__ = lambda name: getattr(_get_target(), name)
        sys.modules[alias] = module
    _create_module_alias(f"{__name__}.old", ".new")
    for file in sorted(Path(__file__).rglob("image_*.py")):
        _create_module_alias(f"{__name__}.models.{file.stem}_fast", f".models.{file.stem}")
"""


def test_a_function_that_serves_what_it_is_given_is_followed() -> None:
    x = offers("x", {"x/": FUNCTION, "x.new": "class Kept: ...", "x.models/": ""})
    assert x.name("x.old", "Kept") is YES
    assert x.name("x.old", "Gone") is NO
    assert x.name("x", "old") is YES


def test_a_part_of_a_name_that_cannot_be_read_stands_for_any_word() -> None:
    x = offers("x", {"x/": FUNCTION, "x.new": "", "x.models/": ""})
    assert x.module("x.models.image_clip_fast") is YES
    assert x.name("x.models.image_clip_fast", "Any") is UNKNOWN
    assert x.module("x.models.image_clip_slow") is NO


HOOK = """
    import importlib.abc, sys
    PATHS = {
        "x.losses": "x.model.losses",
        "x.losses.Triplet": "x.model.losses.triplet",
        "x.gone": "x.nowhere",
    }
    class _Finder(importlib.abc.MetaPathFinder):
        def find_spec(self, name, path, target=None): ...
    def setup_deprecated_module_imports():
        sys.meta_path.insert(0, _Finder())
"""


def test_the_table_of_an_import_hook_is_followed() -> None:
    modules = {
        "x/": "from x.util.deprecated_import import setup_deprecated_module_imports\nsetup_deprecated_module_imports()",
        "x.util/": "",
        "x.util.deprecated_import": HOOK,
        "x.model/": "",
        "x.model.losses/": "class Triplet: ...",
        "x.model.losses.triplet": "class Triplet: ...\nclass Margin: ...",
    }
    x = offers("x", modules)
    assert x.name("x", "losses") is YES
    assert x.name("x.losses", "Triplet") is YES
    assert x.name("x.losses.Triplet", "Margin") is YES
    assert x.name("x.losses.Triplet", "Never") is NO
    assert x.module("x.gone") is UNKNOWN, "its target is not there, but the hook may serve it"
    assert x.module("x.never") is NO


def test_a_name_served_by_a_small_wheel_is_followed() -> None:
    from envcheck.atlas.entries import import_names
    from envcheck.atlas.reader import PackageReader

    assert import_names("sentence-transformers") == ("sentence_transformers",)
    root = b"from .hook import setup\nsetup()\n"
    hook = b"import sys\nOLD = {'sentence_transformers.datasets': 'sentence_transformers.base.datasets'}\n"
    hook += b"def setup():\n    sys.meta_path.append(Finder(OLD))\n"
    new = release(
        "sentence-transformers",
        "5.4.0",
        more={
            "sentence_transformers/__init__.py": root,
            "sentence_transformers/hook.py": hook,
            "sentence_transformers/base/__init__.py": b"",
            "sentence_transformers/base/datasets.py": b"class SentenceLabelDataset: ...\n",
        },
    )
    old = release(
        "sentence-transformers",
        "5.3.0",
        more={
            "sentence_transformers/__init__.py": b"",
            "sentence_transformers/datasets.py": b"class SentenceLabelDataset: ...\nclass Older: ...\n",
        },
    )
    partner = PackageReader("sentence-transformers", [old, new])
    asks = "from sentence_transformers.datasets import SentenceLabelDataset, Older"
    assert missing({"peft/": asks}, partner) == {"sentence_transformers.datasets.Older": ("5.4.0",)}


@pytest.mark.parametrize(
    "registers",
    [
        "sys.modules['x.old'] = new",
        "sys.modules[__name__ + '.old'] = new",
        "sys.modules[f'{__name__}.old'] = sys.modules['x.new']",
        "sys.modules.setdefault('x.old', new)",
        "sys.modules.update({'x.old': new})",
        "for old, target in {'x.old': '.new'}.items():\n    sys.modules[old] = import_module(target, __name__)",
        "if True:\n    globals()['old'] = sys.modules['x.old'] = new",
        "sys.modules[\n    'x.old'\n] = new",
    ],
)
@pytest.mark.parametrize("file", ["x/", "x.compat"])
def test_each_way_to_register_a_module_is_read(registers: str, file: str) -> None:
    if file != "x/" and "__name__" in registers:
        registers = (
            registers.replace("__name__ + ", "'x' + ").replace("{__name__}", "x").replace("__name__", "'x'")
        )
    code = f"import sys\nfrom importlib import import_module\nfrom . import new\n{registers}\n"
    x = offers("x", {"x/": "", "x.new": "class Kept: ...", file: code})
    assert x.name("x.old", "Kept") is YES
    assert x.name("x.old", "Gone") is NO


@pytest.mark.parametrize(
    "reads",
    [
        "module = sys.modules[name]",
        "module = sys.modules.get(name)",
        "for module in list(sys.modules.values()): ...",
        "del sys.modules[name]",
        "if 'x' in sys.modules: ...",
    ],
)
def test_a_file_that_only_reads_the_loaded_modules_is_not_opened_for_old_names(reads: str) -> None:
    modules = {
        "x/": "import sys\nsys.modules[__name__] = LazyModule()\n",
        "x.deep": "import sys\nsys.modules['x.old'] = make()\n",
        "x.reads": f"import sys\ndef later(name):\n    {reads}\n",
    }
    cache: dict[str, FileSummary] = {}
    x = ReleaseModules(published("x", "1.0", modules), ("x",), cache)
    assert x.alias("x.old") == ""
    assert x.alias("x.never") is None
    assert len(cache) == 1, "the file that registers x.old"


def test_a_module_of_unread_origin_is_there_and_its_names_are_unknown() -> None:
    x = offers("x", {"x/": "import sys\nsys.modules['x.old'] = make()\n"})
    assert x.module("x.old") is YES
    assert x.name("x.old", "Any") is UNKNOWN


def test_a_name_that_cannot_be_read_may_be_any_word_of_the_file() -> None:
    x = offers("x", {"x/": "import sys\nOLD = ['old']\ndef later(name):\n    sys.modules[name] = make()\n"})
    assert x.module("x.old") is UNKNOWN
    assert x.module("x.never") is NO


def test_a_module_that_puts_another_in_its_place_offers_the_names_of_that() -> None:
    old = "import sys\nimport x.new as _new\nsys.modules['x.old'] = _new\n"
    x = offers("x", {"x/": "", "x.old/": old, "x.new/": "class Kept: ...", "x.new.deep": "class Deep: ..."})
    assert x.name("x.old", "Kept") is YES
    assert x.name("x.old", "Gone") is NO
    assert x.name("x.old.deep", "Deep") is YES


def test_a_module_that_puts_an_object_in_its_place_may_offer_the_words_of_its_file() -> None:
    own = textwrap.dedent("""
        import sys, types
        class Backend(types.ModuleType):
            enabled = Property()
        sys.modules[__name__] = Backend(sys.modules[__name__], __name__)
    """)
    x = offers("x", {"x/": "", "x.backend": own})
    assert x.name("x.backend", "enabled") is UNKNOWN
    assert x.name("x.backend", "never") is NO


def test_relative_imports_of_a_module_under_an_old_name_begin_at_its_own_place() -> None:
    modules = {
        "x/": "import sys\nfrom .inner import new\nsys.modules['x.old'] = new\n",
        "x.inner/": "",
        "x.inner.new": "from .base import Base",
        "x.inner.base": "class Base: ...",
    }
    assert offers("x", modules).name("x.old", "Base") is YES


def test_a_getattr_made_with_a_table_beside_it_may_offer_the_names_in_the_table() -> None:
    modules = {
        "x/": "from .deprecation import deprecate_attr\n__getattr__ = deprecate_attr(__name__, rename={'Old': (New, '5.29.0')})\n",
        "x.deprecation": "def deprecate_attr(module, rename): ...",
    }
    assert offers("x", modules).name("x", "Old") is UNKNOWN
    assert offers("x", modules).name("x", "Never") is NO


def test_a_name_of_which_nothing_can_be_read_stands_for_no_other() -> None:
    root = """
        import sys
        from x._C import *
        for attr in dir(_C):
            candidate = getattr(_C, attr)
            sys.modules[f"x._C.{attr}"] = candidate
    """
    assert offers("x", {"x/": root, "x/_C.pyi": "def add(): ..."}).name("x", "compile") is NO
