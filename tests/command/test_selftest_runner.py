"""The runner of self-tests against ranks that hang, die, lie or leave children: real processes, tiny tests.

A copy of envcheck with other files in `target_scripts/selftests/`; the environment it tests claims a torch and has none, so
that a run takes a third of a second. What is run is envcheck's own runner, supervisor and worker.
"""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
import signal
import subprocess  # noqa: TID251 - tests are users
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from envcheck.commands import loading
from envcheck.knowledge.compiled import freeze_matrix
from tests.support.paths import ROOT

ILL = '''"""Ranks behave.

Misbehaves as its variant says, on rank 1 alone.
"""
import ctypes, os, signal, subprocess, sys, time

LEVEL = 1
RANKS = (2, 2)
SECONDS = 3
VARIANTS = {
    "well": {},
    "sleeps": {},
    "sleeps-holding-the-lock": {},
    "ignores-sigterm": {},
    "killed": {},
    "exits": {},
    "exits-quietly": {},
    "raises": {},
    "prints-100-mb": {},
    "scribbles": {},
    "closes-everything": {},
    "leaves-children": {},
    "changes-session": {},
    "aborts-late": {},
}


def run(test, variant):
    if test.rank == 1:
        with test.call(variant):
            globals()[variant.replace("-", "_")](test)


def well(test):
    test.record(answer=42)


def sleeps(test):
    time.sleep(600)


def sleeps_holding_the_lock(test):
    ctypes.PyDLL(None).sleep(600)


def ignores_sigterm(test):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    time.sleep(600)


def killed(test):
    print("terminate called: out of memory", file=sys.stderr)
    os.kill(os.getpid(), signal.SIGKILL)


def exits(test):
    os._exit(7)


def exits_quietly(test):
    os._exit(0)


def raises(test):
    subprocess.run(["false"], check=True)


def prints_100_mb(test):
    for _ in range(100):
        sys.stdout.write("x" * (1 << 20))


def scribbles(test):
    with open(test.journal, "ab") as journal:
        journal.write(b'\\xff\\x00{"event": "end"}\\n[]\\n{"test": "ranks", "variant": "scribbles"}\\n')
        journal.write(b'{"test": "ranks", "variant": "scribbles", "event": "saw", "time": 1.5, "values": 3}\\n')
        journal.write(b"\\xde\\xad" * (3 << 20) + b"\\n")


def closes_everything(test):
    os.closerange(3, 256)


CHILD = [sys.executable, "-c", "import time; time.sleep(600)"]


def leaves_children(test):
    for new_session in (False, True):
        subprocess.Popen(CHILD, start_new_session=new_session, stdin=subprocess.DEVNULL)
    time.sleep(600)


def changes_session(test):
    if os.fork():
        time.sleep(600)
    os.setsid()
    if os.fork():
        os._exit(0)
    time.sleep(600)


def aborts_late(test):
    test.fail("the sum is wrong", rank=0)
'''

FRUITFUL = '''"""A rank that has children of its own, and takes its time.
"""
import subprocess, sys, time

LEVEL = 1
RANKS = (2, 2)
SECONDS = 60


def run(test, variant):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=test.rank == 1)
    time.sleep(600)
'''

IMPORTING = '''"""Imports that never end.
"""
LEVEL = 1
IMPORTS = ("sleepy",)
'''


