"""Guards are read by executing the package's own predicates; what cannot be followed stays unreadable."""

from __future__ import annotations

import pytest

from envcheck.atlas.conditions import (
    ALWAYS,
    CUDA,
    NEVER,
    PYTHON,
    UNREADABLE,
    Compared,
    Condition,
    HasName,
    Installed,
    PartCompared,
    Surroundings,
    all_of,
    any_of,
    decide,
    negate,
)
from envcheck.atlas.predicates import GuardReader
from envcheck.core.facts import Tri
from tests.unit.atlas.sources import offers


def guards(**modules: str) -> GuardReader:
    return offers("peft", {"peft/": "", **{f"peft.{name}": text for name, text in modules.items()}}).guards


def read(guard: str, **modules: str) -> Condition:
    return guards(**modules).condition(guard, "peft.main")


TORCH_2 = Compared("torch", ">=", "2.0")
HEADER = """
import importlib.metadata
import importlib.util
import sys
import torch
from packaging import version
from packaging.version import parse
"""


@pytest.mark.parametrize(
    ("guard", "expected"),
    [
        ("version.parse(torch.__version__) >= version.parse('2.0')", TORCH_2),
        ("version.parse('2.0') <= version.parse(torch.__version__)", TORCH_2),
        ("parse(importlib.metadata.version('torch')) >= parse('2.0')", TORCH_2),
        ("version.parse(version.parse(torch.__version__).base_version) >= version.parse('2.0')", TORCH_2),
        ("torch.__version__ >= '2.0'", TORCH_2),
        ("compare_versions('torch', '>=', '2.0')", TORCH_2),
        ("is_torch_version('>=', '2.0')", TORCH_2),
        ("torch.__version__.startswith('2.0')", Compared("torch", "==", "2.0", depth=2)),
        ("torch.__version__.split('+')[0] >= '2.0'", TORCH_2),
        ("torch.__version__[:3] == '2.0'", UNREADABLE),
        ("int(torch.__version__.split('.')[1]) >= 8", PartCompared("torch", 1, ">=", 8)),
        ("version.parse(torch.__version__).major >= 2", PartCompared("torch", 0, ">=", 2)),
        ("version.parse(torch.__version__).release[:2] >= (2, 0)", Compared("torch", ">=", "2.0", depth=2)),
        ("sys.version_info >= (3, 11)", Compared(PYTHON, ">=", "3.11")),
        ("sys.version_info[:2] >= (3, 11)", Compared(PYTHON, ">=", "3.11", depth=2)),
        ("importlib.util.find_spec('peft_x') is not None", Installed("peft-x")),
        ("importlib.util.find_spec('flash_attn') is None", negate(Installed("flash-attn"))),
        ("hasattr(torch, 'compiler')", HasName("torch.compiler")),
        ("hasattr(torch.nn.functional, 'rms_norm')", HasName("torch.nn.functional.rms_norm")),
        ("torch.distributed.is_available()", ALWAYS),
        ("sys.platform == 'win32'", NEVER),
        ("torch.cuda.is_available()", Installed(CUDA)),
        ("torch.cuda.is_available(1)", UNREADABLE),
        ("something_else()", UNREADABLE),
    ],
)
def test_each_spelling_of_a_comparison_is_read(guard: str, expected: Condition) -> None:
    assert read(guard, main=HEADER) == expected


def test_a_name_stands_for_the_version_it_was_given() -> None:
    main = (
        HEADER
        + "TORCH = version.parse(torch.__version__)\nTORCH_MAJOR = int(torch.__version__.split('.')[0])"
    )
    assert read("TORCH >= version.parse('2.0')", main=main) == TORCH_2
    assert read("TORCH_MAJOR == 1", main=main) == PartCompared("torch", 0, "==", 1)


