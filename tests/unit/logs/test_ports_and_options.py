"""What is said of ports that cannot be had, of options that a program does not know, and of caches."""

from __future__ import annotations

import pytest

from tests.support.logs import SITE, Explain, answer, cause_of, traceback

_LISTENS = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address."
)


@pytest.mark.parametrize(
    ("said", "case"),
    [
        ("The server socket has failed to bind to [::]:97 (errno: 13 - Permission denied).", "not-allowed"),
        ("port: 97, useIpv6: 0, code: -13, name: EACCES, message: permission denied", "not-allowed"),
        (
            "The server socket has failed to bind to [::]:29500 (errno: 98 - Address already in use).",
            "in-use",
        ),
        ("port: 29500, useIpv6: 0, code: -98, name: EADDRINUSE, message: address already in use", "in-use"),
    ],
)
def test_a_port_is_said_to_be_taken_only_where_the_system_says_so(
    said: str, case: str, explained: Explain
) -> None:
    match = cause_of(explained(f"{_LISTENS} {said}\n")).match

    assert match is not None
    assert match.signature.case.endswith(case)


@pytest.mark.parametrize(
    ("line", "means"),
    [
        ("[Errno 98] error while attempting to bind on address ('0.0.0.0', 8000): …", "another process"),
        ("[Errno 13] error while attempting to bind on address ('0.0.0.0', 80): …", "may not listen"),
        ("[Errno 99] error while attempting to bind on address ('10.0.0.9', 80): …", "none of this machine"),
    ],
)
def test_a_server_that_cannot_listen_is_told_why(line: str, means: str, explained: Explain) -> None:
    assert means in answer(explained(f"INFO:     Waiting for application startup.\nERROR:    {line}\n"))


def test_a_permission_without_a_path_is_of_the_port_if_the_line_binds_one(explained: Explain) -> None:
    file = f"{SITE}/vllm/entrypoints/openai/api_server.py"
    said = "PermissionError: [Errno 13] Permission denied"
    bound = explained(traceback(said, (file, 1070, "create_server_socket", "sock.bind(addr)")))
    written = explained(traceback(f"{said}: '/srv/cache'", (file, 80, "main", "os.makedirs(path)")))

    assert "may not listen on the port" in answer(bound)
    assert "may not listen" not in answer(written)
    assert "may not read or write the path" in answer(written)


@pytest.mark.parametrize(
    ("option", "told"),
    [
        ("--config-settings", "from release 22.1 on"),
        ("--break-system-packages", "from release 23.0.1 on"),
        ("--global-option", "pip 25.3 removed"),
        ("--install-option=--cpp_ext", "pip 23.1 removed"),
        ("--fast", "does not know an option"),
    ],
)
def test_an_option_that_pip_does_not_know_is_told_with_its_releases(
    option: str, told: str, explained: Explain
) -> None:
    usage = "\nUsage:   \n  pip install [options] <requirement specifier> [package-index-options] ...\n\n"

    assert told in answer(explained(f"{usage}no such option: {option}\n"))


def test_a_data_set_that_is_cached_in_another_configuration_is_told(explained: Explain) -> None:
    said = (
        "ValueError: Couldn't find cache for acme/code for config 'default-version_tag=v6'\n"
        "Available configs in the cache: ['default-version_tag=v5']\n"
    )

    assert "did not get the data set from the Hub" in answer(explained(said))
    assert "from the Hub" not in answer(explained("ValueError: Couldn't find cache for\n"))


def test_a_cache_in_the_root_folder_is_of_a_user_without_a_home(explained: Explain) -> None:
    said = "PermissionError: [Errno 13] Permission denied: "

    assert "no home directory" in answer(explained(f"{said}'/.triton'\n"))
    assert "no home directory" not in answer(explained(f"{said}'/srv/.cache/hub'\n"))


def test_a_full_disk_of_ray_counts_if_nothing_else_failed(explained: Explain) -> None:
    monitor = (
        "(raylet) [2024-12-30 05:28:51,682 E 1256 1290] (raylet) file_system_monitor.cc:111: /tmp/ray/session "
        "is over 95% full, available space: 13; capacity: 39. Object creation will fail if spilling is required.\n"
    )
    raised = traceback("KeyError: 'prompt'", (f"{SITE}/verl/trainer/main.py", 4, "run", 'row["prompt"]'))

    assert "disk that holds Ray's folder" in answer(explained(monitor)).splitlines()[1]
    assert cause_of(explained(f"{monitor}{raised}")).event.exceptions[0].name == "KeyError"
