"""Complete a choice of versions with a backend: build the request, add wheels from an extra index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from envcheck import resolver_backends as backends
from envcheck.commands.pin.target import LockTarget
from envcheck.core import versions
from envcheck.core.rules import Matrix
from envcheck.host.machine import Host
from envcheck.lock import model as lock
from envcheck.lock.install import build_needs
from envcheck.resolution.resolver import Objection
from envcheck.resolver_backends.index.extra_indexes import fetch_companion_wheel, fetch_extra_wheel

if TYPE_CHECKING:
    from envcheck.resolver_backends.index.extra_indexes import ExtraIndexWheels

COMPILED_FOR_TORCH = ("torchaudio", "torchvision", "torchao", "xformers")
"""Packages whose wheels on the default index are compiled for the CUDA of that index's torch."""


def completion_request(
    goal: LockTarget, choice: Mapping[str, str], build: tuple[str, ...], bounding: Sequence[Objection]
) -> backends.CompletionRequest:
    """Return the request for a backend.

    It holds the choice, the user's requirements on packages that the search does not choose, and the bounds
    of earlier objections. `build` names the packages that exist as source only.
    """
    outside = [each for each in goal.requirements if each.package not in choice]
    labels = (versions.local_label(each.specifier[2:]) for each in goal.requirements)
    return backends.CompletionRequest(
        pins=choice,
        also=(
            *build_needs((*build, *goal.allow_source)),
            *(each.package for each in outside if each.wanted),
            *goal.target.extras,
            *goal.extras,
        ),
        python=goal.python,
        platform=goal.platform,
        glibc=goal.glibc,
        build=tuple(dict.fromkeys((*build, *goal.allow_source))),
        constraints=(
            *(f"{each.package}{each.specifier}" for each in outside if each.specifier),
            *(bound for objection in bounding for bound in objection.bounds),
        ),
        local=tuple(filter(None, labels)),
        until=goal.until,
    )


class Completer:
    """Completes choices with a backend; takes torch, and what is compiled for it, from `shelves` if given.

    A shelf holds the wheels of torch that one of the user's extra indexes offers. Differences between the
    answers of two backends are added to `notes`.
    """

    def __init__(
        self,
        host: Host,
        backend: backends.BackendSelection,
        matrix: Matrix,
        notes: list[str],
        shelves: Sequence[ExtraIndexWheels] = (),
    ) -> None:
        """Store the backend, and the list that notes are added to."""
        self.host, self.notes = host, notes
        self._backend, self._matrix, self._shelves = backend, matrix, shelves

    def prepare(self, request: backends.CompletionRequest) -> backends.CompletionRequest:
        """Return the request with the wheel of torch that one of the shelves has."""
        if not self._shelves:
            return request

        version = request.pins["torch"]
        wheel = fetch_extra_wheel(self.host, self._shelf_with(version), "torch", version)
        return replace(request, given=(wheel,))

    def complete(self, request: backends.CompletionRequest) -> tuple[lock.Pin, ...]:
        """Return the pins of everything to install.

        Raises:
            NoSolutionError: nothing satisfies the request.
            ExamineError: the backend failed.
        """
        pins = self._backend.complete(self.host, request, self.notes)
        return self._with_companions(request, pins) if self._shelves else pins

    def _with_companions(
        self, request: backends.CompletionRequest, pins: tuple[lock.Pin, ...]
    ) -> tuple[lock.Pin, ...]:
        """Take all packages compiled for torch's CUDA from the index that torch was taken from."""
        shelf = self._shelf_with(request.pins["torch"])
        release, _, tag = request.pins["torch"].partition("+")
        build = next(each for each in self._matrix.tables.torch_builds if each.version == release)
        while stray := [pin for pin in pins if pin.name in COMPILED_FOR_TORCH and not pin.url]:
            companions = [
                fetch_companion_wheel(
                    self.host,
                    shelf,
                    pin.name,
                    f"{build.companions.get(pin.name, pin.version)}+{tag}",
                    request,
                )
                for pin in stray
            ]
            request = replace(request, given=(*request.given, *companions))
            pins = self._backend.complete(self.host, request, self.notes)
        return pins

    def _shelf_with(self, version: str) -> ExtraIndexWheels:
        return next(shelf for shelf in self._shelves if version in shelf.pins)