def test_a_hidden_minimum_of_a_predicate_counts() -> None:
    utils = """
    import importlib.util, importlib.metadata
    from packaging import version
    ACCELERATE_MIN_VERSION = "0.26.0"

    def _is_package_available(pkg_name, return_version=False):
        package_exists = importlib.util.find_spec(pkg_name) is not None
        package_version = "N/A"
        if package_exists:
            try:
                package_version = importlib.metadata.version(pkg_name)
            except importlib.metadata.PackageNotFoundError:
                package_exists = False
        if return_version:
            return package_exists, package_version
        return package_exists

    _accelerate_available, _accelerate_version = _is_package_available("accelerate", return_version=True)
    _peft_available = _is_package_available("vllm")

    def is_accelerate_available(min_version: str = ACCELERATE_MIN_VERSION):
        return _accelerate_available and version.parse(_accelerate_version) >= version.parse(min_version)

    def is_vllm_available():
        return _peft_available
    """
    main = "from .utils import is_accelerate_available, is_vllm_available"
    reader = guards(utils=utils, main=main)
    assert reader.condition("is_accelerate_available()", "peft.main") == Installed("accelerate", ("0.26.0",))
    assert reader.condition("is_vllm_available()", "peft.main") == Installed("vllm")
    higher = reader.condition("is_accelerate_available('1.0')", "peft.main")
    assert decide(higher, Surroundings(versions={"accelerate": "0.34.0"})) is Tri.NO
    assert decide(higher, Surroundings(versions={"accelerate": "1.0.0"})) is Tri.YES


def test_disabling_pytorch_is_a_hidden_minimum_too() -> None:
    utils = """
    import importlib.metadata, importlib.util
    from functools import lru_cache
    from packaging import version

    def _found(pkg_name):
        distributions = importlib.metadata.packages_distributions()
        exists = importlib.util.find_spec(pkg_name) is not None
        found = "N/A"
        if exists:
            found = importlib.metadata.version(distributions[pkg_name][0])
        return exists, found

    @lru_cache
    def is_torch_available():
        try:
            is_available, torch_version = _found("torch")
            if is_available and version.parse(torch_version) < version.parse("2.4.0"):
                logger.warning_once("Disabling PyTorch because PyTorch >= 2.4 is required")
            return is_available and version.parse(torch_version) >= version.parse("2.4.0")
        except InvalidVersion:
            return False
    """
    main = "from .utils import is_torch_available"
    assert read("is_torch_available()", utils=utils, main=main) == Installed("torch", ("2.4.0",))


def test_a_package_check_means_its_name_however_it_finds_the_version() -> None:
    utils = """
    import importlib.metadata, importlib.util
    from packaging import version

    def _is_package_available(pkg_name, return_version=False):
        package_exists = importlib.util.find_spec(pkg_name) is not None
        package_version = "N/A"
        if package_exists and return_version:
            for name in candidates(pkg_name):
                try:
                    package_version = importlib.metadata.version(name)
                    break
                except importlib.metadata.PackageNotFoundError:
                    continue
        if return_version:
            return package_exists, package_version
        return package_exists, None

    def is_torch_available():
        is_available, torch_version = _is_package_available("torch", return_version=True)
        return is_available and version.parse(torch_version) >= version.parse("2.6.0")

    def is_peft_available():
        return _is_package_available("peft")[0]
    """
    main = "from .utils import is_torch_available, is_peft_available"
    assert read("is_torch_available()", utils=utils, main=main) == Installed("torch", ("2.6.0",))
    assert read("is_peft_available()", utils=utils, main=main) == Installed("peft")


def test_a_local_predicate_is_followed() -> None:
    utils = """
    import torch
    def is_torch_elastic_compatible():
        TORCH_MAJOR = int(torch.__version__.split('.')[0])
        TORCH_MINOR = int(torch.__version__.split('.')[1])
        if TORCH_MAJOR == 1 and TORCH_MINOR >= 11:
            return True
        elif TORCH_MAJOR > 1:
            return True
        else:
            return False
    """
    condition = read(
        "is_torch_elastic_compatible()", utils=utils, main="from .utils import is_torch_elastic_compatible"
    )
    answers = {
        version: decide(condition, Surroundings(versions={"torch": version}))
        for version in ("1.10.2", "1.11.0", "2.4.0")
    }
    assert answers == {"1.10.2": Tri.NO, "1.11.0": Tri.YES, "2.4.0": Tri.YES}


