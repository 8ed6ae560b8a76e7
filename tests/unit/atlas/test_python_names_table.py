"""`tools/refresh_python_names.py` leaves out what an interpreter has and the stubs deny it."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from envcheck.knowledge.names import ModuleNames, NameRow

HERE = f"3.{sys.version_info[1]}"


def test_a_name_that_an_interpreter_has_is_not_said_to_be_missing_there() -> None:
    tool = runpy.run_path(str(Path(__file__).parents[3] / "tools/refresh_python_names.py"))
    before = (("3.8", "3.9"),)
    found = [
        ModuleNames(
            "typing", None, (NameRow(before, ("Protocol", "NeverWas")), NameRow(((HERE, HERE),), ("Any",)))
        ),
        ModuleNames("no_such_module", before, (NameRow(before, ("name",)),)),
    ]
    assert [*tool["wrongly_denied"](found, [sys.executable])] == [("typing", "Protocol")]
    assert [*tool["wrongly_denied"](found, [])] == []
