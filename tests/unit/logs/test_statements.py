"""A log that says in any form that something failed has failed, and a healthy log has not."""

from __future__ import annotations

import time
from typing import Any

import pytest

from envcheck.commands import loading
from envcheck.knowledge import log_signatures
from envcheck.logs import diagnosis as log_diagnosis
from envcheck.logs import library_questions
from envcheck.logs import scanner as log_scanner
from envcheck.logs.clashes import clashing_requirements
from envcheck.logs.diagnosis import Diagnosis
from envcheck.logs.events import Event, Frame, Raised
from envcheck.logs.line_format import log_patterns
from envcheck.logs.missing_names import missing_name
from envcheck.logs.own_code import checked_out, own_code
from envcheck.reports import explanation

TREE = loading.source_tree()
LOOK = log_patterns(TREE["tables"])
SIGNATURES = log_signatures.compile_signatures(TREE["case"])


def diagnosed(text: str) -> Diagnosis:
    scanner = log_scanner.Scanner(LOOK)
    scanner.feed(text.encode())
    return log_diagnosis.diagnose(scanner.finish(), SIGNATURES)


def headline(text: str) -> str:
    cause = diagnosed(text).cause
    assert cause is not None
    return explanation.event_text(cause)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ModuleNotFoundError: No module named 'flash_attn'", "ModuleNotFoundError: No module named 'flash_attn'"),
        ("# RuntimeError: NCCL error: unhandled system error", "RuntimeError: NCCL error: unhandled system error"),
        ("**[Bug]** `ValueError: odd batch`", "ValueError: odd batch"),
        ("E   torch.distributed.DistBackendError: NCCL broke", "torch.distributed.DistBackendError: NCCL broke"),
        ("CheckpointError: metadata differs", "CheckpointError: metadata differs"),
        ("ERROR:root:KeyError: 'labels'", "KeyError: 'labels'"),
        ("ERROR 03-01 10:00:00 [core.py:383] KeyError: 'labels'", "KeyError: 'labels'"),
        ("then I get `module 'numpy' has no attribute 'dtypes'`", "AttributeError: module 'numpy' has no attribute 'dtypes'"),
        ("it stops with AssertionError: odd rank count", "AssertionError: odd rank count"),
        ("KeyboardInterrupt", "KeyboardInterrupt"),
        ("Segmentation fault (core dumped)", "Segmentation fault (core dumped)"),
        ("zsh: bus error  python train.py", "zsh: bus error python train.py"),
        ("./run.sh: line 3: 4711 Illegal instruction     (core dumped) python a.py", None),
        ("free(): invalid pointer", "free(): invalid pointer"),
        ("terminate called after throwing an instance of 'c10::Error'", None),
        ("srun: error: n1: task 2: Exited with exit code 7", None),
        ("[2025-01-01 00:00:00,000] [ERROR] [launch.py:321:sigkill_handler] ['python'] exits with return code = 1", None),
        ("##[error]Process completed with exit code 2.", None),
        ("ERROR: Could not find a version that satisfies the requirement torch==9", None),
        ("  \u00d7 No solution found when resolving dependencies:", None),
        ("PackagesNotFoundError: The following packages are not available from current channels:", None),
        ('csrc/a.cu(12): error: identifier "x" is undefined', None),
        ("nvcc fatal   : Unsupported gpu architecture 'compute_120'", None),
        ("bash: deepspeed: command not found", None),
        ("docker: Error response from daemon: could not select device driver", None),
        ("Failed to initialize NVML: Driver/library version mismatch", None),
        ("python: can't open file '/a/train.py': [Errno 2] No such file or directory", None),
        ('  File "/opt/e/lib/python3.11/site-packages/x/y.py", line 3, in f', None),
        ("[ 88.1] NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", None),
        ("thread '<unnamed>' panicked at src/lib.rs:12:5:", None),
        ("  Warning  FailedScheduling  2m  default-scheduler  0/12 nodes are available: 12 Insufficient nvidia.com/gpu.", None),
        ("The node was low on resource: ephemeral-storage. Threshold quantity: 10Gi.", None),
        ("    Reason:       Evicted", "Reason: Evicted"),
        ("    Reason:       OOMKilled", "Reason: OOMKilled"),
        ("llm-0   0/1   CrashLoopBackOff   5 (20s ago)   9m", None),
        ("  Warning  Failed  5s  kubelet  Error: ImagePullBackOff", None),
        ("(raylet) node_manager.cc:3064: 2 Workers (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed", None),
        ("\u274c Training failed with exit code -9", "\u274c Training failed with exit code -9"),
        ("(EngineCore pid=4021) CUDA Error: invalid argument at /workspace/csrc/cumem_allocator.cpp:119", None),
        ("error: argument subcommand: invalid choice: 'finetune_lora' (choose from 'chat', 'finetune')", None),
        ("Primary job  terminated normally, but 1 process returned", None),
        ("Could not override 'actor.foo'.", None),
        ("ERROR 10-12 11:22:33 [core.py:586] EngineCore failed to start.", None),
        ("gpu01:42:43 [0] misc/socket.cc:538 NCCL WARN socketStartConnect: Connect to 10.0.0.5<43210> failed : aborted", None),
        ("RuntimeError: \n        CUDA setup failed despite a GPU.\n", "RuntimeError: CUDA setup failed despite a GPU."),
    ],
)  # fmt: skip
def test_a_line_that_states_a_failure_is_one(line: str, said: str | None) -> None:
    text = f"Loading shards: done\n\n{line}\n"
    assert diagnosed(text).failed
    if said is not None:
        assert headline(text) == said


