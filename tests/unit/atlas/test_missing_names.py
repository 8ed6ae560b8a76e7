"""A release is accused only where its line is reached and the partner's release lacks the name for sure."""

from __future__ import annotations

from envcheck.atlas.gaps import GapKind
from envcheck.atlas.missing_names import find_missing_names
from tests.unit.atlas.sources import Sources, missing, reader

CACHES = {
    "4.40.0": {"transformers/": "from .cache_utils import *", "transformers.cache_utils": "class Cache: ..."},
    "4.44.0": {
        "transformers/": "from .cache_utils import *",
        "transformers.cache_utils": "class Cache: ...\nclass HybridCache: ...",
    },
    "5.0.0": {
        "transformers/": "from .cache_utils import *",
        "transformers.cache_utils": "class Cache: ...",
        "transformers.modeling_layers": "class Layer: ...",
    },
}
TRANSFORMERS = reader("transformers", CACHES)
WANTS_HYBRID = "from transformers import HybridCache"


def test_a_gap_says_who_asks_where_and_who_lacks_it() -> None:
    peft = reader(
        "peft",
        {
            "0.15.0": {"peft/": ""},
            "0.16.0": {"peft/": "from .model import Model", "peft.model": f"import os\n{WANTS_HYBRID}\n"},
            "0.17.0": {"peft/": "from .model import Model", "peft.model": WANTS_HYBRID},
        },
    )
    (gap,) = find_missing_names(peft, TRANSFORMERS)
    assert (gap.kind, gap.package, gap.releases) == (GapKind.NAME, "peft", ("0.16.0", "0.17.0"))
    assert (gap.partner, gap.lacking) == ("transformers", ("4.40.0", "5.0.0"))
    assert (gap.needs, gap.entry) == ("transformers.HybridCache", "import peft")
    assert gap.places == ("peft/model.py:2", "peft/model.py:1")


def test_a_missing_module_is_a_gap_and_so_is_a_missing_attribute() -> None:
    assert missing({"peft/": "from transformers.modeling_layers import Layer"}, TRANSFORMERS) == {
        "transformers.modeling_layers.Layer": ("4.40.0", "4.44.0")
    }
    assert missing({"peft/": "import transformers.modeling_layers"}, TRANSFORMERS) == {
        "transformers.modeling_layers": ("4.40.0", "4.44.0")
    }
    reads = "import transformers\nclass Kept(transformers.cache_utils.HybridCache): ..."
    assert missing({"peft/": reads}, TRANSFORMERS) == {
        "transformers.cache_utils.HybridCache": ("4.40.0", "5.0.0")
    }


def test_a_test_of_the_platform_beside_type_checking_is_decided() -> None:
    """Read `pydantic.RootModel` in gradio 4.18 to 4.38."""
    test = "import sys\nfrom typing import TYPE_CHECKING\nif {} or TYPE_CHECKING:\n    {}\nelse:\n    pass\n"
    runs = test.format("not sys.platform == 'emscripten'", WANTS_HYBRID)
    assert missing({"peft/": runs}, TRANSFORMERS) == {"transformers.HybridCache": ("4.40.0", "5.0.0")}
    for elsewhere in ("sys.platform == 'emscripten'", "SLOW_IMPORT"):
        assert missing({"peft/": test.format(elsewhere, WANTS_HYBRID)}, TRANSFORMERS) == {}


def test_what_the_entry_does_not_import_asks_for_nothing() -> None:
    assert missing({"peft/": "", "peft.rare": WANTS_HYBRID}, TRANSFORMERS) == {}
    assert missing({"peft/": f"def later():\n    {WANTS_HYBRID}\n"}, TRANSFORMERS) == {}


