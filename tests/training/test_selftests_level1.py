"""The self-tests of level 1 on a real torch: sound code passes, and each kind of sabotage is caught by name.

No GPU is here: what is for CUDA runs with a torch that takes the CPU for one, which shows that a test asks
what it says and tells what it finds, and nothing of the hardware.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess  # noqa: TID251 - tests are users
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from envcheck.commands import selftest as selftest_command
from envcheck.commands.examine import ExamineRequest
from envcheck.core.facts import Fact, Inventory, Known
from envcheck.host.machine import Host
from envcheck.selftest import outcome as selftest_outcome
from tests.support.paths import ROOT
from tests.support.running import installed, invocation
from tests.support.stack import pip

pytestmark = pytest.mark.stack

SABOTAGE = ROOT / "tests/data/sabotage"
BITSANDBYTES = "bitsandbytes==0.50.2"

LEVEL_1 = ("driver_agreement", "kernel_results", "extension_results", "free_memory", "pinned_copies")

_ATTENTION = """
import torch

def flash_attn_func(q, k, v, causal=False):
    q, k, v = (each.transpose(1, 2) for each in (q, k, v))
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)
"""

_NMS = """
def nms(boxes, scores, threshold):
    kept = []
    for each in scores.argsort(descending=True).tolist():
        if all(overlap(boxes[each], boxes[other]) <= {threshold} for other in kept):
            kept.append(each)
    return scores.new_tensor(kept).long()

def overlap(a, b):
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    inside = max(width, 0) * max(height, 0)
    return inside / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inside)
