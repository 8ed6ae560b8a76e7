"""Many nodes judged as one would be, the odd ones named, and nobody waited for without end."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess  # noqa: TID251 - tests are users
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envcheck.commands import examine as examine_command
from envcheck.commands import fleet, loading
from envcheck.core import facts_file
from envcheck.core.errors import InputError
from envcheck.core.facts import Inventory
from envcheck.core.findings import Verdict
from envcheck.core.rules import Matrix, Severity
from envcheck.core.sanitize import Private, sanitized
from envcheck.fleet import collect, comparisons, grouping, hostlist, launchers, summary
from envcheck.fleet import report as fleet_report
from envcheck.fleet import text as fleet_text
from envcheck.fleet.records import LARGEST_RECORD, NodeRecord
from envcheck.host.environment import node_name
from tests.support import hostile
from tests.support.fleets import FAULTS, cluster, node, vary
from tests.support.paths import ROOT
from tests.support.running import envcheck, invocation, surroundings
from tests.support.worlds import vocabulary

ROWS: list[dict[str, Any]] = tomllib.loads((ROOT / "compat/tables/fleet.toml").read_text())["alike"]


@lru_cache(maxsize=1)
def known() -> Matrix:
    return loading.load_matrix(vocabulary())


def judged(
    records: Sequence[str], may_differ: Sequence[str] = (), **setting: Any
) -> tuple[summary.FleetReport, list[str]]:
    """The report on these lines, and the places of the records that were judged."""
    asked: list[str] = []

    def examine(where: str, inventory: Inventory) -> collect.Judged:
        asked.append(where)
        report = examine_command.report_on(where, inventory, known(), None)
        return collect.Judged(report.judgement, report.nothing_to_judge)

    rows = comparisons.read_comparisons(ROWS, may_differ)
    taken = collect.Fleet(vocabulary(), known(), rows, lambda read: read, examine)
    for number, text in enumerate(records, 1):
        taken.take(NodeRecord(f"f:{number}", text, f"f:{number}"))
    return summary.summarize(taken, rows, known(), "0", summary.FleetContext(**setting)), asked


def lines(*changes: Mapping[str, Any]) -> list[str]:
    """One sound node for each, n1, n2, …, with these facts of it replaced: {"pkg": {"torch": "2.12.1"}}."""
    found = []
    for number, change in enumerate(changes, 1):
        tree = node(f"n{number}")
        for family, facts in change.items():
            if isinstance(facts, dict):
                tree[family] = {**tree.get(family, {}), **facts}
            else:
                tree[family] = facts
        found.append(json.dumps(tree))
    return found


def differences(report: summary.FleetReport) -> dict[str, tuple[str, list[tuple[str, str]]]]:
    return {
        each.key: (each.standing, [(value.value, hostlist.fold(value.nodes)) for value in each.values])
        for each in report.differences
    }


# --- planted faults -----------------------------------------------------------------------------------


@settings(max_examples=8)
@given(st.integers(0, 10_000))
def test_every_planted_fault_is_named_with_its_nodes_and_no_other_is(seed: int) -> None:
    made = cluster(60, seed, faults=6)
    report, asked = judged(made.lines)
    assert set(report.nodes) == set(made.names)
    found = {each.key: each for each in report.differences}
    assert found.keys() == made.differences.keys()
    for key, fault in made.differences.items():
        assert found[key].standing == "majority"
        assert set(found[key].odd) == fault.nodes
        assert fault.value in " ".join(found[key].values[1].value.split() + list(found[key].values[1].parts))
    assert {int(each.where.partition(":")[2]) for each in report.refused} == made.broken
    assert {each.name for each in report.twice} == made.twice
    assert len(asked) == report.machines <= 1 + len(made.differences)  # each machine once


@settings(max_examples=4)
@given(st.integers(0, 10_000))
def test_a_node_is_judged_as_doctor_would_judge_it_alone(seed: int) -> None:
    made = cluster(40, seed)
    report, _ = judged(made.lines)
    alone: dict[tuple[str, Verdict, Severity], set[str]] = {}
    for number, text in enumerate(made.lines, 1):
        if number in made.broken:
            continue
        tree = json.loads(text)
        name = tree["host"]["name"]
        read = facts_file.load(tree, "f", vocabulary())
        for each in examine_command.report_on("f", read, known(), None).judgement.findings:
            alone.setdefault((each.rule.id, each.verdict, each.severity), set()).add(name)
    together = {
        (each.finding.rule.id, each.finding.verdict, each.finding.severity): set(each.nodes)
        for each in report.findings
    }
    assert together == alone


@settings(max_examples=4)
@given(st.integers(0, 10_000))
def test_the_order_of_records_changes_nothing(seed: int) -> None:
    made = cluster(45, seed)
    sound = [text for number, text in enumerate(made.lines, 1) if number not in made.broken]
    shuffled = list(sound)
    random.Random(seed).shuffle(shuffled)  # noqa: S311
    one, other = (
        fleet_report.tree(judged(each)[0]._replace(twice=(), refused=())) for each in (sound, shuffled)
    )
    assert _plain(one) == _plain(other)


def _plain(tree: dict[str, Any]) -> dict[str, Any]:
    """Without what says where a fact was read: of equal nodes that is the first one's."""
    for finding in tree["findings"]:
        for variant in finding["variants"]:
            for because in variant["because"]:
                because["source"] = ""
    return tree


def test_facts_that_vary_by_node_or_time_do_not_split_groups() -> None:
    chance = random.Random(7)  # noqa: S311
    trees = [node(f"n{number}") for number in range(30)]
    for tree in trees:
        vary(tree, chance)
    report, asked = judged([json.dumps(tree) for tree in trees])
    assert (len(asked), report.differences, report.code) == (1, (), 0)


