"""The requirements that exclude each other, from what pip, uv, poetry and conda print. Pure."""

from __future__ import annotations

import re

_REQUIREMENT = r"[A-Za-z][\w.-]*(?:\[[\w,-]+\])?(?:\s?[=<>!~^]=?\s?[^\s,]*(?:,\s?[<>=!~^]=?\s?[^\s,]+)*)?"
_DEPENDS = re.compile(
    rf"({_REQUIREMENT}(?: \d[\w.+]*)?) (?:depends on|requires|has requirement) ({_REQUIREMENT})"
    r"(?:,? (?:but you(?:'ll)? have|but found|got) (?:[A-Za-z]\S* |\S+==)?(\d\S*?)"
    r"(?= which|[.,;]?$|[.,;]\s|\s))?"
)
_ASKED = re.compile(rf"(?:you require|The user requested(?: \(constraint\))?) ({_REQUIREMENT})")
_CONCLUDED = re.compile(r"conclude that (?:you require )?[^.;]*")
_BOTH = re.compile(rf"({_REQUIREMENT}) depends on both ({_REQUIREMENT}) and ({_REQUIREMENT})")
_IN_BRACKETS = re.compile(r"(?<=[\w\]]) \((?:([<>=!~^][^()]*)|(\d[^()\s]*))\)")
"""How poetry writes a version after a name: `trl (^0.9)`, `trl (0.9.6)`."""
_BOX = re.compile("[│╰─▶├\\u00d7╭╮╯]")


def clashing_requirements(text: str) -> tuple[str, ...]:
    """Return the requirements in an installer's output, each once: `a 1.0 requires b<2, found b 3`."""
    joined = " ".join(_BOX.sub(" ", text).split())
    joined = _CONCLUDED.sub("", joined)
    joined = _IN_BRACKETS.sub(lambda match: match[1] or f" {match[2]}", joined)
    joined = _BOTH.sub(r"\1 depends on \2 \1 depends on \3", joined)
    found: dict[str, None] = {}
    for match in _DEPENDS.finditer(joined):
        there = f"; {match[3]} is installed" if match[3] else ""
        found[f"{match[1]} requires {_stripped(match[2])}{there}"] = None
    for match in _ASKED.finditer(joined):
        found[f"asked for: {_stripped(match[1])}"] = None
    return tuple(found)


def _stripped(requirement: str) -> str:
    return requirement.rstrip(".,")
