"""A name that a log misses is looked up in the code of all published releases."""

import pytest

from envcheck.core.rules import Atlas
from envcheck.knowledge.atlas import read_atlas
from envcheck.logs.missing_names import MissingName, ranges_in_atlas

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
