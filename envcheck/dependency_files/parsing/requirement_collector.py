"""Collect the packages that requirements files and `pip install` commands install."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from envcheck.core import versions
from envcheck.core.errors import InputError
from envcheck.core.facts import Absent, Fact, Known, Reading, Unknown
from envcheck.dependency_files import ANY_RELEASE, DependencyList, ListedPackage, ReadingContext
from envcheck.dependency_files.parsing.requirement import read_requirement
from envcheck.dependency_files.parsing.requirement_lines import Entry, expand, expanded_entries

_INDEX_OPTION = re.compile(r"(?:--index-url|--extra-index-url|--find-links|-i|-f)\b")
_ONLY_INDEX = re.compile(r"(?:--index-url|-i)\b")
_BUILD_LABEL = re.compile(r"/whl/(cu\d{3}|cpu)/?\s*$")
"""The end of the address of a PyTorch index or of its mirror: it names the builds on that index."""


_OF_PYTORCH = frozenset({"torch", "torchvision", "torchaudio"})


class RequirementCollector:
    """Requirements collected one after the other; a later pin replaces an earlier one.

    `other_index` is the place of an option that names an index other than the default one. `build_label`
    (`cu118`, `cpu`) names the builds on it if it is an index of PyTorch that replaces the default one.
    `label_beside` says whether an index of PyTorch is used in addition to another one, and `hashed` whether
    every requirement so far has a hash.
    """

    def __init__(self, context: ReadingContext) -> None:
        """Start without any requirement."""
        self.context = context
        self.packages: dict[str, ListedPackage] = {}
        self.constraints: dict[str, ListedPackage] = {}
        self.remarks: list[str] = []
        self.other_index = ""
        self.build_label = ""
        self.label_beside = False
        self.hashed = True

    def add_file(
        self, text: str, where: str, included_by: tuple[str, ...] = (), *, constraint: bool = False
    ) -> None:
        """Add the entries of a file and of those it includes. Raises InputError."""
        found = expanded_entries(
            text, where, self.context.text_of, included_by=included_by, constraint=constraint
        )
        for entry in found:
            self._add_entry(entry)

    def add_line(self, entry: Entry) -> None:
        """Add a line from a file of another format. Raises InputError."""
        for found in expand(entry, self.context.text_of, (entry.file,)):
            self._add_entry(found)

    def _add_entry(self, entry: Entry) -> None:
        if entry.includes_address:
            self.remarks.append(f"{entry.place}: a file at an address is not fetched")
        else:
            self.add(entry.text, entry.place, constraint=entry.constraint)

    def add(self, text: str, place: str, *, constraint: bool = False, upgrade: bool = False) -> None:
        """Add one requirement, or one option of a requirements file.

        A requirement without a version keeps an earlier pin, except with `upgrade`.

        Raises:
            InputError: the text is not a requirement.
        """
        if text.startswith("-"):
            self._add_option(text, place)
            return
        try:
            package = read_requirement(text, place, self.context)
        except ValueError as error:
            raise InputError(place, str(error)) from None
        if package is None:
            if any(mark in text for mark in ("://", "/", "\\")) or text.startswith("."):
                self.remarks.append(f"{place}: a path or an address, whose package is not known")
        elif constraint:
            self.constraints[package.name] = package
        else:
            self.hashed = self.hashed and "--hash" in text
            if package.version or package.name not in self.packages or upgrade:
                self.packages[package.name] = package

    def _add_option(self, option: str, place: str) -> None:
        if _INDEX_OPTION.match(option):
            self.add_index(option, place)
        elif re.match(r"(?:-e|--editable)\b", option):
            self.remarks.append(f"{place}: a checkout, whose package and version are not known")

    def add_index(self, option: str, place: str) -> None:
        """Record an option that names an index, such as `--index-url ADDRESS` or `-i=ADDRESS`."""
        self.other_index = self.other_index or place
        label = _BUILD_LABEL.search(option)
        if label and _ONLY_INDEX.match(option):
            self.build_label = label[1]
        self.label_beside = self.label_beside or (bool(label) and not _ONLY_INDEX.match(option))

    def dependency_list(self, name: str, facts: tuple[Fact, ...] = ()) -> DependencyList:
        """Return everything that was collected.

        A constraint gives the version that a requirement leaves open. The list is whole if every requirement
        has a hash, because pip then requires hashes for all packages.
        """
        packages = tuple(self._of_index(self._constrained(one)) for one in self.packages.values())
        return DependencyList(
            name,
            packages,
            (*facts, *self._torch_build(packages, facts)),
            whole=bool(packages) and self.hashed,
            remarks=tuple(self.remarks),
        )

    def _constrained(self, package: ListedPackage) -> ListedPackage:
        """Return a package with the version of its constraint, or with the ranges of both."""
        constraint = self.constraints.get(package.name)
        if constraint is None or package.version:
            return package
        if constraint.version:
            return constraint
        both = ",".join(
            one for one in (package.specifier, constraint.specifier) if one and one != ANY_RELEASE
        )
        both = both or package.specifier
        return package._replace(specifier=both)

    def _of_index(self, package: ListedPackage) -> ListedPackage:
        """Return a package with the range that remains on PyTorch's own index.

        The index for cu118, for example, ends with the last torch that was built for cu118. If the index is
        used in addition to another one, the release is not known: pip takes the newest release of both, and
        uv takes one from the first index.
        """
        if package.version or package.name not in _OF_PYTORCH or not package.specifier:
            return package
        if self.label_beside:
            return package._replace(specifier="", why="another index may hold other releases of it")
        if package.name != "torch" or self.build_label in ("", "cpu"):
            return package
        rows = self.context.tables.get("variant", ())
        built = [str(row["torch"]) for row in rows if row.get("tag") == self.build_label]
        newest = max(built, key=versions.order, default="")
        bounds = [
            package.specifier if package.specifier != ANY_RELEASE else "",
            f"<={newest}" if newest else "",
        ]
        return package._replace(specifier=",".join(filter(None, bounds)) or package.specifier)

    def _torch_build(self, packages: Sequence[ListedPackage], facts: Sequence[Fact]) -> Iterator[Fact]:
        """Yield the CUDA of torch's build if another index is named.

        That index may hold a build for another CUDA under the same version.
        """
        unlabelled = any(
            package.name == "torch" and (package.version or package.specifier) and "+" not in package.version
            for package in packages
        )
        known = any(fact.key == "build.torch.cuda" for fact in facts)
        if not unlabelled or not self.other_index or known or self.hashed:
            return
        reading: Reading = Unknown("another index may hold another build of the same release")
        if self.build_label == "cpu":
            reading = Absent()
        elif self.build_label:
            reading = Known(f"{self.build_label[2:-1]}.{self.build_label[-1]}")  # cu118 is CUDA 11.8
        yield Fact("build.torch.cuda", reading, self.other_index)
