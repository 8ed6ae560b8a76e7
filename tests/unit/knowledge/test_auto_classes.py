"""Which Auto class loads a model of a configuration: the form of the file, and what is looked up in it."""

from __future__ import annotations

import pytest

from envcheck.host.package_files import source_texts
from envcheck.knowledge.auto_classes import auto_classes_text, classes_that_load

TEXT = auto_classes_text(
    {
        "4.48.0": {"AutoModel": ["VlConfig"], "AutoModelForVision2Seq": ["OldConfig"]},
        "4.49.0": {
            "AutoModelForVision2Seq": ["OldConfig", "VlConfig"],
            "AutoModelForImageTextToText": ["VlConfig"],
        },
        "5.0.0": {"AutoModelForImageTextToText": ["VlConfig"]},
    }
)


def test_configurations_stand_below_the_class_that_loads_them() -> None:
    assert TEXT.splitlines()[2:] == [
        "# read: 4.48.0 to 5.0.0",
        *("[AutoModelForImageTextToText]", "VlConfig 4.49.0.."),
        *("[AutoModelForVision2Seq]", "OldConfig 4.48.0..4.49.0", "VlConfig 4.49.0"),
    ]


def test_the_class_of_the_newest_releases_comes_first() -> None:
    found = classes_that_load(TEXT, "VlConfig")
    assert [(has.owner, has.releases) for has in found] == [
        ("AutoModelForImageTextToText", "from 4.49.0 on"),
        ("AutoModelForVision2Seq", "4.49.0"),
    ]
    assert classes_that_load(TEXT, "Config") == ()


@pytest.mark.parametrize(
    ("configuration", "loads", "never"),
    [
        ("Qwen2_5_VLConfig", "AutoModelForImageTextToText", "AutoModelForCausalLM"),
        ("LlamaConfig", "AutoModelForCausalLM", "AutoModelForSeq2SeqLM"),
        ("T5Config", "AutoModelForSeq2SeqLM", "AutoModelForCausalLM"),
        ("WhisperConfig", "AutoModelForSpeechSeq2Seq", "AutoModelForSeq2SeqLM"),
    ],
)
def test_the_shipped_file_knows_what_people_mistake(configuration: str, loads: str, never: str) -> None:
    text = source_texts("compat/auto_classes", ".txt", "transformers")["transformers.txt"]
    found = {has.owner for has in classes_that_load(text, configuration)}
    assert loads in found
    assert never not in found
