"""Configuration of the documentation, built by `python -m sphinx -W -b html docs OUT` without a network.

A block whose language is `{envcheck}` is replaced by a page of tools/write_reference.py or by one
rule, so that no document repeats what the knowledge contains.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "tools"))

import write_reference

from envcheck import __version__

project = "envcheck"
author = "the envcheck authors"
version = release = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 3
html_theme = "alabaster"
html_theme_options = {"description": "Will it train?", "page_width": "64rem", "fixed_sidebar": True}
html_static_path = ["static"]
html_css_files = ["wrap.css"]
html_show_sourcelink = False
html_copy_source = False

_BLOCK = re.compile(r"^```\{envcheck\} (?P<words>.+)\n```$", re.MULTILINE)


def _filled(_app: object, _name: str, source: list[str]) -> None:
    source[0] = _BLOCK.sub(lambda block: "\n".join(write_reference.page(*block["words"].split())), source[0])


def _all(_app: object, env: Any, *_changes: object) -> Iterable[str]:
    """Rebuild every document: the knowledge that they include is in no file that Sphinx watches."""
    return sorted(env.found_docs)


def setup(app: Any) -> None:
    """Register the replacement and the rebuild with Sphinx."""
    app.connect("source-read", _filled)
    app.connect("env-get-outdated", _all)
