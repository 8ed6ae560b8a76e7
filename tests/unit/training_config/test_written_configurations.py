"""Configurations that a launch script writes or changes: what is known of them, and what is not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from envcheck.commands.training_files import configured
from envcheck.core.facts import Unknown
from tests.unit.training_config.test_ways_to_launch import SHARED

STAGE_3 = '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'
LAUNCH = "deepspeed train.py --deepspeed run.json --learning_rate 1e-5"
ABSENT = "not stated"
UNKNOWN = "unknown"


def read(folder: Path, files: dict[str, str]) -> tuple[dict[str, object], list[str]]:
    """Write the files; return the facts of the first one, unknown ones marked, and the codes of diagnostics."""
    for name, text in files.items():
        (folder / name).write_text(text)
    found = configured([str(folder / next(iter(files)))], SHARED, {})
    facts: dict[str, object] = {
        each.key.removeprefix("train."): UNKNOWN if isinstance(each.reading, Unknown) else each.value
        for each in found.facts
    }
    return facts, [each.code for each in found.remarks]


def edited(folder: Path, edit: str, text: str = STAGE_3) -> tuple[dict[str, object], list[str]]:
    return read(folder, {"run.sh": f"#!/bin/bash\n{edit}\n{LAUNCH}\n", "ds.json": text})


@pytest.mark.parametrize(
    "filter_of_jq",
    [
        '. * {"zero_optimization":{"offload_optimizer":{"device":"cpu"}}}',
        'with_entries(select(.key != "bf16"))',
        'if .gone then .gone = "misspelt_name" else . end',
    ],
)
def test_a_text_in_a_filter_is_no_setting(tmp_path: Path, filter_of_jq: str) -> None:
    found, codes = edited(tmp_path, f"jq '{filter_of_jq}' ds.json > run.json")
    assert "unknown-key" not in codes
    assert (found["parallel"], found["zero_stage"]) == ("deepspeed", UNKNOWN)


def test_a_misspelt_name_that_is_certainly_set_is_reported(tmp_path: Path) -> None:
    _, codes = edited(tmp_path, "jq '.zero_optimization.stagee = 2' ds.json > run.json")
    assert codes.count("unknown-key") == 1


@pytest.mark.parametrize(
    ("edit", "stage", "optimizer", "clipping"),
    [
        ('jq \'.zero_optimization += {"offload_optimizer":{"device":"cpu"}}\' ds.json', UNKNOWN, UNKNOWN, None),
        ('jq \'. * {"zero_optimization":{"offload_optimizer":{"device":"cpu"}}}\' ds.json', UNKNOWN, UNKNOWN, UNKNOWN),
        ("jq -f change.jq ds.json", UNKNOWN, UNKNOWN, UNKNOWN),
        ("sed 's/\\(stage\\)/x/' ds.json", UNKNOWN, UNKNOWN, UNKNOWN),
        ("jq '.zero_optimization.offload_optimizer.device = env.WHERE' ds.json", 3, UNKNOWN, None),
        ("jq '.gradient_clipping += 1' ds.json", 3, "none", UNKNOWN),
        ("jq -f change.jq ds.json | jq '.zero_optimization.stage = 2'", 2, UNKNOWN, UNKNOWN),
        ("jq '.zero_optimization.stage = 2' ds.json", 2, "none", None),
        ("jq . ds.json", 3, "none", None),
    ],
)  # fmt: skip
def test_what_an_unknown_edit_may_add_is_not_absent(
    tmp_path: Path, edit: str, stage: object, optimizer: object, clipping: object
) -> None:
    first, _, second = edit.partition(" | ")
    command = f"{first} > run.json" + (
        f"\n{second} run.json > t.json && mv t.json run.json" if second else ""
    )
    found, _ = edited(tmp_path, command)
    assert found["parallel"] == "deepspeed"
    given = (found["zero_stage"], found["offload_optimizer"], found["gradient_clipping"])
    assert given == (stage, optimizer, clipping)


def test_what_an_edit_does_not_touch_stands(tmp_path: Path) -> None:
    add = 'jq \'.zero_optimization += {"offload_optimizer":{"device":"cpu"}}\' ds.json > run.json'
    found, _ = edited(tmp_path, add, STAGE_3[:-1] + ', "train_micro_batch_size_per_gpu": 4}')
    assert (found["precision"], found["micro_batch_size"]) == ("bf16", 4)


@pytest.mark.parametrize(("section", "optimizer"), [("$(cat zero.json)", UNKNOWN), ('{"stage": 3}', "none")])
def test_a_section_that_only_the_shell_knows_may_have_any_setting(
    tmp_path: Path, section: str, optimizer: object
) -> None:
    text = f'cat > run.json <<EOF\n{{"zero_optimization": {section}, "train_batch_size": 8}}\nEOF'
    found, _ = edited(tmp_path, text)
    assert (found["global_batch_size"], found["offload_optimizer"]) == (8, optimizer)


@pytest.mark.parametrize("parts", [3, 3_000])
def test_a_path_of_many_parts_is_one_change_of_a_file(tmp_path: Path, parts: int) -> None:
    start = time.process_time()
    found, _ = edited(tmp_path, f"jq '{'.a' * parts} = 1' ds.json > run.json")
    assert time.process_time() - start < 5
    assert found["zero_stage"] == (3 if parts == 3 else UNKNOWN)
