"""What a command line means where a program refuses an option, and messages that stand below their title."""

from __future__ import annotations

import pytest

from envcheck.logs.own_code import is_pythons_own
from envcheck.reports.explanation import FAILED, NOTHING, UNEXPLAINED
from tests.support.logs import SITE, Explain, answer, cause_of, traceback

_USAGE = "usage: torchrun [-h] [--nproc_per_node N]\n                [--node_rank N] [--tee TEE]\n"


@pytest.mark.parametrize(
    ("refused", "meant"),
    [
        ("torchrun: error: unrecognized arguments: --nproc-per-node=1", "--nproc_per_node"),
        ("torchrun: error: unrecognized arguments: --nodes_rank 1", "--node_rank"),
        ("train.py: error: argument --stage: invalid choice: 'stf' (choose from 'pt', 'sft-')", ""),
        ("train.py: error: argument --stage: invalid choice: 'SFT' (choose from 'pt', 'sft')", "sft"),
        ("torchrun: error: unrecognized arguments: --learning_rate 1", ""),
    ],
)
def test_the_option_that_is_meant_is_named(refused: str, meant: str, explained: Explain) -> None:
    said = answer(explained(f"{_USAGE}{refused}\n"))

    assert ("    meant   " in said) is bool(meant)
    assert not meant or f"this program has {meant}\n" in said


def test_an_option_of_another_usage_is_not_named(explained: Explain) -> None:
    said = answer(explained("train.py: error: unrecognized arguments: --nproc-per-node=1\n" + _USAGE))

    assert "    meant   " not in said


_CMAKE = "CMake Error at CMakeLists.txt:23 (project):\n"


@pytest.mark.parametrize(
    ("log", "means"),
    [
        (f"{_CMAKE}  No CMAKE_CUDA_COMPILER could be found.\n", "CMake finds no CUDA toolkit"),
        (f"{_CMAKE}\n  Compatibility with CMake < 3.5 has been removed from CMake.\n", "CMake 4 no longer"),
        (f"{_CMAKE}  CMake 3.26 or higher is required.  You are running version 3.22.1\n", "is older than"),
        (f'{_CMAKE}  CUDA_ARCHITECTURES is set to "native", but no GPU was detected\n', "none is visible"),
        (f"{_CMAKE}  something else\n", "CMake could not configure the build"),
        (
            f"{_CMAKE}  odd\n\n  No CMAKE_CUDA_COMPILER could be found.\n",
            "CMake could not configure the build",
        ),
    ],
)
def test_a_message_below_its_title_is_read_with_it(log: str, means: str, explained: Explain) -> None:
    assert means in answer(explained(log))


def test_a_title_is_shown_with_what_it_says(explained: Explain) -> None:
    found = answer(explained(f"{_CMAKE}  No CMAKE_CUDA_COMPILER could be found.\n"))

    assert "No CMAKE_CUDA_COMPILER could be found" in found.splitlines()[0]


@pytest.mark.parametrize(
    ("file", "of_python"),
    [
        ("D:\\python\\lib\\ctypes\\__init__.py", True),
        ("E:/conda/envs/a/Lib/subprocess.py", True),
        ("D:\\python\\lib\\site-packages\\whisper.py", False),
        ("D:\\project\\lib\\training.py", False),
        ("/srv/lib/subprocess.py", False),
    ],
)
def test_a_module_of_python_on_windows_is_not_the_users_own(file: str, *, of_python: bool) -> None:
    assert is_pythons_own(file) is of_python


_REFUSED = "AttributeError: '{}' object has no attribute 'prefix_encoder'"
_FRAMES = (("main.py", 119, "main", "model.transformer.prefix_encoder.float()"),)


def test_a_class_of_a_models_own_code_is_not_one_of_a_server(explained: Explain) -> None:
    of_repository = answer(explained(traceback(_REFUSED.format("ChatGLMModel"), *_FRAMES)))
    served = (f"{SITE}/sglang/srt/models/chatglm.py", 9, "load", "self.model.prefix_encoder()")
    of_server = answer(explained(traceback(_REFUSED.format("ChatGLMModel"), *_FRAMES, served)))
    of_trl = answer(explained(traceback("AttributeError: 'GRPOTrainer' object has no attribute 'odd_thing'")))

    assert "ChatGLMModel is no class of transformers" in of_repository
    assert "is no class of transformers" not in of_server
    assert "is no class of transformers" not in of_trl


def test_a_module_that_nobody_knows_may_be_a_folder_of_the_project(explained: Explain) -> None:
    found = explained("ModuleNotFoundError: No module named 'odd_project'\n")

    assert found.code == UNEXPLAINED
    assert "start the command in the folder that holds it" in answer(found)


@pytest.mark.parametrize("module", ["amp_C", "rotary_emb", "clip", "apex", "_turbomind"])
def test_a_module_that_no_index_has_is_not_to_be_installed_by_its_name(
    module: str, explained: Explain
) -> None:
    found = explained(f"ModuleNotFoundError: No module named '{module}'\n")

    assert found.code == FAILED
    assert "install " + module not in answer(found)
    assert "with its own python -m pip" not in answer(found)