def test_a_fact_outside_the_view_never_changes_a_verdict() -> None:
    view = grouping.judge_view(known())
    tree = node("n")
    for number in range(8):
        tree["gpu"][number]["memory_free_mib"] = 5
    read = facts_file.load(tree, "f", vocabulary())
    before = examine_command.report_on("f", read, known(), None).judgement
    unseen = [key for key in read.facts if not view.sees(key)]
    assert "host.cpu_count" in unseen
    assert "host.shm_mib" not in unseen
    after = examine_command.report_on("f", read.without(*unseen), known(), None).judgement
    assert [each.rule.id for each in before.findings] == [each.rule.id for each in after.findings]
    assert (before.passed, before.applied) == (after.passed, after.applied)


def test_numbers_split_groups_only_at_the_bounds_of_rules() -> None:
    sizes = (1023, 1024, 1025, 500_000)
    report, asked = judged(lines(*({"host": {"shm_mib": size}} for size in sizes)))
    assert len(asked) == 3  # below the bound, at it, above it
    assert report.machines == 3


# --- by majority --------------------------------------------------------------------------------------

TORCH = [{"pkg": {"torch": version}} for version in ("2.13.0", "2.12.1", "2.11.0")]


@pytest.mark.parametrize(
    ("which", "standing", "said"),
    [
        ([0, 0, 1], "majority", [("2.13.0", "n[1-2]"), ("2.12.1", "n3")]),
        ([0, 1, 1, 0], "tie", [("2.12.1", "n[2-3]"), ("2.13.0", "n[1,4]")]),
        ([0, 0, 1, 2], "none", [("2.13.0", "n[1-2]"), ("2.11.0", "n4"), ("2.12.1", "n3")]),
        ([0, 1, 2], "tie", [("2.11.0", "n3"), ("2.12.1", "n2"), ("2.13.0", "n1")]),
    ],
)
def test_a_majority_a_tie_and_no_common_value(
    which: list[int], standing: str, said: list[tuple[str, str]]
) -> None:
    report, _ = judged(lines(*(TORCH[number] for number in which)))
    assert differences(report)["pkg.torch"] == (standing, said)
    assert report.code == 1
    text = fleet_text.render(report)
    word = {
        "majority": "torch 2.13.0 on 2 nodes, 2.12.1 on n3",
        "tie": "torch, a tie: ",
        "none": "torch, no majority: ",
    }
    assert word[standing] in text


def test_the_first_line_names_the_failure_the_node_and_the_values() -> None:
    broken, _ = judged(lines({}, {}, {"pkg": {"torch": "2.11.0", "deepspeed": "0.14.0"}}))
    first, *rest = fleet_text.render(broken).splitlines()
    title = "DeepSpeed before 0.14.1 cannot be imported beside torch 2.4 or newer"
    assert first.startswith("Do not start: ")
    assert f" on n3: {title}; nodes differ in torch: 2.11.0 on n3, 2.13.0 on n[1-2]" in first
    assert rest[1].startswith("✗ error: torch 2.13.0 on 2 nodes, 2.11.0 on n3")
    assert rest[2] == "    fix     install torch 2.13.0 on n3, as on the other nodes"
    severities = [line[0] for line in rest if line[:2] in ("✗ ", "! ", "- ")]
    assert severities == sorted(severities, key="✗!-".index), "errors come first"
    assert "sha256" not in "\n".join(rest)


def test_a_difference_below_the_threshold_is_in_the_first_line() -> None:
    report, _ = judged(lines({}, {}, {"driver": {"version": "590.44.01"}}))
    assert report.code == 0
    first = fleet_text.render(report).splitlines()[0]
    assert first.startswith(
        "Can start: no known error on 3 nodes, but nodes differ in driver: 590.44.01 on n3, "
    )


def test_a_failing_node_is_told_what_the_sound_nodes_have() -> None:
    sound = {"pkg": {"deepspeed": "0.18.3"}}
    old = {"pkg": {"deepspeed": "0.14.0"}}
    (found,) = (
        each for each in judged(lines(sound, sound, old))[0].findings if "elastic" in each.finding.rule.id
    )
    assert (found.nodes, found.elsewhere) == (("n3",), (("deepspeed", "0.18.3"),))
    everywhere = judged(lines(old, old, old))[0].findings
    assert [each.elsewhere for each in everywhere if "elastic" in each.finding.rule.id] == [()]


def test_what_is_no_version_is_not_advised_from_other_nodes() -> None:
    small = {"gpu": [{"name": "Tesla V100-SXM2-16GB"}]}
    for each in judged(lines({}, {}, small))[0].findings:
        if any(one.fact.key.startswith("gpu.") for one in each.finding.evidence):
            assert each.elsewhere == ()


def test_every_row_of_the_table_says_how_a_node_becomes_equal() -> None:
    for row in comparisons.read_comparisons(ROWS):
        for template in filter(None, (row.fix, row.fix_if_absent)):
            assert "gpu001" in template.format("gpu001", "8", row.name), row.key
        if row.differ is Severity.ERROR:
            assert row.fix, f"{row.key}: nodes that differ may not start, so say what to do"


