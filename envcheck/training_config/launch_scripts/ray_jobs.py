"""`ray job submit`: the environment variables and the folder of the job that it starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from envcheck.core.errors import InputError
from envcheck.core.parsing import parse_json
from envcheck.training_config.launch_scripts.simple_commands import LaunchCommand
from envcheck.training_config.launch_scripts.values import Argument, Fragment, base_name

_OPTIONS = ("--runtime-env-json", "--working-dir")


def with_runtime_environment(command: LaunchCommand, exported: frozenset[str]) -> LaunchCommand:
    """Return a command of `ray job submit` with what its runtime environment sets, any other unchanged.

    `exported` names the variables to record. Options whose value is known only at run time are ignored.
    """
    if base_name(command.words[0].text) != "ray":
        return command
    given = _options(command.words)
    text = given.get("--runtime-env-json")
    tree = _json(text.text) if text is not None and not text.why else {}
    variables = tree.get("env_vars")
    environment = {
        name: Argument(str(value), command.at)
        for name, value in (variables.items() if isinstance(variables, dict) else ())
        if name in exported and isinstance(value, str)
    }
    exports = {
        name: (Fragment(str(value), command.at),)
        for name, value in (variables.items() if isinstance(variables, dict) else ())
    }
    option = given.get("--working-dir")
    folder = option.text if option is not None and not option.why else tree.get("working_dir")
    is_folder = isinstance(folder, str) and "://" not in folder
    return command._replace(
        environment={**command.environment, **environment},
        exported={**command.exported, **exports},
        folder=str(folder) if is_folder else command.folder,
    )


def _options(words: tuple[Argument, ...]) -> Mapping[str, Argument]:
    """Return the options before `--` that affect the job's environment."""
    found: dict[str, Argument] = {}
    for index, word in enumerate(words):
        if word.text == "--":
            break
        name, equals, value = word.text.partition("=")
        if name in _OPTIONS:
            following = words[index + 1] if index + 1 < len(words) else word
            found[name] = word._replace(text=value) if equals else following
    return found


def _json(text: str) -> Mapping[str, Any]:
    try:
        tree = parse_json(text, "--runtime-env-json")
    except InputError:
        return {}
    return tree if isinstance(tree, dict) else {}
