"""Programs that start the program named by a later argument: their names, and where that program stands."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from envcheck.core.patterns import pattern
from envcheck.training_config.launch_scripts.assignments import ASSIGNMENT
from envcheck.training_config.launch_scripts.values import (
    Fragment,
    Value,
    Variable,
    base_name,
    known_text,
    spelled,
    unknown,
    unknown_words,
)

PREFIXES = frozenset({
    "nohup", "time", "exec", "env", "nice", "ionice", "taskset", "numactl", "stdbuf", "setsid", "timeout",
    "sudo", "command", "builtin", "srun", "mpirun", "mpiexec", "uv", "poetry", "pipenv", "pdm", "conda",
    "mamba", "micromamba", "singularity", "apptainer", "docker", "xvfb-run", "unbuffer", "nsys", "ncu",
    "strace", "pdsh", "ssh", "tmux", "screen", "run", "sbatch", "pixi", "hatch", "rye", "horovodrun",
    "mpirun.openmpi", "podman", "enroot", "caffeinate", "chrt", "script", "su", "bsub", "qsub", "kubectl",
    "runai", "sky", "tsp", "ts", "py-spy", "xargs", "parallel", "prun", "jsrun", "aprun", "gosu", "gdb",
    "uvx", "flock", "pyenv", "direnv", "nix", "guix", "asdf", "mise", "proxychains", "proxychains4",
    "catchsegv", "chronic", "faketime", "ltrace", "firejail", "cgexec", "sem", "dumb-init", "tini", "dotenv",
    "infisical", "doppler", "op", "hpcrun", "ddtrace-run", "kernprof", "viztracer", "scalene", "pyinstrument",
    "coverage",
    "rocprof", "memray", "podman-hpc", "udocker", "nerdctl", "systemd-run", "sg", "gcloud", "flux", "doas",
})  # fmt: skip
"""Programs that start the program named by a later argument, or the command in the text of one."""

RUN_SCRIPTS = frozenset({
    "nohup", "srun", "time", "nice", "uv", "run", "poetry", "pipenv", "pdm", "pixi", "hatch", "rye",
    "kernprof", "viztracer", "scalene", "pyinstrument", "coverage",
})  # fmt: skip
"""Those of them after which a script of Python needs no arguments to be taken for the program."""

START_TASKS = frozenset({
    "srun", "mpirun", "mpiexec", "mpirun.openmpi", "horovodrun", "prun", "jsrun", "aprun",
})  # fmt: skip
"""Those of them that start several processes of it, which find one another."""

MODULES = frozenset({
    "uv", "poetry", "pipenv", "pdm", "hatch", "dotenv", "kernprof", "viztracer", "scalene", "pyinstrument",
    "coverage",
})  # fmt: skip
"""Those of them that Python starts as modules: `python -m uv run`."""

_MANAGERS = frozenset({
    "uv", "poetry", "pipenv", "pdm", "conda", "mamba", "micromamba", "pixi", "hatch", "rye", "docker",
    "podman", "nerdctl", "singularity", "apptainer", "enroot", "kubectl", "pyenv", "nix", "asdf", "mise",
})  # fmt: skip
"""Those of them with subcommands, of which only some start a program."""

_START_NOTHING = frozenset({
    "pip", "add", "install", "uninstall", "sync", "lock", "build", "pull", "push", "remove", "create",
    "update", "upgrade", "init", "venv", "export", "cache", "list", "config", "self", "python", "tool",
    "login", "images", "tag", "rm", "rmi", "stop", "kill", "logs", "ps", "cp", "import", "apply", "delete",
    "get", "describe", "activate", "info", "search", "show", "clean", "env", "local", "global",
})  # fmt: skip
"""Subcommands of these that start no program; `uv tool run` is `uvx`, which does."""

INSTALLERS = frozenset({"pip", "pip3", "apt", "apt-get", "yum", "dnf", "apk", "brew", "npm"})
"""Programs that install what they are given."""


PRINT = ("echo", "printf", "which", "grep", "chmod", "rm", "ls", "git", "wc", "find", "rsync", "scp", "log")
"""Programs that only print, find or copy the names that they are given."""

READ_SCRIPTS = frozenset({"sbatch", "qsub", "bsub", "ssh", "su", "sudo", "docker", "podman", "srun"})
"""Those of them that run, or submit, the script on their standard input if they are given no other."""

SUBMIT = ("sbatch", "qsub", "bsub")
"""Those of them that submit the script that they are given."""

FILL = ("xargs", "parallel")
"""Those of them that give the program further arguments, which they read."""

_PLACES_OF_PARALLEL = re.compile(r"\{[\d./#%]*\}")
"""`{}`, `{1}` and `{.}`, in place of which GNU parallel puts an argument."""

OPTION_WITH_VALUE = pattern(r"--?[\w-]+=")

SCRIPTS = (".sh", ".bash", ".slurm", ".sbatch")

SHELLS = frozenset({"bash", "sh", "zsh", "dash"})

MAX_PREFIX_WORDS = 60  # words after a prefix in which the program is looked for

_MOST_PLACES = 16  # of one word in which xargs puts an argument


def starts_nothing(words: Sequence[str]) -> bool:
    """Return whether the subcommand of a package manager starts no program, as in `uv pip install torch`."""
    if words[0] not in _MANAGERS:
        return False
    named = [word for word in words[1:] if not word.startswith("-")]
    return named[:1] != [] and named[0] in _START_NOTHING and named[:2] != ["tool", "run"]


def with_read_arguments(fields: list[Value], behind: int) -> list[Value]:
    """Return the command that `xargs` starts: the arguments that it reads are known only at run time."""
    at, name = fields[0][0].at, base_name(known_text(fields[0]) or "")
    reason = f"{name} reads further arguments when the script runs"
    listed = next((i for i, field in enumerate(fields) if known_text(field) in (":::", "::::")), len(fields))
    fields = fields[:listed]
    options = [known_text(field) or "" for field in fields[1:behind]]
    mark = next((after for option, after in pairwise(options) if option == "-I"), None)
    mark = mark or next(
        (option[2:] for option in options if option.startswith("-I") and option != "-I"), None
    )
    place = _PLACES_OF_PARALLEL if name == "parallel" and not mark else re.compile(re.escape(mark or "{}"))
    command = fields[behind:]
    if not mark and not (name == "parallel" and any(place.search(spelled(field)) for field in command)):
        return [*command, unknown_words(name, at, reason)]
    return [
        _with_unknown_places(field, place, reason)
        if len(place.findall(spelled(field))) <= _MOST_PLACES
        else unknown(field[0].at, spelled(field), reason)
        for field in command
    ]


def _with_unknown_places(field: Value, place: re.Pattern[str], reason: str) -> Value:
    """Return a word in which each place of an argument that is read only at run time is unknown."""
    found: list[Fragment] = []
    for fragment in field:
        end = 0
        for mark in place.finditer(fragment.text) if not fragment.why else ():
            if before := fragment.text[end : mark.start()]:
                found.append(fragment._replace(text=before, at=fragment.at + end))
            found += unknown(fragment.at + mark.start(), mark.group(), reason)
            end = mark.end()
        if rest := fragment.text[end:]:
            found.append(fragment._replace(text=rest, at=fragment.at + end))
    return tuple(found) or field


def asks_for_a_program(fields: list[Value]) -> bool:
    """Return whether a command asks if a program is installed, which it is assumed to be."""
    words = [known_text(field) or "" for field in fields[:2]]
    return len(words) > 1 and (words[0] in ("which", "hash") or words in (["command", "-v"], ["type", "-p"]))


def prefix_assignments(fields: Iterable[Value]) -> dict[str, Variable]:
    """Return the variables among the arguments of a prefix: `env NAME=value program`."""
    given: dict[str, Variable] = {}
    for field in fields:
        pair = ASSIGNMENT.match(field[0].text)
        if pair and not field[0].why:
            given[pair.group(1)] = (field[0]._replace(text=field[0].text[pair.end() :]), *field[1:])
    return given


def script_behind(fields: list[Value]) -> int | None:
    """Return the index of the script that a shell runs or that is itself the command, or None."""
    program = base_name(spelled(fields[0]))
    if program.endswith(SCRIPTS):
        return 0
    if program not in SHELLS:
        return None
    words = [spelled(field) or "-" for field in fields]
    behind = next((i for i, word in enumerate(words[1:], 1) if not word.startswith("-")), 0)
    return behind if words[behind].endswith(SCRIPTS) else None


def tasks_of_step(fields: list[Value]) -> Value | None:
    """Return how many tasks the options of `srun` or `mpirun` ask for; None if they do not say."""
    words = [(field, known_text(field) or "") for field in fields]
    for index, (field, word) in enumerate(words):
        name, equals, value = word.partition("=")
        if name in ("-n", "--ntasks", "-np", "--np") and (equals or index + 1 < len(words)):
            return (field[0]._replace(text=value),) if equals else words[index + 1][0]
        if word.startswith("-n") and word[2:].isdigit():
            return (field[0]._replace(text=word[2:]),)
    return None


def shell_behind(fields: list[Value], index: int) -> int:
    """Return the index of the shell that is given a text or a script behind a word; 0 if there is none."""
    for at in range(index + 1, min(len(fields) - 1, MAX_PREFIX_WORDS)):
        if base_name(known_text(fields[at]) or "") in SHELLS:
            return at if command_text(fields[at:]) or script_behind(fields[at:]) is not None else 0
    return 0


def command_text(fields: list[Value]) -> Value:
    """Return the word after `-c`, or an empty value."""
    for index, field in enumerate(fields[1:-1], 1):
        flag = known_text(field) or ""
        if flag.startswith("-") and not flag.startswith("--") and flag.endswith("c"):
            return fields[index + 1]
    return ()
