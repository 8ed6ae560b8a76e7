"""Change a library once it is imported, only in the processes of self-tests."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any


class _Then(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds one module the usual way and calls back when it is executed."""

    def __init__(self, name: str, change: Callable[[Any], object]) -> None:
        self._name, self._change = name, change
        self._real: importlib.abc.Loader | None = None
        self._looking = False

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        del path, target
        if name != self._name or self._looking:
            return None
        self._looking = True
        spec = importlib.util.find_spec(name)
        # Libraries also search for others without importing them.
        self._looking = False
        if spec is not None:
            self._real, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        assert self._real is not None
        return self._real.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert self._real is not None
        self._real.exec_module(module)
        self._change(module)


def after_import(name: str, change: Callable[[Any], object]) -> None:
    """Call `change` with the module of this name right after its import."""
    if any(each.endswith("_worker.py") for each in sys.orig_argv):
        sys.meta_path.insert(0, _Then(name, change))
