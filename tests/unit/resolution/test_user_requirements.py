"""Requirements files and options that require packages: read as pip reads them, refused with their line."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from envcheck.core.errors import InputError
from envcheck.core.facts import Absent, Known, Unknown
from envcheck.core.rules import UserRequirement
from envcheck.lock.model import Artifact, Pin
from envcheck.resolution import user_requirements

HERE = ("3.11", "linux-x86_64")


def read(text: str, **others: str) -> tuple[user_requirements.RequirementWithExtras, ...]:
    files: Mapping[str, str] = {"my.in": text, **{f"{name}.in": other for name, other in others.items()}}

    def text_of(file: str, named_in: str) -> tuple[str, str]:
        del named_in
        if file not in files:
            raise InputError(file, "no such file or directory")
        return file, files[file]

    return user_requirements.read_requirements_file("my.in", text_of, *HERE)


def test_a_file_is_read_as_pip_reads_it() -> None:
    text = (
        "\ufeff# a comment\r\n"
        "Trl>=0.20  # why\r\n"
        "\r\n"
        "numpy \\\r\n"
        "  <2.1,>=1.26\r\n"
        "flash_attn[x,A] ; python_version >= '3.11'\r\n"
        "pywin32; sys_platform == 'win32'\r\n"
        "-r more.in\r\n"
        "-cbounds.in\r\n"
    )
    found = read(text, more="--constraint=bounds.in\nrich", bounds="pydantic<2.12\n")
    assert [(each.requirement, each.bare.origin, each.bare.wanted) for each in found] == [
        ("trl>=0.20", "my.in:2", True),
        ("numpy<2.1,>=1.26", "my.in:4", True),
        ("flash-attn[a,x]", "my.in:6", True),
        ("pydantic<2.12", "bounds.in:1", False),
        ("rich", "more.in:2", True),
        ("pydantic<2.12", "bounds.in:1", False),
    ]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("torch>=", "expected name>=version"),
        ("torch>=2 <3 >", "expected name>=version"),
        ("torch=2", "expected name>=version"),
        ("!!", "expected name>=version"),
        ("~/x", "direct reference"),
        ("--pre", "the option --pre"),
        ("torch==2 --hash=sha256:00", "the option --hash"),
        ("-r https://user:canary@host.example/r.txt", "found a URL"),
        ("-r gone.in", "gone.in: no such file"),
        ("-r my.in", "my.in names this file again"),
        ("-r other.in", "my.in names this file again"),
        ("torch>=${VERSION}", "expected name>=version"),
        ("a\0b", "not a text file"),
        ("caf\ufffd", "not a text file"),
    ],
)
def test_a_line_that_cannot_be_locked_is_named_and_not_repeated(line: str, why: str) -> None:
    with pytest.raises(InputError, match=why) as caught:
        read(f"rich\n\n{line}\n", other="-r my.in\n")
    said = str(caught.value)
    assert said.startswith(("my.in:3: ", "my.in:3:1: ", "other.in:1:1: ", "my.in: not a text"))
    assert "canary" not in said
    assert "\n" not in said


@pytest.mark.parametrize(
    ("line", "option"),
    [
        ("--index-url https://user:canary@host.example/simple", "--index-url"),
        ("--extra-index-url=https://user:canary@host.example/simple", "--extra-index-url"),
        ("-f /srv/canary", "-f"),
    ],
)
def test_an_option_that_names_an_index_is_reported_and_not_applied(line: str, option: str) -> None:
    (named,) = (each for each in read(f"rich\n{line}\n") if each.by_address)
    (note,) = user_requirements.describe_by_address([named], ["rich"])
    assert note.startswith(f"my.in:2: {option} is passed over")
    assert "canary" not in note


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("-e .", ""),
        ("--editable ./here", ""),
        ("-e git+https://user:canary@host.example/x.git", "x"),
        ("git+https://user:canary@host.example/x#egg=The_Name", "the-name"),
        ("https://user:canary@host.example/some_x-1-py3-none-any.whl", "some-x"),
        ("X @ https://user:canary@host.example/x.whl", "x"),
        ("x[a, b] @ file:///srv/x.whl", "x"),
        ("./wheels/x-1.0-py3-none-any.whl", "x"),
        ("x-1.0.tar.gz", ""),
        ("../x", ""),
        (".", ""),
        ("/srv/x", ""),
    ],
)
def test_an_address_is_kept_with_its_line_and_not_repeated(line: str, name: str) -> None:
    (release, address) = read(f"rich\n\n{line}\n")
    assert (release.requirement, release.by_address) == ("rich", False)
    assert address.by_address
    assert address.bare == UserRequirement(name, "", "my.in:3", wanted=False)
    (note,) = user_requirements.describe_by_address([address], ["x", "rich"])
    assert note.startswith("my.in:3: ")
    assert ("it replaces" in note) == (name == "x")
    assert "canary" not in note


def test_files_that_include_each_other_endlessly_are_refused() -> None:
    def endless(file: str, named_in: str) -> tuple[str, str]:
        return f"{named_in}x{file}", "-r a"

    with pytest.raises(InputError, match="more than 20 deep"):
        user_requirements.read_requirements_file("a", endless, *HERE)


def test_a_file_that_ends_in_a_backslash_is_incomplete() -> None:
    with pytest.raises(InputError, match=r"my\.in:2:1: the file ends within an entry"):
        read("rich\ntorch \\")


@pytest.mark.parametrize(
    ("requirement", "version", "unmet"),
    [
        (UserRequirement("torch", ">=2.5", "--with"), "2.6.0", ""),
        (UserRequirement("torch", ">=2.7", "--with"), "2.6.0", "has torch 2.6.0, --with asks for torch>=2.7"),
        (UserRequirement("torch", "", "--with"), "2.6.0", ""),
        (UserRequirement("torch", ">=2.7", "--with"), None, "lacks torch (--with)"),
        (UserRequirement("torch", ">=2.7", "b.in:1", wanted=False), None, ""),
    ],
)
def test_unmet_requirements_are_listed(requirement: UserRequirement, version: str | None, unmet: str) -> None:
    pins = [Pin("torch", version, (Artifact("", "a" * 64),))] if version else []
    assert user_requirements.unmet_requirements([requirement], [], pins) == ([unmet] if unmet else [])


def test_a_lock_never_satisfies_extras() -> None:
    pins = [Pin("trl", "1.0", (Artifact("", "a" * 64),))]
    assert user_requirements.unmet_requirements(
        [UserRequirement("trl", "", "--with")], ["trl[vllm]"], pins
    ) == ["was not made for trl[vllm]"]


def test_keep_requires_the_release_without_its_local_label() -> None:
    assert user_requirements.requirement_to_keep(
        "Torch", Known("2.10.0+cu128"), "env"
    ).bare == UserRequirement("torch", "==2.10.0", "--keep Torch")
    with pytest.raises(InputError, match="--keep torch: not found in the env"):
        user_requirements.requirement_to_keep("torch", Absent(), "the env")
    with pytest.raises(InputError, match="metadata unreadable"):
        user_requirements.requirement_to_keep("torch", Unknown("metadata unreadable"), "the env")


MODELS: list[dict[str, object]] = [
    {"model_type": "qwen3", "transformers": "4.51.0"},
    {"model_type": "glm", "transformers": "4.46.0", "install": "4.46.1"},
    {"model_type": "bert", "transformers": "4.34.0", "before": True},
    {"model_type": "deta", "transformers": "4.34.0", "before": True, "gone": "5.0.0"},
]


@pytest.mark.parametrize(
    ("model", "bounds"), [("qwen3", ">=4.51.0"), ("glm", ">=4.46.1"), ("bert", None), ("deta", "<5.0.0")]
)
def test_a_model_requires_the_transformers_that_know_it(model: str, bounds: str | None) -> None:
    found = user_requirements.requirement_for_model(model, MODELS)
    assert (found.bare.specifier if found else None) == bounds


def test_an_unknown_model_type_suggests_the_nearest() -> None:
    with pytest.raises(InputError, match=r"--model qwen33: no such model type; did you mean 'qwen3'\?"):
        user_requirements.requirement_for_model("qwen33", MODELS)


@pytest.mark.parametrize(
    "text", ["", "2026", "2026-13-01", "20261101", "2026-W01-1", "tomorrow", "9999-12-31"]
)
def test_a_day_is_an_iso_date(text: str) -> None:
    with pytest.raises(InputError, match="--exclude-newer: expected a date"):
        user_requirements.parse_day(text)
