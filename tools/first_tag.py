"""Find the releases that have a fault: `python tools/first_tag.py CLONE --broke COMMIT… --fixed COMMIT…`.

For the commits that introduced a fault and those that fixed it, print the first release that contains each
and the resulting bound, such as `>=0.14.1,<0.14.3`. Pre-releases are ignored, because no bound should depend
on one. A commit that was cherry-picked onto a release branch has another hash there: pass that hash too. The
earliest release that contains any of them counts.
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
"""Deadline of each git command; `tag --contains` takes a few seconds in a large clone."""


class Found(NamedTuple):
    """A commit and the first release that contains it, with its tag; None and "" if no release does."""

    commit: str
    release: Version | None
    tag: str


class CloneError(Exception):
    """Git failed: no such clone, no such commit, or it took too long."""


def releases(tags: Sequence[str], prefix: str = "") -> dict[Version, str]:
    """Return the final releases among tag names such as `v0.14.1` or `release-2.0`, oldest first.

    With a prefix, consider only tags that begin with it, for clones that contain several projects.
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
    """Return the first release whose tag contains the commit.

    Raises:
        CloneError: git does not know the commit, or took too long.
    """
    name = _git(clone, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}^{{commit}}").strip()
    having = releases(_git(clone, "tag", "--contains", name).split("\n"), prefix)
    version = next(iter(having), None)
    return Found(commit, version, having[version] if version else "")


def interval(broke: Sequence[Found], fixed: Sequence[Found], every: Sequence[Version]) -> str:
    """Return the bound of the releases that have the fault, as a rule writes it; empty if no release has.

    The interval starts at the earliest release that contains a breaking commit. It ends at the earliest
    release, not before the start, that contains a fix.
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
        return ""  # broken and fixed within one release
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
        message = ran.stderr.strip() or f"no such commit {arguments[-1].removesuffix('^{commit}')!r}"
        raise CloneError(f"git {arguments[0]}: {message.splitlines()[0]}")
    return ran.stdout


def main(arguments: Sequence[str]) -> int:
    """Print the first release of each commit, and the interval; return 1 if no release has the fault."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clone", type=Path, help="a clone of the upstream repository, with its tags")
    parser.add_argument(
        "--broke", nargs="*", default=[], metavar="COMMIT", help="leave out if it was always broken"
    )
    parser.add_argument(
        "--fixed", nargs="*", default=[], metavar="COMMIT", help="leave out if it is still broken"
    )
    parser.add_argument(
        "--prefix", default="", help="prefix of the release tags, in a clone with several projects"
    )
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