@pytest.mark.parametrize(
    "line",
    [
        "WARNING: ModuleNotFoundError: No module named 'flash_attn', falling back to sdpa",
        "UserWarning: cannot import name 'x' from 'y'",
        "INFO: retry after ConnectionError: refused",
        "Some weights were not initialized: ['score.weight']",
        "[INFO] [launch.py:351:main] Process 4242 exits successfully.",
        "Exception ignored in: <function D.__del__ at 0x7f>",
        "E0000 cuda_dnn.cc:8310] Unable to register cuDNN factory: one has already been registered",
        "    except ValueError:",
        "ValueError: If the batch is odd.",
        "the command exited with exit code 0",
        "Process finished with exit code 0",
        "evaluation server stopped with exit code 0",
        "checked for CUDA Error: none was found in csrc/a.cpp",
        "no error: argument parsing took 2 ms",
        "requests that failed with code are tried 3 times",
        "signal_handler installed for SIGTERM",
        "Terminating StepId=88218.0",
        "(raylet) node_manager.cc:3064: 0 Workers (tasks / actors) killed due to memory pressure (OOM)",
        "gpu01:42:43 [0] NCCL INFO Using network Socket",
        "{'loss': 0.0, 'grad_norm': 0.1, 'epoch': 1.0}",
        'Stack (most recent call last):\n  File "a.py", line 3, in f\n    log()',
    ],
)  # fmt: skip
def test_a_line_of_a_healthy_log_states_none(line: str) -> None:
    assert not diagnosed(f"Loading shards: done\n{line}\nTraining completed.\n").failed


def test_what_the_run_trained_on_after_is_no_failure() -> None:
    steps = "".join(f"{{'loss': {n}.5, 'epoch': 0.1}}\n" for n in range(3))
    assert not diagnosed(f"OSError: no cache at /x\n{steps}").failed
    assert diagnosed(f"{steps}OSError: no cache at /x\n").failed


@pytest.mark.parametrize("step", ["{'loss': nan, 'grad_norm': nan, 'epoch': 0.1}", "{'loss': 0.0, 'grad_norm': nan, 'epoch': 0.1}"])  # fmt: skip
def test_a_loss_that_is_lost_is_a_remark_unless_something_failed(step: str) -> None:
    begin = "{'loss': 2.5, 'grad_norm': 1.0, 'epoch': 0.0}\n"
    lost = diagnosed(f"{begin}{step}\n{step}\n")
    assert not lost.failed
    assert len(lost.remarked) == 1
    assert not diagnosed(begin * 3).remarked
    traceback = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\nKeyError: 3\n'
    raised = diagnosed(f"{begin}{step}\n{traceback}")
    assert raised.cause is not None
    assert raised.cause.event.exceptions[0].name == "KeyError"


