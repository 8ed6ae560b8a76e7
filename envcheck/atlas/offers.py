"""What a release offers to others: modules, names in modules and dotted attributes; yes, no or unknown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from envcheck.atlas.conditions import ALWAYS, Condition, Surroundings, all_of, any_of, decide
from envcheck.atlas.data_types import is_data_type, listed_types
from envcheck.atlas.entries import is_exclusive
from envcheck.atlas.predicates import GuardReader
from envcheck.atlas.release_modules import ModuleForm, ReleaseModules
from envcheck.atlas.summary import FileSummary, Guards, ImportOrigin
from envcheck.core.facts import Tri


class OfferAnswer(Enum):
    """Whether a release offers something."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    """Its `__getattr__` raises for this very name, which it has dropped."""
    STUB = "stub"
    """Only a stub lists it, so it is made in C: another release may have it without listing it."""


class Way(Enum):
    """How a module comes to have a name."""

    BOUND = "bound"
    LAZY = "lazy"
    SUBMODULE = "submodule"
    STUB = "stub"
    UNKNOWN = "unknown"
    REFUSED = "refused"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Found:
    """Where a name of a module comes from.

    Attributes:
        way: how the module has it.
        module: the module of the same release that is imported when the name is taken; may be empty.
        name: the name in that module; empty for the module itself.
        condition: when the module has it.

    """

    way: Way
    module: str = ""
    name: str = ""
    condition: Condition = ALWAYS


_EVERY_MODULE_HAS = frozenset(
    {
        "__version__",
        "__name__",
        "__file__",
        "__path__",
        "__doc__",
        "__spec__",
        "__all__",
        "__dict__",
        "__package__",
    }
)
_MADE_IN_C = ("torch._C", "torch.ops", "torch.classes", "numpy.core", "numpy._core")
"""Modules whose names are made in C or at run time, whatever their files say."""

_IN_TOP = 2
"""The number of parts in the path of a module directly below an import name.

Another distribution may install such a module too."""

_STUBS = {"torch": ("torch._C", "torch._C._VariableFunctions")}
"""Stubs that list the names which a package's root copies out of its shared library."""

_ALL_BLOCK = re.compile(r"^__all__\s*(?:\+?=|\.extend\()\s*[\[(](.*?)[\])]", re.DOTALL | re.MULTILINE)
_TEXT = re.compile(r"['\"](\w+)['\"]")
_DEFINITION = re.compile(r"(?:class|def) (\w+)")
_GETTER = "__getattr__"
_MADE_GETTER = re.compile(rf"^{_GETTER} = (\w+)\(", re.MULTILINE)
_PATH_OR_NAME = re.compile(r"['\"](?:[\w.]+:)?(\w+)['\"]")
_NOT_BEFORE = re.compile(r"\(\?!.*?\)")
_FRAGMENT = re.compile(r"[A-Za-z]\w{3,}")


