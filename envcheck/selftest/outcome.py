"""The outcome of one variant of a self-test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from envcheck.selftest.declaration import SelftestDeclaration, SelftestVariant

PASS, FAIL, SKIP, UNKNOWN = "pass", "fail", "skip", "unknown"
"""How a variant may end. Unknown is a fault of the test or of its worker; the stack is not to blame."""


class Outcome(NamedTuple):
    """How one variant of one test ended, and what was observed.

    `result` is one of the four constants above, and `why` the reason. `rank` is the rank that failed, died or
    hung, or None if all ranks did the same. `call` is the call in which it did so, `place` the innermost line
    of a library, and `trace` the traceback. `seconds` is the duration, `ranks` the number of processes, and
    `seen` what the test observed, by name. `rule` is the id of a rule that forbids exactly this combination,
    if there is one, and `ways_out` are its fixes in words; `sure` is false if the rule describes the failure
    in other words.
    """

    claim: SelftestDeclaration
    variant: SelftestVariant
    result: str
    why: str = ""
    rank: int | None = None
    call: str = ""
    place: str = ""
    trace: str = ""
    seconds: float = 0.0
    ranks: int = 1
    seen: Mapping[str, Any] = {}
    rule: str = ""
    sure: bool = True
    ways_out: tuple[str, ...] = ()
