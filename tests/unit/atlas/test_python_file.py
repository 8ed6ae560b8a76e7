"""One file is read to what it binds, imports, reads and raises on import; the same content is read once."""

from __future__ import annotations

import ast
import pickle

import pytest

from envcheck.atlas.python_file import ANNOTATIONS_RUN, OFFERS, UNREADABLE_GUARD, read_python_file
from envcheck.atlas.summary import FileSummary, UseKind


def read(source: str) -> FileSummary:
    return read_python_file(source.encode(), package=False)


def imported(source: str) -> dict[str, tuple[str, ...]]:
    """Return the guards of each absolute `from module import name`."""
    return {f"{use.module}.{use.name}": use.guards for use in read(source).uses if use.kind is UseKind.FROM}


def attributes(source: str) -> dict[str, tuple[str, ...]]:
    return {use.module: use.guards for use in read(source).uses if use.kind is UseKind.ATTRIBUTE}


def test_an_import_is_kept_with_its_line_and_the_tests_around_it() -> None:
    uses = read("import os\n\nif ready():\n    from torch.nn import Module as M\n").uses
    assert [(use.kind, use.module, use.name, use.guards, use.line) for use in uses] == [
        (UseKind.IMPORT, "os", "", (), 1),
        (UseKind.FROM, "torch.nn", "Module", ("ready()",), 4),
    ]


def test_an_else_runs_under_the_opposite() -> None:
    source = "if ready():\n    from a import x\nelse:\n    from b import x\n"
    assert imported(source) == {"a.x": ("ready()",), "b.x": ("not (ready())",)}
    assert read(source).bindings["x"] == ((),)


def test_what_only_a_type_checker_reads_asks_for_nothing() -> None:
    for test in ("TYPE_CHECKING", "typing.TYPE_CHECKING", "TYPE_CHECKING or SLOW_IMPORT"):
        summary = read(f"if {test}:\n    from a import x\n")
        assert not summary.uses
        assert "x" not in summary.bindings


def test_a_caught_import_asks_for_nothing() -> None:
    for caught in ("ImportError", "ModuleNotFoundError", "Exception", "(ImportError, OSError)"):
        assert imported(f"try:\n    from a import x\nexcept {caught}:\n    x = None\n") == {}
    assert imported("try:\n    from a import x\nexcept:\n    x = None\n") == {}
    assert imported("with contextlib.suppress(ImportError):\n    from a import x\n") == {}


def test_an_import_whose_failure_is_raised_again_is_asked_for() -> None:
    source = (
        "try:\n    from a import x\nexcept ImportError as error:\n    raise RuntimeError('no a') from error\n"
    )
    assert imported(source) == {"a.x": ()}


@pytest.mark.parametrize(
    "caught", ["KeyError", "RuntimeError", "OSError", "(RuntimeError, OSError)", "Missing"]
)
def test_an_import_under_a_handler_for_another_error_is_asked_for(caught: str) -> None:
    source = f"try:\n    from a import x\nexcept {caught}:\n    x = None\n"
    assert imported(source) == {"a.x": ()}


def test_what_follows_in_a_try_may_not_be_reached() -> None:
    source = "try:\n    import os\n    import a\n    from b import y\nexcept RuntimeError:\n    pass\n"
    assert imported(source) == {"b.y": (UNREADABLE_GUARD,)}
    source = "try:\n    start()\n    from b import y\nexcept RuntimeError:\n    pass\n"
    assert imported(source) == {"b.y": (UNREADABLE_GUARD,)}


def test_a_tuple_of_errors_under_a_name_may_hold_any() -> None:
    for named in ("IMPORT_ERRORS", "errors", "(errors, KeyError)"):
        assert imported(f"try:\n    from a import x\nexcept {named}:\n    x = None\n") == {}


def test_the_first_handler_for_an_error_decides() -> None:
    raising = "try:\n    from a import x\nexcept ImportError:\n    raise\nexcept Exception:\n    x = None\n"
    assert imported(raising) == {"a.x": ()}
    caught = "try:\n    from a import x\nexcept ImportError:\n    x = None\nexcept Exception:\n    raise\n"
    assert imported(caught) == {}


