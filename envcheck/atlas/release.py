"""One published release as the readers see it: metadata, Python files, names of its other files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from envcheck.atlas.library_facts import LibraryFacts


class ReleaseFiles(Protocol):
    """Files of one release by their path inside the wheel, such as `peft/__init__.py`.

    Stored are Python files and stubs (`.py`, `.pyi`), `METADATA` and `WHEEL` of the dist-info folder, and
    small JSON files that describe compiled parts. Of all other files only the names are known.
    """

    def names(self) -> Sequence[str]:
        """Return the paths of the files whose bytes are stored."""

    def read(self, name: str) -> bytes:
        """Return the bytes of one stored file.

        Raises:
            KeyError: the file is not stored.

        """


@dataclass(frozen=True, kw_only=True)
class PublishedRelease:
    """One release of one package.

    Attributes:
        package: normalised name, `huggingface-hub`.
        version: as the index spells it, `2.6.0`.
        uploaded: day of the first upload, `2025-01-29`; empty where the index does not say.
        yanked: whether every file of the release was yanked.
        requires_python: the specifier from the metadata; empty where there is none.
        requires: the texts of Requires-Dist, in the order of the metadata.
        others: paths of the files that are not stored: compiled modules, data.
        files: the stored files.
        wheels: names of all wheels of the release, for their Python, ABI and platform tags.
        libraries: what was read from its large libraries, by path.
        requires_known: false where no published file says what the release requires.

    """

    package: str
    version: str
    uploaded: str = ""
    yanked: bool = False
    requires_python: str = ""
    requires: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    files: ReleaseFiles
    wheels: tuple[str, ...] = field(default=())
    requires_known: bool = True
    libraries: Mapping[str, LibraryFacts] = field(default_factory=dict)


Releases: TypeAlias = Mapping[str, Sequence[PublishedRelease]]
"""The releases of each package, by normalised name, oldest version first."""
