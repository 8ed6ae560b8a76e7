"""Job files: the commands that Kubernetes, SkyPilot, CI workflows, sweeps and others start."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from envcheck.core.errors import InputError
from envcheck.core.patterns import pattern
from envcheck.training_config.document import Document, Setting
from envcheck.training_config.readers import Beside, ConfigReader

if TYPE_CHECKING:
    from envcheck.training_config.readers import _shell_lines

_KUBERNETES = (pattern(r"^apiVersion:", re.MULTILINE), pattern(r"^kind:", re.MULTILINE))
_RUN = pattern(r"^run:[ \t]*(?:[|>][+-]?[ \t]*(?:#.*)?$|\S)", re.MULTILINE)
_TASK = pattern(r"^(?:resources|setup|num_nodes|workdir|file_mounts|envs):", re.MULTILINE)
_SEPARATOR = pattern(r"^---[ \t\r]*$", re.MULTILINE)
_DSTACK = (
    pattern(r"^type:[ \t]*(?:task|dev-environment|service)\b", re.MULTILINE),
    pattern(r"^commands:", re.MULTILINE),
)
_ENTRYPOINT = pattern(r"^entrypoint:[ \t]*\S", re.MULTILINE)
_AZURE = (
    pattern(r"^\$schema:.*azureml", re.MULTILINE),
    pattern(r"^(?:command:|jobs:)", re.MULTILINE),
)
_AMLT = (
    pattern(r"^jobs:", re.MULTILINE),
    pattern(r"^[ \t]+(?:- )?command:", re.MULTILINE),
    pattern(r"^(?:target|environment|code|description):", re.MULTILINE),
)
_WORKFLOW = (pattern(r"^jobs:", re.MULTILINE), pattern(r"^[ \t]+(?:- )?run:[ \t]*\S", re.MULTILINE))
_COMPOSE = (
    pattern(r"^services:", re.MULTILINE),
    pattern(r"^[ \t]+(?:command|entrypoint):", re.MULTILINE),
)
_SWEEP = (
    pattern(r"^parameters:", re.MULTILINE),
    pattern(r"^method:[ \t]*(?:grid|random|bayes)\b", re.MULTILINE),
    pattern(r"^program:", re.MULTILINE),
)
_TOP_LEVEL_KEY = pattern(r"^[A-Za-z$]\w*:", re.MULTILINE)
"""What each of the forms above has; programs, scripts and JSON mostly have none."""

_STEP = pattern(r"(jobs\.[^.]+\.steps)\.\d+\.run")
_JOB = pattern(r"jobs\.[^.]+\.command")
_SERVICE = pattern(r"(services\.[^.]+)\.(?:command|entrypoint)")
_SWEPT = pattern(r"parameters\.([\w-]+)\.(value|values|min|distribution)")
_SWEEP_COMMAND = ("${env}", "${interpreter}", "${program}", "${args}")
_STARTED_BY_OPERATOR = pattern(r"ReplicaSpecs\.")
"""Containers whose processes an operator of Kubernetes joins, whatever starts each of them."""

_CONTENT = pattern(r"^(?:---)?[ \t]*[^\s#-]", re.MULTILINE)
"""A line of a document that is no comment."""

_COMMAND_TEXTS = ("run", "entrypoint", "command", "spec.entrypoint")
"""Settings that contain shell text: of SkyPilot, of a Ray job, of Azure ML, of a RayJob."""

_LISTED_COMMANDS = pattern(r"(?:^|\.)(?:containers|initContainers)\.\d+$|^spec\.trainer$")
_VARIABLES = ("envs", "env", "env_vars", "environment_variables")
_NODES = {"num_nodes": "SKYPILOT_NUM_NODES", "nodes": "DSTACK_NODES_NUM"}
_GPUS = pattern(r":([0-9]{1,4})$")


def recognises(text: str) -> bool:
    """Return whether a text is an object of Kubernetes, or a job of another tool that starts a command."""
    if not _TOP_LEVEL_KEY.search(text):
        return False
    forms = (
        _KUBERNETES, (_RUN, _TASK), _DSTACK, _AZURE, _AMLT, (_ENTRYPOINT,), _WORKFLOW, _COMPOSE, _SWEEP
    )  # fmt: skip
    return any(all(form.search(text) for form in each) for each in forms)


def read(text: str, file: str, beside: Beside | None = None) -> tuple[Document, ...]:
    """Return the documents of the commands that train.

    Raises:
        InputError: the text is malformed, or it starts no training that can be read.
    """
    from envcheck.training_config.readers import _shell_lines, yaml_text

    found: list[Document] = []
    start = 0
    for end in [*(mark.start() for mark in _SEPARATOR.finditer(text)), len(text)]:
        part = text[start:end]
        blank = "\n" * text.count("\n", 0, start)
        start = end + 3
        if not _CONTENT.search(part):
            continue
        document = yaml_text.parsed(blank + part, file, templates=False)
        settings = {setting.name: setting for setting in document.settings}
        joined = any(_STARTED_BY_OPERATOR.search(name) for name in settings)
        for lines in _commands(settings):
            try:
                started = _shell_lines.documents(lines, file, beside)
            except InputError:
                continue
            found += [each._replace(launcher="") for each in started] if joined else started
    if not found:
        raise InputError(file, "a job file in which nothing starts a training that can be read")
    return tuple(found)


def _commands(settings: Mapping[str, Setting]) -> Iterator[list[_shell_lines.ShellLine]]:
    """Yield the shell lines of each container, or of a task."""
    if "program" in settings and any(map(_SWEPT.fullmatch, settings)):
        yield list(_sweep(settings))
        return
    yield from _steps(settings)
    yield from _services(settings)
    yield from _jobs(settings)
    containers = [name for name in settings if _LISTED_COMMANDS.search(name)]
    for name in containers:
        given = [settings[f"{name}.{part}"] for part in ("command", "args") if f"{name}.{part}" in settings]
        words = [str(word) for each in given for word in _texts(each)]
        if words:
            yield [*_environment(settings, f"{name}.env."), *_block(_script(words), given[-1])]
    texts = [settings[name] for name in _COMMAND_TEXTS if name in settings]
    for setting in texts:
        if isinstance(setting.value, str) and (setting.name == "spec.entrypoint" or not containers):
            yield [*_folder(settings), *_task_variables(settings), *_block(setting.value, setting)]
    listed = settings.get("commands")
    if listed is not None and not containers:
        lines = [line for text in _texts(listed) for line in _block(str(text), listed)]
        yield [*_task_variables(settings), *lines]


def _steps(settings: Mapping[str, Setting]) -> Iterator[list[_shell_lines.ShellLine]]:
    """Yield the shell lines of each job of a workflow: those of its steps, one after the other."""
    jobs: dict[str, list[_shell_lines.ShellLine]] = {}
    for name, setting in settings.items():
        if (step := _STEP.fullmatch(name)) and isinstance(setting.value, str):
            jobs.setdefault(step.group(1), []).extend(_block(setting.value, setting))
    yield from jobs.values()


def _jobs(settings: Mapping[str, Setting]) -> Iterator[list[_shell_lines.ShellLine]]:
    """Yield the shell lines of each job of Azure ML, or of amlt, which writes a dollar twice."""
    for name, setting in settings.items():
        if _JOB.fullmatch(name):
            lines = [line for text in _texts(setting) for line in _block(str(text), setting)]
            yield [line._replace(text=line.text.replace("$$", "$")) for line in lines]


def _services(settings: Mapping[str, Setting]) -> Iterator[list[_shell_lines.ShellLine]]:
    """Yield the shell lines of each service of Compose."""
    services = dict.fromkeys(found.group(1) for name in settings if (found := _SERVICE.fullmatch(name)))
    for service in services:
        given = [
            settings[name] for part in ("entrypoint", "command") if (name := f"{service}.{part}") in settings
        ]
        listed = [isinstance(each.value, tuple) for each in given]
        parts = [
            _script([str(word) for word in _texts(each)]) if is_list else str(each.value)
            for each, is_list in zip(given, listed, strict=True)
        ]
        prefix = f"{service}.environment."
        variables = [
            _export(name.removeprefix(prefix), settings[name]) for name in settings if name.startswith(prefix)
        ]
        if (pairs := settings.get(f"{service}.environment")) is not None:
            for pair in _texts(pairs):
                name, equals, value = str(pair).partition("=")
                variables += [_export(name, pairs._replace(value=value))] if equals else []
        yield [*variables, *_block(" ".join(parts), given[-1])]


def _sweep(settings: Mapping[str, Setting]) -> Iterator[_shell_lines.ShellLine]:
    """Yield the command of one run of a sweep; a parameter with several values is known only at run time."""
    from envcheck.training_config.readers._shell_lines import ShellLine

    arguments: dict[str, str] = {}
    for name, setting in settings.items():
        if (found := _SWEPT.fullmatch(name)) is None:
            continue
        values = _texts(setting) if found.group(2) in ("value", "values") else ()
        one = len(values) == 1 and isinstance(values[0], str | int | float)
        value = shlex.quote(str(values[0])) if one else f"$SWEPT_{found.group(1).replace('-', '_')}"
        arguments[found.group(1)] = value
    flags = " ".join(f"--{name}={value}" for name, value in arguments.items())
    program = str(settings["program"].value)
    words = _texts(settings["command"]) if "command" in settings else _SWEEP_COMMAND
    filled = {
        "${env}": "", "${interpreter}": "python", "${program}": program, "${args}": flags,
        "${args_no_hyphens}": flags.replace("--", ""), "${args_no_boolean_flags}": flags,
    }  # fmt: skip
    text = " ".join(filled.get(str(word), str(word)) for word in words)
    yield ShellLine(text, settings["program"].place.line)


def _folder(settings: Mapping[str, Setting]) -> Iterator[_shell_lines.ShellLine]:
    """Yield the change to the folder that an Azure ML job starts in."""
    from envcheck.training_config.readers._shell_lines import ShellLine

    code = settings.get("code")
    if code is not None and isinstance(code.value, str) and ":" not in code.value:
        yield ShellLine(f"cd {shlex.quote(code.value)}", code.place.line)


def _texts(setting: Setting) -> tuple[object, ...]:
    return setting.value if isinstance(setting.value, tuple) else (setting.value,)


def _script(words: list[str]) -> str:
    """Return what a list of words runs: the text behind `bash -c`, or the words."""
    options = [number for number, word in enumerate(words[:-1]) if re.fullmatch(r"-[a-z]*c", word)]
    if words[0].rpartition("/")[2] in ("bash", "sh") and options:
        return words[options[0] + 1]
    return words[0] if len(words) == 1 else " ".join(map(shlex.quote, words))


def _block(text: str, setting: Setting) -> list[_shell_lines.ShellLine]:
    """Return the lines of a text; those of a YAML block begin on the line after its setting."""
    from envcheck.training_config.readers._shell_lines import ShellLine

    first = setting.place.line + (1 if "\n" in text.strip() else 0)
    return [ShellLine(line, first + number) for number, line in enumerate(text.rstrip("\n").split("\n"))]


def _environment(settings: Mapping[str, Setting], prefix: str) -> Iterator[_shell_lines.ShellLine]:
    """Yield the variables of a container as exports."""
    for name, setting in settings.items():
        value = settings.get(f"{name.removesuffix('.name')}.value")
        if name.startswith(prefix) and name.endswith(".name") and value is not None:
            yield _export(str(setting.value), value)


def _task_variables(settings: Mapping[str, Setting]) -> Iterator[_shell_lines.ShellLine]:
    """Yield the variables that a tool sets: those in the file, the number of nodes and that of GPUs."""
    for name, setting in settings.items():
        section, _, variable = name.partition(".")
        if section in _VARIABLES and variable and "." not in variable and not variable.isdigit():
            yield _export(variable, setting)
    for pair in _texts(settings["env"]) if "env" in settings else ():
        name, equals, value = str(pair).partition("=")
        if equals:
            yield _export(name, settings["env"]._replace(value=value))
    for setting_name, variable in _NODES.items():
        if setting_name in settings:
            yield _export(variable, settings[setting_name])
    gpus = settings.get("resources.accelerators")
    if gpus is not None and (count := _GPUS.search(str(gpus.value))):
        yield _export("SKYPILOT_NUM_GPUS_PER_NODE", gpus._replace(value=count.group(1)))
        if count.group(1) == "1":
            yield _export("CUDA_VISIBLE_DEVICES", gpus._replace(value="0"))


def _export(name: str, value: Setting) -> _shell_lines.ShellLine:
    from envcheck.training_config.readers._shell_lines import ShellLine

    simple = isinstance(value.value, str | int | float) and re.fullmatch(r"[A-Za-z_]\w*", name)
    return ShellLine(f"export {name}={shlex.quote(str(value.value))}" if simple else ":", value.place.line)


READER = ConfigReader(
    "a job file of Kubernetes, SkyPilot, dstack, Ray, Azure ML, Compose, a workflow or a sweep",
    -1,
    recognises,
    read,
    read,
)
