"""Names of nodes to and from Slurm's host list notation; each direction is the inverse of the other."""

from __future__ import annotations

import pytest

from envcheck.fleet import hostlist


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        ([f"gpu{n:03d}" for n in range(1, 129)] + ["gpu131"], "gpu[001-128,131]"),
        (["gpu003", "gpu017"], "gpu[003,017]"),
        (["n9", "n10", "n11"], "n[9-11]"),
        (["n099", "n100", "n101"], "n[099-101]"),
        (["n999", "n1000"], "n[999-1000]"),
        (["n001", "n1"], "n[1,001]"),
        (["a1", "b1"], "a1,b1"),
        (["login"], "login"),
        (["gpu1.c7.example", "gpu2.c7.example"], "gpu[1-2].c7.example"),
        (["rack2-n1", "rack2-n2"], "rack2-n[1-2]"),
        (["i-0123456789012345", "i-0123456789012346"], "i-0123456789012345,i-0123456789012346"),
        (["x[1]", "a,b", "c d"], r"a\x2cb,c\x20d,x\x5b1\x5d"),
        (["e\x1b[31m1", "e\x1b[31m2"], r"e\x1b\x5b31m[1-2]"),
        ([], ""),
    ],
)
def test_fold_writes_ranges_as_slurm_does(names: list[str], folded: str) -> None:
    assert hostlist.fold(names) == folded


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("gpu[001-003,7]", ["gpu001", "gpu002", "gpu003", "gpu7"]),
        ("rack[1-2]n[01-02]", ["rack1n01", "rack1n02", "rack2n01", "rack2n02"]),
        ("a[8-11]b,login", ["a8b", "a9b", "a10b", "a11b", "login"]),
    ],
)
def test_unfold_reads_slurms_notation(text: str, names: list[str]) -> None:
    assert hostlist.unfold(text) == names


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("n[0-999999999]", "more than"),
        ("n[0-999][0-9999]", "more than"),
        ("n[1-", "without its end"),
        ("n1]", "too many"),
        ("n[[1]]", "too many"),
        ("n[5-1]", "counts down"),
        ("n[a-b]", "expected a number"),
        ("n[]", "expected a number"),
        (r"n\q", "backslash"),
    ],
)
def test_an_invalid_or_excessive_host_list_is_refused(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        hostlist.unfold(text)
