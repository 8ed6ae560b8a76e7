"""The self-tests across ranks on a real stack: sound code passes, each sabotage is caught with rank and call."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess  # noqa: TID251 - tests are users
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.support.paths import DATA
from tests.support.running import installed, invocation

pytestmark = pytest.mark.stack

SABOTAGE = DATA / "sabotage"
LAUNCHED = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID")


def command(stack: str, *only: str) -> list[str]:
    names = [part for each in only for part in ("--only", each)]
    return invocation("selftest", "--device", "cpu", "--python", stack, "--json", *names)


def environ(path: Sequence[Path] = (), seconds: int = 0, **added: str) -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if k not in LAUNCHED}  # noqa: TID251
    limit = {"ENVCHECK_SELFTEST_SECONDS": str(seconds)} if seconds else {}
    python_path = os.pathsep.join([*map(str, path), str(installed())])
    return {**inherited, **limit, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": python_path, **added}


def outcomes(printed: str) -> dict[str, Any]:
    return {each["variant"]: each for each in json.loads(printed)["outcomes"]}


def selftest(given: Mapping[str, str], *words: str) -> tuple[int, dict[str, Any]]:
    ran = subprocess.run(words, capture_output=True, text=True, timeout=400, check=False, env=dict(given))
    assert ran.stdout, ran.stderr[-2000:]
    return ran.returncode, outcomes(ran.stdout)


def sabotaged(folder: Path, *names: str) -> Path:
    """Make a folder whose `sitecustomize` applies the sabotages of these names."""
    for each in ("after_import", *names):
        (folder / f"{each}.py").write_text((SABOTAGE / f"{each}.py").read_text("utf-8"), "utf-8")
    (folder / "sitecustomize.py").write_text("".join(f"import {name}\n" for name in names), "utf-8")
    return folder


def test_a_sound_stack_passes_across_ranks(stack: str) -> None:
    code, found = selftest(environ(), *command(stack, "collectives", "sharded_step"))
    assert {name: (each["result"], each["why"]) for name, each in found.items()} == dict.fromkeys(
        found, ("pass", "")
    )
    assert set(found) >= {"all-reduce", "barrier", "ddp", "fsdp1", "fsdp2", "zero1", "zero2", "zero3"}
    assert {each["ranks"] for each in found.values()} == {2}
    assert code == 0


def test_three_ranks_shard_sizes_that_do_not_divide(stack: str) -> None:
    names = ("all-reduce", "reduce-scatter", "all-to-all", "fsdp2")
    _, found = selftest(environ(), *command(stack, *names), "--ranks", "3")
    assert {name: (each["result"], each["ranks"]) for name, each in found.items()} == dict.fromkeys(
        names, ("pass", 3)
    )


class Caught(NamedTuple):
    """A sabotage, the variant that must catch it, and the expected message."""

    name: str
    variant: str
    rank: int | None
    call: str
    why: str


ALONE = "the other ranks received what was sent"
STEP = "optimizer step"
TIMES = "^step 1: the gradient of rank 1 counted 1.01 times, once each is right$"
CORRUPTED = r"^on rank 1, after step 1: 0\.weight differs from one process's by .* times its update$"
HANGS = "^rank 1 hangs: not finished within {} s; rank 0 (may )?waits? for it$"

# Each list is one run, whose sabotages do not interfere. A number is the deadline of a variant in seconds.
RUNS: dict[str, tuple[int, list[Caught]]] = {
    "data": (
        0,
        [
            Caught("rank_1_contributes_twice", "all-reduce", 1, "all_reduce float32", "so it is on 2 ranks"),
            Caught("rank_1_receives_a_flipped_bit", "all-gather", 1, "all_gather float32", ALONE),
            Caught("broadcast_does_nothing", "broadcast", 1, "broadcast float32 from rank 0", ALONE),
            Caught(
                "reduce_scatter_averages",
                "reduce-scatter",
                None,
                "reduce_scatter float32",
                "of 2 ranks, on 2",
            ),
            Caught(
                "barrier_does_nothing", "barrier", 1, "barrier, rank 0 last", "left a barrier when 1 of 2"
            ),
            Caught("all_to_all_forgets_rank_1", "all-to-all", 1, "all_to_all float32", ALONE),
        ],
    ),
    "precision": (
        0,
        [
            Caught(
                "all_reduce_in_bfloat16",
                "all-reduce",
                None,
                "all_reduce float32",
                r"is 1\.0, expected 1\.0000",
            )
        ],
    ),
    "death": (
        0,
        [
            Caught(
                "rank_1_killed_in_all_reduce",
                "all-reduce",
                1,
                "all_reduce float32",
                "^rank 1 was killed by SIGKILL$",
            )
        ],
    ),
    "no-start": (
        15,
        [Caught("rank_1_never_joins", "barrier", 1, "joining the process group", HANGS.format(15))],
    ),
    "hang": (20, [Caught("rank_1_sleeps_in_backward", "ddp", 1, "backward", HANGS.format(20))]),
    "gradient": (
        0,
        [
            Caught("rank_1_gradient_1_percent_larger", variant, 1, STEP, TIMES)
            for variant in ("ddp", "fsdp1", "fsdp2", "zero3")
        ],
    ),
    "weights": (
        0,
        [
            Caught("rank_1_weights_corrupted_after_step", variant, 1, STEP, CORRUPTED)
            for variant in ("ddp", "fsdp2")
        ],
    ),
}


@pytest.mark.parametrize("run", RUNS)
def test_sabotage_is_caught(stack: str, tmp_path: Path, run: str) -> None:
    seconds, expected = RUNS[run]
    given = environ([sabotaged(tmp_path, *{each.name: None for each in expected})], seconds)
    code, found = selftest(given, *command(stack, *(each.variant for each in expected)))
    assert code == 1
    for each in expected:
        outcome = found[each.variant]
        assert (outcome["result"], outcome["rank"], outcome["call"]) == ("fail", each.rank, each.call), (
            outcome
        )
        assert re.search(each.why, outcome["why"]), outcome["why"]
        if seconds:
            assert outcome["place"].startswith(f"{each.name}.py:"), outcome["place"]


def free_port() -> str:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return str(listening.getsockname()[1])


def under_slurm(stack: str, path: Sequence[Path], *only: str, seconds: int = 0) -> list[tuple[int, str, str]]:
    """Start two processes as srun does; return the exit code and output of each."""
    port = free_port()
    ranks = [
        subprocess.Popen(
            command(stack, *only),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ(
                path,
                seconds,
                SLURM_PROCID=str(rank),
                SLURM_LOCALID=str(rank),
                SLURM_NTASKS="2",
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
            ),
        )
        for rank in range(2)
    ]
    ended = [rank.communicate(timeout=300) for rank in ranks]
    return [(rank.returncode, *said) for rank, said in zip(ranks, ended, strict=True)]


def test_slurm_ranks_run_together_and_rank_0_reports(stack: str) -> None:
    (code, out, err), (other_code, other_out, other_err) = under_slurm(stack, [], "all-reduce", "all-gather")
    assert (code, other_code, other_out, err, other_err) == (0, 0, "", "", "")
    assert {each["result"] for each in outcomes(out).values()} == {"pass"}


def test_slurm_ranks_know_which_of_them_died(stack: str, tmp_path: Path) -> None:
    folder = sabotaged(tmp_path, "rank_1_killed_in_all_reduce")
    (code, out, _), (other_code, other_out, _) = under_slurm(stack, [folder], "all-reduce", "barrier")
    found = outcomes(out)
    assert (code, other_code, other_out) == (1, 1, "")
    assert (found["all-reduce"]["rank"], found["all-reduce"]["call"]) == (1, "all_reduce float32")
    assert found["all-reduce"]["why"] == "rank 1 was killed by SIGKILL"
    assert found["barrier"]["result"] == "pass"


def torchrun(stack: str, given: Mapping[str, str], *only: str) -> subprocess.CompletedProcess[str]:
    launcher = [stack, "-m", "torch.distributed.run", "--no-python", "--nproc-per-node", "2"]
    words = [*launcher, "--master-port", free_port(), *command(stack, *only)]
    return subprocess.run(words, capture_output=True, text=True, timeout=300, check=False, env=dict(given))


def test_torchrun_reports_a_rank_that_never_joins(stack: str, tmp_path: Path) -> None:
    """Rank 0 must print the report before torchrun ends it, although rank 1 fails as well."""
    given = environ([sabotaged(tmp_path, "rank_1_never_joins")], 15)
    ran = torchrun(stack, given, "barrier")
    found = outcomes(ran.stdout)["barrier"]
    assert (found["rank"], found["call"]) == (1, "joining the process group"), ran.stderr[-2000:]
    assert found["why"] == "rank 1 hangs: not finished within 15 s; rank 0 waits for it"
    assert ran.returncode == 1


def test_torchrun_passes(stack: str) -> None:
    ran = torchrun(stack, environ(), "broadcast", "zero3")
    assert {each["result"] for each in outcomes(ran.stdout).values()} == {"pass"}, ran.stderr[-2000:]
    assert ran.returncode == 0
