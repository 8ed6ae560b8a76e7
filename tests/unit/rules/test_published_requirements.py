"""A list of versions is judged by the requirements that its releases were published with."""

import pytest

from envcheck.commands.examine import report_on
from envcheck.commands.loading import knowledge
from envcheck.commands.published_requirements import with_published_requirements
from envcheck.core.facts import Fact, Inventory, Known, package_key
from envcheck.core.findings import Report
from envcheck.core.rules import Severity
from tests.support.worlds import inventory


def judged(facts: str) -> Report:
    return report_on("facts.toml", inventory(facts), knowledge(), None)


def violated(report: Report) -> dict[str, str]:
    return {
        finding.rule.id: finding.rule.title
        for finding in report.judgement.findings
        if finding.rule.group == "requires-dist"
    }


@pytest.mark.parametrize(
    ("trl", "transformers", "expected"),
    [
        ("0.12.2", "4.46.3", {}),
        (
            "0.12.2",
            "4.47.0",
            {"requires-dist:trl:transformers": "trl asks for transformers<4.47.0 in its own metadata"},
        ),
        ("0.12.2.dev0", "4.47.0", {}),  # a release that nobody published
    ],
)
def test_a_list_is_held_to_published_requirements(
    trl: str, transformers: str, expected: dict[str, str]
) -> None:
    report = judged(f'[pkg]\ntrl = "{trl}"\ntransformers = "{transformers}"\n')

    assert violated(report) == expected


def test_requirements_on_packages_that_are_not_listed_are_not_missed() -> None:
    facts = '[pkg]\npeft = "0.18.1"\nnumpy = "2.1.0"\n'

    assert with_published_requirements(inventory(facts)).known("pkg.peft.requires") == ("numpy>=1.17",)
    assert violated(judged(facts)) == {}


@pytest.mark.parametrize(
    ("python", "numpy", "asked"),
    [
        ("3.11.4", "1.22.4", ">=1.23.2"),
        ("3.10.6", "1.22.4", None),
        (None, "1.22.4", None),  # right for 3.10, wrong for 3.11
        (None, "1.17.5", ">=1.23.2"),  # wrong for every Python
    ],
)
def test_what_depends_on_a_python_that_is_not_known_is_told_only_if_it_is_wrong_for_all(
    python: str | None, numpy: str, asked: str | None
) -> None:
    machine = f'python = {{ version = "{python}" }}\n' if python else ""
    report = judged(f'{machine}[pkg]\npandas = "1.5.3"\nnumpy = "{numpy}"\n')

    title = f"pandas asks for numpy{asked} in its own metadata"
    assert violated(report) == ({"requires-dist:pandas:numpy": title} if asked else {})


@pytest.mark.parametrize(("scipy", "told"), [("1.13.1", False), ("1.16.0", True)])
def test_only_the_pythons_that_all_releases_admit_are_possible(scipy: str, *, told: bool) -> None:
    facts = f'[pkg]\nscipy = "{scipy}"\npandas = "2.1.2"\nnumpy = "1.22.4"\n'

    # pandas 2.1.2 admits this NumPy below Python 3.11, which SciPy 1.16 requires
    assert ("requires-dist:pandas:numpy" in violated(judged(facts))) is told


def test_a_list_with_all_libraries_of_another_cuda_is_for_another_build() -> None:
    libraries = 'nvidia-cublas-cu12 = "12.8.3.14"\nnvidia-cuda-runtime-cu12 = "12.8.57"\n'
    facts = f'[pkg]\ntorch = "2.7.0"\n{libraries}nvidia-cuda-nvrtc-cu12 = "12.8.61"\n'

    assert violated(judged(facts)) == {}
    assert len(violated(judged(facts.replace("12.8.61", "12.6.77")))) == len(("cublas", "runtime"))


@pytest.mark.parametrize(("torch", "violated_here"), [("2.9.0", True), ("2.9.0+cu129", False)])
def test_a_build_for_another_cuda_is_not_held_to_the_public_build_s_cuda_libraries(
    torch: str, violated_here: bool
) -> None:
    facts = f'[pkg]\ntorch = "{torch}"\nnvidia-cublas-cu12 = "12.9.1.4"\nsetuptools = "80.9.0"\n'

    assert ("requires-dist:torch:nvidia-cublas-cu12" in violated(judged(facts))) is violated_here


