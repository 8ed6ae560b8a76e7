"""The requirements that exclude each other, from what pip, uv, poetry and conda print. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import combinations

from envcheck.core.facts import Tri
from envcheck.core.versions import satisfies

_REQUIREMENT = (
    r"(?<![\w.-])[A-Za-z][\w.-]*+(?:\[[\w,-]+\])?"
    r"(?:\s?[=<>!~^]=?+\s?+[^\s,]*+(?:,\s?[<>=!~^]=?+\s?+[^\s,]++)*)?"
)
"""A name with its bounds. No part gives characters back: of many bounds, each would be tried in two ways."""

_DEPENDS = re.compile(
    rf"({_REQUIREMENT}(?: \d[\w.+]*)?) (?:depends on|requires|has requirement) ({_REQUIREMENT})"
    r"(?:;? \(*(?:extra|os_name|(?:python|platform|sys|implementation)_[a-z_]+) [^,]{1,160})?"  # a marker
    r"(?:,? (?:but you(?:'ll)? have|but found|got) (?:[A-Za-z]\S* |\S+==)?(\d\S*?)"
    r"(?= which|[.,;]?$|[.,;]\s|\s)|,? (which is not installed))?"
)
_ASKED = re.compile(rf"(?:you require|The user requested(?: \(constraint\))?) ({_REQUIREMENT})")
OFFERS = "the index offers only "
"""How what uv lists as the available releases of a package begins here."""

_OFFERED = re.compile(
    r"only the following versions of (?P<name>[A-Za-z][\w.-]*) are available:"
    r"(?P<those>(?: (?P=name)[=<>!~][^\s,]++(?:,[=<>!~][^\s,]++)*+)++)"
)
_PYTHON = re.compile(
    r"the (?P<which>requested|current) Python version \((?P<there>[^()]{1,80})\) does not satisfy "
    r"(?P<needed>Python[<>=!~][^\s,]{0,40}(?:,[<>=!~][^\s,]{1,40}){0,8})"
)
ASKS_PYTHON = tuple(f"Python{comparison}" for comparison in "<>=!~")
"""How a requirement on Python begins here, as in the output of uv."""

_CONCLUDED = re.compile(r"conclude that (?:you require )?[^.;]*")
_BOTH = re.compile(rf"({_REQUIREMENT}) depends on both ({_REQUIREMENT}) and ({_REQUIREMENT})")
_ABSENT = re.compile(
    rf"there (?:is|are) no versions? of ({_REQUIREMENT})"
    rf"|({_REQUIREMENT}) (?:was|were) not found in the (?:package registry|provided package locations|cache)"
    rf"|({_REQUIREMENT}) has no (?:usable )?wheels"
)
_MARKER = re.compile(r"\{[^{}]{0,200}\}")
"""The condition that uv writes behind a name: `torch{platform_machine == 'x86_64'}==2.6.0`."""

_IN_BRACKETS = re.compile(r"(?<=[\w\]]) \((?:([<>=!~^][^()]*)|(\d[^()\s]*))\)")
"""How poetry writes a version after a name: `trl (^0.9)`, `trl (0.9.6)`."""
_BOX = re.compile("[│╰─▶├\\u00d7╭╮╯]")


def clashing_requirements(text: str) -> tuple[str, ...]:
    """Return the requirements in an installer's output, each once: `a 1.0 requires b<2, found b 3`."""
    joined = _joined(text)
    joined = _CONCLUDED.sub("", joined)
    joined = _IN_BRACKETS.sub(lambda match: match[1] or f" {match[2]}", joined)
    joined = _BOTH.sub(r"\1 depends on \2 \1 depends on \3", joined)
    pythons = dict(_pythons_refused(text))
    asked = [(match, _stripped(match[2])) for match in _DEPENDS.finditer(joined)]
    named = {requirement for _, requirement in asked}
    found = {f"{needed} is needed; {there}": None for needed, there in pythons.items() if needed not in named}
    for match, requirement in asked:
        there = f"; {match[3]} is installed" if match[3] else "; it is not installed" if match[4] else ""
        there = f"; {pythons[requirement]}" if requirement in pythons else there
        found[f"{match[1]} requires {requirement}{there}"] = None
    for match in _OFFERED.finditer(joined):
        found[f"{OFFERS}{' and '.join(match['those'].split())}"] = None
    for match in _ASKED.finditer(joined):
        found[f"asked for: {_stripped(match[1])}"] = None
    return tuple(found)


def _pythons_refused(text: str) -> Iterator[tuple[str, str]]:
    """Yield each requirement on Python that uv says is not met, and the Python that there is instead."""
    for match in _PYTHON.finditer(_joined(text)):
        which = "the project allows Python" if match["which"] == "requested" else "this is Python"
        yield _stripped(match["needed"]), f"{which} {match['there']}"


_BOUNDED = re.compile(r"(?P<name>[A-Za-z][\w.-]*)(?:\[[^\]]*\])?\s?(?P<bounds>[=<>!~^].*)?")
_PINNED = re.compile(r"={2,3}\s?(?P<version>\d[\w.+]*)$")


def what_is_asked(requirement: str) -> str:
    """Return what one of the rows of `clashing_requirements` asks for: `b<2` of `a 1.0 requires b<2`."""
    return re.split(rf" requires |asked for: |{OFFERS}", requirement)[-1].partition("; ")[0]


def excluding_pair(requirements: Iterable[str]) -> tuple[str, str] | None:
    """Return the first two requirements that no release of a package meets together; None if none is sure.

    That is sure where one of them pins a release that the other one does not accept. An installer lists the
    requirements that it met beside them.
    """
    for one, other in combinations(requirements, 2):
        first, second = (_BOUNDED.match(what_is_asked(each)) for each in (one, other))
        if first is None or second is None or first["name"] != second["name"]:
            continue
        for pin, bounds in ((first["bounds"], second["bounds"]), (second["bounds"], first["bounds"])):
            pinned = _PINNED.match(pin or "")
            if pinned and bounds and satisfies(pinned["version"], bounds, unknown=Tri.MAYBE) is Tri.NO:
                return one, other
    return None


_HINT = re.compile(
    r"(?m)^[ \t]{0,20}hint: (?P<said>\S.*(?:\n(?![ \t]{0,20}(?:hint|help):)[ \t]{0,20}\S.*){0,12})"
)
_LONGEST_HINT = 600


def hints(text: str) -> tuple[str, ...]:
    """Return what uv itself suggests below its message, each hint on one line."""
    found = (" ".join(match["said"].split()) for match in _HINT.finditer(_BOX.sub(" ", text)))
    return tuple(each[:_LONGEST_HINT] for each in dict.fromkeys(found))


def absent_releases(text: str) -> tuple[str, ...]:
    """Return what an installer found no release or no wheel of, each once: `torch==2.6.0+cu124`."""
    found = (next(filter(None, match.groups())) for match in _ABSENT.finditer(_joined(text)))
    return tuple(dict.fromkeys(map(_stripped, found)))


def _joined(text: str) -> str:
    """Return a text on one line, without the boxes and the markers that uv draws and writes."""
    return _MARKER.sub("", " ".join(_BOX.sub(" ", text).split()))


def _stripped(requirement: str) -> str:
    return requirement.rstrip(".,;")
