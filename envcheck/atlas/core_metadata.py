"""Read what a release requires: METADATA of a wheel, PKG-INFO and requires.txt of a source distribution."""

import email.parser
import email.policy
import re
from collections.abc import Iterator
from typing import NamedTuple


class Requires(NamedTuple):
    """Texts of Requires-Dist in the order of the metadata, and Requires-Python; empty where absent.

    `known` is false if the file does not say what is required: it was written before Requires-Dist was usual,
    or leaves it to the build (`Dynamic: Requires-Dist`).
    """

    dists: tuple[str, ...] = ()
    python: str = ""
    known: bool = True


def requires_of_metadata(text: str) -> Requires:
    """Return what METADATA or PKG-INFO require."""
    fields = email.parser.HeaderParser(policy=email.policy.compat32).parsestr(text)
    dists = tuple(_one_line(value) for value in fields.get_all("Requires-Dist", []))
    dynamic = {str(value).strip().lower() for value in fields.get_all("Dynamic", [])}
    python = _one_line(fields.get("Requires-Python") or "")
    return Requires(
        dists, "" if python == "UNKNOWN" else python, bool(dists) or "requires-dist" not in dynamic
    )


def _one_line(value: object) -> str:
    return " ".join(str(value).split())


def requires_of_requires_txt(text: str) -> tuple[str, ...]:
    """Return the requirements of an egg-info's requires.txt, with sections as markers.

    A section `[extra:marker]` puts both into the marker of each requirement below it.
    """
    return tuple(_sectioned(text))


def _sectioned(text: str) -> Iterator[str]:
    marker = ""
    for line in map(str.strip, text.splitlines()):
        section = re.fullmatch(r"\[([^:\]]*)(?::(.*))?\]", line)
        if section is not None:
            marker = _section_marker(section[1].strip(), (section[2] or "").strip())
        elif line and not line.startswith("#"):
            yield f"{line} ; {marker}" if marker else line


def _section_marker(extra: str, marker: str) -> str:
    if not extra:
        return marker
    named = f'extra == "{extra}"'
    return f"({marker}) and {named}" if marker else named


def requires_of_requirements_txt(text: str) -> tuple[str, ...]:
    """Return the requirements of a requirements.txt, without options and addresses."""
    lines = (re.sub(r"(?:^|\s)#.*", "", line).strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("-") and "://" not in line)