@dataclass
class ReleaseOffers:
    """Offers of one release: modules, names and attributes.

    Attributes:
        modules: the release.
        guards: reads the tests around its bindings.
        beside: the releases beside which those tests are decided.

    """

    modules: ReleaseModules
    guards: GuardReader
    beside: Surroundings = field(default_factory=Surroundings)
    _found: dict[tuple[str, str], Found] = field(default_factory=dict)
    _scanned: dict[str, Mapping[str, str]] = field(default_factory=dict)
    _words: dict[str, frozenset[str] | None] = field(default_factory=dict)

    def module(self, path: str) -> OfferAnswer:
        """Return whether `import path` finds the module."""
        parts = path.split(".")
        for end in range(1, len(parts) + 1):
            part = ".".join(parts[:end])
            form = self.modules.form(part)
            if form is None:
                elsewhere = (end == 1 and not self._is_gone(part)) or (
                    end == _IN_TOP and self.modules.form(parts[0]) is ModuleForm.FOLDER
                )
                return (
                    OfferAnswer.UNKNOWN if elsewhere or self._made_at_run_time(part, path) else OfferAnswer.NO
                )
            if form in (ModuleForm.UNSEEN, ModuleForm.STUB):
                return OfferAnswer.YES if end == len(parts) else OfferAnswer.UNKNOWN
        return OfferAnswer.YES

    def name(self, module: str, name: str) -> OfferAnswer:
        """Return whether `from module import name` works."""
        if module.startswith(_MADE_IN_C):
            return OfferAnswer.UNKNOWN
        there = self.module(module)
        if there is not OfferAnswer.YES:
            return there
        if self.modules.form(module) is not ModuleForm.SOURCE:
            inside = self.modules.form(f"{module}.{name}") is not None
            return OfferAnswer.YES if inside else OfferAnswer.UNKNOWN
        return self._answer(self.find(module, name))

    def plainly(self, module: str) -> bool:
        """Return whether a module binds its names only by statements that can be read."""
        summary = self.modules.summary(module)
        if summary is None or summary.error or self.modules.is_package(module):
            return False
        made_otherwise = summary.lazy or summary.lazy_stars or summary.scans or summary.stars
        return not (
            made_otherwise or _GETTER in summary.bindings or summary.computed or summary.answers is not None
        )

    def attribute(self, path: str) -> OfferAnswer:
        """Return whether a dotted name that begins with the import name can be read after `import`."""
        if path.startswith(_MADE_IN_C):
            return OfferAnswer.UNKNOWN
        module, *rest = path.split(".")
        for name in rest:
            if self.modules.form(module) is not ModuleForm.SOURCE:
                return OfferAnswer.UNKNOWN
            found = self.find(module, name)
            inner = f"{module}.{name}"
            is_module = self.modules.form(inner) is not None and found.way in (
                Way.SUBMODULE,
                Way.BOUND,
                Way.LAZY,
            )
            if not is_module:
                return self._answer(found)
            module = inner
        return OfferAnswer.YES

    def has(self, path: str) -> Tri:
        """Return whether a dotted path exists, as a module or as an attribute."""
        parent, _, name = path.rpartition(".")
        offers = {self.module(path)} if not parent else {self.name(parent, name), self.attribute(path)}
        if OfferAnswer.YES in offers:
            return Tri.YES
        return Tri.NO if offers <= {OfferAnswer.NO, OfferAnswer.REFUSED} else Tri.MAYBE

    def _answer(self, found: Found) -> OfferAnswer:
        match found.way:
            case Way.MISSING:
                return OfferAnswer.NO
            case Way.UNKNOWN:
                return OfferAnswer.UNKNOWN
            case Way.REFUSED:
                return OfferAnswer.REFUSED
            case Way.STUB:
                return OfferAnswer.STUB
            case _:
                met = decide(found.condition, self.beside) is Tri.YES
                return OfferAnswer.YES if met else OfferAnswer.UNKNOWN

    def _is_gone(self, module: str) -> bool:
        """Return whether the release has dropped a top-level module that no other distribution provides."""
        others = (self.modules.form(top) for top in self.modules.tops if top != module)
        return is_exclusive(module) and any(form is not None for form in others)

    def _made_at_run_time(self, module: str, asked: str) -> bool:
        """Return whether the package's own code may put a module without a file into `sys.modules`.

        `asked` is the whole path that is imported, of which `module` is the first part without a file.
        """
        parent, _, name = module.rpartition(".")
        summary = self.modules.summary(parent) if parent else None
        if summary is not None and name in summary.bindings:
            return True
        return any(_may_register(word, module, asked) for word in self.modules.registered)

    def find(self, module: str, name: str) -> Found:
        """Return where a name of a source module comes from."""
        key = (module, name)
        if key not in self._found:
            self._found[key] = Found(Way.UNKNOWN)  # the answer inside a cycle of star imports
            self._found[key] = self._find(module, name)
        return self._found[key]

    def _find(self, module: str, name: str) -> Found:
        summary = self.modules.summary(module)
        if summary is None or summary.error:
            return Found(Way.UNKNOWN)
        if name in summary.bindings:
            return Found(Way.BOUND, condition=self._any_way(summary.bindings[name], module))
        if name in _EVERY_MODULE_HAS:
            return Found(Way.BOUND)
        made = self._made_in_c(module, name)
        if made is not None:
            return made
        starred = self._through_stars(summary, module, name)
        if starred.way is Way.BOUND:
            return starred
        return self._lazily(summary, module, name) or self._submodule(summary, starred, module, name)

    def _made_in_c(self, module: str, name: str) -> Found | None:
        """Return where a name of a root that copies its names out of a library comes from; None if not so."""
        listed = listed_types(self.modules.release.files, module) if is_data_type(module, name) else None
        if listed is not None and name in listed:
            return Found(Way.BOUND)
        if any(name in stub.bindings for stub in self._stubs(module)):
            return Found(Way.STUB)
        return Found(Way.UNKNOWN) if listed is not None and not listed else None

    def _submodule(self, summary: FileSummary, starred: Found, module: str, name: str) -> Found:
        """Return the submodule of this name; if there is none, UNKNOWN or MISSING."""
        if self.modules.is_package(module) and self.modules.form(f"{module}.{name}") is not None:
            return Found(Way.SUBMODULE, f"{module}.{name}")
        if self._refuses(summary, module, name):
            return Found(Way.REFUSED)
        computed = summary.computed and not self._stubs(module)  # the stubs list what such a root computes
        unknown = starred.way is Way.UNKNOWN or computed or name in (summary.answers or ())
        unknown = unknown or self._may_answer(summary, module, name) or self._fills_itself(module)
        unknown = unknown or any(each.may_hold(module, name) for each in self.modules.patched)
        replacement = self.modules.replacement(module)
        if replacement and replacement != module and not unknown:
            return self.find(replacement, name)
        return Found(Way.UNKNOWN if unknown or replacement == "" else Way.MISSING)

    def _refuses(self, summary: FileSummary, module: str, name: str) -> bool:
        """Return whether the `__getattr__` of a module, or the function that makes it, refuses a name."""
        if _GETTER not in summary.bindings:
            return False
        if name in summary.refused:
            return True
        for table in summary.refused_by:
            below = self._origin(summary, module, table)
            if below is not None and name in below.past.get(table, ()):
                return True
        makers = (self._origin(summary, module, each) for each in summary.imports if "getattr" in each)
        return any(below is not None and f"{module}:{name}" in below.refused for below in makers)

    def _origin(self, summary: FileSummary, module: str, local: str) -> FileSummary | None:
        """Return the file of the same release from which a module imports a name."""
        origin = summary.imports.get(local)
        target = self.modules.absolute(module, origin) if origin and origin.name else ""
        return self.modules.summary(target) if target and self.modules.owns(target) else None

    def _may_answer(self, summary: FileSummary, module: str, name: str) -> bool:
        """Return whether a `__getattr__` that another function makes may answer to a name.

        pydantic 2 writes `__getattr__ = getattr_migration(__name__)`, and the module of that function holds
        the moved names: `"pydantic.utils:to_camel"`.
        """
        read = summary.answers is not None or summary.lazy or summary.lazy_stars or summary.scans
        if _GETTER not in summary.bindings or read:
            return False
        if module not in self._words:
            self._words[module] = self._words_of_getter(summary, module)
        words = self._words[module]
        return words is None or name in words

    def _fills_itself(self, module: str) -> bool:
        """Return whether a function of a module, such as `_initialize` of pkg_resources, adds names to it."""
        return not self._stubs(module) and "globals().update(" in self._text(module)

    def _words_of_getter(self, summary: FileSummary, module: str) -> frozenset[str] | None:
        """Return the texts beside a `__getattr__` and in the module that makes it; None if it is not found.

        transformers 5 writes `__getattr__ = deprecate_attr(__name__, rename={"OldName": (New, "5.29.0")})`.
        """
        made = _MADE_GETTER.search(self._text(module))
        origin = summary.imports.get(made[1]) if made else None
        target = self.modules.absolute(module, origin) if origin else ""
        if not self.modules.owns(target) or self.modules.form(target) is not ModuleForm.SOURCE:
            return None
        return frozenset(_PATH_OR_NAME.findall(self._text(target) + self._text(module)))

    def _text(self, module: str) -> str:
        return self.modules.release.files.read(self.modules.path(module)).decode("utf-8", "replace")

    def _stubs(self, module: str) -> list[FileSummary]:
        stubs = (self.modules.summary(each) for each in _STUBS.get(module, ()))
        return [each for each in stubs if each is not None]

    def _any_way(self, ways: tuple[Guards, ...], module: str) -> Condition:
        return any_of(self.guards.together(guards, module) for guards in ways)

    def _through_stars(self, summary: FileSummary, module: str, name: str) -> Found:
        unknown = False
        for star in summary.stars:
            target = self.modules.absolute(module, star)
            below = self.modules.summary(target) if self.modules.owns(target) else None
            if below is None:
                unknown = unknown or not self.modules.owns(target) or self.modules.form(target) is not None
                continue
            if below.exports is not None and name not in below.exports:
                unknown = unknown or below.exports_open or below.computed
                continue
            if below.exports is None and name.startswith("_"):
                continue
            found = self.find(target, name)
            if found.way in (Way.BOUND, Way.LAZY, Way.SUBMODULE, Way.STUB):
                starred = self.guards.together(star.guards, module)
                return Found(Way.BOUND, condition=all_of((starred, found.condition)))
            unknown = unknown or found.way is Way.UNKNOWN
        return Found(Way.UNKNOWN if unknown else Way.MISSING)

    def _lazily(self, summary: FileSummary, module: str, name: str) -> Found | None:
        if name in summary.lazy:
            return self._lazy_name(summary.lazy[name], module)
        if summary.scans:
            target = self._scan(module).get(name, "")
            return Found(Way.LAZY, target, name) if target else None
        for star in summary.lazy_stars:
            target = self.modules.absolute(module, star)
            below = self.modules.summary(target) if self.modules.owns(target) else None
            if below is not None and self._is_public(below, target, name):
                return Found(Way.LAZY, target, name)
        return None

    def _is_public(self, summary: FileSummary, module: str, name: str) -> bool:
        if summary.exports is not None:
            return name in summary.exports
        return not name.startswith("_") and self.find(module, name).way in (
            Way.BOUND,
            Way.LAZY,
            Way.SUBMODULE,
        )

    def _lazy_name(self, origin: ImportOrigin, module: str) -> Found:
        target = self.modules.absolute(module, origin)
        if not self.modules.owns(target):
            return Found(Way.LAZY)
        if not origin.name or target == module:
            whole = target if not origin.name else f"{target}.{origin.name}"
            return Found(Way.SUBMODULE if self.modules.form(whole) is not None else Way.UNKNOWN, whole)
        if self.modules.form(target) is None:
            return Found(Way.UNKNOWN)
        if self.find(target, origin.name).way is Way.MISSING:
            return Found(Way.UNKNOWN)
        return Found(Way.LAZY, target, origin.name)

    def _scan(self, module: str) -> Mapping[str, str]:
        """Return the names in every `__all__` below a package or its `models`, each with its module."""
        if module not in self._scanned:
            root = f"{module}.models" if self.modules.form(f"{module}.models") is not None else module
            names: dict[str, str] = {}
            for below in self.modules.below(root):
                content = self.modules.release.files.read(self.modules.path(below))
                for word in _exported(content):
                    names.setdefault(word, below)
            self._scanned[module] = names
        return self._scanned[module]


