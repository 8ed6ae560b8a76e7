"""The releases that a log mentions exclude failures of other releases, and prove none."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from envcheck.commands import explain, loading
from envcheck.commands.examine import ExamineRequest
from envcheck.core.facts import Fact, Inventory, Known
from envcheck.host.machine import Host
from envcheck.logs.stated_versions import contradicts_releases, list_forms, stated_versions
from envcheck.reports.explanation import Explanation

FORMS = list_forms(loading.source_tree()["tables"])

UNDEFINED = (
    "ImportError: /opt/conda/lib/python3.10/site-packages/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: "
    "undefined symbol: _ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE\n"
)
OF_FLASH_ATTN_28 = "flash-attn-28-torch26-abi"


@pytest.mark.parametrize(
    ("text", "package", "stated"),
    [
        ("torch==2.1.0", "torch", ("2.1.0",)),
        ("transformers== 4.53.0", "transformers", ("4.53.0",)),
        ("PyTorch:2.7.1", "torch", ("2.7.1",)),
        ("python -m pip install trl==0.9.6 peft==0.11.1", "peft", ("0.11.1",)),
        (
            "pip install flash_attn-2.3.4+cu122torch2.1cxx11abiTRUE-cp39-cp39-linux_x86_64.whl",
            "flash-attn",
            ("2.3.4",),
        ),
        ("transformers version 4.57.1, trl 0.24.0", "trl", ("0.24.0",)),
        ("Environment: Python 3.11.9, PyTorch 2.7.1, CUDA 12.8, 2x A100 80GB", "torch", ("2.7.1",)),
        ("- transformers: 4.57.1\n- trl: 0.24.0", "trl", ("0.24.0",)),
        ("INFO:datasets:PyTorch version 2.6.0 available.", "torch", ("2.6.0",)),
        ("(llm) me@node7:~/run$ pip install -U trl==0.9.6 peft --no-deps", "trl", ("0.9.6",)),
        ("  Using cached flash_attn-2.8.3.tar.gz (8.4 MB)", "flash-attn", ("2.8.3",)),
        ("Successfully installed flash_attn-2.8.3", "flash-attn", ("2.8.3",)),
        ("It fails with:\ntransformers==4.57.1", "transformers", ("4.57.1",)),
    ],
)
def test_versions_as_people_write_them_are_read(text: str, package: str, stated: tuple[str, ...]) -> None:
    assert stated_versions([text], Inventory(), FORMS).of(package) == stated


@pytest.mark.parametrize(
    "text",
    [
        "xformers 0.0.22 requires torch==2.1.0",
        "the name will be removed in transformers 5.0.0",
        "transformers>=4.41.2,<=4.45.0",
        "it works with torch 2.5.1",
        "since deepspeed 0.16.2",
        '  File "/opt/transformers-4.2.2/x.py", line 3, in f',
        "I use transformers version 4.57.1 at home",
        "It worked with transformers 4.57.1 last week",
        "a colleague's environment (transformers 4.57.1) runs",
        "fine on a machine with transformers==4.57.1",
        "transformers 4.57.1 runs well",
        "pip install transformers==4.57.1 solved it",
        "the wheel torch-2.6.0-cp311-cp311-linux_x86_64.whl loads",
        "之前用的 transformers 4.57.1 没有问题",
        "It runs on another machine with\ntransformers 4.57.1",
        "It works with these:\n- transformers==4.57.1\n- torch==2.6.0",
    ],
)
def test_a_sentence_states_none(text: str) -> None:
    written = stated_versions([text], Inventory(), FORMS).written

    assert not {"torch", "transformers", "deepspeed"} & {*written}


@pytest.mark.parametrize(
    "line",
    [
        "torch 1" + ".1" * 29_000 + "aZ_9z9",
        "x" * 60_000 + " 1.1",
        "a-" * 30_000 + "1.1",
        "/a-1" + ".1" * 30_000 + "-cp3.whl",
        "/a-1-cp3" * 8_000 + ".whl ",
    ],
)
def test_a_long_line_is_read_in_linear_time(line: str) -> None:
    before = time.process_time()

    stated_versions([line, *(line[:4_000] for _ in range(15))], Inventory(), FORMS)

    assert time.process_time() - before < 0.5


def test_what_a_tool_prints_outweighs_what_is_written() -> None:
    printed = Inventory({"pkg.torch": Fact("pkg.torch", Known("2.6.0+cu124"))})

    stated = stated_versions(["torch==2.1.0"], printed, FORMS)

    assert stated.of("torch") == ("2.6.0+cu124",)
    assert contradicts_releases({"torch": ">=2.7"}, stated)
    assert not contradicts_releases({"torch": "<2.7"}, stated)


def test_versions_on_both_sides_of_a_bound_exclude_nothing() -> None:
    stated = stated_versions(["transformers==4.48.0", "pip install transformers==4.57.1"], Inventory(), FORMS)

    assert not contradicts_releases({"transformers": ">=4.50"}, stated)


def explained(text: str, tmp_path: Path) -> Explanation:
    facts = tmp_path / "facts.toml"
    facts.write_text("[pkg]\n")
    return explain.explain_chunks(ExamineRequest(facts=str(facts)), "log", [text.encode()], Host())


def rules_of(found: Explanation) -> set[str]:
    return {match.signature.rule or match.signature.case for match in found.diagnosis.matches}


@pytest.mark.parametrize("release", ["2.3.4", "2.7.4.post1"])
def test_a_failure_of_other_releases_is_not_told(release: str, tmp_path: Path) -> None:
    line = f"pip install ./flash_attn-{release}+cu122torch2.1cxx11abiTRUE-cp310-cp310-linux_x86_64.whl\n"

    assert OF_FLASH_ATTN_28 in rules_of(explained(UNDEFINED, tmp_path))
    assert OF_FLASH_ATTN_28 not in rules_of(explained(line + UNDEFINED, tmp_path))


def test_a_text_of_a_later_release_is_not_told_of_an_earlier_one(tmp_path: Path) -> None:
    error = "TypeError: Trainer.__init__() got an unexpected keyword argument 'processing_class'\n"

    assert "trainer-processing-class-too-old" in rules_of(explained(error, tmp_path))
    newer = explained("transformers==4.57.1\n" + error, tmp_path)
    assert "trainer-processing-class-too-old" not in rules_of(newer)
    assert newer.diagnosis.failed


@pytest.mark.parametrize(
    ("case", "error", "package", "release"),
    [
        (
            "trl-trainer-tokenizer",
            "TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'\n",
            "trl",
            "0.11.4",
        ),
        (
            "training-arguments-gone-5",
            "TypeError: TrainingArguments.__init__() got an unexpected keyword argument 'no_cuda'\n",
            "transformers",
            "4.57.1",
        ),
    ],
)
def test_only_releases_outside_prose_hide_a_failure(
    case: str, error: str, package: str, release: str, tmp_path: Path
) -> None:
    for prose in (
        "It worked with {} {} last week.\n",
        "A colleague's environment ({} {}) runs.\n",
        "Fine on a machine with {} {}.\n",
    ):
        assert case in rules_of(explained(prose.format(package, release) + error, tmp_path))
    assert case not in rules_of(explained(f"{package}=={release}\n{error}", tmp_path))


def test_an_old_python_cannot_run_what_dropped_the_argument(tmp_path: Path) -> None:
    """Python before 3.10 leaves the class out of the message, and transformers 5 needs 3.10."""
    found = explained("TypeError: __init__() got an unexpected keyword argument 'no_cuda'\n", tmp_path)

    assert "training-arguments-gone-5" not in rules_of(found)
