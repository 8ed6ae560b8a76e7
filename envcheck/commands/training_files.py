"""Read the training configurations that a user names, and the files that these name in turn.

Each is interpreted by its dialect, and all are merged. A file that cannot be read becomes a diagnostic with
its place, and the rest is still judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from envcheck.commands.project_files import ProjectFiles
from envcheck.core.decoding import UTF_16_MARKS
from envcheck.core.errors import InputError, Place
from envcheck.core.facts import Fact, Known, Tri, Unknown
from envcheck.core.findings import UNREADABLE, Diagnostic
from envcheck.core.records import NamedTuple
from envcheck.core.rules import Severity
from envcheck.core.versions import satisfies
from envcheck.host.files import is_file, path_exists, read_file, resolve_links
from envcheck.host.package_files import shipped_text, source_texts, text_of
from envcheck.training_config import dialects, merge, readers, source_lines
from envcheck.training_config.dialects import Dialect, recognised
from envcheck.training_config.document import Document, ProgramSource, Reference, Section, Setting
from envcheck.training_config.hydra_defaults import hydra_defaults
from envcheck.training_config.interpret import Interpretation, understood

_LARGEST = 1 << 20  # bytes of a configuration; the largest seen in practice has a tenth of that
_LARGEST_NOTEBOOK = 1 << 25  # a notebook's size is mostly its cells' images
_LONGEST_NAME = 200  # characters of a file's name that a message quotes
_DEEPEST = 8  # longest chain of files that name one another
_DEEPEST_GROUPS = 3  # groups of Hydra that name one another


class Configured(NamedTuple):
    """Merged facts of all configurations, and diagnostics on them, worst first."""

    facts: tuple[Fact, ...] = ()
    remarks: tuple[Diagnostic, ...] = ()


def configured(
    named: Sequence[str], shared: Iterable[Mapping[str, Any]], installed: Mapping[str, str]
) -> Configured:
    """Read configuration files, and arguments given in place of a file.

    `shared` are the rows that all dialects share, `installed` the known versions by package.

    Raises:
        InputError: none of them could be read.
    """
    if not named:
        return Configured()
    reader = _NamedFileReader(dialects.load(_trees(), shared), installed)
    for name in named:
        reader.read_named(name)
    if not reader.parts:
        unreadable = next(each for each in reader.diagnostics if each.code == UNREADABLE)
        raise InputError(unreadable.places[0], unreadable.text)
    facts, contradictions = merge.merged(reader.parts, reader.unread)
    found = [
        *reader.diagnostics,
        *(each for part in reader.parts for each in part.diagnostics),
        *contradictions,
    ]
    ordered = sorted(source_lines.with_excerpts(found, reader.texts), key=lambda each: -each.severity.rank)
    return Configured(tuple(facts), tuple(ordered))


@cache
def _trees() -> dict[str, Any]:
    """Load compat/dialects by name: JSON in a wheel, TOML in a checkout, which takes half a second."""
    if compiled := shipped_text("dialects.json"):
        import json

        trees: dict[str, Any] = json.loads(compiled)
        return trees
    import tomllib

    texts = source_texts("compat/dialects", ".toml")
    return {Path(name).stem: tomllib.loads(text) for name, text in texts.items()}


class _Naming(NamedTuple):
    """Hold what is known of a file from where it is named; nothing if the user names it.

    `dialect` overrides the one that the file's content suggests, `launch` is the number of the launch, and
    `read_by` the code of the program that is given the file. `given` are the files and models that a command
    line names itself, by the settings of this file that it replaces.
    """

    dialect: str = ""
    launch: int = 0
    read_by: ProgramSource | None = None
    given: frozenset[str] = frozenset()


class _NamedFileReader:
    """Reads files and the files that they name; collects the results in order of precedence.

    `parts` holds the interpreted configurations, `unread` the facts left unknown by a missing or unreadable
    file, `texts` each file's text by its name.
    """

    def __init__(self, known: Mapping[str, Dialect], installed: Mapping[str, str]) -> None:
        self._known, self._installed = known, installed
        self._read: set[tuple[str, int]] = set()
        self._chain: list[str] = []  # the files being read, each named by the one before it
        self._inline = 0
        # files that a script writes, by the launch and their name: the text, or why it is not known
        self._written: dict[tuple[int, str], Document | str] = {}
        self.parts: list[Interpretation] = []
        self.diagnostics: list[Diagnostic] = []
        self.unread: list[tuple[int, Fact]] = []
        self.texts: dict[str, str] = {}

    def read_named(self, named: str) -> None:
        """Read a file or arguments that the user names."""
        try:
            if _is_inline(named):
                self._inline += 1
                number = "" if self._inline == 1 else f" ({self._inline})"
                self._read_text(named, f"--train{number}", Path(), _Naming())
            else:
                self._read_file(Path(named), named, _Naming())
        except InputError as error:
            self.diagnostics.append(Diagnostic(Severity.ERROR, UNREADABLE, error.problem, (error.place,)))

    def _read_file(self, path: Path, name: str, naming: _Naming) -> None:
        """Read a file once for each launch.

        Raises:
            InputError: it cannot be read, or the files name one another in a cycle or too long a chain.
        """
        resolved = resolve_links(path)
        if resolved in self._chain:
            raise InputError(name, "includes itself through the files that it names")
        if (resolved, naming.launch) in self._read:
            return
        if len(self._chain) > _DEEPEST:
            raise InputError(name, f"more than {_DEEPEST} files that name one another")
        self._read.add((resolved, naming.launch))
        data = read_file(path, _LARGEST_NOTEBOOK if name.endswith(".ipynb") else _LARGEST)
        if data.startswith(UTF_16_MARKS):
            raise InputError(name, "UTF-16: save it as UTF-8")
        self._chain.append(resolved)
        try:
            self._read_text(data.decode("utf-8", "replace"), name, path.parent, naming)
        finally:
            self._chain.pop()
        self.diagnostics += _not_utf_8(data, name)

    def _read_text(self, text: str, name: str, folder: Path, naming: _Naming) -> None:
        """Interpret a text, then read the files that it names.

        Raises:
            InputError: it cannot be parsed, or says nothing about training that envcheck knows.
        """
        self.texts[name] = text
        parts: list[Interpretation] = []
        for document in readers.read(text, name, ProjectFiles(folder).text):
            placed = document._replace(
                launch=document.launch or naming.launch, read_by=document.read_by or naming.read_by
            )
            if naming.dialect and document.form in self._known[naming.dialect].forms:
                placed = placed._replace(dialect=naming.dialect)
            placed = self._with_groups(placed, name)
            if placed.form == "yaml" and not placed.launch:
                from envcheck.training_config.readers.yaml_text import with_own_values

                placed = with_own_values(placed)
            placed = self._with_inherited(placed, folder)
            self._note_written(placed)
            placed = self._with_section_files(placed, folder)
            if naming.given:
                kept = tuple(each for each in placed.settings if each.name not in naming.given)
                placed = placed._replace(settings=kept)
            interpreted = understood(placed, self._known, self._installed)
            for part in interpreted:
                for reference in part.references:
                    self._follow(reference, part, folder)
            parts += interpreted
        if not naming.dialect and not any(_says_something(part) for part in parts):
            raise InputError(name, "has no training setting that envcheck knows")
        self.parts += parts

    def _note_written(self, document: Document) -> None:
        """Remember which files a script writes: a document that it writes, or all that a launch names."""
        launch = document.launch
        if document.written_as:
            self._written[launch, document.written_as.removeprefix("./")] = document
        for name in document.written_files:
            self._written.setdefault((launch, name.removeprefix("./")), "")
        for name, why in document.unreadable_files:
            self._written[launch, name.removeprefix("./")] = why

    def _with_groups(self, document: Document, file: str, depth: int = 0) -> Document:
        """Return a document with the files that its `defaults` name; its own settings take precedence.

        A file that is not here is left out: Hydra may find it elsewhere.
        """
        if document.form != "yaml" or depth > _DEEPEST_GROUPS:
            return document
        given = document.names()
        found = []
        for path, package in hydra_defaults(document):
            inside = Path(file).parent / path
            if not is_file(inside):
                continue
            try:
                text = read_file(inside, _LARGEST).decode("utf-8", "replace")
                (part, *_) = readers.read(text, str(inside))
            except InputError:
                continue
            self.texts[str(inside)] = text
            part = self._with_groups(part, str(inside), depth + 1)
            prefix = f"{package}." if package else ""
            if package and package not in given and part.settings:
                place = part.settings[0].name_place
                names = tuple(each.name for each in part.settings if "." not in each.name)
                found.append(Setting(package, Section(names), place, place))
            found += [
                each._replace(name=f"{prefix}{each.name}")
                for each in part.settings
                if f"{prefix}{each.name}" not in given
            ]
        return document._replace(settings=(*found, *document.settings)) if found else document

    def _with_inherited(self, document: Document, folder: Path) -> Document:
        """Return a document with the settings that it inherits from other files; its own take precedence.

        If such a file cannot be read, every setting that the document does not give is unknown.
        """
        dialect = self._dialect_of(document, folder)
        if dialect is None:
            return document
        for name, setting in reversed(_bases(document, dialect)):
            path = ProjectFiles(folder).find(Path(name))
            resolved = resolve_links(path)
            if resolved in self._chain or len(self._chain) > _DEEPEST:
                raise InputError(setting.place, "includes itself through the files that it names")
            try:
                text, parent = _base(path)
            except InputError:
                why = f"{name}, on which {document.file} is built, is not here"
                return document._replace(incomplete=why, dialect=dialect.name)
            self.texts[str(path)] = text
            self._chain.append(resolved)
            try:
                parent = self._with_inherited(parent._replace(dialect=dialect.name), path.parent)
            finally:
                self._chain.pop()
            given = document.names()
            inherited = tuple(each for each in parent.settings if each.name not in given)
            document = document._replace(
                settings=(*inherited, *document.settings),
                incomplete=document.incomplete or parent.incomplete,
                dialect=dialect.name,
            )
        return document

    def _dialect_of(
        self, document: Document, folder: Path, seen: frozenset[str] = frozenset()
    ) -> Dialect | None:
        """Return the dialect of a document; without marks of its own, that of the file on which it is built.

        `seen` are the files that are built on it.
        """
        found = recognised(document, self._known)
        if found is not None or document.form != "yaml" or len(seen) > _DEEPEST:
            return found
        for dialect in self._known.values():
            for name, _ in _bases(document, dialect)[:1]:
                path = ProjectFiles(folder).find(Path(name))
                resolved = resolve_links(path)
                if resolved in seen:
                    continue
                with suppress(InputError):
                    _, parent = _base(path)
                    if self._dialect_of(parent, path.parent, seen | {resolved}) is dialect:
                        return dialect
        return None

    def _with_section_files(self, document: Document, folder: Path) -> Document:
        """Return a document with the settings of each section that it gives as JSON or as a JSON file.

        transformers reads `--fsdp_config fsdp.json` as if the section stood there. Of a file that is not
        here or cannot be read, every setting with a row is unknown.
        """
        given = [each for each in document.settings if _may_be_section(each, document)]
        dialect = recognised(document, self._known) if given else None
        if dialect is None:
            return document
        found: list[Setting] = []
        for setting in given:
            if names := dialect.sections.get(setting.name, ()):
                found += self._section(setting, names, document, folder)
        return document._replace(settings=(*document.settings, *found)) if found else document

    def _section(
        self, setting: Setting, names: Iterable[str], document: Document, folder: Path
    ) -> Iterator[Setting]:
        """Yield the settings of a section that is given as text; `names` are those with a row."""
        if any(each.name.startswith(f"{setting.name}.") for each in document.settings):
            return  # its reader has read the JSON
        part = self._text_of_section(setting, document, folder)
        found, why = ((), part) if isinstance(part, str) else (part.settings, part.incomplete)
        for each in found:
            yield each._replace(name=f"{setting.name}.{each.name}")
        given = {each.name for each in found}
        for name in names if why else ():
            if name not in given:
                yield Setting(f"{setting.name}.{name}", Unknown(why), setting.name_place, setting.place)

    def _text_of_section(self, setting: Setting, document: Document, folder: Path) -> Document | str:
        """Return a section that is given as text, or why it is not known."""
        if isinstance(setting.value, Unknown):
            return setting.value.why
        given = str(setting.value)
        if given.lstrip().startswith("{"):
            part = _one_document(given, "")
            if part is None:
                return f"the JSON of {setting.name} cannot be read"
            name_place, place = setting.name_place, setting.place
            placed = (each._replace(name_place=name_place, place=place) for each in part.settings)
            return part._replace(settings=tuple(placed))
        written = self._written.get((document.launch, given.removeprefix("./")))
        if written is not None:
            return written or f"the text of {_short(given)}, which {document.file} writes, is not known"
        return self._file_of_section(given, document, folder)

    def _file_of_section(self, given: str, document: Document, folder: Path) -> Document | str:
        """Return a file that is named in place of a section, or why it is not known."""
        path = ProjectFiles(folder).find(Path(given), document.folder)
        named = f"{_short(given)}, which {document.file} names,"
        if not path_exists(path):
            return f"{named} is not here"
        part = None
        with suppress(InputError):
            text = read_file(path, _LARGEST).decode("utf-8", "replace")
            part = _one_document(text, str(path))
        if part is None:
            return f"{named} cannot be read as a section"
        self.texts[str(path)] = text
        return part

    def _follow(self, reference: Reference, part: Interpretation, folder: Path) -> None:
        """Read the file that a setting names, relative to the file that names it or to this folder."""
        document = part.document
        if reference.unknown:
            self._leave_open(reference, reference.unknown)
            return
        written = self._written.get((reference.launch, reference.path.removeprefix("./")))
        if isinstance(written, str) and written:
            self._leave_open(reference, written)
        if written is not None:
            return  # what the script writes was read in its place
        inside = self._known[reference.dialect].inside
        path = ProjectFiles(folder).find(Path(reference.path) / inside, document.folder)
        if inside and not is_file(path):
            self._read_known_model(reference, folder)
            return
        if not path_exists(path):
            if not self._read_shipped(reference, document, folder):
                self._note_missing(reference, document)
            return
        if Path(reference.path).is_absolute() and not inside and path != Path(reference.path):
            text = f"{_short(reference.path)} is not here: {path} is read, which ends in the same way"
            self.diagnostics.append(Diagnostic(Severity.NOTE, "read-instead", text, (reference.place,)))
        try:
            given = _replacing(part, reference.dialect)
            naming = _Naming(reference.dialect, reference.launch, document.source, given)
            self._read_file(path, str(path), naming)
        except InputError as error:
            self._leave_open(reference, f"{reference.path} cannot be read")
            places = (error.place, reference.place)
            self.diagnostics.append(Diagnostic(Severity.ERROR, UNREADABLE, error.problem, places))

    def _read_shipped(self, reference: Reference, document: Document, folder: Path) -> bool:
        """Read what the trainer ships under the path of a missing file; return whether it ships one."""
        dialect = recognised(document, self._known)
        if dialect is None or dialect.shipped.dialect != reference.dialect:
            return False
        end = dialect.shipped.end_of(reference.path)
        installed = self._installed.get(dialect.package, "")
        other = installed and satisfies(installed, dialect.shipped.releases, unknown=Tri.NO) is not Tri.YES
        if not end or other:
            return False
        if Path(reference.path).suffix:  # without one it is a name that the trainer resolves so itself
            text = (
                f"{_short(reference.path)} is not here: what {dialect.package} ships under that name is read"
            )
            self.diagnostics.append(Diagnostic(Severity.NOTE, "read-instead", text, (reference.place,)))
        name = f"{end} of {dialect.package}"
        naming = _Naming(reference.dialect, reference.launch)
        self._read_text(dialect.shipped.files[end], name, folder, naming)
        return True

    def _read_known_model(self, reference: Reference, folder: Path) -> None:
        """Read what the config.json of a well-known model says, if the setting gives its name on the Hub."""
        if text := _known_configuration(reference.path):
            naming = _Naming(reference.dialect, reference.launch)
            self._read_text(text, f"config.json of {reference.path}", folder, naming)

    def _note_missing(self, reference: Reference, document: Document) -> None:
        name = _short(reference.path)
        self._leave_open(reference, f"{name}, which {document.file} names, is not here")
        text = f"{name} is missing: its settings are not known"
        self.diagnostics.append(Diagnostic(Severity.WARNING, "not-here", text, (reference.place,)))

    def _leave_open(self, reference: Reference, why: str) -> None:
        """Record the facts implied by naming the file, and those that its content would state as unknown."""
        dialect = self._known[reference.dialect]
        source = f"{reference.place.file}:{reference.place.line}"
        keys = sorted(merge.stated_keys(dialect)) if dialect.trainer else dialect.unread
        facts = [Fact(key, Unknown(why), source) for key in keys if key != "train.trainer"]
        facts += [
            Fact(implied.key, Unknown(why) if reference.optional else Known(implied.value), source)
            for implied in dialect.implied
            if not implied.when and implied.value is not None
        ]
        self.unread += [(reference.launch, fact) for fact in facts]


def _bases(document: Document, dialect: Dialect) -> list[tuple[str, Setting]]:
    """Return the YAML files on which a document is built, each with the setting that names it."""
    return [
        (name, setting)
        for setting in document.settings
        if dialect.inherits and setting.name == dialect.inherits
        for name in (setting.value if isinstance(setting.value, tuple) else (setting.value,))
        if isinstance(name, str) and name.endswith((".yaml", ".yml"))
    ]


def _base(path: Path) -> tuple[str, Document]:
    """Return the text of a file on which another is built, and its first document.

    Raises:
        InputError: it is not here, or cannot be read.
    """
    text = read_file(path, _LARGEST).decode("utf-8", "replace")
    (document, *_) = readers.read(text, str(path))
    return text, document


@cache
def _known_configuration(name: str) -> str:
    """Return the config.json of a well-known model as far as it is known, as JSON, or an empty text."""
    import json

    from envcheck.knowledge.hub_models import configuration_of

    found = configuration_of(text_of("hub_models", "hub"), name)
    return json.dumps(found) if found else ""


def _replacing(part: Interpretation, dialect: str) -> frozenset[str]:
    """Return the settings of a command line that name a file or a model, if they replace those of a file.

    They do in a file of the same dialect: the model that it names is then not the one that is trained.
    """
    if part.document.form != "arguments" or part.dialect is None or part.dialect.name != dialect:
        return frozenset()
    rows = part.dialect.rows
    names = part.document.names()
    return frozenset(name for name in names if any(row.refers for row in rows.get(name, ())))


def _may_be_section(setting: Setting, document: Document) -> bool:
    """Return whether a value is JSON, or names a file of JSON; an unknown one of a command line may."""
    if isinstance(setting.value, Unknown):
        return document.form == "arguments"
    value = setting.value
    return isinstance(value, str) and (value.endswith(".json") or value.lstrip().startswith("{"))


def _one_document(text: str, name: str) -> Document | None:
    """Return a text as one document, or None if it is malformed or something else."""
    try:
        found = readers.read(text, name)
    except InputError:
        return None
    return found[0] if len(found) == 1 and found[0].form in ("json", "yaml") else None


def _says_something(part: Interpretation) -> bool:
    """Return whether a part says more about a training than which variables its environment has."""
    return len(part.facts) > len(part.document.environment) or bool(part.references or part.diagnostics)


def _short(name: str) -> str:
    """Return the name of a file as a message quotes it."""
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…"


def _not_utf_8(data: bytes, name: str) -> list[Diagnostic]:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        before = data[: error.start].decode()
        place = Place(name, before.count("\n") + 1, len(before) - before.rfind("\n"))
        text = "not UTF-8 from here on: a program that reads it as UTF-8 stops there"
        return [Diagnostic(Severity.WARNING, "not-utf-8", text, (place,), "save it as UTF-8")]
    return []


def _is_inline(named: str) -> bool:
    """Return whether the text is a configuration or arguments rather than a file name."""
    if path_exists(Path(named)):
        return False
    return named.lstrip().startswith(("-", "{")) or "=" in named or " -" in named
