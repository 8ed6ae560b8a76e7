"""A torch for another CUDA is offered only beside packages that can load with it."""

from __future__ import annotations

import pytest

from envcheck.commands import loading
from envcheck.commands.pin.other_cuda import fitting_versions
from tests.support.package_worlds import problem

KNOWN = loading.knowledge()


@pytest.mark.parametrize(
    ("package", "version", "fits"),
    [
        ("vllm", "0.10.1.1", False),  # its wheel links libcudart.so.12
        ("bitsandbytes", "0.45.5", True),  # its wheel has a library for CUDA 11.8, too
        ("xformers", "0.0.31", True),  # taken from the index of that torch
        ("peft", "0.16.0", True),
    ],
)
def test_a_wheel_for_another_cuda_rules_the_build_out(package: str, version: str, fits: bool) -> None:
    asked = problem({"torch": ["2.7.1"], package: [version]})
    matrix = KNOWN._replace(rules=(), targets=asked.known.targets, cells=())
    only_cu118 = {
        **KNOWN.tables,
        "variant": [row for row in KNOWN.tables["variant"] if row.get("tag") == "cu118"],
    }
    found = fitting_versions(asked._replace(known=matrix._replace(tables=type(KNOWN.tables)(only_cu118))))
    assert found == ({"torch": "2.7.1+cu118", package: version} if fits else {})