def test_the_module_behind_a_lazy_name_is_imported_only_by_who_takes_it() -> None:
    lazy = {
        "peft/": "import sys\n_import_structure = {'rare': ['Rare'], 'model': ['get_peft_model']}\n"
        "sys.modules[__name__] = _LazyModule(__name__, _import_structure)",
        "peft.model": "def get_peft_model(): ...",
        "peft.rare": f"{WANTS_HYBRID}\nclass Rare: ...",
    }
    assert missing(lazy, TRANSFORMERS) == {}
    takes = {**lazy, "peft.model": "from . import Rare\ndef get_peft_model(): ..."}
    (gap,) = find_missing_names(reader("peft", {"1.0": takes}), TRANSFORMERS)
    assert (gap.entry, gap.places) == ("from peft import get_peft_model", ("peft/rare.py:1",))


def test_an_entry_that_adds_nothing_to_another_is_not_named_again() -> None:
    peft = {"peft/": f"{WANTS_HYBRID}\ndef get_peft_model(): ..."}
    assert [gap.entry for gap in find_missing_names(reader("peft", {"1.0": peft}), TRANSFORMERS)] == [
        "import peft"
    ]


def test_a_guard_on_the_partners_version_is_respected() -> None:
    good = """
import transformers
from packaging import version
if version.parse(transformers.__version__) >= version.parse("4.44"):
    from transformers import HybridCache
"""
    assert missing({"peft/": good}, TRANSFORMERS) == {"transformers.HybridCache": ("5.0.0",)}


def test_an_unknown_guard_gives_no_verdict() -> None:
    assert missing({"peft/": f"if is_monday():\n    {WANTS_HYBRID}\n"}, TRANSFORMERS) == {}


def entries(peft: str, requires: tuple[str, ...] = ()) -> list[str]:
    gaps = find_missing_names(reader("peft", {"1.0": {"peft/": peft}}, requires=requires), TRANSFORMERS)
    return [gap.entry for gap in gaps]


def test_a_guard_on_a_third_package_is_named_unless_it_is_required() -> None:
    guarded = (
        f"from transformers.utils import is_vllm_available\nif is_vllm_available():\n    {WANTS_HYBRID}\n"
    )
    assert entries(guarded) == ["import peft beside vllm"]
    assert entries(guarded, requires=("vllm",)) == ["import peft"]
    of_no_package = guarded.replace("vllm", "somewhere")
    assert entries(of_no_package) == []
    without_it = guarded.replace("if is_vllm", "if not is_vllm")
    assert entries(without_it) == []
    in_a_release = guarded.replace("available():", 'available("0.9"):')
    assert entries(in_a_release) == []


def test_what_fails_anyway_is_not_told_beside_a_third_package() -> None:
    both = f"from transformers.utils import is_vllm_available\n{WANTS_HYBRID}\nif is_vllm_available():\n    {WANTS_HYBRID}\n"
    assert entries(both) == ["import peft"]


def test_code_for_another_device_asks_beside_its_package() -> None:
    device = "import torch\nfrom transformers.utils import is_torch_npu_available\n"
    npu = f"{device}if is_torch_npu_available():\n    {WANTS_HYBRID}\n"
    assert entries(npu) == ["import peft beside torch-npu"]
    second = f"{device}if torch.cuda.is_available():\n    import flash_attn\nelif torch.npu.is_available():\n    {WANTS_HYBRID}\n"
    assert entries(second) == ["import peft beside torch-npu"]
    added = f"{device}if hasattr(torch, 'npu'):\n    {WANTS_HYBRID}\n"
    assert entries(added) == ["import peft beside torch-npu"]
    function = "callable(getattr(torch.{}, 'is_available', None))"
    called = f"{device}if hasattr(torch, 'npu') and {function}:\n    {WANTS_HYBRID}\n"
    assert entries(called.format("npu")) == ["import peft beside torch-npu"]
    assert entries(called.format("cuda").replace("'npu'", "'cuda'")) == []
    everywhere_else = f"{device}if not is_torch_npu_available():\n    {WANTS_HYBRID}\n"
    assert entries(everywhere_else) == ["import peft"]
    with_cuda = f"{device}if torch.cuda.is_available():\n    {WANTS_HYBRID}\n"
    assert entries(with_cuda) == []