def test_a_flag_that_a_try_sets_depends_on_what_the_try_imports() -> None:
    main = """
    try:
        import liger_kernel
        HAS_LIGER = True
    except ImportError:
        HAS_LIGER = False
    try:
        from torch.nn.attention import sdpa_kernel
        HAS_SDPA = True
    except ImportError:
        HAS_SDPA = False
    """
    assert read("HAS_LIGER", main=main) == Installed("liger-kernel")
    assert read("HAS_SDPA", main=main) == all_of(
        (Installed("torch"), HasName("torch.nn.attention.sdpa_kernel"))
    )


def test_a_flag_that_depends_on_more_than_versions_is_unreadable() -> None:
    main = """
    try:
        load_library("libx.so")
        HAS_X = True
    except OSError:
        HAS_X = False
    for each in ("a", "b"):
        found = check(each)
    """
    assert read("HAS_X", main=main) == UNREADABLE
    assert read("found", main=main) == UNREADABLE


def test_no_variable_of_the_shell_is_taken_as_set() -> None:
    main = """
    import os
    TRUE = {"1", "ON"}
    USE_TORCH = os.environ.get("USE_TORCH", "AUTO").upper()
    SLOW = os.getenv("SLOW")
    """
    assert read("USE_TORCH in TRUE.union({'AUTO'})", main=main) == ALWAYS
    assert read("SLOW", main=main) == NEVER


def test_a_predicate_of_another_package_is_read_by_its_name() -> None:
    main = "from transformers.utils import is_peft_available, is_torch_greater_or_equal, is_torch_fx"
    assert read("is_peft_available()", main=main) == Installed("peft")
    assert read("is_peft_available('0.5')", main=main) == Installed("peft", ("0.5",))
    assert read("is_torch_greater_or_equal('2.0')", main=main) == TORCH_2
    assert read("is_torch_fx()", main=main) == UNREADABLE


def test_a_condition_may_have_parts_that_cannot_be_read() -> None:
    condition = read("torch.__version__ >= '2.0' and is_it_monday()", main=HEADER)
    assert condition == all_of((TORCH_2, UNREADABLE))
    assert read("torch.__version__ >= '2.0' or is_it_monday()", main=HEADER) == any_of((TORCH_2, UNREADABLE))


def test_a_function_that_calls_itself_ends() -> None:
    main = "def is_ready_available():\n    return is_ready_available()"
    assert read("is_ready_available()", main=main) == UNREADABLE


def test_what_stands_after_a_refusal_of_a_module_is_read() -> None:
    source = (
        HEADER
        + """
_peft = importlib.util.find_spec("peft") is not None
try:
    found = importlib.metadata.version("torch")
    if parse(found) < parse("1.12"):
        raise ValueError("torch is too old for xformers")
except importlib.metadata.PackageNotFoundError:
    _torch = False
_trl = importlib.util.find_spec("trl") is not None
if sys.version_info < (3, 9):
    raise RuntimeError("Python is too old")
def is_trl_available():
    return _trl
"""
    )
    assert read("is_trl_available()", main=source) == Installed("trl")


def test_a_predicate_that_may_raise_is_not_read() -> None:
    source = (
        HEADER
        + """
def is_trl_available():
    if parse(torch.__version__) < parse("1.12"):
        raise ValueError("torch is too old")
    return importlib.util.find_spec("trl") is not None
"""
    )
    found = read("is_trl_available()", main=source)
    assert decide(found, Surroundings(versions={"torch": "1.11", "trl": "0.9.6"})) is Tri.MAYBE
    assert decide(found, Surroundings(versions={"torch": "2.4.0", "trl": "0.9.6"})) is Tri.YES


