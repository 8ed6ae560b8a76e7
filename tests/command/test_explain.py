"""Explaining logs, through the real command: the first cause, what is known of it, whether it holds here.

The logs in `logs/real` were written by real failures (torch 2.13, DeepSpeed 0.14.2 and 0.19.8, two ranks of
torchrun), their paths made neutral.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess  # noqa: TID251 - tests are users
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envcheck.commands import loading
from envcheck.core import sanitize
from envcheck.knowledge import log_signatures
from envcheck.logs import diagnosis as log_diagnosis
from envcheck.logs import scanner as log_scanner
from envcheck.logs.events import Frame, Log, Raised
from envcheck.logs.line_format import log_patterns
from tests.support.hostile import SECRETS
from tests.support.paths import DATA
from tests.support.running import Outcome, envcheck, invocation, surroundings

REAL = DATA / "logs/real"
TREE = loading.source_tree()
LOOK = log_patterns(TREE["tables"])
SIGNATURES = log_signatures.compile_signatures(TREE["case"])
RULE = "deepspeed-elastic-socket-import-torch24"

FACTS = 'complete = ["pkg"]\n[pkg]\ntorch = "{torch}"\ndeepspeed = "{deepspeed}"\n'


def read(text: str | bytes, size: int = 1 << 20) -> Log:
    data = text.encode() if isinstance(text, str) else text
    scanner = log_scanner.Scanner(LOOK)
    for begin in range(0, len(data), size):
        scanner.feed(data[begin : begin + size])
    return scanner.finish()


def diagnosed(text: str | bytes) -> log_diagnosis.Diagnosis:
    return log_diagnosis.diagnose(read(text), SIGNATURES)


def cause_of(text: str | bytes) -> log_diagnosis.Cause:
    cause = diagnosed(text).cause
    assert cause is not None
    return cause


def explained(log: str | Path, *more: str, cwd: Path | None = None) -> tuple[int, dict[str, Any]]:
    code, out, err = envcheck("explain", str(log), "--json", *more, cwd=cwd)
    assert err == ""
    tree: dict[str, Any] = json.loads(out)
    return code, tree


@pytest.fixture
def facts(tmp_path: Path) -> str:
    path = tmp_path / "facts.toml"
    path.write_text(FACTS.format(torch="2.4.0", deepspeed="0.14.2"))
    return str(path)


def one_line(ran: Outcome, code: int, said: str) -> None:
    assert (ran.code, ran.out) == (code, "")
    assert len(ran.err.splitlines()) == 1
    assert said in ran.err
    assert "Traceback" not in ran.err


# --- what real failures look like ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind", "what", "ranks"),
    [
        ("user-error", "code", "KeyError", ("1",)),
        ("user-error-plain", "code", "KeyError", ("1",)),
        ("killed", "killed", "", ("1",)),
        ("segv", "crash", "", ("1",)),
        ("worker", "code", "ValueError", ()),
        ("chained", "code", "KeyError", ()),
        ("group", "code", "ValueError", ()),
        ("pool", "code", "ZeroDivisionError", ()),
        ("memory", "memory", "RuntimeError", ()),
        ("disk", "disk", "OSError", ()),
        ("hub", "network", "huggingface_hub.errors.LocalEntryNotFoundError", ()),
        ("weights", "version", "_pickle.UnpicklingError", ()),
        ("progress", "setting", "RuntimeError", ()),
        ("ds0142", "version", "ImportError", ()),
        ("ds0142-ranks", "version", "ImportError", ("0", "1")),
    ],
)
def test_the_first_cause_of_a_real_failure(name: str, kind: str, what: str, ranks: tuple[str, ...]) -> None:
    cause = cause_of((REAL / f"{name}.log").read_bytes())
    assert (cause.kind, cause.event.ranks) == (kind, ranks)
    assert (cause.event.exceptions[0].name if cause.event.exceptions else "") == what


@pytest.mark.parametrize("name", sorted(path.stem for path in REAL.glob("*.log")))
@pytest.mark.parametrize("size", [1, 997])
def test_a_log_reads_the_same_in_any_chunks(name: str, size: int) -> None:
    data = (REAL / f"{name}.log").read_bytes()
    # Where a run trains is known to a block of bytes only; the rest is the same to the line.
    assert read(data, size)._replace(progress=()) == read(data)._replace(progress=())


def test_consequences_of_the_cause_are_reported_as_such() -> None:
    diagnosis = diagnosed((REAL / "user-error-plain.log").read_bytes())
    said = [cause.event.exceptions[0].name for cause in diagnosis.consequences if cause.event.exceptions]
    assert said == ["RuntimeError", "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"]
    assert [cause.event.code for cause in diagnosis.consequences if cause.event.what == "ended"] == [-15, 1]


def test_the_innermost_frame_is_that_of_the_first_exception() -> None:
    cause = cause_of((REAL / "worker.log").read_bytes())
    assert cause.place is not None
    assert (Path(cause.place.file).name, cause.place.line) == ("worker.py", 6)


# --- ranks, prefixes, progress bars -------------------------------------------------------------------

CAUSE = """Traceback (most recent call last):
  File "/home/ana/finetune.py", line 10, in <module>
    main()
  File "/home/ana/finetune.py", line 7, in main
    batch["labels"]
KeyError: 'labels'
""".splitlines()

ECHO = """Traceback (most recent call last):
  File "/home/ana/finetune.py", line 10, in <module>
    main()
  File "/opt/env/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py", line 3252, in all_reduce
    work.wait()
RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:4498.
""".splitlines()

WATCHDOG = (
    "[E1121 10:00:00.1 ProcessGroupNCCL.cpp:629] [Rank 0] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=1, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600081 milliseconds before timing out."
)


@settings(max_examples=60, deadline=None)
@given(
    st.data(),
    st.sampled_from(["[rank{}]: ", "[default{}]:", "{}: ", "[1,{}]<stderr>:", "(Worker pid=10{}) "]),
)
def test_the_first_cause_does_not_depend_on_how_two_ranks_interleave(
    data: st.DataObject, prefix: str
) -> None:
    echo = [*ECHO, WATCHDOG]
    turns = data.draw(st.permutations([0] * len(echo) + [1] * len(CAUSE)))
    left = [iter(echo), iter(CAUSE)]
    cause = cause_of("\n".join(prefix.format(rank) + next(left[rank]) for rank in turns))
    assert (cause.kind, cause.event.exceptions[0].name) == ("code", "KeyError")
    assert cause.place is not None
    assert cause.place.line == 7


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_ranks_without_a_prefix_that_fail_alike_are_one_cause(data: st.DataObject) -> None:
    turns = data.draw(st.permutations([0] * len(CAUSE) + [1] * len(CAUSE)))
    left = [iter(CAUSE), iter(CAUSE)]
    cause = cause_of("\n".join(next(left[rank]) for rank in turns))
    assert cause.event.exceptions[0].name == "KeyError"


@pytest.mark.parametrize(
    "prefix",
    [
        "[rank3]: ",
        "[3]: ",
        "[default3]:",
        "3: ",
        " 3: ",
        "(TaskRunner pid=123) ",
        "(pid=123, ip=10.0.0.1) ",
        "\x1b[36m(RayTrainWorker pid=7, ip=10.0.0.2)\x1b[0m ",
        "2026-11-21T10:00:00.123456789Z ",
        "2026-11-21T10:00:00.123456789Z [rank3]: ",
        "worker-0: [rank3]: ",
        "10.0.0.4: ",
        "[pod/train-0/pytorch] ",
        "trainer-1  | ",
        "Nov 21 10:00:00 node7 torchrun[77]: ",
        "[1,3]<stderr>: ",
        " 12%|█▏        | 12/100 [00:01<00:09,  9.71it/s]",
        "\x1b[31m",
    ],
)
def test_prefixes_of_launchers_are_removed(prefix: str) -> None:
    cause = cause_of("".join(f"{prefix}{line}\n" for line in CAUSE))
    assert cause.event.exceptions == (
        Raised("KeyError", "'labels'", Frame("/home/ana/finetune.py", 7, "main"), 'batch["labels"]'),
    )


def test_a_traceback_after_a_progress_bar_that_ended_no_line() -> None:
    bars = "".join(f"\r {n}%|█         | {n}/100 [00:01<00:09,  9.71it/s]" for n in range(30))
    cause = cause_of(bars + "\n".join(CAUSE))
    assert cause.event.exceptions[0].name == "KeyError"
    assert cause.event.first == 1


def test_the_cause_may_lie_far_from_the_end() -> None:
    noise = "".join(f"[rank{n % 8}]:{WATCHDOG} {n}\n" for n in range(4000))
    late = "\n".join(CAUSE).replace("KeyError: 'labels'", "RuntimeError: the process group was left behind")
    text = "\n".join(f"[rank3]: {line}" for line in CAUSE) + f"\n{noise}{late}\n"
    assert cause_of(text).event.ranks == ("3",)


def test_the_rank_that_torchrun_saw_first_is_the_cause() -> None:
    text = (REAL / "user-error-plain.log").read_text()
    other = "\n".join(f"[rank0]: {line}" for line in CAUSE).replace("KeyError: 'labels'", "ValueError: late")
    assert cause_of(f"{other}\n{text}").event.ranks == ("1",)


def test_each_table_of_torchrun_names_its_own_root() -> None:
    text = (REAL / "killed.log").read_text()
    roots = [
        (each.ranks, each.code)
        for each in read(text + text.replace("rank      : 0", "rank      : 5")).events
        if each.root
    ]
    assert roots == [(("1",), -9)]


def test_an_error_that_the_run_survived_is_not_the_cause() -> None:
    first = "\n".join(CAUSE).replace("KeyError: 'labels'", "ValueError: a shard was skipped")
    steps = "".join(f"{{'loss': {1 / (n + 1):.4f}}}\n" for n in range(2000))
    diagnosis = diagnosed(f"{first}\n{steps}{chr(10).join(CAUSE)}\n")
    assert diagnosis.cause is not None
    assert diagnosis.cause.event.exceptions[0].name == "KeyError"
    assert [each.event.exceptions[0].name for each in diagnosis.survived] == ["ValueError"]


def test_consequences_alone_are_not_a_cause() -> None:
    diagnosis = diagnosed("\n".join(ECHO))
    assert diagnosis.cause is None
    assert diagnosis.failed


def test_a_log_without_a_failure() -> None:
    diagnosis = diagnosed("".join(f"{{'loss': {n}.5, 'epoch': 0.1}}\n" for n in range(100)))
    assert diagnosis == log_diagnosis.Diagnosis(None)


# --- signatures ---------------------------------------------------------------------------------------


def test_exception_texts_stay_whole_whatever_surrounds_them() -> None:
    said = "RuntimeError: Weights only load failed. In PyTorch 2.6 …\n\nWeightsUnpickler error: Unsupported global: "
    said += "GLOBAL numpy.core.multiarray._reconstruct was not an allowed global by default."
    text = "\n".join(CAUSE[:-1]) + "\n" + said
    assert "resume-transformers4463-torch260" in {each.signature.case for each in diagnosed(text).matches}


def test_a_partial_signature_is_not_a_match() -> None:
    diagnosis = diagnosed((REAL / "progress.log").read_bytes())
    assert {each.signature.case for each in diagnosis.matches} == {"devices-differ"}
    assert {each.signature.rule for each in diagnosis.partial} == {"zero3-cpu-offload-grad-norm-device"}


# --- here ---------------------------------------------------------------------------------------------


def matches_of(tree: dict[str, Any], rule: str) -> list[dict[str, Any]]:
    return [each for each in tree["matches"] if each["rule"] == rule]


def test_a_match_whose_conditions_hold_here_comes_with_ways_out_that_were_tried(facts: str) -> None:
    code, tree = explained(REAL / "ds0142.log", "--facts", facts)
    first = matches_of(tree, RULE)[0]
    assert (code, first["fits_here"], first["of_the_cause"]) == (1, "yes", True)
    assert "pkg.deepspeed = 0.14.2" in first["because"]
    assert first["fix"][0]["tried"]
    assert first["fix"][0]["commands"] == ["\"$PYTHON\" -m pip install 'deepspeed==0.14.4'"]
    assert first["lines"] == [25]
    assert 0 < first["score"] <= 1
    assert tree["cause"]["exceptions"][0]["place"].endswith("elastic_agent.py:9 in <module>")


def test_fixes_that_do_not_help_are_listed_too(tmp_path: Path) -> None:
    facts = tmp_path / "facts.toml"
    train = "zero_stage = 3, adapter = 'lora', gradient_checkpointing = true, use_reentrant = false"
    facts.write_text(
        FACTS.format(torch="2.6.0", deepspeed="0.16.4") + f"[train]\n{train.replace(', ', chr(10))}\n"
    )
    log = str(DATA / "logs/zero3-lora-trl-2514.log")
    usual = envcheck("explain", log, "--facts", str(facts)).out
    assert "    no fix  " not in usual
    out = envcheck("explain", log, "--facts", str(facts), "--verbose").out
    assert "    fix     deepspeed >=0.19.3\n" in out
    assert "    no fix  train.zero_sub_group_size = 1000000 (it is the tile size of the optimizer step" in out
    (match, *_) = json.loads(envcheck("explain", log, "--facts", str(facts), "--json").out)["matches"]
    assert {"train.zero_sub_group_size": 1000000} in [each["set"] for each in match["no_fix"]]


def test_a_match_that_does_not_hold_here_advises_nothing(tmp_path: Path) -> None:
    (tmp_path / "facts.toml").write_text(FACTS.format(torch="2.4.0", deepspeed="0.16.0"))
    _, tree = explained(REAL / "ds0142.log", "--facts", str(tmp_path / "facts.toml"))
    first = matches_of(tree, RULE)[0]
    assert (first["fits_here"], first["fix"]) == ("no", [])
    assert first["because"] == ["pkg.deepspeed is 0.16.0, not >=0.14.1,<0.14.4"]
    text = envcheck("explain", str(REAL / "ds0142.log"), "--facts", str(tmp_path / "facts.toml")).out
    assert "its fixes do not apply" in text
    assert "pip install" not in text


def test_facts_that_are_missing_for_a_verdict_are_named(tmp_path: Path) -> None:
    (tmp_path / "facts.toml").write_text('[pkg]\ntorch = "2.4.0"\n')
    _, tree = explained(REAL / "ds0142.log", "--facts", str(tmp_path / "facts.toml"))
    first = matches_of(tree, RULE)[0]
    assert (first["fits_here"], first["because"]) == ("cannot tell", ["pkg.deepspeed"])
    assert not any(each["tried"] for each in first["fix"])


def test_versions_that_the_log_prints_are_facts_where_no_environment_is_given(tmp_path: Path) -> None:
    head = "PyTorch version: 2.4.0+cu121\nPython version: 3.11.9 (main) (64-bit runtime)\nDeepSpeed info: "
    head += "version=0.14.2, git-hash=unknown, git-branch=unknown\nGPU 0: NVIDIA A100-SXM4-80GB\n"
    log = tmp_path / "train.log"
    log.write_text(head + (REAL / "ds0142.log").read_text())
    code, tree = explained(log, cwd=tmp_path)
    first = matches_of(tree, RULE)[0]
    assert (code, first["fits_here"]) == (1, "yes")
    said = {each["key"]: (each["value"], each["source"]) for each in tree["facts_from_log"]}
    assert said["pkg.torch"] == ("2.4.0+cu121", "log line 1")
    assert said["pkg.deepspeed"] == ("0.14.2", "log line 3")
    assert said["python.version"] == ("3.11.9", "log line 2")
    assert said["gpu.name"] == ("NVIDIA A100-SXM4-80GB", "log line 4")


def test_a_log_that_contradicts_itself_leaves_the_fact_unknown(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("PyTorch version: 2.4.0\nPyTorch version: 2.6.0\n" + (REAL / "ds0142.log").read_text())
    _, tree = explained(log, cwd=tmp_path)
    (torch,) = (each for each in tree["facts_from_log"] if each["key"] == "pkg.torch")
    assert torch["value"] is None
    assert "2.4.0 in line 1 and 2.6.0 in line 2" in torch["why"]
    assert matches_of(tree, RULE)[0]["fits_here"] == "cannot tell"


@pytest.mark.parametrize(
    "listing",
    [
        "Package    Version     Editable project location\n---------- ----------- ---\ntorch 2.4.0+cu121\ndeepspeed  0.14.2\n",
        "a==1\nb==2\ntorch==2.4.0\ndeepspeed==0.14.2\nzz==3\n",
        "# Name                    Version                   Build  Channel\ntorch 2.4.0 pypi_0 pypi\ndeepspeed  0.14.2  pypi_0    pypi\n",
    ],
    ids=["pip list", "pip freeze", "conda list"],
)
def test_lists_of_packages_are_read(listing: str, tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(f"+ pip\n{listing}\n" + (REAL / "ds0142.log").read_text())
    _, tree = explained(log, cwd=tmp_path)
    assert matches_of(tree, RULE)[0]["fits_here"] == "yes"


def test_a_version_mentioned_in_passing_is_not_a_fact(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    said = "ERROR: Could not find torch==2.1.2\nneeds torch==2.1.2\ntorch==2.1.2\n"
    log.write_text(said + (REAL / "ds0142.log").read_text())
    _, tree = explained(log, cwd=tmp_path)
    assert "pkg.torch" not in {each["key"] for each in tree["facts_from_log"]}


def test_the_named_environment_counts_and_a_different_one_in_the_log_is_noted(
    facts: str, tmp_path: Path
) -> None:
    log = tmp_path / "train.log"
    log.write_text("PyTorch version: 2.6.0\n" + (REAL / "ds0142.log").read_text())
    _, tree = explained(log, "--facts", facts)
    assert matches_of(tree, RULE)[0]["fits_here"] == "yes"
    assert tree["log"]["notes"] == ["the log describes another environment: torch 2.6.0 (line 1), here 2.4.0"]


# --- the report ---------------------------------------------------------------------------------------


def test_without_a_match_the_report_points_to_doctor(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("\n".join(CAUSE).replace("KeyError: 'labels'", "RuntimeError: the flux is out of phase"))
    ran = envcheck("explain", str(log))
    assert ran.code == 3
    assert "No known failure matches; envcheck doctor" in ran.out


def test_no_failure_is_exit_code_0(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text("step 1 loss 0.5\nstep 2 loss 0.4\n")
    ran = envcheck("explain", str(tmp_path / "train.log"))
    assert (ran.code, ran.out.splitlines()[0]) == (0, "No failure found in this log.")


ELASTIC = f"""{CAUSE[0]}
  File "/env/site-packages/deepspeed/elasticity/elastic_agent.py", line 9, in <module>
    from torch.distributed.elastic.agent.server.api import log
