"""The releases that have a fault: `python tools/first_tag.py CLONE --broke COMMIT… --fixed COMMIT…`.

For the commits that broke something and those that mended it, prints the first release that contains each
and the bound that follows, such as `>=0.14.1,<0.14.3`. Pre-releases are left out: nobody's bound should
rest on one. A commit that was picked onto a release branch has another name there: give it too, and the
earliest release of any of them counts.
"""

from __future__ import annotations

import argparse
import subprocess  # noqa: TID251 - a tool for curators, run by hand in a clone
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from packaging.version import InvalidVersion, Version

DEADLINE_S = 60
"""For each git command: `tag --contains` walks the history of a large clone in a few seconds."""


class Found(NamedTuple):
    """A commit and the first release that has it; None if no release does."""

    commit: str
    release: Version | None
    tag: str


class CloneError(Exception):
    """Git refused: no such clone, no such commit, too slow."""


def releases(tags: Sequence[str], prefix: str = "") -> dict[Version, str]:
    """The final releases among tag names, oldest first: `v0.14.1`, `release-2.0`, `peft-0.3.0`.

    With a prefix, only tags that begin with it; for clones that tag several projects.
    """
    found: dict[Version, str] = {}
    for tag in tags:
        if not tag.startswith(prefix):
            continue
        bare = tag[len(prefix) :]
        start = next((place for place, char in enumerate(bare) if char.isdecimal()), None)
        if start is None:
            continue
        try:
            version = Version(bare[start:])
        except InvalidVersion:
            continue
        if not version.is_prerelease:
            found.setdefault(version, tag)
    return dict(sorted(found.items()))


def first_release(clone: Path, commit: str, prefix: str = "") -> Found:
    """The first release whose tag contains the commit.

    Raises:
        CloneError: git does not know the commit, or took too long.
    """
    name = _git(clone, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}").strip()
    having = releases(_git(clone, "tag", "--contains", name).split("\n"), prefix)
    version = next(iter(having), None)
    return Found(commit, version, having[version] if version else "")


def interval(broke: Sequence[Found], fixed: Sequence[Found], every: Sequence[Version]) -> str:
    """The bound of the releases that have the fault, as a rule writes it; empty if none has.

    From the earliest release of a commit that broke it to the earliest release, not before that, of one
    that mended it.
    """
    starts = [each.release for each in broke if each.release is not None]
    if broke and not starts:
        return ""  # never released
    start = min(starts, default=None)
    ends = [
        each.release
        for each in fixed
        if each.release is not None and (start is None or each.release >= start)
    ]
    end = min(ends, default=None)
    if start is not None and start == end:
        return ""  # broken and mended within one release
    low = f">={start}" if start is not None and start != min(every, default=None) else ""
    high = f"<{end}" if end is not None else ""
    return ",".join(filter(None, (low, high))) or "present"


def _git(clone: Path, *arguments: str) -> str:
    try:
        ran = subprocess.run(
            ["git", "-C", str(clone), *arguments],
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise CloneError(f"git {arguments[0]} took longer than {DEADLINE_S} s") from None
    if ran.returncode != 0:
        said = ran.stderr.strip() or f"no such commit {arguments[-1].removesuffix('^{commit}')!r}"
        raise CloneError(f"git {arguments[0]}: {said.splitlines()[0]}")
    return ran.stdout


def main(arguments: Sequence[str]) -> int:
    """Print the first release of each commit, and the interval; 1 if no release has the fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clone", type=Path, help="a clone of the upstream repository, with its tags")
    parser.add_argument("--broke", nargs="*", default=[], metavar="COMMIT", help="none: it was always so")
    parser.add_argument("--fixed", nargs="*", default=[], metavar="COMMIT", help="none: it still is")
    parser.add_argument("--prefix", default="", help="how release tags begin, in a clone of several projects")
    options = parser.parse_args(arguments)
    try:
        every = list(releases(_git(options.clone, "tag").split("\n"), options.prefix))
        broke = [first_release(options.clone, each, options.prefix) for each in options.broke]
        fixed = [first_release(options.clone, each, options.prefix) for each in options.fixed]
    except CloneError as error:
        print(f"first_tag: {error}", file=sys.stderr)
        return 2
    for what, found in (("broke", broke), ("fixed", fixed)):
        for each in found:
            where = f"{each.release} (tag {each.tag})" if each.release else "in no release"
            print(f"{what}  {each.commit}  first in {where}")
    bound = interval(broke, fixed, every)
    print(f"interval  {bound or 'no release has it'}")
    return 0 if bound else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
