"""The one search: versions of the stack's packages, and free training facts, that nothing objects to. Pure.

Depth first over the packages in the target's order, what was measured good first, then the newest. A
choice is judged as it grows: three-valued logic makes a verdict on a part hold for every whole that
contains it. A refusal jumps where the broken rule's own way out points, and a dead end returns to the
choice that caused it (conflict-directed backjumping), with the reasons kept: they are the proof where
nothing fits. Only *broken* objects; what nobody knows stops no pin.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from envcheck.core import versions
from envcheck.core.errors import NoSolutionError
from envcheck.core.facts import (
    Absent,
    Fact,
    Inventory,
    Kind,
    Known,
    Tri,
    Unknown,
    Value,
    family,
    package_key,
    package_name,
)
from envcheck.core.findings import Finding
from envcheck.core.rules import (
    ABSENT,
    Basis,
    Clause,
    Comparison,
    Fix,
    Matrix,
    Requirement,
    Rule,
    Severity,
    Source,
    Target,
    UserRequirement,
    When,
)
from envcheck.knowledge.generated_rules import requirement_rules, target_rules
from envcheck.rules import clauses, derive, judge

NODES = 20_000
"""Choices judged before the search gives up: at 0.2 ms each, a few seconds. The tables need some hundreds."""


class Release(NamedTuple):
    """A release of a package, as far as choosing it goes.

    `requires` are lines such as `torch>=2.4`. `pythons` lists the Pythons it has wheels for where that is
    known, else `requires_python` is what its metadata admits. `date` is ISO. `sdist` says that there are no
    wheels, so that it is built on installation.
    """

    package: str
    version: str
    requires: tuple[str, ...] = ()
    pythons: tuple[str, ...] = ()
    requires_python: str = ""
    date: str = ""
    yanked: bool = False
    sdist: bool = False


class Objection(NamedTuple):
    """What a completed lock broke: a rule, by these versions of the stack and of what an engine added.

    A *wide* one asks the rule with the added packages assumed (an empty version: not there), so that every
    stack it would break is refused; else only stacks that hold these very versions are. `words` say it to
    a person, and `bounds` are what the rule's own way out asks of the added packages (`numpy==1.26.4`).
    """

    rule: str
    stack: tuple[tuple[str, str], ...]
    added: tuple[tuple[str, str], ...] = ()
    wide: bool = False
    words: str = ""
    bounds: tuple[str, ...] = ()


class SearchProblem(NamedTuple):
    """What to choose for: the knowledge, the target, the machine's facts, and whatever else binds.

    `until` is an ISO date after which no release is taken, as `until_by` asks.
    """

    known: Matrix
    target: Target
    machine: Inventory
    python: str
    releases: tuple[Release, ...]
    wishes: tuple[UserRequirement, ...] = ()
    until: str = ""
    until_by: str = ""
    objections: tuple[Objection, ...] = ()


Reason = tuple[str, ...]
"""What refuses: `("rule", id)`, `("metadata", package, required)`, `("wish", number)`, `("python",)`,
`("wants", package)`, `("through", package)`, `("yanked", package)`, `("pre-release", package)`, `("until",)`
or `("objection", number)`."""


class Answer(NamedTuple):
    """What the search found: versions by package, and the training facts it changed; or why there is none.

    `reasons` hold everything that refused something where nothing fits (enough to refuse everything, not
    the least). `measured` says that the combination was run and trained.
    """

    versions: Mapping[str, str] | None
    changed: Mapping[str, Value]
    reasons: frozenset[Reason]
    nodes: int
    measured: bool = False


# --- what may be chosen -----------------------------------------------------------------------------


def wanted_packages(problem: SearchProblem, without: Container[Reason] = ()) -> tuple[str, ...]:
    """The packages whose version is searched: the target's, then those of wishes that the tables know."""
    listed = {release.package for release in problem.releases}
    asked = [wish.package for wish in problem.wishes if wish.wanted and wish.package in listed]
    names = dict.fromkeys((*problem.target.packages, *asked))
    return tuple(name for name in names if ("wants", name) not in without)


