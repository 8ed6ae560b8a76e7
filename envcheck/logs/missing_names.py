"""Which package lacks a name that an exception reports as missing, and which package needs it. Pure.

The message names what is missing; the innermost frame shows whose code needs it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from envcheck.core.facts import normalised, package_key, package_name
from envcheck.core.rules import Atlas, Matrix, Rule
from envcheck.knowledge.atlas_rules import who_has_it
from envcheck.knowledge.names import InReleases, Presence
from envcheck.logs.events import Event, Frame, Raised
from envcheck.logs.own_code import checked_out, own_code

_FOLDERS = ("site-packages/", "dist-packages/")
_NAME_OF_MODULE = re.compile(
    r"cannot import name '(?P<name>[^']+)' from (?P<half>partially )?[^']{0,30}'(?P<module>[\w.]+)'"
    r"(?: \(most likely due to a circular import\))?(?: \((?P<location>[^()\n]{1,1000})\))?"
)
_ATTRIBUTE = re.compile(
    r"(?P<half>partially )?(?:initialized )?module (?P<quote>'?)(?P<module>[\w.]+)(?P=quote) "
    r"has no attribute (?P=quote)(?P<name>\w+)"
)
_MODULE = re.compile(r"[Nn]o module named '?(?P<module>[\w.]+)'?(?P<file>; '\w+' is not a package)?")
_ARGUMENT = re.compile(r"(?P<module>[\w.]+)\(\) got an unexpected keyword argument '(?P<name>\w+)'")


_QUOTED_ERROR = re.compile(r"\b[A-Z]\w*Error\([\"']$")
"""How Triton's compiler quotes the error that the source of a kernel led to."""

_LAZY_IMPORT = re.compile(r"Failed to import (?P<root>[a-z]\w*)\.[\w.]+ because of the following error")
"""How transformers and diffusers quote the error of a module that they import lazily."""

_BUILT = re.compile(r"/pip-install-[^/]+/([\w.-]+?)_[0-9a-f]{32}/")
"""The folder in which pip builds a package."""


_DISPATCHERS = (
    *("torch/nn/modules/module.py", "torch/_dynamo/eval_frame.py", "torch/utils/_contextlib.py"),
    *("torch/utils/checkpoint.py", "accelerate/hooks.py", "accelerate/utils/operations.py"),
    *("deepspeed/runtime/zero/partition_parameters.py", "transformers/modeling_utils.py"),
    *("transformers/utils/generic.py", "transformers/utils/deprecation.py", "functools.py"),
)
"""Files whose functions call others with whatever they were given."""


MODELS_OWN = "the model's own code"
"""What stands for a distribution if a frame is in the code of a model's repository."""

PYTHON = "python"
"""What lacks a name of the standard library."""


class MissingName(NamedTuple):
    """Hold a name that a package lacks; `kind` is `name`, `module` or `argument`.

    `module` is the module that lacks it, or the function that lacks an argument. `lacks` and `asks` are
    the distributions that lack and need it, empty if unknown or the user's own code. `installed` says that a
    part of a package is missing, not the package. `half` marks a module that was still being imported.
    `own` says that the user's own code needs it, or a checkout of the package itself, which `asks` names.
    `attribute` says that Python looked it up in the module that was imported, whose file the message does
    not show. `file` is that file, if it does and it is beside a script of the traceback, and `folder` says
    that it has none, as a folder without `__init__.py`. `asker` is the file outside installed packages that
    needs it, from its project's root on if the traceback imports it as a part of one. `handed` is the
    dictionary that holds a refused argument, if the failing line passes it on by `**`. `lazily` says that of
    `asks` it is only known that its lazy import failed: a package that it imports may be the one that asks.
    `unpickled` says that the module is that of an object which was read from another process or a file.
    `tree` is the folder from which a half imported package comes, if it is none of installed packages.
    `of_package_file` says that the message names the `__init__.py` of the module, and an `__init__.py` of the
    same package asks for the name. `of_command` is the command whose file, which an installer wrote, cannot
    import its own package.
    `built` says that a package is built from its source, and that the code of the build needs the module.
    """

    kind: str
    name: str
    module: str
    lacks: str
    asks: str
    installed: bool
    half: bool = False
    own: bool = False
    attribute: bool = False
    file: str = ""
    folder: bool = False
    handed: str = ""
    asker: str = ""
    lazily: bool = False
    unpickled: bool = False
    tree: str = ""
    built: bool = False
    of_package_file: bool = False
    of_command: str = ""

    @property
    def plain_word(self) -> bool:
        """Return whether texts use the name, such as `layer`, without meaning it."""
        return self.kind == "name" and self.name.isalpha() and self.name.islower()

    @property
    def of_any_module(self) -> bool:
        """Return whether a file or folder with the package's name may have been imported in its place."""
        return self.attribute and "." not in self.module


