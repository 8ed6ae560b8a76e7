"""The modules of one release: which exist, in which form, and the summary of each."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property

from envcheck.atlas.aliases import UNREAD
from envcheck.atlas.patched_modules import PatchedNames, patched_names
from envcheck.atlas.python_file import read_python_file
from envcheck.atlas.release import PublishedRelease
from envcheck.atlas.summary import OWN_NAME, FileSummary, ImportOrigin, ModuleAlias


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
_REGISTERING = re.compile(
    rb"""
    sys\.modules\[(?!__name__\])[^=\n]*=(?!=)        # sys.modules[name] = module
    | sys\.modules\[\s*\n[^=]*=(?!=)                # the same on several lines
    | sys\.modules\.(?!(?:get|keys|items|values|pop)\b)
    | sys\.meta_path\.
    """,
    re.VERBOSE,
)
"""What a file contains that puts modules into `sys.modules` under names other than its own."""

_OWN_PLACE = b"sys.modules[__name__]"
_DEEPEST_REGISTERING_FILE = 2
_DEEPEST_PATCHING_FILE = 3


@dataclass(frozen=True)
class _OldNames:
    """Old names of modules, each with its target: by name, and as patterns for names read in part."""

    exact: Mapping[str, str]
    patterns: tuple[tuple[re.Pattern[str], str], ...] = ()

    def target(self, module: str) -> str | None:
        """Return what an old name stands for, empty if unknown; None if it is none of these."""
        if module in self.exact:
            return self.exact[module]
        return next((target for pattern, target in self.patterns if pattern.fullmatch(module)), None)


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
    _aliases: dict[str, str | None] = field(default_factory=dict)
    _own_names: dict[str, _OldNames] = field(default_factory=dict)

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
        form = self._own_form(module)
        if form is not None:
            return form
        alias = self.alias(module)
        return None if alias is None else self._own_form(alias) or ModuleForm.UNSEEN

    def _own_form(self, module: str) -> ModuleForm | None:
        """Return the form of a module that has a file or folder of this name."""
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
        found = self._find(module) or self._find(self.alias(module) or "")
        return found[0] if found else ""

    def alias(self, module: str) -> str | None:
        """Return the module that an old name stands for, empty if unknown; None if there is no such name.

        A name below an old one stands for the same name below its target.
        """
        if module not in self._aliases:
            self._aliases[module] = None  # ends the recursion while the files are read
            self._aliases[module] = self._alias(module)
        return self._aliases[module]

    def _alias(self, module: str) -> str | None:
        parts = module.split(".")
        if parts[0] not in self.tops:
            return None
        for end in range(len(parts), 1, -1):
            old, rest = ".".join(parts[:end]), parts[end:]
            target = self._target(old)
            if target is not None:
                whole = ".".join([target, *rest]) if target else ""
                return whole if whole and self._own_form(whole) is not None else "" if not rest else None
        return None

    def _target(self, old: str) -> str | None:
        found = self._shallow_names.target(old)
        package = old
        while found is None and "." in package:
            found = self._names_of(package).target(old) if self.is_package(package) else None
            package = package.rpartition(".")[0]
        return found

    def _names_of(self, module: str) -> _OldNames:
        """Return the old names that the file of one module serves."""
        if module not in self._own_names:
            summary = self.summary(module)
            self._own_names[module] = self._old_names(((module, summary),) if summary else ())
        return self._own_names[module]

    @cached_property
    def _shallow_names(self) -> _OldNames:
        return self._old_names(self._registering)

    def _old_names(self, files: Iterable[tuple[str, FileSummary]]) -> _OldNames:
        exact: dict[str, str] = {}
        patterns = []
        for module, summary in files:
            for each in summary.aliases:
                alias, target = each.alias.replace(OWN_NAME, module), self._new_name(each, module)
                if each.hooked and (not target or self._own_form(target) is None):
                    continue  # a table of something else
                if alias.rpartition(".")[2] == UNREAD:
                    continue  # that would be every name, as of all that torch copies into `torch._C`
                if UNREAD in alias:
                    pattern = r"\w+".join(re.escape(part) for part in alias.split(UNREAD))
                    patterns.append((re.compile(pattern), target))
                else:
                    exact[alias] = target
        return _OldNames(exact, tuple(patterns))

    def _new_name(self, alias: ModuleAlias, module: str) -> str:
        """Return the dotted target of an old name that a module serves."""
        target = alias.target.replace(OWN_NAME, module)
        name = target.lstrip(".")
        return self.resolve(module, len(target) - len(name), name) if target else ""

    def replacement(self, module: str) -> str | None:
        """Return what a module puts in its own place: a module, empty if unknown; None if nothing."""
        return self._names_of(module).target(module)

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
        module = module if self._find(module) else self.alias(module) or module
        parts = module.split(".") if self.is_package(module) else module.split(".")[:-1]
        parts = parts[: len(parts) - (level - 1)]
        return ".".join([*parts, name] if name else parts)

    @cached_property
    def registered(self) -> frozenset[str]:
        """Return the words of the files near the root that put modules of unread names into `sys.modules`."""
        return frozenset(word for _, summary in self._registering for word in summary.registers)

    @cached_property
    def _registering(self) -> tuple[tuple[str, FileSummary], ...]:
        """Return the files near the root that put modules into `sys.modules`, by module."""
        return tuple(self._registering_files())

    def _registering_files(self) -> Iterator[tuple[str, FileSummary]]:
        for path in sorted(self.held):
            shallow = path.count("/") <= _DEEPEST_REGISTERING_FILE and path.split("/")[0] in self.tops
            if not shallow or not path.endswith(".py"):
                continue
            content = self.release.files.read(path)
            # What a package puts in its own place is read when the package is asked for.
            itself = _OWN_PLACE in content and not path.endswith("/__init__.py")
            if itself or _REGISTERING.search(content):
                module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                summary = self.summary(module)
                if summary is not None:
                    yield module, summary

    @cached_property
    def patched(self) -> tuple[PatchedNames, ...]:
        """Return the names that the files near the root put into other modules."""
        found: list[PatchedNames] = []
        for path in sorted(self.held):
            if path.count("/") <= _DEEPEST_PATCHING_FILE and path.endswith(".py"):
                module = path.removesuffix(".py").replace("/", ".")
                found += patched_names(self.release.files.read(path), module, self.tops)
        return tuple(found)

    def below(self, module: str) -> Sequence[str]:
        """Return the source modules below a package, except packages themselves."""
        start = module.replace(".", "/") + "/"
        return [
            path[:-3].replace("/", ".")
            for path in sorted(self.held)
            if path.startswith(start) and path.endswith(".py") and not path.endswith("/__init__.py")
        ]
