"""Leave out fixes that install a release which an installed package excludes in its metadata.

An installer refuses such a release, or warns and leaves a broken requirement. If the fix is a lower bound and
a later release fits, that one is advised instead. If nothing else helps, the fix names the package that has
to change too. A fix that uninstalls what another package requires is never shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from envcheck.commands.atlas_tables import release_table
from envcheck.core import versions
from envcheck.core.facts import Inventory, Tri, Value, package_key, package_name
from envcheck.core.findings import Finding, Judgement
from envcheck.core.rules import Fix, Matrix, Requirement, uninstalls
from envcheck.rules.fixes import JudgeChanges, with_passing_fixes
from envcheck.rules.requirements import split_requirement


def without_excluded(
    finding: Finding,
    judgement: Judgement,
    inventory: Inventory,
    matrix: Matrix,
    judge_changes: JudgeChanges,
    asked: Sequence[Requirement],
) -> Finding:
    """Return the finding with those of its fixes that no unchanged package excludes, if it has any.

    `finding` has the fixes that pass the judge, as `with_passing_fixes` returns them; `asked` are the
    requirements of all installed packages.
    """
    kept: list[Fix] = []
    excluded: list[Fix] = []
    for fix in finding.fixes:
        if own := _unmet_requirement(fix, inventory, matrix):
            excluded.append(fix._replace(conflict=_conflict(own)))
            continue
        against = excluding(fix, asked, inventory, matrix)
        if not against:
            kept.append(fix)
            continue
        if any(uninstalls(key, value) for key, value in fix.tried):
            continue
        later = _with_later_releases(fix, against, inventory, matrix)
        passed = _passing(finding, later, judgement, inventory, judge_changes) if later else None
        if passed and not excluding(passed, asked, inventory, matrix):
            kept.append(passed)
        else:
            excluded.append(fix._replace(conflict=_conflict(against[0])))
    return finding._replace(fixes=tuple(kept or excluded))


def excluding(
    fix: Fix, asked: Sequence[Requirement], inventory: Inventory, matrix: Matrix
) -> list[Requirement]:
    """Return the requirements of unchanged packages that are met now and that the fix violates.

    Any requirement on a package that the fix uninstalls is violated.
    Packages that move with a changed one, such as torchvision with torch, change too.
    """
    changed = {package_name(key): value for key, value in fix.tried if key != package_name(key)}
    moving = {other for name in changed for other in matrix.moves_with.get(name, ())}
    found = []
    for requirement in asked:
        name = requirement.requires
        if name not in changed or requirement.package in changed or requirement.package in moving:
            continue
        if uninstalls(package_key(name), changed[name]):
            found.append(requirement)
            continue
        installed = inventory.known(package_key(name))
        met = installed is not None and _meets(installed, requirement)
        if met and not _meets(changed[name], requirement):
            found.append(requirement)
    return found


def _unmet_requirement(fix: Fix, inventory: Inventory, matrix: Matrix) -> Requirement | None:
    """Return what a release of the fix requires of the unchanged package that it moves with, if unmet.

    An installer would change torch for a torchvision. Of other packages, it changes what the fix needs.
    """
    changed = {package_name(key): value for key, value in fix.tried if key != package_name(key)}
    for leader, companions in matrix.moves_with.items():
        installed = inventory.known(package_key(leader))
        if leader in changed or installed is None:
            continue
        for package in changed.keys() & set(companions):
            row = release_table().row(package, str(changed[package]))
            for line in row.requires if row is not None else ():
                name, specifier = split_requirement(line)
                required = Requirement(package, name, specifier, "published")
                if name == leader and ";" not in line and not _meets(installed, required):
                    return required
    return None


def _meets(version: Value, requirement: Requirement) -> bool:
    return versions.satisfies(str(version), requirement.specifier, unknown=Tri.YES) is not Tri.NO


def _conflict(requirement: Requirement) -> str:
    """Return the sentence that `pip check` would print, in the words of the rules about metadata."""
    package, required, specifier, _ = requirement
    return f"{package} asks for {required}{specifier} in its own metadata"


def _passing(
    finding: Finding, fix: Fix, judgement: Judgement, inventory: Inventory, judge_changes: JudgeChanges
) -> Fix | None:
    """Return the fix if it passes the judge here, with the values that were tried."""
    alone = finding._replace(rule=finding.rule._replace(fixes=(fix,)))
    own = dict(fix.set)
    found = with_passing_fixes(alone, judgement, inventory, judge_changes).fixes
    return next((each for each in found if dict(each.set) == own), None)


def _with_later_releases(
    fix: Fix, against: Sequence[Requirement], inventory: Inventory, matrix: Matrix
) -> Fix | None:
    """Return the fix with higher lower bounds that the requirements admit; None if there are none."""
    changes = dict(fix.set)
    for name in dict.fromkeys(each.requires for each in against):
        bound = changes[package_key(name)]
        asked = [each for each in against if each.requires == name]
        release = _first_release(name, str(bound), asked, inventory, matrix.known_through)
        if not release:
            return None
        _, comma, rest = str(bound).partition(",")
        changes[package_key(name)] = f">={release}{comma}{rest}"
    return Fix(tuple(changes.items()), fix.cost)


def _first_release(
    name: str,
    bound: str,
    asked: Sequence[Requirement],
    inventory: Inventory,
    known_through: Mapping[str, str],
) -> str:
    """Return the oldest release within a bound such as `>=1.7.0,<2` that meets the requirements.

    Empty if none does, or if the bound is another kind.
    """
    if not bound.startswith(">="):
        return ""
    python = inventory.known("python.version")
    table = release_table()
    for release in table.versions(name):
        row, version = table.row(name, release), versions.parse(release)
        if row is None or row.yanked or version is None or version.is_prerelease:
            continue
        serves = python is None or versions.satisfies(str(python), row.python, unknown=Tri.YES) is Tri.YES
        through = known_through.get(name)
        known = through is None or versions.compare(release, "<=", through) is Tri.YES
        within = versions.satisfies(release, bound, unknown=Tri.NO) is Tri.YES
        if serves and known and within and all(_meets(release, each) for each in asked):
            return release
    return ""