def built(problem: SearchProblem, versions_of: Mapping[str, str]) -> tuple[str, ...]:
    """Those of a choice that are built on installation: the target says so, or there are no wheels."""
    sdists = {(each.package, each.version) for each in problem.releases if each.sdist}
    return tuple(
        name
        for name, version in versions_of.items()
        if name in problem.target.build or (name, version) in sdists
    )


def candidates(
    problem: SearchProblem, package: str, without: Container[Reason] = ()
) -> tuple[list[Release], frozenset[Reason]]:
    """Releases of a package that may be chosen, newest first, and what kept the others out."""
    kept, refused = [], set()
    for release in problem.releases:
        if release.package != package:
            continue
        reason = next((each for each in _kept_out(problem, release) if each not in without), None)
        if reason is None:
            kept.append(release)
        else:
            refused.add(reason)
    kept.sort(key=lambda release: versions.order(release.version), reverse=True)
    return kept, frozenset(refused)


def _kept_out(problem: SearchProblem, release: Release) -> Iterator[Reason]:
    """All that speaks against a release before anything is judged."""
    through = problem.known.known_through.get(release.package)
    if release.yanked:
        yield "yanked", release.package
    if through is not None and versions.compare(release.version, "<=", through) is not Tri.YES:
        yield "through", release.package
    wishes = [(number, wish) for number, wish in enumerate(problem.wishes) if wish.package == release.package]
    version = versions.parse(release.version)
    if (version is None or version.is_prerelease) and not any(_names_pre(wish) for _, wish in wishes):
        yield "pre-release", release.package
    for number, wish in wishes:
        if not _takes(wish, release.version):
            yield "wish", str(number)
    if not admits(release, problem.python):
        yield ("python",)
    if problem.until and release.date > problem.until:
        yield ("until",)


def _names_pre(wish: UserRequirement) -> bool:
    """Whether a wish names a pre-release itself: nobody gets one unasked."""
    try:
        bounds = versions.parse_specifier(wish.specifier)
    except ValueError:
        return False
    for bound in bounds:
        named = versions.parse(str(bound.operand).removesuffix(".*"))
        if named is not None and named.is_prerelease:
            return True
    return False


def _takes(wish: UserRequirement, version: str) -> bool:
    """Whether a wish takes this version. What the comparator calls a maybe is packaging's to decide."""
    answer = versions.satisfies(version, wish.specifier, unknown=Tri.YES)
    if answer is not Tri.MAYBE:
        return answer is Tri.YES
    from packaging.specifiers import SpecifierSet

    return SpecifierSet(wish.specifier).contains(version, prereleases=True)


def admits(release: Release, python: str) -> bool:
    """Whether a release may be installed on this Python (`3.11`)."""
    if release.pythons:
        return python in release.pythons
    try:
        bounds = versions.parse_specifier(release.requires_python)
    except ValueError:
        return True
    # `>=3.11.4` admits 3.11: a lock is for the minor version, and the installer asks again.
    return any(versions.satisfies_all(f"{python}.{patch}", bounds) is not Tri.NO for patch in (0, 99))


def with_variants(problem: SearchProblem, only: Container[str] | None = None) -> SearchProblem:
    """The same with torch's builds for other CUDA versions in place of those that a plain install brings.

    They are `2.7.1+cu118` and the like, and each CUDA has an index of its own; `only` are the versions that
    one is known for. Only those for x86_64 are in the tables, so there are none elsewhere.
    """
    plain = {each.version: each for each in problem.releases if each.package == "torch"}
    rows = problem.known.tables.get("variant", [])
    if problem.machine.known("host.arch") not in (None, "x86_64"):
        rows = []
    variants = [
        plain[row["torch"]]._replace(version=f"{row['torch']}+{row['tag']}")
        for row in rows
        if row["torch"] in plain and row.get("role") != "default"
    ]
    if only is not None:
        variants = [each for each in variants if each.version in only]
    others = [each for each in problem.releases if each.package != "torch"]
    return problem._replace(releases=(*others, *variants))


# --- the rules that may speak -----------------------------------------------------------------------

CUDA_FOR_GPU = "pin:cuda-build-for-a-gpu"


