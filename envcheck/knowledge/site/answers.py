"""Judge every rule beforehand, for each combination of choices that it can distinguish.

An answer depends on few things. A rule about torch and DeepSpeed under ZeRO-3 is the same for every GPU, and
for all torch releases on one side of its bound. So each rule is judged once for every *class* of choices that
it can distinguish. Its entry gives the class of each choice, and the combinations of classes that break the
rule.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, product
from typing import Any, NamedTuple

from envcheck.core.facts import Known, Reading, Tri, Value, family, package_key, package_name
from envcheck.core.findings import Verdict
from envcheck.core.rules import Clause, Default, Matrix, Rule
from envcheck.knowledge.site.choices import PageChoices
from envcheck.rules import clause_algebra, derive, judge
from envcheck.rules.clauses import referenced_keys

_MOST_PACKAGES = 2
"""Packages in one combination: the page shows pairs."""


_FROM_TORCH = frozenset({"cuda.runtime", "cuda.minimum_driver", "cuda.full_driver", "gpu.in_torch_build"})
"""Facts that follow from the release of torch."""


_CODE_FOR_GPU = frozenset(
    {
        "gpu.in_torch_build",
        "gpu.in_triton",
        "gpu.torch_first",
        "gpu.torch_last",
        "gpu.torch_nearest",
        "gpu.packages_without_code",
    }
)
"""Facts of a GPU that follow from its compute capability, its kind and the software beside it."""


_TRAINING = frozenset({"train", "training"})
"""Families of facts that the target gives, or that follow from it."""


_WITHDRAWN = "packages.withdrawn"
"""The fact that names every listed release which its authors have withdrawn, whatever its package."""


def entries_of(choices: PageChoices, number: int, rule: Rule) -> Iterator[dict[str, Any]]:
    """Yield a rule's answers; a rule on withdrawn releases has an entry for each package that has some."""
    if any(clause.key == _WITHDRAWN for table in rule.when for clause in table):
        for package, releases in choices.releases.items():
            withdrawn = [(package, row.version) in choices.known.tables.withdrawn for row in releases]
            if any(withdrawn):
                classes = [0, *map(int, withdrawn)]
                yield _entry(number, dims=[package], sizes=[2], classes=[classes], broken=[1])
    elif entry := entry_of(choices, number, rule):
        yield entry


def entry_of(choices: PageChoices, number: int, rule: Rule) -> dict[str, Any] | None:
    """Return a rule's answers: the class of every choice, and the combinations that break the rule.

    Return None if the rule needs more packages than the page combines, or if nothing breaks it. A combination
    is one number: its classes in the order of `dims`, in the mixed base of `sizes`.
    """
    needs = _Needs.of_rule(rule, choices)
    if len(needs.required) > _MOST_PACKAGES:
        return None
    dimensions = [*needs.settings, *needs.packages]
    classes = {name: _classes(choices, needs, name) for name in dimensions}
    sizes = [max(classes[name]) + 1 for name in dimensions]
    first_option = {
        name: {class_: option for option, class_ in reversed(list(enumerate(classes[name])))}
        for name in dimensions
    }
    found: dict[Tri, list[int]] = {Tri.YES: [], Tri.MAYBE: [], Tri.NO: []}
    judged = _JudgedOnce(choices, rule, needs)
    for combination in _combinations(needs, classes):
        chosen = {name: first_option[name][class_] for name, class_ in combination.items()}
        place = 0
        for name, size in zip(dimensions, sizes, strict=True):
            place = place * size + combination[name]
        found[judged.is_broken(chosen)].append(place)
    if not (found[Tri.YES] or found[Tri.MAYBE]):
        return None
    return _entry(
        number,
        dims=dimensions,
        sizes=sizes,
        classes=[classes[name] for name in dimensions],
        broken=sorted(found[Tri.YES]),
        open_=sorted(found[Tri.MAYBE]),
    )


