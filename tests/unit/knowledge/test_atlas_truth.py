"""The shipped atlas accuses nothing that works, and finds the failures that made envcheck necessary."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from envcheck.commands.judging import judge_inventory
from envcheck.commands.loading import knowledge, load_atlas
from envcheck.core.findings import Verdict
from envcheck.core.rules import ABSENT, Rule, Severity
from envcheck.host.package_files import source_texts
from envcheck.knowledge.atlas_rules import rules_here, rules_of
from envcheck.lock.parse import parse_requirements
from tests.support.worlds import inventory
from tests.unit.lock.test_lock import SHIPPED

ALSO_FOR_INFERENCE = ("sentence-transformers",)
"""Packages with a trainer that most people have for something else."""


def accused(versions: Mapping[str, str]) -> list[str]:
    rules = rules_here(load_atlas(), versions)
    return [rule.title for rule in rules if rule.severity is Severity.ERROR and not of_one_method(rule)]


def of_one_method(rule: Rule) -> bool:
    """Whether only some trainings reach the failure, such as DPO with TRL's own trainer."""
    clauses = [clause for table in rule.when for clause in table]
    imported = rule.id.endswith(":training")
    also = rule.id.split(":")[1] in ALSO_FOR_INFERENCE
    return imported or any(
        (clause.key == "train.method" and (ABSENT,) not in clause.any_of)
        or (also and clause.key == "train.trainer")
        for clause in clauses
    )


def test_a_call_is_judged_for_the_method_that_makes_it() -> None:
    rules = rules_here(load_atlas(), {"trl": "0.15.2", "transformers": "5.2.0"})
    methods = {rule.id.split(":", 3)[3]: (rule.severity, of_one_method(rule)) for rule in rules}
    assert methods["GRPOTrainer.train"] == (Severity.ERROR, True)
    assert methods["DPOTrainer"] == (Severity.WARNING, False), "an import that few users make, not hidden"
    assert methods["DPOTrainer:training"] == (Severity.ERROR, True)


@pytest.mark.parametrize(
    ("more", "train", "expected"),
    [
        ("", "", Severity.WARNING),
        ("", 'trainer = "trl"\nmethod = "dpo"', Severity.ERROR),
        ("", 'trainer = "trl"\nmethod = "sft"', None),
        ("", 'trainer = "transformers"\nmethod = "sft"', None),
        ("", 'method = "dpo"', Severity.WARNING),  # of what trainer is not known
        ('llamafactory = "0.9.3"', 'trainer = "llamafactory"\nmethod = "sft"', Severity.ERROR),
        ('llamafactory = "0.9.5"', 'trainer = "llamafactory"\nmethod = "sft"', None),
        ('llamafactory = "0.9.5"', 'trainer = "llamafactory"\nmethod = "dpo"', Severity.ERROR),
        ('axolotl = "0.21.0"', 'trainer = "axolotl"\nmethod = "sft"', Severity.ERROR),
        ("", 'trainer = "swift"\nmethod = "sft"', None),
    ],
)
def test_an_import_of_some_trainings_is_judged_for_those(
    more: str, train: str, expected: Severity | None
) -> None:
    versions = f'[pkg]\ntrl = "0.19.0"\ntransformers = "5.2.0"\n{more}\n'
    facts = inventory(f"{versions}[train]\n{train}\n" if train else versions, knowledge())

    findings = judge_inventory(facts, knowledge(), None).findings
    found = [each.severity for each in findings if each.rule.id.startswith("atlas:trl:transformers:DPO")]

    assert found == ([expected] if expected else [])


def test_the_other_side_of_that_import_fits() -> None:
    for beside in ({"trl": "0.19.0", "transformers": "4.57.6"}, {"trl": "0.23.0", "transformers": "5.2.0"}):
        assert not [*rules_here(load_atlas(), beside)]


