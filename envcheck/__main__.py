"""The command: `--version` and `gate --runtime` before anything heavy is imported, all else through `cli`."""

from __future__ import annotations

import gc
import os
import sys


def main() -> None:
    """Run the command line in `sys.argv` and exit with its code."""
    if sys.argv[1:] in (["--version"], ["-V"]):
        from envcheck import __version__

        sys.stdout.write(f"envcheck {__version__}\n")
        return
    # A process that lives a tenth of a second has no garbage worth collecting.
    gc.disable()
    try:
        if sys.argv[1:2] == ["gate"] and "--runtime" in sys.argv and "--help" not in sys.argv:
            from envcheck.runtime import run  # in front of every start of a container
        else:
            from envcheck.cli import run
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while importing; once it runs, `run` sees to it
        sys.stderr.write("envcheck: interrupted\n")
        code = 130
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (AttributeError, OSError, ValueError):  # closed, or full: Python itself says so
        sys.exit(code)
    # Taking every module apart would cost a fourteenth of doctor's time and free what the kernel frees.
    os._exit(code)


if __name__ == "__main__":
    main()
