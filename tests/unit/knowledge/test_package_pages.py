"""`matrix show`: what is known of a package and of one release, from a tiny world and from the shipped one."""

from __future__ import annotations

import pytest

from envcheck.core.errors import InputError
from envcheck.knowledge.package_pages import matrix_page
from tests.support.running import envcheck
from tests.support.worlds import known, rule

TABLES = """
release = [
  { package = "peft", version = "0.14.0", date = 2024-12-06, requires_python = ">=3.9", requires = { torch = ">=1.13" } },
  { package = "peft", version = "0.15.0", date = 2025-03-19, yanked = true },
]
[[torch]]
version = "2.6.0"
date = 2025-01-29
cuda = "12.4"
architectures = ["sm_80", "sm_90"]
python = ["3.11", "3.12"]
torchvision = "0.21.0"
triton = "3.2.0"
cudnn = "9.1.0.70"
nccl = "2.21.5"
glibc = "2.17"
cxx11_abi = false
[[variant]]
torch = "2.6.0"
cuda = "11.8"
architectures = ["sm_50"]
[[family]]
major = 12
minimum_driver = "525.60.13"
"""

HEAD = """
updated = 2026-11-21
[known_through]
peft = "0.15.0"
[target.t]
title = "t"
packages = ["peft"]
train = {}
[[cell]]
target = "t"
outcome = "fails"
rule = "a-rule"
pkg = { peft = "0.14.0" }
train = { use_reentrant = false }
device = "cpu"
date = 2026-11-20
test = "step"
"""

RULES = rule('{ "pkg.peft" = "<0.15.0", "train.dora" = true }') + rule(
    '[{ "pkg.peft" = ">=0.15.0", "pkg.torch" = "<2.5" }, { "pkg.peft" = ">=0.16.0", "pkg.torch" = "<2.6" }]',
    "b-rule",
)


def page(wanted: str | None) -> str:
    return matrix_page(wanted, known(RULES, TABLES, HEAD))


def test_the_overview_counts_rules_cells_and_packages() -> None:
    text = page(None)
    assert "2 known failures" in text
    assert "1 measured combination: 0 trained, 1 failed" in text
    assert "peft               0.14.0 to 0.15.0 (2)" in text


def test_a_package_has_its_releases_its_rules_with_bounds_and_its_cells() -> None:
    text = page("peft")
    assert text.startswith("peft: known through 0.15.0\n")
    assert "2025-03-19  0.15.0         yanked" in text
    assert "if peft <0.15.0, train.dora true" in text
    assert "or peft >=0.16.0, torch <2.6" in text
    assert "2026-11-20 cpu fails t: peft 0.14.0, use_reentrant false  [a-rule]" in text


def test_a_release_marks_the_rules_whose_package_clause_matches() -> None:
    text = page("peft==0.14.0")
    assert "1 of 2 known failures that name peft concern this release" in text
    assert "  yes a-rule" in text
    assert "not concerned: b-rule" in text
    assert "python    >=3.9\n" in text
    assert "requires  torch>=1.13\n" in text


def test_only_the_when_tables_that_concern_a_release_are_shown() -> None:
    text = page("peft==0.15.0")
    assert "if peft >=0.15.0, torch <2.5" in text
    assert "peft >=0.16.0" not in text
    assert "yanked: never proposed" in text


def test_a_pre_release_of_a_bound_may_be_concerned() -> None:
    assert "  may b-rule" in page("peft==0.15.0rc1")


def test_releases_that_satisfy_require_are_not_concerned() -> None:
    of = known(
        rule('{ "pkg.torch" = "present" }', more='require = { "pkg.peft" = ">=0.15.0" }\n'), TABLES, HEAD
    )
    assert "not concerned: a-rule" in matrix_page("peft==0.15.0", of)
    assert "yes a-rule" in matrix_page("peft==0.14.0", of)


def test_torch_shows_what_it_was_built_for() -> None:
    text = page("torch==2.6.0+cu124")
    assert "CUDA      12.4, driver 525.60.13 or newer\n" in text
    assert "code for  sm_80 sm_90\n" in text
    assert "with      torchvision 0.21.0, triton 3.2.0\n" in text
    assert "also for  CUDA 11.8: sm_50\n" in text
    assert "wheels    Python 3.11, 3.12\n" in text


def test_a_release_after_known_through_is_marked() -> None:
    assert "newer than 0.15.0, the last one looked at" in page("peft==0.99.0")


@pytest.mark.parametrize(
    ("wanted", "message"), [("pefft", "did you mean 'peft'"), ("peft==x y", "with a version; found")]
)
def test_an_unknown_package_or_version_is_refused(wanted: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        page(wanted)


def test_two_packages_are_shown_with_what_their_code_asks() -> None:
    ran = envcheck("matrix", "show", "peft", "transformers")
    assert "code read 20" in ran.out
    assert "`import peft` needs transformers.modeling_layers.GradientCheckpointingLayer" in ran.out
    assert envcheck("matrix", "show", "llamafactory", "trl").code == 0  # known from their releases alone


def test_the_shipped_matrix_can_be_shown() -> None:
    ran = envcheck("matrix", "show", "Flash_Attn")
    assert ran.code == 0
    assert ran.out.startswith("flash-attn: known through")
