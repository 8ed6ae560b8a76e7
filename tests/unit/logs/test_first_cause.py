"""Which of several failures ended the run, and what a line that names an error shows of it."""

from __future__ import annotations

import pytest

from envcheck.commands import explain
from envcheck.commands.examine import ExamineRequest
from envcheck.host.machine import Host
from envcheck.reports.explanation import FAILED, NOTHING, UNEXPLAINED
from tests.support.logs import END, SITE, STEPS, Explain, answer, cause_of, of_own_code, traceback


@pytest.mark.parametrize("steps", [STEPS, "".join(STEPS.splitlines(keepends=True)[:50])])
def test_an_error_in_a_run_that_trained_to_its_end_did_not_end_it(steps: str, explained: Explain) -> None:
    found = explained(of_own_code("ZeroDivisionError: division by zero", "x / y") + steps + END)

    assert found.code == NOTHING
    assert "ZeroDivisionError" in answer(found)


def test_an_error_after_the_end_of_the_training_counts(explained: Explain) -> None:
    found = explained(
        STEPS + END + of_own_code("OSError: [Errno 28] No space left on device", "torch.save(x, p)")
    )

    assert found.code == FAILED


def test_an_attempt_before_the_training_began_is_not_the_cause(explained: Explain) -> None:
    first = of_own_code("ModuleNotFoundError: No module named 'deepspeed'", "import deepspeed")
    steps = "".join(STEPS.splitlines(keepends=True)[:30])
    last = of_own_code(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "loss.backward()"
    )

    found = explained(first + steps + last)

    assert cause_of(found).kind == "memory"
    assert "ModuleNotFoundError" in answer(found)


def test_a_crash_after_training_began_outweighs_an_import_that_failed_before(explained: Explain) -> None:
    tried = (f"{SITE}/apex/__init__.py", 3, "<module>", "import amp_C")
    missing = traceback("ImportError: libcudart.so.11.0: cannot open shared object file", tried)

    found = explained(missing + "step 1 loss: 2.0\nstep 2 loss: 1.9\nSegmentation fault (core dumped)\n")

    assert cause_of(found).kind == "crash"


def test_an_exception_that_python_ignored_is_no_failure(explained: Explain) -> None:
    raised = traceback(
        "TypeError: 'NoneType' object is not callable", (f"{SITE}/x/y.py", 3, "__del__", "self.close()")
    )

    assert explained(f"done\nException ignored in: <function F.__del__ at 0x7f>\n{raised}").code == NOTHING
    assert explained(raised).code == UNEXPLAINED


def test_an_error_that_a_line_only_names_is_no_failure(explained: Explain) -> None:
    line = "INFO if you see RuntimeError: CUDA error: no kernel image is available for execution on the device, upgrade\n"

    assert explained(line + STEPS).code == NOTHING


def test_the_time_limit_of_a_job_outweighs_the_interrupt_that_it_sent(explained: Explain) -> None:
    line = "slurmstepd: error: *** JOB 123 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n"

    found = explained(line + of_own_code("KeyboardInterrupt", "train()"))

    assert "time limit" in answer(found)
    assert [cause.event.exceptions[0].name for cause in found.diagnosis.consequences] == ["KeyboardInterrupt"]


def test_the_error_of_a_spawned_process_is_the_cause_of_its_end(explained: Explain) -> None:
    join = (
        f"{SITE}/torch/multiprocessing/spawn.py",
        200,
        "join",
        "raise ProcessRaisedException(msg, i, pid)",
    )
    parent = traceback("torch.multiprocessing.spawn.ProcessRaisedException: ", join)
    own = of_own_code("NameError: name 'hidden' is not defined", "m = Linear(hidden)")

    found = explained(f"{parent}\n-- Process 1 terminated with the following error:\n{own}")

    assert "NameError" in answer(found).splitlines()[0]


@pytest.mark.parametrize(
    "log",
    [
        "The conflict is caused by:\n    a 1.0.0 depends on torch<=1.12.1 and >=1.9.1\n    peft 0.11.1 depends on torch>=1.13.0\n",
        "undefined symbol: _ZNK3c105Error4whatEv\n",
        "nvidia-container-cli: requirement error: unsatisfied condition: cuda>=12.8\n",
    ],
)
def test_a_quotation_without_its_first_line_is_a_failure(log: str, explained: Explain) -> None:
    found = explained(log)

    assert found.code == FAILED
    assert cause_of(found).event.form