@pytest.mark.parametrize(("torch", "violated_here"), [("2.6.0+cu126", True), ("2.6.0+rocm6.2.4", False)])
def test_a_build_without_cuda_is_not_held_to_triton(torch: str, violated_here: bool) -> None:
    facts = f'[pkg]\ntorch = "{torch}"\ntriton = "3.1.0"\n'

    assert ("requires-dist:torch:triton" in violated(judged(facts))) is violated_here


def with_metadata(facts: str, package: str, line: str) -> Inventory:
    return inventory(facts).with_facts([Fact(package_key(package, "requires"), Known((line,)), "METADATA")])


def test_an_environment_keeps_the_metadata_that_is_installed() -> None:
    read = with_metadata('[pkg]\ntrl = "0.12.2"\ntransformers = "4.47.0"\n', "trl", "transformers<5")

    assert with_published_requirements(read) is read


def test_a_run_of_the_same_two_releases_is_named_beside_the_violation() -> None:
    cell = next(cell for cell in knowledge().cells if cell.outcome == "ok" and "peft" in cell.pkg)
    pins = "[pkg]\n" + "".join(f'{name} = "{version}"\n' for name, version in cell.pkg.items())

    report = report_on("env", with_metadata(pins, "peft", "transformers<1"), knowledge(), None)

    (finding,) = (each for each in report.judgement.findings if each.rule.group == "requires-dist")
    assert finding.rule.id == "requires-dist:peft:transformers"
    assert finding.note.startswith("these two trained together nevertheless: ")


@pytest.mark.parametrize(
    ("optimum", "titles"),
    [
        (
            "1.18.0",
            [
                "no release of transformers meets what axolotl 0.11.0 (==4.53.1) and "  # noqa: ISC004
                "optimum 1.18.0 (<4.40.0,>=4.26.0) require"
            ],
        ),
        ("1.26.1", []),
    ],
)
def test_a_package_of_which_no_release_serves_both_is_named(optimum: str, titles: list[str]) -> None:
    report = judged(f'[pkg]\naxolotl = "0.11.0"\noptimum = "{optimum}"\n')

    found = [each.rule.title for each in report.judgement.findings if each.rule.group == "no-release"]
    assert found == titles


def warned(report: Report) -> dict[str, str]:
    return {
        each.rule.id: each.note for each in report.judgement.findings if each.severity is Severity.WARNING
    }


def test_what_an_exact_pin_brings_is_judged_as_a_warning_that_names_the_pin() -> None:
    report = judged('[pkg]\ntorch = "2.6.0"\nbitsandbytes = "0.43.3"\n')

    assert warned(report)["bitsandbytes-triton-ops"].startswith("torch 2.6.0 requires triton==3.2.0")
    assert not any(each.severity is Severity.ERROR for each in report.judgement.findings)


@pytest.mark.parametrize(
    "facts",
    [
        '[pkg]\ntorch = "2.6.0"\nbitsandbytes = "0.45.5"\n',  # does without triton.ops
        '[pkg]\ntorch = "2.5.1"\nbitsandbytes = "0.43.3"\n',  # pins triton 3.1.0
        '[pkg]\ntorch = "2.6.0"\ntriton = "3.1.0"\nbitsandbytes = "0.43.3"\n',  # another one was given
        '[pkg]\ntorch = "2.6.0+cpu"\nbitsandbytes = "0.43.3"\n',  # brings no triton
        '[host]\nos = "windows"\n[pkg]\ntorch = "2.6.0"\nbitsandbytes = "0.43.3"\n',  # there is none
        'complete = ["pkg"]\n[pkg]\ntorch = "2.6.0"\nbitsandbytes = "0.43.3"\n',  # triton is not installed
    ],
)
def test_where_the_pin_brings_nothing_else_nothing_is_said(facts: str) -> None:
    assert "bitsandbytes-triton-ops" not in warned(judged(facts))


def test_the_torch_that_vllm_pins_is_held_against_the_machine() -> None:
    report = judged('[driver]\nversion = "535.104.05"\n[pkg]\nvllm = "0.24.0"\n')

    assert "vllm 0.24.0 requires torch==" in warned(report)["driver-below-cuda-family-floor"]
