"""Dockerfile: what the base image's tag tells, and what `RUN pip install` adds, stage by stage.

Nothing is run: a script that a `RUN` calls, a loop, a variable that only the build sets stay unknown.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from envcheck.core.errors import InputError
from envcheck.core.facts import Fact, Known, is_package_key, normalised
from envcheck.dependency_files import DependencyFormat, DependencyList, ListedPackage, ReadingContext
from envcheck.dependency_files.requirements import RequirementsReader


class ShellWord(NamedTuple):
    """A word of an instruction, and where it stands."""

    text: str
    place: str


class Instruction(NamedTuple):
    """One instruction: its name in capitals, where it begins, its text with a place for every character."""

    name: str
    place: str
    text: str
    places: tuple[str, ...]

    def at(self, offset: int) -> str:
        """The place of a character of the text."""
        return self.places[min(offset, len(self.places) - 1)] if self.places else self.place


def read(text: str, where: str, asked: ReadingContext) -> tuple[DependencyList, ...]:
    """A sheet for every stage.

    Raises:
        InputError: there is no FROM, or a file it copies and installs has a mistake.
    """
    stages: dict[str, _Stage] = {}
    outside: dict[str, str] = {}
    stage: _Stage | None = None
    for each in instructions(text, where):
        if each.name == "FROM":
            words = [word for word in split(each) if not word.text.startswith("--")]
            if not words:
                raise InputError(each.place, "FROM names no image")
            image = words[0]._replace(text=substituted(words[0].text, outside))
            alias = words[2].text.lower() if len(words) > 2 and words[1].text.lower() == "as" else ""  # noqa: PLR2004
            stage = _Stage(alias or f"stage {len(stages) + 1}", where, asked, outside)
            stage.begin(image, stages.get(image.text.lower()))
            stages[stage.name] = stage
        elif stage is None:
            if each.name == "ARG":
                outside |= assignments(each, outside, outside)
        else:
            stage.take(each)
    if not stages:
        raise InputError(where, "expected a FROM: not a Dockerfile")
    return tuple(
        each.sheet(where if len(stages) == 1 else f"{where} ({each.name})") for each in stages.values()
    )


class _Stage:
    """What is known of one stage while its instructions are read."""

    def __init__(self, name: str, where: str, asked: ReadingContext, outside: Mapping[str, str]) -> None:
        self.name, self.where, self.outside = name, where, outside
        self.reader = RequirementsReader(asked)
        self.reader.hashed = False
        self.facts: dict[str, Fact] = {}
        self.variables: dict[str, str] = {}
        self.folder = "/"
        self.copied: list[tuple[tuple[str, ...], str]] = []

    def begin(self, image: ShellWord, base: _Stage | None) -> None:
        """Start from another stage, or from what an image's tag tells."""
        if base is not None:
            self.reader.lines = dict(base.reader.lines)
            self.reader.elsewhere, self.reader.label = base.reader.elsewhere, base.reader.label
            self.facts, self.variables = dict(base.facts), dict(base.variables)
            self.folder, self.copied = base.folder, list(base.copied)
            self._python()
            return
        for key, value in image_facts(image.text, self.reader.asked.tables.get("image", [])):
            if is_package_key(key):
                self.reader.lines[key[4:]] = ListedPackage(key[4:], value, image.place)
            else:
                self.facts[key] = Fact(key, Known(value), image.place)
        self._python()

    def _python(self) -> None:
        said = self.facts.get("python.version")
        if said is not None and not self.reader.asked.python:
            python = ".".join(str(said.value).split(".")[:2])
            self.reader.asked = self.reader.asked._replace(python=python)

    def take(self, each: Instruction) -> None:
        """Read one instruction."""
        known = {**self.variables}
        match each.name:
            case "ARG":
                self.variables |= assignments(each, known, self.outside)
            case "ENV":
                self.variables |= assignments(each, known, {})
            case "WORKDIR":
                self.folder = posixpath.join(self.folder, substituted(each.text.strip().strip("\"'"), known))
            case "COPY" | "ADD":
                self._copy(each, known)
            case "RUN":
                self._run(each, known)
            case _:
                pass

    def _copy(self, each: Instruction, known: Mapping[str, str]) -> None:
        words = [substituted(word.text, known) for word in split(each)]
        if any(word.startswith("--from") for word in words):
            return  # of another stage or image: not from here
        words = [word for word in words if not word.startswith("--")]
        if len(words) > 1:
            self.copied.append((tuple(words[:-1]), posixpath.join(self.folder, words[-1])))

    def _run(self, each: Instruction, known: Mapping[str, str]) -> None:
        copied = list(self.copied)
        for flag in re.findall(r"--mount=(\S+)", each.text):
            fields = dict(part.partition("=")[::2] for part in flag.split(","))
            target = fields.get("target") or fields.get("dst") or fields.get("destination")
            if target and "from" not in fields:
                self.copied.append(((fields.get("source") or fields.get("src") or ".",), target))
        folder = self.folder
        for command in commands(each):
            words = [word._replace(text=substituted(word.text, known)) for word in command]
            if len(words) > 1 and words[0].text == "cd":
                self.folder = posixpath.join(self.folder, words[1].text)
            else:
                self._command(words)
        self.folder, self.copied = folder, copied

    def _command(self, words: Sequence[ShellWord]) -> None:
        verb, rest = installer(words)
        if verb == "pip install":
            self._pip(rest)
        elif verb == "pip uninstall":
            for word in rest:
                if not word.text.startswith("-"):
                    self._unknown(word, "it is uninstalled here")
        elif verb == "conda install":
            for word in rest:
                if not word.text.startswith("-"):
                    self._unknown(word, "conda installs it, which is not followed in a Dockerfile")

    def _unknown(self, word: ShellWord, why: str) -> None:
        found = re.match(r"(?:[\w.-]+::)?([A-Za-z0-9][A-Za-z0-9._-]*)", word.text)
        if found:
            name = normalised({"pytorch": "torch"}.get(found[1], found[1]))
            self.reader.lines[name] = ListedPackage(name, "", word.place, why)
            if name == "torch":
                self.facts.pop("build.torch.cuda", None)

    def _pip(self, words: Sequence[ShellWord]) -> None:
        before = self.reader.lines.get("torch")
        given = arguments(words)
        for option, word in given.options:
            if option in _FILES:
                self._file(word, limit=option in ("-c", "--constraint"))
        for word in given.wanted:
            if set("$*?{}") & set(word.text):
                self._unknown(word, "only the shell of the build knows what it stands for")
            elif word.text not in (".", "./"):
                self.reader.one(word.text, word.place, upgrade=given.upgrade)
        if self.reader.lines.get("torch") != before:
            self.facts.pop("build.torch.cuda", None)
            self.reader.elsewhere, self.reader.label = "", ""
            for option, word in given.options:
                if option in _INDEXES:
                    self.reader.index(f"{option} {word.text}", word.place)

    def _file(self, word: ShellWord, *, limit: bool) -> None:
        if "://" in word.text:  # which may hold a login
            self.reader.remarks.append(f"{word.place}: a file at an address is not fetched")
            return
        path = posixpath.normpath(posixpath.join(self.folder, word.text))
        for name in self._origins(path):
            try:
                full, text = self.reader.asked.text_of(name, self.where)
            except InputError:
                continue
            self.reader.file(text, full, (self.where,), limit=limit)
            return
        self.reader.remarks.append(
            f"{word.place}: {word.text[:80]} is not among the files copied from here: not read"
        )

    def _origins(self, path: str) -> Iterator[str]:
        """Where a file of the image may come from, the latest copy first."""
        for sources, target in reversed(self.copied):
            for source in sources:
                folder = target.endswith("/") or len(sources) > 1
                if posixpath.normpath(target) == path and not folder:
                    yield source
                under = posixpath.relpath(path, posixpath.normpath(target))
                if not under.startswith(".."):
                    yield source if posixpath.basename(source) == under else posixpath.join(source, under)

    def sheet(self, name: str) -> DependencyList:
        """The stage as a sheet."""
        return self.reader.sheet(name, tuple(self.facts.values()))


