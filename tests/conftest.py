"""Fixtures that several files share, and settings for all tests."""

import os
import signal

import pytest
from hypothesis import settings

from tests.support.compiling import compiler
from tests.support.environments import env, pristine
from tests.support.fake_nvml import box, built
from tests.support.image_builds import builder
from tests.support.stack import deepspeed, stack

__all__ = ["box", "builder", "built", "compiler", "deepspeed", "env", "pristine", "stack"]

# No test fails because it is slow; benchmarks/ measure speed.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# A shell without job control starts background jobs with SIGINT ignored, and their children inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Return how many processes `-n auto` starts: one more than cores, since a fifth of the time is waiting.

    Tests wait for indexes, for image builds and for ranks that never join.
    """
    return (os.cpu_count() or 1) + 1


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files that train early: they take longest, and two parallel processes should end together.

    The first file of tests/training installs the stack, which takes minutes. Meanwhile the others would only
    wait for it, so the property tests, which wait for nothing, run before them.
    """
    training = {item.path for item in items if item.get_closest_marker("stack")}
    first = min((path for path in training if path.parent.name == "training"), default=None)

    def turn(item: pytest.Item) -> int:
        if item.path in training:
            return 0 if item.path == first else 2
        return 1 if item.path.parent.name == "property" else 3

    items.sort(key=turn)
