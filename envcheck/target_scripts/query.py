"""Describe the interpreter that runs this script and where it looks for packages.

Run as `PATH -I -X utf8 query.py MARKER` by the interpreter under examination (Python 3.7 or later). Start-up
code of the environment may print to standard output, so the answer is one line of JSON between two markers.
Python loads `os` at every start anyway; no other module is imported, and the JSON is written by hand, because
importing `json` would take as long as the whole run. Package metadata is read by envcheck and not here.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Union

    Answer = Dict[str, Union[str, int, bool, List[str]]]


def describe() -> Answer:
    """Return the interpreter's version, implementation, ABI, prefixes and package folders in import order."""
    return {
        "version": version(),
        "implementation": sys.implementation.name,
        "abi": abi(),
        "free_threaded": "t" in getattr(sys, "abiflags", ""),
        "pointer_bits": 64 if sys.maxsize > 2**32 else 32,
        "platform": sys.platform,
        "machine": os.uname().machine,
        "prefix": sys.prefix,
        "base_prefix": sys.base_prefix,
        "sites": package_folders(),
    }


def version() -> str:
    """Return the version in the form of PEP 440: 3.11.7, 3.15.0rc1."""
    major, minor, micro, level, serial = sys.version_info
    suffix = {"alpha": "a", "beta": "b", "candidate": "rc"}.get(level)
    return "%d.%d.%d" % (major, minor, micro) + ("%s%d" % (suffix, serial) if suffix else "")


def abi() -> str:
    """Return the ABI tag as wheels spell it: cp311, cp313t (free-threaded), pypy310_pp73."""
    major, minor = sys.version_info[:2]
    if sys.implementation.name == "cpython":
        return "cp%d%d%s" % (major, minor, getattr(sys, "abiflags", ""))
    pypy = getattr(sys, "pypy_version_info", None)
    if pypy is not None:
        return "pypy%d%d_pp%d%d" % (major, minor, pypy[0], pypy[1])
    return sys.implementation.cache_tag or "none"


def package_folders() -> List[str]:
    """Return the existing site-packages and dist-packages folders, in import order.

    `-I` leaves out the user's own site-packages, but a training run will import from it. It is inserted where
    `site` would put it: after a virtual environment's folder, before the interpreter's own.
    """
    folders = [path for path in sys.path if path.endswith(("site-packages", "dist-packages"))]
    user = user_folder()
    if user and user not in folders:
        own = sys.prefix + os.sep
        after = [i + 1 for i, path in enumerate(folders) if path.startswith(own)]
        folders.insert(after[-1] if after and sys.prefix != sys.base_prefix else 0, user)
    return [path for path in folders if os.path.isdir(path)]


def user_folder() -> str:
    """Return the user's site-packages folder if a run without `-I` would use it, else an empty string."""
    site = sys.modules.get("site")
    if site is None or not sys.flags.no_user_site or os.environ.get("PYTHONNOUSERSITE"):  # noqa: TID251
        return ""
    if sys.prefix != sys.base_prefix and sys.base_prefix not in site.PREFIXES:
        return ""  # a virtual environment without access to the system's packages has none to the user's
    return str(site.getusersitepackages())


def to_json(value: object) -> str:
    """Return a value as JSON in ASCII; paths with undecodable bytes keep their lone surrogates."""
    if isinstance(value, dict):
        return "{" + ", ".join(to_json(key) + ": " + to_json(value[key]) for key in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_json, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return '"' + "".join(map(_character, str(value))) + '"'


def _character(char: str) -> str:
    code = ord(char)
    if " " <= char <= "~" and char not in '"\\':
        return char
    if code > 0xFFFF:  # noqa: PLR2004 - JSON spells what lies above as two surrogates
        code -= 0x10000
        return "\\u%04x\\u%04x" % (0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF))
    return "\\u%04x" % code


if __name__ == "__main__":
    # Begin a new line: start-up code may have left one unfinished.
    sys.stdout.write("\n" + sys.argv[1] + to_json(describe()) + sys.argv[1] + "\n")
