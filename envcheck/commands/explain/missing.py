"""Find which releases have a name that the first cause lacks, and what kind of failure that is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from envcheck.commands.explain import library_answers
from envcheck.commands.explain.known import ExplainKnowledge
from envcheck.core.facts import (
    Inventory,
    Tri,
    normalised,
    package_key,
)
from envcheck.core.rules import Rule
from envcheck.core.versions import compare
from envcheck.host.package_files import text_of
from envcheck.knowledge import names
from envcheck.knowledge.names import InReleases, Presence
from envcheck.knowledge.release_spans import spans_in_words
from envcheck.logs import missing_names
from envcheck.logs.diagnosis import Cause, Diagnosis
from envcheck.logs.environment_match import releases_met
from envcheck.logs.missing_names import MissingName
from envcheck.reports.explanation import MissingAnswer


def with_kind_of_missing(cause: Cause, missing: MissingAnswer) -> Cause:
    """Return the cause; if no signature matched it, set its kind by the missing name."""
    if cause.match is not None or cause.kind not in ("unknown", "code"):
        return cause
    name = missing.missing
    between_packages = bool(name.asks and name.lacks and name.asks != name.lacks)
    if (kind := _kind_by_import(cause, missing)) is not None:
        return cause._replace(kind=kind)
    if missing.of_repository or (missing.is_of_another_python and not name.built):
        return cause._replace(kind="open")
    if name.kind == "module" and not name.installed:
        told = name.asks or name.built or name.of_command or missing.is_known
        return cause._replace(kind="missing") if told else cause
    known_to_differ = bool(missing.rules or missing.ranges)
    if _may_be_another_module(name) and not known_to_differ:
        return cause._replace(kind="unknown")
    return cause._replace(kind="version") if between_packages or known_to_differ else cause


def _kind_by_import(cause: Cause, missing: MissingAnswer) -> str | None:
    """Return the kind of a failed import if it is not one of releases or of what is installed at all."""
    name = missing.missing
    if name.unpickled or name.half:
        return "open" if name.unpickled or name.tree else "unknown" if name.asks else "code"
    if name.folder or _of_own_installation(cause, name):
        of_root = "." not in name.module
        return "missing" if (of_root if name.folder else missing.is_known) else "open"
    if missing.own_file:
        return "code"
    if missing.not_imported:
        return "version" if name.asks else "code"
    if missing.in_no_release:
        elsewhere = "code" if missing.elsewhere and not (name.asks or missing.has_it) else "unknown"
        return "setting" if missing.spelt else elsewhere
    return "unknown" if missing.in_every_release else None


def _of_own_installation(cause: Cause, missing: MissingName) -> bool:
    """Return whether a package that is installed asks for a module of its own, which its releases have."""
    if missing.kind != "module" or not missing.asks or missing.asks != missing.lacks or cause.place is None:
        return False
    file = cause.place.file.replace("\\", "/")
    return "-packages/" in file or "/bin/" in file


def _may_be_another_module(missing: MissingName) -> bool:
    """Return whether a file or folder of the same name may have been imported instead of the package."""
    return missing.of_any_module and missing.lacks != "torch"


def missing_answer(
    diagnosis: Diagnosis, known: ExplainKnowledge, inventory: Inventory, log_text: str = ""
) -> MissingAnswer | None:
    """Return the name that the first cause lacks, and which releases are known to lack or have it.

    `log_text` is the beginning of the log, in which a package that cannot be imported may have written lines.
    """
    cause = diagnosis.cause
    tables = known.tree["tables"]
    missing = missing_names.missing_name(cause.event, tables) if cause else None
    if missing is None:
        return None
    if missing.lazily and not any(missing_names.ranges_in_atlas(missing, known.matrix.atlas())):
        missing = missing._replace(asks="")
    distributions = missing_names.distributions_by_module(tables)
    missing = _with_passer(missing, cause, distributions)
    shown = missing_names.packages_named(cause.event.text, distributions) if cause else frozenset()
    mentioning = missing_names.rules_on(missing, known.matrix, shown) if missing.installed else ()
    rules = _those_of_these_releases(mentioning, inventory)
    published = {
        normalised(row["package"]) for name in ("release", "import_name") for row in tables.get(name, ())
    }
    published |= {normalised(name) for row in tables.get("published_module", ()) for name in row["modules"]}
    read = known.matrix.atlas().releases
    is_known = missing.lacks in published or missing.lacks == "torch" or missing.lacks in read
    is_known = is_known or missing.lacks in library_answers.texts_in("names")
    published_names = _presence(missing) if missing.installed and not missing.folder else names.UNKNOWN
    certain = published_names.answer in (InReleases.EVERY, InReleases.NONE) or missing.folder
    ranges = () if certain else _ranges(missing, published_names, known, shown)
    calls = tuple(missing_names.ranges_of_overrides(missing, known.matrix.atlas()))
    version = inventory.known(package_key(missing.lacks)) if missing.lacks else None
    has_it = bool(version) and published_names.includes(str(version))
    takes = ""
    if missing.kind == "argument" and cause is not None and cause.match is None:
        takes = library_answers.stated_package_that_takes(cause.event, inventory)
    return MissingAnswer(
        missing,
        () if certain or missing.plain_word else rules,
        ranges,
        is_known,
        calls,
        has_it,
        takes,
        listed=str(version) if version and missing.kind == "module" and not missing.installed else "",
        always=not version and _always_has(missing, ranges),
        published=published_names,
        elsewhere=tuple(_elsewhere(missing, published_names)),
        in_some_cases=_asks_names(missing, names.is_offered_in_some_cases) or False,
        spelt=_asks_names(missing, names.spelt_in) or "",
        wrote_lines=_wrote_lines(missing, log_text, tables),
        read_since="" if version else _read_since(missing, published_names),
        of_repository=_is_of_repository(missing, cause, tables),
    )


def _is_of_repository(
    missing: MissingName, cause: Cause | None, tables: Mapping[str, Sequence[Mapping[str, Any]]]
) -> bool:
    """Return whether an installed package imports a module that is mostly a folder of its own repository."""
    place = cause.place if cause is not None else None
    file = place.file.replace("\\", "/") if place is not None else ""
    folders = {name for row in tables.get("repository_folder", ()) for name in row["modules"]}
    of_package = missing.kind == "module" and bool(missing.asks) and "-packages/" in file
    return of_package and not missing.installed and missing.module.partition(".")[0] in folders


def _read_since(missing: MissingName, presence: Presence) -> str:
    """Return the first release that was read, if all or none of them have a name and older ones exist."""
    if presence.answer not in (InReleases.EVERY, InReleases.NONE):
        return ""
    from envcheck.commands.atlas_tables import release_table

    first = presence.ends[0]
    published = release_table().versions(missing.lacks)[:1]
    return first if any(compare(one, "<", first) is Tri.YES for one in published) else ""


def _those_of_these_releases(rules: Iterable[Rule], inventory: Inventory) -> tuple[Rule, ...]:
    """Return the rules that no release of the inventory contradicts, first those that most of them meet.

    A rule that only mentions the name comes after one that is about the very releases.
    """
    met = [(rule, releases_met(rule, inventory)) for rule in rules]
    fitting = [(rule, count) for rule, count in met if count >= 0]
    return tuple(rule for rule, _ in sorted(fitting, key=lambda one: -one[1]))


def _with_passer(missing: MissingName, cause: Cause | None, distributions: Mapping[str, str]) -> MissingName:
    """Return the missing name; if a package only hands an argument to its own function, with who passed it.

    So `vllm.LLM(**kwargs)` hands to vLLM's EngineArgs what the caller of LLM wrote.
    """
    owner = missing.module.rpartition(".")[0]
    if missing.kind != "argument" or not (missing.asks and owner) or cause is None:
        return missing
    if not library_answers.has_class(missing.asks, owner):
        return missing
    passer = missing_names.passer_of(cause.event, missing.asks, distributions)
    if passer is None:
        return missing
    return missing._replace(asks=passer, own=not passer)


def _wrote_lines(
    missing: MissingName, log_text: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]
) -> bool:
    """Return whether the logger of a package that is said not to be there wrote lines of the log.

    Then a process before the one that failed, mostly the launcher, ran in an environment that has it.
    """
    if missing.kind != "module" or missing.installed:
        return False
    writers = (
        found["module"]
        for row in tables.get("logger_line", ())
        for found in re.finditer(row["pattern"], log_text)
    )
    return any(f"{writer}.".startswith(f"{missing.module}.") for writer in writers)


_Said = TypeVar("_Said")


def _asks_names(missing: MissingName, asked: Callable[[str, str, str], _Said]) -> _Said | None:
    """Return what the names of the package say of a missing name; None if it may be there by now."""
    if missing.kind != "name" or missing.half or missing.folder:
        return None
    return asked(text_of("names", missing.lacks), missing.module, missing.name)


def _presence(missing: MissingName) -> Presence:
    """Return which releases have a missing name or module, from compat/names/."""
    text = text_of("names", missing.lacks) if missing.kind != "argument" else ""
    if not text:
        return names.UNKNOWN
    return names.presence(text, missing.module, "" if missing.kind == "module" else missing.name)


def _ranges(
    missing: MissingName, presence: Presence, known: ExplainKnowledge, shown: frozenset[str]
) -> tuple[str, ...]:
    """Return in words which releases have a name, and which packages ask for it."""
    ranges = tuple(missing_names.ranges_with(missing, known.tree["tables"]))
    if not missing.installed:
        return ranges
    asked = tuple(missing_names.ranges_in_atlas(missing, known.matrix.atlas(), shown))
    named = [*missing_names.ranges_in_names(missing, presence)]
    # Where a guard skips the import, releases may lack the name as well, so a row with gaps says less.
    paths = {each.partition(": ")[0] for each in named}
    # If it is known which releases have it, what others ask for below it says nothing.
    asked = tuple(row for row in asked if not paths or any(row.startswith(each) for each in named))
    return (*ranges, *(each for each in named if not any(row.startswith(each) for row in asked)), *asked)


_FEW = 2
"""Other modules that have the name, at most."""


def _elsewhere(missing: MissingName, presence: Presence) -> Iterator[str]:
    """Yield where the newest releases have a name that its module lacks in some or all of them.

    That is another module of the package, or if no release has the name, the root of another package.
    """
    if (
        missing.kind != "name"
        or presence.answer not in (InReleases.SOME, InReleases.NONE)
        or presence.is_module
    ):
        return
    if presence.spans and presence.spans[-1][1] == presence.ends[1]:
        return
    text = text_of("names", missing.lacks)
    found = [
        (module, spans)
        for module, spans in names.modules_with(text, missing.name)
        if module != missing.module and spans[-1][1] == presence.ends[1]
    ]
    for module, spans in sorted(found, key=lambda each: (each[0].count("."), each[0]))[:_FEW]:
        words = spans_in_words(spans, presence.ends)
        yield f"{module}.{missing.name} (in {missing.lacks} {words})"
    if not found and presence.answer is InReleases.NONE:
        yield from _at_other_roots(missing)


def _at_other_roots(missing: MissingName) -> Iterator[str]:
    """Yield the roots of other packages that have a name in their newest release."""
    for package, text in library_answers.texts_in("names").items():
        root = package.replace("-", "_")
        found = names.presence(text, root, missing.name)
        if package != missing.lacks and found.spans and found.spans[-1][1] == found.ends[1]:
            yield f"{root}.{missing.name}"


_SINCE = re.compile(r": in \S+ from (\d[\w.]*) on(?= \(|;|$)")


_LEAST = re.compile(r"(?:>=|==|~=)(\d[\w.]*)")


def _always_has(missing: MissingName, ranges: Sequence[str]) -> bool:
    """Return whether every release of one package that another accepts has the name that it asks for.

    Then its release is not why the name is missing.
    """
    since = [found[1] for row in ranges if (found := _SINCE.search(row))]
    if missing.kind != "name" or not missing.asks or not since or len(since) != len(ranges):
        return False
    from envcheck.commands.atlas_tables import release_table
    from envcheck.knowledge.requirement_windows import requirements_of

    table = release_table()
    least = [
        bound[1]
        for release in table.versions(missing.asks)
        for asked in requirements_of(missing.asks, release, table, {})
        if asked.requires == missing.lacks and (bound := _LEAST.search(asked.specifier))
    ]
    return bool(least) and all(compare(one, ">=", first) is Tri.YES for one in least for first in since)