def test_a_traceback_counts_before_a_line_that_states_a_failure() -> None:
    traceback = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g()\nKeyError: 3\n'
    diagnosis = diagnosed(f"RuntimeError: what came first\n{traceback}")
    assert diagnosis.cause is not None
    assert diagnosis.cause.event.exceptions[0].name == "KeyError"


def test_a_line_that_repeats_a_traceback_is_no_second_failure() -> None:
    traceback = 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    g()\nKeyError: 3\n'
    diagnosis = diagnosed(f"# KeyError: 3\n\nHello, this happens:\n\n{traceback}")
    assert not diagnosis.apart
    assert not diagnosis.survived


def test_a_traceback_without_its_header_or_indents_is_read() -> None:
    text = (
        '[rank0]: File "/opt/e/lib/python3.10/site-packages/deepspeed/a.py", line 163, in step\n'
        "[rank0]: self.update(1,\n[rank0]: RuntimeError: the tensor has no device\n"
    )
    cause = diagnosed(text).cause
    assert cause is not None
    assert cause.place is not None
    assert (cause.event.exceptions[0].message, cause.place.line) == ("the tensor has no device", 163)


def test_a_traceback_that_was_cut_names_its_last_frame() -> None:
    text = '  File "/e/site-packages/a.py", line 1, in f\n    g()\n  File "/e/site-packages/b.py", line 2, in g\n'
    cause = diagnosed(text).cause
    assert cause is not None
    assert cause.place is not None
    assert (cause.kind, cause.place.line) == ("unknown", 2)


@pytest.mark.parametrize(
    ("code", "kind"), [(-9, "killed"), (-11, "crash"), (-7, "crash"), (137, "killed"), (139, "crash"), (1, "unknown")]
)  # fmt: skip
def test_an_exit_code_says_how_a_process_ended(code: int, kind: str) -> None:
    cause = diagnosed(f"job 7: command terminated with exit code {code}\n").cause
    assert cause is not None
    assert cause.kind == kind


def test_only_a_parent_that_points_to_its_worker_is_a_consequence() -> None:
    said = (
        "(EngineCore pid=7) KeyError: 'q_proj'\n(APIServer pid=3) RuntimeError: Engine core initialization "
    )
    assert headline(said + "failed. See root cause above.\n") == "KeyError: 'q_proj'"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (
            (
                "  ╰─▶ Because vllm==0.8.5 depends on torch==2.6.0 and you require vllm==0.8.5, we can\n"
                "      conclude that you require torch==2.6.0.\n      And because you require torch==2.7.0, …"
            ),
            ("vllm==0.8.5 requires torch==2.6.0", "asked for: vllm==0.8.5", "asked for: torch==2.7.0"),
        ),
        (
            "    The user requested a==1.0\n    b 0.11.1 depends on a>=2\n",
            ("b 0.11.1 requires a>=2", "asked for: a==1.0"),
        ),
        (
            "vllm 0.6.3 requires torch==2.4.0, but you have torch 2.5.1 which is incompatible.",
            ("vllm 0.6.3 requires torch==2.4.0; 2.5.1 is installed",),
        ),
        (
            "ImportError: liger-kernel requires transformers >= 4.52.0, got 4.48.2",
            ("liger-kernel requires transformers >= 4.52.0; 4.48.2 is installed",),
        ),
        (
            (
                'unsloth-zoo 2025.9.9 requires triton_windows; platform_system == "Windows", which is not installed.\n'
                'opencv 4.12 requires numpy<2.3.0,>=2; python_version >= "3.9", but you have numpy 1.26.4 which is bad.'
            ),
            (
                "unsloth-zoo 2025.9.9 requires triton_windows; it is not installed",
                "opencv 4.12 requires numpy<2.3.0,>=2; 1.26.4 is installed",
            ),
        ),
        (
            "a 1.0 requires b c==2.0 and d==3.0, which is not installed.",
            ("a 1.0 requires b",),
        ),
        (
            "trl 0.9.4 requires transformers >= 4.31.0, < 5, but you have transformers 5.1.0 which is incompatible.",
            ("trl 0.9.4 requires transformers >= 4.31.0, < 5; 5.1.0 is installed",),
        ),
        (
            (
                "Because no versions of trl match >0.9.6,<0.10.0\n"
                " and trl (0.9.6) depends on transformers (>=4.31.0,<5), trl (>=0.9.6,<0.10.0) is forbidden.\n"
                "So, because demo depends on both transformers (^5.0) and trl (^0.9.6), version solving failed."
            ),
            (
                "trl 0.9.6 requires transformers>=4.31.0,<5",
                "demo requires transformers^5.0",
                "demo requires trl^0.9.6",
            ),
        ),
    ],
)
def test_the_requirements_that_clash_are_named(text: str, found: tuple[str, ...]) -> None:
    assert clashing_requirements(text) == found


