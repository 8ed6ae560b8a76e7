"""Facts files: the short form that people write, the full form that `envcheck facts` prints, all mistakes."""

from __future__ import annotations

import json
import tomllib

import pytest

from envcheck.core import facts_file
from envcheck.core.errors import InputError
from envcheck.core.facts import Absent, Fact, Inventory, Known, Unknown
from tests.support.worlds import vocabulary

FULL = Inventory(
    facts={
        fact.key: fact
        for fact in (
            Fact("python.version", Known("3.11.9"), "the interpreter"),
            Fact("pkg.torch", Known("2.6.0+cu124"), "lib/torch-2.6.0.dist-info"),
            Fact("pkg.torch.requires", Known(("triton==3.2.0", "sympy")), "lib/torch-2.6.0.dist-info"),
            Fact("pkg.peft", Known("0.14.0"), "lib/peft-0.14.0.dist-info"),
            Fact("driver.version", Unknown("NVML did not answer"), "NVML"),
            Fact("cuda.driver", Absent(), "NVML"),
            Fact("train.zero_stage", Known(3), "ds.json"),
            Fact("train.dora", Known(value=False), "--train"),
        )
    },
    devices=(
        {"gpu.name": Fact("gpu.name", Known("Tesla T4"), "NVML")},
        {
            "gpu.name": Fact("gpu.name", Known("NVIDIA A100-SXM4-80GB"), "NVML"),
            "gpu.memory_mib": Fact("gpu.memory_mib", Unknown("not supported"), "NVML"),
        },
    ),
    complete=frozenset({"pkg"}),
    unread={"host": "no /proc"},
)


def load(text: str) -> Inventory:
    return facts_file.load(tomllib.loads(text), "facts.toml", vocabulary())


def test_a_dumped_inventory_loads_unchanged() -> None:
    tree = json.loads(json.dumps(facts_file.dump(FULL)))
    again = facts_file.load(tree, "facts.json", vocabulary())
    counted = again.facts["gpus.count"]
    assert counted.value == 2
    assert {**again.facts} == {**FULL.facts, "gpus.count": counted}
    assert again.devices == FULL.devices
    assert (again.complete, dict(again.unread)) == (FULL.complete, dict(FULL.unread))


def test_a_package_may_be_written_as_its_version_alone() -> None:
    short, long = load('[pkg]\ntorch = "2.4.0+cu121"'), load('[pkg]\ntorch = { version = "2.4.0+cu121" }')
    assert short.known("pkg.torch") == long.known("pkg.torch") == "2.4.0+cu121"


def test_a_misspelt_complete_family_is_refused() -> None:
    with pytest.raises(InputError, match=r"complete: expected families .*pkg.*, found 'pkgs'"):
        load('complete = ["pkgs"]\n[pkg]\ntorch = "2.4.0"')


def test_any_distribution_name_is_accepted() -> None:
    assert load('[pkg]\nflash-attn = "2.8.3"').known("pkg.flash-attn") == "2.8.3"


def test_a_missing_key_of_a_complete_family_is_absent() -> None:
    listed = load('complete = ["pkg"]\n[pkg]\ntorch = "2.4.0"')
    assert listed.fact("pkg.peft").reading == Absent()
    assert isinstance(load('[pkg]\ntorch = "2.4.0"').fact("pkg.peft").reading, Unknown)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[driverr]\nversion = "550"', "driverr.version: no such fact; did you mean 'driver.version'?"),
        ('[driver]\nverison = "550"', "driver.verison: no such fact; did you mean 'driver.version'?"),
        ("[train]\nzero_stagee = 3", "train.zero_stagee: no such fact; did you mean 'train.zero_stage'?"),
        ('[train]\nzero_stage = "3"', "train.zero_stage: expected a whole number, found '3'"),
        ("[train]\nzero_stage = true", "train.zero_stage: expected a whole number, found True"),
        ('[train]\ndora = "yes"', "train.dora: expected true or false, found 'yes'"),
        ('[train]\nadapter = "lorra"', "train.adapter: expected one of none, lora,"),
        ("[pkg]\ntorch = 2.4", "pkg.torch: expected a version in quotes, found 2.4"),
        ('[[gpu]]\nnmae = "T4"', "gpu[0]: gpu.nmae: no such fact; did you mean 'gpu.name'?"),
        ('gpu = "T4"', "gpu: expected [[gpu]] tables, one for each device"),
        ('complete = "pkg"', "complete: expected a list of names, found 'pkg'"),
        ('[unknown]\n"driver.verion" = "x"', "driver.verion: no such fact; did you mean 'driver.version'?"),
        (
            '[unknown]\n"gpu[3].name" = "x"',
            "gpu[3].name: expected the number of a [[gpu]] table, from 0; found 0 such tables",
        ),
        ('python = "3.11"', "python: no such fact"),
    ],
)
def test_a_mistake_is_reported_with_its_place(text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        load(text)
    assert str(caught.value).startswith("facts.toml: ")
    assert message in str(caught.value)
