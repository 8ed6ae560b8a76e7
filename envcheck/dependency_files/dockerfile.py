"""Dockerfile: the packages that the tag of the base image implies and that `RUN` installs, stage by stage.

Nothing is executed: the effects of scripts and loops in a `RUN`, and variables that only the build sets, stay
unknown.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence

from envcheck.core.environment_variables import variables
from envcheck.core.errors import InputError
from envcheck.core.facts import Fact, Known, Unknown, is_package_key, normalised
from envcheck.dependency_files import DependencyFormat, DependencyList, ListedPackage, ReadingContext
from envcheck.dependency_files.parsing.dockerfile_syntax import (
    Instruction,
    ShellWord,
    assignments,
    commands,
    instructions,
    split,
    substituted,
)
from envcheck.dependency_files.parsing.install_commands import (
    FILE_OPTIONS,
    INDEX_OPTIONS,
    installer,
    pip_arguments,
)
from envcheck.dependency_files.parsing.requirement_collector import RequirementCollector

_MOST_STAGES = 100  # each becomes a list that is checked


def read(text: str, where: str, context: ReadingContext) -> tuple[DependencyList, ...]:
    """Return a dependency list for every stage.

    Raises:
        InputError: there is no FROM, there are too many stages, or an installed file has a mistake.
    """
    stages: dict[str, _Stage] = {}
    global_args: dict[str, str] = {}
    stage: _Stage | None = None
    for instruction in instructions(text, where):
        if instruction.name == "FROM":
            if len(stages) >= _MOST_STAGES:
                raise InputError(instruction.place, f"more than {_MOST_STAGES} stages")
            image, alias = _image_and_alias(instruction, global_args)
            stage = _Stage(alias or f"stage {len(stages) + 1}", where, context, global_args)
            stage.start_from(image, stages.get(image.text.lower()))
            stages[stage.name] = stage
        elif stage is not None:
            stage.take(instruction)
        elif instruction.name == "ARG":
            global_args |= assignments(instruction, global_args, global_args)
    if not stages:
        raise InputError(where, "expected a FROM: not a Dockerfile")
    return tuple(
        stage.dependency_list(where if len(stages) == 1 else f"{where} ({stage.name})")
        for stage in stages.values()
    )


def _image_and_alias(instruction: Instruction, global_args: Mapping[str, str]) -> tuple[ShellWord, str]:
    """Return the image of a FROM, and the name after `AS` or "". Raises InputError."""
    words = [word for word in split(instruction) if not word.text.startswith("--")]
    if not words:
        raise InputError(instruction.place, "FROM names no image")
    image, alias = words[0], ""
    match [word.text for word in words[1:]]:
        case [keyword, name, *_] if keyword.lower() == "as":
            alias = name.lower()
        case _:
            pass
    return image._replace(text=substituted(image.text, global_args)), alias


class _Stage:
    """What is known of one stage after the instructions read so far."""

    def __init__(
        self, name: str, where: str, context: ReadingContext, global_args: Mapping[str, str]
    ) -> None:
        self.name, self.where, self.global_args = name, where, global_args
        self.collector = RequirementCollector(context)
        self.collector.hashed = False
        self.facts: dict[str, Fact] = {}
        self.variables: dict[str, str] = {}
        self.folder = "/"
        self.copied: list[tuple[tuple[str, ...], str]] = []  # sources and their target

    def start_from(self, image: ShellWord, base: _Stage | None) -> None:
        """Start with the content of another stage, or with the facts that the tag of an image gives."""
        if base is not None:
            self.collector.packages = dict(base.collector.packages)
            self.collector.other_index = base.collector.other_index
            self.collector.build_label = base.collector.build_label
            self.facts, self.variables = dict(base.facts), dict(base.variables)
            self.folder, self.copied = base.folder, list(base.copied)
        else:
            for key, value in image_facts(image.text, self.collector.context.tables.get("image", [])):
                if is_package_key(key):
                    self.collector.packages[key[4:]] = ListedPackage(key[4:], value, image.place)
                else:
                    self.facts[key] = Fact(key, Known(value), image.place)
        self._use_python_of_image()

    def _use_python_of_image(self) -> None:
        """Evaluate markers for the Python of the image, unless the caller named another one."""
        python = self.facts.get("python.version")
        if python is not None and not self.collector.context.python:
            minor = ".".join(str(python.value).split(".")[:2])
            self.collector.context = self.collector.context._replace(python=minor)

    def take(self, instruction: Instruction) -> None:
        """Update the stage by one instruction."""
        known = {**self.variables}
        match instruction.name:
            case "ARG":
                self.variables |= assignments(instruction, known, self.global_args)
            case "ENV":
                given = assignments(instruction, known, {})
                self.variables |= given
                self.facts |= {fact.key: fact for fact in _environment(given, instruction.place)}
            case "WORKDIR":
                folder = substituted(instruction.text.strip().strip("\"'"), known)
                self.folder = posixpath.join(self.folder, folder)
            case "COPY" | "ADD":
                self._copy(instruction, known)
            case "RUN":
                self._run(instruction, known)
            case _:
                pass

    def _copy(self, instruction: Instruction, known: Mapping[str, str]) -> None:
        words = [substituted(word.text, known) for word in split(instruction)]
        if any(word.startswith("--from") for word in words):
            return  # the files come from another stage or image, not from the build context
        words = [word for word in words if not word.startswith("--")]
        if len(words) > 1:
            self.copied.append((tuple(words[:-1]), posixpath.join(self.folder, words[-1])))

    def _run(self, instruction: Instruction, known: Mapping[str, str]) -> None:
        folder, copied = self.folder, list(self.copied)  # a `cd` and a mount apply to this RUN only
        for flag in re.findall(r"--mount=(\S+)", instruction.text):
            fields = dict(part.partition("=")[::2] for part in flag.split(","))
            target = fields.get("target") or fields.get("dst") or fields.get("destination")
            if target and "from" not in fields:
                self.copied.append(((fields.get("source") or fields.get("src") or ".",), target))
        for command in commands(instruction):
            words = [word._replace(text=substituted(word.text, known)) for word in command]
            if len(words) > 1 and words[0].text == "cd":
                self.folder = posixpath.join(self.folder, words[1].text)
            else:
                self._run_command(words)
        self.folder, self.copied = folder, copied

    def _run_command(self, words: Sequence[ShellWord]) -> None:
        verb, arguments = installer(words)
        if verb == "pip install":
            self._pip_install(arguments)
        elif verb == "pip uninstall":
            self._forget_versions(arguments, "it is uninstalled here")
        elif verb == "conda install":
            self._forget_versions(arguments, "conda installs it, which is not followed in a Dockerfile")

    def _forget_versions(self, words: Sequence[ShellWord], why: str) -> None:
        for word in words:
            if not word.text.startswith("-"):
                self._forget_version(word, why)

    def _forget_version(self, word: ShellWord, why: str) -> None:
        """Record that the version of the package that a word names is no longer known."""
        found = re.match(r"(?:[\w.-]+::)?([A-Za-z0-9][A-Za-z0-9._-]*)", word.text)
        if found:
            name = normalised({"pytorch": "torch"}.get(found[1], found[1]))
            self.collector.packages[name] = ListedPackage(name, "", word.place, why)
            if name == "torch":
                self.facts.pop("build.torch.cuda", None)

    def _pip_install(self, words: Sequence[ShellWord]) -> None:
        torch_before = self.collector.packages.get("torch")
        arguments = pip_arguments(words)
        for option, word in arguments.options:
            if option in FILE_OPTIONS:
                self._requirements_file(word, constraint=option in ("-c", "--constraint"))
        for word in arguments.requirements:
            if set("$*?{}") & set(word.text):
                self._forget_version(word, "its value is known only to the shell of the build")
            elif word.text not in (".", "./"):
                self.collector.add(word.text, word.place, upgrade=arguments.upgrade)
        if self.collector.packages.get("torch") != torch_before:
            self.facts.pop("build.torch.cuda", None)
            self.collector.other_index, self.collector.build_label = "", ""
            for option, word in arguments.options:
                if option in INDEX_OPTIONS:
                    self.collector.add_index(f"{option} {word.text}", word.place)

    def _requirements_file(self, word: ShellWord, *, constraint: bool) -> None:
        """Read the file that `pip install -r` or `-c` names, if it comes from the build context."""
        if "://" in word.text:  # not repeated, because it may contain a login
            self.collector.remarks.append(f"{word.place}: a file at an address is not fetched")
            return
        path = posixpath.normpath(posixpath.join(self.folder, word.text))
        for name in self._origins(path):
            try:
                full_name, text = self.collector.context.text_of(name, self.where)
            except InputError:
                continue
            self.collector.add_file(text, full_name, (self.where,), constraint=constraint)
            return
        self.collector.remarks.append(
            f"{word.place}: {word.text[:80]} is not among the files copied from here: not read"
        )

    def _origins(self, path: str) -> Iterator[str]:
        """Yield the files that a path in the image may be copied from, the latest copy first."""
        for sources, target in reversed(self.copied):
            is_folder = target.endswith("/") or len(sources) > 1
            for source in sources:
                if posixpath.normpath(target) == path and not is_folder:
                    yield source
                below = posixpath.relpath(path, posixpath.normpath(target))
                if not below.startswith(".."):
                    yield source if posixpath.basename(source) == below else posixpath.join(source, below)

    def dependency_list(self, name: str) -> DependencyList:
        """Return the dependency list of the stage."""
        return self.collector.dependency_list(name, tuple(self.facts.values()))


def _environment(given: Mapping[str, str], place: str) -> Iterator[Fact]:
    """Yield the facts on what an ENV sets; a value that names an unknown variable is unknown."""
    unknown = Unknown("its value is known only to the build")
    yield from variables({name: unknown if "$" in value else value for name, value in given.items()}, place)


# --- the base image ---------------------------------------------------------------------------------


def image_facts(image: str, rows: Sequence[Mapping[str, object]]) -> Iterator[tuple[str, str]]:
    """Yield the facts (key, value) that the tag of an image gives according to the table `image`."""
    name, _, tag = image.partition("@")[0].rpartition(":")
    name = name.removeprefix("docker.io/").removeprefix("library/")
    for row in rows:
        if row["name"] != name:
            continue
        parts = re.split(r"(\{[^}]*\}|\*)", str(row["tag"]))
        keys = [part[1:-1] for part in parts if part.startswith("{")]
        pattern = "".join(_tag_pattern(part) for part in parts)
        if found := re.fullmatch(pattern, tag):
            yield from zip(keys, found.groups(), strict=True)
            return


def _tag_pattern(part: str) -> str:
    """Return the regular expression of `*`, of a `{fact}` (a version), or of literal text."""
    if part == "*":
        return ".+"
    return r"([0-9]+(?:\.[0-9]+)+)" if part.startswith("{") else re.escape(part)


def _recognises(name: str) -> bool:
    return re.fullmatch(r"(?:.+\.)?(?:Docker|Container)file(?:\..+)?", name, re.IGNORECASE) is not None


LISTING = DependencyFormat("Dockerfile", _recognises, read)
