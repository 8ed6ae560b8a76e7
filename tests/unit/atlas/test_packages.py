"""The list of packages of the atlas, and which of their files are kept."""

import pytest

from envcheck.atlas.packages import AtlasPackage, read_packages
from envcheck.commands.harvest import atlas_packages
from envcheck.core.errors import InputError

TORCH = AtlasPackage(
    name="torch", imports=("torch", "functorch"), also=("torch/build.json",), sdist=("setup.py",)
)


@pytest.mark.parametrize(
    "path",
    [
        "torch/__init__.py",
        "torch/_C/__init__.pyi",
        "functorch/_src/vmap.py",
        "torch/testing/__init__.py",
        "torch/build.json",
        "torch-2.6.0.dist-info/METADATA",
        "torch-2.6.0.dist-info/WHEEL",
    ],
)
def test_python_stubs_metadata_and_named_files_are_kept(path: str) -> None:
    assert TORCH.keeps(path)


@pytest.mark.parametrize(
    "path",
    [
        "torch/testing/_internal/common_utils.py",
        "torch/utils/tests/test_x.py",
        "torch/lib/libtorch.so",
        "caffe2/__init__.py",
        "torch-2.6.0.dist-info/RECORD",
        "setup.py",
    ],
)
def test_tests_binaries_and_other_packages_are_not_kept(path: str) -> None:
    assert not TORCH.keeps(path)


def test_files_of_a_source_distribution_are_kept_only_there() -> None:
    assert TORCH.keeps("setup.py", from_sdist=True)


def test_the_shipped_list_names_the_stack_with_its_import_names() -> None:
    packages = atlas_packages()
    assert packages["huggingface-hub"].imports == ("huggingface_hub",)
    assert packages["torch"].since == "2021-03-01"
    assert packages["peft"].since == "2022-01-01"
    assert len(packages) > 50


def test_an_import_that_goes_on_without_compiled_modules_is_not_what_fails() -> None:
    packages = atlas_packages()
    assert packages["torchvision"].binary_entry("0.16.2") == "torchvision.ops.nms(...)"
    assert packages["torchvision"].binary_entry("0.17.0") == "import torchvision"
    assert packages["xformers"].binary_entry("0.0.33").startswith("xformers.ops.")
    assert packages["torchaudio"].binary_entry("0.9.0") == "import torchaudio"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = ", "not TOML"),
        ("x = 1", "expected tables [package.NAME]"),
        ("[package.a]\nimport = ['a']", "package.a: expected a table of also, built_for_installed_torch, "),
        ("[package.a]\nimports = 'a'", "package.a.imports: expected a list of texts"),
        ("[package.a]\nimports = []", "package.a.imports: expected at least one"),
        ("[package.A_b]\nimports = ['a']", "expected a normalised name"),
        ("[package.a]\nimports = ['a']\nsince = 'May'", "package.a.since: expected a date"),
    ],
)
def test_a_mistake_in_the_list_is_one_line_with_its_place(text: str, said: str) -> None:
    with pytest.raises(InputError) as raised:
        read_packages(text, "packages.toml")
    assert str(raised.value).startswith("packages.toml")
    assert said in str(raised.value)
    assert "\n" not in str(raised.value)
