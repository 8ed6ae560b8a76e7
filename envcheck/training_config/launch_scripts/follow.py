"""Follow a shell script without running it, and return each launch command with its arguments.

A script is followed as if it were started without arguments, and as if variables with a default in it
(`${NNODES:-1}`) were not set outside; `FollowedScript.assumed` lists these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from envcheck.core.records import NamedTuple
from envcheck.training_config.launch_scripts import slurm
from envcheck.training_config.launch_scripts.control_flow import ControlFlow
from envcheck.training_config.launch_scripts.parser import parse
from envcheck.training_config.launch_scripts.session import Session, WrittenBy, nothing_beside
from envcheck.training_config.launch_scripts.simple_commands import LaunchCommand
from envcheck.training_config.launch_scripts.values import Argument, Fragment, Scope, Value
from envcheck.training_config.readers import Beside
from envcheck.training_config.source_lines import SourceLines


class FollowedScript(NamedTuple):
    """Hold what following a script found.

    `files` are those that it writes, each with every text that it is given, by name. `assumed` are the
    variables that were assumed to be unset outside the script; "@" stands for its arguments. `roots` are
    those that were assumed to name the folder of the project, `left_out` the optional files that were assumed
    not to exist. `notes` are (offset, sentence) on broken commands.
    """

    commands: tuple[LaunchCommand, ...]
    files: Mapping[str, Sequence[Value]]
    assumed: frozenset[str]
    roots: frozenset[str]
    notes: tuple[tuple[int, str], ...]
    left_out: frozenset[str] = frozenset()


def follow(
    lines: SourceLines,
    is_launch: Callable[[tuple[Argument, ...]], bool],
    exported: frozenset[str],
    beside: Beside = nothing_beside,
    *,
    past_returns: bool = False,
    written_by: WrittenBy | None = None,
) -> FollowedScript:
    """Return the commands for which `is_launch` is true; `exported` names the variables to record of each.

    `beside` reads other scripts that this one sources or starts. With `past_returns`, a branch that returns
    from a function is passed over like one that exits, as where it asks for a variable of the environment.
    `written_by` follows programs in the text of the script for the configurations that they write.

    Raises:
        NotAScriptError: the text is not a shell script.
        TooLongError: its variables grow, or its functions call one another, beyond the limits.
    """
    script = parse(lines.text)
    session = Session(lines, script, beside)
    session.written_by = written_by
    session.passed_over = ("exit", "return") if past_returns else ("exit",)
    flow = ControlFlow(session, is_launch, exported)
    scope = Scope()
    for name, (value, at) in slurm.variables(lines.text).items():
        scope.variables[name] = (Fragment(value, at),)
    flow.run(script.commands, scope)
    found = flow.simple_commands
    return FollowedScript(
        tuple(found.launched),
        found.written.files,
        frozenset(session.assumed),
        frozenset(session.roots),
        (*script.notes, *found.notes),
        frozenset(session.left_out),
    )