@pytest.mark.parametrize(
    "lines",
    [
        "Requirement already satisfied: transformers in c:\\env\\lib\\site-packages (4.44.2)\n",
        "Transformers 4.44.2\n",
        "- Transformers: 4.44.2\n",
        "peft==0.15.1\ntransformers==4.44.2\n",
    ],
)
def test_a_release_that_is_written_down_is_that_of_the_log(lines: str) -> None:
    log = f"{lines}ImportError: cannot import name 'cached_path' from 'transformers'\n"

    found = explain.explain_chunks(ExamineRequest(), "log", [log.encode()], Host())

    assert {fact.key: fact.value for fact in found.printed}["pkg.transformers"] == "4.44.2"


def test_the_name_of_an_exception_alone_resembles_no_known_failure(explained: Explain) -> None:
    assert "deepspeed-curand" not in answer(explained("ImportError: cannot open the file\n"))


def test_a_worker_that_died_may_not_have_been_killed(explained: Explain) -> None:
    said = "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker exit detail: x\n"

    assert explained(said).code == UNEXPLAINED


def test_a_job_that_was_preempted_did_not_fail_before(explained: Explain) -> None:
    line = "slurmstepd: error: *** STEP 1.0 ON n1 CANCELLED AT 2026-01-01T00:00:00 DUE TO PREEMPTION ***\n"

    assert "needed for another job" in answer(explained(line))


def test_a_harmless_remark_is_not_said_to_be_the_cause(explained: Explain) -> None:
    remark = "[WARNING] async_io requires the dev libaio .so object and headers but these were not found.\n"

    found = explained(remark + of_own_code("ValueError: bad rate", "raise ValueError('bad rate')"))

    assert "may be the cause" not in answer(found)


def test_what_an_exception_became_is_told_with_its_message(explained: Explain) -> None:
    first = of_own_code("KeyError: 'abc'", "return cache[name]")
    then = of_own_code("FileNotFoundError: no file for abc", "return load(name)")

    found = explained(
        f"{first}\nDuring handling of the above exception, another exception occurred:\n\n{then}"
    )

    assert "became  FileNotFoundError: no file for abc" in answer(found)


def test_a_backtick_stays_in_a_message_that_quotes_more_than_one_name(explained: Explain) -> None:
    said = "TypeError: `model` must be a `LightningModule` or `torch._dynamo.OptimizedModule`, got `LagLlama`"

    assert "two packages of Lightning" in answer(explained(f"{said}\n"))


def test_a_message_that_begins_below_its_exception_is_shown(explained: Explain) -> None:
    found = answer(
        explained("ImportError: \n[sgl_kernel] CRITICAL: Could not load any common_ops library!\n")
    )

    assert "ImportError: [sgl_kernel] CRITICAL: Could not load any common_ops library!" in found


def test_a_compiler_that_was_killed_was_not_survived(explained: Explain) -> None:
    found = explained(
        "/usr/local/cuda/bin/nvcc -c flash_bwd_hdim128_bf16_sm80.cu -o flash_bwd_hdim128_bf16_sm80.o\n"
        "Killed\nninja: build stopped: subcommand failed.\n"
        + traceback(
            "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.",
            (f"{SITE}/torch/utils/cpp_extension.py", 1902, "_run_ninja_build", "subprocess.run("),
        )
    )

    assert not found.diagnosis.survived
    assert "MAX_JOBS" in answer(found)


def test_a_known_failure_right_above_a_traceback_that_was_cut_is_its_cause(explained: Explain) -> None:
    cut = traceback(
        "", (f"{SITE}/deepspeed/runtime/engine.py", 1157, "_configure", "self._broadcast_model()")
    )
    shared = "Error while creating shared memory segment /dev/shm/nccl-CsYXMW (size 9637888)\n"

    near, far = explained(shared + cut), explained(shared + "loading\n" * 40 + cut)

    assert "first cause  line 1: Error while creating shared memory segment" in answer(near)
    assert "first cause  line 1:" not in answer(far)


def test_a_traceback_that_was_cut_is_not_said_to_have_been_survived(explained: Explain) -> None:
    cut = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/home/me/train.py", line 3, in <module>\n'
    found = explained(
        cut + "[rank0]: ValueError: Target modules wq not found in the base model. Please check\n"
    )

    assert "after which the run continued" not in answer(found)