def test_the_report_is_chinese_if_asked_for(tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_text("\n".join(lines({}, {}, {"pkg": {"torch": "2.11.0"}})))
    requests: tuple[tuple[dict[str, str], tuple[str, ...]], ...] = (
        ({"LANG": "zh_CN.UTF-8"}, ()),
        ({}, ("--lang", "zh")),
    )
    for environ, options in requests:
        ran = envcheck("fleet", "all.jsonl", *options, cwd=tmp_path, environ=environ)
        assert ran.out.startswith("不要启动")
        assert "    解决    在 n3 上安装 torch 2.13.0" in ran.out


def test_a_missing_value_counts_as_a_value() -> None:
    report, _ = judged(lines({}, {}, {"env": {"NCCL_PROTO": "LL"}}))
    assert differences(report)["env.NCCL_PROTO"] == ("majority", [("not set", "n[1-2]"), ("LL", "n3")])


def test_a_fact_that_was_not_given_differs_from_nothing() -> None:
    bare = {"schema_version": 1, "pkg": {"torch": "2.13.0"}}  # a facts file that only says torch
    texts = [*lines({}, {}), json.dumps({**bare, "host": {"name": "n3"}})]
    assert judged(texts)[0].differences == ()


def test_an_unknown_value_leaves_a_comparison_open() -> None:
    texts = lines({}, {}, {})
    tree = json.loads(texts[2])
    del tree["pkg"]["nvidia-nccl-cu13"]
    tree["unknown"] = {"pkg.nvidia-nccl-cu13": "two METADATA files"}
    report, _ = judged([*texts[:2], json.dumps(tree)])
    (one,) = [each for each in report.differences if each.key == "pkg.nvidia-nccl-cu13"]
    assert [(some.value, some.nodes) for some in one.unread] == [("two METADATA files", ("n3",))]
    assert report.code == 3
    assert "NCCL could not be read everywhere" in fleet_text.render(report)


def test_numbers_within_the_tolerance_are_alike() -> None:
    near = [{"host": {"ram_limit_mib": 2_000_000 + 1000 * number}} for number in range(5)]
    report, _ = judged(lines(*near, {"host": {"ram_limit_mib": 1_000_000}}))
    assert differences(report)["host.ram_limit_mib"][1][1] == ("1000000", "n6")
    assert report.code == 0  # a note


def test_a_difference_that_follows_from_another_is_reported_once() -> None:
    report, _ = judged(lines({}, {}, {"gpu": node("x")["gpu"][:7]}))
    assert [*differences(report)] == ["gpus.count"]
    hidden = [{**gpu, "visible": number != 3} for number, gpu in enumerate(node("x")["gpu"])]
    report, _ = judged(lines({}, {}, {"gpu": hidden}))
    assert differences(report)["gpus.visible"] == ("majority", [("8", "n[1-2]"), ("7", "n3")])


@pytest.mark.parametrize(
    ("said", "key", "change"),
    [
        ("gpus.count", "gpus.count", {"gpu": node("x")["gpu"][:7]}),
        ("GPUs", "gpus.count", {"gpu": node("x")["gpu"][:7]}),
        ("env.NCCL_ALGO", "env.NCCL_ALGO", {"env": {"NCCL_ALGO": "Tree"}}),
        ("pkg.library-07", "pkg.library-07", {"pkg": {"library-07": "1.0"}}),
    ],
)
def test_a_difference_that_is_allowed_is_a_note(said: str, key: str, change: dict[str, Any]) -> None:
    report, _ = judged(lines({}, {}, change), may_differ=[said])
    assert [(each.key, each.severity) for each in report.differences] == [(key, Severity.NOTE)]
    assert report.code == 0


def test_a_fact_that_is_not_compared_cannot_be_allowed_to_differ() -> None:
    with pytest.raises(InputError, match="nothing of that key"):
        comparisons.read_comparisons(ROWS, ["gpu.colour"])


def test_packages_are_compared_by_one_digest_that_says_what_is_behind_it() -> None:
    report, _ = judged(lines({}, {}, {"pkg": {"library-07": "1.0", "extra": "2"}}))
    (one,) = report.differences
    assert (one.key, one.severity) == ("pkg.*", Severity.WARNING)
    assert one.values[1].parts == ("extra 2 (elsewhere not installed)", "library-07 1.0 (not 7.4.0)")
    assert all(value.value.startswith("sha256:") for value in one.values)


def test_every_row_names_its_fact_and_what_it_follows() -> None:
    words = vocabulary()
    keys = {row["key"] for row in ROWS}
    assert len(keys) == len(ROWS)
    for row in ROWS:
        assert row["differ"] in ("error", "warning", "note", "nothing"), row
        assert row.get("follows", row["key"]) in keys
        if not row["key"].endswith("*"):
            assert words.get(row["key"]) is not None, row["key"]
    for number, row in enumerate(ROWS):
        wider = [
            other
            for other in ROWS[:number]
            if other["key"].endswith("*") and row["key"].startswith(other["key"][:-1])
        ]
        assert not wider, f"{row['key']} is never reached"


def test_every_planted_fault_belongs_to_a_row() -> None:
    rows = comparisons.read_comparisons(ROWS)
    assert all(any(row.covers(key) or row.key == key for row in rows) for key in FAULTS)


# --- what may start -----------------------------------------------------------------------------------


def test_the_verdict_and_its_code() -> None:
    assert judged(lines({}, {}))[0].code == 0
    assert judged(lines({}, {"driver": {"version": "590.48.01"}}))[0].code == 0  # a warning
    assert judged(lines({}, {"driver": {"version": "590.48.01"}}), fail_on=Severity.WARNING)[0].code == 1
    assert judged(lines({}, TORCH[1]))[0].code == 1
    old = judged(lines(*({"driver": {"version": "535.54.03"}} for _ in range(2))))[0]
    assert (old.differences, old.code) == ((), 1)  # alike, and broken
    assert judged([])[0].code == 3
    assert judged(lines({}, {}), expected=3)[0].code == 3
    assert judged(lines({}, {}), expected=("n1", "n2"))[0].code == 0
    lacking = judged(lines({}, {}), expected=("n1", "n2", "n3"))[0]
    assert ([each.name for each in lacking.missing], lacking.code) == (["n3"], 3)
    bare = {"pkg": {"numpy": "2.4.6"}}
    without = {"schema_version": 1, "complete": ["pkg"], **bare, "host": {"name": "n9"}}
    assert judged([json.dumps(without)])[0].code == 3  # nothing to judge


# --- records that are not what they should be -----------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"pkg": {"torch": "2.1', "ends in the middle"),
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("[1, 2]", "found a list"),
        ('{"gpu": [{"memory_mib": NaN}]}', "NaN is no number"),
        ('{"gpu": [{"memory_mib": %s}]}' % ("9" * 5000), "not JSON"),
        ('{"host": {"name": 7}}', "expected a name"),
        ('{"host": {"name": "%s"}}' % ("x" * 300), "expected a name"),
        ('{"pkgs": {"torch": "2.13.0"}}', "no such fact"),
        ('{"pkg": {"torch": 2}}', "expected a version"),
        ('{"gpu": [{"memory_free_mib": {"a": 1}}]}', "expected a value"),
        (json.dumps({"gpu": [{}] * 2000}), "more than 1024"),
        ("torch 2.13.0", "neither JSON nor TOML"),
        ("x" * (LARGEST_RECORD + 1), "longer than"),
        ('{"host": "x"}', "no such fact"),
        ('{"gpu": {"name": "x"}}', "one for each device"),
        ("[env]\nNCCL_ALGO = 2026-11-20", "expected texts"),
        ("[env]\nNCCL_ALGO = 1.5", "expected a word"),
    ],
)
def test_a_bad_record_is_reported_with_its_place_and_the_others_are_judged(text: str, why: str) -> None:
    report, _ = judged([*lines({}), text])
    assert report.nodes == ("n1",)
    (one,) = report.refused
    assert one.where.startswith("f:2")
    assert why in one.problem
    assert report.code == 3
    (shown,) = [line for line in fleet_text.render(report).splitlines() if line.startswith("record")]
    assert shown.startswith("record   f:2")


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
FAMILIES = ("host", "pkg", "gpu", "env", "complete", "absent", "unknown", "unread", "build")
INSIDE = ("name", "torch", "memory_mib", "NCCL_ALGO", "gpu[9].name", "")
PLACES: list[tuple[str, ...]] = [(each,) for each in FAMILIES]
PLACES += [(each, key) for each in FAMILIES for key in INSIDE]


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(PLACES), ANY), min_size=1, max_size=3))
def test_no_record_causes_a_crash(changes: list[tuple[tuple[str, ...], Any]]) -> None:
    tree = {**node("n1"), "pkg": {"torch": "2.13.0"}, "sources": {}}
    for place, value in changes:
        inner: Any = tree
        for key in place[:-1]:
            inner = inner.get(key) if isinstance(inner, dict) else None
        if isinstance(inner, dict):
            inner[place[-1]] = value
    report, _ = judged([*lines({}), json.dumps(tree).replace("Infinity", "1")])
    assert len(report.nodes) + len(report.refused) + len(report.twice) == 2
    fleet_text.render(report)
    json.dumps(fleet_report.tree(report))


