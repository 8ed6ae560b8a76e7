"""Which releases have a name: the text of a package's file, and what is read from it."""

import pytest

from envcheck.host.package_files import text_of
from envcheck.knowledge.names import (
    InReleases,
    ModuleNames,
    NameRow,
    is_offered_in_some_cases,
    modules_that_define,
    modules_with,
    names_by_spans,
    names_text,
    presence,
)

ALL = (("0.1.0", "0.21.2"),)
SINCE_14 = (("0.14.0", "0.21.2"),)
MODULES = [
    ModuleNames(
        "peft",
        ALL,
        names_by_spans(
            {
                "BoneConfig": (("0.14.0", "0.18.1"),),
                "LoHaConfig": (("0.6.0", "0.21.2"),),
                "LoraConfig": ALL,
                "TaskType": ALL,
                "maybe": None,
                "old_name": (("0.1.0", "0.9.0"), ("0.11.0", "0.11.0")),
            }
        ),
    ),
    ModuleNames("peft.helpers", SINCE_14, names_by_spans({"rescale": SINCE_14}), is_open=True),
    ModuleNames("peft.kernels", None),
    ModuleNames("peft.tuners", ALL),
    ModuleNames(
        "peft.tuners.bone",
        (("0.14.0", "0.18.1"),),
        names_by_spans({"BoneLayer": (("0.14.0", "0.18.1"),), "BoneLinear": (("0.15.0", "0.18.1"),)}),
    ),
    ModuleNames("peft.utils", ALL, names_by_spans({"BoneConfig": SINCE_14})),
]
TEXT = names_text("peft", MODULES, ["0.1.0", "0.9.0", "0.21.2"], {"Any", "torch"})
DIFFERENCES = names_text("peft", MODULES, ["0.1.0", "0.9.0", "0.21.2"])


@pytest.mark.parametrize(
    ("module", "name", "answer", "words"),
    [
        ("peft", "LoHaConfig", InReleases.SOME, "from 0.6.0 on"),
        ("peft", "BoneConfig", InReleases.SOME, "0.14.0 to 0.18.1"),
        ("peft", "old_name", InReleases.SOME, "up to 0.9.0, 0.11.0"),
        ("peft", "LoraConfig", InReleases.EVERY, "0.1.0 to 0.21.2"),
        ("peft", "Bone", InReleases.NONE, ""),
        ("peft", "maybe", InReleases.UNKNOWN, ""),
        ("peft", "_private", InReleases.UNKNOWN, ""),
        ("peft", "Any", InReleases.UNKNOWN, ""),  # some module imports it from elsewhere
        ("peft.tuners", "bone", InReleases.SOME, "0.14.0 to 0.18.1"),  # a module below it
        ("peft.tuners", "tests", InReleases.UNKNOWN, ""),  # modules of this name are not listed
        ("peft.tuners.bone", "", InReleases.SOME, "0.14.0 to 0.18.1"),
        ("peft.tuners.bone", "BoneLayer", InReleases.EVERY, "0.14.0 to 0.18.1"),  # of those with the module
        ("peft.tuners.bone", "BoneLinear", InReleases.SOME, "0.15.0 to 0.18.1"),
        ("peft.tuners.lora", "", InReleases.NONE, ""),
        ("peft.tuners.lora.model", "", InReleases.NONE, ""),
        ("peft.helpers", "rescale", InReleases.EVERY, "from 0.14.0 on"),
        ("peft.helpers", "other", InReleases.UNKNOWN, ""),  # it may have more names than are listed
        ("peft.helpers.other", "", InReleases.UNKNOWN, ""),
        ("peft.kernels", "", InReleases.UNKNOWN, ""),
        ("peft.kernels", "run", InReleases.UNKNOWN, ""),
        ("other", "", InReleases.UNKNOWN, ""),
    ],
)
def test_the_releases_that_have_a_name_are_found(
    module: str, name: str, answer: InReleases, words: str
) -> None:
    found = presence(TEXT, module, name)

    assert (found.answer, found.words) == (answer, words)


@pytest.mark.parametrize(("module", "name"), [("peft", "Bone"), ("peft.tuners.lora", "")])
def test_a_file_of_differences_does_not_say_what_no_release_has(module: str, name: str) -> None:
    assert presence(TEXT, module, name).answer is InReleases.NONE
    assert presence(DIFFERENCES, module, name).answer is InReleases.UNKNOWN


def test_a_module_of_a_thousand_parts_is_looked_up_too() -> None:
    assert presence(TEXT, "peft" + ".absent" * 1200).answer is not InReleases.EVERY


def test_an_attribute_that_is_a_module_has_to_be_imported() -> None:
    assert presence(TEXT, "peft.tuners", "bone").is_module
    assert not presence(TEXT, "peft.tuners.bone", "BoneLinear").is_module


def test_a_release_is_in_the_spans_of_a_name() -> None:
    found = presence(TEXT, "peft", "BoneConfig")

    assert found.includes("0.15.2")
    assert not found.includes("0.19.0")


def test_all_modules_that_have_a_name_are_found() -> None:
    assert [*modules_with(TEXT, "BoneConfig")] == [
        ("peft", (("0.14.0", "0.18.1"),)),
        ("peft.utils", SINCE_14),
    ]


def test_what_every_release_has_is_not_new() -> None:
    assert [*modules_that_define(TEXT, "LoHaConfig")] == [("peft.LoHaConfig", "from 0.6.0 on")]
    assert [*modules_that_define(TEXT, "LoraConfig")] == []


def test_names_that_the_same_releases_have_share_a_line() -> None:
    rows = names_by_spans(dict.fromkeys(("b", "a", "c"), (("0.9", "0.12"),)))

    assert rows == (NameRow((("0.9", "0.12"),), ("a", "b", "c")),)
    assert "[trl]\n0.9..0.12 a b c\n" in names_text(
        "trl", [ModuleNames("trl", (("0.1", "1.0"),), rows)], ["0.1", "1.0"]
    )


def test_a_span_that_reaches_the_newest_release_has_no_end() -> None:
    assert "\n[peft.helpers] 0.14.0.. ?\n= rescale\n" in TEXT
    assert "\n[peft.kernels] ~\n" in TEXT
    assert "\n[peft.tuners]\n" in TEXT


def test_a_name_that_no_release_offers_is_not_written() -> None:
    text = names_text(
        "peft",
        [ModuleNames("peft", ALL, names_by_spans({"LoraConfig": ALL, "ACT2FN": ()}))],
        ["0.1.0", "0.21.2"],
        [],
    )

    assert "ACT2FN" not in text


def test_a_name_that_a_module_takes_from_one_below_it_may_be_offered_in_some_cases_only() -> None:
    below = ModuleNames("trl.models.sd", ALL, names_by_spans({"Pipeline": ALL}))
    module = ModuleNames("trl.models", ALL, names_by_spans({"Pipeline": None, "Other": None, "wrap": ALL}))
    text = names_text("trl", [below, module], ["0.1.0", "0.21.2"], [])

    offered = [
        name for name in ("Pipeline", "Other", "wrap") if is_offered_in_some_cases(text, "trl.models", name)
    ]
    assert offered == ["Pipeline"]


@pytest.mark.parametrize(
    ("module", "name", "first"),
    [
        ("asyncio", "timeout", "3.11"),
        ("asyncio", "TaskGroup", "3.11"),  # 3.11 does not list it in `__all__`
        ("asyncio", "eager_task_factory", "3.12"),
    ],
)
def test_since_when_python_has_a_name(module: str, name: str, first: str) -> None:
    assert presence(text_of("names", "python"), module, name).spans[0][0] == first
