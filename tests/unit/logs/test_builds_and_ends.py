"""What is said of modules that a build lacks, of the last line of a log, and of how Windows ends a process."""

from __future__ import annotations

import pytest

from envcheck.reports.explanation import FAILED, NOTHING, UNEXPLAINED
from tests.support.logs import SITE, Explain, answer, cause_of, traceback

_BACKEND = f"{SITE}/setuptools/build_meta.py"


def _of_build(module: str) -> str:
    said = f"ModuleNotFoundError: No module named '{module}'"
    frames = ((_BACKEND, 313, "run_setup", "exec(code, locals())"), ("<string>", 20, "<module>", ""))
    return f"  x Failed to build `flash-attn==2.8.1`\n{traceback(said, *frames)}"


def test_a_module_that_a_build_lacks_is_to_be_installed_before_it(explained: Explain) -> None:
    of_build, listed = explained(_of_build("wheel")), explained(_of_build("psutil"), psutil="7.1.0")
    of_run = explained(
        traceback(
            "ModuleNotFoundError: No module named 'wheel'", ("/srv/train.py", 3, "<module>", "import wheel")
        )
    )

    assert "the build of a package imports wheel" in answer(of_build)
    assert "--no-build-isolation" in answer(of_build)
    assert "not there where it is built" in answer(listed)
    assert "the Python that ran finds no psutil" not in answer(listed)
    assert "--no-build-isolation" not in answer(of_run)


def test_a_build_that_uv_says_lacks_torch_is_one_in_isolation(explained: Explain) -> None:
    hint = (
        "hint: This error likely indicates that `flash-attn@2.7.3` depends on `torch`, but doesn't declare it"
    )
    found = cause_of(
        explained(f"4.984   ModuleNotFoundError: No module named 'torch'\n4.984 \n4.984   {hint}\n")
    )

    assert found.match is not None
    assert found.match.signature.case == "torch-hidden-by-build-isolation"


@pytest.mark.parametrize("time", ["", "[23:37:27]"])
def test_a_header_that_lost_the_prefix_of_its_frames_belongs_to_them(time: str, explained: Explain) -> None:
    prefix = f"{time}[rank0]: "
    frame = f'{prefix}  File "/srv/train.py", line 3, in <module>\n{prefix}    import triton_kernels\n'
    log = f"Traceback (most recent call last):\n{frame}{prefix}ModuleNotFoundError: No module named 'triton_kernels'\n"
    found = explained(log)
    cause = cause_of(found)

    assert cause.event.ranks == ("0",)
    assert cause.told is not None
    assert cause.told.name == "ModuleNotFoundError"
    assert cause.place is not None
    assert not found.diagnosis.apart


def test_a_header_of_another_process_keeps_its_frames(explained: Explain) -> None:
    frame = '  File "/srv/train.py", line 3, in main\n    run()\n'
    launcher = f"Traceback (most recent call last):\n{frame}"
    worker = "".join(f"[rank1]: {line}\n" for line in (launcher + "ValueError: of the rank").splitlines())
    found = explained(f"{launcher}{worker}KeyError: 'of the launcher'\n")
    told = {cause.told.name for cause in (cause_of(found), *found.diagnosis.apart) if cause.told is not None}

    assert told == {"ValueError", "KeyError"}


_REFUSED = "10:00:02-000001 ERROR    LoRA type must be set to 'Flux1' if the checkbox is checked."


@pytest.mark.parametrize(
    "line",
    [
        _REFUSED,
        "[ERROR] the configuration names no data set at all",
        "(Engine pid=7) [2026-05-21 16:07:41 DP6 TP6] Failed to update parameter online: start out of range",
        "Cannot find the folder of the reference model",
    ],
)
def test_a_log_that_ends_with_an_error_is_not_silent(line: str, explained: Explain) -> None:
    ends = explained(f"10:00:01 INFO     Start\n{line}\n\n")
    goes_on = explained(f"10:00:01 INFO     Start\n{line}\n" + "10:00:03 INFO     next\n" * 9)

    assert ends.code == UNEXPLAINED
    assert line[-30:] in cause_of(ends).event.text
    assert goes_on.code == NOTHING


def test_the_last_line_of_a_log_may_be_a_known_failure(explained: Explain) -> None:
    known = (
        "Failed to allocate: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 3; 79.15 GiB total capacity)"
    )
    found = explained(f"10:00:01 INFO     Start\n10:00:02 ERROR    {known}\n")

    assert found.code == FAILED


def test_the_last_line_of_a_log_gives_way_to_an_exception(explained: Explain) -> None:
    found = explained(f"{traceback('KeyError: 1', ('/srv/a.py', 3, 'main', 'row[1]'))}{_REFUSED}\n")

    assert cause_of(found).told is not None
    assert cause_of(found).told.name == "KeyError"  # type: ignore[union-attr] # the line above


@pytest.mark.parametrize(
    ("line", "means"),
    [
        ("Process finished with exit code -1073741819 (0xC0000005)", "0xC0000005"),
        (
            "subprocess.CalledProcessError: Command 'python x.py' returned non-zero exit status 3221225477.",
            "0xC0000005",
        ),
        ("Process finished with exit code 3221225781", "0xC0000135"),
        ("subprocess.CalledProcessError: Command 'x' returned non-zero exit status 137.", "killed"),
    ],
)
def test_a_status_of_windows_is_told_in_words(line: str, means: str, explained: Explain) -> None:
    found = explained(f"{line}\n")

    assert means in answer(found)
    assert found.code == FAILED


def test_an_exit_status_that_means_nothing_stays_unknown(explained: Explain) -> None:
    line = "subprocess.CalledProcessError: Command 'x' returned non-zero exit status 1."

    assert explained(f"{line}\n").code == UNEXPLAINED


