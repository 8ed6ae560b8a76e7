"""Versions that a package refuses when users call it, and those it only seems to refuse."""

from __future__ import annotations

import textwrap

import pytest

from envcheck.atlas.call_guards import find_call_guards
from envcheck.atlas.gaps import GapKind
from tests.unit.atlas.sources import reader

OLD, NEW = "4.30.0", "4.50.0"
TRANSFORMERS = reader("transformers", {OLD: {}, NEW: {}})
REFUSED = (("trl.SFTTrainer(...)", (NEW,)),)

CHECK = "require_version('transformers<4.40')"
HEAD = """
import transformers
from packaging import version
from contextlib import contextmanager
from transformers.utils.versions import require_version
def check(required=True):
    if required:
        require_version('transformers<4.40')
def check_all(required=True, **more):
    if required:
        require_version('transformers<4.40')
def lazy():
    require_version('transformers<4.40')
    yield 1
"""


def refused(
    constructor: str = "pass", methods: str = "", head: str = "", root: str = ""
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the calls of trl that refuse transformers, with the refused releases."""
    code = "".join(
        (
            f"{HEAD}\n{textwrap.dedent(head)}\n",
            "class SFTTrainer:\n    def __init__(self, model=None, args=None, **options):\n",
            textwrap.indent(textwrap.dedent(constructor), " " * 8) + "\n",
            textwrap.indent(textwrap.dedent(methods), " " * 4),
        )
    )
    sources = {"trl/": f"{root}\nfrom .sft import SFTTrainer", "trl.sft": code}
    package = reader("trl", {"0.9.0": sources}, requires=("transformers",))
    return tuple((gap.entry, gap.lacking) for gap in find_call_guards(package, TRANSFORMERS))


def test_a_gap_names_the_call_and_the_requirement() -> None:
    sources = {"trl/": "from .sft import SFTTrainer", "trl.sft": f"{HEAD}\n{_class(CHECK)}"}
    (gap,) = find_call_guards(reader("trl", {"0.9.0": sources}, requires=("transformers",)), TRANSFORMERS)
    assert (gap.kind, gap.package, gap.partner) == (GapKind.GUARD, "trl", "transformers")
    assert (gap.entry, gap.needs, gap.lacking) == ("trl.SFTTrainer(...)", "transformers<4.40", (NEW,))
    assert gap.places == ("trl/sft.py:18",)


def _class(line: str) -> str:
    return f"class SFTTrainer:\n    def __init__(self, model=None):\n        {line}\n"


@pytest.mark.parametrize(
    "constructor",
    [
        f"try:\n    {CHECK}\nexcept ImportError as error:\n    raise ImportError('no') from error",
        "if version.parse(transformers.__version__) >= version.parse('4.40'):\n    raise ValueError('no')",
        "check()",
        "self._check()",
        "self.model = model\nself._inherited()",
        f"if model is None:\n    raise ValueError('no model')\n{CHECK}",
    ],
)
def test_what_every_construction_runs_refuses(constructor: str) -> None:
    methods = f"def _check(self):\n    {CHECK}\ndef _inherited(self):\n    self._check()\n"
    assert refused(constructor, methods) == REFUSED


@pytest.mark.parametrize(
    "constructor",
    [
        f"if args.packing:\n    {CHECK}",
        f"if model is not None:\n    {CHECK}",
        f"try:\n    {CHECK}\nexcept ImportError:\n    pass",
        f"if args.done:\n    return\n{CHECK}",
        f"while args.more:\n    return\n{CHECK}",
        f"def later():\n    {CHECK}",
        "check(False)",
        "check(args.strict)",
        "check_all(**options)",
        "self._check(model)",
        "self._later()",
        "lazy()",
    ],
)
def test_what_an_argument_decides_or_a_caller_catches_refuses_nothing(constructor: str) -> None:
    methods = (
        f"def _check(self, strict=True):\n    if strict:\n        {CHECK}\n"
        f"@contextmanager\ndef _later(self):\n    {CHECK}\n    yield\n"
    )
    assert refused(constructor, methods) == ()


def test_a_method_that_only_a_run_calls_refuses_there() -> None:
    assert refused(methods=f"def train(self):\n    {CHECK}") == (("trl.SFTTrainer.train(...)", (NEW,)),)
    assert refused(methods=f"def push_to_hub(self):\n    {CHECK}") == ()


def test_a_release_that_the_import_refuses_is_not_named_again() -> None:
    root = f"from transformers.utils.versions import require_version\n{CHECK}"
    assert refused(CHECK, root=root) == ()