_BELOW = "RuntimeError: Failed to import diffusers.models because of the following error (look up to see its traceback):"


def test_the_error_that_a_failed_import_quotes_below_belongs_to_its_message() -> None:
    inner = "module 'torch.library' has no attribute 'custom_op'"

    found = diagnosed(f"{_BELOW}\n{inner}\nbye\n").cause
    in_traceback = diagnosed(
        f'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n    import b\n{_BELOW}\n{inner}\n'
    ).cause

    assert found is not None
    assert found.event.exceptions[0].message.endswith(f"traceback): {inner}")
    assert in_traceback is not None
    assert in_traceback.event.exceptions[0].message.endswith(inner)


def test_a_message_that_does_not_go_on_is_left_alone() -> None:
    found = diagnosed("ValueError: odd batch\nsaving the model\n").cause

    assert found is not None
    assert found.event.exceptions[0].message == "odd batch"


def test_an_exception_of_no_class_of_its_own_is_a_failure() -> None:
    assert headline("Exception: the worker gave up") == "Exception: the worker gave up"
    assert headline("Exception: ValueError: odd batch") == "ValueError: odd batch"


_TOO_OLD = (
    "UserWarning: CUDA initialization: The NVIDIA driver on your system is too old (found version 11040). "
    "Please update your GPU driver\n"
)


def test_a_known_warning_that_is_all_of_a_log_is_its_cause() -> None:
    found = diagnosed(_TOO_OLD).cause

    assert found is not None
    assert found.match is not None
    assert found.match.signature.rule == "driver-below-cuda-family-floor"


def test_a_known_warning_of_a_run_that_trained_is_no_failure() -> None:
    steps = "".join(f"{{'loss': 1.{step}, 'epoch': 0.{step}}}\n" for step in range(9))

    assert diagnosed(_TOO_OLD + steps).cause is None


def test_what_a_launcher_says_of_a_process_does_not_hide_the_known_line_above_it() -> None:
    kernel = "Error no kernel image is available for execution on the device at line 167 in file /bitsandbytes/csrc/ops.cu\n"
    end = "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero exit status 1.\n"

    found = diagnosed(kernel + end).cause

    assert found is not None
    assert found.match is not None
    assert found.match.signature.rule == "bitsandbytes-cuda-library-missing"


def test_a_quoted_message_ends_with_its_quotation() -> None:
    text = "Training stops with `RuntimeError: weight is missing` after two hours on both machines."
    assert headline(text) == "RuntimeError: weight is missing"


@pytest.mark.parametrize(
    ("file", "own"),
    [
        ("/workspace/train.py", True),
        ("/workspace/src/data.py", True),
        ("/workspace/src/transformers/trainer.py", False),
        ("~/.cache/huggingface/modules/transformers_modules/model/modeling.py", False),
        ("/env/lib/python3.11/site-packages/peft/peft_model.py", False),
    ],
)
def test_a_checkout_of_a_library_is_not_the_users_own_code(file: str, own: bool) -> None:
    traceback = f'Traceback (most recent call last):\n  File "{file}", line 3, in <module>\n    step()\n'
    cause = diagnosed(f"{traceback}KeyError: 'loss'\n").cause
    assert cause is not None
    assert own_code(cause.event.exceptions[0].place) is own


MEANINGS = TREE["tables"]["exception_meaning"]


@pytest.mark.parametrize("row", MEANINGS, ids=[row["text"][:60] for row in MEANINGS])
def test_a_message_means_what_its_row_says(row: dict[str, Any]) -> None:
    name, _, message = row["text"].partition(": ")

    place = Frame(row["place"], 3, row.get("function", "read")) if "place" in row else None
    found = LOOK.statements.meaning(
        Raised(name, message, place, row.get("example", "")), row.get("shown", "")
    )

    assert found is not None
    assert (found.means, found.kind) == (row["means"], row.get("kind", "unknown"))


