"""The exception of the process that failed is the cause, not the wrapper that another one raised for it."""

from __future__ import annotations

import pytest

from envcheck.commands import loading
from envcheck.logs import scanner as log_scanner
from envcheck.logs.diagnosis import Diagnosis, diagnose
from envcheck.logs.events import Event, Frame
from envcheck.logs.line_format import log_patterns
from envcheck.logs.own_code import own_code
from envcheck.logs.refused_values import refused_values

TABLES = loading.source_tree()["tables"]

TASK = """\
Traceback (most recent call last):
  File "/opt/verl/verl/trainer/main_ppo.py", line 63, in main
    run_ppo(config)
ray.exceptions.RayTaskError({name}): ray::TaskRunner.run() (pid=4237, ip=10.130.1.15)
  File "/opt/verl/verl/trainer/main_ppo.py", line 212, in run
    trainer.fit()
"""
INNER = """\
  File "/opt/conda/lib/python3.10/site-packages/verl/workers/actor/dp_actor.py", line 300, in update_policy
    loss.backward()
ValueError: the loss is no number
"""


def diagnosed(log: str) -> Diagnosis:
    scanner = log_scanner.Scanner(log_patterns(TABLES))
    scanner.feed(log.encode())
    return diagnose(scanner.finish(), ())


def test_an_error_in_a_ray_task_is_the_cause() -> None:
    cause = diagnosed(TASK.format(name="ValueError") + INNER).cause
    assert cause is not None
    assert cause.told is not None
    assert (cause.told.name, cause.told.message) == ("ValueError", "the loss is no number")
    assert [one.name.rpartition(".")[2] for one in cause.later] == ["RayTaskError"]


@pytest.mark.parametrize(
    "between",
    [
        "ray.exceptions.RayTaskError(ValueError): ray::WorkerDict.update() (pid=5112, ip=10.130.1.15)\n",
        "ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task\n",
    ],
)
def test_the_innermost_of_nested_tasks_is_the_cause(between: str) -> None:
    cause = diagnosed(TASK.format(name="ValueError") + between + INNER).cause
    assert cause is not None
    assert cause.told is not None
    assert cause.told.name == "ValueError"
    assert len(cause.later) == 2


def test_a_task_error_behind_a_prefix_and_without_a_header_quotes_its_frames() -> None:
    log = TASK.format(name="ValueError").split("\n", 3)[3] + INNER
    cause = diagnosed("".join(f"(TaskRunner pid=4237) {line}\n" for line in log.splitlines())).cause
    assert cause is not None
    assert cause.told is not None
    assert cause.told.name == "ValueError"


def test_a_task_error_whose_inner_exception_was_cut_off_is_itself_the_cause() -> None:
    cause = diagnosed(TASK.format(name="ValueError")).cause
    assert cause is not None
    assert cause.told is not None
    assert cause.told.name == "ray.exceptions.RayTaskError"


def test_frames_below_another_exception_begin_a_traceback_of_their_own() -> None:
    log = f"(worker pid=1) KeyError: 'a'\n(worker pid=1) epoch 2\n{INNER}"
    named = [event.exceptions[0].name for event in events(log) if event.exceptions]
    assert named == ["KeyError", "ValueError"]


def events(log: str) -> tuple[Event, ...]:
    scanner = log_scanner.Scanner(log_patterns(TABLES))
    scanner.feed(log.encode())
    return scanner.finish().events


def test_an_exception_without_a_message_is_told_by_the_one_it_became() -> None:
    log = """\
Traceback (most recent call last):
  File "/opt/LLaMA-Factory/src/llamafactory/data/loader.py", line 219, in _get_preprocessed_dataset
    print_function(next(iter(dataset)))
StopIteration

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/opt/LLaMA-Factory/src/llamafactory/data/loader.py", line 223, in _get_preprocessed_dataset
    raise RuntimeError("nothing is left")
RuntimeError: nothing is left
"""
    cause = diagnosed(log).cause
    assert cause is not None
    assert cause.told is not None
    assert cause.place is not None
    assert (cause.told.message, cause.place.line, cause.later) == ("nothing is left", 223, ())


def test_the_engine_that_died_follows_from_an_earlier_error() -> None:
    died = "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above)\n"
    alone = diagnosed(died)
    assert alone.cause is None
    assert [one.kind for one in alone.consequences] == ["consequence"]
    told = diagnosed(f"(EngineCore pid=7) RuntimeError: the kernel is missing\n{died}").cause
    assert told is not None
    assert told.told is not None
    assert told.told.message == "the kernel is missing"


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/home/me/TTRL/verl/verl/workers/fsdp_workers.py", False),
        ("/home/me/verl/train.py", True),
        ("/home/user/LLaMA-Factory/src/llmtuner/data/loader.py", False),
        ("/home/me/src/data/loader.py", True),
    ],
)
def test_a_checkout_below_another_folder_of_its_name_is_the_library(file: str, *, own: bool) -> None:
    assert own_code(Frame(file, 1, "f")) is own


def test_the_values_that_pydantic_refuses_are_named() -> None:
    log = """\
Traceback (most recent call last):
  File "/opt/conda/lib/python3.11/site-packages/pydantic/main.py", line 171, in __init__
    self.__pydantic_validator__.validate_python(data, self_instance=self)
pydantic_core._pydantic_core.ValidationError: 2 validation errors for AxolotlInputConfig
datasets.0.type
  Field required [type=missing, input_value={'path': 'c4'}, input_type=dict]
    For further information visit https://errors.pydantic.dev/2.10/v/missing
  Value error, load_in_8bit and load_in_4bit exclude each other [type=value_error, input_value={}, input_type=dict]
"""
    found = refused_values(events(log)[0])
    assert [(one.field, one.kind) for one in found] == [("datasets.0.type", "missing"), ("", "value_error")]
    assert refused_values(events(log.replace("ValidationError", "ValueError"))[0]) == ()


NCCL = """\
torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, unhandled system error, NCCL version 2.21.5
ncclSystemError: System call or external library call failed or device error.
Last error:
socketStartConnect: Connect to 169.254.0.1<40815> failed : Software caused connection abort
"""


def test_what_nccl_says_last_belongs_to_the_error_that_a_ray_task_quotes() -> None:
    frames, _, _ = INNER.rpartition("ValueError")

    cause = diagnosed(TASK.format(name="DistBackendError") + frames + NCCL).cause

    assert cause is not None
    assert cause.told is not None
    assert cause.told.message.endswith(
        "Connect to 169.254.0.1<40815> failed : Software caused connection abort"
    )


@pytest.mark.parametrize(
    ("warned", "apart"),
    [
        ("Connect to 169.254.0.1<40815> failed : Software caused connection abort", 0),
        ("Connect to 10.0.0.9<33001> failed : No route to host", 1),
    ],
)
def test_a_warning_that_the_error_repeats_is_no_failure_apart(warned: str, apart: int) -> None:
    frames, _, _ = INNER.rpartition("ValueError")
    warning = f"n1:7:9 [0] socket.c:460 NCCL WARN socketStartConnect: {warned}\n"

    found = diagnosed(f"{warning}{TASK.format(name='DistBackendError')}{frames}{NCCL}")

    assert found.cause is not None
    assert len(found.apart) == apart
