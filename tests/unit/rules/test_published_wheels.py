"""What published wheels say of packages that are listed, not installed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import pytest

from envcheck.commands import loading
from envcheck.core.facts import Absent, Known, Reading, Unknown
from envcheck.core.rules import Matrix
from envcheck.knowledge.load import build_matrix
from tests.support.worlds import inventory, vocabulary

BUILDS: Mapping[tuple[str, str], Mapping[str, tuple[str, ...]]] = {
    ("vllm", "0.12.0"): {
        "wheel": ("aarch64 glibc>=2.31 python abi3>=3.8", "x86_64 glibc>=2.31 python abi3>=3.8"),
        "gpu": ("sm_75 sm_80 sm_90 compute_90",),
    },
    ("xformers", "0.0.28"): {"wheel": ("x86_64 glibc>=2.28 python 3.8 3.9 3.13t",), "gpu": ("sm_70 sm_80",)},
    ("protobuf", "4.25.0"): {"wheel": ("x86_64 glibc>=2.17 python abi3>=3.7", "any")},
    ("tagged-low", "1.0"): {"wheel": ("x86_64 glibc>=2.5 python any",), "needs-glibc": ("2.34",)},
    ("older-too", "1.0"): {"wheel": ("x86_64 glibc>=2.17 python 3.8", "x86_64 glibc>=2.28 python 3.11")},
    ("pypy-too", "1.0"): {"wheel": ("x86_64 glibc>=2.17 python any 3.10 3.11",)},
    ("promises-nothing", "1.0"): {"wheel": ("x86_64 glibc>=any python 3.11",)},
    ("pure", "1.0"): {},
}


@lru_cache(maxsize=1)
def matrix() -> Matrix:
    shipped = build_matrix(loading.source_tree(), vocabulary())
    return shipped._replace(builds=lambda package, version: BUILDS.get((package, version)))


def without_wheel(packages: str, python: str = "3.11.9", host: str = 'glibc = "2.28"') -> Reading:
    facts = f'[python]\nversion = "{python}"\n[host]\n{host}\n[pkg]\n{packages}\n'
    return inventory(facts, matrix()).reading("packages.without_wheel")


@pytest.mark.parametrize(
    ("packages", "python", "host", "reason"),
    [
        ('vllm = "0.12.0"', "3.11.9", 'glibc = "2.28"', "vllm 0.12.0 (glibc 2.31)"),
        ('vllm = "0.12.0"', "3.11.9", 'glibc = "2.28"\narch = "aarch64"', "vllm 0.12.0 (glibc 2.31)"),
        ('xformers = "0.0.28"', "3.13.1", 'glibc = "2.35"', "xformers 0.0.28 (for Python 3.8, 3.9, 3.13t)"),
        ('xformers = "0.0.28"', "3.9.1", 'glibc = "2.17"', "xformers 0.0.28 (glibc 2.28)"),
        ('tagged-low = "1.0"', "3.11.9", 'glibc = "2.31"', "tagged-low 1.0 (glibc 2.34)"),
        ('tagged-low = "1.0+cu129"', "3.11.9", 'glibc = "2.31"', "tagged-low 1.0+cu129 (glibc 2.34)"),
        ('older-too = "1.0"', "3.11.9", 'glibc = "2.17"', "older-too 1.0 (glibc 2.28)"),
        ('pypy-too = "1.0"', "3.13.1", 'glibc = "2.35"', "pypy-too 1.0 (for Python 3.10, 3.11)"),
    ],
)
def test_a_package_of_which_no_wheel_fits_is_named_with_the_reason(
    packages: str, python: str, host: str, reason: str
) -> None:
    assert without_wheel(packages, python, host) == Known((reason,))


@pytest.mark.parametrize(
    ("packages", "python", "host"),
    [
        ('vllm = "0.12.0"', "3.12.1", 'glibc = "2.31"'),
        ('vllm = "0.12.0"', "3.12.1", 'arch = "x86_64"'),  # the C library is not known
        ('vllm = "0.12.0"', "3.12.1", 'glibc = "2.17"\nos = "darwin"'),
        ('vllm = "0.12.0"', "3.12.1", 'glibc = "2.17"\narch = "ppc64le"'),
        ('vllm = "0.12.0+cu118"', "3.12.1", 'glibc = "2.17"'),  # a build from elsewhere
        ('tagged-low = "1.0+git1234"', "3.11.9", 'glibc = "2.31"'),  # compiled by somebody
        ('vllm = "9.9"', "3.12.1", 'glibc = "2.17"'),
        ('xformers = "0.0.28"', "3.13.1", 'glibc = "2.28"\narch = "aarch64"'),  # no wheels for it at all
        ('protobuf = "4.25.0"', "3.6.1", 'glibc = "2.5"'),
        ('promises-nothing = "1.0"', "3.11.9", 'glibc = "2.5"'),
        ('pure = "1.0"', "3.11.9", 'glibc = "2.5"'),
        ('older-too = "1.0"', "3.8.9", 'glibc = "2.17"'),
        ('torch = "2.8.0"', "3.11.9", 'glibc = "2.17"'),  # has rules of its own
        ('vllm = "0.12.0"\n[packages]\nfrom_conda = ["vllm"]', "3.12.1", 'glibc = "2.17"'),
    ],
)
def test_a_package_that_fits_or_of_which_nothing_is_known_is_not_named(
    packages: str, python: str, host: str
) -> None:
    assert without_wheel(packages, python, host) == Absent()


def test_what_is_installed_is_there_whatever_was_published() -> None:
    facts = '[host]\nglibc = "2.28"\n[pkg]\nvllm = "0.12.0"\n"vllm.requires" = ["torch==2.9.0"]\n'
    assert isinstance(inventory(facts, matrix()).reading("packages.without_wheel"), Unknown)


@pytest.mark.parametrize(
    ("gpu", "package", "without"),
    [
        ("Tesla V100-SXM2-32GB", 'vllm = "0.12.0"', Known(("vllm (sm_75, sm_80, sm_90, compute_90)",))),
        ("Tesla V100-SXM2-32GB", 'vllm = "0.12.0+cu129"', Absent()),  # another wheel, with other code
        ("Tesla T4", 'vllm = "0.12.0"', Absent()),
        ("NVIDIA B200", 'vllm = "0.12.0"', Absent()),  # compiled from PTX
        ("NVIDIA H100 80GB HBM3", 'xformers = "0.0.28"', Known(("xformers (sm_70, sm_80)",))),
        ("NVIDIA A100-SXM4-80GB", 'xformers = "0.0.28"', Absent()),
    ],
)
def test_gpu_code_of_a_listed_package_is_that_of_its_published_wheel(
    gpu: str, package: str, without: Reading
) -> None:
    facts = f'[pkg]\n{package}\n[[gpu]]\nname = "{gpu}"\n'
    assert inventory(facts, matrix()).reading("gpu.packages_without_code", 0) == without


def test_the_code_of_installed_files_beats_the_published_one() -> None:
    facts = (
        '[pkg]\nvllm = "0.12.0"\n"vllm.architectures" = ["sm_70"]\n[[gpu]]\nname = "Tesla V100-SXM2-32GB"\n'
    )
    assert inventory(facts, matrix()).reading("gpu.packages_without_code", 0) == Absent()
