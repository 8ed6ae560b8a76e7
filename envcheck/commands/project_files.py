"""Find the files that a configuration names: beside it, in the current folder, above it in its project."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from envcheck.core.errors import InputError
from envcheck.host.files import is_file, path_exists, read_file, resolve_links

_LARGEST = 1 << 20  # bytes of a program or script
_HIGHEST = 6  # folders above a file that are searched
_CONFIGURATIONS = (
    ".json", ".yaml", ".yml", ".toml", ".txt", ".tpl", ".template", ".tmpl", ".in", ".j2", ".envsubst",
)  # fmt: skip
_SHORTEST_END = 2  # parts of a path that identify a file of the project
_TOP = (".git", "pyproject.toml", "setup.py", "setup.cfg", "requirements.txt", "LICENSE")
"""What the top folder of a project contains; of several folders with one of these, the nearest counts."""


class ProjectFiles:
    """Files that a configuration in a folder may name."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._texts: dict[str, str | None] = {}

    def find(self, name: Path, started_in: str = "") -> Path:
        """Return the path of a named file, or the name itself if there is no such file.

        A launch script is started from some folder of its project, usually the top one. So a file is searched
        for beside the file that names it, in the current folder, and in the folders above, up to the top of
        the project. `started_in` is the folder that the script changes to before it names the file; it shows
        where the script is started.

        An absolute path of another machine stands for the file of the project that it ends with.
        """
        if started_in and not name.is_absolute():
            inside = started_in / name
            places = (Path(), self.folder, *self._upwards)
            possible = [each / inside for each in places]
            possible += self._ends(inside) if inside.is_absolute() else ()
            found = next((each for each in possible if is_file(each)), None)
            if found is not None:
                return found
        beside = self.folder / name
        if is_file(beside) or is_file(name):
            return beside if is_file(beside) else name
        several = self._ends(name) if name.is_absolute() else (above / name for above in self._project(name))
        return next((path for path in several if is_file(path)), name)

    def text(self, name: str) -> str | None:
        """Return the text of a named file, or None; it is read once.

        A configuration that a script copies or edits is read only if it is in the project: nothing of another
        file of this machine may come into a report that way.
        """
        if name not in self._texts:
            self._texts[name] = self._read(name)
        return self._texts[name]

    def _read(self, name: str) -> str | None:
        path = self.find(Path(name))
        if path.is_absolute() and name.endswith(_CONFIGURATIONS) and not self._is_inside(path):
            return None
        try:
            return read_file(path, _LARGEST).decode("utf-8", "replace") if is_file(path) else None
        except InputError:
            return None

    def _is_inside(self, path: Path) -> bool:
        """Return whether a file is in the project, or in the current folder."""
        around = {Path(resolve_links(self.folder)), Path(resolve_links(Path())), *self._above}
        return not around.isdisjoint(Path(resolve_links(path)).parents)

    def _ends(self, name: Path) -> Iterator[Path]:
        """Yield where the project may have the file that an absolute path names, the longest end first."""
        parts = name.parts[1:]
        for start in range(len(parts) - _SHORTEST_END + 1):
            end = Path(*parts[start:])
            yield from (folder / end for folder in (self.folder, Path(), *self._project(end)))

    def _project(self, name: Path) -> Sequence[Path]:
        """Return the folders above this one that belong to its project, the nearest first.

        If nothing shows where the project begins, the folder above may have what a path such as
        `configs/train.yaml` names; a single name there could be that of anything.
        """
        if not self._above and len(name.parts) > 1:
            return self._upwards[:1]
        return self._above

    @cached_property
    def _upwards(self) -> tuple[Path, ...]:
        """Return the nearest folders above this one."""
        return tuple(Path(resolve_links(self.folder)).parents)[:_HIGHEST]

    @cached_property
    def _above(self) -> tuple[Path, ...]:
        """Return the folders above this one up to the top of its project, or to the current one if higher."""
        upwards = (Path(resolve_links(self.folder)), *self._upwards)
        current = Path(resolve_links(Path()))
        highest = upwards.index(current) if current in upwards else 0
        for number, folder in enumerate(upwards):
            if any(path_exists(folder / mark) for mark in _TOP):
                highest = max(highest, number)
                break
        return upwards[1 : highest + 1]