def test_a_missing_name_is_no_missing_module() -> None:
    source = "try:\n    from a.b import x\nexcept ModuleNotFoundError:\n    from c import x\n"
    uses = {f"{use.module}.{use.name}": (use.kind, use.guards) for use in read(source).uses}
    assert uses == {
        "a.b.x": (UseKind.MEMBER, (f"{OFFERS}('a.b')",)),
        "c.x": (UseKind.FROM, (f"not ({OFFERS}('a.b'))",)),
    }
    assert not read("try:\n    import a.b\nexcept ModuleNotFoundError:\n    pass\n").uses


def test_suppressing_another_error_leaves_no_verdict() -> None:
    assert imported("with contextlib.suppress(KeyError):\n    from a import x\n") == {
        "a.x": (UNREADABLE_GUARD,)
    }


def test_the_fallback_of_a_caught_import_runs_where_that_import_fails() -> None:
    source = "try:\n    from torch._six import inf\nexcept ImportError:\n    from torch import inf\n"
    assert imported(source) == {"torch.inf": (f"not ({OFFERS}('torch._six.inf'))",)}
    assert read(source).bindings["inf"] == ((),)


def test_an_optional_dependency_decides_the_else() -> None:
    source = """
try:
    if not is_torch_available():
        raise OptionalDependencyNotAvailable()
except OptionalDependencyNotAvailable:
    from .dummies import Model
else:
    from torch import Tensor
"""
    assert imported(source)["torch.Tensor"] == ("not (not is_torch_available())",)
    assert imported(source)["dummies.Model"] == ("not is_torch_available()",)


def test_function_bodies_are_not_read_but_what_runs_with_the_definition_is() -> None:
    source = """
import torch
@torch.no_grad()
def run(x=torch.float32):
    return torch.never_read
class Net(torch.nn.Module):
    kind = torch.dtype
    def forward(self):
        torch.never_read_either
"""
    assert set(attributes(source)) == {"torch.no_grad", "torch.float32", "torch.nn.Module", "torch.dtype"}


def test_annotations_run_before_python_3_14_unless_they_are_postponed() -> None:
    source = "import torch\ndef run(x: torch.SymInt) -> torch.Tensor: ...\n"
    assert attributes(source) == {
        "torch.SymInt": (ANNOTATIONS_RUN,),
        "torch.Tensor": (ANNOTATIONS_RUN,),
    }
    assert attributes(f"from __future__ import annotations\n{source}") == {}


def test_an_attribute_is_read_from_the_module_that_its_root_stands_for() -> None:
    source = (
        "import torch.nn.functional as F\nfrom transformers import cache_utils\nF.gelu\ncache_utils.Cache\n"
    )
    assert set(attributes(source)) == {"torch.nn.functional.gelu", "transformers.cache_utils.Cache"}


def test_a_root_that_is_assigned_too_asks_for_nothing() -> None:
    assert attributes("import torch\ntorch = wrap(torch)\ntorch.invented\n") == {}


def test_getattr_without_a_default_reads_and_hasattr_only_asks() -> None:
    source = "import torch\na = getattr(torch, 'one')\nb = getattr(torch, 'two', None)\nc = hasattr(torch, 'three')\n"
    assert set(attributes(source)) == {"torch.one"}


def test_what_follows_hasattr_in_a_condition_is_guarded_by_it() -> None:
    assert attributes("import torch\nflag = hasattr(torch, 'xpu') and torch.xpu\n") == {
        "torch.xpu": ("hasattr(torch, 'xpu')",)
    }


def test_a_caught_attribute_asks_for_nothing() -> None:
    assert attributes("import torch\ntry:\n    torch.new\nexcept AttributeError:\n    pass\n") == {}
    assert set(attributes("import torch\ntry:\n    torch.new\nexcept ImportError:\n    pass\n")) == {
        "torch.new"
    }


def test_all_may_be_built_by_calls() -> None:
    assert read(
        "__all__ = ['a']\n__all__ += ['b']\n__all__.extend(['c'])\n__all__.append('d')\n"
    ).exports == (*("a", "b", "c", "d"),)
    for computed in (
        "__all__ = make()",
        "__all__ = ['a'] + other.__all__",
        "__all__ = ['a']\nextend_all(__all__)",
    ):
        assert read(computed).exports_open