def test_arbitrary_variable_names_use_bounded_memory() -> None:
    many = [{"env": {f"NCCL_{node}_{number}": "1" for number in range(400)}} for node in range(6)]
    report, _ = judged(lines(*many))
    assert report.nodes == ("n1", "n2")
    assert [each.where for each in report.refused] == ["f:3", "f:4", "f:5", "f:6"]
    assert "more than 1000" in report.refused[0].problem


def test_the_later_of_two_records_counts_and_both_are_named() -> None:
    first, second = lines(TORCH[1], {})
    report, _ = judged([first, second, second.replace('"n2"', '"n1"')])
    assert (report.differences, report.code) == ((), 0)
    assert [(each.name, each.first, each.last, each.same) for each in report.twice] == [
        ("n1", "f:1", "f:3", False)
    ]
    assert "n1: f:1 and f:3, which differ; the later counts" in fleet_text.render(report)


@pytest.mark.parametrize("text", hostile.TEXTS)
def test_a_hostile_name_or_value_is_inert_in_every_format(text: str) -> None:
    change = {"env": {"NCCL_ALGO": text[:200]}}
    texts = lines({}, {}, change)
    tree = json.loads(texts[1])
    tree["host"]["name"] = text[:200]
    report, _ = judged([texts[0], json.dumps(tree), *texts[2:]])
    shown = sanitized(report, Private())
    page = fleet_text.render(shown)
    assert page.replace("\n", "").isprintable()
    assert len(page.splitlines()) < 40
    assert json.dumps(fleet_report.tree(shown)).isascii()


@pytest.mark.parametrize("secret", hostile.SECRETS[:14], ids=lambda each: each.text[:20])
def test_no_secret_leaves_with_a_report(secret: hostile.Secret) -> None:
    report, _ = judged(lines({}, {}, {"env": {"NCCL_ALGO": secret.text}}))
    shown = sanitized(report, Private(("/scratch/alice",), "alice", ("node17",)))
    for text in (fleet_text.render(shown), json.dumps(fleet_report.tree(shown))):
        assert secret.private not in text


# --- the command on files -------------------------------------------------------------------------------


