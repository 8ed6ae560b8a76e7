"""Make rules that are not written in compat/: from package metadata, self-test results and targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from envcheck.core import versions
from envcheck.core.facts import Fact, Kind, package_key
from envcheck.core.i18n import counted
from envcheck.core.rules import (
    ABSENT,
    PRESENT,
    Basis,
    Clause,
    Comparison,
    Requirement,
    Rule,
    Severity,
    Source,
    Target,
)
from envcheck.rules import clauses
from envcheck.rules.requirements import UnreadableMetadata

_MOST_UNREADABLE = 100  # packages with a finding each


def requirement_rules(requirements: Iterable[Requirement]) -> Iterator[Rule]:
    """Yield a rule for each requirement in installed metadata, as `pip check` reads it.

    The rules are warnings, because a package may work beside a version that its metadata excludes. A
    combination that is known to break has a rule in compat/.
    """
    for package, required, specifier, source in requirements:
        try:
            bounds = versions.parse_specifier(specifier)
        except ValueError:
            continue
        satisfied = Clause(package_key(required), Kind.VERSION, ((PRESENT, *bounds),), specifier or "present")
        yield Rule(
            id=f"requires-dist:{package}:{required}",
            severity=Severity.WARNING,
            basis=Basis.METADATA,
            title=f"{package} asks for {required}{specifier} in its own metadata",
            when=((Clause(package_key(package), Kind.VERSION, ((PRESENT,),), "present"),),),
            require=(satisfied,),
            sources=(Source(source, "metadata", ""),),
            group="requires-dist",
        )


def metadata_rules(unreadable: Sequence[UnreadableMetadata]) -> Iterator[Rule]:
    """Yield a rule for each package whose metadata cannot be read: what it requires is not known.

    If there are very many, the last rule counts the rest: the package folder is broken as a whole.
    """
    for package, key, source, why in unreadable[:_MOST_UNREADABLE]:
        yield _metadata_rule(f"metadata:{package}", f"{package} cannot be read: {why}", key, source)
    if rest := unreadable[_MOST_UNREADABLE:]:
        subject = f"{counted(len(rest), 'further package')} cannot be read either"
        yield _metadata_rule("metadata:further-packages", subject, rest[0].key, rest[0].source)


def _metadata_rule(rule_id: str, subject: str, key: str, source: str) -> Rule:
    kind = Kind.FLAG if key.endswith(".degraded") else Kind.VERSION
    return Rule(
        id=rule_id,
        severity=Severity.WARNING,
        basis=Basis.METADATA,
        title=f"the metadata of {subject}",
        when=((Clause(key, kind, ((PRESENT,),), "present"),),),
        sources=(Source(source, "metadata", ""),),
        group="metadata",
    )


def selftest_rules(facts: Mapping[str, Fact]) -> Iterator[Rule]:
    """Yield a rule for each self-test that failed in this environment.

    A measured failure counts even if the versions are expected to work.
    """
    for key, fact in facts.items():
        if key.startswith("selftest.") and fact.value == "fail":
            name = key.removeprefix("selftest.")
            yield Rule(
                id=f"selftest:{name}",
                severity=Severity.ERROR,
                basis=Basis.MEASURED,
                title=f"the self-test {name} failed in this environment",
                when=((Clause(key, Kind.WORD, ((Comparison("==", "fail"),),), "fail"),),),
                sources=(Source(f"envcheck selftest --only {name}", "selftest", ""),),
                group="selftest",
            )


def target_rules(target: Target | None) -> Iterator[Rule]:
    """Yield the rules of a target: its packages are installed, and its training settings are in effect."""
    if target is None:
        return
    source = (Source(f"envcheck target {target.name}", "target", ""),)
    for name in target.packages:
        key = package_key(name)
        yield Rule(
            id=f"target:{target.name}:{name}",
            severity=Severity.ERROR,
            basis=Basis.METADATA,
            title=f"{target.name} needs {name}, which is not installed",
            when=((Clause(key, Kind.VERSION, ((ABSENT,),), "absent"),),),
            sources=source,
            group="target",
        )
    for name, why in target.conflicts.items():
        key = package_key(name)
        yield Rule(
            id=f"target:{target.name}:without-{name}",
            severity=Severity.ERROR,
            basis=Basis.METADATA,
            title=f"{target.name} does not go with {name}: {why}",
            when=((Clause(key, Kind.VERSION, ((PRESENT,),), "present"),),),
            sources=source,
            group="target",
        )
    for key, value in target.train.items():
        kind = Kind.FLAG if isinstance(value, bool) else Kind.NUMBER if isinstance(value, int) else Kind.WORD
        written = clauses.format_value(value)
        yield Rule(
            id=f"target:{target.name}:{key}",
            severity=Severity.WARNING,
            basis=Basis.METADATA,
            title=f"The configuration does not match {target.name}: {key} is not {written}",
            when=((Clause(key, kind, ((Comparison("!=", value),),), f"!={written}"),),),
            sources=source,
            group="target",
        )
