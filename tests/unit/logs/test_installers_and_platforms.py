"""What is said of installers, and of logs of systems and accelerators other than NVIDIA's."""

from __future__ import annotations

import pytest

from tests.support.logs import SITE, Explain, answer, cause_of, traceback


def test_the_release_that_failed_is_not_advised_for_a_wheel_of_the_old_abi(explained: Explain) -> None:
    said = f"ImportError: {SITE}/flash_attn_2_cuda.cpython-310-x86_64-linux-gnu.so: undefined symbol: "

    old = explained(f"{said}_ZN3c105ErrorC2ENS_14SourceLocationESs\n")
    new = explained(
        f"{said}_ZN3c105ErrorC2ENS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE\n"
    )

    assert "==2.7.4.post1" not in answer(old)
    assert "==2.7.4.post1" in answer(new)


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
            "Failed: OSError: [Errno 13] Permission denied: '/usr/lib/x'",
        ),
    ],
)
def test_the_headline_of_an_installers_failure_is_what_it_could_not_meet(
    explained: Explain, log: str, headline: str
) -> None:
    assert answer(explained(log)).splitlines()[0] == headline


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


def test_the_headline_names_two_requirements_that_exclude_each_other(explained: Explain) -> None:
    said = (
        "ERROR: Cannot install timm==0.6.13, xformers==0.0.20 and torch==2.0.0 because these package versions have "
        "conflicting dependencies.\n\nThe conflict is caused by:\n    The user requested torch==2.0.0\n"
        "    timm 0.6.13 depends on torch>=1.7\n    peft 0.2.0 depends on torch>=1.13.0\n"
        "    xformers 0.0.20 depends on torch==2.0.1\n"
    )

    found = answer(explained(said))
    both = answer(explained(said.replace("torch==2.0.1", "torch>=1.12")))

    assert found.startswith("Failed: xformers 0.0.20 requires torch==2.0.1; asked for: torch==2.0.0\n")
    assert both.startswith("Failed: timm 0.6.13 requires torch>=1.7")  # what excludes what is not in the text


def test_a_build_whose_nvcc_cannot_run_is_told_so(explained: Explain) -> None:
    box = (
        "  error: subprocess-exited-with-error\n\n  x python setup.py egg_info did not run successfully.\n"
        "  ╰─> [18 lines of output]\n      Traceback (most recent call last):\n"
        '        File "/home/me/env/lib/python3.8/subprocess.py", line 516, in run\n'
        "          raise CalledProcessError(retcode, process.args,\n"
        "      subprocess.CalledProcessError: Command '{}' returned non-zero exit status 255.\n"
        "      [end of output]\n"
    )

    found = explained(box.format("['/home/me/cuda-11.7/bin/nvcc', '-V']"))
    other = explained(box.format("['ninja', '-v']"))

    assert cause_of(found).kind == "setting"
    assert "the nvcc that a build asks for its release was found, but could not run" in answer(found)
    assert "the nvcc that" not in answer(other)


def test_a_rank_of_ascend_that_waited_in_vain_is_not_the_cause(explained: Explain) -> None:
    raised = traceback(
        "RuntimeError: InnerRunOpApi:torch_npu/csrc/framework/OpParamMaker.cpp:281 OPS function error: "
        "HcclAllreduce, error code is 6",
        (
            f"{SITE}/torch/distributed/distributed_c10d.py",
            2501,
            "all_reduce",
            "work = group.allreduce([tensor])",
        ),
    )
    below = "[ERROR] 2025-04-08-18:07:20 (PID:12, Device:1, RankID:1) ERR01100 OPS call acl api failed.\n"
    waited = "EI0006: [PID: 12] 2025-04-08-18:07:20.444.436 Getting socket times out. Reason: Remote Rank did not send\n"

    found = explained(raised + below + waited)
    alone = explained(raised + below)

    assert found.diagnosis.cause is None
    assert "Look for the first error of the other ranks" in answer(found)
    assert cause_of(alone).kind == "unknown"


def test_mlx_on_a_cpu_is_told_what_it_lacks(explained: Explain) -> None:
    said = "libc++abi: terminating due to uncaught exception of type std::runtime_error: "

    known = explained(f"{said}[Matmul::eval_cpu] Currently only supports float32.\n")
    other = explained(f"{said}[metal::load] no such file\n")

    assert cause_of(known).kind == "hardware"
    assert cause_of(other).kind == "crash"
    assert "what():" not in answer(other)  # which only the other C++ library prints


def test_builds_that_conda_does_not_have_are_not_called_a_clash(explained: Explain) -> None:
    head = "LibMambaUnsatisfiableError: Encountered problems while solving:\n  - "

    builds = answer(explained(f"{head}nothing provides requested zstd ==1.5.5 hc292b87_0\n"))
    names = answer(explained(f"{head}nothing provides requested pytorch::torchaudio\n"))
    clash = answer(
        explained(f"{head}package a-1-0 requires b 2, but none of the providers can be installed\n")
    )

    assert "exact builds" in builds
    assert "no channel that was asked" in names
    assert "exclude each other" in clash


def test_a_file_that_a_build_could_not_fetch_is_why_it_failed(explained: Explain) -> None:
    log = (
        "      Guessing wheel URL:  https://github.com/Dao-AILab/flash-attention/releases/download/x.whl\n"
        "      error: {}\n"
        "      [end of output]\n"
        "  ERROR: Failed building wheel for flash-attn\n"
    )

    cut = answer(explained(log.format("<urlopen error [Errno 104] Connection reset by peer>")))
    other = answer(explained(log.format("command '/usr/bin/gcc' failed with exit code 1")))

    assert cut.startswith("Failed: error: <urlopen error [Errno 104]")
    assert "could not be downloaded" in cut
    assert "could not be downloaded" not in other


_OF_PIP = (
    "ERROR: Cannot install -r requirements.txt (line 2) and torch==2.1.0 because these package versions have "
    "conflicting dependencies.\n\nThe conflict is caused by:\n"
    "    The user requested torch==2.1.0\n    torchvision 0.16.0 depends on torch==2.1.0\n"
    "    xformers 0.0.26.post1 depends on torch==2.3.0\n\n"
    "ERROR: ResolutionImpossible: for help visit https://pip.pypa.io/en/latest/topics/\n"
)


def test_a_clash_is_answered_with_the_releases_that_end_it(explained: Explain) -> None:
    found = explained(_OF_PIP)
    of_strangers = explained(_OF_PIP.replace("xformers", "acme-attention"))

    assert "fits    xformers 0.0.22.post7, which accepts torch 2.1.0" in answer(found)
    assert "torchvision 0.18.0" not in answer(found)  # the user's own pin stays
    assert "fits    " not in answer(of_strangers)
    assert "ResolutionImpossible" not in answer(found)


def test_a_moved_package_is_answered_with_the_release_that_all_accept(explained: Explain) -> None:
    head = "ERROR: pip's dependency resolver does not currently take into account all the packages that are "
    log = (
        f"{head}installed. This behaviour is the source of the following dependency conflicts.\n"
        "tensordict 0.5.0 requires torch>=2.4.0, but you have torch 2.2.0 which is incompatible.\n"
        "vllm 0.6.3 requires torch==2.4.0, but you have torch 2.2.0 which is incompatible.\n"
    )
    none = log.replace("torch>=2.4.0", "torch<2.4")

    assert "fits    torch 2.4.0, which tensordict 0.5.0, vllm 0.6.3 accept" in answer(explained(log))
    assert "fits    torch" not in answer(explained(none))
