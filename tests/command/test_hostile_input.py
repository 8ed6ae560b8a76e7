"""Hostile and broken input costs one clear line: no gigabytes, no hang, no open gate."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.running import MeasuredOutcome, measured

MOST_SECONDS = 5
MOST_MIB = 300


def harmless(outcome: MeasuredOutcome) -> None:
    """Assert that a command ended as documented, quickly, in little memory."""
    assert outcome.code in (0, 1, 2, 3, 4), outcome
    assert "Traceback" not in outcome.err + outcome.out, outcome
    assert "internal error" not in outcome.err, outcome.err
    assert outcome.seconds <= MOST_SECONDS, outcome.seconds
    assert outcome.peak_mib <= MOST_MIB, outcome.peak_mib


# --- parsers ------------------------------------------------------------------------------------------

DOTS = ".".join(["a"] * 20_000) + "=1\n"
BOMBS = {  # name: text, what is said of it
    "dots": (DOTS, ":1:1: a key of more than 32 parts"),
    "header": (f"[{DOTS[:-3]}]\n", ":1:2: a key of more than 32 parts"),
    "quoted dots": (".".join(['"a"'] * 20_000) + "=1\n", ":1:1: a key of more than 32 parts"),
    "spaced dots": (" . ".join(["a"] * 20_000) + "=1\n", ":1:1: a key of more than 32 parts"),
    "many dots": (
        "".join(f"k{n}.{'.'.join('a' * 30)}=1\n" for n in range(20_000)),
        "more than 100000 tables",
    ),
    "many headers": ("".join(f"[h{n}]\n" for n in range(300_000)), "more than 100000 tables"),
    "depth": ("a=" + "[" * 50_000, ":1:67: not TOML: nested too deeply"),
    "values": ("a=[" + "1," * 1_900_000 + "]", "more than 200000 values"),
}


@pytest.mark.parametrize("option", ["--facts", "--matrix", "settings", "pylock"])
@pytest.mark.parametrize("bomb", BOMBS)
def test_a_small_toml_file_cannot_take_a_machine_s_memory(bomb: str, option: str, tmp_path: Path) -> None:
    text, said = BOMBS[bomb]
    name = {"settings": "envcheck.toml", "pylock": "pylock.toml"}.get(option, "x.toml")
    (tmp_path / name).write_text(text)
    arguments = {
        "--facts": ["doctor", "--facts", name],
        "--matrix": ["matrix", "show", "--matrix", name],
        "settings": ["matrix", "show"],
        "pylock": ["check", name],
    }[option]
    outcome = measured(*arguments, cwd=tmp_path)
    harmless(outcome)
    assert outcome.code == 2
    assert said in outcome.err
    assert outcome.err.count("\n") == 1


def test_strings_and_comments_may_hold_what_keys_may_not(tmp_path: Path) -> None:
    dots = ".".join("a" * 100)
    lines = [f"# {dots}", 'complete = ["pkg"]', "[env]", f'NCCL_A = "{dots} {"[" * 100}"']
    lines += [f"NCCL_B = '{dots} \"'", f'NCCL_C = """\n{dots} ""\n{"[" * 100}"""', "[pkg]", 'torch = "2.6.0"']
    (tmp_path / "x.toml").write_text("\n".join(lines))
    outcome = measured("doctor", "--facts", "x.toml", cwd=tmp_path)
    assert outcome.code in (0, 1), outcome.err


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("environment.yml", "dependencies: " + "[" * 50_000, "nested too deeply"),
        ("environment.yml", "dependencies:\n" + "- a\n" * 200_000, "more than 20000 values"),
        ("environment.yml", "dependencies:\n- " + "a" * 3_000_000, "longer than 1048576 characters"),
        (
            "environment.yml",
            "a: &a [" + "x," * 5000 + "]\ndependencies: " + "[*a," * 5000,
            "nested too deeply",
        ),
        ("facts.json", '{"pkg": ' + "[" * 1_000_000, ":1:72: not JSON: nested too deeply"),
    ],
)
def test_other_formats_have_bounds_too(name: str, text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    arguments = ["doctor", "--facts", name] if name.endswith("json") else ["check", name]
    outcome = measured(*arguments, cwd=tmp_path)
    harmless(outcome)
    assert outcome.code == 2
    assert said in outcome.err


# --- fleet --------------------------------------------------------------------------------------------

NODE: dict[str, Any] = {
    "complete": ["pkg"],
    "pkg": {"torch": "2.6.0"},
    "build": {"torch": {"cuda": "12.4"}},
    "gpus": {"count": 0},
}


def record(name: str, **changed: Any) -> str:
    return json.dumps({**NODE, "host": {"name": name}, **changed}) + "\n"


@pytest.mark.parametrize("command", ["fleet", "explain"])
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(command: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    outcome = measured(command, "pipe", cwd=tmp_path)
    harmless(outcome)
    assert outcome.code == 2
    assert "pipe: a pipe without a writer" in outcome.err


def test_a_slow_writer_of_a_pipe_is_waited_for(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    def write() -> None:
        time.sleep(1)
        with pipe.open("w") as stream:
            time.sleep(4)
            stream.write(record("n1"))

    writer = threading.Thread(target=write)
    writer.start()
    outcome = measured("fleet", "pipe", cwd=tmp_path)
    writer.join()
    assert "1 node, n1" in outcome.out


def test_a_log_given_as_records_is_not_read_to_its_end(tmp_path: Path) -> None:
    with (tmp_path / "train.log").open("w") as file:
        for _ in range(2000):
            file.write("[rank0] step 1 loss 2.5 lr 1e-5 elapsed 3 s\n" * 2000)
    outcome = measured("fleet", "train.log", cwd=tmp_path)
    harmless(outcome)
    assert outcome.code == 3
    assert outcome.out.count("\nrecord ") == 6
    assert "and 996 more" in outcome.out


def test_of_many_bad_records_the_first_are_listed_and_the_rest_counted(tmp_path: Path) -> None:
    good = "".join(record(f"n{number}", gpus={"count": 8}) for number in range(200))
    (tmp_path / "nodes.jsonl").write_text(good + "{\n" * 900)
    outcome = measured("fleet", "nodes.jsonl", cwd=tmp_path)
    assert outcome.code == 3
    assert outcome.out.count("\nrecord ") == 6
    assert "record   and 895 more" in outcome.out
    assert "900 records could not be read" in outcome.out
    refused = json.loads(measured("fleet", "nodes.jsonl", "--json", cwd=tmp_path).out)["refused"]
    assert len(refused) == 900


def test_nodes_without_gpus_are_not_said_to_be_able_to_start(tmp_path: Path) -> None:
    (tmp_path / "nodes.jsonl").write_text("".join(map(record, ("n1", "n2", "n3"))))
    outcome = measured("fleet", "nodes.jsonl", cwd=tmp_path)
    assert outcome.code == 3
    assert "nothing  n[1-3]: no GPU there" in outcome.out
    assert "Cannot say: nothing to judge on 3 nodes" in outcome.out
    built_for_cpu = {"pkg": {"torch": "2.6.0+cpu"}, "build": {}, "absent": ["build.torch.cuda"]}
    (tmp_path / "nodes.jsonl").write_text("".join(record(name, **built_for_cpu) for name in ("n1", "n2")))
    outcome = measured("fleet", "nodes.jsonl", cwd=tmp_path)
    assert outcome.code == 0, outcome


# --- where output goes ----------------------------------------------------------------------------------

FINE = 'complete = ["pkg"]\n[pkg]\ntorch = "2.6.0"\n[gpus]\ncount = 0\n'


@pytest.mark.parametrize(
    "arguments",
    [
        ("doctor", "--facts", "facts.toml", "-o", "-"),
        ("gate", "--facts", "facts.toml", "--format", "json", "-o", "-"),
        ("fleet", "nodes.jsonl", "--json", "-o", "-"),
        ("check", "requirements.txt", "-o", "-"),
        (
            "pin",
            "--target",
            "zero3-lora",
            "--driver",
            "580.65.06",
            "--gpu",
            "A100 80GB",
            "--offline",
            "-o",
            "-",
        ),
    ],
    ids=lambda each: str(each[0]),
)
def test_a_dash_stands_for_standard_output(arguments: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "facts.toml").write_text(FINE)
    (tmp_path / "nodes.jsonl").write_text(record("n1"))
    (tmp_path / "requirements.txt").write_text("torch==2.6.0\n")
    before = sorted(path.name for path in tmp_path.iterdir())
    outcome = measured(*arguments, cwd=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert "written" not in outcome.err
    assert len(outcome.out) > 200, outcome


def test_no_manifest_is_written_where_none_is_wanted(tmp_path: Path) -> None:
    (tmp_path / "facts.toml").write_text(FINE)
    named = {"ENVCHECK_MANIFEST": str(tmp_path / "manifest.json")}
    arguments = ("gate", "--facts", "facts.toml", "--no-manifest")
    assert "manifest" not in measured(*arguments, cwd=tmp_path, environ=named).err
    assert not (tmp_path / "manifest.json").exists()
    outcome = measured(*arguments, "--manifest", "m.json", cwd=tmp_path)
    assert (outcome.code, outcome.err) == (2, "envcheck: --no-manifest: contradicts --manifest m.json\n")


# --- what the fuzzers found ------------------------------------------------------------------------------


def test_a_script_of_very_many_launches_is_merged_in_one_pass(tmp_path: Path) -> None:
    (tmp_path / "facts.toml").write_text(FINE)
    (tmp_path / "job.sh").write_text("srun python train.py --bf16 True $EXTRA\n" * 5000)
    harmless(measured("doctor", "--facts", "facts.toml", "--train", "job.sh", cwd=tmp_path))


@pytest.mark.parametrize("filler", ["/* ", "12", '"\\u0001'], ids=["comments", "digits", "quotes"])
def test_what_never_ends_in_a_json_text_is_read_once(filler: str, tmp_path: Path) -> None:
    (tmp_path / "facts.toml").write_text('[pkg]\ntorch = "2.4.0"\n')
    (tmp_path / "n.ipynb").write_text('{"cells": [{"cell_type": ' + filler * (900_000 // len(filler)) + "x")
    outcome = measured("doctor", "--facts", "facts.toml", "--train", "n.ipynb", cwd=tmp_path)
    harmless(outcome)
    assert outcome.code == 2
    assert outcome.err.startswith("envcheck: n.ipynb")


def test_a_batch_of_no_processes_is_no_division_by_zero(tmp_path: Path) -> None:
    (tmp_path / "facts.toml").write_text(FINE)
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 3}}')
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 0 train.py --deepspeed ds.json --bf16 true\n")
    outcome = measured("doctor", "--facts", "facts.toml", "--train", "run.sh", cwd=tmp_path)
    harmless(outcome)
    assert outcome.code in (0, 1)


def test_a_dockerfile_of_very_many_stages_is_refused(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM a\n" * 3000)
    outcome = measured("check", "Dockerfile", cwd=tmp_path)
    harmless(outcome)
    assert (outcome.code, outcome.err) == (2, "envcheck: Dockerfile:101:1: more than 100 stages\n")


def test_a_number_of_thousands_of_digits_is_no_version(tmp_path: Path) -> None:
    (tmp_path / "facts.toml").write_text(f'complete = ["pkg"]\n[pkg]\ntorch = "{"9" * 5000}"\n')
    outcome = measured("doctor", "--facts", "facts.toml", cwd=tmp_path)
    harmless(outcome)


@pytest.mark.parametrize(
    "lines", ["\n" * 30_000 + "x", "# a\n  \n" * 20_000, "ARG A=1\n\t\n" * 20_000 + "CMD x"]
)
def test_blank_lines_do_not_make_a_reader_of_dockerfiles_search_for_hours(lines: str, tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(lines)
    outcome = measured("doctor", "--static", "--python", ".", "--train", "run.sh", cwd=tmp_path)
    harmless(outcome)
    assert outcome.code == 2
