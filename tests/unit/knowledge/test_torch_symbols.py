"""Which releases of torch define a symbol: the form of the file, and what is looked up in it."""

from __future__ import annotations

import pytest

from envcheck.host.package_files import source_texts
from envcheck.knowledge.torch_symbols import releases_that_define, symbols_text

EI, EA, EVERYWHERE = "_ZN3c104cuda9SetDeviceEi", "_ZN3c104cuda9SetDeviceEa", "_ZN3c105ErrorC2Ev"
TEXT = symbols_text(
    {
        "2.1.0": [EVERYWHERE, EI],
        "2.2.0": [EVERYWHERE, EI],
        "2.3.0": [EVERYWHERE, EA],
        "2.10.0": [EVERYWHERE, EA, "aoti_torch_new"],
    }
)


def test_symbols_stand_below_the_releases_that_define_them() -> None:
    assert TEXT.splitlines()[2:] == [
        "# read: 2.1.0 to 2.10.0",
        *("2.1.0..2.2.0", EI),
        *("2.3.0..", EA),
        *("2.10.0..", "aoti_torch_new"),
    ]


@pytest.mark.parametrize(
    ("symbol", "releases"),
    [(EI, "up to 2.2.0"), (EA, "from 2.3.0 on"), ("aoti_torch_new", "from 2.10.0 on")],
)
def test_the_releases_that_define_a_symbol(symbol: str, releases: str) -> None:
    found = releases_that_define(TEXT, symbol)
    assert found is not None
    assert found.releases == releases


@pytest.mark.parametrize("symbol", ["", EVERYWHERE, "_ZN3c104cuda9SetDeviceE", "2.3.0.."])
def test_of_any_other_symbol_nothing_is_said(symbol: str) -> None:
    assert releases_that_define(TEXT, symbol) is None


@pytest.mark.parametrize(
    ("symbol", "releases"),
    [
        (EI, "2.1.0 to 2.2.2"),
        (EA, "2.3.0 to 2.7.1"),
        ("_ZN3c104cuda9SetDeviceEab", "from 2.8.0 on"),
        ("_ZNK3c106SymInt6sym_neERKS0_", "up to 2.8.0"),
        ("torch_from_blob", "from 2.11.0 on"),
    ],
)
def test_the_shipped_file_agrees_with_failures_that_people_report(symbol: str, releases: str) -> None:
    found = releases_that_define(source_texts("compat/symbols", ".txt", "torch")["torch.txt"], symbol)
    assert found is not None
    assert found.releases == releases