GENERAL = TREE["tables"]["general_meaning"]


@pytest.mark.parametrize("row", GENERAL, ids=[row["text"] for row in GENERAL])
def test_a_class_of_failures_has_a_general_meaning(row: dict[str, Any]) -> None:
    name, _, message = row["text"].partition(": ")

    found = LOOK.statements.general_meaning(Raised(name, message, None))

    assert found is not None
    assert (found.means, found.advice) == (row["means"], row["advice"])


def test_a_general_meaning_does_not_change_who_is_blamed() -> None:
    traceback = (
        'Traceback (most recent call last):\n  File "/home/me/train.py", line 3, in <module>\n    x["a"]\n'
    )
    cause = diagnosed(f"{traceback}KeyError: 'qwen9'\n").cause

    assert cause is not None
    assert cause.kind == "code"
    assert cause.event.general is not None


def test_a_json_error_of_an_answer_is_not_one_of_a_file() -> None:
    inner = (
        '  File "/usr/lib/python3.10/json/decoder.py", line 355, in raw_decode\n    raise JSONDecodeError()\n'
    )
    end = "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)\n"
    begin = "Traceback (most recent call last):\n"
    answered = (
        '  File "/e/lib/python3.10/site-packages/requests/models.py", line 974, in json\n    loads(text)\n'
    )
    read = '  File "/usr/lib/python3.10/json/__init__.py", line 293, in load\n    return loads(fp.read())\n'

    of_server, of_file = diagnosed(begin + answered + inner + end), diagnosed(begin + read + inner + end)

    assert of_server.cause is not None
    assert of_server.cause.kind == "network"
    assert of_file.cause is not None
    assert of_file.cause.kind == "disk"


def test_a_message_that_only_contains_the_words_means_nothing_known() -> None:
    assert (
        LOOK.statements.meaning(Raised("ValueError", "it is said that daemonic processes exist", None))
        is None
    )


def test_an_error_of_a_compiler_counts_before_the_build_that_it_ended() -> None:
    said = "/opt/deepspeed/ops/csrc/includes/gemm_test.h:6:10: fatal error: cuda_profiler_api.h: No such file or directory"
    log = (
        f"{said}\nninja: build stopped: subcommand failed.\nTraceback (most recent call last):\n"
        '  File "/e/lib/python3.11/site-packages/torch/utils/cpp_extension.py", line 2100, in _run_ninja_build\n'
        "    raise RuntimeError(message) from e\nRuntimeError: Error building extension 'cpu_adam'\n"
    )

    cause = diagnosed(log).cause

    assert cause is not None
    assert (cause.kind, cause.event.first) == ("missing", 1)
    assert cause.event.form is not None
    assert "CUDA toolkit" in cause.event.form.advice


@pytest.mark.parametrize(
    "below",
    [
        "  Value error, torch_compile should be set within your deepspeed config file [type=value_error, input_value={}]",
        "deepspeed\n  Value error, torch_compile should be set within your deepspeed config file [type=value_error]",
    ],
)
@pytest.mark.parametrize(
    "header", ["", 'Traceback (most recent call last):\n  File "/e/a.py", line 1, in f\n    g()\n']
)
def test_the_message_of_a_validator_is_read_from_the_lines_below(header: str, below: str) -> None:
    name = "pydantic_core._pydantic_core.ValidationError"
    cause = diagnosed(f"{header}{name}: 1 validation error for AxolotlConfig\n{below}\n").cause

    assert cause is not None
    (text,) = library_questions.raised_texts(cause.event)
    assert text.exception == "ValueError"
    assert text.message == "torch_compile should be set within your deepspeed config file"