def test_a_stream_a_file_and_a_folder_give_the_same_report(tmp_path: Path) -> None:
    texts = lines({}, {}, {}, TORCH[1])
    (tmp_path / "all.jsonl").write_text("\n".join([texts[0], "", *texts[1:]]))
    folder = tmp_path / "nodes"
    folder.mkdir()
    for number, text in enumerate(texts):
        tree = json.loads(text)
        del tree["host"]["name"]  # the file's name is the node's
        if number == 1:
            (folder / "n2.toml").write_text('[host]\nname = "n2"\n[pkg]\ntorch = "2.13.0"\n')
        else:
            (folder / f"n{number + 1}.json").write_text(json.dumps(tree, indent=2))
    (folder / "README.md").write_text("not facts")
    (folder / ".n1.json.part").write_text("{")
    for source in (tmp_path / "all.jsonl", folder):
        ran = envcheck("fleet", str(source))
        assert (ran.code, ran.err) == (1, "")
        assert "error: torch 2.13.0 on 3 nodes, 2.12.1 on n4 [pkg.torch]" in ran.out
        assert "judged  4 nodes, n[1-4]" in ran.out
    piped = subprocess.run(
        invocation("fleet", "-", "--json"),
        input=(tmp_path / "all.jsonl").read_text(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=surroundings(),
    )
    assert (piped.returncode, piped.stderr) == (1, "")
    tree = json.loads(piped.stdout)
    assert (tree["exit_code"], tree["verdict"], tree["nodes"]) == (1, "may not start", "n[1-4]")


def test_a_stream_of_printed_facts_is_read_and_a_truncated_record_is_named(tmp_path: Path) -> None:
    pretty = [json.dumps(json.loads(text), indent=2) for text in lines({}, {}, {})]
    file = tmp_path / "all.json"
    file.write_text("\n".join([pretty[0], pretty[1][:500], pretty[2]]))
    report = fleet.report_on_files(examine_command.ExamineRequest(), fleet.FleetOptions(sources=(str(file),)))
    assert report.nodes == ("n1", "n3")
    assert [each.where for each in report.refused] == [f"{file}:{pretty[0].count(chr(10)) + 2}"]


def test_several_files_are_one_fleet(tmp_path: Path) -> None:
    """A shell expands `nodes/*.json` to several names."""
    files = [tmp_path / f"{number}.json" for number in range(3)]
    for file, record in zip(files, lines({}, {}, {}), strict=True):
        file.write_text(record)
    ran = envcheck("fleet", *map(str, files), "--json")
    assert json.loads(ran.out)["nodes"] == "n[1-3]"
    assert envcheck("fleet", str(files[0]), str(tmp_path / "absent.json")).code == 2


def test_a_record_without_a_name_is_named_by_its_file_and_line(tmp_path: Path) -> None:
    tree = json.loads(lines({})[0])
    del tree["host"]["name"]
    file = tmp_path / "two.jsonl"
    file.write_text(f"{json.dumps(tree)}\n{json.dumps(tree)}\n")
    assert fleet.report_on_files(
        examine_command.ExamineRequest(), fleet.FleetOptions(sources=(str(file),))
    ).nodes == (
        f"{file}:1",
        f"{file}:2",
    )


def test_an_endless_line_and_a_pipe_in_the_folder_do_not_block(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        lines({})[0] + "\n" + "x" * (3 * LARGEST_RECORD) + "\n" + lines({}, {})[1]
    )
    os.mkfifo(tmp_path / "b.json")
    (tmp_path / "c.json").write_bytes(b"\xff\xfe{}")
    report = fleet.report_on_files(
        examine_command.ExamineRequest(), fleet.FleetOptions(sources=(str(tmp_path),))
    )
    assert report.nodes == ("n1", "n2")
    assert [each.where.rpartition("/")[2] for each in report.refused] == ["a.jsonl:2", "b.json", "c.json:1"]


def test_facts_names_the_node_only_on_request(tmp_path: Path) -> None:
    (one,) = envcheck("facts", "--name").out.splitlines()
    assert json.loads(one)["host"]["name"] == os.uname().nodename
    assert "name" not in json.loads(envcheck("facts").out)["host"]
    (tmp_path / "node.json").write_text(one)
    assert envcheck("doctor", "--facts", str(tmp_path / "node.json")).code in (0, 1, 3)


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name a file"),
        (("x.jsonl", "--ray", "auto"), "contradicts"),
        (("no-such-file",), "no such file"),
        (("-", "--expect", "n[1-"), "no list of nodes"),
        (("-", "--may-differ", "gpu.colour"), "nothing of that key"),
        (("-", "--target", "zero9"), "no such target"),
        (("-", "--train", "no-such.yaml"), "no-such.yaml"),
        (("-", "-o", "/no/such/folder/report"), "does not exist"),
    ],
)
def test_wrong_use_is_a_one_line_error_and_exit_code_2(words: tuple[str, ...], why: str) -> None:
    without = {"RANK": "", "SLURM_PROCID": "", "PMI_RANK": "", "OMPI_COMM_WORLD_RANK": ""}
    ran = envcheck("fleet", *words, environ=without)
    assert (ran.code, ran.out) == (2, "")
    assert why in ran.err.lower()
    assert ran.err.count("\n") == 1


