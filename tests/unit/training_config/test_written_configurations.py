"""Configurations that a launch script writes or changes: what is known of them, and what is not."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from envcheck.commands.training_files import configured
from envcheck.core.facts import Unknown
from tests.support.launches import SHARED

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


SET_2 = "jq '.zero_optimization.stage = 2' run.json"


@pytest.mark.parametrize(
    ("commands", "stage", "optimizer"),
    [
        (f"{SET_2} | sponge run.json", 2, "none"),
        (f"{SET_2} | tee new.json > /dev/null\nmv new.json run.json", 2, "none"),
        ("cat run.json | jq '.zero_optimization.stage = 2' | sponge run.json", 2, "none"),
        ("cat run.json | sed s/3/2/ > run.json", 2, "none"),
        ("jq . run.json | sponge run.json", 3, "none"),
        ("cat run.json | tee log.txt", 3, "none"),
        ("false && jq '.zero_optimization.stage = 2' run.json | sponge run.json", 3, "none"),
        # The text is not known, or the command may not run.
        ("./change.sh run.json | sponge run.json", UNKNOWN, UNKNOWN),
        ("./make.py 3 | tee run.json", UNKNOWN, UNKNOWN),
        ("python make.py > run.json", UNKNOWN, UNKNOWN),
        (f"{SET_2} | tee -a run.json", UNKNOWN, UNKNOWN),
        ("{ cat run.json; jq . run.json; } | sponge run.json", UNKNOWN, UNKNOWN),
        (f"grep -q H100 /proc/gpus && {SET_2} | sponge run.json", 2, "none"),
        (f"if nvidia-smi | grep -q H100; then {SET_2} | sponge run.json; fi", UNKNOWN, "none"),
    ],
)
def test_a_file_that_the_end_of_a_pipeline_writes(
    tmp_path: Path, commands: str, stage: object, optimizer: object
) -> None:
    found, codes = read(
        tmp_path,
        {"run.sh": f"#!/bin/bash\n{commands}\n{LAUNCH}\n", "run.json": '{"zero_optimization": {"stage": 3}}'},
    )
    assert codes == []
    assert (found["parallel"], found["zero_stage"], found["offload_optimizer"]) == (
        "deepspeed", stage, optimizer,
    )  # fmt: skip


FSDP = "torchrun --nproc_per_node 2 train.py --bf16 true --output_dir o --learning_rate 1e-5 --fsdp full_shard --fsdp_config"
VERSION_2 = '{"fsdp_version": 2, "offload_params": true}'
WRITES = f"cat > fsdp.json <<EOF\n{VERSION_2}\nEOF\n"


@pytest.mark.parametrize(
    ("script", "parallel"),
    [
        (f"{FSDP} '{VERSION_2}'", "fsdp2"),
        (f'V=2\n{FSDP} "{{\\"fsdp_version\\": $V}}"', "fsdp2"),
        (f'V=$1\n{FSDP} "{{\\"fsdp_version\\": $V}}"', UNKNOWN),
        (f"{FSDP} '{{fsdp_version = 2}}'", UNKNOWN),
        (f"{FSDP} $(cat fsdp.txt)", UNKNOWN),
        (f"{WRITES}{FSDP} fsdp.json", "fsdp2"),
        (f"{WRITES}sed -i s/2/1/ fsdp.json\n{FSDP} ./fsdp.json", "fsdp1"),
        (f"{WRITES}jq '.fsdp_version = 1' fsdp.json | sponge fsdp.json\n{FSDP} fsdp.json", "fsdp1"),
        (f"{WRITES}jq -f change.jq fsdp.json | sponge fsdp.json\n{FSDP} fsdp.json", UNKNOWN),
        (f"./make.py > fsdp.json\n{FSDP} fsdp.json", UNKNOWN),
    ],
)
def test_a_section_that_is_given_as_json_or_that_the_script_writes(
    tmp_path: Path, script: str, parallel: object
) -> None:
    found, codes = read(tmp_path, {"run.sh": f"#!/bin/bash\n{script}\n"})
    assert codes in ([], ["read-as-if"])
    assert found["parallel"] == parallel


@pytest.mark.parametrize(
    ("before", "content", "reason"),
    [
        ("", None, "fsdp.json, which run.sh names, is not here"),
        ("", "[1, 2]", "fsdp.json, which run.sh names, cannot be read as a section"),
        ("./make.py > fsdp.json\n", None, "line 2 writes it, and its text is not known"),
    ],
)
def test_the_reason_for_a_section_that_is_not_known(
    tmp_path: Path, before: str, content: str | None, reason: str
) -> None:
    (tmp_path / "run.sh").write_text(f"#!/bin/bash\n{before}{FSDP} fsdp.json\n")
    if content is not None:
        (tmp_path / "fsdp.json").write_text(content)
    found = {each.key: each.reading for each in configured([str(tmp_path / "run.sh")], SHARED, {}).facts}
    unknown = found["train.parallel"]
    assert isinstance(unknown, Unknown)
    assert unknown.why.replace(f"{tmp_path}/", "") == reason


def test_many_unknown_edits_of_a_long_file_take_no_time(tmp_path: Path) -> None:
    long = "zero_optimization: {stage: 3}\n" + "".join(f"a{number}: 1\n" for number in range(5_000))
    edits = "yq -i '. as $q | $q' run.yaml\n" * 1_500
    text = f"cat > run.yaml <<EOF\n{long}EOF\n{edits}{LAUNCH.replace('run.json', 'run.yaml')}\n"
    start = time.process_time()
    found, _ = read(tmp_path, {"run.sh": text})
    assert time.process_time() - start < 5
    assert found["zero_stage"] == UNKNOWN
