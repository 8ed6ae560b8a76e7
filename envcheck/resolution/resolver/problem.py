"""What a search for a lock is given, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from envcheck.core.facts import Inventory, Value
from envcheck.core.rules import Matrix, Target, UserRequirement


class Release(NamedTuple):
    """A release of a package, as far as choosing it is concerned.

    `requires` holds lines such as `torch>=2.4`. `pythons` lists the Pythons for which it has wheels, where
    that is known; else `requires_python` is the range in its metadata. `date` is ISO. `sdist` means that
    there are no wheels, so that the package is built on installation. `no_wheel` says why none of its wheels
    fits the platform; empty if one does, or if nothing is known of them.
    """

    package: str
    version: str
    requires: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    requires_python: str = ""
    date: str = ""
    yanked: bool = False
    sdist: bool = False
    no_wheel: str = ""


class Objection(NamedTuple):
    """A rule that a completed lock broke, with the versions of the stack and of the packages a backend added.

    If `wide`, the search judges the rule with the added packages assumed (an empty version means not
    installed), and so refuses every stack that the rule would break. Otherwise it refuses only stacks with
    these very versions. `message` is the rule's title, for people. `bounds` are what the rule's own fix
    requires of the added packages (`numpy==1.26.4`), `alternatives` what each of its fixes requires of one.
    """

    rule: str
    stack: tuple[tuple[str, str], ...]
    added: tuple[tuple[str, str], ...] = ()
    wide: bool = False
    message: str = ""
    bounds: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()


class SearchProblem(NamedTuple):
    """What to choose for: the knowledge, the target, the machine's facts, and every further constraint.

    `until` is an ISO date; releases after it are not taken. `until_by` names the option that gave the date.
    `dependencies` are packages that the wished ones bring along, each after those that require it. The search
    chooses a release of such a package only if a chosen release requires one.
    """

    known: Matrix
    target: Target
    machine: Inventory
    python: str
    releases: tuple[Release, ...]
    requirements: tuple[UserRequirement, ...] = ()
    until: str = ""
    until_by: str = ""
    objections: tuple[Objection, ...] = ()
    dependencies: tuple[str, ...] = ()


Reason = tuple[str, ...]
"""What refuses a release or a choice: `("rule", id)`, `("metadata", package, required)`,
`("requirement", number)`, `("python",)`, `("wheel", package)`, `("wants", package)`, `("through", package)`,
`("yanked", package)`, `("pre-release", package)`, `("until",)` or `("objection", number)`. Numbers index the
problem's tuples."""


class Answer(NamedTuple):
    """What a search found: versions by package, and the training facts it changed; or why there are none.

    `brought` holds the versions of dependencies. Where nothing fits, `versions` is None and `reasons` holds
    everything that refused something: enough to refuse all choices, though not the least that would. `nodes`
    is the number of choices judged. `measured` means that the combination was run and trained.
    """

    versions: Mapping[str, str] | None
    changed: Mapping[str, Value]
    reasons: frozenset[Reason]
    nodes: int
    measured: bool = False
    brought: Mapping[str, str] = {}
