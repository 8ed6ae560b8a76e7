"""`tools/refresh_optimizers.py` reads what making each optimizer needs, from a store of releases."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tests.command.test_tools import tool

ARGUMENTS = """\
class OptimizerNames(ExplicitEnum):
    ADAMW = "adamw_torch"
    FUSED = "adamw_torch_fused"
    BNB = "adamw_bnb_8bit"
    LAYERS = "galore_adamw_layerwise"
    AO = "adamw_torch_8bit"
    RADAM = "schedule_free_radam"
    SGD = "schedule_free_sgd"

class TrainingArguments:
    def __post_init__(self):
        if is_accelerate_available("0.1.0"):
            raise ImportError
        if self.optim == OptimizerNames.FUSED and is_torch_available():
            if version.parse(version.parse(torch.__version__).base_version) < version.parse("2.0.0"):
                raise ValueError
"""
BRANCHES = """\
class Trainer:
    @staticmethod
    def get_optimizer_cls_and_kwargs(args, model=None):
        def low_rank(optimizer_name):
            is_layerwise = optimizer_name.lower().endswith("layerwise")
            if is_layerwise and args.parallel_mode == ParallelMode.DISTRIBUTED:
                raise NotImplementedError
            if is_layerwise:
                if args.gradient_accumulation_steps != 1:
                    raise ValueError
        if args.optim in [OptimizerNames.ADAMW, OptimizerNames.FUSED]:
            from torch.optim import AdamW
        elif args.optim == OptimizerNames.BNB:
            try:
                from bitsandbytes.optim import AdamW
                if "ademamix" in args.optim:
                    if is_bitsandbytes_available() and parse(version("bitsandbytes")) < parse("0.44.0"):
                        raise ValueError
            except ImportError:
                raise ValueError
            if is_bitsandbytes_available() and parse(version("bitsandbytes")) < parse("0.41.1"):
                logger.warning("old")
        elif args.optim == OptimizerNames.LAYERS:
            if not is_galore_torch_available():
                raise ImportError
            from galore_torch import GaLoreAdamW
            cls, kwargs = low_rank(args.optim)
        elif args.optim == OptimizerNames.AO:
            if not is_torchao_available() or parse(version("torchao")) < parse("0.4.0"):
                raise ImportError
            from torchao.optim import AdamW8bit
        elif args.optim in [OptimizerNames.RADAM, OptimizerNames.SGD]:
            from schedulefree import SGDScheduleFree
            if args.optim == OptimizerNames.RADAM:
                if not is_schedulefree_available("1.4.0"):
                    raise ImportError
"""
HANDLERS = """\
_FREE = [OptimizerNames.RADAM, OptimizerNames.SGD]

def _get_free(ctx):
    from schedulefree import SGDScheduleFree

def _get_bnb(ctx):
    from bitsandbytes.optim import AdamW

_OPTIMIZER_HANDLERS: dict = {
    OptimizerNames.BNB: _get_bnb,
    **dict.fromkeys(_FREE, _get_free),
}
"""
DISPATCH = """\
class Trainer:
    @staticmethod
    def get_optimizer_cls_and_kwargs(args, model=None):
        handler = _OPTIMIZER_HANDLERS.get(args.optim)
        return handler(ctx)
"""


ENUM = """\
class CustomSupportedOptimizers(str, Enum):
    optimi_adamw = "optimi_adamw"
    ao_adamw_4bit = "ao_adamw_4bit"
"""
BUILDER = """\
class Builder:
    def build(self):
        if self.cfg.deepspeed:
            import deepspeed
        if self.cfg.optimizer == "optimi_adamw":
            from optimi import AdamW
        elif self.cfg.optimizer == "muon":
            from muon import Muon
        else:
            raise ValueError
"""


def _store(folder: Path, version: str, package: str = "transformers", **files: str) -> None:
    path = folder / package / f"{version}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("release.json", json.dumps({"package": package, "version": version}))
        for name, text in files.items():
            archive.writestr(f"{package}/{name.replace('__', '/')}.py", text)


@pytest.fixture
def lines(tmp_path: Path) -> list[str]:
    """Return the rows that the tool writes for two releases."""
    _store(tmp_path / "store", "4.57.0", training_args=ARGUMENTS, trainer=BRANCHES)
    later = ARGUMENTS.replace('    AO = "adamw_torch_8bit"\n', "").partition("\nclass TrainingArguments")[0]
    _store(tmp_path / "store", "5.2.0", training_args=later, trainer=DISPATCH, trainer_optimizer=HANDLERS)
    builder = {"utils__schemas__enums": ENUM, "core__builders__base": BUILDER}
    _store(tmp_path / "store", "0.12.0", "axolotl", **builder)
    table = tmp_path / "optimizers.toml"
    table.write_text("# A comment that stays.\n")
    arguments = ("refresh_optimizers.py", "--store", str(tmp_path / "store"), "--table", str(table))
    ran = tool(*arguments, "--write")
    assert (ran.code, ran.err) == (0, "")
    assert tool(*arguments).out == ""
    written = table.read_text().splitlines()
    assert written[0] == "# A comment that stays."
    return [line.strip() for line in written]


def _row(lines: list[str], name: str) -> str:
    return next(line for line in lines if line.startswith(f'{{ name = "{name}", known'))


def test_the_package_is_that_of_the_branch_or_of_the_handler(lines: list[str]) -> None:
    assert _row(lines, "adamw_bnb_8bit") == (
        '{ name = "adamw_bnb_8bit", known = [">=4.57.0"], package = "bitsandbytes" },'
    )
    assert 'package = "schedulefree"' in _row(lines, "schedule_free_sgd")
    assert "package" not in _row(lines, "adamw_torch")


def test_a_name_that_a_release_drops_has_an_end(lines: list[str]) -> None:
    assert 'known = [">=4.57.0,<5.2.0"]' in _row(lines, "adamw_torch_8bit")


def test_a_refusal_in_a_helper_counts_for_the_name_that_it_asks_for(lines: list[str]) -> None:
    row = _row(lines, "galore_adamw_layerwise")
    assert 'refuses_distributed = [">=4.57.0,<5.2.0"], refuses_accumulation = [">=4.57.0,<5.2.0"]' in row
    assert "refuses" not in _row(lines, "adamw_bnb_8bit")


def test_only_versions_below_which_it_raises_are_floors(lines: list[str]) -> None:
    floors = lines[lines.index("optimizer_floor = [") + 1 : -1]
    asked = (
        ("adamw_torch_8bit", "torchao", "0.4.0"),
        ("adamw_torch_fused", "torch", "2.0.0"),
        ("schedule_free_radam", "schedulefree", "1.4.0"),
    )
    assert floors == [
        f'{{ name = "{name}", package = "{package}", minimum = "{least}", '
        f'transformers = [">=4.57.0,<5.2.0"] }},'
        for name, package, least in asked
    ]


def test_a_name_without_code_is_told(lines: list[str]) -> None:
    assert 'unhandled = [">=5.2.0"]' in _row(lines, "galore_adamw_layerwise")
    assert "unhandled" not in _row(lines, "schedule_free_sgd")


def test_the_names_of_a_trainer_are_read_from_the_branches_that_ask_for_them(lines: list[str]) -> None:
    own = [line for line in lines if 'trainer = "axolotl"' in line]
    assert own == [
        '{ name = "ao_adamw_4bit", trainer = "axolotl", known = [">=0.12.0"], unhandled = [">=0.12.0"] },',
        '{ name = "optimi_adamw", trainer = "axolotl", known = [">=0.12.0"], package = "torch-optimi" },',
    ]
