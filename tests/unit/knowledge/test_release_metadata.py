"""The shipped table of published releases: facts that anyone can look up, from the checkout and compiled."""

import json
from time import thread_time

import pytest

from envcheck.commands.atlas_tables import release_table
from envcheck.host.package_files import source_texts
from envcheck.knowledge.release_metadata import ReleaseTable, freeze_releases

PACKAGED_BYTES, TEXT_BYTES = 250_000, 600_000


@pytest.mark.parametrize(
    ("package", "version", "requirement"),
    [
        ("transformers", "4.44.0", "tokenizers<0.20,>=0.19"),
        ("torch", "2.6.0", 'triton==3.2.0; platform_system == "Linux" and platform_machine == "x86_64"'),
        ("vllm", "0.6.0", "torch==2.4.0"),
        ("deepspeed", "0.14.0", "packaging>=20.0"),
        ("peft", "0.14.0", "accelerate>=0.21.0"),
    ],
)
def test_a_release_requires_what_its_metadata_says(package: str, version: str, requirement: str) -> None:
    row = release_table().row(package, version)
    assert row is not None
    assert requirement in row.requires


@pytest.mark.parametrize(
    ("package", "version", "key", "values"),
    [
        ("torchvision", "0.21.0", "torch", ("==2.6.0",)),
        ("xformers", "0.0.28", "torch", ("==2.4.1",)),
        ("xformers", "0.0.28", "cuda", ("12.1",)),
        ("torch", "2.6.0", "cuda", ("12.4",)),
        ("vllm", "0.6.0", "wheel", ("x86_64 glibc>=2.5 python abi3>=3.8",)),
    ],
)
def test_a_release_was_built_for_what_its_files_say(
    package: str, version: str, key: str, values: tuple[str, ...]
) -> None:
    row = release_table().row(package, version)
    assert row is not None
    assert row.build[key] == values


def test_withdrawn_releases_are_marked() -> None:
    row = release_table().row("transformers", "4.46.0")
    assert row is not None
    assert row.yanked


def test_the_table_is_small_and_loads_at_once() -> None:
    texts = source_texts("compat/atlas/releases", ".txt")
    assert sum(len(text) for text in texts.values()) < TEXT_BYTES
    packaged = json.dumps(freeze_releases(texts), separators=(",", ":"))
    assert len(packaged) < PACKAGED_BYTES
    began = thread_time()
    ReleaseTable(json.loads(packaged)).row("torch", "2.6.0")
    assert thread_time() - began < 0.05  # seconds of this thread; 1 ms on a quiet machine