def test_lines_of_a_packages_own_file_state_its_release(explained: Explain) -> None:
    lines = 'File c:\\env\\lib\\site-packages\\peft_init_.py:22\n1 # flake8: noqa\n20 version = "0.7.1"\n'
    said = "ImportError: cannot import name 'get_peft_model' from 'peft.mapping' (c:\\env\\peft\\mapping.py)"
    told = explained(f"{lines}---> 22 from .auto import (\n\n{said}\n")
    of_another_file = explained(lines.replace("peft_init_", "peft\\auto") + f"\n{said}\n")

    assert [fact.value for fact in told.printed if fact.key == "pkg.peft"] == ["0.7.1"]
    assert not [fact for fact in of_another_file.printed if fact.key == "pkg.peft"]


def test_the_line_of_code_above_an_exception_counts_without_its_frame(explained: Explain) -> None:
    said = "ValueError: invalid literal for int() with base 10: '100000000.0'"
    shown = explained(f'    min_num_params = int(os.environ.get("FSDP_MIN_NUM_PARAMS", 0))\n{said}\n')
    other = explained(f"    width = int(row[2])\n{said}\n")

    assert "fsdp_min_num_params: 100000000" in answer(shown)
    assert "fsdp_min_num_params" not in answer(other)


def test_a_class_that_a_loaded_file_needs_is_of_another_release_or_of_another_script(
    explained: Explain,
) -> None:
    file = (f"{SITE}/torch/serialization.py", 1953, "find_class", "return super().find_class(mod_name, name)")
    of_module = explained(
        traceback("AttributeError: Can't get attribute 'Meta' on <module 'swift.meta'>", file)
    )
    of_script = explained(traceback("AttributeError: Can't get attribute 'Net' on <module '__main__'>", file))
    of_pool = traceback(
        "AttributeError: Can't get attribute 'work' on <module '__main__'>",
        ("/srv/pool.py", 9, "run", "pool.map(work, rows)"),
    )

    assert "no longer has, or not yet" in answer(of_module)
    assert "that the script defined" in answer(of_script)
    assert "weights alone" not in answer(explained(of_pool))


def test_a_check_of_fsdp_is_said_to_be_where_it_is_written(explained: Explain) -> None:
    said = "AssertionError: Expected `FlatParameter` to be on the compute device cuda:0 but got cpu"
    place = (f"{SITE}/torch/distributed/utils.py", 146, "_p_assert", "raise AssertionError(s)")
    told = answer(explained(traceback(said, place)))

    assert "FullyShardedDataParallel.forward" in told
    assert "in another file" not in told


def test_a_refused_configuration_is_said_to_be_refused_by_the_check_that_did(explained: Explain) -> None:
    said = "pydantic_core._pydantic_core.ValidationError: 1 validation error for ModelConfig\n"
    refused = f"{said}  Value error, No model architectures are specified [type=value_error, input_value=1]\n"
    told = answer(explained(f"{traceback('', (f'{SITE}/vllm/engine/arg_utils.py', 9, 'f', 'g()'))}{refused}"))

    assert "config.json of the model" in told.splitlines()[0]
    assert "hf_overrides" in told
    assert "vllm/model_executor/models/registry.py" in told


_TRIED = traceback(
    "ModuleNotFoundError: No module named 'triton'",
    (
        f"{SITE}/xformers/__init__.py",
        55,
        "_is_triton_available",
        "from xformers.triton.softmax import softmax",
    ),
    (f"{SITE}/xformers/triton/softmax.py", 11, "<module>", "import triton"),
)


def test_a_package_that_was_only_tried_is_no_failure_of_a_run_that_trains_on(explained: Explain) -> None:
    steps = "steps:   0%| 2/3000 [08:01<200:30:00, 240.76s/it, avr_loss=0.12]\n"
    asked = _TRIED.replace("_is_triton_available", "main").replace(
        f"{SITE}/xformers/__init__.py", "/srv/a.py"
    )

    assert explained(f"{_TRIED}{steps}").code == NOTHING
    assert explained(_TRIED).code != NOTHING
    assert explained(f"{asked}{steps}").code != NOTHING


def test_a_compiler_that_triton_found_is_told_by_its_system(explained: Explain) -> None:
    ends = "'-O3', '-shared']' returned non-zero exit status 1."
    linux = explained(f"subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/tmp/x/main.c', {ends}\n")
    windows = explained(
        f"subprocess.CalledProcessError: Command '['C:\\\\MinGW\\\\gcc.EXE', 'C:\\\\T\\\\main.c', {ends}\n"
    )
    other = explained(f"subprocess.CalledProcessError: Command '['/usr/bin/gcc', '/srv/mine.c', {ends}\n")

    assert "python3-dev" in answer(linux)
    assert "triton-windows" in answer(windows)
    assert "Triton" not in answer(other)


def test_a_name_that_no_release_which_was_read_has_may_be_one_of_an_older_release(explained: Explain) -> None:
    of_models = answer(explained("ModuleNotFoundError: No module named 'diffusers.models.cross_attention'\n"))
    of_peft = answer(explained("ImportError: cannot import name 'nosuch' from 'peft'\n"))

    assert "no release of diffusers from 0.25.0 on has" in of_models
    assert "written for diffusers before 0.25.0" in of_models
    assert "before" not in of_peft.partition("✗")[0]


def test_the_names_of_diffusers_tell_where_a_module_was(explained: Explain) -> None:
    moved = answer(explained("AttributeError: module diffusers.models has no attribute unet_2d_condition\n"))
    new = answer(explained("ModuleNotFoundError: No module named 'diffusers.models.attention_dispatch'\n"))

    assert "diffusers up to 0.28.2" in moved
    assert "diffusers from 0.35.0 on" in new