class World(NamedTuple):
    """A copy of envcheck with other self-tests, and an environment for it to test."""

    code: Path
    environment: Path

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "envcheck", "selftest", "--python", str(self.environment), *arguments]

    def environ(self, added: Mapping[str, str] | None = None) -> dict[str, str]:
        launcher = ("RANK", "WORLD_SIZE", "SLURM", "MASTER")
        kept = {k: v for k, v in os.environ.items() if not k.startswith(launcher)}  # noqa: TID251
        return {**kept, "PYTHONPATH": str(self.code), "PYTHONDONTWRITEBYTECODE": "1", **(added or {})}

    def run(self, *arguments: str, environ: Mapping[str, str] | None = None) -> dict[str, Any]:
        ran = subprocess.run(
            self.command("--json", *arguments),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=self.environ(environ),
            cwd=self.environment,
        )
        assert ran.stdout, ran.stderr
        tree: dict[str, Any] = {each["variant"]: each for each in json.loads(ran.stdout)["outcomes"]}
        return {**tree, "code": ran.returncode}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    if not hasattr(os, "fork") or not Path("/proc/self/environ").exists():
        pytest.skip("counts processes in /proc")
    folder = tmp_path_factory.mktemp("runner")
    ignored = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(ROOT / "envcheck", folder / "envcheck", ignore=ignored)
    shipped = folder / "envcheck/shipped"  # as in a wheel, which starts twice as fast
    shipped.mkdir()
    (shipped / "judging.json").write_text(json.dumps(freeze_matrix(loading.knowledge())), "utf-8")
    tests = folder / "envcheck/target_scripts/selftests"
    for path in tests.glob("[!_]*.py"):
        path.unlink()
    for name, text in {"ranks": ILL, "fruitful": FRUITFUL}.items():
        (tests / f"{name}.py").write_text(text, "utf-8")
    environment = folder / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(environment)], check=True, timeout=60)
    site = next(environment.glob("lib/python*/site-packages")) / "torch-2.6.0.dist-info"
    site.mkdir()
    (site / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.6.0\n", "utf-8")
    return World(folder, environment)


@pytest.fixture(scope="module")
def ranks(world: World) -> dict[str, Any]:
    marker = {"ENVCHECK_TEST_RUN": f"ranks-{os.getpid()}"}
    outcomes = world.run("--only", "ranks", environ=marker)
    outcomes["left"] = marked(marker["ENVCHECK_TEST_RUN"])
    return outcomes


def marked(marker: str, within_s: float = 3.0) -> list[str]:
    """Return the processes with this ENVCHECK_TEST_RUN that still exist after some time."""
    needle = f"ENVCHECK_TEST_RUN={marker}".encode()
    until = time.monotonic() + within_s
    while True:
        found = []
        for each in Path("/proc").iterdir():
            if not each.name.isdecimal() or int(each.name) == os.getpid():
                continue
            try:
                if needle in (each / "environ").read_bytes().split(b"\0"):
                    found.append(f"{each.name} {(each / 'cmdline').read_bytes()[:300]!r}")
            except OSError:
                continue
        if not found or time.monotonic() > until:
            return found
        time.sleep(0.05)


ENDS = {
    "well": ("pass", ""),
    "prints-100-mb": ("pass", ""),
    "scribbles": ("pass", ""),
    "closes-everything": ("pass", ""),
    "sleeps": ("fail", "rank 1 hangs: not finished within 3 s"),
    "sleeps-holding-the-lock": ("fail", "rank 1 hangs: not finished within 3 s"),
    "ignores-sigterm": ("fail", "rank 1 hangs: not finished within 3 s"),
    "leaves-children": ("fail", "rank 1 hangs: not finished within 3 s"),
    "changes-session": ("fail", "rank 1 hangs: not finished within 3 s"),
    "killed": ("fail", "rank 1 was killed by SIGKILL: terminate called: out of memory"),
    "exits": ("fail", "rank 1 ended itself with exit status 7"),
    "exits-quietly": ("fail", "rank 1 ended itself with exit status 0"),
    "raises": ("fail", "CalledProcessError: Command '['false']' returned non-zero exit status 1."),
}


@pytest.mark.parametrize("variant", ENDS)
def test_a_failed_rank_is_named_with_its_call(ranks: dict[str, Any], variant: str) -> None:
    outcome = ranks[variant]
    assert (outcome["result"], outcome["why"]) == ENDS[variant]
    if outcome["result"] == "fail":
        assert (outcome["rank"], outcome["call"]) == (1, variant)
    else:
        assert outcome["rank"] is None


def test_a_hang_shows_its_line_and_keeps_its_deadline(ranks: dict[str, Any]) -> None:
    for variant in ("sleeps", "sleeps-holding-the-lock", "ignores-sigterm"):
        assert ranks[variant]["place"].startswith("ranks.py:"), ranks[variant]
        assert ranks[variant]["seconds"] == 3


def test_a_rank_may_accuse_another(ranks: dict[str, Any]) -> None:
    assert (ranks["aborts-late"]["rank"], ranks["aborts-late"]["why"]) == (0, "the sum is wrong")


def test_values_recorded_by_a_rank_are_reported(ranks: dict[str, Any]) -> None:
    assert ranks["well"]["seen"] == {"answer": 42}
    assert ranks["code"] == 1


@pytest.mark.parametrize(
    ("option", "variant", "code", "said"),
    [
        ("-q", "well", 0, "all 1 that ran passed\n"),
        ("-q", "raises", 1, "1 of 1 failed: raises\n"),
        ("-v", "well", 0, "      observed: answer = 42\n"),
        ("-v", "raises", 1, "      subprocess.CalledProcessError: Command '['false']' returned"),
    ],
)
def test_quiet_is_the_result_and_verbose_has_the_evidence(
    world: World, option: str, variant: str, code: int, said: str
) -> None:
    ran = printed(world, "--only", variant, option)
    assert (ran.returncode, ran.stderr) == (code, "")
    assert said in ran.stdout
    assert (ran.stdout == said) is (option == "-q")
    assert ("[✓] well  " in ran.stdout) is (option == "-v" and variant == "well")


def test_quiet_contradicts_json_and_verbose(world: World) -> None:
    for other in ("--json", "-v"):
        ran = printed(world, "-q", other)
        assert (ran.returncode, ran.stdout) == (2, "")
        assert "--quiet: contradicts" in ran.stderr


def printed(world: World, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        world.command(*arguments),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=world.environ(),
        cwd=world.environment,
    )


def test_no_process_is_left_of_ranks_that_fork_and_change_session(ranks: dict[str, Any]) -> None:
    assert ranks["left"] == []


def test_each_deadline_is_kept(world: World) -> None:
    begun = time.monotonic()
    world.run("--only", "sleeps", "--only", "leaves-children", "--only", "sleeps-holding-the-lock")
    assert time.monotonic() - begun < 3 * 3 + 5


def started(world: World, marker: str, folder: Path, *arguments: str) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        world.command("--only", "fruitful", *arguments),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=world.environ({"ENVCHECK_TEST_RUN": marker, "TMPDIR": str(folder)}),
        cwd=world.environment,
        start_new_session=True,
    )