def test_an_error_below_a_line_that_counts_only_at_the_end_is_not_lost(explained: Explain) -> None:
    log = "2024-07-16T12:01:12 ERROR launcher: the shard says nothing\nError: ShardCannotStart\n"
    found = explained(log + "".join(f"10:00:03 INFO     next {number}\n" for number in range(9)))

    assert found.code == UNEXPLAINED
    assert "ShardCannotStart" in cause_of(found).event.text


def test_a_known_failure_in_other_files_is_not_near(explained: Explain) -> None:
    message = "NameError: name 'SomeTrainer' is not defined"
    shown = answer(explained(traceback(message, ("/srv/own/run.py", 16, "<module>", "SomeTrainer()"))))

    assert "these match in part" not in shown
    assert "these match in part: unsloth" in answer(explained(f"{message}\n"))


def test_of_several_errors_at_the_end_of_a_log_the_last_count(explained: Explain) -> None:
    errors = "".join(f"11:50:25 [Error] (Router) the server reports {word}\n" for word in "abcdefgh")
    found = explained(f"{errors}11:50:25 [Debug] (Server) POST /load - 500\n")

    assert found.code == UNEXPLAINED
    assert cause_of(found).event.text.splitlines()[0][-1] in "fgh"


def test_a_library_of_windows_that_does_not_load_is_named_without_its_number(explained: Explain) -> None:
    said = 'Could not load torch: Error loading "D:\\x\\torch\\lib\\odd64_8.dll" or one of its dependencies.'

    assert "Windows could not load a library" in answer(explained(f"10:00:01 ERROR    {said}\n"))


@pytest.mark.parametrize(
    ("line", "means"),
    [
        ("ERROR launcher: Shard process was signaled to shutdown with signal 4 rank=0", "CPU lacks"),
        ("error: Distribution not found at: file:///srv/dist/odd.whl", "by its path is not there"),
        ("nvcc fatal   : Unknown option '--compress-mode=size'", "this nvcc does not know an option"),
        ("bash: ./train.sh: Permission denied", "may not be executed"),
        ("train.sh: line 3: --model: command not found", "takes an option for a command"),
        ("-bash: ./a.sh: /bin/bash^M: bad interpreter: No such file or directory", "line ends of Windows"),
        ("env: 'bash\\r': No such file or directory", "line ends of Windows"),
        ("zsh: no matches found: .[torch]", "square brackets"),
        ("'accelerate' is not recognized as an internal or external command,", "not on the PATH"),
        ("slurmstepd: error: execve(): torchrun: No such file or directory", "node of the job"),
        ("fatal: unable to access 'https://git.example/x.git/': Failed to connect to git.example", "git did"),
        ("fatal: detected dubious ownership in repository at '/srv/x'", "belongs to another user"),
        ("ERROR: failed to solve: nvidia/cuda:9-devel: not found", "no image of this name"),
        ("error: can't find Rust compiler", "Rust is not installed"),
        ('x.cu(3): error: #error "unsupported GNU version! gcc versions later than 12"', "host compiler"),
        ("x.cuh(35): fatal error: #error only supported for sm_70 and up.", "older architecture"),
        ("libc++abi: x: kIOGPUCommandBufferCallbackErrorImpactingInteractivity)", "held up the display"),
        ("ssh: connect to host worker-1 port 22: Connection refused", "log in to another one by ssh"),
        ("mpirun has detected an attempt to run as root.", "does not start as root"),
        ("There are not enough slots available in the system to satisfy the 8 slots", "have slots"),
        ("OMP: Error #15: Initializing libiomp5md.dll, but found it already initialized.", "two copies"),
        ("libgomp: Thread creation failed: Resource temporarily unavailable", "process or thread could be"),
        ("The kernel appears to have died. It will restart automatically.", "process of the notebook"),
        ("FATAL:   While performing build: conveyor failed: no space left on device", "disk is full"),
        ("nohup: failed to run command 'python': No such file or directory", "not on the PATH"),
        ("ERROR: Cannot uninstall blinker 1.4, RECORD file not found.", "pip cannot replace a package"),
        ("packaging.version.InvalidVersion: Invalid version: '0.23ubuntu1'", "no longer reads"),
        ("EOFError: EOF when reading a line", "asks a question"),
        ("CondaValueError: Malformed version string '~': invalid character(s).", "cannot read a version"),
        ("soundfile.LibsndfileError: <exception str() failed>", "audio file could not be opened"),
        ("python: Error while finding module specification for 'a.b' (ModuleNotFoundError: x)", "script or a"),
    ],
)  # fmt: skip
def test_what_tools_say_has_a_meaning(line: str, means: str, explained: Explain) -> None:
    found = explained(f"start\n{line}\n")

    assert found.code == FAILED
    assert means in answer(found)


@pytest.mark.parametrize(
    "line",
    [
        "INFO checking for signal 4 support",
        "collecting: no such file yet, creating cache",
        "access denied for 3 users so far, by design",
        "fatalities: 0",
        "E0000 00:00:17 cuda_dnn.cc:8310] Unable to register cuDNN factory: it is registered already",
        "the crash test dummies data set has 3 rows",
    ],
)
def test_words_of_failures_in_a_healthy_log_are_none(line: str, explained: Explain) -> None:
    assert explained(f"start\n{line}\ndone\n").code == NOTHING
