"""What pip's message says of a release that it did not find, and what waiting ranks say of one another."""

from __future__ import annotations

import pytest

from envcheck.logs.collectives import out_of_step, waiting_ranks
from envcheck.logs.pip_offers import Position, pip_offer
from tests.support.logs import Explain, answer

LABELS = {"2.9.0": {"cu126", "cu128", "cu130"}, "2.6.0": {"cu118", "cu124", "cu126"}}


def not_found(requirement: str, offered: str) -> str:
    return (
        f"ERROR: Could not find a version that satisfies the requirement {requirement} "
        f"(from versions: {offered})\nERROR: No matching distribution found for {requirement}\n"
    )


@pytest.mark.parametrize(
    ("requirement", "offered", "position"),
    [
        ("torch==2.5.1", "2.6.0+cu124", Position.OLDER),
        ("torch==2.9.0", "2.0.0, 2.0.1, 2.4.1", Position.NEWER),
        ("transformers==4.50.9", "4.49.0, 4.50.3, 4.51.0", Position.BETWEEN),
        ("torch==2.6", "2.5.1, 2.6.0, 2.7.0", Position.UNKNOWN),
        ("torch==2.10.0", "none", Position.UNKNOWN),
    ],
)
def test_the_list_of_offered_releases_says_on_which_side_the_missing_one_lies(
    requirement: str, offered: str, position: Position
) -> None:
    offer = pip_offer(not_found(requirement, offered), "", LABELS)

    assert offer is not None
    assert offer.position is position


@pytest.mark.parametrize("requirement", ["torch>=2.6", "git+https://host/x.git", "torch==2.*"])
def test_a_requirement_that_pins_no_release_is_not_compared(requirement: str) -> None:
    assert pip_offer(not_found(requirement, "2.5.1"), "", LABELS) is None


def test_an_index_without_builds_of_a_release_is_the_reason(explained: Explain) -> None:
    log = "Looking in indexes: https://download.pytorch.org/whl/{}\n" + not_found("torch==2.10.0", "none")

    never, other, both = (
        explained(log.format(index)) for index in ("cu131", "cu118", "cu118, https://mirror.example/simple")
    )

    assert "no torch is known that was published for cu131" in answer(never).splitlines()[0]
    assert "torch 2.10.0 was not published for cu118" in answer(other).splitlines()[0]
    assert "cu126, cu128" in answer(other)
    assert "glibc" not in answer(other)
    assert "cu118" not in answer(both).splitlines()[0]  # the other index may have it


def test_pips_two_lines_on_one_requirement_are_one_failure(explained: Explain) -> None:
    found = explained(not_found("torch==2.5.1", "2.6.0+cu124"))

    assert "torch 2.5.1 is older than every release that is offered" in answer(found).splitlines()[0]
    assert not found.diagnosis.apart
    assert found.code == 1


def test_the_python_that_uv_has_is_told_beside_the_requirement(explained: Explain) -> None:
    head = "  x No solution found when resolving dependencies:\n  ╰─▶ Because "
    current = explained(
        f"{head}the current Python version (3.13.1) does not satisfy Python>=3.9,<3.13 and vllm==0.8.5 "
        "depends on Python>=3.9,<3.13, we can conclude that vllm==0.8.5 cannot be used.\n"
    )
    requested = explained(
        f"{head}the requested Python version (>=3.9) does not satisfy Python>=3.10 and a[b] depends on c[d], "
        "we can conclude that a[b]'s requirements are unsatisfiable.\n"
    )

    assert "vllm==0.8.5 requires Python>=3.9,<3.13; this is Python 3.13.1" in answer(current).splitlines()[0]
    assert "Python>=3.10 is needed; the project allows Python >=3.9" in answer(requested).splitlines()[0]
    assert "requires-python" in answer(requested)


def timeout(rank: int, call: str) -> str:
    return (
        f"[rank{rank}]:[E1030 03:19:32.584828663 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught "
        f"collective operation timeout: WorkNCCL({call}, Timeout(ms)=600000) ran for 600080 milliseconds "
        "before timing out.\n"
    )


