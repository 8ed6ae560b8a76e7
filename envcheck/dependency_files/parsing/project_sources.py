"""Where a project's own tools take packages from: `[tool.uv]` with its sources, and poetry's sources.

PyTorch has an index for each CUDA. A project that takes torch from one of them gets another build, and often
an older release, than the default index holds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from envcheck.core import markers
from envcheck.core.facts import normalised
from envcheck.dependency_files import ReadingContext
from envcheck.dependency_files.parsing.requirement import read_requirement
from envcheck.dependency_files.parsing.requirement_collector import RequirementCollector

_OTHER_FOLDER = "it comes from a checkout or a folder, whose version is not known"


class ProjectSources:
    """The sources that a project names for its packages, and the packages that it overrides.

    An index that is not marked as explicit is asked for every package before the default one.
    """

    def __init__(self, tree: Mapping[str, Any], context: ReadingContext) -> None:
        """Read the tables of a parsed pyproject.toml."""
        tool = _table(tree, "tool")
        self._context = context
        self._uv = _table(tool, "uv")
        poetry = _table(tool, "poetry")
        self._indexes = {
            str(row["name"]): row
            for row in (*_rows(self._uv, "index"), *_rows(poetry, "source"))
            if isinstance(row.get("name"), str) and isinstance(row.get("url"), str)
        }
        self._sources: dict[str, list[Mapping[str, Any]]] = {}
        for name, source in _table(self._uv, "sources").items():
            listed = source if isinstance(source, list) else [source]
            self._sources[normalised(name)] = [each for each in listed if isinstance(each, Mapping)]
        for name, value in _table(poetry, "dependencies").items():
            if isinstance(value, Mapping) and isinstance(value.get("source"), str):
                self._sources[normalised(name)] = [{"index": value["source"]}]
        self.overrides = tuple(_texts(self._uv, "override-dependencies"))
        """Requirements that replace all others on the same package."""

    def apply(self, collector: RequirementCollector, part: str) -> None:
        """Give the packages of one part (`extra cu128`, `group dev`, or empty) what their sources decide."""
        place = collector.packages["torch"].place if "torch" in collector.packages else ""
        for address in self._asked_first():
            collector.add_index(f"--index-url {address}", place)
        for name in tuple(collector.packages):
            found = list(self._sources_for(name, part))
            if len({str(source.get("index") or source) for source in found}) == 1:
                self._take(collector, name, found[0])
            elif found and name == "torch":
                collector.label_beside = True  # the Python decides which build it is

    def _take(self, collector: RequirementCollector, name: str, source: Mapping[str, Any]) -> None:
        """Give a package what its only source decides: a build, the version of a wheel, or no version."""
        package = collector.packages[name]
        if "index" in source:
            address = self._indexes.get(str(source["index"]), {}).get("url", "")
            if name == "torch":
                collector.add_index(f"--index-url {address}", package.place)
        elif isinstance(source.get("url"), str) and not package.version:
            wheel = read_requirement(f"{name} @ {source['url']}", package.place, self._context)
            collector.packages[name] = wheel or package
        elif not package.version:
            collector.packages[name] = package._replace(specifier="", why=_OTHER_FOLDER)

    def _asked_first(self) -> Iterator[str]:
        """Yield the addresses of the indexes that are asked for every package."""
        addresses = (self._uv.get("index-url"), *_texts(self._uv, "extra-index-url"))
        yield from (address for address in addresses if isinstance(address, str))
        yield from (row["url"] for row in self._indexes.values() if _is_for_all(row))

    def _sources_for(self, name: str, part: str) -> Iterator[Mapping[str, Any]]:
        """Yield the sources of a package on this machine; several if the Python would decide."""
        for source in self._sources.get(name, ()):
            for kind in ("extra", "group"):
                if kind in source and part != f"{kind} {source[kind]}":
                    break
            else:
                marker = source.get("marker")
                environment = markers.environment(
                    self._context.python or "3.12", architecture=self._context.arch
                )
                if not isinstance(marker, str) or markers.matches(marker, environment) is not False:
                    yield source


def _is_for_all(row: Mapping[str, Any]) -> bool:
    """Return whether an index is asked for every package: uv's unless it is explicit, poetry's if primary."""
    return not row.get("explicit") and row.get("priority", "primary") in ("primary", "default")


def _table(tree: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = tree.get(name)
    return found if isinstance(found, Mapping) else {}


def _rows(tree: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    found = tree.get(name)
    return [row for row in found if isinstance(row, Mapping)] if isinstance(found, list) else []


def _texts(tree: Mapping[str, Any], name: str) -> list[str]:
    found = tree.get(name)
    return [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