def test_a_report_goes_into_a_file_as_its_name_says(tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_text("\n".join(lines({}, {})))
    for name, reads in (("report.json", json.loads), ("report.txt", str)):
        ran = envcheck("fleet", str(tmp_path / "all.jsonl"), "-o", str(tmp_path / name))
        assert (ran.code, ran.out) == (0, "")
        reads((tmp_path / name).read_text())
    assert "Can start: no known problem" in (tmp_path / "report.txt").read_text()


def test_a_target_is_judged_on_every_node(tmp_path: Path) -> None:
    (tmp_path / "all.jsonl").write_text("\n".join(lines({}, {"pkg": {"deepspeed": "0.19.2"}})))
    tree = json.loads(envcheck("fleet", str(tmp_path / "all.jsonl"), "--target", "zero3-lora", "--json").out)
    held = {each["rule"]: each["nodes"] for each in tree["findings"] if each["severity"] == "error"}
    assert held == {"zero3-frozen-nonreentrant-checkpoint": "n2"}


# --- ranks: what launchers say ----------------------------------------------------------------------------

SRUN = {
    "SLURM_PROCID": "3",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_LOCALID": "1",
    "SLURM_JOB_ID": "812345",
    "SLURM_STEP_ID": "2",
    "SLURMD_NODENAME": "gpu002",
    "SLURM_STEP_NODELIST": "gpu[001-002]",
}


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, None),
        ({"RANK": "1"}, None),
        (
            {
                "RANK": "1",
                "WORLD_SIZE": "2",
                "LOCAL_RANK": "1",
                "MASTER_ADDR": "h",
                "MASTER_PORT": "29500",
                "TORCHELASTIC_RUN_ID": "a.b",
                "TORCHELASTIC_RESTART_COUNT": "0",
            },
            launchers.Started("torchrun", 1, 2, 1, "a-b-29500-0", "", (), "h", 29500),
        ),
        (
            SRUN,
            launchers.Started("srun", 3, 4, 1, "812345-2", "gpu002", ("gpu001", "gpu002"), "gpu001", 32345),
        ),
        (
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0"},
            launchers.Started("srun", 0, 2, 0),
        ),
        (  # the job's nodes are not all of the step
            {"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]"},
            launchers.Started("srun", 0, 1, None, "7", "", (), "n1", 20007),
        ),
        (
            {
                "OMPI_COMM_WORLD_RANK": "1",
                "OMPI_COMM_WORLD_SIZE": "2",
                "OMPI_COMM_WORLD_LOCAL_RANK": "0",
                "PMIX_NAMESPACE": "prte-n1-77@1",
            },
            launchers.Started("mpirun", 1, 2, 0, "prte-n1-77-1"),
        ),
        ({"PMI_RANK": "0", "PMI_SIZE": "2", "MPI_LOCALRANKID": "0"}, launchers.Started("mpirun", 0, 2, 0)),
        ({"PMI_RANK": "0", "PMI_SIZE": "2"}, launchers.Started("mpirun", 0, 2, None)),
        ({**SRUN, "RANK": "0", "WORLD_SIZE": "1"}, launchers.Started("torchrun", 0, 1, None, "812345-2")),
    ],
)
def test_ranks_are_read_from_every_launcher(environ: dict[str, str], said: launchers.Started | None) -> None:
    assert launchers.started(environ) == said


@pytest.mark.parametrize(
    "environ",
    [
        {"RANK": "x", "WORLD_SIZE": "2"},
        {"RANK": "2", "WORLD_SIZE": "2"},
        {"RANK": "-1", "WORLD_SIZE": "2"},
        {"RANK": "0", "WORLD_SIZE": "9" * 40},
        {**SRUN, "SLURM_STEP_NODELIST": "gpu[001-"},
        {**SRUN, "SLURM_STEP_NODELIST": "gpu[0-999999999]"},
    ],
)
def test_nonsense_from_a_launcher_is_an_error(environ: dict[str, str]) -> None:
    with pytest.raises(InputError):
        launchers.started(environ)


# --- ranks: processes -----------------------------------------------------------------------------------


