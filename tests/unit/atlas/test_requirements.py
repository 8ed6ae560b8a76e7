"""What a release requires: one spelling for equal requirements, extras apart."""

import pytest

from envcheck.atlas.requirements import canonical, extra_requirements, installation_requirements
from tests.unit.atlas.releases import release


def test_requirements_of_extras_are_kept_apart() -> None:
    peft = release(
        "peft",
        "0.14.0",
        (
            "torch>=1.13",
            "numpy>=1.17",
            'pytest; extra == "test"',
            "ruff ; python_version<'3.9' and extra == 'q_a'",
        ),
    )
    assert installation_requirements(peft) == ("numpy>=1.17", "torch>=1.13")
    assert extra_requirements(peft) == {
        "q-a": ('ruff; python_version < "3.9" and extra == "q-a"',),
        "test": ('pytest; extra == "test"',),
    }


def test_markers_stay() -> None:
    torch = release("torch", "2.6.0", ("triton==3.2.0 ; platform_system == 'Linux'",))
    assert installation_requirements(torch) == ('triton==3.2.0; platform_system == "Linux"',)


@pytest.mark.parametrize(
    ("published", "read"),
    [
        ("huggingface-hub (<1.0,>=0.23.2)", "huggingface-hub<1.0,>=0.23.2"),
        ("Huggingface_Hub >=0.23.2, <1.0", "huggingface-hub<1.0,>=0.23.2"),
        ("torch (>=1.9.*)", "torch>=1.9"),
        ("numpy==1.26.*", "numpy==1.26.*"),
        ("torch==2.6.0+cu124; python_version >= '3.9'", 'torch==2.6.0; python_version >= "3.9"'),
        ("torch!=2.0.0+cu117,>=1.13", "torch!=2.0.0,>=1.13"),
        ("not a requirement at all", "not a requirement at all"),
    ],
)
def test_one_spelling(published: str, read: str) -> None:
    assert canonical(published) == read