def test_names_that_are_computed_are_said_to_be() -> None:
    assert read("globals().update(make())").computed
    assert read("_globals = globals()\nbuilder.BuildTopDescriptorsAndMessages(D, 'x_pb2', _globals)").computed
    assert read("builder.BuildMessageAndEnumDescriptors(D, globals())").computed
    assert not read("_globals = globals()\nbuilder.Build(D)").computed
    assert read("for n in dir(x):\n    globals()[n] = 1\n").computed
    assert "made" in read("globals()['made'] = 1").bindings


def test_a_name_bound_in_a_try_alone_may_be_missing() -> None:
    source = "try:\n    from a import x\nexcept ImportError:\n    pass\n"
    assert read(source).bindings["x"] == ((f"{OFFERS}('a.x')",),)


def test_a_module_level_raise_and_check_are_kept_with_their_guards() -> None:
    summary = read("if old():\n    raise ImportError('too old')\nrequire_version('torch>=2', 'hint')\n")
    assert [(each.text, each.guards) for each in summary.refusals] == [
        ("raise ImportError('too old')", ("old()",))
    ]
    assert [each.text for each in summary.calls] == ["require_version('torch>=2', 'hint')"]


def test_a_loop_that_checks_a_table_is_unrolled() -> None:
    summary = read(
        """
checked = "tqdm accelerate numpy".split()
for pkg in checked:
    if pkg in deps:
        if pkg == "accelerate":
            from .utils import is_accelerate_available
            if not is_accelerate_available():
                continue
        require_version_core(deps[pkg])
"""
    )
    assert [(check.package, check.table, check.guards) for check in summary.checks] == [
        ("tqdm", "deps", ()),
        ("accelerate", "deps", ("not (not is_accelerate_available())",)),
        ("numpy", "deps", ()),
    ]
    assert read('deps = {"ray[tune]": "ray[tune]>=2.7", "tqdm": "tqdm>=4"}').tables == {
        "deps": {"ray[tune]": "ray[tune]>=2.7", "tqdm": "tqdm>=4"}
    }
    assert read('deps = {"numpy": "numpy>=1.17", "torch": "torch>=2,!=2.1"}').tables == {
        "deps": {"numpy": "numpy>=1.17", "torch": "torch>=2,!=2.1"}
    }


def test_modules_put_into_sys_modules_under_unread_names_leave_the_words_of_the_file() -> None:
    source = "import sys\nOLD = ['tokenization_utils']\nfor old in made():\n    sys.modules[old] = new(old)\n"
    assert "tokenization_utils" in read(source).registers
    assert not read(
        "import sys\nsys.modules[__name__] = Lazy('a')\nif 'torch' in sys.modules: ...\n"
    ).registers


@pytest.mark.parametrize("source", ["def (:", "x = \0", "(" * 2000])
def test_a_file_that_cannot_be_parsed_offers_anything(source: str) -> None:
    summary = read(source)
    assert summary.error
    assert summary.computed


def test_the_same_content_is_read_once_and_can_be_stored() -> None:
    cache: dict[str, FileSummary] = {}
    one = read_python_file(b"import torch", package=False, cache=cache)
    assert read_python_file(b"import torch", package=False, cache=cache) is one
    read_python_file(b"import torch", package=True, cache=cache)
    assert len(cache) == 2
    assert pickle.loads(pickle.dumps(cache)) == cache  # noqa: S301 - our own bytes


def test_a_try_without_a_handler_leaves_a_script_that_can_be_read() -> None:
    script = read(
        "try:\n    try:\n        A = 1\n    finally:\n        b()\nexcept ImportError:\n    A = 2\n"
    ).script

    assert "A = 1" in script
    ast.parse(script)


def test_a_name_that_two_imports_bind_stands_for_neither() -> None:
    source = "try:\n    from a import old as log\nexcept ImportError:\n    from a import log\nlog.level\n"
    assert set(attributes(source)) == set()
    assert set(attributes("import a.b\nimport a.c\na.b.x\n")) == {"a.b.x"}
    assert set(attributes("import a\ndef f():\n    import b as a\na.x\n")) == {"a.x"}
