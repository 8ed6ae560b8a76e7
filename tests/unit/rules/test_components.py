"""Which training runs which piece of library code: the rows of tables/runs.toml, and what rules see of them."""

from __future__ import annotations

import pytest

from envcheck.commands import loading
from envcheck.core.facts import Absent, Fact, Inventory, Known, Reading, Unknown, Value, package_key
from envcheck.core.training_facts import KEYS
from envcheck.rules import derive

TRAINERS = KEYS["train.trainer"].words


def derived(key: str, train: dict[str, Value] | None = None, **versions: str) -> Reading:
    """Return a component for a training and package versions; other packages are not installed."""
    facts = [Fact(f"train.{name}", Known(value), "given") for name, value in (train or {}).items()]
    facts += [
        Fact(package_key(name.replace("_", "-")), Known(found), "given") for name, found in versions.items()
    ]
    read = Inventory({fact.key: fact for fact in facts}, complete=frozenset({"pkg"}))
    return derive.derive(read, loading.knowledge()).reading(f"train.runs_{key}")


def test_without_a_training_nothing_is_given() -> None:
    reading = derived("trainer", transformers="4.57.6")
    assert isinstance(reading, Unknown)
    assert not reading.asked


def test_a_training_without_a_trainer_has_none() -> None:
    assert isinstance(derived("trainer", {"adapter": "lora"}), Absent)


@pytest.mark.parametrize(
    ("train", "trl", "runs"),
    [
        ({"method": "dpo"}, "0.21.0", True),
        ({"method": "ppo"}, "0.21.0", False),
        ({"method": "rloo"}, "0.21.0", False),
        ({"method": "rloo"}, "0.22.0", True),
    ],
)
def test_the_method_and_the_release_decide(train: dict[str, Value], trl: str, *, runs: bool) -> None:
    assert derived("trainer", {"trainer": "trl", **train}, trl=trl) == Known(runs)


def test_an_option_decides() -> None:
    """LLaMA-Factory trains with the default attention where flash-attn is missing or too old."""
    train: dict[str, Value] = {"trainer": "llamafactory", "attention": "flash_attention_2"}
    assert derived("attention", train, llamafactory="0.9.3") == Known(value=False)
    assert derived("attention", train, llamafactory="0.9.3", flash_attn="2.0.9") == Known(value=False)
    assert derived("attention", train, llamafactory="0.9.3", flash_attn="2.7.4") == Known(value=True)


def test_a_method_that_decides_and_is_not_given_leaves_it_open() -> None:
    reading = derived("trainer", {"trainer": "trl"}, trl="0.21.0")
    assert isinstance(reading, Unknown)
    assert "train.method" in reading.why
    assert not reading.asked  # it waits for the rest of the configuration


def test_a_trainer_without_a_row_is_unknown_and_says_so() -> None:
    reading = derived("quantization", {"trainer": "accelerate"})
    assert isinstance(reading, Unknown)
    assert reading.asked
    assert "accelerate" in reading.why


def test_a_given_component_is_not_replaced() -> None:
    assert derived("trainer", {"trainer": "trl", "method": "ppo", "runs_trainer": True}) == Known(value=True)


@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_pieces_of_transformers_trainer_are_decided_for_every_trainer(trainer: str) -> None:
    """A trainer that nobody gave a row would be undecided in every rule on the Trainer."""
    train: dict[str, Value] = {"trainer": trainer, "method": "sft", "parallel": "none"}
    versions = {"trl": "1.9.0", "sentence_transformers": "5.1.0"}
    for key in ("training_arguments", "trainer", "trainer_import", "trainer_optimizer", "accelerate"):
        assert isinstance(derived(key, train, **versions), Known), key


def test_each_row_names_trainers_and_its_source() -> None:
    rows = [row for row in loading.knowledge().defaults if row.key in derive.COMPONENTS]
    assert {row.key for row in rows} == derive.COMPONENTS.keys()
    for row in rows:
        assert row.when[0].key == "train.trainer", row
        assert row.source
