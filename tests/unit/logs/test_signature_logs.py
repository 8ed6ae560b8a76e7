"""Every signature finds the failure it was written for, and nothing else.

tests/data/logs holds, for each case with a signature, a log as a user would have it (`<case>.log`) and one that is
close in words and tells of something else (`<case>.near.log`), both read as `explain` reads them. What else
a log matches is listed with the reason in tests/data/logs/also.toml; whatever is not listed fails. Other wordings
of the same failures are in tests/data/logs/variants.toml.
"""

from __future__ import annotations

import tomllib
from functools import cache
from pathlib import Path

import pytest

from envcheck.commands import loading
from envcheck.knowledge import log_signatures
from envcheck.logs import diagnosis as log_diagnosis
from envcheck.logs import scanner as log_scanner
from envcheck.logs.diagnosis import Diagnosis
from envcheck.logs.line_format import log_patterns
from tests.support.paths import DATA

FOLDER = DATA / "logs"
TREE = loading.source_tree()
SIGNATURES = {each.case: each for each in log_signatures.compile_signatures(TREE["case"])}
ALSO = tomllib.loads((FOLDER / "also.toml").read_text())
VARIANTS = tomllib.loads((FOLDER / "variants.toml").read_text())

ANYWHERE = {"consequence", "harmless"}
"""Kinds that may occur in any log beside its cause."""

OWN = sorted(path for path in FOLDER.glob("*.log") if not path.name.endswith(".near.log"))
NEAR = sorted(FOLDER.glob("*.near.log"))


def name(path: Path) -> str:
    """Return the case that a log was written for."""
    return path.name.removesuffix(".log").removesuffix(".near")


def cause(case: str) -> str:
    """Return what a case stands for: its rule, or itself."""
    return SIGNATURES[case].rule or case


@cache
def diagnosis(path: Path) -> Diagnosis:
    return diagnosed(path.read_bytes())


def diagnosed(log: bytes) -> Diagnosis:
    scanner = log_scanner.Scanner(log_patterns(TREE["tables"]))
    scanner.feed(log)
    return log_diagnosis.diagnose(scanner.finish(), SIGNATURES.values())


def causes(path: Path) -> set[str]:
    """Return the cases that a log is diagnosed as, without those that may follow any failure."""
    return {
        cause(each.signature.case) for each in diagnosis(path).matches if each.signature.kind not in ANYWHERE
    }


def listed(path: Path) -> set[str]:
    return {row["cause"] for row in ALSO.get(path.name.removesuffix(".log"), [])}


def test_every_signature_has_a_log_and_a_near_miss() -> None:
    alike: dict[tuple[str, ...], list[str]] = {}
    for each in SIGNATURES.values():  # no log can tell cases with the same texts apart
        alike.setdefault(tuple(text.pattern for text in each.patterns), []).append(each.case)
    own, near = {name(path) for path in OWN}, {name(path) for path in NEAR}
    for cases in alike.values():
        assert own & {*cases}, f"no log: {cases}"
        assert near & {*cases}, f"no near miss: {cases}"
    assert min(len(own), len(near)) >= 120


def test_every_log_and_every_overlap_belongs_to_a_case() -> None:
    assert {name(path) for path in (*OWN, *NEAR)} <= SIGNATURES.keys()
    assert ALSO.keys() <= {path.name.removesuffix(".log") for path in (*OWN, *NEAR)}
    assert all(row["cause"] and row["why"] for rows in ALSO.values() for row in rows)


@pytest.mark.parametrize("path", OWN, ids=name)
def test_the_first_diagnosis_of_a_log_is_its_case(path: Path) -> None:
    found = diagnosis(path).matches
    assert name(path) in {each.signature.case for each in found}
    own = max(each.score for each in found if cause(each.signature.case) == cause(name(path)))
    first = found[0]
    assert cause(first.signature.case) == cause(name(path)) or first.score == own, "another outranks it"


@pytest.mark.parametrize("path", OWN, ids=name)
def test_a_log_has_no_other_diagnosis(path: Path) -> None:
    assert causes(path) - {cause(name(path))} == listed(path)


@pytest.mark.parametrize("path", NEAR, ids=name)
def test_a_near_miss_is_not_diagnosed_as_the_case(path: Path) -> None:
    assert name(path) not in {each.signature.case for each in diagnosis(path).matches}
    assert causes(path) == listed(path)


@pytest.mark.parametrize(
    ("case", "text"), [(case, text) for case, row in VARIANTS.items() for text in row["texts"]]
)
def test_other_wordings_are_diagnosed_as_the_case(case: str, text: str) -> None:
    noise = "  0%|          | 0/60 [00:00<?, ?it/s]\n"
    found = diagnosed(f"{noise}{text}\n{noise}".encode())
    assert case in {each.signature.case for each in found.matches}


@pytest.mark.parametrize(
    ("case", "text"),
    [
        (
            "deepspeed0185-zero2-torch231",
            (
                'Traceback (most recent call last):\n  File "/home/me/train.py", line 44, in hook\n'
                "    self.end = out.grad_fn.next_functions[0][0]\n"
                "AttributeError: 'NoneType' object has no attribute 'next_functions'\n"
            ),
        ),
        (
            "xformers-v100",
            (
                "NotImplementedError: No operator found for `memory_efficient_attention_forward` with inputs:\n"
                "`flshattF@0.0.0` is not supported because:\n    xFormers wasn't build with CUDA support\n"
                "    requires device with capability > (7, 5) but your GPU has capability (7, 0) (too old)\n"
            ),
        ),
        (
            "xformers-v100",
            (
                "NotImplementedError: No operator found for `memory_efficient_attention_forward` with inputs:\n"
                "    requires device with capability > (8, 0) but your GPU has capability (7, 5) (too old)\n"
            ),
        ),
        (
            "swanlab-transformers-4490",
            "ValueError: wanddb is not supported, only azure_ml, mlflow, tensorboard, wandb are supported.\n",
        ),
        (
            "transformers5180-peft0191",
            (
                "ValueError: The version of PEFT you are using is not compatible, please use a version that is "
                "greater than 0.5.0\n"
            ),
        ),
        (
            "cpu-allocator-out-of-memory",
            "MemoryError: Unsloth: Your GPU ran out of memory loading vLLM with standby mode enabled.\n",
        ),
        (
            "cuda-out-of-memory",
            "RuntimeError: CUDA out of memory occurred when warming up sampler with 1024 dummy requests.\n",
        ),
    ],
)
def test_the_text_of_another_failure_is_no_match(case: str, text: str) -> None:
    assert case not in {match.signature.case for match in diagnosed(text.encode()).matches}
