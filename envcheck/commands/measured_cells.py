"""Cells of measured combinations: made from the outcomes of self-tests, compared, and written as TOML."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from envcheck.core.rules import Target
from envcheck.selftest import outcome as selftest_outcome
from envcheck.selftest.declaration import SelftestVariant
from envcheck.selftest.outcome import Outcome

# --- from outcomes to cells -------------------------------------------------------------------------


def cells_of(outcomes: Sequence[Outcome], target: Target) -> Iterator[dict[str, Any]]:
    """Yield a cell for each training configuration that was run; it fails if one of its tests does.

    A variant that states every fact of the target defines a configuration. A variant that leaves a fact open
    (checkpointing, for example) counts towards each configuration. If no variant defines one, only imports
    were tested.
    """
    decided = [each for each in outcomes if each.result in (selftest_outcome.PASS, selftest_outcome.FAIL)]
    whole = [each for each in decided if _states_all(each.variant, target)]
    trains: list[dict[str, Any]] = []
    for each in whole:
        if (train := _beyond_target(each.variant, target)) not in trains:
            trains.append(train)
    for train in trains:
        group = [
            each for each in decided if each not in whole or _beyond_target(each.variant, target) == train
        ]
        yield _cell(group, train, passing="ok")
    if decided and not trains:
        yield _cell(decided, {}, passing="imports")


def _cell(group: Sequence[Outcome], train: Mapping[str, Any], passing: str) -> dict[str, Any]:
    """Return the cell of one configuration by the outcomes that count towards it."""
    failed = [each for each in group if each.result == selftest_outcome.FAIL]
    cell: dict[str, Any] = {"outcome": "fails" if failed else passing}
    if rule := next((each.rule for each in failed if each.rule), ""):
        cell["rule"] = rule
    if failed:
        cell |= {"signature": failed[0].why[:200], "failed": sorted(map(_name, failed))}
    if train:
        cell["train"] = train
    return {
        **cell,
        "ranks": max(each.ranks for each in group),
        "seconds": round(sum(each.seconds for each in group), 1),
        "tests": sorted(map(_name, group)),
    }


def _name(outcome: Outcome) -> str:
    return f"{outcome.claim.name}/{outcome.variant.name}"


_DEFAULTS = {
    "dora": False,
    "offload_optimizer": "none",
    "offload_param": "none",
    "gradient_clipping": True,
    "parallel": "deepspeed",
    "quantization": "none",
    "frozen_params": True,
}
"""Default values, which a cell does not repeat."""

_MAY_STAY_OPEN = frozenset({"train.precision", "train.gradient_clipping"})
"""Facts that a variant may leave open and still define a configuration: no known failure needs them."""


def _states_all(variant: SelftestVariant, target: Target) -> bool:
    stated = {f"train.{key}" for key in variant.train}
    return bool(variant.train) and stated >= set(target.train) - _MAY_STAY_OPEN


def _beyond_target(variant: SelftestVariant, target: Target) -> dict[str, Any]:
    """Return the training facts of a variant that differ from the target's and from the defaults."""
    return {
        key: value
        for key, value in variant.train.items()
        if target.train.get(f"train.{key}") != value and _DEFAULTS.get(key) != value
    }


# --- comparison -------------------------------------------------------------------------------------


def has_measured(
    row: Mapping[str, Any],
    *,
    target: str,
    pins: Mapping[str, str],
    train: Mapping[str, Any],
    ranks: int | None,
    digest: str,
) -> bool:
    """Return whether a cell holds the result of this combination and these tests.

    `train` holds the training facts of `--set`, `digest` that of the tests; `ranks` None accepts any
    number.
    """
    return (
        row.get("target") == target
        and row.get("pkg") == dict(pins)
        and row.get("test") == digest
        and (ranks is None or row.get("ranks", ranks) == ranks)
        and (row.get("outcome") == "not-installable" or _unusual(row.get("train", {})) == _unusual(train))
    )


def _unusual(train: Mapping[str, Any]) -> dict[str, Any]:
    """Return the training facts that differ from their defaults."""
    return {key: value for key, value in train.items() if _DEFAULTS.get(key, value) != value}


# --- TOML -------------------------------------------------------------------------------------------

_ORDER = (
    *("target", "outcome", "rule", "signature", "failed", "pkg", "python", "train"),
    *("device", "ranks", "seconds", "date", "test", "tests"),
)


def cell_toml(cell: Mapping[str, Any]) -> str:
    """Return a `[[cell]]` in the layout of compat/matrix.toml."""
    return "\n[[cell]]\n" + "".join(f"{key} = {toml_value(cell[key])}\n" for key in _ORDER if key in cell)


def toml_value(value: Any) -> str:
    """Return a value as TOML, on one line."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dt.date | int | float):
        return str(value)
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {toml_value(each)}" for key, each in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(toml_value(each) for each in value)}]"
    return _quoted(str(value))


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _quoted(name)


def _quoted(text: str) -> str:
    """Return a TOML string in ASCII.

    JSON writes characters beyond 16 bits as surrogates, which TOML does not allow, so they are escaped here.
    """
    whole = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return re.sub(
        r"[^\x20-\x7e]",
        lambda each: f"\\u{ord(each[0]):04x}" if each[0] <= "\uffff" else f"\\U{ord(each[0]):08x}",
        json.dumps(whole, ensure_ascii=False),
    )