def _entry(
    number: int,
    *,
    dims: list[str],
    sizes: list[int],
    classes: list[list[int]],
    broken: list[int],
    open_: Sequence[int] = (),
) -> dict[str, Any]:
    return {
        "rule": number,
        "dims": dims,
        "sizes": sizes,
        "classes": classes,
        "broken": broken,
        "open": list(open_),
    }


class _Needs(NamedTuple):
    """Hold what a rule's answer can depend on: settings (target, gpu, driver, python) and packages.

    `required` are the packages that must be chosen before the rule can be broken. `defaults` are those that
    may give one of `keys`; the others would be decided in vain for each choice. `inputs` are the facts of the
    machine that the clauses, these defaults, or facts that follow from the training read.
    """

    settings: tuple[str, ...]
    packages: tuple[str, ...]
    required: frozenset[str]
    clauses: tuple[Clause, ...]
    keys: frozenset[str]
    defaults: tuple[Default, ...]
    inputs: frozenset[str]

    @property
    def torch_build(self) -> bool:
        """Return whether the answer depends on torch's build, so that no two releases are in one class."""
        return _depends_on_torch_build(self.keys)

    @classmethod
    def of_rule(cls, rule: Rule, choices: PageChoices) -> _Needs:
        """Find what a rule's answer can depend on."""
        required = frozenset.intersection(*map(_packages_of, rule.when)) | _packages_of(rule.require)
        clauses, keys = _with_defaults(rule, choices.known)
        packages = {package_name(key) for key in keys if key.startswith("pkg.")}
        if _depends_on_torch_build(keys):
            packages.add("torch")
        packages |= {package_name(base) for key in keys for base in _packages_behind(key)}
        behind = _keys_behind(keys, choices.known)
        defaults = tuple(default for default in choices.known.defaults if default.key in behind)
        # Some GPUs come with one processor only, for which a release of torch may have another build.
        behind_build = {"gpus.count"} if "cuda.runtime" in behind else set()
        return cls(
            settings=tuple(_settings_behind(keys | behind_build)),
            packages=tuple(sorted(packages & choices.releases.keys())),
            required=required,
            clauses=tuple(clauses),
            keys=frozenset(keys),
            defaults=defaults,
            inputs=frozenset({*keys, *_inputs_of_training(behind, defaults)}),
        )


def _with_defaults(rule: Rule, known: Matrix) -> tuple[list[Clause], set[str]]:
    """Return a rule's clauses and facts, with those of the defaults on which its facts depend, in turn."""
    clauses = [clause for table in (*rule.when, rule.require) for clause in table]
    keys = {key for clause in clauses for key in (clause.key, *referenced_keys(clause))}
    growing = True
    while growing:
        growing = False
        for default in known.defaults:
            more = {clause.key for clause in default.when}
            if default.key in keys and not (more <= keys and set(default.when) <= set(clauses)):
                keys |= more
                clauses += [clause for clause in default.when if clause not in clauses]
                growing = True
    return clauses, keys


def _keys_behind(keys: Collection[str], known: Matrix) -> set[str]:
    """Return these facts, and all from which one of them follows or gets its default."""
    wanted: set[str] = set()
    more = set(keys)
    while more:
        wanted |= more
        given = (clause.key for default in known.defaults if default.key in more for clause in default.when)
        more = {*given, *(key for each in more for key in derive.FOLLOWS_FROM.get(each, ()))} - wanted
    return wanted


def _inputs_of_training(keys: Iterable[str], defaults: Iterable[Default]) -> Iterator[str]:
    """Yield the facts that these defaults, and those of these facts that follow from the training, read."""
    for key in keys:
        if family(key) in _TRAINING:
            yield from derive.FOLLOWS_FROM.get(key, ())
    for default in defaults:
        for clause in default.when:
            yield from (clause.key, *referenced_keys(clause))


def _settings_behind(keys: Collection[str]) -> Iterator[str]:
    """Yield the settings of the page that give any of these facts."""
    families = {family(key) for key in keys}
    if families & _TRAINING:
        yield "target"
    if families & {"gpu", "gpus"}:
        yield "gpu"
    if "driver" in families or "cuda.driver" in keys:
        yield "driver"
    if "python.version" in keys:
        yield "python"


