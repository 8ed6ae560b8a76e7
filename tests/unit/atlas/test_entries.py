"""What users import and call of each package: a table, and the mistakes it may have."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from envcheck.atlas.entries import (
    calls_of,
    distribution_of,
    elsewhere,
    entries_of,
    import_names,
    use_entries,
)
from envcheck.commands.harvest.gaps import use_shipped_entries
from envcheck.core.errors import InputError

TABLE = """
[package.trl]
entries = ["import trl", "from trl import SFTTrainer, SFTConfig"]
calls = ["trl.extras.Judge"]
[package.autoawq]
imports = ["awq"]
[[methods]]
class = "*Trainer"
train = ["train", "log"]
[[methods]]
class = "*Config"
[[methods]]
class = "*"
save_pretrained = ["save_pretrained"]
[names]
elsewhere = ["jax"]
[names.spellings]
bnb = "bitsandbytes"
"""


@pytest.fixture(autouse=True)
def small_table() -> Iterator[None]:
    use_entries(TABLE, "entries.toml")
    yield
    use_shipped_entries()


def test_an_entry_is_named_by_its_first_name() -> None:
    first, second = entries_of("trl")
    assert (first.action, first.module, first.names) == ("import trl", "trl", ())
    assert (second.action, second.names) == ("from trl import SFTTrainer", ("SFTTrainer", "SFTConfig"))
    assert entries_of("autoawq") == ()
    assert entries_of("unheard-of") == ()


def test_classes_of_entries_are_called_with_the_methods_of_the_first_pattern() -> None:
    called = {call.path: dict(call.methods) for call in calls_of("trl")}
    assert called == {
        "trl.SFTTrainer": {"train": "train", "log": "train"},
        "trl.SFTConfig": {},
        "trl.extras.Judge": {"save_pretrained": "save_pretrained"},
    }


def test_a_module_belongs_to_the_package_that_names_it() -> None:
    assert (import_names("autoawq"), distribution_of("awq.models")) == (("awq",), "autoawq")
    assert (import_names("lm-eval"), distribution_of("lm_eval")) == (("lm_eval",), "lm-eval")
    assert distribution_of("bnb") == "bitsandbytes"
    assert elsewhere() == {"jax"}


@pytest.mark.parametrize(
    "text", ["[package.trl]\nentry = []", '[package.trl]\nentries = ["trl.SFTTrainer"]', "not TOML"]
)
def test_a_mistake_is_named(text: str) -> None:
    with pytest.raises(InputError):
        use_entries(text, "entries.toml")


def test_the_shipped_table_names_each_package_of_the_atlas_by_its_entries() -> None:
    use_shipped_entries()
    assert "from trl import SFTTrainer" in [entry.action for entry in entries_of("trl")]
    (trainer,) = (call for call in calls_of("transformers") if call.path == "transformers.Trainer")
    assert trainer.methods["_save_checkpoint"] == "save_model"
    assert distribution_of("sklearn") == "scikit-learn"
