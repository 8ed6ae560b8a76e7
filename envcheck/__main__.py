"""The entry point of the `envcheck` command.

`--version` and `gate --runtime` run before anything heavy is imported; all other commands go through `cli`.
"""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # importing typing takes longer than all of `gate --runtime`
if TYPE_CHECKING:
    from typing import TextIO


def main() -> None:
    """Run the command line in `sys.argv` and exit with its code."""
    # A process that lives for a tenth of a second has no garbage worth collecting.
    gc.disable()
    try:
        if sys.argv[1:] in (["--version"], ["-V"]):
            run = _print_version
        elif {*sys.argv[1:]} in ({"--version", "-v"}, {"-V", "-v"}):
            from envcheck.cli.version import run
        elif sys.argv[1:2] == ["gate"] and "--runtime" in sys.argv and not {"--help", "-h"} & {*sys.argv}:
            from envcheck.commands.gate_runtime import run  # precedes every container start
        else:
            from envcheck.cli.main import run
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # during the imports; afterwards `run` handles it
        _write(sys.stderr, "envcheck: interrupted\n")
        code = 130
    for stream in (sys.stdout, sys.stderr):
        _write(stream, "")  # a closed or full stream was reported already and must not change the exit code
    # A regular exit would spend a fourteenth of doctor's time on freeing what the kernel frees anyway.
    os._exit(code)


def _print_version(arguments: list[str]) -> int:  # noqa: ARG001 - the signature of every `run`
    from envcheck import __version__

    if _write(sys.stdout, f"envcheck {__version__}\n"):
        return 0
    _write(sys.stderr, "envcheck: standard output cannot be written\n")
    return 3


def _write(stream: TextIO | None, text: str) -> bool:
    """Write and flush a text; return whether that worked. Python sets a stream to None if it was closed."""
    try:
        if stream is not None:
            stream.write(text)
            stream.flush()
    except (OSError, ValueError):
        return False
    return stream is not None


if __name__ == "__main__":
    main()