def test_a_package_check_that_loops_over_distributions_is_read_by_its_name() -> None:
    source = (
        HEADER
        + """
def _is_package_available(pkg_name, return_version=False, pkg_distributions=None):
    exists = importlib.util.find_spec(pkg_name) is not None
    if exists:
        for pkg in pkg_distributions or [pkg_name]:
            try:
                version = importlib.metadata.version(pkg)
                exists = True
                break
            except importlib.metadata.PackageNotFoundError:
                exists = False
    return exists
_trl = _is_package_available("trl")
def is_trl_available():
    return _trl
"""
    )
    assert read("is_trl_available()", main=source) == Installed("trl")


FOUND = Installed("vllm")


@pytest.mark.parametrize(
    ("tried", "test", "expected"),
    [
        ("try:\n    import vllm\n    F = None\nexcept ImportError as e:\n    F = e", "F is None", FOUND),
        ("try:\n    import vllm\n    F = None\nexcept ImportError as e:\n    F = e", "not F", FOUND),
        (
            "F = None\ntry:\n    import vllm\nexcept Exception as e:\n    F = e",
            "F is not None",
            negate(FOUND),
        ),
        (
            "try:\n  import vllm\n  F = True\nexcept RuntimeError:\n  F = None\nexcept ImportError:\n  F = False",
            "F",
            FOUND,
        ),
        ("try:\n    import vllm\n    F = True\nexcept RuntimeError:\n    F = False", "F", ALWAYS),
        ("try:\n    start()\n    F = True\nexcept RuntimeError:\n    F = False", "F", UNREADABLE),
        (
            "try:\n    import vllm\n    vllm.LLM\n    F = True\nexcept AttributeError:\n    F = False",
            "F",
            None,
        ),
        (
            "try:\n  importlib.metadata.version('vllm')\n  F = True\nexcept PackageNotFoundError:\n  F = False",
            "F",
            FOUND,
        ),
    ],
)
def test_the_handler_for_a_failed_import_decides_what_is_bound(
    tried: str, test: str, expected: Condition | None
) -> None:
    condition = read(test, main=f"{HEADER}\n{tried}\n")
    if expected is None:
        assert decide(condition, Surroundings()) is Tri.MAYBE
    else:
        assert condition == expected


def test_what_a_caught_error_says_is_not_known() -> None:
    tried = "try:\n    import vllm\n    F = ''\nexcept ImportError as e:\n    F = str(e)"
    condition = read("'libcudart' in F", main=f"{HEADER}\n{tried}\n")
    assert decide(condition, Surroundings(absent=frozenset({"vllm"}))) is Tri.MAYBE


def test_a_helper_of_another_package_returns_what_is_installed_and_its_version() -> None:
    helper = """
import warnings
from packaging import version
from transformers.utils.import_utils import _is_package_available

_vllm_available, _vllm_version = _is_package_available("vllm", return_version=True)
_liger_available, _liger_version = _is_package_available("liger_kernel", return_version=False)

def is_vllm_available():
    if _vllm_available and version.parse(_vllm_version) != version.parse("0.10.2"):
        warnings.warn("not supported")
    return _vllm_available

def is_vllm_new():
    return _vllm_available and version.parse(_vllm_version) >= version.parse("0.12")

def is_liger_kernel_available():
    return _liger_available
"""
    reader = guards(import_utils=helper)
    found = {
        name: reader.predicate(f"peft.import_utils.{name}")
        for name in ("is_vllm_available", "is_vllm_new", "is_liger_kernel_available")
    }
    assert found == {
        "is_vllm_available": Installed("vllm"),
        "is_vllm_new": Installed("vllm", ("0.12",)),
        "is_liger_kernel_available": UNREADABLE,  # one answer cannot be unpacked
    }