def distributions_by_module(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """Return the distribution of each module whose name differs from that of its distribution.

    A name that ends in a slash is that of a folder into which the distribution writes code, wherever it lies.
    """
    rows = tables.get("import_name", ())
    written = {f"{row['module']}/": row["package"] for row in rows if row.get("written")}
    return {row["module"]: row["package"] for row in rows} | written


def missing_name(event: Event, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> MissingName | None:
    """Return the name that the exceptions of an event report as missing, or None."""
    distributions = distributions_by_module(tables)
    for raised in event.exceptions:
        asks = package_of(raised.place, distributions)
        if lazily := _of_lazy_import(raised.message, distributions):
            asks = lazily if asks in ("", lazily) else ""  # the frame is of the code that imports it
        for kind, pattern in (
            ("name", _NAME_OF_MODULE),
            ("name", _ATTRIBUTE),
            ("module", _MODULE),
            ("argument", _ARGUMENT),
        ):
            if found := pattern.search(raised.message):
                if found.groupdict().get("file"):
                    return None  # a file of that name was imported, which says nothing of the package
                deeper = kind == "name" and _imports_another(raised.source, found["name"], found["module"])
                if deeper or _QUOTED_ERROR.search(raised.message, 0, found.start()):
                    asks = ""  # it was asked for below the last frame, or the frame quotes a compiler's error
                if kind == "argument" and raised.place and raised.place.file.endswith(_DISPATCHERS):
                    asks = ""  # it only hands on what another function passed
                unpickled = kind == "module" and _unpickles(raised.place)
                if unpickled or _is_beside_installed(raised.place, raised.message):
                    asks = ""
                within = not asks and kind == "module" and _is_inside(raised.place, found["module"])
                if within or (
                    not asks and kind == "module" and _is_command_of(raised.place, found["module"])
                ):
                    asks = distribution_of(found["module"], distributions)
                users = own_code(raised.place) or _is_checkout(raised.place)
                own = within or (not asks and not lazily and users and not deeper)
                missing = _missing(kind, found, asks, distributions)
                file = missing.file if _is_beside_script(missing, event.text) else ""
                handed = _handed(raised.source, found["name"]) if kind == "argument" else ""
                return missing._replace(
                    of_package_file=_is_of_package_file(raised.place, missing),
                    of_command=_command_without_package(raised, missing),
                    own=own,
                    attribute=pattern is _ATTRIBUTE,
                    file=file,
                    handed=handed,
                    asker=_file_of_project(raised.place, event.text) if own else "",
                    lazily=bool(lazily),
                    unpickled=unpickled,
                    built=kind == "module" and _OF_BUILD.search(event.text) is not None,
                )
    return None


_OF_BUILD = re.compile(
    r"[/\\]setuptools[/\\]build_meta\.py\"|[/\\]pyproject_hooks[/\\]|<pip-setuptools-caller>"
    r"|[/\\](?:pip-install-|pip-req-build-|pip-build-env-|sdists-v\d)"
)
"""A frame of the tools that build a package from its source, or a path below which they build it."""

_WHOLE_IMPORT = re.compile(r"(?:from|import) [^(*\\]*[^(*\\,\s]$")


def _imports_another(source: str, name: str, module: str) -> bool:
    """Return whether a line only imports something else: frames below it are missing in the log."""
    words = {*re.findall(r"\w+", source)}
    return bool(_WHOLE_IMPORT.match(source)) and words.isdisjoint({name, module.rpartition(".")[2]})


_IMPORT = re.compile(r"^[ \t]*(?:from|import) ([A-Za-z_]\w*(?:\.\w+)+)", re.MULTILINE)


def _file_of_project(place: Frame | None, text: str) -> str:
    """Return a frame's file from its project's root on, if a line of the traceback imports it by that path.

    Such a file is a module of a project, which a user runs from a checkout more often than they wrote it. Of
    another file, its name alone is returned: a path does not tell who wrote it.
    """
    file = place.file.replace("\\", "/") if place is not None else ""
    module = file.removesuffix(".py").removesuffix("/__init__")
    for found in _IMPORT.finditer(text):
        path = found[1].replace(".", "/")
        if module.endswith(f"/{path}"):
            return path + file[len(module) :]
    return file.rpartition("/")[2]


_UNPICKLERS = re.compile(r"(?:^|/)(?:_?dill|cloudpickle|pickle)\.py$")


def _unpickles(place: Frame | None) -> bool:
    """Return whether a frame reads objects, which imports the modules that define them."""
    return place is not None and _UNPICKLERS.search(place.file.replace("\\", "/")) is not None


_UNPACKED = re.compile(r"\*\*(\w[\w.]*)")


def _handed(source: str, argument: str) -> str:
    """Return the one dictionary that a line unpacks into a call, if it does not name the argument itself."""
    unpacked = {*_UNPACKED.findall(source)}
    return unpacked.pop() if len(unpacked) == 1 and not re.search(rf"\b{argument} ?=", source) else ""


def _is_beside_script(missing: MissingName, text: str) -> bool:
    """Return whether the module's file is in the folder of a script that the traceback shows, or below it."""
    root = missing.module.partition(".")[0]
    folder = re.match(rf"(.+?[/\\]){re.escape(root)}(?:\.py$|[/\\])", missing.file)
    return folder is not None and re.search(rf'"{re.escape(folder[1])}[\w.-]+\.py", line', text) is not None


_INIT = "/__init__.py"


def _is_of_package_file(place: Frame | None, missing: MissingName) -> bool:
    """Return whether a package's own `__init__.py` asks for a name that a part of it, by its file, lacks."""
    asker = place.file.replace("\\", "/") if place is not None else ""
    inside = missing.file.replace("\\", "/").endswith(_INIT) and "." in missing.module
    root = missing.module.partition(".")[0]
    return inside and missing.kind == "name" and asker.endswith(f"/{root}{_INIT}")


_COMMAND = re.compile(r"/bin/[\w-]+$")
_COMMAND_OF_WINDOWS = re.compile(r"/Scripts/(?P<name>[\w-]+)\.exe/__main__\.py$", re.IGNORECASE)


def _command_without_package(raised: Raised, missing: MissingName) -> str:
    """Return the command whose file an installer wrote, if its line imports the package that is missing."""
    if missing.kind != "module" or raised.place is None or missing.module != missing.module.partition(".")[0]:
        return ""
    file = raised.place.file.replace("\\", "/")
    found = _COMMAND_OF_WINDOWS.search(file)
    name = found["name"] if found else file.rpartition("/")[2] if _COMMAND.search(file) else ""
    imports = re.match(rf"from {re.escape(missing.module)}(?:\.\w+)* import \w+$", raised.source)
    return name if imports else ""


def _is_command_of(place: Frame | None, module: str) -> bool:
    """Return whether a frame is in the file that an installer wrote for a command of a module's package."""
    return place is not None and "." in module and bool(_COMMAND.search(place.file.replace("\\", "/")))


def _is_inside(place: Frame | None, module: str) -> bool:
    """Return whether a frame is in the checkout of a module's package: below two folders of its name."""
    root = re.escape(module.partition(".")[0])
    found = place is not None and "." in module and own_code(place)
    return bool(found and place and re.search(rf"(?:^|/)({root})/\1/", place.file.replace("\\", "/")))


_INSTALLED = re.compile(r"\((?P<folder>[^()\n]{1,1000}(?:site|dist)-packages/)(?P<root>\w+)[/.]")


def _is_beside_installed(place: Frame | None, message: str) -> bool:
    """Return whether a frame is in a folder with the name of a package that is installed elsewhere.

    A message names the file that lacks the name: if that one is installed, a checkout is not what runs.
    """
    found = _INSTALLED.search(message.replace("\\", "/"))
    if found is None or place is None:
        return False
    file = place.file.replace("\\", "/")
    return checked_out(file) == found["root"] and not any(folder in file for folder in _FOLDERS)


def _is_checkout(place: Frame | None) -> bool:
    return place is not None and bool(checked_out(place.file.replace("\\", "/")))


def _missing(kind: str, found: re.Match[str], asks: str, distributions: Mapping[str, str]) -> MissingName:
    groups = found.groupdict()
    module = groups["module"]
    root = module.partition(".")[0]
    of_python = root in sys.stdlib_module_names and root not in distributions
    package = distribution_of(module, distributions)
    lacks = "" if kind == "argument" else PYTHON if of_python else package
    inside = kind != "module" or "." in module or of_python
    name = groups.get("name") or module
    location = groups.get("location") or ""
    # What is compiled into Python has no file either.
    folder = location == "unknown location" and not of_python
    file = location if "/" in location or "\\" in location else ""
    half = bool(groups.get("half"))
    tree = _source_tree(location, root) if half else ""
    return MissingName(
        kind, name, module, lacks, asks, inside, half=half, file=file, folder=folder, tree=tree
    )


def _source_tree(location: str, root: str) -> str:
    """Return the folder that holds a package's folder, if that is not one of installed packages."""
    folder = re.match(rf"(?P<tree>.+?)[/\\]{re.escape(root)}[/\\]", location)
    installed = any(part in location.replace("\\", "/") for part in _FOLDERS)
    return folder["tree"] if folder and not installed else ""


def passer_of(event: Event, package: str, distributions: Mapping[str, str]) -> str | None:
    """Return the distribution whose code calls a package in the innermost frames, empty for the user's own.

    None if the log does not show it.
    """
    files = re.findall(r'File "([^"\n]{1,1000})", line', event.text)
    while files:
        place = Frame(files.pop(), 0, "")
        found = package_of(place, distributions)
        if found != package and not place.file.startswith(f"{package}/"):
            return None if place.file.startswith("<") else found
    return None


def distribution_of(module: str, distributions: Mapping[str, str]) -> str:
    """Return the distribution of a module: that of the longest part of its path that is in the table."""
    path = module
    while path and path not in distributions:
        path = path.rpartition(".")[0]
    return distributions.get(path) or normalised(module.partition(".")[0])


def package_of(place: Frame | None, distributions: Mapping[str, str]) -> str:
    """Return the distribution whose file a frame is in; empty for the user's own code."""
    if place is None:
        return ""
    if "/transformers_modules/" in f"/{place.file}".replace("\\", "/"):
        return MODELS_OWN
    if built := _BUILT.search(place.file):
        return normalised(built[1])
    for folder in _FOLDERS:
        _, found, rest = place.file.replace("\\", "/").rpartition(folder)
        if found:
            module = rest.removesuffix(".py").replace("/", ".")
            return distribution_of(module, distributions)
    file = place.file.replace("\\", "/")
    folders = (f"{part}/" for part in file.split("/")[:-1])
    written = next((distributions[folder] for folder in folders if folder in distributions), "")
    root = checked_out(file) or _cut_root(place.file, distributions)
    return written or distributions.get(root) or normalised(root)


_CUT_PATH = re.compile(r"(?P<root>[a-z]\w+)/(?:\w+/)+\w+\.py$")


def _cut_root(file: str, distributions: Mapping[str, str]) -> str:
    """Return the package of a path that somebody cut to what lies in site-packages: `verl/utils/fs.py`."""
    found = _CUT_PATH.match(file)
    return found["root"] if found and found["root"] in distributions else ""


def packages_in(event: Event, distributions: Mapping[str, str]) -> frozenset[str]:
    """Return the distributions whose files the tracebacks of an event go through."""
    files = re.findall(r'File "([^"\n]{1,1000})", line', event.text)
    return frozenset(package_of(Frame(file, 0, ""), distributions) for file in files) - {""}


def packages_named(text: str, distributions: Mapping[str, str]) -> frozenset[str]:
    """Return the distributions of whose installed files a text has paths, in whatever form."""
    roots = {*re.findall(r"(?:site|dist)-packages[/\\](\w+)", text)}
    return frozenset(distributions.get(root) or normalised(root) for root in roots)


def is_of_lazy_import(message: str) -> bool:
    """Return whether a message quotes the error of a lazy import, whose own line is not at fault."""
    return _LAZY_IMPORT.search(message) is not None


def _of_lazy_import(message: str, distributions: Mapping[str, str]) -> str:
    """Return the distribution whose lazy import a message is about; empty if it is about none."""
    found = _LAZY_IMPORT.search(message)
    return distributions.get(found["root"]) or normalised(found["root"]) if found else ""


_OF_EVERY_CLASS = frozenset({"forward", "__init__", "__call__"})
"""Functions whose name does not tell which class a message is about."""


def is_of_another(package: str, missing: MissingName, shown: frozenset[str]) -> bool:
    """Return whether what is known of a package says nothing of an argument, because the log shows others.

    The name of a class such as `Trainer` does not tell whose it is, and `shown` are the packages in the log.
    """
    return missing.kind == "argument" and not missing.asks and bool(shown) and package not in shown


def rules_on(missing: MissingName, matrix: Matrix, shown: frozenset[str] = frozenset()) -> Iterator[Rule]:
    """Yield the rules on these packages whose title or explanation mentions the name.

    If neither package is known, a rule has to mention the function or the module as well, and a function that
    every class has, such as `forward`, finds no rule. If it is known who asks, a package or the user's own
    code, rules on other packages that ask for the same name do not count.
    """
    packages = {package_key(name) for name in (missing.lacks, missing.asks) if name}
    mentioned = [missing.name] if packages else [missing.name, missing.module or missing.name]
    if missing.kind != "module":  # the last part of a module's path is too often a common word
        mentioned = [each.rpartition(".")[2] for each in mentioned]
    if not packages and _OF_EVERY_CLASS.intersection(mentioned):
        return
    words = [re.compile(rf"(?<![\w.]){re.escape(each)}\b") for each in mentioned]
    if missing.kind == "argument" and missing.name.isalpha():  # else prose uses the word: "on that device"
        words[0] = re.compile(rf"['\"`]{missing.name}['\"`]|(?<![\w.]){missing.name}=")
    for rule in matrix.rules:
        keys = {clause.key for table in rule.when for clause in table}
        others = {key for key in keys if key.startswith("pkg.")} - {package_key(missing.lacks)}
        named = [package_name(key) for key in others]
        if named and all(is_of_another(each, missing, shown) for each in named):
            continue
        if others and (missing.own or (missing.asks and package_key(missing.asks) not in others)):
            continue
        text = f"{rule.title} {rule.why}"
        if (not packages or keys & packages) and all(word.search(text) for word in words):
            yield rule


def ranges_in_atlas(missing: MissingName, atlas: Atlas, shown: frozenset[str] = frozenset()) -> Iterator[str]:
    """Yield which releases have the name and which need it, from the code of all published releases.

    If the log shows whose code needs the name, only that package counts; else every package that needs it.
    """
    found: dict[str, None] = {}
    for package, partners in atlas.rows.items():
        if missing.asks not in ("", package) or (missing.lacks and missing.lacks not in partners):
            continue
        if is_of_another(package, missing, shown):
            continue
        for partner in [missing.lacks] if missing.lacks else partners:
            for row in partners[partner]:
                if _is_it(row.needs, missing):
                    found[who_has_it(row, atlas)] = None
    yield from found


def ranges_of_overrides(missing: MissingName, atlas: Atlas) -> Iterator[str]:
    """Yield which releases define the method without the argument, and which of the base pass it.

    The frame is that of the base's package, which passes the argument; the message names the other's class.
    """
    owner, _, method = missing.module.rpartition(".")
    if missing.kind != "argument" or not owner:
        return
    made = re.compile(rf"\b{re.escape(owner.rpartition('.')[2])}(?:\.\w+)?\(")
    for partners in atlas.rows.values():
        for row in partners.get(missing.asks, ()):
            passes = row.kind == "override" and row.needs.endswith(f".{method}({missing.name}=)")
            if passes and made.search(row.entry):
                yield who_has_it(row, atlas)


def _is_it(needs: str, missing: MissingName) -> bool:
    """Return whether what a row needs is the missing name, argument or module."""
    if missing.kind == "argument":
        return needs.endswith(f"{missing.module.rpartition('.')[2]}({missing.name}=)")
    module, _, name = needs.rpartition(".")
    if missing.kind == "module":
        return missing.module in (needs, module)
    return (name == missing.name and module in (missing.module, "")) or needs == missing.name


def ranges_in_names(missing: MissingName, presence: Presence) -> Iterator[str]:
    """Yield which releases have the name, if they are not all or none of those that have its module."""
    if presence.answer is InReleases.SOME:
        path = missing.module if missing.kind == "module" else f"{missing.module}.{missing.name}"
        yield f"{path}: in {missing.lacks} {presence.words}"


def ranges_with(missing: MissingName, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterator[str]:
    """Yield which releases need the name and which have it, from the tables that list names.

    They list what PEFT asks for, which says nothing of another package that asks.
    """
    for row in tables.get("peft_transformers", ()) if missing.asks in ("", "peft") else ():
        if missing.name in row.get("missing", ()):
            yield f"peft {row['peft']} asks for it, and transformers {row['transformers']} has it"
