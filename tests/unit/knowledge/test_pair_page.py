"""`matrix show A B`: the table of two packages' releases, and the list of what does not fit."""

import pytest

from envcheck.commands import loading
from envcheck.core.errors import InputError
from envcheck.core.rules import Cell, Matrix
from envcheck.core.tables import Tables
from envcheck.knowledge.atlas import read_atlas
from envcheck.knowledge.pair_page import Pair, pair_page

GAPS = """
read = 2026-11-22
["import alpha"]
beta = [["name", "beta.layers", "2.0.0", "1.1.0..1.2.0", "alpha/model.py:3"]]
["from alpha import Rare"]
beta = [["name", "beta.rare", "2.1.0", "1.2.0", "alpha/rare.py:8"]]
"""
PACKAGES = """
[package.alpha]
optional = ["from alpha import Rare"]
"""
RELEASES = {"alpha": ("1.9.0", "2.0.0", "2.1.0"), "beta": ("1.1.0", "1.2.0", "1.3.0")}


@pytest.fixture
def known() -> Matrix:
    atlas = read_atlas({"packages.toml": PACKAGES, "gaps/alpha.toml": GAPS}, RELEASES)
    row = {"package": "alpha", "version": "1.9.0", "requires": {"beta": "<1.3"}}
    trained = Cell("zero3-lora", "ok", {"alpha": "2.0.0", "beta": "1.2.0"}, "cpu", "2026-11-01", "2")
    matrix = loading.knowledge()
    return matrix._replace(
        rules=(), cells=(trained,), tables=Tables({"torch": [], "release": [row]}), atlas=lambda: atlas
    )


@pytest.mark.parametrize(
    ("alpha", "beta", "sign"),
    [
        ("2.0.0", "1.1.0", "x"),  # the code asks for what is not there
        ("2.0.0", "1.2.0", "+"),  # it trained all the same: a run outweighs what was read
        ("2.0.0", "1.3.0", "."),
        ("2.1.0", "1.2.0", "!"),  # only at an entry that few users reach
        ("1.9.0", "1.3.0", "r"),  # the metadata forbids it
        ("1.9.0", "1.2.0", "."),
    ],
)
def test_each_two_releases_have_the_sign_of_what_is_known(
    known: Matrix, alpha: str, beta: str, sign: str
) -> None:
    assert Pair(known, "alpha", "beta").sign(alpha, beta) == sign
    assert Pair(known, "beta", "alpha").sign(beta, alpha) == sign


def test_a_symbol_is_spelled_as_in_source_code(known: Matrix) -> None:
    symbols = GAPS.replace('"name", "beta.layers"', '"symbol", "_ZN3c104cuda9SetDeviceEa"')
    atlas = read_atlas({"packages.toml": PACKAGES, "gaps/alpha.toml": symbols}, RELEASES)

    page = pair_page("alpha", "beta", known._replace(atlas=lambda: atlas))

    assert "`import alpha` needs the symbol c10::cuda::SetDevice in this form  (alpha/model.py:3" in page


def test_the_page_gives_the_table_and_every_proof(known: Matrix) -> None:
    page = pair_page("alpha", "beta", known)

    assert page.splitlines() == [
        "alpha (3 releases) x beta (3 releases), code read 2026-11-22",
        "",
        "       beta",
        "        1  1  1",
        "alpha   1  2  3",
        "2.1.0   .  !  .",
        "2.0.0   x  +  .",
        "1.9.0   .  .  r",
        "+ trained   x fails   ! fails in part   r only the metadata forbids it   . no known problem",
        "",
        "x alpha 2.0.0 with beta 1.1.0..1.2.0",
        "    `import alpha` needs beta.layers  (alpha/model.py:3 in 2.0.0)",
        "! alpha 2.1.0 with beta 1.2.0",
        "    `from alpha import Rare` needs beta.rare  (alpha/rare.py:8 in 2.1.0)",
        "r alpha 1.9.0 with beta 1.3.0",
        "    alpha requires beta<1.3",
    ]


def test_a_written_rule_on_two_packages_marks_its_releases() -> None:
    pair = Pair(
        loading.knowledge()._replace(tables=Tables(loading.source_tree()["tables"])), "peft", "transformers"
    )

    assert pair.sign("0.17.1", "5.0.0") == "x"
    assert pair.sign("0.18.1", "5.0.0") != "x"


def test_an_unknown_package_names_the_nearest(known: Matrix) -> None:
    with pytest.raises(InputError, match="no release of 'alpah' is known; did you mean 'alpha'"):
        pair_page("alpah", "beta", known)
