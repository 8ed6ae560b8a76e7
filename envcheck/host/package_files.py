"""Files that come with envcheck: in its package, in a checkout, or compiled into the wheel by the build."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from envcheck.host.files import READ_LIMIT, folder_texts, read_file

_PACKAGE = Path(__file__).resolve().parent.parent
_SHIPPED = _PACKAGE / "shipped"  # exists only in a wheel


def shipped_text(name: str) -> str | None:
    """Return a file that the build wrote into the package (`judging.json`); None in a checkout."""
    path = _SHIPPED / name
    return read_file(path, limit=64 * READ_LIMIT).decode() if path.is_file() else None


def changed_files() -> list[str] | None:
    """Return the files that differ from what the build wrote, or are missing; None in a checkout."""
    digests = shipped_text("digests.json")
    if digests is None:
        return None if shipped_text("source.json") is None else ["digests.json"]
    import json

    return [name for name, digest in json.loads(digests).items() if _digest(_SHIPPED / name) != digest]


def _digest(path: Path) -> str:
    import hashlib  # only `--version -v` needs it

    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def package_folder(name: str) -> Path:
    """Return the path of a folder inside the package: scripts for the target's interpreter."""
    return _PACKAGE / name


def package_text(name: str) -> str:
    """Return the text of a file inside the package."""
    return read_file(_PACKAGE / name).decode()


def source_texts(folder: str, suffix: str, stem: str = "", excluded: Collection[str] = ()) -> dict[str, str]:
    """Return the texts of a top-level folder of the checkout, or of its copy in the wheel.

    Names, `stem` and `excluded` are those of `folder_texts`. Empty if neither folder exists.
    """
    for base in (_SHIPPED / folder, _PACKAGE.parent / folder):
        if base.is_dir():
            return folder_texts(base, suffix, stem, excluded)
    return {}


def text_of(folder: str, name: str) -> str:
    """Return a text file of a folder of compat/ by its name without an ending, or an empty text."""
    shipped = shipped_text(f"{folder}/{name}.json")
    if shipped is None:
        return source_texts(f"compat/{folder}", ".txt", name).get(f"{name}.txt", "")
    import json

    return str(json.loads(shipped))
