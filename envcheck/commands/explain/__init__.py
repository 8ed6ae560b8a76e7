"""Explain a log, or what a command printed: match it with known failures and judge its environment.

`explain_log` reads a log; `run` runs a command, passes everything through, and explains what it printed if
it failed. The parts may import what `commands` may, and know nothing of how an explanation is shown.
"""

from __future__ import annotations

from envcheck.commands.explain.explained_log import explain_chunks, explain_log
from envcheck.commands.explain.origin import LogOrigin
from envcheck.commands.explain.running import FinishedCommand, run

__all__ = ["FinishedCommand", "LogOrigin", "explain_chunks", "explain_log", "run"]