def _cuda_for_gpu() -> Rule:
    """A lock for a machine with a GPU holds a torch that uses it; doctor only warns of one that does not."""
    return Rule(
        id=CUDA_FOR_GPU,
        severity=Severity.ERROR,
        basis=Basis.METADATA,
        title="this torch is built without CUDA on that platform, and the machine has a GPU",
        when=(
            (
                Clause("gpus.count", Kind.NUMBER, ((Comparison(">=", 1),),), ">=1"),
                Clause("cuda.runtime", Kind.VERSION, ((ABSENT,),), "absent"),
            ),
        ),
        sources=(Source("envcheck pin", "target", ""),),
        group="pin",
    )


def asked_rules(problem: SearchProblem) -> list[Rule]:
    """The rules that may refuse a choice: those of error level, and that a GPU gets a CUDA build."""
    errors = [rule for rule in problem.known.rules if rule.severity is Severity.ERROR]
    return [*errors, _cuda_for_gpu()]


def scope(rule: Rule, known: Matrix) -> frozenset[str]:
    """Packages and training facts that may decide a rule: too many cost time, too few would be wrong."""
    found: set[str] = set()
    for table in (*rule.when, rule.require):
        for clause in table:
            for key in (clause.key, *clauses.refs(clause)):
                found |= depends(key, known)
    return frozenset(found)


def derived_from(rule: Rule, known: Matrix) -> frozenset[str]:
    """Packages whose versions decide the rule through a fact that is derived, such as a trainer's default."""
    keys = {
        key
        for table in (*rule.when, rule.require)
        for clause in table
        for key in (clause.key, *clauses.refs(clause))
        if family(key) != "pkg"
    }
    return frozenset(name for key in keys for name in depends(key, known))


def depends(key: str, known: Matrix, seen: frozenset[str] = frozenset()) -> set[str]:
    """The packages and training facts that a fact may follow from, through defaults and builds."""
    head, _, rest = key.partition(".")
    if head == "pkg":
        return {rest.partition(".")[0]}
    if head == "train":
        found = {key}
        for default in known.defaults:
            if default.key == key and key not in seen:
                for clause in default.when:
                    found |= depends(clause.key, known, seen | {key})
        return found
    return {"torch"} if key in derive.KEYS or head == "build" else set()


def reason_of(rule: Rule) -> Reason:
    """What a rule is called among the reasons; a requirement's rule by the two packages."""
    if rule.group == "requires-dist":
        return ("metadata", *rule.id.split(":")[1:])
    return "rule", rule.id


# --- ways out ---------------------------------------------------------------------------------------


def free_values(
    problem: SearchProblem, *, reluctant: bool, without: Container[Reason] = ()
) -> dict[str, tuple[Value, ...]]:
    """What the free training facts may become: what the rules' own ways out set them to, in their order.

    A reluctant search takes such a way out only where the rule names none before it that some release
    could meet.
    """
    domains = {
        name: [release.version for release in candidates(problem, name, without)[0]]
        for name in wanted_packages(problem, without)
    }
    found: dict[str, dict[Value, None]] = {key: {} for key in problem.target.free}
    for rule in asked_rules(problem):
        for fix in rule.fixes:
            changes = [(key, value) for key, value in fix.set if key in found]
            for key, value in changes:
                found[key][value] = None
            if reluctant and not changes and _reachable(fix, domains):
                break
    return {key: tuple(values) for key, values in found.items() if values}


def _surely_within(version: str, bound: Value) -> bool:
    """Return whether a version satisfies a bound; `=={gpu.torch_last}` is none until that fact is known."""
    return versions.satisfies(version, str(bound), unknown=Tri.NO) is Tri.YES


def _reachable(fix: Fix, domains: Mapping[str, Sequence[str]]) -> bool:
    """Whether some release that may be chosen meets each bound of a way out that sets packages only."""
    for key, value in fix.set:
        offered = domains.get(package_name(key), ())
        if not key.startswith("pkg.") or not any(_surely_within(each, value) for each in offered):
            return False
    return True


# --- the search -------------------------------------------------------------------------------------


class _Refusal(NamedTuple):
    """Why a value cannot join a choice: what refuses it, the variables concerned, ways out by variable."""

    reason: Reason
    concerns: frozenset[str]
    ways: tuple[tuple[str, Value], ...] = ()


