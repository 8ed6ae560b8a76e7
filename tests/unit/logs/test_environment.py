"""Lists of packages that a log prints: what is installed, not what a project asks for."""

import time

import pytest

from envcheck.commands import loading
from envcheck.core.facts import Vocabulary
from envcheck.logs import environment

FREEZE = "torch==2.4.0\ntransformers==4.44.2\n"


@pytest.fixture(scope="module")
def keys() -> Vocabulary:
    from envcheck import probes

    return loading.vocabulary(probes.every_probe())


def listed(text: str, keys: Vocabulary) -> dict[str, object]:
    found = environment.facts(text, 1, loading.source_tree()["tables"], keys)
    return {printed.key: printed.value for printed in found}


@pytest.mark.parametrize(
    "text",
    [
        FREEZE,
        f"$ pip freeze | grep -i torch\n{FREEZE}\nTraceback (most recent call last):\n",
        f"# Editable install with no version control (mine==0.1)\n-e /home/me/mine\n{FREEZE}",
        f"{FREEZE}Requirement already satisfied: numpy>=1.17 in /usr/lib\n",
    ],
)
def test_what_pip_freeze_prints_is_installed(text: str, keys: Vocabulary) -> None:
    assert listed(text, keys) == {"pkg.torch": "2.4.0", "pkg.transformers": "4.44.2"}


@pytest.mark.parametrize(
    "text",
    [
        f"{FREEZE}peft>=0.12\n",
        f"accelerate~=0.33\n\n# the model\n{FREEZE}",
        f"{FREEZE}\n# tools\ndeepspeed[autotuning]==0.15.0\n",
        f"-r base.txt\n{FREEZE}",
        f"--extra-index-url https://example.org/whl/cu124\n{FREEZE}",
        f'{FREEZE}triton==3.0.0 ; sys_platform == "linux"\n',
        f"{FREEZE}numpy==1.26.4  # torch needs it\n",
    ],
)
def test_a_requirements_file_is_not_what_is_installed(text: str, keys: Vocabulary) -> None:
    assert listed(text, keys) == {}


def test_thousands_of_lists_in_one_log_take_time_in_proportion(keys: Vocabulary) -> None:
    def seconds(lists: int) -> float:
        began = time.process_time()
        listed(f"{FREEZE}-- next\n" * lists, keys)
        return time.process_time() - began

    few, many = seconds(1000), seconds(8000)

    assert many < 30 * few  # 8 times as many; each list once cost a search of 400 lines


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("Name: torch\nVersion: 2.4.0+cu121\nSummary: Tensors\n", {"pkg.torch": "2.4.0+cu121"}),
        (" + vllm==0.11.0\n - vllm==0.10.2\n", {"pkg.vllm": "0.11.0"}),
        (
            "Found existing installation: peft 0.9.0\nSuccessfully installed flash-attn-2.7.4.post1 peft-0.13.2\n",
            {"pkg.flash-attn": "2.7.4.post1", "pkg.peft": "0.13.2"},
        ),
        ("+torch==2.6.0\n-torch==2.4.0\n", {}),
    ],
)
def test_what_pip_and_uv_say_of_an_installation_is_read(
    text: str, facts: dict[str, object], keys: Vocabulary
) -> None:
    assert listed(text, keys) == facts


@pytest.mark.parametrize(
    "text",
    [
        "It works with:\ntrl 0.11.4\n",
        "Training runs on the old machine with these:\n\n- transformers: 4.57.1\n- trl: 0.11.4\n",
        "My colleague has:\ntorch==2.6.0\ntrl==0.11.4\n",
        "The other environment:\ntorch      2.6.0\ntransformers  4.57.1\ntrl  0.11.4\n",
    ],
)
def test_a_list_below_a_sentence_on_another_environment_is_not_what_is_installed(
    text: str, keys: Vocabulary
) -> None:
    assert listed(text, keys) == {}


@pytest.mark.parametrize(
    "text",
    [
        "It fails with:\ntrl 0.11.4\n",
        "Package versions:\n\ntrl 0.11.4\n",
        "It works with:\npeft 0.12.0\nBut mine is another one\ntrl 0.11.4\n",
    ],
)
def test_a_list_below_another_sentence_is_what_is_installed(text: str, keys: Vocabulary) -> None:
    assert listed(text, keys) == {"pkg.trl": "0.11.4"}


def test_names_as_pip_writes_them_are_what_is_installed(keys: Vocabulary) -> None:
    assert listed("peft-0.14.0\ntransformers-4.49.0\n", keys) == {
        "pkg.peft": "0.14.0",
        "pkg.transformers": "4.49.0",
    }
    assert listed("transformers-4.49.0\n", keys) == {"pkg.transformers": "4.49.0"}
    assert listed("It works with:\ntransformers-4.49.0\n", keys) == {}
    assert listed("checkpoint-1.0\nmodel-2.1\n", keys) == {}


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Successfully installed peft-0.10.0\nSuccessfully installed peft-0.14.0\n", "0.14.0"),
        ("Name: peft\nVersion: 0.10.0\nSuccessfully installed peft-0.14.0\n", "0.14.0"),
        ("Successfully installed peft-0.14.0\nName: peft\nVersion: 0.10.0\n", None),
    ],
)
def test_what_is_installed_later_takes_the_place_of_what_was_there(
    text: str, version: str | None, keys: Vocabulary
) -> None:
    found = environment.inventory(environment.facts(text, 1, loading.source_tree()["tables"], keys))

    assert found.known("pkg.peft") == version
