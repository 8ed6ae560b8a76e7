"""The environment of envcheck's own process: variables, folders, interpreter, date, and private names."""

from __future__ import annotations

import os
import sys
import time

from envcheck.core.sanitize import Private

_LONGEST_EPOCH = 11  # digits: a year of four digits


def environment_variable(name: str) -> str | None:
    """Return an environment variable of envcheck's own process, or None."""
    return os.environ.get(name)


def working_directory() -> str:
    """Return the folder envcheck was started in; empty if it was removed since."""
    try:
        return os.getcwd()  # noqa: PTH109 - on the start-up path
    except OSError:
        return ""


def own_python() -> str:
    """Return the path of the interpreter that runs envcheck."""
    return sys.executable


def today() -> str:
    """Return the current day in UTC as an ISO date."""
    return time.strftime("%Y-%m-%d", time.gmtime())


def build_date() -> str:
    """Return the ISO date to write into a build: SOURCE_DATE_EPOCH (reproducible builds), else today."""
    epoch = environment_variable("SOURCE_DATE_EPOCH") or ""
    if epoch.isascii() and epoch.isdecimal() and len(epoch) <= _LONGEST_EPOCH:
        return time.strftime("%Y-%m-%d", time.gmtime(int(epoch)))
    return today()


def home_folders() -> tuple[str, ...]:
    """Return the user's home folder, which no report shows; empty if there is none to hide."""
    home = os.path.expanduser("~")  # noqa: PTH111 - Path.home raises where there is none
    return (home,) if home not in ("~", "/", "") else ()


def private_names() -> Private:
    """Return what no report shows of this machine: home folder, user name, host name."""
    machine = os.uname().nodename if hasattr(os, "uname") else environment_variable("COMPUTERNAME") or ""
    user = (
        environment_variable("USER")
        or environment_variable("LOGNAME")
        or next(iter(home_folders()), "").rpartition("/")[2]
    )
    return Private(home_folders(), user, tuple(dict.fromkeys((machine, machine.partition(".")[0]))))


def node_name() -> str:
    """Return this node's name, by which ranks and launchers distinguish nodes; reports do not show it."""
    return os.uname().nodename


def random_token() -> str:
    """Return 16 random hexadecimal digits, which identify one process of one start."""
    return os.urandom(8).hex()
