"""The command: `--version` and `gate --runtime` before anything heavy is imported, all else through `cli`."""

from __future__ import annotations

import gc
import os
import sys

TYPE_CHECKING = False  # typing itself is slower to load than all of `gate --runtime`
if TYPE_CHECKING:
    from typing import TextIO


def main() -> None:
    """Run the command line in `sys.argv` and exit with its code."""
    # A process that lives a tenth of a second has no garbage worth collecting.
    gc.disable()
    try:
        if sys.argv[1:] in (["--version"], ["-V"]):
            run = _version
        elif sys.argv[1:2] == ["gate"] and "--runtime" in sys.argv and "--help" not in sys.argv:
            from envcheck.commands.gate_runtime import run  # in front of every start of a container
        else:
            from envcheck.cli.main import run
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while importing; once it runs, `run` sees to it
        _written(sys.stderr, "envcheck: interrupted\n")
        code = 130
    for stream in (sys.stdout, sys.stderr):
        _written(stream, "")  # closed or full: who printed has said so, and the code stays what it is
    # Taking every module apart would cost a fourteenth of doctor's time and free what the kernel frees.
    os._exit(code)


def _version(arguments: list[str]) -> int:  # noqa: ARG001 - as every `run`
    from envcheck import __version__

    if _written(sys.stdout, f"envcheck {__version__}\n"):
        return 0
    _written(sys.stderr, "envcheck: standard output cannot be written\n")
    return 3


def _written(stream: TextIO | None, text: str) -> bool:
    """Whether a text has left; Python has None for a stream that was closed when it started."""
    try:
        if stream is not None:
            stream.write(text)
            stream.flush()
    except (OSError, ValueError):
        return False
    return stream is not None


if __name__ == "__main__":
    main()