@pytest.mark.parametrize(
    ("line", "asked"),
    [
        (
            "AttributeError: 'GRPOConfig' object has no attribute 'epsilon'. Did you mean: 'eps'?",
            ("GRPOConfig", "epsilon", None, False),
        ),
        ("AttributeError: type object 'LLM' has no attribute 'chat'", ("LLM", "chat", None, False)),
        ("AttributeError: _unwrapped_old_generate", ("", "_unwrapped_old_generate", None, False)),
        ("AttributeError: module is frozen", None),
        ("AttributeError: 'NoneType' object has no attribute 'shape'", None),
        ("AttributeError: 'list' object has no attribute 'to'", None),
    ],
)
def test_what_is_asked_for_a_missing_attribute(line: str, asked: tuple[object, ...] | None) -> None:
    cause = diagnosed(f"{line}\n").cause

    assert cause is not None
    found = library_questions.missing_attribute(cause.event)
    assert (found and tuple(found)) == asked


@pytest.mark.parametrize(
    ("message", "function", "keyword"),
    [
        ("GRPOTrainer._sampler() takes 1 positional argument but 2 were given", "GRPOTrainer._sampler", ""),
        ("f() takes from 1 to 2 positional arguments but 3 were given", "f", ""),
        (
            "Trainer.__init__() got an unexpected keyword argument 'tokenizer'",
            "Trainer.__init__",
            "tokenizer",
        ),
        ("f() missing 1 required positional argument: 'x'", "f", ""),
    ],
)
def test_what_is_asked_for_a_refused_call(message: str, function: str, keyword: str) -> None:
    cause = diagnosed(f"TypeError: {message}\n").cause

    assert cause is not None
    call = library_questions.refused_call(cause.event)
    assert call is not None
    assert (call.function, call.keyword) == (function, keyword)


@pytest.mark.parametrize(
    ("source", "error", "expression"),
    [
        (
            "    x = outputs.logits[..., :-1]\n        ~~~~~~~~~~~~~~^^^^^^^^^^",
            "TypeError: 'NoneType' object is not subscriptable",
            "outputs.logits",
        ),
        (
            "    absmax = weight.quant_state.absmax",
            "AttributeError: 'NoneType' object has no attribute 'absmax'",
            "weight.quant_state",
        ),
        (
            "    for t, h, w in image_grid_thw:",
            "TypeError: 'NoneType' object is not iterable",
            "image_grid_thw",
        ),
        (
            "    types, sdpa = compile_all(model)",
            "TypeError: cannot unpack non-iterable NoneType object",
            "compile_all()",
        ),
        ("    x = a[0] + b[1]", "TypeError: 'NoneType' object is not subscriptable", ""),
        ("    out.update(args.extra)", "TypeError: 'NoneType' object is not iterable", "args.extra"),
        ("    for x in list(a.b):", "TypeError: 'NoneType' object is not iterable", "a.b"),
        (
            "    n = len(config.layer_types)",
            "TypeError: object of type 'NoneType' has no len()",
            "config.layer_types",
        ),
        (
            "    f(**self.kwargs)",
            "TypeError: f() argument after ** must be a mapping, not NoneType",
            "self.kwargs",
        ),
        (
            "    n = config.experts / world",
            "TypeError: unsupported operand type(s) for /: 'NoneType' and 'int'",
            "config.experts",
        ),
        (
            "    if step > args.max_steps:",
            "TypeError: '>' not supported between instances of 'int' and 'NoneType'",
            "args.max_steps",
        ),
        ("    x = a * b * c", "TypeError: unsupported operand type(s) for *: 'int' and 'NoneType'", ""),
        ("    x = a < b", "TypeError: '<' not supported between instances of 'NoneType' and 'NoneType'", ""),
        ("    x = outputs.logits[0]", "TypeError: 'int' object is not subscriptable", ""),
    ],
)
def test_the_expression_that_is_none_is_read_from_the_line_of_code(
    source: str, error: str, expression: str
) -> None:
    header = 'Traceback (most recent call last):\n  File "/w/train.py", line 3, in step\n'
    cause = diagnosed(f"{header}{source}\n{error}\n").cause

    assert cause is not None
    assert library_questions.expression_that_is_none(cause.event) == expression


def test_what_is_none_counts_only_with_its_line_of_code() -> None:
    none = Raised("TypeError", "'NoneType' object is not subscriptable", None)

    assert LOOK.statements.meaning(none) is None
    assert LOOK.statements.meaning(none._replace(source="loss_fn(batch.rows[0])")) is None


