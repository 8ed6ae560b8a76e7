"""Whatever the text report of a log says is in its JSON as well."""

from __future__ import annotations

import pytest

from envcheck.core.findings import Verbosity
from envcheck.reports.explanation import render, tree
from tests.support.logs import SITE, Explain, of_own_code, traceback

_CLASH = (
    "ERROR: Cannot install torch==2.1.0 and xformers==0.0.26.post1 because these package versions have "
    "conflicting dependencies.\n\nThe conflict is caused by:\n    The user requested torch==2.1.0\n"
    "    xformers 0.0.26.post1 depends on torch==2.3.0\n"
)


@pytest.mark.parametrize(
    "log",
    [
        _CLASH,
        of_own_code("AttributeError: 'NoneType' object has no attribute 'step'", "self.optimizer.step()"),
        traceback(
            "AttributeError: 'list' object has no attribute 'keys'",
            (f"{SITE}/accelerate/utils/dataclasses.py", 9, "f", 'f"Invalid policy: {list(POLICY.keys())}"'),
        ),
        "TypeError: SamplingParams.__init__() got an unexpected keyword argument 'use_beam_search'\n",
        "ModuleNotFoundError: No module named 'flash_attn'\n",
    ],
)
def test_each_line_of_the_answer_is_in_the_json(log: str, explained: Explain) -> None:
    found = explained(log)

    said = tree(found)["answer"]
    lines = render(found, Verbosity.ALL).splitlines()

    assert said["headline"] == lines[0]
    texts = " ".join(line["text"] for line in said["lines"])
    for line in lines[1:]:
        if line.startswith("    "):
            assert line[12:].strip() in texts
    assert {"kind"} <= {line["label"] for line in said["lines"]}
    assert all(label == label.strip() and label for label in (line["label"] for line in said["lines"]))
