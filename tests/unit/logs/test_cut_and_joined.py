"""What a traceback that was cut shows, and messages that go on below, is not read for more than it says."""

from __future__ import annotations

import pytest

from envcheck.commands import loading
from envcheck.logs import scanner as log_scanner
from envcheck.logs.diagnosis import Cause, diagnose
from envcheck.logs.line_format import log_patterns
from envcheck.logs.missing_names import PYTHON, missing_name

TABLES = loading.source_tree()["tables"]

LIBRARY = "/e/lib/python3.10/site-packages"


def cause_of(log: str) -> Cause:
    scanner = log_scanner.Scanner(log_patterns(TABLES))
    scanner.feed(log.encode())
    cause = diagnose(scanner.finish(), ()).cause
    assert cause is not None
    return cause


@pytest.mark.parametrize(
    ("line", "kind"), [("trainer.train()", "unknown"), ("print(self.batch.tokens)", "code")]
)
def test_a_line_without_the_name_did_not_ask_for_it(line: str, kind: str) -> None:
    log = (
        f'Traceback (most recent call last):\n  File "/home/me/train.py", line 9, in train\n    {line}\n'
        "AttributeError: 'list' object has no attribute 'tokens'\n"
    )
    assert cause_of(log).kind == kind


def test_the_line_before_a_hook_asked_for_the_attribute() -> None:
    log = (
        f'Traceback (most recent call last):\n  File "{LIBRARY}/unsloth/models/llama.py", line 7, in load\n'
        f'    model.update()\n  File "{LIBRARY}/torch/nn/modules/module.py", line 1931, in __getattr__\n'
        "    raise AttributeError(\nAttributeError: 'LlamaForCausalLM' object has no attribute 'update'\n"
    )
    place = cause_of(log).place
    assert place is not None
    assert place.file.endswith("unsloth/models/llama.py")


def test_a_message_goes_on_while_its_bracket_is_open() -> None:
    log = "ValueError: Target module Tower(\n  (proj): Conv3d(3, 1280)\n) is not supported. Currently, only\nnext\n"
    told = cause_of(log).told
    assert told is not None
    assert told.message.endswith("(proj): Conv3d(3, 1280) ) is not supported. Currently, only")


def test_typographic_quotes_are_read_as_straight_ones() -> None:
    """Chats, forums and word processors replace the quotes of what is pasted into them."""
    log = "ImportError: cannot import name \N{LEFT SINGLE QUOTATION MARK}AdamW\N{RIGHT SINGLE QUOTATION MARK} from 'transformers'"
    told = cause_of(log).told
    assert told is not None
    assert told.message == "cannot import name 'AdamW' from 'transformers'"


def test_nccl_says_below_its_error_which_call_failed() -> None:
    log = (
        "node2: RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1269, internal error, NCCL version 2.14.3\n"
        "node2: Last error:\nnode2: Net : Call to recv from 10.0.0.2<56843> failed : Connection refused\n"
    )
    assert cause_of(log).kind == "network"


def test_a_package_that_was_only_tried_is_not_what_failed() -> None:
    tried = (
        f'Traceback (most recent call last):\n  File "{LIBRARY}/xformers/__init__.py", line 57, in NAME\n'
        "    import triton\nModuleNotFoundError: No module named 'triton'\n"
    )
    failed = "Traceback (most recent call last):\n  File \"/home/me/t.py\", line 3, in f\n    d['x']\nKeyError: 'x'\n"
    assert cause_of(tried.replace("NAME", "_is_triton_available") + failed).event.text.endswith("'x'")
    assert cause_of(tried.replace("NAME", "<module>") + failed).event.text.endswith("'triton'")


def test_a_lazy_import_quotes_what_counts() -> None:
    log = (
        "RuntimeError: Failed to import transformers.modeling_utils because of the following error (look up to "
        "see its traceback):\nThe 'transformers<=4.48.3' distribution was not found and is required by llamafactory\n"
    )
    assert cause_of(log).kind == "version"


@pytest.mark.parametrize(
    ("message", "lacks"),
    [
        ("AttributeError: module 'typing' has no attribute 'Unpack'", PYTHON),
        (
            "ImportError: cannot import name 'getargspec' from 'inspect' (/usr/lib/python3.11/inspect.py)",
            PYTHON,
        ),
        ("ModuleNotFoundError: No module named 'distutils'", "setuptools"),
    ],
)
def test_the_standard_library_is_no_package(message: str, lacks: str) -> None:
    missing = missing_name(cause_of(f"{message}\n").event, TABLES)
    assert missing is not None
    assert missing.lacks == lacks


@pytest.mark.parametrize(
    ("below", "ending"),
    [
        ('  in "config.yml", line 12, column 16', 'not allowed here in "config.yml", line 12, column 16'),
        ("  in all files of the folder", "not allowed here"),
    ],
)
def test_the_place_in_a_yaml_file_belongs_to_the_message(below: str, ending: str) -> None:
    log = (
        f'Traceback (most recent call last):\n  File "{LIBRARY}/yaml/scanner.py", line 577, in fetch_value\n'
        f"    raise error\nyaml.scanner.ScannerError: mapping values are not allowed here\n{below}\n"
    )
    told = cause_of(log).told
    assert told is not None
    assert told.message.endswith(ending)


def test_an_exception_without_a_message_ends_a_traceback_that_lost_its_indents() -> None:
    lines = 'File "/opt/site-packages/deepspeed/runtime/zero/stage3.py", line 529, in defragment  \n'
    lines += "    assert len(set(t.dtype for t in tensors)) == 1  \nAssertionError  \n"

    cause = cause_of(lines)

    assert cause.event.last == 3
    assert cause.told is not None
    assert cause.told.message == "assert len(set(t.dtype for t in tensors)) == 1"
