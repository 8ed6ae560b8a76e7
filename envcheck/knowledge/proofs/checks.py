"""Apply a check to the published files of one release."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, Protocol

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from envcheck.core import versions
from envcheck.knowledge.proofs.declaration import ReadCheck

SEEN_LIMIT = 120
"""Characters of a line that a record keeps."""

_MARKERS = {
    "implementation_name": "cpython",
    "os_name": "posix",
    "platform_machine": "x86_64",
    "platform_python_implementation": "CPython",
    "platform_system": "Linux",
    "python_full_version": "3.11.9",
    "python_version": "3.11",
    "sys_platform": "linux",
}
"""The environment that requirements are read for."""


class OpenedRelease(Protocol):
    """Published files of one release, by their path inside its wheel."""

    def text(self, name: str) -> str | None:
        """Return the text of a file; None if the release has no such file."""

    def requires(self) -> Sequence[str]:
        """Return the texts of Requires-Dist."""

    def wheels(self) -> Sequence[str]:
        """Return the names of all wheels of the release."""


class Sight(NamedTuple):
    """Whether something was found, and the line or name that shows it."""

    found: bool
    seen: str


def look(check: ReadCheck, release: OpenedRelease) -> Sight:
    """Return whether everything that a true-or-false check names was found.

    Raises:
        ValueError: a file cannot be parsed, and the check needs its functions.
    """
    sights = [*_in_files(check, release), *_names(check, release)]
    sights += _wheels(check, release)
    missed = next((sight for sight in sights if not sight.found), None)
    return missed or Sight(True, "; ".join(dict.fromkeys(sight.seen for sight in sights)))


def bound(check: ReadCheck, release: OpenedRelease) -> str | None:
    """Return the specifier that a release demands of the check's partner; None if it demands nothing."""
    if check.requires:
        required = _required(check, release)
        return _lowest(required) if check.lowest and required else required
    found = [m[1] for m in re.finditer(check.names_bound, _text(check, release) or "", re.MULTILINE)]
    return f">={found[0]}" if found else None


def _required(check: ReadCheck, release: OpenedRelease) -> str | None:
    specifiers = []
    for text in release.requires():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        if canonicalize_name(requirement.name) == check.requires and (
            marker is None or marker.evaluate({**_MARKERS, "extra": check.extra})
        ):
            specifiers.append(str(requirement.specifier))
    if not specifiers:
        return None
    return ",".join(sorted({part for text in specifiers for part in text.split(",") if part}))


def _lowest(specifier: str) -> str | None:
    """Return the lower end of a specifier; None if it has none."""
    ends = [part.lstrip("=>~ ") for part in specifier.split(",") if part.strip()[:2] in (">=", "==", "~=")]
    return f">={max(ends, key=versions.order)}" if ends else None


# --- texts ------------------------------------------------------------------------------------------


def _text(check: ReadCheck, release: OpenedRelease) -> str | None:
    """Return the text that a check is about; None if no such file exists."""
    texts = [text for name in check.files if (text := release.text(name)) is not None]
    if not texts:
        return None
    if not check.scope:
        return "\n".join(texts)
    return "\n".join(segment for text in texts for segment in _segments(text, check.scope.split(".")))


def _in_files(check: ReadCheck, release: OpenedRelease) -> list[Sight]:
    if not check.files or check.names_bound:
        return []
    text = _text(check, release)
    absent = f"no {' or '.join(check.files)}"
    if text is None:
        wanted = [*check.has, *check.keywords]
        return [Sight(not wanted, absent)]
    if check.scope and not text:
        absent = f"no {check.scope}"
    sights = [_found(expression, text, absent) for expression in check.has]
    for expression in check.lacks:
        sight = _found(expression, text, absent)
        sights.append(Sight(not sight.found, sight.seen if sight.found else f"no {expression}"))
    parameters = _parameters(text) if check.keywords or check.lacks_keywords else frozenset()
    sights += [
        Sight(name in parameters, f"{check.scope}({name}=)" if name in parameters else f"no {name}=")
        for name in check.keywords
    ]
    sights += [
        Sight(name not in parameters, f"{check.scope}({name}=)" if name in parameters else f"no {name}=")
        for name in check.lacks_keywords
    ]
    return sights