"""


class Env:
    """A virtual environment with the stack's packages, which a test can precede with its own packages."""

    def __init__(self, folder: Path, base: str, *, stack: bool = True) -> None:
        ran = [base, "-m", "venv", "--without-pip", str(folder)]
        subprocess.run(ran, check=True, timeout=120)
        self.python = str(folder / "bin/python")
        self.site = next((folder / "lib").glob("python3*/site-packages"))
        if stack:
            self.also(site_of(base))

    def also(self, folder: str) -> None:
        """Put a folder on the path, after this environment's own packages."""
        number = len(list(self.site.glob("*.pth")))
        link = self.site.parent / f"also{number}/site-packages"  # by any other name it is no environment's
        link.parent.mkdir()
        link.symlink_to(folder)
        (self.site / f"also{number}.pth").write_text(f"{link}\n")

    def put(self, name: str, version: str, files: Mapping[str, str]) -> None:
        """Install a distribution that consists of these files."""
        record = self.site / f"{name.replace('-', '_')}-{version}.dist-info"
        record.mkdir()
        (record / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        for path, text in files.items():
            file = self.site / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    def library(self, path: str, text: str) -> None:
        """Compile C into a shared library; its undefined symbols are resolved when it is loaded."""
        source = self.site / "source.c"
        source.write_text(text)
        file = self.site / path
        file.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", str(file), str(source)], check=True, timeout=60)


def site_of(python: str) -> str:
    ran = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    return subprocess.run(ran, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


def sabotaged(folder: Path, names: Sequence[str]) -> dict[str, str]:
    """Return environment variables with which Python loads these files of tests/data/sabotage at its start."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text("".join(f"import {name}\n" for name in names))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (folder, SABOTAGE, installed())))}  # noqa: TID251


def selftest(python: str, environ: Mapping[str, str], *only: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """Run `envcheck selftest`; return its exit code and its outcomes by variant."""
    chosen = [word for name in only for word in ("--only", name)]
    ran = subprocess.run(
        invocation("selftest", "--json", "--python", python, *chosen),
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
        env={**environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert ran.stdout, ran.stderr
    return ran.returncode, {each["variant"]: each for each in json.loads(ran.stdout)["outcomes"]}


def on_cuda(
    python: str, environ: Mapping[str, str], *only: str, gpus: int = 1, **wanted: Any
) -> dict[str, selftest_outcome.Outcome]:
    """Return the outcomes by variant on a machine that pretends to have GPUs."""
    machine = Host(environ=environ)
    prepared = selftest_command.prepare(ExamineRequest(python=python), machine)
    card: dict[str, str | bool] = {"gpu.name": "Pretended GPU", "gpu.visible": True, "gpu.mig": False}
    facts = {key: Fact(key, Known(value), "said by the test") for key, value in card.items()}
    prepared = prepared._replace(
        inventory=Inventory.merged([prepared.inventory, Inventory(devices=(facts,) * gpus)])
    )
    asked = selftest_command.SelftestOptions(only=only, **wanted)
    return {each.variant.name: each for each in selftest_command.run(prepared, asked, "cuda", machine)}


@pytest.fixture(scope="module")
def bitsandbytes(stack: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Install bitsandbytes into a folder, with compiled kernels for the CPU."""
    given = os.environ.get("ENVCHECK_OVERLAYS", "")  # noqa: TID251
    kept = Path(given, BITSANDBYTES.replace("==", "-"))
    if given and kept.is_dir():
        return str(kept)
    folder = str(tmp_path_factory.mktemp("bitsandbytes"))
    pip(stack, "--no-deps", "--target", folder, BITSANDBYTES)
    return folder


# --- on the CPU ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def well(stack: str, bitsandbytes: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("well")
    env = Env(folder / "env", stack)
    env.also(bitsandbytes)
    env.put(
        "torchvision",
        "0.28.0",
        {"torchvision/__init__.py": "", "torchvision/ops.py": _NMS.format(threshold="threshold")},
    )
    env.put("flash-attn", "2.8.3", {"flash_attn/__init__.py": _ATTENTION})
    no_driver = "raise ImportError('libcuda.so.1: cannot open shared object file')\n"
    env.put("causal-conv1d", "1.5.0", {"causal_conv1d/__init__.py": no_driver})
    env.put("apex", "0.9.10", {"apex/__init__.py": ""})
    return selftest(env.python, sabotaged(folder / "none", ()), *LEVEL_1)


@pytest.mark.parametrize("variant", ["import", "fp32", "bf16", "bitsandbytes", "torchvision"])
def test_a_sound_variant_passes(well: Any, variant: str) -> None:
    code, outcomes = well
    assert outcomes[variant]["result"] == "pass", outcomes[variant]
    assert code == 0


@pytest.mark.parametrize(
    ("variant", "why"),
    [
        ("driver", "needs a GPU"),
        ("free_memory", "needs a GPU"),
        ("pinned_copies", "needs a GPU"),
        ("flash-attn", "loads; its kernels need a GPU"),
        ("causal-conv1d", "needs a GPU: libcuda.so.1: cannot open shared object file"),
        ("xformers", "not installed"),
        ("deepspeed-ops", "none was built when DeepSpeed was installed"),
        ("apex", "no compiled extensions, or is another package of that name"),
    ],
)
def test_a_skipped_variant_gives_its_reason(well: Any, variant: str, why: str) -> None:
    outcome = well[1][variant]
    assert outcome["result"] == "skip"
    assert why in outcome["why"]


def test_tolerances_are_near_the_measured_errors(well: Any) -> None:
    """A tolerance of a thousand times the measured error would let anything pass."""
    seen = well[1]["bf16"]["seen"]
    assert 0.0005 < seen["gradient of a"] < 0.015
    assert well[1]["bitsandbytes"]["seen"]["library"] == "BNBNativeLibrary"


@pytest.fixture(scope="module")
def broken(stack: str, bitsandbytes: str, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Apply seven kinds of sabotage at once, each of which must be caught by its own variant."""
    folder = tmp_path_factory.mktemp("broken")
    env = Env(folder / "env", stack)
    env.also(bitsandbytes)
    env.put("flash-attn", "2.8.3", {"flash_attn/__init__.py": "import flash_attn_2_cuda\n"})
    undefined = "extern int _ZN3c105ErrorC2E(void); int (*at_load)(void) = _ZN3c105ErrorC2E;"
    env.library("flash_attn_2_cuda.so", undefined)
    env.put(
        "xformers",
        "0.0.35",
        {
            "xformers/__init__.py": "from . import _cpp_lib\n",
            # As in xformers itself, which keeps the error and only raises it when something is called.
            "xformers/_cpp_lib.py": (
                "import os, torch\n"
                "_cpp_library_load_exception = None\n"
                "try:\n"
                "    torch.ops.load_library(os.path.join(os.path.dirname(__file__), '_C.so'))\n"
                "except OSError as error:\n"
                "    _cpp_library_load_exception = RuntimeError('xFormers was built for:\\n PyTorch 2.10')\n"
                "    _cpp_library_load_exception.__cause__ = error\n"
            ),
        },
    )
    env.library("xformers/_C.so", undefined)
    wrong = _NMS.format(threshold="0.5")
    env.put("torchvision", "0.28.0", {"torchvision/__init__.py": "", "torchvision/ops.py": wrong})
    deepspeed = Path(site_of(stack), "deepspeed")
    shutil.copytree(deepspeed, env.site / "deepspeed", ignore=shutil.ignore_patterns("__pycache__"))
    noted = "version='0.19.8'\ngit_hash=git_branch=''\ninstalled_ops={'cpu_adam': True}\naccelerator_name='cpu'\ntorch_info={'version': '2.1', 'cuda_version': '0.0'}\n"
    env.put("deepspeed", "0.19.8", {"deepspeed/git_version_info_installed.py": noted})
    names = (
        "matmul_off_by_a_little",
        "bf16_tanh_loses_bits",
        "dequantize_to_nan",
    )
    return selftest(env.python, sabotaged(folder / "mutants", names), *LEVEL_1)


@pytest.mark.parametrize(
    ("variant", "call", "why"),
    [
        ("fp32", "", "matmul, fp32 on cpu: differs by 0.0001 of its largest value, allowed 1e-05"),
        ("bf16", "", "tanh, bf16 on cpu: differs by 0.03"),
        ("bitsandbytes", "", "dequantize_blockwise: not finite"),
        ("flash-attn", "import flash_attn", "undefined symbol: _ZN3c105ErrorC2E"),
        ("xformers", "", "undefined symbol: _ZN3c105ErrorC2E"),
        ("torchvision", "", "nms kept the boxes"),
        ("deepspeed-ops", "loading cpu_adam", "PyTorch version mismatch"),
    ],
)
def test_sabotage_is_caught_by_name(broken: Any, variant: str, call: str, why: str) -> None:
    code, outcomes = broken
    assert code == 1
    assert outcomes[variant]["result"] == "fail"
    assert outcomes[variant]["call"] == call
    assert why in outcomes[variant]["why"]


def test_sabotage_of_gradients_and_of_four_bits(stack: str, bitsandbytes: str, tmp_path: Path) -> None:
    env = Env(tmp_path / "env", stack)
    env.also(bitsandbytes)
    environ = sabotaged(tmp_path / "mutants", ("gradients_doubled", "nf4_nibbles_swapped"))
    code, outcomes = selftest(env.python, environ, "fp32", "bitsandbytes")
    assert code == 1
    assert outcomes["fp32"]["why"].startswith("gradient of a, fp32 on cpu: differs by 1 of")
    assert outcomes["bitsandbytes"]["why"].startswith("quantize_4bit: ")


def test_a_torch_of_another_release_than_installed(stack: str, tmp_path: Path) -> None:
    code, outcomes = selftest(stack, sabotaged(tmp_path, ("torch_of_another_release",)), "import")
    assert code == 1
    assert outcomes["import"]["why"].startswith("torch 2.6.0+cu124 was imported, but 2.13.0")


def test_an_import_that_hangs_is_ended_at_its_deadline(stack: str, bitsandbytes: str, tmp_path: Path) -> None:
    env = Env(tmp_path / "env", stack)
    env.also(bitsandbytes)
    machine = Host(environ=sabotaged(tmp_path / "mutant", ("bitsandbytes_hangs",)))
    prepared = selftest_command.prepare(ExamineRequest(python=env.python), machine)
    # The worker's own import keeps its deadline: only the import that hangs must be late.
    wanted = selftest_command.SelftestOptions(only=("bitsandbytes",), patience=0.3)
    (outcome,) = selftest_command.run(prepared, wanted, "cpu", machine)
    assert (outcome.result, outcome.call) == (selftest_outcome.FAIL, "import bitsandbytes")
    assert outcome.why == "not finished within 27 s"
    assert "bitsandbytes_hangs.py" in outcome.place


@pytest.mark.parametrize(
    ("text", "call", "why"),
    [
        (
            "raise OSError('libcudart.so.12: cannot open shared object file')",
            "import torch",
            "OSError: libcudart.so.12",
        ),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "import torch", "was killed by SIGSEGV"),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "import torch", "was killed by SIGKILL"),
        ("import os\nos._exit(7)", "", "ended with exit status 7"),
    ],
)
def test_a_torch_that_does_not_import(stack: str, tmp_path: Path, text: str, call: str, why: str) -> None:
    env = Env(tmp_path / "env", stack, stack=False)
    env.put(
        "torch",
        "2.13.0",
        {"torch/__init__.py": text, "torch/version.py": "__version__ = '2.13.0'\ncuda = None\n"},
    )
    code, outcomes = selftest(env.python, sabotaged(tmp_path / "none", ()), "import", "fp32")
    for outcome in outcomes.values():
        assert why in outcome["why"]
        assert outcome["call"] == call
    assert code == (1 if call else 3)


# --- the CUDA path-------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cuda_env(stack: str, tmp_path_factory: pytest.TempPathFactory) -> Env:
    env = Env(tmp_path_factory.mktemp("cuda") / "env", stack)
    env.put("flash-attn", "2.8.3", {"flash_attn/__init__.py": _ATTENTION})
    return env


CUDA = ("driver", "fp32", "bf16", "pinned_copies", "free_memory", "flash-attn")


def test_the_cuda_path_passes_with_a_pretended_gpu(cuda_env: Env, tmp_path: Path) -> None:
    outcomes = on_cuda(cuda_env.python, sabotaged(tmp_path, ("pretend_gpu",)), *CUDA)
    assert {name: (each.result, each.why) for name, each in outcomes.items()} == dict.fromkeys(
        CUDA, ("pass", "")
    )
    assert outcomes["driver"].seen["driver_cuda"] == "12.4"  # older than torch's 12.8, and of its major
    assert outcomes["free_memory"].seen["memory"] == {"cuda:0": {"free_gib": 0.59, "taken": "1/2"}}


def test_the_cuda_path_catches_sabotage(cuda_env: Env, tmp_path: Path) -> None:
    mutants = (
        "pretend_gpu",
        "copies_lose_a_page",
        "memory_forgets",
        "attention_looks_ahead",
        "no_kernel_image",
    )
    outcomes = on_cuda(cuda_env.python, sabotaged(tmp_path, mutants), *CUDA)
    assert (
        "512 of 4194304 numbers came back wrong, first number 4096: -1, expected 4097"
        in outcomes["pinned_copies"].why
    )
    assert "piece 0 of 2: holds 0 … 1, not 0" in outcomes["free_memory"].why
    assert outcomes["fp32"].why.startswith("RuntimeError: CUDA error: no kernel image is available")
    assert outcomes["fp32"].call == "matmul, fp32 on cuda:0"
    assert outcomes["fp32"].result == selftest_outcome.FAIL  # torch's error, raised in the test's own line
    assert outcomes["flash-attn"].result == selftest_outcome.FAIL


def test_memory_that_cannot_be_had_and_an_attention_that_looks_ahead(cuda_env: Env, tmp_path: Path) -> None:
    mutants = ("pretend_gpu", "memory_promised_twice", "attention_looks_ahead")
    outcomes = on_cuda(cuda_env.python, sabotaged(tmp_path, mutants), "free_memory", "flash-attn", gpus=2)
    assert outcomes["free_memory"].why.startswith(
        "cuda:0 calls 0.6 GiB free; it gave 0.2 GiB: CUDA out of memory"
    )
    assert outcomes["flash-attn"].why.startswith("flash_attn_func, forward: differs by")


_DRIVERS: dict[str, tuple[dict[str, Any], str]] = {
    "an older CUDA": (
        {"_cuda_getDriverVersion": 12080},
        "torch is built for CUDA 13.0, this driver speaks CUDA 12.8 at most",
    ),
    "no driver": ({"_cuda_getDriverVersion": 0}, "torch is built for CUDA 13.0 and finds no NVIDIA driver"),
    "not available": ({"available": False}, "RuntimeError: Unexpected error from cudaGetDeviceCount(): 802"),
    "one lost": ({"_cuda_getDeviceCount": 1}, "torch counts 2 GPUs by NVML, and CUDA opens 1"),
    "one hidden": ({"count": 1, "_cuda_getDeviceCount": 1}, "the driver shows 2 GPUs, and CUDA opens 1"),
    "a build without CUDA": ({"cuda": None}, "is a build without CUDA"),
    "well": ({}, ""),
}


@pytest.mark.parametrize("case", list(_DRIVERS))
def test_a_driver_that_disagrees(stack: str, tmp_path: Path, case: str) -> None:
    changes, why = _DRIVERS[case]
    said = {
        "cuda": "13.0",
        "available": True,
        "count": 2,
        "_cuda_getDriverVersion": 13000,
        "_cuda_getDeviceCount": 2,
        **changes,
    }
    text = f"""
import types
said = {said!r}
__version__ = "2.13.0"
version = types.SimpleNamespace(cuda=said["cuda"])
_C = types.SimpleNamespace(_cuda_getDriverVersion=lambda: said["_cuda_getDriverVersion"], _cuda_getDeviceCount=lambda: said["_cuda_getDeviceCount"])

def init():
    if not said["available"]:
        raise RuntimeError("Unexpected error from cudaGetDeviceCount(): 802: system not yet initialized")

cuda = types.SimpleNamespace(init=init, is_available=lambda: said["available"], device_count=lambda: said["count"], get_device_name=lambda each: "Pretended GPU")
"""
    env = Env(tmp_path / "env", stack, stack=False)
    env.put(
        "torch",
        "2.13.0",
        {"torch/__init__.py": text, "torch/version.py": "__version__ = '2.13.0'\ncuda = '13.0'\n"},
    )
    outcome = on_cuda(env.python, sabotaged(tmp_path / "none", ()), "driver", gpus=2)["driver"]
    assert outcome.result == ("fail" if why else "pass"), outcome
    assert why in outcome.why