def test_below_a_hidden_minimum_the_partner_counts_as_absent() -> None:
    transformers = {
        "transformers/": "from .trainer import Trainer",
        "transformers.utils": """
import importlib.util, importlib.metadata
from packaging import version
def is_accelerate_available(min_version="0.26.0"):
    found = importlib.util.find_spec("accelerate") is not None
    return found and version.parse(importlib.metadata.version("accelerate")) >= version.parse(min_version)
""",
        "transformers.trainer": "from .utils import is_accelerate_available\nif is_accelerate_available():\n    from accelerate.utils import clear_device_cache\nclass Trainer: ...",
    }
    accelerate = reader(
        "accelerate",
        {
            "0.20.0": {"accelerate/": "", "accelerate.utils": ""},
            "0.26.0": {"accelerate/": "", "accelerate.utils": ""},
            "1.0.0": {"accelerate/": "", "accelerate.utils": "def clear_device_cache(): ..."},
        },
    )
    asking = reader("transformers", {"4.50.0": transformers})
    assert missing(asking, accelerate) == {"accelerate.utils.clear_device_cache": ("0.26.0",)}


def test_a_predicate_of_the_partner_itself_keeps_every_minimum_of_its_releases() -> None:
    def utils(minimum: str) -> str:
        return f"""
import importlib.util, importlib.metadata
from packaging import version
def is_accelerate_available():
    found = importlib.util.find_spec("accelerate") is not None
    return found and version.parse(importlib.metadata.version("accelerate")) >= version.parse("{minimum}")
"""

    transformers = reader(
        "transformers",
        {
            "4.1.0": {"transformers/": "", "transformers.utils": utils("0.20")},
            "4.2.0": {"transformers/": "", "transformers.utils": utils("0.26")},
        },
    )
    accelerate = reader(
        "accelerate",
        {
            "0.10": {"accelerate/": ""},
            "0.22": {"accelerate/": ""},
            "0.30": {"accelerate/": ""},
            "1.0": {"accelerate/": "new = 1"},
        },
    )
    peft = reader(
        "peft",
        {
            "1.0": {
                "peft/": "from transformers.utils import is_accelerate_available\nif is_accelerate_available():\n    from accelerate import new"
            }
        },
        requires=("transformers",),
    )
    peft.others = {"transformers": transformers}
    assert missing(peft, accelerate) == {"accelerate.new": ("0.30",)}


def test_a_fallback_is_asked_for_only_where_the_first_import_fails() -> None:
    source = """
try:
    from transformers import HybridCache
except ImportError:
    from transformers.modeling_layers import Layer as HybridCache
"""
    assert missing({"peft/": source}, TRANSFORMERS) == {"transformers.modeling_layers.Layer": ("4.40.0",)}


def test_a_name_that_no_release_offers_is_the_readers_blindness() -> None:
    assert missing({"peft/": "from transformers import NeverSeen"}, TRANSFORMERS) == {}


def test_a_hole_is_the_readers_blindness_too() -> None:
    def root(text: str) -> dict[str, str]:
        return {"transformers/": text}

    holed = reader(
        "transformers", {"1.0": root("Odd = 1"), "2.0": root(""), "3.0": root("Odd = 1"), "4.0": root("")}
    )
    assert missing({"peft/": "from transformers import Odd"}, holed) == {}


def test_a_hole_in_a_plain_module_is_true() -> None:
    plain = {"transformers/": "", "transformers.activations": "class Odd: pass"}
    gone = {"transformers/": "", "transformers.activations": "class Even: pass"}
    asking: Sources = {"peft/": "from transformers.activations import Odd"}
    holed = reader("transformers", {"4.56.0": plain, "4.57.0": gone, "5.0.0": plain})
    assert missing(asking, holed) == {"transformers.activations.Odd": ("4.57.0",)}
    for other in ("from .more import *", "globals().update(found)", "def __getattr__(name): return 1"):
        made = {**gone, "transformers.activations": other, "transformers.more": ""}
        unsure = reader("transformers", {"4.56.0": plain, "4.57.0": gone, "4.58.0": made, "5.0.0": plain})
        assert missing(asking, unsure) == {}


