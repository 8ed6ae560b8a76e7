"""Find the functions that releases of a package put into classes of a partner, which its calls do not fit.

unsloth sets `Trainer.get_batch_samples` to a function of its own. From some release on, transformers passes
one argument more to this method: then every training fails that follows. `overrides.py` compares subclasses
in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache, partial
from itertools import groupby

from envcheck.atlas.call_walk import CallWalk
from envcheck.atlas.called import ClassPatch
from envcheck.atlas.conditions import all_of, decide
from envcheck.atlas.entries import CallEntry, calls_of, distribution_of, usual_tests
from envcheck.atlas.entry_calls import definitions, entry_calls
from envcheck.atlas.gaps import CodeGap
from envcheck.atlas.overrides import OverridePair
from envcheck.atlas.overriding import OverridingClass, OverridingMethod
from envcheck.atlas.reader import PackageReader, surroundings
from envcheck.core.facts import Tri


def find_patch_gaps(package: PackageReader, partner: PackageReader) -> list[CodeGap]:
    """Return the functions in classes of a partner that its releases call in a way that they do not take."""
    return _PatchPair(package, partner).gaps()


class _PatchPair(OverridePair):
    """Compare releases that set attributes of a partner's classes, as if they derived from them."""

    def gaps(self) -> list[CodeGap]:
        found: dict[tuple[str, str], dict[tuple[str, ...], dict[str, str]]] = {}
        for version in self.package.by_version:
            patches = [
                each
                for each in _patches(self.package)[version]
                if distribution_of(each.owner) == self.partner.name
            ]
            for (entry, path), of_class in groupby(patches, lambda each: (each.entry, each.owner)):
                every = tuple(of_class)
                self._compare(version, path, partial(self._patched, version, entry, every), found)
        return self._rows(found)

    def _patched(
        self, version: str, entry: str, patches: tuple[ClassPatch, ...], release: str
    ) -> OverridingClass | None:
        """Return a partner's class with the functions that are put into it, as users call it then."""
        path = patches[0].owner
        owner = definitions(self.partner, release).path(path)
        called = next(
            (
                each
                for each in calls_of(self.partner.name)
                if owner is not None and definitions(self.partner, release).path(each.path) == owner
            ),
            None,
        )
        if called is None:
            return None
        beside = surroundings(self.package, version, self.partner, release)
        by_name: dict[str, list[ClassPatch]] = {}
        for each in patches:
            if decide(each.condition, beside) is not Tri.NO:
                by_name.setdefault(each.name, []).append(each)
        methods = []
        for name, several in by_name.items():
            first = several[0]
            sure = all(decide(each.condition, beside) is Tri.YES for each in several)
            alike = all(each.parameters == first.parameters for each in several)
            copied = all(each.copied for each in several)
            taken = first.parameters if sure and alike else None
            methods.append(OverridingMethod(name, taken, copied, frozenset(), first.place))
        return OverridingClass(
            CallEntry(f"{entry}, then {called.path}", called.methods), path, tuple(methods)
        )


@lru_cache(maxsize=128)
def _patches(package: PackageReader) -> Mapping[str, tuple[ClassPatch, ...]]:
    """Return the attributes of other packages' classes that each release sets, sorted by entry and class."""
    found = {}
    for version in package.by_version:
        on_import = package.reading("patches", version, partial(_read, package, version))
        by_users = (each for calls in entry_calls(package)[version] for each in calls.patches)
        found[version] = tuple(sorted((*on_import, *by_users), key=lambda each: (each.entry, each.owner)))
    return found


def _read(package: PackageReader, version: str) -> tuple[ClassPatch, ...]:
    """Return the attributes that a release sets when its first entry is imported, which all users do."""
    code, found = definitions(package, version), list[ClassPatch]()
    for entry in package.entries(version)[:1]:
        for module, reached in entry.modules:
            walk = CallWalk(code, CallEntry("", {}), usual_tests())
            walk.run_body(module)
            guards = code.offers.guards
            summary = code.offers.modules.summary(module)
            for each in walk.patches:
                found.append(replace(each, entry=entry.action, condition=all_of((reached, each.condition))))
            for call in summary.called if summary else ():
                inner = CallWalk(code, CallEntry("", {}), usual_tests())
                inner.run(code.expression(module, call.text))
                here = all_of((reached, guards.together(call.guards, module)))
                for each in inner.patches:
                    found.append(replace(each, entry=entry.action, condition=all_of((here, each.condition))))
    return tuple(found)
