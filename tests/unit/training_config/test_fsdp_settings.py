"""Settings of FSDP that only some programs compare or read."""

from __future__ import annotations

from pathlib import Path

import pytest

from envcheck.commands import loading
from envcheck.commands.training_files import configured
from envcheck.core.facts import Fact, Inventory, Known
from envcheck.rules.derive import derive
from tests.unit.training_config.test_readers import SHARED, codes

ACCELERATE = """\
compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_cpu_ram_efficient_loading: true
  fsdp_sync_module_states: {}
  fsdp_version: {}
num_processes: 2
"""
ARGUMENTS = (
    '{{"output_dir": "out", "per_device_train_batch_size": 1, "num_train_epochs": 1, "fsdp": "full_shard auto_wrap", '
    '"fsdp_config": {{{}}}}}'
)
UNSYNCED = '"cpu_ram_efficient_loading": true, "sync_module_states": false'


def found_in(folder: Path, name: str, text: str, packages: dict[str, str]) -> list[str]:
    path = folder / name
    path.write_text(text)
    return codes(configured([str(path)], SHARED, packages))


@pytest.mark.parametrize("version", [1, 2])
def test_the_launcher_compares_the_two_settings_of_its_file(version: int, tmp_path: Path) -> None:
    installed = {"accelerate": "1.15.0"}
    refused = found_in(tmp_path, "a.yaml", ACCELERATE.format("false", version), installed)
    assert refused == ["error efficient-loading-unsynced"]
    assert found_in(tmp_path, "a.yaml", ACCELERATE.format("true", version), installed) == []


@pytest.mark.parametrize(
    ("release", "refused"), [("4.40.2", False), ("4.57.6", True), ("5.9.0", True), ("5.10.0", False)]
)
def test_the_trainer_compares_them_in_some_releases(release: str, refused: bool, tmp_path: Path) -> None:
    found = found_in(tmp_path, "t.json", ARGUMENTS.format(UNSYNCED), {"transformers": release})
    assert ("error efficient-loading-unsynced" in found) is refused


@pytest.mark.parametrize(("release", "stated"), [("5.9.0", None), ("5.10.0", "local")])
def test_the_trainer_reads_the_kind_of_state_dict_from_510_on(
    release: str, stated: str | None, tmp_path: Path
) -> None:
    path = tmp_path / "t.json"
    path.write_text(ARGUMENTS.format('"version": 2, "state_dict_type": "LOCAL_STATE_DICT"'))
    found = configured([str(path)], SHARED, {"transformers": release})
    assert {each.key: each.value for each in found.facts}.get("train.fsdp_state_dict") == stated


@pytest.mark.parametrize(
    ("config", "release", "meant"),
    [
        ('"min_num_params": 1', "5.9.0", "fsdp1"),
        ('"min_num_params": 1', "5.10.0", "fsdp2"),
        ('"min_num_params": 1', None, "fsdp1"),
        ('"version": 1', "5.10.0", "fsdp1"),
        ('"fsdp_version": 2', "5.9.0", "fsdp2"),
    ],
)
def test_the_release_decides_the_version_that_is_not_given(
    config: str, release: str | None, meant: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.json"
    path.write_text(ARGUMENTS.format(config))
    inventory = Inventory().with_facts(configured([str(path)], SHARED, {}).facts)
    if release is not None:
        inventory = inventory.with_facts([Fact("pkg.transformers", Known(release), "a test")])
    derived = derive(derive(inventory, loading.knowledge()), loading.knowledge())
    assert derived.fact("train.parallel").value == meant


def test_a_launcher_that_names_fsdp_is_not_the_trainer(tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    path.write_text("distributed_type: FSDP\nfsdp_config:\n  fsdp_offload_params: false\nnum_processes: 2\n")
    inventory = Inventory().with_facts(configured([str(path)], SHARED, {}).facts)
    inventory = inventory.with_facts([Fact("pkg.transformers", Known("5.10.0"), "a test")])
    assert derive(inventory, loading.knowledge()).fact("train.parallel").value == "fsdp1"


LAUNCH = (
    'torchrun --nproc_per_node 2 train.py --bf16 true --output_dir o --fsdp "full_shard" --fsdp_config {}\n'
)
TRAINER = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\n"
    "Trainer(model=None, args=args).train()\n"
)


def launched(folder: Path, given: str, files: dict[str, str], release: str) -> Inventory:
    for name, text in {
        "run.sh": "#!/bin/bash\n" + LAUNCH.format(given),
        "train.py": TRAINER,
        **files,
    }.items():
        (folder / name).write_text(text)
    stated = configured([str(folder / "run.sh")], SHARED, {"transformers": release}).facts
    read = Inventory().with_facts([*stated, Fact("pkg.transformers", Known(release), "a test")])
    return derive(read, loading.load_matrix(loading.known_vocabulary()))


@pytest.mark.parametrize(
    ("given", "text", "parallel", "offload"),
    [
        ("fsdp.json", '{"version": 1, "offload_params": true}', "fsdp1", True),
        ("fsdp.json", '{"fsdp_version": 2}', "fsdp2", False),
        ("fsdp.json", '{"min_num_params": 1}', "fsdp2", False),
        ("fsdp.json", None, None, None),
        ("""'{"version": 1}'""", None, "fsdp1", False),
        ("""'{"min_num_params": 1}'""", None, "fsdp2", False),
    ],
)
def test_the_file_that_fsdp_config_names_is_read(
    given: str, text: str | None, parallel: str | None, offload: bool | None, tmp_path: Path
) -> None:
    files = {"fsdp.json": text} if text is not None else {}
    found = launched(tmp_path, given, files, "5.10.0")
    assert (found.known("train.parallel"), found.known("train.fsdp_offload")) == (parallel, offload)


def test_a_diagnostic_on_the_file_names_its_line(tmp_path: Path) -> None:
    unsynced = '{\n"cpu_ram_efficient_loading": true,\n"sync_module_states": false\n}'
    launched(tmp_path, "fsdp.json", {"fsdp.json": unsynced}, "4.57.6")
    (refused,) = configured([str(tmp_path / "run.sh")], SHARED, {"transformers": "4.57.6"}).remarks
    assert refused.code == "efficient-loading-unsynced"
    assert (str(tmp_path / "fsdp.json"), 3) in {(place.file, place.line) for place in refused.places}
