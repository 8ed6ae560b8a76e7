"""Outcomes from what each rank left behind: which rank caused the failure, and how."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from envcheck.selftest.declaration import SelftestDeclaration, SelftestVariant
from envcheck.selftest.journal import ProcessEnd, outcome_of_ranks
from envcheck.selftest.outcome import Outcome
from envcheck.selftest.report import facts
from tests.support.running import envcheck

VARIANT = SelftestVariant("v", {}, {}, ("cpu",))
CLAIM = SelftestDeclaration("t", "It holds", 3, {}, ("torch",), 60.0, (2, 64), (VARIANT,), "sha256:0")

WAITS = """Timeout (0:00:58)!
Thread 0x00007f10 (most recent call first):
  File "/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 2800 in all_reduce
  File "/x/target_scripts/selftests/t.py", line 9 in run
"""
COMPUTES = """Timeout (0:00:58)!
Thread 0x00007f10 (most recent call first):
  File "/env/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 134 in forward
  File "/x/target_scripts/selftests/t.py", line 8 in run
"""
BACKWARD = """Timeout (0:00:58)!
Thread 0x00007f20 (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 320 in wait
{busy}
Thread 0x00007f10 (most recent call first):
  File "/env/lib/python3.11/site-packages/torch/autograd/graph.py", line 824 in _engine_run_backward
  File "/x/target_scripts/selftests/t.py", line 8 in run
"""
HOOK = """
Thread 0x00007f30 (most recent call first):
  File "/env/lib/python3.11/site-packages/some/hook.py", line 5 in sync
"""


def event(kind: str, time: float, /, **details: Any) -> dict[str, Any]:
    return {"event": kind, "test": "t", "variant": "v", "time": time, **details}


def rank(*events: dict[str, Any], stack: str = "", code: int | None = 0, said: str = "") -> ProcessEnd:
    journal = "".join(json.dumps(each) + "\n" for each in events)
    return ProcessEnd(code, said, journal, {"t.v": stack})


def fold(*ranks: ProcessEnd) -> Outcome:
    return outcome_of_ranks(CLAIM, VARIANT, ranks)


def ended(time: float, result: str = "pass", why: str = "", **details: Any) -> tuple[dict[str, Any], ...]:
    return (
        event("begin", 1.0),
        event("call", 2.0, name="all_reduce"),
        event("end", time, result=result, why=why, call="all_reduce", seconds=1.0, **details),
    )


BEGUN = (event("begin", 1.0), event("call", 2.0, name="all_reduce"))
LOST_PEER = "RuntimeError: [gloo/transport/tcp/pair.cc:544] Connection closed by peer [127.0.0.1]:9"


def test_all_ranks_must_pass() -> None:
    assert fold(rank(*ended(3.0)), rank(*ended(3.1))).result == "pass"
    failed = fold(rank(*ended(3.0)), rank(*ended(3.1, "fail", "the sum is 2, expected 3")))
    assert (failed.result, failed.rank, failed.why) == ("fail", 1, "the sum is 2, expected 3")


def test_a_skip_of_one_rank_is_a_skip() -> None:
    skipped = rank(event("end", 1.0, result="skip", why="needs deepspeed, not here"))
    outcome = fold(rank(event("begin", 1.0), event("stopped", 3.0)), skipped)
    assert (outcome.result, outcome.why) == ("skip", "needs deepspeed, not here")


@pytest.mark.parametrize("echo_at", [2.9, 3.1])
def test_a_death_is_the_cause_of_lost_connections(echo_at: float) -> None:
    dead = rank(*BEGUN, event("died", 3.0, signal=9, said=""))
    outcome = fold(rank(*ended(echo_at, "fail", LOST_PEER)), dead)
    assert (outcome.rank, outcome.why, outcome.call) == (1, "rank 1 was killed by SIGKILL", "all_reduce")


def test_an_abort_after_an_error_is_its_consequence() -> None:
    """Check that the abort of NCCL's watchdog, after a partner failed, is not the cause."""
    aborted = rank(*BEGUN, event("died", 4.0, signal=6, said="terminate called"))
    outcome = fold(aborted, rank(*ended(3.0, "fail", "CheckpointError: shape [0]")))
    assert (outcome.rank, outcome.why) == (1, "CheckpointError: shape [0]")


def test_an_error_before_a_death_is_its_cause() -> None:
    dead = rank(*BEGUN, event("died", 5.0, signal=11, said=""))
    outcome = fold(dead, rank(*ended(3.0, "fail", "ValueError: no such dtype")))
    assert (outcome.rank, outcome.why) == (1, "ValueError: no such dtype")


def test_a_lost_connection_is_the_failure_if_no_rank_is_gone() -> None:
    outcome = fold(rank(*ended(3.0, "fail", LOST_PEER)), rank(*ended(3.1)))
    assert (outcome.rank, outcome.why) == (0, LOST_PEER)


def test_an_accused_rank_is_named_unless_all_are_accused() -> None:
    accused = rank(*ended(3.0, "fail", "the part of rank 1 is wrong", accused=1))
    assert fold(accused, rank(*ended(3.0))).rank == 1
    assert fold(rank(*ended(3.0, "fail", "all wrong", accused=-1)), rank(*ended(3.0))).rank is None
    assert fold(rank(*ended(3.0, "fail", "wrong", accused=7)), rank(*ended(3.0))).rank == 0
    assert fold(rank(*ended(3.0, "fail", "wrong", accused="me")), rank(*ended(3.0))).rank == 0


def test_the_rank_that_computes_while_others_wait_is_the_one_that_hangs() -> None:
    late = event("late", 60.0)
    outcome = fold(rank(*BEGUN, late, stack=WAITS), rank(*BEGUN, late, stack=COMPUTES))
    assert (outcome.rank, outcome.seconds) == (1, 60.0)
    assert outcome.why == "rank 1 hangs: not finished within 60 s; rank 0 waits for it"
    assert outcome.place == "torch/nn/modules/linear.py:134 in forward"


def test_among_ranks_in_backward_the_one_with_a_busy_hook_hangs() -> None:
    idle, busy = BACKWARD.format(busy=""), BACKWARD.format(busy=HOOK)
    outcome = fold(rank(*BEGUN, stack=idle), rank(*BEGUN, stack=busy))
    assert (outcome.rank, outcome.place) == (1, "some/hook.py:5 in sync")
    assert outcome.why.endswith("rank 0 may wait for it")


def test_ranks_that_all_wait_are_listed_with_their_calls() -> None:
    further = rank(*BEGUN, event("call", 3.0, name="barrier"), stack=WAITS)
    outcome = fold(further, rank(*BEGUN, stack=WAITS))
    assert outcome.why == (
        "all ranks wait for one another: not finished within 60 s (rank 0 in barrier, rank 1 in all_reduce)"
    )
    assert outcome.rank == 1  # the rank that made the fewest calls


def test_a_rank_that_never_came_and_one_that_was_lost_are_named() -> None:
    assert (
        fold(rank(), rank(event("absent", 1.0))).why == "rank 1 never came: the others waited for it to begin"
    )
    lost = fold(rank(*ended(9.0, "fail", LOST_PEER)), rank(*BEGUN, event("lost", 20.0)))
    assert (lost.rank, lost.why) == (1, "rank 1 was lost: no further report from it")


def test_the_last_line_of_a_dying_rank_is_reported() -> None:
    died = event("died", 3.0, signal=6, said="loading\nterminate called after throwing 'c10::Error'\n")
    assert fold(rank(*BEGUN, died)).why == (
        "the process was killed by SIGABRT: terminate called after throwing 'c10::Error'"
    )


@pytest.mark.parametrize(
    "scribble",
    [
        "\x00\xff",
        "[1, 2]",
        '{"event": "end"}',
        '{"test": "t", "variant": "v"}',
        '{"test": "t", "variant": "v", "event": 3, "time": 1.0}',
        '{"test": "t", "variant": "v", "event": "end", "time": "now"}',
        '{"test": "t", "variant": "v", "event": "saw", "time": 1.0, "values": [1]}',
        '{"test": "t", "variant": "v", "event": "died", "time": 1.0',
        "9" * 5000,
    ],
)
def test_other_output_in_a_journal_is_ignored(scribble: str) -> None:
    good = rank(*ended(3.0))
    outcome = fold(good._replace(journal=scribble + "\n" + good.journal + scribble))
    assert (outcome.result, outcome.why) == ("pass", "")


@pytest.mark.parametrize("end", [{}, {"result": "fine"}, {"result": None}])
def test_an_end_with_an_unknown_result_is_not_a_pass(end: dict[str, Any]) -> None:
    assert fold(rank(event("begin", 1.0), event("end", 2.0, **end))).result == "unknown"


def test_a_hanging_import_is_a_failure_and_a_fault_of_the_test_is_not() -> None:
    assert fold(rank(code=None)).result == "fail"
    assert fold(rank(code=1, said="Traceback\nKeyError: 'rank'")).result == "unknown"
    killed = fold(rank(code=-11))
    assert (killed.result, killed.why) == ("fail", "the process was killed by SIGSEGV before the test began")


def test_a_test_whose_worker_died_is_not_reported_as_a_hang() -> None:
    killed = fold(rank(*BEGUN, code=-9), rank(code=-9))
    assert (killed.result, killed.rank) == ("unknown", None)
    assert killed.why == "the process that runs the tests was killed by SIGKILL during one"
    earlier = [{**each, "variant": "u"} for each in BEGUN]
    assert (
        fold(rank(*earlier, code=-9), rank(code=-9)) == killed
    )  # not come to, and so no fault of its import
    full = fold(rank(*BEGUN, code=1, said="Traceback\nOSError: [Errno 28] No space left on device"))
    assert full.result == "unknown"
    assert full.why.endswith(
        "ended with exit status 1 during one: OSError: [Errno 28] No space left on device"
    )
    late = fold(rank(*BEGUN, event("late", 60.0), code=-9))
    assert (late.result, late.why) == ("fail", "not finished within 60 s")


def test_facts_name_the_failure_as_their_source() -> None:
    other = SelftestVariant("w", {}, {}, ("cpu",))
    outcomes = [
        Outcome(CLAIM, VARIANT, "pass"),
        Outcome(CLAIM, other, "fail", "rank 1 hangs"),
        Outcome(CLAIM._replace(name="u"), VARIANT, "pass"),
        Outcome(CLAIM._replace(name="s"), VARIANT, "skip", "needs 2 GPUs"),
        Outcome(CLAIM._replace(name="f"), VARIANT, "pass"),
        Outcome(CLAIM._replace(name="f"), other, "unknown", "our own fault"),
    ]
    found = facts(outcomes)
    assert found["selftest"] == {"t": "fail", "u": "pass"}
    assert found["sources"]["selftest.t"] == "self-test w: rank 1 hangs"


def test_a_failed_self_test_is_an_error_finding_of_doctor(tmp_path: Path) -> None:
    found = facts(
        [Outcome(CLAIM, VARIANT, "fail", "rank 1 hangs"), Outcome(CLAIM._replace(name="u"), VARIANT, "pass")]
    )
    file = tmp_path / "facts.json"
    file.write_text(json.dumps({**found, "pkg": {"torch": "2.13.0"}}), "utf-8")
    ran = envcheck("doctor", "--facts", str(file), "--json")
    broken = [each for each in json.loads(ran.out)["findings"] if each["verdict"] == "broken"]
    assert [(each["rule"], each["severity"]) for each in broken] == [("selftest:t", "error")]
    assert "rank 1 hangs" in json.dumps(broken)
    assert ran.code == 1


def test_self_tests_that_passed_are_no_finding(tmp_path: Path) -> None:
    found = facts([Outcome(CLAIM, VARIANT, "pass")])
    file = tmp_path / "facts.json"
    file.write_text(json.dumps({**found, "pkg": {"torch": "2.13.0"}}), "utf-8")
    ran = envcheck("doctor", "--facts", str(file))
    assert ran.code == 0, ran.out
    file.write_text(json.dumps({"selftest": {"t": "perhaps"}}), "utf-8")
    wrong = envcheck("doctor", "--facts", str(file))
    assert (wrong.code, wrong.out) == (2, "")
    assert "selftest.t: expected one of pass, fail" in wrong.err
