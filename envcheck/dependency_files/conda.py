"""environment.yml: conda's packages, and those that pip installs after them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from envcheck.core.environment_variables import variables
from envcheck.core.errors import InputError
from envcheck.core.facts import Fact, Known, Unknown, normalised
from envcheck.core.parsing import check_yaml, yaml_error
from envcheck.dependency_files import DependencyFormat, DependencyList, ListedPackage, ReadingContext
from envcheck.dependency_files.parsing.conda_files import NAMES, packages_from_conda
from envcheck.dependency_files.parsing.requirement import conda_version
from envcheck.dependency_files.parsing.requirement_collector import RequirementCollector
from envcheck.dependency_files.parsing.requirement_lines import Entry

_SPEC = re.compile(r"(?:[\w.-]+(?:/[\w-]+)?::)?(?P<name>[A-Za-z0-9_.-]+?)\s*(?P<bound>[=<>!~ ].*)?")


def read(text: str, where: str, context: ReadingContext) -> tuple[DependencyList, ...]:
    """Return the one dependency list of an environment file; what pip installs replaces conda's version.

    Raises:
        InputError: the file is not YAML, or has no list of dependencies; with line and column.
    """
    facts: list[Fact] = []
    conda: dict[str, ListedPackage] = {}
    pip_lists: list[Any] = []
    root = _root(text, where)
    facts += _environment(root.get("variables"), where)
    for node in _items(root["dependencies"], where):
        if _is_mapping(node):
            pip_lists += [value for key, value in node.value if key.value == "pip"]
            continue
        if not isinstance(node.value, str):  # a list; aliases can multiply its size, so do not print it
            raise InputError(_place(node, where), "expected a package such as numpy=1.26.4")
        package, package_facts = _package(node.value, _place(node, where))
        facts += package_facts
        if package is not None:
            conda[package.name] = package
    if "torch" in conda and not any(fact.key == "build.torch.cuda" for fact in facts):
        why = "conda chooses the build of torch by the machine it installs on"
        facts.append(Fact("build.torch.cuda", Unknown(why, asked=True), conda["torch"].place))
    installed_by_pip = _pip_packages(pip_lists, where, context, facts)
    packages = {**conda, **{package.name: package for package in installed_by_pip.lines}}
    made = packages_from_conda(conda.values(), packages, where)
    return (
        installed_by_pip._replace(lines=tuple(packages.values()), facts=(*installed_by_pip.facts, *made)),
    )


def _pip_packages(
    nodes: Sequence[Any], where: str, context: ReadingContext, facts: Sequence[Fact]
) -> DependencyList:
    """Return what the `pip:` lists install, for the Python that conda installs. Raises InputError."""
    python = next((str(fact.value) for fact in facts if fact.key == "python.version"), "")
    minor = ".".join(python.split(".")[:2])
    collector = RequirementCollector(context._replace(python=context.python or minor))
    for node in nodes:
        for item in _items(node, where):
            if not isinstance(item.value, str):
                raise InputError(_place(item, where), "expected a requirement such as torch==2.6.0")
            line, column = item.start_mark.line + 1, item.start_mark.column + 1
            collector.add_line(Entry(item.value, where, line, column))
    collector.hashed = False
    return collector.dependency_list(where, tuple(facts))


def _package(text: str, place: str) -> tuple[ListedPackage | None, list[Fact]]:
    """Return the package and the facts of a conda spec such as `pytorch=2.4.0=py3.11_cuda12.1_cudnn9_0`.

    Raises:
        InputError: the text is not a conda spec.
    """
    found = _SPEC.fullmatch(text.strip())
    if found is None:
        raise InputError(place, "expected a package such as numpy=1.26.4")
    name, bound = normalised(found["name"]), re.sub(r"\s+", "", found["bound"] or "")
    spec, _, build = bound.lstrip("=").partition("=")
    if name == "python" and re.fullmatch(r"3(\.\d+)+", spec):
        return None, [Fact("python.version", Known(spec), place)]
    if name == "pytorch-cuda" and re.fullmatch(r"\d+\.\d+", spec):
        return None, [Fact("build.torch.cuda", Known(spec), place)]
    equals = "==" if bound.startswith("==") else "="
    version = conda_version(f"{equals}{spec}") if bound.startswith("=") else ""
    name = NAMES.get(name, name) or name
    cuda = re.search(r"cuda(\d+\.\d+)", build) if name == "torch" else None
    facts = [Fact("build.torch.cuda", Known(cuda[1]), place)] if cuda else []
    return ListedPackage(name, version, place, "" if version else "no version is pinned"), facts


# --- YAML nodes -------------------------------------------------------------------------------------


def _root(text: str, where: str) -> dict[str, Any]:
    """Return the nodes of the file by their names; `dependencies` is among them. Raises InputError."""
    import yaml

    try:
        check_yaml(text, where)
        root: Any = yaml.compose(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.YAMLError as error:
        raise yaml_error(error, where) from None
    except (RecursionError, ValueError):
        raise InputError(where, "not YAML") from None
    found = {str(key.value): value for key, value in (root.value if _is_mapping(root) else ())}
    if "dependencies" not in found:
        raise InputError(where, "expected a list under dependencies:")
    return found


def _environment(node: Any, where: str) -> Iterator[Fact]:
    """Yield the facts on the variables that conda sets where this environment is active."""
    for key, value in node.value if _is_mapping(node) else ():
        if isinstance(value.value, str):
            yield from variables({str(key.value): value.value}, _place(key, where))


def _items(node: Any, where: str) -> list[Any]:
    """Return the nodes of a list. Raises InputError for any other node."""
    if not isinstance(getattr(node, "value", None), list) or _is_mapping(node):
        raise InputError(_place(node, where), "expected a list")
    return list(node.value)


def _is_mapping(node: Any) -> bool:
    return getattr(node, "id", "") == "mapping"


def _place(node: Any, where: str) -> str:
    return f"{where}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def _recognises(name: str) -> bool:
    return name.endswith((".yml", ".yaml")) and not name.endswith(("conda-lock.yml", "conda-lock.yaml"))


LISTING = DependencyFormat("environment.yml", _recognises, read, r".*(?:environment|conda)[^/]*\.ya?ml")
