"""What a traceback that was cut shows, and messages that go on below, is not read for more than it says."""

from __future__ import annotations

import json

import pytest

from envcheck.commands import loading
from envcheck.logs import scanner as log_scanner
from envcheck.logs.diagnosis import Cause, diagnose
from envcheck.logs.events import Log
from envcheck.logs.line_format import log_patterns
from envcheck.logs.missing_names import PYTHON, missing_name

TABLES = loading.source_tree()["tables"]

LIBRARY = "/e/lib/python3.10/site-packages"


def scanned(log: str) -> Log:
    scanner = log_scanner.Scanner(log_patterns(TABLES))
    scanner.feed(log.encode())
    return scanner.finish()


def cause_of(log: str) -> Cause:
    cause = diagnose(scanned(log), ()).cause
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


def test_a_line_that_imports_something_else_did_not_ask_for_the_name() -> None:
    """The frames below it are missing, and with them the package that asked."""
    asked = (
        "Traceback (most recent call last):\n"
        f'  File "{LIBRARY}/transformers/modeling_utils.py", line 58, in <module>\n    {{}}\n'
        "AttributeError: module 'torch' has no attribute 'float8_e4m3fn'\n"
    )
    cut, shown, listed = (
        missing_name(cause_of(asked.format(line)).event, TABLES)
        for line in (
            "from .quantizers import AutoHfQuantizer",
            "DTYPES = [torch.float8_e4m3fn]",
            "from .a import (",
        )
    )
    assert cut is not None
    assert (cut.lacks, cut.asks, cut.own) == ("torch", "", False)
    assert shown is not None
    assert shown.asks == "transformers"
    assert listed is not None
    assert listed.asks == "transformers"  # the names are in the next lines


RAY = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    "\tclass_name: TaskRunner\n\tactor_id: 8d14\n\tpid: 319017\n\tip: 10.44.139.116\n"
)
FRAME = 'Traceback (most recent call last):\n  File "/e/ray/worker.py", line 931, in get\n    raise value\n'


@pytest.mark.parametrize("above", ["", FRAME])
def test_ray_says_why_an_actor_died_below_its_fields(above: str) -> None:
    why = "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR"
    found = scanned(f"{above}{RAY}{why} The worker may have exceeded K8s pod memory limits.\n")
    said = next(one for event in found.events for one in event.exceptions)
    assert said.message.startswith(
        "The actor died unexpectedly before finishing this task. The actor is dead"
    )
    assert "actor_id" not in said.message
    form = next(event.form for event in found.events if event.exceptions)
    assert form is not None
    assert "pod" in form.means

    other = scanned(f"{above}{RAY}step 3 took 2 s, no error\n")
    assert next(one for event in other.events for one in event.exceptions).message.endswith("this task.")


TRACEBACK = (
    'Traceback (most recent call last):\n  File "/w/train.py", line 3, in main\n    x["a"]\nKeyError: \'a\'\n'
)


@pytest.mark.parametrize(
    "text",
    [
        "".join(
            json.dumps({"log": f"{line}\n", "stream": "stderr", "time": "2026-01-01T00:00:00Z"}) + "\n"
            for line in TRACEBACK.splitlines()
        ),
        json.dumps({"timestamp": "2026", "level": "error", "event": "failed", "exception": TRACEBACK}) + "\n",
        json.dumps({"level": "ERROR", "text": f"{'x' * 9_000}\n{TRACEBACK}"}) + "\n",
        "2026-01-01T00:00:00.123456789Z " + json.dumps({"severity": "ERROR", "message": TRACEBACK}) + "\n",
        json.dumps({"@timestamp": "2026", "message": "no", "error": {"stack_trace": TRACEBACK}}) + "\n",
    ],
    ids=["docker", "structlog", "long", "behind a time", "nested"],
)
def test_lines_of_json_are_read_as_the_text_that_they_hold(text: str) -> None:
    cause = cause_of(text)
    assert [one.message for one in cause.event.exceptions] == ["'a'"]
    assert cause.place is not None
    assert (cause.place.file, cause.place.line) == ("/w/train.py", 3)
    assert cause.event.last <= len(text.splitlines())