@pytest.mark.parametrize(
    ("trl", "train", "expected"),
    [
        ("0.16.1", 'trainer = "swift"\nmethod = "grpo"', Severity.ERROR),
        ("0.17.0", 'trainer = "swift"\nmethod = "grpo"', None),
        ("0.16.1", 'trainer = "swift"\nmethod = "sft"', None),
        ("0.16.1", 'trainer = "trl"\nmethod = "grpo"', None),  # TRL's own
        ("0.16.1", "", Severity.WARNING),
    ],
)
def test_a_trainer_that_a_factory_imports_is_judged_for_its_method(
    trl: str, train: str, expected: Severity | None
) -> None:
    versions = f'[pkg]\nms-swift = "3.9.0"\ntrl = "{trl}"\n'
    facts = inventory(f"{versions}[train]\n{train}\n" if train else versions, knowledge())

    findings = judge_inventory(facts, knowledge(), None).findings
    broken = [each for each in findings if each.verdict is Verdict.BROKEN]
    found = [each.severity for each in broken if each.rule.title.startswith("`from swift.trainers import")]

    assert found == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("versions", "rule", "told"),
    [
        # taken from a package that imports nothing before
        ('ms-swift = "3.7.0"\npeft = "0.10.0"', "atlas:ms-swift:peft:sft_main", True),
        ('ms-swift = "3.7.0"\npeft = "0.11.1"', "atlas:ms-swift:peft:sft_main", False),
        # imported by a function on the way to every training
        ('axolotl = "0.13.2"\ntrl = "0.29.0"', "atlas:axolotl:trl:builders", True),
        ('axolotl = "0.13.2"\ntrl = "0.28.0"', "atlas:axolotl:trl:builders", False),
    ],
)
def test_what_every_training_imports_late_is_an_error(versions: str, rule: str, *, told: bool) -> None:
    findings = judge_inventory(inventory(f"[pkg]\n{versions}\n", knowledge()), knowledge(), None).findings
    found = [each.severity for each in findings if each.rule.id == rule]

    assert found == ([Severity.ERROR] if told else [])


def test_compiled_modules_that_a_plugin_replaces_do_not_accuse() -> None:
    beside = {"vllm": "0.11.0", "torch": "2.7.1", "torch-npu": "2.7.1"}
    plugin = {**beside, "vllm-ascend": "0.11.0rc3"}

    assert [rule.id for rule in rules_here(load_atlas(), beside)] == ["atlas:vllm:torch"]
    assert not [*rules_here(load_atlas(), plugin)]
    with_all, with_names = (
        [rule.when for rule in rules_of(load_atlas(), each) if rule.id == "atlas:vllm:torch"]
        for each in (beside, plugin)
    )
    assert [len(each) for each in with_all] > [len(each) for each in with_names] > []


@pytest.mark.parametrize(
    ("train", "expected"),
    [("", None), ('trainer = "trl"', None), ('trainer = "sentence_transformers"', Severity.ERROR)],
)
def test_a_trainer_of_a_package_that_also_encodes_is_judged_where_it_trains(
    train: str, expected: Severity | None
) -> None:
    versions = '[pkg]\nsentence-transformers = "3.0.1"\ntransformers = "4.46.3"\n'
    facts = inventory(f"{versions}[train]\n{train}\n" if train else versions, knowledge())

    findings = judge_inventory(facts, knowledge(), None).findings
    errors = [each.severity for each in findings if each.severity is Severity.ERROR and each.evidence]

    assert set(errors) == ({expected} if expected else set())


@pytest.mark.parametrize(
    ("package", "train", "told"),
    [
        ('trl = "0.7.3"', "", True),
        ('trl = "0.7.3"', 'trainer = "trl"', True),
        ('trl = "0.7.3"', 'trainer = "axolotl"', True),
        ('trl = "0.7.3"', 'adapter = "lora"', True),  # of what trainer is not known
        ('trl = "0.7.3"', 'trainer = "transformers"', False),
        ('axolotl = "0.9.2"', "", True),
        ('axolotl = "0.9.2"', 'trainer = "axolotl"', True),
        ('axolotl = "0.9.2"', 'trainer = "trl"', False),
        ('llamafactory = "0.9.1"', 'trainer = "llamafactory"', True),
        ('llamafactory = "0.9.1"', 'trainer = "swift"', False),
    ],
)
def test_a_trainer_that_cannot_be_imported_is_an_error_of_its_own_trainings(
    package: str, train: str, told: bool
) -> None:
    versions = f'[pkg]\n{package}\ntransformers = "5.2.0"\n'
    facts = inventory(f"{versions}[train]\n{train}\n" if train else versions, knowledge())

    findings = judge_inventory(facts, knowledge(), None).findings
    name = package.partition(" ")[0]
    errors = [each for each in findings if each.severity is Severity.ERROR]
    of_it = [each for each in errors if any(item.fact.key == f"pkg.{name}" for item in each.evidence)]

    assert bool(of_it) is told, [each.rule.id for each in errors]


