"""A text that has several causes is not taken for one of them."""

from __future__ import annotations

import pytest

from envcheck.reports.explanation import UNEXPLAINED
from tests.support.logs import SITE, Explain, answer, cause_of, of_own_code, traceback


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


def test_a_model_type_of_no_release_is_not_one_of_a_later_release(explained: Explain) -> None:
    said = (
        "ValueError: The checkpoint you are trying to load has model type `{}` but Transformers does not recognize "
        "this architecture. This could be because of an issue with the checkpoint.\n"
    )

    unknown, later = answer(explained(said.format("llava_qwen"))), answer(explained(said.format("qwen3_moe")))

    assert "no release of transformers that was read has the model type llava_qwen" in unknown
    assert "later release" not in unknown
    assert "later release" in later


def test_a_message_that_says_what_to_install_is_repeated(explained: Explain) -> None:
    found = explained("RuntimeError: this kernel gives wrong results here. Please install tilelang\n")

    assert cause_of(found).kind == "missing"


def test_probabilities_that_are_none_are_no_index_out_of_range(explained: Explain) -> None:
    raised = of_own_code("RuntimeError: CUDA error: device-side assert triggered", "model.generate(ids)")
    kernel = "../aten/src/TensorCompare.cu:110: block: [0,0,0] Assertion `probability tensor contains either `inf`, `nan` or element < 0` failed.\n"

    assert "inf or NaN" in answer(explained(kernel + raised)).splitlines()[0]
    assert "inf or NaN" not in answer(explained(raised)).splitlines()[0]


def test_a_short_text_of_a_library_that_was_not_read_is_not_another_librarys(explained: Explain) -> None:
    raised = (f"{SITE}/somelib/models.py", 9, "build", "raise ValueError(f'Unsupported model type: {name}')")

    found = explained(traceback("ValueError: Unsupported model type: foo", raised))

    assert "raises it" not in answer(found)


def test_a_processor_in_the_place_of_a_tokenizer_is_told(explained: Explain) -> None:
    said = "AttributeError: 'Gemma3Processor' object has no attribute 'tokenize'"

    assert "processor.tokenizer" in answer(explained(f"{said}\n"))


def test_a_json_file_that_does_not_parse_is_no_refused_setting(explained: Explain) -> None:
    found = explained(
        "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
        "  Value error, Expecting value: line 1 column 1 (char 0) [type=value_error, input_value=ArgsKwargs((), "
        "{'model': None}), input_type=ArgsKwargs]\n"
    )

    assert cause_of(found).kind == "open"
    assert "git-lfs" in answer(found)
    assert "setting" not in answer(found)


def test_a_word_that_this_peft_does_not_know_is_not_advised(explained: Explain) -> None:
    told = answer(explained("ValueError: Target modules all-linear not found in the base model.\n"))

    assert "Upgrade peft to 0.8.0" in told
    assert 'Use target_modules="all-linear"' not in told


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


def test_a_release_that_raises_a_message_in_another_file_is_not_that_of_the_log(explained: Explain) -> None:
    place = (
        "/home/me/axolotl/src/axolotl/utils/config.py",
        193,
        "validate_config",
        'raise ValueError("Can\'t load qlora if gptq")',
    )

    said = answer(explained(traceback("ValueError: Can't load qlora if gptq", place)))

    assert "raises it: axolotl/utils/schemas/peft.py in " in said
    assert "(the log's release has it in another file)" in said


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


def test_a_library_that_was_not_read_raised_its_own_message(explained: Explain) -> None:
    said = "ImportError: Found an incompatible version of auto-gptq, which this one refuses to load at all"
    frame = ("optimum/utils/import_utils.py", 116, "is_auto_gptq_available", "raise ImportError(")

    of_optimum = answer(explained(traceback(said, (f"{SITE}/{frame[0]}", *frame[1:]))))

    assert "library peft" not in of_optimum
