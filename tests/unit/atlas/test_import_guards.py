"""Versions that a package's own code refuses on import, and those it only seems to refuse."""

from __future__ import annotations

from envcheck.atlas.gaps import GapKind
from envcheck.atlas.reader import PackageReader
from tests.unit.atlas.sources import guarded, reader

TORCH = reader("torch", {"1.13.0": {}, "2.0.0": {}, "2.4.0": {}})
NUMPY = reader("numpy", {"1.16.0": {}, "1.26.0": {}, "2.0.0": {}})
ACCELERATE = reader("accelerate", {"0.10.0": {}, "0.26.0": {}})

TABLE = "deps = {'numpy': 'numpy>=1.17,<2.0', 'accelerate': 'accelerate>=0.26.0', 'torch': 'torch>=2.4'}"
CHECK = """
from .dependency_versions_table import deps
from .utils.versions import require_version, require_version_core
checked = ["python", "numpy", "accelerate"]
for pkg in checked:
    if pkg in deps:
        if pkg == "accelerate":
            from .utils import is_accelerate_available
            if not is_accelerate_available():
                continue
        require_version_core(deps[pkg])
    else:
        raise ValueError(pkg)
def dep_version_check(pkg, hint=None):
    require_version(deps[pkg], hint)
"""
UTILS = """
import importlib.util, importlib.metadata
from packaging import version
def is_accelerate_available(min_version="0.26.0"):
    found = importlib.util.find_spec("accelerate") is not None
    return found and version.parse(importlib.metadata.version("accelerate")) >= version.parse(min_version)
"""
CHECKED = {
    "transformers/": "from . import dependency_versions_check",
    "transformers.dependency_versions_table": TABLE,
    "transformers.dependency_versions_check": CHECK,
    "transformers.utils/": UTILS,
    "transformers.utils.versions": "",
}


def test_a_requirement_of_the_run_time_table_is_a_guard() -> None:
    (gap,) = guarded(CHECKED, NUMPY)
    assert (gap.kind, gap.package, gap.entry) == (GapKind.GUARD, "transformers", "import transformers")
    assert (gap.needs, gap.lacking) == ("numpy<2.0,>=1.17", ("1.16.0", "2.0.0"))
    assert gap.places == ("transformers/dependency_versions_check.py:11",)


def test_a_package_that_the_loop_skips_below_its_minimum_is_not_refused() -> None:
    assert guarded(CHECKED, ACCELERATE) == []


def test_a_package_that_the_loop_does_not_name_is_not_refused() -> None:
    assert guarded(CHECKED, TORCH) == []


def test_a_check_at_module_level_is_a_guard_and_one_in_a_function_is_not() -> None:
    for check in ("require_version('torch>=2.0')", "require_version('torch>=2.0', 'pip install torch')"):
        (gap,) = guarded({"transformers/": check}, TORCH)
        assert (gap.needs, gap.lacking) == ("torch>=2.0", ("1.13.0",))
        assert guarded({"transformers/": f"def later():\n    {check}\n"}, TORCH) == []


def test_a_check_by_the_name_in_the_table_is_a_guard() -> None:
    root = "from .dependency_versions_check import dep_version_check\ndep_version_check('torch')"
    (gap,) = guarded({**CHECKED, "transformers/": root}, TORCH)
    assert (gap.needs, gap.lacking) == ("torch>=2.4", ("1.13.0", "2.0.0"))


def test_a_raise_under_a_version_test_is_a_guard() -> None:
    source = """
import torch
from packaging.version import Version
if Version(torch.__version__) < Version("2.0"):
    raise ImportError("torch is too old")
"""
    (gap,) = guarded({"transformers/": source}, TORCH)
    assert (gap.needs, gap.lacking, gap.places) == (
        "torch>=2.0",
        ("1.13.0",),
        ("transformers/__init__.py:5",),
    )


def test_a_raise_that_is_caught_or_not_understood_is_no_guard() -> None:
    caught = """
import torch
try:
    if torch.__version__ < "2.0":
        raise ImportError("old")
    more()
except ImportError:
    torch = None
"""
    unknown = "import torch\nif torch.__version__ < '2.0' and strict():\n    raise ImportError('old')\n"
    for source in (caught, unknown):
        assert guarded({"transformers/": source}, TORCH) == []


def test_a_guard_in_a_module_that_no_entry_imports_is_not_read() -> None:
    assert guarded({"transformers/": "", "transformers.rare": "require_version('torch>=2.0')"}, TORCH) == []


PROTOBUF = reader("protobuf", {"3.20.3": {}, "4.25.9": {}, "5.29.4": {}, "6.30.0": {}})


def test_the_first_character_of_a_version_is_not_the_version() -> None:
    source = """
import google.protobuf
found = google.protobuf.__version__[0]
if found == "4":
    from wandb.proto import v4
elif found == "5":
    from wandb.proto import v5
else:
    raise ImportError("wandb only works with 4 and 5")
"""
    (gap,) = guarded({"transformers/": source}, PROTOBUF)
    assert (gap.needs, gap.lacking) == ("protobuf", ("3.20.3", "6.30.0"))


def test_a_slice_of_the_text_of_a_version_is_not_read() -> None:
    source = """
import torch
if torch.__version__[:3] != "2.0":
    raise ImportError("another torch")
"""
    assert guarded({"transformers/": source}, TORCH) == []


def test_a_list_of_supported_versions_is_named_by_its_package() -> None:
    source = """
from importlib.metadata import version
found = version("protobuf")
if found == "3.20.3":
    from wandb.proto import v3
elif found == "4.25.9":
    from wandb.proto import v4
else:
    raise ValueError("3.20.3 and 4.25.9 are supported")
"""
    (gap,) = guarded({"transformers/": source}, PROTOBUF)
    assert (gap.needs, gap.lacking) == ("protobuf", ("5.29.4", "6.30.0"))


