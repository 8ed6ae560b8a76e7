"""`tools/refresh_dynamo.py` reads which Python each torch refuses to compile on, from a store of releases."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

from tests.command.test_tools import tool

ASKS = """\
def check_if_dynamo_supported():
    if sys.platform == "win32":
        raise RuntimeError("Windows not yet supported")
    elif sys.version_info >= ({}):
        raise RuntimeError("not yet supported")
    elif sysconfig.get_config_var("Py_GIL_DISABLED") == 1 and sys.version_info < (3, 13, 3):
        raise RuntimeError("not supported")
"""


def test_releases_that_refuse_the_same_pythons_are_one_row(tmp_path: Path) -> None:
    texts = {"1.13.1": "", "2.4.0": "3, 13", "2.5.0": "3, 13", "2.6.0": "3, 14", "2.7.0": "3, 14"}
    for version, first in texts.items():
        path = tmp_path / "store/torch" / f"{version}.zip"
        path.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("release.json", json.dumps({"package": "torch", "version": version}))
            if first:
                archive.writestr("torch/_dynamo/eval_frame.py", ASKS.format(first))
    table = tmp_path / "dynamo.toml"
    table.write_text("# A comment: it holds in the newest release that was read, 2.6.0.\n")
    arguments = ("refresh_dynamo.py", "--store", str(tmp_path / "store"), "--table", str(table))
    ran = tool(*arguments, "--write")
    assert (ran.code, ran.err) == (0, "")
    assert tool(*arguments).out == ""
    assert table.read_text() == (
        "# A comment: it holds in the newest release that was read, 2.7.0.\n\ndynamo_python = [\n"
        '  { torch = ">=2.4.0,<2.6.0", refuses = "3.13" },\n'
        '  { torch = ">=2.6.0", refuses = "3.14" },\n]\n'
    )
