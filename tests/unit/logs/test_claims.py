"""What a log does not show is not claimed: each test is a text that has another cause than the usual one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path

import pytest

from envcheck.commands import explain, loading
from envcheck.commands.examine import ExamineRequest
from envcheck.core.findings import Verbosity
from envcheck.host.machine import Host
from envcheck.logs.diagnosis import Cause
from envcheck.reports.explanation import FAILED, NOTHING, UNEXPLAINED, Explanation, render

SITE = "/opt/conda/lib/python3.11/site-packages"
STEPS = "".join(f"{{'loss': {2 - step / 500:.3f}, 'epoch': {step / 100:.2f}}}\n" for step in range(400))
END = "{'train_runtime': 1000.0, 'train_samples_per_second': 3.2, 'train_loss': 1.1, 'epoch': 3.0}\n"

Explain = Callable[..., Explanation]


def traceback(exception: str, *frames: tuple[str, int, str, str]) -> str:
    lines = ["Traceback (most recent call last):"]
    for file, line, function, source in frames:
        lines += [f'  File "{file}", line {line}, in {function}', f"    {source}"]
    return "\n".join([*lines, exception, ""])


def of_own_code(exception: str, source: str) -> str:
    return traceback(exception, ("/home/me/train.py", 40, "step", source))


@pytest.fixture(scope="module", autouse=True)
def _read_once() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loading, "source_tree", lru_cache(loading.source_tree))
        yield


@pytest.fixture
def explained(tmp_path: Path) -> Explain:
    def explained(text: str, **packages: str) -> Explanation:
        facts = tmp_path / "facts.toml"
        named = "".join(f'{name} = "{version}"\n' for name, version in packages.items())
        facts.write_text(f'python = {{ version = "3.11.9" }}\n[pkg]\n{named}')
        return explain.explain_chunks(ExamineRequest(facts=str(facts)), "log", [text.encode()], Host())

    return explained


def cause_of(found: Explanation) -> Cause:
    assert found.diagnosis.cause is not None
    return found.diagnosis.cause


def answer(found: Explanation) -> str:
    return render(found, Verbosity.USUAL)


# --- one message, several causes ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("log", "claim"),
    [
        (
            of_own_code(
                "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8x4096 and 1x4096)",
                "x @ self.head.T",
            ),
            "bitsandbytes",
        ),
        (
            of_own_code(
                "RuntimeError: The size of tensor a (0) must match the size of tensor b (16) at non-singleton "
                "dimension 0",
                "loss = (advantage * logp).mean()",
            ),
            "set_z3_leaf_modules",
        ),
        (of_own_code("ValueError: Template mail does not exist.", "env.get('mail')"), "LLaMA-Factory"),
        (
            of_own_code(
                "TypeError: RewardModel.__init__() got an unexpected keyword argument 'dropout'",
                "m = RewardModel(base, dropout=0.1)",
            ),
            "from_pretrained",
        ),
        (
            of_own_code(
                "TypeError: compute_reward() missing 1 required positional argument: 'answer'",
                "r = compute_reward(a)",
            ),
            "data set",
        ),
        (
            of_own_code(
                "TypeError: only integer tensors of a single element can be converted to an index",
                "x = a * items[at]",
            ),
            "one of the factors",
        ),
        (
            of_own_code("AttributeError: 'NoneType' object has no attribute 'logits'", "p = out.logits"),
            "fused loss",
        ),
        (
            of_own_code(
                "AttributeError: 'NoneType' object has no attribute 'strip'",
                "end = tokenizer.eos_token.strip()",
            ),
            "no tokenizer",
        ),
        (
            traceback(
                "KeyError: 'accc'", (f"{SITE}/lm_eval/api/registry.py", 70, "get_metric", "return ALL[name]")
            ),
            "no model",
        ),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`\n",
            "out of memory",
        ),
        ("RuntimeError: No CUDA GPUs are available\n", "hides every GPU"),
        (
            of_own_code(
                "requests.exceptions.HTTPError: 403 Client Error: Forbidden for url: https://a.b", "r.json()"
            ),
            "the Hub",
        ),
    ],
)
def test_a_text_with_several_causes_is_not_taken_for_one(log: str, claim: str, explained: Explain) -> None:
    found = explained(log)

    assert found.diagnosis.failed
    assert claim not in answer(found)


def test_a_text_that_is_read_as_json_may_not_come_from_a_file(explained: Explain) -> None:
    raised = (
        "/usr/lib/python3.11/json/decoder.py",
        355,
        "raw_decode",
        "raise JSONDecodeError(a, s, b) from None",
    )
    loads = ("/usr/lib/python3.11/json/__init__.py", 346, "loads", "return _default_decoder.decode(s)")
    load = ("/usr/lib/python3.11/json/__init__.py", 293, "load", "return loads(fp.read())")
    error = "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)"

    of_text, of_file = (
        explained(traceback(error, loads, raised)),
        explained(traceback(error, load, loads, raised)),
    )

    assert of_text.code == UNEXPLAINED
    assert "a text that is read as JSON" in answer(of_text)
    assert "a file that is read as JSON" in answer(of_file)


def test_a_version_that_cannot_be_read_is_a_damaged_installation(explained: Explain) -> None:
    asked = (f"{SITE}/transformers/utils/versions.py", 60, "require_version", "version.parse(got_ver)")
    parsed = (f"{SITE}/packaging/version.py", 200, "__init__", "match = self._regex.search(version)")

    found = explained(
        traceback("TypeError: expected string or bytes-like object, got 'NoneType'", asked, parsed)
    )

    assert ".dist-info" in answer(found)


def test_a_tensor_larger_than_any_gpu_is_no_plain_lack_of_memory(explained: Explain) -> None:
    huge = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1042.00 GiB. GPU 0 has 79.15 GiB.\n"

    assert "One tensor is larger than the GPU" in answer(explained(huge))
    assert "One tensor" not in answer(explained(huge.replace("1042", "10")))


# --- whose file, whose class ----------------------------------------------------------------------------


def test_a_folder_with_the_name_of_a_package_is_not_the_package(explained: Explain) -> None:
    said = "ImportError: cannot import name 'load_dataset' from 'datasets' ({})"
    source = "from datasets import load_dataset"

    own = answer(explained(of_own_code(said.format("/home/me/datasets/__init__.py"), source)))
    bare = answer(explained(of_own_code(said.format("unknown location"), source)))

    assert "release of datasets" not in own
    assert "it hides the package datasets" in own
    assert "a folder without __init__.py, not the package" in bare


def test_a_module_that_no_release_has_is_not_one_of_other_releases(explained: Explain) -> None:
    log = of_own_code(
        "ModuleNotFoundError: No module named 'trl.trainer.foo'", "from trl.trainer.foo import X"
    )

    found = explained(log)

    assert found.code == UNEXPLAINED
    assert "has it" not in answer(found)


def test_a_class_of_another_package_with_the_same_name_is_not_meant(explained: Explain) -> None:
    asked = (
        f"{SITE}/trl/trainer/grpo_trainer.py",
        900,
        "_move_model_to_vllm",
        "self.vllm_client.update(name)",
    )

    found = answer(
        explained(traceback("AttributeError: 'GRPOTrainer' object has no attribute 'vllm_client'", asked))
    )

    assert "ms-swift" not in found
    assert "self.use_vllm" in found


def test_a_plain_name_may_be_that_of_a_class_of_the_users(explained: Explain) -> None:
    log = of_own_code(
        "AttributeError: 'Trainer' object has no attribute 'optimizer_step'", "self.optimizer_step()"
    )

    assert "transformers" not in answer(explained(log))


def test_a_rule_on_a_librarys_trainers_is_not_about_the_users_class(explained: Explain) -> None:
    called = (f"{SITE}/transformers/trainer.py", 2400, "train", "self.get_batch_samples(epoch, n, device)")
    said = "TypeError: {}.get_batch_samples() takes 3 positional arguments but 4 were given"

    own, of_trl = (
        answer(explained(traceback(said.format(name), called))) for name in ("MyTrainer", "DPOTrainer")
    )

    assert "trl-lt012" not in own
    assert "trl-lt012" in of_trl


# --- what the log says of releases ------------------------------------------------------------------------


def test_a_release_that_takes_an_argument_is_not_blamed_for_it(explained: Explain) -> None:
    said = "TypeError: TrainingArguments.__init__() got an unexpected keyword argument 'evaluation_strategy'"
    log = of_own_code(said, "args = TrainingArguments(evaluation_strategy='steps')")

    old, new = explained(log, transformers="4.30.2"), explained(log, transformers="4.57.1")

    assert "no longer takes" not in answer(old)
    assert "transformers 4.30.2 takes evaluation_strategy" in answer(old).splitlines()[0]
    assert "no longer takes" in answer(new).splitlines()[0]


def test_a_release_that_has_a_name_is_not_blamed_for_its_absence(explained: Explain) -> None:
    name = "Qwen2VLForConditionalGeneration"
    log = of_own_code(
        f"ImportError: cannot import name '{name}' from 'transformers' ({SITE}/transformers/__init__.py)",
        f"from transformers import {name}",
    )

    has, lacks = (answer(explained(log, transformers=version)) for version in ("4.57.1", "4.40.0"))

    assert "another release of it is imported" in has.splitlines()[0]
    assert "4.40.0 does not have" in lacks.splitlines()[0]


def test_a_loop_that_the_traceback_does_not_show_is_only_possible(explained: Explain) -> None:
    said = "AssertionError: no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 2"
    raised = (
        f"{SITE}/deepspeed/runtime/engine.py",
        2000,
        "no_sync",
        "assert not self.partitions_gradients()",
    )
    loop = (f"{SITE}/transformers/trainer.py", 2500, "_inner_training_loop", "with context():")

    by_own = answer(
        explained(traceback(said, ("/home/me/train.py", 9, "main", "with engine.no_sync():"), raised))
    )
    by_trainer = answer(explained(traceback(said, loop, raised)))

    assert "Possible problem" in by_own.splitlines()[0]
    assert by_trainer.startswith("Known failure")


# --- when in the run --------------------------------------------------------------------------------------


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


# --- what no release explains -----------------------------------------------------------------------------


def test_a_model_type_of_no_release_is_not_one_of_a_later_release(explained: Explain) -> None:
    said = (
        "ValueError: The checkpoint you are trying to load has model type `{}` but Transformers does not recognize "
        "this architecture. This could be because of an issue with the checkpoint.\n"
    )

    unknown, later = answer(explained(said.format("llava_qwen"))), answer(explained(said.format("qwen3_moe")))

    assert "no release of transformers that was read has the model type llava_qwen" in unknown
    assert "later release" not in unknown
    assert "later release" in later


def test_the_command_of_a_package_is_not_of_another_release_than_its_modules(explained: Explain) -> None:
    script = ("/opt/miniconda3/envs/py3.11/bin/axolotl", 5, "<module>", "from axolotl.cli.main import main")

    found = answer(explained(traceback("ModuleNotFoundError: No module named 'axolotl.cli'", script)))

    assert "release of axolotl" not in found
    assert "a folder axolotl" in found


def test_a_name_that_every_accepted_release_has_is_not_one_of_releases(explained: Explain) -> None:
    asked = (f"{SITE}/vllm/config.py", 18, "<module>", "from transformers import GenerationConfig")
    said = f"ImportError: cannot import name 'GenerationConfig' from 'transformers' ({SITE}/transformers/__init__.py)"

    found = explained(traceback(said, asked))

    assert found.code == UNEXPLAINED
    assert "imported in part only" in answer(found).splitlines()[0]


def test_a_namespace_package_is_not_the_package_whose_name_it_begins_with(explained: Explain) -> None:
    found = answer(explained("ImportError: cannot import name 'NeuronTrainer' from 'optimum.neuron'\n"))

    assert "this release of optimum-neuron does not have NeuronTrainer" in found


def test_releases_below_a_guarded_import_are_not_said_to_have_the_name(explained: Explain) -> None:
    found = answer(explained("ImportError: cannot import name 'is_mlu_available' from 'accelerate.utils'\n"))

    assert "accelerate from 0.29.0 on" in found
    assert "0.20.3" not in found


def test_releases_that_have_a_module_are_not_said_to_have_a_name_of_it(explained: Explain) -> None:
    module = "transformers.models.granitemoe.modeling_granitemoe"

    found = answer(
        explained(f"ImportError: cannot import name 'GraniteMoeParallelExperts' from '{module}'\n")
    )

    assert "in transformers 4.45.0 to 5.12.1" in found  # 5.13 and newer have the module, and not the class
    assert "from 4.45.0 on" not in found


def test_a_keyword_that_libraries_pass_says_nothing_of_the_users_class(explained: Explain) -> None:
    said = (
        "TypeError: mDPODataCollatorBunny.__init__() got an unexpected keyword argument 'max_prompt_length'\n"
    )

    found = answer(explained(said))

    assert "in this release" not in found
    assert "passes" not in found


def test_an_attribute_is_not_set_by_a_package_that_does_not_have_the_class(explained: Explain) -> None:
    said = "AttributeError: 'AutoModelForCausalLMWithValueHead' object has no attribute 'base_model_prefix'\n"

    assert "set by" not in answer(explained(said))


# --- what is a failure, and what the log says of releases ----------------------------------------------------


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


def test_a_message_that_says_what_to_install_is_repeated(explained: Explain) -> None:
    found = explained("RuntimeError: this kernel gives wrong results here. Please install tilelang\n")

    assert cause_of(found).kind == "missing"


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


def test_probabilities_that_are_none_are_no_index_out_of_range(explained: Explain) -> None:
    raised = of_own_code("RuntimeError: CUDA error: device-side assert triggered", "model.generate(ids)")
    kernel = "../aten/src/TensorCompare.cu:110: block: [0,0,0] Assertion `probability tensor contains either `inf`, `nan` or element < 0` failed.\n"

    assert "inf or NaN" in answer(explained(kernel + raised)).splitlines()[0]
    assert "inf or NaN" not in answer(explained(raised)).splitlines()[0]


def test_what_an_exception_became_is_told_with_its_message(explained: Explain) -> None:
    first = of_own_code("KeyError: 'abc'", "return cache[name]")
    then = of_own_code("FileNotFoundError: no file for abc", "return load(name)")

    found = explained(
        f"{first}\nDuring handling of the above exception, another exception occurred:\n\n{then}"
    )

    assert "became  FileNotFoundError: no file for abc" in answer(found)


def test_the_class_of_a_constructor_is_taken_from_the_line_that_calls_it(explained: Explain) -> None:
    said = "TypeError: __init__() got an unexpected keyword argument 'limit_mm_per_prompt'"

    found = explained(of_own_code(said, "AsyncLLMEngine.from_engine_args(AsyncEngineArgs(**engine_args))"))

    assert "AsyncEngineArgs.limit_mm_per_prompt" in answer(found)


def test_a_short_text_of_a_library_that_was_not_read_is_not_another_librarys(explained: Explain) -> None:
    raised = (f"{SITE}/somelib/models.py", 9, "build", "raise ValueError(f'Unsupported model type: {name}')")

    found = explained(traceback("ValueError: Unsupported model type: foo", raised))

    assert "raises it" not in answer(found)


def test_a_path_without_its_beginning_is_still_one_of_the_library(explained: Explain) -> None:
    raised = (
        ".../transformers/integrations/flash_attention.py",
        84,
        "flash_attention_forward",
        "s_aux=s_aux.to(query.dtype),",
    )

    found = explained(traceback("AttributeError: 'NoneType' object has no attribute 'to'", raised))

    assert "script or project" not in answer(found)


def test_a_checkout_that_lacks_a_file_of_its_own_is_not_the_users_code(explained: Explain) -> None:
    raised = (
        r"F:\mergekit9\mergekit\mergekit\moe\mixtral.py",
        12,
        "<module>",
        "from mergekit.architecture.mixtral import MISTRAL_INFO",
    )

    found = explained(
        traceback("ModuleNotFoundError: No module named 'mergekit.architecture.mixtral'", raised)
    )

    assert "mixtral.py imports" not in answer(found)
    assert "this checkout of mergekit lacks a file of its own" in answer(found)


def test_a_path_inside_an_unknown_package_may_be_a_folder_of_the_project(explained: Explain) -> None:
    found = explained("ModuleNotFoundError: No module named 'ddpo_thing.diffusers_patch.train_dreambooth'\n")

    assert "this release of" not in answer(found)
    assert "a folder of the project, its checkout lacks the file" in answer(found)


def test_a_removed_name_is_not_looked_for_in_the_newest_release(explained: Explain) -> None:
    found = explained("AttributeError: module 'vllm.engine.arg_utils' has no attribute 'OLD_ARGUMENTS'\n")

    assert "an older one if it was removed" in answer(found)
    assert "mostly the newest" not in answer(found)


def test_the_release_that_failed_is_not_advised_for_a_wheel_of_the_old_abi(explained: Explain) -> None:
    said = f"ImportError: {SITE}/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: "

    old = explained(f"{said}_ZN3c105ErrorC2ENS_14SourceLocationESs\n")
    new = explained(
        f"{said}_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE\n"
    )

    assert "==2.7.4.post1" not in answer(old)
    assert "==2.7.4.post1" in answer(new)


def test_a_function_that_takes_any_number_did_not_get_too_many(explained: Explain) -> None:
    said = "TypeError: Seq2SeqTrainer.training_step() takes 3 positional arguments but 4 were given"

    found = answer(explained(f"{said}\n"))

    assert "takes   transformers from 4.46 on" in found
    assert "ms-swift" not in found


def test_trl_is_not_named_where_a_name_of_vllm_is_asked_for_by_another(explained: Explain) -> None:
    said = "ImportError: cannot import name 'GuidedDecodingParams' from 'vllm.sampling_params'"
    of_trl = (f"{SITE}/trl/trainer/grpo_trainer.py", 95, "<module>", "from vllm.sampling_params import x")

    bare = answer(explained(f"{said}\n"))
    shown = answer(explained(traceback(said, of_trl)))

    assert "GRPO of TRL" not in bare.splitlines()[0]
    assert "has it  vllm.sampling_params.GuidedDecodingParams" in bare
    assert "GRPO of TRL" in shown.splitlines()[0]


def test_a_backtick_stays_in_a_message_that_quotes_more_than_one_name(explained: Explain) -> None:
    said = "TypeError: `model` must be a `LightningModule` or `torch._dynamo.OptimizedModule`, got `LagLlama`"

    assert "two packages of Lightning" in answer(explained(f"{said}\n"))


def test_a_processor_in_the_place_of_a_tokenizer_is_told(explained: Explain) -> None:
    said = "AttributeError: 'Gemma3Processor' object has no attribute 'tokenize'"

    assert "processor.tokenizer" in answer(explained(f"{said}\n"))


# --- which releases have a name -------------------------------------------------------------------------


def test_a_name_that_no_release_has_is_not_one_of_releases(explained: Explain) -> None:
    found = explained("ImportError: cannot import name 'LoraConfigs' from 'peft'\n")

    assert found.code == UNEXPLAINED
    assert answer(found).startswith("Failed: no release of peft (0.0.1 to ")
    assert "or the name is misspelt" in answer(found)


def test_a_name_that_every_release_has_points_at_what_is_imported(explained: Explain) -> None:
    found = explained("ImportError: cannot import name 'LoraConfig' from 'peft'\n")

    assert "Failed: every release of peft has LoraConfig of peft" in answer(found)
    assert "in a release that has it" not in answer(found)


def test_a_name_that_moved_is_said_to_be_elsewhere(explained: Explain) -> None:
    found = answer(
        explained("ImportError: cannot import name 'process_image' from 'verl.utils.dataset.rl_dataset'\n")
    )

    assert "is in   verl.utils.dataset.vision_utils.process_image (in verl from 0.4.0 on)" in found
    assert "or import it from where it is" in found


def test_a_module_of_every_release_has_to_be_imported_before_it_is_an_attribute(explained: Explain) -> None:
    asked = (f"{SITE}/somewhere/patch.py", 18, "<module>", "peft.tuners.lora")
    found = answer(explained(traceback("AttributeError: module peft.tuners has no attribute lora", asked)))

    assert "which was not imported before somewhere read it" in found
    assert "the line `import peft.tuners.lora` has to run before" in found


def test_what_others_ask_of_a_module_is_not_said_to_be_it(explained: Explain) -> None:
    found = answer(explained("ModuleNotFoundError: No module named 'trl.trainer'\n"))

    assert "has it  trl.trainer: in trl from 0.2.0 on" in found
    assert "ORPOTrainer" not in found


# --- attributes of base classes -------------------------------------------------------------------------


def test_an_attribute_is_looked_up_in_the_base_of_another_package(explained: Explain) -> None:
    asked = (f"{SITE}/trl/trainer/sft_trainer.py", 300, "train", "self.tokenizer.padding_side")
    found = answer(
        explained(traceback("AttributeError: 'SFTTrainer' object has no attribute 'tokenizer'", asked))
    )

    assert "has it  transformers up to 4.57: Trainer.tokenizer" in found
    assert "ms-swift" not in found


def test_the_tokenizer_of_any_model_derives_from_the_base_of_all(explained: Explain) -> None:
    found = answer(explained("AttributeError: BertTokenizer has no attribute batch_encode_plus\n"))

    assert "has it  transformers up to 4.57: PreTrainedTokenizerBase.batch_encode_plus" in found


def test_a_trainer_with_a_word_of_its_own_derives_from_the_one_without(explained: Explain) -> None:
    found = answer(explained("AttributeError: 'GRPOEnvTrainer' object has no attribute 'llm'\n"))

    assert "GRPOTrainer.llm" in found
    assert "if a file of trl asks, the class was written for an older one" in found


def test_a_library_that_asks_its_own_attribute_of_a_projects_class_is_newer(explained: Explain) -> None:
    asked = (f"{SITE}/trl/trainer/grpo_trainer.py", 900, "_prepare", "if step % self.num_iterations == 0:")
    found = answer(
        explained(traceback("AttributeError: 'XGRPOTrainer' object has no attribute 'num_iterations'", asked))
    )

    assert "asks    trl itself, whose GRPOTrainer has num_iterations: from 0.16.0 on" in found
    assert "has it" not in found


def test_the_function_that_fails_is_not_said_to_set_what_it_misses(explained: Explain) -> None:
    asked = (
        f"{SITE}/accelerate/utils/other.py",
        180,
        "extract_model_from_parallel",
        "model = model._orig_mod",
    )
    found = answer(
        explained(
            traceback("AttributeError: 'DistributedDataParallel' object has no attribute '_orig_mod'", asked)
        )
    )

    assert "set by" not in found


def test_an_argument_that_a_line_hands_on_comes_from_elsewhere(explained: Explain) -> None:
    made = (f"{SITE}/trl/trainer/sft_trainer.py", 152, "__init__", "args = SFTConfig(**args_as_dict)")
    found = answer(
        explained(
            traceback("TypeError: SFTConfig.__init__() got an unexpected keyword argument 'my_cache'", made)
        )
    )

    assert "trl hands my_cache on (in **args_as_dict) to SFTConfig.__init__()" in found
    assert "my_cache comes from what args_as_dict holds" in found


def test_a_message_that_begins_below_its_exception_is_shown(explained: Explain) -> None:
    found = answer(
        explained("ImportError: \n[sgl_kernel] CRITICAL: Could not load any common_ops library!\n")
    )

    assert "ImportError: [sgl_kernel] CRITICAL: Could not load any common_ops library!" in found


def test_a_path_that_is_cut_to_the_package_is_the_packages(explained: Explain) -> None:
    asked = ("verl/models/transformers/qwen2_vl.py", 29, "<module>", "from peft import BoneConfig")
    found = answer(explained(traceback("ImportError: cannot import name 'BoneConfig' from 'peft'", asked)))

    assert "verl asks for BoneConfig of peft" in found
    assert "qwen2_vl.py asks for" not in found


def test_nobody_is_said_to_pass_an_argument_to_a_function_of_no_library(explained: Explain) -> None:
    said = (
        "TypeError: resolve_chat_template_format() got an unexpected keyword argument 'trust_remote_code'\n"
    )

    assert "passes " not in answer(explained(said))


def test_installers_that_found_no_release_are_not_said_to_have_found_a_clash(explained: Explain) -> None:
    told = answer(
        explained(
            "  x No solution found when resolving dependencies for split (sys_platform == 'darwin'):\n"
            "  ╰─▶ Because there is no version of torch{sys_platform == 'darwin'}==2.6.0+cu124 and your project\n"
            "      depends on torch{sys_platform == 'darwin'}==2.6.0+cu124, we can conclude that your project's\n"
            "      requirements are unsatisfiable.\n"
        )
    )

    assert "no release or wheel of torch==2.6.0+cu124 is offered" in told
    assert "clash" not in told


def test_the_requirements_below_pips_error_belong_to_it(explained: Explain) -> None:
    found = explained(
        "ERROR: Cannot install -r requirements.txt (line 36) and tokenizers==0.10.3 because these package "
        "versions have conflicting dependencies.\n\nThe conflict is caused by:\n"
        "    The user requested tokenizers==0.10.3\n"
        "    transformers 4.32.0 depends on tokenizers!=0.11.3, <0.14 and >=0.11.1\n"
    )

    assert "clash   asked for: tokenizers==0.10.3" in answer(found)
    assert not found.diagnosis.apart


@pytest.mark.parametrize(
    ("log", "platform"),
    [
        ("Error invalid device function at line 679 in file /bitsandbytes/csrc/ops.hip\n", "ROCm"),
        (
            "OSError: /usr/local/Ascend/nnal/atb/latest/lib/libtbe_adapter.so: undefined symbol: _ZN3Mki2DlC1Eb\n",
            "Ascend",
        ),
        ("RuntimeError: Placeholder storage has not been allocated on MPS device!\n", "macOS"),
    ],
)
def test_a_log_of_another_accelerator_hears_nothing_of_cuda(
    log: str, platform: str, explained: Explain
) -> None:
    found = explained(log)
    told = answer(found).partition("log of")[0]

    assert found.platform is not None
    assert found.platform.name == platform
    assert "CUDA" not in told
    assert "pip install --force-reinstall" not in told


def test_a_json_file_that_does_not_parse_is_no_refused_setting(explained: Explain) -> None:
    found = explained(
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, Expecting value: line 1 column 1 (char 0) [type=value_error, input_value=ArgsKwargs((), "
        "{'model': None}), input_type=ArgsKwargs]\n"
    )

    assert cause_of(found).kind == "open"
    assert "git-lfs" in answer(found)
    assert "setting" not in answer(found)


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


def test_a_word_that_this_peft_does_not_know_is_not_advised(explained: Explain) -> None:
    told = answer(explained("ValueError: Target modules all-linear not found in the base model.\n"))

    assert "Upgrade peft to 0.8.0" in told
    assert 'Use target_modules="all-linear"' not in told


def test_rules_on_a_name_that_every_release_has_are_not_listed(explained: Explain) -> None:
    told = answer(
        explained(
            traceback(
                "ImportError: cannot import name 'Trainer' from 'transformers' "
                f"({SITE}/transformers/__init__.py)",
                ("/home/me/train.py", 20, "<module>", "from transformers import ("),
            )
        )
    )

    assert "which every release of transformers has" in told
    assert "    rule  " not in told
    assert 'python -c "from transformers import Trainer"' in told


def test_an_assertion_on_the_host_blames_no_index_and_no_user(explained: Explain) -> None:
    host = explained(
        "python: /opt/cache/torch_extensions/py310_cu121/async_io/deepspeed_aio_common.cpp:128: int "
        "_do_io_complete(long long int): Assertion `n_completes >= min_completes' failed.\n"
    )
    kernel = explained(
        "../aten/src/ATen/native/cuda/Loss.cu:250: nll_loss_forward_reduce_cuda_kernel_2d: block: [0,0,0], "
        "thread: [3,0,0] Assertion `t >= 0 && t < n_classes` failed.\n"
    )

    assert cause_of(host).kind == "crash"
    assert "index" not in answer(host)
    assert cause_of(kernel).kind == "data"


def test_a_filled_text_is_not_given_the_condition_of_another_file(explained: Explain) -> None:
    told = answer(
        explained(
            traceback(
                "ValueError: int3 mixed precision requires a moon",
                (
                    f"{SITE}/accelerate/accelerator.py",
                    355,
                    "__init__",
                    "raise ValueError(err.format(mode=mode))",
                ),
            )
        )
    )

    assert "_validate_launch_command" not in told


def test_a_model_of_a_project_is_not_derived_from_the_one_it_is_named_after(explained: Explain) -> None:
    told = answer(
        explained(
            traceback(
                "AttributeError: 'TinyLlavaForConditionalGeneration' object has no attribute 'peft_config'",
                ("/home/me/tinyllava/lora_recipe.py", 46, "converse", "if model.peft_config is None:"),
                (f"{SITE}/torch/nn/modules/module.py", 1614, "__getattr__", "raise AttributeError("),
            )
        )
    )

    assert "has it" not in told
    assert "install a release" not in told


def test_what_is_installed_is_not_advised_again(explained: Explain) -> None:
    asked = (
        "Using `bitsandbytes` 4-bit quantization requires the latest version of bitsandbytes: "
        "`pip install -U bitsandbytes`"
    )
    refused = traceback(
        f"ImportError: {asked}",
        (
            f"{SITE}/transformers/quantizers/quantizer_bnb_4bit.py",
            84,
            "validate_environment",
            "raise ImportError(",
        ),
    )
    absent = of_own_code("ModuleNotFoundError: No module named 'flash_attn'", "import flash_attn")

    assert cause_of(explained(refused)).kind != "open"
    found = explained(refused, bitsandbytes="0.46.0")
    assert cause_of(found).kind == "open"
    assert "bitsandbytes 0.46.0 is installed" in answer(found)
    assert "Install the named package" not in answer(found)

    assert "install flash-attn into" in answer(explained(absent))
    found = explained(absent, **{'"flash-attn"': "2.7.4.post1"})
    assert "flash-attn 2.7.4.post1 is installed" in answer(found)
    assert "install flash-attn into" not in answer(found)


def test_a_package_missing_on_windows_may_be_for_linux_only(explained: Explain) -> None:
    log = (
        "Traceback (most recent call last):\n"
        '  File "{}train.py", line 3, in <module>\n'
        "    import triton\n"
        "ModuleNotFoundError: No module named 'triton'\n"
    )
    assert "triton-windows" in answer(explained(log.format("C:\\Users\\me\\")))
    assert "triton-windows" not in answer(explained(log.format("/srv/")))


@pytest.mark.parametrize(
    ("imported", "asks"),
    [
        ("from rllm.trainer.verl.sft_dataset import Data", "rllm/trainer/verl/sft_dataset.py asks for"),
        ("data = load()", "sft_dataset.py asks for"),
    ],
)
def test_a_module_of_a_project_is_not_called_the_users_own_code(
    explained: Explain, imported: str, asks: str
) -> None:
    frames = [
        ("/home/me/rllm/train_sft.py", 33, "train", imported),
        ("/home/me/rllm/rllm/trainer/verl/sft_dataset.py", 5, "<module>", "from verl.utils.parser import P"),
    ]

    found = answer(explained(traceback("ModuleNotFoundError: No module named 'verl.utils.parser'", *frames)))

    assert f"{asks} the module verl.utils.parser, which no release of verl" in found
    assert ("rllm/trainer" in found.splitlines()[0]) is (asks != "sft_dataset.py asks for")


@pytest.mark.parametrize(
    ("started", "own"),
    [
        (("<frozen runpy>", 88, "_run_code", "exec(code)"), False),
        (("/home/me/x/run.py", 8, "main", "go()"), True),
    ],
)
def test_a_program_that_was_started_as_a_module_is_not_called_the_users_own(
    explained: Explain, started: tuple[str, int, str, str], *, own: bool
) -> None:
    frames = [
        started,
        ("/home/me/mlx-vlm/mlx_vlm/lora.py", 178, "<module>", "main(args)"),
        (
            "/home/me/mlx-vlm/mlx_vlm/trainer/trainer.py",
            89,
            "__getitem__",
            'self.config["image_token_index"]',
        ),
    ]

    found = explained(traceback("KeyError: 'image_token_index'", *frames))

    assert (cause_of(found).kind == "code") is own
    assert ("the script or project that was run" in answer(found)) is own


@pytest.mark.parametrize(
    ("log", "headline"),
    [
        (
            (
                "  x No solution found when resolving dependencies:\n"
                "  ╰─▶ Because a==1 depends on torch==2.6 and b==2 depends on numpy<2 and c==3 depends on torch==2.7, we\n"
                "      can conclude that your requirements are unsatisfiable.\n"
            ),
            "Failed: a==1 requires torch==2.6; c==3 requires torch==2.7",
        ),
        (
            (
                "ERROR: pip's dependency resolver does not currently take into account all the packages that are "
                "installed. This behaviour is the source of the following dependency conflicts.\n"
                "llava 1.2.2 requires transformers==4.37.2, but you have transformers 4.39.2 which is incompatible.\n"
            ),
            "Failed: llava 1.2.2 requires transformers==4.37.2; 4.39.2 is installed",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/usr/lib/x'\n",
            "Failed, cause not known: ERROR: Could not install packages due to an OSError: [Errno 13] Permission denied: '/usr/lib/x'",
        ),
    ],
)
def test_the_headline_of_an_installers_failure_is_what_it_could_not_meet(
    explained: Explain, log: str, headline: str
) -> None:
    assert answer(explained(log)).splitlines()[0] == headline


def test_code_of_a_models_repository_is_not_the_users_own(explained: Explain) -> None:
    place = (
        "transformers_modules/InternVL2-8B/configuration.py",
        51,
        "__init__",
        "x = config['architectures'][0]",
    )

    found = explained(traceback("KeyError: 'architectures'", place))

    assert cause_of(found).kind != "code"
    assert "script" not in answer(found)


def test_a_package_that_is_imported_lazily_is_not_said_to_ask_what_another_asks(explained: Explain) -> None:
    found = explained(
        "RuntimeError: Failed to import diffusers.loaders.lora_pipeline because of the following error (look up to "
        "see its traceback):\nmodule 'torch' has no attribute 'int1'\n"
    )

    assert "diffusers asks" not in answer(found)
    assert "asked for by torchao" in answer(found)


def test_a_field_of_every_object_of_a_release_is_not_said_to_be_set_somewhere(explained: Explain) -> None:
    name = "dataloader_persistent_workers"
    place = (f"{SITE}/sentence_transformers/trainer.py", 420, "get_train_dataloader", f"self.args.{name},")
    message = f"AttributeError: 'SentenceTransformerTrainingArguments' object has no attribute '{name}'"

    said = answer(explained(traceback(message, place)))

    assert "transformers from 4.36 on: TrainingArguments" in said
    assert "set by" not in said


def test_a_name_that_a_module_offers_in_some_cases_is_no_broken_installation(explained: Explain) -> None:
    name = "DDPOStableDiffusionPipeline"
    place = (f"{SITE}/trl/trainer/alignprop_trainer.py", 28, "<module>", f"from ..models import {name}")
    message = f"ImportError: cannot import name '{name}' from 'trl.models' ({SITE}/trl/models/__init__.py)"

    said = answer(explained(traceback(message, place)))

    assert "only if an optional package can be imported" in said
    assert "uninstall" not in said


def test_the_line_that_asks_stands_above_a_class_that_answers_for_its_attributes(explained: Explain) -> None:
    found = explained(
        traceback(
            "AttributeError: 'LlamaConfig' object has no attribute 'rope_theta'",
            ("/home/me/models/llama.py", 85, "__init__", "self.rope_theta = args.rope_theta"),
            (f"{SITE}/transformers/configuration_utils.py", 261, "__getattribute__", "return super()…"),
        )
    )

    assert "transformers 4.33 to 4.57: LlamaConfig.rope_theta" in answer(found)


def test_a_name_in_other_letters_is_told_as_the_package_spells_it(explained: Explain) -> None:
    found = explained("AttributeError: module transformers has no attribute LLaMATokenizer\n")

    assert "transformers spells it LlamaTokenizer" in answer(found)
    assert "fork" not in answer(found)


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


def test_a_release_that_raises_a_message_in_another_file_is_not_that_of_the_log(explained: Explain) -> None:
    place = (
        "/home/me/axolotl/src/axolotl/utils/config.py",
        193,
        "validate_config",
        'raise ValueError("Can\'t load qlora if gptq")',
    )

    said = answer(explained(traceback("ValueError: Can't load qlora if gptq", place)))

    assert "on, unlike the release of the log, raises it: axolotl/utils/schemas/peft.py" in said


def test_what_deletes_an_attribute_is_not_told_to_set_it_first(explained: Explain) -> None:
    colab = (
        "[/usr/local/lib/python3.11/dist-packages/torch/nn/modules/module.py](https://localhost:8080/#) in "
        "{}(self, name)\n-> 2077             super().{}(name)\n\n"
        "AttributeError: 'PeftModel' object has no attribute '_flag_for_generation'\n"
    )
    head = "AttributeError                            Traceback (most recent call last)\n"

    deleted = answer(explained(head + colab.format("__delattr__", "__delattr__")))
    read = answer(explained(head + colab.format("__getattr__", "__getattr__")))

    assert "deletes an attribute" in deleted
    assert "set by" not in deleted
    assert "deletes an attribute" not in read


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


def test_a_module_of_an_object_that_is_read_is_not_a_package_to_install(explained: Explain) -> None:
    load = ("D:\\e\\Lib\\site-packages\\dill\\_dill.py", 452, "load", "obj = StockUnpickler.load(self)")
    asked = (f"{SITE}/datasets/utils/tf_utils.py", 12, "<module>", "import tensorflow")

    read = answer(explained(traceback("ModuleNotFoundError: No module named 'UnslothSFTTrainer'", load)))
    imported = answer(explained(traceback("ModuleNotFoundError: No module named 'tensorflow'", load, asked)))

    assert read.startswith(
        "Failed: an object of the module UnslothSFTTrainer is read, and this process cannot"
    )
    assert "unslothsfttrainer" not in read
    assert "num_proc=None" in read
    assert imported.startswith("Failed: datasets imports tensorflow, which is not installed")


def test_a_module_that_no_known_package_has_gives_no_package_a_name(explained: Explain) -> None:
    asked = ("/srv/run.py", 3, "<module>", "import MyTools")
    known = ("/srv/run.py", 3, "<module>", "import PIL")

    found = answer(explained(traceback("ModuleNotFoundError: No module named 'MyTools'", asked)))

    assert found.startswith(
        "Failed: run.py imports MyTools, if it is not a file of yours, which is not installed"
    )
    assert "PIL, of the package pillow" in answer(
        explained(traceback("ModuleNotFoundError: No module named 'PIL'", known))
    )


def test_a_folder_beside_a_script_with_any_name_hides_the_package(explained: Explain) -> None:
    asked = (f"{SITE}/transformers/trainer.py", 259, "_is_peft_model", "from peft import PeftMixedModel")
    said = "ImportError: cannot import name 'PeftMixedModel' from 'peft' ({}/peft/__init__.py)"
    script = ("/srv/HydraLoRA/fine-tuning.py", 550, "<module>", "main()")

    hidden = answer(explained(traceback(said.format("/srv/HydraLoRA"), script, asked)))
    installed = answer(explained(traceback(said.format(SITE), script, asked)))

    assert "which the imported /srv/HydraLoRA/peft/__init__.py does not have" in hidden
    assert "it hides the package peft: rename it" in hidden
    assert "hides the package" not in installed


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


def test_a_text_that_excludes_cuda_is_compared_with_a_log_of_another_platform(explained: Explain) -> None:
    said = "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, {}!"
    linear = (f"{SITE}/torch/nn/modules/linear.py", 134, "forward", "return F.linear(input, self.weight)")

    assert "[devices-differ]" in answer(explained(traceback(said.format("xpu:0 and cpu"), linear)))
    assert "[devices-differ]" not in answer(explained(traceback(said.format("cuda:0 and cuda:1"), linear)))


def test_a_missing_library_of_another_platform_is_not_one_of_cuda(explained: Explain) -> None:
    log = (
        "Could not find the bitsandbytes CUDA binary at PosixPath('/srv/bitsandbytes/libbitsandbytes_hip.so')\n"
        + traceback(
            "OSError: /srv/bitsandbytes/libbitsandbytes_cpu.so: cannot open shared object file: No such file",
            (
                "/opt/lib/python3.9/ctypes/__init__.py",
                382,
                "__init__",
                "self._handle = _dlopen(self._name, mode)",
            ),
        )
    )
    found = answer(explained(log))

    assert "bitsandbytes has no compiled library for this GPU and its software" in found
    assert "log of  ROCm" in found
    assert "[bitsandbytes-cuda-library-missing]" not in found


def test_a_worker_that_died_is_second_to_a_line_that_says_why(explained: Explain) -> None:
    died = "(raylet) A worker died or was killed while executing a task by an unexpected system error.\n"
    why = "(WorkerDict pid=23189) Invalid handle. Cannot load symbol cublasLtGetVersion\n"

    assert answer(explained(died + why)).startswith("Failed: Invalid handle. Cannot load symbol")
    assert "a worker process of Ray died" in answer(explained(died))


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("LFM2.5-VL model requires transformers>=4.58.0", True),
        ("This reward needs `math-verify[antlr4] >= 0.5.2`", True),
        ("GRPO requires batch_size >= 2", False),
        ("flash-attn requires CUDA >= 11.7", False),
    ],
)
def test_a_message_that_requires_a_release_is_one_of_versions(
    explained: Explain, said: str, *, told: bool
) -> None:
    raised = (f"{SITE}/foo/patcher.py", 118, "patch", "raise RuntimeError(text)")

    found = answer(explained(traceback(f"RuntimeError: {said}", raised)))

    assert ("asks for another release of a package" in found) is told


# --- a rule on another package that asks for the same name -------------------------------------------

ASKED_BY = """\
Traceback (most recent call last):
  File "/env/lib/python3.11/site-packages/{package}/__init__.py", line 3, in <module>
    from {package} import {module}
  File "/env/lib/python3.11/site-packages/{package}/{module}.py", line 13, in <module>
    from huggingface_hub import HfFolder, whoami
ImportError: cannot import name 'HfFolder' from 'huggingface_hub' (/env/lib/python3.11/site-packages/huggingface_hub/__init__.py)
"""


def test_a_rule_on_another_package_that_asks_for_the_name_is_beside_the_point(explained: Explain) -> None:
    of_datasets = explained(ASKED_BY.format(package="datasets", module="load"))
    assert [match.signature.rule for match in of_datasets.diagnosis.matches] == [
        "datasets-lt216-huggingface-hub1"
    ]
    of_gradio = explained(ASKED_BY.format(package="gradio", module="oauth"))
    assert of_gradio.diagnosis.matches == ()
    assert of_gradio.missing is not None
    assert of_gradio.missing.missing.asks == "gradio"
    assert "gradio-lt58-huggingface-hub1" in {rule.id for rule in of_gradio.missing.rules}
