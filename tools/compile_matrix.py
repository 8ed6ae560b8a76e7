"""The build hook: compat/*.toml → two JSON files inside the wheel.

`judging.json` is what doctor and gate load; `releases.json` holds the release rows, which only pin and
matrix need. A mistake in compat/ stops the build.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class CompileMatrix(BuildHookInterface[Any]):
    """Adds the compiled matrix to a wheel; an editable install reads the TOML itself."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the wheel is put together."""
        if version == "editable":
            return
        sys.path.insert(0, self.root)
        try:
            from envcheck import matrix
        finally:
            sys.path.remove(self.root)
        compat = Path(self.root, "compat")
        texts = {
            path.relative_to(compat).as_posix(): path.read_text("utf-8") for path in compat.rglob("*.toml")
        }
        folder = Path(tempfile.mkdtemp(prefix="envcheck-matrix-"))
        for name, tree in zip(
            ("judging.json", "releases.json"), matrix.split(matrix.gather(texts)), strict=True
        ):
            target = folder / name
            target.write_text(json.dumps(tree, separators=(",", ":")), "utf-8")
            build_data["force_include"][str(target)] = f"envcheck/shipped/{name}"