_FILES = ("-r", "--requirement", "-c", "--constraint")
_INDEXES = ("-i", "--index-url", "--extra-index-url", "-f", "--find-links")
_FLAGS = frozenset(
    {"--no-deps", "--pre", "--user", "--isolated", "--require-hashes", "--system", "--no-index"}
)
_VALUELESS = (
    "-q",
    "-v",
    "--no-",
    "--force",
    "--ignore",
    "--break",
    "--use-",
    "--disable",
    "--quiet",
    "--verbose",
    "--compile",
)
"""Options of `pip install` that take no value; every other one takes its value from the next word."""


class Arguments(NamedTuple):
    """What a `pip install` is given: requirements, options with their values, whether it upgrades."""

    wanted: tuple[ShellWord, ...]
    options: tuple[tuple[str, ShellWord], ...]
    upgrade: bool


def arguments(words: Sequence[ShellWord]) -> Arguments:
    """The arguments of a `pip install` or `uv pip install`."""
    wanted: list[ShellWord] = []
    options: list[tuple[str, ShellWord]] = []
    upgrade = False
    left = list(words)
    while left:
        word = left.pop(0)
        name, equals, value = word.text.partition("=")
        if not word.text.startswith("-"):
            wanted.append(word)
        elif word.text in ("-U", "--upgrade"):
            upgrade = True
        elif equals:
            options.append((name, ShellWord(value, word.place)))
        elif re.match(r"-[rcfi][^-\s]", word.text):
            options.append((word.text[:2], ShellWord(word.text[2:], word.place)))
        elif not (name in _FLAGS or name.startswith(_VALUELESS)) and left:
            options.append((name, left.pop(0)))
    return Arguments(tuple(wanted), tuple(options), upgrade)


