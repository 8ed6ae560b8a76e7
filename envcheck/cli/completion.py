"""Shell completion: the values that options offer, and the completion script for a shell.

Typer calls these functions only when a shell asks for completions, so the modules that they need are imported
inside them.
"""

from __future__ import annotations

from collections.abc import Iterable

from envcheck.core.errors import InputError
from envcheck.host.environment import environment_variable

VARIABLE = "_ENVCHECK_COMPLETE"
OPTIONS = ("--show-completion", "--install-completion")


def is_asked_for() -> bool:
    """Return whether a shell started this process for completions."""
    return environment_variable(VARIABLE) is not None


def targets(incomplete: str) -> list[str]:
    """Return the training recipes whose names begin with the typed text."""
    from envcheck.commands import loading

    return _beginning(loading.knowledge().targets, incomplete)


def machines(incomplete: str) -> list[str]:
    """Return the declared machines whose names begin with the typed text."""
    from envcheck.commands import loading

    return _beginning(loading.knowledge().machines, incomplete)


def rules(incomplete: str) -> list[str]:
    """Return the ids of rules that begin with the typed text."""
    from envcheck.commands import loading

    return _beginning((rule.id for rule in loading.knowledge().rules), incomplete)


def gpus(incomplete: str) -> list[str]:
    """Return the GPUs whose names begin with the typed text, as one word each: `A100-SXM4-80GB`."""
    from envcheck.commands import loading

    models = loading.knowledge().tables.gpu_models
    names = (model.name.removeprefix("NVIDIA ").replace(" ", "-") for model in models)
    return _beginning((*names, "none"), incomplete)


def formats(incomplete: str) -> list[str]:
    """Return the report formats whose names begin with the typed text."""
    from envcheck.reports import render

    return _beginning((name for name in render.formats() if name != "terminal"), incomplete)


def languages(incomplete: str) -> list[str]:
    """Return the languages whose codes begin with the typed text."""
    from envcheck.host.package_files import source_texts

    files = source_texts("compat/lang", "")
    return _beginning(("en", *(file.partition(".")[0] for file in files)), incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in dict.fromkeys(names) if name.startswith(incomplete)]


def completion(arguments: list[str]) -> str:
    """Return the completion script for `--show-completion [SHELL]`, or say where it was installed.

    Raises:
        InputError: there is no completion for this shell.
    """
    from typer._completion_shared import Shells, _get_shell_name, get_completion_script, install

    option, _, shell = " ".join(arguments[:2]).replace("=", " ", 1).partition(" ")
    shell = shell.strip() or _get_shell_name() or (environment_variable("SHELL") or "").rpartition("/")[2]
    known = [each.value for each in Shells]
    if shell not in known:
        raise InputError(option, f"expected one of {', '.join(known)}; found {shell or 'no shell'!r}")
    if option == "--install-completion":
        _, path = install(shell=shell, prog_name="envcheck", complete_var=VARIABLE)
        return f"{shell} completion installed in {path}; it works in the next terminal\n"
    return get_completion_script(prog_name="envcheck", complete_var=VARIABLE, shell=shell) + "\n"