def test_a_message_that_quotes_an_exception_means_what_that_one_means() -> None:
    said = "SystemError: PY_SSIZE_T_CLEAN macro must be defined for '#' formats"
    found = LOOK.statements.meaning(Raised("BackendCompilerFailed", said, None))

    assert found is not None
    assert found.kind == "version"


AUTO = "/e/lib/python3.11/site-packages/transformers/models/auto/configuration_auto.py"


@pytest.mark.parametrize(
    ("message", "file", "since"),
    [
        ("'qwen3'", AUTO, "4.51.0"),
        ("'qwen3'", "", "4.51.0"),
        ("'qwen3'", "/home/ana/models.py", None),
        ("'qwen33'", "", None),
        ("'bert'", "", None),
    ],
)
def test_a_type_of_model_that_a_mapping_lacks(message: str, file: str, since: str | None) -> None:
    place = Frame(file, 3, "f") if file else None
    found = LOOK.statements.meaning(Raised("KeyError", message, place))

    assert (found is not None) == (since is not None)
    if found is not None:
        assert found.advice == f"Install transformers {since} or newer."


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("/srv/LLaMA-Factory/src/llamafactory/train/tuner.py", "llamafactory"),
        ("verl/verl/trainer/main_ppo.py", "verl"),
        ("/data/verl-main/verl/trainer/main_ppo.py", "verl"),
        ("/opt/ms-swift/swift/trainers/mixin.py", "swift"),
        ("/home/ana/OpenRLHF-0.8.2/openrlhf/cli/train_sft.py", "openrlhf"),
        ("/home/ana/project/datasets/load.py", ""),
        ("/home/ana/SimpleVLA-RL/verl/workers/rollout.py", ""),
    ],
)
def test_a_checkout_is_told_by_the_folder_above_the_package(file: str, library: str) -> None:
    assert checked_out(file) == library


def test_an_assertion_that_ranks_wrote_into_one_line_is_a_failure() -> None:
    line = "AssertionError      assert param.ds_status == READY, param.ds_summary()AssertionError"

    assert headline(f"{line}\n").startswith("AssertionError: assert param.ds_status == ")


def test_an_exception_whose_name_ends_like_no_error_is_one_by_its_module() -> None:
    line = "torch._dynamo.exc.Unsupported: no support for this"

    assert headline(f"{line}\n") == line


@pytest.mark.parametrize(
    ("source", "error", "kind"),
    [
        ("state = model.state", "AttributeError: 'Model' object has no attribute 'state'", "unknown"),
        ("names = rows.keys()", "AttributeError: 'list' object has no attribute 'keys'", "code"),
        (
            'raise ValueError("rope_scaling must contain keys")',
            "ValueError: rope_scaling must contain keys",
            "unknown",
        ),
        ("rate = total / count", "ZeroDivisionError: division by zero", "code"),
    ],
)
def test_a_line_of_the_user_is_the_cause_only_if_python_itself_refuses_it(
    source: str, error: str, kind: str
) -> None:
    frame = f'  File "/home/ana/lora.py", line 3, in train\n    {source}\n'
    cause = diagnosed(f"Traceback (most recent call last):\n{frame}{error}\n").cause

    assert cause is not None
    assert cause.kind == kind


LINKER = "/usr/bin/ld: cannot find -lcuda: No such file or directory\n"


@pytest.mark.parametrize(
    ("text", "follow", "apart"),
    [
        (f"{LINKER}collect2: error: ld returned 1 exit status\n", 1, 0),
        (
            f"{LINKER}collect2: error: ld returned 1 exit status\nninja: build stopped: subcommand failed.\n",
            1,
            0,
        ),
        (f"{LINKER}bash: deepspeed: command not found\n", 0, 1),
    ],
)
def test_a_line_that_only_closes_a_build_follows_from_its_error(text: str, follow: int, apart: int) -> None:
    found = diagnosed(text)

    assert found.cause is not None
    assert found.cause.event.text.startswith("/usr/bin/ld")
    assert (len(found.consequences), len(found.apart)) == (follow, apart)


def test_many_bounds_and_long_names_are_read_in_little_time() -> None:
    started = time.process_time()
    assert clashing_requirements("a 1.0 requires b" + ",==1" * 300 + " and nothing else")
    clashing_requirements("a==1,==1" * 2_000)
    clashing_requirements("a" * 50_000)
    assert time.process_time() - started < 2  # seconds; thirty bounds took hours


