"""tools/new_options.py: which options of a wheel a dialect does not name."""

from __future__ import annotations

import zipfile
from pathlib import Path

import new_options


def test_options_are_the_fields_of_configuration_classes_that_bear_on_facts(tmp_path: Path) -> None:
    wheel = tmp_path / "some-1.0-py3-none-any.whl"
    source = (
        "class TrainArguments:\n    lora_scale: int = 1\n    seed: int = 0\n\nclass Other:\n    lora_x: int\n"
    )
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("some/training_args.py", source)
        archive.writestr("some/broken_config.py", "class (:\n")
        archive.writestr("some/model.py", "class AConfig:\n    lora_y: int\n")
    assert new_options.options(wheel) == {"lora_scale"}


def test_a_dialect_has_the_names_of_those_it_extends() -> None:
    assert {"use_peft", "gradient_accumulation_steps"} <= new_options.known_names("trl")


def test_the_last_release_that_was_read_is_the_upper_bound() -> None:
    assert str(new_options.last_read(">=1.0.0,<=1.12.0")) == "1.12.0"