def test_the_assertion_of_a_kernel_belongs_to_the_exception_below_it(explained: Explain) -> None:
    at = "Indexing.cu:1284: indexSelectLargeIndex: block: [134,0,0], thread: [31,0,0]"
    found = explained(
        f"../aten/src/ATen/native/cuda/{at} Assertion `srcIndex < srcSelectDimSize` failed.\n"
        + of_own_code("RuntimeError: CUDA error: device-side assert triggered", "trainer.train()")
    )

    assert "An id is beyond the embedding" in answer(found)
    assert "not known to belong to it" not in answer(found)


def test_an_error_that_repeats_a_tasks_traceback_is_not_told_in_its_place(explained: Explain) -> None:
    quoted = traceback(
        "NotImplementedError",
        (f"{SITE}/verl/utils/reward_score/__init__.py", 50, "score", "raise NotImplementedError"),
    )
    header, _, frames = quoted.partition("\n")
    raising = (
        f'  File "{SITE}/ray/worker.py", line 929, in get_objects\n    raise value.as_instanceof_cause()\n'
    )
    task = "ray.exceptions.RayTaskError(NotImplementedError): ray::TaskRunner.run() (pid=7, ip=10.0.0.1)\n"

    found = explained(f"{header}\n{raising}{task}{frames}")

    assert "verl/utils/reward_score/__init__.py:50" in answer(found)
    assert cause_of(found).told is not None
    assert str(cause_of(found).told).startswith("Raised(name='NotImplementedError'")


def test_a_launcher_that_reports_a_signal_is_not_the_known_failure(explained: Explain) -> None:
    launch = (
        f"{SITE}/accelerate/commands/launch.py",
        637,
        "simple_launcher",
        "raise subprocess.CalledProcessError(returncode=process.returncode, cmd=cmd)",
    )
    said = "subprocess.CalledProcessError: Command '['python', 'train.py']' {}."

    died = answer(explained(traceback(said.format("died with <Signals.SIGSEGV: 11>"), launch)))
    ended = answer(explained(traceback(said.format("returned non-zero exit status 1"), launch)))

    assert died.startswith("Known failure: A process died of a segmentation fault")
    assert ended.startswith("Failed elsewhere")


def test_a_worker_that_died_is_second_to_a_line_that_says_why(explained: Explain) -> None:
    died = "(raylet) A worker died or was killed while executing a task by an unexpected system error.\n"
    why = "(WorkerDict pid=23189) Invalid handle. Cannot load symbol cublasLtGetVersion\n"

    assert answer(explained(died + why)).startswith("Failed: Invalid handle. Cannot load symbol")
    assert "a worker process of Ray died" in answer(explained(died))


def test_a_program_that_prints_what_it_caught_failed(explained: Explain) -> None:
    said = (
        "11/02 13:19:13 - mmengine - WARNING - {}'module 'torch.compiler' has no attribute 'is_compiling''!\n"
    )

    caught = answer(explained(said.format("WARNING: command error: ")))
    warned = explained(said.format("falling back: "))

    assert "torch.compiler.is_compiling: in torch from 2.3.0 on" in caught
    assert not warned.diagnosis.failed


def test_errors_of_the_system_are_read_without_the_exceptions_name(explained: Explain) -> None:
    found = explained(
        "02:54:18 ERROR    Could not load torch: [WinError 126] Das angegebene Modul wurde nicht gefunden.\n"
    )
    missing = explained(
        "mmengine - WARNING - WARNING: command error: '[Errno 2] No such file or directory: 'python''!\n"
    )

    assert "Microsoft Visual C++ Redistributable" in answer(found)
    assert "that program is not on the PATH" in answer(missing)
    assert not explained("INFO retry after [Errno 2] No such file or directory: 'cache'\n").diagnosis.failed


@pytest.mark.parametrize(
    "said",
    [
        "IndexError: index out of range in self",  # a known failure
        "AttributeError: 'Column' object has no attribute 'mean'",  # a message with a meaning
        "ImportError: cannot import name 'patch_compiled_autograd' from 'unsloth_zoo.patching_utils'",
        "ValueError: invalid literal for int() with base 10: 'x'",  # what the class of exceptions means
    ],
)
def test_what_to_do_stands_right_below_the_verdict(said: str, explained: Explain) -> None:
    lines = answer(explained(f"{said}\n")).splitlines()

    place = next(number for number, line in enumerate(lines) if "first cause" in line)
    assert lines[1].startswith("    ")
    assert any(line.startswith("    advice  ") for line in lines[:place])
    assert not any(line.startswith("    advice  ") for line in lines[place:])
