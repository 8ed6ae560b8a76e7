"""The C compiler that some tests need to build small libraries."""

from __future__ import annotations

import shutil
import sys

import pytest


@pytest.fixture(scope="session")
def compiler() -> str:
    found = shutil.which("cc")
    if found is None or sys.platform != "linux":
        pytest.skip("no C compiler for ELF files here")
    return found