def test_a_module_that_its_distribution_dropped_is_missing_if_no_other_has_it() -> None:
    setuptools = reader(
        "setuptools",
        {"81.0.0": {"setuptools/": "", "pkg_resources/": ""}, "82.0.0": {"setuptools/": ""}, "83.0.0": {}},
    )
    lightning = reader(
        "lightning", {"2.0": {"lightning/": "", "lightning_fabric/": ""}, "2.1": {"lightning/": ""}}
    )

    assert missing({"peft/": "import pkg_resources"}, setuptools) == {"pkg_resources": ("82.0.0", "83.0.0")}
    assert (
        missing({"peft/": "try:\n    import pkg_resources\nexcept ImportError:\n    pass"}, setuptools) == {}
    )
    assert missing({"peft/": "import lightning_fabric"}, lightning) == {}


def test_a_name_made_in_c_gives_no_verdict() -> None:
    def torch(stub: str) -> dict[str, str]:
        return {
            "torch/": "for n in dir(_C):\n    globals()[n] = getattr(_C, n)",
            "torch/_C/__init__.pyi": stub,
        }

    releases = reader("torch", {"2.0": torch(""), "2.1": torch("float8: dtype = ...")})
    assert missing({"peft/": "import torch\nKIND = torch.float8"}, releases) == {}


def test_pre_releases_give_no_verdict() -> None:
    partner = reader(
        "transformers", {"4.0.0rc1": {"transformers/": ""}, "4.0.0": {"transformers/": "New = 1"}}
    )
    assert missing({"peft/": "from transformers import New"}, partner) == {}


def test_dummies_behind_an_absent_package_are_offered() -> None:
    root = """
_import_structure = {}
try:
    if not is_torch_available():
        raise OptionalDependencyNotAvailable()
except OptionalDependencyNotAvailable:
    from .utils import dummy_pt_objects
    _import_structure["utils.dummy_pt_objects"] = [name for name in dir(dummy_pt_objects)]
else:
    _import_structure["trainer"] = ["Trainer"]
sys.modules[__name__] = _LazyModule(__name__, _import_structure)
"""
    partner = reader(
        "transformers",
        {
            "4.0": {"transformers/": ""},
            "4.1": {"transformers/": root, "transformers.trainer": "class Trainer: ..."},
        },
    )
    assert missing({"peft/": "from transformers import Trainer"}, partner) == {
        "transformers.Trainer": ("4.0",)
    }


def test_a_scanned_model_is_a_dummy_where_torch_is_too_old() -> None:
    utils = """
import importlib.util, importlib.metadata
from packaging import version
def is_torch_available():
    found = importlib.util.find_spec("torch") is not None
    return found and version.parse(importlib.metadata.version("torch")) >= version.parse("2.1")
"""
    transformers = {
        "transformers/": "sys.modules[__name__] = _LazyModule(__name__, define_import_structure(__file__))",
        "transformers.utils/": "",
        "transformers.utils.import_utils": utils,
        "transformers.models.llama/": "",
        "transformers.models/": "",
        "transformers.models.llama.modeling_llama": "from torch.compiler import disable\n"
        "__all__ = ['LlamaForCausalLM']\nclass LlamaForCausalLM: ...",
    }
    asking = reader("transformers", {"4.52.0": transformers})
    torch = reader(
        "torch",
        {
            version: {"torch/": "", "torch.compiler": text}
            for version, text in (("2.0.1", ""), ("2.1.0", ""), ("2.4.0", "def disable(): ..."))
        },
    )
    assert missing(asking, torch) == {"torch.compiler.disable": ("2.1.0",)}