def test_an_example_of_the_data_that_is_printed_is_no_line_of_a_log() -> None:
    found = scanned(json.dumps({"text": TRACEBACK, "label": 1}) + "\n")
    assert not any(event.exceptions and event.what == "raised" for event in found.events)


def test_nccl_warns_of_two_ranks_on_one_gpu() -> None:
    warned = "node1:310402:312269 [0] init.cc:943 NCCL WARN {}\n"
    cause = cause_of(warned.format("Duplicate GPU detected : rank 0 and rank 2 both on CUDA device 1000"))
    assert cause.kind == "setting"
    assert cause.event.form is not None
    assert cause.event.form.means == "two ranks use one GPU"

    other = scanned(warned.format("Call to connect returned Connection refused, retrying"))
    assert not any(event.form and event.form.kind == "setting" for event in other.events)


def test_a_function_of_the_driver_is_not_one_of_the_runtime() -> None:
    said = "ImportError: /e/site-packages/sgl_kernel/common_ops.abi3.so: undefined symbol: {}\n"
    driver, runtime = (
        cause_of(said.format(name)).event.form for name in ("cuCtxCreate_v4", "cudaGraphAddNode")
    )
    assert driver is not None
    assert "libcuda" in driver.means
    assert runtime is not None
    assert "libcuda" not in runtime.means


def test_which_weight_of_zero3_is_meant_is_read_from_its_status() -> None:
    said = "AssertionError: {{'id': 0, 'status': '{}', 'numel': 233373696, '\n"
    held, away = (cause_of(said.format(status)).event.form for status in ("AVAILABLE", "NOT_AVAILABLE"))
    assert held is not None
    assert "still uses" in held.means
    assert away is not None
    assert "not gathered" in away.means


@pytest.mark.parametrize(
    ("line", "name", "message"),
    [
        ("ERROR: Training failed: ValueError: no split `dev`", "ValueError", "no split `dev`"),
        (
            "ERROR: Training failed: CUDA out of memory. Tried to allocate 2 GiB",
            "torch.OutOfMemoryError",
            None,
        ),
        ("12:00:00 [ERROR] trainer: An error occurred: KeyError('labels')", "KeyError", "'labels'"),
        ("12:00:00 [ERROR] trainer: An error occurred: OSError('disk quota')", "OSError", "disk quota"),
    ],
)
def test_an_exception_that_a_program_logs_in_a_sentence_is_read(
    line: str, name: str, message: str | None
) -> None:
    told = cause_of(f"{line}\n").told
    assert told is not None
    assert told.name == name
    assert message is None or told.message == message


@pytest.mark.parametrize(
    "line", ["    errors.append(ValueError('labels'))", "ERROR: the file config.yaml is not valid"]
)
def test_a_line_of_code_or_a_sentence_without_an_exception_names_none(line: str) -> None:
    assert not any(event.exceptions for event in scanned(f"{line}\n").events)


LABEL = "2026-01-01 10:00:0{} - trainer - ERROR - "


@pytest.mark.parametrize(
    "label", [LABEL, "ERROR: ", "[worker 3] ", "a.py:{}] ", "> ", "E   ", "worker {} says ", "log |"]
)
def test_a_label_before_each_line_of_a_traceback_is_no_part_of_it(label: str) -> None:
    whole = f"{TRACEBACK}\nDuring handling of the above exception, another exception occurred:\n\n{FRAME}RuntimeError: no\n"
    lines = [f"{label.format(at % 10)}{line}".rstrip() for at, line in enumerate(whole.splitlines())]
    cause = cause_of("\n".join(lines) + "\n")
    assert [one.name for one in cause.event.exceptions] == ["KeyError", "RuntimeError"]
    assert cause.place is not None
    assert cause.place.file == "/w/train.py"


def test_a_label_before_the_header_alone_takes_nothing_from_the_lines_below() -> None:
    cause = cause_of(f"ERROR: {TRACEBACK}")
    assert cause.place is not None
    assert cause.place.line == 3


def test_a_word_before_the_header_is_no_label() -> None:
    below = "Original error was: no module"
    frames = "".join(TRACEBACK.splitlines(keepends=True)[:-1])
    event = scanned(f"Original {frames}ImportError:\n{below}\n").events[0]
    assert below in event.text