def _exported(content: bytes) -> Iterator[str]:
    """Yield the names that `define_import_structure` finds in a file: in `__all__`, and below `@requires`."""
    first = content.find(b"__all__")
    if first >= 0:
        text = content[first:].decode("utf-8", "replace")
        yield from (word for block in _ALL_BLOCK.findall(text) for word in _TEXT.findall(block))
    if b"@requires(" in content or b"@export(" in content:
        yield from _required(content.decode("utf-8", "replace").splitlines())


def _required(lines: Sequence[str]) -> Iterator[str]:
    """Yield the names of definitions below `@requires(...)`, also with other decorators in between."""
    decorated = False
    for line in lines:
        if line.startswith(("@requires(", "@export(")):
            decorated = True
        elif found := _DEFINITION.match(line):
            if decorated:
                yield found[1]
            decorated = False
        elif line and not line.startswith((" ", "@", ")")):
            decorated = False


def _may_register(word: str, module: str, asked: str) -> bool:
    """Return whether a word of code that registers modules names a module or is a pattern for it."""
    if "\\" not in word:
        return word.rsplit(".", 1)[-1] == module.rsplit(".", 1)[-1]
    fragments = _FRAGMENT.findall(_NOT_BEFORE.sub("", word))
    return bool(fragments) and all(each in asked for each in fragments)
