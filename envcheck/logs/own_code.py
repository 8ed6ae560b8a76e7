"""Tell the user's own files from those of libraries, their checkouts and Python, by their paths. Pure."""

from __future__ import annotations

import re
import sys

from envcheck.logs.events import Frame

_OF_LIBRARIES = (
    *("site-packages/", "dist-packages/", "/lib/python", "/pip-install-", "/transformers_modules/"),
    "unsloth_compiled_cache/",  # unsloth writes its copies of the trainers there
)
"""Parts of paths of what is not the user's own code."""

_CONSOLE_SCRIPT = re.compile(r"/bin/[\w-]+$")
"""The file that an installer writes for a command of a package."""

_OF_PYTHON = re.compile(r"(?:(?:^|/)python3\.\d+|^[A-Za-z]:/(?:.*/)?[Ll]ib)/(\w+)(?:\.py$|/)")
"""A module of Python itself, below a path of which the beginning is left out, or on Windows."""

_CHECKED_OUT = (
    *("transformers", "peft", "accelerate", "trl", "datasets", "axolotl", "verl", "openrlhf", "llamafactory"),
    *("swift", "deepspeed", "vllm", "bitsandbytes", "unsloth", "unsloth_zoo", "liger_kernel", "sglang"),
    *("llmtuner", "torchtune", "xtuner", "lmflow", "fastchat", "litgpt", "megatron", "nemo", "lm_eval"),
)
"""Libraries that are often run from a checkout, which counts as the library."""

_IN_CHECKOUT = re.compile(rf"(?:^|/)(?=([\w.-]+)/({'|'.join(_CHECKED_OUT)})/)")
_FROM_ROOT = re.compile(
    rf"({'|'.join(name for name in _CHECKED_OUT if name != 'datasets')})/(?:\w+/)+\w+\.py$"
)
"""A path that begins with a library's own folder, whose beginning was left out or is the current folder."""

_OF_BRANCH = re.compile(r"[-_.](?:main|master|dev|v?\d[\w.]*)$")


def checked_out(file: str) -> str:
    """Return the library in whose checkout a file is: below `src`, `python`, or a folder of its name.

    A path of which a person left the beginning out, `.../transformers/trainer.py`, counts as well.
    """
    if from_root := _FROM_ROOT.match(file):
        return from_root[1]
    for found in _IN_CHECKOUT.finditer(file):
        folder = "".join(filter(str.isalnum, _OF_BRANCH.sub("", found[1]).lower()))
        # ms-swift, Megatron-LM, lm-evaluation-harness
        named = {folder, folder.removeprefix("ms"), folder.removesuffix("lm")}
        named.add(folder.removesuffix("uationharness"))
        if found[1] in ("src", "python", "...") or found[2].replace("_", "") in named:
            return found[2]
    return ""


def own_code(place: Frame | None) -> bool:
    """Return whether a frame is in a file of the user, not in one of a library or of the interpreter."""
    if place is None or place.file.startswith("<"):
        return False
    file = place.file.replace("\\", "/")
    if _CONSOLE_SCRIPT.search(file) or is_pythons_own(file):
        return False
    return not any(part in f"/{file}" for part in _OF_LIBRARIES) and not checked_out(file)


def is_pythons_own(file: str) -> bool:
    """Return whether a file is a module of Python's standard library, or none on disk."""
    found = _OF_PYTHON.search(file.replace("\\", "/"))
    return file.startswith("<") or (found is not None and found[1] in sys.stdlib_module_names)