def _depends_on_torch_build(keys: Collection[str]) -> bool:
    return any(key in _FROM_TORCH or key.startswith("build.torch.") for key in keys)


def _packages_behind(key: str) -> tuple[str, ...]:
    """Return the keys of the packages from which alone a fact follows: Triton's release from torch or Triton.

    One of them decides it, so that the class of each is what follows from it where no other is there.
    """
    bases = tuple(derive.FOLLOWS_FROM.get(key, ()))
    return bases if all(base.startswith("pkg.") for base in bases) and family(key) not in _TRAINING else ()


def _packages_of(table: Iterable[Clause]) -> frozenset[str]:
    """Return the packages without which these clauses cannot be decided."""
    keys = {key for clause in table for key in (clause.key, *referenced_keys(clause))}
    named = {package_name(key) for key in keys if key.startswith("pkg.")}
    return frozenset(named | {"torch"} if _depends_on_torch_build(keys) else named)


def _classes(choices: PageChoices, needs: _Needs, dimension: str) -> list[int]:
    """Return the class of every option: options that no clause distinguishes are in one class."""
    numbers: dict[Any, int] = {}
    return [
        numbers.setdefault(_class_key(choices, needs, dimension, option), len(numbers))
        for option in range(choices.option_count(dimension))
    ]


def _class_key(choices: PageChoices, needs: _Needs, dimension: str, option: int) -> Any:
    """Return a value that is equal for options that no clause distinguishes."""
    if dimension == "target":
        training = choices.trainings[option]
        given = tuple(sorted((key, value) for key, value in training.facts.items() if key in needs.keys))
        described = "training.described" in needs.keys and bool(training.facts)
        return given, tuple(key for key in training.free if key in needs.keys), described
    if option == 0 or (dimension == "torch" and needs.torch_build):
        return option
    if dimension in ("gpu", "driver"):
        return _hardware_class(choices, needs, dimension, option)
    if dimension == "python":
        key, value = "python.version", f"{choices.pythons[option]}.0"
    else:
        key, value = package_key(dimension), choices.version(dimension, option)
    answers = tuple(
        clause_algebra.answer(clause, Known(value)) for clause in needs.clauses if clause.key == key
    )
    compared = _is_compared(key, needs)
    # Whether a companion loads beside torch depends on its release, whatever the clauses say of it.
    compared = compared or f"build.{dimension}.fits" in needs.keys
    follows = frozenset(each for each in needs.keys if key in _packages_behind(each))
    of_host, *_ = choices.readings({dimension: option}, follows) if follows else ((),)
    following = tuple((each, _given(needs, each, reading)) for each, reading in of_host)
    return answers, value if compared else "", following


def _hardware_class(choices: PageChoices, needs: _Needs, dimension: str, option: int) -> Hashable:
    """Return what a driver or a GPU gives to the clauses; the option if that depends on other choices."""
    asked = needs.inputs
    if dimension == "driver" and any(map(_follows_from_driver_and_more, asked)):
        return option
    if asked & _CODE_FOR_GPU:
        asked |= {"gpu.compute_capability", "gpu.kind"}
    of_host, *of_device = choices.readings({dimension: option}, asked)
    # Other facts follow from those of the host, such as the processor that a GPU comes with.
    host = choices.readings({dimension: option}) if dimension == "gpu" else ()
    given = [(key, _given(needs, key, reading)) for part in (of_host, *of_device) for key, reading in part]
    return tuple(given), host[:1]


def _given(needs: _Needs, key: str, reading: Reading) -> Hashable:
    """Return the answers of the clauses if they alone ask for the fact, and its reading otherwise."""
    clauses = [clause for clause in needs.clauses if clause.key == key]
    if not clauses or _is_compared(key, needs) or not isinstance(reading, Known):
        return reading
    return tuple(clause_algebra.answer(clause, reading) for clause in clauses)


