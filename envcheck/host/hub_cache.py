"""Find models of the Hugging Face hub that were downloaded before, in the cache of huggingface_hub.

Layout and variables: https://huggingface.co/docs/huggingface_hub/guides/manage-cache (read on 2026-11-23).
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from envcheck.core.errors import InputError
from envcheck.host.files import read_file

_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def is_repository(name: str) -> bool:
    """Return whether a text is spelled as a model of the hub: `meta-llama/Llama-3.1-8B`."""
    return bool(_REPOSITORY.fullmatch(name)) and ".." not in name and not name.startswith(".")


def cached_model(name: str, environ: Mapping[str, str]) -> Path | None:
    """Return the folder of a model's newest snapshot in the cache; None if it is not there."""
    if not is_repository(name):
        return None
    model = cache_folder(environ) / f"models--{name.replace('/', '--')}"
    try:
        commit = read_file(model / "refs" / "main").decode("ascii", "replace").strip()
    except InputError:
        return None
    folder = model / "snapshots" / commit
    return folder if _COMMIT.fullmatch(commit) and (folder / "config.json").is_file() else None


def cache_folder(environ: Mapping[str, str]) -> Path:
    """Return the folder of the cache, as huggingface_hub chooses it from the environment."""
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if environ.get(variable):
            return _expanded(environ[variable])
    if environ.get("HF_HOME"):
        return _expanded(environ["HF_HOME"]) / "hub"
    cache = environ.get("XDG_CACHE_HOME") or f"{environ.get('HOME', '~')}/.cache"
    return _expanded(cache) / "huggingface" / "hub"


def _expanded(path: str) -> Path:
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path.expanduser raises for an unknown user
