"""Store small releases of transformers as `matrix harvest` does."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping
from pathlib import Path


def store_release(
    folder: Path, version: str, auto: str, configurations: str, files: Mapping[str, str]
) -> None:
    """Write one release: its auto classes, its configurations, and files by their path below `models/`."""
    path = folder / "transformers" / f"{version}.zip"
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("release.json", json.dumps({"package": "transformers", "version": version}))
        archive.writestr("transformers/models/auto/modeling_auto.py", auto)
        archive.writestr("transformers/models/auto/configuration_auto.py", configurations)
        for name, text in files.items():
            archive.writestr(f"transformers/models/{name}", text)