def test_of_two_trainer_classes_neither_stands_for_the_other() -> None:
    lazy = {
        "trl/": "import sys\n_import_structure = {'sft': ['SFTTrainer'], 'dpo': ['DPOTrainer', 'DPOConfig']}\n"
        "sys.modules[__name__] = _LazyModule(__name__, _import_structure)",
        "trl.sft": f"{WANTS_HYBRID}\nclass SFTTrainer: ...",
        "trl.dpo": f"{WANTS_HYBRID}\nclass DPOTrainer: ...\nclass DPOConfig: ...",
    }
    gaps = find_missing_names(reader("trl", {"1.0": lazy}), TRANSFORMERS)
    assert [gap.entry for gap in gaps] == ["from trl import SFTTrainer", "from trl import DPOTrainer"]


def versions_of(**names: str) -> dict[str, Sources]:
    """Return releases of transformers by version, `v5_0_0rc0`, each with the classes of its cache."""
    return {
        version.removeprefix("v").replace("_", "."): {
            "transformers/": "from .cache_utils import *",
            "transformers.cache_utils": "".join(f"class {name}: ...\n" for name in classes.split()),
        }
        for version, classes in names.items()
    }


def test_a_published_candidate_is_read_as_any_release() -> None:
    releases = versions_of(
        v4_57_0="Cache HybridCache", v5_0_0rc0="Cache HybridCache", v5_0_0rc1="Cache", v5_0_0="Cache"
    )
    transformers = reader("transformers", releases)
    assert missing({"peft/": WANTS_HYBRID}, transformers) == {
        "transformers.HybridCache": ("5.0.0rc1", "5.0.0")
    }


def test_what_candidates_alone_lack_takes_no_row_from_the_releases() -> None:
    both = "Cache HybridCache"
    releases = versions_of(v4_40_0="Cache", v4_57_0=both, v5_0_0rc0="Cache", v5_0_0rc1="Cache", v5_0_0=both)
    transformers = reader("transformers", releases)
    assert missing({"peft/": WANTS_HYBRID}, transformers) == {"transformers.HybridCache": ("4.40.0",)}


def test_a_guard_on_a_candidates_own_release_gives_no_verdict() -> None:
    releases = versions_of(v4_57_0="Cache HybridCache", v5_0_0rc1="Cache", v5_0_0="Cache")
    transformers = reader("transformers", releases)
    guarded = f"""
import transformers
from packaging import version
if version.parse(version.parse(transformers.__version__).base_version) >= version.parse("5.0.0"):
    {WANTS_HYBRID}
"""
    assert missing({"peft/": guarded}, transformers) == {"transformers.HybridCache": ("5.0.0",)}


def test_a_handler_for_missing_modules_lets_a_missing_name_pass() -> None:
    caught = (
        "try:\n    from transformers.{module} import {name}\nexcept ModuleNotFoundError:\n    {name} = None\n"
    )
    hybrid = {"peft/": caught.format(module="cache_utils", name="HybridCache")}
    assert missing(hybrid, TRANSFORMERS) == {"transformers.cache_utils.HybridCache": ("4.40.0", "5.0.0")}
    layer = {"peft/": caught.format(module="modeling_layers", name="Layer")}
    assert missing(layer, TRANSFORMERS) == {}
    own = {
        "peft/": "try:\n    from peft.cache import Kept\nexcept ModuleNotFoundError:\n    pass\n",
        "peft.cache": f"import transformers.modeling_layers\n{WANTS_HYBRID}\nclass Kept: ...",
    }
    assert missing(own, TRANSFORMERS) == {}


def test_a_handler_for_another_error_catches_no_failed_import() -> None:
    caught = f"try:\n    {WANTS_HYBRID}\nexcept {{}}:\n    HybridCache = None\n"
    for error in ("RuntimeError", "(OSError, KeyError)"):
        assert missing({"peft/": caught.format(error)}, TRANSFORMERS) == {
            "transformers.HybridCache": ("4.40.0", "5.0.0")
        }
    for error in ("Exception", "ImportError", "(RuntimeError, ImportError)"):
        assert missing({"peft/": caught.format(error)}, TRANSFORMERS) == {}
