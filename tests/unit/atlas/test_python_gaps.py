"""A release is accused beside the Pythons that lack what its import uses, and beside no others."""

from __future__ import annotations

import pytest

from envcheck.atlas.python_gaps import find_python_gaps
from envcheck.atlas.python_names import lacking_in
from tests.unit.atlas.sources import Sources, reader


def gone(root: str, *, more: Sources | None = None, python: str = "") -> dict[str, tuple[str, ...]]:
    """Return what `import peft` uses of Python and some releases lack, with the first and last of these."""
    package = reader("peft", {"1.0": {"peft/": root, **(more or {})}})
    if python:
        (release,) = package.releases
        object.__setattr__(release, "requires_python", python)
    return {gap.needs: (gap.lacking[0], gap.lacking[-1]) for gap in find_python_gaps(package)}


NEWEST = "3.15"


@pytest.mark.parametrize(
    ("root", "needs", "first"),
    [
        ("import imp", "imp", "3.12"),
        ("from distutils.util import strtobool", "distutils.util.strtobool", "3.12"),
        ("import cgi", "cgi", "3.13"),
        ("from pipes import quote", "pipes.quote", "3.13"),
        ("import inspect\nclass A:\n    old = inspect.getargspec", "inspect.getargspec", "3.11"),
        ("import ast\nKNOWN = (ast.Str, ast.Name)", "ast.Str", "3.14"),
        ("import pkgutil\nregister(pkgutil.ImpImporter, find)", "pkgutil.ImpImporter", "3.12"),
        ("import asyncio\n@asyncio.coroutine\ndef run(): ...", "asyncio.coroutine", "3.11"),
        ("import sys\nif sys.version_info >= (3, 8):\n    import imp", "imp", "3.12"),
        ("def make():\n    import imp\nmake()", "imp", "3.12"),
    ],
)
def test_what_newer_pythons_dropped_is_a_gap_from_then_on(root: str, needs: str, first: str) -> None:
    assert gone(root) == {needs: (first, NEWEST)}


@pytest.mark.parametrize(
    "root",
    [
        "import os, asyncio, inspect\nfrom ast import Name",
        "try:\n    import imp\nexcept ImportError:\n    imp = None\n",
        "try:\n    from distutils.util import strtobool\nexcept ModuleNotFoundError:\n    strtobool = bool\n",
        "import sys\nif sys.version_info < (3, 12):\n    import imp\nelse:\n    import importlib\n",
        "import ast\nif hasattr(ast, 'Str'):\n    KNOWN = ast.Str\n",
        "import ast\nKNOWN = getattr(ast, 'Str', None)",
        "from __future__ import annotations\nimport ast\ndef read(node: ast.Str): ...",
        "import ast\ndef read(node: ast.Str): ...",
        "def later():\n    import imp\n",
        "from .imp import find",
        "try:\n    from typing import Self\nexcept ImportError:\n    from typing_extensions import Self\n",
        "import sys\nif sys.version_info >= (3, 11):\n    import tomllib\n",
        "import typing\nif hasattr(typing, 'Unpack'):\n    KNOWN = typing.Unpack\n",
        "from __future__ import annotations\nimport typing\ndef read(self) -> typing.Self: ...",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from enum import StrEnum\n",
    ],
)
def test_what_is_there_or_expected_to_be_missing_is_none(root: str) -> None:
    assert gone(root, more={"peft.imp": "find = 1"}) == {}


def test_a_release_that_refuses_these_pythons_is_not_accused() -> None:
    assert gone("import imp", python=">=3.8,<3.12") == {}
    assert gone("import imp", python=">=3.8,<3.13") == {"imp": ("3.12", NEWEST)}


def test_a_gap_names_the_line_and_is_told_with_the_first_entry() -> None:
    root = "from .model import get_peft_model"
    peft = reader("peft", {"1.0": {"peft/": root, "peft.model": "import os\nimport imp\nget_peft_model = 1"}})
    (gap,) = find_python_gaps(peft)
    assert (gap.entry, gap.partner, gap.places) == ("import peft", "python", ("peft/model.py:2",))


@pytest.mark.parametrize(
    ("root", "needs", "last"),
    [
        ("import tomllib", "tomllib", "3.10"),
        ("import asyncio\nclass A(asyncio.TaskGroup): ...", "asyncio.TaskGroup", "3.10"),
        ("from enum import StrEnum\nclass A(StrEnum): ...", "enum.StrEnum", "3.10"),
        ("import typing\ndef read(self) -> typing.Self: ...", "typing.Self", "3.10"),
        ("from typing import override", "typing.override", "3.11"),
        ("from warnings import deprecated", "warnings.deprecated", "3.12"),
        (
            "import typing as t\ntry:\n    assert t.Unpack\nexcept Exception as e:\n    raise RuntimeError(str(e))",
            "typing.Unpack",
            "3.10",
        ),
    ],
)
def test_what_a_python_added_is_a_gap_before(root: str, needs: str, last: str) -> None:
    assert gone(root) == {needs: ("3.10", last)}
    assert gone(root, python=">=3.13") == {}


def test_only_releases_at_an_end_lack_a_name() -> None:
    assert lacking_in("tomllib") == {"3.10"}
    assert lacking_in("ast", "Str") == {"3.14", "3.15"}
    assert lacking_in("typing", "List") == frozenset()
