"""`matrix measure`: what is installed, what is written down, what is not run twice, what is no finding."""

from __future__ import annotations

import datetime as dt
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envcheck.commands import loading, selftest
from envcheck.commands.measured_cells import cell_toml, cells_of, has_measured
from envcheck.host.files import locked_folder
from envcheck.selftest import outcome as selftest_outcome
from envcheck.selftest.declaration import SelftestVariant
from tests.support.local_index import LocalIndex, serving, wheel
from tests.support.running import Outcome, envcheck

TOOLS = [wheel(name, "70.0") for name in ("setuptools", "wheel", "packaging", "ninja", "py-cpuinfo")]
NAMES = {
    "transformers": "AutoModelForCausalLM = LlamaForCausalLM = Trainer = TrainingArguments = object\n",
    "peft": "LoraConfig = get_peft_model = object\n",
    "accelerate": "Accelerator = object\n",
    "deepspeed": "initialize = init_distributed = object\n",
}


def package(name: str, version: str, code: str, requires: tuple[str, ...] = ()) -> tuple[str, bytes]:
    return wheel(name, version, requires, more={f"{name}/__init__.py": code.encode()})


@pytest.fixture(scope="module")
def index() -> Iterator[LocalIndex]:
    """Packages that import, a DeepSpeed 0.14.0 that does not, and a 0.14.1 that wants another torch."""
    torch = f"__version__ = {'2.4.0'!r}\n"
    files = [
        *TOOLS,
        wheel(
            "torch", "2.4.0", more={"torch/__init__.py": torch.encode(), "torch/version.py": torch.encode()}
        ),
        package("transformers", "4.43.4", NAMES["transformers"]),
        package("peft", "0.12.0", NAMES["peft"]),
        package("accelerate", "0.33.0", NAMES["accelerate"]),
        package("deepspeed", "0.14.4", NAMES["deepspeed"]),
        package("deepspeed", "0.14.0", "raise ImportError(\"cannot import name 'log'\")\n"),
        package("deepspeed", "0.14.1", NAMES["deepspeed"], ("torch<2",)),
    ]
    with serving(LocalIndex(dict(files))) as served:
        yield served


OTHERS = ("transformers==4.43.4", "peft==0.12.0", "accelerate==0.33.0")


def measure(
    index: LocalIndex, folder: Path, *deepspeeds: str, environ: dict[str, str] | None = None
) -> Outcome:
    given = [f"--with={each}" for each in ("torch==2.4.0", *OTHERS, *(f"deepspeed=={v}" for v in deepspeeds))]
    return envcheck(
        *("matrix", "measure", "--target", "zero3-lora", "--only", "packages_import", "--device", "cpu"),
        *(*given, "--in", str(folder / "kept"), "-o", str(folder / "cells.toml")),
        environ={
            "PIP_INDEX_URL": index.url,
            "PIP_EXTRA_INDEX_URL": "",
            "PIP_FIND_LINKS": "",
            "PIP_CONFIG_FILE": "/dev/null",
            **(environ or {}),
        },
    )


def test_a_grid_becomes_cells_and_nothing_is_run_twice(index: LocalIndex, tmp_path: Path) -> None:
    first = measure(index, tmp_path, "0.14.4", "0.14.0", "0.14.1")
    assert first.code == 0, first.err
    cells = tomllib.loads((tmp_path / "cells.toml").read_text())["cell"]
    by_release = {each["pkg"]["deepspeed"]: each for each in cells}
    assert {name: each["outcome"] for name, each in by_release.items()} == {
        "0.14.4": "imports",
        "0.14.0": "fails",
        "0.14.1": "not-installable",
    }
    assert "cannot import name 'log'" in by_release["0.14.0"]["signature"]
    assert by_release["0.14.0"]["failed"] == ["packages_import/deepspeed"]
    assert "torch<2" in by_release["0.14.1"]["signature"]
    assert by_release["0.14.4"]["pkg"]["torch"] == "2.4.0"
    assert by_release["0.14.4"]["date"] == dt.datetime.now(tz=dt.UTC).date()
    # Not one path of this machine is written down.
    assert str(tmp_path) not in (tmp_path / "cells.toml").read_text()
    again = measure(index, tmp_path, "0.14.4", "0.14.0", "0.14.1")
    assert again.code == 0
    assert again.err.count("measured already") == 3
    assert len(tomllib.loads((tmp_path / "cells.toml").read_text())["cell"]) == 3


def test_an_unreachable_index_does_not_count_against_the_releases(index: LocalIndex, tmp_path: Path) -> None:
    ran = measure(index, tmp_path, "0.14.4", environ={"PIP_INDEX_URL": "http://127.0.0.1:9/simple"})
    assert ran.code == 3
    assert "uv could not install" in ran.err
    assert not (tmp_path / "cells.toml").exists()


