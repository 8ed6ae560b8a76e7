"""Fixtures that several files share, and what holds for all tests."""

import signal

import pytest
from hypothesis import settings

from tests.support.compiling import compiler
from tests.support.environments import env, pristine
from tests.support.fake_nvml import box, built
from tests.support.image_builds import builder
from tests.support.stack import deepspeed, stack

__all__ = ["box", "builder", "built", "compiler", "deepspeed", "env", "pristine", "stack"]

# A test never fails for being slow: what is fast is measured in benchmarks/.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# A shell that keeps no track of its jobs starts them with SIGINT ignored, and whatever they start too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the files that train: they take longest, and two processes shall end at the same time."""
    training = {item.path for item in items if item.get_closest_marker("stack")}
    items.sort(key=lambda item: item.path not in training)