def test_ranks_that_wait_in_different_calls_are_out_of_step(explained: Explain) -> None:
    bar = "Epoch 2/30:   0%|          | 6/8563 [00:10<4:06:13,  1.73s/step, loss=0.656]"
    apart = explained(
        bar
        + timeout(1, "SeqNum=121, OpType=ALLREDUCE, NumelIn=1, NumelOut=1")
        + timeout(0, "SeqNum=122, OpType=BROADCAST, NumelIn=2149508, NumelOut=2149508")
    )
    together = explained("".join(timeout(rank, "SeqNum=121, OpType=ALLREDUCE") for rank in (0, 2)))

    first = answer(apart).splitlines()[0]
    assert "rank 0 in BROADCAST 122 of 2149508 elements, rank 1 in ALLREDUCE 121 of 1 element" in first
    assert "ranks 0, 2 in ALLREDUCE 121" in answer(together)
    assert "different" not in answer(together)
    assert "Epoch" not in answer(apart)


def test_calls_of_different_groups_are_not_compared() -> None:
    far = timeout(0, "SeqNum=12, OpType=ALLREDUCE") + timeout(1, "SeqNum=4000, OpType=ALLREDUCE")

    assert not out_of_step(waiting_ranks([far]))
    assert out_of_step(waiting_ranks([far.replace("4000", "13")]))


def test_uvs_own_hint_is_shown_beside_what_is_absent(explained: Explain) -> None:
    log = (
        "  x No solution found when resolving dependencies:\n"
        "  `-> Because there is no version of pillow==11.1.0 and your project depends on pillow==11.1.0, we can "
        "conclude that your project's requirements are unsatisfiable.\n\n"
        "      hint: `pillow` was found on an index, but not at the requested version. Use `--index-strategy\n"
        "      unsafe-best-match` to consider all indexes.\n"
        "  help: provide the `--frozen` flag\n"
    )

    told = answer(explained(log))

    assert "Use `--index-strategy unsafe-best-match` to consider all indexes." in told
    assert "--frozen" not in told


def test_a_build_with_a_label_is_sought_elsewhere_only_where_there_is_an_index_of_such() -> None:
    torch = pip_offer(not_found("torch==2.6.0+cu124", "2.5.1, 2.6.0"), "", LABELS)
    flash = pip_offer(not_found("flash-attn==2.6.3+cu123torch2.4", "2.6.2, 2.6.3"), "", LABELS)

    assert torch is not None
    assert torch.is_elsewhere
    assert flash is not None
    assert not flash.explains


def test_why_pip_found_nothing_is_taken_from_the_lines_above(explained: Explain) -> None:
    closing = not_found("a==1.0+x", "1.0+x")
    damaged = explained(
        "Discarding file:///w/a-1.0%2Bx-py3-none-any.whl: Requested a==1.0+x from file:///w/a.whl has "
        f"inconsistent version: expected '1.0+x', but metadata has '1.0'\n{closing}"
    )
    unreached = explained(
        "WARNING: Retrying (Retry(total=0, connect=None)) after connection broken by "
        f"'NewConnectionError(': Temporary failure in name resolution')': /simple/a/\n{closing}"
    )

    assert "another version than its metadata" in answer(damaged)
    assert "did not reach the index" in answer(unreached)
    assert not damaged.diagnosis.apart
    assert not unreached.diagnosis.apart


def test_who_requires_what_is_not_offered_is_named(explained: Explain) -> None:
    found = answer(explained(not_found("vllm-flash-attn==2.5.9 (from vllm)", "2.6.1")))

    assert "vllm requires it" in found


def test_what_conda_says_of_pips_failure_follows_from_it(explained: Explain) -> None:
    found = explained(
        f"Pip subprocess error:\n{not_found('a', 'none')}\nfailed\n\nCondaEnvException: Pip failed\n"
    )

    assert "no package of this name" in answer(found)
    assert not found.diagnosis.apart
    assert explained("CondaEnvException: Pip failed\n").code == 3  # what pip said is not in the log
