"""The reference of the command line, from the commands themselves: `python tools/write_reference.py`."""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from envcheck.cli import COMMANDS, _command


def main() -> None:
    """Print the page."""
    print("# Command line\n")
    print("Written by `tools/write_reference.py` from the commands themselves.")
    for name in COMMANDS:
        print(f"\n## envcheck {name}\n\n```text\n{_help(name)}\n```")


def _help(name: str) -> str:
    """What `envcheck NAME --help` says."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        _command([name])([name, "--help"], prog_name="envcheck", standalone_mode=False, terminal_width=100)
    return out.getvalue().strip()


if __name__ == "__main__":
    main()