ALL = 7
"""Processes of a run: envcheck, supervisor, worker, two ranks and a child of each."""


def until_all_run(marker: str) -> None:
    until = time.monotonic() + 30
    while len(marked(marker, 0.0)) < ALL and time.monotonic() < until:
        time.sleep(0.02)


def test_no_process_is_left_of_fifty_runs_that_were_ended_at_any_moment(world: World, tmp_path: Path) -> None:
    chance = random.Random(4)  # noqa: S311 - chooses moments, not secrets
    marker = f"aborted-{os.getpid()}"
    begun = time.monotonic()
    process = started(world, marker, tmp_path / "scratch")
    until_all_run(marker)
    start_up = time.monotonic() - begun
    seen = 0
    for number in range(50):
        process.send_signal((signal.SIGINT, signal.SIGTERM, signal.SIGKILL)[number % 3])
        process.communicate(timeout=10)
        process = started(world, marker, tmp_path / "scratch")
        time.sleep(chance.uniform(0.0, 1.5) * start_up)
        seen += len(marked(marker, 0.0)) == ALL
    process.kill()
    process.communicate(timeout=10)
    assert 0 < seen < 50  # some while they ran, some while they began
    assert marked(marker) == []
    assert list((tmp_path / "scratch").iterdir()) == []