def _found(expression: str, text: str, absent: str) -> Sight:
    match = re.search(expression, text, re.MULTILINE)
    if match is None:
        return Sight(False, absent if not text else f"no {expression}"[:SEEN_LIMIT])
    start = text.rfind("\n", 0, match.start()) + 1
    if not match[0].strip() or start > match.start():
        start = match.start()
    end = text.find("\n", match.start() if match[0][:1] != "\n" else match.end())
    return Sight(True, " ".join(text[start : end if end >= 0 else None].split())[:SEEN_LIMIT])


@lru_cache(maxsize=32)
def _parsed(text: str) -> ast.Module:
    """Return the tree of a text; several checks of a release ask for the same file."""
    return ast.parse(text)


def _segments(text: str, path: Sequence[str]) -> list[str]:
    """Return the sources of the functions or classes of a dotted path; several if it is defined twice."""
    try:
        nodes: list[ast.AST] = [_parsed(text)]
    except SyntaxError as error:
        raise ValueError(f"cannot be parsed: {error}") from None
    for name in path:
        nodes = [child for node in nodes for child in _definitions(node) if child.name == name]
    return [segment for node in nodes if (segment := ast.get_source_segment(text, node))]


_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def _definitions(node: ast.AST) -> list[_Definition]:
    """Return the definitions directly inside a node, also those under `if`, `try` and `with`."""
    found: list[_Definition] = []
    for child in ast.iter_child_nodes(node):
        if isinstance(child, _Definition):
            found.append(child)
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            found += _definitions(child)
    return found


def _parameters(text: str) -> frozenset[str]:
    """Return the parameters of the functions in a text, which begins with one."""
    import textwrap

    tree = ast.parse(textwrap.dedent(text))
    names = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            names |= {argument.arg for argument in every}
    return frozenset(names)


# --- names and wheels -------------------------------------------------------------------------------


def _names(check: ReadCheck, release: OpenedRelease) -> list[Sight]:
    sights = []
    for names, wanted in ((check.names, True), (check.lacks_names, False)):
        for name in names:
            offered = _offers(name, release)
            sights.append(Sight(offered is wanted, name if offered else f"no {name}"))
    return sights


def _offers(name: str, release: OpenedRelease) -> bool:
    """Return whether a release has a module of this name, or a module with it at its top level."""
    module, _, last = name.rpartition(".")
    if module_text(name, release) is not None:
        return True
    text = module_text(module, release)
    if text is None:
        return False
    try:
        tree = _parsed(text)
    except SyntaxError as error:
        raise ValueError(f"{module} cannot be parsed: {error}") from None
    return last in _top_level_names(tree)


def module_text(module: str, release: OpenedRelease) -> str | None:
    """Return the text of a module; None if the release has no such module."""
    path = module.replace(".", "/")
    for name in (f"{path}/__init__.py", f"{path}.py", f"{path}/__init__.pyi", f"{path}.pyi"):
        if (text := release.text(name)) is not None:
            return text
    return None


def _top_level_names(tree: ast.AST) -> set[str]:
    """Return the names that a module binds, and those in the tables of lazily imported packages."""
    names: set[str] = set()
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, _Definition):
            names.add(child.name)
        elif isinstance(child, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in child.names}
        elif isinstance(child, ast.Assign | ast.AnnAssign | ast.AugAssign | ast.Expr):
            nodes = list(ast.walk(child))
            names |= {each.id for each in nodes if isinstance(each, ast.Name)}
            names |= {str(each.value) for each in nodes if isinstance(each, ast.Constant)}
        elif isinstance(child, ast.stmt | ast.ExceptHandler):
            names |= _top_level_names(child)
    return names


def _wheels(check: ReadCheck, release: OpenedRelease) -> list[Sight]:
    sights = []
    for expression, wanted in ((check.wheels, True), (check.lacks_wheels, False)):
        if expression:
            name = next((name for name in release.wheels() if re.search(expression, name)), "")
            seen = name or f"none of {len(release.wheels())} wheels is {expression}"
            sights.append(Sight(bool(name) is wanted, seen))
    return sights
