"""What labels of compiled packages say, and which CUDA toolkits DeepSpeed accepts."""

from __future__ import annotations

from functools import lru_cache

import pytest

from envcheck.commands import loading
from envcheck.core.facts import Absent, Known, Reading, Unknown
from envcheck.core.rules import Matrix
from envcheck.knowledge.load import build_matrix
from envcheck.rules.derived_builds import BuildLabel, read_label
from tests.support.worlds import inventory, vocabulary

FALSE, TRUE = "2.7.4.post1+cu12torch2.6cxx11abiFALSE", "2.7.4.post1+cu12torch2.6cxx11abiTRUE"


ABI_FALSE, ABI_TRUE = (Known((f"flash-attn {version}",)) for version in (FALSE, TRUE))


@lru_cache(maxsize=1)
def shipped() -> Matrix:
    return build_matrix(loading.source_tree(), vocabulary())


def reading(facts: str, key: str) -> Reading:
    return inventory(facts, shipped()).fact(key).reading


@pytest.mark.parametrize(
    ("label", "said"),
    [
        ("cu12torch2.6cxx11abifalse", BuildLabel("2.6", "12", new_abi=False)),
        ("cu122torch2.3cxx11abitrue", BuildLabel("2.3", "12", new_abi=True)),
        ("cu118torch2.0.1cxx11abifalse", BuildLabel("2.0", "11", new_abi=False)),
        ("torch2.10", BuildLabel("2.10", "", None)),
        ("pt26cu124", BuildLabel("2.6", "12", None)),
        ("torch260cu126", BuildLabel("2.6", "12", None)),
        ("torch2100cu128", BuildLabel("2.10", "12", None)),
        ("torch230cpu", BuildLabel("2.3", "", None)),
        ("pt210cu128", BuildLabel("2.10", "12", None)),
        ("pt113cu117", BuildLabel("1.13", "11", None)),
        ("cu124", None),
        ("cpu", None),
        ("git1a2b3c4", None),
        ("rocm6.3torch2.6cxx11abitrue", None),
    ],
)
def test_labels_that_name_a_torch_and_labels_that_do_not(label: str, said: BuildLabel | None) -> None:
    assert read_label(label) == said


@pytest.mark.parametrize(
    ("torch", "flash", "others"),
    [
        ("2.6.0+cu124", FALSE, Absent()),
        ("2.6.0+cu124", TRUE, ABI_TRUE),
        ("2.6.0+cu126", FALSE, ABI_FALSE),
        ("2.6.0+cu126", TRUE, Absent()),
        ("2.5.1", TRUE, ABI_TRUE),
        ("2.8.0", FALSE, ABI_FALSE),
        (
            "2.6.0a0+ecf3bae40a.nv25.01",
            TRUE,
            Absent(),
        ),  # vendors build with the new ABI; nothing is concluded
        ("2.6.0+git1a2b3c4", TRUE, Absent()),
        ("2.6.0+cpu", FALSE, ABI_FALSE),
    ],
)
def test_cuda_major_and_abi_of_a_label_are_compared_with_the_wheel_of_torch(
    torch: str, flash: str, others: Reading
) -> None:
    facts = f'[pkg]\ntorch = "{torch}"\nflash-attn = "{flash}"\n'
    assert reading(facts, "torch.packages_of_another_build") == others


@pytest.mark.parametrize(
    ("torch", "others"),
    [
        ("2.6.0", Absent()),
        ("2.6.1", Absent()),
        ("2.5.1", ABI_FALSE),
        ("2.60.0", ABI_FALSE),
    ],
)
def test_the_minor_version_of_torch_decides(torch: str, others: Reading) -> None:
    assert (
        reading(f'[pkg]\ntorch = "{torch}"\nflash-attn = "{FALSE}"\n', "torch.packages_of_another_release")
        == others
    )


def test_where_the_library_was_looked_up_its_label_decides_nothing() -> None:
    facts = f'[pkg]\ntorch = "2.5.1"\nflash-attn = "{FALSE}"\n'
    read = facts + '"flash-attn.unresolved" = []\n'
    assert reading(facts, "torch.packages_of_another_release") == ABI_FALSE
    assert isinstance(reading(read, "torch.packages_of_another_release"), Unknown)


def test_without_torch_or_without_a_label_nothing_is_derived() -> None:
    assert isinstance(
        reading(f'[pkg]\nflash-attn = "{FALSE}"\n', "torch.packages_of_another_release"), Unknown
    )
    plain = '[pkg]\ntorch = "2.5.1"\nflash-attn = "2.7.4.post1"\n'
    assert isinstance(reading(plain, "torch.packages_of_another_release"), Unknown)


@pytest.mark.parametrize(
    ("deepspeed", "torch", "toolkit", "accepted"),
    [
        ("0.16.6", "2.6.0+cu124", "12.4", True),
        ("0.16.6", "2.6.0+cu124", "12.8", True),
        ("0.16.3", "2.6.0+cu124", "12.8", False),
        ("0.17.1", "2.6.0+cu124", "12.9", False),
        ("0.17.2", "2.6.0+cu124", "12.9", True),
        ("0.19.8", "2.13.0", "13.1", False),
        ("0.19.8", "2.13.0", "13.0", True),
        ("0.9.2", "2.0.1+cu118", "11.7", True),
        ("0.9.2", "2.0.1+cu118", "12.1", False),
        ("0.6.0", "1.12.1", "10.1", True),
    ],
)
def test_the_list_of_the_release_decides_which_toolkits_are_accepted(
    deepspeed: str, torch: str, toolkit: str, accepted: bool
) -> None:
    facts = f'[pkg]\ntorch = "{torch}"\ndeepspeed = "{deepspeed}"\n[cuda]\ntoolkit = "{toolkit}"\n'
    assert reading(facts, "build.deepspeed.toolkit") == Known(accepted)


OPS = 'pkg.torch = "{}"\nbuild.deepspeed.torch = "2.6"\nbuild.deepspeed.cuda = "{}"\n'


@pytest.mark.parametrize(
    ("torch", "cuda", "fits"),
    [
        ("2.6.0+cu124", "12.4", True),
        ("2.6.1+cu124", "12.4", True),
        ("2.7.0+cu126", "12.6", False),
        ("2.6.0+cu126", "12.4", False),
        ("2.6.0+cpu", "12.4", True),  # the ops on the CPU are compared by torch alone
    ],
)
def test_compiled_ops_fit_the_minor_versions_of_torch_and_cuda(torch: str, cuda: str, fits: bool) -> None:
    compiled = OPS.format(torch, cuda) + 'build.deepspeed.ops = ["cpu_adam"]\n'
    assert reading(compiled, "build.deepspeed.fits") == Known(fits)
    assert isinstance(reading(OPS.format(torch, cuda), "build.deepspeed.fits"), Unknown)


def test_a_deepspeed_older_than_the_list_concludes_nothing() -> None:
    facts = '[pkg]\ntorch = "1.8.1"\ndeepspeed = "0.4.0"\n[cuda]\ntoolkit = "11.1"\n'
    assert isinstance(reading(facts, "build.deepspeed.toolkit"), Unknown)


@pytest.mark.parametrize(("facts", "described"), [("", False), ("[train]\nzero_stage = 2\n", True)])
def test_whether_a_training_was_described(facts: str, described: bool) -> None:
    assert reading(f'[pkg]\ntorch = "2.6.0"\n{facts}', "training.described") == Known(described)
