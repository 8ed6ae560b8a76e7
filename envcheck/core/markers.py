"""PEP 508 environment markers: the variables they name, and their evaluation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envcheck.core import versions
from envcheck.core.facts import Tri

_LONGEST = 10_000  # characters: ten times the longest that tools generate


def environment(
    python: str, *, architecture: str, system: str = "linux", implementation: str = "cpython"
) -> dict[str, str]:
    """Return the variables a marker may name, for a Python (`3.11.9`) on a platform.

    `3.11` stands for all releases of that minor version and is evaluated as `3.11.0`.
    """
    minor = ".".join(python.split(".")[:2])
    full = f"{python}.0" if python == minor and python else python
    return {
        "python_version": minor,
        "python_full_version": full,
        "implementation_name": implementation,
        "implementation_version": full,
        "platform_python_implementation": "CPython",
        "sys_platform": system,
        "platform_system": system.capitalize(),
        "platform_machine": architecture,
        "platform_release": "",
        "platform_version": "",
        "os_name": "posix",
        "extra": "",
    }


def matches(marker: str, environment: Mapping[str, str]) -> bool | None:
    """Return whether a marker matches an environment; None if the marker cannot be read.

    Nearly all published markers are `variable operator "literal"`, joined by and/or. They are evaluated
    here, because importing packaging's parser takes as long as starting Python.
    """
    simple = _simple_marker(marker, environment)
    if simple is not None:
        return simple
    if len(marker) > _LONGEST:
        return None
    from packaging.markers import Marker, UndefinedComparison

    try:
        return Marker(marker.strip()).evaluate(dict(environment))
    except UndefinedComparison:
        return False
    except (ValueError, RecursionError):  # InvalidMarker; a number with thousands of digits; deep nesting
        return None


def _simple_marker(marker: str, environment: Mapping[str, str]) -> bool | None:
    """Evaluate a marker of simple comparisons; return None if it has parentheses, `in` or other syntax."""
    answers = []
    for alternative in marker.split(" or "):
        parts = [_simple_test(part.split(), environment) for part in alternative.split(" and ")]
        if None in parts:
            return None
        answers.append(all(parts))
    return any(answers)


def _simple_test(words: Sequence[str], environment: Mapping[str, str]) -> bool | None:
    if len(words) != len(("variable", "operator", "literal")):
        return None
    name, op, quoted = words
    literal = quoted[1:-1]
    if (
        name not in environment
        or quoted[:1] not in ("'", '"')
        or quoted != f"{quoted[0]}{literal}{quoted[0]}"
    ):
        return None
    value = environment[name]
    if name in ("python_version", "python_full_version") and versions.parse(literal) and op in _ORDERS:
        answer = versions.compare(value, op, literal)
        return None if answer is Tri.MAYBE else answer is Tri.YES
    if op not in ("==", "!=") or versions.parse(literal.removesuffix(".*")) is not None:
        return None
    return (value == literal) == (op == "==")


_ORDERS = frozenset({"==", "!=", ">=", "<=", "<", ">"})