@pytest.mark.parametrize(
    ("train", "told"),
    [
        ("", True),
        ('trainer = "transformers"', True),
        ('adapter = "lora"', True),
        ('trainer = "accelerate"', False),
    ],
)
def test_a_class_that_a_training_does_not_import_is_no_error_of_it(train: str, told: bool) -> None:
    versions = '[pkg]\ntransformers = "4.53.0"\naccelerate = "1.3.0"\n'
    facts = inventory(f"{versions}[train]\n{train}\n" if train else versions, knowledge())

    findings = judge_inventory(facts, knowledge(), None).findings

    assert any(each.severity is Severity.ERROR for each in findings) is told


def test_a_server_that_cannot_be_made_is_no_error_of_a_training() -> None:
    rules = rules_here(load_atlas(), {"fastapi": "0.128.0", "starlette": "1.0.0"})

    assert [(rule.id, rule.severity) for rule in rules] == [
        ("atlas:fastapi:starlette:FastAPI", Severity.WARNING)
    ]


def healthy_cases() -> Iterator[Any]:
    for file, text in source_texts("compat/cases", ".toml", "healthy-").items():
        for case in tomllib.loads(text)["case"]:
            yield pytest.param(case["facts"].get("pkg", {}), id=f"{Path(file).stem}-{case['id']}")


@pytest.mark.parametrize("versions", [*healthy_cases()])
def test_an_environment_that_people_run_is_not_accused(versions: dict[str, str]) -> None:
    assert accused(versions) == []


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_a_shipped_lock_is_not_accused(path: Path) -> None:
    lock = parse_requirements(path.read_text(encoding="utf-8"), path.name)

    assert accused({pin.name: pin.version for pin in lock.pins}) == []


def test_what_has_trained_is_not_accused() -> None:
    trained = {
        tuple(sorted(cell.pkg.items())): accused(cell.pkg)
        for cell in knowledge().cells
        if cell.outcome == "ok"
    }

    assert {pins: titles for pins, titles in trained.items() if titles} == {}


@pytest.mark.parametrize(
    ("asking", "partner", "broken", "fitting"),
    [
        ("deepspeed", "torch", ("0.14.0", "2.4.0"), ("0.14.0", "2.3.1")),
        ("deepspeed", "torch", ("0.14.3", "2.4.0"), ("0.14.4", "2.4.0")),
        ("peft", "transformers", ("0.14.0", "4.42.4"), ("0.14.0", "4.43.0")),
        ("peft", "transformers", ("0.16.0", "4.43.4"), ("0.16.0", "4.44.0")),
        ("peft", "transformers", ("0.17.1", "5.0.0"), ("0.17.1", "4.57.6")),
        ("peft", "transformers", ("0.18.0", "4.51.3"), ("0.18.1", "4.51.3")),
        ("peft", "accelerate", ("0.15.0", "0.31.0"), ("0.15.0", "0.32.0")),
        ("torchvision", "torch", ("0.21.0", "2.7.0"), ("0.21.0", "2.6.0")),
    ],
)
def test_both_sides_of_the_founding_failures_come_from_the_code_alone(
    asking: str, partner: str, broken: tuple[str, str], fitting: tuple[str, str]
) -> None:
    assert accused({asking: broken[0], partner: broken[1]}) != []
    assert accused({asking: fitting[0], partner: fitting[1]}) == []