@dataclass(slots=True)
class _Bench:
    """The judge's word on parts of a choice, asked once for all versions that its rules cannot tell apart.

    Variables are packages and the keys of free facts, in `order`; a part holds the first few of them.
    """

    problem: SearchProblem
    without: Container[Reason]
    order: tuple[str, ...]
    requires: Mapping[tuple[str, str], tuple[str, ...]]
    broken: Rule | None = None  # by the machine alone, whatever is chosen
    rules: dict[str, list[tuple[Rule, tuple[str, ...]]]] = field(default_factory=dict)
    deriving: tuple[str, ...] = ()
    tests: dict[str, tuple[Clause, ...] | None] = field(default_factory=dict)
    kinds: dict[tuple[str, Value | None], Any] = field(default_factory=dict)
    derived: dict[tuple[Any, ...], Inventory] = field(default_factory=dict)
    said: dict[tuple[Any, ...], _Refusal | None] = field(default_factory=dict)
    bounds: dict[tuple[str, str], list[Requirement]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Sort the rules by the variables they concern; the machine alone may break one already."""
        known = self.problem.known
        bare = self._settled({})
        asked = [rule for rule in asked_rules(self.problem) if ("rule", rule.id) not in self.without]
        found = judge.judge(bare, asked).findings
        self.broken = next((each.rule for each in found if judge.forbids_lock(each)), None)
        asked = [rule for rule in asked if any(self._may_hold(table, bare) for table in rule.when)]
        needed = {"torch"}.union(*(derived_from(rule, known) for rule in asked))
        self.deriving = tuple(name for name in self.order if name in needed or family(name) == "train")
        for rule in asked:
            concerned = scope(rule, known)
            ordered = tuple(name for name in self.order if name in concerned)
            for name in ordered:
                self.rules.setdefault(name, []).append((rule, ordered))
        self._collect_tests(asked)

    def _may_hold(self, table: When, bare: Inventory) -> bool:
        """Whether some choice of versions could make a table hold: the rest of it has to hold already."""
        devices: tuple[int | None, ...] = bare.visible_devices() or (None,)

        def chosen(key: str) -> bool:
            return not depends(key, self.problem.known).isdisjoint(self.order)

        def known(key: str) -> bool:
            return any(bare.known(key, each) is not None for each in devices)

        for clause in table:
            keys = (clause.key, *clauses.refs(clause))
            if not any(map(chosen, keys)):
                if not any(clauses.ask(clause, bare, each) is Tri.YES for each in devices):
                    return False
            elif not all(chosen(key) or known(key) for key in keys):
                return False  # compared with a fact that no choice of versions will tell
        return True

    def _collect_tests(self, asked: Sequence[Rule]) -> None:
        """By package, all clauses that ask for its version; None where versions are compared with facts."""
        tables = [table for rule in asked for table in (*rule.when, rule.require)]
        tables += [default.when for default in self.problem.known.defaults]
        found: dict[str, list[Clause]] = {}
        whole = {"torch"}  # builds are looked up by the very release
        for clause in (clause for table in tables for clause in table):
            keys = (clause.key, *clauses.refs(clause))
            names = [key.split(".")[1] for key in keys if family(key) == "pkg"]
            whole.update(names if len(keys) > 1 else ())
            for name in names:
                found.setdefault(name, []).append(clause)
        self.tests = {name: None if name in whole else tuple(found.get(name, ())) for name in self.order}

    def kind(self, name: str, value: Value | None) -> Any:
        """What all versions share that no clause tells apart; the value itself where that is not known."""
        tests = self.tests.get(name)
        if tests is None or family(name) == "train":
            return value
        if (name, value) not in self.kinds:
            alone = Inventory({package_key(name): _fact_of(name, str(value))})
            self.kinds[name, value] = tuple(clauses.ask(test, alone) for test in tests)
        return self.kinds[name, value]

    def inventory(self, chosen: Mapping[str, Value | None]) -> Inventory:
        """What the judge sees of a partial choice; a free fact not chosen yet is unknown, not its default."""
        shown = {name: chosen[name] for name in self.deriving if name in chosen}
        key = tuple(self.kind(name, value) for name, value in shown.items())
        base = self.derived.get(key)
        if base is None:
            base = self.derived[key] = self._settled(shown)
        return base.with_facts(
            _fact_of(name, str(version)) for name, version in chosen.items() if family(name) != "train"
        )

    def _settled(self, shown: Mapping[str, Value | None]) -> Inventory:
        said = f"target {self.problem.target.name}"
        facts = [Fact(key, Known(value), said) for key, value in self.problem.target.train.items()]
        waiting = (name for name in self.order if family(name) == "train" and name not in shown)
        facts += [Fact(name, Unknown("not chosen yet")) for name in waiting]
        for name, value in shown.items():
            if family(name) != "train":
                facts.append(_fact_of(name, str(value)))
            elif value is not None:
                facts.append(Fact(name, Known(value), "chosen by the search"))
        return derive.derive(self.problem.machine.with_facts(facts), self.problem.known)

    def refusals(self, name: str, grown: Mapping[str, Value | None]) -> Iterator[_Refusal]:
        """What speaks against a part because of the variable that was added last."""
        for rule, ordered in self.rules.get(name, ()):
            key = (rule.id, *(self.kind(each, grown[each]) for each in ordered if each in grown))
            if key not in self.said:
                self.said[key] = self._refusal(rule, ordered, grown)
            refused = self.said[key]
            if refused is not None:
                yield refused
        yield from self._unmet(name, grown)
        yield from self._objected(name, grown)

    def _refusal(
        self, rule: Rule, ordered: Sequence[str], grown: Mapping[str, Value | None]
    ) -> _Refusal | None:
        inventory = self.inventory(grown)
        for finding in judge.judge(inventory, [rule]).findings:
            if judge.forbids_lock(finding):
                concerned = frozenset(each for each in ordered if each in grown)
                return _Refusal(reason_of(rule), concerned, tuple(_ways(finding, inventory, self.order)))
        return None

    def _unmet(self, name: str, grown: Mapping[str, Value | None]) -> Iterator[_Refusal]:
        """Metadata binds pairs of chosen packages, as it binds installed ones."""
        for package, version in grown.items():
            for each in self._required(package, str(version)):
                if name not in (package, each.requires) or each.requires not in grown:
                    continue
                reason = ("metadata", package, each.requires)
                there = str(grown[each.requires])
                if (
                    versions.satisfies(there, each.specifier, unknown=Tri.YES) is Tri.NO
                    and reason not in self.without
                ):
                    yield _Refusal(reason, frozenset(reason[1:]), ((each.requires, each.specifier),))

    def _required(self, package: str, version: str) -> list[Requirement]:
        if (package, version) not in self.bounds:
            lines = self.requires.get((package, version), ())
            alone = Fact(package_key(package, "requires"), Known(lines), "metadata")
            self.bounds[package, version] = [
                each
                for each in derive.requirements(self.problem.machine.with_facts([alone]))
                if each.requires in self.order and each.package == package
            ]
        return self.bounds[package, version]

    def _objected(self, name: str, grown: Mapping[str, Value | None]) -> Iterator[_Refusal]:
        for number, each in enumerate(self.problem.objections):
            stack, reason = dict(each.stack), ("objection", str(number))
            if reason in self.without or name not in stack or not stack.keys() <= grown.keys():
                continue
            rule = self.problem.known.rule(each.rule)
            if not each.wide or rule is None:
                if stack.items() <= grown.items():
                    yield _Refusal(reason, frozenset(stack))
                continue
            added = (_fact_of(*pair) for pair in each.added)
            judgement = judge.judge(self.inventory(grown).with_facts(added), [rule])
            if any(judge.forbids_lock(finding) for finding in judgement.findings):
                concerned = scope(rule, self.problem.known) & grown.keys()
                yield _Refusal(reason, concerned | {name})


@dataclass(slots=True)
class _Search:
    """One run over given domains."""

    bench: _Bench
    domains: Mapping[str, Sequence[Value | None]]
    learnt: dict[str, list[tuple[dict[str, Value | None], frozenset[str]]]] = field(default_factory=dict)
    hints: dict[str, list[Value]] = field(default_factory=dict)
    reasons: set[Reason] = field(default_factory=set)
    nodes: int = 0

    def refusal(self, name: str, grown: Mapping[str, Value | None]) -> _Refusal | None:
        """What speaks against the value added last, of several what concerns fewest variables, or None."""
        for stored, concerns in self.learnt.get(name, ()):
            if all(grown[each] == there for each, there in stored.items()):
                return _Refusal((), concerns)
        return min(self.bench.refusals(name, grown), key=lambda each: len(each.concerns), default=None)

    # --- all of them ------------------------------------------------------------------------------

    def extend(self, chosen: dict[str, Value | None]) -> dict[str, Value | None] | frozenset[str]:
        """A whole choice that extends this one, or the variables whose values make that impossible."""
        order = self.bench.order
        if len(chosen) == len(order):
            return chosen
        name = order[len(chosen)]
        left = list(self.domains[name])
        blame: set[str] = set()
        while left:
            value = left.pop(0)
            self.nodes += 1
            if self.nodes > NODES:
                raise NoSolutionError(f"no answer after {NODES} combinations; ask for fewer packages")
            grown = {**chosen, name: value}
            refused = self.refusal(name, grown)
            if refused is None:
                found = self.extend(grown)
                if isinstance(found, dict) or name not in found:
                    return found
                blame |= found
                left = _jumped(left, self.hints.pop(name, []))
                continue
            blame |= refused.concerns
            left = self._after(refused, name, left, best=value == self.domains[name][0])
        blame.discard(name)
        if blame:  # the values to blame are refused together from now on, wherever they meet again
            last = max(blame, key=order.index)
            self.learnt.setdefault(last, []).append(
                ({each: chosen[each] for each in blame}, frozenset(blame))
            )
        return frozenset(blame)

    def _after(
        self, refused: _Refusal, name: str, left: list[Value | None], *, best: bool
    ) -> list[Value | None]:
        """What is left to try after a refusal, in which order; kept in mind for a return, if of the best."""
        if refused.reason:
            self.reasons.add(refused.reason)
        ways = dict(reversed(refused.ways))  # the first way out for a package is the one that counts
        if best and name not in ways:
            for other, bound in ways.items():
                self.hints.setdefault(other, []).append(bound)
        return _jumped(left, [ways[name]]) if name in ways else left


def _jumped(left: list[Value | None], bounds: Sequence[Value]) -> list[Value | None]:
    """What is left to try, what the ways out name first; nothing is lost, so nothing is missed."""
    if left and left[0] is not None and any(_surely_within(str(left[0]), bound) for bound in bounds):
        return left
    named = [
        each
        for each in left
        if each is not None and any(_surely_within(str(each), bound) for bound in bounds)
    ]
    return [*named, *(each for each in left if each not in named)] if named else left


def _ways(finding: Finding, inventory: Inventory, order: Sequence[str]) -> Iterator[tuple[str, Value]]:
    """The rule's ways out that name one package of the search, in the rule's order, with facts filled in."""
    for fix in finding.rule.fixes:
        bound = judge.bind(fix, inventory, judge.device_of(finding))
        if bound is not None and len(bound.set) == 1:
            key, value = bound.set[0]
            if package_name(key) in order:
                yield package_name(key), value


def _fact_of(name: str, version: str) -> Fact:
    return Fact(package_key(name), Known(version) if version else Absent(), "the lock")


def solve(problem: SearchProblem, without: Container[Reason] = ()) -> Answer:
    """The first choice that nothing speaks against, as if the reasons in `without` did not exist.

    Raises:
        NoSolutionError: it gave up, which says nothing of whether there is one.
    """
    wanted = wanted_packages(problem, without)
    offered: dict[str, list[str]] = {}
    kept_out: set[Reason] = set()
    requires: dict[tuple[str, str], tuple[str, ...]] = {}
    for name in wanted:
        releases, refused = candidates(problem, name, without)
        offered[name] = [release.version for release in releases]
        requires.update({(name, release.version): release.requires for release in releases})
        kept_out |= refused
        if not offered[name]:
            return Answer(None, {}, frozenset({*refused, ("wants", name)}), 0)
    nodes, reasons = 0, {*kept_out, *(("wants", name) for name in wanted)}
    measured = [pkg for pkg in _measured_good(problem) if _offered(pkg, problem.target, offered)]
    for reluctant in (True, False):
        free = free_values(problem, reluctant=reluctant, without=without)
        if not reluctant and free == free_values(problem, reluctant=True, without=without):
            break
        bench = _Bench(problem, without, (*wanted, *free), requires)
        if bench.broken is not None:
            return Answer(None, {}, frozenset({reason_of(bench.broken)}), nodes)
        for pkg in (*measured, {}):
            domains: dict[str, Sequence[Value | None]] = {
                name: [pkg[name]] if name in pkg and name in problem.target.packages else offered[name]
                for name in wanted
            }
            domains.update({key: (None, *values) for key, values in free.items()})
            attempt = _Search(bench, domains)
            found = attempt.extend({})
            nodes += attempt.nodes
            if isinstance(found, dict):
                changed = {key: value for key in free if (value := found[key]) is not None}
                chosen = {name: str(found[name]) for name in wanted}
                return Answer(chosen, changed, frozenset(), nodes, measured=bool(pkg))
            if not pkg:
                reasons |= attempt.reasons
    return Answer(None, {}, frozenset(reasons), nodes)


def _offered(pkg: Mapping[str, str], target: Target, offered: Mapping[str, Sequence[str]]) -> bool:
    """Whether a measured combination may be chosen: it names every package, each at a release on offer."""
    return all(pkg.get(name) in offered.get(name, ()) for name in target.packages if name in offered)


def _measured_good(problem: SearchProblem) -> list[Mapping[str, str]]:
    """Combinations that trained the way the target says, newest first by the target's packages in turn."""
    target = problem.target
    found = [
        cell.pkg
        for cell in problem.known.cells
        if cell.target == target.name
        and cell.outcome == "ok"
        and all(
            target.train.get(key, value) == value or key in target.free for key, value in cell.train.items()
        )
    ]
    found.sort(key=lambda pkg: [versions.order(pkg.get(name, "")) for name in target.packages], reverse=True)
    distinct: list[Mapping[str, str]] = []
    for pkg in found:
        if pkg not in distinct:
            distinct.append(pkg)
    return distinct


# --- the word on a whole lock -----------------------------------------------------------------------


def objections(
    problem: SearchProblem, pins: Mapping[str, str], changed: Mapping[str, Value], stack: Collection[str]
) -> list[Objection]:
    """What a completed lock breaks, as bounds of the search; none if nothing.

    `pins` is the whole closure, `stack` the packages among it that were searched.
    """
    facts = [Fact(key, Known(value), "") for key, value in {**problem.target.train, **changed}.items()]
    lines = {
        release.package: release.requires
        for release in problem.releases
        if pins.get(release.package) == release.version and release.requires
    }
    facts += [_fact_of(name, version) for name, version in pins.items()]
    facts += [Fact(package_key(name, "requires"), Known(each), "metadata") for name, each in lines.items()]
    whole = problem.machine.with_facts(facts)
    inventory = derive.derive(replace(whole, complete=whole.complete | {"pkg"}), problem.known)
    rules = [*asked_rules(problem), *target_rules(problem.target)]
    judgement = judge.judge(inventory, [*rules, *requirement_rules(derive.unmet(inventory)[0])])
    return [
        _objection(problem, finding, inventory, pins, stack)
        for finding in judgement.findings
        if judge.forbids_lock(finding)
    ]


def _objection(
    problem: SearchProblem,
    finding: Finding,
    inventory: Inventory,
    pins: Mapping[str, str],
    stack: Collection[str],
) -> Objection:
    names = {each for each in scope(finding.rule, problem.known) if family(each) != "train"}
    concerned = sorted(names & set(stack)) or sorted(stack)
    added = tuple((name, pins.get(name, "")) for name in sorted(names - set(stack)))
    return Objection(
        rule=finding.rule.id,
        stack=tuple((name, pins[name]) for name in concerned),
        added=added,
        wide=bool(added) and bool(names & set(stack)) and problem.known.rule(finding.rule.id) is not None,
        words=finding.rule.title,
        bounds=_bounds(finding, inventory, {name for name, version in added if version}),
    )


def _bounds(finding: Finding, inventory: Inventory, added: Collection[str]) -> tuple[str, ...]:
    """The rule's first way out that sets nothing but packages an engine chose, as constraints for it."""
    for fix in finding.rule.fixes:
        bound = judge.bind(fix, inventory, judge.device_of(finding))
        if bound is not None and all(package_name(key) in added for key, _ in bound.set):
            return tuple(f"{package_name(key)}{value}" for key, value in bound.set)
    return ()
