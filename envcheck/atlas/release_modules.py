"""The modules of one release: which exist, in which form, and the summary of each."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from envcheck.atlas.python_file import read_python_file
from envcheck.atlas.release import PublishedRelease
from envcheck.atlas.summary import FileSummary, ImportOrigin


class ModuleForm(Enum):
    """Form of a module in a release; UNSEEN: the content is not stored, FOLDER: no `__init__`."""

    SOURCE = "source"
    STUB = "stub"
    UNSEEN = "unseen"
    FOLDER = "folder"


_FORMS = (
    ("/__init__.py", ModuleForm.SOURCE),
    (".py", ModuleForm.SOURCE),
    ("/__init__.pyi", ModuleForm.STUB),
    (".pyi", ModuleForm.STUB),
)
_REGISTERING = (b"sys.modules", b"sys.meta_path")
_DEEPEST_REGISTERING_FILE = 2


@dataclass
class ReleaseModules:
    """Modules below the import names of one release.

    Attributes:
        release: the release.
        tops: its import names, `("peft",)`.
        cache: file summaries by digest, kept by the caller.

    """

    release: PublishedRelease
    tops: tuple[str, ...]
    cache: MutableMapping[str, FileSummary] = field(default_factory=dict)
    _summaries: dict[str, FileSummary | None] = field(default_factory=dict)

    @cached_property
    def held(self) -> frozenset[str]:
        """Return the paths of the files whose content is stored."""
        return frozenset(self.release.files.names())

    @cached_property
    def unseen(self) -> frozenset[str]:
        """Return the modules whose content is not stored: shared libraries and left-out sources."""
        return frozenset(
            "/".join((*path.split("/")[:-1], path.rsplit("/", 1)[-1].split(".")[0]))
            .removesuffix("/__init__")
            .replace("/", ".")
            for path in self.release.others
            if path.endswith((".so", ".pyd", ".dylib", ".py"))
        )

    @cached_property
    def folders(self) -> frozenset[str]:
        """Return the folders, as dotted paths."""
        paths = (*self.held, *self.release.others)
        return frozenset(
            path[:end].replace("/", ".") for path in paths for end, letter in enumerate(path) if letter == "/"
        )

    def owns(self, path: str) -> bool:
        """Return whether a dotted path lies in this release."""
        return path.split(".", 1)[0] in self.tops

    def form(self, module: str) -> ModuleForm | None:
        """Return the form of a module, or None if the release does not have it."""
        found = self._find(module)
        if found is not None and found[1] is ModuleForm.SOURCE:
            return ModuleForm.SOURCE
        if module in self.unseen:
            return ModuleForm.UNSEEN
        if found is not None:
            return found[1]
        return ModuleForm.FOLDER if module in self.folders else None

    def path(self, module: str) -> str:
        """Return the file of a module, or an empty text."""
        found = self._find(module)
        return found[0] if found else ""

    def _find(self, module: str) -> tuple[str, ModuleForm] | None:
        base = module.replace(".", "/")
        return next(((base + end, form) for end, form in _FORMS if base + end in self.held), None)

    def is_package(self, module: str) -> bool:
        """Return whether a module is a folder with an `__init__`."""
        return self.path(module).rsplit("/", 1)[-1].startswith("__init__.")

    def summary(self, module: str) -> FileSummary | None:
        """Return the summary of a module's file; None if the file is not stored."""
        if module not in self._summaries:
            path = self.path(module)
            self._summaries[module] = (
                read_python_file(
                    self.release.files.read(path), package=self.is_package(module), cache=self.cache
                )
                if path
                else None
            )
        return self._summaries[module]

    def absolute(self, module: str, origin: ImportOrigin) -> str:
        """Return the dotted module that an import inside `module` names."""
        return self.resolve(module, origin.level, origin.module)

    def resolve(self, module: str, level: int, name: str) -> str:
        """Return the dotted module for `name` with this number of leading dots, seen from `module`."""
        if level == 0:
            return name
        parts = module.split(".") if self.is_package(module) else module.split(".")[:-1]
        parts = parts[: len(parts) - (level - 1)]
        return ".".join([*parts, name] if name else parts)

    @cached_property
    def registered(self) -> frozenset[str]:
        """Return the words of every file near the root that puts modules into `sys.modules`."""
        words: set[str] = set()
        for path in sorted(self.held):
            shallow = path.count("/") <= _DEEPEST_REGISTERING_FILE and path.split("/")[0] in self.tops
            if not shallow or not path.endswith(".py"):
                continue
            content = self.release.files.read(path)
            if any(word in content for word in _REGISTERING):
                module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                summary = self.summary(module)
                words |= summary.registers if summary else frozenset()
        return frozenset(words)

    def below(self, module: str) -> Sequence[str]:
        """Return the source modules below a package, except packages themselves."""
        start = module.replace(".", "/") + "/"
        return [
            path[:-3].replace("/", ".")
            for path in sorted(self.held)
            if path.startswith(start) and path.endswith(".py") and not path.endswith("/__init__.py")
        ]