def test_two_runs_never_share_an_environment(index: LocalIndex, tmp_path: Path) -> None:
    with locked_folder(tmp_path / "kept"):
        ran = measure(index, tmp_path, "0.14.4")
    assert (ran.code, ran.out) == (2, "")
    assert "another envcheck is using this folder" in ran.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--with", "deepspeed==0.19.8"), "--with: expected at least a torch"),
        (("--with", "torch>=2"), "--with: expected a release such as torch==2.6.0, found 'torch>=2'"),
        (("--with", "torch==2.13.0", "--set", "use_reentrent=true"), "did you mean 'train.use_reentrant'?"),
        (("--with", "torch==2.13.0", "--target", "zero3-lor"), "did you mean 'zero3-lora'?"),
        (("--with", "torch==2.13.0", "--target", ""), "--target: measure needs a target"),
        (("--with", "torch==2.13.0", "--only", "recompute"), "--only: no self-test is called 'recompute'"),
    ],
)
def test_a_wrong_option_is_a_one_line_error(arguments: tuple[str, ...], said: str, tmp_path: Path) -> None:
    target = () if "--target" in arguments else ("--target", "zero3-lora")
    ran = envcheck("matrix", "measure", *target, *arguments, "--in", str(tmp_path / "kept"))
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1
    assert not list((tmp_path / "kept").glob("torch-*"))


def test_cells_are_read_back_as_they_were_written() -> None:
    cell = {
        "target": "zero3-lora",
        "outcome": "fails",
        "signature": 'a "quoted" line\twith \\ and \x7f, an é and a 🤗',
        "pkg": {"torch": "2.6.0"},
        "train": {"use_reentrant": False},
        "device": "cpu",
        "ranks": 2,
        "seconds": 1.5,
        "date": dt.date(2026, 11, 21),
        "test": "sha256:0",
        "tests": ["a/b"],
    }
    text = cell_toml(cell)
    assert text.isascii()
    assert tomllib.loads(text)["cell"] == [cell]
    assert tomllib.loads(cell_toml({"signature": "half \ud83d of it"}))["cell"][0]["signature"]


# --- what outcomes amount to ------------------------------------------------------------------------

TARGET = loading.knowledge().targets["zero3-lora"]
LORA: dict[str, Any] = {
    "parallel": "deepspeed",
    "zero_stage": 3,
    "adapter": "lora",
    "gradient_checkpointing": True,
}


def outcome(result: str, why: str = "", **train: Any) -> selftest_outcome.Outcome:
    claim = next(each for each in selftest.claims() if each.name == "recompute_consistency")
    return selftest_outcome.Outcome(
        claim, SelftestVariant("v", {}, train, ("cpu",)), result, why, seconds=1.0
    )


def test_a_configuration_fails_if_one_of_its_tests_does() -> None:
    cells = list(
        cells_of(
            [
                outcome(selftest_outcome.PASS, **LORA, use_reentrant=True),
                outcome(selftest_outcome.FAIL, "shape", **LORA, use_reentrant=False),
                outcome(selftest_outcome.PASS, **LORA, use_reentrant=False),
            ],
            TARGET,
        )
    )
    assert [(each["outcome"], each["train"]) for each in cells] == [
        ("ok", {"use_reentrant": True}),
        ("fails", {"use_reentrant": False}),
    ]


def test_a_test_that_leaves_checkpointing_open_counts_towards_every_configuration() -> None:
    open_ = outcome(selftest_outcome.FAIL, "strays", parallel="deepspeed", zero_stage=3, adapter="lora")
    cells = list(cells_of([outcome(selftest_outcome.PASS, **LORA, use_reentrant=True), open_], TARGET))
    assert [(each["outcome"], each["signature"]) for each in cells] == [("fails", "strays")]


def test_a_different_training_is_a_different_measurement() -> None:
    row = {"target": "zero3-lora", "pkg": {"torch": "2.13.0"}, "test": "sha256:0", "outcome": "ok"}

    def measured(row: dict[str, Any], digest: str = "sha256:0", **train: Any) -> bool:
        return has_measured(
            row, target="zero3-lora", pins={"torch": "2.13.0"}, train=train, ranks=None, digest=digest
        )

    assert measured(row)
    assert not measured(row, digest="sha256:1")
    assert not measured(row, dora=True)
    assert measured({**row, "train": {"dora": True}}, dora=True)
    assert not measured({**row, "train": {"dora": True}})


def test_without_a_whole_configuration_the_cell_only_claims_imports() -> None:
    cells = list(cells_of([outcome(selftest_outcome.PASS, zero_stage=3, adapter="lora")], TARGET))
    assert [each["outcome"] for each in cells] == ["imports"]


def test_an_undecided_outcome_gives_no_cell() -> None:
    assert (
        list(
            cells_of(
                [outcome(selftest_outcome.UNKNOWN, **LORA), outcome(selftest_outcome.SKIP, **LORA)], TARGET
            )
        )
        == []
    )
