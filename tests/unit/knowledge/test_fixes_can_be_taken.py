"""Each fix that a user is shown can be installed beside the packages of its time, and brings no other error.

A case names the packages that its rule is about. A user has others, whose metadata may exclude the release that
a fix advises. So each case is completed by the releases of usual packages that were the newest ones when its
newest package was published and that fit it by their metadata.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from typing import Any

import pytest

from envcheck.commands import examine, judging, tried_fixes
from envcheck.commands.atlas_tables import release_table
from envcheck.commands.excluded_fixes import excluding
from envcheck.commands.published_requirements import with_published_requirements
from envcheck.core import facts_file, versions
from envcheck.core.facts import (
    Fact,
    Inventory,
    Known,
    Tri,
    Value,
    installed_versions,
    is_package_version_key,
    package_key,
)
from envcheck.core.findings import Finding, Verdict
from envcheck.core.rules import Matrix, Severity, uninstalls
from envcheck.knowledge.requirement_windows import requirements_of
from envcheck.rules import derive
from envcheck.rules.changes import apply_changes
from envcheck.rules.requirements import installed_requirements, marker_environment
from tests.support.worlds import known as matrix
from tests.support.worlds import rule, vocabulary
from tests.unit.knowledge.test_cases import CASES, broken, facts_of, judged, known

TRAINERS = {"llamafactory": "llamafactory", "swift": "ms-swift", "axolotl": "axolotl", "openrlhf": "openrlhf"}
USUAL = (
    "torch",
    "transformers",
    "accelerate",
    "peft",
    "trl",
    "datasets",
    "deepspeed",
    "numpy",
    "bitsandbytes",
)
"""Packages that most trainings have. Those that pip moves along with another one, such as tokenizers, are left out."""

LATER = timedelta(days=45)
"""How much newer than the newest package of a case the others may be: people install what was published last."""

EXCLUDED: Mapping[str, str] = {
    "transformers4449-tokenizers0200": "TRL of that time asks for transformers before 4.47; tokenizers alone would do",
}
"""Cases in which a package excludes what every fix advises, with the reason. `--fix` plans for them."""


def days_of(packages: Mapping[str, str]) -> list[str]:
    rows = (release_table().row(name, version) for name, version in packages.items())
    return [row.uploaded for row in rows if row and row.uploaded]


def fits(name: str, version: str, packages: Mapping[str, str], environment: Mapping[str, str]) -> bool:
    """Return whether the metadata of a release and of the other packages admit one another."""
    row = release_table().row(name, version)
    if row is None or row.yanked:
        return False
    asked = [
        (one.requires, one.specifier) for one in requirements_of(name, version, release_table(), environment)
    ]
    own = all(meets(packages[other], specifier) for other, specifier in asked if other in packages)
    return (
        own
        and meets(environment["python_full_version"], row.python)
        and all(
            meets(version, one.specifier)
            for other, installed in packages.items()
            for one in requirements_of(other, installed, release_table(), environment)
            if one.requires == name
        )
    )


def meets(version: str, specifier: str) -> bool:
    return versions.satisfies(version, specifier, unknown=Tri.YES) is Tri.YES


def completed(read: Inventory) -> Inventory:
    """Return the inventory with the usual packages that it lacks, in releases of its time that fit."""
    packages, environment = dict(installed_versions(read)), marker_environment(read)
    days = days_of(packages)
    if not days:
        return read
    newest = (date.fromisoformat(max(days)) + LATER).isoformat()
    trainer = TRAINERS.get(str(read.known("train.trainer")))
    for name in (*([trainer] if trainer else []), *USUAL):
        if package_key(name) not in read.facts:
            packages.update(newest_fitting(name, newest, packages, environment))
    added = {name: version for name, version in packages.items() if package_key(name) not in read.facts}
    return read.with_facts(
        Fact(package_key(name), Known(version), "of its time") for name, version in added.items()
    )


def newest_fitting(
    name: str, newest: str, packages: Mapping[str, str], environment: Mapping[str, str]
) -> dict[str, str]:
    for version in reversed(release_table().versions(name)):
        parsed, row = versions.parse(version), release_table().row(name, version)
        of_its_time = (
            row is not None and row.uploaded <= newest and parsed is not None and not parsed.is_prerelease
        )
        if of_its_time and fits(name, version, packages, environment):
            return {name: version}
    return {}


def finding_of(case: dict[str, Any]) -> tuple[Inventory, Inventory, Finding | None]:
    """Return the completed case before and after derivation, and the finding of its rule with the fixes shown."""
    read = with_published_requirements(completed(facts_of(case)))
    settled = derive.derive(read, known())
    judgement = judging.judge_inventory(settled, known(), None)
    shown = tried_fixes.add_fixes(judgement, read, settled, known(), None)
    found = (
        each for each in shown.findings if each.rule.id == case["rule"] and each.verdict is Verdict.BROKEN
    )
    return read, settled, next(found, None)


def installs(case: dict[str, Any]) -> Iterator[str]:
    rule = next(rule for rule in known().rules if rule.id == case["rule"])
    changes = (change for fix in rule.fixes for change in fix.set)
    return (key for key, value in changes if is_package_version_key(key) and not uninstalls(key, value))


INSTALLING = [case for case in CASES if case["expect"] == "broken" and any(installs(case))]


@pytest.mark.parametrize("case", INSTALLING, ids=lambda case: str(case["id"]))
def test_the_fixes_that_a_user_is_shown_can_be_taken(case: dict[str, Any]) -> None:
    read, settled, finding = finding_of(case)
    if finding is None:  # the rule is about a package that is missing
        return
    before = broken(judged(read), Severity.ERROR)
    asked = tuple(installed_requirements(settled))
    for fix in finding.fixes:
        against = excluding(fix, asked, settled, known())
        assert not against or case["id"] in EXCLUDED, f"{fix.set}: excluded by {against}"
        after = broken(
            judged(with_published_requirements(apply_changes(read, fix.tried, known()))), Severity.ERROR
        )
        assert after <= before, f"{fix.set} leads to {after - before}"


def advice(rule_id: str, facts: str, rules: Matrix | None = None) -> Finding:
    """Return the finding of a rule in a list of packages, with the fixes that `doctor` shows."""
    read = facts_file.load(tomllib.loads(facts), "facts.toml", vocabulary())
    report = examine.report_on("facts.toml", read, rules or known(), None)
    return next(each for each in report.judgement.findings if each.rule.id == rule_id)


def releases(finding: Finding) -> list[dict[str, Value]]:
    return [dict(fix.tried) for fix in finding.fixes]


def test_a_package_that_meets_the_bound_of_a_fix_stays() -> None:
    facts = 'train = { parallel = "fsdp2", fsdp_state_dict = "local" }\npkg = { torch = "2.7.1", accelerate = "%s" }'
    sharded, full = {"train.fsdp_state_dict": "sharded"}, {"train.fsdp_state_dict": "full"}
    assert releases(advice("fsdp2-local-state-dict", facts % "1.15.0")) == [sharded, full]
    older = advice("fsdp2-local-state-dict", facts % "1.6.0")
    assert releases(older) == [sharded, {**full, "pkg.accelerate": "1.7.0"}]


def test_a_lower_bound_moves_to_the_first_release_that_all_packages_accept() -> None:
    small = matrix(rule('{ "pkg.transformers" = "<4.47" }', more=FIX))
    facts = 'pkg = { transformers = "4.45.2"%s }'
    assert releases(advice("a-rule", facts % "", small)) == [{"pkg.transformers": "4.47.0"}]
    beside = facts % ', llamafactory = "0.9.2"'  # excludes 4.46, 4.47 and 4.48.0, accepts others up to 4.49.0
    (fix,) = advice("a-rule", beside, small).fixes
    assert (fix.set, fix.conflict) == ((("pkg.transformers", ">=4.48.1,<5"),), "")
    assert fix.tried == (("pkg.transformers", "4.48.1"),)


FIX = """
[[rule.fix]]
set = { "pkg.transformers" = ">=4.47.0,<5" }
"""

NAN = """
train = { parallel = "fsdp2", fsdp_cpu_ram_efficient_loading = true, quantization = "none", trainer = "transformers" }
"""


def test_a_fix_that_a_package_excludes_names_it_if_there_is_no_other() -> None:
    free = advice("fsdp2-nan-transformers54", NAN + 'pkg = { transformers = "5.5.0", torch = "2.8.0" }')
    assert [fix.conflict for fix in free.fixes] == [""]
    pinned = 'pkg = { transformers = "5.5.0", axolotl = "0.16.1" }'
    (fix,) = advice("fsdp2-nan-transformers54", NAN + pinned).fixes
    assert fix.conflict == "axolotl asks for transformers==5.5.0 in its own metadata"


def test_a_fix_that_a_package_excludes_is_left_out_if_there_is_another() -> None:
    facts = 'train = { parallel = "fsdp2" }\npkg = { torch = "2.6.0", accelerate = "1.11.0"%s }'
    both = advice("fsdp2-ignored-params-torch27", facts % "")
    assert releases(both) == [{"pkg.torch": "2.7.0"}, {"pkg.accelerate": "1.13.0"}]
    pinned = advice("fsdp2-ignored-params-torch27", facts % ', vllm = "0.8.5"')
    assert releases(pinned) == [{"pkg.accelerate": "1.13.0"}]


APEX = 'train = { trainer = "openrlhf", method = "sft" }\npkg = { transformers = "4.51.3", apex = "0.9.10.dev0"%s }'


def test_what_only_disturbs_is_uninstalled_unless_another_package_requires_it() -> None:
    uninstalled = {"pkg.apex": "absent"}
    assert uninstalled in releases(advice("apex-of-another-project", APEX % ""))
    optional = ', nemo = { version = "1.0", requires = ["apex; extra == \'all\'"] }'
    assert uninstalled in releases(advice("apex-of-another-project", APEX % optional))
    required = ', nemo = { version = "1.0", requires = ["apex>=0.1"] }'
    assert uninstalled not in releases(advice("apex-of-another-project", APEX % required))


BITSANDBYTES = """
train = { adapter = "lora", quantization = "%s", trainer = "transformers" }
pkg = { torch = "2.6.0", triton = "3.2.0", peft = "0.14.0", bitsandbytes = "0.44.1" }
complete = ["pkg"]
"""


def test_nothing_is_uninstalled_that_the_training_uses() -> None:
    uninstalled = {"pkg.bitsandbytes": "absent"}
    assert uninstalled in releases(advice("bitsandbytes-triton-ops", BITSANDBYTES % "none"))
    assert uninstalled not in releases(advice("bitsandbytes-triton-ops", BITSANDBYTES % "nf4"))


def test_of_the_packages_that_a_fix_uninstalls_those_that_are_installed_are_named() -> None:
    facts = 'pkg = { torch = "2.8.0", transformers = "4.57.6", keras = "3.15.1", tensorflow-cpu = "2.17.1" }'
    found = advice(
        "keras3-trainer-tensorflow",
        f'complete = ["pkg", "env"]\n{facts}\ntrain = {{ trainer = "transformers" }}',
    )
    assert {"pkg.tensorflow-cpu": "absent"} in releases(found)
