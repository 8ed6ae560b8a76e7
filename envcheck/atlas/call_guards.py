"""Find the releases of a partner that a package refuses when users call it.

LLaMA-Factory's trainer for PPO calls `require_version("trl>=0.8.6,<=0.9.6")` in its constructor. The same is
read here as of an import (`import_guards.py`), in functions that users call, and in the methods of a class
that a run calls. Only what runs whatever the arguments are counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache, partial

from envcheck.atlas.called_checks import CalledChecks, CalledRefusal
from envcheck.atlas.code_pair import trainer_in
from envcheck.atlas.definitions import OwnFunction
from envcheck.atlas.entries import BY_CONSTRUCTOR, CONSTRUCTING, CallEntry, calls_of
from envcheck.atlas.entry_calls import definitions
from envcheck.atlas.gaps import CodeGap
from envcheck.atlas.import_guards import ImportRefusal, refusals_of, refused_on_import, refused_rows
from envcheck.atlas.reader import PackageReader
from envcheck.knowledge.atlas import WITHOUT


def find_call_guards(package: PackageReader, partner: PackageReader) -> list[CodeGap]:
    """Return the releases of a partner that a package refuses when it is called, as one gap for each bound.

    A gap is left out if an import refuses all of its pairs of releases first. Of two trainers neither stands
    for the other.
    """
    on_import = refused_on_import(package, partner)
    return [
        gap
        for gap in refused_rows(package, partner, _refusals(package), trainer_in)
        if any((release, lacking) not in on_import for release in gap.releases for lacking in gap.lacking)
    ]


@lru_cache(maxsize=4)
def _refusals(package: PackageReader) -> tuple[tuple[str, str, ImportRefusal], ...]:
    """Return the refusals of each release as (version, entry, refusal)."""
    return tuple(
        (version, entry, refusal)
        for version in package.by_version
        for entry, refusal in package.reading("call refusals", version, partial(_read, package, version))
    )


def _read(package: PackageReader, version: str) -> tuple[tuple[str, ImportRefusal], ...]:
    code = definitions(package, version)
    checks = CalledChecks(code)
    found: dict[tuple[str, ImportRefusal], None] = {}
    for entry in calls_of(package.name):
        definition = code.path(entry.path)
        for action, methods in _by_action(entry).items():
            if isinstance(definition, OwnFunction) and action != _made(entry):
                continue
            for each in checks.of_users(definition, methods):
                for refusal in _with_variables(each):
                    name = WITHOUT.join((action, *refusal.variables[:1]))
                    found.setdefault((name, refusal))
    return tuple(found)


def _with_variables(found: CalledRefusal) -> Iterator[ImportRefusal]:
    yield from (replace(each, variables=found.variables) for each in refusals_of(found))


def _by_action(entry: CallEntry) -> dict[str, list[str]]:
    """Return the calls that users make, each with the methods of the object that it runs."""
    made = _made(entry)
    actions = {made: list(CONSTRUCTING)}
    for method, action in entry.methods.items():
        call = made if action == BY_CONSTRUCTOR else f"{entry.path}.{action}(...)"
        actions.setdefault(call, []).append(method)
    return actions


def _made(entry: CallEntry) -> str:
    """Return the call of a class or function itself."""
    return f"{entry.path}(...)"