def installer(words: Sequence[ShellWord]) -> tuple[str, Sequence[ShellWord]]:
    """What a command installs with (`pip install`, `pip uninstall`, `conda install`), and its arguments."""
    for number, word in enumerate(words):
        program = word.text.rpartition("/")[2]
        kind = "pip" if re.fullmatch(r"pip[0-9.]*", program) else ""
        kind = "conda" if program in ("conda", "mamba", "micromamba") else kind
        if kind:
            rest = list(words[number + 1 :])
            while rest and rest[0].text.startswith("-"):
                rest.pop(0)
            verb = rest[0].text if rest else ""
            return (f"{kind} {verb}", rest[1:]) if verb in ("install", "uninstall") else ("", ())
        if not _before_an_installer(word.text):
            return "", ()
    return "", ()


def _before_an_installer(word: str) -> bool:
    program = word.rpartition("/")[2]
    prefix = program in ("sudo", "exec", "env", "time", "uv", "-m", "!", "{", "then", "do", "else", "if")
    return prefix or word.startswith("-") or re.match(r"[A-Za-z_]\w*=|python[0-9.]*$", program) is not None


def image_facts(image: str, rows: Sequence[Mapping[str, object]]) -> Iterator[tuple[str, str]]:
    """The facts that an image's tag tells by the table `image`."""
    name, _, tag = image.partition("@")[0].rpartition(":")
    name = name.removeprefix("docker.io/").removeprefix("library/")
    for row in rows:
        if row["name"] != name:
            continue
        parts = re.split(r"(\{[^}]*\}|\*)", str(row["tag"]))
        keys = [part[1:-1] for part in parts if part.startswith("{")]
        pattern = "".join(_of_tag(part) for part in parts)
        if found := re.fullmatch(pattern, tag):
            yield from zip(keys, found.groups(), strict=True)
            return


def _of_tag(part: str) -> str:
    if part == "*":
        return ".+"
    return r"([0-9]+(?:\.[0-9]+)+)" if part.startswith("{") else re.escape(part)


_HEREDOC = re.compile(r"(?:^|\s)\d*<<-?[\"']?([A-Za-z_]\w*)[\"']?(?=\s|$)")

# --- text → instructions → words --------------------------------------------------------------------


def instructions(text: str, where: str) -> Iterator[Instruction]:
    """Every instruction with its continued lines and here-documents; comments are gone."""
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").split("\n")
    number = 0
    while number < len(lines):
        if not lines[number].strip() or lines[number].lstrip().startswith("#"):
            number += 1
            continue
        chars: list[str] = []
        places: list[str] = []
        number = _logical(lines, number, where, chars, places)
        whole = "".join(chars)
        name = whole.split(None, 1)[0]
        for mark in _HEREDOC.findall(whole) if name.upper() in ("RUN", "COPY", "ADD") else ():
            number = _heredoc(lines, number, mark, where, chars, places)
        whole = "".join(chars) if name.upper() == "RUN" else whole  # the text of a file is no instruction
        start = len(name) + len(whole[len(name) :]) - len(whole[len(name) :].lstrip())
        yield Instruction(name.upper(), places[0], whole[start:], tuple(places[start:]))