def test_a_refusal_that_a_third_package_decides_is_none() -> None:
    source = """
import torch, xformers
from packaging.version import Version
if Version(torch.__version__) < Version("2.4") and Version(xformers.__version__) > Version("0.0.27"):
    raise ImportError("another xformers")
"""
    assert guarded({"transformers/": source}, TORCH, requires=("torch", "xformers>=0.0.27.post2")) == []


HELPERS = """
import os
from importlib.metadata import version
from packaging.version import Version
from transformers.utils.versions import require_version
def is_enabled(name, default="0"):
    return os.getenv(name, default).lower() in ["true", "1"]
def check(requirement, mandatory=False):
    if is_enabled("NO_CHECK") and not mandatory:
        warn("not checked")
        return
    if "numpy" in requirement:
        command = "pip install"
    require_version(requirement, "To fix: " + requirement)
def check_all():
    check("torch>=2.0")
    check(requirement="numpy<2")
def check_torch(least):
    if Version(version("torch")) < Version(least):
        raise ImportError(least)
def check_each():
    for requirement in ("torch>=2.0", "numpy<2"):
        require_version(requirement)
"""


def test_the_line_that_names_the_requirement_is_the_place() -> None:
    modules = {
        "transformers/": "from .helpers import check_all\ncheck_all()",
        "transformers.helpers": HELPERS,
    }
    (gap,) = guarded(modules, TORCH)
    line = HELPERS.splitlines().index('    check("torch>=2.0")') + 1
    assert gap.places == (f"transformers/helpers.py:{line}",)


def called(call: str, partner: PackageReader = TORCH) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return what a module refuses of torch that calls a function of another one."""
    root = f"from .helpers import *\nfrom .helpers import check_all, check_torch, check_each\n{call}"
    found = guarded({"transformers/": root, "transformers.helpers": HELPERS}, partner)
    return [(gap.entry, gap.needs, gap.lacking) for gap in found]


def test_a_check_in_a_function_that_the_module_calls_is_a_guard() -> None:
    assert called("check_torch('2.0')") == [("import transformers", "torch>=2.0", ("1.13.0",))]
    assert called("check_each()") == [("import transformers", "torch>=2.0", ("1.13.0",))]
    assert called("check_each()", NUMPY) == [("import transformers", "numpy<2", ("2.0.0",))]


def test_a_variable_that_turns_a_check_off_is_a_part_of_the_entry() -> None:
    entry = "import transformers without NO_CHECK"
    assert called("check_all()") == [(entry, "torch>=2.0", ("1.13.0",))]
    assert called("check_all()", NUMPY) == [(entry, "numpy<2", ("2.0.0",))]


def test_a_variable_in_the_test_around_a_raise_is_a_part_of_the_entry_too() -> None:
    source = """
import os, torch
if torch.__version__ < "2.0" and os.environ.get("IGNORE", "0") != "1":
    raise ImportError("old")
"""
    (gap,) = guarded({"transformers/": source}, TORCH)
    assert (gap.entry, gap.lacking) == ("import transformers without IGNORE", ("1.13.0",))


def test_a_check_of_a_function_that_is_not_called_on_import_is_no_guard() -> None:
    for call in ("", "def later():\n    check_all()", "if unknown():\n    check_all()"):
        assert called(call) == []
    caught = "try:\n    check_all()\nexcept ImportError:\n    pass"
    assert called(caught) == []


def test_a_function_that_may_return_before_its_check_refuses_nothing() -> None:
    for start in (
        "if unknown():\n        return",
        "try:\n        import x\n    except ImportError:\n        return",
    ):
        helper = f"""
def check():
    {start}
    require_version("torch>=2.0")
"""
        assert guarded({"transformers/": f"{helper}\ncheck()\n"}, TORCH) == []


def test_an_assertion_on_a_version_is_a_guard() -> None:
    source = "import torch\nassert torch.__version__ >= '2.0', 'too old'\n"
    (gap,) = guarded({"transformers/": source}, TORCH)
    assert (gap.needs, gap.lacking) == ("torch>=2.0", ("1.13.0",))
    inside = "import torch\ndef check():\n    assert torch.__version__ >= '2.0'\ncheck()\n"
    (gap,) = guarded({"transformers/": inside}, TORCH)
    assert (gap.lacking, gap.places) == (("1.13.0",), ("transformers/__init__.py:3",))


def test_a_variable_that_another_module_asks_for_does_not_turn_a_check_off() -> None:
    sources = {
        "transformers/": "from .model import *",
        "transformers.utils_": "import os\nimport torch\nDEBUG = os.environ.get('DEBUG', '0') == '1'\n"
        "torch_version = torch.__version__",
        "transformers.model": "from .utils_ import *\nfrom packaging.version import Version\n"
        "if not Version(torch_version) >= Version('2.0'):\n    raise ImportError('too old')",
    }
    (gap,) = guarded(sources, TORCH)
    assert (gap.entry, gap.lacking) == ("import transformers", ("1.13.0",))


def test_a_version_that_an_inner_function_reads_is_the_version() -> None:
    source = """
def check():
    def numbers(module):
        return tuple(map(int, module.__version__.split(".")[:2]))

    import numpy as np
    found = numbers(np)
    if found > (1, 26):
        message = f"needs NumPy 1.26 or less, got {found[0]}.{found[1]}"
        raise ImportError(message)
check()
"""
    (gap,) = guarded({"transformers/": source}, NUMPY)
    assert (gap.lacking, gap.places) == (("2.0.0",), ("transformers/__init__.py:10",))
    other = source.replace("    def numbers", "    @cached\n    def numbers")
    assert guarded({"transformers/": other}, NUMPY) == []