ImportError: cannot import name 'log' from 'torch.distributed.elastic.agent.server.api' (/env/api.py)
"""
KNOWN = "DeepSpeed before 0.14.1 cannot be imported beside torch 2.4 or newer"


@pytest.mark.parametrize(
    ("text", "versions", "first"),
    [
        (ELASTIC, None, f"Known failure: {KNOWN}"),
        (ELASTIC, ("2.4.0", "0.14.0"), f"Known failure, and it applies here: {KNOWN}"),
        (ELASTIC, ("2.3.1", "0.14.0"), "Failed; the known failure that it resembles does not apply here: "),
        ("RuntimeError: the flux is out of phase\n", None, "Failed, cause not known: RuntimeError: the flux"),
        ("ModuleNotFoundError: No module named 'flash_attn'\n", None, "Failed: "),
        ("ModuleNotFoundError: No module named 'torch'\n", None, "Failed: torch is not installed"),
        ("ImportError: cannot import name 'x' from 'peft' (/e/site-packages/peft/__init__.py)\n", None, "Failed: no release of peft (0.0.1 to "),
        ("Bus error (core dumped)\n", None, "Failed: Bus error (core dumped). Possible problem: Shared memory is too small"),
        ("step 1 loss 0.5\n", None, "No failure found in this log."),
    ],
)  # fmt: skip
def test_the_first_line_is_the_answer(
    text: str, versions: tuple[str, str] | None, first: str, tmp_path: Path
) -> None:
    (tmp_path / "train.log").write_text(text)
    options = []
    if versions:
        (tmp_path / "facts.toml").write_text(FACTS.format(torch=versions[0], deepspeed=versions[1]))
        options = ["--facts", str(tmp_path / "facts.toml")]
    ran = envcheck("explain", str(tmp_path / "train.log"), *options)
    assert ran.out.splitlines()[0].startswith(first)
    quiet = envcheck("explain", str(tmp_path / "train.log"), *options, "--quiet")
    assert quiet.out == ran.out.splitlines()[0] + "\n"


def test_the_fix_comes_before_the_evidence_and_reasons_only_in_full(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(ELASTIC)
    usual = envcheck("explain", str(tmp_path / "train.log")).out
    assert usual.index("    fix  ") < usual.index("    here  ")
    assert not [part for part in ("    text  ", "    source  ", "score") if part in usual]
    assert "    why  " not in usual
    in_full = envcheck("explain", str(tmp_path / "train.log"), "--verbose").out
    assert in_full.index("    fix  ") < in_full.index("    here  ") < in_full.index("    text  ")
    assert "(score 0." in in_full
    assert "    why     Its elastic agent imports a logger" in in_full


def test_the_report_speaks_the_language_asked_for(tmp_path: Path) -> None:
    (tmp_path / "train.log").write_text(ELASTIC)
    ran = envcheck("explain", str(tmp_path / "train.log"), "--lang", "zh")
    assert "0.14.1 之前的 DeepSpeed 与 torch 2.4 及更新版本一起无法导入" in ran.out.splitlines()[0]
    assert ran.out.startswith("已知故障")


KEY = next(each.text for each in SECRETS if each.text.startswith("-----") and each.text.count("\n") > 2)
LOG_SECRETS = {
    "https://ana:hunter22@example.org/x?token=sekret1&a=1": ("hunter22", "sekret1"),
    "HF_TOKEN=hf_abcdefghijklmnopqrstuvwxyz012345": ("hf_abc",),
    "Authorization: Bearer abcdefgh.sekret2": ("sekret2",),
    "--hub_token sekret3 --output_dir out": ("sekret3",),
    "{'api_key': 'sekret4', 'n': 3}": ("sekret4",),
    "WANDB_API_KEY=0123456789abcdef0123456789abcdef01234567": ("0123456789abcdef",),
    "AWS_SECRET_ACCESS_KEY='sekret5'": ("sekret5",),
    KEY.replace("\n", " "): tuple(KEY.split("\n")[1:-1]),
}


@pytest.mark.parametrize("more", [(), ("--json",)])
def test_a_token_in_a_requirement_is_not_repeated(more: tuple[str, ...], tmp_path: Path) -> None:
    token = "ghp_" + "a1" * 18
    log = tmp_path / "pip.log"
    log.write_text(
        "ERROR: pip's dependency resolver does not currently take into account all the packages that are "
        f"installed.\nfoo 1.0 requires bar==https://me:{token}@example.org/bar, but you have bar 2.0 which is "
        "incompatible.\n"
    )
    ran = envcheck("explain", str(log), *more)
    assert "foo 1.0 requires bar==https://" in ran.out
    assert token not in ran.out


@pytest.mark.parametrize("text", LOG_SECRETS)
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_secrets_in_a_log_are_not_repeated(text: str, more: tuple[str, ...], tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    traceback = "\n".join(CAUSE).replace("'labels'", f"{text} is missing")
    log.write_text(
        f"+ torchrun finetune.py {text} --use_lora true\n{text}\n{traceback}\nRuntimeError: fail {text}\n"
    )
    ran = envcheck("explain", str(log), *more)
    assert "is missing" in ran.out
    for secret in LOG_SECRETS[text]:
        assert secret not in ran.out + ran.err


def test_a_key_on_several_lines_of_a_log_is_not_repeated(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("\n".join(CAUSE).replace("'labels'", f"cannot load\n{KEY}\nerror: of this key"))
    for more in ((), ("--json",)):
        ran = envcheck("explain", str(log), *more)
        assert not any(line in ran.out for line in KEY.split("\n")[1:-1])


def test_control_characters_in_a_log_do_not_reach_the_terminal(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("\n".join(CAUSE).replace("'labels'", "\x1b]0;owned\x07 \u202egnp.exe\x00"))
    out = envcheck("explain", str(log)).out
    assert not {"\x1b", "\x07", "\u202e", "\x00"} & set(out)


# --- input --------------------------------------------------------------------------------------------


def test_gzip_is_read_up_to_the_damage(tmp_path: Path) -> None:
    data = gzip.compress((REAL / "killed.log").read_bytes())
    log = tmp_path / "train.log.gz"
    log.write_bytes(data + data)
    code, tree = explained(log)
    assert (code, tree["cause"]["kind"], tree["log"]["lines"]) == (1, "killed", 104)
    log.write_bytes(
        gzip.compress((REAL / "killed.log").read_bytes() + b"".join(b"%d " % (n * n) for n in range(9000)))[
            :-500
        ]
    )
    code, tree = explained(log)
    assert (code, tree["cause"]["kind"]) == (1, "killed")
    assert tree["log"]["notes"] == ["its gzip data is truncated: only the part before the end was read"]
    log.write_bytes(data[:200] + b"\xff" * 300)
    assert "its gzip data" in envcheck("explain", str(log)).out


def test_standard_input_is_read_to_its_end() -> None:
    ran = subprocess.run(
        invocation("explain"),
        input=(REAL / "user-error-plain.log").read_bytes(),
        capture_output=True,
        timeout=60,
        check=False,
        env=surroundings(),
    )
    assert (ran.returncode, b"rank 1, lines 7-13: KeyError" in ran.stdout) == (1, True)


def test_a_pipe_that_is_interrupted_is_explained_as_far_as_it_came(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    running = subprocess.Popen(
        invocation("explain", str(tmp_path / "pipe")), stdout=subprocess.PIPE, env=surroundings()
    )
    with (tmp_path / "pipe").open("wb") as pipe:
        pipe.write((REAL / "user-error-plain.log").read_bytes())
        pipe.flush()
        time.sleep(0.5)
        running.send_signal(2)
        out, _ = running.communicate(timeout=60)
    assert b"KeyError" in out
    assert b"interrupted" in out


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    one_line(envcheck("explain", str(tmp_path / "none.log")), 2, "no such file")
    one_line(envcheck("explain", str(tmp_path)), 2, "expected a file, found a directory")
    (tmp_path / "model.bin").write_bytes(bytes(range(256)) * 10 + bytes(5000))
    one_line(envcheck("explain", str(tmp_path / "model.bin")), 2, "found binary data")
    one_line(envcheck("explain", str(REAL / "hub.log"), "--facts", "none.toml"), 2, "none.toml")


@pytest.mark.parametrize("content", [b"", b" \n\n"])
def test_an_empty_log_is_called_so(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "empty.log").write_bytes(content)

    ran = envcheck("explain", str(tmp_path / "empty.log"))

    assert ran.code == 3
    assert ran.out.splitlines()[0].startswith("The log is empty")
    assert "No known failure matches" not in ran.out


# What a process has used counts what its parent had when it was started, and pytest has much: a small one between.
PEAK = """import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)  # KiB
sys.exit(code)
"""


def test_a_line_without_an_end_is_read_in_bounded_memory(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    bar = b"".join(b"\r %d%%|#####     | %d/100 [00:01<00:09,  9.71it/s]" % (n, n) for n in range(100))
    with log.open("wb") as file:
        for _ in range(30000):
            file.write(bar)
        file.write("\n".join(["", *CAUSE]).encode())
    words = [sys.executable, "-c", PEAK, *invocation("explain", str(log), "--json")]
    ran = subprocess.run(words, capture_output=True, timeout=60, check=False, env=surroundings())
    tree = json.loads(ran.stdout)
    assert (ran.returncode, tree["cause"]["exceptions"][0]["name"]) == (1, "KeyError")
    assert tree["cause"]["lines"] == [2, 7]
    assert int(ran.stderr) < 100 * 1024


def test_a_line_of_words_without_an_end_still_shows_what_it_says() -> None:
    data = (
        b"x " * (3 << 20) + b"RuntimeError: CUDA out of memory. Tried to allocate 2 GiB" + b" y" * (3 << 20)
    )
    assert cause_of(data).kind == "memory"


def test_an_error_without_a_traceback_is_a_failure() -> None:
    said = "Collecting torch==2.1.2\nERROR: No matching distribution found for torch==2.1.2\n"
    cause = cause_of(said)
    assert (cause.kind, cause.event.what) == ("version", "stated")


def test_a_known_warning_is_not_a_failure() -> None:
    said = "Detected kernel version 5.4.0, which is below the recommended minimum of 5.5.0; this can hang.\n"
    diagnosis = diagnosed(said)
    assert not diagnosis.failed
    assert [each.signature.case for each in diagnosis.matches] == ["kernel-54-accelerate"]


def test_many_different_errors_stay_in_bounded_memory_and_the_last_counts() -> None:
    words = ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta")
    text = "".join(
        f"error: {words[n % 8]} {words[n // 8 % 8]} {words[n // 64 % 8]} {words[n // 512 % 8]} {'x' * (n % 7000)}\n"
        for n in range(4000)
    )
    log = read(text + (REAL / "killed.log").read_text())
    assert sum(len(each.text) for each in log.events) < 16 << 20
    assert cause_of(text + (REAL / "killed.log").read_text()).kind == "killed"


@pytest.mark.parametrize(
    "line",
    [
        "RuntimeError: " + "a." * 8000,
        "error " + "12it/s " * 3000,
        "error" + " " * 16000,
        "1234567890" * 1600 + "error",
    ],
    ids=["dots", "bars", "spaces", "digits"],
)
def test_no_line_makes_a_pattern_slow(line: str) -> None:
    began = time.process_time()
    diagnosed(f"{line}\n" * 20)
    sanitize.hide_secrets(line[:4000])
    assert time.process_time() - began < 10


# --- forms of tracebacks that Python does not print itself ------------------------------------------------

RICH = """\
╭───────────────────── Traceback (most recent call last) ──────────────────────╮
│ /home/li/glm/main.py:430 in <module>                                         │
│ ❱ 430 │   main()                                                             │
│                                                                              │
│ /opt/conda/lib/python3.10/site-packages/transformers/trainer/a_long_file_nam │
│ e.py:12 in train                                                             │
╰──────────────────────────────────────────────────────────────────────────────╯
ValueError: 4242 is not in the list
"""
NOTEBOOK = """\
---------------------------------------------------------------------------
TypeError                                 Traceback (most recent call last)
Cell In[7], line 3
      1 model = load()
