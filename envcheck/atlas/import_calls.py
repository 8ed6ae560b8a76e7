"""What functions use of other packages that a module calls while it is imported.

`import diffusers` runs a function that reads `torch.accelerator`, which older releases of torch lack.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from envcheck.atlas.call_walk import CallWalk
from envcheck.atlas.conditions import Condition, all_of, decide
from envcheck.atlas.definitions import Definition, Definitions, OwnClass, OwnFunction
from envcheck.atlas.demands import Demand, Demanded, this_stack
from envcheck.atlas.entries import CallEntry, usual_tests
from envcheck.atlas.entry_calls import definitions
from envcheck.atlas.reader import PackageReader
from envcheck.core.facts import Tri


def import_calls(package: PackageReader, version: str) -> tuple[Demand, ...]:
    """Return what the functions use of other packages that run when an entry of a release is imported."""
    return package.reading("import calls", version, partial(_read, package, version))


def _read(package: PackageReader, version: str) -> tuple[Demand, ...]:
    found: dict[tuple[Demanded, str, Condition], Demand] = {}
    for each in _ImportCalls(package, version).demands():
        found.setdefault((each.what, each.entry, each.condition), each)
    return tuple(found.values())


class _ImportCalls:
    """Follow the functions that one release calls on import, each of them once."""

    def __init__(self, package: PackageReader, version: str) -> None:
        self._package, self._version = package, version
        self._code: Definitions = definitions(package, version)
        self._used: dict[tuple[str, str, int], tuple[Demand, ...]] = {}

    def demands(self) -> Iterator[Demand]:
        offers = self._code.offers
        for entry in self._package.entries(self._version):
            for module, reached in entry.modules:
                summary = offers.modules.summary(module)
                for call in summary.called if summary else ():
                    used = self._uses(self._code.expression(module, call.text))
                    if not used:
                        continue
                    here = all_of((reached, offers.guards.together(call.guards, module)))
                    for each in used:
                        condition = all_of((here, each.condition))
                        if decide(condition, this_stack()) is not Tri.NO:
                            yield replace(each, entry=entry.action, condition=condition)

    def _uses(self, definition: Definition) -> tuple[Demand, ...]:
        """Return what a function or constructor uses of other packages, whenever it runs."""
        if not isinstance(definition, OwnFunction | OwnClass):
            return ()
        line = definition.code.line if isinstance(definition, OwnFunction) else 0
        key = definition.module, definition.code.name, line
        if key not in self._used:
            walk = CallWalk(self._code, CallEntry("", {}), usual_tests())
            walk.run(definition)
            self._used[key] = (*walk.imports, *walk.attributes)
        return self._used[key]
