"""The input of a search for a lock, and its answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from envcheck.core.facts import Inventory, Value
from envcheck.core.rules import Matrix, Target, UserRequirement


class Release(NamedTuple):
    """What the search needs to know about a release of a package.

    `requires` holds lines such as `torch>=2.4`. `pythons` lists the Pythons for which it has wheels, if that
    is known; otherwise `requires_python` is the range in its metadata. `date` is an ISO date. `sdist` means
    that there are no wheels, so that the package is built on installation. `no_wheel` says why none of its
    wheels fits the platform; it is empty if one does, or if nothing is known about them.
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
    """A rule that a completed lock breaks, with the versions of the stack and of packages a backend added.

    If `wide`, the search judges the rule as if the added packages were installed (an empty version means not
    installed), and so refuses every stack that breaks the rule with them. Otherwise, it refuses only stacks
    with exactly these versions. `message` is the rule's title. `bounds` has the constraints of the rule's
    first fix that changes only added packages (`numpy==1.26.4`); if it has no such fix, the releases of one
    added package with which the rule passes. `alternatives` has a constraint for each of
    the rule's fixes that changes one package.
    """

    rule: str
    stack: tuple[tuple[str, str], ...]
    added: tuple[tuple[str, str], ...] = ()
    wide: bool = False
    message: str = ""
    bounds: tuple[str, ...] = ()
    alternatives: tuple[str, ...] = ()


class SearchProblem(NamedTuple):
    """Input of a search: the knowledge, the target, the machine's facts, and all further constraints.

    `until` is an ISO date; releases after it are not used. `until_by` names the option that gave the date.
    `dependencies` are packages that other packages of the search require, each after those that require it.
    The search chooses a release of a dependency only if a chosen release requires it.
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
    """Answer of a search: versions by package, and the training facts it changed; or why there are none.

    `brought` has the versions of dependencies. If nothing fits, `versions` is None and `reasons` has
    everything that refused a choice: enough to refuse all choices, but not a minimal set. `nodes` is the
    number of choices judged. `measured` means that the combination was run and trained.
    """

    versions: Mapping[str, str] | None
    changed: Mapping[str, Value]
    reasons: frozenset[Reason]
    nodes: int
    measured: bool = False
    brought: Mapping[str, str] = {}
