"""Fixtures that several files share."""

from tests.stack import deepspeed, stack

__all__ = ["deepspeed", "stack"]