def _logical(lines: Sequence[str], number: int, where: str, chars: list[str], places: list[str]) -> int:
    """Append a line and those that continue it; the number of the line behind them."""
    while number < len(lines):
        line = lines[number]
        if chars and line.lstrip().startswith(
            "#"
        ):  # Docker leaves comments out, also between continued lines
            number += 1
            continue
        continued = re.search(r"\\[ \t]*$", line)
        body = line[: continued.start()] if continued else line
        indent = 0 if chars else len(body) - len(body.lstrip())
        for column, char in enumerate(body[indent:], indent + 1):
            chars.append(char)
            places.append(f"{where}:{number + 1}:{column}")
        chars.append(" " if continued else "")
        places.append(f"{where}:{number + 1}:{len(body) + 1}")
        number += 1
        if not continued:
            break
    if chars[-1:] == [""]:
        chars.pop()
        places.pop()
    return number


def _heredoc(
    lines: Sequence[str], number: int, mark: str, where: str, chars: list[str], places: list[str]
) -> int:
    if mark not in (line.strip() for line in lines[number:]):
        return number  # what looked like one was none
    while number < len(lines):
        line = lines[number]
        number += 1
        if line.strip() == mark:
            break
        for column, char in enumerate(f"\n{line}"):
            chars.append(char)
            places.append(f"{where}:{number}:{max(column, 1)}")
    return number


def split(each: Instruction) -> list[ShellWord]:
    """The words of an instruction that is no shell: blanks part them, JSON's list is one too."""
    if each.text.lstrip().startswith("["):
        try:
            listed = json.loads(each.text)
        except ValueError:
            listed = None
        if isinstance(listed, list) and all(isinstance(word, str) for word in listed):
            return [ShellWord(word, each.at(max(each.text.find(word), 0))) for word in listed]
    found = re.finditer(r"(?:\"[^\"]*\"|'[^']*'|\S)+", each.text)
    return [ShellWord(match[0].replace('"', "").replace("'", ""), each.at(match.start())) for match in found]


_SHELL = re.compile(
    r"""(?P<end>&&|\|\||[;|&()\n])|(?P<word>(?:\\.|"(?:\\.|[^"\\])*"|'[^']*'|\$\{[^}]*\}|[^\s;|&()\\"'])+)"""
)
_REDIRECTED = re.compile(r"\d*(?:>>?|<)&?")


def commands(each: Instruction) -> Iterator[list[ShellWord]]:
    """The commands of a RUN, each as its words; quotes are taken off, variables are left."""
    if each.text.lstrip().startswith("["):
        yield split(each)
        return
    words: list[ShellWord] = []
    comment = False
    for match in _SHELL.finditer(each.text):
        comment = (comment or (match["word"] or "").startswith("#")) and match["end"] != "\n"
        if match["end"] and not comment:
            yield words
            words = []
        if match["end"] or comment:
            continue
        plain = re.sub(r"\\(.)", r"\1", match["word"].replace('"', "").replace("'", ""))
        if plain.startswith("--mount=") or _REDIRECTED.match(plain):
            continue
        words.append(ShellWord(plain, each.at(match.start())))
    yield words


def assignments(each: Instruction, known: Mapping[str, str], outside: Mapping[str, str]) -> dict[str, str]:
    """What an ARG or ENV sets; a bare `ARG NAME` takes what was set before the first FROM."""
    words = [word.text for word in split(each)]
    if each.name == "ENV" and len(words) > 1 and "=" not in words[0]:
        return {words[0]: substituted(" ".join(words[1:]), known)}
    found = {}
    for word in words:
        name, equals, value = word.partition("=")
        if equals:
            found[name] = substituted(value, known)
        elif name in outside:
            found[name] = outside[name]
    return found


def substituted(text: str, known: Mapping[str, str]) -> str:
    """The text with `$NAME`, `${NAME}` and `${NAME:-default}` replaced where that is known."""

    def value(match: re.Match[str]) -> str:
        name, default = match["braced"] or match["plain"], match["default"]
        return known.get(name) or (default if default is not None else known.get(name, match[0]))

    return re.sub(r"\$(?:\{(?P<braced>\w+)(?::-(?P<default>[^}]*))?\}|(?P<plain>[A-Za-z_]\w*))", value, text)


def _recognises(name: str) -> bool:
    return re.fullmatch(r"(?:.+\.)?(?:Docker|Container)file(?:\..+)?", name, re.IGNORECASE) is not None


LISTING = DependencyFormat("Dockerfile", _recognises, read)