def _follows_from_driver_and_more(key: str) -> bool:
    """Return whether a fact follows from the driver together with something else, such as torch's CUDA."""
    behind: set[str] = set()
    more = {key}
    while more:
        behind |= more
        more = {each for key in more for each in derive.FOLLOWS_FROM.get(key, ())} - behind
    bases = {each for each in behind if each not in derive.FOLLOWS_FROM}
    return "driver.version" in bases and len(bases) > 1


def _is_compared(key: str, needs: _Needs) -> bool:
    """Return whether a clause compares another fact with this one, or this one with another."""
    return any(
        key in referenced_keys(clause) or (clause.key == key and any(referenced_keys(clause)))
        for clause in needs.clauses
    )


def _combinations(needs: _Needs, classes: Mapping[str, list[int]]) -> Iterator[dict[str, int]]:
    """Yield every class of the settings with every class of up to two packages; others are not chosen."""
    required = [name for name in needs.packages if name in needs.required]
    if len(required) < len(needs.required):
        return  # the tables list no releases of a required package
    not_chosen = {name: classes[name][0] for name in needs.packages}
    optional = [name for name in needs.packages if name not in needs.required]
    room = _MOST_PACKAGES - len(needs.required)
    seen = set()
    for extra in (packages for size in range(room + 1) for packages in combinations(optional, size)):
        names = (*needs.settings, *required, *extra)
        for numbers in product(*(range(max(classes[name]) + 1) for name in names)):
            combination = {**not_chosen, **dict(zip(names, numbers, strict=True))}
            key = tuple(sorted(combination.items()))
            if key not in seen:
                seen.add(key)
                yield combination


class _JudgedOnce:
    """Judge a rule for choices, once for all that agree in every fact it depends on.

    Forty releases of torch have three levels of CUDA, and twenty-five GPUs lie on two sides of most bounds.
    """

    def __init__(self, choices: PageChoices, rule: Rule, needs: _Needs) -> None:
        self._choices = choices
        self._rule = rule
        self._needs = needs
        self._machines: dict[tuple[tuple[str, int], ...], Hashable] = {}
        self._answers: dict[tuple[int | None, Hashable], Tri] = {}

    def is_broken(self, chosen: Mapping[str, int]) -> Tri:
        """Return whether a choice breaks the rule; MAYBE if only what the target leaves open decides."""
        machine = tuple((name, option) for name, option in chosen.items() if name != "target")
        if machine not in self._machines:
            self._machines[machine] = self._choices.readings(chosen, self._needs.inputs)
        same = chosen.get("target"), self._machines[machine]
        if same not in self._answers:
            self._answers[same] = _is_broken(self._choices, self._rule, self._needs, chosen)
        return self._answers[same]


def _is_broken(choices: PageChoices, rule: Rule, needs: _Needs, chosen: Mapping[str, int]) -> Tri:
    """Return whether a choice breaks a rule; MAYBE if that depends only on what the target leaves open."""
    values = choices.known_values(chosen)
    if not any(_may_match(table, values) for table in rule.when):
        return Tri.NO  # most choices end here, without the facts that follow from their training
    judgement = judge.judge(choices.inventory(chosen, needs.defaults), [rule])
    if any(finding.verdict is Verdict.BROKEN for finding in judgement.findings):
        return Tri.YES
    undecided = [evidence.fact.key for finding in judgement.findings for evidence in finding.evidence]
    undecided += [clause.key for waiting in judgement.waiting for clause in waiting.open]
    free = choices.trainings[chosen["target"]].free if "target" in chosen else ()
    return Tri.MAYBE if undecided and all(key in free for key in undecided) else Tri.NO


def _may_match(table: Iterable[Clause], values: Mapping[str, Value]) -> bool:
    """Return False if one of these values alone contradicts one of the clauses.

    What follows from a training never replaces one of them.
    """
    return not any(
        clause.key in values
        and not any(referenced_keys(clause))
        and clause_algebra.answer(clause, Known(values[clause.key])) is Tri.NO
        for clause in table
    )