def test_nothing_is_left_of_a_run_that_is_killed_before_its_worker_runs(world: World, tmp_path: Path) -> None:
    marker = f"early-{os.getpid()}"
    hang = next((world.environment / "lib").glob("python*/site-packages")) / "hang.pth"
    hang.write_text("import sys, time; time.sleep(600 * any('_worker' in each for each in sys.orig_argv))\n")
    try:
        process = started(world, marker, tmp_path / "scratch")
        until = time.monotonic() + 30
        while not (workers := [each for each in marked(marker, 0.0) if "_worker.py" in each]):
            assert time.monotonic() < until
    finally:
        hang.unlink()
    process.kill()
    process.communicate(timeout=10)
    for worker in workers:
        os.kill(int(worker.partition(" ")[0]), signal.SIGKILL)
    assert marked(marker) == []
    assert list((tmp_path / "scratch").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_an_interrupted_run_prints_one_line_and_ends_at_once(
    world: World, tmp_path: Path, number: int
) -> None:
    marker = f"interrupted-{number}-{os.getpid()}"
    process = started(world, marker, tmp_path / "scratch", "--json")
    until_all_run(marker)
    process.send_signal(number)
    begun = time.monotonic()
    out, err = process.communicate(timeout=10)
    assert time.monotonic() - begun < 3
    assert (process.returncode, out) == (128 + number, "")
    assert err == f"envcheck: {'interrupted' if number == signal.SIGINT else 'ended by SIGTERM'}\n"
    assert marked(marker) == []


def test_a_run_that_was_stopped_and_continued_is_not_late(world: World) -> None:
    """It is stopped for longer than the deadline of its test, but a stopped process is not late."""
    process = subprocess.Popen(
        world.command("--only", "well", "--only", "prints-100-mb", "--json"),
        stdout=subprocess.PIPE,
        text=True,
        env=world.environ(),
        cwd=world.environment,
    )
    time.sleep(0.4)
    process.send_signal(signal.SIGSTOP)
    time.sleep(5)
    process.send_signal(signal.SIGCONT)
    out, _ = process.communicate(timeout=30)
    assert [each["result"] for each in json.loads(out)["outcomes"]] == ["pass", "pass"]


def test_a_full_disk_is_reported_in_one_line(world: World) -> None:
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    ran = subprocess.run(
        world.command("--only", "well"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=world.environ(),
        cwd=world.environment,
        preexec_fn=no_room,
    )
    assert (ran.returncode, ran.stdout) == (3, "")
    assert ran.stderr.count("\n") == 1
    assert "TMPDIR" in ran.stderr


@pytest.mark.parametrize(
    ("environ", "named"),
    [
        ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR"),
        ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost"}, "MASTER_PORT"),
        ({"RANK": "one", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}, "RANK"),
        ({"RANK": "2", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}, "RANK"),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, "MASTER_ADDR"),
    ],
)
def test_a_rank_without_an_address_of_rank_0_is_an_input_error(
    world: World, environ: dict[str, str], named: str
) -> None:
    ran = subprocess.run(
        world.command("--only", "well"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=world.environ(environ),
        cwd=world.environment,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"envcheck: {named}: ")


def test_a_slurm_batch_script_is_not_a_rank(world: World) -> None:
    """A batch script has SLURM_PROCID=0 and the SLURM_NTASKS of its job, but srun did not start it."""
    outcomes = world.run(
        "--only", "well", environ={"SLURM_PROCID": "0", "SLURM_NTASKS": "8", "SLURM_JOB_ID": "17"}
    )
    assert outcomes["well"]["result"] == "pass"


def test_the_option_ranks_in_a_started_rank_is_an_input_error(world: World) -> None:
    ran = subprocess.run(
        world.command("--only", "well", "--ranks", "4"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=world.environ({"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "1"}),
        cwd=world.environment,
    )
    assert ran.returncode == 2
    assert "--ranks" in ran.stderr
