"""A program that works with several releases, or reads its numbers by OmegaConf, draws no remark for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from envcheck.commands import loading
from envcheck.commands.training_files import configured

SHARED = loading.source_tree()["tables"]["argument"]

ARGUMENTS = """
from transformers import Trainer, TrainingArguments
import inspect
params = {"output_dir": "out", "bf16": True}
known = set(inspect.signature(TrainingArguments.__init__).parameters)
"""
TRAIN = "Trainer(args=TrainingArguments(**params)).train()\n"

BY_RELEASE = """
if "eval_strategy" in known:
    params["eval_strategy"] = "epoch"
else:
    params["evaluation_strategy"] = "epoch"
"""
BOTH = 'params["eval_strategy"] = "epoch"\nparams["evaluation_strategy"] = "epoch"\n'
OLD_ONE = 'params["evaluation_strategy"] = "epoch"\n'


def codes(folder: Path, files: dict[str, str], **installed: str) -> list[str]:
    """Return the codes of the remarks, other than notes, on the first of the files."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = configured([str(folder / next(iter(files)))], SHARED, installed)
    return [each.code for each in found.remarks if each.severity.value != "note"]


@pytest.mark.parametrize(
    ("settings", "expected"),
    [(BY_RELEASE, []), (BOTH, ["old-and-new", "other-release"]), (OLD_ONE, ["other-release"]), ("", [])],
    ids=["one or the other", "both", "the old one", "none"],
)
def test_a_name_that_is_set_only_for_some_releases_is_not_missing_in_others(
    tmp_path: Path, settings: str, expected: list[str]
) -> None:
    program = {"train.py": ARGUMENTS + settings + TRAIN}
    assert sorted(codes(tmp_path, program, transformers="4.57.6")) == expected


@pytest.mark.parametrize(("indent", "checkpointing"), [('if "fp8" in known:\n    ', None), ("", True)])
def test_a_value_that_is_set_where_it_had_none_is_not_known(
    tmp_path: Path, indent: str, checkpointing: bool | None
) -> None:
    program = f'{ARGUMENTS}{indent}params["gradient_checkpointing"] = True\n{TRAIN}'
    (tmp_path / "train.py").write_text(program)
    found = configured([str(tmp_path / "train.py")], SHARED, {})
    known = {fact.key: fact.value for fact in found.facts}
    assert known["train.precision"] == "bf16"
    assert known.get("train.gradient_checkpointing") is checkpointing


HYDRA = """
import hydra
from transformers import Trainer, TrainingArguments
@hydra.main(config_path="configs", config_name="sft", version_base=None)
def main(config):
    Trainer(args=TrainingArguments(**config.trainer)).train()
main()
"""
SAFE_LOADED = """
import yaml
from transformers import Trainer, TrainingArguments
config = yaml.safe_load(open("configs/sft.yaml"))
Trainer(args=TrainingArguments(**config["trainer"])).train()
"""


@pytest.mark.parametrize(
    ("program", "rate", "expected"),
    [
        (HYDRA, "2e-4", []),
        (HYDRA, "1.5E5", []),
        (HYDRA, "fast", ["wrong-value"]),
        (SAFE_LOADED, "2e-4", ["wrong-value"]),
        (SAFE_LOADED, "2.0e-4", []),
    ],
)
def test_omegaconf_reads_numbers_that_are_texts_in_yaml(
    tmp_path: Path, program: str, rate: str, expected: list[str]
) -> None:
    yaml = f"trainer:\n  output_dir: out\n  learning_rate: {rate}\n"
    assert codes(tmp_path, {"train.py": program, "configs/sft.yaml": yaml}) == expected


@pytest.mark.parametrize(("clip", "expected"), [("1e0", []), ("one", ["wrong-value"])])
def test_so_do_trainers_that_use_omegaconf(tmp_path: Path, clip: str, expected: list[str]) -> None:
    yaml = f"actor_rollout_ref:\n  actor: {{grad_clip: {clip}}}\nalgorithm: {{adv_estimator: grpo}}\n"
    assert codes(tmp_path, {"ppo.yaml": f"{yaml}trainer: {{n_gpus_per_node: 8}}\n"}) == expected
