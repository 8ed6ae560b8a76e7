"""environment.yml: conda's packages, and those that pip installs after them."""

from __future__ import annotations

import re
from typing import Any

from envcheck.core.errors import InputError
from envcheck.core.facts import Fact, Known, Unknown, normalised
from envcheck.dependency_files import (
    DependencyFormat,
    DependencyList,
    ListedPackage,
    ReadingContext,
    requirement,
)
from envcheck.dependency_files.requirements import RequirementsReader

_NAMES = {"pytorch": "torch", "pytorch-cpu": "torch", "pytorch-gpu": "torch"}
_SPEC = re.compile(r"(?:[\w.-]+(?:/[\w-]+)?::)?(?P<name>[A-Za-z0-9_.-]+?)\s*(?P<bound>[=<>!~ ].*)?")


def read(text: str, where: str, asked: ReadingContext) -> tuple[DependencyList, ...]:
    """The one sheet of an environment file.

    Raises:
        InputError: not YAML, or no list of dependencies; with line and column.
    """
    facts: list[Fact] = []
    conda: dict[str, ListedPackage] = {}
    by_pip: list[Any] = []
    for node in _items(_dependencies(text, where), where):
        if _is_mapping(node):
            by_pip += [value for key, value in node.value if key.value == "pip"]
            continue
        if not isinstance(node.value, str):  # what aliases multiply is never written out
            raise InputError(_place(node, where), "expected a package such as numpy=1.26.4")
        line, told = _package(node.value, _place(node, where))
        facts += told
        if line is not None:
            conda[line.name] = line
    if "torch" in conda and not any(fact.key == "build.torch.cuda" for fact in facts):
        why = "conda chooses the build of torch by the machine it installs on"
        facts.append(Fact("build.torch.cuda", Unknown(why, asked=True), conda["torch"].place))
    python = next((str(fact.value) for fact in facts if fact.key == "python.version"), "")
    reader = RequirementsReader(asked._replace(python=asked.python or ".".join(python.split(".")[:2])))
    for node in by_pip:
        for item in _items(node, where):
            if not isinstance(item.value, str):
                raise InputError(_place(item, where), "expected a requirement such as torch==2.6.0")
            reader.line(item.value, _place(item, where), (where,))
    reader.hashed = False
    sheet = reader.sheet(where, tuple(facts))
    lines = {**conda, **{line.name: line for line in sheet.lines}}
    return (sheet._replace(lines=tuple(lines.values())),)


def _package(text: str, place: str) -> tuple[ListedPackage | None, list[Fact]]:
    """What a conda spec such as `pytorch=2.4.0=py3.11_cuda12.1_cudnn9_0` says."""
    found = _SPEC.fullmatch(text.strip())
    if found is None:
        raise InputError(place, "expected a package such as numpy=1.26.4")
    name, bound = normalised(found["name"]), re.sub(r"\s+", "", found["bound"] or "")
    exact = bound.startswith("==")
    spec, _, build = bound.lstrip("=").partition("=")
    if name == "python" and re.fullmatch(r"3(\.\d+)+", spec):
        return None, [Fact("python.version", Known(spec), place)]
    if name == "pytorch-cuda" and re.fullmatch(r"\d+\.\d+", spec):
        return None, [Fact("build.torch.cuda", Known(spec), place)]
    version = requirement.conda_version(f"{'==' if exact else '='}{spec}") if bound.startswith("=") else ""
    name = _NAMES.get(name, name)
    cuda = re.search(r"cuda(\d+\.\d+)", build) if name == "torch" else None
    told = [Fact("build.torch.cuda", Known(cuda[1]), place)] if cuda else []
    return ListedPackage(name, version, place, "" if version else "no version is pinned"), told


def _dependencies(text: str, where: str) -> Any:
    import yaml

    try:
        root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = f"{where}:{mark.line + 1}:{mark.column + 1}" if mark else where
        raise InputError(place, f"not YAML: {error.problem or 'cannot be read'}") from None
    except (yaml.YAMLError, RecursionError, ValueError):
        raise InputError(where, "not YAML") from None
    for key, value in root.value if _is_mapping(root) else ():
        if key.value == "dependencies":
            return value
    raise InputError(where, "expected a list under dependencies:")


def _items(node: Any, where: str) -> list[Any]:
    if not isinstance(getattr(node, "value", None), list) or _is_mapping(node):
        raise InputError(_place(node, where), "expected a list")
    return list(node.value)


def _is_mapping(node: Any) -> bool:
    return getattr(node, "id", "") == "mapping"


def _place(node: Any, where: str) -> str:
    return f"{where}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def _recognises(name: str) -> bool:
    return name.endswith((".yml", ".yaml"))


LISTING = DependencyFormat("environment.yml", _recognises, read)