def test_a_traceback_with_many_empty_lines_is_searched_for_imports_in_little_time() -> None:
    frame = Frame("/home/me/project/train.py", 3, "main")
    raised = Raised("ImportError", "cannot import name 'A' from 'b.c' (unknown location)", frame)
    event = Event("raised", (1,), "\n" * 20_000, exceptions=(raised,))
    started = time.process_time()
    missing = missing_name(event, {})
    assert missing is not None
    assert missing.own
    assert time.process_time() - started < 1


def test_uv_names_which_releases_are_there_to_choose_from() -> None:
    said = """\
  ╰─▶ Because only the following versions of transformers are available:
          transformers<4.56.1
          transformers>=5
      and vllm==0.11.2 depends on transformers>=4.56.0,<5, we can conclude that it cannot be used.
"""
    assert "the index offers only transformers<4.56.1 and transformers>=5" in clashing_requirements(said)
    assert not any("offers" in each for each in clashing_requirements(said.replace("available", "wanted")))


def test_the_seconds_of_a_docker_build_are_no_part_of_its_lines() -> None:
    said = (
        "{}ERROR: Cannot install a==1 and b==2 because these package versions have conflicting dependencies.\n"
        "{}The conflict is caused by:\n"
        "{}    a 1 depends on c==4.50.0\n"
        "{}    b 2 depends on c>=4.51.0\n"
    )
    bare, of_summary, of_step = (said.replace("{}", each) for each in ("", "54.11 ", "#12 54.115 "))
    causes = [diagnosed(each).cause for each in (bare, of_summary, of_step)]

    assert len({cause and cause.event.text for cause in causes}) == 1
    assert causes[0] is not None
    assert clashing_requirements(causes[0].event.text)[0] == "a 1 requires c==4.50.0"


def test_a_launcher_that_ends_its_processes_is_a_failure_of_unknown_cause() -> None:
    line = "[2024-11-29 07:06:01,711] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 12476\n"
    ended = diagnosed(line)
    told = diagnosed(f"{line}[launch.py:325:sigkill_handler] ['python'] exits with return code = -9\n")

    assert ended.failed
    assert ended.cause is not None
    assert ended.cause.kind == "unknown"
    assert told.cause is not None
    assert told.cause.kind == "killed"


def test_an_exception_that_ray_cannot_carry_is_one() -> None:
    shown = "(Runner pid=21) User exception type <class 'pydantic_core.ValidationError'> in RayTaskError "
    found = diagnosed(f"{shown}can't be subclassed! This exception is raised as RayTaskError only.\n")

    assert found.cause is not None
    assert found.cause.event.form is not None
    assert "could not carry" in found.cause.event.form.means


def test_kernels_that_do_not_fit_the_gpu_are_told_from_those_that_were_not_built() -> None:
    said = "NotImplementedError: No operator found for `memory_efficient_attention_forward` with inputs:\n"
    lines = (
        '  File "/opt/lib/python3.11/site-packages/xformers/dispatch.py", line 55, in run\n    raise X(msg)\n'
    )
    reasons = "`cutlassF-pt` is not supported because:\n    {}\n"
    log = f"Traceback (most recent call last):\n{lines}{said}{reasons}"

    built = diagnosed(log.format("operator wasn't built - see `python -m xformers.info`")).cause
    new = diagnosed(log.format("your GPU has capability (12, 0) (too new)")).cause

    assert built is not None
    assert built.kind == "version"
    assert new is not None
    assert new.kind == "open"


def test_what_a_trainer_keeps_for_itself_is_no_column_of_the_data() -> None:
    def kind_of(source: str) -> str:
        frame = '  File "/opt/ms-swift/swift/trainers/rlhf_trainer/grpo_trainer.py", line 2115, in log\n'
        cause = diagnosed(
            f"Traceback (most recent call last):\n{frame}    {source}\nKeyError: 'image'\n"
        ).cause
        assert cause is not None
        return cause.kind

    assert kind_of("if self._logs['image']:") == "unset"
    assert kind_of("images = self.list_data_dict[i]['image']") == "setting"
    assert kind_of("images = sample['image']") == "setting"