def environment(folder: Path, torch: str = "2.13.0") -> Path:
    """A virtual environment's files with torch in it, of which nothing is run."""
    site = folder / "lib/python3.11/site-packages" / f"torch-{torch}.dist-info"
    site.mkdir(parents=True)
    (site / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {torch}\n")
    (folder / "pyvenv.cfg").write_text("home = /usr/bin\nversion_info = 3.11.7\n")
    return folder


def _srun(rank: int, world: int, node: str) -> dict[str, str]:
    return {
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": str(world),
        "SLURM_LOCALID": "0",
        "SLURM_JOB_ID": "4711",
        "SLURMD_NODENAME": node,
    }


def _mpirun(rank: int, world: int, node: str) -> dict[str, str]:
    del node  # mpirun names none
    return {
        "OMPI_COMM_WORLD_RANK": str(rank),
        "OMPI_COMM_WORLD_SIZE": str(world),
        "OMPI_COMM_WORLD_LOCAL_RANK": "0",
        "PMIX_NAMESPACE": "prterun-4711@1",
    }


class Ranks:
    """Processes with the variables of a launcher, as it starts them; `end` waits for all."""

    def __init__(self, via: Path, launcher: Any, world: int, wait: str = "60") -> None:
        self.via, self.launcher, self.world, self.wait = via, launcher, world, wait
        self.running: dict[int, subprocess.Popen[str]] = {}

    def start(self, rank: int, python: Path, *words: str) -> subprocess.Popen[str]:
        self.running[rank] = subprocess.Popen(
            invocation(
                "fleet",
                "--via",
                str(self.via),
                "--static",
                "--python",
                str(python),
                "--wait",
                self.wait,
                *words,
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=surroundings(self.launcher(rank, self.world, f"gpu{rank:03d}")),
        )
        return self.running[rank]

    def end(self) -> tuple[dict[int, int], dict[int, str], dict[int, str]]:
        said = {rank: each.communicate(timeout=120) for rank, each in self.running.items()}
        codes = {rank: each.returncode for rank, each in self.running.items()}
        return (
            codes,
            {rank: out for rank, (out, _) in said.items()},
            {rank: err for rank, (_, err) in said.items()},
        )


@pytest.mark.parametrize(("launcher", "odd"), [(_srun, "gpu001"), (_mpirun, None)])
def test_rank_0_reports_and_all_ranks_exit_alike(tmp_path: Path, launcher: Any, odd: str | None) -> None:
    sound, other = environment(tmp_path / "a"), environment(tmp_path / "b", "2.12.1")
    via = tmp_path / "via"
    via.mkdir()
    group = Ranks(via, launcher, 3)
    for rank in (2, 1, 0):
        group.start(rank, other if rank == 1 else sound)
    codes, out, err = group.end()
    assert codes == {0: 1, 1: 1, 2: 1}
    assert (out[1], out[2], err) == ("", "", dict.fromkeys((2, 1, 0), ""))
    odd = odd or f"{os.uname().nodename}:1"  # of one name for all, the rank is told
    assert f"torch 2.13.0 on 2 nodes, 2.12.1 on {odd} [pkg.torch]" in out[0]


def test_missing_and_dead_ranks_are_named_after_the_deadline(tmp_path: Path) -> None:
    python = environment(tmp_path / "env")
    group = Ranks(tmp_path, _srun, 4, wait="8")
    group.start(1, python)
    dying = group.start(2, python)
    dying.send_signal(signal.SIGKILL)
    dying.wait(30)
    group.start(0, python)
    codes, out, err = group.end()
    assert codes == {0: 3, 1: 3, 2: -signal.SIGKILL}
    assert "missing  rank[2-3]: never reported within 8 s" in out[0]
    assert out[0].startswith("Cannot say: no report from rank[2-3]\n")
    assert err[1] == ""


def test_a_node_whose_environment_cannot_be_read_is_named_with_the_reason(tmp_path: Path) -> None:
    python = environment(tmp_path / "env")
    group = Ranks(tmp_path, _srun, 2)
    group.start(0, python)
    group.start(1, tmp_path / "no-such-env")
    codes, out, _ = group.end()
    assert codes == {0: 3, 1: 3}
    assert "missing  gpu001: " in out[0]
    assert "no-such-env" in out[0]


def test_without_rank_0_the_others_end(tmp_path: Path) -> None:
    group = Ranks(tmp_path, _srun, 2, wait="2")
    group.start(1, environment(tmp_path / "env"))
    codes, _, err = group.end()
    assert codes == {1: 3}
    assert "rank 0 never called within 2 s" in err[1]


def test_a_rank_after_the_verdict_fails_with_the_reason(tmp_path: Path) -> None:
    python = environment(tmp_path / "env")
    group = Ranks(tmp_path, _srun, 2, wait="1")
    group.start(0, python)
    codes, out, _ = group.end()
    assert (codes, "missing  rank1" in out[0]) == ({0: 3}, True)
    late = Ranks(tmp_path, _srun, 2, wait="1")
    late.start(1, python)
    codes, out, err = late.end()
    assert (codes, out) == ({1: 3}, {1: ""})
    assert "it came too late: the verdict was given without it" in err[1]


def test_records_of_an_earlier_start_do_not_count(tmp_path: Path) -> None:
    sound, other = environment(tmp_path / "a"), environment(tmp_path / "b", "2.12.1")
    via = tmp_path / "via"
    via.mkdir()
    first = Ranks(via, _srun, 2)
    first.start(0, sound)
    first.start(1, other)
    assert first.end()[0] == {0: 1, 1: 1}
    # The same job again, of which only rank 0 comes: what rank 1 said then is not what it says now.
    again = Ranks(via, _srun, 2, wait="2")
    again.start(0, sound)
    codes, out, _ = again.end()
    assert codes == {0: 3}
    assert "missing  rank1: never reported within 2 s" in out[0]
    # Rank 1 comes before rank 0, finds the call and the verdict of that start, and is not led astray.
    third = Ranks(via, _srun, 2)
    third.start(1, sound)
    time.sleep(1)
    third.start(0, sound)
    codes, out, _ = third.end()
    assert codes == {0: 0, 1: 0}
    # Another job in the same folder: it is told, and not counted.
    (via / "fleet.815.rank-1.json").write_text("{}")
    last = Ranks(via, _srun, 2)
    last.start(0, sound)
    last.start(1, sound)
    codes, out, _ = last.end()
    assert codes == {0: 0, 1: 0}
    assert f"stale    {via}: records of 1 ranks of job 815" in out[0]


@pytest.mark.parametrize("words", ["", "[]", "{", '{"call": 1}', '{"call": "x", "marks": 3}', "[" * 100_000])
def test_foreign_files_in_the_folder_cause_no_crash(tmp_path: Path, words: str) -> None:
    for name in ("call", "verdict", "rank-1", "rank-2"):
        (tmp_path / f"fleet.4711.{name}.json").write_text(words)
    os.mkfifo(tmp_path / "fleet.4711.rank-3.json")
    group = Ranks(tmp_path, _srun, 4, wait="3")
    group.start(0, environment(tmp_path / "env"))
    codes, out, err = group.end()
    assert (codes, err) == ({0: 3}, {0: ""})
    assert "missing  rank[1-3]: never reported within 3 s" in out[0]


def test_ranks_without_a_meeting_point_get_instructions() -> None:
    ran = envcheck("fleet", environ=_mpirun(1, 2, ""))
    assert (ran.code, ran.out) == (2, "")
    assert "--via FOLDER" in ran.err
    ran = envcheck("fleet", "--via", "/no/such/folder", environ=_mpirun(1, 2, ""))
    assert ran.code == 2
    assert ran.err.count("\n") == 1


def test_one_rank_alone_is_a_fleet_of_one(tmp_path: Path) -> None:
    python = environment(tmp_path / "env")
    ran = envcheck("fleet", "--static", "--python", str(python), environ=_srun(0, 1, "gpu000"))
    assert ran.code == 0
    assert "judged  1 node, gpu000" in ran.out


# --- torchrun, over torch's store -----------------------------------------------------------------------


def _torchrun(stack: str, *words: str, command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(Path(stack).parent / "torchrun"), *words, "--no-python", *command],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env=surroundings({"OMP_NUM_THREADS": "1"}),
    )


@pytest.mark.stack
def test_under_torchrun_one_probe_a_node_and_one_report(stack: str) -> None:
    ran = _torchrun(
        stack,
        *("--standalone", "--nproc-per-node", "3"),
        command=invocation("fleet", "--python", stack, "--json"),
    )
    assert ran.returncode == 0, ran.stderr
    tree = json.loads(ran.stdout)  # once, and nothing else
    assert (tree["count"], tree["nodes"], tree["verdict"]) == (1, os.uname().nodename, "may start")


@pytest.mark.stack
def test_under_torchrun_a_dead_rank_is_named_and_no_rank_hangs(stack: str, tmp_path: Path) -> None:
    said = tmp_path / "report"
    fleet_command = " ".join(invocation("fleet", "--python", stack, "--wait", "25", "-o", str(said)))
    script = tmp_path / "rank.sh"
    script.write_text(f'#!/bin/sh\n[ "$RANK" = 1 ] && exit 0\nexec {fleet_command}\n')
    script.chmod(0o755)
    ran = _torchrun(stack, "--standalone", "--nproc-per-node", "3", command=[str(script)])
    assert ran.returncode == 1  # torchrun's own
    assert "missing  rank1: never reported within 25 s" in said.read_text()
    assert "exitcode  : 3" in ran.stderr


@pytest.mark.stack
def test_two_nodes_of_srun_meet_at_the_first_one(stack: str) -> None:
    def environ(rank: int) -> dict[str, str]:
        of_step = {"SLURM_STEP_NODELIST": "gpu[000-001]", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29517"}
        return surroundings({**_srun(rank, 2, f"gpu{rank:03d}"), **of_step})

    running = [
        subprocess.Popen(
            invocation("fleet", "--python", stack),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environ(rank),
        )
        for rank in (1, 0)
    ]
    said = [each.communicate(timeout=200) for each in running]
    assert [each.returncode for each in running] == [0, 0], said
    assert "judged  2 nodes, gpu[000-001]; 1 kind of machine" in said[1][0]
    assert said[0] == ("", "")


# --- Ray -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[tuple[str, dict[str, Any]]]:
    """A Python with ray, and a running cluster of three nodes on this machine."""
    python = os.environ.get("ENVCHECK_RAY", sys.executable)  # noqa: TID251
    has = subprocess.run(
        [python, "-c", "import ray, typer, packaging, yaml, pynvml"],
        capture_output=True,
        check=False,
        timeout=120,
    )
    if has.returncode:
        pytest.skip(
            "no ray beside this Python: the extra [ray] brings it, or ENVCHECK_RAY names a Python with it"
        )
    with subprocess.Popen(
        [python, str(ROOT / "tests/support/ray_cluster.py"), "3"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=surroundings(LOOPBACK),
    ) as running:
        assert running.stdout is not None
        line = running.stdout.readline()
        assert line, "the cluster did not come up"
        yield python, json.loads(line)  # it goes when its standard input is closed


LOOPBACK = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}


def _ray(python: str, address: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, "-P", "-m", "envcheck", "fleet", "--ray", address, "--json", *words],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
        env=surroundings(LOOPBACK),
    )


def test_every_ray_node_is_queried_and_hanging_or_dead_ones_are_named(
    ray_cluster: tuple[str, dict[str, Any]], tmp_path: Path
) -> None:
    python, said = ray_cluster
    env = environment(tmp_path / "env")
    words = ("--static", "--python", str(env))
    ran = _ray(python, said["address"], "--wait", "120", *words)
    assert ran.returncode == 0, ran.stderr
    tree = json.loads(ran.stdout)
    assert (tree["count"], tree["machines"], tree["missing"]) == (3, 1, [])
    assert ["no GPU on it" in each for each in tree["left_out"]] == [True]  # the head
    number, raylet = list(said["raylets"].items())[-1]
    os.kill(raylet, signal.SIGSTOP)
    try:
        ran = _ray(python, said["address"], "--wait", "20", *words)
    finally:
        os.kill(raylet, signal.SIGCONT)
    tree = json.loads(ran.stdout)
    assert (ran.returncode, tree["count"]) == (3, 2)
    assert [number[:8] in each["node"] for each in tree["missing"]] == [True]
    assert "20 s" in tree["missing"][0]["why"]
    os.kill(raylet, signal.SIGKILL)
    ran = _ray(python, said["address"], "--wait", "30", "--expect", "3", *words)
    tree = json.loads(ran.stdout)
    assert (ran.returncode, tree["count"], len(tree["missing"])) == (3, 2, 1)


def test_without_ray_the_error_names_what_to_install() -> None:
    if __import__("importlib.util").util.find_spec("ray"):
        pytest.skip("ray is installed beside this Python")
    ran = envcheck("fleet", "--ray", "auto")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "ray cannot be imported in envcheck's environment" in ran.err
    assert "install ray there" in ran.err


def test_the_output_boundary_names_nodes_and_no_user() -> None:
    assert node_name() == os.uname().nodename
