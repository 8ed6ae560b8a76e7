"""The events of a log in bounded memory: equal ones are counted; of too many, the first and last are kept."""

from __future__ import annotations

import re
from typing import Any

from envcheck.logs.events import Event

_MAX_EVENTS = 500  # different events kept from the beginning, and from the end
_MAX_TOTAL = 8 << 20  # characters of all events
_SHORTENED = 2 << 10  # characters of one event once `_MAX_TOTAL` is used up


class EventStore:
    """Collects events and counts equal ones. `crowded` says that some were left out."""

    def __init__(self) -> None:
        """Begin empty."""
        self.crowded = False
        self._first: dict[Any, Event] = {}
        self._last: dict[Any, Event] = {}  # once `_first` is full
        self._room = _MAX_TOTAL

    def events(self) -> tuple[Event, ...]:
        """Return the events by first line."""
        return tuple(sorted([*self._first.values(), *self._last.values()], key=lambda event: event.first))

    def add(self, event: Event) -> None:
        """Keep an event; count it if an equal one is kept."""
        key = _key(event)
        kept = self._last if key in self._last else self._first
        if key in kept:
            kept[key] = _combined(kept[key], event)
            return
        if self._room < len(event.text):
            text = event.text[:_SHORTENED]
            event = event._replace(text=text, numbers=event.numbers[: text.count("\n") + 1])
        self._room -= len(event.text)
        kept = self._first if len(self._first) < _MAX_EVENTS else self._last
        kept[key] = event._replace(again=event.last)
        if len(self._last) > _MAX_EVENTS:
            self._room += len(self._last.pop(next(iter(self._last))).text)
            self.crowded = True


def _key(event: Event) -> tuple[Any, ...]:
    """Return what is the same in equal events: everything but numbers, lines and ranks."""
    raised: list[Any] = [(error.name, _without_digits(error.message)) for error in event.exceptions]
    return (event.what, event.code, event.root, *(raised or [_without_digits(event.text)]))


def _combined(kept: Event, event: Event) -> Event:
    """Return the earlier of two equal events with the ranks of both, counted once more."""
    ranks = tuple(sorted({*kept.ranks, *event.ranks}, key=_rank_order))
    first = min(kept, event, key=lambda one: one.first)
    return first._replace(ranks=ranks, times=kept.times + 1, again=max(kept.again, event.last))


def _without_digits(text: str) -> str:
    return re.sub(r"\d+", "0", text[:2000])


def _rank_order(rank: str) -> tuple[int, str]:
    return (int(rank) if rank.isdecimal() else 1 << 30, rank)
