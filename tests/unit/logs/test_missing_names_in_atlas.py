"""A name that a log misses is looked up in the code of all published releases."""

import pytest

from envcheck.core.rules import Atlas
from envcheck.knowledge.atlas import read_atlas
from envcheck.knowledge.names import presence
from envcheck.logs.events import Event, Raised
from envcheck.logs.missing_names import (
    MissingName,
    missing_name,
    ranges_in_atlas,
    ranges_in_names,
    ranges_with,
)

GAPS = """
read = 2026-11-22
["import accelerate"]
huggingface-hub = [
  ["name", "huggingface_hub.split_torch_state_dict", "0.32.0..0.33.0", "0.20.0", "accelerate/x.py:9"],
  ["name", "huggingface_hub.errors", "0.33.0", "0.20.0", "accelerate/y.py:1"],
]
["accelerate.Accelerator(...)"]
huggingface-hub = [["keyword", "huggingface_hub.hf_hub_download(tqdm=)", "0.33.0", "0.20.0", "accelerate/z.py:2"]]
"""
RELEASES = {
    "accelerate": ("0.31.0", "0.32.0", "0.33.0"),
    "huggingface-hub": ("0.20.0", "0.21.0", "0.22.0"),
}
SPLIT = (
    "huggingface_hub.split_torch_state_dict: in huggingface-hub from 0.21.0 on; "
    "asked for by accelerate from 0.32.0 on"
)

KEYWORD = (
    "huggingface_hub.hf_hub_download(tqdm=): in huggingface-hub from 0.21.0 on; "
    "asked for by accelerate 0.33.0"
)


@pytest.fixture
def atlas() -> Atlas:
    return read_atlas({"gaps/accelerate.toml": GAPS}, RELEASES)


def missing(kind: str, name: str, module: str, asks: str = "accelerate") -> MissingName:
    return MissingName(kind, name, module, "huggingface-hub", asks, installed=True)


@pytest.mark.parametrize(
    ("asks", "told"), [("peft", True), ("", True), ("liger-kernel", False), ("accelerate", False)]
)
def test_what_peft_asks_for_is_told_to_nobody_else(asks: str, told: bool) -> None:
    rows = [{"peft": ">=0.16,<0.18", "transformers": ">=4.44,<5.0", "missing": ["HybridCache"]}]
    words = list(ranges_with(missing("name", "HybridCache", "m", asks), {"peft_transformers": rows}))
    assert words == ["peft >=0.16,<0.18 asks for it, and transformers >=4.44,<5.0 has it"] * told


@pytest.mark.parametrize(
    ("sought", "found"),
    [
        (missing("name", "split_torch_state_dict", "huggingface_hub"), [SPLIT]),
        (missing("name", "split_torch_state_dict", "huggingface_hub", asks=""), [SPLIT]),
        (missing("name", "split_torch_state_dict", "huggingface_hub", asks="peft"), []),
        (missing("name", "snapshot_download", "huggingface_hub"), []),
        (
            missing("module", "huggingface_hub.errors", "huggingface_hub.errors"),
            [
                "huggingface_hub.errors: in huggingface-hub from 0.21.0 on; asked for by accelerate 0.33.0",
            ],
        ),
        (
            missing("argument", "tqdm", "hf_hub_download")._replace(lacks=""),
            [KEYWORD],
        ),
    ],
)
def test_the_releases_that_have_it_and_those_that_ask_are_named(
    atlas: Atlas, sought: MissingName, found: list[str]
) -> None:
    assert list(ranges_in_atlas(sought, atlas)) == found


NAMES = """# read: 0.20.0 to 0.40.1
[huggingface_hub]
0.20.0..0.25.2 cached_download
= HfApi
[huggingface_hub.errors] 0.25.0..
[huggingface_hub.inference] 0.24.0..
0.30.0.. AsyncClient
"""


@pytest.mark.parametrize(
    ("kind", "name", "module", "found"),
    [
        ("name", "cached_download", "huggingface_hub", ["huggingface_hub.cached_download: up to 0.25.2"]),
        ("name", "errors", "huggingface_hub", ["huggingface_hub.errors: from 0.25.0 on"]),
        (
            "name",
            "AsyncClient",
            "huggingface_hub.inference",
            ["huggingface_hub.inference.AsyncClient: from 0.30.0 on"],
        ),
        ("name", "HfApi", "huggingface_hub", []),  # every release has it
        # The modules above it were imported before, so in which releases they are says nothing.
        ("module", "x", "huggingface_hub.inference._client", []),
        ("name", "nothing_of_this_name", "huggingface_hub", []),
        ("argument", "tqdm", "huggingface_hub.hf_hub_download", []),
    ],
)
def test_a_name_that_no_package_asks_for_is_found_in_the_list_of_names(
    kind: str, name: str, module: str, found: list[str]
) -> None:
    where = presence(NAMES, module, "" if kind == "module" else name)
    said = [*ranges_in_names(missing(kind, name, module, asks=""), where)]

    assert [each.replace("in huggingface-hub ", "") for each in said] == found


def test_a_late_import_names_the_package_that_asks() -> None:
    text = "Failed to import diffusers.loaders.peft because of the following error (look up to see its traceback): "
    raised = Raised(
        "RuntimeError", f"{text}cannot import name 'HfFolder' from 'huggingface_hub' (x.py)", None
    )
    event = Event("stated", (1,), "", exceptions=(raised,))

    found = missing_name(event, {})

    assert found is not None
    assert (found.asks, found.lacks, found.name) == ("diffusers", "huggingface-hub", "HfFolder")


def test_releases_in_which_a_guard_may_skip_the_code_are_not_said_to_have_the_name() -> None:
    gaps = GAPS.replace('"0.32.0..0.33.0", "0.20.0"', '"0.32.0..0.33.0", "0.21.0"')
    guarded = read_atlas({"gaps/accelerate.toml": gaps}, RELEASES)

    found = list(ranges_in_atlas(missing("name", "split_torch_state_dict", "huggingface_hub"), guarded))

    assert found == [SPLIT.replace("in huggingface-hub from 0.21.0 on", "not in huggingface-hub 0.21.0")]


@pytest.mark.parametrize(
    ("shown", "told"), [((), True), (("accelerate", "torch"), True), (("transformers",), False)]
)
def test_an_argument_is_not_told_of_packages_that_the_log_does_not_show(
    shown: tuple[str, ...], told: bool, atlas: Atlas
) -> None:
    argument = missing("argument", "tqdm", "hf_hub_download", asks="")._replace(lacks="")
    name = missing("name", "split_torch_state_dict", "huggingface_hub", asks="")

    assert list(ranges_in_atlas(argument, atlas, frozenset(shown))) == [KEYWORD] * told
    assert list(ranges_in_atlas(name, atlas, frozenset(shown))) == [SPLIT]
