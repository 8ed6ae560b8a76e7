"""`envcheck --version -v`: the version, and the digest of the knowledge that this installation uses."""

from __future__ import annotations

import platform

from envcheck import __version__
from envcheck.cli import output
from envcheck.commands import loading
from envcheck.host.package_files import changed_files
from envcheck.knowledge.load import tree_digest

_MOST_NAMED = 5  # changed files that the output names


def run(arguments: list[str]) -> int:  # noqa: ARG001 - the signature of every `run`
    """Print version, digest and Python; return 3 if the knowledge or a file changed since the build."""
    tree = loading.read_only_tree()
    stated, found = tree["digest"], tree_digest(tree)
    changed = changed_files() or []
    lines = [
        f"envcheck {__version__}",
        f"matrix   {tree['matrix'].get('updated', '')}, {len(tree['rule'])} rules, {found}",
        f"python   {platform.python_version()}",
    ]
    if stated != found:
        lines.append(f"changed  since it was built, when it was {stated}: install envcheck again")
    if changed:
        more = f" and {len(changed) - _MOST_NAMED} more" if len(changed) > _MOST_NAMED else ""
        lines.append(
            f"changed  since it was built: {', '.join(changed[:_MOST_NAMED])}{more}: install envcheck again"
        )
    output.print_data("".join(f"{line}\n" for line in lines))
    return 0 if stated == found and not changed else 3