----> 3 train(model)

File ~/env/lib/python3.11/site-packages/tqdm/std.py:1181, in tqdm.__iter__(self)
-> 1181     for obj in iterable:

TypeError: the batch holds no text
"""
BAR = """\
Epoch:   0%|          | 0/3 [00:00<?, ?it/sTraceback (most recent call last):      | 0/40 [00:00<?, ?it/s]
  File "train.py", line 7, in <module>
    main()
RuntimeError: the third batch is odd
"""
UNREADABLE = """\
  File "/home/li/train.py", line 12
    print("x"
         ^
SyntaxError: '(' was never closed
"""
MARKED = """\
  File "/home/li/train.py", line 12
    print("x"
ValueError: the source line looks like an error
SyntaxError: '(' was never closed
step 3 loss 0.2
"""
RAY = """\
Traceback (most recent call last):
  File "/home/li/ppo.py", line 448, in <module>
    ray.get(refs)
ray.exceptions.RayTaskError(RuntimeError): ray::Actor.fit() (pid=14, ip=10.0.0.1, actor_id=a1, repr=<Actor>)
  File "/home/li/actor.py", line 43, in fit
    step()
RuntimeError: the third batch is odd
"""


@pytest.mark.parametrize(
    ("text", "name", "message", "file"),
    [
        (RICH, "ValueError", "4242 is not in the list", None),
        (NOTEBOOK, "TypeError", "the batch holds no text", "~/env/lib/python3.11/site-packages/tqdm/std.py"),
        (BAR, "RuntimeError", "the third batch is odd", "train.py"),
        (UNREADABLE, "SyntaxError", "'(' was never closed", "/home/li/train.py"),
        (MARKED, "SyntaxError", "'(' was never closed", "/home/li/train.py"),
        (RAY, "RuntimeError", "the third batch is odd", "/home/li/actor.py"),
        (
            "".join(f"stderr: {line}\n" for line in BAR.splitlines()),
            "RuntimeError",
            "the third batch is odd",
            "train.py",
        ),
    ],
    ids=["rich", "notebook", "bar", "unreadable", "marked like an error", "ray", "stderr"],
)
def test_a_traceback_is_read_however_it_is_drawn(
    text: str, name: str, message: str, file: str | None
) -> None:
    cause = cause_of("loaded\n" + text + "bye\n")
    first = cause.event.exceptions[0]
    assert (first.name, first.message) == (name, message)
    assert (first.place.file if first.place else None) == file


def test_a_message_that_begins_on_a_line_of_its_own_is_the_message() -> None:
    head = 'Traceback (most recent call last):\n  File "/opt/site-packages/x/y.py", line 3, in f\n    g()\n'
    told = cause_of(f"{head}ImportError:\nModel requires torch.\n").event.exceptions[0]
    bare = cause_of(f"{head}AssertionError\nbye now\n").event.exceptions[0]
    assert (told.message, bare.message) == ("Model requires torch.", "")


def test_configuration_diagnostics_are_shown_beside_the_cause(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('Traceback (most recent call last):\n  File "a.py", line 1\nKeyError: 3\n')
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": 3}, "gradient_cliping": 1.0}')
    (tmp_path / "other.json").write_text('{"zero_optimization":')
    words = ("explain", "log", "--train", "ds.json", "--train", "other.json")
    ran = envcheck(*words, cwd=tmp_path)
    assert "\nremark  other.json:1:22: error: not JSON: " in ran.out
    assert "\nremark  ds.json:1:37: warning: gradient_cliping is not a setting of deepspeed" in ran.out
    told = json.loads(envcheck(*words, "--json", cwd=tmp_path).out)["remarks"]
    assert [each["code"] for each in told] == ["unreadable", "unknown-key"]


# --- what is never left unsaid ------------------------------------------------------------------------

NO_FACTS = ("--facts", os.devnull)


@pytest.mark.parametrize(
    "line",
    [
        "ModuleNotFoundError: No module named 'flash_attn'",
        "Segmentation fault (core dumped)",
        "CheckpointError: the flux differs",
        "RuntimeError: NCCL error: unhandled system error",
        "torch.distributed.DistBackendError: something with NCCL",
        "ERROR: Could not install packages due to an OSError",
        "ImportError: cannot import name 'x' from 'y'",
    ],
)
def test_a_failure_of_one_line_is_never_exit_code_0(line: str, tmp_path: Path) -> None:
    (tmp_path / "log").write_text(f"{line}\n")
    ran = envcheck("explain", "log", cwd=tmp_path)
    assert ran.code in (1, 3)
    assert line in ran.out


def test_a_message_that_says_what_to_do_outweighs_its_condition(tmp_path: Path) -> None:
    said = "ValueError: GRPO with vLLM is not compatible with device_map. Please set NPROC_PER_NODE equal to num_processes."
    (tmp_path / "log").write_text(f"{said}\n")
    out = envcheck("explain", "log", cwd=tmp_path).out
    assert "self.use_vllm" in out
    assert "this depends on" not in out


def test_the_line_of_a_lazy_import_is_not_blamed_for_the_name(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        "Traceback (most recent call last):\n"
        f'  File "{SITE}/peft/tuners/lora/gptq.py", line 19, in <module>\n    from peft.layer import LoraLayer\n'
        "RuntimeError: Failed to import transformers.modeling_utils because of the following error (look up to see "
        "its traceback):\ncannot import name 'DiagnosticOptions' from 'torch.onnx._internal.exporter' (/e/torch/x.py)\n"
    )
    out = envcheck("explain", "log", cwd=tmp_path).out
    assert "this release of torch does not have DiagnosticOptions" in out
    assert "peft asks" not in out
    assert "failed is in peft" not in out


def test_a_package_that_lacks_its_own_name_is_two_releases_in_one(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        "Traceback (most recent call last):\n"
        f'  File "{SITE}/transformers/trainer.py", line 9, in <module>\n    from .utils import check_peft_version\n'
        f"ImportError: cannot import name 'check_peft_version' from 'transformers.utils' ({SITE}/transformers/utils/__init__.py)\n"
    )
    assert "uninstall transformers until pip finds none" in envcheck("explain", "log", cwd=tmp_path).out


def test_a_class_that_lacks_an_attribute_is_not_blamed_on_the_users_line(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        "Traceback (most recent call last):\n"
        '  File "/srv/pretrain.py", line 49, in main\n    cfg = MegatronGPTSFTModel.merge_cfg_with(path, cfg)\n'
        "AttributeError: type object 'MegatronGPTSFTModel' has no attribute 'merge_cfg_with'\n"
    )
    ran = envcheck("explain", "log", cwd=tmp_path)
    assert ran.code == 3
    assert "general the object has no such attribute in this release" in ran.out
    assert explained("log", cwd=tmp_path)[1]["cause"]["general"].startswith("the object has no such")


def test_a_peft_setting_of_the_users_own_call_is_no_newer_adapter(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        "Traceback (most recent call last):\n"
        '  File "train.py", line 80, in main\n    config = LoraConfig(r=8, use_dora=True)\n'
        "TypeError: LoraConfig.__init__() got an unexpected keyword argument 'use_dora'\n"
    )
    out = envcheck("explain", "log", cwd=tmp_path).out
    assert "saved by a newer PEFT" not in out
    assert "peft from 0.9.0 on" in out


def test_a_library_of_cuda_that_rocm_lacks_is_not_that_of_nvidias_driver(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        "[W326 11:03:17 HIPAllocatorConfig.h:29] Warning: expandable_segments not supported on this platform\n"
        "ImportError: libcuda.so.1: cannot open shared object file: No such file or directory\n"
    )
    out = envcheck("explain", "log", cwd=tmp_path).out
    assert "nvidia-smi" not in out
    assert "log of  ROCm" in out


@pytest.mark.parametrize("encoding", ["gb18030", "utf-16"])
def test_a_log_of_a_chinese_windows_is_read(encoding: str, tmp_path: Path) -> None:
    said = "PermissionError: [WinError 32] 另一个程序正在使用此文件 进程无法访问。: 'saves/tmp-checkpoint-500'\r\n"
    (tmp_path / "log").write_bytes(said.encode(encoding))
    ran = envcheck("explain", "log", cwd=tmp_path)
    assert ran.code == 1
    assert "另一个程序正在使用此文件" in ran.out
    assert "another program holds the file" in ran.out


def test_a_piece_of_utf_8_that_was_cut_is_not_read_as_chinese(tmp_path: Path) -> None:
    bar = "50%|█████".encode()[:-1]
    (tmp_path / "log").write_bytes(bar + b" ImportError: No module named 'diffusers'\n")
    out = envcheck("explain", "log", cwd=tmp_path).out
    assert "install diffusers into the environment that runs" in out


def test_mpi_that_ends_a_process_is_a_failure(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("*** An error occurred in MPI_Init_thread\n*** on a NULL communicator\n")
    ran = envcheck("explain", "log", cwd=tmp_path)
    assert ran.code == 3
    assert "mpirun" in ran.out


def test_a_missing_package_is_named_with_who_asks_for_it(tmp_path: Path) -> None:
    frame = (
        '  File "/e/lib/python3.11/site-packages/transformers/a.py", line 3, in <module>\n    import cv2\n'
    )
    said = "ModuleNotFoundError: No module named 'cv2'"
    (tmp_path / "log").write_text(f"Traceback (most recent call last):\n{frame}{said}\n")
    code, tree = explained("log", cwd=tmp_path)
    assert (code, tree["cause"]["kind"]) == (1, "missing")
    assert (tree["missing"]["lacks"], tree["missing"]["asks"]) == ("opencv-python", "transformers")
    assert (
        "transformers imports cv2, of the package opencv-python"
        in envcheck("explain", "log", cwd=tmp_path).out
    )


def test_a_missing_name_is_told_with_both_packages_and_their_releases(tmp_path: Path) -> None:
    frame = (
        '  File "/e/lib/python3.11/site-packages/trl/core.py", line 3, in <module>\n    from peft import Q\n'
    )
    said = "ImportError: cannot import name 'BoneConfig' from 'peft' (/e/lib/python3.11/site-packages/peft/__init__.py)"
    (tmp_path / "log").write_text(f"Traceback (most recent call last):\n{frame}{said}\n")
    (tmp_path / "facts.toml").write_text('[pkg]\npeft = "0.11.1"\ntrl = "0.20.0"\n')
    ran = envcheck("explain", "log", "--facts", "facts.toml", cwd=tmp_path)
    assert "trl 0.20.0 asks for BoneConfig of peft, which peft 0.11.1 does not have" in ran.out


def test_a_name_of_a_half_imported_module_is_a_matter_of_ones_own_files(tmp_path: Path) -> None:
    said = "AttributeError: partially initialized module 'torch' has no attribute 'nn' (most likely due to a circular import)"
    frame = '  File "/home/li/torch.py", line 3, in <module>\n    torch.nn\n'
    (tmp_path / "log").write_text(f"Traceback (most recent call last):\n{frame}{said}\n")
    assert explained("log", cwd=tmp_path)[1]["cause"]["kind"] == "code"


@pytest.mark.parametrize(
    ("mark", "platform"),
    [
        ("[INFO] Setting ds_accelerator to npu (auto detect)", "Ascend"),
        ("torch: 2.6.0+rocm6.1", "ROCm"),
        ("torch 2.7.0+xpu", "Intel XPU"),
        ("Platform: macOS-14.5-arm64", "macOS"),
    ],
)
def test_a_log_of_another_platform_is_not_read_as_one_of_cuda(
    mark: str, platform: str, tmp_path: Path
) -> None:
    frame = '  File "/e/lib/python3.11/site-packages/torch/cuda/__init__.py", line 310, in _lazy_init\n'
    said = "AssertionError: Torch not compiled with CUDA enabled"
    (tmp_path / "log").write_text(f"{mark}\nTraceback (most recent call last):\n{frame}    raise\n{said}\n")
    code, tree = explained("log", cwd=tmp_path)
    assert (tree["platform"], tree["matches"]) == (platform, [])
    # What torch's own code says of the condition holds on every platform; that torch lacks CUDA is no advice here.
    assert (code, tree["cause"]["kind"]) == (1, "check")


def test_a_log_of_cuda_that_names_the_other_platforms_stays_one_of_cuda(tmp_path: Path) -> None:
    lines = "ROCM used to build PyTorch: N/A\nNPU available: False\nPyTorch XPU available: False\nMIOpen runtime version: N/A\n"
    (tmp_path / "log").write_text(lines + "\n".join(CAUSE))
    assert explained("log", cwd=tmp_path)[1]["platform"] is None


def test_the_banners_of_training_programs_are_read(tmp_path: Path) -> None:
    banner = (
        "- `llamafactory` version: 0.9.4.dev0\n- PyTorch version: 2.6.0+cu124 (GPU)\n- PEFT version: 0.15.2\n"
        "- GPU type: NVIDIA A100-SXM4-80GB\n- GPU number: 2\n- vLLM version: 0.8.5\n"
        "**** Axolotl Dependency Versions *****\n  accelerate: 0.30.1         \n        trl: 0.8.5\n\n"
        "==((====))==  Unsloth 2025.3.19: Fast Llama patching. Transformers: 4.50.3.\n"
    )
    (tmp_path / "log").write_text(banner + "\n".join(CAUSE))
    said = {each["key"]: each["value"] for each in explained("log", cwd=tmp_path)[1]["facts_from_log"]}
    assert {
        "pkg.peft": "0.15.2",
        "pkg.vllm": "0.8.5",
        "pkg.torch": "2.6.0+cu124",
        "pkg.trl": "0.8.5",
    }.items() <= said.items()
    assert {
        "pkg.unsloth": "2025.3.19",
        "pkg.transformers": "4.50.3",
        "pkg.accelerate": "0.30.1",
    }.items() <= said.items()
    assert (said["gpus.count"], said["gpu.name"]) == (2, "NVIDIA A100-SXM4-80GB")


def test_versions_that_are_known_to_fail_are_named_beside_an_unknown_failure(tmp_path: Path) -> None:
    (tmp_path / "facts.toml").write_text(FACTS.format(torch="2.4.0", deepspeed="0.14.2"))
    (tmp_path / "log").write_text("RuntimeError: the flux is out of phase\n")
    ran = envcheck("explain", "log", "--facts", "facts.toml", cwd=tmp_path)
    assert ran.code == 3
    assert f"[{RULE}]" in ran.out


def test_a_broken_rule_that_names_what_the_message_names_is_the_probable_cause(tmp_path: Path) -> None:
    (tmp_path / "facts.toml").write_text(FACTS.format(torch="2.4.0", deepspeed="0.14.2"))
    frame = '  File "/e/lib/python3.11/site-packages/{}/x.py", line 3, in f\n    f()\n'
    for package, name, code in (
        ("deepspeed", "_get_socket_with_port", 1),
        ("requests", "_get_socket_with_port", 3),
        ("deepspeed", "_get_other_socket", 3),
    ):
        said = f"RuntimeError: the torch here has lost {name}\n"
        (tmp_path / "log").write_text(f"Traceback (most recent call last):\n{frame.format(package)}{said}")
        ran = envcheck("explain", "log", "--facts", "facts.toml", cwd=tmp_path)
        assert ran.code == code
        assert ("  probable cause  " in ran.out) is (code == 1)


# --- what the code of libraries says -------------------------------------------------------------------


def test_a_message_that_a_library_raises_is_explained_by_its_code(tmp_path: Path) -> None:
    said = (
        "Not sure how to proceed, we were given deepspeed configs in the deepspeed arguments and "
        "deepspeed.initialize() function call"
    )
    frame = '  File "/e/lib/python3.11/site-packages/deepspeed/__init__.py", line 146, in initialize\n'
    (tmp_path / "log").write_text(
        f'Traceback (most recent call last):\n{frame}    assert config is None, "…"\nAssertionError: {said}\n'
    )
    ran = envcheck("explain", "log", cwd=tmp_path)
    assert ran.code == 1
    assert "    kind    a check that the library makes; its condition was met\n" in ran.out
    assert "raises it: deepspeed/__init__.py in initialize\n    when    config is set\n" in ran.out
    tree = explained("log", cwd=tmp_path)[1]
    assert (tree["cause"]["kind"], tree["library"]["raises"][0]["package"]) == ("check", "deepspeed")


def test_a_missing_attribute_of_a_librarys_class_is_told_with_the_releases_that_have_it(
    tmp_path: Path,
) -> None:
    (tmp_path / "log").write_text("AttributeError: 'GRPOConfig' object has no attribute 'num_iterations'\n")
    ran = envcheck("explain", "log", cwd=tmp_path)
    assert ran.code == 1
    assert ran.out.startswith(
        "Failed: AttributeError: 'GRPOConfig' object has no attribute 'num_iterations' (trl has it: from 0.16.0 on)\n"
    )
    assert "    has it  trl from 0.16.0 on: GRPOConfig.num_iterations\n" in ran.out


def test_a_method_that_overrides_another_is_told_with_what_both_take(tmp_path: Path) -> None:
    said = "TypeError: GRPOTrainer._get_train_sampler() takes 1 positional argument but 2 were given"
    (tmp_path / "log").write_text(f"{said}\n")
    ran = envcheck("explain", "log", cwd=tmp_path)
    assert ran.code == 1
    assert "takes   trl from 0.18.0 on: GRPOTrainer._get_train_sampler(self, dataset=)\n" in ran.out
    assert "takes   transformers from 4.52 on: Trainer._get_train_sampler(self, train_dataset=)\n" in ran.out


def test_an_attribute_that_a_library_sets_only_in_some_places_is_told_with_them(tmp_path: Path) -> None:
    said = "AttributeError: 'LlamaForCausalLM' object has no attribute '{}'\n"
    (tmp_path / "log").write_text(said.format("vllm_engine"))
    ran = envcheck("explain", "log", cwd=tmp_path)
    assert ran.code == 1
    assert "    kind    what a library sets only in some places was not set\n" in ran.out
    assert "unsloth/models/llama.py in FastLlamaModel." in ran.out
    assert "if fast_inference\n" in ran.out
    (tmp_path / "log").write_text(
        "AttributeError: 'Gemma3ModelOutputWithPast' object has no attribute 'loss'\n"
    )
    assert envcheck("explain", "log", cwd=tmp_path).code == 3
    (tmp_path / "log").write_text(said.format("engine_of_x"))
    assert envcheck("explain", "log", cwd=tmp_path).code == 3


def test_arguments_of_another_class_than_the_trainer_wants(tmp_path: Path) -> None:
    said = "AttributeError: 'TrainingArguments' object has no attribute 'model_init_kwargs'"
    (tmp_path / "log").write_text(f"{said}\n")
    ran = envcheck("explain", "log", cwd=tmp_path)
    assert ran.code == 1
    assert "RewardConfig.model_init_kwargs\n" in ran.out
    assert (
        "    advice  one of these classes is expected, and an object of another was made or put there\n"
        in ran.out
    )


def test_a_plain_parameter_where_a_quantized_one_is_expected(tmp_path: Path) -> None:
    for said, code in (("compress_statistics", 1), ("compress_ratio_x", 3)):
        (tmp_path / "log").write_text(f"AttributeError: 'Parameter' object has no attribute '{said}'\n")
        ran = envcheck("explain", "log", cwd=tmp_path)
        assert ran.code == code
        assert ("    has it  bitsandbytes from 0.39.0 on: Params4bit\n" in ran.out) is (code == 1)


def test_a_name_that_a_library_imports_only_beside_another(tmp_path: Path) -> None:
    frame = '  File "/e/lib/python3.10/site-packages/trl/trainer/utils.py", line 718, in get_peft_config\n'
    for name, code in (("LoraConfig", 1), ("LoraConfigs", 3)):
        said = f"NameError: name '{name}' is not defined\n"
        (tmp_path / "log").write_text(f"Traceback (most recent call last):\n{frame}    c = {name}(\n{said}")
        ran = envcheck("explain", "log", cwd=tmp_path)
        assert ran.code == code
        assert ("trl/trainer/utils.py, only if is_peft_available()\n" in ran.out) is (code == 1)


def test_a_keyword_that_newer_releases_pass_names_who_passes_it(tmp_path: Path) -> None:
    frame = '  File "/e/lib/python3.11/site-packages/{}", line 3, in f\n    return f(**inputs)\n'
    said = "TypeError: forward() got an unexpected keyword argument 'num_items_in_batch'\n"
    inner = frame.format("torch/nn/modules/module.py")
    for file, code in (("transformers/trainer.py", 1), ("lightning/loop.py", 3)):
        header = f"Traceback (most recent call last):\n{frame.format(file)}"
        (tmp_path / "log").write_text(f"{header}{inner}{said}")
        ran = envcheck("explain", "log", cwd=tmp_path)
        assert ran.code == code
        assert ("    passes  transformers from 4.46 on\n" in ran.out) is (code == 1)


def test_a_method_that_a_newer_base_calls_otherwise_names_both_releases(tmp_path: Path) -> None:
    file = "/e/lib/python3.11/site-packages/transformers/trainer.py"
    frame = f'  File "{file}", line 3, in training_step\n    loss = self.compute_loss(model, inputs)\n'
    calls = (
        "    calls   transformers.Trainer.compute_loss(num_items_in_batch=): called in transformers 4.46.0"
    )
    for owner in ("DPOTrainer", "MyTrainer"):
        said = f"TypeError: {owner}.compute_loss() got an unexpected keyword argument 'num_items_in_batch'\n"
        (tmp_path / "log").write_text(f"Traceback (most recent call last):\n{frame}{said}")
        ran = envcheck("explain", "log", cwd=tmp_path)
        assert ran.code == 1
        assert (calls in ran.out) is (owner == "DPOTrainer")
        assert ("not accepted in trl 0.5.0 to 0.11.4\n" in ran.out) is (owner == "DPOTrainer")


def test_the_source_of_a_bare_assertion_is_its_message(tmp_path: Path) -> None:
    frame = (
        '  File "/e/lib/python3.11/site-packages/torch/x.py", line 3, in f\n    assert dtype == info.dtype\n'
    )
    (tmp_path / "log").write_text(
        f"Traceback (most recent call last):\n{frame}           ^^^^^\nAssertionError\n"
    )
    ran = envcheck("explain", "log", cwd=tmp_path)
    assert ran.code == 1
    assert ran.out.startswith("Failed: AssertionError: assert dtype == info.dtype\n")


def test_a_message_with_few_words_is_found_in_the_file_that_raised_it(tmp_path: Path) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "{file}", line 109, in get_dataset_list\n'
        "    raise ValueError(message)\n"
        "ValueError: Unknown dataset /a/long/path/of/somebody/who/likes/folders/train.json in the_list.json.\n"
    )
    package = "/e/lib/python3.11/site-packages/peft/utils/save_and_load.py"
    (tmp_path / "log").write_text(text.format(file=package))
    assert explained("log", cwd=tmp_path)[1]["library"] is None
    said = text.replace("Unknown", "Undefined").replace("the_list", "dataset_list")
    (tmp_path / "log").write_text(said.format(file="/opt/LLaMA-Factory/src/llamafactory/data/parser.py"))
    library = explained("log", cwd=tmp_path)[1]["library"]
    assert library["raises"][0]["file"] == "llamafactory/data/parser.py"
    (tmp_path / "log").write_text(said.format(file="/home/me/data/parser.py"))
    assert explained("log", cwd=tmp_path)[1]["library"] is None


def test_a_name_of_another_release_that_copied_code_uses_is_found(tmp_path: Path) -> None:
    text = (
        "Traceback (most recent call last):\n"
        '  File "{file}", line 9, in forward\n'
        "    variant = VARIANT_KWARG_KEYS\n"
        "NameError: name 'VARIANT_KWARG_KEYS' is not defined\n"
    )
    (tmp_path / "log").write_text(text.format(file="/srv/unsloth_compiled_cache/Linear_peft_forward.py"))
    code, tree = explained("log", cwd=tmp_path)
    assert (code, tree["cause"]["kind"]) == (1, "version")
    assert tree["library"]["defined"][0]["package"] == "peft"
    (tmp_path / "log").write_text(text.format(file="/home/me/train.py"))
    tree = explained("log", cwd=tmp_path)[1]
    assert (tree["cause"]["kind"], tree["library"]) == ("code", None)


def test_what_the_text_proves_goes_before_what_versions_would_have_to_prove(tmp_path: Path) -> None:
    said = "flash_attn_2_cuda.so: undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic"
    (tmp_path / "log").write_text(f"ImportError: /e/{said}_stringIcSt11char_traitsIcESaIcEEE\n")
    (tmp_path / "facts.toml").write_text("complete = []\n")
    ran = envcheck("explain", "log", "--facts", "facts.toml", cwd=tmp_path)
    assert ran.out.startswith("Known failure: flash-attn was compiled for another torch or another C++ ABI [")
    assert "  known  flash-attn 2.8 wheels do not load" in ran.out


@pytest.mark.parametrize(
    ("auto_class", "advice"),
    [
        ("AutoModelForCausalLM", "load the model with the class that fits its task"),
        (
            "AutoModelForVision2Seq",
            "install a release of transformers in which AutoModelForVision2Seq loads it",
        ),
    ],
)
def test_which_auto_class_loads_a_model_follows_from_its_configuration(
    tmp_path: Path, auto_class: str, advice: str
) -> None:
    configuration = "transformers.models.qwen2_5_vl.configuration_qwen2_5_vl.Qwen2_5_VLConfig"
    (tmp_path / "log").write_text(
        f"ValueError: Unrecognized configuration class <class '{configuration}'> for this kind of AutoModel: "
        f"{auto_class}.\nModel type should be one of BartConfig, BertConfig.\n"
    )
    ran = envcheck("explain", "log", cwd=tmp_path)
    assert "    loads   transformers from 4.49.0 on: AutoModelForImageTextToText\n" in ran.out
    assert "    loads   transformers 4.49.0 to 4.57.6: AutoModelForVision2Seq\n" in ran.out
    assert f"    advice  {advice}" in ran.out
    own = configuration.replace("transformers.models.qwen2_5_vl", "transformers_modules.mine")
    (tmp_path / "log").write_text((tmp_path / "log").read_text().replace(configuration, own))
    assert "    loads " not in envcheck("explain", "log", cwd=tmp_path).out


@pytest.mark.parametrize(
    ("library", "symbol", "said"),
    [
        (
            "flash_attn_2_cuda.so",
            "_ZN3c104cuda9SetDeviceEi",
            "torch 2.1.0 to 2.2.2 (wheels): c10::cuda::SetDevice",
        ),
        ("ours.so", "torch_from_blob", "torch from 2.11.0 on (wheels): torch_from_blob"),
        (
            "flash_attn_2_cuda.so",
            "_ZN3c105ErrorC2ENS_14SourceLocationESs",
            "torch up to 2.6.0 (wheels): c10::Error::Error (old C++ ABI)",
        ),
        ("ours.so", "_ZN3c104nameEv", ""),
    ],
)
def test_which_torch_an_extension_was_compiled_for_follows_from_the_symbol(
    tmp_path: Path, library: str, symbol: str, said: str
) -> None:
    (tmp_path / "log").write_text(f"ImportError: /e/{library}: undefined symbol: {symbol}\n")
    ran = envcheck("explain", "log", cwd=tmp_path)
    assert (f"    has it  {said}\n" in ran.out) == bool(said)
    assert ("has it" in ran.out) == bool(said)


def test_a_refused_setting_is_named_with_what_to_write(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(
        "Traceback (most recent call last):\n"
        '  File "/e/lib/python3.11/site-packages/pydantic/main.py", line 171, in __init__\n'
        "    self.__pydantic_validator__.validate_python(data, self_instance=self)\n"
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for AxolotlInputConfig\n"
        "pretraining_dataset\n"
        "  Input should be a valid list [type=list_type, input_value={'path': 'c4'}, input_type=dict]\n"
    )
    ran = envcheck("explain", "log", cwd=tmp_path)
    assert "    setting pretraining_dataset: Input should be a valid list\n    advice  write it as" in ran.out


def test_a_module_that_is_missing_says_how_to_see_which_file_was_imported(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("ModuleNotFoundError: No module named 'cv2.gapi'\n")
    ran = envcheck("explain", "log", cwd=tmp_path)
    assert "another package that is imported as cv2" in ran.out
    assert "print(cv2.__file__)" in ran.out


def test_a_module_of_a_package_with_another_name_says_which_releases_have_it(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("ModuleNotFoundError: No module named 'swift.llm'\n")
    ran = envcheck("explain", "log", cwd=tmp_path)
    assert "has it  swift.llm: in ms-swift 1.3.0 to 3.12.6" in ran.out
    assert "this release of ms-swift, or another package that is imported as swift," in ran.out
    (tmp_path / "log").write_text(
        'Traceback (most recent call last):\n  File "/e/lib/python3.11/site-packages/swift/cli/main.py", line 1, in f\n'
        "ModuleNotFoundError: No module named 'swift.llm'\n"
    )
    assert "or another package" not in envcheck("explain", "log", cwd=tmp_path).out


UNKNOWN_FACTS = "complete = []\n"
SITE = "/e/lib/python3.11/site-packages"


def told_of(log: str, tmp_path: Path, *options: str) -> Outcome:
    (tmp_path / "log").write_text(log)
    (tmp_path / "facts.toml").write_text(UNKNOWN_FACTS)
    return envcheck("explain", "log", "--facts", "facts.toml", *options, cwd=tmp_path)


@pytest.mark.parametrize(
    ("line", "blamed"),
    [("from transformers import HybridCache", False), ("from peft import LoraConfig", True)],
)
def test_a_name_that_the_users_own_code_asks_for_is_no_other_package_s_fault(
    line: str, blamed: bool, tmp_path: Path
) -> None:
    log = (
        f'Traceback (most recent call last):\n  File "/w/train.py", line 3, in <module>\n    {line}\n'
        f"ImportError: cannot import name 'HybridCache' from 'transformers' ({SITE}/transformers/__init__.py)\n"
    )
    assert ("[peft-hybridcache-transformers5]" in told_of(log, tmp_path).out) is blamed


def test_the_title_of_a_known_failure_is_said_once(tmp_path: Path) -> None:
    ran = told_of("torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n", tmp_path)
    head = ran.out.splitlines()[0].removeprefix("Known failure: ")
    assert head.endswith("]")
    assert ran.out.count(head.rpartition(" [")[0]) == 1


def test_of_two_rules_with_one_text_the_likelier_is_first_and_both_are_named(tmp_path: Path) -> None:
    text = "ValueError: Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`\n"
    out = told_of(text, tmp_path).out
    assert out.startswith("Known failure, the likeliest of 2 with this text: FSDP cannot flatten an adapter")
    assert "  known  FSDP cannot flatten DoRA layers" in out


def test_a_text_with_several_causes_claims_none(tmp_path: Path) -> None:
    ran = told_of("NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)\n", tmp_path)
    assert ran.code == 3
    assert ran.out.startswith("Failed; several causes have this text: A system call failed inside NCCL")
    assert "    kind    not known: several causes have this text\n" in ran.out


KEY_ERROR = """\
Traceback (most recent call last):
  File "/home/x/dpo_train.py", line 118, in {name}
    length = batch["chosen_labels"].shape[0]
KeyError: 'chosen_labels'
"""


def test_a_function_in_the_place_of_a_librarys_is_not_blamed_on_the_user(tmp_path: Path) -> None:
    ran = told_of(KEY_ERROR.format(name="get_batch_loss_metrics"), tmp_path)
    assert ran.out.startswith("Failed, cause not known: KeyError: 'chosen_labels'\n")
    assert "    method  trl has get_batch_loss_metrics in " in ran.out
    near = told_of(KEY_ERROR.format(name="print_my_columns"), tmp_path)
    assert near.out.startswith(
        "Known failure: The script looks up a key that is not there [user-key-error]\n"
    )


TORCH_SIX = """\
Traceback (most recent call last):
  File "/home/x/train.py", line 3, in <module>
    import {module}
  File "{site}/{module}/utils.py", line 9, in <module>
    from torch._six import inf
ModuleNotFoundError: No module named 'torch._six'
"""


def test_a_rule_about_a_package_that_the_traceback_does_not_contain_is_not_told(tmp_path: Path) -> None:
    ran = told_of(TORCH_SIX.format(site=SITE, module="deepspeed"), tmp_path)
    assert ran.out.startswith("Known failure: DeepSpeed before 0.8.2 cannot be imported beside torch 2 [")
    near = told_of(TORCH_SIX.format(site=SITE, module="apex"), tmp_path)
    assert "DeepSpeed" not in near.out
    assert near.out.startswith("Failed: apex asks for the module torch._six")


def test_who_passes_a_refused_keyword_is_not_guessed_if_the_message_has_a_meaning(tmp_path: Path) -> None:
    text = "TypeError: MistralForCausalLM.forward() got an unexpected keyword argument 'token_type_ids'\n"
    out = told_of(text, tmp_path).out
    assert "    means   the tokenizer returns a column that this model does not take\n" in out
    assert "    passes  " not in out
    assert "in this release" not in out


def test_of_several_libraries_with_one_message_that_of_the_log_is_told(tmp_path: Path) -> None:
    message = "ValueError: The model did not return a loss from the inputs, only the following keys: logits."
    text = f"{message} For reference, the inputs it received are input_ids.\n"
    frame = f"File ~{SITE}/transformers/trainer.py:3704, in Trainer.compute_loss(self, model, inputs)\n"
    assert "library ms-swift" in told_of(text, tmp_path).out
    out = told_of(frame + text, tmp_path).out
    assert "library transformers" in out
    assert "library ms-swift" not in out


def test_an_attribute_that_only_later_releases_set_asks_for_one_of_them(tmp_path: Path) -> None:
    name = "current_gradient_accumulation_steps"
    out = told_of(f"AttributeError: 'GRPOTrainer' object has no attribute '{name}'\n", tmp_path).out
    assert "    kind    versions that do not go together\n" in out
    assert "    advice  install transformers in one of these releases\n" in out


JSON = """\
Traceback (most recent call last):
  File "{file}", line 61, in save
    json.dumps(config.__dict__)
  File ".../python3.10/json/encoder.py", line 179, in default
    raise TypeError(f'Object of type {{o.__class__.__name__}} '
TypeError: Object of type set is not JSON serializable
"""


def test_a_message_that_mostly_blames_the_user_does_not_if_a_library_called(tmp_path: Path) -> None:
    ran = told_of(JSON.format(file=f"{SITE}/collie/controller/trainer.py"), tmp_path)
    assert "    means   a value that JSON does not know" in ran.out
    assert "script or project" not in ran.out
    assert ran.code == 3
    near = told_of(JSON.format(file="/home/x/save.py"), tmp_path)
    assert "    kind    the code that was run, not its environment\n" in near.out


def test_a_command_that_an_installer_wrote_is_not_the_users_code(tmp_path: Path) -> None:
    log = """\
Traceback (most recent call last):
  File "/opt/anaconda3/{file}", line 5, in <module>
    from llmtuner.cli import main
ModuleNotFoundError: No module named 'llmtuner'
"""
    assert "llamafactory-cli imports" not in told_of(log.format(file="bin/llamafactory-cli"), tmp_path).out
    assert told_of(log.format(file="train.py"), tmp_path).out.startswith("Failed: train.py imports llmtuner")


def test_an_attribute_that_no_release_is_known_to_lack_may_be_another_modules(tmp_path: Path) -> None:
    log = """\
Traceback (most recent call last):
  File "{site}/peft/tuners/lora/bnb.py", line 3, in <module>
    import bitsandbytes
AttributeError: module 'bitsandbytes' has no attribute '{name}'
"""
    ran = told_of(log.format(site=SITE, name="nn"), tmp_path)
    assert ran.code == 3
    assert ran.out.startswith(
        "Failed: peft asks for nn of bitsandbytes, which every release of bitsandbytes has: "
    )
    assert 'run python -c "import bitsandbytes" alone' in ran.out


def test_a_release_is_not_said_to_lack_what_its_own_code_asks_for(tmp_path: Path) -> None:
    log = """\
Traceback (most recent call last):
  File "{file}", line 32, in __init__
    if self.args.use_flash_ckpt:
AttributeError: 'RLHFArguments' object has no attribute 'use_flash_ckpt'
"""
    assert "has it  " not in told_of(log.format(file=f"{SITE}/swift/llm/train/sft.py"), tmp_path).out
    assert "has it  ms-swift" in told_of(log.format(file="/home/x/plugin.py"), tmp_path).out


def test_a_name_of_a_newer_python_is_said_to_be_one(tmp_path: Path) -> None:
    log = """\
Traceback (most recent call last):
  File "/e/lib/python3.10/site-packages/unsloth_zoo/temporary_patches/utils.py", line 100, in <module>
    type(Unpack) is type(t.Unpack)
AttributeError: module 'typing' has no attribute 'Unpack'
"""
    (tmp_path / "train.log").write_text(log)
    out = envcheck("explain", str(tmp_path / "train.log")).out
    assert out.startswith("Failed: unsloth-zoo asks for Unpack of typing, which Python 3.10 does not have\n")
    assert "has it  typing.Unpack: in python from 3.11 on" in out
    assert "pip install" not in out


def test_a_rule_is_not_named_for_a_common_word_in_a_modules_path(tmp_path: Path) -> None:
    log = """\
Traceback (most recent call last):
  File "{site}/swift/megatron/init.py", line 420, in _patch_TransformerLayer
    from megatron.training import get_args
ModuleNotFoundError: No module named 'megatron.training'
"""
    assert "    rule    " not in told_of(log.format(site=SITE), tmp_path).out


@pytest.mark.parametrize(
    ("accelerate", "first"),
    [
        ("0.33.0", "Known failure"),
        ("1.2.0", "Failed, cause not known: AttributeError: 'AdamW' object has no attribute 'train'\n"),
    ],
)
def test_a_known_failure_that_printed_versions_contradict_is_not_the_answer(
    accelerate: str, first: str, tmp_path: Path
) -> None:
    log = f"""\
- `transformers` version: 4.45.2
- Accelerate version: {accelerate}
AttributeError: 'AdamW' object has no attribute 'train'
"""
    (tmp_path / "train.log").write_text(log)
    ran = envcheck("explain", str(tmp_path / "train.log"))
    assert ran.out.startswith(first)
    assert ("    here    no: " in ran.out) == (accelerate == "1.2.0")


def test_a_release_that_has_the_name_is_not_said_to_lack_it(tmp_path: Path) -> None:
    log = (
        "- TRL version: 1.0.0\n"
        "ImportError: cannot import name 'TRLExperimentalWarning' from 'trl.import_utils' (/e/trl/import_utils.py)\n"
    )
    (tmp_path / "train.log").write_text(log)
    out = envcheck("explain", str(tmp_path / "train.log")).out
    assert out.startswith("Failed: trl 1.0.0 has TRLExperimentalWarning of trl.import_utils: another release")
    (tmp_path / "train.log").write_text(log.replace("1.0.0", "0.25.1"))
    out = envcheck("explain", str(tmp_path / "train.log")).out
    assert out.startswith("Failed: trl 0.25.1 does not have TRLExperimentalWarning of trl.import_utils\n")


def test_a_place_that_reads_an_attribute_is_not_where_it_was_left_out(tmp_path: Path) -> None:
    text = "AttributeError: 'AcceleratorState' object has no attribute 'distributed_type'\n"
    assert "set by" not in told_of(text, tmp_path).out


_TRACEBACK = 'Traceback (most recent call last):\n  File "{}", line 3, in step\n    {}\n'


def test_a_setting_that_has_no_value_is_named_with_what_to_do(tmp_path: Path) -> None:
    line = "kwargs.update(self.args.generation_kwargs)"
    text = _TRACEBACK.format("/e/lib/python3.11/site-packages/trl/trainer/grpo_trainer.py", line)

    of_a_setting = told_of(f"{text}TypeError: 'NoneType' object is not iterable\n", tmp_path)
    of_another = told_of(
        f"{text.replace('self.args.', 'self.')}TypeError: 'NoneType' object is not iterable\n", tmp_path
    )

    assert of_a_setting.code == 1
    assert "    advice  generation_kwargs has no value here: set it" in of_a_setting.out
    assert of_another.code == 3
    assert "    None is self.generation_kwargs" in of_another.out
    assert "has no value here" not in of_another.out


def test_an_assertion_on_settings_names_them(tmp_path: Path) -> None:
    line = "assert config.data.train_batch_size >= config.actor.ppo_mini_batch_size"
    of_settings = told_of(f"{_TRACEBACK.format('/job/trainer.py', line)}AssertionError\n", tmp_path)
    other = line.replace("config.data.train_batch_size", "data.rows").replace("config.actor.", "self.")
    of_data = told_of(f"{_TRACEBACK.format('/job/trainer.py', other)}AssertionError\n", tmp_path)

    assert of_settings.code == 1
    assert "    when    data.train_batch_size < actor.ppo_mini_batch_size\n" in of_settings.out
    assert "this depends on data.train_batch_size, actor.ppo_mini_batch_size: change one" in of_settings.out
    assert "this depends on" not in of_data.out


def test_a_message_of_frames_that_the_log_leaves_out_is_found_in_other_libraries(tmp_path: Path) -> None:
    file = "/e/lib/python3.11/site-packages/transformers/trainer.py"
    said = "AssertionError: zero stage 3 requires an optimizer\n"
    calls = told_of(f"{_TRACEBACK.format(file, 'loss = self.training_step(model, inputs)')}{said}", tmp_path)
    raises = told_of(f"{_TRACEBACK.format(file, 'raise AssertionError(text)')}{said}", tmp_path)

    assert "    library deepspeed" in calls.out
    assert "    library deepspeed" not in raises.out


def test_a_folder_with_the_name_of_an_installed_package_is_the_users(tmp_path: Path) -> None:
    said = (
        "ImportError: cannot import name 'SamplerOutput' from 'vllm.sequence' "
        "(/e/lib/python3.10/site-packages/vllm/sequence.py)\n"
    )
    source = "from vllm.sequence import (SamplerOutput)"

    of_folder = told_of(f"{_TRACEBACK.format('/job/src/vllm/sampler.py', source)}{said}", tmp_path)
    of_checkout = told_of(
        f"{_TRACEBACK.format('/job/src/vllm/sampler.py', source)}"
        f"{said.replace('/e/lib/python3.10/site-packages', '/job/src')}",
        tmp_path,
    )

    assert of_folder.out.startswith("Failed: sampler.py asks for SamplerOutput of vllm.sequence, which")
    assert "in a release that has it, or code that was written for the installed one" in of_folder.out
    assert of_checkout.out.startswith("Failed: vllm asks for SamplerOutput of vllm.sequence, which")


def test_what_a_build_without_isolation_lacks_is_to_be_installed_first(tmp_path: Path) -> None:
    build = f"/job/pip-install-x/flash-attn_{'0' * 32}/setup.py"
    said = "ModuleNotFoundError: No module named 'wheel'\n"

    out = told_of(f"{_TRACEBACK.format(build, 'from wheel import bdist_wheel')}{said}", tmp_path).out

    assert "the build of a package imports wheel" not in out  # it is known which one
    assert "    advice  install wheel into the environment first (python -m pip install wheel" in out
    assert "--no-build-isolation" in out


def test_the_place_that_always_sets_an_attribute_outweighs_those_under_a_condition(tmp_path: Path) -> None:
    out = told_of(
        "AttributeError: 'TrainerState' object has no attribute 'last_model_checkpoint'\n", tmp_path
    ).out

    assert "in SwiftMixin._save_checkpoint\n" in out
    assert "create_checkpoint_symlink" not in out


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("ValueError: When using `train.py` on two nodes, name the first of them\n", 3),
        ("ValueError: If you pass a list, pass your names too\n", 3),
        ("ValueError: If the list is empty.\n", 0),
        ("ValueError: When using sync=True, please move the module first\n", 3),
    ],
)
def test_a_message_that_begins_like_a_description_is_a_failure_too(
    text: str, code: int, tmp_path: Path
) -> None:
    assert told_of(text, tmp_path).code == code


def test_a_package_that_asks_itself_for_a_module_is_installed_anew(tmp_path: Path) -> None:
    file = "/e/lib/python3.10/site-packages/bitsandbytes/cuda_setup/main.py"
    said = "ModuleNotFoundError: No module named 'bitsandbytes.cuda_setup.paths'\n"

    out = told_of(f"{_TRACEBACK.format(file, 'from .paths import x')}{said}", tmp_path).out

    assert "uninstall bitsandbytes until pip finds none, and install it again" in out
    assert "in a release that has it" not in out


def test_a_file_in_the_place_of_a_package_is_no_release_of_it(tmp_path: Path) -> None:
    out = told_of("ModuleNotFoundError: No module named 'vllm.lora'; 'vllm' is not a package\n", tmp_path).out

    assert "    means   what is imported under the name in the message is a single file" in out
    assert "release of vllm" not in out


def test_a_message_that_begins_on_the_next_line_is_read(tmp_path: Path) -> None:
    said = "ImportError: \nFluxPipeline requires the transformers library but it was not found in your environment.\n"

    ran = told_of(said, tmp_path)

    assert ran.code == 1
    assert ran.out.startswith("Failed: ImportError: FluxPipeline requires the transformers library")
    assert "    clash " not in ran.out


def test_a_copy_of_a_library_in_a_project_is_not_the_users_own_code(tmp_path: Path) -> None:
    source = "assert len(batch) > 0, f'{batch=}'"
    said = "AssertionError: batch=[]\n"

    copied = told_of(f"{_TRACEBACK.format('/job/verl/trainer/ppo/ray_trainer.py', source)}{said}", tmp_path)
    own = told_of(f"{_TRACEBACK.format('/job/verl/ray_trainer.py', source)}{said}", tmp_path)

    assert "a line of the script or project" not in copied.out
    assert "a line of the script or project" in own.out


@pytest.mark.parametrize(
    ("message", "means", "advice"),
    [
        (
            "Using `bitsandbytes` 4-bit quantization requires bitsandbytes: `pip install -U bitsandbytes`",
            "bitsandbytes 0.44.1 is installed in the judged environment, but the program cannot use it",
            "Without a GPU that torch sees, transformers counts flash-attn",
        ),
        (
            "Please `pip install peft` and `pip install trl` to use this",
            "peft 0.19.0, trl 0.24.0 are installed in the judged environment, but the program cannot use them",
            "Print sys.executable in the run: another environment may have run. If it is this one, import",
        ),
    ],
)
def test_a_package_that_is_installed_is_not_to_be_installed_again(
    message: str, means: str, advice: str, tmp_path: Path
) -> None:
    installed = {"bitsandbytes": "0.44.1", "peft": "0.19.0", "trl": "0.24.0"}
    (tmp_path / "log").write_text(f"ImportError: {message}\n")
    rows = (f'{name} = "{version}"\n' for name, version in installed.items())
    (tmp_path / "facts.toml").write_text("[pkg]\n" + "".join(rows))

    ran = envcheck("explain", "log", "--facts", "facts.toml", cwd=tmp_path)

    assert f"    means   {means}\n    advice  {advice}" in ran.out


# --- a message in the place of a log ----------------------------------------------------------------


def test_a_message_may_stand_in_the_place_of_a_log(tmp_path: Path) -> None:
    known = envcheck(
        "explain", "cannot import name 'log' from 'torch.distributed.elastic.agent.server.api'", cwd=tmp_path
    )
    assert known.code == 1
    assert "[deepspeed-elastic-log-import-torch24]" in known.out
    assert "log     the text given: 1 line" in known.out


def test_a_message_without_an_exception_is_a_failure_that_is_not_known(tmp_path: Path) -> None:
    ran = envcheck("explain", "my step went wrong", cwd=tmp_path)
    assert ran.code == 3
    assert ran.out.startswith("Failed, cause not known: Error: my step went wrong\n")


@pytest.mark.parametrize("name", ["train.log", "my train.log", "nothing"])
def test_the_name_of_a_missing_log_is_no_message(name: str, tmp_path: Path) -> None:
    ran = envcheck("explain", name, cwd=tmp_path)
    assert (ran.code, ran.err) == (2, f"envcheck: {name}: no such file or directory\n")
