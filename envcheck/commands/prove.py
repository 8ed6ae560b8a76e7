"""Prove the version bounds of rules in published releases, and record what was found in compat/proofs/.

This is for curators: reading the package index takes minutes. Rules with a current record are proven again
only if they are named.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from envcheck import probes
from envcheck.commands import loading
from envcheck.commands import siblings as sibling_search
from envcheck.commands.proof_runs import ProgramRunner
from envcheck.commands.sweep import run_sweep
from envcheck.core.errors import ExamineError, InputError
from envcheck.core.i18n import counted
from envcheck.core.rules import Rule
from envcheck.core.suggestions import suggestion
from envcheck.host.files import folder_texts, locked_folder, scratch_folder, write_file
from envcheck.host.machine import Host
from envcheck.knowledge.load import build_matrix, gather_tree
from envcheck.knowledge.proofs import records, siblings, sweep, verification
from envcheck.knowledge.proofs.declaration import Proof, read_proof
from envcheck.knowledge.proofs.records import ProofRecord, SeenRelease
from envcheck.knowledge.proofs.verification import Supply
from envcheck.knowledge.tables import all_releases
from envcheck.resolver_backends.index.release_contents import PublishedPackages

DEADLINE_S = 3600.0
"""Seconds for all pages and files of the index together."""

_WORKERS = 6
"""Number of rules proven at the same time; each mostly waits for the index."""

Tell = Callable[[str], None]
"""A function that receives progress, one line at a time."""


@dataclass(frozen=True, kw_only=True)
class ProveOptions:
    """What to prove.

    Attributes:
        rules: ids of rules, or names of files in rules/ without `.toml`; empty for all that lack a current
            record.
        folder: a folder laid out like compat/; the records are written to its proofs/.
        store: a folder of copies of releases, `PACKAGE/VERSION.zip`; None reads only the index.
        python: an interpreter with torch, and little else, that programs run in.
        scratch: where releases are installed for programs; None uses a temporary folder.
        older: whether open lower bounds are followed beyond the oldest releases of the tables.
        sweep: whether rules are compared with every release in the store instead; nothing is recorded.
        siblings: whether files for other values of a rule's facts are searched instead; nothing is recorded.

    """

    rules: tuple[str, ...] = ()
    folder: Path = Path("compat")
    store: Path | None = None
    python: str = ""
    scratch: Path | None = None
    older: bool = False
    sweep: bool = False
    siblings: bool = False


class _Job(NamedTuple):
    """A rule with its proof and the digest of both."""

    rule: Rule
    proof: Proof
    digest: str


def prove(options: ProveOptions, host: Host, tell: Tell) -> tuple[str, int]:
    """Prove rules and write their records; return a summary, and exit code 1 if a proof contradicts its rule.

    Raises:
        InputError: the folder has no rules, a proof has mistakes, or a given name is unknown.
        ExamineError: the index cannot be read.
    """
    texts = folder_texts(options.folder, ".toml")
    tree = gather_tree(texts)
    if not tree["rule"]:
        raise InputError(str(options.folder), "expected a folder laid out like compat/, with rules/")
    matrix = build_matrix(tree, loading.vocabulary(probes.every_probe()))
    rules = {rule.id: rule for rule in matrix.rules}
    try:
        known = records.read_records(texts)
    except ValueError as error:
        raise InputError(str(options.folder), str(error)) from None
    rows = {row["id"]: row for row in tree["rule"] if row.get("id") in rules}
    if options.sweep or options.siblings:
        every = _every_job(options.rules, rows, rules)
        if options.siblings:
            return _siblings(every, options.store, tell)
        return _sweep(every, signatures(tree["case"]), options.store, tell)
    jobs = _jobs(options.rules, rows, rules, known)
    packages = PublishedPackages(host, DEADLINE_S, options.store)
    since: dict[str, str] = {}
    for release in all_releases(matrix):
        since.setdefault(release.package, release.version)
    folder = scratch_folder() if options.scratch is None else locked_folder(options.scratch)
    with folder as place, ThreadPoolExecutor(max_workers=_WORKERS) as pool:
        runner = ProgramRunner(host=host, python=options.python, folder=place)
        supply = Supply({}, since, packages.open, runner.run, older=options.older)
        outcomes = list(pool.map(lambda job: _prove(job, packages, supply), jobs))
    failed = 0
    for job, opened in zip(jobs, outcomes, strict=True):
        against = records.contradictions(job.rule, job.proof, opened)
        failed += bool(against)
        tell(_in_words(job.rule, opened, against))
    found = {
        job.rule.id: ProofRecord(job.rule.id, _today(), job.digest, tuple(opened))
        for job, opened in zip(jobs, outcomes, strict=True)
    }
    _write(options.folder, rows, {**known, **found})
    return f"{counted(len(jobs), 'rule')} proven, {failed} contradicted\n", int(failed > 0)


def signatures(cases: Iterable[Mapping[str, Any]]) -> dict[str, list[str]]:
    """Return the expressions that recognise the failure of a rule in a log, by rule."""
    found: dict[str, list[str]] = {}
    for case in cases:
        found.setdefault(str(case.get("rule", "")), []).extend(case.get("signature", ()))
    return found


def _sweep(
    jobs: Sequence[_Job], logged: Mapping[str, Sequence[str]], store: Path | None, tell: Tell
) -> tuple[str, int]:
    """Compare rules with every stored release; return a summary, and exit code 1 if one disagrees."""
    if store is None:
        raise InputError("--sweep", "expected --store, a folder that `matrix harvest` filled")
    asked = [
        question
        for job in jobs
        for question in sweep.questions(job.rule, job.proof, logged.get(job.rule.id, ()))
    ]
    lines, wrong = run_sweep(asked, store)
    for line in lines:
        tell(line)
    swept = len({question.rule.id for question in asked})
    return f"{counted(swept, 'rule')} swept, {wrong} contradicted\n", int(wrong > 0)


def _siblings(jobs: Sequence[_Job], store: Path | None, tell: Tell) -> tuple[str, int]:
    """Search the files for values that rules do not name; return a summary, and exit code 0."""
    if store is None:
        raise InputError("--siblings", "expected --store, a folder that `matrix harvest` filled")
    asked = [question for job in jobs for question in siblings.questions(job.rule, job.proof)]
    lines, narrow = sibling_search.run_siblings(asked, store)
    for line in lines:
        tell(line)
    return sibling_search.summary(asked, narrow), 0


def _jobs(
    names: Sequence[str],
    rows: Mapping[str, Mapping[str, Any]],
    rules: Mapping[str, Rule],
    known: Mapping[str, ProofRecord],
) -> list[_Job]:
    """Return the rules to prove: those named, else those without a current record."""
    _check_names(names, rules)
    jobs = []
    for rule_id, row in rows.items():
        if "proof" not in row or not {rule_id, rules[rule_id].group}.intersection(names or (rule_id,)):
            continue
        proof, problems = read_proof(row["proof"])
        if problems:
            raise InputError(f"compat/{row['file']}: rule {rule_id!r}", problems[0])
        digest = records.proof_digest(row)
        stale = rule_id not in known or known[rule_id].digest != digest
        if (proof.reads or proof.runs) and (names or stale):
            jobs.append(_Job(rules[rule_id], proof, digest))
    return jobs


def _check_names(names: Sequence[str], rules: Mapping[str, Rule]) -> None:
    """Raise InputError for a name that is neither a rule nor a file of rules."""
    families = {rule.group for rule in rules.values()}
    for name in names:
        if name not in rules and name not in families:
            every = sorted({*rules, *families})
            raise InputError("RULE", f"no rule {name!r}{suggestion(name, every, list_all=False)}")


def _every_job(
    names: Sequence[str], rows: Mapping[str, Mapping[str, Any]], rules: Mapping[str, Rule]
) -> list[_Job]:
    """Return the rules named, all if none are, those without a proof included."""
    _check_names(names, rules)
    jobs = []
    for rule_id, row in rows.items():
        if {rule_id, rules[rule_id].group}.intersection(names or (rule_id,)):
            proof, problems = read_proof(row.get("proof", {"none": "-"}))
            if problems:
                raise InputError(f"compat/{row['file']}: rule {rule_id!r}", problems[0])
            jobs.append(_Job(rules[rule_id], proof, records.proof_digest(row)))
    return jobs


def _prove(job: _Job, packages: PublishedPackages, supply: Supply) -> list[SeenRelease]:
    try:
        needed = verification.needed_packages(job.rule, job.proof)
        releases = {name: packages.releases(name) for name in sorted(needed)}
        return verification.prove(job.rule, job.proof, supply._replace(releases=releases))
    except (ExamineError, ValueError) as error:
        raise ExamineError(f"{job.rule.id}: {error}") from None


def _in_words(rule: Rule, opened: Sequence[SeenRelease], against: Iterable[SeenRelease]) -> str:
    lines = [f"{rule.id}: {counted(len({seen.name for seen in opened}), 'release')} opened"]
    lines += [f"  {seen.name} ({seen.side}) contradicts the rule: {seen.seen}" for seen in against]
    return "\n".join(lines)


def _today() -> str:
    return dt.datetime.now(tz=dt.UTC).date().isoformat()


def _write(folder: Path, rows: Mapping[str, Mapping[str, Any]], found: Mapping[str, ProofRecord]) -> None:
    """Write the records of the existing rules, one file for each file of rules."""
    files: dict[str, list[ProofRecord]] = {}
    for rule_id, row in rows.items():
        if rule_id in found and "proof" in row:
            files.setdefault(Path(row["file"]).name, []).append(found[rule_id])
    for name, kept in files.items():
        write_file(folder / records.FOLDER / name, records.render_records(kept))
