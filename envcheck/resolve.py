"""The one search: versions of the stack's packages that the judge does not object to. Pure.

Depth first over the packages in the target's order, each package's candidates in the order they are
proposed; a partial choice with an objection is not extended. Only *broken* objects: what nobody knows
does not stop a pin.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from envcheck.model import NoSolutionError

Choice = Mapping[str, str]
"""Package → version."""

Propose = Callable[[str], Sequence[str]]
"""Candidate versions of a package, best first."""

Object = Callable[[Choice], Sequence[str]]
"""What speaks against a (partial) choice: ids of the rules it breaks; none if nothing does."""

TRIES = 4000
"""Choices judged before the search gives up: at a few milliseconds each, well under a minute."""


@dataclass(slots=True)
class _Search:
    propose: Propose
    objections: Object
    tries: int = 0
    refused: dict[str, Counter[str]] = field(default_factory=dict)

    def extend(self, chosen: dict[str, str], wanted: Sequence[str]) -> dict[str, str] | None:
        if not wanted:
            return chosen
        name, rest = wanted[0], wanted[1:]
        for version in self.propose(name):
            self.tries += 1
            if self.tries > TRIES:
                raise NoSolutionError(f"no answer after {TRIES} combinations; {self.explained()}")
            candidate = {**chosen, name: version}
            objections = self.objections(candidate)
            if objections:
                self.refused.setdefault(name, Counter()).update(objections)
                continue
            found = self.extend(candidate, rest)
            if found is not None:
                return found
        return None

    def explained(self) -> str:
        """For each package that was refused, the rules that refused it most often."""
        return "; ".join(self._reasons()) or "the tables list no release of a package that is wanted"

    def _reasons(self) -> Iterator[str]:
        for name, rules in self.refused.items():
            ids = ", ".join(rule for rule, _ in rules.most_common(2))
            yield f"{name} was refused {sum(rules.values())} times, most often by {ids}"


def search(
    wanted: Sequence[str], propose: Propose, objections: Object, first: Sequence[Choice] = ()
) -> dict[str, str]:
    """The first choice of one version for each wanted package that nothing speaks against.

    `first` are whole choices tried before the search: combinations that were measured good.

    Raises:
        NoSolutionError: there is none; names the rules that stood in the way.
    """
    for whole in first:
        candidate = {name: whole[name] for name in wanted if name in whole}
        if len(candidate) == len(wanted) and not objections(candidate):
            return candidate
    attempt = _Search(propose, objections)
    found = attempt.extend({}, wanted)
    if found is None:
        raise NoSolutionError(f"no versions of {', '.join(wanted)} fit together here: {attempt.explained()}")
    return found
